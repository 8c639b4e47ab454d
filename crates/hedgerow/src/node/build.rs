//! Nodes out of sorted input, for bulk loads: one builder a level, each node written once.
//!
//! A builder stages keys (with values, or with children) until the next one would take the node beyond
//! the fill that was asked for, and then writes a page. It knows the lower fence from the node before
//! it; the upper one depends on the key that comes next, and on the upper one depends the prefix. So it
//! stages whole keys and counts them without the prefix that the node has at least: the one that lower
//! fence and last key share. The sum of the records is kept for that prefix, and counted anew when
//! a key makes it shorter, which is seldom. A leaf's upper fence is counted as long as the shortest
//! separator is likely to be: where it is longer than that, the last record goes into the next page.
//! Leaves that are to have another layout than comparison leaves are staged here, too, and chosen and
//! written by `dispatch/bulk.rs`. No thread-safety of its own; allocates buffers of about a page, once.
//!
//! Invariant: what is staged, or some of it from its beginning, fits into a page with an upper fence that
//! is at most the last key of that.

use super::fields::{common_prefix, max_record_bytes};
use super::layout::{INNER_SLOT_BYTES, LEAF_SLOT_BYTES, rest_len, space_needed};
use super::records::Records;
use super::rung;
use super::separator;
use super::suffix::Suffix;
use super::write::{Appended, NodeMut};
use crate::page::header::PageKind;
use crate::types::PageId;

/// Builds the nodes of one level from left to right.
///
/// A leaf: [`Self::push`] until it takes no more, then [`Self::write`] a page and go on. An inner node:
/// the same with [`Self::push_child`], each child with its upper fence for a key. At the end
/// [`Self::write_last`] until it gives `None`.
#[derive(Debug)]
pub struct Builder {
    pub(super) page_bytes: usize,
    pub(super) target_bytes: usize,
    level: u8,
    pub(super) lower: Option<Vec<u8>>,
    /// What is staged; of an inner node upper fences without values.
    pub(super) records: Records,
    /// What stays staged while a part of it is written.
    rest: Records,
    /// The children of an inner node.
    children: Vec<u32>,
    /// Bytes of all records staged, in a node whose prefix has `shared_bytes`.
    record_bytes: usize,
    shared_bytes: usize,
}

impl Builder {
    /// Begins a level. A page counts as full when `fill_percent` (clamped to 10..=100) of it are used.
    pub fn new(page_bytes: usize, level: u8, fill_percent: u8) -> Self {
        Builder {
            page_bytes,
            target_bytes: page_bytes * usize::from(fill_percent.clamp(10, 100)) / 100,
            level,
            lower: None,
            records: Records::with_capacity(0, 2 * page_bytes),
            rest: Records::default(),
            children: Vec::new(),
            record_bytes: 0,
            shared_bytes: 0,
        }
    }

    /// Number of keys staged.
    pub fn staged(&self) -> usize {
        self.records.len()
    }

