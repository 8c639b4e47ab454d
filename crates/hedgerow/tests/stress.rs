//! Eight threads on the smallest pool, with pages of 512 bytes: everything at once.
//!
//! Splits, merges, evictions, checkpoints, cursors both ways, keyspaces that come and go. Every value
//! proves its own truth: it carries its key, a generation and a checksum. What a reader may find:
//!
//! - *owned* keys: each belongs to one thread, which knows exactly what is there;
//! - *permanent* keys: put once, never removed; every scan meets each of them once, in order;
//! - *shared* keys: counted up by compare-and-swap from all threads. A reader finds a generation
//!   between the newest one known to be in place before it looked, and the newest one begun
//!   after; in the end the generation is the number of swaps that succeeded.
//!
//! Short by default; `HEDGEROW_STRESS_CPU_SECONDS=600` sets how much processor time it takes.
//! `HEDGEROW_STRESS_SEED` repeats a run's choices (not its interleaving). A watchdog ends the
//! process if a thread makes no progress for two minutes.

#![cfg(not(any(loom, shuttle)))]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test of the whole is outside of the seams"
)]

use hedgerow::{
    ContentionSplit, Database, Keyspace, LeafLayout, LeafPolicy, Options,
    smallest_memory_limit_bytes,
};
use hedgerow_testing::environment::{number, positive};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const THREADS: u64 = 8;
/// Owned and permanent keys: key `n` belongs to thread `n % (THREADS + 1)`, or is permanent.
const KEYS: u64 = 2_700;
const SHARED_KEYS: u64 = 200;
const PAGE_BYTES: usize = 512;
/// Steps after which a thread changes from growing to shrinking and back.
const PHASE: u64 = 1_500;
const STUCK: Duration = Duration::from_secs(120);

/// "Fast splittable pseudorandom number generators", as in the engine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

fn key_of(number: u64) -> Vec<u8> {
    let tail = "/ab".repeat((number % 3) as usize);
    format!("hedge/{:04}{tail}", number * 7919 % 10_000).into_bytes()
}

/// FNV-1a: a checksum that has nothing in common with the engine's.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn value_of(key: &[u8], generation: u64) -> Vec<u8> {
    let mut value = generation.to_be_bytes().to_vec();
    value.extend_from_slice(key);
    // Lengths change with the generation, so that updates move records and run out of space.
    value.resize(value.len() + (generation * 11 % 32) as usize, generation as u8);
    let sum = checksum(&value);
    value.extend_from_slice(&sum.to_be_bytes());
    value
}

/// The generation of a value, which must be this key's, and whole.
fn generation_of(key: &[u8], value: &[u8]) -> u64 {
    assert!(value.len() >= 16, "a value of {} bytes for {}", value.len(), key.escape_ascii());
    let generation = u64::from_be_bytes(value[..8].try_into().unwrap());
    assert_eq!(
        value,
        value_of(key, generation),
        "not a value of {}: {}",
        key.escape_ascii(),
        value.escape_ascii()
    );
    generation
}

fn is_permanent(number: u64) -> bool {
    number % (THREADS + 1) == THREADS
}

#[derive(Default)]
struct Bounds {
    /// A generation known to be in place.
    floor: AtomicU64,
    /// The newest that was begun.
    ceiling: AtomicU64,
    /// Swaps that succeeded.
    swaps: AtomicU64,
}

struct World {
    db: Database,
    owned: Keyspace,
    shared: Keyspace,
    bounds: Vec<Bounds>,
    permanent: Vec<Vec<u8>>,
    stop: AtomicBool,
    progress: Vec<AtomicU64>,
    /// What each thread is doing, for the watchdog.
    doing: Vec<Mutex<&'static str>>,
}

struct Worker {
    world: Arc<World>,
    class: u64,
    random: Random,
    model: BTreeMap<u64, u64>,
    step: u64,
}

