//! `cargo xtask torture simulate`: power cuts, kills and failing calls on a simulated disk, and what is left of the stores on it.
//!
//! It tests the engine and no machine, and needs its lower parts, so it is no command of the published tool. It writes no file. Exit codes:
//! 0 nothing was lost, 1 an error of the machine, 2 wrong arguments, 7 a defect, 8 a seed of another version.

mod failure;
mod rounds;
mod scenario;
#[path = "../../cli/src/commands/torture/seed.rs"]
mod seed;
mod states;

use clap::{Parser, ValueEnum};
use failure::Failure;
use rounds::{Tally, Until, simulate};
use scenario::{SCENARIOS, Scenario};
use seed::{Seed, random_seed};
use serde_json::json;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// Simulate power cuts, kills and failing system calls, and check the store after each.
#[derive(Debug, Parser)]
#[command(name = "torture simulate")]
struct Arguments {
    /// Seed of the first store, as a run printed it; without --seconds and --cuts only this store is run [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<Seed>,
    /// Start no further store after this many seconds [default: 10; no limit with --cuts]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Start no further store after this many power cuts and kills; with --seconds, whichever comes first
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cuts: Option<u64>,
    /// Number of threads; each runs its own stores, with every N-th seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    threads: u64,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
}

/// How figures are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Text
    Human,
    /// One JSON object
    Json,
}

const SECONDS: u64 = 10;

impl Arguments {
    fn until(&self) -> Until {
        match (self.seed, self.seconds, self.cuts) {
            (Some(_), None, None) => Until::One,
            (None, None, None) => Until::Either(Some(Duration::from_secs(SECONDS)), None),
            (_, seconds, cuts) => Until::Either(seconds.map(Duration::from_secs), cuts),
        }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("torture simulate: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

/// Runs rounds until there were enough, and reports.
fn run(arguments: &Arguments) -> Result<(), Failure> {
    let first = arguments.seed.map_or_else(|| Ok(random_seed()), |seed| SCENARIOS.number(seed));
    let first = first.map_err(Failure::OtherVersion)?;
    let until = arguments.until();
    let is_replay = matches!(until, Until::One);
    let mut out = io::stdout();
    let mut print = |line: String| {
        writeln!(out, "{line}")
            .and_then(|()| out.flush())
            .map_err(|error| Failure::Io("cannot write to standard output", error))
    };
    if arguments.format == Format::Human {
        print(format!("torture: seed {}", SCENARIOS.seed(first)))?;
        if is_replay {
            print(format!("torture: {:?}", Scenario::draw(first)))?;
        }
    }
    // Of one store there is one, however many threads could do more.
    let threads = if is_replay { 1 } else { arguments.threads };
    let tally = simulate(first, threads, until)?;
    print(match arguments.format {
        Format::Human => in_words(&tally),
        Format::Json => in_json(&tally, SCENARIOS.seed(first)),
    })
}

fn in_words(tally: &Tally) -> String {
    format!(
        "torture: {} stores, {} changes, {} failing calls, {} power cuts and {} kills, {} of them during a recovery; {} stores \
         were used again: nothing was lost",
        tally.stores,
        tally.changes,
        tally.failures,
        tally.cuts,
        tally.kills,
        tally.nested,
        tally.reused,
    )
}

fn in_json(tally: &Tally, seed: Seed) -> String {
    json!({
        "seed": seed.to_string(),
        "stores": tally.stores,
        "changes": tally.changes,
        "failing_calls": tally.failures,
        "power_cuts": tally.cuts,
        "kills": tally.kills,
        "during_recovery": tally.nested,
        "used_again": tally.reused,
    })
    .to_string()
}
