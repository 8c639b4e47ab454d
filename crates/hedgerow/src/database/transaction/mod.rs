//! Transactions: reads of one moment, and changes that are made together if nothing that was read has changed.
//!
//! Rank 7. What users need to know of them stands with [`Transaction`]. Until its commit a transaction is a snapshot, the changes that it is going to
//! make (`writes`), and what it has asked for (`reads`): nobody else notices it, and it holds no latch and no lock. The first keys of both are in
//! `few`, which is all that most transactions need. The commit is that of `tree/commit.rs`. `keyspace` has what can be done in a keyspace.
//!
//! Invariants: all reads are of one snapshot, which begins with the first of them; after the end nothing can be read or changed any more.
//! `Send + Sync`: the parts are behind one lock, which is held for no read, and by who commits for good: whoever comes then is told that it has ended.

mod few;
mod keyspace;
mod long;
mod reads;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod transact;
mod writes;

pub use keyspace::TransactionKeyspace;
pub use transact::TransactOptions;

#[cfg(doc)]
use super::database::Database;
use super::holds::Hold;
use super::inner::Inner;
use super::keyspace::Keyspace;
use super::long::is_long;
use super::opened::{Used, UsedTree};
use super::options::Durability;
use super::values::{Prepared, is_plain};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BatchChange, BatchReads, OpenSnapshot, PoolTree};
use crate::tree::Read;
use crate::types::{Lsn, TreeId};
use crate::wait::{Wait, Waiting};
use few::{Few, FewKey};
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering::*};
use hedgerow_sync::primitive::{Arc, Brief, BriefGuard, Weak};
use reads::Reads;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use writes::Writes;

/// How far a transaction is isolated from others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// As if all transactions, batches and single changes had come one after the other, in the order of their commits. What a transaction has read, gaps between records and ends of
    /// ranges included, must be unchanged at its commit. A transaction that changes nothing takes its place at its snapshot; its commit compares nothing.
    #[default]
    Serializable,
    /// All reads are of one moment, and nobody else (a transaction, a batch or a single change) has changed since then what this one changes or has read with
    /// [`TransactionKeyspace::get_for_update`]. Other reads are not looked at again: two transactions may each read what the other one changes (write
    /// skew).
    Snapshot,
}

/// The part of the memory limit that what was read may take before neighbouring intervals become one.
const READS_SHARE: u64 = 64;

/// Reads of one moment, and changes that are made together at the commit. See [`Database::transaction`].
///
/// **Reads** see the database as it was when the first of them was made, as a [`Snapshot`](crate::Snapshot) does, with the transaction's own changes in it. **Changes** are kept
/// by the transaction, and nobody else sees them before the commit. **The commit** makes all of them at one stroke, if what was read is unchanged, or
/// returns [`Conflict`](ErrorKind::Conflict) and makes none. Transactions hold no locks: none waits for one that has not begun to commit, and there are no deadlocks. Many
/// threads commit at a time, also within one leaf, if they change different keys.
///
/// [`Database::transact`] runs a function in a transaction, and runs it again after a conflict.
///
/// Dropping a transaction aborts it. `Send + Sync`: several threads may use one transaction, each call is atomic. It keeps its
/// database open.
///
/// **Limits.** The changes are kept in memory, beside the memory limit, until the commit. They may have nearly 128 MiB, with 32 bytes for each, with the
/// default log limit of 1 GiB; an eighth of a smaller one; and without a log, and in memory, a sixteenth of the memory limit. What is more is
/// [`TransactionTooLarge`](ErrorKind::TransactionTooLarge). While a commit is made that is too large for one stroke (see [`WriteBatch`](crate::WriteBatch); leaves that
/// were read count, too), the changes of other threads wait; without a log, and in memory, it fails as too large.
#[must_use = "dropping a transaction aborts it"]
pub struct Transaction {
    state: Arc<State>,
}

/// What a transaction shares with its handles to keyspaces.
pub(super) struct State {
    hold: Arc<Hold>,
    isolation: Isolation,
    /// When it is durable, and how long it waits, in the place of what handles to keyspaces say.
    durability: Option<Durability>,
    wait: Option<Wait>,
    body: Brief<Body>,
    /// Set with the body locked. Who commits keeps it locked until it is empty; whoever comes meanwhile looks at this.
    has_ended: AtomicBool,
    /// A handle to a keyspace was made.
    has_handle: AtomicBool,
    /// One of them makes changes durable.
    through_sync: AtomicBool,
    /// A read has found that the snapshot is too old.
    was_too_old: AtomicBool,
    /// A long key was changed, or bounds what was read.
    has_long_keys: AtomicBool,
}

