//! How high a tree gets of keys that are as long as can be.

use super::super::walk::Go;
use super::super::{Tree, descend::plain};
use super::{TINY_PAGE, assert_clean};
use crate::node::{Hints, LeafLayout, LeafPolicy};
use crate::testing::MemoryPool;
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;

/// Keys of which three neighbours share all but the last bytes, and others nothing: separators are as long as keys, and an
/// inner node has room for two.
fn keys(count: usize, len: usize, random: &mut SplitMix64) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for _ in 0..count / 3 {
        let group: Vec<u8> = (0..len - 2).map(|_| random.next_u64() as u8).collect();
        for last in [[0, 1], [1, 0], [2, 0]] {
            keys.push([group.as_slice(), &last].concat());
        }
    }
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at as u64 + 1) as usize);
    }
    keys
}

#[test]
fn of_two_neighbours_one_has_more_than_a_single_child() {
    let pool = Arc::new(MemoryPool::new(TINY_PAGE, 1 << 16));
    let tree: Tree<MemoryPool, Hints> = Tree::create(pool, TreeId(7)).unwrap();
    let tree = tree.with_policy(LeafPolicy::Fixed(LeafLayout::Comparison));
    let mut random = SplitMix64::new(7);
    for key in keys(20_000, tree.max_record_bytes(), &mut random) {
        tree.put(&key, b"").unwrap();
    }
    assert_clean(&tree);
    let (mut lonely, mut inner, mut pairs) = (0, 0, 0);
    let mut before = [false; 64];
    let mut look = |visit: super::super::walk::Visit<'_>| {
        let node = plain::<Hints>(visit.bytes);
        let level = usize::from(node.level());
        if level > 0 {
            inner += 1;
            // Its children come next, and the first has no neighbour on the left.
            before[level - 1] = false;
            let is_lonely = node.count() == 0;
            lonely += usize::from(is_lonely);
            pairs += usize::from(is_lonely && before[level]);
            before[level] = is_lonely;
        }
        Go::Down
    };
    tree.walk(&mut look, &mut |_, error| Err(error)).unwrap();
    let height = tree.stats().unwrap().levels.len();
    println!(
        "{lonely} of {inner} inner nodes have one child, {pairs} beside another; height {height}"
    );
    assert!(lonely > 0, "the keys are as they should be");
    assert_eq!(pairs, 0);
}
