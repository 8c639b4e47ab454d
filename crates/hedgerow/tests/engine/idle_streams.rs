//! Streams of large values that nobody calls are in nobody's way: they hold no memory that others want, and of the
//! file they hold their own value only.
#![allow(clippy::disallowed_methods, reason = "a test with threads and files of its own")]

use crate::common::{Dice, assert_sound, bytes, seed};
use hedgerow::{Database, Keyspace, Options, ValueReader, ValueWriter};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// Far less than the ten seconds after which whoever gets no memory is refused.
const AT_ONCE: Duration = Duration::from_secs(6);
const VALUES: usize = 4;

fn open(limit_bytes: u64) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().memory_limit_bytes(limit_bytes).background_checkpoints(false);
    let db = options.create(directory.path().join("birds.hrow")).unwrap();
    (directory, db)
}

/// A database with some values of 300,000 to 700,000 bytes.
fn with_values(limit_bytes: u64) -> (tempfile::TempDir, Database, Keyspace, Vec<Vec<u8>>) {
    let mut dice = Dice(seed(1));
    let (directory, db) = open(limit_bytes);
    let keyspace = db.keyspace("songs").unwrap();
    let values: Vec<_> = (0..VALUES).map(|n| bytes(&mut dice, 300_000 + n * 133_333)).collect();
    for (n, value) in values.iter().enumerate() {
        keyspace.put(&[n as u8], value).unwrap();
    }
    (directory, db, keyspace, values)
}

/// A reader that has read half of its value, and what is left of it.
fn half_read<'v>(keyspace: &Keyspace, values: &'v [Vec<u8>], n: usize) -> (ValueReader, &'v [u8]) {
    let n = n % values.len();
    let value = &values[n];
    let mut reader = keyspace.value_reader(&[n as u8]).unwrap().unwrap();
    let mut half = vec![0; value.len() / 2 + n];
    reader.read_exact(&mut half).unwrap();
    assert_eq!(half, value[..half.len()]);
    (reader, &value[half.len()..])
}

/// Everything that needs memory for large values, once.
fn use_large_values(keyspace: &Keyspace, values: &[Vec<u8>]) {
    for (n, value) in values.iter().enumerate() {
        assert_eq!(keyspace.get(&[n as u8]).unwrap().as_deref(), Some(&value[..]));
        let part = keyspace.get_range(&[n as u8], 100_000..150_000).unwrap();
        assert_eq!(part.as_deref(), Some(&value[100_000..150_000]));
        keyspace.put(b"other", value).unwrap();
        keyspace.put_stream(b"streamed", value.len() as u64, &mut &value[..]).unwrap();
        assert_eq!(keyspace.get(b"streamed").unwrap().as_deref(), Some(&value[..]));
    }
}

#[test]
fn half_read_readers_make_nobody_wait_and_go_on_where_they_were() {
    let limits: [u64; 6] = [1 << 20, 2 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20];
    for limit in limits {
        let (_directory, db, keyspace, values) = with_values(limit);
        for count in [5, 17, 65, 1000] {
            let mut readers: Vec<_> =
                (0..count).map(|n| half_read(&keyspace, &values, n)).collect();
            let since = Instant::now();
            use_large_values(&keyspace, &values);
            assert!(since.elapsed() < AT_ONCE, "{limit}, {count}: {:?}", since.elapsed());
            // In small pieces, each in its turn, so that all of them want memory.
            let since = Instant::now();
            for _ in 0..3 {
                for (reader, rest) in &mut readers {
                    let mut piece = [0; 100];
                    reader.read_exact(&mut piece).unwrap();
                    let (next, later) = rest.split_at(100);
                    assert_eq!(piece, next);
                    *rest = later;
                }
            }
            // The first of them to their ends.
            for (reader, rest) in readers.iter_mut().take(20) {
                let mut found = Vec::new();
                reader.read_to_end(&mut found).unwrap();
                assert_eq!(found, *rest);
            }
            let kept = db.stats().unwrap().memory;
            assert!(kept.set_aside_bytes() <= kept.limit_bytes, "{kept:?}");
            assert!(since.elapsed() < 5 * AT_ONCE, "{limit}, {count}: {:?}", since.elapsed());
        }
        assert_sound(&db, "after idle readers");
    }
}

fn begin(keyspace: &Keyspace, key: [u8; 2], value: &[u8], taken: usize) -> ValueWriter {
    let mut writer = keyspace.value_writer(&key, value.len() as u64).unwrap();
    writer.write_bytes(&value[..taken]).unwrap();
    writer
}

