//! Cursors that have copied a part of a fully dense leaf: where the part ends, and what they do when the leaf has
//! changed by then. Every value names its key, so that a value that was not copied gives itself away.

#![cfg(not(any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads")))]

use super::super::Cursor;
use super::*;
use crate::node::{LeafLayout, LeafPolicy};
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering};
use hedgerow_sync::primitive::thread::spawn_named;
use std::ops::Bound;

/// Slots that are copied at first.
const WINDOW: u32 = 64;
/// Records of a full leaf of 4 KiB.
const LEAF: u32 = 495;

fn key(number: u32) -> [u8; 4] {
    number.to_be_bytes()
}

fn value(number: u32) -> [u8; 8] {
    (u64::from(number) << 32 | u64::from(!number)).to_be_bytes()
}

/// A tree of these numbers, all of whose leaves are fully dense ones.
fn tree(numbers: impl Iterator<Item = u32>) -> Tree<MemoryPool> {
    let tree = Tree::create(Arc::new(MemoryPool::new(4096, 1 << 12)), TreeId(7)).unwrap();
    for number in numbers {
        tree.put(&key(number), &value(number)).unwrap();
    }
    let stats = tree.stats().unwrap();
    assert_eq!(stats.leaves_of(LeafLayout::FullyDense).pages, stats.levels[0].pages);
    tree
}

/// The number of a record, which must be whole.
fn checked((found, its_value): (&[u8], &[u8])) -> u32 {
    let number = u32::from_be_bytes(found.try_into().unwrap());
    assert_eq!(its_value, value(number), "the value of {number}");
    number
}

fn step(cursor: &mut Cursor<MemoryPool>, forward: bool) -> Option<u32> {
    let record = if forward { cursor.next_record() } else { cursor.previous_record() };
    record.unwrap().map(checked)
}

fn steps(cursor: &mut Cursor<MemoryPool>, forward: bool) -> Vec<u32> {
    std::iter::from_fn(|| step(cursor, forward)).collect()
}

/// A cursor that has met the first record in a direction, of a window that it has not left.
fn sought(tree: &Tree<MemoryPool>, number: u32, forward: bool) -> Cursor<MemoryPool> {
    let mut cursor = tree.scan();
    cursor.seek(&key(number));
    assert!(step(&mut cursor, forward).is_some());
    assert!(cursor.window.is_some());
    cursor
}

#[test]
fn a_window_is_some_slots_in_the_direction_of_the_first_step() {
    let tree = tree(0..LEAF * 3);
    let mut cursor = sought(&tree, 100, true);
    assert_eq!((cursor.first, cursor.end), (100, 164));
    for number in 101..100 + WINDOW {
        assert_eq!(step(&mut cursor, true), Some(number));
        assert!(cursor.window.is_some());
    }
    assert_eq!(step(&mut cursor, true), Some(164));
    assert!(cursor.window.is_none(), "the second part is all of the leaf");
    assert_eq!((cursor.first, cursor.end), (0, LEAF as usize));

    let mut cursor = sought(&tree, 100, false);
    assert_eq!((cursor.first, cursor.end), (37, 101));
    assert_eq!(step(&mut cursor, true), Some(99));
    assert_eq!(step(&mut cursor, true), Some(100));
    assert!(cursor.window.is_some());
    assert_eq!(step(&mut cursor, true), Some(101));
    assert!(cursor.window.is_none());
}

#[test]
fn from_everywhere_everything_is_met_both_ways() {
    // Every third number lacks; the leaf is fully dense all the same.
    let numbers: Vec<_> = (5..LEAF * 2).filter(|number| number % 3 != 1).collect();
    let tree = tree(numbers.iter().copied());
    let mut cursor = tree.scan();
    for from in (0..LEAF * 2 + 5).step_by(7) {
        let at = numbers.partition_point(|number| *number < from);
        cursor.seek(&key(from));
        assert_eq!(steps(&mut cursor, true), numbers[at..]);
        cursor.seek(&key(from));
        let before: Vec<_> = numbers[..at].iter().rev().copied().collect();
        assert_eq!(steps(&mut cursor, false), before);
        // To and fro over both ends of the window.
        cursor.seek(&key(from));
        for (forward, most) in [(true, 30), (false, 90), (true, 140), (false, 20)] {
            let first = cursor.gap;
            let met: Vec<_> =
                std::iter::from_fn(|| step(&mut cursor, forward)).take(most).collect();
            let ordered = met.is_sorted_by(|a, b| if forward { a < b } else { a > b });
            assert!(ordered, "{from} {first}: {met:?}");
            let (low, high) = (met.iter().min(), met.iter().max());
            let Some((low, high)) = low.zip(high) else { continue };
            let expected = numbers.iter().filter(|number| (low..=high).contains(number)).count();
            assert_eq!(met.len(), expected);
        }
    }
}

