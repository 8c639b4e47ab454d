//! Bulk loads of generated keys with values of eight bytes, on a heap of pages of 4 KiB.
//!
//! `bulk_load sparse|dense|urls [KEYS [TURNS [LAYOUT|insert]]]`: prints bytes a record of the leaves, how many
//! leaves there are of each layout, and the best time of the turns. `insert` puts the same keys in the same
//! order instead. Under `valgrind --tool=callgrind --toggle-collect='*bulk_load::load*'` it counts the
//! instructions of the loads alone.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // Clocks of an example.

use hedgerow::internals::tree::Tree;
use hedgerow::internals::types::TreeId;
use hedgerow::{LeafLayout, LeafPolicy, Result};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_testing::MemoryPool;
use std::time::Instant;

const PAGE_BYTES: usize = 4096;

fn keys(kind: &str, count: usize) -> std::result::Result<Vec<Vec<u8>>, String> {
    let mut random = SplitMix64::new(5);
    if !["sparse", "dense", "urls"].contains(&kind) {
        return Err(format!("`{kind}` is none of sparse, dense, urls"));
    }
    let mut keys: Vec<Vec<u8>> = (0..count as u32)
        .map(|number| match kind {
            "dense" => number.to_be_bytes().to_vec(),
            "sparse" => (random.next_u64() as u32).to_be_bytes().to_vec(),
            _ => {
                let (host, page) = (random.below(count as u64 / 50 + 1), random.next_u64() >> 30);
                let host = host.wrapping_mul(0x9E37_79B9) & 0xff_ffff;
                format!("http://www.site{host:x}.org/forum/{}/thread-{page:x}.html", page % 9)
                    .into_bytes()
            }
        })
        .collect();
    keys.sort_unstable();
    keys.dedup();
    Ok(keys)
}

#[inline(never)]
fn load(tree: &Tree<MemoryPool>, keys: &[Vec<u8>]) -> Result<u64> {
    let mut load = tree.bulk_load(100)?;
    for key in keys {
        load.push(key, &[7; 8])?;
    }
    load.finish()
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |at: usize| arguments.get(at).map(String::as_str);
    let number = |at: usize, or: usize| match argument(at) {
        Some(text) => text.parse().map_err(|error| format!("`{text}`: {error}")),
        None => Ok(or),
    };
    let keys = keys(argument(0).unwrap_or("dense"), number(1, 1_000_000)?)?;
    let layout = LeafLayout::ALL.into_iter().find(|layout| Some(layout.name()) == argument(3));
    if let (Some(name), None) = (argument(3).filter(|name| *name != "insert"), layout) {
        return Err(format!("`{name}` is neither a layout nor insert").into());
    }
    let policy = layout.map_or(LeafPolicy::Adaptive, LeafPolicy::Fixed);
    let mut best = f64::MAX;
    for turn in 0..number(2, 1)? {
        let pool = Arc::new(MemoryPool::new(PAGE_BYTES, 1 << 17));
        let tree = Tree::create_with(pool, TreeId(1), policy)?;
        let start = Instant::now();
        if argument(3) == Some("insert") {
            for key in &keys {
                tree.put(key, &[7; 8])?;
            }
        } else {
            assert_eq!(load(&tree, &keys)?, keys.len() as u64);
        }
        best = best.min(start.elapsed().as_secs_f64());
        if turn == 0 {
            let stats = tree.stats()?;
            let bytes = (stats.levels[0].pages * PAGE_BYTES as u64) as f64;
            println!(
                "{:.2} bytes a record in {} leaves",
                bytes / keys.len() as f64,
                stats.levels[0].pages
            );
            for layout in LeafLayout::ALL {
                println!("  {}: {:?}", layout.name(), stats.leaves_of(layout));
            }
        }
    }
    println!("{:.1} ns a record", best * 1e9 / keys.len() as f64);
    Ok(())
}
