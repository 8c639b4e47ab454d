//! A keyspace in a transaction: all reads of a keyspace, and the changes.
//!
//! Reads find the transaction's own changes first, then what its snapshot sees, and are noted for the commit. Changes go no further than the
//! transaction. `Send + Sync`.

use super::State;
use super::reads::Growing;
use super::writes::{TreeWrites, merge, placed};
use crate::database::Isolation;
use crate::database::inner::Inner;
use crate::database::long::{Spot, bounds_of, is_long, spot_of};
use crate::database::modify::integer;
use crate::database::opened::UsedTree;
use crate::database::reads::reads;
use crate::database::snapshot_stretches::SnapshotStretches;
use crate::database::stretch::{Stretch, Stretches, Wanted};
use crate::database::values::Seen;
use crate::database::view::View;
use crate::error::Result;
use crate::key::{KeyRange, owned_bounds};
use crate::store::{Found, OpenSnapshot, PoolTree};
use crate::tree::{CompareAndSwap, Value};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use std::fmt;
use std::ops::Bound;

/// A keyspace in a [`Transaction`](crate::Transaction), as that sees it. Cloning it is cheap. `Send + Sync`. It does not keep the transaction from
/// ending; then every call is [`TransactionEnded`](crate::ErrorKind::TransactionEnded).
///
/// A cursor or an iterator has the transaction's own changes as they were when it was made. In a serializable transaction each of its steps copies the
/// key, and takes the transaction's lock for a moment.
#[derive(Clone)]
pub struct TransactionKeyspace {
    view: TransactionView,
}

impl fmt::Debug for TransactionKeyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionKeyspace").finish_non_exhaustive()
    }
}

reads!(
    TransactionKeyspace,
    "The [errors of reads](crate::Keyspace#errors-of-reads); [`SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld); [`TransactionEnded`](crate::ErrorKind::TransactionEnded)."
);

/// # Changes
///
/// They are kept by the transaction, and are made by its commit. One copies the changes in its keyspace once if a cursor or an iterator made since the last copy
/// lives. Errors of all of them: [`Closed`](crate::ErrorKind::Closed); [`ForkedProcess`](crate::ErrorKind::ForkedProcess); [`TransactionEnded`](crate::ErrorKind::TransactionEnded);
/// [`KeyTooLong`](crate::ErrorKind::KeyTooLong); [`RecordTooLarge`](crate::ErrorKind::RecordTooLarge); [`TransactionTooLarge`](crate::ErrorKind::TransactionTooLarge).
/// Nothing has changed then.
impl TransactionKeyspace {
    #[inline]
    pub(super) fn new(state: Arc<State>, tree: UsedTree) -> TransactionKeyspace {
        TransactionKeyspace { view: TransactionView { state, tree, changes: None } }
    }

    #[inline]
    fn view(&self) -> &TransactionView {
        &self.view
    }

    fn named(&self) -> &str {
        &self.view.tree.of(&self.view.state.inner().opened).name
    }

    fn shared_view(&self) -> Arc<dyn View> {
        let TransactionView { state, tree, .. } = self.view.clone();
        let id = self.view.tree().id();
        // Of one that has ended the first step says so.
        let changes = state.inner().check_open().and_then(|()| {
            state.with_body(|body| match body.is_empty() {
                true => Ok(None),
                false => Ok(body.with_all().writes.of(id).cloned()),
            })
        });
        Arc::new(TransactionView { state, tree, changes: changes.unwrap_or(None) })
    }

    /// The value of `key`. In any isolation the commit fails with [`Conflict`](crate::ErrorKind::Conflict) if another has changed it by then, unless
    /// the transaction had changed it itself before it read anything. In a serializable transaction this holds of every read. A transaction that
    /// changes nothing has no conflict.
    ///
    /// # Errors
    /// Those of [`TransactionKeyspace::get`].
    pub fn get_for_update(&self, key: &[u8]) -> Result<Option<Value>> {
        let (state, tree) = (&self.view.state, self.view.tree());
        state.inner().check_open()?;
        let used = (tree.id(), &self.view.tree);
        if is_long(tree, key) {
            let place = self.view.spot(key)?.first;
            state.note_long(used, |reads| reads.key(tree.id(), &place))?;
        } else {
            state.with_body(|body| {
                state.note_key(body, used, key);
                Ok(())
            })?;
        }
        self.get(key)
    }

