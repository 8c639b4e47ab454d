//! A store on a disk in memory, and sorted maps with what must be in it.
//!
//! Two keyspaces, one of which is the current one. What [`Trust`] says of the store decides what an answer is held
//! against: of a sound one every answer is right; of one whose files were damaged every answer that is no error. An
//! error of a change means that nothing has changed, unless the engine documents otherwise: then the keys that it was
//! about are *doubtful*, and no more is asked of them than that they are read without a panic.
//!
//! What is there after the store was killed is what [`History`] allows: exactly what the last checkpoint has, or all
//! changes up to a sync; only where damage or an error has been in the way of that, some first part of them.
//!
//! One thread; everything panics on the first wrong answer.

use crate::damage;
use crate::history::{History, Model, Observed};
use crate::operation::{Geometry, Key, Operation, Step, long_value, value};
use crate::path;
use crate::trust::Trust;
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{CompactBudget, CompareAndSwap, ContentionSplit, Database, Keyspace, WriteBatch};
use hedgerow_testing::RamDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::ops::ControlFlow;

/// The keyspaces.
pub const NAMES: [&str; 2] = ["one", "two"];
/// Most records that a scan of a forged store is followed for.
const MAX_SCANNED: usize = 20_000;

/// What of a keyspace nobody knows any more.
#[derive(Default)]
struct Doubt {
    all: bool,
    keys: BTreeSet<Vec<u8>>,
}

/// What an opening may find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// What the models have.
    All,
    /// What the last checkpoint has.
    Durable,
    /// That, and some first part of the changes since.
    Part,
}

/// See the head of the file.
pub struct State {
    /// Where the files are.
    pub disk: RamDisk,
    /// How the store is opened.
    pub geometry: Geometry,
    /// Whether checksums notice damage.
    pub has_checksums: bool,
    trust: Trust,
    db: Option<Database>,
    keyspaces: [Option<Keyspace>; 2],
    models: [Model; 2],
    doubts: [Doubt; 2],
    history: History,
    left: Left,
    current: usize,
    /// A checkpoint was taken by the way, or something was in the way of one: nobody knows which is the last.
    checkpoint_is_unsure: bool,
    log_is_damaged: bool,
}

impl State {
    /// A new store with two empty keyspaces. `keeps_changes`: it will be damaged, or killed while it has a log.
    /// `has_checksums`: they notice damage, from here on.
    pub fn new(geometry: Geometry, keeps_changes: bool, has_checksums: bool) -> State {
        crate::set_checksums(has_checksums);
        let mut state = State {
            disk: RamDisk::new(),
            geometry,
            has_checksums,
            trust: Trust::Sound,
            db: None,
            keyspaces: [None, None],
            models: [Model::new(), Model::new()],
            doubts: [Doubt::default(), Doubt::default()],
            history: History::new(keeps_changes),
            left: Left::All,
            current: 0,
            checkpoint_is_unsure: false,
            log_is_damaged: false,
        };
        state.open(OpenHow::New);
        state.checkpoint();
        state
    }

    /// What may be expected from here on. A store that was trusted less is not trusted more again.
    pub fn distrust(&mut self, trust: Trust) {
        if self.trust != Trust::Forged {
            self.trust = trust;
        }
    }

    /// What may be expected.
    pub fn trust(&self) -> Trust {
        self.trust
    }

    /// Bytes of the log were changed.
    pub fn log_was_damaged(&mut self) {
        self.log_is_damaged = true;
    }

    /// The store, if it is open.
    pub fn db(&self) -> Option<&Database> {
        self.db.as_ref()
    }

    /// Opens the store. What is in it then is held against what may be.
    pub fn open(&mut self, how: OpenHow) {
        let options = self.geometry.options();
        let Some(db) = self.trust.answer(options.on_disk(&self.disk, path(), how)) else { return };
        self.keyspaces = NAMES.map(|name| self.trust.answer(db.keyspace(name)));
        // One of them splits a leaf between any two keys that are updated one after the other.
        let often = ContentionSplit::new(1, 1, 0.0, 2).ok();
        let [first, ..] = &mut self.keyspaces;
        *first = first.take().map(|keyspace| keyspace.with_contention_split(often));
        self.db = Some(db);
        match self.left {
            Left::All => {}
            Left::Durable => self.models = self.history.durable.clone(),
            Left::Part => self.settle(),
        }
        self.left = Left::All;
        // A log is replayed and begun anew; without one there is the checkpoint.
        self.log_is_damaged = false;
        self.history.checkpoint(&self.models);
    }

