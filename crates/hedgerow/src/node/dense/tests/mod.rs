//! Property tests of the dense layouts against a sorted map, on several page sizes. Everything
//! derives from a seed, which a failure prints.

#![cfg(not(any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads")))]

mod convert;
mod forest;
mod hostile;
mod leaf;
mod racing;
mod space;
mod split;

use super::*;
use crate::node::fields::{lower_fence, upper_fence};
use crate::node::{
    LeafLayout, LeafPolicy, Node, NodeMut, Records, max_record_bytes, merge_leaf_space,
    merge_leaves,
};
use crate::page::header::{PageKind, initialise};
use crate::types::{PageId, TreeId};
use hedgerow_sync::optimistic::{Copied, PlainBytes};
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeMap;

/// Stamps tests on both layouts.
macro_rules! on_both {
    ($($name:ident;)*) => {
        mod semi { $(#[test] fn $name() { super::$name::<crate::node::dense::Semi>(); })* }
        mod full { $(#[test] fn $name() { super::$name::<crate::node::dense::Full>(); })* }
    };
}
use on_both;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

struct Random(SplitMix64);

impl Random {
    fn new(seed: u64) -> Self {
        eprintln!("seed {seed}");
        Random(SplitMix64::new(seed))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.fill(&mut bytes);
        bytes
    }

    /// A stem: none, one that goes with long integers, or a text.
    fn stem(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => Vec::new(),
            1 => vec![0; 4],
            2 => vec![0xff; 4],
            _ => {
                let len = self.below(60);
                [b"wiki/".as_slice(), &self.bytes(len)].concat()
            }
        }
    }

    /// A number near one of those where arithmetic goes wrong.
    fn number(&mut self) -> u32 {
        let around = [0, 1 << 31, u32::MAX, 1 << 16, 0xff00, 5_000_000][self.below(6)];
        let apart = self.below(600) as u32;
        if self.below(2) == 0 {
            u32::saturating_add(around, apart)
        } else {
            u32::saturating_sub(around, apart)
        }
    }

    /// A key that is near those of a shape, but not of it more often than not.
    fn stray(&mut self, shape: KeyShape<'_>) -> Vec<u8> {
        let mut key = shape.key(self.number() & (shape.end() - 1) as u32);
        match self.below(6) {
            0 => key.truncate(self.below(key.len() + 1)),
            1 => key.push(0),
            2 => key.extend_from_slice(b"more"),
            3 => {
                let at = self.below(key.len());
                key[at] = self.below(256) as u8;
            }
            4 => {
                let len = self.below(12);
                key = self.bytes(len);
            }
            _ => {}
        }
        key
    }

    fn value<V: DenseLayout>(&mut self, value_len: usize, most: usize) -> Vec<u8> {
        let len = match self.below(12) {
            _ if V::ONE_SIZE => value_len,
            0 => 0,
            1 => 127 + self.below(2),
            2 => self.below(most + 1),
            _ => self.below(20),
        };
        self.bytes(len.min(most))
    }
}

fn new_page(page_bytes: usize) -> Vec<u8> {
    let mut page = vec![0xdd; page_bytes];
    initialise(&mut page, PageId(77), TreeId(5));
    page
}

fn view<V: DenseLayout>(page: &[u8]) -> DenseNode<PlainBytes<'_>, V> {
    DenseNode::new(PlainBytes::new(page))
}

fn comparison(page: &[u8]) -> Node<PlainBytes<'_>> {
    Node::new(PlainBytes::new(page))
}

fn policy<V: DenseLayout>() -> LeafPolicy {
    LeafPolicy::Fixed(LeafLayout::of_kind(V::KIND as u8))
}

/// Whether two leaves are one now.
fn merge<V: DenseLayout>(left: &mut [u8], right: &[u8]) -> bool {
    merge_leaves(left, right, policy::<V>(), false).is_ok()
}

/// Whether they can be.
fn can_merge<V: DenseLayout>(left: &[u8], right: &[u8]) -> bool {
    merge_leaf_space(left, right, policy::<V>(), false) <= left.len()
}

fn kind(page: &[u8]) -> PageKind {
    crate::page::header::kind(page).unwrap()
}

/// An empty leaf for keys like this one.
fn new_leaf<V: DenseLayout>(
    page_bytes: usize,
    fences: (Option<&[u8]>, Option<&[u8]>),
    like: &[u8],
    value_len: usize,
) -> Vec<u8> {
    let mut page = new_page(page_bytes);
    DenseMut::<V>::format(&mut page, fences.0, fences.1, like, value_len).unwrap();
    page
}

#[track_caller]
fn assert_clean(page: &[u8]) {
    if kind(page) == PageKind::ComparisonLeaf {
        assert_eq!(crate::node::check(page), []);
    } else {
        assert_eq!(check(page), []);
        assert_eq!(load_check(page), Ok(()));
    }
    let node = comparison(page);
    assert_eq!((node.page_id(), node.tree_id()), (PageId(77), TreeId(5)));
}

/// Everything that the read side says of a leaf.
#[track_caller]
fn assert_holds<V: DenseLayout>(page: &[u8], model: &Model) {
    assert_clean(page);
    let node = view::<V>(page);
    assert_eq!(node.count(), model.len());
    assert_eq!(node.used_bytes() + node.free_bytes(), page.len());
    let mut buffer = [0; 2048];
    let stem = node.copy_prefix(&mut buffer);
    let mut place = 0;
    for (rank, (key, value)) in model.iter().enumerate() {
        place = node.next_place(place);
        assert_eq!(node.find(key), Some(place));
        assert_eq!(node.lower_bound(key), place);
        assert_eq!((node.rank(place), node.place_of_rank(rank)), (rank, Some(place)));
        assert_eq!(node.key_len(), key.len());
        let mut appended = Vec::new();
        node.append_key(place, &mut appended);
        assert_eq!(&appended, key);
        let (end, found) = node.record(place, &mut buffer, stem);
        assert_eq!((&buffer[..end], found), (key.as_slice(), value.as_slice()));
        assert_eq!(node.value(place), value);
        assert_eq!(node.value_len(place), value.len());
        assert!(node.value_equals(place, value));
        let mut copied = Copied::new();
        node.copy_value(place, &mut copied);
        assert_eq!(copied.as_bytes(), value);
        place += 1;
    }
    assert_eq!(node.next_place(place), node.capacity());
    let mut before = node.capacity();
    for key in model.keys().rev() {
        before = node.previous_place(before).unwrap();
        assert_eq!(node.find(key), Some(before));
    }
    assert_eq!(node.previous_place(before), None);
    assert_eq!(node.places().count(), model.len());
    assert!(node.places().rev().eq(node.places().collect::<Vec<_>>().into_iter().rev()));
    assert_eq!(view::<V>(page).records_sorted().len(), model.len());
}
