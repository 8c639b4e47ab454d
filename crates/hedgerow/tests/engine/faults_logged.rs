//! Calls that fail under a store with a log: each kind of call at each moment of a script, once or for good; each
//! call of a recovery, and of a close. What was acknowledged is there afterwards, what was refused is not, and a
//! change of which nobody knows is there whole or not at all.

use crate::common::{Dice, Model, assert_sound, bytes, contents, get, key, open, seed, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, Error, ErrorKind, Options, Result, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Fault, SimState};

/// The file may not be touched.
/// No script has so many calls of a kind.
const MOST_CALLS: u64 = 3000;

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512) + (128 << 10);
    tiny().memory_limit_bytes(limit).zone_bytes(32 << 10).log(true).log_segment_blocks(6)
}

/// `may_be_unknown`: what failed was to be durable when it returned, or was a batch.
fn assert_typed(error: &Error, may_be_unknown: bool, context: &str) {
    let expected = match error.kind() {
        ErrorKind::Io | ErrorKind::DiskFull | ErrorKind::Poisoned => true,
        ErrorKind::DurabilityUnknown | ErrorKind::BatchUnfinished => may_be_unknown,
        _ => false,
    };
    assert!(expected, "{context}: {error:?}");
}

fn is_unknown(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::DurabilityUnknown | ErrorKind::BatchUnfinished)
}

/// A change of a batch: keyspace, number of the key, and the value or none.
type Part<'v> = (&'v str, u64, Option<&'v [u8]>);

/// A store under a script, and all states that it went through.
struct Run {
    disk: SimDisk,
    db: Database,
    /// `None`: nothing is to fail.
    fault: Option<Fault>,
    context: String,
    /// Contents after each change that was made, the first before any. A change that was refused is not in it. One
    /// that nobody knows of is, as the last: nothing can be changed after it.
    history: Vec<Model>,
    /// How far it was said to be durable.
    durable: usize,
    /// The last change is one that nobody knows of.
    is_unknown: bool,
    /// That is a batch, of which the running store may show a part.
    is_in_parts: bool,
}

impl Run {
    fn begin(disk: &SimDisk, before: &Model, context: &str) -> Run {
        let db = open(&logged(), disk, OpenHow::Existing).unwrap();
        Run {
            disk: disk.clone(),
            db,
            fault: None,
            context: context.into(),
            history: vec![before.clone()],
            durable: 0,
            is_unknown: false,
            is_in_parts: false,
        }
    }

    /// From now on calls fail.
    fn arm(&mut self, fault: Fault) {
        self.disk.inject(fault);
        self.fault = Some(fault);
    }

    fn now(&self) -> &Model {
        self.history.last().unwrap()
    }

    fn refused(&self, error: &Error, may_be_unknown: bool) {
        assert!(self.fault.is_some(), "{}: {error:?}", self.context);
        assert_typed(error, may_be_unknown, &self.context);
    }

    /// Everything up to now is durable if this was done.
    fn made_durable(&mut self, done: Result<()>) {
        match done {
            Ok(()) => self.durable = self.history.len() - 1,
            Err(error) => self.refused(&error, true),
        }
    }

    /// Notes what became of a change that leaves `after`, and that is durable when it returns if it is `sync`.
    fn changed(&mut self, done: Result<()>, after: Model, sync: bool) {
        match done {
            Ok(()) => {
                if after != *self.now() {
                    assert!(!self.is_unknown, "{}: changed after nobody knew", self.context);
                    self.history.push(after);
                }
                if sync {
                    self.made_durable(Ok(()));
                }
            }
            Err(error) => {
                self.refused(&error, sync || self.is_in_parts);
                if is_unknown(&error) && !self.is_unknown {
                    self.history.push(after);
                    self.is_unknown = true;
                }
            }
        }
    }

    fn create(&mut self, name: &str) {
        let mut after = self.now().clone();
        after.insert(name.into(), Default::default());
        let done = self.db.create_keyspace(name).map(drop);
        self.changed(done, after, true);
    }

    /// Puts a value, or removes the record.
    fn change(&mut self, name: &str, key: &[u8], value: Option<&[u8]>, durability: Durability) {
        let mut after = self.now().clone();
        // It may be one that could not be created.
        let Some(records) = after.get_mut(name) else { return };
        match value {
            Some(value) => records.insert(key.to_vec(), value.to_vec()),
            None => records.remove(key),
        };
        let keyspace = self.db.keyspace(name).map(|found| found.with_durability(durability));
        let done = keyspace.and_then(|keyspace| match value {
            Some(value) => keyspace.put(key, value),
            None => keyspace.remove(key),
        });
        self.changed(done.map(drop), after, durability == Durability::Sync);
    }

