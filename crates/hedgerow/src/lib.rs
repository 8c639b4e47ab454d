//! Hedgerow: an embedded, ordered key-value store. One B-tree, engineered.
//!
//! ```
//! # fn main() -> hedgerow::Result<()> {
//! use hedgerow::Options;
//!
//! let db = Options::new().memory_limit_bytes(16 << 20).in_memory()?;
//! let birds = db.keyspace("birds")?;
//! birds.put(b"robin", b"Erithacus rubecula")?;
//! birds.put(b"wren", b"Troglodytes troglodytes")?;
//!
//! assert_eq!(birds.get(b"wren")?.as_deref(), Some(&b"Troglodytes troglodytes"[..]));
//! for record in birds.prefix(b"r") {
//!     let (name, latin) = record?;
//!     assert_eq!((&*name, &*latin), (&b"robin"[..], &b"Erithacus rubecula"[..]));
//! }
//! # Ok(()) }
//! ```
//!
//! The parts, in ranks; imports only point down:
//!
//! | rank | modules |
//! |---|---|
//! | 0 | the crate `hedgerow-sync`: latches, parking, optimistic reads, the seams |
//! | 1 | [`error`], [`types`], [`key`], [`checksum`], [`storage`] |
//! | 2 | [`page`], [`space`], [`wal`] |
//! | 3 | [`node`] and [`buffer`], which know nothing of each other |
//! | 5 | [`tree`] |
//! | 6 | [`store`] |
//! | 7 | [`Database`], [`Keyspace`] and the other public nouns |
//!
//! Only what is re-exported at the top is meant for users; the modules are public for the tools, tests
//! and benchmarks of the workspace.

#[doc(hidden)]
pub mod buffer;
#[doc(hidden)]
pub mod checksum;
mod database;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod key;
#[doc(hidden)]
pub mod node;
#[doc(hidden)]
pub mod page;
#[doc(hidden)]
pub mod space;
#[doc(hidden)]
pub mod storage;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod testing;
#[doc(hidden)]
pub mod tree;
#[doc(hidden)]
pub mod types;
#[doc(hidden)]
pub mod wal;

pub use buffer::CounterValues;
pub use database::{
    Cursor, Database, Durability, Keys, Keyspace, MemoryStats, Options, Range, Stats, ValueReader,
    ValueWriter, WriteBatch, smallest_memory_limit_bytes,
};
pub use error::{Error, ErrorKind, Result};
pub use node::{LeafLayout, LeafPolicy};
pub use page::AdaptationValues;
pub use storage::IoEngine;
pub use store::{
    BackupReport, DEFAULT_PAGE_BYTES, DamagedPage, LostKeys, RepairReport, Replayed, SpaceReport,
    VerifyFinding, VerifyReport,
};
pub use tree::{LayoutStats, LevelStats, Swap, TreeStats, Value};
pub use types::{Lsn, PageId};
