//! Real threads on a store: what they were told has an order.
//!
//! Two to four clients meet on a few keys of the same leaves, while records that come and go beside them split and merge
//! these leaves, readers convert them, and, on the simulated disk with pages of 512 bytes and the smallest pool, they are
//! evicted, written by checkpoints and read again. Everything is recorded with the moments between which it ran, and
//! `testing::linear` looks for an order of it, key by key. Each round begins with what the round before has left, which
//! is read by one scan of everything when all have ended, and so is a part of that round's history.
//!
//! Two thousand histories of a hundred operations; `HEDGEROW_EFFORT` times as many. `HEDGEROW_SEED` repeats a run's
//! choices (not its interleaving).
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests use real threads")]

use crate::common::{Dice, assert_sound, crowded_for, effort, is_thorough, open, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Keyspace, LeafLayout, LeafPolicy, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::linear::{Clock, History, Tally};
use hedgerow_testing::recorded::{Client, Field, Records};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::thread;

const PAGE_BYTES: usize = 512;
/// Half of them are there in the beginning: three times as many pages as the smallest pool has frames.
const KEYS: u64 = 1_600;
/// Keys of a round that everybody is at: so many histories.
const HOT: u64 = 4;
/// Operations of each of them in a round, about.
const OPERATIONS: u64 = 100;
/// With fewer it is no history that counts.
const LEAST_OPERATIONS: u64 = OPERATIONS / 2;
/// Steps of all clients for this: somewhat more than half of a client's steps are at a hot key.
const STEPS: u64 = HOT * OPERATIONS * 100 / 64;
/// How far records come and go on both sides of the hot keys.
const NEAR: u64 = 16;
/// Policies of leaves, with the records for them.
const POLICIES: u64 = 7;
/// Histories of each of the two tests.
const HISTORIES: u64 = 1_000;

/// A store in the making, and what is in it.
struct World {
    what: String,
    db: Database,
    keyspace: Keyspace,
    records: Records,
    /// Tokens by number.
    contents: BTreeMap<u64, u64>,
    /// Steps that any client has done at most.
    steps: u64,
}

impl World {
    /// Fills a new store: every second key.
    fn new(db: Database, records: Records, what: String) -> World {
        let keyspace = db.keyspace("k").unwrap();
        let contents: BTreeMap<u64, u64> =
            (0..KEYS).step_by(2).map(|number| (number, Records::first_token(number))).collect();
        let pairs = contents
            .iter()
            .map(|(number, token)| (records.key(*number), records.value(*number, *token)));
        keyspace.bulk_load(pairs, 90).unwrap();
        World { what, db, keyspace, records, contents, steps: 0 }
    }

    fn client(&self, thread: u32, clock: &Clock, seed: u64) -> Client {
        Client::new(&self.db, &self.keyspace, self.records, thread, clock, seed).after(self.steps)
    }

    /// Lets some clients run on a few keys, and checks what they were told. Also tells on how many of these keys that was
    /// enough for a history.
    fn round(&mut self, dice: &mut Dice) -> (Tally, u64) {
        let clock = Clock::default();
        let threads = 2 + dice.below(3);
        let steps = STEPS / threads;
        let hot = NEAR + dice.below(KEYS - 3 * NEAR);
        let field = Field { keys: KEYS, near: (hot - NEAR, hot + HOT + NEAR), hot: (hot, HOT) };
        let checkpoint_at = dice.below(4 * steps);
        let begin = Barrier::new(threads as usize);
        let seeds: Vec<u64> = (0..threads).map(|_| dice.roll()).collect();
        let mut history = History::default();
        thread::scope(|scope| {
            let (begin, field, db) = (&begin, &field, &self.db);
            let clients: Vec<_> = (0..threads)
                .zip(seeds)
                .map(|(number, seed)| {
                    let mut client = self.client(number as u32, &clock, seed);
                    scope.spawn(move || {
                        begin.wait();
                        for step in 0..steps {
                            client.step(field);
                            // With more threads than processors: so that it is not always the end of a slice of time
                            // that lets another one run.
                            if (step + number).is_multiple_of(8) {
                                thread::yield_now();
                            }
                            if number == 0 && step == checkpoint_at {
                                db.checkpoint().unwrap();
                            }
                        }
                        client.into_history()
                    })
                })
                .collect();
            for client in clients {
                history.extend(client.join().unwrap());
            }
        });
        let mut reader = self.client(threads as u32, &clock, 0);
        reader.scan_all(&field);
        history.extend(reader.into_history());
        let checked = history.check(&self.contents);
        let tally = checked.unwrap_or_else(|violation| panic!("{}: {violation}", self.what));
        let last = history.scans.last().expect("the reader's");
        self.contents = last.found.iter().copied().collect();
        self.steps += steps;
        let is_history = |key: &u64| {
            let operations = history.operations.iter().filter(|operation| operation.key == *key);
            operations.count() as u64 >= LEAST_OPERATIONS
        };
        (tally, (hot..hot + HOT).filter(is_history).count() as u64)
    }

    /// Runs so many rounds.
    fn run(&mut self, rounds: u64, dice: &mut Dice) -> Checked {
        let mut checked = Checked::default();
        for _ in 0..rounds {
            let (tally, histories) = self.round(dice);
            checked.add(Checked {
                histories,
                operations: tally.operations,
                overlaps: tally.overlaps,
            });
        }
        assert_sound(&self.db, &self.what);
        println!("{}: {checked:?}", self.what);
        println!("    {:?}", self.db.stats().unwrap().adaptation);
        checked
    }
}

/// What was found to have an order.
#[derive(Clone, Copy, Default, Debug)]
struct Checked {
    /// Of hot keys, with [`LEAST_OPERATIONS`] or more.
    histories: u64,
    /// Of all keys.
    operations: u64,
    overlaps: u64,
}

impl Checked {
    fn add(&mut self, other: Checked) {
        self.histories += other.histories;
        self.operations += other.operations;
        self.overlaps += other.overlaps;
    }
}

/// All policies, with records that let their layouts come about.
fn policies(dice: &mut Dice) -> Vec<(LeafPolicy, Records)> {
    let mut policies = Vec::new();
    for layout in LeafLayout::ALL {
        let dense = matches!(layout, LeafLayout::SemiDense | LeafLayout::FullyDense);
        let one_size = layout == LeafLayout::FullyDense;
        let records = Records { dense, one_size, all_forms: false };
        policies.push((LeafPolicy::Fixed(layout), records));
    }
    for dense in [false, true] {
        let one_size = dense && dice.below(2) == 0;
        policies.push((LeafPolicy::Adaptive, Records { dense, one_size, all_forms: false }));
    }
    let all_forms = Records { dense: false, one_size: false, all_forms: true };
    policies.push((LeafPolicy::Adaptive, all_forms));
    assert_eq!(policies.len() as u64, POLICIES);
    policies
}

/// Runs each policy in a store of its own, and prints what came of it.
fn run_all(mut world: impl FnMut(LeafPolicy, Records, &mut Dice) -> Checked, dice: &mut Dice) {
    let mut all = Checked::default();
    for (leaves, records) in policies(dice) {
        all.add(world(leaves, records, dice));
    }
    println!("they have an order: {all:?}");
    count(all.histories, "histories");
    assert!(all.overlaps > 0, "the threads ran one after the other");
    let due = rounds() * HOT * POLICIES;
    assert!(all.histories * 10 > due * 9, "{} histories of {due} are short", due - all.histories);
}

/// Rounds with each of the policies.
fn rounds() -> u64 {
    let histories = if is_thorough() { HISTORIES } else { HISTORIES / 3 };
    (effort() * histories).div_ceil(HOT * POLICIES)
}

#[test]
fn answers_of_a_store_in_memory_have_an_order() {
    let mut dice = Dice(seed(hedgerow_sync::primitive::random::seed()));
    let world = |leaves: LeafPolicy, records: Records, dice: &mut Dice| {
        let options =
            Options::new().page_bytes(PAGE_BYTES).memory_limit_bytes(4 << 20).leaves(leaves);
        let what = format!("in memory, {leaves:?}, {records:?}");
        World::new(options.in_memory().unwrap(), records, what).run(rounds(), dice)
    };
    run_all(world, &mut dice);
}

#[test]
fn answers_beside_evictions_and_checkpoints_have_an_order() {
    let mut dice = Dice(seed(hedgerow_sync::primitive::random::seed()));
    let world = |leaves: LeafPolicy, records: Records, dice: &mut Dice| {
        let log = dice.below(2) == 0;
        let options = crowded_for(records).leaves(leaves).log(log);
        let disk = SimDisk::new(dice.roll());
        let what = format!("on a disk, log {log}, {leaves:?}, {records:?}");
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let mut world = World::new(db, records, what);
        let counts = world.run(rounds(), dice);
        let World { what, db, keyspace, contents, .. } = world;
        let stats = db.stats().unwrap();
        assert!(stats.pool.evictions > 0 && stats.pool.pages_written > 0, "{what}: {stats:?}");
        drop(keyspace);
        db.close().unwrap();
        // What the last scan has found is what is there.
        let db = open(&options, &disk, OpenHow::Existing).unwrap();
        assert_sound(&db, &what);
        let mut found = BTreeMap::new();
        for record in db.keyspace("k").unwrap().iter() {
            let (key, value) = record.unwrap();
            let number = records.number(&key);
            found.insert(number, records.token(number, &value));
        }
        assert_eq!(found, contents, "{what}");
        db.close().unwrap();
        counts
    };
    run_all(world, &mut dice);
}
