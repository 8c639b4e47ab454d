//! Checks of a fingerprint leaf's bytes: the whole one, which finds every defect, and the one at
//! page-in.
//!
//! [`load_check`] looks at what could lead a writer out of the page: sizes, counts and places. A
//! page that passes it makes no function of [`FingerprintLeafMut`](super::FingerprintLeafMut)
//! panic, however wrong its keys, its order and its fingerprints are; and `check` passing implies
//! `load_check` passing. Both are total over arbitrary bytes and change nothing.

use super::super::check::{
    Records, expected_prefix, flags_and_fences, is_page_size, slots_and_heap_bounds,
};
use super::super::defect::Defect;
use super::super::layout::{
    LOWER_INFINITE, LOWER_LEN, PREFIX_LEN, RUN, UPPER_INFINITE, UPPER_LEN, VALUE_LEN_MASK, count,
    fences_start, heap_live, heap_start, lower_fence, max_key_bytes, max_record_bytes, prefix,
    u16_at, upper_fence,
};
use super::super::write::MAX_RUN;
use super::hash::{FUNCTION, fingerprint};
use super::layout::{
    CAPACITY, FINGERPRINTS, FUNCTION_FIELD, NARROW_BYTES, STEP, Slot, WIDE, WIDE_BYTES, is_wide,
    slot, slot_width, slots_end, slots_start, sorted_count, suffix,
};
use crate::page::header::{FLAGS, KIND, LEVEL, PageKind};

/// Checks, as far as memory safety of later changes needs it, a page that comes from outside. Costs
/// little more than a pass over the slots.
///
/// # Errors
/// The first defect found.
pub fn load_check(page: &[u8]) -> Result<(), Defect> {
    let mut first = None;
    fixed_fields(page, &mut |defect| first = first.or(Some(defect)));
    if let Some(defect) = first {
        return Err(defect);
    }
    let slots = &page[slots_start(page)..slots_end(page)];
    let sum = if is_wide(page) {
        let (slots, _) = slots.as_chunks::<WIDE_BYTES>();
        let word =
            |s: &[u8; WIDE_BYTES]| u64::from_le_bytes([s[0], s[1], s[2], s[3], s[4], s[5], 0, 0]);
        records(page, slots.iter().map(|slot| Slot::wide(word(slot))))
    } else {
        let (slots, _) = slots.as_chunks::<NARROW_BYTES>();
        records(page, slots.iter().map(|slot| Slot::narrow(u32::from_le_bytes(*slot))))
    };
    match sum {
        Some(live) if live == heap_live(page) => Ok(()),
        Some(live) => Err(Defect::HeapLive { stored: heap_live(page), counted: live }),
        None => Err(first_bad_record(page)),
    }
}

/// The sum of all records, if each lies on the heap and is not too long.
#[inline(always)]
fn records(page: &[u8], slots: impl Iterator<Item = Slot>) -> Option<usize> {
    let (heap, end) = (heap_start(page), fences_start(page));
    let beyond_prefix = |bytes: usize| bytes.saturating_sub(u16_at(page, PREFIX_LEN));
    let longest_key = beyond_prefix(max_key_bytes(page.len()));
    let longest = beyond_prefix(max_record_bytes(page.len()));
    let mut live = 0;
    for slot in slots {
        let (offset, len) = (slot.offset, slot.record_bytes());
        let misplaced = offset < heap || offset + len > end;
        let too_long = slot.suffix_len > longest_key || len > longest;
        if too_long || misplaced && (len, offset) != (0, 0) {
            return None;
        }
        live += len;
    }
    Some(live)
}

#[cold]
fn first_bad_record(page: &[u8]) -> Defect {
    let mut defects = Vec::new();
    slots_and_heap(page, &mut defects);
    let place =
        |defect: &Defect| matches!(defect, Defect::RecordPlace(_) | Defect::RecordLength(_));
    defects.into_iter().find(place).unwrap_or(Defect::RecordPlace(0))
}

/// Reports every defect of a fingerprint leaf; an empty list is a clean page.
pub fn check(page: &[u8]) -> Vec<Defect> {
    let mut defects = Vec::new();
    if fixed_fields(page, &mut |defect| defects.push(defect)) {
        small_fields(page, &mut defects);
        if slots_and_heap(page, &mut defects) {
            keys(page, &mut defects);
        }
    }
    defects
}

