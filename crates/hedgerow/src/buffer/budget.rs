//! How the memory limit is divided: one number in, everything that the engine keeps out of it.
//!
//! ```text
//! limit = frames x (page + header + side entry + free-list entry + index)   pages, pieces of values, the page table's parts
//!       + 2 write buffers                                           eviction, checkpoint
//!       + copies                                                    pages that change while a checkpoint runs
//!       + delta share                                               page map changes of this interval
//!       + zone share                                                bitmaps of the file's space, up to a file of 6 times the limit
//!       + loan share                                                chunks of large values on their way
//!       + ring                                                      log records on their way to the disk
//! ```
//!
//! The page table takes frames away one by one as its parts are loaded (`retire.rs`), so it needs no
//! share. What callers hold (copies of values, cursors' leaf copies) is theirs.

use crate::buffer::large::INDEX_FRAME_BYTES;
use crate::error::{Error, ErrorKind, RAISE_LIMIT, Result};
use crate::page::header::MAX_PAGE_BYTES;
use crate::wal::block::BLOCK_BYTES;
use crate::wal::ring::ring_blocks;

/// The smallest number of frames that a pool works with.
pub const MIN_FRAMES: u32 = 64;
/// The largest. What a limit has beyond that is not used.
const MAX_FRAMES: u32 = u32::MAX >> 1;
/// Pages evicted in one batch, where memory allows.
const BATCH_PAGES: usize = 64;
/// Pages in the buffer of a flush, which holds two batches, where they are a small part of all.
const FLUSH_PAGES: usize = 512;
const FLUSH_PART: u64 = 64;
/// One page in so many has room for a copy, while a checkpoint runs.
const COPY_PART: u64 = 32;
/// Header (32), side entry (16), free-list entry (4), index of values.
const PER_FRAME_BYTES: u64 = 52 + INDEX_FRAME_BYTES;
/// The least that deltas get: some thousand changed pages.
const MIN_DELTA_BYTES: u64 = 96 << 10;
/// The least that the zone table gets.
const MIN_ZONE_BYTES: u64 = 32 << 10;
/// The least that large values get on their way: two chunks, so that one can be copied. With a limit that has less to
/// spare they get none, and are refused.
const MIN_LOAN_BYTES: u64 = 64 << 10;
/// What a limit needs above the smallest for large values.
pub const LARGE_VALUES_BYTES: u64 = 2 * MIN_LOAN_BYTES;
/// The most: four times what one reader or writer makes use of.
const MAX_LOAN_BYTES: u64 = 8 << 20;

/// The division of one memory limit.
#[derive(Clone, Debug)]
pub struct Budget {
    limit_bytes: u64,
    frames: u32,
    batch_pages: usize,
    flush_pages: usize,
    copy_pages: usize,
    page_bytes: usize,
    delta_bytes: u64,
    #[cfg(hedgerow_internals)]
    zone_bytes: u64,
    loan_bytes: u64,
    ring_blocks: u32,
}

/// The smallest memory limit that a store of this page size can be opened with; above the largest, as of that.
pub fn smallest_limit_bytes(page_bytes: usize) -> u64 {
    let page_bytes = page_bytes.min(MAX_PAGE_BYTES);
    let ring = u64::from(ring_blocks(0, page_bytes)) * BLOCK_BYTES as u64;
    smallest_limit_without_log_bytes(page_bytes) + ring
}

/// The same of a store without a log.
pub fn smallest_limit_without_log_bytes(page_bytes: usize) -> u64 {
    let frame = page_bytes as u64 + PER_FRAME_BYTES;
    let batch = u64::from(MIN_FRAMES) / 8;
    let copies = u64::from(MIN_FRAMES) / COPY_PART;
    let buffers = (2 * batch + copies) * page_bytes as u64;
    u64::from(MIN_FRAMES) * frame + buffers + MIN_DELTA_BYTES + MIN_ZONE_BYTES
}

