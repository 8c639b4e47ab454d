//! What snapshots and transactions say of long keys: that they do not take them, and never another record; and changes in one descent
//! of keys that look like the tree key of another one.

use super::{LONGEST, PAGES, options};
use crate::common::assert_sound;
use hedgerow::{Database, ErrorKind, Isolation, Keyspace, Options, Result, Snapshot, Value};
use std::ops::{Bound, ControlFlow};

/// Expects a refusal of a key of so many bytes.
fn assert_refused<T>(outcome: Result<T>, len_bytes: usize, max_bytes: usize) {
    let error = outcome.err().expect("a refusal");
    assert_eq!(*error.kind(), ErrorKind::KeyTooLong { len_bytes, max_bytes }, "{error}");
    assert!(error.to_string().contains("snapshots and transactions"), "{error}");
}

/// Expects the error of a view that has come to a record of a long key.
fn assert_met<T>(outcome: Result<T>, short: usize) {
    let error = outcome.err().expect("a long key was met");
    assert!(matches!(error.kind(), ErrorKind::KeyTooLong { .. }), "{error}");
    let words = format!("a record has a key of more than {short} bytes");
    assert!(error.to_string().contains(&words), "{error}");
}

fn keys_of(range: hedgerow::Range) -> Vec<Vec<u8>> {
    range.map(|record| record.unwrap().0.into_vec()).collect()
}

fn last(name: u8, len: usize) -> Vec<u8> {
    let mut key = vec![b'k'; len];
    key[len - 1] = name;
    key
}

/// A head's first label, behind the head: the tree key of the only long key with that head.
fn like_a_tree_key(short: usize) -> Vec<u8> {
    let mut key = vec![b'k'; short + 6];
    key[short..].copy_from_slice(&[0x80, 0, 0, 0, 0, 0]);
    key
}

/// Short records before, at and behind the head of one long key.
fn fill(keyspace: &Keyspace) -> usize {
    let short = keyspace.max_short_key_bytes();
    for key in [&b"a"[..], &vec![b'k'; short], b"z"] {
        keyspace.put(key, b"short").unwrap();
    }
    keyspace.put(&last(b'x', short + 9), b"long").unwrap();
    short
}

