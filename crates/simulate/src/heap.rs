//! The heap of the simulated figures: what is in it shares lines of the cache with nothing else, and is found at the same places however the
//! process began.
//!
//! The machine knows lines, and charges for those that travel. Which words share one is a question of where the heap puts them: with the
//! system's heap, a longer argument of the command moved a pool by 16 bytes, other counters of it came to share lines, and TPC-C had
//! another result. Here every block begins a line and has whole ones. Freed blocks are used again by their size alone, the last one first, so
//! that what a run meets again does not depend on what the heap had been used for before.
//!
//! # Invariants
//! - A block belongs to one class, that of its layout, from which its size follows. A free block of a class is in the list of it.
//! - Blocks are never given back to the system. Those above [`LARGEST`] are the system's own, at the same place of a page each time.
//!
//! `Send + Sync`, behind one lock, which is never held while a virtual thread gives way.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

/// Bytes of a line of the cache: the least size and alignment.
const LINE: usize = 64;
/// Bytes of a page: lines are numbered page by page.
const PAGE: usize = 4_096;
/// What is got from the system at once.
const CHUNK: usize = 4 << 20;
/// The largest block that is kept.
const LARGEST: usize = 1 << 20;
/// A larger block has pages of its own in any case. Asked for with its own alignment it is zero without being touched.
const MAPPED: usize = 32 << 20;
/// Blocks of 1, 2, 4 lines and so on.
const CLASSES: usize = (LARGEST / LINE).ilog2() as usize + 1;

/// The heap; see the head of the file.
pub struct Lines(Mutex<Free>);

struct Free {
    /// The first free block of each class, which holds the address of the next one.
    lists: [*mut u8; CLASSES],
    /// What has never been a block.
    next: *mut u8,
    left: usize,
}

// SAFETY: the blocks that it points to are memory of the process, and nobody's but its own.
unsafe impl Send for Free {}

impl Lines {
    /// A heap that has nothing yet.
    pub const fn new() -> Lines {
        Lines(Mutex::new(Free {
            lists: [ptr::null_mut(); CLASSES],
            next: ptr::null_mut(),
            left: 0,
        }))
    }
}

/// The class of a layout, and the bytes of its blocks; none if it is the system's.
fn class_of(layout: Layout) -> Option<(usize, usize)> {
    let bytes = layout.size().max(layout.align()).max(LINE).checked_next_power_of_two()?;
    (bytes <= LARGEST).then(|| ((bytes / LINE).ilog2() as usize, bytes))
}

/// The layout that the system is asked for, in place of one that has no class.
fn of_system(layout: Layout) -> Option<Layout> {
    if layout.size() > MAPPED { Some(layout) } else { layout.align_to(PAGE).ok() }
}

impl Free {
    fn take(&mut self, class: usize, bytes: usize) -> *mut u8 {
        if let Some(first) = NonNull::new(self.lists[class]) {
            // SAFETY: a free block of at least a line, which `put` has stored an address in.
            self.lists[class] = unsafe { first.cast::<*mut u8>().read() };
            return first.as_ptr();
        }
        // Blocks are aligned to their size.
        let skipped = self.next.addr().wrapping_neg() % bytes;
        if self.left < skipped + bytes {
            let Ok(layout) = Layout::from_size_align(CHUNK, LARGEST) else {
                return ptr::null_mut();
            };
            // SAFETY: the size is not zero.
            let chunk = unsafe { System.alloc(layout) };
            if chunk.is_null() {
                return chunk;
            }
            (self.next, self.left) = (chunk, CHUNK);
            return self.take(class, bytes);
        }
        // SAFETY: `left` bytes from `next` on are in one chunk.
        let block = unsafe { self.next.add(skipped) };
        // SAFETY: as above.
        self.next = unsafe { block.add(bytes) };
        self.left -= skipped + bytes;
        block
    }

    fn put(&mut self, class: usize, block: *mut u8) {
        // SAFETY: a block of the class, which is aligned and nobody's any more.
        unsafe { block.cast::<*mut u8>().write(self.lists[class]) };
        self.lists[class] = block;
    }
}

// SAFETY: a block is handed out once until it comes back, is at least as large and as aligned as its layout asks, and the
// class of a layout is always the same. Nothing here unwinds: a poisoned lock is taken all the same, and classes are below `CLASSES`.
unsafe impl GlobalAlloc for Lines {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(layout) {
            Some((class, bytes)) => {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).take(class, bytes)
            }
            None => of_system(layout).map_or(ptr::null_mut(), |layout| {
                // SAFETY: the size is not zero, as the caller promises.
                unsafe { System.alloc(layout) }
            }),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match (class_of(layout), of_system(layout)) {
            (None, Some(layout)) => {
                // SAFETY: the size is not zero, as the caller promises.
                unsafe { System.alloc_zeroed(layout) }
            }
            _ => {
                // SAFETY: as the caller promises.
                let block = unsafe { self.alloc(layout) };
                if !block.is_null() {
                    // SAFETY: the block has so many bytes.
                    unsafe { block.write_bytes(0, layout.size()) };
                }
                block
            }
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class_of(layout) {
            Some((class, _)) => {
                self.0.lock().unwrap_or_else(PoisonError::into_inner).put(class, block);
            }
            None => {
                if let Some(layout) = of_system(layout) {
                    // SAFETY: it came from the system with this layout.
                    unsafe { System.dealloc(block, layout) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_begin_lines_have_room_and_are_used_again_by_their_size() {
        let heap = Lines::new();
        let layouts = [(1, 1), (24, 8), (65, 16), (100, 4_096), (5_000, 8), (LARGEST, 64)];
        for (size, align) in layouts {
            let layout = Layout::from_size_align(size, align).unwrap();
            // SAFETY: sizes are not zero, and blocks are given back once, with their layout.
            unsafe {
                let [a, b] = [heap.alloc(layout), heap.alloc(layout)];
                assert!(!a.is_null() && !b.is_null());
                assert_eq!((a.addr() % LINE.max(align), b.addr() % LINE.max(align)), (0, 0));
                assert!(a.addr().abs_diff(b.addr()) >= size.next_multiple_of(LINE));
                a.write_bytes(7, size);
                b.write_bytes(7, size);
                heap.dealloc(a, layout);
                heap.dealloc(b, layout);
                assert_eq!((heap.alloc(layout), heap.alloc(layout)), (b, a));
            }
        }
        let large = Layout::from_size_align(LARGEST + 1, 8).unwrap();
        // SAFETY: as above.
        unsafe {
            let block = heap.alloc(large);
            assert_eq!(block.addr() % PAGE, 0);
            heap.dealloc(block, large);
        }
    }
}
