//! Figures of a running database: what memory is used for, and what has been done.
//!
//! Rank 7. Plain data without invariants between the figures, as [`Stats`] says.

use crate::buffer::PoolStats;
use crate::error::{ErrorKind, Result};
use crate::page::{AdaptationStats, ContentionStats, MergingStats};
use crate::store::Store;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::figure::Figure;

/// Figures of a running database: what memory is used for, and what has been done.
///
/// [`Database::stats`](crate::Database::stats) returns them. Each figure is right, but they may belong to slightly different moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// What the memory limit is used for.
    pub memory: MemoryStats,
    /// About how many pages there are, in memory or not: leaves and the nodes above them, of all keyspaces. Pages that are free count a little
    /// longer where a checkpoint needs them.
    pub pages: u64,
    /// Pages in memory that are newer than the file.
    pub dirty_pages: u64,
    /// What the pool has done since the database was opened.
    pub pool: PoolStats,
    /// What adaptation has done to the layouts of leaves since then.
    pub adaptation: AdaptationStats,
    /// What the merging of leaves has done since then: fewer leaves for the same records.
    pub merging: MergingStats,
    /// What came of leaves for which threads contended, since then.
    pub contention: ContentionStats,
    /// Snapshots since then, and the old versions of records that are kept for them now.
    pub snapshots: SnapshotStats,
    /// How transactions ended since then.
    pub transactions: TransactionStats,
    /// Number of the last durable checkpoint: one more for each.
    pub checkpoint: u64,
    /// Bytes of the file; zero in memory.
    pub file_bytes: u64,
    /// Bytes of the log's file; zero without a log.
    pub log_file_bytes: u64,
    /// Bytes that the log holds since the last checkpoint.
    pub log_used_bytes: u64,
    /// Times that a change was made to wait because the log was more than half full or long for the store, or opening would have taken long.
    pub log_held_up: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
}

/// Snapshots, those of transactions included, and what is kept for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotStats {
    /// Snapshots that were begun.
    pub begun: u64,
    /// Of these, snapshots that have not ended.
    pub open: u64,
    /// Old versions of records that are kept now.
    pub versions: u64,
    /// Bytes that they take, of the frames that are lent for them.
    pub versions_bytes: u64,
    /// Bytes of frames that are lent for old versions; a part of [`MemoryStats::frames_bytes`].
    pub lent_bytes: u64,
    /// Times that a checkpoint has taken a snapshot over.
    pub pinned: u64,
    /// Snapshots that were given up: older than [`Options::max_snapshot_age`](crate::Options::max_snapshot_age), or without memory for their versions.
    pub given_up: u64,
    /// Versions that were written to the file because those of snapshots that live for long took much of the memory for versions.
    pub frozen: u64,
    /// Bytes of the file that such versions take now.
    pub frozen_bytes: u64,
}

/// How transactions ended that were to be committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransactionStats {
    /// They were committed; those without changes, too.
    pub committed: u64,
    /// Another change came between.
    pub conflicts: u64,
    /// Their snapshot was given up.
    pub too_old: u64,
    /// They were too large.
    pub too_large: u64,
    /// Transactions and batches that were too large to be made at one stroke (see [`WriteBatch`](crate::WriteBatch)), and were made alone:
    /// while nobody else changed records.
    pub alone: u64,
}

/// The counts of [`TransactionStats`] while they grow. `Sync`.
#[derive(Default)]
pub(super) struct TransactionCounters {
    committed: Figure,
    conflicts: Figure,
    too_old: Figure,
    too_large: Figure,
}

impl TransactionCounters {
    #[inline]
    pub(super) fn note<T>(&self, outcome: &Result<T>) {
        let figure = match outcome.as_ref().map_err(|error| error.kind()) {
            Ok(_) => &self.committed,
            Err(ErrorKind::Conflict) => &self.conflicts,
            Err(ErrorKind::SnapshotTooOld) => &self.too_old,
            Err(ErrorKind::TransactionTooLarge { .. }) => &self.too_large,
            Err(_) => return,
        };
        figure.fetch_add(1, Relaxed);
    }