#[test]
fn half_written_writers_make_nobody_wait_and_lose_no_byte() {
    for limit in [1_u64 << 20, 2 << 20, 16 << 20, 64 << 20] {
        let (_directory, db, keyspace, values) = with_values(limit);
        for count in [5, 17, 65] {
            let value = |n: usize| &values[n % VALUES][n..];
            // Some with less than a chunk, some at its end, some in the middle of a later one.
            let chunk = (32 << 10) - 8;
            let taken = |n: usize| [1, 100, chunk - 1, chunk, chunk + 1, 5 * chunk + 7][n % 6];
            let key = |n: usize| [1, n as u8];
            let mut writers: Vec<_> = (0..count)
                .map(|n| (begin(&keyspace, key(n), value(n), taken(n)), &value(n)[taken(n)..]))
                .collect();
            let since = Instant::now();
            use_large_values(&keyspace, &values);
            assert!(since.elapsed() < AT_ONCE, "{limit}, {count}: {:?}", since.elapsed());
            for len in [1, 70, 999, 4000] {
                for (writer, rest) in &mut writers {
                    let (next, later) = rest.split_at(len);
                    writer.write_all(next).unwrap();
                    *rest = later;
                }
            }
            // A few are given up.
            for (writer, _) in writers.drain(count - 2..) {
                drop(writer);
            }
            for (mut writer, rest) in writers {
                writer.write_bytes(rest).unwrap();
                writer.finish().unwrap();
            }
            for n in 0..count - 2 {
                let found = keyspace.get(&key(n)).unwrap();
                assert!(found.as_deref() == Some(value(n)), "{limit}, {count}: value {n}");
                keyspace.remove(&key(n)).unwrap();
            }
            db.checkpoint().unwrap();
        }
        assert_sound(&db, "after idle writers");
        let space = db.space_report().unwrap();
        assert_eq!(space.accounted_bytes(), space.file_bytes);
    }
}

#[test]
fn an_idle_reader_keeps_its_own_value_and_no_other() {
    let (_directory, db, keyspace, values) = with_values(4 << 20);
    let mut idle: Vec<_> = (0..VALUES).map(|n| half_read(&keyspace, &values, n)).collect();
    for n in 0..VALUES {
        assert!(keyspace.remove(&[n as u8]).unwrap());
    }
    db.checkpoint().unwrap();
    let before = db.space_report().unwrap().file_bytes;
    // Of 100 values that come and go two at a time the room of a few is enough.
    for round in 0..100 {
        keyspace.put(b"other", &values[round % VALUES]).unwrap();
        if round % 2 == 1 {
            db.checkpoint().unwrap();
        }
    }
    let after = db.space_report().unwrap().file_bytes;
    assert!(after <= before + (4 << 20), "{before} bytes of file became {after}");
    for (reader, rest) in &mut idle {
        let mut found = Vec::new();
        reader.read_to_end(&mut found).unwrap();
        assert_eq!(found, *rest);
    }
    // They hold what they read, and give it back.
    let held = db.space_report().unwrap().quarantined_bytes;
    let all: usize = values.iter().map(Vec::len).sum();
    assert!(held >= all as u64, "{held} bytes wait for the readers");
    drop(idle);
    keyspace.remove(b"other").unwrap();
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    let space = db.space_report().unwrap();
    assert!(space.quarantined_bytes < all as u64 / 2, "{space:?}");
    assert_eq!(space.accounted_bytes(), space.file_bytes);
    assert_sound(&db, "after idle readers");
}

#[test]
fn a_database_closes_beside_idle_streams() {
    let (directory, db, keyspace, values) = with_values(4 << 20);
    let mut readers: Vec<_> = (0..100).map(|n| half_read(&keyspace, &values, n)).collect();
    let mut writer = begin(&keyspace, [1, 1], &values[0], 70_000);
    drop(keyspace);
    db.close().unwrap();
    let mut piece = [0; 10];
    for (reader, _) in &mut readers {
        reader.read_exact(&mut piece).unwrap_err();
    }
    writer.write_bytes(&piece).unwrap_err();
    drop((readers, writer));
    let db = Options::new().open(directory.path().join("birds.hrow")).unwrap();
    let keyspace = db.keyspace("songs").unwrap();
    for (n, value) in values.iter().enumerate() {
        assert_eq!(keyspace.get(&[n as u8]).unwrap().as_deref(), Some(&value[..]));
    }
    assert_sound(&db, "closed beside idle streams");
}
