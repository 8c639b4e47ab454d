//! The steps of a script, each made on the store and on the model.
//!
//! A step that reads compares; one that changes says what there is to be afterwards, and leaves it to `Run::changed` to
//! note what became of it. Where an error leaves several outcomes open, the store itself is looked at, with no call
//! failing, and what it shows has to be one of those. One thread; see `run.rs`.

use super::run::Run;
use super::scripts::{Part, Step};
use super::state::{Bytes, State};
use crate::common::{assert_sound, key};
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, ErrorKind, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::SimState;
use std::ops::{Bound, ControlFlow};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Run {
    /// Makes one step; nothing if the store is not open.
    pub fn step(&mut self, step: &Step) {
        use Durability::{Buffered, Sync};
        let Some(db) = self.db.clone() else { return };
        match *step {
            Step::Put(name, n, len) => self.change(&db, name, n, Some(len), Buffered),
            Step::PutSync(name, n, len) => self.change(&db, name, n, Some(len), Sync),
            Step::Puts(name, from, to, len) => {
                (from..to).for_each(|n| self.change(&db, name, n, Some(len), Buffered));
            }
            Step::Remove(name, n) => self.change(&db, name, n, None, Buffered),
            Step::RemoveSync(name, n) => self.change(&db, name, n, None, Sync),
            Step::Exchange(name, n, len) => self.exchange(&db, name, n, Some(len)),
            Step::Take(name, n) => self.exchange(&db, name, n, None),
            Step::Add(name, n) => self.add(&db, name, n),
            Step::PopFirst(name) => self.pop(&db, name, true),
            Step::PopLast(name) => self.pop(&db, name, false),
            Step::RemoveRange(name, from, to) => self.remove_range(&db, name, from, to),
            Step::Batch(parts) => self.batch(&db, parts, false),
            Step::BatchSync(parts) => self.batch(&db, parts, true),
            Step::Load(name, count, len) => self.load(&db, name, count, len),
            Step::Create(name) => self.create(&db, name),
            Step::Drop(name) => self.drop_keyspace(&db, name),
            Step::Rename(from, to) => self.swap(&db, from, to, true),
            Step::Swap(a, b) => self.swap(&db, a, b, false),
            Step::Get(name, n) => self.get(&db, name, n),
            Step::Scan(name) => self.scan(&db, name, false),
            Step::ScanBack(name) => self.scan(&db, name, true),
            Step::Sync => {
                let done = db.sync();
                // Without a log there is nothing to do.
                if self.case.log || done.is_err() {
                    self.made_durable("a sync", done);
                }
            }
            Step::Checkpoint => self.checkpoint(&db),
            Step::Shrink => {
                self.checkpoint(&db);
                self.checkpoint(&db);
            }
            Step::Compact => {
                // It takes checkpoints.
                self.keep();
                let done = db.shrink(|_| ControlFlow::Continue(()));
                self.made_durable("a compaction", done.map(drop));
            }
            Step::Backup => self.backup(&db),
            Step::Verify => {
                // It takes a checkpoint.
                self.keep();
                let done = db.verify(|_| ControlFlow::Continue(()));
                if let Ok(report) = &done {
                    self.count_hits();
                    // Of a place that could not be read it tells.
                    let is_unread = |what: &str| {
                        what.contains("simulated failure") || what.contains("cannot be read")
                    };
                    let told = self.hits > 0
                        && report.findings.iter().all(|finding| is_unread(&finding.what));
                    assert!(report.is_clean() || told, "{}: {:#?}", self.case, report.findings);
                }
                self.made_durable("a verification", done.map(drop));
            }
            Step::Close => {
                self.db = None;
                self.keep();
                let done = db.close();
                self.made_durable("a close", done);
                self.open();
                self.settle(false);
            }
            Step::LetGo => {
                self.db = None;
                // It may take a checkpoint.
                self.keep();
                self.count_hits();
                let hits = self.hits;
                drop(db);
                self.count_hits();
                // Nobody tells if it has failed.
                if self.hits == hits && !self.is_poisoned {
                    self.made_durable("a drop", Ok(()));
                }
                self.open();
                self.settle(false);
            }
            Step::Kill => {
                self.die(db);
                self.open();
                self.settle(false);
            }
            Step::Crash => {
                self.die(db);
                self.disk.change_state(|state| *state = state.crash_at_random(11));
                self.open();
                self.settle(true);
            }
        }
    }

    fn checkpoint(&mut self, db: &Database) {
        self.keep();
        let done = db.checkpoint();
        self.made_durable("a checkpoint", done);
    }

    /// Puts a value, or removes the record.
    fn change(
        &mut self,
        db: &Database,
        name: &str,
        n: u64,
        len: Option<usize>,
        durability: Durability,
    ) {
        let value = len.map(|len| self.value(len));
        let key = key(n);
        let mut after = self.now().clone();
        let Some(records) = after.records_mut(name) else { return };
        let before = match &value {
            Some(value) => records.insert(key.as_slice().into(), value.as_slice().into()),
            None => records.remove(key.as_slice()),
        };
        let keyspace = db.keyspace(name).map(|keyspace| keyspace.with_durability(durability));
        let done = keyspace.and_then(|keyspace| match &value {
            Some(value) => keyspace.put(&key, value),
            None => keyspace.remove(&key),
        });
        if let Ok(was_there) = &done {
            let is_right = self.is_in_parts || *was_there == before.is_some();
            assert!(is_right, "{}: was {n} there?", self.case);
        }
        self.changed("a change", done.map(drop), after, durability == Durability::Sync);
    }

    fn batch(&mut self, db: &Database, parts: &[Part], sync: bool) {
        let mut batch = WriteBatch::new();
        if sync {
            batch.set_durability(Durability::Sync);
        }
        let mut drawn = Vec::new();
        for &(name, n, len) in parts {
            let value = len.map(|len| self.value(len));
            if self.now().records(name).is_none() {
                continue;
            }
            let keyspace = match db.keyspace(name) {
                Ok(keyspace) => keyspace,
                Err(error) => return self.refused("a keyspace for a batch", &error, false),
            };
            match &value {
                Some(value) => batch.put(&keyspace, &key(n), value).unwrap(),
                None => batch.remove(&keyspace, &key(n)).unwrap(),
            }
            drawn.push((name, key(n), value));
        }
        // The order in which they are made: by the ids of their trees, and by their keys.
        let place = |name: &str| self.order.iter().position(|known| *known == name);
        drawn.sort_by(|a, b| (place(a.0), &a.1).cmp(&(place(b.0), &b.1)));
        let mut states = vec![self.now().clone()];
        for (name, key, value) in drawn {
            let mut after = states[states.len() - 1].clone();
            let records = after.records_mut(name).expect("it has a keyspace");
            match value {
                Some(value) => records.insert(key.into(), value.into()),
                None => records.remove(key.as_slice()),
            };
            states.push(after);
        }
        let done = db.write(&batch).map(drop);
        match &done {
            Err(error) if self.case.log => {
                self.is_in_parts |= matches!(
                    error.kind(),
                    ErrorKind::DurabilityUnknown | ErrorKind::BatchUnfinished
                );
            }
            Err(error) => {
                self.refused("a batch without a log", error, false);
                let found = self.look();
                assert!(states.contains(&found), "{}: no first part of a batch", self.case);
                if found != *self.now() {
                    self.push(found);
                }
                return;
            }
            Ok(()) => {}
        }
        let after = states.pop().unwrap_or_default();
        self.changed("a batch", done, after, sync);
    }

    /// Removes a range. After an error a first part of it is gone: which one the store shows.
    fn remove_range(&mut self, db: &Database, name: &str, from: u64, to: u64) {
        let mut left = self.now().clone();
        let Some(records) = left.records(name) else { return };
        let (first, behind) = (key(from), key(to));
        let bounds = (Bound::Included(&first[..]), Bound::Excluded(&behind[..]));
        let range = records.range::<[u8], _>(bounds);
        let inside: Vec<Bytes> = range.map(|(key, _)| Arc::clone(key)).collect();
        let keyspace = db.keyspace(name);
        let found = match keyspace.and_then(|keyspace| keyspace.remove_range(key(from)..key(to))) {
            Ok(removed) => {
                let may_be = inside.is_empty() || !self.is_poisoned;
                assert!(may_be, "{}: a range was removed after all", self.case);
                assert_eq!(removed, inside.len() as u64, "{}", self.case);
                None
            }
            Err(error) => {
                self.refused("the removal of a range", &error, false);
                if self.is_in_parts {
                    return;
                }
                Some(self.look())
            }
        };
        for key in &inside {
            if found.as_ref() == Some(&left) {
                return;
            }
            // Leaf by leaf: a crash may leave any first part of it.
            left.records_mut(name).expect("it has a keyspace").remove(key);
            self.push(left.clone());
        }
        let is_first_part = found.is_none_or(|found| found == left);
        assert!(is_first_part, "{}: something else than a first part is gone", self.case);
    }

    fn load(&mut self, db: &Database, name: &str, count: u64, len: usize) {
        let mut after = self.now().clone();
        let Some(records) = after.records_mut(name) else { return };
        let is_empty = records.is_empty();
        for n in 0..count {
            let len = if n % 5 == 4 { 700 } else { len };
            records.insert(key(n).into(), self.value(len).into());
        }
        let records = records.clone();
        let keyspace = db.keyspace(name);
        let done = keyspace.and_then(|keyspace| keyspace.bulk_load(&records, 90));
        match done {
            Ok(loaded) => {
                assert!(is_empty && loaded == count, "{}: {loaded} records loaded", self.case);
                self.changed("a load", Ok(()), after, true);
            }
            Err(error) if error.kind() == ErrorKind::KeyspaceNotEmpty && !is_empty => {}
            Err(error) => {
                self.refused("a load", &error, false);
                if self.is_in_parts {
                    return;
                }
                let found = self.look();
                if found != *self.now() {
                    // It was done and could not be made durable: then nothing can be changed any more.
                    let is_whole = is_empty && found == after;
                    assert!(is_whole, "{}: of a load that failed there is a part", self.case);
                    (self.is_in_parts, self.is_poisoned) = (true, true);
                }
                if is_empty {
                    self.doubtful.push(after);
                }
            }
        }
    }

    fn create(&mut self, db: &Database, name: &'static str) {
        if self.now().records(name).is_some() {
            return;
        }
        let mut after = self.now().clone();
        after.create(name);
        let done = db.create_keyspace(name).map(drop);
        self.order.retain(|known| *known != name);
        self.order.push(name);
        self.changed("the creation of a keyspace", done, after, true);
    }

    /// Drops a keyspace. After an error it may be there or not: half of it is nowhere to be seen.
    fn drop_keyspace(&mut self, db: &Database, name: &str) {
        let mut after = self.now().clone();
        let was_there = after.drop_keyspace(name);
        let done = db.drop_keyspace(name);
        match &done {
            Ok(found) => assert!(*found == was_there, "{}: was {name} there?", self.case),
            Err(error) if error.kind() != ErrorKind::DurabilityUnknown => {
                self.refused("the drop of a keyspace", error, false);
                if !self.is_in_parts && was_there && self.look() == after {
                    self.push(after);
                }
                return;
            }
            Err(_) => {}
        }
        self.changed("the drop of a keyspace", done.map(drop), after, true);
    }

    /// Keyspaces get other names: after an error all of them, or none.
    fn swap(&mut self, db: &Database, a: &'static str, b: &'static str, is_rename: bool) {
        let is_there = |name| self.now().records(name).is_some();
        if !is_there(a) || is_there(b) == is_rename {
            return;
        }
        let mut after = self.now().clone();
        after.swap(a, b);
        let done = if is_rename { db.rename_keyspace(a, b) } else { db.swap_keyspaces(a, b) };
        let is_made =
            done.as_ref().map_or_else(|e| e.kind() == ErrorKind::DurabilityUnknown, |()| true);
        if is_made {
            // Batches go through trees in the order in which those were created.
            for name in &mut self.order {
                *name = if *name == a {
                    b
                } else if *name == b {
                    a
                } else {
                    *name
                };
            }
        }
        self.changed("other names for keyspaces", done, after, true);
    }

    fn get(&mut self, db: &Database, name: &str, n: u64) {
        if self.now().records(name).is_none() {
            return;
        }
        match db.keyspace(name).and_then(|keyspace| keyspace.get(&key(n))) {
            Ok(found) => {
                let records = self.now().records(name);
                let expected = records.and_then(|records| records.get(key(n).as_slice()));
                let is_right =
                    self.is_in_parts || found.as_deref() == expected.map(|value| &**value);
                assert!(is_right, "{}: another value of {n}", self.case);
            }
            Err(error) => self.refused("a get", &error, false),
        }
    }

    /// Reads all records. What comes before an error is right, and nothing comes after it.
    fn scan(&mut self, db: &Database, name: &str, backwards: bool) {
        let Some(records) = self.now().records(name) else { return };
        let mut expected: Vec<(Bytes, Bytes)> =
            records.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))).collect();
        if backwards {
            expected.reverse();
        }
        let keyspace = match db.keyspace(name) {
            Ok(keyspace) => keyspace,
            Err(error) => return self.refused("a keyspace to scan", &error, false),
        };
        let mut range = keyspace.iter();
        let mut found = Vec::new();
        let mut failure = None;
        loop {
            match if backwards { range.next_back() } else { range.next() } {
                None => break,
                Some(Ok((key, value))) => {
                    found.push((Bytes::from(&key[..]), Bytes::from(&value[..])))
                }
                Some(Err(error)) => {
                    failure = Some(error);
                    let ended = range.next().is_none() && range.next_back().is_none();
                    assert!(ended, "{}: a scan goes on behind an error", self.case);
                    break;
                }
            }
        }
        if !self.is_in_parts {
            let is_right = match failure {
                Some(_) => expected.starts_with(&found),
                None => expected == found,
            };
            assert!(is_right, "{}: a scan of {name} finds something else", self.case);
        }
        if let Some(error) = failure {
            self.refused("a scan", &error, false);
        }
    }

    /// Copies the store. What is at the path afterwards is all of it, or nothing if it failed.
    fn backup(&mut self, db: &Database) {
        self.backups += 1;
        let path = PathBuf::from(format!("/data/copy-{}.hrow", self.backups));
        // It takes a checkpoint.
        self.keep();
        let done = db.backup(&path, |_| ControlFlow::Continue(())).map(drop);
        let is_there = self.disk.state().contents(&path).is_some();
        assert!(is_there || done.is_err(), "{}: there is no copy", self.case);
        if is_there && !self.is_in_parts {
            self.check_copy(&self.disk.state(), &path, self.now());
        }
        if done.is_ok() {
            self.copies.push((path, self.now().clone()));
        }
        self.made_durable("a backup", done);
    }

    /// Opens a copy to read, on a disk of its own.
    pub fn check_copy(&self, state: &SimState, path: &Path, expected: &State) {
        let disk = SimDisk::with_state(state.clone(), 1);
        let options = self.options.clone().log(false);
        let copy = options.on_disk(&disk as &dyn Disk, path, OpenHow::ReadOnly);
        let copy = copy.unwrap_or_else(|error| panic!("{}: a copy: {error:?}", self.case));
        let found = State::of(&copy);
        let found = found.unwrap_or_else(|error| panic!("{}: a copy: {error:?}", self.case));
        assert!(found == *expected, "{}: a copy has something else", self.case);
        assert_sound(&copy, &format!("{}: a copy", self.case));
    }
}
