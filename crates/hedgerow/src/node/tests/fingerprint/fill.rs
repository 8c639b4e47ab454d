//! How full rows of leaves get: sequences leave full leaves behind, and records take little beside
//! themselves.

use super::*;
use crate::node::Node;
use crate::node::tests::{fill, new_leaf as new_comparison};

/// A row of leaves in the order of their keys, the tree's part being played by a binary search.
fn insert(leaves: &mut Vec<Vec<u8>>, key: &[u8], value: &[u8]) {
    loop {
        let at = leaves.partition_point(|leaf| !view(leaf).as_node().is_within_upper(key));
        if put(&mut leaves[at], key, value).is_ok() {
            return;
        }
        let mut leaf = FingerprintLeafMut::new(&mut leaves[at]);
        let split =
            leaf.choose_split(SplitHint::Insert { index: 0, key, value_bytes: value.len() });
        let mut right = new_page(leaf.bytes().len());
        leaf.split_into(&split, &mut right);
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
            view(leaf).used_bytes() + view(leaf).as_node().prefix_len() * view(leaf).count()
        })
        .sum();
    used * 100 / (leaves.len() * 4096)
}

#[test]
fn sequential_insertions_leave_full_pages() {
    let ascending = fill_percent(0..2000);
    let descending = fill_percent((0..2000).rev());
    // Two threads that take turns out of order.
    let swapped = fill_percent((0..2000).map(|number| number ^ 1));
    // Eight partitions, each ascending, in turns of forty.
    let partitions = fill_percent((0..4000).map(|i| (i / 40 % 8) << 32 | (i / 320 * 40 + i % 40)));
    let mut random = Random::new(61);
    let shuffled = fill_percent((0..2000).map(|_| random.0.next_u64()));
    eprintln!("{ascending} {descending} {swapped} {partitions} {shuffled}");
    assert!(ascending >= 94, "{ascending}");
    assert!(descending >= 90, "{descending}");
    assert!(swapped >= 90, "{swapped}");
    assert!(partitions >= 85, "{partitions}");
    assert!((60..=80).contains(&shuffled), "{shuffled}");
}

/// Keys that begin alike, as long as URLs and titles are: a fingerprint leaf has fewer bytes a
/// record than a comparison leaf.
#[test]
fn records_take_less_than_in_comparison_leaves() {
    for (seed, prefix, suffix) in [(71, 40, 20), (72, 8, 11), (73, 0, 4)] {
        let mut random = Random::new(seed);
        let prefix = vec![b'p'; prefix];
        let mut leaves = vec![new_leaf(4096, None, None)];
        let mut others = vec![new_comparison(4096, None, None)];
        for _ in 0..4000 {
            let len = suffix + random.below(suffix + 1);
            let key = [prefix.as_slice(), &random.bytes(len)].concat();
            if view(&leaves[at_of(&leaves, &key)]).find(&key).is_none() {
                insert(&mut leaves, &key, &[3; 8]);
                fill::insert(&mut others, &key, &[3; 8]);
            }
        }
        let count: usize = leaves.iter().map(|leaf| view(leaf).count()).sum();
        let other = |leaf: &Vec<u8>| Node::new(PlainBytes::new(leaf)).count();
        assert_eq!(count, others.iter().map(other).sum::<usize>());
        eprintln!(
            "{} bytes a record in fingerprint leaves, {} in comparison leaves",
            leaves.len() * 4096 / count,
            others.len() * 4096 / count,
        );
        assert!(leaves.len() <= others.len());
    }
}

fn at_of(leaves: &[Vec<u8>], key: &[u8]) -> usize {
    leaves.partition_point(|leaf| !view(leaf).as_node().is_within_upper(key))
}
