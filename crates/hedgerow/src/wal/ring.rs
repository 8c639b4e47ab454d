//! The log's blocks in memory: writers claim a place, fill it and say so, all without a lock.
//!
//! Rank 2. Three steps, and who may be in which:
//!
//! - [`Ring::promise`], before anything is latched: makes sure that the record will find room. What a
//!   writer was promised and did not use it gives back.
//! - [`Ring::append`], under the leaf's exclusive latch: one addition claims the addresses, so that the order
//!   of claims is the order in which each key changed; then the bytes are copied, and the block is told how
//!   many of its bytes are in place. It waits for nothing and cannot fail.
//! - [`Flusher::close`] to [`Flusher::release`]: ends the block that is being filled, waits until those who have claimed
//!   in it have copied, and lends the blocks out to be written. There is one [`Flusher`] at a time.
//!
//! # Invariants
//! - `tail <= promised`; `promised` never exceeds `limit` but for what [`Flusher::close`] skips, for which
//!   [`Ring::promise`] leaves one block: there is one flusher at a time, and it skips less than a block.
//! - Neither limit is ever beyond the *end*, which is the ring's length beyond the first block that was not released,
//!   and nothing is copied to an address beyond the end, promised or not. So a place is written again only after it was
//!   released.
//! - There are two: promises that were *reserved* beforehand go as far as there are places in the file; all others
//!   leave room for those.
//! - A block is whole when as many bytes are in place as it has payload, skipped ones included. Each count is
//!   added after its bytes (release) and read before them (acquire).
//!
//! `Send + Sync`; loom models the protocol (`tests/loom/log.rs`).

use super::block::{BLOCK_BYTES, HEADER_BYTES, PAYLOAD_BYTES, block_of, start_of};
use super::record::Record;
use crate::error::Result;
use crate::storage::AlignedBuffer;
use crate::types::Lsn;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU32, AtomicU64};
use hedgerow_sync::primitive::witness::Witness;
use hedgerow_sync::primitive::{hint, thread};

/// See the head of the file. It lends no blocks itself: whoever writes them is the one [`Flusher`].
///
/// ```compile_fail,E0599
/// # use hedgerow::internals::{types::Lsn, wal::ring::Ring};
/// # let ring = Ring::new(8, Lsn(0)).unwrap();
/// let (first, second) = (ring.whole(0, 0), ring.whole(0, 0));
/// first[0] = second[0];
/// ```
pub struct Ring {
    /// Reached by its start alone: nobody may have a slice of all of it.
    bytes: AlignedBuffer,
    /// Number of blocks, a power of two.
    blocks: u64,
    /// The next address.
    tail: Line,
    /// The tail, and what was promised and not yet claimed.
    promised: Line,
    /// Promises end here.
    limit: Line,
    /// And those that were reserved here.
    reserved_limit: Line,
    /// Nothing is ever copied to here or beyond: the ring's length behind the first block that was not released.
    end: Line,
    /// Somebody has the [`Flusher`].
    is_flushed: AtomicBool,
    /// Of each block in memory the bytes of payload that are in place.
    filled: Box<[AtomicU32]>,
    /// Of the bytes, for the model checker.
    witness: Witness,
}

/// A word that has a pair of cache lines to itself.
#[repr(align(128))]
struct Line(AtomicU64);

// SAFETY: the bytes are reached through `Ring` and `Flusher` alone. Between a claim and the count that follows it a
// range of addresses belongs to the one thread that claimed it, because claims do not overlap and nothing is copied to a
// place before it was released; a whole block belongs to the one flusher until it releases it.
unsafe impl Sync for Ring {}

/// The right to write the ring's blocks, of which there is one at a time: see [`Ring::flusher`].
///
/// ```compile_fail,E0499
/// # use hedgerow::internals::{types::Lsn, wal::ring::Ring};
/// # let ring = Ring::new(8, Lsn(0)).unwrap();
/// # let mut flusher = ring.flusher().unwrap();
/// let first = flusher.whole(0, 0);
/// let second = flusher.whole(0, 0); // `first` is borrowed
/// first[0] = second[0];
/// ```
///
/// ```compile_fail,E0502
/// # use hedgerow::internals::{types::Lsn, wal::ring::Ring};
/// # let ring = Ring::new(8, Lsn(0)).unwrap();
/// # let mut flusher = ring.flusher().unwrap();
/// let block = flusher.block(0);
/// flusher.release(1); // `block` is borrowed
/// assert_eq!(block[0], 0);
/// ```
pub struct Flusher<'r> {
    ring: &'r Ring,
    /// The first block that was not released.
    from: u64,
    /// The first block that was not found whole; those before it, from `from` on, are lent out.
    whole: u64,
    /// The first block that was not closed.
    to: u64,
}

