//! One thread against a `BTreeMap`, on the rung of the build, with and without pretended faults.

use super::super::{CompareAndSwap, Tree};
use super::{TINY_PAGE, absent, assert_clean, random_key, tiny};
use crate::error::ErrorKind;
use crate::testing::MemoryPool;
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeMap;
use std::ops::Bound;

pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn random_value(
    random: &mut SplitMix64,
    tree: &Tree<MemoryPool>,
    key: &[u8],
) -> Vec<u8> {
    let room = (tree.max_record_bytes() - key.len()) as u64;
    let len = match random.below(8) {
        0 => 0,
        1 => room,
        _ => random.below(room.min(24) + 1),
    };
    vec![random.next_u64() as u8; len as usize]
}

/// Random changes and look-ups, each compared with the model.
pub(super) fn run(tree: &Tree<MemoryPool>, steps: u64, seed: u64) {
    println!("seed {seed}");
    let mut random = SplitMix64::new(seed);
    let mut model = Model::new();
    for step in 0..steps {
        // Phases of growth and of shrinkage, so that merges and root collapses happen.
        let growing = (step / (steps / 6).max(1)) & 1 == 0;
        let key = random_key(&mut random, tree.max_key_bytes());
        let value = random_value(&mut random, tree, &key);
        match random.below(if growing { 12 } else { 20 }) {
            0..=4 => {
                let old = model.insert(key.clone(), value.clone());
                assert_eq!(tree.put(&key, &value).unwrap(), old.is_some());
            }
            5 => {
                let inserted = !model.contains_key(&key);
                assert_eq!(tree.insert_if_absent(&key, &value).unwrap(), inserted);
                model.entry(key.clone()).or_insert(value);
            }
            6 => {
                let there = model.contains_key(&key);
                assert_eq!(tree.update(&key, &value).unwrap(), there);
                if there {
                    model.insert(key.clone(), value);
                }
            }
            7 => swap(tree, &mut model, &key, value, &mut random),
            8 => {
                assert_eq!(tree.contains_key(&key).unwrap(), model.contains_key(&key));
                let mut out = vec![1, 2, 3];
                let found = tree.get_into(&key, &mut out).unwrap();
                assert_eq!(found.then_some(&out), model.get(&key));
            }
            _ => {
                assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
            }
        }
        assert_eq!(tree.get(&key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
        if step % 500 == 0 {
            compare(tree, &model, &mut random);
        }
    }
    compare(tree, &model, &mut random);
    for key in model.keys() {
        assert!(tree.remove(key).unwrap());
    }
    assert_eq!(tree.stats().unwrap().pages(), 1, "an empty tree is a single page again");
    assert_clean(tree);
}

fn swap(
    tree: &Tree<MemoryPool>,
    model: &mut Model,
    key: &[u8],
    value: Vec<u8>,
    random: &mut SplitMix64,
) {
    let present = model.get(key).cloned();
    let expected = if random.below(3) == 0 { Some(vec![1; 3]) } else { present.clone() };
    let new = (random.below(3) != 0).then_some(value);
    let swap = tree.compare_and_swap(key, expected.as_deref(), new.as_deref()).unwrap();
    if expected == present {
        assert_eq!(swap, CompareAndSwap::Swapped);
        match new {
            Some(value) => model.insert(key.to_vec(), value),
            None => model.remove(key),
        };
    } else {
        let CompareAndSwap::Differs(found) = swap else { panic!("a swap against expectation") };
        assert_eq!(found.as_deref(), present.as_deref());
    }
}

/// The whole tree, by all ways of reading it.
pub(super) fn compare(tree: &Tree<MemoryPool>, model: &Model, random: &mut SplitMix64) {
    assert_clean(tree);
    let all = (Bound::Unbounded, Bound::Unbounded);
    scan(tree, model, all);
    for _ in 0..20 {
        let [a, b] = [0; 2].map(|_| random_key(random, tree.max_key_bytes()));
        let bound = |random: &mut SplitMix64, key| match random.below(3) {
            0 => Bound::Included(key),
            1 => Bound::Excluded(key),
            _ => Bound::Unbounded,
        };
        scan(tree, model, (bound(random, a), bound(random, b)));
    }
    let keys: Vec<_> = (0..50).map(|_| random_key(random, tree.max_key_bytes())).collect();
    let values = tree.get_many(&keys).unwrap();
    assert_eq!(values.len(), keys.len());
    for (key, value) in keys.iter().zip(&values) {
        assert_eq!(value.as_deref(), model.get(key).map(Vec::as_slice));
    }
}

fn scan(tree: &Tree<MemoryPool>, model: &Model, bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>)) {
    let contains = |key: &Vec<u8>| {
        let above = match &bounds.0 {
            Bound::Included(low) => key >= low,
            Bound::Excluded(low) => key > low,
            Bound::Unbounded => true,
        };
        let below = match &bounds.1 {
            Bound::Included(high) => key <= high,
            Bound::Excluded(high) => key < high,
            Bound::Unbounded => true,
        };
        above && below
    };
    let expected: Vec<_> = model
        .iter()
        .filter(|(key, _)| contains(key))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let as_slices = (bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice));
    let mut cursor = tree.range(as_slices);
    for (key, value) in &expected {
        assert_eq!(cursor.next_record().unwrap(), Some((key.as_slice(), value.as_slice())));
    }
    assert_eq!(cursor.next_record().unwrap(), None, "{bounds:?}");
    assert_eq!(cursor.next_record().unwrap(), None);
    // Back over the same records from where it stands, and by a cursor that begins at the end.
    let mut last = tree.range(as_slices);
    last.seek_to_end();
    for (key, value) in expected.iter().rev() {
        assert_eq!(cursor.previous_record().unwrap(), Some((key.as_slice(), value.as_slice())));
        assert_eq!(last.previous_record().unwrap(), Some((key.as_slice(), value.as_slice())));
    }
    assert_eq!(cursor.previous_record().unwrap(), None);
    assert_eq!(last.previous_record().unwrap(), None);
    for (key, _) in expected.iter().step_by(7) {
        cursor.seek(key);
        assert_eq!(cursor.next_record().unwrap().map(|(key, _)| key.to_vec()).as_ref(), Some(key));
        cursor.seek(key);
        let before = expected.iter().rev().find(|(k, _)| k < key).map(|(k, _)| k.clone());
        assert_eq!(cursor.previous_record().unwrap().map(|(key, _)| key.to_vec()), before);
    }
}

