//! What a removal of a range reads, and what it moves.

use super::super::Tree;
use super::{TINY_PAGE, assert_clean, evict, of_leaves, policies};
use crate::testing::MemoryPool;
use crate::testing::environment::fresh_seed;
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeSet;

#[test]
fn leaves_of_a_range_that_is_removed_are_read_many_at_a_time_and_no_others() {
    const LEAVES: usize = 1000;
    for (from, many) in [(100_u32, true), (3000, false)] {
        let (tree, ids) = of_leaves(LEAVES);
        let records = tree.count().unwrap();
        let to = if many { records as u32 - 100 } else { from + 12 };
        evict(&tree, ids);
        let before = (tree.pool().reads(), tree.pool().faults());
        let removed = tree.remove_range(&from.to_be_bytes(), Some(&to.to_be_bytes())).unwrap();
        assert_eq!(removed, u64::from(to - from));
        let (reads, pages) = (tree.pool().reads() - before.0, tree.pool().faults() - before.1);
        println!("{reads} reads of {pages} pages");
        match many {
            true => assert!(reads < LEAVES as u64 / 8, "{reads}"),
            false => assert!(pages < 8, "{pages}"),
        }
        assert_eq!(tree.count().unwrap(), records - removed);
        assert_clean(&tree);
    }
}

/// An empty leaf took in the full one behind it, which was cleared next.
#[test]
fn records_of_a_range_are_not_moved_before_they_are_removed() {
    let mut random = SplitMix64::new(fresh_seed());
    for (policy, dense) in policies().flat_map(|policy| [(policy, true), (policy, false)]) {
        let pool = Arc::new(MemoryPool::new(TINY_PAGE, 1 << 16));
        let tree = Tree::create_with(pool, TreeId(7), policy).unwrap().with_log();
        let key = |number: u32| if dense { number } else { random.below(1 << 32) as u32 };
        let keys: BTreeSet<[u8; 4]> = (0..4000).map(key).map(u32::to_be_bytes).collect();
        keys.iter().for_each(|key| assert!(!tree.put(key, &[1; 8]).unwrap()));
        let (leaves, moved) = (tree.stats().unwrap().levels[0].pages, tree.pool().moved());
        let cutoff = keys.iter().nth(3500).unwrap();
        assert_eq!(tree.remove_range(&[], Some(cutoff)).unwrap(), 3500);
        let moved = tree.pool().moved() - moved;
        println!("{policy:?}, {dense}: {moved} records moved");
        // Those of a leaf, now and then, where two inner nodes are merged.
        assert!(moved < 3500 / 8, "{policy:?}, {dense}: {moved}");
        let left = tree.stats().unwrap().levels[0].pages;
        assert!(left < leaves / 5, "{policy:?}, {dense}: {left} of {leaves}");
        assert_eq!(tree.count().unwrap(), keys.len() as u64 - 3500);
        assert_clean(&tree);
    }
}
