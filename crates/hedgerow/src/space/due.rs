//! What the checkpoint thread has to do, and how it is told.
//!
//! The thread sleeps until somebody wants a checkpoint or the first page becomes dirty. Then it looks again after a while,
//! until nothing has changed for that long and the store is settled. So a store that nobody changes wakes nobody.
//!
//! Invariant: a request or a note that is made while the thread does something else is found by its next wait. `Sync`; the
//! lock comes last in the latch order, and is held for a few instructions.

use super::slot_store::SlotStore;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Release};
use hedgerow_sync::primitive::{Condvar, Mutex};
use std::time::Duration;

/// See the head of the file.
#[derive(Default)]
pub(super) struct Due {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    wanted: bool,
    changed: bool,
    closing: bool,
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

impl SlotStore {
    /// Asks for a checkpoint.
    pub fn request_checkpoint(&self) {
        let mut due = self.due.state.lock();
        if !due.wanted {
            due.wanted = true;
            self.due.wake.notify_all();
        }
    }

    /// Asks for a checkpoint, unless one is under way: what it has not got is looked at again when it ends.
    pub fn request_unless_running(&self) {
        if !self.is_running.load(Acquire) {
            self.request_checkpoint();
        }
    }

    /// Says that something was changed in a store that was settled, or that space may be given back.
    pub fn note_change(&self) {
        let mut due = self.due.state.lock();
        if !due.changed {
            due.changed = true;
            self.due.wake.notify_all();
        }
    }

    /// Forgets what [`Self::note_change`] has said. Whoever calls this looks for changes afterwards.
    pub fn forget_changes(&self) {
        self.due.state.lock().changed = false;
    }

    /// Waits until there is work. With `look_after` the wait ends after that time, and notes of changes do not end it.
    pub fn wait_for_work(&self, look_after: Option<Duration>) -> Work {
        let mut due = self.due.state.lock();
        loop {
            if due.closing {
                return Work::Close;
            }
            if std::mem::take(&mut due.wanted) {
                return Work::Checkpoint;
            }
            match look_after {
                None if std::mem::take(&mut due.changed) => return Work::Changed,
                None => self.due.wake.wait(&mut due),
                Some(time) => {
                    // Requests are all that wakes early; what else comes shortens one look.
                    self.due.wake.wait_for(&mut due, time);
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
        self.due.state.lock().closing = true;
        self.due.wake.notify_all();
    }
}
