//! `tour`: the whole of it on a small scale, and that it cleans up.

use crate::harness::{Scratch, run};
use std::path::Path;

#[test]
fn every_step_is_right_and_reported() {
    let scratch = Scratch::new("tour");
    let store = scratch.path("tour.hrow");
    let args = ["tour", "--records", "40000", "--store", &store, "--threads", "2"];
    let json = run(&[&args[..], &["--format", "json"]].concat()).code(0).json();
    let steps = json["steps"].as_array().unwrap();
    let names: Vec<_> = steps.iter().map(|step| step["step"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "load",
            "walk leaves",
            "look up",
            "look up many",
            "look up absent",
            "scan prefixes",
            "overwrite",
            "delete half",
            "values",
            "heal a leaf",
            "compact",
            "close",
            "kill -9",
            "reopen",
            "check the kill",
            "check all",
            "verify"
        ]
    );
    assert_eq!(steps[0]["count"], 40_000);
    let count = |name: &str| {
        steps.iter().find(|step| step["step"] == name).unwrap()["count"].as_u64().unwrap()
    };
    assert!(count("kill -9") >= 64 && count("check the kill") >= count("kill -9"), "{json:#}");
    assert_eq!(count("values"), 256);
    let how = steps.iter().find(|step| step["step"] == "values").unwrap()["how"].as_str().unwrap();
    assert!(how.contains("100 bytes to 100"), "{how}");
    // Whether threads met, and so a leaf was split, is the machine's business.
    let healed = &json["healed"];
    let after = healed["leaves_after"].as_u64().unwrap();
    assert_eq!(healed["leaves_before"], 1);
    // What was split and is cold by now may have been merged again.
    assert!((1..=1 + healed["splits"].as_u64().unwrap()).contains(&after), "{healed:#}");
    assert!(count("heal a leaf") > 0);
    let compacted = &json["compacted"];
    let bytes = |name: &str| compacted[name].as_u64().unwrap();
    assert!(bytes("leaves_freed") > 0, "{compacted:#}");
    assert!(bytes("file_bytes_after") <= bytes("file_bytes_before") + (256 << 10), "{compacted:#}");
    let stat = run(&["stat", &store, "--format", "json"]).code(0).json();
    let values = &stat["values_by_keyspace"]["tour/values"];
    let (leaves, extents) = (&values["in_leaves"]["values"], &values["in_extents"]["values"]);
    assert_eq!(leaves.as_u64().unwrap() + extents.as_u64().unwrap(), 256, "{values:#}");
    assert_eq!(json["records_left"], 20_000);
    // Each leaf after the load is in one row, and both sets have some.
    let leaves = json["leaves"].as_array().unwrap();
    let records: u64 = leaves.iter().map(|row| row["records"].as_u64().unwrap()).sum();
    assert_eq!(records, 40_000);
    for set in ["URLs", "composite keys"] {
        let rows: Vec<_> = leaves.iter().filter(|row| row["keys"] == set).collect();
        assert!(!rows.is_empty(), "{leaves:#?}");
        for row in rows.into_iter().filter(|row| row["layout"] == "fingerprint") {
            // What makes a leaf a fingerprint leaf is one of these two.
            let count = |name: &str| row[name].as_u64().unwrap();
            let reasons = count("leaves_with_heads_alike") + count("leaves_with_long_keys");
            assert!(reasons >= count("leaves") / 2, "{row:#}");
        }
    }
    assert!(json["adaptation"]["by_splits"].as_u64().unwrap() > 0, "{json:#}");
    run(&["count", &store]).code(0).stdout("20000\n");
}

/// For people: healing and compaction have short lines.
#[test]
fn the_lines_of_healed_leaves_and_regained_space_fit_into_a_hundred_columns() {
    let done = run(&["tour", "--records", "2000", "--threads", "1"]).code(0);
    for name in ["heal a leaf", "compact"] {
        let text = done.text();
        let line = text.lines().find(|line| line.starts_with(name));
        let line = line.unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(line.chars().count() <= 100, "{line}");
    }
}

#[test]
fn a_store_of_the_users_is_never_touched() {
    let (_scratch, store) = Scratch::loaded("tour-existing", "a\tb\n");
    run(&["tour", "--records", "1000", "--store", &store]).code(1).stderr_has("cannot create");
    run(&["scan", &store]).code(0).stdout("a\tb\n");
    assert!(Path::new(&store).exists());
}
