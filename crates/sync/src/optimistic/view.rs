//! The bounds checks: [`PageBytes`] for every view that has an address, a length and a way to load.
//!
//! Invariant: no load leaves the view. Inside, an access is a comparison, a branch and the load; an
//! access that reaches beyond the end goes to a cold path which reads byte by byte and fills up
//! with zeros.

use super::kernel;
use super::load::{Load, Plain};
use super::slots;
use super::{Copied, PageBytes};
use std::cmp::Ordering;

/// A run of bytes and the way to load them.
///
/// # Safety
/// For the life of the view, `length` bytes at `base` are readable by `Load`, and `length` is at least
/// `MIN_LENGTH`.
pub(super) unsafe trait View: Copy {
    type Load: Load;
    /// Every view of this kind is at least so long.
    const MIN_LENGTH: usize;
    fn base(self) -> *const u8;
    fn length(self) -> usize;
}

/// Whether all of an access of `SIZE` bytes is inside.
#[inline(always)]
pub(super) fn inside<const SIZE: usize>(view: impl View, offset: usize) -> bool {
    // The length's own comparison goes away where the caller has made one; and no offset overflows.
    let length = view.length();
    length >= SIZE && offset <= length - SIZE
}

/// Whether all of an access of `size` bytes is inside of the smallest view of its kind. A sum could overflow.
const fn always_inside<V: View>(offset: usize, size: usize) -> bool {
    V::MIN_LENGTH >= size && offset <= V::MIN_LENGTH - size
}

/// Where `len` bytes begin, if all of them are inside.
#[inline(always)]
fn run(view: impl View, offset: usize, len: usize) -> Option<*const u8> {
    let length = view.length();
    if offset <= length && len <= length - offset {
        Some(view.base().wrapping_add(offset))
    } else {
        None
    }
}

/// The bytes of a view from `offset` on, at most `len` of them: for what reaches beyond the end.
#[inline]
pub(super) fn cut(view: impl View, offset: usize, len: usize) -> (*const u8, usize) {
    let offset = offset.min(view.length());
    (view.base().wrapping_add(offset), len.min(view.length() - offset))
}

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
