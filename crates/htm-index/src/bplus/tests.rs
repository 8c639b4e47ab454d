//! The tree against `BTreeMap`: each operation with an abort at each of its accesses, and many at random.

use super::*;
use crate::htm::{Faults, Lock, NOrec, RetryPolicy, RwSpin, Uncontrolled};
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeMap;

/// One operation on both; whether they agree.
fn step<H: Htm>(
    tree: &BPlusTree<H>,
    model: &mut BTreeMap<u64, u64>,
    kind: u64,
    key: u64,
    value: u64,
) {
    match kind {
        0 => {
            let old = model.get(&key).copied();
            assert_eq!(tree.insert(key, value), Ok(old));
            model.entry(key).or_insert(value);
        }
        1 => assert_eq!(tree.upsert(key, value), Ok(model.insert(key, value))),
        2 => assert_eq!(tree.remove(key), model.remove(&key)),
        3 => {
            let mut found = [(0, 0); 40];
            let many = tree.scan(key, &mut found);
            let expected = model.range(key..).take(40).map(|(key, value)| (*key, *value));
            assert!(expected.eq(found[..many].iter().copied()), "scan from {key}");
        }
        _ => assert_eq!(tree.get(key), model.get(&key).copied()),
    }
}

fn records(model: &BTreeMap<u64, u64>) -> Vec<(u64, u64)> {
    model.iter().map(|(key, value)| (*key, *value)).collect()
}

/// Grows to three levels and shrinks to one, at random.
fn at_random<H: Htm>(htm: H, seed: u64) {
    let tree = BPlusTree::new(htm, 4_000).unwrap();
    let mut model = BTreeMap::new();
    let mut random = SplitMix64::new(seed);
    for (rounds, removes) in [(2_500, 1), (4_000, 8)] {
        for round in 0..rounds {
            let kind = random.below(5 + removes);
            let (key, value) = (random.below(2_000), random.next_u64());
            step(&tree, &mut model, if kind > 4 { 2 } else { kind }, key, value);
            if round % 500 == 0 {
                assert_eq!(tree.check(), Ok(records(&model)), "seed {seed}");
            }
        }
    }
    for key in 0..2_000 {
        step(&tree, &mut model, 2, key, 0);
    }
    assert_eq!(tree.check(), Ok(Vec::new()), "seed {seed}");
    assert_eq!(tree.height(), 1);
}

#[test]
fn agrees_with_a_map_whatever_the_control() {
    let seed = hedgerow_sync::primitive::random::seed();
    eprintln!("seed {seed}");
    at_random(Lock::new(), seed);
    at_random(RwSpin::new(), seed);
    at_random(Uncontrolled::new(), seed);
    at_random(NOrec::new(RetryPolicy::HPCA_R), seed);
}

/// Has an operation abort at each of its accesses. How many there are.
pub(crate) fn with_each_abort<H: Faults>(htm: &H, mut operation: impl FnMut()) -> u64 {
    for access in 1.. {
        htm.abort_at(access);
        operation();
        if htm.disarm() {
            return access - 1;
        }
    }
    0
}

#[test]
fn an_abort_at_any_access_changes_nothing() {
    let tree = BPlusTree::new(NOrec::new(RetryPolicy::DBX), 4_000).unwrap();
    let mut model = BTreeMap::new();
    let mut accesses = 0;
    // Keys in a row fill leaves and split inner nodes, and removals in a row merge them.
    for key in (0..1_200).chain(600..800) {
        let tried = key % 31 == 0 || key == 1_199;
        if tried {
            for kind in [4, 0, 1, 3] {
                let value = key + kind;
                accesses += with_each_abort(&tree.htm, || {
                    if kind < 2 {
                        tree.remove(key);
                        model.remove(&key);
                    }
                    step(&tree, &mut model, kind, key, value);
                });
            }
        }
        step(&tree, &mut model, 1, key, key);
    }
    assert_eq!(tree.check(), Ok(records(&model)));
    assert_eq!(tree.height(), 3);
    for key in 0..1_200 {
        let mut has = 0;
        accesses += with_each_abort(&tree.htm, || {
            tree.upsert(key, key).unwrap();
            model.insert(key, key);
            step(&tree, &mut model, 2, key, 0);
            has += 1;
        });
        assert!(has > 5);
    }
    assert_eq!(tree.check(), Ok(Vec::new()));
    assert!(accesses > 50_000, "{accesses}");
}

