//! The whole engine under shuttle: random interleavings of two or three threads, the eviction thread
//! and the checkpoint thread, on the simulated disk, with pages of 512 bytes and the smallest pool.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test -p hedgerow --release --test shuttle
//! ```
//!
//! The store holds nearly twice as many pages as the pool has frames, so that operations meet
//! faults and evictions. Each thread knows what must be there under the keys that it owns; the others'
//! values say whose they are. A deadlock, a wrong answer, an error that nobody ordered and a thread
//! that waits for ever are failures; a failure prints the schedule, which `shuttle::replay` runs again.
//! Time is logical and a timed wait ends after giving way once. `failures.rs` lets calls to the disk
//! fail and the power go; `checkpoints.rs` has writers on the pages that a checkpoint
//! writes; `commits.rs` has commits at one stroke over a heap of pages; `adapt.rs` has readers that convert and sort leaves; `linear.rs` has threads that all change the
//! same keys, and looks for an order of what they were told; `isolation.rs` has scans beside them, which are to be
//! transactions; `transactions.rs` has transactions and snapshots of several records; `pins.rs` copies and verifies beside writers; `pool.rs` has small models of the buffer pool alone.
//!
//! `HEDGEROW_SHUTTLE_ITERATIONS` sets how many schedules each test tries, `HEDGEROW_SEED` which.
//! `cargo xtask seeded-bugs` proves that these tests can fail.

#![cfg(shuttle)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "what is kept from model to model is outside of them"
)]

mod adapt;
mod checkpoints;
mod commits;
mod failures;
mod isolation;
mod linear;
mod log;
mod pins;
mod pool;
mod transactions;

use hedgerow::internals::buffer::smallest_limit_without_log_bytes;
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Error, ErrorKind, Keyspace, Options, Result};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::buggify::{POINTS, draw_points, forced};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::{JoinHandle, spawn_named};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::environment::{positive, seed};
use hedgerow_testing::sim::SimState;
use shuttle::rand::{Rng, RngCore, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const ITERATIONS: usize = 500;
const PAGE_BYTES: usize = 512;
/// Enough for some 80 pages on 48 frames. More would make each look at all of them longer, of which a schedule has several.
const KEYS: u64 = 500;
/// Keys that workers change, where they are to split and merge leaves and to meet evictions.
const SPREAD: usize = 60;

fn runner<S: Scheduler + 'static>(scheduler: S) -> Runner<S> {
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    // A run takes some ten thousand steps; what takes so many more goes round in circles.
    config.max_steps = MaxSteps::FailAfter(20_000_000);
    Runner::new(scheduler, config)
}

fn iterations() -> usize {
    positive("HEDGEROW_SHUTTLE_ITERATIONS").map_or(ITERATIONS, |number| number as usize)
}

/// Random schedules of the whole engine, and schedules with a few priority changes (which find rarer orders).
fn check(model: impl Fn() + Copy + Send + Sync + 'static) {
    check_often(1, model);
}

/// As [`check`], `times` as many schedules.
fn check_often(times: usize, model: impl Fn() + Copy + Send + Sync + 'static) {
    count(run_often(times, true, model), "schedules");
    count(POINTS.map(forced).iter().sum(), "forced moments");
}

/// As [`check_often`], of a model of a part of the engine, which is directed: nothing is forced.
fn check_small(times: usize, model: impl Fn() + Copy + Send + Sync + 'static) {
    count(run_often(times, false, model), "schedules of small models");
}

/// Runs them, and tells how many came to their end.
fn run_often(times: usize, forces: bool, model: impl Fn() + Copy + Send + Sync + 'static) -> u64 {
    image();
    let seed = seed(1);
    // The standard library's: counting is no step of a schedule.
    let ended = std::sync::Arc::new(AtomicU64::new(0));
    let counted = |ended: &std::sync::Arc<AtomicU64>| {
        let ended = std::sync::Arc::clone(ended);
        move || {
            // Of four schedules one has no such moments: it goes further in what it is about.
            if forces && thread_rng().gen_range(0..4) > 0 {
                draw_points();
            }
            model();
            ended.fetch_add(1, Ordering::Relaxed);
        }
    };
    runner(RandomScheduler::new_from_seed(seed, times * iterations())).run(counted(&ended));
    runner(PctScheduler::new_from_seed(seed, 3, times * iterations())).run(counted(&ended));
    ended.load(Ordering::Relaxed)
}

