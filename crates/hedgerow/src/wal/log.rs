//! The log: what was done, in order, on its way to the disk.
//!
//! Rank 2. Writers append without a lock (`ring.rs`); blocks go out in order (`flush.rs`), by whoever needs
//! them to be durable first, or by the log's own thread within a bounded time. There is no leader: a committer
//! that finds no flush under way flushes for itself and for all who have appended before; the others sleep
//! until the durable LSN has passed theirs, and one of those left over goes on.
//!
//! # Invariants
//! - The *written* block and the *durable* LSN only grow; `durable` is the end of a prefix of the log that was
//!   written before a sync began which succeeded.
//! - A block that was submitted is never written again.
//! - After a failed write or sync nothing is written any more, and nobody is told that anything is durable
//!   which was not before.
//! - Nobody sleeps for ever: a waiter is in the queue before the flusher lets go of its role, and who lets go
//!   of the role wakes those that are served and one that is not.
//!
//! `Send + Sync`. Lock order: `state`, then `places`; neither is held across the other's I/O but `places`
//! while a segment is prepared.

use super::block::{LogIdentity, PAYLOAD_BYTES, SegmentSize, block_of, start_of};
use super::places::Places;
use super::record::Record;
use super::ring::{Appended, Ring};
use super::room_queue::{Place, RoomQueue, ToWake};
use super::waiters::Waiters;
use crate::error::{Error, ErrorKind, Result};
use crate::events::{Stall, WaitsFor};
use crate::storage::File;
use crate::types::{Epoch, Lsn};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed, SeqCst};
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU32, AtomicU64};
use hedgerow_sync::primitive::time::Moment;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex, MutexGuard, thread};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

/// How a log is made.
pub struct LogOptions {
    /// In the seed of every checksum.
    pub identity: LogIdentity,
    /// Size of segments.
    pub segment: SegmentSize,
    /// The first segment.
    pub first_segment: u64,
    /// The checkpoint that the log continues.
    pub checkpoint: Epoch,
    /// Blocks kept in memory, a power of two.
    pub ring_blocks: u32,
    /// What was appended is durable after this time at the latest, and that of a sync.
    pub interval: Duration,
    /// The most that the log may hold since the last checkpoint.
    pub limit_bytes: u64,
    /// Called once, when nothing can be written any more.
    pub on_failure: Box<dyn Fn(&Error) + Send + Sync>,
    /// Called before blocks are written: whatever a record in them refers to is durable when it returns. Records that refer
    /// to something are appended after that was written.
    pub before_write: Box<dyn Fn() -> Result<()> + Send + Sync>,
    /// Somebody will call [`Log::run`]. If not, whoever needs room makes it.
    pub threaded: bool,
    /// Called now and then while changes are made, with the bytes that the log holds since the last checkpoint: asks for
    /// one when it is due. The log's thread does so, which a sync may hold up for long; so whoever appends does it, too,
    /// and holds nothing meanwhile.
    pub on_growth: Box<dyn Fn(Growth) -> Pace + Send + Sync>,
}

/// What the log is to keep to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pace {
    /// From zero on changes wait longer and longer; one is as long as for a log that is full.
    pub pressure: f64,
    /// Bytes that the file should have at most, places that are to be used again included. Zero: no more than was used lately.
    pub bound_bytes: u64,
}

/// How room in the log is had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promised {
    /// Out of what is left.
    Freely,
    /// Out of what a batch has reserved.
    OfReserved,
}

