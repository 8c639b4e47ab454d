//! Everything in memory: beside the trees of "B-Trees Are Back", and beside the sorted map.
//!
//! The first and the last use the paper's key sets and operations: 8-byte values, nine tenths
//! loaded, the last tenth inserted under the clock, Zipf-distributed look-ups, scans of 1 to 50
//! records.

use super::{Case, Experiment, Figure, GET, INSERT, PAPER_SETS, SCAN_1_50, SCAN_100, Size, phase};
use crate::cell::{Durability, KeyKind, LoadOrder, Operation, Phase, Place};

fn case(
    size: Size,
    (keys, kind, count): (&'static str, KeyKind, usize),
    value_bytes: usize,
    phases: Vec<Phase>,
) -> Case {
    Case {
        name: keys.to_owned(),
        keys,
        kind,
        count: size.scale(count),
        value_bytes,
        spread: None,
        load_order: LoadOrder::Shuffled,
        load_percent: 90,
        phases,
        place: Place::Memory,
        memory_limit_bytes: None,
        durability: Durability::None,
        in_memory_group: false,
        shrink_by: None,
        seconds_limit: size.seconds(180),
    }
}

/// One thread beside the unsynchronised trees of the paper.
pub fn one_thread(size: Size) -> Experiment {
    let operations = size.scale(1_000_000);
    let phases = vec![
        phase("insert last 10 %", INSERT, 0),
        phase("get zipf", GET, operations).zipf(),
        phase("get uniform", GET, operations),
        phase("get_many 16 zipf", Operation::GetMany { group: 16 }, operations).zipf(),
        phase("scan 1-50 zipf", SCAN_1_50, operations).zipf(),
    ];
    Experiment {
        name: "in-memory-one-thread",
        claim: "synchronised and pageable, one thread is as fast as the in-memory trees of \
                \"B-Trees Are Back\"",
        figure: Figure::Rate,
        competitors: &[
            "hedgerow",
            "btree-cpp-baseline",
            "btree-cpp-prefix",
            "btree-cpp-heads",
            "btree-cpp-hints",
            "btree-cpp-adapt2",
        ],
        skips: &[],
        cases: PAPER_SETS.map(|set| case(size, set, 8, phases.clone())).to_vec(),
    }
}

/// One thread beside what a program has without a store.
pub fn against_btreemap(size: Size) -> Experiment {
    let operations = size.scale(1_000_000);
    let phases = vec![
        phase("insert last 10 %", INSERT, 0),
        phase("get", GET, operations),
        phase("get_many 16", Operation::GetMany { group: 16 }, operations),
        phase("scan 100 zipf", SCAN_100, operations / 5).zipf(),
    ];
    let sets = [("random8", KeyKind::Random8, 5_000_000), ("urls", KeyKind::File, 2_000_000)];
    Experiment {
        name: "against-btreemap",
        claim: "a store in memory is faster than `BTreeMap<Vec<u8>, Vec<u8>>`",
        figure: Figure::Rate,
        competitors: &["hedgerow", "hedgerow-get_into", "btreemap"],
        skips: &[],
        cases: sets.map(|set| case(size, set, 100, phases.clone())).to_vec(),
    }
}

/// Two threads against one, in the same process.
pub fn two_threads(size: Size) -> Experiment {
    let operations = size.scale(1_000_000);
    let mut phases = vec![phase("insert last 10 %", INSERT, 0).threads(2)];
    for threads in [1, 2] {
        let operations = operations * threads;
        phases.push(phase("get zipf", GET, operations).zipf().threads(threads));
        phases.push(phase("scan 1-50 zipf", SCAN_1_50, operations).zipf().threads(threads));
    }
    let half = Operation::Mixed { get_percent: 50 };
    for threads in [1, 2] {
        phases.push(phase("half gets, half puts", half, operations * threads).threads(threads));
    }
    let [dense, sparse, urls, _] = PAPER_SETS;
    Experiment {
        name: "two-threads",
        claim: "a second thread on one tree does not wait for the first (`btree24` is the paper's tree \
                over vmcache)",
        figure: Figure::Rate,
        competitors: &["hedgerow", "btree24-hints", "btree24-adapt", "btreemap"],
        skips: &[("btree24", "half gets")],
        cases: [dense, sparse, urls].map(|set| case(size, set, 8, phases.clone())).to_vec(),
    }
}

/// Insertions of one thread, and as many of two right behind them, into the same tree. The paper's
/// programs insert with one number of threads.
pub fn two_threads_insert(size: Size) -> Experiment {
    let [dense, sparse, urls, _] = PAPER_SETS;
    let cases = [dense, sparse, urls].map(|set| {
        let mut case = case(size, set, 8, Vec::new());
        // A tenth takes a tenth of a second, of which two threads need a part to get going.
        case.load_percent = 40;
        let insert = phase("insert three tenths", INSERT, 0);
        case.phases = vec![insert.clone(), insert.threads(2)];
        case
    });
    Experiment {
        name: "two-threads-insert",
        claim: "two threads that insert into one tree do not wait for each other",
        figure: Figure::Rate,
        competitors: &["hedgerow", "btreemap"],
        skips: &[],
        cases: cases.to_vec(),
    }
}
