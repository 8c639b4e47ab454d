//! Terminals as threads: for how long, what came of it, and the table of it.
//!
//! All threads begin together. A transaction that has begun is finished, also when the user interrupts or another terminal has failed, so
//! that the consistency conditions can be checked afterwards.

use super::engine::{Handles, Place, Store};
use super::isolated::Isolation;
use super::{DISTRICTS, Error, Kind, Outcome, Scale, Terminal, Work, conditions, isolated};
use crate::cell::Latency;
use crate::harness::latency;
use crate::numbers::show_number;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The most threads.
pub const MOST_THREADS: u32 = 1_024;
/// The longest time that a latency is counted as, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// When a terminal has entered enough.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// After so many seconds.
    Seconds(f64),
    /// After so many transactions.
    Transactions(u64),
}

/// What is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    /// How large the database is.
    pub scale: Scale,
    /// Terminals, each a thread.
    pub threads: u32,
    /// For how long.
    pub length: Length,
    /// What transactions may be mixed with. Older records have only steps.
    #[serde(default)]
    pub isolation: Isolation,
    /// Where random numbers begin.
    pub seed: u64,
    /// Whether it is counted what the tables take, and when.
    #[serde(default)]
    pub space: Option<Count>,
}

/// When it is counted what the tables take: each time twice, after the load and at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Count {
    /// As they are.
    AsTheyAre,
    /// After a compaction.
    Compacted,
}

/// Bytes of the pages of all tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// After the load.
    pub loaded_bytes: u64,
    /// At the end.
    pub bytes: u64,
}

impl Setting {
    /// Refuses what is out of range.
    ///
    /// Errors: `Refused`.
    pub fn check(&self) -> Result<(), Error> {
        self.scale.check()?;
        if !(1..=MOST_THREADS).contains(&self.threads) {
            let words = format!("{} threads: from 1 to {MOST_THREADS}", self.threads);
            return Err(Error::Refused(words));
        }
        match self.length {
            // A day, so that no clock ends before.
            Length::Seconds(seconds) if !(seconds > 0.0 && seconds <= 86_400.0) => {
                Err(Error::Refused(format!("{seconds} seconds: above 0 and up to 86400")))
            }
            _ => Ok(()),
        }
    }
}

fn merged() -> bool {
    true
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was run.
    pub setting: Setting,
    /// Whether the store was in a file.
    pub in_file: bool,
    /// Whether changes were logged.
    pub logged: bool,
    /// Whether leaves were merged with their neighbours before they were written. In older records they were.
    #[serde(default = "merged")]
    pub merges: bool,
    /// Bytes of a page.
    pub page_bytes: usize,
    /// The most bytes of memory.
    pub memory_limit_bytes: u64,
    /// Seconds that the load took, if the store was new.
    pub load_seconds: Option<f64>,
    /// Seconds from the common start to the end of the last transaction.
    pub seconds: f64,
    /// Transactions, those that were rolled back included.
    pub transactions: u64,
    /// Those of a second.
    pub per_second: f64,
    /// What came of each kind, in the order of [`Kind::ALL`].
    pub kinds: Vec<OfKind>,
    /// Whether the rows of the load were inserted one by one.
    #[serde(default)]
    pub inserted: bool,
    /// What the tables take, if it was counted.
    #[serde(default)]
    pub space: Option<Space>,
}

/// What came of a kind of transactions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OfKind {
    /// Which.
    pub kind: Kind,
    /// How many, those that were rolled back included.
    pub transactions: u64,
    /// Those of a second.
    pub per_second: f64,
    /// How many were rolled back.
    pub rolled_back: u64,
    /// How often a record had changed between reading and swapping it, or a transaction had met a conflict.
    pub retries: u64,
    /// Of Deliveries: districts without an order that could be delivered.
    pub skipped: u64,
    /// How long they took; none if there were none.
    pub latency: Option<Latency>,
}

/// What a terminal has done of a kind.
struct Tally {
    transactions: u64,
    rolled_back: u64,
    retries: u64,
    skipped: u64,
    nanoseconds: Histogram<u64>,
}

impl Tally {
    fn new() -> Tally {
        let nanoseconds = Histogram::new_with_max(LONGEST, 3).expect("the bounds are in order");
        Tally { transactions: 0, rolled_back: 0, retries: 0, skipped: 0, nanoseconds }
    }

