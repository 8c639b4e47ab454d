//! Calls that fail, on a simulated disk: each kind of call, at each moment of a script, once or for
//! good. An operation succeeds or gives a typed error; the store works on, or refuses changes and says
//! so; what is read is right; and what is on the disk is a checkpoint.
#![allow(clippy::disallowed_methods, reason = "tests use real threads")]

use crate::common::{Dice, Model, Step, assert_sound, change, contents, key, open, seed, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Error, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Fault};

fn assert_typed(error: &Error, context: &str) {
    let expected =
        matches!(error.kind(), ErrorKind::Io | ErrorKind::DiskFull | ErrorKind::Poisoned);
    assert!(expected, "{context}: {error:?}");
}

fn script() -> Vec<Step> {
    let puts = |keyspace, count, below| Step::Puts { keyspace, count, below, value_bytes: 60 };
    vec![
        puts("wrens", 60, 200),
        Step::Checkpoint,
        // More than the pool holds.
        puts("terns", 500, 2000),
        Step::Removes { keyspace: "wrens", below: 200, every: 2 },
        Step::Compact("terns"),
        Step::Checkpoint,
        puts("wrens", 20, 200),
        Step::Drop("terns"),
        Step::Checkpoint,
        puts("gulls", 200, 400),
        Step::Checkpoint,
    ]
}

/// A run with one fault armed. Tells whether it struck.
fn run(fault: Fault, dice_seed: u64) -> bool {
    let context = format!("{fault:?}");
    let disk = SimDisk::new(dice_seed);
    let mut dice = Dice(dice_seed);
    let db = open(&tiny(), &disk, OpenHow::New).unwrap();
    disk.record_log(true);
    disk.inject(fault);
    let mut model = Model::new();
    let mut durable = vec![Model::new()];
    let mut known = true;
    for step in script() {
        let done = if matches!(step, Step::Checkpoint) {
            // One that failed may have become durable all the same.
            durable.push(model.clone());
            let done = db.checkpoint();
            if done.is_ok() {
                durable.drain(..durable.len() - 1);
            }
            done
        } else {
            change(&db, &mut model, &step, &mut dice)
        };
        if let Err(error) = done {
            assert_typed(&error, &context);
            if matches!(step, Step::Drop(_)) {
                // Half of it may be gone, and nobody can see it.
                known = false;
                break;
            }
        }
    }
    let struck = disk.take_log().iter().any(|call| call.fault.is_some());
    disk.clear_faults();
    if known {
        let found = contents(&db).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        assert!(found == model, "{context}: the running store shows something else");
    }
    match db.checkpoint() {
        Ok(()) => {
            assert_sound(&db, &context);
            if known {
                durable = vec![model.clone()];
            } else {
                durable.push(contents(&db).unwrap());
            }
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Poisoned, "{context}: {error:?}");
            let refused = db.keyspace("wrens").and_then(|wrens| wrens.put(b"a", b"b"));
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::Poisoned, "{context}");
        }
    }
    drop(db);
    let disk = disk.crash(dice_seed);
    let db = open(&tiny(), &disk, OpenHow::Existing)
        .unwrap_or_else(|error| panic!("{context}, reopened: {error:?}"));
    let found = contents(&db).unwrap();
    assert!(durable.contains(&found), "{context}, reopened: no checkpoint");
    assert_sound(&db, &context);
    struck
}

fn sweep(kind: CallKind, errno: i32, most: u64) {
    let dice_seed = seed(11);
    let mut runs = 0;
    for sticky in [false, true] {
        for k in 0..most {
            // Each call at the start, where things differ, and every few calls later.
            let after = k + k * k / 16;
            let fault = Fault::once(kind, after, errno);
            if !run(if sticky { fault.sticky() } else { fault }, dice_seed + after) {
                break;
            }
            runs += 1;
        }
    }
    count(runs, "faulty runs");
    assert!(runs > 2, "no {kind:?} ever failed");
}

#[test]
fn a_failed_write_poisons_or_is_made_good() {
    sweep(CallKind::Write, Fault::EIO, 60);
}

