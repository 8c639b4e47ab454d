//! Checked reads: [`PageBytes`] for every view that has an address, a length and a way to load.
//!
//! Invariant: no load leaves the view. Inside, an access is a comparison, a branch and the load; an
//! access that reaches beyond the end goes to a cold path which reads byte by byte and fills up
//! with zeros. Views are `Copy`, and may be used from any thread.

use super::kernel;
use super::load::{Load, Plain};
use super::slots;
use super::view::{View, always_inside, cut, inside, run};
use super::{Copied, PageBytes};
use std::cmp::Ordering;

/// An access that reaches beyond the end: the bytes that are inside, and zeros.
#[cold]
#[inline(never)]
fn edge<V: View, const SIZE: usize>(view: V, offset: usize) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let (from, len) = cut(view, offset, SIZE);
    for (at, byte) in bytes.iter_mut().enumerate().take(len) {
        // SAFETY: `cut` leaves `len` bytes inside the view.
        *byte = unsafe { V::Load::load1_at(from, at) };
    }
    bytes
}

#[cold]
#[inline(never)]
fn compare_cut<V: View>(view: V, offset: usize, len: usize, key: &[u8]) -> Ordering {
    let (from, len) = cut(view, offset, len);
    // SAFETY: `cut` leaves `len` bytes inside the view; the key is borrowed.
    unsafe { kernel::compare::<V::Load, Plain>(from, len, key.as_ptr(), key.len()) }
}

#[cold]
#[inline(never)]
fn copy_cut<V: View>(view: V, offset: usize, to: &mut [u8]) {
    let (from, len) = cut(view, offset, to.len());
    // SAFETY: `cut` leaves `len` bytes inside the view and at most as many as `to` has, which is
    // uniquely borrowed: the view cannot overlap it.
    unsafe { kernel::copy::<V::Load>(from, to.as_mut_ptr(), len) };
    to[len..].fill(0);
}

#[cold]
#[inline(never)]
fn append_cut<V: View>(view: V, offset: usize, len: usize, to: &mut Vec<u8>) {
    let (from, len) = cut(view, offset, len);
    // SAFETY: `cut` leaves `len` bytes inside the view; the vector is uniquely borrowed, so the view
    // is no part of it.
    unsafe { kernel::append::<V::Load>(from, len, to) };
}

impl<V: View> PageBytes for V {
    #[inline(always)]
    fn len(self) -> usize {
        self.length()
    }

    #[inline(always)]
    fn u8_at(self, offset: usize) -> u8 {
        if inside::<1>(self, offset) {
            // SAFETY: the byte is inside the view.
            unsafe { V::Load::load1_at(self.base(), offset) }
        } else {
            0
        }
    }

    #[inline(always)]
    fn u16_at(self, offset: usize) -> u16 {
        if inside::<2>(self, offset) {
            // SAFETY: the bytes are inside the view.
            unsafe { V::Load::load2_at(self.base(), offset) }
        } else {
            u16::from_le_bytes(edge(self, offset))
        }
    }

    #[inline(always)]
    fn u32_at(self, offset: usize) -> u32 {
        if inside::<4>(self, offset) {
            // SAFETY: the bytes are inside the view.
            unsafe { V::Load::load4_at(self.base(), offset) }
        } else {
            u32::from_le_bytes(edge(self, offset))
        }
    }

    #[inline(always)]
    fn u64_at(self, offset: usize) -> u64 {
        if inside::<8>(self, offset) {
            // SAFETY: the bytes are inside the view.
            unsafe { V::Load::load8_at(self.base(), offset) }
        } else {
            u64::from_le_bytes(edge(self, offset))
        }
    }

    #[inline(always)]
    fn field_u8<const OFFSET: usize>(self) -> u8 {
        if const { always_inside::<V>(OFFSET, 1) } {
            // SAFETY: the byte is inside the view.
            unsafe { V::Load::load1_const::<OFFSET>(self.base()) }
        } else {
            self.u8_at(OFFSET)
        }
    }

    #[inline(always)]
    fn field_u16<const OFFSET: usize>(self) -> u16 {
        if const { always_inside::<V>(OFFSET, 2) } {
            // SAFETY: the bytes are inside the view.
            unsafe { V::Load::load2_const::<OFFSET>(self.base()) }
        } else {
            self.u16_at(OFFSET)
        }
    }

    #[inline(always)]
    fn field_u32<const OFFSET: usize>(self) -> u32 {
        if const { always_inside::<V>(OFFSET, 4) } {
            // SAFETY: the bytes are inside the view.
            unsafe { V::Load::load4_const::<OFFSET>(self.base()) }
        } else {
            self.u32_at(OFFSET)
        }
    }

    #[inline(always)]
    fn block64(self, offset: usize) -> [u32; 16] {
        if inside::<64>(self, offset) {
            // SAFETY: the bytes are inside the view.
            unsafe { kernel::block64::<V::Load>(self.base(), offset) }
        } else {
            let bytes = edge::<V, 64>(self, offset);
            // SAFETY: the array has 64 bytes, and is borrowed here.
            unsafe { kernel::block64::<Plain>(bytes.as_ptr(), 0) }
        }
    }

    #[inline]
    fn compare(self, offset: usize, len: usize, key: &[u8]) -> Ordering {
        match run(self, offset, len) {
            // SAFETY: the bytes are inside the view; the key is borrowed.
            Some(from) => unsafe {
                kernel::compare::<V::Load, Plain>(from, len, key.as_ptr(), key.len())
            },
            None => compare_cut(self, offset, len, key),
        }
    }

    #[inline(always)]
    fn lower_bound<const SLOT_BYTES: usize, const HEAD_BYTES: usize>(
        self,
        slots: usize,
        low: usize,
        high: usize,
        key: &[u8],
    ) -> (usize, bool) {
        slots::lower_bound::<V, SLOT_BYTES, HEAD_BYTES>(self, slots, low, high, key)
    }

    #[inline]
    fn equals(self, offset: usize, len: usize, key: &[u8]) -> bool {
        match run(self, offset, len) {
            Some(from) => {
                // SAFETY: the bytes are inside the view, and the key has as many.
                len == key.len()
                    && unsafe { kernel::equal::<V::Load, Plain>(from, key.as_ptr(), len) }
            }
            None => compare_cut(self, offset, len, key).is_eq(),
        }
    }

    #[inline(always)]
    fn copy_out(self, offset: usize, len: usize, to: &mut Copied) {
        to.take(self, offset, len);
    }

    #[inline]
    fn copy(self, offset: usize, to: &mut [u8]) {
        match run(self, offset, to.len()) {
            // SAFETY: the bytes are inside the view; the target has as many, and it is uniquely
            // borrowed, so the view cannot overlap it.
            Some(from) => unsafe { kernel::copy::<V::Load>(from, to.as_mut_ptr(), to.len()) },
            None => copy_cut(self, offset, to),
        }
    }

    #[inline]
    fn append_to(self, offset: usize, len: usize, to: &mut Vec<u8>) {
        match run(self, offset, len) {
            // SAFETY: the bytes are inside the view; the vector is uniquely borrowed, so the view is
            // no part of it.
            Some(from) => unsafe { kernel::append::<V::Load>(from, len, to) },
            None => append_cut(self, offset, len, to),
        }
    }

    #[inline(always)]
    fn prefetch(self, offset: usize) {
        kernel::prefetch(self.base().wrapping_add(offset));
    }
}
