//! `cargo xtask mutants`: how many small changes of what a defect in costs data the tests notice.
//!
//! `cargo mutants` makes them, one at a time, in a copy of the workspace, and runs the unit tests and those of the engine; here the
//! files are chosen, and what came of it is summed by part. A test that never ends has noticed it, too; what does not
//! build does not count. All of them take days: a share is every N-th, so that a share of a large N is a sample. Models and schedules are
//! not run, so what nothing but they notice counts as missed. Starts cargo; one at a time.

use crate::parts::{PARTS, Part};
use crate::proof::{Share, escape, revision, today};
use crate::test_programs;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const USAGE: &str = "\
usage: cargo xtask mutants [--share K/N] [--changed REVISION] [--part NAME] [--out FILE] [--seen DIR] [--list]

  --share K/N         every N-th of them, from the K-th on
  --changed REVISION  those alone that are in lines changed since then
  --part NAME         those of one part alone: format, log, map, recovery or latch
  --out FILE          append what was found, a line of JSON a part
  --seen DIR          look at what an earlier run has left there, and run nothing
  --list              print them, and run nothing

exit codes: 0 of every part nine in ten were noticed, 1 fewer, or there was none, or the tests fail without one, 2 wrong arguments,
3 cargo mutants is not there";

const CANNOT: u8 = 3;
/// Of a hundred mutants of a part, how many the tests are to notice.
const ASKED_PERCENT: f64 = 90.0;
/// With which `cargo mutants` ends when it has come to the end of its list.
const ENDED: [i32; 3] = [0, 2, 3];

#[derive(Default)]
struct Arguments {
    share: Option<Share>,
    changed: Option<String>,
    part: Option<&'static Part>,
    out: Option<PathBuf>,
    seen: Option<PathBuf>,
    is_list: bool,
}

/// Runs the task. The exit codes are those of [`USAGE`].
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(words) => {
            eprintln!("mutants: {words}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let is_there = Command::new("cargo").args(["mutants", "--version"]).output();
    if arguments.seen.is_none() && !is_there.is_ok_and(|output| output.status.success()) {
        eprintln!("mutants: cargo mutants is not there: `cargo install --locked cargo-mutants`");
        return ExitCode::from(CANNOT);
    }
    match find(root, &arguments) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(lists)) => match tell(root, &arguments, &lists) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(words) => fail(&words),
        },
        Err(words) => fail(&words),
    }
}

fn fail(words: &str) -> ExitCode {
    eprintln!("mutants: {words}");
    ExitCode::FAILURE
}

/// Errors: what is wrong with them.
fn parse(arguments: &[String]) -> Result<Arguments, String> {
    let mut parsed = Arguments::default();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--share" => {
                let text = value()?;
                let share = Share::parse(text).ok_or_else(|| format!("no share `{text}`"))?;
                parsed.share = Some(share);
            }
            "--changed" => parsed.changed = Some(value()?.clone()),
            "--part" => {
                let name = value()?;
                let part = PARTS.iter().find(|part| part.name == name);
                parsed.part = Some(part.ok_or_else(|| format!("no part `{name}`"))?);
            }
            "--out" => parsed.out = Some(value()?.into()),
            "--seen" => parsed.seen = Some(value()?.into()),
            "--list" => parsed.is_list = true,
            _ => return Err(format!("no option `{argument}`")),
        }
    }
    if parsed.seen.is_some() && parsed.out.is_some() {
        return Err(
            "--out is for a run of today and of this revision, which --seen may not be".into()
        );
    }
    Ok(parsed)
}

/// What `cargo mutants` says of the mutants of a run, a line each.
#[derive(Default)]
struct Lists {
    /// A test has failed.
    caught: Vec<String>,
    /// A test has not come to its end.
    hung: Vec<String>,
    /// Nothing has noticed them.
    missed: Vec<String>,
    /// They do not build.
    unviable: Vec<String>,
}

impl Lists {
    /// Those that a run has left in a directory.
    fn read(directory: &Path) -> Result<Lists, String> {
        let read = |name: &str| {
            let path = directory.join(name);
            let text = fs::read_to_string(&path)
                .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            Ok::<Vec<String>, String>(text.lines().map(str::to_owned).collect())
        };
        Ok(Lists {
            caught: read("caught.txt")?,
            hung: read("timeout.txt")?,
            missed: read("missed.txt")?,
            unviable: read("unviable.txt")?,
        })
    }
}

