//! `backup` and `restore`: copies that are stores, and destinations that must not be written over.

use crate::harness::{Scratch, command, run, wait};
use std::fs;
use std::path::Path;
use std::process::Stdio;

pub fn text() -> String {
    (0..5_000).map(|n| format!("key {n:05}\tvalue of {n}\n")).collect()
}

#[test]
fn a_store_comes_back_from_its_backup() {
    let (scratch, store) = Scratch::loaded("backup", text());
    let (backup, restored) = (scratch.path("copy.hrow"), scratch.path("restored.hrow"));
    let scanned = run(&["scan", &store]).code(0).text().to_owned();
    let before = fs::read(&store).unwrap();
    let done = run(&["backup", &store, &backup]).code(0).silent();
    assert!(done.text().starts_with("backed up: "), "{}", done.text());
    assert!(fs::read(&store).unwrap() == before, "the store is only read");
    let done = run(&["restore", &backup, &restored, "--format", "json"]).code(0).silent().json();
    assert!(done["pages"].as_u64().unwrap() >= 20, "{done:#}");
    assert_eq!(done["file_bytes"], fs::metadata(&restored).unwrap().len());
    for copy in [&backup, &restored] {
        run(&["verify", copy]).code(0).silent();
        run(&["scan", copy]).code(0).stdout(&scanned);
        run(&["put", copy, "one", "more"]).code(0);
        run(&["count", copy]).code(0).stdout("5001\n");
    }
    run(&["count", &store]).code(0).stdout("5000\n");
}

#[test]
fn nothing_is_written_over() {
    let (scratch, store) = Scratch::loaded("backup-over", "k\tv\n");
    let backup = scratch.path("copy.hrow");
    run(&["backup", &store, &backup]).code(0);
    let other = scratch.file("other.txt", "a text");
    let gone = scratch.path("gone.hrow");
    scratch.file("gone.hrow-log", "what is left of a store");
    for to in [&store, &backup, &other, &gone] {
        let before = fs::read(to).ok();
        for args in [["backup", &store, to], ["restore", &backup, to]] {
            // A script that tries again while a store is in use must not do so for ever.
            let (code, words) = match args == ["backup", &store, &store] {
                true => (2, "the backup's file is the store itself; give another name"),
                false => (1, "cannot"),
            };
            run(&args).code(code).stdout("").stderr_has(words);
            assert_eq!(fs::read(to).ok(), before, "{args:?}");
        }
    }
    let nowhere = scratch.path("missing/copy.hrow");
    run(&["backup", &store, &nowhere]).code(1).stdout("").stderr_has("no such directory");
    // A store that is in use, as what is to be copied and as what would be replaced.
    let args = ["load", &store, "-"];
    let mut holder = command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = holder.stdin.take().unwrap();
    // More than a pipe holds: once it is written, the load reads, and it opens the store first.
    std::io::Write::write_all(&mut stdin, "new\n".repeat(100_000).as_bytes()).unwrap();
    let copy = scratch.path("another.hrow");
    run(&["backup", &store, &copy]).code(5).stdout("");
    run(&["restore", &backup, &store]).code(5).stdout("");
    assert!(!Path::new(&copy).exists());
    drop(stdin);
    wait(&args, holder).code(0);
}

#[test]
fn a_damaged_backup_is_named_and_not_restored() {
    let (scratch, store) = Scratch::loaded("backup-damage", text());
    let backup = scratch.path("copy.hrow");
    run(&["backup", &store, &backup]).code(0);
    let mut bytes = fs::read(&backup).unwrap();
    let wanted = b"value of 2500";
    let at = bytes.windows(wanted.len()).position(|window| window == wanted).unwrap();
    bytes[at] ^= 1;
    let damaged = scratch.file("damaged.hrow", &bytes);
    let restored = scratch.path("restored.hrow");
    run(&["restore", &damaged, &restored]).code(4).stdout("").stderr_has("the backup is damaged");
    run(&["backup", &damaged, &restored]).code(4).stdout("").stderr_has("page");
    let cut = scratch.file("cut.hrow", &bytes[..100]);
    run(&["restore", &cut, &restored])
        .code(1)
        .stdout("")
        .stderr_has("cut.hrow: the file is too short");
    assert!(!Path::new(&restored).exists());
}

/// A store whose load was killed, when the log had this part of the text.
pub fn killed(name: &str, text: &str, some: &[u8]) -> (Scratch, String) {
    let scratch = Scratch::new(name);
    let store = scratch.store();
    let args = ["load", &store, "-"];
    let mut load = command(&args).stdin(Stdio::piped()).spawn().unwrap();
    let mut stdin = load.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, text.as_bytes()).unwrap();
    // It waits for more. What it has taken is in its log within a tenth of a second.
    let has_it = |log: &Vec<u8>| log.windows(some.len()).any(|window| window == some);
    while !fs::read(format!("{store}-log")).is_ok_and(|log| has_it(&log)) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    load.kill().unwrap();
    wait(&args, load);
    drop(stdin);
    (scratch, store)
}

#[cfg(unix)]
#[test]
fn a_store_that_was_not_closed_is_backed_up_with_what_its_log_has() {
    let (scratch, store) = killed("backup-killed", &text(), b"value of 0");
    let backup = scratch.path("copy.hrow");
    run(&["backup", &store, &backup]).code(0);
    let count = run(&["count", &store]).code(0).text().to_owned();
    run(&["count", &backup]).code(0).stdout(&count);
    run(&["verify", &backup]).code(0);
}

/// Opening it for reading alone replays the log into memory.
#[cfg(unix)]
#[test]
fn a_store_whose_log_does_not_fit_into_memory_is_backed_up() {
    let value = "v".repeat(1_000);
    // Less than makes a checkpoint due.
    let text: String = (0..6_000).map(|n| format!("key {n:05}\t{n} {value}\n")).collect();
    let (scratch, store) = killed("backup-small", &text, b"5500 vvv");
    let backup = scratch.path("copy.hrow");
    run(&["count", &store, "--memory-limit", "4MiB"]).code(1).stderr_has("memory");
    run(&["backup", &store, &backup, "--memory-limit", "4MiB"]).code(0);
    let count = run(&["count", &store]).code(0).text().to_owned();
    run(&["count", &backup]).code(0).stdout(&count);
    run(&["verify", &backup]).code(0);
}
