//! Models of Eunomia's two regions: regions are one mutex, locks and marks of the CCM are the real ones.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p hedgerow-htm-index --release --test loom_eunomia
//! ```
//!
//! Leaves are small models: keys behind the mutex of the regions, and a sequence number that is also read outside of them. What is
//! modelled is what lies between both regions: a leaf that is split, merged or taken again there, and marks that another key shares.

#![cfg(loom)]

use hedgerow_htm_index::eunomia::Ccm;
use hedgerow_htm_index::eunomia::ccm::mark_of;
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::collections::BTreeSet;

/// Two leaves, and from which key on the second one has the keys.
struct Tree {
    /// Keys of both leaves, and the bound. Holding this is being in a region.
    region: Mutex<([BTreeSet<u64>; 2], u64)>,
    sequences: [AtomicU64; 2],
    ccms: [Ccm; 2],
}

#[derive(Clone, Copy)]
struct Way {
    leaf: usize,
    sequence: u64,
}

impl Tree {
    /// All keys in the first leaf.
    fn new(keys: &[u64]) -> Tree {
        let tree = Tree {
            region: Mutex::new(([keys.iter().copied().collect(), BTreeSet::new()], u64::MAX)),
            sequences: [AtomicU64::new(1), AtomicU64::new(0)],
            ccms: [Ccm::default(), Ccm::default()],
        };
        keys.iter().for_each(|&key| drop(tree.ccms[0].mark(key)));
        tree
    }

    fn upper(&self, key: u64) -> Way {
        let region = self.region.lock().unwrap();
        let leaf = usize::from(key >= region.1);
        Way { leaf, sequence: self.sequences[leaf].load(Relaxed) }
    }

    fn get(&self, key: u64) -> bool {
        loop {
            let way = self.upper(key);
            let _lock = self.ccms[way.leaf].lock(key, false);
            if !self.ccms[way.leaf].is_marked(key) {
                let sequence = self.sequences[way.leaf].load(Acquire);
                if sequence == way.sequence {
                    return false;
                }
                continue;
            }
            let region = self.region.lock().unwrap();
            if self.sequences[way.leaf].load(Relaxed) == way.sequence {
                return region.0[way.leaf].contains(&key);
            }
        }
    }

    fn put(&self, key: u64) {
        loop {
            let way = self.upper(key);
            let _lock = self.ccms[way.leaf].lock(key, true);
            let is_new = !self.ccms[way.leaf].mark(key);
            let mut region = self.region.lock().unwrap();
            if self.sequences[way.leaf].load(Relaxed) != way.sequence {
                continue;
            }
            let was_new = region.0[way.leaf].insert(key);
            assert!(!is_new || was_new, "a key without a mark was there");
            return;
        }
    }

    fn remove(&self, key: u64) -> bool {
        loop {
            let way = self.upper(key);
            let _lock = self.ccms[way.leaf].lock(key, true);
            let mut region = self.region.lock().unwrap();
            if self.sequences[way.leaf].load(Relaxed) != way.sequence {
                continue;
            }
            let was_there = region.0[way.leaf].remove(&key);
            let is_shared = region.0[way.leaf].iter().any(|&other| mark_of(other) == mark_of(key));
            if was_there && !is_shared {
                self.ccms[way.leaf].unmark(key);
            }
            return was_there;
        }
    }

    /// Moves keys from `bound` on to the second leaf.
    fn split(&self, bound: u64) {
        let mut region = self.region.lock().unwrap();
        let upper = region.0[0].split_off(&bound);
        self.raise(1, 1);
        self.ccms[1].rebuild(upper.iter().copied());
        region.0[1] = upper;
        self.raise(0, 2);
        self.ccms[0].rebuild(region.0[0].iter().copied());
        region.1 = bound;
    }

    /// Moves all keys to the first leaf, and frees the second one.
    fn merge(&self) {
        let mut region = self.region.lock().unwrap();
        let mut right = std::mem::take(&mut region.0[1]);
        self.raise(0, 2);
        self.raise(1, 1);
        region.0[0].append(&mut right);
        self.ccms[0].rebuild(region.0[0].iter().copied());
        region.1 = u64::MAX;
    }

    fn raise(&self, leaf: usize, by: u64) {
        let sequence = &self.sequences[leaf];
        sequence.store(sequence.load(Relaxed) + by, Relaxed);
    }

    /// After all threads: keys are where they belong, and have marks.
    fn verify(&self) {
        let region = self.region.lock().unwrap();
        for (leaf, keys) in region.0.iter().enumerate() {
            for &key in keys {
                assert_eq!(usize::from(key >= region.1), leaf, "key {key} is astray");
                assert!(self.ccms[leaf].is_marked(key), "key {key} has no mark");
            }
        }
    }
}

/// Three keys: the last two share a mark.
fn keys() -> [u64; 3] {
    let second = 1_000;
    let third = (second + 1..).find(|&key| mark_of(key) == mark_of(second)).unwrap();
    [1, second, third]
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

#[test]
fn a_get_finds_a_key_that_a_split_moves() {
    let [first, second, _] = keys();
    check(move || {
        let tree = Arc::new(Tree::new(&[first, second]));
        let other = Arc::clone(&tree);
        let splitter = thread::spawn(move || other.split(second));
        assert!(tree.get(second), "a key that was always there");
        splitter.join().unwrap();
        tree.verify();
    });
}

#[test]
fn a_put_and_a_remove_on_one_mark_leave_the_key_that_is_there_marked() {
    let [_, second, third] = keys();
    check(move || {
        let tree = Arc::new(Tree::new(&[second]));
        let other = Arc::clone(&tree);
        let remover = thread::spawn(move || assert!(other.remove(second)));
        tree.put(third);
        assert!(tree.get(third), "it was put before");
        remover.join().unwrap();
        tree.verify();
        assert!(!tree.get(second));
    });
}

#[test]
fn a_remove_leaves_the_mark_of_a_key_that_was_there_before() {
    let [_, second, third] = keys();
    check(move || {
        let tree = Arc::new(Tree::new(&[second, third]));
        let other = Arc::clone(&tree);
        let remover = thread::spawn(move || assert!(other.remove(second)));
        assert!(tree.get(third), "a key that was always there");
        remover.join().unwrap();
        tree.verify();
    });
}

#[test]
fn a_put_into_a_leaf_that_is_merged_and_taken_again_is_found() {
    let [first, second, third] = keys();
    check(move || {
        let tree = Arc::new(Tree::new(&[first, second]));
        tree.split(second);
        let other = Arc::clone(&tree);
        let changer = thread::spawn(move || {
            other.merge();
            other.split(second);
        });
        tree.put(third);
        assert!(tree.get(third), "it was put before");
        changer.join().unwrap();
        tree.verify();
    });
}

#[test]
fn a_put_into_the_left_leaf_of_a_merge_is_marked() {
    let [first, second, _] = keys();
    check(move || {
        let tree = Arc::new(Tree::new(&[second]));
        tree.split(second);
        let other = Arc::clone(&tree);
        let merger = thread::spawn(move || other.merge());
        tree.put(first);
        assert!(tree.get(first), "it was put before");
        merger.join().unwrap();
        tree.verify();
    });
}
