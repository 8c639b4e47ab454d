//! Arbitrary bytes as a page: every read path is total, and whatever passes the check at page-in can
//! be changed in every way without a panic.
//!
//! The first bytes of an input choose: a page of raw bytes, or a valid node with some bytes changed.

#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use hedgerow::internals::node::{
    Node, NodeMut, SplitHint, check, load_check, max_key_bytes, max_record_bytes, merge_space,
};
use hedgerow::internals::page::header::{self, PageKind};
use hedgerow::internals::types::PageId;
use hedgerow_sync::optimistic::Copied;
use libfuzzer_sys::fuzz_target;
use std::hint::black_box;

/// What `PlainBytes` is to the engine; named through the view that a `NodeMut` gives.
fn with_view<R>(page: &mut [u8], f: impl FnOnce(&NodeMut<'_>) -> R) -> R {
    f(&NodeMut::new(page))
}

#[derive(Arbitrary, Debug)]
struct Damage {
    at: u16,
    byte: u8,
}

#[derive(Arbitrary, Debug)]
enum Change<'a> {
    Insert { key: &'a [u8], value: u8 },
    InsertAt { index: u16, key: &'a [u8], value: u8 },
    Update { index: u16, value: u8 },
    Remove { index: u16 },
    Split { right: bool, key: &'a [u8], hinted: bool },
    Merge,
    Look { key: &'a [u8], index: u16 },
}

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    inner: bool,
    fences: Option<(&'a [u8], &'a [u8])>,
    records: Vec<(&'a [u8], u8)>,
    damage: Vec<Damage>,
    changes: Vec<Change<'a>>,
}

const PAGE_BYTES: usize = 512;
const VALUE: [u8; 256] = [0x5a; 256];

fn value_for(key: &[u8], len: u8) -> &'static [u8] {
    let room = max_record_bytes(PAGE_BYTES).saturating_sub(key.len());
    &VALUE[..usize::from(len).min(room)]
}

fn short(key: &[u8]) -> &[u8] {
    &key[..key.len().min(max_key_bytes(PAGE_BYTES))]
}

/// Whether a page may be changed as a comparison node: `load_check` passes sound dense and fingerprint leaves as well,
/// which have targets of their own.
fn may_be_changed(page: &[u8]) -> bool {
    load_check(page).is_ok()
        && matches!(header::kind(page), Some(PageKind::Inner | PageKind::ComparisonLeaf))
}

fn read_everything(page: &mut [u8], key: &[u8], index: usize) {
    let len = page.len();
    with_view(page, |node| {
        let node: Node<_> = node.as_node();
        let mut out = Vec::new();
        let position = node.search(key);
        let child = node.child_for(key);
        assert!(position.index <= node.count() && child.index <= node.count());
        black_box((node.child_above(key), node.covers(key), node.is_upper_fence(key)));
        for index in [0, position.index, node.count(), index] {
            out.clear();
            node.append_key(index, &mut out);
            node.append_value(index, &mut out);
            assert!(out.len() <= 3 * len);
            let mut copied = Copied::new();
            node.copy_value(index, &mut copied);
            black_box((node.key_len(index), node.value_len(index), node.child_at(index)));
            black_box((copied, node.value_equals(index, key)));
            black_box(node.compare_key(index, key));
            node.prefetch_record(index);
        }
        out.clear();
        black_box((node.append_lower_fence(&mut out), node.append_upper_fence(&mut out)));
        black_box((node.kind(), node.level(), node.newest_lsn(), node.payload_bytes()));
        black_box((node.used_bytes(), node.free_bytes(), node.prefix_len()));
    });
}

fn change(page: &mut Vec<u8>, change: &Change<'_>) {
    let inner = page[hedgerow::internals::page::header::KIND] == PageKind::Inner as u8;
    let other = page.clone();
    let mut node = NodeMut::new(page);
    let count = node.as_node().count();
    match change {
        Change::Insert { key, .. } if inner => {
            let index = node.as_node().child_for(key).index;
            if node.fits_separator(key.len()) {
                black_box(node.insert_child(index, short(key), PageId(4))).ok();
            }
        }
        Change::Insert { key, value } => {
            let key = short(key);
            let at = node.as_node().search(key);
            let value = value_for(key, *value);
            let done = match at.found {
                true => node.update(at.index, value),
                false => node.insert(at.index, key, value),
            };
            black_box(done).ok();
        }
        Change::InsertAt { index, key, value } if !inner => {
            let key = short(key);
            let index = usize::from(*index) % (count + 1);
            black_box(node.insert(index, key, value_for(key, *value))).ok();
        }
        Change::Update { index, value } if !inner && count > 0 => {
            let index = usize::from(*index) % count;
            black_box(node.update(index, &VALUE[..usize::from(*value) % 60])).ok();
        }
        Change::Remove { index } if count > 0 => {
            let index = usize::from(*index) % count;
            if inner { node.remove_child(index) } else { node.remove(index) }
        }
        Change::Split { right, key, hinted } if count > 1 => {
            let key = short(key);
            let index = node.as_node().child_for(key).index;
            let hint = if *hinted {
                SplitHint::Insert { index, key, value_bytes: 0 }
            } else {
                SplitHint::Middle
            };
            let split = node.choose_split(hint);
            let mut other = vec![0; PAGE_BYTES];
            node.split_into(&split, &mut other);
            if *right {
                *page = other;
            }
        }
        Change::Merge => {
            let space = merge_space(&other, &other);
            let merged = node.merge(&other);
            assert_eq!(merged.is_ok(), space <= PAGE_BYTES);
        }
        Change::Look { key, index } => read_everything(page, key, usize::from(*index)),
        _ => {}
    }
}

fn run(input: &Input<'_>) {
    let mut page = vec![0; PAGE_BYTES];
    let (lower, upper) = match input.fences {
        Some((a, b)) if short(a) < short(b) => (Some(short(a)), Some(short(b))),
        _ => (None, None),
    };
    let (kind, level) =
        if input.inner { (PageKind::Inner, 1) } else { (PageKind::ComparisonLeaf, 0) };
    NodeMut::format(&mut page, kind, level, lower, upper);
    if input.inner {
        NodeMut::new(&mut page).set_upper_child(PageId(4));
    }
    for (key, value) in &input.records {
        let key = short(key);
        let mut node = NodeMut::new(&mut page);
        let view = node.as_node();
        if !view.covers(key) {
            continue;
        }
        if input.inner {
            let index = view.child_for(key).index;
            let is_new = view.child_above(key).index == index && !view.is_upper_fence(key);
            if is_new && node.fits_separator(key.len()) {
                node.insert_child(index, key, PageId(4)).expect("it fits");
            }
        } else {
            let at = view.search(key);
            if !at.found {
                black_box(node.insert(at.index, key, value_for(key, *value))).ok();
            }
        }
    }
    let defects = check(&page);
    assert!(defects.is_empty(), "a node of honest records: {defects:?} {input:?}");
    for damage in &input.damage {
        page[usize::from(damage.at) % PAGE_BYTES] = damage.byte;
    }
    read_everything(&mut page, b"key", 3);
    assert!(load_check(&page).is_ok() || !check(&page).is_empty());
    let passes = may_be_changed(&page);
    for step in &input.changes {
        if let Change::Look { key, index } = step {
            read_everything(&mut page, key, usize::from(*index));
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
            page.resize(PAGE_BYTES, how);
        }
        let (key, rest) = rest.split_at(rest.len().min(usize::from(how)));
        read_everything(&mut page, key, rest.len());
        if may_be_changed(&page) && page.len() == PAGE_BYTES {
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
