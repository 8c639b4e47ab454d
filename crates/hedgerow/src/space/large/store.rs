//! Extents of the file as those who read and write large values use them.
//!
//! The other half of [`crate::space::slot_store`]: finds units, extending the file and reading bitmaps as needed; notes
//! which extents records refer to; keeps units from being written again while somebody reads them; and lends the
//! memory that goes between a value and the file (`loans.rs`). `Send + Sync`; waits and I/O happen with nothing locked.
//!
//! Invariant: the delta of an epoch and what waits to be free change together.

use super::loans::Loans;
use super::staging::Staging;
use crate::error::{Error, ErrorKind, Result};
use crate::large::{Extent, Run};
use crate::space::large::chunk_bytes;
use crate::space::slot_store::SlotStore;
use crate::space::zones::Growth;
use crate::types::Epoch;
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Release};
use hedgerow_sync::primitive::{Arc, Condvar, Mutex, Weak};
use std::fmt;

pub use super::loans::{Borrower, Loan};

/// Chunks of an extent that is staged, at most. What is longer is written by whoever puts it: copied to a
/// buffer, it would keep the others from the buffer for too long.
const STAGED_CHUNKS: usize = 16;
/// Units that are freed with the state of the space locked.
const FREED_AT_ONCE: u64 = 1 << 12;
/// A checkpoint is due when so much of the file would be freed by it, and so large a part.
const DUE_BYTES: u64 = 64 << 20;
const DUE_PART: u64 = 8;

/// What [`SlotStore`] has for extents beside the state of the space.
#[derive(Default)]
pub(in crate::space) struct ExtentIo {
    /// There may be records in a stored form. Set before the first is put, and never cleared.
    stored_forms: AtomicBool,
    /// Whether keys in leaves may have labels.
    long_keys: AtomicBool,
    /// Some were written since the file was synced for that.
    unsynced: AtomicBool,
    writing: Mutex<Writing>,
    written: Condvar,
    loans: Arc<Loans>,
    pub(in crate::space) staging: Staging,
}

/// Who writes to the file, or makes it longer, for an extent.
#[derive(Default)]
struct Writing {
    count: usize,
    closed: bool,
}

/// Somebody does; until the value is dropped.
#[must_use]
pub struct ExtentWrite<'s>(&'s ExtentIo);

impl fmt::Debug for ExtentWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtentWrite")
    }
}

impl Drop for ExtentWrite<'_> {
    fn drop(&mut self) {
        self.0.writing.lock().count -= 1;
        self.0.written.notify_all();
    }
}

/// Somebody who may read any extent that a record refers to; until the value is dropped, or reads one of them only.
#[must_use]
pub struct Reading {
    slots: Arc<SlotStore>,
    from: Epoch,
    has_ended: bool,
}

impl fmt::Debug for Reading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reading").field("from", &self.from).finish_non_exhaustive()
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if !self.has_ended {
            self.slots.state().zones.reading_ends(self.from);
            self.slots.free_extents();
        }
    }
}

impl Reading {
    /// From now on nothing is read but this extent, to which a record referred after the reading had begun: of what is
    /// freed meanwhile only its units wait for the caller.
    pub fn only(mut self, extent: &Extent) -> ReadingOne {
        let mut state = self.slots.state();
        state.zones.reading_one_begins(&extent.runs);
        state.zones.reading_ends(self.from);
        drop(state);
        self.has_ended = true;
        self.slots.free_extents();
        ReadingOne { slots: self.slots.clone(), runs: extent.runs.clone() }
    }
}

/// Somebody reads one extent; until the value is dropped.
#[must_use]
pub struct ReadingOne {
    slots: Arc<SlotStore>,
    runs: Box<[Run]>,
}

impl fmt::Debug for ReadingOne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadingOne").field("runs", &self.runs).finish_non_exhaustive()
    }
}

impl Drop for ReadingOne {
    fn drop(&mut self) {
        self.slots.state().zones.reading_one_ends(&self.runs);
    }
}

