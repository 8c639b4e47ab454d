//! Values on their way to the file: chunks of extents, written many at a time.
//!
//! Writing each value of a few kilobytes by a call of its own would cost more than everything else that a change does.
//! So chunks are *staged*: they lie in a buffer, at a place in the file that is theirs already,
//! until the buffer is full, or somebody needs them in the file. These are:
//!
//! - the log, before it writes a block with a record that may refer to them (`SlotStore::sync_extents`);
//! - a checkpoint, before it syncs the file;
//! - somebody who needs the buffer's memory (it is a loan) where less than a chunk is free. A call whose waits are bounded leaves the
//!   write to the thread.
//!
//! There are two buffers: one is filled while the other one, which is full, is written. A full one is written by a thread
//! in a store that has threads, else by whoever filled it. The thread begins when it is first wanted. Where two would take
//! all memory for large values there is one: on a full disk neither can be written, and others have to read meanwhile.
//!
//! Whoever reads a chunk that is staged gets it from its buffer ([`Staging::read`]): reads write nothing.
//!
//! Invariants: what is staged belongs to an extent that is allocated and not discarded, so its place is nobody else's;
//! a chunk is staged before a record that refers to it is put; no two staged chunks overlap. All buffers together leave a
//! chunk of the share for readers. Buffers are written one after the
//! other, in the order in which they were filled. A chunk is staged until its buffer is written. A write that fails leaves
//! everything staged. It is tried again by the next one who needs it if it failed for want of room or memory, else nothing is
//! written any more, and everybody who comes is told. Units are not given back while a chunk in them is being written: whoever writes it
//! does that afterwards.
//!
//! `Send + Sync`: one mutex, which is not held during a write. It comes after all latches and before the lock of the space, and a loan is
//! asked for before it is taken. Whoever needs a buffer in the file that somebody else is writing waits for that write.

use super::chunks::{ChunkPlace, chunk_bytes};
use super::door::Door;
use super::loans::{Borrower, Loan, LoanFor, Loans, Need};
use crate::error::{Error, ErrorKind, Result};
use crate::large::{Extent, Run};
use crate::space::geometry::Geometry;
use crate::storage::{File, WriteRequest, congruent_from};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Release};
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicUsize};
use hedgerow_sync::primitive::thread::JoinHandle;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex, MutexGuard, Weak, thread};

/// Chunks that a buffer has room for at most: one MiB.
const CHUNKS_AT_ONCE: usize = 32;
/// Chunks that are copied with the buffers locked, which keeps the others from them.
pub(super) const CHUNKS_LOCKED: usize = 16;

/// Makes units free to which nobody ever referred.
type FreeUnits = Box<dyn Fn(&[Run]) + Send + Sync>;

/// See the head of the file.
pub struct Staging {
    file: Arc<dyn File>,
    geometry: Geometry,
    door: Arc<Door>,
    loans: Arc<Loans>,
    free: FreeUnits,
    /// There may be a thread that writes full buffers.
    may_have_thread: AtomicBool,
    staged: Mutex<Staged>,
    /// Number of staged chunks: whoever looks for one need not lock if there is none.
    count: AtomicUsize,
    /// A full buffer was written, or could not be.
    written: Condvar,
    /// For the thread: there is a full buffer, or it is to end.
    wake: Condvar,
}

#[derive(Default)]
struct Staged {
    /// To be filled.
    loan: Option<Loan>,
    used_bytes: usize,
    chunks: Vec<Chunk>,
    /// To be written next, or being written.
    full: Option<Arc<Full>>,
    /// Somebody writes the full one.
    is_writing: bool,
    /// Of values that were given up meanwhile, and are in the full one.
    given_up: Vec<Run>,
    /// For when the full one is not written yet and the next one is begun.
    spare: Option<Loan>,
    /// Somebody asks for a loan. One at a time, so that all of them together are within their bound.
    is_borrowing: bool,
    /// Buffers that became full, and of these, those that are written.
    filled_count: u64,
    written_count: u64,
    /// Why the full one could not be written, unless that may pass.
    failure: Option<Error>,
    /// If it may: how often, and the last time why.
    refusals: (u64, Option<Error>),
    /// It was used since the loan was asked for last.
    was_used: bool,
    /// The thread that writes full buffers, once there was one.
    thread: Option<JoinHandle<()>>,
    /// It is asked to write.
    is_wanted: bool,
    /// It is to end, and no other one begins.
    is_ending: bool,
}