impl Worker {
    fn run(mut self) -> BTreeMap<u64, u64> {
        while !self.world.stop.load(SeqCst) {
            self.step += 1;
            self.act();
            self.world.progress[self.class as usize].fetch_add(1, SeqCst);
        }
        for number in (self.class..KEYS).step_by(THREADS as usize + 1) {
            self.check_owned(number);
        }
        self.world.progress[self.class as usize].store(u64::MAX, SeqCst);
        self.model
    }

    fn doing(&self, what: &'static str) {
        *self.world.doing[self.class as usize].lock().unwrap() = what;
    }

    fn own(&mut self) -> u64 {
        self.random.below(KEYS / (THREADS + 1)) * (THREADS + 1) + self.class
    }

    fn act(&mut self) {
        let shrinking = (self.step / PHASE) % 2 == 1;
        match self.random.below(1_000) {
            0..300 if !shrinking => self.put(),
            0..100 => self.put(),
            100..350 => self.remove(),
            350..450 => self.swap_owned(),
            450..600 => {
                let number = self.own();
                self.doing("get");
                self.check_owned(number);
            }
            600..800 => self.count_up(),
            800..900 => self.read_shared(),
            900..960 => self.read_many(),
            960..980 => self.scan_range(),
            980..990 => self.scan_all(),
            990..997 => self.come_and_go(),
            _ => {
                self.doing("checkpoint");
                self.world.db.checkpoint().unwrap();
            }
        }
    }

    fn put(&mut self) {
        self.doing("put");
        let (number, generation) = (self.own(), self.step);
        let key = key_of(number);
        let was = self.model.insert(number, generation).is_some();
        assert_eq!(self.world.owned.put(&key, &value_of(&key, generation)).unwrap(), was);
    }

    fn remove(&mut self) {
        self.doing("remove");
        let number = self.own();
        let was = self.model.remove(&number).is_some();
        assert_eq!(self.world.owned.remove(&key_of(number)).unwrap(), was);
    }

    fn swap_owned(&mut self) {
        self.doing("compare and swap");
        let number = self.own();
        let key = key_of(number);
        let old = self.model.get(&number).map(|generation| value_of(&key, *generation));
        let new = (self.random.below(3) > 0).then(|| value_of(&key, self.step));
        let swap = self.world.owned.compare_and_swap(&key, old.as_deref(), new.as_deref());
        assert!(swap.unwrap().is_swapped());
        match new {
            Some(_) => self.model.insert(number, self.step),
            None => self.model.remove(&number),
        };
    }

    fn check_owned(&self, number: u64) {
        let key = key_of(number);
        let value = self.world.owned.get(&key).unwrap();
        let found = value.map(|value| generation_of(&key, &value));
        assert_eq!(found, self.model.get(&number).copied(), "{}", key.escape_ascii());
    }

    /// Reads a shared key and adds one to its generation, unless another thread does so first.
    fn count_up(&mut self) {
        self.doing("count up");
        let number = self.random.below(SHARED_KEYS);
        let (key, bounds) = (key_of(number), &self.world.bounds[number as usize]);
        let found = self.world.shared.get(&key).unwrap();
        let generation = found.as_ref().map_or(0, |value| generation_of(&key, value));
        bounds.ceiling.fetch_max(generation + 1, SeqCst);
        let new = value_of(&key, generation + 1);
        let swap = self.world.shared.compare_and_swap(&key, found.as_deref(), Some(&new)).unwrap();
        if swap.is_swapped() {
            bounds.swaps.fetch_add(1, SeqCst);
            bounds.floor.fetch_max(generation + 1, SeqCst);
        }
    }

    fn check_shared(&self, number: u64, floor: u64, value: Option<&[u8]>) {
        let generation = value.map_or(0, |value| generation_of(&key_of(number), value));
        let ceiling = self.world.bounds[number as usize].ceiling.load(SeqCst);
        assert!(
            (floor..=ceiling).contains(&generation),
            "shared key {number}: {generation} is not in {floor}..={ceiling}"
        );
    }

