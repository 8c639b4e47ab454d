//! Read-modify-write: `fetch_update`, `update_and_fetch`, `fetch_add`, `get_or_insert_with`, `swap`, `take`; against a map, and by threads
//! that must lose nothing.
#![allow(clippy::disallowed_methods, reason = "tests use real threads")]

use crate::common::{Dice, assert_sound, key, open, path, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, ErrorKind, Keyspace, Options, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Fault};
use std::collections::{BTreeMap, BTreeSet};
use std::thread;

const THREADS: u64 = 8;
const STEPS: u64 = 500;

fn database() -> Database {
    Options::new().memory_limit_bytes(16 << 20).temporary().unwrap()
}

/// Of any form: short, longer than a leaf takes, and one that looks like a reference.
fn value(dice: &mut Dice) -> Vec<u8> {
    let len = [0, 8, 100, 1_900, 2_500, 20_000, 70_000][dice.below(7) as usize];
    vec![dice.below(256) as u8; len]
}

#[test]
fn each_returns_what_a_map_has_and_leaves_what_a_map_has() {
    let mut dice = Dice(seed(4_401));
    let db = database();
    let records = db.keyspace("records").unwrap();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for step in 0..3_000 {
        let (key, new) = (key(dice.below(40)), value(&mut dice));
        let old = model.get(&key).cloned();
        match dice.below(6) {
            0 => {
                let found = records.swap(&key, &new).unwrap();
                assert_eq!(found.as_deref(), old.as_deref(), "step {step}");
                model.insert(key, new);
            }
            1 => {
                let found = records.take(&key).unwrap();
                assert_eq!(found.as_deref(), old.as_deref(), "step {step}");
                model.remove(&key);
            }
            2 => {
                // Inserts, shortens, and removes in turn.
                let changed = |old: Option<&[u8]>| match old {
                    None => Some(new.clone()),
                    Some(old) if old.len() > 50 => Some(old[..old.len() / 2].to_vec()),
                    Some(_) => None,
                };
                let found = records.fetch_update(&key, changed).unwrap();
                assert_eq!(found.as_deref(), old.as_deref(), "step {step}");
                match changed(old.as_deref()) {
                    Some(new) => model.insert(key, new),
                    None => model.remove(&key),
                };
            }
            3 => {
                let longer = |old: Option<&[u8]>| old.map(|old| [old, b"longer"].concat());
                let now = records.update_and_fetch(&key, longer).unwrap();
                assert_eq!(now, longer(old.as_deref()), "step {step}");
                now.and_then(|now| model.insert(key, now));
            }
            4 => {
                let now = records.get_or_insert_with(&key, || new.clone()).unwrap();
                assert_eq!(now, *model.entry(key).or_insert(new), "step {step}");
            }
            _ => match (records.fetch_add(&key, 3), old.as_deref().map(<[u8; 8]>::try_from)) {
                (Ok(before), None) => {
                    assert_eq!(before, 0, "step {step}");
                    model.insert(key, 3_i64.to_be_bytes().to_vec());
                }
                (Ok(before), Some(Ok(old))) => {
                    assert_eq!(before, i64::from_be_bytes(old), "step {step}");
                    model.insert(key, before.wrapping_add(3).to_be_bytes().to_vec());
                }
                (Err(error), Some(Err(_))) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidArgument, "step {step}");
                }
                other => panic!("step {step}: {other:?}"),
            },
        }
    }
    let found: BTreeMap<_, _> = records
        .iter()
        .map(|record| record.unwrap())
        .map(|(k, v)| (k.to_vec(), v.to_vec()))
        .collect();
    assert_eq!(found, model);
    assert_sound(&db, "after all steps");
}