    fn batch(&mut self, parts: &[Part<'_>], sync: bool) {
        let mut after = self.now().clone();
        let mut batch = WriteBatch::new();
        if sync {
            batch.set_durability(Durability::Sync);
        }
        for &(name, n, value) in parts {
            let keyspace = match self.db.keyspace(name) {
                Ok(keyspace) => keyspace,
                Err(error) => return self.refused(&error, false),
            };
            let records = after.get_mut(name).unwrap();
            match value {
                Some(value) => {
                    batch.put(&keyspace, &key(n), value).unwrap();
                    records.insert(key(n), value.to_vec());
                }
                None => {
                    batch.remove(&keyspace, &key(n)).unwrap();
                    records.remove(&key(n));
                }
            }
        }
        let done = self.db.write(&batch).map(drop);
        if let Err(error) = &done {
            self.is_in_parts |= is_unknown(error);
        }
        self.changed(done, after, sync);
    }

    /// Removes a range. After an error a first part of it is gone: which one the store shows.
    fn remove_range(&mut self, name: &str, from: u64, to: u64) {
        let mut left = self.now().clone();
        let range = left[name].range(key(from)..key(to));
        let inside: Vec<Vec<u8>> = range.map(|(key, _)| key.clone()).collect();
        let keyspace = self.db.keyspace(name);
        let found = match keyspace.and_then(|found| found.remove_range(key(from)..key(to))) {
            Ok(removed) => {
                assert!(!self.is_unknown, "{}: changed after nobody knew", self.context);
                assert_eq!(removed, inside.len() as u64, "{}", self.context);
                None
            }
            Err(error) => {
                self.refused(&error, false);
                if self.is_unknown {
                    return;
                }
                Some(self.look())
            }
        };
        for key in &inside {
            if found.as_ref() == Some(&left) {
                return;
            }
            // Leaf by leaf: a crash may leave any first part of it.
            left.get_mut(name).unwrap().remove(key);
            self.history.push(left.clone());
        }
        let is_first_part = found.is_none_or(|found| found == left);
        assert!(is_first_part, "{}: something else than a first part is gone", self.context);
    }

    fn read(&self, name: &str, key: &[u8]) {
        match self.db.keyspace(name).and_then(|keyspace| keyspace.get(key)) {
            Ok(found) => {
                let expected = self.now()[name].get(key).map(Vec::as_slice);
                let is_right = self.is_in_parts || found.as_deref() == expected;
                assert!(is_right, "{}: another value", self.context);
            }
            Err(error) => self.refused(&error, false),
        }
    }

    /// What the store shows while no call fails. After an error, so the fault has struck: what fails for good goes on
    /// to do so afterwards, and what fails once has failed.
    fn look(&mut self) -> Model {
        self.disk.clear_faults();
        let found = contents(&self.db);
        let found = found.unwrap_or_else(|error| panic!("{}: {error:?}", self.context));
        if let Some(fault) = self.fault.filter(|fault| fault.sticky) {
            self.disk.inject(Fault { after: 0, ..fault });
        }
        found
    }
}

/// A closed store of two keyspaces, some pages and a large value each.
fn closed() -> (SimState, Model) {
    let disk = SimDisk::new(1);
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    let mut dice = Dice(2);
    for name in ["robins", "wrens"] {
        let keyspace = db.keyspace(name).unwrap();
        for n in 0..60 {
            keyspace.put(&key(n), &bytes(&mut dice, 40)).unwrap();
        }
        keyspace.put(b"old song", &bytes(&mut dice, 9000)).unwrap();
    }
    let model = contents(&db).unwrap();
    db.close().unwrap();
    (disk.state(), model)
}

/// Something of everything, with two checkpoints in the middle: a failure of the first is the second's to make good.
fn script(run: &mut Run) {
    use Durability::{Buffered, Sync};
    let mut dice = Dice(3);
    let (song, psalm) = (bytes(&mut dice, 20_000), bytes(&mut dice, 6000));
    let (song, psalm) = (song.as_slice(), psalm.as_slice());
    let values: Vec<Vec<u8>> = (0..8).map(|n| bytes(&mut dice, 20 + 5 * n)).collect();
    let value = |n: usize| Some(values[n].as_slice());
    run.change("robins", &key(100), value(0), Buffered);
    run.change("robins", &key(1), value(1), Buffered);
    run.change("wrens", &key(1), value(2), Sync);
    let parts = [("robins", 1, value(3)), ("wrens", 2, None), ("wrens", 90, Some(psalm))];
    run.batch(&parts, false);
    run.change("robins", b"song", Some(song), Buffered);
    run.change("wrens", &key(91), value(4), Sync);
    run.read("robins", b"song");
    run.made_durable(run.db.checkpoint());
    run.change("wrens", &key(91), None, Buffered);
    run.change("wrens", b"old song", Some(psalm), Sync);
    run.made_durable(run.db.checkpoint());
    run.create("terns");
    run.change("terns", &key(1), value(5), Buffered);
    let parts = [("robins", 3, None), ("robins", 101, Some(song)), ("wrens", 1, value(6))];
    run.batch(&parts, true);
    run.change("robins", b"old song", None, Sync);
    run.remove_range("wrens", 10, 40);
    run.made_durable(run.db.sync());
    let parts = [("wrens", 41, value(7)), ("robins", 1, None), ("robins", 102, None)];
    run.batch(&parts, false);
    run.change("robins", b"song", Some(psalm), Sync);
    run.change("terns", &key(2), value(1), Buffered);
    run.change("robins", &key(103), value(2), Buffered);
    run.remove_range("robins", 20, 25);
}

/// Opens what a failure has left: it holds a state of the history at or after what was durable, and works on.
fn assert_reopens(disk: &SimDisk, history: &[Model], durable: usize, context: &str) {
    let db = open(&logged(), disk, OpenHow::Existing);
    let db = db.unwrap_or_else(|error| panic!("{context}, reopened: {error:?}"));
    let found = contents(&db).unwrap_or_else(|error| panic!("{context}, reopened: {error:?}"));
    let at = history.iter().rposition(|model| *model == found);
    assert!(
        at.is_some_and(|at| at >= durable),
        "{context}: found the state after change {at:?} of {}, and {durable} was durable",
        history.len() - 1
    );
    assert_sound(&db, context);
    let robins = db.keyspace("robins").unwrap().with_durability(Durability::Sync);
    robins.put(b"late", b"here").unwrap();
    db.checkpoint().unwrap();
    assert_sound(&db, context);
    assert_eq!(get(&robins, b"late").unwrap(), b"here");
}

/// Runs the script with one fault armed. Tells whether it struck.
fn run(base: &SimState, before: &Model, fault: Fault, dice_seed: u64) -> bool {
    let context = format!("{fault:?}");
    let disk = SimDisk::with_state(base.clone(), dice_seed);
    let mut run = Run::begin(&disk, before, &context);
    disk.record_log(true);
    run.arm(fault);
    script(&mut run);
    let struck = disk.take_log().iter().any(|call| call.fault.is_some());
    disk.record_log(false);
    disk.clear_faults();
    if !run.is_in_parts {
        let found = contents(&run.db).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        assert!(found == *run.now(), "{context}: the running store shows something else");
    }
    if run.is_unknown {
        let refused = run.db.keyspace("wrens").and_then(|wrens| wrens.put(b"a", b"b"));
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::Poisoned, "{context}");
    }
    let Run { db, history, durable, .. } = run;
    drop(db);
    let state = disk.state();
    assert_reopens(&disk, &history, durable, &format!("{context}, the process died"));
    let crashed = state.crash_at_random(dice_seed);
    let survivor = SimDisk::with_state(crashed, dice_seed);
    assert_reopens(&survivor, &history, durable, &format!("{context}, the power went"));
    struck
}

