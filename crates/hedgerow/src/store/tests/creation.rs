//! Creations that others get in between: whatever they do at which moment, what they have made stays theirs.

use super::*;
use crate::storage::{DirectIo, File, OpenMode};
use crate::testing::sim::Fault;
use hedgerow_sync::primitive::Arc;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What is asked of the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Create,
    Open,
    /// It is open, or made.
    Opened,
    Rename,
}

type Meddle = dyn Fn(&SimDisk, Call, &Path) -> Result<()> + Send + Sync;

/// A disk on which somebody does something before calls, or makes them fail.
struct Shared {
    disk: SimDisk,
    meddle: Box<Meddle>,
}

impl Shared {
    fn new(
        disk: &SimDisk,
        meddle: impl Fn(&SimDisk, Call, &Path) -> Result<()> + Send + Sync + 'static,
    ) -> Shared {
        Shared { disk: disk.clone(), meddle: Box::new(meddle) }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.disk.fmt(f)
    }
}

impl Disk for Shared {
    fn share(&self) -> Arc<dyn Disk> {
        self.disk.share()
    }

    fn open(&self, path: &Path, mode: OpenMode, direct: DirectIo) -> Result<Arc<dyn File>> {
        let call = if mode == OpenMode::CreateNew { Call::Create } else { Call::Open };
        (self.meddle)(&self.disk, call, path)?;
        let file = self.disk.open(path, mode, direct)?;
        (self.meddle)(&self.disk, Call::Opened, path)?;
        Ok(file)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.disk.exists(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        (self.meddle)(&self.disk, Call::Rename, to)?;
        self.disk.rename(from, to)
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        (self.meddle)(&self.disk, Call::Rename, to)?;
        self.disk.rename_new(from, to)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.disk.resolve(path)
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.disk.unlink(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.disk.sync_dir(path)
    }
}

const EACCES: i32 = Fault::EACCES;
const EBUSY: i32 = Fault::EBUSY;

fn refused(errno: i32) -> Error {
    Error::io("refused", io::Error::from_raw_os_error(errno))
}

fn is_temporary(of: &Path) -> bool {
    of.file_name().unwrap().to_str().unwrap().starts_with(".hedgerow-new-")
}

fn empty_file() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.change_state(|state| state.set_contents(path(), b"")).unwrap();
    disk
}

fn write(disk: &SimDisk, of: &Path, bytes: &[u8]) {
    disk.change_state(|state| state.set_contents(of, bytes)).unwrap();
}

/// The path has this, and nothing else is there.
fn assert_only(disk: &SimDisk, bytes: &[u8]) {
    assert_eq!(disk.state().paths(), [path().into()], "something is left");
    assert_eq!(disk.state().contents(path()).as_deref(), Some(bytes));
}

#[test]
fn a_file_that_is_written_to_while_a_store_is_made_in_its_place_stays() {
    let disk = empty_file();
    let shared = Shared::new(&disk, |disk, call, of| {
        if call == Call::Create && is_temporary(of) {
            write(disk, path(), b"a letter");
        }
        Ok(())
    });
    let error = open(&options(), &shared, OpenHow::ExistingOrNew).map(drop).unwrap_err();
    // The next attempts find a file that is no store.
    assert_eq!(error.kind(), ErrorKind::NotAStore, "{error:?}");
    assert_only(&disk, b"a letter");
}

#[test]
fn a_file_that_is_replaced_while_a_store_is_made_in_its_place_stays() {
    let disk = empty_file();
    let shared = Shared::new(&disk, |disk, call, of| {
        if call == Call::Create && is_temporary(of) {
            disk.unlink(path())?;
            write(disk, path(), b"a letter");
        }
        Ok(())
    });
    let error = open(&options(), &shared, OpenHow::ExistingOrNew).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotAStore, "{error:?}");
    assert_only(&disk, b"a letter");
}

#[test]
fn where_a_file_cannot_be_replaced_the_store_is_made_in_it_while_it_is_empty() {
    let cases =
        [(options(), &b""[..]), (options(), b"a letter"), (logged(), b""), (logged(), b"a letter")];
    for (options, letter) in cases {
        let disk = empty_file();
        let shared = Shared::new(&disk, move |disk, call, to| {
            if call != Call::Rename || to != path() {
                return Ok(());
            }
            if !letter.is_empty() {
                write(disk, path(), letter);
            }
            Err(refused(EBUSY))
        });
        let opened = open(&options, &shared, OpenHow::ExistingOrNew);
        if letter.is_empty() {
            let store = opened.unwrap();
            store.create_keyspace("wrens").unwrap();
            store.close().unwrap();
            drop(store);
            assert_eq!(disk.state().paths(), [path().into()]);
            let store = open(&options, &disk, OpenHow::Existing).unwrap();
            assert_eq!(store.keyspaces().unwrap(), ["wrens"]);
        } else {
            let error = opened.map(drop).unwrap_err();
            assert_eq!(error.os_error(), Some(EBUSY), "{error:?}");
            assert_only(&disk, letter);
        }
    }
}

