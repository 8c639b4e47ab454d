//! What the log promises, on a disk that forgets: after a crash at any call the store holds the first of the
//! changes that were made, in their order, and among them all that were said to be durable; a crash while
//! the log is replayed changes nothing; and a log that is missing, foreign or damaged is named.
#![allow(missing_docs, reason = "a test")]

mod common;

use common::{Dice, Model, assert_sound, contents, effort, key, open, path, seed, tiny};
use hedgerow::storage::sim::{CallKind, Fate, Fault};
use hedgerow::storage::{Disk, SimDisk};
use hedgerow::store::{OpenHow, log_path};
use hedgerow::{Database, Durability, ErrorKind, Options, WriteBatch};

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    tiny().memory_limit_bytes(limit).log(true).log_segment_blocks(6)
}

/// A session: a store, all states that it went through, and how far it is known to be durable.
struct Session {
    disk: SimDisk,
    db: Database,
    /// Contents after each change, the first before any.
    history: Vec<Model>,
    durable: usize,
}

impl Session {
    fn begin(disk: SimDisk, before: Model) -> Session {
        let db = open(&logged(), &disk, OpenHow::ExistingOrNew).unwrap();
        assert_eq!(contents(&db).unwrap(), before);
        disk.record_states(true);
        Session { disk, db, history: vec![before], durable: 0 }
    }

    fn now(&self) -> Model {
        self.history.last().unwrap().clone()
    }

    /// One random change, or something that makes changes durable.
    fn step(&mut self, dice: &mut Dice) {
        let name = ["robins", "wrens"][dice.below(2) as usize];
        let mut model = self.now();
        let known = model.contains_key(name);
        match dice.below(60) {
            0 => self.db.sync().unwrap(),
            1 => self.db.checkpoint().unwrap(),
            2 if known && dice.below(4) == 0 => {
                assert!(self.db.drop_keyspace(name).unwrap());
                model.remove(name);
                self.history.push(model);
            }
            3..6 if known => {
                let sync = dice.below(4) == 0;
                self.batch(dice, &mut model, sync);
                self.history.push(model);
            }
            8 if known => {
                let records = &model[name];
                let (from, to) = (key(dice.below(900)), key(dice.below(900)));
                let keyspace = self.db.keyspace(name).unwrap();
                let inside = |key: &&Vec<u8>| from <= **key && **key < to;
                let inside: Vec<_> = records.keys().filter(inside).cloned().collect();
                let removed = keyspace.remove_range(from.as_slice()..to.as_slice()).unwrap();
                assert_eq!(removed, inside.len() as u64);
                // It goes leaf by leaf; a crash may leave any first part of it.
                for key in inside {
                    model.get_mut(name).unwrap().remove(&key);
                    self.history.push(model.clone());
                }
            }
            choice => {
                if !known {
                    self.db.create_keyspace(name).unwrap();
                    model.insert(name.into(), Default::default());
                    self.history.push(model.clone());
                    self.durable = self.history.len() - 1;
                }
                let sync = choice == 6;
                let durability = if sync { Durability::Sync } else { Durability::Buffered };
                let keyspace = self.db.keyspace(name).unwrap().with_durability(durability);
                let records = model.get_mut(name).unwrap();
                let key = key(dice.below(900));
                let is_change = if dice.below(6) == 0 {
                    let was_there = records.remove(&key).is_some();
                    assert_eq!(keyspace.remove(&key).unwrap(), was_there);
                    was_there
                } else {
                    let value = vec![dice.roll() as u8; dice.below(60) as usize];
                    keyspace.put(&key, &value).unwrap();
                    records.insert(key, value);
                    true
                };
                if is_change {
                    self.history.push(model);
                }
            }
        }
        if self.db.durable_position() == self.db.log_position() {
            self.durable = self.history.len() - 1;
        }
    }

    /// Changes of all keyspaces that there are, some of the same keys, at one stroke.
    fn batch(&mut self, dice: &mut Dice, model: &mut Model, sync: bool) {
        let mut batch = WriteBatch::new();
        if sync {
            batch.set_durability(Durability::Sync);
        }
        let most = [3, 30, 120][dice.below(3) as usize];
        for _ in 0..1 + dice.below(most) {
            let at = dice.below(model.len() as u64) as usize;
            let (name, records) = model.iter_mut().nth(at).unwrap();
            let keyspace = self.db.keyspace(name).unwrap();
            let key = key(dice.below(900));
            if dice.below(3) == 0 {
                batch.remove(&keyspace, &key).unwrap();
                records.remove(&key);
            } else {
                let value = vec![dice.roll() as u8; dice.below(60) as usize];
                batch.put(&keyspace, &key, &value).unwrap();
                records.insert(key, value);
            }
        }
        self.db.write(&batch).unwrap();
    }

