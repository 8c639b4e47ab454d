//! Values that are lent: each is the value of one version to its last byte, whatever writers, cursors and checkpoints do
//! meanwhile, and a value that is never given back hinders nobody.
#![allow(clippy::disallowed_methods, reason = "tests use real threads")]

use crate::common::lengths::{Lengths, content};
use crate::common::{Dice, assert_sound, effort, seed};
use hedgerow::{Database, Keyspace, Options, ValueRef};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

const LIMIT_BYTES: u64 = 12 << 20;
const KEYS: u64 = 60;

fn key(n: u64) -> Vec<u8> {
    format!("song/{n:03}").into_bytes()
}

fn open() -> (tempfile::TempDir, Database, Keyspace) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().memory_limit_bytes(LIMIT_BYTES);
    let db = options.create(directory.path().join("songs.hrow")).unwrap();
    let keyspace = db.keyspace("songs").unwrap();
    (directory, db, keyspace)
}

/// Compares a value with what its first bytes say that it is.
fn check(key: &[u8], value: &[u8]) {
    let version = u64::from_le_bytes(value[..8].try_into().unwrap());
    assert!(value == content(key, version, value.len()), "{} bytes", value.len());
}

fn joined(value: &ValueRef<'_>) -> Vec<u8> {
    let bytes: Vec<u8> = value.parts().flatten().copied().collect();
    assert_eq!((bytes.len(), bytes.is_empty()), (value.len(), value.is_empty()));
    assert!(value.whole().is_none_or(|whole| whole == bytes));
    assert!(value.to_vec() == bytes);
    bytes
}

#[test]
fn every_way_to_read_gives_the_same_value_at_every_length() {
    let (_directory, db, keyspace) = open();
    let lengths = Lengths::new(&keyspace, 4096, LIMIT_BYTES, 300_000);
    let lengths: Vec<usize> = lengths.at_limits().chain([0, 1, 2 * 4096 + 1]).collect();
    for len in lengths {
        let (key, value) = (key(7), content(&key(7), 5, len));
        keyspace.put(&key, &value).unwrap();
        let lent = keyspace.get_ref(&key).unwrap().unwrap();
        assert!(joined(&lent) == value, "{len} bytes");
        assert_eq!(format!("{lent:?}"), format!("ValueRef {{ len_bytes: {len}, .. }}"));
        // Whoever has it may use the database, also to replace what he has.
        keyspace.put(&key, b"short").unwrap();
        db.checkpoint().unwrap();
        assert!(joined(&lent) == value, "{len} bytes");
        keyspace.put(&key, &value).unwrap();
        let seen = keyspace.get_with(&key, |found| {
            assert!(found == value);
            keyspace.remove(&key).unwrap()
        });
        assert_eq!(seen.unwrap(), Some(true));
        assert!(keyspace.get_ref(&key).unwrap().is_none());
        assert_eq!(keyspace.get_with(&key, <[u8]>::len).unwrap(), None);
    }
}

#[test]
fn what_is_lent_is_whole_beside_writers_cursors_and_checkpoints() {
    let (_directory, db, keyspace) = open();
    let seed = seed(39);
    let lengths = Lengths::new(&keyspace, 4096, LIMIT_BYTES, 150_000);
    let mut dice = Dice(seed);
    for n in 0..KEYS {
        keyspace.put(&key(n), &content(&key(n), 1, lengths.draw(&mut dice).max(8))).unwrap();
    }
    let (ended, lent_count) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for reader in 0..3 {
            let (keyspace, ended, lent_count) = (&keyspace, &ended, &lent_count);
            scope.spawn(move || {
                let mut dice = Dice(seed ^ (reader + 1));
                let mut kept: Vec<(Vec<u8>, ValueRef<'_>, Vec<u8>)> = Vec::new();
                while !ended.load(Relaxed) {
                    let key = key(dice.below(KEYS));
                    match dice.below(4) {
                        0 => {
                            let seen = keyspace.get_with(&key, |value| check(&key, value));
                            assert_eq!(seen.unwrap(), Some(()));
                        }
                        1 => {
                            let mut cursor = keyspace.cursor();
                            cursor.seek(&key);
                            let mut left = 9;
                            let visited = cursor.visit(|key, value| {
                                check(key, value);
                                left -= 1;
                                if left > 0 {
                                    ControlFlow::Continue(())
                                } else {
                                    ControlFlow::Break(())
                                }
                            });
                            assert!(visited.is_ok());
                        }
                        _ => {
                            let value = keyspace.get_ref(&key).unwrap().unwrap();
                            let bytes = joined(&value);
                            check(&key, &bytes);
                            lent_count.fetch_add(1, Relaxed);
                            kept.push((key, value, bytes));
                        }
                    }
                    if kept.len() > 6 {
                        let (key, value, bytes) = kept.swap_remove(dice.below(6) as usize);
                        assert!(joined(&value) == bytes, "{key:?}");
                    }
                }
            });
        }
        for version in 2..600 * effort() {
            let key = key(dice.below(KEYS));
            keyspace.put(&key, &content(&key, version, lengths.draw(&mut dice).max(8))).unwrap();
            if version % 100 == 0 {
                db.checkpoint().unwrap();
            }
        }
        ended.store(true, Relaxed);
    });
    assert!(lent_count.load(Relaxed) > 100);
    assert_sound(&db, "values that were lent");
    db.close().unwrap();
}

/// Their frames are lost to everybody else, and nothing more.
#[test]
fn values_that_are_never_given_back_hinder_nobody() {
    let (_directory, db, keyspace) = open();
    for n in 0..40 {
        keyspace.put(&key(n), &content(&key(n), 1, 60_000)).unwrap();
        std::mem::forget(keyspace.get_ref(&key(n)).unwrap().unwrap());
    }
    // More than memory holds, of values and of pages.
    for version in 2..6 {
        for n in 0..300 {
            keyspace.put(&key(n), &content(&key(n), version, 60_000)).unwrap();
        }
        for n in 0..20_000_u64 {
            keyspace.put(&n.to_le_bytes(), &content(b"", version, 100)).unwrap();
        }
        db.checkpoint().unwrap();
        for n in 0..300 {
            let is_it = |value: &[u8]| value == content(&key(n), version, 60_000);
            assert_eq!(keyspace.get_with(&key(n), is_it).unwrap(), Some(true));
        }
    }
    let removed = keyspace.remove_range(..).unwrap();
    assert!(removed > 300);
    assert_sound(&db, "values that were lent");
    db.close().unwrap();
}