/// A buffer that nobody fills any more.
struct Full {
    loan: Loan,
    chunks: Vec<Chunk>,
}

/// A chunk in a buffer.
#[derive(Clone, Copy)]
struct Chunk {
    offset_bytes: u64,
    at: usize,
    len_bytes: usize,
}

impl Chunk {
    fn overlaps(&self, offset_bytes: u64, len_bytes: u64) -> bool {
        self.offset_bytes < offset_bytes + len_bytes
            && offset_bytes < self.offset_bytes + self.len_bytes as u64
    }
}

impl Staged {
    /// What is staged, and the buffer in which it is.
    fn chunks(&self) -> impl Iterator<Item = (&Chunk, &Loan)> {
        let full = self.full.iter().flat_map(|full| full.chunks.iter().map(|c| (c, &full.loan)));
        let filling = self.loan.iter().flat_map(|loan| self.chunks.iter().map(move |c| (c, loan)));
        filling.chain(full)
    }

    /// Bytes of all loans.
    fn lent_bytes(&self) -> usize {
        let full = self.full.as_ref().map(|full| &full.loan);
        [self.loan.as_ref(), self.spare.as_ref(), full]
            .iter()
            .flatten()
            .map(|loan| loan.len())
            .sum()
    }

    /// Ends filling. There is no other full one.
    fn fill_up(&mut self) {
        let chunks = std::mem::take(&mut self.chunks);
        self.used_bytes = 0;
        if let Some(loan) = self.loan.take() {
            self.full = Some(Arc::new(Full { loan, chunks }));
            self.filled_count += 1;
        }
    }

    /// Gives the memory back that holds nothing.
    fn give_back_loans(&mut self) {
        self.spare = None;
        if self.chunks.is_empty() {
            (self.loan, self.used_bytes) = (None, 0);
        }
    }

    fn check_failure(&self) -> Result<()> {
        self.failure.as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }
}

impl Staging {
    pub(in crate::space) fn new(
        file: Arc<dyn File>,
        geometry: Geometry,
        door: Arc<Door>,
        loans: Arc<Loans>,
        free: FreeUnits,
    ) -> Staging {
        Staging {
            file,
            geometry,
            door,
            loans,
            free,
            may_have_thread: AtomicBool::new(false),
            staged: Mutex::default(),
            count: AtomicUsize::new(0),
            written: Condvar::new(),
            wake: Condvar::new(),
        }
    }

    /// Says whether there may be a thread that writes full buffers. In the beginning there may be none.
    pub(in crate::space) fn allow_thread(&self, is_allowed: bool) {
        self.may_have_thread.store(is_allowed, Release);
    }

