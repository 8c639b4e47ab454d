//! Old versions that were written to the file: many snapshots live for long, each taken over by a checkpoint of its own, and all see their moments.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{Dice, assert_sound, effort, open, path, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{
    Database, Error, ErrorKind, Isolation, Keyspace, Options, Snapshot, SnapshotStats, WriteBatch,
};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::Fault;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const KEYS: u64 = 1500;
/// Changes between a snapshot and the checkpoint that takes it over: most of what memory has for versions.
const CHANGES: u64 = 350;

fn options(log: bool) -> Options {
    Options::new().page_bytes(4096).memory_limit_bytes(2 << 20).log(log)
}

/// Some are too long for a leaf.
fn key(n: u64) -> Vec<u8> {
    let n = n.to_be_bytes();
    match u64::from_be_bytes(n) % 97 {
        0 => [&n[..], &[b'x'; 1500], &n].concat(),
        _ => n.to_vec(),
    }
}

/// Some are too long for a leaf, and some fill half of one.
fn value(n: u64, round: u64) -> Vec<u8> {
    let len = match (n + round) % 61 {
        0 => 3000,
        1..4 => 1900 - n as usize % 800,
        _ => 20 + n as usize % 150,
    };
    [&round.to_be_bytes()[..], &vec![n as u8; len]].concat()
}

struct World {
    disk: SimDisk,
    db: Database,
    wrens: Keyspace,
    now: Model,
    held: Vec<(Snapshot, Model)>,
    round: u64,
    dice: Dice,
}

impl World {
    fn new(options: &Options, dice: u64) -> World {
        let mut dice = Dice(dice);
        let disk = SimDisk::new(dice.roll());
        let db = open(options, &disk, OpenHow::New).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        let now = Model::new();
        let mut world = World { disk, db, wrens, now, held: Vec::new(), round: 0, dice };
        (0..KEYS).for_each(|n| world.put(n));
        world.db.checkpoint().unwrap();
        world
    }

    fn put(&mut self, n: u64) {
        let (key, value) = (key(n), value(n, self.round));
        self.wrens.put(&key, &value).unwrap();
        self.now.insert(key, value);
    }

    fn remove(&mut self, n: u64) {
        let key = key(n);
        self.wrens.remove(&key).unwrap();
        self.now.remove(&key);
    }

    /// A snapshot, and what it takes to be needed when a checkpoint comes. Keys come, go, and come back.
    fn hold_one(&mut self) {
        self.held.push((self.db.snapshot().unwrap(), self.now.clone()));
        self.round += 1;
        for _ in 0..CHANGES {
            let n = self.dice.below(KEYS + KEYS / 4);
            match self.dice.below(4) {
                0 => self.remove(n),
                _ => self.put(n),
            }
        }
    }

    fn hold_many(&mut self, count: u64) {
        for _ in 0..count {
            self.hold_one();
            self.db.checkpoint().unwrap();
        }
    }

    fn stats(&self) -> SnapshotStats {
        self.db.stats().unwrap().snapshots
    }

    /// Looks at all snapshots.
    fn check(&mut self, by: &str) {
        for (at, (snapshot, then)) in self.held.iter().enumerate() {
            let looked = look(snapshot, &self.wrens, then, &mut self.dice);
            looked.unwrap_or_else(|error| panic!("{by}, snapshot {at}: {error:?}"));
        }
    }

    /// Lets go of all snapshots in any order, and sees that the file keeps nothing for them.
    fn let_go(mut self) -> Database {
        while !self.held.is_empty() {
            let at = self.dice.below(self.held.len() as u64) as usize;
            self.held.swap_remove(at);
            if self.held.len().is_multiple_of(5) {
                self.check("others have ended");
            }
        }
        assert_eq!(self.stats().frozen_bytes, 0);
        for _ in 0..20 {
            self.db.checkpoint().unwrap();
        }
        assert_eq!(self.db.space_report().unwrap().quarantined_bytes, 0);
        assert_sound(&self.db, "all snapshots have ended");
        self.db
    }
}

fn put_all(keyspace: &Keyspace, of: std::ops::Range<u64>, value: &[u8]) {
    for n in of {
        keyspace.put(&key(n), value).unwrap();
    }
}

