//! `put`: writes, overwrites, and creates the store.

use crate::harness::{Scratch, run};

#[test]
fn a_record_is_there_when_the_command_has_returned() {
    let scratch = Scratch::new("put");
    let store = scratch.store();
    run(&["put", &store, "k", "one"]).code(0).stdout("").silent();
    run(&["get", &store, "k"]).code(0).stdout("one\n");
    run(&["put", &store, "k", "two"]).code(0).silent();
    run(&["scan", &store]).code(0).stdout("k\ttwo\n");
}

#[test]
fn empty_keys_and_values_are_records() {
    let scratch = Scratch::new("put-empty");
    let store = scratch.store();
    run(&["put", &store, "", "of the empty key"]).code(0).silent();
    run(&["put", &store, "empty value", ""]).code(0).silent();
    run(&["get", &store, ""]).code(0).stdout("of the empty key\n");
    run(&["get", &store, "empty value"]).code(0).stdout("\n");
    run(&["count", &store]).code(0).stdout("2\n");
}

#[test]
fn keyspaces_are_apart() {
    let scratch = Scratch::new("put-keyspaces");
    let store = scratch.store();
    run(&["put", &store, "k", "here", "--keyspace", "a"]).code(0);
    run(&["put", &store, "k", "there", "--keyspace", "b"]).code(0);
    run(&["get", &store, "k", "--keyspace", "a"]).code(0).stdout("here\n");
    run(&["get", &store, "k", "--keyspace", "b"]).code(0).stdout("there\n");
}

#[test]
fn a_large_value_goes_in_from_a_file_and_comes_out_again() {
    let scratch = Scratch::new("put-file");
    let store = scratch.store();
    let file = format!("{store}.song");
    let song = "chaffinch, wren, robin. ".repeat(100_000);
    std::fs::write(&file, &song).unwrap();
    run(&["put", &store, "song", "--file", &file]).code(0).stdout("").silent();
    run(&["get", &store, "song", "--raw"]).code(0).stdout(&song);
    run(&["count", &store]).code(0).stdout("1\n");
    let verified = run(&["verify", &store]).code(0);
    assert!(verified.text().contains(", 1 large value of "), "{}", verified.text());
    run(&["put", &store, "both", "value", "--file", &file]).code(2);
    run(&["put", &store, "neither"]).code(2).stderr_has("--file <FILE>");
    run(&["put", &store, "song", "short"]).code(0).silent();
    run(&["get", &store, "song"]).code(0).stdout("short\n");
    run(&["verify", &store]).code(0);
}

#[test]
fn a_file_that_cannot_be_read_leaves_no_store_behind() {
    let scratch = Scratch::new("put-no-file");
    let store = scratch.store();
    run(&["put", &store, "none", "--file", &format!("{store}.none")])
        .code(1)
        .stderr_has("cannot read");
    assert!(!std::path::Path::new(&store).exists());
}

#[test]
#[cfg_attr(windows, ignore = "Windows hands a process at most 32,767 characters")]
fn what_does_not_fit_into_a_page_is_refused() {
    let scratch = Scratch::new("put-large");
    let store = scratch.store();
    let long = "x".repeat(100_000);
    // The key is an argument.
    run(&["put", &store, &long, "v"]).code(2).stderr_has("cannot write to");
    run(&["put", &store, "k", "v"]).code(0).silent();
    run(&["del", &store, &long]).code(2).stderr_has("cannot write to");
    run(&["put", &store, "k", "v", "--keyspace", &long]).code(2);
    run(&["scan", &store]).code(0).stdout("k\tv\n");
}

/// It changed while it was read.
#[test]
fn a_store_is_no_value_of_its_own() {
    let (_scratch, store) = Scratch::loaded("put-itself", "wren\t1\n");
    let bytes = std::fs::read(&store).unwrap();
    let args = ["put", &store, "store", "--file", &store];
    run(&args).code(2).stdout("").stderr_has("is the store itself").stderr_has("hedgerow backup");
    assert!(std::fs::read(&store).unwrap() == bytes);
}
