//! Contention Split: when a leaf is split, where, and that no merge undoes it.
//!
//! A share of 0 takes every leaf for contended, and a period that ends at its second sample decides at a known write.

#![cfg(not(any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads")))]

use super::super::descend::Target;
use super::super::{ContentionSplit, Tree};
use super::assert_clean;
use crate::node::{LeafLayout, LeafPolicy, plain_leaf};
use crate::page::{ContentionStats, FrameId, Pages};
use crate::testing::MemoryPool;
use crate::types::{PageId, TreeId};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::spawn_named;
use std::collections::{BTreeMap, BTreeSet};

type TestTree = Tree<MemoryPool>;
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const PAGE_BYTES: usize = 4096;
const VALUE_BYTES: usize = 8;

/// Decides at every second write, for a split.
fn at_every_second_write() -> ContentionSplit {
    ContentionSplit::new(1, 1, 0.0, 2).unwrap()
}

/// Every write ends a period, which is quiet unless the write met another thread.
fn quiet_at_every_write() -> ContentionSplit {
    ContentionSplit::new(1, 1, 1.0, 1).unwrap()
}

/// A tree of so many records that were loaded in order, in leaves of this layout.
fn loaded(layout: LeafLayout, records: u32) -> (TestTree, Model) {
    let pool = Arc::new(MemoryPool::new(PAGE_BYTES, 1 << 12));
    let tree = Tree::create_with(pool, TreeId(7), LeafPolicy::Fixed(layout)).unwrap();
    let tree = tree.with_contention_split(Some(at_every_second_write()));
    let mut model = Model::new();
    let mut load = tree.bulk_load(100).unwrap();
    for number in 0..records {
        let (key, value) = (key_of(number), vec![number as u8; VALUE_BYTES]);
        load.push(&key, &value).unwrap();
        model.insert(key, value);
    }
    load.finish().unwrap();
    // Few records are no reason for a dense leaf.
    let of_layout = tree.stats().unwrap().leaves_of(layout).records;
    assert!(of_layout == u64::from(records) || records < 8, "{layout}: {of_layout}");
    (tree, model)
}

fn key_of(number: u32) -> Vec<u8> {
    [&b"warehouse"[..], &number.to_be_bytes()].concat()
}

/// Updates a record, and the model with it.
fn update(tree: &TestTree, model: &mut Model, number: u32, with: u8) {
    let (key, value) = (key_of(number), vec![with; VALUE_BYTES]);
    assert!(tree.update(&key, &value).unwrap());
    model.insert(key, value).unwrap();
}

fn done(tree: &TestTree) -> ContentionStats {
    tree.pool().contention_counters().unwrap().values()
}

fn leaf_of(tree: &TestTree, key: &[u8]) -> (PageId, FrameId) {
    let reached = tree.reach(Target::Key(key), 0).ok().unwrap();
    (reached.page.id(), reached.page.frame())
}

fn is_hot(tree: &TestTree, number: u32) -> bool {
    tree.pool().is_hot(leaf_of(tree, &key_of(number)).1)
}

fn assert_content(tree: &TestTree, model: &Model) {
    assert_clean(tree);
    let mut expected = model.iter();
    let mut cursor = tree.scan();
    while let Some((key, value)) = cursor.next_record().unwrap() {
        assert_eq!(expected.next(), Some((&key.to_vec(), &value.to_vec())));
    }
    assert_eq!(expected.next(), None);
    for (key, value) in model {
        assert_eq!(tree.get(key).unwrap().as_deref(), Some(value.as_slice()));
    }
}

