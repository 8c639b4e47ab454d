//! Typed operations through the public API against sorted maps: two keyspaces, pages of 512 bytes,
//! the smallest pool, on a disk in memory; with checkpoints, closing and opening again, and going
//! back to the last checkpoint as after a crash. The input says how leaves get their layouts, anew
//! whenever the store is opened.

#![no_main]

use arbitrary::Arbitrary;
use hedgerow::storage::RamDisk;
use hedgerow::store::OpenHow;
use hedgerow::{
    Database, Keyspace, LeafLayout, LeafPolicy, Options, Swap, smallest_memory_limit_bytes,
};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

const PAGE_BYTES: usize = 512;

#[derive(Arbitrary, Debug, Clone)]
enum Key {
    Number(u16),
    Few(u8),
    Url { site: u8, page: u8 },
    Raw(Vec<u8>),
}

impl Key {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Key::Number(number) => number.to_be_bytes().to_vec(),
            Key::Few(number) => vec![b'k', number % 16],
            Key::Url { site, page } => {
                format!("https://{}.example/page/{page}", site % 8).into_bytes()
            }
            Key::Raw(bytes) => bytes[..bytes.len().min(40)].to_vec(),
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Put(Key, u8),
    Fill { from: u16, count: u8, step: u8 },
    Drain { from: u16, count: u8, step: u8 },
    InsertIfAbsent(Key, u8),
    Update(Key, u8),
    Swap { key: Key, expected: Option<u8>, right: bool, new: Option<u8> },
    Remove(Key),
    Get(Key),
    GetMany(Vec<Key>),
    Range { from: Key, to: Key, forward: bool, most: u8 },
    Cursor { at: Key, moves: u16 },
    Other,
    Checkpoint,
    Reopen(Leaves),
    Crash,
    DropOther,
}

/// How leaves get their layouts.
#[derive(Arbitrary, Debug, Clone, Copy)]
enum Leaves {
    Adaptive,
    Comparison,
    Fingerprint,
    SemiDense,
    FullyDense,
}

impl Leaves {
    fn policy(self) -> LeafPolicy {
        match self {
            Leaves::Adaptive => LeafPolicy::Adaptive,
            Leaves::Comparison => LeafPolicy::Fixed(LeafLayout::Comparison),
            Leaves::Fingerprint => LeafPolicy::Fixed(LeafLayout::Fingerprint),
            Leaves::SemiDense => LeafPolicy::Fixed(LeafLayout::SemiDense),
            Leaves::FullyDense => LeafPolicy::Fixed(LeafLayout::FullyDense),
        }
    }
}

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn value(key: &[u8], length: u8) -> Vec<u8> {
    (0..length % 41).map(|at| at ^ length ^ key.len() as u8).collect()
}

struct State {
    disk: RamDisk,
    db: Option<Database>,
    keyspaces: Option<[Keyspace; 2]>,
    models: [Model; 2],
    durable: [Model; 2],
    current: usize,
    leaves: Leaves,
}

const NAMES: [&str; 2] = ["one", "two"];

fn options(leaves: Leaves) -> Options {
    Options::new()
        .leaves(leaves.policy())
        .page_bytes(PAGE_BYTES)
        .memory_limit_bytes(smallest_memory_limit_bytes(PAGE_BYTES))
        .background_checkpoints(false)
        .log(false)
}

fn check_range(
    keyspace: &Keyspace,
    model: &Model,
    from: &Key,
    to: &Key,
    forward: bool,
    most: usize,
) {
    let (from, to) = (from.bytes(), to.bytes());
    let bounds = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
    let range = keyspace.range::<Vec<u8>>(bounds.clone());
    let got: Result<Vec<_>, _> = match forward {
        true => range.take(most).collect(),
        false => range.rev().take(most).collect(),
    };
    let expected: Vec<_> = match (from < to, forward) {
        (false, _) => Vec::new(),
        (true, true) => model.range(bounds).take(most).collect(),
        (true, false) => model.range(bounds).rev().take(most).collect(),
    };
    let got = got.unwrap();
    assert_eq!(got.len(), expected.len());
    for ((key, value), (expected_key, expected_value)) in got.iter().zip(expected) {
        assert_eq!((&**key, &**value), (&expected_key[..], &expected_value[..]));
    }
}

fn check_cursor(keyspace: &Keyspace, model: &Model, at: &Key, moves: u16) {
    let at = at.bytes();
    let mut cursor = keyspace.cursor();
    cursor.seek(&at);
    let keys: Vec<&Vec<u8>> = model.keys().collect();
    let mut gap = keys.partition_point(|key| **key < at);
    for bit in 0..16 {
        if moves >> bit & 1 == 0 {
            let record = cursor.next_record().unwrap();
            assert_eq!(record.map(|(key, _)| key), keys.get(gap).map(|k| &k[..]));
            gap = (gap + 1).min(keys.len());
        } else {
            let record = cursor.previous_record().unwrap();
            let expected = gap.checked_sub(1).map(|before| &keys[before][..]);
            assert_eq!(record.map(|(key, _)| key), expected);
            gap = gap.saturating_sub(1);
        }
    }
}

impl State {
    fn new(leaves: Leaves) -> State {
        let models = [Model::new(), Model::new()];
        let mut state = State {
            disk: RamDisk::new(),
            db: None,
            keyspaces: None,
            durable: models.clone(),
            models,
            current: 0,
            leaves,
        };
        state.open(OpenHow::New);
        state.checkpoint();
        state
    }

