//! What safe code may ask of a pool, and must not get: a page by the latch of another, or memory that is no page's.

use super::{PAGE_BYTES, fresh, pool, pool_over};
use crate::error::Result;
use crate::page::EpochStay;
use crate::page::header::PAGE_ID;
use crate::page::{
    Access, ExclusivePage, FrameId, Frames, Journal, OptimisticPage, PageSource, Pages, PoolSession,
};
use crate::storage::{
    DirectIo, Disk, File, LockOutcome, OpenMode, ReadRequest, ReadSource, WriteRequest,
};
use crate::testing::RamDisk;
use crate::types::{Epoch, PART_WORDS, PageId};
use hedgerow_sync::latch::HybridLatch;
use hedgerow_sync::optimistic::{PageBytes, WRITERS_PUBLISH};
use hedgerow_sync::primitive::Arc;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

fn panics<R>(what: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(|| drop(what()))).is_err()
}

/// On 95ca20c any guard would do: two of different latches lent one page twice.
#[test]
fn a_page_is_held_by_the_latch_of_its_own_frame_alone() {
    let (one, two) = (pool(0), pool(0));
    let ((a, frame), (_, other)) = (fresh(&one), fresh(&one));
    assert_eq!(fresh(&two), (a, frame), "another page by the same names");
    let nobodys = HybridLatch::new();
    for latch in [&one.head(other).latch, &two.head(frame).latch, &nobodys] {
        let held = latch.exclusive();
        assert!(panics(|| ExclusivePage::latched(&*one, frame, a, held)));
        let page = OptimisticPage::open(&*one, a, None).unwrap();
        assert!(panics(|| page.held(latch.exclusive())));
    }
    let guard = one.head(frame).latch.exclusive();
    let mut page = ExclusivePage::latched(&*one, frame, a, guard);
    assert_eq!(page.bytes_mut()[PAGE_ID..][..4], a.0.to_le_bytes());
    drop(page);
    let page = OptimisticPage::open(&*one, a, None).unwrap();
    let guard = page.latch_to_change().unwrap();
    assert_eq!(page.held(guard).bytes()[PAGE_ID..][..4], a.0.to_le_bytes());
}

/// On 95ca20c the frame of whoever had no latch came to the free list.
#[test]
fn a_page_is_freed_by_its_own_pool_alone() {
    let (one, two) = (pool(0), pool(0));
    let (id, frame) = fresh(&one);
    assert_eq!(fresh(&two), (id, frame));
    let stay = one.enter().unwrap();
    let page = ExclusivePage::wait(&*two, id, &mut || true).unwrap();
    assert!(panics(|| one.free(page, stay.epoch())));
    assert_eq!(one.translate(id), Some(frame));
    assert!(!one.header(frame).is_free());
}

/// On 95ca20c such a frame could be latched and wrapped like any other, and its bytes are words of the page table.
#[test]
fn a_frame_that_has_become_page_table_is_nobodys_page() {
    let pool = pool(0);
    let top = FrameId(pool.frames() - 1);
    let before = pool.head(top).latch.optimistic().unwrap();
    pool.ensure_part(PageId(PART_WORDS as u32 * 3 + 5)).unwrap();
    assert!(pool.frames() <= top.0 && pool.header(top).is_retired());
    let latch = &pool.head(top).latch;
    assert!(latch.try_exclusive().is_none() && latch.try_shared().is_none());
    assert!(latch.try_upgrade(before).is_none() && !latch.validate(before));
    assert!(latch.exclusive_while(&mut || false).is_none());
    assert!(pool.bytes(top).len() == PAGE_BYTES, "reading races with nobody who has a slice");
}

/// A file that hands a read back under the number of another, and has the other's buffer still.
#[derive(Debug)]
struct Mixing {
    file: Arc<dyn File>,
    /// How much of its buffer the read comes back with.
    part: Part,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    OfAnother,
    Half,
    Nothing,
}

#[rustfmt::skip]
impl File for Mixing {
    fn read_stream<'a>(&self, source: &mut dyn ReadSource<'a>) {
        let Some((first, one)) = source.next_read() else { return };
        let Some((_, other)) = source.next_read() else { return };
        let mut kept = None;
        let read = match self.part {
            Part::OfAnother => { kept = Some(one.buf); other }
            Part::Half => {
                let (half, rest) = one.buf.split_at_mut(PAGE_BYTES / 2);
                kept = Some(rest);
                ReadRequest { buf: half, ..one }
            }
            Part::Nothing => ReadRequest { buf: &mut [], ..one },
        };
        source.end_read(first, read);
        // Behind the back of whoever has the page by now.
        if let Some(bytes) = kept { bytes.fill(0xee); }
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.file.read_at(offset_bytes, buf) }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> { self.file.write_at(offset_bytes, buf) }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) { self.file.read_batch(requests); }
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> { self.file.write_batch(requests) }
    forwards_the_rest!();
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> { self.file.allocate(offset_bytes, len_bytes) }
}

struct Wanted(Vec<PageId>);

impl PageSource for Wanted {
    fn next_page(&mut self) -> Option<PageId> {
        self.0.pop()
    }

    fn page_ready(&mut self, _: PageId, _: Result<()>) {}
}

/// On 95ca20c the latch of the first page was released while the file had its bytes.
#[test]
fn a_file_that_mixes_up_its_reads_gets_no_page_that_somebody_else_has() {
    if WRITERS_PUBLISH {
        return;
    }
    for part in [Part::OfAnother, Part::Half, Part::Nothing] {
        let file = RamDisk::new().open(Path::new("pool"), OpenMode::CreateNew, DirectIo::Never);
        // Enough clean frames for two reads ahead of need.
        let pool = pool_over(Arc::new(Mixing { file: file.unwrap(), part }), 64 << 10);
        let pages: Vec<(PageId, FrameId)> = (0..2).map(|_| fresh(&pool)).collect();
        for &(_, frame) in &pages {
            pool.header(frame).take_use();
        }
        pool.write_back_cold(pages.iter().map(|page| page.1).collect()).unwrap();
        let mut wanted = Wanted(pages.iter().map(|page| page.0).collect());
        let mut session = pool.session();
        assert!(panics(|| session.fault_stream(&mut wanted, Access::Point)), "{part:?}");
        for (id, _) in pages {
            assert_eq!(pool.translate(id), None, "{part:?}: nobody has been shown the page");
        }
        assert_eq!(pool.enter().unwrap().epoch(), Epoch(1), "the pool goes on");
    }
}
