//! Cursors over leaves of many records: against a map, by random steps in both directions, with and
//! without changes between the steps.

use super::super::Cursor;
use super::*;
use hedgerow_sync::primitive::thread::spawn_named;
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

/// Pages of some hundred records.
const PAGE: usize = 4096;
const KEYS: u64 = 2_000;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key_of(number: u64) -> Vec<u8> {
    // Every third key has more than a head; all share a prefix.
    match number % 3 {
        0 => format!("k{number:06}/and/more").into_bytes(),
        _ => format!("k{number:06}").into_bytes(),
    }
}

fn tree() -> Tree<MemoryPool> {
    Tree::create(Arc::new(MemoryPool::new(PAGE, 1 << 12)), TreeId(7)).unwrap()
}

/// Numbers, close enough together for dense leaves.
fn dense_key_of(number: u64) -> Vec<u8> {
    (number as u32).to_be_bytes().to_vec()
}

/// The number that a key of either kind was made of.
fn number_of(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(number) if key.len() == 4 => u64::from(u32::from_be_bytes(*number)),
        _ => std::str::from_utf8(&key[1..7]).unwrap().parse().unwrap(),
    }
}

fn filled(random: &mut SplitMix64, key_of: fn(u64) -> Vec<u8>) -> (Tree<MemoryPool>, Model) {
    let (tree, mut model) = (tree(), Model::new());
    for _ in 0..KEYS {
        let (key, value) = (key_of(random.below(KEYS)), random.below(1 << 40).to_be_bytes());
        let len = if key.len() == 4 { 8 } else { random.below(9) as usize };
        let value = value[..len].to_vec();
        tree.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    (tree, model)
}

fn bound(random: &mut SplitMix64, key_of: fn(u64) -> Vec<u8>) -> Bound<Vec<u8>> {
    let key = key_of(random.below(KEYS));
    match random.below(4) {
        0 => Bound::Included(key),
        1 => Bound::Excluded(key),
        _ => Bound::Unbounded,
    }
}

/// A cursor that goes to and fro must be where a position in a sorted list is.
#[test]
fn steps_to_and_fro_agree_with_a_map() {
    let seed = crate::testing::environment::fresh_seed();
    let mut random = SplitMix64::new(seed);
    for key_of in [key_of, dense_key_of] {
        let (tree, model) = filled(&mut random, key_of);
        steps_to_and_fro(&mut random, &tree, &model, key_of);
    }
}

fn steps_to_and_fro(
    random: &mut SplitMix64,
    tree: &Tree<MemoryPool>,
    model: &Model,
    key_of: fn(u64) -> Vec<u8>,
) {
    for _ in 0..100 {
        let bounds = (bound(random, key_of), bound(random, key_of));
        let as_slices =
            (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice));
        let above = |key: &Vec<u8>| match &bounds.0 {
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
            Bound::Unbounded => true,
        };
        let below = |key: &Vec<u8>| match &bounds.1 {
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
            Bound::Unbounded => true,
        };
        let records: Vec<_> = model.iter().filter(|(key, _)| above(key) && below(key)).collect();
        let mut cursor = tree.range(as_slices);
        let mut at = 0;
        for _ in 0..20 {
            match random.below(4) {
                0 => {
                    cursor.seek_to_end();
                    at = records.len();
                }
                1 => {
                    cursor.seek_to_start();
                    at = 0;
                }
                _ => {
                    let key = key_of(random.below(KEYS));
                    cursor.seek(&key);
                    at = records.partition_point(|(record, _)| **record < key);
                }
            }
            for _ in 0..random.below(4) {
                if random.below(3) == 0 {
                    at = visit(&mut cursor, &records, at, random.below(300) as usize);
                    continue;
                }
                let forward = random.below(2) == 0;
                for _ in 0..random.below(120) {
                    let (expected, found) = if forward {
                        (records.get(at), cursor.next_record().unwrap())
                    } else {
                        (
                            at.checked_sub(1).map(|at| &records[at]),
                            cursor.previous_record().unwrap(),
                        )
                    };
                    let expected = expected.map(|(key, value)| (key.as_slice(), value.as_slice()));
                    assert_eq!(found, expected, "{bounds:?} {at} {forward}");
                    match (expected.is_some(), forward) {
                        (true, true) => at += 1,
                        (true, false) => at -= 1,
                        (false, _) => {}
                    }
                }
            }
        }
        assert!(at <= records.len());
    }
}

