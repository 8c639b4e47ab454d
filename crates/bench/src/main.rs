//! The program `hedgerow-bench`.

use hedgerow_bench::{engines, harness};
use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main(&engines::NAMES, engines::run)
}
