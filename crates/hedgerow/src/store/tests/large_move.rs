//! Large values that are moved so that the file can become shorter: what is in the way, and calls that fail meanwhile.

use super::*;
use crate::large::{Extent, Run, Stored, read_stored};
use crate::store::PoolTree;
use crate::store::large::relocate::Moved;
use crate::testing::sim::{CallKind, Fault};
use crate::types::Epoch;
use crate::wal::{Record, ScanFrom, read_header, scan};
use hedgerow_sync::primitive::time::Moment;
use std::cell::Cell;
use std::ops::ControlFlow;

const COUNT: usize = 40;
/// Those before are removed.
const FIRST: usize = 34;
const BYTES: usize = 9000;

fn key(n: usize) -> Vec<u8> {
    format!("song {n:03}").into_bytes()
}

fn value(n: usize) -> Vec<u8> {
    (0..BYTES).map(|at| (at * 7 + n) as u8).collect()
}

fn put(store: &Store, tree: &PoolTree, n: usize) {
    store.expect_stored_forms();
    let mut writer = store.write_large(BYTES as u64, 200, &crate::Wait::Default).unwrap();
    writer.write(&value(n)).unwrap();
    writer.finish().unwrap();
    tree.put(&key(n), &writer.stored_form()).unwrap();
    writer.keep();
}

fn assert_has_all(store: &Store) {
    let tree = store.open_keyspace("wrens").unwrap().unwrap();
    for n in FIRST..COUNT {
        let found = find_large(store, &tree, &key(n)).unwrap();
        let mut reader = found.expect("it is large");
        let mut bytes = vec![0; BYTES];
        let mut done = 0;
        while done < BYTES {
            done += reader.read_at(done as u64, &mut bytes[done..]).unwrap();
        }
        assert!(bytes == value(n), "{n}");
    }
}

/// A store whose last large values keep the file long; all is durable, and none has been moved.
fn long() -> (SimDisk, Store, PoolTree) {
    long_with(|_| {})
}

/// The same, with something in the keyspace that is there before there are large values.
fn long_with(first: impl FnOnce(&PoolTree)) -> (SimDisk, Store, PoolTree) {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    first(&wrens);
    for n in 0..COUNT {
        put(&store, &wrens, n);
    }
    store.checkpoint().unwrap();
    for n in 0..FIRST {
        wrens.remove(&key(n)).unwrap();
    }
    store.checkpoint().unwrap();
    (disk, store, wrens)
}

fn shrink(store: &Store) -> Result<()> {
    for _ in 0..4 {
        store.checkpoint()?;
    }
    Ok(())
}

/// The file as long as the values make it.
fn assert_is_long(store: &Store, context: &str) {
    let needed = ((COUNT - 2) * BYTES) as u64;
    assert!(store.file_bytes() > needed, "{context}: {} bytes", store.file_bytes());
}

fn assert_is_short(store: &Store, context: &str) {
    let needed = (COUNT * 2 / 3 * BYTES) as u64;
    assert!(store.file_bytes() < needed, "{context}: {} bytes", store.file_bytes());
    assert_has_all(store);
    assert!(is_clean(store), "{context}");
}

#[test]
fn nothing_is_moved_while_a_load_is_under_way_which_no_log_has() {
    let (_, store, _) = long();
    let robins = store.create_keyspace("robins").unwrap();
    let loaded: Result<()> = store.bulk_load("robins", &robins, |_| {
        shrink(&store)?;
        assert_is_long(&store, "while it is loaded");
        Ok(())
    });
    loaded.unwrap();
    shrink(&store).unwrap();
    assert_is_short(&store, "when it was loaded");
}

