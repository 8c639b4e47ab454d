//! Stores in files: all of it cached, or many times larger than the memory limit.
//!
//! Beyond memory a look-up of a random record is one read of one page; `fio` with as many threads
//! says what the disk gives. There the store is loaded in bulk, so that its size follows from the
//! records.

use super::{Case, Experiment, Figure, GET, SCAN_100, Size, phase};
use crate::cell::{Durability, KeyKind, LoadOrder, Operation, Place};

/// Bytes of key and value in the experiments beyond memory.
const VALUE_BYTES: usize = 120;
/// A record of the store, anywhere, gets a new value.
const PUT: Operation = Operation::Overwrite {};
const RECORD_BYTES: u64 = 8 + VALUE_BYTES as u64;

/// Everything cached, as peers with files are used.
pub fn cached(size: Size) -> Experiment {
    let operations = size.scale(1_000_000);
    let mut phases = Vec::new();
    for threads in [1, 2, 8] {
        phases.push(phase("get", GET, operations).threads(threads));
        phases.push(phase("scan 100 zipf", SCAN_100, operations / 10).zipf().threads(threads));
    }
    for threads in [1, 2, 8] {
        let half = Operation::Mixed { get_percent: 50 };
        let mixed = phase("half gets, half puts, zipf", half, operations / 2).zipf();
        phases.push(mixed.threads(threads));
    }
    Experiment {
        name: "lmdb-cached",
        claim: "with all data cached and nothing synced, faster than embedded stores with files",
        figure: Figure::Rate,
        competitors: &["hedgerow", "lmdb", "redb", "bf-tree"],
        skips: &[],
        cases: vec![Case {
            name: "random8".into(),
            keys: "random8",
            kind: KeyKind::Random8,
            count: size.scale(1_000_000),
            value_bytes: 100,
            spread: None,
            load_order: LoadOrder::Shuffled,
            load_percent: 100,
            phases,
            place: Place::File,
            memory_limit_bytes: Some(size.limit(512 << 20).max(16 << 20)),
            durability: Durability::None,
            in_memory_group: false,
            shrink_by: None,
            seconds_limit: size.seconds(300),
        }],
    }
}

/// A store of `times` the memory limit, loaded in bulk.
fn larger_than_memory(size: Size, limit_bytes: u64, times: u64) -> Case {
    let limit = size.limit(limit_bytes);
    Case {
        name: format!("{} MiB x {times}", limit_bytes >> 20),
        keys: "random8",
        kind: KeyKind::Random8,
        count: (limit * times / RECORD_BYTES) as usize,
        value_bytes: VALUE_BYTES,
        spread: None,
        load_order: LoadOrder::Bulk,
        load_percent: 100,
        phases: Vec::new(),
        place: Place::File,
        memory_limit_bytes: Some(limit),
        durability: Durability::None,
        in_memory_group: false,
        shrink_by: None,
        seconds_limit: size.seconds(600),
    }
}

/// Random look-ups and puts in data many times larger than memory, beside random reads of the bare disk.
pub fn out_of_memory(size: Size) -> Experiment {
    let cases = [(256, 5), (256, 16), (128, 64)].map(|(mib, times)| {
        let mut case = larger_than_memory(size, mib << 20, times);
        let operations = size.scale(200_000);
        case.phases = vec![
            // Frames fill up before anything counts.
            phase("warm up", GET, operations).threads(8),
            phase("get", GET, operations / 2).threads(1),
            phase("get", GET, operations * 2).threads(8),
            phase("get", GET, operations * 3).threads(32),
            phase("get_many 64", Operation::GetMany { group: 64 }, operations * 2).threads(1),
            phase("get_many 256", Operation::GetMany { group: 256 }, operations * 2).threads(1),
            // Last, because they change what the others read.
            phase("put", PUT, operations / 2).threads(1),
            phase("put", PUT, operations).threads(8),
            phase("put", PUT, operations * 2).threads(32),
        ];
        case
    });
    Experiment {
        name: "out-of-memory",
        claim: "no cliff beyond memory: the disk sets the rate, one read a miss",
        figure: Figure::Rate,
        competitors: &["hedgerow", "vmcache", "fio"],
        skips: &[("vmcache", "warm up"), ("vmcache", "get_many"), ("fio", "warm up")],
        cases: cases.to_vec(),
    }
}

/// Bulk load and a full scan, beside sequential writing and reading of the bare disk.
pub fn bulk_and_scan(size: Size) -> Experiment {
    let mut case = larger_than_memory(size, 256 << 20, 5);
    case.phases = vec![phase("scan all", Operation::ScanAll {}, 1)];
    Experiment {
        name: "bulk-and-scan",
        claim: "a bulk load and a full scan run at the bandwidth of the disk",
        figure: Figure::Rate,
        competitors: &["hedgerow", "fio"],
        skips: &[],
        cases: vec![case],
    }
}
