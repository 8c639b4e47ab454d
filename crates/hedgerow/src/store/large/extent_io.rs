//! Writing and reading large values: from and to the units of an extent, a chunk at a time.
//!
//! Rank 6. A writer finds the extent first, of the length that it is told, writes each chunk once, where it stays,
//! before anybody can put a record that refers to it; the log syncs the file before it writes such a record. Until then
//! nothing refers to it: a crash, or dropping the writer, gives it back. A reader keeps what it reads from being written again: it is
//! noted before the record is looked up, so that whatever the record refers to then stays as it is.
//!
//! Invariants: what a finished extent refers to is whole; every chunk is checked before a byte of it is
//! handed out. Both are `Send`; used by one thread at a time. Memory: a loan of one to 64 chunks each, which they keep
//! between calls only until somebody else needs it. A writer that is asked for it writes what it has; a chunk that is
//! not full lies in its place in the file until the next call reads it back, and its checksum is checked then.

use super::chunk_reads::read_chunks;
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::large::Held;
use crate::large::{Extent, MAX_RUNS, MAX_VALUE_BYTES, reference_bytes};
use crate::page::Frames;
use crate::space::geometry::Geometry;
use crate::space::large::{Borrower, Loan, LoanFor, Need, Reading, ReadingOne};
use crate::space::large::{CHUNK_HEADER_BYTES, chunk_bytes, seal_chunk, units_of_value};
use crate::space::slot_store::SlotStore;
use crate::wait::Wait;
use hedgerow_sync::primitive::{Arc, Mutex, Weak, random};
use std::fmt;
use std::ops::Range;

/// Chunks that are written or read with one call at most: two MiB, so that a value of one goes with one call.
pub(in crate::store) const CHUNKS_AT_ONCE: usize = 64;

/// The extent of a value that is being written.
pub struct ExtentWriter {
    /// Shared with whoever lends memory, who may ask for it back between two calls.
    output: Arc<Output>,
    taken_bytes: u64,
    /// Somebody refers to it: it is not given back.
    in_place: bool,
}

/// Where a writer writes to, and what it has in memory.
struct Output {
    pool: Arc<BufferPool>,
    slots: Arc<SlotStore>,
    geometry: Geometry,
    /// How long a call may wait for memory.
    wait: Wait,
    extent: Extent,
    buffered: Mutex<Buffered>,
}

/// Bytes of the value that are not where they belong yet.
#[derive(Default)]
struct Buffered {
    /// `None`: there are none in memory. Those of a chunk that is not full lie in the file then, in its place.
    loan: Option<Loan>,
    /// Chunks before those in the buffer.
    written_chunks: u64,
    /// Whole chunks in the buffer, and bytes of the one after them.
    full: usize,
    part_bytes: usize,
    /// It was used since it was asked for last.
    was_used: bool,
    /// Why what was taken is not all there.
    failed: Option<Error>,
}

impl fmt::Debug for ExtentWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtentWriter").field("extent", &self.output.extent).finish_non_exhaustive()
    }
}

impl ExtentWriter {
    /// Finds room for a value of `len_bytes`, to which a record refers that has `reference_room` bytes for that.
    ///
    /// Errors: `RecordTooLarge` if the value is too long, the key leaves too little room, or there is no file;
    /// `DiskFull`; those of changes.
    pub(in crate::store) fn new(
        pool: &Arc<BufferPool>,
        len_bytes: u64,
        reference_room: usize,
        wait: &Wait,
    ) -> Result<ExtentWriter> {
        let slots = check_large(pool, len_bytes, reference_room)?.expect("a store with a file");
        assert!(len_bytes > 0, "an empty value is not large");
        let geometry = slots.state().zones.geometry();
        let max_runs = ((reference_room - reference_bytes(0)) / 8).min(MAX_RUNS);
        let units = units_of_value(geometry, len_bytes);
        let runs = pool.allocate_extent(slots, units, max_runs, &wait.begin())?;
        let output = Output {
            pool: pool.clone(),
            slots: slots.clone(),
            geometry,
            wait: wait.clone(),
            extent: Extent { len_bytes, seed: random::seed(), runs: runs.into() },
            buffered: Mutex::default(),
        };
        Ok(ExtentWriter { output: Arc::new(output), taken_bytes: 0, in_place: false })
    }

