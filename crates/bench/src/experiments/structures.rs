//! Section 6 of "B-Trees Are Back": the adaptive tree beside in-memory structures, of the paper and of Rust.
//!
//! Of the paper: ART, HOT, Wormhole, the B-tree of TLX and LITS, in the paper's own programs. Of Rust: the
//! sorted map of the standard library, and by `--peers` the skip list of crossbeam and the tree of scc. Each
//! claim is the paper's. Scale: five million integers, two million URLs and titles, a million operations a
//! phase.
//!
//! Plain data.

use super::{Experiment, Figure, GET, PAPER_SETS, Size, paper_case, paper_phases, phase};

/// The adaptive tree and all others.
const STRUCTURES: &[&str] = &[
    "hedgerow",
    "btreemap",
    "crossbeam-skipmap",
    "scc-treeindex",
    "btree-cpp-adapt2",
    "btree-cpp-baseline",
    "btree-cpp-art",
    "btree-cpp-hot",
    "btree-cpp-wh",
    "btree-cpp-tlx",
    "btree-cpp-lits",
];

/// Figures 17 and 18: of strings the adaptive tree is ahead of ART, LITS and TLX and 26 to 28 % behind Wormhole, of
/// integers behind ART, in scans ahead of all, and it takes the least space.
pub fn structures(size: Size) -> Experiment {
    Experiment {
        name: "structures",
        claim: "in look-ups ART is 34 to 37 % slower than the adaptive tree for strings, and 129 % \
                and 73 % faster for sparse and dense integers; Wormhole is ahead but for dense \
                integers, which are 27 % slower there; in scans the tree is ahead of all, and it takes \
                the least space (figures 17 and 18 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: STRUCTURES,
        skips: &[],
        cases: PAPER_SETS.map(|set| paper_case(size, set, 90, paper_phases(size))).to_vec(),
    }
}

/// Figure 19: the more skewed the look-ups, the better ART, TLX and Wormhole are beside the adaptive tree, and the worse
/// HOT.
pub fn skew(size: Size) -> Experiment {
    let operations = size.scale(1_000_000);
    let gets = |theta: f64| phase(&format!("get zipf {theta:.2}"), GET, operations).skewed(theta);
    let phases = [0.5, 0.75, 1.0, 1.25, 1.5].map(gets).to_vec();
    Experiment {
        name: "skew",
        claim: "with more skewed look-ups ART, TLX and Wormhole gain on the adaptive tree, and HOT \
                loses (figure 19 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: STRUCTURES,
        skips: &[],
        cases: PAPER_SETS.map(|set| paper_case(size, set, 100, phases.clone())).to_vec(),
    }
}
