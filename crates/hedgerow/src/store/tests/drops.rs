//! Drops that were cut short, and go on behind the opening.

use super::*;
use crate::testing::sim::{CallKind, Fault};
use hedgerow_sync::primitive::time::Moment;

const RECORDS: u32 = 30_000;

fn threaded(limit_bytes: u64) -> StoreOptions {
    let quick = Duration::from_millis(5);
    StoreOptions {
        background: true,
        settle_after: quick,
        memory_limit_bytes: limit_bytes,
        ..logged()
    }
}

fn limit_bytes() -> u64 {
    crate::buffer::smallest_limit_bytes(512) + (256 << 10)
}

/// A store with a keyspace of many pages, of which few are in memory, and one beside it.
fn begin(disk: &SimDisk, options: &StoreOptions) -> Store {
    let store = open(options, disk, OpenHow::New).unwrap();
    store.create_keyspace("gulls").unwrap().put(b"key", b"value").unwrap();
    let wrens = store.create_keyspace("wrens").unwrap();
    for n in 0..RECORDS {
        wrens.put(&n.to_be_bytes(), &[7; 60]).unwrap();
    }
    drop(wrens);
    store.close().unwrap();
    open(options, disk, OpenHow::Existing).unwrap()
}

fn is_dropping(store: &Store) -> bool {
    store.shared.catalogue.trees().unwrap().iter().any(|(_, _, is_dropping)| *is_dropping)
}

fn wait_until_dropped(store: &Store) {
    let since = Moment::now();
    while is_dropping(store) {
        assert!(since.elapsed() < Duration::from_secs(30), "nobody goes on with the drop");
        thread::sleep(Duration::from_millis(1));
    }
}

fn in_use(store: &Store) -> u64 {
    let ids = store.pool().ids().lock();
    u64::from(ids.next_id().unwrap().0) - ids.free_count()
}

/// A disk that a crash has left while the keyspace was being dropped, and the pages that were in use.
fn cut_short(in_checkpoint: bool) -> (SimDisk, u64) {
    let disk = SimDisk::new(1);
    // No checkpoint comes in between where there is room enough for all that is freed.
    let bytes = if in_checkpoint { limit_bytes() } else { 16 << 20 };
    let store = begin(&disk, &threaded(bytes));
    let all = in_use(&store);
    if in_checkpoint {
        disk.inject(Fault::once(CallKind::Read, 20, Fault::EIO).sticky());
        store.drop_keyspace("wrens").unwrap_err();
        disk.clear_faults();
        assert!(is_dropping(&store) && in_use(&store) > all / 2);
        store.checkpoint().unwrap();
        return (disk.crash(1), all);
    }
    // The log alone has it. What was freed meanwhile no checkpoint has.
    let before = store.durable_checkpoint();
    let checkpoints = store.shared.checkpointing.lock();
    assert!(store.shared.catalogue.drop_keyspace("wrens", &|| false).unwrap());
    store.flush_log().unwrap();
    let left = disk.crash(1);
    drop(checkpoints);
    assert!(store.durable_checkpoint() >= before);
    (left, all)
}

/// All pages were freed before the opening returned, whatever time it may take.
#[test]
fn an_opening_does_not_wait_for_a_drop_that_a_crash_has_cut_short() {
    for in_checkpoint in [true, false] {
        let (disk, all) = cut_short(in_checkpoint);
        let before = disk.calls(CallKind::Read);
        let store = open(&threaded(limit_bytes()), &disk, OpenHow::Existing).unwrap();
        let reads = disk.calls(CallKind::Read) - before;
        assert!(store.open_keyspace("wrens").unwrap().is_none());
        assert_eq!(store.shared.catalogue.names().unwrap(), ["gulls"]);
        println!("{reads} reads, {all} pages");
        assert!(reads < all / 4, "{reads} reads in a store of {all} pages");
        wait_until_dropped(&store);
        assert!(in_use(&store) < all / 20, "{} pages of {all}", in_use(&store));
        assert!(is_clean(&store));
        store.close().unwrap();
        let store = open(&options(), &disk, OpenHow::Existing).unwrap();
        assert!(is_clean(&store));
    }
}

/// It may be cut short again, by a crash or a close, and its name be used meanwhile.
#[test]
fn a_drop_that_goes_on_behind_an_opening_is_in_nobodys_way() {
    for round in 0..6 {
        let (disk, all) = cut_short(round % 2 == 0);
        let store = open(&threaded(limit_bytes()), &disk, OpenHow::Existing).unwrap();
        thread::sleep(Duration::from_millis(round * 3));
        let left = match round {
            0 | 1 => {
                let wrens = store.create_keyspace("wrens").unwrap();
                wrens.put(b"new", b"one").unwrap();
                store.rename_keyspace("gulls", "terns").unwrap();
                wait_until_dropped(&store);
                assert_eq!(wrens.get(b"new").unwrap().unwrap().as_bytes(), b"one");
                assert!(is_clean(&store));
                store.close().unwrap();
                disk
            }
            2 | 3 => {
                store.close().unwrap();
                disk
            }
            _ => disk.crash(round),
        };
        drop(store);
        let store = open(&logged(), &left, OpenHow::Existing).unwrap();
        assert!(!is_dropping(&store), "without threads it ends with the opening");
        assert!(in_use(&store) < all / 20, "{round}: {} pages of {all}", in_use(&store));
        assert_eq!(store.open_keyspace("wrens").unwrap().is_some(), round < 2);
        assert!(is_clean(&store), "{round}");
    }
}