/// The thread that moves values is the one that takes checkpoints, and writers may want one meanwhile.
#[test]
fn moving_ends_as_soon_as_a_checkpoint_is_wanted_and_goes_on_later() {
    let mut some = 0;
    for after in 0_usize..30 {
        let (_, store, wrens) = long();
        for n in 0..1000 {
            wrens.put(format!("wren {n}").as_bytes(), b"short").unwrap();
        }
        store.shared.checkpoint(true).unwrap();
        let long = store.file_bytes();
        let asked = Cell::new(0);
        let is_wanted = || asked.replace(asked.get() + 1) >= after;
        let moved = store.shared.move_large_values(&is_wanted).unwrap();
        some += usize::from(moved && asked.get() > after);
        let more = asked.get().saturating_sub(after);
        assert!(more <= 4, "{more} steps more after {after}");
        assert_has_all(&store);
        shrink(&store).unwrap();
        let short = store.file_bytes();
        assert!(short < long * 9 / 10, "after {after}: {long} bytes became {short}");
        assert!(is_clean(&store), "after {after}");
    }
    assert!(some > 0, "none ended between two values");
}

/// The walk that finds values ends before a load begins, and moves them while the load is under way, or after its mark was
/// taken away and before it is durable.
#[test]
fn a_value_that_was_found_before_a_load_is_not_moved_beside_it() {
    let (_, store, _) = long();
    let slots = store.shared.slots.as_ref().unwrap();
    let found = store.shared.far_values(slots, 1, &|| false).unwrap();
    assert!(!found.is_empty());
    let robins = store.create_keyspace("robins").unwrap();
    let loaded: Result<()> = store.bulk_load("robins", &robins, |_| {
        for far in &found {
            let moved = store.shared.move_value(slots, far, 1, &|| false)?;
            assert_eq!(moved, Moved::NotNow, "while it is loaded");
        }
        Ok(())
    });
    loaded.unwrap();
    let moved = |far| store.shared.move_value(slots, far, 1, &|| false).unwrap() == Moved::Yes;
    assert!(found.iter().any(moved), "when it was loaded");
    assert_has_all(&store);
    assert!(is_clean(&store));
}

#[test]
fn the_log_says_of_a_move_that_the_value_is_the_one_of_before() {
    let disk = SimDisk::new(1);
    let store = open(&logged(), &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..COUNT {
        put(&store, &wrens, n);
    }
    store.checkpoint().unwrap();
    for n in 0..FIRST {
        wrens.remove(&key(n)).unwrap();
    }
    store.checkpoint().unwrap();
    let slots = store.shared.slots.as_ref().unwrap();
    let found = store.shared.far_values(slots, 1, &|| false).unwrap();
    let start = store.log().unwrap().tail();
    let move_it = |far| store.shared.move_value(slots, far, 1, &|| false).unwrap();
    let moved = found.iter().map(move_it).filter(|moved| *moved == Moved::Yes).count();
    assert!(moved > 0);
    // The same bytes once more are another value.
    put(&store, &wrens, COUNT - 1);
    store.flush_log().unwrap();
    let name = crate::store::log_file::log_path(path());
    let file = disk.crash(1).open(&name, OpenMode::ReadOnly, DirectIo::Never).unwrap();
    let from = ScanFrom { replay_start: start, log_end: start, checkpoint: Epoch(u64::MAX) };
    let (mut puts, mut moves) = (0, 0);
    let mut count = |record: Record<'_>, _| {
        match record {
            Record::Extent { is_moved: true, .. } => moves += 1,
            Record::Extent { is_moved: false, .. } => puts += 1,
            _ => {}
        }
        Ok(())
    };
    scan(&*file, &read_header(&*file).unwrap(), &from, &mut count).unwrap();
    assert_eq!((puts, moves), (1, moved));
    assert_has_all(&store);
}

