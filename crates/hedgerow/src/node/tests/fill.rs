//! How full pages get: sequential insertions, random ones, and bulk builds.

use super::*;
use crate::types::PageId;

/// A row of leaves, the tree's part being played by a linear search.
pub(super) fn insert(leaves: &mut Vec<Vec<u8>>, key: &[u8], value: &[u8]) {
    loop {
        let at = leaves.partition_point(|leaf| !view(leaf).is_within_upper(key));
        let index = view(&leaves[at]).search(key).index;
        let mut node = NodeMut::new(&mut leaves[at]);
        if node.insert(index, key, value).is_ok() {
            return;
        }
        let split = node.choose_split(SplitHint::Insert { index, key, value_bytes: value.len() });
        let mut right = new_page(node.bytes().len());
        node.split_into(&split, &mut right);
        assert_clean(&leaves[at]);
        assert_clean(&right);
        leaves.insert(at + 1, right);
    }
}

/// Inserts numbers as keys in this order, and gives how full the leaves are at the end, in percent.
fn fill_percent(order: impl Iterator<Item = u64>) -> usize {
    let mut leaves = vec![new_leaf(4096, None, None)];
    for number in order {
        insert(&mut leaves, &number.to_be_bytes(), &[7; 50]);
    }
    // The prefix that a leaf gets with its upper fence is not counted as waste.
    let used: usize = leaves
        .iter()
        .map(|leaf| {
            let node = view(leaf);
            let stored = |key_bytes: usize| key_bytes.saturating_sub(rung::HEAD_BYTES);
            let saved = stored(size_of::<u64>()) - stored(size_of::<u64>() - node.prefix_len());
            node.used_bytes() + saved * node.count()
        })
        .sum();
    used * 100 / (leaves.len() * 4096)
}

#[test]
fn sequential_insertions_leave_full_pages() {
    let ascending = fill_percent(0..2000);
    assert!(ascending >= 94, "{ascending}");
    let descending = fill_percent((0..2000).rev());
    assert!(descending >= 90, "{descending}");
    // Two threads that take turns out of order.
    let swapped = fill_percent((0..2000).map(|number| number ^ 1));
    assert!(swapped >= 90, "{swapped}");
    // Eight partitions, each ascending, in turns of forty.
    let partitions = fill_percent((0..4000).map(|i| (i / 40 % 8) << 32 | (i / 320 * 40 + i % 40)));
    assert!(partitions >= 85, "{partitions}");
    let mut random = Random::new(61);
    let mut seen = std::collections::BTreeSet::new();
    let shuffled = (0..2000).map(move |_| random.0.next_u64()).filter(move |n| seen.insert(*n));
    let shuffled = fill_percent(shuffled);
    assert!((60..=80).contains(&shuffled), "{shuffled}");
}

#[test]
fn bulk_builds_hold_their_input() {
    for (seed, page_bytes) in [(71, 512), (72, 4096), (73, 65536)] {
        for fill in [50, 90, 100] {
            let mut random = Random::new(seed);
            let longest = max_key_bytes(page_bytes);
            let mut model = Model::new();
            for _ in 0..page_bytes / 8 {
                let key = random.key(longest);
                let value = random.value(page_bytes, key.len());
                model.insert(key, value);
            }
            let mut builder = Builder::new(page_bytes, 0, fill);
            let mut leaves: Vec<Vec<u8>> = Vec::new();
            for (key, value) in &model {
                while !builder.push(key, value) {
                    leaves.push(new_page(page_bytes));
                    let separator = builder.write(leaves.last_mut().unwrap(), key);
                    assert!(separator.as_slice() < key.as_slice());
                }
                assert_eq!(builder.last_key(), Some(key.as_slice()));
            }
            loop {
                leaves.push(new_page(page_bytes));
                if builder.write_last(leaves.last_mut().unwrap()).is_none() {
                    break;
                }
            }
            assert_eq!(builder.staged(), 0);
            let mut records = model.iter();
            for (at, leaf) in leaves.iter().enumerate() {
                let part = records.by_ref().take(view(leaf).count());
                let part: Model = part.map(|(k, v)| (k.clone(), v.clone())).collect();
                assert_holds(leaf, &part);
                let next = leaves.get(at + 1).and_then(|next| fences_of(next).0);
                assert_eq!(fences_of(leaf).1, next);
            }
            assert_eq!(records.next(), None);
            if fill == 100 && page_bytes == 65536 {
                let used: usize = leaves.iter().map(|leaf| view(leaf).used_bytes()).sum();
                assert!(used * 100 / (leaves.len() * page_bytes) > 70);
            }
        }
    }
}

#[test]
fn bulk_builds_make_inner_nodes() {
    for (seed, page_bytes) in [(81, 512), (82, 4096)] {
        let mut random = Random::new(seed);
        let longest = max_key_bytes(page_bytes);
        let separators: std::collections::BTreeSet<Vec<u8>> =
            (0..page_bytes / 4).map(|_| random.key(longest)).collect();
        let mut builder = Builder::new(page_bytes, 2, 100);
        let mut nodes: Vec<Vec<u8>> = Vec::new();
        for (number, separator) in separators.iter().enumerate() {
            while !builder.push_child(separator, PageId(8 * number as u32 + 4)) {
                nodes.push(new_page(page_bytes));
                builder.write(nodes.last_mut().unwrap(), separator);
            }
        }
        while !builder.push_child(&[], PageId(8 * separators.len() as u32 + 4)) {
            nodes.push(new_page(page_bytes));
            builder.write(nodes.last_mut().unwrap(), &[]);
        }
        loop {
            nodes.push(new_page(page_bytes));
            if builder.write_last(nodes.last_mut().unwrap()).is_none() {
                break;
            }
        }
        let mut all = separators.iter().enumerate();
        for node in &nodes {
            assert_clean(node);
            let view = view(node);
            for index in 0..view.count() {
                let (number, separator) = all.next().unwrap();
                assert_eq!(&key_at(node, index), separator);
                assert_eq!(view.child_at(index), PageId(8 * number as u32 + 4));
            }
            let (number, upper) = all.next().unzip();
            let number = number.unwrap_or(separators.len());
            assert_eq!(view.child_at(view.count()), PageId(8 * number as u32 + 4));
            assert_eq!(fences_of(node).1.as_ref(), upper);
        }
        assert_eq!(all.next(), None);
    }
}