#[derive(Default)]
struct Body {
    /// Begun by the first read.
    snapshot: Option<Arc<OpenSnapshot>>,
    /// The first keys.
    few: Few,
    many: Option<Box<Many>>,
    trees: Trees,
    /// How the first handle to a keyspace waits; `None`: for ever.
    wait: Option<Wait>,
}

/// What small transactions have not. As long as there are keys in `few`, `writes` is empty, and `reads` has intervals alone.
#[derive(Default)]
struct Many {
    writes: Writes,
    reads: Reads,
    /// Savepoints that can be rolled back to, and their changes.
    savepoints: BTreeMap<u64, Writes>,
    next_savepoint: u64,
}

impl Body {
    /// Whether nothing is changed.
    fn is_empty(&self) -> bool {
        self.few.changes() == 0 && self.many.as_ref().is_none_or(|many| many.writes.is_empty())
    }

    fn len_bytes(&self) -> u64 {
        self.few.len_bytes() + self.many.as_ref().map_or(0, |many| many.writes.len_bytes())
    }

    /// All changes, in the order of trees and keys.
    fn changes(&self) -> impl Iterator<Item = (TreeId, &[u8], Option<&[u8]>)> {
        let few = self.few.all().filter_map(|of| Some((of.tree, of.key, of.change?)));
        few.chain(self.many.iter().flat_map(|many| many.writes.all()))
    }

    /// The change of a key.
    #[inline]
    fn change(&self, tree: TreeId, key: &[u8]) -> Option<Option<&[u8]>> {
        self.few
            .get(tree, key)
            .or_else(|| self.many.as_ref()?.writes.get(tree, key).map(Option::as_deref))
    }

    /// Where there is room for more than the first keys.
    fn many(&mut self) -> &mut Many {
        self.many.get_or_insert_default()
    }

    /// Moves the first keys there, too.
    #[cold]
    fn with_all(&mut self) -> &mut Many {
        let many = self.many.get_or_insert_default();
        self.few.move_to(&mut many.writes, &mut many.reads);
        many
    }
}

/// The trees that something was read or changed in, of which there is one mostly.
#[derive(Default)]
struct Trees {
    first: Option<(TreeId, UsedTree)>,
    more: Vec<(TreeId, UsedTree)>,
}

impl Trees {
    fn all(&self) -> impl Iterator<Item = &(TreeId, UsedTree)> {
        self.first.iter().chain(&self.more)
    }

    fn find<'t>(&'t self, inner: &'t Inner, tree: TreeId) -> Option<&'t Used> {
        self.all().find(|(id, _)| *id == tree).map(|(_, used)| used.of(&inner.opened))
    }

    #[inline]
    fn note(&mut self, id: TreeId, tree: &UsedTree) {
        match &self.first {
            Some((first, _)) if *first == id => {}
            None => self.first = Some((id, tree.clone())),
            Some(_) => self.note_more(id, tree),
        }
    }

    #[inline(never)]
    fn note_more(&mut self, id: TreeId, tree: &UsedTree) {
        if self.more.iter().all(|(other, _)| *other != id) {
            self.more.push((id, tree.clone()));
        }
    }

    #[inline]
    fn get<'t>(&'t self, inner: &'t Inner, tree: TreeId) -> &'t PoolTree {
        if let Some((_, first)) = self.first.as_ref().filter(|(id, _)| *id == tree) {
            return &first.of(&inner.opened).tree;
        }
        &self.find(inner, tree).expect("a tree that is read or changed was noted").tree
    }

    /// From now on all wait as one call.
    fn wait_as(&mut self, inner: &Inner, wait: &Wait) {
        for (_, used) in self.first.iter_mut().chain(&mut self.more) {
            if matches!((&*used, wait), (UsedTree::Opened(_), Wait::Default)) {
                continue;
            }
            let Used { name, tree } = used.of(&inner.opened);
            if tree.wait() != wait {
                let tree = tree.clone().with_wait(wait.clone());
                *used = UsedTree::Own(Arc::new(Used { name: name.clone(), tree }));
            }
        }
    }
}

/// A transaction that ends: its body, which nobody else gets to see any more, and which is empty when this is dropped.
struct Ending<'s>(BriefGuard<'s, Body>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let body = &mut *self.0;
        body.snapshot = None;
        body.few.clear();
        body.many = None;
        body.trees = Trees::default();
    }
}

