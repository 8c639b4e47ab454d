//! The page table: page id -> one word that tells where the page is.
//!
//! ```text
//! bits 0..2   state: 0 free, 1 evicted, 2 faulting, 3 resident
//! bits 2..64  evicted: the slot (offset, length, tag); faulting and resident: the frame
//! ```
//!
//! The table is made of parts of 512 words, the same cut as the page map on disk: a part is read from
//! the map when the first of its pages is asked for, so that opening a store reads none. A part that
//! is not loaded is a null pointer in the directory; the directory is a sparse reservation.
//!
//! Invariants: a part never moves and is never unloaded. Words change as follows, and in no other way:
//! - free -> resident: whoever was given the id, holding the frame's exclusive latch;
//! - evicted -> faulting: by compare-and-swap, holding the exclusive latch of the frame to be filled,
//!   so that one read a page is in flight;
//! - faulting -> resident or back to evicted: the thread that made it faulting;
//! - resident -> evicted or free: the holder of the frame's exclusive latch.
//!
//! `Send + Sync`. Parts live in frames that the pool gave up (see `retire.rs`), so that the table is
//! inside of the memory limit without an account of its own.

#[cfg(any(test, not(any(loom, shuttle))))]
use crate::buffer::arena::Arena;
use crate::error::Result;
use crate::page::FrameId;
use crate::types::{PART_WORDS, PageId, Slot};
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use hedgerow_sync::primitive::atomic::{AtomicPtr, AtomicU64};

// Below, so that the word of a resident page takes one instruction to make.
const STATE_BITS: u32 = 2;
const FREE: u64 = 0;
const EVICTED: u64 = 1;
const FAULTING: u64 = 2;
const RESIDENT: u64 = 3;

/// Parts that the directory has room for: all of the 32-bit id space (a model checker's atomics are
/// large, and its stores tiny; and Miri's memory is no reservation).
const MAX_PARTS: usize =
    if cfg!(any(loom, shuttle, miri)) { 64 } else { (u32::MAX as usize).div_ceil(PART_WORDS) };

/// One part: the words of 512 page ids.
pub type Part = [AtomicU64; PART_WORDS];

/// What a word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The id is not in use.
    Free,
    /// The page is on disk only.
    Evicted(Slot),
    /// The page is being read into the frame, which is latched exclusively meanwhile.
    Faulting(FrameId),
    /// The page is in the frame.
    Resident(FrameId),
}

impl Place {
    /// Packs the word.
    #[inline]
    pub const fn word(self) -> u64 {
        match self {
            Place::Free => FREE,
            Place::Evicted(slot) => slot.word() << STATE_BITS | EVICTED,
            Place::Faulting(frame) => (frame.0 as u64) << STATE_BITS | FAULTING,
            Place::Resident(frame) => (frame.0 as u64) << STATE_BITS | RESIDENT,
        }
    }

    /// Unpacks a word.
    #[inline]
    pub const fn from_word(word: u64) -> Place {
        let (state, rest) = (word & ((1 << STATE_BITS) - 1), word >> STATE_BITS);
        match state {
            FREE => Place::Free,
            EVICTED => Place::Evicted(Slot::from_word(rest)),
            FAULTING => Place::Faulting(FrameId(rest as u32)),
            _ => Place::Resident(FrameId(rest as u32)),
        }
    }
}

/// The directory of parts.
pub struct Table {
    directory: Directory,
}

impl Table {
    /// An empty table: no part is loaded.
    pub fn new() -> Result<Table> {
        Ok(Table { directory: Directory::new()? })
    }

    /// The word of `id`, or `None` if its part is not loaded or the id is beyond all parts.
    #[inline(always)]
    pub fn word(&self, id: PageId) -> Option<&AtomicU64> {
        let part = self.directory.entries().get(id.part())?.load(Acquire);
        if part.is_null() {
            return None;
        }
        // SAFETY: a non-null entry was published by `install` (release, read with acquire), points to
        // an initialised part that is never moved or freed before the table, and is only ever accessed
        // as atomics.
        let words = unsafe { &*part };
        Some(&words[id.word()])
    }

    /// Where the page is; `None` if its part is not loaded.
    pub fn place(&self, id: PageId) -> Option<Place> {
        Some(Place::from_word(self.word(id)?.load(Acquire)))
    }

    /// Moves the word of `id` from one place to another; false if it was elsewhere.
    pub fn exchange(&self, id: PageId, from: Place, to: Place) -> bool {
        self.word(id).is_some_and(|word| {
            word.compare_exchange(from.word(), to.word(), AcqRel, Acquire).is_ok()
        })
    }

    /// Stores the word of `id`; the caller is the one who may (see the head of this file).
    pub fn set(&self, id: PageId, to: Place) {
        let word = self.word(id).expect("the part of a page that is in use is loaded");
        word.store(to.word(), Release);
    }

    /// Whether the part is loaded.
    pub fn is_loaded(&self, part: usize) -> bool {
        self.directory.entries().get(part).is_some_and(|entry| !entry.load(Acquire).is_null())
    }

    /// Whether the directory has room for the part.
    pub fn has_room_for(&self, part: usize) -> bool {
        part < self.directory.entries().len()
    }

