//! The writer: opens the store, says so, and changes it from several threads until it is killed.
//!
//! What it acknowledges as durable it writes to standard output, a line a change, after it was told so.
//! Thread-safety: each thread has its own keys; lines are written under the lock of standard output.

use crate::script::{Clock, KEYSPACE, THREADS, change, options, value};
use hedgerow::{Durability, Error, Keyspace, WriteBatch};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes for ever. `begins`: the changes of each thread that are there.
pub fn write(path: &Path, seed: u64, begins: &[u64]) -> Result<(), String> {
    let begins = Clock::try_from(begins).map_err(|_| "a number for each thread, please")?;
    let wrong = |error: Error| format!("the writer: {error}");
    let db = options().open_or_create(path).map_err(wrong)?;
    let keyspace = db.keyspace(KEYSPACE).map_err(wrong)?;
    say("open")?;
    let done = begins.map(AtomicU64::new);
    let done = &done;
    let run = |thread: usize| -> Result<(), String> {
        for number in begins[thread] + 1.. {
            let change = change(seed, thread, number);
            let durability = if change.sync { Durability::Sync } else { Durability::Buffered };
            let handle = keyspace.clone().with_durability(durability);
            let clock = std::array::from_fn(|other| done[other].load(Ordering::SeqCst));
            let value = change.value_bytes.map(|len| value(number, &clock, len));
            match (&change.keys[..], &value) {
                ([key], Some(value)) => handle.put(key, value).map(drop),
                ([key], None) => handle.remove(key).map(drop),
                (keys, value) => db.write(&batch(&keyspace, keys, value.as_deref(), durability)?),
            }
            .map_err(wrong)?;
            done[thread].store(number, Ordering::SeqCst);
            if change.sync {
                say(&format!("{thread} {number}"))?;
            }
            // Now and then: with the memory as small as it is the background takes most of them.
            if number % 20_000 == 0 {
                db.checkpoint().map_err(wrong)?;
            }
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || run(thread))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread of the writer has panicked".into()))
        })
    })
}

fn batch(
    keyspace: &Keyspace,
    keys: &[Vec<u8>],
    value: Option<&[u8]>,
    durability: Durability,
) -> Result<WriteBatch, String> {
    let mut batch = WriteBatch::new();
    batch.set_durability(durability);
    for key in keys {
        match value {
            Some(value) => batch.put(keyspace, key, value),
            None => batch.remove(keyspace, key),
        }
        .map_err(|error| format!("the writer: {error}"))?;
    }
    Ok(batch)
}

fn say(line: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}
