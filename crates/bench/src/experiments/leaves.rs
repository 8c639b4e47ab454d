//! Sections 4.5, 4.6 and 5 of "B-Trees Are Back": what the layouts of leaves bring, and the choice among them.
//!
//! Hedgerow is measured through its public API, with all leaves of one layout or with its own choice, and
//! beside it the paper's own programs in the same configurations. Each claim is the paper's. Scale: five
//! million integers where the paper has 25 million (ten of partitions), two million URLs and titles, a
//! million operations a phase where it has five.
//!
//! Plain data.

use super::{
    Case, Experiment, Figure, GET, MEAN_KEY_BYTES, PAPER_SETS, SCAN_1_50, Size, paper_case,
    paper_phases, phase,
};
use crate::cell::{KeyKind, LoadOrder, Operation, Phase, Place};

/// Integers of a case.
const INTEGERS: usize = 5_000_000;

/// Densities of figures 11 and 12 in percent; of the paper's 49 those where the layouts cross, and some
/// between.
const DENSITIES: [u32; 12] = [4, 12, 20, 28, 36, 44, 52, 58, 68, 78, 88, 100];

/// Records a partition of figure 13.
const RECORDS_EACH: [u32; 12] =
    [10, 30, 100, 200, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000, 5_000_000];

/// Figure 10: fingerprint leaves make look-ups of strings 13 to 22 % faster and of integers about 10 % slower, scans of
/// all key sets slower, and save 9 to 15 % of the space.
pub fn fingerprint(size: Size) -> Experiment {
    Experiment {
        name: "leaf-fingerprint",
        claim: "fingerprint leaves make look-ups of strings 13 to 22 % faster and of integers 10 % \
                slower than comparison leaves with hints, scans slower, and save 9 to 15 % of the \
                space (figure 10 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: &[
            "hedgerow-comparison",
            "hedgerow-fingerprint",
            "btree-cpp-hints",
            "btree-cpp-hash",
        ],
        skips: &[],
        cases: PAPER_SETS.map(|set| paper_case(size, set, 90, paper_phases(size))).to_vec(),
    }
}

/// Figures 11 and 12: over hints, dense leaves make look-ups 71 % (semi-dense: 37 %), insertions 213 % (97 %) and scans
/// 105 % (16 %) faster where all numbers are keys, in 52 % (40 %) less space; both pay off from about a third on.
pub fn density(size: Size) -> Experiment {
    let case = |percent| {
        let set = ("drawn", KeyKind::Drawn4 { percent }, INTEGERS);
        let name = format!("density {percent} %");
        Case { name, ..paper_case(size, set, 90, paper_phases(size)) }
    };
    Experiment {
        name: "leaf-density",
        claim: "of all numbers as keys, fully dense leaves make look-ups 71 %, insertions 213 % and \
                scans 105 % faster than hints, in 52 % less space; semi-dense ones 37 %, 97 %, 16 % \
                and 40 %; look-ups gain 10 % from a density of 44 % and 28 % on, and cross at 58 % \
                (figures 11 and 12 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: &[
            "hedgerow-comparison",
            "hedgerow-semi-dense",
            "hedgerow-fully-dense",
            "hedgerow",
            "btree-cpp-hints",
            "btree-cpp-dense2",
            "btree-cpp-dense1",
            "btree-cpp-dense3",
        ],
        skips: &[],
        cases: DENSITIES.map(case).to_vec(),
    }
}

/// Figure 13: below some 200 records a partition fully dense leaves and hints are the same; from there to 10 000 the
/// dense ones get ahead, up to 2.7 times as fast, and need ever less space, hints ever more.
pub fn partitions(size: Size) -> Experiment {
    let phases = vec![phase("read all", Operation::ScanAll {}, 0)];
    let case = |records_each: u32| {
        let set = ("partitions", KeyKind::Partitioned8 { records_each }, INTEGERS);
        let name = format!("{records_each} records each");
        Case { name, ..paper_case(size, set, 100, phases.clone()) }
    };
    Experiment {
        name: "leaf-partitions",
        claim: "numbers counted up in many partitions: fully dense leaves take them up to 2.7 times \
                as fast as hints, and in less space, from some 200 records a partition on; below \
                that both are the same (figure 13 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: &[
            "hedgerow-comparison",
            "hedgerow-fully-dense",
            "hedgerow",
            "btree-cpp-hints",
            "btree-cpp-dense3",
            "btree-cpp-adapt2",
        ],
        skips: &[("btree-cpp", "read all")],
        cases: RECORDS_EACH.map(case).to_vec(),
    }
}

