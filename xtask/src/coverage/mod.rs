//! `cargo xtask coverage`: which branches of the engine the tests take.
//!
//! `cargo llvm-cov` runs the tests and says what was taken; here that is summed by part of the engine, without what is there for
//! tests alone, and held against what is asked for. What only models and schedules reach (`--cfg loom`, `--cfg shuttle`) and what processes
//! have done that were killed is not in it: the figures are too low, never too high. Starts cargo; one at a time.

mod lcov;

use crate::parts::{PARTS, Part};
use crate::test_programs;
use lcov::{File, Tally};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What the task is told.
pub const USAGE: &str = "\
usage: cargo xtask coverage [--lcov FILE] [--files N] [--missed PATH]

  --lcov FILE    look at this record instead of running the tests
  --files N      name so many files with the most branches that nothing takes [default: 15]
  --missed PATH  print the lines of a file that have such branches, and run nothing else

exit codes: 0 every part has as much as is asked for, 1 one has less, 2 wrong arguments, 3 cargo llvm-cov is not there";

const CANNOT: u8 = 3;

const ENGINE: Part = Part { name: "engine", paths: &["crates/hedgerow/src/", "crates/sync/src/"] };

/// Of a hundred branches of the whole engine, how many the tests are to take.
const ENGINE_PERCENT: f64 = 90.0;
/// The same, of each part.
const PART_PERCENT: f64 = 97.0;

struct Arguments {
    lcov: Option<PathBuf>,
    files: usize,
    missed: Option<String>,
}

/// Runs the task. The exit codes are those of [`USAGE`].
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(words) => {
            eprintln!("coverage: {words}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let record = match &arguments.lcov {
        Some(path) => path.clone(),
        None => match measure(root) {
            Ok(path) => path,
            Err(Failure { words, code }) => {
                eprintln!("coverage: {words}");
                return ExitCode::from(code);
            }
        },
    };
    match show(root, &record, &arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(words) => {
            eprintln!("coverage: {words}");
            ExitCode::FAILURE
        }
    }
}

/// Errors: what is wrong with them.
fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments { lcov: None, files: 15, missed: None };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--lcov" => parsed.lcov = Some(value()?.into()),
            "--missed" => parsed.missed = Some(value()?.clone()),
            "--files" => {
                let text = value()?;
                parsed.files = text.parse().map_err(|_| format!("no number `{text}`"))?;
            }
            _ => return Err(format!("no option `{argument}`")),
        }
    }
    Ok(parsed)
}

struct Failure {
    words: String,
    code: u8,
}

/// Runs the tests of the engine and of the tool, and tells where the record is.
fn measure(root: &Path) -> Result<PathBuf, Failure> {
    let fail = |words: String| Failure { words, code: 1 };
    let is_there = Command::new("cargo").args(["llvm-cov", "--version"]).output();
    if !is_there.is_ok_and(|output| output.status.success()) {
        let words = "cargo llvm-cov is not there: `cargo install --locked cargo-llvm-cov` and `rustup component add llvm-tools`";
        return Err(Failure { words: words.into(), code: CANNOT });
    }
    let place = test_programs::target_directory(root).join("coverage");
    fs::create_dir_all(&place)
        .map_err(|error| fail(format!("cannot create {}: {error}", place.display())))?;
    let record = place.join("lcov.info");
    let status = test_programs::plain_cargo(root)
        // A process that was killed may have left half a file of counters: that one is passed over.
        .args([
            "llvm-cov",
            "--branch",
            "--failure-mode",
            "all",
            "--locked",
            "--lcov",
            "--output-path",
        ])
        .arg(&record)
        .args(["-p", "hedgerow", "-p", "hedgerow-sync", "-p", "hedgerow-cli"])
        .env("CARGO_TARGET_DIR", &place)
        .env("HEDGEROW_TESTS", "all")
        // Branches are counted by a flag that is not stable yet.
        .env("RUSTC_BOOTSTRAP", "1")
        .status()
        .map_err(|error| fail(format!("cannot start cargo: {error}")))?;
    match status.success() {
        true => Ok(record),
        false => Err(fail(format!("the tests did not pass: {status}"))),
    }
}

