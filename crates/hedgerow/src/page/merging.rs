//! What redistributions of leaves have done: counters for `stats`.
//!
//! Relaxed; nobody else's figure depends on them. `Send + Sync`.

use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// What redistributions of leaves have done in a pool; see [`MergingStats`].
#[derive(Debug, Default)]
pub struct Merging {
    /// See [`MergingStats::groups`].
    pub groups: AtomicU64,
    /// See [`MergingStats::pages_freed`].
    pub pages_freed: AtomicU64,
    /// See [`MergingStats::leaves_written`].
    pub leaves_written: AtomicU64,
    /// See [`MergingStats::gave_up_full`].
    pub gave_up_full: AtomicU64,
    /// See [`MergingStats::gave_up_busy`].
    pub gave_up_busy: AtomicU64,
    /// See [`MergingStats::under_pressure`].
    pub under_pressure: AtomicU64,
}

/// What the merging of leaves has done since the database was opened: counts, a part of [`Stats`](crate::Stats). It spreads the records of up to
/// five neighbouring leaves over one leaf fewer ("Contention and Space Management in B-Trees", CIDR 2021, section 4).
/// [`Keyspace::compact`](crate::Keyspace::compact) does it, and so does the thread that makes room in memory, before it writes a leaf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MergingStats {
    /// Groups of leaves whose records were spread over one leaf fewer.
    pub groups: u64,
    /// Pages that this has freed.
    pub pages_freed: u64,
    /// Leaves that the records went to.
    pub leaves_written: u64,
    /// Groups that were left as they were because the records, or the new separators, did not fit.
    pub gave_up_full: u64,
    /// Groups that were left as they were because other threads used them, or a running checkpoint needed them.
    pub gave_up_busy: u64,
    /// Of the groups, those that were merged to make room in memory.
    pub under_pressure: u64,
}

impl Merging {
    /// Reads all counters; they belong to slightly different moments.
    pub fn values(&self) -> MergingStats {
        MergingStats {
            groups: self.groups.load(Relaxed),
            pages_freed: self.pages_freed.load(Relaxed),
            leaves_written: self.leaves_written.load(Relaxed),
            gave_up_full: self.gave_up_full.load(Relaxed),
            gave_up_busy: self.gave_up_busy.load(Relaxed),
            under_pressure: self.under_pressure.load(Relaxed),
        }
    }
}
