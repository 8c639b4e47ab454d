//! Which frames have ever had a page, by groups of neighbours.
//!
//! A pool is as large as the memory limit, and most of it may never be used. Page `p` prefers frame `p mod frames`, so
//! what is used need not lie together, and one mark for the highest frame would not do. There is a bit for each
//! group. Whoever looks at all pages in memory looks at the groups whose bit is set.
//!
//! Invariant: the bit of a group is set before a frame of the group gets its first page, and stays. Whoever knows of
//! the page (by a latch, or by the end of an epoch) sees the bit. `Send + Sync`; a set bit is only read.

use crate::buffer::zeroed::{Zeroed, ZeroedArray};
use crate::error::Result;
use crate::page::FrameId;
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release};
use std::ops::Range;

/// Frames of a group. Their headers are four pages of the system.
pub const GROUP_FRAMES: u32 = 512;
/// Groups of one word.
const GROUPS: u32 = u64::BITS;

// SAFETY: a zero is a valid atomic number, equal to a new one of zero; atomics need no drop.
unsafe impl Zeroed for AtomicU64 {
    #[cfg(any(test, loom, shuttle))]
    fn fresh() -> AtomicU64 {
        AtomicU64::new(0)
    }
}

/// The bits.
pub struct Used {
    words: ZeroedArray<AtomicU64>,
}

impl Used {
    /// No frame of `frames` has had a page.
    ///
    /// Errors: `MemoryLimit`.
    pub fn new(frames: u32) -> Result<Used> {
        let words = frames.div_ceil(GROUP_FRAMES).div_ceil(GROUPS);
        Ok(Used { words: ZeroedArray::new(words as usize)? })
    }

    /// Before the frame gets a page.
    pub fn mark(&self, frame: FrameId) {
        let group = frame.0 / GROUP_FRAMES;
        let word = &self.words.items()[(group / GROUPS) as usize];
        let bit = 1 << (group % GROUPS);
        // Relaxed: whoever finds the bit set passes on what it has seen together with the page.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, Release);
        }
    }

    /// The frames of all groups that are marked, in order. What is marked meanwhile is seen or not.
    pub fn groups(&self) -> impl Iterator<Item = Range<u32>> {
        let words = self.words.items().iter().enumerate();
        words.flat_map(|(at, word)| {
            let mut left = word.load(Acquire);
            std::iter::from_fn(move || {
                let bit = (left != 0).then(|| left.trailing_zeros())?;
                left &= left - 1;
                let first = (at as u32 * GROUPS + bit) * GROUP_FRAMES;
                Some(first..first.saturating_add(GROUP_FRAMES))
            })
        })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn groups_are_those_that_were_marked() {
        let most = u32::MAX >> 1;
        let used = Used::new(most).unwrap();
        assert_eq!(used.groups().count(), 0);
        for frame in [most - 1, 0, 511, 64 * 512, 1_000_000] {
            used.mark(FrameId(frame));
        }
        let firsts: Vec<u32> = used.groups().map(|group| group.start).collect();
        assert_eq!(firsts, [0, 64 * 512, 1_000_000 / 512 * 512, (most - 1) / 512 * 512]);
        assert!(used.groups().all(|group| group.len() == 512));
    }
}