/// Prints what a record says; whether every part has as much as is asked for.
///
/// Errors: the record cannot be read, or has nothing of a part.
fn show(root: &Path, record: &Path, arguments: &Arguments) -> Result<bool, String> {
    let text = fs::read_to_string(record)
        .map_err(|error| format!("cannot read {}: {error}", record.display()))?;
    let files = lcov::files(&text, root)?;
    if let Some(path) = &arguments.missed {
        let file = files.iter().find(|file| file.path == *path);
        let file = file.ok_or_else(|| format!("{} has nothing of {path}", record.display()))?;
        for line in file.missed_lines() {
            println!("{path}:{line}");
        }
        return Ok(true);
    }
    let parts = || {
        let engine = std::iter::once((&ENGINE, ENGINE_PERCENT));
        engine.chain(PARTS.iter().map(|part| (part, PART_PERCENT)))
    };
    if let Some((part, _)) = parts().find(|(part, _)| sum_of(part, &files).branches == 0) {
        return Err(format!("{} has no branches of the {}", record.display(), part.name));
    }
    println!("{:10} {:>9} {:>9} {:>7} {:>7}", "part", "branches", "taken", "percent", "asked");
    let mut is_enough = true;
    for (part, asked_percent) in parts() {
        let sum = sum_of(part, &files);
        is_enough &= sum.percent() >= asked_percent;
        println!(
            "{:10} {:>9} {:>9} {:>7.1} {:>7.1}",
            part.name,
            sum.branches,
            sum.taken,
            sum.percent(),
            asked_percent
        );
    }
    let mut engine: Vec<&File> = files.iter().filter(|file| ENGINE.has(&file.path)).collect();
    engine.sort_by_key(|file| std::cmp::Reverse(file.tally().missed()));
    for file in engine.iter().take(arguments.files) {
        let tally = file.tally();
        println!("{:>5} of {:>5} not taken: {}", tally.missed(), tally.branches, file.path);
    }
    Ok(is_enough)
}

fn sum_of(part: &Part, files: &[File]) -> Tally {
    let mut sum = Tally::default();
    for file in files.iter().filter(|file| part.has(&file.path)) {
        let tally = file.tally();
        sum.branches += tally.branches;
        sum.taken += tally.taken;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_understood_or_named() {
        let parse =
            |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let parsed = parse("--lcov a.info --files 3 --missed b.rs").unwrap();
        assert_eq!((parsed.lcov, parsed.files), (Some("a.info".into()), 3));
        assert_eq!(parsed.missed.as_deref(), Some("b.rs"));
        for (line, words) in [
            ("--lcov", "--lcov needs a value"),
            ("--files few", "no number `few`"),
            ("--moons", "no option `--moons`"),
        ] {
            assert_eq!(parse(line).map(drop), Err(words.to_owned()), "{line}");
        }
    }

    #[test]
    fn a_part_has_the_sum_of_its_files() {
        let text = "SF:/w/crates/hedgerow/src/wal/ring.rs\nBRDA:1,0,0,1\nBRDA:1,0,1,0\nend_of_record\n\
                    SF:/w/crates/hedgerow/src/wal/log.rs\nBRDA:4,0,0,7\nend_of_record\n\
                    SF:/w/crates/hedgerow/src/tree/mod.rs\nBRDA:4,0,0,-\nend_of_record\n";
        let files = lcov::files(text, Path::new("/w")).unwrap();
        let log = PARTS.iter().find(|part| part.name == "log").unwrap();
        assert_eq!(sum_of(log, &files), Tally { branches: 3, taken: 2 });
        assert_eq!(sum_of(&ENGINE, &files), Tally { branches: 4, taken: 2 });
    }
}
