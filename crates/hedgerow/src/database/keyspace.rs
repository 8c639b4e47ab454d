//! A named, ordered map from byte strings to byte strings.
//!
//! Rank 7. What users need to know of it stands with [`Keyspace`]. Invariant: `tree` is a tree of the store in `inner`.
//! `Send + Sync`.

use crate::database::database::Inner;
use crate::database::large::is_too_large;
use crate::database::options::Durability;
use crate::database::range::{Cursor, Range};
use crate::error::{Error, Result};
use crate::page::PagePool;
use crate::space::extent::is_stored_form;
use crate::store::PoolTree;
use crate::tree::{PageView, Swap, TreeStats, Value, successor};
use hedgerow_sync::primitive::Arc;
use std::fmt;
use std::ops::{Bound, ControlFlow, RangeBounds};

/// A named, ordered map from byte strings to byte strings; of a [`Database`](crate::Database), which has any number of them.
///
/// An owned handle without lifetimes: it keeps its database open, and cloning it is cheap. `Send + Sync`: any number of
/// threads use one handle, or clones of it. Keys are ordered byte by byte.
///
/// Each single operation is linearizable. A range or a cursor sees each leaf as it was at one moment;
/// the whole is not a snapshot: a record that is there for the whole of the iteration is seen exactly
/// once, one that comes or goes meanwhile may be seen or not. Several changes that a crash keeps or loses together
/// are a [`WriteBatch`](crate::WriteBatch).
#[derive(Clone)]
pub struct Keyspace {
    pub(super) inner: Arc<Inner>,
    pub(super) tree: PoolTree,
    name: Arc<str>,
    durability: Durability,
}

impl fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Keyspace {
    pub(super) fn new(
        inner: Arc<Inner>,
        tree: PoolTree,
        name: &str,
        durability: Durability,
    ) -> Keyspace {
        Keyspace { inner, tree, name: Arc::from(name), durability }
    }

    /// The same keyspace, the changes through which are durable as `durability` says. Of a batch see
    /// [`WriteBatch::set_durability`](crate::WriteBatch::set_durability).
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Keyspace {
        self.durability = durability;
        self
    }

    pub(super) fn durability(&self) -> Durability {
        self.durability
    }

    pub(super) fn tree(&self) -> &PoolTree {
        &self.tree
    }

    /// What the handles of one database share.
    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// Runs a change, and waits until it is durable if that was asked for.
    #[inline]
    pub(super) fn change<R>(&self, change: impl FnOnce(&PoolTree) -> Result<R>) -> Result<R> {
        self.inner.check_open()?;
        let outcome = change(&self.tree)?;
        if self.durability == Durability::Sync {
            self.inner.store.flush_log()?;
        }
        Ok(outcome)
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of `key`, copied out; up to 112 bytes without an allocation. Of a large one all of it:
    /// [`Keyspace::get_range`] and [`Keyspace::value_reader`] read parts.
    ///
    /// Errors of all reads: `Closed`, `KeyspaceDropped`, `Io` and `Corrupted` when a page has to be
    /// read, `MemoryLimit` and `Timeout` when no room for it can be found in time.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.inner.check_open()?;
        let found = self.tree.get(key);
        match &found {
            Ok(Some(value)) if self.is_stored_form(value) => {
                self.inner.resolve(&self.tree, key, value)
            }
            _ => found,
        }
    }

    /// Whether a value out of a leaf stands for another one.
    #[inline]
    fn is_stored_form(&self, value: &[u8]) -> bool {
        self.inner.store.has_stored_forms() && is_stored_form(value)
    }

