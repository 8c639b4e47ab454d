//! The memory limit is law: a process that loads and reads data of many times the limit stays below the
//! limit and a fixed allowance for the program itself.
//!
//! The work runs in a child process of its own, so that other tests do not count. `.ci/memory` runs the
//! same child inside of a memory cgroup, where it would be killed.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::disallowed_methods, reason = "a test measures its process")]

use hedgerow::Options;
use hedgerow_testing::environment::positive;
use std::path::PathBuf;

const LIMIT_BYTES: u64 = 4 << 20;
const ALLOWANCE_BYTES: u64 = 48 << 20;
const TIMES: u64 = 32;
const CHILD: &str = "HEDGEROW_MEMORY_CHILD";

fn key(n: u64) -> [u8; 16] {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut key = [0; 16];
    key[..8].copy_from_slice(&mixed.to_be_bytes());
    key[8..].copy_from_slice(&n.to_be_bytes());
    key
}

fn limit_bytes() -> u64 {
    positive("HEDGEROW_MEMORY_LIMIT").unwrap_or(LIMIT_BYTES)
}

/// Loads in parallel, in runs of ascending keys so that it is quick, reads at random, scans, deletes.
fn work(path: PathBuf) {
    let limit = limit_bytes();
    let value = vec![b'x'; 900];
    let records = limit * TIMES / 916;
    let db = Options::new().memory_limit_bytes(limit).create(path).unwrap();
    let ks = db.keyspace("big").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (ks, value) = (&ks, &value);
            scope.spawn(move || {
                for n in (thread..records).step_by(4) {
                    let mut value = value.clone();
                    value[..16].copy_from_slice(&key(n));
                    let mut ascending = [0; 16];
                    ascending[..8].copy_from_slice(&n.to_be_bytes());
                    ks.put(&ascending, &value).unwrap();
                }
            });
        }
    });
    for n in 0..2_000 {
        let wanted = n * 7_919 % records;
        let mut ascending = [0; 16];
        ascending[..8].copy_from_slice(&wanted.to_be_bytes());
        let found = ks.get(&ascending).unwrap().expect("every record was put");
        assert!(found.starts_with(&key(wanted)));
    }
    assert_eq!(ks.count().unwrap(), records);
    work_with_values_of_every_size(&db, limit);
    let memory = db.stats().unwrap().memory;
    assert!(memory.set_aside_bytes() <= memory.limit_bytes, "{memory:?}");
    db.close().unwrap();
    println!("{records} records of 916 bytes with a limit of {limit} bytes");
}

/// Each length is half as frequent as half of it, up to 600 KiB: each of ten lengths has the same share of the bytes.
fn len_of(n: u64) -> usize {
    600 << (n + 1).trailing_zeros().min(10)
}

fn value_of(n: u64, version: u64) -> Vec<u8> {
    let mut value = vec![(n ^ version) as u8; len_of(n + version)];
    value[..16].copy_from_slice(&key(n));
    value[16..24].copy_from_slice(&version.to_le_bytes());
    value
}

/// Puts four times the limit, overwrites all of it by values of other lengths, and reads it in three ways.
fn work_with_values_of_every_size(db: &hedgerow::Database, limit: u64) {
    let ks = db.keyspace("of every size").unwrap();
    let values = 4 * limit / 3_600;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let ks = &ks;
            scope.spawn(move || {
                for version in 0..2 {
                    for n in (thread..values).step_by(4) {
                        ks.put(&n.to_be_bytes(), &value_of(n, version)).unwrap();
                        let other = n / 2 / 4 * 4 + thread;
                        let found = ks.get(&other.to_be_bytes()).unwrap().expect("it was put");
                        let version = u64::from_le_bytes(found[16..24].try_into().unwrap());
                        assert!(found[..] == value_of(other, version));
                    }
                }
            });
        }
    });
    let mut scanned = 0;
    for record in ks.iter() {
        let (found, value) = record.unwrap();
        let n = u64::from_be_bytes(found[..].try_into().unwrap());
        assert!(value[..] == value_of(n, 1), "value {n} is another one");
        scanned += 1;
    }
    assert_eq!(scanned, values);
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
        work(path);
        let peak = peak_bytes();
        println!("peak {peak} bytes");
        assert!(peak <= limit_bytes() + ALLOWANCE_BYTES, "{peak} bytes at the peak");
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
