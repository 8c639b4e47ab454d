//! What the tests of the program share. Each test has directories of its own.

use hedgerow_bench::experiments::{self, Size};
use hedgerow_bench::external::Programs;
use hedgerow_bench::run::Plan;
use hedgerow_testing::environment::is_thorough;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The program under test.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_hedgerow-bench");

/// A command that starts it.
pub fn hedgerow_bench() -> Command {
    Command::new(PROGRAM)
}

/// Pairs of a measurement that is only to run.
pub fn pairs() -> usize {
    if is_thorough() { 2 } else { 1 }
}

/// A plan for [`pairs`] of `experiment` in its smoke size, with everything below `directory`.
pub fn plan(experiment: &str, directory: &Path) -> Plan {
    Plan {
        experiments: vec![experiments::find(experiment, Size::Smoke).unwrap()],
        size: Size::Smoke,
        competitors: Vec::new(),
        cases: Vec::new(),
        pairs: pairs(),
        instructions: false,
        program: PROGRAM.into(),
        builds: Vec::new(),
        peers: None,
        programs: Programs::default(),
        keys: BTreeMap::new(),
        directory: directory.to_owned(),
        seconds_limit: None,
    }
}
