//! Snapshots of a store: what they keep beside old versions of records, and where they find values and names.
//!
//! Old versions, and what a snapshot sees, are the matter of `versions/`. A snapshot also keeps the places of large values from
//! being written again: it is noted as a reader of all of them, before its moment is read, until it ends or the next checkpoint finds
//! that it was given up. In a store that lives in memory, frames of a replaced value are kept until no snapshot sees it
//! (`buffer/large/old_values.rs`).
//!
//! `Send + Sync`. Nothing is latched here.

use super::batch::BatchChange;
use super::large::ExtentReader;
use super::{Found, PoolTree, Shared, Store, unknown_form};
use crate::buffer::{PinnedCheckpoint, PinnedPages, PoolVersions};
use crate::error::{Error, ErrorKind, Result};
use crate::large::Held;
use crate::large::{Stored, read_stored};
use crate::page::Values;
use crate::space::large::FixedReader;
use crate::space::slot_store::SlotStore;
use crate::tree::{FrozenTree, Value};
use crate::types::{Lsn, TreeId};
use crate::versions::{Figures, Kept, Seen, SlotId, Snapshot};
use crate::wait::{Wait, Waiting};
use hedgerow_sync::primitive::{Arc, Mutex};
use std::collections::BTreeMap;
use std::fmt;

/// In the place of the stamp of a leaf that nobody has looked at: newer than any snapshot.
pub const NO_LEAF: Lsn = Lsn(u64::MAX);

/// An open snapshot; dropping it ends it.
pub struct OpenSnapshot {
    shared: Arc<Shared>,
    /// Taken when it ends.
    ticket: Option<Snapshot>,
    /// It is in the list of those that do.
    keeps_extents: bool,
    at: Lsn,
    pub(super) is_of_commit: bool,
}

/// The snapshots that keep the places of large values, with what ends that.
#[derive(Default)]
pub(super) struct KeptExtents(Mutex<BTreeMap<SlotId, FixedReader>>);

impl KeptExtents {
    fn end(&self, snapshot: SlotId, slots: &SlotStore) {
        let reading = self.0.lock().remove(&snapshot);
        if let Some(reading) = reading {
            slots.end_fixed(reading);
        }
    }

    /// Ends what snapshots keep that were given up.
    fn end_given_up(&self, versions: &PoolVersions, slots: &SlotStore) {
        // Who is in the list has its slot still.
        let is_given_up = |slot: &SlotId, _: &mut FixedReader| versions.is_given_up(*slot);
        let ended: Vec<_> = self.0.lock().extract_if(.., is_given_up).collect();
        ended.into_iter().for_each(|(_, reading)| slots.end_fixed(reading));
    }
}

impl fmt::Debug for OpenSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSnapshot").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Drop for OpenSnapshot {
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            // In a forked process it is the parent's, and locks may be held for ever.
            return;
        }
        if let Some(ticket) = self.ticket.take() {
            let pool = &self.shared.pool;
            if let Some(slots) = self.shared.slots.as_ref().filter(|_| self.keeps_extents) {
                self.shared.kept_extents.end(ticket.slot(), slots);
            }
            drop(self.versions().end(ticket));
            self.versions().tend_now_and_then(&**pool);
            pool.release_old_values(self.at);
        }
    }
}

/// What an old value of a record is, as its leaf had it.
pub enum Was {
    /// There was no record.
    Absent,
    /// It is what the leaf has.
    Leaf,
    /// It was put where the caller said.
    Version,
    /// It is what the pinned checkpoint has.
    Pinned,
}

/// Where the keys are that a snapshot may see in the range of a leaf, beside removed ones.
pub enum Source {
    /// In the leaf.
    Leaf,
    /// Nowhere.
    Nothing,
    /// In a pinned checkpoint.
    Checkpoint(Arc<PinnedCheckpoint>),
}

