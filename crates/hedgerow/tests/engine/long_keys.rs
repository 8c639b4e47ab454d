//! Keys up to 64 KiB: against a map, at their limits, and beside others that change the same ones.
#![allow(clippy::disallowed_methods, reason = "tests use real threads, and files of their own")]

mod views;

use crate::common::{Dice, assert_sound, bytes, effort, seed};
use hedgerow::{Cursor, Database, ErrorKind, Keyspace, Options, Records, WriteBatch};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::{AtomicBool, Ordering};

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

const PAGES: [usize; 4] = [512, 4096, 16_384, 65_536];
const LONGEST: usize = 65_536;

fn options(page_bytes: usize) -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(page_bytes) + (4 << 20);
    Options::new()
        .page_bytes(page_bytes)
        .memory_limit_bytes(limit)
        .direct_io(false)
        .background_checkpoints(false)
}

/// Keys of any length, many of which begin with the same bytes for long.
fn any_key(dice: &mut Dice, short: usize) -> Vec<u8> {
    let number = dice.below(24);
    let mut key = match dice.below(10) {
        // Short ones, up to the limit, in the midst of the heads.
        0 => bytes(dice, (number % 7) as usize),
        1 => vec![b'k'; short - (number % 3) as usize],
        2 => vec![b'k'; short / 2],
        // Many of one head, of all lengths.
        3..=5 => {
            let mut key = vec![b'k'; short + (number as usize * 97) % 300];
            key.extend_from_slice(&number.to_be_bytes());
            key
        }
        6 => vec![b'k'; short + 1 + number as usize],
        // Others that differ at the end of the head, behind it, and at the very end.
        7 => {
            let mut key = vec![b'k'; short + 50];
            key[short - 1] = number as u8;
            key
        }
        8 => {
            let len = [short + 1, 5_000, 20_000, LONGEST][(number % 4) as usize];
            let mut key = vec![b'k'; len.max(short + 1)];
            *key.last_mut().unwrap() = (number / 4) as u8;
            key
        }
        _ => vec![(number % 3) as u8; short + 1 + 997 * (number as usize % 5)],
    };
    key.truncate(LONGEST);
    key
}

fn any_value(dice: &mut Dice) -> Vec<u8> {
    let len = match dice.below(8) {
        0 => 0,
        1 => 40 + dice.below(400),
        2 => 2_000 + dice.below(3_000),
        3 if dice.below(4) == 0 => 90_000,
        _ => dice.below(30),
    };
    bytes(dice, len as usize)
}