#[test]
fn a_write_without_room_is_made_good() {
    sweep(CallKind::Write, Fault::ENOSPC, 60);
}

#[test]
fn a_failed_sync_poisons() {
    sweep(CallKind::SyncData, Fault::EIO, 40);
}

#[test]
fn a_failed_read_is_an_error_of_that_read_alone() {
    sweep(CallKind::Read, Fault::EIO, 60);
}

#[test]
fn opening_and_creating_fail_whole_or_not_at_all() {
    let base = SimDisk::new(seed(12));
    let mut model = Model::new();
    let db = open(&tiny(), &base, OpenHow::New).unwrap();
    change(&db, &mut model, &script()[0], &mut Dice(1)).unwrap();
    db.checkpoint().unwrap();
    drop(db);
    for errno in [Fault::EIO, Fault::ENOSPC, Fault::EMFILE] {
        for after in 0.. {
            let disk = SimDisk::with_state(base.state(), after);
            disk.inject(Fault { errno, ..Fault::any(after) });
            match open(&tiny(), &disk, OpenHow::Existing) {
                Ok(db) => {
                    // The fault strikes later, or has struck what was no condition for opening.
                    disk.clear_faults();
                    assert!(contents(&db).unwrap() == model);
                    break;
                }
                Err(error) => assert_typed(&error, &format!("opening, call {after}")),
            }
            disk.clear_faults();
            let db = open(&tiny(), &disk, OpenHow::Existing).unwrap();
            assert!(contents(&db).unwrap() == model);
            assert_sound(&db, "opened after a failure");
        }
        for after in 0.. {
            let disk = SimDisk::new(after);
            disk.inject(Fault { errno, ..Fault::any(after) });
            let created = open(&tiny(), &disk, OpenHow::New);
            disk.clear_faults();
            let Err(error) = created else { break };
            assert_typed(&error, &format!("creating, call {after}"));
            let db = open(&tiny(), &disk, OpenHow::New);
            let db = db.unwrap_or_else(|error| panic!("after call {after}: {error:?}"));
            assert!(contents(&db).unwrap().is_empty());
        }
    }
}

/// A store several times as large as its pool, closed and opened again.
fn larger_than_memory(disk: &SimDisk) -> (Database, Model) {
    loaded(disk, &tiny(), 1500)
}

fn loaded(disk: &SimDisk, options: &Options, records: u64) -> (Database, Model) {
    let mut model = Model::new();
    let db = open(options, disk, OpenHow::New).unwrap();
    let load = Step::Puts { keyspace: "terns", count: records, below: records, value_bytes: 60 };
    change(&db, &mut model, &load, &mut Dice(5)).unwrap();
    db.close().unwrap();
    (open(options, disk, OpenHow::Existing).unwrap(), model)
}

#[test]
fn everybody_who_waits_for_a_failed_read_gets_its_error() {
    let disk = SimDisk::new(seed(13));
    let (db, model) = larger_than_memory(&disk);
    let terns = db.keyspace("terns").unwrap();
    disk.inject(Fault::once(CallKind::Read, 0, Fault::EIO).sticky());
    std::thread::scope(|scope| {
        let read = || {
            for n in 0..50 {
                // What is in memory already can be read.
                if let Err(error) = terns.get(&key(n * 30)) {
                    assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
                    assert_eq!(error.os_error(), Some(Fault::EIO));
                }
            }
        };
        for _ in 0..4 {
            scope.spawn(read);
        }
    });
    let mut range = terns.iter();
    let ended = range.find_map(Result::err).unwrap();
    assert_eq!(ended.kind(), ErrorKind::Io);
    disk.clear_faults();
    assert!(range.next().is_none(), "an iterator stays failed");
    assert!(range.next_back().is_none());
    assert!(contents(&db).unwrap() == model, "a later read works");
    assert_sound(&db, "after failed reads");
}