    fn read_shared(&mut self) {
        self.doing("get shared");
        let number = self.random.below(SHARED_KEYS);
        let floor = self.world.bounds[number as usize].floor.load(SeqCst);
        let value = self.world.shared.get(&key_of(number)).unwrap();
        self.check_shared(number, floor, value.as_deref());
    }

    fn read_many(&mut self) {
        self.doing("get many");
        let count = 1 + self.random.below(40);
        let numbers: Vec<u64> = (0..count).map(|_| self.random.below(SHARED_KEYS)).collect();
        let floors: Vec<u64> =
            numbers.iter().map(|n| self.world.bounds[*n as usize].floor.load(SeqCst)).collect();
        let keys: Vec<_> = numbers.iter().map(|n| key_of(*n)).collect();
        let values = self.world.shared.get_many(&keys).unwrap();
        assert_eq!(values.len(), keys.len());
        for ((number, floor), value) in numbers.into_iter().zip(floors).zip(&values) {
            self.check_shared(number, floor, value.as_deref());
        }
        let own: Vec<u64> = (0..count).map(|_| self.own()).collect();
        let keys: Vec<_> = own.iter().map(|n| key_of(*n)).collect();
        for (number, value) in own.iter().zip(self.world.owned.get_many(&keys).unwrap()) {
            let found = value.map(|value| generation_of(&key_of(*number), &value));
            assert_eq!(found, self.model.get(number).copied());
        }
    }

    /// A short range from either end; this thread's own records in it are known exactly.
    fn scan_range(&mut self) {
        self.doing("range");
        let forward = self.random.below(2) == 0;
        let (a, b) = (key_of(self.random.below(KEYS)), key_of(self.random.below(KEYS)));
        let (low, high) = if a <= b { (a, b) } else { (b, a) };
        let most = 1 + self.random.below(300) as usize;
        let bounds = (Bound::Included(low.clone()), Bound::Excluded(high.clone()));
        let range = self.world.owned.range(bounds);
        let records: Result<Vec<_>, _> = match forward {
            true => range.take(most).collect(),
            false => range.rev().take(most).collect(),
        };
        let records = records.unwrap();
        let (from, to) = if records.len() < most {
            (low, high)
        } else {
            let last = records[most - 1].0.to_vec();
            if forward { (low, last) } else { (last, high) }
        };
        let mut keys: Vec<&[u8]> = Vec::new();
        for (key, value) in &records {
            generation_of(key, value);
            keys.push(key);
        }
        if !forward {
            keys.reverse();
        }
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "out of order");
        let complete = |key: &&Vec<u8>| **key > from && **key < to;
        for (number, generation) in &self.model {
            let key = key_of(*number);
            if complete(&&key) {
                let at = records.iter().find(|(found, _)| **found == *key);
                let (_, value) = at.unwrap_or_else(|| panic!("{} missed", key.escape_ascii()));
                assert_eq!(generation_of(&key, value), *generation);
            }
        }
        for key in self.world.permanent.iter().filter(complete) {
            assert!(keys.binary_search(&key.as_slice()).is_ok(), "{} missed", key.escape_ascii());
        }
    }

    /// The whole keyspace, one way; permanent records are met once each.
    fn scan_all(&mut self) {
        self.doing("scan");
        let forward = self.random.below(2) == 0;
        let mut cursor = self.world.owned.cursor();
        if !forward {
            cursor.seek_to_end();
        }
        let mut expected: Vec<&Vec<u8>> = self.world.permanent.iter().collect();
        if !forward {
            expected.reverse();
        }
        let mut expected = expected.into_iter().peekable();
        let mut last: Option<Vec<u8>> = None;
        loop {
            let record = if forward { cursor.next_record() } else { cursor.previous_record() };
            let Some((key, value)) = record.unwrap() else { break };
            generation_of(key, value);
            if let Some(last) = &last {
                assert!(if forward { key > &last[..] } else { key < &last[..] }, "out of order");
            }
            if expected.peek().is_some_and(|next| next.as_slice() == key) {
                expected.next();
            }
            last = Some(key.to_vec());
        }
        assert_eq!(expected.next().map(|key| key.escape_ascii().to_string()), None, "missed");
    }

    /// A keyspace of this thread's own: created, filled, looked at, dropped.
    fn come_and_go(&mut self) {
        self.doing("keyspace");
        let db = &self.world.db;
        let name = format!("passing {} {}", self.class, self.random.below(2));
        let keyspace = db.create_keyspace(&name).unwrap();
        let count = self.random.below(60);
        for number in 0..count {
            let key = key_of(number);
            assert!(!keyspace.put(&key, &value_of(&key, self.step)).unwrap());
        }
        let mut seen = 0;
        for record in keyspace.iter() {
            let (key, value) = record.unwrap();
            assert_eq!(generation_of(&key, &value), self.step);
            seen += 1;
        }
        assert_eq!(seen, count);
        assert!(db.keyspaces().unwrap().contains(&name));
        assert!(db.drop_keyspace(&name).unwrap());
        let kind = keyspace.get(b"gone").unwrap_err();
        assert_eq!(kind.kind(), hedgerow::ErrorKind::KeyspaceDropped, "{kind}");
    }
}

