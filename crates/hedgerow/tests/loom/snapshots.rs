//! Snapshots beside writers, collections, checkpoints, and somebody who runs alone.
//!
//! Versions, slots, door, epochs and latches are the engine's. A tree is two records in two leaves, each a value and a stamp under a
//! latch, read without it and validated. Every change has its LSN for a value, so what a snapshot at `s` sees of a record is the LSN of its last change up
//! to `s`. What was read is compared with that when all threads have ended.

use crate::{check, check_all};
use hedgerow::internals::page::epoch::Epochs;
use hedgerow::internals::types::{Epoch, Lsn, TreeId};
use hedgerow::internals::versions::{
    Alone, Change, Clock, Seen, Snapshot, Surroundings, Versions, VersionsOptions, cells_of_change,
};
use hedgerow::internals::wait::Waiting;
use hedgerow_sync::latch::HybridLatch;
use hedgerow_testing::{PlainFreezer, PlainMemory};
use loom::sync::atomic::{AtomicU64, Ordering::*};
use loom::thread;
use std::sync::Arc;

const TREE: TreeId = TreeId(7);
const X: usize = 0;
const Y: usize = 1;
/// Records so far apart that each is above the horizon that was raised for the one before.
const FAR: u64 = 100_000;
const NEAR: u64 = 8;
/// No log: changes are ordered by a clock.
const CLOCK: u64 = 0;
/// A record's old value, and its key.
const VALUE_BYTES: usize = 8;
const KEY_BYTES: usize = 1;
/// As many blocks as a memory lends at least, of four cells each.
const BLOCK_BYTES: usize = 256;
const BLOCKS: u32 = 8;
/// A change for which no version may stay.
const ALL_BYTES: usize = 26 * 60 - 28 - KEY_BYTES;

/// What a checkpoint has, and where to count when it is dropped.
struct Checkpoint {
    values: [u64; 2],
    dropped: Arc<std::sync::atomic::AtomicU64>,
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, SeqCst);
    }
}

struct Leaf {
    latch: HybridLatch,
    value: AtomicU64,
    stamp: AtomicU64,
}

impl Leaf {
    fn new() -> Leaf {
        let (value, stamp) = (AtomicU64::new(0), AtomicU64::new(0));
        Leaf { latch: HybridLatch::new(), value, stamp }
    }

    /// Under the latch.
    fn change(&self, lsn: u64) {
        self.value.store(lsn, Relaxed);
        self.stamp.store(lsn, Relaxed);
    }

    /// Value and stamp in one validated look.
    fn look(&self) -> (u64, u64) {
        loop {
            if let Some(version) = self.latch.optimistic() {
                let seen = (self.value.load(Relaxed), self.stamp.load(Relaxed));
                if self.latch.validate(version) {
                    return seen;
                }
            }
            thread::yield_now();
        }
    }
}

struct Log {
    tail: AtomicU64,
    /// In the place of that.
    clock: Option<Clock>,
    epochs: Epochs,
}

impl Surroundings for Log {
    fn tail(&self) -> Lsn {
        match &self.clock {
            Some(clock) => clock.moment(),
            None => Lsn(self.tail.load(Acquire)),
        }
    }

    fn reached(&self) -> Lsn {
        match &self.clock {
            Some(clock) => clock.last(),
            None => Lsn(self.tail.load(Acquire)),
        }
    }

    fn wait_for_stays(&self) {
        self.epochs.wait_for_stays();
    }
}

struct Store {
    versions: Versions<PlainMemory, Checkpoint>,
    log: Log,
    step: u64,
    leaves: [Leaf; 2],
    /// No steps of the model: what was changed, and what was read as of which moment.
    changes: std::sync::Mutex<Vec<(usize, u64)>>,
    reads: std::sync::Mutex<Vec<(u64, usize, u64)>>,
    pinned: std::sync::atomic::AtomicU64,
    dropped: Arc<std::sync::atomic::AtomicU64>,
    parts: Arc<std::sync::atomic::AtomicU32>,
}

impl Store {
    fn new(step: u64) -> Arc<Store> {
        let options = VersionsOptions { longest_key: KEY_BYTES, longest_value: VALUE_BYTES };
        Arc::new(Store {
            versions: Versions::new(PlainMemory::new(BLOCK_BYTES, BLOCKS), options),
            log: Log {
                tail: AtomicU64::new(FAR),
                clock: (step == CLOCK).then(|| Clock::new(Lsn(FAR))),
                epochs: Epochs::new(Epoch(1)),
            },
            step,
            leaves: [Leaf::new(), Leaf::new()],
            changes: std::sync::Mutex::default(),
            reads: std::sync::Mutex::default(),
            pinned: std::sync::atomic::AtomicU64::new(0),
            dropped: Arc::default(),
            parts: Arc::default(),
        })
    }

