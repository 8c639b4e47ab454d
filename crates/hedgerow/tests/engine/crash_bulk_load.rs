//! Bulk loads on a disk that forgets, fills up and fails: all of a load is there or none of it, and what a load that came
//! to nothing had written, pages and large values, is free again.

use crate::common::{
    Dice, Records, assert_sound, bytes, contents, effort, key, open, path, seed, tiny,
};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, Error, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Fault};
use std::ops::ControlFlow;
use std::path::Path;

fn options(log: bool) -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    tiny().memory_limit_bytes(limit).zone_bytes(32 << 10).log(log).log_segment_blocks(6)
}

/// Records of which about every third has a value that no leaf holds.
fn records(dice: &mut Dice, count: u64) -> Records {
    let mut records = Records::new();
    for n in 0..count {
        let most = [40, 90, 300, 20_000][dice.below(4) as usize];
        let len = dice.below(most) as usize;
        records.insert(key(n), bytes(dice, len));
    }
    records
}

/// Opens what a crash has left, and says how many records of the load are there.
fn found(options: &Options, disk: &SimDisk, all: &Records, before: &Records) -> usize {
    let db = open(options, disk, OpenHow::Existing).unwrap();
    let mut model = contents(&db).unwrap();
    assert_sound(&db, "after a crash in a bulk load");
    assert_eq!(model.remove("before").as_ref(), Some(before));
    let loaded = model.remove("loaded").unwrap_or_default();
    assert!(loaded.is_empty() || loaded == *all, "{} of {} records", loaded.len(), all.len());
    if loaded.is_empty() {
        // Again, from the beginning: nothing is in the way.
        let keyspace = db.keyspace("loaded").unwrap();
        assert_eq!(keyspace.bulk_load(all, 90).unwrap(), all.len() as u64);
        assert_eq!(contents(&db).unwrap()["loaded"], *all);
        assert_sound(&db, "after the load was made again");
    }
    loaded.len()
}

#[test]
fn a_load_whose_keyspace_is_dropped_leaves_nothing_whenever_the_power_goes() {
    let mut dice = Dice(seed(5));
    let mut tried = 0;
    for round in 0..4 * effort() {
        let options = options(round % 2 == 0);
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let loaded = db.create_keyspace("loaded").unwrap();
        db.checkpoint().unwrap();
        let all = records(&mut dice, 60);
        disk.record_states(true);
        let drop_at = dice.below(all.len() as u64) as usize;
        let feed = all.iter().enumerate().inspect(|(n, _)| {
            if *n == drop_at {
                assert!(db.drop_keyspace("loaded").unwrap());
                // Another of that name has nothing to do with it.
                if round % 3 == 0 {
                    db.create_keyspace("loaded").unwrap();
                }
                db.checkpoint().unwrap();
                assert_sound(&db, "in the middle of a load that has lost its keyspace");
            } else if *n == drop_at + 5 {
                db.checkpoint().unwrap();
            }
        });
        let error = loaded.bulk_load(feed.map(|(_, record)| record), 90).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyspaceDropped);
        db.checkpoint().unwrap();
        assert_sound(&db, "after a load that has lost its keyspace");
        for state in disk.take_states() {
            if dice.below(2) > 0 {
                continue;
            }
            let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
            let db = open(&options, &survivor, OpenHow::Existing).unwrap();
            let found = contents(&db).unwrap();
            assert!(found.get("loaded").is_none_or(Records::is_empty));
            assert_sound(&db, "after a crash in a load that has lost its keyspace");
            drop(db);
            tried += 1;
        }
    }
    count(tried, "crash states");
    assert!(tried > 20, "{tried}");
}

