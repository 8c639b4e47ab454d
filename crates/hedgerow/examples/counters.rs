//! Count in parallel without losing a step; and change a record to what a function makes of it.
//!
//! `cargo run -p hedgerow --example counters`

#![allow(clippy::disallowed_methods)] // A rule for the engine, not for programs that use it.

use hedgerow::{Options, Result};
use std::thread;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let db = Options::new().memory_limit_bytes(16 << 20).in_memory()?;
    let counters = db.keyspace("counters")?;

    // Handles are cheap to clone, and may be used by any number of threads.
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let counters = counters.clone();
            thread::spawn(move || -> Result<()> {
                for _ in 0..10_000 {
                    // One atomic step. It returns the number before.
                    counters.fetch_add(b"visits", 1)?;
                }
                Ok(())
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread has panicked")??;
    }

    let visits = counters.fetch_add(b"visits", 0)?;
    println!("{visits} visits");
    assert_eq!(visits, 40_000);

    // Anything else that is made of the old value: here the longest name that was seen.
    for name in ["wren", "kingfisher", "robin"] {
        counters.fetch_update(b"longest", |longest| match longest {
            Some(longest) if longest.len() >= name.len() => Some(longest.to_vec()),
            _ => Some(name.as_bytes().to_vec()),
        })?;
    }
    assert_eq!(counters.get(b"longest")?.unwrap_or_default(), b"kingfisher");
    Ok(())
}
