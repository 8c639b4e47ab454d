//! Pins against everything that gives slots free: checkpoints, evictions and shrinking go on while a checkpoint is
//! copied, or verified, and nothing that it refers to is written before that has ended.
//!
//! The copy is exact: what the checkpoint under it has cut out of the histories of all threads, as in
//! `checkpoints.rs`.

use crate::checkpoints::{is_cut, take_checkpoints};
use crate::{Clock, PAGE_BYTES, SPREAD, after, assert_sound, check, contents, join};
use crate::{open, options, start};
use hedgerow::Database;
use hedgerow::internals::store::OpenHow;
use hedgerow_sync::primitive::thread::{JoinHandle, spawn_named, yield_now};
use hedgerow_testing::SimDisk;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

const BACKUP: &str = "/data/backup.hrow";

/// Takes checkpoints, each of which frees what the one before has superseded.
fn checkpoints_beside(db: &Database, disk: &SimDisk, clock: &Clock) -> JoinHandle<()> {
    let (db, disk, clock) = (db.clone(), disk.clone(), clock.clone());
    spawn_named("checkpoints", move || {
        take_checkpoints(&db, &disk, &clock, 3, &[]);
    })
    .unwrap()
}

#[test]
fn a_backup_beside_writers_is_a_cut() {
    /// Pages whose slots were superseded and held back at some moment.
    static PINNED: AtomicU64 = AtomicU64::new(0);
    check(|| {
        let options = options().background_checkpoints(false);
        let (disk, db, keyspace) = open(&options);
        let clock = Clock::default();
        let writers = start(&keyspace, 2, 60, SPREAD, &clock, &[]);
        while clock.now() < 10 {
            yield_now();
        }
        let checkpoints = checkpoints_beside(&db, &disk, &clock);
        let began = clock.tick();
        let copied = db.backup(BACKUP, |_| {
            let held_bytes = db.space_report().unwrap().quarantined_bytes;
            PINNED.fetch_max(held_bytes / PAGE_BYTES as u64, Ordering::Relaxed);
            ControlFlow::Continue(())
        });
        let ended = clock.tick();
        copied.unwrap();
        checkpoints.join().unwrap();
        let histories = join(writers);
        let copy = options.on_disk(&disk, Path::new(BACKUP), OpenHow::Existing).unwrap();
        assert_sound(&copy);
        let state = contents(&copy);
        assert!(is_cut(&state, &histories, began, ended), "{state:?}");
        copy.close().unwrap();
        assert_sound(&db);
        assert_eq!(contents(&db), after(histories.iter().flatten()));
    });
    let pinned = PINNED.load(Ordering::Relaxed);
    println!("at most {pinned} pages were held back");
    assert!(pinned > 0, "the schedules are too few to tell anything");
}

#[test]
fn a_verification_beside_writers_finds_nothing() {
    check(|| {
        let (disk, db, keyspace) = open(&options());
        let clock = Clock::default();
        let writers = start(&keyspace, 2, 20, SPREAD, &clock, &[]);
        let checkpoints = checkpoints_beside(&db, &disk, &clock);
        assert_sound(&db);
        checkpoints.join().unwrap();
        let expected = after(join(writers).iter().flatten());
        assert_sound(&db);
        assert_eq!(contents(&db), expected);
        db.close().unwrap();
    });
}
