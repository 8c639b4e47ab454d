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
use super::log::{LONGEST_WAIT, Log, Promised, ROOM_WAIT};
use crate::error::{Error, ErrorKind, Result};
use crate::events::{Stall, WaitsFor};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire};
use hedgerow_sync::primitive::time::Moment;
use std::cell::Cell;

/// What a batch may take of the log's limit, and all batches together of as much as that.
const SHARE: u64 = 8;
const SHARES: u64 = 4;
/// The largest batch, where the log's limit allows for larger ones.
const MAX_RESERVED_BYTES: u64 = 128 << 20;

/// What a commit at one stroke may take of the blocks in memory.
const STROKE_SHARE: u64 = 4;

/// For what flushes skip while the batch is under way: some blocks, and one more for so many bytes.
const SLACK_BLOCKS: u64 = 4;
const SLACK_EVERY_BYTES: u64 = 4 << 10;
const MAX_SLACK_BLOCKS: u64 = 64;

fn slack_bytes(len: u64) -> u64 {
    (SLACK_BLOCKS + len / SLACK_EVERY_BYTES).min(MAX_SLACK_BLOCKS) * PAYLOAD_BYTES
}

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
        // Not below zero, even if a panic came between an append and its note.
        let rest = |reserved: u64| Some(reserved.saturating_sub(self.left.get()));
        let known = self.log.reserved.fetch_update(AcqRel, Acquire, rest);
        debug_assert!(known.is_ok());
        self.log.widen();
        self.log.tell_of_room(self.log.state.lock());
    }
}

impl Log {
    /// Whether a batch of so many bytes can ever be reserved. Errors: `BatchTooLarge`.
    pub fn check_batch(&self, len_bytes: u64) -> Result<()> {
        let max_bytes = self.most_batch_bytes();
        if len_bytes <= max_bytes {
            return Ok(());
        }
        let what = format!(
            "the batch takes {len_bytes} bytes of the log, and at most {max_bytes} fit: split it, or raise \
             `Options::log_limit_bytes` where that is below 1 GiB"
        );
        Err(Error::new(ErrorKind::BatchTooLarge { len_bytes, max_bytes }, what))
    }

    /// The most bytes of a batch that is logged whole.
    pub fn most_batch_bytes(&self) -> u64 {
        (self.limit_bytes / SHARE).min(MAX_RESERVED_BYTES)
    }

    /// Whether a commit of so many bytes may be appended at one stroke: a quarter of the blocks in memory, and no more of the
    /// limit than a batch.
    pub fn is_one_stroke(&self, len_bytes: u64) -> bool {
        len_bytes <= self.most_stroke_bytes()
    }

    /// The most bytes of such a commit.
    pub fn most_stroke_bytes(&self) -> u64 {
        (self.ring.blocks() * PAYLOAD_BYTES / STROKE_SHARE).min(self.limit_bytes / SHARE)
    }

    /// Reserves `len` bytes, which [`Self::check_batch`] has let pass; waits like any change while the log is full, and
    /// while other batches have reserved too much. The caller holds nothing.
    ///
    /// Errors: `DiskFull`; `Poisoned`; `Closed`; `Timeout`; those of `waiting`. Nothing is reserved then.
    pub fn reserve(&self, len: u64, waiting: &Waiting<'_>) -> Result<Reservation<'_>> {
        // Slowed down as so many changes are, and refused when nothing is written any more.
        self.slow_down(len, waiting);
        let little = len.min(PAYLOAD_BYTES / 4);
        self.promise_within(little, Promised::Freely, waiting)?;
        self.take_back(little, Promised::Freely);
        self.wait_for_others(len, waiting)?;
        let all = len + slack_bytes(len);
        // One segment at a time: commits need the places, too.
        while !self.try_reserve(all)? {}
        self.widen();
        Ok(Reservation { log: self, left: Cell::new(all) })
    }

    fn wait_for_others(&self, len: u64, waiting: &Waiting<'_>) -> Result<()> {
        let most = self.limit_bytes / SHARE * SHARES;
        if self.reserved.load(Acquire).saturating_add(len) <= most {
            return Ok(());
        }
        let _stall = Stall::begin(WaitsFor::Log);
        let since = Moment::now();
        while self.reserved.load(Acquire).saturating_add(len) > most {
            self.check_refusal()?;
            if since.elapsed() > LONGEST_WAIT {
                let what = "other batches took all room in the log for a minute";
                return Err(Error::new(ErrorKind::Timeout, what));
            }
            let most = waiting.nap_of(ROOM_WAIT)?;
            let mut state = self.state.lock();
            self.room.wait_for(&mut state, most);
        }
        Ok(())
    }

    /// Reserves if enough is prepared; else prepares a segment, or says why it cannot be.
    fn try_reserve(&self, all: u64) -> Result<bool> {
        let mut places = self.places_to_write();
        let prepared = start_of(self.segment.first_block(places.end()) - self.spare_blocks());
        // What is reserved first: what is promised of it meanwhile is counted twice then.
        let reserved = self.reserved.load(Acquire);
        let promised = self.ring.limit().max(self.ring.promised());
        if promised.0 + reserved + all <= prepared.0 {
            self.reserved.fetch_add(all, AcqRel);
            return Ok(true);
        }
        match places.prepare(&*self.file, &self.identity) {
            Ok(()) => Ok(false),
            Err(error) if error.kind() == ErrorKind::DiskFull => Err(error),
            Err(error) => {
                drop(places);
                self.fail(error.duplicate());
                Err(self.failure().unwrap_or(error))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_batch_keeps_more_blocks_for_what_flushes_skip() {
        for (len, blocks) in [(0, 4), (4095, 4), (4096, 5), (40 << 10, 14), (1 << 30, 64)] {
            assert_eq!(slack_bytes(len), blocks * PAYLOAD_BYTES, "{len}");
        }
    }
}
