//! How a database is opened: few options, each with a unit, a default and its cost.
//!
//! Rank 7. Plain data; the methods that end in opening something are in `database.rs`.

use crate::node::LeafPolicy;
use crate::storage::IoEngine;
use std::time::Duration;

/// The memory limit where neither the machine nor its cgroup tells how much memory there is.
const FALLBACK_LIMIT_BYTES: u64 = 256 << 20;
/// The smallest default: it suffices for some thousand pages, and for the smallest pool of the largest pages.
const LEAST_DEFAULT_BYTES: u64 = 8 << 20;
/// Addresses that a database takes beside its limit: the directory of the page table, and stacks of threads.
const ADDRESSES_BESIDE_BYTES: u64 = 128 << 20;
const DEFAULT_LOG_INTERVAL: Duration = Duration::from_millis(100);
const DEFAULT_LOG_LIMIT_BYTES: u64 = 1 << 30;
/// A store is settled between this and twice this after its last change.
const SETTLE_AFTER: Duration = Duration::from_secs(2);
const DEFAULT_RECOVERY_TARGET: Duration = Duration::from_secs(10);

/// Options for opening or creating a database. Each has a default that suits most programs.
///
/// Methods that set an option take the options and return them, so calls can be chained. Methods that open a database borrow them, so
/// one set of options opens several databases. `Send + Sync`, and plain data: values are checked when a database is opened.
///
/// ```no_run
/// # fn main() -> hedgerow::Result<()> {
/// let db = hedgerow::Options::new().memory_limit_bytes(256 << 20).open_or_create("birds.hrow")?;
/// # drop(db); Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    pub(crate) memory_limit_bytes: Option<u64>,
    pub(crate) page_bytes: Option<usize>,
    pub(crate) checkpoint_bytes: Option<u64>,
    pub(crate) direct_io: bool,
    pub(crate) io_engine: IoEngine,
    pub(crate) background: bool,
    pub(crate) zone_bytes: Option<u32>,
    pub(crate) leaves: LeafPolicy,
    pub(crate) merge_before_writing: bool,
    pub(crate) log: bool,
    pub(crate) log_interval: Duration,
    pub(crate) log_limit_bytes: u64,
    pub(crate) recovery_target: Duration,
    pub(crate) log_segment_blocks: Option<u32>,
    pub(crate) settle_after: Duration,
    pub(crate) max_snapshot_age: Option<Duration>,
    pub(crate) durability: Durability,
}

/// When a change is durable: when a crash of the process or of the machine cannot undo it any more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Durability {
    /// A change returns at once, and is durable within [`Options::log_interval`] plus the time that the disk takes. A crash
    /// may take the last changes, never one from the middle.
    #[default]
    Buffered,
    /// A change is durable when it returns, also a `remove` or `remove_range` that finds nothing. Threads that wait at the same time share an fsync. Any other call that
    /// changes nothing (inserting an existing key, updating a missing one, a swap that finds another value) waits for nothing, and
    /// what it finds may not be durable yet: [`Database::sync`](crate::Database::sync) waits for that.
    ///
    /// Without a log ([`Options::log`]) this has no effect: only [`Database::checkpoint`](crate::Database::checkpoint) makes changes durable. Stores in
    /// memory and temporary ones have no log, and are never durable.
    Sync,
}

impl Default for Options {
    fn default() -> Self {
        Options::new()
    }
}

impl Options {
    /// The defaults. Each method says what its default is.
    pub fn new() -> Options {
        Options {
            memory_limit_bytes: None,
            page_bytes: None,
            checkpoint_bytes: None,
            direct_io: true,
            io_engine: IoEngine::Auto,
            background: true,
            zone_bytes: None,
            leaves: LeafPolicy::Adaptive,
            merge_before_writing: true,
            log: true,
            log_interval: DEFAULT_LOG_INTERVAL,
            log_limit_bytes: DEFAULT_LOG_LIMIT_BYTES,
            recovery_target: DEFAULT_RECOVERY_TARGET,
            log_segment_blocks: None,
            settle_after: SETTLE_AFTER,
            max_snapshot_age: None,
            durability: Durability::default(),
        }
    }

