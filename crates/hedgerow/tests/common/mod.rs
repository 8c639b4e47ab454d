//! What the tests of crashes, faults and bad input share: a model of a store's contents, scripts of
//! changes that are made to both, and what a damaged file may answer.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]

pub mod aged;
pub mod lengths;
pub mod script;
pub mod session;

use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::OpenHow;
use hedgerow::{CompactBudget, Database, Error, ErrorKind, Keyspace, Options, Result};
use hedgerow_testing::SimDisk;
pub use hedgerow_testing::environment::{effort, is_thorough, part, seed};
use hedgerow_testing::{history, recorded};
use std::ops::ControlFlow;
use std::path::Path;

/// The records of one keyspace.
pub type Records = history::Records;
/// The contents of a store.
pub type Model = history::Contents;

/// Where a store lies on a simulated disk.
pub const PATH: &str = "/data/birds.hrow";

pub fn path() -> &'static Path {
    Path::new(PATH)
}

/// The smallest store there is: pages of 512 bytes, as little memory as it works with, and no log.
pub fn tiny() -> Options {
    let limit = hedgerow::internals::buffer::smallest_limit_without_log_bytes(512);
    Options::new()
        .page_bytes(512)
        .memory_limit_bytes(limit)
        .background_checkpoints(false)
        .log(false)
}

/// The smallest store with a log, which takes checkpoints by itself, and often: nearly every operation meets an eviction.
pub fn crowded() -> Options {
    Options::new()
        .page_bytes(512)
        .memory_limit_bytes(hedgerow::smallest_memory_limit_bytes(512))
        .checkpoint_bytes(32 << 10)
}

/// The same with what such records need. Chunks are short, so that values of several are staged.
pub fn crowded_for(records: recorded::Records) -> Options {
    if !records.all_forms {
        return crowded();
    }
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    crowded().memory_limit_bytes(limit).zone_bytes(8 << 10)
}

/// Makes a store with small pages in a real file, or in a temporary one: through the page cache where the system does not tell
/// that direct I/O takes them.
pub fn create_small(options: Options, path: Option<&Path>) -> Database {
    let create = |options: &Options| match path {
        Some(path) => options.create(path),
        None => options.temporary(),
    };
    match create(&options) {
        Err(error) if error.kind() == ErrorKind::InvalidOption => {
            create(&options.direct_io(false)).unwrap()
        }
        created => created.unwrap(),
    }
}

/// Opens the store of a simulated disk.
pub fn open(options: &Options, disk: &SimDisk, how: OpenHow) -> Result<Database> {
    options.on_disk(disk as &dyn Disk, path(), how)
}

/// All that is in a store, by iteration.
pub fn contents(db: &Database) -> Result<Model> {
    history::contents(db)
}

/// A disk with these bytes for a store.
pub fn disk_with(bytes: &[u8]) -> SimDisk {
    let disk = SimDisk::new(1);
    disk.change_state(|state| state.set_contents(path(), bytes)).unwrap();
    disk
}

/// Asserts that an error says that the file is damaged, and where.
pub fn assert_damage(error: &Error, context: &str) {
    match error.kind() {
        ErrorKind::Corrupted { page, offset_bytes } => {
            assert!(page.is_some() || offset_bytes.is_some(), "{context}: where? {error:?}");
        }
        ErrorKind::NotAStore | ErrorKind::UpgradeRequired { .. } => {}
        _ => panic!("{context}: {error:?}"),
    }
}

/// Opens a damaged file in every way and reads all of it: each answer is the right one, or damage by name, and a
/// verification agrees. Tells whether the damage was noticed.
pub fn read_damaged(options: &Options, bytes: &[u8], model: &Model, context: &str) -> bool {
    let mut noticed = false;
    for how in [OpenHow::ReadOnly, OpenHow::Existing] {
        let context = format!("{context}, {how:?}");
        let db = match open(options, &disk_with(bytes), how) {
            Ok(db) => db,
            Err(error) => {
                assert_damage(&error, &context);
                noticed = true;
                continue;
            }
        };
        let refused = read_all(&db, model, &context);
        match db.verify(|_| ControlFlow::Continue(())) {
            Ok(report) => {
                noticed |= !report.is_clean();
                assert!(
                    refused == 0 || !report.is_clean(),
                    "{context}: what cannot be read verifies"
                );
            }
            Err(error) => {
                noticed = true;
                assert_damage(&error, &context);
            }
        }
    }
    noticed
}