/// Figure 15: dense leaves for dense integers and comparison leaves for sparse ones, fingerprint leaves for strings that
/// are looked up, of which scans leave few; half of the leaves of URLs have good heads.
pub fn distribution(size: Size) -> Experiment {
    let mut cases = Vec::new();
    for set in PAPER_SETS {
        let operations = size.scale(1_000_000);
        let scans = |operations| phase("scan 1-50 zipf", SCAN_1_50, operations).zipf();
        let looked_up = paper_phases(size)[..2].to_vec();
        let scanned = [&looked_up[..], &[scans(operations)]].concat();
        let mut add = |what: &str, phases: Vec<Phase>| {
            let name = format!("{}, {what}", set.0);
            cases.push(Case { name, ..paper_case(size, set, 90, phases) });
        };
        // The paper's adaptation is complete after ten times as many scans.
        if set.1 == KeyKind::File {
            add("scanned tenfold", [&looked_up[..], &[scans(10 * operations)]].concat());
        }
        add("looked up", looked_up);
        add("scanned", scanned);
    }
    Experiment {
        name: "leaf-distribution",
        claim: "leaves of dense integers become fully dense, of sparse ones comparison leaves, of \
                strings fingerprint leaves while they are looked up, and comparison leaves with scans, \
                all but 0.01 % after ten times as many (figure 15 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: &["hedgerow", "btree-cpp-adapt2"],
        skips: &[],
        cases,
    }
}

/// The layouts with a fifth of the records in memory: what fits depends on them. The paper has no such figure.
pub fn beyond_memory(size: Size) -> Experiment {
    let case = |(set, mean_key_bytes): ((&'static str, KeyKind, usize), u64)| {
        let operations = size.scale(400_000);
        let mut phases = Vec::new();
        for (name, is_skewed) in [("zipf", true), ("uniform", false)] {
            let of = |what: &str, operations| match is_skewed {
                true => phase(&format!("{what} {name}"), GET, operations).zipf(),
                false => phase(&format!("{what} {name}"), GET, operations),
            };
            // Draws of its own, or it would leave in memory just what the timed ones ask for.
            let warm_up = of("warm up", operations).threads(8);
            phases.push(Phase { seed: warm_up.seed + 1, ..warm_up });
            phases.push(of("get", operations / 4));
            phases.push(of("get", operations).threads(8));
        }
        let record_bytes = mean_key_bytes + 8;
        Case {
            load_order: LoadOrder::Bulk,
            place: Place::File,
            memory_limit_bytes: Some(size.limit(set.2 as u64 * record_bytes / 5)),
            seconds_limit: size.seconds(300),
            ..paper_case(size, set, 100, phases)
        }
    };
    Experiment {
        name: "leaf-beyond-memory",
        claim: "with five times as many bytes of records as memory, adaptive leaves are at least as \
                fast as comparison leaves with every key set",
        figure: Figure::Rate,
        competitors: &["hedgerow", "hedgerow-comparison", "hedgerow-fingerprint"],
        skips: &[],
        cases: PAPER_SETS.into_iter().zip(MEAN_KEY_BYTES).map(case).collect(),
    }
}

/// Figure 16: the adaptive tree has at least 98 % of the throughput of the better of fully dense and fingerprint leaves,
/// but for scans of titles, with 92 %.
pub fn adaptive(size: Size) -> Experiment {
    Experiment {
        name: "leaf-adaptive",
        claim: "adaptive leaves reach 98 % of the better of fully dense and fingerprint leaves with \
                all key sets and operations, but 92 % for scans of titles (figure 16 of \"B-Trees Are \
                Back\")",
        figure: Figure::Rate,
        competitors: &[
            "hedgerow",
            "hedgerow-fully-dense",
            "hedgerow-fingerprint",
            "hedgerow-comparison",
            "btree-cpp-adapt2",
            "btree-cpp-dense3",
            "btree-cpp-hash",
        ],
        skips: &[],
        cases: PAPER_SETS.map(|set| paper_case(size, set, 90, paper_phases(size))).to_vec(),
    }
}

/// Section 4.5, the two other kinds of scan of figure 10: with all leaves sorted before (warm), and with an insertion
/// every twentieth time (YCSB-E), fingerprint leaves are slower than hints, though to different degrees.
pub fn ycsb_e(size: Size) -> Experiment {
    let operations = size.scale(1_000_000);
    let mixed = Operation::ScanInsert { insert_percent: 5, max_records: 50 };
    let phases = vec![
        phase("read all", Operation::ScanAll {}, 0),
        phase("scan 1-50 zipf, warm", SCAN_1_50, operations).zipf(),
        phase("95 % scans, 5 % inserts", mixed, operations).zipf(),
    ];
    Experiment {
        name: "ycsb-e",
        claim: "fingerprint leaves make scans slower than hints do even when all are sorted before, \
                more so of integers, and when every twentieth operation inserts (YCSB-E; section 4.5 \
                and figure 10 of \"B-Trees Are Back\")",
        figure: Figure::Rate,
        competitors: &[
            "hedgerow-comparison",
            "hedgerow-fingerprint",
            "hedgerow",
            "btree-cpp-hints",
            "btree-cpp-hash",
            "btree-cpp-adapt2",
        ],
        skips: &[("btree-cpp", "read all")],
        cases: PAPER_SETS.map(|set| paper_case(size, set, 90, phases.clone())).to_vec(),
    }
}
