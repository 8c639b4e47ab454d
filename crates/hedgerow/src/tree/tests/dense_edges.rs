//! What happens at the edges of dense leaves: where the next number, another partition or another policy begins.

#![cfg(not(any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads")))]

use super::super::Tree;
use super::assert_clean;
use crate::node::{LeafLayout, LeafPolicy, plain_leaf};
use crate::page::Pages;
use crate::testing::MemoryPool;
use crate::types::TreeId;
use hedgerow_sync::optimistic::PageBytes;
use hedgerow_sync::primitive::Arc;
use std::ops::Range;

fn tree(page_bytes: usize) -> Tree<MemoryPool> {
    Tree::create(Arc::new(MemoryPool::new(page_bytes, 1 << 12)), TreeId(1)).unwrap()
}

/// The bytes of a root that is a fully dense leaf.
fn leaf(page_bytes: usize, stem: &[u8], numbers: Range<u32>, value_len: usize) -> Vec<u8> {
    thinned(page_bytes, stem, numbers.clone(), value_len, numbers)
}

/// The same, of which some records have been kept alone.
fn thinned(
    page_bytes: usize,
    stem: &[u8],
    numbers: Range<u32>,
    value_len: usize,
    kept: Range<u32>,
) -> Vec<u8> {
    let tree = tree(page_bytes);
    let key = |number: u32| [stem, &number.to_be_bytes()].concat();
    for number in numbers.clone() {
        tree.put(&key(number), &vec![7; value_len]).unwrap();
    }
    for number in numbers.filter(|number| !kept.contains(number)) {
        assert!(tree.remove(&key(number)).unwrap());
    }
    let (root, _) = tree.open_root().unwrap();
    let mut bytes = vec![0; page_bytes];
    root.bytes().copy(0, &mut bytes);
    assert_eq!(LeafLayout::of(&bytes), LeafLayout::FullyDense);
    bytes
}

/// Each removal from such a leaf took all records of both out, in vain: milliseconds in pages of 64 KiB.
#[test]
fn what_no_dense_leaf_holds_is_not_tried() {
    let may =
        |left: &[u8], right: &[u8], policy| plain_leaf(left).may_merge(&plain_leaf(right), policy);
    let pairs = [
        // More slots than a leaf has, though their bits and no values fit.
        (leaf(16384, b"", 0..60_000, 0), leaf(16384, b"", 65_500..125_500, 0)),
        // Two partitions, in either order of their numbers.
        (leaf(4096, b"aaaa", 5000..5400, 8), leaf(4096, b"bbbb", 0..400, 8)),
        (leaf(4096, b"aaaa", 0..400, 8), leaf(4096, b"bbbb", 200..420, 8)),
        // Values of two sizes.
        (leaf(4096, b"", 0..400, 0), leaf(4096, b"", 500..900, 8)),
        // Keys of two lengths.
        (leaf(4096, b"", 0..250, 8), leaf(4096, b"\x01", 0..250, 8)),
    ];
    for (left, right) in pairs {
        assert!(!may(&left, &right, LeafPolicy::Adaptive));
        let space = crate::node::merge_leaf_space(&left, &right, LeafPolicy::Adaptive, false);
        assert!(space > left.len(), "what is ruled out does not fit");
    }
    // And what fits is not ruled out: by fully dense leaves, or by semi-dense ones alone.
    let near = [leaf(4096, b"", 0..240, 8), leaf(4096, b"", 241..480, 8)];
    assert!(may(&near[0], &near[1], LeafPolicy::Adaptive));
    let sizes = [thinned(4096, b"", 0..400, 4, 0..190), thinned(4096, b"", 300..700, 2, 300..490)];
    assert!(!may(&sizes[0], &sizes[1], LeafPolicy::Adaptive));
    assert!(may(&sizes[0], &sizes[1], LeafPolicy::Fixed(LeafLayout::SemiDense)));
}

