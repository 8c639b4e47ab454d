//! What only the inside of a transaction shows: that calls ask whether the database can be used before they take its lock, which in a
//! forked process may be held for ever, and that what it remembers of its reads has a bound.

use super::{Isolation, READS_SHARE, TransactionKeyspace};
use crate::{ErrorKind, Options};
use hedgerow_sync::primitive::thread::{sleep, spawn_named};
use std::time::Duration;

#[test]
fn what_cannot_be_used_any_more_is_refused_without_the_lock_of_the_transaction() {
    let db = Options::new().memory_limit_bytes(8 << 20).in_memory().unwrap();
    let keyspace = db.keyspace("birds").unwrap();
    let transaction = db.transaction(Isolation::Serializable);
    let handle = transaction.keyspace(&keyspace).unwrap();
    handle.put(b"wren", b"1").unwrap();
    db.close().unwrap();
    let held = transaction.state.body.lock_while(|| true).unwrap();
    let calls: [fn(TransactionKeyspace) -> Option<ErrorKind>; 4] = [
        |it| it.get_for_update(b"wren").err().map(|error| error.kind()),
        |it| it.cursor().next_record().err().map(|error| error.kind()),
        |it| it.iter().next()?.err().map(|error| error.kind()),
        |it| it.count().err().map(|error| error.kind()),
    ];
    for call in calls {
        let handle = handle.clone();
        let caller = spawn_named("calls", move || call(handle)).unwrap();
        for _ in 0..2_000 {
            if caller.is_finished() {
                break;
            }
            sleep(Duration::from_millis(5));
        }
        assert!(caller.is_finished(), "it waits for the lock");
        assert_eq!(caller.join().unwrap(), Some(ErrorKind::Closed));
    }
    drop(held);
}

/// Also when all that was read has become one interval.
#[test]
fn what_a_transaction_remembers_of_its_reads_has_a_bound() {
    const LIMIT_BYTES: u64 = 4 << 20;
    let db = Options::new().memory_limit_bytes(LIMIT_BYTES).in_memory().unwrap();
    let keyspace = db.keyspace("birds").unwrap();
    keyspace.bulk_load((0..2_000_u64).map(|n| (n.to_be_bytes(), [1])), 90).unwrap();
    let transaction = db.transaction(Isolation::Serializable);
    let handle = transaction.keyspace(&keyspace).unwrap();
    let len_bytes = || transaction.state.with_body(|body| Ok(body.many().reads.len_bytes()));
    for n in 0..6_000_u64 {
        if n < 4_000 {
            let first = handle.range(0_u64.to_be_bytes()..).next().unwrap().unwrap();
            assert_eq!(*first.0, 0_u64.to_be_bytes());
        } else {
            let key = (n * 977 % 2_000).to_be_bytes();
            assert!(handle.get(&key).unwrap().is_some());
        }
        let bytes = len_bytes().unwrap();
        assert!(bytes <= LIMIT_BYTES / READS_SHARE, "{bytes} bytes of {n}");
    }
    keyspace.put(&7_u64.to_be_bytes(), b"other").unwrap();
    handle.put(b"mine", b"1").unwrap();
    drop(handle);
    assert_eq!(transaction.commit().unwrap_err().kind(), ErrorKind::Conflict);
}
