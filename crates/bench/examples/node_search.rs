//! Counts what the searches of a look-up cost: packs the keys of a file (one a line) into nodes of 4 KiB,
//! 70 % full as random insertions leave them, and looks every seventh key up from the root.
//!
//! ```text
//! cargo build --release -p hedgerow-bench --example node_search
//! valgrind --tool=callgrind --toggle-collect='*measured*' target/release/examples/node_search KEYS
//! ```
//!
//! The instructions collected, divided by the number of look-ups printed, are those of one look-up
//! in a node of each level, of the check at page-in, once for each node, and of filling each leaf
//! anew, its records in another order. `measured_leaf`, `measured_inner`, `measured_check` and
//! `measured_insert` collect one kind alone; so does `measured_sort` for the leaves that have been
//! filled, if they are fingerprint leaves.
//!
//! The nodes are those of the build's rung of the ladder (`RUSTFLAGS='--cfg hedgerow_rung="baseline"'`); the layouts of leaves
//! but `comparison` are those of the store alone.
//!
//! `integers` in the place of the file stands for the big-endian numbers 0, 1, 2 and so on, of four
//! bytes, which dense leaves can hold.

#![allow(clippy::disallowed_methods, reason = "a measurement, outside of the engine's seams")]

use hedgerow::internals::node::dense::{self, DenseLayout, DenseMut, DenseNode, Full, Semi};
use hedgerow::internals::node::fingerprint::{self, FingerprintLeaf, FingerprintLeafMut};
use hedgerow::internals::node::{Builder, Node, NodeMut, Records, load_check, rung};
use hedgerow::internals::page::header::PageKind;
use hedgerow::internals::types::PageId;
use hedgerow_sync::optimistic::PlainBytes;

const PAGE_BYTES: usize = 4096;
const FILL_PERCENT: u8 = 70;

type Level = Vec<Vec<u8>>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "node_search KEYS|integers [comparison|fingerprint|semi|full] [keys] [value bytes]";
    let path = arguments.next().expect(usage);
    let layout = arguments.next().unwrap_or("comparison".into());
    let count = arguments.next().map_or(300_000, |n| n.parse().expect(usage));
    let value = vec![b'v'; arguments.next().map_or(8, |n| n.parse().expect(usage))];
    let (text, integers);
    let mut keys: Vec<&[u8]> = if path == "integers" {
        integers = (0..count as u32).map(u32::to_be_bytes).collect::<Vec<_>>();
        integers.iter().map(<[u8; 4]>::as_slice).collect()
    } else {
        text = std::fs::read(path).expect("the keys can be read");
        text.split(|byte| *byte == b'\n').take(count).collect()
    };
    keys.retain(|key| key.len() <= 800);
    keys.sort_unstable();
    keys.dedup();
    match layout.as_str() {
        "comparison" => run(&keys, &value),
        "fingerprint" => run_fingerprint(&keys, &value),
        "semi" => run_dense::<Semi>(&keys, &value),
        "full" => run_dense::<Full>(&keys, &value),
        _ => panic!("{usage}"),
    }
}

fn run(keys: &[&[u8]], value: &[u8]) {
    let levels = levels(keys, value);
    let probes = probes(keys, &levels);
    let found = measured_leaf(&levels[0], &probes);
    assert_eq!(measured_check(&levels), 0);
    report(rung::NAME, &levels, probes.len(), found);
    for leaf in &levels[0] {
        let (lower, upper) = fences(leaf);
        let mut page = vec![0; PAGE_BYTES];
        let (lower, upper) = (lower.as_deref(), upper.as_deref());
        NodeMut::format(&mut page, PageKind::ComparisonLeaf, 0, lower, upper);
        let records = node(leaf).records_sorted();
        measured_insert(&mut page, &in_disorder(&records));
    }
}

