//! Where the fields of a node lie, and the arithmetic of its space.
//!
//! After the common header, all fields little-endian and naturally aligned:
//!
//! ```text
//! 36 count u16           38 prefix_len u16      40 lower_len u16       42 upper_len u16
//! 44 heads_capacity u16  46 node flags u16      48 heap_start u32      52 heap_live u32
//! 56 upper_child u32     60 last_insert u16     62 run i16             64 sixteen hints u32
//! 128 heads u32[heads_capacity] | slots[count] | gap | heap | upper fence | lower fence
//! ```
//!
//! Invariants (checked by [`super::check()`], the cheap half of them by [`super::load_check`]):
//!
//! - `slots_end <= heap_start <= fences_start`, and `heap_live <= fences_start - heap_start`.
//! - The space equation: header and hints + heads + slots + gap + live + dead + fences = page.
//! - Nothing but `heap_live` bytes of the heap belongs to a record; the rest of it is dead.
//!
//! Pure functions over bytes; whoever calls them holds the page or a private copy of it.

use super::rung;
use crate::page::header::{HEADER_BYTES, KIND, LEVEL, PageKind};
use std::ops::Range;

/// Number of records, or of separators.
pub(super) const COUNT: usize = 36;
/// Bytes of the prefix that all keys share and none stores.
pub(super) const PREFIX_LEN: usize = 38;
/// Bytes of the lower fence.
pub(super) const LOWER_LEN: usize = 40;
/// Bytes of the upper fence.
pub(super) const UPPER_LEN: usize = 42;
/// Places in the array of heads.
pub(super) const HEADS_CAPACITY: usize = 44;
/// Flags of the node.
pub(super) const NODE_FLAGS: usize = 46;
/// First byte of the heap.
pub(super) const HEAP_START: usize = 48;
/// Bytes of the heap that belong to records.
pub(super) const HEAP_LIVE: usize = 52;
/// The child above the last separator; zero in a leaf.
pub(super) const UPPER_CHILD: usize = 56;
/// Index of the last insertion; a hint for splits, any value is valid.
pub(super) const LAST_INSERT: usize = 60;
/// Length of the run of neighbouring insertions, positive if ascending; a hint for splits.
pub(super) const RUN: usize = 62;
/// The hint array.
pub(super) const HINTS: usize = 64;
/// Number of hints: one cache line of them.
pub(super) const HINT_COUNT: usize = 16;
/// First byte behind the fixed fields: the array of heads.
pub(super) const HEADS: usize = 128;

/// Node flag: the lower fence is minus infinity.
pub(super) const LOWER_INFINITE: u16 = 1;
/// Node flag: the upper fence is plus infinity.
pub(super) const UPPER_INFINITE: u16 = 2;

/// Bytes of a leaf's slot: offset, suffix length, value length.
pub(super) const LEAF_SLOT_BYTES: usize = 6;
/// Bytes of an inner node's slot: offset, suffix length, child.
pub(super) const INNER_SLOT_BYTES: usize = 8;
/// Bits of a leaf slot's third field that hold the value's length; the others are reserved.
pub(super) const VALUE_LEN_MASK: u16 = 0x7fff;
/// Highest level that a node may have.
pub(super) const MAX_LEVEL: u8 = 31;
/// Heads that one block of a search covers.
pub(super) const BLOCK_HEADS: usize = 16;

const _: () = assert!(COUNT == HEADER_BYTES && HINTS + 4 * HINT_COUNT == HEADS);
const _: () = assert!(HEAP_START.is_multiple_of(4) && HINTS.is_multiple_of(64));

/// The array of heads has a multiple of so many places, so that slots are aligned. A search looks at
/// whole blocks of heads: behind the last place it sees slots, and heeds them not.
pub(super) const HEADS_STEP: usize = 4;

/// Places that the array of heads has for `count` keys at least.
pub(super) const fn heads_needed(count: usize) -> usize {
    if rung::HEADS { count.next_multiple_of(HEADS_STEP) } else { 0 }
}

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

