//! What a checkpoint costs those who write meanwhile: puts of 100-byte values to a store whose pages are all dirty,
//! for a while without a checkpoint, and then while one runs.
//!
//! `cargo run --release -p hedgerow --example checkpoint [directory] [threads] [MiB] [rounds]`: prints puts a second and
//! how long they took. Everything is cached; the keys are random ones of as many as fill so many MiB.
#![allow(missing_docs, clippy::disallowed_methods, clippy::disallowed_types)]

use hedgerow::{Keyspace, Options};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::time::{Duration, Instant};

fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn report(what: &str, took: &mut [u32], elapsed: Duration) {
    took.sort_unstable();
    let at = |share: f64| f64::from(took[((took.len() - 1) as f64 * share) as usize]) / 1000.0;
    println!(
        "{what:<22} {:>10.0}/s  median {:>6.1} us  99 % {:>7.1}  99.9 % {:>8.1}  longest {:>9.1} us",
        took.len() as f64 / elapsed.as_secs_f64(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    );
}

const BEFORE: u8 = 0;
const DURING: u8 = 1;
const AFTER: u8 = 2;

/// Puts until the phase is `AFTER`; what each took, by phase.
fn put(keyspace: &Keyspace, keys: u64, phase: &AtomicU8, thread: u64) -> [Vec<u32>; 2] {
    let mut took = [Vec::with_capacity(1 << 22), Vec::with_capacity(1 << 22)];
    let mut n = thread << 40;
    loop {
        let now = phase.load(SeqCst);
        if now == AFTER {
            return took;
        }
        n += 1;
        let begun = Instant::now();
        keyspace.put(&(mix(n) % keys).to_be_bytes(), &[n as u8; 100]).unwrap();
        took[usize::from(now)].push(u32::try_from(begun.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    let mut number = |otherwise| arguments.next().map_or(otherwise, |word| word.parse().unwrap());
    let (threads, mebibytes, rounds) = (number(1), number(1024), number(3));
    // 34 records of 108 bytes a page, 90 % full.
    let keys = mebibytes * 256 * 30;
    let path = directory.join(format!("checkpoint-{}.hrow", std::process::id()));
    let db = Options::new()
        .memory_limit_bytes(mebibytes << 21)
        .checkpoint_bytes(u64::MAX >> 1)
        .log_limit_bytes(8 << 30)
        .background_checkpoints(false)
        .create(&path)
        .unwrap();
    let keyspace = db.keyspace("puts").unwrap();
    keyspace.bulk_load((0..keys).map(|n| (n.to_be_bytes(), [1_u8; 100])), 90).unwrap();
    for _ in 0..rounds {
        // One put a page, in order.
        for n in (0..keys).step_by(20) {
            keyspace.put(&n.to_be_bytes(), &[2; 100]).unwrap();
        }
        let dirty = db.stats().unwrap().dirty_pages;
        let before = db.stats().unwrap().pool;
        let phase = AtomicU8::new(BEFORE);
        let (times, mut took) = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..threads)
                .map(|thread| {
                    let (keyspace, phase) = (&keyspace, &phase);
                    scope.spawn(move || put(keyspace, keys, phase, thread))
                })
                .collect();
            let mut times = [Duration::ZERO; 2];
            let begun = Instant::now();
            std::thread::sleep(Duration::from_secs(2));
            times[0] = begun.elapsed();
            phase.store(DURING, SeqCst);
            let begun = Instant::now();
            db.checkpoint().unwrap();
            times[1] = begun.elapsed();
            phase.store(AFTER, SeqCst);
            let mut took = [Vec::new(), Vec::new()];
            for writer in writers {
                for (all, of) in took.iter_mut().zip(writer.join().unwrap()) {
                    all.extend(of);
                }
            }
            (times, took)
        });
        let after = db.stats().unwrap().pool;
        println!(
            "{} MiB dirty; {:.2} s of a checkpoint; {} images, {} pages copied",
            dirty >> 8,
            times[1].as_secs_f64(),
            after.pages_written - before.pages_written,
            after.copied_for_checkpoints - before.copied_for_checkpoints
        );
        let [without, with] = &mut took;
        report("without a checkpoint", without, times[0]);
        report("beside a checkpoint", with, times[1]);
    }
    db.close().unwrap();
    std::fs::remove_file(&path).unwrap();
}
