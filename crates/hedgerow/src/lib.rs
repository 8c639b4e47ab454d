//! Hedgerow is an embedded, ordered key-value store: a B-tree that is fast when the data fits into memory, goes on when it does
//! not, and keeps to the memory limit that you set. It has no SQL and no server.
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
//! [`memory_limit_bytes`](Options::memory_limit_bytes). One process writes at a time; another one gets [`ErrorKind::Locked`].
//!
//! Three words: a *store* is what lies on the disk, one file, `STORE`, and while it is open for writing a second one, `STORE-log`. A *database*
//! ([`Database`]) is the handle to an open store. A *keyspace* ([`Keyspace`]) is one of the named maps in it.
//!
//! ```
//! # fn main() -> hedgerow::Result<()> {
//! # let directory = tempfile::tempdir().map_err(|error| hedgerow::Error::io("no directory", error))?;
//! # let path = directory.path().join("birds.hrow");
//! use hedgerow::Options;
//!
//! let db = Options::new().memory_limit_bytes(64 << 20).open_or_create(&path)?;
//! db.keyspace("birds")?.put(b"wren", b"Troglodytes troglodytes")?;
//! db.close()?; // writes everything to the file, and reports errors
//! # Ok(()) }
//! ```
//!
//! [`Database::close`] reports errors. Dropping the last handle makes the changes durable, too, but cannot report an error. After a
//! crash the next open replays the log.
//!
//! # Reading and writing
//!
//! A [`Database`] has named keyspaces. A [`Keyspace`] is an ordered map of bytes to bytes: [`get`](Keyspace::get),
//! [`put`](Keyspace::put), [`remove`](Keyspace::remove), [`compare_and_swap`](Keyspace::compare_and_swap), ranges
//! ([`range`](Keyspace::range), [`prefix`](Keyspace::prefix)) from both ends, cursors, [`bulk_load`](Keyspace::bulk_load) and
//! [`remove_range`](Keyspace::remove_range). Handles are owned, cheap to clone, `Send` and `Sync`. Any number of threads may use
//! them at once. Each operation on one record is atomic; `remove_range` and scans go from leaf to leaf.
//!
//! A [`WriteBatch`] holds changes of several keys and keyspaces. After a crash all of them are there, or none (without a log, only if the
//! batch is small). It is enough where nothing that is written depends on what was read.
//!
//! ```
//! # fn main() -> hedgerow::Result<()> {
//! # let db = hedgerow::Options::new().in_memory()?;
//! use hedgerow::WriteBatch;
//!
//! let (names, counts) = (db.keyspace("names")?, db.keyspace("counts")?);
//! let mut batch = WriteBatch::new();
//! batch.put(&names, b"wren", b"Troglodytes troglodytes")?;
//! batch.put(&counts, b"wren", b"1")?;
//! db.write(&batch)?;
//! # Ok(()) }
//! ```
//!
//! Reads and changes that belong together are a transaction. [`Database::transact`] runs a function in one, and runs it again if
//! another thread came between. [`Database::snapshot`] shows everything as it was at one moment. The trait [`Records`] has the reads that a
//! keyspace, a snapshot and a transaction have in common, for functions that take any of them.
//!
//! ```
//! # fn main() -> hedgerow::Result<()> {
//! # let db = hedgerow::Options::new().in_memory()?;
//! let stock = db.keyspace("stock")?;
//! stock.put(b"apples", b"7")?;
//! let before = db.snapshot()?;
//! db.transact(|transaction| -> hedgerow::Result<()> {
//!     let stock = transaction.keyspace(&stock)?;
//!     if stock.get(b"apples")?.is_some() {
//!         stock.put(b"apples", b"6")?;
//!         stock.put(b"sold", b"1")?;
//!     }
//!     Ok(())
//! })?;
//! assert_eq!(before.keyspace(&stock)?.get(b"apples")?.unwrap(), b"7");
//! # Ok(()) }
//! ```
//!
//! Values may have up to 4 GiB. [`ValueReader`] and [`ValueWriter`] read and write them as streams.
//!
//! # Keys
//!
//! Keys are ordered byte by byte. Unsigned integers become keys by `to_be_bytes`, signed ones by `(n ^ i64::MIN).to_be_bytes()`. Of several parts
//! those of a fixed length come first, or a text without zeros has a `\0` behind it; [`Keyspace::prefix`] finds what begins with a part, and
//! [`prefix_range`] has the bounds of that for other calls. Values are any bytes, such as those of a serde format.
//!
//! # What waits
//!
//! A read waits for the disk if a page is not in memory. A change may also wait for room in memory or in the log.
//! [`Database::sync`], [`Database::checkpoint`], [`Database::close`] and changes with [`Durability::Sync`] wait for fsync; so does making,
//! dropping and renaming a keyspace, a bulk load, and a backup. No call waits
//! for a transaction or a batch that has not begun to commit: transactions hold no locks, and one that comes too late has a conflict. While a
//! commit of more than 4 MiB is made (less with a memory limit below 1 GiB), all other changes wait for it; reads go on. Events of the feature
//! `tracing` tell of waits for room and for such a commit. [`Keyspace::with_wait`] bounds or cancels what a handle waits for ([`Wait`]).
//! Calls block their thread; [`Database::durable`] and [`Database::on_durable`] are for async tasks.
//!
//! # Durability
//!
//! With [`Durability::Buffered`], the default, a change returns at once and is durable within 100 ms. With [`Durability::Sync`]
//! it is durable when it returns. [`Database::sync`] makes durable what was changed before. A crash of the machine, or a `kill -9` of the
//! process, may take the last buffered changes, never one from the middle. All this needs the log. Without one
//! ([`Options::log`]) only a checkpoint makes changes durable; stores in memory and temporary ones never are.
//!
//! # Errors
//!
//! Every failure is an [`Error`] with an [`ErrorKind`]. The table of [`ErrorKind`] says what a caller can do about each kind. Each kind
//! has a stable name and number. No call panics on data. After a failed write or fsync the store takes no more changes
//! ([`ErrorKind::Poisoned`]). Reads go on, and the next open finds out what is on the disk.
//!
//! # Looking inside
//!
//! [`Database::stats`] tells where memory goes, [`Database::hot_leaves`] which leaves threads contend for,
//! [`Database::space_report`] accounts for every byte of the file,
//! [`Database::verify`] reads everything and reports damage, [`Database::backup`] copies the store while it is in use,
//! [`Keyspace::compact`] and [`Database::shrink`] make it smaller, [`Keyspace::show_pages`] shows pages to tools that draw them.
//!
//! # When something is wrong
//!
//! [`Options::restore`] makes a store of a backup, and checks it first. [`Options::repair`] copies what is intact in a damaged store to a new
//! one, and names what is lost. Both need no open database, so they stand with the options. Do not copy an open store with tools that copy
//! files: file and log would be of different moments. In the repository, `docs/operations.md` says how to back up and restore, what to do at
//! each error, how much disk a store takes, what to tune, and what differs from RocksDB and LMDB.
//!
//! A process that was forked cannot use the handles of its parent ([`ErrorKind::ForkedProcess`]). It may open stores of its own.
//!
//! # Features
//!
//! `tracing` (off by default) emits events of opening, recovery, checkpoints, stalls and errors through the crate `tracing`. No
//! event holds a key or a value.

