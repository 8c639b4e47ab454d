//! The program `hedgerow-peers`: other stores as competitors, by the cell protocol of
//! `hedgerow-bench`, whose harness draws the accesses, times them and sums up what is read.
//!
//! `hedgerow-peers competitors` lists them; `hedgerow-peers cell CELL.json` runs one cell, also of a competitor that
//! `hedgerow-bench` has itself.

mod changes;
mod engines;

use hedgerow_bench::harness;
use std::process::ExitCode;

fn main() -> ExitCode {
    harness::main(&engines::NAMES, engines::run)
}
