//! A lock for what takes well under a microsecond: taking it is one atomic operation, and letting go of it is a plain store.
//!
//! A mutex of the standard library takes one for each, since whoever lets go of it has to know whether somebody sleeps. Nobody sleeps here: who
//! finds it taken spins for a moment, then gives way, and asks its caller each time whether it still wants to. So it is for what one thread uses
//! mostly, and nothing is waited for while it is held unless all others have a reason to stop asking.
//!
//! Invariant: a guard exists exactly while the flag is set by who made it. `Send + Sync` if the value is `Send`.

use super::atomic::{AtomicBool, Ordering::*};
use super::{hint, thread};
use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};

/// How often who waits looks before it gives way.
const SPINS: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

/// See the head of the file.
pub struct Brief<T> {
    is_taken: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached through a guard or through `&mut self` only, so by one thread at a time; each sees what the one before has done, by the
// release of the flag and its acquisition.
unsafe impl<T: Send> Sync for Brief<T> {}

impl<T> fmt::Debug for Brief<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Brief").finish_non_exhaustive()
    }
}

impl<T> Brief<T> {
    /// One that nobody holds.
    pub fn new(value: T) -> Brief<T> {
        Brief { is_taken: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Takes it. `None`: somebody else has it, and `may_wait` says that it is not worth waiting any more. It is not asked if nobody has it.
    #[inline]
    pub fn lock_while(&self, may_wait: impl Fn() -> bool) -> Option<BriefGuard<'_, T>> {
        if !self.try_take() && !self.wait_while(may_wait) {
            return None;
        }
        Some(BriefGuard(self))
    }

    #[inline]
    fn try_take(&self) -> bool {
        // Acquire: what the one before has done. Who fails stores nothing.
        self.is_taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    }

    #[cold]
    fn wait_while(&self, may_wait: impl Fn() -> bool) -> bool {
        let mut spins = 0;
        loop {
            if !may_wait() {
                return false;
            }
            if spins < SPINS {
                spins += 1;
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
            if self.try_take() {
                return true;
            }
        }
    }
}

/// A lock that is held; dropping it lets go.
pub struct BriefGuard<'l, T>(&'l Brief<T>);

impl<T> fmt::Debug for BriefGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BriefGuard").finish_non_exhaustive()
    }
}

// SAFETY: it is a reference to the value that nobody else has.
unsafe impl<T: Sync> Sync for BriefGuard<'_, T> {}

impl<T> Deref for BriefGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: while the guard exists nobody else reaches the value.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for BriefGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for BriefGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: who takes it next sees what was done.
        self.0.is_taken.store(false, Release);
    }
}