#[test]
fn a_crash_at_any_call_of_a_load_leaves_all_of_it_or_none() {
    let mut dice = Dice(seed(1));
    let (mut none, mut whole) = (0, 0);
    for round in 0..4 * effort() {
        let options = options(round % 2 == 0);
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let before = records(&mut dice, 8);
        let keyspace = db.keyspace("before").unwrap();
        for (key, value) in &before {
            keyspace.put(key, value).unwrap();
        }
        let loaded = db.create_keyspace("loaded").unwrap();
        db.checkpoint().unwrap();
        let all = records(&mut dice, 60);
        disk.record_states(true);
        // A checkpoint has the pages of the load until then, and the large values that they refer to.
        let stop_at = dice.below(all.len() as u64) as usize;
        let feed = all.iter().enumerate().inspect(|(n, _)| {
            if *n == stop_at {
                db.checkpoint().unwrap();
                // No page of it is reached yet.
                assert_sound(&db, "in the middle of a load");
            }
        });
        assert_eq!(loaded.bulk_load(feed.map(|(_, record)| record), 90).unwrap(), 60);
        assert_eq!(contents(&db).unwrap()["loaded"], all);
        assert_sound(&db, "after a load");
        for state in disk.take_states() {
            if dice.below(3) > 0 {
                continue;
            }
            let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
            survivor.record_states(true);
            match found(&options, &survivor, &all, &before) {
                0 => none += 1,
                _ => whole += 1,
            }
            // Crashes while what is left is swept, and while the load is made again.
            let states = survivor.take_states();
            let again = &states[dice.below(states.len() as u64) as usize];
            let again = SimDisk::with_state(again.crash_at_random(dice.roll()), dice.roll());
            found(&options, &again, &all, &before);
        }
    }
    println!("{none} times none of the load, {whole} times all of it");
    // Each of them has a second one in what follows.
    count(2 * (none + whole), "crash states");
    assert!(none > 40 && whole > 0, "{none}, {whole}");
}

#[test]
fn what_others_put_during_a_load_stays_after_a_crash_and_the_load_leaves_nothing() {
    let mut dice = Dice(seed(5));
    for round in 0..8 {
        let options = options(round % 2 == 0);
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let keyspace = db.create_keyspace("loaded").unwrap();
        let all = records(&mut dice, 60);
        let mut crashed = None;
        // Enough for an inner root, of which half the time nothing is left.
        let meanwhile = 1 + dice.below(60);
        let feed = all.iter().enumerate().inspect(|(n, _)| {
            if *n == 50 {
                for n in 0..meanwhile {
                    keyspace.put(&key(1000 + n), &[b'm'; 60]).unwrap();
                }
                if round % 4 < 2 {
                    (0..meanwhile).for_each(|n| assert!(keyspace.remove(&key(1000 + n)).unwrap()));
                }
                db.checkpoint().unwrap();
                crashed = Some((disk.state(), contents(&db).unwrap()));
            }
        });
        let loaded = keyspace.bulk_load(feed.map(|(_, record)| record), 90);
        assert!(loaded.is_ok() || round % 4 >= 2, "{loaded:?}");
        let (state, expected) = crashed.unwrap();
        let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), 1);
        let new = Path::new("/data/repaired.hrow");
        let go_on = |_| ControlFlow::Continue(());
        let report = options.repair_on_disk(&survivor, path(), new, go_on).unwrap();
        assert!(report.is_clean(), "round {round}: {report:?}");
        let repaired = options.on_disk(&survivor, new, OpenHow::Existing).unwrap();
        assert_eq!(contents(&repaired).unwrap(), expected, "round {round}, repaired");
        drop(repaired);
        let again = open(&options, &survivor, OpenHow::Existing).unwrap();
        assert_eq!(contents(&again).unwrap(), expected, "round {round}");
        assert_sound(&again, "after a crash in a load beside which others put");
        let keyspace = again.keyspace("loaded").unwrap();
        keyspace.remove_range(..).unwrap();
        keyspace.put(b"a", b"b").unwrap();
        again.checkpoint().unwrap();
        assert_sound(&again, "after more work");
    }
}

/// Bytes of the file that are in use when nothing waits to be free any more.
fn used_bytes(db: &Database) -> u64 {
    (0..3).for_each(|_| db.checkpoint().unwrap());
    assert_sound(db, "after a load that failed");
    db.space_report().unwrap().used_bytes
}

#[test]
fn a_load_that_fails_gives_back_all_that_it_wrote() {
    let mut dice = Dice(seed(2));
    let options = options(true);
    let disk = SimDisk::new(dice.roll());
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("loaded").unwrap();
    // Once, so that what stays of a load is there.
    let all = records(&mut dice, 60);
    let all: Vec<(Vec<u8>, Vec<u8>)> = all.into_iter().collect();
    let failing = |count: usize| {
        let failure = || Error::new(ErrorKind::Cancelled, "no more records");
        let feed = all[..count].iter().cloned().map(Ok).chain([Err(failure())]);
        keyspace.try_bulk_load::<_, _, Error>(feed, 90).unwrap_err()
    };
    assert_eq!(failing(60).kind(), ErrorKind::Cancelled);
    let before = used_bytes(&db);
    for count in 0..60 {
        assert_eq!(failing(count).kind(), ErrorKind::Cancelled);
        let used = used_bytes(&db);
        assert!(used <= before + 1024, "{used} bytes after {count} records, {before} before");
    }
    let unsorted = keyspace.bulk_load(all.iter().chain(&all[..1]).cloned(), 90).unwrap_err();
    assert_eq!(unsorted.kind(), ErrorKind::NotSorted);
    let too_long = (vec![b'z'; 70_000], vec![1; 10]);
    let refused = keyspace.bulk_load(all.iter().chain([&too_long]).cloned(), 90).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::KeyTooLong { .. }), "{refused}");
    // The root is a leaf, and is found to be taken at the end.
    let feed = all[..2].iter().inspect(|_| {
        keyspace.put(b"meanwhile", b"one").unwrap();
    });
    let taken = keyspace.bulk_load(feed.cloned(), 90).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::KeyspaceNotEmpty);
    assert!(keyspace.remove(b"meanwhile").unwrap());
    let used = used_bytes(&db);
    assert!(used <= before + 1024, "{used} bytes at the end, {before} before");
    assert_eq!(keyspace.count().unwrap(), 0);
}

