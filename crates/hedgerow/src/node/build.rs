//! Nodes out of sorted input, for bulk loads: one builder a level, each node written once.
//!
//! A builder stages keys (with values, or with children) until the next one would take the node beyond
//! the fill that was asked for, and then writes a page. It knows the lower fence from the node before
//! it; the upper one depends on the key that comes next, and on the upper one depends the prefix. So it
//! stages whole keys and counts them without the prefix that the node has at least: the one that lower
//! fence and last key share. The sum of the records is kept for that prefix, and counted anew when
//! a key makes it shorter, which is seldom. A leaf's upper fence is counted as long as the shortest
//! separator is likely to be: where it is longer than that, the last record goes into the next page.
//! No thread-safety of its own; allocates buffers of about a page, once.
//!
//! Invariant: what is staged, or some of it from its beginning, fits into a page with an upper fence that
//! is at most the last key of that.

use super::ladder::Ladder;
use super::layout::{
    INNER_SLOT_BYTES, LEAF_SLOT_BYTES, common_prefix, max_record_bytes, rest_len, space_needed,
};
use super::separator;
use super::suffix::Suffix;
use super::write::{Appended, NodeMut};
use crate::page::header::PageKind;
use crate::types::PageId;
use std::marker::PhantomData;

/// What is staged: key and value stand one behind the other in the buffer.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: usize,
    key_len: usize,
    value_len: usize,
    child: u32,
}

/// Builds the nodes of one level from left to right.
///
/// A leaf: [`Self::push`] until it takes no more, then [`Self::write`] a page and go on. An inner node:
/// the same with [`Self::push_child`], each child with its upper fence for a key. At the end
/// [`Self::write_last`] until it gives `None`.
#[derive(Debug)]
pub struct Builder<L> {
    page_bytes: usize,
    target_bytes: usize,
    level: u8,
    lower: Option<Vec<u8>>,
    buffer: Vec<u8>,
    entries: Vec<Entry>,
    /// Bytes of all records staged, in a node whose prefix has `shared_bytes`.
    record_bytes: usize,
    shared_bytes: usize,
    ladder: PhantomData<L>,
}

impl<L: Ladder> Builder<L> {
    /// Begins a level. A page counts as full when `fill_percent` (clamped to 10..=100) of it are used.
    pub fn new(page_bytes: usize, level: u8, fill_percent: u8) -> Self {
        Builder {
            page_bytes,
            target_bytes: page_bytes * usize::from(fill_percent.clamp(10, 100)) / 100,
            level,
            lower: None,
            buffer: Vec::with_capacity(2 * page_bytes),
            entries: Vec::new(),
            record_bytes: 0,
            shared_bytes: 0,
            ladder: PhantomData,
        }
    }

    /// Number of keys staged.
    pub fn staged(&self) -> usize {
        self.entries.len()
    }

    /// The last key staged, for a check that the input is sorted.
    pub fn last_key(&self) -> Option<&[u8]> {
        self.entries.last().map(|entry| self.key(*entry))
    }

    /// Bytes of the records staged, in a node that ends with `key`, and the prefix that it has.
    fn staged_bytes(&self, key: &[u8]) -> (usize, usize) {
        let shared = self.shared(Some(key));
        if shared == self.shared_bytes {
            return (self.record_bytes, shared);
        }
        (self.records_of(self.entries.len(), shared), shared)
    }

    /// Bytes of the prefix that a node with this upper fence has.
    fn shared(&self, upper: Option<&[u8]>) -> usize {
        match (&self.lower, upper) {
            (Some(lower), Some(upper)) if L::PREFIX => common_prefix(lower, upper),
            _ => 0,
        }
    }

    /// Bytes of the first `count` records in a node with this prefix.
    fn records_of(&self, count: usize, shared: usize) -> usize {
        let entries = self.entries[..count].iter();
        entries.map(|entry| stored::<L>(entry.key_len, shared) + entry.value_len).sum()
    }

    fn space(&self, count: usize, live: usize, fences: usize) -> usize {
        let slot_bytes = if self.level == 0 { LEAF_SLOT_BYTES } else { INNER_SLOT_BYTES };
        space_needed::<L>(slot_bytes, count, live, fences)
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
        let record_bytes = staged + stored::<L>(key.len(), shared) + value.len();
        let lower = self.lower.as_ref().map_or(0, Vec::len);
        // Separators of neighbouring leaves are about as long, and longer than what the keys share.
        let upper = if self.level == 0 { key.len().min(lower.max(shared + 1)) } else { key.len() };
        let count = self.entries.len() + 1;
        // A leaf of one record and two fences has room for a second record, an inner node likewise.
        let limit_bytes = match count {
            1 => usize::MAX,
            2 => self.page_bytes,
            _ => self.target_bytes,
        };
        if self.space(count, record_bytes, lower + upper) > limit_bytes {
            return false;
        }
        self.record_bytes = record_bytes;
        self.shared_bytes = shared;
        let at = self.buffer.len();
        self.buffer.extend_from_slice(key);
        self.buffer.extend_from_slice(value);
        self.entries.push(Entry { at, key_len: key.len(), value_len: value.len(), child });
        true
    }

