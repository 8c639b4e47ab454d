//! `cargo xtask seeded-bugs`: seeds one bug after the other, and shows which test notices it, and how soon.
//!
//! One build a kind of suite ([`bugs::Build`]) has all bugs; the environment says which one is there. Each test runs by
//! itself: first without a bug, when it has to pass, then with each that it is said to notice, when it has to fail, by a
//! panic or because it never ends. Processor time is that of the test's process; half as many again run at a time as there are
//! processors. Starts cargo; one caller at a time.

mod bugs;
mod build;
mod commits;
mod contention;
mod edits;
mod holes;
mod htm;
mod latches;
mod long_keys;
mod merging;
mod modify;
mod names;
mod pool;
mod protocols;
mod replay;
mod room;
mod snapshots;
mod values;

use crate::process::{self, Ended};
use bugs::{Bug, Build, Seeded, Suite};
use build::{Program, Programs, build_all, copy_of};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the task is told.
pub const USAGE: &str = "\
usage: cargo xtask seeded-bugs [--only B07,P12] [--share K/N] [--list] [--build] [--seconds N] [--out FILE.jsonl]

  --only IDS     these alone
  --share K/N    the K-th of N parts of them, in each of which few programs have to be built
  --list         print the list, and run nothing
  --build        build models and schedules, of which each share runs some, and run nothing; with --share
                 all that this share runs
  --seconds N    how long a test may take with a bug before it counts as hung, if it takes less than a third
                 of that without one [default: 60]
  --out FILE     append what was found, a line of JSON each";

/// What a test, or a program of tests, may take without a bug.
const SOUND_LIMIT: Duration = Duration::from_secs(1800);
/// Models that are run whole, as they are, whatever is seeded: nobody else runs them.
const MODELS: &[Program] = &[
    (Build::Loom, "hedgerow", "loom"),
    (Build::Loom, "hedgerow-sync", "loom"),
    (Build::Loom, "hedgerow-htm-index", "loom"),
    (Build::Loom, "hedgerow-htm-index", "loom_eunomia"),
    (Build::Shuttle, "hedgerow-sync", "shuttle"),
];
/// Random tests, and schedules, are tried with these until one notices: others have new ones each time, and what one of them in
/// twenty misses is noticed soon.
const SEEDS: [&str; 4] = ["1", "2", "3", "4"];
/// Schedules of a model with a bug, and without one: those the proof runs far more often.
const ITERATIONS: [&str; 2] = ["200", "50"];
/// The engine under shuttle, which the proof runs far more often.
const ENGINE: Program = (Build::Shuttle, "hedgerow", "shuttle");

struct Arguments {
    only: Option<BTreeSet<String>>,
    share: (usize, usize),
    list: bool,
    build: bool,
    limit: Duration,
    /// Involuntary switches in an execution of a model that is run whole, if fewer than it asks for.
    preemptions: Option<u64>,
    out: Option<PathBuf>,
}

impl Default for Arguments {
    fn default() -> Arguments {
        let limit = Duration::from_secs(60);
        let (only, preemptions, out) = (None, None, None);
        let (list, build) = (false, false);
        Arguments { only, share: (0, 1), list, build, limit, preemptions, out }
    }
}

impl Arguments {
    /// Those that are asked for by name, or all.
    fn bugs(&self) -> impl Iterator<Item = &'static Bug> {
        everything().filter(|bug| self.only.as_ref().is_none_or(|only| only.contains(bug.id)))
    }

    /// Of these the share that is asked for: each is a part of all in the order of the programs that notice them, and two programs
    /// of the engine's tests are half of what a share costs.
    fn chosen(&self) -> Vec<Case> {
        // Two of the classes of bugs are lines of the latch as well.
        let mut seen = BTreeSet::new();
        let new = |case: &Case| seen.insert((case.name, *case.suite));
        let mut cases: Vec<Case> = self.bugs().flat_map(cases_of).filter(new).collect();
        cases.sort_by_key(|case| case.suite.program());
        let (which, of) = self.share;
        let begin = |part: usize| cases.len() * part / of;
        cases[begin(which)..begin(which + 1)].to_vec()
    }
}

/// A bug that is seeded, by its name, with a test that is said to notice it.
#[derive(Clone, Copy)]
struct Case {
    bug: &'static Bug,
    name: &'static str,
    suite: &'static Suite,
}