impl SlotStore {
    /// Sets how much memory buffers may take at a time. Before anybody borrows one.
    pub fn set_loan_bytes(&self, bytes: u64) {
        self.extents.loans.set_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// Lends a buffer of as many chunks as there is memory for, one to `most`. Borrowers that are not using theirs give
    /// them back; if that is not enough, waits for those that are. The caller holds nothing but its own buffers.
    /// `borrower` can be asked for the loan; without one it is the caller's until it is dropped, within this call of the
    /// store.
    ///
    /// Errors: `MemoryLimit` if nobody returns enough within ten seconds, or the limit leaves no share for this; those of `waiting`.
    pub fn lend(
        &self,
        most: usize,
        borrower: Option<Weak<dyn Borrower>>,
        waiting: &Waiting<'_>,
    ) -> Result<Loan> {
        let chunk = chunk_bytes(self.geometry()) as usize;
        self.extents.loans.lend(chunk, most, borrower, waiting)
    }

    /// Whether there may be a buffer for so many staged bytes beside those of `lent_bytes`: together they leave a chunk.
    /// True if there is no other one, for [`Self::most_staged_bytes`].
    pub(in crate::space) fn may_stage(&self, len_bytes: usize, lent_bytes: usize) -> bool {
        let chunk = chunk_bytes(self.geometry()) as usize;
        let least = len_bytes.next_multiple_of(chunk);
        lent_bytes == 0 || lent_bytes + least + chunk <= self.extents.loans.bytes()
    }

    /// [`Self::lend`] of a buffer for at least so many staged bytes, beside others of `lent_bytes`; of `most` chunks at most,
    /// and no more than a third of the share or what these bytes need. What [`Self::may_stage`] allows.
    pub(in crate::space) fn lend_to_stage(
        &self,
        len_bytes: usize,
        most: usize,
        lent_bytes: usize,
        borrower: Weak<dyn Borrower>,
        waiting: &Waiting<'_>,
    ) -> Result<Loan> {
        let chunk = chunk_bytes(self.geometry()) as usize;
        let least = len_bytes.next_multiple_of(chunk);
        let share = self.extents.loans.bytes();
        let left = share.saturating_sub(lent_bytes + chunk);
        let most_bytes = (most * chunk).min(share / 3).min(left);
        self.extents.loans.lend(least, most_bytes / least, Some(borrower), waiting)
    }

    /// The most bytes of an extent that are worth staging: two of them fit into half of the share.
    pub fn most_staged_bytes(&self) -> usize {
        let chunk = chunk_bytes(self.geometry()) as usize;
        (self.extents.loans.bytes() / 4).min(STAGED_CHUNKS * chunk)
    }

    /// Whether a value in a leaf may be in a stored form. To be asked after the value was read, or under the
    /// leaf's latch.
    #[inline]
    pub fn has_stored_forms(&self) -> bool {
        self.extents.stored_forms.load(Acquire)
    }

    /// From now on it may. Before the first one is put.
    pub fn expect_stored_forms(&self) {
        self.extents.stored_forms.store(true, Release);
    }

    /// Whether a key in a leaf may be a long one's, with a label.
    pub fn has_long_keys(&self) -> bool {
        self.extents.long_keys.load(Acquire)
    }

    /// From now on it may. Before the first one is put.
    pub fn expect_long_keys(&self) {
        self.extents.long_keys.store(true, Release);
    }

    /// Lets the caller write to the file for an extent, or make it longer, beside checkpoints and the pool. Nobody is let in
    /// any more when the store is being closed: somebody else may have the file then.
    ///
    /// Errors: `Closed`.
    pub fn enter_file(&self) -> Result<ExtentWrite<'_>> {
        let mut writing = self.extents.writing.lock();
        if writing.closed {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        }
        writing.count += 1;
        Ok(ExtentWrite(&self.extents))
    }

    /// Lets nobody in any more, and waits for those who are.
    pub fn close_file(&self) {
        let mut writing = self.extents.writing.lock();
        writing.closed = true;
        while writing.count > 0 {
            self.extents.written.wait(&mut writing);
        }
    }

    /// An extent is written; before a record that refers to it is appended to the log.
    pub fn extent_written(&self) {
        self.extents.unsynced.store(true, Release);
    }

    /// Makes all extents durable that are staged, and of which [`Self::extent_written`] was told. One caller at a time.
    ///
    /// Errors: those of a write and a sync, after which nothing may be written any more.
    pub fn sync_extents(&self) -> Result<()> {
        self.write_staged()?;
        let is_due = self.extents.unsynced.swap(false, AcqRel);
        if is_due {
            self.sync_data()?;
        }
        Ok(())
    }

    /// Finds room for an extent; extends the file, and reads bitmaps, as needed. `keep_slots` as for
    /// [`crate::space::Zones::allocate_extent`].
    ///
    /// Errors: `DiskFull`; `Io`; `Corrupted` if a part of the zone table is damaged. Nothing is taken then.
    pub fn allocate_extent(
        &self,
        units: u64,
        max_runs: usize,
        keep_slots: impl Fn() -> u64,
    ) -> Result<Vec<Run>> {
        let (mut growth, mut refusal) = (Growth::Allowed, None);
        loop {
            let keep = keep_slots();
            let _writing = self.enter_file()?;
            let want = self.state().zones.allocate_extent(units, max_runs, keep, growth);
            match want {
                Ok(runs) => return Ok(runs),
                Err(want) => self.provide(want, &mut growth, &mut refusal)?,
            }
        }
    }

