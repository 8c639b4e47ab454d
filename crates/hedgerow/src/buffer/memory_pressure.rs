//! Fewer dirty pages before they are written: the pool offers them to whoever can merge leaves ([`MemoryPressure`]).
//!
//! The eviction thread offers each page that it is about to write. It must not wait, because all who want frames wait for
//! it: so the way into the epoch is one that gives up where [`BufferPool::enter_with`] would wait. `Send + Sync`.

use crate::buffer::entry::Entered;
use crate::buffer::pool::BufferPool;
use crate::page::{FrameId, MemoryPressure};
use crate::types::{PageId, Purpose};
use hedgerow_sync::primitive::Weak;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

impl BufferPool {
    /// From now on dirty pages are offered before they are written to make room. Once, before the pool is used.
    pub fn set_memory_pressure(&self, pressure: Weak<dyn MemoryPressure>) {
        let first = self.evictor.pressure.set(pressure).is_ok();
        assert!(first, "a pool offers its pages to one");
    }

    /// Offers the pages in these frames, which are dirty and are to be evicted.
    pub(super) fn offer_pages(&self, frames: &[FrameId]) {
        let Some(pressure) = self.evictor.pressure.get().and_then(Weak::upgrade) else { return };
        for frame in frames {
            let header = self.header(*frame);
            let page = header.page();
            // An earlier one may have taken it in.
            if page != PageId::NONE && header.is_dirty() {
                pressure.offer(page);
            }
        }
    }

    /// Whether the page in a frame is newer than its slot. The answer may be old when it arrives.
    pub fn is_dirty(&self, frame: FrameId) -> bool {
        self.header(frame).is_dirty()
    }

    /// Enters, to give pages back, if that needs no wait, and there is room for what becomes dirty.
    pub fn try_enter_to_free(&self) -> Option<Entered<'_>> {
        if self.frozen.load(Relaxed) || self.check_poison().is_err() {
            return None;
        }
        if let Some(slots) = &self.slots
            && (slots.checkpoints().is_delta_full()
                || !slots.has_room(self.images_to_write(), Purpose::Take))
        {
            return None;
        }
        let stay = self.epochs().try_enter()?;
        // Inside, as in `enter_epoch`.
        self.check_open().ok()?;
        Some(Entered::without_log(stay))
    }
}
