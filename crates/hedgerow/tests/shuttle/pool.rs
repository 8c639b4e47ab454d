//! The buffer pool under shuttle, without a tree: three pages that share one frame, and a thread or two
//! for each side of a rule. A few hundred steps, so that a window of one step is hit often.

use crate::{PAGE_BYTES, check_small, image_of, load, options, path};
use hedgerow::Result;
use hedgerow::internals::buffer::BufferPool;
use hedgerow::internals::buffer::smallest_limit_without_log_bytes;
use hedgerow::internals::page::{
    Access, EpochStay, FrameHead, FrameId, Frames as _, Journal as _, OptimisticPage, PageSource,
    Pages as _, PoolSession as _, Restart, header,
};
use hedgerow::internals::store::{OpenHow, Store, StoreOptions};
use hedgerow::internals::types::{PART_BYTES, PART_WORDS, PageId};
use hedgerow_sync::optimistic::PageBytes as _;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::thread::spawn_named;
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::SimState;
use shuttle::rand::{Rng, thread_rng};
use std::sync::OnceLock;

/// A schedule takes half a millisecond: there can be so many times more of them.
const TIMES: usize = 10;
/// In some 150 pages: three of them prefer the same of 64 frames.
const KEYS: u64 = 900;

/// The disk of a closed store with so many keys.
fn image() -> &'static SimState {
    static IMAGE: OnceLock<SimState> = OnceLock::new();
    IMAGE.get_or_init(|| image_of(options(), |db| load(db, KEYS)))
}

fn check(model: impl Fn() + Copy + Send + Sync + 'static) {
    image();
    check_small(TIMES, model);
}

