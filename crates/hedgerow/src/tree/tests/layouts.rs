//! Leaves of every layout: against a map under every policy, and which layout leaves get and lose.

#![cfg(not(any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads")))]

use super::super::Tree;
use super::super::retry::Retry;
use super::super::split::Room;
use super::model::{Model, compare, random_value, run};
use super::{TINY_PAGE, absent, assert_clean, random_key, tiny};
use crate::node::{LeafLayout, LeafPolicy};
use crate::page::{Access, Pages};
use crate::testing::MemoryPool;
use crate::types::{Purpose, TreeId};
use crate::wait::Waiting;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::random::SplitMix64;

/// Every fixed layout, and the adaptive choice with scans among the look-ups.
fn policies() -> impl Iterator<Item = LeafPolicy> + Clone {
    LeafLayout::ALL.map(LeafPolicy::Fixed).into_iter().chain([LeafPolicy::Adaptive])
}

#[test]
fn every_policy_for_leaves_agrees_with_a_map() {
    let seed = crate::testing::environment::fresh_seed();
    for policy in policies() {
        println!("{policy:?}");
        let pool = Arc::new(MemoryPool::new(TINY_PAGE, 1 << 16));
        let tree = Tree::create_with(pool, TreeId(7), policy).unwrap();
        run(&tree, 6_000, seed);
        run(&absent(6, seed).with_policy(policy), 2_000, seed);
    }
}

#[test]
fn ranges_are_removed_from_leaves_of_every_layout_and_their_pages_freed() {
    let seed = crate::testing::environment::fresh_seed();
    let mut random = SplitMix64::new(seed);
    for policy in policies() {
        let pool = Arc::new(MemoryPool::new(TINY_PAGE, 1 << 16));
        let tree = Tree::create_with(pool, TreeId(7), policy).unwrap();
        let mut model = Model::new();
        for round in 0..40 {
            // Dense numbers, and keys of all lengths.
            for number in 0..60_u32 {
                let key = (random.below(900) as u32).to_be_bytes().to_vec();
                tree.put(&key, &number.to_be_bytes()).unwrap();
                model.insert(key, number.to_be_bytes().to_vec());
                let key = random_key(&mut random, tree.max_key_bytes() - 4);
                tree.put(&key, b"same").unwrap();
                model.insert(key, b"same".to_vec());
            }
            let mut bound = || match random.below(8) {
                0 => Vec::new(),
                1 => vec![0xff; tree.max_key_bytes() + 3],
                2 => random_key(&mut random, tree.max_key_bytes()),
                _ => model.keys().nth(random.below(model.len() as u64) as usize).unwrap().clone(),
            };
            let (from, to) = (bound(), bound());
            let to = Some(to).filter(|_| round % 5 > 0);
            let is_inside = |key: &Vec<u8>| *key >= from && to.as_ref().is_none_or(|to| key < to);
            let inside = model.keys().filter(|key| is_inside(key)).count() as u64;
            assert_eq!(tree.remove_range(&from, to.as_deref()).unwrap(), inside, "{policy:?}");
            model.retain(|key, _| !is_inside(key));
            compare(&tree, &model, &mut random);
            assert_clean(&tree);
        }
        tree.remove_range(b"", None).unwrap();
        let pages: u64 = tree.stats().unwrap().levels.iter().map(|level| level.pages).sum();
        assert!(pages <= 3, "{policy:?}: {pages} pages are left of an empty tree");
    }
}

#[test]
fn a_tree_whose_policy_changes_agrees_with_a_map() {
    let seed = crate::testing::environment::fresh_seed();
    let mut random = SplitMix64::new(seed);
    let mut tree = tiny();
    let mut model = Model::new();
    let mut seen = [false; LeafLayout::ALL.len()];
    for policy in policies().cycle().take(25) {
        tree = tree.with_policy(policy);
        for _ in 0..400 {
            let key = random_key(&mut random, tree.max_key_bytes());
            if random.below(3) == 0 {
                assert_eq!(tree.remove(&key).unwrap(), model.remove(&key).is_some());
                continue;
            }
            // One length for most, so that fully dense leaves have a chance.
            let value = match random.below(40) {
                0 => random_value(&mut random, &tree, &key),
                _ => random.next_u64().to_be_bytes().to_vec(),
            };
            let value = value[..value.len().min(tree.max_record_bytes() - key.len())].to_vec();
            assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
        }
        // Random keys of few bytes are seldom so close together that a leaf can be dense.
        let first = random.next_u64() as u32 / 2;
        for key in (first..first + 120).map(|number| number.to_be_bytes().to_vec()) {
            let value = [9; 8].to_vec();
            assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
        }
        compare(&tree, &model, &mut random);
        for (seen, leaves) in seen.iter_mut().zip(tree.stats().unwrap().leaves) {
            *seen |= leaves.pages > 0;
        }
    }
    assert_eq!(seen, [true; 4], "a layout that no leaf had");
}