#[test]
fn bounds_inside_and_outside_of_a_window_are_heeded() {
    let tree = tree(0..LEAF * 2);
    let places = [0, 1, 63, 64, 65, 200, LEAF - 1, LEAF, LEAF + 1, LEAF + 64, LEAF * 2];
    for low in places {
        for width in [0, 1, 2, 63, 64, 65, 66, 200, LEAF, LEAF * 2] {
            let (first, last) = (key(low), key(low + width));
            let inclusive = tree.range((Bound::Included(&first), Bound::Included(&last)));
            let exclusive = tree.range((Bound::Excluded(&first), Bound::Excluded(&last)));
            let end = LEAF * 2;
            let all = [(inclusive, low, low + width + 1), (exclusive, low + 1, low + width)];
            for (mut cursor, low, high) in all {
                let mut expected: Vec<_> = (low..high.min(end)).collect();
                assert_eq!(steps(&mut cursor, true), expected);
                cursor.seek_to_start();
                assert_eq!(step(&mut cursor, false), None);
                assert_eq!(steps(&mut cursor, true), expected);
                expected.reverse();
                assert_eq!(steps(&mut cursor, false), expected);
                cursor.seek_to_end();
                assert_eq!(step(&mut cursor, true), None);
                assert_eq!(steps(&mut cursor, false), expected);
            }
        }
    }
}

/// What is met when `change` is made behind the first step of a cursor at 300, in a direction.
fn met(forward: bool, change: impl Fn(&Tree<MemoryPool>)) -> Vec<u32> {
    let tree = tree((0..LEAF * 2).filter(|number| number % 4 != 0));
    let mut cursor = sought(&tree, 301, forward);
    change(&tree);
    let window = [cursor.gap, if forward { cursor.end } else { cursor.first }];
    let mut met = steps(&mut cursor, forward);
    if !forward {
        met.reverse();
    }
    assert!(met.is_sorted_by(|a, b| a < b), "out of order, or twice");
    assert!(window[0].abs_diff(window[1]) >= 60, "{window:?}");
    assert_clean(&tree);
    met
}

/// The numbers behind the first step of that cursor.
fn rest(forward: bool) -> Vec<u32> {
    let range = if forward { 302..LEAF * 2 } else { 0..299 };
    range.filter(|number| number % 4 != 0).collect()
}

#[test]
fn a_leaf_that_changes_between_two_windows_is_found_anew() {
    for forward in [true, false] {
        let unchanged = met(forward, |_| {});
        assert_eq!(unchanged, rest(forward));
        // What comes into the window is not met, what comes behind it is.
        let into = |number| {
            met(forward, |tree| {
                tree.put(&key(number), &value(number)).unwrap();
            })
        };
        assert_eq!(into(if forward { 304 } else { 292 }), unchanged);
        let beyond = if forward { 400 } else { 100 };
        assert_eq!(into(beyond).len(), unchanged.len() + 1);
        assert!(into(beyond).contains(&beyond));
        // What goes from the window is met, what goes from behind it is not.
        let without = |number| met(forward, |tree| assert!(tree.remove(&key(number)).unwrap()));
        assert_eq!(without(if forward { 303 } else { 293 }), unchanged);
        assert_eq!(without(beyond + 1).len(), unchanged.len() - 1);
    }
}

