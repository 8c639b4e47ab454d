//! `compact`: what it gains, that no record changes, and stores that cannot be written.

use crate::harness::{Scratch, run};
use std::fs;

/// Records in an order that leaves the pages about two thirds full.
fn loaded(name: &str) -> (Scratch, String) {
    let line = |n: u32| format!("{:08x}\t{n:0>60}\n", n.wrapping_mul(0x9E37_79B1));
    Scratch::loaded(name, (0..6_000).map(line).collect::<String>())
}

#[test]
fn a_compacted_store_has_fewer_leaves_and_the_same_records() {
    let (_scratch, store) = loaded("compact");
    let records = run(&["scan", &store]).code(0).text().to_owned();
    let before = fs::metadata(&store).unwrap().len();
    let done = run(&["compact", &store]).code(0).silent();
    assert!(done.text().starts_with("compacted: ") && done.text().contains(" -> "));
    assert!(!done.text().contains(": 0 of"), "{}", done.text());
    let after = fs::metadata(&store).unwrap().len();
    // Images are short where leaves are not full, so the file of a small store gains little; it keeps room for the next changes.
    assert!(after <= before + (256 << 10), "{before} to {after}");
    run(&["scan", &store]).code(0).stdout(&records);
    run(&["verify", &store]).code(0);
    // There is nothing left to do.
    let json = run(&["compact", &store, "--format", "json"]).code(0).json();
    assert_eq!(json["leaves_freed"], 0, "{json:#}");
    assert_eq!(json["keyspaces"], 1);
    assert!(json["leaves"].as_u64().unwrap() > 10);
    assert!(json["after_bytes"].as_u64().unwrap() <= after + (256 << 10));
    run(&["scan", &store]).code(0).stdout(&records);
}

#[test]
fn what_cannot_be_compacted_is_said() {
    let scratch = Scratch::new("compact-not");
    let store = scratch.store();
    run(&["compact", &store]).code(1).stdout("");
    let text = scratch.file("no-store", "birds");
    run(&["compact", &text]).code(1).stdout("");
    run(&["compact"]).code(2);
    run(&["put", &store, "wren", "hedges"]).code(0);
    run(&["compact", &store, "--keyspace", "birds"]).code(2).stderr_has("whole stores");
    run(&["compact", &store]).code(0);
    run(&["get", &store, "wren"]).code(0).stdout("hedges\n");
}
