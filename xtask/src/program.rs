//! Builds a program of the workspace optimised, and runs it.
//!
//! `matrix` and what `torture` runs are packages of their own, so that the other chores do not wait for the engine to compile.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Runs the package with these arguments; its exit code is ours.
pub fn run(root: &Path, package: &str, arguments: &[String]) -> ExitCode {
    run_by(cargo(), root, package, arguments)
}

/// Runs the package on the simulated machine, from a build directory of its own: all of it is built with another flag.
pub fn run_simulated(root: &Path, package: &str, arguments: &[String]) -> ExitCode {
    let mut cargo = cargo();
    cargo.env("RUSTFLAGS", "--cfg hedgerow_sim");
    cargo.env("CARGO_TARGET_DIR", target(root).join("simulated"));
    run_by(cargo, root, package, arguments)
}

/// Builds the benchmarks on each lower rung of the ladder, in a build directory of its own, and has the build of the store run
/// experiments with all of them as competitors. `RUSTFLAGS` are those of all four.
pub fn run_on_rungs(root: &Path, arguments: &[String]) -> ExitCode {
    let mut all: Vec<OsString> = vec!["run".into()];
    all.extend(arguments.iter().map(OsString::from));
    for rung in ["baseline", "prefix", "heads"] {
        let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
        let target = target(root).join(format!("rung-{rung}"));
        let status = cargo()
            .env("RUSTFLAGS", format!("{flags} --cfg hedgerow_rung=\"{rung}\""))
            .env("CARGO_TARGET_DIR", &target)
            .args(["build", "--release", "--package", "hedgerow-bench", "--manifest-path"])
            .arg(root.join("Cargo.toml"))
            .status();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("rungs: cannot build {rung}");
            return ExitCode::FAILURE;
        }
        let program = format!("release/hedgerow-bench{}", std::env::consts::EXE_SUFFIX);
        all.extend(["--peers".into(), target.join(program).into()]);
    }
    run_by(cargo(), root, "hedgerow-bench", &all)
}

/// The directory that cargo builds into.
fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into)
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn run_by(
    mut cargo: Command,
    root: &Path,
    package: &str,
    arguments: &[impl AsRef<OsStr>],
) -> ExitCode {
    let status = cargo
        .args(["run", "--quiet", "--release", "--package", package, "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .arg("--")
        .args(arguments)
        .status();
    match status {
        Ok(status) => {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            ExitCode::from(code.unwrap_or(1))
        }
        Err(error) => {
            eprintln!("{package}: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the package as [`run`] does, beside the programs of another one, which it starts.
pub fn run_beside(root: &Path, package: &str, other: &str, arguments: &[String]) -> ExitCode {
    let status = cargo()
        .args(["build", "--quiet", "--release", "--package", other, "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .status();
    match status {
        Ok(status) if status.success() => run(root, package, arguments),
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{package}: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
