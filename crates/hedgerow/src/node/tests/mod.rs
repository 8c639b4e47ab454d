//! Property tests of nodes against a sorted map, for the rung of the build and several page sizes.
//! Everything derives from a seed, which a failure prints.

mod fill;
mod fingerprint;
mod hostile;
mod inner;
mod leaf;
mod planted;
mod short;

use super::fields::{HEADS_CAPACITY, fences_start, heap_live, heap_start, u16_at};
use super::layout::slots_end;
use super::*;
use crate::page::header::{PageKind, initialise};
use crate::types::{PageId, TreeId};
use hedgerow_sync::optimistic::{Copied, PlainBytes};
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeMap;

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

    /// A key of one of the kinds that have gone wrong somewhere: random, with a shared beginning, of
    /// few bytes many of which are zero, long, empty.
    fn key(&mut self, longest: usize) -> Vec<u8> {
        let mut key = match self.below(8) {
            0 => self.bytes(8),
            1 | 2 => [b"http://www.".as_slice(), &self.bytes(4)].concat(),
            3 => {
                let len = self.below(6);
                (0..len).map(|_| [0, 0, 1, 0xff][self.below(4)]).collect()
            }
            4 => {
                let len = self.below(longest / 2 + 1);
                [b"http://".as_slice(), &vec![b'a'; len], &self.bytes(2)].concat()
            }
            5 => (self.below(500) as u64).to_be_bytes().to_vec(),
            6 => format!("http://www.{}/{}", self.below(4), self.below(300)).into_bytes(),
            _ => {
                let len = self.below(longest / 4 + 1);
                self.bytes(len)
            }
        };
        key.truncate(longest);
        key
    }

    /// Two fences in order, one of them or both perhaps infinite.
    fn fences(&mut self, page_bytes: usize) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
        let longest = max_key_bytes(page_bytes);
        match self.below(5) {
            0 => (None, None),
            1 => (Some(self.key(longest)), None),
            2 => (None, Some([b"http://x".as_slice(), &self.key(longest / 2)].concat())),
            3 => (Some(b"http://www.".to_vec()), Some(b"http://www.zz".to_vec())),
            _ => (Some(vec![0; 7]), Some([0, 0, 0, 0, 0, 0, 1, 0x80].to_vec())),
        }
    }

    /// A key between fences.
    fn key_within(&mut self, page: &[u8]) -> Vec<u8> {
        let node = view(page);
        loop {
            let mut key = self.key(max_key_bytes(page.len()));
            if !node.covers(&key) {
                // Most keys miss narrow fences: begin as the upper one does.
                let mut near = Vec::new();
                node.append_upper_fence(&mut near);
                let keep = near.len().min(node.prefix_len().max(near.len().saturating_sub(2)));
                near.truncate(keep);
                near.extend_from_slice(&key);
                near.truncate(max_key_bytes(page.len()));
                key = near;
            }
            if node.covers(&key) {
                return key;
            }
        }
    }

    /// A value that goes with a key of so many bytes: mostly short, now and then up to the limit.
    fn value(&mut self, page_bytes: usize, key_bytes: usize) -> Vec<u8> {
        let room = max_record_bytes(page_bytes) - key_bytes;
        let len = match self.below(8) {
            0 => 0,
            1 => self.below(room + 1),
            2 => room,
            _ => self.below(room.min(24) + 1),
        };
        self.bytes(len)
    }
}

fn new_page(page_bytes: usize) -> Vec<u8> {
    let mut page = vec![0xdd; page_bytes];
    initialise(&mut page, PageId(77), TreeId(5));
    page
}

fn new_leaf(page_bytes: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Vec<u8> {
    let mut page = new_page(page_bytes);
    NodeMut::format(&mut page, PageKind::ComparisonLeaf, 0, lower, upper);
    page
}

fn view(page: &[u8]) -> Node<PlainBytes<'_>> {
    Node::new(PlainBytes::new(page))
}

#[track_caller]
fn assert_clean(page: &[u8]) {
    assert_eq!(check(page), []);
    assert_eq!(load_check(page), Ok(()));
    let node = view(page);
    assert_eq!(node.used_bytes() + node.free_bytes(), page.len());
    let (gap, fences) = (heap_start(page) - slots_end(page), page.len() - fences_start(page));
    let dead = fences_start(page) - heap_start(page) - heap_live(page);
    assert_eq!(slots_end(page) + gap + heap_live(page) + dead + fences, page.len());
    let needed = if rung::HEADS { node.count().next_multiple_of(4) } else { 0 };
    let surplus = 4 * (u16_at(page, HEADS_CAPACITY) - needed);
    assert_eq!(gap + dead + surplus, node.free_bytes());
    assert_eq!((node.page_id(), node.tree_id()), (PageId(77), TreeId(5)));
}

fn key_at(page: &[u8], index: usize) -> Vec<u8> {
    let mut key = Vec::new();
    view(page).append_key(index, &mut key);
    key
}

fn fences_of(page: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    let finite = view(page).append_lower_fence(&mut lower);
    let lower = finite.then_some(lower);
    let finite = view(page).append_upper_fence(&mut upper);
    (lower, finite.then_some(upper))
}

#[track_caller]
fn assert_holds(page: &[u8], model: &Model) {
    assert_clean(page);
    let node = view(page);
    assert_eq!(node.count(), model.len());
    for (index, (key, value)) in model.iter().enumerate() {
        assert_eq!(&key_at(page, index), key);
        assert_eq!(node.key_len(index), key.len());
        assert!(node.compare_key(index, key).is_eq());
        assert_eq!(node.value_len(index), value.len());
        let mut read = Copied::new();
        node.copy_value(index, &mut read);
        assert_eq!(read.as_bytes(), value);
        assert!(node.value_equals(index, value));
        assert_eq!(node.search(key), Position { index, found: true });
    }
}
