//! How high a tree gets of keys that are as long as can be.

use super::super::walk::{Go, Visit};
use super::super::{MAX_LEVELS, Tree, descend::plain};
use super::{TINY_PAGE, assert_clean, random_key, tiny};
use crate::node::{LeafLayout, LeafPolicy};
use crate::testing::MemoryPool;
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeSet;

/// Orders in which groups of keys come.
#[derive(Clone, Copy, Debug)]
enum Order {
    Random,
    /// Ascending or descending, in so many places by turns.
    Runs(usize),
}

/// Keys of which three neighbours share all but the last bytes, and others nothing: separators are as long as keys, and an
/// inner node has room for two.
fn keys(count: usize, len: usize, order: Order, random: &mut SplitMix64) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for _ in 0..count / 3 {
        let group: Vec<u8> = (0..len - 2).map(|_| random.next_u64() as u8).collect();
        for last in [[0, 1], [1, 0], [2, 0]] {
            keys.push([group.as_slice(), &last].concat());
        }
    }
    match order {
        Order::Random => {
            for at in (1..keys.len()).rev() {
                keys.swap(at, random.below(at as u64 + 1) as usize);
            }
            keys
        }
        Order::Runs(runs) => {
            keys.sort();
            let of_one = keys.len().div_ceil(runs);
            let mut runs: Vec<Vec<Vec<u8>>> = keys.chunks(of_one).map(<[_]>::to_vec).collect();
            for run in runs.iter_mut().step_by(2) {
                run.reverse();
            }
            let mut mixed = Vec::new();
            while !runs.is_empty() {
                let which = random.below(runs.len() as u64) as usize;
                for _ in 0..=random.below(4) {
                    mixed.extend(runs[which].pop());
                }
                if runs[which].is_empty() {
                    runs.swap_remove(which);
                }
            }
            mixed
        }
    }
}

/// Inner nodes: with a single child, all, and of the former those whose neighbour on the left, under the same parent, is
/// another.
fn lonely(tree: &Tree<MemoryPool>) -> [usize; 3] {
    let [mut lonely, mut inner, mut pairs] = [0; 3];
    let mut before = [false; MAX_LEVELS as usize];
    let mut look = |visit: Visit<'_>| {
        let node = plain(visit.bytes);
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
    [lonely, inner, pairs]
}

/// Gives how many inner nodes had a single child.
fn grow(order: Order, seed: u64, count: usize) -> usize {
    let pool = Arc::new(MemoryPool::new(TINY_PAGE, 1 << 16));
    let tree: Tree<MemoryPool> = Tree::create(pool, TreeId(7)).unwrap();
    let tree = tree.with_policy(LeafPolicy::Fixed(LeafLayout::Comparison));
    let mut random = SplitMix64::new(seed);
    for key in keys(count, tree.max_key_bytes(), order, &mut random) {
        tree.put(&key, b"").unwrap();
    }
    assert_clean(&tree);
    let [lonely, inner, pairs] = lonely(&tree);
    let height = tree.stats().unwrap().levels.len();
    println!(
        "{order:?}, seed {seed}: {lonely} of {inner} inner nodes have one child, {pairs} beside another; height {height}"
    );
    assert_eq!(pairs, 0, "{order:?}, seed {seed}");
    lonely
}

#[test]
fn of_two_neighbours_one_has_more_than_a_single_child() {
    assert!(grow(Order::Random, 7, 20_000) > 0, "the keys are as they should be");
}

/// Such a merge has made nodes below neighbours that had none before.
#[test]
fn of_two_that_became_neighbours_one_has_more_than_a_single_child() {
    for seed in 70..100 {
        for runs in [2, 20] {
            grow(Order::Runs(runs), seed, 300);
        }
    }
}

/// Keys as long as can be, ten of which share all but the last byte, and the others nothing: what lies between two of the ten is as
/// long, too.
fn long_key(random: &mut SplitMix64, len: usize) -> Vec<u8> {
    let which = random.below(60) as u8;
    let mut key = vec![b'x'; len];
    (key[0], key[len - 1]) = (b'x' + which / 10, which);
    key
}

/// Where fences are long, some neighbours get the same parent only when nodes above them have become one.
#[test]
fn a_tree_whose_keys_are_all_removed_is_a_single_page() {
    // Pages stay with 1,137 if the children of a merged node are not looked at.
    for seed in 0..3000 {
        let tree = tiny();
        let mut random = SplitMix64::new(seed);
        let mut keys = BTreeSet::new();
        let steps = 50 + random.below(600);
        for step in 0..steps {
            let key = match random.below(2) {
                0 => random_key(&mut random, tree.max_key_bytes()),
                _ => long_key(&mut random, tree.max_key_bytes()),
            };
            if random.below(steps) > step {
                tree.put(&key, &vec![0; random.below(25) as usize]).unwrap();
                keys.insert(key);
            } else {
                assert_eq!(tree.remove(&key).unwrap(), keys.remove(&key));
            }
        }
        for key in &keys {
            assert!(tree.remove(key).unwrap());
        }
        let pages = tree.stats().unwrap().pages();
        assert_eq!(pages, 1, "seed {seed}: {} keys", keys.len());
    }
}
