//! Large values in memory: pieces of them in frames, beside the pages.
//!
//! A value that no leaf holds is cut into *pieces* as long as a page. A piece in a frame has no page id and is not in the page
//! table. Its frame's header names it: by the seed of the value, which is random and its own, and by its number. A value
//! never changes; an overwriting makes another one, with another seed. So a piece is never out of date: whoever has a reference
//! and finds a frame that names the piece has the right bytes, once the frame's version is validated.
//!
//! In a store with a file the pieces are a cache of extents. An index (`index.rs`) tells where a piece may be. Frames of pieces have no image to write: they are clean, and go when the clock comes by, as clean pages do.
//!
//! In a store that lives in memory a value is in its pieces and nowhere else. The record names the frames
//! ([`crate::large`]), nothing evicts them, and they are released when the record's value changes.
//!
//! Pages of pinned checkpoints (`pinned.rs`) are kept in the same way, under seeds of their own: they never change, and nothing
//! else has them in memory.
//!
//! Invariants: a frame names a piece only while it holds it; header and bytes change under the exclusive latch of the
//! frame. Nobody waits with the latch of such a frame held. `Send + Sync`.

use super::index::{PieceIndex, PieceName};
use crate::buffer::pool::BufferPool;
use crate::error::Result;
use crate::large::Extent;
use crate::large::Held;
use crate::page::{FrameHead, FrameId, Frames};
use crate::types::PageId;
use crate::wait::Waiting;
use hedgerow_sync::latch::ExclusiveGuard;
use hedgerow_sync::optimistic::{self, PageBytes, RacingBytes};
use hedgerow_sync::primitive::atomic::Ordering::{Relaxed, Release};
use hedgerow_sync::primitive::random;

/// A value that is kept takes at most this part of the limit.
const KEPT_PART: u64 = 64;
/// A value of more pieces is long: making room for it and copying it takes a large part of the time of reading it.
const LONG_PIECES: u32 = 8;

impl BufferPool {
    /// Whether a value of so many bytes may be kept in memory, when it was read or written.
    pub fn keeps_values_of(&self, len_bytes: u64) -> bool {
        len_bytes <= self.budget().limit_bytes() / KEPT_PART
    }

    /// Keeps a value in memory as far as there are frames for it at once. `used`: it is likely to be wanted again.
    pub fn keep_value(&self, seed: u64, value: &[u8], used: bool) {
        let Some(index) = &self.pieces else { return };
        if !self.keeps_values_of(value.len() as u64) {
            return;
        }
        let (frames, pieces) = (self.frames(), value.len().div_ceil(self.page_bytes) as u32);
        // Pieces of a value lie in the order of its bytes where that can be: reading them is faster by a third.
        let last = index.given.fetch_add(pieces, Relaxed).wrapping_add(pieces).wrapping_sub(1);
        for (number, bytes) in (0..).zip(value.chunks(self.page_bytes)) {
            let next = FrameId(frames - 1 - last.wrapping_sub(number) % frames);
            if !self.keep_piece_near(index, next, PieceName { seed, number }, bytes, used) {
                return;
            }
        }
    }

    /// Keeps a value in memory that was read, as far as there are frames for it at once. Others give way to a long one only if it was read
    /// before, not long ago.
    pub fn keep_read(&self, seed: u64, value: &[u8]) {
        let Some(index) = &self.pieces else { return };
        let pieces = value.len().div_ceil(self.page_bytes) as u32;
        let is_again = pieces > LONG_PIECES
            && self.keeps_values_of(value.len() as u64)
            && self.are_frames_short_for(pieces as usize);
        if !is_again || index.is_read_again(seed, pieces) {
            self.keep_value(seed, value, is_again);
        }
    }

    /// Keeps a piece if there is a frame for it at once; false if there is none.
    fn keep_piece_near(
        &self,
        index: &PieceIndex,
        near: FrameId,
        name: PieceName,
        bytes: &[u8],
        used: bool,
    ) -> bool {
        if self.is_kept(index, name) {
            return true;
        }
        let Some((frame, guard)) = self.try_obtain_used_frame(near) else { return false };
        self.fill_piece(frame, &guard, name, bytes);
        index.insert(name, frame);
        if used {
            self.header(frame).note_use();
        }
        true
    }

    /// Keeps bytes in memory, no more than a page, that are no part of a value: those of a pinned checkpoint, which a seed of their own
    /// names. As far as there is a frame for them at once.
    pub fn keep_piece(&self, name: PieceName, bytes: &[u8]) {
        let Some(index) = &self.pieces else { return };
        let near = FrameId(self.frames() - 1 - index.given.fetch_add(1, Relaxed) % self.frames());
        self.keep_piece_near(index, near, name, bytes, false);
    }