fn options() -> Options {
    Options::new()
        .page_bytes(PAGE_BYTES)
        .memory_limit_bytes(smallest_limit_without_log_bytes(PAGE_BYTES))
        .checkpoint_bytes(8 << 10)
        .log(false)
}

fn path() -> &'static Path {
    Path::new("/data/shuttle.hrow")
}

fn key_of(number: u64) -> Vec<u8> {
    keys().by_number[number as usize].clone()
}

fn made_of(number: u64) -> Vec<u8> {
    format!("key/{:04}", number * 7919 % 10_000).into_bytes()
}

/// All keys, made once: to write them anew for each comparison was a good part of a schedule.
struct Keys {
    by_number: Vec<Vec<u8>>,
    /// The numbers of the keys, in the order of the keys.
    in_order: Vec<u64>,
}

fn keys() -> &'static Keys {
    static ALL: OnceLock<Keys> = OnceLock::new();
    ALL.get_or_init(|| {
        let by_number: Vec<_> = (0..KEYS).map(made_of).collect();
        let mut in_order: Vec<u64> = (0..KEYS).collect();
        in_order.sort_by_key(|number| &by_number[*number as usize]);
        Keys { by_number, in_order }
    })
}

/// The number of a key, if it is one.
fn number_of(key: &[u8]) -> Option<u64> {
    let Keys { by_number, in_order } = keys();
    let found = in_order.binary_search_by(|number| by_number[*number as usize][..].cmp(key));
    found.ok().map(|at| in_order[at])
}

fn value_of(key: &[u8], generation: u64) -> Vec<u8> {
    let mut value = generation.to_be_bytes().to_vec();
    value.extend_from_slice(key);
    value.resize(30 + (generation % 5) as usize * 8, generation as u8);
    value
}

fn generation_of(key: &[u8], value: &[u8]) -> u64 {
    let generation = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(value, value_of(key, generation), "not a value of {}", key.escape_ascii());
    generation
}

/// What a power loss leaves of a closed store that `fill` has filled, in a model of its own: all of it.
fn image_of(options: Options, fill: fn(&Database)) -> SimState {
    let made = std::sync::Arc::new(std::sync::Mutex::new(None));
    let to = std::sync::Arc::clone(&made);
    runner(RandomScheduler::new_from_seed(1, 1)).run(move || {
        let disk = SimDisk::new(1);
        let db = options.on_disk(&disk, path(), OpenHow::New).unwrap();
        fill(&db);
        db.close().unwrap();
        *to.lock().unwrap() = Some(disk.state().crash(&[], None));
    });
    made.lock().unwrap().take().expect("the model has made it")
}

/// Loads the first keys, in generation 1.
fn load(db: &Database, keys: u64) {
    let records: BTreeMap<_, _> =
        (0..keys).map(made_of).map(|key| (key.clone(), value_of(&key, 1))).collect();
    db.keyspace("k").unwrap().bulk_load(records, 80).unwrap();
}

/// The disk of a closed store with all keys.
fn image() -> &'static SimState {
    static IMAGE: OnceLock<SimState> = OnceLock::new();
    IMAGE.get_or_init(|| image_of(options(), |db| load(db, KEYS)))
}

/// The store of [`image`] on a disk of its own, open, its pool full.
fn open(options: &Options) -> (SimDisk, Database, Keyspace) {
    let disk = SimDisk::with_state(image().clone(), thread_rng().next_u64());
    let db = options.on_disk(&disk, path(), OpenHow::Existing).unwrap();
    let keyspace = db.keyspace("k").unwrap();
    assert_eq!(keyspace.count().unwrap(), KEYS);
    (disk, db, keyspace)
}

/// What became of each key, by number: its generation, if it is there.
type State = BTreeMap<u64, u64>;

/// Puts the beginnings and ends of calls into one order. The standard library's counter: a look at it
/// is no step of the schedule.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }

    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A change that was made, and when its call began and ended.
