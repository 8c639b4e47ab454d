//! Real threads: writers, snapshots, collections and checkpoints at once.
//!
//! A leaf is one record behind a lock. Each change adds one to its record under the lock, so the value says how many changes the record has had,
//! and the list of its LSNs says how many there were up to any moment.

use super::super::*;
use crate::page::epoch::Epochs;
use crate::testing::PlainMemory;
use crate::testing::environment;
use crate::types::{Epoch, Lsn, TreeId};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering::*};
use hedgerow_sync::primitive::random::{self, SplitMix64};
use hedgerow_sync::primitive::{Arc, Mutex, thread};

const TREE: TreeId = TreeId(3);
const LEAVES: u64 = 16;
const WRITERS: u64 = 3;
const READERS: u64 = 2;
const SNAPSHOTS: u64 = 150;
const OPTIONS: VersionsOptions = VersionsOptions { longest_key: 8, longest_value: 8 };

#[derive(Default)]
struct Leaf {
    value: u64,
    stamp: u64,
    changes: Vec<u64>,
}

struct Store {
    versions: Versions<PlainMemory, Vec<u64>>,
    tail: AtomicU64,
    /// Orders changes if they have no length.
    clock: Clock,
    has_log: bool,
    epochs: Epochs,
    leaves: Vec<Mutex<Leaf>>,
    checkpointing: Mutex<()>,
    is_done: AtomicBool,
    too_old: AtomicU64,
}

impl Surroundings for Store {
    fn tail(&self) -> Lsn {
        match self.has_log {
            true => Lsn(self.tail.load(Acquire)),
            false => self.clock.moment(),
        }
    }

    fn reached(&self) -> Lsn {
        match self.has_log {
            true => Lsn(self.tail.load(Acquire)),
            false => self.clock.last(),
        }
    }

    fn wait_for_stays(&self) {
        self.epochs.wait_for_stays();
    }
}

impl Store {
    fn put(&self, number: u64, step: u64) {
        loop {
            let forever = &Waiting::Forever;
            let admitted = self.versions.admit(self, || cells_of_change(8, 8), forever).unwrap();
            // There may be no room but what others are promised, and nobody left to be given up.
            let Some(mut admission) = admitted else {
                self.versions.wait_at_gate(forever).unwrap();
                continue;
            };
            let stay = self.epochs.enter();
            if !admission.is_good() {
                continue;
            }
            let mut leaf = self.leaves[number as usize].lock();
            let lsn = match self.has_log {
                true => self.tail.fetch_add(step, AcqRel) + step,
                false => self.clock.now(admission.keeps()).0,
            };
            let (key, old) = (number.to_be_bytes(), leaf.value.to_le_bytes());
            let (tree, lsn) = (TREE, Lsn(lsn));
            admission.keep(&Change {
                tree,
                key: &key,
                lsn,
                old: Some(&old),
                removes: false,
                own_snapshots: 0,
            });
            leaf.value += 1;
            leaf.stamp = lsn.0;
            leaf.changes.push(lsn.0);
            drop(leaf);
            drop(stay);
            return;
        }
    }

    /// Reads all records as of a snapshot; false if it is too old.
    fn read_all(&self, snapshot: &Snapshot) -> bool {
        let at = snapshot.lsn().0;
        for number in 0..LEAVES {
            let (mut value, mut then) = (0, 0);
            let look = || {
                let leaf = self.leaves[number as usize].lock();
                value = leaf.value;
                then = leaf.changes.partition_point(|lsn| *lsn <= at) as u64;
                Ok(Lsn(leaf.stamp))
            };
            let mut old = Vec::new();
            let key = number.to_be_bytes();
            let value = match self.versions.read(snapshot, TREE, &key, look, &mut old).unwrap() {
                Seen::Leaf => value,
                Seen::Version => u64::from_le_bytes(old.try_into().unwrap()),
                Seen::Checkpoint(values) => values[number as usize],
                Seen::Absent => panic!("record {number} is always there"),
                Seen::TooOld => return false,
            };
            assert_eq!(value, then, "record {number} as of {at}");
        }
        true
    }

