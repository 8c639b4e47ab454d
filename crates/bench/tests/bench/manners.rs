//! Bad input, and competitors that are absent, hang, fail, lie or babble: each is told for what it is,
//! and the records of the others are kept.

use crate::common::{PROGRAM, hedgerow_bench, plan};
use hedgerow_bench::cell::CellError;
use hedgerow_bench::external::process;
use hedgerow_bench::record::{self, Outcome, Sink};
use hedgerow_bench::run;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A program with competitors that behave badly. `hang` starts a child that hangs too, and notes its id.
fn bad_peers(directory: &Path) -> PathBuf {
    let path = directory.join("peers");
    let script = format!(
        r#"#!/bin/sh
if [ "$1" = competitors ]; then
  printf 'hang\nfail\nunable\nliar\nbabbler\n'
  exit 0
fi
as_hedgerow() {{ sed 's/"competitor": "liar"/"competitor": "hedgerow"/' "$1" > "$1.own"; }}
case "$(sed -n 's/.*"competitor": "\([a-z]*\)".*/\1/p' "$2")" in
  hang) sleep 600 & echo $! > {directory}/child; wait ;;
  fail) echo 'the disk is on fire' >&2; exit 1 ;;
  unable) echo 'no scans' >&2; exit 3 ;;
  liar) as_hedgerow "$2"; {PROGRAM} cell "$2.own" | sed 's/"checksum":"./"checksum":"0/g' ;;
  babbler) echo 'all is well' ;;
esac
"#,
        directory = directory.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Runs one small case with `competitors` from the bad program.
fn run_with(
    competitors: &[&str],
) -> (run::Tally, Vec<Outcome>, Vec<Option<String>>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record.jsonl");
    let mut plan = plan("against-btreemap", directory.path());
    plan.cases = vec!["random8".into()];
    plan.peers = vec![bad_peers(directory.path())];
    plan.competitors = competitors.iter().map(|name| (*name).to_owned()).collect();
    plan.pairs = 1;
    plan.seconds_limit = Some(if competitors.contains(&"hang") { 6 } else { 60 });
    let mut sink = Sink::new(Some(&record)).unwrap();
    let tally = run::run(&plan, &mut sink, |_| {}).unwrap();
    let records = record::read(&[record]).unwrap().measurements;
    let (outcomes, mismatches) =
        records.into_iter().map(|record| (record.outcome, record.mismatch)).unzip();
    (tally, outcomes, mismatches, directory)
}

fn is_running(process: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // A killed process whose parent has not asked for it yet is a zombie.
    !status.is_empty() && !status.contains(") Z ")
}

#[test]
fn a_competitor_that_hangs_is_killed_with_its_children_and_reported() {
    let started = Instant::now();
    let (tally, outcomes, _, directory) = run_with(&["hang", "hedgerow"]);
    assert!(started.elapsed() < Duration::from_secs(60));
    assert_eq!((tally.measured, tally.failed), (1, 1), "the other one goes on");
    assert_eq!(outcomes[0], Outcome::Missing(CellError::TimedOut(6)));
    let child = std::fs::read_to_string(directory.path().join("child")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_running(child.trim()) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!is_running(child.trim()), "process {child}");
}

#[test]
fn different_work_is_an_error() {
    let (tally, _, mismatches, _directory) = run_with(&["hedgerow", "liar"]);
    assert_eq!((tally.measured, tally.mismatched), (1, 1));
    assert!(!tally.is_clean());
    assert_eq!(mismatches[0], None);
    let words = mismatches[1].as_ref().unwrap();
    assert!(words.contains("checksum") && words.contains("hedgerow has"), "{words}");
}

#[test]
fn failures_are_told_in_the_competitors_words() {
    let (tally, outcomes, _, _directory) =
        run_with(&["fail", "unable", "babbler", "nobody", "hedgerow"]);
    assert_eq!((tally.measured, tally.absent, tally.failed), (1, 2, 2));
    let words = |at: usize| match &outcomes[at] {
        Outcome::Missing(error) => error.to_string(),
        Outcome::Measured(_) => panic!("number {at} gave figures"),
    };
    assert!(words(0).contains("the disk is on fire"), "{}", words(0));
    assert_eq!(words(1), "unsupported: no scans");
    assert!(words(2).contains("no result of a cell"), "{}", words(2));
    assert!(words(3).starts_with("not installed: "), "{}", words(3));
}

#[test]
fn a_refusal_of_this_harness_is_told_once() {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("record.jsonl");
    let mut plan = plan("space", directory.path());
    plan.cases = vec!["delete all".into()];
    plan.competitors = vec!["btreemap".into()];
    let tally = run::run(&plan, &mut Sink::new(Some(&record)).unwrap(), |_| {}).unwrap();
    assert_eq!((tally.measured, tally.absent, tally.failed), (0, 1, 0));
    let measurement = &record::read(&[record]).unwrap().measurements[0];
    let Outcome::Missing(error) = &measurement.outcome else { panic!("a map has no files") };
    let words = error.to_string();
    assert_eq!(words.matches("unsupported").count(), 1, "{words}");
}

#[test]
fn foreign_programs_have_a_time_limit_and_their_words_are_kept() {
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    };
    let output = process::run(&mut shell("echo out; echo words >&2; exit 7"), 60).unwrap();
    assert_eq!((output.stdout.as_str(), output.status.code()), ("out\n", Some(7)));
    let error = output.success().unwrap_err();
    assert_eq!(error, CellError::Failed("exit code 7: words".into()));
    let error = process::run(&mut shell("sleep 600"), 1).unwrap_err();
    assert_eq!(error, CellError::TimedOut(1));
    let error = process::run(&mut Command::new("no-such-program-here"), 1).unwrap_err();
    assert!(matches!(error, CellError::NotInstalled(_)), "{error}");
    // What a program leaves running does not hold up the run.
    let started = Instant::now();
    let output = process::run(&mut shell("sleep 600 & echo done"), 300).unwrap();
    assert_eq!(output.stdout, "done\n");
    assert!(started.elapsed() < Duration::from_secs(100));
}

