//! All records of one leaf, for whoever reads a tree as it was: in order, with the leaf's fences and its stamp.
//!
//! Invariant: what is here was the leaf's content at one moment. Plain data, `Send`; used by one thread at a time.

use super::Tree;
use super::commit_leaves::Fences;
use super::descend::{Target, plain};
use super::leaf_walk::{Beyond, LeafWalk};
use crate::error::Result;
use crate::node::plain_leaf;
use crate::page::Pages;
use crate::types::Lsn;
use std::fmt;

/// A copy of a leaf. See the head of the file.
pub struct LeafRecords {
    page: Box<[u8]>,
    /// Room for a key.
    key: Box<[u8]>,
}

impl fmt::Debug for LeafRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeafRecords").finish_non_exhaustive()
    }
}

impl<P: Pages> Tree<P> {
    /// Room for a copy of a leaf of this tree.
    pub fn leaf_records(&self) -> LeafRecords {
        let room = || vec![0; self.pool.page_bytes()].into_boxed_slice();
        LeafRecords { page: room(), key: room() }
    }

    /// The records of a leaf of this tree that somebody has copied, in order.
    pub fn records_of(&self, leaf: &[u8]) -> LeafRecords {
        let mut records = self.leaf_records();
        records.page.copy_from_slice(leaf);
        records
    }

    /// Copies the leaf at `target` into `to`, where a walk from leaf to leaf begins.
    ///
    /// Errors: those of [`Tree::get`]; then there is nothing of use in `to`.
    pub fn copy_first_records(
        &self,
        target: Target<'_>,
        walk: &mut LeafWalk,
        to: &mut LeafRecords,
    ) -> Result<()> {
        walk.begin(self.copy_leaf(target, true, &mut to.page)?);
        Ok(())
    }

    /// Copies the leaf that comes next on a walk into `to`. Leaves that are not in memory are read ahead.
    ///
    /// Errors: as for [`Self::copy_first_records`]; the walk is to be forgotten then.
    pub fn copy_next_records(
        &self,
        beyond: Beyond<'_>,
        walk: &mut LeafWalk,
        to: &mut LeafRecords,
    ) -> Result<()> {
        walk.step(self, beyond, &mut to.page)
    }
}

impl LeafRecords {
    /// The copy.
    pub(super) fn page(&self) -> &[u8] {
        &self.page
    }

    /// The copy.
    pub(super) fn page_mut(&mut self) -> &mut [u8] {
        &mut self.page
    }

    /// The newest LSN of a change of a record of the leaf's range; 0 if there was none since the records were loaded.
    pub fn stamp(&self) -> Lsn {
        plain(&self.page).newest_lsn()
    }

    /// Whether a key lies in the leaf's range.
    pub(super) fn covers(&self, key: &[u8]) -> bool {
        plain(&self.page).covers(key)
    }

    /// How far the leaf goes.
    pub fn fences(&self) -> Fences {
        Fences::of(&plain(&self.page))
    }

    /// Appends the key that all keys of the leaf's range are above. False: there is none.
    pub fn append_lower_fence(&self, to: &mut Vec<u8>) -> bool {
        plain(&self.page).append_lower_fence(to)
    }

    /// Appends the key that no key of the leaf's range is above. False: there is none.
    pub fn append_upper_fence(&self, to: &mut Vec<u8>) -> bool {
        plain(&self.page).append_upper_fence(to)
    }

    /// Calls `each` with key and value of all records, in order, until it says false.
    pub fn for_each(&mut self, mut each: impl FnMut(&[u8], &[u8]) -> bool) {
        let leaf = plain_leaf(&self.page);
        let prefix_len = leaf.copy_prefix(&mut self.key);
        let (mut place, end) = (leaf.next_place(0), leaf.end());
        while place < end {
            let (len, value) = leaf.record(place, &mut self.key, prefix_len);
            if !each(&self.key[..len], value) {
                return;
            }
            place = leaf.next_place(place + 1);
        }
    }
}
