//! Creating a store: whatever fails, is cut short or comes in between, the path has a whole store, or
//! what it had before; nothing of a failed creation stays after the next one; and of two who create at
//! once one wins.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "tests use real threads")]

use crate::common::{assert_sound, contents, open, path, seed, tiny};
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{Database, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use hedgerow_testing::sim::{CallKind, Fault, SimState};
use std::path::Path;

/// A disk on which the path has nothing, or an empty file.
fn disk(with_empty_file: bool, seed: u64) -> SimDisk {
    let disk = SimDisk::new(seed);
    if with_empty_file {
        disk.change_state(|state| state.set_contents(path(), b"")).unwrap();
    }
    disk
}

/// Looks at what a creation left, and creates again if there is no store. Tells whether there was one.
fn assert_nothing_or_a_store(left: SimState, with_empty_file: bool, context: &str) -> bool {
    let disk = SimDisk::with_state(left, 1);
    let found = open(&tiny(), &disk, OpenHow::Existing);
    let there = match found {
        Ok(db) => {
            assert!(contents(&db).unwrap().is_empty(), "{context}");
            assert_sound(&db, context);
            true
        }
        Err(error) => {
            let expected =
                if with_empty_file { ErrorKind::NotAStore } else { ErrorKind::FileNotFound };
            assert_eq!(error.kind(), expected, "{context}: {error}");
            let before = with_empty_file.then(Vec::new);
            assert_eq!(disk.state().contents(path()), before, "{context}");
            false
        }
    };
    if there {
        return true;
    }
    let db = open(&tiny(), &disk, OpenHow::ExistingOrNew)
        .unwrap_or_else(|error| panic!("{context}, again: {error:?}"));
    db.keyspace("wrens").unwrap().put(b"a", b"b").unwrap();
    db.close().unwrap();
    assert_eq!(disk.state().paths(), [path().into()], "{context}: something is left");
    false
}

#[test]
fn a_crash_at_any_moment_leaves_a_store_or_what_was_there() {
    for with_empty_file in [false, true] {
        let disk = disk(with_empty_file, seed(1));
        disk.record_states(true);
        drop(open(&tiny(), &disk, OpenHow::ExistingOrNew).unwrap());
        let mut states = disk.take_states();
        states.push(disk.state());
        let mut stores = 0;
        let mut tried = 0;
        for state in states {
            // Sectors of 512 bytes are pages of this store, and parts in eight: too many for all.
            let subsets = state.survivor_subsets(4096, 12, None).expect("few changes at a time");
            let whole = subsets.map(|fates| state.crash(&fates, None));
            let torn = (0..20).map(|seed| state.crash_at_random(seed));
            for left in whole.chain(torn) {
                tried += 1;
                let context = format!("empty file: {with_empty_file}, crash {tried}");
                stores += u32::from(assert_nothing_or_a_store(left, with_empty_file, &context));
            }
        }
        println!("{stores} of {tried} crashes left a store");
        count(u64::from(tried), "crash states");
        assert!(stores > 0 && tried > 2 * stores, "{stores} of {tried}");
        let left = disk.crash(1).state();
        assert!(assert_nothing_or_a_store(left, with_empty_file, "after the creation"));
    }
}

#[test]
fn whatever_call_fails_the_next_creation_works() {
    for (with_empty_file, sticky) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut failures = 0;
        for after in 0.. {
            let context = format!("empty file: {with_empty_file}, sticky: {sticky}, call {after}");
            let disk = disk(with_empty_file, after);
            let fault = Fault::any(after);
            disk.inject(if sticky { fault.sticky() } else { fault });
            disk.record_log(true);
            let made = open(&tiny(), &disk, OpenHow::ExistingOrNew);
            let struck = disk.take_log().iter().any(|call| call.fault.is_some());
            disk.clear_faults();
            if let Err(error) = &made {
                failures += 1;
                let typed = matches!(error.kind(), ErrorKind::Io | ErrorKind::Poisoned);
                assert!(typed, "{context}: {error:?}");
                assert_nothing_or_a_store(disk.state(), with_empty_file, &context);
            } else if struck {
                // It could do without the call.
                assert_eq!(disk.state().paths(), [path().into()], "{context}");
            }
            drop(made);
            let context = format!("{context}, and a crash");
            for seed in 0..4 {
                let left = disk.state().crash_at_random(seed);
                assert_nothing_or_a_store(left, with_empty_file, &context);
            }
            if !struck {
                break;
            }
        }
        count(failures, "faulty runs");
        assert!(failures > 10, "only {failures} calls failed");
    }
}

