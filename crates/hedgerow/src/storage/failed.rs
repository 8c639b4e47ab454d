//! Errors of failed calls on a path.
//!
//! Rank 1. No state.

use crate::error::{Error, ErrorKind};
use rustix::io::Errno;
use std::path::Path;

/// A failed call on a path or a file of that path.
#[cold]
pub(super) fn failed(what: &str, path: &Path, errno: Errno) -> Error {
    Error::io(format!("cannot {what} {}", path.display()), errno.into())
}

/// The same; what users meet often has a kind of its own.
#[cold]
pub(super) fn failed_on_path(what: &str, path: &Path, errno: Errno) -> Error {
    let kind = match errno {
        Errno::NOENT => ErrorKind::FileNotFound,
        Errno::EXIST => ErrorKind::FileExists,
        Errno::ISDIR => ErrorKind::NotAStore,
        _ => return failed(what, path, errno),
    };
    let why = match kind {
        ErrorKind::FileNotFound => "there is no such file",
        ErrorKind::FileExists => "it exists already",
        _ => "it is a directory",
    };
    Error::new(kind, format!("cannot {what} {}: {why}", path.display()))
}
