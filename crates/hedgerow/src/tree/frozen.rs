//! Trees whose pages do not change any more: those of a pinned checkpoint.
//!
//! Nothing is latched and nothing is validated: whoever has the pages keeps them as they are. A page is looked at where it lies and
//! not kept from one level to the next, so a descent holds one page at a time, however deep the tree is. A scan gets one leaf after the
//! other, as a copy with its records in order, and says itself where it goes on: behind the leaf's [edge](FrozenLeaf::edge).
//!
//! Invariants: as for a tree that changes, a child's level is its parent's less one, so that no descent is endless; and each leaf of a
//! scan reaches beyond the last one, so that no scan is. A page that breaks them is reported as damaged. `Sync` as the pages are.

use super::MAX_LEVELS;
use super::descend::{Target, plain};
use super::retry::dropped;
use crate::error::{Error, ErrorKind, Result};
use crate::node::{Hints, Leaf, plain_leaf};
use crate::page::FrozenPages;
use crate::page::header::{self, PageKind};
use crate::types::{PageId, TreeId};
use hedgerow_sync::optimistic::PlainBytes;
use hedgerow_sync::primitive::canary::leaves_out;
use std::ops::Bound;

/// A tree of such pages. See the head of the file.
#[derive(Clone, Copy, Debug)]
pub struct FrozenTree<'p, P> {
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
impl<'p, P: FrozenPages> FrozenTree<'p, P> {
    /// The tree `id`, whose root is page `root`. Reads nothing.
    pub fn new(pages: &'p P, id: TreeId, root: PageId) -> FrozenTree<'p, P> {
        FrozenTree { pages, id, root }
    }

    /// Appends the value of `key`, as its leaf has it, to `to`. False: there is no record.
    pub fn get(&self, key: &[u8], to: &mut Vec<u8>) -> Result<bool> {
        let mut outcome = Ok(false);
        self.reach(Target::Key(key), &mut |page| {
            let leaf = plain_leaf::<Hints>(page);
            let at = leaf.find(key);
            if !leaf.as_node().covers(key) {
                outcome = Err(not_its_leaf(page));
            } else if at.found {
                leaf.append_value(at.index, to);
                outcome = Ok(true);
            }
        })?;
        outcome
    }

    /// Loads the leaf that has the next records from a bound on, up or down, into `leaf`. It may have none.
    pub fn load(&self, from: Bound<&[u8]>, forward: bool, leaf: &mut FrozenLeaf) -> Result<()> {
        let target = match (from, forward) {
            (Bound::Unbounded, true) => Target::Key(b""),
            (Bound::Unbounded, false) => Target::Last,
            (Bound::Excluded(key), true) => Target::Above(key),
            (Bound::Included(key) | Bound::Excluded(key), _) => Target::Key(key),
        };
        leaf.prepare(self.pages.page_bytes())?;
        self.reach(target, &mut |page| leaf.page.copy_from_slice(page))?;
        leaf.enter(target, from, forward)
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
            Some(expected) => level == expected || leaves_out("level_not_checked"),
            None => level < MAX_LEVELS,
        };
        match level {
            _ if !is_right => Found::Damage("a page of another level than its place in the tree"),
            0 => Found::Leaf,
            _ => Found::Child(target.child(&plain::<Hints>(page)).child, level - 1),
        }
    }
}

/// A leaf of a scan: a copy, with its records in order, of which those behind a bound are shown.
#[derive(Debug, Default)]
pub struct FrozenLeaf {
    page: Vec<u8>,
    /// The prefix of all keys, and behind it what else the last one has that was shown.
    key: Vec<u8>,
    prefix_len: usize,
    /// Places that were not shown yet.
    first: usize,
    end: usize,
    forward: bool,
    edge: Option<Vec<u8>>,
}

impl FrozenLeaf {
    /// The next record in the direction of the scan; `None` behind the last one of this leaf. The value is as the leaf has it.
    pub fn next_record(&mut self) -> Option<(&[u8], &[u8])> {
        let leaf = plain_leaf::<Hints>(&self.page);
        let place = match self.forward {
            true => Some(leaf.next_place(self.first)).filter(|place| *place < self.end),
            false => leaf.previous_place(self.end).filter(|place| *place >= self.first),
        }?;
        match self.forward {
            true => self.first = place + 1,
            false => self.end = place,
        }
        let (end, value) = leaf.record(place, &mut self.key, self.prefix_len);
        Some((&self.key[..end], value))
    }

    /// How far the leaf goes in the direction of the scan; `None`: to the end of the tree. Up, the edge belongs to the leaf, and the
    /// scan goes on above it, from an excluded bound. Down, it does not, and the scan goes on with it, from an included one.
    pub fn edge(&self) -> Option<&[u8]> {
        self.edge.as_deref()
    }

    fn prepare(&mut self, page_bytes: usize) -> Result<()> {
        (self.first, self.end) = (0, 0);
        for bytes in [&mut self.page, &mut self.key] {
            bytes.try_reserve_exact(page_bytes.saturating_sub(bytes.len())).map_err(no_memory)?;
            bytes.resize(page_bytes, 0);
        }
        Ok(())
    }

    /// Takes up the leaf that was copied for a target.
    fn enter(&mut self, target: Target<'_>, from: Bound<&[u8]>, forward: bool) -> Result<()> {
        Leaf::<PlainBytes<'_>, Hints>::put_in_order(&mut self.page);
        let (node, leaf) = (plain::<Hints>(&self.page), plain_leaf::<Hints>(&self.page));
        let is_it = match target {
            Target::Key(key) => node.covers(key),
            Target::Above(key) => node.is_within_upper(key) && !node.is_upper_fence(key),
            Target::Last => !node.has_upper_fence(),
        };
        if !is_it {
            return Err(not_its_leaf(&self.page));
        }
        // A bound at the lower fence, or below it, cuts nothing off.
        let cut = |key: &[u8], behind: bool| match node.is_above_lower(key) {
            true => {
                let at = leaf.search(key);
                at.index + usize::from(at.found && behind)
            }
            false => 0,
        };
        (self.first, self.end) = match (from, forward) {
            (Bound::Unbounded, _) => (0, leaf.end()),
            (Bound::Included(key), true) => (cut(key, false), leaf.end()),
            (Bound::Excluded(key), true) => (cut(key, true), leaf.end()),
            (Bound::Included(key), false) => (0, cut(key, true)),
            (Bound::Excluded(key), false) => (0, cut(key, false)),
        };
        self.prefix_len = leaf.copy_prefix(&mut self.key);
        self.forward = forward;
        let mut edge = self.edge.take().unwrap_or_default();
        edge.clear();
        edge.try_reserve(self.page.len()).map_err(no_memory)?;
        let has_edge = match forward {
            true => node.append_upper_fence(&mut edge),
            false => node.append_lower_fence(&mut edge),
        };
        self.edge = has_edge.then_some(edge);
        Ok(())
    }
}

#[cold]
fn no_memory(_: std::collections::TryReserveError) -> Error {
    Error::new(ErrorKind::MemoryLimit, "no memory for a copy of what a pinned checkpoint has")
}

#[cold]
fn not_its_leaf(page: &[u8]) -> Error {
    Error::corrupted_page(header::page_id(page), "a leaf that is not the one for its keys")
}
