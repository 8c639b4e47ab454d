//! Merges: pages back from nodes that have become too empty.
//!
//! A node whose records take less than half of their room looks at both neighbours under its parent. Two siblings
//! merge when together they fill at most fifteen sixteenths of a page, so that the next insertion does not
//! split them again; an empty one merges with whatever takes it in, unless it follows a dense leaf, which would
//! have no slot for the next number: there it stays until that leaf is half empty, or goes to the leaf behind. The right page is freed. What that
//! leaves of the parent is looked at next, and a root with a single child takes over the child's
//! contents, so that its id stays. Two inner nodes that become one make neighbours of two of their children, which had
//! different parents before: that pair is looked at too. So a tree whose records are all removed is a single page.
//!
//! Leaves that are hot, because they come from a contention split, are left alone as long as they have records: the two would
//! undo each other in turn.
//!
//! An inner node that a split leaves with a single child goes to a neighbour as well ([`Tree::merge_lonely`]).
//!
//! A merge is never needed: on interference it is given up, and a later removal or split looks again. So it
//! uses upgrades alone, and waits for nothing but a page fault, with nothing held.
//!
//! Invariants: parent, left and right are latched in this order and all at once before anything
//! changes, within one epoch. Thread-safety: as for [`Tree`].

use super::Tree;
use super::descend::{Target, plain};
use super::retry::{Retry, Stop};
use super::sparse::{is_sparse, record_bytes};
use crate::error::Result;
use crate::node::{self, Leaf, LeafLayout, Node, NodeMut};
use crate::page::header;
use crate::page::{EpochStay, OptimisticPage, PagePool, Restart};
use crate::types::PageId;
use hedgerow_sync::optimistic::PageBytes;
use hedgerow_sync::primitive::buggify::{Point, is_drawn};

/// How often a merge starts over because others interfered, before it is left to a later removal.
const TRIES: u32 = 4;

/// Part of a page that two siblings may fill together to be merged, in sixteenths. Where records go at
/// random, pages end between half of this and this. A smaller part saves no work: what stays apart is
/// looked at again as removals go on.
const MERGED_SIXTEENTHS: usize = 15;

/// Part of a node's free space below which its records are few enough that a neighbour is worth
/// reading from disk whenever it is looked at.
const FAULT_PART: usize = 4;

/// Above that, a neighbour is read from disk at one removal in so many at most, so that deleting costs few
/// reads, and what is deleted still gives back its pages.
const FAULT_EVERY: usize = 8;

/// A neighbour of a node, under the same parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Left,
    Right,
}

/// Which neighbours a node may merge with.
#[derive(Clone, Copy)]
enum Look {
    /// Either, if it is sparse.
    Sparse,
    /// The left one, if it is sparse: what is on the right goes next.
    Cleared,
    /// The one on that side, if it is an inner node with a single child.
    Lonely(Side),
    /// The right one: both have got the same parent just now.
    Seam,
}

/// How a look at a node and its neighbours came out.
enum Outcome {
    /// There is nothing to gain, or no longer.
    Nothing,
    /// Two nodes have become one; the parent may have become too empty in turn.
    Merged {
        /// What was between them, if they are inner nodes: between two children that have become neighbours.
        seam: Option<Vec<u8>>,
    },
    /// The root has taken over its only child.
    Collapsed,
}

/// Whether somebody else was in the way; a page that was not in memory is there the next time.
pub(super) fn is_interference(stop: &Stop) -> bool {
    !matches!(stop, Stop::Restart(Restart::Absent(_) | Restart::Owed | Restart::Gated))
}

