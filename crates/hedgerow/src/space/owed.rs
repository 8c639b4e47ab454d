//! What a checkpoint still owes while writers go on: the pages whose images of its epoch are not written yet.
//!
//! When a checkpoint ends epoch E, every dirty page is owed, for what it holds belongs to E. An owed page is settled
//! by its image, or by a copy of it that the first writer of epoch E + 1 hands over before it changes the page; then
//! the copy has to be written.
//!
//! Invariants: `pages` is the number of dirty pages whose last change was made in E or before. Images are counted under
//! the lock of the slots' state, under which the count of dirty pages goes down and checkpoints begin and end, so that
//! [`Owed::begin`] finds the two in agreement; copies under the lock of the slabs, which the end of a checkpoint holds,
//! too. `Send + Sync`.

use crate::types::Epoch;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Release};
use hedgerow_sync::primitive::atomic::{AtomicU64, AtomicUsize};

/// No checkpoint is under way.
const NONE: u64 = 0;

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Owed {
    /// What writers look at each time: they have entered after it was set, so that they cannot miss it.
    epoch: AtomicU64,
    pages: AtomicUsize,
}

impl Owed {
    /// From now on so many pages are owed to the checkpoint that has ended `epoch`.
    pub fn begin(&self, epoch: Epoch, pages: usize) {
        self.pages.store(pages, Release);
        let before = self.epoch.swap(epoch.0, AcqRel);
        assert!(before == NONE, "one checkpoint at a time");
    }

    /// The epoch that the checkpoint under way has ended.
    #[inline]
    pub fn epoch(&self) -> Option<Epoch> {
        Some(Epoch(self.epoch.load(Acquire))).filter(|epoch| epoch.0 != NONE)
    }

    /// Whether a checkpoint is under way.
    #[inline(always)]
    pub fn is_under_way(&self) -> bool {
        self.epoch.load(Acquire) != NONE
    }

    /// Whether a dirty page is owed whose last change was made in `changed`.
    pub fn owes(&self, changed: Epoch) -> bool {
        changed.0 <= self.epoch.load(Acquire)
    }

    /// An image of epoch `image` is in a slot, and its page is clean. Whether the page was owed.
    pub fn image_written(&self, image: Epoch) -> bool {
        let was_owed = self.owes(image);
        if was_owed {
            self.settle();
        }
        was_owed
    }

    /// A copy of an owed page stands in for it from now on.
    pub fn handed_over(&self) {
        self.settle();
    }

    fn settle(&self) {
        let before = self.pages.fetch_sub(1, AcqRel);
        assert!(before > 0, "an owed page is settled once");
    }

    /// Whether anything is owed but copies.
    pub fn has_pages(&self) -> bool {
        self.pages.load(Acquire) > 0
    }

    /// The checkpoint has all that it was owed, or was given up.
    pub fn end(&self) {
        self.epoch.store(NONE, Release);
        self.pages.store(0, Release);
    }
}
