//! Writing and reading large values: from and to the units of an extent, a chunk at a time.
//!
//! Rank 6. A writer finds the extent first, of the length that it is told, writes each chunk once, where it stays,
//! before anybody can put a record that refers to it; the log syncs the file before it writes such a record. Until then
//! nothing refers to it: a crash, or dropping the writer, gives it back. A reader keeps what it reads from being written again: it is
//! noted before the record is looked up, so that whatever the record refers to then stays as it is.
//!
//! Invariants: what a finished extent refers to is whole; every chunk is checked before a byte of it is
//! handed out. Both are `Send`; used by one thread at a time. Memory: a loan of one to 64 chunks each.

use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::space::extent::{
    CHUNK_HEADER_BYTES, Extent, MAX_RUNS, MAX_VALUE_BYTES, chunk_bytes, is_chunk, reference_bytes,
    seal_chunk, units_of_value,
};
use crate::space::extent_store::{Loan, Reading};
use crate::space::geometry::Geometry;
use crate::space::slot_store::SlotStore;
use crate::storage::File;
use hedgerow_sync::primitive::canary::leaves_out;
use hedgerow_sync::primitive::{Arc, random};
use std::fmt;

/// Chunks that are written or read with one call at most: two MiB, so that a value of one goes with one call.
pub(super) const CHUNKS_AT_ONCE: usize = 64;

/// The extent of a value that is being written.
pub struct ExtentWriter {
    pool: Arc<BufferPool>,
    slots: Arc<SlotStore>,
    geometry: Geometry,
    extent: Extent,
    loan: Option<Loan>,
    /// Chunks before those in the buffer.
    written_chunks: u64,
    /// Whole chunks in the buffer, and bytes of the one after them.
    full: usize,
    part_bytes: usize,
    taken_bytes: u64,
    /// Somebody refers to it: it is not given back.
    in_place: bool,
    /// A write has failed: what was taken is not all there.
    has_failed: bool,
}

impl fmt::Debug for ExtentWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtentWriter").field("extent", &self.extent).finish_non_exhaustive()
    }
}

impl ExtentWriter {
    /// Finds room for a value of `len_bytes`, to which a record refers that has `reference_room` bytes for that.
    ///
    /// Errors: `RecordTooLarge` if the value is too long, the key leaves too little room, or there is no file;
    /// `DiskFull`; those of changes.
    pub(super) fn new(
        pool: &Arc<BufferPool>,
        len_bytes: u64,
        reference_room: usize,
    ) -> Result<ExtentWriter> {
        let slots = check_large(pool, len_bytes, reference_room)?;
        assert!(len_bytes > 0, "an empty value is not large");
        let geometry = slots.state().zones.geometry();
        let max_runs = ((reference_room - reference_bytes(0)) / 8).min(MAX_RUNS);
        let units = units_of_value(geometry, len_bytes);
        let runs = pool.allocate_extent(slots, units, max_runs)?;
        let extent = Extent { len_bytes, seed: random::seed(), runs: runs.into() };
        Ok(ExtentWriter {
            pool: pool.clone(),
            slots: slots.clone(),
            geometry,
            extent,
            loan: None,
            written_chunks: 0,
            full: 0,
            part_bytes: 0,
            taken_bytes: 0,
            in_place: false,
            has_failed: false,
        })
    }

    /// Length of the value.
    pub fn len_bytes(&self) -> u64 {
        self.extent.len_bytes
    }

    /// Bytes that are missing yet.
    pub fn missing_bytes(&self) -> u64 {
        self.extent.len_bytes - self.taken_bytes
    }

    /// Takes the next bytes of the value.
    ///
    /// Errors: `InvalidOption` if they are more than are missing (none is taken then), or an earlier call has failed;
    /// `Closed`; `Poisoned`; those of a failed
    /// write, after which nothing may be written any more.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.check_failed()?;
        if bytes.len() as u64 > self.missing_bytes() {
            let what = format!("more bytes than the {} of the value", self.extent.len_bytes);
            return Err(Error::new(ErrorKind::InvalidOption, what));
        }
        let chunk = chunk_bytes(self.geometry) as usize;
        while !bytes.is_empty() {
            let loan = match &mut self.loan {
                Some(loan) => loan,
                None => self.loan.insert(self.slots.lend(CHUNKS_AT_ONCE)?),
            };
            let at = self.full * chunk + CHUNK_HEADER_BYTES + self.part_bytes;
            let count = bytes.len().min(chunk - CHUNK_HEADER_BYTES - self.part_bytes);
            loan[at..at + count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.part_bytes += count;
            self.taken_bytes += count as u64;
            if self.part_bytes == chunk - CHUNK_HEADER_BYTES {
                self.full += 1;
                self.part_bytes = 0;
                if self.full * chunk == loan.len() {
                    self.write_out()?;
                }
            }
        }
        Ok(())
    }

