//! Runs the tests that come to a mutant, until one notices it.
//!
//! Noticed is what makes a test fail or crash, and once more when it is run again, because some fail now and then on a busy
//! machine, or what makes one not come to its end. A mutant that no test comes to is not noticed, and
//! neither is one that all of them, or as many as there is time for, pass. Two mutants are tried at a time, each by one thread.

use super::build::Program;
use super::copy::{self, Mutant};
use super::one_test::{self, AT_A_TIME, End};
use super::reach::Reach;
use crate::process::each_on;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// So many seconds of tests are run of a mutant, and then the test that is under way.
const SECONDS_OF_TESTS: f64 = 60.0;
/// A test has hung when it has taken so many times as long as without a mutant, and so many seconds more.
const TIMES_AS_LONG: f64 = 10.0;
const SECONDS_MORE: f64 = 20.0;

/// What the tests made of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// This one failed.
    Caught(String),
    /// This one did not end.
    Hung(String),
    /// All passed: so many, of so many.
    Missed(usize, usize),
    /// None comes to it.
    NotReached,
}

/// Tries these, in their order, until there is no more time; what was not tried has no outcome.
///
/// Errors: in words.
pub fn run(
    place: &Path,
    programs: &[Program],
    reach: &Reach,
    mutants: &[&Mutant],
    until: Option<Instant>,
) -> Result<Vec<Option<Outcome>>, String> {
    let tried = AtomicUsize::new(0);
    each_on(AT_A_TIME, mutants, |mutant, worker| {
        if until.is_some_and(|until| Instant::now() > until) {
            return Ok(None);
        }
        let folder = place.join(format!("files-{worker}"));
        let started = Instant::now();
        let outcome = try_one(programs, reach, mutant, &folder)?;
        let number = tried.fetch_add(1, Ordering::Relaxed) + 1;
        let seconds = started.elapsed().as_secs_f64();
        println!("{number}/{} {} {seconds:.1} s: {}", mutants.len(), show(&outcome), mutant.words);
        Ok(Some(outcome))
    })
}

fn show(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Caught(test) => format!("caught by {test}"),
        Outcome::Hung(test) => format!("hung in {test}"),
        Outcome::Missed(run, of) => format!("NOT NOTICED by {run} of {of} tests"),
        Outcome::NotReached => "NOT REACHED".into(),
    }
}

fn try_one(
    programs: &[Program],
    reach: &Reach,
    mutant: &Mutant,
    folder: &Path,
) -> Result<Outcome, String> {
    let tests = reach.to(mutant);
    if tests.is_empty() {
        return Ok(Outcome::NotReached);
    }
    let number = mutant.number.to_string();
    let started = Instant::now();
    for (at, (test, seconds)) in tests.iter().enumerate() {
        if started.elapsed().as_secs_f64() > SECONDS_OF_TESTS {
            return Ok(Outcome::Missed(at, tests.len()));
        }
        let limit = Duration::from_secs_f64(TIMES_AS_LONG * seconds + SECONDS_MORE);
        let environment = (copy::CHOSEN, Path::new(&number));
        let ends =
            || Ok::<End, String>(one_test::run(programs, test, environment, folder, limit)?.0);
        match ends()? {
            End::Passed => {}
            End::Failed if ends()? == End::Passed => {}
            End::Failed => return Ok(Outcome::Caught(test.name.clone())),
            End::Hung => return Ok(Outcome::Hung(test.name.clone())),
        }
    }
    Ok(Outcome::Missed(tests.len(), tests.len()))
}
