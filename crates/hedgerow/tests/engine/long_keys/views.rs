//! What snapshots and transactions see of long keys, and what of them is a conflict; and changes in one descent of keys that look like the tree key of another one.

use super::{
    LONGEST, Map, PAGES, any_bound, any_key, any_value, assert_is, between, check_cursor,
    check_range, options, step,
};
use crate::anomalies::BOTH;
use crate::common::{Dice, assert_sound, effort, seed};
use hedgerow::{
    Cursor, Database, ErrorKind, Isolation, Keyspace, Options, Records, Result, Snapshot,
    Transaction, Value,
};
use hedgerow_testing::count;
use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Bound;

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

/// Looks at single keys, and at ranges, prefixes and a cursor.
fn check(view: &impl Records, map: &Map, dice: &mut Dice, short: usize) {
    for _ in 0..6 {
        let key = any_key(dice, short);
        let value = map.get(&key);
        assert!(view.get(&key).unwrap().as_deref() == value.map(Vec::as_slice), "get");
        assert_eq!(view.contains_key(&key).unwrap(), value.is_some());
        let mut into = vec![1; 3];
        assert_eq!(view.get_into(&key, &mut into).unwrap(), value.is_some());
        assert!(into == value.cloned().unwrap_or_default(), "get_into");
        let part = view.get_range(&key, 3..60).unwrap();
        let end =
            |value: &Vec<u8>| value.get(3..).map_or(vec![], |v| v[..v.len().min(57)].to_vec());
        assert!(part == value.map(end), "get_range");
        let mut whole = Vec::new();
        if let Some(mut reader) = view.value_reader(&key).unwrap() {
            reader.read_to_end(&mut whole).unwrap();
        }
        assert!(whole == value.cloned().unwrap_or_default(), "value_reader");
        let prefix = &key[..key.len() - dice.below(40).min(key.len() as u64) as usize];
        let found = view.prefix(prefix).keys().map(|key| key.unwrap().into_vec());
        let expected = map.keys().filter(|key| key.starts_with(prefix));
        assert!(found.eq(expected.cloned()), "prefix");
    }
    check_range(view, map, dice, short);
    check_cursor(&mut view.cursor(), map, dice, short);
}

/// A database in a file with pages of this size, or in memory. `room`: with memory for many old versions.
fn database(
    page_bytes: usize,
    in_memory: bool,
    room: bool,
) -> (Database, Option<tempfile::TempDir>) {
    if in_memory {
        let limit = hedgerow::smallest_memory_limit_bytes(page_bytes) + (48 << 20);
        let options = Options::new().page_bytes(page_bytes).memory_limit_bytes(limit);
        return (options.in_memory().unwrap(), None);
    }
    let directory = tempfile::tempdir().unwrap();
    let mut options = options(page_bytes);
    if room {
        let limit = hedgerow::smallest_memory_limit_bytes(page_bytes) + (64 << 20);
        options = options.memory_limit_bytes(limit).background_checkpoints(true);
    }
    (options.create(directory.path().join("urls.hrow")).unwrap(), Some(directory))
}

#[test]
fn snapshots_see_the_long_keys_of_their_moment() {
    let mut dice = Dice(seed(4_411));
    let mut checked = 0;
    for (page_bytes, in_memory) in
        PAGES.map(|bytes| (bytes, false)).into_iter().chain([(4096, true)])
    {
        let (db, _directory) = database(page_bytes, in_memory, true);
        let keyspace = db.keyspace("urls").unwrap();
        let short = keyspace.max_short_key_bytes();
        let mut map = Map::new();
        let mut held: Vec<(Snapshot, Map)> = Vec::new();
        for at in 0..200 * effort() {
            step(&db, &keyspace, &mut map, &mut dice, short);
            if at % 20 == 0 {
                held.truncate(3);
                held.insert(0, (db.snapshot().unwrap(), map.clone()));
            }
            if at % 70 == 69 && !in_memory {
                db.checkpoint().unwrap();
            }
            if at % 5 == 0 {
                let (snapshot, then) = &held[dice.below(held.len() as u64) as usize];
                let seen = snapshot.keyspace(&keyspace).unwrap();
                match seen.count() {
                    Ok(_) => {
                        check(&seen, then, &mut dice, short);
                        checked += 1;
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::SnapshotTooOld),
                }
            }
        }
        for (snapshot, then) in &held {
            let seen = snapshot.open_keyspace("urls").unwrap().unwrap();
            if seen.count().is_ok() {
                assert_is(&seen, then);
            }
        }
        drop(held);
        assert_sound(&db, "long keys and snapshots");
    }
    count(checked, "looks at a snapshot");
    assert!(checked > 100, "{checked}");
}

