//! Interleavings of the pool that once went wrong, each forced by hand.

/// Methods of a file that hands these on to its field `file`.
#[rustfmt::skip]
macro_rules! forwards_the_rest {
    () => {
        fn len_bytes(&self) -> Result<u64> { self.file.len_bytes() }
        fn set_len(&self, len_bytes: u64) -> Result<()> { self.file.set_len(len_bytes) }
        fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> { self.file.punch_hole(offset_bytes, len_bytes) }
        fn sync_data(&self) -> Result<()> { self.file.sync_data() }
        fn sync_all(&self) -> Result<()> { self.file.sync_all() }
        fn allocated_bytes(&self) -> Result<u64> { self.file.allocated_bytes() }
        fn block_bytes(&self) -> usize { self.file.block_bytes() }
        fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> { self.file.try_lock(exclusive) }
        fn is_at(&self, path: &Path) -> Result<bool> { self.file.is_at(path) }
        fn unlock(&self) -> Result<()> { self.file.unlock() }
        fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.file.read_unaligned(offset_bytes, buf) }
    };
}

mod contention;
mod hot;
mod lent;
mod parts;
mod pieces;
mod refused;
mod sound;
mod together;

use super::{BufferPool, PoolOptions, smallest_limit_bytes};
use crate::error::ErrorKind;
use crate::page::EpochStay;
use crate::page::{Access, ExclusivePage, FrameId, Journal, Pages, PoolSession};
use crate::space::geometry::Geometry;
use crate::space::image::PageForm;
use crate::space::map::MapRoot;
use crate::space::slot_store::{SlotStore, SpaceState};
use crate::space::{Deltas, PageIds, Zones};
use crate::storage::{DirectIo, Disk, File, OpenMode};
use crate::testing::RamDisk;
use crate::types::{Epoch, PART_WORDS, PageId, TreeId};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Release};
use hedgerow_sync::primitive::thread::{JoinHandle, sleep, spawn_named};
use hedgerow_sync::primitive::time::Moment;
use std::path::Path;
use std::time::Duration;

const PAGE_BYTES: usize = 512;

/// A pool of the smallest size, and `extra_bytes` more, over a file in memory; its background thread
/// does not run.
pub(super) fn pool(extra_bytes: u64) -> Arc<BufferPool> {
    let file = RamDisk::new().open(Path::new("pool"), OpenMode::CreateNew, DirectIo::Never);
    pool_over(file.unwrap(), extra_bytes)
}

/// The same over this file.
fn pool_over(file: Arc<dyn File>, extra_bytes: u64) -> Arc<BufferPool> {
    pool_of_pages(file, PAGE_BYTES, extra_bytes)
}

/// The same with pages of so many bytes.
fn pool_of_pages(file: Arc<dyn File>, page_bytes: usize, extra_bytes: u64) -> Arc<BufferPool> {
    pool_as(file, page_bytes, extra_bytes, false)
}

/// The same, and perhaps read only.
fn pool_as(
    file: Arc<dyn File>,
    page_bytes: usize,
    extra_bytes: u64,
    read_only: bool,
) -> Arc<BufferPool> {
    let state = SpaceState {
        zones: Zones::create(Geometry::for_new_store(page_bytes as u32, 1).unwrap()),
        deltas: Deltas::new(96 << 10),
        owed: Arc::default(),
        map: MapRoot::EMPTY,
        checkpoint: Epoch(0),
    };
    let slots = Arc::new(SlotStore::new(file, page_bytes, PageForm::whole(|_| Ok(())), state));
    let options = PoolOptions {
        memory_limit_bytes: smallest_limit_bytes(page_bytes) + extra_bytes,
        page_bytes,
        first_epoch: Epoch(1),
        checkpoint_bytes: 1 << 30,
        read_only,
        logged: true,
        first_lsn: crate::types::Lsn(0),
    };
    Arc::new(BufferPool::new(&options, Some(slots), PageIds::create()).unwrap())
}

/// Ends the epoch, and begins a checkpoint that is owed what is dirty now.
pub(super) fn begin_checkpoint(pool: &BufferPool) -> Epoch {
    let stopped = pool.epochs().stop();
    let epoch = stopped.ended();
    pool.owe(pool.slots.as_ref().unwrap(), epoch);
    drop(stopped);
    epoch
}

/// Changes a page that is in memory, as a writer does.
pub(super) fn change(pool: &BufferPool, id: PageId) {
    let stay = pool.enter().unwrap();
    let mut page = ExclusivePage::wait(pool, id, &mut || true).unwrap();
    page.write(stay.epoch());
}

/// A fresh page, dirty and in memory.
pub(super) fn fresh(pool: &BufferPool) -> (PageId, FrameId) {
    let mut session = pool.session();
    session.reserve(1).unwrap();
    let stay = pool.enter().unwrap();
    let page = session.take(TreeId(7), stay.epoch()).unwrap();
    (page.id(), page.frame())
}

/// The thread's result; fails the test instead of hanging with it.
fn joined<T>(thread: JoinHandle<T>) -> T {
    let since = Moment::now();
    while !thread.is_finished() {
        assert!(since.elapsed() < Duration::from_secs(5), "waits for what will not come");
        sleep(Duration::from_millis(1));
    }
    thread.join().unwrap()
}

