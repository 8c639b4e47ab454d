//! Snapshots that have ended, or were given up: what is kept of them, and what they are told.

use crate::{Database, Durability, ErrorKind, Isolation, Keyspace, Options};
use std::time::Duration;

const AGE: Duration = Duration::from_millis(50);

fn in_memory() -> Database {
    Options::new().memory_limit_bytes(8 << 20).max_snapshot_age(AGE).in_memory().unwrap()
}

fn load(keyspace: &Keyspace) {
    keyspace.bulk_load((0..100_u32).map(|n| (n.to_be_bytes(), [7; 20])), 90).unwrap();
}

/// Gives up what is open for longer than its time. Whoever begins a snapshot does that.
fn give_up(db: &Database) {
    std::thread::sleep(4 * AGE);
    drop(db.snapshot().unwrap());
    assert_eq!(db.stats().unwrap().snapshots.given_up, 1);
}

/// The leaves of a load do not say that it was later. Whatever is loaded after it, and whoever has begun since.
#[test]
fn a_snapshot_that_was_given_up_does_not_see_what_was_loaded_after_it() {
    for is_another_open in [false, true] {
        let db = in_memory();
        let [wrens, robins] = ["wrens", "robins"].map(|name| db.keyspace(name).unwrap());
        let snapshot = db.snapshot().unwrap();
        let seen = snapshot.keyspace(&wrens).unwrap();
        load(&wrens);
        give_up(&db);
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
    let db = in_memory();
    let [wrens, robins, finches] =
        ["wrens", "robins", "finches"].map(|name| db.keyspace(name).unwrap());
    let transaction = db.transaction(Isolation::Serializable);
    assert_eq!(transaction.keyspace(&wrens).unwrap().count().unwrap(), 0);
    transaction.keyspace(&finches).unwrap().put(b"wrens", b"none").unwrap();
    load(&wrens);
    give_up(&db);
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
    for round in 0..30_u8 {
        keyspace.put(b"large", &vec![round; 1_800_000]).unwrap();
        drop(db.snapshot().unwrap());
        let transaction = db.transaction(Isolation::Serializable);
        assert!(transaction.keyspace(&keyspace).unwrap().get(b"large").unwrap().is_some());
        drop(transaction);
        keyspace.put(b"large", &vec![round; 1_800_000]).unwrap();
        keyspace.put(b"large", &vec![round; 1_800_000]).unwrap();
        keyspace.remove(b"large").unwrap();
    }
}
