//! The log in random interleavings, and the power that goes at any moment: what was acknowledged as durable is
//! there, and of each thread's other changes a first part, in their order; of a batch all or nothing. And the store that
//! is closed beside writers: all that they could change is there.

use crate::{
    KEYS, State, assert_ordered, assert_sound, check, contents, key_of, open, options, path,
    value_of,
};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, ErrorKind, Keyspace, Options, Result, WriteBatch};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::thread::{spawn_named, yield_now};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Effect, Fault};
use shuttle::rand::{Rng, RngCore, thread_rng};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};

const WRITERS: u64 = 2;
const CHANGES: u64 = 8;
/// What whoever meets a failing disk may be told.
const MAY_FAIL: &[ErrorKind] = &[ErrorKind::Io, ErrorKind::Poisoned, ErrorKind::DurabilityUnknown];

pub(crate) fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(crate::PAGE_BYTES);
    options().memory_limit_bytes(limit).log(true).log_segment_blocks(6)
}

/// How far a writer is. The standard library's counters: a look at them is no step of the schedule.
#[derive(Default)]
struct Progress {
    begun: AtomicU64,
    durable: AtomicU64,
}

/// The number of the key that a writer's change is of: a few, so that they are overwritten.
fn number_of(writer: u64, change: u64) -> u64 {
    writer + WRITERS * (change % 5) * 37
}

/// What a writer's keys hold after its first `changes`.
fn after(writer: u64, changes: u64) -> State {
    let before = (0..5).map(|change| (number_of(writer, change), 1));
    let made = (0..changes).map(|change| (number_of(writer, change), change + 2));
    before.chain(made).collect()
}

#[test]
fn what_was_acknowledged_survives_the_power_and_the_rest_is_a_beginning() {
    check(|| {
        acknowledged(None);
    });
}

/// Whoever waits when a write or a sync of the log fails is told that nobody knows, and nobody after him is told
/// that his change is durable, unless it is.
#[test]
fn what_was_acknowledged_survives_a_disk_that_fails_and_the_power() {
    /// Schedules in which somebody was told of the failure.
    static TOLD: AtomicU64 = AtomicU64::new(0);
    check(|| {
        let (kind, most) = match thread_rng().gen_bool(0.5) {
            true => (CallKind::Write, 16),
            false => (CallKind::SyncData, 8),
        };
        let fault = Fault::once(kind, thread_rng().gen_range(0..most), Fault::EIO);
        let fault = if thread_rng().gen_bool(0.3) { fault.sticky() } else { fault };
        let fault = match thread_rng().gen_range(0..3) {
            0 => fault.with_effect(Effect::Nothing),
            1 => fault.with_effect(Effect::Lost),
            _ => fault,
        };
        TOLD.fetch_add(u64::from(acknowledged(Some(fault))), Ordering::Relaxed);
    });
    let told = TOLD.load(Ordering::Relaxed);
    println!("somebody was told of a failure in {told} schedules");
    assert!(told > 0, "the schedules are too few to tell anything");
}

