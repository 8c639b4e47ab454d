//! Eight threads on URLs whose leaves change their layout both ways under them: rounds of scans, then
//! of look-ups, beside writers. Every value names its key, and each writer knows what must be there.
//!
//! That nobody waits for a conversion holds by construction and needs no counter: `Tree::convert_leaf`
//! and `Tree::sort_leaf` latch by `upgrade_to_rearrange`, which has no loop, and give up if that fails.

#![cfg(not(any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads")))]

use super::super::Tree;
use super::assert_clean;
use crate::node::{LeafLayout, LeafPolicy};
use crate::page::{AdaptationStats, Pages};
use crate::testing::MemoryPool;
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::spawn_named;
use std::collections::BTreeMap;

type UrlTree = Tree<MemoryPool>;
type Model = BTreeMap<u64, u64>;

const THREADS: u64 = 8;
const WRITERS: u64 = 3;
/// Key `n` belongs to writer `n % (WRITERS + 1)`, or stays.
const KEYS: u64 = 3_000;
const PAGE_BYTES: usize = 1024;

fn key_of(number: u64) -> Vec<u8> {
    let mixed = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
    format!("https://www.example.org/{}/articles/{mixed}/{number}", number % 7).into_bytes()
}

fn value_of(key: &[u8], generation: u64) -> Vec<u8> {
    let mut value = generation.to_be_bytes().to_vec();
    value.extend_from_slice(key);
    value.resize(value.len() + (generation % 20) as usize, generation as u8);
    value
}

fn generation_of(key: &[u8], value: &[u8]) -> u64 {
    let generation = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, value_of(key, generation), "the value of another key, or a torn one");
    generation
}

fn write(tree: &UrlTree, class: u64, model: &mut Model, steps: u64, random: &mut SplitMix64) {
    for step in 0..steps {
        let number = random.below(KEYS / (WRITERS + 1)) * (WRITERS + 1) + class;
        let key = key_of(number);
        if random.below(3) == 0 {
            assert_eq!(tree.remove(&key).unwrap(), model.remove(&number).is_some());
        } else {
            let was = model.insert(number, step).is_some();
            assert_eq!(tree.put(&key, &value_of(&key, step)).unwrap(), was);
        }
        let found = tree.get(&key).unwrap().map(|value| generation_of(&key, &value));
        assert_eq!(found, model.get(&number).copied());
    }
}

/// All that stays is met once, and all is in order.
fn scan(tree: &UrlTree, forward: bool) {
    let mut cursor = tree.scan();
    if !forward {
        cursor.seek_to_end();
    }
    let (mut last, mut stayed): (Option<Vec<u8>>, u64) = (None, 0);
    while let Some((key, value)) =
        if forward { cursor.next_record() } else { cursor.previous_record() }.unwrap()
    {
        generation_of(key, value);
        if let Some(last) = &last {
            assert!(if forward { *key > **last } else { *key < **last }, "out of order");
        }
        let number = key.rsplit(|byte| *byte == b'/').next().unwrap();
        let number: u64 = std::str::from_utf8(number).unwrap().parse().unwrap();
        stayed += u64::from(number % (WRITERS + 1) == WRITERS);
        last = Some(key.to_vec());
    }
    assert_eq!(stayed, KEYS / (WRITERS + 1), "a key that was there all the time was not seen");
}

fn look_up(tree: &UrlTree, times: u64, random: &mut SplitMix64) {
    for _ in 0..times {
        let number = random.below(KEYS);
        let key = key_of(number);
        let found = tree.get(&key).unwrap().map(|value| generation_of(&key, &value));
        assert!(found.is_some() || number % (WRITERS + 1) != WRITERS);
    }
}

