//! The memory limit is law: a process that loads and reads data of many times the limit stays below the
//! limit and a fixed allowance for the program itself.
//!
//! The work runs in a child process of its own, so that other tests do not count. `.ci/memory` runs the
//! same child inside of a memory cgroup, where it would be killed.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::disallowed_methods, reason = "a test measures its process")]

mod common;

use common::lengths::{Lengths, content, log_normal};
use common::{Dice, seed};
use hedgerow::{Database, Keyspace, Options};
use hedgerow_testing::environment::positive;

const LIMIT_BYTES: u64 = 4 << 20;
const ALLOWANCE_BYTES: u64 = 48 << 20;
/// Of records of the usual lengths there are so many times the limit.
const TIMES: u64 = 32;
/// And of values of every length so many.
const TIMES_OF_EVERY_LENGTH: u64 = 8;
const THREADS: u64 = 4;
/// The shortest value has the number of its version.
const SHORTEST_BYTES: usize = 8;
const CHILD: &str = "HEDGEROW_MEMORY_CHILD";

fn limit_bytes() -> u64 {
    positive("HEDGEROW_MEMORY_LIMIT").unwrap_or(LIMIT_BYTES)
}

/// The dice of one value: whoever looks for it draws its length again.
fn dice(seed: u64, n: u64, version: u64) -> Dice {
    Dice((2 * n + version).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed)
}

/// Loads in parallel, in runs of ascending keys so that it is quick, reads at random, and scans. Lengths are log-normal,
/// as those of documents are.
fn work(db: &Database, seed: u64, limit: u64) {
    let ks = db.keyspace("big").unwrap();
    let value = |n: u64| {
        let len = log_normal(&mut dice(seed, n, 0), 600.0, 20_000).max(SHORTEST_BYTES);
        content(&n.to_be_bytes(), 0, len)
    };
    let mut records = 0;
    let mut bytes = 0;
    while bytes < TIMES * limit {
        bytes += 8 + value(records).len() as u64;
        records += 1;
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (ks, value) = (&ks, &value);
            scope.spawn(move || {
                for n in (thread..records).step_by(THREADS as usize) {
                    ks.put(&n.to_be_bytes(), &value(n)).unwrap();
                }
            });
        }
    });
    for n in 0..2_000 {
        let wanted = n * 7_919 % records;
        let found = ks.get(&wanted.to_be_bytes()).unwrap().expect("every record was put");
        assert!(found[..] == value(wanted), "value {wanted} is another one");
    }
    assert_eq!(ks.count().unwrap(), records);
    println!("{records} records of {bytes} bytes with a limit of {limit} bytes");
}

/// What a key of the second keyspace has in a version: a length of those of the suites.
fn value_of(lengths: &Lengths, seed: u64, n: u64, version: u64) -> Vec<u8> {
    let len = lengths.draw(&mut dice(seed, n, version)).max(SHORTEST_BYTES);
    content(&n.to_be_bytes(), version, len)
}

/// Asserts that a value of that key is whole, and returns its version.
fn assert_whole(lengths: &Lengths, seed: u64, n: u64, found: &[u8]) -> u64 {
    let version = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert!(found == value_of(lengths, seed, n, version), "value {n} is another one");
    version
}

/// Puts values of every length, overwrites all of them by values of other lengths, and reads them in three ways.
fn work_with_values_of_every_length(db: &Database, seed: u64, limit: u64) {
    let ks: Keyspace = db.keyspace("of every length").unwrap();
    let lengths = &Lengths::new(&ks, 4096, limit, (limit / 8) as usize);
    let (mut values, mut bytes) = (0, 0);
    while bytes < TIMES_OF_EVERY_LENGTH * limit {
        bytes += value_of(lengths, seed, values, 0).len() as u64;
        values += 1;
    }
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let ks = &ks;
            scope.spawn(move || {
                for version in 0..2 {
                    for n in (thread..values).step_by(THREADS as usize) {
                        ks.put(&n.to_be_bytes(), &value_of(lengths, seed, n, version)).unwrap();
                        let other = n / 2 / THREADS * THREADS + thread;
                        let found = ks.get(&other.to_be_bytes()).unwrap().expect("it was put");
                        assert_whole(lengths, seed, other, &found);
                    }
                }
            });
        }
    });
    let mut scanned = 0;
    for record in ks.iter() {
        let (found, value) = record.unwrap();
        let n = u64::from_be_bytes(found[..].try_into().unwrap());
        assert_eq!(assert_whole(lengths, seed, n, &value), 1, "value {n} was overwritten");
        scanned += 1;
    }
    assert_eq!(scanned, values);
    println!("{values} values of {bytes} bytes and of every length, overwritten");
}

fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() << 10
}

#[test]
fn a_process_stays_below_its_limit_and_an_allowance() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("big.hrow");
    if std::env::var_os(CHILD).is_some() {
        let limit = limit_bytes();
        let seed = seed(41);
        let db = Options::new().memory_limit_bytes(limit).create(path).unwrap();
        work(&db, seed, limit);
        work_with_values_of_every_length(&db, seed, limit);
        let memory = db.stats().unwrap().memory;
        assert!(memory.set_aside_bytes() <= memory.limit_bytes, "{memory:?}");
        db.close().unwrap();
        let peak = peak_bytes();
        println!("peak {peak} bytes");
        assert!(peak <= limit + ALLOWANCE_BYTES, "{peak} bytes at the peak");
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["a_process_stays_below_its_limit_and_an_allowance", "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{output}{}", String::from_utf8_lossy(&child.stderr));
    assert!(output.contains("peak "), "the child did the work: {output}");
}
