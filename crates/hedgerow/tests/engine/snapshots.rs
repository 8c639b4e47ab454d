//! Snapshots beside every kind of change, against a model: what is read is what there was, or the snapshot says that it is too old.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::{Dice, assert_sound, effort, open, seed, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{
    Database, Error, ErrorKind, Keyspace, Options, Snapshot, SnapshotKeyspace, WriteBatch,
};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

type Records = BTreeMap<Vec<u8>, Vec<u8>>;
type World = BTreeMap<String, Records>;

struct Held {
    snapshot: Snapshot,
    then: World,
    is_too_old: bool,
}

/// `long`: about the length of the longest short key.
fn some_key(dice: &mut Dice, long: u64) -> Vec<u8> {
    let len = match dice.below(12) {
        // Long ones, of a few heads.
        0 => long + dice.below(4),
        _ => 1 + dice.below(20),
    };
    let mut key = vec![b'a' + dice.below(4) as u8; len as usize];
    key.extend_from_slice(&(dice.below(60) as u16).to_be_bytes());
    key
}

fn some_value(dice: &mut Dice, longest: u64) -> Vec<u8> {
    let len = match dice.below(20) {
        0 => dice.below(longest),
        1..6 => dice.below(longest.min(200)),
        _ => 8,
    };
    let mut value = vec![dice.roll() as u8; len as usize];
    if dice.below(50) == 0 && value.len() > 8 {
        // Begins as a stored form does.
        value[..8].copy_from_slice(b"\xff\x00hedge\x00");
    }
    value
}

fn is_too_old(error: &Error) -> bool {
    error.kind() == ErrorKind::SnapshotTooOld
}

/// Compares all that one keyspace of a snapshot shows. `Err`: too old.
fn compare(
    seen: &SnapshotKeyspace,
    then: &Records,
    dice: &mut Dice,
    long: u64,
) -> Result<(), Error> {
    for _ in 0..10 {
        let key = some_key(dice, long);
        let mut into = b"rest".to_vec();
        assert_eq!(seen.get(&key)?.as_deref(), then.get(&key).map(Vec::as_slice));
        assert_eq!(seen.get_into(&key, &mut into)?, then.contains_key(&key));
        assert_eq!(seen.contains_key(&key)?, then.contains_key(&key));
        let part = seen.get_range(&key, 3..10)?;
        let expected = then.get(&key).map(|value| &value[value.len().min(3)..value.len().min(10)]);
        assert_eq!(part.as_deref(), expected);
    }
    let (low, high) = (some_key(dice, long), some_key(dice, long));
    let bounds = match dice.below(4) {
        0 => (Bound::Unbounded, Bound::Unbounded),
        1 => (Bound::Included(low), Bound::Excluded(high)),
        2 => (Bound::Excluded(low), Bound::Included(high)),
        _ => (Bound::Included(low), Bound::Unbounded),
    };
    let is_empty = match (&bounds.0, &bounds.1) {
        (Bound::Included(low) | Bound::Excluded(low), Bound::Excluded(high))
        | (Bound::Excluded(low), Bound::Included(high)) => low >= high,
        _ => false,
    };
    let expected: Vec<(&[u8], &[u8])> = match is_empty {
        true => Vec::new(),
        false => then.range(bounds.clone()).map(|(key, value)| (&key[..], &value[..])).collect(),
    };
    let mut range = seen.range(bounds);
    let (mut front, mut back) = (Vec::new(), Vec::new());
    let mode = dice.below(3);
    loop {
        let forward = mode == 0 || mode == 2 && dice.below(2) == 0;
        let Some(record) = (if forward { range.next() } else { range.next_back() }) else { break };
        let (key, value) = record?;
        let to = if forward { &mut front } else { &mut back };
        to.push((key.to_vec(), value.to_vec()));
    }
    front.extend(back.into_iter().rev());
    let found: Vec<(&[u8], &[u8])> = front.iter().map(|(k, v)| (&k[..], &v[..])).collect();
    assert_eq!(found, expected);
    // A cursor that goes where it likes.
    let mut cursor = seen.cursor();
    let key = some_key(dice, long);
    cursor.seek(&key);
    for _ in 0..4 {
        let forward = dice.below(2) == 0;
        let mut place = then.range::<Vec<u8>, _>(&key..).next().map(|(key, _)| key.clone());
        cursor.seek(&key);
        for _ in 0..3 {
            let (next, expected) = match forward {
                true => {
                    let at = place.clone();
                    place = at.as_ref().and_then(|at| {
                        let behind = (Bound::Excluded(at.clone()), Bound::Unbounded);
                        then.range(behind).next().map(|(key, _)| key.clone())
                    });
                    (cursor.next_record()?, at)
                }
                false => {
                    let before = match &place {
                        Some(at) => then.range::<Vec<u8>, _>(..at).next_back(),
                        None => then.iter().next_back(),
                    };
                    let before = before.map(|(key, _)| key.clone());
                    if before.is_some() {
                        place.clone_from(&before);
                    }
                    (cursor.previous_record()?, before)
                }
            };
            let next = next.map(|(key, value)| (key.to_vec(), value.to_vec()));
            assert_eq!(next, expected.clone().map(|key| (key.clone(), then[&key].clone())));
            if expected.is_none() {
                break;
            }
        }
    }
    Ok(())
}

