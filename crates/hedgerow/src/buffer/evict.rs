//! Finding frames: the free list, the page's own frame, and the clock with second chance.
//!
//! A background thread keeps some frames free ahead of demand: it turns the clock, evicts clean pages
//! that were not used since the hand last passed, and writes dirty ones back in sorted batches
//! (`write_back.rs`) before it evicts them too. It is started when it is first asked for: a store that fits into
//! its pool has none, and opens without. A foreground thread takes what is free, or evicts a
//! clean page itself; it never writes, and waits (bounded) only when there is nothing clean.
//!
//! Invariants: eviction only try-latches; a pinned page is passed over; a frame is handed out latched
//! exclusively, without a page, and not retired. `Send + Sync`.

use crate::buffer::evictor::Shared;
use crate::buffer::free_list::Popped;
use crate::buffer::pool::BufferPool;
use crate::error::{Error, ErrorKind, RAISE_LIMIT, Result};
use crate::events::{Stall, WaitsFor};
use crate::page::FrameId;
use crate::types::PageId;
use crate::wait::Waiting;
use hedgerow_sync::latch::ExclusiveGuard;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use hedgerow_sync::primitive::buggify::{Point, buggify};
use hedgerow_sync::primitive::time::Moment;
use hedgerow_sync::primitive::{Arc, MutexGuard, thread};
use std::time::Duration;

/// Waits of [`WAIT`] each before an operation gives up on getting a frame: ten seconds, if nobody wakes it.
pub const FRAME_WAITS: usize = 1000;
const WAIT: Duration = Duration::from_millis(10);
/// Who is woken in vain has waited for less, and goes on until it is as long.
const FRAME_PATIENCE: Duration = Duration::from_secs(10);
/// The same if the background thread cannot write: for frames that others have in use.
const FAILED_WAITS: usize = 100;
const FAILED_PATIENCE: Duration = Duration::from_secs(1);
/// Frames that a foreground thread looks at before it waits for the background.
const FOREGROUND_SWEEP: u32 = 256;

/// How often to wait, counted from 0, before an operation gives up.
struct Rounds {
    next: usize,
    since: Moment,
    least: usize,
    patience: Duration,
}

impl Rounds {
    /// While the background thread makes room.
    fn begin() -> Rounds {
        let since = Moment::now();
        Rounds { next: 0, since, least: FRAME_WAITS, patience: FRAME_PATIENCE }
    }

    /// From when it has failed.
    fn of_a_failure() -> Rounds {
        Rounds { least: FAILED_WAITS, patience: FAILED_PATIENCE, ..Rounds::begin() }
    }
}

impl Iterator for Rounds {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let round = self.next;
        self.next += 1;
        // A model's clock hardly moves.
        let is_long = || cfg!(any(loom, shuttle)) || self.since.elapsed() >= self.patience;
        (round < self.least || !is_long()).then_some(round)
    }
}

impl BufferPool {
    /// Frames that are kept free.
    fn free_target(&self) -> usize {
        (self.frames() as usize / 64).clamp(8, 1024)
    }

    /// Whether so many frames are not to be had but by eviction.
    pub(super) fn are_frames_short_for(&self, frames: usize) -> bool {
        // As many as eviction keeps free are free in a full pool, too.
        self.free.count() < 2 * self.free_target() + frames
    }

    /// Dirty pages from which on writers wait: the other frames are for reads, which would else fail
    /// when dirty pages cannot be written (a full disk, an earlier failure) and fill the pool.
    fn dirty_limit(&self) -> usize {
        let frames = self.frames_for_pages() as usize;
        frames - (frames / 16).clamp(frames.min(16), 4096)
    }

    pub(super) fn is_too_dirty(&self) -> bool {
        self.dirty_pages() >= self.dirty_limit()
    }

