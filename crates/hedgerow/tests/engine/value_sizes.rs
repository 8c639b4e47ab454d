//! Values at the limits of each form, in pages of every size, and values that change their form.
#![allow(clippy::disallowed_methods, reason = "a test with files of its own")]

use crate::common::{Dice, assert_sound, bytes, get, seed};
use hedgerow::{Database, ErrorKind, Keyspace, Options};
use std::collections::BTreeMap;

const PAGES: [usize; 8] = [512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536];

fn options(page_bytes: usize) -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(page_bytes) + (4 << 20);
    // Pages of less than a block of the disk.
    Options::new()
        .page_bytes(page_bytes)
        .memory_limit_bytes(limit)
        .direct_io(false)
        .background_checkpoints(false)
}

fn create(page_bytes: usize) -> (tempfile::TempDir, Database) {
    let directory = tempfile::tempdir().unwrap();
    let db = options(page_bytes).create(directory.path().join("birds.hrow")).unwrap();
    (directory, db)
}

fn assert_is(keyspace: &Keyspace, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    let found = keyspace.iter().map(|record| record.unwrap());
    let found = found.map(|(key, value)| (key.into_vec(), value.into_vec()));
    assert!(found.eq(model.iter().map(|(key, value)| (key.clone(), value.clone()))));
}

/// At, below and above the longest short key and the largest record, with each other, in files and in memory.
#[test]
fn records_at_the_limits_of_pages_of_every_size() {
    for page_bytes in PAGES {
        let (directory, db) = create(page_bytes);
        let keyspace = db.keyspace("songs").unwrap();
        let in_memory = options(page_bytes).in_memory().unwrap();
        let small = in_memory.keyspace("songs").unwrap();
        let (longest, largest) = (keyspace.max_short_key_bytes(), keyspace.max_record_bytes());
        assert_eq!(largest, 2 * longest);
        let mut dice = Dice(seed(page_bytes as u64));
        let mut model = BTreeMap::new();
        for key_len in [1, 8, longest - 1, longest] {
            for record_len in
                [longest - 1, longest, longest + 1, largest - 1, largest, largest + 1, 2 * largest]
            {
                let Some(len) = record_len.checked_sub(key_len) else { continue };
                let mut key = vec![b'k'; key_len];
                key[0] = record_len as u8;
                let value = bytes(&mut dice, len);
                keyspace.put(&key, &value).unwrap();
                assert_eq!(get(&keyspace, &key).unwrap(), value, "{key_len}, {record_len}");
                small.put(&key, &value).unwrap();
                assert_eq!(get(&small, &key).unwrap(), value, "{key_len}, {record_len}");
                model.insert(key, value);
            }
        }
        let refused = keyspace.put(&vec![b'k'; keyspace.max_key_bytes() + 1], b"").unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::KeyTooLong { .. }), "{refused}");
        assert_is(&keyspace, &model);
        assert_sound(&db, "records at the limits");
        drop(keyspace);
        db.close().unwrap();
        let db = Options::new().direct_io(false).open(directory.path().join("birds.hrow")).unwrap();
        assert_is(&db.keyspace("songs").unwrap(), &model);
        assert_is(&small, &model);
        assert_sound(&in_memory, "records at the limits, in memory");
    }
}

/// Values grow and shrink through a leaf's forms and out of it, with keys of any length beside them.
#[test]
fn values_that_change_their_size_agree_with_a_map() {
    for page_bytes in [512, 4096, 16_384] {
        let (directory, db) = create(page_bytes);
        let keyspace = db.keyspace("songs").unwrap();
        let (longest, largest) = (keyspace.max_short_key_bytes(), keyspace.max_record_bytes());
        let mut dice = Dice(seed(page_bytes as u64 + 1));
        let mut model = BTreeMap::new();
        for step in 0..3_000 {
            let number = dice.below(120);
            let mut key = number.to_be_bytes().to_vec();
            // The same number always has the same key.
            key.resize(if number.is_multiple_of(7) { longest } else { 8 }, number as u8);
            let most = largest - key.len();
            let len = match dice.below(8) {
                0 => dice.below(30),
                1 => most as u64 - dice.below(3),
                2 => most as u64 + 1 + dice.below(3 * page_bytes as u64),
                3 => most as u64 / 2 + dice.below(3) - 1,
                _ => dice.below(most as u64 + 1),
            };
            match dice.below(10) {
                0 => assert_eq!(keyspace.remove(&key).unwrap(), model.remove(&key).is_some()),
                _ => {
                    let value = bytes(&mut dice, len as usize);
                    let was_there = model.insert(key.clone(), value.clone()).is_some();
                    assert_eq!(keyspace.put(&key, &value).unwrap(), was_there);
                }
            }
            if step % 1_000 == 999 {
                db.checkpoint().unwrap();
                assert_is(&keyspace, &model);
                assert_sound(&db, "values of changing size");
            }
        }
        drop(keyspace);
        // Not closed: the log has all of it.
        drop(db);
        let db = Options::new().direct_io(false).open(directory.path().join("birds.hrow")).unwrap();
        assert_is(&db.keyspace("songs").unwrap(), &model);
        assert_sound(&db, "values of changing size, recovered");
    }
}
