//! Leaves that readers convert and sort, on a pool an eighth as large as the data: beside a writer,
//! evictions and checkpoints, whose images must hold the same records whatever layout they are in.
//!
//! Every value names its key, so that a reader knows whether it has read the truth; what must be there is
//! known of all keys but those that the writer is at.
#![allow(clippy::disallowed_methods, reason = "tests use real threads")]

use crate::common::{Dice, Records, assert_sound, seed};
use hedgerow::{Database, Keyspace, Options, smallest_memory_limit_bytes};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

const PAGE_BYTES: usize = 1024;
const URLS: u64 = 4_500;
const READERS: u64 = 3;
/// Neighbours in the order of keys that stay in memory: a leaf that leaves it forgets how it was used.
const HOT: usize = 120;
const ROUNDS: u64 = 4;

fn url(n: u64) -> Vec<u8> {
    let site =
        ["https://www.example.org/", "https://example.com/archive/", "http://forum.example/"];
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let site = site[(mixed >> 62) as usize % 3];
    let (part, name) = (mixed >> 58 & 7, mixed >> 30 & 0xff_ffff);
    format!("{site}{part}/articles/{name:06x}/with-its-title-{n}").into_bytes()
}

fn value_of(key: &[u8], generation: u64) -> Vec<u8> {
    let mut value = generation.to_be_bytes().to_vec();
    value.extend_from_slice(key);
    value.resize(value.len() + (generation % 20) as usize, generation as u8);
    value
}

fn check_value(key: &[u8], value: &[u8]) {
    let generation = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, value_of(key, generation), "the value of another key, or a torn one");
}

/// Whether the writer changes a key; all others stay.
fn is_writers(at: usize) -> bool {
    at.is_multiple_of(3)
}

fn options() -> Options {
    Options::new()
        .page_bytes(PAGE_BYTES)
        .memory_limit_bytes(smallest_memory_limit_bytes(PAGE_BYTES))
        .checkpoint_bytes(64 << 10)
        .direct_io(false)
}

/// Looks up, or scans from, hot keys mostly, and any other now and then, which evicts.
fn read(keyspace: &Keyspace, keys: &[Vec<u8>], hot: usize, scans: bool, dice: &mut Dice) {
    for step in 0..if scans { 600 } else { 15_000 } {
        let near = hot + dice.below(HOT as u64) as usize;
        let at = if step % 8 == 7 { dice.below(keys.len() as u64) as usize } else { near };
        if !scans {
            let found = keyspace.get(&keys[at]).unwrap();
            assert!(found.is_some() || is_writers(at), "{}", keys[at].escape_ascii());
            found.iter().for_each(|value| check_value(&keys[at], value));
            continue;
        }
        let forward = dice.below(2) == 0;
        let mut cursor = keyspace.cursor();
        cursor.seek(&keys[at]);
        let mut last = keys[at].clone();
        for _ in 0..HOT / 2 {
            let record = if forward { cursor.next_record() } else { cursor.previous_record() };
            let Some((key, value)) = record.unwrap() else { break };
            check_value(key, value);
            assert!(if forward { *key >= *last } else { *key < *last }, "out of order");
            last = key.to_vec();
        }
        // Of those that stay, the scan has met all between its ends: the next one is met in turn.
        let end = keys.partition_point(|key| *key < last);
        assert!(end.abs_diff(at) + 1 >= HOT / 2 || end <= 1 || end + 2 >= keys.len());
    }
}

/// Changes records of the writer's, hot ones every other time.
fn write(
    keyspace: &Keyspace,
    keys: &[Vec<u8>],
    hot: usize,
    model: &mut Records,
    dice: &mut Dice,
    readers_left: &AtomicBool,
) {
    let mut generation = 0;
    while readers_left.load(SeqCst) || generation < 500 {
        generation += 1;
        let near = hot + dice.below(HOT as u64) as usize;
        let any = dice.below(keys.len() as u64) as usize;
        let at = if dice.below(2) == 0 { near } else { any };
        if !is_writers(at) {
            continue;
        }
        let key = &keys[at];
        if dice.below(3) == 0 {
            assert_eq!(keyspace.remove(key).unwrap(), model.remove(key).is_some());
        } else {
            let value = value_of(key, generation);
            let was_there = model.insert(key.clone(), value.clone()).is_some();
            assert_eq!(keyspace.put(key, &value).unwrap(), was_there);
        }
    }
}

#[track_caller]
fn assert_holds(db: &Database, keyspace: &Keyspace, model: &Records) {
    assert_sound(db, "nobody uses it");
    let found: Records = keyspace
        .iter()
        .map(|record| record.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap())
        .collect();
    assert!(found == *model, "the records are not what was put");
}

#[test]
fn leaves_that_readers_convert_and_sort_are_evicted_and_written_whole() {
    let seed = seed(hedgerow_sync::primitive::random::seed());
    let mut dice = Dice(seed);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("urls.hrow");
    let db = options().create(&path).unwrap();
    let keyspace = db.keyspace("urls").unwrap();
    let mut model = Records::new();
    for key in (0..URLS).map(url) {
        let value = value_of(&key, 1);
        assert!(!keyspace.put(&key, &value).unwrap());
        model.insert(key, value);
    }
    let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
    let pages = keyspace.stats().unwrap().pages();
    let frames = db.stats().unwrap().memory.frames_bytes / PAGE_BYTES as u64;
    assert!(pages > 8 * frames, "{pages} pages on {frames} frames");
    let before = db.stats().unwrap();
    for round in 0..ROUNDS {
        let hot = dice.below(URLS - HOT as u64) as usize;
        let readers_left = AtomicBool::new(true);
        thread::scope(|scope| {
            let (keyspace, keys, db, left) = (&keyspace, &keys, &db, &readers_left);
            let (model, mut own) = (&mut model, Dice(dice.roll()));
            scope.spawn(move || write(keyspace, keys, hot, model, &mut own, left));
            scope.spawn(move || {
                while left.load(SeqCst) {
                    db.checkpoint().unwrap();
                }
            });
            // Ends the others, should a reader fail as well.
            struct Ended<'l>(&'l AtomicBool);
            impl Drop for Ended<'_> {
                fn drop(&mut self) {
                    self.0.store(false, SeqCst);
                }
            }
            let _ended = Ended(left);
            let readers: Vec<_> = (0..READERS)
                .map(|_| {
                    let mut own = Dice(dice.roll());
                    scope.spawn(move || {
                        read(keyspace, keys, hot, true, &mut own);
                        read(keyspace, keys, hot, false, &mut own);
                    })
                })
                .collect();
            for reader in readers {
                reader.join().expect("a reader has failed");
            }
        });
        assert_holds(&db, &keyspace, &model);
        println!("after round {round}: {:?}", db.stats().unwrap().adaptation);
    }
    let stats = db.stats().unwrap();
    let (done, was) = (&stats.adaptation, &before.adaptation);
    assert!(done.for_scans > was.for_scans, "{done:?}");
    assert!(done.for_points > was.for_points, "{done:?}");
    assert!(done.sorted > was.sorted, "{done:?}");
    assert!(stats.checkpoint > before.checkpoint + ROUNDS, "{stats:?}");
    assert!(stats.pool.evictions > before.pool.evictions + pages, "{stats:?}");
    drop(keyspace);
    db.close().unwrap();

    let db = options().open(&path).unwrap();
    let keyspace = db.open_keyspace("urls").unwrap().unwrap();
    assert_holds(&db, &keyspace, &model);
    db.close().unwrap();
}
