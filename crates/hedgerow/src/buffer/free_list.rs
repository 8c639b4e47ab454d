//! Frames without a page, ready to take one.
//!
//! There are two kinds: frames that have lost their page, which are listed, and frames that were never handed out, which
//! are those from a mark on. So a new list is empty, whatever the number of frames.
//!
//! The list is advice, the frame's header is the truth: a frame may be taken by its preferred page
//! without being unlisted, so an entry that is popped is latched and looked at before it is used. A
//! flag in the side entry keeps a frame from being listed twice, so the list never grows beyond the
//! number of frames. The mark passes each frame once, listed or not. `Send + Sync`; nothing is done under the lock but a
//! push or a pop.

use crate::buffer::zeroed::ZeroedArray;
use crate::error::Result;
use crate::page::FrameId;
use hedgerow_sync::primitive::Mutex;
use hedgerow_sync::primitive::atomic::AtomicUsize;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire};

/// The list, and the number of frames without a page.
pub struct FreeList {
    listed: Mutex<Listed>,
    free: AtomicUsize,
}

struct Listed {
    /// A stack of frames.
    entries: ZeroedArray<u32>,
    len: usize,
    /// The frames from here on were never popped.
    fresh: u32,
}

/// A frame that was popped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Popped {
    /// It was listed; whoever popped it unmarks its side entry.
    Listed(FrameId),
    /// It was never popped before. Its side entry is as it was: the frame may be listed, too.
    Fresh(FrameId),
}

impl FreeList {
    /// All of `frames` frames are free, and none is listed.
    ///
    /// Errors: `MemoryLimit`.
    pub fn new(frames: u32) -> Result<FreeList> {
        let entries = ZeroedArray::new(frames as usize)?;
        Ok(FreeList {
            listed: Mutex::new(Listed { entries, len: 0, fresh: 0 }),
            free: AtomicUsize::new(frames as usize),
        })
    }

    /// Number of frames without a page.
    pub fn count(&self) -> usize {
        self.free.load(Acquire)
    }

    /// A frame has lost its page.
    pub fn count_up(&self) {
        self.free.fetch_add(1, AcqRel);
    }

    /// A frame without a page is being used.
    pub fn count_down(&self) {
        self.count_down_by(1);
    }

    /// So many frames without a page are being used.
    pub fn count_down_by(&self, frames: usize) {
        let before = self.free.fetch_sub(frames, AcqRel);
        debug_assert!(before >= frames, "a frame is taken once");
    }

    /// Lists a frame whose side entry was just marked as listed.
    pub fn push(&self, frame: FrameId) {
        let mut listed = self.listed.lock();
        let at = listed.len;
        listed.entries.items_mut()[at] = frame.0;
        listed.len += 1;
    }

    /// Takes a frame below `end`, one that is listed if there is any; the caller looks at the frame.
    pub fn pop(&self, end: u32) -> Option<Popped> {
        let mut listed = self.listed.lock();
        if let Some(last) = listed.len.checked_sub(1) {
            listed.len = last;
            return Some(Popped::Listed(FrameId(listed.entries.items()[last])));
        }
        if listed.fresh >= end {
            return None;
        }
        listed.fresh += 1;
        Some(Popped::Fresh(FrameId(listed.fresh - 1)))
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn listed_frames_come_before_fresh_ones_and_each_comes_once() {
        let list = FreeList::new(4).unwrap();
        let fresh = |frame| Some(Popped::Fresh(FrameId(frame)));
        let listed = |frame| Some(Popped::Listed(FrameId(frame)));
        assert_eq!(list.count(), 4);
        assert_eq!(list.pop(4), fresh(0));
        list.push(FrameId(3));
        list.push(FrameId(0));
        assert_eq!([list.pop(4), list.pop(4)], [listed(0), listed(3)]);
        // The last frame was given to the page table.
        assert_eq!([list.pop(3), list.pop(3), list.pop(3)], [fresh(1), fresh(2), None]);
        assert_eq!(list.pop(4), fresh(3));
        for frame in 0..4 {
            list.push(FrameId(frame));
        }
        assert_eq!(list.pop(4), listed(3));
    }
}