/// In a root that is a leaf, and in a leaf among others, for all pairs of a few keys.
#[test]
fn two_keys_that_are_updated_come_to_different_leaves_in_every_layout() {
    for layout in LeafLayout::ALL {
        for records in [2_u32, 3, 20, 1000] {
            let near = [0, 1, 2, records / 2, records - 2, records - 1];
            let near: BTreeSet<u32> = near.into_iter().filter(|key| *key < records).collect();
            for &one in &near {
                for &other in near.iter().filter(|other| **other != one) {
                    let (tree, mut model) = loaded(layout, records);
                    let is_shared = leaf_of(&tree, &key_of(one)) == leaf_of(&tree, &key_of(other));
                    update(&tree, &mut model, one, 1);
                    update(&tree, &mut model, other, 2);
                    let (stats, words) = (done(&tree), format!("{layout} {records} {one} {other}"));
                    assert_eq!(stats.splits, u64::from(is_shared), "{words}: {stats:?}");
                    assert_ne!(leaf_of(&tree, &key_of(one)), leaf_of(&tree, &key_of(other)));
                    assert_eq!(
                        [one, other].map(|key| is_hot(&tree, key)),
                        [is_shared; 2],
                        "{words}"
                    );
                    assert_content(&tree, &model);
                }
            }
        }
    }
}

/// Sixteen keys of one leaf need fifteen splits, and then there is nothing left to split.
#[test]
fn a_leaf_is_split_until_each_of_its_contended_keys_has_one_of_its_own() {
    for layout in LeafLayout::ALL {
        let (tree, mut model) = loaded(layout, 16);
        let mut random = SplitMix64::new(3);
        for turn in 0..10_000 {
            update(&tree, &mut model, random.below(16) as u32, turn as u8);
        }
        let stats = done(&tree);
        assert_eq!(stats.splits, 15, "{layout}: {stats:?}");
        assert_eq!(tree.stats().unwrap().levels[0].pages, 16, "{layout}");
        assert_content(&tree, &model);
        // Nobody contends any more. Dense leaves stayed apart for good.
        for number in 0..16 {
            let (_, frame) = leaf_of(&tree, &key_of(number));
            tree.pool().contention(frame).unwrap().forget();
        }
        super::compact::compact(&tree);
        assert!(tree.stats().unwrap().levels[0].pages <= 2, "{layout}");
        assert_content(&tree, &model);
    }
}

/// The parent has room for few separators: it is split first.
#[test]
fn a_full_parent_is_split_first() {
    let pool = Arc::new(MemoryPool::new(512, 1 << 12));
    let tree: TestTree = Tree::create(pool, TreeId(7)).unwrap();
    let tree = tree.with_contention_split(Some(at_every_second_write()));
    let mut model = Model::new();
    let key_of = |number: u32| [&[b'x'; 60][..], &(number * 977 % 1000).to_be_bytes()].concat();
    let mut random = SplitMix64::new(5);
    for number in 0..1000 {
        tree.put(&key_of(number), &[0; 4]).unwrap();
        model.insert(key_of(number), vec![0; 4]);
    }
    let before = done(&tree).splits;
    for turn in 0..20_000_u32 {
        let (key, value) = (key_of(random.below(1000) as u32), turn.to_be_bytes());
        assert!(tree.update(&key, &value).unwrap());
        model.insert(key, value.to_vec());
    }
    let stats = done(&tree);
    assert!(stats.splits - before > 100 && stats.gave_up_full == 0, "{stats:?}");
    assert_content(&tree, &model);
}

#[test]
fn a_leaf_is_left_alone_where_a_split_would_not_help() {
    let (tree, mut model) = loaded(LeafLayout::Comparison, 20);
    for turn in 0..100 {
        update(&tree, &mut model, 7, turn);
    }
    assert_eq!((done(&tree).refused_one_key, done(&tree).splits), (50, 0));
    // A record that was put, or removed, is none that was updated.
    update(&tree, &mut model, 7, 1);
    assert!(tree.insert_if_absent(b"warehouse", b"").unwrap());
    update(&tree, &mut model, 7, 1);
    assert!(tree.remove(b"warehouse").unwrap());
    let stats = done(&tree);
    assert_eq!((stats.refused_no_update, stats.splits), (2, 0), "{stats:?}");
    assert_content(&tree, &model);
}

