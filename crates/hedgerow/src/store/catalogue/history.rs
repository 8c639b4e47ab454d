//! What names of keyspaces meant before, for snapshots.
//!
//! Each creation, drop and rename is listed with its LSN and what the name meant until then, as long as a snapshot may be below it.
//! Whoever changes names has them locked alone, for the change and its entry, so who looks names up finds both or neither. A
//! keyspace that was dropped has no pages any more: a snapshot knows its name, and cannot read it.
//!
//! Invariant: entries are in the order of their LSNs. Plain data behind the lock of names.

use super::{Catalogue, PoolTree, Record, State};
use crate::buffer::BufferPool;
use crate::error::Result;
use crate::tree::dropped;
use crate::types::{Lsn, TreeId};
use hedgerow_sync::primitive::atomic::{Ordering::SeqCst, fence};
use std::collections::BTreeMap;

/// See the head of the file.
#[derive(Default)]
pub(super) struct History {
    entries: Vec<Entry>,
    /// The tree that is being dropped, and since when: its pages may be there yet.
    ended: Option<(TreeId, Lsn)>,
}

struct Entry {
    lsn: Lsn,
    name: String,
    before: Option<Record>,
}

impl History {
    /// Notes that a name has meant `before` until a change with this LSN.
    pub(super) fn note(&mut self, pool: &BufferPool, lsn: Lsn, name: &str, before: Option<Record>) {
        let Some(versions) = pool.versions() else { return };
        // Whoever begins a snapshot later reads the log's end later, so none of the earlier entries concerns it: he has a barrier, too.
        fence(SeqCst);
        match versions.oldest() {
            None => self.entries.retain(|entry| entry.lsn >= lsn),
            Some(oldest) => self.entries.retain(|entry| entry.lsn > oldest),
        }
        let before = before.filter(|record| record.state != State::Dropping);
        self.entries.push(Entry { lsn, name: name.to_owned(), before });
    }

    /// Notes that a tree's keyspace has ended, before a page of it goes; and `None` when its pages have gone, and say so themselves.
    pub(super) fn note_end(&mut self, ended: Option<(TreeId, Lsn)>) {
        self.ended = ended;
    }

    fn is_ending(&self, tree: TreeId, at: Lsn) -> bool {
        self.ended.is_some_and(|(ended, lsn)| ended == tree && lsn <= at)
    }

    /// What has changed behind `at`, the oldest first.
    fn since(&self, at: Lsn) -> &[Entry] {
        &self.entries[self.entries.partition_point(|entry| entry.lsn <= at)..]
    }
}

impl Catalogue {
    /// What the keyspaces were called as of a snapshot's moment, and their trees.
    fn records_as_of(&self, at: Lsn) -> Result<BTreeMap<String, Record>> {
        let names = self.names.read();
        let live = |record: &Record| record.state != State::Dropping;
        let mut records: BTreeMap<String, Record> =
            self.records()?.into_iter().filter(|(_, record)| live(record)).collect();
        for entry in names.since(at).iter().rev() {
            match entry.before {
                Some(record) => records.insert(entry.name.clone(), record),
                None => records.remove(&entry.name),
            };
        }
        Ok(records)
    }

    /// The names of all keyspaces as of a snapshot's moment, in order.
    pub fn names_as_of(&self, at: Lsn) -> Result<Vec<String>> {
        Ok(self.records_as_of(at)?.into_keys().collect())
    }

    /// The keyspace that was called `name` as of a snapshot's moment.
    pub fn get_as_of(&self, name: &str, at: Lsn) -> Result<Option<PoolTree>> {
        let names = self.names.read();
        let record = match names.since(at).iter().find(|entry| entry.name == name) {
            Some(entry) => entry.before,
            None => self.find(name)?.filter(|record| record.state != State::Dropping),
        };
        Ok(record.map(|record| self.handle(record)))
    }

    /// Whether the keyspace with this tree had ended by a snapshot's moment, and its pages are going.
    pub fn is_ending(&self, tree: TreeId, at: Lsn) -> bool {
        self.names.read().is_ending(tree, at)
    }

    /// Whether there was a keyspace with this tree as of a snapshot's moment.
    ///
    /// Errors: `KeyspaceDropped` if it had gone by then; those of reading the catalogue.
    pub fn was_there(&self, tree: TreeId, at: Lsn) -> Result<bool> {
        let names = self.names.read();
        if names.is_ending(tree, at) {
            return Ok(false);
        }
        let is_as_now = names.since(at).is_empty();
        if is_as_now && self.open.has(tree) {
            return Ok(true);
        }
        drop(names);
        let was_there = self.records_as_of(at)?.values().any(|record| record.tree == tree);
        // After a drop its pages say nothing to a snapshot that reads those of a checkpoint from before.
        if is_as_now && !was_there { Err(dropped()) } else { Ok(was_there) }
    }
}