    /// Finds room for an extent below `end_zone`; `None` if there is none. Reads bitmaps, and fills holes, as needed.
    ///
    /// Errors: as for [`Self::allocate_extent`].
    pub fn allocate_extent_below(
        &self,
        end_zone: u32,
        units: u64,
        max_runs: usize,
        keep_slots: impl Fn() -> u64,
    ) -> Result<Option<Vec<Run>>> {
        let (mut growth, mut refusal) = (Growth::Allowed, None);
        // A hole that cannot be filled is tried no more.
        while growth == Growth::Allowed {
            let keep = keep_slots();
            let _writing = self.enter_file()?;
            let want = self.state().zones.allocate_extent_below(end_zone, units, max_runs, keep);
            match want {
                Ok(runs) => return Ok(runs),
                Err(want) => self.provide(want, &mut growth, &mut refusal)?,
            }
        }
        Ok(None)
    }

    /// Gives back an extent that nothing ever referred to.
    pub fn discard_extent(&self, runs: &[Run]) {
        // First: from then on its place may be somebody else's.
        self.unstage(runs);
        self.state().zones.discard_extent(runs);
    }

    /// Notes that a record that referred to `old` refers to `new` from `epoch` on, in which the caller is.
    ///
    /// Errors: `Corrupted` if the new one cannot be an extent of this file.
    pub fn extent_changed(
        &self,
        epoch: Epoch,
        old: Option<&Extent>,
        new: Option<&Extent>,
    ) -> Result<()> {
        let mut state = self.state();
        let mut is_due = false;
        if let Some(new) = new {
            state.zones.check_extent(new)?;
        }
        if let Some(old) = old {
            // One that cannot be in this file has nothing to give back; who tried to read it was told.
            if state.zones.check_extent(old).is_ok() {
                let left_bytes = state.zones.extent_left(old, epoch);
                is_due = left_bytes > DUE_BYTES.max(state.zones.report().file_bytes / DUE_PART);
                state.deltas.record_extent(epoch, old, -1);
            }
        }
        if let Some(new) = new {
            state.zones.extent_entered(new);
            state.deltas.record_extent(epoch, new, 1);
        }
        self.after_record(&state);
        drop(state);
        if is_due {
            self.request_unless_running();
        }
        Ok(())
    }

    /// Lets the caller read what records refer to from now on. `epoch`: the one now, or an earlier one.
    pub fn read_extents(self: &Arc<Self>, epoch: Epoch) -> Reading {
        let from = self.state().zones.reading_begins(epoch);
        Reading { slots: self.clone(), from, has_ended: false }
    }

    /// Frees the extents that nobody needs any more.
    pub fn free_extents(&self) {
        while self.state().zones.free_extents(FREED_AT_ONCE) {}
    }

    /// From now on nothing that a record referred to is free before [`Self::end_replay`].
    pub fn begin_replay(self: &Arc<Self>) -> Reading {
        let from = self.state().zones.replay_begins();
        Reading { slots: self.clone(), from, has_ended: false }
    }

    /// Holds the units of an extent that the log names until [`Self::end_replay`].
    ///
    /// Errors: `Corrupted` if it cannot be an extent of this file; those of reading bitmaps.
    pub fn hold_extent(&self, extent: &Extent) -> Result<()> {
        self.load_extent(extent)?;
        self.state().zones.hold_extent(extent);
        Ok(())
    }

    /// After the checkpoint that ends a replay: frees what the log named, and what was superseded, unless something
    /// refers to it now. At one stroke: what is in both must not be somebody else's by the second time.
    pub fn end_replay(&self, mut reading: Reading) {
        let mut state = self.state();
        reading.has_ended = true;
        state.zones.replay_ends();
        state.zones.reading_ends(reading.from);
        state.zones.free_extents(u64::MAX);
    }

    /// Reads the bitmaps around an extent.
    ///
    /// Errors: as for [`Self::hold_extent`].
    pub fn load_extent(&self, extent: &Extent) -> Result<()> {
        let groups = self.state().zones.extent_groups(extent)?;
        groups.into_iter().try_for_each(|group| self.load_group(group))
    }
}