fn cases_of(bug: &'static Bug) -> Vec<Case> {
    match &bug.seeded {
        Seeded::As(name, suites) => suites.iter().map(|suite| Case { bug, name, suite }).collect(),
        Seeded::Not(_) => Vec::new(),
    }
}

/// The lists, and the letter that the numbers of each begin with.
const LISTS: &[(char, &[Bug])] = &[
    ('B', bugs::BUGS),
    ('P', protocols::LINES),
    ('H', holes::LINES),
    ('N', names::LINES),
    ('R', replay::LINES),
    ('F', pool::LINES),
    ('A', room::LINES),
    ('V', values::LINES),
    ('M', merging::LINES),
    ('L', latches::LINES),
    ('C', contention::LINES),
    ('K', commits::LINES),
    ('T', htm::LINES),
    ('S', snapshots::LINES),
    ('G', long_keys::LINES),
    ('U', modify::LINES),
];

fn everything() -> impl Iterator<Item = &'static Bug> {
    LISTS.iter().flat_map(|(_, bugs)| *bugs)
}

/// The names of all that are seeded.
fn names() -> impl Iterator<Item = &'static str> {
    everything().filter_map(|bug| match bug.seeded {
        Seeded::As(name, _) => Some(name),
        Seeded::Not(_) => None,
    })
}

/// How a test ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Passed,
    Panicked,
    Killed,
    Hung,
    /// It is not there, or ended in another way.
    DidNotRun,
}

impl Outcome {
    fn is_noticed(self) -> bool {
        matches!(self, Outcome::Panicked | Outcome::Killed | Outcome::Hung)
    }

    fn name(self) -> &'static str {
        match self {
            Outcome::Passed => "NOT noticed",
            Outcome::Panicked => "noticed",
            Outcome::Killed => "noticed, by a signal",
            Outcome::Hung => "noticed, it never ended",
            Outcome::DidNotRun => "DID NOT RUN",
        }
    }
}

/// What a run of a test was like.
struct Run {
    outcome: Outcome,
    cpu_seconds: f64,
    said: String,
}

/// What came of all bugs and their tests: a bug counts once for each test that is said to notice it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tally {
    /// Those that were seeded.
    pub seeded: usize,
    /// Of these, those that were not noticed.
    pub missed: usize,
}

/// Programs of the engine's tests under shuttle, which have all seeded bugs, and none that is chosen.
///
/// Errors: in words.
pub fn shuttle_programs(
    root: &Path,
    targets: BTreeSet<&'static str>,
) -> Result<BTreeMap<&'static str, PathBuf>, String> {
    let wanted = targets.into_iter().map(|target| (Build::Shuttle, "hedgerow", target)).collect();
    let programs = build_all(root, &wanted)?;
    Ok(programs.into_iter().map(|((_, _, target), path)| (target, path)).collect())
}

/// How many there are to be noticed in the part of number `share.0`, from 0, of `share.1`.
pub fn expected(share: (usize, usize)) -> usize {
    Arguments { share, ..Arguments::default() }.chosen().len()
}

/// Seeds the bugs of a share one after the other. Models that are run whole have at most so many preemptions in an execution,
/// if they are given.
///
/// Errors: in words, if a program does not build, or a test fails without a bug.
pub fn prove(
    root: &Path,
    share: (usize, usize),
    preemptions: Option<u64>,
) -> Result<Tally, String> {
    let arguments = Arguments { share, preemptions, ..Arguments::default() };
    seed_all(root, &arguments.chosen(), &arguments, MODELS)
}

/// Runs the task; 0 if each bug was noticed by each of its tests, 1 if not, 2 for wrong arguments.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(words) => {
            eprintln!("seeded-bugs: {words}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if arguments.list {
        list(&arguments);
        return ExitCode::SUCCESS;
    }
    let models = || MODELS.iter().copied().chain([ENGINE]);
    if arguments.build {
        let mut programs: BTreeSet<Program> = models().collect();
        if arguments.share.1 > 1 {
            programs.extend(arguments.chosen().iter().map(|bug| bug.suite.program()));
        }
        return match build_all(root, &programs) {
            Ok(_) => ExitCode::SUCCESS,
            Err(words) => failure(&words),
        };
    }
    let models = match arguments.only {
        Some(_) => Vec::new(),
        None => models().collect(),
    };
    match seed_all(root, &arguments.chosen(), &arguments, &models) {
        Ok(Tally { missed: 0, .. }) => ExitCode::SUCCESS,
        Ok(Tally { missed, .. }) => failure(&format!("{missed} were not noticed")),
        Err(words) => failure(&words),
    }
}

