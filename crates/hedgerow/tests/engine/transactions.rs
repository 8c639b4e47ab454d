//! Transactions of real threads, checked by what they were told; what a transaction sees of its own changes; and what is refused.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::anomalies::{BOTH, is, kind, memory};
use crate::common::{Dice, assert_sound, crowded, effort, is_thorough, open, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{
    CancelToken, Database, Error, ErrorKind, Isolation, Keyspace, Options, Records,
    TransactOptions, Transaction, TransactionKeyspace, Wait, WriteBatch,
};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::isolation::{
    History, Level, Open, Outcome, Over, Recorder, Step, Tally, Token,
};
use hedgerow_testing::linear::Clock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const KEYS: u64 = 24;
const THREADS: u32 = 3;
/// Histories of each of the three tests and both isolations, and transactions of each thread in one: 204 of them, and half a million
/// transactions that commit.
const THOROUGH: (u64, u64) = (34, 1_040);

/// `long`: what makes a long key of the store's.
fn key(number: u64, long: usize) -> Vec<u8> {
    // Leaves of several sizes, prefixes, and long keys with one head.
    let len = if number % 6 == 5 { long + number as usize % 4 } else { number as usize % 6 * 3 };
    [&vec![b'k'; len][..], &number.to_be_bytes()].concat()
}

/// Keys in the order of the keyspace have numbers in another one, so ranges are drawn of neighbours in the keyspace.
fn in_order(long: usize) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..KEYS).collect();
    numbers.sort_by_key(|number| key(*number, long));
    numbers
}

fn value(token: Token, dice: &mut Dice, longest: u64) -> Vec<u8> {
    let more = if dice.below(12) == 0 { dice.below(longest) } else { dice.below(40) };
    let mut value = token.bits().to_be_bytes().to_vec();
    value.resize(8 + more as usize, 7);
    value
}

fn token(value: &[u8]) -> Token {
    Token::from_bits(u64::from_be_bytes(value[..8].try_into().unwrap()))
}

struct Client<'w> {
    db: &'w Database,
    keyspaces: &'w [Keyspace; 2],
    order: Vec<u64>,
    recorder: Recorder,
    dice: Dice,
    longest: u64,
    long: usize,
    isolation: Isolation,
    conflicts: u64,
    too_old: u64,
}

/// Keys of the second keyspace have numbers of their own. Places in the order are what the checker calls keys.
const SECOND: u64 = 1000;

