//! XMerge under pressure: a dirty leaf and its neighbours before the leaf is written to make room in memory.
//!
//! Only leaves that are in memory take part, and at most one of them is clean: so a merge of X leaves writes X - 1 of them
//! later, and would have written as many without. The result is at most thirteen sixteenths full: where keys come at
//! random, leaves that were filled further are all split again soon, and then the merge was for nothing. Whoever calls may
//! not wait, so nothing is faulted in and nothing is tried twice.
//!
//! Thread-safety: as for [`Tree`].

use super::Tree;
use super::compact::upper_fence;
use super::descend::Target;
use super::redistribute::{Group, MOST_LEAVES, Outcome};
use super::retry::Stop;
use crate::error::Result;
use crate::node::{LeafLayout, Node};
use crate::page::{FrameId, OptimisticPage, PagePool, Restart, header};
use crate::types::PageId;
use crate::wait::Waiting;
use hedgerow_sync::optimistic::PageBytes;

/// Leaves of a group at most that would not be written anyway.
const MOST_CLEAN: usize = 1;
/// Part of a page that a leaf may use after a merge under pressure, in sixteenths. With fifteen there are three times as many
/// merges for the same number of leaves and writes (`docs/contention.md`, C6).
const RELIEVED_SIXTEENTHS: usize = 13;

/// A leaf that may take part in a merge.
struct Member<'p, P: PagePool> {
    page: OptimisticPage<'p, P>,
    records: usize,
    room: usize,
    is_dirty: bool,
}