    /// Finds out which of several possible states the store is in.
    fn settle(&mut self) {
        let mut observed = Observed::default();
        for (at, found) in observed.iter_mut().enumerate() {
            for key in self.history.keys(at) {
                let doubtful = self.doubts[at].all || self.doubts[at].keys.contains(&key);
                let answer = match &self.keyspaces[at] {
                    Some(keyspace) if !doubtful => self.trust.answer(keyspace.get(&key)),
                    _ => None,
                };
                match answer {
                    Some(value) => {
                        found.insert(key, value.map(|value| value.to_vec()));
                    }
                    None => {
                        self.doubts[at].keys.insert(key);
                    }
                }
            }
        }
        let is_possible = !self.trust.is_exact() || self.history.has_part(&observed);
        assert!(is_possible, "what is left is no first part of the changes");
        let records = |found: BTreeMap<Vec<u8>, Option<Vec<u8>>>| -> Model {
            found.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
        };
        self.models = observed.map(records);
    }

    /// Takes a checkpoint.
    pub fn checkpoint(&mut self) {
        let Some(db) = &self.db else { return };
        match self.trust.answer(db.checkpoint()) {
            Some(()) => {
                self.history.checkpoint(&self.models);
                self.checkpoint_is_unsure = false;
            }
            None => self.checkpoint_is_unsure = true,
        }
    }

    /// Closes the store properly.
    pub fn close(&mut self) {
        self.keyspaces = [None, None];
        let Some(db) = self.db.take() else { return };
        match self.trust.answer(db.close()) {
            Some(()) => {
                self.history.checkpoint(&self.models);
                self.checkpoint_is_unsure = false;
                self.left = Left::All;
            }
            None => self.left = Left::Part,
        }
    }

    /// The process ends without a word, after a sync of the log if there is one.
    pub fn kill(&mut self) {
        self.keyspaces = [None, None];
        let Some(db) = self.db.take() else { return };
        let is_synced = self.trust.answer(db.sync()).is_some();
        self.left = match self.geometry.log {
            true if is_synced && !self.log_is_damaged => Left::All,
            false if !self.checkpoint_is_unsure => Left::Durable,
            _ => Left::Part,
        };
        self.checkpoint_is_unsure = false;
        // What dropping it does is undone.
        let files = [path().to_owned(), log_path(path())];
        let left = files.map(|file| (damage::read(&self.disk, &file), file));
        drop(db);
        for (was, file) in left {
            match (was, damage::read(&self.disk, &file)) {
                (Some(was), Some(is)) => damage::overwrite(&self.disk, &file, &is, &was),
                (Some(was), None) => damage::write(&self.disk, &file, &was),
                (None, Some(_)) => self.disk.unlink(&file).expect("it was made by the drop"),
                (None, None) => {}
            }
        }
    }

    /// The log of a store that was killed was damaged: its end may be gone.
    pub fn expect_part(&mut self) {
        if self.geometry.log && self.left == Left::All && self.db.is_none() {
            self.left = Left::Part;
        }
    }

    fn handle(&self) -> Option<Keyspace> {
        self.keyspaces[self.current].clone()
    }

    fn model(&self) -> &Model {
        &self.models[self.current]
    }

    /// Whether the model knows what the key has.
    fn is_sure(&self, key: &[u8]) -> bool {
        let doubt = &self.doubts[self.current];
        self.trust.is_exact() && !doubt.all && !doubt.keys.contains(key)
    }

    /// Whether the model knows what the keyspace has.
    fn is_sure_of(&self, keyspace: usize) -> bool {
        let doubt = &self.doubts[keyspace];
        self.trust.is_exact() && !doubt.all && doubt.keys.is_empty()
    }

    fn doubt(&mut self, key: Vec<u8>) {
        self.doubts[self.current].keys.insert(key);
    }

    /// A change that was made.
    fn change(&mut self, key: Vec<u8>, new: Option<Vec<u8>>) {
        self.history.change(self.current, &key, new.as_deref());
        let model = &mut self.models[self.current];
        match new {
            Some(new) => model.insert(key, new),
            None => model.remove(&key),
        };
    }