    /// Waits until there are clean frames enough for a writer to come. The caller holds no latch of a
    /// page.
    ///
    /// Errors: what hinders the background thread (`DiskFull`, `Poisoned`, `MemoryLimit` if it cannot be started); `Timeout` after
    /// ten seconds; those of `waiting`.
    #[inline]
    pub(super) fn wait_until_cleaner(&self, waiting: &Waiting<'_>) -> Result<()> {
        match self.slots.is_none() || !self.is_too_dirty() {
            true => Ok(()),
            false => self.wait_for_cleaning(waiting),
        }
    }

    #[cold]
    fn wait_for_cleaning(&self, waiting: &Waiting<'_>) -> Result<()> {
        let _stall = Stall::begin(WaitsFor::Memory);
        let failures = self.evictor.shared.lock().failures;
        let mut failing = None;
        for round in Rounds::begin() {
            {
                let mut shared = self.evictor.shared.lock();
                if let Some(error) = shared.failed_since(failures) {
                    // A thread that cannot be started may be in a moment.
                    let waits = failing.get_or_insert_with(Rounds::of_a_failure);
                    if shared.running.is_some() || waits.next().is_none() {
                        return Err(error);
                    }
                }
                // Under the lock: what the background does is told under it, too, and would be missed.
                if !self.is_too_dirty() {
                    return Ok(());
                }
                self.wait_for_frames(&mut shared, round, waiting)?;
            }
            self.check_open()?;
        }
        match self.is_too_dirty() {
            true => Err(Error::new(
                ErrorKind::Timeout,
                "changed pages were not written within ten seconds: the disk does not keep up; try again",
            )),
            false => Ok(()),
        }
    }

    /// A frame for page `id`; waits if there is none.
    ///
    /// Errors: what hinders the background thread (`DiskFull`, `Poisoned`), or `MemoryLimit` when it cannot be started, or no
    /// frame became free within ten seconds, or at all in a store without a file; those of `waiting`.
    pub(super) fn obtain_frame(
        &self,
        id: PageId,
        waiting: &Waiting<'_>,
    ) -> Result<(FrameId, ExclusiveGuard<'_>)> {
        if let Some(taken) = self.try_obtain_frame(id) {
            return Ok(taken);
        }
        if self.slots.is_none() {
            while self.give_old_values_up() {
                if let Some(taken) = self.try_obtain_frame(id) {
                    return Ok(taken);
                }
            }
            return Err(Error::new(
                ErrorKind::MemoryLimit,
                format!(
                    "a store in memory holds at most its memory limit of {} bytes; {RAISE_LIMIT}",
                    self.budget().limit_bytes()
                ),
            ));
        }
        let _stall = Stall::begin(WaitsFor::Memory);
        let failures = self.evictor.shared.lock().failures;
        let mut failing = None;
        for round in Rounds::begin() {
            {
                let mut shared = self.evictor.shared.lock();
                if let Some(error) = shared.failed_since(failures) {
                    let runs = shared.running.is_some();
                    drop(shared);
                    // It cannot write, but it has evicted what is clean. If there is none, that is done here.
                    if !runs {
                        self.evict_clean(1);
                    }
                    if let Some(taken) = self.try_obtain_frame(id) {
                        return Ok(taken);
                    }
                    if failing.get_or_insert_with(Rounds::of_a_failure).next().is_none() {
                        return Err(error);
                    }
                    // What others are reading just now will be clean, too, and what failed may go well.
                    self.wait_for_frames(&mut self.evictor.shared.lock(), round, waiting)?;
                    continue;
                }
                // A frame may count as free and still be on its way to the list, or be latched by a
                // reader who came late; the first round tries at once, the others wait in any case.
                if round > 0 || self.free.count() == 0 {
                    self.wait_for_frames(&mut shared, round, waiting)?;
                }
            }
            if let Some(taken) = self.try_obtain_frame(id) {
                return Ok(taken);
            }
            self.check_open()?;
        }
        Err(Error::new(
            ErrorKind::MemoryLimit,
            format!(
                "no frame became free within ten seconds: the memory limit is too small for the number \
                 of threads, or the disk does not keep up; {RAISE_LIMIT}"
            ),
        ))
    }

