//! Transactions of real threads, checked by what they were told; what a transaction sees of its own changes; and what is refused.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::anomalies::{BOTH, is, kind, memory};
use crate::common::{Dice, assert_sound, crowded, effort, is_thorough, open, seed};
use crate::history_client::{Client, SECOND, in_order, token};
use hedgerow::internals::store::OpenHow;
use hedgerow::{
    CancelToken, Database, Durability, Error, ErrorKind, Isolation, Keyspace, Options, Records,
    TransactOptions, Wait,
};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::isolation::{
    History, Level, Outcome, Recorder, Step, Tally, Token, Transaction as Told,
};
use hedgerow_testing::linear::{Clock, NEVER};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const THREADS: usize = 3;
/// Numbers of recorders for each run: even, so that whether a thread's number is even tells which one it was.
const NUMBERS: u32 = 4;
/// Histories of each of the three tests and both isolations, and transactions of each thread in one: 204 of them, and half a million
/// transactions that commit.
const THOROUGH: (u64, u64) = (34, 1_040);

/// What threads are to do.
#[derive(Clone, Copy)]
struct Work {
    isolation: Isolation,
    /// Bytes of the longest values, and what makes a long key of the store's.
    longest: u64,
    long: usize,
    /// Transactions of each thread.
    transactions: u64,
}

impl Work {
    fn level(&self) -> Level {
        match self.isolation {
            Isolation::Serializable => Level::StrictSerializable,
            _ => Level::StrongSnapshotIsolation,
        }
    }

    /// Runs threads, each with handles of its own, and `beside` beside them; what they were told, and how many met conflicts.
    fn run<R>(
        &self,
        (db, clock): (&Database, &Clock),
        keyspaces: &[[Keyspace; 2]],
        dice: &mut Dice,
        beside: impl FnOnce() -> R,
    ) -> (Vec<Told>, u64, R) {
        let first = next_numbers();
        let Work { isolation, longest, long, transactions } = *self;
        std::thread::scope(|scope| {
            let clients: Vec<_> = (first..)
                .zip(keyspaces)
                .map(|(thread, keyspaces)| {
                    let mut client = Client {
                        db,
                        keyspaces,
                        order: in_order(long),
                        recorder: Recorder::new(thread, clock),
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
                        (client.recorder.take(), client.conflicts)
                    })
                })
                .collect();
            let beside = beside();
            let (mut told, mut conflicts) = (Vec::new(), 0);
            for client in clients {
                let (transactions, met) = client.join().unwrap();
                told.extend(transactions);
                conflicts += met;
            }
            (told, conflicts, beside)
        })
    }

    fn check(&self, before: BTreeMap<u64, Token>, transactions: Vec<Told>) -> Tally {
        let history = History { before, transactions };
        history.check(self.level()).unwrap_or_else(|violation| panic!("{violation}"))
    }
}

fn keyspaces_of(db: &Database) -> [Keyspace; 2] {
    [db.keyspace("a").unwrap(), db.keyspace("b").unwrap()]
}

/// The records that are there now, by what the checker calls their keys.
fn records(keyspaces: &[Keyspace; 2], long: usize) -> BTreeMap<u64, Token> {
    let order = in_order(long);
    let mut found = BTreeMap::new();
    for (space, keyspace) in keyspaces.iter().enumerate() {
        for record in keyspace {
            let (key, value) = record.unwrap();
            let number = u64::from_be_bytes(key[key.len() - 8..].try_into().unwrap());
            let place = order.iter().position(|of| *of == number).unwrap() as u64;
            found.insert(Client::name(space, place), token(&value));
        }
    }
    found
}

/// Numbers of recorders, so that no two tokens of a store are the same.
static RUNS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// The numbers of a run, from this one on. They begin anew when a recorder takes no larger ones: by then the store is another one.
fn next_numbers() -> u32 {
    RUNS.fetch_add(NUMBERS, Relaxed) % (1 << 16)
}

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
            let work = Work { isolation, longest, long, transactions: each };
            let handles: [[Keyspace; 2]; THREADS] = std::array::from_fn(|_| keyspaces_of(&db));
            let before = records(&handles[0], long);
            let clock = Clock::default();
            let (told, met, ()) = work.run((&db, &clock), &handles, &mut dice, || ());
            checked += work.check(before, told).transactions;
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

