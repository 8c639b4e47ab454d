//! The command: what it refuses with exit code 2, and what it prints.

use crate::common::hedgerow_bench;
use hedgerow_bench::record;
use hedgerow_bench::report;
use hedgerow_bench::tpcc::Kind;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

fn tpcc(arguments: &[&str]) -> Output {
    hedgerow_bench().arg("tpcc").args(arguments).output().unwrap()
}

/// Refused with exit code 2 and these words, and nothing on standard output.
fn is_refused(arguments: &[&str], words: &str) {
    let output = tpcc(arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
    assert!(told.contains(words), "{arguments:?}: {told}");
    assert!(output.stdout.is_empty(), "{arguments:?}");
}

#[test]
fn arguments_out_of_range_are_refused() {
    is_refused(&["--warehouses", "0"], "0 warehouses");
    is_refused(&["--threads", "0"], "0 threads");
    for scale in ["0", "1.5", "NaN", "inf"] {
        is_refused(&["--scale", scale], "above 0 and up to 1");
    }
    is_refused(&["--scale=-1"], "above 0 and up to 1");
    is_refused(&["--seconds", "0"], "0 seconds");
    is_refused(&["--page-bytes", "1000"], "page");
    is_refused(&["--memory-mib", "0"], "memory");
    is_refused(&["--smoke", "--threads", "2"], "--smoke");
    is_refused(&["--no-log"], "--store");
}

#[test]
fn a_store_is_kept_and_one_that_does_not_fit_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tpcc.hrow");
    let path = path.to_str().unwrap();
    let run = |more: &[&str]| {
        let fixed = ["--store", path, "--scale", "0.001", "--transactions", "20"];
        tpcc(&[&fixed, more].concat())
    };
    let first = run(&["--page-bytes", "8192"]);
    assert!(first.status.success(), "{first:?}");
    // How long it takes is not for a test to say.
    let has_loaded =
        |run: &Output| !String::from_utf8_lossy(&run.stdout).contains("\"load_seconds\":null");
    assert!(has_loaded(&first), "{first:?}");
    let again = run(&[]);
    assert!(again.status.success() && !has_loaded(&again), "{again:?}");
    is_refused(
        &["--store", path, "--scale", "0.002"],
        "scale of the store: 0.001, asked for: 0.002",
    );
    is_refused(
        &["--store", path, "--scale", "0.001", "--warehouses", "2"],
        "warehouses in the store: 1, asked for: 2",
    );
    is_refused(&["--store", path, "--scale", "0.001", "--page-bytes", "4096"], "page");
    let fitting = run(&[]);
    assert!(fitting.status.success(), "refusals have changed nothing: {fitting:?}");
}

fn refuses_store(fill: impl FnOnce(&hedgerow::Database), words: &str) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.hrow");
    let database = hedgerow::Database::create(&path).unwrap();
    fill(&database);
    database.close().unwrap();
    is_refused(&["--store", path.to_str().unwrap()], words);
}

#[test]
fn a_store_with_something_else_or_a_part_of_the_load_is_refused() {
    refuses_store(
        |database| {
            database.keyspace("birds").unwrap().put(b"wren", b"hedges").unwrap();
        },
        "holds something else",
    );
    refuses_store(|database| drop(database.keyspace("tpcc").unwrap()), "was not finished");
    refuses_store(
        |database| {
            let mark = database.keyspace("tpcc").unwrap();
            mark.put(b"loaded", &[9; 16]).unwrap();
        },
        "records of version",
    );
}

#[test]
fn an_inconsistent_store_is_an_error_that_says_where() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tpcc.hrow");
    let arguments = ["--store", path.to_str().unwrap(), "--scale", "0.001", "--transactions", "5"];
    assert!(tpcc(&arguments).status.success());
    let database = hedgerow::Database::open(&path).unwrap();
    // A line of the first order of district 3.
    let lines = database.open_keyspace("order_line").unwrap().unwrap();
    assert!(lines.remove(&[0, 0, 0, 1, 3, 0, 0, 0, 1, 1]).unwrap());
    database.close().unwrap();
    let output = tpcc(&arguments);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("condition 4 does not hold in district 3 of warehouse 1"), "{told}");
}

#[test]
fn the_smoke_size_writes_a_record_that_can_be_reported() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("record.jsonl");
    let space = ["--insert", "--compacted-space"];
    let output = tpcc(&[&["--smoke", "--out", out.to_str().unwrap()][..], &space].concat());
    assert!(output.status.success(), "{output:?}");
    let records = record::read(&[out]).unwrap();
    assert_eq!((records.headers.len(), records.tpcc.len()), (1, 1));
    assert_eq!(records.tpcc[0].transactions, 1_000);
    let tables = report::markdown(&records);
    assert!(
        tables.contains("## TPC-C") && tables.contains("Warehouses: 2, at scale 0.01"),
        "{tables}"
    );
    assert!(tables.contains("Initial data inserted, compacted: "), "{tables}");
    assert!(Kind::ALL.iter().all(|kind| tables.contains(&format!("| {} |", kind.name()))));
    // Whoever asks for charts gets none of it, and no error.
    let charts = directory.path().join("charts");
    let chart = hedgerow_bench()
        .args(["chart", "--out"])
        .arg(&charts)
        .arg(Path::new(&directory.path().join("record.jsonl")))
        .output()
        .unwrap();
    assert!(chart.status.success(), "{chart:?}");
}

/// Whatever a transaction has done when its process is killed, the next one finds all of it or nothing.
#[test]
fn the_conditions_hold_after_a_run_was_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tpcc.hrow");
    for isolation in ["snapshot", "serializable"] {
        let fixed =
            ["--store", path.to_str().unwrap(), "--scale", "0.01", "--isolation", isolation];
        let few = || tpcc(&[&fixed[..], &["--transactions", "5"]].concat());
        let first = few();
        assert!(first.status.success(), "{first:?}");
        for milliseconds in [150, 300, 450] {
            let mut killed = hedgerow_bench()
                .arg("tpcc")
                .args(fixed)
                .args(["--seconds", "60", "--seed", "9"])
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(milliseconds));
            assert!(killed.try_wait().unwrap().is_none(), "it has ended by itself");
            killed.kill().unwrap();
            killed.wait().unwrap();
            let after = few();
            assert!(after.status.success(), "{after:?}");
        }
    }
}
