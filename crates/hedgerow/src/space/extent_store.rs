//! Extents of the file as those who read and write large values use them.
//!
//! The other half of [`super::slot_store`]: finds units, extending the file and reading bitmaps as needed; notes
//! which extents records refer to; keeps units from being written again while somebody reads them; and lends the
//! memory that goes between a value and the file. `Send + Sync`; waits and I/O happen with nothing locked.
//!
//! Invariants: buffers that are lent at a time are no more than their share of the memory limit; the delta of an
//! epoch and what waits to be free change together.

use super::extent::{Extent, Run, chunk_bytes};
use super::slot_store::SlotStore;
use super::zones::Growth;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::AlignedBuffer;
use crate::types::Epoch;
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Release};
use hedgerow_sync::primitive::canary::leaves_out;
use hedgerow_sync::primitive::time::Moment;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// How long somebody waits for a buffer, and how long before it looks again by itself.
const LONGEST_LOAN_WAIT: Duration = Duration::from_secs(10);
const LOAN_WAIT: Duration = Duration::from_millis(100);
/// Units that are freed with the state of the space locked.
const FREED_AT_ONCE: u64 = 1 << 12;
/// A checkpoint is due when so much of the file would be freed by it, and so large a part.
const DUE_BYTES: u64 = 64 << 20;
const DUE_PART: u64 = 8;

/// What [`SlotStore`] has for extents beside the state of the space.
#[derive(Default)]
pub(super) struct ExtentIo {
    /// There may be records in a stored form. Set before the first is put, and never cleared.
    stored_forms: AtomicBool,
    /// Some were written since the file was synced for that.
    unsynced: AtomicBool,
    writing: Mutex<Writing>,
    written: Condvar,
    memory: Arc<Memory>,
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

/// Memory for buffers.
#[derive(Default)]
struct Memory {
    share: Mutex<Share>,
    returned: Condvar,
}

#[derive(Default)]
struct Share {
    bytes: usize,
    /// Not lent.
    free_bytes: usize,
    /// Of those, in buffers that came back: making one costs as much as filling it.
    kept: Vec<AlignedBuffer>,
}

/// Buffers that are kept at most.
const KEPT_BUFFERS: usize = 4;

impl Share {
    /// A buffer of so many bytes, which are not lent. Its content is anything.
    fn take(&mut self, bytes: usize) -> Result<AlignedBuffer> {
        let kept = self.kept.iter().position(|kept| kept.len() == bytes);
        let buffer = match kept {
            Some(at) => self.kept.swap_remove(at),
            None => {
                // What is kept and what is lent are no more than the share together.
                let mut kept_bytes: usize = self.kept.iter().map(|kept| kept.len()).sum();
                while kept_bytes + bytes > self.free_bytes {
                    let Some(dropped) = self.kept.pop() else { break };
                    kept_bytes -= dropped.len();
                }
                AlignedBuffer::zeroed(bytes)?
            }
        };
        self.free_bytes -= bytes;
        Ok(buffer)
    }

    fn take_back(&mut self, buffer: AlignedBuffer) {
        self.free_bytes += buffer.len();
        if self.kept.len() < KEPT_BUFFERS {
            self.kept.push(buffer);
        }
    }
}

/// A buffer on loan; it goes back when it is dropped.
pub struct Loan {
    /// There until it goes back.
    buffer: Option<AlignedBuffer>,
    memory: Arc<Memory>,
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("bytes", &self.len()).finish_non_exhaustive()
    }
}

impl Deref for Loan {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.buffer.as_deref().unwrap_or_default()
    }
}

impl DerefMut for Loan {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.buffer.as_deref_mut().unwrap_or_default()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.memory.share.lock().take_back(buffer);
        }
        self.memory.returned.notify_all();
    }
}

/// Somebody who may read any extent that a record refers to; until the value is dropped.
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