#[derive(Clone, Copy, Debug)]
struct Changed {
    number: u64,
    generation: Option<u64>,
    began: u64,
    ended: u64,
}

/// Asserts that an error is one of these kinds, and comes from a failure that a test has ordered.
fn assert_ordered(error: &Error, kinds: &[ErrorKind]) {
    let ordered = error.to_string().contains("simulated failure");
    assert!(ordered && kinds.contains(&error.kind()), "{error:?}");
}

/// One thread's changes of the keys `n` with `n % threads == class`, and looks at others'.
struct Worker {
    keyspace: Keyspace,
    class: u64,
    threads: u64,
    /// How many keys all of them change.
    spread: usize,
    clock: Clock,
    /// The kinds of errors that calls may fail with. After one of them nothing has changed.
    may_fail: &'static [ErrorKind],
    made: Vec<Changed>,
}

impl Worker {
    /// What a call gave; `None` if it failed as it may.
    fn unless_failed<T>(&self, outcome: Result<T>) -> Option<T> {
        outcome.map_err(|error| assert_ordered(&error, self.may_fail)).ok()
    }

    fn change<T>(
        &mut self,
        number: u64,
        generation: Option<u64>,
        change: impl FnOnce(&Keyspace, &[u8]) -> Result<T>,
    ) -> Option<T> {
        let began = self.clock.tick();
        let outcome = change(&self.keyspace, &key_of(number));
        let ended = self.clock.tick();
        let outcome = self.unless_failed(outcome)?;
        self.made.push(Changed { number, generation, began, ended });
        Some(outcome)
    }

    fn work(mut self, steps: u64, seed: u64) -> Vec<Changed> {
        let mut random = SplitMix64::new(seed);
        // Neighbours in key order, so that leaves split and merge within a few steps.
        let numbers = &keys().in_order;
        let first =
            if self.spread == SPREAD { random.below(KEYS - SPREAD as u64) as usize } else { 0 };
        let mut near = numbers[first..first + self.spread].to_vec();
        near.retain(|number| number % self.threads == self.class);
        for step in 0..steps {
            let number = near[random.below(near.len() as u64) as usize];
            let last = self.made.iter().rev().find(|made| made.number == number);
            self.act(number, last.map_or(Some(1), |made| made.generation), 2 + step, &mut random);
        }
        self.made
    }

    fn act(&mut self, number: u64, now: Option<u64>, generation: u64, random: &mut SplitMix64) {
        let key = key_of(number);
        let new = value_of(&key, generation);
        match random.below(8) {
            0 | 1 => {
                let put = self.change(number, Some(generation), |k, key| k.put(key, &new));
                assert!(put.is_none_or(|was_there| was_there == now.is_some()));
            }
            2 | 3 => {
                let removed = self.change(number, None, |k, key| k.remove(key));
                assert!(removed.is_none_or(|was_there| was_there == now.is_some()));
            }
            4 => {
                let old = now.map(|generation| value_of(&key, generation));
                let swapped = self.change(number, Some(generation), |k, key| {
                    k.compare_and_swap(key, old.as_deref(), Some(&new))
                });
                assert!(swapped.is_none_or(|swap| swap.is_swapped()));
            }
            5 => {
                if let Some(found) = self.unless_failed(self.keyspace.get(&key)) {
                    assert_eq!(found.map(|value| generation_of(&key, &value)), now);
                }
            }
            6 => {
                let key = key_of(random.below(KEYS));
                let look = |value: &[u8]| generation_of(&key, value);
                self.unless_failed(self.keyspace.get_with(&key, look));
            }
            _ => self.scan(&key, random.below(2) == 0),
        }
    }

    fn scan(&self, from: &[u8], forward: bool) {
        let mut cursor = self.keyspace.cursor();
        cursor.seek(from);
        let mut last: Option<Vec<u8>> = None;
        for _ in 0..12 {
            let record = if forward { cursor.next_record() } else { cursor.previous_record() };
            let Some(Some((key, value))) = self.unless_failed(record) else { break };
            generation_of(key, value);
            if let Some(last) = &last {
                assert!(if forward { key > &last[..] } else { key < &last[..] });
            }
            last = Some(key.to_vec());
        }
    }
}