#[test]
fn where_the_directory_is_denied_only_a_store_without_a_log_is_made_in_the_file() {
    let denied = |disk: &SimDisk| {
        Shared::new(disk, |_, call, _| match call {
            Call::Create => Err(refused(EACCES)),
            _ => Ok(()),
        })
    };
    let disk = empty_file();
    let error = open(&logged(), &denied(&disk), OpenHow::ExistingOrNew).map(drop).unwrap_err();
    assert_eq!(error.os_error(), Some(EACCES));
    assert!(error.to_string().contains("the log needs a file in it"), "{error}");
    assert_only(&disk, b"");
    let store = open(&options(), &denied(&disk), OpenHow::ExistingOrNew).unwrap();
    store.close().unwrap();
    drop(store);
    open(&options(), &disk, OpenHow::Existing).unwrap();
    // Where there is not even an empty file nothing can be made.
    let disk = SimDisk::new(1);
    let error = open(&options(), &denied(&disk), OpenHow::New).map(drop).unwrap_err();
    assert_eq!(error.os_error(), Some(EACCES));
    assert!(error.to_string().contains("cannot create /data/birds.hrow"), "{error}");
    assert!(disk.state().paths().is_empty());
}

#[test]
fn a_creation_tells_why_its_file_cannot_be_opened_if_the_system_does_not() {
    let disk = SimDisk::new(1);
    let shared = Shared::new(&disk, |_, call, _| match call {
        Call::Create => Err(Error::new(ErrorKind::MemoryLimit, "no memory for a buffer")),
        _ => Ok(()),
    });
    let error = open(&options(), &shared, OpenHow::New).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MemoryLimit);
    assert!(error.to_string().contains("no memory for a buffer"), "{error}");
}

/// The name that a store is made under.
fn temporary() -> PathBuf {
    let disk = SimDisk::new(1);
    disk.inject(Fault::any(3).sticky());
    open(&options(), &disk, OpenHow::New).map(drop).unwrap_err();
    let paths = disk.state().paths();
    assert!(paths.len() == 1 && is_temporary(&paths[0]), "{paths:?}");
    paths[0].to_path_buf()
}

#[test]
fn what_another_creation_has_left_is_claimed_or_refused() {
    // It ends between the two looks at its file.
    let disk = SimDisk::new(1);
    let shared = Shared::new(&disk, |disk, call, of| {
        match call {
            Call::Create if of == temporary() && !disk.exists(of)? => write(disk, of, b"half"),
            Call::Open if is_temporary(of) => disk.unlink(of)?,
            _ => return Ok(()),
        }
        Ok(())
    });
    let error = open(&options(), &shared, OpenHow::New).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked { holder_pid: None }, "again and again");
    assert!(disk.state().paths().is_empty());
    // What is there cannot be opened: it is not ours to remove.
    let disk = SimDisk::new(1);
    write(&disk, &temporary(), b"half");
    let shared = Shared::new(&disk, |_, call, of| match call {
        Call::Open if is_temporary(of) => Err(refused(EACCES)),
        _ => Ok(()),
    });
    let error = open(&options(), &shared, OpenHow::New).map(drop).unwrap_err();
    assert_eq!(error.os_error(), Some(EACCES));
    assert_eq!(disk.state().contents(&temporary()).as_deref(), Some(&b"half"[..]));
    // Nobody is in the way any more.
    open(&options(), &disk, OpenHow::New).unwrap().close().unwrap();
    assert_eq!(disk.state().paths(), [path().into()]);
}

#[test]
fn a_file_whose_name_is_taken_away_before_it_is_locked_is_not_used() {
    let disk = SimDisk::new(1);
    let shared = Shared::new(&disk, |disk, call, of| match call {
        Call::Opened if is_temporary(of) => disk.unlink(of),
        _ => Ok(()),
    });
    let error = open(&options(), &shared, OpenHow::New).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked { holder_pid: None }, "{error:?}");
    assert!(error.to_string().contains("other processes keep creating"), "{error}");
    assert!(disk.state().paths().is_empty());
}

#[test]
fn an_empty_file_that_is_replaced_whenever_it_was_opened_is_given_up() {
    let disk = empty_file();
    let opened = Arc::new(AtomicUsize::new(0));
    let counted = opened.clone();
    let shared = Shared::new(&disk, move |disk, call, of| {
        if call == Call::Opened && of == path() {
            counted.fetch_add(1, Ordering::Relaxed);
            disk.unlink(of)?;
            write(disk, of, b"");
        }
        Ok(())
    });
    let error = open(&options(), &shared, OpenHow::ExistingOrNew).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked { holder_pid: None }, "{error:?}");
    assert_eq!(opened.load(Ordering::Relaxed), 3, "attempts");
    assert!(error.to_string().contains("keep creating, removing or renaming"), "{error}");
    assert_only(&disk, b"");
}

