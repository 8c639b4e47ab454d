//! How contended leaves are, and what follows from it: the contention detector of section 4.1.
//!
//! A leaf that bypasses its CCM costs nothing that is written: each thread counts aborts of its own lower regions by leaf, in a small table
//! whose counts halve as operations go by. A count that reaches a threshold has the leaf use a CCM. From then on the heat lies in
//! the CCM, on a line that its users have anyway: an abort, or a wait for a lock, sets it, and half of all other
//! operations lower it by one. At zero the leaf bypasses its CCM again.
//!
//! Thread-safety: the table belongs to a session. Heat is advice; two threads may overwrite each other's.

use super::{Eunomia, Way};
use crate::htm::{Htm, Site, Tx};
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::random::SplitMix64;

/// Heat after a conflict.
const HOT: u32 = 16;
/// Aborts of a thread in a leaf, after which the leaf uses a CCM.
const THRESHOLD: u32 = 8;
/// Operations of a thread after which its counts are half of what they were.
const HALF_LIFE: u64 = 64;
/// Leaves of a thread's table.
const PLACES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Place {
    leaf: u32,
    aborts: u32,
    at: u64,
}

/// Operations of a thread, and aborts of late, by leaf.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    places: [Place; PLACES],
    operations: u64,
}

impl Table {
    pub(crate) fn new() -> Table {
        Table { places: [Place { leaf: super::NONE, aborts: 0, at: 0 }; PLACES], operations: 0 }
    }

    /// Notes aborts in a leaf. Whether there were many of late.
    fn note(&mut self, leaf: u32, aborts: u32, now: u64) -> bool {
        let place = &mut self.places[leaf.wrapping_mul(0x9e37_79b1) as usize >> 8 & (PLACES - 1)];
        if place.leaf != leaf {
            *place = Place { leaf, aborts: 0, at: now };
        }
        place.aborts >>= ((now - place.at) / HALF_LIFE).min(31);
        place.aborts = place.aborts.saturating_add(aborts);
        place.at = now;
        if place.aborts >= THRESHOLD {
            place.aborts = 0;
            return true;
        }
        false
    }
}

impl<H: Htm> Eunomia<H> {
    /// An operation of a thread, whose table and generator these are, is done on a leaf: it waited for the key's lock or not, and its
    /// lower region aborted so often. Called under that lock, if there is one.
    #[inline]
    pub(super) fn note(
        &self,
        (table, random): (&mut Table, &mut SplitMix64),
        way: Way,
        waited: bool,
        aborts: u32,
    ) {
        if !self.steps.adaptive {
            return;
        }
        table.operations += 1;
        let Some(ccm) = self.hot_ccm(way.usage) else {
            if aborts > 0 && table.note(way.leaf, aborts, table.operations) {
                self.heat_up(way);
            }
            return;
        };
        let heat = ccm.heat.load(Relaxed);
        if waited || aborts > 0 {
            if heat < HOT / 2 {
                ccm.heat.set(HOT);
            }
        } else if random.below(2) == 0 {
            if heat > 1 {
                ccm.heat.set(heat - 1);
            } else {
                // Whoever comes first: another change of the word has made this one needless.
                let head = &self.leaves.node(way.leaf).head;
                let new = way.usage.turned();
                let _was_changed = head.ccm.compare_exchange(way.usage.0, new.0, Relaxed, Relaxed);
            }
        }
    }

    /// Has a leaf use a CCM from now on, if it has not changed since. Without memory for one nothing happens: the CCM is advice.
    #[cold]
    fn heat_up(&self, way: Way) {
        if self.ccms.prepare(1).is_err() {
            return;
        }
        self.htm.atomic(&self.lock, Site::STRUCTURE, |tx| {
            if !self.is_current(tx, way)? {
                return Ok(());
            }
            let leaf = self.leaves.node(way.leaf);
            let usage = match way.usage.number() {
                Some(_) => way.usage.turned(),
                None => {
                    let number = self.take_ccm(tx)?;
                    let marks = self.marks_of(self.records().records(tx, leaf)?.all());
                    self.ccms.node(number).rebuild_in(tx, marks)?;
                    way.usage.attached(number, true)
                }
            };
            if let Some(ccm) = self.hot_ccm(usage) {
                tx.store(&ccm.heat, HOT)?;
            }
            tx.store(&leaf.head.ccm, usage.0)
        });
    }

    /// Heat of the CCM of a new leaf, whose other half is hot.
    pub(crate) const INHERITED: u32 = HOT;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aborts_count_by_leaf_and_are_forgotten() {
        let mut table = Table::new();
        assert!(!table.note(5, THRESHOLD - 1, 0));
        assert!(table.note(5, 1, 1));
        assert!(!table.note(5, THRESHOLD - 1, 2));
        assert!(!table.note(5, THRESHOLD / 2, 2 + 2 * HALF_LIFE), "a quarter is left of them");
        assert!(table.note(6, THRESHOLD, 200));
    }
}
