//! Values lent in place: the pieces of a value in memory, latched shared, and read where they lie.
//!
//! A copy of a value of 64,000 bytes takes longer than everything else that a look-up does. So a value whose pieces are
//! all in memory is lent: each frame is latched shared, and its bytes are a slice as long as the latch is held. Frames that
//! follow each other hold bytes that follow each other, so a run of them is one slice, and most values are one run.
//!
//! Whoever is lent a value may keep it for as long as he likes, use the database meanwhile, or never give it back. So nobody
//! waits for such a latch for good. Eviction and replacing a value only try. The page table, which takes the topmost frames, passes
//! over one that is lent (`retire.rs`). In a store that lives in memory nothing is lent, because frames of a replaced value have
//! to be free at once there. All values that are lent at a time have at most one frame in [`LENT_PART`]; the next one is copied.
//!
//! Lending itself waits for nothing: a piece that is being emptied, or that somebody waits for, is not lent. Invariant: the slices are
//! of frames whose shared latches lie beside them. `Send + Sync`, as the latches are.

use crate::buffer::large::PieceName;
use crate::buffer::pool::BufferPool;
use crate::page::{FrameHead, FrameId};
use crate::types::PART_BYTES;
use hedgerow_sync::latch::SharedGuard;
use hedgerow_sync::optimistic::{self, RacingBytes};
use hedgerow_sync::primitive::atomic::AtomicU32;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use std::fmt;

/// One frame in so many may be lent at a time.
const LENT_PART: u32 = 16;
/// Latches that are kept without an allocation.
const INLINE_LATCHES: usize = 16;
/// A value of fewer pieces is copied for whoever keeps it: moving the latches to him would cost as much.
const LEAST_PIECES: u32 = 2;
/// The most pieces of a value that is lent for one call. Their latches are not moved.
const CALL_PIECES: usize = 4;

/// A value in the frames that hold it.
pub struct Lent<'p> {
    /// What the value begins with, and what follows it elsewhere.
    first: &'p [u8],
    others: Vec<&'p [u8]>,
    /// Of all frames that the slices lie in.
    latches: [Option<SharedGuard<'p>>; INLINE_LATCHES],
    more_latches: Vec<SharedGuard<'p>>,
    _share: Share<'p>,
}

impl fmt::Debug for Lent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lent").field("len_bytes", &self.len_bytes()).finish_non_exhaustive()
    }
}

/// Frames that are counted as lent.
struct Share<'p> {
    lent: &'p AtomicU32,
    frames: u32,
}

impl<'p> Share<'p> {
    /// `None`: too many are lent already.
    #[inline]
    fn take(lent: &'p AtomicU32, frames: u32, most: u32) -> Option<Share<'p>> {
        let before = lent.fetch_add(frames, Relaxed);
        let share = Share { lent, frames };
        (before.saturating_add(frames) <= most).then_some(share)
    }
}

impl Drop for Share<'_> {
    #[inline]
    fn drop(&mut self) {
        self.lent.fetch_sub(self.frames, Relaxed);
    }
}

impl Lent<'_> {
    /// Length of the value.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.parts().map(<[u8]>::len).sum()
    }

    /// The bytes of the value, in order; no part is empty.
    #[inline]
    pub fn parts(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.first).chain(self.others.iter().copied())
    }

    /// The value as one slice, if its frames are neighbours.
    #[inline]
    pub fn whole(&self) -> Option<&[u8]> {
        self.others.is_empty().then_some(self.first)
    }

    /// Appends the value to `to`.
    pub fn append_to(&self, to: &mut Vec<u8>) {
        to.reserve(self.len_bytes());
        self.parts().for_each(|part| to.extend_from_slice(part));
    }
}

impl BufferPool {
    /// Whether values may be lent: with smaller pages, a part of the page table needs several neighbouring frames, none of which may
    /// be lent.
    #[inline]
    pub(super) fn lends_values(&self) -> bool {
        self.page_bytes >= PART_BYTES
    }

