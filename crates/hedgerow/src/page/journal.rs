//! The journal: what a change of the tree tells, in which order, and what it has to have first.
//!
//! A change enters an epoch, with the room that it needs in the log and among the old versions; appends, under the leaf's latch, what it has
//! done; keeps what was there before for snapshots; and leaves. This file is where pages and log meet: nothing else in `page` knows what a
//! record of the log is.
//!
//! *Nothing is waited for while a page is latched.* The ways in wait, so the caller holds no latch, and no other stay; the rest does not wait.
//! `Send + Sync`: every method may be called by any number of threads.

use crate::error::{Error, Result};
use crate::types::{Epoch, Lsn, Purpose, TreeId};
use crate::versions::Change;
use crate::wait::Waiting;
use crate::wal::Record;

/// A writer's stay in an epoch.
pub trait EpochStay {
    /// The epoch that changes made during the stay are stamped with.
    fn epoch(&self) -> Epoch;
}

/// Takes note of changes. Without a log and without snapshots it does next to nothing: the methods that an implementation may leave
/// out are those of such a one.
pub trait Journal {
    /// A writer's stay in an epoch; leaving is dropping it.
    type EpochGuard<'p>: EpochStay
    where
        Self: 'p;

    /// Enters the current epoch in order to change pages. May wait for a checkpoint, so nothing may
    /// be latched and no other stay be open in this thread. Errors: read-only, poisoned, closed.
    fn enter(&self) -> Result<Self::EpochGuard<'_>>;

    /// [`Self::enter`], with room in the log for `log_bytes` of records to be appended during the stay; may
    /// wait for the disk to make some, as long as `waiting` says. Errors: those of it, too; then nothing is promised.
    fn enter_to_append(
        &self,
        _log_bytes: u64,
        _purpose: Purpose,
        _waiting: &Waiting<'_>,
    ) -> Result<Self::EpochGuard<'_>> {
        self.enter()
    }

    /// [`Self::enter_to_append`], in order to change records. If snapshots may need what they were before, there is room for that:
    /// `version_cells` of it, as [`crate::versions::cells_of_change`] counts, no more than [`Self::most_version_cells`]. Errors, too:
    /// `Gated` if somebody else changes records alone, or there is no such room; who is let in keeps the former waiting. Whoever runs alone enters with
    /// [`Purpose::Finish`], and keeps nothing for snapshots.
    fn enter_to_change(
        &self,
        log_bytes: u64,
        _version_cells: impl Fn() -> u32,
        purpose: Purpose,
        waiting: &Waiting<'_>,
    ) -> Result<Self::EpochGuard<'_>> {
        self.enter_to_append(log_bytes, purpose, waiting)
    }

    /// [`Self::enter`], in order to give space back: goes on where there is no more room for others.
    fn enter_to_free(&self, _waiting: &Waiting<'_>) -> Result<Self::EpochGuard<'_>> {
        self.enter()
    }

    /// Appends to the log what has just been done to a page whose exclusive latch is still held. Waits for
    /// nothing. The LSN of the change, the end of its record, which the leaf is stamped with; where there is no log it comes from a clock,
    /// and many changes have one. LSNs of changes of one leaf never fall.
    fn append(&self, _stay: &Self::EpochGuard<'_>, _record: &Record<'_>) -> Lsn {
        Lsn(0)
    }

    /// Whether what is appended goes to a log. If not, [`Self::append`] looks at a clock.
    fn has_log(&self) -> bool {
        false
    }

    /// Whether [`Self::keep_version`] is to be told of all changes of this stay.
    fn keeps_versions(&self, _stay: &Self::EpochGuard<'_>) -> bool {
        false
    }

    /// Keeps what a record was before a change, if a snapshot may need it: after the change was appended, and before its leaf is
    /// unlatched. Waits for nothing but a short look at a table, and allocates nothing.
    fn keep_version(&self, _stay: &Self::EpochGuard<'_>, _change: &Change<'_>) {}

    /// How much of the stay's room for versions is left; 0 if none are kept.
    fn version_cells(&self, _stay: &Self::EpochGuard<'_>) -> u32 {
        0
    }

    /// How much room changes that are made together may have.
    fn most_version_cells(&self) -> u32 {
        0
    }

    /// Appends that all records of a tree were loaded, for which the stay has room in the log; snapshots that are below that do not see
    /// them. With the root latched, and before they are there.
    fn note_load(&self, stay: &Self::EpochGuard<'_>, tree: TreeId) {
        self.append(stay, &Record::Load { tree });
    }

    /// After this every change fails: what is in memory is not what was appended.
    fn poison(&self, _error: &Error) {}
}
