//! Look-ups of many keys whose pages are not in memory: many reads are under way at a time, end in any
//! order, and fail; beside writers; by io_uring and by threads.
#![allow(clippy::disallowed_methods, reason = "tests use real threads")]

use crate::common::{Dice, assert_sound, key, open, path, seed};
use hedgerow::internals::storage::{Disk, RealDisk};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, ErrorKind, IoEngine, Keyspace, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Fault};
use std::sync::atomic::{AtomicBool, Ordering};

const RECORDS: u64 = 6_000;
const PAGE_BYTES: usize = 512;

/// Little memory for the records, but frames enough that several pages are under way.
fn options() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(PAGE_BYTES) + 300 * PAGE_BYTES as u64;
    crate::common::tiny().memory_limit_bytes(limit)
}

/// The value of a record, in its first or a later version.
fn value(n: u64, version: u64) -> Vec<u8> {
    let mut bytes = key(n);
    bytes.extend(version.to_be_bytes());
    bytes.resize(30 + (n % 30) as usize, n as u8);
    bytes
}

/// Every other number is a record.
fn is_record(n: u64) -> bool {
    n.is_multiple_of(2)
}

fn load(db: &Database) -> Keyspace {
    let many = db.keyspace("many").unwrap();
    let mut records: Vec<_> =
        (0..RECORDS).filter(|n| is_record(*n)).map(|n| (key(n), value(n, 0))).collect();
    records.sort();
    many.bulk_load(records, 100).unwrap();
    db.checkpoint().unwrap();
    many
}

/// Some numbers in any order, some of them several times, some of no record.
fn draw(dice: &mut Dice, count: u64) -> Vec<u64> {
    (0..count).map(|_| dice.below(RECORDS)).collect()
}

fn assert_found(numbers: &[u64], found: &[Option<hedgerow::Value>]) {
    assert_eq!(numbers.len(), found.len());
    for (n, found) in numbers.iter().zip(found) {
        let expected = is_record(*n).then(|| value(*n, 0));
        assert_eq!(found.as_deref(), expected.as_deref(), "record {n}");
    }
}

fn look_up(many: &Keyspace, numbers: &[u64]) -> hedgerow::Result<Vec<Option<hedgerow::Value>>> {
    let keys: Vec<_> = numbers.iter().map(|n| key(*n)).collect();
    many.get_many(&keys)
}

#[test]
fn reads_that_end_late_and_out_of_order_give_each_key_its_value() {
    let mut dice = Dice(seed(0x3a9e));
    let disk = SimDisk::new(dice.roll());
    load(&open(&options(), &disk, OpenHow::New).unwrap());
    // Anew, so that nothing of the load is left to be written.
    let db = open(&options(), &disk, OpenHow::Existing).unwrap();
    let many = db.keyspace("many").unwrap();
    let stats = db.stats().unwrap();
    assert!(stats.file_bytes > 2 * stats.memory.frames_bytes, "{stats:?}");
    for round in 0..60 {
        let count = [0, 1, 15, 16, 17, 64, 255, 300, 1500][round % 9];
        let numbers = draw(&mut dice, count);
        let before = db.stats().unwrap().pool;
        assert_found(&numbers, &look_up(&many, &numbers).unwrap());
        let after = db.stats().unwrap().pool;
        // A few pages of inner nodes may go and come back, and no leaf is read twice for one key.
        assert!(after.faults - before.faults <= count + count / 8 + 16, "{count} keys: {after:?}");
        assert_eq!(after.pages_written, before.pages_written, "reading writes nothing");
    }
    assert_sound(&db, "after all");
}

#[test]
fn a_read_that_fails_is_an_error_of_its_call_and_of_no_later_one() {
    let mut dice = Dice(seed(0xfa11));
    let disk = SimDisk::new(dice.roll());
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let many = load(&db);
    let mut failed = 0;
    for _ in 0..200 {
        let numbers = draw(&mut dice, 100);
        let after = dice.below(150);
        let fault = Fault::once(CallKind::Read, after, Fault::EIO);
        disk.inject(if dice.below(2) == 0 { fault } else { fault.sticky() });
        match look_up(&many, &numbers) {
            Ok(found) => assert_found(&numbers, &found),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                failed += 1;
            }
        }
        disk.clear_faults();
        assert_found(&numbers, &look_up(&many, &numbers).unwrap());
    }
    println!("{failed} look-ups failed");
    assert!(failed > 10, "a sticky failure is not made good by trying again");
    assert_sound(&db, "after all");
}

