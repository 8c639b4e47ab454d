//! Private copies of leaves, for cursors: by a descent, or by the parent that was remembered.
//!
//! A copy is taken under validation; after conflicts, under a shared latch. Invariant: what is
//! returned without an error was the leaf's content at one moment, and if a trail comes with it, the
//! leaf was child `index` of the trail's parent at the parent's version.
//! Thread-safety: as for [`Tree`].

use super::Tree;
use super::descend::{Target, Trail};
use super::read_ahead::ReadAhead;
use super::retry::Retry;
use crate::error::Result;
use crate::node::{Leaf, Node};
use crate::page::{Access, OptimisticPage, Pages, Restart};
use crate::types::PageId;
use hedgerow_sync::optimistic::PageBytes;

/// Lines of a leaf that are asked for ahead.
const PREFETCHED_LINES: usize = 4;

impl<P: Pages> Tree<P> {
    /// Copies the leaf for `target` into `to`, which has the size of a page: as it was before somebody began to change records alone, if
    /// somebody does. `is_first`: a scan begins there, so the leaf counts as used; those that it goes on to are not kept in memory for it.
    pub(super) fn copy_leaf(
        &self,
        target: Target<'_>,
        is_first: bool,
        to: &mut [u8],
    ) -> Result<Option<Trail>> {
        loop {
            let turns = self.pool.alone_turns();
            let trail = self.copy_leaf_now(target, is_first, to)?;
            if self.nobody_alone_since(turns).is_ok() {
                return Ok(trail);
            }
            if let Some(trail) = self.copy_beside_alone(turns, target, trail, to)? {
                return Ok(trail);
            }
        }
    }

    fn copy_leaf_now(
        &self,
        target: Target<'_>,
        is_first: bool,
        to: &mut [u8],
    ) -> Result<Option<Trail>> {
        let mut restart = match self.try_copy_leaf(target, is_first, to) {
            Ok(trail) => return Ok(trail),
            Err(restart) => restart,
        };
        let waiting = self.wait.begin();
        let mut retry = Retry::new(&*self.pool, self.root, Access::Scan, &waiting);
        loop {
            retry.after(restart)?;
            let copied = if retry.is_latched() {
                self.share_leaf(target, retry.patience()).map(|leaf| {
                    to.copy_from_slice(leaf.bytes());
                    Leaf::put_in_order(to);
                    None
                })
            } else {
                self.try_copy_leaf(target, is_first, to)
            };
            match copied {
                Ok(trail) => return Ok(trail),
                Err(again) => restart = again,
            }
        }
    }

    fn try_copy_leaf(
        &self,
        target: Target<'_>,
        is_first: bool,
        to: &mut [u8],
    ) -> Result<Option<Trail>, Restart> {
        let leaf = self.reach(target, 0)?;
        if is_first {
            leaf.page.note_use();
        }
        self.copy_out(&leaf.page, to)?;
        Ok(leaf.parent.map(|parent| Trail { parent: parent.page.mark(), index: parent.index }))
    }

    /// Copies the neighbour of the leaf at `trail` into `to`, for a scan that ends at `bound` if there
    /// is one. `None` if it must be looked for from the root: the parent has changed, or has no further
    /// child, or somebody interferes. Then `to` holds nothing of use.
    pub(super) fn copy_neighbour(
        &self,
        trail: Trail,
        forward: bool,
        bound: Option<&[u8]>,
        ahead: &mut ReadAhead,
        to: &mut [u8],
    ) -> Result<Option<Trail>> {
        let turns = self.pool.alone_turns();
        let next = match self.try_copy_neighbour(trail, forward, to) {
            Ok(next) => next,
            Err(Restart::Absent(id)) => {
                ahead.fetch(self, id, trail, bound)?;
                self.try_copy_neighbour(trail, forward, to).unwrap_or(None)
            }
            // Whatever it is, the way from the root finds out.
            Err(_) => None,
        };
        Ok(next.filter(|_| self.nobody_alone_since(turns).is_ok()))
    }

    fn try_copy_neighbour(
        &self,
        trail: Trail,
        forward: bool,
        to: &mut [u8],
    ) -> Result<Option<Trail>, Restart> {
        let parent = OptimisticPage::resume(&*self.pool, trail.parent)?;
        let node = Node::new(parent.bytes());
        let Some(index) = beside(trail.index, forward, node.count()) else {
            return Ok(None);
        };
        let leaf = self.open_child(node.child_at(index), &parent, 0)?;
        // While this one is copied, and its records are handed over, the one behind it comes nearer.
        if let Some(next) = beside(index, forward, node.count()) {
            self.prefetch_leaf(node.child_at(next));
        }
        self.copy_out(&leaf, to)?;
        Ok(Some(Trail { parent: trail.parent, index }))
    }

    /// Begins to load the word of the page table and the header of a leaf, and its first lines, after which the processor goes on by
    /// itself. A hint: the id may be out of date.
    #[inline]
    fn prefetch_leaf(&self, id: PageId) {
        self.pool.prefetch(id);
        if let Some(frame) = self.pool.expect_frame(id) {
            let bytes = self.pool.bytes(frame);
            (0..PREFETCHED_LINES).for_each(|line| bytes.prefetch(64 * line));
        }
    }

    /// Copies a leaf, and puts the records of the copy in order.
    #[inline]
    pub(super) fn copy_out(
        &self,
        page: &OptimisticPage<'_, P>,
        to: &mut [u8],
    ) -> Result<(), Restart> {
        page.bytes().copy(0, to);
        page.validate()?;
        // Before the leaf may get another version. If it has got one by this, there is nothing left to sort but the copy.
        match self.note_scan(page) {
            true => Leaf::put_in_order(to),
            false => self.put_in_order(page, to),
        }
        Ok(())
    }
}

/// The next index in a direction, up to `last`.
fn beside(index: usize, forward: bool, last: usize) -> Option<usize> {
    if forward { (index < last).then_some(index + 1) } else { index.checked_sub(1) }
}
