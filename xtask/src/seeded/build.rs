//! Builds test programs that have all seeded bugs, of which the environment chooses one.
//!
//! They are built of a copy of the workspace below the target directory, whose lines [`Edits`] changes, each kind of build in
//! a directory of its own. Starts cargo; one caller at a time.

use super::bugs::{Build, Suite};
use super::edits::Edits;
use super::names;
use crate::test_programs;
use std::collections::{BTreeMap, BTreeSet};
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
    let edits = Edits::read(root)?;
    edits.check_names(&names().collect())?;
    edits.copy(root, &copy_of(root))?;
    let mut programs = Programs::new();
    let mut targets: BTreeMap<(Build, &str), BTreeSet<&'static str>> = BTreeMap::new();
    for &(build, package, target) in wanted {
        targets.entry((build, package)).or_default().insert(target);
    }
    for ((build, package), names) in targets {
        let cargo = cargo(root, build);
        let options: &[&str] = match build {
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

/// Where the copy of the workspace lies.
pub fn copy_of(root: &Path) -> PathBuf {
    test_programs::target_directory(root).join("seeded/source")
}

/// Cargo, with what all programs of a kind are built with.
fn cargo(root: &Path, build: Build) -> Command {
    let flags = match build {
        Build::Plain => None,
        Build::Loom => Some("--cfg loom"),
        Build::Shuttle => Some("--cfg shuttle"),
    };
    let place = test_programs::target_directory(root).join("seeded").join(build.name());
    test_programs::cargo(&copy_of(root), &place, flags)
}
