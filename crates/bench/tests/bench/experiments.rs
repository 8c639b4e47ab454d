//! Every experiment in its smoke size, by the program as a user runs it: same work, whole records.

use crate::common::{hedgerow_bench, pairs, plan};
use hedgerow_bench::cell::{CellError, Operation, Phase, Place};
use hedgerow_bench::checksum::Values;
use hedgerow_bench::experiments::{self, Size};
use hedgerow_bench::record::{self, Measurement, Outcome, Sink};
use hedgerow_bench::run::{self, Tally};
use hedgerow_bench::{chart, report};
use hedgerow_testing::environment::is_thorough;
use std::path::Path;

/// Runs `name` with the competitors of this program.
fn run_smoke(name: &str, competitors: &[&str], directory: &Path) -> (Tally, Vec<Measurement>) {
    let record = directory.join(format!("{name}.jsonl"));
    let mut plan = plan(name, directory);
    plan.competitors = competitors.iter().map(|name| (*name).to_owned()).collect();
    let mut sink = Sink::new(Some(&record)).unwrap();
    let mut said = Vec::new();
    let tally = run::run(&plan, &mut sink, |line| said.push(line.to_owned())).unwrap();
    assert!(tally.is_clean(), "{name}: {tally:?}\n{}", said.join("\n"));
    (tally, record::read(&[record]).unwrap().measurements)
}

#[test]
fn every_experiment_runs_in_smoke_size() {
    let directory = tempfile::tempdir().unwrap();
    for experiment in experiments::all(Size::Smoke) {
        let name = experiment.name;
        // Maps stand in for competitors: what they can do does not depend on the experiment.
        let competitors: &[_] =
            if is_thorough() { &["hedgerow", "btreemap"] } else { &["hedgerow"] };
        let (tally, measurements) = run_smoke(name, competitors, directory.path());
        let cases = experiment.cases.len();
        let is_file = experiment.cases[0].place == Place::File;
        let maps = competitors.len() - 1;
        let measured = if is_file { 1 } else { 1 + maps };
        assert_eq!(tally.measured, cases * pairs() * measured, "{name}");
        let absent = if is_file { cases * maps } else { 0 };
        assert_eq!(tally.absent, absent, "{name}: a map has no file");
        for measurement in &measurements {
            check(measurement);
        }
        // Nothing is left of stores and keys.
        let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().collect();
        assert!(left.iter().all(|entry| entry.path().is_file()), "{left:?}");
    }
    let records: Vec<_> =
        std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let records = record::read(&records).unwrap();
    let tables = report::markdown(&records);
    let pictures = chart::draw(&records, &directory.path().join("charts")).unwrap();
    let experiments = experiments::all(Size::Smoke);
    for experiment in &experiments {
        for case in &experiment.cases {
            assert!(tables.contains(&format!("## {}: {}", experiment.name, case.name)), "{tables}");
        }
        // A name may begin with that of another experiment: the longest that fits is meant.
        let of_this = |picture: &&std::path::PathBuf| {
            let file = picture.file_name().unwrap().to_string_lossy();
            let names = experiments.iter().map(|experiment| experiment.name);
            names.filter(|name| file.starts_with(*name)).max_by_key(|name| name.len())
                == Some(experiment.name)
        };
        let is_timed = |picture: &&&std::path::PathBuf| {
            picture.file_stem().unwrap().to_string_lossy().ends_with("-latency")
        };
        let (timed, rates): (Vec<_>, Vec<_>) =
            pictures.iter().filter(of_this).partition(|picture| is_timed(&picture));
        assert_eq!(rates.len(), experiment.cases.len());
        let phases = experiment.cases.iter().flat_map(|case| &case.phases);
        assert_eq!(timed.len(), phases.filter(|phase| phase.latency).count());
    }
    for picture in pictures {
        let svg = std::fs::read_to_string(picture).unwrap();
        assert!(svg.contains("<svg") && svg.contains("hedgerow"), "{svg}");
    }
}

/// What must hold for any measurement.
fn check(measurement: &Measurement) {
    let what = format!("{}, {}", measurement.experiment, measurement.case);
    let result = match &measurement.outcome {
        Outcome::Measured(result) => result,
        Outcome::Missing(error) => {
            assert!(matches!(error, CellError::Unsupported(_)), "{what}: {error}");
            return;
        }
    };
    let cell = &measurement.cell;
    assert_eq!(result.load.operations, cell.load_count as u64, "{what}");
    let loaded = Values::new(cell.value_bytes, cell.spread).total_bytes(cell.load_count);
    assert!(measurement.loaded_bytes > loaded, "{what}");
    assert!(!cell.directory.is_absolute(), "{what}: records are passed on");
    let mut records = cell.load_count as u64;
    for (phase, of_phase) in cell.phases.iter().zip(&result.phases) {
        let what = format!("{what}, {}", phase.name);
        assert!(of_phase.seconds > 0.0, "{what}");
        match phase.operation {
            Operation::GetInsert { .. } => {
                let inserted = phase.insertions() as u64;
                records += inserted;
                assert_eq!(of_phase.found, Some(of_phase.operations - inserted), "{what}");
            }
            _ if phase.operation.inserts() => records += phase.insertions() as u64,
            Operation::Delete { percent } => {
                records -= (0..records).filter(|at| at % 100 < percent as u64).count() as u64;
            }
            Operation::Get {} | Operation::GetMany { .. } | Operation::ReadModifyWrite { .. } => {
                assert_eq!(of_phase.found, Some(phase.operations as u64), "{what}");
            }
            Operation::ScanAll {} => assert_eq!(of_phase.found, Some(records), "{what}"),
            _ => {}
        }
        if of_phase.found > Some(0) {
            assert!(of_phase.checksum.is_some_and(|sum| sum.0 != 0), "{what}");
        }
    }
    assert_eq!(result.records, records, "{what}");
}

