//! Pieces of values in frames: what is found is what was kept, whoever takes the frames meanwhile.

use super::*;
use crate::buffer::large::PieceName;
use crate::large::Extent;
use crate::large::Held;
use hedgerow_sync::optimistic::PageBytes;

fn value(seed: u64, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at as u64 * 7 + seed * 31) as u8).collect()
}

/// A pool that lives in memory.
fn in_memory(extra_bytes: u64) -> BufferPool {
    let options = PoolOptions {
        memory_limit_bytes: smallest_limit_bytes(PAGE_BYTES) + extra_bytes,
        page_bytes: PAGE_BYTES,
        first_epoch: Epoch(1),
        checkpoint_bytes: 1 << 30,
        read_only: false,
        logged: false,
        first_lsn: crate::types::Lsn(0),
    };
    BufferPool::new(&options, None, PageIds::create()).unwrap()
}

fn kept(pool: &BufferPool, seed: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = b"before".to_vec();
    let is_there = pool.append_kept(seed, len, &mut bytes);
    assert!(bytes.starts_with(b"before") && (is_there || bytes.len() == 6));
    is_there.then(|| bytes.split_off(6))
}

/// Lengths around whole pieces.
const LENGTHS: [usize; 7] = [1, 511, 512, 513, 1024, 1500, 4000];

#[test]
fn what_is_kept_is_found_whole_and_in_part() {
    let pool = pool(1 << 20);
    for (seed, len) in (1..).zip(LENGTHS) {
        assert_eq!(kept(&pool, seed, len), None);
        pool.keep_value(seed, &value(seed, len), true);
        // A second time costs no frames.
        let free = pool.free_frames();
        pool.keep_value(seed, &value(seed, len), true);
        assert_eq!(pool.free_frames(), free);
    }
    for (seed, len) in (1..).zip(LENGTHS) {
        let whole = value(seed, len);
        assert_eq!(kept(&pool, seed, len).as_ref(), Some(&whole));
        for (from, to) in [(0, len), (len / 2, len), (len - 1, len), (len / 3, len / 2), (len, len)]
        {
            let mut part = vec![0; to - from];
            assert!(pool.copy_kept(seed, from as u64, &mut part));
            assert_eq!(part, whole[from..to]);
        }
        assert_eq!(kept(&pool, seed + 100, len), None, "nobody has kept this one");
    }
}

#[test]
fn a_long_value_that_was_read_takes_the_place_of_others_if_it_is_read_again_soon() {
    let pool = pool(1 << 20);
    let (frames, long) = (u64::from(pool.frames()), 9 * 512);
    assert!(pool.keeps_values_of(long as u64), "{frames}");
    pool.keep_read(1, &value(1, long));
    assert!(pool.has_kept(1, long as u64), "there was room");
    for seed in 100..100 + 2 * frames {
        pool.keep_value(seed, &value(seed, 500), false);
    }
    // A short one is kept at once.
    pool.keep_read(2, &value(2, 500));
    assert!(pool.has_kept(2, 500));
    pool.keep_read(3, &value(3, long));
    assert!(!pool.has_kept(3, long as u64));
    pool.keep_read(3, &value(3, long));
    assert_eq!(kept(&pool, 3, long), Some(value(3, long)));
    // What was read longer ago than memory would have kept it.
    pool.keep_read(4, &value(4, long));
    for seed in 0..frames / 9 + 1 {
        pool.keep_read(1000 + seed, &value(seed, long));
    }
    pool.keep_read(4, &value(4, long));
    assert!(!pool.has_kept(4, long as u64));
}

