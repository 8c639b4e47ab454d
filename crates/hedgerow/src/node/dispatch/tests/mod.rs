//! Property tests of leaves of any layout, through [`Leaf`] and [`LeafMut`] alone, against a sorted map:
//! the same tests for every policy, on several page sizes. Everything derives from a seed, which a
//! failure prints and `HEDGEROW_SEED` sets.

#![cfg(not(any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads")))]

mod forest;
mod hostile;
mod keys;
mod pairs;
mod spread;

use super::convert::{convert_for, records_of};
use super::*;
use crate::node::fields::{lower_fence, upper_fence};
use crate::node::policy::LeafPolicy;
use crate::node::records::Records;
use crate::node::slotted::NoSpace;
use crate::node::{check, load_check, max_key_bytes, max_record_bytes};
use crate::page::header::{NEWEST_LSN, epoch, initialise, set_epoch};
use crate::testing::environment;
use crate::types::{Epoch, PageId, TreeId};
use hedgerow_sync::primitive::random::SplitMix64;
use std::collections::BTreeMap;

/// Stamps tests on every policy: each fixed layout, and the adaptive choice.
macro_rules! on_every_layout {
    ($($name:ident;)*) => {
        on_every_layout! { @ comparison: LeafPolicy::Fixed(LeafLayout::Comparison); $($name;)* }
        on_every_layout! { @ fingerprint: LeafPolicy::Fixed(LeafLayout::Fingerprint); $($name;)* }
        on_every_layout! { @ semi_dense: LeafPolicy::Fixed(LeafLayout::SemiDense); $($name;)* }
        on_every_layout! { @ fully_dense: LeafPolicy::Fixed(LeafLayout::FullyDense); $($name;)* }
        on_every_layout! { @ adaptive: LeafPolicy::Adaptive; $($name;)* }
    };
    (@ $module:ident: $policy:expr; $($name:ident;)*) => {
        mod $module {
            use super::super::{LeafLayout, LeafPolicy};
            $(#[test] fn $name() {
                // Which is not used in the module of every policy.
                let _ = LeafLayout::ALL;
                super::$name($policy);
            })*
        }
    };
}
use on_every_layout;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const PAGES: [usize; 3] = [512, 4096, 64 << 10];
const EPOCH: Epoch = Epoch(41);

struct Random(SplitMix64);

/// The dice of a test: a seed of their own, or what `HEDGEROW_SEED` says.
fn dice() -> Random {
    Random(SplitMix64::new(environment::fresh_seed()))
}

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.fill(&mut bytes);
        bytes
    }
}

fn new_page(page_bytes: usize) -> Vec<u8> {
    let mut page = vec![0xdd; page_bytes];
    initialise(&mut page, PageId(77), TreeId(5));
    set_epoch(&mut page, EPOCH);
    page
}

fn leaf(page: &[u8]) -> Leaf<PlainBytes<'_>> {
    plain_leaf(page)
}

fn leaf_mut(page: &mut [u8]) -> LeafMut<'_> {
    LeafMut::new(page)
}

/// Inserts or updates.
fn put(page: &mut [u8], key: &[u8], value: &[u8]) -> Result<(), NoSpace> {
    let place = leaf(page).find(key);
    match place.found {
        true => leaf_mut(page).update(place.index, value),
        false => leaf_mut(page).insert(place, key, value),
    }
}

fn records(page: &[u8]) -> Records {
    records_of(page)
}

fn fences(page: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    (lower_fence(page).map(<[u8]>::to_vec), upper_fence(page).map(<[u8]>::to_vec))
}

fn newest_lsn(page: &[u8]) -> [u8; 8] {
    page[NEWEST_LSN..NEWEST_LSN + 8].try_into().unwrap()
}

fn set_newest_lsn(page: &mut [u8], lsn: u64) {
    page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&lsn.to_le_bytes());
}

/// The page is sound, and is still the page that it was.
#[track_caller]
fn assert_clean(page: &[u8]) {
    assert_eq!(check(page), []);
    assert_eq!(load_check(page), Ok(()));
    let view = leaf(page);
    assert_eq!(view.used_bytes() + view.free_bytes(), page.len());
    assert_eq!((view.as_node().page_id(), view.as_node().tree_id()), (PageId(77), TreeId(5)));
    assert_eq!(epoch(page), EPOCH);
}

/// Everything that the read side says of a leaf which holds these records and no others.
#[track_caller]
fn assert_holds<'m>(page: &[u8], model: impl Iterator<Item = (&'m Vec<u8>, &'m Vec<u8>)> + Clone) {
    assert_clean(page);
    let view = leaf(page);
    let pairs = model.clone().map(|(key, value)| (key.as_slice(), value.as_slice()));
    assert!(records(page).iter().eq(pairs), "other records");
    assert_eq!(view.count(), model.clone().count());
    for (key, value) in model.clone() {
        let at = view.find(key);
        assert!(at.found);
        assert_eq!(view.key_len(at.index), key.len());
        let mut read = Copied::new();
        view.copy_value(at.index, &mut read);
        assert_eq!(read.as_bytes(), value);
        let mut appended = vec![9];
        view.append_value(at.index, &mut appended);
        assert_eq!(appended[1..], value[..]);
        assert!(view.value_equals(at.index, value));
    }
    let mut copy = page.to_vec();
    Leaf::put_in_order(&mut copy);
    assert_clean(&copy);
    assert_eq!(LeafLayout::of(&copy), LeafLayout::of(page));
    assert_in_order(&copy, model);
}

/// What a cursor asks of a sorted copy, in both directions.
#[track_caller]
fn assert_in_order<'m>(
    copy: &[u8],
    model: impl Iterator<Item = (&'m Vec<u8>, &'m Vec<u8>)> + Clone,
) {
    let view = leaf(copy);
    assert!(view.is_in_order());
    let mut buffer = vec![0; copy.len()];
    let prefix = view.copy_prefix(&mut buffer);
    let mut places = Vec::new();
    let mut from = 0;
    for (key, value) in model.clone() {
        let place = view.next_place(from);
        let (end, found) = view.record(place, &mut buffer, prefix);
        assert_eq!((&buffer[..end], found), (key.as_slice(), value.as_slice()));
        assert_eq!(view.search(key), Position { index: place, found: true });
        places.push(place);
        from = place + 1;
    }
    assert!(view.next_place(from) >= view.end(), "one more record");
    // Bounds just above each key and below it, most of which are no keys.
    let keys: Vec<_> = model.map(|(key, _)| key.as_slice()).collect();
    for key in &keys {
        let above = [key, &[0][..]].concat();
        for bound in [&above, &key[..key.len().saturating_sub(1)]] {
            if !view.as_node().covers(bound) || bound.len() > max_key_bytes(copy.len()) {
                continue;
            }
            let at = view.search(bound);
            let next = keys.partition_point(|key| *key < bound);
            assert_eq!(at.found, keys.get(next) == Some(&bound));
            match places.get(next) {
                Some(place) => assert_eq!(view.next_place(at.index), *place),
                None => assert!(view.next_place(at.index) >= view.end()),
            }
        }
    }
    let mut before = view.end();
    for place in places.iter().rev() {
        assert_eq!(view.previous_place(before), Some(*place));
        before = *place;
    }
    assert_eq!(view.previous_place(before), None);
}
