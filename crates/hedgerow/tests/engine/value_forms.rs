//! Values of every size that grow and shrink through all forms, in files: beside readers, cursors, streams and
//! checkpoints, with pages of 512 bytes to 64 KiB, and with as little memory as there may be.
#![allow(clippy::disallowed_methods, reason = "a test with threads and files of its own")]

use crate::common::lengths::{Lengths, content};
use crate::common::{Dice, Records, assert_sound, get, key, seed};
use hedgerow::{CompareAndSwap, Database, Keyspace, Options, WriteBatch};
use std::io::Read;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn options(page_bytes: usize, limit_bytes: u64) -> Options {
    Options::new()
        .page_bytes(page_bytes)
        .memory_limit_bytes(limit_bytes)
        // Pages of less than a block of the disk.
        .direct_io(false)
        .background_checkpoints(false)
}

struct Store {
    directory: tempfile::TempDir,
    options: Options,
    db: Database,
}

impl Store {
    fn new(options: Options) -> Store {
        let directory = tempfile::tempdir().unwrap();
        let db = options.clone().create(directory.path().join("birds.hrow")).unwrap();
        Store { directory, options, db }
    }

    /// Opens it again, after a close or as its last handle leaves it.
    fn again(self, close: bool) -> Store {
        let Store { directory, options, db } = self;
        match close {
            true => db.close().unwrap(),
            false => drop(db),
        }
        let db = options.clone().open(directory.path().join("birds.hrow")).unwrap();
        Store { directory, options, db }
    }
}

/// Reads everything in every way, and compares it.
fn assert_is(keyspace: &Keyspace, records: &Records, dice: &mut Dice) {
    let mut expected = records.iter();
    let mut forward = keyspace.cursor();
    let mut backward = keyspace.cursor();
    backward.seek_to_end();
    for (key, value) in records {
        let next = forward.next_record().unwrap().expect("there is a record");
        assert!(next == (key.as_slice(), value.as_slice()), "{key:?} of {}", value.len());
    }
    assert!(forward.next_record().unwrap().is_none());
    for (key, value) in records.iter().rev() {
        let next = backward.previous_record().unwrap().expect("there is a record");
        assert!(next == (key.as_slice(), value.as_slice()), "{key:?} of {}", value.len());
    }
    let ended = keyspace.cursor().visit(|key, value| {
        let next = expected.next().expect("there is a record");
        assert!(next.0.as_slice() == key && next.1.as_slice() == value, "{key:?}");
        ControlFlow::<()>::Continue(())
    });
    assert!(ended.unwrap().is_continue() && expected.next().is_none());
    for (key, value) in records {
        assert!(get(keyspace, key).as_ref() == Some(value), "{key:?} of {}", value.len());
        let from = dice.below(value.len() as u64 + 1);
        let end = from + dice.below(100_000);
        let range = from as usize..value.len().min(end as usize);
        let part = keyspace.get_range(key, from..end).unwrap().unwrap();
        assert!(part == value[range.start..range.end.max(range.start)], "{range:?} of {key:?}");
    }
}

/// One change of one record, made in one of the ways there are.
fn change(
    keyspace: &Keyspace,
    db: &Database,
    records: &mut Records,
    key: &[u8],
    value: Vec<u8>,
    how: u64,
) {
    let was_there = records.get(key).cloned();
    match how {
        0 => assert_eq!(keyspace.remove(key).unwrap(), records.remove(key).is_some()),
        1 => {
            let swapped =
                keyspace.compare_and_swap(key, was_there.as_deref(), Some(&value)).unwrap();
            assert_eq!(swapped, CompareAndSwap::Swapped);
            if let Some(was_there) = was_there.filter(|old| *old != value) {
                let differs = keyspace.compare_and_swap(key, Some(&was_there), None).unwrap();
                let CompareAndSwap::Differs(Some(found)) = differs else { panic!("{differs:?}") };
                assert!(found.as_bytes() == value);
            }
        }
        2 => {
            let len = value.len() as u64;
            assert_eq!(
                keyspace.put_stream(key, len, &mut &value[..]).unwrap(),
                was_there.is_some()
            );
        }
        3 => {
            let mut batch = WriteBatch::new();
            // The second one counts.
            batch.put(keyspace, key, &value[..value.len() / 2]).unwrap();
            batch.put(keyspace, key, &value).unwrap();
            db.write(&batch).unwrap();
        }
        _ => assert_eq!(keyspace.put(key, &value).unwrap(), was_there.is_some()),
    }
    if how != 0 {
        records.insert(key.to_vec(), value);
    }
}