/// See the head of the file.
pub struct Log {
    pub(super) ring: Ring,
    pub(super) file: Arc<dyn File>,
    pub(super) identity: LogIdentity,
    pub(super) segment: SegmentSize,
    pub(super) interval: Duration,
    pub(super) limit_bytes: u64,
    pub(super) threaded: bool,
    pub(super) on_failure: Box<dyn Fn(&Error) + Send + Sync>,
    pub(super) before_write: Box<dyn Fn() -> Result<()> + Send + Sync>,
    pub(super) on_growth: Box<dyn Fn(Growth) -> Pace + Send + Sync>,
    /// Below this block everything was handed to the disk.
    pub(super) written: AtomicU64,
    /// Below this address everything is durable.
    pub(super) durable: AtomicU64,
    /// The last durable checkpoint.
    pub(super) checkpoint: AtomicU64,
    /// Where replay would start.
    pub(super) replay_start: AtomicU64,
    /// The log has gone on behind what the last checkpoint says, though nothing was changed.
    pub(super) cut_again: AtomicBool,
    /// Bytes that the file should have at most, beside what is reserved; zero while nobody has said so.
    pub(super) bound_bytes: AtomicU64,
    /// What lies below is in the last checkpoint.
    pub(super) cut: AtomicU64,
    /// Bytes that batches have reserved and not been promised yet; grows under the lock of `places`.
    pub(super) reserved: AtomicU64,
    /// How long a change has to wait, in nanoseconds, because the log is more than half full, or opening would take long.
    pub(super) delay_ns: AtomicU64,
    /// Somebody waits for room: whoever comes now queues up behind. Relaxed: it is about fairness, and the queue is in the state.
    is_queue: AtomicBool,
    /// Of that, what nobody has waited for yet.
    pub(super) owed_ns: AtomicU64,
    /// From which address on whoever appends works it out again.
    pub(super) look_at: AtomicU64,
    /// Times that somebody has.
    pub(super) held_up: AtomicU64,
    /// Flushes that somebody has waited for.
    pub(super) awaited: AtomicU64,
    /// There was no room for a segment that nobody needs yet.
    pub(super) cannot_prepare_ahead: AtomicBool,
    /// How far who waited last needs the log to go; see [`Log::want_room`].
    pub(super) wanted: AtomicU64,
    /// The log's thread sleeps until something is appended.
    idle: AtomicBool,
    /// Somebody has asked the log's thread for room.
    pub(super) pressed: AtomicBool,
    pub(super) places: Mutex<Places>,
    /// The segment of the last flush, and its place. The flusher alone takes it, before `places`.
    pub(super) flushed_to: Mutex<Option<(u64, u32)>>,
    /// Threads that hold the places, or are about to, in order to write.
    writing_places: AtomicU32,
    pub(super) state: Mutex<State>,
    /// Why no checkpoint is going to make room. Comes last in the order of locks.
    pub(super) refusal: Mutex<Option<Error>>,
    /// For the log's thread: there is something to do.
    pub(super) work: Condvar,
    /// For batches and flushers that wait for room. Others wait in the queue of the state.
    pub(super) room: Condvar,
}

/// How much log there is.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    /// Bytes that a checkpoint would make superfluous: what the last one has not.
    pub fresh_bytes: u64,
    /// Bytes that opening would read.
    pub kept_bytes: u64,
}

/// What is decided under the lock.
pub(super) struct State {
    /// Somebody flushes.
    pub(super) flushing: bool,
    /// Why nothing is written any more.
    pub(super) failed: Option<Error>,
    /// Why no segment could be prepared when it was tried last.
    pub(super) no_room: Option<Error>,
    pub(super) stopped: bool,
    pub(super) waiters: Waiters,
    /// Who waits for room.
    pub(super) queue: RoomQueue,
}

