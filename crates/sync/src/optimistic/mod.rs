//! Reading bytes that somebody may be changing: the only place in the engine that does.
//!
//! An optimistic reader holds nothing. It reads a page while a writer may be changing it, and finds
//! out afterwards ([`crate::latch::HybridLatch::validate`]) whether what it read was one state of
//! the page. Three things make this sound:
//!
//! - **The compiler may assume nothing about the loads.** A plain load that races with a store is
//!   undefined behaviour, and relaxed byte atomics do not vectorise. On x86-64 every racing load is
//!   inline assembly of 1 to 64 bytes, which the compiler cannot see through, split or repeat;
//!   elsewhere, and under model checkers and sanitizers, it is a relaxed atomic load of an aligned
//!   word. There the writer, too, must store atomically: see [`WRITERS_PUBLISH`].
//! - **Whatever was read is untrusted until validated.** Every offset and length is checked against
//!   the page here; what lies outside reads as zero. The functions are total: no value of any
//!   argument or byte makes them panic, loop or leave the page. Pages of a hostile file are read
//!   by the same code, so this check is the security boundary, too.
//! - **A load stays between its fences.** The assembly is declared to read memory, so no load moves
//!   across an acquire load, a fence or a store. Equal loads with nothing between may be one.
//!
//! [`RacingBytes`] reads so; [`PlainBytes`] reads bytes that nobody changes, by the same code over
//! plain loads. In-page searches are generic over [`PageBytes`] and work on both.
//!
//! Thread-safety: views are `Copy` and may be used from any thread.

mod checked;
mod copied;
mod kernel;
mod load;
mod plain;
mod racing;
mod slots;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod view;

pub use copied::{Copied, INLINE_BYTES};
pub use kernel::{leading_below, prefetch};
pub use plain::PlainBytes;
pub use racing::{MIN_BYTES, RacingBytes};

use std::cmp::Ordering;

/// Whether a writer must change a private copy of a page and publish it with
/// [`RacingBytes::publish`]. True where racing loads are Rust atomics: a plain store would
/// race with them. Where they are assembly, the writer changes the page in place.
pub const WRITERS_PUBLISH: bool = load::RACING_LOADS_ARE_ATOMICS;

/// The bytes of a page, to read. Offsets and lengths are in bytes.
///
/// All functions are total: bytes outside of the page read as zero, and nothing panics. What is read of racing bytes is
/// untrusted until it is validated: two reads of the same place may differ.
pub trait PageBytes: Copy {
    /// Number of bytes.
    fn len(self) -> usize;

    /// Whether there are no bytes at all.
    #[inline]
    fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The byte at `offset`.
    fn u8_at(self, offset: usize) -> u8;

    /// The little-endian number at `offset`, which need not be aligned.
    fn u16_at(self, offset: usize) -> u16;

    /// The little-endian number at `offset`, which need not be aligned.
    fn u32_at(self, offset: usize) -> u32;

    /// The little-endian number at `offset`, which need not be aligned.
    fn u64_at(self, offset: usize) -> u64;

    /// As [`Self::u8_at`], at an offset known at compile time. With small ones this is a load and nothing
    /// else: see [`MIN_BYTES`].
    #[inline(always)]
    fn field_u8<const OFFSET: usize>(self) -> u8 {
        self.u8_at(OFFSET)
    }

    /// As [`Self::field_u8`].
    #[inline(always)]
    fn field_u16<const OFFSET: usize>(self) -> u16 {
        self.u16_at(OFFSET)
    }

    /// As [`Self::field_u8`].
    #[inline(always)]
    fn field_u32<const OFFSET: usize>(self) -> u32 {
        self.u32_at(OFFSET)
    }

    /// 64 bytes from `offset` on, as 16 little-endian numbers.
    fn block64(self, offset: usize) -> [u32; 16];

    /// Compares `len` bytes from `offset` on with `key`, lexicographically, as slices compare. The
    /// length is cut off at the end of the bytes.
    fn compare(self, offset: usize, len: usize, key: &[u8]) -> Ordering;

    /// The first of the slots `low..high` whose key is not below `key` (`high` if there is none), and
    /// whether it is equal. Slots are `SLOT_BYTES` long, at least four, and begin at `slots`; the first
    /// two bytes of each are the offset of its record, the next two its key's length.
    ///
    /// The record is the key without its first `HEAD_BYTES` bytes, at most 16. All keys of these slots
    /// begin with those that `key` begins with, where zeros take the place of what a shorter key lacks.
    ///
    /// Slots that do not lie within the bytes are left out, and records cut off at their end. If the keys
    /// are not in order the result is some index, at most `high`, or `low` if that is larger.
    fn lower_bound<const SLOT_BYTES: usize, const HEAD_BYTES: usize>(
        self,
        slots: usize,
        low: usize,
        high: usize,
        key: &[u8],
    ) -> (usize, bool);

    /// Whether the `len` bytes from `offset` on are `key`. The length is cut off at the end of the
    /// bytes.
    fn equals(self, offset: usize, len: usize, key: &[u8]) -> bool;

    /// Copies `len` bytes from `offset` on; what lies outside of the page is left out.
    fn copy_out(self, offset: usize, len: usize, to: &mut Copied);

    /// Fills `to` with the bytes from `offset` on.
    fn copy(self, offset: usize, to: &mut [u8]);

    /// Appends `len` bytes from `offset` on to `to`. The length is cut off at the end of the bytes,
    /// so a length that was torn costs at most a page of memory.
    fn append_to(self, offset: usize, len: usize, to: &mut Vec<u8>);

    /// Asks the processor for the cache line at `offset`; a hint.
    fn prefetch(self, offset: usize);
}
