//! Old versions of records, for snapshots: the pool lends them frames, and is what they have round them.
//!
//! A frame that is lent keeps its latch exclusively held, and is no page's until it is given back. At most one frame in [`SHARE`] is lent at
//! a time, and only as long as those that are left suffice for the operations that are inside. Nobody waits for such a frame: if the page
//! table needs it, what is in it is moved to another one (`retire.rs`).
//!
//! What versions and snapshots are, `versions/` says. Invariant: a [`LentFrame`] lives inside of the pool's own table of versions, so its
//! bytes outlive it. `Send + Sync`.

use crate::buffer::frozen_versions::FrozenVersions;
use crate::buffer::pinned::PinnedCheckpoint;
use crate::buffer::pool::BufferPool;
use crate::error::Result;
use crate::page::FrameId;
use crate::types::{Lsn, PageId};
use crate::versions::{LEAST_BLOCKS, Memory, Surroundings, Versions, VersionsOptions};
use crate::wait::Waiting;
use hedgerow_sync::latch::{ExclusiveGuard, LeftHeld};
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire};
use hedgerow_sync::primitive::{Arc, Weak};
use std::ptr::NonNull;
use std::slice;
use std::time::Duration;

/// One frame in so many may be lent at a time.
const SHARE: u32 = 8;
/// How long a writer waits for a checkpoint that takes snapshots over.
const CHECKPOINT_WAIT: Duration = Duration::from_secs(1);

/// The old versions of a pool's records.
pub type PoolVersions = Versions<PoolMemory, PinnedCheckpoint>;

/// A frame that is lent.
pub struct LentFrame {
    pool: Weak<BufferPool>,
    frame: FrameId,
    bytes: NonNull<u8>,
    len_bytes: usize,
    /// Taken when it is given back.
    latch: Option<LeftHeld>,
}

// SAFETY: the bytes are this value's alone, as a box's would be; see `AsMut` below. The rest can be sent by itself.
unsafe impl Send for LentFrame {}

impl AsRef<[u8]> for LentFrame {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        // SAFETY: as in `as_mut`, but for reading.
        unsafe { slice::from_raw_parts(self.bytes.as_ptr(), self.len_bytes) }
    }
}

impl AsMut<[u8]> for LentFrame {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: the slice asks for initialised bytes that nobody else accesses as long as it lives. They are a frame of the
        // pool's arena, which reads as zeros where nothing was written, and lives as long as the pool, inside of which this value lives.
        // Who accesses a frame's bytes as a slice holds its latch, and this value has it exclusively.
        unsafe { slice::from_raw_parts_mut(self.bytes.as_ptr(), self.len_bytes) }
    }
}

impl Drop for LentFrame {
    fn drop(&mut self) {
        // Without a pool there is nobody to give it back to.
        if let (Some(pool), Some(latch)) = (self.pool.upgrade(), self.latch.take()) {
            let guard = pool.header(self.frame).latch.resume(latch);
            pool.lent_frames.fetch_sub(1, AcqRel);
            pool.release_frame(self.frame, guard);
        }
    }
}

/// Lends the frames of a pool.
pub struct PoolMemory {
    pool: Weak<BufferPool>,
    page_bytes: usize,
    most: u32,
}

impl Memory for PoolMemory {
    type Block = LentFrame;
    type Frozen = FrozenVersions;

    fn block_bytes(&self) -> usize {
        self.page_bytes
    }

    fn most_blocks(&self) -> u32 {
        self.most
    }

    fn lend(&self) -> Result<Option<LentFrame>> {
        let Some(pool) = self.pool.upgrade() else { return Ok(None) };
        pool.check_open()?;
        Ok(BufferPool::lend_frame(&pool, PageId(0)))
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
            slots.request_unless_running();
        }
    }

    fn wait_for_checkpoint(&self, waiting: &Waiting<'_>) -> Result<bool> {
        let Some(slots) = &self.slots else { return Ok(false) };
        match slots.wait_for_checkpoint_within(CHECKPOINT_WAIT, waiting) {
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
        let memory = PoolMemory { pool: Arc::downgrade(self), page_bytes, most };
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
        self.frames().saturating_sub(self.lent_frames())
    }

    /// Lends a frame, if one can be spared without waiting.
    pub(super) fn lend_frame(this: &Arc<Self>, hint: PageId) -> Option<LentFrame> {
        if !this.admission.suffice(this.frames_for_pages().saturating_sub(1)) {
            return None;
        }
        let Some((frame, guard)) = this.try_obtain_frame(hint) else {
            this.request_frames();
            return None;
        };
        Some(Self::lend_obtained(this, frame, guard))
    }

    /// Lends a frame that holds nothing.
    pub(super) fn lend_obtained(
        this: &Arc<Self>,
        frame: FrameId,
        guard: ExclusiveGuard<'_>,
    ) -> LentFrame {
        this.header(frame).set_lent();
        this.lent_frames.fetch_add(1, AcqRel);
        let bytes = NonNull::new(this.memory(frame)).expect("a frame has an address");
        LentFrame {
            pool: Arc::downgrade(this),
            frame,
            bytes,
            len_bytes: this.page_bytes,
            latch: Some(guard.leave_held()),
        }
    }

    /// Moves what is in a lent frame to another one, so that the frame can be had. Waits for another one. `false`: it is not lent any more,
    /// or was just about to be given back.
    ///
    /// Errors: those of waiting for a frame.
    pub(super) fn move_lent(&self, frame: FrameId, hint: PageId) -> Result<bool> {
        let Some(versions) = self.versions() else { return Ok(false) };
        let Some(pool) = versions.memory().pool.upgrade() else { return Ok(false) };
        let (other, guard) = self.obtain_frame(hint, &crate::wait::Waiting::Forever)?;
        let other = Self::lend_obtained(&pool, other, guard);
        // What comes back, one or the other, is given back here.
        Ok(versions.replace_block(|block| block.frame == frame, other).is_ok())
    }
}