    /// Puts a record, over one of the same key if there is one. Reads nothing.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes).
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.change(key, Some(value))
    }

    /// Removes the record of `key`, if there is one. Reads nothing.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes).
    pub fn remove(&self, key: &[u8]) -> Result<()> {
        self.change(key, None)
    }

    /// Puts a record unless there is one of the same key. Returns whether it did.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn insert_if_absent(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let is_absent = self.get_for_update(key)?.is_none();
        if is_absent {
            self.put(key, value)?;
        }
        Ok(is_absent)
    }

    /// Gives an existing record a new value. Returns whether there was one; if not, nothing is put.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn update(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let is_there = self.get_for_update(key)?.is_some();
        if is_there {
            self.put(key, value)?;
        }
        Ok(is_there)
    }

    /// Makes `new` the state of `key` if its present state is `expected`; `None` stands for *no record*. If the state differs, the result
    /// carries the present value.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<CompareAndSwap> {
        let present = self.get_for_update(key)?;
        if present.as_deref() != expected {
            return Ok(CompareAndSwap::Differs(present));
        }
        if new.is_some() || present.is_some() {
            self.change(key, new)?;
        }
        Ok(CompareAndSwap::Swapped)
    }

    /// Changes the record of `key` to what `change` makes of it, and returns the value before. `None` stands for *no record*.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn fetch_update<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Value>> {
        Ok(self.modify(key, change)?.0)
    }

    /// [`TransactionKeyspace::fetch_update`] that returns the new value; `None` if there is no record now.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn update_and_fetch<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<V>> {
        Ok(self.modify(key, change)?.1)
    }

    /// Adds `number` to the integer of `key`, and returns the integer before, as [`Keyspace::fetch_add`](crate::Keyspace::fetch_add) does.
    ///
    /// # Errors
    /// [`InvalidArgument`](crate::ErrorKind::InvalidArgument) if the value is no integer; those of [all changes](TransactionKeyspace#changes) and of
    /// [`TransactionKeyspace::get`].
    pub fn fetch_add(&self, key: &[u8], number: i64) -> Result<i64> {
        let old = self.get_for_update(key)?.as_deref().map_or(Ok(0), integer)?;
        self.put(key, &old.wrapping_add(number).to_be_bytes())?;
        Ok(old)
    }

    /// The value of `key`. If there is no record, what `make` returns is put, and is the value.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn get_or_insert_with<V: Into<Value>>(
        &self,
        key: &[u8],
        make: impl FnOnce() -> V,
    ) -> Result<Value> {
        if let Some(found) = self.get_for_update(key)? {
            return Ok(found);
        }
        let made = make().into();
        self.put(key, &made)?;
        Ok(made)
    }

    /// [`TransactionKeyspace::put`] that returns the value before.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn swap(&self, key: &[u8], value: &[u8]) -> Result<Option<Value>> {
        self.fetch_update(key, |_| Some(value))
    }

    /// [`TransactionKeyspace::remove`] that returns the value before.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn take(&self, key: &[u8]) -> Result<Option<Value>> {
        self.fetch_update(key, |_| None::<&[u8]>)
    }

    /// Removes the record of the least key, and returns it; `None` if there is none. A queue: of several transactions that take the same
    /// record one commits, and the others have a conflict. It walks over the transaction's own removals each time.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn pop_first(&self) -> Result<Option<(Value, Value)>> {
        self.pop(self.first()?)
    }

    /// [`TransactionKeyspace::pop_first`] at the other end: the record of the greatest key.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`].
    pub fn pop_last(&self) -> Result<Option<(Value, Value)>> {
        self.pop(self.last()?)
    }

    fn pop(&self, found: Option<(Value, Value)>) -> Result<Option<(Value, Value)>> {
        if let Some((key, _)) = &found {
            self.remove(key)?;
        }
        Ok(found)
    }

    /// Removes the records whose keys lie in `bounds`, and returns their number. Reads their keys; in any isolation nobody else may have added or
    /// changed a record there by the commit.
    ///
    /// # Errors
    /// Those of [all changes](TransactionKeyspace#changes) and of [`TransactionKeyspace::get`]. After one, some of the records may be removed in the
    /// transaction.
    pub fn remove_range(&self, bounds: impl KeyRange) -> Result<u64> {
        self.view.check()?;
        let (lower, upper) = owned_bounds(&bounds);
        if crate::database::stretch::is_empty(&lower, &upper) {
            return Ok(0);
        }
        let (state, tree) = (&self.view.state, self.view.tree());
        let (low, high) = bounds_of(&self.view, &lower, &upper)?;
        let (low, high) = (low.as_ref().map(Vec::as_slice), high.as_ref().map(Vec::as_slice));
        state.note_range(&self.view.tree, (low, high), |reads| {
            reads.interval(tree.id(), low, high);
        })?;
        let mut removed = 0;
        for key in self.range((lower.clone(), upper.clone())).keys() {
            self.remove(&key?)?;
            removed += 1;
        }
        Ok(removed)
    }

    /// The values before and after.
    fn modify<V: AsRef<[u8]>>(
        &self,
        key: &[u8],
        change: impl FnOnce(Option<&[u8]>) -> Option<V>,
    ) -> Result<(Option<Value>, Option<V>)> {
        let present = self.get_for_update(key)?;
        let new = change(present.as_deref());
        if new.is_some() || present.is_some() {
            self.change(key, new.as_ref().map(AsRef::as_ref))?;
        }
        Ok((present, new))
    }

    #[inline]
    fn change(&self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        let (state, tree) = (&self.view.state, self.view.tree());
        let inner = state.inner();
        inner.check_open()?;
        inner.check_put(tree, key, value.unwrap_or(&[]))?;
        let is_long = is_long(tree, key);
        if is_long {
            state.has_long_keys.store(true, Relaxed);
        }
        let most = inner.store.most_commit_bytes();
        state.with_body(|body| {
            body.trees.note(tree.id(), &self.view.tree);
            let is_noted = match is_long {
                true => Ok(false),
                false => body.few.put(tree.id(), key, value, most),
            };
            if is_noted.map_err(|len_bytes| state.too_large(len_bytes))? {
                return Ok(());
            }
            let writes = &mut body.with_all().writes;
            let len_bytes = writes.len_bytes_with(tree.id(), key, value);
            if len_bytes > most {
                return Err(state.too_large(len_bytes));
            }
            writes.put(tree.id(), key, value);
            Ok(())
        })
    }
}

