//! Leaves: changes, splits and merges against a sorted map.

use super::*;
use crate::page::header::NEWEST_LSN;

/// Inserts or replaces as a tree would.
pub(super) fn put(page: &mut [u8], key: &[u8], value: &[u8]) -> Result<(), NoSpace> {
    let position = view(page).search(key);
    let mut node = NodeMut::new(page);
    if position.found {
        node.update(position.index, value)
    } else {
        node.insert(position.index, key, value)
    }
}

#[test]
fn changes_agree_with_a_map() {
    for (seed, page_bytes) in [(1, 512), (2, 512), (3, 4096), (4, 4096), (5, 65536)] {
        for round in 0..4 {
            changes(seed * 100 + round, page_bytes);
        }
    }
}

fn changes(seed: u64, page_bytes: usize) {
    let mut random = Random::new(seed);
    let (lower, upper) = random.fences(page_bytes);
    let mut page = new_leaf(page_bytes, lower.as_deref(), upper.as_deref());
    let mut model = Model::new();
    let mut failures = 0;
    let steps = if page_bytes > 4096 { 1500 } else { 600 };
    for step in 0..steps {
        let known = random.below(3) == 0 && !model.is_empty();
        let key = if known {
            model.keys().nth(random.below(model.len())).unwrap().clone()
        } else {
            random.key_within(&page)
        };
        let index = model.range(..key.clone()).count();
        let position = view(&page).search(&key);
        assert_eq!(position, Position { index, found: model.contains_key(&key) });
        if random.below(8) == 0 {
            if position.found {
                NodeMut::new(&mut page).remove(index);
                model.remove(&key);
            }
        } else {
            let value = random.value(page_bytes, key.len());
            let before = page.clone();
            match put(&mut page, &key, &value) {
                Ok(()) => {
                    assert!(fits(&before, &model, &key, &value), "step {step}");
                    assert_eq!(NodeMut::new(&mut page).value(index), value);
                    model.insert(key, value);
                }
                Err(NoSpace) => {
                    assert!(before == page, "a failed call changed the page");
                    assert!(!fits(&before, &model, &key, &value), "step {step}");
                    failures += 1;
                    // Make room, or nothing more would ever happen.
                    for _ in 0..random.below(6).min(model.len()) {
                        let index = random.below(model.len());
                        let key = model.keys().nth(index).unwrap().clone();
                        model.remove(&key);
                        NodeMut::new(&mut page).remove(index);
                    }
                }
            }
        }
        if step % 32 == 0 || page_bytes == 512 {
            assert_holds(&page, &model);
        } else if page_bytes == 4096 {
            assert_clean(&page);
        }
    }
    assert_holds(&page, &model);
    assert!(failures > 0 || page_bytes > 4096, "the page was never full");
}

/// Whether the model with this record added would fit into the page, counted from nothing.
fn fits(page: &[u8], model: &Model, key: &[u8], value: &[u8]) -> bool {
    let prefix = view(page).prefix_len();
    let others = model.iter().filter(|(other, _)| *other != key);
    let stored = |key: &[u8]| (key.len() - prefix).saturating_sub(if rung::HEADS { 4 } else { 0 });
    let live: usize = others.clone().map(|(k, v)| stored(k) + v.len()).sum();
    let count = others.count() + 1;
    let heads = if rung::HEADS { 4 * count.next_multiple_of(4) } else { 0 };
    let (lower, upper) = fences_of(page);
    let fences = lower.map_or(0, |f| f.len()) + upper.map_or(0, |f| f.len());
    128 + heads + 6 * count + live + stored(key) + value.len() + fences <= page.len()
}

#[test]
fn splits_and_merges_keep_every_record() {
    for (seed, page_bytes) in [(21, 512), (22, 4096), (23, 65536)] {
        let rounds = if page_bytes == 512 { 60 } else { 8 };
        for round in 0..rounds {
            split_and_merge(seed * 100 + round, page_bytes);
        }
    }
}

fn split_and_merge(seed: u64, page_bytes: usize) {
    let mut random = Random::new(seed);
    let (lower, upper) = random.fences(page_bytes);
    let mut left = new_leaf(page_bytes, lower.as_deref(), upper.as_deref());
    left[NEWEST_LSN] = 42;
    let mut model = Model::new();
    let (key, value) = loop {
        let key = random.key_within(&left);
        let value = random.value(page_bytes, key.len());
        match put(&mut left, &key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(NoSpace) => break (key, value),
        }
    };
    let before = left.clone();
    let index = model.range(..key.clone()).count();
    let hint = if random.below(2) == 0 {
        SplitHint::Middle
    } else {
        SplitHint::Insert { index, key: &key, value_bytes: value.len() }
    };
    let mut node = NodeMut::new(&mut left);
    let split = node.choose_split(hint);
    let mut right = new_page(page_bytes);
    node.split_into(&split, &mut right);

    let separator = split.separator.clone();
    let mut low = model.clone();
    let high = low.split_off(&[separator.as_slice(), &[0]].concat());
    assert_eq!(low.len(), split.index);
    // Only the side that the new key goes to may be empty.
    assert!(!low.is_empty() || key <= separator);
    assert!(!high.is_empty() || key > separator);
    assert_holds(&left, &low);
    assert_holds(&right, &high);
    assert_eq!(fences_of(&left), (lower, Some(separator.clone())));
    assert_eq!(fences_of(&right), (Some(separator.clone()), upper));
    assert_eq!((left[NEWEST_LSN], right[NEWEST_LSN]), (42, 42));

    // Too full to be merged: nothing changes. Then remove records until both fit.
    right[NEWEST_LSN] = 43;
    let full = left.clone();
    if merge_space(&left, &right) > page_bytes {
        assert_eq!(NodeMut::new(&mut left).merge(&right), Err(NoSpace));
        assert!(full == left);
    }
    while merge_space(&left, &right) > page_bytes * 3 / 4 {
        let index = random.below(model.len());
        let key = model.keys().nth(index).unwrap().clone();
        model.remove(&key);
        let page = if key <= separator { &mut left } else { &mut right };
        let at = view(page).search(&key);
        assert!(at.found);
        NodeMut::new(page).remove(at.index);
    }
    let expected = merge_space(&left, &right);
    NodeMut::new(&mut left).merge(&right).unwrap();
    assert_holds(&left, &model);
    assert_eq!(view(&left).used_bytes(), expected);
    assert_eq!(fences_of(&left), fences_of(&before));
    assert_eq!(left[NEWEST_LSN], 43);
    if key.len() + value.len() <= max_key_bytes(page_bytes) {
        put(&mut left, &key, &value).unwrap();
    }
}