#[test]
fn changes_agree_with_a_map() {
    run(&tiny(), 6_000, crate::testing::environment::fresh_seed());
}

#[test]
fn changes_agree_with_a_map_when_pages_come_and_go() {
    let seed = crate::testing::environment::fresh_seed();
    let tree = absent(6, seed);
    run(&tree, 2_000, seed);
    assert!(tree.pool().faults() > 1_000);
}

#[test]
fn bulk_loads_agree_with_a_map() {
    let mut random = SplitMix64::new(crate::testing::environment::fresh_seed());
    for records in [0, 1, 2, 7, 60, 700] {
        let tree = tiny();
        let mut model = Model::new();
        for _ in 0..records {
            let key = random_key(&mut random, tree.max_key_bytes());
            let value = random_value(&mut random, &tree, &key);
            model.insert(key, value);
        }
        let fill = 10 + random.below(91) as u8;
        let mut load = tree.bulk_load(fill).unwrap();
        for (key, value) in &model {
            load.push(key, value).unwrap();
        }
        assert_eq!(load.finish().unwrap(), model.len() as u64);
        compare(&tree, &model, &mut random);
        // The result is a tree like any other.
        for (key, value) in &mut model {
            value.truncate(3);
            assert!(tree.put(key, value).unwrap());
        }
        compare(&tree, &model, &mut random);
    }
}

#[test]
fn ascending_and_descending_loads_fill_their_pages() {
    for descending in [false, true] {
        let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
        let tree = Tree::create(pool, TreeId(1)).unwrap();
        let count = 20_000_u64;
        for i in 0..count {
            let key = if descending { count - i } else { i };
            tree.put(&key.to_be_bytes(), &[7; 100]).unwrap();
        }
        let stats = tree.stats().unwrap();
        assert_eq!(stats.records(), count);
        assert!(stats.leaf_fill() > 0.88, "{descending}: {stats:?}");
        assert_clean(&tree);
    }
}

#[test]
fn sequential_loads_of_values_of_many_lengths_fill_their_pages() {
    // A dozen records fill a leaf, three, or forty. The keys are those of stock in TPC-C.
    let mut random = SplitMix64::new(7);
    for (shortest, longest) in [(282, 306), (290, 330), (500, 720), (900, 1_000), (60, 90)] {
        for descending in [false, true] {
            let pool = Arc::new(MemoryPool::new(4096, 1 << 13));
            let tree = Tree::create(pool, TreeId(1)).unwrap();
            let count = 10_000_u32;
            for i in 0..count {
                let item = if descending { count - i } else { i };
                let key = [1_u32.to_be_bytes(), item.to_be_bytes()].concat();
                let len = shortest + random.below(longest as u64 - shortest as u64) as usize;
                tree.put(&key, &vec![7; len]).unwrap();
            }
            let stats = tree.stats().unwrap();
            let fill = stats.leaf_fill();
            println!("{shortest} to {longest}, {descending}: {fill}");
            assert!(fill > 0.75, "{shortest} to {longest}, {descending}: {stats:?}");
            assert_clean(&tree);
        }
    }
}

