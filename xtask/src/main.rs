//! Chores of the workspace, run as `cargo xtask <task>`.
//!
//! One module a task. Each prints what it found on standard output and ends with exit code 0
//! (clean), 1 (it found something) or 2 (wrong arguments), and with one that says so of its own. Single-threaded unless
//! a task says so.

mod bench_diff;
mod coverage;
mod mutants;
mod parts;
mod port;
mod process;
mod program;
mod proof;
mod seeded;
mod test_programs;
mod tidy;
mod torture;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask <task>

tasks:
  tidy                check ranks, lengths, SAFETY comments, file heads, dead files, leftovers, the public surface
  matrix --keys DIR   compare the engine with a sorted map on real key sets; long
  power-cuts          cut the power under real file systems, and check what is left; Linux, as root
  torture HOW         kill a process that writes, simulate, fill a disk, sync, cut the power; and check what is left
  seeded-bugs         seed one known bug after the other, and see which test notices it
  proof [ROW...]      run the suites of a row until as much was tried as is asked for, and record it
  coverage            which branches of the engine the tests take
  mutants             which small changes of format, log, map, recovery and latch the tests notice
  port PLATFORM       build for another platform, and run the tests there as far as that is possible here
  simulate WHAT       figures of the papers on a simulated many-core machine
  rungs EXPERIMENT    an experiment on the ladder of layouts, each rung of which is a build of the benchmarks
  bench-diff A B      run the benchmarks of two revisions in turns, and compare them";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let asks_for_help =
        args.iter().skip(1).any(|argument| argument == "--help" || argument == "-h");
    // The programs of the other tasks have help of their own.
    let help = args.first().filter(|_| asks_for_help).and_then(|task| match task.as_str() {
        "tidy" => Some("usage: cargo xtask tidy [--list-surface]"),
        "torture" => Some(torture::USAGE),
        "seeded-bugs" => Some(seeded::USAGE),
        "proof" => Some(proof::USAGE),
        "coverage" => Some(coverage::USAGE),
        "mutants" => Some(mutants::USAGE),
        "port" => Some(port::USAGE),
        "bench-diff" => Some(bench_diff::USAGE),
        _ => None,
    });
    if let Some(help) = help {
        println!("{help}");
        return ExitCode::SUCCESS;
    }
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => tidy::run(&workspace_root()),
        ["tidy", "--list-surface"] => tidy::list_surface(&workspace_root()),
        ["matrix", ..] => program::run(&workspace_root(), "hedgerow-matrix", &args[1..]),
        ["power-cuts", ..] => torture::power_cuts(&workspace_root(), &args[1..]),
        ["torture", ..] => torture::run(&workspace_root(), &args[1..]),
        ["seeded-bugs", ..] => seeded::run(&workspace_root(), &args[1..]),
        ["proof", ..] => proof::run(&workspace_root(), &args[1..]),
        ["coverage", ..] => coverage::run(&workspace_root(), &args[1..]),
        ["mutants", ..] => mutants::run(&workspace_root(), &args[1..]),
        ["port", ..] => port::run(&workspace_root(), &args[1..]),
        ["simulate", ..] => {
            program::run_simulated(&workspace_root(), "hedgerow-simulate", &args[1..])
        }
        ["rungs", ..] => program::run_on_rungs(&workspace_root(), &args[1..]),
        ["bench-diff", ..] => bench_diff::run(&workspace_root(), &args[1..]),
        ["--help" | "-h" | "help"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// The workspace's directory, one above this crate: as cargo says at run time, because several
/// checkouts may share one build directory, else as it was when this was built.
fn workspace_root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.parent().map(Path::to_path_buf).unwrap_or(manifest)
}