/// Writers that wait for some of their changes, and a power cut: at any moment, or when a call to the disk has failed
/// and they have ended. Whether somebody was told of the failure.
fn acknowledged(fault: Option<Fault>) -> bool {
    let (disk, db, keyspace) = open(&logged());
    if let Some(fault) = fault {
        disk.inject(fault);
    }
    let progress: Arc<[Progress; WRITERS as usize]> = Arc::default();
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (keyspace, progress) = (keyspace.clone(), progress.clone());
            spawn_named("writer", move || {
                let progress = &progress[writer as usize];
                for change in 0..CHANGES {
                    let sync = thread_rng().gen_bool(0.4);
                    let durability = if sync { Durability::Sync } else { Durability::Buffered };
                    let key = key_of(number_of(writer, change));
                    progress.begun.store(change + 1, Ordering::Relaxed);
                    let handle = keyspace.clone().with_durability(durability);
                    if let Err(error) = handle.put(&key, &value_of(&key, change + 2)) {
                        assert!(fault.is_some(), "{error:?}");
                        assert_ordered(&error, MAY_FAIL);
                        return true;
                    }
                    if sync {
                        progress.durable.store(change + 1, Ordering::Relaxed);
                    }
                }
                false
            })
            .unwrap()
        })
        .collect();
    for _ in 0..thread_rng().gen_range(0..60) {
        yield_now();
    }
    if thread_rng().gen_bool(0.3)
        && let Err(error) = db.checkpoint()
    {
        assert!(fault.is_some(), "{error:?}");
        assert_ordered(&error, MAY_FAIL);
    }
    let of = |part: fn(&Progress) -> &AtomicU64| {
        [0, 1].map(|writer| part(&progress[writer]).load(Ordering::Relaxed))
    };
    let (mut durable, mut left) = (of(|progress| &progress.durable), disk.state());
    let mut begun = of(|progress| &progress.begun);
    let mut told = false;
    for writer in writers {
        told |= writer.join().unwrap();
    }
    if told {
        (durable, begun) = (of(|progress| &progress.durable), of(|progress| &progress.begun));
        left = disk.state();
    }
    drop((db, keyspace));
    let left = left.crash_at_random(thread_rng().next_u64());
    let survivor = SimDisk::with_state(left, thread_rng().next_u64());
    let db = logged().on_disk(&survivor, path(), OpenHow::Existing).unwrap();
    assert_sound(&db);
    let found = contents(&db);
    assert_eq!(found.len() as u64, KEYS);
    for writer in 0..WRITERS {
        let (durable, begun) = (durable[writer as usize], begun[writer as usize]);
        let is = |changes: u64| after(writer, changes).iter().all(|(n, g)| found[n] == *g);
        assert!(
            (durable..=begun).any(is),
            "writer {writer}: {durable} of {begun} were durable, and this is left: {found:?}"
        );
    }
    told
}

/// Keys that each batch of a writer changes, and the last one it removes: it is put by itself in between. In so many leaves
/// that they are too many for one stroke, or in few.
const MEMBERS: u64 = 9;
const ROUNDS: u64 = 4;
/// From one key of a batch to the next: each has a leaf of its own, or four share one.
const SPREADS: [u64; 2] = [27, 1];

fn member_of(writer: u64, member: u64, spread: u64) -> u64 {
    writer + WRITERS * member * spread
}

/// What a writer's keys hold after its first `steps`: batches, and after each the put of the last key.
fn after_steps(writer: u64, steps: u64, spread: u64) -> Vec<(u64, Option<u64>)> {
    let round = steps.div_ceil(2);
    let member = |member| (member_of(writer, member, spread), Some(1 + round));
    // Before the first step everything is in generation 1.
    let last = match steps {
        0 => Some(1),
        odd if odd % 2 == 1 => None,
        _ => Some(1 + round),
    };
    (0..MEMBERS - 1).map(member).chain([(member_of(writer, MEMBERS - 1, spread), last)]).collect()
}

/// `alone`: batches one right after the other, so that those of two writers overlap at a cut.
fn write_batches(
    db: &Database,
    keyspace: &Keyspace,
    writer: u64,
    progress: &Progress,
    (alone, spread): (bool, u64),
) {
    let last = key_of(member_of(writer, MEMBERS - 1, spread));
    for round in 1..=ROUNDS {
        let step = 2 * round - 1;
        let sync = !alone && thread_rng().gen_bool(0.3);
        let mut batch = WriteBatch::new();
        if sync {
            batch.set_durability(Durability::Sync);
        }
        for member in 0..MEMBERS - 1 {
            let key = key_of(member_of(writer, member, spread));
            batch.put(keyspace, &key, &value_of(&key, 1 + round)).unwrap();
        }
        batch.remove(keyspace, &last).unwrap();
        progress.begun.store(step, Ordering::Relaxed);
        if !alone && thread_rng().gen_bool(0.5) {
            // So that there is nothing to remove: that has to be known, too.
            keyspace.remove(&last).unwrap();
        }
        db.write(&batch).unwrap();
        if sync {
            progress.durable.store(step, Ordering::Relaxed);
        }
        if alone {
            continue;
        }
        progress.begun.store(step + 1, Ordering::Relaxed);
        let handle = keyspace.clone().with_durability(Durability::Sync);
        handle.put(&last, &value_of(&last, 1 + round)).unwrap();
        progress.durable.store(step + 1, Ordering::Relaxed);
    }
}

