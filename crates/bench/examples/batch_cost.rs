//! What a put costs, and what ten puts into ten leaves cost, one by one, as a batch, and as a transaction; and what a snapshot costs.
//!
//! `batch_cost WHAT file|memory [ROUNDS]`: a round is one *put* or *get*, ten *puts*, a *batch* of ten, a get and a put of one key (*get_put*), the
//! same in a transaction (*put_in*, *puts_in*, *get_put_in*), a get in a snapshot of leaves that have not changed (*get_as_of*), or a put beside
//! a snapshot that is open (*put_beside*, a new key each time, and *put_again*, one that has an old version already). Under `valgrind
//! --tool=callgrind --toggle-collect='*batch_cost::measured*'` the instructions of the rounds alone are counted; without, it
//! prints nanoseconds a round, the best of five turns.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "clocks of an example")]

use hedgerow::{Database, Isolation, Keyspace, Options, Result, WriteBatch};
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
    let snapshot = match what {
        "get_as_of" | "put_beside" | "put_again" => Some(db.snapshot()?),
        _ => None,
    };
    let seen = match &snapshot {
        Some(snapshot) => Some(snapshot.keyspace(keyspace)?),
        None => None,
    };
    let mut batch = WriteBatch::new();
    for round in 0..rounds {
        match what {
            "put" => keyspace.put(&key(number(round, 0)), &value).map(drop)?,
            "get" => keyspace.get(&key(number(round, 0))).map(drop)?,
            "get_put" => {
                let key = key(number(round, 0));
                keyspace.get(&key)?;
                keyspace.put(&key, &value)?;
            }
            "puts" => {
                for member in 0..TEN {
                    keyspace.put(&key(number(round, member)), &value)?;
                }
            }
            "put_in" | "puts_in" | "get_put_in" => {
                let transaction = db.transaction(Isolation::Serializable);
                let handle = transaction.keyspace(keyspace)?;
                let members = if what == "puts_in" { TEN } else { 1 };
                for member in 0..members {
                    let key = key(number(round, member));
                    if what == "get_put_in" {
                        handle.get(&key)?;
                    }
                    handle.put(&key, &value)?;
                }
                transaction.commit()?;
            }
            "get_as_of" => {
                if let Some(seen) = &seen {
                    seen.get(&key(number(round, 0)))?;
                }
            }
            "put_beside" => keyspace.put(&key(number(round, 0)), &value).map(drop)?,
            "put_again" => keyspace.put(&key(number(round % 50, 0)), &value).map(drop)?,
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
