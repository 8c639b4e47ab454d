//! Extents of the file as those who read and write large values use them.
//!
//! The other half of [`crate::space::slot_store`]: finds units, extending the file and reading bitmaps as needed; notes
//! which extents records refer to; keeps units from being written again while somebody reads them; and hands on to the parts that
//! large values have beside the state of the space: `door.rs`, `loans.rs` and `staging.rs`. `Send + Sync`; waits and I/O happen with
//! nothing locked.
//!
//! Invariant: the delta of an epoch and what waits to be free change together.

use super::door::ExtentWrite;
use super::extent_space::FixedReader;
use super::loans::{Loan, LoanFor};
use super::staging::CHUNKS_LOCKED;
use crate::error::Result;
use crate::large::{Extent, Run};
use crate::space::large::chunk_bytes;
use crate::space::slot_store::SlotStore;
use crate::space::zone::Growth;
use crate::types::Epoch;
use crate::wait::Waiting;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Release};
use std::fmt;

/// Chunks of an extent that is staged, at most. What is longer gains nothing, as it is written many chunks at a time anyway, and would
/// keep others from the buffers for too long.
const STAGED_CHUNKS: usize = 64;
/// Units that are freed with the state of the space locked.
const FREED_AT_ONCE: u64 = 1 << 12;
/// A checkpoint is due when so much of the file would be freed by it, and so large a part.
const DUE_BYTES: u64 = 64 << 20;
const DUE_PART: u64 = 8;

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
            self.slots.state().zones.extents.reading_ends(self.from);
            self.slots.free_extents();
        }
    }
}

impl Reading {
    /// From now on the caller looks at one moment, and refers to no extent that was entered in a later epoch than `last`. It is somebody
    /// else who ends it, with [`SlotStore::end_fixed`] and what is returned.
    pub fn fixed(mut self, last: Epoch) -> FixedReader {
        self.has_ended = true;
        self.slots.state().zones.extents.reading_is_fixed(self.from, last)
    }

