//! Commits that are too large for one stroke: nobody sees half of one, readers go on beside it, and a crash or a failure leaves all or
//! nothing.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::session::{Mix, Session, Tally, examiner};
use crate::common::{Dice, Model, assert_sound, crowded, effort, key, open, seed, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{
    CompareAndSwap, Database, ErrorKind, Isolation, Keyspace, Options, Snapshot, Wait, WriteBatch,
};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Fault};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Records of a large commit: in the smallest store several times its memory.
const KEYS: u64 = 1200;

fn value(round: u64) -> Vec<u8> {
    [&round.to_be_bytes()[..], &[7; 40]].concat()
}

fn round_of(value: &[u8]) -> u64 {
    assert_eq!(value[8..], [7; 40]);
    u64::from_be_bytes(value[..8].try_into().unwrap())
}

/// All records get a value of that round.
fn batch(keyspace: &Keyspace, round: u64) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for n in 0..KEYS {
        batch.put(keyspace, &key(n), &value(round)).unwrap();
    }
    batch
}

/// The same by a transaction that has read some of them.
fn transact(db: &Database, keyspace: &Keyspace, round: u64) -> Result<(), hedgerow::Error> {
    let transaction = db.transaction(Isolation::Serializable);
    let in_it = transaction.keyspace(keyspace)?;
    for n in (0..KEYS).step_by(200) {
        assert_eq!(round_of(&in_it.get(&key(n))?.unwrap()), round - 1);
    }
    for n in 0..KEYS {
        in_it.put(&key(n), &value(round))?;
    }
    transaction.commit().map(drop)
}

fn commits_alone(db: &Database) -> u64 {
    db.stats().unwrap().transactions.alone
}

/// What all threads of a test share.
struct World {
    db: Database,
    wrens: Keyspace,
    others: Keyspace,
    /// Odd while a large commit is being made.
    step: AtomicU64,
    is_over: AtomicBool,
    /// Looks that began and ended while one was being made.
    beside: AtomicU64,
}

impl World {
    fn get(&self, n: u64) -> u64 {
        round_of(&self.wrens.get(&key(n)).unwrap().unwrap())
    }

    /// Calls `look` until the test is over.
    fn repeat(&self, seed: u64, mut look: impl FnMut(&mut Dice)) {
        let mut dice = Dice(seed);
        while !self.is_over.load(SeqCst) {
            let before = self.step.load(SeqCst);
            look(&mut dice);
            if before % 2 == 1 && self.step.load(SeqCst) == before {
                self.beside.fetch_add(1, SeqCst);
            }
        }
    }

    /// What was found between two gets is no older than the first has seen, and no newer than the second.
    fn between(&self, dice: &mut Dice, found: impl FnOnce() -> Vec<u64>) {
        let (first, last) = (dice.below(KEYS), dice.below(KEYS));
        let before = self.get(first);
        let found = found();
        let after = self.get(last);
        for round in found {
            assert!((before..=after).contains(&round), "{before}, {round}, {after}");
        }
    }

    fn look(&self, dice: &mut Dice) {
        let at = dice.below(KEYS);
        match dice.below(9) {
            0 => self.between(dice, || vec![self.get(at)]),
            1 => self.between(dice, || {
                let mut found = Vec::new();
                assert!(self.wrens.get_into(&key(at), &mut found).unwrap());
                vec![round_of(&found)]
            }),
            2 => self.between(dice, || {
                let keys: Vec<_> = (0..40).map(|n| key((at + n * 31) % KEYS)).collect();
                let found = self.wrens.get_many(&keys).unwrap();
                found.iter().map(|value| round_of(value.as_ref().unwrap())).collect()
            }),
            3 => self.between(dice, || {
                let (first, last) = (self.wrens.first().unwrap(), self.wrens.last().unwrap());
                [first, last].map(|found| round_of(&found.unwrap().1)).to_vec()
            }),
            // What changes nothing is a look, too.
            4 => self.between(dice, || {
                let swap = self.wrens.compare_and_swap(&key(at), Some(b"never"), None).unwrap();
                let CompareAndSwap::Differs(Some(found)) = swap else { panic!("{swap:?}") };
                vec![round_of(&found)]
            }),
            5 => self.between(dice, || {
                let mut found = 0;
                let keep = |old: Option<&[u8]>| {
                    found = round_of(old.unwrap());
                    old.map(<[u8]>::to_vec)
                };
                self.wrens.fetch_update(&key(at), keep).unwrap();
                vec![found]
            }),
            // A scan looks at one leaf after the other, each no earlier than the one before.
            6 => self.between(dice, || {
                let found = self.wrens.range(key(at)..).take(300);
                let rounds: Vec<u64> = found.map(|record| round_of(&record.unwrap().1)).collect();
                assert!(rounds.is_sorted(), "{rounds:?}");
                rounds
            }),
            7 => self.between(dice, || {
                let found = self.wrens.range(..key(at)).rev().take(300);
                let rounds: Vec<u64> = found.map(|record| round_of(&record.unwrap().1)).collect();
                assert!(rounds.is_sorted(), "{rounds:?}");
                rounds
            }),
            _ => {
                let mut rounds = Vec::new();
                let visit = |_: &[u8], value: &[u8]| {
                    rounds.push(round_of(value));
                    ControlFlow::<()>::Continue(())
                };
                assert_eq!(self.wrens.cursor().visit(visit).unwrap(), ControlFlow::Continue(()));
                assert!(rounds.len() as u64 == KEYS && rounds.is_sorted(), "{rounds:?}");
            }
        }
    }

