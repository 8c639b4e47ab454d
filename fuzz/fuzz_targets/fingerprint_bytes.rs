//! Arbitrary bytes as a fingerprint leaf: every read path is total, and whatever passes the check
//! at page-in can be changed in every way without a panic.
//!
//! The first bytes of an input choose: a page of raw bytes, or a leaf of honest records, which is
//! compared with a sorted map and then has some bytes changed.

#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use hedgerow::internals::node::fingerprint::{
    FingerprintLeafMut, check, comparison_to_fingerprint, fingerprint_to_comparison, load_check,
    merge_space,
};
use hedgerow::internals::node::{SplitHint, max_key_bytes, max_record_bytes};
use hedgerow_sync::optimistic::Copied;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::hint::black_box;

#[derive(Arbitrary, Debug)]
struct Damage {
    at: u16,
    byte: u8,
}

#[derive(Arbitrary, Debug)]
enum Change<'a> {
    Put { key: &'a [u8], value: u8 },
    Update { place: u16, value: u8 },
    Remove { place: u16 },
    Sort,
    Split { right: bool, key: &'a [u8], hinted: bool },
    Merge,
    ThereAndBack,
    Look { key: &'a [u8], place: u16 },
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    large: bool,
    fences: Option<(&'a [u8], &'a [u8])>,
    records: Vec<(&'a [u8], u8)>,
    damage: Vec<Damage>,
    changes: Vec<Change<'a>>,
}

/// The smallest pages, and such as hold records that need wide slots.
const PAGE_BYTES: [usize; 2] = [512, 2048];
const VALUE: [u8; 512] = [0x5a; 512];

fn value_for(page_bytes: usize, key: &[u8], len: u8) -> &'static [u8] {
    let room = max_record_bytes(page_bytes).saturating_sub(key.len());
    &VALUE[..(2 * usize::from(len)).min(room)]
}

fn short(page_bytes: usize, key: &[u8]) -> &[u8] {
    &key[..key.len().min(max_key_bytes(page_bytes))]
}

fn read_everything(page: &mut [u8], key: &[u8], place: usize) {
    let len = page.len();
    let leaf = FingerprintLeafMut::new(page);
    let leaf = leaf.as_leaf();
    let mut out = Vec::new();
    let mut buffer = [0; 64];
    let found = leaf.find(key);
    let position = leaf.search(key);
    assert!(found.is_none_or(|place| place < leaf.count()) && position.index <= leaf.count());
    for place in [0, found.unwrap_or(1), position.index, leaf.count(), place] {
        out.clear();
        leaf.append_key(place, &mut out);
        leaf.append_value(place, &mut out);
        assert!(out.len() <= 3 * len);
        let mut copied = Copied::new();
        leaf.copy_value(place, &mut copied);
        black_box((leaf.key_len(place), leaf.value_len(place), leaf.value(place)));
        black_box((copied, leaf.value_equals(place, key), leaf.compare_key(place, key)));
        black_box(leaf.record(place, &mut buffer, 8));
        leaf.prefetch_record(place);
    }
    black_box((leaf.candidate(key), leaf.used_bytes(), leaf.free_bytes(), leaf.is_sorted()));
}

fn change(page: &mut Vec<u8>, change: &Change<'_>) {
    let other = page.clone();
    let page_bytes = page.len();
    let mut leaf = FingerprintLeafMut::new(page);
    let count = leaf.as_leaf().count();
    match change {
        Change::Put { key, value } => {
            let key = short(page_bytes, key);
            let value = value_for(page_bytes, key, *value);
            let done = match leaf.as_leaf().find(key) {
                Some(place) => leaf.update(place, value),
                None => leaf.insert(key, value),
            };
            black_box(done).ok();
        }
        Change::Update { place, value } if count > 0 => {
            let place = usize::from(*place) % count;
            black_box(leaf.update(place, &VALUE[..2 * usize::from(*value)])).ok();
        }
        Change::Remove { place } if count > 0 => leaf.remove(usize::from(*place) % count),
        Change::Sort => leaf.sort(),
        Change::Split { right, key, hinted } if count > 1 => {
            let key = short(page_bytes, key);
            let hint = if *hinted {
                SplitHint::Insert { index: 0, key, value_bytes: 0 }
            } else {
                SplitHint::Middle
            };
            let split = leaf.choose_split(hint);
            let mut other = vec![0; page_bytes];
            leaf.split_into(&split, &mut other);
            if *right {
                *page = other;
            }
        }
        Change::Merge => {
            let space = merge_space(&other, &other);
            let merged = leaf.merge(&other);
            assert_eq!(merged.is_ok(), space <= page_bytes);
        }
        Change::ThereAndBack => {
            if fingerprint_to_comparison(page).is_err() {
                assert!(*page == other);
            } else if comparison_to_fingerprint(page).is_err() {
                *page = other;
            }
        }
        Change::Look { key, place } => read_everything(page, key, usize::from(*place)),
        _ => {}
    }
}

fn run(input: &Input<'_>) {
    let page_bytes = PAGE_BYTES[usize::from(input.large)];
    let mut page = vec![0; page_bytes];
    let short = |key| short(page_bytes, key);
    let (lower, upper) = match input.fences {
        Some((a, b)) if short(a) < short(b) => (Some(short(a)), Some(short(b))),
        _ => (None, None),
    };
    FingerprintLeafMut::format(&mut page, lower, upper);
    let mut model = BTreeMap::new();
    for (key, value) in &input.records {
        let key = short(key);
        let mut leaf = FingerprintLeafMut::new(&mut page);
        let place = leaf.as_leaf().find(key);
        if leaf.as_node().covers(key) {
            assert_eq!(place.is_some(), model.contains_key(key));
            let value = value_for(page_bytes, key, *value);
            if place.is_none() && leaf.insert(key, value).is_ok() {
                model.insert(key, value);
            }
        }
    }
    let defects = check(&page);
    assert!(defects.is_empty(), "a leaf of honest records: {defects:?} {input:?}");
    let records = FingerprintLeafMut::new(&mut page).as_leaf().records_sorted();
    assert!(records.iter().eq(model));
    for damage in &input.damage {
        page[usize::from(damage.at) % page_bytes] = damage.byte;
    }
    read_everything(&mut page, b"key", 3);
    let passes = load_check(&page).is_ok();
    assert!(passes || !check(&page).is_empty());
    for step in &input.changes {
        if let Change::Look { key, place } = step {
            read_everything(&mut page, key, usize::from(*place));
        } else if passes {
            change(&mut page, step);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else { return };
    if how % 4 == 0 {
        let mut page = rest.to_vec();
        if how & 4 != 0 {
            page.resize(PAGE_BYTES[usize::from(how >> 3 & 1)], how);
        }
        let (key, rest) = rest.split_at(rest.len().min(usize::from(how)));
        read_everything(&mut page, key, rest.len());
        if load_check(&page).is_ok() && PAGE_BYTES.contains(&page.len()) {
            let mut data = Unstructured::new(rest);
            while let Ok(step) = Change::arbitrary(&mut data) {
                change(&mut page, &step);
                if data.is_empty() {
                    break;
                }
            }
        }
    } else if let Ok(input) = Input::arbitrary(&mut Unstructured::new(rest)) {
        run(&input);
    }
});
