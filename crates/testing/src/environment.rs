//! What a suite takes from the environment: which seed, how much, which part of it, which run alone.
//!
//! One strict parser for all of them. A text that is not understood and quietly becomes the default makes a run that tries
//! something else than it was told to, and passes. So whatever is set has to be understood; if it is not, the process
//! names the variable, its text and what may be there, and ends with exit code [`WRONG_ARGUMENTS`]. It says so on the real standard
//! error: what tests print by macros the harness keeps to itself, and nobody is left to show it.
//!
//! Plain functions; the environment is only read.

use hedgerow_sync::primitive::random;
use std::ffi::OsStr;
use std::io::Write;

/// Exit code of a process that was told something that it does not understand.
pub const WRONG_ARGUMENTS: i32 = 2;

/// What a variable says, if it is set; `allowed` are the words for what it may say.
pub fn variable<T>(name: &str, allowed: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
    // Whoever asks for anything would pass with a bug that is not there to be noticed.
    if let Some(bug) = std::env::var_os(SEEDED_BUG).filter(|bug| !is_there(bug)) {
        refuse(&format!("WRONG ARGUMENT: {SEEDED_BUG}={bug:?}, which this build does not have"));
    }
    let text = std::env::var_os(name)?;
    Some(read(name, &text, allowed, parse).unwrap_or_else(|words| refuse(&words)))
}

/// By which a build of `cargo xtask seeded-bugs` is told which of its bugs it has.
const SEEDED_BUG: &str = "HEDGEROW_SEEDED_BUG";

/// Whether a build has this bug. None has one; what `cargo xtask seeded-bugs` builds has another line here.
fn is_there(bug: &OsStr) -> bool {
    bug.is_empty()
}

/// What is said on the real standard error, which no harness keeps to itself.
pub(super) fn say(words: &str) {
    // If that cannot be written either, nobody can be told.
    let _ = std::io::stderr().write_all(format!("\n{words}\n").as_bytes());
}

fn refuse(words: &str) -> ! {
    say(words);
    std::process::exit(WRONG_ARGUMENTS);
}

/// Errors: the words for a text that is not understood.
fn read<T>(
    name: &str,
    text: &OsStr,
    allowed: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<T, String> {
    let parsed = text.to_str().and_then(parse);
    parsed.ok_or_else(|| format!("WRONG ARGUMENT: {name}={text:?}, which should be {allowed}"))
}

/// The number that a variable says, if it is set.
pub fn number(name: &str) -> Option<u64> {
    variable(name, "a whole number", |text| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    })
}

/// The number that a variable says, if it is set, of something of which none would be a run of nothing.
pub fn positive(name: &str) -> Option<u64> {
    variable(name, "a whole number from 1 on", parse_positive)
}

/// The seed of a test's dice: its own, or what `HEDGEROW_SEED` says. It is printed.
pub fn seed(own: u64) -> u64 {
    let seed = number("HEDGEROW_SEED").unwrap_or(own);
    println!("seed {seed}");
    seed
}

/// A seed that differs from run to run, or what `HEDGEROW_SEED` says. It is printed.
pub fn fresh_seed() -> u64 {
    seed(random::seed())
}

/// How many times as much as usual the long tests are to do (`HEDGEROW_EFFORT`).
pub fn effort() -> u64 {
    positive("HEDGEROW_EFFORT").unwrap_or(1)
}

/// Whether long tests are to try all that they have (`HEDGEROW_TESTS=all`, as in `.ci/run`), or a smaller sample, so that
/// `cargo test` ends within some minutes.
pub fn is_thorough() -> bool {
    variable("HEDGEROW_TESTS", "`all` or `few`", |text| match text {
        "all" => Some(true),
        "few" => Some(false),
        _ => None,
    })
    .unwrap_or(false)
}

/// Which part of its cases a test that shares them with other processes takes, from 0, and of how many: `HEDGEROW_PART=2/8`
/// is the second of eight parts.
pub fn part() -> (usize, usize) {
    variable("HEDGEROW_PART", "a part such as 2/8", parse_part).unwrap_or((0, 1))
}

fn parse_positive(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number > 0)
}

fn parse_part(text: &str) -> Option<(usize, usize)> {
    let (part, of) = text.split_once('/')?;
    let (part, of) = (part.parse::<usize>().ok()?, of.parse::<usize>().ok()?);
    (1..=of).contains(&part).then(|| (part - 1, of))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    #[test]
    fn texts_are_understood_or_named_with_what_may_be_there() {
        let read =
            |text: &str| read("HEDGEROW_PART", OsStr::new(text), "a part such as 2/8", parse_part);
        assert_eq!(read("2/8"), Ok((1, 8)));
        assert_eq!(read("1/1"), Ok((0, 1)));
        for text in ["", "2", "0/8", "9/8", "2/", "a/8", "2/8 "] {
            let words = format!("HEDGEROW_PART={text:?}, which should be a part such as 2/8");
            assert!(read(text).is_err_and(|error| error.ends_with(&words)), "{text}");
        }
        assert_eq!(
            ["7", "0", "-1", "x", ""].map(parse_positive),
            [Some(7), None, None, None, None]
        );
    }

    #[test]
    #[ignore = "runs in a process of its own"]
    fn child_takes_all_of_it() {
        let (seed, effort, (part, of)) = (seed(5), effort(), part());
        println!("took {seed}, {effort}, {part} of {of}");
    }

    /// Runs the child with a variable, as a harness that keeps to itself what it prints.
    fn child_with(name: &str, text: &str) -> Output {
        let test = format!("{}::child_takes_all_of_it", module_path!().split_once("::").unwrap().1);
        let mut child = Command::new(std::env::current_exe().unwrap());
        for own in ["HEDGEROW_SEEDED_BUG", "HEDGEROW_EFFORT", "HEDGEROW_PART", "HEDGEROW_SEED"] {
            child.env_remove(own);
        }
        child.args(["--exact", &test, "--ignored"]).env(name, text).output().unwrap()
    }

    #[test]
    fn what_is_not_understood_ends_the_process_with_a_code_of_its_own() {
        for (name, text) in [
            ("HEDGEROW_SEED", "1.7"),
            ("HEDGEROW_SEED", ""),
            ("HEDGEROW_EFFORT", "0"),
            ("HEDGEROW_PART", "3/2"),
            ("HEDGEROW_SEEDED_BUG", "no-such-line"),
        ] {
            let output = child_with(name, text);
            let words = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(WRONG_ARGUMENTS), "{name}={text}: {words}");
            assert!(words.contains(&format!("{name}={text:?}")), "{words}");
        }
        for (name, text) in [("HEDGEROW_SEED", "7"), ("HEDGEROW_SEEDED_BUG", "")] {
            let output = child_with(name, text);
            assert!(output.status.success(), "{name}={text}: {output:?}");
            assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
        }
    }
}
