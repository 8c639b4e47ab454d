//! What changed in the page map, by epoch, until a checkpoint takes it.
//!
//! Each image that reaches a slot appends (page id, slot) to the delta of the *image's* epoch, each
//! freed id a tombstone; each extent that a record comes to refer to, or no more, stands there, too. The map of
//! checkpoint E is the map of the one before plus every delta up to
//! E. The memory for this is a budget: when it is half used a checkpoint is due
//! ([`Deltas::is_due`]), when it is full ([`Deltas::is_full`]) writers wait for one with nothing
//! held. A record itself never fails, because the image that it is for is written by then; so the
//! budget is what the pool checks *before* it writes a batch. Not shared: under its owner's lock.

use crate::large::Extent;
use crate::types::{Epoch, PageId, Slot};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// What one entry is charged with: 12 bytes, in tree nodes that are half full at worst, and the
/// inner nodes over them.
pub const ENTRY_BYTES: usize = 32;

/// Entries that an extent is charged with: 56 bytes in tree nodes, as above, and an allocation for its runs of 16 bytes.
fn entries_of(extent: &Extent) -> usize {
    4 + (extent.runs.len() + 1).div_ceil(2)
}

/// See the file's header.
#[derive(Debug)]
pub struct Deltas {
    by_epoch: BTreeMap<Epoch, BTreeMap<PageId, Slot>>,
    extents: BTreeMap<Epoch, Charged>,
    budget_bytes: usize,
    entries: usize,
    /// Entries that a checkpoint has taken and not brought back.
    taken: usize,
}

/// What a checkpoint took: the newest slot of each page that changed, by ascending id;
/// [`Slot::NONE`] is a tombstone. Give it back by [`Deltas::done`] or [`Deltas::put_back`].
#[derive(Debug)]
pub struct TakenDelta {
    /// The checkpoint.
    pub epoch: Epoch,
    /// Page id and slot.
    pub changes: BTreeMap<PageId, Slot>,
    /// Extents, and how many records more, or fewer, refer to each.
    pub extents: ExtentChanges,
    entries: usize,
}

/// Extents by first unit and seed, and how many records more, or fewer, refer to each: one, or none. Records of
/// different leaves count up and down in any order, and what comes and goes between two checkpoints is nothing.
pub type ExtentChanges = BTreeMap<(u64, u64), (Extent, i32)>;

/// Changes, and the entries that they are charged with.
#[derive(Debug, Default)]
struct Charged {
    changes: ExtentChanges,
    entries: usize,
}

impl Charged {
    fn count(&mut self, extent: Extent, by: i32) {
        let name = (extent.runs.first().map_or(0, |run| run.unit), extent.seed);
        let entries = entries_of(&extent);
        match self.changes.entry(name) {
            Entry::Vacant(place) => {
                place.insert((extent, by));
                self.entries += entries;
            }
            Entry::Occupied(there) if there.get().1 + by == 0 => {
                // Its runs are those that it was charged for: the name is theirs.
                self.entries -= entries_of(&there.remove().0);
            }
            Entry::Occupied(mut there) => there.get_mut().1 += by,
        }
    }

    /// Counts what others counted.
    fn add(&mut self, changes: ExtentChanges) {
        changes.into_values().for_each(|(extent, by)| self.count(extent, by));
    }
}

impl Deltas {
    /// No changes, and a budget of so many bytes.
    pub fn new(budget_bytes: usize) -> Deltas {
        let (by_epoch, extents) = (BTreeMap::new(), BTreeMap::new());
        Deltas { by_epoch, extents, budget_bytes, entries: 0, taken: 0 }
    }

    /// Notes that the image of `id` of epoch `epoch` is in `slot`. Returns the slot of an earlier
    /// image of the same epoch: no checkpoint can ever refer to that one.
    pub fn record(&mut self, epoch: Epoch, id: PageId, slot: Slot) -> Option<Slot> {
        let before = self.by_epoch.entry(epoch).or_default().insert(id, slot);
        self.entries += usize::from(before.is_none());
        before.filter(|slot| !slot.is_none())
    }