const _: () = assert!(max_record_bytes(64 << 10) <= VALUE_LEN_MASK as usize);

/// Distance, in keys, between two hints: the smallest multiple of a block for which sixteen hints
/// suffice. Unlike the paper's `count / 17` it changes only where a multiple of 272 keys is passed, and
/// the heads between two hints are whole cache lines.
pub(super) const fn hint_spacing(count: usize) -> usize {
    BLOCK_HEADS * (count / (BLOCK_HEADS * (HINT_COUNT + 1)) + 1)
}

/// The head of a key from which the prefix was cut: its first four bytes, zero-padded, as a number
/// that orders like them. The top bit is flipped so that it does so as a *signed* number: that is the
/// comparison which all vector units have.
#[inline(always)]
pub(super) fn head_of(suffix: &[u8]) -> i32 {
    let head = if let Some(first) = suffix.first_chunk::<4>() {
        i32::from_be_bytes(*first)
    } else {
        // Short suffixes are common (integers behind a long prefix), so no loop for them.
        match *suffix {
            [a, b, c] => i32::from_be_bytes([a, b, c, 0]),
            [a, b] => i32::from_be_bytes([a, b, 0, 0]),
            [a] => i32::from(a) << 24,
            _ => 0,
        }
    };
    head ^ i32::MIN
}

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

/// One slot of a latched page, unpacked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Slot {
    /// First byte of the record, which is the suffix behind its head and then the value; zero if the
    /// record has no bytes.
    pub offset: usize,
    /// Bytes of the key without the prefix.
    pub suffix_len: usize,
    /// Bytes of the value; zero in an inner node.
    pub value_len: usize,
    /// The child below the separator; zero in a leaf.
    pub child: u32,
}

impl Slot {
    /// Bytes of the suffix that are in the record.
    #[inline(always)]
    pub(super) fn rest_len(self) -> usize {
        rest_len(self.suffix_len)
    }

    /// Bytes of the record on the heap.
    #[inline(always)]
    pub(super) fn record_bytes(self) -> usize {
        self.rest_len() + self.value_len
    }

    /// The slot of the same record in a node whose prefix is longer by so many bytes; its place aside.
    pub(super) fn shortened(self, prefix_bytes: usize) -> Slot {
        Slot { suffix_len: self.suffix_len.saturating_sub(prefix_bytes), ..self }
    }

    /// First byte of the value.
    #[inline(always)]
    pub(super) fn value_at(self) -> usize {
        self.offset + self.rest_len()
    }
}

/// Bytes that a record holds of a suffix: those behind the head.
#[inline(always)]
pub(super) fn rest_len(suffix_len: usize) -> usize {
    suffix_len.saturating_sub(rung::HEAD_BYTES)
}

