//! Memory for pages that each have an address of their own for life, and come and go there.
//!
//! This is not how the buffer pool keeps its pages (an [`Arena`] is: frames that are never given back).
//! It is for the other translation, page id = address ("Virtual-Memory Assisted Buffer Management",
//! SIGMOD 2023), which the benchmarks compare with ours. The reservation is as large as all pages
//! there can be; what [`PageMemory::discard`] has given back to the system reads as zeros, and is
//! committed anew when it is written.
//!
//! Invariants: the bytes are reached through [`PageMemory::page`] alone; page `i` begins at `i * stride`,
//! where the stride is the page size, or the system's page if that is larger: a page shares its memory
//! with no other. There are no huge pages, which could not be given back in parts. `Send + Sync`: who may
//! touch which bytes when is said by the views.

use crate::error::{Error, ErrorKind, Result};
use crate::storage::arena::Arena;
use hedgerow_sync::optimistic::{self, RacingBytes};

/// The reservation; see the head of this file.
pub struct PageMemory {
    arena: Arena,
    page_bytes: usize,
    stride_bytes: usize,
    pages: usize,
}

impl PageMemory {
    /// Reserves address space for `pages` pages of `page_bytes` each, a power of two from 512 on.
    ///
    /// Errors: `InvalidOption` if there is more of it than there are addresses, or if this build's
    /// writers do not change pages in place (then there is no page to give back at the moment when it
    /// must be); `MemoryLimit` if the system refuses.
    pub fn reserve(page_bytes: usize, pages: usize) -> Result<PageMemory> {
        assert!(page_bytes.is_power_of_two() && page_bytes >= crate::page::header::MIN_PAGE_BYTES);
        if optimistic::WRITERS_PUBLISH {
            let message = "pages at addresses of their own need a build for x86-64";
            return Err(Error::new(ErrorKind::InvalidOption, message));
        }
        let stride_bytes = PageMemory::stride_bytes(page_bytes);
        let len_bytes = stride_bytes.checked_mul(pages.max(1)).ok_or_else(|| {
            Error::new(ErrorKind::InvalidOption, "the pages exceed the address space")
        })?;
        let arena = Arena::reserve_sparse(len_bytes)?;
        Ok(PageMemory { arena, page_bytes, stride_bytes, pages })
    }

    /// Bytes of memory that a page takes while it is there.
    pub fn stride_bytes(page_bytes: usize) -> usize {
        page_bytes.max(rustix::param::page_size())
    }

    /// The bytes of page number `index`.
    ///
    /// # Panics
    /// If there is no such page.
    #[inline(always)]
    pub fn page(&self, index: usize) -> RacingBytes<'_> {
        assert!(index < self.pages);
        // SAFETY: `RacingBytes::new` asks for a base that is a multiple of 8 and a length that is one of
        // 64: strides are multiples of the system's page from a mapping's start on, pages at least 512.
        // The bytes are initialised and valid as long as the view: they lie inside of the reservation
        // (checked above), which reads as zeros where nothing was written, and the view borrows it.
        // They are accessed through such views only: the arena is private to this file.
        unsafe {
            let base = self.arena.base().add(index * self.stride_bytes);
            RacingBytes::new(base, self.page_bytes)
        }
    }

    /// Gives the memory of these pages back to the system: all their bytes become zero. Neighbours go
    /// with one call. Tells how many calls it took.
    ///
    /// The slices prove that the caller is the one who may write: they come from pages that are
    /// latched exclusively. To an optimistic reader this is a change like any other.
    ///
    /// Errors: `Io` if the system refuses; then some may be zero and others not.
    ///
    /// # Panics
    /// If a slice is not all of a page of this memory.
    pub fn discard(&self, pages: &mut [&mut [u8]]) -> Result<usize> {
        let base = self.arena.base() as usize;
        pages.sort_unstable_by_key(|page| page.as_ptr() as usize);
        let mut calls = 0;
        let mut run: Option<(usize, usize)> = None;
        for page in pages.iter() {
            let at = (page.as_ptr() as usize).wrapping_sub(base);
            let is_page = at.is_multiple_of(self.stride_bytes) && page.len() == self.page_bytes;
            assert!(is_page && at / self.stride_bytes < self.pages, "no page of this memory");
            run = match run {
                Some((from, to)) if to == at => Some((from, at + self.stride_bytes)),
                before => {
                    calls += self.discard_run(before)?;
                    Some((at, at + self.stride_bytes))
                }
            };
        }
        Ok(calls + self.discard_run(run)?)
    }

    fn discard_run(&self, run: Option<(usize, usize)>) -> Result<usize> {
        let Some((from, to)) = run else { return Ok(0) };
        let advice = rustix::mm::Advice::LinuxDontNeed;
        // SAFETY: the advice takes away the contents of a range; it must be one that nobody else relies
        // on. It is a run of whole strides inside of our own mapping, made of pages that `discard` has
        // borrowed exclusively, and of the rests of their strides, which no view reaches.
        let advised = unsafe {
            let start = self.arena.base().add(from);
            rustix::mm::madvise(start.cast(), to - from, advice)
        };
        let refused = |source: rustix::io::Errno| {
            Error::io("the system refused to take pages back", source.into())
        };
        advised.map(|()| 1).map_err(refused)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use hedgerow_sync::optimistic::PageBytes;

    /// Lends the pages `indices` as to their only writer.
    fn write<R>(
        memory: &PageMemory,
        indices: &[usize],
        f: impl FnOnce(&mut [&mut [u8]]) -> R,
    ) -> R {
        // SAFETY: the tests here use one thread, and these slices end before there are others.
        let pages = indices.iter().map(|&i| unsafe { memory.page(i).as_mut_slice() });
        f(&mut pages.collect::<Vec<_>>())
    }

    #[test]
    fn discarded_pages_are_zero_and_others_stay() {
        if optimistic::WRITERS_PUBLISH {
            assert!(PageMemory::reserve(4096, 16).is_err());
            return;
        }
        for page_bytes in [512, 4096, 16384] {
            let memory = PageMemory::reserve(page_bytes, 16).unwrap();
            write(&memory, &[1, 2, 3, 7, 8], |pages| {
                pages.iter_mut().for_each(|page| page.fill(0xa5));
            });
            // Three runs: 1, 3 and 7 to 8; in any order.
            let calls = write(&memory, &[8, 1, 7, 3], |pages| memory.discard(pages)).unwrap();
            assert_eq!(calls, 3, "{page_bytes}");
            for (index, expected) in [(1, 0), (2, 0xa5), (3, 0), (7, 0), (8, 0), (9, 0)] {
                let page = memory.page(index);
                assert_eq!(page.u8_at(0), expected, "{page_bytes}: {index}");
                assert_eq!(page.u8_at(page_bytes - 1), expected, "{page_bytes}: {index}");
            }
            write(&memory, &[1], |pages| pages[0].fill(1));
            assert_eq!(memory.page(1).u8_at(5), 1);
        }
    }

    #[test]
    #[should_panic = "no page of this memory"]
    fn foreign_memory_is_not_discarded() {
        if optimistic::WRITERS_PUBLISH {
            panic!("no page of this memory, for there is none");
        }
        let memory = PageMemory::reserve(4096, 4).unwrap();
        let mut foreign = vec![0; 4096];
        assert!(memory.discard(&mut [&mut foreign[..]]).is_err());
    }
}
