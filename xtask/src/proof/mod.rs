//! `cargo xtask proof`: runs the suites of a row until as much was done as the row asks for, and says what it was.
//!
//! A row ([`rows`]) is a promise about how much is tried. Its suites say what they have done ([`counts`]), and are run in
//! processes of their own, several at a time ([`pool`], [`jobs`]); a row passes only if nothing failed and the sums are
//! there. Each run is a line of a record, of which the documentation's table is made ([`record`]). Rows run beside each other,
//! with so many processes at a time in all ([`turns`]), and `seeded-bugs`, which has an order of its own, after them. Starts
//! cargo, git, and what was built.

mod counts;
mod jobs;
mod pool;
mod record;
mod rows;
mod turns;

use crate::process;
use crate::seeded;
use counts::{Counts, Goal, refusal};
use jobs::{Programs, Setting};
use pool::Terms;
use record::{Outcome, Report};
pub use record::{escape, revision, today};
pub use rows::Share;
use rows::{ROWS, Row, Scale, grouped};
use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use turns::Turns;

/// What the task is told.
pub const USAGE: &str = "\
usage: cargo xtask proof [ROW...] [--scale ci|long] [--share K/N] [--seed N] [--seconds N] [--tested FILE]
                         [--out FILE.jsonl]
       cargo xtask proof [ROW...] --list
       cargo xtask proof --table [FILE.jsonl...]

  ROW            crash-states, enumeration, faults, lies, schedules, hostile, seeded-bugs, histories,
                 kills, power-cuts [default: all]
  --scale SCALE  how much is asked for [default: ci]
  --share K/N    the K-th of N parts, for as many machines: an N-th is asked for, with seeds of its own;
                 of suites that know parts, cases of its own, and a sample that other shares have as well
  --seed N       of all that is random [default: random; it is printed]
  --seconds N    how long a row may take before what is left of it is killed [default: 3600, in a long run 172800]
  --tested FILE  what `cargo test` has counted here in the file that HEDGEROW_COUNTED named: it is part of what is asked for,
                 and what would only do the same again is left out
  --out FILE     append what each row came to, a line of JSON [default: proof/record.jsonl in the target directory]
  --list         print rows and their suites, and run nothing
  --table        print the last results of these records as a table, and run nothing

exit codes: 0 all rows passed, 1 one failed or did too little, 2 wrong arguments, 3 none failed but one was skipped,
because this machine cannot run it";

/// How long a row may take, by scale.
const ROW_SECONDS: [u64; 2] = [60 * 60, 48 * 60 * 60];
/// And one of its processes, which counts as hung after that.
const PROCESS_SECONDS: [u64; 2] = [30 * 60, 12 * 60 * 60];
/// Seeds between the rounds of all shares: a suite may use up as many, one after the other.
const SEEDS_OF_A_ROUND: u64 = 1 << 20;
/// Of the seeded bugs, one in so many is tried in CI.
const SEEDED_SAMPLE: u64 = 16;
/// Involuntary switches in an execution of a model of loom, by scale: by itself up to three, which costs eight times as much.
const PREEMPTIONS: [Option<u64>; 2] = [Some(2), None];

const SKIPPED: u8 = 3;

/// What is to be done.
#[derive(Debug)]
struct Arguments {
    rows: Vec<&'static Row>,
    scale: Scale,
    share: Share,
    seed: Option<u64>,
    seconds: Option<u64>,
    /// What `cargo test` has counted.
    tested: Option<Counts>,
    out: Option<PathBuf>,
    is_list: bool,
    /// Records of which a table is to be printed.
    table: Option<Vec<PathBuf>>,
}

/// Runs the task. The exit codes are those of [`USAGE`].
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(words) => {
            eprintln!("proof: {words}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(files) = &arguments.table {
        return match record::table(files) {
            Ok(table) => {
                print!("{table}");
                ExitCode::SUCCESS
            }
            Err(words) => fail(&words),
        };
    }
    if arguments.is_list {
        list(&arguments);
        return ExitCode::SUCCESS;
    }
    match prove_all(root, &arguments) {
        Ok(reports) => {
            print!("{}", summary(&reports));
            exit_code(&reports)
        }
        Err(words) => fail(&words),
    }
}

fn fail(words: &str) -> ExitCode {
    eprintln!("proof: {words}");
    ExitCode::FAILURE
}