    /// Does what an operation says.
    pub fn apply(&mut self, operation: &Operation) {
        match operation {
            Operation::Put(key, length) => {
                let key = key.bytes();
                let new = value(&key, *length);
                self.put(key, new);
            }
            Operation::Fill { from, count, step } => {
                for n in 0..u16::from(*count) {
                    let key = from.wrapping_add(n * u16::from(*step)).to_be_bytes().to_vec();
                    let new = value(&key, *step);
                    self.put(key, new);
                }
            }
            Operation::Drain { from, count, step } => {
                for n in 0..u16::from(*count) {
                    let key = from.wrapping_add(n * u16::from(*step)).to_be_bytes();
                    self.remove(key.to_vec());
                }
            }
            Operation::InsertIfAbsent(key, length) => self.insert_if_absent(key.bytes(), *length),
            Operation::Update(key, length) => self.update(key.bytes(), *length),
            Operation::Swap { key, expected, right, new } => {
                let key = key.bytes();
                let expected = match right {
                    true => self.model().get(&key).cloned(),
                    false => expected.map(|length| value(&key, length)),
                };
                let new = new.map(|length| value(&key, length));
                self.swap(key, expected, new);
            }
            Operation::Remove(key) => self.remove(key.bytes()),
            Operation::Get(key) => self.get(&key.bytes()),
            Operation::GetMany(keys) => self.get_many(keys),
            Operation::Range { from, to, forward, most } => {
                self.range(from.bytes(), to.bytes(), *forward, usize::from(*most));
            }
            Operation::Cursor { at, moves } => self.cursor(&at.bytes(), *moves),
            Operation::Other => self.current = 1 - self.current,
            Operation::Checkpoint => self.checkpoint(),
            Operation::Reopen(leaves) => {
                self.close();
                self.geometry.leaves = *leaves;
                self.open(OpenHow::Existing);
            }
            Operation::Crash => {
                self.kill();
                self.open(OpenHow::Existing);
            }
            Operation::DropOther => self.drop_other(),
        }
    }

    /// Does what a step says.
    pub fn step(&mut self, step: &Step) {
        match step {
            Step::Operation(operation) => self.apply(operation),
            Step::Large { key, len } => {
                let key = key.bytes();
                let most = if self.geometry.large_values { 20_000 } else { 40 };
                let new = long_value(&key, usize::from(*len) % most, *len as u8);
                self.put(key, new);
            }
            Step::Batch(changes) => self.batch(changes),
            Step::RemoveRange { from, to } => self.remove_range(&from.bytes(), &to.bytes()),
            Step::Sync => {
                if let Some(db) = &self.db {
                    let _ = self.trust.answer(db.sync());
                }
            }
            Step::Verify => self.verify(),
            Step::Compact { from, pages } => {
                let Some(keyspace) = self.handle() else { return };
                let budget = CompactBudget::pages(u64::from(*pages)).starting_at(&from.bytes());
                let _ = self.trust.answer(keyspace.compact(&budget, |_| ControlFlow::Continue(())));
            }
        }
    }

    fn put(&mut self, key: Vec<u8>, new: Vec<u8>) {
        let Some(keyspace) = self.handle() else { return };
        let Some(was_there) = self.trust.answer(keyspace.put(&key, &new)) else { return };
        if self.is_sure(&key) {
            assert_eq!(was_there, self.model().contains_key(&key));
        }
        self.change(key, Some(new));
    }

    fn remove(&mut self, key: Vec<u8>) {
        let Some(keyspace) = self.handle() else { return };
        let Some(was_there) = self.trust.answer(keyspace.remove(&key)) else { return };
        if self.is_sure(&key) {
            assert_eq!(was_there, self.model().contains_key(&key));
        }
        self.change(key, None);
    }

    fn insert_if_absent(&mut self, key: Vec<u8>, length: u8) {
        let Some(keyspace) = self.handle() else { return };
        let new = value(&key, length);
        let inserted = keyspace.insert_if_absent(&key, &new);
        let Some(inserted) = self.trust.answer(inserted) else { return };
        if self.is_sure(&key) {
            assert_eq!(inserted, !self.model().contains_key(&key));
        }
        if inserted {
            self.change(key, Some(new));
        }
    }

