//! Threads: spawning by name, giving way, sleeping, and a small dense number for each thread.
//!
//! Under a model a sleep is a yield that moves the logical clock, and there are two processors.

#![allow(clippy::disallowed_methods, reason = "this is the seam")]

use std::io;
use std::time::Duration;

#[cfg(hedgerow_sim)]
use hedgerow_sim::thread as imp;
#[cfg(loom)]
use loom::thread as imp;
#[cfg(shuttle)]
use shuttle::thread as imp;
#[cfg(not(any(loom, shuttle, hedgerow_sim)))]
use std::thread as imp;

pub use imp::JoinHandle;

/// Starts a thread with a name that debuggers and `top` show.
///
/// # Errors
/// The system refused another thread.
pub fn spawn_named<F, T>(name: &str, f: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    imp::Builder::new().name(name.to_owned()).spawn(f)
}

/// Lets other threads run.
#[inline]
pub fn yield_now() {
    imp::yield_now();
}

/// Sleeps for at least `duration`; under a model it yields and advances the logical clock.
pub fn sleep(duration: Duration) {
    #[cfg(not(any(loom, shuttle)))]
    imp::sleep(duration);
    #[cfg(any(loom, shuttle))]
    {
        super::time::advance(duration);
        imp::yield_now();
    }
}

/// How many threads can run at the same time; at least 1. A model has two.
pub fn available_parallelism() -> usize {
    #[cfg(not(any(loom, shuttle)))]
    return imp::available_parallelism().map_or(1, std::num::NonZero::get);
    #[cfg(any(loom, shuttle))]
    return 2;
}

#[cfg(not(any(loom, shuttle)))]
mod number {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

    const WORDS: usize = 1024;
    /// A bit for each number that is taken. Not behind a lock: a fork may come while another thread holds it, and in the child nobody
    /// would ever unlock it.
    static TAKEN: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];
    /// The next number beyond those. These are not given out again.
    static BEYOND: AtomicUsize = AtomicUsize::new(64 * WORDS);

    /// Gives the thread's number back when the thread ends.
    struct Lease(usize);

    impl Drop for Lease {
        fn drop(&mut self) {
            // Destructors of other thread locals that run after this one get a fresh number.
            let _ = CACHED.try_with(|cached| cached.set(usize::MAX));
            if let Some(word) = TAKEN.get(self.0 / 64) {
                // Release: whoever takes the number sees what this thread has stored under it.
                word.fetch_and(!(1 << (self.0 % 64)), Release);
            }
        }
    }

    thread_local! {
        static CACHED: Cell<usize> = const { Cell::new(usize::MAX) };
        static LEASE: Lease = Lease(take());
    }

    fn take() -> usize {
        for (at, word) in TAKEN.iter().enumerate() {
            let mut free = !word.load(Relaxed);
            while free != 0 {
                let bit = free & free.wrapping_neg();
                // Acquire: as for the end of a lease.
                let before = word.fetch_or(bit, Acquire);
                if before & bit == 0 {
                    return 64 * at + bit.trailing_zeros() as usize;
                }
                free = !before;
            }
        }
        BEYOND.fetch_add(1, Relaxed)
    }

    #[inline]
    pub fn id() -> usize {
        #[cfg(hedgerow_sim)]
        if let Some(number) = hedgerow_sim::thread::number() {
            return number;
        }
        let cached = CACHED.get();
        if cached != usize::MAX { cached } else { lease() }
    }

    #[cold]
    fn lease() -> usize {
        // While the thread is ending its lease may be gone: then a number is taken for good, which
        // costs a number for each such thread and nothing else.
        let number = LEASE.try_with(|lease| lease.0).unwrap_or_else(|_| take());
        CACHED.set(number);
        number
    }
}

#[cfg(any(loom, shuttle))]
mod number {
    #[cfg(loom)]
    use loom::{lazy_static, thread_local};
    #[cfg(shuttle)]
    use shuttle::{lazy_static, thread_local};

    // Plain atomics: the numbering is no part of any model. Kept per execution, so that a
    // replayed schedule numbers its threads alike.
    use std::sync::atomic::{AtomicUsize, Ordering};

    lazy_static! {
        static ref NEXT: AtomicUsize = AtomicUsize::new(0);
    }
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }

    pub fn id() -> usize {
        NUMBER.with(|number| *number)
    }
}

/// A number of the calling thread, unique among the threads alive and as small as possible: the
/// numbers of ended threads are given out again. Constant for a thread's life.
#[inline]
#[must_use]
pub fn id() -> usize {
    number::id()
}
