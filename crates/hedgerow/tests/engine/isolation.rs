//! Real threads on a store: what they were told keeps the isolation that is promised.
//!
//! Single operations, scans of what is in one leaf and bulk loads are transactions that come one after the other, in
//! the order of time where they do not overlap. Three clients draw them on two of many small keyspaces, which are in a leaf each;
//! beside them a keyspace is loaded, and all others and a large one are looked at, so that, with pages of 512 bytes and
//! the smallest pool, leaves are evicted, written by checkpoints and read again.
//!
//! And when the power goes, a batch is a transaction: what is found afterwards has all of it or nothing.
//!
//! Everything is recorded, and `testing::isolation` checks it. `HEDGEROW_EFFORT` times as much; `HEDGEROW_SEED` repeats a
//! run's choices (not its interleaving).
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests use real threads")]

use crate::common::{Dice, assert_sound, crowded_for, effort, is_thorough, open, seed};
use hedgerow::internals::store::OpenHow;
use hedgerow::{
    CompareAndSwap, Database, Durability, Keyspace, LeafLayout, LeafPolicy, Options, WriteBatch,
};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::islands::{Client, ISLAND_KEYS, Place};
use hedgerow_testing::isolation::{
    History, Level, Outcome, Over, Recorder, Step, Tally, Token, Transaction,
};
use hedgerow_testing::linear::Clock;
use hedgerow_testing::recorded::Records;
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const PAGE_BYTES: usize = 512;
const CLIENTS: u32 = 3;
/// Keyspaces of one leaf, two of which are worked on in a round.
const ISLANDS: u64 = 30;
/// Steps of each client in a round.
const STEPS: u64 = 1_000;
/// Records of the keyspace that is there to fill the pool.
const SEA: u64 = 1_200;
/// The first number of the keys that are loaded.
const LOADED: u64 = 900_000;
/// Transactions of each of the two tests with threads, at least.
const TRANSACTIONS: u64 = 20_000;
/// Power cuts of the third one.
const CRASHES: u64 = 40;

struct World {
    what: String,
    db: Database,
    sea: Keyspace,
    islands: Vec<Place>,
    clients: Vec<Client>,
    /// What the keys of all islands have.
    contents: BTreeMap<u64, Token>,
    loads: [u64; 2],
    records: Records,
}

impl World {
    fn new(db: Database, records: Records, what: String, dice: &mut Dice) -> World {
        let sea = db.keyspace("sea").unwrap();
        let number = |at| LOADED / 2 + at;
        let pairs = (0..SEA).map(|at| (records.key(number(at)), records.value(number(at), 1)));
        sea.bulk_load(pairs, 90).unwrap();
        let island = |at: u64| Place {
            // One leaf, whoever contends for it.
            keyspace: db.keyspace(&format!("island {at}")).unwrap().with_contention_split(None),
            first: at * 2 * ISLAND_KEYS,
        };
        let islands = (0..ISLANDS).map(island).collect();
        let clock = Clock::default();
        let client = |thread| Client::new(&db, records, thread, &clock, dice.roll());
        let clients = (0..CLIENTS).map(client).collect();
        let (contents, loads) = (BTreeMap::new(), [0; 2]);
        World { what, db, sea, islands, clients, contents, loads, records }
    }

