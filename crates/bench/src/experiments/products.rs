//! Stores that keep what they acknowledge, as their users run them: cached, durable one by one, on disk, in the worst
//! moment, and with data many times larger than memory.
//!
//! All of them log, or write so that a crash of the process loses little (`Buffered`), or wait for the disk (`Sync`).
//! What each of them is set to stands in `docs/benchmarking.md`. Phases that go on for some time do as many
//! operations as each store can; the others end in equal checksums.

use super::{Case, Experiment, Figure, GET, SCAN_100, SETTLE, Size, phase};
use crate::cell::{Durability, KeyKind, LoadOrder, Operation, Phase, Place};

/// Changes are one by one, each its own transaction.
const ONE_BY_ONE: &[&str] = &["hedgerow", "rocksdb", "fjall", "sqlite", "lmdb", "redb"];

/// Bytes of a value whose record is 100 bytes with its key.
const VALUE_OF_100: usize = 92;

/// How many times the data are larger than the limit beyond memory.
const TIMES: u64 = 8;

pub(super) const PUT: Operation = Operation::Overwrite {};

/// A store of random keys in a file, without phases.
pub(super) fn case(size: Size, records: usize, limit_bytes: u64) -> Case {
    Case {
        name: "random8".into(),
        keys: "random8",
        kind: KeyKind::Random8,
        count: size.scale(records),
        value_bytes: 100,
        spread: None,
        load_order: LoadOrder::Shuffled,
        load_percent: 100,
        phases: Vec::new(),
        place: Place::File,
        memory_limit_bytes: Some(size.limit(limit_bytes).max(16 << 20)),
        durability: Durability::Buffered,
        in_memory_group: false,
        shrink_by: None,
        seconds_limit: size.seconds(600),
    }
}

pub(super) fn settle(name: &str) -> Phase {
    phase(name, SETTLE, 1)
}

/// Everything cached, nobody waits for the disk.
pub fn cached(size: Size) -> Experiment {
    let mut case = case(size, 1_000_000, 512 << 20);
    let operations = size.scale(1_000_000);
    for threads in [1, 2, 8] {
        case.phases.push(phase("get", GET, operations).threads(threads));
        case.phases.push(phase("scan 100 zipf", SCAN_100, operations / 10).zipf().threads(threads));
    }
    for threads in [1, 2, 8] {
        case.phases.push(phase("overwrite", PUT, operations / 2).threads(threads));
    }
    // What the threads have left behind is the same everywhere, too.
    case.phases.push(phase("scan all", Operation::ScanAll {}, 1));
    Experiment {
        name: "product-cached",
        claim: "with a log and all data cached, faster than the stores that people use",
        figure: Figure::Rate,
        competitors: ONE_BY_ONE,
        skips: &[],
        cases: vec![case],
    }
}

/// Each record is on the disk before its call returns.
pub fn durable_commits(size: Size) -> Experiment {
    let mut case = case(size, 200_000, 512 << 20);
    case.value_bytes = VALUE_OF_100;
    case.durability = Durability::Sync;
    case.phases.push(settle("settle"));
    for threads in [1, 8, 64] {
        let commits = phase("commit", PUT, size.scale(200_000)).threads(threads);
        case.phases.push(commits.going_on(size, 10.0));
    }
    Experiment {
        name: "durable-commits",
        claim: "a durable commit costs one write and one sync of the disk, shared by all who wait",
        figure: Figure::Rate,
        competitors: &["hedgerow", "bare-syncs", "rocksdb", "fjall", "sqlite", "lmdb", "redb"],
        skips: &[],
        cases: vec![case],
    }
}

/// What files take with a log, as they are and when everything is done that can be.
pub fn space(size: Size) -> Experiment {
    let mut case = case(size, 1_000_000, 512 << 20);
    let records = case.count;
    let seconds = if size == Size::Full { 10 } else { 0 };
    case.phases = vec![
        settle("loaded, settled"),
        phase("overwrite", PUT, records).sequential(),
        phase("ten seconds later", Operation::Rest { seconds }, 1),
        settle("overwritten, settled"),
        phase("delete half", Operation::Delete { percent: 50 }, 0),
        settle("half deleted, settled"),
        phase("scan all", Operation::ScanAll {}, 1),
    ];
    Experiment {
        name: "product-space",
        claim: "files stay near the size of their records and shrink with them, without being asked",
        figure: Figure::Space,
        competitors: &["hedgerow", "rocksdb", "fjall", "sqlite-batch", "lmdb-batch", "redb-batch"],
        skips: &[],
        cases: vec![case],
    }
}

