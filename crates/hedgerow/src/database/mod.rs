//! The public nouns: [`Database`], [`Keyspace`], [`WriteBatch`], [`Transaction`], [`Snapshot`], [`Cursor`], [`Range`], [`Keys`], [`Values`],
//! [`Options`], [`Stats`].
//!
//! Rank 7: everything here is thin; the work is done by the layers below.

#![warn(missing_debug_implementations, clippy::must_use_candidate)]

mod approximate;
mod batch;
mod compact;
mod count;
mod cursor;
#[allow(clippy::module_inception, reason = "the file is named after the noun it defines")]
mod database;
mod durable;
mod ends;
mod held;
mod holds;
mod inner;
mod keyspace;
mod large;
mod leaf_cursor;
mod lent;
mod long;
mod modify;
mod opened;
mod options;
mod range;
mod reads;
mod records;
mod rename;
mod snapshot;
mod snapshot_stretches;
mod stats;
mod stretch;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod transaction;
mod value_reader;
mod values;
mod view;

pub use batch::WriteBatch;
pub use compact::ShrinkReport;
pub use cursor::Cursor;
pub use database::Database;
pub use durable::Durable;
pub use held::{HeldBy, HeldState};
pub use keyspace::Keyspace;
pub use large::ValueWriter;
pub use lent::ValueRef;
pub use options::{Durability, Options, smallest_memory_limit_bytes};
pub use range::{Keys, Range, Values};
pub use records::Records;
pub use snapshot::{Snapshot, SnapshotKeyspace};
pub use stats::{MemoryStats, SnapshotStats, Stats, TransactionStats};
pub use transaction::{Isolation, Savepoint, TransactOptions, Transaction, TransactionKeyspace};
pub use value_reader::ValueReader;