    fn key(&self, entry: Entry) -> &[u8] {
        &self.buffer[entry.at..entry.at + entry.key_len]
    }

    /// Writes what is staged as a node into a fresh page; `next` is the key that comes after it. Of a leaf
    /// the last records stay staged if there is no room for them beside the fences. Gives the node's
    /// upper fence, which is the separator for the level above.
    ///
    /// # Panics
    /// If nothing is staged.
    pub fn write(&mut self, page: &mut [u8], next: &[u8]) -> Vec<u8> {
        self.write_first(page, self.entries.len(), next)
    }

    /// Writes the first `at_most` entries, or as many of them as fit; `next` is the key behind all that
    /// is staged.
    fn write_first(&mut self, page: &mut [u8], at_most: usize, next: &[u8]) -> Vec<u8> {
        let fitting = |count| self.fence_behind(count, next).map(|upper| (count, upper));
        let (count, upper) =
            (1..=at_most).rev().find_map(fitting).expect("one entry fits into a page");
        self.write_node(page, count, Some(&upper));
        self.lower = Some(upper.clone());
        upper
    }

    /// The upper fence of a node of the first `count` entries, if they fit into a page with it.
    fn fence_behind(&self, count: usize, next: &[u8]) -> Option<Vec<u8>> {
        let last = self.key(self.entries[count - 1]);
        let next = self.entries.get(count).map_or(next, |entry| self.key(*entry));
        let fits = |upper: &Vec<u8>| self.space_of(count, Some(upper)) <= self.page_bytes;
        let shortest = (self.level == 0)
            .then(|| separator::shortest(Suffix::undivided(last), Suffix::undivided(next)));
        // A shorter fence may share less with the lower one, so that the records take more.
        shortest.filter(fits).or_else(|| Some(last.to_vec()).filter(fits))
    }

    /// Writes the last node of the level, which reaches up without end, and gives `None`. If what is
    /// staged does not fit (such a node has no prefix), it writes a part of it, gives the separator, and
    /// wants to be called again with another page.
    pub fn write_last(&mut self, page: &mut [u8]) -> Option<Vec<u8>> {
        let count = self.entries.len();
        if count <= 1 || self.space_of(count, None) <= self.page_bytes {
            self.write_node(page, count, None);
            return None;
        }
        Some(self.write_first(page, count / 2, &[]))
    }

    /// Bytes that a node of the first `count` entries takes with this upper fence.
    fn space_of(&self, count: usize, upper: Option<&[u8]>) -> usize {
        // The last child of an inner node has no separator there.
        let keys = if self.level == 0 { count } else { count.saturating_sub(1) };
        let fences = self.lower.as_ref().map_or(0, Vec::len) + upper.map_or(0, <[u8]>::len);
        self.space(keys, self.records_of(keys, self.shared(upper)), fences)
    }

    fn write_node(&mut self, page: &mut [u8], count: usize, upper: Option<&[u8]>) {
        assert_eq!(page.len(), self.page_bytes, "pages of one tree have one size");
        let kind = if self.level == 0 { PageKind::ComparisonLeaf } else { PageKind::Inner };
        let mut node = NodeMut::<L>::format(page, kind, self.level, self.lower.as_deref(), upper);
        let keys = if self.level == 0 { count } else { count.saturating_sub(1) };
        node.reserve_heads(keys);
        let shared = node.as_node().prefix_len();
        node.append_all(self.entries[..keys].iter().map(|entry| Appended {
            bytes: &self.buffer[entry.at + shared..entry.at + entry.key_len + entry.value_len],
            suffix_len: entry.key_len - shared,
            child: entry.child,
        }));
        node.refresh_hints(0, 0);
        if self.level > 0
            && let Some(last) = self.entries.get(count.wrapping_sub(1))
        {
            node.set_upper_child(PageId(last.child));
        }
        let end = self.entries.get(count).map_or(self.buffer.len(), |entry| entry.at);
        self.buffer.drain(..end);
        self.entries.drain(..count);
        for entry in &mut self.entries {
            entry.at -= end;
        }
        self.shared_bytes = 0;
        self.record_bytes = self.records_of(self.entries.len(), 0);
    }
}

/// Bytes that a record holds of a key of `key_len` bytes, in a node with a prefix of `shared`.
fn stored<L: Ladder>(key_len: usize, shared: usize) -> usize {
    rest_len::<L>(key_len.saturating_sub(shared))
}
