//! Compaction: fewer leaves, the same records; against a map on every layout, within a budget, and before leaves are
//! written.

use super::super::{CompactBudget, Tree};
use super::model::{Model, compare, random_value, run};
use super::{TINY_PAGE, absent, assert_clean, policies, random_key};
use crate::error::ErrorKind;
use crate::node::{LeafLayout, LeafPolicy};
use crate::page::{FrameId, Journal};
use crate::testing::MemoryPool;
use crate::types::{PageId, TreeId};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use std::ops::ControlFlow;

fn new_tree(page_bytes: usize, policy: LeafPolicy) -> Tree<MemoryPool> {
    let pool = Arc::new(MemoryPool::new(page_bytes, 1 << 16));
    Tree::create_with(pool, TreeId(7), policy).unwrap()
}

pub(super) fn compact(tree: &Tree<MemoryPool>) -> super::super::CompactReport {
    tree.compact(&CompactBudget::unlimited(), &mut |_| ControlFlow::Continue(())).unwrap()
}

fn leaf_pages(tree: &Tree<MemoryPool>) -> u64 {
    tree.stats().unwrap().levels[0].pages
}

#[test]
fn a_compacted_tree_of_every_layout_agrees_with_a_map() {
    let seed = crate::testing::environment::fresh_seed();
    for policy in policies() {
        let mut random = SplitMix64::new(seed);
        for tree in [new_tree(TINY_PAGE, policy), absent(6, seed).with_policy(policy)] {
            let mut model = Model::new();
            for round in 0..12 {
                for _ in 0..400 {
                    let key = random_key(&mut random, tree.max_key_bytes());
                    if random.below(if round % 4 < 2 { 4 } else { 2 }) == 0 {
                        assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
                    } else {
                        let value = random_value(&mut random, &tree, &key);
                        tree.put(&key, &value).unwrap();
                        model.insert(key, value);
                    }
                }
                let before = leaf_pages(&tree);
                let done = compact(&tree);
                assert_eq!(done.next, None);
                assert_eq!(done.groups, done.pages_freed);
                assert!(leaf_pages(&tree) <= before - done.pages_freed, "{policy:?}");
                compare(&tree, &model, &mut random);
            }
            // A tree that was just compacted is left as it is.
            let again = compact(&tree);
            assert_eq!((again.passed_over, again.next), (0, None));
        }
    }
}

#[test]
fn a_tree_that_is_compacted_goes_on_as_any_other() {
    let tree = new_tree(TINY_PAGE, LeafPolicy::Adaptive);
    for number in 0..3_000_u32 {
        tree.put(&number.wrapping_mul(0x9E37_79B1).to_be_bytes(), &[7; 20]).unwrap();
    }
    assert!(compact(&tree).pages_freed > 0);
    for number in 0..3_000_u32 {
        assert!(tree.remove(&number.wrapping_mul(0x9E37_79B1).to_be_bytes()).unwrap());
    }
    run(&tree, 3_000, crate::testing::environment::fresh_seed());
}

/// The paper's section 5.2: keys of eight bytes and values of a hundred, in random order.
#[test]
fn leaves_of_random_records_are_nearly_full_when_they_are_compacted() {
    for (page_bytes, most) in [(4096, 1.26), (16 << 10, 1.20)] {
        let tree = new_tree(page_bytes, LeafPolicy::Adaptive);
        let mut random = SplitMix64::new(11);
        let records = 20_000;
        for _ in 0..records {
            tree.put(&random.next_u64().to_be_bytes(), &[7; 100]).unwrap();
        }
        let ratio = || (leaf_pages(&tree) * page_bytes as u64) as f64 / f64::from(records * 108);
        let before = ratio();
        let done = compact(&tree);
        println!("{page_bytes}: {before:.3} to {:.3}, {done:?}", ratio());
        assert!(before > 1.4 && ratio() <= most, "{page_bytes}: {before} to {}", ratio());
        assert_clean(&tree);
        assert!(compact(&tree).groups <= done.groups / 50, "the first walk leaves little to do");
    }
}