/// Rounds of scans and rounds of look-ups; in round `r` all handles have policy `policy(r)`.
fn run(mut tree: UrlTree, seed: u64, policy: impl Fn(u64) -> LeafPolicy) -> AdaptationStats {
    println!("seed {seed}");
    tree = tree.with_policy(policy(0));
    for number in (WRITERS..KEYS).step_by(WRITERS as usize + 1) {
        let key = key_of(number);
        tree.put(&key, &value_of(&key, 1)).unwrap();
    }
    let mut models = vec![Model::new(); WRITERS as usize];
    for round in 0..6 {
        tree = tree.with_policy(policy(round));
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let tree = tree.clone();
                let mut model = models.get(thread as usize).cloned().unwrap_or_default();
                let mut random = SplitMix64::new(seed ^ (round << 8) ^ thread);
                let act = move || {
                    match (thread < WRITERS, round % 2 == 0) {
                        (true, _) => write(&tree, thread, &mut model, 1_500, &mut random),
                        (false, true) => (0..12).for_each(|n| scan(&tree, (n + thread) % 2 == 0)),
                        (false, false) => look_up(&tree, 12_000, &mut random),
                    }
                    model
                };
                spawn_named("url", act).unwrap()
            })
            .collect();
        for (thread, done) in threads.into_iter().enumerate() {
            let model = done.join().expect("a thread has failed");
            if let Some(of) = models.get_mut(thread) {
                *of = model;
            }
        }
        assert_clean(&tree);
    }
    let stay = (WRITERS..KEYS).step_by(WRITERS as usize + 1).map(|number| (number, 1));
    let expected: BTreeMap<_, _> = models
        .into_iter()
        .flatten()
        .chain(stay)
        .map(|(number, generation)| (key_of(number), generation))
        .collect();
    let mut found = BTreeMap::new();
    let mut cursor = tree.scan();
    while let Some((key, value)) = cursor.next_record().unwrap() {
        found.insert(key.to_vec(), generation_of(key, value));
    }
    assert!(found == expected, "{} records, not {}", found.len(), expected.len());
    let done = tree.pool().adaptation().unwrap().values();
    println!("{done:?}");
    done
}

fn new_tree() -> UrlTree {
    Tree::create(Arc::new(MemoryPool::new(PAGE_BYTES, 1 << 14)), TreeId(7)).unwrap()
}

#[test]
fn leaves_convert_both_ways_under_threads_that_see_only_truth() {
    let done = run(new_tree(), crate::testing::environment::fresh_seed(), |_| LeafPolicy::Adaptive);
    assert!(done.for_scans > 0 && done.for_points > 0, "{done:?}");
    assert!(done.by_splits > 0 && done.sorted > 0, "{done:?}");
}

#[test]
fn leaves_convert_both_ways_while_pages_come_and_go() {
    let seed = crate::testing::environment::fresh_seed();
    let pool = MemoryPool::with_absences(PAGE_BYTES, 1 << 14, 40, seed);
    let tree = Tree::create(Arc::new(pool), TreeId(7)).unwrap();
    let done = run(tree, seed, |_| LeafPolicy::Adaptive);
    assert!(done.for_scans > 0 && done.for_points > 0 && done.sorted > 0, "{done:?}");
}

#[test]
fn threads_see_only_truth_with_every_fixed_layout_and_operations_have_no_say() {
    for layout in LeafLayout::ALL {
        let done = run(new_tree(), crate::testing::environment::fresh_seed(), |_| {
            LeafPolicy::Fixed(layout)
        });
        assert_eq!((done.for_scans, done.for_points), (0, 0), "{layout:?}: {done:?}");
    }
}

#[test]
fn threads_see_only_truth_while_the_policy_changes() {
    let policies = [
        LeafPolicy::Fixed(LeafLayout::Fingerprint),
        LeafPolicy::Fixed(LeafLayout::Comparison),
        LeafPolicy::Adaptive,
        LeafPolicy::Fixed(LeafLayout::SemiDense),
        LeafPolicy::Fixed(LeafLayout::Fingerprint),
        LeafPolicy::Fixed(LeafLayout::FullyDense),
    ];
    let done = run(new_tree(), crate::testing::environment::fresh_seed(), |round| {
        policies[round as usize]
    });
    assert!(done.by_splits > 0 && done.sorted > 0, "{done:?}");
}

/// The counter was never counted up.
#[test]
fn merges_that_change_a_layout_are_counted() {
    let tree = new_tree().with_policy(LeafPolicy::Fixed(LeafLayout::Fingerprint));
    for number in 0..KEYS {
        let key = key_of(number);
        tree.put(&key, &value_of(&key, 1)).unwrap();
    }
    let tree = tree.with_policy(LeafPolicy::Fixed(LeafLayout::Comparison));
    for number in (0..KEYS).filter(|number| number % 10 != 0) {
        assert!(tree.remove(&key_of(number)).unwrap());
    }
    assert_clean(&tree);
    let done = tree.pool().adaptation().unwrap().values();
    assert!(done.by_merges > 10, "{done:?}");
}