    /// Length of the value.
    pub fn len_bytes(&self) -> u64 {
        self.output.extent.len_bytes
    }

    /// Bytes that are missing yet.
    pub fn missing_bytes(&self) -> u64 {
        self.len_bytes() - self.taken_bytes
    }

    /// Takes the next bytes of the value.
    ///
    /// Errors: `LengthMismatch` if they are more than are missing (none is taken then); `WriterFailed` after a failed call;
    /// `Closed`; `Poisoned`; those of a failed
    /// write, after which nothing may be written any more.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut buffered = self.output.buffered.lock();
        buffered.check_failed()?;
        if bytes.len() as u64 > self.missing_bytes() {
            let what = format!("more bytes than the {} of the value", self.len_bytes());
            return Err(Error::new(ErrorKind::LengthMismatch, what));
        }
        self.taken_bytes += self.output.take(&mut buffered, bytes)?;
        Ok(())
    }

    /// Writes what is left. A record may refer to the extent then: the log syncs the file before it writes that.
    ///
    /// Errors: `LengthMismatch` if bytes are missing; `WriterFailed` after a failed call; those of writing.
    pub fn finish(&mut self) -> Result<()> {
        let mut buffered = self.output.buffered.lock();
        buffered.check_failed()?;
        if self.missing_bytes() > 0 {
            let what = format!(
                "{} bytes of a value of {} were written",
                self.taken_bytes,
                self.len_bytes()
            );
            return Err(Error::new(ErrorKind::LengthMismatch, what));
        }
        self.output.write_out(&mut buffered)?;
        buffered.loan = None;
        self.output.slots.extent_written();
        self.output.slots.expect_stored_forms();
        Ok(())
    }

    /// The value in its stored form, after [`Self::finish`].
    pub fn stored_form(&self) -> Vec<u8> {
        assert!(
            self.missing_bytes() == 0 && self.output.buffered.lock().loan.is_none(),
            "what is whole may be referred to"
        );
        self.output.extent.encode()
    }

    /// A record has been put that refers to it.
    pub fn keep(mut self) {
        self.in_place = true;
    }
}

impl Drop for ExtentWriter {
    fn drop(&mut self) {
        // Whoever asks for the memory may be writing to the extent: it is somebody else's only after that.
        let mut buffered = self.output.buffered.lock();
        buffered.loan = None;
        if !self.in_place {
            self.output.pool.discard_extent(&self.output.extent);
        }
    }
}

impl Buffered {
    fn check_failed(&self) -> Result<()> {
        self.failed.as_ref().map_or(Ok(()), |error| {
            // Whoever lends memory may have been the first to see it.
            let what = format!(
                "an earlier write of this value has failed; start again with a new writer: {error}"
            );
            Err(Error::new(ErrorKind::WriterFailed, what))
        })
    }
}