/// Threads that look up many keys beside threads that overwrite and scan, on little memory.
fn work_together(db: &Database, effort: u64, seed: u64) {
    let many = load(db);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|thread| {
                let (many, mut dice) = (many.clone(), Dice(seed ^ (thread << 32)));
                scope.spawn(move || {
                    for _ in 0..effort {
                        let count = 1 + dice.below(400);
                        let numbers = draw(&mut dice, count);
                        let found = look_up(&many, &numbers).unwrap();
                        for (n, found) in numbers.iter().zip(found) {
                            assert_eq!(found.is_some(), is_record(*n));
                            let Some(found) = found else { continue };
                            let (head, rest) = found.split_at(key(*n).len());
                            let version = u64::from_be_bytes(rest[..8].try_into().unwrap());
                            assert!(head == key(*n) && *found == *value(*n, version));
                        }
                    }
                })
            })
            .collect();
        for thread in 0..2 {
            let (many, done, mut dice) = (many.clone(), &done, Dice(seed ^ (thread << 48)));
            scope.spawn(move || {
                let mut version = 0;
                while !done.load(Ordering::Relaxed) {
                    version += 1;
                    let n = dice.below(RECORDS / 2) * 2;
                    many.put(&key(n), &value(n, version)).unwrap();
                }
            });
        }
        let scanner = many.clone();
        let is_done = &done;
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                assert_eq!(scanner.count().unwrap(), RECORDS / 2);
            }
        });
        let mut failed = false;
        for reader in readers {
            failed |= reader.join().is_err();
        }
        done.store(true, Ordering::Relaxed);
        assert!(!failed, "a reader has failed");
    });
    db.checkpoint().unwrap();
    assert_sound(db, "after all");
}

#[test]
fn look_ups_of_many_keys_share_little_memory_with_writers() {
    let seed = seed(0x0b5);
    let disk = SimDisk::new(seed);
    // The smallest pool: streams take its frames from each other.
    for options in [crate::common::tiny(), options()] {
        let db = options.on_disk(&disk as &dyn Disk, path(), OpenHow::New).unwrap();
        work_together(&db, 40, seed);
        drop(db);
        disk.unlink(path()).unwrap();
    }
}

#[test]
fn rings_and_threads_read_the_same() {
    let seed = seed(0x51de);
    for engine in [IoEngine::Auto, IoEngine::Sync] {
        let disk = RealDisk::new(engine).unwrap();
        println!("{:?}", disk.engine());
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("birds.hrow");
        let db = crate::common::create_small(options().io_engine(engine), Some(&path));
        work_together(&db, 20, seed);
    }
}

/// More than there is memory for: what is read ahead is used before it has to give way to what is read next.
#[test]
fn a_look_up_of_many_large_values_reads_each_once() {
    const VALUES: u64 = 6_000;
    let options = Options::new().page_bytes(4096).memory_limit_bytes(16 << 20);
    let disk = SimDisk::new(seed(7));
    let value = |n: u64| vec![n as u8; 5_000 + (n % 2_000) as usize];
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let many = db.keyspace("many").unwrap();
    (0..VALUES).for_each(|n| {
        many.put(&key(n), &value(n)).unwrap();
    });
    drop(many);
    db.close().unwrap();
    let db = open(&options, &disk, OpenHow::Existing).unwrap();
    let many = db.keyspace("many").unwrap();
    let keys: Vec<_> = (0..VALUES).map(key).collect();
    let before = disk.calls(CallKind::Read);
    let found = many.get_many(&keys).unwrap();
    let reads = disk.calls(CallKind::Read) - before;
    assert!((0..).zip(found).all(|(n, found)| found.as_deref() == Some(&value(n)[..])));
    // Leaves are read, too.
    assert!(reads < VALUES * 11 / 10, "{reads} reads of {VALUES} values");
    assert_sound(&db, "they were looked up");
}
