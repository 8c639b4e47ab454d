//! Property tests of fingerprint leaves against a sorted map, on several page sizes. Everything
//! derives from a seed, which a failure prints.

#![cfg(not(any(hedgerow_rung = "baseline", hedgerow_rung = "prefix", hedgerow_rung = "heads")))]

mod changes;
mod convert;
mod crowd;
mod fill;
mod hostile;
mod planted;
mod racing;

use super::{Model, Random, fences_of, new_page};
use crate::node::fields::{fences_start, heap_live};
use crate::node::fingerprint::{
    CROWD, FingerprintLeaf, FingerprintLeafMut, check, fingerprint, is_wide, load_check,
    merge_space, sorted_count, space_needed,
};
use crate::node::{Defect, NoSpace, Position, SplitHint, max_key_bytes, max_record_bytes};
use crate::types::{PageId, TreeId};
use hedgerow_sync::optimistic::{Copied, PageBytes, PlainBytes};
use std::collections::BTreeMap;

fn new_leaf(page_bytes: usize, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Vec<u8> {
    let mut page = new_page(page_bytes);
    FingerprintLeafMut::format(&mut page, lower, upper);
    page
}

fn view(page: &[u8]) -> FingerprintLeaf<PlainBytes<'_>> {
    FingerprintLeaf::new(PlainBytes::new(page))
}

/// Inserts or replaces as a tree would.
fn put(page: &mut [u8], key: &[u8], value: &[u8]) -> Result<(), NoSpace> {
    let place = view(page).find(key);
    let mut leaf = FingerprintLeafMut::new(page);
    match place {
        Some(place) => leaf.update(place, value),
        None => leaf.insert(key, value),
    }
}

fn sorted(page: &[u8]) -> Vec<u8> {
    let mut copy = page.to_vec();
    FingerprintLeafMut::new(&mut copy).sort();
    copy
}

fn key_at(page: &[u8], place: usize) -> Vec<u8> {
    let mut key = Vec::new();
    view(page).append_key(place, &mut key);
    key
}

#[track_caller]
fn assert_clean(page: &[u8]) {
    assert_eq!(check(page), []);
    assert_eq!(load_check(page), Ok(()));
    let leaf = view(page);
    assert_eq!(leaf.used_bytes() + leaf.free_bytes(), page.len());
    assert_eq!(leaf.payload_bytes(), heap_live(page));
    let fences = page.len() - fences_start(page);
    assert_eq!(
        leaf.used_bytes(),
        space_needed(leaf.count(), is_wide(page), heap_live(page), fences)
    );
    let node = leaf.as_node();
    assert_eq!((node.page_id(), node.tree_id()), (PageId(77), TreeId(5)));
    let mut crowds = BTreeMap::new();
    for place in leaf.sorted_count()..leaf.count() {
        let mut suffix = Vec::new();
        leaf.append_suffix(place, &mut suffix);
        *crowds.entry(fingerprint(&suffix)).or_insert(0) += 1;
    }
    assert!(crowds.values().all(|&crowd| crowd <= CROWD));
}

/// The page holds the records of the model and no others, and says so in every way there is.
#[track_caller]
fn assert_holds(page: &[u8], model: &Model) {
    assert_clean(page);
    let leaf = view(page);
    assert_eq!(leaf.count(), model.len());
    for (key, value) in model {
        let place = leaf.find(key).expect("a key of the model is found");
        assert!(leaf.candidate(key).is_some_and(|candidate| candidate <= place));
        assert_eq!(&key_at(page, place), key);
        assert_eq!(leaf.key_len(place), key.len());
        assert!(leaf.compare_key(place, key).is_eq());
        assert_eq!(leaf.value_len(place), value.len());
        assert_eq!(leaf.value(place), value);
        let mut read = Copied::new();
        leaf.copy_value(place, &mut read);
        assert_eq!(read.as_bytes(), value);
        let mut appended = Vec::new();
        leaf.append_value(place, &mut appended);
        assert_eq!(&appended, value);
        assert!(leaf.value_equals(place, value));
    }
    let records = leaf.records_sorted();
    let pairs = model.iter().map(|(k, v)| (k.as_slice(), v.as_slice()));
    assert!(records.iter().eq(pairs));
    assert_cursor(&sorted(page), model);
}

/// What a cursor does with a sorted private copy.
#[track_caller]
fn assert_cursor(copy: &[u8], model: &Model) {
    assert_clean(copy);
    let leaf = view(copy);
    assert!(leaf.is_sorted());
    let mut buffer = [0; 2048];
    for (index, (key, value)) in model.iter().enumerate() {
        assert_eq!(leaf.search(key), Position { index, found: true });
        let at = leaf.as_node().copy_prefix(&mut buffer);
        if copy.len() <= 4096 {
            assert_eq!(leaf.record(index, &mut buffer, at), (key.len(), value.as_slice()));
            assert_eq!(&buffer[..key.len()], key);
        }
        // Just above the key, which is mostly no key.
        let above = [key.as_slice(), &[0]].concat();
        let expected = Position { index: index + 1, found: model.contains_key(&above) };
        assert_eq!(leaf.search(&above), expected);
    }
}
