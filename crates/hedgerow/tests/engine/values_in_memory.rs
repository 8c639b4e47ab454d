//! Values of every size in stores that live in memory: what is replaced or removed gives its frames back, whichever way
//! it went, and what there is no memory for is refused and changes nothing.

use crate::common::lengths::{Lengths, content};
use crate::common::{Dice, Records, assert_sound, effort, get, key, seed};
use hedgerow::{Database, ErrorKind, Keyspace, Options, WriteBatch};

const LIMIT_BYTES: u64 = 6 << 20;
const FILL_BYTES: usize = 30_000;

fn in_memory(page_bytes: usize, limit_bytes: u64) -> Database {
    Options::new().page_bytes(page_bytes).memory_limit_bytes(limit_bytes).in_memory().unwrap()
}

fn assert_is(keyspace: &Keyspace, records: &Records) {
    let found = keyspace.iter().map(|record| record.unwrap());
    let mut expected = records.iter();
    for (found, value) in found {
        let next = expected.next().expect("there is no such record");
        assert!(found.as_bytes() == next.0.as_slice(), "{found:?}");
        assert!(value.as_bytes() == next.1.as_slice(), "{found:?}");
    }
    assert!(expected.next().is_none());
    for (key, value) in records {
        assert!(get(keyspace, key).as_ref() == Some(value), "{key:?}");
    }
}