/// Errors: what is wrong with them.
fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments {
        rows: Vec::new(),
        scale: Scale::Ci,
        share: Share::ALL,
        seed: None,
        seconds: None,
        tested: None,
        out: None,
        is_list: false,
        table: None,
    };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--scale" => {
                let name = value()?;
                parsed.scale = Scale::of(name).ok_or_else(|| format!("no scale `{name}`"))?;
            }
            "--share" => {
                let text = value()?;
                parsed.share = Share::parse(text).ok_or_else(|| format!("no share `{text}`"))?;
            }
            "--seed" => parsed.seed = Some(number(value()?)?),
            "--seconds" => parsed.seconds = Some(number(value()?)?.max(1)),
            "--tested" => parsed.tested = Some(counts::of_file(Path::new(value()?))?),
            "--out" => parsed.out = Some(value()?.into()),
            "--list" => parsed.is_list = true,
            "--table" => parsed.table = Some(rest.by_ref().map(PathBuf::from).collect()),
            name => {
                let row = ROWS.iter().find(|row| row.name == name);
                let row = row.ok_or_else(|| format!("no row `{name}`"))?;
                if parsed.rows.iter().all(|other| other.name != name) {
                    parsed.rows.push(row);
                }
            }
        }
    }
    if parsed.rows.is_empty() {
        parsed.rows.extend(ROWS);
    }
    Ok(parsed)
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("no number `{text}`"))
}

fn list(arguments: &Arguments) {
    for row in &arguments.rows {
        println!("{}: {}", row.name, row.what);
        for goal in row.goals(arguments.scale, arguments.share) {
            if goal.asked > 0 {
                println!("    at least {} {}", grouped(goal.asked), goal.name);
            }
        }
        for suite in row.suites.iter().filter(|suite| suite.is_of(arguments.scale)) {
            println!("    {}", suite.show());
        }
    }
}

/// Runs all rows that this machine can run, and appends what each came to.
///
/// Errors: in words, if nothing could be run, or written.
fn prove_all(root: &Path, arguments: &Arguments) -> Result<Vec<Report>, String> {
    let seed = arguments.seed.unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let (scale, share) = (arguments.scale, arguments.share);
    println!("proof: seed {seed}, scale {}, share {}", scale.name(), share.show());
    let place = jobs::place(root);
    fs::create_dir_all(&place)
        .map_err(|error| format!("cannot create {}: {error}", place.display()))?;
    let able = arguments.rows.iter().copied().filter(|row| jobs::hindrance(row).is_none());
    let programs = jobs::build(root, &able.collect::<Vec<_>>(), scale)?;
    let revision = record::revision(root);
    let out = arguments.out.clone().unwrap_or_else(|| place.join("record.jsonl"));
    let turns = Turns::new(process::workers());
    let reports = Mutex::new(Vec::new());
    let prove = |rank: usize, row: &Row| -> Result<(), String> {
        let began = Instant::now();
        let (programs, tested, place) = (&programs, arguments.tested.as_ref(), place.as_path());
        let proving = Proving { root, programs, arguments, tested, seed, place };
        let proof = match jobs::hindrance(row) {
            Some(words) => Proof::of(row.goals(scale, share), Outcome::Skipped(words)),
            None => {
                println!("proof: {}", row.name);
                proving.row(row, &turns, rank)
            }
        };
        let Proof { goals, tested, counts, cpu_seconds, outcome } = proof;
        if let Some(reason) = outcome.reason() {
            eprintln!("proof: {} {}: {reason}", row.name, outcome.name().to_uppercase());
        }
        let (row, elapsed) = (row.name, began.elapsed());
        let report = Report {
            row,
            scale,
            share,
            seed,
            goals,
            tested,
            counts,
            cpu_seconds,
            elapsed,
            outcome,
        };
        // A record's lines are whole.
        let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        report.append(&out, &revision)?;
        reports.push((rank, report));
        Ok(())
    };
    let ranked = arguments.rows.iter().copied().enumerate();
    let (last, beside): (Vec<_>, Vec<_>) = ranked.partition(|(_, row)| row.suites.is_empty());
    process::each_on(beside.len(), &beside, |&(rank, row), _| prove(rank, row))?;
    for (rank, row) in last {
        prove(rank, row)?;
    }
    println!("proof: recorded in {}", out.display());
    let mut reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    reports.sort_by_key(|&(rank, _)| rank);
    Ok(reports.into_iter().map(|(_, report)| report).collect())
}

/// What came of a row.
struct Proof {
    /// What was asked for: of seeded bugs the list itself says how many there are.
    goals: Vec<Goal>,
    /// Of the counts, what `cargo test` had counted before.
    tested: Counts,
    counts: Counts,
    cpu_seconds: f64,
    outcome: Outcome,
}

impl Proof {
    /// Of a row of which nothing has run.
    fn of(goals: Vec<Goal>, outcome: Outcome) -> Proof {
        let (tested, counts) = Default::default();
        Proof { goals, tested, counts, cpu_seconds: 0.0, outcome }
    }
}

/// What all rows are run with.
struct Proving<'a> {
    root: &'a Path,
    programs: &'a Programs,
    arguments: &'a Arguments,
    tested: Option<&'a Counts>,
    seed: u64,
    place: &'a Path,
}