    /// One where a snapshot was open a moment ago.
    fn switched_on(step: u64) -> Arc<Store> {
        let store = Store::new(step);
        store.end(store.begin());
        store
    }

    fn begin(&self) -> Snapshot {
        self.versions.begin(&self.log, &Waiting::Forever).unwrap()
    }

    fn end(&self, snapshot: Snapshot) {
        drop(self.versions.end(snapshot));
    }

    fn append(&self, record: usize, beside_snapshots: bool) -> u64 {
        let lsn = match &self.log.clock {
            Some(clock) => clock.now(beside_snapshots).0,
            None => self.log.tail.fetch_add(self.step, AcqRel) + self.step,
        };
        self.changes.lock().unwrap().push((record, lsn));
        lsn
    }

    /// What a plain put does.
    fn put(&self, record: usize) {
        loop {
            let (key, value) = (KEY_BYTES, VALUE_BYTES);
            let forever = &Waiting::Forever;
            let admitted =
                self.versions.admit(&self.log, || cells_of_change(key, value), forever).unwrap();
            let Some(mut admission) = admitted else {
                self.versions.wait_at_gate(forever).unwrap();
                continue;
            };
            let stay = self.log.epochs.enter();
            if !admission.is_good() {
                continue;
            }
            let leaf = &self.leaves[record];
            let latch = leaf.latch.exclusive();
            let lsn = self.append(record, admission.keeps());
            let old = leaf.value.load(Relaxed).to_le_bytes();
            let change = Change {
                tree: TREE,
                key: &[record as u8],
                lsn: Lsn(lsn),
                old: Some(&old),
                removes: false,
                own_snapshots: 0,
            };
            admission.keep(&change);
            leaf.change(lsn);
            drop(latch);
            drop(stay);
            return;
        }
    }

    /// What a commit of both records does. `late`: it latches the second leaf when it has changed the first, as it must not.
    fn commit(&self, late: bool) {
        let cells = || 2 * cells_of_change(KEY_BYTES, VALUE_BYTES);
        let mut room = self.versions.admit(&self.log, cells, &Waiting::Forever).unwrap().unwrap();
        let stay = self.log.epochs.enter();
        assert!(room.is_good(), "nobody closes the gate, or turns the switch");
        let [first, second] = [X, Y].map(|record| &self.leaves[record]);
        let of_first = first.latch.exclusive();
        let early = (!late).then(|| second.latch.exclusive());
        let lsn = self.append(X, room.keeps());
        self.changes.lock().unwrap().push((Y, lsn));
        let ended = |record: usize| {
            let old = self.leaves[record].value.load(Relaxed).to_le_bytes();
            let (key, lsn) = (&[record as u8][..], Lsn(lsn));
            room.keep(&Change {
                tree: TREE,
                key,
                lsn,
                old: Some(&old),
                removes: false,
                own_snapshots: 0,
            });
            self.leaves[record].change(lsn.0);
        };
        ended(X);
        drop(of_first);
        let of_second = early.unwrap_or_else(|| second.latch.exclusive());
        ended(Y);
        drop((of_second, stay));
    }

    /// Two reads beside a commit of both records, of a snapshot or plain.
    fn look_at_both(&self, plainly: bool) {
        if plainly {
            let [x, y] = [X, Y].map(|record| self.leaves[record].look().0);
            assert!(x == 0 || x == y, "half of a commit");
            return;
        }
        let snapshot = self.begin();
        assert!(self.read(&snapshot, X) && self.read(&snapshot, Y));
        self.end(snapshot);
    }

    /// A read as of a snapshot; false if it is too old.
    fn read(&self, snapshot: &Snapshot, record: usize) -> bool {
        let mut seen = 0;
        let look = || {
            let (value, stamp) = self.leaves[record].look();
            seen = value;
            Ok(Lsn(stamp))
        };
        let mut old = Vec::with_capacity(VALUE_BYTES);
        let found = self.versions.read(snapshot, TREE, &[record as u8], look, &mut old).unwrap();
        let value = match found {
            Seen::Leaf => seen,
            Seen::Version => u64::from_le_bytes(old.try_into().unwrap()),
            Seen::Checkpoint(checkpoint) => checkpoint.values[record],
            Seen::TooOld => return false,
            Seen::Absent => panic!("both records are always there"),
        };
        self.reads.lock().unwrap().push((snapshot.lsn().0, record, value));
        true
    }