impl Client<'_> {
    fn pick(&mut self) -> (usize, u64) {
        (self.dice.below(2) as usize, self.dice.below(KEYS))
    }

    /// What the checker calls the key at a place.
    fn name(space: usize, place: u64) -> u64 {
        place + SECOND * space as u64
    }

    fn key_at(&self, place: u64) -> Vec<u8> {
        key(self.order[place as usize], self.long)
    }

    fn place_of(&self, found: &[u8]) -> u64 {
        let number = u64::from_be_bytes(found[found.len() - 8..].try_into().unwrap());
        self.order.iter().position(|of| *of == number).unwrap() as u64
    }

    /// A step of a transaction.
    fn step(
        &mut self,
        open: &mut Open,
        transaction: &Transaction,
        handles: &[TransactionKeyspace; 2],
    ) -> Result<(), Error> {
        let (space, place) = self.pick();
        let (handle, name, key) = (&handles[space], Self::name(space, place), self.key_at(place));
        match self.dice.below(12) {
            0..3 => {
                let found = handle.get(&key)?.map(|value| token(&value));
                open.step(Step::Read { key: name, found });
            }
            3 => {
                let found = handle.get_for_update(&key)?.map(|value| token(&value));
                open.step(Step::Read { key: name, found });
            }
            4..6 => {
                let high = place + self.dice.below(KEYS - place);
                let bounds = key..=self.key_at(high);
                let backwards = self.dice.below(2) == 0;
                let range = handle.range(bounds);
                let records: Vec<_> = match backwards {
                    true => range.rev().collect(),
                    false => range.collect(),
                };
                let mut found = Vec::new();
                for record in records {
                    let (key, value) = record?;
                    found.push((Self::name(space, self.place_of(&key)), token(&value)));
                }
                if backwards {
                    found.reverse();
                }
                let high = Self::name(space, high);
                open.step(Step::Range { low: name, high, found });
            }
            6 => {
                // The first record from a place on: what lies between is seen to be absent.
                let mut cursor = handle.cursor();
                cursor.seek(&key);
                let found = cursor.next_record()?;
                let found = found.map(|(key, value)| (key.to_vec(), token(value)));
                let high = found.as_ref().map_or(KEYS - 1, |(key, _)| self.place_of(key));
                let found = found.map(|(_, token)| (Self::name(space, high), token));
                let high = Self::name(space, high);
                open.step(Step::Range { low: name, high, found: found.into_iter().collect() });
            }
            7 => {
                let before = transaction.savepoint()?;
                let unused = open.token();
                handle.put(&key, &value(unused, &mut self.dice, self.longest))?;
                handle.remove(&self.key_at(self.order.len() as u64 - 1))?;
                transaction.roll_back_to(&before)?;
            }
            8 => {
                handle.remove(&key)?;
                open.step(Step::Remove { key: name, over: Over::Unknown });
            }
            _ => {
                let token = open.token();
                handle.put(&key, &value(token, &mut self.dice, self.longest))?;
                open.step(Step::Put { key: name, token, over: Over::Unknown });
            }
        }
        Ok(())
    }

    fn transaction(&mut self) {
        let mut open = self.recorder.begin();
        let transaction = self.db.transaction(self.isolation);
        let handles = [0, 1].map(|at| transaction.keyspace(&self.keyspaces[at]).unwrap());
        let steps = 1 + self.dice.below(12);
        for _ in 0..steps {
            if let Err(error) = self.step(&mut open, &transaction, &handles) {
                assert_eq!(*error.kind(), ErrorKind::SnapshotTooOld, "{error}");
                self.too_old += 1;
                return self.recorder.end(open, Outcome::Aborted);
            }
            if self.dice.below(3) == 0 {
                std::thread::yield_now();
            }
        }
        if self.dice.below(8) == 0 {
            transaction.abort();
            return self.recorder.end(open, Outcome::Aborted);
        }
        let outcome = match transaction.commit() {
            Ok(_) => Outcome::Committed,
            Err(error) => {
                match error.kind() {
                    ErrorKind::Conflict => self.conflicts += 1,
                    ErrorKind::SnapshotTooOld => self.too_old += 1,
                    // In the smallest store there is no room for many leaves.
                    ErrorKind::TransactionTooLarge { .. } => {}
                    _ => panic!("{error}"),
                }
                Outcome::Aborted
            }
        };
        self.recorder.end(open, outcome);
    }

    /// A change without a transaction, or a batch: each is one by itself.
    fn plain(&mut self) {
        let mut open = self.recorder.begin();
        let (space, place) = self.pick();
        let (name, key) = (Self::name(space, place), self.key_at(place));
        let keyspace = &self.keyspaces[space];
        match self.dice.below(4) {
            0 => {
                let found = keyspace.get(&key).unwrap().map(|value| token(&value));
                open.step(Step::Read { key: name, found });
            }
            1 => {
                let token = open.token();
                keyspace.put(&key, &value(token, &mut self.dice, self.longest)).unwrap();
                open.step(Step::Put { key: name, token, over: Over::Unknown });
            }
            2 => {
                keyspace.remove(&key).unwrap();
                open.step(Step::Remove { key: name, over: Over::Unknown });
            }
            _ => {
                let mut batch = WriteBatch::new();
                for at in 0..2 + self.dice.below(4) {
                    let place = (place + 7 * at) % KEYS;
                    let (name, key) = (Self::name(space, place), self.key_at(place));
                    let token = open.token();
                    let value = value(token, &mut self.dice, self.longest);
                    batch.put(keyspace, &key, &value).unwrap();
                    open.step(Step::Put { key: name, token, over: Over::Unknown });
                }
                self.db.write(&batch).unwrap();
            }
        }
        self.recorder.end(open, Outcome::Committed);
    }
}