impl Log {
    /// A log that begins in `file`, whose header block is written; what lies behind it is of no use. Prepares
    /// two segments, so that one can be used again while the other is needed, even if there is no room for a
    /// third ever; the caller syncs the file before the log is relied on.
    ///
    /// Errors: `MemoryLimit`; `DiskFull`; `Io`.
    pub fn begin(options: LogOptions, file: Arc<dyn File>) -> Result<Log> {
        let first_block = options.segment.first_block(options.first_segment);
        let start = start_of(first_block);
        let mut places = Places::new(options.segment, options.first_segment)?;
        for _ in 0..PREPARED_SEGMENTS {
            places.prepare(&*file, &options.identity)?;
        }
        let log = Log {
            ring: Ring::new(options.ring_blocks, start)?,
            file,
            identity: options.identity,
            segment: options.segment,
            interval: options.interval,
            limit_bytes: options.limit_bytes,
            threaded: options.threaded,
            on_failure: options.on_failure,
            before_write: options.before_write,
            on_growth: options.on_growth,
            written: AtomicU64::new(first_block),
            durable: AtomicU64::new(start.0),
            checkpoint: AtomicU64::new(options.checkpoint.0),
            replay_start: AtomicU64::new(start.0),
            cut_again: AtomicBool::new(false),
            bound_bytes: AtomicU64::new(0),
            cut: AtomicU64::new(start.0),
            reserved: AtomicU64::new(0),
            delay_ns: AtomicU64::new(0),
            is_queue: AtomicBool::new(false),
            owed_ns: AtomicU64::new(0),
            look_at: AtomicU64::new(if options.threaded { 0 } else { u64::MAX }),
            held_up: AtomicU64::new(0),
            awaited: AtomicU64::new(0),
            cannot_prepare_ahead: AtomicBool::new(false),
            wanted: AtomicU64::new(start.0),
            idle: AtomicBool::new(false),
            pressed: AtomicBool::new(false),
            places: Mutex::new(places),
            flushed_to: Mutex::new(None),
            writing_places: AtomicU32::new(0),
            state: Mutex::new(State {
                flushing: false,
                failed: None,
                no_room: None,
                stopped: false,
                waiters: Waiters::new(),
                queue: RoomQueue::new(),
            }),
            refusal: Mutex::new(None),
            work: Condvar::new(),
            room: Condvar::new(),
        };
        log.widen();
        Ok(log)
    }

    /// Makes sure that `len` bytes can be appended; waits for the disk if there is no room now. The caller
    /// holds nothing, no epoch either. What is not used is given back by [`Self::take_back`].
    ///
    /// Errors: `Poisoned` after a failed write; `DiskFull`; `Closed`.
    #[cfg(hedgerow_internals)]
    pub fn promise(&self, len: u64, how: Promised) -> Result<()> {
        self.promise_within(len, how, &Waiting::Forever)
    }

    /// [`Self::promise`], and waits as `waiting` says. Errors: those of it, too; nothing is promised then.
    #[inline]
    pub fn promise_within(&self, len: u64, how: Promised, waiting: &Waiting<'_>) -> Result<()> {
        if how == Promised::Freely {
            self.slow_down(len, waiting);
        }
        let queues = self.is_queue.load(Relaxed) && how == Promised::Freely;
        if queues || !self.try_promise(len, how) {
            self.wait_for_room(len, how, waiting)?;
        }
        if self.ring.promised().0 >= self.look_at.load(Relaxed) {
            self.look();
        }
        Ok(())
    }

    #[inline]
    fn try_promise(&self, len: u64, how: Promised) -> bool {
        match how {
            Promised::Freely => self.ring.promise(len),
            Promised::OfReserved => {
                let promised = self.ring.promise_reserved(len);
                if promised {
                    self.reserved.fetch_sub(len, AcqRel);
                }
                promised
            }
        }
    }

    /// Flushes that somebody has waited for.
    pub fn awaited(&self) -> u64 {
        self.awaited.load(Relaxed)
    }

