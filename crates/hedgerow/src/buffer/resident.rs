//! The pages that are in memory, for whoever checks them.
//!
//! Each is copied under a shared latch, which keeps its writers waiting for as long as a copy takes. What comes or
//! goes meanwhile is seen or not. Nothing is latched while the visitor runs. Any number of threads.

use crate::buffer::pool::BufferPool;
use crate::page::{PagePool, SharedPage};
use crate::types::PageId;

impl BufferPool {
    /// Shows a copy of every page that is in memory.
    pub fn for_each_resident(&self, visit: &mut dyn FnMut(PageId, &[u8])) {
        let mut copy = vec![0; self.page_bytes()];
        for frame in self.used_frames() {
            let id = self.header(frame).page();
            if !id.is_usable() {
                continue;
            }
            // A page that is being read, has gone, or has come to another frame is not waited for.
            let Ok(page) = SharedPage::wait(self, id, &mut || true) else { continue };
            copy.copy_from_slice(page.bytes());
            drop(page);
            visit(id, &copy);
        }
    }
}