fn agrees_with_a_map(page_bytes: usize, limit_bytes: u64, most: usize, steps: u64) {
    let mut dice = Dice(seed(page_bytes as u64 ^ limit_bytes));
    let mut store = Store::new(options(page_bytes, limit_bytes));
    let mut records = Records::new();
    for round in 0..4 {
        let keyspace = store.db.keyspace("songs").unwrap();
        let lengths = Lengths::new(&keyspace, page_bytes, limit_bytes, most);
        for step in 0..steps {
            // Readers and cursors that stand in the middle of it.
            let at = key(dice.below(24));
            let open = keyspace.value_reader(&at).unwrap().zip(records.get(&at).cloned());
            let mut cursor = keyspace.cursor();
            cursor.seek(&key(12));
            cursor.next_record().unwrap();
            let key = key(dice.below(24));
            let before = records.get(&key).cloned();
            let value = content(&key, round * steps + step, lengths.draw(&mut dice));
            change(&keyspace, &store.db, &mut records, &key, value, dice.below(9));
            if let Some((mut reader, before)) = open {
                let mut found = Vec::new();
                reader.read_to_end(&mut found).unwrap();
                assert!(found == before, "an open value has changed: {at:?} of {}", before.len());
            }
            while let Some((found, value)) = cursor.next_record().unwrap() {
                // The cursor may have read its leaf before the change.
                let is_now = records.get(found).is_some_and(|now| now == value);
                let was_before = found == key && before.as_deref() == Some(value);
                assert!(is_now || was_before, "{found:?} of {}", value.len());
                if dice.below(3) == 0 {
                    break;
                }
            }
            if dice.below(30) == 0 {
                store.db.checkpoint().unwrap();
            }
        }
        assert_is(&keyspace, &records, &mut dice);
        assert_sound(&store.db, "values of all forms");
        let memory = store.db.stats().unwrap().memory;
        assert!(memory.set_aside_bytes() <= memory.limit_bytes, "{memory:?}");
        drop(keyspace);
        store = store.again(round % 2 == 0);
        let keyspace = store.db.keyspace("songs").unwrap();
        assert_is(&keyspace, &records, &mut dice);
        assert_sound(&store.db, "values of all forms, opened again");
    }
    let keyspace = store.db.keyspace("songs").unwrap();
    assert_eq!(keyspace.remove_range(..).unwrap(), records.len() as u64);
    for _ in 0..3 {
        store.db.checkpoint().unwrap();
    }
    let space = store.db.space_report().unwrap();
    assert_eq!(space.accounted_bytes(), space.file_bytes);
    // The catalogue, an empty leaf, and the store's own tables.
    assert!(space.used_bytes < 64 * page_bytes.max(4096) as u64, "{space:?}");
}

#[test]
fn values_of_every_size_agree_with_a_map() {
    agrees_with_a_map(4096, 8 << 20, 1 << 20, 250);
}

#[test]
fn values_of_every_size_agree_with_a_map_in_pages_of_512_bytes() {
    agrees_with_a_map(512, 4 << 20, 140_000, 250);
}

#[test]
fn values_of_every_size_agree_with_a_map_in_pages_of_64_kib() {
    agrees_with_a_map(65_536, 32 << 20, 1 << 20, 120);
}

/// Values of many times the limit.
#[test]
fn values_longer_than_all_of_the_memory_agree_with_a_map() {
    for page_bytes in [512, 4096] {
        let limit = hedgerow::smallest_memory_limit_bytes(page_bytes) + (128 << 10);
        agrees_with_a_map(page_bytes, limit, 3 * limit as usize, 60);
    }
}

