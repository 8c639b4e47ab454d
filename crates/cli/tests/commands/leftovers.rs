//! Commands that create a store or another file, and fail: they leave nothing behind.

use crate::harness::{Scratch, command, run, run_with_input, wait};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Name and bytes of each file in the directory.
fn files(scratch: &Scratch) -> BTreeMap<String, Vec<u8>> {
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    let entries = fs::read_dir(Path::new(&scratch.path(""))).unwrap().map(Result::unwrap);
    entries
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| (name(&entry), fs::read(entry.path()).unwrap()))
        .collect()
}

/// A directory with a store of two keyspaces, and inputs and stores in which something is wrong.
fn with_inputs(name: &str) -> Scratch {
    let (scratch, store) = Scratch::loaded(name, "robin\nwren\n");
    run(&["put", &store, "k", "v", "--keyspace", "other"]).code(0);
    let dump = run(&["dump", &store]).code(0).text().to_owned();
    let whole = fs::read(&store).unwrap();
    scratch.file("short.dump", &dump[..dump.len() / 2]);
    scratch.file("wrong.dump", dump.replacen("robin", "robiN", 1));
    scratch.file("whole.dump", dump);
    scratch.file("long.txt", format!("{}\n", "x".repeat(100_000)));
    scratch.file("escape.txt", "bad\\q\n");
    scratch.file("lines.txt", "robin\nwren\n");
    scratch.file("no-store", [7; 9000]);
    scratch.file("half-store", &whole[..whole.len() / 2]);
    scratch.file("large", vec![3; 4 << 20]);
    fs::create_dir(scratch.path("directory")).unwrap();
    scratch
}

/// Commands that fail. `NEW` is a path at which nothing is, `KEY` a key that is too long, `NAME` a name that is too long for a
/// keyspace, and `STORE` a store.
const FAIL: [&[&str]; 24] = [
    &["put", "NEW", "KEY", "v"],
    &["put", "NEW", "k", "v", "--keyspace", "NAME"],
    &["put", "NEW", "k", "v", "--memory-limit", "1KiB"],
    &["put", "NEW", "k", "--file", "directory"],
    &["put", "NEW", "k", "--file", "missing.txt"],
    &["load", "NEW", "missing.txt"],
    &["load", "NEW", "directory"],
    &["load", "NEW", "long.txt"],
    &["load", "NEW", "escape.txt", "--escaped"],
    &["load", "NEW", "lines.txt", "--keyspace", "NAME"],
    &["load", "NEW", "lines.txt", "--memory-limit", "1KiB"],
    &["load", "NEW", "short.dump"],
    &["load", "NEW", "wrong.dump"],
    &["load", "NEW", "whole.dump", "--keyspace", "none"],
    &["backup", "no-store", "NEW"],
    &["backup", "half-store", "NEW"],
    &["backup", "missing.txt", "NEW"],
    &["backup", "STORE", "large"],
    &["restore", "no-store", "NEW"],
    &["restore", "half-store", "NEW"],
    &["restore", "STORE", "large"],
    &["repair", "no-store", "NEW"],
    &["repair", "missing.txt", "NEW"],
    &["repair", "STORE", "large"],
];

#[test]
fn a_command_that_fails_leaves_neither_store_nor_file() {
    let scratch = with_inputs("leftovers");
    let before = files(&scratch);
    let word = |word: &&str| match *word {
        "KEY" => "x".repeat(100_000),
        "NAME" => "x".repeat(256),
        "STORE" => scratch.store(),
        "NEW" | "directory" | "no-store" | "half-store" | "large" => scratch.path(word),
        file if file.contains('.') => scratch.path(file),
        other => other.to_owned(),
    };
    for args in FAIL {
        let words: Vec<String> = args.iter().map(word).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let done = run(&words);
        assert!(matches!(done.exit_code(), Some(1..)), "{args:?}: {}", done.stderr());
        assert!(!done.stderr().contains("panicked"), "{args:?}: {}", done.stderr());
        assert!(files(&scratch) == before, "{args:?}: {:?}", files(&scratch).keys());
    }
}

#[test]
fn a_load_whose_threads_or_first_line_fail_leaves_no_store() {
    let scratch = with_inputs("leftovers-load");
    let before = files(&scratch);
    let (new, lines) = (scratch.path("NEW"), scratch.path("lines.txt"));
    for threads in ["1", "4"] {
        let args = ["load", &new, &lines, "--threads", threads];
        let mut load = command(&args);
        // No thread gets a stack of this size.
        let child = load.env("RUST_MIN_STACK", (1_u64 << 46).to_string()).spawn().unwrap();
        wait(&args, child).code(1).stderr_has("cannot start").stderr_has("thread");
        assert!(files(&scratch) == before, "{threads}: {:?}", files(&scratch).keys());
    }
    let input = format!("{}\nrobin\n", "x".repeat(100_000));
    run_with_input(&["load", &new, "-", "--threads", "1"], input.as_bytes()).code(1);
    assert!(files(&scratch) == before, "{:?}", files(&scratch).keys());
}

#[cfg(unix)]
#[test]
fn a_value_for_which_there_is_no_room_leaves_no_store() {
    let scratch = with_inputs("leftovers-room");
    let before = files(&scratch);
    // The store has room below this limit of the size of files, and the value has none.
    let script = "trap '' XFSZ; ulimit -f 4000; exec \"$0\" put \"$1\" k --file \"$2\"";
    let output = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_hedgerow")])
        .args([scratch.path("NEW"), scratch.path("large")])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(1..)), "{}: {words}", output.status);
    assert!(words.contains("raise the limit for the length of a file"), "{words}");
    assert!(files(&scratch) == before, "{:?}", files(&scratch).keys());
}

#[test]
#[cfg_attr(windows, ignore = "Windows hands a process at most 32,767 characters")]
fn a_command_that_fails_leaves_no_empty_keyspace_in_a_store_that_was_there() {
    let scratch = with_inputs("leftovers-keyspace");
    let (store, long) = (scratch.store(), scratch.path("long.txt"));
    let key = "x".repeat(100_000);
    for args in [&["put", &*store, &*key, "v"][..], &["load", &store, &long]] {
        let args = [args, &["--keyspace", "new"]].concat();
        assert!(matches!(run(&args).exit_code(), Some(1 | 2)));
        run(&["count", &store, "--keyspace", "new"]).stderr_has("has no keyspace `new`");
    }
    // What was there before stays, empty or not.
    run(&["del", &store, "k", "--keyspace", "other"]).code(0);
    run(&["put", &store, &key, "v", "--keyspace", "other"]).code(2);
    run(&["count", &store, "--keyspace", "other"]).code(0).stdout("0\n");
    run(&["count", &store]).code(0).stdout("2\n");
}