    #[cold]
    fn wait_for_room(&self, len: u64, how: Promised, waiting: &Waiting<'_>) -> Result<()> {
        assert!(len <= self.ring.max_record_bytes(), "a record is far smaller than the ring");
        let _stall = Stall::begin(WaitsFor::Log);
        let mut state = self.state.lock();
        // Somebody may have made room on the disk since it was tried last.
        state.no_room = None;
        let place = Self::queue_up(&mut state, len, how);
        let since = Moment::now();
        let outcome = loop {
            if let Some(error) = &state.failed {
                break Err(error.duplicate());
            }
            if state.stopped {
                break Err(Error::new(ErrorKind::Closed, "the database was closed"));
            }
            if let Err(refusal) = self.check_refusal() {
                break Err(refusal);
            }
            // A flush may have ended, and not have said so yet.
            self.widen();
            let is_served = match &place {
                Some((number, _)) => {
                    self.serve(&mut state);
                    state.queue.is_served(*number)
                }
                None => self.try_promise(len, how),
            };
            if is_served {
                break Ok(());
            }
            self.want_room(len);
            // Who only waits for a flush is not concerned.
            let wants_places = self.ring.has_blocks_for(len, self.written.load(Acquire));
            if wants_places && let Some(error) = state.no_room.take() {
                break Err(error);
            }
            // Nor is who only waits for a flush when no checkpoint makes room, nor a batch, which does not wait for one.
            let needs_checkpoint = wants_places && how == Promised::Freely;
            if needs_checkpoint && let Err(error) = waiting.hope() {
                break Err(error);
            }
            if since.elapsed() > LONGEST_WAIT {
                let what = "no checkpoint made room in the log within a minute";
                break Err(Error::new(ErrorKind::Timeout, what));
            }
            let most = match waiting.nap_of(ROOM_WAIT) {
                Ok(most) => most,
                Err(end) => {
                    // Who comes later is to find room all the same.
                    self.pressed.store(true, SeqCst);
                    self.work.notify_all();
                    break Err(end);
                }
            };
            if !self.threaded {
                drop(state);
                self.make_room();
                state = self.state.lock();
                continue;
            }
            self.pressed.store(true, SeqCst);
            self.work.notify_all();
            let Some((_, place)) = &place else {
                self.room.wait_for(&mut state, most);
                continue;
            };
            let told = state.queue.take_told();
            drop(state);
            told.wake();
            if place.sleep(most) {
                return Ok(());
            }
            state = self.state.lock();
        };
        if let Some((number, _)) = place {
            // It may have been given room by another thread meanwhile.
            if outcome.is_err() && !state.queue.leave(number) {
                self.ring.take_back(len);
            }
            self.is_queue.store(!state.queue.is_empty(), Relaxed);
            // It is for the first one to ask for more room.
            state.queue.let_first_look();
        }
        let told = state.queue.take_told();
        drop(state);
        told.wake();
        outcome
    }

    /// A place in the queue. What a batch has reserved is its own, and queues up behind nobody.
    fn queue_up(state: &mut State, len: u64, how: Promised) -> Option<(u64, Arc<Place>)> {
        if how == Promised::OfReserved {
            return None;
        }
        Some(state.queue.join(len))
    }

    /// Gives room to those who have waited longest, who are to be woken one by one. Nobody gets any once nothing is written any more.
    fn serve(&self, state: &mut State) {
        while state.failed.is_none()
            && !state.stopped
            && let Some(len) = state.queue.first_len()
            && self.try_promise(len, Promised::Freely)
        {
            state.queue.serve_first();
        }
        self.is_queue.store(!state.queue.is_empty(), Relaxed);
    }

    /// Gives the room that there is to those who have waited longest. Whoever is the first one then looks for itself.
    pub(super) fn give_room(&self, state: &mut State) -> ToWake {
        let first = state.queue.first_number();
        if first.is_some() {
            self.widen();
            self.serve(state);
        }
        if state.queue.first_number() != first {
            state.queue.let_first_look();
        }
        state.queue.take_told()
    }

    /// For whoever has made room, or knows that there is none: gives what there is to those who have waited longest. The first of
    /// those who are left looks for itself in any case, and so do batches and flushers.
    pub(super) fn tell_of_room(&self, mut state: MutexGuard<'_, State>) {
        if !state.queue.is_empty() {
            self.widen();
            self.serve(&mut state);
            state.queue.let_first_look();
        }
        let told = state.queue.take_told();
        drop(state);
        self.room.notify_all();
        told.wake();
    }

