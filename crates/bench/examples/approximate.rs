//! How far approximate counts are from the truth, and how long they take.
//!
//! `approximate [FILE]`: records with the keys of a file, one a line, put in random order, or, without a file, with keys of eight bytes in
//! clusters of very different size. Values have 0 to 400 bytes, more and more in the order of the keys. For ranges of each size it prints the
//! median of the errors, and what 95 and 100 of a hundred are below, in percent, for records and for bytes.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "clocks of an example")]

use hedgerow::Options;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::time::Instant;

const RANGES: usize = 400;

/// A million keys of which each cluster has half as many as the one before, over half as much of the space.
fn clusters(random: &mut Pcg64Mcg) -> Vec<Vec<u8>> {
    let key = |_| (random.random::<u64>() >> random.random_range(0..40_u32)).to_be_bytes().to_vec();
    (0..1_000_000).map(key).collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let mut keys: Vec<Vec<u8>> = match std::env::args().nth(1) {
        Some(path) => {
            std::fs::read(path)?.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect()
        }
        None => clusters(&mut random),
    };
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| !key.is_empty() && key.len() <= 900);
    let value_bytes = |at: usize| at * 400 / keys.len();
    // What lies before each key.
    let mut bytes = vec![0_u64];
    for (at, key) in keys.iter().enumerate() {
        bytes.push(bytes[at] + (key.len() + value_bytes(at)) as u64);
    }
    let db = Options::new().memory_limit_bytes(4 << 30).in_memory()?;
    let keyspace = db.keyspace("keys")?;
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.shuffle(&mut random);
    for at in order {
        keyspace.put(&keys[at], &vec![7; value_bytes(at)])?;
    }
    println!("{} records, height {}", keys.len(), keyspace.stats()?.levels.len());
    for part in [0.0001, 0.001, 0.01, 0.1, 0.5, 1.0] {
        let records = ((keys.len() as f64 * part) as usize).max(1);
        let mut errors = [Vec::new(), Vec::new()];
        let mut nanoseconds = 0;
        for _ in 0..RANGES {
            let from = random.random_range(0..=keys.len() - records);
            let bounds = || keys[from].as_slice()..=keys[from + records - 1].as_slice();
            let begin = Instant::now();
            let count = keyspace.approximate_count(bounds())?;
            nanoseconds += begin.elapsed().as_nanos();
            let truth = (bytes[from + records] - bytes[from]) as f64;
            let error = |found: u64, truth: f64| (found as f64 / truth - 1.0).abs() * 100.0;
            errors[0].push(error(count, records as f64));
            errors[1].push(error(keyspace.approximate_len_bytes(bounds())?, truth));
        }
        let figures = errors.map(|mut errors| {
            errors.sort_by(f64::total_cmp);
            [RANGES / 2, RANGES * 95 / 100, RANGES - 1].map(|at| (errors[at] * 10.0).round() / 10.0)
        });
        let us = nanoseconds as f64 / 1e3 / RANGES as f64;
        println!("{records:>8} records: {:?} %, bytes {:?} %, {us:.1} us", figures[0], figures[1]);
    }
    Ok(())
}