    /// The most bytes of memory that the database may keep: pages, the page table, buffers and bookkeeping. More memory means fewer
    /// reads.
    ///
    /// Not counted: what callers hold (values, cursors, iterators, batches); the changes and the reads that an open transaction has noted; for as long as they
    /// run, the extra memory of [`Database::verify`](crate::Database::verify) and [`Options::repair`], which say how much that is, and up to 16 MiB while
    /// opening replays a log; bitmaps of the file's space, as far as they take more than 1/256 of the limit (8.5 KB for 14 MiB of a file that is written to); stacks of threads, and what the allocator adds.
    ///
    /// Default: a quarter of the memory of the machine or of the smallest cgroup around the process, or of what `RLIMIT_AS` and
    /// `RLIMIT_DATA` leave if that is less; at least 8 MiB. Smallest: [`smallest_memory_limit_bytes`]; below it opening fails with
    /// [`InvalidOption`](crate::ErrorKind::InvalidOption).
    ///
    /// Memory is taken when it is first used, so opening costs the same at any limit. If the system has not enough addresses for the
    /// limit, opening fails with [`MemoryLimit`](crate::ErrorKind::MemoryLimit). At most 2^31 pages are used.
    pub fn memory_limit_bytes(mut self, bytes: u64) -> Options {
        self.memory_limit_bytes = Some(bytes);
        self
    }

    /// Bytes of a page of a database that is created: a power of two from 2 KiB to 64 KiB. (512 and 1,024 are accepted, too. They are for
    /// tests of small trees.) Default: 4 KiB. An existing database keeps its own; opening it with another one is [`InvalidOption`](crate::ErrorKind::InvalidOption).
    ///
    /// A key of up to about a quarter of a page, and a record of up to about half of a page, are stored in a leaf whole. Larger pages make
    /// sequential reads cheaper, and random reads and writes more expensive.
    pub fn page_bytes(mut self, bytes: usize) -> Options {
        self.page_bytes = Some(bytes);
        self
    }

    /// Bytes of changed pages after which a checkpoint is taken in the background. Default: half of the memory limit, and at least
    /// 16 MiB. After a crash, opening replays what was changed since the last checkpoint.
    pub fn checkpoint_bytes(mut self, bytes: u64) -> Options {
        self.checkpoint_bytes = Some(bytes);
        self
    }

    /// Whether to read and write past the system's page cache where the file system can, and where its blocks are no longer than
    /// the units of the store. Default: yes. Without it the system keeps a second copy of the pages, in memory that the limit
    /// does not count.
    pub fn direct_io(mut self, direct: bool) -> Options {
        self.direct_io = direct;
        self
    }

    /// Which system calls read and write batches of pages. Default: io_uring where the kernel has it.
    pub fn io_engine(mut self, engine: IoEngine) -> Options {
        self.io_engine = engine;
        self
    }

    /// How the layouts of leaves are chosen. Default: adaptively, by their keys and by how they are used.
    ///
    /// Any database can be opened with any policy at any time: a leaf keeps its layout until it is split, merged, or found to be used
    /// otherwise. A fixed layout is for comparisons.
    pub fn leaves(mut self, policy: LeafPolicy) -> Options {
        self.leaves = policy;
        self
    }

    /// Whether leaves that fit into fewer pages are merged before they are written to make room in memory. Default: yes. It takes effect only
    /// when the store is larger than its memory. [`Keyspace::compact`](crate::Keyspace::compact) merges leaves on request.
    pub fn merge_before_writing(mut self, merges: bool) -> Options {
        self.merge_before_writing = merges;
        self
    }

    /// When changes are durable, unless [`Keyspace::with_durability`](crate::Keyspace::with_durability) says otherwise. Default:
    /// [`Durability::Buffered`].
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// The longest time after which buffered changes are written to the log and synced. Default: 100 ms. A crash loses at most the
    /// changes of that time, and of the time that the disk takes.
    pub fn log_interval(mut self, interval: Duration) -> Options {
        self.log_interval = interval;
        self
    }

    /// How long opening may take after a crash. Default: 10 seconds. A checkpoint is taken when replaying the log would need about two
    /// fifths of this; from three fifths on changes are slowed down more and more.
    ///
    /// A shorter time causes more checkpoints, so more bytes are written for each change, and fewer changes a second are possible if
    /// they are spread over many pages: half a GiB within 1 GiB of memory took 1.16 million random puts a second with 10 s, and 64,500 with
    /// 1 s (two virtual cores).
    pub fn recovery_target(mut self, time: Duration) -> Options {
        self.recovery_target = time;
        self
    }

    /// The most bytes that the log may hold since the last checkpoint. Default: 1 GiB. Smallest: 4 MiB; less counts as 4 MiB. A checkpoint is taken at half of it. From there
    /// on changes are slowed down, and at the limit they wait for a checkpoint.
    ///
    /// The log keeps to less where the store is small: to as many bytes as the store has pages, at least 16 MiB. A checkpoint is due at
    /// two fifths of that, and changes are slowed down from three fifths on. A batch may need more.
    pub fn log_limit_bytes(mut self, bytes: u64) -> Options {
        self.log_limit_bytes = bytes;
        self
    }