    /// A snapshot that is begun, read and ended.
    fn look(&self) {
        let snapshot = self.begin();
        assert!(self.read(&snapshot, X));
        self.end(snapshot);
    }

    /// A checkpoint of this moment, beside no writer.
    fn checkpoint(&self) -> (Lsn, Checkpoint) {
        let of = |record, changes: &[(usize, u64)]| {
            changes.iter().filter(|change| change.0 == record).map(|change| change.1).max()
        };
        let changes = self.changes.lock().unwrap();
        // Not by a look at the leaves: loom would take a thread's own look for the last use of a latch, and try fewer orders.
        let values = [X, Y].map(|record| of(record, &changes).unwrap_or(0));
        drop(changes);
        self.pinned.fetch_add(1, SeqCst);
        (self.log.tail(), Checkpoint { values, dropped: self.dropped.clone() })
    }

    /// What a checkpoint does with old versions that only pinned snapshots need. Whether anything was written.
    fn freeze(&self) -> bool {
        let Some(plan) = self.versions.plan_to_freeze().unwrap() else { return false };
        let freezer = PlainFreezer::new(&self.parts);
        self.versions.freeze(&plan, &mut [0; 256], freezer).unwrap()
    }

    /// Takes over who is there, in no race.
    fn pin_all(&self) {
        let (cut, checkpoint) = self.checkpoint();
        assert!(self.versions.pin(&self.log, cut, checkpoint).unwrap().is_none());
    }

    /// Steps 1 and 2 of who runs alone.
    fn close_gate(&self) -> Alone<'_, PlainMemory, Checkpoint> {
        let mut alone = self.versions.close_gate(&self.log);
        let (cut, checkpoint) = self.checkpoint();
        alone.begin(&self.log, cut, checkpoint);
        alone
    }

    /// A change by who runs alone.
    fn change_alone(&self, record: usize) {
        let stay = self.log.epochs.enter();
        let latch = self.leaves[record].latch.exclusive();
        let lsn = self.append(record, true);
        self.leaves[record].change(lsn);
        drop(latch);
        drop(stay);
    }

    /// Compares all that was read, when all threads have ended.
    fn judge(&self) {
        let changes = self.changes.lock().unwrap();
        for &(at, record, value) in self.reads.lock().unwrap().iter() {
            let of_record = changes.iter().filter(|change| change.0 == record && change.1 <= at);
            let last = of_record.map(|change| change.1).max().unwrap_or(0);
            assert_eq!(value, last, "a snapshot at {at} of {changes:?}");
        }
        assert!(self.versions.collect(&self.log).unwrap());
        assert_eq!(self.pinned.load(SeqCst), self.dropped.load(SeqCst), "what nobody needs stays");
        assert_eq!(self.parts.load(SeqCst), 0, "a part that nobody needs stays");
    }
}

fn spawn(store: &Arc<Store>, run: impl FnOnce(&Store) + 'static) -> thread::JoinHandle<()> {
    let store = Arc::clone(store);
    thread::spawn(move || run(&store))
}