    /// A frame for page `id` if one can be had without waiting.
    pub(super) fn try_obtain_frame(&self, id: PageId) -> Option<(FrameId, ExclusiveGuard<'_>)> {
        self.try_obtain_frame_near(self.preferred(id))
    }

    /// That frame, or another one, if one can be had without waiting.
    pub(super) fn try_obtain_frame_near(
        &self,
        preferred: FrameId,
    ) -> Option<(FrameId, ExclusiveGuard<'_>)> {
        let taken = self.take_if_idle(preferred).or_else(|| self.pop_free(self.frames()));
        self.obtained(taken)
    }

    /// A frame that has lost its content, so that its memory was touched before; else that frame or another one, if one can be
    /// had without waiting.
    pub(super) fn try_obtain_used_frame(
        &self,
        preferred: FrameId,
    ) -> Option<(FrameId, ExclusiveGuard<'_>)> {
        match self.pop_free(0) {
            None => self.try_obtain_frame_near(preferred),
            used => self.obtained(used),
        }
    }

    /// What is due when a frame is taken, or a clean one if there is none.
    fn obtained<'p>(
        &'p self,
        taken: Option<(FrameId, ExclusiveGuard<'p>)>,
    ) -> Option<(FrameId, ExclusiveGuard<'p>)> {
        let taken = taken.or_else(|| self.evict_some_clean())?;
        self.used.mark(taken.0);
        let is_short = || self.free.count() < self.free_target() || buggify(Point::Evict);
        if self.slots.is_some() && is_short() {
            self.request_frames();
        }
        Some(taken)
    }

    /// Latches a frame that is free, or that holds a clean page which nobody used lately.
    fn take_if_idle(&self, frame: FrameId) -> Option<(FrameId, ExclusiveGuard<'_>)> {
        let (header, side) = (self.header(frame), self.side(frame));
        let may_go = || {
            // The frames of a store in memory that are kept for the page table are beyond the top from the beginning.
            frame.0 < self.frames()
                && !header.is_retired()
                && !header.is_lent()
                && (header.is_free()
                    || (self.slots.is_some()
                        && !header.is_dirty()
                        && !header.is_used()
                        && !side.is_pinned()))
        };
        if !may_go() {
            return None;
        }
        let guard = header.latch.try_exclusive()?;
        if !may_go() {
            guard.release_unchanged();
            return None;
        }
        if header.is_free() {
            self.free.count_down();
        } else {
            self.evict_latched(frame);
        }
        Some((frame, guard))
    }

    /// A frame that is listed as free; or else one below `end` that was never used.
    fn pop_free(&self, end: u32) -> Option<(FrameId, ExclusiveGuard<'_>)> {
        // An entry may be out of date. A frame without a page may be latched: by an operation that is
        // filling it, or for a moment by a reader who came late. Those are put back at the end, for to
        // put them back at once is to pop them at once.
        let mut latched = Vec::new();
        let taken = loop {
            let frame = match self.free.pop(end) {
                Some(Popped::Listed(frame)) => {
                    self.side(frame).unlist();
                    frame
                }
                Some(Popped::Fresh(frame)) => frame,
                None => break None,
            };
            let header = self.header(frame);
            if !header.is_free() {
                continue;
            }
            match header.latch.try_exclusive() {
                Some(guard) if header.is_free() => {
                    self.free.count_down();
                    break Some((frame, guard));
                }
                Some(guard) => guard.release_unchanged(),
                None => latched.push(frame),
            }
        };
        for frame in latched {
            if self.header(frame).is_free() && self.side(frame).enlist() {
                self.free.push(frame);
            }
        }
        taken
    }

    fn next_frame(&self) -> FrameId {
        let hand = self.clock_hand.fetch_add(1, Relaxed);
        FrameId(hand % self.frames())
    }