/// Only what is not there is made.
#[test]
fn a_store_that_is_there_and_cannot_be_opened_is_not_made_anew() {
    let disk = SimDisk::new(1);
    open(&options(), &disk, OpenHow::New).unwrap().close().unwrap();
    let before = disk.state().contents(path()).unwrap();
    let shared = Shared::new(&disk, |_, call, of| match call {
        Call::Open if of == path() => Err(refused(EACCES)),
        _ => Ok(()),
    });
    let error = open(&options(), &shared, OpenHow::ExistingOrNew).map(drop).unwrap_err();
    assert_eq!(error.os_error(), Some(EACCES), "{error:?}");
    assert_only(&disk, &before);
}

/// Another store comes to the path, and the one that was there goes to another, once.
fn replace_once(
    when: impl Fn(Call, &Path) -> bool + Send + Sync + 'static,
) -> (SimDisk, Shared, Vec<u8>) {
    let disk = SimDisk::new(1);
    let other = open(&logged(), &disk, OpenHow::New).unwrap();
    other.create_keyspace("owls").unwrap();
    other.close().unwrap();
    let bytes = disk.state().contents(path()).unwrap();
    disk.unlink(path()).unwrap();
    let store = open(&logged(), &disk, OpenHow::New).unwrap();
    store.create_keyspace("wrens").unwrap();
    store.close().unwrap();
    let done = AtomicUsize::new(0);
    let put = bytes.clone();
    let shared = Shared::new(&disk, move |disk, call, of| {
        if when(call, of) && done.fetch_add(1, Ordering::Relaxed) == 0 {
            disk.rename(path(), moved())?;
            write(disk, path(), &put);
        }
        Ok(())
    });
    (disk, shared, bytes)
}

fn moved() -> &'static Path {
    Path::new("/data/moved.hrow")
}

fn ends_with(of: &Path, what: &str) -> bool {
    of.to_str().unwrap().ends_with(what)
}

#[test]
fn a_store_that_is_replaced_while_it_is_opened_is_not_given_a_log_at_its_old_path() {
    type When = fn(Call, &Path) -> bool;
    let moments: [(&str, When); 4] = [
        ("before it is locked", |call, of| call == Call::Opened && of == path()),
        ("before its log is made", |call, of| call == Call::Create && ends_with(of, "-log-new")),
        ("while its log is made", |call, of| call == Call::Opened && ends_with(of, "-log-new")),
        ("when its log gets its name", |call, of| call == Call::Rename && ends_with(of, "-log")),
    ];
    for (moment, when) in moments {
        let (disk, shared, _) = replace_once(when);
        let found = open(&logged(), &shared, OpenHow::Existing).unwrap();
        assert_eq!(found.keyspaces().unwrap(), ["owls"], "{moment}");
        found.create_keyspace("tits").unwrap();
        drop(found);
        let left = disk.state().paths();
        let names: Vec<&str> = left.iter().map(|path| path.to_str().unwrap()).collect();
        let expected = ["/data/birds.hrow", "/data/birds.hrow-log", "/data/moved.hrow"];
        assert_eq!(names, expected, "{moment}");
        let found = open(&logged(), &disk, OpenHow::Existing).unwrap();
        assert_eq!(found.keyspaces().unwrap(), ["owls", "tits"], "{moment}");
        let other = Store::open(&logged(), &disk, moved(), OpenHow::Existing).unwrap();
        assert_eq!(other.keyspaces().unwrap(), ["wrens"], "{moment}");
    }
}

#[test]
fn a_store_that_is_replaced_whenever_it_was_locked_is_given_up_and_every_one_of_them_is_whole() {
    let disk = SimDisk::new(1);
    open(&logged(), &disk, OpenHow::New).unwrap().close().unwrap();
    let bytes = disk.state().contents(path()).unwrap();
    let shared = Shared::new(&disk, move |disk, call, of| {
        if call == Call::Rename && ends_with(of, "-log") {
            disk.unlink(path())?;
            write(disk, path(), &bytes);
        }
        Ok(())
    });
    let error = open(&logged(), &shared, OpenHow::Existing).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked { holder_pid: None }, "{error:?}");
    assert!(error.to_string().contains("keep creating, removing or renaming"), "{error}");
    assert_eq!(disk.state().paths(), [path().into()]);
    open(&logged(), &disk, OpenHow::Existing).unwrap().close().unwrap();
}

#[test]
fn a_file_that_comes_to_the_name_of_a_log_when_the_log_gets_it_stays() {
    let log = super::super::log_path(path());
    for how in [OpenHow::New, OpenHow::Existing] {
        let disk = SimDisk::new(1);
        if how == OpenHow::Existing {
            open(&logged(), &disk, OpenHow::New).unwrap().close().unwrap();
        }
        let name = log.clone();
        let shared = Shared::new(&disk, move |disk, call, of| {
            if call == Call::Rename && of == name {
                write(disk, of, b"a letter");
            }
            Ok(())
        });
        let error = open(&logged(), &shared, how).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ForeignLog, "{error:?}");
        assert_eq!(disk.state().contents(&log).as_deref(), Some(&b"a letter"[..]));
        assert!(!disk.exists(&log.with_extension("hrow-log-new")).unwrap());
        assert_eq!(disk.exists(path()).unwrap(), how == OpenHow::Existing);
    }
}
