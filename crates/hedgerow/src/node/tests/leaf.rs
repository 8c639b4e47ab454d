//! Leaves: changes, splits and merges against a sorted map.

use super::*;
use crate::page::header::NEWEST_LSN;

on_the_ladder! {
    changes_agree_with_a_map;
    splits_and_merges_keep_every_record;
    largest_records_split_and_fit;
}

/// Inserts or replaces as a tree would.
pub(super) fn put<L: Ladder>(page: &mut [u8], key: &[u8], value: &[u8]) -> Result<(), NoSpace> {
    let position = view::<L>(page).search(key);
    let mut node = NodeMut::<L>::new(page);
    if position.found {
        node.update(position.index, value)
    } else {
        node.insert(position.index, key, value)
    }
}

fn changes_agree_with_a_map<L: Ladder>() {
    for (seed, page_bytes) in [(1, 512), (2, 512), (3, 4096), (4, 4096), (5, 65536)] {
        for round in 0..4 {
            changes::<L>(seed * 100 + round, page_bytes);
        }
    }
}

fn changes<L: Ladder>(seed: u64, page_bytes: usize) {
    let mut random = Random::new(seed);
    let (lower, upper) = random.fences(page_bytes);
    let mut page = new_leaf::<L>(page_bytes, lower.as_deref(), upper.as_deref());
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
        let position = view::<L>(&page).search(&key);
        assert_eq!(position, Position { index, found: model.contains_key(&key) });
        if random.below(8) == 0 {
            if position.found {
                NodeMut::<L>::new(&mut page).remove(index);
                model.remove(&key);
            }
        } else {
            let value = random.value(page_bytes, key.len());
            let before = page.clone();
            match put::<L>(&mut page, &key, &value) {
                Ok(()) => {
                    assert!(fits::<L>(&before, &model, &key, &value), "step {step}");
                    assert_eq!(NodeMut::<L>::new(&mut page).value(index), value);
                    model.insert(key, value);
                }
                Err(NoSpace) => {
                    assert!(before == page, "a failed call changed the page");
                    assert!(!fits::<L>(&before, &model, &key, &value), "step {step}");
                    failures += 1;
                    // Make room, or nothing more would ever happen.
                    for _ in 0..random.below(6).min(model.len()) {
                        let index = random.below(model.len());
                        let key = model.keys().nth(index).unwrap().clone();
                        model.remove(&key);
                        NodeMut::<L>::new(&mut page).remove(index);
                    }
                }
            }
        }
        if step % 32 == 0 || page_bytes == 512 {
            assert_holds::<L>(&page, &model);
        } else if page_bytes == 4096 {
            assert_clean::<L>(&page);
        }
    }
    assert_holds::<L>(&page, &model);
    assert!(failures > 0 || page_bytes > 4096, "the page was never full");
}

/// Whether the model with this record added would fit into the page, counted from nothing.
fn fits<L: Ladder>(page: &[u8], model: &Model, key: &[u8], value: &[u8]) -> bool {
    let prefix = view::<L>(page).prefix_len();
    let others = model.iter().filter(|(other, _)| *other != key);
    let stored = |key: &[u8]| (key.len() - prefix).saturating_sub(if L::HEADS { 4 } else { 0 });
    let live: usize = others.clone().map(|(k, v)| stored(k) + v.len()).sum();
    let count = others.count() + 1;
    let heads = if L::HEADS { 4 * count.next_multiple_of(4) } else { 0 };
    let (lower, upper) = fences_of(page);
    let fences = lower.map_or(0, |f| f.len()) + upper.map_or(0, |f| f.len());
    128 + heads + 6 * count + live + stored(key) + value.len() + fences <= page.len()
}

fn splits_and_merges_keep_every_record<L: Ladder>() {
    for (seed, page_bytes) in [(21, 512), (22, 4096), (23, 65536)] {
        let rounds = if page_bytes == 512 { 60 } else { 8 };
        for round in 0..rounds {
            split_and_merge::<L>(seed * 100 + round, page_bytes);
        }
    }
}

