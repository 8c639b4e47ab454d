//! The ends of the order: against a map in every layout, by threads that take them all, and beside leaves without records.

use super::super::descend::Target;
use super::super::retry::Patience;
use super::super::{End, Taken, Tree};
use super::{TINY_PAGE, absent, assert_clean, policies, random_key, tiny};
use crate::node::plain_leaf;
use crate::page::{FrameHead, Frames};
use crate::testing::MemoryPool;
use crate::testing::environment::fresh_seed;
use crate::types::TreeId;
use crate::wait::Wait;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::{AtomicU64, Ordering};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::{spawn_named, yield_now};
use hedgerow_sync::primitive::time::Moment;
use std::collections::BTreeMap;
use std::time::Duration;

const ENDS: [End; 2] = [End::First, End::Last];

fn take(tree: &Tree<MemoryPool>, end: End) -> Option<(Vec<u8>, Vec<u8>)> {
    match tree.take_end(end, |_, _| true).unwrap() {
        Taken::Record(record) => Some(record),
        Taken::Empty => None,
        Taken::Refused(record) => panic!("refused: {record:?}"),
    }
}

fn against_a_map(tree: &Tree<MemoryPool>, random: &mut SplitMix64) {
    let mut model = BTreeMap::new();
    let end_of = |model: &BTreeMap<Vec<u8>, Vec<u8>>, end| {
        let found = if end == End::First { model.iter().next() } else { model.iter().next_back() };
        found.map(|(key, value)| (key.clone(), value.clone()))
    };
    for step in 0..4_000_u32 {
        // It fills up, and empties, in turn.
        let grows = step / 500 % 2 == 0;
        let end = ENDS[random.below(2) as usize];
        match random.below(10) {
            0..6 if grows => {
                let key = match random.below(2) {
                    0 => (random.below(400) as u32).to_be_bytes().to_vec(),
                    _ => random_key(random, tree.max_key_bytes() - 30),
                };
                let value = vec![step as u8; random.below(30) as usize];
                tree.put(&key, &value).unwrap();
                model.insert(key, value);
            }
            0..3 => {
                let at = random.below(model.len() as u64) as usize;
                if let Some(key) = model.keys().nth(at).cloned() {
                    assert!(tree.remove(&key).unwrap());
                    model.remove(&key);
                }
            }
            3..5 => assert_eq!(tree.end(end).unwrap(), end_of(&model, end)),
            5 => {
                let refused = tree.take_end(end, |_, _| false).unwrap();
                assert_eq!(matches!(refused, Taken::Refused(_)), !model.is_empty());
            }
            _ => {
                let found = take(tree, end);
                assert_eq!(found, end_of(&model, end), "step {step}");
                found.map(|(key, _)| model.remove(&key));
            }
        }
    }
    while let Some((key, value)) = take(tree, ENDS[model.len() % 2]) {
        assert_eq!(model.remove(&key), Some(value));
    }
    assert!(model.is_empty() && tree.end(End::Last).unwrap().is_none());
}

#[test]
fn the_ends_of_every_layout_are_those_of_a_map() {
    let seed = fresh_seed();
    let mut random = SplitMix64::new(seed);
    for policy in policies() {
        let pool = Arc::new(MemoryPool::new(TINY_PAGE, 1 << 16));
        let tree = Tree::create_with(pool, TreeId(7), policy).unwrap();
        against_a_map(&tree, &mut random);
        assert_clean(&tree);
        against_a_map(&absent(6, seed).with_policy(policy), &mut random);
    }
}

/// Threads take all records from both ends while others put. Each comes out once, and those of one thread that come from one end
/// come in order.
#[test]
fn every_record_is_taken_by_one_thread() {
    const EACH: u64 = 3_000;
    let tree = tiny();
    let left = Arc::new(AtomicU64::new(2 * EACH));
    let putters: Vec<_> = (0..2_u64)
        .map(|class| {
            let tree = tree.clone();
            let put = move || {
                for number in 0..EACH {
                    let key = [number.to_be_bytes(), class.to_be_bytes()].concat();
                    assert!(!tree.put(&key, &number.to_be_bytes()).unwrap());
                }
            };
            spawn_named("putter", put).unwrap()
        })
        .collect();
    let takers: Vec<_> = (0..3_usize)
        .map(|taker| {
            let (tree, left) = (tree.clone(), left.clone());
            let run = move || {
                let mut taken = Vec::new();
                while left.load(Ordering::Relaxed) > 0 {
                    match take(&tree, if taker == 2 { End::Last } else { End::First }) {
                        Some((key, _)) => {
                            left.fetch_sub(1, Ordering::Relaxed);
                            taken.push(key);
                        }
                        None => yield_now(),
                    }
                }
                taken
            };
            spawn_named("taker", run).unwrap()
        })
        .collect();
    putters.into_iter().for_each(|putter| putter.join().unwrap());
    let mut all: Vec<Vec<u8>> = Vec::new();
    for (number, taker) in takers.into_iter().enumerate() {
        let taken = taker.join().unwrap();
        for class in 0..2_u64 {
            let of = |key: &&Vec<u8>| key.ends_with(&class.to_be_bytes());
            // A later one may have been put after a greater one was taken, but not by the same thread.
            assert!(number == 2 || taken.iter().filter(of).is_sorted(), "taker {number}");
        }
        all.extend(taken);
    }
    all.sort();
    assert_eq!(all.len() as u64, 2 * EACH);
    assert!(all.windows(2).all(|pair| pair[0] < pair[1]), "none came out twice");
    assert_clean(&tree);
}

