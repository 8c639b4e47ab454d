//! Fewer leaves for the same records, on request: a walk over the leaves that merges groups of them.
//!
//! From each leaf on, the smallest group is taken whose records fit into one leaf fewer (`redistribute`); when none of up
//! to five leaves does, the walk goes on to the next leaf. So a leaf that was merged is looked at again together with the
//! leaves behind it, and full pages come out. A dense leaf has a place for each number between its fences, and no records to be
//! spread: it becomes one with its neighbour if they fit. Leaves that are not in memory are read ahead in windows.
//!
//! Other threads go on: the latches of a group are held while its pages are copied in. A group that others keep busy, or
//! whose pages do not stay in memory together, is passed over. So the walk ends, whatever others do.
//!
//! Invariants: nothing is latched and no epoch entered while the walk waits. Thread-safety: as for [`Tree`].

use super::descend::Target;
use super::descend::Trail;
use super::read_ahead::ReadAhead;
use super::redistribute::{Group, MOST_LEAVES, Outcome};
use super::retry::{Retry, Stop};
use super::{Tree, successor};
use crate::error::{Error, ErrorKind, Result};
use crate::node::{Leaf, Node, plain_leaf};
use crate::page::{Access, OptimisticPage, PagePool, Restart};
use crate::wait::Waiting;
use hedgerow_sync::optimistic::PageBytes;
use std::fmt;
use std::ops::ControlFlow;

/// How often a group is tried again because others interfered.
const TRIES: u32 = 4;

/// How often a group is tried again because a page of it was not in memory, or a checkpoint needed one as it is.
const FAULTS: u32 = 32;

/// How far a compaction goes. See [`Keyspace::compact`](crate::Keyspace::compact).
#[derive(Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct CompactBudget {
    most_pages: Option<u64>,
    from: Vec<u8>,
}

impl CompactBudget {
    /// All leaves of the keyspace.
    pub fn unlimited() -> CompactBudget {
        CompactBudget::default()
    }

    /// Until so many pages were rewritten, or a few more. [`CompactReport::next`] then says where to go on.
    pub fn pages(most_pages: u64) -> CompactBudget {
        CompactBudget { most_pages: Some(most_pages), from: Vec::new() }
    }

    /// The same, from the leaf that `key` belongs to on: [`CompactReport::next`] of an earlier call, for example.
    pub fn starting_at(self, key: &[u8]) -> CompactBudget {
        CompactBudget { from: key.to_vec(), ..self }
    }
}

/// What a compaction has done. [`Keyspace::compact`](crate::Keyspace::compact) returns it.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompactReport {
    /// Leaves that were there, or that the walk came to.
    pub leaves: u64,
    /// Groups of leaves that were merged into one leaf fewer.
    pub groups: u64,
    /// Pages that this has freed, one for each group. Nodes above that merge in turn, and leaves between those, do not count.
    pub pages_freed: u64,
    /// Pages that the records went to. A page counts each time.
    pub pages_written: u64,
    /// Groups that were passed over because other threads kept them busy, or memory was short.
    pub passed_over: u64,
    /// Where to go on; `None` if the walk has come to the end of the keyspace.
    pub next: Option<Vec<u8>>,
}

impl CompactReport {
    /// Adds the figures of another keyspace.
    pub(crate) fn add(&mut self, other: &CompactReport) {
        self.leaves += other.leaves;
        self.groups += other.groups;
        self.pages_freed += other.pages_freed;
        self.pages_written += other.pages_written;
        self.passed_over += other.passed_over;
    }
}

// By hand, both: keys are nobody's business.
impl fmt::Debug for CompactBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactBudget")
            .field("most_pages", &self.most_pages)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for CompactReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompactReport")
            .field("leaves", &self.leaves)
            .field("groups", &self.groups)
            .field("pages_freed", &self.pages_freed)
            .field("pages_written", &self.pages_written)
            .field("passed_over", &self.passed_over)
            .finish_non_exhaustive()
    }
}

/// Where the walk is.
enum Position {
    /// At the leaf for this key.
    At(Vec<u8>),
    /// At the leaf behind this fence.
    Behind(Vec<u8>),
}

