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
/// Offset and length of a key are the first four bytes of its slot; its first `HEAD_BYTES` bytes are
/// those of `key`, both filled up with zeros, and no part of the record.
#[inline(always)]
pub(super) fn lower_bound<V: View, const SLOT_BYTES: usize, const HEAD_BYTES: usize>(
    view: V,
    slots: usize,
    mut low: usize,
    high: usize,
    key: &[u8],
) -> (usize, bool) {
    const { assert!(SLOT_BYTES >= 4 && HEAD_BYTES <= 16 && usize::BITS == 64) };
    // No more than fields of 16 and 32 bits can say, and nothing overflows in 64. Compilers see that it is so.
    let (slots, mut high) = (slots.min(u32::MAX as usize), high.min(usize::from(u16::MAX)));
    // Of slots that are longer than the fields allow not even the first is inside, and the product could overflow.
    let is_too_long = const { SLOT_BYTES > u32::MAX as usize };
    if is_too_long || slots + SLOT_BYTES * high > view.length() {
        high = slots_inside(view.length(), slots, SLOT_BYTES);
    }
    let array = view.base().wrapping_add(slots);
    if key.len() < HEAD_BYTES + WINDOW_BYTES {
        // SAFETY: all slots below `high` are inside the view.
        return unsafe { among_short::<V, SLOT_BYTES, HEAD_BYTES>(view, array, low, high, key) };
    }
    let last_window = key.len() - WINDOW_BYTES;
    let ours = key.as_ptr();
    let (mut shared, mut below, mut above) = (HEAD_BYTES, HEAD_BYTES, HEAD_BYTES);
    // Records that begin before this have a window, and a block behind it, inside the view.
    let mut end = (view.length() + HEAD_BYTES).saturating_sub(shared + WINDOW_BYTES + 15);
    // SAFETY: the key has 17 bytes and more behind the head.
    let mut block = unsafe { Plain::load16_at(ours, shared) };
    while low < high {
        let middle = (low + high) / 2;
        // SAFETY: `middle` is below `high`, which the slots inside the view bound.
        let (offset, len) = unsafe { slot::<V, SLOT_BYTES>(array, middle) };
        let mut equal = shared;
        if offset < end {
            // Where the key would begin if its head stood before the record: bytes of both have the same
            // index. Perhaps before the view; those before the record are not looked at.
            let record = view.base().wrapping_add(offset).wrapping_sub(HEAD_BYTES);
            // SAFETY: `shared` is at least the head, so that 33 bytes from `shared + record` on are inside
            // the view, and 17 from `shared` on inside the key, 33 where a second block is read; at most
            // 16, or 32, are found equal.
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
        let (order, common) = compare_behind::<V, HEAD_BYTES>(view, offset, len, key, equal);
        match order {
            Ordering::Less => (low, below) = (middle + 1, common),
            Ordering::Greater => (high, above) = (middle, common),
            Ordering::Equal => return (middle, true),
        }
        let both = below.min(above).min(last_window);
        if both > shared {
            shared = both;
            end = (view.length() + HEAD_BYTES).saturating_sub(shared + WINDOW_BYTES + 15);
            // SAFETY: `shared` is at most 17 below the key's length.
            block = unsafe { Plain::load16_at(ours, shared) };
        }
    }
    (low, false)
}

/// [`lower_bound`] for a key of which a block holds all that is behind the head.
///
/// # Safety
/// The slots at `array`, up to `high`, are inside the view.
#[inline(always)]
unsafe fn among_short<V: View, const SLOT_BYTES: usize, const HEAD_BYTES: usize>(
    view: V,
    array: *const u8,
    mut low: usize,
    mut high: usize,
    key: &[u8],
) -> (usize, bool) {
    let rest = key.get(HEAD_BYTES..).unwrap_or(&[]);
    let block = kernel::first_block(rest);
    // Records that begin before this have a block inside the view.
    let end = view.length().saturating_sub(15);
    while low < high {
        let middle = (low + high) / 2;
        // SAFETY: `middle` is below `high`, which the slots inside the view bound.
        let (offset, len) = unsafe { slot::<V, SLOT_BYTES>(array, middle) };
        // If neither differs from the other where both have bytes, or there was nothing to compare because
        // a head was filled up with zeros, the shorter key is the smaller one.
        let mut order = len.cmp(&key.len());
        if rest.is_empty() {
            // Whatever the record holds, its key is the longer one.
        } else if offset < end {
            let record = view.base().wrapping_add(offset);
            // SAFETY: 16 bytes at `record` are inside the view; the byte that is compared is one of them,
            // and one of the key's rest.
            unsafe {
                let common = first_difference(V::Load::load16(record), block);
                if common < rest.len() && common + HEAD_BYTES < len {
                    let theirs = V::Load::load1_at(record, common);
                    order = theirs.cmp(&Plain::load1_at(rest.as_ptr(), common));
                }
            }
        } else {
            order = view.compare(offset, len.saturating_sub(HEAD_BYTES), rest).then(order);
        }
        match order {
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
            Ordering::Equal => return (middle, true),
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

/// How many slots there is room for in `length` bytes.
#[cold]
#[inline(never)]
fn slots_inside(length: usize, slots: usize, slot_bytes: usize) -> usize {
    length.saturating_sub(slots) / slot_bytes
}

/// How a key of `len` bytes compares with `key`, and how many bytes they share. The first `equal` bytes
/// are taken to be the same, the head at least. The record is cut off at the end of the view.
#[inline(always)]
fn compare_behind<V: View, const HEAD_BYTES: usize>(
    view: V,
    offset: usize,
    len: usize,
    key: &[u8],
    equal: usize,
) -> (Ordering, usize) {
    let (record, rest_len) = cut(view, offset, len.saturating_sub(HEAD_BYTES));
    let ours = key.get(HEAD_BYTES..).unwrap_or(&[]);
    let both = rest_len.min(ours.len());
    // SAFETY: `cut` leaves `rest_len` bytes inside the view; the key is borrowed; `both` bounds the two.
    unsafe {
        let equal = equal.wrapping_sub(HEAD_BYTES);
        let common = kernel::mismatch::<V::Load, Plain>(record, ours.as_ptr(), equal, both);
        if common < both {
            let theirs = V::Load::load1_at(record, common);
            let order = theirs.cmp(&Plain::load1_at(ours.as_ptr(), common));
            return (order, HEAD_BYTES + common);
        }
    }
    (rest_len.cmp(&ours.len()).then(len.cmp(&key.len())), HEAD_BYTES + both)
}