/// Runs threads for a while, and checks what they were told.
fn run(
    db: &Database,
    isolation: Isolation,
    longest: u64,
    long: usize,
    transactions: u64,
    dice: &mut Dice,
) -> (Tally, u64, u64) {
    let keyspaces = [db.keyspace("a").unwrap(), db.keyspace("b").unwrap()];
    let clock = Clock::default();
    let order = in_order(long);
    let mut before = BTreeMap::new();
    for (space, keyspace) in keyspaces.iter().enumerate() {
        for record in keyspace {
            let (key, value) = record.unwrap();
            let number = u64::from_be_bytes(key[key.len() - 8..].try_into().unwrap());
            let place = order.iter().position(|of| *of == number).unwrap() as u64;
            before.insert(Client::name(space, place), token(&value));
        }
    }
    let first = RUNS.fetch_add(THREADS, Relaxed);
    let (all, conflicts, too_old) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS)
            .map(|thread| {
                let mut client = Client {
                    db,
                    keyspaces: &keyspaces,
                    order: order.clone(),
                    recorder: Recorder::new(first + thread, &clock),
                    dice: Dice(dice.roll()),
                    longest,
                    long,
                    isolation,
                    conflicts: 0,
                    too_old: 0,
                };
                scope.spawn(move || {
                    for _ in 0..transactions {
                        match client.dice.below(4) {
                            0 => client.plain(),
                            _ => client.transaction(),
                        }
                    }
                    (client.recorder.take(), client.conflicts, client.too_old)
                })
            })
            .collect();
        let mut sum = (Vec::new(), 0, 0);
        for client in clients {
            let (transactions, conflicts, too_old) = client.join().unwrap();
            sum.0.extend(transactions);
            sum.1 += conflicts;
            sum.2 += too_old;
        }
        sum
    });
    let level = match isolation {
        Isolation::Serializable => Level::StrictSerializable,
        _ => Level::StrongSnapshotIsolation,
    };
    let history = History { before, transactions: all };
    let tally = history.check(level).unwrap_or_else(|violation| panic!("{violation}"));
    (tally, conflicts, too_old)
}

/// Numbers of recorders, so that no two tokens of a store are the same.
static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

fn histories(longest: u64, long: usize, database: impl Fn(&mut Dice) -> Database) {
    let mut dice = Dice(seed(hedgerow_sync::primitive::random::seed()));
    let (mut checked, mut conflicts) = (0, 0);
    let (rounds, each) = if is_thorough() { THOROUGH } else { (6, 300) };
    let rounds = rounds * effort();
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        let (mut db, mut left) = (database(&mut dice), 0);
        for _ in 0..rounds {
            if left == 0 {
                assert_sound(&db, "transactions");
                (db, left) = (database(&mut dice), 3);
            }
            left -= 1;
            let (tally, met, _) = run(&db, isolation, longest, long, each, &mut dice);
            checked += tally.transactions;
            conflicts += met;
        }
        assert_sound(&db, "transactions");
    }
    count(checked, "transactions");
    assert!(conflicts > 0, "{conflicts} conflicts, {checked} transactions");
}

#[test]
fn transactions_in_memory_are_kept_apart_as_their_isolation_says() {
    histories(2000, 1_000, |_| {
        Options::new().page_bytes(4096).memory_limit_bytes(8 << 20).in_memory().unwrap()
    });
}

#[test]
fn transactions_in_small_pages_beside_evictions_are_kept_apart_as_their_isolation_says() {
    histories(40, 80, |dice| open(&crowded(), &SimDisk::new(dice.roll()), OpenHow::New).unwrap());
}