fn owned(map: &Map) -> Vec<(Vec<u8>, Vec<u8>)> {
    map.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn assert_is(keyspace: &impl Records, map: &Map) {
    let pair = |record: hedgerow::Result<(hedgerow::Value, hedgerow::Value)>| {
        let (key, value) = record.unwrap();
        (key.into_vec(), value.into_vec())
    };
    let forward: Vec<_> = keyspace.iter().map(pair).collect();
    assert!(forward == owned(map), "{} records of {}", forward.len(), map.len());
    let mut back: Vec<_> = keyspace.iter().rev().map(pair).collect();
    back.reverse();
    assert!(back == forward, "backwards");
    let keys: Vec<_> = keyspace.iter().keys().map(|key| key.unwrap().into_vec()).collect();
    assert!(keys.iter().eq(map.keys()), "keys");
    assert_eq!(keyspace.count().unwrap(), map.len() as u64);
}

/// A range of a map, whose ends may be the wrong way round.
fn between(map: &Map, bounds: &(Bound<Vec<u8>>, Bound<Vec<u8>>)) -> Vec<(Vec<u8>, Vec<u8>)> {
    let above = |key: &Vec<u8>| match &bounds.0 {
        Bound::Included(low) => key >= low,
        Bound::Excluded(low) => key > low,
        Bound::Unbounded => true,
    };
    let below = |key: &Vec<u8>| match &bounds.1 {
        Bound::Included(high) => key <= high,
        Bound::Excluded(high) => key < high,
        Bound::Unbounded => true,
    };
    let inside = map.iter().filter(|(key, _)| above(key) && below(key));
    inside.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn any_bound(dice: &mut Dice, short: usize) -> Bound<Vec<u8>> {
    match dice.below(5) {
        0 => Bound::Unbounded,
        1 | 2 => Bound::Included(any_key(dice, short)),
        _ => Bound::Excluded(any_key(dice, short)),
    }
}

/// Ranges from both ends at once.
fn check_range(keyspace: &impl Records, map: &Map, dice: &mut Dice, short: usize) {
    let bounds = (any_bound(dice, short), any_bound(dice, short));
    let expected = between(map, &bounds);
    assert_eq!(keyspace.count_range(bounds.clone()).unwrap(), expected.len() as u64);
    let mut range = keyspace.range(bounds);
    let (mut front, mut back) = (Vec::new(), Vec::new());
    loop {
        let forward = dice.below(2) == 0;
        let next = if forward { range.next() } else { range.next_back() };
        let Some(record) = next else { break };
        let (key, value) = record.unwrap();
        let end = if forward { &mut front } else { &mut back };
        end.push((key.into_vec(), value.into_vec()));
    }
    front.extend(back.into_iter().rev());
    assert!(front == expected, "{} of {}", front.len(), expected.len());
}

/// A cursor that moves both ways beside an index into the sorted records.
fn check_cursor(cursor: &mut Cursor, map: &Map, dice: &mut Dice, short: usize) {
    let records = owned(map);
    let key = any_key(dice, short);
    cursor.seek(&key);
    let mut at = records.partition_point(|(found, _)| *found < key);
    for _ in 0..30 {
        if dice.below(3) > 0 {
            let next = cursor.next_record().unwrap().map(|(k, v)| (k.to_vec(), v.to_vec()));
            assert!(next.as_ref() == records.get(at), "next at {at} of {}", records.len());
            at = (at + 1).min(records.len());
        } else {
            let previous = cursor.previous_record().unwrap().map(|(k, v)| (k.to_vec(), v.to_vec()));
            let expected = at.checked_sub(1).map(|before| &records[before]);
            assert!(previous.as_ref() == expected, "previous at {at} of {}", records.len());
            at = at.saturating_sub(1);
        }
    }
    let (mut seen, most) = (Vec::new(), dice.below(20) as usize);
    let ended = cursor.visit(|key, value| {
        seen.push((key.to_vec(), value.to_vec()));
        if seen.len() > most { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(ended.unwrap().is_break(), records.len() - at > most);
    assert!(seen[..] == records[at..][..seen.len()], "visited");
    let mut rest = Vec::new();
    let _ = cursor
        .visit_short(|key, _| {
            rest.push(key.to_vec());
            ControlFlow::<()>::Continue(())
        })
        .unwrap();
    assert!(rest.iter().eq(records[at + seen.len()..].iter().map(|(key, _)| key)), "short");
}

fn step(db: &Database, keyspace: &Keyspace, map: &mut Map, dice: &mut Dice, short: usize) {
    let (key, value) = (any_key(dice, short), any_value(dice));
    let old = map.get(&key).cloned();
    let context = || format!("{} bytes", key.len());
    match dice.below(18) {
        0..=4 => {
            assert_eq!(keyspace.put(&key, &value).unwrap(), old.is_some(), "{}", context());
            map.insert(key, value);
        }
        5 | 6 => assert_eq!(keyspace.remove(&key).unwrap(), map.remove(&key).is_some()),
        7 => {
            assert_eq!(keyspace.insert_if_absent(&key, &value).unwrap(), old.is_none());
            map.entry(key).or_insert(value);
        }
        8 => {
            assert_eq!(keyspace.update(&key, &value).unwrap(), old.is_some());
            map.entry(key).and_modify(|old| *old = value);
        }
        9 => {
            let new = (dice.below(2) == 0).then_some(value);
            let found = keyspace.fetch_update(&key, |_| new.clone()).unwrap();
            assert!(found.as_deref() == old.as_deref(), "{}", context());
            match new {
                Some(new) => drop(map.insert(key, new)),
                None => drop(map.remove(&key)),
            }
        }
        10 => {
            let mut batch = WriteBatch::new();
            for _ in 0..dice.below(24) {
                let (key, value) = (any_key(dice, short), any_value(dice));
                if dice.below(3) == 0 {
                    batch.remove(keyspace, &key).unwrap();
                    map.remove(&key);
                } else {
                    batch.put(keyspace, &key, &value).unwrap();
                    map.insert(key, value);
                }
            }
            db.write(&batch).unwrap();
        }
        11 => {
            let mut reader = value.as_slice();
            keyspace.put_stream(&key, value.len() as u64, &mut reader).unwrap();
            map.insert(key, value);
        }
        12 if dice.below(4) == 0 => {
            let bounds = (any_bound(dice, short), any_bound(dice, short));
            let gone = between(map, &bounds);
            assert_eq!(keyspace.remove_range(bounds).unwrap(), gone.len() as u64);
            gone.iter().for_each(|(key, _)| drop(map.remove(key)));
        }
        12 => {
            let found = keyspace.pop_first().unwrap();
            let expected = map.pop_first();
            assert!(found.map(|(k, v)| (k.into_vec(), v.into_vec())) == expected, "pop_first");
        }
        13 => {
            let found = keyspace.pop_last().unwrap();
            let expected = map.pop_last();
            assert!(found.map(|(k, v)| (k.into_vec(), v.into_vec())) == expected, "pop_last");
        }
        14 => {
            assert!(keyspace.swap(&key, &value).unwrap().as_deref() == old.as_deref());
            map.insert(key, value);
        }
        15 => {
            assert!(keyspace.take(&key).unwrap().as_deref() == old.as_deref());
            map.remove(&key);
        }
        16 => {
            let [first, last] = [keyspace.first().unwrap(), keyspace.last().unwrap()];
            let ends = [map.first_key_value(), map.last_key_value()];
            for (found, expected) in [first, last].into_iter().zip(ends) {
                let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
                assert!(found.map(|(k, v)| (k.into_vec(), v.into_vec())) == expected, "ends");
            }
        }
        _ => {
            assert!(keyspace.get(&key).unwrap().as_deref() == old.as_deref(), "{}", context());
            assert_eq!(keyspace.contains_key(&key).unwrap(), old.is_some());
            let mut into = vec![1; 3];
            assert_eq!(keyspace.get_into(&key, &mut into).unwrap(), old.is_some());
            assert!(into == old.clone().unwrap_or_default());
            let length = keyspace.get_with(&key, <[u8]>::len).unwrap();
            assert_eq!(length, old.as_ref().map(Vec::len));
            let lent = keyspace.get_ref(&key).unwrap().map(|value| value.to_vec());
            assert!(lent == old);
            let part = keyspace.get_range(&key, 3..60).unwrap();
            let end =
                |value: &Vec<u8>| value.get(3..).map_or(vec![], |v| v[..v.len().min(57)].to_vec());
            assert!(part == old.as_ref().map(end), "{}", context());
            let keys = [any_key(dice, short), key, any_key(dice, short)];
            for (found, key) in keyspace.get_many(&keys).unwrap().into_iter().zip(&keys) {
                assert!(found.as_deref() == map.get(key).map(Vec::as_slice), "get_many");
            }
        }
    }
}

#[test]
fn keys_of_any_length_agree_with_a_map() {
    let mut dice = Dice(seed(4_404));
    for page_bytes in PAGES {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("urls.hrow");
        let mut map = Map::new();
        for session in 0..2 {
            let db = options(page_bytes).open_or_create(&path).unwrap();
            let keyspace = db.keyspace("urls").unwrap();
            let short = keyspace.max_short_key_bytes();
            assert_is(&keyspace, &map);
            let mut cursor = keyspace.cursor();
            for at in 0..250 * effort() {
                step(&db, &keyspace, &mut map, &mut dice, short);
                if at % 10 == 0 {
                    check_range(&keyspace, &map, &mut dice, short);
                    check_cursor(&mut cursor, &map, &mut dice, short);
                }
                if at % 100 == 0 {
                    db.checkpoint().unwrap();
                    assert_is(&keyspace, &map);
                    assert_sound(&db, "long keys");
                }
            }
            assert_is(&keyspace, &map);
            drop((cursor, keyspace));
            if session == 0 {
                // The log has the rest.
                db.sync().unwrap();
                drop(db);
            } else {
                db.close().unwrap();
            }
        }
    }
}

#[test]
fn keys_of_any_length_agree_with_a_map_in_memory_and_without_a_log() {
    let mut dice = Dice(seed(4_405));
    for page_bytes in [4096, 65_536] {
        let limit = hedgerow::smallest_memory_limit_bytes(page_bytes) + (48 << 20);
        let in_memory =
            Options::new().page_bytes(page_bytes).memory_limit_bytes(limit).in_memory().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let unlogged = options(page_bytes).log(false).create(directory.path().join("a.hrow"));
        for db in [in_memory, unlogged.unwrap()] {
            let keyspace = db.keyspace("urls").unwrap();
            let short = keyspace.max_short_key_bytes();
            let mut map = Map::new();
            for at in 0..300 * effort() {
                step(&db, &keyspace, &mut map, &mut dice, short);
                if at % 10 == 0 {
                    check_range(&keyspace, &map, &mut dice, short);
                }
            }
            assert_is(&keyspace, &map);
            assert_sound(&db, "long keys");
        }
    }
}

/// One below, at, and one above each limit; a longer one is refused by every call, and changes nothing.
#[test]
fn keys_at_the_limits() {
    for page_bytes in PAGES {
        let directory = tempfile::tempdir().unwrap();
        let db = options(page_bytes).create(directory.path().join("urls.hrow")).unwrap();
        let keyspace = db.keyspace("urls").unwrap();
        assert_eq!(keyspace.max_key_bytes(), LONGEST);
        let (short, record) = (keyspace.max_short_key_bytes(), keyspace.max_record_bytes());
        let mut map = Map::new();
        for limit in [short, short + 6, record, 32 << 10, LONGEST - 1] {
            for len in limit - 1..=limit + 1 {
                for last in 0..3 {
                    let mut key = vec![b'k'; len];
                    key[len - 1] = last;
                    assert!(!keyspace.put(&key, &[last; 9]).unwrap(), "{len}");
                    map.insert(key, vec![last; 9]);
                }
            }
        }
        assert_is(&keyspace, &map);
        let too_long = vec![b'k'; LONGEST + 1];
        let mut batch = WriteBatch::new();
        let refusals = [
            keyspace.put(&too_long, b"").map(drop),
            keyspace.insert_if_absent(&too_long, b"").map(drop),
            keyspace.update(&too_long, b"").map(drop),
            keyspace.compare_and_swap(&too_long, None, Some(b"")).map(drop),
            keyspace.remove(&too_long).map(drop),
            keyspace.value_writer(&too_long, 9).map(drop),
            keyspace.value_writer(&too_long, 900_000).map(drop),
            keyspace.fetch_add(&too_long, 1).map(drop),
            batch.put(&keyspace, &too_long, b""),
            batch.remove(&keyspace, &too_long),
            db.keyspace("other").unwrap().bulk_load([(&too_long, b"")], 100).map(drop),
        ];
        for (at, refused) in refusals.into_iter().enumerate() {
            let kind = refused.unwrap_err().kind();
            let expected = ErrorKind::KeyTooLong { len_bytes: LONGEST + 1, max_bytes: LONGEST };
            assert_eq!(kind, expected, "{at}");
        }
        // Looking for one is no error, and one as a bound is good.
        assert!(keyspace.get(&too_long).unwrap().is_none());
        assert!(!keyspace.contains_key(&too_long).unwrap());
        let behind = map.range(too_long.clone()..).count();
        assert_eq!(keyspace.range(too_long..).count(), behind);
        assert_is(&keyspace, &map);
        assert_sound(&db, "keys at the limits");
    }
}

/// Keys that come in order between two others use up their labels, and records have to move.
#[test]
fn runs_of_keys_between_two_others_make_records_move() {
    let mut dice = Dice(seed(4_406));
    for (page_bytes, filler) in [(512, 10), (4096, 10), (4096, 3_000)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("urls.hrow");
        let db = options(page_bytes).background_checkpoints(true).create(&path).unwrap();
        let keyspace = db.keyspace("urls").unwrap();
        let mut map = Map::new();
        let key = |number: u32| {
            let mut key = vec![b'k'; keyspace.max_short_key_bytes() + filler];
            key.extend_from_slice(&number.to_be_bytes());
            key
        };
        let mut put = |number: u32| {
            let value = number.to_le_bytes();
            assert!(!keyspace.put(&key(number), &value).unwrap(), "{number}");
            map.insert(key(number), value.to_vec());
        };
        put(0);
        put(1_000_000);
        // Up, down, and towards a place between; the last takes one bit of the gap for each.
        (1..200).for_each(|number| put(1_000 + number));
        (1..200).for_each(|number| put(900_000 - number));
        (1..100).for_each(|number| {
            put(500_000 - 1_000 + number);
            put(500_000 + 1_000 - number);
        });
        // Cursors that are under way, one in each direction, see what was there all the time, once and in order.
        let before: Vec<_> = map.keys().cloned().collect();
        let (mut up, mut down) = (keyspace.cursor(), keyspace.cursor());
        down.seek_to_end();
        let (mut seen_up, mut seen_down) = (Vec::new(), Vec::new());
        let mut number = 600_000;
        let mut left = [true; 2];
        while left.contains(&true) {
            if dice.below(3) == 0 && number < 600_150 {
                number += 1;
                assert!(!keyspace.put(&key(number), b"").unwrap());
                map.insert(key(number), Vec::new());
            }
            if let Some((key, _)) = up.next_record().unwrap() {
                seen_up.push(key.to_vec());
            } else {
                left[0] = false;
            }
            match down.previous_record().unwrap() {
                Some((key, _)) => seen_down.push(key.to_vec()),
                None => left[1] = false,
            }
        }
        seen_down.reverse();
        for seen in [seen_up, seen_down] {
            assert!(seen.is_sorted_by(|a, b| a < b));
            assert!(before.iter().all(|key| seen.binary_search(key).is_ok()));
            assert!(seen.iter().all(|key| map.contains_key(key)));
        }
        assert_is(&keyspace, &map);
        assert_sound(&db, "records that moved");
        drop((up, down, keyspace));
        drop(db);
        let db = options(page_bytes).open(&path).unwrap();
        assert_is(&db.keyspace("urls").unwrap(), &map);
        assert_sound(&db, "records that moved, recovered");
    }
}

#[test]
fn a_bulk_load_takes_long_keys_in_order_and_nothing_else() {
    let mut dice = Dice(seed(4_407));
    for page_bytes in PAGES {
        let directory = tempfile::tempdir().unwrap();
        let db = options(page_bytes).create(directory.path().join("urls.hrow")).unwrap();
        let keyspace = db.keyspace("urls").unwrap();
        let short = keyspace.max_short_key_bytes();
        let mut map: Map =
            (0..300).map(|_| (any_key(&mut dice, short), any_value(&mut dice))).collect();
        assert_eq!(keyspace.bulk_load(owned(&map), 90).unwrap(), map.len() as u64);
        assert_is(&keyspace, &map);
        // The result is a keyspace like any other.
        for _ in 0..100 {
            step(&db, &keyspace, &mut map, &mut dice, short);
        }
        assert_is(&keyspace, &map);
        assert_sound(&db, "a load of long keys");
        let [a, b] = [1, 2].map(|last| [&vec![b'k'; short + 10][..], &[last]].concat());
        for unsorted in [[&b, &a], [&a, &a]] {
            let other = db.keyspace("other").unwrap();
            let refused = other.bulk_load(unsorted.map(|key| (key, b"")), 100).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotSorted);
            assert_eq!(other.count().unwrap(), 0);
        }
    }
}

/// What stays is found all the time, by gets and by scans both ways, while others come and go between, and records move; and no range
/// removal takes more than its range.
/// Whoever looks one up compares rests that lie in extents. To find these, it reads pages of the tree while it goes down the tree: with a place in the pool
/// for each, threads would wait for each other.
#[test]
fn threads_that_look_long_keys_up_in_the_smallest_pool_do_not_wait_for_each_other() {
    let limit = hedgerow::smallest_memory_limit_bytes(4096) + (128 << 10);
    let db = Options::new().memory_limit_bytes(limit).direct_io(false).temporary().unwrap();
    let keyspace = db.keyspace("k").unwrap();
    let key = |bucket: u64, number: u64| {
        let mut key = vec![bucket as u8; 5_000];
        key.extend(number.to_be_bytes());
        key
    };
    const BUCKETS: u64 = 8;
    const KEYS: u64 = 64;
    for number in 0..KEYS {
        for bucket in 0..BUCKETS {
            keyspace.put(&key(bucket, number * 7 % KEYS), &number.to_be_bytes()).unwrap();
        }
    }
    std::thread::scope(|scope| {
        for bucket in 0..BUCKETS {
            let keyspace = &keyspace;
            scope.spawn(move || {
                for turn in 0..20 * effort() {
                    let number = turn * 29 % KEYS;
                    let found = keyspace.get(&key(bucket, number * 7 % KEYS)).unwrap().unwrap();
                    assert_eq!(*found, number.to_be_bytes());
                    assert_eq!(keyspace.get(&key(bucket, KEYS + number)).unwrap(), None);
                }
            });
        }
    });
    assert_sound(&db, "after all look-ups");
}

#[test]
fn keys_that_stay_are_there_while_others_make_records_move() {
    let seed = seed(4_408);
    let db = options(512).background_checkpoints(true).temporary().unwrap();
    let keyspace = db.keyspace("urls").unwrap();
    let key = |place: u64, number: u64| {
        let mut key = vec![b'k'; keyspace.max_short_key_bytes() + 20];
        key.extend([place, number].map(u64::to_be_bytes).concat());
        // Some lie in extents.
        key.resize(key.len() + if number % 5 == 4 { 400 } else { 0 }, b'.');
        key
    };
    const PLACES: u64 = 8;
    let stays: Vec<Vec<u8>> = (0..=PLACES).map(|place| key(place, 0)).collect();
    for key in stays.iter().rev() {
        keyspace.put(key, b"stays").unwrap();
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let mut writers = Vec::new();
        for thread in 0..2 {
            let (keyspace, db, key) = (keyspace.clone(), &db, &key);
            writers.push(scope.spawn(move || {
                let mut dice = Dice(seed ^ thread);
                for turn in 0..30 * effort() {
                    let place = dice.below(PLACES);
                    // Towards the one before: each takes a bit.
                    for number in (1..60).rev() {
                        keyspace.put(&key(place, 1_000 * thread + number), b"goes").unwrap();
                    }
                    if turn % 3 == 0 {
                        let mut batch = WriteBatch::new();
                        for number in 100..120 {
                            batch
                                .put(&keyspace, &key(place, 1_000 * thread + number), b"")
                                .unwrap();
                        }
                        db.write(&batch).unwrap();
                    }
                    let between =
                        (Bound::Excluded(key(place, 0)), Bound::Excluded(key(place + 1, 0)));
                    keyspace.remove_range(between).unwrap();
                }
            }));
        }
        for thread in 0..2 {
            let (keyspace, stays, is_over) = (keyspace.clone(), &stays, &is_over);
            scope.spawn(move || {
                let mut dice = Dice(seed ^ (77 + thread));
                let mut looks = 0;
                while !is_over.load(Ordering::Relaxed) || looks < 20 {
                    looks += 1;
                    let key = &stays[dice.below(stays.len() as u64) as usize];
                    assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&b"stays"[..]));
                    if dice.below(8) == 0 {
                        let mut seen: Vec<Vec<u8>> = match dice.below(2) {
                            0 => {
                                keyspace.iter().keys().map(|key| key.unwrap().into_vec()).collect()
                            }
                            _ => {
                                let mut all: Vec<_> = keyspace
                                    .iter()
                                    .rev()
                                    .map(|r| r.unwrap().0.into_vec())
                                    .collect();
                                all.reverse();
                                all
                            }
                        };
                        assert!(seen.is_sorted_by(|a, b| a < b), "out of order");
                        seen.retain(|key| stays.binary_search(key).is_ok());
                        assert!(seen == *stays, "{} of {}", seen.len(), stays.len());
                        assert!(keyspace.count().unwrap() >= stays.len() as u64);
                    }
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let left: Vec<_> = keyspace.iter().keys().map(|key| key.unwrap().into_vec()).collect();
    assert!(left == stays, "{} are left", left.len());
    assert_sound(&db, "after moves beside readers");
}

/// Each record is popped once, also one that moves meanwhile.
#[test]
fn each_record_is_popped_once_while_records_move() {
    let db = options(512).background_checkpoints(true).temporary().unwrap();
    let keyspace = db.keyspace("urls").unwrap();
    let key = |number: u64| {
        let mut key = vec![b'k'; keyspace.max_short_key_bytes() + 20];
        key.extend(number.to_be_bytes());
        key
    };
    const COUNT: u64 = 400;
    keyspace.put(&key(COUNT + 1), b"last").unwrap();
    let popped = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            (1..=COUNT).rev().for_each(|n| assert!(!keyspace.put(&key(n), b"").unwrap()))
        });
        let popper = scope.spawn(|| {
            let mut popped = Vec::new();
            while popped.len() as u64 <= COUNT {
                if let Some((key, _)) = keyspace.pop_last().unwrap() {
                    popped.push(key.into_vec());
                }
            }
            popped
        });
        writer.join().unwrap();
        popper.join().unwrap()
    });
    let mut sorted = popped.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len() as u64, COUNT + 1);
    assert_eq!(keyspace.count().unwrap(), 0);
}

#[test]
fn threads_that_put_keys_with_one_head_give_each_a_record_of_its_own() {
    const THREADS: u64 = 4;
    const COUNT: u64 = 300;
    let db = options(512).background_checkpoints(true).temporary().unwrap();
    let keyspace = db.keyspace("urls").unwrap();
    let key = |number: u64| {
        let mut key = vec![b'k'; keyspace.max_short_key_bytes() + 20];
        key.extend(number.to_be_bytes());
        key
    };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (keyspace, key) = (keyspace.clone(), &key);
            scope.spawn(move || {
                for number in 0..COUNT {
                    // All put behind the last one, so that two that look at once find the same gap.
                    let number = number * THREADS + thread;
                    assert!(!keyspace.put(&key(number), &number.to_le_bytes()).unwrap());
                }
            });
        }
    });
    for number in 0..COUNT * THREADS {
        let value = keyspace.get(&key(number)).unwrap();
        assert_eq!(value.as_deref(), Some(&number.to_le_bytes()[..]), "{number}");
    }
    assert_eq!(keyspace.count().unwrap(), COUNT * THREADS);
    assert_sound(&db, "keys that many threads put");
}

