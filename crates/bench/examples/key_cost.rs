//! What calls with keys of one length cost.
//!
//! `key_cost CALL [KEY_BYTES [ROUNDS]]`: a round is one call on a keyspace in memory of 100,000 records (2,000 if keys are longer than 900
//! bytes) with values of 40 bytes. Keys end in their number, and begin with the same bytes. Under `valgrind --tool=callgrind
//! --collect-atstart=no --toggle-collect='*key_cost::measured*'` the instructions of the rounds alone are counted; without, it prints nanoseconds a round.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "clocks of an example")]

use hedgerow::{Keyspace, Options, Result, WriteBatch};
use std::ops::ControlFlow;
use std::time::Instant;

/// All calls that there are.
const CALLS: &str = "get miss get_into contains contains_miss put remove cas add seek cursor iter keys \
                     visit count remove_range pop batch";

fn key(number: u64, bytes: usize) -> Vec<u8> {
    let mut key = vec![b'k'; bytes - 8];
    key.extend_from_slice(&number.to_be_bytes());
    key
}

#[inline(never)]
fn measured(
    db: &hedgerow::Database,
    keyspace: &Keyspace,
    call: &str,
    keys: &[Vec<u8>],
) -> Result<u64> {
    let mut sum = 0;
    let mut into = Vec::new();
    let value = [7; 40];
    let mut cursor = keyspace.cursor();
    match call {
        "cursor" => {
            for _ in keys {
                sum += cursor.next_record()?.map_or(0, |(key, _)| key.len() as u64);
            }
            return Ok(sum);
        }
        "iter" => {
            for record in keyspace.iter().take(keys.len()) {
                sum += record?.0.len() as u64;
            }
            return Ok(sum);
        }
        "keys" => {
            for key in keyspace.iter().keys().take(keys.len()) {
                sum += key?.len() as u64;
            }
            return Ok(sum);
        }
        "visit" => {
            let _ = cursor.visit(|key, _| {
                sum += key.len() as u64;
                ControlFlow::<()>::Continue(())
            })?;
            return Ok(sum);
        }
        "count" => return keyspace.count(),
        _ => {}
    }
    let mut batch = WriteBatch::new();
    for key in keys {
        sum += match call {
            "get" | "miss" => keyspace.get(key)?.map_or(0, |value| value.len() as u64),
            "get_into" => u64::from(keyspace.get_into(key, &mut into)?),
            "contains" | "contains_miss" => u64::from(keyspace.contains_key(key)?),
            "put" => u64::from(keyspace.put(key, &value)?),
            "remove" => u64::from(keyspace.remove(key)?),
            "cas" => {
                u64::from(keyspace.compare_and_swap(key, Some(&value), Some(&value))?.is_swapped())
            }
            "add" => keyspace.fetch_add(&key[..key.len() - 1], 1)? as u64,
            "seek" => {
                cursor.seek(key);
                cursor.next_record()?.map_or(0, |(key, _)| key.len() as u64)
            }
            "remove_range" => keyspace.remove_range(key.as_slice()..=key.as_slice())?,
            "pop" => u64::from(keyspace.pop_first()?.is_some()),
            "batch" => {
                batch.clear();
                batch.put(keyspace, key, &value)?;
                batch.remove(keyspace, &key[..key.len() - 1])?;
                db.write(&batch)?;
                1
            }
            _ => 0,
        };
    }
    Ok(sum)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let call = arguments.next().unwrap_or_default();
    if !CALLS.split(' ').any(|known| known == call) {
        println!("usage: key_cost CALL [KEY_BYTES [ROUNDS]]; calls: {CALLS}");
        return Ok(());
    }
    let mut number =
        |default: usize| arguments.next().and_then(|word| word.parse().ok()).unwrap_or(default);
    let (bytes, rounds) = (number(16).max(8), number(2_000));
    let count = if bytes > 900 { 2_000 } else { 100_000 };
    let db = Options::new().memory_limit_bytes(512 << 20).in_memory()?;
    let keyspace = db.keyspace("k")?;
    for number in 0..count {
        // Not in order, and every second number.
        keyspace.put(&key(number * 7919 % count * 2, bytes), &[7; 40])?;
    }
    let is_miss = u64::from(call.contains("miss"));
    let keys: Vec<Vec<u8>> =
        (0..rounds as u64).map(|round| key(round * 104_729 % count * 2 + is_miss, bytes)).collect();
    let start = Instant::now();
    let sum = measured(&db, &keyspace, &call, &keys)?;
    println!(
        "{call}, keys of {bytes} bytes: {} ns, {sum}",
        start.elapsed().as_nanos() / rounds as u128
    );
    Ok(())
}