/// A moment within a transaction, to roll back to: [`Transaction::savepoint`].
pub struct Savepoint {
    of: Weak<State>,
    number: u64,
}

impl Drop for Savepoint {
    /// Nobody can roll back to it, so its copy goes.
    fn drop(&mut self) {
        let Some(state) = self.of.upgrade().filter(|state| state.inner().check_process().is_ok())
        else {
            return;
        };
        let forget = |body: &mut Body| {
            let copy = body.many.as_mut().and_then(|many| many.savepoints.remove(&self.number));
            Ok(copy)
        };
        // In a transaction that has ended there are none.
        state.with_body(forget).ok();
    }
}

impl fmt::Debug for Savepoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Savepoint").field("number", &self.number).finish_non_exhaustive()
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let isolation = &self.state.isolation;
        f.debug_struct("Transaction").field("isolation", isolation).finish_non_exhaustive()
    }
}

impl Transaction {
    /// A keyspace as the transaction sees it. It may be kept, and can be used until the transaction ends.
    ///
    /// # Errors
    /// [`ForeignKeyspace`](ErrorKind::ForeignKeyspace); [`TransactionEnded`](ErrorKind::TransactionEnded); [`Closed`](ErrorKind::Closed);
    /// [`ForkedProcess`](ErrorKind::ForkedProcess).
    pub fn keyspace(&self, of: &Keyspace) -> Result<TransactionKeyspace> {
        let state = &self.state;
        state.inner().check_open()?;
        if !Arc::ptr_eq(state.inner(), of.inner()) {
            let what = "the keyspace belongs to another database than the transaction";
            return Err(Error::new(ErrorKind::ForeignKeyspace, what));
        }
        state.check_not_ended()?;
        // Relaxed, here and below: whoever commits has had the transaction from who was here.
        if of.durability() == Durability::Sync {
            state.through_sync.store(true, Relaxed);
        }
        if !state.has_handle.load(Relaxed) {
            state.has_handle.store(true, Relaxed);
            if *of.tree().wait() != Wait::Default {
                state.with_body(|body| {
                    body.wait = Some(of.tree().wait().clone());
                    Ok(())
                })?;
            }
        }
        let tree = of.used_tree(state.wait.as_ref());
        Ok(TransactionKeyspace::new(state.clone(), tree))
    }

    /// Notes the present state of the transaction's changes, to roll back to. The next change copies the changes that there are. The copy lives until the
    /// savepoint is dropped, the transaction ends, or an earlier savepoint is rolled back to.
    ///
    /// # Errors
    /// [`TransactionEnded`](ErrorKind::TransactionEnded); [`Closed`](ErrorKind::Closed); [`ForkedProcess`](ErrorKind::ForkedProcess).
    pub fn savepoint(&self) -> Result<Savepoint> {
        self.state.inner().check_open()?;
        self.state.with_body(|body| {
            // Where they are shared, and copied when they are changed.
            let many = body.with_all();
            let number = many.next_savepoint;
            many.next_savepoint += 1;
            many.savepoints.insert(number, many.writes.clone());
            Ok(Savepoint { of: Arc::downgrade(&self.state), number })
        })
    }

    /// Undoes the changes that were made since the savepoint. What was read since stays read. It may be rolled back to again; later savepoints may
    /// not.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for the savepoint of another transaction, or one behind another that was rolled back to;
    /// [`TransactionEnded`](ErrorKind::TransactionEnded); [`Closed`](ErrorKind::Closed); [`ForkedProcess`](ErrorKind::ForkedProcess). Nothing has changed then.
    pub fn roll_back_to(&self, savepoint: &Savepoint) -> Result<()> {
        self.state.inner().check_open()?;
        self.state.with_body(|body| {
            let is_ours = std::ptr::eq(savepoint.of.as_ptr(), Arc::as_ptr(&self.state));
            let many = body.with_all();
            let found = many.savepoints.get(&savepoint.number).filter(|_| is_ours);
            let Some(writes) = found else {
                let what = "the savepoint is not one of this transaction, or lies behind one that was rolled back to";
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            };
            many.writes = writes.clone();
            many.savepoints.split_off(&(savepoint.number + 1));
            Ok(())
        })
    }