impl Output {
    /// Takes bytes that fit; tells how many.
    fn take(self: &Arc<Self>, buffered: &mut Buffered, mut bytes: &[u8]) -> Result<u64> {
        let taken = bytes.len() as u64;
        let chunk = chunk_bytes(self.geometry) as usize;
        while !bytes.is_empty() {
            if buffered.loan.is_none() {
                self.borrow(buffered)?;
            }
            let Some(loan) = &mut buffered.loan else { continue };
            let at = buffered.full * chunk + CHUNK_HEADER_BYTES + buffered.part_bytes;
            let count = bytes.len().min(chunk - CHUNK_HEADER_BYTES - buffered.part_bytes);
            loan[at..at + count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            buffered.part_bytes += count;
            if buffered.part_bytes == chunk - CHUNK_HEADER_BYTES {
                buffered.full += 1;
                buffered.part_bytes = 0;
                if buffered.full * chunk == loan.len() {
                    self.write_out(buffered)?;
                }
            }
        }
        buffered.was_used = true;
        if buffered.loan.as_ref().is_some_and(Loan::is_wanted) {
            self.write_out(buffered)?;
            buffered.loan = None;
        }
        Ok(taken)
    }

    /// Borrows a buffer, and brings back into it what was begun of a chunk.
    fn borrow(self: &Arc<Self>, buffered: &mut Buffered) -> Result<()> {
        let weak: Weak<Output> = Arc::downgrade(self);
        let stream = LoanFor::Stream(weak);
        let mut loan = self.slots.lend(CHUNKS_AT_ONCE, stream, &self.wait.begin())?;
        if buffered.part_bytes > 0 {
            let chunk = chunk_bytes(self.geometry) as usize;
            let first = buffered.written_chunks;
            let (loan, slots) = (&mut loan[..chunk], &self.slots);
            let read = read_chunks(slots, &self.extent, first, loan, &mut |_, _| {});
            // Nothing is lost yet, but nobody else has these bytes.
            read.inspect_err(|error| buffered.failed = Some(error.duplicate()))?;
        }
        buffered.loan = Some(loan);
        Ok(())
    }

    /// Writes the chunks in the buffer, the last of which may be one that is not full. Such a one stays in the buffer, too,
    /// and is written again when it has more.
    fn write_out(&self, buffered: &mut Buffered) -> Result<()> {
        let written = self.try_write_out(buffered);
        if let Err(error) = &written {
            buffered.failed = Some(error.duplicate());
        }
        written
    }

    fn try_write_out(&self, buffered: &mut Buffered) -> Result<()> {
        let Some(loan) = &mut buffered.loan else { return Ok(()) };
        let _writing = self.slots.enter_file()?;
        self.pool.check_poison()?;
        let chunk = chunk_bytes(self.geometry) as usize;
        let count = buffered.full + usize::from(buffered.part_bytes > 0);
        let mut done = 0;
        while done < count {
            let first = buffered.written_chunks + done as u64;
            let place = self.extent.place(self.geometry, first);
            let together = (count - done).min(place.follow as usize + 1);
            let mut len = 0;
            for next in 0..together {
                let number = first + next as u64;
                let place = self.extent.place(self.geometry, number);
                let at = (done + next) * chunk;
                let there = match done + next < buffered.full {
                    true => place.value_bytes,
                    false => buffered.part_bytes,
                };
                let sealed = &mut loan[at..at + place.stored_bytes];
                sealed[CHUNK_HEADER_BYTES + there..].fill(0);
                seal_chunk(self.extent.seed, number, sealed);
                len = next * chunk + place.stored_bytes;
            }
            let from = done * chunk;
            let written = self.slots.file().write_at(place.offset_bytes, &loan[from..from + len]);
            if let Err(error) = written {
                // Nobody refers to it, but it may be the disk.
                if error.kind() != ErrorKind::DiskFull {
                    self.pool.set_poisoned(&error);
                }
                return Err(error);
            }
            done += together;
        }
        buffered.written_chunks += buffered.full as u64;
        loan.copy_within(buffered.full * chunk..count * chunk, 0);
        buffered.full = 0;
        Ok(())
    }
}

impl Borrower for Output {
    fn give_back(self: Arc<Self>, _: Need) {
        // A call that is using it ends, or waits for nobody but the disk.
        let Some(mut buffered) = self.buffered.try_lock() else { return };
        if std::mem::take(&mut buffered.was_used) || buffered.loan.is_none() {
            return;
        }
        // If it fails the next call of the writer says so.
        self.write_out(&mut buffered).ok();
        buffered.loan = None;
    }
}

/// Whether there may be a value of so many bytes, to which a record refers that has `reference_room` bytes for that.
/// Tells where it goes to; `None`: to frames, in a store that lives in memory.
///
/// Errors: `RecordTooLarge`.
pub(in crate::store) fn check_large(
    pool: &BufferPool,
    len_bytes: u64,
    reference_room: usize,
) -> Result<Option<&Arc<SlotStore>>> {
    let refuse = |max_bytes: u64, what: &str| {
        let kind = ErrorKind::RecordTooLarge {
            len_bytes: usize::try_from(len_bytes).unwrap_or(usize::MAX),
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
        };
        Err(Error::new(kind, format!("a value of {len_bytes} bytes{what}")))
    };
    let Some(slots) = pool.slots() else {
        let max_bytes = Held::most_frames(reference_room) as u64 * pool.page_bytes() as u64;
        return match len_bytes <= max_bytes {
            true => Ok(None),
            false => refuse(max_bytes, " is too long for a store in memory"),
        };
    };
    if len_bytes > MAX_VALUE_BYTES {
        return refuse(MAX_VALUE_BYTES, "; the longest is 4 GiB");
    }
    if reference_room < reference_bytes(1) {
        return refuse(reference_room as u64, " whose key leaves no room to say where it lies");
    }
    Ok(Some(slots))
}

/// Reads a value out of its extent, or out of memory.
pub struct ExtentReader {
    /// Where the value may be in memory; `None`: the file is to be read.
    pool: Option<Arc<BufferPool>>,
    slots: Arc<SlotStore>,
    geometry: Geometry,
    /// How long a call may wait for memory.
    wait: Wait,
    extent: Extent,
    // Kept for as long as anything may be read.
    _reading: ReadingOne,
    /// Shared with whoever lends memory, who may ask for it back between two calls.
    cache: Arc<Cache>,
}

/// Chunks that a reader has in memory.
#[derive(Debug, Default)]
struct Cache(Mutex<Cached>);

#[derive(Debug, Default)]
struct Cached {
    loan: Option<Loan>,
    /// The chunks in the buffer: first one and number.
    there: (u64, usize),
    /// It was used since it was asked for last.
    was_used: bool,
}

impl Cached {
    fn give_back(&mut self) {
        self.there = (0, 0);
        self.loan = None;
    }
}

impl Borrower for Cache {
    fn give_back(self: Arc<Self>, _: Need) {
        let Some(mut cached) = self.0.try_lock() else { return };
        if !std::mem::take(&mut cached.was_used) {
            cached.give_back();
        }
    }
}

impl fmt::Debug for ExtentReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtentReader").field("extent", &self.extent).finish_non_exhaustive()
    }
}