impl Budget {
    /// Divides `limit_bytes`. `backed` says whether there is a file, and so buffers and deltas; `logged`,
    /// whether there is a log.
    ///
    /// Errors: `InvalidOption` below [`smallest_limit_bytes`], or that without a log.
    pub fn divide(
        limit_bytes: u64,
        page_bytes: usize,
        backed: bool,
        logged: bool,
    ) -> Result<Budget> {
        let smallest = match logged {
            true => smallest_limit_bytes(page_bytes),
            false => smallest_limit_without_log_bytes(page_bytes),
        };
        if limit_bytes < smallest {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!(
                    "a memory limit of {limit_bytes} bytes is too small: with pages of \
                     {page_bytes} bytes it must be at least {smallest}; {RAISE_LIMIT}"
                ),
            ));
        }
        let page = page_bytes as u64;
        let frame = page + PER_FRAME_BYTES;
        let (delta_bytes, zone_bytes, loan_bytes) = if backed {
            let extra = limit_bytes - smallest;
            let loan = if extra < LARGE_VALUES_BYTES {
                0
            } else {
                (MIN_LOAN_BYTES + extra / 128).min(MAX_LOAN_BYTES)
            };
            (MIN_DELTA_BYTES + extra / 48, MIN_ZONE_BYTES + extra / 256, loan)
        } else {
            (0, 0, 0)
        };
        let ring_blocks = if backed && logged { ring_blocks(limit_bytes, page_bytes) } else { 0 };
        let ring_bytes = u64::from(ring_blocks) * BLOCK_BYTES as u64;
        let guess = (limit_bytes - delta_bytes - zone_bytes - loan_bytes - ring_bytes) / frame;
        let guess = guess.min(u64::from(MAX_FRAMES));
        let batch_pages = ((guess / 16) as usize).clamp(MIN_FRAMES as usize / 8, BATCH_PAGES);
        let flush_pages = ((guess / FLUSH_PART) as usize).clamp(batch_pages, FLUSH_PAGES);
        let copy_pages = match backed {
            true => {
                ((guess / COPY_PART) as usize).max((u64::from(MIN_FRAMES) / COPY_PART) as usize)
            }
            false => 0,
        };
        let buffers = (batch_pages + flush_pages + copy_pages) as u64 * page + ring_bytes;
        let frames = (limit_bytes - buffers - delta_bytes - zone_bytes - loan_bytes) / frame;
        let frames = frames.clamp(u64::from(MIN_FRAMES), u64::from(MAX_FRAMES)) as u32;
        Ok(Budget {
            limit_bytes,
            frames,
            batch_pages,
            flush_pages,
            copy_pages,
            page_bytes,
            delta_bytes,
            #[cfg(hedgerow_internals)]
            zone_bytes,
            loan_bytes,
            ring_blocks,
        })
    }

    /// The limit itself.
    pub fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    /// Frames, before the page table takes any.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Pages in a batch of the eviction.
    pub fn batch_pages(&self) -> usize {
        self.batch_pages
    }

    /// Pages in the buffer of a flush: at least as many, and at least two.
    pub fn flush_pages(&self) -> usize {
        self.flush_pages
    }

    /// Copies of pages that writers change while a checkpoint runs: none in a store without checkpoints.
    pub fn copy_pages(&self) -> usize {
        self.copy_pages
    }

    /// Bytes of both write buffers, and of copies.
    pub fn write_buffer_bytes(&self) -> u64 {
        ((self.batch_pages + self.flush_pages + self.copy_pages) * self.page_bytes) as u64
    }

    /// Bytes of frame headers, side entries and the free list.
    pub fn frame_overhead_bytes(&self) -> u64 {
        u64::from(self.frames) * PER_FRAME_BYTES
    }

    /// Share of the page map's deltas.
    pub fn delta_bytes(&self) -> u64 {
        self.delta_bytes
    }

    /// Blocks of the log in memory.
    pub fn ring_blocks(&self) -> u32 {
        self.ring_blocks
    }

    /// Bytes of them.
    pub fn ring_bytes(&self) -> u64 {
        u64::from(self.ring_blocks) * BLOCK_BYTES as u64
    }

    /// Share of large values that are being read or written.
    pub fn loan_bytes(&self) -> u64 {
        self.loan_bytes
    }

    /// Share of the zone table.
    #[cfg(hedgerow_internals)]
    pub fn zone_bytes(&self) -> u64 {
        self.zone_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_never_exceed_the_limit() {
        for page_bytes in [512, 2048, 4096, 65536] {
            let smallest = smallest_limit_bytes(page_bytes);
            assert!(Budget::divide(smallest - 1, page_bytes, true, true).is_err());
            for limit in [
                smallest,
                smallest + 1,
                2 * smallest,
                64 << 20,
                1 << 30,
                1 << 40,
                1 << 60,
                u64::MAX,
            ] {
                if limit < smallest {
                    continue;
                }
                let budget = Budget::divide(limit, page_bytes, true, true).unwrap();
                let sum = u64::from(budget.frames()) * page_bytes as u64
                    + budget.frame_overhead_bytes()
                    + budget.write_buffer_bytes()
                    + budget.delta_bytes()
                    + budget.zone_bytes()
                    + budget.loan_bytes()
                    + budget.ring_bytes();
                assert!(sum <= limit, "{page_bytes} {limit}: {sum}");
                assert!(budget.frames() >= MIN_FRAMES);
            }
        }
    }
}
