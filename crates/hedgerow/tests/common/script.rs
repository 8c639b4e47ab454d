//! A store with large values, and what is done to it, as plain data: for tests that do the same again and again while the
//! disk misbehaves (`lies_logged.rs`, `lying_syncs.rs`).

use super::{Dice, Model, assert_damage, bytes, contents, key, open, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, Error, ErrorKind, Options, Result};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::SimState;

pub const HOWS: [OpenHow; 2] = [OpenHow::ReadOnly, OpenHow::Existing];
/// The changes at a script's end, each durable before the next.
pub const VOUCHERS: usize = 4;
/// No script makes so many calls of a kind.
pub const MOST_CALLS: u64 = 20_000;

pub fn options(log: bool) -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    tiny().memory_limit_bytes(limit).zone_bytes(32 << 10).log(log).log_segment_blocks(6)
}

pub enum Action {
    /// A put, or a removal where there is no value.
    Change {
        name: &'static str,
        key: Vec<u8>,
        value: Option<Vec<u8>>,
        sync: bool,
    },
    Checkpoint,
}

impl Action {
    pub fn carry_out(&self, db: &Database) -> Result<()> {
        let Action::Change { name, key, value, sync } = self else { return db.checkpoint() };
        let durability = if *sync { Durability::Sync } else { Durability::Buffered };
        let keyspace = db.keyspace(name)?.with_durability(durability);
        match value {
            Some(value) => keyspace.put(key, value).map(drop),
            None => keyspace.remove(key).map(drop),
        }
    }

    pub fn apply(&self, model: &mut Model) {
        let Action::Change { name, key, value, .. } = self else { return };
        let records = model.get_mut(*name).unwrap();
        match value {
            Some(value) => records.insert(key.clone(), value.clone()),
            None => records.remove(key),
        };
    }
}

/// A closed store, and what is done to it.
pub struct Script {
    pub base: SimState,
    pub actions: Vec<Action>,
    /// What the store holds before each action, and after the last.
    pub models: Vec<Model>,
}

impl Script {
    pub fn new(dice: &mut Dice) -> Script {
        let disk = SimDisk::new(dice.roll());
        let db = open(&options(true), &disk, OpenHow::New).unwrap();
        for (name, count) in [("robins", 60), ("wrens", 900)] {
            let keyspace = db.keyspace(name).unwrap();
            for n in 0..count {
                let len = 20 + dice.below(40) as usize;
                keyspace.put(&key(n), &bytes(dice, len)).unwrap();
            }
            keyspace.put(b"song", &bytes(dice, 40_000)).unwrap();
        }
        let mut models = vec![contents(&db).unwrap()];
        db.close().unwrap();
        let mut actions: Vec<Action> = (0..70).map(|step| Script::action(dice, step)).collect();
        actions.extend((0..VOUCHERS as u64).map(|n| Action::Change {
            name: "robins",
            key: key(1_000 + n),
            value: Some(b"voucher".to_vec()),
            sync: true,
        }));
        for action in &actions {
            let mut model = models.last().unwrap().clone();
            action.apply(&mut model);
            models.push(model);
        }
        Script { base: disk.state(), actions, models }
    }

    /// So many changes are made durable one by one that places of the log are used again after a checkpoint.
    fn action(dice: &mut Dice, step: u64) -> Action {
        if step % 24 == 23 {
            return Action::Checkpoint;
        }
        let (name, count) = [("robins", 70), ("wrens", 950)][dice.below(2) as usize];
        let is_song = step % 17 == 5;
        let value = match dice.below(5) {
            0 if !is_song => None,
            _ if is_song => Some(5_000 + dice.below(40_000) as usize),
            _ => Some(dice.below(60) as usize),
        };
        Action::Change {
            name,
            key: if is_song { b"song".to_vec() } else { key(dice.below(count)) },
            value: value.map(|len| bytes(dice, len)),
            sync: dice.below(3) > 0,
        }
    }

    pub fn now(&self) -> &Model {
        self.models.last().unwrap()
    }
}

/// Asserts that a change or a verification was refused because of damage.
pub fn assert_refused(error: &Error, context: &str) {
    if error.kind() != ErrorKind::Poisoned {
        assert_damage(error, context);
    }
}

/// Asserts that a store that was not opened says why: that something is damaged, missing, or not what belongs to it.
pub fn assert_not_opened(error: &Error, context: &str) {
    if !matches!(error.kind(), ErrorKind::LogMissing | ErrorKind::ForeignLog) {
        assert_damage(error, context);
    }
}
