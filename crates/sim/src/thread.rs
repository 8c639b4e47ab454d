//! Threads: virtual ones in a run, the system's outside. The shape is the standard library's.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this is the seam")]

use crate::kernel::Place;
use crate::switch::give_way;
use crate::turns::{is_running, sleep_at, wait_for_turn, with};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Makes threads.
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    name: String,
}

impl Builder {
    /// A thread without a name.
    pub fn new() -> Builder {
        Builder::default()
    }

    /// Names the thread.
    pub fn name(self, name: String) -> Builder {
        Builder { name }
    }

    /// Starts it. In a run it gets its last, an idle, or the least wanted context.
    ///
    /// # Errors
    /// The system refused another thread.
    pub fn spawn<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if !is_running() {
            let builder = std::thread::Builder::new().name(self.name);
            return builder.spawn(f).map(|handle| JoinHandle(Form::Real(handle)));
        }
        let result = Arc::new(Mutex::new(None));
        let theirs = Arc::clone(&result);
        let body = move || {
            let value = catch_unwind(AssertUnwindSafe(f));
            *theirs.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        };
        wait_for_turn();
        let thread = with(|kernel| {
            kernel.spend(u64::from(kernel.machine.wake_call));
            let latency = u64::from(kernel.machine.wake_latency);
            let at = kernel.thread().clock + kernel.jittered(latency);
            kernel.spawn(&self.name, at, Box::new(body))
        });
        let thread = thread.ok_or(io::ErrorKind::Other)?;
        Ok(JoinHandle(Form::Virtual { thread, result }))
    }
}

/// A thread that can be waited for.
pub struct JoinHandle<T>(Form<T>);

enum Form<T> {
    Real(std::thread::JoinHandle<T>),
    Virtual { thread: usize, result: Arc<Mutex<Option<std::thread::Result<T>>>> },
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended.
    ///
    /// # Errors
    /// What it panicked with.
    ///
    /// # Panics
    /// A virtual thread is joined outside of its run, before it has ended: its run has failed.
    pub fn join(self) -> std::thread::Result<T> {
        match self.0 {
            Form::Real(handle) => handle.join(),
            Form::Virtual { thread, result } => {
                wait_for_turn();
                while with(|kernel| kernel.has_ended(thread)) == Some(false) {
                    sleep_at(Place::End(thread), "the end of a thread", None);
                }
                let result = result.lock().unwrap_or_else(PoisonError::into_inner).take();
                result.expect("a thread that has ended has a result, and is joined once")
            }
        }
    }

    /// Whether the thread has ended.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Form::Real(handle) => handle.is_finished(),
            Form::Virtual { thread, .. } => {
                with(|kernel| kernel.spend(u64::from(kernel.machine.hit)));
                wait_for_turn();
                with(|kernel| kernel.has_ended(*thread)).unwrap_or(true)
            }
        }
    }
}

/// Starts a thread without a name.
///
/// # Panics
/// The system refused another thread.
pub fn spawn<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Builder::new().spawn(f).expect("the system refused another thread")
}

/// Gives way to a thread that waits for this context.
pub fn yield_now() {
    if !is_running() {
        return std::thread::yield_now();
    }
    let yields = with(|kernel| {
        kernel.spend(u64::from(kernel.machine.sleep_call));
        kernel.yields()
    });
    match yields {
        Some(true) => give_way(),
        _ => wait_for_turn(),
    }
}

/// Sleeps for at least `duration`.
pub fn sleep(duration: Duration) {
    match is_running() {
        true => _ = sleep_at(Place::Clock, "time", Some(duration)),
        false => std::thread::sleep(duration),
    }
}

/// Hardware threads; at least 1.
pub fn available_parallelism() -> io::Result<std::num::NonZero<usize>> {
    let simulated = with(|kernel| kernel.cores.len()).and_then(std::num::NonZero::new);
    simulated.map_or_else(std::thread::available_parallelism, Ok)
}

/// A number of the calling virtual thread, as small as possible among those alive; `None` outside of a run.
#[inline]
#[must_use]
pub fn number() -> Option<usize> {
    with(|kernel| kernel.thread().number)
}

/// The hardware thread that the calling virtual thread runs on; `None` outside of a run.
#[inline]
#[must_use]
pub fn context() -> Option<usize> {
    with(|kernel| kernel.thread().context)
}