/// It was read from the disk again, although its bytes were in memory.
#[test]
fn a_value_that_is_moved_stays_in_memory() {
    let (disk, store, wrens) = long();
    let before = wrens.get(&key(COUNT - 1)).unwrap().unwrap();
    store.keep_value(&before, &value(COUNT - 1));
    let slots = store.shared.slots.as_ref().unwrap();
    let found = store.shared.far_values(slots, 1, &|| false).unwrap();
    let moved = |far| store.shared.move_value(slots, far, 1, &|| false).unwrap() == Moved::Yes;
    assert!(found.iter().map(moved).filter(|moved| *moved).count() > 0);
    let after = wrens.get(&key(COUNT - 1)).unwrap().unwrap();
    assert_ne!(after.as_bytes(), before.as_bytes());
    let (mut bytes, reads) = (Vec::new(), disk.calls(CallKind::Read));
    assert!(store.append_kept(&after, &mut bytes) && bytes == value(COUNT - 1));
    assert_eq!(disk.calls(CallKind::Read), reads);
    // Another value takes its place.
    put(&store, &wrens, COUNT - 1);
    assert!(!store.append_kept(&after, &mut bytes));
}

#[test]
fn what_is_being_dropped_is_not_moved() {
    let (_, store, wrens) = long();
    let before = wrens.get(&key(COUNT - 1)).unwrap().unwrap().as_bytes().to_vec();
    let forge = |state: u8| {
        let mut record = vec![1, state];
        record.extend_from_slice(&wrens.id().0.to_le_bytes());
        record.extend_from_slice(&wrens.root().0.to_le_bytes());
        store.shared.catalogue.tree().put(b"wrens", &record).unwrap();
    };
    forge(1);
    shrink(&store).unwrap();
    assert_eq!(wrens.get(&key(COUNT - 1)).unwrap().unwrap().as_bytes(), before);
    forge(0);
    // A drop does not end like that, so nobody looks again.
    *store.shared.large_in_vain.lock() = None;
    shrink(&store).unwrap();
    assert_ne!(wrens.get(&key(COUNT - 1)).unwrap().unwrap().as_bytes(), before);
    assert_is_short(&store, "when it is not");
}

#[test]
fn whatever_write_fails_while_values_are_moved_none_is_lost() {
    let (mut full, mut failed) = (0, 0);
    for errno in [Fault::ENOSPC, Fault::EIO] {
        for after in 0..40 {
            let (disk, store, _) = long();
            let context = format!("error {errno} after {after}");
            disk.inject(Fault::once(CallKind::Write, after, errno));
            let outcome = shrink(&store);
            let struck = disk.take_faults().is_empty();
            assert_has_all(&store);
            match outcome {
                Ok(()) if struck => {
                    full += 1;
                    assert_eq!(errno, Fault::ENOSPC, "{context}: nobody was told");
                    shrink(&store).unwrap_or_else(|error| panic!("{context}: {error:?}"));
                    assert_has_all(&store);
                    assert!(is_clean(&store), "{context}");
                }
                Ok(()) => assert_is_short(&store, &context),
                Err(error) => {
                    failed += 1;
                    let kinds = [ErrorKind::Io, ErrorKind::Poisoned, ErrorKind::DiskFull];
                    assert!(kinds.contains(&error.kind()), "{context}: {error:?}");
                    if errno == Fault::EIO {
                        let refused = store.create_keyspace("late").map(drop).unwrap_err();
                        assert_eq!(refused.kind(), ErrorKind::Poisoned, "{context}");
                    }
                }
            }
            drop(store);
            let store = open(&options(), &disk.crash(after), OpenHow::Existing).unwrap();
            assert_has_all(&store);
            assert!(is_clean(&store), "{context}");
        }
    }
    assert!(full > 0 && failed > 5, "{full} moves had no room, {failed} calls failed");
}

/// Where the large value of a key lies.
fn extent(tree: &PoolTree, key: &[u8]) -> Extent {
    let stored = tree.get(key).unwrap().unwrap();
    let Stored::Extent(extent) = read_stored(stored.as_bytes()) else { panic!("it is large") };
    extent
}

