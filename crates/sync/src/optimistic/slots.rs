//! Binary search among the slots of a page: what most of a look-up's time goes to.
//!
//! The search remembers how many bytes the key shares with the nearest smaller and the nearest
//! greater record. All records between the two share the lesser of both with the key, so those bytes
//! need no look; 16 bytes behind them settle nearly every comparison. Keys that differ late, as URLs
//! do, cost a long comparison two or three times a page and not in each step.
//!
//! Total over arbitrary bytes, as everything here: each step halves what is left, and no load leaves
//! the view. Where the records are not in order, or are changing, the result is some index.

use super::PageBytes;
use super::kernel::{self, first_difference};
use super::load::{Load, Plain};
use super::view::{View, cut};
use std::cmp::Ordering;

/// Bytes of the key that a step may look at: a block, and one byte behind it.
const WINDOW_BYTES: usize = 17;

/// The first of the slots from `low` to `high` whose key is not below `key`, and whether it is equal.
/// Offset and length of a key are the first four bytes of its slot.
#[inline(always)]
pub(super) fn lower_bound<V: View, const SLOT_BYTES: usize>(
    view: V,
    slots: usize,
    mut low: usize,
    high: usize,
    key: &[u8],
) -> (usize, bool) {
    const { assert!(SLOT_BYTES >= 4) };
    let mut high = high.min(view.length().saturating_sub(slots) / SLOT_BYTES);
    let array = view.base().wrapping_add(slots);
    if key.len() < WINDOW_BYTES {
        while low < high {
            let middle = (low + high) / 2;
            // SAFETY: `middle` is below `high`, which the slots inside the view bound.
            let (offset, len) = unsafe { slot::<V, SLOT_BYTES>(array, middle) };
            match view.compare(offset, len, key) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return (middle, true),
            }
        }
        return (low, false);
    }
    let last_window = key.len() - WINDOW_BYTES;
    let (mut shared, mut below, mut above) = (0, 0, 0);
    let mut from = view.base();
    let mut window = key.as_ptr();
    // Records that begin before this have a window, and a block behind it, inside the view.
    let mut end = view.length().saturating_sub(WINDOW_BYTES + 15);
    // SAFETY: the key has 17 bytes and more.
    let mut block = unsafe { Plain::load16(window) };
    while low < high {
        let middle = (low + high) / 2;
        // SAFETY: `middle` is below `high`, which the slots inside the view bound.
        let (offset, len) = unsafe { slot::<V, SLOT_BYTES>(array, middle) };
        let mut equal = shared;
        if offset < end {
            let record = from.wrapping_add(offset);
            // SAFETY: 33 bytes from `shared + offset` on are inside the view, and 17 of the window
            // inside the key, 33 where a second block is read; `at` is at most 16, or 32.
            let (at, theirs, ours) = unsafe {
                let mut at = first_difference(V::Load::load16(record), block);
                if at == 16 && shared + 16 <= last_window {
                    let theirs = V::Load::load16_at(record, 16);
                    at = 16 + first_difference(theirs, Plain::load16_at(window, 16));
                }
                (at, V::Load::load1_at(record, at), Plain::load1_at(window, at))
            };
            let common = shared + at;
            equal = common;
            if common < len {
                if theirs < ours {
                    (low, below) = (middle + 1, common);
                    continue;
                }
                if theirs > ours {
                    (high, above) = (middle, common);
                    continue;
                }
            }
        }
        let (order, common) = compare_behind(view, offset, len, key, equal);
        match order {
            Ordering::Less => (low, below) = (middle + 1, common),
            Ordering::Greater => (high, above) = (middle, common),
            Ordering::Equal => return (middle, true),
        }
        let both = below.min(above).min(last_window);
        if both > shared {
            shared = both;
            from = view.base().wrapping_add(shared);
            window = key.as_ptr().wrapping_add(shared);
            end = view.length().saturating_sub(shared + WINDOW_BYTES + 15);
            // SAFETY: `shared` is at most 17 below the key's length.
            block = unsafe { Plain::load16(window) };
        }
    }
    (low, false)
}

/// Offset and length of the key of a slot.
///
/// # Safety
/// The slot is inside the view that `array` points into.
#[inline(always)]
unsafe fn slot<V: View, const SLOT_BYTES: usize>(array: *const u8, index: usize) -> (usize, usize) {
    // SAFETY: a slot has at least four bytes, and they are inside the view.
    let slot = unsafe { V::Load::load4_at(array, SLOT_BYTES * index) } as usize;
    (slot & 0xffff, slot >> 16)
}

/// How the record compares with `key`, and how many bytes they share. The first `equal` bytes are
/// taken to be the same. The record is cut off at the end of the view.
#[inline(always)]
fn compare_behind<V: View>(
    view: V,
    offset: usize,
    len: usize,
    key: &[u8],
    equal: usize,
) -> (Ordering, usize) {
    let (record, len) = cut(view, offset, len);
    let both = len.min(key.len());
    // SAFETY: `cut` leaves `len` bytes inside the view; the key is borrowed; `both` bounds the two.
    unsafe {
        let common = kernel::mismatch::<V::Load, Plain>(record, key.as_ptr(), equal, both);
        if common < both {
            let theirs = V::Load::load1_at(record, common);
            return (theirs.cmp(&Plain::load1_at(key.as_ptr(), common)), common);
        }
    }
    (len.cmp(&key.len()), both)
}
