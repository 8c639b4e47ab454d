//! A path is not an identity: files that are removed, renamed or replaced while a store is open, and other stores that
//! come to lie at their paths. Each store goes on in its own files, closes, and loses nothing; nobody's file is touched
//! by somebody else.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test with files of its own"
)]

use crate::common::{assert_sound, contents, seed, tiny};
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{Database, Durability, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::count;
use std::ops::ControlFlow;
use std::path::Path;

/// Makes one record durable.
fn put(db: &Database, key: &str) {
    let keyspace = db.keyspace("wrens").unwrap().with_durability(Durability::Sync);
    keyspace.put(key.as_bytes(), b"song").unwrap();
}

/// Asserts that the store has these records, and is sound.
#[track_caller]
fn assert_has(db: &Database, keys: &[&str]) {
    let found = contents(db).unwrap();
    let found: Vec<&[u8]> = found["wrens"].keys().map(|key| &key[..]).collect();
    let expected: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    assert_eq!(found, expected);
    assert_sound(db, "each store has its own records");
}

/// Only what this handle has created goes, and only from the name that it was created at.
#[test]
fn a_store_is_discarded_by_the_handle_that_has_created_it_and_by_no_other() {
    let (path, moved) = (Path::new("/data/s"), Path::new("/data/moved"));
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    let options = tiny().memory_limit_bytes(limit).log(true).log_segment_blocks(6);
    let exists = |disk: &SimDisk| [path, &log_path(path), moved].map(|at| disk.exists(at).unwrap());
    for how in [OpenHow::New, OpenHow::ExistingOrNew] {
        let disk = SimDisk::new(seed(38));
        let db = options.on_disk(&disk as &dyn Disk, path, how).unwrap();
        put(&db, "a");
        let other = db.clone();
        db.discard().unwrap();
        assert_eq!(exists(&disk), [false; 3], "{how:?}");
        assert_eq!(other.keyspaces().unwrap_err().kind(), ErrorKind::Closed);
        other.discard().unwrap();
        // A store that was there.
        let db = options.on_disk(&disk as &dyn Disk, path, OpenHow::New).unwrap();
        put(&db, "b");
        db.close().unwrap();
        options
            .on_disk(&disk as &dyn Disk, path, OpenHow::ExistingOrNew)
            .unwrap()
            .discard()
            .unwrap();
        assert_eq!(exists(&disk), [true, false, false], "{how:?}");
        assert_has(&options.on_disk(&disk as &dyn Disk, path, OpenHow::Existing).unwrap(), &["b"]);
    }
    // Another store has its name.
    let disk = SimDisk::new(seed(39));
    let db = options.on_disk(&disk as &dyn Disk, path, OpenHow::New).unwrap();
    put(&db, "a");
    disk.rename(path, moved).unwrap();
    disk.rename(&log_path(path), &log_path(moved)).unwrap();
    let second = options.on_disk(&disk as &dyn Disk, path, OpenHow::New).unwrap();
    put(&second, "b");
    db.discard().unwrap();
    assert_has(&second, &["b"]);
    second.close().unwrap();
    assert_has(&options.on_disk(&disk as &dyn Disk, moved, OpenHow::Existing).unwrap(), &["a"]);
}

/// The store of another process takes the names on a simulated disk. Power cuts at every call of the first one's close
/// leave both with everything.
#[test]
fn a_power_cut_while_a_store_closes_whose_names_another_has_loses_nothing_of_either() {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    let options = tiny().memory_limit_bytes(limit).log(true).log_segment_blocks(6);
    let (path, moved) = (Path::new("/data/s"), Path::new("/data/moved"));
    let mut crashes = 0;
    for is_log_moved in [true, false] {
        let disk = SimDisk::new(seed(37));
        let at = |disk: &SimDisk, path, how| options.on_disk(disk as &dyn Disk, path, how);
        let first = at(&disk, path, OpenHow::New).unwrap();
        put(&first, "a");
        disk.rename(path, moved).unwrap();
        match is_log_moved {
            true => disk.rename(&log_path(path), &log_path(moved)).unwrap(),
            false => disk.unlink(&log_path(path)).unwrap(),
        }
        let second = at(&disk, path, OpenHow::New).unwrap();
        put(&second, "b");
        disk.sync_dir(Path::new("/data")).unwrap();
        disk.record_states(true);
        first.close().unwrap();
        let mut states = disk.take_states();
        states.push(disk.state());
        let last = states.len() - 1;
        for (number, state) in states.into_iter().enumerate() {
            for seed in 0..4 {
                crashes += 1;
                let after = SimDisk::with_state(state.crash_at_random(seed), seed);
                let second = at(&after, path, OpenHow::Existing).unwrap();
                assert_has(&second, &["b"]);
                // Until the last checkpoint the first one needs the log that somebody has removed.
                match at(&after, moved, OpenHow::Existing) {
                    Ok(first) => assert_has(&first, &["a"]),
                    Err(error) => {
                        assert!(!is_log_moved && number < last, "{error}");
                        assert_eq!(error.kind(), ErrorKind::LogMissing, "{error}");
                    }
                }
            }
        }
        drop(second);
    }
    count(crashes, "crash states");
}

/// Says whether to go on.
type Progress<'p> = &'p mut dyn FnMut() -> ControlFlow<()>;

#[test]
fn a_panic_in_the_progress_of_a_backup_or_a_repair_leaves_nothing_and_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let options = Options::new().memory_limit_bytes(4 << 20);
    let db = options.create(path("s")).unwrap();
    put(&db, "a");
    let before = names(directory.path());
    // Panics at each call of the progress in turn, until there are no more.
    let each = |work: &dyn Fn(Progress<'_>), left: &[String]| {
        for allowed in 0.. {
            let mut calls = 0;
            let mut progress = || {
                if calls == allowed {
                    std::panic::resume_unwind(Box::new("a test's panic"));
                }
                calls += 1;
                ControlFlow::Continue(())
            };
            let work = std::panic::AssertUnwindSafe(|| work(&mut progress));
            if std::panic::catch_unwind(work).is_ok() {
                assert!(allowed > 0, "it has no progress");
                return;
            }
            assert_eq!(names(directory.path()), left, "after {allowed} calls");
        }
    };
    let backup = |progress: Progress<'_>| {
        db.backup(path("copy"), |_| progress()).unwrap();
    };
    each(&backup, &before);
    put(&db, "b");
    db.close().unwrap();
    let before = ["copy", "s"].map(str::to_owned);
    let restore = |progress: Progress<'_>| {
        options.restore(path("copy"), path("to"), |_| progress()).unwrap();
    };
    each(&restore, &before);
    std::fs::remove_file(path("to")).unwrap();
    let repair = |progress: Progress<'_>| {
        let _ = options.repair(path("s"), path("to"), |_| progress()).unwrap();
    };
    each(&repair, &before);
    assert_has(&options.open(path("to")).unwrap(), &["a", "b"]);
    assert_has(&options.open(path("copy")).unwrap(), &["a"]);
    assert_has(&options.open(path("s")).unwrap(), &["a", "b"]);
}