/// Processor time of this process so far; time on the clock where that is not known.
fn cpu_time(since: Instant) -> Duration {
    let of_stat = |stat: String| {
        let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
        // Linux counts in hundredths of a second on all processors that this is tested on.
        Some(Duration::from_millis(ticks * 10))
    };
    std::fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(of_stat)
        .unwrap_or_else(|| since.elapsed())
}

/// How leaves get their layouts: any policy, by the seed.
fn policy(seed: u64) -> LeafPolicy {
    let layout = LeafLayout::ALL.get(Random(!seed).below(6) as usize);
    // The adaptive one twice as often as any other: readers convert there.
    layout.map_or(LeafPolicy::Adaptive, |layout| LeafPolicy::Fixed(*layout))
}

/// A handle that takes a leaf for contended if this share of its writes met another thread, and finds out at every second: leaves are
/// split between keys in every run, on however few processors.
fn contended(keyspace: Keyspace, share: f64) -> Keyspace {
    let often = ContentionSplit::new(1, 1, share, 2).unwrap();
    keyspace.with_contention_split(Some(often))
}

fn options(leaves: LeafPolicy) -> Options {
    Options::new()
        .leaves(leaves)
        .memory_limit_bytes(smallest_memory_limit_bytes(PAGE_BYTES))
        .page_bytes(PAGE_BYTES)
        .checkpoint_bytes(64 << 10)
        .direct_io(false)
}

fn assert_clean(db: &Database) {
    let report = db.verify(|_| ControlFlow::Continue(())).unwrap();
    assert!(report.is_clean(), "{:#?}", report.findings);
}

/// Lets the threads run until the processor time is used up; ends the process if one hangs.
fn watch(world: &World, budget: Duration) {
    let started = Instant::now();
    let at_start = cpu_time(started);
    let mut last: Vec<(u64, Instant)> = vec![(0, started); THREADS as usize];
    let mut finished = false;
    while !finished {
        std::thread::sleep(Duration::from_millis(20));
        if cpu_time(started).saturating_sub(at_start) >= budget {
            world.stop.store(true, SeqCst);
        }
        finished = true;
        for (thread, (steps, since)) in last.iter_mut().enumerate() {
            let now = world.progress[thread].load(SeqCst);
            finished &= now == u64::MAX;
            if now != *steps {
                (*steps, *since) = (now, Instant::now());
            } else if now != u64::MAX && since.elapsed() > STUCK {
                for (thread, doing) in world.doing.iter().enumerate() {
                    let steps = world.progress[thread].load(SeqCst);
                    eprintln!("thread {thread}: step {steps}, {}", doing.lock().unwrap());
                }
                eprintln!("thread {thread} has made no step for {STUCK:?}");
                std::process::abort();
            }
        }
    }
}