#[test]
fn a_creation_that_fails_leaves_no_log_in_the_way_of_the_next() {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    let logged = tiny().log(true).memory_limit_bytes(limit).log_segment_blocks(6);
    let mut failures = 0;
    for after in 0.. {
        let disk = disk(false, after);
        disk.inject(Fault::any(after));
        disk.record_log(true);
        let made = open(&logged, &disk, OpenHow::New);
        let struck = disk.take_log().iter().any(|call| call.fault.is_some());
        disk.clear_faults();
        if made.is_err() {
            failures += 1;
            let next = open(&logged, &disk, OpenHow::ExistingOrNew);
            next.unwrap_or_else(|error| panic!("call {after}: {error}")).close().unwrap();
        }
        if !struck {
            break;
        }
    }
    count(failures, "faulty runs");
    assert!(failures > 10, "only {failures} calls failed");
}

/// Moments at the end of a failed creation, when it is undone, that a crash is tried at.
const UNDONE_IN: usize = 24;

#[test]
fn a_crash_while_a_failed_creation_is_undone_leaves_no_store_without_its_log() {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    let logged = tiny().log(true).memory_limit_bytes(limit).log_segment_blocks(6);
    let (mut failures, mut crashes) = (0, 0);
    for after in 0.. {
        let disk = disk(false, after);
        // Nothing can be written any more, while names still come and go.
        let calls = &[CallKind::SyncData, CallKind::SyncAll, CallKind::SetLen, CallKind::Allocate];
        disk.inject(Fault::once(CallKind::Write, after, Fault::EIO).or_of(calls).sticky());
        disk.record_states(true);
        disk.record_log(true);
        let made = open(&logged, &disk, OpenHow::New);
        let struck = disk.take_log().iter().any(|call| call.fault.is_some());
        let states = disk.take_states();
        if made.is_err() {
            failures += 1;
            for state in states.iter().rev().take(UNDONE_IN) {
                let crashed = (0..3).map(|seed| state.crash_at_random(seed));
                for left in crashed.chain([state.kill()]) {
                    crashes += 1;
                    let disk = SimDisk::with_state(left, 1);
                    let mut next = open(&logged, &disk, OpenHow::ExistingOrNew);
                    // A log alone may be that of a store that was moved away: it is named, and left alone.
                    if disk.state().contents(path()).is_none() && next.is_err() {
                        disk.unlink(&log_path(path())).unwrap();
                        next = open(&logged, &disk, OpenHow::ExistingOrNew);
                    }
                    next.unwrap_or_else(|error| panic!("call {after}: {error}")).close().unwrap();
                }
            }
        }
        if !struck {
            break;
        }
    }
    count(failures, "faulty runs");
    count(crashes, "crash states");
    assert!(failures > 10, "only {failures} calls failed");
}

#[test]
fn create_replaces_nothing() {
    let disk = disk(true, 1);
    let error = open(&tiny(), &disk, OpenHow::New).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::FileExists);
    assert_eq!(disk.state().paths(), [path().into()]);
    let directory = tempfile::tempdir().unwrap();
    let real = directory.path().join("taken");
    std::fs::write(&real, b"").unwrap();
    assert_eq!(options().create(&real).unwrap_err().kind(), ErrorKind::FileExists);
    let missing = directory.path().join("missing").join("birds.hrow");
    let error = options().create(&missing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DirectoryNotFound);
    let words = format!("{}: there is no such directory", missing.display());
    assert!(error.to_string().contains(&words), "{error}");
    assert_eq!(names(directory.path()), ["taken"]);
}

fn options() -> Options {
    Options::new().memory_limit_bytes(1 << 20)
}

/// The names in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Lets four threads make a store at once, and keep it for a moment; tells how many got one at a time.
fn race(make: impl Fn() -> hedgerow::Result<Database> + Sync) -> usize {
    let start = std::sync::Barrier::new(4);
    let made: Vec<hedgerow::Result<Database>> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    start.wait();
                    make()
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });
    for error in made.iter().filter_map(|made| made.as_ref().err()) {
        let expected = matches!(
            error.kind(),
            ErrorKind::Locked { .. } | ErrorKind::FileExists | ErrorKind::ForeignLog
        );
        assert!(expected, "{error:?}");
    }
    made.iter().flatten().count()
}

#[test]
fn of_those_who_create_at_once_one_wins() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let name = format!("{round}.hrow");
        let path = directory.path().join(&name);
        if round % 3 == 2 {
            std::fs::write(&path, b"").unwrap();
        }
        let winners = match round % 3 {
            0 => race(|| options().create(&path)),
            _ => race(|| options().open_or_create(&path)),
        };
        assert_eq!(winners, 1, "round {round}");
        let db = options().open(&path).unwrap();
        assert_sound(&db, &name);
        db.close().unwrap();
        assert_eq!(names(directory.path()), [&*name], "round {round}: something is left");
        std::fs::remove_file(&path).unwrap();
    }
}