/// A stack whose top is at the edge of a dense leaf merged and split at each pop and push.
#[test]
fn a_stack_at_the_end_of_a_dense_leaf_keeps_its_pages() {
    let tree = tree(4096);
    let put = |number: u32| tree.put(&number.to_be_bytes(), &[7; 8]).unwrap();
    let remove = |number: u32| assert!(tree.remove(&number.to_be_bytes()).unwrap());
    let mut top = 0;
    while top < 5_000 {
        put(top);
        top += 1;
    }
    let mut before = tree.pool().pages();
    loop {
        put(top);
        if tree.pool().pages() > before {
            break;
        }
        top += 1;
    }
    before = tree.pool().pages();
    let mut changes = 0;
    for _ in 0..200 {
        remove(top);
        changes += u32::from(std::mem::replace(&mut before, tree.pool().pages()) != before);
        put(top);
        changes += u32::from(std::mem::replace(&mut before, tree.pool().pages()) != before);
    }
    assert!(changes <= 2, "{changes} changes of the number of pages in 200 pops and pushes");
    assert_clean(&tree);
    // Popped on, the pages go, the empty one too.
    for number in (0..=top).rev() {
        remove(number);
    }
    assert_eq!(tree.pool().pages(), 1);
}

/// A queue leaves no empty leaf behind, nor does what is removed from its end.
#[test]
fn a_queue_of_numbers_keeps_no_empty_leaves() {
    let tree = tree(4096);
    let mut first = 0_u32;
    for number in 0..30_000_u32 {
        tree.put(&number.to_be_bytes(), &[7; 8]).unwrap();
        if number >= 2_000 {
            assert!(tree.remove(&first.to_be_bytes()).unwrap());
            first += 1;
        }
    }
    let leaves = tree.stats().unwrap().leaves_of(LeafLayout::FullyDense);
    assert!(leaves.pages <= 7, "{leaves:?} for 2,000 records of 495 a leaf");
    assert_clean(&tree);
}

#[test]
fn a_fixed_policy_is_heeded_where_dense_leaves_are_split() {
    let first = tree(4096);
    for number in 0..20_000_u32 {
        first.put(&number.to_be_bytes(), &[7; 8]).unwrap();
    }
    let mut from = 20_000;
    for layout in [LeafLayout::Comparison, LeafLayout::Fingerprint, LeafLayout::SemiDense] {
        let before = first.stats().unwrap();
        let tree = first.clone().with_policy(LeafPolicy::Fixed(layout));
        for number in from..from + 20_000_u32 {
            tree.put(&number.to_be_bytes(), &[7; 8]).unwrap();
        }
        from += 20_000;
        let after = tree.stats().unwrap();
        for other in LeafLayout::ALL.into_iter().filter(|other| *other != layout) {
            let [then, now] = [&before, &after].map(|stats| stats.leaves_of(other).pages);
            assert!(now <= then + 1, "{layout:?}: {now} leaves are {other:?}, before {then}");
        }
        let [then, now] = [&before, &after].map(|stats| stats.leaves_of(layout).records);
        assert!(now >= then + 19_000, "{layout:?}: {now} records, before {then}");
        assert_clean(&tree);
    }
}

/// A scan that converted the leaf then found it busy, to whom it was itself.
#[test]
fn one_thread_finds_no_leaf_busy() {
    let tree = tree(4096);
    let key = |number: u64| {
        let number = number * 7_919 % 100_003;
        format!("https://www.example.org/articles/of/{number:08}/page-of-some-length")
    };
    let put = |number: u64| tree.put(key(number).as_bytes(), &[1; 8]).unwrap();
    for number in 0..2_000 {
        put(number);
    }
    for round in 0..40 {
        for number in 0..50 {
            put(2_000 + round * 50 + number);
        }
        let mut cursor = tree.scan();
        while cursor.next_record().unwrap().is_some() {}
    }
    let done = tree.pool().adaptation().unwrap().values();
    assert!(done.for_scans > 0 && done.sorted > 0, "{done:?}");
    assert_eq!(done.gave_up_busy, 0, "{done:?}");
}
