//! Builds test programs that have all seeded bugs, of which the environment chooses one.
//!
//! A directory of its own for each kind of build, below the target directory: the compiler's wrapper gives the flag to the
//! crates of the workspace alone, so that everything else is as it is without. Starts cargo; one caller at a time.

use super::bugs::{Build, Suite};
use super::names;
use crate::test_programs;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

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
        let mut cargo = cargo(root, build)?;
        let options: &[&str] = match build {
            Build::Plain => &[],
            // Of the engine's models most of the time goes into loom itself, and of building them into what is checked.
            Build::Loom if package == "hedgerow" => {
                cargo.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
                &[
                    "--release",
                    "--config",
                    "profile.release.package.loom.opt-level=3",
                    "--config",
                    "profile.release.package.generator.opt-level=3",
                ]
            }
            Build::Loom | Build::Shuttle => &["--release"],
        };
        println!("building {package} for {}", build.name());
        let found = test_programs::build_tests(cargo, package, names, options)
            .map_err(|words| format!("{words} for {}", build.name()))?;
        programs.extend(found.into_iter().map(|(name, path)| ((build, package, name), path)));
    }
    Ok(programs)
}

/// Cargo, with what all programs of a kind are built with.
fn cargo(root: &Path, build: Build) -> Result<Command, String> {
    let place = test_programs::target_directory(root).join("seeded").join(build.name());
    let wrapper = place.join("all-bugs");
    fs::create_dir_all(&place)
        .and_then(|()| fs::write(&wrapper, "#!/bin/sh\nexec \"$@\" --cfg hedgerow_canaries\n"))
        .and_then(|()| make_executable(&wrapper))
        .map_err(|error| format!("cannot write {}: {error}", wrapper.display()))?;
    let flags = match build {
        Build::Plain => None,
        Build::Loom => Some("--cfg loom"),
        Build::Shuttle => Some("--cfg shuttle"),
    };
    let mut cargo = test_programs::cargo(root, &place, flags);
    cargo.env("RUSTC_WORKSPACE_WRAPPER", &wrapper);
    // What is there to be chosen: a program that is told to leave out something else refuses to run.
    cargo.env("HEDGEROW_CANARIES", names().collect::<Vec<_>>().join(","));
    Ok(cargo)
}

#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Err(std::io::Error::other("wrappers of the compiler are shell scripts"))
}
