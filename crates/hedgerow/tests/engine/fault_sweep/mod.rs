//! Every call to the disk fails: in forty-one short scripts each call of twelve kinds, once and for good, with a log and
//! without.
//!
//! A first run of each script counts its calls by kind; then, for every number, a run lets that call fail. What has to
//! hold then is in `run.rs` (while the script goes on) and `endings.rs` (afterwards). Runs are a matter of the numbers
//! alone: the same one does the same again, but for what the eviction thread does meanwhile, which has little to do in
//! stores that fit into memory.
//!
//! ```text
//! cargo test -p hedgerow --test engine fault_sweep:: -- --nocapture               a sample of all scripts and kinds
//! HEDGEROW_EFFORT=2 cargo test --release -p hedgerow --test engine fault_sweep::  every call; HEDGEROW_PART=2/8 an eighth of it
//! HEDGEROW_ONLY="splits write-enospc 17 sticky log" cargo test ...       one run, as a failure names it
//! ```
//!
//! `HEDGEROW_SEED` sets which calls the sample has, and which lengths two of the scripts. A failure does not end the sweep: the names of the first ones are
//! its last lines. A run that takes minutes ends the process, and says which it was.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test that watches itself by a real thread"
)]

mod endings;
mod kinds;
mod modify;
mod run;
mod scripts;
mod state;
mod steps;

use crate::common::{Dice, effort, is_thorough, part, seed};
use hedgerow_testing::count;
use hedgerow_testing::environment::variable;
use kinds::{Case, KINDS};
use run::{Beginning, Run};
use scripts::{SCRIPTS, Script, Start};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Runs of a sample, with a log or without.
const SAMPLE: u64 = 2000;
/// After so many failures a sweep ends.
const MOST_FAILURES: usize = 25;
/// A run takes milliseconds; what waits for room that never comes gives up within a minute.
const LONGEST_RUN: Duration = Duration::from_secs(150);

/// The stores that scripts begin with.
struct Beginnings([(Start, Beginning); 4]);

impl Beginnings {
    fn make(log: bool, seed: u64) -> Beginnings {
        let starts = [Start::Closed, Start::Staged, Start::Crashed, Start::Nothing];
        Beginnings(starts.map(|start| (start, Beginning::make(start, log, seed))))
    }

    fn of(&self, script: &Script) -> &Beginning {
        let found = self.0.iter().find(|(start, _)| *start == script.start);
        &found.expect("all of them were made").1
    }
}

/// Ends the process if a run does not end.
struct Watch {
    run: Arc<Mutex<(Instant, String)>>,
    is_over: Arc<AtomicBool>,
}

