//! Files of Windows: positioned reads and writes of the standard library, `LockFileEx`, sparse files.
//!
//! Rank 1. Invariants: handles are not inherited by processes that are started; only regular files are opened, and such that
//! others may read, write, rename and remove them meanwhile, as on Unix systems; the lock is of a byte that no file has
//! ([`file`]), so that it keeps nobody from reading. `Send + Sync`: each request names its offset.
//!
//! What is different from a Unix system:
//! - Files go through the cache of the system: [`File::block_bytes`](super::File::block_bytes) is 1.
//! - The requests of a batch are carried out one after the other; the kernel does so with those of one handle anyway.
//! - A new file has the permissions that its directory hands down, and one that replaces another keeps its own.
//! - Directories have no lock: between the comparison of a name and its change another program may put a file there
//!   ([`names`](super::names)).

mod file;
mod system;

use crate::error::{Error, ErrorKind, Result};
use crate::storage::{DirectIo, Disk, File, IoEngine, OpenMode, names};
use file::RealFile;
use hedgerow_sync::primitive::{Arc, random};
use std::fs::OpenOptions;
use std::io;
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_INVALID_FUNCTION, ERROR_INVALID_HANDLE, ERROR_INVALID_PARAMETER,
    ERROR_NOT_SUPPORTED,
};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
};

/// The file system of this machine.
#[derive(Clone, Copy, Debug)]
pub struct RealDisk;

impl RealDisk {
    /// The file system.
    ///
    /// Errors: `InvalidOption` if io_uring was demanded, which only Linux has.
    pub fn new(engine: IoEngine) -> Result<RealDisk> {
        match engine {
            IoEngine::Auto | IoEngine::Sync => Ok(RealDisk),
            IoEngine::Uring => {
                let what = "io_uring cannot be used: only Linux has it";
                Err(Error::new(ErrorKind::InvalidOption, what))
            }
        }
    }

    /// How batches are carried out.
    #[cfg(hedgerow_internals)]
    pub fn engine(&self) -> IoEngine {
        IoEngine::Sync
    }

    #[allow(clippy::disallowed_methods, reason = "this module is the door to the file system")]
    fn open_file(&self, path: &Path, mode: OpenMode, links: Links) -> Result<Arc<dyn File>> {
        if mode != OpenMode::CreateNew {
            // Opening a device may have effects of its own, so that what the path says is looked at first.
            require_regular(path, links)?;
        }
        let writable = mode != OpenMode::ReadOnly;
        let mut options = OpenOptions::new();
        options.read(true).write(writable).create_new(mode == OpenMode::CreateNew);
        if links == Links::Refuse {
            options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT);
        }
        let opened = options.open(path).map_err(|source| match source.kind() {
            // Nothing is created at the path of a directory, and Windows says so by another number.
            io::ErrorKind::PermissionDenied if mode == OpenMode::CreateNew && path.is_dir() => {
                failed_on_path("open", path, io::ErrorKind::AlreadyExists.into())
            }
            _ => failed_on_path("open", path, source),
        })?;
        if !system::is_on_disk(&opened) {
            return Err(not_a_store(path, "a device"));
        }
        let found = opened.metadata().map_err(|source| failed("examine", path, source))?;
        if !found.file_type().is_file() {
            return Err(not_a_store(path, "no regular file"));
        }
        let file = RealFile::new(opened, path, writable);
        Ok(Arc::new(file.map_err(|source| failed("examine", path, source))?))
    }
}

/// What becomes of a symbolic link at a path that is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Links {
    Follow,
    Refuse,
}

/// A failed call on a path or a file of that path.
#[cold]
fn failed(what: &str, path: &Path, source: io::Error) -> Error {
    Error::io(format!("cannot {what} {}", path.display()), source)
}

#[cold]
fn failed_on_path(what: &str, path: &Path, source: io::Error) -> Error {
    let (kind, why) = match source.kind() {
        io::ErrorKind::NotFound => (ErrorKind::FileNotFound, "there is no such file"),
        io::ErrorKind::AlreadyExists => (ErrorKind::FileExists, "it exists already"),
        io::ErrorKind::IsADirectory => (ErrorKind::NotAStore, "it is a directory"),
        _ => return failed(what, path, source),
    };
    Error::new(kind, format!("cannot {what} {}: {why}", path.display()))
}

fn not_a_store(path: &Path, what: &str) -> Error {
    Error::new(ErrorKind::NotAStore, format!("{} is {what}", path.display()))
}

