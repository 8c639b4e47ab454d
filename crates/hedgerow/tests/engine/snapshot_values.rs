//! Large values beside snapshots that are held: each sees its own, and the file keeps no others for it.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{Dice, assert_sound, effort, open, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Keyspace, Options, Snapshot};
use hedgerow_testing::{SimDisk, count};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// With little memory, so that values are read from the file: where another one lies by then, its checksum does not fit.
fn some_store(log: bool, dice: &mut Dice) -> (SimDisk, Database) {
    let disk = SimDisk::new(dice.roll());
    let options = Options::new().page_bytes(4096).memory_limit_bytes(2 << 20).log(log);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    (disk, db)
}

/// Says which one it is at its beginning.
fn value(n: u64, round: u64, len: usize) -> Vec<u8> {
    let mut value = vec![n as u8 ^ round as u8; len];
    value[..8].copy_from_slice(&n.to_be_bytes());
    value[8..16].copy_from_slice(&round.to_be_bytes());
    value
}

fn put_all(wrens: &Keyspace, count: u64, round: u64) {
    for n in 0..count {
        wrens.put(&n.to_be_bytes(), &value(n, round, 4000)).unwrap();
    }
}

#[test]
fn a_held_snapshot_keeps_the_values_of_its_moment_and_no_later_ones() {
    const KEYS: u64 = 256;
    let mut dice = Dice(seed(711));
    for log in [true, false] {
        let (_disk, db) = some_store(log, &mut dice);
        let wrens = db.keyspace("wrens").unwrap();
        let mut held = Vec::new();
        for round in 0..60 {
            put_all(&wrens, KEYS, round);
            if round == 0 || round == 20 {
                held.push((round, db.snapshot().unwrap()));
            }
            db.checkpoint().unwrap();
        }
        // Those that two snapshots see, those of now, and those that wait for a checkpoint.
        let most = (2 + 1 + 3) * KEYS * 4096 + (2 << 20);
        let bytes = db.space_report().unwrap().file_bytes;
        assert!(bytes < most, "{bytes} bytes of {most}");
        for (round, snapshot) in held {
            let seen = snapshot.keyspace(&wrens).unwrap();
            for n in 0..KEYS {
                let found = seen.get(&n.to_be_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(&value(n, round, 4000)[..]));
            }
        }
        for _ in 0..4 {
            db.checkpoint().unwrap();
        }
        assert_sound(&db, "snapshots ended");
        let used = db.space_report().unwrap().used_bytes;
        assert!(used < KEYS * 4096 + (1 << 20), "{used} bytes when no snapshot is left");
    }
}

#[test]
fn snapshots_that_come_and_go_see_their_values_whatever_replaces_them() {
    const KEYS: u64 = 24;
    let mut dice = Dice(seed(712));
    let mut checked = 0;
    for turn in 0..4 * effort() {
        let (_disk, db) = some_store(turn % 2 == 0, &mut dice);
        let wrens = db.keyspace("wrens").unwrap();
        let mut now = BTreeMap::new();
        let mut held: Vec<(Snapshot, BTreeMap<u64, Vec<u8>>)> = Vec::new();
        for round in 0..1500 {
            let n = dice.below(KEYS);
            match dice.below(40) {
                0 | 1 if held.len() < 6 => held.push((db.snapshot().unwrap(), now.clone())),
                2 | 3 if !held.is_empty() => {
                    let at = dice.below(held.len() as u64) as usize;
                    let (snapshot, then) = held.swap_remove(at);
                    let seen = snapshot.keyspace(&wrens).unwrap();
                    for n in 0..KEYS {
                        let found = seen.get(&n.to_be_bytes()).unwrap();
                        assert_eq!(found.as_deref(), then.get(&n).map(Vec::as_slice));
                        checked += 1;
                    }
                }
                4..9 => db.checkpoint().unwrap(),
                9 | 10 => {
                    wrens.remove(&n.to_be_bytes()).unwrap();
                    now.remove(&n);
                }
                11 => drop(db.shrink(|_| ControlFlow::Continue(())).unwrap()),
                _ => {
                    let len = [20, 1000, 2500, 5000, 40_000][dice.below(5) as usize];
                    let value = value(n, round, len);
                    wrens.put(&n.to_be_bytes(), &value).unwrap();
                    now.insert(n, value);
                }
            }
        }
        drop(held);
        assert_sound(&db, &format!("turn {turn}"));
    }
    count(checked, "values that a snapshot saw");
    assert!(checked > 500, "{checked}");
}

/// Writers, and whoever takes checkpoints, beside snapshots: each shows the same value twice, and no older one than it has to.
#[test]
fn snapshots_see_one_value_of_each_record_beside_writers_and_checkpoints() {
    const KEYS: u64 = 32;
    let mut dice = Dice(seed(713));
    let (_disk, db) = some_store(true, &mut dice);
    let wrens = db.keyspace("wrens").unwrap();
    put_all(&wrens, KEYS, 0);
    let ends = AtomicBool::new(false);
    let mut checked = 0;
    std::thread::scope(|threads| {
        let (db, ends) = (&db, &ends);
        for writer in 0..2 {
            let wrens = wrens.clone();
            threads.spawn(move || {
                for round in 1.. {
                    for n in (writer..KEYS).step_by(2) {
                        let value = value(n, round, 2500 + 100 * n as usize);
                        wrens.put(&n.to_be_bytes(), &value).unwrap();
                    }
                    if ends.load(Relaxed) {
                        return;
                    }
                }
            });
        }
        threads.spawn(move || {
            while !ends.load(Relaxed) {
                db.checkpoint().unwrap();
            }
        });
        let round_of = |value: &[u8]| u64::from_be_bytes(value[8..16].try_into().unwrap());
        let mut held: Vec<(Snapshot, Vec<u64>)> = Vec::new();
        for _ in 0..60 * effort() {
            let snapshot = db.snapshot().unwrap();
            let look = |snapshot: &Snapshot| -> Vec<u64> {
                let seen = snapshot.keyspace(&wrens).unwrap();
                let read = |n: u64| {
                    let found = seen.get(&n.to_be_bytes()).unwrap().unwrap();
                    let round = round_of(&found);
                    let len = if round == 0 { 4000 } else { 2500 + 100 * n as usize };
                    assert_eq!(found.as_bytes(), value(n, round, len));
                    round
                };
                (0..KEYS).map(read).collect()
            };
            let seen = look(&snapshot);
            if let Some((_, before)) = held.last() {
                assert!(seen.iter().zip(before).all(|(now, before)| now >= before));
            }
            held.push((snapshot, seen));
            if held.len() > 4 {
                let at = dice.below(4) as usize;
                let (snapshot, seen) = held.remove(at);
                assert_eq!(look(&snapshot), seen);
                checked += KEYS;
            }
        }
        ends.store(true, Relaxed);
    });
    count(checked, "values that a snapshot saw twice");
    assert_sound(&db, "writers ended");
}