/// Records and fences at the limit: whatever comes, splitting ends with a place for it.
#[test]
fn largest_records_split_and_fit() {
    for (seed, page_bytes) in [(31, 512), (32, 1024), (33, 2048), (34, 4096), (35, 65536)] {
        let mut random = Random::new(seed);
        let longest = max_key_bytes(page_bytes);
        for _ in 0..20 {
            let mut leaves = vec![new_leaf(page_bytes, None, None)];
            for _ in 0..60 {
                // Long keys that differ late give long separators.
                let len = longest - random.below(3) * random.below(longest / 2);
                let mut key = vec![[0, 0xfe, 0xff][random.below(3)]; len];
                for _ in 0..1 + random.below(3) {
                    let at =
                        len - 1 - random.below(random.0.clone().below(len as u64) as usize + 1);
                    key[at] = [0, 0xfe, 0xff][random.below(3)];
                }
                let key = if random.below(3) == 0 { random.key(longest) } else { key };
                let room = max_record_bytes(page_bytes) - key.len();
                let len = room - random.below(3) * random.below(room / 2);
                let value = random.bytes(len);
                let mut splits = 0;
                loop {
                    let at = leaves
                        .iter()
                        .position(|leaf| view(leaf).is_within_upper(&key))
                        .expect("the last leaf has no upper fence");
                    if put(&mut leaves[at], &key, &value).is_ok() {
                        assert_clean(&leaves[at]);
                        break;
                    }
                    splits += 1;
                    assert!(splits < 20);
                    let position = view(&leaves[at]).search(&key);
                    let mut node = NodeMut::new(&mut leaves[at]);
                    let hint = match position.found {
                        true => SplitHint::Middle,
                        false => SplitHint::Insert {
                            index: position.index,
                            key: &key,
                            value_bytes: value.len(),
                        },
                    };
                    let split = node.choose_split(hint);
                    assert!(split.separator.len() <= longest);
                    let mut right = new_page(page_bytes);
                    node.split_into(&split, &mut right);
                    assert_clean(&leaves[at]);
                    assert_clean(&right);
                    leaves.insert(at + 1, right);
                }
            }
        }
    }
}

/// Leaves of a few large records: what is at, below and above the limit fits or is refused, a leaf is split for any
/// record, and two of the largest are in a page.
#[test]
fn few_large_records_fill_their_leaves() {
    for page_bytes in [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536] {
        let largest = max_record_bytes(page_bytes) - 8;
        for (len, a_page) in [(largest, 2), (largest - 1, 2), (largest / 2, 3), (largest / 3, 5)] {
            let key = |number: u64| number.to_be_bytes();
            let mut leaves = vec![new_leaf(page_bytes, None, None)];
            for number in 0..60 {
                super::fill::insert(&mut leaves, &key(number), &vec![7; len]);
            }
            // A leaf with fences all of whose bytes count, on some rungs.
            let full = leaves.iter().filter(|leaf| view(leaf).count() >= a_page - 1).count();
            assert!(full + 2 >= leaves.len(), "{full} of {} leaves", leaves.len());
            let counts = leaves.iter().map(|leaf| view(leaf).count());
            assert!(counts.max() >= Some(a_page), "{len} bytes in {page_bytes}");
            let mut random = Random::new(page_bytes as u64);
            let mut leaves = vec![new_leaf(page_bytes, None, None)];
            for _ in 0..200 {
                let number = random.0.next_u64();
                super::fill::insert(&mut leaves, &key(number), &vec![7; len]);
            }
            // Leaves are between half full and full.
            let mean = 200.0 / leaves.len() as f64;
            assert!(mean >= 0.65 * a_page as f64, "{mean} of {a_page} in {page_bytes}");
        }
        let mut leaf = new_leaf(page_bytes, None, None);
        let long = vec![7; largest + 1];
        assert!(put(&mut leaf, &[0; 8], &long).is_err(), "one more than fits");
        assert!(put(&mut leaf, &[0; 8], &long[1..]).is_ok());
        assert!(put(&mut leaf, &[0; 8], &long).is_err(), "one more than fits");
    }
}
