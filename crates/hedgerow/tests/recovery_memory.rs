//! The memory limit holds while a store is opened after a crash, whatever its log has: a process that opens a store whose
//! log has a batch of the largest size under way, of which there is one at a time, stays below the limit and 16 MiB.
//!
//! One child process writes the batch, and is killed in the middle by its own hand. A second one opens the store, and looks
//! at its own peak; `.ci/memory` runs that one inside of a memory cgroup, where it would be killed, with a log sixteen times as long.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::disallowed_methods, reason = "a test with processes of its own")]

use hedgerow::{Database, Durability, Keyspace, Options, WriteBatch};
use hedgerow_testing::environment::positive;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LIMIT_BYTES: u64 = 8 << 20;
const ALLOWANCE_BYTES: u64 = 16 << 20;
const BATCHES: u64 = 1;
const CHILD: &str = "HEDGEROW_RECOVERY_CHILD";
const STORE: &str = "HEDGEROW_RECOVERY_STORE";
const SHAPE: &str = "HEDGEROW_RECOVERY_SHAPE";

/// What the changes of a batch are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// Records of about a KiB.
    Middling,
    /// Keys of four bytes and no values.
    Tiny,
    /// Keys and values as long as a leaf takes them.
    Large,
    /// References to values of 1,500 bytes that lie in the file.
    Extents,
    /// Every second one is of a keyspace that is dropped, which waits for the batch.
    Dropped,
}

const SHAPES: [(&str, Shape); 5] = [
    ("middling", Shape::Middling),
    ("tiny", Shape::Tiny),
    ("large", Shape::Large),
    ("extents", Shape::Extents),
    ("dropped", Shape::Dropped),
];

/// The log's limit in bytes. A batch may take an eighth of it, at most 128 MiB.
fn log_limit_bytes() -> u64 {
    positive("HEDGEROW_RECOVERY_LOG").unwrap_or(64 << 20)
}

fn options() -> Options {
    Options::new().memory_limit_bytes(LIMIT_BYTES).log_limit_bytes(log_limit_bytes())
}

impl Shape {
    fn lengths(self) -> (usize, usize) {
        match self {
            Shape::Middling => (16, 900),
            Shape::Tiny => (4, 0),
            Shape::Large => (480, 480),
            Shape::Extents => (8, 2500),
            Shape::Dropped => (16, 300),
        }
    }

    /// How many changes fit into the largest batch: header, key, value or reference, and the note that it was made.
    fn changes(self) -> u64 {
        let (key, value) = self.lengths();
        let value = if self == Shape::Extents { 48 } else { value };
        let batch = (log_limit_bytes() / 8).min(128 << 20);
        // Records of batches are a little more than what they hold.
        let most = batch / 100 * 95 / (32 + key + value) as u64;
        // The values themselves go to the file, and before that lie in the memory of the writer.
        if self == Shape::Extents { most.min(5000) } else { most }
    }

    fn record(self, batch: u64, n: u64) -> (Vec<u8>, Vec<u8>) {
        let (key_bytes, value_bytes) = self.lengths();
        let mut key = ((batch << 28 | n) as u32).to_be_bytes().to_vec();
        key.resize(key_bytes, b'k');
        let mut value = n.to_le_bytes().to_vec();
        value.resize(value_bytes, batch as u8);
        (key, value)
    }

    fn keyspace(self, n: u64, (kept, dropped): &(Keyspace, Keyspace)) -> &Keyspace {
        if self == Shape::Dropped && n % 2 == 1 { dropped } else { kept }
    }
}

fn keyspaces(db: &Database) -> (Keyspace, Keyspace) {
    (db.keyspace("kept").unwrap(), db.keyspace("dropped").unwrap())
}

/// Begins a batch of the largest size, and ends the process when the log has all of it. If it has ended before, tries again.
fn write(path: &Path, shape: Shape) {
    for _ in 0..20 {
        write_once(path, shape);
        std::fs::remove_file(path).unwrap();
    }
    panic!("the batch has always ended before anybody has looked");
}