/// The power goes while threads are at it, and they go on with what is left: all of that is one history. Of what was told before, what was durable
/// counts; the rest may be there or not, but whole, and with all that it had read.
fn across_a_power_cut(work: Work, dice: &mut Dice) -> u64 {
    let options = Options::new().page_bytes(4096).memory_limit_bytes(8 << 20).log(true);
    let disk = SimDisk::new(dice.roll());
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let clock = Clock::default();
    // Every second one waits until its commits are durable.
    let handles: [[Keyspace; 2]; THREADS] = std::array::from_fn(|thread| {
        let durability = [Durability::Sync, Durability::Buffered][thread % 2];
        keyspaces_of(&db).map(|keyspace| keyspace.with_durability(durability))
    });
    let until = Duration::from_micros(dice.below(300 * work.transactions));
    let (mut told, _, (left, cut)) = work.run((&db, &clock), &handles, dice, || {
        std::thread::sleep(until);
        let cut = clock.tick();
        (disk.state(), cut)
    });
    drop((handles, db));
    let durable = told.iter().filter(|of| is_durable(of, cut)).count() as u64;
    for of in told.iter_mut().filter(|of| of.outcome == Outcome::Committed) {
        if !is_durable(of, cut) {
            (of.outcome, of.ended) = (Outcome::Unknown, NEVER);
        }
    }
    let survivor = SimDisk::with_state(left.crash_at_random(dice.roll()), dice.roll());
    let db = open(&options, &survivor, OpenHow::Existing).unwrap();
    assert_sound(&db, "what a power cut has left");
    let handles = [keyspaces_of(&db), keyspaces_of(&db)];
    told.extend(work.run((&db, &clock), &handles, dice, || ()).0);
    let last = records(&handles[0], work.long);
    let mut recorder = Recorder::new(next_numbers(), &clock);
    let mut open = recorder.begin();
    for space in [0, SECOND] {
        let found = last.range(space..space + SECOND).map(|(key, token)| (*key, *token));
        let found = found.collect();
        open.step(Step::Range { low: space, high: space + SECOND - 1, found });
    }
    recorder.end(open, Outcome::Committed);
    told.extend(recorder.take());
    work.check(BTreeMap::new(), told);
    durable
}

/// Whether what was told was durable at a moment: a thread that waits for that was told that it had changed something.
fn is_durable(of: &Told, cut: u64) -> bool {
    let changes =
        of.steps.iter().any(|step| matches!(step, Step::Put { .. } | Step::Remove { .. }));
    let thread = of.id >> 32;
    thread.is_multiple_of(2) && changes && of.outcome == Outcome::Committed && of.ended < cut
}

