//! The core workloads of YCSB ("Benchmarking cloud serving systems with YCSB", SoCC 2010), as a log and a store with all data
//! cached do them.
//!
//! Records of 1,000 bytes with keys of 8 bytes at random; 1,000 is YCSB's record, as one value. Accesses are by Zipf 0.99, in
//! D from the last record back. The workloads run one after the other in the order that YCSB recommends, on one store: D and
//! E insert and come last.

use super::products::{case, settle};
use super::{Experiment, Figure, GET, Size, phase};
use crate::cell::{Distribution, Operation};

/// Of a value.
const VALUE_BYTES: usize = 1_000;

/// Zipf's exponent in YCSB.
const THETA: f64 = 0.99;

/// A to F, on one thread.
pub fn core_workloads(size: Size) -> Experiment {
    let mut case = case(size, 500_000, 1 << 30);
    case.name = format!("{VALUE_BYTES} bytes");
    case.value_bytes = VALUE_BYTES;
    // Enough times the records that it is no limit.
    let record_bytes = (case.count * (8 + VALUE_BYTES)) as u64;
    case.memory_limit_bytes = Some((5 * record_bytes).max(64 << 20));
    // The others are for D and E.
    case.load_percent = 75;
    let operations = 4 * case.count;
    let mixed = |get_percent| Operation::Mixed { get_percent };
    let change = Operation::ReadModifyWrite { get_percent: 50 };
    let insert = Operation::GetInsert { insert_percent: 5 };
    let mut latest = phase("D: 95 % gets of the latest, 5 % inserts", insert, operations);
    latest.distribution = Distribution::Latest { theta: THETA };
    let scan = Operation::ScanInsert { insert_percent: 5, max_records: 100 };
    case.phases = vec![
        settle("settle"),
        phase("A: half gets, half puts", mixed(50), operations).skewed(THETA),
        phase("B: 95 % gets, 5 % puts", mixed(95), operations).skewed(THETA),
        phase("C: gets", GET, operations).skewed(THETA),
        phase("F: half gets, half gets and puts", change, operations).skewed(THETA),
        latest,
        phase("E: 95 % scans, 5 % inserts", scan, operations / 16).skewed(THETA),
    ];
    Experiment {
        name: "ycsb",
        claim: "the common workloads, logged and cached, faster than the stores that people embed",
        figure: Figure::Rate,
        competitors: &["hedgerow", "lmdb", "redb", "rocksdb", "fjall", "sqlite"],
        skips: &[],
        cases: vec![case],
    }
}
