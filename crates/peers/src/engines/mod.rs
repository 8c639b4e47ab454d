//! The stores, one file each; [`run`] is the one place that lists them.
//!
//! Nothing waits for the disk ("durability off"), as a Hedgerow between two checkpoints. A store
//! that works by transactions has two names: under the plain one each operation of a phase is a
//! transaction, under `-batch` a thousand operations are. Loading takes a thousand a transaction in
//! both.

mod bf_tree;
mod lmdb;
mod redb;
mod skip_map;
mod tree_index;

use hedgerow_bench::cell::{Cell, CellError, CellResult};
use hedgerow_bench::harness;

/// Names of the competitors.
pub const NAMES: [&str; 7] =
    ["lmdb", "lmdb-batch", "redb", "redb-batch", "bf-tree", "crossbeam-skipmap", "scc-treeindex"];

/// Operations of a large transaction.
const BATCH: usize = 1000;

/// Runs `cell` on the competitor that it names.
///
/// Errors: `Failed` for a name that is not in [`NAMES`]; those of [`harness::run`].
pub fn run(cell: &Cell) -> Result<CellResult, CellError> {
    match cell.competitor.as_str() {
        "lmdb" => harness::run::<lmdb::Store<1>>(cell),
        "lmdb-batch" => harness::run::<lmdb::Store<BATCH>>(cell),
        "redb" => harness::run::<redb::Store<1>>(cell),
        "redb-batch" => harness::run::<redb::Store<BATCH>>(cell),
        "bf-tree" => harness::run::<bf_tree::Store>(cell),
        "crossbeam-skipmap" => harness::run::<skip_map::Map>(cell),
        "scc-treeindex" => harness::run::<tree_index::Tree>(cell),
        other => Err(CellError::Failed(format!("there is no competitor `{other}` here"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_bench::cell::{
        Distribution, KeyKind, KeySet, LoadOrder, Operation, PROTOCOL, Phase, Place,
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
        }
    }

    fn cell(competitor: &str, directory: &std::path::Path, load_order: LoadOrder) -> Cell {
        Cell {
            protocol: PROTOCOL,
            competitor: competitor.into(),
            keys: KeySet {
                name: "random".into(),
                kind: KeyKind::Random8,
                count: 3_300,
                path: None,
            },
            value_bytes: 100,
            load_order,
            load_count: 3_000,
            phases: vec![
                phase(Operation::InsertLast {}, 1),
                phase(Operation::Get {}, 2),
                phase(Operation::GetMany { group: 16 }, 1),
                phase(Operation::Scan { min_records: 1, max_records: 50 }, 2),
                phase(Operation::Overwrite {}, 1),
                phase(Operation::Mixed { get_percent: 50 }, 1),
                phase(Operation::Delete { percent: 20 }, 2),
                phase(Operation::ScanAll {}, 1),
            ],
            place: Place::Memory,
            memory_limit_bytes: None,
            directory: directory.to_owned(),
            page_bytes: None,
            seconds_limit: 60,
        }
    }

    /// All stores do the same work as Hedgerow: the sums of what they read are equal.
    #[test]
    fn every_store_gives_the_sums_of_hedgerow() {
        for order in [LoadOrder::Shuffled, LoadOrder::Ascending, LoadOrder::Bulk] {
            let sums = |competitor: &str| {
                let directory = tempfile::tempdir().unwrap();
                let cell = cell(competitor, directory.path(), order);
                let ours = hedgerow_bench::engines::NAMES.contains(&competitor);
                let run = if ours { hedgerow_bench::engines::run } else { run };
                let result = run(&cell).unwrap_or_else(|error| panic!("{competitor}: {error}"));
                let of = |phase: &hedgerow_bench::cell::PhaseResult| (phase.checksum, phase.found);
                (result.phases.iter().map(of).collect::<Vec<_>>(), result.records)
            };
            let expected = sums("hedgerow");
            assert!(expected.0.iter().any(|(_, found)| found.is_some_and(|found| found > 0)));
            for name in NAMES {
                assert_eq!(sums(name), expected, "{name}, {order:?}");
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
                    let cannot = ["lmdb", "lmdb-batch", "crossbeam-skipmap", "scc-treeindex"];
                    assert!(cannot.contains(&name), "{name}: {why}")
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}
