//! Large values on a disk that forgets and fills up: a crash at any call leaves the first of the changes, each
//! whole, and nothing is leaked or given out twice.
#![allow(missing_docs, reason = "a test")]

mod common;

use common::{Dice, Model, assert_sound, bytes, contents, effort, get, key, open, seed, tiny};
use hedgerow::storage::SimDisk;
use hedgerow::storage::sim::{CallKind, Fault};
use hedgerow::store::OpenHow;
use hedgerow::{Database, Durability, ErrorKind, Options, WriteBatch};

fn any_value(dice: &mut Dice) -> Vec<u8> {
    let most = [50, 1500, 6000, 70_000][dice.below(4) as usize];
    let len = dice.below(most) as usize;
    bytes(dice, len)
}

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    tiny().memory_limit_bytes(limit).zone_bytes(32 << 10).log(true).log_segment_blocks(6)
}

/// A session: a store, all states that it went through, and how far it is known to be durable.
struct Session {
    disk: SimDisk,
    db: Database,
    history: Vec<Model>,
    durable: usize,
}

impl Session {
    fn begin(disk: SimDisk, options: &Options, before: Model) -> Session {
        let db = open(options, &disk, OpenHow::ExistingOrNew).unwrap();
        assert_eq!(contents(&db).unwrap(), before);
        disk.record_states(true);
        Session { disk, db, history: vec![before], durable: 0 }
    }

