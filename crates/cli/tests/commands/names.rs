//! Stores whose files are removed, renamed or replaced while a command works on them.

use crate::harness::{Scratch, command, interruptible, run, wait};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A load that has begun, and waits for more input.
struct Load {
    child: Child,
    stdin: ChildStdin,
}

impl Load {
    fn begin(store: &str) -> Load {
        let args = ["load", store, "-"];
        let mut child = command(&args).stdin(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        Load { child, stdin }
    }

    /// Gives it records, and waits until the log has them.
    fn add(&mut self, store: &str, prefix: &str) {
        let text: String = (0..50_000).map(|n| format!("{prefix} {n:06}\n")).collect();
        let before = log_blocks(store);
        self.stdin.write_all(text.as_bytes()).unwrap();
        self.stdin.flush().unwrap();
        // Records are durable within a tenth of a second. When the log has not grown for a second, nothing more comes, also where
        // the load is slow: without optimisation, on a busy machine.
        let (begun, mut blocks, mut grown) = (Instant::now(), before, Instant::now());
        while blocks < before + 8 || grown.elapsed() < Duration::from_secs(1) {
            assert!(begun.elapsed() < Duration::from_secs(60), "the log does not come to rest");
            sleep(Duration::from_millis(20));
            let now = log_blocks(store);
            if now != blocks {
                (blocks, grown) = (now, Instant::now());
            }
        }
    }

    fn signal(self, signal: &str) -> Child {
        let pid = self.child.id().to_string();
        let sent = std::process::Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(sent.success());
        self.child
    }
}

/// Blocks of the log that are not zeros.
fn log_blocks(store: &str) -> usize {
    let log = fs::read(format!("{store}-log")).unwrap_or_default();
    log.chunks(4096).filter(|block| block.iter().any(|&byte| byte != 0)).count()
}

fn count(store: &str) -> u64 {
    run(&["count", store]).code(0).text().trim().parse().unwrap()
}

/// The case of the issue: the first load ends by a signal, and then the second is killed.
fn two_loads(name: &str, take_away: impl Fn(&str)) -> (Scratch, String) {
    let scratch = Scratch::new(name);
    let store = scratch.store();
    let mut first = Load::begin(&store);
    first.add(&store, "first");
    take_away(&store);
    let mut second = Load::begin(&store);
    second.add(&store, "second");
    let args = ["load", &store, "-"];
    wait(&args, first.signal("-TERM")).code(130).stderr_has("interrupted");
    let log = format!("{store}-log");
    assert!(Path::new(&log).exists(), "the log of the second is gone");
    let mut killed = second.signal("-KILL");
    killed.wait().unwrap();
    assert!(count(&store) > 40_000, "{} of the second", count(&store));
    run(&["verify", &store]).code(0);
    (scratch, store)
}

#[test]
fn a_load_that_ends_leaves_the_log_of_the_store_that_took_its_path() {
    two_loads("names-removed", |store| {
        fs::remove_file(store).unwrap();
        fs::remove_file(format!("{store}-log")).unwrap();
    });
}

#[test]
fn a_load_whose_files_are_renamed_ends_with_all_that_it_had_written() {
    let (_scratch, store) = two_loads("names-renamed", |store| {
        fs::rename(store, format!("{store}.old")).unwrap();
        fs::rename(format!("{store}-log"), format!("{store}.old-log")).unwrap();
    });
    let old = format!("{store}.old");
    assert!(count(&old) > 40_000, "{} of the first", count(&old));
    run(&["verify", &old]).code(0);
}

#[test]
fn a_load_whose_log_was_removed_closes_its_store() {
    let scratch = Scratch::new("names-no-log");
    let store = scratch.store();
    let mut load = Load::begin(&store);
    load.add(&store, "first");
    fs::remove_file(format!("{store}-log")).unwrap();
    wait(&["load", &store, "-"], load.signal("-TERM")).code(130).stderr_has("interrupted");
    assert!(count(&store) > 40_000);
}

#[test]
fn a_put_makes_no_store_beside_the_log_of_one_that_was_emptied() {
    let scratch = Scratch::new("names-emptied");
    let store = scratch.store();
    let mut load = Load::begin(&store);
    load.add(&store, "first");
    let mut killed = load.signal("-KILL");
    killed.wait().unwrap();
    let whole = fs::read(&store).unwrap();
    let log = fs::read(format!("{store}-log")).unwrap();
    fs::write(&store, "").unwrap();
    run(&["put", &store, "key", "value"]).code(1).stderr_has("-log has changes");
    assert_eq!(fs::read(&store).unwrap(), b"");
    assert!(fs::read(format!("{store}-log")).unwrap() == log);
    fs::write(&store, whole).unwrap();
    assert!(count(&store) > 40_000);
}

#[test]
fn put_and_get_say_the_same_of_a_link_that_leads_to_no_file() {
    let scratch = Scratch::new("names-dangling");
    let store = scratch.store();
    std::os::unix::fs::symlink(scratch.path("nothing"), &store).unwrap();
    let words = "a symbolic link that leads to no file";
    for args in [&["put", &store, "key", "value"][..], &["get", &store, "key"], &["count", &store]]
    {
        run(args).code(1).stderr_has(words);
    }
    assert!(fs::symlink_metadata(&store).unwrap().is_symlink());
    assert!(!Path::new(&scratch.path("nothing")).exists());
}

#[test]
fn a_dump_that_is_cut_short_removes_its_own_file_alone() {
    let text: String = (0..300_000).map(|n| format!("key {n:06}\n")).collect();
    let (scratch, store) = Scratch::loaded("names-dump", text);
    let out = scratch.path("out.txt");
    for is_replaced in [false, true] {
        let args = ["dump", &store, "--out", &out];
        let dump = interruptible(&args).spawn().unwrap();
        let begun = Instant::now();
        while !Path::new(&out).exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "the dump does not begin");
        }
        if is_replaced {
            fs::rename(&out, scratch.path("renamed.txt")).unwrap();
            fs::write(&out, "a letter").unwrap();
        }
        let pid = dump.id().to_string();
        std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
        let done = wait(&args, dump);
        // It may have been faster.
        assert!(matches!(done.exit_code(), Some(0 | 130)), "{}", done.stderr());
        match is_replaced {
            true => assert_eq!(fs::read(&out).unwrap(), b"a letter"),
            false => assert_eq!(Path::new(&out).exists(), done.exit_code() == Some(0)),
        }
        let _ = fs::remove_file(&out);
    }
}
