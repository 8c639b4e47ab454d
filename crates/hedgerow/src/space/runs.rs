//! What a run of free units is worth: how many pages it has room for, and whether most images fit into it.
//!
//! Invariant: a zone's [`Runs`] are the sum over the runs of its bitmap. Plain data.

use super::bits::runs;
use super::geometry::Geometry;
use crate::types::PART_BYTES;

/// What runs of free units are good for; a sum over runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Runs {
    /// Slots of a page.
    pub(super) slots: u32,
    /// Units in runs that most images fit into.
    pub(super) usable: u32,
}

impl Runs {
    /// What a run of so many free units is good for.
    pub(super) fn of(geometry: Geometry, units: u32) -> Runs {
        let page = geometry.units_for(geometry.page_bytes()).max(1);
        let part = geometry.units_for(PART_BYTES as u32).max(1);
        // A part may be longer than a page, and its units have to be neighbours.
        let slots = if page >= part { units / page } else { units / part * (part / page) };
        Runs { slots, usable: if units >= page.div_ceil(2) { units } else { 0 } }
    }

    /// What the free runs of a bitmap are good for.
    pub(super) fn of_bits(geometry: Geometry, bits: &[u64]) -> Runs {
        let mut sum = Runs::default();
        for run in runs(bits, geometry.units_per_zone()) {
            sum.add(Runs::of(geometry, run));
        }
        sum
    }

    pub(super) fn add(&mut self, other: Runs) {
        self.slots += other.slots;
        self.usable += other.usable;
    }

    pub(super) fn remove(&mut self, other: Runs) {
        self.slots -= other.slots;
        self.usable -= other.usable;
    }
}