/// Starts `threads` workers for `steps` operations each.
fn start(
    keyspace: &Keyspace,
    threads: u64,
    steps: u64,
    spread: usize,
    clock: &Clock,
    may_fail: &'static [ErrorKind],
) -> Vec<JoinHandle<Vec<Changed>>> {
    (0..threads)
        .map(|class| {
            let (keyspace, clock, made) = (keyspace.clone(), clock.clone(), Vec::new());
            let worker = Worker { keyspace, class, threads, spread, clock, may_fail, made };
            let seed = thread_rng().next_u64();
            spawn_named(&format!("worker {class}"), move || worker.work(steps, seed)).unwrap()
        })
        .collect()
}

/// Every point comes, or it shows nothing.
#[test]
fn what_is_allowed_and_seldom_due_is_forced() {
    check(|| run(2, 15, |db| db.checkpoint().unwrap()));
    for point in POINTS {
        println!("{point:?}: {}", forced(point));
        assert!(forced(point) > 0, "{point:?} was never forced");
    }
}

fn join(workers: Vec<JoinHandle<Vec<Changed>>>) -> Vec<Vec<Changed>> {
    workers.into_iter().map(|worker| worker.join().unwrap()).collect()
}

/// What is there after these changes.
fn after<'c>(changes: impl IntoIterator<Item = &'c Changed>) -> State {
    let mut state: State = (0..KEYS).map(|number| (number, 1)).collect();
    for made in changes {
        match made.generation {
            Some(generation) => state.insert(made.number, generation),
            None => state.remove(&made.number),
        };
    }
    state
}

/// What is there.
fn contents(db: &Database) -> State {
    let mut state = State::new();
    let mut last = Vec::new();
    let mut cursor = db.keyspace("k").unwrap().cursor();
    while let Some((key, value)) = cursor.next_record().unwrap() {
        assert!(key > last.as_slice(), "the keys are in order, and each is there once");
        state.insert(number_of(key).expect("a key of the test"), generation_of(key, value));
        last = key.to_vec();
    }
    state
}

fn assert_sound(db: &Database) {
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Runs `threads` workers for `steps` operations each beside what `meanwhile` does, and checks
/// everything: before the store is closed, or its log is synced, and on what a power loss after that leaves of it.
fn run(threads: u64, steps: u64, meanwhile: impl FnOnce(&Database)) {
    let is_logged = thread_rng().gen_bool(0.5);
    let options = if is_logged { log::logged() } else { options() };
    let (disk, db, keyspace) = open(&options);
    let workers = start(&keyspace, threads, steps, SPREAD, &Clock::default(), &[]);
    meanwhile(&db);
    let expected = after(join(workers).iter().flatten());
    assert_sound(&db);
    assert_eq!(contents(&db), expected);
    let left = match is_logged {
        true => {
            db.sync().unwrap();
            let left = disk.state();
            drop((db, keyspace));
            left
        }
        false => {
            db.close().unwrap();
            disk.state()
        }
    };
    let left = left.crash_at_random(thread_rng().next_u64());
    let disk = SimDisk::with_state(left, thread_rng().next_u64());
    let db = options.on_disk(&disk, path(), OpenHow::Existing).unwrap();
    assert_sound(&db);
    assert_eq!(contents(&db), expected);
    db.close().unwrap();
}

#[test]
fn changes_beside_a_checkpoint() {
    check_often(2, || run(2, 15, |db| db.checkpoint().unwrap()));
}

#[test]
fn three_threads_with_evictions() {
    check(|| run(3, 12, |_| {}));
}

#[test]
fn keyspaces_come_and_go_beside_changes() {
    check(|| {
        run(2, 10, |db| {
            let passing = db.create_keyspace("passing").unwrap();
            for number in 0..20 {
                let key = key_of(number);
                passing.put(&key, &value_of(&key, number)).unwrap();
            }
            assert_eq!(passing.count().unwrap(), 20);
            assert!(db.drop_keyspace("passing").unwrap());
        });
    });
}