fn split_and_merge<L: Ladder>(seed: u64, page_bytes: usize) {
    let mut random = Random::new(seed);
    let (lower, upper) = random.fences(page_bytes);
    let mut left = new_leaf::<L>(page_bytes, lower.as_deref(), upper.as_deref());
    left[NEWEST_LSN] = 42;
    let mut model = Model::new();
    let (key, value) = loop {
        let key = random.key_within(&left);
        let value = random.value(page_bytes, key.len());
        match put::<L>(&mut left, &key, &value) {
            Ok(()) => drop(model.insert(key, value)),
            Err(NoSpace) => break (key, value),
        }
    };
    let before = left.clone();
    let index = model.range(..key.clone()).count();
    let hint = if random.below(2) == 0 {
        SplitHint::Middle
    } else {
        SplitHint::Insert { index, key: &key }
    };
    let mut node = NodeMut::<L>::new(&mut left);
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
    assert_holds::<L>(&left, &low);
    assert_holds::<L>(&right, &high);
    assert_eq!(fences_of(&left), (lower, Some(separator.clone())));
    assert_eq!(fences_of(&right), (Some(separator.clone()), upper));
    assert_eq!((left[NEWEST_LSN], right[NEWEST_LSN]), (42, 42));

    // Too full to be merged: nothing changes. Then remove records until both fit.
    right[NEWEST_LSN] = 43;
    let full = left.clone();
    if merge_space::<L>(&left, &right) > page_bytes {
        assert_eq!(NodeMut::<L>::new(&mut left).merge(&right), Err(NoSpace));
        assert!(full == left);
    }
    while merge_space::<L>(&left, &right) > page_bytes * 3 / 4 {
        let index = random.below(model.len());
        let key = model.keys().nth(index).unwrap().clone();
        model.remove(&key);
        let page = if key <= separator { &mut left } else { &mut right };
        let at = view::<L>(page).search(&key);
        assert!(at.found);
        NodeMut::<L>::new(page).remove(at.index);
    }
    let expected = merge_space::<L>(&left, &right);
    NodeMut::<L>::new(&mut left).merge(&right).unwrap();
    assert_holds::<L>(&left, &model);
    assert_eq!(view::<L>(&left).used_bytes(), expected);
    assert_eq!(fences_of(&left), fences_of(&before));
    assert_eq!(left[NEWEST_LSN], 43);
    put::<L>(&mut left, &key, &value).unwrap();
}

/// Records and fences at the limit: whatever comes, splitting ends with a place for it.
fn largest_records_split_and_fit<L: Ladder>() {
    for (seed, page_bytes) in [(31, 512), (32, 1024), (33, 2048), (34, 4096), (35, 65536)] {
        let mut random = Random::new(seed);
        let longest = max_record_bytes(page_bytes);
        for _ in 0..20 {
            let mut leaves = vec![new_leaf::<L>(page_bytes, None, None)];
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
                let value = random.bytes(longest - key.len());
                let mut splits = 0;
                loop {
                    let at = leaves
                        .iter()
                        .position(|leaf| view::<L>(leaf).is_within_upper(&key))
                        .expect("the last leaf has no upper fence");
                    if put::<L>(&mut leaves[at], &key, &value).is_ok() {
                        assert_clean::<L>(&leaves[at]);
                        break;
                    }
                    splits += 1;
                    assert!(splits < 20);
                    let index = view::<L>(&leaves[at]).search(&key).index;
                    let mut node = NodeMut::<L>::new(&mut leaves[at]);
                    let split = node.choose_split(SplitHint::Insert { index, key: &key });
                    assert!(split.separator.len() <= longest);
                    let mut right = new_page(page_bytes);
                    node.split_into(&split, &mut right);
                    assert_clean::<L>(&leaves[at]);
                    assert_clean::<L>(&right);
                    leaves.insert(at + 1, right);
                }
            }
        }
    }
}
