//! The pages that are in memory, for whoever checks them.
//!
//! Each is copied under a shared latch, which keeps its writers waiting for as long as a copy takes. What comes or
//! goes meanwhile is seen or not. Nothing is latched while the visitor runs. Any number of threads.

use crate::buffer::pool::BufferPool;
use crate::page::{Frames, Period, SharedPage};
use crate::types::PageId;
use std::cmp::Reverse;

impl BufferPool {
    /// What is known of the contention on pages in memory that threads contend for, or have contended for: most first, at most
    /// `most` of them.
    pub fn contended(&self, most: usize) -> Vec<(PageId, Period)> {
        let known = |frame| {
            let period = self.side(frame).contention.get();
            let is_known = period.contended() > 0 || period.is_hot() || period.splits() > 0;
            let id = self.header(frame).page();
            (is_known && id.is_usable()).then_some((id, period))
        };
        let mut pages: Vec<_> = self.used_frames().filter_map(known).collect();
        pages.sort_by_key(|(id, period)| {
            (Reverse((period.contended(), period.is_hot(), period.splits())), id.0)
        });
        pages.truncate(most);
        pages
    }

    /// A copy of a page, if it is in memory. The caller has latched nothing.
    pub fn resident_copy(&self, id: PageId) -> Option<Vec<u8>> {
        let page = SharedPage::wait(self, id, &mut || true).ok()?;
        Some(page.bytes().to_vec())
    }

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
