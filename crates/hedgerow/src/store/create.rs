//! Making a store at a path, so that after a crash the path has a whole store or what it had before.
//!
//! The store is made under a temporary name in the same directory, synced, and renamed. The temporary
//! name follows from the path, so that what a crash has left is found, and removed, by the next creation
//! at that path; until then it is in nobody's way. The rule that keeps creators apart: *the entry of a
//! temporary name is changed only by who holds the lock of the file that it names*. A lock says nothing
//! about a name, so whoever has got one looks whether the name still names that file; `storage/names.rs`
//! says how the look and the change stay together.
//!
//! An empty file at the path is replaced likewise, under its lock; where that cannot be done (a file that is a mount
//! point; without a log, a directory that may not be written) the store is made in it, and then a crash
//! in the middle leaves a file that is no store. Backups and repaired stores come to be likewise.
//! No state; any number of threads and processes.

use super::Store;
use super::lock::lock;
use super::log_file::check_nothing_beside;
use super::options::StoreOptions;
use crate::checksum::name_hash;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{DirectIo, Disk, File, OpenMode, parent_directory};
use hedgerow_sync::primitive::Arc;
use std::io;
use std::path::{Path, PathBuf};

/// Tries for the temporary name, each of which fails only if another creation has just ended.
const CLAIMS: usize = 16;

/// Makes a store where there is nothing.
///
/// Errors: those of [`file_at`], [`check_nothing_beside`] and [`Store::create_in`].
pub(super) fn new(options: &StoreOptions, disk: &dyn Disk, path: &Path) -> Result<Store> {
    file_at(options.direct(), disk, path, |file| {
        check_nothing_beside(options, disk, path)?;
        Store::create_in(options, file.clone())
    })
}

/// Lets `fill` write a file, and gives it the path then, where nothing may be. The file is locked until its last
/// handle is gone. After an error, `fill`'s or any other, there is nothing.
///
/// Errors: `FileExists`; `Locked` while somebody else makes one there; `DirectoryNotFound` without the
/// directory; those of `fill`; `Io`.
pub(super) fn file_at<T>(
    direct: DirectIo,
    disk: &dyn Disk,
    path: &Path,
    fill: impl FnOnce(&Arc<dyn File>) -> Result<T>,
) -> Result<T> {
    // Before anything is written; the rename looks again.
    if disk.exists(path)? {
        return Err(match disk.is_dangling(path)? {
            true => leads_nowhere(path),
            false => exists_already(path),
        });
    }
    let (temporary, file) = claim(direct, disk, path)?;
    let withdraw = [&*temporary, path];
    make(disk, &file, path, &withdraw, fill, || {
        match disk.rename_own(&temporary, &*file, path, None)? {
            true => Ok(()),
            false => Err(taken_away(path)),
        }
    })
}

/// Makes a store in place of `empty`, a file of no bytes that is locked. `None` if the path no longer
/// names it: somebody else was faster.
///
/// Errors: as for [`new`].
pub(super) fn in_place_of(
    options: &StoreOptions,
    disk: &dyn Disk,
    path: &Path,
    empty: Arc<dyn File>,
) -> Result<Option<Store>> {
    if !empty.is_at(path)? {
        return Ok(None);
    }
    let path = disk.resolve(path)?;
    check_nothing_beside(options, disk, &path)?;
    let still_empty = || Ok(empty.is_named(&path)? && empty.len_bytes()? == 0);
    let replace = |temporary: &Path, file: &dyn File| match still_empty()?
        && disk.rename_own(temporary, file, &path, Some(&*empty))?
    {
        true => Ok(()),
        false => Err(exists_already(&path)),
    };
    let made = claim(options.direct(), disk, &path).and_then(|(temporary, file)| {
        // Once the empty file is gone, a whole store is better than nothing, whatever fails then.
        let fill = |file: &Arc<dyn File>| Store::create_in(options, file.clone());
        make(disk, &file, &path, &[&*temporary], fill, || replace(&temporary, &*file))
    });
    match made {
        // Its log could not be made either.
        Err(error) if options.log && is_denied(&error) => {
            let what = format!(
                "cannot create {}: the directory cannot be written, and the log needs a file in it",
                path.display()
            );
            Err(told_as(error, what))
        }
        Err(error) if is_forbidden(&error) && still_empty()? => {
            Store::create_in(options, empty).map(Some)
        }
        made => made.map(Some),
    }
}

