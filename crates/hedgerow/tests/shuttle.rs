//! The whole engine under shuttle: random interleavings of two or three threads, the eviction thread
//! and the checkpoint thread, on a disk in memory, with pages of 512 bytes and the smallest pool.
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test -p hedgerow --release --test shuttle
//! ```
//!
//! The store holds a few times more pages than the pool has frames, so that each operation meets
//! faults and evictions. Each thread knows what must be there under the keys that it owns; the others'
//! values say whose they are. A deadlock, a wrong answer, an error and a thread that waits for ever
//! are failures; a failure prints the schedule, which `shuttle::replay` runs again. Time is logical
//! and a timed wait ends after giving way once. `HEDGEROW_SHUTTLE_ITERATIONS` sets how many schedules
//! each test tries. `canaries.sh` proves that these tests can fail.

#![cfg(shuttle)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "what is kept from model to model is outside of them"
)]

use hedgerow::storage::{DirectIo, Disk, OpenMode, RamDisk};
use hedgerow::store::OpenHow;
use hedgerow::{Database, Keyspace, Options, smallest_memory_limit_bytes};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::spawn_named;
use shuttle::rand::{RngCore, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

const ITERATIONS: usize = 500;
const PAGE_BYTES: usize = 512;
/// Enough for some 150 pages on 48 frames.
const KEYS: u64 = 900;
const CHUNK_BYTES: usize = 4096;

fn runner<S: Scheduler + 'static>(scheduler: S) -> Runner<S> {
    let mut config = Config::new();
    config.stack_size = 512 << 10;
    // A run takes some ten thousand steps; what takes so many more goes round in circles.
    config.max_steps = MaxSteps::FailAfter(20_000_000);
    Runner::new(scheduler, config)
}

fn iterations() -> usize {
    let text = std::env::var("HEDGEROW_SHUTTLE_ITERATIONS");
    text.map_or(ITERATIONS, |text| text.parse().expect("a number"))
}

/// Random schedules, and schedules with a few priority changes (which find rarer orders).
fn check(model: fn()) {
    image();
    runner(RandomScheduler::new(iterations())).run(model);
    runner(PctScheduler::new(3, iterations())).run(model);
}

fn options() -> Options {
    Options::new()
        .page_bytes(PAGE_BYTES)
        .memory_limit_bytes(smallest_memory_limit_bytes(PAGE_BYTES))
        .checkpoint_bytes(8 << 10)
}

fn path() -> &'static Path {
    Path::new("shuttle.hrow")
}

fn key_of(number: u64) -> Vec<u8> {
    format!("key/{:04}", number * 7919 % 10_000).into_bytes()
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

/// The parts of a store's file that are not zero.
type Image = Vec<(u64, Vec<u8>)>;

/// A closed store with all keys in generation 1. Made once, in a model of its own.
fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    static MADE: std::sync::Mutex<Image> = std::sync::Mutex::new(Vec::new());
    IMAGE.get_or_init(|| {
        runner(RandomScheduler::new(1)).run(|| {
            let disk = RamDisk::new();
            let db = options().on_disk(&disk, path(), OpenHow::New).unwrap();
            let keyspace = db.keyspace("k").unwrap();
            let records: BTreeMap<_, _> =
                (0..KEYS).map(key_of).map(|key| (key.clone(), value_of(&key, 1))).collect();
            keyspace.bulk_load(records, 80).unwrap();
            drop(keyspace);
            db.close().unwrap();
            let file = disk.open(path(), OpenMode::ReadOnly, DirectIo::Never).unwrap();
            let len = file.len_bytes().unwrap();
            let mut made = MADE.lock().unwrap();
            for offset in (0..len).step_by(CHUNK_BYTES) {
                let mut chunk = vec![0; CHUNK_BYTES.min((len - offset) as usize)];
                file.read_at(offset, &mut chunk).unwrap();
                // The last one says how long the file is.
                if chunk.iter().any(|byte| *byte != 0) || offset + CHUNK_BYTES as u64 >= len {
                    made.push((offset, chunk));
                }
            }
        });
        std::mem::take(&mut *MADE.lock().unwrap())
    })
}

fn open() -> (RamDisk, Database) {
    let disk = RamDisk::new();
    let file = disk.open(path(), OpenMode::CreateNew, DirectIo::Never).unwrap();
    for (offset, chunk) in image() {
        file.write_at(*offset, chunk).unwrap();
    }
    drop(file);
    let db = options().on_disk(&disk, path(), OpenHow::Existing).unwrap();
    (disk, db)
}

