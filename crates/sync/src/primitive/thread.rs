//! Threads: spawning by name, giving way, sleeping, and a small dense number for each thread.
//!
//! Under a model a sleep is a yield that moves the logical clock, and there are two processors.

#![allow(clippy::disallowed_methods, reason = "this is the seam")]

use std::io;
use std::time::Duration;

#[cfg(loom)]
use loom::thread as imp;
#[cfg(shuttle)]
use shuttle::thread as imp;
#[cfg(not(any(loom, shuttle)))]
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

/// Gives way to other threads.
#[inline]
pub fn yield_now() {
    imp::yield_now();
}

/// Sleeps for at least `duration`; under a model gives way and moves the logical clock.
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
    use parking_lot::Mutex;
    use std::cell::Cell;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// Numbers that are free, smallest first, and the smallest that was never used.
    struct Numbers {
        free: BinaryHeap<Reverse<usize>>,
        next: usize,
    }

    static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers { free: BinaryHeap::new(), next: 0 });

    /// Gives the thread's number back when the thread ends.
    struct Lease(usize);

    impl Drop for Lease {
        fn drop(&mut self) {
            // Destructors of other thread locals that run after this one get a fresh number.
            let _ = CACHED.try_with(|cached| cached.set(usize::MAX));
            NUMBERS.lock().free.push(Reverse(self.0));
        }
    }

    thread_local! {
        static CACHED: Cell<usize> = const { Cell::new(usize::MAX) };
        static LEASE: Lease = Lease(take());
    }

    fn take() -> usize {
        let mut numbers = NUMBERS.lock();
        if let Some(Reverse(number)) = numbers.free.pop() {
            return number;
        }
        numbers.next += 1;
        numbers.next - 1
    }

    #[inline]
    pub fn id() -> usize {
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
pub fn id() -> usize {
    number::id()
}
