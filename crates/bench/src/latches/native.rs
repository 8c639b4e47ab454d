//! What latches cost on this machine: threads that take one latch over and over, and scans and updates of a table under many.
//!
//! Threads begin together and look at a flag after each acquisition. Nothing is pinned.

use super::Latch;
use hedgerow_sync::primitive::random::SplitMix64;
use rustix::time::{ClockId, clock_gettime};
use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Updates of single tuples that are one operation, as a scan of the table is.
pub const UPDATES: u64 = 1_000;

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    /// Operations of all threads.
    pub operations: u64,
    /// From the common start until the threads were told to end, and the last one did.
    pub seconds: f64,
    /// Processor time of all threads together.
    pub cpu_seconds: f64,
}

/// Alone in its lines of the cache.
#[derive(Default)]
#[repr(align(128))]
struct Alone<T>(T);

/// `threads` threads take one latch, to read or to write, and give it back at once.
pub fn smash<L: Latch>(threads: u32, is_write: bool, span: Duration) -> Cost {
    let latch = Alone(L::default());
    run(threads, span, |_| {
        let latch = &latch.0;
        move || {
            if is_write {
                latch.write(|| black_box(()));
            } else {
                latch.read(|| black_box(()));
            }
        }
    })
}

/// A table of `tuples`, with a latch for every `each` of them. Of a hundred operations `writes_percent` are [`UPDATES`] of random tuples, one
/// by one, and the others scan the table, a latch behind the other.
pub fn scan_and_update<L: Latch>(
    threads: u32,
    tuples: usize,
    each: usize,
    writes_percent: u32,
    span: Duration,
) -> Cost {
    let table: Vec<AtomicU64> = (0..tuples).map(|_| AtomicU64::new(1)).collect();
    let latches: Vec<L> = (0..tuples.div_ceil(each)).map(|_| L::default()).collect();
    run(threads, span, |number| {
        let (table, latches) = (&table, &latches);
        let mut random = SplitMix64::new(number.into());
        move || {
            if random.below(100) < writes_percent.into() {
                for _ in 0..UPDATES {
                    let at = random.below(tuples as u64) as usize;
                    // Under the latch: a load and a store, and no read-modify-write.
                    latches[at / each]
                        .write(|| table[at].store(table[at].load(Relaxed) + 1, Relaxed));
                }
            } else {
                for (part, latch) in table.chunks(each).zip(latches) {
                    black_box(
                        latch.read(|| part.iter().map(|tuple| tuple.load(Relaxed)).sum::<u64>()),
                    );
                }
            }
        }
    })
}

/// Has each thread repeat what `operation` makes for its number, until the time is over.
fn run<O: FnMut()>(threads: u32, span: Duration, operation: impl Fn(u32) -> O + Sync) -> Cost {
    let is_over = Alone(AtomicBool::new(false));
    let start = Barrier::new(threads as usize + 1);
    thread::scope(|scope| {
        let (is_over, start, operation) = (&is_over.0, &start, &operation);
        let body = move |number| {
            let mut operation = operation(number);
            start.wait();
            let before = cpu_seconds();
            let mut operations = 0;
            while !is_over.load(Relaxed) {
                operation();
                operations += 1;
            }
            (operations, cpu_seconds() - before)
        };
        let workers: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || body(number))).collect();
        start.wait();
        let begun = Instant::now();
        thread::sleep(span);
        is_over.store(true, Relaxed);
        let mut cost = Cost::default();
        for worker in workers {
            let (operations, seconds) =
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            cost.operations += operations;
            cost.cpu_seconds += seconds;
        }
        cost.seconds = begun.elapsed().as_secs_f64();
        cost
    })
}

/// Processor time of the calling thread.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
