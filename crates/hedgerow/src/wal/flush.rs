//! Blocks on their way to the disk: one flusher at a time, and the log's own thread.
//!
//! A flush ends the block that is being filled, waits for copies under way, seals, writes all whole blocks
//! together and, if it is asked to, syncs. Greedy: there is no timer between a commit and its flush; what
//! is appended meanwhile goes with the next one.
//!
//! The thread does what nobody waits for: it flushes what is *buffered* within the interval, writes when the
//! ring fills up (without a sync), and prepares segments ahead of need. Thread-safety: see [`Log`].

use super::block::{BlockHeader, PAYLOAD_BYTES, seal, start_of};
use super::durable::closed;
use super::log::{Log, unknown};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::WriteRequest;
use crate::types::{Epoch, Lsn};
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use hedgerow_sync::primitive::time::Moment;

impl Log {
    /// Flushes as the one flusher, and lets go of the role. The outcome is in the state.
    pub(super) fn flush_and_hand_over(&self, sync: bool) {
        let outcome = self.write_blocks().and_then(|()| if sync { self.sync() } else { Ok(()) });
        if let Err(error) = outcome {
            // The role goes with it: who flushes next would ask a disk that has forgotten what it lost.
            self.fail(error);
            let mut state = self.state.lock();
            state.flushing = false;
            self.tell_of_room(state);
            return;
        }
        let runs_short = self.runs_short();
        let mut state = self.state.lock();
        state.flushing = false;
        let woken = state.waiters.take_served(self.durable());
        // They came while this flush was under way, and the thread has left it to this flusher since. Or so much was written that
        // somebody would have to wait for a segment before the thread looks by itself.
        if state.waiters.has_task() || runs_short {
            self.work.notify_all();
        }
        self.tell_of_room(state);
        woken.wake();
    }

    /// No checkpoint is going to make room any more: whoever waits for some gets this error, and whoever has to wait from
    /// now on. What was appended is written as before.
    pub fn refuse_to_wait(&self, error: &Error) {
        let mut refusal = self.refusal.lock();
        refusal.get_or_insert_with(|| error.duplicate());
        drop(refusal);
        // Who is on the way to sleep looks again in a moment.
        self.room.notify_all();
    }

    pub(super) fn check_refusal(&self) -> Result<()> {
        self.refusal.lock().as_ref().map_or(Ok(()), |error| Err(error.duplicate()))
    }

    /// Nothing is written any more, and everybody who waits is told. Who flushes goes on being the flusher until it has
    /// returned: whoever stops the log waits for that.
    pub(super) fn fail(&self, error: Error) {
        // Before those who wait go on: what they do next finds that nothing can be changed any more.
        (self.on_failure)(&error);
        let mut state = self.state.lock();
        if state.failed.is_none() {
            state.failed = Some(Error::new(
                ErrorKind::Poisoned,
                format!(
                    "the store takes no more changes, because the log could not be written: {error}"
                ),
            ));
        }
        self.work.notify_all();
        // Who leaves with an error wakes the next one.
        state.queue.let_first_look();
        let told = state.queue.take_told();
        self.room.notify_all();
        let why = state.failed.as_ref().map_or_else(closed, unknown);
        let woken = state.waiters.take_all(self.durable(), &why);
        drop(state);
        told.wake();
        woken.wake();
    }

    /// Writes everything that was appended before. The flusher alone.
    fn write_blocks(&self) -> Result<()> {
        if let Some(error) = self.failure() {
            return Err(error);
        }
        let from = self.written.load(Acquire);
        let mut flusher = self.ring.flusher().expect("one flushes at a time");
        let (to, skipped) = flusher.close();
        if from == to {
            return Ok(());
        }
        let offsets_bytes = self.find_places(from, to)?;
        let durable = self.durable();
        let checkpoint = Epoch(self.checkpoint.load(Relaxed));
        for number in from..to {
            let skipped = if number + 1 == to { skipped } else { 0 };
            let block = flusher.whole(number, skipped);
            let used = (PAYLOAD_BYTES - skipped) as u16;
            seal(block, &self.identity, &BlockHeader { number, durable, checkpoint, used });
        }
        let blocks = (from..to).zip(offsets_bytes);
        let requests: Vec<WriteRequest<'_>> = blocks
            .map(|(number, offset_bytes)| WriteRequest { offset_bytes, buf: flusher.block(number) })
            .collect();
        // Every record of these blocks is there, so what it refers to was written before.
        (self.before_write)()?;
        self.file.write_batch(&requests)?;
        drop(requests);
        flusher.release(to);
        drop(flusher);
        self.written.store(to, Release);
        self.widen();
        Ok(())
    }

    /// Syncs what is written. The flusher alone.
    fn sync(&self) -> Result<()> {
        let written = start_of(self.written.load(Acquire));
        if self.durable() < written {
            self.file.sync_data()?;
            // Release: whoever sees it sees what was written before the sync.
            self.durable.store(written.0, Release);
        }
        Ok(())
    }