/// Whoever reads it is told; the checkpoint is none of its business.
#[test]
fn a_damaged_value_stays_where_it_is_and_the_others_are_moved() {
    let (disk, store, wrens) = long();
    let (damaged, other) = (key(COUNT - 1), key(COUNT - 2));
    let before = [extent(&wrens, &damaged), extent(&wrens, &other)];
    let geometry = store.shared.slots.as_ref().unwrap().state().zones.geometry();
    let at = geometry.unit_offset(before[0].runs[0].unit) as usize + 100;
    disk.change_state(|state| {
        let mut bytes = state.contents(path()).unwrap();
        bytes[at] ^= 1;
        state.set_contents(path(), &bytes)
    })
    .unwrap();
    shrink(&store).unwrap();
    assert_eq!(extent(&wrens, &damaged), before[0]);
    assert_ne!(extent(&wrens, &other), before[1]);
    let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
}

/// Flips a bit in the image of a page.
fn flip(disk: &SimDisk, at: u64) {
    disk.change_state(|state| {
        let mut bytes = state.contents(path()).unwrap();
        bytes[at as usize] ^= 1;
        state.set_contents(path(), &bytes)
    })
    .unwrap();
}

/// Every checkpoint that was asked for failed, and gave nothing back.
#[test]
fn a_leaf_that_cannot_be_read_keeps_nobody_from_taking_checkpoints_and_the_values_of_others_are_moved()
 {
    let (disk, store, _) = long();
    let gulls = store.create_keyspace("gulls").unwrap();
    for n in 0..100_u32 {
        gulls.put(&n.to_be_bytes(), &[7; 100]).unwrap();
    }
    store.shared.checkpoint(true).unwrap();
    let mut leaf = gulls.root();
    // The last one of all is a leaf.
    gulls
        .verify_with(&mut |page, _| {
            leaf = page;
            ControlFlow::Continue(())
        })
        .unwrap();
    let at = store.pool().slot_of(leaf).unwrap().unwrap().offset_bytes();
    let left = disk.crash(1);
    drop((gulls, store));
    flip(&left, at + 40);
    let store = open(&options(), &left, OpenHow::Existing).unwrap();
    assert_is_long(&store, "as it was left");
    for n in 0..4 {
        store.checkpoint().unwrap_or_else(|error| panic!("checkpoint {n}: {error:?}"));
    }
    let needed = (COUNT * 2 / 3 * BYTES) as u64;
    assert!(store.file_bytes() < needed, "{} bytes", store.file_bytes());
    assert_has_all(&store);
    let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.findings.iter().all(|one| one.keyspace.as_deref() != Some("wrens")));
    assert!(report.findings.iter().any(|one| one.page == Some(leaf)), "{:?}", report.findings);
}

#[test]
fn a_reference_that_cannot_be_of_this_file_is_not_followed() {
    let runs = [Run { unit: 1 << 39, units: 20 }];
    let forged = Extent { len_bytes: BYTES as u64, seed: 1, runs: runs.to_vec().into() };
    let (_, store, wrens) = long_with(|wrens| {
        wrens.put(b"nowhere", &forged.encode()).unwrap();
    });
    let before = extent(&wrens, &key(COUNT - 1));
    shrink(&store).unwrap();
    assert_eq!(extent(&wrens, b"nowhere"), forged);
    assert_ne!(extent(&wrens, &key(COUNT - 1)), before);
    assert_has_all(&store);
}

/// So many that the map has no room for their changes before another checkpoint, which only this thread takes: it moves what there is room
/// for, and takes one.
#[test]
fn who_moves_very_many_values_waits_for_nobody_to_take_a_checkpoint() {
    let (_, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..1_500 {
        put_large(&store, &wrens, &n.to_string().into_bytes(), 3_000);
        if n % 100 == 99 {
            store.checkpoint().unwrap();
        }
    }
    for n in 0..500 {
        wrens.remove(&n.to_string().into_bytes()).unwrap();
    }
    let long = store.file_bytes();
    let began = Moment::now();
    shrink(&store).unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "it waited {:?}", began.elapsed());
    assert!(store.file_bytes() < long * 9 / 10, "{long} bytes became {}", store.file_bytes());
    assert!(is_clean(&store));
}

