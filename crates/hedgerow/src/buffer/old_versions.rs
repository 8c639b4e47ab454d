//! Old versions of records in frames that the pool lends.
//!
//! A frame that is lent keeps its latch exclusively held, and is no page's until it is given back. Nobody waits for such a frame: if the page
//! table needs it, what is in it is moved to another one (`retire.rs`). How many may be lent, and when, is in `lending.rs`.
//!
//! What versions and snapshots are, `versions/` says. Invariant: a [`LentFrame`] lives inside of the pool's own table of versions, so its
//! bytes outlive it. `Send + Sync`.

use crate::buffer::frozen_versions::FrozenVersions;
use crate::buffer::pinned::PinnedCheckpoint;
use crate::error::Result;
use crate::page::FrameId;
use crate::versions::{Memory, Versions};
use hedgerow_sync::latch::LeftHeld;
use hedgerow_sync::primitive::Weak;
use std::ptr::NonNull;
use std::slice;

/// The old versions of a pool's records.
pub type PoolVersions = Versions<PoolMemory, PinnedCheckpoint>;

/// Whoever has frames to lend: the pool.
pub(super) trait Lender: Send + Sync {
    /// Lends a frame, if one can be spared without waiting. Errors: `Closed`.
    fn lend(&self) -> Result<Option<Spared>>;

    /// Takes a frame back that it has lent.
    fn take_back(&self, frame: FrameId, latch: LeftHeld);
}

/// A frame that holds nothing, and whose latch is held for whoever gets it.
pub(super) struct Spared {
    pub(super) frame: FrameId,
    /// Its first byte.
    pub(super) bytes: NonNull<u8>,
    pub(super) latch: LeftHeld,
}

/// A frame that is lent.
pub struct LentFrame {
    lender: Weak<dyn Lender>,
    pub(super) frame: FrameId,
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
        if let (Some(lender), Some(latch)) = (self.lender.upgrade(), self.latch.take()) {
            lender.take_back(self.frame, latch);
        }
    }
}

/// Lends the frames of a pool.
pub struct PoolMemory {
    lender: Weak<dyn Lender>,
    page_bytes: usize,
    most: u32,
}

impl PoolMemory {
    /// Of a pool with frames of so many bytes, of which it lends at most `most` at a time.
    pub(super) fn new(lender: Weak<dyn Lender>, page_bytes: usize, most: u32) -> PoolMemory {
        PoolMemory { lender, page_bytes, most }
    }

    /// A frame that was lent, as who uses it has it.
    pub(super) fn hold(&self, spared: Spared) -> LentFrame {
        let Spared { frame, bytes, latch } = spared;
        let lender = self.lender.clone();
        LentFrame { lender, frame, bytes, len_bytes: self.page_bytes, latch: Some(latch) }
    }
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
        let Some(lender) = self.lender.upgrade() else { return Ok(None) };
        Ok(lender.lend()?.map(|spared| self.hold(spared)))
    }
}
