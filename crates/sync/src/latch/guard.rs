//! The ways to take a latch, and what holds it: a guard for each mode, with one `Drop` each. How it is taken is in [`super::hybrid`].
//!
//! Invariant: a guard exists exactly while its thread of control holds the latch in that mode.
//! Guards may move between threads; the latch does not know who holds it.

use super::hybrid::{HybridLatch, Version};
use crate::parking::Wish;
use std::mem::ManuallyDrop;

/// A latch held exclusively. Dropping it releases the latch with a new version and wakes a waiting thread.
#[must_use = "the latch is released when the guard is dropped"]
#[derive(Debug)]
pub struct ExclusiveGuard<'a> {
    latch: &'a HybridLatch,
}

impl<'a> ExclusiveGuard<'a> {
    /// The latch that is held.
    #[inline]
    #[must_use]
    pub fn latch(&self) -> &'a HybridLatch {
        self.latch
    }

    /// The version that the latch had when it was taken, and has until it is released.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        self.latch.held_version()
    }

    /// Releases without a new version: for a holder that changed nothing. Optimistic readers that
    /// began before this holder stay valid.
    #[inline]
    pub fn release_unchanged(self) {
        ManuallyDrop::new(self).latch.release_exclusive_unchanged();
    }

    /// Leaves the latch held. [`HybridLatch::resume`] makes a guard of it again.
    #[inline]
    pub fn leave_held(self) -> LeftHeld {
        LeftHeld(std::ptr::from_ref(ManuallyDrop::new(self).latch) as usize)
    }

    /// Releases with a new version, and holds on to the latch as one of its readers; no other writer
    /// can come between. Never waits.
    #[inline]
    pub fn downgrade(self) -> SharedGuard<'a> {
        let latch = ManuallyDrop::new(self).latch;
        latch.downgrade();
        SharedGuard { latch }
    }
}

impl Drop for ExclusiveGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.latch.release_exclusive();
    }
}

/// A latch that is held exclusively, and by no guard: for a holder that lives as long as the latch, or longer. If it is dropped, the
/// latch stays held.
#[must_use = "the latch stays held"]
#[derive(Debug)]
pub struct LeftHeld(usize);

/// A latch held with other readers. Dropping it releases the latch. The last holder wakes a waiting thread.
#[must_use = "the latch is released when the guard is dropped"]
#[derive(Debug)]
pub struct SharedGuard<'a> {
    latch: &'a HybridLatch,
}

impl<'a> SharedGuard<'a> {
    /// The latch that is held.
    #[inline]
    #[must_use]
    pub fn latch(&self) -> &'a HybridLatch {
        self.latch
    }

    /// The version that the latch has while it is shared.
    #[inline]
    #[must_use]
    pub fn version(&self) -> Version {
        self.latch.held_version()
    }
}

impl Drop for SharedGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.latch.release_shared();
    }
}

impl HybridLatch {
    /// Takes the latch exclusively if its version is still `version` and no thread shares it. One compare-and-swap; never
    /// waits. On success everything read since `version` is valid.
    #[inline]
    pub fn try_upgrade(&self, version: Version) -> Option<ExclusiveGuard<'_>> {
        self.upgrade(version).then(|| self.entered_exclusively())
    }

    /// Takes the latch shared without waiting. `None` while a writer holds it, while readers hold it and other threads sleep (one may
    /// be a writer, which must get its turn), or if there are 8,191 readers.
    #[inline]
    pub fn try_shared(&self) -> Option<SharedGuard<'_>> {
        self.share().then(|| SharedGuard { latch: self })
    }

    /// Takes the latch exclusively without waiting; `None` while any thread holds it.
    #[inline]
    pub fn try_exclusive(&self) -> Option<ExclusiveGuard<'_>> {
        self.exclude().then(|| self.entered_exclusively())
    }

    /// Takes the latch shared. Spins for a short time, then sleeps, without a bound. Not reentrant.
    #[inline]
    pub fn shared(&self) -> SharedGuard<'_> {
        match self.try_shared() {
            Some(guard) => guard,
            None => {
                let taken = self.wait(Wish::Shared, None);
                debug_assert!(taken);
                SharedGuard { latch: self }
            }
        }
    }

    /// Takes the latch exclusively. Spins for a short time, then sleeps, without a bound. Not reentrant.
    #[inline]
    pub fn exclusive(&self) -> ExclusiveGuard<'_> {
        match self.try_exclusive() {
            Some(guard) => guard,
            None => {
                let taken = self.wait(Wish::Exclusive, None);
                debug_assert!(taken);
                self.entered_exclusively()
            }
        }
    }

    /// Takes the latch shared, and waits as long as `keep_waiting` returns true. It is called before each sleep, so at least every
    /// 10 ms, with nothing of this latch held. Its first `false` ends the wait: the result is `None`.
    #[inline]
    pub fn shared_while(&self, keep_waiting: &mut dyn FnMut() -> bool) -> Option<SharedGuard<'_>> {
        match self.try_shared() {
            Some(guard) => Some(guard),
            None if self.wait(Wish::Shared, Some(keep_waiting)) => {
                Some(SharedGuard { latch: self })
            }
            None => None,
        }
    }

    /// Takes the latch exclusively, and waits as long as `keep_waiting` returns true, as [`Self::shared_while`] does.
    #[inline]
    pub fn exclusive_while(
        &self,
        keep_waiting: &mut dyn FnMut() -> bool,
    ) -> Option<ExclusiveGuard<'_>> {
        match self.try_exclusive() {
            Some(guard) => Some(guard),
            None if self.wait(Wish::Exclusive, Some(keep_waiting)) => {
                Some(self.entered_exclusively())
            }
            None => None,
        }
    }

    /// Makes the guard of an exclusive acquisition that has just succeeded.
    #[inline]
    fn entered_exclusively(&self) -> ExclusiveGuard<'_> {
        self.begin_changes();
        ExclusiveGuard { latch: self }
    }

    /// The guard that was [left](ExclusiveGuard::leave_held).
    ///
    /// # Panics
    /// If it was another latch's.
    #[must_use = "the latch is released when the guard is dropped"]
    pub fn resume(&self, held: LeftHeld) -> ExclusiveGuard<'_> {
        let is_this = held.0 == std::ptr::from_ref(self) as usize;
        assert!(is_this && self.is_exclusive(), "a latch is resumed that was left held");
        ExclusiveGuard { latch: self }
    }
}