fn failure(words: &str) -> ExitCode {
    eprintln!("seeded-bugs: {words}");
    ExitCode::FAILURE
}

/// Errors: what is wrong with them.
fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--list" => parsed.list = true,
            "--build" => parsed.build = true,
            "--only" => {
                let ids: BTreeSet<String> = value()?.split(',').map(str::to_owned).collect();
                if let Some(id) = ids.iter().find(|id| everything().all(|bug| bug.id != **id)) {
                    return Err(format!("no bug `{id}`"));
                }
                parsed.only = Some(ids);
            }
            "--share" => {
                let text = value()?;
                parsed.share = share_of(text).ok_or_else(|| format!("no share `{text}`"))?;
            }
            "--seconds" => {
                let text = value()?;
                let seconds = text.parse().map_err(|_| format!("no number `{text}`"))?;
                parsed.limit = Duration::from_secs(seconds);
            }
            "--out" => parsed.out = Some(value()?.into()),
            _ => return Err(format!("no option `{argument}`")),
        }
    }
    Ok(parsed)
}

/// What `K/N` stands for: a number from 0, and of how many.
fn share_of(text: &str) -> Option<(usize, usize)> {
    let (which, of) = text.split_once('/')?;
    let (which, of): (usize, usize) = (which.parse().ok()?, of.parse().ok()?);
    (1..=of).contains(&which).then(|| (which - 1, of))
}

fn list(arguments: &Arguments) {
    let chosen = arguments.chosen();
    for bug in arguments.bugs() {
        let mine: Vec<&Case> = chosen.iter().filter(|case| case.bug.id == bug.id).collect();
        match bug.seeded {
            Seeded::As(..) if mine.is_empty() => continue,
            _ => println!("{} {}", bug.id, bug.what),
        }
        for Case { name, suite, .. } in mine {
            println!("    {name}: {}", show(suite));
        }
        if let Seeded::Not(reason) = bug.seeded {
            println!("    not seeded: {reason}");
        }
    }
}

fn show(suite: &Suite) -> String {
    format!("{} {} {}::{}", suite.build.name(), suite.package, suite.target, suite.test)
}

/// Runs these models whole, and what is to notice the bugs without one, and then seeds one after the other.
fn seed_all(
    root: &Path,
    cases: &[Case],
    arguments: &Arguments,
    models: &[Program],
) -> Result<Tally, String> {
    let suites: BTreeSet<Suite> = cases.iter().map(|case| *case.suite).collect();
    let mut wanted: BTreeSet<Program> = suites.iter().map(Suite::program).collect();
    wanted.extend(models);
    let programs = build_all(root, &wanted)?;
    let took = run_without(root, &programs, &suites, models, arguments.preemptions)?;
    let out = match &arguments.out {
        Some(path) => Some(Mutex::new(
            fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?,
        )),
        None => None,
    };
    let runs = process::each_in_parallel(cases, |&Case { bug, name, suite }, worker| {
        let program = &programs[&suite.program()];
        let limit = arguments.limit.max(3 * took[&suite.program()]);
        let (test, preemptions) = (Some(suite.test), None);
        let run = TestRun { root, program, suite, test, limit, preemptions, worker };
        let found = run.with_seeds(name)?;
        let (how, seconds) = (found.outcome.name(), found.cpu_seconds);
        println!("{} {name}: {how} by {} ({seconds:.1} s)", bug.id, show(suite));
        if let Some(out) = &out {
            let line = format!(
                "{{\"bug\":\"{}\",\"what\":\"{}\",\"name\":\"{name}\",\"suite\":\"{}\",\"outcome\":\"{how}\",\"cpu_seconds\":{seconds:.2}}}\n",
                bug.id,
                bug.what,
                show(suite)
            );
            let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
            out.write_all(line.as_bytes()).map_err(|error| format!("cannot write: {error}"))?;
        }
        Ok(found)
    })?;
    let missed = runs.iter().filter(|run| !run.outcome.is_noticed()).count();
    let longest = runs.iter().map(|run| run.cpu_seconds).fold(0.0, f64::max);
    println!("{} seeded, {missed} not noticed; the longest took {longest:.1} s", cases.len());
    Ok(Tally { seeded: cases.len(), missed })
}