    /// Notes that `id` was freed in `epoch`. Returns as [`Self::record`] does.
    pub fn record_freed(&mut self, epoch: Epoch, id: PageId) -> Option<Slot> {
        self.record(epoch, id, Slot::NONE)
    }

    /// Notes that a record of `epoch` refers to the extent (1), or that one does so no more (-1).
    pub fn record_extent(&mut self, epoch: Epoch, extent: Extent, by: i32) {
        let changes = self.extents.entry(epoch).or_default();
        let before = changes.entries;
        changes.count(extent, by);
        self.entries = self.entries + changes.entries - before;
    }

    /// Whether a checkpoint is due: half the budget is used.
    pub fn is_due(&self) -> bool {
        self.memory_bytes() > self.budget_bytes / 2
    }

    /// Whether writers must wait for a checkpoint.
    pub fn is_full(&self) -> bool {
        self.memory_bytes() > self.budget_bytes
    }

    /// Whether no change waits for a checkpoint up to `epoch`.
    pub fn is_empty_to(&self, epoch: Epoch) -> bool {
        self.by_epoch.range(..=epoch).all(|(_, delta)| delta.is_empty())
            && self.extents.range(..=epoch).all(|(_, charged)| charged.changes.is_empty())
    }

    /// Takes every change of epochs up to `epoch`, the newest of each page.
    pub fn take(&mut self, epoch: Epoch) -> TakenDelta {
        let later = self.by_epoch.split_off(&epoch.next());
        let old = std::mem::replace(&mut self.by_epoch, later);
        let mut entries = 0;
        let mut changes = BTreeMap::new();
        for delta in old.into_values() {
            entries += delta.len();
            if changes.is_empty() {
                changes = delta;
            } else {
                changes.extend(delta);
            }
        }
        let later = self.extents.split_off(&epoch.next());
        let mut extents = Charged::default();
        for older in std::mem::replace(&mut self.extents, later).into_values() {
            entries += older.entries;
            if extents.changes.is_empty() {
                extents = older;
            } else {
                extents.add(older.changes);
            }
        }
        self.entries -= entries;
        self.taken += entries;
        TakenDelta { epoch, changes, extents: extents.changes, entries }
    }

    /// The checkpoint that took this is durable: it may be dropped, which takes its time, and without a lock.
    pub fn done(&mut self, taken: &TakenDelta) {
        self.taken -= taken.entries;
    }

    /// The checkpoint that took this failed: the next one takes it. Newer changes win.
    pub fn put_back(&mut self, taken: TakenDelta) {
        self.taken -= taken.entries;
        // Mostly there is nothing of that epoch, and what was taken goes back as it is.
        let newer = self.by_epoch.insert(taken.epoch, taken.changes).unwrap_or_default();
        let delta = self.by_epoch.entry(taken.epoch).or_default();
        let newer_entries = newer.len();
        delta.extend(newer);
        self.entries = self.entries + delta.len() - newer_entries;
        let extents = self.extents.entry(taken.epoch).or_default();
        let newer = std::mem::take(extents);
        extents.entries = taken.extents.values().map(|(extent, _)| entries_of(extent)).sum();
        extents.changes = taken.extents;
        extents.add(newer.changes);
        self.entries = self.entries + extents.entries - newer.entries;
    }

