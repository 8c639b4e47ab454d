//! Openings after bulk loads that were cut short: notes of trees that are there, and damage in a tree that was being loaded.

use super::*;
use crate::storage::{DirectIo, OpenMode};
use crate::store::catalogue::Load;
use crate::testing::sim::{CallKind, Fault};
use crate::tree::Tree;
use crate::types::{PageId, TreeId};
use std::ops::ControlFlow;

const RECORDS: u32 = 1000;

/// A disk with a keyspace of many pages that is being loaded, and with pages of its tree that nothing refers to; and one beside it.
fn cut_short() -> (SimDisk, PageId, TreeId) {
    let (disk, store) = new_store();
    store.create_keyspace("gulls").unwrap().put(b"key", b"value").unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..RECORDS {
        wrens.put(&n.to_be_bytes(), &[7; 40]).unwrap();
    }
    store.shared.catalogue.begin_load("wrens", &wrens).unwrap();
    let lost: PoolTree = Tree::create(store.pool().clone(), wrens.id()).unwrap();
    for n in 0..RECORDS {
        lost.put(&n.to_be_bytes(), &[8; 40]).unwrap();
    }
    store.checkpoint().unwrap();
    (disk.crash(1), wrens.root(), wrens.id())
}

fn reopen(disk: &SimDisk) -> Store {
    open(&options(), disk, OpenHow::Existing).unwrap()
}

fn is_loading(store: &Store) -> bool {
    !store.shared.catalogue.loading().unwrap().is_empty()
}

fn assert_all_there(store: &Store, name: &str, records: u32) {
    let tree = store.open_keyspace(name).unwrap().unwrap();
    let mut cursor = tree.scan();
    for n in 0..records {
        let record = cursor.next_record().unwrap();
        assert_eq!(record, Some((&n.to_be_bytes()[..], &[7; 40][..])));
    }
    assert_eq!(cursor.next_record().unwrap(), None);
}

/// Overwrites the image of a page, wherever it lies.
fn damage(disk: &SimDisk, store: &Store, page: PageId) {
    let file = disk.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    let slot = store.pool().slot_of(page).unwrap().unwrap();
    file.write_at(slot.offset_bytes(), &[1; 512]).unwrap();
    file.sync_data().unwrap();
}

#[test]
fn what_a_load_has_left_goes_and_the_keyspace_stays() {
    let (disk, ..) = cut_short();
    let store = reopen(&disk);
    assert!(!is_loading(&store));
    assert!(is_clean(&store));
    assert_all_there(&store, "wrens", RECORDS);
}

/// The store is opened all the same, and the note of the load stays for the next opening.
#[test]
fn an_opening_that_cannot_read_what_a_load_has_left_leaves_it_to_the_next() {
    let (mut refused, mut left) = (0, 0);
    for nth in 0.. {
        let (disk, ..) = cut_short();
        disk.inject(Fault::once(CallKind::Read, nth, Fault::EIO));
        let opened = open(&options(), &disk, OpenHow::Existing);
        let is_over = !disk.take_faults().is_empty();
        match opened {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "read {nth}: {error:?}");
                refused += 1;
            }
            Ok(store) => {
                left += usize::from(is_loading(&store));
                store.close().unwrap();
                let store = reopen(&disk);
                assert!(!is_loading(&store), "read {nth}");
                assert!(is_clean(&store), "read {nth}");
                assert_all_there(&store, "wrens", RECORDS);
            }
        }
        if is_over {
            break;
        }
    }
    assert!(left > 50, "{left} openings left it, {refused} were refused");
}