/// Pages prefer frames that need not lie together: looks at all pages find them wherever they are.
#[test]
fn a_flush_finds_pages_in_frames_that_lie_apart() {
    let pool = pool(64 << 20);
    let frames = pool.frames();
    assert!(frames > 64 * 512, "more groups than a word has bits: {frames}");
    let mut pages = Vec::new();
    for target in [4, 5, 600, 40_000, frames - 1000] {
        while pool.ids().lock().next_id().unwrap().0 < target {
            pool.ids().lock().allocate().unwrap();
        }
        let (id, frame) = fresh(&pool);
        assert_eq!(frame, pool.preferred(id));
        pages.push(id);
    }
    let mut seen = Vec::new();
    pool.for_each_resident(&mut |id, _| seen.push(id));
    assert_eq!(seen, pages);
    assert!(pool.used_frames().count() <= 4 * 512, "groups that nobody used are not looked at");
    assert_eq!(pool.flush().unwrap(), pages.len() as u64);
    assert_eq!(pool.dirty_pages(), 0);
}

#[test]
fn a_flush_does_not_wait_for_a_frame_that_was_cleaned_and_taken() {
    let pool = pool(0);
    let (_, frame) = fresh(&pool);
    // A checkpoint has it on its list; then the page is written and evicted by the background, and an
    // operation takes the frame, which then waits for that checkpoint.
    pool.header(frame).take_use();
    pool.write_back_cold(vec![frame]).unwrap();
    assert!(pool.header(frame).is_free());
    let taken = pool.header(frame).latch.exclusive();
    let flush = {
        let pool = pool.clone();
        spawn_named("flush", move || pool.write_back_now(frame)).unwrap()
    };
    joined(flush).unwrap();
    drop(taken);
}

#[test]
fn a_waiter_for_a_page_leaves_when_its_frame_goes_to_another() {
    let pool = pool(0);
    let (id, frame) = fresh(&pool);
    // It was just used, so it is written and stays.
    pool.write_back_cold(vec![frame]).unwrap();
    assert!(!pool.header(frame).is_dirty());
    let taken = pool.header(frame).latch.exclusive();
    for exclusive in [true, false] {
        let waits = Arc::new(AtomicBool::new(false));
        let waiter = {
            let (pool, waits) = (pool.clone(), waits.clone());
            let wait = move || {
                let mut keep_waiting = || {
                    waits.store(true, Release);
                    true
                };
                if exclusive {
                    ExclusivePage::wait(&*pool, id, &mut keep_waiting).is_err()
                } else {
                    crate::page::SharedPage::wait(&*pool, id, &mut keep_waiting).is_err()
                }
            };
            spawn_named("waiter", wait).unwrap()
        };
        while !waits.load(Acquire) {
            sleep(Duration::from_millis(1));
        }
        // As an operation does that takes the frame for a reservation, and keeps it latched.
        let place = pool.table.place(id).unwrap();
        let (slot, _) = pool.header(frame).clean();
        pool.table.set(id, super::table::Place::Evicted(slot));
        assert!(joined(waiter), "latched a page that was not there");
        pool.table.set(id, place);
    }
    drop(taken);
}

#[test]
fn a_new_part_of_the_table_may_take_the_frames_that_its_own_operation_has_reserved() {
    // With 65 frames the last page of the first part prefers a frame that the second part will take.
    let pool = pool(600);
    assert_eq!(pool.budget().frames(), 65);
    let last = PageId(PART_WORDS as u32 - 1);
    pool.ensure_part(last).unwrap();
    let first_of_next = last.next().unwrap();
    assert_eq!(first_of_next.part(), last.part() + 1);
    while pool.ids().lock().next_id() != Some(last) {
        pool.ids().lock().allocate().unwrap();
    }
    let reserving = {
        let pool = pool.clone();
        let reserve = move || -> crate::error::Result<[PageId; 2]> {
            let mut session = pool.session();
            session.reserve(2)?;
            let stay = pool.enter()?;
            let pages = [0; 2].map(|_| session.take(TreeId(7), stay.epoch()).unwrap().id());
            drop(session);
            pool.session().fault(pages[0], Access::Point)?;
            Ok(pages)
        };
        spawn_named("reserve", reserve).unwrap()
    };
    assert_eq!(joined(reserving).unwrap(), [first_of_next, last]);
}

#[test]
fn no_change_is_accepted_once_the_pool_was_closed() {
    let pool = pool(0);
    drop(pool.enter().unwrap());
    pool.set_closed();
    assert!(pool.enter().is_err());
    // And whoever was refused has left.
    drop(pool.epochs().stop());
}

#[test]
fn a_page_of_an_epoch_yet_to_come_is_damage() {
    let pool = pool(0);
    let mut session = pool.session();
    session.reserve(1).unwrap();
    let page = session.take(TreeId(7), Epoch(u64::from(u32::MAX))).unwrap();
    let (id, frame) = (page.id(), page.frame());
    drop(page);
    drop(session);
    pool.header(frame).take_use();
    pool.write_back_cold(vec![frame]).unwrap();
    let error = pool.session().fault(id, Access::Point).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupted { .. }), "{error}");
}

#[cfg(feature = "tracing")]
#[test]
fn a_writer_that_waits_long_for_clean_frames_is_a_stall() {
    use crate::testing::events::events_of;
    let pool = pool(0);
    while !pool.is_too_dirty() {
        fresh(&pool);
    }
    let waiting = pool.clone();
    let waits = spawn_named("writer", move || {
        events_of(|| {
            let refused = waiting.wait_until_cleaner(&crate::wait::Waiting::Forever).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Closed);
        })
    });
    // Until it waits, and for longer than a stall takes.
    sleep(Duration::from_millis(300));
    pool.set_closed();
    let events = joined(waits.unwrap());
    let [stall] = &events[..] else { panic!("{events:?}") };
    assert_eq!((stall.target, stall.level), ("hedgerow::stall", tracing::Level::WARN));
    assert!(stall.number("waited_ms") >= 100 && stall.fields["waits_for"].contains("memory"));
}