/// Runs `work` on as many threads, with the thread's number, and returns what they return.
fn on_threads<R: Send>(work: impl Fn(u64) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn no_addition_is_lost_and_each_sum_is_seen_once() {
    let db = database();
    let counters = db.keyspace("counters").unwrap();
    let seen = on_threads(|_| {
        (0..STEPS).map(|_| counters.fetch_add(b"one", 1).unwrap()).collect::<Vec<_>>()
    });
    assert!(seen.iter().all(|of_thread| of_thread.is_sorted()));
    let seen: BTreeSet<i64> = seen.into_iter().flatten().collect();
    assert_eq!(seen, (0..(THREADS * STEPS) as i64).collect());
    counters.put(b"top", &i64::MAX.to_be_bytes()).unwrap();
    assert_eq!(counters.fetch_add(b"top", 1).unwrap(), i64::MAX);
    assert_eq!(counters.fetch_add(b"top", 0).unwrap(), i64::MIN);
}

/// Each thread appends its numbers to one value, which grows beyond what a leaf takes.
#[test]
fn no_update_is_lost_while_a_value_grows_through_all_forms() {
    let db = database();
    let lists = db.keyspace("lists").unwrap();
    on_threads(|thread| {
        for step in 0..STEPS {
            let number = (thread * STEPS + step).to_be_bytes();
            let append = |old: Option<&[u8]>| Some([old.unwrap_or_default(), &number].concat());
            lists.fetch_update(b"all", append).unwrap();
        }
    });
    let list = lists.get(b"all").unwrap().unwrap();
    let numbers: Vec<u64> =
        list.chunks(8).map(|bytes| u64::from_be_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(numbers.len() as u64, THREADS * STEPS);
    for thread in 0..THREADS {
        let own: Vec<u64> = numbers.iter().copied().filter(|n| n / STEPS == thread).collect();
        assert_eq!(own, (thread * STEPS..(thread + 1) * STEPS).collect::<Vec<_>>());
    }
}

#[test]
fn what_one_thread_takes_no_other_one_takes() {
    let db = database();
    let jobs = db.keyspace("jobs").unwrap();
    let names = 200;
    let taken = on_threads(|thread| {
        let mut taken = Vec::new();
        for n in 0..names {
            jobs.get_or_insert_with(&key(n), || thread.to_be_bytes().to_vec()).unwrap();
            let put = jobs.swap(b"last", &(thread * names + n).to_be_bytes()).unwrap();
            taken.extend(put.map(|value| value.to_vec()));
        }
        taken
    });
    let mut seen: BTreeSet<Vec<u8>> = taken.into_iter().flatten().collect();
    seen.extend(jobs.take(b"last").unwrap().map(|value| value.to_vec()));
    assert_eq!(seen.len() as u64, THREADS * names, "each value was given back once");
    let taken = on_threads(|_| (0..names).filter(|n| take(&jobs, *n)).count() as u64);
    assert_eq!(taken.iter().sum::<u64>(), names);
    assert!(jobs.iter().next().is_none());
}

fn take(jobs: &Keyspace, n: u64) -> bool {
    jobs.take(&key(n)).unwrap().is_some()
}

#[test]
fn refusals_change_nothing() {
    let db = database();
    let records = db.keyspace("records").unwrap();
    records.put(b"text", b"seven").unwrap();
    let kind = |error: hedgerow::Error| error.kind();
    assert_eq!(kind(records.fetch_add(b"text", 1).unwrap_err()), ErrorKind::InvalidArgument);
    let long = vec![0; records.max_key_bytes() + 1];
    let too_long = |kind| matches!(kind, ErrorKind::KeyTooLong { .. });
    assert!(too_long(kind(records.swap(&long, b"").unwrap_err())));
    assert!(too_long(kind(records.fetch_add(&long, 1).unwrap_err())));
    assert!(too_long(kind(records.get_or_insert_with(&long, Vec::new).unwrap_err())));
    assert_eq!(records.get(b"text").unwrap().unwrap(), b"seven");
    assert_eq!(records.count().unwrap(), 1);
    db.close().unwrap();
    assert_eq!(kind(records.swap(b"text", b"").unwrap_err()), ErrorKind::Closed);
}

#[test]
fn a_snapshot_has_what_each_of_them_found() {
    let disk = SimDisk::new(4_403);
    let options = Options::new().memory_limit_bytes(16 << 20);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let records = db.keyspace("records").unwrap();
    let names: [&[u8]; 6] = [b"added", b"new", b"replaced", b"taken", b"updated", b"z, popped"];
    for name in names.into_iter().filter(|name| *name != b"new") {
        records.put(name, &7_i64.to_be_bytes()).unwrap();
    }
    let then: Vec<_> = records.iter().map(|record| record.unwrap()).collect();
    let snapshot = db.snapshot().unwrap();
    for _ in 0..2 {
        records.fetch_add(b"added", 1).unwrap();
        records.fetch_add(b"new", 1).unwrap();
        records.swap(b"replaced", b"otherwise").unwrap();
        records.take(b"taken").unwrap();
        records.fetch_update(b"updated", |old| old.map(|old| [old, b"longer"].concat())).unwrap();
        records.pop_last().unwrap();
    }
    let seen = snapshot.keyspace(&records).unwrap();
    let found: Vec<_> = seen.iter().map(|record| record.unwrap()).collect();
    assert_eq!(found, then);
    for name in names {
        let value = seen.get(name).unwrap();
        assert_eq!(value.is_some(), name != b"new", "{}", name.escape_ascii());
    }
    assert_eq!(records.get(b"added").unwrap().unwrap(), 9_i64.to_be_bytes());
}

/// Else it would wait for the changes of others, and an error of that would say of a change that was not made that it is in effect.
#[test]
fn what_changes_nothing_waits_for_no_sync_and_does_not_fail_by_one() {
    let disk = SimDisk::new(8);
    let options = Options::new().background_checkpoints(false).on_disk(&disk, path(), OpenHow::New);
    let db = options.unwrap();
    let buffered = db.keyspace("records").unwrap().with_durability(Durability::Buffered);
    let keys: Vec<Vec<u8>> = [20, 3_000].map(|len| vec![b'k'; len]).into();
    for (key, value) in keys.iter().zip([&[1; 5][..], &[2; 6_000]]) {
        buffered.put(key, value).unwrap();
    }
    buffered.put(b"large", &[3; 90_000]).unwrap();
    db.sync().unwrap();
    let records = buffered.clone().with_durability(Durability::Sync);
    let empty = db.keyspace("empty").unwrap().with_durability(Durability::Sync);
    db.sync().unwrap();
    // There is something that a sync would be for.
    buffered.put(b"another", b"one").unwrap();
    disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO));
    for there in keys.iter().map(Vec::as_slice).chain([&b"large"[..]]) {
        for value in [&[4; 8][..], &[4; 50_000]] {
            assert!(!records.insert_if_absent(there, value).unwrap());
            let differs = records.compare_and_swap(there, Some(value), Some(value)).unwrap();
            assert!(!differs.is_swapped());
            assert!(!records.compare_and_swap(there, None, Some(value)).unwrap().is_swapped());
        }
        records.get_or_insert_with(there, Vec::new).unwrap();
        let refused = records.fetch_add(there, 1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    }
    for absent in [vec![b'l'; 20], vec![b'l'; 3_000], [&keys[1][..], b"l"].concat()] {
        for value in [&[4; 8][..], &[4; 50_000]] {
            assert!(!records.update(&absent, value).unwrap());
            let differs = records.compare_and_swap(&absent, Some(value), Some(value)).unwrap();
            assert!(!differs.is_swapped());
        }
        assert!(records.compare_and_swap(&absent, None, None).unwrap().is_swapped());
        assert!(records.fetch_update(&absent, |_| None::<Vec<u8>>).unwrap().is_none());
        assert!(records.update_and_fetch(&absent, |_| None::<Vec<u8>>).unwrap().is_none());
        assert!(records.take(&absent).unwrap().is_none());
    }
    assert!(empty.pop_first().unwrap().is_none());
    assert!(empty.pop_last().unwrap().is_none());
    let mut nothing = WriteBatch::new();
    nothing.set_durability(Durability::Sync);
    db.write(&nothing).unwrap();
    db.transact(|within| within.keyspace(&records)?.update(b"absent", b"").map(drop)).unwrap();
    let refused = records.put(b"another", b"one").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DurabilityUnknown, "the disk would have failed");
}