    /// Makes all changes, if what was read is unchanged. They are durable when a single change would be: with [`Durability::Sync`] if a handle to
    /// one of the keyspaces says so, or the [options](Database::transaction_with) do. A transaction without changes has nothing to do. Returns a position in the log: a
    /// [snapshot](Database::snapshot) at or behind it has the changes.
    ///
    /// Waits for page reads, for short latches of other threads, and for room in memory and in the log; for a large commit of another thread, or if it is one
    /// itself, for its turn, as the handle to its first keyspace waits ([`Keyspace::with_wait`](crate::Keyspace::with_wait)), and for up to three checkpoints, however long they take; with [`Durability::Sync`] for an fsync of the log.
    ///
    /// # Errors
    /// [`BatchUnfinished`](ErrorKind::BatchUnfinished) if it was too large for one stroke and could not be finished: see [`Database::write`].
    /// After these nothing has changed, but for `DurabilityUnknown` and `NotYetDurable`, after which all is made: [`Conflict`](ErrorKind::Conflict); [`TransactionTooLarge`](ErrorKind::TransactionTooLarge);
    /// [`SnapshotTooOld`](ErrorKind::SnapshotTooOld); [`TransactionEnded`](ErrorKind::TransactionEnded);
    /// the [errors of changes](Keyspace#errors-of-changes).
    pub fn commit(self) -> Result<Lsn> {
        self.commit_as(None)
    }

    /// [`Transaction::commit`], durable as `durability` says.
    ///
    /// # Errors
    /// Those of [`Transaction::commit`].
    pub fn commit_with(self, durability: Durability) -> Result<Lsn> {
        self.commit_as(Some(durability))
    }

    /// Ends the transaction. Nothing was changed. Dropping it does the same.
    pub fn abort(self) {}

    fn commit_as(&self, durability: Option<Durability>) -> Result<Lsn> {
        let state = &*self.state;
        state.inner().check_open()?;
        let mut ending = state.end()?;
        let body = &mut *ending.0;
        // It waits as the first handle does.
        let first = state.wait.as_ref().or(body.wait.as_ref());
        let wait = first.map_or(Wait::Default, Wait::for_one_call);
        body.trees.wait_as(state.inner(), &wait);
        let waiting = wait.begin();
        let lsn = state.make(body, &waiting);
        state.hold.transactions.note(&lsn);
        let lsn = lsn.map_err(|error| {
            let inner = state.inner();
            let name = |used: &Used| used.name.to_string();
            error.with_keyspace(|tree| body.trees.find(inner, tree).map_or_else(String::new, name))
        })?;
        let asked = || state.through_sync.load(Relaxed);
        let durability = durability.or(state.durability);
        let is_sync = durability.map_or_else(asked, |said| said == Durability::Sync);
        let is_empty = body.is_empty();
        drop(ending);
        if is_sync && !is_empty {
            state.inner().store.flush_log_within(&waiting)?;
        }
        Ok(lsn)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Handles to keyspaces may live on. In a forked process it is the parent's. Relaxed: whoever has committed had the transaction.
        if !self.state.has_ended.load(Relaxed) && self.state.inner().check_process().is_ok() {
            self.state.end().ok();
        }
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::TransactionEnded, "the transaction was committed or aborted")
}

impl State {
    #[inline]
    fn inner(&self) -> &Arc<Inner> {
        &self.hold.inner
    }

    /// Errors: `TransactionEnded`.
    #[inline]
    fn check_not_ended(&self) -> Result<()> {
        if self.has_ended.load(Acquire) { Err(ended()) } else { Ok(()) }
    }