impl Proving<'_> {
    fn row(&self, row: &Row, turns: &Turns, rank: usize) -> Proof {
        let goals = row.goals(self.arguments.scale, self.arguments.share);
        match row.suites.is_empty() {
            true => self.seeded(goals),
            false => self.suites(row, goals, turns, rank),
        }
    }

    fn suites(&self, row: &Row, goals: Vec<Goal>, turns: &Turns, rank: usize) -> Proof {
        let Arguments { scale, share, .. } = *self.arguments;
        let programs = {
            // A compiler is a process as well.
            let _turn = turns.take(rank);
            self.programs.with_others_of(self.root, row, scale)
        };
        let jobs = programs.and_then(|programs| {
            let is_tested = self.tested.is_some();
            Setting { root: self.root, programs: &programs, scale, share, is_tested }
                .jobs(row, &goals)
        });
        let jobs = match jobs {
            Ok(jobs) => jobs,
            Err(words) => return Proof::of(goals, Outcome::Failed(words)),
        };
        let seconds = self.arguments.seconds.unwrap_or(scale.pick(ROW_SECONDS));
        let terms = Terms {
            workers: if row.is_alone { 1 } else { process::workers() },
            turns,
            rank,
            seed_of: &|round: u64| seed_of(self.seed, share, round),
            deadline: Instant::now() + Duration::from_secs(seconds),
            longest: Duration::from_secs(scale.pick(PROCESS_SECONDS)),
            place: self.place,
        };
        let wanted = |what: &str| goals.iter().any(|goal| goal.of.contains(&what));
        let tested = self.tested.map(|tested| tested.only(wanted)).unwrap_or_default();
        let done = pool::run(&jobs, &goals, &tested, &terms);
        let (counts, cpu_seconds) = (done.counts, done.cpu_seconds);
        if let (true, Some(words)) = (done.failures.is_empty(), done.hindrances.first()) {
            let outcome = Outcome::Skipped(words.clone());
            return Proof { goals, tested, counts, cpu_seconds, outcome };
        }
        let mut reasons = done.failures;
        if done.is_late {
            reasons.push(format!("its {seconds} s were up"));
        }
        reasons.extend(refusal(&goals, &counts));
        println!("proof: {}: {} processes", row.name, done.runs);
        Proof { goals, tested, counts, cpu_seconds, outcome: outcome_of(&reasons) }
    }

    /// The bugs of the list that are this share's turn; in CI, of everything a part that the seed chooses.
    fn seeded(&self, mut goals: Vec<Goal>) -> Proof {
        // Nothing runs beside it.
        let before = process::children_seconds();
        let share = match (self.arguments.scale, self.arguments.share) {
            (Scale::Ci, Share::ALL) => {
                ((self.seed % SEEDED_SAMPLE) as usize, SEEDED_SAMPLE as usize)
            }
            (_, share) => (share.index, share.of),
        };
        for goal in &mut goals {
            goal.asked = seeded::expected(share) as u64;
        }
        let mut counts = Counts::default();
        let mut reasons = Vec::new();
        match seeded::prove(self.root, share, self.arguments.scale.pick(PREEMPTIONS)) {
            Ok(tally) => counts.add("seeded bugs", (tally.seeded - tally.missed) as u64),
            Err(words) => reasons.push(words),
        }
        reasons.extend(refusal(&goals, &counts));
        if goals.iter().all(|goal| goal.asked == 0) {
            reasons.push("there is no bug in this share".to_owned());
        }
        let cpu_seconds = process::children_seconds() - before;
        let tested = Counts::default();
        Proof { goals, tested, counts, cpu_seconds, outcome: outcome_of(&reasons) }
    }
}

fn outcome_of(reasons: &[String]) -> Outcome {
    match reasons.is_empty() {
        true => Outcome::Passed,
        false => Outcome::Failed(reasons.join("\n")),
    }
}

/// The seed of a round of a share; the first one of everything is the seed itself.
fn seed_of(seed: u64, share: Share, round: u64) -> u64 {
    let number = round.wrapping_mul(share.of as u64).wrapping_add(share.index as u64);
    seed.wrapping_add(number.wrapping_mul(SEEDS_OF_A_ROUND))
}