impl Watch {
    fn begin() -> Watch {
        let run = Arc::new(Mutex::new((Instant::now(), String::from("no run yet"))));
        let is_over = Arc::new(AtomicBool::new(false));
        let watch = Watch { run: run.clone(), is_over: is_over.clone() };
        thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(200));
                let (since, name) = run.lock().unwrap().clone();
                if since.elapsed() > LONGEST_RUN {
                    eprintln!("a run does not end: HEDGEROW_ONLY={name:?}");
                    std::process::abort();
                }
            }
        });
        watch
    }

    fn next(&self, name: String) {
        *self.run.lock().unwrap() = (Instant::now(), name);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// How many calls of each kind a script makes, by a run in which none fails.
fn count_calls(script: &'static Script, log: bool, beginnings: &Beginnings) -> Vec<u64> {
    let case = Case { script, kind: &KINDS[0], k: 0, sticky: false, log };
    // Each counts on its own, and none comes to its end.
    let counters: Vec<_> = KINDS.iter().map(|kind| kind.fault(u64::MAX, true)).collect();
    let mut run = Run::begin(case, beginnings.of(script), &counters, true);
    run.play();
    let counted = run.disk.take_faults().iter().map(|left| u64::MAX - left.after).collect();
    assert_eq!(run.finish(), 0, "{case}: nothing was to fail");
    counted
}

/// The runs to be done: all, or a sample that has some of every script and kind.
fn plan(log: bool, beginnings: &Beginnings, dice: &mut Dice) -> Vec<Case> {
    let mut groups: Vec<(Case, u64)> = Vec::new();
    for script in &SCRIPTS {
        for (kind, calls) in KINDS.iter().zip(count_calls(script, log, beginnings)) {
            if script.only.is_some_and(|only| only != kind.name) {
                continue;
            }
            for sticky in [false, true] {
                groups.push((Case { script, kind, k: 0, sticky, log }, calls));
            }
        }
    }
    let all: u64 = groups.iter().map(|(_, calls)| calls).sum();
    let most = if is_thorough() { SAMPLE } else { SAMPLE / 4 };
    let every = if effort() > 1 { 1 } else { all.div_ceil(most).max(1) };
    println!("{all} calls may fail, one of {every} does");
    let mut cases = Vec::new();
    for (case, calls) in groups {
        let mut from = 0;
        while from < calls {
            let to = calls.min(from + every);
            cases.push(Case { k: from + dice.below(to - from), ..case });
            from = to;
        }
    }
    cases
}

/// The only run that is asked for.
fn only() -> Option<Case> {
    variable("HEDGEROW_ONLY", "a run such as `splits write-enospc 17 sticky log`", Case::parse)
}

/// What became of the runs of one kind.
#[derive(Clone, Copy, Default)]
struct Sum {
    runs: u64,
    /// Runs in which no call failed, because there were fewer this time.
    missed: u64,
    /// Calls that failed.
    hits: u64,
}

fn sweep(log: bool) {
    let seed = seed(31);
    let mut dice = Dice(seed);
    let beginnings = Beginnings::make(log, seed);
    let cases = match only() {
        Some(case) if case.log == log => vec![case],
        Some(case) => return println!("{case} is a run of the other test"),
        None => plan(log, &beginnings, &mut dice),
    };
    // Of one run there are no parts.
    let (part, parts) = if only().is_some() { (0, 1) } else { part() };
    let watch = Watch::begin();
    let mut sums = vec![Sum::default(); KINDS.len()];
    let mut failures: Vec<String> = Vec::new();
    let mut longest = (Duration::ZERO, String::new());
    for case in cases.iter().skip(part).step_by(parts) {
        if failures.len() == MOST_FAILURES {
            break;
        }
        watch.next(case.to_string());
        let since = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut run = Run::begin(*case, beginnings.of(case.script), &[case.fault()], false);
            run.play();
            run.finish()
        }));
        if since.elapsed() > longest.0 {
            longest = (since.elapsed(), case.to_string());
        }
        let at = KINDS.iter().position(|kind| kind.name == case.kind.name);
        let sum = &mut sums[at.expect("it is one of them")];
        sum.runs += 1;
        match outcome {
            Ok(hits) => {
                sum.hits += hits;
                sum.missed += u64::from(hits == 0);
            }
            Err(_) => failures.push(case.to_string()),
        }
    }
    drop(watch);
    for (kind, sum) in KINDS.iter().zip(&sums) {
        let Sum { runs, missed, hits } = sum;
        println!("{:18} {runs:6} runs, {hits:7} calls failed, {missed} runs missed", kind.name);
    }
    println!("the longest took {:?}: {}", longest.0, longest.1);
    for name in &failures {
        println!("HEDGEROW_ONLY={name:?}");
    }
    assert!(failures.is_empty(), "{} runs failed", failures.len());
    for (kind, sum) in KINDS.iter().zip(&sums) {
        assert!(sum.hits >= sum.runs, "{}: {} of {} runs", kind.name, sum.hits, sum.runs);
    }
    let runs: u64 = sums.iter().map(|sum| sum.runs).sum();
    assert!(runs > 0, "part {} of {parts} has no runs", part + 1);
    let missed: u64 = sums.iter().map(|sum| sum.missed).sum();
    assert!(missed * 50 <= runs, "{missed} of {runs} runs met no failure: counts are off");
    count(runs - missed, "faulty runs");
    let is_whole = parts == 1 && only().is_none();
    for (kind, sum) in KINDS.iter().zip(&sums) {
        assert!(!is_whole || sum.runs > 0, "{}: no script makes such a call", kind.name);
    }
}

#[test]
fn every_call_fails_under_a_store_with_a_log() {
    sweep(true);
}

#[test]
fn every_call_fails_under_a_store_without_a_log() {
    sweep(false);
}