#[test]
fn a_leaf_that_gets_another_layout_or_is_split_or_emptied_is_found_anew() {
    for forward in [true, false] {
        let splits = met(forward, |tree| {
            let before = tree.stats().unwrap().levels[0].pages;
            // Values of another size, of which no leaf of 495 holds as many: it is converted and split.
            for number in [0, 200, 300, 310, 480].into_iter().flat_map(|from| from..from + 8) {
                tree.put(&key(number / 4 * 4), &[value(number / 4 * 4), [9; 8]].concat()).unwrap();
                tree.remove(&key(number / 4 * 4)).unwrap();
            }
            let after = tree.stats().unwrap();
            assert!(after.levels[0].pages > before);
            assert!(after.leaves_of(LeafLayout::FullyDense).pages < after.levels[0].pages);
        });
        assert_eq!(splits, rest(forward));
        let converted = met(forward, |tree| {
            let comparison = tree.clone().with_policy(LeafPolicy::Fixed(LeafLayout::Comparison));
            for number in 0..LEAF {
                comparison.put(&key(number * 4), b"long enough to be split").unwrap();
                comparison.remove(&key(number * 4)).unwrap();
            }
        });
        assert_eq!(converted, rest(forward));
        let emptied = met(forward, |tree| {
            for number in 0..LEAF * 2 {
                tree.remove(&key(number)).unwrap();
            }
        });
        // What was copied is what there was.
        let window: Vec<_> = if forward { 302..365 } else { 238..299 }.collect();
        assert_eq!(emptied, window.into_iter().filter(|n| n % 4 != 0).collect::<Vec<_>>());
    }
}

#[test]
fn leaves_whose_values_are_half_of_the_page_are_copied_whole() {
    let tree = Tree::<_>::create(Arc::new(MemoryPool::new(4096, 1 << 12)), TreeId(7)).unwrap();
    for number in 0..100_u32 {
        tree.put(&key(number), &[1; 32]).unwrap();
    }
    let mut cursor = tree.scan();
    cursor.seek(&key(10));
    assert!(cursor.next_record().unwrap().is_some());
    assert!(cursor.window.is_none());
}

/// Scans over a few windows, from anywhere and in both directions, beside threads that insert and remove. Odd numbers
/// stay. Now and then a value has another size, so that leaves get another layout and back.
#[test]
fn short_scans_beside_changes_meet_what_stays_once() {
    const NUMBERS: u32 = LEAF * 4;
    let seed = crate::testing::environment::fresh_seed();
    let tree = tree(0..NUMBERS);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..2)
        .map(|thread| {
            let (tree, stop) = (tree.clone(), stop.clone());
            let mut random = SplitMix64::new(seed ^ thread);
            let act = move || {
                while !stop.load(Ordering::Relaxed) {
                    let number = random.below(u64::from(NUMBERS / 2)) as u32 * 2;
                    match random.below(64) {
                        0 => tree.put(&key(number), &[value(number), [9; 8]].concat()).map(drop),
                        1..32 => tree.put(&key(number), &value(number)).map(drop),
                        _ => tree.remove(&key(number)).map(drop),
                    }
                    .unwrap();
                }
            };
            spawn_named("writer", act).unwrap()
        })
        .collect();
    let mut random = SplitMix64::new(seed);
    let mut cursor = tree.scan();
    let mut windows = 0;
    for _ in 0..6_000 {
        let from = random.below(u64::from(NUMBERS)) as u32;
        let (forward, most) = (random.below(2) == 0, random.below(150));
        cursor.seek(&key(from));
        let mut last = None;
        let mut odd = 0;
        for _ in 0..most {
            let record = if forward { cursor.next_record() } else { cursor.previous_record() };
            let Some((found, its_value)) = record.unwrap() else { break };
            let number = u32::from_be_bytes(found.try_into().unwrap());
            assert_eq!(its_value[..8], value(number), "{number}");
            assert!(last.is_none_or(|last| if forward { last < number } else { last > number }));
            odd += number % 2;
            last = Some(number);
        }
        windows += u32::from(cursor.window.is_some());
        let Some(last) = last else { continue };
        let range = if forward { from..last + 1 } else { last..from };
        let expected = range.filter(|number| number % 2 == 1).count();
        assert_eq!(odd as usize, expected, "{from} to {last}, {forward}");
    }
    stop.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.join().expect("a writer has failed");
    }
    println!("{windows} scans ended in their first window");
    assert_clean(&tree);
}