/// All reads of a view over what [`fill`] has put; of a snapshot and of a transaction.
macro_rules! check_reads {
    ($view:expr, $short:expr) => {{
        let (view, short): (_, usize) = ($view, $short);
        let head = vec![b'k'; short];
        // The key that is there, one that looks like its tree key, and others.
        let mut long: Vec<Vec<u8>> = (1..=7).map(|more| vec![b'k'; short + more]).collect();
        long.extend([last(b'x', short + 9), like_a_tree_key(short), vec![b'q'; LONGEST]]);
        for key in &long {
            let len = key.len();
            assert_refused(view.get(key), len, short);
            assert_refused(view.get_into(key, &mut Vec::new()), len, short);
            assert_refused(view.get_many(&[b"a", key.as_slice()]), len, short);
            assert_refused(view.contains_key(key), len, short);
            assert_refused(view.get_range(key, ..), len, short);
            assert_refused(view.value_reader(key), len, short);
            let mut cursor = view.cursor();
            cursor.seek(key);
            assert_refused(cursor.next_record().map(drop), len, short);
            cursor.seek(b"a");
            assert_refused(cursor.previous_record().map(drop), len, short);
        }
        assert_eq!(view.get(&head).unwrap().unwrap(), b"short");

        // What comes before the long key is handed over, and then there is an error.
        let mut all = view.iter();
        assert_eq!(all.next().unwrap().unwrap().0, b"a");
        assert_eq!(all.next().unwrap().unwrap().0, head);
        assert_met(all.next().unwrap(), short);
        assert!(all.next().is_none());
        let mut back = view.iter().keys();
        assert_eq!(back.next_back().unwrap().unwrap(), b"z");
        assert_met(back.next_back().unwrap(), short);
        assert_met(view.count(), short);
        let mut cursor = view.cursor();
        assert_eq!(cursor.next_record().unwrap().unwrap().0, b"a");
        let mut seen = Vec::new();
        let visited = cursor.visit(|key, _| {
            seen.push(key.to_vec());
            ControlFlow::<()>::Continue(())
        });
        assert_met(visited, short);
        assert_eq!(seen, std::slice::from_ref(&head));
        assert_met(cursor.previous_record().map(drop), short);

        // A range that has no long key in it has the records that it should have, whatever its bounds.
        let at = |key: &[u8]| Bound::Included(key.to_vec());
        assert_eq!(keys_of(view.range((Bound::Unbounded, at(&head)))), [b"a".to_vec(), head.clone()]);
        assert_eq!(keys_of(view.range((at(b"l"), Bound::Unbounded))), [b"z".to_vec()]);
        let (low, high) = (vec![b'b'; LONGEST], vec![b'q'; LONGEST]);
        assert_eq!(keys_of(view.range((at(&low), at(&head)))), std::slice::from_ref(&head));
        assert_eq!(keys_of(view.range((at(b"l"), at(&high)))), Vec::<Vec<u8>>::new());
        assert_eq!(keys_of(view.range((at(&high), Bound::Unbounded))), [b"z".to_vec()]);
        let below = vec![b'k'; LONGEST];
        assert_eq!(keys_of(view.range((at(&last(b'x', short + 9)), at(&below)))), Vec::<Vec<u8>>::new());
        assert_eq!(keys_of(view.prefix(&low)), Vec::<Vec<u8>>::new());
        // One that ends among keys of the same head might have some.
        for bound in [last(b'a', short + 1), last(b'x', short + 9), like_a_tree_key(short)] {
            assert_met(view.range((at(&bound), Bound::Unbounded)).next().unwrap(), short);
            assert_met(view.range((Bound::Unbounded, at(&bound))).next_back().unwrap(), short);
            let excluded = (Bound::Excluded(bound.clone()), Bound::Excluded(b"l".to_vec()));
            assert_met(view.range(excluded).next().unwrap(), short);
        }
        assert_met(view.prefix(&vec![b'k'; short + 1]).next().unwrap(), short);
    }};
}

fn check_snapshot(snapshot: &Snapshot, keyspace: &Keyspace, short: usize) {
    check_reads!(snapshot.keyspace(keyspace).unwrap(), short);
    check_reads!(snapshot.open_keyspace("urls").unwrap().unwrap(), short);
}

#[test]
fn snapshots_refuse_long_keys_and_hand_over_no_other_record_for_one() {
    for page_bytes in PAGES {
        let directory = tempfile::tempdir().unwrap();
        let db = options(page_bytes).create(directory.path().join("urls.hrow")).unwrap();
        let keyspace = db.keyspace("urls").unwrap();
        let short = fill(&keyspace);
        let before = db.snapshot().unwrap();
        check_snapshot(&before, &keyspace, short);
        // It is removed, and the snapshot has it still, in a version and then in the checkpoint.
        assert!(keyspace.remove(&last(b'x', short + 9)).unwrap());
        check_snapshot(&before, &keyspace, short);
        let after = db.snapshot().unwrap();
        db.checkpoint().unwrap();
        check_snapshot(&before, &keyspace, short);
        keyspace.put(&last(b'y', short + 9), b"long").unwrap();
        let keys = keys_of(after.keyspace(&keyspace).unwrap().iter());
        assert_eq!(keys, [b"a".to_vec(), vec![b'k'; short], b"z".to_vec()]);
        assert_sound(&db, "long keys and snapshots");
    }
}

