//! Bulk loads: which layout leaves get, how full they are beside inserted ones, and what they hold under
//! every policy.

use super::super::Tree;
use super::model::{Model, compare};
use super::{assert_clean, policies};
use crate::node::{LeafLayout, LeafPolicy, rung};
use crate::testing::MemoryPool;
use crate::tree::TreeStats;
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;

type Loaded = Tree<MemoryPool>;

fn new_tree(page_bytes: usize, policy: LeafPolicy) -> Loaded {
    let pool = Arc::new(MemoryPool::new(page_bytes, 1 << 16));
    Tree::create_with(pool, TreeId(7), policy).unwrap()
}

fn load(page_bytes: usize, policy: LeafPolicy, fill: u8, records: &Model) -> Loaded {
    let tree = new_tree(page_bytes, policy);
    let mut load = tree.bulk_load(fill).unwrap();
    for (key, value) in records {
        load.push(key, value).unwrap();
    }
    assert_eq!(load.finish().unwrap(), records.len() as u64);
    tree
}

/// Bytes of the leaves of the same records bulk-loaded and put in ascending order, in that order.
fn loaded_and_inserted(policy: LeafPolicy, records: &Model) -> (TreeStats, [u64; 2]) {
    let loaded = load(4096, policy, 100, records);
    let inserted = new_tree(4096, policy);
    for (key, value) in records {
        inserted.put(key, value).unwrap();
    }
    let bytes = [&loaded, &inserted].map(|tree| {
        assert_clean(tree);
        let stats = tree.stats().unwrap();
        assert_eq!(stats.records(), records.len() as u64);
        stats.levels[0].pages * 4096
    });
    (loaded.stats().unwrap(), bytes)
}

fn integers(count: u32, key: impl Fn(u32) -> Vec<u8>) -> Model {
    (0..count).map(|number| (key(number), vec![number as u8; 8])).collect()
}

fn share(stats: &TreeStats, layout: LeafLayout) -> f64 {
    stats.leaves_of(layout).records as f64 / stats.records() as f64
}

#[test]
#[cfg_attr(
    any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads"),
    ignore = "of leaves of other layouts"
)]
fn dense_numbers_get_dense_leaves_as_full_as_insertions_leave_them() {
    let stem = |number: u32| [&b"measurements/of/today/"[..], &number.to_be_bytes()].concat();
    let inputs = [
        ("all numbers", integers(30_000, |number| number.to_be_bytes().to_vec())),
        ("eight bytes", integers(30_000, |number| u64::from(number).to_be_bytes().to_vec())),
        ("a long stem", integers(30_000, stem)),
        ("two bytes", integers(30_000, |number| (number as u16).to_be_bytes().to_vec())),
        ("from five million", integers(30_000, |n| (5_000_000 + n).to_be_bytes().to_vec())),
        ("two of three", integers(30_000, |number| (number * 3 / 2).to_be_bytes().to_vec())),
        ("partitions", integers(30_000, |n| [n / 3_000, n % 3_000].map(u32::to_be_bytes).concat())),
    ];
    for (name, records) in inputs {
        for (policy, layout) in [
            (LeafPolicy::Adaptive, LeafLayout::FullyDense),
            (LeafPolicy::Fixed(LeafLayout::FullyDense), LeafLayout::FullyDense),
            (LeafPolicy::Fixed(LeafLayout::SemiDense), LeafLayout::SemiDense),
        ] {
            let (stats, [loaded, inserted]) = loaded_and_inserted(policy, &records);
            println!("{name}, {policy:?}: {loaded} loaded, {inserted} inserted");
            assert!(share(&stats, layout) > 0.95, "{name}, {policy:?}: {stats:?}");
            assert!(loaded <= inserted + inserted / 20, "{name}, {policy:?}: {stats:?}");
        }
    }
}