    /// Takes the chunks of an extent that nobody refers to yet; `fill` puts the bytes of each there. They go to one buffer if they fit, else
    /// to several, one after the other; if `waiting` is bounded to one in any case.
    ///
    /// Errors: those of writing what was staged before; `Closed`; `MemoryLimit` if there is no buffer to be had; those of `waiting`.
    /// Nothing of the extent is staged then if `waiting` is bounded; else what is staged of it is to be given up ([`Self::give_up`]).
    pub fn stage(
        self: &Arc<Self>,
        extent: &Extent,
        mut fill: impl FnMut(u64, &mut [u8]),
        waiting: &Waiting<'_>,
    ) -> Result<()> {
        let count = extent.chunks(self.geometry);
        let place = |index: u64| extent.place(self.geometry, index);
        let mut next = 0;
        while next < count {
            let together = if waiting.is_bounded() { next..count } else { next..next + 1 };
            let least_bytes = together.map(|index| place(index).stored_bytes).sum();
            let mut staged = self.room_to_stage(least_bytes, waiting)?;
            let Staged { loan, used_bytes, chunks, was_used, .. } = &mut *staged;
            let loan = loan.as_mut().expect("there is a buffer");
            let mut left_bytes = least_bytes;
            for index in (next..count).take(CHUNKS_LOCKED) {
                let ChunkPlace { offset_bytes, stored_bytes: len_bytes, .. } = place(index);
                // What has to come into this buffer must fit behind it.
                let alike = congruent_from(*used_bytes, offset_bytes);
                let at = if alike + left_bytes <= loan.len() { alike } else { *used_bytes };
                let Some(to) = loan.get_mut(at..at + len_bytes) else { break };
                left_bytes = left_bytes.saturating_sub(len_bytes);
                fill(index, to);
                chunks.push(Chunk { offset_bytes, at, len_bytes });
                *used_bytes = at + len_bytes;
                next += 1;
            }
            *was_used = true;
            // What the disk holds up cannot be broken off.
            let is_wanted = loan.is_wanted() && !waiting.is_bounded();
            self.note_count(&staged);
            drop(staged);
            if is_wanted
                && let Ok(_writing) = self.door.enter()
                // It stays staged if this fails; whoever needs it in the file is told.
                && self.write_all().is_ok()
            {
                self.staged.lock().give_back_loans();
            }
        }
        Ok(())
    }