struct Life {
    db: Database,
    now: World,
    held: Vec<Held>,
    longest: u64,
    long: u64,
    checked: u64,
    too_old: u64,
}

const NAMES: [&str; 3] = ["robins", "terns", "wrens"];

impl Life {
    fn handle(&self, dice: &mut Dice) -> Option<(String, Keyspace)> {
        let name = NAMES[dice.below(3) as usize];
        let keyspace = self.db.open_keyspace(name).unwrap();
        assert_eq!(keyspace.is_some(), self.now.contains_key(name));
        keyspace.map(|keyspace| (name.to_owned(), keyspace))
    }

    /// In the smallest store there is no memory for values that are not in leaves.
    fn record(&self, dice: &mut Dice, longest: u64) -> (Vec<u8>, Vec<u8>) {
        let (key, mut value) = (some_key(dice, self.long), some_value(dice, longest));
        if self.long < 100 && key.len() > self.long as usize {
            value.truncate(30);
        }
        (key, value)
    }

    fn check(&mut self, at: usize, dice: &mut Dice) {
        let held = &mut self.held[at];
        match held.snapshot.keyspaces() {
            Ok(names) => assert_eq!(names, held.then.keys().cloned().collect::<Vec<_>>()),
            Err(error) => {
                assert!(is_too_old(&error), "{error}");
                held.is_too_old = true;
            }
        }
        for name in NAMES {
            let seen = match held.snapshot.open_keyspace(name) {
                Ok(seen) => seen,
                Err(error) if is_too_old(&error) => continue,
                Err(error) => panic!("{error}"),
            };
            assert_eq!(seen.is_some(), held.then.contains_key(name), "{name}");
            let Some(seen) = seen else { continue };
            match compare(&seen, &held.then[name], dice, self.long) {
                Ok(()) => self.checked += 1,
                Err(error) => {
                    assert!(is_too_old(&error), "{error}");
                    held.is_too_old = true;
                    self.too_old += 1;
                }
            }
        }
    }