/// The last leaf of a tree to which threads append is contended, and splits by itself. A leaf that was filled so long ago,
/// and is updated since, is one like others.
#[test]
fn insertions_in_order_hinder_a_split_as_long_as_they_go_on() {
    let pool = Arc::new(MemoryPool::new(PAGE_BYTES, 1 << 12));
    let tree: TestTree = Tree::create(pool, TreeId(7)).unwrap();
    let mut model = Model::new();
    let quiet = tree.clone().with_contention_split(None);
    let tree = tree.with_contention_split(Some(at_every_second_write()));
    for number in 0..20 {
        let (key, value) = (key_of(number), vec![0; VALUE_BYTES]);
        quiet.put(&key, &value).unwrap();
        model.insert(key, value);
        if number >= 12 {
            update(&tree, &mut model, number - 1, 1);
            update(&tree, &mut model, number - 3, 1);
        }
    }
    let stats = done(&tree);
    assert_eq!((stats.refused_sequential, stats.splits), (8, 0), "{stats:?}");
    update(&tree, &mut model, 3, 1);
    update(&tree, &mut model, 15, 1);
    assert_eq!(done(&tree).splits, 1);
    assert_content(&tree, &model);
}

#[test]
fn nothing_is_counted_where_contention_split_is_off() {
    let (tree, mut model) = loaded(LeafLayout::Comparison, 20);
    let tree = tree.with_contention_split(None);
    for turn in 0..1000 {
        update(&tree, &mut model, turn % 20, 1);
    }
    let (_, frame) = leaf_of(&tree, &key_of(0));
    assert_eq!(tree.pool().contention(frame).unwrap().get().samples(), 0);
    assert_eq!(done(&tree), ContentionStats::default());
}

/// Without another thread no write is contended, whatever the writes are.
#[test]
fn one_thread_alone_never_splits_a_leaf() {
    for split in [
        ContentionSplit::if_all_contended(),
        ContentionSplit::if_thirtieth_contended(),
        quiet_at_every_write(),
    ] {
        let (tree, mut model) = loaded(LeafLayout::Comparison, 20);
        let tree = tree.with_contention_split(Some(split));
        for turn in 0..20_000 {
            update(&tree, &mut model, turn % 20, 1);
        }
        assert_eq!(done(&tree), ContentionStats::default());
    }
}

/// Both halves have next to no records: they would be merged if they were not hot. Quiet periods cool them.
#[test]
fn what_was_split_is_not_merged_while_it_is_hot() {
    for layout in LeafLayout::ALL {
        let (tree, mut model) = loaded(layout, 20);
        update(&tree, &mut model, 3, 1);
        update(&tree, &mut model, 15, 1);
        assert_eq!(done(&tree).splits, 1);
        let tree = tree.with_contention_split(None);
        for number in (0..20).filter(|number| ![3, 4, 15].contains(number)) {
            assert!(tree.remove(&key_of(number)).unwrap());
            model.remove(&key_of(number));
        }
        assert_ne!(leaf_of(&tree, &key_of(3)), leaf_of(&tree, &key_of(15)), "{layout}");
        // Nor by a redistribution, which would fill pages.
        assert!(!tree.merge_group_around(&key_of(3)).ok().unwrap(), "{layout}");
        let quiet = tree.clone().with_contention_split(Some(quiet_at_every_write()));
        for number in [3, 15] {
            for _ in 0..3 {
                assert!(is_hot(&quiet, number), "{layout}");
                update(&quiet, &mut model, number, 2);
            }
            assert!(!is_hot(&quiet, number), "{layout}");
        }
        assert!(tree.remove(&key_of(4)).unwrap());
        model.remove(&key_of(4));
        assert_eq!(leaf_of(&tree, &key_of(3)), leaf_of(&tree, &key_of(15)), "{layout}");
        assert_content(&tree, &model);
    }
}

