//! Who waits until the log is durable up to where.
//!
//! Rank 2. A queue under the log's lock. Each waiter is woken by itself: with one condition for all, every flush
//! would wake everybody in order to serve a few. `Send + Sync` by the lock that it lies under.

use crate::types::Lsn;
use hedgerow_sync::primitive::canary::leaves_out;
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
}

/// See the head of the file.
pub(super) struct Waiters {
    queue: VecDeque<(Lsn, Who)>,
}

/// Those who are to be woken, with nothing locked.
#[must_use]
pub(super) struct ToWake(Vec<Who>);

impl Waiters {
    pub(super) fn new() -> Waiters {
        Waiters { queue: VecDeque::new() }
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

    /// Takes a thread out that gives up. It may be out already.
    pub(super) fn leave(&mut self, sleeper: &Arc<Sleeper>) {
        let is_it = |who: &Who| matches!(who, Who::Bounded(other) if Arc::ptr_eq(other, sleeper));
        self.queue.retain(|(_, who)| !is_it(who));
    }

    /// Whether somebody waits for whom somebody else has to flush: a task, or a thread that may give up.
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
                served.push(who);
            } else if next && !leaves_out("nobody_goes_on") {
                goes_on = true;
                served.push(who);
            } else {
                self.queue.push_back((lsn, who));
            }
        }
        ToWake(served)
    }

    /// Takes out everybody.
    pub(super) fn take_all(&mut self) -> ToWake {
        ToWake(self.queue.drain(..).map(|(_, who)| who).collect())
    }
}

impl ToWake {
    /// Wakes them.
    pub(super) fn wake(self) {
        for who in self.0 {
            match who {
                Who::Thread(sleeper) | Who::Bounded(sleeper) => sleeper.wake(),
                Who::Task(waker) => waker.wake(),
            }
        }
    }
}