/// Whatever was freed had to wait until the copy of a long value was done.
#[test]
fn what_others_free_while_a_value_is_copied_is_free() {
    let (_, store, wrens) = long();
    let slots = store.shared.slots.as_ref().unwrap();
    let found = store.shared.far_values(slots, 1, &|| false).unwrap();
    let quarantined = || store.space_report().unwrap().quarantined_bytes;
    let kept = Cell::new(None);
    let meanwhile = || {
        if kept.get().is_none() {
            wrens.remove(&key(FIRST)).unwrap();
            store.shared.checkpoint(false).unwrap();
            kept.set(Some(quarantined()));
        }
        false
    };
    let last = found.iter().find(|far| store.shared.move_value(slots, far, 1, &meanwhile).is_ok());
    assert!(last.is_some() && kept.get().is_some_and(|kept| kept < BYTES as u64), "{kept:?}");
}

/// After each change that was settled all leaves of all keyspaces were read again.
#[test]
fn values_that_cannot_be_moved_are_looked_for_again_when_more_is_free_and_not_after_each_change() {
    let limit = crate::buffer::smallest_limit_without_log_bytes(512) + (256 << 10);
    let options = StoreOptions { memory_limit_bytes: limit, ..options() };
    let disk = SimDisk::new(1);
    let store = open(&options, &disk, OpenHow::New).unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..2000_u32 {
        wrens.put(&n.to_be_bytes(), &[7; 100]).unwrap();
    }
    for n in 0..400_u32 {
        put_large(&store, &wrens, format!("short {n}").as_bytes(), 3000);
        if n % 100 == 0 {
            store.checkpoint().unwrap();
        }
    }
    for n in 0..30_u32 {
        put_large(&store, &wrens, format!("song {n}").as_bytes(), 9000);
    }
    store.checkpoint().unwrap();
    for n in (0..400_u32).filter(|n| n % 2 == 0) {
        wrens.remove(format!("short {n}").as_bytes()).unwrap();
    }
    // As an idle period does.
    let settle = || {
        while !store.shared.checkpoint(true).unwrap() {}
        let before = disk.calls(CallKind::Read);
        let moved = store.shared.move_large_values(&|| false).unwrap();
        (moved, disk.calls(CallKind::Read) - before)
    };
    let mut rounds = 0;
    while settle().0 {
        rounds += 1;
        assert!(rounds < 50, "it comes to rest");
    }
    let slots = store.shared.slots.as_ref().unwrap();
    let found = store.shared.far_values(slots, 1, &|| false).unwrap();
    assert!(!found.is_empty());
    for n in 0..10_u32 {
        wrens.put(&n.to_be_bytes(), &[8; 100]).unwrap();
        let (moved, reads) = settle();
        assert!(!moved && reads < 10, "{reads} reads after change {n}");
    }
    for n in 0..20_u32 {
        wrens.remove(format!("song {n}").as_bytes()).unwrap();
    }
    assert!(settle().1 > 200, "more is free");
}

/// Of many values 1,024 were found by each walk through all trees, whatever memory there was.
#[test]
fn a_walk_finds_as_many_values_that_lie_too_far_as_memory_lets_it_remember() {
    for (limit, least, most) in [(64 << 20, 3000, 3000), (4 << 20, 1024, 1200)] {
        let options = StoreOptions { memory_limit_bytes: limit, ..options() };
        let store = open(&options, &SimDisk::new(1), OpenHow::New).unwrap();
        let wrens = store.create_keyspace("wrens").unwrap();
        for n in 0..3100_u32 {
            put_large(&store, &wrens, &n.to_be_bytes(), 600);
            if n % 100 == 99 {
                store.checkpoint().unwrap();
            }
        }
        let slots = store.shared.slots.as_ref().unwrap();
        let found = store.shared.far_values(slots, 2, &|| false).unwrap().len();
        assert!((least..=most + 100).contains(&found), "{found} with {limit}");
    }
}