/// Compares what a snapshot shows with what there was: both ways, ranges, and single records.
fn look(snapshot: &Snapshot, wrens: &Keyspace, then: &Model, dice: &mut Dice) -> Result<(), Error> {
    let seen = snapshot.keyspace(wrens)?;
    for _ in 0..40 {
        let key = key(dice.below(KEYS + KEYS / 4));
        assert_eq!(seen.get(&key)?.as_deref(), then.get(&key).map(Vec::as_slice), "{key:?}");
    }
    let show = |record: (hedgerow::Value, hedgerow::Value)| (record.0.to_vec(), record.1.to_vec());
    let from = key(dice.below(KEYS));
    let mut found: Vec<_> =
        seen.range(&from[..]..).map(|record| record.map(show)).collect::<Result<_, _>>()?;
    let expected = || then.range(from.clone()..).map(|(key, value)| (key.clone(), value.clone()));
    assert!(found.iter().cloned().eq(expected()), "from {from:?} on");
    found =
        seen.range(&from[..]..).rev().map(|record| record.map(show)).collect::<Result<_, _>>()?;
    assert!(found.into_iter().eq(expected().rev()), "down to {from:?}");
    assert_eq!(seen.count()?, then.len() as u64);
    Ok(())
}

#[test]
fn many_snapshots_each_taken_over_by_a_checkpoint_of_its_own_see_their_moments() {
    for log in [true, false] {
        let mut world = World::new(&options(log), seed(81));
        let robins = world.db.keyspace("robins").unwrap();
        put_all(&robins, 0..50, b"robin");
        world.hold_many(6);
        // Versions of a keyspace that is dropped are needed, too.
        put_all(&robins, 0..50, b"changed");
        world.hold_many(6);
        assert!(world.db.drop_keyspace("robins").unwrap());
        world.hold_many(12 * effort());
        let stats = world.stats();
        assert_eq!(stats.given_up, 0, "{stats:?}");
        assert!(stats.frozen > 12 * CHANGES / 2, "{stats:?}");
        count(stats.frozen, "versions written to the file");
        // Everything is overwritten again, beside checkpoints.
        for _ in 0..3 {
            world.round += 1;
            (0..KEYS).for_each(|n| world.put(n));
            world.db.checkpoint().unwrap();
        }
        world.check("all is overwritten");
        for (at, (snapshot, _)) in world.held.iter().enumerate().take(12) {
            let seen = snapshot.open_keyspace("robins").unwrap().unwrap();
            let shown = if at < 6 { &b"robin"[..] } else { b"changed" };
            for record in seen.iter() {
                assert_eq!(record.unwrap().1.as_bytes(), shown, "snapshot {at}");
            }
            assert_eq!(seen.count().unwrap(), 50);
        }
        assert_sound(&world.db, "versions are in the file");
        // The file is longer by them, and says for whom.
        let pins = world.db.held_states();
        assert_eq!(pins.len(), world.held.len());
        let stats = world.stats();
        assert!(stats.frozen_bytes > 0 && pins[0].bytes_held > 0, "{stats:?} {pins:?}");
        assert_eq!(stats.given_up, 0);
        // Nobody can move them, and nobody waits for them.
        world.db.shrink(|_| std::ops::ControlFlow::Continue(())).unwrap();
        world.check("the file was to become shorter");
        let before = world.db.space_report().unwrap().used_bytes;
        let db = world.let_go();
        let after = db.space_report().unwrap().used_bytes;
        assert!(after + stats.frozen_bytes / 2 < before, "{before} bytes, then {after}");
        db.close().unwrap();
    }
}

#[test]
fn a_crash_frees_the_versions_that_were_written_to_the_file() {
    for log in [true, false] {
        let options = options(log);
        let mut world = World::new(&options, seed(82));
        world.hold_many(10);
        let stats = world.stats();
        assert!(stats.frozen_bytes > 0, "{stats:?}");
        let held = world.db.space_report().unwrap();
        for survivor in [world.disk.crash(world.dice.roll()), world.disk.kill(world.dice.roll())] {
            let after = options.on_disk(&survivor, path(), OpenHow::Existing).unwrap();
            assert_sound(&after, "after the crash");
            let wrens = after.open_keyspace("wrens").unwrap().unwrap();
            let snapshot = after.snapshot().unwrap();
            look(&snapshot, &wrens, &world.now, &mut world.dice).unwrap();
            drop(snapshot);
            assert_eq!(after.stats().unwrap().snapshots.frozen_bytes, 0);
            let report = after.space_report().unwrap();
            let kept = held.used_bytes - stats.frozen_bytes;
            assert!(report.used_bytes <= kept + (64 << 10), "{report:?}, before: {held:?}");
            after.close().unwrap();
        }
        world.check("beside the crashes");
        // A store that is closed reads nothing any more.
        world.db.clone().close().unwrap();
        let (snapshot, then) = &world.held[0];
        let error = look(snapshot, &world.wrens, then, &mut world.dice).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        let after = options.on_disk(&world.disk, path(), OpenHow::Existing).unwrap();
        assert_sound(&after, "closed with versions in the file");
    }
}