    fn step(&mut self, dice: &mut Dice) {
        let what = dice.below(100);
        match what {
            0..3 => {
                let name = NAMES[dice.below(3) as usize];
                self.db.keyspace(name).unwrap();
                self.now.entry(name.to_owned()).or_default();
            }
            3 if dice.below(4) == 0 => {
                let name = NAMES[dice.below(3) as usize];
                let dropped = self.db.drop_keyspace(name).unwrap();
                assert_eq!(dropped, self.now.remove(name).is_some());
            }
            4 => {
                let (from, to) = (NAMES[dice.below(3) as usize], NAMES[dice.below(3) as usize]);
                if from != to && self.now.contains_key(from) {
                    match self.now.contains_key(to) {
                        true => self.db.swap_keyspaces(from, to).unwrap(),
                        false => self.db.rename_keyspace(from, to).unwrap(),
                    }
                    let a = self.now.remove(from).unwrap();
                    if let Some(b) = self.now.insert(to.to_owned(), a) {
                        self.now.insert(from.to_owned(), b);
                    }
                }
            }
            5 => {
                let Some((name, keyspace)) = self.handle(dice) else { return };
                if keyspace.is_empty().unwrap() {
                    let mut records = Records::new();
                    for _ in 0..dice.below(80) {
                        let (key, value) = self.record(dice, 60);
                        records.insert(key, value);
                    }
                    let loaded = keyspace.bulk_load(&records, 60 + dice.below(40) as u8).unwrap();
                    assert_eq!(loaded, records.len() as u64);
                    self.now.insert(name, records);
                }
            }
            6..9 => self.remove_range(dice),
            9..15 => self.write_batch(dice),
            15..20 => {
                if self.held.len() < 6 {
                    let (snapshot, then) = (self.db.snapshot().unwrap(), self.now.clone());
                    self.held.push(Held { snapshot, then, is_too_old: false });
                }
            }
            20..24 if !self.held.is_empty() => {
                let at = dice.below(self.held.len() as u64) as usize;
                self.check(at, dice);
            }
            24..28 if !self.held.is_empty() => {
                let at = dice.below(self.held.len() as u64) as usize;
                self.held.swap_remove(at);
            }
            28 => self.db.checkpoint().unwrap(),
            29 => {
                let Some((name, keyspace)) = self.handle(dice) else { return };
                let popped = match dice.below(2) {
                    0 => (
                        keyspace.pop_first().unwrap(),
                        self.now.get_mut(&name).unwrap().pop_first(),
                    ),
                    _ => {
                        (keyspace.pop_last().unwrap(), self.now.get_mut(&name).unwrap().pop_last())
                    }
                };
                let found = popped.0.map(|(key, value)| (key.to_vec(), value.to_vec()));
                assert_eq!(found, popped.1);
            }
            30..50 => {
                let Some((name, keyspace)) = self.handle(dice) else { return };
                let key = some_key(dice, self.long);
                let removed = keyspace.remove(&key).unwrap();
                assert_eq!(removed, self.now.get_mut(&name).unwrap().remove(&key).is_some());
            }
            _ => {
                let Some((name, keyspace)) = self.handle(dice) else { return };
                let (key, value) = self.record(dice, self.longest);
                keyspace.put(&key, &value).unwrap();
                self.now.get_mut(&name).unwrap().insert(key, value);
            }
        }
    }

    fn remove_range(&mut self, dice: &mut Dice) {
        let Some((name, keyspace)) = self.handle(dice) else { return };
        let mut bounds = [some_key(dice, self.long), some_key(dice, self.long)];
        bounds.sort();
        let [low, high] = bounds;
        let low = if dice.below(20) == 0 { Vec::new() } else { low };
        let high = if low.is_empty() { vec![b'z'] } else { high };
        if low < high {
            keyspace.remove_range(&low[..]..&high[..]).unwrap();
            self.now.get_mut(&name).unwrap().retain(|key, _| *key < low || *key >= high);
        }
    }

    fn write_batch(&mut self, dice: &mut Dice) {
        let mut batch = WriteBatch::new();
        let most = if dice.below(5) == 0 { 150 } else { 8 };
        for _ in 0..1 + dice.below(most) {
            let Some((name, keyspace)) = self.handle(dice) else { continue };
            let (key, value) = self.record(dice, 100);
            let records = self.now.get_mut(&name).unwrap();
            if dice.below(3) == 0 {
                batch.remove(&keyspace, &key).unwrap();
                records.remove(&key);
            } else {
                batch.put(&keyspace, &key, &value).unwrap();
                records.insert(key, value);
            }
        }
        self.db.write(&batch).unwrap();
    }

