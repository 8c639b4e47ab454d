//! Threads on one tree of tiny pages, so that splits, merges, collapses and redistributions happen under every
//! operation. Every value names its key, so that a reader can tell a wrong answer by itself.

use super::super::{CompareAndSwap, ContentionSplit, Tree};
use super::{absent, assert_clean, tiny};
use crate::page::{FrameHead, Frames};
use crate::testing::MemoryPool;
use crate::types::{PageId, TreeId};
use crate::wait::Wait;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use hedgerow_sync::primitive::hint::spin_loop;
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::{JoinHandle, sleep, spawn_named, yield_now};
use std::collections::BTreeMap;
use std::time::Duration;

type TinyTree = Tree<MemoryPool>;

const WRITERS: u64 = 3;
/// Keys in all. Key `i` belongs to writer `i % (WRITERS + 1)`; those of the last class are put once,
/// before anything else, and stay.
const KEYS: u64 = 1_200;

fn key_of(number: u64) -> Vec<u8> {
    // Neighbours belong to different writers; lengths and prefixes vary.
    let tail = "/page".repeat((number % 3) as usize);
    format!("key/{:05}{tail}", number).into_bytes()
}

fn value_of(key: &[u8], generation: u64) -> Vec<u8> {
    let mut value = generation.to_be_bytes().to_vec();
    value.extend_from_slice(key);
    // Lengths change with the generation, so that updates move records and run out of space.
    value.resize(value.len() + (generation % 20) as usize, generation as u8);
    value
}

/// The generation in a value, which must be the value of this key and whole.
fn generation_of(key: &[u8], value: &[u8]) -> u64 {
    let generation = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, value_of(key, generation), "the value of another key, or a torn one");
    generation
}

fn is_permanent(number: u64) -> bool {
    number % (WRITERS + 1) == WRITERS
}

fn start(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    spawn_named(name, f).unwrap()
}

/// One writer takes every leaf for contended, so that leaves are split between keys all the time; one finds them quiet, so that
/// they may be merged again.
fn contention_of(class: u64) -> Option<ContentionSplit> {
    match class {
        0 => ContentionSplit::new(1, 4, 0.0, 2).ok(),
        1 => ContentionSplit::new(1, 4, 1.0, 1).ok(),
        _ => Some(ContentionSplit::default()),
    }
}

/// Changes the keys of one class at random and knows exactly what must be there.
fn writer(tree: &TinyTree, class: u64, steps: u64, mut random: SplitMix64) {
    let mut model = BTreeMap::new();
    for step in 0..steps {
        let shrinking = (step / 1_000) & 1 == 1;
        let number = random.below(KEYS / (WRITERS + 1)) * (WRITERS + 1) + class;
        let key = key_of(number);
        let value = value_of(&key, step);
        match random.below(if shrinking { 14 } else { 8 }) {
            0..=3 => {
                let was = model.insert(number, step).is_some();
                assert_eq!(tree.put(&key, &value).unwrap(), was);
            }
            4 => {
                let was = model.get(&number).copied();
                let expected = was.map(|generation| value_of(&key, generation));
                let swap = tree.compare_and_swap(&key, expected.as_deref(), Some(&value));
                assert!(swap.unwrap().is_swapped());
                model.insert(number, step);
            }
            5 => {
                let found = tree.get(&key).unwrap().map(|value| generation_of(&key, &value));
                assert_eq!(found, model.get(&number).copied());
            }
            6 => {
                // Somebody else's key: whatever is found is whole.
                let key = key_of(random.below(KEYS));
                tree.get_with(&key, |value| generation_of(&key, value)).unwrap();
            }
            _ => assert_eq!(tree.remove(&key).unwrap(), model.remove(&number).is_some()),
        }
    }
    for number in (class..KEYS).step_by(WRITERS as usize + 1) {
        let key = key_of(number);
        let found = tree.get(&key).unwrap().map(|value| generation_of(&key, &value));
        assert_eq!(found, model.get(&number).copied());
    }
}

/// Scans the whole tree one way; all permanent keys must be met once, and everything in order.
fn scanner(tree: &TinyTree, forward: bool) {
    let mut cursor = tree.scan();
    if !forward {
        cursor.seek_to_end();
    }
    let mut expected: Vec<_> = (0..KEYS).filter(|&n| is_permanent(n)).map(key_of).collect();
    expected.sort();
    if !forward {
        expected.reverse();
    }
    let mut expected = expected.into_iter().peekable();
    let mut last: Option<Vec<u8>> = None;
    loop {
        let record = if forward { cursor.next_record() } else { cursor.previous_record() };
        let Some((key, value)) = record.unwrap() else { break };
        generation_of(key, value);
        if let Some(last) = &last {
            assert!(if forward { *key > **last } else { *key < **last }, "out of order");
        }
        if expected.peek().is_some_and(|next| next == key) {
            expected.next();
        }
        last = Some(key.to_vec());
    }
    assert_eq!(expected.next(), None, "a key that was there all the time was not seen");
}

