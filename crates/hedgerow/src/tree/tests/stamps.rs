//! A leaf's newest LSN: every change of a record stamps its leaf, and nothing that moves records loses a stamp.

use super::super::{CompareAndSwap, Part, Tree};
use super::{LAYOUTS, TINY_PAGE, assert_clean, policies, random_key};
use crate::node::{LeafLayout, LeafPolicy};
use crate::page::header;
use crate::testing::MemoryPool;
use crate::types::{Lsn, TreeId};
use crate::wal::BatchId;
use hedgerow_sync::optimistic::PageBytes;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::{self, SplitMix64};
use std::collections::BTreeMap;

type Logged = Tree<MemoryPool>;

fn logged(policy: LeafPolicy) -> Logged {
    let pool = Arc::new(MemoryPool::new(TINY_PAGE, 1 << 16));
    Tree::create_with(pool, TreeId(7), policy).unwrap().with_log()
}

fn stamp(tree: &Logged, key: &[u8]) -> Lsn {
    let leaf = tree.leaf_for(key).expect("nobody else is there");
    Lsn(leaf.bytes().u64_at(header::NEWEST_LSN))
}

fn layout(tree: &Logged, key: &[u8]) -> LeafLayout {
    let leaf = tree.leaf_for(key).expect("nobody else is there");
    LeafLayout::of_kind(leaf.bytes().u8_at(header::KIND))
}

#[test]
fn every_kind_of_change_stamps_its_leaf_in_every_layout() {
    for &wanted in LAYOUTS {
        let tree = logged(LeafPolicy::Fixed(wanted));
        // Enough for splits, after which there are dense leaves.
        for number in 0..200_u32 {
            tree.put(&number.to_be_bytes(), b"same").unwrap();
        }
        let key = 20_u32.to_be_bytes();
        assert_eq!(layout(&tree, &key), wanted);
        let other = 190_u32.to_be_bytes();
        let elsewhere = stamp(&tree, &other);
        assert!(elsewhere > stamp(&tree, &key), "it was put later, and into another leaf");
        let part = |value| Part { batch: BatchId::new(1), change: 0, value };
        let changes: [(&str, &dyn Fn()); 8] = [
            ("put", &|| assert!(tree.put(&key, b"over").unwrap())),
            ("update", &|| assert!(tree.update(&key, b"more").unwrap())),
            ("swap", &|| {
                let swapped = tree.compare_and_swap(&key, Some(b"more"), Some(b"most")).unwrap();
                assert_eq!(swapped, CompareAndSwap::Swapped);
            }),
            ("part of a batch", &|| tree.make_part(&key, &part(Some(b"part"))).unwrap()),
            ("removal by a batch", &|| tree.make_part(&key, &part(None)).unwrap()),
            ("insertion", &|| assert!(tree.insert_if_absent(&key, b"anew").unwrap())),
            ("removal", &|| assert!(tree.remove(&key).unwrap())),
            ("removal of a range", &|| {
                let to = 23_u32.to_be_bytes();
                assert_eq!(tree.remove_range(&key, Some(&to)).unwrap(), 2);
            }),
        ];
        for (what, change) in changes {
            let before = tree.pool().appended();
            change();
            assert_eq!(tree.pool().appended().0, before.0 + 1, "{wanted} {what}");
            assert_eq!(stamp(&tree, &key), tree.pool().appended(), "{wanted} {what}");
        }
        let before = tree.pool().appended();
        assert!(!tree.remove(&key).unwrap() && !tree.update(&key, b"none").unwrap());
        let swap = tree.compare_and_swap(&key, Some(b"none"), None).unwrap();
        assert_eq!(swap, CompareAndSwap::Differs(None));
        assert_eq!((tree.pool().appended(), stamp(&tree, &key)), (before, before), "{wanted}");
        assert_eq!(stamp(&tree, &other), elsewhere, "{wanted}");
    }
}

/// For each key, the LSN of its last change, removals included, is at most the stamp of the leaf where it is or would be.
#[test]
fn no_change_is_newer_than_the_stamp_of_its_leaf_whatever_splits_and_merges_do() {
    let seed = random::seed();
    println!("seed {seed}");
    let mut random = SplitMix64::new(seed);
    for policy in policies() {
        let tree = logged(policy);
        let mut newest: BTreeMap<Vec<u8>, Lsn> = BTreeMap::new();
        for step in 0..4000_u32 {
            let key = match random.below(3) {
                0 => random_key(&mut random, tree.max_key_bytes() - 4),
                _ => (random.below(900) as u32).to_be_bytes().to_vec(),
            };
            // More records, then fewer, so that leaves split and merge in turn.
            let grows = step / 500 % 2 == 0;
            match random.below(10) {
                0 if !grows => {
                    let mut to = key.clone();
                    to.push(0xff);
                    let from = key.get(..key.len() / 2).unwrap_or(&[]).to_vec();
                    let first = Lsn(tree.pool().appended().0 + 1);
                    let there: Vec<Vec<u8>> = newest
                        .range(from.clone()..to.clone())
                        .map(|(key, _)| key.clone())
                        .filter(|key| tree.get(key).unwrap().is_some())
                        .collect();
                    let removed = tree.remove_range(&from, Some(&to)).unwrap();
                    assert_eq!(removed, there.len() as u64);
                    newest.extend(there.into_iter().map(|key| (key, first)));
                }
                1..5 if !grows => {
                    if tree.remove(&key).unwrap() {
                        newest.insert(key, tree.pool().appended());
                    }
                }
                _ => {
                    tree.put(&key, &step.to_be_bytes()).unwrap();
                    newest.insert(key, tree.pool().appended());
                }
            }
            if step % 50 == 0 {
                for (key, lsn) in &newest {
                    let stamp = stamp(&tree, key);
                    assert!(stamp >= *lsn, "{policy:?}, step {step}: {stamp:?} of {lsn:?}");
                    assert!(stamp <= tree.pool().appended());
                }
            }
        }
        assert_clean(&tree);
    }
}
