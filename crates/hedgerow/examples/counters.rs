//! Count in parallel without losing a step: read, compute, compare-and-swap, and try again if another thread came first.
//!
//! `cargo run --example counters`

#![allow(clippy::disallowed_methods)] // A rule for the engine, not for programs that use it.

use hedgerow::{Keyspace, Options, Result, Swap};
use std::thread;

/// Adds `step` to the counter `name`, which starts at zero. Returns its new value.
fn add(counters: &Keyspace, name: &[u8], step: u64) -> Result<u64> {
    let mut present = counters.get(name)?;
    loop {
        let old = present.as_deref();
        let count = old.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
        let new = count + step;
        match counters.compare_and_swap(name, old, Some(&new.to_be_bytes()))? {
            Swap::Swapped => return Ok(new),
            // The answer has the value that another thread has put.
            Swap::Differs(found) => present = found,
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let db = Options::new().memory_limit_bytes(16 << 20).in_memory()?;
    let counters = db.keyspace("counters")?;

    // Handles are cheap to clone, and may be used by any number of threads.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let counters = counters.clone();
            thread::spawn(move || {
                (0..10_000).try_for_each(|_| add(&counters, b"visits", 1).map(drop))
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread has panicked")??;
    }

    let visits = add(&counters, b"visits", 0)?;
    println!("{visits} visits");
    assert_eq!(visits, 40_000);
    Ok(())
}
