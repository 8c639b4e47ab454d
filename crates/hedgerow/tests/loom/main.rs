//! Models of the engine's small protocols: every interleaving, and every outcome that the memory model allows, of a
//! few threads, up to a bound on preemptions. One file for each protocol; all run the engine's own code.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p hedgerow --release --test loom
//! ```
//!
//! A wake-up that is lost shows as a deadlock. `cargo xtask seeded-bugs` leaves out one line at a time and expects these
//! models to notice.

#![cfg(loom)]
#![allow(missing_docs, clippy::disallowed_methods, clippy::disallowed_types, reason = "models")]

mod close;
mod copies;
mod epochs;
mod log;
mod paper;
mod reserve;
mod reset;
mod slots;
mod snapshots;

/// Checks every execution with at most `preemptions` involuntary switches, or `HEDGEROW_PREEMPTIONS`, if that is fewer.
fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let fewer =
        std::env::var("HEDGEROW_PREEMPTIONS").map(|number| number.parse().expect("a number"));
    check_all(fewer.map_or(preemptions, |fewer: usize| fewer.min(preemptions)), model);
}

/// The same, whatever the environment says: a model that has to fail may do so at its last switch.
fn check_all(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 100_000;
    builder.check(model);
}
