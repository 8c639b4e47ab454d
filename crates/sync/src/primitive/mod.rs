//! The one door to atomics, locks, threads, time and randomness.
//!
//! Code of the engine uses nothing of `std::sync`, `std::thread` or `std::time` directly, so that
//! the very same code runs on the machine (`std` and `parking_lot`), under loom (`--cfg loom`: every
//! interleaving and every weak-memory outcome of a small model) and under shuttle (`--cfg shuttle`:
//! random interleavings of large ones).
//!
//! Locks have the shape of `parking_lot`: `lock()` returns the guard, and nothing is ever poisoned.
//! Under a model time is logical, a timed wait ends after giving way once, and random seeds are
//! fixed, so that a run is a function of its schedule alone.

pub mod asymmetric;
pub mod buggify;
pub mod canary;
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

pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
/// Set once, before threads that look at it begin; so no protocol rests on it either.
pub use std::sync::OnceLock;
/// The standard library's reference count in every configuration: no protocol of the engine rests
/// on its orderings, and only the standard one can hold trait objects.
pub use std::sync::{Arc, Weak};

/// Atomics and fences.
pub mod atomic {
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
    #[cfg(not(any(loom, shuttle)))]
    pub use std::sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
        fence,
    };
}

/// Counts that no protocol rests on, so that a look at one is no step of a model.
pub mod figure {
    pub use std::sync::atomic::AtomicU64 as Figure;
}

/// What to do between two looks at a word that somebody else will change.
pub mod hint {
    #[cfg(loom)]
    pub use loom::hint::spin_loop;
    #[cfg(shuttle)]
    pub use shuttle::hint::spin_loop;
    #[cfg(not(any(loom, shuttle)))]
    pub use std::hint::spin_loop;
}