#[test]
fn a_batch_is_there_whole_or_not_at_all() {
    check(|| {
        let (disk, db, keyspace) = open(&logged());
        let progress: Arc<[Progress; WRITERS as usize]> = Arc::default();
        let alone = thread_rng().gen_bool(0.5);
        let spread = SPREADS[usize::from(thread_rng().gen_bool(0.4))];
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (db, keyspace, progress) = (db.clone(), keyspace.clone(), progress.clone());
                let write = move || {
                    write_batches(
                        &db,
                        &keyspace,
                        writer,
                        &progress[writer as usize],
                        (alone, spread),
                    );
                };
                spawn_named("writer", write).unwrap()
            })
            .collect();
        for _ in 0..thread_rng().gen_range(0..if alone { 3000 } else { 40 }) {
            yield_now();
        }
        if thread_rng().gen_bool(0.7) {
            db.checkpoint().unwrap();
        } else {
            db.sync().unwrap();
        }
        let of = |part: fn(&Progress) -> &AtomicU64| {
            [0, 1].map(|writer| part(&progress[writer]).load(Ordering::Relaxed))
        };
        let durable = of(|progress| &progress.durable);
        let left = disk.state();
        let begun = of(|progress| &progress.begun);
        for writer in writers {
            writer.join().unwrap();
        }
        drop((db, keyspace));
        let left = left.crash_at_random(thread_rng().next_u64());
        let survivor = SimDisk::with_state(left, thread_rng().next_u64());
        let db = logged().on_disk(&survivor, path(), OpenHow::Existing).unwrap();
        assert_sound(&db);
        let found = contents(&db);
        for writer in 0..WRITERS {
            let (durable, begun) = (durable[writer as usize], begun[writer as usize]);
            let last = member_of(writer, MEMBERS - 1, spread);
            let is = |steps: u64| {
                if alone && steps > 0 && steps.is_multiple_of(2) {
                    return false;
                }
                let mut state = after_steps(writer, steps, spread).into_iter();
                // The removal before a batch may be there without it.
                let removed_before = steps.is_multiple_of(2) && steps < begun;
                state.all(|(n, generation)| {
                    let found = found.get(&n).copied();
                    found == generation || n == last && removed_before && found.is_none()
                })
            };
            assert!(
                (durable..=begun).any(is),
                "writer {writer}: {durable} of {begun} were durable, and this is left: {found:?}"
            );
        }
    });
}

