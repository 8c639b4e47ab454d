//! Many more threads than processors, and than a store has slots for in the beginning: each comes on as the others do.
//!
//! Nothing here looks at a clock. Threads put until all of them together have made so many puts; what counts is how many of them
//! each has made.
#![allow(clippy::disallowed_methods, reason = "threads of the system, as a program starts them")]

use hedgerow::{Database, Durability, Options, Result};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

const THREADS: usize = 512;
/// On the average of the threads: many turns of each.
const PUTS_EACH: u64 = 6000;
/// The slowest makes at least this part of the average. Where threads had no slots of their own most made a single put.
const MOST: u64 = 10;

/// How many puts each thread has made, the slowest first.
fn puts_of_threads(db: &Database) -> Vec<u64> {
    let keyspace = db.create_keyspace("birds").unwrap().with_durability(Durability::Buffered);
    let (made, come) = (AtomicU64::new(0), AtomicUsize::new(0));
    let put = |thread: usize| -> Result<u64> {
        // Everybody has come before anybody is counted.
        keyspace.put(&thread.to_be_bytes(), b"here")?;
        come.fetch_add(1, Relaxed);
        // No barrier: it wakes them one after the other.
        while come.load(Relaxed) < THREADS {
            std::thread::yield_now();
        }
        let mut mine = 0_u64;
        while made.fetch_add(1, Relaxed) < THREADS as u64 * PUTS_EACH {
            let key = [&thread.to_be_bytes()[..], &(mine % 8).to_be_bytes()].concat();
            keyspace.put(&key, &[thread as u8; 40])?;
            mine += 1;
        }
        Ok(mine)
    };
    let mut puts: Vec<u64> = std::thread::scope(|scope| {
        let put = &put;
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || put(thread))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    assert_eq!(puts.iter().sum::<u64>(), THREADS as u64 * PUTS_EACH);
    assert_eq!(keyspace.count().unwrap(), puts.iter().map(|puts| 1 + (*puts).min(8)).sum::<u64>());
    puts.sort_unstable();
    puts
}

#[test]
fn of_many_threads_the_slowest_comes_on_as_the_others_do() {
    let db = Options::new().memory_limit_bytes(64 << 20).in_memory().unwrap();
    let puts = puts_of_threads(&db);
    let (slowest, median, fastest) = (puts[0], puts[THREADS / 2], puts[THREADS - 1]);
    println!("puts: {slowest}, {median}, {fastest}");
    // The median says nothing where most of them make none at all.
    assert!(slowest * MOST >= PUTS_EACH, "the slowest made {slowest}, the median {median}");
}