#[test]
fn transactions_with_large_values_in_a_file_are_kept_apart_as_their_isolation_says() {
    let options = Options::new().page_bytes(4096).memory_limit_bytes(8 << 20).log(true);
    histories(9000, 1_000, |dice| {
        open(&options, &SimDisk::new(dice.roll()), OpenHow::New).unwrap()
    });
}

#[test]
fn counters_in_one_leaf_are_counted_by_many_threads_without_a_loss() {
    for isolation in BOTH {
        let (db, keyspace) = memory();
        let retries = TransactOptions::new().isolation(isolation).retries(1000);
        let each = 300 * effort();
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let (db, keyspace, retries) = (&db, &keyspace, &retries);
                scope.spawn(move || {
                    for _ in 0..each {
                        let outcome: Result<(), Error> = db.transact_with(retries, |transaction| {
                            let handle = transaction.keyspace(keyspace)?;
                            // One that all have, and one of its own.
                            for name in [&b"shared"[..], &[b'o', thread]] {
                                handle.fetch_update(name, |old| {
                                    let old = old.map_or(0, |old| {
                                        u64::from_be_bytes(old.try_into().unwrap())
                                    });
                                    Some((old + 1).to_be_bytes())
                                })?;
                            }
                            Ok(())
                        });
                        outcome.unwrap();
                    }
                });
            }
        });
        let number = |name: &[u8]| {
            u64::from_be_bytes(keyspace.get(name).unwrap().unwrap()[..].try_into().unwrap())
        };
        assert_eq!(number(b"shared"), 4 * each);
        (0..4).for_each(|thread| assert_eq!(number(&[b'o', thread]), each));
    }
}

