//! Waiting until the log is durable up to a position.
//!
//! Rank 2. A thread that may wait for as long as it takes flushes itself if nobody else does. Who may not ([`Waiting`]) leaves
//! the flush to the log's own thread, as tasks do: a flush that the disk holds up cannot be broken off. `Send + Sync`.
//!
//! Invariants: who waits is in the queue before it sleeps, put there under the lock under which it saw that somebody flushes. Who
//! gives up takes itself out; it owes nobody anything, because it is never the thread that is to flush next.

use super::log::{Log, unknown};
use super::waiters::Sleeper;
use crate::error::{Error, ErrorKind, Result};
use crate::types::Lsn;
use crate::wait::Waiting;
use hedgerow_sync::primitive::canary::leaves_out;
use std::task::{Context, Poll};

impl Log {
    /// Waits until everything below `lsn` is durable, and flushes for that if nobody else does.
    ///
    /// Errors: `DurabilityUnknown` when a write or sync has failed, so that nobody knows whether it is.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        self.wait_durable_within(lsn, &Waiting::Forever)
    }

    /// [`Self::wait_durable`], and waits as `waiting` says. Errors: `NotYetDurable`, too.
    pub fn wait_durable_within(&self, lsn: Lsn, waiting: &Waiting<'_>) -> Result<()> {
        debug_assert!(lsn <= self.tail(), "nobody knows an address that is not in the log");
        if leaves_out("durable_at_once") {
            return Ok(());
        }
        // Without a thread of the log somebody has to flush.
        let leaves_flush = waiting.is_bounded() && self.threaded || waiting.is_never();
        loop {
            if self.durable() >= lsn {
                return Ok(());
            }
            let mut state = self.state.lock();
            if self.durable() >= lsn {
                return Ok(());
            }
            if let Some(error) = &state.failed {
                return Err(unknown(error));
            }
            if state.stopped && !leaves_out("commit_after_stop") {
                return Err(unknown(&Error::new(ErrorKind::Closed, "the database was closed")));
            }
            if leaves_flush {
                let most = waiting.nap().map_err(|end| not_yet(&end))?;
                let sleeper = Sleeper::new();
                state.waiters.add_bounded(lsn, &sleeper);
                self.work.notify_all();
                drop(state);
                if !sleeper.sleep_for(most) {
                    self.state.lock().waiters.leave(&sleeper);
                }
                continue;
            }
            if state.flushing {
                let sleeper = Sleeper::new();
                if leaves_out("queue_after_look") {
                    drop(state);
                    state = self.state.lock();
                }
                state.waiters.add_thread(lsn, &sleeper);
                drop(state);
                sleeper.sleep();
                continue;
            }
            state.flushing = true;
            drop(state);
            // The outcome is in the state, for everybody.
            self.flush_and_hand_over(true);
        }
    }

    /// [`Self::wait_durable`] for tasks: ready when it is. Who flushes is the log's thread.
    pub fn poll_durable(&self, lsn: Lsn, context: &mut Context<'_>) -> Poll<Result<()>> {
        if self.durable() >= lsn {
            return Poll::Ready(Ok(()));
        }
        let mut state = self.state.lock();
        if self.durable() >= lsn {
            return Poll::Ready(Ok(()));
        }
        if let Some(error) = &state.failed {
            return Poll::Ready(Err(unknown(error)));
        }
        if state.stopped {
            let closed = Error::new(ErrorKind::Closed, "the database was closed");
            return Poll::Ready(Err(unknown(&closed)));
        }
        state.waiters.add_task(lsn, context.waker().clone());
        self.work.notify_all();
        Poll::Pending
    }

    /// Makes everything that was appended before durable; see [`Log::wait_durable`].
    ///
    /// Errors: as there.
    pub fn flush(&self) -> Result<Lsn> {
        self.flush_within(&Waiting::Forever)
    }

    /// [`Self::flush`], and waits as `waiting` says. Errors: `NotYetDurable`, too.
    pub fn flush_within(&self, waiting: &Waiting<'_>) -> Result<Lsn> {
        let tail = self.tail();
        self.wait_durable_within(tail, waiting)?;
        Ok(tail)
    }
}

#[cold]
fn not_yet(end: &Error) -> Error {
    let what = format!("what was changed is in effect, and not durable yet: {end}");
    Error::new(ErrorKind::NotYetDurable, what)
}