/// A table of what came of all rows.
fn summary(reports: &[Report]) -> String {
    let head = ["row", "asked", "done", "of", "CPU s", "seed", "outcome"].map(str::to_owned);
    let mut lines = vec![head];
    for report in reports {
        let cpu_seconds = format!("{:.0}", report.cpu_seconds);
        let outcome = report.outcome.name().to_owned();
        for (at, goal) in report.goals.iter().enumerate() {
            let (asked, done) = (grouped(goal.asked), grouped(goal.done(&report.counts)));
            let of = goal.name.to_owned();
            // A row is named once, in the first of its lines.
            lines.push(match at {
                0 => {
                    let (row, seed) = (report.row.to_owned(), report.seed.to_string());
                    [row, asked, done, of, cpu_seconds.clone(), seed, outcome.clone()]
                }
                _ => {
                    let none = String::new();
                    [none.clone(), asked, done, of, none.clone(), none.clone(), none]
                }
            });
        }
    }
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let mut table = String::new();
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}"));
        table.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        table.push('\n');
    }
    table
}

fn exit_code(reports: &[Report]) -> ExitCode {
    ExitCode::from(code_of(reports))
}

fn code_of(reports: &[Report]) -> u8 {
    let is = |name: &str| reports.iter().any(|report| report.outcome.name() == name);
    match (is("failed"), is("skipped")) {
        (true, _) => 1,
        (false, true) => SKIPPED,
        (false, false) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Arguments, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    fn report(row: &'static str, done: u64, outcome: Outcome) -> Report {
        let mut counts = Counts::default();
        counts.add("histories", done);
        let goal = |asked: u64| Goal { name: "histories", of: &["histories"], asked };
        let (elapsed, cpu_seconds) = (Duration::from_secs(5), 9.6);
        let (scale, share, seed) = (Scale::Ci, Share::ALL, 7);
        let goals = vec![goal(50_000), goal(10)];
        let tested = Counts::default();
        Report { row, scale, share, seed, goals, tested, counts, cpu_seconds, elapsed, outcome }
    }

    #[test]
    fn arguments_are_understood() {
        let all = parsed("").unwrap();
        assert_eq!((all.rows.len(), all.scale, all.share), (ROWS.len(), Scale::Ci, Share::ALL));
        let line =
            "faults kills faults --scale long --share 2/4 --seed 9 --seconds 60 --out a.jsonl";
        let some = parsed(line).unwrap();
        let names: Vec<&str> = some.rows.iter().map(|row| row.name).collect();
        assert_eq!(names, ["faults", "kills"]);
        assert_eq!((some.scale, some.share), (Scale::Long, Share { index: 1, of: 4 }));
        assert_eq!((some.seed, some.seconds), (Some(9), Some(60)));
        assert_eq!((some.tested, some.out), (None, Some("a.jsonl".into())));
        let table = parsed("--table a.jsonl b.jsonl").unwrap().table.unwrap();
        assert_eq!(table, [PathBuf::from("a.jsonl"), PathBuf::from("b.jsonl")]);
        assert!(parsed("--list").unwrap().is_list);
    }

    #[test]
    fn wrong_arguments_are_named() {
        let words = parsed("--tested no-such-file").unwrap_err();
        assert!(words.starts_with("no-such-file: "), "{words}");
        for (line, words) in [
            ("moons", "no row `moons`"),
            ("--scale weekly", "no scale `weekly`"),
            ("--scale", "--scale needs a value"),
            ("--seed many", "no number `many`"),
            ("faults --seed", "--seed needs a value"),
            ("--share 5/4", "no share `5/4`"),
            ("--moons", "no row `--moons`"),
        ] {
            assert_eq!(parsed(line).map(drop), Err(words.to_owned()), "{line}");
        }
    }

    #[test]
    fn no_two_rounds_of_any_share_have_the_same_seed() {
        assert_eq!(seed_of(77, Share::ALL, 0), 77);
        let mut seeds = std::collections::BTreeSet::new();
        for index in 0..3 {
            for round in 0..50 {
                let seed = seed_of(u64::MAX - 5, Share { index, of: 3 }, round);
                assert!(seeds.insert(seed / SEEDS_OF_A_ROUND), "round {round} of share {index}");
            }
        }
    }

    #[test]
    fn what_failed_counts_more_than_what_was_skipped() {
        let passed = || report("histories", 50_000, Outcome::Passed);
        let failed = || report("histories", 50, Outcome::Failed("no".into()));
        let skipped = || report("kills", 0, Outcome::Skipped("no".into()));
        assert_eq!(code_of(&[passed()]), 0);
        assert_eq!(code_of(&[passed(), skipped()]), SKIPPED);
        assert_eq!(code_of(&[skipped(), failed(), passed()]), 1);
    }

    #[test]
    fn the_summary_names_each_row_once() {
        let table = summary(&[report("histories", 50_424, Outcome::Passed)]);
        let lines: Vec<Vec<&str>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["row", "asked", "done", "of", "CPU", "s", "seed", "outcome"]);
        let first = ["histories", "50,000", "50,424", "histories", "10", "7", "passed"];
        assert_eq!((lines.len(), lines[1].as_slice()), (3, first.as_slice()));
        assert_eq!(lines[2], ["10", "50,424", "histories"]);
    }
}
