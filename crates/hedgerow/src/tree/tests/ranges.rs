//! What a removal of a range reads.

use super::{assert_clean, evict, of_leaves};

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
