//! How much of the disk a store and its log take together: while it is loaded and overwritten, and when nobody changes
//! it any more.
//!
//! On real files, by their lengths. No test asserts a speed; what has to happen by itself is waited for, for long.
#![allow(clippy::disallowed_methods, reason = "a test with files of its own")]

use hedgerow::internals::store::log_path;
use hedgerow::{Database, Durability, Options};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

const RECORDS: u64 = 50_000;
const RECORD_BYTES: u64 = 108;
/// Beside 2.5 times the records while they are changed.
const BESIDE_BYTES: u64 = 32 << 20;
/// Beside 1.7 times the records when nobody changes them.
const AT_REST_BYTES: u64 = 2 << 20;
/// How long a store may take to come to rest on a machine that does much else.
const PATIENCE: Duration = Duration::from_secs(120);

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Files {
        Files(tempfile::tempdir().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("birds.hrow")
    }

    /// Lengths of the store's file and of its log.
    fn bytes(&self) -> (u64, u64) {
        let len = |path: &Path| fs::metadata(path).map_or(0, |found| found.len());
        (len(&self.store()), len(&log_path(self.store())))
    }

    fn assert_within(&self, most_bytes: u64, when: &str) {
        let (store, log) = self.bytes();
        assert!(store + log <= most_bytes, "{when}: {store} + {log} bytes, and not {most_bytes}");
    }

    /// What tells whether anything was written.
    fn state(&self) -> Vec<(u64, SystemTime)> {
        let of = |path: &Path| fs::metadata(path).map(|m| (m.len(), m.modified().unwrap()));
        vec![of(&self.store()).unwrap(), of(&log_path(self.store())).unwrap()]
    }

    fn wait_until_within(&self, most_bytes: u64) {
        let since = Instant::now();
        while self.bytes().0 + self.bytes().1 > most_bytes {
            let (store, log) = self.bytes();
            assert!(since.elapsed() < PATIENCE, "{store} + {log} bytes, and not {most_bytes}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until nothing was written for a while, which it may not be afterwards.
    fn assert_comes_to_rest(&self) {
        let (since, quiet) = (Instant::now(), Duration::from_millis(1500));
        let (mut seen, mut at) = (self.state(), Instant::now());
        while at.elapsed() < quiet {
            std::thread::sleep(Duration::from_millis(20));
            let now = self.state();
            if now != seen {
                (seen, at) = (now, Instant::now());
            }
            assert!(since.elapsed() < PATIENCE, "somebody writes all the time");
        }
        std::thread::sleep(quiet);
        assert_eq!(self.state(), seen, "a store at rest writes nothing");
    }
}

fn options() -> Options {
    Options::new().memory_limit_bytes(64 << 20).settle_after(Duration::from_millis(150))
}

fn key(n: u64) -> [u8; 8] {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

fn put(db: &Database, n: u64, round: u64) {
    let mut value = [round as u8; 100];
    value[..8].copy_from_slice(&(n ^ round << 32).to_le_bytes());
    db.keyspace("wrens").unwrap().put(&key(n), &value).unwrap();
}

fn most_while_changing(records: u64) -> u64 {
    records * RECORD_BYTES * 5 / 2 + BESIDE_BYTES
}

fn most_at_rest(records: u64) -> u64 {
    records * RECORD_BYTES * 17 / 10 + AT_REST_BYTES
}

/// Loads the records and writes each of them several times over, in an order that has nothing to do with that of the keys.
fn load_and_overwrite(db: &Database, files: &Files, rounds: u64) {
    for n in 0..RECORDS {
        put(db, n, 0);
        if n % 1000 == 0 {
            files.assert_within(most_while_changing(n), "while it is loaded");
        }
    }
    let mut n = 1;
    for put_so_far in 0..rounds * RECORDS {
        n = (n * 48_271) % 2_147_483_647;
        put(db, n % RECORDS, 1 + put_so_far / RECORDS);
        if put_so_far % 1000 == 0 {
            files.assert_within(most_while_changing(RECORDS), "while it is overwritten");
        }
    }
}

#[test]
fn a_small_store_and_its_log_stay_near_the_size_of_the_records_and_shrink_by_themselves() {
    let files = Files::new();
    let db = options().create(files.store()).unwrap();
    load_and_overwrite(&db, &files, 8);
    files.wait_until_within(most_at_rest(RECORDS));
    files.assert_comes_to_rest();
    files.assert_within(most_at_rest(RECORDS), "at rest");
    assert_eq!(db.stats().unwrap().dirty_pages, 0);
    // It wakes up again.
    load_and_overwrite(&db, &files, 1);
    files.wait_until_within(most_at_rest(RECORDS));
    files.assert_comes_to_rest();
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    db.close().unwrap();
}

#[test]
fn what_came_after_a_log_went_back_to_its_first_places_survives_a_crash() {
    let files = Files::new();
    let db = options().create(files.store()).unwrap();
    load_and_overwrite(&db, &files, 2);
    files.wait_until_within(most_at_rest(RECORDS));
    files.assert_comes_to_rest();
    let durable = db.keyspace("wrens").unwrap().with_durability(Durability::Sync);
    for n in 0..300_u64 {
        durable.put(&key(n), &n.to_le_bytes()).unwrap();
    }
    // As if the process had been killed: what the drop does is undone.
    let paths = [files.store(), log_path(files.store())];
    let left = paths.map(|path| (fs::read(&path).unwrap(), path));
    drop((durable, db));
    for (bytes, path) in left {
        fs::write(path, bytes).unwrap();
    }
    let db = options().open(files.store()).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    for n in 0..300_u64 {
        assert_eq!(wrens.get(&key(n)).unwrap().as_deref(), Some(&n.to_le_bytes()[..]), "{n}");
    }
    assert_eq!(wrens.get(&key(300)).unwrap().map(|value| value.len()), Some(100));
    // Nobody changes anything in this session: what the crash has left goes back all the same.
    files.wait_until_within(most_at_rest(RECORDS));
    files.assert_comes_to_rest();
    db.close().unwrap();
}

#[test]
fn the_smallest_log_takes_half_a_mebibyte_and_a_store_that_nobody_changes_writes_nothing() {
    let files = Files::new();
    let db = options().create(files.store()).unwrap();
    files.assert_comes_to_rest();
    assert!(files.bytes().1 <= 512 << 10, "{:?}", files.bytes());
    put(&db, 1, 1);
    files.assert_comes_to_rest();
    assert!(files.bytes().1 <= 512 << 10, "{:?}", files.bytes());
    db.close().unwrap();
    assert_eq!(files.bytes().1, 0);
}

#[test]
fn durable_commits_of_one_record_leave_no_long_log_behind() {
    let files = Files::new();
    let db = options().create(files.store()).unwrap();
    let durable = db.keyspace("wrens").unwrap().with_durability(Durability::Sync);
    for n in 0..1500_u64 {
        durable.put(b"the only one", &n.to_le_bytes()).unwrap();
    }
    assert!(files.bytes().1 > 1 << 20, "each commit takes a block");
    files.wait_until_within(AT_REST_BYTES + (1 << 20));
    files.assert_comes_to_rest();
    assert!(files.bytes().1 <= 512 << 10, "{:?}", files.bytes());
    durable.put(b"the only one", b"last").unwrap();
    db.close().unwrap();
}