#[test]
fn integers_get_dense_leaves_and_strings_get_fingerprints() {
    let integers = |policy| {
        let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
        let tree = Tree::create_with(pool, TreeId(1), policy).unwrap();
        // A prime number of them, so that the steps meet each one.
        for number in (0..50_021_u64).map(|step| (step * 7_919 % 50_021) as u32) {
            tree.put(&number.to_be_bytes(), &u64::from(number).to_le_bytes()).unwrap();
        }
        assert_clean(&tree);
        tree.stats().unwrap()
    };
    for (policy, layout) in [
        (LeafPolicy::Adaptive, LeafLayout::FullyDense),
        (LeafPolicy::Fixed(LeafLayout::FullyDense), LeafLayout::FullyDense),
        (LeafPolicy::Fixed(LeafLayout::SemiDense), LeafLayout::SemiDense),
        (LeafPolicy::Fixed(LeafLayout::Fingerprint), LeafLayout::Fingerprint),
    ] {
        let stats = integers(policy);
        let share = stats.leaves_of(layout).records as f64 / stats.records() as f64;
        assert!(share > 0.95, "{policy:?}: {stats:?}");
    }
    let tree = Tree::create(Arc::new(MemoryPool::new(4096, 1 << 12)), TreeId(1)).unwrap();
    for number in 0..20_000_u64 {
        let name = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        let key = format!("https://www.example.org/articles/{}/{name:08}-and-its-title", name % 17);
        tree.put(key.as_bytes(), &[1; 8]).unwrap();
    }
    assert_clean(&tree);
    let stats = tree.stats().unwrap();
    assert!(
        stats.leaves_of(LeafLayout::Fingerprint).pages > stats.levels[0].pages / 2,
        "{stats:?}"
    );
}

#[test]
fn strings_that_are_scanned_get_comparison_leaves_and_lose_them_again() {
    let tree = Tree::create(Arc::new(MemoryPool::new(4096, 1 << 12)), TreeId(1)).unwrap();
    let key = |number: u64| {
        format!("https://www.example.org/articles/of/{number:08}/page-of-some-length")
    };
    let count = 5_000;
    for number in 0..count {
        let number = number * 0x9E37_79B1 % 100_003;
        tree.put(key(number).as_bytes(), &[1; 8]).unwrap();
    }
    let pages = |layout| tree.stats().unwrap().leaves_of(layout).pages;
    let fingerprints = pages(LeafLayout::Fingerprint);
    assert!(fingerprints > 10);
    for _ in 0..100 {
        let mut cursor = tree.scan();
        while cursor.next_record().unwrap().is_some() {}
    }
    assert!(pages(LeafLayout::Fingerprint) < fingerprints / 2);
    assert!(pages(LeafLayout::Comparison) > fingerprints / 2);
    let mut random = SplitMix64::new(3);
    for _ in 0..100_000 {
        tree.contains_key(key(random.below(100_003)).as_bytes()).unwrap();
    }
    assert!(pages(LeafLayout::Comparison) < fingerprints / 4);
    assert_clean(&tree);
}

/// A record longer than 255 bytes makes the slots of its fingerprint leaf wide, which takes more room than
/// the record: it was said to be there, and the insertion was tried for ever.
#[test]
fn records_that_make_slots_wide_find_room() {
    let seed = crate::testing::environment::fresh_seed();
    for policy in policies() {
        let mut random = SplitMix64::new(seed);
        let pool = Arc::new(MemoryPool::new(4096, 1 << 14));
        let tree = Tree::create_with(pool, TreeId(1), policy).unwrap();
        let mut model = Model::new();
        for step in 0..4_000 {
            let key = match random.below(4) {
                0 => format!("{:0>300}", random.below(500)).into_bytes(),
                _ => format!("user/{:016x}/profile", random.below(3_000)).into_bytes(),
            };
            let len = match random.below(if step < 2_000 { 400 } else { 6 }) {
                0 => 253 + random.below(6),
                1 => 300 + random.below(200),
                _ => 8,
            };
            let value = vec![step as u8; len as usize];
            assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
        }
        // Random keys of few bytes are seldom so close together that a leaf can be dense.
        let first = random.next_u64() as u32 / 2;
        for key in (first..first + 120).map(|number| number.to_be_bytes().to_vec()) {
            let value = [9; 8].to_vec();
            assert_eq!(tree.put(&key, &value).unwrap(), model.insert(key, value).is_some());
        }
        compare(&tree, &model, &mut random);
    }
}