/// The longest that a put may take while nobody waits for the disk.
pub fn put_latency(size: Size) -> Experiment {
    let mut case = case(size, 1_000_000, 512 << 20);
    let operations = size.scale(1_000_000);
    case.phases = vec![settle("settle"), phase("overwrite", PUT, operations).going_on(size, 10.0)];
    Experiment {
        name: "put-latency",
        claim: "no put stalls: neither compaction nor checkpoint is noticed",
        figure: Figure::Rate,
        competitors: ONE_BY_ONE,
        skips: &[],
        cases: vec![case],
    }
}

/// Random updates of data many times larger than what the store and the system may cache of it.
pub fn updates_beyond_memory(size: Size) -> Experiment {
    let limit = size.limit(128 << 20);
    let mut case = case(size, 1, limit);
    case.name = format!("128 MiB x {TIMES}");
    case.value_bytes = VALUE_OF_100;
    case.count = (limit * TIMES / (8 + VALUE_OF_100 as u64)) as usize;
    // A load at random would take most stores hours.
    case.load_order = LoadOrder::Ascending;
    case.memory_limit_bytes = Some(limit);
    case.in_memory_group = true;
    case.seconds_limit = size.seconds(1800);
    let operations = size.scale(2_000_000);
    case.phases = vec![
        // Caches fill up, and background work comes to its usual pace, before anything counts.
        phase("warm up", PUT, operations).threads(8).going_on(size, 60.0),
        phase("update", PUT, operations).threads(8).going_on(size, 120.0),
    ];
    Experiment {
        name: "updates-beyond-memory",
        claim: "random updates beyond memory: the disk sets the rate, a page is written for several of them",
        figure: Figure::Rate,
        competitors: ONE_BY_ONE,
        skips: &[],
        cases: vec![case],
    }
}

/// Values of a MiB, each its own change.
pub fn large_values(size: Size) -> Experiment {
    let mut case = case(size, 1_000, 512 << 20);
    case.name = "1 MiB a value".into();
    case.count = if size == Size::Full { 1_000 } else { 20 };
    case.value_bytes = 1 << 20;
    // Smaller sizes need what one value takes on its way.
    case.memory_limit_bytes = Some(size.limit(512 << 20).max(32 << 20));
    let mut put = phase("overwrite", PUT, case.count).sequential();
    put.latency = true;
    let gets = phase("get", GET, case.count).sequential();
    case.phases = vec![settle("settle"), put, settle("settle again"), gets];
    Experiment {
        name: "large-values",
        claim: "a large value is written once, at half of the disk's sequential bandwidth at least",
        figure: Figure::Rate,
        competitors: &["bare-writes", "hedgerow", "rocksdb", "fjall", "sqlite"],
        skips: &[("bare-writes", "get")],
        cases: vec![case],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores that live from the page cache have no limit of their own: a limit is either so large that it is none, or
    /// holds for the page cache as well.
    #[test]
    fn limits_are_none_or_hold_for_the_page_cache() {
        for size in [Size::Smoke, Size::Small, Size::Full] {
            let experiments = [
                cached(size),
                durable_commits(size),
                space(size),
                put_latency(size),
                updates_beyond_memory(size),
            ];
            for case in experiments.iter().flat_map(|experiment| &experiment.cases) {
                let records = (case.count * (8 + case.value_bytes)) as u64;
                let limit = case.memory_limit_bytes.unwrap();
                let is_none = limit >= 4 * records;
                assert_ne!(is_none, case.in_memory_group, "{}: {limit} of {records}", case.name);
                assert!(is_none || (records + 100) / limit >= TIMES, "{}", case.name);
            }
        }
    }
}