/// The name under which the store of a path is made. Hidden, and no longer than any directory takes.
fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    parent_directory(path).join(format!(".hedgerow-new-{:016x}", name_hash(name)))
}

/// Makes the file that is to become the store of `path`, and locks it.
fn claim(direct: DirectIo, disk: &dyn Disk, path: &Path) -> Result<(PathBuf, Arc<dyn File>)> {
    let temporary = temporary_path(path);
    for _ in 0..CLAIMS {
        let (file, fresh) = match disk.open(&temporary, OpenMode::CreateNew, direct) {
            Ok(file) => (file, true),
            Err(error) if error.kind() == ErrorKind::FileExists => {
                match disk.open_here(&temporary, OpenMode::ReadWrite, DirectIo::Never) {
                    Err(error) if error.kind() == ErrorKind::FileNotFound => continue,
                    other => (other?, false),
                }
            }
            Err(error) if error.kind() == ErrorKind::FileNotFound => {
                let what = format!("cannot create {}: there is no such directory", path.display());
                return Err(Error::new(ErrorKind::DirectoryNotFound, what));
            }
            Err(error) => {
                return Err(told_as(error, format!("cannot create {}", path.display())));
            }
        };
        lock(&*file, true)?;
        if !fresh {
            // A creation that was cut short has left it.
            disk.unlink_own(&temporary, &*file)?;
        } else if file.is_named(&temporary)? {
            return Ok((temporary, file));
        }
    }
    let what = format!("other processes keep creating {}", path.display());
    Err(Error::new(ErrorKind::Locked { holder_pid: None }, what))
}

/// The names that are taken from a file which does not become a store, while it is locked: nobody has begun
/// to use it. If that fails as well, the next creation tidies up.
struct Withdrawal<'w> {
    disk: &'w dyn Disk,
    file: &'w dyn File,
    names: &'w [&'w Path],
    is_due: bool,
}

impl Drop for Withdrawal<'_> {
    fn drop(&mut self) {
        if self.is_due {
            for name in self.names {
                // What failed first is the error to tell.
                self.disk.unlink_own(name, self.file).ok();
            }
        }
    }
}

/// Fills `file`, which is at a temporary name and locked, and lets `rename` give it its path.
/// After a failure, or a panic of what the caller lets it do, none of the names in `withdraw` names it.
fn make<T>(
    disk: &dyn Disk,
    file: &Arc<dyn File>,
    path: &Path,
    withdraw: &[&Path],
    fill: impl FnOnce(&Arc<dyn File>) -> Result<T>,
    rename: impl FnOnce() -> Result<()>,
) -> Result<T> {
    let mut withdrawal = Withdrawal { disk, file: &**file, names: withdraw, is_due: true };
    let made = fill(file).and_then(|made| {
        file.sync_all()?;
        rename()?;
        file.set_path(path);
        disk.sync_dir(parent_directory(path))?;
        Ok(made)
    });
    withdrawal.is_due = made.is_err();
    made
}

/// An error of the system, with what could not be done; any other as it is.
fn told_as(error: Error, what: String) -> Error {
    match error.os_error() {
        Some(code) => Error::io(what, io::Error::from_raw_os_error(code)),
        None => error,
    }
}

/// Whether an error says that the directory cannot be written.
fn is_denied(error: &Error) -> bool {
    let kind = error.os_error().map(|code| io::Error::from_raw_os_error(code).kind());
    matches!(kind, Some(io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem))
}

/// Whether an error says that a file cannot be replaced where it is, though it may be written.
fn is_forbidden(error: &Error) -> bool {
    let kind = error.os_error().map(|code| io::Error::from_raw_os_error(code).kind());
    matches!(
        kind,
        Some(
            io::ErrorKind::PermissionDenied
                | io::ErrorKind::ReadOnlyFilesystem
                | io::ErrorKind::ResourceBusy
                | io::ErrorKind::CrossesDevices
        )
    )
}

#[cold]
fn leads_nowhere(path: &Path) -> Error {
    let what =
        format!("cannot create {}: a symbolic link that leads to no file is there", path.display());
    Error::new(ErrorKind::FileExists, what)
}

#[cold]
fn taken_away(path: &Path) -> Error {
    let what =
        format!("cannot create {}: its temporary file was removed or renamed", path.display());
    Error::new(ErrorKind::Locked { holder_pid: None }, what)
}

#[cold]
fn exists_already(path: &Path) -> Error {
    let what = format!("cannot create {}: it exists already", path.display());
    Error::new(ErrorKind::FileExists, what)
}
