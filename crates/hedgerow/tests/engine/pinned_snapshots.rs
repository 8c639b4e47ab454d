//! Snapshots that live for longer than there is memory for old versions: checkpoints take them over, and they go on to see their moment.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{Dice, assert_sound, effort, open, path, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{
    Database, Error, ErrorKind, HeldBy, Isolation, Keyspace, Options, Snapshot, WriteBatch,
};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const KEYS: u64 = 8000;

fn options(log: bool) -> Options {
    Options::new().page_bytes(4096).memory_limit_bytes(2 << 20).log(log)
}

/// Of a round of overwriting: which one it was is in the value.
fn value(n: u64, round: u64) -> Vec<u8> {
    [&round.to_be_bytes()[..], &[n as u8; 100]].concat()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

fn fill(keyspace: &Keyspace, count: u64) {
    for n in 0..count {
        keyspace.put(&key(n), &value(n, 0)).unwrap();
    }
}

/// What a snapshot shows of the keyspace, if that is what was there: in which round each record was put last.
fn rounds(snapshot: &Snapshot, wrens: &Keyspace, forward: bool) -> Result<Vec<u64>, Error> {
    let seen = snapshot.keyspace(wrens)?;
    let records: Vec<_> = match forward {
        true => seen.iter().collect::<Result<_, _>>()?,
        false => {
            let mut records: Vec<_> = seen.iter().rev().collect::<Result<_, _>>()?;
            records.reverse();
            records
        }
    };
    assert_eq!(records.len() as u64, KEYS);
    let round = |(n, (found, shown)): (u64, (hedgerow::Value, hedgerow::Value))| {
        let round = u64::from_be_bytes(shown[..8].try_into().unwrap());
        assert_eq!((found.as_bytes(), shown.as_bytes()), (&key(n)[..], &value(n, round)[..]));
        round
    };
    Ok((0..).zip(records).map(round).collect())
}

fn is_too_old(error: &Error) -> bool {
    error.kind() == ErrorKind::SnapshotTooOld
}

#[test]
fn a_snapshot_is_not_given_up_while_everything_is_overwritten_many_times() {
    let mut dice = Dice(seed(71));
    for log in [true, false] {
        let disk = SimDisk::new(dice.roll());
        let db = open(&options(log), &disk, OpenHow::New).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        fill(&wrens, KEYS);
        for _ in 0..4 {
            db.checkpoint().unwrap();
        }
        let before = db.space_report().unwrap().file_bytes;
        let snapshot = db.snapshot().unwrap();
        let seen = snapshot.keyspace(&wrens).unwrap();
        for round in 1..=10 * effort() {
            for _ in 0..KEYS {
                let n = dice.below(KEYS);
                wrens.put(&key(n), &value(n, round)).unwrap();
            }
            let n = dice.below(KEYS);
            assert_eq!(seen.get(&key(n)).unwrap().unwrap().as_bytes(), value(n, 0));
        }
        // Keys that come and go.
        for n in 0..KEYS / 2 {
            wrens.remove(&key(2 * n)).unwrap();
            wrens.put(&[&key(n)[..], b"!"].concat(), b"new").unwrap();
        }
        // Whenever it was taken over, and even if it was not yet: from here on the file keeps what it sees.
        db.checkpoint().unwrap();
        for n in 0..KEYS {
            wrens.put(&key(n), &value(n, 1)).unwrap();
        }
        db.checkpoint().unwrap();
        for forward in [true, false] {
            assert_eq!(rounds(&snapshot, &wrens, forward).unwrap(), [0; KEYS as usize]);
        }
        let stats = db.stats().unwrap().snapshots;
        assert_eq!((stats.pinned, stats.given_up), (1, 0));
        let report = db.space_report().unwrap();
        assert!(report.quarantined_bytes > before / 4, "a checkpoint is pinned: {report:?}");
        assert!(report.file_bytes < 4 * before, "{before} bytes became {report:?}");
        drop((seen, snapshot));
        for _ in 0..20 {
            db.checkpoint().unwrap();
        }
        assert_eq!(db.space_report().unwrap().quarantined_bytes, 0);
        assert_sound(&db, "the snapshot has ended");
    }
}

/// Some rounds, with a snapshot before each, of which most are held. How many see their moments in the end, and how many are too old.
fn hold_many(db: &Database, dice: &mut Dice, checkpoints: bool) -> (u64, u64) {
    let wrens = db.keyspace("wrens").unwrap();
    let mut now = vec![0; KEYS as usize];
    fill(&wrens, KEYS);
    let mut held = Vec::new();
    for round in 1..=30 {
        held.push((db.snapshot().unwrap(), now.clone()));
        if checkpoints {
            db.checkpoint().unwrap();
        }
        for _ in 0..KEYS / 8 {
            let n = dice.below(KEYS);
            wrens.put(&key(n), &value(n, round)).unwrap();
            now[n as usize] = round;
        }
        let (snapshot, then) = &held[dice.below(held.len() as u64) as usize];
        match rounds(snapshot, &wrens, round % 2 == 0) {
            Ok(found) => assert_eq!(found, *then),
            Err(error) => assert!(is_too_old(&error), "{error}"),
        }
        if round % 10 == 0 {
            held.remove(dice.below(held.len() as u64) as usize);
        }
    }
    let (mut right, mut too_old) = (0, 0);
    for (snapshot, then) in &held {
        match rounds(snapshot, &wrens, true) {
            Ok(found) => {
                assert_eq!(found, *then);
                right += 1;
            }
            Err(error) => {
                assert!(is_too_old(&error), "{error}");
                too_old += 1;
            }
        }
    }
    (right, too_old)
}

#[test]
fn snapshots_begun_one_after_the_other_and_held_see_their_moments_or_are_too_old() {
    let mut dice = Dice(seed(72));
    for log in [true, false] {
        for checkpoints in [true, false] {
            let db = open(&options(log), &SimDisk::new(dice.roll()), OpenHow::New).unwrap();
            let (right, too_old) = hold_many(&db, &mut dice, checkpoints);
            count(right, "snapshots that see their moments");
            count(too_old, "snapshots that are too old");
            // With a checkpoint at once there is next to nothing in between that has to be kept.
            assert!(right > 0 && (too_old == 0 || !checkpoints), "{right}, {too_old}");
            assert_sound(&db, "all snapshots have ended");
        }
    }
}

/// Each writer puts the same number into all records of a group, by a batch.
#[test]
fn snapshots_that_are_held_beside_writers_see_whole_batches_for_as_long_as_they_live() {
    const GROUPS: u64 = 200;
    const EACH: u64 = 5;
    let disk = SimDisk::new(1);
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    let options = Options::new().page_bytes(512).memory_limit_bytes(limit);
    let db = open(&options.checkpoint_bytes(64 << 10), &disk, OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    let name = |group: u64, n: u64| [n.to_be_bytes(), group.to_be_bytes()].concat();
    let put = |group: u64, number: u64| {
        let mut batch = WriteBatch::new();
        for n in 0..EACH {
            batch.put(&wrens, &name(group, n), &number.to_be_bytes()).unwrap();
        }
        db.write(&batch).unwrap();
    };
    (0..GROUPS).for_each(|group| put(group, 0));
    let is_over = AtomicBool::new(false);
    let (looks, too_old) = std::thread::scope(|scope| {
        for half in 0..2 {
            let (put, is_over) = (&put, &is_over);
            scope.spawn(move || {
                let mut dice = Dice(half);
                for number in 1.. {
                    if is_over.load(Relaxed) {
                        return;
                    }
                    put(dice.below(GROUPS / 2) * 2 + half, number);
                }
            });
        }
        let (mut dice, mut held) = (Dice(seed(73)), Vec::<(Snapshot, Vec<u64>)>::new());
        let (mut looks, mut too_old) = (0, 0);
        let look = |snapshot: &Snapshot, by_scan: bool| -> Result<Vec<u64>, Error> {
            let seen = snapshot.keyspace(&wrens)?;
            let number = |shown: &[u8]| u64::from_be_bytes(shown.try_into().unwrap());
            let mut numbers = Vec::new();
            if by_scan {
                for record in seen.iter() {
                    numbers.push(number(&record?.1));
                }
            } else {
                for n in 0..EACH {
                    for group in 0..GROUPS {
                        numbers.push(number(&seen.get(&name(group, n))?.expect("it was put")));
                    }
                }
            }
            assert_eq!(numbers.len() as u64, GROUPS * EACH);
            let parts: Vec<&[u64]> = numbers.chunks(GROUPS as usize).collect();
            assert!(parts.iter().all(|part| *part == parts[0]), "half of a batch");
            Ok(parts[0].to_vec())
        };
        for _ in 0..200 * effort() {
            if held.len() < 5 {
                let snapshot = db.snapshot().unwrap();
                match look(&snapshot, dice.below(2) == 0) {
                    Ok(first) => held.push((snapshot, first)),
                    Err(error) => assert!(is_too_old(&error), "{error}"),
                }
            }
            if held.is_empty() {
                continue;
            }
            let at = dice.below(held.len() as u64) as usize;
            match look(&held[at].0, dice.below(2) == 0) {
                Ok(again) => {
                    assert_eq!(again, held[at].1);
                    looks += 1;
                    if dice.below(12) == 0 {
                        held.swap_remove(at);
                    }
                }
                Err(error) => {
                    assert!(is_too_old(&error), "{error}");
                    too_old += 1;
                    held.swap_remove(at);
                }
            }
        }
        is_over.store(true, Relaxed);
        (looks, too_old)
    });
    count(looks, "looks at snapshots that are held");
    assert!(looks > 50, "{looks}, {too_old}");
    assert_sound(&db, "writers and snapshots have ended");
}

#[test]
fn a_keyspace_that_is_dropped_is_seen_by_the_snapshots_before() {
    let disk = SimDisk::new(3);
    let db = open(&options(true), &disk, OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    fill(&wrens, KEYS);
    let snapshot = db.snapshot().unwrap();
    wrens.put(&key(5), &value(5, 1)).unwrap();
    let later = db.snapshot().unwrap();
    assert!(db.drop_keyspace("wrens").unwrap());
    let robins = db.keyspace("robins").unwrap();
    fill(&robins, KEYS);
    db.checkpoint().unwrap();
    for forward in [true, false] {
        assert_eq!(rounds(&snapshot, &wrens, forward).unwrap(), [0; KEYS as usize]);
        let changed = rounds(&later, &wrens, forward).unwrap();
        assert!((0..).zip(changed).all(|(n, round)| round == u64::from(n == 5)));
    }
    assert_eq!(snapshot.keyspaces().unwrap(), ["wrens"]);
    let seen = snapshot.open_keyspace("wrens").unwrap().unwrap();
    assert_eq!(seen.get(&key(5)).unwrap().unwrap().as_bytes(), value(5, 0));
    assert!(snapshot.open_keyspace("robins").unwrap().is_none());
    drop((snapshot, later, seen));
    assert_sound(&db, "the keyspace has gone");
}

/// Snapshots begin all the time, behind changes of other keyspaces, while one is dropped: each sees all of it or nothing.
#[test]
fn a_snapshot_that_begins_during_a_drop_sees_the_keyspace_or_does_not() {
    let mut seen_in_drops = 0;
    for round in 0..8 * effort() {
        let db = open(&options(round % 4 > 0), &SimDisk::new(round), OpenHow::New).unwrap();
        let (robins, wrens) = (db.keyspace("robins").unwrap(), db.keyspace("wrens").unwrap());
        fill(&wrens, KEYS);
        let first = db.snapshot().unwrap();
        let (begins, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let looks = scope.spawn(|| {
                let mut count = 0;
                let mut held = Vec::new();
                while !is_over.load(Relaxed) {
                    robins.put(b"key", &[1; 20]).unwrap();
                    let snapshot = db.snapshot().unwrap();
                    let Some(seen) = snapshot.open_keyspace("wrens").unwrap() else {
                        let read = snapshot.keyspace(&wrens).and_then(|seen| seen.get(&key(0)));
                        assert!(read.is_err(), "there is no such keyspace");
                        continue;
                    };
                    if held.len() < 3 {
                        held.push(seen.clone());
                    }
                    begins.store(true, Relaxed);
                    for n in [KEYS - 1, KEYS / 2, 0] {
                        // On a machine with too much to do no checkpoint takes it over in time.
                        let found = match seen.get(&key(n)) {
                            Err(error) if is_too_old(&error) => break,
                            found => found.unwrap(),
                        };
                        assert_eq!(found.unwrap().as_bytes(), value(n, 0), "round {round}");
                    }
                    count += 1;
                }
                for seen in held {
                    match seen.count() {
                        Err(error) => assert!(is_too_old(&error), "{error}"),
                        Ok(count) => assert_eq!(count, KEYS, "round {round}"),
                    }
                }
                count
            });
            while !begins.load(Relaxed) {
                std::thread::yield_now();
            }
            assert!(db.drop_keyspace("wrens").unwrap());
            is_over.store(true, Relaxed);
            seen_in_drops += looks.join().unwrap();
        });
        assert_eq!(rounds(&first, &wrens, true).unwrap(), [0; KEYS as usize]);
        drop(first);
        assert_sound(&db, "the keyspace has gone");
    }
    count(seen_in_drops, "snapshots beside drops");
}

/// Its pages go one by one, from the last one on.
#[test]
fn a_snapshot_of_a_store_in_memory_says_that_it_is_too_old_while_its_keyspace_is_dropped() {
    for _ in 0..3 * effort() {
        let db = Options::new().memory_limit_bytes(64 << 20).in_memory().unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        fill(&wrens, 20 * KEYS);
        let snapshot = db.snapshot().unwrap();
        let seen = snapshot.keyspace(&wrens).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(db.drop_keyspace("wrens").unwrap()));
            loop {
                for n in [20 * KEYS - 1, 19 * KEYS, 10 * KEYS, 0] {
                    match seen.get(&key(n)) {
                        Ok(found) => assert_eq!(found.unwrap().as_bytes(), value(n, 0)),
                        Err(error) => {
                            assert!(is_too_old(&error), "{error}");
                            return;
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn a_crash_forgets_what_was_pinned_for_snapshots() {
    let mut dice = Dice(seed(74));
    for log in [true, false] {
        let disk = SimDisk::new(dice.roll());
        let options = options(log);
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        fill(&wrens, KEYS);
        db.checkpoint().unwrap();
        let snapshot = db.snapshot().unwrap();
        for round in 1..4 {
            for n in 0..KEYS {
                wrens.put(&key(n), &value(n, round)).unwrap();
            }
            db.checkpoint().unwrap();
        }
        let held = db.space_report().unwrap();
        let left = disk.crash(dice.roll());
        assert_eq!(rounds(&snapshot, &wrens, true).unwrap(), [0; KEYS as usize]);
        let after: Database = options.on_disk(&left, path(), OpenHow::Existing).unwrap();
        assert_sound(&after, "after the crash");
        let wrens = after.open_keyspace("wrens").unwrap().unwrap();
        assert_eq!(rounds(&after.snapshot().unwrap(), &wrens, true).unwrap(), [3; KEYS as usize]);
        for _ in 0..20 {
            after.checkpoint().unwrap();
        }
        let report = after.space_report().unwrap();
        assert_eq!(report.quarantined_bytes, 0);
        assert!(
            report.used_bytes < held.used_bytes + held.quarantined_bytes / 2,
            "{held:?} {report:?}"
        );
        assert!(report.file_bytes < held.file_bytes, "{held:?} {report:?}");
    }
}

/// A checkpoint that has no room takes nothing over, and what is pinned takes room from writers.
#[test]
fn a_full_disk_is_told_to_writers_and_a_snapshot_sees_its_moment_or_is_too_old() {
    let mut dice = Dice(seed(75));
    for log in [true, false] {
        let disk = SimDisk::new(dice.roll());
        let db = open(&options(log), &disk, OpenHow::New).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        fill(&wrens, KEYS);
        db.checkpoint().unwrap();
        let snapshot = db.snapshot().unwrap();
        let used = db.space_report().unwrap().file_bytes;
        disk.set_capacity(Some(used + used / 2 + if log { 4 << 20 } else { 0 }));
        let mut refused = 0;
        for round in 1..6 {
            for _ in 0..KEYS {
                let n = dice.below(KEYS);
                match wrens.put(&key(n), &[&value(n, round)[..], &[7; 200]].concat()) {
                    Ok(_) => {}
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
                        refused += 1;
                        break;
                    }
                }
            }
            match rounds(&snapshot, &wrens, round % 2 == 0) {
                Ok(found) => assert_eq!(found, [0; KEYS as usize]),
                Err(error) => assert!(is_too_old(&error), "{error}"),
            }
        }
        let stats = db.stats().unwrap().snapshots;
        // On a busy machine the snapshot may be given up before a checkpoint has taken it over: then nothing keeps room from writers.
        assert!(refused + stats.given_up > 0, "the disk was never full, log: {log}, {stats:?}");
        drop(snapshot);
        disk.set_capacity(None);
        for n in 0..KEYS {
            wrens.put(&key(n), &value(n, 9)).unwrap();
        }
        assert_eq!(rounds(&db.snapshot().unwrap(), &wrens, true).unwrap(), [9; KEYS as usize]);
        assert_sound(&db, "there is room again");
    }
}

fn put(wrens: &Keyspace, n: u64, value: &[u8]) {
    wrens.put(&key(n), value).unwrap();
}

fn remove(wrens: &Keyspace, n: u64) {
    wrens.remove(&key(n)).unwrap();
}

/// What others do to a keyspace that has even numbers for keys, behind a transaction that has read those from 100 to 200.
type Others = fn(&Keyspace);

/// The checkpoint alone knows what there was: the transaction's snapshot has gone over to it before others changed anything, and what they
/// changed was collected.
#[test]
fn a_transaction_whose_snapshot_was_taken_over_commits_if_nothing_that_it_read_has_changed() {
    let others: [(&str, bool, Others); 9] = [
        ("nothing", true, |_| ()),
        ("below", true, |wrens| put(wrens, 98, b"new")),
        ("above", true, |wrens| remove(wrens, 202)),
        ("changed", false, |wrens| put(wrens, 150, b"new")),
        ("removed", false, |wrens| remove(wrens, 150)),
        ("came", false, |wrens| put(wrens, 151, b"new")),
        ("first removed", false, |wrens| remove(wrens, 100)),
        ("came and went", true, |wrens| {
            put(wrens, 151, b"new");
            remove(wrens, 151);
        }),
        ("changed and changed back", true, |wrens| {
            put(wrens, 150, b"new");
            put(wrens, 150, &value(150, 0));
        }),
    ];
    for log in [true, false] {
        let db = open(&options(log), &SimDisk::new(1), OpenHow::New).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        for before_the_cut in [false, true] {
            for (what, may_commit, change) in &others {
                for n in 0..600 {
                    match n % 2 {
                        0 => put(&wrens, n, &value(n, 0)),
                        _ => remove(&wrens, n),
                    }
                }
                let transaction = db.transaction(Isolation::Serializable);
                let seen = transaction.keyspace(&wrens).unwrap();
                let (low, high) = (key(100), key(200));
                assert_eq!(seen.range(&low[..]..=&high[..]).count(), 51);
                if before_the_cut {
                    change(&wrens);
                }
                db.checkpoint().unwrap();
                if !before_the_cut {
                    change(&wrens);
                }
                // The leaves are changed in any case.
                for n in [99, 101, 300] {
                    wrens.put(&key(n), b"passes").unwrap();
                    wrens.remove(&key(n)).unwrap();
                }
                // Another snapshot comes and goes, so that versions are collected that nobody needs.
                drop(db.snapshot().unwrap());
                assert_eq!(seen.get(&key(150)).unwrap().unwrap().as_bytes(), value(150, 0));
                seen.put(&key(1000), b"mine").unwrap();
                let context = format!("{what}, log: {log}, before the cut: {before_the_cut}");
                match transaction.commit() {
                    Ok(_) => assert!(may_commit, "{context}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Conflict, "{context}: {error}");
                        assert!(!may_commit, "{context}: {error}");
                    }
                }
            }
        }
        assert_sound(&db, "transactions have ended");
    }
}

/// What is open is listed with its age, its moment, and what the file keeps for it; the end of a snapshot takes it off the list.
#[test]
fn pins_say_what_is_open_since_when_and_what_the_file_keeps_for_it() {
    let db = open(&options(true), &SimDisk::new(1), OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    fill(&wrens, KEYS);
    assert!(db.held_states().is_empty());
    let before = Instant::now();
    let first = db.snapshot().unwrap();
    wrens.put(&key(0), &value(0, 1)).unwrap();
    let transaction = db.transaction(Isolation::Serializable);
    transaction.keyspace(&wrens).unwrap().get(&key(1)).unwrap();
    let pins = db.held_states();
    assert_eq!(pins.len(), 2, "{pins:?}");
    assert_eq!(pins[0].lsn, first.lsn());
    assert!(pins[1].lsn > first.lsn());
    for pin in &pins {
        assert_eq!((pin.by, pin.checkpoint, pin.bytes_held), (HeldBy::Snapshot, None, 0));
        assert!(pin.since.is_some_and(|since| since + Duration::from_millis(1) >= before));
    }
    drop(transaction);
    db.checkpoint().unwrap();
    for round in 2..6 {
        for n in 0..KEYS {
            wrens.put(&key(n), &value(n, round)).unwrap();
        }
        db.checkpoint().unwrap();
    }
    let pins = db.held_states();
    assert_eq!((pins.len(), pins[0].lsn), (1, first.lsn()));
    assert!(pins[0].checkpoint.is_some_and(|cut| cut >= first.lsn()));
    // All leaves were written anew.
    assert!(pins[0].bytes_held > KEYS * 100, "{pins:?}");
    drop(first);
    assert!(db.held_states().is_empty());
    db.clone().close().unwrap();
    assert!(db.held_states().is_empty());
}

#[test]
fn a_snapshot_that_is_older_than_any_may_be_is_given_up_and_the_file_keeps_nothing_for_it() {
    const AGE: Duration = Duration::from_millis(300);
    let options = options(true).max_snapshot_age(AGE);
    let db = open(&options, &SimDisk::new(1), OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    fill(&wrens, KEYS);
    let [asked, forgotten] = [db.snapshot().unwrap(), db.snapshot().unwrap()];
    let seen = asked.keyspace(&wrens).unwrap();
    assert!(seen.get(&key(0)).unwrap().is_some());
    db.checkpoint().unwrap();
    for n in 0..KEYS {
        wrens.put(&key(n), &value(n, 1)).unwrap();
    }
    db.checkpoint().unwrap();
    std::thread::sleep(AGE + Duration::from_millis(50));
    // A look, of one record or many, of keyspaces, and of what was there.
    let errors = [
        seen.get(&key(0)).err(),
        seen.iter().next().unwrap().err(),
        asked.keyspaces().err(),
        asked.open_keyspace("wrens").err(),
        asked.keyspace(&wrens).err(),
    ];
    assert!(errors.iter().all(|error| error.as_ref().is_some_and(is_too_old)), "{errors:?}");
    // Nobody looks at the other one.
    let pinned = || db.held_states().into_iter().filter(|pin| pin.lsn == forgotten.lsn()).count();
    assert_eq!(pinned(), 0);
    assert_eq!(db.stats().unwrap().snapshots.given_up, 2);
    assert!(is_too_old(&forgotten.keyspaces().unwrap_err()));
    let young = db.snapshot().unwrap();
    assert!(young.keyspace(&wrens).unwrap().get(&key(0)).unwrap().is_some());
    drop((seen, asked, forgotten));
    assert_eq!(db.stats().unwrap().snapshots.open, 1);
}

/// Others change neighbours of what was read so often that the commit has to wait for the leaf; what the checkpoint has of it is read before.
#[test]
fn a_transaction_whose_snapshot_was_taken_over_commits_in_a_leaf_that_others_change_all_the_time() {
    let db = open(&options(true), &SimDisk::new(seed(73)), OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    for n in 0..10 {
        put(&wrens, n, &value(n, 0));
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (wrens, stop) = (&wrens, &stop);
            scope.spawn(move || {
                for round in (0..).take_while(|_| !stop.load(Relaxed)) {
                    put(wrens, thread, &value(thread, round));
                }
            });
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for round in 0..100 * effort() {
                let transaction = db.transaction(Isolation::Serializable);
                let seen = transaction.keyspace(&wrens).unwrap();
                assert_eq!(seen.range(&key(5)[..]..=&key(7)[..]).count(), 3);
                db.checkpoint().unwrap();
                seen.put(&key(9), &value(9, round)).unwrap();
                transaction.commit().unwrap();
            }
        }));
        stop.store(true, Relaxed);
        outcome.unwrap();
    });
    assert_sound(&db, "transactions have ended");
}

/// It is the handle that is old, and no snapshot that is taken instead would help.
#[test]
fn a_handle_to_a_keyspace_that_was_dropped_before_the_snapshot_says_so_and_is_not_tried_again() {
    let disk = SimDisk::new(30);
    let dbs = [
        open(&options(true), &disk, OpenHow::New).unwrap(),
        options(false).memory_limit_bytes(8 << 20).in_memory().unwrap(),
    ];
    for (db, is_in_file) in dbs.into_iter().zip([true, false]) {
        let robins = db.keyspace("robins").unwrap();
        fill(&robins, KEYS);
        let wrens = db.keyspace("wrens").unwrap();
        fill(&wrens, 10);
        assert!(db.drop_keyspace("wrens").unwrap());
        let mut runs = 0;
        let error = db.transact(|transaction| {
            runs += 1;
            transaction.keyspace(&wrens)?.get(&key(1))
        });
        assert_eq!((error.unwrap_err().kind(), runs), (ErrorKind::KeyspaceDropped, 1));
        let snapshot = db.snapshot().unwrap();
        let says_so = || {
            let error = snapshot.keyspace(&wrens).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::KeyspaceDropped, "{error}");
        };
        says_so();
        if is_in_file {
            for round in 1..4 {
                for n in 0..KEYS {
                    robins.put(&key(n), &value(n, round)).unwrap();
                }
                db.checkpoint().unwrap();
            }
            assert_eq!(db.stats().unwrap().snapshots.pinned, 1, "a checkpoint has the snapshot");
            says_so();
        }
    }
}