    fn run(db: Database, (longest, long): (u64, u64), steps: u64, dice: &mut Dice) -> (u64, u64) {
        let mut life =
            Life { db, now: World::new(), held: Vec::new(), longest, long, checked: 0, too_old: 0 };
        for _ in 0..steps {
            life.step(dice);
        }
        for at in 0..life.held.len() {
            life.check(at, dice);
        }
        life.held.clear();
        assert_sound(&life.db, "snapshots have come and gone");
        (life.checked, life.too_old)
    }
}

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    tiny().memory_limit_bytes(limit).log(true).log_segment_blocks(6)
}

#[test]
fn a_snapshot_sees_its_moment_whatever_is_changed_in_memory() {
    let mut dice = Dice(seed(91));
    let (mut checked, mut too_old) = (0, 0);
    for _ in 0..3 * effort() {
        let db = Options::new().page_bytes(4096).memory_limit_bytes(16 << 20).in_memory().unwrap();
        let (right, old) = Life::run(db, (9000, 980), 4000, &mut dice);
        (checked, too_old) = (checked + right, too_old + old);
    }
    count(checked, "looks at a keyspace of a snapshot");
    // Where there are no checkpoints a drop is the end of what a snapshot sees.
    assert!(checked > 500 && too_old > 0, "{checked}, {too_old}");
}

#[test]
fn a_snapshot_sees_its_moment_or_is_too_old_in_the_smallest_store() {
    let mut dice = Dice(seed(92));
    let (mut checked, mut too_old) = (0, 0);
    for _ in 0..3 * effort() {
        for options in [tiny(), logged()] {
            let db = open(&options, &SimDisk::new(dice.roll()), OpenHow::New).unwrap();
            let (right, old) = Life::run(db, (110, 84), 2000, &mut dice);
            (checked, too_old) = (checked + right, too_old + old);
        }
    }
    count(checked, "looks at a keyspace of a snapshot");
    assert!(checked > 200 && too_old < checked, "{checked}, {too_old}");
}

#[test]
fn a_snapshot_sees_its_moment_in_a_file_with_a_log() {
    let mut dice = Dice(seed(93));
    let mut checked = 0;
    for _ in 0..2 * effort() {
        let options = Options::new().page_bytes(4096).memory_limit_bytes(8 << 20).log(true);
        let db = open(&options, &SimDisk::new(dice.roll()), OpenHow::New).unwrap();
        checked += Life::run(db, (20_000, 980), 3000, &mut dice).0;
    }
    count(checked, "looks at a keyspace of a snapshot");
    assert!(checked > 300, "{checked}");
}

/// Money is moved between accounts, by batches; the sum is always the same, and every snapshot sees it.
/// In memory, in a file, and in a file with a log.
fn each_kind_of_store(test: impl Fn(Database)) {
    let options = || Options::new().page_bytes(4096).memory_limit_bytes(16 << 20);
    test(options().in_memory().unwrap());
    for log in [false, true] {
        test(open(&options().log(log), &SimDisk::new(1), OpenHow::New).unwrap());
    }
}

#[test]
fn a_snapshot_sees_nothing_of_a_load_that_came_after_it_nor_of_what_became_of_it() {
    each_kind_of_store(|db| {
        let wrens = db.keyspace("wrens").unwrap();
        let before = db.snapshot().unwrap();
        let seen = before.keyspace(&wrens).unwrap();
        wrens.bulk_load([(b"changed", b"1"), (b"removed", b"1")], 90).unwrap();
        wrens.put(b"changed", b"2").unwrap();
        wrens.remove(b"removed").unwrap();
        assert_eq!(seen.get(b"changed").unwrap(), None);
        assert_eq!(seen.get(b"removed").unwrap(), None);
        assert_eq!(seen.iter().count(), 0);
    });
}

