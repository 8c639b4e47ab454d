//! Transactions: reads of one moment, and changes that are made at one stroke if nothing that was read has changed.
//!
//! Rank 7. What users need to know of them stands with [`Transaction`]. Until its commit a transaction is a snapshot, the changes that it is going to
//! make (`writes`), and what it has asked for (`reads`): nobody else notices it, and it holds no latch and no lock. The commit is that of
//! `tree/commit.rs`. `keyspace` has what can be done in a keyspace.
//!
//! Invariants: all reads are of one snapshot, which begins with the first of them; after the end nothing can be read or changed any more.
//! `Send + Sync`: the parts are behind one mutex, which is held for no read.

mod keyspace;
mod long;
mod reads;
mod transact;
mod writes;

pub use keyspace::TransactionKeyspace;
pub use transact::TransactOptions;

use super::database::{Database, Inner};
use super::keyspace::Keyspace;
use super::large::Prepared;
use super::long::is_long;
use super::options::Durability;
use super::snapshot::Snapshot;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BatchChange, BatchReads, PoolTree};
use crate::tree::Read;
use crate::types::{Lsn, TreeId};
use crate::wait::{Wait, Waiting};
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use hedgerow_sync::primitive::canary::leaves_out;
use hedgerow_sync::primitive::{Arc, Mutex, Weak};
use reads::Reads;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use writes::Writes;

/// What of other transactions a transaction may be mixed with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Isolation {
    /// As if all transactions had run one after the other, in the order of their commits. What a transaction has read, gaps between records and ends of
    /// ranges included, must be unchanged at its commit.
    #[default]
    Serializable,
    /// All reads are of one moment, and no other transaction has changed since then what this one changes or has read with
    /// [`TransactionKeyspace::get_for_update`]. Other reads are not looked at again: two transactions may each read what the other one changes (write
    /// skew).
    Snapshot,
}

/// The part of the memory limit that what was read may take before neighbouring intervals become one.
const READS_SHARE: u64 = 64;

/// Reads of one moment, and changes that are made together at the commit. See [`Database::transaction`].
///
/// **Reads** see the database as it was when the first of them was made, as a [`Snapshot`] does, with the transaction's own changes in it. **Changes** are kept
/// by the transaction, and nobody else sees them before the commit. **The commit** makes all of them at one stroke, if what was read is unchanged, or
/// returns [`Conflict`](ErrorKind::Conflict) and makes none. Transactions hold no locks: none waits for another one, and there are no deadlocks. Many
/// threads commit at a time, also within one leaf, if they change different keys.
///
/// [`Database::transact`] runs a function in a transaction, and runs it again after a conflict.
///
/// Dropping a transaction aborts it. `Send + Sync`: several threads may use one transaction, each call is atomic. It keeps its
/// database open.
///
/// **Limits.** The changes have to fit into a commit at one stroke, as those of a small [`WriteBatch`](crate::WriteBatch) do, and the leaves that were
/// read and are changed are at most an eighth of the pool's frames. Otherwise it is [`TransactionTooLarge`](ErrorKind::TransactionTooLarge).
pub struct Transaction {
    state: Arc<State>,
}

/// What a transaction shares with its handles to keyspaces.
pub(super) struct State {
    inner: Arc<Inner>,
    isolation: Isolation,
    body: Mutex<Body>,
    /// A read has found that the snapshot is too old.
    was_too_old: AtomicBool,
    /// A long key was changed, or bounds what was read.
    has_long_keys: AtomicBool,
}

struct Body {
    /// Begun by the first read.
    snapshot: Option<Snapshot>,
    writes: Writes,
    reads: Reads,
    /// Names and handles of the trees that were used.
    trees: BTreeMap<TreeId, (String, PoolTree)>,
    /// Savepoints that can be rolled back to, and their changes.
    savepoints: BTreeMap<u64, Writes>,
    next_savepoint: u64,
    wait: Option<Wait>,
    through_sync: bool,
    has_ended: bool,
}