/// The bytes of a field, looked up with one check of its place and not one for each byte.
#[inline]
fn field<const BYTES: usize>(page: &[u8], at: usize) -> [u8; BYTES] {
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

/// Whether the page is an inner node.
#[inline]
pub(super) fn is_inner(page: &[u8]) -> bool {
    page[KIND] == PageKind::Inner as u8
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

/// Bytes of a slot of this page.
#[inline]
pub(super) fn slot_bytes(page: &[u8]) -> usize {
    if is_inner(page) { INNER_SLOT_BYTES } else { LEAF_SLOT_BYTES }
}

/// First byte of the slots.
#[inline]
pub(super) fn slots_start(page: &[u8]) -> usize {
    HEADS + 4 * u16_at(page, HEADS_CAPACITY)
}

/// First byte behind the slots.
pub(super) fn slots_end(page: &[u8]) -> usize {
    slots_start(page) + slot_bytes(page) * count(page)
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

/// Head `index`.
#[inline]
pub(super) fn head(page: &[u8], index: usize) -> i32 {
    u32_at(page, HEADS + 4 * index) as i32
}

/// Writes head `index`.
#[inline]
pub(super) fn set_head(page: &mut [u8], index: usize, head: i32) {
    set_u32(page, HEADS + 4 * index, head as u32);
}

/// What hint `hint` of a node must be: a head, or the largest number if it has no key.
#[inline]
pub(super) fn expected_hint(page: &[u8], hint: usize) -> i32 {
    let key = hint_spacing(count(page)) * (hint + 1);
    if key < count(page) { head(page, key) } else { i32::MAX }
}

/// Reads slot `index`.
#[inline]
pub(super) fn slot(page: &[u8], index: usize) -> Slot {
    let inner = is_inner(page);
    let bytes = if inner { INNER_SLOT_BYTES } else { LEAF_SLOT_BYTES };
    read_slot(&page[slots_start(page) + index * bytes..], inner)
}

/// Reads the slots of a range in order. Where they are is looked up once, not for each of them.
#[inline]
pub(super) fn slots(page: &[u8], range: Range<usize>) -> impl Iterator<Item = Slot> + Clone {
    let inner = is_inner(page);
    let bytes = if inner { INNER_SLOT_BYTES } else { LEAF_SLOT_BYTES };
    let start = slots_start(page);
    let all = &page[start + range.start * bytes..start + range.end.max(range.start) * bytes];
    all.chunks_exact(bytes).map(move |from| read_slot(from, inner))
}

/// Reads the slot at the start of `from`.
#[inline]
fn read_slot(from: &[u8], inner: bool) -> Slot {
    let shared: [u8; LEAF_SLOT_BYTES] = field(from, 0);
    let [offset, suffix_len, value_len] =
        [0, 2, 4].map(|at| usize::from(u16::from_le_bytes([shared[at], shared[at + 1]])));
    Slot {
        offset,
        suffix_len,
        value_len: if inner { 0 } else { value_len & usize::from(VALUE_LEN_MASK) },
        child: if inner { u32_at(from, 4) } else { 0 },
    }
}

/// Writes slot `index`.
#[inline]
pub(super) fn set_slot(page: &mut [u8], index: usize, slot: Slot) {
    let (at, inner) = (slots_start(page) + index * slot_bytes(page), is_inner(page));
    // A record without bytes may begin behind the last byte of a 64 KiB page, which 16 bits do not hold.
    let offset = if slot.record_bytes() == 0 { 0 } else { slot.offset };
    write_slot(&mut page[at..], Slot { offset, ..slot }, inner);
}

/// Writes a slot to the start of `to`. The offset of a record without bytes is zero.
#[inline]
pub(super) fn write_slot(to: &mut [u8], slot: Slot, inner: bool) {
    let fields = [slot.offset, slot.suffix_len, slot.value_len];
    debug_assert!(fields.iter().all(|field| *field <= usize::from(u16::MAX)));
    let [offset, suffix_len, value_len] = fields.map(|field| (field as u16).to_le_bytes());
    let [a, b] = offset;
    let [c, d] = suffix_len;
    if inner {
        let [e, f, g, h] = slot.child.to_le_bytes();
        to[..INNER_SLOT_BYTES].copy_from_slice(&[a, b, c, d, e, f, g, h]);
    } else {
        let [e, f] = value_len;
        to[..LEAF_SLOT_BYTES].copy_from_slice(&[a, b, c, d, e, f]);
    }
}

/// The value of record `index`.
#[inline]
pub(super) fn value(page: &[u8], index: usize) -> &[u8] {
    let slot = slot(page, index);
    let at = slot.value_at();
    &page[at..at + slot.value_len]
}

/// Bytes that a node needs which holds `count` keys, `live` bytes on the heap and `fences` bytes of
/// fences, with nothing dead and no place too many for heads.
pub(super) fn space_needed(slot_bytes: usize, count: usize, live: usize, fences: usize) -> usize {
    HEADS + 4 * heads_needed(count) + slot_bytes * count + live + fences
}