#[test]
fn long_keys_are_backed_up_salvaged_compacted_and_renamed() {
    let mut dice = Dice(seed(4_409));
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let db = options(4096).create(path("urls.hrow")).unwrap();
    let keyspace = db.keyspace("urls").unwrap();
    let short = keyspace.max_short_key_bytes();
    let mut map = Map::new();
    for at in 0..400 {
        step(&db, &keyspace, &mut map, &mut dice, short);
        if at == 200 {
            db.shrink(|_| ControlFlow::Continue(())).unwrap();
        }
    }
    db.rename_keyspace("urls", "links").unwrap();
    assert_is(&db.keyspace("links").unwrap(), &map);
    let _ = db.backup(path("backup.hrow"), |_| ControlFlow::Continue(())).unwrap();
    let repaired = options(4096)
        .repair(path("backup.hrow"), path("repaired.hrow"), |_| ControlFlow::Continue(()));
    assert!(repaired.unwrap().is_clean());
    for name in ["backup.hrow", "repaired.hrow"] {
        let copy = options(4096).open(path(name)).unwrap();
        let keyspace = copy.keyspace("links").unwrap();
        assert_is(&keyspace, &map);
        let mut map = map.clone();
        for _ in 0..50 {
            step(&copy, &keyspace, &mut map, &mut dice, short);
        }
        assert_is(&keyspace, &map);
        assert_sound(&copy, name);
    }
    assert_sound(&db, "a store that was copied");
}
