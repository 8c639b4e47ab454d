//! What read-modify-write costs beside a get and a put.
//!
//! `change_cost get|put|add|update|swap|take [ROUNDS]`: a round is one call on one of 200,000 records, in a store in memory
//! (`take`: a `swap` that puts the record back, and a `take`). Under `valgrind --tool=callgrind
//! --toggle-collect='*change_cost::measured*'` the instructions of the rounds alone are counted; without, it prints nanoseconds a round,
//! the best of five turns.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "clocks of an example")]

use hedgerow::{Keyspace, Options, Result};
use std::hint::black_box;
use std::time::Instant;

const KEYS: u64 = 200_000;

#[inline(never)]
fn measured(keyspace: &Keyspace, what: &str, rounds: u64) -> Result<()> {
    for round in 0..rounds {
        let key = ((round * 7919) % KEYS).to_be_bytes();
        match what {
            "get" => drop(black_box(keyspace.get(&key)?)),
            "put" => drop(black_box(keyspace.put(&key, &key)?)),
            "add" => drop(black_box(keyspace.fetch_add(&key, 1)?)),
            "update" => drop(black_box(keyspace.fetch_update(&key, |_| Some(key))?)),
            "swap" => drop(black_box(keyspace.swap(&key, &key)?)),
            _ => {
                drop(black_box(keyspace.take(&key)?));
                drop(black_box(keyspace.swap(&key, &key)?));
            }
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let what = arguments.first().map_or("add", String::as_str);
    let rounds: u64 = arguments.get(1).and_then(|word| word.parse().ok()).unwrap_or(20_000);
    let db = Options::new().memory_limit_bytes(256 << 20).in_memory()?;
    let keyspace = db.keyspace("k")?;
    for n in 0..KEYS {
        keyspace.put(&n.to_be_bytes(), &[1; 8])?;
    }
    let mut best = u128::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        measured(&keyspace, what, rounds)?;
        best = best.min(begin.elapsed().as_nanos() / u128::from(rounds));
    }
    println!("{what}: {best} ns a round");
    Ok(())
}