impl Drop for Flusher<'_> {
    fn drop(&mut self) {
        // Release: the next flusher sees what this one has done.
        self.ring.is_flushed.store(false, Release);
    }
}

/// No log begins beyond this address. What is appended, a ring at a time, never gets to the last one.
const MAX_START: u64 = 1 << 63;
/// Blocks of the ring in memory at most, and at least.
const MAX_RING_BLOCKS: u64 = 4096;
const MIN_RING_BLOCKS: u64 = 8;
/// The ring's share of a small memory limit, and so many blocks at most; and of a large one. While a checkpoint writes,
/// a flush waits for the disk, and all that is appended meanwhile has to fit.
const RING_SHARE: u64 = 32;
const SMALL_RING_BLOCKS: u64 = 512;
const LARGE_RING_SHARE: u64 = 64;

/// Blocks of the log's ring within a memory limit: a power of two.
pub fn ring_blocks(memory_limit_bytes: u64, page_bytes: usize) -> u32 {
    let blocks = |share| memory_limit_bytes / share / BLOCK_BYTES as u64;
    let share = blocks(RING_SHARE).min(SMALL_RING_BLOCKS).max(blocks(LARGE_RING_SHARE));
    // A record is up to half of a page, and several threads append.
    let least = MIN_RING_BLOCKS.max(4 * page_bytes as u64 / BLOCK_BYTES as u64);
    let blocks = share.clamp(least, MAX_RING_BLOCKS.max(least));
    let blocks = if blocks.is_power_of_two() { blocks } else { blocks.next_power_of_two() / 2 };
    blocks as u32
}

/// Where a record stands in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// Its first byte.
    pub start: Lsn,
    /// The byte behind it: when the log is durable up to here, so is the record.
    pub end: Lsn,
}

impl Ring {
    /// An empty ring of `blocks` blocks whose first address is `start`, the start of a block. Nothing is
    /// promised until there is a limit.
    ///
    /// Errors: `MemoryLimit`.
    pub fn new(blocks: u32, start: Lsn) -> Result<Ring> {
        assert!(blocks.is_power_of_two() && blocks >= 2, "a ring has a power of two of blocks");
        assert!(start.0.is_multiple_of(PAYLOAD_BYTES), "a log begins with a block");
        assert!(start.0 <= MAX_START, "addresses do not run out");
        Ok(Ring {
            bytes: AlignedBuffer::untouched(blocks as usize * BLOCK_BYTES)?,
            blocks: u64::from(blocks),
            tail: Line(AtomicU64::new(start.0)),
            promised: Line(AtomicU64::new(start.0)),
            limit: Line(AtomicU64::new(start.0)),
            reserved_limit: Line(AtomicU64::new(start.0)),
            end: Line(AtomicU64::new(start.0 + u64::from(blocks) * PAYLOAD_BYTES)),
            is_flushed: AtomicBool::new(false),
            filled: (0..blocks).map(|_| AtomicU32::new(0)).collect(),
            witness: Witness::default(),
        })
    }

    /// Number of blocks.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The longest record that is ever promised room.
    pub fn max_record_bytes(&self) -> u64 {
        (self.blocks - 1) * PAYLOAD_BYTES
    }

    /// The next address: everything that was appended lies below.
    #[inline]
    pub fn tail(&self) -> Lsn {
        Lsn(self.tail.0.load(SeqCst))
    }

    /// The tail, and what was promised beyond it.
    pub fn promised(&self) -> Lsn {
        Lsn(self.promised.0.load(Relaxed))
    }

    /// Whether there is room for `len` bytes; if so they are set aside until [`Self::append`] or
    /// [`Self::take_back`].
    #[inline]
    pub fn promise(&self, len: u64) -> bool {
        self.promise_up_to(&self.limit.0, len)
    }