#[test]
fn transactions_refuse_long_keys_and_change_nothing_then() {
    for page_bytes in PAGES {
        let limit = hedgerow::smallest_memory_limit_bytes(page_bytes) + (48 << 20);
        let options = Options::new().page_bytes(page_bytes).memory_limit_bytes(limit);
        let db = options.in_memory().unwrap();
        let keyspace = db.keyspace("urls").unwrap();
        let short = fill(&keyspace);
        for isolation in [Isolation::Snapshot, Isolation::Serializable] {
            let transaction = db.transaction(isolation);
            let urls = transaction.keyspace(&keyspace).unwrap();
            check_reads!(&urls, short);
            for key in [vec![b'k'; short + 1], last(b'x', short + 9), like_a_tree_key(short)] {
                let len = key.len();
                assert_refused(urls.put(&key, b"1"), len, short);
                assert_refused(urls.remove(&key), len, short);
                assert_refused(urls.get_for_update(&key), len, short);
                assert_refused(urls.insert_if_absent(&key, b"1"), len, short);
                assert_refused(urls.update(&key, b"1"), len, short);
                assert_refused(urls.compare_and_swap(&key, None, Some(b"1")), len, short);
                assert_refused(urls.fetch_update(&key, |_| Some(b"1")), len, short);
                assert_refused(urls.swap(&key, b"1"), len, short);
                assert_refused(urls.take(&key), len, short);
                assert_refused(urls.fetch_add(&key, 1), len, short);
                assert_refused(
                    urls.get_or_insert_with(&key, || Value::from(&b"1"[..])),
                    len,
                    short,
                );
                assert_refused(urls.update_and_fetch(&key, |_| Some(b"1")), len, short);
            }
            assert_met(urls.remove_range(b"l".to_vec()..).map(|_| ()).and(urls.last()), short);
            assert_met(urls.remove_range(last(b'a', short + 1)..=b"z".to_vec()), short);
            // It can go on, and commit.
            urls.put(b"b", b"1").unwrap();
            drop(urls);
            transaction.commit().unwrap();
            assert_eq!(keyspace.get(b"b").unwrap().unwrap(), b"1");
            assert!(!keyspace.contains_key(b"z").unwrap());
            assert_eq!(keyspace.get(&last(b'x', short + 9)).unwrap().unwrap(), b"long");
            keyspace.remove(b"b").unwrap();
            keyspace.put(b"z", b"short").unwrap();
        }
        assert_sound(&db, "long keys and transactions");
    }
}

/// A long key that comes into a range which a serializable transaction has read is a conflict.
#[test]
fn a_long_key_that_comes_into_a_range_that_was_read_is_a_conflict() {
    let db = Options::new().in_memory().unwrap();
    let keyspace = db.keyspace("urls").unwrap();
    let short = keyspace.max_short_key_bytes();
    let new = last(b'x', short + 9);
    let at = |key: &[u8]| Bound::Included(key.to_vec());
    let ranges = [
        (at(b"k"), at(b"l")),
        (at(&last(b'a', short + 9)), at(&last(b'z', short + 9))),
        (at(&like_a_tree_key(short)), Bound::Unbounded),
    ];
    for range in ranges {
        keyspace.put(b"a", b"short").unwrap();
        for removes in [false, true] {
            let transaction = db.transaction(Isolation::Serializable);
            let urls = transaction.keyspace(&keyspace).unwrap();
            match removes {
                true => assert_eq!(urls.remove_range(range.clone()).unwrap(), 0),
                false => assert_eq!(keys_of(urls.range(range.clone())), Vec::<Vec<u8>>::new()),
            }
            keyspace.put(&new, b"long").unwrap();
            urls.put(b"b", b"1").unwrap();
            let kind = transaction.commit().unwrap_err();
            assert!(matches!(kind.kind(), ErrorKind::Conflict), "{kind}");
            assert!(keyspace.remove(&new).unwrap());
        }
    }
}

fn values(of: &Database) -> Vec<(Vec<u8>, Vec<u8>)> {
    let keyspace = of.keyspace("urls").unwrap();
    let pair = |record: Result<(Value, Value)>| record.map(|(k, v)| (k.into_vec(), v.into_vec()));
    keyspace.iter().map(pair).collect::<Result<_>>().unwrap()
}