/// Each removal from such a leaf tried to make one of it and its neighbours: a test of minutes.
#[test]
fn dense_leaves_shrink_by_merges() {
    for value in [&[][..], &[7; 8]] {
        let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
        let tree = Tree::create(pool, TreeId(1)).unwrap();
        let count = 20_011_u64;
        let key = |step: u64| (step * 7_919 % count).to_be_bytes();
        for step in 0..count {
            tree.put(&key(step), value).unwrap();
        }
        let full = tree.stats().unwrap();
        assert!(full.leaves_of(LeafLayout::FullyDense).records > count / 2, "{full:?}");
        for step in 0..count {
            assert!(tree.remove(&key(step)).unwrap());
            if step == count * 9 / 10 {
                assert_clean(&tree);
                let pages = tree.stats().unwrap().pages();
                assert!(pages <= full.pages().div_ceil(2), "{pages} of {}", full.pages());
            }
        }
        assert_eq!(tree.stats().unwrap().pages(), 1);
    }
}

#[test]
fn ascending_strings_do_not_change_the_layout_to_and_fro() {
    let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
    let tree = Tree::create(pool, TreeId(1)).unwrap();
    for number in 0..20_000 {
        let key = format!("https://www.example.org/articles/{number:08}/of/some/length");
        tree.put(key.as_bytes(), &[1; 8]).unwrap();
    }
    let stats = tree.stats().unwrap();
    let done = tree.pool().adaptation().unwrap().values();
    let conversions = done.by_splits + done.for_points + done.for_scans;
    assert!(conversions <= stats.pages() / 10 + 2, "{conversions} for {} pages", stats.pages());
}

/// Of keys of eight bytes the leaves at the ends of a tree have no prefix, so that all heads are the same.
#[test]
fn numbers_of_eight_bytes_get_dense_leaves_in_any_order() {
    for step in [1, 7_919] {
        let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
        let tree = Tree::create(pool, TreeId(1)).unwrap();
        for number in 0..20_011_u64 {
            tree.put(&(number * step % 20_011).to_be_bytes(), &number.to_be_bytes()).unwrap();
        }
        let stats = tree.stats().unwrap();
        let dense = stats.leaves_of(LeafLayout::FullyDense).records;
        assert!(dense > stats.records() * 9 / 10, "{step}: {stats:?}");
        assert_clean(&tree);
    }
}

/// A stem longer than that, which a fingerprint leaf at the end of a tree stores with every key.
#[test]
fn a_fingerprint_leaf_of_numbers_becomes_dense() {
    let pool = Arc::new(MemoryPool::new(4096, 1 << 12));
    let tree = Tree::create(pool, TreeId(1)).unwrap();
    for number in 0..20_000_u32 {
        let key = [&b"measurements/of/today/"[..], &number.to_be_bytes()].concat();
        tree.put(&key, &number.to_be_bytes()).unwrap();
    }
    let stats = tree.stats().unwrap();
    let dense = stats.leaves_of(LeafLayout::FullyDense).records;
    assert!(dense > stats.records() * 9 / 10, "{stats:?}");
    assert_clean(&tree);
}

/// Room is asked for where a record grows and is, by the time that the leaf is latched, the only one left: in the tail of a
/// fingerprint leaf, which is not sorted. Between fences so long that the old and the new record do not fit beside each other, the leaf was
/// taken for one that has to be split, and no leaf with one record can be.
#[test]
fn a_record_that_is_alone_in_its_leaf_grows_in_every_layout_without_a_split() {
    for layout in [LeafLayout::Comparison, LeafLayout::Fingerprint] {
        let pool = Arc::new(MemoryPool::new(4 << 10, 1 << 16));
        let tree = Tree::create_with(pool, TreeId(7), LeafPolicy::Fixed(layout)).unwrap();
        let (one, other) = (b"key 1", b"key 2");
        tree.put(other, b"the only one in order").unwrap();
        let waiting = Waiting::Forever;
        let mut retry = Retry::new(&*tree.pool, tree.root, Access::Point, &waiting);
        // Fences that are as long as the lower keys of the two pairs.
        for (low, high) in [([b'j'; 200], b"k"), ([b'l'; 200], b"m")] {
            let room = Room::Apart { low: &low, high, value_bytes: 1 };
            tree.make_room(&low, room, Purpose::Take, &mut retry).unwrap();
        }
        tree.put(one, &[b'o'; 1_870]).unwrap();
        assert!(tree.remove(other).unwrap());
        let value = [b'n'; 1_930];
        let room = Room::Record { key: one, value_bytes: value.len() };
        tree.make_room(one, room, Purpose::Take, &mut retry).unwrap();
        drop(retry);
        let leaves = |tree: &Tree<MemoryPool>| tree.stats().unwrap().levels[0].pages;
        let before = leaves(&tree);
        tree.put(one, &value).unwrap();
        assert_eq!((tree.get(one).unwrap().as_deref(), leaves(&tree)), (Some(&value[..]), before));
        assert_clean(&tree);
    }
}
