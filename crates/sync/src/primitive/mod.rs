//! The one door to atomics, locks, threads, time and randomness.
//!
//! Code of the engine uses nothing of `std::sync`, `std::thread` or `std::time` directly, so that
//! the very same code runs on the machine (`std`), under loom (`--cfg loom`: every
//! interleaving and every weak-memory outcome of a small model) and under shuttle (`--cfg shuttle`:
//! random interleavings of large ones). Under `--cfg hedgerow_sim` it runs on a simulated machine of
//! many cores, inside of `hedgerow_sim::run`, and on the machine outside.
//!
//! Locks have the shape of `parking_lot`: `lock()` returns the guard, and nothing is ever poisoned.
//! Under a model time is logical, a timed wait ends after giving way once, and random seeds are
//! fixed, so that a run is a function of its schedule alone.

pub mod asymmetric;
mod brief;
pub mod buggify;
pub mod linger;
mod lock;
pub mod process;
pub mod random;
pub mod sample;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
pub mod thread;
pub mod time;
pub mod witness;

pub use brief::{Brief, BriefGuard};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
/// Set once, before threads that look at it begin; so no protocol rests on it either.
pub use std::sync::OnceLock;
/// The standard library's reference counts in every configuration: no protocol of the engine depends on their orderings, and only
/// they can hold trait objects.
pub use std::sync::{Arc, Weak};

/// Atomics and fences.
pub mod atomic {
    #[cfg(hedgerow_sim)]
    pub use hedgerow_sim::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
    #[cfg(loom)]
    pub use loom::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
    #[cfg(shuttle)]
    pub use shuttle::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
    #[cfg(not(any(loom, shuttle, hedgerow_sim)))]
    pub use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

/// Counters that no protocol depends on, so reading one is not a step of a model.
pub mod figure {
    // They cost something all the same: a count that all cores raise is a line that travels.
    #[cfg(hedgerow_sim)]
    pub use hedgerow_sim::atomic::AtomicU64 as Figure;
    #[cfg(not(hedgerow_sim))]
    pub use std::sync::atomic::AtomicU64 as Figure;
}

/// What to do between two reads of a word that another thread will change.
pub mod hint {
    #[cfg(hedgerow_sim)]
    pub use hedgerow_sim::spin_loop;
    #[cfg(loom)]
    pub use loom::hint::spin_loop;
    #[cfg(shuttle)]
    pub use shuttle::hint::spin_loop;
    #[cfg(not(any(loom, shuttle, hedgerow_sim)))]
    pub use std::hint::spin_loop;
}
