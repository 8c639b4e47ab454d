//! The read side of a node, leaf or inner, over any [`PageBytes`].
//!
//! A `Node` is a view: it owns nothing and checks nothing. Over racing bytes every result is untrusted
//! until the page is validated; over a page that [`super::load_check`] has passed and that is latched it
//! is the truth. All functions are total. `Copy`; as thread-safe as the bytes under it.

use super::cut::SEQUENTIAL_RUN;
use super::fields::{
    COUNT, HEADS, HEADS_CAPACITY, HEAP_LIVE, LAST_INSERT, LOWER_INFINITE, LOWER_LEN, NODE_FLAGS,
    PREFIX_LEN, RUN, UPPER_INFINITE, UPPER_LEN,
};
use super::layout::{
    HINTS, INNER_SLOT_BYTES, LEAF_SLOT_BYTES, Slot, UPPER_CHILD, VALUE_LEN_MASK, head_of,
    space_needed,
};
use super::rung;
use crate::page::header::{KIND, LEVEL, NEWEST_LSN, PAGE_ID, PageKind, TREE_ID};
use crate::types::{Lsn, PageId, TreeId};
use hedgerow_sync::optimistic::{Copied, PageBytes, PlainBytes};
use std::cmp::Ordering;

/// A node to read from.
#[derive(Clone, Copy, Debug)]
pub struct Node<B> {
    pub(super) bytes: B,
}

impl<B: PageBytes> Node<B> {
    /// Views bytes as a node. Nothing is checked: see the head of this file.
    #[inline(always)]
    pub fn new(bytes: B) -> Self {
        Node { bytes }
    }

    /// The bytes under the view.
    #[inline(always)]
    pub fn bytes(&self) -> B {
        self.bytes
    }

    /// What the page is; `None` if this build knows no such kind.
    #[cfg(hedgerow_internals)]
    #[inline(always)]
    pub fn kind(&self) -> Option<PageKind> {
        PageKind::from_byte(self.bytes.field_u8::<{ KIND }>())
    }

    /// Level above the leaves, which have zero.
    #[inline(always)]
    pub fn level(&self) -> u8 {
        self.bytes.field_u8::<{ LEVEL }>()
    }

    /// The page that the bytes say they are.
    #[inline(always)]
    pub fn page_id(&self) -> PageId {
        PageId(self.bytes.field_u32::<{ PAGE_ID }>())
    }

    /// The tree that the page belongs to.
    #[cfg(hedgerow_internals)]
    #[inline(always)]
    pub fn tree_id(&self) -> TreeId {
        TreeId(self.bytes.field_u32::<{ TREE_ID }>())
    }

    /// The newest LSN of any record in the page.
    #[inline(always)]
    pub fn newest_lsn(&self) -> Lsn {
        Lsn(self.bytes.u64_at(NEWEST_LSN))
    }

