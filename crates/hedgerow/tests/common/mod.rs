//! What the tests of crashes, faults and bad input share: a model of a store's contents, and scripts of
//! changes that are made to both.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use hedgerow::storage::{Disk, SimDisk};
use hedgerow::store::OpenHow;
use hedgerow::{Database, Options, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// The records of one keyspace.
pub type Records = BTreeMap<Vec<u8>, Vec<u8>>;
/// The contents of a store.
pub type Model = BTreeMap<String, Records>;

/// Where a store lies on a simulated disk.
pub const PATH: &str = "/data/birds.hrow";

pub fn path() -> &'static Path {
    Path::new(PATH)
}

/// The smallest store there is: pages of 512 bytes, as little memory as it works with, and no log.
pub fn tiny() -> Options {
    let limit = hedgerow::buffer::smallest_limit_without_log_bytes(512);
    Options::new()
        .page_bytes(512)
        .memory_limit_bytes(limit)
        .background_checkpoints(false)
        .log(false)
}

/// Opens the store of a simulated disk.
pub fn open(options: &Options, disk: &SimDisk, how: OpenHow) -> Result<Database> {
    options.on_disk(disk as &dyn Disk, path(), how)
}

/// All that is in a store, by iteration.
pub fn contents(db: &Database) -> Result<Model> {
    let mut model = Model::new();
    for name in db.keyspaces()? {
        let Some(keyspace) = db.open_keyspace(&name)? else { continue };
        let mut records = Records::new();
        for record in keyspace.iter() {
            let (key, value) = record?;
            records.insert(key.to_vec(), value.to_vec());
        }
        model.insert(name, records);
    }
    Ok(model)
}

/// Asserts that a verification finds nothing.
pub fn assert_sound(db: &Database, context: &str) {
    let report = db.verify(|_| {}).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(report.is_clean(), "{context}: {:#?}", report.findings);
}

/// The seed of a test's dice: its own, or what `HEDGEROW_SEED` says.
pub fn seed(own: u64) -> u64 {
    let seed =
        std::env::var("HEDGEROW_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(own);
    println!("seed {seed}");
    seed
}

/// How many times as much as usual the long tests are to do (`HEDGEROW_EFFORT`).
pub fn effort() -> u64 {
    std::env::var("HEDGEROW_EFFORT").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// SplitMix64: all that a test needs of dice.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }
}

/// A step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// So many puts of keys below the bound, with values of up to so many bytes.
    Puts { keyspace: &'static str, count: u64, below: u64, value_bytes: u64 },
    /// Removes every n-th key below the bound.
    Removes { keyspace: &'static str, below: u64, every: u64 },
    /// Drops a keyspace.
    Drop(&'static str),
    /// Takes a checkpoint.
    Checkpoint,
    /// Closes and opens again.
    Reopen,
}

pub fn key(n: u64) -> Vec<u8> {
    format!("bird/{n:06}").into_bytes()
}

/// Carries out a step that changes contents, on the store and on the model. A change that fails ends
/// the step: it is not in the model.
pub fn change(db: &Database, model: &mut Model, step: &Step, dice: &mut Dice) -> Result<()> {
    match *step {
        Step::Puts { keyspace, count, below, value_bytes } => {
            let handle = db.keyspace(keyspace)?;
            let records = model.entry(keyspace.into()).or_default();
            for _ in 0..count {
                let key = key(dice.below(below));
                let mut value = key.clone();
                value.extend_from_slice(&dice.roll().to_le_bytes());
                value.resize(dice.below(value_bytes + 1) as usize, b'.');
                let was_there = handle.put(&key, &value)?;
                assert_eq!(was_there, records.insert(key, value).is_some());
            }
        }
        Step::Removes { keyspace, below, every } => {
            let handle = db.keyspace(keyspace)?;
            let records = model.entry(keyspace.into()).or_default();
            for n in (0..below).step_by(every as usize) {
                let was_there = handle.remove(&key(n))?;
                assert_eq!(was_there, records.remove(&key(n)).is_some());
            }
        }
        Step::Drop(keyspace) => {
            let was_there = db.drop_keyspace(keyspace)?;
            assert_eq!(was_there, model.remove(keyspace).is_some());
        }
        Step::Checkpoint | Step::Reopen => panic!("{step:?} changes no contents"),
    }
    Ok(())
}