/// Visits up to `most` records, which must be those from `at` on. Gives where the cursor is then.
fn visit(
    cursor: &mut Cursor<MemoryPool>,
    records: &[(&Vec<u8>, &Vec<u8>)],
    mut at: usize,
    most: usize,
) -> usize {
    let until = at + most;
    let outcome = cursor.visit(|key, value| {
        assert_eq!((key, value), (records[at].0.as_slice(), records[at].1.as_slice()));
        at += 1;
        // At once if none is wanted: a visit that has begun hands one over.
        if at >= until { ControlFlow::Break(at) } else { ControlFlow::Continue(()) }
    });
    match outcome.unwrap() {
        ControlFlow::Break(last) => assert_eq!(last, at),
        ControlFlow::Continue(()) => assert_eq!(at, records.len(), "a visit ends at the end"),
    }
    at
}

/// Between any two steps records come and go, leaves split and merge. What is always there is met once,
/// in order; what is met was there at some moment, with the value that it had. A cursor that is often
/// sent to where it stands reads nearly all leaves in place, and loses them to the changes.
#[test]
fn what_stays_is_met_once_whatever_changes_between_the_steps() {
    let seed = crate::testing::environment::fresh_seed();
    let mut random = SplitMix64::new(seed);
    for round in 0..80 {
        let key_of = if round % 4 < 2 { key_of } else { dense_key_of };
        let (tree, model) = filled(&mut random, key_of);
        let always: Vec<_> = model.keys().filter(|key| stays(key)).cloned().collect();
        let (forward, changes) = (round % 2 == 0, 1 + random.below(8));
        let seeks = if round % 8 < 4 { 10 } else { u64::MAX };
        let mut cursor = tree.scan();
        if !forward {
            cursor.seek_to_end();
        }
        let mut met: Vec<Vec<u8>> = Vec::new();
        loop {
            if random.below(seeks) == 0
                && let Some(last) = met.last()
            {
                let behind = if forward { [last.as_slice(), b"\0"].concat() } else { last.clone() };
                cursor.seek(&behind);
            }
            let record =
                if forward { cursor.next_record() } else { cursor.previous_record() }.unwrap();
            let Some((key, value)) = record else { break };
            let first = model.get(key).is_some_and(|first| first == value);
            assert!(first || value == generation(key), "{key:?} {value:?}");
            met.push(key.to_vec());
            for _ in 0..random.below(changes) {
                // Near the cursor more often than not, in front of it and behind.
                let near = met.last().map_or(0, |key| number_of(key));
                let number = (near + random.below(100)).saturating_sub(50) % KEYS;
                let key = key_of(number);
                if stays(&key) || random.below(2) == 0 {
                    tree.put(&key, &generation(&key)).unwrap();
                } else {
                    tree.remove(&key).unwrap();
                }
            }
        }
        if !forward {
            met.reverse();
        }
        assert!(met.is_sorted_by(|a, b| a < b), "out of order, or twice");
        let missed: Vec<_> = always.iter().filter(|key| met.binary_search(key).is_err()).collect();
        assert!(missed.is_empty(), "{missed:?}");
        assert_clean(&tree);
    }
}

/// Whether a record is never removed.
fn stays(key: &[u8]) -> bool {
    number_of(key) % 2 == 1
}

/// The value of a changed record, which proves its key.
fn generation(key: &[u8]) -> Vec<u8> {
    [b"new ".as_slice(), key].concat()
}

