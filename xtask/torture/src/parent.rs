//! The killer: starts writers, kills them, and checks what they leave.
//!
//! What must hold after each kill: every thread's keys hold what they held after a first part of its changes, batches
//! among them;
//! all that was acknowledged as durable is in that part; if a change is there, so are all that were done before it
//! began; a verification finds nothing; the file's bytes add up. Single-threaded, but for one reader a child.

use crate::script::{Change, Clock, KEYSPACE, State, THREADS, change, mix, options, read_value};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// What is asked for.
pub struct Torture {
    /// Kills.
    pub cycles: u64,
    /// Of everything random.
    pub seed: u64,
    /// Where the store goes.
    pub directory: Option<PathBuf>,
}

/// What is known of the store.
#[derive(Default)]
struct Known {
    /// The changes of each thread that are there.
    there: Clock,
    states: [State; THREADS],
    acknowledged: u64,
    replayed: u64,
    slowest_open: Duration,
}

impl Torture {
    /// Runs all cycles.
    pub fn run(&self) -> Result<(), String> {
        println!("torture: seed {}", self.seed);
        let place = match &self.directory {
            Some(directory) => tempfile::tempdir_in(directory),
            None => tempfile::tempdir(),
        };
        let place = place.map_err(|error| format!("no directory: {error}"))?;
        let path = place.path().join("tortured.hrow");
        let mut known = Known::default();
        for cycle in 0..self.cycles {
            let outcome = self.kill_one(&path, cycle, &mut known);
            let checked = outcome.and_then(|told| known.check(self.seed, &path, &told));
            if let Err(words) = checked {
                // For whoever looks into it.
                let kept = place.keep();
                let kept = kept.display();
                return Err(format!("cycle {cycle}, seed {}: {words}; see {kept}", self.seed));
            }
        }
        println!(
            "torture: {} kills, {} changes, {} of them acknowledged as durable, {} records replayed, \
             slowest opening {} ms: all is there",
            self.cycles,
            known.there.iter().sum::<u64>(),
            known.acknowledged,
            known.replayed,
            known.slowest_open.as_millis()
        );
        Ok(())
    }

    /// Starts a writer and kills it. Returns what it acknowledged last of each thread.
    fn kill_one(&self, path: &Path, cycle: u64, known: &mut Known) -> Result<Clock, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .arg("child")
            .arg(path)
            .arg(self.seed.to_string())
            .args(known.there.map(|number| number.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start a writer: {error}"))?;
        let out = child.stdout.take().ok_or("the writer has no standard output")?;
        let (send, lines) = channel();
        let reader = std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).all(|line| send.send(line).is_ok())
        });
        let dice = mix(self.seed ^ mix(cycle));
        // One in four is killed while it opens and recovers, the others while they write.
        let mut seen = Vec::new();
        if dice.is_multiple_of(4) {
            std::thread::sleep(Duration::from_micros(dice >> 8 & 0x7fff));
        } else {
            seen.push(wait_for_opening(&lines)?);
            std::thread::sleep(Duration::from_millis((dice >> 8) % 120));
        }
        child.kill().map_err(|error| format!("cannot kill: {error}"))?;
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.code().is_some() {
            return Err(format!("the writer has ended by itself: {status}"));
        }
        reader.join().map_err(|_| "the reader has panicked")?;
        seen.extend(lines.try_iter());
        let mut acknowledged = Clock::default();
        for line in seen {
            let mut words = line.split(' ').map(str::parse);
            if let (Some(Ok::<usize, _>(thread)), Some(Ok(number))) = (words.next(), words.next()) {
                acknowledged[thread] = number as u64;
                known.acknowledged += 1;
            }
        }
        Ok(acknowledged)
    }
}

fn wait_for_opening(lines: &Receiver<String>) -> Result<String, String> {
    lines
        .recv_timeout(Duration::from_secs(60))
        .map_err(|error| format!("the writer has not opened the store: {error}"))
}

