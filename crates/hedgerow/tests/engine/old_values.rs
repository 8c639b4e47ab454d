//! Large values that were replaced, and the snapshots for which they are kept.
#![allow(clippy::disallowed_methods, reason = "tests sleep")]

use crate::common::{assert_sound, key};
use hedgerow::{ErrorKind, Options};
use std::time::Duration;

fn options(age: Duration) -> Options {
    Options::new().memory_limit_bytes(4 << 20).background_checkpoints(false).max_snapshot_age(age)
}

/// Nobody ends it, and nobody reads it.
#[test]
fn the_file_keeps_no_large_value_for_a_snapshot_that_was_given_up() {
    const AGE: Duration = Duration::from_millis(20);
    const VALUE_BYTES: usize = 100_000;
    let directory = tempfile::tempdir().unwrap();
    let db = options(AGE).create(directory.path().join("birds.hrow")).unwrap();
    let songs = db.keyspace("songs").unwrap();
    songs.put(b"wren", &[0; VALUE_BYTES]).unwrap();
    let forgotten = db.snapshot().unwrap();
    let seen = forgotten.keyspace(&songs).unwrap();
    std::thread::sleep(2 * AGE);
    for round in 0..300_u32 {
        songs.put(b"wren", &[round as u8; VALUE_BYTES]).unwrap();
        db.checkpoint().unwrap();
    }
    let file_bytes = db.stats().unwrap().file_bytes;
    assert!(file_bytes < 20 * VALUE_BYTES as u64, "{file_bytes} bytes");
    assert_eq!(seen.get(b"wren").unwrap_err().kind(), ErrorKind::SnapshotTooOld);
    assert_sound(&db, "the snapshot was given up");
}

/// What a snapshot sees goes while it is read: the iterator has the references already.
#[test]
fn an_iterator_of_a_snapshot_that_was_given_up_does_not_read_what_is_somebody_elses() {
    const AGE: Duration = Duration::from_millis(200);
    let value = |n: u64, round: u64| (n << 32 | round).to_le_bytes().repeat(5_000);
    let directory = tempfile::tempdir().unwrap();
    let db = options(AGE).create(directory.path().join("birds.hrow")).unwrap();
    let songs = db.keyspace("songs").unwrap();
    let put_all = |round: u64| {
        for n in 0..8 {
            songs.put(&key(n), &value(n, round)).unwrap();
        }
        db.checkpoint().unwrap();
    };
    put_all(0);
    let snapshot = db.snapshot().unwrap();
    let mut records = snapshot.keyspace(&songs).unwrap().iter();
    let first = records.next().unwrap().unwrap();
    assert_eq!(&first.1[..], value(0, 0));
    std::thread::sleep(2 * AGE);
    (1..10).for_each(put_all);
    let error = records.next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
    assert_sound(&db, "the snapshot was given up");
}
