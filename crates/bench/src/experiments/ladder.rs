//! Section 4 of "B-Trees Are Back", figures 7 to 9 and the fan-out: what each technique brings.
//!
//! Prefix truncation, heads and hints are put on top of each other, in the engine's tree and in the
//! paper's own programs, and each rung is compared with the one below it. The engine's tree lies in a
//! heap of pages (`tree-heap-comparison` has all three), so that no pool is between; it is synchronised,
//! the paper's is not. All leaves are comparison leaves. Each lower rung of the engine's tree is a build of its
//! own, a program for `--peers`: `cargo xtask rungs` makes them.

use super::{Case, Experiment, Figure, GET, PAPER_SETS, Size, paper_case, paper_phases, phase};

/// Each rung after the one below it.
const RUNGS: &[&str] = &[
    "tree-heap-baseline",
    "tree-heap-prefix",
    "tree-heap-heads",
    "tree-heap-comparison",
    "btree-cpp-baseline",
    "btree-cpp-prefix",
    "btree-cpp-heads",
    "btree-cpp-hints",
];

/// Figures 7 to 9: throughput and space by key set.
pub fn ladder(size: Size) -> Experiment {
    let phases = paper_phases(size);
    Experiment {
        name: "ladder",
        claim: "prefix truncation saves space, most where keys have long prefixes in common; heads \
                cost some of it, and with hints speed up look-ups, most those of integers (figures 7 \
                to 9 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: RUNGS,
        skips: &[],
        cases: PAPER_SETS.map(|set| paper_case(size, set, 90, phases.clone())).to_vec(),
    }
}

/// Section 4.4. How full nodes are goes up and down while a tree grows, so each pair has another size,
/// from a sixteenth on.
pub fn fan_out(size: Size) -> Experiment {
    // Gets show that all have the same records; nothing is to be learned from their speed.
    let phases = vec![phase("get", GET, size.scale(10_000))];
    let shrinking =
        |set| Case { shrink_by: Some(16.0), ..paper_case(size, set, 100, phases.clone()) };
    Experiment {
        name: "fan-out",
        claim: "prefix truncation doubles the fan-out for URLs, heads take a part of it, hints next to \
                nothing (section 4.4 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: RUNGS,
        skips: &[],
        cases: PAPER_SETS.map(shrinking).to_vec(),
    }
}
