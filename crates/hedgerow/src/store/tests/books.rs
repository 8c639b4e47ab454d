//! What checkpoints and openings say of themselves: how much was written, how much is to be read, and what pages are
//! checked for.

use super::*;
use crate::page::Values;
use crate::space::shrink::TailZone;
use crate::storage::{DirectIo, OpenMode};
use crate::store::checkpoint::Taken;
use crate::store::log_path;
use crate::store::open::check_page;
use crate::types::{Epoch, TreeId};
use crate::wal::block::SegmentSize;
use crate::wal::log::PREPARED_SEGMENTS;

fn key(n: usize) -> Vec<u8> {
    format!("key {n:05}").into_bytes()
}

fn take(store: &Store) -> Taken {
    let shared = &store.shared;
    let slots = shared.slots.as_ref().unwrap();
    let mut newest = shared.checkpointing.lock();
    let taken = shared.take(slots, &mut newest, false);
    slots.checkpoint_ended(taken.as_ref().map(|_| ()));
    taken.unwrap()
}

fn dirty_bytes(store: &Store) -> u64 {
    store.pool().dirty_pages() as u64 * store.page_bytes() as u64
}

#[test]
fn a_checkpoint_says_how_much_it_wrote_and_how_much_had_changed() {
    let (_disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    assert!(wrens.id() > TreeId::CATALOGUE, "it is the catalogue's");
    for n in 0..200 {
        wrens.put(&key(n), &[7; 40]).unwrap();
    }
    let dirty = dirty_bytes(&store);
    let first = take(&store);
    assert_eq!((first.written_bytes, first.changed_bytes), (dirty, dirty));
    // A large value is written when it is put, and counts with the checkpoint that makes it durable.
    put_large(&store, &wrens, b"song", 9000);
    let dirty = dirty_bytes(&store);
    let second = take(&store);
    let large = second.written_bytes - dirty;
    assert!((9000..9000 + 1024).contains(&large), "{large}");
    assert_eq!(second.changed_bytes, second.written_bytes);
    // What is freed has changed, and is not written.
    wrens.remove(b"song").unwrap();
    let dirty = dirty_bytes(&store);
    let third = take(&store);
    assert_eq!((third.written_bytes, third.changed_bytes), (dirty, dirty + large));
    let nothing = take(&store);
    assert_eq!((nothing.written_bytes, nothing.changed_bytes), (0, 0));
}

#[test]
fn a_file_is_cut_as_far_as_the_dirty_pages_leave_room() {
    let (_disk, store) = new_store();
    let slots = store.shared.slots.as_ref().unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..20_000 {
        wrens.put(&key(n), &[7; 40]).unwrap();
    }
    take(&store);
    wrens.remove_range(b"", None).unwrap();
    // What was freed is used again two checkpoints later.
    for n in 0..12 {
        wrens.put(&key(n), b"something has to change").unwrap();
        take(&store);
    }
    for n in 0..4000 {
        wrens.put(&key(n), &[7; 40]).unwrap();
    }
    let (whole, dirty) = (slots.report(), dirty_bytes(&store));
    assert!(dirty > 100 * 512 && whole.free_bytes > 4 * dirty, "{dirty} {whole:?}");
    store.shared.truncate(slots, 0, false).unwrap();
    let cut = slots.report();
    assert!(cut.file_bytes < whole.file_bytes, "{cut:?}");
    assert!(cut.free_bytes >= dirty, "{dirty} {cut:?}");
    take(&store);
    assert!(is_clean(&store));
}

#[test]
fn a_file_keeps_its_length_while_everything_is_overwritten_and_is_cut_when_that_ends() {
    let (_disk, store) = new_store();
    let slots = store.shared.slots.as_ref().unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    let overwrite = |round: u8| {
        for n in 0..20_000 {
            wrens.put(&key(n), &[round; 40]).unwrap();
        }
    };
    let file_bytes = || slots.report().file_bytes;
    for round in 0..3 {
        overwrite(round);
        store.shared.checkpoint(false).unwrap();
    }
    let long = file_bytes();
    for round in 3..6 {
        overwrite(round);
        store.shared.checkpoint(false).unwrap();
        assert!((long..long / 8 * 9).contains(&file_bytes()), "{} of {long}", file_bytes());
    }
    // Two small checkpoints tell that it is over.
    for n in 0..2 {
        wrens.put(&key(n), b"a last song").unwrap();
        store.shared.checkpoint(false).unwrap();
    }
    assert!(file_bytes() < long / 4 * 3, "{} of {long}", file_bytes());
    // One that was asked for goes by what is there.
    overwrite(6);
    let long = file_bytes();
    store.shared.checkpoint(true).unwrap();
    assert!(file_bytes() < long / 4 * 3, "{} of {long}", file_bytes());
    assert!(is_clean(&store));
}

#[test]
fn all_pages_are_read_if_many_are_needed_and_none_if_few_are() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..20_000 {
        wrens.put(&key(n), &[7; 40]).unwrap();
    }
    store.close().unwrap();
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let pages = {
        let ids = store.pool().ids().lock();
        u64::from(ids.next_id().unwrap().0) - ids.free_count()
    };
    let faults = || store.pool().counters().values().faults;
    let before = faults();
    assert!(!store.shared.preload(10, 2).unwrap());
    assert_eq!(faults(), before);
    assert!(store.shared.preload(1_000_000, 2).unwrap());
    // Some ids are set aside for pages to come.
    assert!(faults() - before >= pages - 64, "{} of {pages}", faults() - before);
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    let read = faults();
    assert!((0..20_000).all(|n| wrens.contains_key(&key(n)).unwrap()));
    assert_eq!(faults(), read, "all of them are there");
}