/// The keyspace can be found before the call that creates it has returned.
#[test]
fn what_is_put_into_a_keyspace_in_the_making_survives() {
    check(|| {
        let (disk, db, keyspace) = open(&logged());
        let creator = {
            let db = db.clone();
            spawn_named("creator", move || drop(db.create_keyspace("new").unwrap())).unwrap()
        };
        let writer = {
            let db = db.clone();
            let write = move || {
                let found = loop {
                    match db.open_keyspace("new").unwrap() {
                        Some(keyspace) => break keyspace,
                        None => yield_now(),
                    }
                };
                found.with_durability(Durability::Sync).put(b"key", b"value").unwrap();
            };
            spawn_named("writer", write).unwrap()
        };
        writer.join().unwrap();
        let left = disk.state().crash_at_random(thread_rng().next_u64());
        creator.join().unwrap();
        drop((db, keyspace));
        let survivor = SimDisk::with_state(left, thread_rng().next_u64());
        let db = logged().on_disk(&survivor, path(), OpenHow::Existing).unwrap();
        let found = db.open_keyspace("new").unwrap().expect("somebody was told that it is there");
        assert_eq!(found.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    });
}

/// Writers beside a close, of keys of their own: the first two wait until each change is durable, the third writes
/// batches, the last one waits for nothing.
const BESIDE_CLOSE: u64 = 4;
const BATCHES: u64 = 2;

fn beside_close(writer: u64, change: u64) -> u64 {
    writer + BESIDE_CLOSE * (change % 5) * 29
}

/// What a writer's keys hold after its first `changes`.
fn after_beside_close(writer: u64, changes: u64) -> State {
    let before = (0..5).map(|change| (beside_close(writer, change), 1));
    if writer == BATCHES {
        return before.map(|(number, _)| (number, 1 + changes)).collect();
    }
    before.chain((0..changes).map(|change| (beside_close(writer, change), change + 2))).collect()
}

fn write_beside_close(db: &Database, keyspace: &Keyspace, writer: u64, change: u64) -> Result<()> {
    if writer == BATCHES {
        let mut batch = WriteBatch::new();
        batch.set_durability(Durability::Sync);
        for member in 0..5 {
            let key = key_of(beside_close(writer, member));
            batch.put(keyspace, &key, &value_of(&key, change + 2))?;
        }
        return db.write(&batch).map(drop);
    }
    let durability = if writer < BATCHES { Durability::Sync } else { Durability::Buffered };
    let key = key_of(beside_close(writer, change));
    let handle = keyspace.clone().with_durability(durability);
    handle.put(&key, &value_of(&key, change + 2)).map(drop)
}

/// Goes on until it is refused; returns how many changes were made, or may have been.
fn until_closed(db: &Database, keyspace: &Keyspace, writer: u64) -> RangeInclusive<u64> {
    for change in 0..CHANGES {
        let Err(error) = write_beside_close(db, keyspace, writer, change) else { continue };
        return match error.kind() {
            ErrorKind::Closed => change..=change,
            // Nobody knows whether it is durable.
            ErrorKind::DurabilityUnknown => change..=change + 1,
            _ => panic!("{error:?}"),
        };
    }
    CHANGES..=CHANGES
}

/// Whoever comes too late is told so. Of what was made in time everything is there, whether somebody has waited for it
/// or not, since a close takes a checkpoint; and nothing else.
#[test]
fn a_close_beside_writers_keeps_what_it_has_let_them_change() {
    /// Schedules in which somebody was refused, and in which something was changed.
    static REFUSED: AtomicU64 = AtomicU64::new(0);
    static CHANGED: AtomicU64 = AtomicU64::new(0);
    check(|| {
        let (disk, db, keyspace) = open(&logged());
        let writers: Vec<_> = (0..BESIDE_CLOSE)
            .map(|writer| {
                let (db, keyspace) = (db.clone(), keyspace.clone());
                spawn_named("writer", move || until_closed(&db, &keyspace, writer)).unwrap()
            })
            .collect();
        if thread_rng().gen_bool(0.8) {
            for _ in 0..thread_rng().gen_range(0..200) {
                yield_now();
            }
        }
        db.close().unwrap();
        let made: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        drop(keyspace);
        let refused = made.iter().any(|made| *made.start() < CHANGES);
        let changed = made.iter().any(|made| *made.start() > 0);
        REFUSED.fetch_add(u64::from(refused), Ordering::Relaxed);
        CHANGED.fetch_add(u64::from(changed), Ordering::Relaxed);
        let survivor = disk.crash(thread_rng().next_u64());
        let db = logged().on_disk(&survivor, path(), OpenHow::Existing).unwrap();
        assert_sound(&db);
        let found = contents(&db);
        assert_eq!(found.len() as u64, KEYS);
        for (writer, made) in (0..BESIDE_CLOSE).zip(made) {
            let is = |changes: u64| {
                after_beside_close(writer, changes).iter().all(|(n, g)| found[n] == *g)
            };
            assert!(
                made.clone().any(is),
                "writer {writer}: {made:?} changes were made, and this is left: {found:?}"
            );
        }
        db.close().unwrap();
    });
    let [refused, changed] = [&REFUSED, &CHANGED].map(|count| count.load(Ordering::Relaxed));
    println!("somebody was refused in {refused} schedules, and something changed in {changed}");
    assert!(refused > 0 && changed > 0, "the schedules are too few to tell anything");
}