    /// As [`Self::promise`], of room that was reserved.
    pub fn promise_reserved(&self, len: u64) -> bool {
        self.promise_up_to(&self.reserved_limit.0, len)
    }

    #[inline(always)]
    fn promise_up_to(&self, limit: &AtomicU64, len: u64) -> bool {
        // Acquire: whoever appends within the limit sees the end that the limit is not beyond.
        let limit = limit.load(Acquire);
        let mut promised = self.promised.0.load(Relaxed);
        // One block is left for what a flusher skips.
        while promised + len + PAYLOAD_BYTES <= limit {
            match self.promised.0.compare_exchange_weak(promised, promised + len, Relaxed, Relaxed)
            {
                Ok(_) => return true,
                Err(seen) => promised = seen,
            }
        }
        false
    }

    /// Whether `len` bytes more have room in the ring's blocks, of which those below `written` are free again.
    pub fn has_blocks_for(&self, len: u64, written: u64) -> bool {
        self.promised().0 + len + PAYLOAD_BYTES <= start_of(written + self.blocks).0
    }

    /// Gives back what was promised and will not be used.
    pub fn take_back(&self, len: u64) {
        self.promised.0.fetch_sub(len, Relaxed);
    }

    /// Appends a record for which there is a promise of its length.
    ///
    /// # Panics
    /// If there is none, and no room either. What is claimed then stays a gap, and no flush gets past it.
    #[inline]
    pub fn append(&self, record: &Record<'_>) -> Appended {
        let (header, [key, value]) = record.encode();
        let len = (header.len() + key.len() + value.len()) as u64;
        // The order of claims on one key is that of the leaf's latch. Sequentially consistent, so that
        // whoever goes to sleep because there is nothing to flush is seen, or sees this.
        let start = self.tail.0.fetch_add(len, SeqCst);
        debug_assert!(start + len <= self.promised.0.load(Relaxed));
        // Acquire: what lies before the end was released, and its count is zero.
        let room = self.end.0.load(Acquire).saturating_sub(start);
        assert!(len <= room, "nothing is appended that was not promised");
        let mut at = start;
        for part in [&header[..], key, value] {
            at = self.copy(at, part);
        }
        self.say_filled(start, at);
        Appended { start: Lsn(start), end: Lsn(at) }
    }

    /// Copies bytes to addresses that this thread has claimed; returns the address behind them.
    #[inline]
    fn copy(&self, mut at: u64, mut part: &[u8]) -> u64 {
        while !part.is_empty() {
            let within = at % PAYLOAD_BYTES;
            let now = part.len().min((PAYLOAD_BYTES - within) as usize);
            let to = self.block_start(block_of(Lsn(at)));
            self.witness.touch(self.place_of(block_of(Lsn(at))) + within);
            // SAFETY: `copy_nonoverlapping` asks for both ranges to be valid and apart: `now` bytes of
            // payload from `within` on lie in one block of the buffer, and this thread alone has claimed
            // their addresses, which lie before the end. So nobody else reads or writes them before `say_filled`.
            unsafe {
                let to = to.add(HEADER_BYTES + within as usize);
                to.copy_from_nonoverlapping(part.as_ptr(), now);
            }
            part = &part[now..];
            at += now as u64;
        }
        at
    }

    /// Says that the bytes from `at` to `end` are in place.
    #[inline]
    fn say_filled(&self, mut at: u64, end: u64) {
        while at < end {
            let next = (at / PAYLOAD_BYTES + 1) * PAYLOAD_BYTES;
            let now = next.min(end) - at;
            // Release: the bytes come before the count.
            self.filled(block_of(Lsn(at))).fetch_add(now as u32, Release);
            at += now;
        }
    }