    /// Memory charged, in bytes.
    pub fn memory_bytes(&self) -> usize {
        (self.entries + self.taken) * ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(n: u64) -> Slot {
        Slot::new(n * 4096, 4096, n).unwrap()
    }

    #[test]
    fn the_newest_change_of_a_page_up_to_the_epoch_is_taken() {
        let mut deltas = Deltas::new(1 << 20);
        let (a, b, c) = (PageId(4), PageId(5), PageId(6));
        assert_eq!(deltas.record(Epoch(1), a, slot(1)), None);
        assert_eq!(deltas.record(Epoch(1), a, slot(2)), Some(slot(1)));
        deltas.record(Epoch(2), a, slot(3));
        deltas.record(Epoch(1), b, slot(4));
        deltas.record_freed(Epoch(2), b);
        deltas.record(Epoch(3), c, slot(5));
        let taken = deltas.take(Epoch(2));
        assert_eq!(
            taken.changes.iter().map(|(&i, &s)| (i, s)).collect::<Vec<_>>(),
            [(a, slot(3)), (b, Slot::NONE)]
        );
        assert_eq!(deltas.memory_bytes(), 5 * ENTRY_BYTES, "what is taken still counts");
        assert!(deltas.is_empty_to(Epoch(2)) && !deltas.is_empty_to(Epoch(3)));
        deltas.done(&taken);
        assert_eq!(deltas.memory_bytes(), ENTRY_BYTES);
    }

    #[test]
    fn what_a_failed_checkpoint_took_comes_back_under_what_is_newer() {
        let mut deltas = Deltas::new(1 << 20);
        deltas.record(Epoch(1), PageId(4), slot(1));
        deltas.record(Epoch(1), PageId(5), slot(2));
        let taken = deltas.take(Epoch(1));
        deltas.record(Epoch(2), PageId(4), slot(3));
        deltas.record(Epoch(1), PageId(5), slot(4));
        deltas.put_back(taken);
        let again = deltas.take(Epoch(2));
        assert_eq!(
            again.changes.into_iter().collect::<Vec<_>>(),
            [(PageId(4), slot(3)), (PageId(5), slot(4))]
        );
    }

    #[test]
    fn what_an_extent_comes_to_between_two_checkpoints_is_taken() {
        let extent = |unit| Extent {
            len_bytes: 5000,
            seed: unit,
            runs: Box::new([crate::large::Run { unit, units: 2 }]),
        };
        let mut deltas = Deltas::new(1 << 20);
        deltas.record_extent(Epoch(1), extent(4), 1);
        deltas.record_extent(Epoch(1), extent(8), 1);
        deltas.record_extent(Epoch(2), extent(8), -1);
        deltas.record_extent(Epoch(2), extent(16), -1);
        deltas.record_extent(Epoch(3), extent(4), -1);
        let taken = deltas.take(Epoch(2));
        let counts = |taken: &TakenDelta| -> Vec<_> {
            taken.extents.iter().map(|(name, change)| (name.0, change.1)).collect()
        };
        assert_eq!(counts(&taken), [(4, 1), (16, -1)]);
        // The checkpoint fails: the next one takes what is left of both.
        deltas.put_back(taken);
        let taken = deltas.take(Epoch(3));
        assert_eq!(counts(&taken), [(16, -1)]);
        deltas.done(&taken);
        assert_eq!(deltas.memory_bytes(), 0);
        assert!(deltas.is_empty_to(Epoch(9)));
    }

    #[test]
    fn an_extent_is_charged_for_all_its_runs() {
        let extent = |runs: u64| Extent {
            len_bytes: 5000 * runs,
            seed: runs,
            runs: (0..runs).map(|n| crate::large::Run { unit: 100 * n, units: 10 }).collect(),
        };
        let mut deltas = Deltas::new(1 << 20);
        deltas.record_extent(Epoch(1), extent(1), 1);
        let one = deltas.memory_bytes();
        deltas.record_extent(Epoch(1), extent(100), 1);
        assert!(deltas.memory_bytes() - one >= 100 * size_of::<crate::large::Run>());
        deltas.record_extent(Epoch(1), extent(100), -1);
        assert_eq!(deltas.memory_bytes(), one);
    }

    #[test]
    fn the_budget_asks_for_a_checkpoint_before_it_is_full() {
        let mut deltas = Deltas::new(10 * ENTRY_BYTES);
        for id in 4..10 {
            deltas.record(Epoch(1), PageId(id), slot(1));
        }
        assert!(deltas.is_due() && !deltas.is_full());
        for id in 10..15 {
            deltas.record(Epoch(2), PageId(id), slot(1));
        }
        assert!(deltas.is_full());
        let taken = deltas.take(Epoch(1));
        deltas.done(&taken);
        assert!(!deltas.is_due());
    }
}