/// One thread's changes of the keys `n` with `n % threads == class`, and looks at others'.
fn work(
    keyspace: &Keyspace,
    class: u64,
    threads: u64,
    steps: u64,
    seed: u64,
) -> BTreeMap<u64, u64> {
    let mut random = SplitMix64::new(seed);
    let mut changed: BTreeMap<u64, Option<u64>> = BTreeMap::new();
    // Neighbours in key order, so that leaves split and merge within a few steps.
    let mut numbers: Vec<u64> = (0..KEYS).collect();
    numbers.sort_by_key(|number| key_of(*number));
    let from = random.below(KEYS - 60) as usize;
    let near: Vec<u64> =
        numbers[from..from + 60].iter().copied().filter(|n| n % threads == class).collect();
    for step in 0..steps {
        let number = near[random.below(near.len() as u64) as usize];
        let key = key_of(number);
        let now = changed.get(&number).copied().unwrap_or(Some(1));
        let generation = 2 + step;
        match random.below(8) {
            0 | 1 => {
                let was = keyspace.put(&key, &value_of(&key, generation)).unwrap();
                assert_eq!(was, now.is_some());
                changed.insert(number, Some(generation));
            }
            2 | 3 => {
                assert_eq!(keyspace.remove(&key).unwrap(), now.is_some());
                changed.insert(number, None);
            }
            4 => {
                let old = now.map(|generation| value_of(&key, generation));
                let new = value_of(&key, generation);
                let swap = keyspace.compare_and_swap(&key, old.as_deref(), Some(&new)).unwrap();
                assert!(swap.is_swapped());
                changed.insert(number, Some(generation));
            }
            5 => {
                let found = keyspace.get(&key).unwrap();
                assert_eq!(found.map(|value| generation_of(&key, &value)), now);
            }
            6 => {
                let key = key_of(random.below(KEYS));
                keyspace.get_with(&key, |value| generation_of(&key, value)).unwrap();
            }
            _ => {
                let mut cursor = keyspace.cursor();
                cursor.seek(&key);
                let forward = random.below(2) == 0;
                let mut last: Option<Vec<u8>> = None;
                for _ in 0..12 {
                    let record =
                        if forward { cursor.next_record() } else { cursor.previous_record() };
                    let Some((key, value)) = record.unwrap() else { break };
                    generation_of(key, value);
                    if let Some(last) = &last {
                        assert!(if forward { key > &last[..] } else { key < &last[..] });
                    }
                    last = Some(key.to_vec());
                }
            }
        }
    }
    let state = |number: u64| changed.get(&number).copied().unwrap_or(Some(1)).map(|g| (number, g));
    (0..KEYS).filter(|n| n % threads == class).filter_map(state).collect()
}

fn assert_exact(db: &Database, expected: &BTreeMap<Vec<u8>, u64>) {
    let report = db.verify(|_| {}).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
    let keyspace = db.keyspace("k").unwrap();
    let mut cursor = keyspace.cursor();
    let mut expected = expected.iter();
    while let Some((key, value)) = cursor.next_record().unwrap() {
        let (expected_key, generation) = expected.next().expect("no more records");
        assert_eq!(key, expected_key.as_slice());
        assert_eq!(generation_of(key, value), *generation);
    }
    assert_eq!(expected.next(), None);
}

/// Runs `threads` workers for `steps` operations each beside what `meanwhile` does, and checks
/// everything, before and after the store was closed and opened again.
fn run(threads: u64, steps: u64, meanwhile: impl FnOnce(&Database)) {
    let (disk, db) = open();
    let keyspace = db.keyspace("k").unwrap();
    // Fills the pool.
    assert_eq!(keyspace.count().unwrap(), KEYS);
    let workers: Vec<_> = (0..threads)
        .map(|class| {
            let keyspace = keyspace.clone();
            let seed = thread_rng().next_u64();
            let work = move || work(&keyspace, class, threads, steps, seed);
            spawn_named(&format!("worker {class}"), work).unwrap()
        })
        .collect();
    meanwhile(&db);
    let mut expected = BTreeMap::new();
    for worker in workers {
        expected.extend(worker.join().unwrap().into_iter().map(|(n, g)| (key_of(n), g)));
    }
    assert_exact(&db, &expected);
    drop(keyspace);
    db.close().unwrap();
    let db = options().on_disk(&disk, path(), OpenHow::Existing).unwrap();
    assert_exact(&db, &expected);
    db.close().unwrap();
}

#[test]
fn changes_beside_a_checkpoint() {
    check(|| run(2, 15, |db| db.checkpoint().unwrap()));
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
