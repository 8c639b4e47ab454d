//! Slabs: copies of pages on their way to a checkpoint, and the count of them.
//!
//! Who fills and writes slabs, and why, is in `hand_over.rs`. Memory for all of them is one reservation, of which each slab has a part that is
//! touched when the slab is used. Invariant: a slab is being filled, full, empty, being written, or was never used, and in one place
//! only. `Send + Sync`.

use crate::buffer::commit_watch::CommitWatch;
use crate::error::Result;
use crate::page::FrameId;
use crate::space::owed::Owed;
use crate::storage::arena::Arena;
use crate::types::{PageId, Slot};
use hedgerow_sync::primitive::figure::Figure;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Most pages of a slab.
const SLAB_PAGES: usize = 64;

/// A page that was handed over, and the frame where its own first image is noted.
pub(super) struct Handed {
    pub(super) id: PageId,
    pub(super) frame: FrameId,
}

/// Copies, one behind the other.
pub(super) struct Slab {
    pub(super) bytes: SlabBytes,
    pub(super) pages: Vec<Handed>,
}

/// The part of the copies' memory that belongs to one slab.
pub(super) struct SlabBytes {
    start: NonNull<u8>,
    len: usize,
    /// Whose part it is.
    _arena: Arc<Arena>,
}

// SAFETY: the part belongs to this value alone (`Unused::take` gives each part away once), and so do its bytes.
unsafe impl Send for SlabBytes {}
// SAFETY: as above; nothing is changed through `&SlabBytes`.
unsafe impl Sync for SlabBytes {}

impl Deref for SlabBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the part lies inside of the arena, which the value keeps alive and which is initialised with zeros.
        // Nobody else has it, and it is borrowed through `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for SlabBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

/// A slab whose copies are images now, one behind the other, and where they go.
pub(super) struct Ready {
    pub(super) slab: Slab,
    pub(super) images: Vec<Slot>,
}

/// All slabs but those that are being written.
pub(super) struct Slabs {
    filling: Option<Slab>,
    /// Those that have been used before. They are used again before others are begun.
    empty: Vec<Slab>,
    full: VecDeque<Slab>,
    unused: Unused,
}

/// The slabs that were never used, whose memory nobody has touched.
struct Unused {
    /// Memory of all slabs; none in a store without checkpoints.
    arena: Option<Arc<Arena>>,
    slab_bytes: usize,
    /// Number of the first one, and of all slabs.
    next: usize,
    slabs: usize,
}

impl Unused {
    fn take(&mut self) -> Option<Slab> {
        let arena = self.arena.as_ref().filter(|_| self.next < self.slabs)?.clone();
        // SAFETY: the arena has `slabs * slab_bytes` bytes, and `next` is below `slabs`.
        let start = unsafe { arena.start().add(self.next * self.slab_bytes) };
        self.next += 1;
        let bytes = SlabBytes { start, len: self.slab_bytes, _arena: arena };
        Some(Slab { bytes, pages: Vec::new() })
    }
}

/// See the head of the file.
pub(super) struct HandOver {
    pub(super) owed: Arc<Owed>,
    /// Copies that are not in a slot yet.
    pub(super) copies: Figure,
    pub(super) slab_pages: usize,
    pub(super) slabs: Mutex<Slabs>,
    pub(super) room: Condvar,
    /// Of the checkpoint under way.
    pub(super) watch: Mutex<CommitWatch>,
}

impl HandOver {
    /// Room for `pages` copies; none in a store that has no checkpoints.
    pub(super) fn new(owed: Arc<Owed>, pages: usize, page_bytes: usize) -> Result<HandOver> {
        // At least two slabs: one to fill while the other is written.
        let slab_pages = (pages / 2).clamp(1, SLAB_PAGES);
        let (slabs, slab_bytes) = (pages / slab_pages, slab_pages * page_bytes);
        let arena = match slabs {
            0 => None,
            _ => Some(Arc::new(Arena::reserve_sparse(slabs.saturating_mul(slab_bytes))?)),
        };
        let unused = Unused { arena, slab_bytes, next: 0, slabs };
        Ok(HandOver {
            owed,
            copies: Figure::new(0),
            slab_pages,
            slabs: Mutex::new(Slabs {
                filling: None,
                empty: Vec::new(),
                full: VecDeque::new(),
                unused,
            }),
            room: Condvar::new(),
            watch: Mutex::new(CommitWatch::new(0)),
        })
    }
}

impl Slabs {
    fn empty_one(&mut self) -> Option<Slab> {
        self.empty.pop().or_else(|| self.unused.take())
    }

    /// Room for one more copy.
    pub(super) fn place(&mut self, slab_pages: usize) -> Option<&mut Slab> {
        if self.filling.is_none() {
            self.filling = self.empty_one();
        }
        let is_full = |slab: &Slab| slab.pages.len() == slab_pages;
        if let Some(slab) = self.filling.take_if(|slab| is_full(slab)) {
            self.full.push_back(slab);
            self.filling = self.empty_one();
        }
        self.filling.as_mut()
    }

    /// The next slab to write; if `all`, one that is not full yet if there is no other.
    pub(super) fn next(&mut self, all: bool) -> Option<Slab> {
        let begun = || self.filling.take_if(|slab| all && !slab.pages.is_empty());
        self.full.pop_front().or_else(begun)
    }

    pub(super) fn give_back(&mut self, mut slab: Slab) {
        slab.pages.clear();
        self.empty.push(slab);
    }
}
