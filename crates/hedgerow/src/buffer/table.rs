//! The page table: page id -> one word that tells where the page is.
//!
//! ```text
//! bits 0..2   state: 0 free, 1 evicted, 2 faulting, 3 resident
//! bits 2..64  evicted: the slot (offset, length, tag); faulting and resident: the frame
//! ```
//!
//! The table is made of parts of 512 words, the same cut as the page map on disk: a part is read from
//! the map when the first of its pages is asked for, so that opening a store reads none. A part that
//! is not loaded is a null pointer in the directory; the directory is a sparse reservation, or two of them in a store that
//! is very large for its pool.
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

use crate::buffer::zeroed::{Zeroed, ZeroedArray};
use crate::error::Result;
use crate::page::FrameId;
#[cfg(test)]
use crate::storage::arena::Arena;
use crate::types::{PART_WORDS, PageId, Slot};
use hedgerow_sync::primitive::OnceLock;
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

/// Parts that are read from the map at a time.
pub(super) const PART_READS: usize = 32;

/// One part: the words of 512 page ids.
pub type Part = [AtomicU64; PART_WORDS];

/// Memory for parts: the rest of the frames that were given up last (`retire.rs`).
pub struct PartSpace {
    pub(super) next: *mut u8,
    pub(super) left_bytes: usize,
    pub(super) parts: usize,
    /// The topmost frame, if somebody had it for longer than a moment when it was wanted last.
    pub(super) held: Option<FrameId>,
}

// SAFETY: the pointer leads into the pool's arena; it is used under the mutex that holds this value.
unsafe impl Send for PartSpace {}

impl Default for PartSpace {
    fn default() -> Self {
        PartSpace { next: std::ptr::null_mut(), left_bytes: 0, parts: 0, held: None }
    }
}

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

// SAFETY: zeros are a null pointer, as `fresh` builds; pointers need no drop.
unsafe impl Zeroed for AtomicPtr<Part> {
    #[cfg(any(test, loom, shuttle))]
    fn fresh() -> AtomicPtr<Part> {
        AtomicPtr::new(std::ptr::null_mut())
    }
}

/// Page ids for each frame in the first piece of the directory: it suffices for data of 64 times the limit.
const IDS_A_FRAME: usize = 64;
/// The least number of entries of the first piece.
const LEAST_NEAR: usize = if cfg!(any(loom, shuttle)) { MAX_PARTS } else { 8192 };

type Entry = AtomicPtr<Part>;

/// The directory of parts.
pub struct Table {
    /// The first piece: the parts that a pool of this size is made for.
    near: ZeroedArray<Entry>,
    /// All others. They are seldom needed, and take 64 MiB of addresses, of which a process may not have many.
    far: OnceLock<ZeroedArray<Entry>>,
}

impl Table {
    /// An empty table: no part is loaded. It is for a pool of so many frames.
    ///
    /// Errors: `MemoryLimit`.
    pub fn new(frames: u32) -> Result<Table> {
        let parts = (frames as usize).saturating_mul(IDS_A_FRAME) / PART_WORDS;
        let near = ZeroedArray::new(parts.clamp(LEAST_NEAR, MAX_PARTS))?;
        Ok(Table { near, far: OnceLock::new() })
    }

    /// The entry of a part; `None` if there is none yet, or never will be.
    #[inline(always)]
    fn entry(&self, part: usize) -> Option<&Entry> {
        match self.near.items().get(part) {
            Some(entry) => Some(entry),
            None => self.far_entry(part),
        }
    }

    #[cold]
    fn far_entry(&self, part: usize) -> Option<&Entry> {
        let far = self.far.get()?;
        far.items().get(part.checked_sub(self.near.items().len())?)
    }

    /// All entries that there are.
    #[cfg(any(loom, shuttle))]
    fn entries(&self) -> &[Entry] {
        debug_assert!(self.far.get().is_none(), "a model has few parts");
        self.near.items()
    }

    /// The word of `id`, or `None` if its part is not loaded or the id is beyond all parts.
    #[inline(always)]
    pub fn word(&self, id: PageId) -> Option<&AtomicU64> {
        let part = self.entry(id.part())?.load(Acquire);
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
        self.entry(part).is_some_and(|entry| !entry.load(Acquire).is_null())
    }

    /// Whether the directory has room for the part.
    pub fn has_room_for(&self, part: usize) -> bool {
        part < MAX_PARTS
    }

    /// Makes sure that the part has an entry, before [`Self::install`]. One caller at a time.
    ///
    /// Errors: `MemoryLimit`.
    pub fn make_entry(&self, part: usize) -> Result<()> {
        if self.entry(part).is_none() && self.has_room_for(part) {
            let far = ZeroedArray::new(MAX_PARTS - self.near.items().len())?;
            let first = self.far.set(far).is_ok();
            debug_assert!(first, "one caller at a time");
        }
        Ok(())
    }

    /// Makes a part out of durable words (zero: free, else a slot), in `memory` if there is room in
    /// atomics' own layout, and publishes it. One caller at a time, once for each part, and after
    /// [`Self::make_entry`].
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
        let entry = self.entry(part).expect("a part has an entry before it is made");
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
impl Drop for Table {
    fn drop(&mut self) {
        for entry in self.entries() {
            let part = entry.load(Acquire);
            if !part.is_null() {
                // SAFETY: made by `place_part` out of a box, published once, and used by nobody any
                // more: whoever looks up a word borrows the table.
                drop(unsafe { Box::from_raw(part) });
            }
        }
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
        for part in [5, LEAST_NEAR - 1] {
            check_part(&Table::new(64).unwrap(), part);
        }
        if !cfg!(any(loom, shuttle)) {
            let table = Table::new(64).unwrap();
            for part in [LEAST_NEAR, MAX_PARTS - 1, 7] {
                check_part(&table, part);
            }
            assert!(!table.has_room_for(MAX_PARTS));
            table.make_entry(MAX_PARTS).unwrap();
            // All are in the first piece.
            check_part(&Table::new(u32::MAX).unwrap(), MAX_PARTS - 1);
        }
    }

    fn check_part(table: &Table, part: usize) {
        let memory = Arena::reserve(4096).unwrap();
        let id = PageId((part * PART_WORDS) as u32 + 9);
        assert!(!table.is_loaded(part));
        assert!(table.word(id).is_none());
        let slot = Slot::new(1 << 20, 4096, 1).unwrap();
        let mut durable = [0; PART_WORDS];
        durable[9] = slot.word();
        table.make_entry(part).unwrap();
        // SAFETY: the memory is the test's own and outlives the table's use here.
        unsafe { table.install(part, memory.base(), &durable) };
        assert!(table.is_loaded(part));
        assert_eq!(table.place(id), Some(Place::Evicted(slot)));
        assert_eq!(table.place(PageId(id.0 + 1)), Some(Place::Free));
        assert!(table.exchange(id, Place::Evicted(slot), Place::Faulting(FrameId(3))));
        assert!(!table.exchange(id, Place::Evicted(slot), Place::Faulting(FrameId(4))));
        table.set(id, Place::Resident(FrameId(3)));
        assert_eq!(table.place(id), Some(Place::Resident(FrameId(3))));
    }
}
