//! What cursors ask of a leaf: records in the order of their keys, by place, in both directions.
//!
//! A cursor has a private copy of the leaf, which it may sort. Total over any page that has passed its
//! check at page-in; no thread-safety of its own.

use super::{Leaf, LeafLayout};
use crate::node::fingerprint::FingerprintLeafMut;
use crate::node::rung;
use crate::node::search::Position;
use hedgerow_sync::optimistic::PlainBytes;

impl<'a> Leaf<PlainBytes<'a>> {
    /// Sorts the records of a private copy, if they are not in order.
    pub fn put_in_order(page: &mut [u8]) {
        if rung::HINTS && LeafLayout::of(page) == LeafLayout::Fingerprint {
            FingerprintLeafMut::new(page).sort();
        }
    }

    /// Whether places ascend with the keys.
    #[inline]
    pub fn is_in_order(&self) -> bool {
        match self {
            Leaf::Fingerprint(leaf) => leaf.is_sorted(),
            _ => true,
        }
    }

    /// One more than the last place.
    #[inline]
    pub fn end(&self) -> usize {
        match self {
            Leaf::Comparison(leaf) => leaf.count(),
            Leaf::Fingerprint(leaf) => leaf.count(),
            Leaf::SemiDense(leaf) => leaf.capacity(),
            Leaf::FullyDense(leaf) => leaf.capacity(),
        }
    }

    /// The first place in a leaf in order whose key is not below `key`, whether it has a record or not,
    /// and whether it has the very key. The key has reached this leaf by traversal.
    #[inline]
    pub fn search(&self, key: &[u8]) -> Position {
        match self {
            Leaf::Comparison(leaf) => leaf.search(key),
            Leaf::Fingerprint(leaf) => leaf.search(key),
            Leaf::SemiDense(leaf) => {
                Position { index: leaf.lower_bound(key), found: leaf.find(key).is_some() }
            }
            Leaf::FullyDense(leaf) => {
                Position { index: leaf.lower_bound(key), found: leaf.find(key).is_some() }
            }
        }
    }

    /// The first place from `from` on that has a record; some place from [`Self::end`] on if there is
    /// none.
    #[inline(always)]
    pub fn next_place(&self, from: usize) -> usize {
        match self {
            Leaf::Comparison(_) | Leaf::Fingerprint(_) => from,
            Leaf::SemiDense(leaf) => leaf.next_place(from),
            Leaf::FullyDense(leaf) => leaf.next_place(from),
        }
    }

    /// The last place before `before` that has a record.
    #[inline(always)]
    pub fn previous_place(&self, before: usize) -> Option<usize> {
        match self {
            Leaf::Comparison(_) | Leaf::Fingerprint(_) => before.checked_sub(1),
            Leaf::SemiDense(leaf) => leaf.previous_place(before),
            Leaf::FullyDense(leaf) => leaf.previous_place(before),
        }
    }

    /// Writes what all keys begin with, and [`Self::record`] leaves out, to the start of `to`. Returns
    /// how many bytes that were.
    #[inline]
    pub fn copy_prefix(&self, to: &mut [u8]) -> usize {
        match self {
            Leaf::Comparison(leaf) => leaf.copy_prefix(to),
            Leaf::Fingerprint(leaf) => leaf.as_node().copy_prefix(to),
            Leaf::SemiDense(leaf) => leaf.copy_prefix(to),
            Leaf::FullyDense(leaf) => leaf.copy_prefix(to),
        }
    }

    /// Writes the key at a place to `key` from `at` on, without what all keys begin with. Returns where
    /// it ends, and the value. What `key` holds behind the end is arbitrary.
    #[inline(always)]
    pub fn record(&self, place: usize, key: &mut [u8], at: usize) -> (usize, &'a [u8]) {
        match self {
            Leaf::Comparison(leaf) => leaf.record(place, key, at),
            Leaf::Fingerprint(leaf) => leaf.record(place, key, at),
            Leaf::SemiDense(leaf) => leaf.record(place, key, at),
            Leaf::FullyDense(leaf) => leaf.record(place, key, at),
        }
    }
}
