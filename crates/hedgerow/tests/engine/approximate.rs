//! Approximate counts and sizes: beside the truth, for ranges of every length, keys of every density, and each layout of leaves.

use crate::common::{Dice, seed};
use hedgerow::{Database, ErrorKind, Keyspace, LeafLayout, LeafPolicy, Options};
use std::collections::BTreeMap;
use std::ops::Bound;

type Records = BTreeMap<Vec<u8>, usize>;

fn database(policy: LeafPolicy) -> Database {
    Options::new().page_bytes(1024).leaves(policy).memory_limit_bytes(64 << 20).in_memory().unwrap()
}

/// Puts records of these keys in the order of the dice, with values whose lengths `len` draws.
fn fill(
    keyspace: &Keyspace,
    dice: &mut Dice,
    keys: impl Iterator<Item = Vec<u8>>,
    len: impl Fn(&mut Dice, &[u8]) -> usize,
) -> Records {
    let records: Records = keys
        .map(|key| {
            let len = len(dice, &key);
            (key, len)
        })
        .collect();
    let mut order: Vec<_> = records.iter().collect();
    for at in (1..order.len()).rev() {
        order.swap(at, dice.below(at as u64 + 1) as usize);
    }
    for (key, len) in order {
        keyspace.put(key, &vec![7; *len]).unwrap();
    }
    records
}

/// How far the answers for random ranges are from the truth, as the part that is off: of the records and of the bytes, each from the
/// smallest to the largest.
fn errors(
    keyspace: &Keyspace,
    records: &Records,
    dice: &mut Dice,
    lengths: &[usize],
) -> [Vec<f64>; 2] {
    let keys: Vec<&Vec<u8>> = records.keys().collect();
    let mut errors = [Vec::new(), Vec::new()];
    for len in lengths {
        let from = dice.below((keys.len() - len + 1) as u64) as usize;
        let bounds = keys[from].as_slice()..=keys[from + len - 1].as_slice();
        let inside = &keys[from..from + len];
        let bytes: usize = inside.iter().map(|key| key.len() + records[*key]).sum();
        let off = |found: u64, truth: usize| (found as f64 / truth as f64 - 1.0).abs();
        errors[0].push(off(keyspace.approximate_count(bounds.clone()).unwrap(), *len));
        errors[1].push(off(keyspace.approximate_len_bytes(bounds).unwrap(), bytes));
    }
    errors.iter_mut().for_each(|errors| errors.sort_by(f64::total_cmp));
    errors
}

/// What the documents say of usual keys.
fn assert_near([records, bytes]: [Vec<f64>; 2], what: &str) {
    for (errors, of) in [(records, "records"), (bytes, "bytes")] {
        let at = |part: f64| errors[((errors.len() - 1) as f64 * part) as usize];
        println!("{what}, {of}: median {:.3}, most {:.3}", at(0.5), at(1.0));
        assert!(at(0.5) < 0.05 && at(0.95) < 0.15 && at(1.0) < 0.35, "{what}, {of}: {errors:?}");
    }
}

