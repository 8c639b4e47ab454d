//! Memory that the system commits as it is touched: of all frames of a pool, and of what there is for each of them.
//!
//! Rank 1. Invariants: the memory is zero at first, lives as long as the [`Arena`], and never moves. What the bytes mean,
//! and who may touch them when, is the owner's business: this file only hands out addresses. `Send + Sync`.
//!
//! Huge pages are asked for where the reservation is large enough for them to matter: a look-up in a
//! tree that fits in memory would else pay a TLB miss for each level.

use crate::error::{Error, ErrorKind, LOWER_LIMIT, Result};
use std::ptr::NonNull;

/// Size of a huge page on the processors that matter here, and the alignment of the reservation.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Reservations below this are too small for huge pages to pay.
const HUGE_FROM_BYTES: usize = 16 << 20;

/// The reservation.
pub struct Arena {
    base: NonNull<u8>,
    mapping: NonNull<u8>,
    mapping_bytes: usize,
}

// SAFETY: the arena is an address range that it owns until it is dropped; sharing addresses is sound,
// and every access to the bytes behind them is justified where it is made.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `len_bytes` of zeroed memory for page frames, with huge pages if it is large.
    ///
    /// Errors: `MemoryLimit` if the system refuses the reservation.
    pub fn reserve(len_bytes: usize) -> Result<Arena> {
        Self::map(len_bytes, len_bytes >= HUGE_FROM_BYTES)
    }

    /// The same for so many frames. Errors: as for [`Self::reserve`], also for more bytes than there are addresses.
    pub fn reserve_frames(frames: u32, page_bytes: usize) -> Result<Arena> {
        Self::reserve((frames as usize).saturating_mul(page_bytes))
    }

    /// Reserves `len_bytes` of zeroed memory of which little may ever be touched, or that goes back to the system in
    /// small parts: without huge pages, even where the system gives them unasked.
    ///
    /// Errors: as for [`Self::reserve`].
    pub fn reserve_sparse(len_bytes: usize) -> Result<Arena> {
        let arena = Self::map(len_bytes, false)?;
        system::refuse_huge_pages(arena.base, len_bytes);
        Ok(arena)
    }

    fn map(len_bytes: usize, huge: bool) -> Result<Arena> {
        assert!(len_bytes > 0, "an arena has at least one frame");
        let refused = |source: std::io::Error| {
            Error::new(
                ErrorKind::MemoryLimit,
                format!(
                    "the system refused to reserve {len_bytes} bytes of addresses: {source}; \
                     {LOWER_LIMIT}"
                ),
            )
        };
        let slack = if huge { HUGE_PAGE_BYTES } else { 0 };
        let mapping_bytes = len_bytes
            .checked_add(slack)
            .ok_or_else(|| refused(std::io::Error::other("there are not so many addresses")))?;
        let mapping = system::map(mapping_bytes).map_err(refused)?;
        let address = mapping.as_ptr() as usize;
        let skip = if huge { address.next_multiple_of(HUGE_PAGE_BYTES) - address } else { 0 };
        // SAFETY: `skip` is at most `slack`, so the result stays inside of the mapping.
        let base = unsafe { mapping.add(skip) };
        if huge {
            system::ask_for_huge_pages(base, len_bytes);
        }
        Ok(Arena { base, mapping, mapping_bytes })
    }

    /// First byte of the reservation.
    #[inline(always)]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The same, as a pointer that is not null.
    pub fn start(&self) -> NonNull<u8> {
        self.base
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        system::unmap(self.mapping, self.mapping_bytes);
    }
}

#[cfg(all(unix, not(miri)))]
mod system {
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
    use std::ptr::NonNull;