impl ExtentReader {
    /// Over an extent that a record referred to when `reading` had begun. Without a pool the file is read whatever is in
    /// memory.
    ///
    /// Errors: `Corrupted` if it cannot be one of this file.
    pub(in crate::store) fn new(
        pool: Option<&Arc<BufferPool>>,
        slots: &Arc<SlotStore>,
        extent: Extent,
        reading: Reading,
    ) -> Result<ExtentReader> {
        let state = slots.state();
        let geometry = state.zones.geometry();
        state.zones.check_extent(&extent)?;
        drop(state);
        let (pool, slots, _reading) = (pool.cloned(), slots.clone(), reading.only(&extent));
        let (wait, cache) = (Wait::Default, Arc::default());
        Ok(ExtentReader { pool, slots, geometry, wait, extent, _reading, cache })
    }

    /// The same reader, whose calls wait for memory as `wait` says.
    pub(in crate::store) fn with_wait(self, wait: &Wait) -> ExtentReader {
        ExtentReader { wait: wait.clone(), ..self }
    }

    /// Length of the value.
    pub fn len_bytes(&self) -> u64 {
        self.extent.len_bytes
    }

    /// The value in its stored form.
    pub fn stored_form(&self) -> Vec<u8> {
        self.extent.encode()
    }

    /// Copies bytes from `offset` on to `to`, as many as there are; returns how many that were. Fewer than `to` has
    /// room for only at the end of the value.
    ///
    /// Errors: `Corrupted` for a chunk that is not what was written; `Io`; `MemoryLimit`.
    pub fn read_at(&mut self, offset: u64, to: &mut [u8]) -> Result<usize> {
        let payload = u64::from(chunk_bytes(self.geometry)) - CHUNK_HEADER_BYTES as u64;
        let left = self.extent.len_bytes.saturating_sub(offset);
        let wanted = usize::try_from(left).unwrap_or(usize::MAX).min(to.len());
        if wanted == 0 {
            return Ok(0);
        }
        let (seed, pool) = (self.extent.seed, self.pool.as_ref());
        if pool.is_some_and(|pool| pool.copy_kept(seed, offset, &mut to[..wanted])) {
            return Ok(wanted);
        }
        let mut cached = self.cache.0.lock();
        let end = offset + wanted as u64;
        // Who reads all of it at once keeps nothing for the next call.
        let at_once_bytes = CHUNKS_AT_ONCE as u64 * payload;
        let is_kept = (wanted as u64) < self.extent.len_bytes || wanted as u64 > at_once_bytes;
        let mut next = offset / payload;
        let mut outcome = Ok(0);
        while next * payload < end && outcome.is_ok() {
            // What a chunk has of what is wanted goes to its place.
            let mut copy = |number: u64, chunk: &[u8]| {
                let from = number * payload;
                let (low, high) = (from.max(offset), (from + chunk.len() as u64).min(end));
                to[(low - offset) as usize..(high - offset) as usize]
                    .copy_from_slice(&chunk[(low - from) as usize..(high - from) as usize]);
            };
            // As many as are wanted, and no more.
            let most = (end - next * payload).div_ceil(payload) as usize;
            outcome = self.chunks(&mut cached, next..next + most as u64, is_kept, &mut copy);
            next += outcome.as_ref().map_or(0, |count| *count as u64);
        }
        cached.was_used = true;
        if !is_kept || cached.loan.as_ref().is_some_and(Loan::is_wanted) {
            cached.give_back();
        }
        if let Err(error) = outcome {
            // Who has closed the file may have given it to somebody else, whose bytes these are.
            return Err(self.slots.enter_file().err().unwrap_or(error));
        }
        Ok(wanted)
    }

