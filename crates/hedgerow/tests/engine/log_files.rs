//! What lies at the names of a store's log and is not its log: links, directories, files of others, and a log that
//! came after the copy of the store that it lies beside. None of it is written to or taken for the log; each is named.
#![allow(clippy::disallowed_methods, reason = "a test with files of its own")]

use crate::common::{assert_sound, contents, open, path, seed, tiny};
use hedgerow::internals::storage::Disk;
use hedgerow::internals::store::{OpenHow, log_path};
use hedgerow::{Database, Durability, ErrorKind, Options};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{CallKind, Fault};

fn logged() -> Options {
    let limit = hedgerow::smallest_memory_limit_bytes(512);
    tiny().memory_limit_bytes(limit).log(true).log_segment_blocks(6)
}

fn put(db: &Database, key: &[u8], value: &[u8]) {
    let keyspace = db.keyspace("wrens").unwrap().with_durability(Durability::Sync);
    keyspace.put(key, value).unwrap();
}

#[test]
fn a_log_that_came_after_this_copy_of_the_store_is_not_thrown_away() {
    let disk = SimDisk::new(seed(1));
    let log = log_path(path());
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    put(&db, b"a", b"first");
    db.close().unwrap();
    let closed = disk.state().contents(path()).unwrap();
    // A session that ends in a crash.
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    put(&db, b"b", b"second");
    let newer = contents(&db).unwrap();
    let disk = SimDisk::with_state(disk.crash(2).state(), 3);
    drop(db);
    let (store, changes) =
        (disk.state().contents(path()).unwrap(), disk.state().contents(&log).unwrap());
    // Somebody puts the copy back that was made while the store was closed.
    disk.change_state(|state| state.set_contents(path(), &closed)).unwrap();
    for how in [OpenHow::Existing, OpenHow::ReadOnly, OpenHow::ExistingOrNew] {
        let refused = open(&logged(), &disk, how).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ForeignLog, "{refused}");
        assert!(refused.to_string().contains("later copy"), "{refused}");
        assert_eq!(disk.state().contents(&log).unwrap(), changes);
        assert_eq!(disk.state().contents(path()).unwrap(), closed);
    }
    // Put back what belongs to the log: everything is there.
    disk.change_state(|state| state.set_contents(path(), &store)).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert_eq!(contents(&db).unwrap(), newer);
    assert_sound(&db, "after the right copy was put back");
    let disk = SimDisk::with_state(disk.state().kill(), 4);
    drop(db);
    // Or do without it.
    disk.change_state(|state| state.set_contents(path(), &closed)).unwrap();
    disk.unlink(&log).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert_eq!(contents(&db).unwrap()["wrens"].len(), 1);
}

#[test]
fn a_log_that_came_two_sessions_after_this_copy_is_not_thrown_away_though_nothing_is_in_it() {
    let disk = SimDisk::new(seed(6));
    let log = log_path(path());
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    put(&db, b"a", b"first");
    db.close().unwrap();
    let closed = disk.state().contents(path()).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    put(&db, b"b", b"second");
    db.close().unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    let disk = SimDisk::with_state(disk.state(), 7);
    drop(db);
    let (store, changes) =
        (disk.state().contents(path()).unwrap(), disk.state().contents(&log).unwrap());
    disk.change_state(|state| state.set_contents(path(), &closed)).unwrap();
    for how in [OpenHow::Existing, OpenHow::ReadOnly] {
        let refused = open(&logged(), &disk, how).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ForeignLog, "{refused}");
        assert!(refused.to_string().contains("later copy"), "{refused}");
        assert!(disk.state().contents(&log).unwrap() == changes, "the log stays as it is");
    }
    disk.change_state(|state| state.set_contents(path(), &store)).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert_eq!(contents(&db).unwrap()["wrens"].len(), 2);
    assert_sound(&db, "after the right copy was put back");
}

