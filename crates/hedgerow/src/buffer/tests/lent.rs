//! Values lent in place: they stay what they were, and nobody waits for whoever is lent one.

use super::*;
use crate::buffer::Lent;
use crate::buffer::large::PieceName;
use crate::large::Extent;

/// Parts of the page table take one frame each.
const PAGE: usize = 4096;

fn pool(extra_bytes: u64) -> Arc<BufferPool> {
    let file = RamDisk::new().open(Path::new("pool"), OpenMode::CreateNew, DirectIo::Never);
    pool_of_pages(file.unwrap(), PAGE, extra_bytes)
}

fn value(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 7 + at as u64 / 251 + seed * 31) as u8).collect()
}

fn bytes_of(lent: &Lent<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    lent.append_to(&mut bytes);
    assert_eq!(bytes.len(), lent.len_bytes());
    assert!(lent.parts().all(|part| !part.is_empty()));
    bytes
}

fn extent(seed: u64, len_bytes: u64) -> Extent {
    Extent { len_bytes, seed, runs: Box::new([]) }
}

#[test]
fn what_is_lent_is_the_value_from_the_first_byte_to_the_last() {
    let pool = pool(16 << 20);
    for (seed, len) in (1..).zip([PAGE + 1, 2 * PAGE, 3 * PAGE - 1, 20 * PAGE + 7, 40 * PAGE]) {
        assert!(pool.lend_kept(seed, len).is_none(), "nobody has kept it");
        pool.keep_value(seed, &value(seed, len), true);
        let lent = pool.lend_kept(seed, len).unwrap();
        assert_eq!(bytes_of(&lent), value(seed, len));
        assert_eq!(lent.whole().map(<[u8]>::len), Some(len), "its frames are neighbours");
        // A second one may be lent the same.
        assert_eq!(bytes_of(&pool.lend_kept(seed, len).unwrap()), value(seed, len));
        assert!(pool.lend_kept(seed + 50, len).is_none());
        assert!(pool.lend_kept(seed, len + PAGE).is_none(), "not all of it is in memory");
    }
    pool.keep_value(99, &value(99, PAGE), true);
    assert!(pool.lend_kept(99, PAGE).is_none(), "one piece is better copied");
}

#[test]
fn a_short_value_is_read_where_it_lies_and_stays_meanwhile() {
    let pool = pool(1 << 20);
    let lent = || pool.pieces.as_ref().unwrap().lent.load(Acquire);
    for (seed, len) in (1..).zip([1, 100, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 4 * PAGE]) {
        assert!(pool.with_kept(seed, len, |_| ()).is_err(), "nobody has kept it");
        pool.keep_value(seed, &value(seed, len), false);
        let frames = len.div_ceil(PAGE) as u32;
        let read = pool.with_kept(seed, len, |found| {
            assert!(found == value(seed, len), "{len} bytes");
            assert_eq!(lent(), frames);
            // Whoever reads it may replace it, and use up the memory.
            pool.forget_value(&extent(seed, len as u64));
            for other in 2..4 * u64::from(pool.frames()) {
                pool.keep_value(1000 * seed + other, &value(other, PAGE), true);
            }
            assert!(found == value(seed, len), "{len} bytes, replaced");
            found.len()
        });
        assert_eq!(read.map_err(drop), Ok(len));
        assert_eq!(lent(), 0);
    }
    // A panic gives it back, too.
    pool.keep_value(50, &value(50, 2 * PAGE), true);
    let call = || pool.with_kept(50, 2 * PAGE, |_| panic!("as asked")).map_err(drop);
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err());
    assert_eq!(lent(), 0);
    pool.forget_value(&extent(50, 2 * PAGE as u64));
    assert!(pool.with_kept(50, 2 * PAGE, |_| ()).is_err(), "its frames could be freed");
    // It is longer, or not all of it is there.
    pool.keep_value(60, &value(60, 5 * PAGE), true);
    assert!(pool.with_kept(60, 5 * PAGE, |_| ()).is_err());
    pool.keep_value(61, &value(61, PAGE), true);
    assert!(pool.with_kept(61, PAGE + 1, |_| ()).is_err());
    assert_eq!(lent(), 0);
}

/// The frames that values leave behind are not neighbours, so the next value has several parts.
#[test]
fn a_value_whose_frames_are_no_neighbours_has_several_parts() {
    let pool = pool(4 << 20);
    for seed in 1..=30 {
        pool.keep_value(seed, &value(seed, 100), true);
    }
    for seed in (1..=30).step_by(3) {
        pool.forget_value(&extent(seed, 100));
    }
    let len = 6 * PAGE + 17;
    pool.keep_value(100, &value(100, len), true);
    let lent = pool.lend_kept(100, len).unwrap();
    assert!(lent.whole().is_none() && lent.parts().count() > 3);
    assert_eq!(bytes_of(&lent), value(100, len));
    drop(lent);
    pool.keep_value(101, &value(101, 4 * PAGE), true);
    assert!(pool.with_kept(101, 4 * PAGE, |_| ()).is_err(), "it is no slice");
    assert_eq!(pool.pieces.as_ref().unwrap().lent.load(Acquire), 0);
}