/// Runs everything without a bug: models whole, of other programs the tests alone that are wanted.
///
/// Returns how long the longest of each program took. Errors: in words, if one does not pass.
fn run_without(
    root: &Path,
    programs: &Programs,
    suites: &BTreeSet<Suite>,
    models: &[Program],
    preemptions: Option<u64>,
) -> Result<BTreeMap<Program, Duration>, String> {
    let whole = models
        .iter()
        .map(|&(build, package, target)| (Suite { build, package, target, test: "*" }, None));
    let ran: BTreeSet<Program> = models.iter().copied().collect();
    let single = suites.iter().filter(|suite| !ran.contains(&suite.program()));
    let all: Vec<(Suite, Option<&str>)> =
        whole.chain(single.map(|suite| (*suite, Some(suite.test)))).collect();
    let seconds = process::each_in_parallel(&all, |(suite, test), worker| {
        let (program, begun) = (&programs[&suite.program()], Instant::now());
        let (test, limit, is_whole) = (*test, SOUND_LIMIT, test.is_none());
        let preemptions = preemptions.filter(|_| is_whole);
        let run = TestRun { root, program, suite, test, limit, preemptions, worker };
        let sound = run.with(None, SEEDS[0])?;
        if sound.outcome != Outcome::Passed {
            let (how, said) = (sound.outcome, sound.said);
            return Err(format!("without a bug: {} {how:?}\n{said}", show(suite)));
        }
        println!("sound: {} ({:.1} s)", show(suite), sound.cpu_seconds);
        Ok(begun.elapsed())
    })?;
    let mut took = BTreeMap::new();
    for ((suite, _), seconds) in all.iter().zip(seconds) {
        let longest = took.entry(suite.program()).or_insert(seconds);
        *longest = seconds.max(*longest);
    }
    Ok(took)
}

/// A test, or all of a program, that is run in a process of its own.
struct TestRun<'a> {
    root: &'a Path,
    program: &'a Path,
    suite: &'a Suite,
    test: Option<&'a str>,
    limit: Duration,
    /// See [`Arguments`].
    preemptions: Option<u64>,
    /// What runs at the same time has another number.
    worker: usize,
}

impl TestRun<'_> {
    /// Runs it with a bug, and again with other seeds while it does not notice.
    fn with_seeds(&self, bug: &str) -> Result<Run, String> {
        let mut run = self.with(Some(bug), SEEDS[0])?;
        for seed in &SEEDS[1..] {
            // A model that is run whole has no dice.
            if run.outcome != Outcome::Passed || self.suite.build == Build::Loom {
                break;
            }
            let before = run.cpu_seconds;
            run = self.with(Some(bug), seed)?;
            run.cpu_seconds += before;
        }
        Ok(run)
    }

    /// Runs it with a bug, or without.
    fn with(&self, bug: Option<&str>, seed: &str) -> Result<Run, String> {
        let TestRun { root, program, suite, test, limit, preemptions, worker } = *self;
        let directory = match suite.package {
            "hedgerow" => "hedgerow",
            // Folders have no prefix.
            package => package.trim_start_matches("hedgerow-"),
        };
        let mut command = Command::new(program);
        command
            .args(test.map(|test| ["--exact", test]).into_iter().flatten())
            .current_dir(copy_of(root).join("crates").join(directory))
            .env("HEDGEROW_TESTS", "all")
            .env("HEDGEROW_SEEDED_BUG", bug.unwrap_or_default())
            .env("HEDGEROW_SHUTTLE_ITERATIONS", ITERATIONS[usize::from(bug.is_none())]);
        command.env_remove("HEDGEROW_PREEMPTIONS");
        if let Some(preemptions) = preemptions {
            command.env("HEDGEROW_PREEMPTIONS", preemptions.to_string());
        }
        command.env("HEDGEROW_SEED", seed);
        let log = program.with_extension(format!("{worker}.said"));
        let Ended { status, said, cpu_seconds } = process::run(&mut command, &log, limit)?;
        let outcome = match status {
            None => Outcome::Hung,
            Some(status) if status.success() => match (passed(&said), test) {
                (1, _) | (2.., None) => Outcome::Passed,
                _ => Outcome::DidNotRun,
            },
            Some(_) if said.contains("panicked at") => Outcome::Panicked,
            Some(status) if status.code().is_none() => Outcome::Killed,
            Some(_) => Outcome::DidNotRun,
        };
        Ok(Run { outcome, cpu_seconds, said })
    }
}

