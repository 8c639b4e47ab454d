//! A run of bytes in memory with a way to load them, and the bounds checks that all accesses go through.
//!
//! Invariant: what a check lets through lies inside the view. Views are `Copy`, and may be used from any thread.

use super::load::Load;

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
pub(super) const fn always_inside<V: View>(offset: usize, size: usize) -> bool {
    V::MIN_LENGTH >= size && offset <= V::MIN_LENGTH - size
}

/// Where `len` bytes begin, if all of them are inside.
#[inline(always)]
pub(super) fn run(view: impl View, offset: usize, len: usize) -> Option<*const u8> {
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