/// Makes the mutants, unless they are to be listed alone, or an earlier run is to be looked at.
fn find(root: &Path, arguments: &Arguments) -> Result<Option<Lists>, String> {
    if let Some(directory) = &arguments.seen {
        return Lists::read(directory).map(Some);
    }
    let place = test_programs::target_directory(root).join("mutants");
    fs::create_dir_all(&place)
        .map_err(|error| format!("cannot create {}: {error}", place.display()))?;
    let mut cargo = test_programs::plain_cargo(root);
    cargo
        .args(["mutants", "--no-shuffle", "--colors", "never", "--caught", "--output"])
        .arg(&place)
        // Each in a copy, which is built from its beginning once.
        .env_remove("CARGO_TARGET_DIR")
        .envs([("CARGO_INCREMENTAL", "1"), ("CARGO_PROFILE_TEST_DEBUG", "0")])
        .env("CARGO_PROFILE_DEV_DEBUG", "0");
    let parts = arguments.part.map_or(PARTS, std::slice::from_ref);
    for path in parts.iter().flat_map(|part| part.paths) {
        cargo.arg("--file").arg(glob(path));
    }
    // What only tests have; and words for people.
    cargo.args(["--exclude", "**/tests.rs", "--exclude", "**/tests/**", "--exclude-re", "fmt::"]);
    if let Some(share) = arguments.share {
        cargo.args(["--sharding", "round-robin", "--shard"]);
        cargo.arg(format!("{}/{}", share.index, share.of));
    }
    if let Some(since) = &arguments.changed {
        let diff = place.join("changed.diff");
        fs::write(&diff, changes(root, since)?)
            .map_err(|error| format!("cannot write {}: {error}", diff.display()))?;
        cargo.arg("--in-diff").arg(diff);
    }
    if arguments.is_list {
        cargo.arg("--list");
    } else {
        cargo.args(["--test-package", "hedgerow,hedgerow-sync", "--minimum-test-timeout", "120"]);
        cargo.args(["--", "--lib", "--test", "engine"]);
    }
    let status = cargo.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    if !status.code().is_some_and(|code| ENDED.contains(&code)) {
        return Err(format!("it has not come to its end: {status}"));
    }
    if arguments.is_list { Ok(None) } else { Lists::read(&place.join("mutants.out")).map(Some) }
}

/// What stands for all files of a part's path.
fn glob(path: &str) -> String {
    match path {
        _ if path.ends_with('/') => format!("{path}**"),
        _ if path.ends_with(".rs") => path.to_owned(),
        _ => format!("{path}*"),
    }
}

/// The lines that were changed since a revision.
fn changes(root: &Path, since: &str) -> Result<Vec<u8>, String> {
    let git = Command::new("git").arg("-C").arg(root).args(["diff", since, "--"]).output();
    let output = git.map_err(|error| format!("cannot start git: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
    }
}

/// The mutants of a part.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Sum<'l> {
    name: &'static str,
    caught: usize,
    hung: usize,
    unviable: usize,
    missed: Vec<&'l str>,
}

