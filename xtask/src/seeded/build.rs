//! Builds test programs that have all seeded bugs, of which the environment chooses one.
//!
//! A directory of its own for each kind of build, below the target directory: the compiler's wrapper gives the flag to the
//! crates of the workspace alone, so that everything else is as it is without. Starts cargo; one caller at a time.

use super::bugs::{Build, Suite};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

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
        let quiet = ["--locked", "--quiet", "--no-run", "--message-format=json", "-p", package];
        cargo.arg("test").args(quiet);
        match build {
            Build::Plain => {}
            // Of the engine's models most of the time goes into loom itself, and of building them into what is checked.
            Build::Loom if package == "hedgerow" => {
                cargo
                    .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
                    .args(["--release", "--config", "profile.release.package.loom.opt-level=3"])
                    .args(["--config", "profile.release.package.generator.opt-level=3"]);
            }
            Build::Loom | Build::Shuttle => {
                cargo.arg("--release");
            }
        }
        for name in &names {
            match *name {
                "lib" => cargo.arg("--lib"),
                test => cargo.args(["--test", test]),
            };
        }
        println!("building {package} for {}", build.name());
        let output = cargo
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !output.status.success() {
            return Err(format!("{package} does not build for {}", build.name()));
        }
        let said = String::from_utf8_lossy(&output.stdout);
        for name in names {
            let found = executable(&said, package, name);
            let found = found.ok_or_else(|| format!("cargo built no {name} of {package}"))?;
            programs.insert((build, package, name), found);
        }
    }
    Ok(programs)
}

/// What cargo says, a line of JSON each, of the program that it has built.
fn executable(said: &str, package: &str, name: &str) -> Option<PathBuf> {
    let (kind, target) = match name {
        "lib" => ("\"kind\":[\"lib\"]", package.replace('-', "_")),
        test => ("\"kind\":[\"test\"]", test.to_owned()),
    };
    let named = format!("\"name\":\"{target}\"");
    let line = said.lines().find(|line| {
        line.contains(kind) && line.contains(&named) && line.contains("\"executable\":\"")
    })?;
    line.split("\"executable\":\"").nth(1)?.split('"').next().map(PathBuf::from)
}

/// Cargo, with what all programs of a kind are built with.
fn cargo(root: &Path, build: Build) -> Result<Command, String> {
    let above = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |directory| root.join(directory));
    let place = above.join("seeded").join(build.name());
    let wrapper = place.join("all-bugs");
    fs::create_dir_all(&place)
        .and_then(|()| fs::write(&wrapper, "#!/bin/sh\nexec \"$@\" --cfg hedgerow_canaries\n"))
        .and_then(|()| make_executable(&wrapper))
        .map_err(|error| format!("cannot write {}: {error}", wrapper.display()))?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(root)
        .env("CARGO_TARGET_DIR", &place)
        .env("RUSTC_WORKSPACE_WRAPPER", &wrapper)
        .env_remove("HEDGEROW_CANARY")
        // Linking matters more than speed.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none");
    match build {
        Build::Plain => {}
        Build::Loom => {
            cargo.env("RUSTFLAGS", "--cfg loom");
        }
        Build::Shuttle => {
            cargo.env("RUSTFLAGS", "--cfg shuttle");
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_what_cargo_says() {
        let said = concat!(
            "{\"target\":{\"kind\":[\"lib\"],\"name\":\"hedgerow_sync\"},\"executable\":null}\n",
            "{\"target\":{\"kind\":[\"lib\"],\"name\":\"hedgerow_sync\"},\"executable\":\"/a/one\"}\n",
            "{\"target\":{\"kind\":[\"test\"],\"name\":\"loom\"},\"executable\":\"/a/two\"}\n",
        );
        assert_eq!(executable(said, "hedgerow-sync", "lib"), Some("/a/one".into()));
        assert_eq!(executable(said, "hedgerow-sync", "loom"), Some("/a/two".into()));
        assert_eq!(executable(said, "hedgerow-sync", "shuttle"), None);
    }
}