/// Fails each call of these kinds, once and for good. Tells how many calls failed.
fn sweep(kinds: &[CallKind], errnos: &[i32]) -> u64 {
    let dice_seed = seed(21);
    let (base, before) = closed();
    let mut runs = 0;
    for &kind in kinds {
        for &errno in errnos {
            for sticky in [false, true] {
                for k in 0.. {
                    assert!(k < MOST_CALLS, "the script has no end");
                    let fault = Fault { sticky, ..Fault::once(kind, k, errno) };
                    if !run(&base, &before, fault, dice_seed + k) {
                        println!("{k} runs with a failing {kind:?}, error {errno}, {sticky}");
                        break;
                    }
                    runs += 1;
                }
            }
        }
    }
    count(runs, "faulty runs");
    runs
}

#[test]
fn a_failed_write_loses_nothing_that_was_acknowledged() {
    let runs = sweep(&[CallKind::Write], &[Fault::EIO]);
    assert!(runs > 40, "{runs}");
}

#[test]
fn a_write_without_room_loses_nothing_that_was_acknowledged() {
    let runs = sweep(&[CallKind::Write], &[Fault::ENOSPC]);
    assert!(runs > 40, "{runs}");
}

#[test]
fn a_failed_sync_loses_nothing_that_was_acknowledged() {
    let runs = sweep(&[CallKind::SyncData, CallKind::SyncAll], &[Fault::EIO, Fault::ENOSPC]);
    assert!(runs > 40, "{runs}");
}

