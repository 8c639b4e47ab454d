//! Search in a node: one comparison of the hints, one of a line of heads, then keys with equal heads.
//!
//! The same code runs over racing bytes, latched pages and hostile files, so every function is total:
//! offsets that lead out of the page read zeros, every loop halves or advances, and a result is an
//! index of at most `count`. What it means is only known once the caller has validated the page.
//! Nothing is allocated.

use super::fields::{COUNT, HEADS, HEADS_CAPACITY};
use super::lanes;
use super::layout::{
    BLOCK_HEADS, HINT_COUNT, HINTS, INNER_SLOT_BYTES, LEAF_SLOT_BYTES, UPPER_CHILD, head_of,
    hint_spacing,
};
use super::read::Node;
use super::rung;
use crate::page::header::MIN_PAGE_BYTES;
use crate::types::PageId;
use hedgerow_sync::optimistic::PageBytes;

/// Where a key stands in a leaf, or would stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// Index of the first record whose key is not below the key; at most `count`.
    pub index: usize,
    /// Whether that record has the very key.
    pub found: bool,
}

/// The child of an inner node that a key belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChildPosition {
    /// Index of the child; `count` for the child above the last separator.
    pub index: usize,
    /// The child.
    pub child: PageId,
}

/// The fields that a search reads first, with the key reduced to what the node compares.
struct Probe<'k> {
    count: usize,
    slots: usize,
    suffix: &'k [u8],
}

impl<B: PageBytes> Node<B> {
    /// Finds a key in a leaf.
    ///
    /// The key must have reached this node by traversal, so that it has the node's prefix; otherwise the
    /// result is some position.
    #[inline(always)]
    pub fn search(&self, key: &[u8]) -> Position {
        self.find_record(key)
    }

    // Functions of their own, and not part of their callers: searches use all registers there are, and
    // so do descents. By value: a view goes in registers.
    #[inline(never)]
    fn find_record(self, key: &[u8]) -> Position {
        if self.bytes.len() < MIN_PAGE_BYTES {
            return Position { index: 0, found: false };
        }
        self.lower_bound::<LEAF_SLOT_BYTES>(&self.probe(key))
    }

    /// The child whose keys include `key`: below the first separator that is not below the key.
    #[inline(always)]
    pub fn child_for(&self, key: &[u8]) -> ChildPosition {
        self.find_child(key)
    }

    #[inline(never)]
    fn find_child(self, key: &[u8]) -> ChildPosition {
        if self.bytes.len() < MIN_PAGE_BYTES {
            return ChildPosition { index: 0, child: PageId::NONE };
        }
        let probe = self.probe(key);
        let index = self.lower_bound::<INNER_SLOT_BYTES>(&probe).index;
        ChildPosition { index, child: self.child_in(&probe, index) }
    }

    /// The child whose keys include the smallest key *above* `fence`: below the first separator above
    /// it. With the upper fence of one child this is the next child.
    #[inline]
    pub fn child_above(&self, fence: &[u8]) -> ChildPosition {
        let probe = self.probe(fence);
        let position = self.lower_bound::<INNER_SLOT_BYTES>(&probe);
        let index = position.index + usize::from(position.found);
        ChildPosition { index, child: self.child_in(&probe, index) }
    }

    #[inline(always)]
    fn child_in(&self, probe: &Probe<'_>, index: usize) -> PageId {
        let slot = probe.slots + INNER_SLOT_BYTES * index;
        let at = if index < probe.count { slot + 4 } else { UPPER_CHILD };
        PageId(self.bytes.u32_at(at))
    }

