//! The comparison of products in its smoke size, as `hedgerow-bench` runs it, with every competitor: the same work, and
//! figures of everything that is asked. Needs RocksDB's library.

use hedgerow_bench::cell::Durability;
use hedgerow_bench::experiments::{self, Figure, Size};
use hedgerow_bench::external::Programs;
use hedgerow_bench::record::{self, Outcome, Sink};
use hedgerow_bench::run::{self, Plan};
use hedgerow_bench::{chart, report};
use std::collections::{BTreeMap, BTreeSet};

/// The program under test; it has the competitors of `hedgerow-bench`, too.
const PROGRAM: &str = env!("CARGO_BIN_EXE_hedgerow-peers");

#[test]
fn every_product_takes_part_in_every_experiment() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("record.jsonl");
    let experiments: Vec<_> = experiments::all(Size::Smoke)
        .into_iter()
        .filter(|e| e.cases.iter().any(|case| case.durability != Durability::None))
        // Not every product takes keys of any length.
        .filter(|e| !e.name.contains("long-keys"))
        .collect();
    let names: Vec<_> = experiments.iter().map(|e| e.name).collect();
    assert_eq!(experiments.len(), 12, "{names:?}");
    let plan = Plan {
        experiments: experiments.clone(),
        size: Size::Smoke,
        competitors: Vec::new(),
        cases: Vec::new(),
        pairs: 1,
        instructions: false,
        program: PROGRAM.into(),
        builds: Vec::new(),
        peers: vec![PROGRAM.into()],
        programs: Programs::default(),
        keys: BTreeMap::new(),
        directory: directory.path().to_owned(),
        seconds_limit: None,
    };
    let mut sink = Sink::new(Some(&path)).unwrap();
    let mut said = Vec::new();
    let tally = run::run(&plan, &mut sink, |line| said.push(line.to_owned())).unwrap();
    let said = said.join("\n");
    assert!(tally.is_clean() && tally.absent == 0, "{tally:?}\n{said}");
    let records = record::read(&[path]).unwrap();
    for experiment in &experiments {
        let of = records.measurements.iter().filter(|m| m.experiment == experiment.name);
        let names: BTreeSet<_> = of.clone().map(|m| m.competitor.as_str()).collect();
        assert_eq!(names, experiment.competitors.iter().copied().collect(), "{said}");
        for measurement in of {
            let Outcome::Measured(result) = &measurement.outcome else { panic!("{measurement:?}") };
            for (phase, of_phase) in measurement.cell.phases.iter().zip(&result.phases) {
                let what = format!("{}, {}: {of_phase:?}", experiment.name, measurement.competitor);
                assert!(of_phase.operations > 0 && of_phase.seconds > 0.0, "{what}");
                assert!(
                    experiment.figure != Figure::Space || of_phase.file_bytes > Some(0),
                    "{what}"
                );
                assert_eq!(phase.latency, of_phase.latency.is_some(), "{what}");
            }
        }
    }
    let tables = report::markdown(&records);
    assert!(tables.contains("| commit @64: 99.9 % us | rocksdb |"), "{tables}");
    let pictures = chart::draw(&records, &directory.path().join("charts")).unwrap();
    assert!(
        pictures.iter().any(|path| path.ends_with("put-latency-random8-overwrite-latency.svg"))
    );
}
