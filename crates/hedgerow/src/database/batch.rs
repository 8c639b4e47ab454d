//! Changes that belong together.
//!
//! Rank 7. A [`WriteBatch`] is a plain list of changes, of any keyspaces of one database;
//! [`Database::write`](crate::Database::write) makes them. `Send + Sync`.

use super::inner::Inner;
use super::keyspace::Keyspace;
use super::long::{Wanted, is_long, write_long};
use super::options::Durability;
use super::values::Prepared;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BatchChange, PoolTree};
use crate::types::{Lsn, TreeId};
use crate::wait::{Wait, Waiting};
use hedgerow_sync::primitive::Arc;
use std::fmt;
use std::ops::Range;

/// Changes of several records. A crash leaves all of them or none, and others see all of them or none: whoever has seen one of them, by a get or
/// in a leaf that a scan comes to, sees all of them from then on, and other changes come wholly before or wholly after them. If a batch
/// changes a key several times, the last change counts.
///
/// **Size.** A batch may have 128 MiB of changes with the default log limit of 1 GiB, and an eighth of a smaller one
/// ([`Options::log_limit_bytes`](crate::Options::log_limit_bytes)). Up to 4 MiB with a memory limit of 1 GiB or more, 512 KiB with 64 MiB, and 8 KiB with
/// the smallest, it holds nobody up. While a larger one is made, the changes of all other threads wait for it, and for two checkpoints; reads go
/// on, and see what was there before until all is done. So they wait for one whose leaves would take an eighth of the pages in memory, or, while snapshots are
/// open, that replaces much. `docs/transactions.md` in the repository has the exact bounds: what is below them is made *at one stroke*.
///
/// Without a log, and in memory, a batch that is too large for one stroke is made change by change: until [`Database::write`](crate::Database::write) returns,
/// other threads may see some of its changes and not yet the rest, and a crash or an error may leave a part of them.
///
/// Plain data, `Send + Sync`. It keeps its database open, and can be written several times.
///
/// ```no_run
/// # fn main() -> hedgerow::Result<()> {
/// # let db = hedgerow::Database::open_or_create("birds.hrow")?;
/// let (names, seen) = (db.keyspace("names")?, db.keyspace("seen")?);
/// let mut batch = hedgerow::WriteBatch::new();
/// batch.put(&names, b"wren", b"Troglodytes troglodytes")?;
/// batch.remove(&seen, b"2026-11-22/dodo")?;
/// db.write(&batch)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct WriteBatch {
    /// The keyspaces, each once.
    keyspaces: Vec<Keyspace>,
    /// Keys and values.
    bytes: Vec<u8>,
    changes: Vec<Change>,
    /// What was said of the batch itself.
    durability: Option<Durability>,
    wait: Option<Wait>,
    /// Whether one of the handles that changes came through makes durable changes.
    through_sync: bool,
}

#[derive(Clone)]
struct Change {
    /// Its place in `keyspaces`.
    keyspace: usize,
    key: Range<usize>,
    /// Whether the key gets the value that lies behind it.
    value: Option<Range<usize>>,
}

impl fmt::Debug for WriteBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBatch").field("changes", &self.changes.len()).finish_non_exhaustive()
    }
}

impl WriteBatch {
    /// A batch of no changes.
    #[must_use]
    pub fn new() -> WriteBatch {
        WriteBatch::default()
    }

    /// Adds the put of a record. Copies key and value, large values too; nothing is changed before
    /// [`Database::write`](crate::Database::write).
    ///
    /// # Errors
    /// After an error the batch is as it was. [`KeyTooLong`](ErrorKind::KeyTooLong); [`RecordTooLarge`](ErrorKind::RecordTooLarge);
    /// [`ForeignKeyspace`](ErrorKind::ForeignKeyspace) for a keyspace of another database than the earlier ones;
    /// [`ForkedProcess`](ErrorKind::ForkedProcess).
    pub fn put(&mut self, keyspace: &Keyspace, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(keyspace, key, Some(value))
    }

    /// Adds the removal of a record. If there is none when the batch is written, this changes nothing.
    ///
    /// # Errors
    /// Those of [`WriteBatch::put`].
    pub fn remove(&mut self, keyspace: &Keyspace, key: &[u8]) -> Result<()> {
        self.push(keyspace, key, None)
    }

    /// Chooses when the changes are durable. Without this a batch is written with [`Durability::Sync`] if one of its keyspaces'
    /// handles is, by [`Options::durability`](crate::Options::durability) or [`Keyspace::with_durability`].
    pub fn set_durability(&mut self, durability: Durability) {
        self.durability = Some(durability);
    }

    /// Chooses how [`Database::write`](crate::Database::write) waits. Without this it waits as the handle of the batch's first change
    /// does. See [`Keyspace::with_wait`]. A wait ends only before the log has the whole batch; then none of its changes is made. From
    /// there on the batch is finished, and then [`NotYetDurable`](ErrorKind::NotYetDurable) can be the answer.
    pub fn set_wait(&mut self, wait: Wait) {
        self.wait = Some(wait);
    }

    /// Number of changes that were added. Several changes of one key count each.
    #[must_use]
    pub fn len(&self) -> usize {
        self.changes.len()
    }

