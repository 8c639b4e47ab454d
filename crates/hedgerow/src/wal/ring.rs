//! The log's blocks in memory: writers claim a place, fill it and say so, all without a lock.
//!
//! Rank 2. Three steps, and who may be in which:
//!
//! - [`Ring::promise`], before anything is latched: makes sure that the record will find room. What a
//!   writer was promised and did not use it gives back.
//! - [`Ring::append`], under the leaf's exclusive latch: one addition claims the addresses, so that the order
//!   of claims is the order in which each key changed; then the bytes are copied, and the block is told how
//!   many of its bytes are in place. It waits for nothing and cannot fail.
//! - [`Ring::close`] to [`Ring::release`], by one flusher at a time: ends the block that is being filled,
//!   waits until those who have claimed in it have copied, and lends the blocks out to be written.
//!
//! # Invariants
//! - `tail <= promised`; `promised` never exceeds `limit` but for what [`Ring::close`] skips, for which
//!   [`Ring::promise`] leaves one block: there is one flusher at a time, and it skips less than a block.
//! - Neither limit is ever more than the ring's length beyond the first block that is not written. So a place
//!   is claimed again only after it was released.
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
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use hedgerow_sync::primitive::atomic::{AtomicU32, AtomicU64};
use hedgerow_sync::primitive::canary::leaves_out;
use hedgerow_sync::primitive::witness::Witness;
use hedgerow_sync::primitive::{hint, thread};

/// See the head of the file.
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
    /// Of each block in memory the bytes of payload that are in place.
    filled: Box<[AtomicU32]>,
    /// Of the bytes, for the model checker.
    witness: Witness,
}

/// A word that has a pair of cache lines to itself.
#[repr(align(128))]
struct Line(AtomicU64);

// SAFETY: the bytes are reached through `Ring` alone. Between a claim and the count that follows it a range
// of addresses belongs to the one thread that claimed it, because claims do not overlap and a place is
// claimed again only after it was released; a whole block belongs to the one flusher until it releases it.
unsafe impl Sync for Ring {}

/// Blocks of the ring in memory at most, and at least.
const MAX_RING_BLOCKS: u64 = 4096;
const MIN_RING_BLOCKS: u64 = 8;
/// The ring's share of a small memory limit, and so many blocks at most; and of a large one. While a checkpoint writes,
/// a flush waits for the disk, and all that is appended meanwhile has to fit.
const RING_SHARE: u64 = 32;
const SMALL_RING_BLOCKS: u64 = 512;
const LARGE_RING_SHARE: u64 = 128;