impl<P: PagePool> Tree<P> {
    /// Looks at the leaf for `key`, and at what a merge leaves above it. The record that was removed
    /// is gone whatever happens here, so that an error is not reported: a page that cannot be read is
    /// reported to whoever needs it, and one that cannot be written refuses the next change.
    #[cold]
    pub(super) fn merge_around<'p>(&'p self, key: &[u8], mut retry: Retry<'p, P>) {
        if is_drawn(Point::Spread)
            && let Err(stop) = self.merge_group_around(key)
            && retry.after(stop).is_err()
        {
            return;
        }
        self.merge_up(0, key, Look::Sparse, retry);
    }

    /// [`Self::merge_around`] of a leaf that a removal of a range has cleared, which goes on to the right. Of the leaf there all records would be moved,
    /// and be removed next.
    pub(super) fn merge_cleared<'p>(&'p self, key: &[u8], retry: Retry<'p, P>) {
        self.merge_up(0, key, Look::Cleared, retry);
    }

    /// [`Self::merge_around`], from the node of `level` on the way to `key` on.
    pub(super) fn merge_from<'p>(&'p self, level: u8, key: &[u8], retry: Retry<'p, P>) {
        self.merge_up(level, key, Look::Sparse, retry);
    }

    /// The same, from the node of `level` on, with a look of its own at the leaf.
    fn merge_up<'p>(&'p self, level: u8, key: &[u8], of_leaf: Look, mut retry: Retry<'p, P>) {
        // Levels that are to be looked at, a bit each; the lowest first.
        let mut levels = 1_u64 << level;
        let mut tries = 0;
        // On the way to both this and `key` lie the nodes of the levels that are left.
        let mut seam: Option<Vec<u8>> = None;
        while levels != 0 && tries < TRIES {
            let level = levels.trailing_zeros() as u8;
            let rest = levels & (levels - 1);
            let look = if level == 0 { of_leaf } else { Look::Sparse };
            match self.merge_at(seam.as_deref().unwrap_or(key), level, look) {
                Ok(Outcome::Nothing) => levels = rest,
                // Its child had one child, perhaps.
                Ok(Outcome::Collapsed) => levels = 1 << (level - 1),
                Ok(Outcome::Merged { seam: new }) => {
                    // What has become of both may fit together with the other neighbour.
                    levels |= 1 << (level + 1);
                    if let Some(new) = new {
                        levels |= self.merge_seam(&new, level - 1, &mut retry);
                        seam = Some(new);
                    }
                }
                Err(stop) => {
                    tries += u32::from(is_interference(&stop));
                    if retry.after(stop).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Merges the nodes of `level` on both sides of `seam`, whose parents have become one, and then the same of their children.
    /// Gives a bit for each level that has lost a node's child by that.
    fn merge_seam<'p>(&'p self, seam: &[u8], level: u8, retry: &mut Retry<'p, P>) -> u64 {
        let (mut level, mut tries, mut levels) = (level, 0, 0);
        while tries < TRIES {
            match self.merge_at(seam, level, Look::Seam) {
                Ok(Outcome::Merged { .. }) => {
                    levels |= 1 << (level + 1);
                    if level == 0 {
                        break;
                    }
                    level -= 1;
                }
                Ok(_) => break,
                Err(stop) => {
                    tries += u32::from(is_interference(&stop));
                    if retry.after(stop).is_err() {
                        break;
                    }
                }
            }
        }
        levels
    }

    /// A split has left a single child to the inner node for `key`: the neighbour that it was not split from, on `side`,
    /// takes it in if it has room; what become neighbours below are looked at likewise. So of two neighbours one has more
    /// children than one, which bounds the height; without, separators so long that a node has room for two of them could be put in an order that leaves a chain of such nodes,
    /// and a level more with each few hundred records.
    ///
    /// As for a removal, it is given up on interference and on errors.
    #[cold]
    pub(super) fn merge_lonely<'p>(
        &'p self,
        key: &[u8],
        level: u8,
        side: Side,
        retry: &mut Retry<'p, P>,
    ) {
        let (mut level, mut tries) = (level, 0);
        while level > 0 && tries < TRIES {
            match self.merge_at(key, level, Look::Lonely(side)) {
                // The child that it brought has a neighbour now.
                Ok(Outcome::Merged { .. }) => level -= 1,
                Ok(_) => return,
                Err(stop) => {
                    tries += u32::from(is_interference(&stop));
                    if retry.after(stop).is_err() {
                        return;
                    }
                }
            }
        }
    }

    /// Looks at the node of `level` on the way to `key`.
    fn merge_at(&self, key: &[u8], level: u8, look: Look) -> Result<Outcome, Stop> {
        let reached = self.reach(Target::Key(key), level)?;
        if reached.level != level {
            return Ok(Outcome::Nothing);
        }
        let page = reached.page;
        let node = Node::new(page.bytes());
        let Some(parent) = reached.parent else {
            let is_chain = level > 0 && node.count() == 0;
            let child = node.child_at(0);
            page.validate()?;
            return if is_chain { self.collapse(page, child, level) } else { Ok(Outcome::Nothing) };
        };
        let record_count = node.count();
        let leaf = Leaf::new(page.bytes());
        let sparse = is_sparse(&leaf) || is_drawn(Point::Merge);
        let worth_reading = record_bytes(&leaf) < leaf.free_bytes() / FAULT_PART
            || node.count().is_multiple_of(FAULT_EVERY);
        let inner = Node::new(parent.page.bytes());
        let count = inner.count();
        let index = parent.index;
        let sides = [
            index.checked_sub(1).map(|left| (left, inner.child_at(left))),
            (index < count).then(|| (index, inner.child_at(index + 1))),
        ];
        page.validate()?;
        parent.page.validate()?;
        let [left, right] = sides;
        let (looks, sides) = match look {
            Look::Sparse => (sparse, [left, right]),
            Look::Cleared => (sparse, [left, None]),
            Look::Lonely(side) => {
                let sides = if side == Side::Left { [left, None] } else { [None, right] };
                (level > 0 && record_count == 0, sides)
            }
            // Of two that fit into one, either may be the sparse one.
            Look::Seam => (true, [None, right]),
        };
        // Threads contended for it a while ago, and a split keeps them apart; there is nothing to keep apart if it has no
        // records any more. Whoever sets the mark moves the version on.
        let is_kept = |page: &OptimisticPage<'_, P>| {
            let is_hot = level == 0 && self.pool.is_hot(page.frame());
            is_hot && record_count > 0
        };
        if !looks || is_kept(&page) {
            return Ok(Outcome::Nothing);
        }
        for (left_index, sibling) in sides.into_iter().flatten() {
            let sibling = match self.open_child(sibling, &parent.page, level) {
                Ok(sibling) => sibling,
                Err(Restart::Absent(_)) if !worth_reading => continue,
                Err(restart) => return Err(restart.into()),
            };
            if is_kept(&sibling) && Node::new(sibling.bytes()).count() > 0 {
                continue;
            }
            let (left, right) = match left_index < index {
                true => (sibling, page),
                false => (page, sibling),
            };
            if self.worth_merging(&left, &right)? {
                return self.merge_pair(parent.page, left_index, left, right);
            }
        }
        Ok(Outcome::Nothing)
    }

    /// Makes one leaf of two neighbours below a parent if they fit; false: they do not.
    pub(super) fn merge_neighbours<'p>(
        &'p self,
        parent: OptimisticPage<'p, P>,
        index: usize,
        left: OptimisticPage<'p, P>,
        right: OptimisticPage<'p, P>,
    ) -> Result<bool, Stop> {
        Ok(self.worth_merging(&left, &right)?
            && matches!(self.merge_pair(parent, index, left, right)?, Outcome::Merged { .. }))
    }

    /// Whether two siblings are to be one, by a look at copies of them.
    fn worth_merging<'p>(
        &'p self,
        left: &OptimisticPage<'p, P>,
        right: &OptimisticPage<'p, P>,
    ) -> Result<bool, Restart> {
        let page_bytes = self.pool.page_bytes();
        let (l, r) = (Leaf::new(left.bytes()), Leaf::new(right.bytes()));
        // Most pairs are ruled out by the least that their records can take. And behind a dense leaf that is in
        // good use an empty one stays: it would come back with the next number.
        let is_next = r.count() == 0 && l.layout().is_dense() && !is_sparse(&l);
        if is_next || !l.may_merge(&r, self.policy) {
            left.validate()?;
            right.validate()?;
            return Ok(false);
        }
        let mut copies = [vec![0; page_bytes], vec![0; page_bytes]];
        for (page, copy) in [left, right].into_iter().zip(&mut copies) {
            page.bytes().copy(0, copy);
            page.validate()?;
        }
        let [l, r] = &copies;
        // A merge would cover the gap up, and nobody would learn of the records that are missing.
        if !plain(l).meets(&plain(r)) {
            left.validate()?;
            right.validate()?;
            return Err(Restart::Corrupt(right.id()));
        }
        let scans = self.are_scans_common(left.frame());
        let space = match header::level(l) {
            0 => node::merge_leaf_space(l, r, self.policy, scans),
            _ => node::merge_space(l, r),
        };
        let is_empty = |page: &[u8]| plain(page).count() == 0;
        if is_empty(l) || is_empty(r) {
            return Ok(space <= page_bytes);
        }
        // Where fences take much of the page, that part of it may leave no room for records: then
        // half of what the fences leave counts.
        let fences = plain(l).lower_fence_len() + plain(r).upper_fence_len();
        let limit = (page_bytes * MERGED_SIXTEENTHS / 16).max((page_bytes + fences) / 2);
        Ok(space <= limit)
    }

    fn merge_pair<'p>(
        &'p self,
        parent: OptimisticPage<'p, P>,
        index: usize,
        left: OptimisticPage<'p, P>,
        right: OptimisticPage<'p, P>,
    ) -> Result<Outcome, Stop> {
        let stay = self.pool.enter_to_free(&self.wait.to_tidy_up())?;
        let epoch = stay.epoch();
        let mut parent = parent.upgrade()?;
        let mut left = match left.upgrade() {
            Ok(left) => left,
            Err(restart) => {
                parent.release_unchanged();
                return Err(restart.into());
            }
        };
        let right = match right.upgrade() {
            Ok(right) => right,
            Err(restart) => {
                left.release_unchanged();
                parent.release_unchanged();
                return Err(restart.into());
            }
        };
        let scans = self.are_scans_common(left.frame());
        let layout = LeafLayout::of(left.bytes());
        let bytes = left.write(epoch);
        let seam = (header::level(bytes) > 0).then(|| {
            let mut fence = Vec::new();
            plain(bytes).append_upper_fence(&mut fence);
            fence
        });
        let merged = match header::level(bytes) {
            0 => node::merge_leaves(bytes, right.bytes(), self.policy, scans),
            _ => NodeMut::new(bytes).merge(right.bytes()),
        };
        if merged.is_err() {
            // The upgrades have proved that the pair is as it was when it was found to fit.
            return Err(Restart::Corrupt(right.id()).into());
        }
        if header::level(left.bytes()) == 0 {
            self.note_merge(left.frame(), LeafLayout::of(left.bytes()) != layout);
            self.merge_contention([left.frame(), right.frame()]);
        }
        NodeMut::new(parent.write(epoch)).remove_child(index);
        self.pool.free(right, epoch);
        Ok(Outcome::Merged { seam })
    }

    /// Moves the contents of a root's only child into the root.
    fn collapse<'p>(
        &'p self,
        root: OptimisticPage<'p, P>,
        child: PageId,
        level: u8,
    ) -> Result<Outcome, Stop> {
        let child = self.open_child(child, &root, level - 1)?;
        let stay = self.pool.enter_to_free(&self.wait.to_tidy_up())?;
        let epoch = stay.epoch();
        let mut root = root.upgrade()?;
        let child = match child.upgrade() {
            Ok(child) => child,
            Err(restart) => {
                root.release_unchanged();
                return Err(restart.into());
            }
        };
        node::copy_node(root.write(epoch), child.bytes());
        self.pool.free(child, epoch);
        Ok(Outcome::Collapsed)
    }
}