/// From each length at a limit to each other one.
#[test]
fn a_value_goes_from_every_form_to_every_other_one() {
    let limit = 4 << 20;
    let mut store = Store::new(options(4096, limit));
    let keyspace = store.db.keyspace("songs").unwrap();
    let lengths = Lengths::new(&keyspace, 4096, limit, 200_000);
    let lengths: Vec<usize> = lengths.at_limits().step_by(2).collect();
    let mut records = Records::new();
    let mut version = 0;
    for (number, &from) in (0..).zip(&lengths) {
        for &to in &lengths {
            let key = key(number);
            for len in [from, to] {
                version += 1;
                let value = content(&key, version, len);
                keyspace.put(&key, &value).unwrap();
                assert!(get(&keyspace, &key).unwrap() == value, "from {from} to {to}");
                records.insert(key.clone(), value);
            }
        }
    }
    let mut dice = Dice(seed(5));
    assert_is(&keyspace, &records, &mut dice);
    assert_sound(&store.db, "from every form to every other one");
    drop(keyspace);
    store = store.again(false);
    assert_is(&store.db.keyspace("songs").unwrap(), &records, &mut dice);
    assert_sound(&store.db, "from every form to every other one, recovered");
}

const CROWD_KEYS: u64 = 12;

/// What a reader found is one version of that key, whole, and no older than the one before.
fn assert_whole(lengths: &[usize], key: &[u8], found: &[u8], seen: &mut [u64], number: u64) {
    let version = u64::from_le_bytes(found[..8].try_into().unwrap());
    assert!(version >= seen[number as usize], "{key:?} went back to {version}");
    seen[number as usize] = version;
    let len = lengths[version as usize % lengths.len()];
    assert!(found == content(key, version, len), "{key:?}: version {version} of {len} is mixed");
}