/// A moment within a transaction, to roll back to: [`Transaction::savepoint`].
pub struct Savepoint {
    of: Weak<State>,
    number: u64,
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

impl Database {
    /// Begins a transaction. Costs nothing yet; its snapshot begins with its first read.
    ///
    /// ```
    /// use hedgerow::Isolation;
    ///
    /// let db = hedgerow::Options::new().in_memory()?;
    /// let stock = db.keyspace("stock")?;
    /// stock.put(b"apples", b"7")?;
    /// let transaction = db.transaction(Isolation::Serializable);
    /// let in_it = transaction.keyspace(&stock)?;
    /// assert_eq!(in_it.get(b"apples")?.unwrap(), b"7");
    /// in_it.put(b"apples", b"6")?;
    /// in_it.put(b"pears", b"1")?;
    /// transaction.commit()?;
    /// assert_eq!(stock.get(b"pears")?.unwrap(), b"1");
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    #[must_use]
    pub fn transaction(&self, isolation: Isolation) -> Transaction {
        let body = Body {
            snapshot: None,
            writes: Writes::default(),
            reads: Reads::default(),
            trees: BTreeMap::new(),
            savepoints: BTreeMap::new(),
            next_savepoint: 0,
            wait: None,
            through_sync: false,
            has_ended: false,
        };
        let state = State {
            inner: self.inner.clone(),
            isolation,
            body: Mutex::new(body),
            was_too_old: AtomicBool::new(false),
            has_long_keys: AtomicBool::new(false),
        };
        Transaction { state: Arc::new(state) }
    }
}

impl Transaction {
    /// A keyspace as the transaction sees it. It may be kept, and can be used until the transaction ends.
    ///
    /// # Errors
    /// [`ForeignKeyspace`](ErrorKind::ForeignKeyspace); [`TransactionEnded`](ErrorKind::TransactionEnded).
    pub fn keyspace(&self, of: &Keyspace) -> Result<TransactionKeyspace> {
        self.state.inner.check_open()?;
        if !Arc::ptr_eq(&self.state.inner, of.inner()) {
            let what = "the keyspace belongs to another database than the transaction";
            return Err(Error::new(ErrorKind::ForeignKeyspace, what));
        }
        let tree = of.tree().clone();
        self.state.with_body(|body| {
            body.wait.get_or_insert_with(|| tree.wait().clone());
            body.through_sync |= of.durability() == Durability::Sync;
            body.trees.entry(tree.id()).or_insert_with(|| (of.name().to_owned(), tree.clone()));
            Ok(())
        })?;
        Ok(TransactionKeyspace::new(self.state.clone(), tree))
    }

    /// Notes the present state of the transaction's changes, to roll back to. Costs nothing; the next change copies the changes that there are.
    ///
    /// # Errors
    /// [`TransactionEnded`](ErrorKind::TransactionEnded).
    pub fn savepoint(&self) -> Result<Savepoint> {
        self.state.inner.check_open()?;
        self.state.with_body(|body| {
            let number = body.next_savepoint;
            body.next_savepoint += 1;
            body.savepoints.insert(number, body.writes.clone());
            Ok(Savepoint { of: Arc::downgrade(&self.state), number })
        })
    }

    /// Undoes the changes that were made since the savepoint. What was read since stays read. It may be rolled back to again; later savepoints may
    /// not.
    ///
    /// # Errors
    /// [`InvalidArgument`](ErrorKind::InvalidArgument) for the savepoint of another transaction, or one behind another that was rolled back to;
    /// [`TransactionEnded`](ErrorKind::TransactionEnded). Nothing has changed then.
    pub fn roll_back_to(&self, savepoint: &Savepoint) -> Result<()> {
        self.state.inner.check_open()?;
        self.state.with_body(|body| {
            let is_ours = std::ptr::eq(savepoint.of.as_ptr(), Arc::as_ptr(&self.state));
            let found = body.savepoints.get(&savepoint.number).filter(|_| is_ours);
            let Some(writes) = found else {
                let what =
                    "the savepoint is not one of this transaction, or was rolled back itself";
                return Err(Error::new(ErrorKind::InvalidArgument, what));
            };
            if !leaves_out("savepoint_keeps_changes") {
                body.writes = writes.clone();
            }
            body.savepoints.split_off(&(savepoint.number + 1));
            Ok(())
        })
    }

