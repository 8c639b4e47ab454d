//! Builds programs of the workspace optimised, those of tests among them, and finds where cargo has put them.
//!
//! Whoever runs test programs by themselves, with an environment and limits of his own, builds them here: `seeded-bugs` and
//! `proof`. Each kind of build has a target directory of its own below the workspace's, so that flags of one are not the
//! reason to build the others anew. Starts cargo; one caller at a time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// By which cargo is told what to start in place of the compiler for the workspace's crates. `.ci/run` has set it for what
/// `cargo test` builds; what is built otherwise is built without.
pub const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";

/// The workspace's target directory.
pub fn target_directory(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |directory| root.join(directory))
}

/// Cargo as whoever works here calls it: it builds what is there already.
pub fn plain_cargo(root: &Path) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).env_remove("HEDGEROW_SEEDED_BUG");
    cargo
}

/// Cargo, which builds into `place` and gives the compiler these flags, if any.
pub fn cargo(root: &Path, place: &Path, flags: Option<&str>) -> Command {
    let mut cargo = plain_cargo(root);
    cargo
        .env_remove(WRAPPER)
        .env("CARGO_TARGET_DIR", place)
        // There are many programs, and linking matters more than the last bit of speed. In one piece a crate takes less time to
        // build, and schedules a fourth less to run: without optimisation at link time nothing is inlined between pieces.
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "none");
    if let Some(flags) = flags {
        cargo.env("RUSTFLAGS", flags);
    }
    cargo
}

/// Has `cargo`, which may have options of its own, build test programs of a package: the names of files in `tests`, or
/// `lib` for those within the sources. Tells where each lies.
///
/// Errors: in words.
pub fn build_tests<'a>(
    mut cargo: Command,
    package: &str,
    names: impl IntoIterator<Item = &'a str>,
    options: &[&str],
) -> Result<BTreeMap<&'a str, PathBuf>, String> {
    let names: Vec<&'a str> = names.into_iter().collect();
    cargo.arg("test").args(["--locked", "--quiet", "--no-run", "--message-format=json"]);
    // With others of the workspace, dependencies have the features of all, and are those that `cargo test` has built.
    match options.contains(&"--workspace") {
        true => cargo.args(options),
        false => cargo.args(["-p", package]).args(options),
    };
    for name in &names {
        match *name {
            "lib" => cargo.arg("--lib"),
            test => cargo.args(["--test", test]),
        };
    }
    let said = output_of(&mut cargo, package)?;
    let find = |name: &'a str| {
        let (kind, target) = match name {
            "lib" => ("lib", package.replace('-', "_")),
            test => ("test", test.to_owned()),
        };
        let found = executable(&said, kind, &target).map(|path| (name, path));
        found.ok_or_else(|| format!("cargo built no {name} of {package}"))
    };
    names.into_iter().map(find).collect()
}

/// Has `cargo` build a program of a package, and tells where it lies.
///
/// Errors: in words.
pub fn build_program(mut cargo: Command, package: &str, name: &str) -> Result<PathBuf, String> {
    cargo.env_remove(WRAPPER).arg("build").args([
        "--release",
        "--locked",
        "--quiet",
        "--message-format=json",
    ]);
    // With the features of the tool, so that its engine is not built again.
    cargo.args(["-p", "hedgerow-cli", "-p", package, "--bin", name]);
    let said = output_of(&mut cargo, package)?;
    executable(&said, "bin", name).ok_or_else(|| format!("cargo built no {name} of {package}"))
}

/// The program of a package that its test `test` starts, which `cargo test` has built, and which is built with the same features.
///
/// Errors: in words.
pub fn build_tested_program(
    mut cargo: Command,
    package: &str,
    name: &str,
    test: &str,
) -> Result<PathBuf, String> {
    cargo.args(["test", "--workspace", "--locked", "--quiet", "--no-run", "--message-format=json"]);
    let said = output_of(cargo.args(["--test", test]), package)?;
    executable(&said, "bin", name).ok_or_else(|| format!("cargo built no {name} of {package}"))
}

/// What cargo says on standard output when it has built.
fn output_of(cargo: &mut Command, package: &str) -> Result<String, String> {
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{package} does not build")),
    }
}

/// What cargo says, a line of JSON each, of the program that it has built of a target of this kind.
fn executable(said: &str, kind: &str, target: &str) -> Option<PathBuf> {
    let kind = format!("\"kind\":[\"{kind}\"]");
    let named = format!("\"name\":\"{target}\"");
    let line = said.lines().find(|line| {
        line.contains(&kind) && line.contains(&named) && line.contains("\"executable\":\"")
    })?;
    line.split("\"executable\":\"").nth(1)?.split('"').next().map(PathBuf::from)
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
            "{\"target\":{\"kind\":[\"bin\"],\"name\":\"hedgerow\"},\"executable\":\"/a/three\"}\n",
        );
        assert_eq!(executable(said, "lib", "hedgerow_sync"), Some("/a/one".into()));
        assert_eq!(executable(said, "test", "loom"), Some("/a/two".into()));
        assert_eq!(executable(said, "test", "shuttle"), None);
        assert_eq!(executable(said, "bin", "hedgerow"), Some("/a/three".into()));
    }
}