/// The first leaf stays empty, since its parent is latched all the time. Where a record is put into it before one is put behind it, no
/// call finds the later one first.
#[test]
fn a_record_that_comes_to_an_empty_leaf_is_not_passed_over() {
    const ROUNDS: u64 = 3_000;
    let tree = tiny();
    let key = |number: u64| number.to_be_bytes();
    for number in 0..60 {
        tree.put(&key(number), &[7; 30]).unwrap();
    }
    assert!(tree.stats().unwrap().levels.len() > 1);
    let root = tree.pool().translate(tree.root()).unwrap();
    let latch = tree.pool().head(root).latch().shared();
    let hasty = tree.clone().with_wait(Wait::Never);
    for number in 0..60 {
        hasty.remove(&key(number)).unwrap();
    }
    assert_eq!(tree.count().unwrap(), 0);
    let taken = Arc::new(AtomicU64::new(0));
    let taker = {
        let (tree, taken) = (hasty.clone(), taken.clone());
        let run = move || {
            let mut found = Vec::new();
            while found.len() < 2 * ROUNDS as usize {
                match tree.take_end(End::First, |_, _| true) {
                    Ok(Taken::Record((key, _))) => {
                        found.push(key);
                        taken.fetch_add(1, Ordering::Release);
                    }
                    Ok(_) => yield_now(),
                    Err(error) => assert_eq!(error.kind(), crate::error::ErrorKind::WouldBlock),
                }
            }
            found
        };
        spawn_named("taker", run).unwrap()
    };
    for round in 0..ROUNDS {
        tree.put(&key(0), &[7; 30]).unwrap();
        tree.put(&key(50), &[7; 30]).unwrap();
        while taken.load(Ordering::Acquire) < 2 * (round + 1) {
            yield_now();
        }
    }
    let found = taker.join().unwrap();
    for (at, pair) in found.chunks(2).enumerate() {
        assert_eq!(pair, [key(0), key(50)], "round {at}");
    }
    drop(latch);
}

/// So it is beside threads that append: the last leaf, whose lower fence is ahead of the keys, is empty, and they keep the one before it busy.
#[test]
fn who_meets_others_waits_for_the_leaf_that_has_the_record_though_an_empty_one_lies_before_it() {
    let tree = tiny();
    let key = |number: u64| number.to_be_bytes();
    for number in 0..60 {
        tree.put(&key(number), &[7; 30]).unwrap();
    }
    // Merges wait for the root.
    let root = tree.pool().translate(tree.root()).unwrap();
    let held = tree.pool().head(root).latch().shared();
    let hasty = tree.clone().with_wait(Wait::Never);
    let (mut least, mut most) = (0, 59);
    for _ in 0..15 {
        hasty.remove(&key(least)).unwrap();
        hasty.remove(&key(most)).unwrap();
        (least, most) = (least + 1, most - 1);
    }
    drop(held);
    let forever = Wait::Default.begin();
    let patience = Patience::new(&forever);
    let ends = [(End::First, Target::Key(b""), least), (End::Last, Target::Last, most)];
    for (end, outermost, left) in ends {
        for takes in [false, true] {
            let empty = tree.share_leaf(outermost, &patience).unwrap();
            assert_eq!(plain_leaf(empty.bytes()).count(), 0, "{end:?} has an empty leaf");
            drop(empty);
            let page = tree.lock_leaf_at(Target::Key(&key(left)), &patience).unwrap();
            let reader = {
                let tree = tree.clone();
                let run = move || match takes {
                    false => tree.end(end).unwrap().unwrap().0,
                    true => take(&tree, end).unwrap().0,
                };
                spawn_named("reader", run).unwrap()
            };
            let latch = tree.pool().head(page.frame()).latch();
            let since = Moment::now();
            while !latch.is_awaited() {
                assert!(since.elapsed() < Duration::from_secs(20), "{end:?} is not waited for");
                yield_now();
            }
            page.release_unchanged();
            assert_eq!(reader.join().unwrap(), key(left));
        }
    }
}

#[test]
fn a_first_leaf_that_lost_its_records_goes_with_the_next_that_is_taken() {
    let tree = tiny();
    for number in 0..60_u64 {
        tree.put(&number.to_be_bytes(), &[7; 30]).unwrap();
    }
    let forever = Wait::Default.begin();
    let patience = Patience::new(&forever);
    let in_first =
        || plain_leaf(tree.share_leaf(Target::Key(b""), &patience).unwrap().bytes()).count();
    // Merges wait for the root.
    let root = tree.pool().translate(tree.root()).unwrap();
    let held = tree.pool().head(root).latch().shared();
    let hasty = tree.clone().with_wait(Wait::Never);
    let mut least = 0_u64;
    while in_first() > 0 {
        hasty.remove(&least.to_be_bytes()).unwrap();
        least += 1;
    }
    drop(held);
    assert_eq!(take(&tree, End::First).unwrap().0, least.to_be_bytes());
    assert!(in_first() > 0, "the first leaf is empty yet");
    assert_clean(&tree);
}