    /// Waits until the buffer that is filled has room for so many bytes.
    ///
    /// Errors: as of [`Self::stage`].
    fn room_to_stage(
        self: &Arc<Self>,
        len_bytes: usize,
        waiting: &Waiting<'_>,
    ) -> Result<MutexGuard<'_, Staged>> {
        let mut staged = self.staged.lock();
        loop {
            staged.check_failure()?;
            if staged.loan.is_none() {
                staged.loan = staged.spare.take();
            }
            let free = staged.loan.as_ref().map_or(0, |loan| loan.len() - staged.used_bytes);
            if free >= len_bytes {
                return Ok(staged);
            }
            if staged.chunks.is_empty() {
                // There is none, or the share was small when it was lent.
                (staged.loan, staged.used_bytes) = (None, 0);
                if staged.is_borrowing {
                    waiting.wait_on(&self.written, &mut staged)?;
                } else if self.may_stage(len_bytes, staged.lent_bytes()) {
                    staged = self.borrow_to_stage(staged, len_bytes, waiting)?;
                } else {
                    // The memory of the full one is the only one.
                    staged = self.write_full_or_wait(staged, waiting)?;
                }
            } else if staged.is_writing || staged.full.is_some() {
                staged = self.write_full_or_wait(staged, waiting)?;
            } else {
                staged.fill_up();
                if !self.wake_thread(&mut staged) {
                    staged = self.write_full_or_wait(staged, waiting)?;
                }
            }
        }
    }

    /// Whether there may be a buffer for so many staged bytes beside those of `lent_bytes`: together they leave a chunk.
    /// True if there is no other one, for `SlotStore::is_staged_when_put`.
    fn may_stage(&self, len_bytes: usize, lent_bytes: usize) -> bool {
        let chunk = chunk_bytes(self.geometry) as usize;
        let least = len_bytes.next_multiple_of(chunk);
        lent_bytes == 0 || lent_bytes + least + chunk <= self.loans.bytes()
    }

    /// Borrows a buffer for at least so many staged bytes, beside others of `lent_bytes`; of `most` chunks at most,
    /// and no more than a third of the share or what these bytes need. What [`Self::may_stage`] allows.
    fn lend(
        &self,
        len_bytes: usize,
        most: usize,
        lent_bytes: usize,
        borrower: Weak<dyn Borrower>,
        waiting: &Waiting<'_>,
    ) -> Result<Loan> {
        let chunk = chunk_bytes(self.geometry) as usize;
        let least = len_bytes.next_multiple_of(chunk);
        let share = self.loans.bytes();
        let left = share.saturating_sub(lent_bytes + chunk);
        let most_bytes = (most * chunk).min(share / 3).min(left);
        let stream = LoanFor::Stream(borrower);
        self.loans.lend(least, most_bytes / least, stream, waiting)
    }

    /// Borrows a buffer for at least so many bytes, and begins it unless there is one by then.
    fn borrow_to_stage<'s>(
        self: &'s Arc<Self>,
        mut staged: MutexGuard<'s, Staged>,
        len_bytes: usize,
        waiting: &Waiting<'_>,
    ) -> Result<MutexGuard<'s, Staged>> {
        let lent_bytes = staged.lent_bytes();
        staged.is_borrowing = true;
        drop(staged);
        // With nothing locked: whoever lends may have to wait, and asks this one, too.
        let weak: Weak<Staging> = Arc::downgrade(self);
        let lent = self.lend(len_bytes, CHUNKS_AT_ONCE, lent_bytes, weak, waiting);
        let mut staged = self.staged.lock();
        staged.is_borrowing = false;
        self.written.notify_all();
        let fresh = lent?;
        if staged.loan.is_none() {
            staged.loan = Some(fresh);
        } else if staged.spare.is_none() {
            staged.spare = Some(fresh);
        }
        Ok(staged)
    }

    /// Writes the full buffer if the thread has not come to it, else waits for whoever writes it.
    ///
    /// Errors: `Closed`; those of writing and of `waiting`.
    fn write_full_or_wait<'s>(
        self: &'s Arc<Self>,
        mut staged: MutexGuard<'s, Staged>,
        waiting: &Waiting<'_>,
    ) -> Result<MutexGuard<'s, Staged>> {
        // What the disk holds up cannot be broken off, so a call that is bounded leaves it to the thread.
        let thread_writes = |staged: &mut MutexGuard<'s, Staged>| {
            staged.full.is_some() && waiting.is_bounded() && self.wake_thread(staged)
        };
        let refused_before = staged.refusals.0;
        if staged.is_writing || thread_writes(&mut staged) {
            waiting.wait_on(&self.written, &mut staged)?;
            return match &staged.refusals {
                (refused, Some(error)) if *refused != refused_before => Err(error.duplicate()),
                _ => Ok(staged),
            };
        }
        let _writing = self.door.enter()?;
        self.write_full(staged)
    }

    /// Writes everything that is staged when this is called. Whoever closes the file does this last, so the door is not asked.
    ///
    /// Errors: those of writing, also of an earlier one.
    pub fn write_all(&self) -> Result<()> {
        if self.count.load(Acquire) == 0 {
            return Ok(());
        }
        let mut staged = self.staged.lock();
        // What comes later is in later buffers.
        let target = staged.filled_count + u64::from(!staged.chunks.is_empty());
        while staged.written_count < target {
            staged.check_failure()?;
            if staged.is_writing {
                self.written.wait(&mut staged);
                continue;
            }
            if staged.full.is_none() {
                if staged.chunks.is_empty() {
                    // It was given up meanwhile.
                    break;
                }
                staged.fill_up();
            }
            staged = self.write_full(staged)?;
        }
        Ok(())
    }

    /// Looks for `count` chunks of a value, one at least: the k-th lies at `place_of(k)`, `stride` bytes behind the one before. Tells
    /// whether the first is staged, and how many from it on are as it is; they may be more. Staged ones are copied to `buffer`, the k-th to
    /// `k * stride`. The others are in the file.
    pub fn read(
        &self,
        count: usize,
        place_of: impl Fn(usize) -> (u64, usize),
        buffer: &mut [u8],
        stride: usize,
    ) -> (bool, usize) {
        if self.count.load(Acquire) == 0 {
            return (false, count);
        }
        let count = count.min(u64::BITS as usize);
        let first_bytes = place_of(0).0;
        let number = |chunk: &Chunk| {
            let behind = chunk.offset_bytes.checked_sub(first_bytes)?;
            // There may be thousands, so most are told apart without a division.
            if behind >= (count * stride) as u64 {
                return None;
            }
            let index = (behind / stride as u64) as usize;
            (place_of(index) == (chunk.offset_bytes, chunk.len_bytes)).then_some(index)
        };
        let staged = self.staged.lock();
        let found = staged.chunks().filter_map(|(chunk, _)| number(chunk));
        let found = found.fold(0_u64, |found, index| found | 1 << index);
        let is_staged = found & 1 == 1;
        let alike = if is_staged { found.trailing_ones() } else { found.trailing_zeros() };
        let count = count.min(alike as usize);
        if !is_staged {
            return (false, count);
        }
        let count = count.min(CHUNKS_LOCKED);
        for (chunk, loan) in staged.chunks() {
            if let Some(index) = number(chunk).filter(|index| *index < count) {
                let from = &loan[chunk.at..chunk.at + chunk.len_bytes];
                buffer[index * stride..index * stride + from.len()].copy_from_slice(from);
            }
        }
        (true, count)
    }

    /// Whether a chunk is staged that lies there.
    pub fn is_staged(&self, offset_bytes: u64) -> bool {
        self.count.load(Acquire) > 0
            && self.staged.lock().chunks().any(|(chunk, _)| chunk.offset_bytes == offset_bytes)
    }

    /// Gives units back to which nobody ever referred, and forgets the chunks in them. Waits for no write: if one of the chunks is being
    /// written, the units are free when that has ended, because their places may be somebody else's afterwards.
    pub(in crate::space) fn give_up(&self, runs: &[Run]) {
        if self.count.load(Acquire) > 0 {
            let is_kept = self.is_beside(runs);
            let mut staged = self.staged.lock();
            staged.chunks.retain(&is_kept);
            // Nobody else has it unless it is being written.
            match &mut staged.full {
                Some(full) if !full.chunks.iter().all(&is_kept) => match Arc::get_mut(full) {
                    Some(full) => full.chunks.retain(&is_kept),
                    None => {
                        staged.given_up.extend_from_slice(runs);
                        return self.note_count(&staged);
                    }
                },
                _ => {}
            }
            self.note_count(&staged);
        }
        (self.free)(runs);
    }

    /// A write of the full buffer has ended: gives back what was given up meanwhile.
    fn free_given_up(&self, staged: &mut Staged) {
        let given_up = std::mem::take(&mut staged.given_up);
        if given_up.is_empty() {
            return;
        }
        // It is written again if that has failed.
        if let Some(full) = staged.full.as_mut().and_then(Arc::get_mut) {
            full.chunks.retain(self.is_beside(&given_up));
        }
        self.note_count(staged);
        (self.free)(&given_up);
    }

    /// Whether a chunk lies in none of these units.
    fn is_beside(&self, runs: &[Run]) -> impl Fn(&Chunk) -> bool {
        let geometry = self.geometry;
        let unit_bytes = u64::from(geometry.unit_bytes());
        let range = |run: &Run| (geometry.unit_offset(run.unit), u64::from(run.units) * unit_bytes);
        let ranges: Vec<(u64, u64)> = runs.iter().map(range).collect();
        move |chunk| !ranges.iter().any(|&(at, len)| chunk.overlaps(at, len))
    }

    fn note_count(&self, staged: &Staged) {
        let in_full = staged.full.as_ref().map_or(0, |full| full.chunks.len());
        self.count.store(staged.chunks.len() + in_full, Release);
    }

    /// Writes the full buffer, which nobody is writing, and forgets what is in it.
    ///
    /// Errors: those of writing. Everything stays staged then.
    fn write_full<'s>(
        &'s self,
        mut staged: MutexGuard<'s, Staged>,
    ) -> Result<MutexGuard<'s, Staged>> {
        let Some(full) = staged.full.clone() else { return Ok(staged) };
        staged.is_writing = true;
        drop(staged);
        let outcome = self.write_chunks(&full);
        drop(full);
        let mut staged = self.staged.lock();
        staged.is_writing = false;
        self.free_given_up(&mut staged);
        self.written.notify_all();
        match outcome {
            Ok(()) => {
                let loan = staged.full.take().and_then(Arc::into_inner).map(|full| full.loan);
                // Nobody else gives it to those who wait for memory.
                staged.spare = loan.filter(|loan| !loan.is_wanted());
                staged.written_count += 1;
                self.note_count(&staged);
                Ok(staged)
            }
            Err(error) => {
                let passes = matches!(error.kind(), ErrorKind::DiskFull | ErrorKind::MemoryLimit);
                if !passes {
                    staged.failure = Some(error.duplicate());
                }
                staged.refusals = (staged.refusals.0 + 1, Some(error.duplicate()));
                Err(error)
            }
        }
    }

    /// Writes the chunks of a buffer. Then a sync is due.
    fn write_chunks(&self, full: &Full) -> Result<()> {
        let Full { loan, chunks } = full;
        let mut requests: Vec<WriteRequest<'_>> = Vec::with_capacity(chunks.len());
        let mut at = 0;
        while at < chunks.len() {
            let first = chunks[at];
            let mut end = first;
            // Neighbours in the buffer that are neighbours in the file go as one.
            while let Some(&next) = chunks.get(at + 1)
                && next.at == end.at + end.len_bytes
                && next.offset_bytes == end.offset_bytes + end.len_bytes as u64
            {
                end = next;
                at += 1;
            }
            at += 1;
            let buf = &loan[first.at..end.at + end.len_bytes];
            requests.push(WriteRequest { offset_bytes: first.offset_bytes, buf });
        }
        if requests.is_empty() {
            return Ok(());
        }
        self.file.write_batch(&requests)?;
        self.door.wrote();
        Ok(())
    }

    /// Asks the thread to write the full buffer. False: there is no thread, and there will be none.
    fn wake_thread(self: &Arc<Self>, staged: &mut Staged) -> bool {
        if !self.may_have_thread.load(Acquire) || staged.is_ending {
            return false;
        }
        if staged.thread.is_none() {
            let staging = self.clone();
            let run = move || staging.write_full_buffers();
            // Where there can be none, whoever fills a buffer writes it.
            let Ok(thread) = thread::spawn_named("hedgerow-values", run) else { return false };
            staged.thread = Some(thread);
        }
        staged.is_wanted = true;
        self.wake.notify_one();
        true
    }

    /// What the thread does, until it is to end or the file is being closed.
    fn write_full_buffers(&self) {
        let mut staged = self.staged.lock();
        loop {
            while !staged.is_wanted && !staged.is_ending {
                self.wake.wait(&mut staged);
            }
            if staged.is_ending {
                return;
            }
            staged.is_wanted = false;
            if staged.is_writing || staged.check_failure().is_err() {
                continue;
            }
            // Whoever closes the file writes what is left.
            let Ok(_writing) = self.door.enter() else { return };
            staged = match self.write_full(staged) {
                Ok(staged) => staged,
                // The next one who needs it is told, or tries it again.
                Err(_) => self.staged.lock(),
            };
        }
    }

    /// Ends the thread; from then on whoever fills a buffer writes it. Waits for a write that is under way.
    pub fn end_thread(&self) {
        let thread = {
            let mut staged = self.staged.lock();
            staged.is_ending = true;
            self.wake.notify_all();
            staged.thread.take()
        };
        if let Some(thread) = thread {
            let ended = thread.join();
            assert!(ended.is_ok(), "the thread that writes values does not panic");
        }
    }
}

impl Borrower for Staging {
    fn give_back(self: Arc<Self>, need: Need) {
        {
            // Whoever holds it is using it.
            let Some(mut staged) = self.staged.try_lock() else { return };
            if std::mem::take(&mut staged.was_used) {
                return;
            }
            staged.give_back_loans();
            if need == Need::More || staged.lent_bytes() == 0 {
                return;
            }
            if need == Need::AtOnce {
                if staged.full.is_none() {
                    staged.fill_up();
                }
                if staged.is_writing || self.wake_thread(&mut staged) {
                    return;
                }
            }
        }
        let Ok(_writing) = self.door.enter() else { return };
        // If it fails the memory is still needed.
        if self.write_all().is_ok() {
            self.staged.lock().give_back_loans();
        }
    }
}