fn join<const THREADS: usize>(threads: [thread::JoinHandle<()>; THREADS]) {
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn the_first_snapshot_waits_for_writers_without_room() {
    for step in [NEAR, CLOCK] {
        check(4, move || {
            let store = Store::new(step);
            let writer = spawn(&store, |store| store.put(X));
            store.look();
            join([writer]);
            store.judge();
        });
    }
}

#[test]
fn who_begins_second_waits_for_writers_as_the_first_does() {
    for step in [NEAR, CLOCK] {
        check(2, move || {
            let store = Store::new(step);
            let writer = spawn(&store, |store| store.put(X));
            let first = spawn(&store, |store| store.end(store.begin()));
            store.look();
            join([writer, first]);
            store.judge();
        });
    }
}

#[test]
fn a_snapshot_that_begins_while_the_switch_is_turned_off_has_its_versions() {
    for step in [NEAR, CLOCK] {
        check(5, move || {
            let store = Store::switched_on(step);
            let idle = spawn(&store, |store| {
                store.versions.turn_off();
                store.put(X);
            });
            store.look();
            join([idle]);
            store.judge();
        });
    }
}

#[test]
fn a_writer_above_the_horizon_keeps_what_a_new_snapshot_needs() {
    for step in [FAR, CLOCK] {
        check(4, move || {
            let store = Store::switched_on(step);
            let before = store.begin();
            store.put(X);
            let writer = spawn(&store, |store| store.put(X));
            // Only then it is found out that a version is above the horizon, as far as that goes by now.
            let indexer = spawn(&store, |store| store.versions.index_recent());
            store.look();
            join([writer, indexer]);
            assert!(store.read(&before, X));
            store.end(before);
            store.judge();
        });
    }
}

#[test]
fn a_collection_drops_nothing_that_a_new_snapshot_needs() {
    for step in [NEAR, CLOCK] {
        check(6, move || {
            let store = Store::switched_on(step);
            let writer = spawn(&store, |store| {
                store.put(X);
                store.versions.collect(&store.log).unwrap();
            });
            store.look();
            join([writer]);
            store.judge();
        });
    }
}

#[test]
fn a_collection_that_has_seen_no_slot_has_read_the_end_of_the_log_before() {
    for step in [NEAR, CLOCK] {
        check(3, move || {
            let store = Store::switched_on(step);
            let writer = spawn(&store, |store| store.put(X));
            let collector =
                spawn(&store, |store| drop(store.versions.collect(&store.log).unwrap()));
            store.look();
            join([writer, collector]);
            store.judge();
        });
    }
}

#[test]
fn a_read_beside_a_writer_and_a_collection_sees_its_moment() {
    for step in [NEAR, CLOCK] {
        check(5, move || {
            let store = Store::switched_on(step);
            let before = store.begin();
            let writer = spawn(&store, |store| store.put(X));
            let collector =
                spawn(&store, |store| drop(store.versions.collect(&store.log).unwrap()));
            assert!(store.read(&before, X));
            join([writer, collector]);
            store.end(before);
            store.judge();
        });
    }
}

#[test]
fn a_read_beside_a_checkpoint_that_takes_its_snapshot_over_sees_its_moment() {
    for step in [NEAR, CLOCK] {
        check(6, move || {
            let store = Store::switched_on(step);
            let first = store.begin();
            let (cut, checkpoint) = store.checkpoint();
            store.put(X);
            let second = store.begin();
            store.put(X);
            let pinning = spawn(&store, move |store| {
                drop(store.versions.pin(&store.log, cut, checkpoint).unwrap());
            });
            assert!(store.read(&first, X));
            assert!(store.read(&second, X));
            join([pinning]);
            assert!(store.read(&first, X));
            assert!(store.read(&second, X));
            store.end(first);
            store.end(second);
            store.judge();
        });
    }
}

#[test]
fn a_read_beside_a_checkpoint_that_writes_its_versions_to_a_part_sees_its_moment() {
    for step in [NEAR, CLOCK] {
        check(6, move || {
            let store = Store::switched_on(step);
            let first = store.begin();
            store.put(X);
            store.pin_all();
            let second = store.begin();
            store.put(X);
            let freezing = spawn(&store, |store| assert!(store.freeze()));
            assert!(store.read(&first, X));
            assert!(store.read(&second, X));
            join([freezing]);
            assert!(store.read(&first, X));
            assert!(store.read(&second, X));
            store.end(first);
            store.end(second);
            store.judge();
        });
    }
}

#[test]
fn a_part_goes_with_the_last_snapshot_that_needs_it_and_no_earlier() {
    for step in [NEAR, CLOCK] {
        check(5, move || {
            let store = Store::switched_on(step);
            let [first, second] = [store.begin(), store.begin()];
            store.put(X);
            store.pin_all();
            let freezing = spawn(&store, |store| drop(store.freeze()));
            let ending = spawn(&store, |store| store.end(first));
            assert!(store.read(&second, X));
            join([freezing, ending]);
            assert!(store.read(&second, X));
            store.end(second);
            store.judge();
        });
    }
}

#[test]
fn who_ends_while_its_versions_are_written_leaves_no_part() {
    for step in [NEAR, CLOCK] {
        check(6, move || {
            let store = Store::switched_on(step);
            let snapshot = store.begin();
            store.put(X);
            store.pin_all();
            let freezing = spawn(&store, |store| drop(store.freeze()));
            store.end(snapshot);
            join([freezing]);
            store.judge();
        });
    }
}

#[test]
fn a_snapshot_that_begins_while_versions_are_written_sees_its_moment() {
    for step in [NEAR, CLOCK] {
        check(4, move || {
            let store = Store::switched_on(step);
            let first = store.begin();
            store.put(X);
            store.pin_all();
            let freezing = spawn(&store, |store| drop(store.freeze()));
            let later = store.begin();
            store.put(X);
            assert!(store.read(&later, X));
            join([freezing]);
            assert!(store.read(&first, X));
            assert!(store.read(&later, X));
            store.end(first);
            store.end(later);
            store.judge();
        });
    }
}

#[test]
fn a_snapshot_that_ends_beside_a_checkpoint_leaves_nothing_pinned() {
    for step in [NEAR, CLOCK] {
        check(6, move || {
            let store = Store::switched_on(step);
            let snapshot = store.begin();
            let (cut, checkpoint) = store.checkpoint();
            store.put(X);
            let pinning = spawn(&store, move |store| {
                drop(store.versions.pin(&store.log, cut, checkpoint).unwrap());
            });
            store.end(snapshot);
            store.look();
            join([pinning]);
            store.judge();
        });
    }
}

#[test]
fn who_is_given_up_reads_its_moment_or_that_it_is_too_old() {
    check(6, || {
        let store = Store::switched_on(NEAR);
        let want_all = |store: &Store| {
            let forever = &Waiting::Forever;
            drop(
                store
                    .versions
                    .admit(&store.log, || cells_of_change(KEY_BYTES, ALL_BYTES), forever)
                    .unwrap(),
            );
        };
        // All that may be lent is lent.
        want_all(&store);
        let snapshot = store.begin();
        store.put(X);
        store.put(Y);
        let writer = spawn(&store, want_all);
        store.read(&snapshot, X);
        join([writer]);
        assert!(!store.read(&snapshot, X), "there was no room for its versions");
        store.end(snapshot);
        store.judge();
    });
}

/// With the looser rule, in which the second leaf is latched late, it must fail however few switches are asked for.
fn commit_beside_a_reader(late: bool, plainly: bool) {
    for step in [NEAR, CLOCK] {
        let model = move || {
            let store = Store::switched_on(step);
            let writer = spawn(&store, move |store| store.commit(late));
            store.look_at_both(plainly);
            join([writer]);
            store.judge();
        };
        if late { check_all(4, model) } else { check(4, model) }
    }
}

#[test]
fn a_commit_of_two_leaves_is_seen_whole_or_not_at_all() {
    commit_beside_a_reader(false, true);
    commit_beside_a_reader(false, false);
}

#[test]
#[should_panic(expected = "half of a commit")]
fn a_commit_that_latches_its_second_leaf_late_is_seen_in_half() {
    commit_beside_a_reader(true, true);
}

#[test]
#[should_panic(expected = "a snapshot at")]
fn a_commit_that_latches_its_second_leaf_late_is_in_a_snapshot_in_half() {
    commit_beside_a_reader(true, false);
}

#[test]
fn what_is_changed_alone_is_seen_by_a_snapshot_all_at_once() {
    check(6, || {
        let store = Store::switched_on(NEAR);
        let before = store.begin();
        let alone = spawn(&store, |store| {
            let alone = store.close_gate();
            store.change_alone(X);
            store.change_alone(Y);
            drop(alone.end());
        });
        assert!(store.read(&before, X));
        assert!(store.read(&before, Y));
        join([alone]);
        assert!(store.read(&before, X));
        store.end(before);
        store.judge();
    });
}

#[test]
fn a_snapshot_that_begins_beside_who_runs_alone_sees_all_or_nothing() {
    check(3, || {
        let store = Store::switched_on(NEAR);
        let alone = spawn(&store, |store| {
            let alone = store.close_gate();
            store.change_alone(X);
            store.change_alone(Y);
            drop(alone.end());
        });
        let snapshot = store.begin();
        assert!(store.read(&snapshot, X));
        assert!(store.read(&snapshot, Y));
        join([alone]);
        assert!(store.read(&snapshot, X));
        store.end(snapshot);
        store.judge();
    });
}

#[test]
fn behind_the_closed_gate_nobody_else_appends() {
    check(5, || {
        let store = Store::new(NEAR);
        let writer = spawn(&store, |store| store.put(X));
        let alone = store.close_gate();
        let cut = store.log.tail();
        store.change_alone(Y);
        assert_eq!(store.log.tail(), Lsn(cut.0 + NEAR), "one thread appends");
        drop(alone.end());
        join([writer]);
        store.judge();
    });
}