    /// The last key staged, for a check that the input is sorted.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.records.last_key()
    }

    /// Bytes of the records staged, in a node that ends with `key`, and the prefix that it has.
    fn staged_bytes(&self, key: &[u8]) -> (usize, usize) {
        let shared = self.shared(Some(key));
        if shared == self.shared_bytes {
            return (self.record_bytes, shared);
        }
        (self.records_of(self.records.len(), shared), shared)
    }

    /// Bytes of the prefix that a node with this upper fence has.
    pub(super) fn shared(&self, upper: Option<&[u8]>) -> usize {
        match (&self.lower, upper) {
            (Some(lower), Some(upper)) if rung::PREFIX => common_prefix(lower, upper),
            _ => 0,
        }
    }

    /// Bytes of the first `count` records in a node with this prefix.
    fn records_of(&self, count: usize, shared: usize) -> usize {
        self.records.bytes_behind(count, shared + rung::HEAD_BYTES)
    }

    fn space(&self, count: usize, live: usize, fences: usize) -> usize {
        let slot_bytes = if self.level == 0 { LEAF_SLOT_BYTES } else { INNER_SLOT_BYTES };
        space_needed(slot_bytes, count, live, fences)
    }

    /// Stages a record of a leaf if it belongs into the same node as what is staged; the first one always
    /// does. The key is above the one before; key and value have at most [`max_record_bytes`].
    #[must_use]
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> bool {
        self.stage(key, value, 0)
    }

    /// Stages a child of an inner node with its upper fence, likewise; a child without one (the last of a
    /// level) comes with an empty key, and nothing after it.
    #[must_use]
    pub fn push_child(&mut self, upper: &[u8], child: PageId) -> bool {
        self.stage(upper, &[], child.0)
    }

    #[inline]
    fn stage(&mut self, key: &[u8], value: &[u8], child: u32) -> bool {
        debug_assert!(key.len() + value.len() <= max_record_bytes(self.page_bytes));
        let (staged, shared) = self.staged_bytes(key);
        let record_bytes = staged + stored(key.len(), shared) + value.len();
        let fences = self.fences_behind(key, shared);
        let count = self.records.len() + 1;
        // A page has room for one record and two fences, and an inner node for two separators.
        let limit_bytes = match count {
            1 => usize::MAX,
            2 => self.page_bytes,
            _ => self.target_bytes,
        };
        if self.space(count, record_bytes, fences) > limit_bytes {
            return false;
        }
        self.record_bytes = record_bytes;
        self.shared_bytes = shared;
        self.records.push(key, value);
        if self.level > 0 {
            self.children.push(child);
        }
        true
    }

    /// Bytes that both fences are likely to take of a node whose last key this is, and whose prefix has
    /// `shared` bytes.
    #[inline]
    pub(super) fn fences_behind(&self, key: &[u8], shared: usize) -> usize {
        let lower = self.lower.as_ref().map_or(0, Vec::len);
        // Separators of neighbouring leaves are about as long, and longer than what the keys share.
        lower + if self.level == 0 { key.len().min(lower.max(shared + 1)) } else { key.len() }
    }

    fn key(&self, index: usize) -> &[u8] {
        self.records.key(index)
    }

    /// Writes what is staged as a node into a fresh page; `next` is the key that comes after it. Of a leaf
    /// the last records stay staged if there is no room for them beside the fences. Gives the node's
    /// upper fence, which is the separator for the level above.
    ///
    /// # Panics
    /// If nothing is staged.
    pub fn write(&mut self, page: &mut [u8], next: &[u8]) -> Vec<u8> {
        self.write_first(page, self.records.len(), next)
    }

    /// Writes the first `at_most` entries, or as many of them as fit; `next` is the key behind all that
    /// is staged.
    pub(super) fn write_first(&mut self, page: &mut [u8], at_most: usize, next: &[u8]) -> Vec<u8> {
        let space = |count, upper: &[u8]| self.space_of(count, Some(upper));
        let (count, upper) = self.most_that_fit(at_most, next, space);
        self.write_node(page, count, Some(&upper));
        upper
    }

    /// How many entries, from the first on and at most so many, fit into a page, by a function that tells
    /// the space for a number of them and an upper fence; and that fence.
    pub(super) fn most_that_fit(
        &self,
        at_most: usize,
        next: &[u8],
        space: impl Fn(usize, &[u8]) -> usize,
    ) -> (usize, Vec<u8>) {
        let fitting = |count| {
            let fences = self.fences_for(count, next).into_iter().flatten();
            let fits = |upper: &Vec<u8>| space(count, upper) <= self.page_bytes;
            fences.into_iter().find(fits).map(|upper| (count, upper))
        };
        // No slot takes less.
        let at_most = at_most.min(self.page_bytes / 4);
        (1..=at_most).rev().find_map(fitting).expect("one entry fits into a page")
    }

    /// The upper fences that a node of the first `count` entries may have, the better one first. The shorter
    /// one may share less with the lower fence, so that the records take more.
    pub(super) fn fences_for(&self, count: usize, next: &[u8]) -> [Option<Vec<u8>>; 2] {
        let last = self.key(count - 1);
        let next = if count < self.records.len() { self.key(count) } else { next };
        let shortest = (self.level == 0)
            .then(|| separator::shortest(Suffix::undivided(last), Suffix::undivided(next)));
        [shortest, Some(last.to_vec())]
    }

    /// Writes the last node of the level, which reaches up without end, and gives `None`. If what is
    /// staged does not fit (such a node has no prefix), it writes a part of it, gives the separator, and
    /// wants to be called again with another page.
    pub fn write_last(&mut self, page: &mut [u8]) -> Option<Vec<u8>> {
        let count = self.records.len();
        if count <= 1 || self.space_of(count, None) <= self.page_bytes {
            self.write_node(page, count, None);
            return None;
        }
        Some(self.write_first(page, count / 2, &[]))
    }

    /// Bytes that a node of the first `count` entries takes with this upper fence.
    pub(super) fn space_of(&self, count: usize, upper: Option<&[u8]>) -> usize {
        // The last child of an inner node has no separator there.
        let keys = if self.level == 0 { count } else { count.saturating_sub(1) };
        let fences = self.lower.as_ref().map_or(0, Vec::len) + upper.map_or(0, <[u8]>::len);
        self.space(keys, self.records_of(keys, self.shared(upper)), fences)
    }

    fn write_node(&mut self, page: &mut [u8], count: usize, upper: Option<&[u8]>) {
        assert_eq!(page.len(), self.page_bytes, "pages of one tree have one size");
        let kind = if self.level == 0 { PageKind::ComparisonLeaf } else { PageKind::Inner };
        let mut node = NodeMut::format(page, kind, self.level, self.lower.as_deref(), upper);
        let keys = if self.level == 0 { count } else { count.saturating_sub(1) };
        node.reserve_heads(keys);
        let shared = node.as_node().prefix_len();
        let mut children = self.children.iter();
        node.append_all(self.records.joined(keys).map(|(bytes, key_len)| Appended {
            bytes: &bytes[shared..],
            suffix_len: key_len - shared,
            child: children.next().copied().unwrap_or(0),
        }));
        node.refresh_hints(0, 0);
        if let Some(last) = children.next() {
            node.set_upper_child(PageId(*last));
        }
        self.set_aside(count);
        self.drop_written(upper);
    }

    /// Leaves the first `count` entries staged, to be written, and keeps the others for afterwards.
    pub(super) fn set_aside(&mut self, count: usize) {
        self.records.move_end(count, &mut self.rest);
    }

    /// Stages what was set aside again, behind the entries before it.
    pub(super) fn take_back(&mut self) {
        self.rest.move_end(0, &mut self.records);
    }

    /// Goes on behind a node that was written of all that was staged, with what was set aside.
    pub(super) fn drop_written(&mut self, upper: Option<&[u8]>) {
        self.children.drain(..self.records.len().min(self.children.len()));
        self.records.clear();
        self.take_back();
        self.lower = upper.map(<[u8]>::to_vec);
        self.shared_bytes = 0;
        self.record_bytes = self.records_of(self.records.len(), 0);
    }
}

/// Bytes that a record holds of a key of `key_len` bytes, in a node with a prefix of `shared`.
fn stored(key_len: usize, shared: usize) -> usize {
    rest_len(key_len.saturating_sub(shared))
}