    /// Fills `to` with the bytes of a value from `from` on. False: not all of them are in memory, and `to` has anything.
    pub fn copy_kept(&self, seed: u64, from: u64, to: &mut [u8]) -> bool {
        let count = to.len();
        self.visit_kept(seed, from, count, |bytes, offset, done, count| {
            bytes.copy(offset, &mut to[done..done + count]);
        })
    }

    /// Appends the first bytes of a value to `to`. False: not all of them are in memory, and `to` is as it was.
    #[inline]
    pub fn append_kept(&self, seed: u64, count: usize, to: &mut Vec<u8>) -> bool {
        let before = to.len();
        to.reserve(count);
        let is_there = self.visit_kept(seed, 0, count, |bytes, offset, done, count| {
            // What an earlier frame had was not valid.
            to.truncate(before + done);
            bytes.append_to(offset, count, to);
        });
        if !is_there {
            to.truncate(before);
        }
        is_there
    }

    /// Hands over the parts of a value that make up `count` bytes from `from` on: bytes of the frame, offset in them, how many
    /// were done before, and how many there are. What was copied of a part that turns out not to be valid is handed over
    /// again, or the result is false.
    #[inline]
    fn visit_kept(
        &self,
        seed: u64,
        from: u64,
        count: usize,
        mut copy: impl FnMut(RacingBytes<'_>, usize, usize, usize),
    ) -> bool {
        let Some(index) = &self.pieces else { return false };
        let page_bytes = self.page_bytes as u64;
        let mut done = 0;
        // Where the next piece is if they lie in order: looking there costs less than the index.
        let mut guess: Option<FrameId> = None;
        while done < count {
            let at = from + done as u64;
            let name = PieceName { seed, number: (at / page_bytes) as u32 };
            let offset = (at % page_bytes) as usize;
            let part = (self.page_bytes - offset).min(count - done);
            let mut copy = |bytes: RacingBytes<'_>| copy(bytes, offset, done, part);
            let mut is_at = |frame: &FrameId| self.copy_piece(*frame, name, &mut copy);
            let guessed = guess.filter(|frame| frame.0 < self.frames()).filter(&mut is_at);
            let Some(frame) = guessed.or_else(|| index.find(name).find(is_at)) else {
                return false;
            };
            guess = Some(FrameId(frame.0 + 1));
            done += part;
        }
        true
    }

    /// Whether all pieces of a value of so many bytes seem to be in memory.
    pub fn has_kept(&self, seed: u64, len_bytes: u64) -> bool {
        let Some(index) = &self.pieces else { return false };
        let pieces = len_bytes.div_ceil(self.page_bytes as u64);
        pieces <= u64::from(self.frames())
            && (0..pieces as u32).all(|number| self.is_kept(index, PieceName { seed, number }))
    }

    fn is_kept(&self, index: &PieceIndex, name: PieceName) -> bool {
        index.find(name).any(|frame| self.header(frame).piece() == Some(name))
    }

    /// Whether a piece seems to be in memory.
    pub fn has_piece(&self, name: PieceName) -> bool {
        self.pieces.as_ref().is_some_and(|index| self.is_kept(index, name))
    }

    /// Lets `copy` read a piece, if the frame holds it. False: it does not, or is being emptied, and what was read is void.
    #[inline]
    pub(in crate::buffer) fn copy_piece(
        &self,
        frame: FrameId,
        name: PieceName,
        copy: &mut impl FnMut(RacingBytes<'_>),
    ) -> bool {
        let header = self.header(frame);
        let Some(version) = header.latch.optimistic() else { return false };
        if header.piece() != Some(name) {
            return false;
        }
        copy(self.bytes(frame));
        if !header.latch.validate(version) {
            return false;
        }
        header.note_use();
        true
    }

    /// Puts a piece into a frame without a page, whose exclusive latch is held.
    pub(in crate::buffer) fn fill_piece(
        &self,
        frame: FrameId,
        guard: &ExclusiveGuard<'_>,
        name: PieceName,
        bytes: &[u8],
    ) {
        let header = self.header(frame);
        assert!(
            std::ptr::eq(guard.latch(), &header.latch),
            "a frame is filled under its own latch"
        );
        assert!(header.is_free() && bytes.len() <= self.page_bytes);
        if optimistic::WRITERS_PUBLISH {
            let mut whole = vec![0; self.page_bytes];
            whole[..bytes.len()].copy_from_slice(bytes);
            // SAFETY: `publish` asks for the one writer, without a slice of the bytes: the guard is of the frame's latch.
            unsafe { self.bytes(frame).publish(&whole) };
        } else {
            // SAFETY: `as_mut_slice` asks for the one writer: the guard is of the frame's latch, and outlives the slice.
            let to = unsafe { self.bytes(frame).as_mut_slice() };
            to[..bytes.len()].copy_from_slice(bytes);
        }
        header.set_piece(name);
    }

    /// Puts a value into frames of its own, in a store that lives in memory; nobody knows of them yet.
    ///
    /// Errors: `MemoryLimit`. All frames are free again then.
    pub fn hold_value(&self, value: &[u8]) -> Result<Held> {
        assert!(self.slots.is_none(), "a store with a file has extents");
        let len_bytes = value.len() as u64;
        // Before the record is put.
        let born = self.last_lsn();
        let mut held = Held { len_bytes, seed: random::seed(), born, frames: Vec::new() };
        for (number, bytes) in (0..).zip(value.chunks(self.page_bytes)) {
            let name = PieceName { seed: held.seed, number };
            match self.obtain_frame(PageId(name.hash() as u32), &Waiting::Forever) {
                Ok((frame, guard)) => {
                    self.fill_piece(frame, &guard, name, bytes);
                    held.frames.push(frame.0);
                }
                Err(error) => {
                    self.release_held(&held);
                    return Err(error);
                }
            }
        }
        self.holds_values.store(true, Release);
        Ok(held)
    }

    /// Frees the frames of a value that no record refers to any more. Readers that come late find that the frames hold
    /// something else.
    pub fn release_held(&self, held: &Held) {
        for (number, &frame) in (0..).zip(&held.frames) {
            let (name, frame) = (PieceName { seed: held.seed, number }, FrameId(frame));
            if frame.0 < self.frames() && self.header(frame).piece() == Some(name) {
                let guard = self.header(frame).latch.exclusive();
                self.release_frame(frame, guard);
            }
        }
    }

    /// Appends a value to `to`. False: its record has another value by now, and `to` is as it was.
    pub fn append_held(&self, held: &Held, to: &mut Vec<u8>) -> bool {
        let before = to.len();
        to.reserve(held.len_bytes as usize);
        for (number, &frame) in (0..).zip(&held.frames) {
            let (name, frame) = (PieceName { seed: held.seed, number }, FrameId(frame));
            let at = before + number as usize * self.page_bytes;
            let count = self.page_bytes.min(before + held.len_bytes as usize - at);
            let mut copy = |bytes: RacingBytes<'_>| bytes.append_to(0, count, to);
            if frame.0 >= self.frames() || !self.copy_piece(frame, name, &mut copy) {
                to.truncate(before);
                return false;
            }
        }
        true
    }

    /// Frees the frames of a value that no record refers to any more, as far as nobody is using them. Readers that come late
    /// read the file. Waits for nobody, so the caller may hold a latch.
    pub(in crate::buffer) fn forget_value(&self, extent: &Extent) {
        let Some(index) = &self.pieces else { return };
        if !self.keeps_values_of(extent.len_bytes) {
            return;
        }
        let pieces = extent.len_bytes.div_ceil(self.page_bytes as u64) as u32;
        let mut guess: Option<FrameId> = None;
        // From the last one down: what is freed last is taken first, and then the next value has its pieces in order.
        for number in (0..pieces).rev() {
            let name = PieceName { seed: extent.seed, number };
            let is_it = |frame: &FrameId| self.header(*frame).piece() == Some(name);
            let guessed = guess.filter(is_it);
            // What is not in memory as a whole is left to the clock.
            let Some(frame) = guessed.or_else(|| index.find(name).find(is_it)) else {
                return;
            };
            guess = frame.0.checked_sub(1).map(FrameId);
            let Some(guard) = self.header(frame).latch.try_exclusive() else { continue };
            if is_it(&frame) {
                self.forget_piece(frame, name);
                self.release_frame(frame, guard);
            } else {
                guard.release_unchanged();
            }
        }
    }

    /// Notes that a frame, whose exclusive latch is held, is about to lose its piece.
    pub(in crate::buffer) fn forget_piece(&self, frame: FrameId, name: PieceName) {
        if let Some(index) = &self.pieces {
            index.remove(name, frame);
        }
    }
}