/// Checks sizes, counts and places; reports to `found`. False if they are so wrong that slots and
/// fences cannot be read.
fn fixed_fields(page: &[u8], found: &mut dyn FnMut(Defect)) -> bool {
    if !is_page_size(page.len()) {
        found(Defect::PageSize(page.len()));
        return false;
    }
    if page[KIND] != PageKind::FingerprintLeaf as u8 {
        found(Defect::Kind(page[KIND]));
        return false;
    }
    if page[LEVEL] != 0 {
        found(Defect::Level(page[LEVEL]));
    }
    if u16_at(page, FUNCTION_FIELD) != FUNCTION {
        found(Defect::FingerprintFunction(u16_at(page, FUNCTION_FIELD)));
    }
    if !flags_and_fences(page, LOWER_INFINITE | UPPER_INFINITE | WIDE, found) {
        return false;
    }
    let (capacity, count) = (u16_at(page, CAPACITY), count(page));
    if capacity < count || capacity % STEP != 0 {
        found(Defect::FingerprintsCapacity { capacity, count });
        return false;
    }
    if sorted_count(page) > count {
        found(Defect::SortedCount(sorted_count(page)));
    }
    slots_and_heap_bounds(page, slots_end(page), found)
}

/// Fields whose value endangers nobody.
fn small_fields(page: &[u8], defects: &mut Vec<Defect>) {
    let flags = u16_at(page, FLAGS) as u16;
    if flags != 0 {
        defects.push(Defect::Flags(flags));
    }
    let run = u16_at(page, RUN) as u16 as i16;
    if !(-MAX_RUN..=MAX_RUN).contains(&run) {
        defects.push(Defect::Run(run));
    }
}

/// Checks each slot and the sum of the records. False if some record cannot be read.
fn slots_and_heap(page: &[u8], defects: &mut Vec<Defect>) -> bool {
    let longest = max_record_bytes(page.len());
    let shared = u16_at(page, PREFIX_LEN);
    let mut records = Records::of(page);
    for place in 0..count(page) {
        let slot = slot(page, place);
        let record = slot.record_bytes();
        records.add(place, slot.offset, record, defects);
        if shared + record > longest {
            defects.push(Defect::RecordLength(place));
        }
        let value_len = slots_start(page) + WIDE_BYTES * place + 4;
        if is_wide(page) && u16_at(page, value_len) & !usize::from(VALUE_LEN_MASK) != 0 {
            defects.push(Defect::SlotBits(place));
        }
    }
    let (live, readable) = records.finish(page, defects);
    space(page, live, defects);
    readable
}

/// The space equation, counted from both ends.
fn space(page: &[u8], live: usize, defects: &mut Vec<Defect>) {
    let fences = u16_at(page, LOWER_LEN) + u16_at(page, UPPER_LEN);
    let arrays = u16_at(page, CAPACITY) + slot_width(is_wide(page)) * count(page);
    let heap = heap_start(page);
    let gap = heap.saturating_sub(FINGERPRINTS + arrays);
    let dead = page.len().saturating_sub(fences + heap).saturating_sub(live);
    let counted = FINGERPRINTS + arrays + gap + dead + live + fences;
    if counted != page.len() {
        defects.push(Defect::Space { counted });
    }
}

/// Order, uniqueness, fences, prefix, fingerprints. The records can be read.
fn keys(page: &[u8], defects: &mut Vec<Defect>) {
    if let (Some(lower), Some(upper)) = (lower_fence(page), upper_fence(page))
        && lower >= upper
    {
        defects.push(Defect::FenceOrder);
    }
    let shared = prefix(page);
    let expected = expected_prefix(page);
    if shared.len() != expected {
        defects.push(Defect::PrefixLength { stored: shared.len(), expected });
    }
    // Of the fences only what follows the prefix is compared, as of the keys.
    let lower = lower_fence(page).map(|fence| &fence[shared.len()..]);
    let upper = upper_fence(page).map(|fence| &fence[shared.len()..]);
    for place in 0..count(page) {
        let key = suffix(page, place);
        if place > 0 && place < sorted_count(page) && suffix(page, place - 1) >= key {
            defects.push(Defect::Order(place));
        }
        if lower.is_some_and(|lower| lower >= key) || upper.is_some_and(|upper| key > upper) {
            defects.push(Defect::OutsideFences(place));
        }
        if page[FINGERPRINTS + place] != fingerprint(key) {
            defects.push(Defect::Fingerprint(place));
        }
    }
    if sorted_count(page) < count(page) {
        let mut all: Vec<_> = (0..count(page)).map(|place| (suffix(page, place), place)).collect();
        all.sort_unstable();
        for pair in all.windows(2) {
            if pair[0].0 == pair[1].0 {
                defects.push(Defect::Duplicate(pair[1].1));
            }
        }
    }
}
