//! Dropping the last handle: everything that was changed is durable after it, whatever led to it, and a small database is
//! closed. Failures of it are the business of `fault_sweep` (its step `LetGo`).
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "these tests look at files from outside"
)]

use crate::common::{assert_sound, key};
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{Database, ErrorKind, Keyspace, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Fault};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::Duration;

fn options() -> Options {
    // Nothing is durable by itself.
    Options::new().memory_limit_bytes(64 << 20).log_interval(Duration::from_secs(3600))
}

fn path() -> &'static Path {
    Path::new("/data/birds.hrow")
}

fn wrens(db: &Database) -> Keyspace {
    db.keyspace("wrens").unwrap()
}

#[test]
fn each_last_put_before_a_drop_is_there_in_the_same_process() {
    let place = tempfile::tempdir().unwrap();
    for log in [true, false] {
        let options = options().log(log);
        let path: PathBuf = place.path().join(format!("birds-{log}"));
        for n in 0..20 {
            let db = options.open_or_create(&path).unwrap();
            let found = wrens(&db).iter().count() as u64;
            assert_eq!(found, n, "with log: {log}");
            wrens(&db).put(&key(n), b"song").unwrap();
            drop(db);
            assert!(!log_path(&path).exists(), "a small database is closed");
        }
    }
}

/// The handle that goes last may be any.
#[test]
fn a_keyspace_a_range_and_a_cursor_are_handles_as_well() {
    let disk = SimDisk::new(1);
    for n in 0..3 {
        let db = options().on_disk(&disk, path(), OpenHow::ExistingOrNew).unwrap();
        let keyspace = wrens(&db);
        keyspace.put(&key(n), b"song").unwrap();
        let (range, cursor) = (keyspace.iter(), keyspace.cursor());
        drop((db, keyspace));
        if n % 2 == 0 {
            drop(range);
            drop(cursor);
        } else {
            drop(cursor);
            drop(range);
        }
        let left = disk.crash(n);
        let db = options().on_disk(&left, path(), OpenHow::Existing).unwrap();
        assert_eq!(wrens(&db).iter().count() as u64, n + 1);
    }
}

#[test]
fn an_early_return_and_a_panic_lose_nothing() {
    let disk = SimDisk::new(1);
    let put_and_fail = |n: u64, panics: bool| -> hedgerow::Result<()> {
        let db = options().on_disk(&disk, path(), OpenHow::ExistingOrNew)?;
        wrens(&db).put(&key(n), b"song")?;
        assert!(!panics, "as it should");
        wrens(&db).put(&[7; 100_000], b"a key that is too long")?;
        unreachable!("it is refused")
    };
    for n in 0..10 {
        let ended = std::panic::catch_unwind(AssertUnwindSafe(|| put_and_fail(n, n % 2 == 1)));
        assert!(ended.is_err() == (n % 2 == 1) && !matches!(ended, Ok(Ok(()))));
        let left = disk.crash(n);
        let db = options().on_disk(&left, path(), OpenHow::Existing).unwrap();
        assert_eq!(wrens(&db).iter().count() as u64, n + 1);
        assert_sound(&db, "after a return or a panic");
    }
}

/// A checkpoint of it would take long, so the log stays for the next opening.
#[test]
fn much_that_was_changed_is_in_the_log_when_a_drop_returns() {
    const RECORDS: u64 = 25_000;
    let disk = SimDisk::new(1);
    let db = options().background_checkpoints(false);
    let db = db.on_disk(&disk, path(), OpenHow::New).unwrap();
    for n in 0..RECORDS {
        wrens(&db).put(&key(n), &[n as u8; 900]).unwrap();
    }
    drop(db);
    assert!(disk.exists(&log_path(path())).unwrap());
    let left = disk.crash(3);
    let db = options().on_disk(&left, path(), OpenHow::Existing).unwrap();
    assert!(db.replayed().records > 0);
    assert_eq!(wrens(&db).iter().count() as u64, RECORDS);
    assert_sound(&db, "after a replay");
}

#[test]
fn what_only_reads_or_is_closed_writes_nothing_when_it_is_dropped() {
    let disk = SimDisk::new(1);
    let db = options().on_disk(&disk, path(), OpenHow::New).unwrap();
    wrens(&db).put(&key(1), b"song").unwrap();
    let other = db.clone();
    db.close().unwrap();
    let writes = |disk: &SimDisk| disk.calls(CallKind::Write) + disk.calls(CallKind::SyncData);
    let before = writes(&disk);
    drop(other);
    assert_eq!(writes(&disk), before);
    for (log, how) in [(true, OpenHow::ReadOnly), (false, OpenHow::Existing)] {
        let db = options().log(log).on_disk(&disk, path(), how).unwrap();
        let opened = writes(&disk);
        assert_eq!(wrens(&db).get(&key(1)).unwrap().as_deref(), Some(&b"song"[..]));
        drop(db);
        assert_eq!(writes(&disk), opened);
    }
}

/// It was thrown away with the log's buffer, as if the log had failed as well.
#[test]
fn what_no_checkpoint_can_have_any_more_is_in_the_log_when_a_drop_returns() {
    for background in [false, true] {
        let disk = SimDisk::new(1);
        let options = options().background_checkpoints(background);
        let db = options.on_disk(&disk, path(), OpenHow::New).unwrap();
        wrens(&db).put(&key(1), b"song").unwrap();
        disk.inject(Fault::once(CallKind::Write, 0, Fault::EIO));
        assert_eq!(db.checkpoint().unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(wrens(&db).put(&key(2), b"song").unwrap_err().kind(), ErrorKind::Poisoned);
        assert!(disk.take_faults().is_empty(), "the store's file failed");
        drop(db);
        let left = disk.crash(3);
        let db = options.on_disk(&left, path(), OpenHow::Existing).unwrap();
        assert!(wrens(&db).get(&key(1)).unwrap().is_some(), "background: {background}");
        assert_sound(&db, "after a checkpoint that failed");
    }
}