    /// Writes the chunks in the buffer, the last of which may be one that the value ends in.
    fn write_out(&mut self) -> Result<()> {
        let written = self.try_write_out();
        self.has_failed |= written.is_err() && !leaves_out("failed_write_is_forgotten");
        written
    }

    fn check_failed(&self) -> Result<()> {
        match self.has_failed {
            true => {
                let what = "the value could not be written; begin it anew";
                Err(Error::new(ErrorKind::InvalidOption, what))
            }
            false => Ok(()),
        }
    }

    fn try_write_out(&mut self) -> Result<()> {
        let Some(loan) = &mut self.loan else { return Ok(()) };
        let _writing = self.slots.enter_file()?;
        self.pool.check_poison()?;
        let chunk = chunk_bytes(self.geometry) as usize;
        let count = self.full + usize::from(self.part_bytes > 0);
        let mut done = 0;
        while done < count {
            let first = self.written_chunks + done as u64;
            let place = self.extent.place(self.geometry, first);
            let together = (count - done).min(place.follow as usize + 1);
            let mut len = 0;
            for next in 0..together {
                let number = first + next as u64;
                let place = self.extent.place(self.geometry, number);
                let at = (done + next) * chunk;
                let sealed = &mut loan[at..at + place.stored_bytes];
                sealed[CHUNK_HEADER_BYTES + place.value_bytes..].fill(0);
                seal_chunk(self.extent.seed, number, sealed);
                len = next * chunk + place.stored_bytes;
            }
            let from = done * chunk;
            let written = self.slots.file().write_at(place.offset_bytes, &loan[from..from + len]);
            if let Err(error) = written {
                // Nobody refers to it, but it may be the disk.
                if *error.kind() != ErrorKind::DiskFull {
                    self.pool.set_poisoned(&error);
                }
                return Err(error);
            }
            done += together;
        }
        self.written_chunks += count as u64;
        self.full = 0;
        self.part_bytes = 0;
        Ok(())
    }

    /// Writes what is left. A record may refer to the extent then: the log syncs the file before it writes that.
    ///
    /// Errors: `InvalidOption` if bytes are missing, or an earlier call has failed; those of writing.
    pub fn finish(&mut self) -> Result<()> {
        self.check_failed()?;
        if self.missing_bytes() > 0 {
            let what = format!(
                "{} bytes of a value of {} were written",
                self.taken_bytes, self.extent.len_bytes
            );
            return Err(Error::new(ErrorKind::InvalidOption, what));
        }
        self.write_out()?;
        self.loan = None;
        self.slots.extent_written();
        self.slots.expect_stored_forms();
        Ok(())
    }

    /// The value in its stored form, after [`Self::finish`].
    pub fn stored_form(&self) -> Vec<u8> {
        assert!(
            self.missing_bytes() == 0 && self.loan.is_none(),
            "what is whole may be referred to"
        );
        self.extent.encode()
    }

    /// A record has been put that refers to it.
    pub fn keep(mut self) {
        self.in_place = true;
    }
}

impl Drop for ExtentWriter {
    fn drop(&mut self) {
        if !self.in_place {
            self.slots.discard_extent(&self.extent.runs);
        }
    }
}

/// Reads chunks of an extent that fits from `first` on, as many as lie together and have room in the buffer, which has
/// room for one. Tells how many, and their bytes in the file.
///
/// Errors: `Corrupted` for a chunk that is not what was written; `Io`.
pub(super) fn read_chunks(
    file: &dyn File,
    geometry: Geometry,
    extent: &Extent,
    first: u64,
    buffer: &mut [u8],
) -> Result<(usize, usize)> {
    let chunk = chunk_bytes(geometry) as usize;
    let place = extent.place(geometry, first);
    let count = (buffer.len() / chunk).min(place.follow as usize + 1);
    let last = extent.place(geometry, first + count as u64 - 1);
    let len = (count - 1) * chunk + last.stored_bytes;
    file.read_at(place.offset_bytes, &mut buffer[..len])?;
    for next in 0..count {
        let number = first + next as u64;
        let place = extent.place(geometry, number);
        let stored = &buffer[next * chunk..next * chunk + place.stored_bytes];
        if !is_chunk(extent.seed, number, stored) {
            let what = format!("chunk {number} of a large value: its checksum is wrong");
            return Err(Error::corrupted_at(place.offset_bytes, what));
        }
    }
    Ok((count, len))
}