#[test]
fn the_log_of_an_earlier_session_is_not_replayed_for_the_one_that_is_needed() {
    let disk = SimDisk::new(seed(7));
    let log = log_path(path());
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    put(&db, b"a", b"first");
    let disk = SimDisk::with_state(disk.crash(1).state(), 2);
    drop(db);
    let earlier = disk.state().contents(&log).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    put(&db, b"b", b"second");
    let model = contents(&db).unwrap();
    let disk = SimDisk::with_state(disk.crash(3).state(), 4);
    drop(db);
    let needed = disk.state().contents(&log).unwrap();
    disk.change_state(|state| state.set_contents(&log, &earlier)).unwrap();
    for how in [OpenHow::Existing, OpenHow::ReadOnly, OpenHow::ExistingOrNew] {
        let refused = open(&logged(), &disk, how).map(drop).unwrap_err();
        let kind = ErrorKind::Corrupted { page: None, offset_bytes: Some(40) };
        assert_eq!(refused.kind(), kind, "{refused}");
        assert!(refused.to_string().contains("the checkpoint needs incarnation"), "{refused}");
        assert!(disk.state().contents(&log).unwrap() == earlier, "the log stays as it is");
    }
    disk.change_state(|state| state.set_contents(&log, &needed)).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert_eq!(contents(&db).unwrap(), model);
    assert_sound(&db, "after the log that is needed was put back");
}

#[test]
fn what_a_closed_store_or_a_session_without_changes_has_left_is_in_nobodys_way() {
    let disk = SimDisk::new(seed(2));
    let log = log_path(path());
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    put(&db, b"a", b"first");
    // The log cannot be removed after a close that was fine but for that.
    disk.inject(Fault::once(CallKind::Unlink, 0, Fault::EIO));
    db.close().unwrap_err();
    disk.clear_faults();
    assert!(disk.state().contents(&log).is_some());
    let closed = disk.state().contents(path()).unwrap();
    let db = open(&logged(), &disk, OpenHow::ReadOnly).unwrap();
    assert_eq!(contents(&db).unwrap()["wrens"].len(), 1);
    drop(db);
    // The next log, in which nothing is, of a session that was killed.
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    let disk = SimDisk::with_state(disk.state(), 5);
    drop(db);
    assert!(disk.state().contents(&log).is_some());
    disk.change_state(|state| state.set_contents(path(), &closed)).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    put(&db, b"b", b"second");
    assert_eq!(contents(&db).unwrap()["wrens"].len(), 2);
    assert_sound(&db, "after a log that nobody needs");
}

#[test]
fn a_file_of_somebody_else_at_the_name_of_the_log_is_left_alone() {
    let log = log_path(path());
    let disk = SimDisk::new(seed(3));
    let db = open(&logged(), &disk, OpenHow::New).unwrap();
    put(&db, b"a", b"first");
    let model = contents(&db).unwrap();
    db.close().unwrap();
    let letter = b"Dear wren, this is no log.".repeat(300);
    disk.change_state(|state| state.set_contents(&log, &letter)).unwrap();
    let refused = open(&logged(), &disk, OpenHow::Existing).map(drop).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ForeignLog, "{refused}");
    assert!(refused.to_string().contains("move it away"), "{refused}");
    assert_eq!(disk.state().contents(&log).unwrap(), letter);
    disk.unlink(&log).unwrap();
    let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
    assert_eq!(contents(&db).unwrap(), model);
    assert_sound(&db, "after the letter was moved away");
}

