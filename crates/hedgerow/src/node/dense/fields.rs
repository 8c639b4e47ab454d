//! Where the fields of the two dense layouts lie, and the arithmetic of their space.
//!
//! The common header, then fields that all leaves have at the same places (count, prefix, fences,
//! flags), then those of these layouts, little-endian and naturally aligned:
//!
//! ```text
//! 36 count u16        38 prefix_len u16   40 lower_len u16    42 upper_len u16
//! 44 capacity u16     46 node flags u16   48 heap_start u16   50 heap_live u16
//! 52 key_len u16      54 value_len u16    56 base u32         60 last_insert u16   62 run i16
//! 64 presence: a bit for each slot, in whole words of 8 bytes
//! behind it      fully dense: values, value_len bytes a slot
//!                semi-dense: a u16 a slot, gap, heap of length-prefixed values
//! end - ...      stem, if the prefix is shorter | upper fence | lower fence
//! ```
//!
//! Slot `i` belongs to the key with the number `base + i`; all of the first cache line is enough to
//! find it. The heap's fields are zero in a fully dense leaf, the value's length in a semi-dense
//! one.
//!
//! The fences have at least the room of a key each, so that a leaf can get a fence nearer without
//! moving a value. Invariants, checked by [`super::check()`]: the numbers of all slots lie between
//! the fences; the array ends before the heap, and that before the room of the fences. Pure
//! functions over bytes that the caller holds.

use super::shape::{KeyShape, stem_len};
use crate::node::fields::{
    LOWER_LEN, PREFIX_LEN, UPPER_LEN, lower_fence, u16_at, u32_at, upper_fence,
};

/// Number of slots.
pub(super) const CAPACITY: usize = 44;
/// First byte of the heap (semi-dense).
pub(super) const HEAP_START: usize = 48;
/// Bytes of the heap that belong to records (semi-dense).
pub(super) const HEAP_LIVE: usize = 50;
/// Bytes of each key.
pub(super) const KEY_LEN: usize = 52;
/// Bytes of each value (fully dense).
pub(super) const VALUE_LEN: usize = 54;
/// The number of slot 0.
pub(super) const BASE: usize = 56;
/// How steadily insertions went up or down from there; a hint for splits.
pub(super) const RUN: usize = 62;
/// The presence bits.
pub(super) const PRESENCE: usize = 64;

/// Slots that one word of presence bits covers.
pub(super) const WORD_SLOTS: usize = 64;
/// Bytes of one word of presence bits.
pub(super) const WORD_BYTES: usize = 8;
/// Most slots of a leaf: what 16 bits count, in whole words.
pub(in crate::node) const MAX_SLOTS: usize = (1 << 16) - WORD_SLOTS;

const _: () = assert!(crate::node::fields::HEADS_CAPACITY == CAPACITY);
const _: () = assert!(crate::node::fields::RUN == RUN && RUN + 2 == PRESENCE);

/// First byte behind the presence bits of so many slots.
#[inline(always)]
pub(super) const fn array_start(capacity: usize) -> usize {
    PRESENCE + capacity.div_ceil(WORD_SLOTS) * WORD_BYTES
}

/// Bytes of the stem at the page's end: none if the keys' common prefix, which stands at the start
/// of the lower fence, holds all of it.
#[inline(always)]
pub(super) const fn stored_stem_len(key_len: usize, prefix_len: usize) -> usize {
    let stem = stem_len(key_len);
    if prefix_len >= stem { 0 } else { stem }
}

/// Bytes at the page's end that are kept for fences and stem.
pub(super) fn tail_room(key_len: usize, prefix_len: usize, lower: usize, upper: usize) -> usize {
    stored_stem_len(key_len, prefix_len) + lower.max(key_len) + upper.max(key_len)
}

/// Slots of `slot_bytes` each (presence apart) that so many bytes hold.
pub(super) fn slots_in(room: usize, slot_bytes: usize) -> usize {
    let word = WORD_SLOTS * slot_bytes + WORD_BYTES;
    let left = (room % word).saturating_sub(WORD_BYTES);
    let more = left.checked_div(slot_bytes).unwrap_or(0).min(WORD_SLOTS - 1);
    (room / word * WORD_SLOTS + more).min(MAX_SLOTS)
}

/// Slots of the page.
pub(super) fn capacity(page: &[u8]) -> usize {
    u16_at(page, CAPACITY)
}

/// Bytes of each key of the page.
pub(super) fn key_len(page: &[u8]) -> usize {
    u16_at(page, KEY_LEN)
}

/// The number of slot 0.
pub(super) fn base(page: &[u8]) -> u32 {
    u32_at(page, BASE)
}

/// First byte of the room for fences and stem, which is the end of array and heap.
pub(super) fn tail_start(page: &[u8]) -> usize {
    let (lower, upper) = (u16_at(page, LOWER_LEN), u16_at(page, UPPER_LEN));
    page.len() - tail_room(key_len(page), u16_at(page, PREFIX_LEN), lower, upper)
}

/// What the keys of the page have in common.
pub(super) fn shape(page: &[u8]) -> KeyShape<'_> {
    let key_len = key_len(page);
    let stem = stem_len(key_len);
    let lower = page.len() - u16_at(page, LOWER_LEN);
    let at = match stored_stem_len(key_len, u16_at(page, PREFIX_LEN)) {
        0 => lower,
        stored => lower - u16_at(page, UPPER_LEN) - stored,
    };
    KeyShape::with_stem(&page[at..at + stem], key_len)
}

/// One more than the largest number that a slot may have, by the upper fence.
pub(super) fn numbers_end(page: &[u8]) -> u64 {
    let shape = shape(page);
    upper_fence(page).map_or(shape.end(), |upper| shape.first_above(upper))
}

/// One more than the number of the last slot.
pub(super) fn slots_end_number(page: &[u8]) -> u64 {
    u64::from(base(page)) + capacity(page) as u64
}

/// Both fences, in buffers of their own.
pub(super) fn fences(page: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    (lower_fence(page).map(<[u8]>::to_vec), upper_fence(page).map(<[u8]>::to_vec))
}