    /// Whether changes are logged. Default: yes. Without a log a change is durable with the next checkpoint, and a crash loses all
    /// changes since the last one. This is faster, and suits data that can be made again. It holds for this opening; a log that is
    /// there is replayed first.
    pub fn log(mut self, log: bool) -> Options {
        self.log = log;
        self
    }

    /// Gives up snapshots that are older than this, those of transactions as well: reading them is
    /// [`SnapshotTooOld`](crate::ErrorKind::SnapshotTooOld) from then on, and what was kept for them goes at the next checkpoint. So the file does
    /// not grow longer and longer for a snapshot that a program has forgotten. [`Database::held_states`](crate::Database::held_states) lists what is open. Default: no bound.
    pub fn max_snapshot_age(mut self, age: Duration) -> Options {
        self.max_snapshot_age = Some(age);
        self
    }

    /// For tests that need many segments of the log, or small ones: blocks of a segment.
    #[cfg(hedgerow_internals)]
    #[doc(hidden)]
    pub fn log_segment_blocks(mut self, blocks: u32) -> Options {
        self.log_segment_blocks = Some(blocks);
        self
    }

    /// For tests that do not want to wait: for how long nobody has changed anything when the store gives back by itself what
    /// only writers need.
    #[cfg(hedgerow_internals)]
    #[doc(hidden)]
    pub fn settle_after(mut self, time: Duration) -> Options {
        self.settle_after = time;
        self
    }

    /// For tests that take checkpoints by hand: no background checkpoints.
    #[cfg(hedgerow_internals)]
    #[doc(hidden)]
    pub fn background_checkpoints(mut self, on: bool) -> Options {
        self.background = on;
        self
    }

    /// For tests that need files of many zones, or small ones: bytes of a zone of a database that is
    /// created. What is possible stands in `docs/format.md`.
    #[cfg(hedgerow_internals)]
    #[doc(hidden)]
    pub fn zone_bytes(mut self, bytes: u32) -> Options {
        self.zone_bytes = Some(bytes);
        self
    }

    /// The limit that holds, in bytes.
    pub(crate) fn resolved_memory_limit_bytes(&self) -> u64 {
        self.memory_limit_bytes.unwrap_or_else(|| {
            let memory = crate::storage::machine_memory_bytes();
            default_limit_bytes(memory, crate::storage::addresses_left_bytes())
        })
    }
}

/// The limit where none is said, by what the machine has, and by the addresses that the process may still take.
fn default_limit_bytes(memory: Option<u64>, addresses: Option<u64>) -> u64 {
    let by_memory = memory.map_or(FALLBACK_LIMIT_BYTES, |bytes| bytes / 4);
    let by_addresses = addresses.map_or(u64::MAX, |left| {
        // Stacks and the allocator take addresses, too, and so does what is not for the pages.
        (left / 4).min(left.saturating_sub(ADDRESSES_BESIDE_BYTES))
    });
    by_memory.min(by_addresses).max(LEAST_DEFAULT_BYTES)
}

/// The smallest memory limit, in bytes, with which a database with pages of `page_bytes` and a log can be opened. There are no pages of
/// more than 64 KiB: what is longer counts as that.
///
/// ```
/// assert!(hedgerow::smallest_memory_limit_bytes(hedgerow::DEFAULT_PAGE_BYTES) < 8 << 20);
/// ```
#[must_use]
pub fn smallest_memory_limit_bytes(page_bytes: usize) -> u64 {
    crate::buffer::smallest_limit_bytes(page_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_limit_is_a_quarter_of_the_scarcest() {
        const GIB: u64 = 1 << 30;
        assert_eq!(default_limit_bytes(Some(8 * GIB), None), 2 * GIB);
        assert_eq!(default_limit_bytes(None, None), FALLBACK_LIMIT_BYTES);
        assert_eq!(default_limit_bytes(Some(8 * GIB), Some(4 * GIB)), GIB);
        assert_eq!(default_limit_bytes(Some(8 * GIB), Some(u64::MAX)), 2 * GIB);
        assert_eq!(default_limit_bytes(None, Some(140 << 20)), 12 << 20);
        assert_eq!(default_limit_bytes(Some(0), Some(0)), LEAST_DEFAULT_BYTES);
        for page_bytes in [2048, 4096, 65536] {
            assert!(smallest_memory_limit_bytes(page_bytes) < LEAST_DEFAULT_BYTES, "{page_bytes}");
        }
        assert_eq!(smallest_memory_limit_bytes(usize::MAX), smallest_memory_limit_bytes(65536));
    }
}
