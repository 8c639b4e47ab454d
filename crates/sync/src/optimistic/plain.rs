//! Bytes that nobody changes, behind the same interface as racing ones: latched pages, private
//! copies, and whatever a file holds.

use super::load::Plain;
use super::view::View;

/// Bytes that no thread changes while the view lives, as the borrow guarantees.
#[derive(Clone, Copy, Debug)]
pub struct PlainBytes<'a>(pub &'a [u8]);

impl<'a> PlainBytes<'a> {
    /// A view of `bytes`.
    #[inline]
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        PlainBytes(bytes)
    }

    /// The bytes themselves.
    #[inline]
    #[must_use]
    pub const fn as_slice(self) -> &'a [u8] {
        self.0
    }
}

// SAFETY: a slice is valid for reads, and while it is borrowed nobody changes it.
unsafe impl View for PlainBytes<'_> {
    type Load = Plain;
    const MIN_LENGTH: usize = 0;

    #[inline(always)]
    fn base(self) -> *const u8 {
        self.0.as_ptr()
    }

    #[inline(always)]
    fn length(self) -> usize {
        self.0.len()
    }
}