fn run(tree: TinyTree, steps: u64, seed: u64, hogged: bool) {
    println!("seed {seed}");
    for number in (0..KEYS).filter(|&n| is_permanent(n)) {
        let key = key_of(number);
        tree.put(&key, &value_of(&key, 1)).unwrap();
    }
    let done = Arc::new(AtomicBool::new(false));
    let scans = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..WRITERS)
        .map(|class| {
            let tree = tree.clone().with_contention_split(contention_of(class));
            let random = SplitMix64::new(seed ^ class);
            start("writer", move || writer(&tree, class, steps, random))
        })
        .collect();
    let hog = hogged.then(|| {
        let (pool, done) = (tree.pool().clone(), done.clone());
        start("hog", move || hog(&pool, &done, SplitMix64::new(!seed)))
    });
    let readers: Vec<_> = (0..4_u64)
        .map(|which| {
            let (tree, done, scans) = (tree.clone(), done.clone(), scans.clone());
            start("reader", move || {
                // At least once, however fast the writers are.
                loop {
                    match which {
                        0 => scanner(&tree, true),
                        1 => scanner(&tree, false),
                        2 => {
                            super::compact::compact(&tree);
                        }
                        _ => {
                            look_up_groups(&tree);
                            let findings = tree.verify().unwrap();
                            assert!(findings.is_empty(), "{findings:?}");
                        }
                    }
                    scans.fetch_add(1, Ordering::Relaxed);
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                }
            })
        })
        .collect();
    let mut failed = false;
    for thread in writers {
        failed |= thread.join().is_err();
    }
    done.store(true, Ordering::Relaxed);
    for thread in readers.into_iter().chain(hog) {
        failed |= thread.join().is_err();
    }
    assert!(!failed, "a thread has failed");
    assert!(scans.load(Ordering::Relaxed) >= 4);
    assert_clean(&tree);
}

/// Holds the latch of one page after the other for a while, so that optimistic tries fail again and
/// again and operations go down with latches.
fn hog(pool: &MemoryPool, done: &AtomicBool, mut random: SplitMix64) {
    while !done.load(Ordering::Relaxed) {
        let id = PageId(random.below(pool.pages() + 8) as u32);
        let Some(frame) = pool.translate(id) else { continue };
        let latch = pool.head(frame).latch();
        let (shared, exclusive) = match random.below(2) {
            0 => (Some(latch.shared()), None),
            _ => (None, Some(latch.exclusive())),
        };
        for _ in 0..random.below(2_000) {
            spin_loop();
        }
        drop(shared);
        if let Some(guard) = exclusive {
            guard.release_unchanged();
        }
    }
}

fn look_up_groups(tree: &TinyTree) {
    let keys: Vec<_> = (0..KEYS).step_by(7).map(key_of).collect();
    let values = tree.get_many(&keys).unwrap();
    assert_eq!(values.len(), keys.len());
    for (index, value) in values.iter().enumerate() {
        let generation = value.as_ref().map(|value| generation_of(&keys[index], value));
        assert!(generation.is_some() || !is_permanent(7 * index as u64));
    }
}

#[test]
fn threads_see_only_truth_while_pages_split_and_merge() {
    run(tiny(), 30_000, crate::testing::environment::fresh_seed(), false);
}

#[test]
fn threads_see_only_truth_while_pages_come_and_go() {
    let seed = crate::testing::environment::fresh_seed();
    let tree = absent(20, seed);
    run(tree.clone(), 10_000, seed, false);
    assert!(tree.pool().faults() > 1_000);
}

#[test]
fn threads_see_only_truth_while_latches_are_held_against_them() {
    run(tiny(), 8_000, crate::testing::environment::fresh_seed(), true);
}

/// Somebody who changes a leaf all the time leaves no moment in which it could be copied without a latch.
#[test]
fn a_walk_over_all_pages_copies_a_leaf_that_changes_all_the_time() {
    for records in [10_u32, 3_000] {
        let pool = Arc::new(MemoryPool::new(1 << 16, 64));
        let tree = Tree::create(pool, TreeId(7)).unwrap();
        for number in 0..records {
            tree.put(&number.to_be_bytes(), &[1; 100]).unwrap();
        }
        // The root itself, or the second leaf.
        let hot = tree.leaf_for(&(records / 2).to_be_bytes()).ok().unwrap().id();
        assert_eq!(hot == tree.root(), records == 10);
        let is_over = Arc::new(AtomicBool::new(false));
        let changes = {
            let (tree, is_over) = (tree.clone(), is_over.clone());
            start("changes", move || {
                let frame = tree.pool().translate(hot).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let latch = tree.pool().head(frame).latch().exclusive();
                    sleep(Duration::from_millis(2));
                    drop(latch);
                }
            })
        };
        let frame = tree.pool().translate(hot).unwrap();
        while !tree.pool().head(frame).latch().is_exclusive() {
            yield_now();
        }
        let bounded = tree.clone().with_wait(Wait::For(Duration::from_secs(2)));
        let counted = (0..5).map(|_| bounded.stats().map(|stats| stats.records()));
        let counted: Vec<_> = counted.collect();
        is_over.store(true, Ordering::Relaxed);
        changes.join().unwrap();
        for count in counted {
            assert_eq!(count.unwrap(), u64::from(records));
        }
    }
}

