//! The bytes of a page that mean nothing: between what grows up in it and what grows down, and removed records.
//!
//! The caller has the page, or a copy of it, to itself. Nothing is shared.

use super::fields::heap_start;
use super::layout::{Comparison, slots_end};
use super::slotted;
use super::{dense, fingerprint};
use crate::page::header::{HEADER_BYTES, MIN_PAGE_BYTES, PageKind, kind};
use std::ops::Range;

/// The gap of a page; empty if it has none, or says nonsense. Total: it takes any bytes.
pub fn gap(page: &[u8]) -> Range<usize> {
    if page.len() < MIN_PAGE_BYTES {
        return 0..0;
    }
    let gap = match kind(page) {
        None => 0..0,
        Some(PageKind::Free) => HEADER_BYTES..page.len(),
        Some(PageKind::Inner | PageKind::ComparisonLeaf) => slots_end(page)..heap_start(page),
        Some(PageKind::FingerprintLeaf) => fingerprint::gap(page),
        Some(PageKind::SemiDenseLeaf) => dense::gap_of_semi(page),
        Some(PageKind::FullyDenseLeaf) => dense::gap_of_full(page),
    };
    if gap.start >= HEADER_BYTES && gap.start <= gap.end && gap.end <= page.len() {
        gap
    } else {
        0..0
    }
}

/// Moves the bytes of removed records to the gap, if they are at least so many. The page has passed
/// [`load_check`](super::load_check) since it came from outside.
pub fn pack(page: &mut [u8], least_bytes: usize) {
    if page.len() < MIN_PAGE_BYTES {
        return;
    }
    match kind(page) {
        None | Some(PageKind::Free | PageKind::FullyDenseLeaf) => {}
        Some(PageKind::Inner | PageKind::ComparisonLeaf) => {
            slotted::pack::<_, Comparison>(page, least_bytes);
        }
        Some(PageKind::FingerprintLeaf) => fingerprint::pack(page, least_bytes),
        Some(PageKind::SemiDenseLeaf) => dense::pack_semi(page, least_bytes),
    }
}
