//! Which leaves a scan asks for before it comes to them.
//!
//! A scan that meets an absent leaf asks for 1, then for 3, 9, 27 and 64 together: each time for as many
//! as would triple what it has come through, so that a short one reads little that it does not need, and
//! waits seldom. From the 32nd leaf on the next ones are read by others while the scan goes on, up to
//! three times 64: their ids stand in the parent, and behind its last child in the next parent. Where all
//! leaves are in memory nothing is asked for, and nothing is looked at.
//!
//! Invariants: no id is used that was read from a page while it changed; nothing is asked for beyond a
//! bound of the scan. A hint can be wrong in any way but that: what was not asked for is faulted.
//! Used by one thread.

use super::Tree;
use super::descend::Target;
use super::descend::Trail;
use crate::error::Result;
use crate::node::Node;
use crate::page::{Access, OptimisticPage, PageMark, Pages, PoolSession, Restart};
use crate::types::PageId;

/// Most leaves that are asked for together.
const WINDOW_MAX: usize = 64;
/// Most leaves that are asked for and not come to.
const AHEAD_MAX: usize = 3 * WINDOW_MAX;
/// Leaves that a scan's past is counted up to: what is above changes nothing.
const BEHIND_MAX: usize = 8 * AHEAD_MAX;
/// Leaves after which the next ones are read by others.
const BESIDE_FROM: usize = 32;

/// How many leaves a scan asks for together that meets an absent one, when it has come through so many, the present one included.
pub(super) fn wanted_behind(leaves: usize) -> usize {
    (2 * leaves).saturating_sub(1).clamp(1, WINDOW_MAX)
}

/// How far a scan has asked ahead.
pub(super) struct ReadAhead {
    forward: bool,
    /// Leaves that the scan has come through, the present one included.
    behind: usize,
    /// Leaves beyond the last one that was copied which were asked for, or found in memory then.
    ahead: usize,
    next: Next,
    /// The parent, or what leads to it, that was asked for last.
    parent: PageId,
}

/// Where asking goes on.
enum Next {
    /// Where the scan is.
    Here,
    /// With this child of a parent; `None` if it has no further one.
    Child(PageMark, Option<usize>),
    /// Nowhere: the scan's bound was reached, or the tree's end.
    End,
}

impl Default for ReadAhead {
    fn default() -> Self {
        ReadAhead { forward: true, behind: 1, ahead: 0, next: Next::Here, parent: PageId::NONE }
    }
}

impl ReadAhead {
    /// Notes which way the scan goes; a turn forgets what was asked for.
    pub(super) fn goes(&mut self, forward: bool) {
        if self.forward != forward {
            *self = ReadAhead { forward, ..ReadAhead::default() };
        }
    }

    /// Brings the absent neighbour of the leaf at `trail` into memory. `bound` is where the scan ends.
    pub(super) fn fetch<P: Pages>(
        &mut self,
        tree: &Tree<P>,
        id: PageId,
        trail: Trail,
        bound: Option<&[u8]>,
    ) -> Result<()> {
        let waiting = tree.wait.begin();
        let mut session = tree.pool.session_within(&waiting);
        if self.ahead == 0 {
            let child = beside(trail.index, self.forward);
            self.next = Next::Child(trail.parent, child);
            let ids = self.collect(tree, bound, wanted_behind(self.behind));
            session.prefetch(&ids, Access::Scan)?;
        }
        // Whoever else reads it is waited for. What cannot be had is an error of the way from the root,
        // which knows a page that was freed meanwhile from damage.
        session.fault(id, Access::Scan).ok();
        Ok(())
    }

    /// Notes that the scan has come to another leaf, and asks for more if it is time to.
    pub(super) fn advance<P: Pages>(&mut self, tree: &Tree<P>, bound: Option<&[u8]>) {
        self.behind = (self.behind + 1).min(BEHIND_MAX);
        self.ahead = self.ahead.saturating_sub(1);
        // Early enough that they are there when the scan comes, late enough for one that ends soon.
        let enough = (self.behind / 8).min(AHEAD_MAX - WINDOW_MAX);
        if self.behind < BESIDE_FROM || self.ahead > enough || !matches!(self.next, Next::Child(..))
        {
            return;
        }
        let ahead = self.ahead;
        let ids = self.collect(tree, bound, WINDOW_MAX);
        if !ids.is_empty() && !tree.pool.read_ahead(&ids) {
            // They have enough to do: the next absent leaf is where it goes on.
            (self.ahead, self.next) = (ahead, Next::Here);
            self.parent = PageId::NONE;
        }
    }