/// More than there is memory for: some are found, and those are right; and pages find frames all the same.
#[test]
fn pieces_give_way_to_each_other_and_to_pages() {
    let pool = pool(256 << 10);
    let frames = pool.frames() as u64;
    let mut seen = 0;
    for seed in 1..4 * frames {
        pool.keep_value(seed, &value(seed, 700), seed % 3 == 0);
        for older in [seed, seed.saturating_sub(5), seed / 2] {
            if let Some(found) = kept(&pool, older, 700) {
                assert_eq!(found, value(older, 700));
                seen += 1;
            }
        }
    }
    assert!(seen > frames, "{seen}");
    assert!(pool.free_frames() < 64);
    let pages: Vec<_> = (0..frames / 4).map(|_| fresh(&pool)).collect();
    let pieces = pool.used_frames().filter(|frame| pool.header(*frame).piece().is_some()).count();
    assert!(pieces as u64 <= frames - pages.len() as u64);
    let counted = pool.used_frames().filter(|frame| pool.header(*frame).is_free()).count();
    assert!(pool.free_frames() >= counted, "what is free was counted");
}

#[test]
fn a_value_that_takes_more_than_its_part_of_the_limit_is_not_kept() {
    let pool = pool(1 << 20);
    let most = (pool.budget().limit_bytes() / 64) as usize;
    pool.keep_value(1, &value(1, most), true);
    assert!(kept(&pool, 1, most).is_some());
    let free = pool.free_frames();
    pool.keep_value(2, &value(2, most + 1), true);
    assert_eq!((kept(&pool, 2, most + 1), pool.free_frames()), (None, free));
}

/// Nobody refers to it any more. Its memory was touched, so the next value costs no other.
#[test]
fn the_frames_of_a_value_that_was_replaced_are_free_and_go_to_the_next_one() {
    let pool = pool(1 << 20);
    let extent = |seed, len_bytes| Extent { len_bytes, seed, runs: Box::new([]) };
    pool.keep_value(1, &value(1, 300), true);
    pool.keep_value(2, &value(2, 4000), true);
    let frames_of = |seed| -> Vec<u32> {
        let is_of = |frame: &FrameId| pool.header(*frame).piece().is_some_and(|p| p.seed == seed);
        let mut frames: Vec<FrameId> = pool.used_frames().filter(is_of).collect();
        frames.sort_by_key(|frame| pool.header(*frame).piece().unwrap().number);
        frames.into_iter().map(|frame| frame.0).collect()
    };
    let (before, free) = (frames_of(2), pool.free_frames());
    assert!(before.is_sorted_by(|a, b| a + 1 == *b), "{before:?}");
    // Another value of that length is not in memory, and one that is read is not disturbed.
    pool.forget_value(&extent(3, 4000));
    assert_eq!(pool.free_frames(), free);
    pool.forget_value(&extent(2, 4000));
    assert_eq!((kept(&pool, 2, 4000), pool.free_frames()), (None, free + before.len()));
    assert_eq!(kept(&pool, 1, 300), Some(value(1, 300)));
    pool.keep_value(4, &value(4, 3900), true);
    assert_eq!((frames_of(4), pool.free_frames()), (before, free));
    assert_eq!(kept(&pool, 4, 3900), Some(value(4, 3900)));
    // Who has one latched keeps it.
    let latched = pool.header(FrameId(frames_of(4)[3])).latch.exclusive();
    pool.forget_value(&extent(4, 3900));
    assert_eq!(frames_of(4).len(), 1);
    latched.release_unchanged();
}

/// The frame may hold another piece by the time that its header is looked at.
#[test]
fn a_piece_of_another_value_is_not_taken_for_this_one() {
    let pool = pool(1 << 20);
    pool.keep_value(1, &value(1, 300), true);
    let held =
        |name| pool.used_frames().find(|frame| pool.header(*frame).piece() == Some(name)).unwrap();
    let frame = held(PieceName { seed: 1, number: 0 });
    let mut copies = 0;
    for (seed, number, is_it) in [(1, 0, true), (2, 0, false), (1, 1, false)] {
        let mut copy = |_: hedgerow_sync::optimistic::RacingBytes<'_>| copies += 1;
        assert_eq!(pool.copy_piece(frame, PieceName { seed, number }, &mut copy), is_it);
    }
    assert_eq!(copies, 1);
}

