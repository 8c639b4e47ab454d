//! Batches as their callers see them: what they do, what they refuse, and what is left when they cannot go on.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{assert_sound, contents, key, open, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, ErrorKind, Options, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Fault};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    tiny().memory_limit_bytes(limit).log(true).log_segment_blocks(6)
}

fn batch_of(db: &Database, keys: impl IntoIterator<Item = u64>, value: &[u8]) -> WriteBatch {
    let keyspace = db.keyspace("robins").unwrap();
    let mut batch = WriteBatch::new();
    for n in keys {
        batch.put(&keyspace, &key(n), value).unwrap();
    }
    batch
}

#[test]
fn the_last_change_of_a_key_counts_in_all_keyspaces_and_in_memory_too() {
    let disk = SimDisk::new(1);
    for db in [
        open(&logged(), &disk, OpenHow::New).unwrap(),
        open(&tiny(), &SimDisk::new(1), OpenHow::New).unwrap(),
        Options::new().memory_limit_bytes(16 << 20).in_memory().unwrap(),
    ] {
        let (robins, wrens) = (db.keyspace("robins").unwrap(), db.keyspace("wrens").unwrap());
        robins.put(b"gone", b"1").unwrap();
        let mut batch = WriteBatch::new();
        db.write(&batch).unwrap();
        batch.put(&robins, b"b", b"1").unwrap();
        batch.put(&wrens, b"b", b"2").unwrap();
        batch.put(&robins, b"a", b"3").unwrap();
        batch.remove(&robins, b"b").unwrap();
        batch.remove(&wrens, b"never there").unwrap();
        batch.put(&wrens, b"b", b"").unwrap();
        batch.remove(&robins, b"gone").unwrap();
        assert_eq!((batch.len(), batch.is_empty()), (7, false));
        // Twice does no harm.
        db.write(&batch).unwrap();
        db.write(&batch).unwrap();
        let all = |name: &str| contents(&db).unwrap().remove(name).unwrap();
        assert_eq!(all("robins"), [(b"a".to_vec(), b"3".to_vec())].into());
        assert_eq!(all("wrens"), [(b"b".to_vec(), vec![])].into());
        batch.clear();
        assert!(batch.is_empty());
    }
}

#[test]
fn a_batch_is_as_durable_as_the_strictest_of_its_handles_unless_it_says_otherwise() {
    let disk = SimDisk::new(1);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let buffered = db.keyspace("robins").unwrap();
    let durable = buffered.clone().with_durability(Durability::Sync);
    let write = |batch: &WriteBatch| {
        db.write(batch).unwrap();
        db.durable_position() == db.log_position()
    };
    let mut batch = WriteBatch::new();
    batch.put(&buffered, b"a", b"1").unwrap();
    batch.put(&durable, b"b", b"2").unwrap();
    batch.put(&buffered, b"c", b"3").unwrap();
    assert!(write(&batch), "one is enough, and need not be the last");
    batch.clear();
    batch.set_durability(Durability::Sync);
    batch.put(&buffered, b"a", b"1").unwrap();
    assert!(write(&batch));
}

#[test]
fn a_durable_batch_is_there_after_a_crash_and_a_buffered_one_whole_or_not_at_all() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let db = open(&logged(), &disk, OpenHow::New).unwrap();
        let mut first = batch_of(&db, 0..200, b"first");
        first.set_durability(Durability::Sync);
        db.write(&first).unwrap();
        assert_eq!(db.durable_position(), db.log_position());
        db.write(&batch_of(&db, 100..300, b"second")).unwrap();
        let again = open(&logged(), &disk.crash(seed), OpenHow::Existing).unwrap();
        assert_sound(&again, "after a crash");
        let robins = again.keyspace("robins").unwrap();
        let is_second = robins.contains_key(&key(299)).unwrap();
        for n in 0..300 {
            let expected = match n {
                0..100 => Some(&b"first"[..]),
                100..200 => Some(if is_second { &b"second"[..] } else { b"first" }),
                _ => is_second.then_some(&b"second"[..]),
            };
            assert_eq!(robins.get(&key(n)).unwrap().as_deref(), expected, "{n}, seed {seed}");
        }
    }
}

#[test]
fn what_cannot_be_is_refused_and_nothing_has_changed() {
    let disk = SimDisk::new(1);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let other = open(&logged(), &SimDisk::new(2), OpenHow::New).unwrap();
    let robins = db.keyspace("robins").unwrap();
    let mut batch = batch_of(&db, [1], b"1");
    let refused = batch.put(&robins, &[7; 70_000], b"").unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::KeyTooLong { .. }));
    let too_long = vec![7; robins.max_key_bytes() + 1];
    let refused = batch.put(&robins, &too_long, &[7; 10_000]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::KeyTooLong { .. }));
    let refused = batch.put(&other.keyspace("robins").unwrap(), b"k", b"").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ForeignKeyspace);
    assert_eq!((batch.len(), batch.len_bytes()), (1, 32 + key(1).len() as u64 + 1));
    assert_eq!(other.write(&batch).unwrap_err().kind(), ErrorKind::ForeignKeyspace);
    // A keyspace that is gone takes the whole batch with it, if that is known before.
    let wrens = db.keyspace("wrens").unwrap();
    batch.put(&wrens, b"k", b"").unwrap();
    db.drop_keyspace("wrens").unwrap();
    assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::KeyspaceDropped);
    assert_eq!(robins.count().unwrap(), 0);
    let reader = {
        db.clone().close().unwrap();
        open(&logged(), &disk, OpenHow::ReadOnly).unwrap()
    };
    assert_eq!(db.write(&batch).unwrap_err().kind(), ErrorKind::Closed);
    let refused = reader.write(&batch_of(&reader, [1], b"1")).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ReadOnly);
}

