//! Opening and closing a store costs what is in it, and not what the memory limit allows for.
//!
//! What a process takes is measured in a child of its own: this very test binary, told by an environment variable.
#![cfg(target_os = "linux")]
#![allow(clippy::disallowed_methods, reason = "a test that starts processes and measures them")]

use crate::common::key;
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

const CHILD: &str = "HEDGEROW_OPENING_CHILD";
/// What opening and closing may add to the memory of a process, at any limit.
const MOST_BYTES: u64 = 8 << 20;
const LIMITS: [u64; 4] = [64 << 20, 1 << 30, 64 << 30, 1 << 40];
const RECORDS: u64 = 300;

/// Bytes of a line of `/proc/self/status`.
fn status_bytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// Runs the named test again, in a shell after `before`, with `task` in the environment.
fn child(test: &str, before: &str, task: &str) -> Output {
    let this = std::env::current_exe().unwrap();
    Command::new("sh")
        .args(["-c", &format!("{before}\nexec \"$0\" \"$@\"")])
        .arg(this)
        .args([&format!("opening::{test}"), "--exact", "--nocapture", "--test-threads=1"])
        .env(CHILD, task)
        .output()
        .unwrap()
}

/// The same, and the child must have got to its end.
fn child_succeeds(test: &str, before: &str, task: &str) {
    let output = child(test, before, task);
    let out = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    println!("{out}");
    assert!(output.status.success(), "{task}: {}\n{out}\n{error}", output.status);
    assert!(out.contains("the child is done"), "{task}: {out}\n{error}");
}

/// Whether this process is such a child, and of which task.
fn task() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Runs a step, and checks what the process had more at its peak.
fn measured(limit: u64, step: &str, run: impl FnOnce()) {
    // From here on the peak is that of the step.
    std::fs::write("/proc/self/clear_refs", "5").ok();
    let (before, since) = (status_bytes("VmRSS"), Instant::now());
    run();
    let more = status_bytes("VmHWM").saturating_sub(before);
    println!("{limit}, {step}: {more} bytes, {:?}", since.elapsed());
    assert!(more < MOST_BYTES, "{limit}, {step}: {more} bytes");
}

/// Opens, uses and closes stores of this limit: an empty one, one with some records, one in memory.
fn open_at(limit: u64, dir: &Path) {
    let options = Options::new().memory_limit_bytes(limit);
    let path = dir.join("store");
    measured(limit, "create", || options.create(&path).unwrap().close().unwrap());
    measured(limit, "open an empty one", || options.open(&path).unwrap().close().unwrap());
    measured(limit, "put", || {
        let db = options.open(&path).unwrap();
        let keyspace = db.keyspace("some").unwrap();
        for n in 0..RECORDS {
            keyspace.put(&key(n), &n.to_le_bytes()).unwrap();
        }
        assert_eq!(keyspace.count().unwrap(), RECORDS);
        db.close().unwrap();
    });
    measured(limit, "read", || {
        let db = options.open_read_only(&path).unwrap();
        let keyspace = db.open_keyspace("some").unwrap().unwrap();
        assert_eq!(keyspace.get(&key(7)).unwrap().as_deref(), Some(&7_u64.to_le_bytes()[..]));
        db.close().unwrap();
    });
    measured(limit, "in memory", || {
        let db = options.in_memory().unwrap();
        put_and_get(&db);
        db.close().unwrap();
    });
}

#[test]
fn opening_and_closing_cost_no_memory_at_any_limit() {
    if let Some(task) = task() {
        let dir = tempfile::tempdir().unwrap();
        // What a first store of any limit takes for good (threads, the allocator) is not the question.
        let small = dir.path().join("small");
        std::fs::create_dir(&small).unwrap();
        open_at(1 << 20, &small);
        open_at(task.parse().unwrap(), dir.path());
        println!("the child is done");
        return;
    }
    for limit in LIMITS {
        child_succeeds("opening_and_closing_cost_no_memory_at_any_limit", "", &limit.to_string());
    }
}

