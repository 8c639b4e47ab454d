//! Where the fields of a fingerprint leaf lie, and the arithmetic of its space.
//!
//! The fields up to byte 56, the last two of the header and the fences are those of
//! [`super::super::layout`]:
//!
//! ```text
//! 36 count u16           38 prefix_len u16      40 lower_len u16       42 upper_len u16
//! 44 capacity u16        46 node flags u16      48 heap_start u32      52 heap_live u32
//! 56 sorted u16          58 function u16        60 last_insert u16     62 run i16
//! 64 fingerprints u8[capacity] | slots[count] | gap | heap | upper fence | lower fence
//! ```
//!
//! A slot is *narrow*, 4 bytes (offset u16, suffix length u8, value length u8), as long as all
//! lengths of the leaf allow it; else all are *wide*, 6 bytes, and bit 2 of the flags is set. A
//! record is the whole suffix and then the value. Records cost 5 bytes besides (7 if wide): the
//! comparison leaf has 6, and hints.
//!
//! Invariants (checked by [`super::check()`], the cheap half of them by [`super::load_check`]):
//!
//! - The first `sorted` records are in the order of their keys; the tail behind them is in any
//!   order.
//! - Fingerprint `i` is that of the key of slot `i`, and no two records have one key.
//! - Of one fingerprint there are at most [`CROWD`] records in the tail. (An insertion keeps it so.
//!   No check looks at it: nothing but speed depends on it.)
//! - `slots_end <= heap_start <= fences_start`, and `heap_live <= fences_start - heap_start`.
//! - The space equation: fixed fields + fingerprints + slots + gap + live + dead + fences = page.
//!
//! Pure functions over bytes; whoever calls them holds the page or a private copy of it.

use super::super::fields::{
    HEADS_CAPACITY, HEADS_STEP, LOWER_INFINITE, NODE_FLAGS, UPPER_INFINITE, max_key_bytes,
    max_record_bytes, prefix, set_u16, set_u32, u16_at,
};
use super::super::layout::{HINTS, LEAF_SLOT_BYTES, UPPER_CHILD, VALUE_LEN_MASK};
use super::super::slotted::{self, Slotted};
use crate::page::header::MAX_PAGE_BYTES;
use std::ops::{Add, Range};

/// Places in the array of fingerprints.
pub(super) const CAPACITY: usize = HEADS_CAPACITY;
/// Records in order, from the first on.
pub(super) const SORTED: usize = UPPER_CHILD;
/// Number of the function that the fingerprints are of.
pub(super) const FUNCTION_FIELD: usize = SORTED + 2;
/// First byte behind the fixed fields: the array of fingerprints.
pub(super) const FINGERPRINTS: usize = HINTS;

/// Node flag: the slots are wide.
pub(super) const WIDE: u16 = 4;

/// Bytes of a narrow slot: offset, and one byte for each length.
pub(super) const NARROW_BYTES: usize = 4;
/// Bytes of a wide slot, which is that of a comparison leaf.
pub(super) const WIDE_BYTES: usize = LEAF_SLOT_BYTES;
/// Longest suffix, and longest value, of a narrow slot.
const LONGEST_NARROW: usize = 255;

/// The array of fingerprints has a multiple of so many places, so that slots are aligned.
pub(super) const STEP: usize = HEADS_STEP;
/// Fingerprints that are compared at once. Behind the last place slots are seen, and not heeded.
pub(super) const BLOCK: usize = 64;

/// Most records of one fingerprint that a look-up compares one after the other in the sorted part
/// before it goes on by binary search, and most that are allowed into the tail before it is sorted.
/// So a look-up makes at most so many comparisons twice, and a binary search. The more the number,
/// the longer a look-up among keys that were chosen to collide; the fewer, the more often large
/// leaves of ordinary keys are sorted: with 16, about every two thousand insertions.
pub(in super::super) const CROWD: usize = 16;

const _: () = assert!(FUNCTION_FIELD + 2 <= super::super::fields::LAST_INSERT);
const _: () = assert!(WIDE & (LOWER_INFINITE | UPPER_INFINITE) == 0);
// Two fences and a record of the largest size always fit, and there is a cut, as in a comparison leaf: fixed fields
// and slots are smaller here, and the arithmetic is that of `max_record_bytes`.
const fn is_roomy(page_bytes: usize) -> bool {
    let longest = 2 * max_key_bytes(page_bytes) + max_record_bytes(page_bytes);
    FINGERPRINTS + 3 * STEP + 2 * (WIDE_BYTES + 1) + longest <= page_bytes
}
const _: () = assert!(is_roomy(512) && is_roomy(MAX_PAGE_BYTES));

