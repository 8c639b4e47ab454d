//! Arbitrary bytes as a dense leaf of either layout: every read path is total, and whatever passes
//! the check at page-in can be changed in every way without a panic.
//!
//! The first bytes of an input choose: a page of raw bytes, or a leaf of honest records, which is
//! compared with a sorted map and then has some bytes changed. What a leaf refuses has changed
//! nothing, and the remedies end with a place for the record.

#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use hedgerow::internals::node::dense::{
    DenseLayout, DenseMut, Full, KeyShape, Remedy, Semi, check, load_check, to_comparison,
};
use hedgerow::internals::node::{
    self, LeafLayout, LeafPolicy, NodeMut, max_key_bytes, max_record_bytes, merge_leaf_space,
    merge_leaves,
};
use hedgerow::internals::page::header::{KIND, PageKind, kind};
use hedgerow_sync::optimistic::Copied;
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeMap;
use std::hint::black_box;

fn policy<V: DenseLayout>() -> LeafPolicy {
    LeafPolicy::Fixed(if V::ONE_SIZE { LeafLayout::FullyDense } else { LeafLayout::SemiDense })
}

/// Whether two leaves are one now.
fn merge<V: DenseLayout>(left: &mut [u8], right: &[u8]) -> bool {
    merge_leaves(left, right, policy::<V>(), false).is_ok()
}

/// Whether they can be.
fn can_merge<V: DenseLayout>(left: &[u8], right: &[u8]) -> bool {
    merge_leaf_space(left, right, policy::<V>(), false) <= left.len()
}

#[derive(Arbitrary, Debug)]
struct Damage {
    at: u16,
    byte: u8,
}

/// A key: a number beyond that of the first slot, or any bytes.
#[derive(Arbitrary, Debug)]
enum Key<'a> {
    Near(u16),
    Number(u32),
    Bytes(&'a [u8]),
}