    /// The absent ones among the next `wanted` leaves, and a parent if it has to be read first.
    fn collect<P: Pages>(
        &mut self,
        tree: &Tree<P>,
        bound: Option<&[u8]>,
        wanted: usize,
    ) -> Vec<PageId> {
        let mut ids = Vec::new();
        let mut seen = 0;
        while seen < wanted {
            let Next::Child(parent, child) = self.next else { break };
            let step = match child {
                Some(child) => self
                    .children(tree, parent, child, wanted - seen, bound, &mut ids)
                    .map(|(count, next)| {
                        seen += count;
                        next
                    }),
                None => self.next_parent(tree, parent, bound),
            };
            match step {
                Ok(next) => self.next = next,
                Err(Restart::Absent(id)) => {
                    if self.parent != id {
                        self.parent = id;
                        ids.push(id);
                    }
                    break;
                }
                Err(_) => {
                    self.next = Next::Here;
                    break;
                }
            }
        }
        self.ahead += seen;
        ids
    }

    /// Adds the absent ones of up to `most` children of a parent, from `child` on. Gives how many it
    /// looked at, and where to go on.
    fn children<P: Pages>(
        &self,
        tree: &Tree<P>,
        parent: PageMark,
        child: usize,
        most: usize,
        bound: Option<&[u8]>,
        ids: &mut Vec<PageId>,
    ) -> Result<(usize, Next), Restart> {
        let page = OptimisticPage::resume(&*tree.pool, parent)?;
        let node = Node::new(page.bytes());
        let (mut first, mut last) = (0, node.count());
        // A bound outside of the node cuts nothing off: the scan is in the node, and goes towards it.
        if let Some(bound) = bound.filter(|bound| node.covers(bound)) {
            *(if self.forward { &mut last } else { &mut first }) = node.child_for(bound).index;
        }
        let known = ids.len();
        let mut at = Some(child);
        let mut seen = 0;
        while seen < most
            && let Some(index) = at.filter(|index| (first..=last).contains(index))
        {
            let id = node.child_at(index);
            if tree.pool.translate(id).is_none() {
                ids.push(id);
            }
            seen += 1;
            at = beside(index, self.forward);
        }
        let is_last = at.is_none_or(|index| !(first..=last).contains(&index));
        if let Err(restart) = page.validate() {
            ids.truncate(known);
            return Err(restart);
        }
        Ok((seen, Next::Child(parent, at.filter(|_| !is_last))))
    }

    /// Goes on to the parent beside one whose children are all asked for.
    fn next_parent<P: Pages>(
        &self,
        tree: &Tree<P>,
        parent: PageMark,
        bound: Option<&[u8]>,
    ) -> Result<Next, Restart> {
        let page = OptimisticPage::resume(&*tree.pool, parent)?;
        let node = Node::new(page.bytes());
        let mut fence = Vec::new();
        let (has_more, target) = match self.forward {
            true => {
                let has_more = node.append_upper_fence(&mut fence)
                    && bound.is_none_or(|bound| !node.is_within_upper(bound));
                (has_more, Target::Above(&fence))
            }
            false => {
                let has_more = node.append_lower_fence(&mut fence)
                    && bound.is_none_or(|bound| !node.is_above_lower(bound));
                (has_more, Target::Key(&fence))
            }
        };
        page.validate()?;
        if !has_more {
            return Ok(Next::End);
        }
        let reached = tree.reach(target, 1)?;
        let node = Node::new(reached.page.bytes());
        let first = if self.forward { 0 } else { node.count() };
        reached.page.validate()?;
        match reached.level {
            1 => Ok(Next::Child(reached.page.mark(), Some(first))),
            // The tree has become lower.
            _ => Ok(Next::Here),
        }
    }
}

impl<P: Pages> Tree<P> {
    /// The absent ones of a window of leaves: from that for `target` on, as far as they have one parent, and up to that for `bound`, if there is one. For
    /// who will come to all of them. A hint: where somebody interferes there are none.
    pub(super) fn absent_leaves(&self, target: Target<'_>, bound: Option<&[u8]>) -> Vec<PageId> {
        let look = || -> Result<Vec<PageId>, Restart> {
            let parent = self.reach(target, 1)?;
            let node = Node::new(parent.page.bytes());
            let last = match bound.filter(|bound| node.covers(bound)) {
                Some(bound) => node.child_for(bound).index,
                None => node.count(),
            };
            let window = (target.child(&node).index..=last).take(WINDOW_MAX);
            let ids = window.map(|index| node.child_at(index));
            let absent = ids.filter(|&id| self.pool.translate(id).is_none()).collect();
            parent.page.validate()?;
            Ok(if parent.level == 1 { absent } else { Vec::new() })
        };
        look().unwrap_or_default()
    }
}

/// The index beside one, in a direction.
pub(super) fn beside(index: usize, forward: bool) -> Option<usize> {
    if forward { index.checked_add(1) } else { index.checked_sub(1) }
}