#[test]
fn appends_to_many_parts_of_a_tree_fill_their_pages() {
    // Orders of ten districts in TPC-C: first those of one district after the other, then one here and one there.
    let mut random = SplitMix64::new(7);
    for value_bytes in [0, 19, 54, 300] {
        let pool = Arc::new(MemoryPool::new(4096, 1 << 13));
        let tree = Tree::create(pool, TreeId(1)).unwrap();
        let put = |district: u8, order: u32| {
            let key = [&1_u32.to_be_bytes()[..], &[district], &order.to_be_bytes()].concat();
            tree.put(&key, &vec![7; value_bytes]).unwrap();
        };
        let mut next = [0_u32; 10];
        for district in 0..10 {
            (0..3_000).for_each(|order| put(district, order));
            next[usize::from(district)] = 3_000;
        }
        for _ in 0..10_000 {
            let district = random.below(10) as usize;
            put(district as u8, next[district]);
            next[district] += 1;
        }
        let stats = tree.stats().unwrap();
        let leaves = stats.levels[0].pages;
        println!("{value_bytes}: {} of {leaves} leaves", stats.leaf_fill());
        assert!(stats.leaf_fill() > 0.75, "{value_bytes}: {stats:?}");
        assert_clean(&tree);
    }
}

/// How full the leaves are when such keys have been inserted in this order, with values of so many bytes.
fn fill_after(keys: impl Iterator<Item = Vec<u8>>, value_bytes: usize) -> f64 {
    let pool = Arc::new(MemoryPool::new(4096, 1 << 13));
    let tree = Tree::create(pool, TreeId(1)).unwrap();
    for key in keys {
        tree.put(&key, &vec![7; value_bytes]).unwrap();
    }
    assert_clean(&tree);
    tree.stats().unwrap().leaf_fill()
}

#[test]
#[cfg_attr(
    any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads"),
    ignore = "of leaves of other layouts"
)]
fn keys_that_come_in_order_between_others_fill_their_pages() {
    // They look like a sequence, and a cut at each of them would leave a few records behind.
    const COUNT: u64 = 20_000;
    for (step, value_bytes, least) in [
        (2, 19, 0.7),
        (2, 100, 0.85),
        (2, 400, 0.85),
        (10, 8, 0.7),
        (10, 100, 0.8),
        (100, 300, 0.85),
    ] {
        let between = (0..COUNT).filter(|number| number % step > 0);
        let keys = (0..COUNT).step_by(step as usize).chain(between);
        let fill = fill_after(keys.map(|number| number.to_be_bytes().to_vec()), value_bytes);
        assert!(fill > least, "each {step}th, then the rest, {value_bytes} bytes: {fill}");
    }
}

/// Leaves that one run has left whole took what came near their ends later for more of it: a leaf for each one or two keys.
#[test]
#[cfg_attr(
    any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads"),
    ignore = "of leaves of other layouts"
)]
fn keys_that_come_the_other_way_between_others_fill_their_pages() {
    const COUNT: u64 = 20_000;
    let bytes = |number: u64| number.to_be_bytes().to_vec();
    let text = |number: u64| format!("key/{number:08}").into_bytes();
    for (step, value_bytes, least) in [(2, 19, 0.58), (2, 100, 0.68), (10, 100, 0.7)] {
        let between = (0..COUNT).filter(|number| number % step > 0);
        let keys = (0..COUNT).step_by(step as usize).chain(between.rev());
        let fills = [
            fill_after(keys.clone().map(bytes), value_bytes),
            fill_after(keys.clone().map(|number| bytes(COUNT - number)), value_bytes),
            fill_after(keys.map(text), value_bytes),
        ];
        println!("each {step}th, the rest backwards, {value_bytes} bytes: {fills:?}");
        assert!(fills.iter().all(|fill| *fill > least), "{step}, {value_bytes} bytes: {fills:?}");
    }
    // Few keys between two neighbours, far apart.
    let sparse = (0..2_000_u64).map(|number| number << 20);
    let between = sparse.clone().flat_map(|at| (1..16).rev().map(move |n| at + (n << 16) + 0x8001));
    let fill = fill_after(sparse.chain(between).map(bytes), 100);
    println!("fifteen between each two: {fill}");
    assert!(fill > 0.7, "{fill}");
}

