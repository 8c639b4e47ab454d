//! Puts from more threads than there are processors, by far: how evenly they come on, and how long the longest took.
//!
//! `many_threads [THREADS [SECONDS [RECORDS]]]`: so many threads put to one keyspace of a store in a folder of its own, in
//! the system's folder for temporary files, with the default options: 16 bytes of key, chosen at random among so many, and 100 of
//! value. One line of JSON: puts a second; of the threads the puts of the slowest, the median and the fastest; of the puts the longest
//! time, and the times that one in a thousand and one in a million exceeds, in microseconds.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // Threads and clocks of an example.

use hdrhistogram::Histogram;
use hedgerow::{Options, Result};
use hedgerow_sync::primitive::random::SplitMix64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

fn main() -> Result<()> {
    let mut words = std::env::args().skip(1);
    let mut number =
        |default: u64| words.next().map_or(default, |word| word.parse().expect("a number"));
    let (threads, seconds, records) = (number(1024), number(10), number(100_000));
    let folder = std::env::temp_dir().join(format!("many-threads-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder of its own");
    let db = Options::new().open_or_create(folder.join("store.hrow"))?;
    let keyspace = db.keyspace("puts")?;
    for record in 0..records {
        keyspace.put(&key(record), &[0; 100])?;
    }
    let (come, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let put = |thread: u64| -> Result<(u64, Histogram<u64>)> {
        let mut times = histogram();
        let mut random = SplitMix64::new(thread);
        let mut puts = 0;
        // No barrier: it wakes them one after the other.
        come.fetch_add(1, Relaxed);
        while come.load(Relaxed) < threads {
            std::thread::yield_now();
        }
        while !done.load(Relaxed) {
            let begun = Instant::now();
            keyspace.put(&key(random.below(records)), &[thread as u8; 100])?;
            times.saturating_record(begun.elapsed().as_nanos() as u64 / 1000);
            puts += 1;
        }
        Ok((puts, times))
    };
    let mut of_threads = Vec::new();
    let mut times = histogram();
    std::thread::scope(|scope| -> Result<()> {
        let put = &put;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || put(thread))).collect();
        std::thread::sleep(Duration::from_secs(seconds));
        done.store(true, Relaxed);
        for thread in running {
            let (puts, its_times) = thread.join().expect("no panic")?;
            of_threads.push(puts);
            times.add(its_times).expect("the same digits");
        }
        Ok(())
    })?;
    of_threads.sort_unstable();
    println!(
        "{{\"threads\": {threads}, \"puts_per_second\": {}, \"slowest\": {}, \"median\": {}, \"fastest\": {}, \
         \"longest_us\": {}, \"one_in_thousand_us\": {}, \"one_in_million_us\": {}}}",
        of_threads.iter().sum::<u64>() / seconds,
        of_threads[0],
        of_threads[of_threads.len() / 2],
        of_threads[of_threads.len() - 1],
        times.max(),
        times.value_at_quantile(0.999),
        times.value_at_quantile(0.999_999),
    );
    db.close()?;
    std::fs::remove_dir_all(&folder).expect("it is its own");
    Ok(())
}

/// Microseconds up to ten minutes. Longer times count as the longest.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(600_000_000, 3).expect("three digits")
}

fn key(record: u64) -> [u8; 16] {
    let mut key = *b"put/\0\0\0\0\0\0\0\0\0\0\0\0";
    key[8..].copy_from_slice(&record.to_be_bytes());
    key
}
