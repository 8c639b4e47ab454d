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
fn a_range_is_deleted_in_place_of_a_key() {
    let text = "dunnock\t1\nreed\t2\nrobin\t3\nrook\t4\nwren\t5\n";
    let (_scratch, store) = Scratch::loaded("del-range", text);
    for none in [&[][..], &["dunnock", "--prefix", "r"], &["dunnock", "--to", "r"]] {
        run(&[&["del", &store], none].concat()).code(2).stdout("");
    }
    run(&["count", &store]).code(0).stdout("5\n");
    run(&["del", &store, "--prefix", "ro", "--from", "roc"])
        .code(0)
        .stdout("")
        .stderr_has("deleted 1 record\n");
    run(&["scan", &store, "--keys-only"]).code(0).stdout("dunnock\nreed\nrobin\nwren\n");
    run(&["del", &store, "--from", "s", "--to", "e"]).code(0).stderr_has("deleted 0 records\n");
    let json =
        run(&["del", &store, "--from", "e", "--to", "s", "--format", "json"]).code(0).silent();
    assert_eq!(json.text(), "{\"deleted\":true,\"records\":2}\n");
    run(&["scan", &store, "--keys-only"]).code(0).stdout("dunnock\nwren\n");
    let json = run(&["del", &store, "--prefix", "x", "--format", "json"]).code(0).silent();
    assert_eq!(json.text(), "{\"deleted\":false,\"records\":0}\n");
    run(&["verify", &store]).code(0);
}

/// `--prefix "$P"` with a `P` that was never set deleted everything.
#[test]
fn an_empty_bound_deletes_nothing_unless_all_is_said() {
    let (_scratch, store) = Scratch::loaded("del-all", "dunnock\t1\nreed\t2\nrobin\t3\n");
    for (bounds, option) in [
        (&["--prefix", ""][..], "--prefix"),
        (&["--prefix", "\\e"], "--prefix"),
        (&["--prefix="], "--prefix"),
        (&["--prefix", "", "--from", "r"], "--prefix"),
        (&["--prefix", "", "--to", "r"], "--prefix"),
        (&["--from", ""], "--from"),
        (&["--from", "", "--prefix", "r"], "--from"),
    ] {
        let words = format!("an empty {option} leaves no record out; say --all");
        run(&[&["del", &store], bounds].concat()).code(2).stdout("").stderr_has(&words);
    }
    run(&["del", &store, "robin", "--all"]).code(2);
    run(&["count", &store]).code(0).stdout("3\n");
    run(&["del", &store, "--from", "", "--to", "e"]).code(0).stderr_has("deleted 1 record\n");
    run(&["del", &store, "--prefix", "", "--from", "rf", "--all"])
        .code(0)
        .stderr_has("deleted 1 record\n");
    run(&["scan", &store, "--keys-only", "--prefix", ""]).code(0).stdout("reed\n");
    run(&["put", &store, "wren", "4"]).code(0);
    run(&["del", &store, "--all"]).code(0).stdout("").stderr_has("deleted 2 records\n");
    run(&["count", &store]).code(0).stdout("0\n");
    run(&["verify", &store]).code(0);
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
