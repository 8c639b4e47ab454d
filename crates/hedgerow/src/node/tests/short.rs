//! Keys that zeros make hard to tell apart: heads agree although the keys differ, and records have no
//! bytes. Every key of at most six bytes of a small alphabet, in leaves and inner nodes.

use super::inner::{child_id, new_inner};
use super::leaf::put;
use super::*;

const LONGEST: usize = 6;

/// All keys of at most so many bytes over 0, 1 and 255, in order.
fn keys(longest: usize) -> Vec<Vec<u8>> {
    let mut keys = vec![vec![]];
    let mut from = 0;
    for _ in 0..longest {
        let until = keys.len();
        for i in from..until {
            for byte in [0, 1, 255] {
                keys.push([&keys[i][..], &[byte]].concat());
            }
        }
        from = until;
    }
    keys.sort();
    keys
}

type Fences = (Option<&'static [u8]>, Option<&'static [u8]>);

/// Without a prefix, and with one of one and of three bytes.
const FENCES: [Fences; 4] = [
    (None, None),
    (Some(&[]), Some(&[1, 255, 0])),
    (Some(&[0]), Some(&[0, 255, 255, 255, 255])),
    (Some(&[255, 0, 0]), Some(&[255, 0, 0, 255, 255])),
];

fn is_between(key: &[u8], (lower, upper): Fences) -> bool {
    lower.is_none_or(|lower| lower < key) && upper.is_none_or(|upper| key <= upper)
}

fn shuffled(mut keys: Vec<Vec<u8>>, random: &mut Random) -> Vec<Vec<u8>> {
    for at in (1..keys.len()).rev() {
        keys.swap(at, random.below(at + 1));
    }
    keys
}

#[track_caller]
fn assert_finds(page: &[u8], model: &Model, keys: &[Vec<u8>]) {
    assert_holds(page, model);
    for (index, key) in model.keys().enumerate() {
        assert_eq!(view(page).search(key), Position { index, found: true }, "{key:?}");
    }
    for key in keys {
        let index = model.range(..key.clone()).count();
        let expected = Position { index, found: model.contains_key(key) };
        assert_eq!(view(page).search(key), expected, "{key:?}");
    }
}

#[test]
fn leaves_keep_the_order_of_short_keys() {
    let mut random = Random::new(111);
    for fences in FENCES {
        // A page for all of them, and pages for some.
        for page_bytes in [1 << 16, 4096, 4096, 512, 512, 512] {
            let mut keys = keys(LONGEST);
            keys.retain(|key| is_between(key, fences));
            let mut page = new_leaf(page_bytes, fences.0, fences.1);
            let mut model = Model::new();
            for key in shuffled(keys.clone(), &mut random) {
                let value = if random.below(2) == 0 { key.clone() } else { vec![] };
                if put(&mut page, &key, &value).is_err() {
                    break;
                }
                model.insert(key, value);
            }
            assert!(page_bytes < 1 << 16 || model.len() == keys.len());
            assert_finds(&page, &model, &keys);
            cut_and_join(&mut page, &model, &keys);
            for key in shuffled(keys.clone(), &mut random).iter().step_by(2) {
                let position = view(&page).search(key);
                assert_eq!(position.found, model.remove(key).is_some());
                if position.found {
                    NodeMut::new(&mut page).remove(position.index);
                }
            }
            assert_finds(&page, &model, &keys);
        }
    }
}

/// Splits a leaf, looks at both sides, and merges them again.
fn cut_and_join(page: &mut [u8], model: &Model, keys: &[Vec<u8>]) {
    let mut node = NodeMut::new(page);
    let split = node.choose_split(SplitHint::Middle);
    let mut right = new_page(node.bytes().len());
    node.split_into(&split, &mut right);
    let (low, high): (Vec<_>, Vec<_>) =
        keys.iter().cloned().partition(|key| *key <= split.separator);
    let part = |keys: &[Vec<u8>]| -> Model {
        keys.iter().filter_map(|key| Some((key.clone(), model.get(key)?.clone()))).collect()
    };
    assert_finds(page, &part(&low), &low);
    assert_finds(&right, &part(&high), &high);
    NodeMut::new(page).merge(&right).unwrap();
    assert_finds(page, model, keys);
}

#[test]
fn inner_nodes_keep_the_order_of_short_keys() {
    let mut random = Random::new(112);
    for fences in FENCES {
        for page_bytes in [1 << 16, 4096, 512] {
            let mut keys = keys(LONGEST);
            keys.retain(|key| is_between(key, fences));
            let mut page = new_inner(page_bytes, fences.0, fences.1);
            let mut separators = std::collections::BTreeMap::new();
            for (number, key) in shuffled(keys.clone(), &mut random).into_iter().enumerate() {
                // The upper fence is no separator.
                let index = view(&page).child_for(&key).index;
                let right = child_id(number as u32 + 2);
                if fences.1 == Some(&key)
                    || NodeMut::new(&mut page).insert_child(index, &key, right).is_err()
                {
                    continue;
                }
                separators.insert(key, right);
            }
            assert_clean(&page);
            let node = view(&page);
            assert_eq!(node.count(), separators.len());
            for (index, separator) in separators.keys().enumerate() {
                assert_eq!(&key_at(&page, index), separator);
            }
            for key in &keys {
                let below = separators.range(..key.clone());
                let index = below.clone().count();
                let child = below.last().map_or(child_id(1), |(_, child)| *child);
                assert_eq!(node.child_for(key), ChildPosition { index, child }, "{key:?}");
                let above = separators.range(..=key.clone());
                let index = above.clone().count();
                let child = above.last().map_or(child_id(1), |(_, child)| *child);
                assert_eq!(node.child_above(key), ChildPosition { index, child }, "{key:?}");
            }
        }
    }
}

/// Also: a separator of any two of them lies between them.
#[test]
fn any_two_short_keys_compare_as_they_are() {
    let keys = keys(5);
    let mut page = new_leaf(1 << 16, None, None);
    for (index, key) in keys.iter().enumerate() {
        NodeMut::new(&mut page).insert(index, key, b"value").unwrap();
    }
    for (index, key) in keys.iter().enumerate() {
        for other in &keys {
            assert_eq!(view(&page).compare_key(index, other), key.cmp(other), "{key:?}");
        }
    }
    for pair in keys.windows(2) {
        let mut page = new_leaf(512, None, None);
        for (index, key) in pair.iter().enumerate() {
            NodeMut::new(&mut page).insert(index, key, &[]).unwrap();
        }
        let split = NodeMut::new(&mut page).choose_split(SplitHint::Middle);
        assert_eq!(split.index, 1);
        assert!(pair[0] <= split.separator && split.separator < pair[1], "{pair:?} {split:?}");
    }
}
