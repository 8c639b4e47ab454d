//! What the pool has done: counters for `stats`.
//!
//! Relaxed, each on a cache line of its own pair where threads write them often. None is touched by a
//! look-up that finds its pages in memory: hits are not counted, misses are. `Send + Sync`.

use hedgerow_sync::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters.
#[derive(Default)]
pub struct Counters {
    faults: AtomicU64,
    evictions: AtomicU64,
    pages_written: AtomicU64,
    write_batches: AtomicU64,
    discarded_images: AtomicU64,
    copied: AtomicU64,
    preferred: AtomicU64,
}

/// A reading of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CounterValues {
    /// Pages read into memory.
    pub faults: u64,
    /// Of these, pages that got the frame that translation predicts.
    pub faults_preferred: u64,
    /// Pages evicted.
    pub evictions: u64,
    /// Page images written.
    pub pages_written: u64,
    /// Batches that they were written in.
    pub write_batches: u64,
    /// Of the images, those that were out of date before they were recorded.
    pub discarded_images: u64,
    /// Pages that a writer has copied for a checkpoint under way.
    pub copied_for_checkpoints: u64,
}

impl Counters {
    pub(super) fn faulted(&self, preferred: bool) {
        self.faults.fetch_add(1, Relaxed);
        if preferred {
            self.preferred.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn evicted(&self, pages: u64) {
        self.evictions.fetch_add(pages, Relaxed);
    }

    pub(super) fn wrote(&self, pages: u64, discarded: u64) {
        self.pages_written.fetch_add(pages, Relaxed);
        self.write_batches.fetch_add(1, Relaxed);
        self.discarded_images.fetch_add(discarded, Relaxed);
    }

    pub(super) fn copied(&self) {
        self.copied.fetch_add(1, Relaxed);
    }

    /// Reads all counters; they belong to slightly different moments.
    pub fn values(&self) -> CounterValues {
        CounterValues {
            faults: self.faults.load(Relaxed),
            faults_preferred: self.preferred.load(Relaxed),
            evictions: self.evictions.load(Relaxed),
            pages_written: self.pages_written.load(Relaxed),
            write_batches: self.write_batches.load(Relaxed),
            discarded_images: self.discarded_images.load(Relaxed),
            copied_for_checkpoints: self.copied.load(Relaxed),
        }
    }
}
