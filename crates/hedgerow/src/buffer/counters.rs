//! What the pool has done: counters for `stats`.
//!
//! Relaxed, each on a cache line of its own pair where threads write them often. None is touched by a
//! look-up that finds its pages in memory: hits are not counted, misses are. `Send + Sync`.

use crate::page::{ContentionCounters, Merging};
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
    /// What redistributions of leaves have done.
    pub merging: Merging,
    /// What Contention Split has done to leaves.
    pub contention: ContentionCounters,
}

/// What the page cache has done since the database was opened: counts, a part of [`Stats`](crate::Stats).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Pages read into memory.
    pub faults: u64,
    /// Of these, pages that got the frame that look-ups expect, which makes later look-ups cheaper.
    pub faults_preferred: u64,
    /// Pages removed from memory to make room.
    pub evictions: u64,
    /// Pages written to the file. A page counts each time.
    pub pages_written: u64,
    /// Batches in which they were written.
    pub write_batches: u64,
    /// Of the written pages, those that were changed again before the write had ended, so that it was for nothing.
    pub discarded_images: u64,
    /// Pages that a writer copied before it changed them, because a running checkpoint had not written them yet.
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
    pub fn values(&self) -> PoolStats {
        PoolStats {
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
