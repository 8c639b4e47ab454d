//! Trees whose pages do not change any more: those of a pinned checkpoint.
//!
//! Nothing is latched and nothing is validated: whoever has the pages keeps them as they are. A page is looked at where it lies and
//! not kept from one level to the next, so a descent holds one page at a time, however deep the tree is. A scan gets one leaf after the
//! other, as a copy with its records in order, and goes on at its fences. If a leaf is not in memory, it is read with the next ones of its
//! parent: with more of them, the more leaves the scan has come through.
//!
//! Invariants: as for a tree that changes, a child's level is its parent's less one, so that no descent is endless; and a leaf is the one
//! for what was asked, so that no scan is. A page that breaks them is reported as damaged. `Sync` as the pages are.

use super::MAX_LEVELS;
use super::descend::{Target, plain};
use super::leaf_records::LeafRecords;
use super::leaf_walk::Beyond;
use super::read_ahead::{beside, wanted_behind};
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

/// How far a scan of such a tree has come.
#[derive(Default, Debug)]
pub struct FrozenWalk {
    forward: bool,
    /// Leaves that it has come through in this direction, as far as reading ahead goes by them.
    behind: usize,
}

/// Leaves that a scan's past is counted up to: from then on it asks for as many as it ever does.
const BEHIND_MAX: usize = 64;

/// The next leaves of a scan.
struct Ahead<'a> {
    beyond: Beyond<'a>,
    most: usize,
    ids: Vec<PageId>,
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
        self.reach(Target::Key(key), None, &mut |page| {
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
        self.copy_leaf_of(target, None, page)
    }

    /// [`Self::copy_records`] of the leaf that a scan comes to next.
    pub fn copy_next_records(
        &self,
        beyond: Beyond<'_>,
        walk: &mut FrozenWalk,
        to: &mut LeafRecords,
    ) -> Result<()> {
        if walk.forward != beyond.forward {
            *walk = FrozenWalk { forward: beyond.forward, behind: 0 };
        }
        walk.behind = (walk.behind + 1).min(BEHIND_MAX);
        let most = wanted_behind(walk.behind);
        let ahead = Ahead { beyond, most, ids: Vec::new() };
        self.copy_leaf_of(beyond.target(), Some((ahead, walk)), to.page_mut())
    }

    fn copy_leaf_of(
        &self,
        target: Target<'_>,
        ahead: Option<(Ahead<'_>, &mut FrozenWalk)>,
        page: &mut [u8],
    ) -> Result<()> {
        self.reach(target, ahead, &mut |found| page.copy_from_slice(found))?;
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
    fn reach(
        &self,
        target: Target<'_>,
        mut ahead: Option<(Ahead<'_>, &mut FrozenWalk)>,
        look: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let (mut id, mut expected) = (self.root, None);
        loop {
            let mut found = Found::Foreign;
            let is_there = self.pages.read(id, &mut |page| {
                found = self.step(page, expected, target);
                match (&found, &mut ahead) {
                    (Found::Leaf, _) => look(page),
                    (Found::Child(_, 0), Some((ahead, _))) => ahead.collect(page),
                    _ => {}
                }
            })?;
            if let (Found::Child(_, 0), Some((ahead, walk))) = (&found, &mut ahead)
                && ahead.ids.len() > 1
                && self.pages.read_ahead(&ahead.ids) < ahead.ids.len()
            {
                // There is no room for so many.
                walk.behind = 0;
            }
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
        let is_gone = is_free || expected.is_none() && header::is_being_freed(page);
        if header::tree_id(page) != self.id || is_gone {
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

impl Ahead<'_> {
    /// Takes the ids of the next leaves from their parent.
    fn collect(&mut self, page: &[u8]) {
        let node = plain(page);
        let Beyond { forward, bound, .. } = self.beyond;
        let mut next = Some(self.beyond.target().child(&node).index);
        // A bound outside of the node cuts nothing off: the scan is in the node, and goes towards it.
        let last =
            bound.filter(|bound| node.covers(bound)).map(|bound| node.child_for(bound).index);
        while let Some(index) = next.filter(|&index| index <= node.count())
            && self.ids.len() < self.most
        {
            self.ids.push(node.child_at(index));
            next = beside(index, forward).filter(|_| last != Some(index));
        }
    }
}

#[cold]
fn not_its_leaf(page: &[u8]) -> Error {
    Error::corrupted_page(header::page_id(page), "a leaf that is not the one for its keys")
}
