//! Builds test programs that have all seeded bugs, of which the environment chooses one.
//!
//! A directory of its own for each kind of build, below the target directory: the compiler's wrapper gives the flag to the
//! crates of the workspace alone, so that everything else is as it is without. Whoever has built everything with that flag
//! already, as `.ci/run` has, says so by the same environment, and the programs of `cargo test` are taken. Starts cargo; one
//! caller at a time.

use super::bugs::{Build, Suite};
use super::joined_names;
use crate::test_programs::{self, WRAPPER};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How models are built: their time goes into loom and what that is made of, and into the latch; that of building them into the
/// engine, and into regular expressions for loom's messages. Without optimising all of loom's dependencies they take four times as long.
const LOOM: [&str; 15] = [
    "--release",
    "--config",
    "profile.release.opt-level=1",
    "--config",
    "profile.release.package.loom.opt-level=3",
    "--config",
    "profile.release.package.generator.opt-level=3",
    "--config",
    "profile.release.package.hedgerow-sync.opt-level=3",
    "--config",
    "profile.release.package.hedgerow.opt-level=0",
    "--config",
    "profile.release.package.regex-automata.opt-level=0",
    "--config",
    "profile.release.package.regex-syntax.opt-level=0",
];

/// What there is to be chosen: a program that is told to leave out something else refuses to run.
const NAMES: &str = "HEDGEROW_CANARIES";

/// A test program: the kind of its build, its package, and its name.
pub type Program = (Build, &'static str, &'static str);

/// Where each program lies.
pub type Programs = BTreeMap<Program, PathBuf>;

impl Suite {
    /// The program that the test is in.
    pub fn program(&self) -> Program {
        (self.build, self.package, self.target)
    }
}

/// Builds all of them.
///
/// Errors: in words.
pub fn build_all(root: &Path, wanted: &BTreeSet<Program>) -> Result<Programs, String> {
    let mut programs = Programs::new();
    let mut targets: BTreeMap<(Build, &str), BTreeSet<&'static str>> = BTreeMap::new();
    for &(build, package, target) in wanted {
        targets.entry((build, package)).or_default().insert(target);
    }
    for ((build, package), names) in targets {
        let cargo = cargo(root, build);
        let options: &[&str] = match build {
            Build::Plain if is_built_by_the_caller(root) => &["--workspace"],
            Build::Plain => &[],
            Build::Loom => &LOOM,
            Build::Shuttle => &["--release"],
        };
        println!("building {package} for {}", build.name());
        let found = test_programs::build_tests(cargo, package, names, options)
            .map_err(|words| format!("{words} for {}", build.name()))?;
        programs.extend(found.into_iter().map(|(name, path)| ((build, package, name), path)));
    }
    Ok(programs)
}

/// The compiler's wrapper, which adds the flag.
fn wrapper(root: &Path) -> PathBuf {
    root.join(".ci/all-bugs")
}

/// Whether whoever called this builds the workspace with all bugs by himself.
fn is_built_by_the_caller(root: &Path) -> bool {
    env::var_os(WRAPPER).is_some_and(|own| Path::new(&own) == wrapper(root))
        && env::var(NAMES).is_ok_and(|own| own == joined_names())
}

/// Cargo, with what all programs of a kind are built with.
fn cargo(root: &Path, build: Build) -> Command {
    let flags = match build {
        Build::Plain if is_built_by_the_caller(root) => return test_programs::plain_cargo(root),
        Build::Plain => None,
        Build::Loom => Some("--cfg loom"),
        Build::Shuttle => Some("--cfg shuttle"),
    };
    let place = test_programs::target_directory(root).join("seeded").join(build.name());
    let mut cargo = test_programs::cargo(root, &place, flags);
    cargo.env(WRAPPER, wrapper(root)).env(NAMES, joined_names());
    cargo
}