    /// Lets all clients run on two islands and on a keyspace that one of them loads, and checks what they were told.
    fn round(&mut self, dice: &mut Dice) -> Tally {
        let first = dice.below(ISLANDS) as usize;
        let second = (first + 1 + dice.below(ISLANDS - 1) as usize) % ISLANDS as usize;
        let places = [self.islands[first].clone(), self.islands[second].clone()];
        let keyspace = self.db.create_keyspace("loaded").unwrap().with_contention_split(None);
        let loaded = Place { keyspace, first: LOADED };
        let load_at = dice.below(STEPS);
        let meddle_at = if dice.below(4) == 0 { dice.below(STEPS) } else { STEPS };
        let checkpoint_at = dice.below(4 * STEPS);
        let seeds: Vec<u64> = (0..CLIENTS).map(|_| dice.roll()).collect();
        let begin = Barrier::new(CLIENTS as usize);
        let (db, sea, records) = (&self.db, &self.sea, self.records);
        let was_loaded = thread::scope(|scope| {
            let (begin, places, loaded) = (&begin, &places, &loaded);
            let run = |(number, (client, seed)): (u64, (&mut Client, u64))| {
                let mut dice = Dice(seed);
                begin.wait();
                let mut was_loaded = None;
                for step in 0..STEPS {
                    client.step(&places[dice.below(2) as usize]);
                    match dice.below(8) {
                        0 => client.look_at_load(loaded),
                        1 => {
                            let key = records.key(LOADED / 2 + dice.below(SEA));
                            assert!(sea.get(&key).unwrap().is_some());
                        }
                        _ => {}
                    }
                    match (number, step) {
                        (0, step) if step == load_at => was_loaded = Some(client.load(loaded)),
                        (1, step) if step == meddle_at => client.meddle_with_load(loaded),
                        (2, step) if step == checkpoint_at => db.checkpoint().unwrap(),
                        _ => {}
                    }
                    // With more threads than processors: so that it is not always the end of a slice of time that lets
                    // another one run.
                    if (step + number).is_multiple_of(8) {
                        thread::yield_now();
                    }
                }
                was_loaded
            };
            let clients = (0..).zip(self.clients.iter_mut().zip(seeds));
            let running: Vec<_> = clients.map(|client| scope.spawn(move || run(client))).collect();
            let ended = running.into_iter().map(|client| client.join().unwrap());
            ended.fold(None, Option::or).expect("one of them has loaded it")
        });
        self.loads[usize::from(was_loaded)] += 1;
        places.iter().for_each(|place| self.clients[0].scan_all(place));
        drop(loaded);
        self.db.drop_keyspace("loaded").unwrap();
        let parts = self.clients.iter_mut().map(Client::take);
        let transactions: Vec<Transaction> = parts.flatten().collect();
        let history = History { before: self.contents.clone(), transactions };
        let checked = history.check(Level::StrictSerializable);
        let tally = checked.unwrap_or_else(|violation| panic!("{}: {violation}", self.what));
        for place in &places {
            self.contents = self.contents_with(place);
            let leaves = place.keyspace.stats().unwrap().pages();
            assert_eq!(leaves, 1, "{}: an island is one leaf", self.what);
        }
        tally
    }

    /// The contents, with what an island has now that nobody is at work.
    fn contents_with(&self, place: &Place) -> BTreeMap<u64, Token> {
        let is_elsewhere = |key: &u64| !(place.first..place.first + ISLAND_KEYS).contains(key);
        let elsewhere = self.contents.iter().filter(|(key, _)| is_elsewhere(key));
        let mut contents: BTreeMap<u64, Token> =
            elsewhere.map(|(key, token)| (*key, *token)).collect();
        contents.extend(place.keyspace.iter().map(|record| {
            let (key, value) = record.unwrap();
            let number = self.records.number(&key);
            (number, Token::from_bits(self.records.token(number, &value)))
        }));
        contents
    }

    /// Runs rounds until so many transactions were checked.
    fn run(&mut self, transactions: u64, dice: &mut Dice) -> Tally {
        let mut sum = Tally::default();
        while sum.transactions < transactions {
            let tally = self.round(dice);
            sum.transactions += tally.transactions;
            sum.reads += tally.reads;
            sum.ambiguous += tally.ambiguous;
            sum.dependencies += tally.dependencies;
        }
        assert_sound(&self.db, &self.what);
        println!(
            "{}: {sum:?}, {} of {} loads",
            self.what,
            self.loads[1],
            self.loads[0] + self.loads[1]
        );
        sum
    }
}

