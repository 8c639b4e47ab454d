//! Two threads update two keys: of one leaf, without and with Contention Split, and of two leaves.
//!
//! `cargo run --release -p hedgerow-bench --example two_keys [TURNS] [MILLISECONDS]`
//!
//! Prints updates a second of both threads together, medians of the turns, and what they are of those in two leaves. The kinds
//! alternate within a turn. Each run makes a store of its own, and begins to count when it has been running for a while. It
//! wants two processors that have nothing else to do.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // Threads and clocks of an example.

use hedgerow::{ContentionSplit, Error, Keyspace, Options};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Records of a keyspace that is one leaf, and of one that has many.
const ONE_LEAF: u32 = 20;
const MANY_LEAVES: u32 = 20_000;

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    records: u32,
    split: Option<ContentionSplit>,
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (Ok(turns), Ok(milliseconds)) = (number(9), number(300)) else {
        eprintln!("usage: two_keys [TURNS] [MILLISECONDS]");
        std::process::exit(2);
    };
    let kind = |name, records, split| Kind { name, records, split };
    let kinds = [
        kind("two leaves, off", MANY_LEAVES, None),
        kind(
            "two leaves, a thirtieth",
            MANY_LEAVES,
            Some(ContentionSplit::if_thirtieth_contended()),
        ),
        kind("one leaf, off", ONE_LEAF, None),
        kind("one leaf, a thirtieth", ONE_LEAF, Some(ContentionSplit::if_thirtieth_contended())),
        kind("one leaf, all", ONE_LEAF, Some(ContentionSplit::if_all_contended())),
    ];
    for logged in [false, true] {
        println!("{}", if logged { "in a file, with a log" } else { "in memory" });
        let mut rates = vec![Vec::new(); kinds.len()];
        let mut splits = vec![0; kinds.len()];
        for _ in 0..turns.max(1) {
            for ((kind, rates), splits) in kinds.iter().zip(&mut rates).zip(&mut splits) {
                let (rate, done) = run(*kind, logged, Duration::from_millis(milliseconds))?;
                rates.push(rate);
                *splits += done;
            }
        }
        let median = |rates: &mut Vec<f64>| {
            rates.sort_by(f64::total_cmp);
            rates[rates.len() / 2]
        };
        let medians: Vec<f64> = rates.iter_mut().map(median).collect();
        for (((kind, rates), median), splits) in kinds.iter().zip(&rates).zip(&medians).zip(&splits)
        {
            println!(
                "  {:<24} {:>6.2} M/s ({:.2} to {:.2}), {:>5.1} % of two leaves; {splits} splits in {turns} turns",
                kind.name,
                median / 1e6,
                rates[0] / 1e6,
                rates[rates.len() - 1] / 1e6,
                100.0 * median / medians[0],
            );
        }
    }
    Ok(())
}

/// Updates a second, and how often a leaf was split.
fn run(kind: Kind, logged: bool, time: Duration) -> Result<(f64, u64), Error> {
    let options = Options::new().memory_limit_bytes(64 << 20);
    let db = if logged { options.temporary()? } else { options.in_memory()? };
    let keyspace = db.keyspace("counters")?.with_contention_split(kind.split);
    // In no order, so that the leaves are no run of insertions.
    for number in 0..kind.records {
        keyspace.put(&key_of(number * 12_347 % kind.records), &[0; 8])?;
    }
    let (counting, stops, counted) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
    let update = |keyspace: &Keyspace, key: &[u8]| {
        let mut updates = 0_u64;
        while !stops.load(Relaxed) {
            for _ in 0..64 {
                updates += 1;
                keyspace.update(key, &updates.to_le_bytes())?;
            }
            if counting.load(Relaxed) {
                counted.fetch_add(64, Relaxed);
            }
        }
        Ok::<_, Error>(())
    };
    let update = &update;
    let seconds = thread::scope(|scope| {
        let threads = [kind.records / 4, kind.records - kind.records / 4].map(|number| {
            let keyspace = &keyspace;
            scope.spawn(move || update(keyspace, &key_of(number)))
        });
        thread::sleep(time / 3);
        let since = Instant::now();
        counting.store(true, Relaxed);
        thread::sleep(time);
        counting.store(false, Relaxed);
        let seconds = since.elapsed().as_secs_f64();
        stops.store(true, Relaxed);
        for thread in threads {
            thread.join().expect("it does not panic")?;
        }
        Ok::<_, Error>(seconds)
    })?;
    Ok((counted.load(Relaxed) as f64 / seconds, db.stats()?.contention.splits))
}

fn key_of(number: u32) -> [u8; 16] {
    let mut key = *b"counter:0000000:";
    key[8..12].copy_from_slice(&number.to_be_bytes());
    key
}
