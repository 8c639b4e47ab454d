//! `cargo xtask mutants`: how many small changes of what a defect in costs data the tests notice.
//!
//! All of them are in one build: the files of the parts are rewritten in a copy of the workspace so that a variable of
//! the environment chooses one (`points`, `rewrite`, `copy`, `build`). Each test is run once to see which of them it comes to
//! (`reach`), and of each mutant those alone that come to it, until one notices it (`run`). Run are the unit tests, those of the
//! engine and loom's models; schedules are not, so that what nothing but they notice counts as missed. Starts cargo and tests; one
//! at a time.

mod build;
mod cfg;
mod choose;
mod copy;
mod one_test;
mod points;
mod reach;
mod report;
mod rewrite;
mod run;

use crate::parts::{PARTS, Part};
use crate::proof::{Share, revision};
use crate::{test_programs, workspace};
use choose::{Changed, choose};
use copy::Mutants;
use reach::Reach;
use report::Sum;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What the task is told.
pub const USAGE: &str = "\
usage: cargo xtask mutants [--share K/N] [--changed REVISION] [--part NAME] [--path BEGIN...] [--units] [--seconds N]
                           [--out FILE] [--list]

  --share K/N         every N-th of them, from the K-th on, in an order that is drawn
  --changed REVISION  those alone that are in lines changed since then
  --part NAME         those of one part alone: format, log, map, recovery or latch
  --path BEGIN        those alone that are in files whose path begins so; may be said again for others
  --units             run the unit tests alone, which is a fifth of the work
  --seconds N         begin none when so much time has gone into trying them: what was tried is a fair sample
  --out FILE          append what was found, a line of JSON a part
  --list              print them, and run nothing

exit codes: 0 of every part nine in ten were noticed, or nothing that was changed has one, 1 fewer, or there was none, or it does
not build, 2 wrong arguments";

#[derive(Default)]
struct Arguments {
    share: Option<Share>,
    changed: Option<String>,
    part: Option<&'static Part>,
    /// How paths begin; none: all.
    paths: Vec<String>,
    units_alone: bool,
    seconds: Option<u64>,
    out: Option<PathBuf>,
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
    match find(root, &arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(words) => {
            eprintln!("mutants: {words}");
            ExitCode::FAILURE
        }
    }
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
            "--path" => parsed.paths.push(value()?.clone()),
            "--seconds" => {
                let text = value()?;
                parsed.seconds = Some(text.parse().map_err(|_| format!("no number `{text}`"))?);
            }
            "--out" => parsed.out = Some(value()?.into()),
            "--units" => parsed.units_alone = true,
            "--list" => parsed.is_list = true,
            _ => return Err(format!("no option `{argument}`")),
        }
    }
    Ok(parsed)
}

/// Makes the mutants and tries them, or lists them; whether enough were noticed.
fn find(root: &Path, arguments: &Arguments) -> Result<bool, String> {
    let mut mutants = Mutants::find(root, &workspace::files(root)?)?;
    let changed = match &arguments.changed {
        Some(revision) => Some(Changed::since(root, revision)?),
        None => None,
    };
    let share = arguments.share.unwrap_or(Share::ALL);
    let part = arguments.part.map(|part| part.name);
    let all = mutants.all.clone();
    let is_there = |begin: &&String| all.iter().any(|mutant| mutant.path.starts_with(*begin));
    if let Some(begin) = arguments.paths.iter().find(|begin| !is_there(begin)) {
        return Err(format!("nothing can be changed in files that begin with `{begin}`"));
    }
    let chosen = choose(&all, part, &arguments.paths, changed.as_ref(), share);
    if arguments.is_list {
        let mut chosen = chosen;
        chosen.sort_by_key(|mutant| mutant.number);
        for mutant in &chosen {
            println!("{}", mutant.words);
        }
        return Ok(true);
    }
    if chosen.is_empty() && changed.is_some() {
        println!("nothing that was changed has a mutant");
        return Ok(true);
    }
    if chosen.is_empty() {
        return Err("there was no mutant to be noticed".into());
    }
    // Of the sources that are copied now, whatever becomes of them meanwhile.
    let revision = revision(root);
    let place = test_programs::target_directory(root).join("mutants");
    let programs = build::build(root, &place, &mut mutants, arguments.units_alone)?;
    let (unviable, viable): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|mutant| mutants.unviable.contains(&mutant.number));
    let reach = Reach::find(&place, &programs, &all)?;
    let seconds: f64 = reach.tests.iter().map(|(_, seconds)| seconds).sum();
    println!("{} tests, {seconds:.0} s; {} mutants", reach.tests.len(), viable.len());
    let started = Instant::now();
    let until = arguments.seconds.map(|seconds| started + Duration::from_secs(seconds));
    let outcomes = run::run(&place, &programs, &reach, &viable, until)?;
    let number = outcomes.iter().flatten().count();
    let tried: Vec<_> = viable.into_iter().zip(outcomes).collect();
    let sums = Sum::of_parts(&unviable, &tried);
    let is_enough = report::tell(&sums)?;
    let seconds = started.elapsed().as_secs_f64();
    println!("{number} of {} were tried, in {seconds:.0} s", tried.len());
    if let Some(path) = &arguments.out {
        report::append(path, &revision, share, &sums)?;
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
        let line = "--share 2/40 --part log --path a/ --path b.rs --changed HEAD~3 --seconds 60 --units --list";
        let parsed = parse(line).unwrap();
        assert_eq!(parsed.share, Some(Share { index: 1, of: 40 }));
        assert_eq!(parsed.part.map(|part| part.name), Some("log"));
        assert_eq!(parsed.paths, ["a/", "b.rs"]);
        assert_eq!(parsed.changed.as_deref(), Some("HEAD~3"));
        assert_eq!((parsed.seconds, parsed.units_alone, parsed.is_list), (Some(60), true, true));
        for (line, words) in [
            ("--share", "--share needs a value"),
            ("--share 3/2", "no share `3/2`"),
            ("--part moon", "no part `moon`"),
            ("--seconds soon", "no number `soon`"),
            ("--moons", "no option `--moons`"),
        ] {
            assert_eq!(parse(line).err().as_deref(), Some(words), "{line}");
        }
    }
}
