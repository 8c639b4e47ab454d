//! `hedgerow torture kill DIR`: starts writers, kills them, and checks what they leave.
//!
//! A child process writes from several threads at full speed, and is killed (by the kernel, not by its own will) at a
//! random moment: while it opens, recovers, writes, syncs or takes a checkpoint. The parent opens what is left, and
//! compares it with what must be there; then the next child goes on from it.
//!
//! What must hold after each kill: every thread's keys hold what they held after a first part of its changes, batches
//! among them; all that was acknowledged as durable is in that part; if a change is there, so are all that were done
//! before it began; a verification finds nothing; the file's bytes add up. No child outlives the call that started it,
//! whatever that ends with. Single-threaded, but for one reader a child.

use super::Place;
use super::latency::{Latency, Where};
use super::left::Left;
use super::script::{Clock, SCRIPTS};
use super::seed::{Seed, mix, random_seed};
use crate::args::{Common, Format};
use crate::failure::Failure;
use crate::output::Out;
use crate::{interrupt, progress};
use clap::Args;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Arguments of `torture kill`.
#[derive(Debug, Args)]
pub struct KillArgs {
    /// Directory on the disk to test; the store, a few megabytes, goes into a new directory inside
    directory: PathBuf,
    /// Number of kills [default: 200, or as many as --seconds allows]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    cycles: Option<u64>,
    /// Start no further cycle after this many seconds
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Seed of the writes and of the moments of the kills, as a run printed it [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<Seed>,
}

/// Kills, if nothing is said of them.
const CYCLES: u64 = 200;
/// How long a writer may open and recover.
const LONGEST_OPENING: Duration = Duration::from_secs(60);

/// What does not change from cycle to cycle.
struct Torture<'a> {
    common: &'a Common,
    seed: u64,
    path: PathBuf,
}

/// What is known of the store.
#[derive(Default)]
struct Known {
    kills: u64,
    acknowledged: u64,
    left: Left,
}

/// Runs all cycles, and reports.
pub fn run(common: &Common, args: &KillArgs) -> Result<(), Failure> {
    let seed = args.seed.map_or_else(|| Ok(random_seed()), |seed| SCRIPTS.number(seed));
    let seed = seed.map_err(Failure::OtherVersion)?;
    let mut place = Place::new(&args.directory, "kill")?;
    let latency = Latency::measure(place.path(), Where::Same)?;
    let mut out = Out::new();
    if common.format == Format::Human {
        out.line(&format!("torture: seed {}", SCRIPTS.seed(seed)))?;
        out.line(&format!("torture: {}", latency.sentence()))?;
        if let Some(warning) = latency.warning() {
            out.line(&format!("torture: {warning}"))?;
        }
        out.flush()?;
    }
    let torture = Torture { common, seed, path: place.path().join("tortured.hrow") };
    let mut known = Known::default();
    let outcome = torture.run(args, &mut known);
    place.judge(&torture.path, outcome)?;
    let changes = known.left.there.iter().sum::<u64>();
    match common.format {
        Format::Human => {
            out.line(&format!("torture: {} records in the store at the end", known.left.found))?;
            out.line(&format!(
                "torture: {} kills, {changes} changes, {} of them acknowledged as durable, {} records replayed, \
                 slowest open {} ms: nothing was lost",
                known.kills,
                known.acknowledged,
                known.left.replayed,
                known.left.slowest_open.as_millis()
            ))?;
        }
        Format::Json => out.json(&json!({
            "seed": SCRIPTS.seed(seed).to_string(),
            "kills": known.kills,
            "changes": changes,
            "acknowledged": known.acknowledged,
            "replayed": known.left.replayed,
            "found": known.left.found,
            "slowest_opening_ms": known.left.slowest_open.as_secs_f64() * 1e3,
            "fsync": latency.as_json(),
        }))?,
    }
    out.finish()
}