#[allow(clippy::disallowed_methods, reason = "this module is the door to the file system")]
fn require_regular(path: &Path, links: Links) -> Result<()> {
    let found = match links {
        Links::Follow => std::fs::metadata(path),
        Links::Refuse => std::fs::symlink_metadata(path),
    };
    let kind = match found {
        Ok(found) => found.file_type(),
        Err(source) if source.kind() == io::ErrorKind::NotFound && is_dangling(path) => {
            let what = "it is a symbolic link that leads to no file";
            let what = format!("cannot open {}: {what}", path.display());
            return Err(Error::new(ErrorKind::FileNotFound, what));
        }
        // A device has a name and no attributes: it is told by what was opened.
        Err(source) if is_refused(&source) => return Ok(()),
        Err(source) => return Err(failed_on_path("open", path, source)),
    };
    match kind {
        kind if kind.is_dir() => Err(not_a_store(path, "a directory")),
        kind if kind.is_symlink() => Err(not_a_store(path, "a symbolic link")),
        _ => Ok(()),
    }
}

/// Whether a symbolic link has that path, and leads to no file.
#[allow(clippy::disallowed_methods, reason = "this module is the door to the file system")]
fn is_dangling(path: &Path) -> bool {
    let leads_nowhere =
        || std::fs::metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) && leads_nowhere()
}

#[allow(clippy::disallowed_methods, reason = "this module is the door to the file system")]
impl Disk for RealDisk {
    fn share(&self) -> Arc<dyn Disk> {
        Arc::new(*self)
    }

    fn open(&self, path: &Path, mode: OpenMode, _direct: DirectIo) -> Result<Arc<dyn File>> {
        self.open_file(path, mode, Links::Follow)
    }

    fn open_here(&self, path: &Path, mode: OpenMode, _direct: DirectIo) -> Result<Arc<dyn File>> {
        self.open_file(path, mode, Links::Refuse)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        match std::fs::symlink_metadata(path) {
            Ok(_) => Ok(true),
            Err(source) if is_no_path(&source) => Ok(false),
            Err(source) => Err(failed("examine", path, source)),
        }
    }

    fn is_dangling(&self, path: &Path) -> Result<bool> {
        Ok(is_dangling(path))
    }

    fn locate(&self, path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to).map_err(|source| failed_on_path("rename", from, source))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        system::move_new(from, to).map_err(|source| match source.kind() {
            io::ErrorKind::AlreadyExists => failed_on_path("create", to, source),
            _ => failed_on_path("rename", from, source),
        })
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        std::fs::canonicalize(path).map_err(|source| failed_on_path("find", path, source))
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        std::fs::remove_file(path).map_err(|source| failed_on_path("remove", path, source))
    }

    fn rename_own(
        &self,
        from: &Path,
        file: &dyn File,
        to: &Path,
        over: Option<&dyn File>,
    ) -> Result<bool> {
        match (names::rename_own(self, from, file, to, over), over) {
            (Err(error), Some(over)) if is_denied(&error) => replace_open(from, file, to, over),
            (renamed, _) => renamed,
        }
    }

    /// Windows has no promise about the order of changes in a directory; NTFS logs them, and a flush of the directory writes its log.
    fn sync_dir(&self, path: &Path) -> Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(FILE_FLAG_BACKUP_SEMANTICS);
        let synced = options.open(path).and_then(|directory| directory.sync_all());
        match synced {
            Err(source) if is_refused(&source) => match std::fs::metadata(path) {
                // Who may not write to a directory as to a file, or whose file system has no such notion, has no way to flush it.
                Ok(found) if found.is_dir() => Ok(()),
                _ => Err(failed("sync", path, source)),
            },
            synced => synced.map_err(|source| failed_on_path("open", path, source)),
        }
    }
}

/// Lets `from` take the place of a file that is open, where the system replaces none that is: that one gets another name first. A
/// crash in between leaves no file at `to`, and what was there under the other name. Whoever replaces a file that he has open does
/// so with what is worth nothing: an empty file, or a log that was not finished.
fn replace_open(from: &Path, file: &dyn File, to: &Path, over: &dyn File) -> Result<bool> {
    let mut aside = from.as_os_str().to_owned();
    aside.push(format!("-{:016x}", random::seed()));
    let aside = PathBuf::from(aside);
    if !over.is_named(to)? {
        return Ok(false);
    }
    RealDisk.rename_new(to, &aside)?;
    let renamed = names::rename_own(&RealDisk, from, file, to, None);
    match renamed {
        Ok(true) => RealDisk.unlink(&aside)?,
        // What was there comes back, unless somebody has put something else there.
        _ => RealDisk.rename_new(&aside, to)?,
    }
    renamed
}

/// Whether an error says that the system does not let a file be replaced.
fn is_denied(error: &Error) -> bool {
    error.io_error().is_some_and(|source| source.kind() == io::ErrorKind::PermissionDenied)
}