/// How many tests have passed, by what the harness of a program says last: there may be none of that name, or none at all
/// in a build without what they are under.
fn passed(said: &str) -> u64 {
    let last = said.rsplit_once("test result: ok. ");
    let number = last.and_then(|(_, rest)| rest.split_once(" passed;")?.0.parse().ok());
    number.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bugs_are_numbered_without_a_gap_and_each_is_seeded_or_has_a_reason() {
        for (letter, bugs) in LISTS {
            for (number, bug) in bugs.iter().enumerate() {
                assert_eq!(bug.id, format!("{letter}{:02}", number + 1));
                match bug.seeded {
                    Seeded::As(name, suites) => assert!(!name.is_empty() && !suites.is_empty()),
                    Seeded::Not(reason) => assert!(!reason.is_empty()),
                }
            }
        }
        let seeded = bugs::BUGS.iter().filter(|bug| !matches!(bug.seeded, Seeded::Not(_)));
        assert!(seeded.count() >= 36);
    }

    #[test]
    fn whatever_has_lines_is_seeded_by_somebody_and_the_other_way_round() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        edits::Edits::read(root).unwrap().check_names(&names().collect()).unwrap();
        // They are told to the copy in one word.
        assert!(names().all(|name| !name.is_empty() && !name.contains(',')));
    }

    #[test]
    fn a_program_in_which_no_test_has_passed_has_not_run() {
        let said = |tests: u64, passed: u64| {
            format!(
                "\nrunning {tests} tests\n\ntest result: ok. {passed} passed; 0 failed; 0 ignored;"
            )
        };
        assert_eq!(passed(&said(0, 0)), 0);
        assert_eq!(passed(&said(1, 0)), 0, "it is ignored");
        assert_eq!(passed(&said(12, 12)), 12);
        assert_eq!(passed(""), 0);
    }

    #[test]
    fn shares_of_the_bugs_have_all_cases() {
        let all = expected((0, 1));
        assert!(all > bugs::BUGS.len());
        let shares: usize = (0..4).map(|share| expected((share, 4))).sum();
        assert_eq!(shares, all);
    }

    #[test]
    fn arguments_are_understood_or_refused() {
        let parse =
            |text: &str| parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let parsed = parse("--only B01,P31 --seconds 7 --out f").unwrap();
        let ids: BTreeSet<&str> = parsed.chosen().iter().map(|case| case.bug.id).collect();
        assert_eq!(ids, BTreeSet::from(["B01", "P31"]));
        assert_eq!(parsed.limit, Duration::from_secs(7));
        assert!(parse("").is_ok_and(|parsed| parsed.only.is_none() && !parsed.list));
        assert!(parse("--build").is_ok_and(|parsed| parsed.build));
        let cases = |line: &str| -> Vec<(&str, Suite)> {
            let chosen = parse(line).unwrap().chosen();
            chosen.iter().map(|case| (case.bug.id, *case.suite)).collect()
        };
        let shares = (1..=8).map(|which| cases(&format!("--share {which}/8")));
        assert_eq!(shares.flatten().collect::<BTreeSet<_>>(), cases("").into_iter().collect());
        let programs = |which| {
            let share = cases(&format!("--share {which}/8"));
            share.iter().map(|(_, suite)| suite.program()).collect::<BTreeSet<_>>().len()
        };
        assert!((1..=8).all(|which| programs(which) <= 4));
        for (line, words) in [
            ("--only B46,B01", "no bug `B46`"),
            ("--seconds", "--seconds needs a value"),
            ("--seconds few", "no number `few`"),
            ("--share 0/4", "no share `0/4`"),
            ("--share 5/4", "no share `5/4`"),
            ("--moons", "no option `--moons`"),
        ] {
            assert_eq!(parse(line).map(drop), Err(words.to_owned()), "{line}");
        }
    }
}