/// All policies, with records that let their layouts come about.
fn policies() -> impl Iterator<Item = (LeafPolicy, Records)> {
    let fixed = LeafLayout::ALL.into_iter().map(LeafPolicy::Fixed);
    // A scan reads a value that no leaf holds after its leaf, so scans of such values are no transactions.
    fixed.chain([LeafPolicy::Adaptive]).map(|policy| {
        let sparse = [LeafLayout::Comparison, LeafLayout::Fingerprint].map(LeafPolicy::Fixed);
        let dense = !sparse.contains(&policy);
        (policy, Records { dense, one_size: true, all_forms: false })
    })
}

/// Runs each policy in a store of its own.
fn run_all(mut world: impl FnMut(LeafPolicy, Records, u64, &mut Dice) -> Tally) {
    let mut dice = Dice(seed(hedgerow_sync::primitive::random::seed()));
    let (mut sum, mut ambiguous, mut reads) = (0, 0, 0);
    let transactions = if is_thorough() { TRANSACTIONS } else { TRANSACTIONS / 3 };
    let each = (effort() * transactions).div_ceil(policies().count() as u64);
    for (leaves, records) in policies() {
        let tally = world(leaves, records, each, &mut dice);
        sum += tally.transactions;
        ambiguous += tally.ambiguous;
        reads += tally.reads;
    }
    count(sum, "transactions");
    assert!(ambiguous < reads / 4, "{ambiguous} of {reads} reads tell nothing");
}

#[test]
fn transactions_of_a_store_in_memory_are_strictly_serializable() {
    run_all(|leaves, records, transactions, dice| {
        let options =
            Options::new().page_bytes(PAGE_BYTES).memory_limit_bytes(4 << 20).leaves(leaves);
        let what = format!("in memory, {leaves:?}, {records:?}");
        World::new(options.in_memory().unwrap(), records, what, dice).run(transactions, dice)
    });
}

#[test]
fn transactions_beside_evictions_and_checkpoints_are_strictly_serializable() {
    run_all(|leaves, records, transactions, dice| {
        let log = dice.below(2) == 0;
        let options = crowded_for(records).leaves(leaves).log(log);
        let disk = SimDisk::new(dice.roll());
        let what = format!("on a disk, log {log}, {leaves:?}, {records:?}");
        let db = open(&options, &disk, OpenHow::New).unwrap();
        let mut world = World::new(db, records, what, dice);
        let tally = world.run(transactions, dice);
        let stats = world.db.stats().unwrap();
        assert!(stats.pool.evictions > 0 && stats.pool.pages_written > 0, "{stats:?}");
        tally
    });
}

/// Keys of the keyspace that a power cut is tried on.
const CUT_KEYS: u64 = 60;
const CUT_RECORDS: Records = Records { dense: false, one_size: false, all_forms: true };

/// Somebody who changes records in ways of which a power cut leaves all or nothing.
struct Writer<'w> {
    db: &'w Database,
    keyspace: Keyspace,
    recorder: Recorder,
    dice: Dice,
}

impl Writer<'_> {
    /// One transaction. What is not durable when this returns may be lost.
    fn step(&mut self) {
        let durable = self.dice.below(3) == 0;
        let durability = if durable { Durability::Sync } else { Durability::Buffered };
        let outcome = if durable { Outcome::Committed } else { Outcome::Unknown };
        let mut open = self.recorder.begin();
        let records = CUT_RECORDS;
        if self.dice.below(2) == 0 {
            let mut batch = WriteBatch::new();
            let first = self.dice.below(CUT_KEYS);
            for at in 0..2 + self.dice.below(5) {
                let number = (first + 11 * at) % CUT_KEYS;
                let (key, over) = (records.key(number), Over::Unknown);
                if self.dice.below(5) == 0 {
                    batch.remove(&self.keyspace, &key).unwrap();
                    open.step(Step::Remove { key: number, over });
                } else {
                    let token = open.token();
                    batch.put(&self.keyspace, &key, &records.value(number, token.bits())).unwrap();
                    open.step(Step::Put { key: number, token, over });
                }
            }
            batch.set_durability(durability);
            self.db.write(&batch).unwrap();
            return self.recorder.end(open, outcome);
        }
        let number = self.dice.below(CUT_KEYS);
        let (key, token) = (records.key(number), open.token());
        let old = self.keyspace.get(&key).unwrap();
        let new = records.value(number, token.bits());
        let keyspace = self.keyspace.clone().with_durability(durability);
        if let CompareAndSwap::Swapped =
            keyspace.compare_and_swap(&key, old.as_deref(), Some(&new)).unwrap()
        {
            let old = old.map(|value| Token::from_bits(records.token(number, &value)));
            open.step(Step::Put { key: number, token, over: Over::Seen(old) });
            self.recorder.end(open, outcome);
        }
    }
}

