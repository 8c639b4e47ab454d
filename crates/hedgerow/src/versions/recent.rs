//! Versions that were kept a short while ago, in the order in which they were: nobody finds them by their keys yet.
//!
//! Most versions are kept for snapshots that end soon and never ask for them. So who keeps one copies it into cells and adds it to this queue, and that is
//! all that happens with a leaf latched. What nobody needs goes from the front, unseen. Whoever looks for a version has all that are in
//! the queue by then indexed first, and so has a writer if the queue gets long: both a few at a time, with the table locked.
//!
//! A version in the queue may be one that nobody can need, because its key has one of a change with the same LSN, or above the horizon. That
//! is found out when it is indexed. The horizon may have been raised since, so one more version may be linked, and never one fewer.
//!
//! Invariants: versions of a key come in the order of their LSNs, and before them are only those that are indexed; a removal in the queue has the
//! cells promised that its key takes among the removed ones. A plain value, a part of the table (`table.rs`).

use crate::versions::begin::{BEHIND_AT, Begin};
use crate::versions::cells::{CellId, Cells, cells_for};
use crate::versions::memory::Block;

/// The version is of a removal. Beside the count of cells that it is promised.
pub(super) const REMOVES: u32 = 1 << 31;

/// See the head of the file.
pub(super) struct Recent {
    pub(super) first: CellId,
    last: CellId,
    /// How many were added, and taken, since the table was made.
    added: u64,
    taken: u64,
    /// What they take, promises included.
    cells: u32,
}

/// The oldest one, taken from the queue.
pub(super) struct Taken {
    pub version: CellId,
    pub begin: Begin,
    /// Cells that it was promised.
    pub owed: u32,
    pub removes: bool,
}

impl Recent {
    pub(super) fn new() -> Recent {
        let none = CellId::NONE;
        Recent { first: none, last: none, added: 0, taken: 0, cells: 0 }
    }

    /// How many were added since the table was made.
    pub(super) fn added(&self) -> u64 {
        self.added
    }

    /// How many of those that were added first are not in the queue any more.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }

    /// What they take, promises included.
    pub(super) fn cells(&self) -> u32 {
        self.cells
    }

    pub(super) fn add<B: Block>(&mut self, cells: &mut Cells<B>, version: CellId, takes: u32) {
        match self.last.is_none() {
            true => self.first = version,
            false => cells.set_u32(self.last, BEHIND_AT, version.0),
        }
        self.last = version;
        self.added += 1;
        self.cells += takes;
    }

    /// Takes the oldest one.
    pub(super) fn take<B: Block>(&mut self, cells: &Cells<B>) -> Option<Taken> {
        let version = self.first;
        if version.is_none() {
            return None;
        }
        let begin = Begin::of(cells, version);
        self.first = begin.behind();
        if self.first.is_none() {
            self.last = CellId::NONE;
        }
        self.taken += 1;
        let promise = begin.hash();
        let owed = promise & !REMOVES;
        self.cells -= cells_for(begin.len_bytes()) + owed;
        Some(Taken { version, owed, removes: promise & REMOVES != 0, begin })
    }
}