#[test]
#[cfg_attr(
    any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads"),
    ignore = "of leaves of other layouts"
)]
fn numbers_with_many_gaps_get_the_leaves_that_the_criterion_asks_for() {
    // Three in ten: enough for semi-dense leaves, too few for fully dense ones.
    let records = integers(30_000, |number| (number * 10 / 3).to_be_bytes().to_vec());
    for (policy, layout) in [
        (LeafPolicy::Adaptive, LeafLayout::Comparison),
        (LeafPolicy::Fixed(LeafLayout::FullyDense), LeafLayout::Comparison),
        (LeafPolicy::Fixed(LeafLayout::SemiDense), LeafLayout::SemiDense),
    ] {
        let (stats, [loaded, inserted]) = loaded_and_inserted(policy, &records);
        assert!(share(&stats, layout) > 0.95, "{policy:?}: {stats:?}");
        assert!(loaded <= inserted + inserted / 20, "{policy:?}: {loaded}, {inserted}");
    }
}

#[test]
#[cfg_attr(
    any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads"),
    ignore = "of leaves of other layouts"
)]
fn strings_get_fingerprint_leaves_that_are_filled_to_what_they_hold() {
    let mut random = SplitMix64::new(11);
    let records: Model = (0..20_000)
        .map(|_| {
            let page = random.next_u64() >> 30;
            let key = format!("https://www.example.org/{}/articles/{page:x}.html", page % 9);
            (key.into_bytes(), vec![7; 8])
        })
        .collect();
    for policy in [LeafPolicy::Adaptive, LeafPolicy::Fixed(LeafLayout::Fingerprint)] {
        let (stats, [loaded, inserted]) = loaded_and_inserted(policy, &records);
        assert_eq!(share(&stats, LeafLayout::Fingerprint), 1.0, "{policy:?}: {stats:?}");
        assert!(stats.leaf_fill() > 0.94, "{policy:?}: {stats:?}");
        assert!(loaded <= inserted, "{policy:?}: {loaded}, {inserted}");
        let comparison = load(4096, LeafPolicy::Fixed(LeafLayout::Comparison), 100, &records);
        assert!(loaded < comparison.stats().unwrap().levels[0].pages * 4096);
    }
}

#[test]
#[cfg_attr(
    any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads"),
    ignore = "of leaves of other layouts"
)]
fn the_fill_that_is_asked_for_leaves_room_where_insertions_need_it() {
    let numbers = integers(20_000, |number| (number * 2).to_be_bytes().to_vec());
    let strings = integers(20_000, |number| format!("{:0>40}", number * 7_919).into_bytes());
    for (layout, records) in [
        (LeafLayout::Comparison, &numbers),
        (LeafLayout::Fingerprint, &strings),
        (LeafLayout::SemiDense, &numbers),
        (LeafLayout::FullyDense, &numbers),
    ] {
        let tree = load(4096, LeafPolicy::Fixed(layout), 70, records);
        assert_clean(&tree);
        let stats = tree.stats().unwrap();
        assert!(share(&stats, layout) > 0.98, "{layout:?}: {stats:?}");
        let full = load(4096, LeafPolicy::Fixed(layout), 100, records).stats().unwrap();
        let ratio = full.levels[0].pages as f64 / stats.levels[0].pages as f64;
        match layout {
            LeafLayout::FullyDense => {
                assert!(ratio > 0.99, "{stats:?}");
                // The numbers between have their slots.
                for number in 0..20_000_u32 {
                    tree.put(&(number * 2 + 1).to_be_bytes(), &[1; 8]).unwrap();
                }
                let pages = tree.stats().unwrap().levels[0].pages;
                assert!(pages <= stats.levels[0].pages + 1, "{pages}: {stats:?}");
            }
            _ => assert!((0.65..0.75).contains(&ratio), "{layout:?}: {ratio}, {stats:?}"),
        }
    }
}

