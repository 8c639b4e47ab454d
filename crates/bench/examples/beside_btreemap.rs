//! Gets and inserts in memory through the public API, beside `BTreeMap<Vec<u8>, Vec<u8>>`.
//!
//! `cargo run --release -p hedgerow-bench --example beside_btreemap [records] [threads]`: random 8-byte keys, 100-byte
//! values; both maps take turns in rounds, so that the machine's moods hit both. Prints operations a
//! second, their ratio, and a checksum of the work.
#![allow(missing_docs, clippy::disallowed_methods, clippy::disallowed_types)]

use hedgerow::{Keyspace, Options};
use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

const VALUE_BYTES: usize = 100;
const LOOKUPS: usize = 1_000_000;
const ROUNDS: usize = 5;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn timed(ops: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    ops as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// Operations a second, in millions, of `work` on the map and on the keyspace in turn; prints medians.
fn compare(name: &str, ops: usize, mut theirs: impl FnMut() -> u64, mut ours: impl FnMut() -> u64) {
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut expected, mut found) = (0, 0);
        let their_rate = timed(ops, || expected = theirs());
        let our_rate = timed(ops, || found = ours());
        assert_eq!(expected, found, "both look up the same values");
        ratios.push(our_rate / their_rate);
        rates.push(our_rate);
    }
    println!("{name}: {:.3} M/s, {:.2}x of the map (medians)", median(rates), median(ratios));
}

fn insert(keys: &[[u8; 8]], map: &mut BTreeMap<Vec<u8>, Vec<u8>>, ks: &Keyspace) {
    let mut value = [b'v'; VALUE_BYTES];
    let mut ratios = Vec::new();
    for chunk in keys.chunks(keys.len().div_ceil(ROUNDS)) {
        let theirs = timed(chunk.len(), || {
            for key in chunk {
                value[..8].copy_from_slice(key);
                map.insert(key.to_vec(), value.to_vec());
            }
        });
        let ours = timed(chunk.len(), || {
            for key in chunk {
                value[..8].copy_from_slice(key);
                ks.put(key, &value).expect("the memory suffices");
            }
        });
        println!("insert: map {theirs:.3} M/s, hedgerow {ours:.3} M/s, {:.2}x", ours / theirs);
        ratios.push(ours / theirs);
    }
    println!("insert: {:.2}x of the map (median)", median(ratios));
}

fn look_up(keys: &[[u8; 8]], at: &[u32], map: &BTreeMap<Vec<u8>, Vec<u8>>, ks: &Keyspace) {
    let theirs =
        || at.iter().map(|at| u64::from(black_box(&map[&keys[*at as usize][..]])[3])).sum();
    let get = |at: &u32| ks.get(&keys[*at as usize]).expect("no I/O").expect("it is there");
    compare("get", at.len(), theirs, || at.iter().map(|at| u64::from(black_box(get(at))[3])).sum());
    let mut out = Vec::new();
    compare("get_into", at.len(), theirs, || {
        at.iter()
            .map(|at| {
                ks.get_into(&keys[*at as usize], &mut out).expect("no I/O");
                u64::from(black_box(&out)[3])
            })
            .sum()
    });
    compare("get_many", at.len(), theirs, || {
        at.chunks(16)
            .map(|group| {
                let group: Vec<_> = group.iter().map(|at| keys[*at as usize]).collect();
                let values = ks.get_many(&group).expect("no I/O");
                values
                    .iter()
                    .map(|v| u64::from(black_box(v.as_ref().expect("there"))[3]))
                    .sum::<u64>()
            })
            .sum()
    });
}

fn scale(keys: &[[u8; 8]], at: &[u32], ks: &Keyspace, most: usize) {
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for (rates, threads) in rates.iter_mut().zip([1, most]) {
            rates.push(timed(at.len() * threads, || {
                std::thread::scope(|scope| {
                    for _ in 0..threads {
                        scope.spawn(|| {
                            for at in at {
                                black_box(ks.get(&keys[*at as usize]).expect("no I/O"));
                            }
                        });
                    }
                });
            }));
        }
    }
    let [one, many] = rates.map(median);
    println!("get: {one:.3} M/s with 1 thread, {many:.3} M/s with {most}: {:.2}x", many / one);
}

fn main() -> hedgerow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let records: usize = arguments.next().map_or(5_000_000, |n| n.parse().expect("a number"));
    let threads: usize = arguments.next().map_or(2, |n| n.parse().expect("a number"));
    let mut random = Random(42);
    let keys: Vec<[u8; 8]> = (0..records).map(|_| random.next().to_be_bytes()).collect();
    let db = Options::new().memory_limit_bytes(records as u64 * 260 + (64 << 20)).in_memory()?;
    let ks = db.keyspace("bench")?;
    let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    insert(&keys, &mut map, &ks);
    let at: Vec<u32> = (0..LOOKUPS).map(|_| (random.next() % records as u64) as u32).collect();
    look_up(&keys, &at, &map, &ks);
    drop(map);
    scale(&keys, &at, &ks, threads);
    println!("{} records", ks.count()?);
    Ok(())
}