#[test]
fn a_batch_beyond_its_share_of_the_log_is_too_large() {
    let options = Options::new().memory_limit_bytes(16 << 20).log_limit_bytes(8 << 20);
    let disk = SimDisk::new(1);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let most = (1_u64 << 20) / (32 + key(0).len() as u64 + 500);
    let too_many = batch_of(&db, 0..most + 10, &[1; 500]);
    let refused = db.write(&too_many).unwrap_err();
    let ErrorKind::BatchTooLarge { len_bytes, max_bytes } = refused.kind() else {
        panic!("{refused:?}");
    };
    assert!(max_bytes == 1 << 20 && len_bytes > max_bytes);
    let robins = db.keyspace("robins").unwrap();
    assert_eq!(robins.count().unwrap(), 0);
    db.write(&batch_of(&db, 0..most - 10, &[1; 500])).unwrap();
    assert_eq!(robins.count().unwrap(), most - 10);
    // Far more than the log holds at a time.
    for round in 0..30_u8 {
        db.write(&batch_of(&db, 0..most - 10, &[round; 500])).unwrap();
    }
    db.close().unwrap();
}

/// With segments and a ring of the usual size, and with few and small ones, with and without a thread for the log.
#[test]
fn large_batches_find_room_in_any_log() {
    let usual = Options::new().memory_limit_bytes(64 << 20);
    let small = logged().memory_limit_bytes(512 << 10);
    let options = [usual.clone(), usual.background_checkpoints(false), small];
    for (options, records) in options.into_iter().zip([20_000, 20_000, 3_000]) {
        let db = open(&options, &SimDisk::new(1), OpenHow::New).unwrap();
        for value in [[1; 60], [2; 60]] {
            db.write(&batch_of(&db, 0..records, &value)).unwrap();
        }
        assert_eq!(db.keyspace("robins").unwrap().count().unwrap(), records);
        db.close().unwrap();
    }
}

/// A backup is a checkpoint, and has no log that could finish a batch.
#[test]
fn a_backup_has_every_batch_whole() {
    let disk = SimDisk::new(1);
    let options = logged().memory_limit_bytes(512 << 10).background_checkpoints(true);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    db.write(&batch_of(&db, 0..60, &[0])).unwrap();
    let done = AtomicBool::new(false);
    let backups = std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                db.write(&batch_of(&db, 0..60, &[round as u8; 50])).unwrap();
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let backups: Vec<_> = (0..20).map(|n| format!("/data/backup-{n}")).collect();
        for path in &backups {
            db.backup(path, |_| ControlFlow::Continue(())).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        backups
    });
    let mut seen = BTreeSet::new();
    for path in backups {
        let copy = options.on_disk(&disk, Path::new(&path), OpenHow::ReadOnly).unwrap();
        let values: BTreeSet<_> = contents(&copy).unwrap()["robins"].values().cloned().collect();
        assert_eq!(values.len(), 1, "{path}: {values:?}");
        seen.extend(values);
    }
    println!("{} states", seen.len());
    assert!(seen.len() > 1, "batches were written meanwhile");
}

/// What changes no page fills the log all the same, and a checkpoint empties it.
#[test]
fn batches_that_change_nothing_do_not_fill_the_log() {
    let options = Options::new().memory_limit_bytes(16 << 20).log_limit_bytes(4 << 20);
    let db = open(&options, &SimDisk::new(1), OpenHow::New).unwrap();
    let robins = db.keyspace("robins").unwrap();
    let mut batch = WriteBatch::new();
    for n in 0..5000 {
        batch.remove(&robins, &key(n)).unwrap();
    }
    let begin = db.log_position();
    for _ in 0..100 {
        db.write(&batch).unwrap();
    }
    assert!(db.log_position().0 - begin.0 > 10 << 20, "more than twice what the log may hold");
    db.close().unwrap();
}