    /// Lends a value of so many bytes. `None`: not all of it is in memory, or it is better copied. Waits for nothing.
    #[inline]
    pub fn lend_kept(&self, seed: u64, len_bytes: usize) -> Option<Lent<'_>> {
        let index = self.pieces.as_ref()?;
        let pieces = u32::try_from(len_bytes.div_ceil(self.page_bytes)).ok()?;
        if pieces < LEAST_PIECES || !self.lends_values() {
            return None;
        }
        let share = Share::take(&index.lent, pieces, self.frames() / LENT_PART)?;
        let mut lent = Lent {
            first: &[],
            others: Vec::new(),
            latches: [const { None }; INLINE_LATCHES],
            more_latches: Vec::new(),
            _share: share,
        };
        let more = (pieces as usize).saturating_sub(INLINE_LATCHES);
        lent.more_latches.reserve_exact(more);
        // Where the run of neighbours begins that the last piece belongs to, and its length.
        let (mut run, mut run_frames) = (FrameId(0), 0);
        for number in 0..pieces {
            let name = PieceName { seed, number };
            let next = FrameId(run.0 + run_frames);
            let guessed = (run_frames > 0).then(|| self.latch_piece(next, name)).flatten();
            let (frame, latch) = match guessed {
                Some(latch) => (next, latch),
                None => {
                    let latch = |frame| Some((frame, self.latch_piece(frame, name)?));
                    index.find(name).find_map(latch)?
                }
            };
            match lent.latches.get_mut(number as usize) {
                Some(place) => *place = Some(latch),
                None => lent.more_latches.push(latch),
            }
            if run_frames > 0 && frame != next {
                // It is not the last one, so it is of whole frames.
                let bytes = run_frames as usize * self.page_bytes;
                // SAFETY: `latched` asks for the latches: they lie in `lent`, behind the slices.
                lent.add(unsafe { self.latched(run, run_frames, bytes) });
                (run, run_frames) = (frame, 0);
            } else if run_frames == 0 {
                run = frame;
            }
            run_frames += 1;
        }
        let before = (pieces - run_frames) as usize * self.page_bytes;
        // SAFETY: as above.
        lent.add(unsafe { self.latched(run, run_frames, len_bytes - before) });
        Some(lent)
    }

    /// Calls `f` with a value of few pieces where it lies, in neighbouring frames. Gives `f` back if not all of it is in memory, or it is
    /// longer, or lies elsewhere. Waits for nothing.
    #[inline]
    pub fn with_kept<R, F: FnOnce(&[u8]) -> R>(
        &self,
        seed: u64,
        len_bytes: usize,
        f: F,
    ) -> std::result::Result<R, F> {
        let pieces = len_bytes.div_ceil(self.page_bytes);
        let Some(index) = &self.pieces else { return Err(f) };
        if pieces > CALL_PIECES || !self.lends_values() {
            return Err(f);
        }
        let share = Share::take(&index.lent, pieces as u32, self.frames() / LENT_PART);
        let Some(_share) = share else { return Err(f) };
        let mut latches = [const { None }; CALL_PIECES];
        let mut first = FrameId(0);
        for (number, place) in (0..).zip(&mut latches[..pieces]) {
            let name = PieceName { seed, number };
            *place = match number {
                0 => index.find(name).find_map(|frame| {
                    first = frame;
                    // Headers and bytes come at the same time, also of the frames behind.
                    (0..pieces as u32)
                        .for_each(|next| self.prefetch_frame(FrameId(frame.0 + next)));
                    self.latch_piece(frame, name)
                }),
                _ => self.latch_piece(FrameId(first.0 + number), name),
            };
            if place.is_none() {
                return Err(f);
            }
        }
        // SAFETY: `latched` asks for the latches of these frames: they lie in `latches` until `f` has ended.
        Ok(f(unsafe { self.latched(first, pieces as u32, len_bytes) }))
    }

    /// Hands a piece to `look` where it lies, with what else its frame has. Gives `look` back if it is not in memory. Waits for nothing.
    #[inline]
    pub fn look_at_piece<R, F: FnOnce(&[u8]) -> R>(
        &self,
        name: PieceName,
        look: F,
    ) -> std::result::Result<R, F> {
        let Some(index) = &self.pieces else { return Err(look) };
        let found =
            index.find(name).find_map(|frame| Some((frame, self.latch_piece(frame, name)?)));
        let Some((frame, _latch)) = found else { return Err(look) };
        // SAFETY: `latched` asks for the latch of the frame: it is held until `look` has ended.
        Ok(look(unsafe { self.latched(frame, 1, self.page_bytes) }))
    }

    /// Latches a frame if it holds the piece.
    #[inline]
    pub(super) fn latch_piece(&self, frame: FrameId, name: PieceName) -> Option<SharedGuard<'_>> {
        if frame.0 >= self.frames() {
            return None;
        }
        let header = self.header(frame);
        let latch = header.latch.try_shared()?;
        if header.piece() != Some(name) {
            return None;
        }
        header.note_use();
        Some(latch)
    }

    /// The first bytes of neighbouring frames.
    ///
    /// # Safety
    /// While the slice lives, the caller holds the latches of all these frames.
    #[inline]
    unsafe fn latched(&self, first: FrameId, frames: u32, len_bytes: usize) -> &[u8] {
        assert!(first.0 + frames <= self.budget().frames());
        let bytes = frames as usize * self.page_bytes;
        // SAFETY: `RacingBytes::new` asks for memory that is aligned, valid as long as the view lives, and written only by the
        // rules of its module: frames lie one behind the other in the arena, which lives as long as the pool, and each
        // is written under its exclusive latch alone. `as_slice` asks that nobody writes: the caller has the latches.
        let whole = unsafe { RacingBytes::new(self.memory(first), bytes).as_slice() };
        &whole[..len_bytes]
    }

    /// Begins to load what a look-up of a kept value needs: the line of the index, so that [`Self::prefetch_piece`] can
    /// be asked soon.
    #[inline]
    pub fn prefetch_kept(&self, seed: u64) {
        if let Some(index) = &self.pieces {
            index.prefetch(PieceName { seed, number: 0 });
        }
    }

    /// Begins to load the header and the first bytes of a value's first piece.
    #[inline]
    pub fn prefetch_piece(&self, seed: u64) {
        let Some(index) = &self.pieces else { return };
        if let Some(frame) = index.find(PieceName { seed, number: 0 }).next() {
            self.prefetch_frame(frame);
        }
    }

    /// Begins to load the header and the first bytes of a frame.
    #[inline]
    pub(super) fn prefetch_frame(&self, frame: FrameId) {
        if frame.0 >= self.frames() {
            return;
        }
        optimistic::prefetch(std::ptr::from_ref(self.header(frame)));
        let bytes = self.memory(frame).cast_const();
        for line in 0..4 {
            optimistic::prefetch(bytes.wrapping_add(64 * line));
        }
    }
}

impl<'p> Lent<'p> {
    fn add(&mut self, part: &'p [u8]) {
        if self.first.is_empty() {
            self.first = part;
        } else {
            self.others.push(part);
        }
    }
}
