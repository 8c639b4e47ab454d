//! What is left of a store that was written by a script: whether it is what must be there, and what is wrong with it.
//!
//! `torture kill` checks so after each kill, and the hidden `torture check` does for whoever makes accidents that this
//! process would not outlive.
//!
//! Invariant: `states` is what the first `there` changes of each thread make of its keys; a check only goes forward from
//! there. Single-threaded.

use super::script::{
    Change, Clock, KEYSPACE, SCRIPTS, State, THREADS, change, options, read_value,
};
use super::seed::Seed;
use super::{unexpected, verify_to_the_byte};
use crate::args::{Common, Format};
use crate::escape::escape;
use crate::failure::Failure;
use crate::output::Out;
use crate::size::show_number_of;
use crate::store;
use clap::Args;
use hedgerow::ErrorKind;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Arguments of `torture look`.
#[derive(Debug, Args)]
pub struct LookArgs {
    /// Store file
    store: PathBuf,
    /// Seed that the run printed
    seed: Seed,
}

/// Arguments of `torture check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Store file
    store: PathBuf,
    /// Of what was written
    seed: u64,
    /// Changes of each thread that were there before, such as 7,0,12
    #[arg(long, value_name = "N,N,N", value_delimiter = ',', required = true)]
    there: Vec<u64>,
    /// The last change of each thread that was acknowledged as durable; 0 for none
    #[arg(long, value_name = "N,N,N", value_delimiter = ',', required = true)]
    acknowledged: Vec<u64>,
}

/// What is known of what is left.
#[derive(Default)]
pub struct Left {
    /// The changes of each thread that are there.
    pub there: Clock,
    states: [State; THREADS],
    /// Records that were replayed by all openings.
    pub replayed: u64,
    /// Records in the store at the last check.
    pub found: u64,
    /// Of all checks.
    pub slowest_open: Duration,
}

/// Checks what is left once, and says in a line of JSON what is there now.
pub fn check(common: &Common, args: &CheckArgs) -> Result<(), Failure> {
    let clock = |numbers: &[u64]| {
        Clock::try_from(numbers)
            .map_err(|_| Failure::Usage(format!("give one number for each of {THREADS} threads")))
    };
    let acknowledged = clock(&args.acknowledged)?;
    let mut left = Left::after(args.seed, clock(&args.there)?);
    left.check(&args.store, common.memory_limit, args.seed, &acknowledged)?;
    let mut out = Out::new();
    out.json(&json!({ "there": left.there, "found": left.found, "replayed": left.replayed }))?;
    out.finish()
}

impl Left {
    /// What is there after so many changes of each thread.
    fn after(seed: u64, there: Clock) -> Left {
        let mut left = Left { there, ..Left::default() };
        for (thread, state) in left.states.iter_mut().enumerate() {
            for number in 1..=there[thread] {
                apply(state, change(seed, thread, number), number);
            }
        }
        left
    }

    /// Opens what is left, and compares.
    pub fn check(
        &mut self,
        store: &Path,
        memory_limit_bytes: Option<u64>,
        seed: u64,
        acknowledged: &Clock,
    ) -> Result<(), Failure> {
        let started = Instant::now();
        // A writer that was killed early may have left nothing at all.
        let db = options(memory_limit_bytes)
            .open_or_create(store)
            .map_err(unexpected("cannot open the store after the kill"))?;
        self.slowest_open = self.slowest_open.max(started.elapsed());
        self.replayed += db.replayed().records;
        let keyspace =
            db.keyspace(KEYSPACE).map_err(unexpected("cannot read the store after the kill"))?;
        let mut found: [State; THREADS] = Default::default();
        let mut needed = Clock::default();
        self.found = 0;
        for record in keyspace.iter() {
            let (key, value) = record.map_err(unexpected("cannot read all records"))?;
            let what = || String::from_utf8_lossy(&key).into_owned();
            let thread = thread_of(&key);
            let read = read_value(&value).filter(|_| thread < THREADS);
            let (number, clock) = read.ok_or_else(|| {
                Failure::Found(format!("the value of {} is not one that was written", what()))
            })?;
            let written = change(seed, thread, number);
            if !written.keys.iter().any(|written| written[..] == key[..])
                || written.value_bytes != Some(value.len())
            {
                let words = format!(
                    "{} has the value of change {number}, which wrote something else",
                    what()
                );
                return Err(Failure::Found(words));
            }
            for (most, done) in needed.iter_mut().zip(clock) {
                *most = (*most).max(done);
            }
            found[thread].insert(key.to_vec(), number);
            self.found += 1;
        }
        for (thread, found) in found.iter().enumerate() {
            self.follow(seed, thread, found, acknowledged[thread].max(needed[thread]))?;
        }
        // Not closed: the next writer recovers too. It may be a kill as well.
        verify_to_the_byte(&db, store)
    }