/// One call after the other of a checkpoint that writes versions fails. Whatever becomes of the checkpoint, snapshots see their moments.
#[test]
fn a_failed_write_of_versions_leaves_them_in_memory() {
    let dice = seed(83);
    let (mut calls, mut failed, mut frozen, mut poisoned) = (0, 0, 0, 0);
    for errno in [Fault::EIO, Fault::ENOSPC] {
        let mut after = 0;
        loop {
            let mut world = World::new(&options(true).background_checkpoints(false), dice);
            world.hold_one();
            assert_eq!(world.stats().frozen, 0);
            let before = world.disk.total_calls();
            world.disk.inject(Fault { errno, ..Fault::any(after) });
            let outcome = world.db.checkpoint();
            world.disk.clear_faults();
            let made = world.disk.total_calls() - before;
            let stats = world.stats();
            world.check("a call of the checkpoint has failed");
            calls += 1;
            match outcome {
                Ok(()) if stats.frozen > 0 => frozen += 1,
                Ok(()) => {
                    // Nobody is told, since nothing was lost.
                    failed += 1;
                    assert_eq!((stats.given_up, stats.frozen_bytes), (0, 0));
                    world.hold_many(3);
                    assert!(world.stats().frozen > 0);
                    world.check("the next ones go well");
                    world.let_go();
                }
                // It was a call of the checkpoint's own, or of what comes behind it.
                Err(_) => poisoned += u64::from(world.wrens.put(b"k", b"v").is_err()),
            }
            if made <= after {
                break;
            }
            // The first calls are the checkpoint's own.
            after += 1 + after / 40;
        }
    }
    count(calls, "failed calls of a checkpoint that writes versions");
    assert!(failed > 4 && frozen >= 2 && poisoned > 0, "{failed}, {frozen}, {poisoned} of {calls}");
}

#[test]
fn a_failed_read_of_versions_is_an_error_of_that_read_and_damage_is_never_a_wrong_answer() {
    let mut world = World::new(&options(true), seed(84));
    world.hold_many(12);
    assert!(world.stats().frozen > 0);
    let mut errors = 0;
    // Frames have some of what was read, and one of many reads fails.
    for after in 0..60 * effort() {
        let (snapshot, then) = &world.held[world.dice.below(12) as usize];
        let kind = hedgerow_testing::sim::CallKind::Read;
        world.disk.inject(Fault::once(kind, after % 30, Fault::EIO));
        let looked = look(snapshot, &world.wrens, then, &mut world.dice);
        world.disk.clear_faults();
        if let Err(error) = looked {
            assert!(matches!(error.kind(), ErrorKind::Io), "{error:?}");
            errors += 1;
        }
        look(snapshot, &world.wrens, then, &mut world.dice).unwrap();
    }
    assert!(errors > 5, "{errors}");
    // A wrong byte in each block.
    let mut bytes = world.disk.state().contents(path()).unwrap();
    let sound = bytes.clone();
    for block in bytes[64 << 10..].chunks_mut(4096) {
        let at = world.dice.below(block.len() as u64) as usize;
        block[at] ^= 1 << world.dice.below(8);
    }
    world.disk.change_state(|state| state.set_contents(path(), &bytes).unwrap());
    let (mut damaged, mut of_versions) = (0, 0);
    for (snapshot, then) in &world.held {
        if let Err(error) = look(snapshot, &world.wrens, then, &mut world.dice) {
            assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error:?}");
            damaged += 1;
            of_versions += u64::from(error.to_string().contains("old versions"));
        }
    }
    assert!(damaged > 5 && of_versions > 0, "{damaged}, {of_versions} of versions");
    world.disk.change_state(|state| state.set_contents(path(), &sound).unwrap());
    world.check("the file is sound again");
    world.let_go();
}

/// What others do to a keyspace that has even numbers for keys, behind a transaction that has read those from 100 to 200.
type Others = fn(&Keyspace);