    /// Where these blocks go. The flusher alone. Most flushes go on in the segment of the last one, and do not wait for
    /// whoever prepares another one meanwhile.
    fn find_places(&self, from: u64, to: u64) -> Result<Vec<u64>> {
        let (size, last) = (self.segment, self.segment.segment_of(to - 1));
        let mut flushed_to = self.flushed_to.lock();
        if let Some((segment, place)) = *flushed_to
            && (segment, segment) == (size.segment_of(from), last)
        {
            return Ok((from..to).map(|block| size.block_offset_bytes(place, block)).collect());
        }
        self.ensure_prepared(to)?;
        let places = self.places.lock();
        *flushed_to = Some((last, places.place(last)));
        Ok((from..to).map(|block| places.offset_bytes(block)).collect())
    }

    /// Segments are prepared ahead of what is promised; only what flushes skip could use them up.
    fn ensure_prepared(&self, to: u64) -> Result<()> {
        let mut places = self.places_to_write();
        while self.segment.first_block(places.end()) < to {
            places.prepare(&*self.file, &self.identity)?;
        }
        Ok(())
    }

    /// The log's thread. Ends after [`Log::stop`] or a failure.
    pub fn run(&self) {
        // When the oldest bytes that are not durable were first seen.
        let mut since: Option<Moment> = None;
        loop {
            self.look();
            // Outside of the lock, which writers take with a leaf latched: this may wait for a write.
            let wants_segment = self.wants_segment();
            let wants_ahead = !wants_segment && self.wants_ahead();
            let mut state = self.state.lock();
            if state.stopped || state.failed.is_some() {
                return;
            }
            if wants_segment && state.no_room.is_none() {
                drop(state);
                self.prepare_segment();
                continue;
            }
            let pressed = self.pressed.swap(false, SeqCst);
            if self.tail() <= self.durable() {
                since = None;
                if pressed {
                    // Whoever waits looks again: for room that is there, or for the reason why not. Then
                    // something else has to happen, of which this thread may not be told.
                    self.tell_of_room(state);
                    let mut state = self.state.lock();
                    self.work.wait_for(&mut state, TICK);
                } else if wants_ahead && self.runs_short() {
                    drop(state);
                    self.prepare_ahead();
                } else if self.becomes_idle() {
                    self.work.wait(&mut state);
                }
                continue;
            }
            let waited = since.get_or_insert_with(Moment::now).elapsed();
            let is_awaited = state.waiters.has_task();
            let due = waited >= self.interval || is_awaited;
            let filling = pressed && self.ring.is_half_full(self.written.load(Relaxed));
            if (due || filling) && !state.flushing {
                state.flushing = true;
                drop(state);
                self.awaited.fetch_add(u64::from(is_awaited), Relaxed);
                self.flush_and_hand_over(due);
                if due {
                    since = None;
                }
                continue;
            }
            let told = self.give_room(&mut state);
            if wants_ahead {
                drop(state);
                told.wake();
                self.prepare_ahead();
                continue;
            }
            if told.is_any() {
                drop(state);
                told.wake();
                continue;
            }
            self.work.wait_for(&mut state, self.interval.saturating_sub(waited).max(TICK));
        }
    }

    /// What the log's thread does for who needs room, where there is no such thread.
    pub(super) fn make_room(&self) {
        self.widen();
        let mut state = self.state.lock();
        // The file may be somebody else's by now.
        if state.stopped {
            return;
        }
        // If there is no room for one, a flush may do.
        if state.no_room.is_none() && self.wants_segment() {
            drop(state);
            self.prepare_segment();
            return;
        }
        if state.flushing {
            self.room.wait(&mut state);
            return;
        }
        state.flushing = true;
        drop(state);
        self.flush_and_hand_over(false);
    }

    /// Prepares one segment, or notes why it cannot be.
    fn prepare_segment(&self) {
        let prepared = self.places_to_write().prepare(&*self.file, &self.identity);
        match prepared {
            Ok(()) => {
                self.widen();
                self.tell_of_room(self.state.lock());
            }
            Err(error) => {
                if error.kind() != ErrorKind::DiskFull {
                    return self.fail(error);
                }
                let mut state = self.state.lock();
                state.no_room = Some(error);
                self.tell_of_room(state);
            }
        }
    }

    /// Prepares a segment that nobody needs yet, if there is room.
    fn prepare_ahead(&self) {
        let mut places = self.places_to_write();
        let prepared = places.prepare(&*self.file, &self.identity);
        let is_full = |error: &Error| error.kind() == ErrorKind::DiskFull;
        // Under the lock, as whoever makes room clears it.
        self.cannot_prepare_ahead.store(prepared.as_ref().is_err_and(is_full), Relaxed);
        drop(places);
        match prepared {
            Ok(()) => self.widen(),
            Err(error) if is_full(&error) => {}
            Err(error) => self.fail(error),
        }
    }

    /// Ends the log's thread, and refuses promises and flushes from now on: when this returns nothing is
    /// written any more. Nothing is flushed.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        self.work.notify_all();
        state.queue.let_first_look();
        state.queue.take_told().wake();
        self.room.notify_all();
        while state.flushing {
            self.room.wait(&mut state);
        }
        let woken = state.waiters.take_all(self.durable(), &closed());
        drop(state);
        woken.wake();
    }

    /// The first address that is not written, and the number of its block.
    #[cfg(hedgerow_internals)]
    pub fn written(&self) -> (Lsn, u64) {
        let block = self.written.load(Acquire);
        (start_of(block), block)
    }
}

/// The log's thread sleeps at least this long.
const TICK: std::time::Duration = std::time::Duration::from_millis(1);