#[test]
fn a_failing_log_makes_nothing_half_and_opening_finishes_what_was_begun() {
    let mut finished = [0; 2];
    for call in 0.. {
        let disk = SimDisk::new(call);
        let db = open(&logged(), &disk, OpenHow::New).unwrap();
        db.write(&batch_of(&db, 0..100, b"first")).unwrap();
        db.sync().unwrap();
        // More than the ring holds, so that some of it is written while the batch is under way.
        let second = batch_of(&db, 0..1500, &[7; 60]);
        disk.inject(Fault::once(CallKind::Write, call, Fault::EIO));
        let outcome = db.write(&second);
        if let Err(error) = &outcome {
            let kinds = [
                ErrorKind::DurabilityUnknown,
                ErrorKind::BatchUnfinished,
                ErrorKind::Poisoned,
                // Of the checkpoint before.
                ErrorKind::Io,
            ];
            assert!(kinds.contains(&error.kind()), "{error:?}");
            assert_eq!(db.write(&second).unwrap_err().kind(), ErrorKind::Poisoned);
            drop(db.close());
        }
        let again = open(&logged(), &disk.crash(call), OpenHow::Existing).unwrap();
        assert_sound(&again, "after a failure");
        let records = contents(&again).unwrap().remove("robins").unwrap();
        let seconds = records.values().filter(|value| value[..] == [7; 60]).count();
        assert!(matches!((seconds, records.len()), (0, 100) | (1500, 1500)), "{call}: {seconds}");
        if outcome.is_ok() {
            break;
        }
        finished[usize::from(seconds > 0)] += 1;
    }
    println!("{finished:?}");
    count(finished[0] + finished[1], "faulty runs");
    assert!(finished[1] > 0, "some failure came when the log had all of the batch");
    assert!(finished[0] > 0, "and some before");
}

#[test]
fn a_read_that_fails_in_the_middle_of_a_batch_leaves_no_half_of_it() {
    let mut failures = 0;
    for call in 0.. {
        let disk = SimDisk::new(call);
        let db = open(&logged(), &disk, OpenHow::New).unwrap();
        db.write(&batch_of(&db, 0..1500, b"first")).unwrap();
        db.close().unwrap();
        let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
        let second = batch_of(&db, 0..1500, b"other");
        // For good: what is read ahead in vain is read again.
        disk.inject(Fault::once(CallKind::Read, call, Fault::EIO).sticky());
        let outcome = db.write(&second);
        disk.clear_faults();
        if let Err(error) = &outcome {
            let kinds = [
                ErrorKind::DurabilityUnknown,
                ErrorKind::BatchUnfinished,
                ErrorKind::Poisoned,
                ErrorKind::Io,
            ];
            assert!(kinds.contains(&error.kind()), "{error:?}");
            failures += 1;
        }
        // Whoever goes on all the same must not make half of it durable, and must keep what it acknowledges after it.
        let robins = db.keyspace("robins").map(|robins| robins.with_durability(Durability::Sync));
        let later: Vec<u64> = (0..1500)
            .step_by(100)
            .filter(|n| {
                let put = robins.as_ref().map(|robins| robins.put(&key(*n), b"later"));
                matches!(put, Ok(Ok(_)))
            })
            .collect();
        db.checkpoint().ok();
        drop(db.close());
        let again = open(&logged(), &disk.crash(call), OpenHow::Existing).unwrap();
        assert_sound(&again, "after a read that failed");
        let records = contents(&again).unwrap().remove("robins").unwrap();
        assert!(later.iter().all(|n| records[&key(*n)][..] == *b"later"), "call {call}");
        let seconds = records.values().filter(|value| value[..] == *b"other").count();
        let rest = 1500 - later.len();
        assert!(seconds == 0 || seconds == rest, "call {call}: {seconds} of {rest}");
        if outcome.is_ok() {
            assert_eq!(seconds, rest);
            break;
        }
    }
    count(failures, "faulty runs");
    assert!(failures > 10, "{failures}");
}

#[test]
fn a_full_disk_refuses_a_batch_before_it_has_begun() {
    let disk = SimDisk::new(1);
    let options = logged().memory_limit_bytes(1 << 20).background_checkpoints(true);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let load = |round: u64| batch_of(&db, (0..40).map(|n| round * 40 + n), &[round as u8; 50]);
    for round in 0..100 {
        db.write(&load(round)).unwrap();
    }
    disk.set_capacity(Some(disk.state().allocated_bytes() + 20_000));
    let (mut written, mut refusals) = (0, 0);
    for round in 100..10_000 {
        let before = db.keyspace("robins").unwrap().count().unwrap();
        match db.write(&load(round)) {
            Ok(_) => written += 1,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::DiskFull, "{error:?}");
                let count = db.keyspace("robins").unwrap().count().unwrap();
                assert_eq!(count, before, "nothing has changed");
                refusals += 1;
                if refusals == 3 {
                    break;
                }
            }
        }
    }
    println!("{written} batches, {refusals} refused");
    assert!(refusals == 3 && written > 10);
    disk.set_capacity(None);
    let before = db.keyspace("robins").unwrap().count().unwrap();
    db.write(&load(100_000)).unwrap();
    assert_eq!(db.keyspace("robins").unwrap().count().unwrap(), before + 40);
    assert_sound(&db, "after a full disk");
}