/// Whether a path cannot lead to any file: a part of it is missing, or is no directory.
fn is_no_path(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether a call was refused before it did anything, because the file system has no such notion or this is not its object.
fn is_refused(source: &io::Error) -> bool {
    let refusals = [
        ERROR_ACCESS_DENIED,
        ERROR_INVALID_FUNCTION,
        ERROR_INVALID_HANDLE,
        ERROR_INVALID_PARAMETER,
        ERROR_NOT_SUPPORTED,
    ];
    source.raw_os_error().is_some_and(|number| refusals.contains(&(number as u32)))
}

#[cfg(all(test, not(shuttle)))]
#[allow(clippy::disallowed_methods, reason = "these tests look at files from outside")]
mod tests {
    use super::*;
    use crate::storage::LockOutcome;
    use hedgerow_sync::primitive::thread;

    fn create(directory: &Path, name: &str) -> Arc<dyn File> {
        RealDisk.open(&directory.join(name), OpenMode::CreateNew, DirectIo::Never).unwrap()
    }

    #[test]
    fn what_is_no_file_is_refused_by_kind() {
        let place = tempfile::tempdir().unwrap();
        for (path, what) in [(place.path(), "a directory"), (Path::new("NUL"), "a device")] {
            for mode in [OpenMode::ReadOnly, OpenMode::ReadWrite] {
                let error = RealDisk.open(path, mode, DirectIo::Never).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::NotAStore, "{error}");
                assert!(error.to_string().ends_with(what), "{error}");
            }
        }
        let created = RealDisk.open(place.path(), OpenMode::CreateNew, DirectIo::Never);
        assert_eq!(created.unwrap_err().kind(), ErrorKind::FileExists);
        let absent = RealDisk.sync_dir(&place.path().join("absent")).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::FileNotFound);
        assert_eq!(*RealDisk::new(IoEngine::Uring).unwrap_err().kind(), ErrorKind::InvalidOption);
    }

    #[test]
    fn a_lock_keeps_other_programs_from_nothing_but_the_lock() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("f");
        let file = create(place.path(), "f");
        assert_eq!(file.try_lock(true).unwrap(), LockOutcome::Held);
        assert_eq!(file.try_lock(true).unwrap(), LockOutcome::Held, "it has it already");
        file.write_at(0, b"a wren").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"a wren");
        std::fs::write(&path, b"a robin").unwrap();
        std::fs::hard_link(&path, place.path().join("g")).unwrap();
        let other = RealDisk.open(&place.path().join("g"), OpenMode::ReadWrite, DirectIo::Never);
        let other = other.unwrap();
        assert_eq!(other.try_lock(false).unwrap(), LockOutcome::Busy { holder_pid: None });
        file.unlock().unwrap();
        assert_eq!(other.try_lock(false).unwrap(), LockOutcome::Held);
        assert!(file.is_named(&place.path().join("g")).unwrap());
    }

    #[test]
    fn a_file_is_told_from_others_after_it_was_renamed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let (file, other) = (create(place.path(), "f"), create(place.path(), "other"));
        assert!(RealDisk.rename_own(&path("f"), &*file, &path("to"), None).unwrap());
        assert!(file.is_named(&path("to")).unwrap() && !other.is_named(&path("to")).unwrap());
        assert!(!file.is_named(&path("f")).unwrap() && !RealDisk.exists(&path("f")).unwrap());
        let taken = RealDisk.rename_own(&path("to"), &*file, &path("other"), None).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::FileExists);
        assert!(!RealDisk.unlink_own(&path("other"), &*file).unwrap());
        assert!(RealDisk.unlink_own(&path("other"), &*other).unwrap());
    }

    #[test]
    fn a_file_that_is_open_gives_way_to_another_if_it_is_the_one_that_is_meant() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let (file, empty) = (create(place.path(), "f"), create(place.path(), "empty"));
        file.write_at(0, b"a wren").unwrap();
        let renamed = RealDisk.rename_own(&path("f"), &*file, &path("empty"), Some(&*empty));
        assert!(renamed.unwrap());
        assert_eq!(std::fs::read(path("empty")).unwrap(), b"a wren");
        drop(empty);
        let names: Vec<_> = std::fs::read_dir(place.path()).unwrap().collect();
        assert_eq!(names.len(), 1, "{names:?}");
        let other = create(place.path(), "other");
        assert!(!replace_open(&path("empty"), &*file, &path("empty"), &*other).unwrap());
        assert!(file.is_named(&path("empty")).unwrap() && other.is_named(&path("other")).unwrap());
    }

    #[test]
    fn of_several_who_make_a_file_longer_nobody_makes_it_shorter() {
        let place = tempfile::tempdir().unwrap();
        let file = create(place.path(), "grows");
        let grow = |first: u64| {
            let file = file.clone();
            let grow = move || {
                for end in (first..2_000).step_by(4) {
                    file.allocate(0, end).unwrap();
                    assert!(file.len_bytes().unwrap() >= end);
                }
            };
            thread::spawn_named("grows", grow).unwrap()
        };
        let threads: Vec<_> = (0..4).map(grow).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(file.len_bytes().unwrap(), 1_999);
        assert!(file.allocated_bytes().unwrap() < 1 << 20 && file.free_bytes().unwrap() > Some(0));
    }
}