impl Position {
    fn target(&self) -> Target<'_> {
        match self {
            Position::At(key) => Target::Key(key),
            Position::Behind(fence) => Target::Above(fence),
        }
    }

    /// Whether the leaf behind a fence lies behind this one.
    fn is_before(&self, fence: &[u8]) -> bool {
        match self {
            Position::At(key) => key.as_slice() <= fence,
            Position::Behind(last) => last.as_slice() < fence,
        }
    }

    /// A key that leads to the same leaf.
    fn key(&self) -> Vec<u8> {
        match self {
            Position::At(key) => key.clone(),
            Position::Behind(fence) => successor(fence),
        }
    }
}

/// What came of a look at a leaf and those behind it.
enum Looked {
    /// A group of so many leaves has become one leaf fewer.
    Merged { leaves: usize, is_parent_sparse: bool },
    /// There is nothing to gain. Where the next leaf begins; `None` behind the last one.
    Nothing(Option<Vec<u8>>),
}

impl<P: PagePool> Tree<P> {
    /// Merges leaves whose records fit into fewer, from the first one of the budget on. `progress` gets the number of
    /// leaves that were passed so far, at each of them; `Break` ends the call with `Cancelled`.
    ///
    /// Errors: those of changes. What was merged before stays merged.
    pub fn compact(
        &self,
        budget: &CompactBudget,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<CompactReport> {
        // Whoever may change nothing is told so, even if there is nothing to gain.
        drop(self.pool.enter()?);
        let longest = self.max_key_bytes() + 1;
        let from = budget.from.get(..longest).unwrap_or(&budget.from);
        let mut position = Position::At(from.to_vec());
        let mut done = CompactReport::default();
        let mut ahead = ReadAhead::default();
        loop {
            if budget.most_pages.is_some_and(|most| done.pages_written >= most) {
                done.next = Some(position.key());
                return Ok(done);
            }
            match self.compact_from(&position, &mut ahead, &mut done)? {
                Looked::Merged { leaves, is_parent_sparse } => {
                    done.groups += 1;
                    done.pages_freed += 1;
                    done.pages_written += leaves as u64 - 1;
                    // One leaf has gone, which the walk has not come to.
                    done.leaves += 1;
                    if is_parent_sparse {
                        let waiting = Waiting::Forever;
                        let retry = Retry::new(&*self.pool, self.root, Access::Scan, &waiting);
                        self.merge_from(1, &position.key(), retry);
                    }
                }
                Looked::Nothing(next) => {
                    done.leaves += 1;
                    let Some(fence) = next else { return Ok(done) };
                    // Each leaf reaches beyond the last one: damage must not send the walk round in circles.
                    if !position.is_before(&fence) {
                        let what = "a leaf out of order somewhere below it";
                        return Err(Error::corrupted_page(self.root, what));
                    }
                    position = Position::Behind(fence);
                    ahead.advance(self, None);
                }
            }
            if progress(done.leaves).is_break() {
                return Err(Error::new(ErrorKind::Cancelled, "the compaction was cancelled"));
            }
        }
    }

    /// Looks at the leaf of a position until something has come of it.
    fn compact_from(
        &self,
        position: &Position,
        ahead: &mut ReadAhead,
        done: &mut CompactReport,
    ) -> Result<Looked> {
        let waiting = Waiting::Forever;
        let mut retry = Retry::new(&*self.pool, self.root, Access::Scan, &waiting);
        let (mut tries, mut faults) = (0, 0);
        while tries < TRIES && faults < FAULTS {
            match self.try_compact(position.target(), faults == 0, ahead) {
                Ok(looked) => return Ok(looked),
                Err(stop) => {
                    match stop {
                        Stop::Restart(Restart::Absent(_) | Restart::Owed) => faults += 1,
                        _ => tries += 1,
                    }
                    retry.after(stop)?;
                }
            }
        }
        done.passed_over += 1;
        self.next_leaf(position.target(), &mut retry).map(Looked::Nothing)
    }

    /// Where the leaf behind that of a target begins. Latches the leaf when others keep changing it.
    fn next_leaf<'p>(
        &'p self,
        target: Target<'_>,
        retry: &mut Retry<'p, P>,
    ) -> Result<Option<Vec<u8>>> {
        loop {
            let found = if retry.is_latched() {
                let leaf = self.share_leaf(target, retry.patience());
                leaf.map(|leaf| upper_fence(&plain_leaf(leaf.bytes()).as_node()))
            } else {
                self.reach(target, 0).and_then(|reached| fence_of(&reached.page))
            };
            match found {
                Ok(fence) => return Ok(fence),
                Err(restart) => retry.after(restart)?,
            }
        }
    }