    /// Crashes at each call since the last time, and looks what is there.
    fn explore(&mut self, durable_before: usize, dice: &mut Dice, tried: &mut u64) {
        for state in self.disk.take_states() {
            for _ in 0..3 {
                let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
                *tried += 1;
                let found = recover(&survivor, dice);
                let at = self.history.iter().rposition(|model| *model == found);
                let allowed = durable_before..=self.history.len() - 1;
                assert!(
                    at.is_some_and(|at| allowed.contains(&at)),
                    "found the state after change {at:?}, not of {allowed:?}"
                );
            }
        }
    }
}

/// Opens what a crash has left, three times: with crashes during recovery, then again and again. All must
/// find the same.
fn recover(disk: &SimDisk, dice: &mut Dice) -> Model {
    let first = SimDisk::with_state(disk.state(), dice.roll());
    first.record_states(true);
    let db = open(&logged(), &first, OpenHow::ExistingOrNew).unwrap();
    let found = contents(&db).unwrap();
    assert_sound(&db, "after recovery");
    drop(db);
    let states = first.take_states();
    for _ in 0..2 {
        let Some(state) = states.get(dice.below(states.len().max(1) as u64) as usize) else {
            break;
        };
        let again = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
        let db = open(&logged(), &again, OpenHow::ExistingOrNew).unwrap();
        assert_eq!(contents(&db).unwrap(), found, "a crash during recovery");
        assert_sound(&db, "after a second recovery");
    }
    found
}

#[test]
fn after_a_crash_at_any_call_the_first_changes_are_there_and_all_durable_ones() {
    let mut dice = Dice(seed(71));
    let mut tried = 0;
    for _ in 0..4 * effort() {
        let mut disk = SimDisk::new(dice.roll());
        let mut before = Model::new();
        for _ in 0..3 {
            let mut session = Session::begin(disk, before);
            for _ in 0..400 {
                let durable_before = session.durable;
                session.step(&mut dice);
                session.explore(durable_before, &mut dice, &mut tried);
            }
            let survivor = session.disk.crash(dice.roll());
            let found = recover(&survivor, &mut dice);
            let at = session.history.iter().rposition(|model| *model == found).unwrap();
            assert!(at >= session.durable);
            (disk, before) = (survivor, found);
        }
    }
    println!("{tried} crashes");
    assert!(tried > 5_000);
}

#[test]
fn a_kill_and_then_a_power_cut_at_any_call_of_the_opening() {
    let mut dice = Dice(seed(72));
    let mut tried = 0;
    for _ in 0..12 * effort() {
        let mut session = Session::begin(SimDisk::new(dice.roll()), Model::new());
        session.disk.record_states(false);
        for _ in 0..6 {
            for _ in 0..20 {
                session.step(&mut dice);
            }
            // The process dies, the system lives on: what was written and not synced can be read.
            let killed = SimDisk::with_state(session.disk.state(), dice.roll());
            killed.record_states(true);
            let db = open(&logged(), &killed, OpenHow::ExistingOrNew).unwrap();
            let found = contents(&db).unwrap();
            assert_sound(&db, "after a kill");
            let is_allowed = |found: &Model| {
                let at = session.history.iter().rposition(|model| model == found);
                at.is_some_and(|at| at >= session.durable)
            };
            assert!(is_allowed(&found), "after a kill");
            let opened = killed.state();
            let states = killed.take_states();
            drop(db);
            for state in states {
                let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
                let db = open(&logged(), &survivor, OpenHow::ExistingOrNew).unwrap();
                assert!(is_allowed(&contents(&db).unwrap()), "after a power cut in the opening");
                assert_sound(&db, "after a power cut in the opening");
                tried += 1;
            }
            // What an opening has found stays.
            for _ in 0..3 {
                let survivor = SimDisk::with_state(opened.crash_at_random(dice.roll()), 1);
                let db = open(&logged(), &survivor, OpenHow::Existing).unwrap();
                assert_eq!(contents(&db).unwrap(), found, "after a power cut behind the opening");
            }
        }
    }
    println!("{tried} power cuts");
    assert!(tried > 1_000, "{tried}");
}