    /// `None`: so many threads use the smallest pool that it has no frame to lend.
    fn snapshot(&self) -> Option<Snapshot> {
        match self.db.snapshot() {
            Ok(snapshot) => Some(snapshot),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error:?}");
                None
            }
        }
    }

    /// All that a snapshot shows is of one round, no older than what was seen before it began.
    fn look_back(&self, dice: &mut Dice) {
        let before = self.get(dice.below(KEYS));
        let Some(snapshot) = self.snapshot() else { return };
        match self.rounds(&snapshot, dice) {
            Ok(rounds) => {
                assert!(rounds.iter().all(|round| *round == rounds[0]), "{rounds:?}");
                assert!(rounds[0] >= before && rounds[0] <= self.get(dice.below(KEYS)));
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error:?}"),
        }
    }

    fn rounds(&self, snapshot: &Snapshot, dice: &mut Dice) -> Result<Vec<u64>, hedgerow::Error> {
        let seen = snapshot.keyspace(&self.wrens)?;
        let mut rounds = Vec::new();
        for _ in 0..20 {
            rounds.push(round_of(&seen.get(&key(dice.below(KEYS)))?.unwrap()));
        }
        for record in seen.iter() {
            rounds.push(round_of(&record?.1));
        }
        assert_eq!(rounds.len() as u64, 20 + KEYS);
        Ok(rounds)
    }

    /// Plain changes, of so many records that their pages have to be read: they wait at the gate, and go on.
    fn write(&self, dice: &mut Dice) {
        let n = dice.below(2000);
        let number = dice.roll().to_be_bytes();
        let hasty = self.others.clone().with_wait(Wait::For(Duration::from_millis(1)));
        match dice.below(4) {
            0 => match hasty.put(&key(n), &number) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}"),
            },
            1 => {
                let mut batch = WriteBatch::new();
                for n in n..n + 6 {
                    batch.put(&self.others, &key(n * 13 % 2000), &number).unwrap();
                }
                self.db.write(&batch).unwrap();
            }
            _ => drop(self.others.put(&key(n), &number).unwrap()),
        }
    }

    /// A keyspace that has come is seen by a snapshot that begins then, and one that has gone is not.
    fn create(&self, number: u64) {
        let name = format!("short-lived {number}");
        self.db.create_keyspace(&name).unwrap();
        let is_seen = |seen: Snapshot| match seen.open_keyspace(&name) {
            Ok(found) => Some(found.is_some()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error:?}");
                None
            }
        };
        assert_ne!(self.snapshot().and_then(is_seen), Some(false), "{name}");
        assert!(self.db.drop_keyspace(&name).unwrap());
        assert_ne!(self.snapshot().and_then(is_seen), Some(true), "{name}");
    }
}