    /// Hands the first of these chunks to `copy`, and those that follow it: what is in memory, or else what can be read together.
    /// Tells how many.
    fn chunks(
        &self,
        cached: &mut Cached,
        wanted: Range<u64>,
        is_kept: bool,
        copy: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<usize> {
        let chunk = chunk_bytes(self.geometry) as usize;
        let (index, most) = (wanted.start, (wanted.end - wanted.start) as usize);
        let Cached { loan, there, .. } = cached;
        let (first, count) = *there;
        if let Some(loan) = loan
            && (first..first + count as u64).contains(&index)
        {
            let count = (count - (index - first) as usize).min(most);
            for number in index..index + count as u64 {
                let at = (number - first) as usize * chunk + CHUNK_HEADER_BYTES;
                let value_bytes = self.extent.place(self.geometry, number).value_bytes;
                copy(number, &loan[at..at + value_bytes]);
            }
            return Ok(count);
        }
        *there = (0, 0);
        let loan = match loan {
            Some(loan) => loan,
            None => {
                let weak: Weak<Cache> = Arc::downgrade(&self.cache);
                let loan_for = if is_kept { LoanFor::Stream(weak) } else { LoanFor::Read };
                let waiting = self.wait.begin();
                loan.insert(self.slots.lend(CHUNKS_AT_ONCE.min(most), loan_for, &waiting)?)
            }
        };
        let room = (loan.len() / chunk).min(most) * chunk;
        let mut arrived = |next: usize, bytes: &[u8]| copy(index + next as u64, bytes);
        let (slots, extent) = (&self.slots, &self.extent);
        let (count, _) = read_chunks(slots, extent, index, &mut loan[..room], &mut arrived)?;
        *there = (index, count);
        Ok(count)
    }
}
