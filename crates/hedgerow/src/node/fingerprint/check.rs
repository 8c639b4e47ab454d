//! Checks of a fingerprint leaf's bytes: the whole one, which finds every defect, and the one at
//! page-in.
//!
//! [`load_check`] looks at what could lead a writer out of the page: sizes, counts and places. A
//! page that passes it makes no function of [`FingerprintLeafMut`](super::FingerprintLeafMut)
//! panic, however wrong its keys, its order and its fingerprints are; and `check` passing implies
//! `load_check` passing. Both are total over arbitrary bytes and change nothing.

use super::super::check::{
    fence_suffixes, flags_and_fences, flags_and_run, is_page_size, records_fit, slots_and_heap,
    slots_and_heap_bounds,
};
use super::super::defect::Defect;
use super::super::fields::{LOWER_INFINITE, UPPER_INFINITE, count, u16_at};
use super::hash::{FUNCTION, fingerprint};
use super::layout::{
    CAPACITY, FINGERPRINTS, FUNCTION_FIELD, Fingerprints, NARROW_BYTES, STEP, WIDE, WIDE_BYTES,
    is_wide, narrow_slot, slots_end, slots_start, sorted_count, suffix, wide_slot,
};
use crate::page::header::{KIND, LEVEL, PageKind};

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
    if is_wide(page) {
        let (slots, _) = slots.as_chunks::<WIDE_BYTES>();
        let word =
            |s: &[u8; WIDE_BYTES]| u64::from_le_bytes([s[0], s[1], s[2], s[3], s[4], s[5], 0, 0]);
        records_fit::<_, Fingerprints>(page, slots.iter().map(|slot| wide_slot(word(slot))))
    } else {
        let (slots, _) = slots.as_chunks::<NARROW_BYTES>();
        let slots = slots.iter().map(|slot| narrow_slot(u32::from_le_bytes(*slot)));
        records_fit::<_, Fingerprints>(page, slots)
    }
}

/// Reports every defect of a fingerprint leaf; an empty list is a clean page.
pub fn check(page: &[u8]) -> Vec<Defect> {
    let mut defects = Vec::new();
    if fixed_fields(page, &mut |defect| defects.push(defect)) {
        flags_and_run(page, &mut defects);
        if slots_and_heap::<_, Fingerprints>(page, &mut defects) {
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

/// Order, uniqueness, fences, prefix, fingerprints. The records can be read.
fn keys(page: &[u8], defects: &mut Vec<Defect>) {
    // Of the fences only what follows the prefix is compared, as of the keys.
    let [lower, upper] = fence_suffixes(page, defects);
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