fn write_once(path: &Path, shape: Shape) {
    let db = options().create(path).unwrap();
    let both = keyspaces(&db);
    let batches: Vec<_> = (0..BATCHES)
        .map(|number| {
            let mut batch = WriteBatch::new();
            for n in 0..shape.changes() {
                let (key, value) = shape.record(number, n);
                batch.put(shape.keyspace(n, &both), &key, &value).unwrap();
            }
            batch.set_durability(Durability::Buffered);
            batch
        })
        .collect();
    let (key, value) = shape.lengths();
    let value = if shape == Shape::Extents { 48 } else { value };
    // All changes are logged first, in pieces and blocks whose headers take less than a fiftieth. A note of 20 bytes for each change that was
    // made follows. So behind this much the batch is logged whole, and most of its changes are still to be made.
    let logged = BATCHES * shape.changes() * ((12 + key + value) as u64 * 51 / 50 + 3);
    let done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for batch in &batches {
            scope.spawn(|| {
                db.write(batch).unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        let has_ended = || done.load(Ordering::Relaxed) > 0;
        while db.stats().unwrap().log_used_bytes < logged && !has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if has_ended() {
            return;
        }
        if shape == Shape::Dropped {
            db.drop_keyspace("dropped").unwrap();
        }
        db.sync().unwrap();
        println!("the batch is under way");
        // As a kill from outside does: nothing is closed, nothing is flushed.
        let pid = std::process::id().to_string();
        Command::new("kill").args(["-KILL", &pid]).status().unwrap();
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    drop(batches);
    drop(both);
    db.close().unwrap();
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

/// Opens the store, and looks at every record of every batch.
fn open(path: &Path, shape: Shape) {
    let db = options().open(path).unwrap();
    let replayed = db.replayed();
    let peak = peak_bytes();
    let (records, bytes) = (replayed.records, replayed.log_bytes);
    println!("{shape:?}: peak {peak} bytes, {records} changes of {bytes} bytes of log");
    let log = shape.changes() * (12 + shape.lengths().0) as u64;
    if replayed.log_bytes <= log / 4 * 3 {
        // A checkpoint had it all before the process ended: on a busy machine that comes late.
        println!("the batch had ended");
        return;
    }
    assert!(peak <= LIMIT_BYTES + ALLOWANCE_BYTES, "{peak} bytes at the peak of opening");
    let kept = db.open_keyspace("kept").unwrap().unwrap();
    assert_eq!(db.open_keyspace("dropped").unwrap().is_none(), shape == Shape::Dropped);
    let mut cursor = kept.cursor();
    let mut next = cursor.next_record().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
    let mut whole = 0;
    for batch in 0..BATCHES {
        let is_there = next.as_ref().is_some_and(|(key, _)| *key == shape.record(batch, 0).0);
        whole += u64::from(is_there);
        for n in (0..shape.changes()).filter(|_| is_there) {
            if shape == Shape::Dropped && n % 2 == 1 {
                continue;
            }
            let record = shape.record(batch, n);
            assert!(next == Some(record), "{shape:?}: change {n} of {batch}");
            next = cursor.next_record().unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
        }
    }
    assert_eq!(next, None, "a part of a batch is there");
    println!("{shape:?}: {whole} of {BATCHES} batches are there");
    assert!(whole == BATCHES, "{shape:?}: {whole} batches");
    let peak = peak_bytes();
    assert!(peak <= LIMIT_BYTES + ALLOWANCE_BYTES, "{peak} bytes at the peak of reading");
    drop(cursor);
    drop(kept);
    db.close().unwrap();
}

fn run(child: &str, path: &Path, shape: &str) -> Output {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(program);
    command
        .args(["a_store_is_opened_within_its_limit_whatever_batches_were_under_way", "--exact"])
        .arg("--nocapture")
        .env(CHILD, child)
        .env(STORE, path)
        .env(SHAPE, shape);
    command.output().unwrap()
}

#[test]
fn a_store_is_opened_within_its_limit_whatever_batches_were_under_way() {
    let path = std::env::var_os(STORE).map(PathBuf::from);
    let wanted = std::env::var(SHAPE).ok();
    if let (Some(path), Some(child)) = (&path, std::env::var_os(CHILD)) {
        let name = wanted.expect("a child is told what the changes are like");
        let (_, shape) = SHAPES.iter().find(|(known, _)| *known == name).unwrap();
        match child.to_str() {
            Some("write") => write(path, *shape),
            _ => open(path, *shape),
        }
        return;
    }
    for (name, shape) in SHAPES {
        let is_under_way = || {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("killed.hrow");
            let written = run("write", &path, name);
            let said = String::from_utf8_lossy(&written.stdout);
            assert!(said.contains("the batch is under way"), "{said}{written:?}");
            assert!(!written.status.success(), "it was killed");
            let opened = run("open", &path, name);
            let said = String::from_utf8_lossy(&opened.stdout);
            assert!(opened.status.success(), "{said}{}", String::from_utf8_lossy(&opened.stderr));
            assert!(said.contains("peak "), "the child did the work: {said}");
            println!("{shape:?}: {said}");
            !said.contains("the batch had ended")
        };
        assert!((0..20).any(|_| is_under_way()), "{shape:?}: it has always ended");
    }
}