/// The same with fingerprint leaves, which hold what comparison leaves that are 70 % full do.
fn run_fingerprint(keys: &[&[u8]], value: &[u8]) {
    let mut levels = levels(keys, value);
    let probes = probes(keys, &levels);
    for leaf in &mut levels[0] {
        fingerprint::comparison_to_fingerprint(leaf)
            .expect("a leaf that is not full can be converted");
    }
    let found = measured_leaf_by_fingerprint(&levels[0], &probes);
    assert_eq!(measured_check_of_fingerprints(&levels[0]), 0);
    report("fingerprint", &levels, probes.len(), found);
    for leaf in &levels[0] {
        let (lower, upper) = fences(leaf);
        let mut page = vec![0; PAGE_BYTES];
        FingerprintLeafMut::format(&mut page, lower.as_deref(), upper.as_deref());
        let records = FingerprintLeaf::new(PlainBytes::new(leaf)).records_sorted();
        measured_insert_by_fingerprint(&mut page, &in_disorder(&records));
        measured_sort(&mut page);
    }
}

/// The same with dense leaves.
fn run_dense<V: DenseLayout>(keys: &[&[u8]], value: &[u8]) {
    let mut levels = levels(keys, value);
    let probes = probes(keys, &levels);
    for leaf in &mut levels[0] {
        let records = node(leaf).records_sorted();
        let (first, _) = records.iter().next().expect("no leaf is empty");
        DenseMut::<V>::from_comparison(leaf, first, value.len()).expect("the keys are dense");
    }
    let found = measured_leaf_by_number::<V>(&levels[0], &probes);
    assert_eq!(measured_check_of_numbers(&levels[0]), 0);
    report(V::NAME, &levels, probes.len(), found);
    for leaf in &levels[0] {
        let (lower, upper) = fences(leaf);
        let records = DenseNode::<_, V>::new(PlainBytes::new(leaf)).records_sorted();
        let mut page = vec![0; PAGE_BYTES];
        let (first, _) = records.iter().next().expect("no leaf is empty");
        let (lower, upper) = (lower.as_deref(), upper.as_deref());
        DenseMut::<V>::format(&mut page, lower, upper, first, value.len())
            .expect("the first key has a slot");
        measured_insert_by_number::<V>(&mut page, &in_disorder(&records));
    }
}

fn report(name: &str, levels: &[Level], probes: usize, found: usize) {
    let sizes: Vec<usize> = levels.iter().map(Vec::len).collect();
    println!("{name}: {probes} look-ups, {found} found; nodes of each level: {sizes:?}");
}

fn levels(keys: &[&[u8]], value: &[u8]) -> Vec<Level> {
    let mut levels = Vec::new();
    let mut separators = leaves(keys, value, &mut levels);
    while levels.last().is_some_and(|level| level.len() > 1) {
        separators = inner(&separators, &mut levels);
    }
    levels
}

/// Every seventh key with the leaf that it belongs to.
fn probes<'k>(keys: &[&'k [u8]], levels: &[Level]) -> Vec<(usize, &'k [u8])> {
    let keys = keys.iter().step_by(7);
    keys.map(|key| (measured_inner(&levels[1..], key), *key)).collect()
}

fn fences(leaf: &[u8]) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let node = node(leaf);
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    let lower = node.append_lower_fence(&mut lower).then_some(lower);
    (lower, node.append_upper_fence(&mut upper).then_some(upper))
}

/// Records in an order that is none, each of them once.
fn in_disorder(records: &Records) -> Vec<(&[u8], &[u8])> {
    const STRIDE: usize = 7919;
    let sorted: Vec<_> = records.iter().collect();
    // The stride is a prime, and larger than any leaf.
    (0..sorted.len()).map(|at| sorted[at * STRIDE % sorted.len()]).collect()
}

/// Builds the leaves and gives the separators between them.
fn leaves(keys: &[&[u8]], value: &[u8], levels: &mut Vec<Level>) -> Vec<Vec<u8>> {
    let mut builder = Builder::new(PAGE_BYTES, 0, FILL_PERCENT);
    let (mut level, mut separators) = (Level::new(), Vec::new());
    for key in keys {
        while !builder.push(key, value) {
            level.push(vec![0; PAGE_BYTES]);
            separators.extend(level.last_mut().map(|page| builder.write(page, key)));
        }
    }
    finish(builder, level, separators, levels)
}

