//! Spreads the records of neighbouring leaves over another number of leaves: XMerge, and what a B*-tree does (`b_star.rs`).
//!
//! "Contention and Space Management in B-Trees" (CIDR 2021), section 4: up to five leaves that are together less than
//! full become one leaf fewer. The leaves stand side by side under one parent and have one slotted layout; a dense leaf
//! ends a group. Records are spread evenly. All of it happens, or nothing does.
//!
//! It goes in two steps. The plan is made from copies, with nothing latched: new pages for the leaves and for the parent.
//! Then the parent and the leaves are latched by upgrades, the parent first, then the leaves from left to right. An upgrade
//! proves that the page is what was copied, so the planned pages are copied in. So the latches are held for no longer
//! than a copy takes.
//!
//! A redistribution is never needed: on interference it is given up. Nothing is logged, because the same records are
//! there.
//!
//! Invariants: parent and leaves are latched all at once before anything changes, and are stamped with one epoch; the
//! newest LSN of each leaf that is left is the largest of the group. Thread-safety: as for [`Tree`].

use super::Tree;
use super::descend::plain;
use super::retry::Stop;
use super::sparse::{is_sparse, record_bytes};
use crate::error::Result;
use crate::node::{self, Leaf, LeafLayout, NodeMut, plain_leaf};
use crate::page::{
    EpochStay, ExclusivePage, Merging, OptimisticPage, PagePool, PoolSession, Restart, header,
};
use crate::types::{Epoch, PageId};
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// Most leaves of a group (the paper's K: larger ones gain little, appendix B).
pub(super) const MOST_LEAVES: usize = 5;

/// Neighbouring leaves, as they were when they were looked at. Nothing is held.
pub(super) struct Group<'p, P: PagePool> {
    pub(super) parent: OptimisticPage<'p, P>,
    /// Index in the parent of the first one.
    pub(super) first: usize,
    pub(super) leaves: Vec<OptimisticPage<'p, P>>,
}

/// How a redistribution came out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// It is done.
    Done {
        /// The parent has few children now: a neighbour may take it in.
        is_parent_sparse: bool,
    },
    /// The records, or the separators in the parent, do not fit. Nothing has changed.
    DoesNotFit,
    /// There is no entering just now. Nothing has changed.
    Busy,
}

/// What is to be copied in.
struct Plan {
    leaves: Vec<Box<[u8]>>,
    parent: Box<[u8]>,
}

