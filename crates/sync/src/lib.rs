//! Latches, parking and optimistic reads: rank 0 of the Hedgerow storage engine.
//!
//! - [`primitive`] is the one door to atomics, locks, threads, time and randomness. It resolves to
//!   the standard library, or to a model checker by `--cfg loom` or `--cfg shuttle`.
//! - [`latch`] is the hybrid latch: one word, three modes (optimistic, shared, exclusive).
//! - [`optimistic`] is the one place where bytes are read that somebody may be changing.
//!
//! Everything here is safe to use from any number of threads. `docs/latching.md` gives the rules
//! and the reasons as one text.

#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_types))]

pub mod latch;
pub mod optimistic;
mod parking;
pub mod primitive;
