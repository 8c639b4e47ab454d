//! `first`, `last`, `pop_first`, `pop_last`: against a map with values of every form, as a queue, and after a crash.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{Dice, assert_sound, key, open, seed, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Durability, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[test]
fn the_ends_are_those_of_a_map_whatever_the_values_are() {
    let mut dice = Dice(seed(4_402));
    let dbs = [
        Options::new().memory_limit_bytes(16 << 20).temporary().unwrap(),
        Options::new().memory_limit_bytes(16 << 20).in_memory().unwrap(),
    ];
    for db in dbs {
        let records = db.keyspace("records").unwrap();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for step in 0..1_500 {
            let key = key(dice.below(60));
            let is_first = dice.below(2) == 0;
            let end = if is_first { model.iter().next() } else { model.iter().next_back() };
            let end = end.map(|(key, value)| (key.clone(), value.clone()));
            let found = match dice.below(4) {
                0 | 1 => {
                    let len = [0, 8, 100, 1_900, 2_500, 20_000, 70_000][dice.below(7) as usize];
                    let value = vec![step as u8; len];
                    records.put(&key, &value).unwrap();
                    model.insert(key, value);
                    continue;
                }
                2 if is_first => {
                    assert_eq!(records.is_empty().unwrap(), model.is_empty());
                    records.first().unwrap()
                }
                2 => records.last().unwrap(),
                _ => {
                    if let Some((key, _)) = &end {
                        model.remove(key);
                    }
                    if is_first {
                        records.pop_first().unwrap()
                    } else {
                        records.pop_last().unwrap()
                    }
                }
            };
            let found = found.map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert!(found == end, "step {step}");
        }
        assert_eq!(records.count().unwrap(), model.len() as u64);
        assert_sound(&db, "popped");
    }
}

#[test]
fn a_queue_loses_no_job_and_gives_none_out_twice() {
    const JOBS: u64 = 4_000;
    let db = Options::new().memory_limit_bytes(16 << 20).temporary().unwrap();
    let jobs = db.keyspace("jobs").unwrap();
    let (next, sum, done) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Relaxed);
                    if number >= JOBS {
                        break;
                    }
                    let len = if number.is_multiple_of(50) { 5_000 } else { 8 };
                    let mut value = number.to_be_bytes().to_vec();
                    value.resize(len, 7);
                    jobs.put(&number.to_be_bytes(), &value).unwrap();
                }
            });
        }
        for _ in 0..3 {
            scope.spawn(|| {
                while done.load(Relaxed) < JOBS {
                    let Some((key, value)) = jobs.pop_first().unwrap() else { continue };
                    assert_eq!(key[..], value[..8]);
                    sum.fetch_add(u64::from_be_bytes(key[..].try_into().unwrap()), Relaxed);
                    done.fetch_add(1, Relaxed);
                }
            });
        }
    });
    assert_eq!(sum.into_inner(), JOBS * (JOBS - 1) / 2);
    assert!(jobs.first().unwrap().is_none() && jobs.last().unwrap().is_none());
    assert_sound(&db, "an empty queue");
}

#[test]
fn a_durable_pop_is_not_undone_by_a_crash_and_a_store_that_cannot_be_changed_refuses_it() {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    let options = tiny().memory_limit_bytes(limit).log(true).log_segment_blocks(6);
    let disk = SimDisk::new(3);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let jobs = db.keyspace("jobs").unwrap().with_durability(Durability::Sync);
    for n in 0..100 {
        jobs.put(&key(n), b"job").unwrap();
    }
    for n in 0..40 {
        assert_eq!(jobs.pop_first().unwrap().unwrap().0[..], key(n)[..]);
        assert_eq!(jobs.pop_last().unwrap().unwrap().0[..], key(99 - n)[..]);
        if n == 20 {
            db.checkpoint().unwrap();
        }
    }
    let again = disk.crash(9);
    let db = open(&options, &again, OpenHow::Existing).unwrap();
    let jobs = db.keyspace("jobs").unwrap();
    assert_eq!(jobs.count().unwrap(), 20);
    assert_eq!(jobs.first().unwrap().unwrap().0[..], key(40)[..]);
    assert_eq!(jobs.last().unwrap().unwrap().0[..], key(59)[..]);
    db.close().unwrap();
    assert_eq!(jobs.pop_first().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(jobs.first().unwrap_err().kind(), ErrorKind::Closed);
    let db = open(&options, &again, OpenHow::ReadOnly).unwrap();
    let jobs = db.keyspace("jobs").unwrap();
    assert_eq!(jobs.pop_last().unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(jobs.last().unwrap().unwrap().0[..], key(59)[..]);
}
