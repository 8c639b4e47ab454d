//! The latch laboratory: the latches of "Scalable and Robust Latches for Database Systems" (DaMoN 2020), and the engine's, behind one
//! trait.
//!
//! Latches are built on `hedgerow_sync::primitive`, so that the same code runs on the machine ([`native`]) and on a simulated one
//! (`cargo xtask simulate --figure table3,fig8`). None of them is used by the engine but [`HybridLatch`](hedgerow_sync::latch::HybridLatch), and that is the
//! engine's own.
//!
//! | module | what |
//! |---|---|
//! | [`words`] | words of 1 and 8 bytes |
//! | [`spinning`] | all wait at one word: test-and-set, test-and-test-and-set, with backoff, read-write, optimistic |
//! | [`tickets`] | all wait at one word for their turn |
//! | [`queues`] | each waits at a line of its own |
//! | [`blocking`] | those that wait in the system: the engine's latch, mutexes, read-write locks |
//! | [`native`], [`figures`] | what they cost on this machine: tables 2 and 3, figures 7 and 8 |
//!
//! A latch protects what the callbacks do: two writers never run at the same time, and what a reader returns no writer has changed
//! meanwhile. A thread holds one latch at a time. No latch is reentrant.

pub mod blocking;
pub mod figures;
pub mod native;
pub mod queues;
pub mod spinning;
#[cfg(all(test, not(hedgerow_sim)))]
mod tests;
pub mod tickets;
pub mod words;

use hedgerow_sync::primitive::atomic::{AtomicU8, AtomicU64};
use hedgerow_sync::primitive::hint::spin_loop;

/// A latch.
pub trait Latch: Default + Send + Sync + 'static {
    /// Runs `read` while no writer runs, and returns its result. An optimistic latch runs it again until no writer ran meanwhile; so `read`
    /// must not change anything, and must reach what writers change through atomics.
    fn read<R>(&self, read: impl FnMut() -> R) -> R;

    /// Runs `write` while nobody else runs.
    fn write<R>(&self, write: impl FnOnce() -> R) -> R;
}

/// No latch: what the loop around an acquisition costs.
#[derive(Default)]
pub struct Nothing;

impl Latch for Nothing {
    fn read<R>(&self, mut read: impl FnMut() -> R) -> R {
        read()
    }

    fn write<R>(&self, write: impl FnOnce() -> R) -> R {
        write()
    }
}

/// What is done with each latch.
pub trait Visitor {
    /// Does it with `L`, which readers may have at the same time if it is `shared`.
    fn visit<L: Latch>(&mut self, name: &'static str, shared: bool);
}

/// Lets `visitor` visit all latches, in the order of table 2 of the paper where they are in it.
pub fn visit_all(visitor: &mut impl Visitor) {
    visitor.visit::<spinning::Optimistic>("optimistic", true);
    visitor.visit::<blocking::Hybrid>("hybrid, spinning", true);
    visitor.visit::<blocking::Parked>("hybrid, parked", true);
    visitor.visit::<blocking::Shared>("hybrid, shared", true);
    visitor.visit::<spinning::ReadWrite<AtomicU8>>("RW spin, 1 byte", true);
    visitor.visit::<spinning::ReadWrite<AtomicU64>>("RW spin", true);
    visitor.visit::<queues::QueuingReadWrite>("queuing RW", true);
    visitor.visit::<blocking::FutexReadWrite>("futex RW", true);
    visitor.visit::<blocking::FutexMutex>("futex mutex", false);
    visitor.visit::<spinning::TestAndSet<AtomicU8>>("TAS, 1 byte", false);
    visitor.visit::<spinning::TestAndSet<AtomicU64>>("TAS", false);
    visitor.visit::<spinning::TestFirst<AtomicU8>>("TTAS, 1 byte", false);
    visitor.visit::<spinning::TestFirst<AtomicU64>>("TTAS", false);
    visitor.visit::<spinning::Backoff<AtomicU8>>("TTAS, backoff, 1 byte", false);
    visitor.visit::<spinning::Backoff<AtomicU64>>("TTAS, backoff", false);
    visitor.visit::<tickets::Ticket>("ticket", false);
    visitor.visit::<tickets::Proportional>("ticket, proportional", false);
    visitor.visit::<queues::Mcs>("MCS", false);
    #[cfg(not(hedgerow_sim))]
    {
        visitor.visit::<blocking::ParkingLotReadWrite>("parking_lot RW", true);
        visitor.visit::<blocking::ParkingLotMutex>("parking_lot mutex", false);
    }
}

/// Tries until it succeeds, with one pause after each attempt.
fn spin(mut attempt: impl FnMut() -> bool) {
    while !attempt() {
        spin_loop();
    }
}

/// Pauses so many times.
fn pause(times: u32) {
    for _ in 0..times {
        spin_loop();
    }
}
