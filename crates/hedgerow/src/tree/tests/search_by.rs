//! Searches by an order that only the values tell: in every layout, by how many comparisons, and beside changes.

use super::super::Tree;
use super::{absent, policies, tiny};
use crate::testing::MemoryPool;
use crate::testing::environment::fresh_seed;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::spawn_named;
use std::collections::BTreeMap;

/// Keys of 40 bytes with distances of all sizes: halves of ever smaller intervals, as if each had come next to the one before.
fn keys(count: usize, random: &mut SplitMix64) -> Vec<Vec<u8>> {
    let mut numbers = vec![0, u64::MAX];
    let mut at = 0;
    while numbers.len() < count {
        let is_apart = numbers[at + 1] - numbers[at] > 1;
        if is_apart && random.below(8) > 0 {
            numbers.insert(at + 1, numbers[at] + (numbers[at + 1] - numbers[at]) / 2);
        } else {
            at = random.below(numbers.len() as u64 - 1) as usize;
        }
    }
    numbers.iter().map(|number| [&[b'k'; 32], &number.to_be_bytes()[..]].concat()).collect()
}

/// What the search for `number` says, the records that it has found to be beside it, and how many were compared.
fn search(
    tree: &Tree<MemoryPool>,
    within: (&[u8], &[u8]),
    number: u64,
) -> (Option<bool>, [Option<u64>; 2], usize) {
    let (mut beside, mut compared) = ([None, None], 0);
    let found = tree.search_by(within, |key, value| {
        assert!(key > within.0 && key < within.1, "outside of the interval");
        compared += 1;
        let at = u64::from_be_bytes(value.try_into().unwrap());
        let order = number.cmp(&at);
        match order {
            std::cmp::Ordering::Less => {
                beside[1] = Some(beside[1].map_or(at, |is: u64| is.min(at)))
            }
            _ => beside[0] = Some(beside[0].map_or(at, |is: u64| is.max(at))),
        }
        Ok(Some(order))
    });
    (found.unwrap(), beside, compared)
}