/// Readers of all kinds beside writers that change the form of the values.
fn readers_beside_writers(db: &Database, lengths: &[usize], rounds: u64, has_file: bool) {
    let keyspace = db.keyspace("songs").unwrap();
    for n in 0..CROWD_KEYS {
        keyspace.put(&key(n), &content(&key(n), 0, lengths[0])).unwrap();
    }
    let (ended, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|writer| {
                let keyspace = &keyspace;
                scope.spawn(move || {
                    for version in 1..=rounds {
                        for n in (writer..CROWD_KEYS).step_by(2) {
                            let len = lengths[version as usize % lengths.len()];
                            let value = content(&key(n), version, len);
                            assert!(keyspace.put(&key(n), &value).unwrap());
                        }
                        if has_file && version % 16 == writer * 8 {
                            db.checkpoint().unwrap();
                        }
                    }
                })
            })
            .collect();
        for reader in 0..3_u64 {
            let (keyspace, ended, reads) = (&keyspace, &ended, &reads);
            scope.spawn(move || {
                let mut seen = [0; CROWD_KEYS as usize];
                let mut into = Vec::new();
                while !ended.load(Ordering::Relaxed) {
                    match reader {
                        0 => {
                            for n in 0..CROWD_KEYS {
                                assert!(keyspace.get_into(&key(n), &mut into).unwrap());
                                assert_whole(lengths, &key(n), &into, &mut seen, n);
                            }
                        }
                        1 => {
                            let mut cursor = keyspace.cursor();
                            cursor.seek_to_end();
                            for n in (0..CROWD_KEYS).rev() {
                                let (found, value) = cursor.previous_record().unwrap().unwrap();
                                assert_eq!(found, key(n));
                                assert_whole(lengths, found, value, &mut seen, n);
                            }
                        }
                        _ => {
                            for (n, record) in (0..).zip(keyspace.iter()) {
                                let (found, value) = record.unwrap();
                                assert_eq!(found.as_bytes(), key(n));
                                assert_whole(lengths, &found, &value, &mut seen, n);
                                let mut reader = keyspace.value_reader(&found).unwrap().unwrap();
                                into.clear();
                                reader.read_to_end(&mut into).unwrap();
                                assert_whole(lengths, &found, &into, &mut seen, n);
                            }
                        }
                    }
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ended.store(true, Ordering::Relaxed);
        written.into_iter().for_each(|written| written.unwrap());
    });
    println!("{} rounds of reads", reads.into_inner());
    let mut dice = Dice(3);
    let records = (0..CROWD_KEYS).map(|n| {
        let len = lengths[rounds as usize % lengths.len()];
        (key(n), content(&key(n), rounds, len))
    });
    assert_is(&keyspace, &records.collect(), &mut dice);
    assert_sound(db, "after readers beside writers");
}

const CROWD_LENGTHS: [usize; 11] =
    [30, 5000, 1500, 2030, 40_000, 2040, 4096, 4097, 98_280, 12_288, 140_000];

#[test]
fn readers_beside_writers_see_whole_values_of_all_forms() {
    // The second one has far too few frames for all of the values.
    for limit in [16 << 20, 3 << 20] {
        let store = Store::new(options(4096, limit).background_checkpoints(true));
        readers_beside_writers(&store.db, &CROWD_LENGTHS, 60, true);
    }
}

#[test]
fn readers_beside_writers_see_whole_values_in_memory() {
    let db = options(4096, 16 << 20).in_memory().unwrap();
    readers_beside_writers(&db, &CROWD_LENGTHS, 300, false);
}

#[test]
fn statistics_count_values_by_where_they_are() {
    let store = Store::new(options(4096, 4 << 20));
    let in_memory = options(4096, 4 << 20).in_memory().unwrap();
    let (file, memory) =
        (store.db.keyspace("songs").unwrap(), in_memory.keyspace("songs").unwrap());
    // Of these two look like stored forms, and one of them lies in an extent.
    let mut like = vec![0x9b, 0xe1, 0x4c, 0x07, 0xd6, 0x3a, 0x81, 0xf5];
    like.resize(1000, 2);
    let lengths = [0, 10, 1900, 2000, 4088, 4089, 40_000, 300_000];
    let values: Vec<Vec<u8>> = lengths.into_iter().map(|len| content(b"k", 1, len)).collect();
    let values = values.into_iter().chain([like.clone(), like.repeat(3)]);
    for (n, value) in (0..).zip(values) {
        file.put(&key(n), &value).unwrap();
        memory.put(&key(n), &value).unwrap();
        // What was overwritten does not count.
        file.put(b"other", &value).unwrap();
        memory.put(b"other", &value).unwrap();
    }
    assert!(file.remove(b"other").unwrap() && memory.remove(b"other").unwrap());
    let found = file.stats().unwrap().values;
    assert_eq!((found.in_leaves, found.in_leaves_bytes), (4, 10 + 1900 + 1000));
    let long_bytes = 2000 + 4088 + 4089 + 40_000 + 300_000 + 3000;
    assert_eq!((found.in_extents, found.in_extents_bytes), (6, long_bytes));
    // Each chunk of 32 KiB has a checksum, and the last ends with a unit of 512 bytes.
    let in_file = |len: u64| (len + 8 * len.div_ceil((32 << 10) - 8)).next_multiple_of(512);
    let long = [2000, 4088, 4089, 40_000, 300_000, 3000];
    assert_eq!(found.extents_file_bytes, long.into_iter().map(in_file).sum::<u64>());
    assert_eq!((found.in_frames, found.damaged), (0, 0));
    assert_eq!((found.count(), found.bytes()), (10, long_bytes + 2910));
    let kept = memory.stats().unwrap().values;
    assert_eq!((kept.in_leaves, kept.in_leaves_bytes), (4, 2910));
    assert_eq!((kept.in_frames, kept.in_frames_bytes), (6, long_bytes));
    assert_eq!(kept.frames_bytes, (1 + 1 + 1 + 10 + 74 + 1) * 4096);
    assert_eq!((kept.in_extents, kept.damaged), (0, 0));
    assert_eq!((kept.count(), kept.bytes()), (10, long_bytes + 2910));
}
