//! The catalogue: records that no build has written, loads that overlap, and creations that fail.

use super::*;
use crate::buffer::{BufferPool, Session};
use crate::page::{Pages, PoolSession};
use crate::store::Catalogue;
use crate::testing::sim::{CallKind, Fault};
use crate::tree::Tree;
use crate::types::{PageId, TreeId};
use crate::wait::Waiting;
use std::ops::ControlFlow;
use std::sync::mpsc::channel;

fn record(version: u8, state: u8, tree: u32, root: u32) -> Vec<u8> {
    let mut bytes = vec![version, state];
    bytes.extend_from_slice(&tree.to_le_bytes());
    bytes.extend_from_slice(&root.to_le_bytes());
    bytes
}

fn catalogue(store: &Store) -> &Catalogue {
    &store.shared.catalogue
}

/// A store with a sound keyspace, and this record beside it.
fn forged(key: &[u8], value: &[u8]) -> (SimDisk, Store) {
    let (disk, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
    catalogue(&store).tree().put(key, value).unwrap();
    (disk, store)
}

fn is_of_the_catalogue(error: &Error) -> bool {
    let page = Some(PageId::CATALOGUE_ROOT);
    error.kind() == ErrorKind::Corrupted { page, offset_bytes: None }
}

const ROOT: u32 = PageId::CATALOGUE_ROOT.0;

#[test]
fn a_record_of_a_keyspace_that_cannot_be_is_damage_of_the_catalogue() {
    let whole = record(1, 0, 9, ROOT + 5);
    let records = [
        Vec::new(),
        whole[..9].to_vec(),
        [&whole[..], &[0]].concat(),
        record(0, 0, 9, ROOT + 5),
        record(2, 0, 9, ROOT + 5),
        record(1, 3, 9, ROOT + 5),
        record(1, 0, 0, ROOT + 5),
        record(1, 0, TreeId::CATALOGUE.0, ROOT + 5),
        record(1, 0, 9, PageId::NONE.0),
        record(1, 0, 9, ROOT - 1),
        record(1, 0, 9, ROOT),
    ];
    for bytes in records {
        let (_, store) = forged(b"robins", &bytes);
        let refused = store.open_keyspace("robins").map(drop).unwrap_err();
        assert!(is_of_the_catalogue(&refused), "{bytes:?}: {refused:?}");
        let refused = store.drop_keyspace("robins").unwrap_err();
        assert!(is_of_the_catalogue(&refused), "{bytes:?}: {refused:?}");
        let refused = store.create_keyspace("robins").map(drop).unwrap_err();
        assert!(is_of_the_catalogue(&refused), "{bytes:?}: {refused:?}");
        let refused = store.keyspaces().unwrap_err();
        assert!(is_of_the_catalogue(&refused), "{bytes:?}: {refused:?}");
        // It is in nobody else's way.
        let wrens = store.open_keyspace("wrens").unwrap().unwrap();
        assert_eq!(wrens.get(b"key").unwrap().unwrap().as_bytes(), b"value");
        let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
        let named = report.findings.iter().any(|one| one.page == Some(PageId::CATALOGUE_ROOT));
        assert!(named, "{bytes:?}: {:?}", report.findings);
    }
}

#[test]
fn a_key_of_the_catalogue_that_is_no_name_is_damage() {
    let leftover = |tree: u32| [&[0xff][..], &tree.to_be_bytes()].concat();
    let cases = [
        (b"\xfe".to_vec(), record(1, 0, 9, ROOT + 5)),
        (b"w\xffrens".to_vec(), record(1, 0, 9, ROOT + 5)),
        // A load that was cut short, of another tree, or of one that nobody loads.
        (leftover(8), record(1, 2, 9, ROOT + 5)),
        (vec![0xff], record(1, 2, 9, ROOT + 5)),
        (leftover(9), record(1, 0, 9, ROOT + 5)),
        (leftover(9), record(1, 1, 9, ROOT + 5)),
    ];
    for (key, value) in cases {
        let (disk, store) = forged(&key, &value);
        for refused in [
            store.keyspaces().map(drop),
            catalogue(&store).trees().map(drop),
            catalogue(&store).loading().map(drop),
            catalogue(&store).finish_drops(),
        ] {
            let refused = refused.unwrap_err();
            assert!(is_of_the_catalogue(&refused), "{key:?}: {refused:?}");
        }
        assert!(!is_clean(&store), "{key:?}");
        store.checkpoint().unwrap();
        drop(store);
        let refused = open(&options(), &disk, OpenHow::Existing).map(drop).unwrap_err();
        assert!(is_of_the_catalogue(&refused), "{key:?}: {refused:?}");
    }
}

#[test]
fn two_keyspaces_of_one_tree_are_found() {
    let (_, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    wrens.put(b"key", b"value").unwrap();
    catalogue(&store).tree().put(b"robins", &record(1, 0, wrens.id().0, wrens.root().0)).unwrap();
    let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
    let twice = report.findings.iter().find(|one| one.what.contains("reached twice"));
    let twice = twice.unwrap_or_else(|| panic!("{:?}", report.findings));
    assert_eq!((twice.page, twice.keyspace.as_deref()), (Some(wrens.root()), Some("wrens")));
}

#[test]
fn pages_that_no_keyspace_refers_to_are_found() {
    let (_, store) = new_store();
    store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
    let lost: crate::store::PoolTree = Tree::create(store.pool().clone(), TreeId(9)).unwrap();
    lost.put(b"key", b"value").unwrap();
    let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!(finding.page, Some(lost.root()));
    assert!(finding.what.contains("no tree reaches it"), "{finding}");
    lost.drop_pages().unwrap();
    assert!(is_clean(&store));
}

/// The opening whose drop failed forgot the load, and what that had written was nobody's for good.
#[test]
fn what_a_load_has_left_is_remembered_until_its_keyspace_is_dropped() {
    let (_, store) = new_store();
    let lost: crate::store::PoolTree = Tree::create(store.pool().clone(), TreeId(9)).unwrap();
    lost.put(b"key", b"value").unwrap();
    let note = [&[0xff][..], &9_u32.to_be_bytes()].concat();
    let names = catalogue(&store).tree();
    names.put(&note, &record(1, 2, 9, lost.root().0)).unwrap();
    names.put(b"robins", &record(1, 1, 9, lost.root().0)).unwrap();
    store.checkpoint().unwrap();
    let slots = store.shared.slots.as_ref().unwrap();
    store.shared.finish_loads(slots).unwrap();
    assert_eq!(catalogue(&store).loading().unwrap().len(), 1);
    names.remove(b"robins").unwrap();
    store.shared.finish_loads(slots).unwrap();
    assert!(catalogue(&store).loading().unwrap().is_empty());
    assert!(is_clean(&store));
}

#[test]
fn a_keyspace_that_was_dropped_is_not_loaded() {
    let (_, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    store.drop_keyspace("wrens").unwrap();
    let refuse = |why: &str| {
        let loaded: Result<()> =
            store.bulk_load("wrens", &wrens, |_| panic!("{why}: nothing is loaded"));
        assert_eq!(loaded.unwrap_err().kind(), ErrorKind::KeyspaceDropped, "{why}");
    };
    refuse("there is none of that name");
    store.create_keyspace("wrens").unwrap();
    refuse("there is another one");
    assert!(catalogue(&store).loading().unwrap().is_empty());
}

#[test]
fn a_keyspace_is_being_loaded_until_the_last_of_its_loads_has_ended() {
    let (_, store) = new_store();
    let wrens = store.create_keyspace("wrens").unwrap();
    let is_loading = || !catalogue(&store).loading().unwrap().is_empty();
    let load = |inner: &dyn Fn() -> Result<()>| store.bulk_load("wrens", &wrens, |_| inner());
    load(&|| {
        load(&|| {
            assert!(is_loading());
            Ok(())
        })?;
        assert!(is_loading(), "the other one goes on");
        Ok(())
    })
    .unwrap();
    assert!(!is_loading());
}

#[test]
fn a_creation_that_the_catalogue_has_no_room_for_leaves_no_page_behind() {
    for taken in 0..4 {
        let limit = crate::buffer::smallest_limit_without_log_bytes(512);
        let options = StoreOptions { memory_limit_bytes: limit, ..options() };
        let store = Store::in_memory(&options).unwrap();
        for n in 0..taken {
            store.create_keyspace(&format!("{n}")).unwrap();
        }
        let name = |n: usize| format!("{n:060}");
        let (count, error) = (0..)
            .find_map(|n| Some((n, store.create_keyspace(&name(n)).map(drop).err()?)))
            .unwrap();
        assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error:?}");
        assert_eq!(store.keyspaces().unwrap().len(), count + taken);
        assert!(store.open_keyspace(&name(count)).unwrap().is_none());
        let report = store.verify(|_| ControlFlow::Continue(())).unwrap();
        assert!(report.is_clean(), "{:?}", report.findings);
        let ids = store.pool().ids().lock();
        let end = ids.next_id().unwrap();
        assert_eq!(end.part(), 0, "no ids are left out");
        let in_use = u64::from(end.0 - ROOT) - ids.free_count();
        assert_eq!(in_use, report.reached, "pages that nobody reaches, after {count}");
    }
}

#[test]
fn names_of_keyspaces_have_a_length_that_a_page_can_hold() {
    let (_, store) = new_store();
    for name in ["", &"w".repeat(256)] {
        for refused in [
            store.keyspace(name).map(drop),
            store.open_keyspace(name).map(drop),
            store.create_keyspace(name).map(drop),
            store.drop_keyspace(name).map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidName, "{name:?}");
        }
    }
    assert!(store.keyspaces().unwrap().is_empty());
}

/// The store is opened all the same, and its pages go at the next opening.
#[test]
fn an_opening_that_cannot_read_what_is_dropped_leaves_it_to_the_next() {
    let (mut refused, mut passed) = (0, 0);
    for nth in 0..100 {
        let (disk, store) = new_store();
        store.create_keyspace("wrens").unwrap().put(b"key", b"value").unwrap();
        let gulls = store.create_keyspace("gulls").unwrap();
        for n in 0..1000_u32 {
            gulls.put(&n.to_be_bytes(), &[7; 40]).unwrap();
        }
        // A drop that was cut short.
        let dropping = record(1, 1, gulls.id().0, gulls.root().0);
        catalogue(&store).tree().put(b"gulls", &dropping).unwrap();
        store.checkpoint().unwrap();
        let disk = disk.crash(1);
        disk.inject(Fault::once(CallKind::Read, nth, Fault::EIO).sticky());
        let opened = open(&options(), &disk, OpenHow::Existing);
        disk.clear_faults();
        match opened {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Io, "read {nth}: {error:?}");
                refused += 1;
            }
            Ok(store) => {
                passed += 1;
                assert_eq!(store.keyspaces().unwrap(), ["wrens"], "read {nth}");
                store.close().unwrap();
                let store = open(&options(), &disk, OpenHow::Existing).unwrap();
                assert!(is_clean(&store), "read {nth}");
            }
        }
    }
    assert!(passed > 50, "{passed} openings passed over it, {refused} were refused");
}