/// Opens the store, none of whose pages is in memory then, and picks three that prefer one frame.
fn three_of_a_frame() -> (Store, [PageId; 3]) {
    let disk = SimDisk::with_state(image().clone(), thread_rng().r#gen());
    let options = StoreOptions {
        page_bytes: Some(PAGE_BYTES),
        background: false,
        ..StoreOptions::without_log(smallest_limit_without_log_bytes(PAGE_BYTES))
    };
    let store = Store::open(&options, &disk, path(), OpenHow::Existing).unwrap();
    let frames = store.pool().budget().frames();
    let ids = [0, 1, 2].map(|round| PageId(20 + round * frames));
    let frame = store.pool().expect_frame(ids[0]);
    assert!(ids.iter().all(|id| store.pool().expect_frame(*id) == frame));
    assert!(ids.iter().all(|id| store.pool().translate(*id).is_none()));
    // Loads their part of the page table.
    store.pool().session().fault(PageId::CATALOGUE_ROOT, Access::Scan).unwrap();
    (store, ids)
}

/// Brings a page into memory; it may go again as soon as this is done.
fn fault(pool: &BufferPool, id: PageId) {
    pool.session().fault(id, Access::Scan).unwrap();
}

/// Reads a page's name as an operation reads: through a guess, validated.
fn read(pool: &BufferPool, id: PageId) {
    match OptimisticPage::open(pool, id, None) {
        Ok(page) => {
            let name = page.bytes().u32_at(header::PAGE_ID);
            if page.validate().is_ok() {
                assert_eq!(PageId(name), id, "these are the bytes of another page");
            }
        }
        Err(Restart::Absent(absent)) => fault(pool, absent),
        Err(restart) => assert_eq!(restart, Restart::Conflict),
    }
}

/// Asserts, when nobody does anything, that each page is in one frame at most, where its word says.
fn assert_placed(pool: &BufferPool) {
    for frame in (0..pool.frames()).map(FrameId) {
        let id = pool.head(frame).page_id();
        if id != PageId::NONE {
            assert_eq!(pool.translate(id), Some(frame), "{id} is elsewhere");
        }
    }
}

/// What one thread does.
type Act = Box<dyn FnOnce(&BufferPool) + Send>;

/// Runs the threads to their ends, and checks what they leave.
fn run(threads: Vec<Act>, pool: &Arc<BufferPool>) {
    // A reader between two looks is to meet all that the others do.
    hedgerow_sync::primitive::linger::let_threads_linger();
    let running: Vec<_> = threads
        .into_iter()
        .map(|act| {
            let pool = Arc::clone(pool);
            spawn_named("pool", move || act(&pool)).unwrap()
        })
        .collect();
    for thread in running {
        thread.join().unwrap();
    }
    assert_placed(pool);
}

#[test]
fn a_frame_that_changes_its_page_deceives_no_reader() {
    check(|| {
        let (store, [a, b, c]) = three_of_a_frame();
        fault(store.pool(), a);
        let reader = move |pool: &BufferPool| (0..4).for_each(|_| read(pool, a));
        let others = move |pool: &BufferPool| [b, a, c].into_iter().for_each(|id| fault(pool, id));
        run(vec![Box::new(reader), Box::new(others)], store.pool());
    });
}

/// Frames that a part of the page table takes, from the top of those that are left.
const OF_A_PART: u32 = (PART_BYTES / PAGE_BYTES) as u32;
/// A page whose part is not loaded.
const ELSEWHERE: PageId = PageId(PART_WORDS as u32 + 100);

#[test]
fn a_frame_that_becomes_page_table_deceives_no_reader() {
    check(|| {
        let (store, _) = three_of_a_frame();
        let pool = store.pool();
        let frames = pool.frames();
        let goes_next =
            |id: &PageId| pool.expect_frame(*id).is_some_and(|frame| frame.0 >= frames - OF_A_PART);
        let id = (20..20 + frames).map(PageId).find(goes_next).unwrap();
        fault(pool, id);
        assert!(pool.translate(id).is_some_and(|frame| frame.0 >= frames - OF_A_PART));
        let reader = move |pool: &BufferPool| (0..4).for_each(|_| read(pool, id));
        // Needs the part, and so the frames, which it writes over; and finds nothing there.
        let other = |pool: &BufferPool| assert_eq!(pool.slot_of(ELSEWHERE).unwrap(), None);
        run(vec![Box::new(reader), Box::new(other)], pool);
        assert_eq!(pool.frames(), frames - OF_A_PART);
    });
}

#[test]
fn a_frame_that_is_changed_keeps_its_page() {
    check(|| {
        let (store, [a, b, c]) = three_of_a_frame();
        fault(store.pool(), a);
        let epoch = store.pool().epochs().current();
        let changed = Arc::new(AtomicBool::new(false));
        let writer = {
            let changed = Arc::clone(&changed);
            move |pool: &BufferPool| {
                let stay = pool.enter().unwrap();
                let page = OptimisticPage::open(pool, a, None);
                if let Ok(mut page) = page.and_then(OptimisticPage::upgrade) {
                    page.write(stay.epoch());
                    changed.store(true, Relaxed);
                }
            }
        };
        let others = move |pool: &BufferPool| [b, c].into_iter().for_each(|id| fault(pool, id));
        run(vec![Box::new(writer), Box::new(others)], store.pool());
        // Nobody writes pages back here, so a changed one stays.
        if changed.load(Relaxed) {
            let page = OptimisticPage::open(&**store.pool(), a, None).expect("it is there");
            assert_eq!(page.bytes().u64_at(header::EPOCH), epoch.0, "the change is there");
        }
    });
}

#[test]
fn a_page_that_several_ask_for_is_in_one_frame() {
    check(|| {
        let (store, [a, b, _]) = three_of_a_frame();
        let asker = move |pool: &BufferPool| {
            fault(pool, a);
            read(pool, a);
        };
        let other = move |pool: &BufferPool| fault(pool, b);
        run(vec![Box::new(asker), Box::new(asker), Box::new(other)], store.pool());
    });
}

/// Asks for some pages at once, and reads each when it is there.
struct Wanted<'p> {
    pool: &'p BufferPool,
    ids: Vec<PageId>,
    missing: usize,
}

impl PageSource for Wanted<'_> {
    fn next_page(&mut self) -> Option<PageId> {
        self.ids.pop()
    }

    fn page_ready(&mut self, id: PageId, outcome: Result<()>) {
        outcome.unwrap();
        self.missing -= 1;
        // It may be gone again, but another page never passes for it.
        if let Ok(page) = OptimisticPage::open(self.pool, id, None) {
            let name = page.bytes().u32_at(header::PAGE_ID);
            assert!(page.validate().is_err() || PageId(name) == id);
        }
    }
}

#[test]
fn streams_that_want_the_same_pages_in_other_orders_end() {
    check(|| {
        let (store, [a, b, c]) = three_of_a_frame();
        let stream = |ids: [PageId; 3]| {
            move |pool: &BufferPool| {
                let mut wanted = Wanted { pool, ids: ids.to_vec(), missing: ids.len() };
                pool.session().fault_stream(&mut wanted, Access::Point).unwrap();
                assert_eq!(wanted.missing, 0);
            }
        };
        let other = move |pool: &BufferPool| [b, a].into_iter().for_each(|id| fault(pool, id));
        let acts: [Act; 3] =
            [Box::new(stream([a, b, c])), Box::new(stream([c, b, a])), Box::new(other)];
        run(acts.into(), store.pool());
    });
}
