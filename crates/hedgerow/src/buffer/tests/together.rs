//! Reads of several pages that are under way at the same time, on every platform.

use super::{change, fresh, pool_over};
use crate::error::Result;
use crate::page::{Access, Frames, PageSource, Pages, PoolSession};
use crate::storage::{DirectIo, Disk, File, LockOutcome, OpenMode, ReadRequest, WriteRequest};
use crate::testing::RamDisk;
use crate::types::PageId;
use hedgerow_sync::optimistic::WRITERS_PUBLISH;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::AtomicUsize;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use std::path::Path;

/// Knows the most reads that were asked for with one call.
#[derive(Debug)]
struct Counting {
    file: Arc<dyn File>,
    most: Arc<AtomicUsize>,
}

#[rustfmt::skip]
impl File for Counting {
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        self.most.fetch_max(requests.len(), Relaxed);
        self.file.read_batch(requests);
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.file.read_at(offset_bytes, buf) }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> { self.file.write_at(offset_bytes, buf) }
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> { self.file.write_batch(requests) }
    forwards_the_rest!();
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> { self.file.allocate(offset_bytes, len_bytes) }
}

/// Pages in the order of the list, and which of them were handed over.
struct Wanted {
    next: std::vec::IntoIter<PageId>,
    ready: Vec<PageId>,
}

impl PageSource for Wanted {
    fn next_page(&mut self) -> Option<PageId> {
        self.next.next()
    }

    fn page_ready(&mut self, id: PageId, outcome: Result<()>) {
        outcome.unwrap();
        self.ready.push(id);
    }
}

/// Where each page goes through a private copy, they were read one after the other.
#[test]
fn pages_that_are_wanted_together_are_read_together() {
    let file = RamDisk::new().open(Path::new("pool"), OpenMode::CreateNew, DirectIo::Never);
    let most = Arc::<AtomicUsize>::default();
    let counting = Counting { file: file.unwrap(), most: most.clone() };
    let pool = pool_over(Arc::new(counting), 256 << 10);
    let pages: Vec<_> = (0..8).map(|_| fresh(&pool)).collect();
    let ids: Vec<PageId> = pages.iter().map(|page| page.0).collect();
    let evict = || {
        for &id in &ids {
            if let Some(frame) = pool.translate(id) {
                // Only what was changed is written, and goes then.
                change(&pool, id);
                pool.header(frame).take_use();
                pool.write_back_cold(vec![frame]).unwrap();
            }
            assert_eq!(pool.translate(id), None);
        }
        most.store(0, Relaxed);
    };
    evict();
    pool.session().prefetch(&ids, Access::Point).unwrap();
    assert!(ids.iter().all(|id| pool.translate(*id).is_some()));
    assert_eq!(most.load(Relaxed), ids.len());
    evict();
    let mut wanted = Wanted { next: ids.clone().into_iter(), ready: Vec::new() };
    pool.session().fault_stream(&mut wanted, Access::Point).unwrap();
    wanted.ready.sort();
    assert_eq!(wanted.ready, ids);
    // Elsewhere they are a stream of reads, with some ahead all the time.
    assert!(!WRITERS_PUBLISH || most.load(Relaxed) == ids.len());
}