#[test]
fn changes_in_one_descent_do_not_take_a_key_for_the_tree_key_of_another() {
    let db = Options::new().in_memory().unwrap();
    let keyspace = db.keyspace("urls").unwrap();
    let short = fill(&keyspace);
    let before = values(&db);
    let like = like_a_tree_key(short);
    assert!(keyspace.take(&like).unwrap().is_none());
    assert!(keyspace.fetch_update(&like, |old| old.map(<[u8]>::to_vec)).unwrap().is_none());
    assert_eq!(values(&db), before);
    assert!(keyspace.swap(&like, b"1").unwrap().is_none());
    assert_eq!(keyspace.swap(&like, &5_i64.to_be_bytes()).unwrap().unwrap(), b"1");
    assert_eq!(keyspace.fetch_add(&like, 2).unwrap(), 5);
    assert_eq!(keyspace.take(&like).unwrap().unwrap(), 7_i64.to_be_bytes());
    assert_eq!(keyspace.fetch_add(&like, 3).unwrap(), 0);
    let new = keyspace.update_and_fetch(&like, |old| old.map(<[u8]>::to_vec)).unwrap();
    assert_eq!(new.unwrap(), 3_i64.to_be_bytes());
    let wrong = keyspace.fetch_add(&last(b'x', short + 9), 1).unwrap_err();
    assert_eq!(*wrong.kind(), ErrorKind::InvalidArgument);
    assert!(keyspace.remove(&like).unwrap());
    assert_eq!(values(&db), before);
    for too_long in [vec![b'k'; LONGEST + 1], vec![b'q'; 2 * LONGEST]] {
        let kind = ErrorKind::KeyTooLong { len_bytes: too_long.len(), max_bytes: LONGEST };
        assert_eq!(*keyspace.swap(&too_long, b"1").unwrap_err().kind(), kind);
        assert_eq!(*keyspace.fetch_add(&too_long, 1).unwrap_err().kind(), kind);
        let updated = keyspace.fetch_update(&too_long, |_| Some(b"1"));
        assert_eq!(*updated.unwrap_err().kind(), kind);
    }
}

/// Threads add to integers with long keys of one head; none of the additions is lost.
#[test]
fn additions_to_integers_with_long_keys_add_up() {
    let db = Options::new().in_memory().unwrap();
    let keyspace = db.keyspace("urls").unwrap();
    let short = keyspace.max_short_key_bytes();
    let key = |number: usize| [vec![b'k'; short + 3], number.to_be_bytes().to_vec()].concat();
    const TURNS: i64 = 300;
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (keyspace, key) = (&keyspace, &key);
            scope.spawn(move || {
                for turn in 0..TURNS {
                    keyspace.fetch_add(&key(turn as usize % 2), 1 + thread).unwrap();
                }
            });
        }
    });
    for number in 0..2 {
        let sum = keyspace.fetch_add(&key(number), 0).unwrap();
        assert_eq!(sum, (1 + 2 + 3) * TURNS / 2);
    }
}

/// Long bounds of estimates: all keys of a head count, or none.
#[test]
fn estimates_take_bounds_of_any_length() {
    let db = Options::new().in_memory().unwrap();
    let keyspace = db.keyspace("urls").unwrap();
    let short = fill(&keyspace);
    let about = |bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>)| {
        let len_bytes = keyspace.approximate_len_bytes(bounds.clone()).unwrap();
        assert!(len_bytes > 0);
        keyspace.approximate_count(bounds).unwrap()
    };
    let from = |key: Vec<u8>| (Bound::Included(key), Bound::Unbounded);
    assert_eq!(about(from(last(b'b', short + 1))), 2);
    assert_eq!(about(from(vec![b'q'; LONGEST])), 1);
    assert_eq!(about((Bound::Unbounded, Bound::Excluded(last(b'b', short + 6)))), 3);
    assert_eq!(about((Bound::Unbounded, Bound::Excluded(vec![b'c'; LONGEST]))), 1);
    let long = last(b'x', short + 9);
    assert_eq!(keyspace.approximate_count(long.clone()..long).unwrap(), 0);
}