    fn begin_and_read(&self, rng: &mut SplitMix64) {
        let snapshot = self.versions.begin(self, &Waiting::Forever).unwrap();
        for _ in 0..=rng.below(4) {
            if !self.read_all(&snapshot) {
                self.too_old.fetch_add(1, Relaxed);
                break;
            }
            self.tend(rng);
        }
        drop(self.versions.end(snapshot));
    }

    /// A checkpoint of the moment at which the epoch ends; or a collection, or the switch is turned off.
    fn tend(&self, rng: &mut SplitMix64) {
        match rng.below(4) {
            0 => {
                let _one_at_a_time = self.checkpointing.lock();
                let stopped = self.epochs.stop();
                let cut = self.tail();
                let values = self.leaves.iter().map(|leaf| leaf.lock().value).collect();
                drop(stopped);
                drop(self.versions.pin(self, cut, values).unwrap());
            }
            1 => drop(self.versions.turn_off()),
            2 => drop(self.versions.collect(self).unwrap()),
            _ => self.versions.tend(self).unwrap(),
        }
    }
}

fn run(seed: u64, most_blocks: u32, step: u64) -> Figures {
    println!("seed {seed}, {most_blocks} blocks, {step} bytes each");
    let store = Arc::new(Store {
        versions: Versions::new(PlainMemory::new(256, most_blocks), OPTIONS),
        tail: AtomicU64::new(step),
        clock: Clock::new(Lsn(0)),
        has_log: step > 0,
        epochs: Epochs::new(Epoch(1)),
        leaves: (0..LEAVES).map(|_| Mutex::default()).collect(),
        checkpointing: Mutex::new(()),
        is_done: AtomicBool::new(false),
        too_old: AtomicU64::new(0),
    });
    let spawn = |number: u64, work: fn(&Store, &mut SplitMix64, u64)| {
        let store = store.clone();
        let run = move || work(&store, &mut SplitMix64::new(seed ^ number << 32), step);
        thread::spawn_named(&format!("thread {number}"), run).unwrap()
    };
    let others = (0..=WRITERS).map(|number| {
        spawn(
            number,
            match number {
                0 => |store, rng, _| {
                    while !store.is_done.load(Acquire) {
                        store.tend(rng);
                        thread::yield_now();
                    }
                },
                _ => |store, rng, step| {
                    while !store.is_done.load(Acquire) {
                        store.put(rng.below(LEAVES), step);
                    }
                },
            },
        )
    });
    let others: Vec<_> = others.collect();
    let readers = (0..READERS).map(|number| {
        spawn(100 + number, |store, rng, _| {
            (0..SNAPSHOTS).for_each(|_| store.begin_and_read(rng));
        })
    });
    let readers: Vec<_> = readers.collect();
    let ended: Vec<_> = readers.into_iter().map(|reader| reader.join()).collect();
    store.is_done.store(true, Release);
    let others: Vec<_> = others.into_iter().map(|other| other.join()).collect();
    ended.into_iter().chain(others).for_each(|ended| ended.unwrap());
    assert!(store.versions.collect(&*store).unwrap());
    let figures = store.versions.figures();
    assert_eq!((figures.versions, figures.used_bytes), (0, 0));
    println!("{figures:?}, {} found to be too old", store.too_old.load(Relaxed));
    figures
}

#[test]
fn snapshots_beside_writers_collections_and_checkpoints_see_their_moments() {
    let seed = environment::seed(random::seed());
    let mut pinned = 0;
    for (turn, (blocks, step)) in
        [(60, 40), (8, 40), (60, 100_000), (9, 30_000), (60, 0), (8, 0)].iter().enumerate()
    {
        pinned += run(seed.wrapping_add(turn as u64), *blocks, *step).pinned;
    }
    assert!(pinned > 0, "no snapshot was pinned");
}
