//! The checkpoints of a store, between those who want them and the thread that takes them.
//!
//! The thread sleeps until somebody wants a checkpoint or the first page becomes dirty. Then it looks again after a while,
//! until nothing has changed for that long and the store is settled. So a store that nobody changes wakes nobody. Writers wait
//! here for a checkpoint to end that makes room: in the deltas of the map, in the file, or in the log.
//!
//! Invariant: a request or a note that is made while the thread does something else is found by its next wait. `Sync`. The lock of
//! requests comes last in the latch order. That of the outcome comes before the lock of the space's state. Both are held for a few
//! instructions.

use crate::error::{Error, ErrorKind, Result};
use crate::events::{Stall, WaitsFor};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Release};
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicUsize};
use hedgerow_sync::primitive::{Condvar, Mutex, thread};
use std::cell::Cell;
use std::time::Duration;

/// How long a writer waits for room for deltas before it gives up, and how long before it looks again. Waits that were cut short
/// count as whole.
const LONGEST_DELTA_WAIT: Duration = Duration::from_secs(60);
const DELTA_WAIT: Duration = Duration::from_millis(100);

/// How long a writer waits for a checkpoint to end before it takes an older one's failure for the answer: nobody
/// may be there to take one.
const OLD_FAILURE_WAIT: Duration = Duration::from_secs(2);

/// How long a writer waits for whoever keeps checkpoints out.
const HINDERED_WAIT: Duration = Duration::from_secs(2);

/// See the head of the file.
#[derive(Default)]
pub struct Checkpoints {
    due: Mutex<Due>,
    wake: Condvar,
    /// There is no room for more changes of the map before a checkpoint.
    is_delta_full: AtomicBool,
    /// One more than the number of the thread that keeps checkpoints out, so that it may not wait for one; zero if none does.
    hindering: AtomicUsize,
    /// How the last one ended, for those who wait for room that it was to make.
    outcome: Mutex<Outcome>,
    ended: Condvar,
    /// One is under way, from its cut to its end.
    is_running: AtomicBool,
    /// There is a thread that takes them.
    is_attended: AtomicBool,
}

#[derive(Default)]
struct Due {
    wanted: bool,
    changed: bool,
    closing: bool,
}

/// How the last checkpoint ended.
#[derive(Default)]
struct Outcome {
    /// How many have ended.
    count: u64,
    failure: Option<Error>,
}

/// What ended a wait of the checkpoint thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// A checkpoint is wanted.
    Checkpoint,
    /// Something was changed since the thread was last told that.
    Changed,
    /// Nothing was wanted for as long as was asked.
    Look,
    /// The store closes.
    Close,
}

fn own_number() -> usize {
    thread::id() + 1
}

impl Checkpoints {
    /// Asks for a checkpoint.
    pub fn request(&self) {
        let mut due = self.due.lock();
        if !due.wanted {
            due.wanted = true;
            self.wake.notify_all();
        }
    }

    /// Asks for a checkpoint, unless one is under way: what it has not got is looked at again when it ends.
    pub fn request_unless_running(&self) {
        if !self.is_running.load(Acquire) {
            self.request();
        }
    }

    /// Says that something was changed in a store that was settled, or that space may be given back.
    pub fn note_change(&self) {
        let mut due = self.due.lock();
        if !due.changed {
            due.changed = true;
            self.wake.notify_all();
        }
    }

    /// Forgets what [`Self::note_change`] has said. Whoever calls this looks for changes afterwards.
    pub fn forget_changes(&self) {
        self.due.lock().changed = false;
    }

    /// Waits until there is work. With `look_after` the wait ends after that time, and notes of changes do not end it.
    pub fn wait_for_work(&self, look_after: Option<Duration>) -> Work {
        let mut due = self.due.lock();
        loop {
            if due.closing {
                return Work::Close;
            }
            if std::mem::take(&mut due.wanted) {
                return Work::Checkpoint;
            }
            match look_after {
                None if std::mem::take(&mut due.changed) => return Work::Changed,
                None => self.wake.wait(&mut due),
                Some(time) => {
                    // Requests are all that wakes early; what else comes shortens one look.
                    self.wake.wait_for(&mut due, time);
                    if !due.wanted && !due.closing {
                        return Work::Look;
                    }
                }
            }
        }
    }

    /// Waits until a checkpoint is wanted; false when the store closes.
    #[cfg(hedgerow_internals)]
    pub fn wait_until_wanted(&self) -> bool {
        loop {
            match self.wait_for_work(None) {
                Work::Checkpoint => return true,
                Work::Close => return false,
                Work::Changed | Work::Look => {}
            }
        }
    }

    /// Ends [`Self::wait_for_work`].
    pub fn close(&self) {
        self.is_attended.store(false, Release);
        self.due.lock().closing = true;
        self.wake.notify_all();
    }

    /// Whether the store closes, and waits for who takes checkpoints.
    pub fn is_closing(&self) -> bool {
        self.due.lock().closing
    }

    /// Whether a checkpoint is wanted that has not begun.
    pub fn is_wanted(&self) -> bool {
        self.due.lock().wanted
    }

    /// Whether there is no room for more changes of the map before a checkpoint.
    pub fn is_delta_full(&self) -> bool {
        self.is_delta_full.load(Acquire)
    }