fn commit_beside_others(options: &Options, rounds: u64) {
    let db = open(options, &SimDisk::new(1), OpenHow::New).unwrap();
    let (wrens, others) = (db.keyspace("wrens").unwrap(), db.keyspace("others").unwrap());
    db.write(&batch(&wrens, 0)).unwrap();
    let world = Arc::new(World {
        db,
        wrens,
        others,
        step: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        beside: AtomicU64::new(0),
    });
    let base = seed(91);
    let mut threads = Vec::new();
    // Not within a scope: if somebody waits for ever this test fails, and does not wait for it.
    let mut thread = |work: Box<dyn FnOnce(&World) + Send>| {
        let world = world.clone();
        threads.push(std::thread::spawn(move || work(&world)));
    };
    for n in 0..3 {
        thread(Box::new(move |world| world.repeat(base + n, |dice| world.look(dice))));
    }
    thread(Box::new(move |world| world.repeat(base + 10, |dice| world.look_back(dice))));
    for n in 20..28 {
        thread(Box::new(move |world| world.repeat(base + n, |dice| world.write(dice))));
    }
    thread(Box::new(|world| {
        for number in 0.. {
            if world.is_over.load(SeqCst) {
                break;
            }
            world.create(number);
            world.db.checkpoint().unwrap();
        }
    }));
    let (tells, told) = channel();
    thread(Box::new(move |world| {
        for round in 1..=rounds {
            world.step.fetch_add(1, SeqCst);
            match round % 2 {
                0 => drop(world.db.write(&batch(&world.wrens, round)).unwrap()),
                _ => loop {
                    match transact(&world.db, &world.wrens, round) {
                        Ok(()) => break,
                        Err(error) => {
                            let kinds = [ErrorKind::SnapshotTooOld, ErrorKind::MemoryLimit];
                            assert!(kinds.contains(&error.kind()), "{error:?}");
                        }
                    }
                },
            }
            world.step.fetch_add(1, SeqCst);
            assert_eq!(world.get(round % KEYS), round);
        }
        tells.send(()).unwrap();
    }));
    let ended = told.recv_timeout(Duration::from_secs(50));
    world.is_over.store(true, SeqCst);
    assert!(ended.is_ok(), "the commits do not come to an end, or one has failed");
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(commits_alone(&world.db) >= rounds, "{}", commits_alone(&world.db));
    let beside = world.beside.load(SeqCst);
    println!("{beside} looks while a large commit was being made");
    count(beside, "looks beside large commits");
    assert!(beside > rounds, "readers go on: {beside}");
    assert_sound(&world.db, "after large commits");
    world.db.clone().close().unwrap();
}

#[test]
fn half_of_a_large_commit_is_seen_by_nobody_and_readers_go_on() {
    let options = tiny().log(true).memory_limit_bytes(2 << 20).background_checkpoints(true);
    commit_beside_others(&options, 12 * effort());
}

/// Each writer that waits had a place in the pool, and there are fewer places than writers.
#[test]
fn whoever_waits_at_the_gate_leaves_its_place_in_the_smallest_pool_to_others() {
    commit_beside_others(&crowded(), 4 * effort());
}

/// Pages that hold a few records, and little memory: most commits are alone.
fn small() -> Options {
    tiny().log(true).memory_limit_bytes(512 << 10).log_segment_blocks(24)
}

#[test]
fn a_crash_at_any_call_leaves_every_large_commit_whole_or_not_at_all() {
    let mut dice = Dice(seed(92));
    let mut tally = Tally::default();
    let value = |dice: &mut Dice| vec![dice.roll() as u8; 60 + dice.below(100) as usize];
    let mix =
        Mix { keys: 150, long_keys: 0, rare: 12, batch: [10, 150, 250], value, moments: (3, 1) };
    let mut alone = 0;
    for _ in 0..2 * effort() {
        let disk = SimDisk::new(dice.roll());
        let mut session = Session::begin(disk, &small(), mix, examiner(&small()), Model::new());
        for _ in 0..25 {
            let durable_before = session.history.durable();
            session.step(&mut dice);
            session.explore(durable_before, &mut dice, &mut tally);
        }
        alone += commits_alone(&session.db);
    }
    tally.count();
    assert!(alone > 2, "{alone} commits alone");
    assert!(tally.accidents > 50, "{}", tally.accidents);
}

/// Reads fail in the middle. From then on everybody sees what was there before, and the next opening finishes it.
#[test]
fn behind_a_failure_in_the_middle_everybody_sees_what_was_before_until_the_store_is_opened_again() {
    let (mut failed, mut unfinished) = (0, 0);
    // So small a pool that pages are read all the time.
    let options = crowded().background_checkpoints(false);
    for call in (0..).step_by(if effort() > 1 { 3 } else { 17 }) {
        let disk = SimDisk::new(call);
        let db = open(&options, &disk, OpenHow::New).unwrap();
        db.write(&batch(&db.keyspace("wrens").unwrap(), 0)).unwrap();
        db.close().unwrap();
        let db = open(&options, &disk, OpenHow::Existing).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        let old = db.snapshot().unwrap();
        disk.inject(Fault::once(CallKind::Read, call, Fault::EIO).sticky());
        let outcome = match call % 2 {
            0 => db.write(&batch(&wrens, 1)).map(drop),
            _ => transact(&db, &wrens, 1),
        };
        disk.clear_faults();
        let Err(error) = outcome else { break };
        failed += 1;
        for n in (0..KEYS).step_by(7) {
            assert_eq!(round_of(&wrens.get(&key(n)).unwrap().unwrap()), 0, "call {call}");
        }
        let all = |keyspace: hedgerow::Range| {
            keyspace.map(|record| round_of(&record.unwrap().1)).collect::<Vec<_>>()
        };
        assert_eq!(all(wrens.iter()), [0; KEYS as usize], "call {call}");
        for seen in [old, db.snapshot().unwrap()] {
            let seen = seen.keyspace(&wrens).unwrap();
            assert_eq!(all(seen.iter()), [0; KEYS as usize], "call {call}");
        }
        let is_unfinished = error.kind() == ErrorKind::BatchUnfinished;
        match (is_unfinished, wrens.put(&key(KEYS + 5), &value(0))) {
            (true, put) => assert_eq!(put.unwrap_err().kind(), ErrorKind::Poisoned),
            // Nothing has changed, and others go on.
            (false, put) => assert!(!put.unwrap(), "{error:?}"),
        }
        let swap = wrens.compare_and_swap(&key(0), Some(b"never"), None);
        assert_eq!(swap.is_err(), is_unfinished, "{swap:?}");
        db.sync().ok();
        drop(db.close());
        let again = open(&options, &disk.crash(call), OpenHow::Existing).unwrap();
        assert_sound(&again, "after a failure");
        let wrens = again.keyspace("wrens").unwrap();
        let of_keys = all(wrens.range(..key(KEYS)));
        let expected = u64::from(is_unfinished);
        assert!(of_keys.len() as u64 == KEYS && of_keys.iter().all(|round| *round == expected));
        unfinished += u64::from(is_unfinished);
    }
    count(failed, "faulty runs");
    assert!(unfinished > 0 && failed > unfinished, "{unfinished} of {failed}");
}

