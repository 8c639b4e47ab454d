//! A leaf that threads contend for, before and after it was split between their keys.
//!
//! Two threads or more update the records of one leaf, for a moment without Contention Split and then with it. Where they
//! never meet, because there is one processor or the system runs them one after the other, nothing is split: the step says
//! so, and that is no failure. The keyspace goes away afterwards.

use crate::failure::Failure;
use crate::interrupt;
use crate::size::show_rate;
use crate::store;
use hedgerow::{ContentionSplit, Database, Keyspace};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const KEYSPACE: &str = "tour/hot";
/// Records of the leaf: each thread has some of its own.
const KEYS: u64 = 16;
/// How long the threads update without splits, and with them before the figures are taken.
const MOMENT: Duration = Duration::from_millis(200);
/// How long contention is waited for.
const LONGEST: Duration = Duration::from_secs(1);
/// Updates between two looks at the clock.
const ROUND: u64 = 64;

/// What came of it.
pub struct Healed {
    /// Updates of all threads.
    pub updates: u64,
    threads: usize,
    splits: u64,
    leaves: [u64; 2],
    /// Updates a second of all threads, without splits and after them.
    rates: [f64; 2],
}

impl Healed {
    /// In words, short enough for a line of the report.
    pub fn how(&self) -> String {
        let rate = |rate: f64| show_rate(rate as u64, 1.0);
        match self.splits {
            0 => "threads met too seldom".to_owned(),
            _ => {
                let [before, after] = self.rates.map(rate);
                format!("{} leaves: {before} to {after}", self.leaves[1])
            }
        }
    }

    /// The same for programs.
    pub fn as_json(&self) -> Json {
        json!({
            "threads": self.threads,
            "splits": self.splits,
            "leaves_before": self.leaves[0],
            "leaves_after": self.leaves[1],
            "updates_per_second_before": self.rates[0],
            "updates_per_second_after": self.rates[1],
        })
    }
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// Makes the leaf hot, and looks at what becomes of it.
pub fn heal(db: &Database, path: &Path, threads: usize) -> Result<Healed, Failure> {
    let failed = || store::failed("write to", path);
    let threads = threads.clamp(2, 8);
    let keyspace = db.keyspace(KEYSPACE).map_err(failed())?;
    let quiet = keyspace.clone().with_contention_split(None);
    for n in 0..KEYS {
        quiet.put(&key(n), &0_u64.to_le_bytes()).map_err(failed())?;
    }
    let leaves =
        || keyspace.stats().map(|stats| stats.levels.first().map_or(0, |level| level.pages));
    let splits = || db.stats().map(|stats| stats.contention.splits);
    let (before, leaves_before) = (splits().map_err(failed())?, leaves().map_err(failed())?);
    let (quiet_updates, quiet_rate) = update(&quiet, threads, MOMENT).map_err(failed())?;
    let healing =
        keyspace.clone().with_contention_split(Some(ContentionSplit::if_thirtieth_contended()));
    let (mut updates, since) = (quiet_updates, Instant::now());
    // Until it is split, and then a moment more.
    let rate = loop {
        let is_split = splits().map_err(failed())? > before;
        let (more, its_rate) = update(&healing, threads, MOMENT).map_err(failed())?;
        updates += more;
        interrupt::check()?;
        if is_split || since.elapsed() > LONGEST {
            break its_rate;
        }
    };
    let (after, leaves_after) = (splits().map_err(failed())?, leaves().map_err(failed())?);
    let mut sum = 0;
    for n in 0..KEYS {
        let value = keyspace.get(&key(n)).map_err(failed())?;
        let count: Option<[u8; 8]> = value.and_then(|value| value[..].try_into().ok());
        sum += count.map_or(0, u64::from_le_bytes);
    }
    if sum != updates {
        return Err(Failure::Other(format!("{updates} updates were made, and {sum} are there")));
    }
    db.drop_keyspace(KEYSPACE).map_err(failed())?;
    Ok(Healed {
        updates,
        threads,
        splits: after - before,
        leaves: [leaves_before, leaves_after],
        rates: [quiet_rate, rate],
    })
}

/// Lets each thread count up in its own records for a while. Tells how many updates that were, and how many a second.
fn update(keyspace: &Keyspace, threads: usize, time: Duration) -> hedgerow::Result<(u64, f64)> {
    let (started, stops, sum) = (Instant::now(), AtomicBool::new(false), AtomicU64::new(0));
    let all = threads as u64;
    let work = |own: u64| -> hedgerow::Result<()> {
        let mut next = own;
        while !stops.load(Ordering::Relaxed) && started.elapsed() < time {
            for _ in 0..ROUND {
                let value = keyspace.get(&key(next))?;
                let count: Option<[u8; 8]> = value.and_then(|value| value[..].try_into().ok());
                let more = count.map_or(0, u64::from_le_bytes) + 1;
                keyspace.update(&key(next), &more.to_le_bytes())?;
                next = if next + all < KEYS { next + all } else { own };
            }
            // Seldom, or threads would meet here instead of at the leaf.
            sum.fetch_add(ROUND, Ordering::Relaxed);
        }
        Ok(())
    };
    let work = &work;
    let done = thread::scope(|scope| {
        let running: Vec<_> = (1..all)
            .filter_map(|own| thread::Builder::new().spawn_scoped(scope, move || work(own)).ok())
            .collect();
        let mut done = work(0);
        stops.store(true, Ordering::Relaxed);
        for thread in running {
            let joined =
                thread.join().unwrap_or_else(|panicked| std::panic::resume_unwind(panicked));
            done = done.and(joined);
        }
        done
    });
    done?;
    let updates = sum.load(Ordering::Relaxed);
    Ok((updates, updates as f64 / started.elapsed().as_secs_f64()))
}