impl<P: PagePool> Tree<P> {
    /// Spreads what the leaves of a group hold evenly over `into` leaves, each of which then uses `most_bytes` of its page at most.
    /// These are the first ones of the group, and the others are freed; or all of them, and fresh pages behind them that `session` has
    /// reserved. `enter` enters the epoch, or gives `None` if that cannot be done now.
    ///
    /// Errors: interference, after which nothing has changed; those of `enter`.
    pub(super) fn redistribute<'p>(
        &'p self,
        group: &Group<'p, P>,
        into: usize,
        most_bytes: usize,
        session: Option<&mut P::Session<'p>>,
        enter: impl FnOnce() -> Result<Option<P::EpochGuard<'p>>>,
    ) -> Result<Outcome, Stop> {
        if let Some(session) = session.filter(|_| into > group.leaves.len()) {
            let Some(stay) = enter()? else { return Ok(self.busy()) };
            let take = |_| session.take(self.id, stay.epoch());
            let mut fresh: Vec<_> = (group.leaves.len()..into).map_while(take).collect();
            let ids: Vec<PageId> = fresh.iter().map(|page| page.id()).collect();
            let is_enough = group.leaves.len() + ids.len() == into;
            let done = match self.plan(group, into, most_bytes, &ids) {
                _ if !is_enough => Ok(self.busy()),
                Ok(Some(plan)) => self.carry_out(group, &plan, stay.epoch(), &mut fresh),
                Ok(None) => Ok(self.full()),
                Err(restart) => Err(restart.into()),
            };
            // What has a place in the tree is not among them any more.
            fresh.into_iter().for_each(|page| self.pool.free(page, stay.epoch()));
            return done;
        }
        debug_assert!((1..=group.leaves.len()).contains(&into));
        let Some(plan) = self.plan(group, into, most_bytes, &[])? else { return Ok(self.full()) };
        let Some(stay) = enter()? else { return Ok(self.busy()) };
        self.carry_out(group, &plan, stay.epoch(), &mut Vec::new())
    }

    /// Latches parent and leaves, and copies a plan in. Takes the fresh pages that get something.
    fn carry_out<'p>(
        &'p self,
        group: &Group<'p, P>,
        plan: &Plan,
        epoch: Epoch,
        fresh: &mut Vec<ExclusivePage<'p, P>>,
    ) -> Result<Outcome, Stop> {
        let mut parent = group.parent.upgrade().inspect_err(|_| self.count_busy())?;
        let mut latched = Vec::with_capacity(plan.leaves.len().max(group.leaves.len()));
        for leaf in &group.leaves {
            match leaf.upgrade() {
                Ok(leaf) => latched.push(leaf),
                Err(restart) => {
                    latched.into_iter().rev().for_each(|leaf| leaf.release_unchanged());
                    parent.release_unchanged();
                    self.count_busy();
                    return Err(restart.into());
                }
            }
        }
        latched.append(fresh);
        let into = plan.leaves.len();
        node::copy_node(parent.write(epoch), &plan.parent);
        for (leaf, planned) in latched.iter_mut().zip(&plan.leaves) {
            node::copy_node(leaf.write(epoch), planned);
            self.note_merge(leaf.frame(), false);
        }
        for leaf in latched.drain(into..) {
            self.pool.free(leaf, epoch);
        }
        let fewer = group.leaves.len().saturating_sub(into);
        if fewer > 0 {
            self.note_merging(1, |counters| &counters.groups);
            self.note_merging(fewer, |counters| &counters.pages_freed);
            self.note_merging(into, |counters| &counters.leaves_written);
        }
        let is_parent_sparse = is_sparse(&plain_leaf(&plan.parent));
        Ok(Outcome::Done { is_parent_sparse })
    }

    fn full(&self) -> Outcome {
        self.note_merging(1, |counters| &counters.gave_up_full);
        Outcome::DoesNotFit
    }

    fn busy(&self) -> Outcome {
        self.count_busy();
        Outcome::Busy
    }

    /// The pages that a redistribution leaves, from copies of those that there are, with `fresh` ones behind them. `None`: it
    /// does not fit.
    fn plan(
        &self,
        group: &Group<'_, P>,
        into: usize,
        most_bytes: usize,
        fresh: &[PageId],
    ) -> Result<Option<Plan>, Restart> {
        let copies = group.leaves.iter().map(|leaf| self.copy_page(leaf));
        let copies = copies.collect::<Result<Vec<_>, _>>()?;
        let mut parent = self.copy_page(&group.parent)?;
        let last = group.first + copies.len() - 1;
        let is_inner = header::level(&parent) == 1 && last <= plain(&parent).count();
        if !is_inner || copies.iter().any(|leaf| header::level(leaf) != 0) {
            return Err(Restart::Corrupt(group.parent.id()));
        }
        let leaves: Vec<&[u8]> = copies.iter().map(|copy| &**copy).collect();
        // A plan would cover the gap up, and nobody would learn of the records that are missing.
        if leaves.windows(2).any(|pair| !plain(pair[0]).meets(&plain(pair[1]))) {
            group.leaves.iter().try_for_each(|leaf| leaf.validate())?;
            return Err(Restart::Corrupt(group.parent.id()));
        }
        let Some(spread) = node::spread_leaves(&leaves, into, most_bytes) else {
            return Ok(None);
        };
        let mut node = NodeMut::new(&mut parent);
        for _ in group.first..last {
            node.remove_child(group.first);
        }
        let rights = group.leaves[1..].iter().map(|leaf| leaf.id()).chain(fresh.iter().copied());
        let separators = spread.separators.iter().zip(rights);
        for (index, (separator, right)) in separators.enumerate() {
            // Separators may be longer than those that they replace.
            let fits = node.fits_separator(separator.len());
            if !fits || node.insert_child(group.first + index, separator, right).is_err() {
                return Ok(None);
            }
        }
        Ok(Some(Plan { leaves: spread.pages, parent }))
    }

    /// Bytes that the records of a leaf take, and that it has for records if it may use `most_bytes` of its page: what
    /// tells whether a plan is worth its copies. `None`: the leaf ends a group.
    pub(super) fn fill_of(
        &self,
        leaf: &OptimisticPage<'_, P>,
        most_bytes: usize,
    ) -> Option<(usize, usize)> {
        let leaf = Leaf::new(leaf.bytes());
        if leaf.layout().is_dense() {
            return None;
        }
        let records = record_bytes(&leaf);
        let fixed = leaf.used_bytes().saturating_sub(records);
        Some((records, most_bytes.saturating_sub(fixed)))
    }

    /// Whether a leaf may take part in a redistribution: not while it is hot, or the threads that it was split for would meet again.
    pub(super) fn may_move(&self, leaf: &OptimisticPage<'_, P>) -> bool {
        !self.pool.is_hot(leaf.frame())
    }

    /// The layout of a leaf, which all leaves of its group have.
    pub(super) fn layout_of(&self, leaf: &OptimisticPage<'_, P>) -> LeafLayout {
        Leaf::new(leaf.bytes()).layout()
    }

    fn count_busy(&self) {
        self.note_merging(1, |counters| &counters.gave_up_busy);
    }

    /// Adds to one of the pool's counters.
    pub(super) fn note_merging(&self, more: usize, which: impl FnOnce(&Merging) -> &AtomicU64) {
        if let Some(counters) = self.pool.merging() {
            which(counters).fetch_add(more as u64, Relaxed);
        }
    }
}