/// Distinct keys of one leaf are nobody's conflict, also if everybody reads his own.
#[test]
fn distinct_keys_of_one_leaf_never_conflict() {
    for isolation in BOTH {
        let (db, keyspace) = memory();
        let conflicts = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4_u8 {
                let (db, keyspace, conflicts) = (&db, &keyspace, &conflicts);
                scope.spawn(move || {
                    for round in 0..500_u32 {
                        let transaction = db.transaction(isolation);
                        let handle = transaction.keyspace(keyspace).unwrap();
                        handle.get(&[thread]).unwrap();
                        handle.put(&[thread], &round.to_be_bytes()).unwrap();
                        match transaction.commit() {
                            Ok(_) => {}
                            Err(error) => {
                                assert_eq!(*error.kind(), ErrorKind::Conflict, "{error}");
                                conflicts.fetch_add(1, Relaxed);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!(conflicts.into_inner(), 0);
    }
}

/// A transaction's own changes are in what it reads, both ways and after a seek; an iterator has them as they were when it was made.
#[test]
fn own_changes_are_seen_both_ways_and_iterators_keep_theirs() {
    let mut dice = Dice(seed(94));
    for _ in 0..40 * effort() {
        let db = Options::new().page_bytes(4096).memory_limit_bytes(8 << 20).in_memory().unwrap();
        let keyspace = db.keyspace("k").unwrap();
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let draw = |dice: &mut Dice| (dice.below(300) as u16).to_be_bytes().to_vec();
        for _ in 0..dice.below(400) {
            let (key, value) = (draw(&mut dice), vec![1; dice.below(100) as usize]);
            keyspace.put(&key, &value).unwrap();
            model.insert(key, value);
        }
        let transaction = db.transaction(Isolation::Serializable);
        let handle = transaction.keyspace(&keyspace).unwrap();
        let mut savepoints = Vec::new();
        for _ in 0..60 {
            match dice.below(12) {
                0..5 => {
                    let (key, value) = (draw(&mut dice), vec![2; dice.below(50) as usize]);
                    handle.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
                5..8 => {
                    let key = draw(&mut dice);
                    assert_eq!(handle.take(&key).unwrap().map(Vec::from), model.remove(&key));
                }
                8 => savepoints.push((transaction.savepoint().unwrap(), model.clone())),
                9 if !savepoints.is_empty() => {
                    let at = dice.below(savepoints.len() as u64) as usize;
                    transaction.roll_back_to(&savepoints[at].0).unwrap();
                    model = savepoints[at].1.clone();
                    savepoints.truncate(at + 1);
                }
                10 => {
                    let mut bounds = [draw(&mut dice), draw(&mut dice)];
                    bounds.sort();
                    let [low, high] = bounds;
                    let removed = handle.remove_range(&low[..]..&high[..]).unwrap();
                    let before = model.len();
                    model.retain(|key, _| *key < low || *key >= high);
                    assert_eq!(removed, (before - model.len()) as u64);
                }
                _ => {
                    let from = draw(&mut dice);
                    let (mut up, mut down) = (handle.cursor(), handle.cursor());
                    up.seek(&from);
                    down.seek(&from);
                    let then = model.clone();
                    // Behind the cursors' backs.
                    handle.put(&[9, 9], b"later").unwrap();
                    model.insert(vec![9, 9], b"later".to_vec());
                    let mut above = then.range(from.clone()..);
                    while let Some((key, value)) = up.next_record().unwrap() {
                        assert_eq!(above.next(), Some((&key.to_vec(), &value.to_vec())));
                    }
                    assert_eq!(above.next(), None);
                    let mut below = then.range(..from).rev();
                    while let Some((key, value)) = down.previous_record().unwrap() {
                        assert_eq!(below.next(), Some((&key.to_vec(), &value.to_vec())));
                    }
                    assert_eq!(below.next(), None);
                }
            }
            let key = draw(&mut dice);
            assert_eq!(handle.get(&key).unwrap().map(Vec::from), model.get(&key).cloned());
        }
        let found: Vec<_> = handle.iter().map(|record| record.unwrap()).collect();
        let found: Vec<(Vec<u8>, Vec<u8>)> =
            found.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>());
        transaction.commit().unwrap();
        assert_eq!(keyspace.count().unwrap(), model.len() as u64);
        for (key, value) in &model {
            assert_eq!(keyspace.get(key).unwrap().as_deref(), Some(&value[..]));
        }
    }
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let (db, keyspace) = memory();
    let (other, foreign) = memory();
    let transaction = db.transaction(Isolation::Serializable);
    assert_eq!(kind(transaction.keyspace(&foreign)), ErrorKind::ForeignKeyspace);
    let handle = transaction.keyspace(&keyspace).unwrap();
    let long = vec![7; keyspace.max_key_bytes() + 1];
    assert!(matches!(kind(handle.put(&long, b"")), ErrorKind::KeyTooLong { .. }));
    let longest = &long[1..];
    handle.put(longest, b"1").unwrap();
    // Savepoints of others, and those that were rolled back.
    let theirs = db.transaction(Isolation::Serializable).savepoint().unwrap();
    assert_eq!(kind(transaction.roll_back_to(&theirs)), ErrorKind::InvalidArgument);
    let first = transaction.savepoint().unwrap();
    let second = transaction.savepoint().unwrap();
    handle.put(b"gone", b"").unwrap();
    transaction.roll_back_to(&first).unwrap();
    assert_eq!(kind(transaction.roll_back_to(&second)), ErrorKind::InvalidArgument);
    transaction.roll_back_to(&first).unwrap();
    assert!(handle.get(b"gone").unwrap().is_none());
    // Reversed bounds are empty.
    assert_eq!(handle.range(&b"z"[..]..&b"a"[..]).count(), 0);
    assert_eq!(handle.remove_range(&b"z"[..]..&b"a"[..]).unwrap(), 0);
    // Too large.
    let mut error = None;
    for n in 0..100_000_u32 {
        let put = handle.put(&[&b"n"[..], &n.to_be_bytes()].concat(), &[7; 1000]);
        if put.is_err() {
            error = put.err();
            break;
        }
    }
    let error = error.expect("there is a limit");
    assert!(matches!(error.kind(), ErrorKind::TransactionTooLarge { .. }), "{error}");
    transaction.roll_back_to(&first).unwrap();
    let iterator = handle.iter();
    transaction.commit().unwrap();
    assert!(is(keyspace.get(longest).unwrap(), b"1"));
    // After the end.
    assert_eq!(kind(handle.get(b"x")), ErrorKind::TransactionEnded);
    assert_eq!(kind(handle.put(b"x", b"")), ErrorKind::TransactionEnded);
    // Also of what would have nothing to do.
    assert_eq!(kind(handle.get_many::<&[u8]>(&[])), ErrorKind::TransactionEnded);
    assert_eq!(
        kind(handle.remove_range(b"b".as_slice()..b"a".as_slice())),
        ErrorKind::TransactionEnded
    );
    let next = iterator.into_iter().next().unwrap();
    assert_eq!(kind(next), ErrorKind::TransactionEnded);
    // A keyspace that was dropped meanwhile.
    let transaction = db.transaction(Isolation::Serializable);
    let handle = transaction.keyspace(&keyspace).unwrap();
    assert!(is(handle.get(b"x").unwrap(), b"0"));
    handle.put(b"x", b"1").unwrap();
    db.drop_keyspace("k").unwrap();
    let outcome = kind(transaction.commit());
    assert!(matches!(outcome, ErrorKind::KeyspaceDropped | ErrorKind::SnapshotTooOld), "{outcome}");
    // A panic in the work aborts it, and others go on.
    let keyspace = db.keyspace("k").unwrap();
    let panics = std::panic::AssertUnwindSafe(|| {
        db.transact(|transaction| -> Result<(), Error> {
            transaction.keyspace(&keyspace)?.put(b"x", b"half")?;
            panic!("in the middle");
        })
    });
    std::panic::catch_unwind(panics).unwrap_err();
    assert!(keyspace.get(b"x").unwrap().is_none());
    // A transaction inside of another one is another one.
    db.transact(|outer| -> Result<(), Error> {
        outer.keyspace(&keyspace)?.put(b"outer", b"1")?;
        db.transact(|inner| -> Result<(), Error> {
            assert!(inner.keyspace(&keyspace)?.get(b"outer")?.is_none());
            inner.keyspace(&keyspace)?.put(b"inner", b"1")
        })
    })
    .unwrap();
    assert_eq!(keyspace.count().unwrap(), 2);
    // Closed.
    let transaction = db.transaction(Isolation::Snapshot);
    let handle = transaction.keyspace(&keyspace).unwrap();
    handle.put(b"late", b"").unwrap();
    db.close().unwrap();
    assert_eq!(kind(handle.get(b"x")), ErrorKind::Closed);
    assert_eq!(kind(transaction.commit()), ErrorKind::Closed);
    drop(other);
}

/// What a function finds that reads whatever has records.
fn found(of: &impl Records) -> (Option<Vec<u8>>, u64, Vec<Vec<u8>>) {
    let mut into = Vec::new();
    assert_eq!(of.get_into(b"x", &mut into).unwrap(), of.contains_key(b"x").unwrap());
    let many = of.get_many(&[b"x", b"y"]).unwrap();
    assert_eq!(many[0].as_deref(), of.get(b"x").unwrap().as_deref());
    let part = of.get_range(b"x", 0..1).unwrap();
    assert_eq!(part.is_some(), of.value_reader(b"x").unwrap().is_some());
    let mut cursor = of.cursor();
    cursor.seek_to_end();
    let last = cursor.previous_record().unwrap().map(|(key, _)| key.to_vec());
    let keys = of.iter().keys().map(|key| key.unwrap().to_vec());
    let keys: Vec<Vec<u8>> = keys.collect();
    assert_eq!(last.as_ref(), keys.last());
    assert_eq!(of.prefix(b"x").count() + of.range(&b"y"[..]..).count(), keys.len());
    (of.get(b"x").unwrap().map(Vec::from), of.count().unwrap(), keys)
}

#[test]
fn reads_are_the_same_for_all_that_have_records_and_figures_tell_how_transactions_ended() {
    let (db, keyspace) = memory();
    let snapshot = db.snapshot().unwrap();
    let transaction = db.transaction(Isolation::Serializable);
    let handle = transaction.keyspace(&keyspace).unwrap();
    let before = found(&keyspace);
    assert_eq!((before.0.as_deref(), before.1), (Some(&b"0"[..]), 2));
    assert_eq!(found(&handle), before);
    keyspace.put(b"x", b"later").unwrap();
    keyspace.remove(b"y").unwrap();
    assert_eq!(found(&snapshot.keyspace(&keyspace).unwrap()), before);
    assert_eq!(found(&handle), before);
    assert_eq!(handle.fetch_add(b"n", 3).unwrap(), 0);
    assert_eq!(handle.fetch_add(b"n", -5).unwrap(), 3);
    assert_eq!(kind(handle.fetch_add(b"x", 1)), ErrorKind::InvalidArgument);
    let longer = handle.update_and_fetch(b"x", |old| Some([old.unwrap(), b"1"].concat()));
    assert_eq!(longer.unwrap().as_deref(), Some(&b"01"[..]));
    assert_eq!(handle.get_or_insert_with(b"x", || &b"2"[..]).unwrap(), b"01");
    assert_eq!(handle.get_or_insert_with(b"z", || &b"2"[..]).unwrap(), b"2");
    assert_eq!(handle.insert_if_absent(b"z", b"3").unwrap(), handle.update(b"w", b"").unwrap());
    assert!(handle.compare_and_swap(b"z", Some(b"2"), None).unwrap().is_swapped());
    assert_eq!(kind(transaction.commit()), ErrorKind::Conflict);
    let stats = db.stats().unwrap();
    assert_eq!((stats.transactions.committed, stats.transactions.conflicts), (0, 1));
    // The transaction's has ended with it, although there is a handle.
    let of = &stats.snapshots;
    assert_eq!((of.begun, of.open, of.given_up), (2, 1, 0));
    assert_eq!(kind(handle.get(b"x")), ErrorKind::TransactionEnded);
    assert_eq!(stats.snapshots.versions, 2);
    assert!(stats.snapshots.versions_bytes <= stats.snapshots.lent_bytes);
    db.transact(|transaction| transaction.keyspace(&keyspace)?.put(b"x", b"")).unwrap();
    assert_eq!(db.stats().unwrap().transactions.committed, 1);
}

/// A keyspace that others change before each commit: every run ends with a conflict.
fn always_conflicts(how: &TransactOptions) -> (u32, ErrorKind) {
    let (db, keyspace) = memory();
    let mut runs = 0_u32;
    let outcome = db.transact_with(how, |transaction| -> Result<(), Error> {
        runs += 1;
        let within = transaction.keyspace(&keyspace)?;
        within.get(b"a")?;
        keyspace.put(b"a", &runs.to_be_bytes())?;
        within.put(b"b", b"1")
    });
    (runs, *outcome.unwrap_err().kind())
}

#[test]
fn a_function_is_run_again_for_as_long_and_as_often_as_its_options_say() {
    let how = TransactOptions::new().retries(3);
    assert_eq!(always_conflicts(&how), (4, ErrorKind::Conflict));
    assert_eq!(always_conflicts(&how.clone().retries(0)), (1, ErrorKind::Conflict));
    // Between two runs there is a wait.
    assert_eq!(always_conflicts(&how.clone().wait(Wait::Never)), (1, ErrorKind::Conflict));
    let token = CancelToken::new();
    token.cancel();
    assert_eq!(always_conflicts(&how.clone().wait(Wait::Cancel(token))), (1, ErrorKind::Conflict));
    let begun = std::time::Instant::now();
    let (runs, kind) = always_conflicts(
        &how.retries(u32::MAX).wait(Wait::For(std::time::Duration::from_millis(100))),
    );
    assert_eq!(kind, ErrorKind::Conflict);
    assert!(runs > 3, "{runs} runs in a tenth of a second");
    assert!(begun.elapsed().as_secs() < 30, "it has an end");
}