impl<P: PagePool> Tree<P> {
    /// Merges the leaf in page `leaf` with neighbours in memory, if the records of a group with at most one clean leaf fit
    /// into one leaf fewer. `is_dirty` tells of a frame whether its page is; `enter` enters the epoch, or gives `None` if
    /// that cannot be done now. Waits for nothing. Tells whether it did.
    ///
    /// Errors: `KeyspaceDropped`, and those of `enter`. On any interference nothing has changed, and that is no error.
    pub fn merge_before_write<'p>(
        &'p self,
        leaf: PageId,
        is_dirty: impl Fn(FrameId) -> bool,
        enter: impl FnOnce() -> Result<Option<P::EpochGuard<'p>>>,
    ) -> Result<bool> {
        let limit = self.pool.page_bytes() * RELIEVED_SIXTEENTHS / 16;
        let merge = || match self.has_room_for_others(leaf, limit)? {
            true => self.try_merge_group(leaf, limit, is_dirty, enter),
            false => Ok(false),
        };
        match merge() {
            Ok(is_merged) => {
                if is_merged {
                    self.note_merging(1, |counters| &counters.under_pressure);
                }
                Ok(is_merged)
            }
            Err(Stop::Restart(Restart::Foreign(_))) => Err(super::retry::dropped()),
            Err(Stop::Restart(_)) => Ok(false),
            Err(Stop::Error(error)) => Err(error),
        }
    }

    /// Whether a look at the neighbours of a leaf is worth it: a third of what it may hold is free. A group that fits has a leaf with
    /// at least a fifth free, which is offered itself; there are few groups with none that has a third.
    fn has_room_for_others(&self, leaf: PageId, most_bytes: usize) -> Result<bool, Restart> {
        let page = OptimisticPage::open(&*self.pool, leaf, None)?;
        let fill = self.fill_of(&page, most_bytes);
        page.validate()?;
        Ok(fill.is_some_and(|(records, room)| 3 * records <= 2 * room))
    }

    /// Merges the smallest group around the leaf that fits into one leaf fewer, each of which uses `most_bytes` at most.
    pub(super) fn try_merge_group<'p>(
        &'p self,
        leaf: PageId,
        most_bytes: usize,
        is_dirty: impl Fn(FrameId) -> bool,
        enter: impl FnOnce() -> Result<Option<P::EpochGuard<'p>>>,
    ) -> Result<bool, Stop> {
        let page = OptimisticPage::open(&*self.pool, leaf, None)?;
        let is_ours = page.bytes().field_u32::<{ header::TREE_ID }>() == self.id.0
            && page.bytes().field_u8::<{ header::LEVEL }>() == 0;
        let fence = upper_fence(&Node::new(page.bytes()));
        page.validate()?;
        if !is_ours {
            return Ok(false);
        }
        let target = fence.as_deref().map_or(Target::Last, Target::Key);
        let reached = self.reach(target, 1)?;
        if reached.level == 0 {
            return Ok(false);
        }
        let parent = reached.page;
        let node = Node::new(parent.bytes());
        let (count, at) = (node.count(), target.child(&node));
        parent.validate()?;
        if at.child != leaf {
            return Ok(false);
        }
        let layout = self.layout_of(&page);
        let member = |index: usize, clean: &mut usize| {
            let id = node.child_at(index);
            let page = self.open_child(id, &parent, 0)?;
            let is_dirty = is_dirty(page.frame());
            *clean += usize::from(!is_dirty);
            // No group reaches beyond a second clean one: how full it is need not be known.
            if *clean > MOST_CLEAN {
                return Ok(None);
            }
            self.member(page, layout, most_bytes, is_dirty)
        };
        let mut own_clean = 0;
        let Some(own) = member(at.index, &mut own_clean)? else { return Ok(false) };
        // Neighbours on both sides, up to the first that does not take part.
        let neighbours = |indices: &mut dyn Iterator<Item = usize>, members: &mut Vec<_>| {
            let mut clean = own_clean;
            for index in indices.take(MOST_LEAVES - 1) {
                match member(index, &mut clean) {
                    Ok(Some(member)) => members.push(member),
                    Ok(None) | Err(Restart::Absent(_) | Restart::Conflict) => break,
                    Err(restart) => return Err(restart),
                }
            }
            Ok(())
        };
        let mut members = Vec::with_capacity(2 * MOST_LEAVES - 1);
        neighbours(&mut (0..at.index).rev(), &mut members)?;
        members.reverse();
        let own_index = members.len();
        members.push(own);
        neighbours(&mut (at.index + 1..=count), &mut members)?;
        let Some(range) = choose(&members, own_index) else { return Ok(false) };
        let leaves = members[range.clone()].iter().map(|member| member.page).collect();
        let group = Group { parent, first: at.index - own_index + range.start, leaves };
        let into = group.leaves.len() - 1;
        let outcome = self.redistribute(&group, into, most_bytes, None, enter)?;
        Ok(matches!(outcome, Outcome::Done { .. }))
    }

    /// What is to be known of a leaf; `None` if it does not take part.
    fn member<'p>(
        &self,
        page: OptimisticPage<'p, P>,
        layout: LeafLayout,
        most_bytes: usize,
        is_dirty: bool,
    ) -> Result<Option<Member<'p, P>>, Restart> {
        let fill = self.fill_of(&page, most_bytes);
        let is_alike = self.layout_of(&page) == layout && self.may_move(&page);
        page.validate()?;
        let fill = fill.filter(|_| is_alike);
        Ok(fill.map(|(records, room)| Member { page, records, room, is_dirty }))
    }

    /// Merges the leaf for `key` with its neighbours up to full pages, wherever that can be done at once.
    #[cold]
    pub(super) fn merge_group_around(&self, key: &[u8]) -> Result<bool, Stop> {
        let leaf = self.leaf_for(key)?;
        let enter = || self.pool.enter_to_free(&Waiting::Forever).map(Some);
        self.try_merge_group(leaf.id(), self.pool.page_bytes(), |_| true, enter)
    }
}

/// The smallest group with `own` in it that is worth a plan: at most one of it is clean, and the records are likely to fit.
fn choose<P: PagePool>(members: &[Member<'_, P>], own: usize) -> Option<std::ops::Range<usize>> {
    let is_worth = |group: &[Member<'_, P>]| {
        let records: usize = group.iter().map(|member| member.records).sum();
        let room: usize = group[..group.len() - 1].iter().map(|member| member.room).sum();
        let clean = group.iter().filter(|member| !member.is_dirty).count();
        clean <= MOST_CLEAN && records <= room
    };
    (2..=MOST_LEAVES.min(members.len())).find_map(|len| {
        let starts = (own + 1).saturating_sub(len)..=own.min(members.len() - len);
        let mut groups = starts.map(|start| start..start + len);
        groups.find(|range| is_worth(&members[range.clone()]))
    })
}
