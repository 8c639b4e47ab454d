//! What a put costs, and what ten puts into ten leaves cost, one by one and as a batch.
//!
//! `batch_cost put|puts|batch file|memory [ROUNDS]`: a round is one put, ten puts, or a batch of ten. Under `valgrind
//! --tool=callgrind --toggle-collect='*batch_cost::measured*'` the instructions of the rounds alone are counted; without, it
//! prints nanoseconds a round, the best of five turns.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "clocks of an example")]

use hedgerow::{Database, Keyspace, Options, Result, WriteBatch};
use std::time::Instant;

const KEYS: u64 = 200_000;
const TEN: u64 = 10;

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Keys far from each other, other ones in each round.
fn number(round: u64, member: u64) -> u64 {
    (round * 7919 + member * (KEYS / TEN)) % KEYS
}

#[inline(never)]
fn measured(db: &Database, keyspace: &Keyspace, what: &str, rounds: u64) -> Result<()> {
    let value = [7; 40];
    let mut batch = WriteBatch::new();
    for round in 0..rounds {
        match what {
            "put" => keyspace.put(&key(number(round, 0)), &value).map(drop)?,
            "puts" => {
                for member in 0..TEN {
                    keyspace.put(&key(number(round, member)), &value)?;
                }
            }
            _ => {
                batch.clear();
                for member in 0..TEN {
                    batch.put(keyspace, &key(number(round, member)), &value)?;
                }
                db.write(&batch)?;
            }
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let word =
        |at: usize, default: &str| arguments.get(at).map_or(default.to_owned(), Clone::clone);
    let (what, place) = (word(0, "put"), word(1, "memory"));
    let rounds: u64 = word(2, "20000").parse().unwrap_or(20_000);
    let options = Options::new().memory_limit_bytes(256 << 20);
    let path = std::env::temp_dir().join(format!("batch-cost-{}.hrow", std::process::id()));
    let db = match place.as_str() {
        "memory" => options.in_memory()?,
        _ => options.create(&path)?,
    };
    let keyspace = db.keyspace("k")?;
    for n in 0..KEYS {
        keyspace.put(&key(n), &[1; 40])?;
    }
    let mut best = u128::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        measured(&db, &keyspace, &what, rounds)?;
        best = best.min(begin.elapsed().as_nanos() / u128::from(rounds));
    }
    println!("{what} {place}: {best} ns a round");
    drop(keyspace);
    db.close()?;
    if place != "memory" {
        std::fs::remove_file(&path).ok();
    }
    Ok(())
}