/// One slot, unpacked; the record has the whole suffix.
pub(in super::super) type Slot = slotted::Slot<0>;

/// A narrow slot.
#[inline(always)]
pub(super) fn narrow_slot(word: u32) -> Slot {
    Slot {
        offset: word as usize & 0xffff,
        suffix_len: (word >> 16) as usize & 0xff,
        value_len: (word >> 24) as usize,
        child: 0,
    }
}

/// A wide slot out of a word that begins with it.
#[inline(always)]
pub(super) fn wide_slot(word: u64) -> Slot {
    Slot {
        offset: word as usize & 0xffff,
        suffix_len: (word >> 16) as usize & 0xffff,
        value_len: (word >> 32) as usize & VALUE_LEN_MASK as usize,
        child: 0,
    }
}

/// Fingerprint leaves, as slotted pages.
pub(super) enum Fingerprints {}

impl Slotted<0> for Fingerprints {
    const ARRAY: usize = FINGERPRINTS;
    const ENTRY_BYTES: usize = 1;

    #[inline(always)]
    fn slot_bytes(page: &[u8]) -> usize {
        slot_width(is_wide(page))
    }

    #[inline(always)]
    fn slot_bytes_with(page: &[u8], suffix_len: usize, value_len: usize) -> usize {
        slot_width(is_wide(page) || suffix_len.max(value_len) > LONGEST_NARROW)
    }

    fn set_slot_bytes(page: &mut [u8], bytes: usize) {
        set_wide(page, bytes == WIDE_BYTES);
    }

    #[inline(always)]
    fn slot(page: &[u8], place: usize) -> Slot {
        slot(page, place)
    }

    #[inline(always)]
    fn set_slot(page: &mut [u8], place: usize, slot: Slot) {
        set_slot(page, place, slot);
    }
}

/// What a set of records takes: the sum of it with that of another set is what both take.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in super::super) struct Measure {
    /// Records.
    pub count: usize,
    /// Bytes on the heap.
    pub live: usize,
    /// Whether a narrow slot is too small for one of them.
    pub wide: bool,
}

impl Measure {
    /// One record.
    pub(in super::super) fn record(suffix_len: usize, value_len: usize) -> Measure {
        let wide = suffix_len > LONGEST_NARROW || value_len > LONGEST_NARROW;
        Measure { count: 1, live: suffix_len + value_len, wide }
    }

    /// Records of a leaf, in a node with a prefix that is longer by `longer` bytes, and shorter by
    /// `shorter`.
    pub(super) fn of(page: &[u8], range: Range<usize>, longer: usize, shorter: usize) -> Measure {
        slots(page, range).fold(Measure::default(), |sum, slot| {
            let suffix_len = slot.suffix_len.saturating_sub(longer) + shorter;
            sum + Measure::record(suffix_len, slot.value_len)
        })
    }

    /// Bytes that a leaf of these records takes with so many bytes of fences.
    pub(in super::super) fn space(self, fences: usize) -> usize {
        space_needed(self.count, self.wide, self.live, fences)
    }
}

impl Add for Measure {
    type Output = Measure;

    fn add(self, other: Measure) -> Measure {
        Measure {
            count: self.count + other.count,
            live: self.live + other.live,
            wide: self.wide || other.wide,
        }
    }
}

/// Places that the array of fingerprints has for `count` records at least.
pub(super) const fn places_needed(count: usize) -> usize {
    slotted::entries_needed::<_, Fingerprints>(count)
}

/// Bytes of a slot.
#[inline(always)]
pub(super) const fn slot_width(wide: bool) -> usize {
    if wide { WIDE_BYTES } else { NARROW_BYTES }
}

/// Bytes that a leaf needs which holds `count` records, `live` bytes on the heap and `fences` bytes
/// of fences, with nothing dead and no place too many for fingerprints.
pub(in super::super) const fn space_needed(
    count: usize,
    wide: bool,
    live: usize,
    fences: usize,
) -> usize {
    slotted::space_needed::<_, Fingerprints>(slot_width(wide), count, live, fences)
}

