//! Changes of names, with the proof that a name still leads to the file that is meant.
//!
//! Rank 1. A path is not an identity: the user may rename or remove a file that is open, and another
//! process may put a file of its own at that path. So whoever takes a name away, or gives it to another
//! file, holds that file open and compares first. Two rules make the comparison hold until the change:
//!
//! - The name of a file is changed only by who has the lock of that file ([`File::try_lock`]).
//! - Comparison and change are made under the lock of the directory. No process of this engine puts
//!   another file at the name in between. This one is advisory, and given up after a moment: some file
//!   systems cannot lock a directory, and other programs may hold the lock for long.
//!
//! What remains is a program that knows neither rule, such as `mv`, in the microseconds between the two
//! calls. No state; any number of threads and processes.

use super::{Disk, File};
use crate::error::{ErrorKind, Result};
use std::path::Path;

/// See [`Disk::unlink_own`].
pub(super) fn unlink_own<D: Disk + ?Sized>(disk: &D, path: &Path, file: &dyn File) -> Result<bool> {
    if !file.is_named(path)? {
        return Ok(false);
    }
    match disk.unlink(path) {
        // Somebody else has removed it in this moment.
        Err(error) if error.kind() == ErrorKind::FileNotFound => Ok(false),
        unlinked => unlinked.map(|()| true),
    }
}

/// See [`Disk::rename_own`].
pub(super) fn rename_own<D: Disk + ?Sized>(
    disk: &D,
    from: &Path,
    file: &dyn File,
    to: &Path,
    over: Option<&dyn File>,
) -> Result<bool> {
    if !file.is_named(from)? {
        return Ok(false);
    }
    let renamed = match over {
        Some(over) if !over.is_named(to)? => return Ok(false),
        Some(_) => disk.rename(from, to),
        None => disk.rename_new(from, to),
    };
    match renamed {
        Err(error) if error.kind() == ErrorKind::FileNotFound => Ok(false),
        renamed => renamed.map(|()| true),
    }
}