    /// The right to write blocks; `None` while somebody has it.
    pub fn flusher(&self) -> Option<Flusher<'_>> {
        // Acquire: sees what the last flusher did.
        if self.is_flushed.swap(true, Acquire) {
            return None;
        }
        // Only a flusher moves the end.
        let from = block_of(Lsn(self.end.0.load(Relaxed))) - self.blocks;
        Some(Flusher { ring: self, from, whole: from, to: from })
    }

    /// Lets promises go up to `limit`, and those that were reserved up to `reserved`, but never beyond what the ring
    /// holds when everything is written that was released. Never less than before.
    pub fn set_limits(&self, limit: Lsn, reserved: Lsn) {
        let end = Lsn(self.end.0.load(Acquire));
        // Release: whoever sees the limit sees the end.
        self.limit.0.fetch_max(limit.min(end).0, Release);
        self.reserved_limit.0.fetch_max(reserved.min(end).0, Release);
    }

    /// How far promises that were not reserved go.
    pub fn limit(&self) -> Lsn {
        Lsn(self.limit.0.load(Relaxed))
    }

    /// Whether more than half of the ring is waiting to be written.
    #[inline]
    pub fn is_half_full(&self, written: u64) -> bool {
        self.promised.0.load(Relaxed) > start_of(written + self.blocks / 2).0
    }

    #[inline]
    fn filled(&self, block: u64) -> &AtomicU32 {
        &self.filled[(block & (self.blocks - 1)) as usize]
    }

    /// Where a block's payload begins among that of the ring.
    #[inline]
    fn place_of(&self, block: u64) -> u64 {
        (block & (self.blocks - 1)) * PAYLOAD_BYTES
    }

    #[inline]
    fn block_start(&self, block: u64) -> *mut u8 {
        let at = (block & (self.blocks - 1)) as usize * BLOCK_BYTES;
        // SAFETY: the offset lies within the buffer's `blocks * BLOCK_BYTES` bytes, and the buffer lives as
        // long as the ring.
        unsafe { self.bytes.start().add(at) }
    }
}

/// Nobody is promised anything, and nobody holds a promise: see [`Flusher::shut`].
#[must_use]
pub struct Shut<'r> {
    flusher: Flusher<'r>,
    tail: u64,
}

impl Shut<'_> {
    /// The log goes on at `lsn`, when limits are set anew.
    ///
    /// Whoever has read a limit before may still be promised one record beyond the new one. The ring has room for it, and
    /// a flush that finds no place for it prepares one.
    ///
    /// # Panics
    /// If `lsn` is not the start of a block from the tail on; if somebody has appended without a promise.
    pub fn go_on_at(self, lsn: Lsn) {
        let (ring, tail) = (self.flusher.ring, self.tail);
        assert!(lsn.0 >= tail && lsn.0.is_multiple_of(PAYLOAD_BYTES), "a log goes on with a block");
        assert!(lsn.0 <= MAX_START, "addresses do not run out");
        let moved = ring.tail.0.compare_exchange(tail, lsn.0, SeqCst, SeqCst);
        assert!(moved.is_ok(), "nothing is appended that was not promised");
        // Nothing before was claimed, so the places of all blocks are free.
        ring.end.0.store(lsn.0 + ring.blocks * PAYLOAD_BYTES, Release);
        ring.limit.0.store(lsn.0, Release);
        ring.reserved_limit.0.store(lsn.0, Release);
        ring.promised.0.store(lsn.0, Release);
    }
}

impl<'r> Flusher<'r> {
    /// Keeps everybody from being promised anything, if all is released that was claimed, and nobody holds a promise.
    /// Nobody calls [`Ring::set_limits`] before [`Shut::go_on_at`].
    pub fn shut(self) -> Option<Shut<'r>> {
        let ring = self.ring;
        let tail = start_of(self.from).0;
        let end = ring.limit.0.load(Relaxed).max(ring.reserved_limit.0.load(Relaxed)).max(tail);
        // An append without a promise is found by `go_on_at`.
        let is_shut = ring.tail().0 == tail
            && ring.promised.0.compare_exchange(tail, end, AcqRel, Relaxed).is_ok();
        is_shut.then_some(Shut { flusher: self, tail })
    }
}

