//! Torture, run by `cargo xtask torture kill --cycles N`.
//!
//! A child process writes from several threads at full speed, and is killed (by the kernel, not by its own will)
//! at a random moment: while it opens, recovers, writes, syncs or takes a checkpoint. The parent opens what is
//! left, and compares it with what must be there; then the next child goes on from it. Exit code 0 only if every
//! cycle was right; else the store is kept, and its place and the seed are printed.

mod child;
mod parent;
mod script;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask torture kill [--cycles N] [--seed N] [--dir DIR]
       cargo xtask torture look STORE SEED   say what is wrong with a store that was kept

  --cycles N  how often the writer is killed [default: 200]
  --seed N    of what is written, and of the moments [default: random]
  --dir DIR   where to put the store [default: a temporary directory]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["kill", options @ ..] => match parse(options) {
            Some(torture) => report(torture.run()),
            None => misuse(),
        },
        ["look", path, seed] => match seed.parse() {
            Ok(seed) => report(parent::look(path.as_ref(), seed)),
            Err(_) => misuse(),
        },
        ["child", path, seed, begins @ ..] => {
            let numbers: Option<Vec<u64>> = begins.iter().map(|word| word.parse().ok()).collect();
            match (seed.parse(), numbers) {
                (Ok(seed), Some(begins)) => report(child::write(path.as_ref(), seed, &begins)),
                _ => misuse(),
            }
        }
        _ => misuse(),
    }
}

fn misuse() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn report(outcome: Result<(), String>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("torture: {words}");
            ExitCode::FAILURE
        }
    }
}

fn parse(options: &[&str]) -> Option<parent::Torture> {
    let (mut cycles, mut seed, mut directory) = (200, None, None);
    let mut pairs = options.chunks_exact(2);
    for pair in &mut pairs {
        match pair[0] {
            "--cycles" => cycles = pair[1].parse().ok()?,
            "--seed" => seed = Some(pair[1].parse().ok()?),
            "--dir" => directory = Some(PathBuf::from(pair[1])),
            _ => return None,
        }
    }
    let seed = seed.unwrap_or_else(script::random_seed);
    pairs.remainder().is_empty().then_some(parent::Torture { cycles, seed, directory })
}