#[test]
fn a_load_into_a_full_disk_is_refused_and_leaves_room() {
    let mut dice = Dice(seed(3));
    let options = options(true);
    let disk = SimDisk::new(dice.roll());
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("loaded").unwrap();
    let all: Vec<_> = (0..200).map(|n| (key(n), bytes(&mut dice, 10_000))).collect();
    disk.set_capacity(Some(900 << 10));
    for _ in 0..3 {
        let full = keyspace.bulk_load(all.iter().cloned(), 90).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::DiskFull, "{full}");
        db.checkpoint().unwrap();
        assert_sound(&db, "on a full disk");
    }
    assert_eq!(keyspace.bulk_load(all[..20].iter().cloned(), 90).unwrap(), 20);
    assert_eq!(keyspace.count().unwrap(), 20);
    assert_sound(&db, "after a load that has room");
}

#[test]
fn a_load_whose_write_fails_is_an_error_and_nothing_of_it_is_there_afterwards() {
    let mut dice = Dice(seed(4));
    let options = options(true);
    for failing in 0..40 {
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let keyspace = db.keyspace("loaded").unwrap();
        db.checkpoint().unwrap();
        let all = records(&mut dice, 60);
        disk.inject(Fault::once(CallKind::Write, failing, Fault::EIO));
        let loaded = keyspace.bulk_load(&all, 90);
        disk.clear_faults();
        drop(keyspace);
        drop(db);
        let db = open(&options, &disk, OpenHow::Existing).unwrap();
        let count = db.keyspace("loaded").unwrap().count().unwrap();
        assert!(count == 60 || count == 0 && loaded.is_err(), "{count} records, {loaded:?}");
        assert_sound(&db, "after a write that failed");
    }
}

/// Its records can be seen by then, and the log has nothing of them: what was put after that survived a crash without them.
#[test]
fn a_load_that_cannot_be_made_durable_lets_nobody_build_on_it() {
    let mut dice = Dice(seed(6));
    let options = options(true);
    let (mut failed, mut seen) = (0, 0);
    for failing in 0.. {
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        db.create_keyspace("loaded").unwrap();
        db.close().unwrap();
        let db = open(&options, &disk, OpenHow::Existing).unwrap();
        let keyspace = db.keyspace("loaded").unwrap().with_durability(Durability::Sync);
        let all = records(&mut dice, 60);
        // For good: one that passes is waited for.
        disk.inject(Fault::once(CallKind::Read, failing, Fault::EIO).sticky());
        let loaded = keyspace.bulk_load(&all, 90);
        let struck = disk.take_faults().iter().all(|fault| fault.after == 0);
        let is_seen = keyspace.count().is_ok_and(|count| count == 60);
        failed += u64::from(loaded.is_err());
        seen += u64::from(loaded.is_err() && is_seen);
        let late = keyspace.put(b"late", b"after the load");
        let survivor = disk.crash(dice.roll());
        let again = open(&options, &survivor, OpenHow::Existing).unwrap();
        let mut found = contents(&again).unwrap().remove("loaded").unwrap();
        let is_late_there = found.remove(&b"late"[..]).is_some();
        assert!(is_late_there || late.is_err(), "call {failing}: acknowledged, and lost");
        assert!(found == all || found.is_empty(), "call {failing}: {} records", found.len());
        let builds_on_nothing = is_seen && is_late_there && found.is_empty();
        assert!(!builds_on_nothing, "call {failing}: without what it was put beside");
        if !struck {
            break;
        }
    }
    println!("{failed} loads failed, {seen} of them with their records there");
    assert!(seen > 0);
}
