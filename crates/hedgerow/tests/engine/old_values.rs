//! Large values that were replaced, and the snapshots for which they are kept.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{assert_sound, effort, key};
use hedgerow::{ErrorKind, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
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

/// What a snapshot sees goes while it is read.
#[test]
fn who_reads_large_values_of_a_snapshot_sees_its_moment_or_that_it_was_given_up() {
    const AGE: Duration = Duration::from_millis(5);
    const KEYS: u64 = 6;
    let value = |n: u64, round: u64| {
        let number = n << 32 | round;
        number.to_le_bytes().repeat(2_500 + 1_200 * n as usize)
    };
    let directory = tempfile::tempdir().unwrap();
    let db = options(AGE).create(directory.path().join("birds.hrow")).unwrap();
    let songs = db.keyspace("songs").unwrap();
    for n in 0..KEYS {
        songs.put(&key(n), &value(n, 0)).unwrap();
    }
    let (stop, too_old) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Relaxed) {
                        let snapshot = db.snapshot().unwrap();
                        let mut rounds = [None; KEYS as usize];
                        let mut look = || {
                            let seen = snapshot.keyspace(&songs)?;
                            for n in 0..KEYS {
                                let found = seen.get(&key(n))?.expect("it is never removed");
                                let word = u64::from_le_bytes(found[..8].try_into().unwrap());
                                let round = word & u64::from(u32::MAX);
                                assert!(found.as_bytes() == value(n, round), "{n} {round}");
                                let first = *rounds[n as usize].get_or_insert(round);
                                assert_eq!(first, round, "the snapshot sees two values of {n}");
                            }
                            Ok::<(), hedgerow::Error>(())
                        };
                        let error = loop {
                            if let Err(error) = look() {
                                break error;
                            }
                        };
                        assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
                        too_old.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        let mut round = 0;
        while too_old.load(Relaxed) < 100 * effort()
            && !readers.iter().any(std::thread::ScopedJoinHandle::is_finished)
        {
            round += 1;
            (0..KEYS).for_each(|n| {
                songs.put(&key(n), &value(n, round)).unwrap();
            });
            db.checkpoint().unwrap();
        }
        stop.store(true, Relaxed);
    });
    assert_sound(&db, "snapshots were given up");
}
