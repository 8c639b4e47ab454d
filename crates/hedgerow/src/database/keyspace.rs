//! A named, ordered map from byte strings to byte strings.
//!
//! Rank 7. What users need to know of it stands with [`Keyspace`]. Invariant: `tree` is a tree of the store in `inner`.
//! `Send + Sync`.

use crate::database::cursor::Cursor;
use crate::database::inner::Inner;
use crate::database::long::{self, is_long};
use crate::database::opened::{OpenedAt, Used, UsedTree};
use crate::database::options::Durability;
use crate::database::range::Range;
use crate::database::values::{Resolved, is_record};
use crate::error::{Error, ErrorKind, Result};
use crate::key::{KeyRange, owned_bounds};
use crate::large::is_stored_form;
use crate::node::anatomy::Reference;
use crate::page::Frames;
use crate::store::PoolTree;
use crate::tree::{CompareAndSwap, ContentionSplit, PageView, TreeStats, Value};
use crate::wait::Wait;
use hedgerow_sync::primitive::Arc;
use std::borrow::Cow;
use std::fmt;
use std::ops::ControlFlow;

/// Values that [`Keyspace::get_many`] asks for together at most.
const AT_ONCE: usize = 64;

/// A named, ordered map from byte strings to byte strings. A [`Database`](crate::Database) has any number of them.
///
/// An owned handle without lifetimes: it keeps its database open, and cloning it is cheap. `Send + Sync`: any number of
/// threads use one handle, or clones of it. Keys are ordered byte by byte.
///
/// Each operation on one record is linearizable; [`Keyspace::remove_range`] goes from leaf to leaf. A range or a cursor sees each leaf as it was at one moment, but it is not a snapshot: it
/// sees a record that exists during the whole iteration exactly once, and may or may not see one that is added or removed meanwhile.
/// A value that no leaf holds is read after its leaf: it is the value of that moment, or a later one of the same key, and always whole.
/// Changes that a crash must keep or lose together are a [`WriteBatch`](crate::WriteBatch).
///
/// A look-up whose pages are in memory normally waits for no other thread. A call may wait for a page to be read, or for a latch that
/// another thread holds on a page. A change may also wait for room in memory or in the log. Each of these waits is bounded. A change also
/// waits for a large commit of another thread ([`WriteBatch`](crate::WriteBatch)), which ends when that commit does. A change of a key longer than
/// [`Keyspace::max_short_key_bytes`] waits for changes of keys that begin alike, and now and then for calls that keep such records in place.
/// [`Keyspace::with_wait`] bounds or cancels all of these. With [`Durability::Sync`] a change also waits for an fsync of the log.
///
/// # Errors of reads
///
/// [`Closed`](crate::ErrorKind::Closed); [`ForkedProcess`](crate::ErrorKind::ForkedProcess);
/// [`KeyspaceDropped`](crate::ErrorKind::KeyspaceDropped); [`Io`](crate::ErrorKind::Io) and
/// [`Corrupted`](crate::ErrorKind::Corrupted) when a page has to be read; [`MemoryLimit`](crate::ErrorKind::MemoryLimit) and [`Timeout`](crate::ErrorKind::Timeout) when there is no room for it in time.
/// With [`Keyspace::with_wait`] also [`WouldBlock`](crate::ErrorKind::WouldBlock) and [`Cancelled`](crate::ErrorKind::Cancelled).
///
/// # Errors of changes
///
/// After these nothing has changed: the errors of reads; [`ReadOnly`](crate::ErrorKind::ReadOnly);
/// [`KeyTooLong`](crate::ErrorKind::KeyTooLong); [`RecordTooLarge`](crate::ErrorKind::RecordTooLarge); [`DiskFull`](crate::ErrorKind::DiskFull) when
/// room can only be made by writing, and the disk has none; [`Poisoned`](crate::ErrorKind::Poisoned) after a failed write or fsync.
///
/// With [`Durability::Sync`] also [`DurabilityUnknown`](crate::ErrorKind::DurabilityUnknown): the change is in effect, and a crash may
/// undo it. With both [`Durability::Sync`] and [`Keyspace::with_wait`] also [`NotYetDurable`](crate::ErrorKind::NotYetDurable): the change
/// is in effect, and will be durable.
#[derive(Clone)]
pub struct Keyspace {
    pub(super) inner: Arc<Inner>,
    pub(super) tree: PoolTree,
    name: Arc<str>,
    /// Where transactions find the tree; `None`: they have to take this one.
    opened: Option<OpenedAt>,
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
        let name = Arc::from(name);
        let opened = inner.opened.note(&tree, &name);
        let tree = tree.with_short_keys(true);
        Keyspace { inner, tree, name, opened, durability }
    }

    /// The same keyspace, as a handle whose changes are durable as `durability` says. Other handles keep their own setting. For batches
    /// see [`WriteBatch::set_durability`](crate::WriteBatch::set_durability). It has no effect in a store without a log
    /// ([`Durability::Sync`]).
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// # let directory = tempfile::tempdir().map_err(|error| hedgerow::Error::io("no directory", error))?;
    /// # let path = directory.path().join("shop.hrow");
    /// let db = hedgerow::Options::new().memory_limit_bytes(16 << 20).create(path)?;
    /// let orders = db.keyspace("orders")?.with_durability(hedgerow::Durability::Sync);
    /// orders.put(b"1", b"two wrens")?; // durable when it returns
    /// # db.close() }
    /// ```
    #[must_use]
    pub fn with_durability(mut self, durability: Durability) -> Keyspace {
        self.durability = durability;
        self
    }

    /// The same keyspace, as a handle whose changes split leaves that threads contend for by `split`, or never (`None`). Other handles
    /// keep their own setting, so to switch it off, set it on each handle that changes the keyspace. Default:
    /// [`ContentionSplit::if_thirtieth_contended`], for all handles.
    ///
    /// If threads update different keys of one leaf at the same time, they wait for each other without need. Such a leaf is split
    /// between the keys, although it is not full: each split costs a page of memory and of the file. The two leaves are not merged
    /// again as long as they are in use. [`Stats::contention`](crate::Stats::contention) counts the splits, and
    /// [`Database::hot_leaves`](crate::Database::hot_leaves) lists the leaves.
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// let packed = db.keyspace("archive")?.with_contention_split(None);
    /// packed.put(b"1", b"two wrens")?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_contention_split(mut self, split: Option<ContentionSplit>) -> Keyspace {
        self.tree = self.tree.with_contention_split(split);
        self.opened = None;
        self
    }

    /// The same keyspace, as a handle whose calls wait as `wait` says. Other handles keep their own setting. Default:
    /// [`Wait::Default`]. Cursors, ranges, readers and writers that the handle makes wait as it does, and so do
    /// [batches](crate::WriteBatch::set_wait) whose first change is of it.
    ///
    /// It holds for every wait for other threads and for room: for the latch of a page, for a free frame and for admission to the
    /// pool, for changed pages to be written when too many are, for room in the log, in the page map's list of changes and in a full
    /// file, for memory to read and write large values, for changes of long keys that begin with the same bytes, for a large commit of another thread, for memory for old versions that snapshots need, and, behind the change,
    /// for the log to be durable. A wait ends within 20 ms of its time, or of its token. Then nothing has changed (but for a first part of `remove_range`, and of a large batch without a log), and the error is [`WouldBlock`](crate::ErrorKind::WouldBlock),
    /// [`Timeout`](crate::ErrorKind::Timeout) or [`Cancelled`](crate::ErrorKind::Cancelled). If the call waited for
    /// the log, the change is made: the error is [`NotYetDurable`](crate::ErrorKind::NotYetDurable).
    ///
    /// It does not hold for the disk: reading a page, writing a large value, or a disk operation of another thread that a
    /// mutex guards, takes its time. Nor for loading, compacting and dropping a keyspace. A call that meets no obstacle is
    /// not disturbed by a time that is over, or a token that was cancelled. For a large value, look-up and read each get the time of [`Wait::For`],
    /// as does each step of a scan and each call of a stream.
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// use hedgerow::{ErrorKind, Wait};
    ///
    /// let now_or_never = db.keyspace("orders")?.with_wait(Wait::Never);
    /// match now_or_never.put(b"1", b"two wrens") {
    ///     Err(error) if error.kind() == ErrorKind::WouldBlock => {} // ask again later
    ///     put => assert!(!put?, "there was no such order"),
    /// }
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with_wait(mut self, wait: Wait) -> Keyspace {
        self.tree = self.tree.with_wait(wait);
        self.opened = None;
        self
    }

    /// For benchmarks: the same keyspace, as a handle whose insertions make room as a B*-tree does.
    #[cfg(hedgerow_internals)]
    #[doc(hidden)]
    #[must_use]
    pub fn with_b_star(mut self, is_b_star: bool) -> Keyspace {
        self.tree = self.tree.with_b_star(is_b_star);
        self.opened = None;
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

    /// Runs a change that may come to nothing, and waits until it is durable if it `is_made` and that was asked for. An error of that wait says
    /// of a change that it is in effect, so nothing else is waited for.
    #[inline]
    pub(super) fn change_if<R>(
        &self,
        change: impl FnOnce(&PoolTree) -> Result<R>,
        is_made: impl FnOnce(&R) -> bool,
    ) -> Result<R> {
        self.inner.check_open()?;
        if self.durability == Durability::Sync {
            return self.change_durably(change, is_made);
        }
        change(&self.tree)
    }

    #[inline(never)]
    fn change_durably<R>(
        &self,
        change: impl FnOnce(&PoolTree) -> Result<R>,
        is_made: impl FnOnce(&R) -> bool,
    ) -> Result<R> {
        let wait = self.tree.wait().for_one_call();
        let outcome = change(&self.tree)?;
        if is_made(&outcome) {
            self.inner.store.flush_log_within(&wait.begin())?;
        }
        Ok(outcome)
    }

    /// This handle, or one like it for the steps of one call, which share the time that it may wait.
    pub(super) fn for_one_call(&self) -> Cow<'_, Keyspace> {
        match self.tree.wait() {
            wait @ Wait::For(_) => Cow::Owned(self.clone().with_wait(wait.for_one_call())),
            _ => Cow::Borrowed(self),
        }
    }

    /// The name of the keyspace, as it was given when the handle was made.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its tree for a transaction, which waits as `wait` says if that says anything.
    #[inline]
    pub(super) fn used_tree(&self, wait: Option<&Wait>) -> UsedTree {
        match (self.opened, wait) {
            (Some(at), None | Some(Wait::Default)) => UsedTree::Opened(at),
            _ => self.own_tree(wait),
        }
    }

    #[inline(never)]
    fn own_tree(&self, wait: Option<&Wait>) -> UsedTree {
        let tree = self.tree.clone().with_short_keys(false);
        let wait = wait.unwrap_or(tree.wait()).clone();
        let used = Used { name: self.name.clone(), tree: tree.with_wait(wait) };
        UsedTree::Own(Arc::new(used))
    }

    /// The value of `key`, copied; `None` if there is no record. Up to 112 bytes are copied without an allocation. A large value is
    /// read whole; [`Keyspace::get_range`] and [`Keyspace::value_reader`] read parts.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Value>> {
        self.inner.check_open()?;
        let found = self.tree.get(key);
        match &found {
            Ok(Some(value)) if self.is_stored_form(value) => self.get_stored(key, value),
            Ok(None) if is_long(&self.tree, key) => self.inner.get_long(&self.tree, key),
            _ => found,
        }
    }

    /// [`Keyspace::get`] of what the tree has in a stored form. A long key may look like the tree key of another one.
    #[inline(never)]
    fn get_stored(&self, key: &[u8], value: &[u8]) -> Result<Option<Value>> {
        match is_long(&self.tree, key) {
            true => self.inner.get_long(&self.tree, key),
            false => self.inner.resolve(&self.tree, key, value),
        }
    }

    /// Whether a value out of a leaf stands for another one.
    #[inline]
    pub(super) fn is_stored_form(&self, value: &[u8]) -> bool {
        self.inner.store.has_stored_forms() && is_stored_form(value)
    }

    /// Replaces the contents of `value` by the value of `key`, and returns whether there is a record. `value` is empty otherwise. It
    /// allocates only if `value` is too small.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    #[inline]
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.inner.check_open()?;
        let found = self.tree.get_into(key, value)?;
        if found && self.is_stored_form(value) {
            if is_long(&self.tree, key) {
                return self.inner.get_long_into(&self.tree, key, value);
            }
            // The reference is short, and is copied so that the value gets its memory.
            let reference = Value::from(value.as_slice());
            let resolved = self.inner.resolve_into(&self.tree, key, &reference, value)?;
            return Ok(resolved != Resolved::Gone);
        }
        if !found && is_long(&self.tree, key) {
            return self.inner.get_long_into(&self.tree, key, value);
        }
        Ok(found)
    }

    /// The values of many keys, in the order of the keys. Cheaper than as many calls of [`Keyspace::get`]: cache misses and page reads
    /// overlap, but for those of keys longer than [`Keyspace::max_short_key_bytes`]. Each value is linearizable, not all of them together.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        self.inner.check_open()?;
        let mut values = self.tree.get_many(keys)?;
        if self.inner.store.has_stored_forms() {
            let mut asked_for = 0;
            for (at, key) in keys.iter().enumerate() {
                // Those that are not in memory are read together, as many as there is room for before they are needed.
                if at == asked_for {
                    let next = values[at..].iter().take(AT_ONCE);
                    let next = next.map(|value| value.as_deref().unwrap_or_default());
                    asked_for += self.inner.store.read_values_ahead(next);
                }
                let value = &mut values[at];
                if is_long(&self.tree, key.as_ref()) {
                    *value = self.inner.get_long(&self.tree, key.as_ref())?;
                } else if let Some(found) = value.take_if(|value| is_stored_form(value)) {
                    *value = self.inner.resolve(&self.tree, key.as_ref(), &found)?;
                }
            }
        }
        Ok(values)
    }

    /// Whether there is a record of `key`. Costs as much as [`Keyspace::get`] of a short value; large values are not read.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    #[inline]
    pub fn contains_key(&self, key: &[u8]) -> Result<bool> {
        self.inner.check_open()?;
        if is_long(&self.tree, key) {
            return self.inner.contains_long(&self.tree, key);
        }
        self.tree.contains_key(key)
    }

    /// Puts a record. If there is one of the same key, its value is replaced. Returns whether there was one.
    ///
    /// A record of up to [`Keyspace::max_record_bytes`] is stored in a leaf. A longer value, up to 4 GiB, is written to a place of its
    /// own in the file, and is durable there before its record is; the memory that this takes does not depend on its length, but for a key
    /// longer than [`Keyspace::max_short_key_bytes`]: then the value is copied once.
    /// (A value whose first eight bytes look like a reference to such a place counts nine bytes more.)
    /// [`Keyspace::value_writer`] puts one that is not in memory. A key has at most [`Keyspace::max_key_bytes`].
    ///
    /// The part of a key behind [`Keyspace::max_short_key_bytes`] is stored in front of the value, and counts with it. Of such long keys that begin with
    /// the same bytes up to there, a look-up compares about as many as a binary search does, and changes wait for each other.
    ///
    /// # Errors
    /// The [errors of changes](Keyspace#errors-of-changes). [`RecordTooLarge`](crate::ErrorKind::RecordTooLarge) in a database in memory for a
    /// value of more than about 1.9 MB (with pages of 4 KiB; less for long keys);
    /// [`MemoryLimit`](crate::ErrorKind::MemoryLimit) for a longer value if the limit is within 128 KiB of
    /// [the smallest](crate::smallest_memory_limit_bytes).
    #[inline]
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        self.store(key, value, |tree, key, value| tree.put(key, value), |_| true, None)
    }

    /// Runs a change that puts `value`, in the form that a leaf gets. `stored`: by its outcome it did. `only_if`: it is false unless there is a
    /// record, or is none.
    #[inline(always)]
    fn store(
        &self,
        key: &[u8],
        value: &[u8],
        change: impl Fn(&PoolTree, &[u8], &[u8]) -> Result<bool>,
        stored: impl Fn(&bool) -> bool,
        only_if: Option<bool>,
    ) -> Result<bool> {
        match is_record(&self.tree, key, value) {
            true => self.change_if(|tree| change(tree, key, value), &stored),
            false => self.change_large(key, value, change, stored, only_if),
        }
    }

    /// Puts a record unless there is one of the same key. Returns whether it did. A value that is too long for a leaf costs a look-up more, and is
    /// written to the file if that finds no record; if another thread puts one meanwhile, its place is given back.
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    #[inline]
    pub fn insert_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let inserts = |tree: &PoolTree, key: &[u8], value: &[u8]| tree.insert_if_absent(key, value);
        self.store(key, value, inserts, |inserted| *inserted, Some(false))
    }

    /// Gives an existing record a new value. Returns whether there was one; if not, nothing is put. A value that is too long for a leaf costs a
    /// look-up more, and is written to the file if that finds a record.
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    #[inline]
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let updates = |tree: &PoolTree, key: &[u8], value: &[u8]| tree.update(key, value);
        self.store(key, value, updates, |updated| *updated, Some(true))
    }

    /// Makes `new` the state of `key` if its present state is `expected`, in one atomic step. `None` stands for *no record*. If the
    /// state differs, the result carries the present value.
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let counters = db.keyspace("counters")?;
    /// assert!(counters.compare_and_swap(b"wrens", None, Some(b"1"))?.is_swapped());
    /// assert!(!counters.compare_and_swap(b"wrens", Some(b"7"), Some(b"8"))?.is_swapped());
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Keyspace::put`].
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<CompareAndSwap> {
        let this = self.for_one_call();
        let is_plain = !expected.is_some_and(is_stored_form);
        if is_plain && is_record(&self.tree, key, new.unwrap_or_default()) {
            let swaps = |tree: &PoolTree| tree.compare_and_swap(key, expected, new);
            let is_made = |swapped: &CompareAndSwap| is_change(swapped, expected, new);
            let swapped = this.change_if(swaps, is_made);
            let differs_large = |found: &Value| self.is_stored_form(found);
            match &swapped {
                Ok(CompareAndSwap::Differs(Some(found))) if differs_large(found) => {}
                _ => return swapped,
            }
        }
        this.swap_large(key, expected, new)
    }

    /// Removes the record of `key`. Returns whether there was one.
    ///
    /// # Errors
    /// The [errors of changes](Keyspace#errors-of-changes).
    #[inline]
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        if is_long(&self.tree, key) {
            return self.remove_long(key);
        }
        // That there is none is durable, too: an earlier removal may not be yet.
        self.change_if(|tree| tree.remove(key), |_| true)
    }

    /// Removes the records whose keys lie in `bounds`, and returns their number. Its cost and its bytes in the log grow with the number of
    /// pages, not of records. Pages that become empty are freed without being written.
    ///
    /// It removes leaf by leaf, in the order of the keys. Other threads may see the first part of the range gone, and a crash or an
    /// error may leave it so. To remove everything at once, drop the keyspace.
    ///
    /// # Errors
    /// The [errors of changes](Keyspace#errors-of-changes); the records of a first part of the range may be gone then.
    pub fn remove_range(&self, bounds: impl KeyRange) -> Result<u64> {
        let (lower, upper) = bounds.bounds();
        self.remove_between(lower, upper)
    }

    /// An iterator over the records whose keys lie in `bounds`, in order, from both ends. If the start lies behind the end there are none.
    /// This call reads nothing; each step may read and fail, with the [errors of reads](Keyspace#errors-of-reads).
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// let birds = db.keyspace("birds")?;
    /// for name in ["dunnock", "robin", "wren"] {
    ///     birds.put(name.as_bytes(), b"hedges")?;
    /// }
    /// let (last, _) = birds.range("a".."s").next_back().unwrap()?;
    /// assert_eq!(last, b"robin");
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    pub fn range(&self, bounds: impl KeyRange) -> Range {
        let (lower, upper) = owned_bounds(&bounds);
        Range::new(self.inner.clone(), self.tree.clone(), lower, upper)
    }

    /// An iterator over all records, in order, from both ends. This call reads nothing; see [`Keyspace::range`]. [`Range::keys`] and
    /// [`Range::values`] make one over half of each.
    pub fn iter(&self) -> Range {
        self.range(..)
    }

    /// An iterator over the records whose keys begin with `prefix`, in order, from both ends. This call reads nothing; see
    /// [`Keyspace::range`]. For other calls [`prefix_range`](crate::prefix_range) has the bounds.
    pub fn prefix(&self, prefix: &[u8]) -> Range {
        let (lower, upper) = crate::key::prefix_range(prefix);
        Range::new(self.inner.clone(), self.tree.clone(), lower, upper)
    }

    /// A cursor before the first record. It lends keys and values instead of copying each, so it is faster than [`Keyspace::range`]. This
    /// call reads nothing.
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let birds = db.keyspace("birds")?;
    /// birds.put(b"wren", b"hedges")?;
    /// let mut cursor = birds.cursor();
    /// cursor.seek(b"w");
    /// assert_eq!(cursor.next_record()?, Some((&b"wren"[..], &b"hedges"[..])));
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        Cursor::new(self.inner.clone(), self.tree.clone())
    }

    /// Loads records, in strictly ascending order of their keys, into the keyspace, which must be empty. The tree is built from the
    /// bottom up, its pages filled to `fill_percent` (10 to 100), and becomes visible as a whole at the end. Returns the number of
    /// records. Large values are written as they come, each once. Several times as fast as single puts.
    ///
    /// With a log this returns once the records are durable, which takes a checkpoint. A crash before that loses the load, and keeps what
    /// other threads have changed in the keyspace meanwhile as far as it was durable, also changes that were made after the
    /// records became visible. Its begin and its end wait while a keyspace is dropped, until all pages of that are freed.
    ///
    /// ```
    /// # let db = hedgerow::Options::new().in_memory()?;
    /// # let numbers = db.keyspace("numbers")?;
    /// let records = (0..1_000_u32).map(|n| (n.to_be_bytes(), b"value"));
    /// assert_eq!(numbers.bulk_load(records, 100)?, 1_000);
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// The [errors of changes](Keyspace#errors-of-changes); [`InvalidArgument`](crate::ErrorKind::InvalidArgument) for another `fill_percent`, or
    /// too many long keys that begin with the same bytes; [`NotSorted`](crate::ErrorKind::NotSorted); [`KeyspaceNotEmpty`](crate::ErrorKind::KeyspaceNotEmpty). After an error the keyspace is as it
    /// was. If the final checkpoint failed, or another thread closed the database during it, this holds from the next open on: until then the records are visible, and a store that was not closed is
    /// poisoned.
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

    /// [`Keyspace::bulk_load`] of an iterator that can fail, for example one that reads a file. Its first error ends the load and is
    /// returned.
    ///
    /// # Errors
    /// Those of [`Keyspace::bulk_load`], and those of `records`.
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
        self.inner.store.bulk_load(&self.name, &self.tree, |leaves_pages| {
            let tree = long::tree_of(&self.tree);
            let load = tree.bulk_load(fill_percent).map_err(|error| self.not_empty(error))?;
            let mut load = load.telling(leaves_pages);
            let mut long = long::Loading::default();
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
                let (key, prepared) = match is_long(&tree, key) {
                    true => long.prepare(&self.inner, &tree, key, value)?,
                    false => (Cow::Borrowed(key), self.inner.prepare(&tree, key, value)?),
                };
                load.push(&key, prepared.bytes())?;
                prepared.keep();
            }
            let _locked = long.lock(&self.inner, &tree)?;
            Ok(load.finish().map_err(|error| self.not_empty(error))?)
        })
    }

    /// Names the keyspace in the error of a bulk load.
    fn not_empty(&self, error: Error) -> Error {
        if error.kind() != ErrorKind::KeyspaceNotEmpty {
            return error;
        }
        let name = self.name.escape_debug();
        let what = format!(
            "a bulk load needs an empty keyspace, and `{name}` has records: put the new ones, or load another keyspace and \
             exchange the two with `Database::swap_keyspaces`"
        );
        Error::new(ErrorKind::KeyspaceNotEmpty, what)
    }

    /// Reads every page of the keyspace: not for a metrics loop, which [`Database::stats`](crate::Database::stats) is for. Returns the height
    /// of the tree, its pages by level, their fill, its number of records, and the bytes of its values by where they are. Reads no value that is not in a leaf.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn stats(&self) -> Result<TreeStats> {
        self.inner.check_open()?;
        self.tree.stats_with_values(self.inner.store.unit_bytes())
    }

    /// Where the parts of a value lie in the file that is not in its leaf: offsets and lengths in bytes. For tools that draw pages.
    ///
    /// # Errors
    /// [`Corrupted`](crate::ErrorKind::Corrupted) if there can be no such value in this file; [`Closed`](crate::ErrorKind::Closed).
    pub fn extent_places(&self, reference: &Reference) -> Result<Vec<(u64, u64)>> {
        self.inner.check_open()?;
        self.inner.store.extent_places(reference.extent.as_ref())
    }

    /// Shows each page of the keyspace's tree, until `show` breaks off. For tools that draw pages.
    ///
    /// Inner nodes come before their children, and those in the order of their keys. A page is shown once, as a private copy. Nothing is
    /// latched meanwhile, so under writers each page is what it was at one moment. It reads the whole tree.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads). Damage of any page but the root is shown instead.
    pub fn show_pages(&self, mut show: impl FnMut(PageView<'_>) -> ControlFlow<()>) -> Result<()> {
        self.inner.check_open()?;
        let forked = || self.inner.check_process();
        self.tree.show_pages(&mut |page| {
            let flow = show(page);
            // In a process that was forked meanwhile nobody goes on with it.
            if forked().is_ok() { flow } else { ControlFlow::Break(()) }
        })?;
        forked()
    }

    /// The longest key, in bytes: 65,536. In memory, pages below 2 KiB take shorter ones.
    #[must_use]
    pub fn max_key_bytes(&self) -> usize {
        long::MAX_KEY_BYTES
    }

    /// The longest key that lies in a leaf as it is, in bytes: about a quarter of a page (980 bytes of 4 KiB). The part of a longer one behind that is
    /// stored with its value: see [`Keyspace::put`].
    #[must_use]
    pub fn max_short_key_bytes(&self) -> usize {
        self.tree.max_short_key_bytes()
    }

    /// The largest record that fits into a leaf, in bytes of key and value together: about half of a page (1,960 bytes of
    /// 4 KiB). A longer value is stored elsewhere: see [`Keyspace::put`].
    #[must_use]
    pub fn max_record_bytes(&self) -> usize {
        self.tree.max_record_bytes()
    }

    /// The size of a page in bytes. It was chosen when the database was created.
    #[must_use]
    pub fn page_bytes(&self) -> usize {
        self.tree.pool().page_bytes()
    }
}

/// Whether a swap has changed anything: that of no record for no record has not.
pub(super) fn is_change(
    swapped: &CompareAndSwap,
    expected: Option<&[u8]>,
    new: Option<&[u8]>,
) -> bool {
    swapped.is_swapped() && (expected.is_some() || new.is_some())
}

/// All records, in order: [`Keyspace::iter`].
impl IntoIterator for &Keyspace {
    type Item = Result<(Value, Value)>;
    type IntoIter = Range;

    fn into_iter(self) -> Range {
        self.iter()
    }
}
