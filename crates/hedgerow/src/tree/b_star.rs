//! A competitor of XMerge, for measurements: room for a record as a B*-tree makes it.
//!
//! "Contention and Space Management in B-Trees" (CIDR 2021), section 5.2, compares XMerge with a B*-tree. There a full leaf first
//! shares its records with a neighbour that has room (rotation, 2 leaves to 2). Only if both are full, the two become three. Both are
//! [`Tree::redistribute`]. A handle does this instead of splits if it was made so ([`Tree::with_b_star`]). Only
//! benchmarks do that, so users' builds are without this file.
//!
//! Whatever stands in the way, the leaf is split as usual. So it is where a rotation has left no room where it is wanted, which happens
//! if the lengths of records differ much. Thread-safety: as for [`Tree`].

use super::Tree;
use super::descend::Target;
use super::redistribute::{Group, Outcome};
use super::retry::{Retry, Stop};
use crate::error::Result;
use crate::node::Node;
use crate::page::{OptimisticPage, PagePool, PoolSession};
use crate::types::Purpose;
use crate::wait::Waiting;

/// A rotation leaves so large a part of each page free at least, or the next one would follow at once.
const LEFT_PART: usize = 32;

impl<P: PagePool> Tree<P> {
    /// The same tree, of which this handle and its clones make room in leaves as a B*-tree does.
    pub fn with_b_star(self, is_b_star: bool) -> Self {
        Tree { is_b_star, ..self }
    }

    /// Makes room for a record of `record_bytes` in the leaf for `key`, with a neighbour's help; false if the leaf is to be split.
    ///
    /// Errors: those of changes.
    pub(super) fn make_room_beside<'p>(
        &'p self,
        key: &[u8],
        record_bytes: usize,
        purpose: Purpose,
        retry: &mut Retry<'p, P>,
    ) -> Result<bool> {
        while !retry.is_latched() {
            // One for each neighbour: what a plan does not need goes back to the pool.
            retry.session.reserve(2)?;
            match self.try_beside(key, record_bytes, purpose, &mut retry.session) {
                Ok(is_done) => return Ok(is_done),
                Err(stop) => retry.after(stop)?,
            }
        }
        Ok(false)
    }

    fn try_beside<'p>(
        &'p self,
        key: &[u8],
        record_bytes: usize,
        purpose: Purpose,
        session: &mut P::Session<'p>,
    ) -> Result<bool, Stop> {
        let reached = self.reach(Target::Key(key), 1)?;
        if reached.level == 0 {
            return Ok(false);
        }
        let parent = reached.page;
        let node = Node::new(parent.bytes());
        let (count, own) = (node.count(), Target::Key(key).child(&node).index);
        parent.validate()?;
        let page_bytes = self.pool.page_bytes();
        // With the neighbour on the left, and on the right.
        let firsts = [own.checked_sub(1), Some(own)].into_iter().flatten();
        let mut pairs = Vec::new();
        for first in firsts.filter(|first| *first < count) {
            let leaf = |index| -> Result<OptimisticPage<'p, P>, Stop> {
                Ok(self.open_child(node.child_at(index), &parent, 0)?)
            };
            let leaves = vec![leaf(first)?, leaf(first + 1)?];
            let (layout, other) = (self.layout_of(&leaves[0]), self.layout_of(&leaves[1]));
            let fills = leaves.iter().map(|leaf| self.fill_of(leaf, page_bytes));
            let fills: Option<Vec<_>> = fills.collect();
            leaves.iter().try_for_each(|leaf| leaf.validate())?;
            let may_move = leaves.iter().all(|leaf| self.may_move(leaf));
            if let Some(fills) = fills.filter(|_| layout == other && may_move) {
                let records: usize = fills.iter().map(|fill| fill.0).sum();
                let room: usize = fills.iter().map(|fill| fill.1).sum();
                pairs.push((Group { parent, first, leaves }, records, room));
            }
        }
        let wanted = record_bytes.max(page_bytes / LEFT_PART);
        for (group, records, room) in &pairs {
            if records + 2 * wanted <= *room {
                let enter = || self.pool.enter_to_append(0, purpose, &Waiting::Forever).map(Some);
                let most = page_bytes - wanted;
                if let Outcome::Done { .. } = self.redistribute(group, 2, most, None, enter)? {
                    return Ok(true);
                }
            }
        }
        for (group, ..) in &pairs {
            let enter = || self.pool.enter_to_append(0, purpose, &Waiting::Forever).map(Some);
            let most = page_bytes - record_bytes;
            if let Outcome::Done { .. } =
                self.redistribute(group, 3, most, Some(&mut *session), enter)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