/// A part of the keys of one kind, one behind the other, so that leaves have to end and to begin with
/// whatever comes.
fn mixed(random: &mut SplitMix64, longest: usize) -> Model {
    let mut records = Model::new();
    for part in 0..1 + random.below(12) as u8 {
        let count = random.below(if longest < 200 { 150 } else { 900 });
        let (kind, value_kind) = (random.below(7), random.below(5));
        let stem = vec![b's'; random.below(longest as u64 / 2) as usize];
        let value_len = random.below(20);
        let start = random.below(1 << 30);
        for number in 0..count {
            let tail = match kind {
                0 | 1 => ((start + number) as u32).to_be_bytes().to_vec(),
                2 => ((start + number * 3 / 2) as u32).to_be_bytes().to_vec(),
                3 => (random.next_u64() as u32).to_be_bytes().to_vec(),
                4 => [&stem[..], &((start + number) as u32).to_be_bytes()].concat(),
                5 => (number as u16).to_be_bytes()[random.below(3) as usize / 2..].to_vec(),
                _ => format!("http://example.org/{}", random.below(9_000)).into_bytes(),
            };
            let key = [&[part][..], &tail].concat();
            let len = match (value_kind, random.below(60)) {
                (0, _) => 0,
                (1, _) => random.below(60),
                (_, 0) => random.below(2 * longest as u64),
                _ => value_len,
            };
            let len = (len as usize).min(2 * longest - key.len());
            records.insert(key, vec![number as u8; len]);
        }
    }
    records
}

#[test]
fn bulk_loads_of_mixed_keys_agree_with_a_map_under_every_policy() {
    let seed = crate::testing::environment::fresh_seed();
    let mut random = SplitMix64::new(seed);
    for turn in 0..12 {
        let page_bytes = [512, 1024, 4096][turn % 3];
        let longest = new_tree(page_bytes, LeafPolicy::Adaptive).max_short_key_bytes();
        let records = mixed(&mut random, longest);
        let fill = if random.below(2) == 0 { 100 } else { 10 + random.below(91) as u8 };
        for policy in policies() {
            println!("{} records, pages of {page_bytes}, {fill} %, {policy:?}", records.len());
            let tree = load(page_bytes, policy, fill, &records);
            compare(&tree, &records, &mut random);
            assert_clean(&tree);
            // The result is a tree like any other.
            let mut records = records.clone();
            let keys: Vec<_> = records.keys().cloned().collect();
            for key in keys {
                let mut near = key.clone();
                if let Some(last) = near.last_mut() {
                    *last ^= random.below(4) as u8;
                }
                let room = tree.max_record_bytes() - near.len();
                let value = vec![1; (random.below(9) as usize).min(room)];
                match random.below(3) {
                    0 => assert_eq!(tree.remove(&near).unwrap(), records.remove(&near).is_some()),
                    _ => assert_eq!(
                        tree.put(&near, &value).unwrap(),
                        records.insert(near, value).is_some()
                    ),
                }
            }
            compare(&tree, &records, &mut random);
            assert_clean(&tree);
        }
    }
}

#[test]
fn empty_values_of_dense_numbers_fill_leaves_of_many_thousands() {
    for policy in policies() {
        let records: Model = integers(70_000, |n| n.to_be_bytes().to_vec())
            .into_keys()
            .map(|key| (key, Vec::new()))
            .collect();
        let tree = load(4096, policy, 100, &records);
        assert_clean(&tree);
        let stats = tree.stats().unwrap();
        assert_eq!(stats.records(), 70_000);
        if rung::HINTS && policy.dense() == Some(LeafLayout::FullyDense) {
            assert!(stats.pages() <= 5, "{stats:?}");
        }
    }
}

/// The list of its pages was four bytes for each, outside of the memory limit.
#[test]
fn a_load_that_is_dropped_gives_all_pages_back_and_has_no_list_of_them() {
    let tree = new_tree(512, LeafPolicy::default());
    let before = tree.pool().pages();
    let mut load = tree.bulk_load(100).unwrap();
    for number in 0..20_000_u64 {
        load.push(&number.to_be_bytes(), &[7; 30]).unwrap();
    }
    assert!(tree.pool().pages() > before + 1_200, "more than two parts of the page map have");
    assert!(load.written.len() < 8, "{} runs of pages", load.written.len());
    drop(load);
    assert_eq!(tree.pool().pages(), before);
}