    #[inline]
    fn lock(&self) -> Result<BriefGuard<'_, Body>> {
        // Who commits has it for long.
        let body = self.body.lock_while(|| !self.has_ended.load(Acquire)).ok_or_else(ended)?;
        self.check_not_ended()?;
        Ok(body)
    }

    #[inline]
    fn with_body<R>(&self, f: impl FnOnce(&mut Body) -> Result<R>) -> Result<R> {
        f(&mut *self.lock()?)
    }

    /// Ends the transaction. What it is can be had until the value is dropped.
    fn end(&self) -> Result<Ending<'_>> {
        let body = self.lock()?;
        self.has_ended.store(true, Release);
        Ok(Ending(body))
    }

    /// The snapshot, which begins now if it has not. It ends with the transaction.
    fn snapshot(&self, wait: &Wait) -> Result<Arc<OpenSnapshot>> {
        if let Some(snapshot) = self.with_body(|body| Ok(body.snapshot.clone()))? {
            return Ok(snapshot);
        }
        self.begin_snapshot(wait)
    }

    /// [`Self::snapshot`] of who has just seen that there is none.
    fn begin_snapshot(&self, wait: &Wait) -> Result<Arc<OpenSnapshot>> {
        let begun = Arc::new(self.inner().store.snapshot(&wait.begin())?);
        // Another thread may have come first.
        self.with_body(|body| Ok(body.snapshot.get_or_insert(begun).clone()))
    }

    /// Notes an interval that was asked for, within the bound of all.
    fn note_read(&self, of: (TreeId, &UsedTree), note: impl FnOnce(&mut Reads)) -> Result<()> {
        self.with_body(|body| {
            body.trees.note(of.0, of.1);
            note(&mut body.many().reads);
            self.bound_reads(body);
            Ok(())
        })
    }

    /// Notes a key that was asked for.
    #[inline]
    fn note_key(&self, body: &mut Body, (tree, used): (TreeId, &UsedTree), key: &[u8]) {
        body.trees.note(tree, used);
        if !body.few.ask(tree, key) {
            body.with_all().reads.key(tree, key);
            self.bound_reads(body);
        }
    }

    fn bound_reads(&self, body: &mut Body) {
        let most = self.inner().store.pool().budget().limit_bytes() / READS_SHARE;
        let reads = &mut body.many().reads;
        loop {
            let before = reads.len_bytes();
            if before <= most {
                return;
            }
            reads.halve();
            // Two keys may be longer than that.
            if reads.len_bytes() >= before {
                return;
            }
        }
    }

    /// [`Self::note_read`] of what ends at a long key.
    fn note_long(&self, of: (TreeId, &UsedTree), note: impl FnOnce(&mut Reads)) -> Result<()> {
        self.has_long_keys.store(true, Relaxed);
        self.note_read(of, note)
    }

    /// [`Self::note_read`] of an interval in the tree.
    fn note_range(
        &self,
        used: &UsedTree,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        note: impl FnOnce(&mut Reads),
    ) -> Result<()> {
        let tree = &used.of(&self.inner().opened).tree;
        let is_at_long = |bound: Bound<&[u8]>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => is_long(tree, key),
            Bound::Unbounded => false,
        };
        match is_at_long(bounds.0) || is_at_long(bounds.1) {
            true => self.note_long((tree.id(), used), note),
            false => self.note_read((tree.id(), used), note),
        }
    }

    /// Passes an error of a read on, and remembers whether it says that the snapshot is too old.
    fn remember(&self, error: Error) -> Error {
        if error.kind() == ErrorKind::SnapshotTooOld {
            self.was_too_old.store(true, Relaxed);
        }
        error
    }

    /// Makes the changes of an ended transaction.
    fn make(&self, body: &mut Body, waiting: &Waiting<'_>) -> Result<Lsn> {
        let inner = self.inner();
        let store = &inner.store;
        if body.is_empty() {
            // What it has read was all there, at the moment of its snapshot.
            return Ok(body.snapshot.as_ref().map_or_else(|| store.last_lsn(), |of| of.lsn()));
        }
        self.check_not_ending(body)?;
        if self.has_long_keys.load(Relaxed) {
            body.with_all();
            let tree_of =
                |(id, used): &(TreeId, UsedTree)| (*id, used.of(&inner.opened).tree.clone());
            let trees = body.trees.all().map(tree_of);
            return self.make_long(body, &trees.collect(), waiting);
        }
        // If nobody reads with it any more, the commit is the last to need it.
        if let Some(snapshot) = body.snapshot.as_mut().and_then(Arc::get_mut) {
            snapshot.be_of_commit();
        }
        if body.many.as_ref().is_some_and(|many| !many.reads.is_empty()) {
            // Intervals and keys are to be put in one order.
            body.with_all();
        } else if let Some(lsn) = self.make_one(body)? {
            return Ok(lsn);
        }
        let body = &*body;
        let more = body.many.as_ref().map_or(0, |many| many.writes.len());
        let mut changes = Vec::with_capacity(body.few.changes() + more);
        let mut are_plain = true;
        let as_is = |of: &BatchChange<'_>| of.value.is_none_or(|it| is_plain(of.tree, of.key, it));
        body.changes().for_each(|(tree, key, value)| {
            let change = BatchChange { tree: body.trees.get(inner, tree), key, value };
            are_plain &= as_is(&change);
            changes.push(change);
        });
        // Those that a leaf takes as they are, which are most, need nothing.
        let mut prepared = Vec::new();
        if !are_plain {
            for (tree, key, value) in body.changes() {
                let tree = body.trees.get(inner, tree);
                if let Some(value) = value.filter(|value| !is_plain(tree, key, value)) {
                    prepared.push(inner.prepare(tree, key, value)?);
                }
            }
            let others = changes.iter_mut().filter(|of| !as_is(of));
            others.zip(&prepared).for_each(|(of, prepared)| of.value = Some(prepared.bytes()));
        }
        let mut made = 0;
        let committed = match &body.snapshot {
            // Who has read nothing goes where the log's end is by then.
            None => store.commit(&changes, None, &mut made, waiting),
            Some(snapshot) if !body.few.is_empty() => {
                let asked = body.few.all().filter(|of| self.is_compared(of));
                let reads: Vec<Read<'_, _>> = asked
                    .map(|of| Read {
                        tree: body.trees.get(inner, of.tree),
                        lower: Bound::Included(of.key),
                        upper: Bound::Included(of.key),
                    })
                    .collect();
                let set = BatchReads { reads: &reads, judge: &**snapshot };
                store.commit(&changes, Some(&set), &mut made, waiting)
            }
            Some(snapshot) => {
                let mut asked =
                    body.many.as_ref().map_or_else(Reads::default, |of| of.reads.clone());
                if self.compares_changes() {
                    body.changes().for_each(|(tree, key, _)| asked.key(tree, key));
                }
                let intervals = asked.all();
                let reads: Vec<Read<'_, _>> = intervals
                    .iter()
                    .map(|(tree, lower, upper)| Read {
                        tree: body.trees.get(inner, *tree),
                        lower: lower.as_ref().map(Vec::as_slice),
                        upper: upper.as_ref().map(Vec::as_slice),
                    })
                    .collect();
                let set = BatchReads { reads: &reads, judge: &**snapshot };
                let committed = store.commit(&changes, Some(&set), &mut made, waiting);
                committed.map_err(|error| self.with_whole_key(body, error))
            }
        };
        drop(changes);
        // A commit that could not be finished has all that it is to make in the log.
        if !prepared.is_empty() {
            let is_prepared = |(tree, key, value): &(TreeId, &[u8], Option<&[u8]>)| {
                value.is_some_and(|value| !is_plain(body.trees.get(inner, *tree), key, value))
            };
            let kept = body.changes().take(made).filter(is_prepared).count();
            prepared.into_iter().take(kept).for_each(Prepared::keep);
        }
        committed?.ok_or_else(|| self.too_large(body.len_bytes()))
    }

    /// Makes the change of a transaction that has to do with one key and nothing else. `None`: nothing is done, and it has to be made like any
    /// other.
    #[inline]
    fn make_one(&self, body: &Body) -> Result<Option<Lsn>> {
        let Some(one @ FewKey { tree, key, change: Some(value), .. }) = body.few.only() else {
            return Ok(None);
        };
        let inner = self.inner();
        let tree = body.trees.get(inner, tree);
        let judge = body.snapshot.as_deref().filter(|_| self.is_compared(&one));
        let make = |value| inner.store.commit_one(&BatchChange { tree, key, value }, judge);
        match value.filter(|value| !is_plain(tree, key, value)) {
            None => make(value),
            Some(value) => {
                let prepared = inner.prepare(tree, key, value)?;
                let lsn = make(Some(prepared.bytes()))?;
                if lsn.is_some() {
                    prepared.keep();
                }
                Ok(lsn)
            }
        }
    }

    /// Whether the keys that are changed are compared with the snapshot, too.
    fn compares_changes(&self) -> bool {
        self.isolation == Isolation::Snapshot
    }

    fn is_compared(&self, of: &FewKey<'_>) -> bool {
        of.was_asked || of.change.is_some() && self.compares_changes()
    }

    #[cold]
    fn too_large(&self, len_bytes: u64) -> Error {
        const SPLIT: &str = "split it, or raise `Options::log_limit_bytes` where that is below 1 GiB, or the memory limit where there is no log";
        let max_bytes = self.inner().store.most_commit_bytes();
        let words = match len_bytes > max_bytes {
            true => {
                format!(
                    "the transaction changes {len_bytes} bytes, and at most {max_bytes} fit: {SPLIT}"
                )
            }
            false => format!(
                "the transaction takes more of the log than there is for one, or has read and changes more leaves, or replaces \
                 longer values, than fit into memory at a time in a database without a log: {SPLIT}"
            ),
        };
        Error::new(ErrorKind::TransactionTooLarge { len_bytes, max_bytes }, words)
    }
}
