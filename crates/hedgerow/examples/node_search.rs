//! Counts what the searches of a look-up cost: packs the keys of a file (one a line) into nodes of 4 KiB,
//! 70 % full as random insertions leave them, and looks every seventh key up from the root.
//!
//! ```text
//! cargo build --release -p hedgerow --example node_search
//! valgrind --tool=callgrind --toggle-collect='*measured*' target/release/examples/node_search KEYS hints
//! ```
//!
//! The instructions collected, divided by the number of look-ups printed, are those of one look-up in a
//! node of each level, and of the check at page-in, once for each node. `measured_leaf`, `measured_inner` and
//! `measured_check` collect one kind alone.

#![allow(clippy::disallowed_methods, reason = "a measurement, outside of the engine's seams")]

use hedgerow::node::{Baseline, Builder, Heads, Hints, Ladder, Node, Prefix, load_check_as};
use hedgerow::types::PageId;
use hedgerow_sync::optimistic::PlainBytes;

const PAGE_BYTES: usize = 4096;
const FILL_PERCENT: u8 = 70;

type Level = Vec<Vec<u8>>;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let usage = "node_search KEYS [baseline|prefix|heads|hints] [keys] [value bytes]";
    let path = arguments.next().expect(usage);
    let rung = arguments.next().unwrap_or("hints".into());
    let count = arguments.next().map_or(300_000, |n| n.parse().expect(usage));
    let value = vec![b'v'; arguments.next().map_or(8, |n| n.parse().expect(usage))];
    let text = std::fs::read(path).expect("the keys can be read");
    let mut keys: Vec<&[u8]> = text.split(|byte| *byte == b'\n').take(count).collect();
    keys.retain(|key| key.len() <= 800);
    keys.sort_unstable();
    keys.dedup();
    match rung.as_str() {
        "baseline" => run::<Baseline>(&keys, &value),
        "prefix" => run::<Prefix>(&keys, &value),
        "heads" => run::<Heads>(&keys, &value),
        "hints" => run::<Hints>(&keys, &value),
        _ => panic!("{usage}"),
    }
}

fn run<L: Ladder>(keys: &[&[u8]], value: &[u8]) {
    let mut levels = Vec::new();
    let mut separators = leaves::<L>(keys, value, &mut levels);
    while levels.last().is_some_and(|level| level.len() > 1) {
        separators = inner::<L>(&separators, &mut levels);
    }
    let inner_levels = &levels[1..];
    let mut probes = Vec::new();
    for key in keys.iter().step_by(7) {
        probes.push((measured_inner::<L>(inner_levels, key), *key));
    }
    let found = measured_leaf::<L>(&levels[0], &probes);
    let sizes: Vec<usize> = levels.iter().map(Vec::len).collect();
    assert_eq!(measured_check::<L>(&levels), 0);
    println!(
        "{}: {} look-ups, {found} found; nodes of each level: {sizes:?}",
        L::NAME,
        probes.len()
    );
}

/// Builds the leaves and gives the separators between them.
fn leaves<L: Ladder>(keys: &[&[u8]], value: &[u8], levels: &mut Vec<Level>) -> Vec<Vec<u8>> {
    let mut builder = Builder::<L>::new(PAGE_BYTES, 0, FILL_PERCENT);
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
fn inner<L: Ladder>(below: &[Vec<u8>], levels: &mut Vec<Level>) -> Vec<Vec<u8>> {
    let mut builder = Builder::<L>::new(PAGE_BYTES, levels.len() as u8, FILL_PERCENT);
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

fn finish<L: Ladder>(
    mut builder: Builder<L>,
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

fn node<L: Ladder>(page: &[u8]) -> Node<PlainBytes<'_>, L> {
    Node::new(PlainBytes::new(page))
}

/// The check at page-in, of every node: `measured_check`.
#[inline(never)]
fn measured_check<L: Ladder>(levels: &[Level]) -> usize {
    levels.iter().flatten().filter(|page| load_check_as::<L>(page).is_err()).count()
}

#[inline(never)]
fn measured_leaf<L: Ladder>(leaves: &[Vec<u8>], probes: &[(usize, &[u8])]) -> usize {
    probes.iter().filter(|(leaf, key)| node::<L>(&leaves[*leaf]).search(key).found).count()
}

#[inline(never)]
fn measured_inner<L: Ladder>(levels: &[Level], key: &[u8]) -> usize {
    let child = |at: usize, level: &Level| node::<L>(&level[at]).child_for(key).child.0 as usize;
    levels.iter().rev().fold(0, child)
}