#[test]
#[cfg_attr(
    any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads"),
    ignore = "of leaves of other layouts"
)]
fn times_with_something_random_behind_them_fill_their_pages() {
    // UUIDs of version 7, two a millisecond on average: those of one millisecond come in any order.
    for (value_bytes, least) in [(0, 0.88), (19, 0.85), (100, 0.8), (300, 0.75), (700, 0.65)] {
        let mut random = SplitMix64::new(7);
        let mut milliseconds = 1_700_000_000_000_u64;
        let keys = (0..20_000).map(|_| {
            milliseconds += random.below(2);
            let (high, low) = (random.next_u64().to_be_bytes(), random.next_u64().to_be_bytes());
            [&milliseconds.to_be_bytes()[2..], &high, &low[..2]].concat()
        });
        let fill = fill_after(keys, value_bytes);
        println!("{value_bytes} bytes: {fill}");
        assert!(fill > least, "{value_bytes} bytes: {fill}");
    }
}

#[test]
fn sequential_loads_of_keys_with_long_prefixes_fill_their_pages() {
    // As in a listing of URLs: each leaf's keys share much, the leaf's range at first nothing.
    let mut keys: Vec<_> = (0..200_u32)
        .flat_map(|host| (0..60_u32).map(move |page| (host, page)))
        .map(|(host, page)| {
            let host = host.wrapping_mul(2_654_435_761);
            format!("https://www.{host:010}.example.org/articles/of/some/length/{page}")
        })
        .collect();
    keys.sort();
    for descending in [false, true] {
        if descending {
            keys.reverse();
        }
        let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
        let tree = Tree::create(pool, TreeId(1)).unwrap();
        for key in &keys {
            tree.put(key.as_bytes(), &[7; 8]).unwrap();
        }
        assert_clean(&tree);
        let stats = tree.stats().unwrap();
        assert!(stats.leaf_fill() > 0.93, "{descending}: {stats:?}");
    }
}

#[test]
fn full_bulk_loads_fill_their_pages() {
    let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
    let tree = Tree::create(pool, TreeId(1)).unwrap();
    let mut load = tree.bulk_load(100).unwrap();
    for i in 0..20_000_u64 {
        load.push(&i.to_be_bytes(), &[7; 32]).unwrap();
    }
    load.finish().unwrap();
    assert!(tree.stats().unwrap().leaf_fill() > 0.97);
    assert_clean(&tree);
}

