//! Shrinking: whatever a store went through, its file ends no longer than it began, and near to what is left in it.

use crate::common::{Dice, assert_sound, bytes, contents, effort, open, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Keyspace, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use std::ops::ControlFlow;

/// A shrunk file has so much room for the next changes, and parts of its map and zone table; so it may be longer by that.
const ROOM_BYTES: u64 = 256 << 10;

/// A workload.
#[derive(Clone, Copy, Debug)]
struct Work {
    page_bytes: usize,
    /// Beside the smallest limit.
    memory_bytes: u64,
    zone_bytes: u32,
    order: Order,
    has_large_values: bool,
    removed_percent: u64,
    seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Sorted,
    Shuffled,
}

impl Work {
    /// Keys like URLs: long, and with few first halves.
    fn keys(&self, dice: &mut Dice) -> Vec<Vec<u8>> {
        let records = 8_000 + dice.below(8_000);
        let sites = 1 + records / 60;
        let mut keys: Vec<Vec<u8>> = (0..records)
            .map(|_| {
                let (site, page) = (dice.below(sites), dice.roll());
                let long = dice.below(30) as usize;
                format!("https://site-{:x}.example.org/{:0long$}/{page:x}", site * 7919, 0).into()
            })
            .collect();
        keys.sort_unstable();
        keys.dedup();
        if self.order == Order::Shuffled {
            for at in (1..keys.len()).rev() {
                keys.swap(at, dice.below(at as u64 + 1) as usize);
            }
        }
        keys
    }

    fn value(&self, dice: &mut Dice) -> Vec<u8> {
        let len = match self.has_large_values && dice.below(40) == 0 {
            true => 2_000 + dice.below(30_000),
            false => dice.below(120),
        };
        bytes(dice, len as usize)
    }

    /// Fills a store, changes and removes some of it, and lets the file settle. Returns the bytes of what is left.
    fn carry_out(&self, db: &Database, keyspace: &Keyspace, dice: &mut Dice) -> u64 {
        let keys = self.keys(dice);
        for key in &keys {
            keyspace.put(key, &self.value(dice)).unwrap();
        }
        for _ in 0..keys.len() / 4 {
            let key = &keys[dice.below(keys.len() as u64) as usize];
            keyspace.put(key, &self.value(dice)).unwrap();
        }
        for key in &keys {
            if dice.below(100) < self.removed_percent {
                keyspace.remove(key).unwrap();
            }
        }
        for _ in 0..3 {
            db.checkpoint().unwrap();
        }
        let left = contents(db).unwrap();
        left["birds"].iter().map(|(key, value)| (key.len() + value.len()) as u64).sum()
    }
}

#[test]
fn a_file_is_no_longer_when_it_was_shrunk_and_near_what_is_left_in_it() {
    let mut dice = Dice(seed(43));
    let mut shrunk_stores = 0;
    for round in 0..effort() {
        for page_bytes in [4096, 16 << 10] {
            for order in [Order::Sorted, Order::Shuffled] {
                for memory_bytes in [1 << 20, 1 << 30] {
                    let work = Work {
                        page_bytes,
                        memory_bytes,
                        zone_bytes: if dice.below(2) == 0 { 64 << 10 } else { 2 << 20 },
                        order,
                        has_large_values: dice.below(2) == 0,
                        removed_percent: [0, 50, 80][dice.below(3) as usize],
                        seed: dice.roll(),
                    };
                    println!("round {round}: {work:?}");
                    shrink(work);
                    shrunk_stores += 1;
                }
            }
        }
    }
    count(shrunk_stores, "stores shrunk");
}

fn shrink(work: Work) {
    let mut dice = Dice(work.seed);
    let limit = hedgerow::smallest_memory_limit_bytes(work.page_bytes) + work.memory_bytes;
    let options = Options::new()
        .page_bytes(work.page_bytes)
        .memory_limit_bytes(limit)
        .zone_bytes(work.zone_bytes);
    let db = open(&options, &SimDisk::new(1), OpenHow::New).unwrap();
    let keyspace = db.keyspace("birds").unwrap();
    let payload = work.carry_out(&db, &keyspace, &mut dice);
    let before = contents(&db).unwrap();
    let shrunk = db.shrink(|_| ControlFlow::Continue(())).unwrap();
    let context = format!("{work:?}: {payload} bytes, {shrunk:?}");
    println!("{context}");
    assert!(shrunk.after_bytes <= shrunk.before_bytes + ROOM_BYTES, "longer: {context}");
    // Large values are moved by the zone, and two of those may stay in gaps.
    let zones = if work.has_large_values { 2 * u64::from(work.zone_bytes) } else { 0 };
    let most = payload as f64 * 1.4 + (2 * ROOM_BYTES + zones) as f64;
    assert!(shrunk.after_bytes as f64 <= most, "far from what is left: {context}");
    assert!(contents(&db).unwrap() == before, "{context}");
    assert_sound(&db, "shrunk");
    // A second time there is nothing to gain, and nothing is lost by it.
    let again = db.shrink(|_| ControlFlow::Continue(())).unwrap();
    assert!(again.after_bytes <= shrunk.after_bytes + ROOM_BYTES, "{context}, then {again:?}");
}