/// Whether the slots are wide.
#[inline]
pub(in super::super) fn is_wide(page: &[u8]) -> bool {
    u16_at(page, NODE_FLAGS) as u16 & WIDE != 0
}

/// Makes the slots count as wide or narrow.
pub(super) fn set_wide(page: &mut [u8], wide: bool) {
    let others = u16_at(page, NODE_FLAGS) as u16 & !WIDE;
    set_u16(page, NODE_FLAGS, usize::from(others | if wide { WIDE } else { 0 }));
}

/// Records in order, from the first on.
pub(in super::super) fn sorted_count(page: &[u8]) -> usize {
    u16_at(page, SORTED)
}

/// First byte of the slots.
#[inline]
pub(super) fn slots_start(page: &[u8]) -> usize {
    slotted::slots_start::<_, Fingerprints>(page)
}

/// First byte behind the slots.
#[inline]
pub(super) fn slots_end(page: &[u8]) -> usize {
    slotted::slots_end::<_, Fingerprints>(page)
}

/// Between slots and heap.
pub(in super::super) fn gap(page: &[u8]) -> Range<usize> {
    slots_end(page)..super::super::fields::heap_start(page)
}

/// Compacts the leaf if removed records have at least so many bytes.
pub(in super::super) fn pack(page: &mut [u8], least_bytes: usize) {
    slotted::pack::<_, Fingerprints>(page, least_bytes);
}

/// Some bytes of a page, with one look at its length.
#[inline(always)]
fn bytes_at<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&page[at..at + N]);
    bytes
}

/// Reads the slot at `place`.
#[inline]
pub(super) fn slot(page: &[u8], place: usize) -> Slot {
    if is_wide(page) {
        let [a, b, c, d, e, f] = bytes_at(page, slots_start(page) + WIDE_BYTES * place);
        wide_slot(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
    } else {
        narrow_slot(u32::from_le_bytes(bytes_at(page, slots_start(page) + NARROW_BYTES * place)))
    }
}

/// Reads the slots of a range of places one after the other.
#[inline]
pub(in super::super) fn slots(
    page: &[u8],
    range: Range<usize>,
) -> impl Iterator<Item = Slot> + Clone {
    let (wide, start) = (is_wide(page), slots_start(page));
    let width = slot_width(wide);
    let all = &page[start + width * range.start..start + width * range.end.max(range.start)];
    all.chunks_exact(width).map(move |bytes| {
        if wide {
            let [a, b, c, d, e, f] = bytes_at(bytes, 0);
            wide_slot(u64::from_le_bytes([a, b, c, d, e, f, 0, 0]))
        } else {
            narrow_slot(u32::from_le_bytes(bytes_at(bytes, 0)))
        }
    })
}

/// Writes the slot at `place`, which is wide enough for it.
#[inline]
pub(super) fn set_slot(page: &mut [u8], place: usize, slot: Slot) {
    // A record without bytes may begin behind the last byte of a 64 KiB page, which 16 bits do not
    // hold.
    let offset = if slot.record_bytes() == 0 { 0 } else { slot.offset };
    if is_wide(page) {
        let word = offset as u64 | (slot.suffix_len as u64) << 16 | (slot.value_len as u64) << 32;
        let at = slots_start(page) + WIDE_BYTES * place;
        page[at..at + WIDE_BYTES].copy_from_slice(&word.to_le_bytes()[..WIDE_BYTES]);
    } else {
        debug_assert!(slot.suffix_len.max(slot.value_len) <= LONGEST_NARROW);
        let word = offset as u32 | (slot.suffix_len as u32) << 16 | (slot.value_len as u32) << 24;
        set_u32(page, slots_start(page) + NARROW_BYTES * place, word);
    }
}

/// The key at `place`, without the prefix.
pub(super) fn suffix(page: &[u8], place: usize) -> &[u8] {
    &page[slot(page, place).rest_range()]
}

/// The value at `place`.
#[cfg(hedgerow_internals)]
pub(super) fn value(page: &[u8], place: usize) -> &[u8] {
    &page[slot(page, place).value_range()]
}

/// The part of a whole key that a leaf stores; nothing of one that has not the leaf's prefix.
pub(super) fn cut_prefix<'k>(page: &[u8], key: &'k [u8]) -> &'k [u8] {
    key.get(prefix(page).len()..).unwrap_or(&[])
}