/// The names in a directory, in order.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[cfg(unix)]
mod on_unix {
    use super::*;
    use std::fs;

    /// As if the process had been killed: what the drop does to files in the directory is undone.
    fn kill(db: Database, directory: &Path) {
        let left: Vec<(String, Vec<u8>)> = names(directory)
            .into_iter()
            .map(|name| (name.clone(), fs::read(directory.join(name)).unwrap()))
            .collect();
        drop(db);
        for (name, bytes) in left {
            fs::write(directory.join(name), bytes).unwrap();
        }
    }
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use tempfile::TempDir;

    fn options() -> Options {
        Options::new().memory_limit_bytes(4 << 20)
    }

    /// A directory, with the path of a store in it.
    struct Scene {
        directory: TempDir,
    }

    impl Scene {
        fn new() -> Scene {
            Scene { directory: tempfile::tempdir().unwrap() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }

        fn names(&self) -> Vec<String> {
            names(self.directory.path())
        }

        fn rename(&self, from: &str, to: &str) {
            fs::rename(self.path(from), self.path(to)).unwrap();
        }

        fn remove(&self, name: &str) {
            fs::remove_file(self.path(name)).unwrap();
        }

        /// A store at `s` with a record `a` that only its log has.
        fn opened(&self) -> Database {
            let db = options().create(self.path("s")).unwrap();
            put(&db, "a");
            db
        }

        fn open(&self, name: &str) -> Database {
            options().open(self.path(name)).unwrap()
        }
    }

