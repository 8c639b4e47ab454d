//! Snapshots: the database as it was at one moment, for as long as somebody wants it.
//!
//! Rank 7. What users need to know of them stands with [`Snapshot`]. How they are made is the matter of `versions/` and
//! `store/snapshots.rs`; here they are read. `Send + Sync`.

use crate::database::database::{Database, Inner};
use crate::database::keyspace::Keyspace;
use crate::database::long::{Spot, is_long, spot_of};
use crate::database::stretch::{Stretch, Stretches, Wanted};
use crate::database::view::{Seen, View, reads};
use crate::error::{Error, ErrorKind, Result};
use crate::large::is_stored_form;
use crate::store::{NO_LEAF, OpenSnapshot, PoolTree, Source, Was, dropped_is_too_old};
use crate::tree::{FrozenWalk, LeafRecords, LeafWalk, Target};
use crate::types::Lsn;
use crate::wait::Waiting;
use hedgerow_sync::primitive::Arc;
use std::fmt;
use std::ops::Bound;

/// The database as it was at one moment. See [`Database::snapshot`].
///
/// All keyspaces are seen as of the same moment: every change that had been made before the snapshot began, and none that came later.
/// Reads of a snapshot lock nothing. An owned handle, `Send + Sync`; cloning it is cheap, and the snapshot ends with its last
/// handle, or the last [`SnapshotKeyspace`], cursor or iterator of it.
///
/// **What it costs.** While snapshots are open, a change of a record keeps what the record was, if a snapshot sees that: in memory inside of the
/// memory limit, an eighth of it at most. A second change of the same record costs nothing more, unless another snapshot has begun
/// in between. In a database with a file the next checkpoint takes the snapshot over: from then on it costs writers nothing more, and
/// the file keeps what the snapshot sees, so that it gets longer by what is changed. Checkpoints are taken earlier for that, and a writer may
/// have to wait for one, for seconds at most. If there is no room left all the same, the oldest snapshot is given up: reading it is
/// [`SnapshotTooOld`](ErrorKind::SnapshotTooOld) from then on, and writers go on. A database in memory has no checkpoints, and gives
/// snapshots up as soon as there is no room. Large values that a snapshot sees keep their space. A keyspace that is dropped is still
/// seen, but not in a database in memory.
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

    /// What it sees of a keyspace.
    ///
    /// # Errors
    /// [`KeyspaceNotFound`](ErrorKind::KeyspaceNotFound) if the keyspace came later; [`ForeignKeyspace`](ErrorKind::ForeignKeyspace);
    /// the [errors of reads](Keyspace#errors-of-reads).
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
        Ok(self.see(of.tree().clone()))
    }

    /// What it sees of the keyspace that was called `name`, or `None` if there was none. Costs a look-up in the catalogue.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn open_keyspace(&self, name: &str) -> Result<Option<SnapshotKeyspace>> {
        self.inner.check_open()?;
        Ok(self.open.open_keyspace(name)?.map(|tree| self.see(tree)))
    }

    /// The names of all keyspaces that there were, in the order of their bytes. Reads the catalogue, a small tree.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.inner.check_open()?;
        self.open.keyspaces()
    }

    fn see(&self, tree: PoolTree) -> SnapshotKeyspace {
        let tree = tree.with_short_keys(false);
        SnapshotKeyspace { view: Arc::new(SnapshotView { snapshot: self.clone(), tree }) }
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
        Ok(value.map(|value| Seen {
            is_stored: may_be_stored && is_stored_form(&value),
            value,
            before_bytes: 0,
        }))
    }

    #[cold]
    fn spot(&self, key: &[u8]) -> Result<Spot> {
        spot_of(&self.snapshot.open, &self.snapshot.inner, &self.tree, key)
    }

    fn stretches(&self) -> Box<dyn Stretches> {
        Box::new(SnapshotStretches::new(self.snapshot.open.clone(), self.tree.clone()))
    }

    fn snapshot(&self) -> Result<Arc<OpenSnapshot>> {
        Ok(self.snapshot.open.clone())
    }

    fn tree(&self) -> &PoolTree {
        &self.tree
    }
}

/// The leaves of a tree, and what of them a snapshot sees.
pub(super) struct SnapshotStretches {
    open: Arc<OpenSnapshot>,
    tree: PoolTree,
    leaf: LeafRecords,
    /// Where the last stretch came from: along which of the two walks, so that the next one is looked for on the same.
    is_pinned: bool,
    walk: LeafWalk,
    pinned_walk: FrozenWalk,
    removed: Vec<Vec<u8>>,
    value: Vec<u8>,
}

impl SnapshotStretches {
    pub(super) fn new(open: Arc<OpenSnapshot>, tree: PoolTree) -> SnapshotStretches {
        let leaf = tree.leaf_records();
        SnapshotStretches {
            open,
            tree,
            leaf,
            is_pinned: false,
            walk: LeafWalk::default(),
            pinned_walk: FrozenWalk::default(),
            removed: Vec::new(),
            value: Vec::new(),
        }
    }

    /// The removed keys of a stretch's range, in order.
    fn find_removed(&mut self, stretch: &Stretch) -> Result<()> {
        let lower = stretch.lower().map_or(Bound::Unbounded, Bound::Excluded);
        let upper = stretch.upper().map_or(Bound::Unbounded, Bound::Included);
        self.open.removed_within(self.tree.id(), lower, upper, &mut self.removed)
    }
}

/// Whether a stretch was loaded, or the snapshot has gone over to a checkpoint meanwhile.
#[derive(PartialEq, Eq)]
enum Loaded {
    Whole,
    Elsewhere,
}

