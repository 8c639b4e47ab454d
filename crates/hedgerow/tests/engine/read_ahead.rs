//! Scans of leaves that are not in memory: complete in both directions, however the reads ahead of them
//! go, and no read beyond where they end.
#![allow(clippy::disallowed_methods, reason = "tests use real threads")]

use crate::common::{Dice, assert_sound, open, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, ErrorKind, IoEngine, Keyspace, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Fault};
use std::ops::Bound;

const RECORDS: u64 = 30_000;
const PAGE_BYTES: usize = 512;

/// Half as many frames as pages, and enough that leaves are read by others meanwhile.
fn options() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(PAGE_BYTES) + 2_000 * PAGE_BYTES as u64;
    crate::common::tiny().memory_limit_bytes(limit)
}

fn key(n: u64) -> [u8; 8] {
    (n * 1000).to_be_bytes()
}

fn value(n: u64) -> [u8; 40] {
    [n as u8; 40]
}

fn load(db: &Database) -> Keyspace {
    let scanned = db.keyspace("scanned").unwrap();
    scanned.bulk_load((0..RECORDS).map(|n| (key(n), value(n))), 100).unwrap();
    db.checkpoint().unwrap();
    scanned
}

/// A store on a simulated disk, none of whose leaves is in memory.
fn cold(disk: &SimDisk) -> (Database, Keyspace) {
    let db = open(&options(), disk, OpenHow::Existing).unwrap();
    let scanned = db.open_keyspace("scanned").unwrap().unwrap();
    (db, scanned)
}

fn loaded_disk(seed: u64) -> (SimDisk, u64) {
    let disk = SimDisk::new(seed);
    let db = open(&options(), &disk, OpenHow::New).unwrap();
    let stats = load(&db).stats().unwrap();
    assert!(stats.pages() > 2 * 2_000, "{} pages", stats.pages());
    (disk, stats.pages())
}

/// Reads all of a range, from one end or from both in turns, and compares.
fn check_range(range: hedgerow::Range, expected: std::ops::Range<u64>, turns: &mut Dice) {
    let mut range = range;
    let (mut first, mut last) = (expected.start, expected.end);
    let ends = turns.below(3);
    while first < last {
        let front = match ends {
            0 => true,
            1 => false,
            _ => turns.below(2) == 0,
        };
        let record = if front { range.next() } else { range.next_back() };
        let n = if front { first } else { last - 1 };
        let (found, found_value) = record.unwrap().unwrap();
        assert_eq!((&*found, &*found_value), (&key(n)[..], &value(n)[..]));
        if front {
            first += 1;
        } else {
            last -= 1;
        }
    }
    assert!(range.next().is_none() && range.next_back().is_none());
}

#[test]
fn a_range_is_complete_and_reads_nothing_beyond_its_ends() {
    let mut dice = Dice(seed(0x5ca9));
    let (disk, pages) = loaded_disk(dice.roll());
    let records_a_leaf = RECORDS / pages;
    for round in 0..60 {
        let (db, scanned) = cold(&disk);
        let count = [0, 1, 5, 40, 300, 3_000][round % 6];
        let start = dice.below(RECORDS - count);
        let end = start + count;
        let (lower, upper) = (key(start), key(end));
        let bounds = (Bound::Included(&lower[..]), Bound::Excluded(&upper[..]));
        let before = (disk.calls(CallKind::Read), disk.calls(CallKind::Write));
        check_range(scanned.range(bounds), start..end, &mut dice);
        // Waits for whatever is still being read.
        drop((db, scanned));
        let read = disk.calls(CallKind::Read) - before.0;
        let leaves = count / records_a_leaf + 2;
        // The way down from both ends, parents on the way, and parts of the page map.
        let others = 8 + leaves / 32;
        assert!(read <= leaves + others, "{count} records: {read} reads, {leaves} leaves");
        assert_eq!(disk.calls(CallKind::Write), before.1, "reading writes nothing");
    }
}

/// Reads all records one way; returns how many pages were read from the disk for that.
fn faults_of_a_full_scan(disk: &SimDisk, backward: bool) -> u64 {
    let (db, scanned) = cold(disk);
    let mut cursor = scanned.cursor();
    if backward {
        cursor.seek_to_end();
    }
    let mut count = 0;
    loop {
        let record = if backward { cursor.previous_record() } else { cursor.next_record() };
        let Some((found, _)) = record.unwrap() else { break };
        let n = if backward { RECORDS - 1 - count } else { count };
        assert_eq!(found, key(n));
        count += 1;
    }
    assert_eq!(count, RECORDS);
    db.stats().unwrap().pool.faults
}

/// What was read ahead may be evicted before the scan comes to it, but seldom. On a machine with no
/// processor to spare the threads that read ahead may come to pages which the scan has read itself and
/// left, and read them once more: that makes a scan worse and never better, so the best of some counts.
#[test]
fn a_full_scan_reads_each_page_about_once() {
    const TRIES: usize = 8;
    let mut dice = Dice(seed(0xf0_11));
    let (disk, pages) = loaded_disk(dice.roll());
    let most = pages + pages / 20 + 20;
    for backward in [false, true] {
        let mut reads = Vec::new();
        while reads.len() < TRIES && reads.last().is_none_or(|read| *read > most) {
            reads.push(faults_of_a_full_scan(&disk, backward));
        }
        assert!(reads.last().is_some_and(|read| *read <= most), "{reads:?} of {pages} pages");
        // However late they come: a page is asked for once.
        assert!(reads.iter().all(|read| *read <= 2 * pages), "{reads:?} of {pages} pages");
    }
}

