//! What holds a latch: a guard for each mode, with one `Drop` each.
//!
//! Invariant: a guard exists exactly while its thread of control holds the latch in that mode.
//! Guards may move between threads; the latch does not know who holds it.

use super::hybrid::{HybridLatch, Version};
use std::mem::ManuallyDrop;

/// A latch held exclusively. Dropping it releases the latch with a new version and wakes a waiting thread.
#[must_use = "the latch is released when the guard is dropped"]
#[derive(Debug)]
pub struct ExclusiveGuard<'a> {
    latch: &'a HybridLatch,
}

impl<'a> ExclusiveGuard<'a> {
    #[inline]
    pub(super) fn new(latch: &'a HybridLatch) -> Self {
        ExclusiveGuard { latch }
    }

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
        SharedGuard::new(latch)
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

impl HybridLatch {
    /// The guard that was [left](ExclusiveGuard::leave_held).
    ///
    /// # Panics
    /// If it was another latch's.
    #[must_use = "the latch is released when the guard is dropped"]
    pub fn resume(&self, held: LeftHeld) -> ExclusiveGuard<'_> {
        let is_this = held.0 == std::ptr::from_ref(self) as usize;
        assert!(is_this && self.is_exclusive(), "a latch is resumed that was left held");
        ExclusiveGuard::new(self)
    }
}

/// A latch held with other readers. Dropping it releases the latch. The last holder wakes a waiting thread.
#[must_use = "the latch is released when the guard is dropped"]
#[derive(Debug)]
pub struct SharedGuard<'a> {
    latch: &'a HybridLatch,
}

impl<'a> SharedGuard<'a> {
    #[inline]
    pub(super) fn new(latch: &'a HybridLatch) -> Self {
        SharedGuard { latch }
    }

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