    /// Number of records in a leaf, of separators in an inner node (which has one child more).
    #[inline(always)]
    pub fn count(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ COUNT }>())
    }

    /// Bytes that all keys of the node begin with and none stores.
    #[inline(always)]
    pub fn prefix_len(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ PREFIX_LEN }>())
    }

    #[inline(always)]
    fn is_inner(&self) -> bool {
        self.bytes.field_u8::<{ KIND }>() == PageKind::Inner as u8
    }

    #[inline(always)]
    fn slots_start(&self) -> usize {
        if !rung::HEADS {
            return HEADS;
        }
        HEADS + 4 * usize::from(self.bytes.field_u16::<{ HEADS_CAPACITY }>())
    }

    /// The head of key (or separator) `index`.
    #[inline(always)]
    pub(super) fn head(&self, index: usize) -> i32 {
        self.bytes.u32_at(HEADS + 4 * index) as i32
    }

    #[inline(always)]
    pub(super) fn leaf_slot(&self, index: usize) -> Slot {
        let word = self.bytes.u64_at(self.slots_start() + LEAF_SLOT_BYTES * index);
        Slot {
            offset: word as usize & 0xffff,
            suffix_len: (word >> 16) as usize & 0xffff,
            value_len: (word >> 32) as usize & VALUE_LEN_MASK as usize,
            child: 0,
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> Slot {
        if !self.is_inner() {
            return self.leaf_slot(index);
        }
        let word = self.bytes.u64_at(self.slots_start() + INNER_SLOT_BYTES * index);
        Slot {
            offset: word as usize & 0xffff,
            suffix_len: (word >> 16) as usize & 0xffff,
            value_len: 0,
            child: (word >> 32) as u32,
        }
    }

    /// Child `index` of an inner node; `index == count` names the child above the last separator.
    #[inline]
    pub fn child_at(&self, index: usize) -> PageId {
        let slot = self.slots_start() + INNER_SLOT_BYTES * index;
        let at = if index < self.count() { slot + 4 } else { UPPER_CHILD };
        PageId(self.bytes.u32_at(at))
    }

    /// Bytes of the value of record `index` of a leaf.
    #[inline(always)]
    pub fn value_len(&self, index: usize) -> usize {
        self.leaf_slot(index).value_len
    }

    /// Appends the value of record `index` of a leaf to `out`.
    #[inline]
    pub fn append_value(&self, index: usize, out: &mut Vec<u8>) {
        let slot = self.leaf_slot(index);
        self.bytes.append_to(slot.value_at(), slot.value_len, out);
    }

    /// Copies the value of record `index` of a leaf.
    #[inline(always)]
    pub fn copy_value(&self, index: usize, out: &mut Copied) {
        let slot = self.leaf_slot(index);
        self.bytes.copy_out(slot.value_at(), slot.value_len, out);
    }

    /// Whether the value of record `index` of a leaf is `value`.
    #[inline]
    pub fn value_equals(&self, index: usize, value: &[u8]) -> bool {
        let slot = self.leaf_slot(index);
        slot.value_len == value.len() && self.bytes.equals(slot.value_at(), slot.value_len, value)
    }

    /// Bytes of key (or separator) `index`, prefix included.
    #[inline]
    pub fn key_len(&self, index: usize) -> usize {
        self.prefix_len() + self.slot(index).suffix_len
    }

    /// Appends the prefix that all keys of the node share to `out`.
    #[inline]
    pub fn append_prefix(&self, out: &mut Vec<u8>) {
        let lower =
            self.bytes.len().saturating_sub(usize::from(self.bytes.field_u16::<{ LOWER_LEN }>()));
        self.bytes.append_to(lower, self.prefix_len(), out);
    }

    /// Writes the prefix that all keys of the node share to the start of `to`; what does not fit is left
    /// out. Returns how many bytes that were.
    #[inline]
    pub fn copy_prefix(&self, to: &mut [u8]) -> usize {
        let len = self.prefix_len().min(to.len());
        let lower =
            self.bytes.len().saturating_sub(usize::from(self.bytes.field_u16::<{ LOWER_LEN }>()));
        self.bytes.copy(lower, &mut to[..len]);
        len
    }

    /// Appends key (or separator) `index` to `out`, without the shared prefix.
    #[inline]
    pub fn append_suffix(&self, index: usize, out: &mut Vec<u8>) {
        let slot = self.slot(index);
        if !rung::HEADS {
            return self.bytes.append_to(slot.offset, slot.suffix_len, out);
        }
        let head = (self.head(index) ^ i32::MIN).to_be_bytes();
        let (start, rest) = (out.len(), slot.rest_len());
        if rest == 0 {
            out.extend_from_slice(&head);
            return out.truncate(start + slot.suffix_len);
        }
        // In one piece, with the four bytes before the record, whose place the head takes.
        self.bytes.append_to(
            slot.offset.wrapping_sub(rung::HEAD_BYTES),
            rest + rung::HEAD_BYTES,
            out,
        );
        if let Some(bytes) = out[start..].first_chunk_mut() {
            *bytes = head;
        }
    }

    /// Appends key (or separator) `index` to `out`, prefix included.
    #[inline]
    pub fn append_key(&self, index: usize, out: &mut Vec<u8>) {
        self.append_prefix(out);
        self.append_suffix(index, out);
    }

    /// Compares key (or separator) `index` with a key that has the node's prefix.
    #[cfg(hedgerow_internals)]
    #[inline]
    pub fn compare_key(&self, index: usize, key: &[u8]) -> Ordering {
        let slot = self.slot(index);
        let suffix = key.get(self.prefix_len()..).unwrap_or(&[]);
        if !rung::HEADS {
            return self.bytes.compare(slot.offset, slot.suffix_len, suffix);
        }
        let rest = suffix.get(rung::HEAD_BYTES..).unwrap_or(&[]);
        self.head(index)
            .cmp(&head_of(suffix))
            .then_with(|| self.bytes.compare(slot.offset, slot.rest_len(), rest))
            .then(slot.suffix_len.cmp(&suffix.len()))
    }

    /// Place and length of the lower fence; `None` for minus infinity.
    #[inline]
    fn lower_place(&self) -> Option<(usize, usize)> {
        if self.bytes.field_u16::<{ NODE_FLAGS }>() & LOWER_INFINITE != 0 {
            return None;
        }
        let len = usize::from(self.bytes.field_u16::<{ LOWER_LEN }>());
        Some((self.bytes.len().saturating_sub(len), len))
    }

    /// Place and length of the upper fence; `None` for plus infinity.
    #[inline]
    fn upper_place(&self) -> Option<(usize, usize)> {
        if self.bytes.field_u16::<{ NODE_FLAGS }>() & UPPER_INFINITE != 0 {
            return None;
        }
        let lower = usize::from(self.bytes.field_u16::<{ LOWER_LEN }>());
        let len = usize::from(self.bytes.field_u16::<{ UPPER_LEN }>());
        Some((self.bytes.len().saturating_sub(lower + len), len))
    }

    /// Appends the lower fence, which is below every key of the node, to `out`; false if the node
    /// reaches down without end.
    pub fn append_lower_fence(&self, out: &mut Vec<u8>) -> bool {
        let place = self.lower_place();
        if let Some((at, len)) = place {
            self.bytes.append_to(at, len, out);
        }
        place.is_some()
    }

    /// Appends the upper fence, the largest key that the node may hold, to `out`; false if the node
    /// reaches up without end.
    pub fn append_upper_fence(&self, out: &mut Vec<u8>) -> bool {
        let place = self.upper_place();
        if let Some((at, len)) = place {
            self.bytes.append_to(at, len, out);
        }
        place.is_some()
    }

    /// Bytes of the lower fence.
    pub fn lower_fence_len(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ LOWER_LEN }>())
    }

    /// Bytes of the upper fence.
    pub fn upper_fence_len(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ UPPER_LEN }>())
    }

    /// Whether the node reaches up only to a fence.
    #[inline]
    pub fn has_upper_fence(&self) -> bool {
        self.upper_place().is_some()
    }

    /// Whether `key` is the upper fence.
    pub fn is_upper_fence(&self, key: &[u8]) -> bool {
        self.upper_place()
            .is_some_and(|(at, len)| len == key.len() && self.bytes.equals(at, len, key))
    }

    /// Whether the keys of a right neighbour begin where those of this node end.
    pub fn meets<C: PageBytes>(&self, right: &Node<C>) -> bool {
        let mut fence = Vec::new();
        right.append_lower_fence(&mut fence) && self.is_upper_fence(&fence)
    }

    /// Whether `key` lies above the lower fence.
    #[inline]
    pub fn is_above_lower(&self, key: &[u8]) -> bool {
        self.lower_place().is_none_or(|(at, len)| self.bytes.compare(at, len, key).is_lt())
    }

    /// Whether `key` is at most the upper fence.
    #[inline]
    pub fn is_within_upper(&self, key: &[u8]) -> bool {
        self.upper_place().is_none_or(|(at, len)| self.bytes.compare(at, len, key).is_ge())
    }

    /// Whether the node is the one for `key`: lower fence < key <= upper fence.
    #[inline]
    pub fn covers(&self, key: &[u8]) -> bool {
        self.is_above_lower(key) && self.is_within_upper(key)
    }

    /// Whether the last insertions went in one direction: then a number that the next insertion most likely changes.
    pub fn run(&self) -> Option<usize> {
        let run = self.bytes.field_u16::<{ RUN }>() as i16;
        let last = usize::from(self.bytes.field_u16::<{ LAST_INSERT }>());
        (usize::from(run.unsigned_abs()) >= SEQUENTIAL_RUN).then(|| last + self.count())
    }

    /// Bytes of both fences.
    fn fence_bytes(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ LOWER_LEN }>())
            + usize::from(self.bytes.field_u16::<{ UPPER_LEN }>())
    }

    /// Bytes of live records on the heap: values, and what prefix and heads leave of the keys.
    pub fn payload_bytes(&self) -> usize {
        self.bytes.field_u32::<{ HEAP_LIVE }>() as usize
    }

    /// Bytes of the page that are in use, once compacted: fixed fields, heads, slots, records, fences.
    /// `used_bytes + free_bytes` is the page.
    pub fn used_bytes(&self) -> usize {
        let slot_bytes = if self.is_inner() { INNER_SLOT_BYTES } else { LEAF_SLOT_BYTES };
        space_needed(slot_bytes, self.count(), self.payload_bytes(), self.fence_bytes())
    }

    /// Bytes of the page that compaction would make available.
    pub fn free_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(self.used_bytes())
    }

    /// Asks the memory for the lines that a search reads first: header, hints, the first heads, and, in a
    /// leaf of large records, the slots behind them.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.bytes.prefetch(0);
        self.bytes.prefetch(HINTS);
        self.bytes.prefetch(HEADS);
        self.bytes.prefetch(HEADS + 64);
        self.bytes.prefetch(HEADS + 128);
        self.bytes.prefetch(HEADS + 192);
    }

    /// Asks the memory for the record of slot `index` of a leaf.
    #[inline(always)]
    pub fn prefetch_record(&self, index: usize) {
        let slot = self.leaf_slot(index);
        self.bytes.prefetch(slot.offset);
        self.bytes.prefetch(slot.offset + slot.record_bytes());
    }
}

impl<'a> Node<PlainBytes<'a>> {
    /// The value of record `index` of a leaf, in place. Empty if the slot leads out of the page.
    #[inline]
    pub fn value(&self, index: usize) -> &'a [u8] {
        let slot = self.leaf_slot(index);
        let at = slot.value_at();
        self.bytes.as_slice().get(at..at + slot.value_len).unwrap_or(&[])
    }
}