/// Of records that move from label to label a snapshot sees each once, and in order.
#[test]
fn snapshots_see_their_moment_while_records_move() {
    for in_memory in [false, true] {
        let (db, _directory) = database(4096, in_memory, true);
        let keyspace = db.keyspace("urls").unwrap();
        let head = vec![b'k'; keyspace.max_short_key_bytes() + 20];
        let at = |name: &str| [&head[..], name.as_bytes()].concat();
        let mut map = Map::new();
        let mut held: Vec<(Snapshot, Map)> = Vec::new();
        let names = ["a".to_owned(), "z".to_owned()].into_iter();
        for (number, name) in names.chain((0..160).map(|n| format!("b{n:04}"))).enumerate() {
            // Long, so that the record's value is not in the leaf, and short.
            let value = vec![number as u8; if number % 7 == 0 { 5_000 } else { 20 }];
            keyspace.put(&at(&name), &value).unwrap();
            map.insert(at(&name), value);
            if number % 25 == 3 {
                held.push((db.snapshot().unwrap(), map.clone()));
            }
            if number % 90 == 60 && !in_memory {
                db.checkpoint().unwrap();
            }
        }
        for (snapshot, then) in &held {
            let seen = snapshot.keyspace(&keyspace).unwrap();
            assert_is(&seen, then);
            for key in map.keys().step_by(7) {
                assert!(seen.get(key).unwrap().as_deref() == then.get(key).map(Vec::as_slice));
            }
        }
        drop(held);
        assert_sound(&db, "records that move");
    }
}

/// A transaction beside what it should see: what there was, and its own changes.
#[test]
fn transactions_see_their_own_long_keys_among_the_others() {
    let mut dice = Dice(seed(4_412));
    let (mut commits, mut conflicts) = (0, 0);
    for (page_bytes, in_memory) in
        PAGES.map(|bytes| (bytes, false)).into_iter().chain([(4096, true)])
    {
        let (db, _directory) = database(page_bytes, in_memory, true);
        let keyspace = db.keyspace("urls").unwrap();
        let short = keyspace.max_short_key_bytes();
        let mut map = Map::new();
        for _ in 0..30 {
            step(&db, &keyspace, &mut map, &mut dice, short);
        }
        for round in 0..24 * effort() {
            let transaction = db.transaction(BOTH[round as usize % 2]);
            let mut own = map.clone();
            let outcome = in_transaction(&transaction, &keyspace, &mut own, &mut dice, short)
                .and_then(|()| match dice.below(6) {
                    0 => {
                        transaction.abort();
                        own.clone_from(&map);
                        Ok(())
                    }
                    _ => transaction.commit().map(drop),
                });
            match outcome {
                Ok(()) => {
                    map = own;
                    commits += 1;
                }
                // It has made room among labels itself, and met what it has moved.
                Err(error) if error.kind() == ErrorKind::Conflict => conflicts += 1,
                Err(error) => {
                    assert!(
                        matches!(error.kind(), ErrorKind::TransactionTooLarge { .. }),
                        "{error}"
                    );
                }
            }
            assert_is(&keyspace, &map);
            step(&db, &keyspace, &mut map, &mut dice, short);
        }
        assert_sound(&db, "long keys and transactions");
    }
    count(commits, "transactions");
    assert!(commits > 60 && conflicts < commits / 10, "{commits}, {conflicts}");
}

fn in_transaction(
    transaction: &Transaction,
    keyspace: &Keyspace,
    own: &mut Map,
    dice: &mut Dice,
    short: usize,
) -> Result<()> {
    let urls = transaction.keyspace(keyspace)?;
    let mut savepoint = (transaction.savepoint()?, own.clone());
    for _ in 0..1 + dice.below(14) {
        let (key, mut value) = (any_key(dice, short), any_value(dice));
        value.truncate(300);
        let old = own.get(&key).cloned();
        match dice.below(12) {
            0..=3 => {
                urls.put(&key, &value)?;
                own.insert(key, value);
            }
            4 => {
                urls.remove(&key)?;
                own.remove(&key);
            }
            5 => {
                assert!(urls.swap(&key, &value)?.as_deref() == old.as_deref());
                own.insert(key, value);
            }
            6 => {
                assert_eq!(urls.insert_if_absent(&key, &value)?, old.is_none());
                own.entry(key).or_insert(value);
            }
            7 => {
                let record = urls.pop_first()?.map(|(k, v)| (k.into_vec(), v.into_vec()));
                assert!(record == own.pop_first(), "pop_first");
            }
            8 if dice.below(3) == 0 => {
                let bounds = (any_bound(dice, short), any_bound(dice, short));
                let gone = between(own, &bounds);
                assert_eq!(urls.remove_range(bounds)?, gone.len() as u64);
                gone.iter().for_each(|(key, _)| drop(own.remove(key)));
            }
            9 => {
                transaction.roll_back_to(&savepoint.0)?;
                own.clone_from(&savepoint.1);
            }
            10 => savepoint = (transaction.savepoint()?, own.clone()),
            _ => check(&urls, own, dice, short),
        }
    }
    assert_is(&urls, own);
    Ok(())
}

