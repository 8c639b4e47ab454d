//! Verification of books that do not balance, and of what is half there by right.

use super::*;
use crate::page::header::{self, PageKind};
use crate::store::VerifyReport;
use crate::store::verify::{BitSet, Steps};
use crate::testing::sim::{CallKind, Fault};
use crate::types::TreeId;
use std::ops::ControlFlow;

#[test]
fn room_that_is_held_and_nobody_refers_to_is_found() {
    let (_, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
    assert!(is_clean(&store));
    let slots = store.shared.slots.as_ref().unwrap();
    let taken = slots.allocate(1, 512).unwrap();
    let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert!(finding.what.contains("the allocator holds"), "{finding}");
    slots.state().zones.give_back(taken[0], 512);
    assert!(is_clean(&store));
}

#[test]
fn a_keyspace_that_is_being_dropped_is_sound_without_its_pages() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    wrens.put(b"key", b"value").unwrap();
    store.create_keyspace("gulls").unwrap();
    store.checkpoint().unwrap();
    let mut record = vec![1, 1];
    record.extend_from_slice(&wrens.id().0.to_le_bytes());
    record.extend_from_slice(&wrens.root().0.to_le_bytes());
    wrens.drop_pages().unwrap();
    store.shared.catalogue.tree().put(b"wrens", &record).unwrap();
    assert!(is_clean(&store));
    assert_eq!(store.keyspaces().unwrap(), ["gulls"]);
    store.checkpoint().unwrap();
    drop(store);
    // The drop goes on where it was.
    let store = open(&options(), &disk.crash(1), OpenHow::Existing).unwrap();
    assert!(store.shared.catalogue.trees().unwrap().iter().all(|(name, ..)| name == "gulls"));
    assert!(is_clean(&store));
    assert_eq!(store.create_keyspace("wrens").unwrap().id(), TreeId(wrens.id().0 + 2));
}