#[test]
fn transactions_before_and_after_a_power_cut_are_kept_apart_as_their_isolation_says() {
    let mut dice = Dice(seed(hedgerow_sync::primitive::random::seed()));
    let rounds = if is_thorough() { 60 } else { 6 } * effort();
    let mut durable = 0;
    for isolation in [Isolation::Serializable, Isolation::Snapshot] {
        for _ in 0..rounds {
            let work = Work { isolation, longest: 9000, long: 1_000, transactions: 60 };
            durable += across_a_power_cut(work, &mut dice);
        }
    }
    count(2 * rounds, "power cuts");
    assert!(durable > 0, "some were durable before the power went");
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
                                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
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
    let error = transaction.roll_back_to(&second).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    assert!(error.to_string().contains("behind one that was rolled back to"), "{error}");
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
    assert_eq!(of.first().unwrap(), of.iter().next().transpose().unwrap());
    assert_eq!(of.is_empty().unwrap(), of.first().unwrap().is_none());
    assert_eq!(of.last().unwrap(), of.iter().next_back().transpose().unwrap());
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
    let seen = snapshot.keyspace(&keyspace).unwrap();
    assert_eq!(found(&seen), before);
    assert_eq!(found(&handle), before);
    assert_eq!((seen.name(), handle.name()), ("k", "k"));
    assert_eq!(snapshot.open_keyspace("k").unwrap().unwrap().name(), "k");
    assert_eq!((&seen).into_iter().count(), (&handle).into_iter().count());
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

#[test]
fn a_transaction_by_hand_has_the_options_of_transact() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options::new().memory_limit_bytes(8 << 20);
    let db = options.create(directory.path().join("stock.hrow")).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    let token = CancelToken::new();
    let how = TransactOptions::new()
        .isolation(Isolation::Snapshot)
        .durability(Durability::Sync)
        .wait(Wait::Cancel(token.clone()));
    for n in 0..20_u8 {
        let transaction = db.transaction_with(&how);
        transaction.keyspace(&keyspace).unwrap().put(&[n], b"1").unwrap();
        let position = transaction.commit().unwrap();
        assert!(db.durable_position() >= position, "{n}");
    }
    // Another one reads what this one changes, and the other way round.
    let (one, other) = (db.transaction_with(&how), db.transaction_with(&how));
    let (first, second) = (one.keyspace(&keyspace).unwrap(), other.keyspace(&keyspace).unwrap());
    assert!(first.contains_key(b"\x01").unwrap() && second.contains_key(b"\x02").unwrap());
    first.put(b"\x02", b"2").unwrap();
    second.put(b"\x01", b"2").unwrap();
    one.commit().unwrap();
    // The change is made, and nobody waits for the disk any more, unless the log's thread was there first.
    token.cancel();
    if let Err(error) = other.commit() {
        assert_eq!(error.kind(), ErrorKind::NotYetDurable);
    }
    // What the commit itself is told wins.
    let transaction = db.transaction_with(&how);
    transaction.keyspace(&keyspace).unwrap().put(b"x", b"1").unwrap();
    transaction.commit_with(Durability::Buffered).unwrap();
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
    (runs, outcome.unwrap_err().kind())
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

/// In memory a large value that was replaced goes when no snapshot sees it any more. A step of a cursor may be the first to notice.
#[test]
fn a_snapshot_that_is_too_old_for_a_large_value_is_tried_again_as_well() {
    const AGE: Duration = Duration::from_millis(100);
    let options = Options::new().memory_limit_bytes(16 << 20).max_snapshot_age(AGE);
    let db = options.in_memory().unwrap();
    let keyspace = db.keyspace("k").unwrap();
    let old = vec![1; 10_000];
    for name in [b"x", b"y"] {
        keyspace.put(name, &old).unwrap();
    }
    let mut runs = 0;
    let lens = db.transact(|transaction| {
        let handle = transaction.keyspace(&keyspace)?;
        let mut cursor = handle.cursor();
        let first = cursor.next_record()?.unwrap().1.len();
        runs += 1;
        if runs == 1 {
            std::thread::sleep(2 * AGE);
            // Whoever begins a snapshot gives up those that are too old.
            drop(db.snapshot()?);
            keyspace.put(b"y", &[2; 9_000])?;
            drop(db.snapshot()?);
        }
        Ok::<_, Error>((first, cursor.next_record()?.unwrap().1.len()))
    });
    assert_eq!((lens.unwrap(), runs), ((10_000, 9_000), 2));
}

#[test]
fn an_iterator_has_the_changes_that_there_were_when_it_was_made() {
    let (db, keyspace) = memory();
    for isolation in BOTH {
        let transaction = db.transaction(isolation);
        let handle = transaction.keyspace(&keyspace).unwrap();
        handle.put(b"m", b"0").unwrap();
        let (mut all, mut some) = (handle.iter(), handle.prefix(b"a"));
        let mut names = handle.range(..).keys();
        handle.put(b"a", b"1").unwrap();
        handle.remove(b"m").unwrap();
        assert_eq!(all.next().unwrap().unwrap().0, b"m");
        handle.put(b"z", b"1").unwrap();
        assert_eq!(all.next_back().unwrap().unwrap().0, b"y");
        assert!(some.next().is_none());
        assert_eq!(names.next().unwrap().unwrap(), b"m");
        // Of those that are made now, both ends have all.
        assert_eq!(handle.first().unwrap().unwrap().0, b"a");
        assert_eq!(handle.last().unwrap().unwrap().0, b"z");
        assert_eq!(handle.count().unwrap(), 4);
    }
}

/// It kept the snapshot open, and what is kept for that, for as long as it lived.
#[test]
fn an_iterator_and_a_cursor_of_a_transaction_that_has_ended_keep_no_snapshot() {
    let db = Options::new().in_memory().unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    for n in 0..1000_u32 {
        wrens.put(&n.to_be_bytes(), b"sings").unwrap();
    }
    for commits in [true, false] {
        let transaction = db.transaction(Isolation::Serializable);
        let inside = transaction.keyspace(&wrens).unwrap();
        inside.put(b"wren", b"hops").unwrap();
        let (mut records, mut cursor) = (inside.iter(), inside.cursor());
        records.next().unwrap().unwrap();
        cursor.seek(&500_u32.to_be_bytes());
        cursor.next_record().unwrap();
        assert_eq!(db.held_states().len(), 1);
        match commits {
            true => drop(transaction.commit().unwrap()),
            false => drop(transaction),
        }
        assert!(db.held_states().is_empty(), "commits: {commits}");
        let refused = records.find_map(Result::err).unwrap();
        assert_eq!(refused.kind(), ErrorKind::TransactionEnded);
    }
}