    fn update(&mut self, key: Vec<u8>, length: u8) {
        let Some(keyspace) = self.handle() else { return };
        let new = value(&key, length);
        let Some(updated) = self.trust.answer(keyspace.update(&key, &new)) else { return };
        if self.is_sure(&key) {
            assert_eq!(updated, self.model().contains_key(&key));
        }
        if updated {
            self.change(key, Some(new));
        }
    }

    fn swap(&mut self, key: Vec<u8>, expected: Option<Vec<u8>>, new: Option<Vec<u8>>) {
        let Some(keyspace) = self.handle() else { return };
        let swap = keyspace.compare_and_swap(&key, expected.as_deref(), new.as_deref());
        let Some(swap) = self.trust.answer(swap) else { return };
        let is_sure = self.is_sure(&key);
        match swap {
            CompareAndSwap::Swapped => {
                assert!(!is_sure || self.model().get(&key) == expected.as_ref());
                self.change(key, new);
            }
            CompareAndSwap::Differs(found) => {
                let there = self.model().get(&key);
                assert!(!is_sure || there != expected.as_ref());
                assert!(!is_sure || found.as_deref() == there.map(Vec::as_slice));
            }
        }
    }

    fn get(&self, key: &[u8]) {
        let Some(keyspace) = self.handle() else { return };
        let Some(found) = self.trust.answer(keyspace.get(key)) else { return };
        if self.is_sure(key) {
            assert_eq!(found.as_deref(), self.model().get(key).map(Vec::as_slice));
        }
    }

    fn get_many(&self, keys: &[Key]) {
        let Some(keyspace) = self.handle() else { return };
        let keys: Vec<_> = keys.iter().map(Key::bytes).collect();
        let Some(values) = self.trust.answer(keyspace.get_many(&keys)) else { return };
        assert_eq!(values.len(), keys.len());
        for (key, found) in keys.iter().zip(values) {
            if self.is_sure(key) {
                assert_eq!(found.as_deref(), self.model().get(key).map(Vec::as_slice));
            }
        }
    }

    fn range(&self, from: Vec<u8>, to: Vec<u8>, forward: bool, most: usize) {
        let Some(keyspace) = self.handle() else { return };
        let bounds = (Bound::Included(from.clone()), Bound::Excluded(to.clone()));
        let mut range = keyspace.range(bounds.clone());
        let (mut got, mut is_whole) = (Vec::new(), true);
        while got.len() < most
            && let Some(record) = if forward { range.next() } else { range.next_back() }
        {
            match self.trust.answer(record) {
                Some(record) => got.push(record),
                None => {
                    is_whole = false;
                    break;
                }
            }
        }
        if !self.is_sure_of(self.current) {
            return;
        }
        let model = self.model();
        let expected: Vec<_> = match (from < to, forward) {
            (false, _) => Vec::new(),
            (true, true) => model.range(bounds).take(most).collect(),
            (true, false) => model.range(bounds).rev().take(most).collect(),
        };
        assert!(got.len() == expected.len() || (!is_whole && got.len() < expected.len()));
        for ((key, value), (expected_key, expected_value)) in got.iter().zip(expected) {
            assert_eq!((&**key, &**value), (&expected_key[..], &expected_value[..]));
        }
    }

    fn cursor(&self, at: &[u8], moves: u16) {
        let Some(keyspace) = self.handle() else { return };
        let is_sure = self.is_sure_of(self.current);
        let mut cursor = keyspace.cursor();
        cursor.seek(at);
        let keys: Vec<&Vec<u8>> = self.model().keys().collect();
        let mut gap = keys.partition_point(|key| &key[..] < at);
        for bit in 0..16 {
            let goes_on = moves >> bit & 1 == 0;
            let record = if goes_on { cursor.next_record() } else { cursor.previous_record() };
            let Some(record) = self.trust.answer(record) else { return };
            let place = if goes_on { Some(gap) } else { gap.checked_sub(1) };
            let expected = place.and_then(|place| keys.get(place)).map(|key| &key[..]);
            assert!(!is_sure || record.map(|(key, _)| key) == expected);
            gap = if goes_on { (gap + 1).min(keys.len()) } else { gap.saturating_sub(1) };
        }
    }