#[derive(Clone)]
struct TransactionView {
    state: Arc<State>,
    tree: UsedTree,
    /// Those of the transaction in this tree when a cursor or an iterator was made, which sees no others.
    changes: Option<Arc<TreeWrites>>,
}

impl View for TransactionView {
    fn inner(&self) -> &Arc<Inner> {
        self.state.inner()
    }

    fn check(&self) -> Result<()> {
        self.state.inner().check_open()?;
        self.state.with_body(|_| Ok(()))
    }

    fn see(&self, key: &[u8]) -> Result<Option<Seen>> {
        self.state.inner().check_open()?;
        let tree = self.tree();
        let (own, begun) = self.state.with_body(|body| {
            if let Some(own) = body.change(tree.id(), key) {
                return Ok((Some(own.map(Value::from)), None));
            }
            if self.state.isolation == Isolation::Serializable && !is_long(tree, key) {
                self.state.note_key(body, (tree.id(), &self.tree), key);
            }
            Ok((None, body.snapshot.clone()))
        })?;
        if let Some(own) = own {
            return Ok(own.map(|value| Seen::new(value, false)));
        }
        if is_long(tree, key) {
            return self.see_long(key);
        }
        let snapshot = match begun {
            Some(snapshot) => snapshot,
            None => self.state.begin_snapshot(tree.wait())?,
        };
        let value = snapshot.get(tree, key);
        let value = value.map_err(|error| self.state.remember(error))?;
        let may_be_stored = snapshot.has_stored_forms();
        Ok(value.map(|value| Seen::new(value, may_be_stored)))
    }

