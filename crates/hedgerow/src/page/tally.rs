//! How common scans are among the operations on one leaf, and what came of that.
//!
//! "B-Trees Are Back" section 5.1 (operation-adaptation): a saturating counter from 0 to 3, raised at
//! some of the scans and lowered at some of the look-ups and changes. It is no part of the page: an
//! optimistic reader stores nothing into page bytes. It stands beside the frame, is lost on eviction, and
//! is advice: losing an update costs nothing but a later choice. `Send + Sync`, relaxed.

use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::atomic::{AtomicU8, AtomicU64};

/// The largest value of the counter.
const MOST: u8 = 3;
/// From this value on scans count as common.
const COMMON: u8 = 2;
/// Nothing is known yet. Zero, because a frame that was never used has only zeros beside it; a counter of `at` is kept
/// as `at + 1`.
const UNKNOWN: u8 = 0;
/// The layout does not depend on scans (the paper's sentinel).
const UNHEEDED: u8 = 255;

/// The counter of a frame.
#[derive(Debug)]
pub struct ScanTally(AtomicU8);

/// What a tally says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tally {
    /// Nothing is known yet.
    Unknown,
    /// The layout does not depend on scans.
    Unheeded,
    /// How common scans are: from 0 to 3.
    At(u8),
}

impl ScanTally {
    /// Nothing is known yet.
    pub fn new() -> ScanTally {
        ScanTally(AtomicU8::new(UNKNOWN))
    }

    /// Another page comes into the frame, or the keys have changed a lot.
    pub fn forget(&self) {
        self.0.store(UNKNOWN, Relaxed);
    }

    /// What is known.
    pub fn get(&self) -> Tally {
        match self.0.load(Relaxed) {
            UNKNOWN => Tally::Unknown,
            UNHEEDED => Tally::Unheeded,
            at => Tally::At(at - 1),
        }
    }

    /// Sets it.
    pub fn set(&self, tally: Tally) {
        let value = match tally {
            Tally::Unknown => UNKNOWN,
            Tally::Unheeded => UNHEEDED,
            Tally::At(at) => at.min(MOST) + 1,
        };
        self.0.store(value, Relaxed);
    }
}

impl Default for ScanTally {
    fn default() -> ScanTally {
        ScanTally::new()
    }
}

impl Tally {
    /// Scans are as common as they can be.
    pub const MOST: Tally = Tally::At(MOST);
    /// There are next to none.
    pub const LEAST: Tally = Tally::At(0);

    /// Whether scans count as common.
    pub fn is_common(self) -> bool {
        matches!(self, Tally::At(COMMON..))
    }

    /// After one more scan, or one more operation that is none.
    pub fn after(self, scan: bool) -> Tally {
        match self {
            Tally::At(at) if scan => Tally::At((at + 1).min(MOST)),
            Tally::At(at) => Tally::At(at.saturating_sub(1)),
            other => other,
        }
    }
}

/// What adaptation has done to the leaves of a pool; see [`AdaptationStats`].
#[derive(Debug, Default)]
pub struct Adaptation {
    /// See [`AdaptationStats::by_splits`].
    pub by_splits: AtomicU64,
    /// See [`AdaptationStats::by_merges`].
    pub by_merges: AtomicU64,
    /// See [`AdaptationStats::for_scans`].
    pub for_scans: AtomicU64,
    /// See [`AdaptationStats::for_points`].
    pub for_points: AtomicU64,
    /// See [`AdaptationStats::sorted`].
    pub sorted: AtomicU64,
    /// See [`AdaptationStats::gave_up_busy`].
    pub gave_up_busy: AtomicU64,
    /// See [`AdaptationStats::gave_up_full`].
    pub gave_up_full: AtomicU64,
}

/// How often leaves got another layout since the database was opened: counts, a part of [`Stats`](crate::Stats). No operation waits for a
/// conversion. It is given up if the leaf is busy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdaptationStats {
    /// Leaves that got another layout when they were full or split.
    pub by_splits: u64,
    /// Leaves that got another layout when they were merged.
    pub by_merges: u64,
    /// Fingerprint leaves that became comparison leaves because scans are common.
    pub for_scans: u64,
    /// Comparison leaves that became fingerprint leaves because scans are rare.
    pub for_points: u64,
    /// Fingerprint leaves that were sorted for a scan.
    pub sorted: u64,
    /// Conversions and sorts that were given up because another thread used the leaf.
    pub gave_up_busy: u64,
    /// Conversions that were given up because the records did not fit.
    pub gave_up_full: u64,
}

impl Adaptation {
    /// Reads all counters; they belong to slightly different moments.
    pub fn values(&self) -> AdaptationStats {
        AdaptationStats {
            by_splits: self.by_splits.load(Relaxed),
            by_merges: self.by_merges.load(Relaxed),
            for_scans: self.for_scans.load(Relaxed),
            for_points: self.for_points.load(Relaxed),
            sorted: self.sorted.load(Relaxed),
            gave_up_busy: self.gave_up_busy.load(Relaxed),
            gave_up_full: self.gave_up_full.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_saturates_and_keeps_its_sentinels() {
        assert_eq!(Tally::MOST.after(true), Tally::MOST);
        assert_eq!(Tally::LEAST.after(false), Tally::LEAST);
        assert_eq!(Tally::At(1).after(true), Tally::At(2));
        assert!(Tally::At(2).is_common() && !Tally::At(1).is_common());
        let tally = ScanTally::new();
        for known in [Tally::Unknown, Tally::Unheeded, Tally::LEAST, Tally::At(1), Tally::MOST] {
            tally.set(known);
            assert_eq!(tally.get(), known);
            tally.forget();
            assert_eq!(tally.get(), Tally::Unknown);
        }
        for sentinel in [Tally::Unknown, Tally::Unheeded] {
            assert_eq!(sentinel.after(true), sentinel);
            assert_eq!(sentinel.after(false), sentinel);
            assert!(!sentinel.is_common());
        }
    }
}