    pub fn map(len: usize) -> Result<NonNull<u8>, std::io::Error> {
        let flags = MapFlags::PRIVATE;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let flags = flags | MapFlags::NORESERVE;
        // SAFETY: a new anonymous private mapping at an address of the system's choice overlaps
        // nothing that exists.
        let address = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)?
        };
        NonNull::new(address.cast()).ok_or_else(|| std::io::Error::other("mapped at address zero"))
    }

    pub fn ask_for_huge_pages(base: NonNull<u8>, len: usize) {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: the range is inside of a mapping that this module made; the advice changes how
            // it is backed, never its content. A refusal costs speed alone, so it is not an error.
            let _advice_only = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        #[cfg(not(target_os = "linux"))]
        {
            // SAFETY: as above; other systems decide by themselves.
            let _advice_only = unsafe { madvise(base.as_ptr().cast(), len, Advice::Normal) };
        }
    }

    pub fn refuse_huge_pages(base: NonNull<u8>, len: usize) {
        #[cfg(target_os = "linux")]
        {
            // SAFETY: as above. A system without huge pages refuses, and does what is wanted.
            let _advice_only =
                unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxNoHugepage) };
        }
        #[cfg(not(target_os = "linux"))]
        let _system_decides = (base, len);
    }

    pub fn unmap(mapping: NonNull<u8>, len: usize) {
        // SAFETY: the range is exactly one mapping that `map` made, and its owner is being dropped.
        let unmapped = unsafe { munmap(mapping.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "a whole mapping of our own can be unmapped");
    }
}

#[cfg(all(windows, not(miri)))]
mod system {
    use std::ptr::NonNull;
    use windows_sys::Win32::System::Memory::{
        MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_READWRITE, VirtualAlloc, VirtualFree,
    };

    /// Windows promises memory to whoever commits it, so all of it counts against what the system can promise; none is
    /// taken before it is touched.
    pub fn map(len: usize) -> Result<NonNull<u8>, std::io::Error> {
        // SAFETY: new memory at an address of the system's choice overlaps nothing that exists.
        let address = unsafe {
            VirtualAlloc(std::ptr::null(), len, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE)
        };
        NonNull::new(address.cast()).ok_or_else(std::io::Error::last_os_error)
    }

    /// Those of Windows are taken at once, and by who has a privilege for it.
    pub fn ask_for_huge_pages(_base: NonNull<u8>, _len: usize) {}

    pub fn refuse_huge_pages(_base: NonNull<u8>, _len: usize) {}

    pub fn unmap(mapping: NonNull<u8>, _len: usize) {
        // SAFETY: `map` reserved it with one call, which releasing takes back whole, and its owner is being dropped.
        let released = unsafe { VirtualFree(mapping.as_ptr().cast(), 0, MEM_RELEASE) };
        debug_assert!(released != 0, "a whole reservation of our own can be released");
    }
}

// Miri knows no system calls of ours.
#[cfg(any(not(any(unix, windows)), miri))]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    fn layout(len: usize) -> Result<Layout, std::io::Error> {
        Layout::from_size_align(len, 4096).map_err(std::io::Error::other)
    }

    pub fn map(len: usize) -> Result<NonNull<u8>, std::io::Error> {
        // SAFETY: `Arena::reserve` asks for at least one byte.
        let address = unsafe { alloc_zeroed(layout(len)?) };
        NonNull::new(address).ok_or_else(|| std::io::Error::from(std::io::ErrorKind::OutOfMemory))
    }

    pub fn ask_for_huge_pages(_base: NonNull<u8>, _len: usize) {}

    pub fn refuse_huge_pages(_base: NonNull<u8>, _len: usize) {}

    pub fn unmap(mapping: NonNull<u8>, len: usize) {
        if let Ok(layout) = layout(len) {
            // SAFETY: allocated by `map` with this very layout.
            unsafe { dealloc(mapping.as_ptr(), layout) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zero_and_aligned() {
        for len in [4096, HUGE_FROM_BYTES] {
            let arena = Arena::reserve(len).unwrap();
            assert_eq!(arena.base() as usize % 4096, 0);
            if len >= HUGE_FROM_BYTES {
                assert_eq!(arena.base() as usize % HUGE_PAGE_BYTES, 0);
            }
            // SAFETY: nobody else touches the arena in this test.
            let bytes = unsafe { std::slice::from_raw_parts(arena.base(), len) };
            assert!(bytes.iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn an_impossible_reservation_is_a_typed_error() {
        let error = Arena::reserve(usize::MAX / 2).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::MemoryLimit);
    }
}