impl<'l> Sum<'l> {
    fn of(part: &Part, lists: &'l Lists) -> Sum<'l> {
        let count = |list: &[String]| list.iter().filter(|line| part.has(line)).count();
        Sum {
            name: part.name,
            caught: count(&lists.caught),
            hung: count(&lists.hung),
            unviable: count(&lists.unviable),
            missed: lists.missed.iter().map(|line| &**line).filter(|line| part.has(line)).collect(),
        }
    }

    fn viable(&self) -> usize {
        self.caught + self.hung + self.missed.len()
    }

    fn percent(&self) -> f64 {
        100.0 * (self.caught + self.hung) as f64 / self.viable() as f64
    }

    fn line(&self, date: &str, revision: &str, share: Share) -> String {
        let Sum { name, caught, hung, unviable, missed } = self;
        let missed: Vec<String> =
            missed.iter().map(|mutant| format!("\"{}\"", escape(mutant))).collect();
        format!(
            "{{\"date\":\"{date}\",\"revision\":\"{revision}\",\"share\":\"{}\",\"part\":\"{name}\",\
             \"caught\":{caught},\"hung\":{hung},\"unviable\":{unviable},\"missed\":[{}]}}",
            share.show(),
            missed.join(",")
        )
    }
}

/// Prints what came of it, and adds it to a record; whether of every part enough were noticed.
fn tell(root: &Path, arguments: &Arguments, lists: &Lists) -> Result<bool, String> {
    let sums: Vec<Sum<'_>> = PARTS.iter().map(|part| Sum::of(part, lists)).collect();
    if sums.iter().all(|sum| sum.viable() == 0) {
        return Err("there was no mutant to be noticed".into());
    }
    println!(
        "{:10} {:>7} {:>8} {:>8} {:>7} {:>6}",
        "part", "mutants", "noticed", "unviable", "percent", "asked"
    );
    let mut is_enough = true;
    for sum in sums.iter().filter(|sum| sum.viable() > 0) {
        is_enough &= sum.percent() >= ASKED_PERCENT;
        println!(
            "{:10} {:>7} {:>8} {:>8} {:>7.1} {ASKED_PERCENT:>6.1}",
            sum.name,
            sum.viable(),
            sum.caught + sum.hung,
            sum.unviable,
            sum.percent()
        );
    }
    for mutant in sums.iter().flat_map(|sum| &sum.missed) {
        println!("not noticed: {mutant}");
    }
    if let Some(path) = &arguments.out {
        let cannot = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(cannot)?;
        }
        let mut file =
            fs::OpenOptions::new().create(true).append(true).open(path).map_err(cannot)?;
        let (date, revision) = (today(), revision(root));
        let share = arguments.share.unwrap_or(Share::ALL);
        for sum in sums.iter().filter(|sum| sum.viable() > 0) {
            writeln!(file, "{}", sum.line(&date, &revision, share)).map_err(cannot)?;
        }
    }
    Ok(is_enough)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_understood_or_named() {
        let parse =
            |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let parsed = parse("--share 2/40 --part log --changed HEAD~3 --out a.jsonl").unwrap();
        assert_eq!(parsed.share, Some(Share { index: 1, of: 40 }));
        assert_eq!(parsed.part.map(|part| part.name), Some("log"));
        assert_eq!(parsed.changed.as_deref(), Some("HEAD~3"));
        for (line, words) in [
            ("--share", "--share needs a value"),
            ("--share 3/2", "no share `3/2`"),
            ("--part moon", "no part `moon`"),
            ("--moons", "no option `--moons`"),
            (
                "--seen a --out b",
                "--out is for a run of today and of this revision, which --seen may not be",
            ),
        ] {
            assert_eq!(parse(line).err().as_deref(), Some(words), "{line}");
        }
    }

    #[test]
    fn what_was_noticed_is_summed_by_part() {
        let lines = |of: &[&str]| of.iter().map(|&line| line.to_owned()).collect::<Vec<_>>();
        let lists = Lists {
            caught: lines(&["crates/hedgerow/src/wal/ring.rs:1:2: replace + with -"]),
            hung: lines(&["crates/hedgerow/src/wal/log.rs:1:2: replace f -> bool with true"]),
            missed: lines(&[
                "crates/hedgerow/src/wal/log.rs:9:2: replace name with \"xyzzy\"",
                "crates/hedgerow/src/space/map.rs:9:2: replace < with <=",
            ]),
            unviable: lines(&["crates/hedgerow/src/wal/log.rs:3:2: replace g with Default"]),
        };
        let log = PARTS.iter().find(|part| part.name == "log").unwrap();
        let sum = Sum::of(log, &lists);
        assert_eq!((sum.caught, sum.hung, sum.unviable, sum.missed.len()), (1, 1, 1, 1));
        assert_eq!((sum.viable(), sum.percent().round() as u64), (3, 67));
        let line = sum.line("2026-01-02", "abc", Share { index: 0, of: 4 });
        let missed =
            "\"missed\":[\"crates/hedgerow/src/wal/log.rs:9:2: replace name with \\\"xyzzy\\\"\"]}";
        assert!(
            line.starts_with("{\"date\":\"2026-01-02\",\"revision\":\"abc\",\"share\":\"1/4\"")
        );
        assert!(line.ends_with(missed), "{line}");
    }

    #[test]
    fn a_run_without_mutants_is_refused() {
        let told = tell(Path::new("."), &Arguments::default(), &Lists::default());
        assert_eq!(told, Err("there was no mutant to be noticed".into()));
    }

    #[test]
    fn a_path_stands_for_its_files() {
        assert_eq!(glob("a/b/"), "a/b/**");
        assert_eq!(glob("a/b.rs"), "a/b.rs");
        assert_eq!(glob("a/b"), "a/b*");
    }
}
