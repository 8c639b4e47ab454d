//! Calls to the disk that fail, and the power that goes, in random interleavings.
//!
//! What a crash may leave is exact: what one checkpoint has cut out of the histories (`checkpoints.rs`). Which one:
//! the last whose call returned, or one that was begun later and failed, which may have become durable all the
//! same.

use crate::assert_sound;
use crate::checkpoints::{Checkpoint, is_cut, survivor, take_checkpoints};
use crate::{
    Changed, Clock, PAGE_BYTES, SPREAD, State, after, check, contents, join, open, options, start,
};
use hedgerow::{ErrorKind, Options};
use hedgerow_testing::sim::{CallKind, Effect, Fault};
use shuttle::rand::{Rng, thread_rng};
use std::sync::atomic::{AtomicU64, Ordering};

/// Asserts that `found` is what the last checkpoint has made durable, or what a later one, that failed,
/// may have. Tells whether it was a later one.
fn assert_a_checkpoint(
    found: &State,
    histories: &[Vec<Changed>],
    checkpoints: &[Checkpoint],
    options: &Options,
) -> bool {
    let durable = checkpoints.iter().rposition(|checkpoint| checkpoint.left.is_some());
    let last = match durable {
        // Only what is durable: nothing was being written when the call had returned.
        Some(index) => {
            let Checkpoint { began, ended, left } = &checkpoints[index];
            let left = left.as_ref().expect("this one returned").crash(&[], None);
            let (_db, state) = survivor(left, options);
            assert!(is_cut(&state, histories, *began, *ended), "checkpoint {index}: {state:?}");
            state
        }
        None => after([]),
    };
    let later = &checkpoints[durable.map_or(0, |index| index + 1)..];
    let is_later = *found != last;
    assert!(
        !is_later
            || later.iter().any(|failed| is_cut(found, histories, failed.began, failed.ended)),
        "neither the last checkpoint nor a later one: {found:?}\n{histories:?}"
    );
    is_later
}

/// Two workers beside checkpoints, while all calls to the disk, or all syncs, fail from a random one on:
/// what had not been synced by then survives or does not, by the dice.
#[test]
fn a_power_loss_leaves_a_checkpoint() {
    const MAY_FAIL: &[ErrorKind] = &[ErrorKind::Io, ErrorKind::Poisoned];
    /// Schedules in which the power went, and in which a checkpoint survived that had not returned.
    static CUT_SHORT: AtomicU64 = AtomicU64::new(0);
    static EARLY: AtomicU64 = AtomicU64::new(0);
    check(|| {
        // Nobody else takes checkpoints: it is known which ones there were.
        let options = options().background_checkpoints(false);
        let (disk, db, keyspace) = open(&options);
        let clock = Clock::default();
        // At any call; or at a sync, before which there is most to lose.
        let fault = match thread_rng().r#gen() {
            true => Fault::any(thread_rng().gen_range(0..200)),
            false => Fault::once(CallKind::SyncData, thread_rng().gen_range(0..7), Fault::EIO),
        };
        disk.record_log(true);
        disk.inject(fault.sticky().with_effect(Effect::Nothing));
        let workers = start(&keyspace, 2, 14, SPREAD, &clock, MAY_FAIL);
        let checkpoints = take_checkpoints(&db, &disk, &clock, 3, MAY_FAIL);
        let histories = join(workers);
        let struck = disk.take_log().iter().any(|call| call.fault.is_some());
        CUT_SHORT.fetch_add(u64::from(struck), Ordering::Relaxed);
        let left = disk.state().crash_at_random(thread_rng().r#gen());
        drop((keyspace, db));
        let (db, found) = survivor(left, &options);
        let early = assert_a_checkpoint(&found, &histories, &checkpoints, &options);
        EARLY.fetch_add(u64::from(early), Ordering::Relaxed);
        db.close().unwrap();
    });
    let [cut_short, early] = [&CUT_SHORT, &EARLY].map(|count| count.load(Ordering::Relaxed));
    println!(
        "the power went {cut_short} times; {early} checkpoints survived that had not returned"
    );
    assert!(cut_short > 0 && early > 0, "the schedules are too few to tell anything");
}