    /// From now on nothing is read but this extent, to which a record referred after the reading had begun: of what is
    /// freed meanwhile only its units wait for the caller.
    pub fn only(mut self, extent: &Extent) -> ReadingOne {
        let mut state = self.slots.state();
        state.zones.extents.reading_one_begins(&extent.runs);
        state.zones.extents.reading_ends(self.from);
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
        self.loans.set_bytes(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// Lends a buffer of as many chunks as there is memory for, one to `most`. Borrowers that are not using theirs give
    /// them back; if that is not enough, waits for those that are. The caller holds nothing but its own buffers.
    /// Unless it is for a stream it is the caller's until it is dropped, within this call of the store.
    ///
    /// Errors: `MemoryLimit` if nobody returns enough within ten seconds, or the limit leaves no share for this; those of `waiting`.
    pub fn lend(&self, most: usize, loan_for: LoanFor, waiting: &Waiting<'_>) -> Result<Loan> {
        let chunk = chunk_bytes(self.geometry()) as usize;
        self.loans.lend(chunk, most, loan_for, waiting)
    }

    /// Lends a buffer of one to `most` chunks if there is memory for it at once. Writes nothing and waits for nobody.
    pub fn lend_free(&self, most: usize) -> Option<Loan> {
        self.loans.lend_free(chunk_bytes(self.geometry()) as usize, most)
    }

    /// Whether an extent of `stored_bytes` is staged when it is put; else it is better written by whoever puts it. Who waits for a bounded
    /// time needs room for all of it at once, so that nothing of it is on its way to the disk when the time is over.
    pub fn is_staged_when_put(&self, stored_bytes: u64, is_bounded: bool) -> bool {
        let chunk = chunk_bytes(self.geometry()) as usize;
        // Two of them fit into half of the share.
        let part_bytes = self.loans.bytes() / 4;
        let most_bytes = match is_bounded || part_bytes < chunk {
            true => part_bytes.min(CHUNKS_LOCKED * chunk),
            false => STAGED_CHUNKS * chunk,
        };
        stored_bytes <= most_bytes as u64
    }

    /// Whether a value in a leaf may be in a stored form. To be asked after the value was read, or under the
    /// leaf's latch.
    #[inline]
    pub fn has_stored_forms(&self) -> bool {
        self.stored_forms.load(Acquire)
    }

    /// From now on it may. Before the first one is put.
    pub fn expect_stored_forms(&self) {
        self.stored_forms.store(true, Release);
    }

    /// Whether a key in a leaf may be a long one's, with a label.
    pub fn has_long_keys(&self) -> bool {
        self.long_keys.load(Acquire)
    }

    /// From now on it may. Before the first one is put.
    pub fn expect_long_keys(&self) {
        self.long_keys.store(true, Release);
    }

    /// Lets the caller write to the file for an extent, or make it longer, beside checkpoints and the pool. Nobody is let in
    /// any more when the store is being closed: somebody else may have the file then.
    ///
    /// Errors: `Closed`.
    pub fn enter_file(&self) -> Result<ExtentWrite<'_>> {
        self.door.enter()
    }

    /// Lets nobody in any more, and waits for those who are.
    pub fn close_file(&self) {
        self.door.close();
    }

    /// An extent is written; before a record that refers to it is appended to the log.
    pub fn extent_written(&self) {
        self.door.wrote();
    }

    /// Makes all extents durable that are staged, and of which [`Self::extent_written`] was told. One caller at a time.
    ///
    /// Errors: those of a write and a sync, after which nothing may be written any more.
    pub fn sync_extents(&self) -> Result<()> {
        self.staging().write_all()?;
        if self.door.take_unsynced() {
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

    /// Gives back an extent that nothing ever referred to. Its units are free at once, or when a write of them has ended that is under way.
    pub fn discard_extent(&self, runs: &[Run]) {
        self.staging().give_up(runs);
    }

    /// Notes that a record that referred to `old` refers to `new` from `epoch` on, in which the caller is.
    ///
    /// Errors: `Corrupted` if the new one cannot be an extent of this file.
    pub fn extent_changed(
        &self,
        epoch: Epoch,
        old: Option<Extent>,
        new: Option<Extent>,
    ) -> Result<()> {
        let mut state = self.state();
        let mut is_due = false;
        if let Some(new) = &new {
            state.zones.check_extent(new)?;
        }
        if let Some(old) = old {
            // One that cannot be in this file has nothing to give back; who tried to read it was told.
            if state.zones.check_extent(&old).is_ok() {
                let left_bytes = state.zones.extent_left(&old, epoch);
                is_due = left_bytes > DUE_BYTES.max(state.zones.report().file_bytes / DUE_PART);
                state.deltas.record_extent(epoch, old, -1);
            }
        }
        if let Some(new) = new {
            state.zones.extent_entered(&new, epoch);
            state.deltas.record_extent(epoch, new, 1);
        }
        self.after_record(&state);
        drop(state);
        if is_due {
            self.checkpoints().request_unless_running();
        }
        Ok(())
    }

    /// Lets the caller read what records refer to from now on. `epoch`: the one now, or an earlier one.
    pub fn read_extents(self: &Arc<Self>, epoch: Epoch) -> Reading {
        let from = self.state().zones.extents.reading_begins(epoch);
        Reading { slots: self.clone(), from, has_ended: false }
    }

    /// Ends a [fixed](Reading::fixed) reading.
    pub fn end_fixed(&self, reader: FixedReader) {
        self.state().zones.extents.fixed_ends(reader);
        self.free_extents();
    }

    /// Frees the extents that nobody needs any more.
    pub fn free_extents(&self) {
        while self.state().zones.free_extents(FREED_AT_ONCE) {}
    }

    /// From now on nothing that a record referred to is free before [`Self::end_replay`].
    pub fn begin_replay(self: &Arc<Self>) -> Reading {
        let from = self.state().zones.extents.replay_begins();
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
        state.zones.extents.reading_ends(reading.from);
        while state.zones.free_extents(u64::MAX) {}
    }

    /// Reads the bitmaps around an extent.
    ///
    /// Errors: as for [`Self::hold_extent`].
    pub fn load_extent(&self, extent: &Extent) -> Result<()> {
        let groups = self.state().zones.extent_groups(extent)?;
        groups.into_iter().try_for_each(|group| self.load_group(group))
    }
}