/// Says that a thread is through, even when it panics.
struct Ended<'w>(&'w World, usize);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.stop.store(true, SeqCst);
        self.0.progress[self.1].store(u64::MAX, SeqCst);
    }
}

#[test]
fn eight_threads_on_sixty_four_frames() {
    let seed =
        number("HEDGEROW_STRESS_SEED").unwrap_or_else(hedgerow_sync::primitive::random::seed);
    let budget = Duration::from_secs(positive("HEDGEROW_STRESS_CPU_SECONDS").unwrap_or(4));
    let leaves = policy(seed);
    println!("HEDGEROW_STRESS_SEED={seed}, {leaves:?}");
    // As in any other build, whatever a fuzzer would rather have.
    #[cfg(fuzzing)]
    hedgerow::internals::checksum::set_covering(true);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stress.hrow");
    let db = options(leaves).create(&path).unwrap();
    // A tenth: splits and merges alternate.
    let owned = contended(db.keyspace("owned").unwrap(), 0.1);
    let mut permanent: Vec<Vec<u8>> = (0..KEYS).filter(|n| is_permanent(*n)).map(key_of).collect();
    permanent.sort();
    for key in &permanent {
        owned.put(key, &value_of(key, 1)).unwrap();
    }
    let world = Arc::new(World {
        shared: contended(db.keyspace("shared").unwrap(), 0.0),
        bounds: (0..SHARED_KEYS).map(|_| Bounds::default()).collect(),
        stop: AtomicBool::new(false),
        progress: (0..THREADS).map(|_| AtomicU64::new(0)).collect(),
        doing: (0..THREADS).map(|_| Mutex::new("nothing yet")).collect(),
        db,
        owned,
        permanent,
    });
    let threads: Vec<_> = (0..THREADS)
        .map(|class| {
            let world = world.clone();
            let random = Random(seed ^ (class + 1) << 56);
            std::thread::spawn(move || {
                let _ended = Ended(&world, class as usize);
                let world = world.clone();
                Worker { world, class, random, model: BTreeMap::new(), step: 0 }.run()
            })
        })
        .collect();
    watch(&world, budget);
    let mut models: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    for thread in threads {
        models.extend(thread.join().unwrap().into_iter().map(|(n, g)| (key_of(n), g)));
    }
    models.extend(world.permanent.iter().map(|key| (key.clone(), 1)));
    for (number, bounds) in world.bounds.iter().enumerate() {
        let key = key_of(number as u64);
        let value = world.shared.get(&key).unwrap();
        let generation = value.map_or(0, |value| generation_of(&key, &value));
        assert_eq!(generation, bounds.swaps.load(SeqCst), "a swap was lost");
    }
    assert_clean(&world.db);
    println!("{:?}", world.db.stats().unwrap());
    let stats = world.db.stats().unwrap();
    assert!(stats.pool.evictions > 0 && stats.pool.pages_written > 0, "{stats:?}");
    assert!(stats.contention.splits > 0, "{stats:?}");
    world.db.clone().close().unwrap();
    drop(world);

    // Files are opened with any policy, whatever they were written with.
    let db = options(policy(!seed)).open(&path).unwrap();
    assert_clean(&db);
    assert_eq!(db.keyspaces().unwrap(), ["owned", "shared"]);
    let owned = db.keyspace("owned").unwrap();
    let mut expected = models.iter();
    for record in owned.iter() {
        let (key, value) = record.unwrap();
        let (expected_key, generation) = expected.next().expect("no more records");
        assert_eq!(&*key, expected_key.as_slice());
        assert_eq!(generation_of(&key, &value), *generation);
    }
    assert_eq!(expected.next(), None);
    db.close().unwrap();
}