#[test]
fn a_read_ahead_that_fails_is_an_error_of_the_scan_that_comes_there() {
    let mut dice = Dice(seed(0xa4ead));
    let (disk, _) = loaded_disk(dice.roll());
    let mut failed = 0;
    for _ in 0..30 {
        let (db, scanned) = cold(&disk);
        let mut cursor = scanned.cursor();
        let fault = Fault::once(CallKind::Read, dice.below(3_000), Fault::EIO);
        let is_sticky = dice.below(2) == 0;
        disk.inject(if is_sticky { fault.sticky() } else { fault });
        let mut count = 0;
        let outcome = loop {
            match cursor.next_record() {
                Ok(Some((found, _))) => assert_eq!(found, key(count)),
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
            count += 1;
        };
        match outcome {
            Ok(()) => assert_eq!(count, RECORDS),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "{error}");
                failed += 1;
            }
        }
        disk.clear_faults();
        assert_eq!(scanned.count().unwrap(), RECORDS);
        drop(db);
    }
    println!("{failed} scans failed");
    assert!(failed > 5, "a sticky failure is not made good by reading again");
}

/// Behind a value that is not in memory one is asked for, then three.
#[test]
fn large_values_that_a_snapshot_sees_are_read_ahead() {
    let disk = SimDisk::new(1);
    let options = Options::new().memory_limit_bytes(8 << 20).log(false);
    let options = options.background_checkpoints(false);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let songs = db.keyspace("songs").unwrap();
    for n in 0..20 {
        songs.put(&key(n), &vec![n as u8; 3_000]).unwrap();
    }
    drop(songs);
    db.close().unwrap();
    for (forward, is_range) in [(true, true), (true, false), (false, true), (false, false)] {
        let db = open(&options, &disk, OpenHow::Existing).unwrap();
        let songs = db.open_keyspace("songs").unwrap().unwrap();
        let seen = db.snapshot().unwrap().keyspace(&songs).unwrap();
        let (mut range, mut cursor) = (seen.iter(), seen.cursor());
        if !forward {
            cursor.seek_to_end();
        }
        let mut next = || -> hedgerow::Result<Vec<u8>> {
            Ok(match (is_range, forward) {
                (true, true) => range.next().unwrap()?.1.to_vec(),
                (true, false) => range.next_back().unwrap()?.1.to_vec(),
                (false, true) => cursor.next_record()?.unwrap().1.to_vec(),
                (false, false) => cursor.previous_record()?.unwrap().1.to_vec(),
            })
        };
        let large = |n: u8| vec![if forward { n } else { 19 - n }; 3_000];
        for n in 0..3 {
            assert_eq!(next().unwrap(), large(n));
        }
        disk.inject(Fault::once(CallKind::Read, 0, Fault::EIO).sticky());
        for n in 3..6 {
            assert_eq!(next().unwrap(), large(n), "it was not in memory");
        }
        assert_eq!(next().unwrap_err().kind(), ErrorKind::Io);
        disk.clear_faults();
    }
}

#[test]
fn a_store_is_closed_while_others_read_ahead() {
    let mut dice = Dice(seed(0xc105e));
    let (disk, _) = loaded_disk(dice.roll());
    for round in 0..20 {
        let (db, scanned) = cold(&disk);
        let mut cursor = scanned.cursor();
        for _ in 0..200 + dice.below(1_000) {
            cursor.next_record().unwrap().unwrap();
        }
        if round % 2 == 0 {
            db.close().unwrap();
            let closed = loop {
                match cursor.next_record() {
                    Ok(record) => assert!(record.is_some(), "the scan had not come to its end"),
                    Err(error) => break error,
                }
            };
            assert_eq!(closed.kind(), ErrorKind::Closed, "{closed}");
        } else {
            drop((db, scanned, cursor));
        }
    }
}

#[test]
fn scans_beside_changes_see_every_record_that_stays() {
    let seed = seed(0xb51de);
    for engine in [IoEngine::Auto, IoEngine::Sync] {
        let directory = tempfile::tempdir().unwrap();
        let options = options().io_engine(engine).background_checkpoints(true);
        let db = crate::common::create_small(options, Some(&directory.path().join("birds.hrow")));
        let scanned = load(&db);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (scanned, mut dice) = (scanned.clone(), Dice(seed ^ (thread << 32)));
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let n = dice.below(RECORDS);
                        // Between two records that stay.
                        let between = (n * 1000 + 1 + dice.below(998)).to_be_bytes();
                        if dice.below(3) == 0 {
                            scanned.remove(&between).unwrap();
                        } else {
                            scanned.put(&between, &[0; 30]).unwrap();
                        }
                    }
                });
            }
            for backward in [false, true] {
                let scanned = scanned.clone();
                scope.spawn(move || {
                    for _ in 0..4 {
                        let mut cursor = scanned.cursor();
                        if backward {
                            cursor.seek_to_end();
                        }
                        let mut staying = 0;
                        loop {
                            let record = if backward {
                                cursor.previous_record()
                            } else {
                                cursor.next_record()
                            };
                            let Some((found, _)) = record.unwrap() else { break };
                            let n = if backward { RECORDS - 1 - staying } else { staying };
                            let number = u64::from_be_bytes(found.try_into().unwrap());
                            if number % 1000 == 0 {
                                assert_eq!(number, n * 1000);
                                staying += 1;
                            }
                        }
                        assert_eq!(staying, RECORDS);
                    }
                });
            }
        });
        db.checkpoint().unwrap();
        assert_sound(&db, "after all");
    }
}
