//! The frames that a pool lends to old versions of records, and what else these ask of it.
//!
//! At most one frame in [`SHARE`] is lent at a time, and only as long as those that are left suffice for the operations that are inside. `Send + Sync`.

use crate::buffer::old_versions::{Lender, PoolMemory, PoolVersions, Spared};
use crate::buffer::pool::BufferPool;
use crate::error::Result;
use crate::page::FrameId;
use crate::types::{Lsn, PageId};
use crate::versions::{LEAST_BLOCKS, Surroundings, Versions, VersionsOptions};
use crate::wait::Waiting;
use hedgerow_sync::latch::{ExclusiveGuard, LeftHeld};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::ptr::NonNull;
use std::time::Duration;

/// One frame in so many may be lent at a time.
const SHARE: u32 = 8;
/// How long a writer waits for a checkpoint that takes snapshots over.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(1);

impl Lender for BufferPool {
    fn lend(&self) -> Result<Option<Spared>> {
        self.check_open()?;
        if !self.admission.suffice(self.frames_for_pages().saturating_sub(1)) {
            return Ok(None);
        }
        let Some((frame, guard)) = self.try_obtain_frame(PageId(0)) else {
            self.request_frames();
            return Ok(None);
        };
        Ok(Some(self.spare(frame, guard)))
    }

    fn take_back(&self, frame: FrameId, latch: LeftHeld) {
        let guard = self.header(frame).latch.resume(latch);
        self.lent_frames.fetch_sub(1, AcqRel);
        self.release_frame(frame, guard);
    }
}

impl Surroundings for BufferPool {
    fn tail(&self) -> Lsn {
        match self.log() {
            Some(log) => log.tail(),
            None => self.clock_moment(),
        }
    }

    fn reached(&self) -> Lsn {
        self.last_lsn()
    }

    fn wait_for_stays(&self) {
        self.epochs().wait_for_stays();
    }

    fn request_checkpoint(&self) {
        if let Some(slots) = &self.slots {
            slots.checkpoints().request_unless_running();
        }
    }

    fn wait_for_checkpoint(&self, waiting: &Waiting<'_>) -> Result<bool> {
        let Some(slots) = &self.slots else { return Ok(false) };
        match slots.checkpoints().wait_for_next_within(CHECKPOINT_WAIT, waiting) {
            // One that fails takes nothing over.
            Err(_) => waiting.check().map(|()| false),
            ended => ended,
        }
    }
}

impl BufferPool {
    /// Makes the pool ready for snapshots. Once, before anybody changes anything.
    pub fn keep_versions(self: &Arc<Self>, longest_key: usize, longest_record: usize) {
        let cells_each = (self.page_bytes / 64) as u32;
        // Cells have numbers of 32 bits.
        let most = (self.frames() / SHARE).max(LEAST_BLOCKS).min(u32::MAX / 2 / cells_each);
        let page_bytes = self.page_bytes;
        let lender: Arc<dyn Lender> = self.clone();
        let memory = PoolMemory::new(Arc::downgrade(&lender), page_bytes, most);
        let options = VersionsOptions { longest_key, longest_value: longest_record };
        let is_first = self.versions.set(Versions::new(memory, options)).is_ok();
        assert!(is_first, "a pool keeps versions once");
    }

    /// The old versions of records. `None`: nobody has made the pool ready for them.
    #[inline(always)]
    pub fn versions(&self) -> Option<&PoolVersions> {
        self.versions.get()
    }

    /// Frames that are lent.
    pub(super) fn lent_frames(&self) -> u32 {
        self.lent_frames.load(Acquire)
    }

    /// Frames that pages can have now.
    pub(super) fn frames_for_pages(&self) -> u32 {
        let of_values = self.pieces.as_ref().map_or(0, |index| index.lent.load(Relaxed));
        self.frames().saturating_sub(self.lent_frames() + self.retired_below() + of_values)
    }

    /// Makes a frame that holds nothing ready to be lent.
    fn spare(&self, frame: FrameId, guard: ExclusiveGuard<'_>) -> Spared {
        self.header(frame).set_lent();
        self.lent_frames.fetch_add(1, AcqRel);
        let bytes = NonNull::new(self.memory(frame)).expect("a frame has an address");
        Spared { frame, bytes, latch: guard.leave_held() }
    }

    /// Moves what is in a lent frame to another one, so that the frame can be had. Waits for another one. `false`: it is not lent any more,
    /// or was just about to be given back.
    ///
    /// Errors: those of waiting for a frame.
    pub(super) fn move_lent(&self, frame: FrameId, hint: PageId) -> Result<bool> {
        let Some(versions) = self.versions() else { return Ok(false) };
        let (other, guard) = self.obtain_frame(hint, &Waiting::Forever)?;
        let other = versions.memory().hold(self.spare(other, guard));
        // What comes back, one or the other, is given back here.
        Ok(versions.replace_block(|block| block.frame == frame, other).is_ok())
    }
}