/// A limit that no machine has is one that is not reached, or an error; never the end of the process.
#[test]
fn a_limit_beyond_all_memory_works_or_is_refused() {
    if let Some(task) = task() {
        let limit = task.parse().unwrap();
        // What is written is not the question: a disk in memory has room for all that is asked for ahead.
        let disk = SimDisk::new(1);
        for page_bytes in [4096, 2048, 65536] {
            let options = Options::new().memory_limit_bytes(limit).page_bytes(page_bytes);
            let in_memory = options.in_memory().map(|db| put_and_get(&db));
            check_refusal(limit, "in memory", in_memory);
            let path = format!("of pages of {page_bytes}");
            let open = |options: &Options, how| options.on_disk(&disk, Path::new(&path), how);
            let small = options.clone().memory_limit_bytes(8 << 20);
            open(&small, OpenHow::New).unwrap().close().unwrap();
            let opened = open(&options, OpenHow::ReadOnly).and_then(|db| {
                assert_eq!(db.keyspaces().unwrap(), Vec::<String>::new());
                db.close()
            });
            check_refusal(limit, "reading", opened);
            let opened = open(&options, OpenHow::Existing).and_then(|db| {
                put_and_get(&db);
                db.close()
            });
            check_refusal(limit, "writing", opened);
            let path = path.clone() + ", new";
            let created = options.on_disk(&disk, Path::new(&path), OpenHow::New);
            check_refusal(limit, "creating", created.and_then(|db| db.close()));
        }
        println!("the child is done");
        return;
    }
    for limit in
        [15 << 40, 16 << 40, 127 << 40, 128 << 40, 1 << 50, 1 << 62, u64::MAX >> 1, u64::MAX]
    {
        let test = "a_limit_beyond_all_memory_works_or_is_refused";
        child_succeeds(test, "", &limit.to_string());
    }
}

fn put_and_get(db: &Database) {
    let keyspace = db.keyspace("some").unwrap();
    keyspace.put(b"wren", b"small").unwrap();
    assert_eq!(keyspace.get(b"wren").unwrap().as_deref(), Some(&b"small"[..]));
}

fn check_refusal(limit: u64, step: &str, outcome: hedgerow::Result<()>) {
    println!("{limit}, {step}: {outcome:?}");
    if let Err(error) = outcome {
        assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{limit}, {step}: {error}");
        assert!(error.to_string().contains("memory_limit_bytes"), "{error}");
        assert!(error.to_string().contains("--memory-limit"), "{error}");
    }
}

/// The default limit is a share of the machine's memory, of which a process with limits of its own has less.
#[test]
fn the_default_limit_fits_into_the_limits_of_the_process() {
    let test = "the_default_limit_fits_into_the_limits_of_the_process";
    if task().is_some() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let db = Options::new().create(&path).unwrap();
        put_and_get(&db);
        let limit = db.stats().unwrap().memory.limit_bytes;
        db.close().unwrap();
        let db = Options::new().open(&path).unwrap();
        put_and_get(&db);
        let keyspace = db.keyspace("more").unwrap();
        for n in 0..2000 {
            keyspace.put(&key(n), &[b'x'; 900]).unwrap();
        }
        assert_eq!(keyspace.count().unwrap(), 2000);
        db.close().unwrap();
        put_and_get(&Options::new().in_memory().unwrap());
        println!("the default is {limit}");
        // What is asked for by name is tried, and refused by name.
        let options = Options::new().memory_limit_bytes(64 << 30);
        for refused in [options.open(&path).err(), options.in_memory().err()] {
            let error = refused.expect("more than the process may have");
            check_refusal(64 << 30, "too much", Err(error));
        }
        println!("the child is done");
        return;
    }
    for kind in ["-v", "-d"] {
        for mib in [4096, 1024, 512, 256] {
            child_succeeds(test, &format!("ulimit {kind} {}", mib << 10), &format!("{kind} {mib}"));
        }
    }
}

/// It went past the page cache whatever was asked for, so a page smaller than the disk's blocks was refused with the advice to ask for this.
#[test]
fn a_temporary_store_goes_through_the_page_cache_if_asked_to() {
    const O_DIRECT: u32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };
    let temporary = || -> Vec<(String, bool)> {
        let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
        let names = descriptors.flatten().filter_map(|descriptor| {
            let leads_to = std::fs::read_link(descriptor.path()).ok()?;
            let is_temporary = leads_to.to_string_lossy().ends_with(".tmp (deleted)");
            let name = descriptor.file_name().into_string().ok()?;
            let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{name}")).ok()?;
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
            let flags = u32::from_str_radix(flags.trim(), 8).ok()?;
            is_temporary.then(|| (leads_to.to_string_lossy().into_owned(), flags & O_DIRECT != 0))
        });
        names.collect()
    };
    let before = temporary();
    let db = Options::new().direct_io(false).memory_limit_bytes(4 << 20).temporary().unwrap();
    let new: Vec<_> = temporary().into_iter().filter(|file| !before.contains(file)).collect();
    // Other tests make some at the same time.
    assert!(new.iter().any(|(_, is_direct)| !is_direct), "{new:?}");
    db.close().unwrap();
}