    /// Makes all changes, if what was read is unchanged. They are durable when a single change would be: with [`Durability::Sync`] if a handle to
    /// one of the keyspaces says so. A transaction without changes has nothing to do. Returns a position in the log: a
    /// [snapshot](Database::snapshot) at or behind it has the changes.
    ///
    /// Waits for page reads, for short latches of other threads, and for room in memory and in the log; with [`Durability::Sync`] for an fsync of
    /// the log.
    ///
    /// # Errors
    /// After these nothing has changed: [`Conflict`](ErrorKind::Conflict); [`TransactionTooLarge`](ErrorKind::TransactionTooLarge);
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
        state.inner.check_open()?;
        let body = state.end()?;
        let wait = body.wait.clone().unwrap_or(Wait::Forever).for_one_call();
        let waiting = wait.begin();
        let lsn = state.make(&body, &wait, &waiting);
        state.inner.transactions.note(&lsn);
        let lsn = lsn.map_err(|error| {
            error.with_keyspace(|tree| {
                body.trees.get(&tree).map_or_else(String::new, |(name, _)| name.clone())
            })
        })?;
        let is_sync = durability.map_or(body.through_sync, |said| said == Durability::Sync);
        if is_sync && !body.writes.is_empty() {
            state.inner.store.flush_log_within(&waiting)?;
        }
        Ok(lsn)
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // Handles to keyspaces may live on. In a forked process it is the parent's.
        if self.state.inner.check_process().is_ok() {
            self.state.end().ok();
        }
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::TransactionEnded, "the transaction was committed or aborted")
}

impl State {
    fn with_body<R>(&self, f: impl FnOnce(&mut Body) -> Result<R>) -> Result<R> {
        let mut body = self.body.lock();
        if body.has_ended { Err(ended()) } else { f(&mut body) }
    }

    /// Ends the transaction, and takes out what it is.
    fn end(&self) -> Result<Body> {
        let mut body = self.body.lock();
        if body.has_ended {
            return Err(ended());
        }
        body.has_ended = true;
        Ok(Body {
            snapshot: body.snapshot.take(),
            writes: std::mem::take(&mut body.writes),
            reads: std::mem::take(&mut body.reads),
            trees: std::mem::take(&mut body.trees),
            savepoints: std::mem::take(&mut body.savepoints),
            next_savepoint: 0,
            wait: body.wait.take(),
            through_sync: body.through_sync,
            has_ended: true,
        })
    }

    /// The snapshot, which begins now if it has not. It ends with the transaction.
    fn snapshot(&self, wait: &Wait) -> Result<Snapshot> {
        if let Some(snapshot) = self.with_body(|body| Ok(body.snapshot.clone()))? {
            return Ok(snapshot);
        }
        let begun = Snapshot::begin(&self.inner, &wait.begin())?;
        // Another thread may have come first.
        self.with_body(|body| Ok(body.snapshot.get_or_insert(begun).clone()))
    }

    /// Notes what was asked for, within its bound.
    fn note_read(&self, note: impl FnOnce(&mut Reads)) -> Result<()> {
        let most = self.inner.store.pool().budget().limit_bytes() / READS_SHARE;
        self.with_body(|body| {
            note(&mut body.reads);
            while body.reads.len_bytes() > most && body.reads.all().len() > 1 {
                body.reads.halve();
            }
            Ok(())
        })
    }

    /// [`Self::note_read`] of what ends at a long key.
    fn note_long(&self, note: impl FnOnce(&mut Reads)) -> Result<()> {
        self.has_long_keys.store(true, Relaxed);
        self.note_read(note)
    }