fn short(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// What the transaction has read before others changed it is in the file alone.
#[test]
fn a_transaction_whose_versions_were_written_to_the_file_commits_if_nothing_that_it_read_has_changed()
 {
    fn put(wrens: &Keyspace, n: u64, value: &[u8]) {
        wrens.put(&short(n), value).unwrap();
    }
    fn remove(wrens: &Keyspace, n: u64) {
        wrens.remove(&short(n)).unwrap();
    }
    let others: [(&str, bool, Others); 8] = [
        ("nothing", true, |_| ()),
        ("below", true, |wrens| put(wrens, 98, b"new")),
        ("above", true, |wrens| remove(wrens, 202)),
        ("changed", false, |wrens| put(wrens, 150, b"new")),
        ("removed", false, |wrens| remove(wrens, 150)),
        ("came", false, |wrens| put(wrens, 151, b"new")),
        ("first removed", false, |wrens| remove(wrens, 100)),
        ("changed and changed back", true, |wrens| {
            put(wrens, 150, b"new");
            put(wrens, 150, &short(150));
        }),
    ];
    for log in [true, false] {
        // One that comes by itself may take the transaction's snapshot over before there is much to write.
        let options = options(log).background_checkpoints(false);
        let db = open(&options, &SimDisk::new(1), OpenHow::New).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        let mut frozen = 0;
        (1000..1600).for_each(|n| put(&wrens, n, &[n as u8; 99]));
        for again in [false, true] {
            for (what, may_commit, change) in &others {
                for n in 0..300 {
                    match n % 2 {
                        0 => put(&wrens, n, &short(n)),
                        _ => remove(&wrens, n),
                    }
                }
                let transaction = db.transaction(Isolation::Serializable);
                let seen = transaction.keyspace(&wrens).unwrap();
                let (low, high) = (short(100), short(200));
                assert_eq!(seen.range(&low[..]..=&high[..]).count(), 51);
                change(&wrens);
                // Neighbours, and so many others that memory is short.
                (1000..1600).for_each(|n| put(&wrens, n, &[n as u8; 100]));
                for n in [99, 101, 250] {
                    put(&wrens, n, b"passes");
                    remove(&wrens, n);
                }
                db.checkpoint().unwrap();
                let stats = db.stats().unwrap().snapshots;
                assert!(stats.frozen > frozen, "{what}: {stats:?}");
                frozen = stats.frozen;
                if again {
                    // Back behind the checkpoint, to what the file has of it, or to something else.
                    put(&wrens, 150, b"newer");
                    put(&wrens, 150, &short(150));
                }
                assert_eq!(seen.get(&short(150)).unwrap().as_deref(), Some(&short(150)[..]));
                seen.put(&short(5000), b"mine").unwrap();
                let may_commit = *may_commit || again && ["changed", "removed"].contains(what);
                let context = format!("{what}, log: {log}, again: {again}");
                match transaction.commit() {
                    Ok(_) => assert!(may_commit, "{context}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Conflict, "{context}: {error}");
                        assert!(!may_commit, "{context}: {error}");
                    }
                }
            }
        }
        assert_eq!(db.stats().unwrap().snapshots.frozen_bytes, 0);
        assert_sound(&db, "transactions have ended");
    }
}

/// Others change the leaf all the time, so that the commit waits for it, and reads the file before.
#[test]
fn a_transaction_whose_versions_are_in_the_file_commits_in_a_leaf_that_others_change_all_the_time()
{
    let db = open(&options(true), &SimDisk::new(seed(85)), OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    for n in 0..10 {
        wrens.put(&short(n), &short(n)).unwrap();
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (wrens, stop) = (&wrens, &stop);
            scope.spawn(move || {
                for round in (0u64..).take_while(|_| !stop.load(Relaxed)) {
                    wrens.put(&short(thread), &short(round)).unwrap();
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..30 * effort() {
                let transaction = db.transaction(Isolation::Serializable);
                let seen = transaction.keyspace(&wrens).unwrap();
                assert_eq!(seen.range(&short(5)[..]..=&short(7)[..]).count(), 3);
                wrens.put(&short(6), b"new").unwrap();
                for n in 1000..1600 {
                    wrens.put(&short(n), &[round as u8; 100]).unwrap();
                }
                db.checkpoint().unwrap();
                wrens.put(&short(6), &short(6)).unwrap();
                seen.put(&short(9), &short(round)).unwrap();
                transaction.commit().unwrap();
            }
        }));
        stop.store(true, Relaxed);
        outcome.unwrap();
    });
    let stats = db.stats().unwrap().snapshots;
    assert!(stats.frozen > 0, "{stats:?}");
    assert_sound(&db, "transactions have ended");
}

/// Each writer puts the same number into all records of a group, by a batch; snapshots are held beside checkpoints that come by themselves.
#[test]
fn snapshots_that_are_held_beside_writers_see_whole_batches_in_memory_and_in_the_file() {
    const GROUPS: u64 = 150;
    const EACH: u64 = 5;
    let options = options(true).checkpoint_bytes(256 << 10);
    let db = open(&options, &SimDisk::new(2), OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    let name = |group: u64, n: u64| [n.to_be_bytes(), group.to_be_bytes()].concat();
    let put = |group: u64, number: u64| {
        let mut batch = WriteBatch::new();
        for n in 0..EACH {
            let value = [&number.to_be_bytes()[..], &[7; 60]].concat();
            batch.put(&wrens, &name(group, n), &value).unwrap();
        }
        db.write(&batch).unwrap();
    };
    (0..GROUPS).for_each(|group| put(group, 0));
    let look = |snapshot: &Snapshot| -> Result<Vec<u64>, Error> {
        let seen = snapshot.keyspace(&wrens)?;
        let numbers = seen.iter().map(|record| {
            record.map(|record| u64::from_be_bytes(record.1[..8].try_into().unwrap()))
        });
        let numbers: Vec<u64> = numbers.collect::<Result<_, _>>()?;
        assert_eq!(numbers.len() as u64, GROUPS * EACH);
        let parts: Vec<&[u64]> = numbers.chunks(GROUPS as usize).collect();
        assert!(parts.iter().all(|part| *part == parts[0]), "half of a batch");
        Ok(parts[0].to_vec())
    };
    let is_over = AtomicBool::new(false);
    let looks = std::thread::scope(|scope| {
        for half in 0..2 {
            let (put, is_over) = (&put, &is_over);
            scope.spawn(move || {
                let mut dice = Dice(half);
                for number in (1..).take_while(|_| !is_over.load(Relaxed)) {
                    put(dice.below(GROUPS / 2) * 2 + half, number);
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (mut dice, mut held) = (Dice(seed(86)), Vec::<(Snapshot, Vec<u64>)>::new());
            let mut looks = 0;
            for _ in 0..300 * effort() {
                if held.len() < 40 {
                    let snapshot = db.snapshot().unwrap();
                    let first = look(&snapshot);
                    held.extend(first.map(|first| (snapshot, first)).ok());
                }
                let at = dice.below(held.len() as u64) as usize;
                match look(&held[at].0) {
                    Ok(again) => {
                        assert_eq!(again, held[at].1);
                        looks += 1;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
                        held.swap_remove(at);
                    }
                }
                if held.len() > 1 && dice.below(20) == 0 {
                    held.swap_remove(at % held.len());
                }
            }
            looks
        }));
        is_over.store(true, Relaxed);
        outcome.unwrap()
    });
    let stats = db.stats().unwrap().snapshots;
    count(looks, "looks at snapshots whose versions may be in the file");
    assert!(looks > 100 && stats.frozen > 0, "{looks} looks, {stats:?}");
    assert_eq!(stats.frozen_bytes, 0);
    assert_sound(&db, "writers and snapshots have ended");
}

/// The load says that the leaf has nothing that the snapshot sees, and the checkpoint neither: what was removed before the load is only
/// among the versions in the file.
#[test]
fn a_commit_notices_what_was_removed_before_a_load_and_is_known_to_the_file_alone() {
    for log in [true, false] {
        for (by, long) in [("a key", false), ("a range", false), ("a long key", true)] {
            let disk = SimDisk::new(seed(71));
            let options = options(log).background_checkpoints(false);
            let db = open(&options, &disk, OpenHow::New).unwrap();
            let [robins, wrens, finches] =
                ["robins", "wrens", "finches"].map(|name| db.keyspace(name).unwrap());
            let read = if long { vec![b'a'; 2000] } else { b"a".to_vec() };
            robins.put(&read, b"red").unwrap();
            put_all(&wrens, 1000..1600, &[1; 100]);
            db.checkpoint().unwrap();
            let transaction = db.transaction(Isolation::Serializable);
            let its_robins = transaction.keyspace(&robins).unwrap();
            match by {
                "a range" => assert_eq!(its_robins.range(&b"A"[..]..&b"b"[..]).count(), 1),
                _ => assert!(its_robins.contains_key(&read).unwrap()),
            }
            transaction.keyspace(&finches).unwrap().put(b"seen", b"red").unwrap();
            robins.remove(&read).unwrap();
            put_all(&wrens, 1000..1600, &[2; 100]);
            robins.bulk_load([(b"b", b"other")], 100).unwrap();
            db.checkpoint().unwrap();
            let frozen = db.stats().unwrap().snapshots.frozen_bytes;
            assert!(frozen > 0, "{by}, log {log}: versions stay in memory");
            let refused = transaction.commit().expect_err("a robin that was read is gone");
            assert_eq!(refused.kind(), ErrorKind::Conflict, "{by}, log {log}: {refused}");
            assert_eq!(finches.count().unwrap(), 0);
        }
    }
}