    /// Goes on with a thread's changes, at least up to `least`, until its keys hold what was found. Where that is
    /// so at several places, changes between them leave no trace, and it does not matter which is the right one.
    fn follow(
        &mut self,
        seed: u64,
        thread: usize,
        found: &State,
        least: u64,
    ) -> Result<(), Failure> {
        let state = &mut self.states[thread];
        let newest = found.values().copied().max().unwrap_or(0).max(least);
        let mut there = self.there[thread];
        while there < newest || state != found {
            // What comes behind the newest value that is there has been removed again, within a few changes.
            if there > newest + MOST_BEHIND {
                return Err(Failure::Found(format!(
                    "thread {thread}: its keys do not hold a prefix of its changes that includes change {least}, which was \
                     acknowledged as durable, or seen by a change that is there; the newest is {newest}"
                )));
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

/// The thread whose key this is; too high a number for a key of none.
fn thread_of(key: &[u8]) -> usize {
    usize::from(key.first().map_or(u8::MAX, |first| first.wrapping_sub(b'0')))
}

/// What a thread's keys hold, against what its changes up to the newest one make of them.
struct Seen {
    keys: usize,
    newest: u64,
    differences: Vec<Difference>,
}

/// A key that has the value of another change than it should.
struct Difference {
    key: String,
    /// `None`: no record.
    expected: Option<u64>,
    found: Option<u64>,
}

/// Says which keys of each thread differ from what its changes up to the newest one make of them.
pub fn look(common: &Common, args: &LookArgs) -> Result<(), Failure> {
    let seed = SCRIPTS.number(args.seed).map_err(Failure::OtherVersion)?;
    let opened = options(common.memory_limit).open_read_only(&args.store);
    let db = opened.map_err(|error| match error.kind() {
        // A path with a mistake in it is no finding.
        ErrorKind::FileNotFound | ErrorKind::NotAStore => store::failed("open", &args.store)(error),
        _ => unexpected("cannot open the store")(error),
    })?;
    let keyspace = store::keyspace_named(&db, KEYSPACE, &args.store)?;
    let mut found: [State; THREADS] = Default::default();
    for record in keyspace.iter() {
        let (key, value) = record.map_err(unexpected("cannot read all records"))?;
        let thread = thread_of(&key).min(THREADS - 1);
        found[thread].insert(key.to_vec(), read_value(&value).map_or(0, |read| read.0));
    }
    let seen = |(thread, found)| compare(seed, thread, found);
    let threads: Vec<Seen> = found.iter().enumerate().map(seen).collect();
    let mut out = Out::new();
    match common.format {
        Format::Human => print(&mut out, db.replayed().records, &threads)?,
        Format::Json => out.json(&as_json(db.replayed().records, &threads))?,
    }
    out.finish()
}

fn compare(seed: u64, thread: usize, found: &State) -> Seen {
    let newest = found.values().copied().max().unwrap_or(0);
    let mut state = State::new();
    for number in 1..=newest {
        apply(&mut state, change(seed, thread, number), number);
    }
    let keys = state.keys().chain(found.keys()).collect::<BTreeSet<_>>();
    let differences = keys.into_iter().filter(|key| state.get(*key) != found.get(*key));
    let differences = differences.map(|key| Difference {
        key: escape(key),
        expected: state.get(key).copied(),
        found: found.get(key).copied(),
    });
    Seen { keys: found.len(), newest, differences: differences.collect() }
}

fn print(out: &mut Out, replayed: u64, threads: &[Seen]) -> Result<(), Failure> {
    out.line(&format!("replayed {} from the log", show_number_of(replayed, "change")))?;
    for (thread, Seen { keys, newest, differences }) in threads.iter().enumerate() {
        let keys = show_number_of(*keys as u64, "key");
        out.line(&format!("thread {thread}: {keys}, the newest from change {newest}"))?;
        for Difference { key, expected, found } in differences {
            let (expected, found) = (said(*expected), said(*found));
            out.line(&format!("  {key}: expected {expected}, found {found}"))?;
        }
    }
    Ok(())
}

/// What a key holds, in words.
fn said(change: Option<u64>) -> String {
    match change {
        None => "no record".to_owned(),
        Some(0) => "a value that no change wrote".to_owned(),
        Some(number) => format!("the value of change {number}"),
    }
}

fn as_json(replayed: u64, threads: &[Seen]) -> Json {
    let threads = threads.iter().enumerate().map(|(thread, seen)| {
        let differences = seen.differences.iter().map(|difference| {
            let Difference { key, expected, found } = difference;
            json!({ "key": key, "expected_change": expected, "found_change": found })
        });
        json!({
            "thread": thread,
            "keys": seen.keys,
            "newest_change": seen.newest,
            "differences": differences.collect::<Vec<_>>(),
        })
    });
    json!({ "replayed": replayed, "threads": threads.collect::<Vec<_>>() })
}
