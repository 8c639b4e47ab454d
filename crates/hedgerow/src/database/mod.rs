//! The public nouns: [`Database`], [`Keyspace`], [`WriteBatch`], [`Cursor`], [`Range`], [`Keys`], [`Options`], [`Stats`].
//!
//! Rank 7: everything here is thin; the work is done by the layers below.

#![warn(missing_debug_implementations, clippy::must_use_candidate)]

mod batch;
mod compact;
#[allow(clippy::module_inception, reason = "the file is named after the noun it defines")]
mod database;
mod ends;
mod keyspace;
mod large;
mod lent;
mod long;
mod modify;
mod options;
mod range;
mod rename;
mod stats;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;

pub use batch::WriteBatch;
pub use compact::Shrunk;
pub use database::Database;
pub use keyspace::Keyspace;
pub use large::{ValueReader, ValueWriter};
pub use lent::ValueRef;
pub use options::{Durability, Options, smallest_memory_limit_bytes};
pub use range::{Cursor, Keys, Range};
pub use stats::{MemoryStats, Stats};