    /// [`Self::note_read`] of an interval in the tree.
    fn note_range(
        &self,
        tree: &PoolTree,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        note: impl FnOnce(&mut Reads),
    ) -> Result<()> {
        let is_at_long = |bound: Bound<&[u8]>| match bound {
            Bound::Included(key) | Bound::Excluded(key) => is_long(tree, key),
            Bound::Unbounded => false,
        };
        match is_at_long(bounds.0) || is_at_long(bounds.1) {
            true => self.note_long(note),
            false => self.note_read(note),
        }
    }

    /// Passes an error of a read on, and remembers whether it says that the snapshot is too old.
    fn remember(&self, error: Error) -> Error {
        if *error.kind() == ErrorKind::SnapshotTooOld {
            self.was_too_old.store(true, Relaxed);
        }
        error
    }

    /// Makes the changes of an ended transaction.
    fn make(&self, body: &Body, wait: &Wait, waiting: &Waiting<'_>) -> Result<Lsn> {
        let store = &self.inner.store;
        if body.writes.is_empty() {
            // What it has read was all there, at the moment of its snapshot.
            return Ok(body.snapshot.as_ref().map_or_else(|| store.last_lsn(), Snapshot::lsn));
        }
        let trees: BTreeMap<TreeId, PoolTree> = body
            .trees
            .iter()
            .map(|(id, (_, tree))| (*id, tree.clone().with_wait(wait.clone())))
            .collect();
        if self.has_long_keys.load(Relaxed) {
            return self.make_long(body, &trees, waiting);
        }
        let mut prepared = Vec::with_capacity(body.writes.len());
        for (tree, key, value) in body.writes.all() {
            let tree = &trees[&tree];
            let value = value.map(|value| self.inner.prepare(tree, key, value)).transpose()?;
            prepared.push((tree, key, value));
        }
        let changes: Vec<BatchChange<'_>> = prepared
            .iter()
            .map(|(tree, key, value)| BatchChange {
                tree,
                key,
                value: value.as_ref().map(Prepared::bytes),
            })
            .collect();
        let committed = match &body.snapshot {
            // Who has read nothing goes where the log's end is by then.
            None => store.commit(&changes, None, waiting)?,
            Some(snapshot) => {
                let mut asked = body.reads.clone();
                if self.isolation == Isolation::Snapshot && !leaves_out("blind_write_unchecked") {
                    body.writes.all().for_each(|(tree, key, _)| asked.key(tree, key));
                }
                let intervals = asked.all();
                let reads: Vec<Read<'_, _>> = intervals
                    .iter()
                    .map(|(tree, lower, upper)| Read {
                        tree: &trees[tree],
                        lower: lower.as_ref().map(Vec::as_slice),
                        upper: match leaves_out("end_of_range_unguarded") {
                            true => lower.as_ref().map(Vec::as_slice),
                            false => upper.as_ref().map(Vec::as_slice),
                        },
                    })
                    .collect();
                let set = BatchReads { reads: &reads, judge: &**snapshot.open() };
                let committed = store.commit(&changes, Some(&set), waiting);
                committed.map_err(|error| self.with_whole_key(body, error))?
            }
        };
        drop(changes);
        let Some(lsn) = committed else { return Err(self.too_large(body.writes.len_bytes())) };
        prepared.into_iter().filter_map(|(_, _, value)| value).for_each(Prepared::keep);
        Ok(lsn)
    }

    #[cold]
    fn too_large(&self, len_bytes: u64) -> Error {
        let max_bytes = self.inner.store.most_stroke_bytes();
        let words = match len_bytes > max_bytes {
            true => {
                format!("the transaction changes {len_bytes} bytes, and at most {max_bytes} fit")
            }
            false => {
                "the transaction has read and changes more leaves than fit into memory at a time"
                    .to_owned()
            }
        };
        Error::new(ErrorKind::TransactionTooLarge { len_bytes, max_bytes }, words)
    }
}
