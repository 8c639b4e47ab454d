//! Builds a program of the workspace optimised, and runs it.
//!
//! `matrix` and what `torture` runs are packages of their own, so that the other chores do not wait for the engine to compile.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Runs the package with these arguments; its exit code is ours.
pub fn run(root: &Path, package: &str, arguments: &[String]) -> ExitCode {
    run_by(cargo(), root, package, arguments)
}

/// Runs the package on the simulated machine, from a build directory of its own: all of it is built with another flag.
pub fn run_simulated(root: &Path, package: &str, arguments: &[String]) -> ExitCode {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), Into::into);
    let mut cargo = cargo();
    cargo.env("RUSTFLAGS", "--cfg hedgerow_sim").env("CARGO_TARGET_DIR", target.join("simulated"));
    run_by(cargo, root, package, arguments)
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn run_by(mut cargo: Command, root: &Path, package: &str, arguments: &[String]) -> ExitCode {
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
