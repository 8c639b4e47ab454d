//! Room as a B*-tree makes it: fuller leaves than those of splits.

use super::super::Tree;
use super::assert_clean;
use crate::node::Hints;
use crate::testing::MemoryPool;
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;

#[test]
fn leaves_are_fuller_than_those_of_splits() {
    let mut leaves = Vec::new();
    for is_b_star in [false, true] {
        let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
        let tree = Tree::<_, Hints>::create(pool, TreeId(7)).unwrap().with_b_star(is_b_star);
        for number in 0..20_000_u64 {
            let key = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes();
            tree.put(&key, &[7; 100]).unwrap();
        }
        assert_clean(&tree);
        leaves.push(tree.stats().unwrap().levels[0].pages);
    }
    let (split, b_star) = (leaves[0], leaves[1]);
    assert!(b_star * 10 <= split * 9, "{b_star} leaves, and {split} with splits alone");
}
