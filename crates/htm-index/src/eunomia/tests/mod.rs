//! Tests of the tree by itself: by one thread, with an abort at each access, and what errors leave behind.

mod forced;
mod verify;

use super::ccm::mark_of;
use super::node::unpack_root;
use super::{Eunomia, FANOUT, MakeError, Steps, StepsError};
use crate::arena::ArenaError;
use crate::htm::{Htm, Lock};
use forced::Forced;
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeMap;
use verify::many_steps;

fn seed() -> u64 {
    let given = std::env::var("HEDGEROW_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(hedgerow_sync::primitive::random::seed);
    println!("HEDGEROW_SEED={seed}");
    seed
}

/// Does random operations to a tree and a map, and compares all answers.
fn compare<H: Htm>(htm: H, steps: Steps, operations: u32, keys: u64, seed: u64) -> Eunomia<H> {
    let tree = Eunomia::new(htm, steps, 1_024).unwrap();
    let mut map = BTreeMap::new();
    let mut random = SplitMix64::new(seed);
    let mut session = tree.session();
    for number in 0..operations {
        // Phases of growing and of shrinking, so that leaves split and merge.
        let removes = if number / 600 % 2 == 0 { 2 } else { 6 };
        let key = random.below(keys) * 3;
        match random.below(10) {
            roll if roll < removes => assert_eq!(session.remove(key), map.remove(&key)),
            7 => assert_eq!(session.get(key), map.get(&key).copied(), "{key}"),
            8 => {
                let before = map.get(&key).copied();
                map.entry(key).or_insert(u64::from(number));
                assert_eq!(session.insert(key, u64::from(number)), Ok(before));
            }
            9 if random.below(4) == 0 => {
                let many = random.below(40) as usize;
                let mut found = Vec::new();
                session.scan(key, |key, value| {
                    found.push((key, value));
                    found.len() < many.max(1)
                });
                let expected =
                    map.range(key..).take(many.max(1)).map(|(&key, &value)| (key, value));
                assert!(found.iter().copied().eq(expected), "scan from {key}: {found:?}");
            }
            _ => {
                let value = u64::from(number);
                assert_eq!(session.put(key, value), Ok(map.insert(key, value)));
            }
        }
        if number % 100 == 0 {
            assert_eq!(tree.verify(), map);
        }
    }
    assert_eq!(tree.verify(), map);
    tree
}

#[test]
fn a_tree_does_what_a_map_does() {
    let seed = seed();
    for (name, steps) in many_steps() {
        println!("{name}");
        compare(Lock::new(), steps, 12_000, 300, seed);
    }
}

#[test]
fn an_abort_at_each_access_of_each_operation_changes_no_answer() {
    let seed = seed();
    for (name, steps) in many_steps() {
        println!("{name}");
        compare(Forced::default(), steps, 2_400, 150, seed);
    }
}

#[test]
fn leaves_split_up_to_three_levels_and_merge_down_to_one_root() {
    for (name, steps) in many_steps() {
        let tree = Eunomia::new(Lock::new(), steps, 2_048).unwrap();
        let mut session = tree.session();
        for key in 0..8_000 {
            session.put(key, !key).unwrap();
        }
        assert!(unpack_root(tree.root.0.get()).0 >= 3, "{name}");
        assert_eq!(tree.verify().len(), 8_000);
        for key in 0..8_000 {
            assert_eq!(session.remove(key), Some(!key), "{name}");
        }
        assert_eq!(tree.verify().len(), 0, "{name}");
        let mut leaves = 0;
        let mut number = super::node::NONE;
        let (height, mut first) = unpack_root(tree.root.0.get());
        for _ in 0..height {
            first = tree.inners.node(first).children[0].get();
        }
        while std::mem::replace(&mut number, first) != first && first != super::node::NONE {
            leaves += 1;
            first = tree.leaves.node(first).head.next.get();
        }
        assert!(leaves < 700, "{name}: {leaves} leaves are left of more than 800");
    }
}

#[test]
fn a_full_arena_is_an_error_and_the_tree_stays_valid() {
    for (name, steps) in many_steps() {
        let tree = Eunomia::new(Lock::new(), steps, 64).unwrap();
        let mut session = tree.session();
        let mut map = BTreeMap::new();
        let error = (0..).find_map(|key| match session.put(key, key) {
            Ok(_) => {
                map.insert(key, key);
                None
            }
            Err(error) => Some(error),
        });
        assert_eq!(error, Some(ArenaError::Full { capacity: 64 }), "{name}");
        assert_eq!(tree.verify(), map, "{name}");
        assert!(map.len() > 400, "{name}: {} records in 64 leaves", map.len());
        let last = *map.keys().last().unwrap();
        assert_eq!(session.remove(last), Some(last));
        assert_eq!(session.put(0, 7), Ok(Some(0)), "an update needs no node");
    }
}

#[test]
fn steps_that_rest_on_others_are_refused_without_them() {
    assert_eq!(
        Steps { locks: true, ..Steps::MONOLITHIC }.check(),
        Err(StepsError::LocksWithoutSplit)
    );
    assert_eq!(
        Steps { locks: false, ..Steps::COMPLETE }.check(),
        Err(StepsError::MarksWithoutLocks)
    );
    let adaptive = Steps { locks: false, marks: false, ..Steps::COMPLETE };
    assert_eq!(adaptive.check(), Err(StepsError::AdaptiveWithoutLocks));
    let made = Eunomia::new(Lock::new(), adaptive, 64);
    assert_eq!(made.err(), Some(MakeError::Steps(StepsError::AdaptiveWithoutLocks)));
    assert_eq!(Steps::named("parts"), Ok(Steps::LADDER[2].1));
    let error = Steps::named("part").unwrap_err();
    assert!(
        error.to_string().contains("`part` is none of the steps: monolithic, split"),
        "{error}"
    );
}

/// Two keys of the same mark.
fn sharing_a_mark() -> (u64, u64) {
    let other = (1..).find(|&key| mark_of(key) == mark_of(0)).unwrap();
    (0, other)
}

#[test]
fn a_remove_leaves_the_mark_of_another_key_that_shares_it() {
    let (first, second) = sharing_a_mark();
    let tree = Eunomia::new(Lock::new(), Steps::named("marks").unwrap(), 64).unwrap();
    let mut session = tree.session();
    session.put(first, 1).unwrap();
    session.put(second, 2).unwrap();
    assert_eq!(session.remove(first), Some(1));
    assert_eq!(session.get(second), Some(2), "its mark is there");
    assert_eq!(session.remove(second), Some(2));
    assert_eq!(session.get(second), None);
    let ccm = tree.ccms.node(0);
    assert_eq!(ccm.marks.get(), 0, "the last one takes the mark with it");
}

#[test]
fn a_merge_raises_the_sequence_numbers_of_both_leaves() {
    let tree = Eunomia::new(Lock::new(), Steps::named("marks").unwrap(), 64).unwrap();
    let mut session = tree.session();
    let last = FANOUT as u64;
    for key in 0..=last {
        session.put(key, key).unwrap();
    }
    let (left, right) = (session.upper(0), session.upper(last));
    assert_ne!(left.leaf, right.leaf);
    for key in 0..6 {
        session.remove(key);
    }
    tree.merge_at(0);
    for key in 10..14 {
        session.remove(key);
    }
    tree.merge_at(0);
    let merged = session.upper(last);
    assert_eq!(merged.leaf, left.leaf);
    assert_ne!(merged.sequence, left.sequence, "whoever has marked a key in it marks again");
    assert_ne!(tree.leaves.node(right.leaf).head.sequence.get(), right.sequence);
    assert_eq!(tree.verify().len(), FANOUT + 1 - 10);
}

#[test]
fn a_key_stays_locked_when_its_leaf_is_freed_and_taken_again() {
    let tree = Eunomia::new(Lock::new(), Steps::named("marks").unwrap(), 64).unwrap();
    let mut session = tree.session();
    let last = FANOUT as u64;
    for key in 0..=last {
        session.put(key, key).unwrap();
    }
    let freed = session.upper(last);
    let ccm = tree.hot_ccm(freed.usage).unwrap();
    for key in 2..12 {
        session.remove(key);
    }
    // As somebody who has come too late, and still holds it.
    let lock = ccm.lock(last, true);
    tree.merge_at(0);
    assert_ne!(session.upper(last).leaf, freed.leaf, "the right one of both is freed");
    let is_held = || ccm.locks.iter().any(|lock| lock.get() != 0);
    let mut key = 100;
    while tree.leaves.node(freed.leaf).head.sequence.get().is_multiple_of(2) {
        session.put(key, 0).unwrap();
        key += 1;
    }
    assert!(is_held(), "a lock word was reset");
    drop(lock);
    assert!(!is_held());
}
