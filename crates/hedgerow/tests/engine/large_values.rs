//! Large values: what is put comes back, through every way of reading, and what is replaced or removed gives its
//! space back.
#![allow(clippy::disallowed_methods, reason = "a test with threads and files of its own")]

use crate::common::{Dice, assert_sound, bytes, get, key, open, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{
    CompareAndSwap, Database, ErrorKind, Isolation, Keyspace, Options, TransactionKeyspace,
    WriteBatch,
};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::CallKind;
use std::io::{Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;

fn temporary() -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().memory_limit_bytes(4 << 20).background_checkpoints(false);
    let db = options.create(directory.path().join("birds.hrow")).unwrap();
    (directory, db)
}

#[test]
fn values_of_all_lengths_come_back_through_every_way_of_reading() {
    let mut dice = Dice(seed(1));
    let (directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    let max = keyspace.max_record_bytes();
    let chunk = (32 << 10) - 8;
    let mut lengths = vec![0, 1, 100, max - 9, max - 8, max - 7, max, 4096, 5000, 1 << 20];
    lengths.extend([chunk - 1, chunk, chunk + 1, 32 * chunk, 33 * chunk + 5, (5 << 20) + 77]);
    let mut model = Vec::new();
    for (n, &len) in lengths.iter().enumerate() {
        let (key, value) = (key(n as u64), bytes(&mut dice, len));
        assert!(!keyspace.put(&key, &value).unwrap());
        model.push((key, value));
    }
    let look = |keyspace: &Keyspace, db: &Database| {
        let keys: Vec<_> = model.iter().map(|(key, _)| key).collect();
        let many = keyspace.get_many(&keys).unwrap();
        for ((key, value), many) in model.iter().zip(many) {
            assert_eq!(get(keyspace, key).as_deref(), Some(&value[..]), "{}", value.len());
            assert_eq!(many.as_deref(), Some(&value[..]));
            let mut into = b"rest".to_vec();
            assert!(keyspace.get_into(key, &mut into).unwrap());
            assert_eq!(into, *value);
            assert!(keyspace.get_with(key, |found| found == &value[..]).unwrap().unwrap());
            assert!(keyspace.contains_key(key).unwrap());
        }
        let records: Vec<_> = keyspace.iter().map(|record| record.unwrap()).collect();
        assert_eq!(records.len(), model.len());
        let back: Vec<_> = keyspace.iter().rev().map(|record| record.unwrap()).collect();
        for (index, (key, value)) in model.iter().enumerate() {
            assert_eq!((&records[index].0[..], &records[index].1[..]), (&key[..], &value[..]));
            let last = &back[model.len() - 1 - index];
            assert_eq!((&last.0[..], &last.1[..]), (&key[..], &value[..]));
        }
        let (mut forward, mut backward) = (keyspace.cursor(), keyspace.cursor());
        backward.seek_to_end();
        for (key, value) in &model {
            assert_eq!(forward.next_record().unwrap(), Some((&key[..], &value[..])));
        }
        for (key, value) in model.iter().rev() {
            assert_eq!(backward.previous_record().unwrap(), Some((&key[..], &value[..])));
        }
        let mut seen = 0;
        let ended = keyspace.cursor().visit(|key, value| {
            assert_eq!((key, value), (&model[seen].0[..], &model[seen].1[..]));
            seen += 1;
            if seen == model.len() { ControlFlow::Break(seen) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(ended.unwrap(), ControlFlow::Break(model.len()));
        assert_eq!(keyspace.count().unwrap(), model.len() as u64);
        assert_sound(db, "with large values");
    };
    look(&keyspace, &db);
    drop(keyspace);
    db.close().unwrap();
    let db = Options::new().open(directory.path().join("birds.hrow")).unwrap();
    look(&db.keyspace("songs").unwrap(), &db);
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.large_values, lengths.iter().filter(|&&len| len > max - 11).count() as u64);
    drop(db);
    let options = Options::new();
    let db = options.open_read_only(directory.path().join("birds.hrow")).unwrap();
    look(&db.open_keyspace("songs").unwrap().unwrap(), &db);
    let refused = db.open_keyspace("songs").unwrap().unwrap().put(b"new", &[0; 10_000]);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
}

#[test]
fn streams_read_and_write_from_any_place_and_leave_nothing_when_they_are_given_up() {
    let mut dice = Dice(seed(2));
    let (_directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    for len in [0, 10, 5000, 100_000, 3_000_000] {
        let value = bytes(&mut dice, len);
        let mut writer = keyspace.value_writer(b"wren", len as u64).unwrap();
        for piece in value.chunks(777) {
            writer.write_all(piece).unwrap();
        }
        assert!(writer.write_bytes(b"more").is_err(), "longer than was said");
        writer.finish().unwrap();
        let mut reader = keyspace.value_reader(b"wren").unwrap().unwrap();
        assert_eq!(reader.len_bytes(), len as u64);
        let mut found = Vec::new();
        reader.read_to_end(&mut found).unwrap();
        assert!(found == value);
        for _ in 0..20 {
            let from = dice.below(len as u64 + 1);
            let count = dice.below(70_000) as usize;
            let end = (from as usize + count).min(len);
            reader.seek(SeekFrom::Start(from)).unwrap();
            let mut piece = vec![0; end - from as usize];
            reader.read_exact(&mut piece).unwrap();
            assert!(piece == value[from as usize..end]);
            let part = keyspace.get_range(b"wren", from..from + count as u64).unwrap().unwrap();
            assert!(part == value[from as usize..end]);
        }
        assert_eq!(reader.seek(SeekFrom::End(3)).unwrap(), len as u64 + 3);
        assert_eq!(reader.read(&mut [0; 5]).unwrap(), 0);
        assert!(keyspace.put_stream(b"copy", len as u64, &mut &value[..]).is_ok());
        assert!(get(&keyspace, b"copy").unwrap() == value);
    }
    assert_eq!(keyspace.get_range(b"nobody", ..).unwrap(), None);
    assert!(keyspace.value_reader(b"nobody").unwrap().is_none());
    db.checkpoint().unwrap();
    let before = db.space_report().unwrap().used_bytes;
    let mut given_up = keyspace.value_writer(b"robin", 2_000_000).unwrap();
    given_up.write_bytes(&[1; 1_000_000]).unwrap();
    assert!(db.space_report().unwrap().used_bytes >= before + 2_000_000);
    assert_sound(&db, "while a value is being written");
    let early = given_up.finish().unwrap_err();
    assert_eq!(early.kind(), ErrorKind::LengthMismatch);
    assert_eq!(db.space_report().unwrap().used_bytes, before);
    let short = keyspace.put_stream(b"robin", 100_000, &mut &[0u8; 50_000][..]).unwrap_err();
    assert_eq!(short.kind(), ErrorKind::LengthMismatch);
    assert_eq!(get(&keyspace, b"robin"), None);
    assert_sound(&db, "after values that were given up");
}

#[test]
fn conditional_changes_see_large_values_for_what_they_are() {
    let mut dice = Dice(seed(3));
    let (_directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    let (a, b) = (bytes(&mut dice, 100_000), bytes(&mut dice, 100_000));
    let mut almost = a.clone();
    almost[99_999] ^= 1;
    assert!(!keyspace.update(b"wren", &a).unwrap());
    assert!(keyspace.insert_if_absent(b"wren", &a).unwrap());
    assert!(!keyspace.insert_if_absent(b"wren", &b).unwrap());
    let swap = |expected: Option<&[u8]>, new: Option<&[u8]>| {
        keyspace.compare_and_swap(b"wren", expected, new).unwrap()
    };
    for wrong in [Some(&b[..]), Some(&almost[..]), Some(b"short"), None] {
        match swap(wrong, Some(&b)) {
            CompareAndSwap::Differs(Some(found)) => assert!(found.as_bytes() == a),
            other => panic!("{other:?}"),
        }
    }
    assert!(swap(Some(&a), Some(b"short")).is_swapped());
    assert!(!swap(Some(&a), Some(&b)).is_swapped());
    assert!(swap(Some(b"short"), Some(&b)).is_swapped());
    assert!(keyspace.update(b"wren", &a).unwrap());
    assert!(swap(Some(&a), None).is_swapped());
    assert_eq!(get(&keyspace, b"wren"), None);
    assert!(swap(None, Some(&b)).is_swapped());
    // What looks like a reference is a value like any other.
    let magic = [0x9b, 0xe1, 0x4c, 0x07, 0xd6, 0x3a, 0x81, 0xf5];
    for len in [8, 9, 40, 200, keyspace.max_record_bytes() - 6, 5000] {
        let mut value = bytes(&mut dice, len);
        value[..8].copy_from_slice(&magic);
        if len > 8 {
            value[8] = 2;
        }
        assert!(swap(Some(&b), Some(&value)).is_swapped());
        assert_eq!(get(&keyspace, b"wren").unwrap(), value);
        assert_eq!(keyspace.iter().next().unwrap().unwrap().1[..], value);
        keyspace.put(b"wren", &b).unwrap();
        keyspace.put(b"wren", &value).unwrap();
        assert!(swap(Some(&value), Some(&b)).is_swapped());
    }
    assert_sound(&db, "after conditional changes");
    let used = |db: &Database| {
        db.checkpoint().unwrap();
        db.checkpoint().unwrap();
        db.space_report().unwrap().used_bytes
    };
    assert!(keyspace.remove(b"wren").unwrap());
    let without = used(&db);
    for n in 0..30 {
        keyspace.put(&key(n), &a).unwrap();
    }
    assert!(used(&db) >= without + 3_000_000);
    assert!(db.drop_keyspace("songs").unwrap());
    assert!(used(&db) <= without);
    assert_sound(&db, "after the keyspace was dropped");
}

#[test]
fn what_a_reader_has_open_stays_while_it_is_replaced_and_its_space_asked_for() {
    let mut dice = Dice(seed(4));
    let (_directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    let value = bytes(&mut dice, 1_500_000);
    keyspace.put(b"wren", &value).unwrap();
    db.checkpoint().unwrap();
    let mut reader = keyspace.value_reader(b"wren").unwrap().unwrap();
    for round in 0..20u8 {
        keyspace.put(b"wren", &vec![round; 1_500_000]).unwrap();
        db.checkpoint().unwrap();
    }
    keyspace.remove(b"wren").unwrap();
    db.checkpoint().unwrap();
    assert_sound(&db, "while a removed value is read");
    let mut found = Vec::new();
    reader.read_to_end(&mut found).unwrap();
    assert!(found == value, "what was open has changed");
    let held = db.space_report().unwrap();
    assert!(held.quarantined_bytes >= 1_500_000, "{held:?}");
    drop(reader);
    let free = db.space_report().unwrap();
    assert!(free.quarantined_bytes < 1_500_000, "{free:?}");
    db.checkpoint().unwrap();
    db.checkpoint().unwrap();
    let report = db.space_report().unwrap();
    assert!(report.file_bytes < 10 << 20, "{report:?}");
}

#[test]
fn readers_beside_writers_see_whole_values() {
    let (_directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    let fill = |round: u64| vec![round as u8; 40_000 + (round as usize * 7_919) % 200_000];
    for n in 0..4 {
        keyspace.put(&key(n), &fill(0)).unwrap();
    }
    let left = std::sync::atomic::AtomicU64::new(2);
    std::thread::scope(|scope| {
        for w in 0..2 {
            let (db, keyspace, left) = (&db, &keyspace, &left);
            scope.spawn(move || {
                for round in 0..120 {
                    keyspace.put(&key(round % 4), &fill(round * 2 + w)).unwrap();
                    if round % 8 == w {
                        db.checkpoint().unwrap();
                    }
                }
                left.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let mut n = 0;
                while left.load(std::sync::atomic::Ordering::SeqCst) > 0 {
                    n += 1;
                    let value = keyspace.get(&key(n % 4)).unwrap().unwrap();
                    assert!(value.iter().all(|&byte| byte == value[0]), "a mixture of values");
                    if n % 4 == 0 {
                        assert_eq!(keyspace.iter().filter(|record| record.is_ok()).count(), 4);
                    }
                }
            });
        }
    });
    assert_sound(&db, "after readers and writers");
}

#[test]
fn what_cannot_be_put_is_refused_and_leaves_nothing() {
    let db = Options::new().memory_limit_bytes(4 << 20).in_memory().unwrap();
    let keyspace = db.keyspace("songs").unwrap();
    let refused = keyspace.put(b"wren", &vec![0; 2 << 20]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::RecordTooLarge { .. }), "{refused}");
    let limit = hedgerow::smallest_memory_limit_bytes(4096);
    let small = Options::new().memory_limit_bytes(limit).temporary().unwrap();
    let refused = small.keyspace("songs").unwrap().put(b"wren", &[0; 100_000]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::MemoryLimit, "{refused}");
    assert_sound(&small, "after a value for which there was no memory");
    let (_directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    let max = keyspace.max_key_bytes();
    let refused = keyspace.value_writer(b"wren", (4 << 30) + 1).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::RecordTooLarge { .. }), "{refused}");
    // The longest key leaves room for a reference, and so does the longest short one.
    for len in [max, keyspace.max_short_key_bytes()] {
        keyspace.put(&vec![b'k'; len], &[5; 10_000]).unwrap();
        assert_eq!(get(&keyspace, &vec![b'k'; len]).unwrap(), [5; 10_000]);
    }
    let refused = keyspace.put(&vec![b'k'; max + 1], &[0; 10_000]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::KeyTooLong { .. }), "{refused}");
    let refused = keyspace.value_writer(&vec![b'k'; max + 1], 5).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::KeyTooLong { .. }), "{refused}");
    let in_memory = Options::new().memory_limit_bytes(4 << 20).in_memory().unwrap();
    // Whatever the length, and with the part of the key that is stored before the value.
    for words in [&in_memory, &db] {
        let words = words.keyspace("words").unwrap();
        for len in [4 << 30, u64::MAX - 3, u64::MAX - 2, u64::MAX - 1, u64::MAX] {
            for key_len in [1, 980, 981, 982, 60_000] {
                let refused = words.value_writer(&vec![b'k'; key_len], len).err();
                let kind = refused.map(|error| error.kind());
                let is_refused = matches!(kind, Some(ErrorKind::RecordTooLarge { .. }));
                assert!(
                    is_refused || (len == 4 << 30 && key_len < 981),
                    "{len} {key_len} {kind:?}"
                );
            }
        }
    }
    let in_memory = Options::new().memory_limit_bytes(4 << 20).in_memory().unwrap();
    let too_long = [(b"a", vec![0; 2 << 20])];
    let refused = in_memory.keyspace("loaded").unwrap().bulk_load(too_long, 90).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::RecordTooLarge { .. }), "{refused}");
    let long = [(b"a", vec![0; 10_000])];
    let other = db.keyspace("loaded").unwrap();
    assert_eq!(other.bulk_load(long, 90).unwrap(), 1);
    assert_eq!(get(&other, b"a").unwrap(), [0; 10_000]);
    assert_sound(&db, "after refusals");
}

#[test]
fn a_damaged_chunk_is_named_and_the_rest_can_be_read() {
    let (directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    keyspace.put(b"wren", &vec![0xa5; 300_000]).unwrap();
    drop(keyspace);
    db.close().unwrap();
    let path = directory.path().join("birds.hrow");
    let mut file = std::fs::read(&path).unwrap();
    let at = file.windows(64).rposition(|window| window == [0xa5; 64]).unwrap();
    file[at] ^= 1;
    std::fs::write(&path, &file).unwrap();
    let db = Options::new().open(&path).unwrap();
    let keyspace = db.keyspace("songs").unwrap();
    let damaged = keyspace.get(b"wren").unwrap_err();
    assert!(matches!(damaged.kind(), ErrorKind::Corrupted { offset_bytes: Some(_), .. }));
    let start = keyspace.get_range(b"wren", ..100_000).unwrap().unwrap();
    assert_eq!(start, [0xa5; 100_000]);
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert_eq!(report.findings.len(), 1, "{:?}", report.findings);
    assert!(report.findings[0].what.contains("chunk"), "{:?}", report.findings);
    // What is damaged can be replaced.
    keyspace.put(b"wren", &[1; 200_000]).unwrap();
    assert_eq!(get(&keyspace, b"wren").unwrap(), [1; 200_000]);
    assert_sound(&db, "after the damaged value was replaced");
}

/// What is in a keyspace, and that it is sound.
fn contents(db: &Database) -> Vec<(Vec<u8>, Vec<u8>)> {
    assert_sound(db, "a copy");
    let keyspace = db.open_keyspace("songs").unwrap().unwrap();
    let records = keyspace.iter().map(|record| record.unwrap());
    records.map(|(key, value)| (key.into_vec(), value.into_vec())).collect()
}

#[test]
fn batches_and_ranges_know_of_large_values() {
    let mut dice = Dice(seed(8));
    let (directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    let values: Vec<Vec<u8>> = [3, 70_000, 1_200_000, 5].map(|len| bytes(&mut dice, len)).into();
    let magic = [&[0x9b, 0xe1, 0x4c, 0x07, 0xd6, 0x3a, 0x81, 0xf5][..], b"of the user"].concat();
    let mut batch = WriteBatch::new();
    for (n, value) in values.iter().enumerate() {
        batch.put(&keyspace, &key(n as u64), &vec![7; 50_000]).unwrap();
        batch.put(&keyspace, &key(n as u64), value).unwrap();
    }
    batch.put(&keyspace, &key(9), &magic).unwrap();
    let refused = batch.put(&keyspace, &vec![b'k'; keyspace.max_key_bytes() + 1], &[0; 9_000]);
    assert!(matches!(refused.unwrap_err().kind(), ErrorKind::KeyTooLong { .. }));
    db.write(&batch).unwrap();
    let look = |db: &Database| {
        let keyspace = db.keyspace("songs").unwrap();
        for (n, value) in values.iter().enumerate() {
            assert_eq!(get(&keyspace, &key(n as u64)).as_ref(), Some(value));
        }
        assert_eq!(get(&keyspace, &key(9)).as_ref(), Some(&magic));
        assert_sound(db, "after a batch");
    };
    look(&db);
    // The same again frees what was there.
    db.write(&batch).unwrap();
    look(&db);
    db.close().unwrap();
    let db = Options::new().open(directory.path().join("birds.hrow")).unwrap();
    look(&db);
    db.checkpoint().unwrap();
    let before = db.space_report().unwrap().used_bytes;
    assert_eq!(db.keyspace("songs").unwrap().remove_range(key(1)..key(9)).unwrap(), 3);
    db.checkpoint().unwrap();
    let after = db.space_report().unwrap().used_bytes;
    assert!(before - after > 1_200_000, "{before} {after}");
    assert_sound(&db, "after a range was removed");
    let memory = Options::new().in_memory().unwrap();
    let keyspace = memory.keyspace("songs").unwrap();
    let refused = WriteBatch::new().put(&keyspace, b"k", &vec![0; 2 << 20]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::RecordTooLarge { .. }), "{refused}");
}

#[test]
fn large_values_are_backed_up_restored_and_salvaged() {
    let mut dice = Dice(seed(9));
    let (directory, db) = temporary();
    let path = |name: &str| directory.path().join(name);
    let keyspace = db.keyspace("songs").unwrap();
    for n in 0..40 {
        let len = dice.below(if n % 10 == 0 { 3_000_000 } else { 40_000 }) as usize;
        keyspace.put(&key(n), &bytes(&mut dice, len)).unwrap();
    }
    for n in (0..40).step_by(3) {
        let len = dice.below(90_000) as usize;
        keyspace.put(&key(n), &bytes(&mut dice, len)).unwrap();
    }
    let model = contents(&db);
    let mut copied = 0;
    let report = db.backup(path("backup.hrow"), |pages| {
        // Somebody writes meanwhile.
        keyspace.put(&key(pages % 40), &bytes(&mut dice, 30_000)).unwrap();
        copied += 1;
        ControlFlow::Continue(())
    });
    let report = report.unwrap();
    assert!(copied > 1 && report.file_bytes > 1 << 20, "{report:?}");
    assert_sound(&db, "after a backup");
    let backup = Options::new().open(path("backup.hrow")).unwrap();
    assert!(contents(&backup) == model, "the backup has something else");
    backup.close().unwrap();
    let restored = Options::new();
    restored
        .restore(path("backup.hrow"), path("restored.hrow"), |_| ControlFlow::Continue(()))
        .unwrap();
    let restored = restored.open(path("restored.hrow")).unwrap();
    assert!(contents(&restored) == model, "the restored store has something else");
    // It goes its own way.
    restored.keyspace("songs").unwrap().put(&key(1), &vec![1; 100_000]).unwrap();
    restored.close().unwrap();
    // Not closed: the log has values that no checkpoint refers to yet.
    keyspace.put(&key(50), &vec![0xa5; 200_000]).unwrap();
    db.sync().unwrap();
    let mut expected = contents(&db);
    for name in ["birds.hrow", "birds.hrow-log"] {
        std::fs::copy(path(name), path(&name.replace("birds", "killed"))).unwrap();
    }
    let repair = |from: &str, to: &str| {
        Options::new().repair(path(from), path(to), |_| ControlFlow::Continue(())).unwrap()
    };
    let report = repair("killed.hrow", "salvaged.hrow");
    assert!(report.is_clean(), "{:?}", report.defects);
    let salvaged = Options::new().open(path("salvaged.hrow")).unwrap();
    assert!(contents(&salvaged) == expected, "the salvaged store has something else");
    salvaged.close().unwrap();
    let mut file = std::fs::read(path("killed.hrow")).unwrap();
    let at = file.windows(64).rposition(|window| window == [0xa5; 64]).unwrap();
    file[at] ^= 1;
    std::fs::write(path("killed.hrow"), &file).unwrap();
    let report = repair("killed.hrow", "damaged.hrow");
    assert_eq!(report.defects.len(), 1, "{:?}", report.defects);
    assert!(report.defects[0].contains("keyspace songs is lost"), "{:?}", report.defects);
    expected.retain(|(found, _)| *found != key(50));
    let salvaged = Options::new().open(path("damaged.hrow")).unwrap();
    assert!(contents(&salvaged) == expected, "the salvaged store has something else");
}

#[test]
fn a_close_beside_large_values_leaves_the_file_to_the_next_one() {
    let (directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    let mut writer = keyspace.value_writer(b"half", 3_000_000).unwrap();
    writer.write_bytes(&[9; 1_500_000]).unwrap();
    let mut acknowledged = vec![0; 3];
    std::thread::scope(|scope| {
        for (n, acknowledged) in (0..).zip(&mut acknowledged) {
            let keyspace = &keyspace;
            scope.spawn(move || {
                let closed = loop {
                    match keyspace.put(&key(n), &vec![*acknowledged as u8 + 1; 700_000]) {
                        Ok(_) => *acknowledged += 1,
                        Err(error) => break error,
                    }
                };
                assert_eq!(closed.kind(), ErrorKind::Closed, "{closed}");
            });
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        db.close().unwrap();
    });
    let again = Options::new().open(directory.path().join("birds.hrow")).unwrap();
    let songs = again.keyspace("songs").unwrap();
    for n in 100..110 {
        songs.put(&key(n), &vec![n as u8; 700_000]).unwrap();
    }
    // Nothing of it reaches the file any more.
    assert_eq!(writer.write_bytes(&[9; 1_500_000]).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(writer.finish().unwrap_err().kind(), ErrorKind::Closed);
    for (n, acknowledged) in (0..).zip(acknowledged) {
        let value = get(&songs, &key(n));
        assert_eq!(value, (acknowledged > 0).then(|| vec![acknowledged as u8; 700_000]));
    }
    assert_sound(&again, "after a close beside large values");
}

#[test]
fn large_values_at_the_end_of_the_file_do_not_keep_it_long() {
    let mut dice = Dice(seed(10));
    let (directory, db) = temporary();
    let keyspace = db.keyspace("songs").unwrap();
    let lengths = [60_000, 3_000_000, 700_000, 20_000, 5_000_000];
    let mut model = Vec::new();
    for n in 0..30 {
        let value = bytes(&mut dice, lengths[n as usize % 5] + n as usize);
        keyspace.put(&key(n), &value).unwrap();
        model.push((key(n), value));
    }
    db.checkpoint().unwrap();
    let before = db.space_report().unwrap();
    let mut open = keyspace.value_reader(&key(24)).unwrap().unwrap();
    // The first in the file go.
    for (key, _) in model.drain(..20) {
        assert!(keyspace.remove(&key).unwrap());
    }
    for _ in 0..3 {
        db.checkpoint().unwrap();
        assert_sound(&db, "while large values are moved");
    }
    let mut piece = vec![0; 100_000];
    open.read_at(2_000_000, &mut piece).unwrap();
    assert!(piece == model[4].1[2_000_000..2_100_000], "what is open stays");
    drop(open);
    for _ in 0..3 {
        db.checkpoint().unwrap();
    }
    let after = db.space_report().unwrap();
    // Not shorter, because values of several zones lie in whole ones.
    assert!(after.file_bytes < before.file_bytes * 3 / 5, "{before:?} {after:?}");
    assert!(contents(&db) == model);
    db.close().unwrap();
    let db = Options::new().open(directory.path().join("birds.hrow")).unwrap();
    assert!(contents(&db) == model);
}

/// Found by reading: with so many gaps the reference of the copy had more runs than one can have.
#[test]
fn a_value_that_fits_into_more_gaps_than_it_can_have_runs_stays_where_it_is() {
    let mut dice = Dice(seed(11));
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().memory_limit_bytes(4 << 20).background_checkpoints(false);
    let db = options.zone_bytes(32 << 10).create(directory.path().join("birds.hrow")).unwrap();
    let keyspace = db.keyspace("songs").unwrap();
    // A zone each.
    let zone = bytes(&mut dice, (32 << 10) - 8);
    for n in 0..200 {
        keyspace.put(&key(n), &zone).unwrap();
    }
    let (long, longer) = (bytes(&mut dice, 50 * 32_760), bytes(&mut dice, 80 * 32_760));
    keyspace.put(b"long", &long).unwrap();
    keyspace.put(b"longer", &longer).unwrap();
    db.checkpoint().unwrap();
    for n in (0..200).step_by(2) {
        assert!(keyspace.remove(&key(n)).unwrap());
    }
    for _ in 0..4 {
        db.checkpoint().unwrap();
    }
    assert_eq!(get(&keyspace, b"long").unwrap(), long);
    assert_eq!(get(&keyspace, b"longer").unwrap(), longer);
    for n in (1..200).step_by(2) {
        assert_eq!(get(&keyspace, &key(n)).unwrap(), zone);
    }
    assert_sound(&db, "after values were moved to many gaps");
}

/// Two threads that swapped large values kept what they had read them into, and waited for memory to write the new ones.
#[test]
fn a_swap_of_large_values_needs_no_more_memory_than_reading_or_writing_one() {
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    let options = Options::new().page_bytes(512).memory_limit_bytes(limit).zone_bytes(32 << 10);
    let directory = tempfile::tempdir().unwrap();
    let db = crate::common::create_small(options, Some(&directory.path().join("birds.hrow")));
    let keyspace = db.keyspace("songs").unwrap();
    let (old, new) = (vec![1; 100_000], vec![2; 100_000]);
    for name in [b"open", b"swap"] {
        keyspace.put(name, &old).unwrap();
    }
    // One of two chunks that there is memory for.
    let mut reader = keyspace.value_reader(b"open").unwrap().unwrap();
    assert_eq!(reader.read_at(0, &mut [0; 100]).unwrap(), 100);
    let swapped = keyspace.compare_and_swap(b"swap", Some(&old), Some(&new)).unwrap();
    assert_eq!(swapped, CompareAndSwap::Swapped);
    assert!(get(&keyspace, b"swap").unwrap() == new);
}

/// Reports more bytes than it was asked for.
struct Boaster;

impl std::io::Read for Boaster {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        Ok(to.len() + 1)
    }
}

#[test]
fn a_stream_that_reports_more_than_it_was_asked_for_is_an_error() {
    let db = Options::new().memory_limit_bytes(16 << 20).temporary().unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    for len_bytes in [1, 100, 65_535, 65_536, 200_000] {
        let error = keyspace.put_stream(b"robin", len_bytes, Boaster).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert!(keyspace.get(b"robin").unwrap().is_none());
    }
}

/// Values are moved to the file's begin while a transaction has read one of them: it lies at another place, and is the same.
#[test]
fn a_value_that_was_moved_is_no_conflict() {
    for read in [get_it, get_it_to_change] {
        let (_directory, db) = temporary();
        let songs = db.keyspace("songs").unwrap();
        for n in 0..200_u8 {
            songs.put(&[n], &vec![n; 90_000]).unwrap();
        }
        db.checkpoint().unwrap();
        songs.remove_range(..vec![180_u8]).unwrap();
        db.checkpoint().unwrap();
        let transaction = db.transaction(Isolation::Serializable);
        let seen = transaction.keyspace(&songs).unwrap();
        assert_eq!(read(&seen).len(), 90_000);
        seen.put(b"other", b"1").unwrap();
        let in_use = || {
            let report = db.space_report().unwrap();
            report.used_bytes + report.quarantined_bytes
        };
        let before = in_use();
        for _ in 0..6 {
            db.checkpoint().unwrap();
        }
        assert!(in_use() > before + 90_000, "what was moved is kept for the transaction, too");
        transaction.commit().unwrap();
        assert_eq!(songs.get(b"other").unwrap().as_deref(), Some(&b"1"[..]));
    }
}

fn get_it(seen: &TransactionKeyspace) -> Vec<u8> {
    seen.get(&[199]).unwrap().unwrap().to_vec()
}

fn get_it_to_change(seen: &TransactionKeyspace) -> Vec<u8> {
    seen.get_for_update(&[199]).unwrap().unwrap().to_vec()
}

/// Whoever may not put it looks first, and pushes nothing out of memory.
#[test]
fn a_large_value_that_may_not_be_put_is_not_written() {
    let mut dice = Dice(seed(3));
    let disk = SimDisk::new(1);
    let options =
        Options::new().memory_limit_bytes(5 << 20).background_checkpoints(false).log(false);
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("songs").unwrap();
    let (value, other) = (bytes(&mut dice, 60_000), bytes(&mut dice, 60_000));
    let (there, long, none): (&[u8], &[u8], &[u8]) = (b"there", &[b'l'; 2000], b"none");
    keyspace.put(there, &value).unwrap();
    keyspace.put(long, &value).unwrap();
    db.checkpoint().unwrap();
    let calls = || (disk.calls(CallKind::Read), disk.calls(CallKind::Write));
    let before = calls();
    for _ in 0..100 {
        assert!(!keyspace.insert_if_absent(there, &other).unwrap());
        assert!(!keyspace.insert_if_absent(long, &other).unwrap());
        assert!(!keyspace.update(none, &other).unwrap());
        for expected in [None, Some(&other[..])] {
            let swapped = keyspace.compare_and_swap(there, expected, Some(&other)).unwrap();
            assert_eq!(swapped, CompareAndSwap::Differs(Some(value.as_slice().into())));
        }
    }
    assert_eq!(get(&keyspace, there).as_deref(), Some(&value[..]));
    assert_eq!(calls(), before);
    assert!(keyspace.insert_if_absent(none, &other).unwrap());
    assert!(keyspace.update(long, &other).unwrap());
    for key in [long, none] {
        assert_eq!(get(&keyspace, key).as_deref(), Some(&other[..]));
    }
    assert_sound(&db, "after conditional changes");
    drop(keyspace);
    db.close().unwrap();
    // What no change may do is an error all the same.
    let db = open(&options, &disk, OpenHow::ReadOnly).unwrap();
    let refused = db.open_keyspace("songs").unwrap().unwrap().insert_if_absent(there, &other);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);
    let keyspace = Options::new().in_memory().unwrap().keyspace("songs").unwrap();
    keyspace.put(there, b"short").unwrap();
    let refused = keyspace.insert_if_absent(there, &vec![0; 3_000_000]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::RecordTooLarge { .. }), "{refused}");
}
