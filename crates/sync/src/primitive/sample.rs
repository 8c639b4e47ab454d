//! Samples of what a thread does: one event in so many, for a decrement of a counter of the thread's own.
//!
//! The distance between samples is drawn anew each time, so that they do not fall into step with the
//! events. Where the caller chooses the probability, [`roll`] draws a number for each event. A function of what the thread has done alone; under a model kept per execution, so that a
//! replayed schedule samples alike. No thread-safety arises.

use super::random::SplitMix64;
use std::cell::Cell;

#[cfg(hedgerow_sim)]
use hedgerow_sim::thread_local;
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
    rolled: Cell<u32>,
}

impl Counters {
    const fn new() -> Counters {
        let left = [Cell::new(1), Cell::new(1)];
        Counters { left, draws: Cell::new(0), rolled: Cell::new(0) }
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
#[must_use]
pub fn two_in(halves: u32, event: Event) -> bool {
    COUNTERS.with(|counters| {
        let left = &counters.left[event as usize];
        let now = left.get() - 1;
        left.set(now);
        now == 0 && draw(counters, left, halves)
    })
}

/// A number of the calling thread's own sequence, in which all 32-bit numbers are equally frequent. A multiplication and an
/// addition: good enough to compare with a bound, and for nothing else.
#[inline(always)]
#[must_use]
pub fn roll() -> u32 {
    // The constants of Numerical Recipes' "quick and dirty" generator. Its high bits decide a comparison.
    COUNTERS.with(|counters| {
        let last = match counters.rolled.get() {
            0 => first(),
            last => last,
        };
        let rolled = last.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        counters.rolled.set(rolled);
        rolled
    })
}

/// Where a thread's sequence begins: each at a place of its own. If all began at one, threads that make few events would all
/// make the same, and none of them the one that is seldom.
#[cold]
fn first() -> u32 {
    SplitMix64::new(super::thread::id() as u64).next_u64() as u32
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

    #[test]
    fn threads_that_roll_a_few_times_roll_other_numbers() {
        let few = || (0..16).map(|_| roll()).collect::<Vec<_>>();
        let threads = 256;
        // At the same time, so that each has a number of its own.
        let all = &std::sync::Barrier::new(threads);
        let of_threads: Vec<u32> = std::thread::scope(|scope| {
            let start = |_| {
                scope.spawn(move || {
                    all.wait();
                    let rolled = few();
                    all.wait();
                    rolled
                })
            };
            let started: Vec<_> = (0..threads).map(start).collect();
            started.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let below = of_threads.iter().filter(|roll| **roll < u32::MAX / 512).count();
        assert!((1..40).contains(&below), "{below} of {} rolls are one in 512", of_threads.len());
    }

    #[test]
    fn rolls_fall_below_a_bound_as_often_as_it_says_and_not_in_step() {
        let rolls: Vec<u32> = (0..1_000_000).map(|_| roll()).collect();
        for one_in in [4, 512] {
            let bound = u32::MAX / one_in;
            for step in [1, 2, 3, 4, 16] {
                let below = rolls.iter().step_by(step).filter(|roll| **roll < bound).count();
                let expected = rolls.len() as f64 / step as f64 / f64::from(one_in);
                let ratio = below as f64 / expected;
                assert!((0.8..1.25).contains(&ratio), "one in {one_in}, step {step}: {ratio}");
            }
        }
    }
}