    /// Makes a part out of durable words (zero: free, else a slot), in `memory` if there is room in
    /// atomics' own layout, and publishes it. One caller at a time, and once for each part.
    ///
    /// # Safety
    /// `memory` is 4096 bytes, aligned to 8, that stay valid as long as the table and that nobody
    /// accesses from now on, except for optimistic readers whose latch version is out of date.
    pub unsafe fn install(&self, part: usize, memory: *mut u8, durable: &[u64; PART_WORDS]) {
        // SAFETY: passed on to the caller.
        let place = unsafe { place_part(memory) };
        for (word, durable) in place.iter().zip(durable) {
            let at = Slot::from_word(*durable);
            let state = if at.is_none() { Place::Free } else { Place::Evicted(at) };
            word.store(state.word(), Relaxed);
        }
        let entry = &self.directory.entries()[part];
        debug_assert!(entry.load(Relaxed).is_null(), "a part is installed once");
        entry.store(std::ptr::from_ref(place).cast_mut(), Release);
    }
}

#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(size_of::<Part>() == crate::types::PART_BYTES);

/// Takes 4096 bytes for a part.
///
/// # Safety
/// As for [`Table::install`].
#[cfg(not(any(loom, shuttle)))]
unsafe fn place_part<'a>(memory: *mut u8) -> &'a Part {
    // SAFETY: valid, aligned and exclusively ours by the caller's word; any bytes are valid atomics.
    unsafe { &*memory.cast::<Part>() }
}

/// A model's atomics are not eight bytes: its parts live on the heap, and the directory owns them. The memory is written
/// all the same, as the words of a part are, so that whoever still reads it as a page sees that it is none.
///
/// # Safety
/// As for [`Table::install`].
#[cfg(any(loom, shuttle))]
unsafe fn place_part<'a>(memory: *mut u8) -> &'a Part {
    // SAFETY: valid and ours by the caller's word; a model runs one thread at a time.
    unsafe { memory.write_bytes(0, crate::types::PART_BYTES) };
    Box::leak(Box::new(std::array::from_fn(|_| AtomicU64::new(0))))
}

#[cfg(any(loom, shuttle))]
impl Drop for Directory {
    fn drop(&mut self) {
        for entry in &self.entries {
            let part = entry.load(Acquire);
            if !part.is_null() {
                // SAFETY: made by `place_part` out of a box, published once, and used by nobody any
                // more: whoever looks up a word borrows the table, and with it the directory.
                drop(unsafe { Box::from_raw(part) });
            }
        }
    }
}

#[cfg(not(any(loom, shuttle)))]
struct Directory {
    arena: Arena,
}

#[cfg(not(any(loom, shuttle)))]
impl Directory {
    fn new() -> Result<Directory> {
        let arena = Arena::reserve_sparse(MAX_PARTS * size_of::<AtomicPtr<Part>>())?;
        Ok(Directory { arena })
    }

    #[inline(always)]
    fn entries(&self) -> &[AtomicPtr<Part>] {
        // SAFETY: the arena has exactly this many pointers' bytes, page-aligned, zeroed (null pointers
        // are zero), alive as long as `self`, and used in this way only.
        unsafe { std::slice::from_raw_parts(self.arena.base().cast(), MAX_PARTS) }
    }
}

#[cfg(any(loom, shuttle))]
struct Directory {
    entries: Box<[AtomicPtr<Part>]>,
}

#[cfg(any(loom, shuttle))]
impl Directory {
    fn new() -> Result<Directory> {
        let entries = (0..MAX_PARTS).map(|_| AtomicPtr::new(std::ptr::null_mut())).collect();
        Ok(Directory { entries })
    }

    fn entries(&self) -> &[AtomicPtr<Part>] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        let slot = Slot::new(3 << 20, 4096, u64::MAX).unwrap();
        for place in [
            Place::Free,
            Place::Evicted(slot),
            Place::Faulting(FrameId(0)),
            Place::Faulting(FrameId(u32::MAX)),
            Place::Resident(FrameId(17)),
        ] {
            assert_eq!(Place::from_word(place.word()), place);
        }
    }

    #[test]
    fn parts_appear_when_installed() {
        let table = Table::new().unwrap();
        let memory = Arena::reserve(4096).unwrap();
        let id = PageId(5 * PART_WORDS as u32 + 9);
        assert!(table.word(id).is_none());
        assert!(table.word(PageId(u32::MAX)).is_none());
        let slot = Slot::new(1 << 20, 4096, 1).unwrap();
        let mut durable = [0; PART_WORDS];
        durable[9] = slot.word();
        // SAFETY: the memory is the test's own and outlives the table's use here.
        unsafe { table.install(5, memory.base(), &durable) };
        assert_eq!(table.place(id), Some(Place::Evicted(slot)));
        assert_eq!(table.place(PageId(id.0 + 1)), Some(Place::Free));
        assert!(table.exchange(id, Place::Evicted(slot), Place::Faulting(FrameId(3))));
        assert!(!table.exchange(id, Place::Evicted(slot), Place::Faulting(FrameId(4))));
        table.set(id, Place::Resident(FrameId(3)));
        assert_eq!(table.place(id), Some(Place::Resident(FrameId(3))));
    }
}
