//! Buffers that direct I/O accepts.
//!
//! Rank 1. Invariant: the bytes start at a multiple of [`ALIGNMENT_BYTES`], which no logical block
//! size in use exceeds, and are initialised. `Send + Sync`, as a `Box<[u8]>` is.

use crate::error::{Error, ErrorKind, LOWER_LIMIT, Result};
use crate::storage::arena::Arena;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// What each [`AlignedBuffer`] is aligned to.
pub const ALIGNMENT_BYTES: usize = 4096;

/// From so many bytes on a buffer is asked for without alignment, longer by one, and begins where it is aligned: what allocators
/// have from the system is zero, and stays untouched, but an aligned block is zeroed byte by byte.
const LARGE_BYTES: usize = 128 << 10;

/// The first place of an [`AlignedBuffer`] from `at` on that is as far behind a multiple of [`ALIGNMENT_BYTES`] as an offset in a file.
///
/// Bytes that a buffer has at such a place lie in blocks of the memory as they lie in blocks of the file. A disk of a virtual machine may be given the
/// pieces of a direct write page by page of the memory. If a piece goes to two blocks of the host's file, the host has to complete a
/// block that is new to it, and then the write takes up to five times as long.
pub fn congruent_from(at: usize, offset_bytes: u64) -> usize {
    let ahead = (offset_bytes as usize).wrapping_sub(at) % ALIGNMENT_BYTES;
    at + ahead
}

/// Bytes that start at a multiple of [`ALIGNMENT_BYTES`].
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
    /// How far into its block it starts.
    skipped: usize,
    /// Where it lies if it is no block of the allocator.
    arena: Option<Arena>,
}

// SAFETY: the buffer owns its bytes alone and hands them out by the rules of `&` and `&mut`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: as above; nothing is changed through `&AlignedBuffer`.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A buffer of `len_bytes` zeros. Large ones cost no memory until they are touched, unless the allocator has used
    /// the memory before: see [`Self::untouched`].
    ///
    /// Errors: `MemoryLimit` if there is no such memory to be had.
    pub fn zeroed(len_bytes: usize) -> Result<AlignedBuffer> {
        if len_bytes == 0 {
            return Ok(AlignedBuffer {
                start: NonNull::dangling(),
                len: 0,
                skipped: 0,
                arena: None,
            });
        }
        let refused = || {
            let words = format!("cannot allocate {len_bytes} bytes; {LOWER_LIMIT}");
            Error::new(ErrorKind::MemoryLimit, words)
        };
        let layout = Self::layout(len_bytes).ok_or_else(refused)?;
        // SAFETY: `alloc_zeroed` asks for a layout of non-zero size; the length is not zero.
        let block = NonNull::new(unsafe { alloc_zeroed(layout) });
        let block = block.ok_or_else(refused)?;
        let skipped = block.align_offset(ALIGNMENT_BYTES);
        debug_assert!(skipped < ALIGNMENT_BYTES && skipped + len_bytes <= layout.size());
        // SAFETY: `add` asks for a place in the same block: one that is not aligned is longer by an alignment, and fewer bytes are
        // skipped.
        let start = unsafe { block.add(skipped) };
        Ok(AlignedBuffer { start, len: len_bytes, skipped, arena: None })
    }

    /// A buffer of `len_bytes` zeros that costs no memory until it is touched, and goes back to the system when it is
    /// dropped. Takes two system calls: for buffers that live long, and of which little may be used.
    ///
    /// Errors: as for [`Self::zeroed`].
    pub fn untouched(len_bytes: usize) -> Result<AlignedBuffer> {
        if len_bytes < LARGE_BYTES {
            return AlignedBuffer::zeroed(len_bytes);
        }
        let arena = Arena::reserve_sparse(len_bytes)?;
        let start = arena.start();
        debug_assert_eq!(
            start.align_offset(ALIGNMENT_BYTES),
            0,
            "pages of the system are no smaller"
        );
        Ok(AlignedBuffer { start, len: len_bytes, skipped: 0, arena: Some(arena) })
    }

    /// The first byte, for those who hand out parts of the buffer to several threads by rules of their own.
    /// Valid as long as the buffer lives, for reads and writes.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Of the block in which a buffer of this length lies.
    fn layout(len: usize) -> Option<Layout> {
        match len < LARGE_BYTES {
            true => Layout::from_size_align(len, ALIGNMENT_BYTES).ok(),
            false => Layout::from_size_align(len.checked_add(ALIGNMENT_BYTES)?, 1).ok(),
        }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // What lies in an arena goes with it.
        if self.len == 0 || self.arena.is_some() {
            return;
        }
        if let Some(layout) = Self::layout(self.len) {
            // SAFETY: `dealloc` asks for a block of this allocator and the layout that it was
            // allocated with: `zeroed` did so with the same length, which never changes, and `sub` goes
            // back to where that block begins.
            unsafe { dealloc(self.start.sub(self.skipped).as_ptr(), layout) }
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `from_raw_parts` asks for `len` initialised bytes that nobody changes meanwhile:
        // the allocation or the arena has that length, was zeroed, and is borrowed through `self`. An empty
        // buffer's pointer is dangling, which is allowed for length zero.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_of_the_asked_length() {
        for len in [0, 1, 512, 4095, 4096, 4097, LARGE_BYTES - 1, LARGE_BYTES, 1 << 20] {
            for make in [AlignedBuffer::zeroed, AlignedBuffer::untouched] {
                let mut buffer = make(len).unwrap();
                assert_eq!(buffer.len(), len);
                assert!(buffer.iter().all(|&b| b == 0));
                if len > 0 {
                    assert_eq!(buffer.as_ptr() as usize % ALIGNMENT_BYTES, 0);
                    buffer[len - 1] = 7;
                    assert_eq!(buffer[len - 1], 7);
                }
            }
        }
    }

    #[test]
    fn places_are_as_far_behind_a_block_as_offsets() {
        let block = ALIGNMENT_BYTES as u64;
        for (at, offset, found) in [(0, 7 * block + 512, 512), (512, 512, 512), (1024, 512, 4608)] {
            assert_eq!(congruent_from(at, offset), found);
        }
        assert_eq!(congruent_from(5000, block), 8192);
    }

    /// They were written from end to end.
    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    #[expect(clippy::disallowed_methods, reason = "only the system knows what the process has")]
    fn large_buffers_cost_no_memory_until_they_are_touched() {
        let resident_pages = || -> usize {
            let said = std::fs::read_to_string("/proc/self/statm").unwrap();
            said.split(' ').nth(1).unwrap().parse().unwrap()
        };
        let before = resident_pages();
        // Other tests take memory, too, and far less.
        let mut buffer = AlignedBuffer::zeroed(1 << 30).unwrap();
        buffer[1 << 29] = 7;
        let pages = resident_pages().saturating_sub(before);
        assert!(pages < (1 << 28) / 4096, "{pages} pages");
    }

    #[test]
    fn memory_that_cannot_be_had_is_an_error() {
        for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize - 8191] {
            assert_eq!(AlignedBuffer::zeroed(len).unwrap_err().kind(), ErrorKind::MemoryLimit);
            assert_eq!(AlignedBuffer::untouched(len).unwrap_err().kind(), ErrorKind::MemoryLimit);
        }
    }
}