/// A hot spot may move on, and what was there be removed: no pages without records stay behind.
#[test]
fn a_hot_leaf_without_records_is_merged() {
    for (layout, emptied) in
        LeafLayout::ALL.into_iter().flat_map(|layout| [(layout, 0), (layout, 1)])
    {
        let (tree, mut model) = loaded(layout, 20);
        update(&tree, &mut model, 3, 1);
        update(&tree, &mut model, 15, 1);
        let tree = tree.with_contention_split(None);
        let sides: [Vec<u32>; 2] = {
            let is_left =
                |number: &u32| leaf_of(&tree, &key_of(*number)) == leaf_of(&tree, &key_of(3));
            (0..20).partition(is_left).into()
        };
        for number in &sides[emptied] {
            assert!(tree.remove(&key_of(*number)).unwrap());
            model.remove(&key_of(*number));
        }
        let pages = tree.stats().unwrap().pages();
        // The root takes over its only child. Behind a dense leaf in good use an empty one stays, for the next number.
        assert!(pages == 1 || layout.is_dense() && emptied == 1, "{layout} {emptied}: {pages}");
        assert_content(&tree, &model);
    }
}

/// A hot leaf that fills up is hot on both sides, and a root that moves takes its mark along.
#[test]
fn the_halves_of_a_hot_leaf_are_hot() {
    let (tree, mut model) = loaded(LeafLayout::Comparison, 20);
    update(&tree, &mut model, 3, 1);
    update(&tree, &mut model, 15, 1);
    let tree = tree.with_contention_split(None);
    for number in 20..400 {
        let (key, value) = (key_of(number), vec![0; VALUE_BYTES]);
        tree.put(&key, &value).unwrap();
        model.insert(key, value);
    }
    assert!(is_hot(&tree, 15) && is_hot(&tree, 399));
    assert!(
        !tree.pool().is_hot(leaf_of(&tree, b"").1)
            || leaf_of(&tree, b"") == leaf_of(&tree, &key_of(3))
    );
    assert_content(&tree, &model);
}

/// Several threads change keys of their own, and split, fill and empty the leaves under each other; each knows what must be
/// there.
#[test]
fn splits_under_threads_lose_nothing() {
    const THREADS: u32 = 4;
    const KEYS: u32 = 96;
    let seed = crate::testing::environment::fresh_seed();
    for layout in LeafLayout::ALL {
        let (tree, _) = loaded(layout, KEYS);
        let writers: Vec<_> = (0..THREADS)
            .map(|class| {
                let split = match class {
                    0 => ContentionSplit::new(2, 8, 0.0, 2).ok(),
                    1 => ContentionSplit::new(1, 8, 0.02, 2).ok(),
                    2 => Some(quiet_at_every_write()),
                    _ => Some(ContentionSplit::default()),
                };
                let tree = tree.clone().with_contention_split(split);
                let work = move || {
                    let mut random = SplitMix64::new(seed ^ u64::from(class));
                    let numbers = (class..KEYS).step_by(THREADS as usize);
                    let mut model: BTreeMap<u32, u8> =
                        numbers.map(|number| (number, number as u8)).collect();
                    for turn in 0..3_000_u32 {
                        let number =
                            random.below(u64::from(KEYS / THREADS)) as u32 * THREADS + class;
                        let (key, with) = (key_of(number), turn as u8);
                        if random.below(8) == 0 {
                            let was = model.remove(&number).is_some();
                            assert_eq!(tree.remove(&key).unwrap(), was);
                        } else {
                            let was = model.insert(number, with).is_some();
                            assert_eq!(tree.put(&key, &[with; VALUE_BYTES]).unwrap(), was);
                        }
                        let found = tree.get(&key).unwrap().map(|value| value[0]);
                        assert_eq!(found, model.get(&number).copied());
                    }
                    model
                };
                spawn_named("writer", work).unwrap()
            })
            .collect();
        let model: Model = writers
            .into_iter()
            .flat_map(|writer| writer.join().unwrap())
            .map(|(number, with)| (key_of(number), vec![with; VALUE_BYTES]))
            .collect();
        println!("{layout}: {:?}", done(&tree));
        assert!(done(&tree).splits > 0, "{layout}");
        assert_content(&tree, &model);
    }
}