impl SlotStore {
    /// Sets how much memory buffers may take at a time. Before anybody borrows one.
    pub fn set_loan_bytes(&self, bytes: u64) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        *self.extents.memory.share.lock() = Share { bytes, free_bytes: bytes, kept: Vec::new() };
    }

    /// Lends a buffer of as many chunks as there is memory for, one to `most`. Waits for others to return theirs
    /// if there is none for one; the caller holds nothing but buffers.
    ///
    /// Errors: `MemoryLimit` if nobody returns enough within ten seconds, or the limit leaves no share for this.
    pub fn lend(&self, most: usize) -> Result<Loan> {
        let chunk = chunk_bytes(self.state().zones.geometry()) as usize;
        let memory = &self.extents.memory;
        let mut share = memory.share.lock();
        let since = Moment::now();
        while since.elapsed() < LONGEST_LOAN_WAIT {
            if share.free_bytes >= chunk {
                // Half of what is free, so that the next one need not wait.
                let chunks = (share.free_bytes / chunk / 2).clamp(1, most.max(1));
                let buffer = Some(share.take(chunks * chunk)?);
                return Ok(Loan { buffer, memory: memory.clone() });
            }
            if share.bytes < chunk {
                return Err(Error::new(
                    ErrorKind::MemoryLimit,
                    "the memory limit is too small for large values: 128 KiB above the smallest will do",
                ));
            }
            memory.returned.wait_for(&mut share, LOAN_WAIT);
        }
        Err(Error::new(
            ErrorKind::MemoryLimit,
            "others use all of the memory that the limit has for reading and writing large values",
        ))
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

    /// Lets the caller write to the file for an extent, or make it longer, beside checkpoints and the pool. Nobody is let in
    /// any more when the store is being closed: somebody else may have the file then.
    ///
    /// Errors: `Closed`.
    pub fn enter_file(&self) -> Result<ExtentWrite<'_>> {
        let mut writing = self.extents.writing.lock();
        if writing.closed && !leaves_out("extent_written_after_close") {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        }
        writing.count += 1;
        Ok(ExtentWrite(&self.extents))
    }

    /// Lets nobody in any more, and waits for those who are.
    pub fn close_file(&self) {
        let mut writing = self.extents.writing.lock();
        writing.closed = true;
        while writing.count > 0 && !leaves_out("extent_written_after_close") {
            self.extents.written.wait(&mut writing);
        }
    }

    /// An extent is written; before a record that refers to it is appended to the log.
    pub fn extent_written(&self) {
        self.extents.unsynced.store(true, Release);
    }

    /// Makes all extents durable of which [`Self::extent_written`] was told. One caller at a time.
    ///
    /// Errors: those of a sync, after which nothing may be written any more.
    pub fn sync_extents(&self) -> Result<()> {
        let is_due = self.extents.unsynced.swap(false, AcqRel);
        if is_due && !leaves_out("extent_without_sync") {
            self.sync_data()?;
        }
        Ok(())
    }

    /// Finds room for an extent; extends the file, and reads bitmaps, as needed. `keep_slots` as for
    /// [`super::Zones::allocate_extent`].
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
            match state.zones.check_extent(old) {
                Ok(()) => {
                    let left_bytes = state.zones.extent_left(old, epoch);
                    is_due = left_bytes > DUE_BYTES.max(state.zones.report().file_bytes / DUE_PART);
                    state.deltas.record_extent(epoch, old, -1);
                }
                Err(error) if leaves_out("lost_reference_poisons") => return Err(error),
                // One that cannot be in this file has nothing to give back; who tried to read it was told.
                Err(_) => {}
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

    /// Holds the units of an extent that the log names until [`Self::free_replayed`].
    ///
    /// Errors: `Corrupted` if it cannot be an extent of this file; those of reading bitmaps.
    pub fn hold_extent(&self, extent: &Extent) -> Result<()> {
        self.load_extent(extent)?;
        self.state().zones.hold_extent(extent);
        Ok(())
    }

    /// After the checkpoint that ends a replay: ends the reading that was noted before it, and frees what it kept and
    /// what of these runs nothing refers to. At one stroke: what is in both must not be somebody else's by the second time.
    pub fn end_replay(&self, runs: &[Run], mut reading: Reading) {
        let mut state = self.state();
        reading.has_ended = true;
        state.zones.reading_ends(reading.from);
        state.zones.free_extents(u64::MAX);
        for &run in runs {
            state.zones.free_replayed(run);
        }
    }

    /// Reads the bitmaps around an extent.
    ///
    /// Errors: as for [`Self::hold_extent`].
    pub fn load_extent(&self, extent: &Extent) -> Result<()> {
        let groups = self.state().zones.extent_groups(extent)?;
        groups.into_iter().try_for_each(|group| self.load_group(group))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::{self, SplitMix64};

    const CHUNK: usize = 4096;

    fn share(chunks: usize) -> Share {
        Share { bytes: chunks * CHUNK, free_bytes: chunks * CHUNK, kept: Vec::new() }
    }

    fn bytes(buffers: &[AlignedBuffer]) -> usize {
        buffers.iter().map(|buffer| buffer.len()).sum()
    }

    #[test]
    fn a_kept_buffer_gives_way_to_one_of_another_length() {
        let mut share = share(4);
        let long = share.take(3 * CHUNK).unwrap();
        share.take_back(long);
        assert_eq!(bytes(&share.kept), 3 * CHUNK);
        let short = share.take(CHUNK).unwrap();
        assert_eq!(bytes(&share.kept), 3 * CHUNK, "there is memory for both");
        let other = share.take(CHUNK).unwrap();
        assert_eq!((short.len(), other.len()), (CHUNK, CHUNK));
        assert_eq!(bytes(&share.kept), 0, "and none for all three");
        assert_eq!(share.free_bytes, 2 * CHUNK);
    }

    #[test]
    fn what_is_lent_and_what_is_kept_are_no_more_than_the_share() {
        let seed = random::seed();
        println!("seed {seed:#x}");
        let mut random = SplitMix64::new(seed);
        let mut share = share(12);
        let mut lent: Vec<AlignedBuffer> = Vec::new();
        for _ in 0..2000 {
            let chunks = 1 + random.below(5) as usize;
            if random.below(2) == 0 && share.free_bytes >= chunks * CHUNK {
                lent.push(share.take(chunks * CHUNK).unwrap());
                assert_eq!(lent.last().unwrap().len(), chunks * CHUNK);
            } else if !lent.is_empty() {
                let at = random.below(lent.len() as u64) as usize;
                share.take_back(lent.swap_remove(at));
            }
            assert_eq!(share.free_bytes, share.bytes - bytes(&lent));
            assert!(bytes(&lent) + bytes(&share.kept) <= share.bytes);
            assert!(share.kept.len() <= KEPT_BUFFERS);
        }
    }
}