impl Known {
    /// Opens what is left, and compares.
    fn check(&mut self, seed: u64, path: &Path, acknowledged: &Clock) -> Result<(), String> {
        let started = Instant::now();
        // A writer that was killed early may have left nothing at all.
        let db = options().open_or_create(path).map_err(|error| error.to_string())?;
        self.slowest_open = self.slowest_open.max(started.elapsed());
        self.replayed += db.replayed().records;
        let keyspace = db.keyspace(KEYSPACE).map_err(|error| error.to_string())?;
        let mut found: [State; THREADS] = Default::default();
        let mut needed = Clock::default();
        for record in keyspace.iter() {
            let (key, value) = record.map_err(|error| error.to_string())?;
            let what = || String::from_utf8_lossy(&key).into_owned();
            let thread = usize::from(key[0].wrapping_sub(b'0'));
            let read = read_value(&value).filter(|_| thread < THREADS);
            let (number, clock) = read.ok_or_else(|| format!("the value of {} is torn", what()))?;
            let written = change(seed, thread, number);
            if !written.keys.iter().any(|written| *written == *key)
                || written.value_bytes != Some(value.len())
            {
                return Err(format!("{} has the value of another change: {number}", what()));
            }
            for (most, done) in needed.iter_mut().zip(clock) {
                *most = (*most).max(done);
            }
            found[thread].insert(key.to_vec(), number);
        }
        for (thread, found) in found.iter().enumerate() {
            self.follow(seed, thread, found, acknowledged[thread].max(needed[thread]))?;
        }
        let report = db.verify(|_| ()).map_err(|error| error.to_string())?;
        if !report.is_clean() {
            return Err(format!("{:#?}", report.findings));
        }
        let space = db.space_report().map_err(|error| error.to_string())?;
        let sum = space.header_bytes + space.used_bytes + space.free_bytes;
        if sum + space.quarantined_bytes + space.out_bytes != space.file_bytes {
            return Err(format!("the file does not add up: {space:?}"));
        }
        // Not closed: the next writer recovers too. It may be a kill as well.
        drop(db);
        Ok(())
    }

    /// Goes on with a thread's changes, at least up to `least`, until its keys hold what was found. Where that is
    /// so at several places, changes between them leave no trace, and it does not matter which is the right one.
    fn follow(
        &mut self,
        seed: u64,
        thread: usize,
        found: &State,
        least: u64,
    ) -> Result<(), String> {
        let state = &mut self.states[thread];
        let newest = found.values().copied().max().unwrap_or(0).max(least);
        let mut there = self.there[thread];
        while there < newest || state != found {
            // What comes behind the newest value that is there has been removed again, within a few changes.
            if there > newest + MOST_BEHIND {
                return Err(format!(
                    "thread {thread}: its keys hold no first part of its changes with the {least}th, which was \
                     acknowledged as durable, or seen by a change that is there; the newest is {newest}"
                ));
            }
            there += 1;
            apply(state, change(seed, thread, there), there);
        }
        self.there[thread] = there;
        Ok(())
    }
}

/// Changes that are tried behind the newest that has left something.
const MOST_BEHIND: u64 = 2000;

fn apply(state: &mut State, change: Change, number: u64) {
    for key in change.keys {
        match change.value_bytes {
            Some(_) => state.insert(key, number),
            None => state.remove(&key),
        };
    }
}

/// Says which keys of each thread differ from what its changes up to the newest one make of them.
pub fn look(path: &Path, seed: u64) -> Result<(), String> {
    let db = options().open_read_only(path).map_err(|error| error.to_string())?;
    println!("replayed: {:?}", db.replayed());
    let keyspace = db.keyspace(KEYSPACE).map_err(|error| error.to_string())?;
    let mut found: [State; THREADS] = Default::default();
    for record in keyspace.iter() {
        let (key, value) = record.map_err(|error| error.to_string())?;
        let thread = usize::from(key[0].wrapping_sub(b'0')).min(THREADS - 1);
        found[thread].insert(key.to_vec(), read_value(&value).map_or(0, |read| read.0));
    }
    for (thread, found) in found.iter().enumerate() {
        let newest = found.values().copied().max().unwrap_or(0);
        let mut state = State::new();
        for number in 1..=newest {
            apply(&mut state, change(seed, thread, number), number);
        }
        println!("thread {thread}: {} keys, the newest by change {newest}", found.len());
        let keys = state.keys().chain(found.keys()).collect::<std::collections::BTreeSet<_>>();
        for key in keys.into_iter().filter(|key| state.get(*key) != found.get(*key)) {
            let name = String::from_utf8_lossy(key);
            let (wanted, there) = (state.get(key), found.get(key));
            println!("  {name}: change {wanted:?} is due, and {there:?} is there");
        }
    }
    Ok(())
}
