//! Trees whose pages do not change any more: those of a pinned checkpoint.
//!
//! Nothing is latched and nothing is validated: whoever has the pages keeps them as they are. A page is looked at where it lies and
//! not kept from one level to the next, so a descent holds one page at a time, however deep the tree is. A scan gets one leaf after the
//! other, as a copy with its records in order, and goes on at its fences.
//!
//! Invariants: as for a tree that changes, a child's level is its parent's less one, so that no descent is endless; and a leaf is the one
//! for what was asked, so that no scan is. A page that breaks them is reported as damaged. `Sync` as the pages are.

use super::MAX_LEVELS;
use super::descend::{Target, plain};
use super::leaf_records::LeafRecords;
use super::retry::dropped;
use crate::error::{Error, Result};
use crate::node::{Leaf, plain_leaf};
use crate::page::FrozenPages;
use crate::page::header::{self, PageKind};
use crate::types::{PageId, TreeId};
use hedgerow_sync::optimistic::PlainBytes;

/// A tree of such pages. See the head of the file.
#[derive(Clone, Copy, Debug)]
pub struct FrozenTree<'p, P: ?Sized> {
    pages: &'p P,
    id: TreeId,
    root: PageId,
}

/// What a page on the way says.
enum Found {
    Leaf,
    Child(PageId, u8),
    Foreign,
    Damage(&'static str),
}

/// Errors of all: those of reading pages; `KeyspaceDropped` if the root is not this tree's; `Corrupted`.
impl<'p, P: FrozenPages + ?Sized> FrozenTree<'p, P> {
    /// The tree `id`, whose root is page `root`. Reads nothing.
    pub fn new(pages: &'p P, id: TreeId, root: PageId) -> FrozenTree<'p, P> {
        FrozenTree { pages, id, root }
    }

    /// Appends the value of `key`, as its leaf has it, to `to`. False: there is no record.
    pub fn get(&self, key: &[u8], to: &mut Vec<u8>) -> Result<bool> {
        self.find(key, |leaf, place| leaf.append_value(place, to))
    }

    /// Lets `take` look at the record of `key`, at a place of its leaf. False: there is no record.
    pub(super) fn find(
        &self,
        key: &[u8],
        take: impl FnOnce(&Leaf<PlainBytes<'_>>, usize),
    ) -> Result<bool> {
        let (mut outcome, mut take) = (Ok(false), Some(take));
        self.reach(Target::Key(key), &mut |page| {
            let leaf = plain_leaf(page);
            let at = leaf.find(key);
            if !leaf.as_node().covers(key) {
                outcome = Err(not_its_leaf(page));
            } else if at.found
                && let Some(take) = take.take()
            {
                take(&leaf, at.index);
                outcome = Ok(true);
            }
        })?;
        outcome
    }

    /// Copies the leaf at `target` into `to`, its records in order. `Above` may be given any key.
    pub fn copy_records(&self, target: Target<'_>, to: &mut LeafRecords) -> Result<()> {
        self.copy_leaf(target, to.page_mut())
    }

    /// [`Self::copy_records`], into the bytes of a page.
    pub(super) fn copy_leaf(&self, target: Target<'_>, page: &mut [u8]) -> Result<()> {
        self.reach(target, &mut |found| page.copy_from_slice(found))?;
        let node = plain(page);
        let is_it = match target {
            Target::Key(key) => node.covers(key),
            Target::Above(key) => node.is_within_upper(key) && !node.is_upper_fence(key),
            Target::Last => !node.has_upper_fence(),
        };
        if !is_it {
            return Err(not_its_leaf(page));
        }
        Leaf::put_in_order(page);
        Ok(())
    }

    /// Goes down to the leaf for `target`, and hands it to `look`.
    fn reach(&self, target: Target<'_>, look: &mut dyn FnMut(&[u8])) -> Result<()> {
        let (mut id, mut expected) = (self.root, None);
        loop {
            let mut found = Found::Foreign;
            let is_there = self.pages.read(id, &mut |page| {
                found = self.step(page, expected, target);
                if matches!(found, Found::Leaf) {
                    look(page);
                }
            })?;
            match (found, expected) {
                (Found::Leaf, _) => return Ok(()),
                (Found::Child(child, level), _) => (id, expected) = (child, Some(level)),
                (Found::Foreign, None) => return Err(dropped()),
                (Found::Foreign, Some(_)) => {
                    let what = if is_there { "a page of another tree" } else { "no such page" };
                    return Err(Error::corrupted_page(id, what));
                }
                (Found::Damage(what), _) => return Err(Error::corrupted_page(id, what)),
            }
        }
    }

    /// What a page is that has to be of a level, or a root.
    fn step(&self, page: &[u8], expected: Option<u8>, target: Target<'_>) -> Found {
        let level = header::level(page);
        let is_free = header::kind(page) == Some(PageKind::Free);
        if header::tree_id(page) != self.id || is_free {
            return Found::Foreign;
        }
        let is_right = match expected {
            Some(expected) => level == expected,
            None => level < MAX_LEVELS,
        };
        match level {
            _ if !is_right => Found::Damage("a page of another level than its place in the tree"),
            0 => Found::Leaf,
            _ => Found::Child(target.child(&plain(page)).child, level - 1),
        }
    }
}

#[cold]
fn not_its_leaf(page: &[u8]) -> Error {
    Error::corrupted_page(header::page_id(page), "a leaf that is not the one for its keys")
}
