//! What transactions and snapshots cost beside plain calls, by the clock: pairs of the same work in turns, and the median of their ratios.
//!
//! `transaction_pairs [TURNS [ROUNDS [memory|file]]]`: each turn runs both sides of each row, so many rounds of each, the first side first in every other
//! turn. It prints one line of JSON for the machine and one for each row: the medians of both sides in nanoseconds a round, and of the
//! ratio with its quartiles. Keys of 8 bytes, 200,000 records of 40 bytes, 256 MiB of memory; a transaction of ten puts changes ten leaves. Of
//! the rows with eight threads a round is one transaction, each thread has keys of its own, and a conflict is an error.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "clocks of an example")]

use hedgerow::{Database, Isolation, Keyspace, Options, Result};
use hedgerow_bench::machine;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

const KEYS: u64 = 200_000;
const TEN: u64 = 10;
const THREADS: u64 = 8;
const VALUE: [u8; 40] = [7; 40];

/// Both sides of a row.
const ROWS: [(&str, &str); 7] = [
    ("put", "put_in"),
    ("puts", "puts_in"),
    ("get_put", "get_put_in"),
    ("get", "get_as_of"),
    ("put", "put_with_snapshots"),
    ("threads_1_put_in", "threads_8_put_in"),
    ("threads_1_puts_in", "threads_8_puts_in"),
];

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Keys far from each other, other ones in each round.
fn number(round: u64, member: u64) -> u64 {
    (round * 7919 + member * (KEYS / TEN)) % KEYS
}

/// One transaction, of `count` puts, after a get of the same key if `reads`.
fn transact(db: &Database, keyspace: &Keyspace, keys: &[u64], reads: bool) -> Result<()> {
    let transaction = db.transaction(Isolation::Serializable);
    let handle = transaction.keyspace(keyspace)?;
    for number in keys {
        if reads {
            handle.get(&key(*number))?;
        }
        handle.put(&key(*number), &VALUE)?;
    }
    transaction.commit().map(drop)
}

/// Nanoseconds a round.
fn measure(db: &Database, keyspace: &Keyspace, what: &str, rounds: u64) -> Result<f64> {
    let begun = Instant::now();
    match what {
        "put" => rounds_of(rounds, |round| keyspace.put(&key(number(round, 0)), &VALUE).map(drop))?,
        "puts" => rounds_of(rounds, |round| {
            (0..TEN)
                .try_for_each(|member| keyspace.put(&key(number(round, member)), &VALUE).map(drop))
        })?,
        "get" => rounds_of(rounds, |round| keyspace.get(&key(number(round, 0))).map(drop))?,
        "get_put" => rounds_of(rounds, |round| {
            keyspace.get(&key(number(round, 0)))?;
            keyspace.put(&key(number(round, 0)), &VALUE).map(drop)
        })?,
        "put_in" => {
            rounds_of(rounds, |round| transact(db, keyspace, &[number(round, 0)], false))?;
        }
        "get_put_in" => {
            rounds_of(rounds, |round| transact(db, keyspace, &[number(round, 0)], true))?;
        }
        "puts_in" => rounds_of(rounds, |round| {
            let keys: [u64; TEN as usize] = std::array::from_fn(|at| number(round, at as u64));
            transact(db, keyspace, &keys, false)
        })?,
        "get_as_of" => {
            let snapshot = db.snapshot()?;
            let seen = snapshot.keyspace(keyspace)?;
            rounds_of(rounds, |round| seen.get(&key(number(round, 0))).map(drop))?;
        }
        "put_with_snapshots" => {
            // Another thread begins one, reads, ends it, and begins the next.
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| -> Result<()> {
                let snapshots = scope.spawn(|| -> Result<()> {
                    while !done.load(Relaxed) {
                        let seen = db.snapshot()?.keyspace(keyspace)?;
                        seen.get(&key(0))?;
                        std::thread::sleep(std::time::Duration::from_millis(1));
                    }
                    Ok(())
                });
                let put = |round| keyspace.put(&key(number(round, 0)), &VALUE).map(drop);
                let outcome = rounds_of(rounds, put);
                done.store(true, Relaxed);
                snapshots.join().expect("no panic")?;
                outcome
            })?;
        }
        "threads_1_put_in" => threads(db, keyspace, 1, rounds, 1)?,
        "threads_8_put_in" => threads(db, keyspace, THREADS, rounds, 1)?,
        "threads_1_puts_in" => threads(db, keyspace, 1, rounds, TEN)?,
        "threads_8_puts_in" => threads(db, keyspace, THREADS, rounds, TEN)?,
        other => unreachable!("no row has {other}"),
    }
    Ok(begun.elapsed().as_nanos() as f64 / rounds as f64)
}