impl Store {
    /// Begins a snapshot of everything that was changed before.
    ///
    /// Errors: `MemoryLimit`; those of `waiting`.
    pub fn snapshot(&self, waiting: &Waiting<'_>) -> Result<OpenSnapshot> {
        let shared = &self.shared;
        shared.pool.check_open()?;
        let versions = shared.versions();
        shared.give_up_old();
        loop {
            let had_stored_forms = shared.pool.has_stored_forms();
            // Before its moment: what a record refers to then is kept.
            let reading = match &shared.slots {
                Some(slots) if had_stored_forms => {
                    Some(slots.read_extents(shared.pool.epochs().current()))
                }
                _ => None,
            };
            let ticket = versions.begin(&*shared.pool, waiting)?;
            let at = ticket.lsn();
            let keeps_extents = reading.is_some();
            if let Some(reading) = reading {
                // What is there at its moment was put in this epoch at the latest.
                let reading = reading.fixed(shared.pool.epochs().current());
                shared.kept_extents.0.lock().insert(ticket.slot(), reading);
            }
            let snapshot = OpenSnapshot {
                shared: shared.clone(),
                ticket: Some(ticket),
                keeps_extents,
                at,
                is_of_commit: false,
            };
            if had_stored_forms || !shared.pool.has_stored_forms() {
                return Ok(snapshot);
            }
            // The first large value has come meanwhile.
        }
    }

    /// All snapshots that are open, and whoever runs alone, with what is kept for them.
    pub fn kept(&self) -> Vec<Kept<PinnedCheckpoint>> {
        self.shared.give_up_old();
        self.shared.pool.versions().map_or_else(Vec::new, PoolVersions::kept)
    }

    /// Makes the only change of a transaction that has read nothing, or with a `judge` nothing but this record. `None`, and nothing is done,
    /// if it takes a look at records to know whether that is unchanged: [`Self::commit`] takes it.
    ///
    /// Errors: as for [`Self::commit`].
    #[inline]
    pub fn commit_one(
        &self,
        change: &BatchChange<'_>,
        judge: Option<&OpenSnapshot>,
    ) -> Result<Option<Lsn>> {
        let BatchChange { tree, key, value } = *change;
        let is_made = match (judge, value) {
            (Some(judge), _) => tree.change_if_unchanged(key, value, judge)?,
            (None, Some(value)) => tree.put(key, value).map(|_| true)?,
            (None, None) => tree.remove(key).map(|_| true)?,
        };
        Ok(is_made.then(|| self.shared.pool.last_lsn()))
    }

    /// What is known of snapshots.
    pub fn version_figures(&self) -> Figures {
        self.shared.versions().figures()
    }
}

impl Shared {
    pub(super) fn versions(&self) -> &PoolVersions {
        self.pool.versions().expect("a store keeps versions")
    }
}

impl Shared {
    /// Gives snapshots up that are older than any may be.
    pub(super) fn give_up_old(&self) {
        if let Some((most, versions)) = self.max_snapshot_age.zip(self.pool.versions()) {
            versions.give_up_older(most);
        }
    }

    /// Frees the places of large values that only snapshots keep which were given up.
    pub(super) fn free_given_up_extents(&self) {
        if let Some((versions, slots)) = self.pool.versions().zip(self.slots.as_ref()) {
            self.kept_extents.end_given_up(versions, slots);
        }
    }
}

impl OpenSnapshot {
    pub(super) fn versions(&self) -> &PoolVersions {
        self.shared.versions()
    }

    /// Errors: `SnapshotTooOld` if it is older than any may be; then nothing is kept for it any more.
    fn check_age(&self) -> Result<()> {
        let Some(most) = self.shared.max_snapshot_age else { return Ok(()) };
        if self.versions().age(self.ticket()) <= most {
            return Ok(());
        }
        drop(self.versions().give_up(self.ticket()));
        let what =
            format!("the snapshot is older than {most:?}, the most that the database allows");
        Err(Error::new(ErrorKind::SnapshotTooOld, what))
    }

    pub(super) fn ticket(&self) -> &Snapshot {
        self.ticket.as_ref().expect("it has not ended")
    }

    /// From now on it is a commit's, and nothing is read with it but what that compares.
    pub fn be_of_commit(&mut self) {
        self.is_of_commit = true;
    }

    /// Its moment.
    pub fn lsn(&self) -> Lsn {
        self.at
    }

