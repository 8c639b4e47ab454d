//! How long the log's file is: what is prepared before anybody needs it, and what goes back.
//!
//! Rank 2. See [`Log`] for invariants and thread-safety.

use super::block::{BLOCK_BYTES, PAYLOAD_BYTES, block_of};
use super::log::Log;
use crate::error::Result;
use crate::types::Lsn;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed};

/// What is prepared ahead of need, as a part of what the file should have at most.
const AHEAD_PART: u64 = 8;

impl Log {
    /// Bytes of the log's file.
    pub fn file_bytes(&self) -> u64 {
        self.places.lock().file_bytes()
    }

    /// Notes that somebody who waits needs `len` bytes. A commit at one stroke may be longer than all that is prepared without
    /// being asked for. An address, so that nobody has to take it back: it is outdated when as much is promised.
    pub(super) fn want_room(&self, len: u64) {
        self.wanted.fetch_max(self.ring.promised().0 + len + PAYLOAD_BYTES, Relaxed);
    }

    /// Whether the next segment should be prepared: less than half of one is left beside the spare blocks, or less than somebody
    /// waits for.
    pub(super) fn wants_segment(&self) -> bool {
        let end = self.segment.first_block(self.places.lock().end());
        let reserved = self.reserved.load(Acquire);
        let ahead =
            block_of(Lsn(self.ring.promised().0 + reserved)) + u64::from(self.segment.blocks) / 2;
        // Beyond the limit it waits for a checkpoint.
        let bound = self.replay_start.load(Relaxed).saturating_add(self.limit_bytes);
        let wanted = block_of(Lsn(self.wanted.load(Relaxed).min(bound) + reserved));
        ahead.max(wanted) + self.spare_blocks() >= end
    }

    /// Whether a segment more should be prepared before anybody needs it: whoever prepares one may be held up by the disk
    /// while others append, so beside the ring there is as much room in prepared segments. A log that has had less
    /// than that appended needs no more than that.
    pub(super) fn wants_ahead(&self) -> bool {
        let end = self.places.lock().end();
        self.is_ahead_by_less_than(1, end)
    }

    /// Whether half of that is used up, for whoever has just used some: the log's thread may sleep. False while somebody has the
    /// places, who may be preparing one.
    pub(super) fn runs_short(&self) -> bool {
        self.places.try_lock().is_some_and(|places| self.is_ahead_by_less_than(2, places.end()))
    }

    /// Whether what is prepared up to the segment `end` is less than a part, one over `part`, of what should be.
    fn is_ahead_by_less_than(&self, part: u64, end: u64) -> bool {
        if self.cannot_prepare_ahead.load(Relaxed) {
            return false;
        }
        let end = self.segment.first_block(end);
        let needed = block_of(Lsn(self.ring.promised().0 + self.reserved.load(Acquire)));
        let begun = block_of(Lsn(self.cut.load(Relaxed)));
        let mut ahead = self.ring.blocks().min(needed.saturating_sub(begun));
        let most_ahead = self.bound_bytes.load(Relaxed) / AHEAD_PART / BLOCK_BYTES as u64;
        if most_ahead > 0 {
            ahead = ahead.min(most_ahead);
        }
        ahead /= part;
        let bound = self.replay_start.load(Relaxed).saturating_add(self.limit_bytes);
        (needed + ahead).min(block_of(Lsn(bound))) + self.spare_blocks() >= end
    }

    /// Gives room of the file back that is not likely to be used soon, after [`Self::checkpointed`]; `idle`: nothing is
    /// appended.
    ///
    /// Errors: `Io`.
    pub fn trim(&self, idle: bool) -> Result<()> {
        // As long as it is used the file keeps its length: each change of it would be one more for a commit to wait for.
        if !idle && self.file_bytes() <= self.bound_bytes.load(Relaxed) {
            return Ok(());
        }
        // One at a time: flushes wait for this lock.
        let mut trimmed = Ok(true);
        while matches!(trimmed, Ok(true)) {
            trimmed = self.places_to_write().trim(&*self.file, idle);
        }
        self.widen();
        trimmed.map(drop)
    }
}