#[test]
fn a_replay_that_needs_most_of_a_store_in_memory_is_as_exact_as_any() {
    let mut dice = Dice(seed(73));
    for background in [false, true] {
        // So many frames that the store is read from beginning to end, with threads and without.
        let options = tiny().memory_limit_bytes(4 << 20).log(true);
        let disk = SimDisk::new(dice.roll());
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let keyspace = db.keyspace("wrens").unwrap();
        let records = (0..6_000).map(|n| (key(n), vec![dice.roll() as u8; 60]));
        keyspace.bulk_load(records, 90).unwrap();
        db.checkpoint().unwrap();
        for _ in 0..5_000 {
            let key = key(dice.below(6_500));
            if dice.below(4) == 0 {
                keyspace.remove(&key).unwrap();
            } else {
                keyspace.put(&key, &dice.roll().to_le_bytes()).unwrap();
            }
        }
        db.sync().unwrap();
        let expected = contents(&db).unwrap();
        let survivor = disk.crash(dice.roll());
        drop(db);
        // Whether it is opened to be read or to be written.
        let reader = SimDisk::with_state(survivor.state(), 1);
        for (disk, how) in [(reader, OpenHow::ReadOnly), (survivor, OpenHow::Existing)] {
            let options = options.clone().background_checkpoints(background);
            let db = open(&options, &disk, how).unwrap();
            assert!(db.replayed().records > 4_000);
            assert!(contents(&db).unwrap() == expected);
            assert_sound(&db, "after a replay of most of the store");
        }
    }
}

#[test]
fn a_closed_store_has_no_log_and_needs_none() {
    let disk = SimDisk::new(1);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    db.keyspace("robins").unwrap().put(b"a", b"b").unwrap();
    assert!(disk.exists(&log_path(path())).unwrap());
    let before = contents(&db).unwrap();
    db.close().unwrap();
    assert!(!disk.exists(&log_path(path())).unwrap());
    let db = open(&logged(), &disk.crash(1), OpenHow::ReadOnly).unwrap();
    assert_eq!(contents(&db).unwrap(), before);
    assert_eq!(db.replayed().records, 0);
}

#[test]
fn what_is_said_to_be_durable_is_so_without_a_checkpoint() {
    let disk = SimDisk::new(1);
    let db = open(&logged().durability(Durability::Sync), &disk, OpenHow::New).unwrap();
    let checkpoint = db.stats().unwrap().checkpoint;
    let keyspace = db.keyspace("robins").unwrap();
    for n in 0..50 {
        keyspace.put(&key(n), b"here").unwrap();
    }
    assert_eq!(db.durable_position(), db.log_position());
    assert_eq!(db.stats().unwrap().checkpoint, checkpoint);
    let survivor = disk.crash(2);
    // For reading only as well, in memory: nothing is written.
    for _ in 0..2 {
        let reader = open(&logged(), &survivor, OpenHow::ReadOnly).unwrap();
        assert_eq!(reader.replayed().records, 51);
        assert_eq!(contents(&reader).unwrap(), contents(&db).unwrap());
        let refused = reader.keyspace("robins").unwrap().put(b"a", b"b").unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::ReadOnly);
    }
    assert_eq!(survivor.calls(CallKind::Write), 0);
    let again = open(&logged(), &survivor, OpenHow::Existing).unwrap();
    assert_eq!(contents(&again).unwrap(), contents(&db).unwrap());
    assert_eq!(again.replayed().records, 51);
    assert!(again.replayed().log_bytes > 50 * 20);
    let beyond = hedgerow::Lsn(again.log_position().0 + 1);
    let refused = again.wait_durable(beyond).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::InvalidOption);
    again.wait_durable(again.log_position()).unwrap();
}

/// Changes each of which was durable before the next, over more than one segment of the log, of a process that was
/// killed while the system lived on; and what is in the log's file.
fn killed(seed: u64) -> (SimDisk, Model, Vec<u8>) {
    let disk = SimDisk::new(seed);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("robins").unwrap();
    for n in 0..10 {
        keyspace.put(&key(n), b"here").unwrap();
        db.sync().unwrap();
    }
    let model = contents(&db).unwrap();
    let state = disk.state();
    let all = vec![Fate::Keep; state.pending().len()];
    let disk = SimDisk::with_state(state.crash(&all, None), seed);
    let log = disk.state().contents(&log_path(path())).unwrap();
    (disk, model, log)
}

/// Blocks of the log, which has one before its segments; a segment has one before its six.
const BLOCK: usize = 4096;
const SEGMENT: usize = 7 * BLOCK;

/// Puts other bytes in the place of a log. Opening refuses them and writes nothing, and with the log
/// put back it finds everything. Tells where the damage was said to be.
fn refused_offset(what: &str, change: impl FnOnce(&mut Vec<u8>)) -> u64 {
    let (disk, model, good) = killed(1);
    assert!(good.len() >= BLOCK + 2 * SEGMENT, "what is durable needs two segments");
    let log = log_path(path());
    let mut wrong = good.clone();
    change(&mut wrong);
    assert!(wrong != good, "{what}");
    disk.change_state(|state| state.set_contents(&log, &wrong)).unwrap();
    let store = disk.state().contents(path());
    let refused = open(&logged(), &disk, OpenHow::Existing).map(drop);
    let error = refused.expect_err(what);
    let ErrorKind::Corrupted { offset_bytes: Some(offset), .. } = *error.kind() else {
        panic!("{what}: {error:?}");
    };
    assert!(disk.state().contents(path()) == store, "{what}: the store was written");
    assert!(disk.state().contents(&log) == Some(wrong), "{what}: the log was written");
    disk.change_state(|state| state.set_contents(&log, &good)).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert!(contents(&db).unwrap() == model, "{what}: the log was put back");
    assert_sound(&db, what);
    offset
}

