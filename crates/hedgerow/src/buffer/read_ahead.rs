//! Threads that read pages which scans will want, while the scans go on with those that are there.
//!
//! A scan says which pages come next and goes on at once. Up to two threads, started when first
//! needed, read them in batches; neighbours in the file are read with one call. A scan that comes to a
//! page which is still being read waits for it as for any other fault; one that was left out (no frame
//! is free, the read failed) it faults itself, and learns why.
//!
//! Invariant: the pages that wait for a thread are bounded, by [`MAX_WANTED`] and an eighth of the
//! clean frames, and so is what a thread takes at a time. `Send + Sync`.

use crate::buffer::ahead_queue::MAX_WANTED;
use crate::buffer::pool::BufferPool;
use crate::page::{Access, Pages, PoolSession};
use crate::types::PageId;
use hedgerow_sync::primitive::thread;

impl BufferPool {
    /// See [`Pages::read_ahead`].
    pub(super) fn ask_ahead(&self, ids: &[PageId]) -> bool {
        self.ahead.ask(ids, self.pages_ahead(MAX_WANTED), || {
            let pool = self.started()?;
            thread::spawn_named("hedgerow-ahead", move || pool.work_ahead()).ok()
        })
    }

    fn work_ahead(&self) {
        while let Some(ids) = self.ahead.next() {
            // What cannot be read says so to the scan that comes to it.
            if self.session().prefetch(&ids, Access::Scan).is_err() {
                continue;
            }
        }
    }
}