/// Compares a store that may be damaged with what it should have, by iteration and key by key. Tells how many answers
/// were errors; all others are right, and so is what an iteration had found before its error.
pub fn read_all(db: &Database, model: &Model, context: &str) -> u64 {
    let mut refused = 0;
    let mut refuse = |error: Error| {
        assert_damage(&error, context);
        refused += 1;
    };
    match db.keyspaces() {
        Ok(mut names) => {
            names.sort();
            assert!(names.iter().eq(model.keys()), "{context}: the keyspaces are {names:?}");
        }
        Err(error) => refuse(error),
    }
    for (name, records) in model {
        let keyspace = match db.open_keyspace(name) {
            Ok(found) => found.unwrap_or_else(|| panic!("{context}: {name} is missing")),
            Err(error) => {
                refuse(error);
                continue;
            }
        };
        let mut expected = records.iter();
        let mut is_whole = true;
        for record in keyspace.iter() {
            match record {
                Ok((key, value)) => {
                    let is_right = expected.next().is_some_and(|record| {
                        record.0.as_slice() == &key[..] && record.1.as_slice() == &value[..]
                    });
                    assert!(is_right, "{context}: a wrong record of {name}");
                }
                Err(error) => {
                    refuse(error);
                    is_whole = false;
                }
            }
        }
        assert!(!is_whole || expected.next().is_none(), "{context}: {name} ends too early");
        // A look-up takes another way to a leaf than a scan.
        for (key, value) in records.iter().step_by(3) {
            match keyspace.get(key) {
                Ok(found) => assert!(
                    found.as_deref() == Some(value.as_slice()),
                    "{context}: a wrong value in {name}"
                ),
                Err(error) => refuse(error),
            }
        }
    }
    refused
}

/// Asserts that a verification finds nothing.
pub fn assert_sound(db: &Database, context: &str) {
    let report = db
        .verify(|_| ControlFlow::Continue(()))
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(report.is_clean(), "{context}: {:#?}", report.findings);
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
    /// Merges leaves of a keyspace, which has the same records afterwards.
    Compact(&'static str),
    /// Takes a checkpoint.
    Checkpoint,
    /// Closes and opens again.
    Reopen,
}

/// Bytes that tell from which value they are, and from where in it.
pub fn bytes(dice: &mut Dice, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len + 8);
    while value.len() < len {
        value.extend_from_slice(&dice.roll().to_le_bytes());
    }
    value.truncate(len);
    value
}

/// What a key has.
pub fn get(keyspace: &Keyspace, key: &[u8]) -> Option<Vec<u8>> {
    keyspace.get(key).unwrap().map(|value| value.into_vec())
}

/// Keys of numbers from here on are long where a page has 512 bytes, all with one head, of three lengths.
pub const LONG: u64 = 1 << 40;

pub fn key(n: u64) -> Vec<u8> {
    let Some(n) = n.checked_sub(LONG) else { return format!("bird/{n:06}").into_bytes() };
    let mut key = [&b"bird/".repeat(20)[..], &n.to_be_bytes()].concat();
    key.resize([108, 700, 9_000][n as usize % 3], b'.');
    key
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
        Step::Compact(keyspace) => {
            let budget = CompactBudget::unlimited();
            db.keyspace(keyspace)?.compact(&budget, |_| ControlFlow::Continue(()))?;
            model.entry(keyspace.into()).or_default();
        }
        Step::Checkpoint | Step::Reopen => panic!("{step:?} changes no contents"),
    }
    Ok(())
}
