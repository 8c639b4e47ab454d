//! How many images were recorded for the checkpoints to come.
//!
//! Invariant: an image counts until the checkpoint that takes it is durable; if that fails, it counts for the next one. `Sync`; read
//! without a lock.

use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Release};
use hedgerow_sync::primitive::figure::Figure;

/// See the head of the file.
pub(super) struct ImageCounts {
    /// Recorded since the last checkpoint took those before.
    recorded: Figure,
    /// Of these, images of the epoch after that of the checkpoint under way.
    later: Figure,
    /// Those that the checkpoint under way has taken.
    taken: Figure,
}

impl ImageCounts {
    pub(super) fn new() -> ImageCounts {
        ImageCounts { recorded: Figure::new(0), later: Figure::new(0), taken: Figure::new(0) }
    }

    /// Recorded since the last checkpoint took those before.
    #[inline]
    pub(super) fn since_checkpoint(&self) -> u64 {
        self.recorded.load(Acquire)
    }

    /// The same, and those that are in no durable checkpoint yet.
    pub(super) fn not_durable(&self) -> u64 {
        self.since_checkpoint() + self.taken.load(Acquire)
    }

    /// Those that the next checkpoint will take.
    #[inline]
    pub(super) fn for_next(&self) -> u64 {
        self.later.load(Acquire)
    }

    /// An image of the epoch after that of the checkpoint under way is recorded. [`Self::record`] follows.
    pub(super) fn record_later(&self) {
        self.later.fetch_add(1, AcqRel);
    }

    /// An image is recorded.
    pub(super) fn record(&self) {
        self.recorded.fetch_add(1, AcqRel);
    }

    /// A checkpoint has ended its epoch.
    pub(super) fn cut(&self) {
        self.later.store(0, Release);
    }

    /// The checkpoint under way takes the images of its epoch.
    pub(super) fn take(&self) {
        let later = self.later.load(Acquire);
        self.taken.store(self.recorded.swap(later, AcqRel).saturating_sub(later), Release);
    }

    /// The checkpoint that has taken them is durable, or has failed.
    pub(super) fn ended(&self, is_durable: bool) {
        let taken = self.taken.swap(0, AcqRel);
        if !is_durable {
            self.recorded.fetch_add(taken, AcqRel);
        }
    }
}
