//! How a store is opened, as whoever opens, makes, salvages or copies one is told.
//!
//! Rank 6. Plain values, and the pool that they ask for.

use crate::buffer::{Budget, PoolOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::node::LeafPolicy;
use crate::page::header::{MAX_PAGE_BYTES, MIN_PAGE_BYTES};
use crate::space::Deltas;
use crate::storage::DirectIo;
use crate::types::{Epoch, Lsn};
use std::time::Duration;

/// Bytes of a page unless [`Options::page_bytes`](crate::Options::page_bytes) says otherwise: 4,096.
pub const DEFAULT_PAGE_BYTES: usize = 4096;
/// Checkpoints are not due before so much was changed, unless asked for.
const MIN_CHECKPOINT_BYTES: u64 = 16 << 20;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The memory limit.
    pub memory_limit_bytes: u64,
    /// Bytes of a page: of a new store, or expected of an old one.
    pub page_bytes: Option<usize>,
    /// Bytes of changed pages that make a checkpoint due.
    pub checkpoint_bytes: Option<u64>,
    /// Past the system's page cache where that is possible.
    pub direct_io: bool,
    /// Take checkpoints in the background.
    pub background: bool,
    /// Bytes of a zone of a new store, where they are not to follow from the page.
    pub zone_bytes: Option<u32>,
    /// How the layouts of leaves are chosen.
    pub leaves: LeafPolicy,
    /// Merge leaves that fit into fewer before they are written to make room.
    pub merge_before_writing: bool,
    /// Whether changes are logged.
    pub log: bool,
    /// Within what time what was logged is durable.
    pub log_interval: Duration,
    /// The most that the log may hold since the last checkpoint.
    pub log_limit_bytes: u64,
    /// How long opening may take after a crash.
    pub recovery_target: Duration,
    /// Blocks of a segment of the log, for tests.
    pub log_segment_blocks: Option<u32>,
    /// For how long nobody has changed anything when the store is settled.
    pub settle_after: Duration,
    /// Snapshots that are older are given up.
    pub max_snapshot_age: Option<Duration>,
}

impl StoreOptions {
    /// The defaults, but for the log, which there is none of.
    pub fn without_log(memory_limit_bytes: u64) -> StoreOptions {
        StoreOptions {
            memory_limit_bytes,
            page_bytes: None,
            checkpoint_bytes: None,
            direct_io: true,
            background: true,
            zone_bytes: None,
            leaves: LeafPolicy::default(),
            merge_before_writing: true,
            log: false,
            log_interval: Duration::ZERO,
            log_limit_bytes: u64::MAX,
            recovery_target: Duration::MAX,
            log_segment_blocks: None,
            settle_after: super::settle::SETTLE_AFTER,
            max_snapshot_age: None,
        }
    }

    pub(super) fn new_page_bytes(&self) -> usize {
        self.page_bytes.unwrap_or(DEFAULT_PAGE_BYTES)
    }

    /// Whether files go past the page cache.
    pub fn direct(&self) -> DirectIo {
        if self.direct_io { DirectIo::WherePossible } else { DirectIo::Never }
    }

    pub(super) fn check(&self) -> Result<()> {
        match self.page_bytes {
            Some(bytes)
                if !bytes.is_power_of_two()
                    || !(MIN_PAGE_BYTES..=MAX_PAGE_BYTES).contains(&bytes) =>
            {
                Err(Error::new(
                    ErrorKind::InvalidOption,
                    format!(
                        "a page size of {bytes} bytes; it must be a power of two from 512 bytes to 64 KiB"
                    ),
                ))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn deltas(&self, page_bytes: usize) -> Result<Deltas> {
        let budget = Budget::divide(self.memory_limit_bytes, page_bytes, true, self.log)?;
        Ok(Deltas::new(budget.delta_bytes() as usize))
    }

    pub(super) fn pool(
        &self,
        page_bytes: usize,
        first_epoch: Epoch,
        first_lsn: Lsn,
        read_only: bool,
    ) -> PoolOptions {
        let default = (self.memory_limit_bytes / 2).max(MIN_CHECKPOINT_BYTES);
        PoolOptions {
            memory_limit_bytes: self.memory_limit_bytes,
            page_bytes,
            first_epoch,
            checkpoint_bytes: self.checkpoint_bytes.unwrap_or(default),
            read_only,
            logged: self.log && !read_only,
            first_lsn,
        }
    }
}
