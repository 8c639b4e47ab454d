//! Snapshots that have ended, or were given up: what is kept of them, and what they are told.

use crate::{Durability, ErrorKind, Isolation, Keyspace, Options};
use hedgerow_sync::primitive::thread::sleep;
use std::time::Duration;

const AGE: Duration = Duration::from_millis(50);

fn load(keyspace: &Keyspace) {
    keyspace.bulk_load((0..100_u32).map(|n| (n.to_be_bytes(), [7; 20])), 90).unwrap();
}

/// The leaves of a load do not say that it was later. Whatever is loaded after it, and whoever has begun since.
#[test]
fn a_snapshot_that_was_given_up_does_not_see_what_was_loaded_after_it() {
    for is_another_open in [false, true] {
        // Of any age: one that is too old is told so before anything is read.
        let db = Options::new().memory_limit_bytes(2 << 20).in_memory().unwrap();
        let [wrens, robins, finches] =
            ["wrens", "robins", "finches"].map(|name| db.keyspace(name).unwrap());
        let put = |n: u64, byte: u8| {
            finches.put(&(n % 6_000).to_be_bytes(), &[byte; 96]).unwrap();
        };
        (0..6_000).for_each(|n| put(n, 0));
        let snapshot = db.snapshot().unwrap();
        let seen = snapshot.keyspace(&wrens).unwrap();
        load(&wrens);
        let mut changes = 0..1_000_000;
        while db.stats().unwrap().snapshots.given_up == 0 {
            put(changes.next().expect("nothing is given up"), 1);
        }
        let other = is_another_open.then(|| db.snapshot().unwrap());
        load(&robins);
        for read in [
            seen.get(&1_u32.to_be_bytes()).map(drop),
            seen.count().map(drop),
            seen.iter().next().map_or(Ok(()), |record| record.map(drop)),
        ] {
            assert_eq!(read.unwrap_err().kind(), ErrorKind::SnapshotTooOld);
        }
        drop(other);
    }
}

#[test]
fn a_transaction_whose_snapshot_was_given_up_does_not_pass_over_what_was_loaded_after_it() {
    let options = Options::new().memory_limit_bytes(8 << 20).max_snapshot_age(AGE);
    let db = options.in_memory().unwrap();
    let [wrens, robins, finches] =
        ["wrens", "robins", "finches"].map(|name| db.keyspace(name).unwrap());
    let transaction = db.transaction(Isolation::Serializable);
    assert_eq!(transaction.keyspace(&wrens).unwrap().count().unwrap(), 0);
    transaction.keyspace(&finches).unwrap().put(b"wrens", b"none").unwrap();
    load(&wrens);
    // Whoever begins a snapshot gives up those that are too old.
    sleep(4 * AGE);
    drop(db.snapshot().unwrap());
    load(&robins);
    let kind = transaction.commit_with(Durability::Buffered).unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::Conflict | ErrorKind::SnapshotTooOld), "{kind:?}");
    assert_eq!(finches.count().unwrap(), 0);
}

/// Versions are kept for a while behind the last snapshot, but no value of a record that has another one.
#[test]
fn in_memory_replaced_values_are_free_when_no_snapshot_is_open() {
    let db = Options::new().memory_limit_bytes(16 << 20).in_memory().unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    for round in 0..10_u8 {
        keyspace.put(b"large", &vec![round; 1_800_000]).unwrap();
        drop(db.snapshot().unwrap());
        let transaction = db.transaction(Isolation::Serializable);
        assert!(transaction.keyspace(&keyspace).unwrap().get(b"large").unwrap().is_some());
        drop(transaction);
        // As many as there is no memory for.
        for _ in 0..12 {
            keyspace.put(b"large", &vec![round; 1_800_000]).unwrap();
        }
        keyspace.remove(b"large").unwrap();
    }
}