/// Puts values until there is no memory for another one, compares all, and removes them. Tells how many there were.
fn fill(keyspace: &Keyspace) -> u64 {
    let fill_key = |n: u64| format!("fill/{n:06}").into_bytes();
    let mut count = 0;
    let full = loop {
        let key = fill_key(count);
        match keyspace.put(&key, &content(&key, count, FILL_BYTES)) {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(full.kind(), ErrorKind::MemoryLimit, "{full}");
    for n in 0..count {
        let key = fill_key(n);
        assert!(get(keyspace, &key).unwrap() == content(&key, n, FILL_BYTES));
    }
    assert_eq!(get(keyspace, &fill_key(count)), None);
    for n in 0..count {
        assert!(keyspace.remove(&fill_key(n)).unwrap());
    }
    count
}

#[test]
fn values_of_every_size_agree_with_a_map_in_memory() {
    for (page_bytes, most) in [(512, 15_000), (4096, 1 << 20), (65_536, 1 << 20)] {
        let limit = if page_bytes == 65_536 { 40 << 20 } else { 24 << 20 };
        let mut dice = Dice(seed(page_bytes as u64));
        let db = in_memory(page_bytes, limit);
        let keyspace = db.keyspace("songs").unwrap();
        let mut lengths = Lengths::new(&keyspace, page_bytes, limit, most);
        let mut records = Records::new();
        for version in 0..1_500 * effort() {
            let key = key(dice.below(16));
            let value = content(&key, version, lengths.draw(&mut dice));
            match dice.below(6) {
                0 => assert_eq!(keyspace.remove(&key).unwrap(), records.remove(&key).is_some()),
                1 => {
                    let before = records.get(&key).map(Vec::as_slice);
                    let swapped = keyspace.compare_and_swap(&key, before, Some(&value)).unwrap();
                    assert!(swapped.is_swapped());
                    records.insert(key, value);
                }
                2 => {
                    let len = value.len() as u64;
                    keyspace.put_stream(&key, len, &mut &value[..]).unwrap();
                    records.insert(key, value);
                }
                _ => {
                    assert_eq!(keyspace.put(&key, &value).unwrap(), records.contains_key(&key));
                    records.insert(key, value);
                }
            }
            if version % 500 == 499 {
                assert_is(&keyspace, &records);
                assert_sound(&db, "values of all forms in memory");
                lengths = Lengths::new(&keyspace, page_bytes, limit, most);
            }
        }
    }
}

/// One way to put values into an empty keyspace and to remove them.
type Way = (&'static str, fn(&Database, &Keyspace, &[(Vec<u8>, Vec<u8>)]));

const WAYS: [Way; 9] = [
    ("put and remove", |_, keyspace, records| {
        for (key, value) in records {
            keyspace.put(key, value).unwrap();
        }
        for (key, _) in records {
            assert!(keyspace.remove(key).unwrap());
        }
    }),
    ("overwrite", |_, keyspace, records| {
        for (_, value) in records {
            keyspace.put(b"one", value).unwrap();
            assert!(keyspace.update(b"one", value).unwrap());
            assert!(!keyspace.insert_if_absent(b"one", value).unwrap());
            assert!(!keyspace.update(b"other", value).unwrap());
        }
        keyspace.put(b"one", b"short").unwrap();
        assert!(keyspace.remove(b"one").unwrap());
    }),
    ("a range", |_, keyspace, records| {
        for (key, value) in records {
            keyspace.put(key, value).unwrap();
        }
        let removed = keyspace.remove_range(..).unwrap();
        assert_eq!(removed, records.len() as u64);
    }),
    ("a batch", |db, keyspace, records| {
        let mut batch = WriteBatch::new();
        for (key, value) in records {
            batch.put(keyspace, key, value).unwrap();
            batch.put(keyspace, key, value).unwrap();
        }
        db.write(&batch).unwrap();
        let mut batch = WriteBatch::new();
        for (key, value) in records {
            batch.put(keyspace, key, value).unwrap();
            batch.remove(keyspace, key).unwrap();
        }
        db.write(&batch).unwrap();
    }),
    ("a bulk load", |_, keyspace, records| {
        keyspace.bulk_load(records.iter().map(|(key, value)| (key, value)), 90).unwrap();
        assert_eq!(keyspace.remove_range(..).unwrap(), records.len() as u64);
    }),
    ("a bulk load that fails", |_, keyspace, records| {
        let twice = records.iter().chain(records).map(|(key, value)| (key, value));
        let refused = keyspace.bulk_load(twice, 90).unwrap_err();
        assert!(!matches!(refused.kind(), ErrorKind::MemoryLimit), "{refused}");
        assert_eq!(keyspace.count().unwrap(), 0);
    }),
    ("compare and swap", |_, keyspace, records| {
        let mut before: Option<&[u8]> = None;
        for (_, value) in records {
            let wrong = keyspace.compare_and_swap(b"one", Some(b"wrong"), Some(value)).unwrap();
            assert!(!wrong.is_swapped());
            assert!(keyspace.compare_and_swap(b"one", before, Some(value)).unwrap().is_swapped());
            before = Some(value);
        }
        assert!(keyspace.compare_and_swap(b"one", before, None).unwrap().is_swapped());
    }),
    ("a keyspace that is dropped", |db, _, records| {
        let other = db.keyspace("other").unwrap();
        for (key, value) in records {
            other.put(key, value).unwrap();
        }
        drop(other);
        assert!(db.drop_keyspace("other").unwrap());
    }),
    ("streams", |_, keyspace, records| {
        for (key, value) in records {
            keyspace.put_stream(key, value.len() as u64, &mut &value[..]).unwrap();
            // This one is given up.
            let mut writer = keyspace.value_writer(b"half", value.len() as u64).unwrap();
            writer.write_bytes(&value[..value.len() / 2]).unwrap();
        }
        for (key, _) in records {
            assert!(keyspace.remove(key).unwrap());
        }
    }),
];

#[test]
fn whichever_way_values_go_there_is_room_for_as_many_as_before() {
    let mut dice = Dice(seed(2));
    let db = in_memory(4096, LIMIT_BYTES);
    let keyspace = db.keyspace("songs").unwrap();
    let lengths = Lengths::new(&keyspace, 4096, LIMIT_BYTES, 300_000);
    // Its leaves are as they will be.
    fill(&keyspace);
    let most = fill(&keyspace);
    assert!(most * FILL_BYTES as u64 > LIMIT_BYTES / 2, "{most} values");
    for (what, way) in WAYS {
        for version in 0..3 {
            let records: Vec<_> = (0..24)
                .map(|n| (key(n), content(&key(n), version, lengths.draw(&mut dice).min(150_000))))
                .collect();
            way(&db, &keyspace, &records);
            assert_eq!(keyspace.count().unwrap(), 0, "{what}");
        }
        let room = fill(&keyspace);
        // A frame or two may belong to leaves that others do not need.
        assert!(room + 1 >= most, "after {what} there is room for {room} values instead of {most}");
        assert_sound(&db, what);
    }
}

#[test]
fn a_full_store_in_memory_refuses_and_loses_nothing() {
    let mut dice = Dice(seed(3));
    let db = in_memory(4096, 4 << 20);
    let keyspace = db.keyspace("songs").unwrap();
    let lengths = Lengths::new(&keyspace, 4096, 4 << 20, 200_000);
    let (mut records, mut refused) = (Records::new(), 0);
    for version in 0..3_000 {
        let key = key(dice.below(400));
        let value = content(&key, version, lengths.draw(&mut dice));
        let done = match dice.below(4) {
            0 => {
                let before = records.get(&key).map(Vec::as_slice);
                keyspace.compare_and_swap(&key, before, Some(&value)).map(drop)
            }
            1 => {
                let mut batch = WriteBatch::new();
                batch.put(&keyspace, &key, &value).unwrap();
                db.write(&batch).map(drop)
            }
            _ => keyspace.put(&key, &value).map(drop),
        };
        match done {
            Ok(()) => drop(records.insert(key, value)),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
                assert!(get(&keyspace, &key) == records.get(&key).cloned(), "{key:?}");
                refused += 1;
            }
        }
        if version % 300 == 299 {
            assert_is(&keyspace, &records);
            // Room for some more.
            for n in 0..40 {
                let removed = keyspace.remove(&crate::common::key(n)).unwrap();
                assert_eq!(removed, records.remove(&crate::common::key(n)).is_some());
            }
        }
    }
    assert!(refused > 30, "{refused}");
    assert_sound(&db, "after refusals");
}

#[test]
fn a_value_that_is_too_long_for_a_store_in_memory_is_refused_by_its_length() {
    for page_bytes in [512, 4096] {
        let db = in_memory(page_bytes, 64 << 20);
        let keyspace = db.keyspace("songs").unwrap();
        let mut most = 0;
        for key in [&b"k"[..], &vec![b'k'; keyspace.max_short_key_bytes()]] {
            let refused = keyspace.put(key, &vec![7; 32 << 20]).unwrap_err();
            let ErrorKind::RecordTooLarge { len_bytes, max_bytes } = refused.kind() else {
                panic!("{refused}");
            };
            assert_eq!(len_bytes, 32 << 20);
            assert!(max_bytes > keyspace.max_record_bytes());
            // That much and no more, in each way of putting.
            keyspace.put(key, &content(key, 1, max_bytes)).unwrap();
            let too_long = content(key, 2, max_bytes + 1);
            let is_refused = |kind: ErrorKind| {
                kind == ErrorKind::RecordTooLarge { len_bytes: max_bytes + 1, max_bytes }
            };
            assert!(is_refused(keyspace.put(key, &too_long).unwrap_err().kind()));
            assert!(is_refused(keyspace.update(key, &too_long).unwrap_err().kind()));
            let writer = keyspace.value_writer(key, too_long.len() as u64);
            assert!(is_refused(writer.unwrap_err().kind()));
            let mut batch = WriteBatch::new();
            assert!(is_refused(batch.put(&keyspace, key, &too_long).unwrap_err().kind()));
            let present = content(key, 1, max_bytes);
            let swapped = keyspace.compare_and_swap(key, Some(&present), Some(&too_long));
            assert!(is_refused(swapped.unwrap_err().kind()));
            let loaded = db.keyspace("loaded").unwrap().bulk_load([(key, &too_long)], 90);
            assert!(is_refused(loaded.unwrap_err().kind()));
            assert!(get(&keyspace, key).unwrap() == present);
            most = most.max(max_bytes);
        }
        println!("{page_bytes}: {most}");
        assert_sound(&db, "after refusals by length");
    }
}

/// Each later value that is replaced again is seen by nobody, and its room is free at once.
#[test]
fn a_snapshot_keeps_what_it_sees_of_a_record_and_nothing_later() {
    let db = Options::new().memory_limit_bytes(16 << 20).in_memory().unwrap();
    let songs = db.keyspace("songs").unwrap();
    let value = |n: u8| vec![n; 1_800_000];
    songs.put(b"song", &value(0)).unwrap();
    let first = db.snapshot().unwrap();
    for n in 1..60 {
        songs.put(b"song", &value(n)).unwrap();
    }
    let second = db.snapshot().unwrap();
    for n in 60..120 {
        songs.put(b"song", &value(n)).unwrap();
    }
    for (snapshot, seen) in [(&second, 59), (&first, 0)] {
        let found = snapshot.keyspace(&songs).unwrap().get(b"song").unwrap().unwrap();
        assert!(found.as_bytes() == value(seen), "the value of round {seen}");
    }
    drop((first, second));
    // All but one are free: so many find room beside it.
    for n in 0..5_u8 {
        songs.put(&[n], &value(n)).unwrap();
    }
}

/// It is given up when writers have no other room, as it is for versions.
#[test]
fn writers_go_on_beside_a_snapshot_that_keeps_all_that_was_replaced() {
    let db = in_memory(4096, 4 << 20);
    let [songs, calls] = ["songs", "calls"].map(|name| db.keyspace(name).unwrap());
    let value = |n: u64, version: u8| vec![version; 100_000 + n as usize];
    let put_all = |version: u8| {
        for n in 0..25 {
            songs.put(&key(n), &value(n, version)).unwrap();
        }
    };
    put_all(0);
    let snapshot = db.snapshot().unwrap();
    let seen = snapshot.keyspace(&songs).unwrap();
    (1..10).for_each(put_all);
    assert_eq!(seen.get(&key(0)).unwrap_err().kind(), ErrorKind::SnapshotTooOld);
    // What another one keeps is room for leaves, too.
    let other = db.snapshot().unwrap();
    (0..10).for_each(|n| {
        songs.put(&key(n), &value(n, 10)).unwrap();
    });
    for n in 0..5_000 {
        calls.put(&key(n), &[1; 90]).unwrap();
    }
    for n in 0..25 {
        let version = if n < 10 { 10 } else { 9 };
        assert_eq!(get(&songs, &key(n)), Some(value(n, version)));
    }
    drop((seen, snapshot, other));
    assert_sound(&db, "beside snapshots");
}