    #[cold]
    fn spot(&self, key: &[u8]) -> Result<Spot> {
        self.check()?;
        let snapshot = self.state.snapshot(self.tree().wait())?;
        let spot = spot_of(&snapshot, self.state.inner(), self.tree(), key);
        spot.map_err(|error| self.state.remember(error))
    }

    fn stretches(&self) -> Box<dyn Stretches> {
        Box::new(TransactionStretches {
            state: self.state.clone(),
            tree: self.tree.clone(),
            writes: self.changes.clone(),
            base: None,
            below: Stretch::default(),
            growing: None,
        })
    }

    fn snapshot(&self) -> Result<Arc<OpenSnapshot>> {
        self.state.snapshot(self.tree().wait())
    }

    fn resolve(&self, found: &[u8]) -> Result<Found> {
        let found = self.snapshot()?.resolve(found, self.tree().wait());
        found.map_err(|error| self.state.remember(error))
    }

    #[inline]
    fn tree(&self) -> &PoolTree {
        &self.tree.of(&self.state.inner().opened).tree
    }
}

impl TransactionView {
    /// [`View::see`] of a long key that the transaction has not changed.
    #[cold]
    fn see_long(&self, key: &[u8]) -> Result<Option<Seen>> {
        let spot = self.spot(key)?;
        if self.state.isolation == Isolation::Serializable {
            let used = (self.tree().id(), &self.tree);
            self.state.note_long(used, |reads| reads.key(used.0, &spot.first))?;
        }
        spot.seen(self.tree(), key)
    }
}

/// The stretches of a transaction: those of its snapshot, which may not have begun yet, with its own changes in them.
struct TransactionStretches {
    state: Arc<State>,
    tree: UsedTree,
    writes: Option<Arc<TreeWrites>>,
    /// Without the snapshot, which ends with the transaction.
    base: Option<SnapshotStretches>,
    below: Stretch,
    /// The interval that the cursor is walking along.
    growing: Option<Growing>,
}

impl Stretches for TransactionStretches {
    fn load(&mut self, wanted: Wanted<'_>, to: &mut Stretch) -> Result<()> {
        let inner = self.state.inner();
        let tree = &self.tree.of(&inner.opened).tree;
        let snapshot = self.state.snapshot(tree.wait())?;
        let base = self.base.get_or_insert_with(|| SnapshotStretches::new(tree.clone()));
        let loaded = match &self.writes {
            None => base.load(&snapshot, wanted, to),
            Some(writes) => base.load(&snapshot, wanted, &mut self.below).and_then(|()| {
                let spot = |key: &[u8]| spot_of(&snapshot, inner, tree, key);
                match placed(tree, &self.below, writes, spot)? {
                    Some(placed) => merge(&self.below, &placed, to),
                    None => merge(&self.below, writes, to),
                }
                Ok(())
            }),
        };
        loaded.map_err(|error| self.state.remember(error))
    }

    fn watches(&self) -> bool {
        self.state.isolation == Isolation::Serializable
    }

    fn saw(&mut self, from: Bound<&[u8]>, to: Bound<&[u8]>, is_new: bool) {
        let tree = self.tree.of(&self.state.inner().opened).tree.id();
        let growing = self.growing.filter(|_| !is_new);
        let mut noted = None;
        let outcome = self.state.note_range(&self.tree, (from, to), |reads| {
            noted = Some(match growing {
                Some(growing) => reads.grow(tree, growing, from, to),
                None => reads.interval(tree, from, to),
            });
        });
        // If the transaction has ended, nobody will look.
        self.growing = noted.filter(|_| outcome.is_ok());
    }
}
