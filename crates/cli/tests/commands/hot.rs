//! `hot`: a load of updates that changes no record, and what is said of it.

use crate::harness::{Scratch, run};

#[test]
fn a_load_of_updates_changes_nothing_and_is_counted() {
    let text: String = (0..40).map(|n| format!("hot{n:02}\tvalue {n}\n")).collect();
    let (scratch, store) = Scratch::loaded("hot", &text);
    let keys = scratch.file("keys.txt", "hot03\nhot31\tof no matter\n\n");
    let hot = ["hot", &store, "--keys", &keys, "--threads", "2", "--seconds", "1"];
    let json = run(&[&hot[..], &["--format", "json"]].concat()).code(0).silent().json();
    assert!(json["updates"].as_u64().unwrap() > 0, "{json}");
    let splits = json["contention"]["splits"].as_u64().unwrap();
    let leaves = json["leaves"].as_array().unwrap();
    // Whether two threads meet is up to the machine; what was split is listed.
    let split = leaves.iter().filter(|leaf| leaf["splits"].as_u64().unwrap() > 0).count() as u64;
    assert_eq!(split, if splits == 0 { 0 } else { splits + 1 }, "{json}");
    for leaf in leaves {
        assert_eq!(leaf["keyspace"], "default");
        assert!(leaf["prefix"].as_str().unwrap().starts_with("hot"), "{json}");
    }
    let words = run(&hot).code(0).silent();
    assert!(words.text().starts_with("updates "), "{}", words.text());
    run(&["scan", &store]).code(0).stdout(&text);
    run(&["verify", &store]).code(0);
}

#[test]
fn what_cannot_be_loaded_is_said_before_anything_is() {
    let (scratch, store) = Scratch::loaded("hot-wrong", "a\tb\n");
    let hot =
        |keys: &str, more: &[&str]| run(&[&["hot", &store, "--keys", keys][..], more].concat());
    let none = scratch.file("none.txt", "\n\n");
    hot(&none, &[]).code(1).stderr_has("has no keys");
    let missing = scratch.file("missing.txt", "a\nz\n");
    hot(&missing, &[]).code(1).stderr_has("no record of the key z");
    hot(&scratch.path("nowhere.txt"), &[]).code(1).stderr_has("cannot read");
    let broken = scratch.file("broken.txt", "a\n\\x\n");
    hot(&broken, &["--escaped"]).code(1).stderr_has("line 2");
    hot(&missing, &["--threads", "0"]).code(2);
    hot(&missing, &["--seconds", "0"]).code(2);
    run(&["put", &store, "long", &"x".repeat(5000)]).code(0);
    let long = scratch.file("long.txt", "long\n");
    hot(&long, &[]).code(1).stderr_has("shorter values");
    let nowhere = scratch.path("nowhere.hrow");
    run(&["hot", &nowhere, "--keys", &missing]).code(1);
    assert!(!std::path::Path::new(&nowhere).exists());
}