    /// Turns the clock a little and takes the first clean page that may go.
    fn evict_some_clean(&self) -> Option<(FrameId, ExclusiveGuard<'_>)> {
        self.slots.as_ref()?;
        for _ in 0..FOREGROUND_SWEEP.min(2 * self.frames()) {
            let frame = self.next_frame();
            if self.header(frame).take_use() {
                continue;
            }
            if let Some(taken) = self.take_if_idle(frame) {
                return Some(taken);
            }
        }
        None
    }

    /// Starts the background thread if it does not run. False: it cannot be started, which counts as an attempt to make room
    /// that failed, and whoever waits next tries again. The error is one of want of memory, which passes, and of which whoever made
    /// a part of a batch tries again: nothing is wrong with the disk.
    fn background_runs(&self, shared: &mut Shared) -> bool {
        if shared.running.is_some() || shared.shutdown {
            return true;
        }
        // Whoever asks before `start`, or behind the end, asks nobody.
        let Some(pool) = self.started() else { return true };
        match thread::spawn_named("hedgerow-evict", move || pool.evict_until_shutdown()) {
            Ok(running) => {
                shared.running = Some(running);
                shared.last_error = None;
            }
            Err(error) => {
                let words = format!("cannot start the eviction thread: {error}");
                shared.failed(Error::new(ErrorKind::MemoryLimit, words));
            }
        }
        shared.running.is_some()
    }

    /// Asks the background thread for free frames.
    pub(super) fn request_frames(&self) {
        if !self.evictor.wanted.swap(true, AcqRel) {
            let mut shared = self.evictor.shared.lock();
            // Else it looks again in a moment, and nobody waits for it.
            if self.background_runs(&mut shared) && !shared.dozes {
                self.evictor.wake.notify_one();
            }
        }
    }

    /// Asks the background thread for frames, and waits until it has done what it can, or [`WAIT`]. For the
    /// `round`-th time, from 0. Who may not wait has asked.
    ///
    /// Errors: those of `waiting`.
    fn wait_for_frames(
        &self,
        shared: &mut MutexGuard<'_, Shared>,
        round: usize,
        waiting: &Waiting<'_>,
    ) -> Result<()> {
        // It sees who waits before it goes to sleep, so that nobody waits for what nobody does.
        shared.waiting += 1;
        // What it could not do a moment ago for those who wait, it cannot do now either.
        let is_asked = self.evictor.wanted.swap(true, AcqRel);
        let wakes = if shared.dozes { round == 0 } else { !is_asked };
        // If it cannot be started, whoever waits finds out in a moment.
        if self.background_runs(shared) && wakes {
            self.evictor.wake.notify_one();
        }
        let most = waiting.nap_of(WAIT);
        if let Ok(most) = most {
            self.evictor.freed.wait_for(shared, most);
        }
        shared.waiting -= 1;
        most.map(drop)
    }

    /// Allows the background threads to be started: the one that makes room, and those that read ahead. Each is when it is
    /// first wanted.
    pub fn start(self: &Arc<Self>) {
        if self.slots.is_some() {
            // Whoever asked before has asked nobody.
            self.evictor.wanted.store(false, Release);
            self.set_started(self);
        }
    }

    /// Ends the background threads and waits for them. Idempotent.
    pub fn stop(&self) {
        // The other one last: whoever reads ahead may need the frames that it frees.
        self.ahead.stop();
        let running = {
            let mut shared = self.evictor.shared.lock();
            shared.shutdown = true;
            self.evictor.wake.notify_all();
            shared.running.take()
        };
        self.wait_for_parts();
        if let Some(running) = running {
            let ended = running.join();
            assert!(ended.is_ok(), "the eviction thread does not panic");
        }
        if let Some(slots) = &self.slots {
            slots.staging().end_thread();
        }
    }

