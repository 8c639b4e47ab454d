//! Tests of the tree on a heap of pages: against a model, under threads, with damage.

mod adaptive;
mod b_star;
mod bulk;
mod commit;
mod compact;
mod concurrent;
mod contention;
mod cursors;
mod damage;
mod dense_edges;
mod ends;
mod frozen;
mod height;
mod layouts;
mod longest_bounds;
mod model;
mod overtaken;
mod ranges;
mod search_by;
mod smallest;
mod stamps;
mod windows;

use super::Tree;
use crate::node::{LeafLayout, LeafPolicy, rung};
use crate::testing::MemoryPool;
use crate::types::{PageId, TreeId};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeSet;

/// The smallest pages: a handful of records each, so that all structure changes happen all the time.
const TINY_PAGE: usize = 512;

/// The layouts that leaves can have: on the lower rungs of the ladder a single one.
const LAYOUTS: &[LeafLayout] =
    if rung::HINTS { &LeafLayout::ALL } else { &[LeafLayout::Comparison] };

/// Every way to choose the layout of a leaf.
fn policies() -> impl Iterator<Item = LeafPolicy> + Clone {
    LAYOUTS.iter().map(|layout| LeafPolicy::Fixed(*layout)).chain([LeafPolicy::Adaptive])
}

fn tiny() -> Tree<MemoryPool> {
    let pool = Arc::new(MemoryPool::new(TINY_PAGE, 1 << 16));
    Tree::create(pool, TreeId(7)).unwrap()
}

fn absent(one_in: u64, seed: u64) -> Tree<MemoryPool> {
    let pool = Arc::new(MemoryPool::with_absences(TINY_PAGE, 1 << 16, one_in, seed));
    Tree::create(pool, TreeId(7)).unwrap()
}

/// A tree of more than so many leaves, and their ids; its keys are the numbers from 0 on. Pages are absent when they are evicted, and else are not.
fn of_leaves(leaves: usize) -> (Tree<MemoryPool>, BTreeSet<PageId>) {
    let pool = MemoryPool::with_absences(TINY_PAGE, 1 << 16, u64::MAX, 1);
    let tree = Tree::create(Arc::new(pool), TreeId(7)).unwrap().with_log();
    let mut ids = BTreeSet::new();
    for number in 0_u32.. {
        tree.put(&number.to_be_bytes(), &[1; 60]).unwrap();
        ids.insert(tree.leaf_for(&number.to_be_bytes()).ok().unwrap().id());
        if ids.len() > leaves {
            break;
        }
    }
    (tree, ids)
}

fn evict(tree: &Tree<MemoryPool>, ids: BTreeSet<PageId>) {
    assert!(ids.iter().all(|id| tree.pool().evict(*id)), "nobody uses them");
}

fn assert_clean(tree: &Tree<MemoryPool>) {
    let findings = tree.verify().unwrap();
    assert!(findings.is_empty(), "{findings:?}");
    // Nothing is lost and nothing is held twice: what is reachable is what was given out.
    assert_eq!(tree.stats().unwrap().pages(), tree.pool().pages());
}

/// Keys of all shapes out of a small set, so that they meet: short, with zeros, with long shared
/// prefixes, as long as a page allows.
fn random_key(random: &mut SplitMix64, max_bytes: usize) -> Vec<u8> {
    match random.below(8) {
        0 => vec![0; random.below(5) as usize],
        1 => (0..random.below(3)).map(|_| [0, 1, b'a', 0xff][random.below(4) as usize]).collect(),
        2 | 3 => (random.below(300) as u32).to_be_bytes().to_vec(),
        4 => format!("http://example.org/forum/{}", random.below(400)).into_bytes(),
        5 => {
            let mut key = vec![b'x'; max_bytes - 2];
            key.extend((random.below(30) as u16).to_be_bytes());
            key
        }
        _ => format!("user:{:05}", random.below(600)).into_bytes(),
    }
}
