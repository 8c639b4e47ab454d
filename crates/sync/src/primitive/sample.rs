//! Samples of what a thread does: one event in so many, for a decrement of a counter of the thread's own.
//!
//! The distance between samples is drawn anew each time, so that they do not fall into step with the
//! events. A function of what the thread has done alone; under a model kept per execution, so that a
//! replayed schedule samples alike. No thread-safety arises.

use super::random::SplitMix64;
use std::cell::Cell;

#[cfg(loom)]
use loom::thread_local;
#[cfg(shuttle)]
use shuttle::thread_local;

/// Kinds of events that are counted apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// A look-up or a change of one record.
    Point = 0,
    /// A scan of a leaf.
    Scan = 1,
}

struct Counters {
    left: [Cell<u32>; 2],
    draws: Cell<u64>,
}

impl Counters {
    const fn new() -> Counters {
        Counters { left: [Cell::new(1), Cell::new(1)], draws: Cell::new(0) }
    }
}

#[cfg(not(any(loom, shuttle)))]
thread_local! {
    static COUNTERS: Counters = const { Counters::new() };
}
#[cfg(any(loom, shuttle))]
thread_local! {
    static COUNTERS: Counters = Counters::new();
}

/// Whether this event of the calling thread belongs to the sample: on average two in `halves` do,
/// which is at least 2.
#[inline(always)]
pub fn two_in(halves: u32, event: Event) -> bool {
    COUNTERS.with(|counters| {
        let left = &counters.left[event as usize];
        let now = left.get() - 1;
        left.set(now);
        now == 0 && draw(counters, left, halves)
    })
}

#[cold]
fn draw(counters: &Counters, left: &Cell<u32>, halves: u32) -> bool {
    let draws = counters.draws.get();
    counters.draws.set(draws + 1);
    left.set(1 + SplitMix64::new(draws).below(u64::from(halves.max(2)) - 1) as u32);
    true
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_as_large_as_asked_for() {
        for (event, halves) in [(Event::Point, 40), (Event::Scan, 13), (Event::Scan, 2)] {
            let events = 100_000;
            let sampled = (0..events).filter(|_| two_in(halves, event)).count() as f64;
            let expected = 2.0 * f64::from(events) / f64::from(halves);
            assert!((0.95..1.05).contains(&(sampled / expected)), "{event:?} {halves}: {sampled}");
        }
    }
}