/// Cuts the power while three threads write. Returns what there is to check.
fn cut(dice: &mut Dice) -> History {
    let options = crowded_for(CUT_RECORDS).checkpoint_bytes(1 << 30).log_segment_blocks(6);
    let disk = SimDisk::new(dice.roll());
    let db = open(&options, &disk, OpenHow::New).unwrap();
    let clock = Clock::default();
    let writer = |thread| {
        let (keyspace, recorder) = (db.keyspace("k").unwrap(), Recorder::new(thread, &clock));
        Writer { db: &db, keyspace, recorder, dice: Dice(dice.roll()) }
    };
    let writers: Vec<_> = (0..CLIENTS).map(writer).collect();
    let moment = 20 + dice.below(300);
    let (is_over, fate) = (AtomicBool::new(false), dice.roll());
    let (after, from, to, mut transactions) = thread::scope(|scope| {
        let is_over = &is_over;
        let run = |mut writer: Writer<'_>| {
            while !is_over.load(Ordering::Relaxed) {
                writer.step();
            }
            writer.recorder.take()
        };
        let running = writers.into_iter().map(|writer| scope.spawn(move || run(writer)));
        let running: Vec<_> = running.collect();
        while clock.tick() < moment {
            thread::yield_now();
        }
        let from = clock.tick();
        let after = disk.crash(fate);
        let to = clock.tick();
        is_over.store(true, Ordering::Relaxed);
        let all = running.into_iter().flat_map(|writer| writer.join().unwrap());
        (after, from, to, all.collect::<Vec<Transaction>>())
    });
    // Of what began later nothing may be there.
    transactions.retain(|transaction| transaction.began < to);
    for transaction in &mut transactions {
        if transaction.ended > from {
            transaction.outcome = Outcome::Unknown;
        }
    }
    let db = open(&options, &after, OpenHow::Existing).unwrap();
    assert_sound(&db, "after a power cut");
    let mut reader = Recorder::new(CLIENTS, &clock);
    let mut open = reader.begin();
    let records = db.keyspace("k").unwrap().iter().map(|record| {
        let (key, value) = record.unwrap();
        let number = CUT_RECORDS.number(&key);
        (number, Token::from_bits(CUT_RECORDS.token(number, &value)))
    });
    open.step(Step::Range { low: 0, high: CUT_KEYS - 1, found: records.collect() });
    reader.end(open, Outcome::Committed);
    transactions.extend(reader.take());
    History { before: BTreeMap::new(), transactions }
}

#[test]
fn what_a_power_cut_leaves_has_every_transaction_whole() {
    let mut dice = Dice(seed(hedgerow_sync::primitive::random::seed()));
    let (mut checked, mut unknown) = (0, 0);
    for _ in 0..effort() * CRASHES {
        let history = cut(&mut dice);
        // A batch is made at one stroke, between its call and its end.
        let tally = history.check_with_linear_keys(Level::StrictSerializable);
        let tally = tally.unwrap_or_else(|violation| panic!("{violation}"));
        checked += tally.transactions;
        unknown += history.transactions.len() as u64 - tally.transactions;
    }
    println!("{unknown} have left nothing that was found");
    count(checked, "transactions");
    assert!(checked > 0 && unknown > 0, "{checked}, {unknown}");
}
