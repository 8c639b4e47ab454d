//! `del`: deletes what is there, and says by exit code 3 what is not.

use crate::harness::{Scratch, run};
use std::path::Path;

#[test]
fn a_deleted_key_is_gone() {
    let (_scratch, store) = Scratch::loaded("del", "a\t1\nb\t2\nc\t3\n");
    run(&["del", &store, "b"]).code(0).stdout("").silent();
    run(&["get", &store, "b"]).code(3);
    run(&["scan", &store]).code(0).stdout("a\t1\nc\t3\n");
    run(&["del", &store, "b"])
        .code(3)
        .stdout("")
        .stderr_has("key not found in keyspace `default`\n");
}

#[test]
fn nothing_is_created_in_order_to_delete_from_it() {
    let scratch = Scratch::new("del-none");
    let store = scratch.store();
    run(&["del", &store, "b"]).code(1).stderr_has("cannot open");
    assert!(!Path::new(&store).exists());
    run(&["put", &store, "k", "v"]).code(0);
    run(&["del", &store, "k", "--keyspace", "other"]).code(1).stderr_has("no keyspace `other`");
}