    pub(super) fn add_to(&self, stats: &mut TransactionStats) {
        stats.committed += self.committed.load(Relaxed);
        stats.conflicts += self.conflicts.load(Relaxed);
        stats.too_old += self.too_old.load(Relaxed);
        stats.too_large += self.too_large.load(Relaxed);
    }
}

/// Memory by purpose, in bytes. All of it is inside of the limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// The limit.
    pub limit_bytes: u64,
    /// Frames that hold, or can hold, pages.
    pub frames_bytes: u64,
    /// Of these, frames without a page at this moment.
    pub free_frames_bytes: u64,
    /// Frame headers, side entries, the free list.
    pub frame_overhead_bytes: u64,
    /// Parts of the page table.
    pub table_bytes: u64,
    /// Write buffers.
    pub write_buffer_bytes: u64,
    /// Changes of the page map since the last checkpoint.
    pub delta_bytes: u64,
    /// The log's records on their way to the disk.
    pub log_bytes: u64,
    /// Bitmaps of the file's space, and lists of free page ids.
    pub space_bytes: u64,
}

impl MemoryStats {
    /// Memory that is set aside of the limit, in bytes: the sum of all fields but `limit_bytes` and `free_frames_bytes`. Much of it may be frames
    /// without anything in them: what is in memory now (pages, large values, and old versions of records, [`SnapshotStats::lent_bytes`]) takes
    /// `frames_bytes - free_frames_bytes`.
    #[must_use]
    pub fn set_aside_bytes(&self) -> u64 {
        self.frames_bytes
            + self.frame_overhead_bytes
            + self.table_bytes
            + self.write_buffer_bytes
            + self.delta_bytes
            + self.log_bytes
            + self.space_bytes
    }
}

impl Stats {
    /// Those of a store, with how transactions have ended.
    pub(super) fn gather(store: &Store, transactions: TransactionStats) -> Stats {
        let transactions = TransactionStats { alone: store.commits_alone(), ..transactions };
        let versions = store.version_figures();
        let pool = store.pool();
        let budget = pool.budget();
        let page_bytes = store.page_bytes() as u64;
        let (delta_bytes, space_bytes) = store.space_memory_bytes();
        Stats {
            memory: MemoryStats {
                limit_bytes: budget.limit_bytes(),
                frames_bytes: u64::from(pool.frames()) * page_bytes,
                free_frames_bytes: pool.free_frames() as u64 * page_bytes,
                frame_overhead_bytes: budget.frame_overhead_bytes(),
                table_bytes: pool.table_bytes(),
                write_buffer_bytes: budget.write_buffer_bytes(),
                delta_bytes,
                log_bytes: budget.ring_bytes(),
                space_bytes,
            },
            pages: pool.ids().lock().in_use(),
            dirty_pages: pool.dirty_pages() as u64,
            pool: pool.counters().values(),
            adaptation: pool.adaptation_values(),
            merging: pool.counters().merging.values(),
            contention: pool.counters().contention.values(),
            snapshots: SnapshotStats {
                begun: versions.begun,
                open: versions.open,
                versions: versions.versions,
                versions_bytes: versions.used_bytes,
                lent_bytes: versions.lent_bytes,
                pinned: versions.pinned,
                given_up: versions.given_up,
                frozen: versions.frozen,
                frozen_bytes: versions.frozen_bytes,
            },
            transactions,
            checkpoint: store.durable_checkpoint().0,
            file_bytes: store.file_bytes(),
            log_file_bytes: store.log().map_or(0, |log| log.file_bytes()),
            log_used_bytes: store.log().map_or(0, |log| log.fill().0),
            log_held_up: store.log().map_or(0, |log| log.held_up()),
            page_bytes,
        }
    }
}