impl Flusher<'_> {
    /// Ends the block that is being filled, so that everything appended before lies in blocks below the one
    /// that is returned. Also how many bytes of the last of them are skipped.
    pub fn close(&mut self) -> (u64, u64) {
        let ring = self.ring;
        let mut tail = ring.tail.0.load(SeqCst);
        loop {
            let end = tail.next_multiple_of(PAYLOAD_BYTES);
            let skipped = end - tail;
            if skipped > 0 {
                // The promise first, so that it is never behind the tail.
                ring.promised.0.fetch_add(skipped, Relaxed);
                if let Err(seen) = ring.tail.0.compare_exchange(tail, end, SeqCst, SeqCst) {
                    ring.promised.0.fetch_sub(skipped, Relaxed);
                    tail = seen;
                    continue;
                }
                ring.say_filled(tail, end);
            }
            self.to = block_of(Lsn(end));
            return (self.to, skipped);
        }
    }

    /// Waits until all who have claimed addresses in the next closed block have copied, and lends it out to be sealed:
    /// header unwritten, `skipped` bytes at its end zeroed. Blocks come one after another, from the first that was not
    /// released on; a second look at one that was lent before waits for nothing.
    ///
    /// The wait is for copies under way: a few hundred bytes each.
    ///
    /// # Panics
    /// If the block is none of these.
    pub fn whole(&mut self, block: u64, skipped: u64) -> &mut [u8] {
        assert!(block <= self.whole, "blocks are lent one after another");
        self.assert_closed(block);
        let ring = self.ring;
        let mut spins = 0_u32;
        // Acquire: the bytes are seen as they were when they were counted.
        while u64::from(ring.filled(block).load(Acquire)) != PAYLOAD_BYTES {
            spins += 1;
            if spins < 64 && !cfg!(any(loom, shuttle)) {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        ring.witness.touch_all(ring.place_of(block), ring.place_of(block) + PAYLOAD_BYTES);
        self.whole = self.whole.max(block + 1);
        // SAFETY: `from_raw_parts_mut` asks for bytes that nobody else touches for the life of the slice:
        // the block is closed and whole, so all claims on it are done, and nothing is copied to its place before it is
        // released. That takes the one flusher, which the slice borrows mutably.
        let bytes = unsafe { std::slice::from_raw_parts_mut(ring.block_start(block), BLOCK_BYTES) };
        bytes[BLOCK_BYTES - skipped as usize..].fill(0);
        bytes
    }

    /// A block that was lent out by [`Self::whole`], as it was left.
    ///
    /// # Panics
    /// If it was not, or was released.
    pub fn block(&self, block: u64) -> &[u8] {
        assert!(block < self.whole, "a block is whole before it is written");
        self.assert_closed(block);
        // SAFETY: `from_raw_parts` asks for bytes that nobody changes for the life of the slice: as in `whole`, and the slice
        // borrows the flusher.
        unsafe { std::slice::from_raw_parts(self.ring.block_start(block), BLOCK_BYTES) }
    }

    fn assert_closed(&self, block: u64) {
        assert!(
            self.from <= block && block < self.to,
            "the flusher has closed and not released it"
        );
    }

    /// Gives the places of the blocks below `to`, which are written, to new claims, as far as there are limits.
    ///
    /// # Panics
    /// If one of them was not lent out by [`Self::whole`].
    pub fn release(&mut self, to: u64) {
        assert!(to <= self.whole, "a block is whole before it is released");
        let ring = self.ring;
        for block in self.from..to {
            ring.filled(block).store(0, Relaxed);
        }
        self.from = self.from.max(to);
        // Release: the counts, and what was done with the blocks, come before the end that allows new copies.
        ring.end.0.store(start_of(self.from + ring.blocks).0, Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::types::TreeId;
    use hedgerow_sync::primitive::Arc;

    fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Record<'a> {
        Record::Put { tree: TreeId(2), key, value }
    }

    #[test]
    fn rings_are_powers_of_two_within_their_share() {
        for page_bytes in [2048, 4096, 65536] {
            for limit in [1 << 18, 1 << 20, 3 << 20, 64 << 20, 1 << 30_u64] {
                let blocks = u64::from(ring_blocks(limit, page_bytes));
                assert!(blocks.is_power_of_two() && blocks >= MIN_RING_BLOCKS);
                assert!(blocks * BLOCK_BYTES as u64 >= page_bytes as u64);
            }
        }
    }

    #[test]
    fn a_ring_is_a_32nd_of_a_small_limit_and_a_64th_of_a_large_one() {
        let limits = [(1 << 20, 8), (3 << 20, 16), (64 << 20, 512), (128 << 20, 512)];
        let large = [(256 << 20, 1024), (512 << 20, 2048), (1 << 30, 4096), (8 << 30, 4096)];
        for (limit, blocks) in limits.into_iter().chain(large) {
            assert_eq!(ring_blocks(limit, 4096), blocks, "{limit} bytes");
        }
        assert_eq!(ring_blocks(1 << 20, 64 << 10), 64, "four pages");
    }

    #[test]
    fn promises_end_one_block_before_the_limit_and_go_back() {
        let ring = Ring::new(4, Lsn(0)).unwrap();
        assert!(!ring.promise(1), "nothing before there is a limit");
        ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
        assert_eq!(ring.max_record_bytes(), 3 * PAYLOAD_BYTES);
        assert!(ring.promise(ring.max_record_bytes()));
        assert!(!ring.promise(1));
        ring.take_back(1);
        assert!(ring.promise(1));
    }

    #[test]
    fn more_than_half_of_the_ring_waits_or_not() {
        let ring = Ring::new(8, Lsn(0)).unwrap();
        ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
        assert!(ring.promise(4 * PAYLOAD_BYTES));
        assert!(!ring.is_half_full(0));
        assert!(ring.promise(1));
        assert!(ring.is_half_full(0));
        assert!(!ring.is_half_full(1), "a block more was written");
    }

    /// What the models are told of: two threads that touch one place at a time.
    #[test]
    fn a_block_has_the_place_of_the_one_that_is_written_when_it_is_claimed() {
        let ring = Ring::new(8, Lsn(0)).unwrap();
        for (block, place) in [(0, 0), (1, 1), (7, 7), (8, 0), (9, 1), (21, 5)] {
            assert_eq!(ring.place_of(block), place * PAYLOAD_BYTES, "block {block}");
        }
    }

    #[test]
    fn a_closed_block_is_zero_behind_its_records() {
        let ring = Ring::new(2, Lsn(0)).unwrap();
        ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
        for lap in 0..5 {
            let record = put(b"key", b"value");
            let len = record.len_bytes() as u64;
            assert!(ring.promise(len));
            let place = ring.append(&record);
            assert_eq!(place.start, start_of(lap));
            assert_eq!(place.end.0, place.start.0 + len);
            let mut flusher = ring.flusher().unwrap();
            let (end, skipped) = flusher.close();
            assert_eq!((end, skipped), (lap + 1, PAYLOAD_BYTES - len));
            let block = flusher.whole(lap, skipped);
            assert!(block[HEADER_BYTES + len as usize..].iter().all(|&b| b == 0));
            assert_eq!(&block[HEADER_BYTES + 12..][..8], b"keyvalue");
            block.fill(0xee);
            flusher.release(end);
            ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
            assert_eq!(flusher.close(), (end, 0), "nothing to close");
        }
    }

    fn panics<R>(what: impl FnOnce() -> R) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(what()))).is_err()
    }

    /// On 95ca20c each of these lent a block twice, or one that somebody was filling.
    #[test]
    fn blocks_are_lent_to_one_flusher_when_they_are_closed_and_until_they_are_released() {
        let ring = Ring::new(4, Lsn(0)).unwrap();
        ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
        let record = put(b"key", b"value");
        assert!(ring.promise(record.len_bytes() as u64));
        ring.append(&record);
        let mut flusher = ring.flusher().unwrap();
        assert!(ring.flusher().is_none(), "there is one already");
        assert!(panics(|| flusher.whole(0, 0)[0]), "it is being filled");
        let (to, skipped) = flusher.close();
        assert_eq!(to, 1);
        assert!(panics(|| flusher.block(0)[0]), "somebody may be copying");
        assert!(panics(|| flusher.release(1)), "somebody may be copying");
        assert!(panics(|| flusher.whole(1, 0)[0]), "it is not closed");
        assert!(panics(|| flusher.whole(4, 0)[0]), "it has the place of one that is");
        assert!(panics(|| flusher.whole(0, BLOCK_BYTES as u64 + 1)[0]), "a block is not so long");
        flusher.whole(0, skipped)[0] = 7;
        assert_eq!((flusher.whole(0, skipped)[0], flusher.block(0)[0]), (7, 7));
        assert!(panics(|| flusher.release(2)), "it is not closed");
        flusher.release(1);
        assert!(panics(|| flusher.whole(0, 0)[0]), "its place is somebody else's");
        assert!(panics(|| flusher.block(0)[0]), "its place is somebody else's");
        flusher.release(0);
        drop(flusher);
        let mut next = ring.flusher().unwrap();
        assert!(panics(|| next.whole(0, 0)[0]), "it was released");
        assert_eq!(next.close(), (1, 0));
        // A flusher that was forgotten has the blocks for good.
        std::mem::forget(next);
        assert!(ring.flusher().is_none());
    }

    /// On 95ca20c what nobody was promised was copied into blocks that were being written.
    #[test]
    fn nothing_is_copied_beyond_the_blocks_that_were_released() {
        let ring = Ring::new(2, Lsn(0)).unwrap();
        ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
        let value = vec![b'v'; PAYLOAD_BYTES as usize - super::super::record::RECORD_HEADER_BYTES];
        let block_long = put(b"", &value);
        assert!(ring.promise(PAYLOAD_BYTES));
        ring.append(&block_long);
        // More than was promised comes back, and the promises are in order as far as anybody can tell.
        ring.promised.0.fetch_add(5 * PAYLOAD_BYTES, Relaxed);
        ring.append(&block_long);
        let mut flusher = ring.flusher().unwrap();
        assert_eq!(flusher.close(), (2, 0));
        flusher.whole(0, 0).fill(0xee);
        flusher.whole(1, 0).fill(0xee);
        assert!(panics(|| ring.append(&block_long)), "both blocks are being written");
        for block in 0..2 {
            assert!(flusher.block(block).iter().all(|&byte| byte == 0xee), "block {block}");
        }
        assert!(panics(|| Ring::new(2, Lsn(u64::MAX / PAYLOAD_BYTES * PAYLOAD_BYTES))));
    }

    #[test]
    fn many_threads_fill_and_one_writes_and_every_byte_arrives_once() {
        const THREADS: u32 = 3;
        const RECORDS: u32 = 20_000;
        let ring = Arc::new(Ring::new(8, Lsn(0)).unwrap());
        ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
        let done = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..THREADS)
            .map(|writer| {
                let ring = ring.clone();
                thread::spawn_named("writer", move || {
                    let value = [writer as u8; 700];
                    for n in 0..RECORDS {
                        let key = n.to_be_bytes();
                        let record = put(&key, &value[..(n % 700) as usize]);
                        while !ring.promise(record.len_bytes() as u64) {
                            thread::yield_now();
                        }
                        ring.append(&record);
                    }
                })
                .unwrap()
            })
            .collect();
        let flusher = {
            let (ring, done) = (ring.clone(), done.clone());
            thread::spawn_named("flusher", move || {
                let (mut log, mut written) = (Vec::new(), 0);
                loop {
                    let last = done.load(SeqCst);
                    let mut flusher = ring.flusher().unwrap();
                    let (end, skipped) = flusher.close();
                    for block in written..end {
                        let skipped = if block + 1 == end { skipped } else { 0 };
                        let bytes = flusher.whole(block, skipped);
                        log.push(bytes[HEADER_BYTES..BLOCK_BYTES - skipped as usize].to_vec());
                    }
                    flusher.release(end);
                    drop(flusher);
                    ring.set_limits(Lsn(u64::MAX), Lsn(u64::MAX));
                    written = end;
                    if last {
                        return log.concat();
                    }
                }
            })
            .unwrap()
        };
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, SeqCst);
        let log = flusher.join().unwrap();
        let (mut rest, mut next) = (&log[..], [0_u32; THREADS as usize]);
        let mut empty = 0;
        while !rest.is_empty() {
            let super::super::record::Decoded::Whole(Record::Put { key, value, .. }, len) =
                Record::decode(rest)
            else {
                panic!("no record at {}", log.len() - rest.len());
            };
            let n = u32::from_be_bytes(key.try_into().unwrap());
            assert_eq!(value.len(), (n % 700) as usize);
            match value.first() {
                Some(&writer) => {
                    assert!(value.iter().all(|&b| b == writer));
                    assert!(n >= next[usize::from(writer)], "a writer's records keep their order");
                    next[usize::from(writer)] = n + 1;
                }
                None => empty += 1,
            }
            rest = &rest[len..];
        }
        assert_eq!(next, [RECORDS; THREADS as usize]);
        assert_eq!(empty, THREADS * RECORDS.div_ceil(700));
    }
}
