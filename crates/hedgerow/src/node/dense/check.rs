//! Checks of a dense leaf's bytes: the one that finds every defect, and the one at page-in.
//!
//! There is little in such a leaf that can be wrong without being dangerous, because its keys are
//! not stored: so both look at nearly the same. What passes [`load_check`] makes no function of
//! [`super::DenseMut`] panic, and all its keys lie between its fences. Total over arbitrary bytes;
//! nothing changes.

use super::fields::{
    CAPACITY, KEY_LEN, MAX_SLOTS, array_start, base, capacity, shape, slots_end_number, tail_start,
};
use super::layout::DenseLayout;
use super::presence;
use super::write::run;
use super::{Full, Semi};
use crate::node::check::{expected_prefix, flags_and_fences, is_page_size};
use crate::node::defect::Defect;
use crate::node::fields::{
    LOWER_INFINITE, PREFIX_LEN, UPPER_INFINITE, count, lower_fence, max_key_bytes, u16_at,
    upper_fence,
};
use crate::node::write::MAX_RUN;
use crate::page::header::{BEING_FREED, FLAGS, KIND, LEVEL, PageKind};
use hedgerow_sync::optimistic::PlainBytes;

/// Reports every defect of a dense leaf of either layout; an empty list is a clean page.
pub fn check(page: &[u8]) -> Vec<Defect> {
    let mut defects = Vec::new();
    report(page, true, &mut |defect| defects.push(defect));
    defects
}

/// Checks, as far as memory safety of later changes needs it, a dense leaf that comes from outside.
///
/// # Errors
/// The first defect found.
pub fn load_check(page: &[u8]) -> Result<(), Defect> {
    let mut first = None;
    report(page, false, &mut |defect| first = first.or(Some(defect)));
    first.map_or(Ok(()), Err)
}

fn report(page: &[u8], all: bool, found: &mut dyn FnMut(Defect)) {
    if !is_page_size(page.len()) {
        return found(Defect::PageSize(page.len()));
    }
    let layout = match PageKind::from_byte(page[KIND]) {
        Some(PageKind::SemiDenseLeaf) => Semi::check,
        Some(PageKind::FullyDenseLeaf) => Full::check,
        _ => return found(Defect::Kind(page[KIND])),
    };
    if page[LEVEL] != 0 {
        found(Defect::Level(page[LEVEL]));
    }
    if fences(page, found) && slots(page, found) {
        layout(page, all, found);
    }
    if !all {
        return;
    }
    let flags = u16_at(page, FLAGS) as u16;
    if flags & !BEING_FREED != 0 {
        found(Defect::Flags(flags));
    }
    if !(-MAX_RUN..=MAX_RUN).contains(&run(page)) {
        found(Defect::Run(run(page)));
    }
}

/// Checks fences, prefix and length of the keys. False if what follows cannot be found with them.
fn fences(page: &[u8], found: &mut dyn FnMut(Defect)) -> bool {
    if !flags_and_fences(page, LOWER_INFINITE | UPPER_INFINITE, found) {
        return false;
    }
    // Numbers of keys and slots are counted from the fences: here their order matters, too.
    if let (Some(lower), Some(upper)) = (lower_fence(page), upper_fence(page))
        && lower >= upper
    {
        found(Defect::FenceOrder);
        return false;
    }
    let (stored, expected) = (u16_at(page, PREFIX_LEN), expected_prefix(page));
    if stored != expected {
        found(Defect::PrefixLength { stored, expected });
        return false;
    }
    let key_len = u16_at(page, KEY_LEN);
    if !(1..=max_key_bytes(page.len())).contains(&key_len) {
        found(Defect::KeyLength(key_len));
        return false;
    }
    true
}

/// Checks slots, their numbers, and which of them have records. False if they do not lie in the
/// page.
fn slots(page: &[u8], found: &mut dyn FnMut(Defect)) -> bool {
    let slots = u16_at(page, CAPACITY);
    if slots > MAX_SLOTS || array_start(slots) > tail_start(page) {
        found(Defect::Slots(slots));
        return false;
    }
    let allowed = shape(page).between(lower_fence(page), upper_fence(page));
    if u64::from(base(page)) < allowed.start || slots_end_number(page) > allowed.end {
        found(Defect::Base { base: base(page), capacity: slots });
    }
    let present = presence::count_in(PlainBytes::new(page), 0..capacity(page));
    if present != count(page) || !presence::is_zero_behind(page) {
        found(Defect::Presence { stored: count(page), counted: present });
    }
    true
}