/// What is replaced after the snapshot has begun is freed by checkpoints, and its room is taken by others, if nobody keeps it.
#[test]
fn large_values_that_a_snapshot_sees_stay_while_their_records_get_others() {
    const LARGE: usize = 100_000;
    each_kind_of_store(|db| {
        let wrens = db.keyspace("wrens").unwrap();
        let put_all = |round: u8| {
            for n in 0..4 {
                wrens.put(&[n], &[round; LARGE]).unwrap();
            }
        };
        put_all(0);
        let before = db.snapshot().unwrap();
        let seen = before.keyspace(&wrens).unwrap();
        for round in 1..6 {
            put_all(round);
            db.checkpoint().unwrap();
        }
        for n in 0..4 {
            assert_eq!(seen.get(&[n]).unwrap().as_deref(), Some(&[0; LARGE][..]));
        }
    });
}

#[test]
fn a_snapshot_before_two_loads_of_a_keyspace_sees_what_was_there_before_the_first() {
    for was_there in [false, true] {
        each_kind_of_store(|db| {
            let wrens = db.keyspace("wrens").unwrap();
            if was_there {
                wrens.put(b"once", b"0").unwrap();
            }
            let before = db.snapshot().unwrap();
            let seen = before.keyspace(&wrens).unwrap();
            wrens.remove(b"once").unwrap();
            wrens.bulk_load([(b"both", b"1"), (b"once", b"1")], 90).unwrap();
            let between = db.snapshot().unwrap();
            wrens.remove(b"both").unwrap();
            wrens.remove_range(..).unwrap();
            wrens.bulk_load([(b"both", b"2")], 90).unwrap();
            wrens.put(b"both", b"3").unwrap();
            assert_eq!(seen.get(b"both").unwrap(), None);
            assert_eq!(seen.get(b"once").unwrap().is_some(), was_there);
            assert_eq!(seen.iter().count(), usize::from(was_there));
            let seen = between.keyspace(&wrens).unwrap();
            assert_eq!(seen.get(b"both").unwrap().as_deref(), Some(&b"1"[..]));
            assert_eq!(seen.iter().count(), 2);
        });
    }
}

