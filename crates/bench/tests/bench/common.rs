//! What the tests of the program share. Each test has directories of its own.

use hedgerow_bench::experiments::{self, Size};
use hedgerow_bench::external::Programs;
use hedgerow_bench::run::Plan;
use hedgerow_testing::environment::is_thorough;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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

/// Builds of the program on lower rungs of the ladder, as far as `HEDGEROW_RUNG_PROGRAMS` names them, in the form of `PATH`.
fn rung_programs() -> Vec<PathBuf> {
    let programs = std::env::var_os("HEDGEROW_RUNG_PROGRAMS").unwrap_or_default();
    std::env::split_paths(&programs).filter(|path| !path.as_os_str().is_empty()).collect()
}

/// The competitors of [`rung_programs`].
pub fn competitors_of_rungs() -> Vec<String> {
    let names = |program| {
        let output = Command::new(program).arg("competitors").output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    rung_programs().iter().flat_map(names).collect()
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
        peers: rung_programs(),
        programs: Programs::default(),
        keys: BTreeMap::new(),
        directory: directory.to_owned(),
        seconds_limit: None,
    }
}
