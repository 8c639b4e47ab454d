//! Events for whoever watches a store: it was opened, it was recovered, a checkpoint, a stall, an error.
//!
//! Rank 1. With the feature `tracing` each function emits one event through the crate of that name. Without it the functions
//! are empty and the types have no fields. `docs/operations.md` lists targets, levels and fields, which users rely on.
//!
//! Invariants: no event holds a key or a value. Nothing here is called by an operation that does not wait, so `get` and `put`
//! pay nothing. `Send + Sync`. Locks of the engine may be held while an event is emitted, so a subscriber must not call
//! the store.

#![cfg_attr(
    not(feature = "tracing"),
    allow(unused_variables, reason = "events without a receiver")
)]

use crate::error::Error;
use crate::types::Epoch;
#[cfg(feature = "tracing")]
use hedgerow_sync::primitive::time::Moment;
use std::path::Path;
#[cfg(feature = "tracing")]
use std::time::Duration;

/// An operation that waits longer than this is a stall.
#[cfg(feature = "tracing")]
const STALL: Duration = Duration::from_millis(100);

/// What an operation waits for.
#[derive(Clone, Copy, Debug)]
pub enum WaitsFor {
    /// Room in the log.
    Log,
    /// Frames without changes, or free ones.
    Memory,
    /// A checkpoint, which makes room for changes of the page map.
    Checkpoint,
    /// A large commit of another thread, which changes records alone.
    Commit,
}

#[cfg(feature = "tracing")]
impl WaitsFor {
    fn name(self) -> &'static str {
        match self {
            WaitsFor::Log => "log",
            WaitsFor::Memory => "memory",
            WaitsFor::Checkpoint => "checkpoint",
            WaitsFor::Commit => "commit",
        }
    }
}

/// Begins when an operation begins to wait, and ends when it is dropped. If the wait was a stall, it emits an event then.
/// Declare it before the guards of locks, so that it is dropped after them.
#[must_use]
pub struct Stall {
    #[cfg(feature = "tracing")]
    since: Moment,
    #[cfg(feature = "tracing")]
    waits_for: WaitsFor,
}

impl Stall {
    /// The operation begins to wait now.
    #[cold]
    pub fn begin(waits_for: WaitsFor) -> Stall {
        Stall {
            #[cfg(feature = "tracing")]
            since: Moment::now(),
            #[cfg(feature = "tracing")]
            waits_for,
        }
    }
}

#[cfg(feature = "tracing")]
impl Drop for Stall {
    fn drop(&mut self) {
        let waited = self.since.elapsed();
        if waited > STALL {
            let (waits_for, waited_ms) = (self.waits_for.name(), milliseconds(waited));
            tracing::warn!(target: "hedgerow::stall", waits_for, waited_ms, "an operation had to wait");
        }
    }
}

/// The time that something takes, for its event.
#[derive(Clone, Copy)]
pub struct Started {
    #[cfg(feature = "tracing")]
    at: Moment,
}

impl Started {
    /// It begins now.
    pub fn now() -> Started {
        Started {
            #[cfg(feature = "tracing")]
            at: Moment::now(),
        }
    }

    #[cfg(feature = "tracing")]
    fn elapsed_ms(self) -> u64 {
        milliseconds(self.at.elapsed())
    }
}

#[cfg(feature = "tracing")]
fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A store at a path was opened or created.
pub fn opened(
    path: &Path,
    page_bytes: usize,
    memory_limit_bytes: u64,
    read_only: bool,
    at: Started,
) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: "hedgerow::open",
        path = %path.display(),
        page_bytes,
        memory_limit_bytes,
        read_only,
        elapsed_ms = at.elapsed_ms(),
        "store opened"
    );
}

/// The log of a store that was not closed was replayed.
pub fn recovered(path: &Path, records: u64, log_bytes: u64, at: Started) {
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: "hedgerow::recovery",
        path = %path.display(),
        records,
        log_bytes,
        elapsed_ms = at.elapsed_ms(),
        "log replayed"
    );
}

/// A checkpoint is durable.
pub fn checkpoint_taken(number: Epoch, written_bytes: u64, at: Started) {
    #[cfg(feature = "tracing")]
    tracing::debug!(
        target: "hedgerow::checkpoint",
        number = number.0,
        written_bytes,
        elapsed_ms = at.elapsed_ms(),
        "checkpoint taken"
    );
}

/// A checkpoint has failed. The log keeps what was changed, and the next checkpoint is another attempt.
pub fn checkpoint_failed(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "hedgerow::error", %error, "a checkpoint failed");
}

/// Old versions could not be written to the file, and are still in memory.
pub fn freeze_failed(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "hedgerow::error", %error, "old versions could not be written to the file");
}

/// The last handle was dropped, and what was changed could not be made durable.
pub fn drop_failed(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::warn!(target: "hedgerow::error", %error, "a drop could not make everything durable");
}

/// The store takes no more changes.
pub fn poisoned(error: &Error) {
    #[cfg(feature = "tracing")]
    tracing::error!(target: "hedgerow::error", %error, "the store takes no more changes");
}
