//! A log that nobody writes to goes back to its first places, so that its file can be as short as that of a new one.
//!
//! Rank 2. Segments that were prepared and not begun are given up, and the one that is begun is filled with empty
//! blocks, so that the log goes on in the lowest place that is free. The next checkpoint names that place, and makes all
//! others superfluous.
//!
//! # Invariants
//! - All of it happens while nobody holds a promise and nobody gets one: what is given up was promised to nobody.
//! - A place that is given up has lost its name, durably, before another place gets that name.
//! - The role of the flusher and the lock of the places are held throughout, in this order.
//!
//! See [`Log`] for thread-safety.

use super::block::{BLOCK_BYTES, BlockHeader, block_of, seal, start_of};
use super::log::Log;
use super::ring::Flusher;
use crate::error::{ErrorKind, Result};
use crate::storage::AlignedBuffer;
use crate::types::{Epoch, Lsn};
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release};

impl Log {
    /// Makes the next checkpoint leave no more of the file than a new log has, if the last one has all that was appended
    /// and nobody appends. False: that was not so, and nothing has happened.
    ///
    /// Errors: `MemoryLimit`, after which nothing has changed; `Io` and `DiskFull`, after which nothing is written any more.
    pub fn draw_in(&self) -> Result<bool> {
        let mut empty = AlignedBuffer::zeroed(self.segment.blocks as usize * BLOCK_BYTES)?;
        let mut state = self.state.lock();
        if state.flushing || state.stopped || state.failed.is_some() {
            return Ok(false);
        }
        state.flushing = true;
        drop(state);
        let drawn_in = self.draw_in_as_flusher(&mut empty);
        self.widen();
        if let Err(error) = &drawn_in {
            self.fail(error.duplicate());
        }
        // Whoever has come meanwhile is served, and the role goes to the next.
        self.flush_and_hand_over(true);
        drawn_in
    }

    /// Flushes, and makes the next checkpoint say that it has everything up to there. The last one may have everything,
    /// and have been taken in the middle of a block, of which a flush has skipped the rest.
    ///
    /// Errors: those of [`Log::flush`].
    pub fn flush_to_cut(&self) -> Result<()> {
        self.flush()?;
        if self.cut.load(Relaxed) < self.tail().0 {
            self.cut_again.store(true, Relaxed);
        }
        Ok(())
    }

    fn draw_in_as_flusher(&self, empty: &mut AlignedBuffer) -> Result<bool> {
        let mut places = self.places_to_write();
        let tail = self.ring.tail();
        let block = block_of(tail);
        let has_all = self.replay_start() >= tail
            && start_of(self.written.load(Acquire)) == tail
            && self.durable() == tail
            && self.reserved.load(Acquire) == 0;
        if !has_all || !places.can_be_fewer() {
            return Ok(has_all);
        }
        let Some(shut) = self.ring.flusher().and_then(Flusher::shut) else { return Ok(false) };
        let begun = self.segment.segment_of(block);
        let done = places.give_up_beyond(&*self.file, begun).and_then(|()| {
            let prepared = match places.prepare_low(&*self.file, &self.identity) {
                // There are holes only: it goes on where it is.
                Err(error) if error.kind() == ErrorKind::DiskFull => return Ok(block),
                other => other,
            };
            prepared?;
            let next = self.segment.first_block(begun + 1);
            if !places.is_behind_first(begun) {
                return Ok(block);
            }
            let (durable, checkpoint) = (self.durable(), Epoch(self.checkpoint.load(Relaxed)));
            for (number, bytes) in (block..next).zip(empty.chunks_exact_mut(BLOCK_BYTES)) {
                let header = BlockHeader { number, durable, checkpoint, used: 0 };
                seal(bytes, &self.identity, &header);
            }
            let filled = &empty[..(next - block) as usize * BLOCK_BYTES];
            self.file.write_at(places.offset_bytes(block), filled)?;
            Ok(next)
        });
        let done = done.and_then(|to| {
            // The names, too.
            self.file.sync_data()?;
            Ok(to)
        });
        let to = *done.as_ref().unwrap_or(&block);
        self.written.store(to, Release);
        self.durable.store(start_of(to).0, Release);
        self.cut_again.store(to > block, Relaxed);
        shut.go_on_at(start_of(to));
        done.map(|_| true)
    }

    /// Whether a checkpoint would make log superfluous though nothing was changed since the last one.
    pub fn wants_cut(&self) -> bool {
        self.cut_again.load(Relaxed)
    }

    fn replay_start(&self) -> Lsn {
        Lsn(self.replay_start.load(Relaxed))
    }
}