/// Builds a level above the last one, and gives the separators between its nodes.
fn inner(below: &[Vec<u8>], levels: &mut Vec<Level>) -> Vec<Vec<u8>> {
    let mut builder = Builder::new(PAGE_BYTES, levels.len() as u8, FILL_PERCENT);
    let (mut level, mut separators) = (Level::new(), Vec::new());
    for (at, separator) in below.iter().enumerate() {
        while !builder.push_child(separator, PageId(at as u32)) {
            level.push(vec![0; PAGE_BYTES]);
            separators.extend(level.last_mut().map(|page| builder.write(page, separator)));
        }
    }
    while !builder.push_child(&[], PageId(below.len() as u32)) {
        level.push(vec![0; PAGE_BYTES]);
        separators.extend(level.last_mut().map(|page| builder.write(page, &[])));
    }
    finish(builder, level, separators, levels)
}

fn finish(
    mut builder: Builder,
    mut level: Level,
    mut separators: Vec<Vec<u8>>,
    levels: &mut Vec<Level>,
) -> Vec<Vec<u8>> {
    loop {
        let mut page = vec![0; PAGE_BYTES];
        let separator = builder.write_last(&mut page);
        level.push(page);
        let Some(separator) = separator else {
            levels.push(level);
            return separators;
        };
        separators.push(separator);
    }
}

fn node(page: &[u8]) -> Node<PlainBytes<'_>> {
    Node::new(PlainBytes::new(page))
}

/// The check at page-in, of every node: `measured_check`.
#[inline(never)]
fn measured_check(levels: &[Level]) -> usize {
    levels.iter().flatten().filter(|page| load_check(page).is_err()).count()
}

#[inline(never)]
fn measured_leaf(leaves: &[Vec<u8>], probes: &[(usize, &[u8])]) -> usize {
    probes.iter().filter(|(leaf, key)| node(&leaves[*leaf]).search(key).found).count()
}

#[inline(never)]
fn measured_inner(levels: &[Level], key: &[u8]) -> usize {
    let child = |at: usize, level: &Level| node(&level[at]).child_for(key).child.0 as usize;
    levels.iter().rev().fold(0, child)
}

#[inline(never)]
fn measured_leaf_by_fingerprint(leaves: &[Vec<u8>], probes: &[(usize, &[u8])]) -> usize {
    let leaf = |at: usize| FingerprintLeaf::new(PlainBytes::new(&leaves[at]));
    probes.iter().filter(|(at, key)| leaf(*at).find(key).is_some()).count()
}

#[inline(never)]
fn measured_check_of_fingerprints(leaves: &[Vec<u8>]) -> usize {
    leaves.iter().filter(|page| fingerprint::load_check(page).is_err()).count()
}

#[inline(never)]
fn measured_insert(page: &mut [u8], records: &[(&[u8], &[u8])]) {
    for (key, value) in records {
        let mut leaf = NodeMut::new(page);
        let at = leaf.as_node().search(key);
        leaf.insert(at.index, key, value).expect("they fitted before");
    }
}

#[inline(never)]
fn measured_insert_by_fingerprint(page: &mut [u8], records: &[(&[u8], &[u8])]) {
    for (key, value) in records {
        let mut leaf = FingerprintLeafMut::new(page);
        assert_eq!(leaf.as_leaf().find(key), None);
        leaf.insert(key, value).expect("they fitted before");
    }
}

#[inline(never)]
fn measured_sort(page: &mut [u8]) {
    FingerprintLeafMut::new(page).sort();
}

#[inline(never)]
fn measured_leaf_by_number<V: DenseLayout>(leaves: &[Vec<u8>], probes: &[(usize, &[u8])]) -> usize {
    let leaf = |at: usize| DenseNode::<_, V>::new(PlainBytes::new(&leaves[at]));
    probes.iter().filter(|(at, key)| leaf(*at).find(key).is_some()).count()
}

#[inline(never)]
fn measured_check_of_numbers(leaves: &[Vec<u8>]) -> usize {
    leaves.iter().filter(|page| dense::load_check(page).is_err()).count()
}

#[inline(never)]
fn measured_insert_by_number<V: DenseLayout>(page: &mut [u8], records: &[(&[u8], &[u8])]) {
    for (key, value) in records {
        let mut leaf = DenseMut::<V>::new(page);
        assert_eq!(leaf.as_node().find(key), None);
        leaf.insert(key, value).expect("they fitted before");
    }
}
