//! The stores, one file each; [`run`] is the one place that lists them.
//!
//! Nothing waits for the disk unless the cell asks for it; how durable changes are otherwise stands at the head of
//! each file. A store that works by transactions has two names: under the plain one each operation of a phase is a
//! transaction, under `-batch` a thousand operations are. `lmdb-100ms` is LMDB with a sync every 100 ms. Loading takes a thousand a transaction in all
//! of them, and waits for no disk.

mod bf_tree;
mod fjall;
mod lmdb;
mod redb;
mod rocksdb;
mod rocksdb_c;
mod skip_map;
mod sqlite;
mod tree_index;

use hedgerow_bench::cell::{Cell, CellError, CellResult};
use hedgerow_bench::harness;

/// Names of the competitors.
pub const NAMES: [&str; 12] = [
    "lmdb",
    "lmdb-100ms",
    "lmdb-batch",
    "redb",
    "redb-batch",
    "bf-tree",
    "crossbeam-skipmap",
    "scc-treeindex",
    "rocksdb",
    "fjall",
    "sqlite",
    "sqlite-batch",
];

/// Operations of a large transaction.
const BATCH: usize = 1000;

/// A limit of this many times the records is none.
const ENOUGH: u64 = 4;

/// The cell's memory limit, if it does not hold everything several times.
fn small_limit(cell: &Cell, record_bytes: u64) -> Option<u64> {
    cell.memory_limit_bytes.filter(|bytes| *bytes < ENOUGH * record_bytes)
}

/// As [`small_limit`], for stores whose caches are not all that they take: in a memory group, where whoever takes more
/// is killed, half of it.
fn small_limit_of_caches(cell: &Cell, record_bytes: u64) -> Option<u64> {
    let limit = small_limit(cell, record_bytes)?;
    Some(if cell.memory_group.is_some() { limit / 2 } else { limit })
}