#[test]
fn a_lent_value_stays_as_it_is_when_it_is_replaced_and_its_memory_is_wanted() {
    let pool = pool(1 << 20);
    let len = 3 * PAGE + 9;
    pool.keep_value(1, &value(1, len), false);
    let lent = pool.lend_kept(1, len).unwrap();
    pool.forget_value(&extent(1, len as u64));
    for seed in 2..4 * u64::from(pool.frames()) {
        pool.keep_value(seed, &value(seed, 2 * PAGE), seed % 2 == 0);
    }
    assert_eq!(bytes_of(&lent), value(1, len));
    // It goes like any other piece from then on.
    drop(lent);
    for seed in 2..4 * u64::from(pool.frames()) {
        pool.keep_value(1000 + seed, &value(seed, 2 * PAGE), false);
    }
    assert!(pool.lend_kept(1, len).is_none());
    assert_eq!(pool.pieces.as_ref().unwrap().lent.load(Acquire), 0);
}

#[test]
fn no_more_than_a_sixteenth_of_the_frames_is_lent() {
    let pool = pool(8 << 20);
    for seed in 1..100 {
        pool.keep_value(seed, &value(seed, 2 * PAGE), true);
    }
    let most = pool.frames() as usize / 16;
    let lent: Vec<_> = (1..100).map_while(|seed| pool.lend_kept(seed, 2 * PAGE)).collect();
    assert_eq!(lent.len(), most / 2);
    let last = pool.with_kept(99, 2 * PAGE, |_| ());
    assert!(last.is_err(), "everything that may be is lent");
    drop(lent);
    assert!(pool.lend_kept(1, 2 * PAGE).is_some());
    assert_eq!(pool.pieces.as_ref().unwrap().lent.load(Acquire), 0);
}

/// The frame may hold another piece by the time that it is latched.
#[test]
fn a_frame_with_another_piece_is_not_lent() {
    let pool = pool(1 << 20);
    pool.keep_value(1, &value(1, 2 * PAGE), true);
    let name = |number| PieceName { seed: 1, number };
    let is_of = |frame: &FrameId| pool.header(*frame).piece() == Some(name(1));
    let frame = pool.used_frames().find(is_of).unwrap();
    assert!(pool.latch_piece(frame, name(1)).is_some());
    assert!(pool.latch_piece(frame, name(0)).is_none());
    assert!(pool.latch_piece(frame, PieceName { seed: 2, number: 1 }).is_none());
    assert!(pool.latch_piece(FrameId(u32::MAX), name(1)).is_none());
    assert!(pool.header(frame).latch.try_exclusive().is_some(), "none of them is left latched");
}

/// The page table takes the topmost frames, and those are the ones that values get first.
#[test]
fn the_page_table_grows_beside_a_lent_value_in_the_topmost_frames() {
    let pool = pool(1 << 20);
    let part = |number: usize| PageId((number * PART_WORDS + 9) as u32);
    let top = pool.frames();
    pool.keep_value(1, &value(1, 2 * PAGE), true);
    let is_top = |frame: &FrameId| frame.0 == top - 1 && pool.header(*frame).piece().is_some();
    assert!(pool.used_frames().any(|frame| is_top(&frame)));
    let lent = pool.lend_kept(1, 2 * PAGE).unwrap();
    let began = Moment::now();
    for number in 1..=3 {
        pool.ensure_part(part(number)).unwrap();
        assert!(pool.table.is_loaded(part(number).part()));
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(pool.part_space.lock().held, Some(FrameId(top - 1)), "nobody waits for it again");
    assert_eq!(bytes_of(&lent), value(1, 2 * PAGE));
    assert_eq!((pool.frames(), pool.retired_below()), (top, 3));
    assert_eq!(pool.frames_for_pages(), top - 3 - 2, "nobody waits for those");
    // The frames are given up for good, and counted.
    let retired = pool.used_frames().filter(|frame| pool.header(*frame).is_retired()).count();
    assert_eq!(retired, 3);
    drop(lent);
    for number in 4..=10 {
        pool.ensure_part(part(number)).unwrap();
    }
    assert!(pool.lend_kept(1, 2 * PAGE).is_none(), "its frames are the table's now");
    let left = pool.used_frames().filter(|frame| pool.header(*frame).is_retired()).count();
    assert_eq!(pool.retired_below() as usize, left);
    let usable = pool.frames() - pool.retired_below();
    assert_eq!(usable, top - 10, "each part has taken one frame");
    // Everything that is left can be had.
    let mut held = Vec::new();
    while let Some((frame, guard)) = pool.try_obtain_frame(PageId(9)) {
        assert!(frame.0 < pool.frames());
        held.push(guard);
    }
    assert_eq!(held.len(), usable as usize);
    drop(held);
}