/// Of a fully dense leaf with 400 records a cursor that is sent to a key has a part. What has changed behind that is seen as it
/// is now, and what is beyond was never looked at before it was copied.
#[test]
#[cfg_attr(
    any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads"),
    ignore = "of leaves of other layouts"
)]
fn a_leaf_that_changes_behind_a_window_is_sought_anew() {
    let value = |number: u64, generation: u64| (number << 8 | generation).to_be_bytes();
    for forward in [true, false] {
        let tree = tree();
        for number in 0..400 {
            tree.put(&dense_key_of(number), &value(number, 0)).unwrap();
        }
        let mut cursor = tree.scan();
        // So that the buffer has values of its own at all places.
        while cursor.next_record().unwrap().is_some() {}
        for number in (0..400).filter(|number| number % 2 == 0) {
            tree.put(&dense_key_of(number), &value(number, 1)).unwrap();
        }
        cursor.seek(&dense_key_of(200));
        let step = |cursor: &mut Cursor<MemoryPool>, number: u64, generation: u64| {
            let record = if forward { cursor.next_record() } else { cursor.previous_record() };
            let (key, found) = record.unwrap().unwrap();
            assert_eq!((number_of(key), found), (number, value(number, generation).as_slice()));
        };
        let numbers: Vec<u64> =
            if forward { (200..400).collect() } else { (0..200).rev().collect() };
        let (near, far) = numbers.split_at(if forward { 20 } else { 0 });
        for &number in near {
            step(&mut cursor, number, (number % 2) ^ 1);
        }
        assert_eq!(cursor.window.is_some(), forward, "before the first step there is no leaf");
        for number in 0..400 {
            tree.put(&dense_key_of(number), &value(number, 2)).unwrap();
        }
        let inside = if forward { 44 } else { 0 };
        for (at, &number) in far.iter().enumerate() {
            // What was in the window is as it was.
            step(&mut cursor, number, if at < inside { (number % 2) ^ 1 } else { 2 });
        }
    }
}

/// Short scans both ways from everywhere in dense leaves, beside writers and leaves that come and go.
#[test]
fn short_scans_of_dense_leaves_beside_writers_see_whole_records() {
    const NUMBERS: u64 = 3_000;
    let seed = crate::testing::environment::fresh_seed();
    let value = |number: u64, generation: u64| (number << 32 | generation).to_be_bytes();
    let tree = tree();
    for number in 0..NUMBERS {
        tree.put(&dense_key_of(number), &value(number, 0)).unwrap();
    }
    let writer = |thread: u64| {
        let tree = tree.clone();
        let mut random = SplitMix64::new(seed ^ thread);
        move || {
            // Every third number stays; those of a writer come, change and go, in runs that empty leaves.
            for generation in 1..150 {
                let (from, removes) = (random.below(NUMBERS), random.below(2) == 0);
                for number in (from..(from + 400).min(NUMBERS)).filter(|n| n % 3 == thread) {
                    if removes {
                        tree.remove(&dense_key_of(number)).unwrap();
                    } else {
                        tree.put(&dense_key_of(number), &value(number, generation)).unwrap();
                    }
                }
            }
        }
    };
    let reader = |thread: u64| {
        let tree = tree.clone();
        let mut random = SplitMix64::new(seed ^ thread);
        move || {
            let mut cursor = tree.scan();
            for _ in 0..3_000 {
                let (from, forward) = (random.below(NUMBERS), random.below(2) == 0);
                cursor.seek(&dense_key_of(from));
                let mut last = None;
                for _ in 0..random.below(130) {
                    let record =
                        if forward { cursor.next_record() } else { cursor.previous_record() };
                    let Some((key, found)) = record.unwrap() else { break };
                    let number = number_of(key);
                    let found = u64::from_be_bytes(found.try_into().unwrap());
                    assert_eq!(found >> 32, number, "the value of another key");
                    let before = last.replace(number);
                    let (low, high) = match (forward, before) {
                        (true, None) => (from, number),
                        (true, Some(before)) => (before + 1, number),
                        (false, None) => (number + 1, from),
                        (false, Some(before)) => (number + 1, before),
                    };
                    assert!(low <= high, "{number} behind {before:?}, from {from}");
                    // What stays is not passed by.
                    assert!((low..high).all(|number| number % 3 != 0), "{low} to {high}");
                }
            }
        }
    };
    let threads = [
        spawn_named("writer", writer(1)),
        spawn_named("writer", writer(2)),
        spawn_named("reader", reader(8)),
        spawn_named("reader", reader(9)),
    ];
    for thread in threads {
        thread.unwrap().join().unwrap();
    }
    assert_clean(&tree);
}
