//! Frames without a page, ready to take one.
//!
//! The list is advice, the frame's header is the truth: a frame may be taken by its preferred page
//! without being unlisted, so an entry that is popped is latched and looked at before it is used. A
//! flag in the side entry keeps a frame from being listed twice, so the list never grows beyond the
//! number of frames. `Send + Sync`; nothing is done under the lock but a push or a pop.

use crate::page::FrameId;
use hedgerow_sync::primitive::Mutex;
use hedgerow_sync::primitive::atomic::AtomicUsize;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire};

/// The list, and the number of frames without a page.
pub struct FreeList {
    listed: Mutex<Vec<FrameId>>,
    free: AtomicUsize,
}

impl FreeList {
    /// An empty list over `frames` frames, all of which count as free.
    pub fn new(frames: u32) -> FreeList {
        FreeList {
            listed: Mutex::new(Vec::with_capacity(frames as usize)),
            free: AtomicUsize::new(frames as usize),
        }
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
        let before = self.free.fetch_sub(1, AcqRel);
        debug_assert!(before > 0, "a frame is taken once");
    }

    /// Lists a frame whose side entry was just marked as listed.
    pub fn push(&self, frame: FrameId) {
        self.listed.lock().push(frame);
    }

    /// Takes an entry; the caller unmarks the side entry and looks at the frame.
    pub fn pop(&self) -> Option<FrameId> {
        self.listed.lock().pop()
    }
}