#[test]
fn stores_without_large_values_expect_none() {
    let (disk, store) = new_store();
    store.create_keyspace("wrens").unwrap();
    store.close().unwrap();
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    assert!(!store.pool().has_stored_forms());
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    put_large(&store, &wrens, b"song", 9000);
    store.close().unwrap();
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    assert!(store.pool().has_stored_forms());
}

#[test]
fn a_page_that_no_engine_writes_is_refused_when_it_is_read() {
    assert!(check_page(&[0xff; 512]).is_err());
    let mut leaf = [0; 512];
    crate::page::header::initialise(&mut leaf, crate::PageId(7), TreeId(1));
    crate::node::NodeMut::format(
        &mut leaf,
        crate::page::header::PageKind::ComparisonLeaf,
        0,
        None,
        None,
    );
    check_page(&leaf).unwrap();
    // More records than there is room for.
    leaf[crate::page::header::KIND + 1..64].fill(0xff);
    assert!(check_page(&leaf).is_err());
}

#[test]
fn a_checkpoint_is_due_after_half_the_memory_and_16_mib_at_least() {
    let due = |limit_mib: u64, asked: Option<u64>| {
        let limit =
            StoreOptions { checkpoint_bytes: asked, ..StoreOptions::without_log(limit_mib << 20) };
        limit.pool(4096, Epoch(1), crate::types::Lsn(0), false).checkpoint_bytes
    };
    assert_eq!((due(100, None), due(20, None)), (50 << 20, 16 << 20));
    assert_eq!(due(100, Some(12345)), 12345);
}

#[test]
fn what_stays_free_in_the_middle_of_a_file_gets_holes_but_for_a_part_that_is_kept_solid() {
    let (_disk, store) = new_store();
    let slots = store.shared.slots.as_ref().unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    put_large(&store, &wrens, b"song", 10 << 20);
    take(&store);
    wrens.remove(b"song").unwrap();
    for n in 0..3 {
        wrens.put(&key(n), b"something has to change").unwrap();
        take(&store);
    }
    let before = slots.report();
    assert_eq!(before.hole_bytes, 0);
    store.shared.punch(slots, 0).unwrap();
    let after = slots.report();
    assert_eq!(after.file_bytes, before.file_bytes);
    assert!((1 << 20..=3 << 20).contains(&after.hole_bytes), "{after:?}");
}

#[test]
fn a_page_that_is_moved_is_dirty_afterwards_and_one_that_is_free_or_damaged_is_passed() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..2000 {
        wrens.put(&key(n), &[7; 40]).unwrap();
    }
    store.close().unwrap();
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let (pool, shared) = (store.pool(), &store.shared);
    let in_use: Vec<_> =
        (2..100).map(crate::PageId).filter(|id| pool.slot_of(*id).unwrap().is_some()).collect();
    let (moved, damaged) = (in_use[10], in_use[20]);
    assert_eq!(pool.dirty_pages(), 0);
    shared.rewrite(moved).unwrap();
    assert_eq!(pool.dirty_pages(), 1);
    let free =
        (2..1000).map(crate::PageId).find(|id| pool.slot_of(*id).unwrap().is_none()).unwrap();
    shared.rewrite(free).unwrap();
    assert_eq!(pool.dirty_pages(), 1);
    let file = disk.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    file.write_at(pool.slot_of(damaged).unwrap().unwrap().offset_bytes(), &[1; 512]).unwrap();
    shared.rewrite(damaged).unwrap();
    assert_eq!(pool.dirty_pages(), 1);
}

#[test]
fn all_pages_of_a_zone_are_moved_however_large_it_is() {
    let disk = SimDisk::new(1);
    let options = StoreOptions { zone_bytes: Some(1 << 20), ..options() };
    let store = open(&options, &disk, OpenHow::New).unwrap();
    let slots = store.shared.slots.as_ref().unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..15_000 {
        wrens.put(&key(n), &[7; 40]).unwrap();
    }
    take(&store);
    let end = slots.report().file_bytes;
    let len_bytes = end - end % (256 << 10);
    let zone = TailZone { zone: 0, offset_bytes: 0, len_bytes, held_bytes: end };
    let pages = (1..5000).map(crate::PageId);
    let in_use =
        pages.filter(|id| store.pool().slot_of(*id).is_ok_and(|slot| slot.is_some())).count();
    assert!(in_use > 1000 && store.pool().dirty_pages() == 0);
    let pages = store.shared.pages_in_zone(slots, zone).unwrap();
    store.shared.move_pages(&pages).unwrap();
    assert_eq!(store.pool().dirty_pages(), in_use);
}