fn rounds_of(rounds: u64, mut each: impl FnMut(u64) -> Result<()>) -> Result<()> {
    (0..rounds).try_for_each(&mut each)
}

/// Waits until writers keep no old versions any more: a second after the last snapshot, when some have come by.
fn settle(keyspace: &Keyspace) -> Result<()> {
    let come_by = || rounds_of(200, |round| keyspace.put(&key(round), &VALUE).map(drop));
    come_by()?;
    std::thread::sleep(std::time::Duration::from_millis(1100));
    come_by()
}

/// So many rounds of all threads together; no two have a key in common, and all have keys in each leaf.
fn threads(db: &Database, keyspace: &Keyspace, count: u64, rounds: u64, puts: u64) -> Result<()> {
    let run = |thread: u64| {
        rounds_of(rounds / count, |round| {
            let keys: Vec<u64> =
                (0..puts).map(|at| number(round, at) / THREADS * THREADS + thread).collect();
            transact(db, keyspace, &keys, false)
        })
    };
    std::thread::scope(|scope| {
        let run = &run;
        let all: Vec<_> = (0..count).map(|thread| scope.spawn(move || run(thread))).collect();
        all.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

/// Lower quartile, median and upper quartile.
fn quartiles(mut of: Vec<f64>) -> [f64; 3] {
    of.sort_unstable_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| of[(of.len() - 1) * quarter / 4])
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number_of = |at: usize, default: u64| {
        words.get(at).map_or(default, |word| word.parse().expect("a number"))
    };
    let (turns, rounds) = (number_of(0, 9), number_of(1, 100_000));
    let place = words.get(2).map_or("memory", String::as_str);
    let options = Options::new().memory_limit_bytes(256 << 20);
    let path = std::env::temp_dir().join(format!("transaction-pairs-{}.hrow", std::process::id()));
    let db = match place {
        "memory" => options.in_memory()?,
        _ => options.create(&path)?,
    };
    let keyspace = db.keyspace("k")?;
    for n in 0..KEYS {
        keyspace.put(&key(n), &VALUE)?;
    }
    let (machine, revision) = (machine::Machine::this(), machine::revision());
    let command = machine::command();
    println!(
        "{}",
        serde_json::json!({"machine": machine, "revision": revision, "command": command})
    );
    for (plain, other) in ROWS {
        let (mut sides, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for turn in 0..turns {
            let of_rounds = rounds / if plain.contains("puts") { TEN } else { 1 };
            let run = |what| {
                if what == plain {
                    settle(&keyspace)?;
                }
                measure(&db, &keyspace, what, of_rounds)
            };
            let (a, b) = match turn % 2 {
                0 => {
                    let first = run(plain)?;
                    (first, run(other)?)
                }
                _ => {
                    let first = run(other)?;
                    (run(plain)?, first)
                }
            };
            sides[0].push(a);
            sides[1].push(b);
            ratios.push(b / a);
        }
        let [a, b] = sides.map(|side| quartiles(side)[1]);
        let [low, ratio, high] = quartiles(ratios);
        println!(
            "{{\"place\": \"{place}\", \"plain\": \"{plain}\", \"other\": \"{other}\", \"plain_ns\": {a:.0}, \"other_ns\": {b:.0}, \
             \"ratio\": {ratio:.3}, \"quartiles\": [{low:.3}, {high:.3}]}}"
        );
    }
    drop(keyspace);
    db.close()?;
    if place != "memory" {
        std::fs::remove_file(&path).ok();
    }
    Ok(())
}
