//! The experiments with pools in smoke size, on their own competitors: equal work everywhere, and what
//! the records say of pools.

#![cfg(target_os = "linux")]

use crate::common::{competitors_of_rungs, plan};
use hedgerow_bench::cell::{Operation, Phase};
use hedgerow_bench::record::{self, Measurement, Outcome, Sink};
use hedgerow_bench::run;
use std::path::Path;

fn run_smoke(name: &str, competitors: &[&str], directory: &Path) -> Vec<Measurement> {
    let record = directory.join(format!("{name}.jsonl"));
    let mut plan = plan(name, directory);
    plan.competitors = competitors.iter().map(|name| (*name).to_owned()).collect();
    plan.pairs = 1;
    let mut said = Vec::new();
    let mut sink = Sink::new(Some(&record)).unwrap();
    let tally = run::run(&plan, &mut sink, |line| said.push(line.to_owned())).unwrap();
    assert!(tally.is_clean() && tally.absent == 0, "{tally:?}\n{}", said.join("\n"));
    let cases = plan.experiments[0].cases.len();
    assert_eq!(tally.measured, cases * competitors.len());
    record::read(&[record]).unwrap().measurements
}

fn fact(measurement: &Measurement, name: &str) -> u64 {
    let Outcome::Measured(result) = &measurement.outcome else {
        panic!("{:?}", measurement.outcome)
    };
    result.facts[name].parse().expect("a number of bytes")
}

/// Page reads an operation in the phase of gets by one thread: threads that want the same page wait for
/// one read of it, and how often that happens is the machine's affair.
fn reads(measurement: &Measurement) -> f64 {
    let Outcome::Measured(result) = &measurement.outcome else {
        panic!("{:?}", measurement.outcome)
    };
    let by_one = |phase: &Phase| matches!(phase.operation, Operation::Get {}) && phase.threads == 1;
    let at = measurement.cell.phases.iter().position(by_one).expect("there is such a phase");
    let phase = &result.phases[at];
    phase.page_reads.expect("reads are counted") as f64 / phase.operations as f64
}

#[test]
fn trees_in_memory_do_the_same_work() {
    let directory = tempfile::tempdir().unwrap();
    let of_rungs = competitors_of_rungs();
    let baseline = of_rungs.iter().filter(|name| name.ends_with("-baseline"));
    let mut competitors = vec!["tree-heap", "tree-frames", "tree-vmcache"];
    competitors.extend(baseline.map(String::as_str));
    let measurements = run_smoke("pools-in-memory", &competitors, directory.path());
    for measurement in measurements.iter().filter(|m| m.competitor.starts_with("tree-vmcache")) {
        assert_eq!(reads(measurement), 0.0, "{}", measurement.case);
        assert_eq!(fact(measurement, "evictions"), 0, "{}", measurement.case);
    }
}

#[test]
fn pools_read_what_does_not_fit_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let competitors = ["tree-frames", "tree-vmcache", "bare-reads"];
    for measurement in run_smoke("pools-ratios", &competitors, directory.path()) {
        let (case, reads) = (&measurement.case, reads(&measurement));
        match case.as_str() {
            _ if measurement.competitor == "bare-reads" => assert_eq!(reads, 1.0, "{case}"),
            "data:pool 1:4" | "data:pool 1:2" => assert_eq!(reads, 0.0, "{case}"),
            "data:pool 8:1" | "data:pool 16:1" => {
                let name = &measurement.competitor;
                assert!((0.7..1.2).contains(&reads), "{name}, {case}: {reads} reads a get");
            }
            _ => assert!(reads < 1.0, "{case}: {reads} reads a get"),
        }
    }
}

#[test]
fn what_pools_keep_beside_pages_grows_with_the_data() {
    let directory = tempfile::tempdir().unwrap();
    let competitors = ["tree-frames", "tree-vmcache"];
    let measurements = run_smoke("pools-bake-off", &competitors, directory.path());
    for name in competitors {
        let of = |case: &str| {
            let one = measurements.iter().find(|m| m.competitor == name && m.case.ends_with(case));
            one.expect("each ran each case")
        };
        for case in ["x 1", "x 5", "x 16", "x 64"] {
            let measurement = of(case);
            let limit = measurement.cell.memory_limit_bytes.expect("there is a limit");
            let used =
                fact(measurement, "memory_for_pages_bytes") + fact(measurement, "metadata_bytes");
            assert!(used <= limit, "{name}, {case}: {used} of {limit} bytes");
        }
        let [first, last] = ["x 1", "x 64"].map(|case| fact(of(case), "metadata_bytes"));
        assert!(last > first, "{name}: {first} and {last} bytes");
        // With a limit as small as this the fixed parts show: not all of it fits, but most.
        let [first, next] = ["x 1", "x 5"].map(|case| reads(of(case)));
        assert!(first < next / 2.0, "{name}: {first} and {next} reads a get");
    }
}
