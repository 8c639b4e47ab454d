//! Which frames may hold which pieces of large values.
//!
//! Buckets of eight words in one line of the processor's cache, each the frame and a part of the hash. An entry is a guess: the header of the
//! frame says what is in it. Losing an entry costs a read, so a full bucket replaces one. `Send + Sync`, without a lock.

use crate::buffer::zeroed::ZeroedArray;
use crate::error::Result;
use crate::page::FrameId;
use hedgerow_sync::optimistic;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use hedgerow_sync::primitive::atomic::{AtomicU32, AtomicU64};

/// Entries of a bucket: one line of the cache.
const BUCKET: usize = 8;
/// Frames for each bucket, so that buckets are half full when all frames hold pieces.
const FRAMES_A_BUCKET: u32 = 4;
/// Frames for each value that is remembered as read and not kept.
const FRAMES_A_READ: u32 = 8;
/// Bytes of the index for each frame.
pub(in crate::buffer) const INDEX_FRAME_BYTES: u64 =
    (BUCKET * 8) as u64 / FRAMES_A_BUCKET as u64 + 8 / FRAMES_A_READ as u64;

/// Which piece of which value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PieceName {
    /// The value's seed.
    pub seed: u64,
    /// Number of the piece, from 0.
    pub number: u32,
}

impl PieceName {
    /// A hash whose halves are of use apart from each other.
    pub(in crate::buffer) fn hash(self) -> u64 {
        PieceName::mixed(self.seed ^ (u64::from(self.number) << 32))
    }

    fn mixed(word: u64) -> u64 {
        // The seed is random already.
        let mixed = word.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 29)
    }
}

/// Where pieces may be.
pub(in crate::buffer) struct PieceIndex {
    /// A word: the low half is the frame and one, the high half is of the hash. Zero: nothing.
    words: ZeroedArray<AtomicU64>,
    buckets: u64,
    /// Values that were read and not kept: the high half is of the hash, the low one what `read` was then.
    reads: ZeroedArray<AtomicU64>,
    /// Pieces of values that were read and not kept.
    read: AtomicU32,
    frames: u32,
    /// Pieces that were given a frame: they get those from the top down, as pages of a new store get those from the
    /// bottom up. So memory is touched as it is needed, and pages find the frames that they prefer.
    pub(super) given: AtomicU32,
    /// Frames that are lent just now (`lent.rs`).
    pub(in crate::buffer) lent: AtomicU32,
    /// Frames among the others that belong to the page table (`retire.rs`).
    pub(in crate::buffer) retired_below: AtomicU32,
}

impl PieceIndex {
    /// Of a pool of so many frames.
    ///
    /// Errors: `MemoryLimit`.
    pub(in crate::buffer) fn new(frames: u32) -> Result<PieceIndex> {
        let buckets = frames.div_ceil(FRAMES_A_BUCKET);
        let words = ZeroedArray::new(buckets as usize * BUCKET)?;
        Ok(PieceIndex {
            words,
            buckets: u64::from(buckets),
            reads: ZeroedArray::new(frames.div_ceil(FRAMES_A_READ) as usize)?,
            read: AtomicU32::new(0),
            frames,
            given: AtomicU32::new(0),
            lent: AtomicU32::new(0),
            retired_below: AtomicU32::new(0),
        })
    }

    /// Whether a value of so many pieces was read before, and no more since then than there are frames for. Notes that it was read.
    pub(super) fn is_read_again(&self, seed: u64, pieces: u32) -> bool {
        let (now, hash) = (self.read.fetch_add(pieces, Relaxed), PieceName::mixed(seed));
        let reads = self.reads.items();
        let at = ((u128::from(hash) * reads.len() as u128) >> 64) as usize;
        let before = reads[at].swap(hash << 32 | u64::from(now), Relaxed);
        before >> 32 == hash & u64::from(u32::MAX) && now.wrapping_sub(before as u32) <= self.frames
    }

    /// Pieces of a value have neighbouring buckets: whoever keeps or forgets the value goes through one line of the processor's
    /// cache after the other.
    fn bucket(&self, name: PieceName) -> &[AtomicU64] {
        let (first, buckets) = (PieceName::mixed(name.seed), self.buckets);
        let first = ((u128::from(first) * u128::from(buckets)) >> 64) as u64;
        let mut bucket = first + u64::from(name.number);
        if bucket >= buckets {
            bucket %= buckets;
        }
        let at = bucket as usize * BUCKET;
        &self.words.items()[at..at + BUCKET]
    }

    fn word(name: PieceName, frame: FrameId) -> u64 {
        name.hash() << 32 | (u64::from(frame.0) + 1)
    }

    /// The frames that may hold the piece.
    pub(in crate::buffer) fn find(&self, name: PieceName) -> impl Iterator<Item = FrameId> {
        let hash = name.hash();
        self.bucket(name).iter().filter_map(move |word| {
            let word = word.load(Acquire);
            let is_it = word >> 32 == hash & u64::from(u32::MAX) && word as u32 != 0;
            is_it.then(|| FrameId(word as u32 - 1))
        })
    }

    /// Begins to load what [`Self::find`] will look at.
    #[inline]
    pub(in crate::buffer) fn prefetch(&self, name: PieceName) {
        optimistic::prefetch(std::ptr::from_ref(&self.bucket(name)[0]));
    }

    pub(super) fn insert(&self, name: PieceName, frame: FrameId) {
        let (bucket, new) = (self.bucket(name), Self::word(name, frame));
        let is_put = |word: &AtomicU64| word.compare_exchange(0, new, AcqRel, Relaxed).is_ok();
        if !bucket.iter().any(is_put) {
            // Which one does not matter: its frame goes when the clock comes by.
            bucket[(name.hash() >> 61) as usize % BUCKET].store(new, Release);
        }
    }

    pub(super) fn remove(&self, name: PieceName, frame: FrameId) {
        let old = Self::word(name, frame);
        for word in self.bucket(name) {
            if word.load(Relaxed) == old {
                word.compare_exchange(old, 0, AcqRel, Relaxed).ok();
            }
        }
    }
}