/// Keys with one head.
const NAMES: u8 = 16;

/// What others change is a conflict if it is one of the keys that were asked for, and not if it is another one with the same head, wherever its label is by then.
#[test]
fn a_conflict_is_a_change_of_what_was_read_and_not_of_its_neighbours() {
    let mut dice = Dice(seed(4_413));
    let (mut conflicts, mut commits, mut fresh) = (0, 0, 0_u64);
    for (in_memory, round) in
        [false, true].into_iter().flat_map(|m| (0..300 * effort()).map(move |r| (m, r)))
    {
        let (db, _directory) = database(4096, in_memory, false);
        let keyspace = db.keyspace("urls").unwrap();
        let head = vec![b'k'; keyspace.max_short_key_bytes() + 20];
        let at = |name: u8| [&head[..], &[b'a' + name]].concat();
        let mut change = |dice: &mut Dice, name: u8| {
            fresh += 1;
            let mut value = fresh.to_be_bytes().to_vec();
            value.resize(if dice.below(4) == 0 { 3_000 } else { 8 }, 3);
            match dice.below(3) {
                0 => drop(keyspace.remove(&at(name)).unwrap()),
                _ => drop(keyspace.put(&at(name), &value).unwrap()),
            }
        };
        (0..NAMES).for_each(|name| change(&mut dice, name));
        let isolation = BOTH[round as usize % 2];
        let transaction = db.transaction(isolation);
        let urls = transaction.keyspace(&keyspace).unwrap();
        // What it asks for, and what of that has to be the same in any isolation.
        let (mut read, mut guarded) = (BTreeSet::new(), BTreeSet::new());
        for _ in 0..1 + dice.below(3) {
            let low = dice.below(u64::from(NAMES)) as u8;
            let high = (low + dice.below(5) as u8).min(NAMES - 1);
            match dice.below(6) {
                0 => {
                    urls.get(&at(low)).unwrap();
                    read.insert(low);
                }
                1 => {
                    let _ = urls.range(at(low)..=at(high)).keys().count();
                    read.extend(low..=high);
                }
                2 => {
                    let bounds = (Bound::Excluded(at(low)), Bound::Excluded(at(high)));
                    let _ = urls.range(bounds).rev().count();
                    read.extend(low + 1..high);
                }
                3 => {
                    let mut cursor = urls.cursor();
                    cursor.seek(&at(low));
                    let found = cursor.next_record().unwrap();
                    let last = found.map_or(NAMES, |(key, _)| key[key.len() - 1] - b'a');
                    read.extend(low..=last);
                }
                4 => {
                    urls.get_for_update(&at(low)).unwrap();
                    guarded.insert(low);
                }
                _ => {
                    urls.remove_range(at(low)..=at(high)).unwrap();
                    guarded.extend(low..=high);
                }
            }
        }
        let then = contents(&db);
        for _ in 0..dice.below(14) {
            let name = dice.below(u64::from(NAMES)) as u8;
            change(&mut dice, name);
        }
        let now = contents(&db);
        let written = dice.below(u64::from(NAMES)) as u8;
        urls.put(&at(written), b"own").unwrap();
        match isolation {
            Isolation::Serializable => guarded.extend(read),
            // It may have begun with its commit.
            _ if guarded.is_empty() => continue,
            _ => drop(guarded.insert(written)),
        }
        let changed =
            guarded.iter().map(|name| at(*name)).filter(|key| then.get(key) != now.get(key));
        let changed: Vec<Vec<u8>> = changed.collect();
        match transaction.commit() {
            Ok(_) => {
                assert!(changed.is_empty(), "round {round}: {} keys have changed", changed.len());
                assert_eq!(keyspace.get(&at(written)).unwrap().unwrap(), b"own");
                commits += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                let (name, key) = error.conflict().unwrap();
                let last = key.last().map(|name| name - b'a');
                assert!(
                    name == "urls" && changed.iter().any(|of| of == key),
                    "round {round}: {last:?} of {guarded:?}, {} keys have changed",
                    changed.len()
                );
                conflicts += 1;
            }
        }
    }
    count(conflicts + commits, "commits beside changes of neighbours");
    assert!(conflicts > 50 && commits > 50, "{conflicts}, {commits}");
}