    fn add(&mut self, other: &Tally) {
        self.transactions += other.transactions;
        self.rolled_back += other.rolled_back;
        self.retries += other.retries;
        self.skipped += other.skipped;
        self.nanoseconds.add(&other.nanoseconds).expect("the bounds are the same");
    }
}

type Tallies = [Tally; 5];

/// Opens the store, loads it if it is new, runs the terminals, and checks the consistency conditions. `is_interrupted` is asked before
/// each transaction and for each row that is loaded.
///
/// Errors: `Refused` for settings out of range and stores that do not fit; `Violated`; `Interrupted`, after the check; those of the store
/// and of the records.
pub fn run(
    place: &Place,
    setting: &Setting,
    is_interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<Measured, Error> {
    setting.check()?;
    let store = Store::open(place, &setting.scale, setting.seed, is_interrupted)?;
    let count = || -> Result<Option<u64>, Error> {
        match setting.space {
            None => return Ok(None),
            Some(Count::AsTheyAre) => {}
            Some(Count::Compacted) => store.compact()?,
        }
        store.tree_bytes().map(Some)
    };
    let loaded_bytes = count()?;
    let (seconds, tallies) = work(&store, setting, is_interrupted)?;
    conditions::check(&mut store.handles(), &setting.scale)?;
    if is_interrupted() {
        return Err(Error::Interrupted);
    }
    let bytes = count()?;
    let space = loaded_bytes.zip(bytes);
    let per_second = |count: u64| count as f64 / seconds.max(1e-9);
    let kinds = Kind::ALL.into_iter().zip(&tallies).map(|(kind, tally)| OfKind {
        kind,
        transactions: tally.transactions,
        per_second: per_second(tally.transactions),
        rolled_back: tally.rolled_back,
        retries: tally.retries,
        skipped: tally.skipped,
        latency: (tally.transactions > 0).then(|| latency(&tally.nanoseconds)),
    });
    let transactions = tallies.iter().map(|tally| tally.transactions).sum();
    let measured = Measured {
        setting: *setting,
        in_file: place.path.is_some(),
        logged: place.path.is_some() && !place.is_without_log,
        merges: !place.is_without_merges,
        page_bytes: store.page_bytes(),
        memory_limit_bytes: store.memory_limit_bytes()?,
        load_seconds: store.load_seconds,
        seconds,
        transactions,
        per_second: per_second(transactions),
        kinds: kinds.collect(),
        inserted: place.is_inserted,
        space: space.map(|(loaded_bytes, bytes)| Space { loaded_bytes, bytes }),
    };
    store.close()?;
    Ok(measured)
}

/// Seconds, and what all terminals have done together.
fn work(
    store: &Store,
    setting: &Setting,
    is_interrupted: &(dyn Fn() -> bool + Sync),
) -> Result<(f64, Tallies), Error> {
    let start = Barrier::new(setting.threads as usize + 1);
    let has_failed = AtomicBool::new(false);
    let outcomes = std::thread::scope(|scope| {
        let (start, has_failed) = (&start, &has_failed);
        let terminals: Vec<_> = (0..setting.threads)
            .map(|number| {
                let handles = store.handles();
                scope.spawn(move || {
                    start.wait();
                    let is_over = || has_failed.load(Ordering::Relaxed) || is_interrupted();
                    let outcome = enter(handles, setting, number, &is_over);
                    if outcome.is_err() {
                        has_failed.store(true, Ordering::Relaxed);
                    }
                    outcome
                })
            })
            .collect();
        start.wait();
        let begun = Instant::now();
        let ends: Vec<_> = terminals.into_iter().map(|terminal| terminal.join()).collect();
        (begun.elapsed().as_secs_f64(), ends)
    });
    let (seconds, ends) = outcomes;
    let mut sums: Tallies = std::array::from_fn(|_| Tally::new());
    for end in ends {
        let tallies = end.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        sums.iter_mut().zip(&tallies).for_each(|(sum, tally)| sum.add(tally));
    }
    Ok((seconds, sums))
}

/// One terminal, until it has entered enough or it is over.
fn enter(
    mut handles: Handles,
    setting: &Setting,
    number: u32,
    is_over: &dyn Fn() -> bool,
) -> Result<Tallies, Error> {
    let mut terminal = Terminal::new(setting.scale, setting.seed, number);
    let mut tallies: Tallies = std::array::from_fn(|_| Tally::new());
    let mut entered = 0;
    let begun = Instant::now();
    let mut now = begun;
    loop {
        let is_enough = match setting.length {
            Length::Seconds(seconds) => now - begun >= Duration::from_secs_f64(seconds),
            Length::Transactions(transactions) => entered >= transactions,
        };
        if is_enough || is_over() {
            return Ok(tallies);
        }
        let transaction = terminal.draw();
        let started = Instant::now();
        let (outcome, retries) = match setting.isolation.of_store() {
            Some(isolation) => isolated::run(&transaction, &handles, isolation, entered)?,
            None => {
                let mut work = Work::new(&mut handles);
                work.date = entered;
                (transaction.run(&mut work)?, work.retries)
            }
        };
        now = Instant::now();
        entered += 1;
        let tally = &mut tallies[transaction.kind() as usize];
        tally.transactions += 1;
        tally.retries += retries;
        tally.nanoseconds.saturating_record((now - started).as_nanos() as u64);
        match outcome {
            Outcome::RolledBack => tally.rolled_back += 1,
            Outcome::Done(delivered) if transaction.kind() == Kind::Delivery => {
                tally.skipped += u64::from(DISTRICTS).saturating_sub(delivered as u64);
            }
            Outcome::Done(_) => {}
        }
    }
}

/// A table of all runs, in Markdown.
pub fn table(all: &[Measured]) -> String {
    let mut text = String::from("\n## TPC-C\n");
    for one in all {
        let Scale { warehouses, share } = one.setting.scale;
        let (isolation, again) = match one.setting.isolation {
            Isolation::Steps => ("each step atomic alone", "swaps again a transaction"),
            Isolation::Snapshot => ("in transactions with snapshot isolation", "runs again"),
            Isolation::Serializable => ("in serializable transactions", "runs again"),
        };
        let place = match (one.in_file, one.logged) {
            (false, _) => "in memory",
            (true, false) => "in a file, without a log",
            (true, true) => "in a file, logged",
        };
        text += &format!(
            "\nWarehouses: {warehouses}, at scale {share}, {} threads, {place}, pages of {} bytes, memory limit {} MiB: {} transactions/s \
             for {:.1} s, {isolation}. The consistency conditions hold.\n\n| transaction | a second | share, % | rolled back | {again} \
             | districts skipped | median us | 99 % us | 99.9 % us | longest us |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
            one.setting.threads,
            one.page_bytes,
            one.memory_limit_bytes >> 20,
            show_number(one.per_second),
            one.seconds,
        );
        for of in &one.kinds {
            let count = of.transactions.max(1) as f64;
            let latencies = match &of.latency {
                Some(Latency { p50_us, p99_us, p999_us, max_us, .. }) => {
                    [p50_us, p99_us, p999_us, max_us].map(|us| show_number(*us)).join(" | ")
                }
                None => " | | | ".into(),
            };
            text += &format!(
                "| {} | {} | {:.1} | {} | {:.4} | {} | {latencies} |\n",
                of.kind.name(),
                show_number(of.per_second),
                100.0 * of.transactions as f64 / one.transactions.max(1) as f64,
                of.rolled_back,
                of.retries as f64 / count,
                of.skipped,
            );
        }
        if let Some(Space { loaded_bytes, bytes }) = one.space {
            let new = one.kinds.iter().find(|of| of.kind == Kind::NewOrder);
            let new = new.map_or(0, |of| of.transactions - of.rolled_back).max(1);
            text += &format!(
                "\nInitial data {}{}: {:.1} MiB a warehouse; new data {:.3} KiB a New-Order.\n",
                if one.inserted { "inserted" } else { "loaded in bulk" },
                if one.setting.space == Some(Count::Compacted) { ", compacted" } else { "" },
                loaded_bytes as f64 / f64::from(warehouses) / 1_048_576.0,
                bytes.saturating_sub(loaded_bytes) as f64 / new as f64 / 1_024.0,
            );
        }
    }
    text
}