    /// The value of a record as its leaf had it; `None`: there was none.
    ///
    /// Errors: those of reads; `SnapshotTooOld`.
    #[inline]
    pub fn get(&self, tree: &PoolTree, key: &[u8]) -> Result<Option<Value>> {
        self.check_age()?;
        // Filled where the caller gets it, as `Tree::get` does.
        let mut result = Ok(Some(Value::default()));
        if let Ok(Some(value)) = &mut result {
            match tree.get_stamped(key, value) {
                Ok((is_there, stamp))
                    if self.versions().sees_all(self.ticket(), tree.id(), stamp) =>
                {
                    if !is_there {
                        result = Ok(None);
                    }
                    return result;
                }
                Err(error) if error.kind() != ErrorKind::KeyspaceDropped => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        self.get_old(tree, key)
    }

    /// [`Self::get`] where the leaf does not tell all. Looks at it anew.
    #[inline(never)]
    fn get_old(&self, tree: &PoolTree, key: &[u8]) -> Result<Option<Value>> {
        let mut scratch = Vec::new();
        let mut value = Value::default();
        let mut found = false;
        let look = || match tree.get_stamped(key, &mut value) {
            Ok((is_there, stamp)) => {
                found = is_there;
                Ok(stamp)
            }
            // There is no leaf any more, and what there was may be in a pinned checkpoint.
            Err(error) if self.is_dropped_since(tree.id(), &error) => Ok(NO_LEAF),
            Err(error) => Err(error),
        };
        let seen = self.versions().read(self.ticket(), tree.id(), key, look, &mut scratch);
        match seen? {
            Seen::Leaf => Ok(found.then_some(value)),
            Seen::Absent => Ok(None),
            Seen::Version => Ok(Some(Value::from(scratch.as_slice()))),
            Seen::Checkpoint(pin) => {
                scratch.clear();
                let is_there = self.pinned(&pin, tree, |pinned| pinned.get(key, &mut scratch))?;
                Ok(is_there.then(|| Value::from(scratch.as_slice())))
            }
            Seen::TooOld => Err(too_old()),
        }
    }

    /// Whether a look at a tree has come to nothing because that was dropped after the snapshot had begun. A drop is noted before any page goes.
    pub fn is_dropped_since(&self, tree: TreeId, error: &Error) -> bool {
        error.kind() == ErrorKind::KeyspaceDropped
            && self.versions().is_dropped_since(self.ticket(), tree)
    }

    /// Reads a tree in a pinned checkpoint.
    ///
    /// Errors: those of `read`; `SnapshotTooOld`.
    pub fn pinned<R>(
        &self,
        pin: &PinnedCheckpoint,
        tree: &PoolTree,
        read: impl FnOnce(&FrozenTree<'_, PinnedPages<'_>>) -> Result<R>,
    ) -> Result<R> {
        let pages = pin.pages(&self.shared.pool);
        read(&FrozenTree::new(&pages, tree.id(), tree.root())).map_err(dropped_is_too_old)
    }

    /// What a record was, of whose leaf a copy has this stamp; an old value is appended to `to`.
    ///
    /// Errors: as for [`Self::get`].
    pub fn was(&self, tree: TreeId, key: &[u8], stamp: Lsn, to: &mut Vec<u8>) -> Result<Was> {
        was_of(&self.versions().read(self.ticket(), tree, key, || Ok(stamp), to)?)
    }

    /// [`Self::was`], where nothing is read from the file: of what is pinned, an old version may be there, too.
    pub(super) fn was_in_memory(
        &self,
        tree: TreeId,
        key: &[u8],
        stamp: Lsn,
        to: &mut Vec<u8>,
    ) -> Result<Was> {
        was_of(&self.versions().read_in_memory(self.ticket(), tree, key, stamp, to)?)
    }

    /// Where the keys are that the snapshot may see in the range of a leaf with this stamp, of which there is a copy. Beside them there are
    /// [removed ones](Self::removed_within).
    ///
    /// Errors: `SnapshotTooOld`.
    pub fn source(&self, tree: TreeId, stamp: Lsn) -> Result<Source> {
        self.check_age()?;
        match self.versions().source(self.ticket(), tree, stamp) {
            Seen::Leaf | Seen::Version => Ok(Source::Leaf),
            Seen::Absent => Ok(Source::Nothing),
            Seen::Checkpoint(pin) => Ok(Source::Checkpoint(pin)),
            Seen::TooOld => Err(too_old()),
        }
    }

    /// What a value out of a leaf stands for.
    ///
    /// Errors: those of reading large values.
    pub fn resolve(&self, found: &[u8], wait: &Wait) -> Result<Found> {
        match &self.shared.slots {
            None => match Held::decode(found) {
                Some(held) => {
                    let mut bytes = Vec::new();
                    match self.shared.pool.append_held(&held, &mut bytes) {
                        true => Ok(Found::Held {
                            value: Value::from(bytes),
                            reference: Value::from(found),
                        }),
                        false => Err(too_old()),
                    }
                }
                None => plain(found),
            },
            Some(slots) => match read_stored(found) {
                Stored::Extent(extent) => {
                    // Kept by the snapshot until this reader has it.
                    let reading = slots.read_extents(self.shared.pool.epochs().current());
                    let pool = Some(&self.shared.pool);
                    let reader = ExtentReader::new(pool, slots, extent, reading);
                    // If not, the snapshot kept it until the reader had it.
                    if self.versions().is_given_up(self.ticket().slot()) {
                        return Err(too_old());
                    }
                    Ok(Found::Extent(Box::new(reader?.with_wait(wait))))
                }
                _ => plain(found),
            },
        }
    }

    /// Whether a value in a leaf may be in a stored form.
    #[inline]
    pub fn has_stored_forms(&self) -> bool {
        self.shared.pool.has_stored_forms()
    }

    /// The keyspace that was called `name`.
    pub fn open_keyspace(&self, name: &str) -> Result<Option<PoolTree>> {
        self.if_kept(self.shared.catalogue.get_as_of(name, self.at)?)
    }

    /// The names of all keyspaces that there were.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.if_kept(self.shared.catalogue.names_as_of(self.at)?)
    }

    /// Whether there was a keyspace with this tree.
    pub fn was_there(&self, tree: TreeId) -> Result<bool> {
        self.if_kept(self.shared.catalogue.was_there(tree, self.at)?)
    }

    /// Whether the keyspace with this tree had ended by then, and its pages are going.
    pub fn is_ending(&self, tree: TreeId) -> bool {
        self.shared.catalogue.is_ending(tree, self.at)
    }

    /// What was found, if the snapshot was not given up before.
    fn if_kept<T>(&self, found: T) -> Result<T> {
        self.check_age()?;
        if self.versions().is_given_up(self.ticket().slot()) { Err(too_old()) } else { Ok(found) }
    }
}

fn plain(found: &[u8]) -> Result<Found> {
    match read_stored(found) {
        Stored::Plain(plain) => Ok(Found::Short(Value::from(plain))),
        Stored::Extent(_) | Stored::Damaged => Err(unknown_form()),
    }
}

/// The pages of a keyspace that was dropped are gone, and with them what a snapshot could see, unless it reads them in a checkpoint.
pub fn dropped_is_too_old(error: Error) -> Error {
    match error.kind() {
        ErrorKind::KeyspaceDropped => {
            let what = "the keyspace was created or dropped after the snapshot had begun";
            Error::new(ErrorKind::SnapshotTooOld, what)
        }
        _ => error,
    }
}

fn was_of<P>(seen: &Seen<P>) -> Result<Was> {
    match seen {
        Seen::Leaf => Ok(Was::Leaf),
        Seen::Absent => Ok(Was::Absent),
        Seen::Version => Ok(Was::Version),
        Seen::Checkpoint(_) => Ok(Was::Pinned),
        Seen::TooOld => Err(too_old()),
    }
}

#[cold]
pub(super) fn too_old() -> Error {
    let what = "more has changed since the snapshot began than there is memory for old versions, or the keyspace was \
                dropped: begin another one, hold it for less time, or raise the memory limit";
    Error::new(ErrorKind::SnapshotTooOld, what)
}
