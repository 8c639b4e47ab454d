//! The rungs of the ladder in smoke size: equal work, what each costs in space, and how steps are reported.
//!
//! Lower rungs are those of the programs that `HEDGEROW_RUNG_PROGRAMS` names; without one, only that of this build runs.

#![cfg(target_os = "linux")]

use crate::common::{competitors_of_rungs, hedgerow_bench, plan};
use hedgerow_bench::cell::CellResult;
use hedgerow_bench::record::{self, Measurement, Sink};
use hedgerow_bench::run;
use std::path::{Path, PathBuf};

/// The rung of this build: all leaves are comparison leaves, as they are on the others.
const HINTS: &str = "tree-heap-comparison";

/// The engine's own that there are, each after the one below it.
fn rungs() -> Vec<&'static str> {
    let there = competitors_of_rungs();
    let lower = ["tree-heap-baseline", "tree-heap-prefix", "tree-heap-heads"];
    let lower = lower.into_iter().filter(|rung| there.iter().any(|name| name == rung));
    lower.chain([HINTS]).collect()
}

fn run_smoke(
    name: &str,
    competitors: &[&str],
    pairs: usize,
    directory: &Path,
) -> (PathBuf, Vec<Measurement>) {
    let record = directory.join(format!("{name}.jsonl"));
    let mut plan = plan(name, directory);
    plan.competitors = competitors.iter().map(|name| (*name).to_owned()).collect();
    plan.pairs = pairs;
    let mut said = Vec::new();
    let mut sink = Sink::new(Some(&record)).unwrap();
    let tally = run::run(&plan, &mut sink, |line| said.push(line.to_owned())).unwrap();
    let said = said.join("\n");
    assert!(tally.is_clean() && tally.absent == 0, "{tally:?}\n{said}");
    assert_eq!(tally.measured, 4 * competitors.len() * pairs, "four key sets");
    assert!(said.contains("fan-out ") && said.contains("height 2"), "{said}");
    let measurements = record::read(std::slice::from_ref(&record)).unwrap().measurements;
    (record, measurements)
}

/// What a rung gave, and what is known of its tree, if it has run.
fn of<'a>(measurements: &'a [Measurement], case: &str, rung: &str) -> Option<&'a CellResult> {
    let one = measurements.iter().find(|m| m.case == case && m.competitor == rung)?;
    Some(one.result().expect("each ran each case"))
}

#[test]
fn rungs_cost_and_save_space() {
    let directory = tempfile::tempdir().unwrap();
    let rungs = rungs();
    let (_, measurements) = run_smoke("ladder", &rungs, 1, directory.path());
    for case in ["dense", "sparse", "urls", "wiki"] {
        for rung in &rungs {
            let result = of(&measurements, case, rung).expect("each ran each case");
            let tree = result.tree.expect("its nodes are counted");
            assert_eq!(tree.height, Some(2), "{case}, {rung}");
            assert_eq!(tree.fan_out(), Some(tree.leaves as f64), "{case}, {rung}: one root");
            let nodes = tree.leaves + tree.inner_nodes;
            assert_eq!(result.store_bytes, Some(nodes * 4096), "{case}, {rung}");
        }
        let records_a_leaf = |rung| {
            let result = of(&measurements, case, rung)?;
            result.tree?.records_a_leaf(result.records)
        };
        let all = [records_a_leaf("tree-heap-prefix"), records_a_leaf("tree-heap-heads")];
        let [Some(prefix), Some(heads)] = all else { continue };
        // A head takes the place of the bytes in it: what it costs is places that are not in use.
        let kept = heads / prefix;
        assert!((0.9..1.01).contains(&kept), "{case}: {prefix} records a leaf, with heads {heads}");
    }
    let bytes = |rung: &str| of(&measurements, "urls", rung).and_then(|result| result.store_bytes);
    let Some(baseline) = bytes("tree-heap-baseline") else { return };
    // Few keys have short prefixes in common; with millions of them most of a key goes.
    for rung in &rungs[1..] {
        let truncated = bytes(rung).expect("pages are counted");
        assert!(truncated * 10 < baseline * 9, "URLs: {baseline} bytes, {rung} {truncated}");
    }
}

#[test]
fn steps_are_relative_to_the_line_before() {
    let directory = tempfile::tempdir().unwrap();
    let competitors = ["tree-heap-fingerprint", HINTS, "tree-heap"];
    let (record, measurements) = run_smoke("ladder", &competitors, 1, directory.path());
    let bytes = competitors.map(|competitor| {
        let result = of(&measurements, "urls", competitor).expect("each ran each case");
        result.store_bytes.expect("pages are counted") as f64
    });
    let report = |options: &[&str]| {
        let output = hedgerow_bench().arg("report").args(options).arg(&record).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    // Median, spread and ratio are behind the names.
    let ratio = |table: &str, phase: &str, competitor: &str| {
        let names = format!("| ladder | urls | {phase} | {competitor} | ");
        let line = table.lines().find(|line| line.starts_with(&names));
        let line = line.unwrap_or_else(|| panic!("nothing of {competitor}, {phase}: {table}"));
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        assert_eq!(cells.len(), 7, "{line}");
        cells[6].trim().to_owned()
    };
    let first = report(&["--compact"]);
    let previous = report(&["--compact", "--steps"]);
    for phase in ["get zipf", "scan 1-50 zipf", "bytes a record", "fan-out", "height"] {
        assert_eq!(ratio(&first, phase, competitors[0]), "1.00");
        assert_eq!(ratio(&previous, phase, competitors[0]), "", "nothing is before it");
    }
    for (table, at, before) in
        [(&first, 1, 0), (&first, 2, 0), (&previous, 1, 0), (&previous, 2, 1)]
    {
        let told: f64 = ratio(table, "bytes a record", competitors[at]).parse().unwrap();
        assert!((told - bytes[at] / bytes[before]).abs() < 0.01, "{at} over {before}: {told}");
    }
    let whole = report(&[]);
    let fan_out = format!("| fan-out | {HINTS} |");
    assert!(whole.contains("| of the tree |") && whole.contains(&fan_out), "{whole}");
    let alone = hedgerow_bench().args(["report", "--steps"]).arg(&record).output().unwrap();
    assert_eq!(alone.status.code(), Some(2), "whole tables have no steps");
}

#[test]
fn each_pair_of_the_fan_out_has_its_size() {
    let directory = tempfile::tempdir().unwrap();
    let (_, measurements) = run_smoke("fan-out", &rungs(), 3, directory.path());
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