#[test]
fn a_failed_read_is_an_error_of_that_call_alone_with_a_log_too() {
    let runs = sweep(&[CallKind::Read], &[Fault::EIO]);
    assert!(runs > 4, "{runs}");
}

#[test]
fn files_that_cannot_change_their_size_lose_nothing_that_was_acknowledged() {
    // Renames, and what changes the directory, are a matter of opening and closing: see below.
    let kinds = [CallKind::Allocate, CallKind::SetLen, CallKind::PunchHole, CallKind::Examine];
    let runs = sweep(&kinds, &[Fault::EIO, Fault::ENOSPC]);
    assert!(runs > 4, "{runs}");
}

/// A store that was not closed, as a power cut leaves it: behind its last checkpoint the log has a keyspace that was
/// created, batches, large values, ranges that were removed and single changes.
fn crashed() -> (SimState, Model) {
    let (base, before) = closed();
    let disk = SimDisk::with_state(base, 4);
    let mut run = Run::begin(&disk, &before, "without a fault");
    script(&mut run);
    run.db.sync().unwrap();
    (disk.state().crash_at_random(4), run.now().clone())
}

/// Calls `each` with every fault that can strike `what`, until it says that one did not strike.
fn each_call(what: &str, mut each: impl FnMut(Fault, &str) -> bool) {
    for errno in [Fault::EIO, Fault::ENOSPC, Fault::EACCES] {
        for sticky in [false, true] {
            for k in 0.. {
                assert!(k < MOST_CALLS, "{what} has no end");
                let fault = Fault { errno, sticky, ..Fault::any(k) };
                if !each(fault, &format!("{what}, {fault:?}")) {
                    println!("{k} failing calls, error {errno}, {sticky}");
                    count(k, "faulty runs");
                    assert!(k > 8, "{what} makes more than {k} calls");
                    break;
                }
            }
        }
    }
}

#[test]
fn a_recovery_in_which_any_call_fails_is_done_again_from_the_start() {
    let dice_seed = seed(22);
    let (base, model) = crashed();
    let undisturbed = SimDisk::with_state(base.clone(), 0);
    let db = open(&logged(), &undisturbed, OpenHow::Existing).unwrap();
    assert!(db.replayed().records > 10);
    assert!(contents(&db).unwrap() == model);
    drop(db);
    each_call("opening", |fault, context| {
        let disk = SimDisk::with_state(base.clone(), dice_seed + fault.after);
        disk.inject(fault);
        let opened = open(&logged(), &disk, OpenHow::Existing);
        let struck = disk.total_calls() > fault.after;
        disk.clear_faults();
        match opened {
            // The failure was none of a call that opening needs.
            Ok(db) => assert!(contents(&db).unwrap() == model, "{context}"),
            Err(error) => {
                assert!(struck, "{context}: {error:?}");
                assert_typed(&error, true, context);
            }
        }
        let after_a_crash = fault.after.is_multiple_of(4);
        let disk = if after_a_crash { disk.crash(dice_seed + fault.after) } else { disk };
        assert_reopens(&disk, std::slice::from_ref(&model), 0, context);
        struck
    });
}

#[test]
fn a_close_in_which_any_call_fails_loses_nothing_that_was_acknowledged() {
    use Durability::{Buffered, Sync};
    let dice_seed = seed(23);
    let (base, model) = crashed();
    each_call("closing", |fault, context| {
        let disk = SimDisk::with_state(base.clone(), dice_seed + fault.after);
        let mut run = Run::begin(&disk, &model, context);
        run.change("robins", &key(110), Some(b"durable"), Sync);
        let parts = [("robins", 111, Some(&b"both"[..])), ("wrens", 111, Some(&b"or none"[..]))];
        run.batch(&parts, true);
        run.change("wrens", b"song", Some(&[7; 5000]), Sync);
        run.change("wrens", b"song", None, Buffered);
        run.change("wrens", &key(112), Some(b"buffered"), Buffered);
        let Run { db, history, mut durable, .. } = run;
        let before = disk.total_calls();
        disk.inject(fault);
        let done = db.close();
        let struck = disk.total_calls() - before > fault.after;
        disk.clear_faults();
        match done {
            Ok(()) => durable = history.len() - 1,
            Err(error) => {
                assert!(struck, "{context}: {error:?}");
                assert_typed(&error, true, context);
            }
        }
        let after_a_crash = fault.after.is_multiple_of(4);
        let disk = if after_a_crash { disk.crash(dice_seed + fault.after) } else { disk };
        assert_reopens(&disk, &history, durable, context);
        struck
    });
}
