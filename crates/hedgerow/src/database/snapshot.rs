//! Snapshots: the database as it was at one moment, for as long as somebody wants it.
//!
//! Rank 7. What users need to know of them stands with [`Snapshot`]. How they are made is the matter of `versions/` and
//! `store/snapshots.rs`; here they are read. `Send + Sync`.

use crate::database::database::Database;
use crate::database::inner::Inner;
use crate::database::keyspace::Keyspace;
use crate::database::long::{Spot, is_long, spot_of};
use crate::database::reads::reads;
use crate::database::snapshot_stretches::OpenStretches;
use crate::database::stretch::Stretches;
use crate::database::values::Seen;
use crate::database::view::View;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{OpenSnapshot, PoolTree};
use crate::types::Lsn;
use crate::wait::Waiting;
use hedgerow_sync::primitive::Arc;
use std::fmt;

/// The database as it was at one moment. See [`Database::snapshot`].
///
/// All keyspaces are seen as of the same moment: every change that had been made before the snapshot began, and none that came later.
/// Reads of a snapshot lock nothing. An owned handle, `Send + Sync`; cloning it is cheap, and the snapshot ends with its last
/// handle, or the last [`SnapshotKeyspace`], cursor or iterator of it.
///
/// **What it costs.** Records that change while a snapshot is open are kept as they were, in an eighth of the memory limit at most. In a database with a file
/// the next checkpoint moves that to the file, which gets longer by what is changed for as long as the snapshot is open. When the memory for it is nearly
/// full, a writer may wait for a checkpoint, two seconds at most. If there is no room all the same, the oldest snapshot is given up: reading it is
/// [`SnapshotTooOld`](ErrorKind::SnapshotTooOld) from then on, and writers go on. A database in memory has no checkpoints, and gives snapshots up as soon as
/// there is no room. `docs/transactions.md` in the repository has the details.
///
/// Large values that a snapshot sees keep their space. A keyspace that is dropped is still seen, but not in a database in memory, nor if the checkpoint
/// that the drop takes for it fails.
#[derive(Clone)]
pub struct Snapshot {
    inner: Arc<Inner>,
    open: Arc<OpenSnapshot>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("lsn", &self.open.lsn()).finish_non_exhaustive()
    }
}

impl Database {
    /// Begins a snapshot of the whole database. Takes well under a microsecond if others were open just before, within 50 us or more. Otherwise it
    /// waits until the changes that other threads are making just now are made, some microseconds. Reads nothing, and writes nothing.
    ///
    /// ```
    /// let db = hedgerow::Options::new().in_memory()?;
    /// let birds = db.keyspace("birds")?;
    /// birds.put(b"wren", b"1")?;
    /// let before = db.snapshot()?;
    /// birds.put(b"wren", b"2")?;
    /// assert_eq!(before.keyspace(&birds)?.get(b"wren")?.unwrap(), b"1");
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`MemoryLimit`](ErrorKind::MemoryLimit) if there is no memory for old versions of records.
    pub fn snapshot(&self) -> Result<Snapshot> {
        self.inner.check_open()?;
        Snapshot::begin(&self.inner, &Waiting::Forever)
    }
}

impl Snapshot {
    fn begin(inner: &Arc<Inner>, waiting: &Waiting<'_>) -> Result<Snapshot> {
        let open = Arc::new(inner.store.snapshot(waiting)?);
        Ok(Snapshot { inner: inner.clone(), open })
    }

    /// The moment: the log's position behind the last change that it sees. Grows from snapshot to snapshot, over restarts as well; without a log it
    /// goes on behind the last checkpoint after a restart.
    #[must_use]
    pub fn lsn(&self) -> Lsn {
        self.open.lsn()
    }

