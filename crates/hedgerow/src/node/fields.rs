//! What all nodes have in one place, whatever their layout: the first fields, the fences, and how long keys and records may be.
//!
//! [`super::layout`] shows where the fields are. Pure functions over bytes; whoever calls them holds the page or a private copy of it.

use crate::page::header::{HEADER_BYTES, LEVEL};

/// Number of records, or of separators.
pub(super) const COUNT: usize = 36;
/// Bytes of the prefix that all keys share and none stores.
pub(super) const PREFIX_LEN: usize = 38;
/// Bytes of the lower fence.
pub(super) const LOWER_LEN: usize = 40;
/// Bytes of the upper fence.
pub(super) const UPPER_LEN: usize = 42;
/// Entries in the array before the slots.
pub(super) const HEADS_CAPACITY: usize = 44;
/// Flags of the node.
pub(super) const NODE_FLAGS: usize = 46;
/// First byte of the heap.
pub(super) const HEAP_START: usize = 48;
/// Bytes of the heap that belong to records.
pub(super) const HEAP_LIVE: usize = 52;
/// Index of the last insertion; a hint for splits, any value is valid.
pub(super) const LAST_INSERT: usize = 60;
/// Length of the run of neighbouring insertions, positive if ascending; a hint for splits.
pub(super) const RUN: usize = 62;
/// First byte behind the fixed fields: the array of heads.
pub(super) const HEADS: usize = 128;

/// Node flag: the lower fence is minus infinity.
pub(super) const LOWER_INFINITE: u16 = 1;
/// Node flag: the upper fence is plus infinity.
pub(super) const UPPER_INFINITE: u16 = 2;

/// Highest level that a node may have. With keys of usual lengths a tree of eight levels has more
/// pages than there are ids. Separators as long as the longest key leave room for two of them in an inner node, and a split
/// of those leaves a node with one child, which a neighbour takes in if it can (`tree/merge.rs`): three children come to two nodes
/// at least, but for what others were in the way of, and 56 levels of those have more pages than there are ids.
pub const MAX_LEVEL: u8 = 63;
/// The array of heads has a multiple of so many places, so that slots are aligned. A search looks at
/// whole blocks of heads: behind the last place it sees slots, and heeds them not.
pub(super) const HEADS_STEP: usize = 4;

/// Bytes by which a key of a node may be longer than [`max_short_key_bytes`]: the label of a long key, which the keyspace gives it.
///
/// So many that two fences and two separators of the longest keys fill an inner node, and the arithmetic of [`max_record_bytes`]
/// holds, which would let it be 7.
pub const LABEL_BYTES: usize = 6;

/// The longest key of a user's that is a node's key as it is: two fences of this size leave half of a page.
///
/// With `P` the page less its 128 fixed bytes it is `(P - 48) / 4`: 980 of 4,096 bytes, and 16,340 of 65,536.
pub const fn max_short_key_bytes(page_bytes: usize) -> usize {
    (page_bytes - HEADS - 8 * HEADS_STEP - 16) / 4
}

/// The longest key of a node.
pub const fn max_key_bytes(page_bytes: usize) -> usize {
    max_short_key_bytes(page_bytes) + LABEL_BYTES
}

/// The most bytes that key and value may have together: so many that two records with short fences fill a page.
///
/// Twice [`max_short_key_bytes`]: 1,960 of 4,096 bytes, and 32,680 of 65,536, which the 15 bits of a value's length hold. Such a
/// record always fits into a page with any two fences. This is what guarantees that a leaf can be split for any record.
/// If it has a single record, it is cut between that and the one to come. If it has more, there is a cut with records
/// on both sides, and both sides fit with any separator: with `k` the longest short key and `k + 6` the longest, take the last cut
/// whose left side fits. If a record more does not fit on the left, the others leave at most `k + 18 - upper fence` on the right. That record
/// (`2 k + 10`), the separator (`k + 6`), the upper fence and the rounding of heads (12) are at most `4 k + 46`, and a page has
/// room for `4 k + 48`.
pub const fn max_record_bytes(page_bytes: usize) -> usize {
    2 * max_short_key_bytes(page_bytes)
}

const _: () = assert!(COUNT == HEADER_BYTES && HEAP_START.is_multiple_of(4));

/// Length of the longest common prefix.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let mut at = 0;
    while let (Some(x), Some(y)) = (a[at..].first_chunk::<8>(), b[at..].first_chunk::<8>()) {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return at + difference.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + a[at..].iter().zip(&b[at..]).take_while(|(x, y)| x == y).count()
}

/// The bytes of a field, looked up with one check of its place and not one for each byte.
#[inline]
pub(super) fn field<const BYTES: usize>(page: &[u8], at: usize) -> [u8; BYTES] {
    *page[at..].first_chunk().expect("a field ends where its page does, at the latest")
}

/// Reads a field of a page that the caller holds.
#[inline]
pub(super) fn u16_at(page: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(field(page, at)))
}

/// Reads a field of a page that the caller holds.
#[inline]
pub(super) fn u32_at(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(field(page, at))
}

/// Writes a field.
#[inline]
pub(super) fn set_u16(page: &mut [u8], at: usize, value: usize) {
    debug_assert!(value <= usize::from(u16::MAX));
    page[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
}

/// Writes a field.
#[inline]
pub(super) fn set_u32(page: &mut [u8], at: usize, value: u32) {
    page[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// Level of the node.
pub(super) fn level(page: &[u8]) -> u8 {
    page[LEVEL]
}

/// Number of records or separators.
#[inline]
pub(super) fn count(page: &[u8]) -> usize {
    u16_at(page, COUNT)
}

/// First byte of the heap.
#[inline]
pub(super) fn heap_start(page: &[u8]) -> usize {
    u32_at(page, HEAP_START) as usize
}

/// Bytes of live records in the heap.
#[inline]
pub(super) fn heap_live(page: &[u8]) -> usize {
    u32_at(page, HEAP_LIVE) as usize
}

/// First byte of the fences, which is the end of the heap.
pub(super) fn fences_start(page: &[u8]) -> usize {
    page.len() - u16_at(page, LOWER_LEN) - u16_at(page, UPPER_LEN)
}

/// The lower fence, or `None` for minus infinity.
pub(super) fn lower_fence(page: &[u8]) -> Option<&[u8]> {
    let finite = u16_at(page, NODE_FLAGS) as u16 & LOWER_INFINITE == 0;
    finite.then(|| &page[page.len() - u16_at(page, LOWER_LEN)..])
}

/// The upper fence, or `None` for plus infinity.
pub(super) fn upper_fence(page: &[u8]) -> Option<&[u8]> {
    let finite = u16_at(page, NODE_FLAGS) as u16 & UPPER_INFINITE == 0;
    finite.then(|| &page[fences_start(page)..page.len() - u16_at(page, LOWER_LEN)])
}

/// The prefix that the node's keys share and do not store.
pub(super) fn prefix(page: &[u8]) -> &[u8] {
    let lower = page.len() - u16_at(page, LOWER_LEN);
    &page[lower..lower + u16_at(page, PREFIX_LEN)]
}
