//! Batches that are made at one stroke: a crash at any call leaves all of one or nothing, and no reader sees half of one.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::session::{Mix, Session, Tally, examiner};
use crate::common::{
    Dice, Model, assert_sound, contents, effort, is_thorough, key, open, seed, tiny,
};
use hedgerow::internals::store::OpenHow;
use hedgerow::{CompareAndSwap, Database, ErrorKind, Isolation, Keyspace, Options, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;

/// With pages that hold a few records, and so much memory that a commit may have some pieces of 8 KiB.
fn logged() -> Options {
    Options::new()
        .page_bytes(4096)
        .memory_limit_bytes(4 << 20)
        .log(true)
        .log_segment_blocks(24)
        .background_checkpoints(false)
}

/// Commits of one piece in a leaf or two, and of three pieces in all leaves.
fn mix() -> Mix {
    let value = |dice: &mut Dice| vec![dice.roll() as u8; 400 + dice.below(600) as usize];
    Mix { keys: 30, long_keys: 4, rare: 40, batch: [2, 8, 60], value, moments: (1, 2) }
}

#[test]
fn a_crash_at_any_call_leaves_every_commit_whole_or_not_at_all() {
    let mut dice = Dice(seed(81));
    let mut tally = Tally::default();
    let steps = if is_thorough() { 120 } else { 30 };
    for _ in 0..effort() {
        let mut disk = SimDisk::new(dice.roll());
        let mut before = Model::new();
        for _ in 0..2 {
            let mut session = Session::begin(disk, &logged(), mix(), examiner(&logged()), before);
            for _ in 0..steps {
                let durable_before = session.history.durable();
                session.step(&mut dice);
                session.explore(durable_before, &mut dice, &mut tally);
            }
            before = session.history.now().clone();
            session.db.sync().unwrap();
            disk = session.disk.kill(dice.roll());
        }
    }
    tally.count();
    assert!(tally.accidents > steps, "{}", tally.accidents);
}

/// Without a log a checkpoint has every commit whole.
#[test]
fn without_a_log_a_crash_leaves_whole_commits() {
    let mut dice = Dice(seed(82));
    let options = logged().log(false);
    let disk = SimDisk::new(dice.roll());
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let keyspace = db.keyspace("wrens").unwrap();
    db.checkpoint().unwrap();
    disk.record_states(true);
    let (mut states, mut tried) = (vec![contents(&db).unwrap()], 0);
    for round in 0..8_u8 {
        let mut batch = WriteBatch::new();
        for n in 0..40 {
            batch.put(&keyspace, &key(n), &[round; 300]).unwrap();
        }
        db.write(&batch).unwrap();
        db.checkpoint().unwrap();
        states.push(contents(&db).unwrap());
        for state in disk.take_states() {
            let survivor = SimDisk::with_state(state.crash_at_random(dice.roll()), dice.roll());
            let again = open(&options, &survivor, OpenHow::Existing).unwrap();
            assert!(states.contains(&contents(&again).unwrap()));
            tried += 1;
        }
    }
    count(tried, "crash states");
    assert!(tried > 20, "{tried}");
}

/// Money between accounts, in leaves of their own and beside each other. Who reads all of one leaf at a look sees every sum
/// whole; who reads an account and then another never sees an older state of that.
fn transfers(db: &Database) {
    const ACCOUNTS: u64 = 400;
    const WRITERS: u64 = 2;
    const ROUNDS: u64 = 1500;
    let keyspace = db.keyspace("accounts").unwrap();
    for n in 0..ACCOUNTS {
        keyspace.put(&key(n), &0_u64.to_be_bytes()).unwrap();
    }
    let number = |keyspace: &Keyspace, n: u64| {
        let value = keyspace.get(&key(n)).unwrap().unwrap();
        u64::from_be_bytes(value[..].try_into().unwrap())
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (db, keyspace) = (db.clone(), keyspace.clone());
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let mut batch = WriteBatch::new();
                    // In the order of the second writer the leaves are others.
                    for part in [7, 150, 300] {
                        let n = part + 20 * writer;
                        batch.put(&keyspace, &key(n), &round.to_be_bytes()).unwrap();
                    }
                    db.write(&batch).unwrap();
                }
            });
        }
        // Plain changes beside them: of their leaves, and of a key that nobody else has.
        scope.spawn(|| {
            for round in 0..ROUNDS {
                for n in [8, 151, 301] {
                    let old = keyspace.get(&key(n)).unwrap();
                    let new = round.to_be_bytes();
                    let swap = keyspace.compare_and_swap(&key(n), old.as_deref(), Some(&new));
                    assert_eq!(swap.unwrap(), CompareAndSwap::Swapped);
                }
            }
        });
        let mut looks = 0;
        loop {
            let mut is_over = true;
            for writer in 0..WRITERS {
                let at = |part: u64| number(&keyspace, part + 20 * writer);
                for [one, other] in [[7, 150], [300, 150], [150, 7], [7, 300]] {
                    let (seen, then) = (at(one), at(other));
                    assert!(then >= seen, "{one} had {seen}, and then {other} had {then}");
                    looks += 1;
                }
                is_over &= at(7) == ROUNDS;
            }
            if is_over {
                break;
            }
        }
        count(looks, "pairs of looks");
    });
    for writer in 0..WRITERS {
        assert!([7, 150, 300].iter().all(|part| number(&keyspace, part + 20 * writer) == ROUNDS));
    }
}

#[test]
fn half_of_a_batch_is_seen_by_no_two_gets() {
    let memory = Options::new().memory_limit_bytes(16 << 20).page_bytes(512);
    transfers(&memory.in_memory().unwrap());
    for options in [logged(), tiny(), tiny().log(true).memory_limit_bytes(1 << 20)] {
        let options = options.background_checkpoints(true);
        let db = open(&options, &SimDisk::new(1), OpenHow::New).unwrap();
        transfers(&db);
        db.close().unwrap();
    }
}

/// One leaf has the range of many of the checkpoint's, which are compared one after the other.
#[test]
fn what_came_and_went_in_a_wide_range_is_no_conflict_and_what_is_left_of_it_is_one() {
    for is_left in [false, true] {
        let options = Options::new().page_bytes(4096).memory_limit_bytes(2 << 20);
        let db = open(&options, &SimDisk::new(seed(77)), OpenHow::New).unwrap();
        let [wrens, sums] = ["wrens", "sums"].map(|name| db.keyspace(name).unwrap());
        wrens.put(&key(7), b"seven").unwrap();
        let transaction = db.transaction(Isolation::Serializable);
        assert_eq!(transaction.keyspace(&wrens).unwrap().count().unwrap(), 1);
        for n in 100..4_000 {
            wrens.put(&key(n), &[1; 100]).unwrap();
        }
        // It takes the snapshot over.
        db.checkpoint().unwrap();
        let end = if is_left { 3_999 } else { 4_000 };
        let removed = wrens.remove_range(&key(100)[..]..&key(end)[..]).unwrap();
        assert_eq!(removed, end - 100);
        db.checkpoint().unwrap();
        transaction.keyspace(&sums).unwrap().put(b"wrens", b"1").unwrap();
        let committed = transaction.commit();
        assert_eq!(
            committed.as_ref().err().map(hedgerow::Error::kind),
            match is_left {
                true => Some(ErrorKind::Conflict),
                false => None,
            }
        );
        assert_sound(&db, "a wide leaf was compared");
    }
}
