//! Finding a record by an order that the keys of the tree do not tell, but the records do.
//!
//! The records of an interval of keys are in the order of something that each of them has in its value. On the way down, the children of a
//! node are bisected: of one in the middle the first record is compared. So a search compares about log2 of the records, whatever their keys are, where
//! bisecting the keys takes as many steps as the keys have bits if they are spread badly.
//!
//! Invariants: each record that is compared was in a validated copy of its leaf; a node's children are those of one version. So a record that
//! is there all the time, under one key, is found. Thread-safety: as for [`Tree`].

use super::Tree;
use super::retry::{Retry, Stop};
use crate::error::Result;
use crate::node::{Leaf, Node, plain_leaf};
use crate::page::{Access, OptimisticPage, Pages, PoolSession, Restart};
use std::cmp::Ordering;

/// Pages that are read for a search at most. What one pass needs is not kept in memory, so that in a small pool it may go again before the next pass.
const MOST_FAULTS: u32 = 64;

/// The interval that is searched, without its ends. Each comparison narrows it, so that no record is compared that others have shown to lie outside.
struct Interval {
    lower: Vec<u8>,
    upper: Vec<u8>,
}

impl Interval {
    fn narrow(&mut self, key: &[u8], order: Ordering) {
        let end = match order {
            Ordering::Less => &mut self.upper,
            Ordering::Greater => &mut self.lower,
            Ordering::Equal => return,
        };
        end.clear();
        end.extend_from_slice(key);
    }
}

/// A copy of a leaf and room for a key of it, which have the size of a page; and a record that was copied alone.
struct Copy {
    leaf: Vec<u8>,
    key: Vec<u8>,
    record: (Vec<u8>, Vec<u8>),
}

impl<P: Pages> Tree<P> {
    /// Searches the records between two keys, both left out, by `order`: how what is sought compares with a record, of which it gets key and value.
    /// Whether there was an equal one, which then was compared last. `None`: nothing can be said, because `order` has said so, others have interfered
    /// three times, pages went as fast as they came, somebody changes records alone, or a leaf has no records. Then what was compared holds all the same, and
    /// cursors find the rest.
    ///
    /// `order` is called with nothing held, and may read. An equal record may be compared more than once, with another value by then.
    ///
    /// Errors: those of [`Tree::get`] and of `order`.
    pub fn search_by(
        &self,
        (lower, upper): (&[u8], &[u8]),
        mut order: impl FnMut(&[u8], &[u8]) -> Result<Option<Ordering>>,
    ) -> Result<Option<bool>> {
        let turns = self.pool.alone_turns();
        let waiting = self.wait.begin();
        let mut retry = Retry::new(&*self.pool, self.root, Access::Point, &waiting);
        let page_bytes = self.pool.page_bytes();
        let (leaf, key) = (vec![0; page_bytes], vec![0; page_bytes]);
        let mut copy = Copy { leaf, key, record: (Vec::new(), Vec::new()) };
        let mut within = Interval { lower: lower.to_vec(), upper: upper.to_vec() };
        let mut faults = 0;
        let found = loop {
            let mut ask = |key: &[u8], value: &[u8]| {
                // Who has a place in the pool and waits for another may wait for ever.
                retry.session.let_go();
                order(key, value)
            };
            match self.try_search_by(&mut within, &mut copy, &mut ask) {
                Ok(found) => break found,
                Err(stop) => {
                    faults += u32::from(matches!(stop, Stop::Restart(Restart::Absent(_))));
                    retry.after(stop)?;
                }
            }
            if retry.is_latched() || faults > MOST_FAULTS {
                return Ok(None);
            }
        };
        Ok(found.filter(|_| self.nobody_alone_since(turns).is_ok()))
    }

