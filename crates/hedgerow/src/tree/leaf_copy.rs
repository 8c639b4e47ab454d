//! Private copies of leaves, for cursors: by a descent, or by the parent that was remembered.
//!
//! A copy is taken under validation; after conflicts, under a shared latch. Invariant: what is
//! returned without an error was the leaf's content at one moment, and if a trail comes with it, the
//! leaf was child `index` of the trail's parent at the parent's version.
//! Thread-safety: as for [`Tree`].

use super::Tree;
use super::descend::Target;
use super::retry::Retry;
use crate::error::Result;
use crate::node::{Ladder, Node};
use crate::page::{Access, OptimisticPage, PageMark, PagePool, PoolSession, Restart};
use crate::types::PageId;
use hedgerow_sync::optimistic::PageBytes;

/// Most leaves that a scan asks for together.
const AHEAD_MAX: usize = 32;

/// Where a leaf was found: its parent, and the index in it.
#[derive(Clone, Copy)]
pub(super) struct Trail {
    parent: PageMark,
    index: usize,
}

/// How many leaves a scan asks for when it meets one that is not in memory. It doubles each time, so
/// that a short scan reads little more than it needs.
#[derive(Clone, Copy)]
pub(super) struct ReadAhead {
    leaves: usize,
}

impl Default for ReadAhead {
    fn default() -> Self {
        ReadAhead { leaves: 1 }
    }
}

impl ReadAhead {
    fn take(&mut self) -> usize {
        self.leaves = (self.leaves * 2).min(AHEAD_MAX);
        self.leaves
    }
}

impl<P: PagePool, L: Ladder> Tree<P, L> {
    /// Copies the leaf for `target` into `to`, which has the size of a page.
    pub(super) fn copy_leaf(&self, target: Target<'_>, to: &mut [u8]) -> Result<Option<Trail>> {
        let mut restart = match self.try_copy_leaf(target, to) {
            Ok(trail) => return Ok(trail),
            Err(restart) => restart,
        };
        let mut retry = Retry::new(&*self.pool, self.root, Access::Scan);
        loop {
            retry.after(restart)?;
            let copied = if retry.is_latched() {
                self.share_leaf(target, retry.patience()).map(|leaf| {
                    to.copy_from_slice(leaf.bytes());
                    None
                })
            } else {
                self.try_copy_leaf(target, to)
            };
            match copied {
                Ok(trail) => return Ok(trail),
                Err(again) => restart = again,
            }
        }
    }

    fn try_copy_leaf(&self, target: Target<'_>, to: &mut [u8]) -> Result<Option<Trail>, Restart> {
        let leaf = self.reach(target, 0)?;
        copy_out(&leaf.page, to)?;
        Ok(leaf.parent.map(|parent| Trail { parent: parent.page.mark(), index: parent.index }))
    }

    /// Copies the neighbour of the leaf at `trail` into `to`. `None` if it must be looked for from
    /// the root: the parent has changed, or has no further child, or somebody interferes. Then `to`
    /// holds nothing of use.
    pub(super) fn copy_neighbour(
        &self,
        trail: Trail,
        forward: bool,
        ahead: &mut ReadAhead,
        to: &mut [u8],
    ) -> Result<Option<Trail>> {
        match self.try_copy_neighbour(trail, forward, to) {
            Ok(next) => Ok(next),
            Err(Restart::Absent(_)) => {
                let mut session = self.pool.session();
                let mut ids = [PageId::NONE; AHEAD_MAX];
                let count = self.neighbours(trail, forward, &mut ids[..ahead.take()]);
                session.prefetch(&ids[..count], Access::Scan)?;
                Ok(self.try_copy_neighbour(trail, forward, to).unwrap_or(None))
            }
            // Whatever it is, the way from the root finds out.
            Err(_) => Ok(None),
        }
    }

    fn try_copy_neighbour(
        &self,
        trail: Trail,
        forward: bool,
        to: &mut [u8],
    ) -> Result<Option<Trail>, Restart> {
        let parent = OptimisticPage::resume(&*self.pool, trail.parent)?;
        let node = Node::<_, L>::new(parent.bytes());
        let Some(index) = beside(trail.index, forward, node.count()) else {
            return Ok(None);
        };
        let leaf = self.open_child(node.child_at(index), &parent, 0)?;
        copy_out(&leaf, to)?;
        Ok(Some(Trail { parent: trail.parent, index }))
    }

    /// The ids of the leaves that follow the one at `trail` and are not in memory, nearest first;
    /// none if the parent has changed.
    fn neighbours(&self, trail: Trail, forward: bool, ids: &mut [PageId]) -> usize {
        let Ok(parent) = OptimisticPage::resume(&*self.pool, trail.parent) else { return 0 };
        let node = Node::<_, L>::new(parent.bytes());
        let mut at = trail.index;
        let mut count = 0;
        // As many children are looked at as may be taken: those in memory are passed over.
        for _ in 0..ids.len() {
            let Some(index) = beside(at, forward, node.count()) else { break };
            at = index;
            let id = node.child_at(index);
            if self.pool.translate(id).is_none() {
                ids[count] = id;
                count += 1;
            }
        }
        // No id is used that was read from a page while it changed.
        if parent.validate().is_ok() { count } else { 0 }
    }
}

/// The next index in a direction, up to `last`.
fn beside(index: usize, forward: bool, last: usize) -> Option<usize> {
    if forward { (index < last).then_some(index + 1) } else { index.checked_sub(1) }
}

fn copy_out<P: PagePool>(page: &OptimisticPage<'_, P>, to: &mut [u8]) -> Result<(), Restart> {
    page.bytes().copy(0, to);
    page.validate()
}
