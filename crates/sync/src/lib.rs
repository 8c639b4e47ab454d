//! Latches, parking and optimistic reads of the Hedgerow storage engine. The crate is published because `hedgerow` needs it; its
//! interface changes with the engine.
//!
//! - [`latch`] is the hybrid latch: one word of eight bytes, three modes (optimistic, shared, exclusive).
//! - [`optimistic`] reads bytes that another thread may be changing. Nothing else does.
//! - [`primitive`] is the only access of the engine to atomics, locks, threads, time and randomness. It resolves to the standard
//!   library, or to a model checker with `--cfg loom` or `--cfg shuttle`.
//!
//! A reader takes no latch. It notes the latch's version, reads, and validates the version. If a writer came between, it reads
//! again:
//!
//! ```
//! # #[cfg(not(any(loom, shuttle)))] {
//! use hedgerow_sync::latch::HybridLatch;
//!
//! let latch = HybridLatch::new();
//! let version = latch.optimistic().expect("no writer holds the latch");
//! // ... read what the latch protects ...
//! assert!(latch.validate(version)); // nothing has changed
//!
//! drop(latch.exclusive()); // a writer
//! assert!(!latch.validate(version)); // what was read before may be out of date
//! # }
//! ```
//!
//! Everything here is safe to use from any number of threads. `docs/latching.md` describes the rules and the reasons.

#![warn(
    missing_debug_implementations,
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate
)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod latch;
pub mod optimistic;
mod parking;
pub mod primitive;
