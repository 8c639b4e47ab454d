//! The rungs of the ladder in smoke size: equal work, what each costs in space, and how it is reported.

#![cfg(target_os = "linux")]

use crate::common::{hedgerow_bench, plan};
use hedgerow_bench::cell::CellResult;
use hedgerow_bench::record::{self, Measurement, Sink};
use hedgerow_bench::run;
use std::path::{Path, PathBuf};

/// The engine's own, each after the one below it.
const RUNGS: [&str; 4] =
    ["tree-heap-baseline", "tree-heap-prefix", "tree-heap-heads", "tree-heap-comparison"];

fn run_smoke(name: &str, pairs: usize, directory: &Path) -> (PathBuf, Vec<Measurement>) {
    let record = directory.join(format!("{name}.jsonl"));
    let mut plan = plan(name, directory);
    plan.competitors = RUNGS.map(str::to_owned).to_vec();
    plan.pairs = pairs;
    let mut said = Vec::new();
    let mut sink = Sink::new(Some(&record)).unwrap();
    let tally = run::run(&plan, &mut sink, |line| said.push(line.to_owned())).unwrap();
    let said = said.join("\n");
    assert!(tally.is_clean() && tally.absent == 0, "{tally:?}\n{said}");
    assert_eq!(tally.measured, 4 * RUNGS.len() * pairs, "four key sets");
    assert!(said.contains("fan-out ") && said.contains("height 2"), "{said}");
    let measurements = record::read(std::slice::from_ref(&record)).unwrap().measurements;
    (record, measurements)
}

/// What a rung gave, and what is known of its tree.
fn of<'a>(measurements: &'a [Measurement], case: &str, rung: &str) -> &'a CellResult {
    let one = measurements.iter().find(|m| m.case == case && m.competitor == rung);
    one.and_then(Measurement::result).expect("each ran each case")
}

#[test]
fn rungs_cost_and_save_space() {
    let directory = tempfile::tempdir().unwrap();
    let (record, measurements) = run_smoke("ladder", 1, directory.path());
    for case in ["dense", "sparse", "urls", "wiki"] {
        let [_, prefix, heads, _] = RUNGS.map(|rung| {
            let result = of(&measurements, case, rung);
            let tree = result.tree.expect("its nodes are counted");
            assert_eq!(tree.height, Some(2), "{case}, {rung}");
            assert_eq!(tree.fan_out(), Some(tree.leaves as f64), "{case}, {rung}: one root");
            let nodes = tree.leaves + tree.inner_nodes;
            assert_eq!(result.store_bytes, Some(nodes * 4096), "{case}, {rung}");
            tree.records_a_leaf(result.records).expect("there are leaves")
        });
        // A head takes the place of the bytes in it: what it costs is places that are not in use.
        let kept = heads / prefix;
        assert!((0.9..1.01).contains(&kept), "{case}: {prefix} records a leaf, with heads {heads}");
    }
    let bytes = |rung| of(&measurements, "urls", rung).store_bytes.expect("pages are counted");
    let [baseline, prefix, ..] = RUNGS.map(bytes);
    // Few keys have short prefixes in common; with millions of them most of a key goes.
    assert!(prefix * 10 < baseline * 9, "URLs: {baseline} bytes, truncated {prefix}");

    let report = |options: &[&str]| {
        let output = hedgerow_bench().arg("report").args(options).arg(&record).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Median, spread and ratio are behind the names.
    let ratio = |table: &str, phase: &str, rung: &str| {
        let names = format!("| ladder | urls | {phase} | {rung} | ");
        let line = table.lines().find(|line| line.starts_with(&names));
        let line = line.unwrap_or_else(|| panic!("nothing of {rung}, {phase}: {table}"));
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 7, "{line}");
        cells[6].trim().to_owned()
    };
    let first = report(&["--compact"]);
    let previous = report(&["--compact", "--steps"]);
    for phase in ["get zipf", "scan 1-50 zipf", "bytes a record", "fan-out", "height"] {
        assert_eq!(ratio(&first, phase, RUNGS[0]), "1.00");
        assert_eq!(ratio(&previous, phase, RUNGS[0]), "", "nothing is before it");
    }
    for table in [&first, &previous] {
        let saved: f64 = ratio(table, "bytes a record", RUNGS[1]).parse().unwrap();
        assert!((saved - prefix as f64 / baseline as f64).abs() < 0.01, "{saved}");
    }
    let hints: f64 = ratio(&previous, "bytes a record", RUNGS[3]).parse().unwrap();
    assert!((0.9..1.2).contains(&hints), "hints take a small part of a page: {hints}");
    let whole = report(&[]);
    assert!(
        whole.contains("| of the tree |") && whole.contains("| fan-out | tree-heap-comparison |"),
        "{whole}"
    );
    let alone = hedgerow_bench().args(["report", "--steps"]).arg(&record).output().unwrap();
    assert_eq!(alone.status.code(), Some(2), "whole tables have no steps");
}

#[test]
fn each_pair_of_the_fan_out_has_its_size() {
    let directory = tempfile::tempdir().unwrap();
    let (_, measurements) = run_smoke("fan-out", 3, directory.path());
    for pair in 1..=3 {
        let of_pair = || measurements.iter().filter(|m| m.pair == pair && m.case == "dense");
        let count = [5000, 1250, 2500][pair - 1];
        assert!(of_pair().all(|m| m.cell.keys.count == count && m.cell.load_count == count));
        let results = of_pair().map(|m| m.result().expect("it was measured"));
        assert!(results.clone().all(|result| result.records == count as u64));
        let sums: Vec<_> = results.map(|result| result.phases[0].checksum).collect();
        assert!(sums[0].is_some() && sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    }
}
