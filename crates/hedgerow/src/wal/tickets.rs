//! The outcome of a wait for the log, for who does not sleep: a ticket that a future looks at, or a function that is called.
//!
//! Rank 2. Functions are called by a thread of their own ([`Callers`]), one after the other: whoever flushes may hold locks of the store
//! that a caller's function would wait for, and may be a thread that the end of a database waits for. That thread is started with the
//! first function, and ends when there has been none for a while. It holds nothing of the log.
//!
//! Invariants: each ticket and each function gets one outcome. A ticket wakes its task with nothing locked. `Send + Sync`.

use crate::error::{Error, Result};
use hedgerow_sync::primitive::{Arc, Condvar, Mutex, thread};
use std::collections::VecDeque;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// How long the thread of functions stays without one.
const LINGER: Duration = Duration::from_secs(1);

/// A function of a caller that is told the outcome.
pub type Told = Box<dyn FnOnce(Result<()>) + Send>;

/// See the head of the file.
#[derive(Debug)]
pub struct Ticket(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    /// And the task to wake.
    Pending(Option<Waker>),
    Known(Result<()>),
    /// It was handed out.
    Over,
}

impl Ticket {
    pub(super) fn pending() -> Arc<Ticket> {
        Arc::new(Ticket(Mutex::new(Stage::Pending(None))))
    }

    pub(super) fn known(outcome: Result<()>) -> Arc<Ticket> {
        Arc::new(Ticket(Mutex::new(Stage::Known(outcome))))
    }

    pub(super) fn give(&self, outcome: Result<()>) {
        let before = std::mem::replace(&mut *self.0.lock(), Stage::Known(outcome));
        if let Stage::Pending(Some(waker)) = before {
            waker.wake();
        }
    }

    /// The outcome. Until it is known the task of the last call is woken by it. Pending for ever behind the outcome.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut stage = self.0.lock();
        match &mut *stage {
            Stage::Pending(Some(waker)) => waker.clone_from(context.waker()),
            Stage::Pending(none) => *none = Some(context.waker().clone()),
            Stage::Over => {}
            Stage::Known(_) => {
                let Stage::Known(outcome) = std::mem::replace(&mut *stage, Stage::Over) else {
                    return Poll::Pending;
                };
                return Poll::Ready(outcome);
            }
        }
        Poll::Pending
    }
}

/// The thread that calls functions.
#[derive(Default)]
pub(super) struct Callers {
    calls: Mutex<Calls>,
    more: Condvar,
}

#[derive(Default)]
struct Calls {
    due: VecDeque<(Told, Result<()>)>,
    /// Functions that have not been called yet, those that are not due included.
    promised: usize,
    is_running: bool,
}

impl Callers {
    /// Makes sure that there is a thread for one more function.
    ///
    /// Errors: `Io` if it cannot be started.
    pub(super) fn promise(self: &Arc<Self>) -> Result<()> {
        let mut calls = self.calls.lock();
        if !calls.is_running {
            let callers = self.clone();
            thread::spawn_named("hedgerow-told", move || callers.run()).map_err(|error| {
                Error::io("cannot start the thread that tells of durability", error)
            })?;
            calls.is_running = true;
        }
        calls.promised += 1;
        // It may be about to end.
        self.more.notify_one();
        Ok(())
    }

    /// Lets a function be called for which there was a promise.
    pub(super) fn call(&self, told: Told, outcome: Result<()>) {
        self.calls.lock().due.push_back((told, outcome));
        self.more.notify_one();
    }

    fn run(&self) {
        let mut calls = self.calls.lock();
        loop {
            let due = take(&mut calls.due);
            if due.is_empty() {
                if calls.promised > 0 {
                    self.more.wait(&mut calls);
                } else if self.more.wait_for(&mut calls, LINGER) && calls.promised == 0 {
                    calls.is_running = false;
                    return;
                }
                continue;
            }
            drop(calls);
            let count = due.len();
            for (told, outcome) in due {
                // The hook of panics has told of it; others are to be called all the same.
                let _ = catch_unwind(AssertUnwindSafe(|| told(outcome)));
            }
            calls = self.calls.lock();
            calls.promised -= count;
        }
    }
}
