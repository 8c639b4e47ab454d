//! Backends that HPCA 2014 compares elision with: a lock that readers share, and no control at all.
//!
//! Nothing aborts. `Send + Sync`.

use super::{Counters, ElidableLock, Htm, LockTx, Outcome, RetryPolicy, Site, TCell};
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release};
use hedgerow_sync::primitive::hint::spin_loop;
use std::convert::Infallible;

const WRITER: u64 = 1;
const WRITER_WAITS: u64 = 2;
const READER: u64 = 4;
/// Turns of the longest wait between two looks.
const LONGEST: u32 = 16;

/// A spinning lock of readers and writers in one word, which prefers writers and waits longer and longer: as TBB's `spin_rw_mutex`.
#[derive(Debug, Default)]
pub struct RwSpin {
    counters: Counters,
}

/// Ends what was begun, also when the body panics.
struct Taken<'a>(&'a TCell<u64>, u64);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(self.1.wrapping_neg(), Release);
    }
}

/// Waits, longer each time.
fn back_off(turns: &mut u32) {
    for _ in 0..*turns {
        spin_loop();
    }
    if *turns < LONGEST {
        *turns *= 2;
    } else {
        hedgerow_sync::primitive::thread::yield_now();
    }
}

fn lock_to_read(word: &TCell<u64>) -> Taken<'_> {
    let mut turns = 1;
    loop {
        if word.load(Relaxed) & (WRITER | WRITER_WAITS) == 0 {
            if word.fetch_add(READER, Acquire) & WRITER == 0 {
                return Taken(word, READER);
            }
            word.fetch_add(READER.wrapping_neg(), Relaxed);
        }
        back_off(&mut turns);
    }
}

fn lock_to_write(word: &TCell<u64>) -> Taken<'_> {
    let mut turns = 1;
    loop {
        let seen = word.load(Relaxed);
        if seen & !WRITER_WAITS == 0 {
            if word.compare_exchange(seen, WRITER, Acquire, Relaxed).is_ok() {
                return Taken(word, WRITER);
            }
        } else if seen & WRITER_WAITS == 0 {
            word.fetch_or(WRITER_WAITS, Relaxed);
        }
        back_off(&mut turns);
    }
}

impl RwSpin {
    /// A backend that has counted nothing.
    #[must_use]
    pub fn new() -> RwSpin {
        RwSpin::default()
    }
}

impl Htm for RwSpin {
    type E = Infallible;
    type Tx<'a> = LockTx<'a>;

    fn atomic_counted<'a, R, B>(
        &self,
        lock: &'a ElidableLock,
        site: Site,
        mut body: B,
    ) -> (R, Outcome)
    where
        B: FnMut(&mut LockTx<'a>) -> Result<R, Infallible>,
    {
        self.counters.locked(site);
        let _held = lock_to_write(&lock.shared.0);
        let Ok(result) = body(&mut LockTx::new());
        (result, Outcome { aborts: 0, took_lock: true })
    }

    fn read<'a, R>(
        &self,
        lock: &'a ElidableLock,
        site: Site,
        mut body: impl FnMut(&mut LockTx<'a>) -> Result<R, Infallible>,
    ) -> R {
        self.counters.locked(site);
        let _held = lock_to_read(&lock.shared.0);
        let Ok(result) = body(&mut LockTx::new());
        result
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn policy(&self) -> &RetryPolicy {
        &RetryPolicy::HPCA_NO_RETRY
    }
}

/// No control: the bound of what any control can reach. Threads that write at the same time lose each other's changes, and what a tree then
/// holds is undefined, though it stays within its memory. For measurements, and for one thread.
#[derive(Debug, Default)]
pub struct Uncontrolled {
    counters: Counters,
}

impl Uncontrolled {
    /// A backend that counts nothing.
    #[must_use]
    pub fn new() -> Uncontrolled {
        Uncontrolled::default()
    }
}

impl Htm for Uncontrolled {
    type E = Infallible;
    type Tx<'a> = LockTx<'a>;

    #[inline(always)]
    fn atomic_counted<'a, R, B>(
        &self,
        _lock: &'a ElidableLock,
        _site: Site,
        mut body: B,
    ) -> (R, Outcome)
    where
        B: FnMut(&mut LockTx<'a>) -> Result<R, Infallible>,
    {
        let Ok(result) = body(&mut LockTx::new());
        (result, Outcome { aborts: 0, took_lock: false })
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn policy(&self) -> &RetryPolicy {
        &RetryPolicy::HPCA_NO_RETRY
    }
}