#[cfg(unix)]
mod on_unix {
    use super::*;
    use hedgerow::internals::storage::{DirectIo, IoEngine, OpenMode, RealDisk};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    const CHILD: &str = "HEDGEROW_CREATION_CHILD";

    /// Creates and removes a store, until killed.
    fn create_for_ever(path: &Path) {
        loop {
            match options().open_or_create(path) {
                Ok(db) => {
                    db.close().unwrap();
                    std::fs::remove_file(path).unwrap();
                }
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    #[test]
    fn a_killed_creator_leaves_a_store_or_nothing() {
        if let Some(path) = std::env::var_os(CHILD) {
            return create_for_ever(Path::new(&path));
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("killed.hrow");
        let mut dice = crate::common::Dice(seed(22));
        let (mut stores, mut leftovers) = (0, 0);
        let cycles = 30 * crate::common::effort();
        for cycle in 0..cycles {
            let test = "creation::on_unix::a_killed_creator_leaves_a_store_or_nothing";
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([test, "--exact", "--nocapture"])
                .env(CHILD, &path)
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_micros(10_000 + dice.below(20_000)));
            child.kill().unwrap();
            child.wait().unwrap();
            match options().open(&path) {
                Ok(db) => {
                    stores += 1;
                    assert_sound(&db, &format!("cycle {cycle}"));
                    db.close().unwrap();
                    std::fs::remove_file(&path).unwrap();
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::FileNotFound, "{error}"),
            }
            let left = names(directory.path());
            assert!(left.len() <= 1, "{left:?}");
            leftovers += left.len();
            options().create(&path).unwrap().close().unwrap();
            assert_eq!(names(directory.path()), ["killed.hrow"], "cycle {cycle}");
            std::fs::remove_file(&path).unwrap();
        }
        println!("{stores} stores, {leftovers} leftovers");
        count(cycles, "kills");
    }

    #[test]
    fn an_empty_file_keeps_its_permissions_and_the_links_to_it() {
        let directory = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let real = elsewhere.path().join("real.hrow");
        let link = directory.path().join("link.hrow");
        std::fs::write(&real, b"").unwrap();
        std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&real, &link).unwrap();
        options().open_or_create(&link).unwrap().close().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        let db = options().open(&link).unwrap();
        assert_sound(&db, "behind the link");
        assert_eq!(names(elsewhere.path()), ["real.hrow", "real.hrow-log"]);
        drop(db);
        options().open(&real).unwrap().close().unwrap();
        assert_eq!(names(elsewhere.path()), ["real.hrow"]);
        // A link to nothing is something: it is not replaced.
        std::fs::remove_file(&real).unwrap();
        let error = options().open_or_create(&link).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::FileExists, "{error}");
        assert!(names(elsewhere.path()).is_empty());
        assert_eq!(names(directory.path()), ["link.hrow"]);
    }

    #[test]
    fn a_creation_under_way_is_not_disturbed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("birds.hrow");
        options().create(&path).unwrap().close().unwrap();
        // What a creator that has come as far as the rename has: the file, locked, at its temporary name.
        let copy = directory.path().join("copy");
        std::fs::rename(&path, &copy).unwrap();
        let disk = RealDisk::new(IoEngine::Sync).unwrap();
        let temporary = directory.path().join(temporary_name("birds.hrow"));
        std::fs::rename(&copy, &temporary).unwrap();
        let held = disk.open(&temporary, OpenMode::ReadWrite, DirectIo::Never).unwrap();
        held.try_lock(true).unwrap();
        let error = options().open_or_create(&path).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Locked { .. }), "{error:?}");
        drop(held);
        options().open_or_create(&path).unwrap().close().unwrap();
        assert_eq!(names(directory.path()), ["birds.hrow"]);
    }

    /// The temporary name of a store, found by watching a creation that cannot end.
    fn temporary_name(name: &str) -> String {
        let disk = SimDisk::new(1);
        disk.inject(Fault::any(3).sticky());
        let path = Path::new("/d").join(name);
        let made = options().on_disk(&disk as &dyn Disk, &path, OpenHow::New);
        assert!(made.is_err());
        let paths = disk.state().paths();
        assert_eq!(paths.len(), 1, "{paths:?}");
        paths[0].file_name().unwrap().to_str().unwrap().to_owned()
    }
}
