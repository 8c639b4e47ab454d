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
use super::kernel::{self, differences, first_difference};
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
    const { assert!(SLOT_BYTES >= 4 && usize::BITS == 64) };
    // No more than fields of 16 and 32 bits can say, and nothing overflows in 64. Compilers see that it is so.
    let (slots, mut high) = (slots.min(u32::MAX as usize), high.min(usize::from(u16::MAX)));
    if slots + SLOT_BYTES * high > view.length() {
        high = slots_inside(view.length(), slots, SLOT_BYTES);
    }
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
    let ours = key.as_ptr();
    let (mut shared, mut below, mut above) = (0, 0, 0);
    // Records that begin before this have a window, and a block behind it, inside the view.
    let mut end = view.length().saturating_sub(WINDOW_BYTES + 15);
    // SAFETY: the key has 17 bytes and more.
    let mut block = unsafe { Plain::load16(ours) };
    while low < high {
        let middle = (low + high) / 2;
        // SAFETY: `middle` is below `high`, which the slots inside the view bound.
        let (offset, len) = unsafe { slot::<V, SLOT_BYTES>(array, middle) };
        let mut equal = shared;
        if offset < end {
            let record = view.base().wrapping_add(offset);
            // SAFETY: 33 bytes from `shared + offset` on are inside the view, and 17 from `shared` on
            // inside the key, 33 where a second block is read; at most 16, or 32, are found equal.
            let (common, theirs, ours) = unsafe {
                let differ = differences(V::Load::load16_at(record, shared), block);
                let common = if differ != 0 {
                    shared + differ.trailing_zeros() as usize
                } else if shared + 16 <= last_window {
                    let at = shared + 16;
                    let theirs = V::Load::load16_at(record, at);
                    at + first_difference(theirs, Plain::load16_at(ours, at))
                } else {
                    shared + 16
                };
                (common, V::Load::load1_at(record, common), Plain::load1_at(ours, common))
            };
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
            end = view.length().saturating_sub(shared + WINDOW_BYTES + 15);
            // SAFETY: `shared` is at most 17 below the key's length.
            block = unsafe { Plain::load16_at(ours, shared) };
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
    let slot = unsafe {
        match SLOT_BYTES {
            8 => V::Load::load4_scaled::<8>(array, index),
            6 => V::Load::load4_scaled::<2>(array, 3 * index),
            _ => V::Load::load4_at(array, SLOT_BYTES * index),
        }
    } as usize;
    (slot & 0xffff, slot >> 16)
}

/// How many slots there are room for in `length` bytes.
#[cold]
#[inline(never)]
fn slots_inside(length: usize, slots: usize, slot_bytes: usize) -> usize {
    length.saturating_sub(slots) / slot_bytes
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