    fn evict_until_shutdown(&self) {
        loop {
            {
                let mut shared = self.evictor.shared.lock();
                while !shared.shutdown && !self.evictor.wanted.load(Acquire) {
                    self.evictor.wake.wait(&mut shared);
                }
                if shared.shutdown {
                    return;
                }
            }
            let result = self.evict_ahead();
            self.end_turn(&mut self.evictor.shared.lock(), result);
        }
    }

    /// What the background thread does behind a turn: it tells those who wait, and notes whether there is to be another
    /// one.
    fn end_turn(&self, shared: &mut MutexGuard<'_, Shared>, result: Result<bool>) {
        let rests = match result {
            Ok(progress) => {
                shared.last_error = None;
                !progress
            }
            Err(error) => {
                shared.failed(error);
                true
            }
        };
        let mut is_asked = false;
        // Frames that are all in use, or free and not yet seen by those who wait for them, or a disk that fails: give
        // them a moment, and the processor, before the next turn. Those who begin to wait need not wait for that.
        if rests && !shared.shutdown {
            self.evictor.wanted.store(false, Release);
            shared.dozes = true;
            self.evictor.freed.notify_all();
            self.evictor.wake.wait_for(shared, Duration::from_millis(1));
            shared.dozes = false;
            is_asked = self.evictor.wanted.load(Acquire);
        }
        let is_awaited = shared.waiting > 0;
        let is_wanted = is_asked || is_awaited && shared.last_error.is_none();
        self.evictor.wanted.store(is_wanted, Release);
        self.evictor.freed.notify_all();
    }

    /// Frees frames until there are twice as many as the target, and writes until not too many pages
    /// are dirty. False if there was nothing to do, or a whole turn of the clock did nothing.
    ///
    /// After an error clean pages have been evicted all the same, so that reads go on.
    fn evict_ahead(&self) -> Result<bool> {
        let goal = match buggify(Point::Evict) {
            true => self.frames() as usize / 2,
            false => 2 * self.free_target(),
        };
        let batch = self.budget().batch_pages();
        let mut progress = false;
        loop {
            let too_dirty = self.is_too_dirty();
            if self.free.count() >= goal && !too_dirty {
                return Ok(progress);
            }
            let before = self.free.count();
            let mut dirty = Vec::with_capacity(batch);
            self.turn_clock(goal, |frame| {
                let (header, side) = (self.header(frame), self.side(frame));
                let is_dirty = header.is_dirty();
                let is_used = side.is_pinned() || header.take_use();
                if !is_used {
                    self.cool(frame);
                }
                // A page in use can be written; it is only not evicted.
                let spared = is_used && !(too_dirty && is_dirty);
                if is_dirty && !spared && !header.latch.is_exclusive() {
                    dirty.push(frame);
                }
                dirty.len() < batch && (too_dirty || self.free.count() < goal)
            });
            let found = dirty.len();
            self.offer_pages(&dirty);
            if found > 0
                && let Err(error) = self.write_back_cold(dirty)
            {
                self.evict_clean(goal);
                return Err(error);
            }
            if self.free.count() <= before && found == 0 {
                return Ok(progress);
            }
            progress = true;
        }
    }

    /// Takes a third of the hot mark of a leaf that nobody has used since the clock passed.
    pub(super) fn cool(&self, frame: FrameId) {
        let contention = &self.side(frame).contention;
        if contention.get().is_hot()
            && let Some(guard) = self.header(frame).latch.try_exclusive()
        {
            contention.set(contention.get().cooled());
            guard.release_unchanged();
        }
    }

    /// Evicts clean pages, used or not, until so many frames are free.
    fn evict_clean(&self, goal: usize) {
        self.turn_clock(goal, |frame| {
            self.header(frame).take_use();
            self.free.count() < goal
        });
    }