/// Blocks of the log's ring within a memory limit: a power of two.
pub fn ring_blocks(memory_limit_bytes: u64, page_bytes: usize) -> u32 {
    let blocks = |share| memory_limit_bytes / share / BLOCK_BYTES as u64;
    let share = blocks(RING_SHARE).min(SMALL_RING_BLOCKS).max(blocks(LARGE_RING_SHARE));
    // A record is up to a quarter of a page, and several threads append.
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
        Ok(Ring {
            bytes: AlignedBuffer::zeroed(blocks as usize * BLOCK_BYTES)?,
            blocks: u64::from(blocks),
            tail: Line(AtomicU64::new(start.0)),
            promised: Line(AtomicU64::new(start.0)),
            limit: Line(AtomicU64::new(start.0)),
            reserved_limit: Line(AtomicU64::new(start.0)),
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
        // Acquire: a block within the limit has been released, and its count is zero.
        let order = if leaves_out("limit_without_acquire") { Relaxed } else { Acquire };
        let limit = limit.load(order);
        let mut promised = self.promised.0.load(Relaxed);
        // One block is left for what a flusher skips.
        while promised + len + PAYLOAD_BYTES <= limit {
            if leaves_out("promise_without_exchange") {
                self.promised.0.store(promised + len, Relaxed);
                return true;
            }
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
    #[inline]
    pub fn append(&self, record: &Record<'_>) -> Appended {
        let (header, [key, value]) = record.encode();
        let len = (header.len() + key.len() + value.len()) as u64;
        // The order of claims on one key is that of the leaf's latch. Sequentially consistent, so that
        // whoever goes to sleep because there is nothing to flush is seen, or sees this.
        let start = self.tail.0.fetch_add(len, SeqCst);
        debug_assert!(start + len <= self.promised.0.load(Relaxed));
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
            // their addresses, so nobody else reads or writes them before `say_filled`.
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
            let order = if leaves_out("filled_without_release") { Relaxed } else { Release };
            self.filled(block_of(Lsn(at))).fetch_add(now as u32, order);
            at += now;
        }
    }

    /// Ends the block that is being filled, so that everything appended before lies in blocks below the one
    /// that is returned. Also how many bytes of the last of them are skipped. The flusher alone.
    pub fn close(&self) -> (u64, u64) {
        let mut tail = self.tail.0.load(SeqCst);
        loop {
            let end = tail.next_multiple_of(PAYLOAD_BYTES);
            let skipped = end - tail;
            if skipped == 0 {
                return (block_of(Lsn(end)), 0);
            }
            // The promise first, so that it is never behind the tail.
            self.promised.0.fetch_add(skipped, Relaxed);
            match self.tail.0.compare_exchange(tail, end, SeqCst, SeqCst) {
                Ok(_) => {
                    self.say_filled(tail, end);
                    return (block_of(Lsn(end)), skipped);
                }
                Err(seen) => {
                    self.promised.0.fetch_sub(skipped, Relaxed);
                    tail = seen;
                }
            }
        }
    }

    /// Waits until all who have claimed addresses in a closed block have copied, and lends the block to the
    /// flusher: header unwritten, `skipped` bytes at its end zeroed.
    ///
    /// The wait is for copies under way: a few hundred bytes each.
    #[expect(
        clippy::mut_from_ref,
        reason = "the block belongs to the one flusher until it is released"
    )]
    pub fn whole(&self, block: u64, skipped: u64) -> &mut [u8] {
        let mut spins = 0_u32;
        // Acquire: the bytes are seen as they were when they were counted.
        while u64::from(self.filled(block).load(Acquire)) != PAYLOAD_BYTES
            && !leaves_out("flush_without_waiting")
        {
            spins += 1;
            if spins < 64 && !cfg!(any(loom, shuttle)) {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
        self.witness.touch_all(self.place_of(block), self.place_of(block) + PAYLOAD_BYTES);
        // SAFETY: `from_raw_parts_mut` asks for bytes that nobody else touches for the life of the slice:
        // the block is whole, so all claims on it are done, and none can be made on its place before the
        // flusher, who is the caller and borrows no block twice, releases it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.block_start(block), BLOCK_BYTES) };
        bytes[BLOCK_BYTES - skipped as usize..].fill(0);
        bytes
    }

    /// Gives the places of the blocks from `from` to `to`, which are written, to new claims, up to `limit`.
    /// The flusher alone.
    pub fn release(&self, from: u64, to: u64) {
        for block in from..to {
            self.filled(block).store(0, Relaxed);
        }
    }

    /// Lets promises go up to `limit`, and those that were reserved up to `reserved`, but never beyond what the ring
    /// holds when everything below block `written` is written. Never less than before.
    pub fn set_limits(&self, written: u64, limit: Lsn, reserved: Lsn) {
        let end = start_of(written + self.blocks);
        // Release: the counts that `release` set to zero come before the limit that allows new claims.
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::types::TreeId;
    use hedgerow_sync::primitive::Arc;
    use hedgerow_sync::primitive::atomic::AtomicBool;

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
    fn a_ring_is_a_32nd_of_a_small_limit_and_a_128th_of_a_large_one() {
        let limits = [(1 << 20, 8), (3 << 20, 16), (64 << 20, 512), (128 << 20, 512)];
        for (limit, blocks) in limits.into_iter().chain([(1 << 30, 2048), (8 << 30, 4096)]) {
            assert_eq!(ring_blocks(limit, 4096), blocks, "{limit} bytes");
        }
        assert_eq!(ring_blocks(1 << 20, 64 << 10), 64, "four pages");
    }

    #[test]
    fn promises_end_one_block_before_the_limit_and_go_back() {
        let ring = Ring::new(4, Lsn(0)).unwrap();
        assert!(!ring.promise(1), "nothing before there is a limit");
        ring.set_limits(0, Lsn(u64::MAX), Lsn(u64::MAX));
        assert_eq!(ring.max_record_bytes(), 3 * PAYLOAD_BYTES);
        assert!(ring.promise(ring.max_record_bytes()));
        assert!(!ring.promise(1));
        ring.take_back(1);
        assert!(ring.promise(1));
    }

    #[test]
    fn more_than_half_of_the_ring_waits_or_not() {
        let ring = Ring::new(8, Lsn(0)).unwrap();
        ring.set_limits(0, Lsn(u64::MAX), Lsn(u64::MAX));
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
        ring.set_limits(0, Lsn(u64::MAX), Lsn(u64::MAX));
        for lap in 0..5 {
            let record = put(b"key", b"value");
            let len = record.len_bytes() as u64;
            assert!(ring.promise(len));
            let place = ring.append(&record);
            assert_eq!(place.start, start_of(lap));
            assert_eq!(place.end.0, place.start.0 + len);
            let (end, skipped) = ring.close();
            assert_eq!((end, skipped), (lap + 1, PAYLOAD_BYTES - len));
            let block = ring.whole(lap, skipped);
            assert!(block[HEADER_BYTES + len as usize..].iter().all(|&b| b == 0));
            assert_eq!(&block[HEADER_BYTES + 12..][..8], b"keyvalue");
            block.fill(0xee);
            ring.release(lap, end);
            ring.set_limits(end, Lsn(u64::MAX), Lsn(u64::MAX));
            assert_eq!(ring.close(), (end, 0), "nothing to close");
        }
    }

    #[test]
    fn many_threads_fill_and_one_writes_and_every_byte_arrives_once() {
        const THREADS: u32 = 3;
        const RECORDS: u32 = 20_000;
        let ring = Arc::new(Ring::new(8, Lsn(0)).unwrap());
        ring.set_limits(0, Lsn(u64::MAX), Lsn(u64::MAX));
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
                    let (end, skipped) = ring.close();
                    for block in written..end {
                        let skipped = if block + 1 == end { skipped } else { 0 };
                        let bytes = ring.whole(block, skipped);
                        log.push(bytes[HEADER_BYTES..BLOCK_BYTES - skipped as usize].to_vec());
                    }
                    ring.release(written, end);
                    ring.set_limits(end, Lsn(u64::MAX), Lsn(u64::MAX));
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