#[test]
fn a_budget_ends_a_compaction_and_the_next_one_goes_on() {
    let tree = new_tree(TINY_PAGE, LeafPolicy::Adaptive);
    let mut random = SplitMix64::new(crate::testing::environment::fresh_seed());
    for _ in 0..6_000 {
        tree.put(&random.next_u64().to_be_bytes(), &[7; 40]).unwrap();
    }
    let before = leaf_pages(&tree);
    let mut budget = CompactBudget::pages(30);
    let (mut calls, mut freed) = (0, 0);
    loop {
        let done = tree.compact(&budget, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(done.pages_written <= 30 + 4);
        freed += done.pages_freed;
        calls += 1;
        let Some(next) = done.next else { break };
        budget = budget.starting_at(&next);
    }
    assert!(calls > 3);
    // Where parents merge, so may the two leaves between them, once in a hundred runs; that is not counted.
    let after = leaf_pages(&tree);
    assert!((before - freed - 3..=before - freed).contains(&after), "{before} - {freed}, {after}");
    assert!(compact(&tree).groups <= freed / 10, "nothing was left out between the calls");
    assert_clean(&tree);
    // A key longer than any is as good a place to begin as another.
    let long = CompactBudget::unlimited().starting_at(&[0xff; 2 * TINY_PAGE]);
    assert_eq!(tree.compact(&long, &mut |_| ControlFlow::Continue(())).unwrap().groups, 0);
}

#[test]
fn a_compaction_that_is_cancelled_leaves_a_sound_tree() {
    let tree = new_tree(TINY_PAGE, LeafPolicy::Adaptive);
    let mut random = SplitMix64::new(crate::testing::environment::fresh_seed());
    let mut model = Model::new();
    for _ in 0..3_000 {
        let key = random.next_u64().to_be_bytes().to_vec();
        tree.put(&key, &[7; 40]).unwrap();
        model.insert(key, vec![7; 40]);
    }
    let mut calls = 0;
    let cancelled = tree.compact(&CompactBudget::unlimited(), &mut |leaves| {
        calls += 1;
        if leaves < 50 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    assert_eq!(cancelled.unwrap_err().kind(), ErrorKind::Cancelled);
    assert!(calls <= 50, "each leaf is a chance to cancel");
    compare(&tree, &model, &mut random);
}

/// As the eviction thread offers pages, whatever they are.
fn offer_all(tree: &Tree<MemoryPool>, is_dirty: impl Fn(FrameId) -> bool, may_enter: bool) -> u64 {
    let mut merged = 0;
    for id in 0..2 * tree.pool().pages() as u32 + 64 {
        let enter = || tree.pool().enter().map(|stay| may_enter.then_some(stay));
        merged += u64::from(tree.merge_before_write(PageId(id), &is_dirty, enter).unwrap());
    }
    merged
}

#[test]
fn leaves_that_are_about_to_be_written_are_merged_with_dirty_neighbours() {
    let seed = crate::testing::environment::fresh_seed();
    for policy in [LeafPolicy::Adaptive, LeafPolicy::Fixed(LeafLayout::Fingerprint)] {
        let mut random = SplitMix64::new(seed);
        let tree = new_tree(TINY_PAGE, policy);
        let mut model = Model::new();
        for _ in 0..3_000 {
            let key = random_key(&mut random, tree.max_key_bytes());
            let value = random_value(&mut random, &tree, &key);
            tree.put(&key, &value).unwrap();
            model.insert(key, value);
            let key = random.next_u64().to_be_bytes().to_vec();
            tree.put(&key, &[7; 20]).unwrap();
            model.insert(key, vec![7; 20]);
        }
        let before = leaf_pages(&tree);
        assert_eq!(offer_all(&tree, |_| false, true), 0, "of two clean leaves none is dirtied");
        assert_eq!(offer_all(&tree, |_| true, false), 0, "nobody enters");
        assert_eq!(leaf_pages(&tree), before);
        // Every second frame is dirty: so are at most three of five neighbours.
        let some = offer_all(&tree, |frame| frame.0 % 2 == 0, true);
        let all = offer_all(&tree, |_| true, true);
        println!("{policy:?}: {some} and {all} of {before}");
        assert!(some + all > before / 40, "{some} and {all} of {before}");
        assert_eq!(leaf_pages(&tree), before - some - all);
        compare(&tree, &model, &mut random);
    }
}

/// A look at neighbours costs as much as a put. Leaves that a merge would fill are split again soon.
#[test]
fn leaves_that_are_rather_full_are_left_alone_and_none_becomes_full() {
    for (fill_percent, is_merged) in [(75, false), (30, true)] {
        let tree = new_tree(4096, LeafPolicy::Adaptive);
        let mut load = tree.bulk_load(fill_percent).unwrap();
        for number in 0..5_000_u64 {
            let low = number.wrapping_mul(0x9E37_79B1) % (1 << 40);
            let key = (number << 40 | low).to_be_bytes();
            load.push(&key, &[7; 40]).unwrap();
        }
        assert_eq!(load.finish().unwrap(), 5_000);
        let looks = std::cell::Cell::new(0);
        let looked = |_| {
            looks.set(looks.get() + 1);
            true
        };
        let merged: u64 = (0..6).map(|_| offer_all(&tree, looked, true)).sum();
        let fill = tree.stats().unwrap().levels[0].fill;
        println!("{fill_percent} %: {merged} merged by {} looks, {fill:?}", looks.get());
        // The last leaf alone is half empty, and looks at itself and four others.
        assert_eq!((merged > 0, looks.get() > 6 * 5), (is_merged, is_merged));
        // Thirteen sixteenths.
        assert_eq!(fill[9], 0, "{fill:?}");
        assert_clean(&tree);
    }
}

#[test]
fn an_offered_page_of_a_dropped_tree_is_told_apart() {
    let tree = new_tree(TINY_PAGE, LeafPolicy::Adaptive);
    for number in 0..200_u32 {
        tree.put(&number.wrapping_mul(0x9E37_79B1).to_be_bytes(), &[7; 20]).unwrap();
    }
    let other = Tree::open(tree.pool().clone(), TreeId(8), tree.root());
    let enter = || tree.pool().enter().map(Some);
    let ids = 0..tree.pool().pages() as u32 + 8;
    for id in ids {
        assert!(!other.merge_before_write(PageId(id), |_| true, enter).unwrap(), "another tree's");
    }
}

/// A value of another length cuts a dense leaf twice. The parts have slots for the numbers between their fences and no others, so each of them
/// seemed full, and they stayed apart when all values had one length again.
#[test]
fn dense_leaves_that_were_cut_become_few_when_they_are_compacted() {
    for policy in policies() {
        let tree = new_tree(4096, policy);
        let put = |number: u32, len: usize| {
            tree.put(&number.to_be_bytes(), &[7; 9][..len]).unwrap();
        };
        let all = 0..10_000;
        all.clone().for_each(|number| put(number, 8));
        let loaded = leaf_pages(&tree);
        let odd = || all.clone().skip(200).step_by(400);
        odd().for_each(|number| put(number, 9));
        odd().for_each(|number| put(number, 8));
        let cut = leaf_pages(&tree);
        compact(&tree);
        let left = leaf_pages(&tree);
        let are_few = 3 * left <= 2 * cut || left <= loaded + loaded / 5;
        assert!(
            are_few,
            "{policy:?}: {loaded} leaves, {cut} with those that were cut, {left} left"
        );
        for number in all.clone() {
            assert_eq!(tree.get(&number.to_be_bytes()).unwrap().unwrap().as_bytes(), [7; 8]);
        }
        assert_clean(&tree);
    }
}
