//! Compaction and shrinking of stores in files: what they gain, that no record changes, who goes on meanwhile, and the
//! stores that refuse it.
#![allow(clippy::disallowed_methods, reason = "tests use real threads")]

use crate::common::{Dice, Model, assert_sound, bytes, contents, crowded, key, open, seed, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{CompactBudget, Database, Durability, ErrorKind, Keyspace, LeafLayout, LeafPolicy};
use hedgerow::{Options, Result};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Fault};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

fn compact(keyspace: &Keyspace) -> Result<hedgerow::CompactReport> {
    keyspace.compact(&CompactBudget::unlimited(), |_| ControlFlow::Continue(()))
}

fn shrink(db: &Database) -> Result<hedgerow::ShrinkReport> {
    db.shrink(|_| ControlFlow::Continue(()))
}

/// Records in an order that leaves leaves about two thirds full.
fn fill(db: &Database, name: &str, records: u64, dice: &mut Dice) {
    let keyspace = db.keyspace(name).unwrap();
    for _ in 0..records {
        let value = dice.below(50) as usize;
        keyspace.put(&dice.roll().to_be_bytes(), &bytes(dice, value)).unwrap();
    }
}

fn leaf_pages(db: &Database, name: &str) -> u64 {
    db.keyspace(name).unwrap().stats().unwrap().levels[0].pages
}

#[test]
fn a_store_larger_than_its_memory_is_compacted_and_has_the_same_records() {
    for (number, policy) in
        [LeafPolicy::Adaptive, LeafPolicy::Fixed(LeafLayout::Fingerprint)].into_iter().enumerate()
    {
        let disk = SimDisk::new(seed(1));
        let mut dice = Dice(seed(2) + number as u64);
        let options = crowded().leaves(policy);
        let db = open(&options, &disk, OpenHow::New).unwrap();
        fill(&db, "wrens", 6_000, &mut dice);
        let (before, leaves) = (contents(&db).unwrap(), leaf_pages(&db, "wrens"));
        let done = compact(&db.keyspace("wrens").unwrap()).unwrap();
        assert!(done.pages_freed > leaves / 8, "{policy:?}: {done:?} of {leaves}");
        assert_eq!(leaf_pages(&db, "wrens"), leaves - done.pages_freed);
        assert_eq!(done.leaves, leaves);
        let merging = db.stats().unwrap().merging;
        assert!(merging.groups >= done.groups && merging.pages_freed >= done.pages_freed);
        assert_sound(&db, "compacted");
        assert!(contents(&db).unwrap() == before);
        // Nothing of it is in the log, and a crash undoes a part of it or nothing.
        db.sync().unwrap();
        let again = open(&options, &disk.crash(3), OpenHow::Existing).unwrap();
        assert!(contents(&again).unwrap() == before);
        assert_sound(&again, "after a crash");
    }
}

#[test]
fn a_file_that_lost_most_of_its_records_is_near_what_is_left_when_it_is_shrunk() {
    const RECORDS: u64 = 30_000;
    let disk = SimDisk::new(1);
    let options = Options::new().memory_limit_bytes(8 << 20).page_bytes(4096).zone_bytes(64 << 10);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
    for n in 0..RECORDS {
        keyspace.put(&key(n), &[7; 100]).unwrap();
    }
    for n in 0..RECORDS {
        if n % 5 != 0 {
            assert!(keyspace.remove(&key(n)).unwrap());
        }
    }
    db.checkpoint().unwrap();
    let shrunk = shrink(&db).unwrap();
    let left = RECORDS / 5 * 108;
    println!("{shrunk:?} for {left} bytes");
    assert!(shrunk.after_bytes as f64 <= 1.4 * left as f64, "{shrunk:?} for {left} bytes");
    assert!(shrunk.after_bytes < shrunk.before_bytes);
    assert_eq!((shrunk.keyspaces, keyspace.count().unwrap()), (1, RECORDS / 5));
    assert_sound(&db, "shrunk");
    let again = shrink(&db).unwrap();
    assert!(again.after_bytes <= shrunk.after_bytes && again.compacted.groups == 0, "{again:?}");
}