    /// The case of the issue. Neither waits for the other, so the first may close when the second is well under way.
    #[test]
    fn a_close_leaves_the_log_of_a_store_that_came_to_its_path() {
        type Way = fn(&Scene);
        let ways: [(&str, Way); 4] = [
            ("removed", |scene| {
                scene.remove("s");
                scene.remove("s-log");
            }),
            ("renamed", |scene| {
                scene.rename("s", "moved");
                scene.rename("s-log", "moved-log");
            }),
            ("renamed, and the log removed", |scene| {
                scene.rename("s", "moved");
                scene.remove("s-log");
            }),
            ("removed, and the log renamed", |scene| {
                scene.remove("s");
                scene.rename("s-log", "other");
            }),
        ];
        for (way, take_away) in ways {
            let scene = Scene::new();
            let first = scene.opened();
            take_away(&scene);
            let second = options().create(scene.path("s")).unwrap();
            put(&second, "b");
            let others = fs::read(scene.path("s-log")).unwrap();
            // It goes on in its own files.
            put(&first, "c");
            first.checkpoint().unwrap();
            put(&first, "d");
            first.close().unwrap();
            assert!(fs::read(scene.path("s-log")).unwrap() == others, "{way}");
            put(&second, "e");
            drop(second);
            let second = scene.open("s");
            assert_has(&second, &["b", "e"]);
            second.close().unwrap();
            if way.starts_with("renamed") {
                let first = scene.open("moved");
                assert_has(&first, &["a", "c", "d"]);
                first.close().unwrap();
                assert_eq!(scene.names(), ["moved", "s"], "{way}");
            }
        }
    }

