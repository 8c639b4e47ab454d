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
