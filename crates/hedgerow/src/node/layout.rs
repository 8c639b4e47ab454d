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

use super::fields::{HEADS, count, field, max_record_bytes, set_u32, u32_at};
use super::rung;
use super::slotted::{self, Slotted};
use crate::page::header::{KIND, PageKind};
use std::ops::Range;

/// Comparison leaves and inner nodes.
pub(super) enum Comparison {}

impl Slotted<{ rung::HEAD_BYTES }> for Comparison {
    const ARRAY: usize = HEADS;
    const ENTRY_BYTES: usize = if rung::HEADS { 4 } else { 0 };

    #[inline(always)]
    fn slot_bytes(page: &[u8]) -> usize {
        slot_bytes(page)
    }

    #[inline(always)]
    fn slot_bytes_with(page: &[u8], _suffix_len: usize, _value_len: usize) -> usize {
        slot_bytes(page)
    }

    fn set_slot_bytes(_page: &mut [u8], _bytes: usize) {}

    #[inline(always)]
    fn slot(page: &[u8], index: usize) -> Slot {
        slot(page, index)
    }

    #[inline(always)]
    fn set_slot(page: &mut [u8], index: usize, slot: Slot) {
        set_slot(page, index, slot);
    }
}

/// The child above the last separator; zero in a leaf.
pub(super) const UPPER_CHILD: usize = 56;
/// The hint array.
pub(super) const HINTS: usize = 64;
/// Number of hints: one cache line of them.
pub(super) const HINT_COUNT: usize = 16;
/// Bytes of a leaf's slot: offset, suffix length, value length.
pub(super) const LEAF_SLOT_BYTES: usize = 6;
/// Bytes of an inner node's slot: offset, suffix length, child.
pub(super) const INNER_SLOT_BYTES: usize = 8;
/// Bits of a leaf slot's third field that hold the value's length; the others are reserved.
pub(super) const VALUE_LEN_MASK: u16 = 0x7fff;
/// Heads that one block of a search covers.
pub(super) const BLOCK_HEADS: usize = 16;

const _: () = assert!(max_record_bytes(64 << 10) <= VALUE_LEN_MASK as usize);
const _: () = assert!(HINTS.is_multiple_of(64) && HINTS + 4 * HINT_COUNT == HEADS);

/// Places that the array of heads has for `count` keys at least.
pub(super) const fn heads_needed(count: usize) -> usize {
    slotted::entries_needed::<_, Comparison>(count)
}

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

/// One slot of a latched page, unpacked.
pub(super) type Slot = slotted::Slot<{ rung::HEAD_BYTES }>;

/// Bytes that a record holds of a suffix: those behind the head.
#[inline(always)]
pub(super) fn rest_len(suffix_len: usize) -> usize {
    suffix_len.saturating_sub(rung::HEAD_BYTES)
}

/// Whether the page is an inner node.
#[inline]
pub(super) fn is_inner(page: &[u8]) -> bool {
    page[KIND] == PageKind::Inner as u8
}

/// Bytes of a slot of this page.
#[inline]
pub(super) fn slot_bytes(page: &[u8]) -> usize {
    if is_inner(page) { INNER_SLOT_BYTES } else { LEAF_SLOT_BYTES }
}

/// First byte of the slots.
#[inline]
pub(super) fn slots_start(page: &[u8]) -> usize {
    slotted::slots_start::<_, Comparison>(page)
}

/// First byte behind the slots.
pub(super) fn slots_end(page: &[u8]) -> usize {
    slotted::slots_end::<_, Comparison>(page)
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
    &page[slot(page, index).value_range()]
}

/// Bytes that a node needs which holds `count` keys, `live` bytes on the heap and `fences` bytes of
/// fences, with nothing dead and no place too many for heads.
pub(super) fn space_needed(slot_bytes: usize, count: usize, live: usize, fences: usize) -> usize {
    slotted::space_needed::<_, Comparison>(slot_bytes, count, live, fences)
}