#[test]
fn a_bulk_load_that_fails_leaves_nothing_behind() {
    let tree = tiny();
    let mut load = tree.bulk_load(90).unwrap();
    for i in 0..500_u32 {
        load.push(&(i << 16).to_be_bytes(), b"value").unwrap();
    }
    let error = load.push(&1_u32.to_be_bytes(), b"").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSorted);
    assert_eq!(tree.get(&1_u32.to_be_bytes()).unwrap(), None, "visible before it is complete");
    assert!(tree.pool().pages() > 10);
    drop(load);
    assert_clean(&tree);
    assert_eq!(tree.pool().pages(), 1);

    let mut load = tree.bulk_load(90).unwrap();
    for i in 0..500_u32 {
        load.push(&i.to_be_bytes(), b"value").unwrap();
    }
    tree.put(b"first", b"come").unwrap();
    assert_eq!(load.finish().unwrap_err().kind(), ErrorKind::KeyspaceNotEmpty);
    assert_clean(&tree);
    assert_eq!(tree.count().unwrap(), 1);
    assert_eq!(tree.bulk_load(50).unwrap_err().kind(), ErrorKind::KeyspaceNotEmpty);
    assert_eq!(tree.bulk_load(5).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn a_full_pool_is_an_error_that_changes_nothing() {
    let pool = Arc::new(MemoryPool::new(TINY_PAGE, 40));
    let tree = Tree::create(pool, TreeId(1)).unwrap();
    let mut stored = 0_u32;
    let error = loop {
        match tree.put(&stored.to_be_bytes(), &[1; 50]) {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::MemoryLimit);
    assert!(stored > 100);
    assert_clean(&tree);
    assert_eq!(tree.count().unwrap(), u64::from(stored));
    for i in 0..stored {
        assert!(tree.remove(&i.to_be_bytes()).unwrap());
    }
    assert_eq!(tree.pool().pages(), 1);
    tree.put(b"again", b"works").unwrap();
}

#[test]
fn records_beyond_the_limit_are_refused_on_every_path() {
    let tree = tiny();
    let (max, max_record) = (tree.max_key_bytes(), tree.max_record_bytes());
    let (fits, long) = (vec![b'k'; max], vec![b'k'; max + 1]);
    let (fits_with, long_value) = (vec![b'v'; max_record - max], vec![b'v'; max_record + 1]);
    let too_long = |error: crate::Error| {
        assert_eq!(error.kind(), ErrorKind::KeyTooLong { len_bytes: max + 1, max_bytes: max });
    };
    too_long(tree.put(&long, b"").unwrap_err());
    too_long(tree.insert_if_absent(&long, b"").unwrap_err());
    too_long(tree.update(&long, b"").unwrap_err());
    too_long(tree.remove(&long).unwrap_err());
    too_long(tree.compare_and_swap(&long, None, None).unwrap_err());
    too_long(tree.bulk_load(100).unwrap().push(&long, b"").unwrap_err());
    assert_eq!(tree.get(&long).unwrap(), None);
    let error = tree.put(&fits, &long_value[..fits_with.len() + 1]).unwrap_err();
    let kind = ErrorKind::RecordTooLarge { len_bytes: max_record + 1, max_bytes: max_record };
    assert_eq!(error.kind(), kind);
    assert_eq!(tree.compare_and_swap(b"", None, Some(&long_value)).unwrap_err().kind(), kind);
    assert!(!tree.put(&fits, &fits_with).unwrap());
    assert!(!tree.put(b"", &long_value[1..]).unwrap());
    assert_eq!(tree.get(b"").unwrap().as_deref(), Some(&long_value[1..]));
    assert_clean(&tree);
}

#[test]
fn prefixes_bound_a_scan_whatever_they_end_with() {
    let tree = tiny();
    let keys: [&[u8]; 8] =
        [b"", b"a", b"a\xff", b"a\xff\xff", b"a\xffb", b"b", b"\xff", b"\xff\xff\x01"];
    for key in keys {
        tree.put(key, b"").unwrap();
    }
    let prefixes: [&[u8]; 7] = [b"", b"a", b"a\xff", b"a\xff\xff", b"\xff", b"\xff\xff", b"c"];
    for prefix in prefixes {
        let mut found = Vec::new();
        let mut cursor = tree.prefix(prefix);
        while let Some((key, _)) = cursor.next_record().unwrap() {
            found.push(key.to_vec());
        }
        let mut expected: Vec<_> = keys.iter().filter(|key| key.starts_with(prefix)).collect();
        expected.sort();
        assert!(found.iter().eq(expected), "{prefix:?}: {found:?}");
    }
}

#[test]
fn a_dropped_tree_gives_all_its_pages_back_and_says_so() {
    for one_in in [u64::MAX, 5] {
        let tree = absent(one_in, 1);
        let other = Tree::create(tree.pool().clone(), TreeId(8)).unwrap();
        for i in 0..3_000_u32 {
            tree.put(&i.to_be_bytes(), &[3; 20]).unwrap();
        }
        tree.drop_pages().unwrap();
        assert_eq!(tree.pool().pages(), 1, "the other tree's root is left");
        let dropped = |error: crate::Error| assert_eq!(error.kind(), ErrorKind::KeyspaceDropped);
        dropped(tree.get(b"x").unwrap_err());
        dropped(tree.put(b"x", b"").unwrap_err());
        dropped(tree.verify().unwrap_err());
        let mut cursor = tree.scan();
        dropped(cursor.next_record().unwrap_err());
        dropped(cursor.previous_record().unwrap_err());
        tree.drop_pages().unwrap();
        // The root's id is given out again: the old handle must not read another tree.
        for i in 0..3_000_u32 {
            other.put(&i.to_be_bytes(), &[4; 20]).unwrap();
        }
        dropped(tree.get(&1_u32.to_be_bytes()).unwrap_err());
        dropped(tree.remove(&1_u32.to_be_bytes()).unwrap_err());
        tree.drop_pages().unwrap();
        assert_clean(&other);
    }
}

#[test]
fn handles_and_cursors_cross_threads() {
    fn both<T: Send + Sync>() {}
    fn send<T: Send>() {}
    both::<Tree<MemoryPool>>();
    send::<super::super::Cursor<MemoryPool>>();
    send::<super::super::BulkLoad<MemoryPool>>();
}