/// One call to the disk fails. Whoever it concerns gets a typed error, and nothing of what failed is
/// there; nobody gets a wrong answer; the store works on, or is poisoned, and says so.
#[test]
fn a_failed_call_fails_whom_it_concerns() {
    /// Schedules in which the call failed, and in which that poisoned the store.
    static STRUCK: AtomicU64 = AtomicU64::new(0);
    static POISONED: AtomicU64 = AtomicU64::new(0);
    check(|| {
        let background = thread_rng().r#gen();
        let options = options().background_checkpoints(background);
        let (disk, db, keyspace) = open(&options);
        let clock = Clock::default();
        let (kind, most, errno, may_fail): (_, u64, _, &'static [ErrorKind]) = match thread_rng()
            .gen_range(0..4)
        {
            0 => (CallKind::Read, 60, Fault::EIO, &[ErrorKind::Io]),
            // In the superblock it poisons, too.
            1 => (CallKind::Write, 60, Fault::ENOSPC, &[ErrorKind::DiskFull, ErrorKind::Poisoned]),
            2 => (CallKind::Write, 60, Fault::EIO, &[ErrorKind::Io, ErrorKind::Poisoned]),
            _ => (CallKind::SyncData, 6, Fault::EIO, &[ErrorKind::Io, ErrorKind::Poisoned]),
        };
        disk.record_log(true);
        disk.inject(Fault::once(kind, thread_rng().gen_range(0..most), errno));
        let workers = start(&keyspace, 2, 14, SPREAD, &clock, may_fail);
        let mut checkpoints = take_checkpoints(&db, &disk, &clock, 2, may_fail);
        let histories = join(workers);
        disk.clear_faults();
        let struck = disk.take_log().iter().any(|call| call.fault.is_some());
        STRUCK.fetch_add(u64::from(struck), Ordering::Relaxed);
        let expected = after(histories.iter().flatten());
        assert_eq!(contents(&db), expected, "the running store");
        // A failure of the eviction or of the checkpoint thread may come to light only here.
        checkpoints.extend(take_checkpoints(&db, &disk, &clock, 1, may_fail));
        let poisoned = checkpoints[2].left.is_none();
        POISONED.fetch_add(u64::from(poisoned), Ordering::Relaxed);
        if !poisoned {
            assert_sound(&db);
            db.close().unwrap();
            let (_db, found) = survivor(disk.crash(thread_rng().r#gen()).state(), &options);
            assert_eq!(found, expected);
            return;
        }
        assert!(may_fail.contains(&ErrorKind::Poisoned), "a failure that passes");
        let refused = keyspace.put(b"key", &[0; PAGE_BYTES / 8]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Poisoned);
        assert_eq!(contents(&db), expected, "a poisoned store goes on to be read");
        drop((keyspace, db));
        let (db, found) = survivor(disk.crash(thread_rng().r#gen()).state(), &options);
        if background {
            // It is not known when the checkpoint thread took the ones that count.
            let returned = checkpoints.iter().rev().find(|checkpoint| checkpoint.left.is_some());
            let began = returned.map_or(0, |checkpoint| checkpoint.began);
            assert!(is_cut(&found, &histories, began, u64::MAX), "{found:?}\n{histories:?}");
        } else {
            assert_a_checkpoint(&found, &histories, &checkpoints, &options);
        }
        db.close().unwrap();
    });
    let [struck, poisoned] = [&STRUCK, &POISONED].map(|count| count.load(Ordering::Relaxed));
    println!("a call failed in {struck} schedules, and poisoned the store in {poisoned}");
    assert!(struck > poisoned && poisoned > 0, "the schedules are too few to tell anything");
}
