//! One tree over several pools: section 7 of "B-Trees Are Back", and frames beside vmcache.
//!
//! The competitors `tree-*` are the same tree over a heap of pages, over the engine's frames, and over
//! vmcache; `bare-reads` reads pages and does nothing else, so that processor time a read beyond its own
//! is that of eviction, fault and look-up. Facts of each record say what of the memory limit is not
//! for pages. Everything is uniform: what a pool could guess of the next access is not the question.

use super::{Case, Experiment, Figure, GET, PAPER_SETS, SCAN_1_50, SETTLE, Size, phase};
use crate::cell::{Durability, KeyKind, LoadOrder, Phase, Place};

/// Bytes of key and value beyond memory.
const VALUE_BYTES: usize = 120;
const RECORD_BYTES: u64 = 8 + VALUE_BYTES as u64;
/// Below this limit vmcache has no room for what it knows of 64 times as many pages.
const SMALLEST_LIMIT_BYTES: u64 = 1 << 20;
/// Threads of the paper's figure 20; more than most machines have processors.
const PAPER_THREADS: usize = 24;

/// Figure 20: what it costs to be pageable, with one thread and with many, everything in memory.
pub fn in_memory(size: Size) -> Experiment {
    let operations = size.scale(1_000_000);
    let mut phases = vec![phase("warm up", GET, operations)];
    for threads in [1, 2, PAPER_THREADS] {
        let all = operations * threads.min(2);
        phases.push(phase("get zipf", GET, all).zipf().threads(threads));
        phases.push(phase("scan 1-50 zipf", SCAN_1_50, all / 2).zipf().threads(threads));
    }
    let case = |(keys, kind, count): (&'static str, KeyKind, usize)| Case {
        name: keys.to_owned(),
        keys,
        kind,
        count: size.scale(count),
        value_bytes: 8,
        spread: None,
        load_order: LoadOrder::Shuffled,
        load_percent: 100,
        phases: phases.clone(),
        place: Place::Memory,
        memory_limit_bytes: None,
        durability: Durability::None,
        in_memory_group: false,
        shrink_by: None,
        seconds_limit: size.seconds(300),
    };
    Experiment {
        name: "pools-in-memory",
        claim: "being pageable costs little in memory, and a thread loses little by the others \
                (figure 20 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: &[
            "tree-heap",
            "tree-frames",
            "tree-vmcache",
            "tree-heap-baseline",
            "tree-frames-baseline",
            "tree-vmcache-baseline",
            "btree-cpp-adapt2",
            "btree-cpp-baseline",
            "btree24",
        ],
        skips: &[],
        cases: PAPER_SETS.map(case).to_vec(),
    }
}

/// A store loaded in bulk, `count` records under a limit.
fn beyond(size: Size, name: String, count: u64, limit_bytes: u64, phases: Vec<Phase>) -> Case {
    // The load leaves changed pages behind, and frames that hold its end.
    let warm_up = phase("warm up", GET, size.scale(200_000)).threads(8);
    // Draws of its own: with those of a phase that is timed it would leave in a small pool just what that asks for.
    let before = [phase("settle", SETTLE, 1), Phase { seed: warm_up.seed + 1, ..warm_up }];
    Case {
        name,
        keys: "random8",
        kind: KeyKind::Random8,
        count: count as usize,
        value_bytes: VALUE_BYTES,
        spread: None,
        load_order: LoadOrder::Bulk,
        load_percent: 100,
        phases: before.into_iter().chain(phases).collect(),
        place: Place::File,
        memory_limit_bytes: Some(limit_bytes),
        durability: Durability::None,
        in_memory_group: false,
        shrink_by: None,
        seconds_limit: size.seconds(900),
    }
}

fn limit(size: Size, full_bytes: u64) -> u64 {
    size.limit(full_bytes).max(SMALLEST_LIMIT_BYTES)
}

/// Figure 21: look-ups over the ratio of data to pool, with up to 256 threads.
pub fn ratios(size: Size) -> Experiment {
    let smallest = limit(size, 32 << 20);
    let data_bytes = 16 * smallest;
    let phases: Vec<Phase> = [(1, 50_000), (8, 200_000), (64, 400_000), (256, 400_000)]
        .map(|(threads, operations)| phase("get", GET, size.scale(operations)).threads(threads))
        .to_vec();
    let ratios =
        [("1:4", 64), ("1:2", 32), ("1:1", 16), ("2:1", 8), ("4:1", 4), ("8:1", 2), ("16:1", 1)];
    let cases = ratios.map(|(ratio, times)| {
        let name = format!("data:pool {ratio}");
        beyond(size, name, data_bytes / RECORD_BYTES, times * smallest, phases.clone())
    });
    Experiment {
        name: "pools-ratios",
        claim: "look-ups fall off only as far as pages must be read (figure 21 of \"B-Trees Are \
                Back\")",
        figure: Figure::Rate,
        competitors: &["tree-frames", "tree-vmcache", "bare-reads"],
        skips: &[],
        cases: cases.to_vec(),
    }
}

/// Frames beside vmcache: rate, processor time of a fault, and memory that is not for pages.
pub fn bake_off(size: Size) -> Experiment {
    let phases: Vec<Phase> = [(1, 100_000), (2, 200_000), (32, 600_000)]
        .map(|(threads, operations)| phase("get", GET, size.scale(operations)).threads(threads))
        .to_vec();
    // The first must fit, with everything else that a pool keeps inside of the limit.
    let settings = [("x 1", 256, 0.7), ("x 5", 256, 5.0), ("x 16", 256, 16.0), ("x 64", 128, 64.0)];
    let cases = settings.map(|(times, mib, factor)| {
        let limit_bytes = limit(size, mib << 20);
        let count = (limit_bytes as f64 * factor) as u64 / RECORD_BYTES;
        beyond(size, format!("{mib} MiB {times}"), count, limit_bytes, phases.clone())
    });
    Experiment {
        name: "pools-bake-off",
        claim: "frames with predicted translation are as fast as vmcache in memory, and cheaper \
                beyond it",
        figure: Figure::Rate,
        competitors: &["tree-frames", "tree-vmcache", "bare-reads"],
        skips: &[],
        cases: cases.to_vec(),
    }
}
