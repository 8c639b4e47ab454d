//! Keys that were chosen to hurt, n of them and twice as many: what an operation costs in nanoseconds.
//!
//! `adverse_keys [KEYS [TURNS]]`: for each set of keys, in pages of 4 and of 64 KiB, a line of JSON for n and one for
//! 2n: the best time of the turns for inserting all keys in the set's order, getting them, scans of 25, values of
//! another size, and removing them in another order. Where an operation looked at all of a tree, its time would
//! double from line to line; where it looked at all of a leaf, it would be sixteen times as long in the larger pages.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // Clocks of an example.

use hedgerow::internals::node::fingerprint::fingerprint;
use hedgerow::internals::tree::Tree;
use hedgerow::internals::types::TreeId;
use hedgerow::{LeafLayout, LeafPolicy, Result};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_testing::MemoryPool;
use std::ops::Bound;
use std::time::Instant;

const SCANNED: usize = 25;
const OPERATIONS: [&str; 5] = ["insert", "get", "scan", "resize", "remove"];

type Keys = Vec<Vec<u8>>;

fn shuffled(mut keys: Keys) -> Keys {
    let mut random = SplitMix64::new(7);
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at as u64 + 1) as usize);
    }
    keys
}

fn numbers(numbers: impl Iterator<Item = u32>) -> Keys {
    numbers.map(|number| number.to_be_bytes().to_vec()).collect()
}

/// The fingerprint of a key is taken of what is behind its leaf's prefix, which random keys keep short: most of the
/// small leaves have one byte of it, most of the large ones none.
fn one_fingerprint(count: usize, prefix_len: usize) -> Keys {
    let mut random = SplitMix64::new(3);
    let mut keys = Keys::new();
    while keys.len() < count {
        let key = random.next_u64().to_be_bytes();
        if fingerprint(&key[prefix_len..]) == 7 {
            keys.push(key.to_vec());
        }
    }
    keys
}

/// The sets, by name.
fn sets(count: usize, page_bytes: usize) -> Vec<(&'static str, LeafPolicy, Keys)> {
    let adaptive = LeafPolicy::Adaptive;
    let fixed = LeafPolicy::Fixed;
    let prefix_len = usize::from(page_bytes < 1 << 16);
    let all = 0..count as u32;
    let third = count as u32 / 3;
    let around = |at: u32| [0, (1 << 31) - third / 2, u32::MAX - third][at as usize % 3] + at / 3;
    let thinning = |at: u32| at + (u64::from(at) * u64::from(at) / 64) as u32;
    let partition = |at: u32| [(at % 1000).to_be_bytes(), (at / 1000).to_be_bytes()].concat();
    let odd = |at: u32| {
        let mut key = (at - at % 100).to_be_bytes().to_vec();
        if at.is_multiple_of(100) {
            key.push(1)
        } else {
            key = at.to_be_bytes().to_vec()
        }
        key
    };
    vec![
        (
            "one fingerprint, fingerprint leaves",
            fixed(LeafLayout::Fingerprint),
            one_fingerprint(count, prefix_len),
        ),
        ("one fingerprint, adaptive", adaptive, one_fingerprint(count, prefix_len)),
        (
            "equal lengths, other stems",
            adaptive,
            shuffled(all.clone().map(|at| [&at.to_be_bytes()[..], b"same"].concat()).collect()),
        ),
        ("around 0, 2^31 and 2^32", adaptive, shuffled(numbers(all.clone().map(around)))),
        ("density that falls", adaptive, numbers(all.clone().map(thinning))),
        ("density that falls, shuffled", adaptive, shuffled(numbers(all.clone().map(thinning)))),
        ("partitions that interleave", adaptive, all.clone().map(partition).collect()),
        ("an odd key in a hundred", adaptive, all.clone().map(odd).collect()),
        ("an odd key in a hundred, shuffled", adaptive, shuffled(all.clone().map(odd).collect())),
        ("dense integers, semi-dense leaves", fixed(LeafLayout::SemiDense), shuffled(numbers(all))),
    ]
}

/// Nanoseconds an operation, in the order of [`OPERATIONS`].
fn turn(keys: &Keys, policy: LeafPolicy, page_bytes: usize) -> Result<[f64; 5]> {
    let pool = Arc::new(MemoryPool::new(page_bytes, (1 << 29) / page_bytes));
    let tree = Tree::<MemoryPool>::create_with(pool, TreeId(1), policy)?;
    let others = shuffled(keys.clone());
    let time = |operation: &mut dyn FnMut() -> Result<usize>| -> Result<f64> {
        let start = Instant::now();
        let operations = operation()?;
        Ok(start.elapsed().as_secs_f64() * 1e9 / operations as f64)
    };
    Ok([
        time(&mut || {
            for key in keys {
                tree.put(key, &[7; 8])?;
            }
            Ok(keys.len())
        })?,
        time(&mut || {
            for key in &others {
                assert!(tree.contains_key(key)?, "a key is not there");
            }
            Ok(keys.len())
        })?,
        time(&mut || {
            let starts = others.iter().step_by(SCANNED);
            for key in starts.clone() {
                let mut cursor = tree.range((Bound::Included(key.as_slice()), Bound::Unbounded));
                for _ in 0..SCANNED {
                    cursor.next_record()?;
                }
            }
            Ok(starts.len())
        })?,
        time(&mut || {
            for (at, key) in others.iter().enumerate() {
                tree.put(key, &[7; 13][..at % 14])?;
            }
            Ok(keys.len())
        })?,
        time(&mut || {
            for key in &others {
                assert!(tree.remove(key)?, "a key is not there");
            }
            Ok(keys.len())
        })?,
    ])
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| match arguments.get(at) {
        Some(text) => text.parse().map_err(|error| format!("`{text}`: {error}")),
        None => Ok(or),
    };
    let (count, turns) = (number(0, 200_000)?.max(1000), number(1, 3)?);
    for page_bytes in [4096, 65536] {
        for ((name, policy, once), (_, _, twice)) in
            sets(count, page_bytes).into_iter().zip(sets(2 * count, page_bytes))
        {
            for keys in [once, twice] {
                let mut best = [f64::MAX; 5];
                for _ in 0..turns {
                    for (best, time) in best.iter_mut().zip(turn(&keys, policy, page_bytes)?) {
                        *best = best.min(time);
                    }
                }
                let times: Vec<String> = OPERATIONS
                    .iter()
                    .zip(best)
                    .map(|(name, time)| format!("\"{name}_ns\":{time:.0}"))
                    .collect();
                println!(
                    "{{\"set\":\"{name}\",\"page_bytes\":{page_bytes},\"keys\":{},{}}}",
                    keys.len(),
                    times.join(",")
                );
            }
        }
    }
    Ok(())
}