#[test]
fn a_large_transaction_is_in_conflict_with_what_came_between_and_has_changed_nothing_then() {
    let db = open(&small(), &SimDisk::new(1), OpenHow::New).unwrap();
    let wrens = db.keyspace("wrens").unwrap();
    db.write(&batch(&wrens, 0)).unwrap();
    let puts_all = |transaction: &hedgerow::Transaction| {
        let in_it = transaction.keyspace(&wrens).unwrap();
        (0..KEYS - 1).for_each(|n| in_it.put(&key(n), &value(1)).map(drop).unwrap());
    };
    for removes in [false, true] {
        let before = commits_alone(&db);
        let transaction = db.transaction(Isolation::Serializable);
        let in_it = transaction.keyspace(&wrens).unwrap();
        // The last record, and that there is none behind it.
        assert_eq!(in_it.range(key(KEYS - 1)..).count(), 1);
        puts_all(&transaction);
        match removes {
            true => drop(wrens.remove(&key(KEYS - 1)).unwrap()),
            false => drop(wrens.put(&key(KEYS + 1), &value(0)).unwrap()),
        }
        let error = transaction.commit().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let (of, at) = error.conflict().unwrap();
        assert_eq!((of, at), ("wrens", &key(if removes { KEYS - 1 } else { KEYS + 1 })[..]));
        assert_eq!(commits_alone(&db), before);
        assert!(wrens.range(..key(KEYS - 1)).all(|record| round_of(&record.unwrap().1) == 0));
        wrens.remove(&key(KEYS + 1)).unwrap();
    }
    // What nobody has changed it finds unchanged, also where others have changed the leaf.
    wrens.put(&key(KEYS - 1), &value(0)).unwrap();
    let transaction = db.transaction(Isolation::Serializable);
    let in_it = transaction.keyspace(&wrens).unwrap();
    assert!(in_it.get(&key(KEYS - 1)).unwrap().is_some());
    puts_all(&transaction);
    wrens.put(&key(KEYS), &value(5)).unwrap();
    let before = commits_alone(&db);
    transaction.commit().unwrap();
    assert_eq!(commits_alone(&db), before + 1);
    assert!(wrens.range(..key(KEYS - 1)).all(|record| round_of(&record.unwrap().1) == 1));
}

#[test]
fn a_transaction_beyond_its_share_of_the_log_is_too_large_and_goes_on() {
    let options = Options::new().memory_limit_bytes(16 << 20).log_limit_bytes(8 << 20);
    for log in [true, false] {
        let db = open(&options.clone().log(log), &SimDisk::new(1), OpenHow::New).unwrap();
        let wrens = db.keyspace("wrens").unwrap();
        let transaction = db.transaction(Isolation::Serializable);
        let in_it = transaction.keyspace(&wrens).unwrap();
        let refused = (0..20_000).find_map(|n| in_it.put(&key(n), &[1; 500]).err()).unwrap();
        let ErrorKind::TransactionTooLarge { len_bytes, max_bytes } = refused.kind() else {
            panic!("{refused:?}");
        };
        assert!(max_bytes <= 1 << 20 && max_bytes > (1 << 20) - (1 << 14));
        assert!(len_bytes > max_bytes, "{len_bytes} of {max_bytes}");
        // What it has is as it was.
        let many = in_it.count().unwrap();
        assert!(many > 1500);
        transaction.commit().unwrap();
        assert_eq!((wrens.count().unwrap(), commits_alone(&db)), (many, u64::from(log)));
        db.close().unwrap();
    }
}