    fn open(&mut self, how: OpenHow) {
        let db = options(self.leaves).on_disk(&self.disk, Path::new("fuzz"), how).unwrap();
        self.keyspaces = Some(NAMES.map(|name| db.keyspace(name).unwrap()));
        self.db = Some(db);
    }

    fn db(&self) -> &Database {
        self.db.as_ref().unwrap()
    }

    fn checkpoint(&mut self) {
        self.db().checkpoint().unwrap();
        self.durable = self.models.clone();
    }

    fn close(&mut self) {
        self.keyspaces = None;
        if let Some(db) = self.db.take() {
            db.close().unwrap();
        }
        self.durable = self.models.clone();
    }

    fn apply(&mut self, operation: &Operation) {
        let at = self.current;
        let keyspace = self.keyspaces.as_ref().unwrap()[at].clone();
        let model = &mut self.models[at];
        match operation {
            Operation::Put(key, length) => {
                let key = key.bytes();
                let new = value(&key, *length);
                assert_eq!(keyspace.put(&key, &new).unwrap(), model.insert(key, new).is_some());
            }
            Operation::Fill { from, count, step } => {
                for n in 0..u16::from(*count) {
                    let key = from.wrapping_add(n * u16::from(*step)).to_be_bytes().to_vec();
                    let new = value(&key, *step);
                    assert_eq!(keyspace.put(&key, &new).unwrap(), model.insert(key, new).is_some());
                }
            }
            Operation::Drain { from, count, step } => {
                for n in 0..u16::from(*count) {
                    let key = from.wrapping_add(n * u16::from(*step)).to_be_bytes();
                    assert_eq!(
                        keyspace.remove(&key).unwrap(),
                        model.remove(key.as_slice()).is_some()
                    );
                }
            }
            Operation::InsertIfAbsent(key, length) => {
                let key = key.bytes();
                let new = value(&key, *length);
                let inserted = keyspace.insert_if_absent(&key, &new).unwrap();
                assert_eq!(inserted, !model.contains_key(&key));
                model.entry(key).or_insert(new);
            }
            Operation::Update(key, length) => {
                let key = key.bytes();
                let new = value(&key, *length);
                let updated = keyspace.update(&key, &new).unwrap();
                assert_eq!(updated, model.contains_key(&key));
                model.entry(key).and_modify(|old| *old = new);
            }
            Operation::Swap { key, expected, right, new } => {
                let key = key.bytes();
                let expected = match right {
                    true => model.get(&key).cloned(),
                    false => expected.map(|length| value(&key, length)),
                };
                let new = new.map(|length| value(&key, length));
                let swap = keyspace.compare_and_swap(&key, expected.as_deref(), new.as_deref());
                match swap.unwrap() {
                    Swap::Swapped => {
                        assert_eq!(model.get(&key), expected.as_ref());
                        match new {
                            Some(new) => model.insert(key, new),
                            None => model.remove(&key),
                        };
                    }
                    Swap::Differs(found) => {
                        assert_ne!(model.get(&key), expected.as_ref());
                        assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice));
                    }
                }
            }
            Operation::Remove(key) => {
                let key = key.bytes();
                assert_eq!(keyspace.remove(&key).unwrap(), model.remove(&key).is_some());
            }
            Operation::Get(key) => {
                let key = key.bytes();
                let found = keyspace.get(&key).unwrap();
                assert_eq!(found.as_deref(), model.get(&key).map(Vec::as_slice));
            }
            Operation::GetMany(keys) => {
                let keys: Vec<_> = keys.iter().map(Key::bytes).collect();
                for (key, found) in keys.iter().zip(keyspace.get_many(&keys).unwrap()) {
                    assert_eq!(found.as_deref(), model.get(key).map(Vec::as_slice));
                }
            }
            Operation::Range { from, to, forward, most } => {
                check_range(&keyspace, model, from, to, *forward, usize::from(*most));
            }
            Operation::Cursor { at, moves } => check_cursor(&keyspace, model, at, *moves),
            Operation::Other => self.current = 1 - at,
            Operation::Checkpoint => self.checkpoint(),
            Operation::Reopen(leaves) => {
                self.close();
                self.leaves = *leaves;
                self.open(OpenHow::Existing);
            }
            Operation::Crash => {
                self.keyspaces = None;
                drop(keyspace);
                self.db = None;
                self.models = self.durable.clone();
                self.open(OpenHow::Existing);
            }
            Operation::DropOther => self.drop_other(),
        }
    }

    fn drop_other(&mut self) {
        let other = 1 - self.current;
        assert!(self.db().drop_keyspace(NAMES[other]).unwrap());
        self.models[other].clear();
        let made = self.db().create_keyspace(NAMES[other]).unwrap();
        if let Some(keyspaces) = &mut self.keyspaces {
            keyspaces[other] = made;
        }
    }

    fn check(&self) {
        let report = self.db().verify(|_| {}).unwrap();
        assert!(report.is_clean(), "{:#?}", report.findings);
        for (keyspace, model) in self.keyspaces.as_ref().unwrap().iter().zip(&self.models) {
            let mut expected = model.iter();
            for record in keyspace.iter() {
                let (key, value) = record.unwrap();
                let (expected_key, expected_value) = expected.next().expect("no more records");
                assert_eq!((&*key, &*value), (&expected_key[..], &expected_value[..]));
            }
            assert_eq!(expected.next(), None);
        }
    }
}

fuzz_target!(|input: (Leaves, Vec<Operation>)| {
    let (leaves, operations) = input;
    let mut state = State::new(leaves);
    for operation in operations.iter().take(400) {
        state.apply(operation);
    }
    state.check();
    state.close();
    state.open(OpenHow::Existing);
    state.check();
    state.close();
});