#[test]
fn beyond_memory_each_miss_reads_a_page_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let (_, measurements) = run_smoke("out-of-memory", &["hedgerow"], directory.path());
    let large = measurements.iter().find(|m| m.case.ends_with("x 64")).unwrap();
    let Outcome::Measured(result) = &large.outcome else { panic!("{:?}", large.outcome) };
    // Of a leaf nearly always, and now and then of its parent; several threads may evict each other's.
    for (phase, result) in large.cell.phases.iter().zip(&result.phases) {
        let reads = result.page_reads.unwrap() as f64 / result.operations as f64;
        // The pool is hardly larger than a batch: on a busy machine pages of a batch are evicted before they are used.
        let most = if matches!(phase.operation, Operation::GetMany { .. }) { 8.0 } else { 2.0 };
        let is_right = phase.threads > 1 || (0.8..most).contains(&reads);
        assert!(is_right, "{}: {reads} page reads an operation", phase.name);
    }
}

#[test]
fn phases_that_go_on_for_some_time_count_and_time_every_call() {
    let directory = tempfile::tempdir().unwrap();
    let (_, measurements) = run_smoke("put-latency", &["hedgerow"], directory.path());
    let Outcome::Measured(result) = &measurements[0].outcome else { panic!("{measurements:?}") };
    let (mut cell, overwrites) = (measurements[0].cell.clone(), &result.phases[1]);
    let latency = overwrites.latency.as_ref().unwrap();
    let counted: u64 = latency.histogram.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, overwrites.operations);
    assert_eq!(overwrites.checksum, None, "how many there were is a matter of speed");
    let asked = cell.phases[1].seconds.unwrap();
    assert!(overwrites.seconds >= asked, "{overwrites:?}");
    // What makes no sense is refused before anything runs.
    assert_eq!(cell.check(), Ok(()));
    let good = cell.phases[1].clone();
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        cell.phases[1].seconds = Some(seconds);
        assert!(cell.check().unwrap_err().contains("some time"), "{seconds}");
    }
    cell.phases[1] = Phase { latency: false, ..good.clone() };
    assert!(cell.check().unwrap_err().contains("timed"));
    cell.phases[1] = Phase { operation: Operation::InsertLast {}, operations: 0, ..good.clone() };
    assert!(cell.check().unwrap_err().contains("gets and overwrites"));
    cell.phases[1] = Phase { operations: 1, threads: 2, ..good };
    assert!(cell.check().unwrap_err().contains("nothing to do"));
}

#[test]
fn cells_that_ask_for_nothing_new_are_understood_by_older_programs() {
    let directory = tempfile::tempdir().unwrap();
    let (_, measurements) = run_smoke("against-btreemap", &["hedgerow"], directory.path());
    let text = serde_json::to_string(&measurements[0].cell).unwrap();
    for field in ["durability", "memory_group", "\"seconds\""] {
        assert!(!text.contains(field), "{text}");
    }
}

#[test]
fn ways_of_getting_do_the_same_work() {
    let directory = tempfile::tempdir().unwrap();
    let competitors = ["hedgerow", "hedgerow-get_into", "btreemap"];
    let (tally, _) = run_smoke("against-btreemap", &competitors, directory.path());
    assert_eq!(tally.measured, 6 * pairs(), "two cases, three competitors");
}

#[test]
fn the_program_runs_reports_and_draws() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record.jsonl");
    let output = hedgerow_bench()
        .args(["run", "against-btreemap", "--size", "smoke", "--pairs", "1"])
        .args(["--case", "random8", "--out"])
        .arg(&record)
        .arg("--dir")
        .arg(directory.path())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(words.contains("3 measured"), "{words}");
    let output = hedgerow_bench().arg("report").arg(&record).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("against-btreemap: random8") && table.contains("| get |"), "{table}");
    let charts = directory.path().join("charts");
    let output =
        hedgerow_bench().arg("chart").arg(&record).arg("--out").arg(&charts).output().unwrap();
    assert!(output.status.success());
    assert!(charts.join("against-btreemap-random8.svg").is_file());
    let output = hedgerow_bench().arg("list").output().unwrap();
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    for experiment in experiments::all(Size::Full) {
        assert!(list.contains(experiment.name), "{list}");
    }
}

#[test]
fn builds_take_turns() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record.jsonl");
    let mut plan = plan("against-btreemap", directory.path());
    plan.cases = vec!["random8".into()];
    plan.pairs = 2;
    plan.builds = vec![("old".into(), plan.program.clone()), ("new".into(), plan.program.clone())];
    run::run(&plan, &mut Sink::new(Some(&record)).unwrap(), |_| {}).unwrap();
    let records = record::read(&[record]).unwrap();
    let order: Vec<_> = records.measurements.iter().map(|m| m.competitor.as_str()).collect();
    assert_eq!(order, ["hedgerow@old", "hedgerow@new", "hedgerow@new", "hedgerow@old"]);
}