    /// What it sees of a keyspace. Its reads wait as the handle's do.
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](ErrorKind::KeyspaceNotFound) if the keyspace came later; [`KeyspaceDropped`](ErrorKind::KeyspaceDropped) if
    /// it had gone; [`ForeignKeyspace`](ErrorKind::ForeignKeyspace);
    /// [`SnapshotTooOld`](ErrorKind::SnapshotTooOld); the [errors of reads](Keyspace#errors-of-reads).
    pub fn keyspace(&self, of: &Keyspace) -> Result<SnapshotKeyspace> {
        self.inner.check_open()?;
        if !Arc::ptr_eq(&self.inner, of.inner()) {
            let what = "the keyspace belongs to another database than the snapshot";
            return Err(Error::new(ErrorKind::ForeignKeyspace, what));
        }
        if !self.open.was_there(of.tree().id())? {
            let what = "there was no such keyspace when the snapshot began";
            return Err(Error::new(ErrorKind::KeyspaceNotFound, what));
        }
        Ok(self.see(of.tree().clone(), of.name()))
    }

    /// What it sees of the keyspace that was called `name`, or `None` if there was none. Costs a look-up in the catalogue.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName); [`SnapshotTooOld`](ErrorKind::SnapshotTooOld); the [errors of reads](Keyspace#errors-of-reads).
    pub fn open_keyspace(&self, name: &str) -> Result<Option<SnapshotKeyspace>> {
        self.inner.check_open()?;
        Ok(self.open.open_keyspace(name)?.map(|tree| self.see(tree, name)))
    }

    /// The names of all keyspaces that there were, in the order of their bytes. Reads the catalogue, a small tree.
    ///
    /// # Errors
    /// [`SnapshotTooOld`](ErrorKind::SnapshotTooOld); the [errors of reads](Keyspace#errors-of-reads).
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.inner.check_open()?;
        self.open.keyspaces()
    }

    fn see(&self, tree: PoolTree, name: &str) -> SnapshotKeyspace {
        let (tree, name) = (tree.with_short_keys(false), name.into());
        SnapshotKeyspace { view: Arc::new(SnapshotView { snapshot: self.clone(), tree, name }) }
    }
}

/// A keyspace as it was when a [`Snapshot`] began. It keeps the snapshot open. Cloning it is cheap. `Send + Sync`.
///
/// It has the reads that [`Records`](crate::Records) lists; all of them, cursors and iterators as well, see the same moment.
#[derive(Clone)]
pub struct SnapshotKeyspace {
    view: Arc<SnapshotView>,
}

impl SnapshotKeyspace {
    #[inline]
    fn view(&self) -> &SnapshotView {
        &self.view
    }

    fn shared_view(&self) -> Arc<dyn View> {
        self.view.clone()
    }

    fn named(&self) -> &str {
        &self.view.name
    }
}

impl fmt::Debug for SnapshotKeyspace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotKeyspace").finish_non_exhaustive()
    }
}

reads!(
    SnapshotKeyspace,
    "The [errors of reads](crate::Keyspace#errors-of-reads); [`SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld)."
);

struct SnapshotView {
    snapshot: Snapshot,
    tree: PoolTree,
    name: Box<str>,
}

impl View for SnapshotView {
    fn inner(&self) -> &Arc<Inner> {
        &self.snapshot.inner
    }

    fn check(&self) -> Result<()> {
        self.snapshot.inner.check_open()
    }

    #[inline]
    fn see(&self, key: &[u8]) -> Result<Option<Seen>> {
        self.check()?;
        if is_long(&self.tree, key) {
            return self.spot(key)?.seen(&self.tree, key);
        }
        let value = self.snapshot.open.get(&self.tree, key)?;
        let may_be_stored = self.snapshot.open.has_stored_forms();
        Ok(value.map(|value| Seen::new(value, may_be_stored)))
    }

    #[cold]
    fn spot(&self, key: &[u8]) -> Result<Spot> {
        spot_of(&self.snapshot.open, &self.snapshot.inner, &self.tree, key)
    }

    fn stretches(&self) -> Box<dyn Stretches> {
        Box::new(OpenStretches::new(self.snapshot.open.clone(), self.tree.clone()))
    }

    fn snapshot(&self) -> Result<Arc<OpenSnapshot>> {
        Ok(self.snapshot.open.clone())
    }

    fn tree(&self) -> &PoolTree {
        &self.tree
    }
}