    /// Gives back what was promised and not used. Nothing may be latched.
    pub fn take_back(&self, len: u64, how: Promised) {
        if how == Promised::OfReserved {
            // Under the lock, as whenever it grows.
            let _places = self.places.lock();
            self.reserved.fetch_add(len, AcqRel);
        }
        self.ring.take_back(len);
        // Who waits for room may have waited for this.
        if self.is_queue.load(Relaxed) {
            self.tell_of_room(self.state.lock());
        }
    }

    /// Appends a record for which there is a promise; under the latch of the leaf that it is about.
    #[inline]
    pub fn append(&self, record: &Record<'_>) -> Appended {
        let place = self.ring.append(record);
        // The claim and this load are sequentially consistent, as are the store and the load of the
        // thread that goes to sleep: one of the two sees the other.
        if self.idle.load(SeqCst) || self.ring.is_half_full(self.written.load(Relaxed)) {
            self.prod();
        }
        place
    }

    /// Wakes the log's thread: something was appended, or the ring fills up.
    #[cold]
    fn prod(&self) {
        let idle = self.idle.swap(false, SeqCst);
        if idle || !self.pressed.swap(true, SeqCst) {
            // Under the lock, or the thread could be on its way from its last look to its sleep.
            let _state = self.state.lock();
            self.work.notify_all();
        }
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    /// The incarnation.
    pub fn incarnation(&self) -> u64 {
        self.identity.incarnation
    }

    /// The next address: everything that was appended lies below.
    pub fn tail(&self) -> Lsn {
        self.ring.tail()
    }

    /// Everything below is durable.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Acquire))
    }

    /// Bytes that the log holds since the last checkpoint, and that it may hold.
    pub fn fill(&self) -> (u64, u64) {
        (self.tail().0.saturating_sub(self.replay_start.load(Relaxed)), self.limit_bytes)
    }

    /// Bytes of memory.
    #[cfg(hedgerow_internals)]
    pub fn memory_bytes(&self) -> u64 {
        self.ring.blocks() * super::block::BLOCK_BYTES as u64
    }

    /// For whoever decides when a checkpoint is due. A batch may have pinned what is kept that has ended since: before
    /// it fills the log it counts as fresh.
    pub(super) fn growth(&self) -> Growth {
        let (kept_bytes, limit) = self.fill();
        let fresh_bytes = self.tail().0.saturating_sub(self.cut.load(Relaxed));
        let is_filling = kept_bytes > limit / 4 * 3;
        Growth { fresh_bytes: if is_filling { kept_bytes } else { fresh_bytes }, kept_bytes }
    }

    /// Publishes a checkpoint, and then lets go of the log that only earlier ones need: until it is durable a crash goes
    /// back to the one before, whose changes lie in places that would be written again. For the rest see
    /// [`Self::checkpointed`].
    ///
    /// Errors: those of `publish`, after which the log is as it was.
    pub fn publish_checkpoint<E>(
        &self,
        checkpoint: Epoch,
        replay_start: Lsn,
        cut: Lsn,
        publish: impl FnOnce() -> Result<(), E>,
    ) -> Result<(), E> {
        publish()?;
        self.checkpointed(checkpoint, replay_start, cut);
        Ok(())
    }

    /// A checkpoint is durable that holds everything below `cut`. A batch that is not finished may need the log from
    /// `replay_start` on.
    pub fn checkpointed(&self, checkpoint: Epoch, replay_start: Lsn, cut: Lsn) {
        self.checkpoint.store(checkpoint.0, Relaxed);
        self.cut.store(cut.0, Relaxed);
        self.replay_start.store(replay_start.0, Relaxed);
        self.cut_again.store(false, Relaxed);
        // The next change looks whether there is more to be waited for.
        self.pace(0.0);
        if self.threaded {
            self.look_at.store(0, Relaxed);
        }
        let mut places = self.places.lock();
        places.forget_below(self.segment.segment_of(block_of(replay_start)));
        self.cannot_prepare_ahead.store(false, Relaxed);
        drop(places);
        self.widen();
        let mut state = self.state.lock();
        // There may be places to use again.
        state.no_room = None;
        self.tell_of_room(state);
    }

