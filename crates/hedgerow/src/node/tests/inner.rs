//! Inner nodes: children that come and go, splits and merges against a sorted map.

use super::*;
use crate::types::PageId;

/// Separators with the child below each, and the upper child.
struct Children {
    below: BTreeMap<Vec<u8>, u32>,
    upper: u32,
}

impl Children {
    fn at(&self, index: usize) -> u32 {
        self.below.values().nth(index).copied().unwrap_or(self.upper)
    }

    fn set(&mut self, index: usize, child: u32) {
        match self.below.values_mut().nth(index) {
            Some(slot) => *slot = child,
            None => self.upper = child,
        }
    }
}

pub(super) fn child_id(number: u32) -> PageId {
    PageId(number * 8 + 4)
}

pub(super) fn new_inner(page_bytes: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Vec<u8> {
    let mut page = new_page(page_bytes);
    let mut node = NodeMut::format(&mut page, PageKind::Inner, 3, lower, upper);
    node.set_upper_child(child_id(1));
    page
}

#[track_caller]
fn assert_children(page: &[u8], model: &Children, random: &mut Random) {
    assert_clean(page);
    let node = view(page);
    assert_eq!(node.count(), model.below.len());
    for (index, (separator, child)) in model.below.iter().enumerate() {
        assert_eq!(&key_at(page, index), separator);
        assert_eq!(node.child_at(index), child_id(*child));
        let below = ChildPosition { index, child: child_id(*child) };
        assert_eq!(node.child_for(separator), below);
        let above = ChildPosition { index: index + 1, child: child_id(model.at(index + 1)) };
        assert_eq!(node.child_above(separator), above);
    }
    assert_eq!(node.child_at(node.count()), child_id(model.upper));
    for _ in 0..8 {
        let key = random.key_within(page);
        let index = model.below.range(..key.clone()).count();
        let expected = ChildPosition { index, child: child_id(model.at(index)) };
        assert_eq!(node.child_for(&key), expected);
    }
}

/// A separator strictly between the fences.
fn separator(random: &mut Random, page: &[u8]) -> Vec<u8> {
    loop {
        let key = random.key_within(page);
        if fences_of(page).1.is_none_or(|upper| key < upper) {
            return key;
        }
    }
}

#[test]
fn children_agree_with_a_map() {
    for (seed, page_bytes) in [(41, 512), (42, 512), (43, 4096), (44, 4096), (45, 65536)] {
        let mut random = Random::new(seed);
        let (lower, upper) = random.fences(page_bytes);
        let mut page = new_inner(page_bytes, lower.as_deref(), upper.as_deref());
        let mut model = Children { below: BTreeMap::new(), upper: 1 };
        let mut next = 2;
        for step in 0..600 {
            match random.below(6) {
                0 if !model.below.is_empty() => {
                    let index = random.below(model.below.len());
                    NodeMut::new(&mut page).remove_child(index);
                    let left = model.at(index);
                    let separator = model.below.keys().nth(index).unwrap().clone();
                    model.below.remove(&separator);
                    model.set(index, left);
                }
                1 => {
                    let index = random.below(model.below.len() + 1);
                    NodeMut::new(&mut page).set_child(index, child_id(next));
                    model.set(index, next);
                    next += 1;
                }
                _ => {
                    let key = separator(&mut random, &page);
                    if model.below.contains_key(&key) {
                        continue;
                    }
                    let index = view(&page).child_for(&key).index;
                    let before = page.clone();
                    let mut node = NodeMut::new(&mut page);
                    let fits = node.fits_separator(key.len());
                    let result = node.insert_child(index, &key, child_id(next));
                    assert_eq!(result.is_ok(), fits);
                    if result.is_ok() {
                        let left = model.at(index);
                        model.below.insert(key, left);
                        model.set(index + 1, next);
                        next += 1;
                    } else {
                        assert!(before == page, "a failed call changed the page");
                    }
                }
            }
            if page_bytes == 512 || step % 50 == 0 {
                assert_children(&page, &model, &mut random);
            }
        }
        assert_children(&page, &model, &mut random);
    }
}

#[test]
fn splits_and_merges_keep_every_child() {
    for (seed, page_bytes) in [(51, 512), (52, 4096), (53, 65536)] {
        for round in 0..if page_bytes == 512 { 40 } else { 6 } {
            let mut random = Random::new(seed * 100 + round);
            let (lower, upper) = random.fences(page_bytes);
            let mut left = new_inner(page_bytes, lower.as_deref(), upper.as_deref());
            let mut model = Children { below: BTreeMap::new(), upper: 1 };
            let (key, index) = loop {
                let key = separator(&mut random, &left);
                let index = view(&left).child_for(&key).index;
                if model.below.contains_key(&key) {
                    continue;
                }
                let next = model.below.len() as u32 + 2;
                let mut node = NodeMut::new(&mut left);
                if node.insert_child(index, &key, child_id(next)).is_err() {
                    break (key, index);
                }
                let child = model.at(index);
                model.below.insert(key, child);
                model.set(index + 1, next);
            };
            let before = left.clone();
            let mut right = new_page(page_bytes);
            let mut node = NodeMut::new(&mut left);
            let split = node.choose_split(SplitHint::Insert { index, key: &key, value_bytes: 0 });
            node.split_into(&split, &mut right);
            assert_eq!(model.below.keys().nth(split.index), Some(&split.separator));

            let mut low = model.below.clone();
            let mut high = low.split_off(&split.separator);
            let middle = high.remove(&split.separator).unwrap();
            let low = Children { below: low, upper: middle };
            let high = Children { below: high, upper: model.upper };
            assert_children(&left, &low, &mut random);
            assert_children(&right, &high, &mut random);
            assert_eq!(fences_of(&left), (lower, Some(split.separator.clone())));
            assert_eq!(fences_of(&right), (Some(split.separator.clone()), upper));
            assert_eq!((view(&left).level(), view(&right).level()), (3, 3));

            assert_eq!(merge_space(&left, &right), view(&before).used_bytes());
            NodeMut::new(&mut left).merge(&right).unwrap();
            assert_children(&left, &model, &mut random);
            assert_eq!(fences_of(&left), fences_of(&before));
        }
    }
}
