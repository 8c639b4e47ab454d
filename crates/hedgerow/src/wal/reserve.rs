//! Room in the log for all records of a batch, before its first.
//!
//! Rank 2. A batch that has begun is finished, so it must never wait for what its own beginning keeps from being
//! freed: the log before its first record is needed until its last one is made. So the room for all of it is
//! *reserved* before anything is appended: places in the file are prepared for it, and other writers' promises end
//! before them. What a writer of the batch then waits for is the flusher alone.
//!
//! # Invariants
//! - Promises that were not reserved, and all that is reserved, fit into what is prepared, less the spare blocks.
//!   `reserved` grows under the lock of the places; whoever widens the limits holds it, too.
//! - What is reserved and promised is counted twice for a moment, never not at all.
//!
//! `Send + Sync`, but for [`Reservation`], which stays with the thread of its batch.

use super::block::{PAYLOAD_BYTES, start_of};
use super::log::{Log, Promised};
use crate::error::{Error, ErrorKind, Result};
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire};
use std::cell::Cell;

/// What a batch may take of the log's limit.
const SHARE: u64 = 8;
/// The largest batch, where the log's limit allows for larger ones.
const MAX_RESERVED_BYTES: u64 = 128 << 20;
/// For what flushes skip while the batch is under way.
const SLACK_BYTES: u64 = 4 * PAYLOAD_BYTES;

/// Room that was reserved; what is not used is given back when it is dropped.
#[must_use]
pub struct Reservation<'l> {
    log: &'l Log,
    left: Cell<u64>,
}

impl Reservation<'_> {
    /// Notes that `len` bytes of it were promised and appended.
    pub fn used(&self, len: u64) {
        let left = self.left.get();
        assert!(len <= left, "a batch appends no more than was reserved");
        self.left.set(left - len);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.log.reserved.fetch_sub(self.left.get(), AcqRel);
    }
}

impl Log {
    /// The most that can be reserved at a time.
    pub fn max_reserved_bytes(&self) -> u64 {
        (self.limit_bytes / SHARE).min(MAX_RESERVED_BYTES)
    }

    /// Reserves `len` bytes; waits like any change while the log is full. The caller holds nothing.
    ///
    /// Errors: `BatchTooLarge`; `DiskFull`; `Poisoned`; `Closed`; `Timeout`.
    pub fn reserve(&self, len: u64) -> Result<Reservation<'_>> {
        let max_bytes = self.max_reserved_bytes();
        if len > max_bytes {
            let what = format!("the batch takes {len} bytes of the log, and {max_bytes} fit");
            return Err(Error::new(ErrorKind::BatchTooLarge { len_bytes: len, max_bytes }, what));
        }
        // As any change is slowed down and waits while there is no room at all.
        let now = len.min(self.ring.max_record_bytes() / 2);
        self.promise(now, Promised::Freely)?;
        self.take_back(now, Promised::Freely);
        let all = len + SLACK_BYTES;
        let mut places = self.places.lock();
        loop {
            let prepared = start_of(self.segment.first_block(places.end()) - self.spare_blocks());
            let needed = self.ring.limit().0 + self.reserved.load(Acquire) + all;
            if needed <= prepared.0 {
                self.reserved.fetch_add(all, AcqRel);
                break;
            }
            match places.prepare(&*self.file, &self.identity) {
                Ok(()) => {}
                Err(error) if *error.kind() == ErrorKind::DiskFull => return Err(error),
                Err(error) => {
                    drop(places);
                    self.fail(error.duplicate());
                    return Err(self.failure().unwrap_or(error));
                }
            }
        }
        drop(places);
        self.widen();
        Ok(Reservation { log: self, left: Cell::new(all) })
    }
}