/// Kills the process when this is dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may be gone already; and there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Torture<'_> {
    fn run(&self, args: &KillArgs, known: &mut Known) -> Result<(), Failure> {
        let most = args.cycles.unwrap_or(if args.seconds.is_some() { u64::MAX } else { CYCLES });
        let time = args.seconds.map(Duration::from_secs);
        let begun = Instant::now();
        let bar = progress::counter("kills");
        for cycle in 0..most {
            if time.is_some_and(|time| begun.elapsed() >= time) {
                break;
            }
            let outcome = self.kill_one(cycle, known).and_then(|told| {
                let memory_limit = self.common.memory_limit;
                known.left.check(&self.path, memory_limit, self.seed, &told)
            });
            let outcome = outcome.map_err(|failure| match failure {
                Failure::Found(words) => {
                    let seed = SCRIPTS.seed(self.seed);
                    Failure::Found(format!("cycle {cycle}, seed {seed}: {words}"))
                }
                other => other,
            });
            if outcome.is_err() {
                bar.finish_and_clear();
                return outcome;
            }
            known.kills = cycle + 1;
            bar.set_position(known.kills);
            if interrupt::requested() {
                bar.finish_and_clear();
                let seed = SCRIPTS.seed(self.seed);
                let done = format!("{} kills, seed {seed}: nothing was lost", known.kills);
                return Err(Failure::Interrupted(done));
            }
        }
        bar.finish_and_clear();
        Ok(())
    }

    /// Starts a writer and kills it. Returns what it acknowledged last of each thread.
    fn kill_one(&self, cycle: u64, known: &mut Known) -> Result<Clock, Failure> {
        let failed = |error: std::io::Error| Failure::Io("cannot start the writer".into(), error);
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(["torture", "writer"]).arg(&self.path).arg(self.seed.to_string());
        command.args(known.left.there.map(|number| number.to_string()));
        if let Some(bytes) = self.common.memory_limit {
            command.arg("--memory-limit").arg(bytes.to_string());
        }
        let mut child = Killed(command.stdout(Stdio::piped()).spawn().map_err(failed)?);
        let out = child.0.stdout.take().expect("it was asked for");
        let (send, lines) = channel();
        let read = move || {
            BufReader::new(out).lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        };
        let refused = |error| Failure::Io("cannot start the reading thread".into(), error);
        let reader = std::thread::Builder::new().spawn(read).map_err(refused)?;
        let dice = mix(self.seed ^ mix(cycle));
        // One in four is killed while it opens and recovers, the others while they write.
        let mut seen = Vec::new();
        if dice.is_multiple_of(4) {
            std::thread::sleep(Duration::from_micros(dice >> 8 & 0x7fff));
        } else {
            seen.extend(wait_for_opening(&lines)?);
            std::thread::sleep(Duration::from_millis((dice >> 8) % 120));
        }
        let cannot = |error: std::io::Error| Failure::Io("cannot kill the writer".into(), error);
        child.0.kill().map_err(cannot)?;
        let status = child.0.wait().map_err(cannot)?;
        if reader.join().is_err() {
            return Err(Failure::Other(
                "the thread that reads from the writer has panicked".into(),
            ));
        }
        if !was_killed(status) {
            return Err(ended_by_itself(status));
        }
        seen.extend(lines.try_iter());
        let mut acknowledged = Clock::default();
        for line in seen {
            let mut words = line.split(' ').map(str::parse::<u64>);
            if let (Some(Ok(thread)), Some(Ok(number))) = (words.next(), words.next())
                && let Some(last) = acknowledged.get_mut(thread as usize)
            {
                *last = number;
                known.acknowledged += 1;
            }
        }
        Ok(acknowledged)
    }
}

/// The line by which the writer says that it has opened the store. None: it has ended, and its status says how.
fn wait_for_opening(lines: &Receiver<String>) -> Result<Option<String>, Failure> {
    match lines.recv_timeout(LONGEST_OPENING) {
        Ok(line) => Ok(Some(line)),
        Err(RecvTimeoutError::Disconnected) => Ok(None),
        Err(RecvTimeoutError::Timeout) => {
            let what = "the writer did not open the store within a minute";
            Err(Failure::Found(what.into()))
        }
    }
}

/// Whether a process ended by the kill, and not by itself before; a fault of its own ends one by a signal, too.
fn was_killed(status: ExitStatus) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        status.signal() == Some(SIGKILL)
    }
    #[cfg(not(unix))]
    {
        !status.success()
    }
}

#[cfg(unix)]
const SIGKILL: i32 = 9;

/// The writer has said why on standard error.
fn ended_by_itself(status: ExitStatus) -> Failure {
    let words = format!("the writer ended without being killed: {status}");
    match status.code() {
        // As it ends where the machine says no, or the user.
        Some(0..=6 | 130) => Failure::Other(words),
        _ => Failure::Found(words),
    }
}