impl SnapshotStretches {
    /// Copies the leaf of the tree.
    fn copy_leaf(&mut self, wanted: Wanted<'_>) -> Result<()> {
        let (tree, leaf, walk) = (&self.tree, &mut self.leaf, &mut self.walk);
        let copied = match wanted {
            Wanted::Next(beyond) => tree.copy_next_records(beyond, walk, leaf),
            Wanted::At(target) => tree.copy_first_records(target, walk, leaf),
        };
        copied.inspect_err(|_| self.walk.forget())
    }

    /// Copies the leaf of the tree, or that of the pinned checkpoint that the snapshot reads instead. Gives which, and its stamp.
    fn copy_some_leaf(&mut self, wanted: Wanted<'_>) -> Result<(Source, Lsn)> {
        let (open, tree) = (self.open.clone(), self.tree.id());
        // If the leaf before had changed since, this one has, too, most likely, and need not be read.
        let mut source = if self.is_pinned { open.source(tree, NO_LEAF)? } else { Source::Leaf };
        if !matches!(source, Source::Checkpoint(_)) {
            let copied = self.copy_leaf(wanted);
            let stamp = match &copied {
                Ok(()) => self.leaf.stamp(),
                Err(error) if error.kind() == ErrorKind::KeyspaceDropped => NO_LEAF,
                Err(_) => return copied.map(|()| (source, NO_LEAF)),
            };
            source = open.source(tree, stamp)?;
            self.is_pinned = matches!(source, Source::Checkpoint(_));
            if !self.is_pinned {
                copied.map_err(dropped_is_too_old)?;
                return Ok((source, stamp));
            }
        }
        self.walk.forget();
        if let Source::Checkpoint(pin) = &source {
            let (leaf, walk) = (&mut self.leaf, &mut self.pinned_walk);
            open.pinned(pin, &self.tree, |pinned| match wanted {
                Wanted::Next(beyond) => pinned.copy_next_records(beyond, walk, leaf),
                Wanted::At(target) => pinned.copy_records(target, leaf),
            })?;
        }
        // It is older than versions, and none of the leaves of the tree.
        Ok((source, NO_LEAF))
    }

    /// Loads the range of the leaf in the tree, or the leaf of the pinned checkpoint that the snapshot reads instead.
    fn try_load(&mut self, wanted: Wanted<'_>, to: &mut Stretch) -> Result<Loaded> {
        let (source, stamp) = self.copy_some_leaf(wanted)?;
        let open = self.open.clone();
        let tree = self.tree.id();
        to.begin(
            |fence| self.leaf.append_lower_fence(fence),
            |fence| self.leaf.append_upper_fence(fence),
        );
        let has_stored_forms = open.has_stored_forms();
        let push = |to: &mut Stretch, key: &[u8], value: &[u8]| {
            to.push(key, value, has_stored_forms && is_stored_form(value));
        };
        if matches!(source, Source::Leaf) && stamp <= open.lsn() {
            self.leaf.for_each(|key, value| {
                push(to, key, value);
                true
            });
            return Ok(Loaded::Whole);
        }
        self.find_removed(to)?;
        let mut removed = self.removed.iter().peekable();
        let mut outcome = Ok(Loaded::Whole);
        let old = &mut self.value;
        let mut see = |to: &mut Stretch, key: &[u8], now: Option<&[u8]>| {
            old.clear();
            match (open.was(tree, key, stamp, old)?, &source) {
                (Was::Version, _) => push(to, key, old),
                (Was::Leaf, Source::Leaf) | (Was::Pinned, Source::Checkpoint(_)) => {
                    if let Some(now) = now {
                        push(to, key, now);
                    }
                }
                (Was::Absent, _) | (Was::Leaf, Source::Nothing) => {}
                (Was::Leaf | Was::Pinned, _) => return Ok(Loaded::Elsewhere),
            }
            Ok(Loaded::Whole)
        };
        self.leaf.for_each(|key, value| {
            outcome = (|| {
                while let Some(gone) = removed.next_if(|gone| gone.as_slice() < key) {
                    if see(to, gone, None)? == Loaded::Elsewhere {
                        return Ok(Loaded::Elsewhere);
                    }
                }
                removed.next_if(|gone| gone.as_slice() == key);
                see(to, key, Some(value))
            })();
            matches!(outcome, Ok(Loaded::Whole))
        });
        for gone in removed {
            if matches!(outcome, Ok(Loaded::Whole)) {
                outcome = see(to, gone, None);
            }
        }
        // Only now, when all versions are read: a key that was removed may be in the checkpoint alone by then.
        let is_pinned = |source: &Source| matches!(source, Source::Checkpoint(_));
        let is_elsewhere = is_pinned(&open.source(tree, stamp)?) != is_pinned(&source);
        Ok(if is_elsewhere { Loaded::Elsewhere } else { outcome? })
    }
}

impl Stretches for SnapshotStretches {
    fn load(&mut self, wanted: Wanted<'_>, to: &mut Stretch) -> Result<()> {
        let longest = self.tree.max_key_bytes();
        let mut wanted = match wanted {
            // An own key: it comes behind a tree key, and before the next one.
            Wanted::At(Target::Key(key)) if key.len() > longest => {
                Wanted::At(Target::Above(&key[..longest]))
            }
            wanted => wanted,
        };
        // A snapshot goes over to a checkpoint once.
        while self.try_load(wanted, to)? == Loaded::Elsewhere {
            // The walk has come to that leaf already.
            wanted = Wanted::At(wanted.target());
        }
        Ok(())
    }
}
