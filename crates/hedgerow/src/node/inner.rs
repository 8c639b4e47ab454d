//! Changes that only inner nodes know: separators that come and go with their children.
//!
//! Child `i` holds the keys up to separator `i`; the upper child those above the last one. A split of a
//! child puts a separator and the new right sibling in; a merge takes both out. Same conditions and
//! invariants as [`super::write`].

use super::fields::{PREFIX_LEN, count, heap_live, set_u32, u16_at, u32_at};
use super::layout::{
    INNER_SLOT_BYTES, UPPER_CHILD, is_inner, rest_len, set_slot, slot, slots_start,
};
use super::slotted::NoSpace;
use super::write::NodeMut;
use crate::types::PageId;

impl NodeMut<'_> {
    /// Child `index`; `index == count` names the upper child.
    pub fn child_at(&self, index: usize) -> PageId {
        debug_assert!(is_inner(self.page));
        if index < count(self.page) {
            PageId(u32_at(self.page, slots_start(self.page) + INNER_SLOT_BYTES * index + 4))
        } else {
            PageId(u32_at(self.page, UPPER_CHILD))
        }
    }

    /// Replaces child `index`; `index == count` names the upper child.
    ///
    /// # Panics
    /// If `index` is above the count.
    pub fn set_child(&mut self, index: usize, child: PageId) {
        let count = count(self.page);
        assert!(index <= count, "no child {index}");
        if index == count {
            set_u32(self.page, UPPER_CHILD, child.0);
        } else {
            let slot = slot(self.page, index);
            set_slot(self.page, index, super::layout::Slot { child: child.0, ..slot });
        }
    }

    /// Whether a separator of so many bytes (prefix included) can be inserted now.
    pub fn fits_separator(&self, separator_bytes: usize) -> bool {
        let suffix = separator_bytes.saturating_sub(u16_at(self.page, PREFIX_LEN));
        let live = heap_live(self.page) + rest_len(suffix);
        let needed = self.space_needed(count(self.page) + 1, live);
        needed <= self.page.len()
    }

    /// Notes that child `index` was split at `separator`: it keeps the keys up to the separator, and
    /// `right`, which becomes child `index + 1`, has those above it.
    ///
    /// # Errors
    /// [`NoSpace`] if this node must be split first; never right after [`Self::fits_separator`].
    ///
    /// # Panics
    /// If `index` is above the count.
    pub fn insert_child(
        &mut self,
        index: usize,
        separator: &[u8],
        right: PageId,
    ) -> Result<(), NoSpace> {
        let left = self.child_at(index);
        let suffix = separator.get(u16_at(self.page, PREFIX_LEN)..).unwrap_or(&[]);
        self.insert_record(index, suffix, &[], left.0)?;
        self.set_child(index + 1, right);
        Ok(())
    }

    /// Notes that child `index + 1` was merged into child `index`: the separator between the two goes,
    /// and child `index` now has the keys of both.
    ///
    /// # Panics
    /// If there is no child `index + 1`.
    pub fn remove_child(&mut self, index: usize) {
        let left = self.child_at(index);
        self.remove(index);
        self.set_child(index, left);
    }
}