fn number(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

#[test]
fn answers_are_near_for_each_layout_and_for_ranges_of_every_length() {
    let mut dice = Dice(seed(4_405));
    let policies =
        LeafLayout::ALL.map(LeafPolicy::Fixed).into_iter().chain([LeafPolicy::default()]);
    for policy in policies {
        let what = format!("{policy:?}");
        let db = database(policy);
        let keyspace = db.keyspace("records").unwrap();
        let records =
            fill(&keyspace, &mut dice, (0..40_000).map(number), |dice, _| dice.below(40) as usize);
        let lengths: Vec<usize> = (0..120).map(|at| 40_000 >> (at % 16)).collect();
        assert_near(errors(&keyspace, &records, &mut dice, &lengths), &what);
        let all = keyspace.approximate_count(..).unwrap();
        assert!((36_000..44_000).contains(&all), "{what}: {all}");
    }
}

/// Dense runs beside single keys, short values beside long ones.
#[test]
fn answers_are_near_for_skewed_keys_and_values() {
    let mut dice = Dice(seed(4_406));
    let db = database(LeafPolicy::default());
    let keyspace = db.keyspace("records").unwrap();
    let mut of_clusters = dice.clone();
    let keys = (0..60_000).map(|_| number(of_clusters.roll() >> of_clusters.below(50)));
    // As long as the first keys are rare: their leaves have few records, and the others many.
    let len = |dice: &mut Dice, key: &[u8]| if key[0] > 0 { 300 } else { dice.below(10) as usize };
    let records = fill(&keyspace, &mut dice, keys, len);
    let lengths: Vec<usize> = (0..120).map(|at| records.len() >> (at % 14)).collect();
    assert_near(errors(&keyspace, &records, &mut dice, &lengths), "clusters");
}

#[test]
fn large_values_count_with_their_length() {
    let mut dice = Dice(seed(4_407));
    for db in [
        database(LeafPolicy::default()),
        Options::new().memory_limit_bytes(64 << 20).temporary().unwrap(),
    ] {
        let keyspace = db.keyspace("records").unwrap();
        let records =
            fill(&keyspace, &mut dice, (0..300).map(number), |dice, _| dice.below(9_000) as usize);
        let bytes: usize = records.iter().map(|(key, len)| key.len() + len).sum();
        let found = keyspace.approximate_len_bytes(..).unwrap();
        assert!((found as f64 / bytes as f64 - 1.0).abs() < 0.1, "{found} of {bytes}");
    }
}

/// A range of some leaves is counted, with each kind of bound.
#[test]
fn short_ranges_are_counted() {
    let mut dice = Dice(seed(4_408));
    let db = database(LeafPolicy::default());
    let keyspace = db.keyspace("records").unwrap();
    assert_eq!(keyspace.approximate_count(..).unwrap(), 0, "an empty keyspace");
    let records = fill(&keyspace, &mut dice, (0..300).map(|n| number(3 * n)), |_, _| 40);
    assert_eq!(keyspace.stats().unwrap().levels.len(), 2);
    for _ in 0..2_000 {
        let (a, b) = (number(dice.below(1_000)), number(dice.below(1_000)));
        let bound = |dice: &mut Dice, key: &Vec<u8>| match dice.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(key.clone()),
            _ => Bound::Excluded(key.clone()),
        };
        let bounds = (bound(&mut dice, &a), bound(&mut dice, &b));
        let is_empty = match (&bounds.0, &bounds.1) {
            (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
            (Bound::Included(_), Bound::Included(_)) => a > b,
            _ => a >= b,
        };
        let inside = || records.range::<Vec<u8>, _>(bounds.clone());
        let count = if is_empty { 0 } else { inside().count() as u64 };
        let bytes =
            if is_empty { 0 } else { inside().map(|(key, len)| (key.len() + len) as u64).sum() };
        assert_eq!(keyspace.approximate_count(bounds.clone()).unwrap(), count, "{bounds:?}");
        assert_eq!(keyspace.count_range(bounds.clone()).unwrap(), count, "{bounds:?}");
        assert_eq!(keyspace.approximate_len_bytes(bounds.clone()).unwrap(), bytes, "{bounds:?}");
    }
}

/// As many pages as the two ways have, and the looks; whatever the range has.
#[test]
fn a_call_reads_no_more_pages_of_a_long_range() {
    let options = Options::new().page_bytes(1024).memory_limit_bytes(1 << 20);
    let db = crate::common::create_small(options, None);
    let keyspace = db.keyspace("records").unwrap();
    keyspace.bulk_load((0..60_000).map(|n| (number(n), [7; 24])), 80).unwrap();
    let height = keyspace.stats().unwrap().levels.len() as u64;
    let reads = || db.stats().unwrap().pool.faults;
    for range in [10..59_990_u64, 10..30_000, 10..10_000] {
        let before = reads();
        let found = keyspace.approximate_count(number(range.start)..number(range.end)).unwrap();
        let truth = range.end - range.start;
        assert!(found.abs_diff(truth) < truth / 4, "{found} of {truth}");
        let read = reads() - before;
        assert!(read <= (2 + 32 + 2 * height) * height, "{read} pages read, height {height}");
    }
    db.close().unwrap();
    assert_eq!(keyspace.approximate_count(..).unwrap_err().kind(), ErrorKind::Closed);
}