    /// Replaces the contents of `value` by the value of `key`; `false`, and empty, if there is none.
    #[inline]
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.inner.check_open()?;
        let found = self.tree.get_into(key, value)?;
        if found && self.is_stored_form(value) {
            let resolved = self.inner.resolve(&self.tree, key, value);
            value.clear();
            let resolved = resolved?;
            let found = resolved.is_some();
            *value = resolved.map_or_else(Vec::new, Value::into_vec);
            return Ok(found);
        }
        Ok(found)
    }

    /// Calls `f` once on a validated copy of the value of `key`, if there is one.
    #[inline]
    pub fn get_with<R>(&self, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        Ok(self.get(key)?.map(|value| f(&value)))
    }

    /// The values of many keys, in their order. Cheaper than as many single gets: cache misses and
    /// page reads of a group overlap. Each value is linearizable, not all of them together.
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.inner.check_open()?;
        let mut values = self.tree.get_many(keys)?;
        if self.inner.store.has_stored_forms() {
            for (key, value) in keys.iter().zip(&mut values) {
                if let Some(found) = value.take_if(|value| is_stored_form(value)) {
                    *value = self.inner.resolve(&self.tree, key.as_ref(), &found)?;
                }
            }
        }
        Ok(values)
    }

    /// Whether there is a record of `key`.
    #[inline]
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.inner.check_open()?;
        self.tree.contains(key)
    }

    /// Puts a record, over an earlier one of the same key. Tells whether there was one.
    ///
    /// Key and value together are in a leaf up to [`Keyspace::max_record_bytes`]. A longer value, up to 4 GiB, is
    /// written to a place of its own in the file, and is durable there before its record is; the memory that this
    /// takes does not depend on its length (a value whose first eight bytes are those of such a place counts nine more). [`Keyspace::value_writer`] puts one that is not in memory. In a database
    /// that lives in memory alone, or with a key that leaves less than 40 bytes of a record, a longer value is
    /// `RecordTooLarge`.
    ///
    /// Errors of all changes, after which nothing has changed but after the last one: those of reads; `KeyTooLong`,
    /// `RecordTooLarge`; `MemoryLimit` for a longer value if the limit is within 128 KiB of
    /// [the smallest](crate::smallest_memory_limit_bytes); `ReadOnly`; `Poisoned` after a failed write; `DiskFull` when room can only be
    /// made by writing, and there is none; with [`Durability::Sync`] also `Unknown`.
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.store(key, value, |tree, value| tree.put(key, value), |_| true)
    }

    /// Runs a change that puts `value`, in the form that a leaf gets. `stored`: by its outcome it did.
    #[inline(always)]
    fn store<R>(
        &self,
        key: &[u8],
        value: &[u8],
        change: impl Fn(&PoolTree, &[u8]) -> Result<R>,
        stored: impl FnOnce(&R) -> bool,
    ) -> Result<R> {
        if !is_stored_form(value) {
            let outcome = self.change(|tree| change(tree, value));
            if !is_too_large(&outcome) {
                return outcome;
            }
        }
        self.change_large(key, value, change, stored)
    }

    /// Puts a record unless there is one of the same key. Tells whether it did.
    #[inline]
    pub fn insert_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let inserts = |tree: &PoolTree, value: &[u8]| tree.insert_if_absent(key, value);
        self.store(key, value, inserts, |inserted| *inserted)
    }

    /// Gives an existing record a new value. Tells whether there was one.
    #[inline]
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let updates = |tree: &PoolTree, value: &[u8]| tree.update(key, value);
        self.store(key, value, updates, |updated| *updated)
    }

    /// Makes `new` the state of `key` if its present state is `expected`; `None` is *no record*. A
    /// failure carries the present value.
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        let is_plain = |value: Option<&[u8]>| !value.is_some_and(is_stored_form);
        if is_plain(expected) && is_plain(new) {
            let swapped = self.change(|tree| tree.compare_and_swap(key, expected, new));
            let differs_large = |found: &Value| self.is_stored_form(found);
            match &swapped {
                Ok(Swap::Differs(Some(found))) if differs_large(found) => {}
                Err(_) if is_too_large(&swapped) => {}
                _ => return swapped,
            }
        }
        self.swap_large(key, expected, new)
    }

    /// Removes a record. Tells whether there was one.
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.change(|tree| tree.remove(key))
    }

    /// Removes the records whose keys lie in `bounds`. Tells how many there were. The work, the log's included, is a matter
    /// of pages and not of records; pages that are emptied are never written.
    ///
    /// Leaf by leaf, in the order of the keys: others may see a first part of the range gone, and a crash may leave it
    /// so. To remove everything at one stroke drop the keyspace.
    ///
    /// Errors: those of all changes; the records of a first part of the range are gone then.
    pub fn remove_range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Result<u64> {
        let from = match bounds.start_bound() {
            Bound::Included(key) => key.as_ref().to_vec(),
            Bound::Excluded(key) => successor(key.as_ref()),
            Bound::Unbounded => Vec::new(),
        };
        let to = match bounds.end_bound() {
            Bound::Included(key) => Some(successor(key.as_ref())),
            Bound::Excluded(key) => Some(key.as_ref().to_vec()),
            Bound::Unbounded => None,
        };
        self.change(|tree| tree.remove_range(&from, to.as_deref()))
    }

    /// The records whose keys lie in `bounds`, in order, from both ends. Bounds whose start lies behind
    /// their end hold nothing.
    pub fn range<K: AsRef<[u8]>>(&self, bounds: impl RangeBounds<K>) -> Range {
        fn own<K: AsRef<[u8]>>(bound: Bound<&K>) -> Bound<Vec<u8>> {
            bound.map(|key| key.as_ref().to_vec())
        }
        Range::new(
            self.inner.clone(),
            self.tree.clone(),
            own(bounds.start_bound()),
            own(bounds.end_bound()),
        )
    }

    /// All records, in order, from both ends.
    pub fn iter(&self) -> Range {
        self.range::<&[u8]>(..)
    }

    /// The records whose keys begin with `prefix`, in order, from both ends.
    pub fn prefix(&self, prefix: &[u8]) -> Range {
        let above = crate::key::after_prefix(prefix);
        let upper = above.map_or(Bound::Unbounded, Bound::Excluded);
        Range::new(self.inner.clone(), self.tree.clone(), Bound::Included(prefix.to_vec()), upper)
    }

    /// A cursor before the first of all records: it lends keys and values instead of copying each.
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.inner.clone(), self.tree.clone())
    }

    /// Number of records: walks all leaves. Large values are not read.
    pub fn count(&self) -> Result<u64> {
        self.inner.check_open()?;
        let mut count = 0;
        let outcome = self.tree.scan().visit(|_, _| {
            count += 1;
            ControlFlow::<()>::Continue(())
        });
        outcome.map(|_| count)
    }

    /// Loads records in strictly ascending order of their keys into the keyspace, which must be empty:
    /// the tree is built from the bottom up, its pages filled to `fill_percent` (10 to 100), and
    /// becomes visible as a whole at the end. Returns the number of records. Large values are written as they come,
    /// each once.
    ///
    /// With a log this returns once the records are durable. What others put into the keyspace after the records have
    /// become visible, and before that, a crash may leave without them.
    ///
    /// Errors: those of changes; `InvalidOption` for another `fill_percent`; `NotSorted`; `AlreadyExists` if the
    /// keyspace holds a record. After an
    /// error the keyspace is as it was; or the records are there, the store is poisoned, and when it is opened again the
    /// keyspace is as it was.
    pub fn bulk_load<K, V>(
        &self,
        records: impl IntoIterator<Item = (K, V)>,
        fill_percent: u8,
    ) -> Result<u64>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        self.try_bulk_load(records.into_iter().map(Ok::<_, Error>), fill_percent)
    }

    /// [`Self::bulk_load`] of records that may fail to come, as those that are read from a file: the first error
    /// among them ends the load, and is what this returns.
    ///
    /// Errors: those of `bulk_load`, and those of `records`.
    pub fn try_bulk_load<K, V, E>(
        &self,
        records: impl IntoIterator<Item = Result<(K, V), E>>,
        fill_percent: u8,
    ) -> Result<u64, E>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
        E: From<Error>,
    {
        self.inner.check_open()?;
        self.inner.store.bulk_load(&self.name, &self.tree, || {
            let mut load = self.tree.bulk_load(fill_percent)?;
            let mut records = records.into_iter();
            loop {
                let record = records.next();
                if let Err(forked) = self.inner.check_process() {
                    // What is loaded is the parent's.
                    std::mem::forget(load);
                    return Err(forked.into());
                }
                let Some(record) = record else { break };
                let (key, value) = record?;
                let (key, value) = (key.as_ref(), value.as_ref());
                let prepared = self.inner.prepare(&self.tree, key, value)?;
                load.push(key, prepared.bytes())?;
                prepared.keep();
            }
            Ok(load.finish()?)
        })
    }

    /// Walks the whole tree and tells its height, its pages by level, their fill, and its records.
    pub fn stats(&self) -> Result<TreeStats> {
        self.inner.check_open()?;
        self.tree.stats()
    }

    /// For tools that draw pages: shows each of them, as [`PageView`] says, until `show` breaks off.
    ///
    /// Errors: those of reads; damage of any page but the root is shown instead.
    #[doc(hidden)]
    pub fn show_pages(&self, mut show: impl FnMut(PageView<'_>) -> ControlFlow<()>) -> Result<()> {
        self.inner.check_open()?;
        self.tree.show_pages(&mut show)
    }

    /// The largest record that fits into a leaf, in bytes of key and value together; also the longest key. A longer
    /// value lies elsewhere: see [`Keyspace::put`].
    pub fn max_record_bytes(&self) -> usize {
        self.tree.max_record_bytes()
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.tree.pool().page_bytes()
    }
}