/// `restarts`: how often a search may begin anew, and compare again.
fn against_a_map(tree: &Tree<MemoryPool>, restarts: usize, random: &mut SplitMix64) {
    let keys = keys(600, random);
    let mut model = BTreeMap::new();
    let mut order: Vec<usize> = (0..keys.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    for at in order {
        // Every second number, so that others can be missed.
        tree.put(&keys[at], &(2 * at as u64).to_be_bytes()).unwrap();
        model.insert(2 * at as u64, keys[at].clone());
    }
    for thinned in [false, true] {
        if thinned {
            // Never so many side by side that a leaf is left without any.
            for at in (0..keys.len()).filter(|at| !at.is_multiple_of(3)) {
                tree.remove(&keys[at]).unwrap();
                model.remove(&(2 * at as u64));
            }
        }
        let height = tree.stats().unwrap().levels.len();
        for _ in 0..300 {
            let mut ends = [random.below(600) as usize, random.below(600) as usize];
            ends.sort_unstable();
            let (low, high) = (2 * ends[0] as u64, 2 * ends[1] as u64);
            let within = (keys[ends[0]].as_slice(), keys[ends[1]].as_slice());
            let number = low + random.below(high - low + 1);
            let inside = || model.range(low..high).filter(|(at, _)| **at > low);
            let (found, [below, above], compared) = search(tree, within, number);
            let is_there = number > low && number < high && model.contains_key(&number);
            assert_eq!(found, Some(is_there), "{number} in {low}..{high}");
            let count = inside().count();
            let most = count.max(1).ilog2() as usize + 2 * height + 1;
            assert!(compared <= most * (1 + restarts), "{compared} of {count}");
            if !is_there && number > low && number < high {
                let next = |numbers: Option<(&u64, &Vec<u8>)>| numbers.map(|(at, _)| *at);
                assert_eq!(below, next(inside().rfind(|(at, _)| **at < number)));
                assert_eq!(above, next(inside().find(|(at, _)| **at > number)));
            }
        }
    }
}

#[test]
fn what_is_there_is_found_by_about_as_many_comparisons_as_bits_tell_the_records_apart() {
    let seed = fresh_seed();
    println!("seed {seed}");
    for policy in policies() {
        against_a_map(&tiny().with_policy(policy), 0, &mut SplitMix64::new(seed));
        against_a_map(&absent(50, seed).with_policy(policy), 20, &mut SplitMix64::new(seed));
    }
}

/// The first record behind a node may have none of the bytes that all keys of the node begin with, once others are removed: it is no
/// key to search for in that node.
#[test]
fn a_limit_behind_a_node_is_not_sought_in_it() {
    const EACH: u64 = 400;
    let key = |number: u64| {
        let (stretch, place) = (number / EACH, number % EACH);
        // Behind the stretch the bytes are smaller than in it.
        let last = if stretch == 0 { 1 << 31 | place } else { place };
        [&[b'k'; 32][..], &(stretch as u32).to_be_bytes(), &(last as u32).to_be_bytes()].concat()
    };
    for policy in policies() {
        let tree = tiny().with_policy(policy);
        for number in 0..2 * EACH {
            tree.put(&key(number), &number.to_be_bytes()).unwrap();
        }
        let mut found = 0;
        for removed in (EACH / 2..EACH).rev() {
            tree.remove(&key(removed)).unwrap();
            for number in (0..removed).step_by(7) {
                let (answer, ..) = search(&tree, (b"a", b"z"), number);
                // Nothing is said where a leaf is left without records.
                assert_ne!(answer, Some(false), "{number}");
                found += u64::from(answer.is_some());
            }
        }
        assert!(found > EACH * EACH / 28, "{found}: most are found");
    }
}

#[test]
fn a_search_of_no_records_ends() {
    let tree = tiny();
    assert_eq!(search(&tree, (b"a", b"z"), 7).0, Some(false));
    tree.put(b"a", &[0; 8]).unwrap();
    tree.put(b"z", &[0; 8]).unwrap();
    assert_eq!(search(&tree, (b"a", b"z"), 7), (Some(false), [None, None], 0));
    assert_eq!(search(&tree, (b"z", b"a"), 7), (Some(false), [None, None], 0));
}

/// Leaves that are split and merged while their first records are compared.
#[test]
fn what_stays_is_found_and_what_never_is_is_not_beside_changes() {
    let seed = fresh_seed();
    println!("seed {seed}");
    let tree = Arc::new(tiny());
    let key = |number: u64| [&[b'k'; 60], &number.to_be_bytes()[..]].concat();
    const ALL: u64 = 4_000;
    for number in (0..ALL).step_by(8) {
        tree.put(&key(number), &number.to_be_bytes()).unwrap();
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = [1, 2]
        .map(|writer| {
            let (tree, is_over) = (tree.clone(), is_over.clone());
            spawn_named("writer", move || {
                let mut random = SplitMix64::new(seed + writer);
                while !is_over.load(Ordering::Relaxed) {
                    let from = random.below(ALL / 8) * 8;
                    for number in from..(from + 200).min(ALL) {
                        // Those of the other writer, those that stay, and those that are never there.
                        if number % 8 != 2 * writer {
                            continue;
                        }
                        tree.put(&key(number), &number.to_be_bytes()).unwrap();
                    }
                    for number in from..(from + 200).min(ALL) {
                        if number % 8 == 2 * writer {
                            tree.remove(&key(number)).unwrap();
                        }
                    }
                }
            })
            .unwrap()
        })
        .into();
    let mut random = SplitMix64::new(seed);
    let (mut found, mut missed) = (0, 0);
    while found + missed < 6_000 {
        let number = random.below(ALL / 8 - 1) * 8 + 8 * random.below(2) + random.below(2);
        let (answer, ..) = search(&tree, (&key(0)[..60], &key(u64::MAX)), number);
        match (answer, number.is_multiple_of(8)) {
            (Some(true), true) => found += 1,
            (Some(false), false) => missed += 1,
            (None, _) => {}
            _ => {
                is_over.store(true, Ordering::Relaxed);
                panic!("{number}: {answer:?}");
            }
        }
    }
    is_over.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().unwrap();
    }
    assert!(found > 0 && missed > 0);
}