/// Runs `cell` on the competitor that it names.
///
/// Errors: `Failed` for a name that is neither in [`NAMES`] nor one of `hedgerow-bench`; those of [`harness::run`].
pub fn run(cell: &Cell) -> Result<CellResult, CellError> {
    match cell.competitor.as_str() {
        "lmdb" => harness::run::<lmdb::Store<1>>(cell),
        "lmdb-100ms" => harness::run::<lmdb::Store<1, true>>(cell),
        "lmdb-batch" => harness::run::<lmdb::Store<BATCH>>(cell),
        "redb" => harness::run::<redb::Store<1>>(cell),
        "redb-batch" => harness::run::<redb::Store<BATCH>>(cell),
        "bf-tree" => harness::run::<bf_tree::Store>(cell),
        "crossbeam-skipmap" => harness::run::<skip_map::Map>(cell),
        "scc-treeindex" => harness::run::<tree_index::Tree>(cell),
        "rocksdb" => harness::run::<rocksdb::Store>(cell),
        "fjall" => harness::run::<fjall::Store>(cell),
        "sqlite" => harness::run::<sqlite::Store<1>>(cell),
        "sqlite-batch" => harness::run::<sqlite::Store<BATCH>>(cell),
        // So that this program alone can run an experiment.
        name if hedgerow_bench::engines::NAMES.contains(&name) => {
            hedgerow_bench::engines::run(cell)
        }
        other => Err(CellError::Failed(format!("there is no competitor `{other}` here"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_bench::cell::{
        Distribution, Durability, KeyKind, KeySet, LoadOrder, Operation, PROTOCOL, Phase, Place,
    };

    fn phase(operation: Operation, threads: usize) -> Phase {
        Phase {
            name: format!("{operation:?}"),
            operation,
            distribution: Distribution::Uniform {},
            operations: 300,
            threads,
            seed: 7,
            latency: false,
            seconds: None,
        }
    }

    fn cell(competitor: &str, directory: &std::path::Path, load_order: LoadOrder) -> Cell {
        Cell {
            protocol: PROTOCOL,
            competitor: competitor.into(),
            keys: KeySet {
                name: "random".into(),
                kind: KeyKind::Random8,
                count: 3_315,
                path: None,
            },
            value_bytes: 100,
            spread: None,
            load_order,
            load_count: 3_000,
            phases: vec![
                phase(Operation::InsertLast {}, 1),
                phase(Operation::Get {}, 2),
                phase(Operation::GetMany { group: 16 }, 1),
                phase(Operation::Scan { min_records: 1, max_records: 50 }, 2),
                phase(Operation::Overwrite {}, 1),
                phase(Operation::Mixed { get_percent: 50 }, 1),
                phase(Operation::ReadModifyWrite { get_percent: 50 }, 1),
                phase(Operation::GetInsert { insert_percent: 5 }, 2),
                phase(Operation::Delete { percent: 20 }, 2),
                phase(Operation::ScanAll {}, 1),
            ],
            place: Place::Memory,
            memory_limit_bytes: None,
            durability: Durability::None,
            memory_group: None,
            directory: directory.to_owned(),
            page_bytes: None,
            seconds_limit: 60,
        }
    }

    /// What is equal where the work is: checksum and records found of each phase, and records at the end.
    type Sums = (Vec<(Option<hedgerow_bench::checksum::Checksum>, Option<u64>)>, u64);

    fn sums(cell: &Cell) -> Result<Sums, CellError> {
        let result = run(cell)?;
        let of = |phase: &hedgerow_bench::cell::PhaseResult| (phase.checksum, phase.found);
        Ok((result.phases.iter().map(of).collect(), result.records))
    }

    /// All stores do the same work as Hedgerow: the sums of what they read are equal.
    #[test]
    fn every_store_gives_the_sums_of_hedgerow() {
        for order in [LoadOrder::Shuffled, LoadOrder::Ascending, LoadOrder::Bulk] {
            let sums = |competitor: &str| {
                let directory = tempfile::tempdir().unwrap();
                let cell = cell(competitor, directory.path(), order);
                sums(&cell).unwrap_or_else(|error| panic!("{competitor}: {error}"))
            };
            let expected = sums("hedgerow");
            assert!(expected.0.iter().any(|(_, found)| found.is_some_and(|found| found > 0)));
            for name in NAMES {
                assert_eq!(sums(name), expected, "{name}, {order:?}");
            }
        }
    }

    /// The same with changes that are logged, or on the disk one by one, in files; who cannot is not asked.
    #[test]
    fn durable_changes_are_the_same_work() {
        let products = ["lmdb", "redb", "rocksdb", "fjall", "sqlite", "sqlite-batch"];
        for durability in [Durability::Buffered, Durability::Sync] {
            let sums = |competitor: &str| {
                let directory = tempfile::tempdir().unwrap();
                let mut cell = cell(competitor, directory.path(), LoadOrder::Shuffled);
                cell.place = Place::File;
                cell.durability = durability;
                // Each change may be a wait for the disk.
                (cell.keys.count, cell.load_count) = (1_105, 1_000);
                cell.phases.iter_mut().for_each(|phase| phase.operations = 100);
                let overwrite =
                    cell.phases.iter_mut().find(|p| p.operation == Operation::Overwrite {});
                overwrite.unwrap().threads = 8;
                cell.phases.insert(0, phase(Operation::Settle {}, 1));
                sums(&cell)
            };
            let expected = sums("hedgerow").unwrap();
            for name in NAMES {
                match sums(name) {
                    Ok(sums) => assert_eq!(sums, expected, "{name}, {durability:?}"),
                    Err(CellError::Unsupported(why)) => {
                        assert!(!products.contains(&name), "{name}: {why}");
                    }
                    Err(error) => panic!("{name}: {error}"),
                }
            }
        }
    }

    #[test]
    fn a_small_memory_limit_is_kept_or_refused() {
        for name in NAMES {
            let directory = tempfile::tempdir().unwrap();
            let mut cell = cell(name, directory.path(), LoadOrder::Shuffled);
            cell.place = Place::File;
            cell.memory_limit_bytes = Some(64 << 10);
            match run(&cell) {
                Ok(result) => assert_eq!(result.phases.len(), cell.phases.len(), "{name}"),
                Err(CellError::Unsupported(why)) => {
                    let cannot =
                        ["lmdb", "lmdb-100ms", "lmdb-batch", "crossbeam-skipmap", "scc-treeindex"];
                    assert!(cannot.contains(&name), "{name}: {why}")
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}
