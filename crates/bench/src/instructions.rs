//! Instructions instead of seconds: a cell under `valgrind --tool=callgrind`, which counts those of the calls that the
//! clock would have run for, and no others.
//!
//! Counts do not depend on what else the machine does, and hardly on the machine: callgrind runs the code for AVX2, whatever
//! more a processor has. They say nothing of memory, which is what most of a look-up in a large tree waits for.
//!
//! The harness runs whatever is timed inside [`under_the_clock`]; callgrind collects between entering and leaving that function, and
//! writes a file whenever a function inside it ends: the end of the one that switches it off it does not notice. Plain
//! functions; thread-safety does not arise.

use crate::cell::{Cell, CellError, CellResult, Operation};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of [`under_the_clock`], as callgrind finds it.
const COLLECTED: &str = "*under_the_clock*";
/// Name of [`written_down`].
const WRITTEN: &str = "*written_down*";

/// Name of the function that each further thread begins with.
const THREAD: &str = "*thread_start*";

/// How many times longer than by itself a cell may take.
const SLOWDOWN: u64 = 100;

/// Does `work`. Never inlined: its beginning and its end are what instructions are counted between.
#[inline(never)]
pub fn under_the_clock<T>(work: impl FnOnce() -> T) -> T {
    // Not the last thing that it does, or it would be left before the work begins.
    std::hint::black_box(written_down(work))
}

#[inline(never)]
fn written_down<T>(work: impl FnOnce() -> T) -> T {
    std::hint::black_box(work())
}

/// Files that callgrind writes, in a directory that exists.
#[derive(Clone, Debug)]
pub struct Counts(PathBuf);

impl Counts {
    /// Puts them into `directory`, without what an earlier cell has left there. Errors: `Failed`.
    pub fn new(directory: &Path) -> Result<Counts, CellError> {
        let counts = Counts(directory.join("callgrind"));
        if counts.0.exists() {
            std::fs::remove_dir_all(&counts.0).map_err(CellError::failed)?;
        }
        std::fs::create_dir_all(&counts.0).map_err(CellError::failed)?;
        Ok(counts)
    }

    /// What runs `program` so that its instructions are counted, and how long it may take instead of `seconds_limit`.
    pub fn command(&self, program: &Path, seconds_limit: u64) -> (Command, u64) {
        let mut command = Command::new("valgrind");
        command
            .args(["--quiet", "--tool=callgrind", "--collect-atstart=no"])
            .arg(format!("--toggle-collect={COLLECTED}"))
            .arg(format!("--dump-after={WRITTEN}"))
            .arg(format!("--callgrind-out-file={}", self.0.join("out").display()))
            .arg(program);
        (command, seconds_limit.saturating_mul(SLOWDOWN))
    }

    /// What [`Self::command`] gives, but further threads are counted as well: the first count has what they did until the first call of
    /// [`under_the_clock`] ended.
    pub fn command_with_threads(&self, program: &Path, seconds_limit: u64) -> (Command, u64) {
        let (counted, seconds) = self.command(program, seconds_limit);
        let mut command = Command::new(counted.get_program());
        command.arg(format!("--toggle-collect={THREAD}")).args(counted.get_args());
        (command, seconds)
    }

    /// Instructions of the call of [`under_the_clock`] with this number, from 1. Errors: `Failed` if there is no such count.
    pub fn of(&self, number: usize) -> Result<u64, CellError> {
        let path = self.0.join(format!("out.{number}"));
        let text = std::fs::read_to_string(&path).map_err(|error| {
            CellError::Failed(format!("callgrind has not written {}: {error}", path.display()))
        })?;
        let words = || format!("callgrind has written no total to {}", path.display());
        total(&text).ok_or_else(|| CellError::Failed(words()))
    }

    /// Fills in what loading and the phases of `cell` took.
    ///
    /// Errors: `Unsupported` for phases of several threads; `Failed` if there are not as many counts as there should be.
    pub fn fill_in(&self, cell: &Cell, result: &mut CellResult) -> Result<(), CellError> {
        let is_counted = |operation: Operation| {
            !operation.is_upkeep() && !matches!(operation, Operation::ScanAll {})
        };
        let phases = cell.phases.iter().zip(&mut result.phases);
        let phases = phases.filter(|(phase, _)| is_counted(phase.operation));
        let counted = std::iter::once(&mut result.load).chain(phases.map(|(_, result)| result));
        let mut files = 0;
        for result in counted {
            files += 1;
            result.instructions = Some(self.of(files)?);
        }
        if self.0.join(format!("out.{}", files + 1)).exists() {
            return Err(CellError::failed(
                "callgrind has written more counts than there are phases",
            ));
        }
        Ok(())
    }
}

/// Whether the instructions of `cell` can be counted. Errors: `Unsupported`, if not.
pub fn check(cell: &Cell) -> Result<(), CellError> {
    if cell.phases.iter().any(|phase| phase.threads > 1 || phase.seconds.is_some()) {
        let words = "instructions are counted of phases with one thread and so many operations";
        return Err(CellError::Unsupported(words.into()));
    }
    Ok(())
}

/// The number behind `totals:` in a file of callgrind.
fn total(text: &str) -> Option<u64> {
    let line = text.lines().rev().find_map(|line| line.strip_prefix("totals:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_is_found_and_nothing_else_is_taken_for_one() {
        let text = "version: 1\nevents: Ir\nsummary: 12\n\nfn=(1) main\n1 12\n\ntotals: 1234567\n";
        assert_eq!(total(text), Some(1_234_567));
        assert_eq!(total("summary: 12\n"), None);
        assert_eq!(total("totals: many\n"), None);
    }
}
