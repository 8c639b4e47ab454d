//! How many cells can still be promised: who changes records asks for room before it enters its epoch, without a lock.
//!
//! A cell is *spare* if it is on a free list and nobody is promised it. Invariant: with the table locked, `spare` is at most the number of cells on
//! free lists, less those that are promised. So whoever frees cells counts them here behind that and before it unlocks the table, whoever takes
//! free cells away counts that first, and what was promised is there when the table is locked. That needs no order of memory beside the
//! table's mutex: who is promised a cell has read a count that was stored with the table locked, so he locks it later. `Send + Sync`.

use hedgerow_sync::primitive::atomic::{AtomicU32, Ordering::*};

/// See the head of the file.
#[repr(align(128))]
pub(super) struct Room {
    spare: AtomicU32,
    /// Cells of all blocks.
    all: AtomicU32,
    /// Cells that were in use after the last collection, without those of recent versions: these count as new.
    kept: AtomicU32,
    /// Cells of versions that have no place by their keys yet.
    recent: AtomicU32,
}

impl Room {
    /// None.
    pub(super) fn new() -> Room {
        let none = || AtomicU32::new(0);
        Room { spare: none(), all: none(), kept: none(), recent: none() }
    }

    /// Cells that are in use or promised. Beside others it is an estimate.
    pub(super) fn used(&self) -> u32 {
        // Relaxed, as all here: see the head.
        self.all.load(Relaxed).saturating_sub(self.spare.load(Relaxed))
    }

    /// Cells that were in use after the last collection, without those of recent versions.
    pub(super) fn kept(&self) -> u32 {
        self.kept.load(Relaxed)
    }

    /// Cells of versions that have no place by their keys yet, as they were when that was said last.
    pub(super) fn recent(&self) -> u32 {
        self.recent.load(Relaxed)
    }

    /// Says that. The table is locked.
    pub(super) fn set_recent(&self, cells: u32) {
        self.recent.store(cells, Relaxed);
    }

    /// Whether so many cells are spare.
    pub(super) fn has(&self, cells: u32) -> bool {
        self.spare.load(Relaxed) >= cells
    }

    /// Promises so many cells, if `least` stay spare.
    pub(super) fn promise(&self, cells: u32, least: u32) -> bool {
        let rest = |spare: u32| spare.checked_sub(cells).filter(|rest| *rest >= least);
        self.spare.fetch_update(Relaxed, Relaxed, rest).is_ok()
    }

    /// So many cells are not promised any more, and free. Whoever has just freed them has the table locked.
    pub(super) fn give(&self, cells: u32) {
        self.spare.fetch_add(cells, Relaxed);
    }

    /// There are so many free cells more. The table is locked.
    pub(super) fn grow(&self, cells: u32) {
        self.all.fetch_add(cells, Relaxed);
        self.give(cells);
    }

    /// Whether so many free cells may go, so that `least` stay spare; they do not count any more then. The table is locked.
    pub(super) fn shrink(&self, cells: u32, least: u32) -> bool {
        let may_go = self.promise(cells, least);
        if may_go {
            self.all.fetch_sub(cells, Relaxed);
        }
        may_go
    }

    /// So many cells are in use after a collection, without those of recent versions.
    pub(super) fn set_kept(&self, cells: u32) {
        self.kept.store(cells, Relaxed);
    }
}