/// The frame may get another piece while its bytes are copied.
#[test]
fn what_was_copied_of_a_frame_that_was_taken_meanwhile_does_not_count() {
    let pool = pool(1 << 20);
    let name = PieceName { seed: 1, number: 0 };
    pool.keep_value(name.seed, &value(1, 300), true);
    let frame = pool.used_frames().find(|frame| pool.header(*frame).piece() == Some(name)).unwrap();
    let mut taken = [0; 300];
    let copied = pool.copy_piece(frame, name, &mut |bytes| {
        bytes.copy(0, &mut taken[..100]);
        let guard = pool.header(frame).latch.try_exclusive().unwrap();
        pool.evict_latched(frame);
        pool.fill_piece(frame, &guard, PieceName { seed: 2, number: 0 }, &value(2, 300));
        drop(guard);
        bytes.copy(100, &mut taken[100..]);
    });
    assert_ne!(taken[..], value(1, 300)[..]);
    assert!(!copied);
    assert_eq!(kept(&pool, 1, 300), None);
}

#[test]
fn a_store_in_memory_holds_values_until_they_are_released_and_refuses_more_than_it_has() {
    let pool = in_memory(256 << 10);
    let free = pool.free_frames();
    let mut held: Vec<Held> = Vec::new();
    let refused = loop {
        let seed = held.len() as u64 + 1;
        match pool.hold_value(&value(seed, LENGTHS[held.len() % LENGTHS.len()])) {
            Ok(one) => held.push(one),
            Err(error) => break error,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::MemoryLimit);
    assert!(
        held.len() > 50 && pool.free_frames() < 8,
        "what was begun was given back: {}",
        held.len()
    );
    for (at, one) in held.iter().enumerate() {
        let mut bytes = Vec::new();
        assert!(pool.append_held(one, &mut bytes));
        assert_eq!(bytes, value(at as u64 + 1, LENGTHS[at % LENGTHS.len()]));
        assert_eq!(Held::decode(&one.encode()).as_ref(), Some(one));
    }
    held.iter().for_each(|one| pool.release_held(one));
    assert_eq!(pool.free_frames(), free);
    // Who comes late finds nothing, and a second release is none.
    let again = pool.hold_value(&value(9, 4000)).unwrap();
    for one in &held {
        pool.release_held(one);
        assert!(!pool.append_held(one, &mut Vec::new()));
    }
    let foreign = Held { frames: vec![u32::MAX], ..again.clone() };
    assert!(!pool.append_held(&foreign, &mut Vec::new()));
    pool.release_held(&foreign);
    assert!(pool.append_held(&again, &mut Vec::new()));
}

/// Readers beside threads that keep values and take their frames: whatever is found is right.
#[test]
fn readers_beside_eviction_find_what_was_kept_or_nothing() {
    let pool = pool(128 << 10);
    let ended = Arc::new(AtomicBool::new(false));
    let keeper = |part: u64| {
        let (pool, ended) = (pool.clone(), ended.clone());
        spawn_named("keeps", move || {
            let mut seed = part;
            while !ended.load(Acquire) {
                seed = (seed + 2) % 400;
                pool.keep_value(seed, &value(seed, 900), seed.is_multiple_of(4));
            }
        })
        .unwrap()
    };
    let keepers = [keeper(0), keeper(1)];
    let mut found = 0;
    for n in 0..200_000_u64 {
        let seed = n * 7 % 400;
        if let Some(bytes) = kept(&pool, seed, 900) {
            assert!(bytes == value(seed, 900), "{seed}");
            found += 1;
        }
    }
    ended.store(true, Release);
    keepers.into_iter().for_each(joined);
    println!("found {found}");
    assert!(found > 0);
}
