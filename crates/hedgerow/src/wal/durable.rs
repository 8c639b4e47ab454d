//! Waiting until the log is durable up to a position.
//!
//! Rank 2. A thread that may wait for as long as it takes flushes itself if nobody else does. Who may not ([`Waiting`]) leaves
//! the flush to the log's own thread, as tasks do: a flush that the disk holds up cannot be broken off. `Send + Sync`.
//!
//! Invariants: who waits is in the queue before it sleeps, put there under the lock under which it saw that somebody flushes. Who
//! gives up takes itself out; it owes nobody anything, because it is never the thread that is to flush next.

use super::log::{Log, State, unknown};
use super::tickets::{Ticket, Told};
use super::waiters::Sleeper;
use crate::error::{Error, ErrorKind, Result};
use crate::types::Lsn;
use crate::wait::Waiting;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
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
            if state.stopped {
                return Err(closed());
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
                state.waiters.add_thread(lsn, &sleeper);
                drop(state);
                sleeper.sleep();
                continue;
            }
            state.flushing = true;
            drop(state);
            self.awaited.fetch_add(1, Relaxed);
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
        if let Some(outcome) = state.outcome() {
            return Poll::Ready(outcome);
        }
        state.waiters.add_task(lsn, context.waker().clone());
        self.work.notify_all();
        Poll::Pending
    }

    /// [`Self::wait_durable`] for who does not sleep: the ticket gets the outcome. The log's thread flushes at once; if there is none, this
    /// call flushes.
    pub fn ticket(&self, lsn: Lsn) -> Arc<Ticket> {
        if self.durable() >= lsn || !self.threaded {
            return Ticket::known(self.wait_durable(lsn));
        }
        let mut state = self.state.lock();
        if self.durable() >= lsn {
            return Ticket::known(Ok(()));
        }
        if let Some(outcome) = state.outcome() {
            return Ticket::known(outcome);
        }
        let ticket = Ticket::pending();
        state.waiters.add_ticket(lsn, &ticket);
        self.work.notify_all();
        ticket
    }

    /// Nobody looks at the ticket any more.
    pub fn give_up(&self, ticket: &Arc<Ticket>) {
        self.state.lock().waiters.leave_ticket(ticket);
    }

    /// [`Self::ticket`] for a function, which is called once with the outcome: by this call if it is known now, else by a thread that
    /// does nothing else.
    ///
    /// Errors: `Io` if there is no thread to call it. It is not called then.
    pub fn tell_when_durable(&self, lsn: Lsn, told: Told) -> Result<()> {
        if self.durable() >= lsn || !self.threaded {
            told(self.wait_durable(lsn));
            return Ok(());
        }
        let mut state = self.state.lock();
        let outcome = match self.durable() >= lsn {
            true => Some(Ok(())),
            false => state.outcome(),
        };
        if let Some(outcome) = outcome {
            drop(state);
            told(outcome);
            return Ok(());
        }
        state.waiters.add_function(lsn, told)?;
        self.work.notify_all();
        Ok(())
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

impl State {
    /// What is told of whatever is not durable by now, if nothing becomes so any more.
    fn outcome(&self) -> Option<Result<()>> {
        match &self.failed {
            Some(error) => Some(Err(unknown(error))),
            None => self.stopped.then(|| Err(closed())),
        }
    }
}

#[cold]
pub(super) fn closed() -> Error {
    unknown(&Error::new(ErrorKind::Closed, "the database was closed"))
}

#[cold]
fn not_yet(end: &Error) -> Error {
    let what = format!("what was changed is in effect, and not durable yet: {end}");
    Error::new(ErrorKind::NotYetDurable, what)
}