    /// Bytes of keys and values, and 32 for each change: about what [`BatchTooLarge`](ErrorKind::BatchTooLarge) counts, but that counts a short reference for a value too long
    /// for a leaf.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.bytes.len() as u64 + 32 * self.changes.len() as u64
    }

    /// Whether there are no changes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Removes all changes. It keeps the memory, and what [`WriteBatch::set_durability`] and [`WriteBatch::set_wait`] chose.
    pub fn clear(&mut self) {
        self.keyspaces.clear();
        self.through_sync = false;
        self.bytes.clear();
        self.changes.clear();
    }

    fn push(&mut self, keyspace: &Keyspace, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        keyspace.inner().check_process()?;
        keyspace.inner().check_put(keyspace.tree(), key, value.unwrap_or(&[]))?;
        let is_sync = keyspace.durability() == Durability::Sync;
        let keyspace = self.place_of(keyspace)?;
        self.through_sync |= is_sync;
        let mut copy = |part: &[u8]| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(part);
            start..self.bytes.len()
        };
        let (key, value) = (copy(key), value.map(copy));
        self.changes.push(Change { keyspace, key, value });
        Ok(())
    }

    fn place_of(&mut self, keyspace: &Keyspace) -> Result<usize> {
        let id = keyspace.tree().id();
        let first = self.keyspaces.first();
        if first.is_some_and(|first| !Arc::ptr_eq(first.inner(), keyspace.inner())) {
            return Err(foreign());
        }
        // The last one is likely to be the one.
        if let Some(at) = self.keyspaces.iter().rposition(|known| known.tree().id() == id) {
            return Ok(at);
        }
        self.keyspaces.push(keyspace.clone());
        Ok(self.keyspaces.len() - 1)
    }

    fn of<'b>(&'b self, change: &'b Change) -> (TreeId, &'b [u8]) {
        (self.keyspaces[change.keyspace].tree().id(), &self.bytes[change.key.clone()])
    }

    /// Makes the changes in the database that it is for.
    pub(super) fn write_to(&self, inner: &Arc<Inner>) -> Result<Lsn> {
        if self.keyspaces.first().is_some_and(|first| !Arc::ptr_eq(first.inner(), inner)) {
            return Err(foreign());
        }
        // In the order of their keys, so that neighbours share the way to their leaf.
        let mut changes: Vec<&Change> = self.changes.iter().collect();
        changes.sort_by(|a, b| self.of(a).cmp(&self.of(b)));
        // The sort is stable: the last of its key is the last that was said.
        let last_of_key = changes.chunk_by(|a, b| self.of(a) == self.of(b));
        let changes: Vec<&Change> = last_of_key.map(|same| same[same.len() - 1]).collect();
        let first = || self.keyspaces.first().map(|first| first.tree().wait());
        let wait = self.wait.as_ref().or_else(first).map_or(Wait::Default, Wait::for_one_call);
        let trees = self.keyspaces.iter().map(|of| of.tree().clone().with_wait(wait.clone()));
        let trees: Vec<PoolTree> = trees.collect();
        let waiting = wait.begin();
        let is_long =
            |change: &&Change| is_long(&trees[change.keyspace], &self.bytes[change.key.clone()]);
        if changes.iter().any(is_long) {
            let lsn = self.write_long(inner, &changes, &trees, &waiting)?;
            self.make_durable(inner, &waiting)?;
            return Ok(lsn);
        }
        let mut prepared = Vec::with_capacity(changes.len());
        for change in &changes {
            let (tree, key) = (&trees[change.keyspace], &self.bytes[change.key.clone()]);
            let value = change.value.as_ref().map(|value| &self.bytes[value.clone()]);
            prepared.push(value.map(|value| inner.prepare(tree, key, value)).transpose()?);
        }
        let changes: Vec<BatchChange<'_>> = changes
            .iter()
            .zip(&prepared)
            .map(|(change, prepared)| BatchChange {
                tree: &trees[change.keyspace],
                key: &self.bytes[change.key.clone()],
                value: prepared.as_ref().map(Prepared::bytes),
            })
            .collect();
        let mut made = 0;
        let written = inner.store.write_batch(&changes, &mut made, &waiting);
        drop(changes);
        prepared.into_iter().take(made).flatten().for_each(Prepared::keep);
        let lsn = written?;
        self.make_durable(inner, &waiting)?;
        Ok(lsn)
    }

    /// Waits until the changes are durable if that was asked for.
    fn make_durable(&self, inner: &Inner, waiting: &Waiting<'_>) -> Result<()> {
        let wants_sync = self.durability.map_or(self.through_sync, |said| said == Durability::Sync);
        if wants_sync && !self.is_empty() {
            inner.store.flush_log_within(waiting)?;
        }
        Ok(())
    }

    /// Makes changes of which some have long keys.
    #[cold]
    fn write_long(
        &self,
        inner: &Inner,
        changes: &[&Change],
        trees: &[PoolTree],
        waiting: &Waiting<'_>,
    ) -> Result<Lsn> {
        let wanted = |change: &&Change| -> Wanted<'_> {
            let value = change.value.as_ref().map(|value| &self.bytes[value.clone()]);
            (&trees[change.keyspace], &self.bytes[change.key.clone()], value)
        };
        let changes: Vec<Wanted<'_>> = changes.iter().map(wanted).collect();
        write_long(inner, &changes, waiting)
    }
}

fn foreign() -> Error {
    let what = "the keyspaces of a batch must belong to the database that it is written to";
    Error::new(ErrorKind::ForeignKeyspace, what)
}