    #[inline(always)]
    fn probe<'k>(&self, key: &'k [u8]) -> Probe<'k> {
        // One load gives both: count below, prefix length above.
        let fields = self.bytes.field_u32::<{ COUNT }>() as usize;
        let capacity =
            if rung::HEADS { usize::from(self.bytes.field_u16::<{ HEADS_CAPACITY }>()) } else { 0 };
        let prefix_len = if rung::PREFIX { fields >> 16 } else { 0 };
        Probe {
            count: fields & 0xffff,
            slots: HEADS + 4 * capacity,
            suffix: key.get(prefix_len..).unwrap_or(&[]),
        }
    }

    /// Index of the first key that is not below the probe.
    #[inline(always)]
    fn lower_bound<const SLOT_BYTES: usize>(&self, probe: &Probe<'_>) -> Position {
        if !rung::HEADS {
            let (slots, suffix) = (probe.slots, probe.suffix);
            let (index, found) =
                self.bytes.lower_bound::<SLOT_BYTES, 0>(slots, 0, probe.count, suffix);
            return Position { index, found };
        }
        let (low, high) = self.equal_heads(head_of(probe.suffix), probe, SLOT_BYTES);
        if low >= high {
            return Position { index: low, found: false };
        }
        let (index, found) =
            self.bytes.lower_bound::<SLOT_BYTES, 4>(probe.slots, low, high, probe.suffix);
        Position { index, found }
    }

    /// The keys that the head does not settle: every key before the first index has a smaller head,
    /// every key from the second on a larger one, and all between have this one.
    #[inline(always)]
    fn equal_heads(&self, head: i32, probe: &Probe<'_>, slot_bytes: usize) -> (usize, usize) {
        let count = probe.count;
        if self.is_one_run(head, count) {
            return (0, count);
        }
        let base = self.block_of(head, count);
        // The slots of the block are wanted as soon as the heads are compared: ask for both together.
        let slots = probe.slots + slot_bytes * base;
        self.bytes.prefetch(slots);
        self.bytes.prefetch(slots + 64);
        let block = self.bytes.block64(HEADS + 4 * base);
        // Behind the last key the heads are arbitrary.
        let first = (base + lanes::leading(lanes::below(block, head))).min(count);
        let run = lanes::leading(!lanes::above(block, head));
        let last = base + run;
        if run < BLOCK_HEADS || last >= count {
            return (first, last.min(count));
        }
        (first, self.end_of_run(head, count, last))
    }

    /// Whether all heads are `head`, as in the root of a tree of URLs. The hint is for speed: it is the
    /// cheapest look, and nearly always says no. A single block of heads needs no such way out.
    #[inline(always)]
    fn is_one_run(&self, head: i32, count: usize) -> bool {
        rung::HINTS
            && self.bytes.field_u32::<{ HINTS }>() as i32 == head
            && count > BLOCK_HEADS
            && self.head(0) == head
            && self.head(count - 1) == head
    }

    /// The first key with a head above `head`, in a node in which the first `from` keys have none, a
    /// whole number of blocks.
    #[inline(always)]
    fn end_of_run(&self, head: i32, count: usize, from: usize) -> usize {
        let (mut base, mut len) = (from, count.saturating_sub(from));
        if rung::HINTS {
            let hints = lanes::leading(!lanes::above(self.bytes.block64(HINTS), head));
            let spacing = hint_spacing(count);
            base = (hints * spacing).clamp(from, count);
            len = spacing.min(count - base);
        }
        while len > BLOCK_HEADS {
            let half = len.div_ceil(BLOCK_HEADS) / 2 * BLOCK_HEADS;
            if self.head(base + half) <= head {
                base += half;
                len -= half;
            } else {
                len = half;
            }
        }
        let block = self.bytes.block64(HEADS + 4 * base);
        (base + lanes::leading(!lanes::above(block, head))).min(count)
    }

    /// A block of heads in which, or directly behind which, lies the first one that is not below
    /// `head`. Every head before the block is below it. Gives the block's first index, at most `count`.
    #[inline(always)]
    fn block_of(&self, head: i32, count: usize) -> usize {
        let (mut base, mut len) = (0, count);
        if rung::HINTS && count > BLOCK_HEADS {
            let hints = lanes::below(self.bytes.block64(HINTS), head);
            let hints = lanes::leading(hints);
            if count < BLOCK_HEADS * (HINT_COUNT + 1) {
                // The spacing is a block; to know that without a division saves one.
                return (hints * BLOCK_HEADS).min(count);
            }
            let spacing = hint_spacing(count);
            base = (hints * spacing).min(count);
            len = spacing.min(count - base);
        }
        while len > BLOCK_HEADS {
            let half = len.div_ceil(BLOCK_HEADS) / 2 * BLOCK_HEADS;
            if self.head(base + half) < head {
                base += half;
                len -= half;
            } else {
                len = half;
            }
        }
        base
    }
}