/// As many operations as the pool has places for.
fn take_all_places<'p>(pool: &'p BufferPool, never: &'p Waiting<'p>) -> Vec<Session<'p>> {
    let mut inside = Vec::new();
    loop {
        let mut session = pool.session_within(never);
        match session.reserve(1) {
            Ok(()) => inside.push(session),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                return inside;
            }
        }
    }
}

/// Memory for old versions is lent where operations leave some, which they do soon.
#[test]
fn the_first_snapshot_waits_for_operations_that_have_all_places_in_the_pool() {
    let store = Arc::new(open(&options(), &SimDisk::new(1), OpenHow::New).unwrap());
    let (pool, never) = (store.shared.pool.clone(), crate::Wait::Never.begin());
    let inside = take_all_places(&pool, &never);
    let refused = store.snapshot(&never).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::WouldBlock, "{refused}");
    let begins = {
        let store = store.clone();
        let begin = move || store.snapshot(&Waiting::Forever).map(drop);
        thread::spawn_named("begins", begin).unwrap()
    };
    thread::sleep(Duration::from_millis(50));
    drop(inside);
    begins.join().unwrap().unwrap();
}

/// Those who have all places in the pool may wait for room in the log, and that for a checkpoint, which waits for this.
#[test]
fn names_are_changed_though_all_places_in_the_pool_are_taken() {
    let disk = SimDisk::new(1);
    let store = Arc::new(open(&options(), &disk, OpenHow::New).unwrap());
    store.create_keyspace("wrens").unwrap();
    let (tell, told) = channel();
    let (pool, never) = (store.shared.pool.clone(), crate::Wait::Never.begin());
    let inside = take_all_places(&pool, &never);
    let changes = {
        let store = store.clone();
        let change = move || {
            store.create_keyspace("robins").unwrap();
            store.rename_keyspace("wrens", "owls").unwrap();
            tell.send(()).unwrap();
        };
        thread::spawn_named("changes", change).unwrap()
    };
    assert!(told.recv_timeout(Duration::from_secs(20)).is_ok(), "it waits for them");
    drop(inside);
    changes.join().unwrap();
}