/// The two write at the same time, or in turn on a machine with one processor: the leaf is split once, and not again.
#[test]
fn two_threads_on_two_keys_of_one_leaf_split_it() {
    let (tree, mut model) = loaded(LeafLayout::Comparison, 20);
    // Which of its neighbours in time a write meets is up to the machine.
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = [3, 15]
        .map(|number| {
            let (tree, is_over) = (tree.clone(), is_over.clone());
            let work = move || {
                let (key, mut turns) = (key_of(number), 0_u64);
                // A system that gives one processor to both of them takes its time.
                while !is_over.load(Ordering::Relaxed) && turns < 1 << 24 {
                    turns += 1;
                    assert!(tree.update(&key, &turns.to_be_bytes()).unwrap());
                    if turns.is_multiple_of(1024) && done(&tree).splits > 0 {
                        is_over.store(true, Ordering::Relaxed);
                    }
                }
                (number, turns)
            };
            spawn_named("writer", work).unwrap()
        })
        .into_iter()
        .map(|writer| writer.join().unwrap())
        .collect();
    println!("{:?} after {writers:?}", done(&tree));
    for (number, turns) in writers {
        model.insert(key_of(number), turns.to_be_bytes().to_vec());
    }
    assert_content(&tree, &model);
    assert_eq!(done(&tree).splits, 1);
    assert_ne!(leaf_of(&tree, &key_of(3)), leaf_of(&tree, &key_of(15)));
}

#[test]
fn parameters_out_of_range_are_refused() {
    let longest = 1 << 24;
    for (sample, period, share, least) in [(1, 1, 0.0, 1), (longest, longest, 1.0, 1 << 15)] {
        ContentionSplit::new(sample, period, share, least).unwrap();
    }
    for (sample, period, share, least) in [
        (0, 512, 1.0, 16),
        (longest + 1, longest + 1, 1.0, 16),
        (4, 3, 1.0, 16),
        (4, longest + 1, 1.0, 16),
        (4, 512, 1.01, 16),
        (4, 512, -0.01, 16),
        (4, 512, f64::NAN, 16),
        (4, 512, 1.0, 0),
        (4, 512, 1.0, (1 << 15) + 1),
    ] {
        let error = ContentionSplit::new(sample, period, share, least).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument, "{error}");
    }
}

/// What is forbidden to all cuts: a side that does not fit, or has none of the two keys.
#[test]
fn a_cut_lies_between_the_keys_at_a_short_separator() {
    use crate::node::{LeafMut, split_between};
    let mut page = vec![0; PAGE_BYTES];
    let mut leaf = LeafMut::format(&mut page, LeafLayout::Comparison, None, None);
    let long = |first: u8, number: u8| [&[first][..], &[b'x'; 40], &[number]].concat();
    // The first of the second kind is far from the middle of all, and a short separator away.
    let keys: Vec<_> = (0..9).map(|n| long(b'a', n)).chain((0..7).map(|n| long(b'b', n))).collect();
    for key in &keys {
        let at = leaf.as_leaf().find(key);
        leaf.insert(at, key, b"value").unwrap();
    }
    let separator = |page: &mut [u8], low: usize, high: usize| {
        split_between(page, &keys[high], &keys[low]).unwrap().separator().to_vec()
    };
    assert_eq!(separator(&mut page, 0, 15), [b'b']);
    let near = separator(&mut page, 2, 4);
    assert!(keys[2] <= near && near < keys[4]);
    assert!(split_between(&mut page, &keys[1], &keys[1]).is_none());
    assert!(split_between(&mut page, &keys[1], b"a").is_none());
    assert_eq!(plain_leaf(&page).count(), 16);
}
