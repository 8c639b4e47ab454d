//! Values of every size of which a byte is wrong in the file: that value is named, by its key if the store is repaired;
//! everything else is read as it was put. What lies in memory is read from there.

use crate::common::lengths::{Lengths, content};
use crate::common::{
    Dice, Model, Records, disk_with, effort, get, key, open, path, read_all, seed,
};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use std::ops::ControlFlow;
use std::path::Path;

const NAME: &str = "songs";
/// Enough of a value to find it in the file.
const WINDOW_BYTES: usize = 24;

/// So much memory that values of three chunks are staged, and short ones are kept.
fn options() -> Options {
    Options::new().memory_limit_bytes(100 << 20).background_checkpoints(false)
}

struct Store {
    disk: SimDisk,
    db: Database,
    records: Records,
    /// Keys of the values that no leaf holds.
    long: Vec<Vec<u8>>,
}

impl Store {
    fn new(dice: &mut Dice) -> Store {
        let disk = SimDisk::new(dice.roll());
        let db = open(&options(), &disk, OpenHow::New).unwrap();
        let keyspace = db.keyspace(NAME).unwrap();
        let lengths = Lengths::new(&keyspace, 4096, 100 << 20, 200_000);
        let drawn: Vec<usize> = (0..10).map(|_| lengths.draw(dice)).collect();
        let (mut records, mut long) = (Records::new(), Vec::new());
        for (n, len) in (0..).zip(lengths.at_limits().chain(drawn)) {
            let (key, value) = (key(n), content(&key(n), 1, len));
            keyspace.put(&key, &value).unwrap();
            if key.len() + len > keyspace.max_record_bytes() {
                long.push(key.clone());
            }
            records.insert(key, value);
        }
        db.checkpoint().unwrap();
        Store { disk, db, records, long }
    }
}

/// A place in the file of a byte of a value.
fn place(file: &[u8], value: &[u8], dice: &mut Dice) -> usize {
    let from = dice.below((value.len() - WINDOW_BYTES) as u64) as usize;
    // Not across two chunks.
    let chunk = (32 << 10) - 8;
    let from = from - (from % chunk).saturating_sub(chunk - WINDOW_BYTES);
    let window = &value[from..from + WINDOW_BYTES];
    let mut found = file.windows(WINDOW_BYTES).enumerate().filter(|at| at.1 == window);
    let (at, _) = found.next().expect("the value is in the file");
    assert!(found.next().is_none(), "it is there twice");
    at
}

#[test]
fn a_wrong_byte_of_a_value_of_any_form_is_named_with_its_key() {
    let mut dice = Dice(seed(1));
    let store = Store::new(&mut dice);
    let Store { disk, db, records, long } = store;
    db.close().unwrap();
    let sound = disk.state().contents(path()).unwrap();
    let mut place = |key: &Vec<u8>| place(&sound, &records[key], &mut dice);
    let places: Vec<usize> = long.iter().map(&mut place).collect();
    let step = (8 / effort() as usize).max(1);
    for (key, at) in long.iter().zip(places).step_by(step) {
        let context = format!("{} of {}", key.escape_ascii(), records[key].len());
        let mut damaged = sound.clone();
        damaged[at] ^= 0x10;
        let disk = disk_with(&damaged);
        let db = open(&options(), &disk, OpenHow::Existing).unwrap();
        let keyspace = db.keyspace(NAME).unwrap();
        // Twice: what was wrong is not kept.
        for _ in 0..2 {
            let error = keyspace.get(key).unwrap_err();
            let is_named =
                matches!(error.kind(), ErrorKind::Corrupted { offset_bytes: Some(_), .. });
            assert!(is_named, "{context}: {error}");
        }
        let model = Model::from([(NAME.to_owned(), records.clone())]);
        assert!(read_all(&db, &model, &context) > 0);
        let findings = db.verify(|_| ControlFlow::Continue(())).unwrap().findings;
        assert_eq!(findings.len(), 1, "{context}: {findings:?}");
        assert_eq!(findings[0].keyspace.as_deref(), Some(NAME), "{context}");
        drop(keyspace);
        drop(db);
        let to = Path::new("/data/salvaged.hrow");
        let report = options().repair_on_disk(&disk, path(), to, |_| ControlFlow::Continue(()));
        let report = report.unwrap();
        assert!(report.damaged.is_empty() && report.defects.len() == 1, "{context}: {report:?}");
        let named = String::from_utf8(key.clone()).unwrap();
        let what = &report.defects[0];
        assert!(what.contains(&named) && what.contains(NAME), "{context}: {what}");
        let salvaged = options().on_disk(&disk, to, OpenHow::Existing).unwrap();
        let keyspace = salvaged.keyspace(NAME).unwrap();
        for (other, value) in &records {
            let expected = (other != key).then_some(value);
            assert!(get(&keyspace, other).as_ref() == expected, "{context}: {other:?}");
        }
    }
}

/// The file is damaged behind the store's back.
#[test]
fn what_is_kept_in_memory_is_right_whatever_the_file_has() {
    let mut dice = Dice(seed(2));
    let store = Store::new(&mut dice);
    let keyspace = store.db.keyspace(NAME).unwrap();
    let sound = store.disk.state().contents(path()).unwrap();
    let mut damaged = sound.clone();
    for key in &store.long {
        // The longest are kept when they are read.
        assert!(get(&keyspace, key).unwrap() == store.records[key]);
        damaged[place(&sound, &store.records[key], &mut dice)] ^= 0x10;
    }
    store.disk.change_state(|state| state.set_contents(path(), &damaged)).unwrap();
    for (key, value) in &store.records {
        assert!(get(&keyspace, key).unwrap() == *value, "{key:?} of {}", value.len());
    }
    for record in keyspace.iter() {
        let (key, value) = record.unwrap();
        assert!(store.records[&key[..]][..] == value[..], "{key:?} of {}", value.len());
    }
    // A check looks at the file.
    let findings = store.db.verify(|_| ControlFlow::Continue(())).unwrap().findings;
    assert_eq!(findings.len(), store.long.len(), "{findings:?}");
    // So does the next session.
    drop(keyspace);
    drop(store.db);
    let db = open(&options(), &store.disk, OpenHow::Existing).unwrap();
    let keyspace = db.keyspace(NAME).unwrap();
    for key in &store.long {
        assert!(keyspace.get(key).is_err(), "{key:?}");
    }
}