#[test]
fn a_full_disk_refuses_changes_and_serves_reads_until_there_is_room() {
    let disk = SimDisk::new(seed(14));
    let options = tiny().memory_limit_bytes(512 << 10).background_checkpoints(true);
    let (db, mut model) = loaded(&disk, &options, 6000);
    // Nothing but its pages is left of a store that was closed; this much there is beside them.
    let full = disk.state().allocated_bytes() + (2 << 20);
    disk.set_capacity(Some(full));
    let load = Step::Puts { keyspace: "terns", count: 300_000, below: 300_000, value_bytes: 60 };
    let mut dice = Dice(6);
    let error = change(&db, &mut model, &load, &mut dice).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
    for _ in 0..3 {
        let found =
            contents(&db).unwrap_or_else(|error| panic!("full: {error:?}, {:#?}", db.stats()));
        assert!(found == model);
        let terns = db.keyspace("terns").unwrap();
        let refused = (0..20_000).find_map(|n| match terns.put(&key(400_000 + n), b"") {
            Ok(_) => {
                model.get_mut("terns").unwrap().insert(key(400_000 + n), Vec::new());
                None
            }
            Err(error) => Some(error),
        });
        let refused = refused.expect("a full disk takes no more than a pool of changes");
        assert_eq!(refused.kind(), ErrorKind::DiskFull, "{refused:?}");
        db.checkpoint().expect("there is room for a checkpoint of what was let in");
    }
    // What gives space back goes on, and then what takes it.
    let fewer = Step::Removes { keyspace: "terns", below: 300_000, every: 2 };
    change(&db, &mut model, &fewer, &mut dice).unwrap();
    db.checkpoint().unwrap();
    let again = Step::Puts { keyspace: "terns", count: 2000, below: 60_000, value_bytes: 60 };
    change(&db, &mut model, &again, &mut dice).unwrap();
    db.checkpoint().unwrap();
    drop(db);
    let disk = disk.crash(9);
    disk.set_capacity(Some(full));
    let db = open(&options, &disk, OpenHow::Existing).unwrap();
    assert!(contents(&db).unwrap() == model);
    disk.set_capacity(None);
    db.checkpoint().unwrap();
    let more = Step::Puts { keyspace: "terns", count: 500, below: 60_000, value_bytes: 60 };
    change(&db, &mut model, &more, &mut dice).unwrap();
    db.checkpoint().unwrap();
    assert!(contents(&db).unwrap() == model);
    assert_sound(&db, "after a full disk");
    db.close().unwrap();
    let db = open(&options, &disk, OpenHow::Existing).unwrap();
    assert!(contents(&db).unwrap() == model);
}

#[test]
fn verification_finds_nothing_wrong_while_pages_come_and_go() {
    let disk = SimDisk::new(seed(15));
    let (db, _) = larger_than_memory(&disk);
    let terns = db.keyspace("terns").unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            for n in 0..20_000u64 {
                terns.get(&key(n * 7919 % 1500)).unwrap();
            }
        });
        while !reader.is_finished() {
            assert_sound(&db, "beside a reader");
        }
    });
}

#[test]
fn nothing_is_written_after_close() {
    let disk = SimDisk::new(seed(16));
    let (db, _) = larger_than_memory(&disk);
    let terns = db.keyspace("terns").unwrap();
    let writers: Vec<_> = (0..3)
        .map(|t| {
            let (db, terns) = (db.clone(), terns.clone());
            std::thread::spawn(move || {
                for n in 0.. {
                    let done = terns.put(&key(n % 2000), &[t]).and_then(|_| db.checkpoint());
                    if let Err(error) = done {
                        assert_eq!(error.kind(), ErrorKind::Closed, "{error:?}");
                        return;
                    }
                }
            })
        })
        .collect();
    db.clone().close().unwrap();
    let writes = disk.calls(CallKind::Write);
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(disk.calls(CallKind::Write), writes);
    assert_eq!(db.checkpoint().unwrap_err().kind(), ErrorKind::Closed);
    open(&tiny(), &disk, OpenHow::Existing).unwrap().close().unwrap();
}