    /// The places, for somebody who is going to write or cut the file, and then calls [`Self::widen`].
    pub(super) fn places_to_write(&self) -> PlacesToWrite<'_> {
        self.writing_places.fetch_add(1, SeqCst);
        PlacesToWrite { places: self.places.lock(), _writes: Writes(&self.writing_places) }
    }

    /// Lets promises go as far as ring, prepared segments and the limit allow.
    pub(super) fn widen(&self) {
        // Held until the limits are set: nobody reserves meanwhile.
        let places = loop {
            match self.places.try_lock() {
                Some(places) => break places,
                // Who writes does this afterwards. The caller may hold the lock of the state, for which others wait that may give up.
                None if self.writing_places.load(SeqCst) > 0 => return,
                // Held for a moment, or somebody is about to say that he writes.
                None => thread::yield_now(),
            }
        };
        let prepared = self.segment.first_block(places.end());
        // Each record that was promised room may be followed by a flush, which skips the rest of a block.
        let prepared = start_of(prepared - self.spare_blocks());
        let bound = Lsn(self.replay_start.load(Relaxed).saturating_add(self.limit_bytes));
        let kept = self.reserved.load(Acquire);
        let unreserved = Lsn(prepared.0.saturating_sub(kept));
        // Flushes skip the more, the longer a batch takes: half of what is kept for that.
        let reserved = Lsn(prepared.0 + start_of(self.spare_blocks() / 2).0);
        self.ring.set_limits(unreserved.min(bound), reserved);
    }

    /// Blocks at the end of what is prepared that are kept for what flushes skip.
    pub(super) fn spare_blocks(&self) -> u64 {
        let blocks = u64::from(self.segment.blocks);
        // Of two segments one can always be begun.
        let part = if blocks < SHORT_BLOCKS { blocks / 2 } else { blocks / 4 * 3 };
        part.min(SPARE_BLOCKS)
    }

    /// Says that the log's thread sleeps until something is appended, if everything is durable; under the lock.
    pub(super) fn becomes_idle(&self) -> bool {
        self.idle.store(true, SeqCst);
        if self.tail() > self.durable() {
            self.idle.store(false, SeqCst);
            return false;
        }
        true
    }

    /// Why nothing is written any more, if that is so.
    pub fn failure(&self) -> Option<Error> {
        self.state.lock().failed.as_ref().map(Error::duplicate)
    }
}

/// How long a writer waits for room in the log.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// And how long before it looks again by itself.
pub(super) const ROOM_WAIT: Duration = Duration::from_millis(100);

/// Of segments with fewer blocks than this, half is kept for what flushes skip.
const SHORT_BLOCKS: u64 = 48;

/// Segments that a log begins with.
pub const PREPARED_SEGMENTS: u32 = 2;

/// Blocks that flushes may skip of what writers were promised: more than there are writers between promise and append who
/// flush at a time. Should there be more on a full disk, a flush finds no segment, and ends the log.
const SPARE_BLOCKS: u64 = 128;

const _: () = assert!(PAYLOAD_BYTES > 4000);

/// See [`Log::places_to_write`].
pub(super) struct PlacesToWrite<'l> {
    // Let go of first.
    places: MutexGuard<'l, Places>,
    _writes: Writes<'l>,
}

impl Deref for PlacesToWrite<'_> {
    type Target = Places;

    fn deref(&self) -> &Places {
        &self.places
    }
}

impl DerefMut for PlacesToWrite<'_> {
    fn deref_mut(&mut self) -> &mut Places {
        &mut self.places
    }
}

struct Writes<'l>(&'l AtomicU32);

impl Drop for Writes<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// What a commit gets whose fate nobody knows.
#[cold]
pub(super) fn unknown(cause: &Error) -> Error {
    Error::new(
        ErrorKind::DurabilityUnknown,
        format!(
            "the log could not be written, so it is unknown whether the change is durable: {cause}"
        ),
    )
}
