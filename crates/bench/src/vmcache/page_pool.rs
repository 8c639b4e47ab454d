//! What the tree sees of the pool: the traits of a page pool.
//!
//! Invariants and thread-safety are the pool's (`pool.rs`).

use super::pool::VmcachePool;
use super::session::VmcacheSession;
use super::state::{ALLOCATED, DIRTY, PageHead, RESIDENT, USED};
use hedgerow::internals::error::Result;
use hedgerow::internals::page::header::{self, PageKind};
use hedgerow::internals::page::{
    EpochStay, ExclusivePage, FrameHead, FrameId, Frames, Journal, Pages, Values,
};
use hedgerow::internals::types::{Epoch, PageId};
use hedgerow::internals::wait::Waiting;
use hedgerow_sync::optimistic::RacingBytes;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// The one epoch of a pool that takes no checkpoints.
#[derive(Debug)]
pub struct OneEpoch;

impl EpochStay for OneEpoch {
    fn epoch(&self) -> Epoch {
        Epoch(1)
    }
}

// SAFETY: page `i` has the latch `i` of the states and the `i`-th page of the memory, and neither moves. Bytes are
// reached as slices through pages alone, which hold that latch; so does whoever gives memory back.
unsafe impl Frames for VmcachePool {
    type Head<'p> = PageHead<'p>;

    #[inline(always)]
    fn page_bytes(&self) -> usize {
        self.page_bytes
    }

    #[inline(always)]
    fn translate(&self, id: PageId) -> Option<FrameId> {
        self.states.is_resident(id).then_some(FrameId(id.0))
    }

    fn in_range(&self, id: PageId) -> bool {
        id.is_usable() && id.0 < self.next_id.load(Relaxed)
    }

    #[inline(always)]
    fn head(&self, frame: FrameId) -> PageHead<'_> {
        self.states.head(frame)
    }

    #[inline(always)]
    fn bytes(&self, frame: FrameId) -> RacingBytes<'_> {
        self.memory.page(frame.0 as usize)
    }

    unsafe fn mark_dirty(&self, frame: FrameId, _epoch: Epoch) {
        if self.states.get(frame) & DIRTY == 0 {
            self.states.set(frame, DIRTY);
        }
        self.states.head(frame).note_use();
    }
}

impl Pages for VmcachePool {
    type Session<'p> = VmcacheSession<'p>;

    #[inline(always)]
    fn expect_frame(&self, id: PageId) -> Option<FrameId> {
        (id.0 < self.max_id).then_some(FrameId(id.0))
    }

    #[inline]
    fn session_within<'p>(&'p self, _: &'p Waiting<'p>) -> VmcacheSession<'p> {
        VmcacheSession::new(self)
    }

    fn free(&self, mut page: ExclusivePage<'_, Self>, _epoch: Epoch) {
        page.bytes_mut()[header::KIND] = PageKind::Free as u8;
        let (frame, id, guard) = page.into_guard();
        // The place stays taken, and the memory with it, until the clock comes by.
        self.states.clear(frame, ALLOCATED | RESIDENT | DIRTY | USED);
        drop(guard);
        self.pages.fetch_sub(1, Relaxed);
        // Last of all: from here on the id may name another page.
        self.release_ids(std::iter::once(id));
    }
}

impl Journal for VmcachePool {
    type EpochGuard<'p> = OneEpoch;

    fn enter(&self) -> Result<OneEpoch> {
        Ok(OneEpoch)
    }
}

impl Values for VmcachePool {}
