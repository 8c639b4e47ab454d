//! How many events a second the simulator does: `cargo run --release -p hedgerow-sim --example speed`.

#![allow(clippy::disallowed_methods, reason = "the time of the machine is what is asked for")]

use hedgerow_sim::atomic::{AtomicU64, Ordering::*};
use hedgerow_sim::{Machine, run, spin_loop, thread, work};
use std::sync::Arc;
use std::time::Instant;

#[repr(align(64))]
struct Line(AtomicU64);

/// One lock for all, taken after a look; at most `EACH` times by each thread.
fn one_lock(lines: &[Line], _: usize, each: u64) {
    for _ in 0..each {
        while lines[0].0.load(Relaxed) != 0 || lines[0].0.swap(1, Acquire) != 0 {
            spin_loop();
        }
        work(50);
        lines[0].0.store(0, Release);
        work(1_000);
    }
}

/// An addition to one word.
fn one_word(lines: &[Line], _: usize, each: u64) {
    for _ in 0..each {
        lines[0].0.fetch_add(1, Relaxed);
    }
}

/// Reads of shared lines, with a write of a line of its own now and then.
fn reads(lines: &[Line], own: usize, each: u64) {
    for round in 0..each as usize {
        for step in 0..6 {
            lines[128 + (round * 31 + step * 7) % 128].0.load(Acquire);
            work(20);
        }
        lines[own % 128].0.fetch_add(1, Relaxed);
    }
}

type Body = fn(&[Line], usize, u64);

fn main() {
    let bodies: [(&str, Body, u64); 3] = [
        ("one lock", one_lock, 10_000),
        ("one word", one_word, 4_000_000),
        ("reads", reads, 1_000_000),
    ];
    println!("{:>10} {:>6} {:>12} {:>10} {:>10}", "what", "cores", "events", "seconds", "M/s");
    for contexts in [1, 16, 40, 128] {
        for (name, body, total) in bodies {
            let machine = Machine::ROME1S.with_contexts(contexts);
            let start = Instant::now();
            let ((), record) = run(&machine, move || {
                let lines: Vec<_> = (0..256).map(|_| Line(AtomicU64::new(0))).collect();
                let lines = Arc::new(lines);
                let each = total / u64::from(contexts);
                let start = |at: u32| {
                    let lines = Arc::clone(&lines);
                    thread::spawn(move || body(&lines, at as usize, each))
                };
                let threads: Vec<_> = (0..contexts).map(start).collect();
                threads.into_iter().for_each(|thread| thread.join().expect("it does not panic"));
            })
            .expect("it does not fail");
            let seconds = start.elapsed().as_secs_f64();
            let events = record.counts.events;
            let rate = events as f64 / seconds / 1e6;
            println!("{name:>10} {contexts:>6} {events:>12} {seconds:>10.2} {rate:>10.1}");
        }
    }
}
