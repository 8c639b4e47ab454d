//! Layouts of leaves in smoke size: equal work by all of them, the counts of each, and what they cost in space.

use crate::common::plan;
use hedgerow_bench::cell::{CellResult, LeafCounts};
use hedgerow_bench::record::{self, Measurement, Sink};
use hedgerow_bench::run::{self, Tally};
use std::path::Path;

/// Competitors of one layout each, and the adaptive one behind them.
const LAYOUTS: [&str; 5] = [
    "hedgerow-comparison",
    "hedgerow-fingerprint",
    "hedgerow-semi-dense",
    "hedgerow-fully-dense",
    "hedgerow",
];

fn run_smoke(
    name: &str,
    competitors: &[&str],
    cases: &[&str],
    directory: &Path,
) -> (Tally, Vec<Measurement>) {
    let record = directory.join(format!("{name}.jsonl"));
    let mut plan = plan(name, directory);
    plan.competitors = competitors.iter().map(|name| (*name).to_owned()).collect();
    plan.cases = cases.iter().map(|name| (*name).to_owned()).collect();
    plan.pairs = 1;
    let mut said = Vec::new();
    let mut sink = Sink::new(Some(&record)).unwrap();
    let tally = run::run(&plan, &mut sink, |line| said.push(line.to_owned())).unwrap();
    assert!(tally.is_clean(), "{tally:?}\n{}", said.join("\n"));
    (tally, record::read(&[record]).unwrap().measurements)
}

fn of<'a>(measurements: &'a [Measurement], case: &str, competitor: &str) -> &'a CellResult {
    let one = measurements.iter().find(|m| m.case == case && m.competitor == competitor);
    one.and_then(Measurement::result).expect("each ran each case")
}

/// Leaves by layout, which are all leaves.
fn leaves(result: &CellResult) -> LeafCounts {
    let tree = result.tree.expect("its nodes are counted");
    let counts = tree.layouts.expect("its leaves are told apart");
    let LeafCounts { comparison, fingerprint, semi_dense, fully_dense } = counts;
    assert_eq!(comparison + fingerprint + semi_dense + fully_dense, tree.leaves);
    counts
}

#[test]
fn each_layout_does_the_same_work_with_leaves_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    // Equal sums are checked by the run.
    let (tally, all) = run_smoke("leaf-adaptive", &LAYOUTS, &[], directory.path());
    assert_eq!((tally.measured, tally.absent), (4 * LAYOUTS.len(), 0));
    for case in ["dense", "sparse", "urls", "wiki"] {
        let [comparison, fingerprint, semi, full, _] =
            LAYOUTS.map(|name| leaves(of(&all, case, name)));
        let only_comparison = |counts: LeafCounts| {
            counts == LeafCounts { comparison: counts.comparison, ..LeafCounts::default() }
        };
        assert!(only_comparison(comparison), "{case}: {comparison:?}");
        let expected = LeafCounts { fingerprint: fingerprint.fingerprint, ..LeafCounts::default() };
        assert_eq!(fingerprint, expected, "{case}");
        if case == "dense" {
            assert!(semi.semi_dense > 0 && semi.fully_dense == 0, "{semi:?}");
            assert!(full.fully_dense > 0 && full.semi_dense == 0, "{full:?}");
        } else {
            assert!(only_comparison(semi) && only_comparison(full), "{case}: {semi:?} {full:?}");
        }
    }
    assert!(leaves(of(&all, "dense", "hedgerow")).fully_dense > 0);
    assert!(leaves(of(&all, "wiki", "hedgerow")).fully_dense == 0);
}

#[test]
fn dense_leaves_save_space_where_keys_are_dense() {
    let directory = tempfile::tempdir().unwrap();
    let cases = ["density 4 %", "density 100 %"];
    let (_, all) = run_smoke("leaf-density", &LAYOUTS[..4], &cases, directory.path());
    let bytes = |case: &str| {
        LAYOUTS.map(|name| {
            let one = all.iter().find(|m| m.case == case && m.competitor == name);
            one.map_or(0, |m| m.result().and_then(|r| r.store_bytes).expect("pages are counted"))
        })
    };
    let [comparison, _, semi, full, _] = bytes(cases[1]);
    assert!(full < semi && semi < comparison, "{comparison}, {semi}, {full} bytes");
    let [comparison, _, semi, full, _] = bytes(cases[0]);
    assert!(comparison == semi && comparison == full, "{comparison}, {semi}, {full} bytes");
}

#[test]
fn layouts_are_compared_with_a_fifth_of_the_records_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let competitors = ["hedgerow", "hedgerow-comparison", "hedgerow-fingerprint"];
    let (tally, all) = run_smoke("leaf-beyond-memory", &competitors, &["wiki"], directory.path());
    assert_eq!((tally.measured, tally.absent), (3, 0));
    for one in &all {
        assert!(one.cell.memory_limit_bytes.is_some(), "{:?}", one.cell);
        let phases = &one.result().expect("it ran").phases;
        assert!(phases.iter().all(|phase| phase.found == Some(phase.operations)), "{phases:?}");
    }
}

#[test]
fn records_are_inserted_between_scans() {
    let directory = tempfile::tempdir().unwrap();
    let competitors = ["hedgerow", "btreemap"];
    let (tally, all) = run_smoke("ycsb-e", &competitors, &["wiki"], directory.path());
    assert_eq!(tally.measured, 2);
    let result = of(&all, "wiki", "hedgerow");
    let mixed = result.phases.last().expect("there are phases");
    let inserted = result.records - all[0].cell.load_count as u64;
    assert_eq!(inserted, mixed.operations / 20);
    // A scan reads 25 records on average, fewer where it comes to the end.
    let scans = mixed.operations - inserted;
    let found = mixed.found.unwrap() as f64 / scans as f64;
    assert!((20.0..28.0).contains(&found), "{found} records a scan");
}

#[test]
fn structures_that_are_not_installed_are_absent() {
    let directory = tempfile::tempdir().unwrap();
    let competitors = ["hedgerow", "btree-cpp-art", "btree-cpp-lits", "crossbeam-skipmap"];
    let (tally, _) = run_smoke("structures", &competitors, &["dense"], directory.path());
    assert_eq!((tally.measured, tally.absent), (1, 3));
}
