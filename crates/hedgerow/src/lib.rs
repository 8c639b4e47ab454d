//! Hedgerow is an embedded, ordered key-value store: one B-tree that is fast in memory, stays fast when the data is
//! larger than memory, and never uses more memory than you allow.
//!
//! ```
//! # fn main() -> hedgerow::Result<()> {
//! use hedgerow::Options;
//!
//! let db = Options::new().memory_limit_bytes(16 << 20).temporary()?;
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
//! # Opening
//!
//! [`Options`] opens a store: [`open_or_create`](Options::open_or_create), [`open`](Options::open),
//! [`create`](Options::create), [`open_read_only`](Options::open_read_only), [`in_memory`](Options::in_memory) and
//! [`temporary`](Options::temporary). The one option that most programs set is
//! [`memory_limit_bytes`](Options::memory_limit_bytes). A store is one file, `STORE`, and while it is open for writing a second one,
//! `STORE-log`. One process writes at a time; another one gets [`ErrorKind::Locked`].
//!
//! Close a store by [`Database::close`], which reports errors. A store that was not closed is recovered from its log by the
//! next open.
//!
//! # Reading and writing
//!
//! A [`Database`] has named keyspaces. A [`Keyspace`] is an ordered map of bytes to bytes: [`get`](Keyspace::get),
//! [`put`](Keyspace::put), [`remove`](Keyspace::remove), [`compare_and_swap`](Keyspace::compare_and_swap), ranges
//! ([`range`](Keyspace::range), [`prefix`](Keyspace::prefix)) from both ends, cursors, [`bulk_load`](Keyspace::bulk_load) and
//! [`remove_range`](Keyspace::remove_range). Handles are owned, cheap to clone, `Send` and `Sync`. Any number of threads may use
//! them at once, and each operation is atomic by itself.
//!
//! A [`WriteBatch`] holds changes of several keys and keyspaces. After a crash all of them are there, or none.
//!
//! Values may have up to 4 GiB. [`ValueReader`] and [`ValueWriter`] read and write them as streams.
//!
//! # Durability
//!
//! With [`Durability::Buffered`], the default, a change returns at once and is durable within 100 ms. With [`Durability::Sync`]
//! it is durable when it returns. [`Database::sync`] makes durable what was changed before. A crash may take the last buffered
//! changes, never one from the middle.
//!
//! # Errors
//!
//! Every failure is an [`Error`] with an [`ErrorKind`]. No call panics on data. After a failed write or fsync the store takes no
//! more changes ([`ErrorKind::Poisoned`]); reads go on, and the next open finds out what is on the disk.
//!
//! # Looking inside
//!
//! [`Database::stats`] tells where memory goes, [`Database::space_report`] accounts for every byte of the file,
//! [`Database::verify`] reads everything and reports damage, [`Database::backup`] copies the store while it is in use.

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
