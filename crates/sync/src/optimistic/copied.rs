//! Bytes copied out of a page: inline if they are few, so that a look-up need not allocate.
//!
//! A copy is written in the pieces in which it is read when it is moved: 16 bytes each, tag and length
//! in one of their own, so that a word of the value lies in one piece if it is aligned in the value. A
//! processor hands a store on to a later load only if that one store covers all of it. A move of bytes
//! that were written in other pieces waits until the stores are through, and with it everything
//! behind, and so does a read of a word in two pieces; each cost a look-up of 100 bytes a fifth of its
//! time.
//!
//! Invariant: in the inline form the first `len` bytes are initialised; those behind are not looked at.
//! Plain data, `Send + Sync`; it refers to no page.

use super::kernel;
use super::load::{Load, Plain};
use super::view::{View, cut, inside};
use std::fmt;
use std::mem::MaybeUninit;

/// The most bytes that are held without an allocation. With tag and length they are two cache lines, which compilers move without
/// calling a function.
pub const INLINE_BYTES: usize = 112;

/// A copy of bytes, without an allocation up to [`INLINE_BYTES`].
pub struct Copied(Form);

// The layout of such an enum is defined: the tag first, then the fields of the variant in their order.
#[repr(u8)]
enum Form {
    Inline { len: u8, bytes: Pieces } = INLINE,
    Heap(Box<[u8]>) = 1,
}

/// The bytes of the inline form, which begin at the second piece.
#[repr(C, align(16))]
struct Pieces([MaybeUninit<u8>; INLINE_BYTES]);

const INLINE: u8 = 0;
const PIECE: usize = 16;

const _: () = assert!(size_of::<Copied>() == 128 && size_of::<Option<Copied>>() == 128);
const _: () = assert!(INLINE_BYTES == size_of::<Copied>() - PIECE);

impl Copied {
    /// An empty copy. Allocates nothing.
    #[inline(always)]
    #[must_use]
    pub const fn new() -> Copied {
        Copied(Form::Inline { len: 0, bytes: Pieces([MaybeUninit::uninit(); INLINE_BYTES]) })
    }

    /// The bytes.
    #[inline(always)]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Form::Inline { len, bytes } => {
                let bytes = &bytes.0[..usize::from(*len).min(INLINE_BYTES)];
                // SAFETY: the first `len` bytes are initialised (invariant of the form), and a
                // `MaybeUninit<u8>` is laid out as a byte.
                unsafe { &*(std::ptr::from_ref(bytes) as *const [u8]) }
            }
            Form::Heap(bytes) => bytes,
        }
    }

    /// The bytes as a vector. Allocates if they were held without an allocation.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Form::Heap(bytes) => bytes.into_vec(),
            Form::Inline { .. } => self.as_bytes().to_vec(),
        }
    }

    /// Takes `len` bytes from `offset` on out of a view; what lies outside of it is left out.
    #[inline(always)]
    pub(super) fn take<V: View>(&mut self, view: V, offset: usize, len: usize) {
        if len > INLINE_BYTES
            || !inside::<INLINE_BYTES>(view, offset)
            || matches!(self.0, Form::Heap(_))
        {
            return self.take_carefully(view, offset, len);
        }
        let from = view.base().wrapping_add(offset);
        // SAFETY: all inline bytes at `from` are inside the view, and the copy is inline and has nothing
        // to drop.
        unsafe { self.take_inline::<V::Load>(from, len) };
    }

    /// # Safety
    /// At `from`, [`INLINE_BYTES`] bytes are readable by `L`; `len` is at most [`INLINE_BYTES`]. The copy holds
    /// no box.
    #[inline(always)]
    unsafe fn take_inline<L: Load>(&mut self, from: *const u8, len: usize) {
        let to = std::ptr::from_mut(self).cast::<u8>();
        // SAFETY: tag and length are the first two bytes of the first piece, and the bytes begin at the
        // second. As `len` is at most [`INLINE_BYTES`], which are readable and whole pieces, the last
        // piece ends where they end, in `from` and in the copy.
        unsafe {
            kernel::store16(to, kernel::two_bytes([INLINE, len as u8]));
            let mut at = 0;
            while at < len {
                kernel::store16(to.add(PIECE + at), L::load16_at(from, at));
                at += PIECE;
            }
        }
    }

    /// What is long, or near the end of the view, or takes the place of something long.
    #[inline(never)]
    fn take_carefully<V: View>(&mut self, view: V, offset: usize, len: usize) {
        let (from, len) = cut(view, offset, len);
        if len > INLINE_BYTES {
            let mut bytes = Vec::new();
            // SAFETY: `cut` leaves `len` bytes inside the view, which the new vector is no part of.
            unsafe { kernel::append::<V::Load>(from, len, &mut bytes) };
            self.0 = Form::Heap(bytes.into());
            return;
        }
        let mut padded = [0; INLINE_BYTES];
        *self = Copied::new();
        // SAFETY: `cut` leaves `len` bytes inside the view, which the array is no part of, and the array
        // has more; it is padded, and a new copy holds no box.
        unsafe {
            kernel::copy::<V::Load>(from, padded.as_mut_ptr(), len);
            self.take_inline::<Plain>(padded.as_ptr(), len);
        }
    }
}

impl Default for Copied {
    #[inline(always)]
    fn default() -> Copied {
        Copied::new()
    }
}

impl From<&[u8]> for Copied {
    fn from(bytes: &[u8]) -> Copied {
        if bytes.len() > INLINE_BYTES {
            return Copied(Form::Heap(bytes.into()));
        }
        let mut padded = [0; INLINE_BYTES];
        padded[..bytes.len()].copy_from_slice(bytes);
        let mut copied = Copied::new();
        // SAFETY: the padded bytes are as many as any inline length needs; a new copy holds no box.
        unsafe { copied.take_inline::<Plain>(padded.as_ptr(), bytes.len()) };
        copied
    }
}

impl From<Vec<u8>> for Copied {
    /// Long ones are taken as they are.
    fn from(bytes: Vec<u8>) -> Copied {
        match bytes.len() > INLINE_BYTES {
            true => Copied(Form::Heap(bytes.into())),
            false => Copied::from(bytes.as_slice()),
        }
    }
}

impl Clone for Copied {
    fn clone(&self) -> Copied {
        Copied::from(self.as_bytes())
    }
}

impl fmt::Debug for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_bytes(), f)
    }
}
