//! The program as it is called: seeds that bring runs back, and those that are refused.

use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &str) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_hedgerow-torture"));
    program.args(arguments.split_whitespace()).output().unwrap()
}

/// What it prints if all is well.
fn said(arguments: &str) -> String {
    let Output { status, stdout, stderr } = run(arguments);
    let (said, words) = (String::from_utf8(stdout).unwrap(), String::from_utf8_lossy(&stderr));
    assert!(status.success() && words.is_empty(), "{arguments}: {status}: {said}{words}");
    said
}

#[test]
fn a_seed_brings_a_simulation_back() {
    let first = said("--seed 7");
    assert!(first.starts_with("torture: seed 4.7\ntorture: Scenario { seed: 7, "), "{first}");
    assert!(first.contains("torture: 1 stores, "), "{first}");
    // Alone, or as it was printed.
    assert_eq!(said("--seed 4.7"), first);
}

#[test]
fn time_and_power_cuts_bound_a_run() {
    let json = |arguments: &str| -> Value { serde_json::from_str(&said(arguments)).unwrap() };
    let timed = json("--seed 7 --seconds 1 --format json");
    assert_eq!(timed["seed"], "4.7");
    assert!(timed["stores"].as_u64().unwrap() >= 1, "{timed}");
    let cut = json("--cuts 300 --threads 2 --format json");
    let number = |name: &str| cut[name].as_u64().unwrap();
    assert!(number("power_cuts") + number("kills") >= 300, "{cut}");
    assert!(number("stores") >= 2, "{cut}");
}

#[test]
fn wrong_seeds_are_refused_before_anything_is_done() {
    for (seed, code, words) in
        [("999.7", 8, "version 999 of the scenarios"), ("v1", 2, "such as 1.12345")]
    {
        let Output { status, stdout, stderr } = run(&format!("--seed {seed}"));
        let said = String::from_utf8_lossy(&stderr);
        assert_eq!((status.code(), stdout.as_slice()), (Some(code), &b""[..]), "{said}");
        assert!(said.contains(words), "{said}");
    }
}
