//! A pinned checkpoint: what a store keeps of it as long as snapshots read in it.
//!
//! A checkpoint knows no pool, since a pool keeps those that its snapshots have gone over to. How its pages are read is in
//! `pinned_pages.rs`. `Send + Sync`. Dropping one gives slots back, in pieces, which may take long if it was pinned for long: to be done
//! with nothing held.

use crate::space::SlotsPin;
use crate::space::map::MapView;
use crate::types::Lsn;
use hedgerow_sync::primitive::random;
use std::fmt;

/// A checkpoint that stays readable. See the head of the file. What is read of it is kept under two seeds of its own.
pub struct PinnedCheckpoint {
    pub(super) slots: SlotsPin,
    pub(super) map: MapView,
    cut: Lsn,
    pub(super) page_seed: u64,
    pub(super) part_seed: u64,
}

impl fmt::Debug for PinnedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedCheckpoint").field("cut", &self.cut).finish_non_exhaustive()
    }
}

impl PinnedCheckpoint {
    /// The checkpoint whose slots are pinned, with its map, and what else its superblock says.
    pub fn new(slots: SlotsPin, map: MapView, cut: Lsn) -> PinnedCheckpoint {
        let (page_seed, part_seed) = (random::seed(), random::seed());
        PinnedCheckpoint { slots, map, cut, page_seed, part_seed }
    }

    /// Its cut: it has the changes with LSNs up to this one, and no other.
    pub fn cut(&self) -> Lsn {
        self.cut
    }

    /// Bytes of the file that it keeps: see [`SlotsPin::held_bytes`].
    pub fn held_bytes(&self) -> u64 {
        self.slots.held_bytes()
    }
}