#[test]
fn other_threads_go_on_while_a_keyspace_is_compacted() {
    const RECORDS: u64 = 3_000;
    let dir = tempfile::tempdir().unwrap();
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (64 << 10);
    let options =
        Options::new().page_bytes(512).memory_limit_bytes(limit).checkpoint_bytes(64 << 10);
    let db = crate::common::create_small(options, Some(&dir.path().join("small.hrow")));
    let keyspace = db.keyspace("wrens").unwrap();
    let (done, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let record = |n: u64, round: u64| (key(n), bytes(&mut Dice(n ^ round << 32), 30));
    for n in 0..RECORDS {
        let (key, value) = record(n, 0);
        keyspace.put(&key, &value).unwrap();
    }
    let ends = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|class| {
                let (keyspace, done, changes) = (&keyspace, &done, &changes);
                scope.spawn(move || {
                    let mut dice = Dice(seed(7) + class);
                    let mut rounds = vec![Some(0); RECORDS as usize];
                    let mut round = 0;
                    while !done.load(SeqCst) {
                        round += 1;
                        let n = 2 * dice.below(RECORDS / 2) + class;
                        let now = &mut rounds[n as usize];
                        let expected = now.map(|round| record(n, round).1);
                        let found = keyspace.get(&key(n)).unwrap().map(|value| value.into_vec());
                        assert_eq!(found, expected);
                        if dice.below(3) == 0 {
                            assert_eq!(keyspace.remove(&key(n)).unwrap(), now.take().is_some());
                        } else {
                            let (key, value) = record(n, round);
                            keyspace.put(&key, &value).unwrap();
                            *now = Some(round);
                        }
                        changes.fetch_add(1, SeqCst);
                    }
                    (class, rounds)
                })
            })
            .collect();
        let mut freed = 0;
        while freed < 100 || changes.load(SeqCst) < 2_000 {
            freed += compact(&keyspace).unwrap().pages_freed;
        }
        done.store(true, SeqCst);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    for (class, rounds) in ends {
        for n in (class..RECORDS).step_by(2) {
            let expected = rounds[n as usize].map(|round| record(n, round).1);
            assert_eq!(keyspace.get(&key(n)).unwrap().map(|value| value.into_vec()), expected);
        }
    }
    assert_sound(&db, "compacted beside writers");
}

