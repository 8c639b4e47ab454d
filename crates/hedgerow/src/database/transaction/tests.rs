//! That calls ask whether the database can be used before they take the transaction's lock: in a forked process it may be held for ever.

use super::{Isolation, TransactionKeyspace};
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