    /// Waits until there is room for changes of the map. The caller holds nothing. A failure of the past
    /// may have been put right (a full disk), so that only a checkpoint that ends from now on counts.
    ///
    /// Errors: why the checkpoint that was to make room failed; `Timeout` after a minute; those of `waiting`.
    #[inline]
    pub fn wait_for_delta_room(&self, waiting: &Waiting<'_>) -> Result<()> {
        if self.is_delta_full.load(Acquire) { self.wait_until_ended(waiting) } else { Ok(()) }
    }

    #[cold]
    fn wait_until_ended(&self, waiting: &Waiting<'_>) -> Result<()> {
        let _stall = Stall::begin(WaitsFor::Checkpoint);
        let before = self.outcome.lock().count;
        let mut waited = Duration::ZERO;
        while waited < LONGEST_DELTA_WAIT {
            self.request_unless_running();
            let mut outcome = self.outcome.lock();
            if let Some(error) = &outcome.failure
                && (outcome.count != before || waited >= OLD_FAILURE_WAIT)
            {
                return Err(error.duplicate());
            }
            // Whoever it is may need what others have who wait here, and there is some room beyond.
            if !self.is_delta_full.load(Acquire) || self.hindering.load(Acquire) > 0 {
                return Ok(());
            }
            let most = waiting.nap_of(DELTA_WAIT)?;
            self.ended.wait_for(&mut outcome, most);
            waited += most;
        }
        Err(Error::new(
            ErrorKind::Timeout,
            "no checkpoint made room for changes within a minute: the disk is very slow, or checkpoints fail",
        ))
    }

    /// For whoever waits for a checkpoint to make room, and asks again and again: the first time notes how many have ended. If the last one
    /// has failed, asks for another one, since the cause may be gone.
    ///
    /// Errors: why one has failed that has ended since the first time.
    pub fn check(&self, since: &Cell<Option<u64>>) -> Result<()> {
        let outcome = self.outcome.lock();
        let before = since.get().unwrap_or(outcome.count);
        since.set(Some(before));
        let Some(error) = &outcome.failure else { return Ok(()) };
        if outcome.count != before {
            return Err(error.duplicate());
        }
        drop(outcome);
        self.request_unless_running();
        Ok(())
    }

    /// Waits for a checkpoint to end that may give slots or segments of the log back. False: none will.
    ///
    /// Errors: why it failed; those of `waiting`.
    pub fn wait_for_next(&self, waiting: &Waiting<'_>) -> Result<bool> {
        self.wait_for_next_within(LONGEST_DELTA_WAIT, waiting)
    }

    /// The same, and waits for so long at most.
    pub fn wait_for_next_within(&self, longest: Duration, waiting: &Waiting<'_>) -> Result<bool> {
        let before = self.outcome.lock().count;
        let (mut waited, mut hindered) = (Duration::ZERO, Duration::ZERO);
        while waited < longest {
            let hindering = self.hindering.load(Acquire);
            // Whoever it is may need what others have who wait here: so they do not wait for long.
            let is_hindered = hindering == own_number() || hindered >= HINDERED_WAIT;
            if is_hindered || !self.is_attended.load(Acquire) {
                return Ok(false);
            }
            self.request();
            let mut outcome = self.outcome.lock();
            if outcome.count != before {
                return outcome.failure.as_ref().map_or(Ok(true), |error| Err(error.duplicate()));
            }
            let most = waiting.nap_of(DELTA_WAIT)?;
            self.ended.wait_for(&mut outcome, most);
            waited += most;
            hindered = if hindering > 0 { hindered + most } else { Duration::ZERO };
        }
        Ok(false)
    }

    /// Says whether there is room for more changes of the map before a checkpoint. Under the lock that changes are recorded under.
    pub(super) fn set_delta_full(&self, is_full: bool) {
        self.is_delta_full.store(is_full, Release);
    }

    /// Tells how a checkpoint ended to those who wait for it. `settle` is called before, while no other one ends.
    pub(super) fn ended(&self, outcome: Result<(), &Error>, settle: impl FnOnce()) {
        let mut last = self.outcome.lock();
        last.count += 1;
        last.failure = outcome.err().map(Error::duplicate);
        settle();
        drop(last);
        self.ended.notify_all();
    }

    /// From now on somebody takes the checkpoints that are asked for.
    pub fn attend(&self) {
        self.is_attended.store(true, Release);
    }

    /// The calling thread keeps checkpoints from beginning, and waits for none, until the value is dropped. One thread at a time.
    pub fn hinder(&self) -> Hindered<'_> {
        let before = self.hindering.swap(own_number(), AcqRel);
        debug_assert_eq!(before, 0, "one thread at a time");
        Hindered(self)
    }

    /// A checkpoint is under way until the value is dropped.
    pub fn begin(&self) -> Running<'_> {
        self.is_running.store(true, Release);
        Running(self)
    }
}

/// See [`Checkpoints::begin`].
#[must_use]
pub struct Running<'s>(&'s Checkpoints);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Release);
    }
}

/// See [`Checkpoints::hinder`].
#[must_use]
pub struct Hindered<'s>(&'s Checkpoints);

impl Drop for Hindered<'_> {
    fn drop(&mut self) {
        self.0.hindering.store(0, Release);
    }
}