#[test]
fn a_store_that_may_not_be_changed_says_so() {
    let disk = SimDisk::new(1);
    let db = open(&tiny(), &disk, OpenHow::New).unwrap();
    fill(&db, "wrens", 400, &mut Dice(1));
    db.close().unwrap();
    let before = disk.state();
    let db = open(&tiny(), &disk, OpenHow::ReadOnly).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    assert_eq!(compact(&keyspace).unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(shrink(&db).unwrap_err().kind(), ErrorKind::ReadOnly);
    db.close().unwrap();
    assert!(disk.state().contents(crate::common::path()) == before.contents(crate::common::path()));
    assert_eq!(compact(&keyspace).unwrap_err().kind(), ErrorKind::Closed);
    // A keyspace that was dropped, and one without records.
    let db = open(&tiny(), &disk, OpenHow::Existing).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    db.drop_keyspace("wrens").unwrap();
    assert_eq!(compact(&keyspace).unwrap_err().kind(), ErrorKind::KeyspaceDropped);
    let empty = db.keyspace("gulls").unwrap();
    assert_eq!(compact(&empty).unwrap().pages_freed, 0);
    assert_eq!(shrink(&db).unwrap().keyspaces, 1);
}

#[test]
fn a_poisoned_store_is_not_compacted_and_its_records_are_there() {
    let disk = SimDisk::new(1);
    let options = tiny().log(true).memory_limit_bytes(hedgerow::smallest_memory_limit_bytes(512));
    let db = open(&options, &disk, OpenHow::New).unwrap();
    fill(&db, "wrens", 400, &mut Dice(1));
    let before = contents(&db).unwrap();
    let keyspace = db.keyspace("wrens").unwrap().with_durability(Durability::Sync);
    disk.inject(Fault::once(CallKind::SyncData, 0, Fault::EIO).sticky());
    keyspace.put(b"last", b"words").unwrap_err();
    assert_eq!(compact(&keyspace).unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(shrink(&db).unwrap_err().kind(), ErrorKind::Poisoned);
    let mut after = contents(&db).unwrap();
    after.get_mut("wrens").unwrap().remove(&b"last"[..]);
    assert!(after == before);
}

#[test]
fn on_a_full_disk_a_compaction_stops_with_an_error_and_loses_nothing() {
    let mut refused = 0;
    for room in [0, 4 << 10, 64 << 10] {
        let disk = SimDisk::new(1);
        let options = tiny().log(true).zone_bytes(32 << 10);
        let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
        let db = open(&options.memory_limit_bytes(limit), &disk, OpenHow::New).unwrap();
        let mut dice = Dice(5);
        fill(&db, "wrens", 3_000, &mut dice);
        db.checkpoint().unwrap();
        disk.set_capacity(Some(disk.state().allocated_bytes() + room));
        // Until changes are refused as well.
        let keyspace = db.keyspace("wrens").unwrap();
        while keyspace.put(&dice.roll().to_be_bytes(), &[7; 60]).is_ok() {}
        let before = contents(&db).unwrap();
        for outcome in [compact(&keyspace).map(drop), shrink(&db).map(drop)] {
            if let Err(error) = outcome {
                assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
                refused += 1;
            }
        }
        assert!(contents(&db).unwrap() == before);
        assert_sound(&db, "after a refused compaction");
        // With room it goes on.
        disk.set_capacity(None);
        shrink(&db).unwrap();
        assert!(contents(&db).unwrap() == before);
        assert_sound(&db, "shrunk in the end");
    }
    assert!(refused > 0, "the disk was never full");
}

#[test]
fn values_in_memory_and_in_the_file_survive_a_compaction() {
    let mut dice = Dice(seed(9));
    let on_disk = open(
        &crowded().memory_limit_bytes(hedgerow::smallest_memory_limit_bytes(512) + (256 << 10)),
        &SimDisk::new(2),
        OpenHow::New,
    )
    .unwrap();
    let in_memory =
        Options::new().page_bytes(512).memory_limit_bytes(16 << 20).in_memory().unwrap();
    for db in [on_disk, in_memory] {
        let keyspace = db.keyspace("wrens").unwrap();
        let mut model = Model::new();
        let records = model.entry("wrens".to_owned()).or_default();
        for _ in 0..1_500 {
            let len = [20, 60, 700][dice.below(3) as usize];
            let (key, value) = (key(dice.below(4_000)), bytes(&mut dice, len));
            if keyspace.put(&key, &value).is_ok() {
                records.insert(key, value);
            }
        }
        assert!(compact(&keyspace).unwrap().pages_freed > 0);
        assert!(contents(&db).unwrap() == model);
        assert_sound(&db, "compacted");
        shrink(&db).unwrap();
        assert!(contents(&db).unwrap() == model);
        assert_sound(&db, "shrunk");
    }
}

#[test]
fn leaves_are_merged_before_they_are_written_to_make_room() {
    let mut pages = Vec::new();
    for merges in [false, true] {
        let disk = SimDisk::new(seed(1));
        let options = crowded().merge_before_writing(merges);
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let mut dice = Dice(seed(4));
        let mut model = Model::new();
        let records = model.entry("wrens".to_owned()).or_default();
        let keyspace = db.keyspace("wrens").unwrap();
        for _ in 0..12_000 {
            let (key, len) = (dice.roll().to_be_bytes(), dice.below(50) as usize);
            let value = bytes(&mut dice, len);
            keyspace.put(&key, &value).unwrap();
            records.insert(key.to_vec(), value);
            if dice.below(4) == 0 {
                let key = records.keys().next().unwrap().clone();
                assert!(keyspace.remove(&key).unwrap());
                records.remove(&key);
            }
        }
        // One run in fifty has merged none by now: the threads come to other leaves. Shorter values make room in all of them.
        let keys: Vec<Vec<u8>> = records.keys().cloned().collect();
        for number in 0..200_000 {
            if !merges || number % 1_000 == 0 && db.stats().unwrap().merging.groups > 0 {
                break;
            }
            let key = &keys[dice.below(keys.len() as u64) as usize];
            keyspace.put(key, b"").unwrap();
            records.insert(key.clone(), Vec::new());
        }
        let stats = db.stats().unwrap();
        println!("{merges}: {:?}, {:?}", stats.merging, stats.pool);
        assert_eq!(stats.merging.groups > 0, merges);
        assert_eq!(stats.merging.under_pressure, stats.merging.groups);
        assert!(contents(&db).unwrap() == model);
        assert_sound(&db, "merged under pressure");
        pages.push(leaf_pages(&db, "wrens"));
        // A keyspace that goes while its pages are offered.
        assert!(db.drop_keyspace("wrens").unwrap());
        fill(&db, "gulls", 3_000, &mut dice);
        assert_sound(&db, "after a drop");
        let again = open(&options, &disk.crash(3), OpenHow::Existing).unwrap();
        assert_sound(&again, "after a crash");
    }
    // Leaves that were merged take insertions again: it costs no more pages.
    assert!(pages[1] <= pages[0] + pages[0] / 20, "{pages:?}");
}