// Each module lists what it offers, and some of that only tools use. What only they use is gated where it is defined.
#![cfg_attr(not(hedgerow_internals), allow(unused_imports, reason = "lists of re-exports"))]

/// What of a public type tools use as well as the engine: public under `hedgerow_internals`, and the engine's own otherwise.
macro_rules! internal {
    ($(#[$meta:meta])* $first:ident $($item:tt)*) => {
        $(#[$meta])*
        #[cfg(hedgerow_internals)]
        #[doc(hidden)]
        pub $first $($item)*
        $(#[$meta])*
        #[cfg(not(hedgerow_internals))]
        pub(crate) $first $($item)*
    };
}

mod buffer;
mod checksum;
#[warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]
mod database;
#[warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]
mod error;
mod events;
mod key;
mod large;
mod node;
mod page;
mod space;
mod storage;
mod store;
mod tree;
mod types;
mod versions;
#[warn(clippy::missing_errors_doc, clippy::missing_panics_doc)]
mod wait;
mod wal;

/// The modules below the public types, for the tests and tools of this project: see `build.rs`.
#[cfg(hedgerow_internals)]
#[doc(hidden)]
pub mod internals {
    macro_rules! open {
        ($($module:ident)*) => { $(pub mod $module { pub use crate::$module::*; })* };
    }
    open! { buffer checksum error key large node page space storage store tree types versions wait wal }
}

/// What is shared by unit tests and `crates/testing`, which names this crate as any other one does: here the types are those of the
/// build that is tested.
#[cfg(test)]
extern crate self as hedgerow;
#[cfg(test)]
#[doc(hidden)]
#[path = "../../testing/src/lib.rs"]
pub mod testing;

pub use buffer::PoolStats;
pub use database::{
    Cursor, Database, Durability, Durable, HeldBy, HeldState, Isolation, Keys, Keyspace,
    MemoryStats, Options, Range, Records, Savepoint, ShrinkReport, Snapshot, SnapshotKeyspace,
    SnapshotStats, Stats, TransactOptions, Transaction, TransactionKeyspace, TransactionStats,
    ValueReader, ValueRef, ValueWriter, Values, WriteBatch, smallest_memory_limit_bytes,
};
pub use error::{Error, ErrorKind, Result};
pub use key::{KeyRange, prefix_range};
pub use node::{LeafLayout, LeafPolicy, anatomy};
pub use page::header::PageKind;
pub use page::{AdaptationStats, ContentionStats, MergingStats};
pub use storage::IoEngine;
pub use store::{
    BackupReport, DEFAULT_PAGE_BYTES, DamagedPage, HotLeaf, LostKeys, RecoveryReport, RepairReport,
    SpaceReport, VerifyFinding, VerifyReport, log_path,
};
pub use tree::{
    CompactBudget, CompactReport, CompareAndSwap, ContentionSplit, LayoutStats, LeafKeys,
    LevelStats, PageView, TreeStats, Value, ValueStats,
};
pub use types::{Lsn, PageId};
pub use wait::{CancelToken, Wait};

/// What every public type promises, checked when this is compiled.
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use std::fmt::{Debug, Display};
    use std::hash::Hash;

    fn is_shared<T: Debug + Send + Sync + 'static>() {}
    fn is_sent<T: Debug + Send + 'static>() {}
    fn is_data<T: Debug + Clone + PartialEq + Eq + Send + Sync + 'static>() {}
    fn is_key<T: Copy + Debug + PartialEq + Eq + Hash + Send + Sync + 'static>() {}

    #[test]
    fn public_types_have_the_common_traits() {
        is_shared::<Database>();
        is_shared::<Keyspace>();
        is_shared::<Options>();
        is_shared::<WriteBatch>();
        is_shared::<Durable>();
        is_shared::<Error>();
        is_shared::<Snapshot>();
        is_shared::<SnapshotKeyspace>();
        is_shared::<Transaction>();
        is_shared::<TransactionKeyspace>();
        is_shared::<Savepoint>();
        is_shared::<ValueRef<'static>>();
        is_shared::<TransactOptions>();
        fn is_read<T: Records + Clone>() {}
        is_read::<Keyspace>();
        is_read::<SnapshotKeyspace>();
        is_read::<TransactionKeyspace>();
        // `PartialEq` without `Eq` for a share, and nothing to compare in a view of a page.
        fn is_copied<T: Copy + Debug + Send + Sync + 'static>() {}
        is_copied::<ContentionSplit>();
        is_copied::<PageView<'static>>();
        is_sent::<Cursor>();
        is_sent::<Range>();
        is_sent::<Keys>();
        is_sent::<Values>();
        is_sent::<ValueReader>();
        is_sent::<ValueWriter>();
        is_data::<Value>();
        is_data::<CompareAndSwap>();
        is_data::<Stats>();
        is_data::<MemoryStats>();
        is_data::<PoolStats>();
        is_data::<AdaptationStats>();
        is_data::<MergingStats>();
        is_data::<CompactBudget>();
        is_data::<CompactReport>();
        is_data::<ShrinkReport>();
        is_data::<ContentionStats>();
        is_data::<SnapshotStats>();
        is_data::<TransactionStats>();
        is_data::<HeldState>();
        is_data::<LeafKeys>();
        is_data::<HotLeaf>();
        is_data::<TreeStats>();
        is_data::<ValueStats>();
        is_data::<LevelStats>();
        is_data::<LayoutStats>();
        is_data::<BackupReport>();
        is_data::<RepairReport>();
        is_data::<DamagedPage>();
        is_data::<LostKeys>();
        is_data::<RecoveryReport>();
        is_data::<SpaceReport>();
        is_data::<VerifyReport>();
        is_data::<VerifyFinding>();
        is_data::<Wait>();
        is_data::<CancelToken>();
        is_key::<ErrorKind>();
        is_key::<Durability>();
        is_key::<Isolation>();
        is_key::<IoEngine>();
        is_key::<HeldBy>();
        is_key::<PageKind>();
        is_key::<LeafLayout>();
        is_key::<LeafPolicy>();
        is_key::<Lsn>();
        is_key::<PageId>();
        fn is_shown<T: Display>() {}
        is_shown::<Error>();
        is_shown::<ErrorKind>();
        is_shown::<Lsn>();
        is_shown::<PageId>();
        is_shown::<LeafLayout>();
        is_shown::<VerifyFinding>();
        assert!(size_of::<Error>() == size_of::<usize>(), "errors are cheap to return");
    }

    #[test]
    fn nothing_that_is_shown_for_debugging_has_keys_or_values() {
        let db = Options::new().in_memory().unwrap();
        let birds = db.keyspace("birds").unwrap();
        birds.put(b"secret-key", b"secret-value").unwrap();
        let mut batch = WriteBatch::new();
        batch.put(&birds, b"secret-key", b"secret-value").unwrap();
        let mut cursor = birds.cursor();
        cursor.next_record().unwrap();
        let swap = birds.compare_and_swap(b"secret-key", None, None).unwrap();
        let lost = LostKeys { above: Some(b"secret".to_vec()), up_to: None, is_inner: false };
        let reader = birds.value_reader(b"secret-key").unwrap();
        let mut writer = birds.value_writer(b"secret-key", 6).unwrap();
        writer.write_bytes(b"secret").unwrap();
        let record = birds.iter().next();
        let often = ContentionSplit::new(1, 1, 0.0, 2).unwrap();
        let contended = birds.clone().with_contention_split(Some(often));
        // Whether the first put of all was a sample depends on the thread's number: so there is one round more than is needed if not.
        for key in [b"secret-key1", b"secret-key2"].repeat(3) {
            contended.put(key, b"secret-value").unwrap();
        }
        let hot = db.hot_leaves(2).unwrap();
        assert_eq!(hot.len(), 2);
        let budget = CompactBudget::pages(0).starting_at(b"secret");
        let compacted = birds.compact(&budget, |_| std::ops::ControlFlow::Continue(())).unwrap();
        assert_eq!(compacted.next.as_deref(), Some(&b"secret"[..]));
        let shown = format!(
            "{db:?} {birds:?} {batch:?} {cursor:?} {swap:?} {lost:?} {reader:?} {writer:?} {record:?} {hot:?} {budget:?} {compacted:?} {:?} {:?}",
            birds.range("secret"..),
            birds.iter().keys(),
        );
        assert!(!shown.contains("secret") && !shown.contains("115, 101"), "{shown}");
    }
}