#[test]
fn a_directory_that_cannot_be_written_is_an_error_and_nothing_has_changed() {
    for errno in [Fault::EACCES, Fault::EROFS] {
        // A file that somebody made for the store.
        let disk = SimDisk::new(seed(4));
        disk.change_state(|state| state.set_contents(path(), b"")).unwrap();
        disk.inject(Fault::once(CallKind::Create, 0, errno).sticky());
        let refused = open(&logged(), &disk, OpenHow::ExistingOrNew).map(drop).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Io, "{refused}");
        assert!(refused.to_string().contains("directory"), "{refused}");
        assert_eq!(disk.state().contents(path()).unwrap(), b"");
        // Without a log it can be made there.
        drop(open(&tiny(), &disk, OpenHow::ExistingOrNew).unwrap());
        disk.clear_faults();
        // A store that was closed.
        let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
        put(&db, b"a", b"first");
        let model = contents(&db).unwrap();
        db.close().unwrap();
        let closed = disk.state().contents(path()).unwrap();
        disk.inject(Fault::once(CallKind::Create, 0, errno).sticky());
        let refused = open(&logged(), &disk, OpenHow::Existing).map(drop).unwrap_err();
        assert_eq!(refused.os_error(), Some(errno), "{refused}");
        assert_eq!(disk.state().contents(path()).unwrap(), closed);
        let db = open(&logged(), &disk, OpenHow::ReadOnly).unwrap();
        assert_eq!(contents(&db).unwrap(), model);
        drop(db);
        disk.clear_faults();
        let db = open(&logged(), &disk, OpenHow::Existing).unwrap();
        assert_eq!(contents(&db).unwrap(), model);
    }
}

#[cfg(unix)]
mod on_unix {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    fn beside(store: &Path, suffix: &str) -> std::path::PathBuf {
        let mut name = store.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    #[test]
    fn links_and_directories_at_either_name_are_refused_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let store = directory.path().join("birds.hrow");
        let options = Options::new().memory_limit_bytes(4 << 20);
        let db = options.create(&store).unwrap();
        put(&db, b"a", b"first");
        db.close().unwrap();
        let target = directory.path().join("diary");
        let diary = [0; 20_000];
        let is_there = || options.open_read_only(&store).map(drop);
        for suffix in ["-log", "-log-new"] {
            let name = beside(&store, suffix);
            // What it names may be empty, zeros, or nothing at all.
            for content in [Some(&diary[..]), Some(&[]), None] {
                match content {
                    Some(content) => fs::write(&target, content).unwrap(),
                    None => fs::remove_file(&target).unwrap(),
                }
                symlink(&target, &name).unwrap();
                let refused = options.open(&store).map(drop).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::NotAStore, "{refused}");
                assert!(refused.to_string().contains("symbolic link"), "{refused}");
                assert_eq!(fs::read(&target).ok().as_deref(), content);
                fs::remove_file(&name).unwrap();
            }
            fs::create_dir(&name).unwrap();
            let refused = options.open(&store).map(drop).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::NotAStore, "{refused}");
            fs::remove_dir(&name).unwrap();
            is_there().unwrap();
        }
        let db = options.open(&store).unwrap();
        assert!(db.keyspace("wrens").unwrap().contains_key(b"a").unwrap());
        let log = fs::metadata(beside(&store, "-log")).unwrap();
        assert_eq!(log.permissions().mode() & 0o777, 0o600);
    }

    /// Its second name was locked as if somebody else had it open: the store never opened again.
    #[test]
    fn a_log_that_a_crash_has_left_with_both_names_is_in_nobodys_way() {
        let directory = tempfile::tempdir().unwrap();
        let [store, copy] = ["birds.hrow", "copy.hrow"].map(|name| directory.path().join(name));
        let options = Options::new().memory_limit_bytes(4 << 20);
        let db = options.create(&store).unwrap();
        put(&db, b"a", b"first");
        let [log, aside] = ["-log", "-aside"].map(|suffix| beside(&copy, suffix));
        fs::copy(beside(&store, "-log"), &aside).unwrap();
        let mut db = Some(db);
        for (is_closed, is_logged) in [(false, true), (false, false), (true, true)] {
            if is_closed {
                db.take().unwrap().close().unwrap();
            }
            fs::copy(&store, &copy).unwrap();
            fs::copy(&aside, &log).unwrap();
            fs::hard_link(&log, beside(&copy, "-log-new")).unwrap();
            let again = options.clone().log(is_logged).open(&copy).unwrap();
            assert_eq!(again.replayed().records > 0, !is_closed);
            put(&again, b"b", b"second");
            assert_eq!(contents(&again).unwrap()["wrens"].len(), 2);
            again.close().unwrap();
            for suffix in ["-log", "-log-new"] {
                assert!(!beside(&copy, suffix).exists(), "{suffix}");
            }
        }
    }
}
