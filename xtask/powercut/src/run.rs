//! A run from its arguments to its result: rounds of cycles, and what they come to.
//!
//! A round has a file system and a store of its own, so that the cost of a check, which does again all that was written,
//! has a bound. Invariant: what a run has made of the system is gone when it returns. Single-threaded; the handler of
//! Ctrl-C sets a flag.

use crate::arguments::{self, Arguments, USAGE};
use crate::cycle::{Bench, Counts, Round};
use crate::device::Device;
use crate::dice::{Dice, random_seed};
use crate::failure::Failure;
use crate::file_system::{Disk, Kind, Place};
use crate::process::Tool;
use crate::served::ServedImages;
use crate::signals::{self, Second};
use crate::system::{self, Directory};
use serde_json::{Map, Value as Json, json};
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// Cycles with one store.
const ROUND_CYCLES: u64 = 10;

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// The program.
pub fn main() -> ExitCode {
    let outcome = arguments::parse(std::env::args().skip(1)).and_then(|arguments| {
        if arguments.wants_help {
            return tell(USAGE);
        }
        let result = run(&arguments)?;
        if system::has_left_something() {
            return Err(Failure::Broken(format!("not all could be undone; {result}")));
        }
        tell(&result)
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("power-cuts: {}", failure.words());
            if matches!(failure, Failure::Usage(_)) {
                eprintln!("{USAGE}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}

fn tell(words: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{words}")
        .map_err(|error| Failure::Cannot(format!("cannot print: {error}")))
}

/// The tool beside this program, unless another is named.
fn tool(arguments: &Arguments) -> Result<PathBuf, Failure> {
    let file = match &arguments.tool {
        Some(file) => file.clone(),
        None => std::env::current_exe()
            .map_err(|error| Failure::Cannot(format!("cannot find this program: {error}")))?
            .with_file_name("hedgerow"),
    };
    if !file.is_file() {
        let shown = file.display();
        return Err(Failure::Usage(format!("--tool: there is no program {shown}")));
    }
    // Processes are started from elsewhere, too.
    file.canonicalize().map_err(|error| Failure::Cannot(format!("{}: {error}", file.display())))
}

/// Does all cycles; the result, for people or as a line of JSON.
fn run(arguments: &Arguments) -> Result<String, Failure> {
    let tool = Tool { file: tool(arguments)? };
    let mut programs = vec!["losetup", "mount", "umount"];
    programs.extend(arguments.kinds.iter().map(|kind| kind.maker()));
    system::check_machine(&programs)?;
    // What is mounted has to be unmounted, so a second signal does not end the program either.
    signals::set_on_interrupt(&INTERRUPTED, Second::ChangesNothing)
        .map_err(|error| Failure::Cannot(format!("cannot handle Ctrl-C: {error}")))?;
    let seed = arguments.seed.unwrap_or_else(random_seed);
    eprintln!("power-cuts: seed {seed}");
    let own = std::process::id();
    let directory =
        |what| Directory::new(std::env::temp_dir().join(format!("hedgerow-{what}-{own}")));
    let device = Arc::new(Device::default());
    let served = ServedImages::mount(Arc::clone(&device), directory("power-cuts-images")?)?;
    let mount_point = directory("power-cuts-mounted")?;
    let place = Place { device, served, mount_point };
    let (device_bytes, is_lying) = (arguments.device_bytes, arguments.is_lying);
    let bench = Bench { tool, place, device_bytes, is_lying };
    // Once for each: what fails afterwards is not because the machine cannot.
    for kind in &arguments.kinds {
        Disk::make(&bench.place, *kind, device_bytes, false, &mut Dice::new(seed))?;
    }
    let started = Instant::now();
    let counts = rounds(arguments, &bench, seed).map_err(Failure::on_an_able_machine)?;
    if is_lying {
        return Err(Failure::Broken("nothing was lost, though every flush was forgotten".into()));
    }
    Ok(result(arguments, seed, &counts, started.elapsed().as_secs_f64()))
}

/// What was done on each file system, in the order of the arguments.
fn rounds(arguments: &Arguments, bench: &Bench, seed: u64) -> Result<Vec<(Kind, Counts)>, Failure> {
    let mut counts: Vec<(Kind, Counts)> = Vec::new();
    for kind in &arguments.kinds {
        if !counts.iter().any(|(seen, _)| seen == kind) {
            counts.push((*kind, Counts::default()));
        }
    }
    // Each file system has a turn, however few the cycles are.
    let turns = counts.len() as u64;
    let round_cycles = (arguments.cycles / turns).clamp(1, ROUND_CYCLES);
    let begun_all = Instant::now();
    let is_over = || arguments.seconds.is_some_and(|most| begun_all.elapsed().as_secs() >= most);
    let mut dice = Dice::new(seed);
    let mut done = 0;
    for turn in (0..counts.len()).cycle() {
        if done == arguments.cycles || is_over() {
            break;
        }
        let (kind, sum) = &mut counts[turn];
        let mut round = Round::new(bench, *kind, Dice::new(dice.draw()))?;
        for _ in 0..round_cycles.min(arguments.cycles - done) {
            let begun = Instant::now();
            let name = kind.name();
            let before = round.counts;
            done += 1;
            match round.cycle() {
                // A disk that lies may lose its file system, of which the store knows nothing.
                Err(Failure::NoFileSystem(_)) if bench.is_lying => break,
                outcome => outcome.map_err(|failure| {
                    failure.within(&format!("seed {seed}, cycle {done}, {name}"))
                })?,
            }
            let ms = begun.elapsed().as_millis();
            let acknowledged = round.counts.acknowledged - before.acknowledged;
            let failed = round.counts.failed_calls - before.failed_calls;
            eprintln!(
                "power-cuts: cycle {done} of {}, {name}: {acknowledged} acknowledged, {failed} calls failed, {ms} ms",
                arguments.cycles
            );
            if INTERRUPTED.load(Ordering::Relaxed) {
                let words = format!("interrupted; {done} cycles, seed {seed}: all was there");
                return Err(Failure::Interrupted(words));
            }
            if is_over() {
                break;
            }
        }
        *sum += round.counts;
    }
    Ok(counts)
}

fn as_json(counts: &Counts) -> Map<String, Json> {
    let facts = [
        ("cycles", counts.cycles),
        ("power_cuts", counts.power_cuts),
        ("faulty", counts.faulty),
        ("failed_calls", counts.failed_calls),
        ("acknowledged", counts.acknowledged),
        ("flushes", counts.flushes),
        ("lost_writes", counts.lost_writes),
        ("torn_writes", counts.torn_writes),
    ];
    facts.into_iter().map(|(name, count)| (name.to_owned(), json!(count))).collect()
}

fn result(arguments: &Arguments, seed: u64, counts: &[(Kind, Counts)], seconds: f64) -> String {
    let mut sum = Counts::default();
    for (_, counts) in counts {
        sum += *counts;
    }
    if arguments.is_json {
        let mut line = Map::new();
        line.insert("seed".into(), json!(seed));
        line.extend(as_json(&sum));
        let each: Map<String, Json> = counts
            .iter()
            .map(|(kind, counts)| (kind.name().to_owned(), Json::Object(as_json(counts))))
            .collect();
        line.insert("file_systems".into(), Json::Object(each));
        line.insert("seconds".into(), json!(seconds));
        return Json::Object(line).to_string();
    }
    let mut lines: Vec<String> = counts
        .iter()
        .map(|(kind, counts)| {
            format!(
                "{}: {} power cuts in {} cycles, {} of them with failing calls; {} changes acknowledged, {} flushes, \
                 {} writes lost, {} torn",
                kind.name(),
                counts.power_cuts,
                counts.cycles,
                counts.faulty,
                counts.acknowledged,
                counts.flushes,
                counts.lost_writes,
                counts.torn_writes
            )
        })
        .collect();
    lines.push(format!("seed {seed}: all is there, {seconds:.0} s"));
    lines.join("\n")
}