    /// One random change, or something that makes changes durable.
    fn step(&mut self, dice: &mut Dice) {
        let name = ["robins", "wrens"][dice.below(2) as usize];
        let mut model = self.history.last().unwrap().clone();
        let known = model.contains_key(name);
        match dice.below(30) {
            0 => self.db.sync().unwrap(),
            1 | 2 => {
                self.db.checkpoint().unwrap();
                if dice.below(2) == 0 {
                    // There is nothing to do: the file is made shorter, and large values are moved for that.
                    self.db.checkpoint().unwrap();
                }
            }
            3 if known && dice.below(3) == 0 => {
                assert!(self.db.drop_keyspace(name).unwrap());
                model.remove(name);
                self.history.push(model);
            }
            // Changes of both keyspaces, of which a crash leaves all or none.
            4..7 if model.len() == 2 => {
                let mut batch = WriteBatch::new();
                for _ in 0..1 + dice.below(5) {
                    let (name, key) =
                        (["robins", "wrens"][dice.below(2) as usize], key(dice.below(12)));
                    let (keyspace, records) =
                        (self.db.keyspace(name).unwrap(), model.get_mut(name).unwrap());
                    if dice.below(4) == 0 {
                        batch.remove(&keyspace, &key).unwrap();
                        records.remove(&key);
                    } else {
                        let value = any_value(dice);
                        batch.put(&keyspace, &key, &value).unwrap();
                        records.insert(key, value);
                    }
                }
                if dice.below(4) == 0 {
                    batch.set_durability(Durability::Sync);
                }
                self.db.write(&batch).unwrap();
                self.history.push(model);
            }
            7 if known => {
                let (from, to) = (key(dice.below(12)), key(dice.below(14)));
                let gone: Vec<_> = match from <= to {
                    true => {
                        model[name].range(from.clone()..to.clone()).map(|r| r.0.clone()).collect()
                    }
                    false => Vec::new(),
                };
                // Leaf by leaf: a first part of the range may be gone.
                for key in &gone {
                    model.get_mut(name).unwrap().remove(key);
                    self.history.push(model.clone());
                }
                let keyspace = self.db.keyspace(name).unwrap();
                assert_eq!(keyspace.remove_range(from..to).unwrap(), gone.len() as u64);
            }
            choice => {
                if !known {
                    self.db.create_keyspace(name).unwrap();
                    model.insert(name.into(), Default::default());
                    self.history.push(model.clone());
                    self.durable = self.history.len() - 1;
                }
                let durability = if choice < 10 { Durability::Sync } else { Durability::Buffered };
                let keyspace = self.db.keyspace(name).unwrap().with_durability(durability);
                let records = model.get_mut(name).unwrap();
                let key = key(dice.below(12));
                let is_change = if dice.below(4) == 0 {
                    let was_there = records.remove(&key).is_some();
                    assert_eq!(keyspace.remove(&key).unwrap(), was_there);
                    was_there
                } else {
                    let value = any_value(dice);
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

    fn explore(
        &mut self,
        options: &Options,
        durable_before: usize,
        dice: &mut Dice,
        tried: &mut u64,
    ) {
        for state in self.disk.take_states() {
            if dice.below(3) > 0 {
                continue;
            }
            let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
            *tried += 1;
            let found = recover(options, &survivor, dice);
            let at = self.history.iter().rposition(|model| *model == found);
            let allowed = durable_before..=self.history.len() - 1;
            assert!(
                at.is_some_and(|at| allowed.contains(&at)),
                "found the state after change {at:?}, not of {allowed:?}"
            );
        }
    }
}

/// Opens what a crash has left; crashes during recovery, and opens again: all must find the same. Then works on.
fn recover(options: &Options, disk: &SimDisk, dice: &mut Dice) -> Model {
    let first = SimDisk::with_state(disk.state(), dice.roll());
    first.record_states(true);
    let db = open(options, &first, OpenHow::ExistingOrNew).unwrap();
    let states = first.take_states();
    let found = contents(&db).unwrap();
    assert_sound(&db, "after recovery");
    if dice.below(4) == 0 {
        // Nothing that was freed or given out again is needed by what is there.
        let keyspace = db.keyspace("work").unwrap();
        for n in 0..6 {
            let len = 1000 + dice.below(60_000) as usize;
            keyspace.put(&key(n), &bytes(dice, len)).unwrap();
        }
        db.checkpoint().unwrap();
        assert!(db.drop_keyspace("work").unwrap());
        assert_eq!(contents(&db).unwrap(), found, "after more was put and dropped");
        assert_sound(&db, "after more was put and dropped");
    }
    drop(db);
    if let Some(state) = states.get(dice.below(states.len().max(1) as u64) as usize) {
        let again = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
        if dice.below(2) == 0 {
            // Into memory, and nothing is written.
            let db = open(options, &again, OpenHow::ReadOnly).unwrap();
            assert_eq!(contents(&db).unwrap(), found, "read only after a crash during recovery");
            assert_sound(&db, "read only after a crash during recovery");
        }
        let db = open(options, &again, OpenHow::ExistingOrNew).unwrap();
        assert_eq!(contents(&db).unwrap(), found, "a crash during recovery");
        assert_sound(&db, "after a second recovery");
    }
    found
}

#[test]
fn a_crash_at_any_call_leaves_whole_values_and_leaks_nothing() {
    let mut dice = Dice(seed(5));
    let options = logged();
    let mut tried = 0;
    for _ in 0..3 * effort() {
        let mut disk = SimDisk::new(dice.roll());
        let mut model = Model::new();
        for _ in 0..3 {
            let mut session = Session::begin(disk, &options, model);
            for _ in 0..12 {
                let durable_before = session.durable;
                for _ in 0..3 {
                    session.step(&mut dice);
                }
                session.explore(&options, durable_before, &mut dice, &mut tried);
            }
            model = session.history.last().unwrap().clone();
            session.db.sync().unwrap();
            let state = session.disk.state();
            if dice.below(2) == 0 {
                session.db.close().unwrap();
                disk = SimDisk::with_state(session.disk.state(), dice.roll());
            } else {
                // The process was killed, and the system lives on.
                drop(session.db);
                let all = vec![hedgerow::storage::sim::Fate::Keep; state.pending().len()];
                disk = SimDisk::with_state(state.crash(&all, None), dice.roll());
            }
        }
    }
    println!("{tried} crashes");
    assert!(tried > 100);
}

#[test]
fn without_a_log_a_crash_leaves_the_last_checkpoint() {
    let mut dice = Dice(seed(6));
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    let options = tiny().memory_limit_bytes(limit).zone_bytes(32 << 10);
    let disk = SimDisk::new(dice.roll());
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    db.checkpoint().unwrap();
    let mut before = contents(&db).unwrap();
    disk.record_states(true);
    let mut tried = 0;
    for _ in 0..12 {
        for _ in 0..4 {
            let key = key(dice.below(8));
            if dice.below(4) == 0 {
                keyspace.remove(&key).unwrap();
            } else {
                let len = dice.below(40_000) as usize;
                keyspace.put(&key, &bytes(&mut dice, len)).unwrap();
            }
        }
        db.checkpoint().unwrap();
        let after = contents(&db).unwrap();
        for state in disk.take_states() {
            let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
            let db = open(&options, &survivor, OpenHow::Existing).unwrap();
            let found = contents(&db).unwrap();
            assert!(found == before || found == after);
            assert_sound(&db, "after a crash without a log");
            tried += 1;
        }
        before = after;
    }
    assert!(tried > 50, "{tried}");
}

#[test]
fn a_full_or_failing_disk_leaves_what_was_there() {
    let mut dice = Dice(seed(7));
    let options = logged();
    let disk = SimDisk::new(dice.roll());
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    let value = bytes(&mut dice, 60_000);
    keyspace.put(b"wren", &value).unwrap();
    disk.set_capacity(Some(600 << 10));
    let mut put = 0;
    let full = loop {
        match keyspace.put(&key(put), &value) {
            Ok(_) => put += 1,
            Err(error) => break error,
        }
        assert!(put < 100, "the disk has no end");
    };
    assert_eq!(*full.kind(), ErrorKind::DiskFull, "{full}");
    assert_eq!(get(&keyspace, b"wren").unwrap(), value);
    for n in 0..put {
        assert!(keyspace.remove(&key(n)).unwrap());
    }
    assert_sound(&db, "on a full disk");
    drop(keyspace);
    drop(db);
    let db = open(&options, &disk, OpenHow::Existing).unwrap();
    assert_eq!(get(&db.keyspace("wrens").unwrap(), b"wren").unwrap(), value);
}

#[test]
fn after_a_failed_write_a_value_cannot_be_finished_and_nobody_panics() {
    let mut dice = Dice(seed(8));
    let disk = SimDisk::new(dice.roll());
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    let value = bytes(&mut dice, 60_000);
    let mut writer = keyspace.value_writer(b"wren", 200_000).unwrap();
    disk.inject(Fault::once(CallKind::Write, 0, Fault::EIO));
    let mut outcomes = Vec::new();
    for _ in 0..3 {
        outcomes.push(writer.write_bytes(&value).map_err(|error| error.kind().clone()));
    }
    let first = outcomes.iter().position(Result::is_err).unwrap();
    assert!(outcomes[first..].iter().all(Result::is_err), "{outcomes:?}");
    assert!(writer.finish().is_err());
    assert_eq!(keyspace.get(b"wren").unwrap(), None);
}