#[test]
fn a_log_that_is_foreign_or_damaged_is_named_and_the_store_is_left_alone() {
    let (_, _, foreign) = killed(2);
    // The header names the store; its checksum covers all of it.
    let offset = refused_offset("another store's log", |log| log.clone_from(&foreign));
    assert_eq!(offset, 24);
    assert_eq!(refused_offset("a damaged header", |log| log[100] ^= 1), 0);
    // The first block of the first segment, which later ones say was durable.
    let first = 2 * BLOCK;
    let offset = refused_offset("a damaged block", |log| log[first + 100] ^= 1);
    assert_eq!(offset, first as u64);
    refused_offset("the first segment lost", |log| log[BLOCK..BLOCK + SEGMENT].fill(0));
}

#[test]
fn a_log_that_was_cut_off_is_refused_and_the_store_is_left_alone() {
    // A log begins with two segments, and never has fewer.
    for len in [0, 100, 5000, BLOCK, BLOCK + SEGMENT, BLOCK + 2 * SEGMENT - 1] {
        refused_offset(&format!("cut off after {len} bytes"), |log| log.truncate(len));
    }
}

#[test]
fn a_log_that_is_missing_is_named_and_put_back_it_is_replayed() {
    let (disk, model, good) = killed(3);
    let log = log_path(path());
    disk.unlink(&log).unwrap();
    let store = disk.state().contents(path());
    let refused = open(&logged(), &disk, OpenHow::Existing).map(drop).unwrap_err();
    assert_eq!(*refused.kind(), ErrorKind::NotFound);
    assert!(refused.to_string().contains("-log"), "{refused}");
    assert!(disk.state().contents(path()) == store, "the store was written");
    assert!(!disk.exists(&log).unwrap(), "nothing takes the place of what is missing");
    disk.change_state(|state| state.set_contents(&log, &good)).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert!(db.replayed().records > 10);
    assert!(contents(&db).unwrap() == model);
    assert_sound(&db, "with its log put back");
}

#[test]
fn after_a_failed_sync_of_the_log_nothing_is_promised_any_more_and_reads_go_on() {
    for kind in [CallKind::Write, CallKind::SyncData] {
        let disk = SimDisk::new(4);
        let db = open(&logged(), &disk, OpenHow::New).unwrap();
        let keyspace = db.keyspace("robins").unwrap();
        keyspace.put(b"a", b"1").unwrap();
        db.sync().unwrap();
        keyspace.put(b"a", b"2").unwrap();
        disk.inject(Fault::once(kind, 0, Fault::EIO));
        assert_eq!(*db.sync().unwrap_err().kind(), ErrorKind::Unknown, "{kind:?}");
        assert_eq!(*keyspace.put(b"b", b"3").unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(*db.checkpoint().unwrap_err().kind(), ErrorKind::Poisoned);
        assert_eq!(keyspace.get(b"a").unwrap().unwrap().as_ref(), b"2");
        let again = open(&logged(), &disk.crash(5), OpenHow::Existing).unwrap();
        let value = again.keyspace("robins").unwrap().get(b"a").unwrap().unwrap();
        assert!([b"1", b"2"].contains(&value.as_ref().first_chunk().unwrap()));
    }
}

#[test]
fn a_store_without_a_log_takes_over_what_a_log_has_and_the_other_way_round() {
    let disk = SimDisk::new(6);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    db.keyspace("robins").unwrap().put(b"a", b"1").unwrap();
    db.sync().unwrap();
    let disk = disk.crash(1);
    let db = open(&tiny().log(false), &disk, OpenHow::Existing).unwrap();
    assert_eq!(db.replayed().records, 2);
    let keyspace = db.keyspace("robins").unwrap();
    keyspace.put(b"b", b"2").unwrap();
    db.checkpoint().unwrap();
    keyspace.put(b"c", b"3").unwrap();
    assert_eq!(db.log_position().0, 0);
    let disk = disk.crash(2);
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    let keyspace = db.keyspace("robins").unwrap();
    assert!(keyspace.contains(b"a").unwrap() && keyspace.contains(b"b").unwrap());
    assert!(!keyspace.contains(b"c").unwrap());
    keyspace.put(b"d", b"4").unwrap();
    db.sync().unwrap();
    let db = open(&logged(), &disk.crash(3), OpenHow::Existing).unwrap();
    assert!(db.keyspace("robins").unwrap().contains(b"d").unwrap());
}
