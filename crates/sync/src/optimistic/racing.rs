//! Bytes that somebody may be changing.

use super::load::Racing;
use super::view::View;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the smallest view: fields below this are read without a look at the length.
pub const MIN_BYTES: usize = 128;

/// The bytes of a page that a writer may be changing: a pointer and a length, `Copy`.
///
/// The rules, which [`RacingBytes::new`] binds its caller to: there is at most one writer at a time
/// (it holds the latch exclusively); readers that race with it read through
/// [`PageBytes`](super::PageBytes) and
/// validate; readers that keep the writer out may use [`RacingBytes::as_slice`].
#[derive(Clone, Copy, Debug)]
pub struct RacingBytes<'a> {
    base: *mut u8,
    len: usize,
    _bytes: PhantomData<&'a [AtomicU64]>,
}

// SAFETY: a view is an address and a length; the loads through it are made to race, and the unsafe
// methods name what else must hold, whichever thread calls them.
unsafe impl Send for RacingBytes<'_> {}
// SAFETY: as above; a shared view can do no more than a copy of it.
unsafe impl Sync for RacingBytes<'_> {}

impl<'a> RacingBytes<'a> {
    /// A view of `len` bytes at `base`.
    ///
    /// # Safety
    /// - `base` is a multiple of 8 and `len` a multiple of 64, at least [`MIN_BYTES`].
    /// - For `'a`, the bytes are initialised and valid for reads and writes.
    /// - For `'a`, they are accessed only through views like this one, and by their rules.
    #[inline(always)]
    pub unsafe fn new(base: *mut u8, len: usize) -> Self {
        debug_assert!(base.addr().is_multiple_of(8) && len.is_multiple_of(64) && len >= MIN_BYTES);
        RacingBytes { base, len, _bytes: PhantomData }
    }

    /// The bytes as a slice, for who keeps writers out.
    ///
    /// # Safety
    /// While the slice lives nobody writes: the caller holds the page's latch, shared or
    /// exclusively.
    #[inline(always)]
    #[must_use]
    pub unsafe fn as_slice(self) -> &'a [u8] {
        // SAFETY: valid for `'a` (contract of `new`); not written while the slice lives (caller).
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }

    /// The bytes as a slice, for the writer.
    ///
    /// # Safety
    /// - While the slice lives the caller is the only one that holds the page's latch, exclusively,
    ///   and there is no other slice of these bytes.
    /// - If [`super::WRITERS_PUBLISH`], no optimistic reader can reach the bytes either; else they
    ///   may, because their loads are invisible to the compiler and their results are discarded.
    #[inline(always)]
    #[must_use]
    pub unsafe fn as_mut_slice(self) -> &'a mut [u8] {
        // SAFETY: valid for `'a` (contract of `new`); the only slice (caller).
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }

    /// Stores `from` into the bytes, from the start, by relaxed atomic words: what a writer does
    /// with its private copy where [`super::WRITERS_PUBLISH`].
    ///
    /// What is longer than the page is left out; a last part of a word is filled up with zeros.
    ///
    /// # Safety
    /// During the call the caller is the only one that holds the page's latch, exclusively, and nobody
    /// has a slice of these bytes ([`Self::as_slice`], [`Self::as_mut_slice`]).
    ///
    /// ```compile_fail,E0133
    /// # use hedgerow_sync::optimistic::RacingBytes;
    /// fn without_the_latch(page: RacingBytes<'_>) {
    ///     page.publish(&[1; 64]); // needs `unsafe`
    /// }
    /// ```
    pub unsafe fn publish(self, from: &[u8]) {
        let words = self.base.cast::<u64>();
        #[cfg(hedgerow_sim)]
        let mut charged = usize::MAX;
        for (index, chunk) in from.chunks(8).take(self.len / 8).enumerate() {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            // SAFETY: the word lies inside the view (`index < len / 8`), is aligned (`base` is a
            // multiple of 8), and racing accesses to it are atomic ones of the same size, or
            // assembly: there is no slice of it (caller).
            let word = unsafe { AtomicU64::from_ptr(words.add(index)) };
            // In a run, a line that the private copy has left as it was has never been written.
            #[cfg(hedgerow_sim)]
            {
                let line = words.wrapping_add(index).addr() / 64;
                if word.load(Ordering::Relaxed) == u64::from_ne_bytes(bytes) {
                    continue;
                }
                if line != charged {
                    hedgerow_sim::touch_store(line * 64);
                    charged = line;
                }
            }
            word.store(u64::from_ne_bytes(bytes), Ordering::Relaxed);
        }
    }
}

// SAFETY: the contract of `new`: valid for `'a`, and accessed by the rules that `Racing` asks for.
unsafe impl View for RacingBytes<'_> {
    type Load = Racing;
    const MIN_LENGTH: usize = MIN_BYTES;

    #[inline(always)]
    fn base(self) -> *const u8 {
        self.base
    }

    #[inline(always)]
    fn length(self) -> usize {
        self.len
    }
}
