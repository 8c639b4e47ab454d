//! Builds a program of the workspace optimised, and runs it.
//!
//! `matrix` and what `torture` runs are packages of their own, so that the other chores do not wait for the engine to compile.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Runs the package with these arguments; its exit code is ours.
pub fn run(root: &Path, package: &str, arguments: &[String]) -> ExitCode {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
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
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
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