/// It was taken for one that is being dropped, and passed.
#[test]
fn a_live_keyspace_whose_root_is_not_in_use_is_found() {
    let (_, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    wrens.put(b"key", b"value").unwrap();
    wrens.drop_pages().unwrap();
    let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!((finding.page, finding.keyspace.as_deref()), (Some(wrens.root()), Some("wrens")));
    assert!(finding.what.contains("the root is not in use"), "{finding}");
}

/// An eviction that goes over what the checkpoint has written takes slots, and gives them back soon.
#[test]
fn slots_that_an_eviction_has_under_way_are_not_taken_for_lost_ones() {
    let (_, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
    store.checkpoint().unwrap();
    assert!(is_clean(&store));
    let slots = store.shared.slots.as_ref().unwrap();
    let under_way = store.pool().with_images_under_way(1);
    let taken = slots.allocate(1, 512).unwrap();
    assert!(is_clean(&store));
    slots.state().zones.give_back(taken[0], 512);
    drop(under_way);
    assert!(is_clean(&store));
}

/// The places of all values of a tree were noted before the first was looked at, in memory without a bound.
#[test]
fn a_large_value_is_checked_when_the_walk_comes_to_it() {
    const VALUES: u64 = 2000;
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..VALUES {
        put_large(&store, &wrens, &n.to_be_bytes(), 2000);
        if n % 100 == 99 {
            store.checkpoint().unwrap();
        }
    }
    store.close().unwrap();
    let store = open(&options(), &disk, OpenHow::ReadOnly).unwrap();
    let slots = store.shared.slots.as_ref().unwrap();
    let (mut used, mut report) = (BitSet::new(1 << 20), VerifyReport::default());
    disk.record_log(true);
    store.shared.verify_extents(slots, &mut used, &mut report, &mut Steps::new(None)).unwrap();
    assert!(report.is_clean() && report.large_values == VALUES, "{report:?}");
    let log = disk.take_log();
    let reads = log.iter().filter(|call| call.kind == CallKind::Read);
    let is_value: Vec<bool> =
        reads.map(|read| read.len_bytes >= 2000 && read.len_bytes < 4096).collect();
    let leaves = is_value.iter().filter(|is_value| !**is_value).count();
    let before = is_value.iter().position(|is_value| *is_value).unwrap();
    assert!(leaves > 150 && before < 60, "{before} of {leaves} pages were read before a value");
}

/// It was said to be damaged: a later checkpoint could tell more exactly what is in use, and cut the file.
#[test]
fn a_pinned_checkpoint_that_counts_more_than_it_refers_to_is_sound_in_a_file_that_ends_before() {
    let (disk, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
    store.close().unwrap();
    let file = disk.open(path(), OpenMode::ReadOnly, DirectIo::Never).unwrap();
    let mut superblock = read_superblocks(&*file).unwrap().superblock;
    superblock.table.units = superblock.geometry.units_in(file.len_bytes().unwrap()) + 1;
    let view = Store::open_at(&options(), file, superblock).unwrap();
    let wrens = view.open_keyspace("wrens").unwrap().unwrap();
    assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"value");
    let findings = view.verify(|_| ControlFlow::Continue(())).unwrap().findings;
    assert!(findings.is_empty(), "{findings:?}");
}

/// The first one ended the verification, without a list, and neither it nor a backup said where it was.
#[test]
fn places_that_cannot_be_read_are_listed_and_a_backup_names_the_first() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..1_000_u32 {
        wrens.put(&n.to_be_bytes(), &[7; 40]).unwrap();
    }
    for n in 0..4 {
        put_large(&store, &wrens, &[n], 9000);
    }
    store.close().unwrap();
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let mut listed = 0;
    for call in 0.. {
        disk.inject(Fault::once(CallKind::Read, call, Fault::EIO));
        let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
        if !disk.take_faults().is_empty() {
            assert!(report.is_clean() && call > 200, "{call} calls: {report:?}");
            break;
        }
        // What was read ahead is read again.
        listed += u64::from(!report.is_clean());
        for finding in &report.findings {
            let has_place = finding.page.is_some() || finding.offset_bytes.is_some();
            assert!(has_place || finding.what.contains("at byte"), "call {call}: {finding}");
        }
    }
    assert!(listed > 100, "{listed}");
    let mut named = 0;
    for call in 0.. {
        disk.inject(Fault::once(CallKind::Read, call, Fault::EIO));
        let copy = store.backup(&disk, Path::new("/data/copy"), &mut |_| ControlFlow::Continue(()));
        let Err(error) = copy else { break };
        assert!(disk.take_faults().is_empty());
        assert_eq!((error.kind(), error.os_error()), (ErrorKind::Io, Some(Fault::EIO)), "{call}");
        named += u64::from(error.to_string().contains("at byte"));
    }
    assert!(named > 50, "{named}");
}

/// The next 32 were read again after each.
#[test]
fn a_walk_over_damaged_neighbours_does_not_read_them_again_and_again() {
    const DAMAGED: usize = 60;
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..2_000_u32 {
        wrens.put(&n.to_be_bytes(), &[7; 40]).unwrap();
    }
    store.close().unwrap();
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    let mut walked = Vec::new();
    let mut visit = |page, _: &[_]| {
        walked.push(page);
        ControlFlow::Continue(())
    };
    wrens.verify_with(&mut visit).unwrap();
    let file = disk.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    for page in &walked[walked.len() / 2..][..DAMAGED] {
        let at = store.pool().slot_of(*page).unwrap().unwrap().offset_bytes();
        let mut image = [0; 512];
        file.read_unaligned(at, &mut image).unwrap();
        if header::kind(&image) != Some(PageKind::Inner) {
            file.write_at(at, &[1; 512]).unwrap();
        }
    }
    drop((file, wrens));
    store.close().unwrap();
    let store = open(&options(), &disk, OpenHow::Existing).unwrap();
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    let pages = walked.len();
    let before = disk.calls(CallKind::Read);
    let mut damaged = 0;
    let mut visit = |_, defects: &[_]| {
        damaged += usize::from(!defects.is_empty());
        ControlFlow::Continue(())
    };
    wrens.verify_with(&mut visit).unwrap();
    let reads = (disk.calls(CallKind::Read) - before) as usize;
    assert!(damaged > DAMAGED - 10 && pages > 2 * DAMAGED, "{damaged} of {pages}");
    assert!(reads < pages + 4 * DAMAGED, "{reads} reads of {pages} pages");
}
