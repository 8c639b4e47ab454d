//! Room as a B*-tree makes it: the same records, and fuller leaves than those of splits.

use super::super::Tree;
use super::model::{Model, compare, random_value};
use super::{TINY_PAGE, absent, assert_clean, policies, random_key};
use crate::testing::MemoryPool;
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;

#[test]
fn rotations_and_splits_of_two_into_three_agree_with_a_map_on_every_layout() {
    let seed = crate::testing::environment::fresh_seed();
    for policy in policies() {
        let mut random = SplitMix64::new(seed);
        let pool = Arc::new(MemoryPool::new(TINY_PAGE, 1 << 16));
        let here = Tree::create_with(pool, TreeId(7), policy).unwrap();
        for tree in [here, absent(6, seed).with_policy(policy)] {
            let tree = tree.with_b_star(true);
            let mut model = Model::new();
            for round in 0..6 {
                for _ in 0..400 {
                    let key = random_key(&mut random, tree.max_key_bytes());
                    if random.below(if round % 2 == 0 { 8 } else { 2 }) == 0 {
                        assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
                    } else {
                        let value = random_value(&mut random, &tree, &key);
                        tree.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
                compare(&tree, &model, &mut random);
            }
        }
    }
}

#[test]
fn leaves_are_fuller_than_those_of_splits() {
    let mut leaves = Vec::new();
    for is_b_star in [false, true] {
        let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
        let tree = Tree::create(pool, TreeId(7)).unwrap().with_b_star(is_b_star);
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