#[test]
fn increments_of_one_hot_record_are_not_lost() {
    const THREADS: u64 = 4;
    const INCREMENTS: u64 = 2_000;
    let tree = tiny();
    tree.put(b"counter", &0_u64.to_be_bytes()).unwrap();
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let tree = tree.clone();
            start("counter", move || {
                for _ in 0..INCREMENTS {
                    let mut present = tree.get(b"counter").unwrap().unwrap();
                    loop {
                        let number = u64::from_be_bytes(present.as_bytes().try_into().unwrap());
                        let next = (number + 1).to_be_bytes();
                        match tree.compare_and_swap(b"counter", Some(&present), Some(&next)) {
                            Ok(CompareAndSwap::Swapped) => break,
                            Ok(CompareAndSwap::Differs(found)) => present = found.unwrap(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let total = tree.get(b"counter").unwrap().unwrap();
    assert_eq!(*total, (THREADS * INCREMENTS).to_be_bytes());
}

#[test]
fn one_insertion_of_a_key_wins() {
    const THREADS: u64 = 4;
    let tree = tiny();
    let wins = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (tree, wins) = (tree.clone(), wins.clone());
            start("inserter", move || {
                for number in 0..2_000_u64 {
                    let won = tree.insert_if_absent(&number.to_be_bytes(), &thread.to_be_bytes());
                    wins.fetch_add(u64::from(won.unwrap()), Ordering::Relaxed);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(wins.load(Ordering::Relaxed), 2_000);
    assert_eq!(tree.count().unwrap(), 2_000);
    assert_clean(&tree);
}

#[test]
fn threads_that_empty_a_tree_together_leave_one_page() {
    const THREADS: u64 = 4;
    let tree = tiny();
    for number in 0..4_000_u64 {
        tree.put(&number.to_be_bytes(), &[9; 30]).unwrap();
    }
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let tree = tree.clone();
            start("remover", move || {
                for number in (thread..4_000).step_by(THREADS as usize) {
                    assert!(tree.remove(&number.to_be_bytes()).unwrap());
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_clean(&tree);
    assert_eq!(tree.count().unwrap(), 0);
    // A merge that met interference is left to a later removal; a few pages may wait for one.
    assert!(tree.pool().pages() < 20, "{} pages", tree.pool().pages());
}

/// A writer waits for its leaf, which is split before the writer gets it, so that its key belongs to another one.
#[test]
fn a_leaf_that_was_split_while_somebody_waited_for_it_is_not_changed() {
    const ROUNDS: u64 = 100;
    let tree = tiny();
    let key = |round: u64, place: u64| (round << 8 | place).to_be_bytes();
    let value = |round: u64| [round as u8; 60];
    for round in 0..ROUNDS {
        tree.put(&key(round, 255), &value(round)).unwrap();
    }
    let mut splits = 0;
    for round in 0..ROUNDS {
        let (wanted, leaves) = (key(round, 200), tree.stats().unwrap().levels[0].pages);
        let leaf = tree.leaf_for(&wanted).unwrap();
        let latch = tree.pool().head(leaf.frame()).latch();
        let held = latch.exclusive();
        let waiting = {
            let tree = tree.clone();
            start("waiting", move || assert!(!tree.put(&wanted, &value(round)).unwrap()))
        };
        // After three conflicts it waits for the leaf, and sleeps.
        while !format!("{latch:?}").contains("parked: true") {
            spin_loop();
        }
        held.release_unchanged();
        // Who runs comes before who has to wake up.
        for place in 0..16 {
            tree.put(&key(round, place), &value(round)).unwrap();
        }
        splits += tree.stats().unwrap().levels[0].pages - leaves;
        waiting.join().unwrap();
    }
    assert!(splits > ROUNDS / 2, "{splits} splits");
    for round in 0..ROUNDS {
        for place in (0..16).chain([200, 255]) {
            let found = tree.get(&key(round, place)).unwrap();
            assert_eq!(found.as_deref(), Some(&value(round)[..]), "{round}, {place}");
        }
    }
    assert_clean(&tree);
}
