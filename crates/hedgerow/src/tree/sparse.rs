//! When a node has so few records that a merge with its neighbours is worth a look, and how often one looks.
//!
//! Pure functions.

use crate::node::Leaf;
use hedgerow_sync::optimistic::PageBytes;

/// Part of a sparse leaf's records, or half of that, that are removed until its neighbours are looked at again.
/// A look takes as long as there are records, so that all of a leaf's removals would take the square of that, if
/// each looked.
const LOOK_PART: usize = 32;

/// Whether the neighbours of a sparse leaf are looked at now that it has so many records.
#[inline]
pub(super) fn is_turn(records: usize) -> bool {
    // Of two, so that the same numbers are multiples for long.
    let power = 1 << (records / LOOK_PART).max(1).ilog2();
    records.is_multiple_of(power)
}

/// Bytes that a node's records take, slots included; of inner nodes and leaves of any layout.
#[inline]
pub(super) fn record_bytes<B: PageBytes>(node: &Leaf<B>) -> usize {
    let slot_bytes = match node {
        // With a head ten bytes, or twelve.
        Leaf::Comparison(_) => 10,
        Leaf::Fingerprint(_) => 5,
        Leaf::SemiDense(_) => 2,
        Leaf::FullyDense(_) => 0,
    };
    node.payload_bytes() + slot_bytes * node.count()
}

/// Whether a node's records take less than half of what is left of its page beside its fences, so that
/// a merge is worth a look.
#[inline]
pub(super) fn is_sparse<B: PageBytes>(node: &Leaf<B>) -> bool {
    node.is_half_empty(record_bytes(node))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look takes as long as there are records: with one at each removal, all of them take the square of that.
    #[test]
    fn a_leaf_that_is_emptied_looks_at_its_neighbours_more_seldom_the_more_records_it_has() {
        let looked_at =
            |records: usize| (0..records).rev().filter(|left| is_turn(*left)).sum::<usize>();
        for records in [100, 1000, 10_000, 100_000] {
            assert!(looked_at(records) <= 3 * LOOK_PART * records, "{records}");
        }
        assert!(
            (0..2 * LOOK_PART).all(is_turn),
            "small leaves are looked at each time, and empty ones"
        );
    }
}
