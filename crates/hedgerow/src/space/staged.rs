//! The zone table of a checkpoint under way, from its beginning until it is durable or has failed.
//!
//! What is done with it is in [`super::table_checkpoint`]. Plain data.

use super::table_part::{TablePart, TableRoot};
use crate::types::{Epoch, PART_BYTES, Slot};
use std::collections::BTreeMap;

/// A checkpoint under way.
#[derive(Debug)]
pub(super) struct Staged {
    pub(super) epoch: Epoch,
    /// Copies of the `referenced` bitmaps of the groups that changed.
    pub(super) groups: BTreeMap<u32, Box<[u64]>>,
    /// Slots of parts that this checkpoint wrote: given back if it fails.
    pub(super) entered: Vec<Slot>,
    /// Parts that it supersedes: quarantined if it succeeds.
    pub(super) left: Vec<TablePart>,
    pub(super) plan: Option<Plan>,
}

/// The table as it will be.
#[derive(Debug)]
pub(super) struct Plan {
    /// Parts to write, leaves first, with the offsets that they go to.
    pub(super) parts: Vec<(u8, u32, u64)>,
    pub(super) written: usize,
    pub(super) leaves: BTreeMap<u32, (TablePart, u32, u32)>,
    pub(super) upper: Vec<Vec<TablePart>>,
    pub(super) root: TableRoot,
    /// Units up to the last one in use, since the root was asked for.
    pub(super) units: u64,
}

impl Staged {
    pub(super) fn memory_bytes(&self) -> usize {
        self.groups.len() * (PART_BYTES + 32)
            + self.entered.capacity() * size_of::<Slot>()
            + self.left.capacity() * size_of::<TablePart>()
            + self.plan.as_ref().map_or(0, |plan| {
                plan.parts.capacity() * size_of::<(u8, u32, u64)>()
                    + plan.leaves.len() * 64
                    + plan.upper.iter().map(|level| level.len() * 16).sum::<usize>()
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_copies_of_parts_and_of_the_plan() {
        let mut staged = Staged {
            epoch: Epoch(1),
            groups: BTreeMap::new(),
            entered: Vec::new(),
            left: Vec::new(),
            plan: None,
        };
        assert_eq!(staged.memory_bytes(), 0);
        staged.groups.insert(0, Box::default());
        staged.groups.insert(7, Box::default());
        let copies = 2 * (PART_BYTES + 32);
        assert_eq!(staged.memory_bytes(), copies);
        staged.entered = Vec::with_capacity(5);
        staged.left = Vec::with_capacity(9);
        let lists = staged.entered.capacity() * 8 + staged.left.capacity() * 16;
        assert_eq!(staged.memory_bytes(), copies + lists);
        let parts = Vec::with_capacity(3);
        let planned = parts.capacity() * 16 + 2 * 64 + (4 + 1) * 16;
        staged.plan = Some(Plan {
            parts,
            written: 0,
            leaves: BTreeMap::from([0, 7].map(|index| (index, (TablePart::NONE, 1, 1)))),
            upper: vec![vec![TablePart::NONE; 4], vec![TablePart::NONE]],
            root: TableRoot::EMPTY,
            units: 0,
        });
        assert_eq!(staged.memory_bytes(), copies + lists + planned);
    }
}