/// The first key of a head gets the label in the middle, also if there was another first one before.
#[test]
fn what_has_gone_is_missed_where_another_key_has_its_label() {
    let (db, _directory) = database(4096, true, false);
    let keyspace = db.keyspace("urls").unwrap();
    let at = |name: u8| last(name, keyspace.max_short_key_bytes() + 9);
    keyspace.put(&at(b'e'), b"1").unwrap();
    let transaction = db.transaction(Isolation::Serializable);
    let urls = transaction.keyspace(&keyspace).unwrap();
    assert_eq!(urls.range(at(b'c')..at(b'z')).count(), 1);
    keyspace.remove(&at(b'e')).unwrap();
    keyspace.put(&at(b'a'), b"2").unwrap();
    urls.put(b"other", b"").unwrap();
    let error = transaction.commit().unwrap_err();
    assert_eq!(error.conflict(), Some(("urls", &at(b'e')[..])));
}

fn contents(db: &Database) -> Map {
    values(db).into_iter().collect()
}

/// A key that is only written is no conflict for who has read nothing, and of two that have read it one commits.
#[test]
fn long_keys_are_swapped_by_one_of_two() {
    let (db, _directory) = database(4096, true, false);
    let keyspace = db.keyspace("urls").unwrap();
    let key = last(b'x', keyspace.max_short_key_bytes() + 9);
    for isolation in BOTH {
        let blind = [1, 2].map(|_| db.transaction(isolation));
        for transaction in blind {
            transaction.keyspace(&keyspace).unwrap().put(&key, b"1").unwrap();
            keyspace.put(&key, b"0").unwrap();
            transaction.commit().unwrap();
        }
        let both = [1, 2].map(|_| db.transaction(isolation));
        let handles = [0, 1].map(|at: usize| both[at].keyspace(&keyspace).unwrap());
        for handle in &handles {
            assert_eq!(handle.swap(&key, b"2").unwrap().unwrap(), b"1");
        }
        let commits = both.into_iter().map(Transaction::commit);
        assert_eq!(commits.filter(std::result::Result::is_ok).count(), 1);
        // Whose only change is a removal of nothing has read all the same.
        let transaction = db.transaction(Isolation::Serializable);
        let urls = transaction.keyspace(&keyspace).unwrap();
        assert!(urls.contains_key(&key).unwrap());
        urls.remove(&key).unwrap();
        keyspace.remove(&key).unwrap();
        let error = transaction.commit().unwrap_err();
        assert_eq!(error.conflict(), Some(("urls", &key[..])));
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
    assert_eq!(wrong.kind(), ErrorKind::InvalidArgument);
    assert!(keyspace.remove(&like).unwrap());
    assert_eq!(values(&db), before);
    for too_long in [vec![b'k'; LONGEST + 1], vec![b'q'; 2 * LONGEST]] {
        let kind = ErrorKind::KeyTooLong { len_bytes: too_long.len(), max_bytes: LONGEST };
        assert_eq!(keyspace.swap(&too_long, b"1").unwrap_err().kind(), kind);
        assert_eq!(keyspace.fetch_add(&too_long, 1).unwrap_err().kind(), kind);
        let updated = keyspace.fetch_update(&too_long, |_| Some(b"1"));
        assert_eq!(updated.unwrap_err().kind(), kind);
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

/// The cursor was sent to a long key in a store that has none, and goes on over short ones before the store gets its first.
#[test]
fn a_cursor_that_was_sent_to_a_long_key_repeats_nothing_when_the_first_long_record_comes() {
    for form in [vec![0; 5000], vec![0; 20]] {
        let db = Options::new().in_memory().unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        for key in ["a1", "a2", "a3", "z1", "z2", "z3"] {
            wrens.put(key.as_bytes(), b"").unwrap();
        }
        let (mut up, mut down) = (wrens.cursor(), wrens.cursor());
        for cursor in [&mut up, &mut down] {
            cursor.seek(&[b'h'; 2000]);
        }
        let next = |up: &mut Cursor| up.next_record().unwrap().unwrap().0.to_vec();
        let previous = |down: &mut Cursor| down.previous_record().unwrap().unwrap().0.to_vec();
        assert_eq!([next(&mut up), next(&mut up)], [b"z1", b"z2"]);
        assert_eq!([previous(&mut down), previous(&mut down)], [b"a3", b"a2"]);
        // A long value, or a long key.
        let key = if form.len() > 1000 { b"b".to_vec() } else { vec![b'b'; 2000] };
        wrens.put(&key, &form).unwrap();
        assert_eq!(next(&mut up), b"z3");
        assert_eq!(previous(&mut down), b"a1");
    }
}