#[derive(Arbitrary, Debug)]
enum Change<'a> {
    Put { key: Key<'a>, value: u8 },
    Update { place: u16, value: u8 },
    Remove { place: u16 },
    Split { right: bool, key: Key<'a>, value: u8 },
    Merge { alone: bool },
    ThereAndBack { key: Key<'a>, value: u8 },
    Look { key: Key<'a>, place: u16 },
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    like: &'a [u8],
    fences: (Option<Key<'a>>, Option<Key<'a>>),
    value: u8,
    records: Vec<(u8, u8)>,
    damage: Vec<Damage>,
    changes: Vec<Change<'a>>,
}

const PAGE_BYTES: usize = 512;
const VALUE: [u8; 256] = [0x5a; 256];

fn value_for(key_len: usize, len: u8) -> &'static [u8] {
    let room = max_record_bytes(PAGE_BYTES).saturating_sub(key_len);
    &VALUE[..usize::from(len).min(room)]
}

fn short(key: &[u8]) -> &[u8] {
    &key[..key.len().min(max_key_bytes(PAGE_BYTES))]
}

/// The bytes of a key, which is one of a shape or none.
fn bytes_of(key: &Key<'_>, shape: Option<KeyShape<'_>>, base: u32) -> Vec<u8> {
    match (key, shape) {
        (Key::Bytes(bytes), _) => short(bytes).to_vec(),
        (Key::Near(apart), Some(shape)) => {
            shape.key((base.wrapping_add(u32::from(*apart)) as u64 % shape.end()) as u32)
        }
        (Key::Number(number), Some(shape)) => shape.key((u64::from(*number) % shape.end()) as u32),
        (Key::Near(number), None) => number.to_be_bytes().to_vec(),
        (Key::Number(number), None) => number.to_be_bytes().to_vec(),
    }
}

/// A key of the leaf, and the number of its first slot.
fn first_key<V: DenseLayout>(page: &mut [u8]) -> (Vec<u8>, u32) {
    let leaf = DenseMut::<V>::new(page);
    let (mut key, node) = (Vec::new(), leaf.as_node());
    node.append_key(0, &mut key);
    (key, node.base())
}

fn key_for<V: DenseLayout>(page: &mut [u8], key: &Key<'_>) -> Vec<u8> {
    let (like, base) = first_key::<V>(page);
    bytes_of(key, KeyShape::of(&like), base)
}

fn read_everything<V: DenseLayout>(page: &mut [u8], key: &[u8], place: usize) {
    let len = page.len();
    let leaf = DenseMut::<V>::new(page);
    let node = leaf.as_node();
    let mut out = Vec::new();
    let mut buffer = [0; 64];
    let (found, bound) = (node.find(key), node.lower_bound(key));
    assert!(found.is_none_or(|place| place < node.capacity()) && bound <= node.capacity());
    for place in [0, found.unwrap_or(1), bound, node.capacity(), place] {
        out.clear();
        node.append_key(place, &mut out);
        node.append_value(place, &mut out);
        assert!(out.len() <= 3 * len + 8);
        let mut copied = Copied::new();
        node.copy_value(place, &mut copied);
        let stem = node.copy_prefix(&mut buffer);
        black_box((node.record(place, &mut buffer, stem), node.value(place), copied));
        black_box((node.value_len(place), node.value_equals(place, key)));
        assert!(node.next_place(place) <= node.capacity());
        assert!(node.previous_place(place).is_none_or(|before| before < node.capacity()));
        black_box((node.rank(place), node.place_of_rank(place)));
        node.prefetch_record(place);
    }
    assert!(node.places().rev().count() <= node.capacity());
    black_box((node.used_bytes(), node.free_bytes(), node.payload_bytes(), node.key_len()));
}

fn put<V: DenseLayout>(page: &mut Vec<u8>, key: &[u8], value: &[u8]) -> bool {
    let before = page.clone();
    let mut leaf = DenseMut::<V>::new(page);
    let done = match leaf.as_node().find(key) {
        Some(place) => leaf.update(place, value),
        None => leaf.insert(key, value),
    };
    assert!(done.is_ok() || before == *page, "a refused change changed the page");
    done.is_ok()
}

/// What a change leaves behind passes the check at page-in, as it did before.
fn assert_passes(page: &[u8]) {
    let passes = match kind(page) {
        Some(PageKind::ComparisonLeaf) => node::load_check(page),
        _ => load_check(page),
    };
    assert_eq!(passes, Ok(()));
}

fn change<V: DenseLayout>(page: &mut Vec<u8>, change: &Change<'_>) {
    let other = page.clone();
    let (like, _) = first_key::<V>(page);
    let places: Vec<usize> = DenseMut::<V>::new(page).as_node().places().collect();
    let nth = |place: &u16| places.get(usize::from(*place) % places.len().max(1)).copied();
    match change {
        Change::Put { key, value } => {
            let key = key_for::<V>(page, key);
            let value = value_for(key.len(), *value);
            put::<V>(page, &key, value);
        }
        Change::Update { place, value } => {
            if let Some(place) = nth(place) {
                let value = value_for(like.len(), *value);
                black_box(DenseMut::<V>::new(page).update(place, value)).ok();
            }
        }
        Change::Remove { place } => {
            if let Some(place) = nth(place) {
                DenseMut::<V>::new(page).remove(place);
            }
        }
        Change::Split { right, key, value } => {
            let key = key_for::<V>(page, key);
            let value = value_for(key.len(), *value);
            let mut leaf = DenseMut::<V>::new(page);
            let covers = leaf.as_node().common().covers(&key);
            match leaf.choose_remedy(&key, value.len()) {
                Remedy::ToComparison => {
                    to_comparison::<V>(page).expect("a remedy can be taken");
                    *page = other;
                }
                Remedy::Split(split) => {
                    let mut upper = vec![0; PAGE_BYTES];
                    leaf.split_into(&split, &mut upper, true);
                    assert_passes(page);
                    assert_passes(&upper);
                    let within = |page: &mut [u8]| NodeMut::new(page).as_node().covers(&key);
                    assert_eq!(covers, within(page) != within(&mut upper));
                    let expected = can_merge::<V>(page, &upper);
                    let keep = if *right { upper.clone() } else { page.clone() };
                    assert_eq!(merge::<V>(page, &upper), expected);
                    assert_passes(page);
                    *page = keep;
                }
            }
        }
        Change::Merge { alone } => {
            let mut empty = vec![0; PAGE_BYTES];
            NodeMut::format(&mut empty, PageKind::ComparisonLeaf, 0, None, None);
            let right = if *alone { &empty } else { &other };
            black_box(merge::<V>(page, right));
            *page = other;
        }
        Change::ThereAndBack { key, value } => {
            let key = key_for::<V>(page, key);
            if to_comparison::<V>(page).is_err() {
                assert!(*page == other);
                return;
            }
            assert_passes(page);
            let there = page.clone();
            let back = DenseMut::<V>::from_comparison(page, &key, usize::from(*value));
            if back.is_err() {
                assert!(*page == there);
                *page = other;
            }
        }
        Change::Look { key, place } => {
            let key = key_for::<V>(page, key);
            read_everything::<V>(page, &key, usize::from(*place));
        }
    }
    if page[KIND] == V::KIND as u8 {
        assert_passes(page);
    }
}

fn run<V: DenseLayout>(input: &Input<'_>) {
    let like = short(input.like);
    let shape = KeyShape::of(like);
    let fence = |key: &Option<Key<'_>>| key.as_ref().map(|key| bytes_of(key, shape, 0));
    let (lower, upper) = (fence(&input.fences.0), fence(&input.fences.1));
    if let (Some(lower), Some(upper)) = (&lower, &upper)
        && lower >= upper
    {
        return;
    }
    let value_len = value_for(like.len(), input.value).len();
    let (lower, upper) = (lower.as_deref(), upper.as_deref());
    let mut page = vec![0; PAGE_BYTES];
    if DenseMut::<V>::format(&mut page, lower, upper, like, value_len).is_err() {
        assert!(page.iter().all(|byte| *byte == 0));
        return;
    }
    let shape = shape.expect("the empty key has no leaf");
    let base = DenseMut::<V>::new(&mut page).as_node().base();
    let mut model = BTreeMap::new();
    for (apart, len) in &input.records {
        let key = bytes_of(&Key::Near(u16::from(*apart)), Some(shape), base);
        let leaf = DenseMut::<V>::new(&mut page);
        if leaf.as_node().common().covers(&key) {
            assert_eq!(leaf.as_node().find(&key).is_some(), model.contains_key(&key));
            let len = if V::ONE_SIZE { value_len } else { usize::from(*len) };
            let value = &VALUE[..len.min(max_record_bytes(PAGE_BYTES) - key.len())];
            if put::<V>(&mut page, &key, value) {
                model.insert(key, value);
            }
        }
    }
    let defects = check(&page);
    assert!(defects.is_empty(), "a leaf of honest records: {defects:?} {input:?}");
    let records = DenseMut::<V>::new(&mut page).as_node().records_sorted();
    assert!(records.iter().eq(model.iter().map(|(key, value)| (key.as_slice(), *value))));
    for damage in &input.damage {
        page[usize::from(damage.at) % PAGE_BYTES] = damage.byte;
    }
    steps::<V>(page, &input.changes);
}

fn steps<V: DenseLayout>(mut page: Vec<u8>, changes: &[Change<'_>]) {
    read_everything::<V>(&mut page, b"key0", 3);
    let passes = load_check(&page).is_ok() && page.len() == PAGE_BYTES;
    assert!(passes || !check(&page).is_empty() || page.len() != PAGE_BYTES);
    for step in changes {
        if passes && page[KIND] == V::KIND as u8 {
            change::<V>(&mut page, step);
        } else if let Change::Look { key, place } = step {
            let key = bytes_of(key, None, 0);
            read_everything::<V>(&mut page, &key, usize::from(*place));
        }
    }
}

fn raw<V: DenseLayout>(how: u8, rest: &[u8]) {
    let mut page = rest.to_vec();
    if how & 8 != 0 {
        page.resize(PAGE_BYTES, how);
        page[KIND] = V::KIND as u8;
    }
    let mut data = Unstructured::new(rest);
    let mut changes = Vec::new();
    while let Ok(step) = Change::arbitrary(&mut data) {
        changes.push(step);
        if data.is_empty() {
            break;
        }
    }
    steps::<V>(page, &changes);
}

fuzz_target!(|data: &[u8]| {
    let Some((&how, rest)) = data.split_first() else { return };
    match (how % 4 == 0, how & 4 != 0) {
        (true, true) => raw::<Full>(how, rest),
        (true, false) => raw::<Semi>(how, rest),
        (false, full) => {
            if let Ok(input) = Input::arbitrary(&mut Unstructured::new(rest)) {
                if full { run::<Full>(&input) } else { run::<Semi>(&input) }
            }
        }
    }
});