    #[test]
    fn a_store_that_is_renamed_with_its_log_needs_no_log_after_its_close() {
        let scene = Scene::new();
        let db = scene.opened();
        scene.rename("s", "moved");
        scene.rename("s-log", "moved-log");
        put(&db, "b");
        let refused = options().open(scene.path("moved")).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Locked { .. }), "{refused}");
        db.close().unwrap();
        // The log that stays is in nobody's way, and nobody needs it.
        assert_eq!(scene.names(), ["moved", "moved-log"]);
        let db = options().open_read_only(scene.path("moved")).unwrap();
        assert_has(&db, &["a", "b"]);
        drop(db);
        scene.remove("moved-log");
        assert_has(&scene.open("moved"), &["a", "b"]);
    }

    #[test]
    fn a_log_that_a_close_has_left_is_used_by_the_next_session_and_removed_by_its_close() {
        let scene = Scene::new();
        let db = scene.opened();
        scene.rename("s", "moved");
        scene.rename("s-log", "moved-log");
        db.close().unwrap();
        let db = scene.open("moved");
        put(&db, "b");
        drop(db);
        let db = scene.open("moved");
        assert_has(&db, &["a", "b"]);
        db.close().unwrap();
        assert_eq!(scene.names(), ["moved"]);
    }

    #[test]
    fn a_store_that_is_renamed_without_its_log_closes_and_takes_its_log_away() {
        let scene = Scene::new();
        let db = scene.opened();
        scene.rename("s", "moved");
        // A store at the old path has to wait: there are changes in the log beside it.
        let refused = options().create(scene.path("s")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ForeignLog, "{refused}");
        assert_eq!(scene.names(), ["moved", "s-log"]);
        put(&db, "b");
        db.close().unwrap();
        assert_eq!(scene.names(), ["moved"]);
        assert_has(&scene.open("moved"), &["a", "b"]);
    }

    #[test]
    fn a_log_that_is_renamed_stays_where_it_is_and_is_needed_until_the_close() {
        let scene = Scene::new();
        let db = scene.opened();
        scene.rename("s-log", "mine");
        put(&db, "b");
        kill(db, scene.directory.path());
        let missing = options().open(scene.path("s")).unwrap_err();
        assert_eq!(missing.kind(), ErrorKind::LogMissing, "{missing}");
        scene.rename("mine", "s-log");
        let db = scene.open("s");
        assert_has(&db, &["a", "b"]);
        scene.rename("s-log", "mine");
        put(&db, "c");
        db.close().unwrap();
        assert_eq!(scene.names(), ["mine", "s"]);
        // Put back, it is in nobody's way.
        scene.rename("mine", "s-log");
        let db = scene.open("s");
        assert_has(&db, &["a", "b", "c"]);
        db.close().unwrap();
        assert_eq!(scene.names(), ["s"]);
    }

    #[test]
    fn a_store_whose_log_was_removed_beneath_it_takes_checkpoints_and_closes() {
        let scene = Scene::new();
        let db = scene.opened();
        scene.remove("s-log");
        put(&db, "b");
        db.checkpoint().unwrap();
        put(&db, "c");
        db.close().unwrap();
        assert_eq!(scene.names(), ["s"]);
        assert_has(&scene.open("s"), &["a", "b", "c"]);
    }

    #[test]
    fn what_was_put_at_the_name_of_the_log_stays_there() {
        let scene = Scene::new();
        fs::write(scene.path("diary"), "a letter").unwrap();
        type Way = fn(&Scene);
        let ways: [Way; 4] = [
            |scene| symlink(scene.path("diary"), scene.path("s-log")).unwrap(),
            // It leads to the log, but it is somebody's link.
            |scene| symlink(scene.path("log"), scene.path("s-log")).unwrap(),
            |scene| fs::create_dir(scene.path("s-log")).unwrap(),
            |scene| fs::write(scene.path("s-log"), "a letter").unwrap(),
        ];
        for (number, put_there) in ways.into_iter().enumerate() {
            let db = scene.opened();
            scene.rename("s-log", "log");
            put_there(&scene);
            put(&db, "b");
            db.close().unwrap();
            assert_eq!(scene.names(), ["diary", "log", "s", "s-log"], "way {number}");
            assert_eq!(fs::read(scene.path("diary")).unwrap(), b"a letter");
            let name = scene.path("s-log");
            let there = fs::symlink_metadata(&name).unwrap();
            match number {
                0 | 1 => assert!(there.is_symlink()),
                2 => assert!(there.is_dir()),
                _ => assert_eq!(fs::read(&name).unwrap(), b"a letter"),
            }
            assert_has(&options().open_read_only(scene.path("s")).unwrap(), &["a", "b"]);
            if there.is_dir() { fs::remove_dir(&name) } else { fs::remove_file(&name) }.unwrap();
            assert_has(&scene.open("s"), &["a", "b"]);
            for name in ["log", "s"] {
                scene.remove(name);
            }
        }
    }

    #[test]
    fn a_directory_may_be_renamed_or_removed_and_another_take_its_path() {
        for is_removed in [false, true] {
            let scene = Scene::new();
            fs::create_dir(scene.path("d")).unwrap();
            let first = options().create(scene.path("d/s")).unwrap();
            put(&first, "a");
            match is_removed {
                true => fs::remove_dir_all(scene.path("d")).unwrap(),
                false => scene.rename("d", "moved"),
            }
            put(&first, "b");
            fs::create_dir(scene.path("d")).unwrap();
            let second = options().create(scene.path("d/s")).unwrap();
            put(&second, "c");
            first.close().unwrap();
            drop(second);
            assert_has(&scene.open("d/s"), &["c"]);
            if !is_removed {
                assert_has(&scene.open("moved/s"), &["a", "b"]);
            }
        }
        // Nothing takes its path, or a file does.
        for is_file in [false, true] {
            let scene = Scene::new();
            fs::create_dir(scene.path("d")).unwrap();
            let db = options().create(scene.path("d/s")).unwrap();
            put(&db, "a");
            scene.rename("d", "moved");
            if is_file {
                fs::write(scene.path("d"), "a letter").unwrap();
            }
            db.close().unwrap();
            assert_has(&scene.open("moved/s"), &["a"]);
        }
    }

    #[test]
    fn a_hard_link_is_the_same_store() {
        let scene = Scene::new();
        let db = scene.opened();
        fs::hard_link(scene.path("s"), scene.path("t")).unwrap();
        let refused = options().open(scene.path("t")).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Locked { .. }), "{refused}");
        scene.remove("s");
        put(&db, "b");
        db.close().unwrap();
        assert_eq!(scene.names(), ["t"]);
        let db = scene.open("t");
        assert_has(&db, &["a", "b"]);
        fs::hard_link(scene.path("t-log"), scene.path("kept")).unwrap();
        db.close().unwrap();
        assert_eq!(scene.names(), ["kept", "t"]);
    }

    /// It has the same id, and nothing tells its log from that of the store which it is a copy of.
    #[test]
    fn a_copy_of_a_store_does_not_take_the_log_of_the_one_that_is_open() {
        let scene = Scene::new();
        scene.opened().close().unwrap();
        fs::copy(scene.path("s"), scene.path("copy")).unwrap();
        let db = scene.open("s");
        scene.rename("s", "moved");
        scene.rename("copy", "s");
        let log = fs::read(scene.path("s-log")).unwrap();
        let refused = options().open(scene.path("s")).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::Locked { .. }), "{refused}");
        assert!(refused.to_string().contains("s-log"), "{refused}");
        assert!(fs::read(scene.path("s-log")).unwrap() == log, "the log is the other's");
        put(&db, "b");
        kill(db, scene.directory.path());
        // Its changes are still there when both are where they belong.
        scene.rename("s", "copy");
        scene.rename("moved", "s");
        assert_has(&scene.open("s"), &["a", "b"]);
        assert_has(&scene.open("copy"), &["a"]);
    }

    #[test]
    fn no_store_is_made_beside_a_log_that_has_changes() {
        let scene = Scene::new();
        kill(scene.opened(), scene.directory.path());
        let whole = fs::read(scene.path("s")).unwrap();
        let log = fs::read(scene.path("s-log")).unwrap();
        for options in [options(), options().log(false)] {
            // Somebody has emptied the store, and then removed it.
            fs::write(scene.path("s"), "").unwrap();
            let refused = options.open_or_create(scene.path("s")).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ForeignLog, "{refused}");
            assert!(refused.to_string().contains("s-log has changes"), "{refused}");
            assert_eq!(fs::read(scene.path("s")).unwrap(), b"");
            scene.remove("s");
            for made in [options.open_or_create(scene.path("s")), options.create(scene.path("s"))] {
                let refused = made.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ForeignLog, "{refused}");
                assert!(refused.to_string().contains("s-log has changes"), "{refused}");
            }
            assert_eq!(scene.names(), ["s-log"]);
            assert!(fs::read(scene.path("s-log")).unwrap() == log);
        }
        fs::write(scene.path("s"), whole).unwrap();
        assert_has(&scene.open("s"), &["a"]);
    }

    #[test]
    fn a_link_that_leads_to_no_file_is_called_by_its_name_by_everybody() {
        let scene = Scene::new();
        symlink(scene.path("nothing"), scene.path("s")).unwrap();
        let path = scene.path("s");
        let words = "a symbolic link that leads to no file";
        for (opened, kind) in [
            (options().open(&path), ErrorKind::FileNotFound),
            (options().open_read_only(&path), ErrorKind::FileNotFound),
            (options().open_or_create(&path), ErrorKind::FileExists),
            (options().create(&path), ErrorKind::FileExists),
        ] {
            let refused = opened.unwrap_err();
            assert_eq!(refused.kind(), kind, "{refused}");
            assert!(refused.to_string().contains(words), "{refused}");
        }
        assert_eq!(scene.names(), ["s"]);
        let db = options().create(scene.path("other")).unwrap();
        let refused = db.backup(&path, |_| ControlFlow::Continue(())).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::FileExists, "{refused}");
        db.close().unwrap();
        assert_eq!(scene.names(), ["other", "s"]);
    }

    /// A backup writes under a temporary name for a long time.
    #[test]
    fn a_backup_whose_file_was_replaced_puts_nothing_else_in_place() {
        let scene = Scene::new();
        let db = scene.opened();
        let mut temporary = None;
        let meddle = |_| {
            if temporary.is_none() {
                let name = scene.names().into_iter().find(|name| name.starts_with(".hedgerow"));
                let name = name.unwrap();
                scene.rename(&name, "mine");
                fs::write(scene.path(&name), "a letter").unwrap();
                temporary = Some(name);
            }
            ControlFlow::Continue(())
        };
        let failed = db.backup(scene.path("copy"), meddle).unwrap_err();
        assert!(matches!(failed.kind(), ErrorKind::Locked { holder_pid: None }), "{failed}");
        assert!(failed.to_string().contains("removed or renamed"), "{failed}");
        let temporary = temporary.unwrap();
        assert_eq!(scene.names(), [&*temporary, "mine", "s", "s-log"]);
        assert_eq!(fs::read(scene.path(&temporary)).unwrap(), b"a letter");
        db.close().unwrap();
    }

    #[test]
    fn a_link_at_a_temporary_name_is_refused_and_left_alone() {
        let scene = Scene::new();
        let db = scene.opened();
        let mut temporary = None;
        let look = |_| {
            temporary = scene.names().into_iter().find(|name| name.starts_with(".hedgerow"));
            ControlFlow::Break(())
        };
        db.backup(scene.path("copy"), look).unwrap_err();
        let temporary = temporary.unwrap();
        fs::write(scene.path("diary"), "a letter").unwrap();
        for to in ["diary", "nothing"] {
            symlink(scene.path(to), scene.path(&temporary)).unwrap();
            let refused = db.backup(scene.path("copy"), |_| ControlFlow::Continue(())).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotAStore, "{refused}");
            assert!(fs::symlink_metadata(scene.path(&temporary)).unwrap().is_symlink());
            scene.remove(&temporary);
        }
        assert_eq!(fs::read(scene.path("diary")).unwrap(), b"a letter");
        db.backup(scene.path("copy"), |_| ControlFlow::Continue(())).unwrap();
    }

    /// Another program may hold the lock of the directory for as long as it likes.
    #[test]
    fn a_directory_that_somebody_has_locked_keeps_nobody_from_opening_and_closing() {
        let scene = Scene::new();
        let lock = fs::File::open(scene.directory.path()).unwrap();
        lock.lock().unwrap();
        let db = scene.opened();
        db.close().unwrap();
        assert_eq!(scene.names(), ["s"]);
    }

    const CHILD: &str = "HEDGEROW_TEST_CHANGES_DIRECTORY";

    /// In a process of its own, because a directory is every thread's.
    #[test]
    fn a_relative_path_means_the_same_after_the_process_has_changed_its_directory() {
        if std::env::var_os(CHILD).is_some() {
            return change_directory();
        }
        let scene = Scene::new();
        for name in ["one", "two"] {
            fs::create_dir(scene.path(name)).unwrap();
        }
        let name = "names::on_unix::a_relative_path_means_the_same_after_the_process_has_changed_its_directory";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env(CHILD, "1")
            .current_dir(scene.path("one"))
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&child.stderr);
        assert!(child.status.success(), "{words}");
        assert_eq!(names(&scene.path("one")), ["copy", "s"]);
        assert_eq!(names(&scene.path("two")), ["s", "s-log"]);
        assert_has(&scene.open("one/s"), &["a"]);
        assert_has(&scene.open("one/copy"), &["a"]);
        assert_has(&scene.open("two/s"), &["b"]);
    }

    /// Begins in the directory `one`.
    fn change_directory() {
        let first = options().create("s").unwrap();
        put(&first, "a");
        let change = |_| {
            std::env::set_current_dir("../two").unwrap();
            ControlFlow::Continue(())
        };
        first.backup("copy", change).unwrap();
        let second = options().create("s").unwrap();
        put(&second, "b");
        first.close().unwrap();
        kill(second, Path::new("."));
    }
}
