//! Putting a value that no leaf holds: its units are found, its chunks staged, its pieces kept in memory. In a store that
//! lives in memory it is put into frames.
//!
//! Rank 6. Of a long value the first chunks are written while the next ones are staged. What is longer than two MiB, or comes in pieces,
//! goes through [`super::ExtentWriter`], and to the file at once. Invariant: a place to which nobody came to refer is given back when the
//! value is dropped, and so are its frames. `Send`; used by one thread.

use super::extent_io::check_large;
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::large::Held;
use crate::large::{Extent, MAX_RUNS, reference_bytes};
use crate::space::large::{CHUNK_HEADER_BYTES, chunk_bytes, seal_chunk, units_of_value};
use crate::space::slot_store::SlotStore;
use crate::wait::{Wait, Waiting, is_end_of_wait};
use hedgerow_sync::primitive::{Arc, random};
use std::fmt;

/// A value that is in the file, or will be before any record that refers to it; or in memory for good.
pub struct PlacedValue {
    pool: Arc<BufferPool>,
    place: Place,
    reference: Vec<u8>,
    /// Somebody refers to it: it is not given back.
    in_place: bool,
}

enum Place {
    Extent(Extent),
    Frames(Held),
}

impl fmt::Debug for PlacedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PlacedValue").finish_non_exhaustive()
    }
}

impl PlacedValue {
    /// Places `value`, to which a record refers that has `reference_room` bytes for that. `None`: it is too long for this, or there is too
    /// little memory.
    ///
    /// Errors: as for [`super::ExtentWriter`].
    pub(in crate::store) fn new(
        pool: &Arc<BufferPool>,
        value: &[u8],
        reference_room: usize,
        wait: &Wait,
    ) -> Result<Option<PlacedValue>> {
        let Some(slots) = check_large(pool, value.len() as u64, reference_room)? else {
            let held = pool.hold_value(value)?;
            let reference = held.encode();
            let (pool, place) = (pool.clone(), Place::Frames(held));
            return Ok(Some(PlacedValue { pool, place, reference, in_place: false }));
        };
        assert!(!value.is_empty(), "an empty value is short");
        let units = units_of_value(slots.geometry(), value.len() as u64);
        let stored_bytes = units * u64::from(slots.geometry().unit_bytes());
        let waiting = wait.begin();
        if !slots.is_staged_when_put(stored_bytes, waiting.is_bounded()) {
            return Ok(None);
        }
        let max_runs = ((reference_room - reference_bytes(0)) / 8).min(MAX_RUNS);
        let runs = pool.allocate_extent(slots, units, max_runs, &waiting)?;
        let extent =
            Extent { len_bytes: value.len() as u64, seed: random::seed(), runs: runs.into() };
        let reference = extent.encode();
        // From here on it is given back if anything fails.
        let (pool, place) = (pool.clone(), Place::Extent(extent));
        let placed = PlacedValue { pool, place, reference, in_place: false };
        placed.stage(slots, value, &waiting)?;
        Ok(Some(placed))
    }

    /// Stages the chunks of an extent, and keeps the pieces.
    fn stage(&self, slots: &SlotStore, value: &[u8], waiting: &Waiting<'_>) -> Result<()> {
        let (pool, Place::Extent(extent)) = (&self.pool, &self.place) else { return Ok(()) };
        let payload = chunk_bytes(slots.geometry()) as usize - CHUNK_HEADER_BYTES;
        let fill = |index: u64, to: &mut [u8]| {
            let from = index as usize * payload;
            let bytes = &value[from..value.len().min(from + payload)];
            let end = CHUNK_HEADER_BYTES + bytes.len();
            to[CHUNK_HEADER_BYTES..end].copy_from_slice(bytes);
            to[end..].fill(0);
            seal_chunk(extent.seed, index, to);
        };
        pool.check_poison()?;
        let staged = slots.staging().stage(extent, fill, waiting);
        staged.inspect_err(|error| poison(pool, error))?;
        slots.expect_stored_forms();
        pool.keep_value(extent.seed, value, true);
        Ok(())
    }

    /// The value in its stored form.
    pub fn stored_form(&self) -> &[u8] {
        &self.reference
    }

    /// A record has been put that refers to it.
    pub fn keep(mut self) {
        self.in_place = true;
    }
}

impl Drop for PlacedValue {
    fn drop(&mut self) {
        if self.in_place {
            return;
        }
        match &self.place {
            Place::Extent(extent) => self.pool.discard_extent(extent),
            Place::Frames(held) => self.pool.release_held(held),
        }
    }
}

/// After a write of others' values has failed nothing may be written any more, unless it was for want of room. The end of a wait is no
/// failure, nor is that the store is being closed.
fn poison(pool: &BufferPool, error: &Error) {
    use ErrorKind::{Closed, DiskFull, MemoryLimit};
    let passes = matches!(error.kind(), Closed | DiskFull | MemoryLimit);
    if !passes && !is_end_of_wait(error) {
        pool.set_poisoned(error);
    }
}
