//! Verification of books that do not balance, and of what is half there by right.

use super::*;
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