    fn try_search_by(
        &self,
        within: &mut Interval,
        copy: &mut Copy,
        order: &mut impl FnMut(&[u8], &[u8]) -> Result<Option<Ordering>>,
    ) -> Result<Option<bool>, Stop> {
        let (mut page, mut level) = self.open_root()?;
        while level > 0 {
            page.note_use();
            level -= 1;
            let node = Node::new(page.bytes());
            // Searches in a node are for keys between its fences.
            let (mut low, mut high) = (0, node.count());
            if node.is_above_lower(&within.lower) {
                low = node.child_for(&within.lower).index;
            }
            if node.is_within_upper(&within.upper) {
                high = node.child_for(&within.upper).index;
            }
            while low < high {
                let middle = (low + high).div_ceil(2);
                let child = self.open_child(node.child_at(middle), &page, level)?;
                let leaf = self.first_leaf(child, level)?;
                leaf.note_use();
                if !self.copy_first(&leaf, copy)? {
                    return Ok(None);
                }
                match compare(within, &copy.record, order)? {
                    None => return Ok(None),
                    Some(Ordering::Equal) => return Ok(Some(true)),
                    Some(Ordering::Less) => high = middle - 1,
                    Some(Ordering::Greater) => low = middle,
                }
            }
            // With it the node is validated, which may have changed since the first of its children was looked at.
            page = self.open_child(node.child_at(low), &page, level)?;
        }
        page.note_use();
        self.copy_out(&page, &mut copy.leaf)?;
        Ok(bisect(within, copy, order)?)
    }

    /// Copies the first record of a leaf: alone, if the leaf is one of comparisons. False if it has none.
    fn copy_first(&self, page: &OptimisticPage<'_, P>, copy: &mut Copy) -> Result<bool, Restart> {
        let (key, value) = &mut copy.record;
        key.clear();
        value.clear();
        if let Leaf::Comparison(leaf) = Leaf::new(page.bytes()) {
            let is_there = leaf.count() > 0;
            if is_there {
                leaf.append_key(0, key);
                leaf.append_value(0, value);
            }
            page.validate()?;
            return Ok(is_there);
        }
        self.copy_out(page, &mut copy.leaf)?;
        let leaf = plain_leaf(&copy.leaf);
        let place = leaf.next_place(0);
        let is_there = place < leaf.end();
        if is_there {
            leaf.append_key(place, key);
            leaf.append_value(place, value);
        }
        Ok(is_there)
    }

    /// The first leaf below a node of `level`.
    fn first_leaf<'p>(
        &'p self,
        node: OptimisticPage<'p, P>,
        level: u8,
    ) -> Result<OptimisticPage<'p, P>, Restart> {
        let (mut page, mut level) = (node, level);
        while level > 0 {
            page.note_use();
            level -= 1;
            let child = Node::new(page.bytes()).child_at(0);
            page = self.open_child(child, &page, level)?;
        }
        Ok(page)
    }
}

/// Compares with a record; `None` if `order` does not say.
fn compare(
    within: &mut Interval,
    (key, value): &(Vec<u8>, Vec<u8>),
    order: &mut impl FnMut(&[u8], &[u8]) -> Result<Option<Ordering>>,
) -> Result<Option<Ordering>> {
    if *key <= within.lower {
        return Ok(Some(Ordering::Greater));
    }
    if *key >= within.upper {
        return Ok(Some(Ordering::Less));
    }
    let answer = order(key, value)?;
    answer.into_iter().for_each(|answer| within.narrow(key, answer));
    Ok(answer)
}

/// Searches the copy of a leaf.
fn bisect(
    within: &mut Interval,
    copy: &mut Copy,
    order: &mut impl FnMut(&[u8], &[u8]) -> Result<Option<Ordering>>,
) -> Result<Option<bool>> {
    let leaf = plain_leaf(&copy.leaf);
    let (mut low, mut high) = (0, leaf.end());
    if leaf.as_node().is_above_lower(&within.lower) {
        let at = leaf.search(&within.lower);
        low = at.index + usize::from(at.found);
    }
    if leaf.as_node().is_within_upper(&within.upper) {
        high = leaf.search(&within.upper).index;
    }
    let prefix_len = leaf.copy_prefix(&mut copy.key);
    while low < high {
        let middle = low.midpoint(high);
        // Leaves that are arrays have places without a record.
        let place = leaf.next_place(middle);
        if place >= high {
            high = middle;
            continue;
        }
        let (end, value) = leaf.record(place, &mut copy.key, prefix_len);
        let answer = order(&copy.key[..end], value)?;
        answer.into_iter().for_each(|answer| within.narrow(&copy.key[..end], answer));
        match answer {
            None => return Ok(None),
            Some(Ordering::Equal) => return Ok(Some(true)),
            Some(Ordering::Less) => high = middle,
            Some(Ordering::Greater) => low = place + 1,
        }
    }
    Ok(Some(false))
}
