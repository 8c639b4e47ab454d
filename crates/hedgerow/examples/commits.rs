//! What durability costs: puts of 100-byte values without a log, buffered, and synced, in rounds.
//!
//! `cargo run --release -p hedgerow --example commits [directory] [threads] [seconds]`: prints puts a second and how
//! long they took (median, 99.9th percentile, longest), beside a bare loop of 4 KiB overwrite and `fdatasync`.
//! Everything is cached; the keys are random ones of a million.
#![allow(missing_docs, clippy::disallowed_methods, clippy::disallowed_types)]

use hedgerow::{Durability, Options};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const KEYS: u64 = 1_000_000;
const ROUNDS: usize = 3;

fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn report(what: &str, mut took: Vec<u32>, elapsed: Duration) {
    took.sort_unstable();
    let at = |share: f64| f64::from(took[((took.len() - 1) as f64 * share) as usize]) / 1000.0;
    println!(
        "{what:<12} {:>10.0}/s  median {:>8.1} us  99.9 % {:>9.1} us  longest {:>10.1} us",
        took.len() as f64 / elapsed.as_secs_f64(),
        at(0.5),
        at(0.999),
        at(1.0)
    );
}

fn puts(path: &Path, options: &Options, threads: u64, time: Duration) -> (Vec<u32>, Duration) {
    std::fs::remove_file(path).ok();
    let db = options.create(path).unwrap();
    let keyspace = db.keyspace("commits").unwrap();
    let load = (0..KEYS).map(|n| (n.to_be_bytes(), [1_u8; 100]));
    keyspace.bulk_load(load, 90).unwrap();
    db.checkpoint().unwrap();
    let started = Instant::now();
    let took = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|thread| {
                let keyspace = keyspace.clone();
                scope.spawn(move || {
                    let mut took = Vec::with_capacity(1 << 22);
                    let mut n = thread << 40;
                    while started.elapsed() < time {
                        n += 1;
                        let begun = Instant::now();
                        let key = (mix(n) % KEYS).to_be_bytes();
                        keyspace.put(&key, &[n as u8; 100]).unwrap();
                        took.push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
                    }
                    took
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let elapsed = started.elapsed();
    db.close().unwrap();
    (took, elapsed)
}

fn bare_loop(path: &Path, time: Duration) -> (Vec<u32>, Duration) {
    let file = File::create(path).unwrap();
    for page in 0..4096 {
        file.write_all_at(&[1; 4096], page * 4096).unwrap();
    }
    file.sync_all().unwrap();
    let started = Instant::now();
    let mut took = Vec::new();
    while started.elapsed() < time {
        let begun = Instant::now();
        file.write_all_at(&[took.len() as u8; 4096], took.len() as u64 % 4096 * 4096).unwrap();
        file.sync_data().unwrap();
        took.push(begun.elapsed().as_nanos() as u32);
    }
    (took, started.elapsed())
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let mut number = |otherwise| arguments.next().map_or(otherwise, |word| word.parse().unwrap());
    let threads = number(1);
    let time = Duration::from_secs(number(3));
    let path = directory.join(format!("commits-{}.hrow", std::process::id()));
    let options = || Options::new().memory_limit_bytes(1 << 30);
    for _ in 0..ROUNDS {
        let (took, elapsed) = bare_loop(&path, time);
        report("bare loop", took, elapsed);
        for (what, options) in [
            ("synced", options().durability(Durability::Sync)),
            ("buffered", options()),
            ("no log", options().log(false)),
        ] {
            let (took, elapsed) = puts(&path, &options, threads, time);
            report(what, took, elapsed);
        }
    }
    std::fs::remove_file(&path).unwrap();
}