/// A drop that fails between its note of what a load leaves and the keyspace's own record leaves both.
#[test]
fn a_note_of_what_a_load_leaves_says_nothing_about_a_tree_that_is_there() {
    let (disk, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..RECORDS {
        wrens.put(&n.to_be_bytes(), &[7; 40]).unwrap();
    }
    let mut note = vec![1, 2];
    note.extend_from_slice(&wrens.id().0.to_le_bytes());
    note.extend_from_slice(&wrens.root().0.to_le_bytes());
    let key = [&[0xff][..], &wrens.id().0.to_be_bytes()].concat();
    store.shared.catalogue.tree().put(&key, &note).unwrap();
    assert!(is_loading(&store));
    store.checkpoint().unwrap();
    let store = reopen(&disk.crash(1));
    assert!(!is_loading(&store));
    assert!(is_clean(&store));
    assert_all_there(&store, "wrens", RECORDS);
}

/// Bytes of the file that are in use when nothing waits to be free any more.
fn used_bytes(store: &Store) -> u64 {
    (0..3).for_each(|_| store.checkpoint().unwrap());
    assert!(is_clean(store));
    store.space_report().unwrap().used_bytes
}

/// The mark of a load whose pages could not be swept ended with the next load, and the pages stayed for ever.
#[test]
fn a_later_load_does_not_hide_what_an_earlier_one_has_left_beside_damage() {
    let (disk, ..) = cut_short();
    let sound = reopen(&SimDisk::with_state(disk.state(), 1));
    let gulls = sound.open_keyspace("gulls").unwrap().unwrap();
    let slot = sound.pool().slot_of(gulls.root()).unwrap().unwrap();
    let expected = used_bytes(&sound);
    let flip = |disk: &SimDisk| {
        let file = disk.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap();
        let mut page = vec![0; 512];
        file.read_at(slot.offset_bytes(), &mut page).unwrap();
        page[40] ^= 1;
        file.write_at(slot.offset_bytes(), &page).unwrap();
        file.sync_data().unwrap();
    };
    flip(&disk);
    let store = reopen(&disk);
    assert!(is_loading(&store));
    let wrens = store.open_keyspace("wrens").unwrap().unwrap();
    for _ in 0..2 {
        store.shared.catalogue.begin_load("wrens", &wrens).unwrap();
        store.shared.catalogue.end_load("wrens", &wrens).unwrap();
        assert!(is_loading(&store));
    }
    // All that is not damaged is free already.
    (0..3).for_each(|_| store.checkpoint().unwrap());
    assert!(store.space_report().unwrap().used_bytes <= expected + 4096);
    drop(wrens);
    store.close().unwrap();
    flip(&disk);
    let store = reopen(&disk);
    assert!(!is_loading(&store));
    assert_all_there(&store, "wrens", RECORDS);
    assert_eq!(used_bytes(&store), expected);
}

/// The mark that the next opening would sweep them by was taken away, and they stayed for ever.
#[test]
fn what_a_load_that_failed_could_not_free_goes_at_the_next_opening() {
    let limit = crate::buffer::smallest_limit_without_log_bytes(512) + (256 << 10);
    let options = StoreOptions { memory_limit_bytes: limit, ..options() };
    let disk = SimDisk::new(1);
    let store = open(&options, &disk, OpenHow::New).unwrap();
    let gulls = store.create_keyspace("gulls").unwrap();
    for n in 0..4 * RECORDS {
        gulls.put(&n.to_be_bytes(), &[9; 100]).unwrap();
        if n % 100 == 0 {
            store.checkpoint().unwrap();
        }
    }
    let wrens = store.create_keyspace("wrens").unwrap();
    let load = |is_readable: bool| {
        let loaded: Result<()> = store.bulk_load("wrens", &wrens, |leaves_pages| {
            let mut load = wrens.bulk_load(90)?.telling(leaves_pages);
            for n in 0..RECORDS / 2 {
                load.push(&n.to_be_bytes(), &[8; 100])?;
            }
            // What is read meanwhile takes its pages out of memory.
            store.checkpoint()?;
            let mut cursor = gulls.scan();
            while cursor.next_record()?.is_some() {}
            if !is_readable {
                disk.inject(Fault::once(CallKind::Read, 0, Fault::EIO).sticky());
            }
            Err(Error::new(ErrorKind::Cancelled, "no more records"))
        });
        disk.clear_faults();
        assert_eq!(loaded.unwrap_err().kind(), ErrorKind::Cancelled);
    };
    load(true);
    assert!(!is_loading(&store));
    let expected = used_bytes(&store);
    load(false);
    assert!(is_loading(&store));
    assert!(used_bytes(&store) > expected + 10_000);
    // It is used as any other, and a later load does not end the mark.
    load(true);
    for n in 0..RECORDS {
        wrens.put(&n.to_be_bytes(), &[7; 40]).unwrap();
    }
    assert!(is_loading(&store));
    store.checkpoint().unwrap();
    drop((gulls, wrens));
    store.close().unwrap();
    let store = open(&options, &disk, OpenHow::Existing).unwrap();
    assert!(!is_loading(&store));
    assert_all_there(&store, "wrens", RECORDS);
    store.open_keyspace("wrens").unwrap().unwrap().remove_range(b"", None).unwrap();
    assert!(used_bytes(&store) <= expected + 4096);
}

#[test]
fn nothing_is_freed_of_a_tree_that_is_damaged_and_others_are_not_kept_from_opening() {
    for is_root in [true, false] {
        let (disk, root, id) = cut_short();
        let store = open(&options(), &SimDisk::with_state(disk.state(), 1), OpenHow::Existing);
        // The same store, mended: there the map says where the page lies.
        let mended = store.unwrap();
        let mut page = root;
        let tree = mended.open_keyspace("wrens").unwrap().unwrap();
        tree.verify_with(&mut |visited, _| {
            // The last one of all is a leaf.
            if !is_root {
                page = visited;
            }
            ControlFlow::Continue(())
        })
        .unwrap();
        damage(&disk, &mended, page);
        let store = reopen(&disk);
        let [Load { name, tree }] = &store.shared.catalogue.loading().unwrap()[..] else {
            panic!("the load is forgotten");
        };
        assert_eq!((name.as_deref(), tree.id(), tree.root()), (Some("wrens"), id, root));
        let gulls = store.open_keyspace("gulls").unwrap().unwrap();
        assert_eq!(gulls.get(b"key").unwrap().unwrap().as_bytes(), b"value");
        let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
        assert!(report.findings.iter().any(|one| one.page == Some(page)), "{:?}", report.findings);
    }
}

/// A read that fails in a checkpoint does no harm, but for the one behind a load, after which nothing could be changed any more.
#[test]
fn a_read_that_fails_beside_a_load_leaves_a_store_that_goes_on() {
    let disk = SimDisk::new(1);
    let store = open(&logged(), &disk, OpenHow::New).unwrap();
    let gulls = store.create_keyspace("gulls").unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    let put = |value: u8| gulls.put(b"key", &[value; 9]).map(drop);
    put(1).unwrap();
    store.checkpoint().unwrap();
    let load = |inside: &dyn Fn()| -> Result<()> {
        store.bulk_load("wrens", &wrens, |leaves_pages| {
            let mut load = wrens.bulk_load(90)?.telling(leaves_pages);
            for n in 0..RECORDS {
                load.push(&n.to_be_bytes(), &[7; 40])?;
            }
            let loaded = load.finish();
            inside();
            loaded.map(drop)
        })
    };
    // What will not pass is told before anything is done.
    put(2).unwrap();
    disk.inject(Fault::once(CallKind::Read, 0, Fault::EIO).sticky());
    let error = load(&|| panic!("it is not begun")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    disk.clear_faults();
    put(3).unwrap();
    // And what passes is waited for.
    let reads = disk.calls(CallKind::Read);
    load(&|| disk.inject(Fault::once(CallKind::Read, 0, Fault::EIO))).unwrap();
    assert!(disk.take_faults().is_empty() && disk.calls(CallKind::Read) > reads);
    put(4).unwrap();
    assert_all_there(&store, "wrens", RECORDS);
    drop((gulls, wrens));
    let store = open(&logged(), &disk.crash(1), OpenHow::Existing).unwrap();
    assert_all_there(&store, "wrens", RECORDS);
    assert!(is_clean(&store));
}
