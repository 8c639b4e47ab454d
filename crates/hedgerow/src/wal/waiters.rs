//! Who waits until the log is durable up to where.
//!
//! Rank 2. A queue under the log's lock. Each waiter is woken by itself: with one condition for all, every flush
//! would wake everybody in order to serve a few. `Send + Sync` by the lock that it lies under.

use super::tickets::{Callers, Ticket, Told};
use crate::error::{Error, Result};
use crate::types::Lsn;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex};
use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

/// A thread that sleeps until it is woken, once.
#[derive(Default)]
pub(super) struct Sleeper {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Sleeper {
    pub(super) fn new() -> Arc<Sleeper> {
        Arc::default()
    }

    pub(super) fn sleep(&self) {
        let mut woken = self.woken.lock();
        while !*woken {
            self.changed.wait(&mut woken);
        }
    }

    /// Sleeps for `most` at most, `None` for any time. Tells whether it was woken.
    pub(super) fn sleep_for(&self, most: Option<Duration>) -> bool {
        let Some(most) = most else {
            self.sleep();
            return true;
        };
        let mut woken = self.woken.lock();
        if !*woken {
            self.changed.wait_for(&mut woken, most);
        }
        *woken
    }

    fn wake(&self) {
        *self.woken.lock() = true;
        self.changed.notify_one();
    }
}

enum Who {
    Thread(Arc<Sleeper>),
    /// A thread that may give up, and so does not flush.
    Bounded(Arc<Sleeper>),
    Task(Waker),
    Ticket(Arc<Ticket>),
    Function(Told, Arc<Callers>),
}

/// Somebody, and why it is unknown whether the address is durable; `None` if it is.
type Served = (Who, Option<Error>);

/// See the head of the file.
pub(super) struct Waiters {
    queue: VecDeque<(Lsn, Who)>,
    callers: Arc<Callers>,
}

/// Those who are to be woken, with nothing locked.
#[must_use]
pub(super) struct ToWake(Vec<Served>);

impl Waiters {
    pub(super) fn new() -> Waiters {
        Waiters { queue: VecDeque::new(), callers: Arc::default() }
    }

    pub(super) fn add_thread(&mut self, lsn: Lsn, sleeper: &Arc<Sleeper>) {
        self.queue.push_back((lsn, Who::Thread(sleeper.clone())));
    }

    pub(super) fn add_task(&mut self, lsn: Lsn, waker: Waker) {
        self.queue.push_back((lsn, Who::Task(waker)));
    }

    pub(super) fn add_bounded(&mut self, lsn: Lsn, sleeper: &Arc<Sleeper>) {
        self.queue.push_back((lsn, Who::Bounded(sleeper.clone())));
    }

    pub(super) fn add_ticket(&mut self, lsn: Lsn, ticket: &Arc<Ticket>) {
        self.queue.push_back((lsn, Who::Ticket(ticket.clone())));
    }

    /// Errors: `Io` if there is no thread to call it, which is not called then.
    pub(super) fn add_function(&mut self, lsn: Lsn, told: Told) -> Result<()> {
        self.callers.promise()?;
        self.queue.push_back((lsn, Who::Function(told, self.callers.clone())));
        Ok(())
    }

    /// Takes a ticket out whose holder has gone. It may be out already.
    pub(super) fn leave_ticket(&mut self, ticket: &Arc<Ticket>) {
        let is_it = |who: &Who| matches!(who, Who::Ticket(other) if Arc::ptr_eq(other, ticket));
        self.queue.retain(|(_, who)| !is_it(who));
    }

    /// Takes a thread out that gives up. It may be out already.
    pub(super) fn leave(&mut self, sleeper: &Arc<Sleeper>) {
        let is_it = |who: &Who| matches!(who, Who::Bounded(other) if Arc::ptr_eq(other, sleeper));
        self.queue.retain(|(_, who)| !is_it(who));
    }

    /// Whether somebody waits for whom somebody else has to flush: all but threads that may not give up.
    pub(super) fn has_task(&self) -> bool {
        self.queue.iter().any(|(_, who)| !matches!(who, Who::Thread(_)))
    }

    /// Takes out everybody whose address is durable, and of the others the thread that waits longest, so
    /// that somebody goes on.
    pub(super) fn take_served(&mut self, durable: Lsn) -> ToWake {
        let mut served = Vec::new();
        let mut goes_on = false;
        for _ in 0..self.queue.len() {
            let Some((lsn, who)) = self.queue.pop_front() else { break };
            let next = !goes_on && matches!(who, Who::Thread(_));
            if lsn <= durable {
                served.push((who, None));
            } else if next {
                goes_on = true;
                served.push((who, None));
            } else {
                self.queue.push_back((lsn, who));
            }
        }
        ToWake(served)
    }

    /// Takes out everybody, because nothing becomes durable any more, for this reason.
    pub(super) fn take_all(&mut self, durable: Lsn, why: &Error) -> ToWake {
        let of = |(lsn, who)| (who, (lsn > durable).then(|| why.duplicate()));
        ToWake(self.queue.drain(..).map(of).collect())
    }
}

impl ToWake {
    /// Wakes them.
    pub(super) fn wake(self) {
        for (who, unknown) in self.0 {
            let outcome = unknown.map_or(Ok(()), Err);
            match who {
                // They look themselves.
                Who::Thread(sleeper) | Who::Bounded(sleeper) => sleeper.wake(),
                Who::Task(waker) => waker.wake(),
                Who::Ticket(ticket) => ticket.give(outcome),
                Who::Function(told, callers) => callers.call(told, outcome),
            }
        }
    }
}