#[test]
fn an_opening_reads_all_pages_if_the_log_has_as_many_changes_and_few_if_it_has_few() {
    for (changes, reads_all) in [(20_000, true), (50, false)] {
        let disk = SimDisk::new(1);
        let store = open(&logged(), &disk, OpenHow::New).unwrap();
        let wrens = store.create_keyspace("wrens").unwrap();
        for n in 0..20_000 {
            wrens.put(&key(n), &[7; 40]).unwrap();
        }
        store.checkpoint().unwrap();
        // All in a few pages, which an opening does not know.
        for n in 0..changes {
            wrens.put(&key(n % 50), &[8; 40]).unwrap();
        }
        store.flush_log().unwrap();
        let store = open(&logged(), &disk.crash(1), OpenHow::Existing).unwrap();
        assert_eq!(store.replayed().records, changes as u64);
        let faults = store.pool().counters().values().faults;
        assert_eq!(faults > 2000, reads_all, "{faults} pages");
        assert!(reads_all || faults < 200, "{faults} pages");
        assert!(is_clean(&store));
    }
}

/// What a power cut leaves of a store whose log has so many records that no checkpoint has.
fn crashed_with(records: usize) -> SimDisk {
    let disk = SimDisk::new(1);
    let store = open(&logged(), &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..records {
        wrens.put(&key(n), &[7; 40]).unwrap();
    }
    store.flush_log().unwrap();
    disk.crash(1)
}

#[test]
fn a_log_that_takes_the_place_of_a_longer_one_has_the_room_of_a_new_one() {
    let (options, disk) = (logged(), crashed_with(2000));
    let log_bytes = || disk.state().contents(&log_path(path())).map_or(0, |log| log.len() as u64);
    let segment = SegmentSize { blocks: options.log_segment_blocks.unwrap() };
    let of_a_new_one = segment.place_offset_bytes(PREPARED_SEGMENTS);
    assert!(log_bytes() > 2 * of_a_new_one, "{} bytes", log_bytes());
    let store = open(&options, &disk, OpenHow::Existing).unwrap();
    assert_eq!(log_bytes(), of_a_new_one);
    assert!(store.replayed().records >= 2000);
}

#[test]
fn a_store_that_is_to_have_no_log_keeps_what_was_in_it_and_removes_it() {
    let disk = crashed_with(100);
    assert!(disk.state().contents(&log_path(path())).is_some());
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    assert!(store.replayed().records >= 100);
    assert!(disk.state().contents(&log_path(path())).is_none());
    drop(store);
    let store = open(&options(), &disk.crash(2), OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    assert!((0..100).all(|n| wrens.get(&key(n)).unwrap().is_some()));
}

/// A large commit that had closed the gate kept all writers waiting for all of them.
#[test]
fn a_file_gets_no_shorter_while_somebody_waits_for_a_pin() {
    let (_disk, store) = new_store();
    let store = Arc::new(store);
    let shared = &store.shared;
    for name in ["robins", "wrens"] {
        let birds = store.create_keyspace(name).unwrap();
        for n in 0..30_000 {
            birds.put(&key(n), &[7; 40]).unwrap();
            if n % 5_000 == 0 {
                take(&store);
            }
        }
    }
    store.drop_keyspace("robins").unwrap();
    while take(&store).changed_bytes > 0 {}
    let file_bytes = || store.space_report().unwrap().file_bytes;
    let (before, checkpoint) = (file_bytes(), store.durable_checkpoint());
    let awaits = shared.await_pin();
    assert!(shared.checkpoint(true).unwrap());
    assert_eq!(store.durable_checkpoint(), checkpoint, "no pass was made");
    let repacking = {
        let store = store.clone();
        thread::spawn_named("repacks", move || store.repack(|| true)).unwrap()
    };
    thread::sleep(Duration::from_millis(100));
    assert_eq!(store.durable_checkpoint(), checkpoint, "no zone was emptied");
    drop(awaits);
    repacking.join().unwrap().unwrap();
    shared.checkpoint(true).unwrap();
    let passes = store.durable_checkpoint().0 - checkpoint.0;
    assert!(passes > 3 && file_bytes() < before * 3 / 4, "{passes} passes");

    let newest = shared.checkpointing.lock();
    let pinning = {
        let store = store.clone();
        thread::spawn_named("pins", move || drop(store.shared.pin().unwrap())).unwrap()
    };
    let is_seen = (0..5_000).any(|_| {
        thread::sleep(Duration::from_millis(1));
        shared.is_pin_awaited()
    });
    drop(newest);
    pinning.join().unwrap();
    assert!(is_seen && !shared.is_pin_awaited());
}