    /// Two turns of the clock: the first takes second chances away. Evicts clean pages as long as less
    /// than `goal` frames are free, and calls `each` for the frames that have a page.
    fn turn_clock(&self, goal: usize, mut each: impl FnMut(FrameId) -> bool) {
        for _ in 0..2 * self.frames() {
            let frame = self.next_frame();
            if self.header(frame).is_free() {
                // Not taken, not listed: a reader who came late had it latched when it was popped.
                if self.side(frame).enlist() {
                    self.free.push(frame);
                }
            } else if self.free.count() < goal
                && let Some((frame, guard)) = self.take_if_idle(frame)
            {
                self.release_frame(frame, guard);
            } else if !each(frame) {
                return;
            }
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::buffer::tests::pool;
    use hedgerow_sync::primitive::atomic::AtomicBool;

    /// The background looks whether anybody waits before it goes to sleep. Who had asked before he took the lock, and
    /// began to wait after that look, waited for what nobody did.
    #[test]
    fn whoever_waits_for_frames_has_asked_since_the_background_has_looked() {
        let pool = pool(0);
        let dirty = pool.dirty_limit();
        pool.dirty.fetch_add(dirty, Relaxed);
        let turn = pool.evictor.shared.lock();
        let ended = Arc::new(AtomicBool::new(false));
        let waiting = {
            let (pool, ended) = (pool.clone(), ended.clone());
            let wait = move || {
                let waited = pool.wait_until_cleaner(&Waiting::Forever);
                ended.store(true, Release);
                waited
            };
            thread::spawn_named("waits", wait).unwrap()
        };
        // Time to ask for whoever asks while the background has its turn, at whose end nobody waits yet.
        thread::sleep(Duration::from_millis(30));
        pool.evictor.wanted.store(false, Release);
        drop(turn);
        let (mut seen, mut missed) = (0, 0);
        while seen < 100 && !ended.load(Acquire) {
            let shared = pool.evictor.shared.lock();
            let is_awaited = shared.waiting > 0;
            if is_awaited {
                seen += 1;
                missed += u32::from(!pool.evictor.wanted.load(Acquire));
                pool.evictor.freed.notify_all();
            }
            // As at the end of each turn of the background.
            pool.evictor.wanted.store(is_awaited, Release);
            drop(shared);
            thread::yield_now();
        }
        pool.dirty.fetch_sub(dirty, Relaxed);
        // It may have run out of patience: what counts is whether it was missed.
        waiting.join().unwrap().ok();
        println!("seen waiting {seen} times");
        assert_eq!(missed, 0);
    }

    /// Who had asked before the turn began, and waits since, has not asked again: it is the background that looks.
    #[test]
    fn whoever_waits_at_the_end_of_a_turn_gets_another_one() {
        let pool = pool(0);
        let failure = || Error::new(ErrorKind::DiskFull, "a disk that is full");
        let is_wanted_after = |waiting: usize, result: Result<bool>| {
            let mut shared = pool.evictor.shared.lock();
            shared.waiting = waiting;
            pool.evictor.wanted.store(true, Release);
            pool.end_turn(&mut shared, result);
            shared.waiting = 0;
            assert!(!shared.dozes);
            pool.evictor.wanted.load(Acquire)
        };
        assert!(is_wanted_after(1, Ok(true)));
        assert!(is_wanted_after(3, Ok(false)), "what was in use a moment ago may be free");
        assert!(!is_wanted_after(0, Ok(true)));
        assert!(!is_wanted_after(0, Ok(false)));
        assert!(!is_wanted_after(1, Err(failure())), "they are told, and ask again if they like");
        assert!(is_wanted_after(1, Ok(true)), "a failure is over with the next success");
    }

    #[test]
    fn rounds_that_were_cut_short_use_up_no_patience() {
        let patience = Duration::from_secs(1 << 20);
        let mut rounds = Rounds { least: 3, patience, ..Rounds::begin() };
        for round in 0..1000 {
            assert_eq!(rounds.next(), Some(round));
        }
        let rounds = Rounds { least: 3, patience: Duration::ZERO, ..Rounds::begin() };
        assert_eq!(rounds.collect::<Vec<_>>(), [0, 1, 2], "whoever has no patience looks as often");
    }
}