    /// Merges the smallest group from the leaf of `target` on that fits into one leaf fewer.
    fn try_compact(
        &self,
        target: Target<'_>,
        asks_ahead: bool,
        ahead: &mut ReadAhead,
    ) -> Result<Looked, Stop> {
        let reached = self.reach(target, 1)?;
        if reached.level == 0 {
            return Ok(Looked::Nothing(None));
        }
        let parent = reached.page;
        let node = Node::new(parent.bytes());
        let count = node.count();
        let first = target.child(&node).index;
        let page_bytes = self.pool.page_bytes();
        let mut group = Group { parent, first, leaves: Vec::with_capacity(MOST_LEAVES) };
        let (mut records, mut room, mut layout) = (0, 0, None);
        let (mut next, mut dense) = (None, None);
        for index in first..=count.min(first + MOST_LEAVES - 1) {
            let id = node.child_at(index);
            let leaf = match self.open_child(id, &parent, 0) {
                Err(Restart::Absent(_)) if asks_ahead => {
                    let trail = Trail { parent: parent.mark(), index: index.saturating_sub(1) };
                    ahead.fetch(self, id, trail, None)?;
                    self.open_child(id, &parent, 0)?
                }
                other => other?,
            };
            if index == first {
                next = fence_of(&leaf)?;
            }
            if let Some(left) = dense.take().or_else(|| group.leaves.first().copied())
                && index == first + 1
                && (self.layout_of(&left).is_dense() || self.layout_of(&leaf).is_dense())
                && self.may_move(&left)
                && self.may_move(&leaf)
            {
                return match self.merge_neighbours(parent, first, left, leaf)? {
                    true => Ok(Looked::Merged { leaves: 2, is_parent_sparse: true }),
                    false => Ok(Looked::Nothing(next)),
                };
            }
            if index == first && self.layout_of(&leaf).is_dense() {
                dense = Some(leaf);
                continue;
            }
            let fill = self.fill_of(&leaf, page_bytes);
            let (of, is_last) = (self.layout_of(&leaf), fence_of(&leaf)?.is_none());
            leaf.validate()?;
            let Some((its_records, its_room)) = fill.filter(|_| self.may_move(&leaf)) else {
                break;
            };
            if *layout.get_or_insert(of) != of {
                break;
            }
            group.leaves.push(leaf);
            records += its_records;
            // The last leaf of a tree has no prefix, and its records may get one.
            let is_worth_a_plan = group.leaves.len() > 1 && (records <= room || is_last);
            room += its_room;
            if !is_worth_a_plan {
                continue;
            }
            let leaves = group.leaves.len();
            // Not as who gives space back: on a full disk the last few slots are for removals, and a group may need more.
            let enter = || self.pool.enter().map(Some);
            match self.redistribute(&group, leaves - 1, page_bytes, None, enter)? {
                Outcome::Done { is_parent_sparse } => {
                    return Ok(Looked::Merged { leaves, is_parent_sparse });
                }
                Outcome::DoesNotFit | Outcome::Busy => {}
            }
        }
        parent.validate()?;
        Ok(Looked::Nothing(next))
    }
}

/// The upper fence of a leaf, validated.
fn fence_of<P: PagePool>(leaf: &OptimisticPage<'_, P>) -> Result<Option<Vec<u8>>, Restart> {
    let fence = upper_fence(&Leaf::new(leaf.bytes()).as_node());
    leaf.validate()?;
    Ok(fence)
}

/// The upper fence of a node; unvalidated.
pub(super) fn upper_fence<B: PageBytes>(node: &Node<B>) -> Option<Vec<u8>> {
    let mut fence = Vec::new();
    node.append_upper_fence(&mut fence).then_some(fence)
}
