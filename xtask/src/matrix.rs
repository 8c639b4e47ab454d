//! `cargo xtask matrix`: builds the correctness matrix optimised, and runs it.
//!
//! It is a package of its own, so that the other chores do not wait for the engine to compile.

use std::path::Path;
use std::process::{Command, ExitCode};

/// Runs the matrix with these arguments; its exit code is ours.
pub fn run(root: &Path, arguments: &[String]) -> ExitCode {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--quiet", "--release", "--package", "hedgerow-matrix", "--manifest-path"])
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
            eprintln!("matrix: cannot start cargo: {error}");
            ExitCode::FAILURE
        }
    }
}