/// Whether there may be a value of so many bytes, to which a record refers that has `reference_room` bytes for that.
/// Tells where it goes to.
///
/// Errors: `RecordTooLarge`.
pub(super) fn check_large(
    pool: &BufferPool,
    len_bytes: u64,
    reference_room: usize,
) -> Result<&Arc<SlotStore>> {
    let refuse = |max_bytes: u64, what: &str| {
        let kind = ErrorKind::RecordTooLarge {
            len_bytes: usize::try_from(len_bytes).unwrap_or(usize::MAX),
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
        };
        Err(Error::new(kind, format!("a value of {len_bytes} bytes {what}")))
    };
    let Some(slots) = pool.slots() else {
        return refuse(reference_room as u64, "in a store that lives in memory alone");
    };
    if len_bytes > MAX_VALUE_BYTES {
        return refuse(MAX_VALUE_BYTES, "; the longest is 4 GiB");
    }
    if reference_room < reference_bytes(1) {
        return refuse(reference_room as u64, "whose key leaves no room to say where it lies");
    }
    Ok(slots)
}

/// Reads a value out of its extent.
#[derive(Debug)]
pub struct ExtentReader {
    slots: Arc<SlotStore>,
    geometry: Geometry,
    extent: Extent,
    // Kept for as long as anything may be read.
    _reading: Reading,
    loan: Option<Loan>,
    /// The chunks in the buffer: first one and number.
    there: (u64, usize),
}

impl ExtentReader {
    /// Over an extent that a record referred to when `reading` had begun.
    ///
    /// Errors: `Corrupted` if it cannot be one of this file.
    pub(super) fn new(
        slots: &Arc<SlotStore>,
        extent: Extent,
        reading: Reading,
    ) -> Result<ExtentReader> {
        let state = slots.state();
        let geometry = state.zones.geometry();
        state.zones.check_extent(&extent)?;
        drop(state);
        let slots = slots.clone();
        Ok(ExtentReader { slots, geometry, extent, _reading: reading, loan: None, there: (0, 0) })
    }

    /// Length of the value.
    pub fn len_bytes(&self) -> u64 {
        self.extent.len_bytes
    }

    /// The value in its stored form.
    pub fn stored_form(&self) -> Vec<u8> {
        self.extent.encode()
    }

    /// Gives back the memory until the next read.
    pub fn rest(&mut self) {
        self.there = (0, 0);
        self.loan = None;
    }

    /// Copies bytes from `offset` on to `to`, as many as there are; returns how many that were. Fewer than `to` has
    /// room for only at the end of the value.
    ///
    /// Errors: `Corrupted` for a chunk that is not what was written; `Io`; `MemoryLimit`.
    pub fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let payload = u64::from(chunk_bytes(self.geometry)) - CHUNK_HEADER_BYTES as u64;
        let left = self.extent.len_bytes.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(to.len());
        let mut done = 0;
        while done < wanted {
            let at = offset + done as u64;
            let index = at / payload;
            // As many as are wanted, and no more.
            let last = (offset + wanted as u64 - 1) / payload;
            let bytes = self.chunk(index, (last - index + 1) as usize)?;
            let from = (at % payload) as usize;
            let count = (bytes.len() - from).min(wanted - done);
            to[done..done + count].copy_from_slice(&bytes[from..from + count]);
            done += count;
        }
        Ok(wanted)
    }

    /// The bytes of the value in chunk `index`, read with up to `ahead - 1` that lie behind it.
    fn chunk(&mut self, index: u64, ahead: usize) -> Result<&[u8]> {
        let chunk = chunk_bytes(self.geometry) as usize;
        let (first, count) = self.there;
        if index < first || index >= first + count as u64 {
            self.there = (0, 0);
            let loan = match &mut self.loan {
                Some(loan) => loan,
                None => self.loan.insert(self.slots.lend(CHUNKS_AT_ONCE.min(ahead))?),
            };
            let most = (loan.len() / chunk).min(ahead) * chunk;
            let (file, buffer) = (self.slots.file(), &mut loan[..most]);
            let (count, _) = read_chunks(&**file, self.geometry, &self.extent, index, buffer)?;
            self.there = (index, count);
        }
        let at = (index - self.there.0) as usize * chunk + CHUNK_HEADER_BYTES;
        let value_bytes = self.extent.place(self.geometry, index).value_bytes;
        let loan = self.loan.as_ref().expect("a chunk was read into a buffer");
        Ok(&loan[at..at + value_bytes])
    }
}
