//! The page table grows whatever is in the topmost frames, so that pages can be read of which nobody knew a word.

use super::refused::Full;
use super::*;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// Parts of the page table take one frame each.
const PAGE: usize = 4096;

fn far(number: usize) -> PageId {
    PageId((PART_WORDS * number) as u32 + 5)
}

/// The next id that is given out prefers the topmost frame.
fn aim_at_top(pool: &BufferPool) -> FrameId {
    // The part of the first ids takes a frame itself.
    pool.ensure_part(PageId(9)).unwrap();
    let top = FrameId(pool.frames() - 1);
    while pool.preferred(pool.ids().lock().next_id().unwrap()) != top {
        pool.ids().lock().allocate().unwrap();
    }
    top
}

/// While a page could not be written, on a full disk, or after a failure, or because nothing may be, no part of the page table could be loaded
/// once there was such a page in the topmost frame: reads of all that lay there failed, for good.
#[test]
fn pages_are_found_while_the_one_in_the_topmost_frame_cannot_be_written() {
    for how in ["a failure", "a full disk", "read only"] {
        let (file, is_full) = Full::new();
        let pool = pool_as(Arc::new(file), PAGE, 0, how == "read only");
        let top = aim_at_top(&pool);
        let (id, frame) = pool.change_in_memory(|| fresh(&pool));
        assert_eq!(frame, top, "{how}");
        match how {
            "a failure" => pool.set_poisoned(&crate::error::Error::new(ErrorKind::Io, how)),
            "a full disk" => is_full.store(true, Relaxed),
            _ => {}
        }
        let loaded = pool.table_parts();
        for number in 1..=3 {
            pool.ensure_part(far(number)).unwrap_or_else(|error| panic!("{how}: {error}"));
            assert!(pool.table.is_loaded(far(number).part()));
        }
        assert_eq!(pool.table_parts(), loaded + 3);
        assert_eq!((pool.frames(), pool.retired_below()), (top.0 + 1, 3), "{how}");
        assert!(pool.header(top).is_dirty() && pool.header(top).page() == id, "{how}");
        // The last clean frames are for whoever knows where his pages are.
        let others = pool.frames_for_pages() as usize - pool.dirty_pages() - 8;
        pool.dirty.fetch_add(others, Relaxed);
        pool.ensure_part(far(4)).unwrap_err();
        pool.dirty.fetch_sub(others, Relaxed);
        pool.ensure_part(far(4)).unwrap();
        is_full.store(false, Relaxed);
        if how == "a full disk" {
            // It goes as soon as it can be written.
            pool.ensure_part(far(5)).unwrap();
            assert!(pool.header(top).is_retired() && pool.frames() == top.0);
        }
    }
}

/// Whoever splits a leaf may wait for a checkpoint for a minute, with frames that it has reserved. Readers of all that lay in parts of the
/// table that were not loaded waited behind each other for ten seconds, and failed.
#[test]
fn nobody_waits_for_whoever_has_reserved_the_topmost_frame() {
    let file = RamDisk::new().open(Path::new("pool"), OpenMode::CreateNew, DirectIo::Never);
    let pool = pool_of_pages(file.unwrap(), PAGE, 0);
    let top = aim_at_top(&pool);
    let mut session = pool.session();
    session.reserve(1).unwrap();
    assert!(pool.header(top).latch.try_shared().is_none(), "it is reserved");
    let reader = {
        let pool = pool.clone();
        let read = move || {
            let since = Moment::now();
            (1..=3).for_each(|number| pool.ensure_part(far(number)).unwrap());
            since.elapsed()
        };
        spawn_named("reader", read).unwrap()
    };
    assert!(joined(reader) < Duration::from_secs(2));
    assert_eq!(pool.retired_below(), 3);
    drop(session);
    pool.ensure_part(far(4)).unwrap();
    assert!(pool.header(top).is_retired());
}

/// Whoever touched a page in a part that was not loaded waited for the buffer of a checkpoint, which lets go of it for microseconds.
#[test]
fn a_changed_page_in_the_topmost_frame_is_written_beside_a_checkpoint() {
    let file = RamDisk::new().open(Path::new("pool"), OpenMode::CreateNew, DirectIo::Never);
    let pool = pool_of_pages(file.unwrap(), PAGE, 0);
    let top = aim_at_top(&pool);
    let (_, frame) = fresh(&pool);
    assert!(frame == top && pool.header(top).is_dirty());
    let flushing = pool.flush_buffer();
    let is_loaded = Arc::new(AtomicBool::new(false));
    let reader = {
        let (pool, is_loaded) = (pool.clone(), is_loaded.clone());
        let load = move || {
            pool.ensure_part(far(1)).unwrap();
            is_loaded.store(true, Relaxed);
        };
        spawn_named("reader", load).unwrap()
    };
    let since = Moment::now();
    while !is_loaded.load(Relaxed) && since.elapsed() < Duration::from_secs(20) {
        sleep(Duration::from_millis(1));
    }
    let waited = !is_loaded.load(Relaxed);
    drop(flushing);
    joined(reader);
    assert!(!waited, "it waited for the checkpoint's buffer");
    assert!(pool.header(top).is_retired());
}