#[test]
fn the_sum_of_all_accounts_is_the_same_in_every_snapshot() {
    const ACCOUNTS: u64 = 300;
    const EACH: u64 = 1000;
    let memory = Options::new().page_bytes(4096).memory_limit_bytes(16 << 20).in_memory().unwrap();
    let options = Options::new().page_bytes(4096).memory_limit_bytes(8 << 20).log(true);
    let file = open(&options, &SimDisk::new(1), OpenHow::New).unwrap();
    for db in [memory, file] {
        let accounts = db.keyspace("accounts").unwrap();
        let name = |n: u64| [&b"account-"[..], &n.to_be_bytes()].concat();
        for n in 0..ACCOUNTS {
            accounts.put(&name(n), &EACH.to_be_bytes()).unwrap();
        }
        let number = |value: &[u8]| u64::from_be_bytes(value.try_into().unwrap());
        let is_over = AtomicBool::new(false);
        let looks = std::thread::scope(|scope| {
            // One writer moves money, so that no transfer overtakes another; the second one moves the accounts' neighbours.
            scope.spawn(|| {
                let mut dice = Dice(7);
                while !is_over.load(Relaxed) {
                    let (from, to) = (dice.below(ACCOUNTS), dice.below(ACCOUNTS));
                    if from == to {
                        continue;
                    }
                    let value = |n| number(&accounts.get(&name(n)).unwrap().unwrap());
                    let amount = dice.below(1 + value(from));
                    let mut batch = WriteBatch::new();
                    let (less, more) = (value(from) - amount, value(to) + amount);
                    batch.put(&accounts, &name(from), &less.to_be_bytes()).unwrap();
                    batch.put(&accounts, &name(to), &more.to_be_bytes()).unwrap();
                    db.write(&batch).unwrap();
                }
            });
            scope.spawn(|| {
                let mut dice = Dice(8);
                while !is_over.load(Relaxed) {
                    let key = [&name(dice.below(ACCOUNTS))[..], b"/note"].concat();
                    match dice.below(3) {
                        0 => accounts.remove(&key).unwrap(),
                        _ => accounts.put(&key, &vec![1; dice.below(100) as usize]).unwrap(),
                    };
                }
            });
            let reads = |seed: u64| {
                let (db, accounts) = (&db, &accounts);
                move || {
                    let mut dice = Dice(seed);
                    let mut looks = 0;
                    for _ in 0..150 * effort() {
                        let snapshot = db.snapshot().unwrap();
                        let seen = snapshot.keyspace(accounts).unwrap();
                        for _ in 0..3 {
                            let sum: Result<u64, Error> = match dice.below(3) {
                                0 => (0..ACCOUNTS)
                                    .map(|n| Ok(number(&seen.get(&name(n))?.unwrap())))
                                    .sum(),
                                way => {
                                    let ordered: Vec<_> = match way {
                                        1 => seen.iter().collect(),
                                        _ => seen.iter().rev().collect(),
                                    };
                                    let is_account = |key: &[u8]| !key.ends_with(b"/note");
                                    let amount = |record: Result<(_, _), Error>| {
                                        record.map(
                                            |(key, value): (hedgerow::Value, hedgerow::Value)| {
                                                if is_account(&key) { number(&value) } else { 0 }
                                            },
                                        )
                                    };
                                    ordered.into_iter().map(amount).sum()
                                }
                            };
                            match sum {
                                Ok(sum) => {
                                    assert_eq!(sum, ACCOUNTS * EACH);
                                    looks += 1;
                                }
                                Err(error) => assert!(is_too_old(&error), "{error}"),
                            }
                        }
                    }
                    looks
                }
            };
            let readers = [scope.spawn(reads(1)), scope.spawn(reads(2))];
            let looks: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
            is_over.store(true, Relaxed);
            looks
        });
        count(looks, "sums");
        assert!(looks > 300, "{looks}");
        assert_sound(&db, "accounts");
    }
}

#[test]
fn handles_of_other_databases_and_later_keyspaces_are_refused() {
    let db = Options::new().memory_limit_bytes(16 << 20).in_memory().unwrap();
    let other = Options::new().memory_limit_bytes(16 << 20).in_memory().unwrap();
    let before = db.snapshot().unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    let kind = |outcome: hedgerow::Result<SnapshotKeyspace>| outcome.unwrap_err().kind();
    assert_eq!(kind(before.keyspace(&wrens)), ErrorKind::KeyspaceNotFound);
    let foreign = other.keyspace("wrens").unwrap();
    assert_eq!(kind(before.keyspace(&foreign)), ErrorKind::ForeignKeyspace);
    assert!(before.open_keyspace("wrens").unwrap().is_none());
    wrens.put(b"a", b"1").unwrap();
    let after = db.snapshot().unwrap();
    assert!(after.lsn() > before.lsn());
    let seen = after.keyspace(&wrens).unwrap();
    drop((db, wrens, after));
    // The handle keeps everything open that it needs.
    assert_eq!(seen.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(seen.count().unwrap(), 1);
}

/// Each is promised nearly half of all memory for old versions, and uses little of it.
#[test]
fn large_batches_of_two_threads_leave_a_snapshot_readable() {
    let db = Options::new().memory_limit_bytes(64 << 20).in_memory().unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    let write = |value: &[u8]| {
        let mut batch = WriteBatch::new();
        for n in 0..10_000_u64 {
            batch.put(&wrens, &n.to_be_bytes(), value).unwrap();
        }
        db.write(&batch).unwrap();
    };
    write(b"");
    let snapshot = db.snapshot().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..20).for_each(|_| write(&[7; 180])));
        }
    });
    assert_eq!(db.stats().unwrap().snapshots.given_up, 0);
    let seen = snapshot.keyspace(&wrens).unwrap();
    assert!((0..10_000_u64).all(|n| seen.get(&n.to_be_bytes()).unwrap().unwrap().is_empty()));
}