    fn batch(&mut self, changes: &[(Key, Option<u8>)]) {
        let Some(keyspace) = self.handle() else { return };
        let mut batch = WriteBatch::new();
        let mut made = Vec::new();
        for (key, length) in changes {
            let key = key.bytes();
            let new = length.map(|length| value(&key, length));
            let entered = match &new {
                Some(new) => batch.put(&keyspace, &key, new),
                None => batch.remove(&keyspace, &key),
            };
            if self.trust.answer(entered).is_some() {
                made.push((key, new));
            }
        }
        let Some(db) = &self.db else { return };
        let is_written = self.trust.answer(db.write(&batch)).is_some();
        for (key, new) in made {
            // Without a log some of it may have been made; with one the next opening may finish it.
            if is_written {
                self.change(key, new);
            } else {
                self.doubt(key);
            }
        }
    }

    fn remove_range(&mut self, from: &[u8], to: &[u8]) {
        let Some(keyspace) = self.handle() else { return };
        let removed = self.trust.answer(keyspace.remove_range(from..to));
        let here = |key: &&Vec<u8>| &key[..] >= from && &key[..] < to;
        let keys: Vec<Vec<u8>> = self.model().keys().filter(here).cloned().collect();
        if let Some(removed) = removed
            && self.is_sure_of(self.current)
        {
            assert_eq!(removed, keys.len() as u64);
        }
        for key in keys {
            // After an error a first part of the range is gone.
            if removed.is_some() {
                self.change(key, None);
            } else {
                self.doubt(key);
            }
        }
    }

    fn drop_other(&mut self) {
        let other = 1 - self.current;
        let Some(db) = &self.db else { return };
        let dropped = self.trust.answer(db.drop_keyspace(NAMES[other]));
        let made = dropped.and_then(|_| self.trust.answer(db.create_keyspace(NAMES[other])));
        if self.is_sure_of(other) && self.keyspaces[other].is_some() {
            assert!(dropped != Some(false), "the keyspace was not there");
        }
        if made.is_none() {
            // It was begun, and the next opening goes on with it, or it was not.
            self.doubts[other].all = true;
        }
        self.keyspaces[other] = made;
        let current = std::mem::replace(&mut self.current, other);
        let keys: Vec<Vec<u8>> = self.model().keys().cloned().collect();
        for key in keys {
            self.change(key, None);
        }
        self.current = current;
    }

    /// Lets the store verify itself: a sound one is found sound. It takes a checkpoint for that.
    pub fn verify(&mut self) {
        let Some(db) = &self.db else { return };
        let report = self.trust.answer(db.verify(|_| ControlFlow::Continue(())));
        if let Some(report) = report
            && self.trust == Trust::Sound
        {
            assert!(report.is_clean(), "{:#?}", report.findings);
        }
        self.checkpoint_was_taken();
    }

    /// A checkpoint was taken by the way, unless something was in the way of it.
    pub fn checkpoint_was_taken(&mut self) {
        self.checkpoint_is_unsure = true;
    }

    /// Whether the models have exactly what is in the closed store.
    pub fn is_exactly_left(&self) -> bool {
        self.db.is_none() && self.left == Left::All
    }

    /// Verifies the store, and reads all of it by scans.
    pub fn check(&mut self) {
        self.verify();
        if let Some(db) = &self.db {
            self.hold_against(db, self.trust, "the store");
        }
    }

    /// Holds a scan of each keyspace of the store, or of a copy of it that deserves more or less trust, against the
    /// models.
    pub fn hold_against(&self, db: &Database, trust: Trust, what: &str) {
        for (at, name) in NAMES.into_iter().enumerate() {
            let Some(found) = trust.answer(db.open_keyspace(name)) else { continue };
            let is_sure = self.is_sure_of(at);
            let Some(keyspace) = found else {
                // One that could not be made again after it was dropped.
                let may_lack = !is_sure || self.keyspaces[at].is_none();
                assert!(may_lack, "{what} has no keyspace {name}");
                continue;
            };
            let mut expected = self.models[at].iter();
            let mut is_whole = true;
            for record in keyspace.iter().take(MAX_SCANNED + self.models[at].len()) {
                let Some((key, value)) = trust.answer(record) else {
                    is_whole = false;
                    break;
                };
                if is_sure {
                    let expected = expected.next().map(|(key, value)| (&key[..], &value[..]));
                    assert!(Some((&*key, &*value)) == expected, "{what}: a wrong record");
                }
            }
            if is_sure && is_whole {
                assert!(expected.next().is_none(), "{what}: {name} ends too early");
            }
        }
    }
}