#[test]
fn a_split_and_a_merge_that_abort_at_any_access_leave_the_tree_as_it_was() {
    // A tree that is about to split up to the root, built anew for each access.
    let built = || {
        let tree = BPlusTree::new(NOrec::new(RetryPolicy::DBX), 2_000).unwrap();
        (0..30 + 15 * 30).for_each(|key| assert_eq!(tree.insert(key, key), Ok(None)));
        tree
    };
    assert_eq!(built().height(), 2);
    let mut access = 1;
    loop {
        let tree = built();
        tree.htm.abort_at(access);
        assert_eq!(tree.insert(480, 480), Ok(None));
        let is_over = tree.htm.disarm();
        let all: Vec<_> = (0..=480).map(|key| (key, key)).collect();
        assert_eq!((tree.check(), tree.height()), (Ok(all), 3), "access {access}");
        if is_over {
            break;
        }
        access += 1;
    }
    assert!(access > 150, "{access}");
}

#[test]
fn a_full_arena_is_an_error_and_the_tree_stays_as_it_was() {
    let tree = BPlusTree::with_nodes(Lock::new(), 64, 64).unwrap();
    let mut key = 0;
    let error = loop {
        match tree.insert(key, key) {
            Ok(_) => key += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, ArenaError::Full { capacity: 64 });
    assert!(key > 64 * 14, "{key}");
    assert_eq!(tree.check().map(|records| records.len() as u64), Ok(key));
    assert_eq!((tree.get(key), tree.get(key - 1)), (None, Some(key - 1)));
    // What is freed is there again.
    (0..key / 2).for_each(|key| assert_eq!(tree.remove(key), Some(key)));
    assert_eq!(tree.insert(key, key), Ok(None));
    assert_eq!(tree.check().map(|records| records.len() as u64), Ok(key - key / 2 + 1));
}

#[test]
fn a_loaded_tree_is_filled_as_by_random_inserts() {
    for many in [0, 1, 2, 30, 31, 500, 20_000] {
        let tree = BPlusTree::new(Lock::new(), 30_000).unwrap();
        let all: Vec<_> = (0..many).map(|key| (2 * key, key)).collect();
        tree.load(all.iter().copied(), 1).unwrap();
        assert_eq!(tree.check(), Ok(all.clone()), "{many}");
        if many == 20_000 {
            let fill = many as f64 / f64::from(tree.leaves.ever_used()) / node::RECORDS as f64;
            assert!((0.64..0.74).contains(&fill), "{fill}");
        }
    }
}

#[test]
fn threads_that_change_keys_of_their_own_find_all_of_them() {
    use hedgerow_sync::primitive::{Arc, thread};
    let tree = Arc::new(BPlusTree::new(NOrec::new(RetryPolicy::HPCA_R), 8_000).unwrap());
    let rounds = if cfg!(miri) { 60 } else { 2_000 };
    let work = |own: u64| {
        let tree = Arc::clone(&tree);
        move || {
            let mut model = BTreeMap::new();
            let mut random = SplitMix64::new(own);
            for _ in 0..rounds {
                let key = random.below(500) * 4 + own;
                let kind = [0, 1, 2, 4][random.below(4) as usize];
                step(&tree, &mut model, kind, key, random.next_u64());
            }
            model
        }
    };
    let threads: Vec<_> =
        (0..3).map(|own| thread::spawn_named("changer", work(own)).unwrap()).collect();
    let mut all = BTreeMap::new();
    threads.into_iter().for_each(|thread| all.extend(thread.join().unwrap()));
    assert_eq!(tree.check(), Ok(records(&all)));
}
