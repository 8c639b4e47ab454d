//! Loads keys from a file, one a line, and looks them up.
//!
//! `url_lookup FILE [KEYS [LOOKUPS [LAYOUT]]]`: times puts and gets of a database in memory, through the
//! public API, with the layouts of leaves chosen for each or with the one that is named; or, with `tree` in its place,
//! puts, gets, group gets and a scan of a tree on a heap of pages, of the build's rung of the ladder. Prints a checksum
//! of the work. Under `valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*look_up*'` it counts the
//! instructions of the gets alone.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // Files and clocks of an example.

use hedgerow::internals::node::rung;
use hedgerow::internals::tree::{Tree, Value};
use hedgerow::internals::types::TreeId;
use hedgerow::{LeafLayout, LeafPolicy, Options};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_testing::MemoryPool;
use std::error::Error;
use std::ops::ControlFlow;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("usage: url_lookup FILE [KEYS [LOOKUPS [LAYOUT|tree]]]")?;
    let keys = arguments.next().map_or(Ok(300_000), |text| text.parse())?;
    let lookups = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let text = std::fs::read(file)?;
    let keys: Vec<&[u8]> =
        text.split(|&byte| byte == b'\n').filter(|key| !key.is_empty()).take(keys).collect();
    match arguments.next().as_deref() {
        Some("tree") => run(&keys, lookups),
        Some(name) => {
            let layout = LeafLayout::ALL.into_iter().find(|layout| layout.name() == name);
            let layout = layout.ok_or_else(|| format!("{name} is no layout"))?;
            run_database(&keys, lookups, LeafPolicy::Fixed(layout))
        }
        None => run_database(&keys, lookups, LeafPolicy::Adaptive),
    }
}

fn run_database(keys: &[&[u8]], lookups: usize, policy: LeafPolicy) -> Result<(), Box<dyn Error>> {
    let database = Options::new().memory_limit_bytes(1 << 28).leaves(policy).in_memory()?;
    let keyspace = database.keyspace("urls")?;
    let start = Instant::now();
    for (number, key) in keys.iter().enumerate() {
        keyspace.put(key, &(number as u64).to_le_bytes())?;
    }
    report("put", keys.len(), start);
    let order = order(keys.len(), lookups);
    let start = Instant::now();
    let sum = look_up(keys, &order, |key| keyspace.get(key))?;
    report("get", lookups, start);
    println!("database in memory, {policy:?}: checksum {sum:x}");
    Ok(())
}

/// Which key each look-up is for.
fn order(keys: usize, lookups: usize) -> Vec<u32> {
    let mut random = SplitMix64::new(1);
    (0..lookups).map(|_| random.below(keys as u64) as u32).collect()
}

fn run(keys: &[&[u8]], lookups: usize) -> Result<(), Box<dyn Error>> {
    let bytes: usize = keys.iter().map(|key| key.len() + 8).sum();
    let pool = Arc::new(MemoryPool::new(4096, bytes / 1024 + 1024));
    let tree = Tree::create(pool, TreeId(1))?;

    let start = Instant::now();
    for (number, key) in keys.iter().enumerate() {
        tree.put(key, &(number as u64).to_le_bytes())?;
    }
    report("put", keys.len(), start);

    let order = order(keys.len(), lookups);
    let start = Instant::now();
    let sum = look_up(keys, &order, |key| tree.get(key))?;
    report("get", lookups, start);

    let wanted: Vec<&[u8]> = order.iter().map(|&i| keys[i as usize]).collect();
    let start = Instant::now();
    let mut grouped = 0_u64;
    for group in wanted.chunks(16) {
        for value in tree.get_many(group)? {
            grouped = grouped.wrapping_add(number(value.as_deref()));
        }
    }
    report("get_many", lookups, start);
    assert_eq!(sum, grouped);

    let start = Instant::now();
    let mut cursor = tree.scan();
    let (mut count, mut total) = (0, 0_u64);
    let outcome = cursor.visit(|_, value| {
        count += 1;
        total = total.wrapping_add(number(Some(value)));
        ControlFlow::<()>::Continue(())
    });
    assert!(outcome?.is_continue(), "nothing breaks the visit");
    report("scan", count, start);
    let stats = tree.stats()?;
    println!(
        "{}: height {}, {} pages, fill {:.3}, checksum {:x}",
        rung::NAME,
        stats.levels.len(),
        stats.pages(),
        stats.leaf_fill(),
        sum ^ total
    );
    Ok(())
}

#[inline(never)]
fn look_up(
    keys: &[&[u8]],
    order: &[u32],
    get: impl Fn(&[u8]) -> hedgerow::Result<Option<Value>>,
) -> hedgerow::Result<u64> {
    let mut sum = 0_u64;
    for &index in order {
        sum = sum.wrapping_add(number(get(keys[index as usize])?.as_deref()));
    }
    Ok(sum)
}

fn number(value: Option<&[u8]>) -> u64 {
    value.and_then(|value| value.first_chunk()).map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn report(what: &str, count: usize, start: Instant) {
    let seconds = start.elapsed().as_secs_f64();
    let nanoseconds = seconds * 1e9 / count as f64;
    println!("{what:>9}: {count} in {seconds:.3} s, {nanoseconds:.0} ns each");
}