/// A run whose first competitor has been measured and whose second one hangs: the program, started by `env` or `sh` with
/// `before`, and the id of the hanging process. The record is `record.jsonl`, the stores are in `place`.
#[allow(clippy::zombie_processes, reason = "whoever calls waits")]
fn hangs(directory: &Path, before: &[&str]) -> (Child, String) {
    let place = directory.join("place");
    std::fs::create_dir(&place).unwrap();
    let mut bench = Command::new(before[0])
        .args(&before[1..])
        .arg(PROGRAM)
        .args(["run", "against-btreemap", "--size", "smoke", "--case", "random8"])
        .args(["--competitor", "hedgerow", "--competitor", "hang", "--peers"])
        .arg(bad_peers(directory))
        .arg("--out")
        .arg(directory.join("record.jsonl"))
        .arg("--dir")
        .arg(&place)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let child = std::fs::read_to_string(directory.join("child")).unwrap_or_default();
        if child.ends_with('\n') {
            return (bench, child.trim().to_owned());
        }
        if Instant::now() >= deadline {
            bench.kill().unwrap();
            panic!("the hanging competitor never started: {:?}", bench.wait());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(bench: &Child, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_child(bench), signal).unwrap();
}

#[test]
fn an_interrupt_kills_what_runs_and_keeps_the_records() {
    let directory = tempfile::tempdir().unwrap();
    // Whoever runs the tests in the background of a shell has the signal ignored.
    let (mut bench, child) = hangs(directory.path(), &["env", "--default-signal=INT"]);
    signal(&bench, rustix::process::Signal::INT);
    assert_eq!(bench.wait().unwrap().code(), Some(130));
    let measurements = record::read(&[directory.path().join("record.jsonl")]).unwrap().measurements;
    assert_eq!(measurements.len(), 1, "the one before");
    let place = directory.path().join("place");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "stores are gone");
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_running(&child) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!is_running(&child), "process {child}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let script = "trap '' INT HUP; exec \"$0\" \"$@\"";
    let (mut bench, _) = hangs(directory.path(), &["sh", "-c", script]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", bench.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    assert_eq!(mask & 0b11, 0b11, "HUP and INT");
    signal(&bench, rustix::process::Signal::INT);
    signal(&bench, rustix::process::Signal::HUP);
    assert!(bench.try_wait().unwrap().is_none());
    signal(&bench, rustix::process::Signal::TERM);
    assert_eq!(bench.wait().unwrap().code(), Some(130));
}

/// Standard error of the program, and its exit code.
fn fails(arguments: &[&str]) -> (String, Option<i32>) {
    let output = hedgerow_bench().args(arguments).output().unwrap();
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

#[test]
fn an_unknown_experiment_is_told_the_known_ones() {
    let (words, code) = fails(&["run", "speed"]);
    assert_eq!(code, Some(2));
    assert!(words.contains("`speed`") && words.contains("out-of-memory"), "{words}");
}

#[test]
fn an_unknown_case_is_told_the_known_ones() {
    let (words, code) = fails(&["run", "against-btreemap", "--size", "smoke", "--case", "books"]);
    assert_eq!(code, Some(1));
    assert!(words.contains("`books`") && words.contains("random8"), "{words}");
}

#[test]
fn a_missing_key_file_is_told_before_anything_runs() {
    let (words, code) = fails(&["run", "against-btreemap", "--keys", "urls=no/such/file"]);
    assert_eq!(code, Some(1));
    assert!(words.contains("there is no key file no/such/file"), "{words}");
    let (words, code) = fails(&["run", "against-btreemap"]);
    assert_eq!(code, Some(1));
    assert!(words.contains("--keys urls=FILE"), "{words}");
}

#[test]
fn a_program_without_competitors_is_told() {
    let arguments = ["run", "against-btreemap", "--size", "smoke", "--peers", "no-such-program"];
    let (words, code) = fails(&arguments);
    assert_eq!(code, Some(1));
    assert!(words.contains("no-such-program tells no competitors"), "{words}");
}

#[test]
fn records_that_cannot_be_written_end_the_run() {
    // A device that is always full; where there is none, nothing can be shown.
    if Path::new("/dev/full").exists() {
        let (words, code) =
            fails(&["run", "against-btreemap", "--size", "smoke", "--out", "/dev/full"]);
        assert_eq!(code, Some(1));
        assert!(words.contains("cannot append to /dev/full"), "{words}");
    }
}

#[test]
fn a_cell_that_is_none_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("cell.json");
    let path = file.to_str().unwrap();
    let (words, code) = fails(&["cell", path]);
    assert_eq!(code, Some(1));
    assert!(words.contains("cannot read the cell"), "{words}");
    for (text, expected) in [
        ("{", "EOF"),
        (r#"{"protocol": 99}"#, "its protocol is 99, this program's is 1"),
        (r#"{"competitor": "hedgerow"}"#, "its protocol is none"),
        (r#"{"protocol": 1}"#, "missing field"),
    ] {
        std::fs::write(&file, text).unwrap();
        let (words, code) = fails(&["cell", path]);
        assert_eq!(code, Some(1));
        assert!(words.contains(expected), "{text}: {words}");
    }
}
