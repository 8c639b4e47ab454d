//! The one error type of the engine.
//!
//! Rank 1. An [`Error`] is a pointer: a kind that programs match on, a sentence for people, and the
//! source where there is one. Keys and values never appear in it. `Send + Sync + 'static`.

use crate::types::PageId;
use std::fmt;
use std::io;

/// Shorthand for results of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do where there is not as much memory as the limit says. Ends the message.
pub(crate) const LOWER_LIMIT: &str =
    "set a smaller memory limit (`memory_limit_bytes`, `--memory-limit`)";
/// What to do where the limit does not suffice. Ends the message.
pub(crate) const RAISE_LIMIT: &str =
    "set a larger memory limit (`memory_limit_bytes`, `--memory-limit`)";

/// What went wrong, for programs to match on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Reading or writing failed; the source is the system's error.
    Io,
    /// The file has bytes that no correct engine wrote there. The page is named where it is known.
    Corrupted {
        /// The damaged page, if the damage lies in one.
        page: Option<PageId>,
        /// Position in the file, in bytes, where it is known.
        offset_bytes: Option<u64>,
    },
    /// The file is not a Hedgerow store at all.
    NotAStore,
    /// The store was written by a newer format version or with features that this build lacks.
    UpgradeRequired {
        /// The format version found in the file.
        found: u32,
    },
    /// The store is open elsewhere, in this process or in another one.
    Locked {
        /// Process that holds it, where the system tells.
        holder_pid: Option<u32>,
    },
    /// There is no store at that path, no directory for it, or no keyspace of that name.
    NotFound,
    /// The store was not closed, and the log beside it, which has its last changes, is not there. Put it back; what the
    /// store has without it [`Options::repair`](crate::Options::repair) takes out.
    LogMissing,
    /// Something is there already: what was to be created, records where a bulk load goes, or at the log's name what is
    /// not this store's log, or is that of a later copy of its file.
    AlreadyExists,
    /// The keyspace was dropped while this handle was held.
    KeyspaceDropped,
    /// A key is longer than a page of this store can hold.
    KeyTooLong {
        /// Length of the key in bytes.
        len_bytes: usize,
        /// The longest that fits.
        max_bytes: usize,
    },
    /// Key and value together are larger than a page of this store can hold.
    RecordTooLarge {
        /// Length of key and value in bytes.
        len_bytes: usize,
        /// The longest that fits.
        max_bytes: usize,
    },
    /// A batch is larger than the log's limit allows for.
    BatchTooLarge {
        /// Bytes of the log that it would take.
        len_bytes: u64,
        /// The most that a batch may take.
        max_bytes: u64,
    },
    /// Keys of a bulk load were not strictly ascending.
    NotSorted,
    /// The handle was opened read-only.
    ReadOnly,
    /// An option has a value that cannot be used; the message says which and why.
    InvalidOption,
    /// The memory limit leaves no room for what was asked.
    MemoryLimit,
    /// The file system has no room; the store stays readable, and works on once there is space.
    DiskFull,
    /// An earlier write or sync failed, so that nothing may be written any more. Reads go on.
    Poisoned,
    /// The log could not be written while the change waited to be durable: it is in effect, and nobody knows
    /// whether a crash would keep it.
    Unknown,
    /// A bounded wait ended without success.
    Timeout,
    /// The caller's own progress function said to stop.
    Cancelled,
    /// The handle was closed.
    Closed,
    /// The handle was opened by another process, and this one was forked from it. Nothing was done, and the parent's store is
    /// untouched. A child that wants stores of its own should `exec` first.
    ForkedProcess,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<io::Error>,
}

/// An error of the engine: a [kind](Error::kind), a message, and perhaps a source.
pub struct Error(Box<Inner>);

impl Error {
    /// An error of `kind` with a sentence for people (lower case, no full stop).
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, message: message.into(), source: None }))
    }

    /// A failed system call. Out of space becomes [`ErrorKind::DiskFull`].
    #[cold]
    pub fn io(what: impl Into<String>, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => ErrorKind::DiskFull,
            _ => ErrorKind::Io,
        };
        Error(Box::new(Inner { kind, message: what.into(), source: Some(source) }))
    }

    /// A handle of a parent process.
    #[cold]
    pub fn forked() -> Error {
        let what =
            "the database was opened by a process from which this one was forked; open it here";
        Error::new(ErrorKind::ForkedProcess, what)
    }

    /// Damage in a page.
    #[cold]
    pub fn corrupted_page(page: PageId, what: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupted { page: Some(page), offset_bytes: None }, what)
    }

    /// Damage at a place in the file.
    #[cold]
    pub fn corrupted_at(offset_bytes: u64, what: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupted { page: None, offset_bytes: Some(offset_bytes) }, what)
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The system's error behind this one, where there is one. What it says is a part of what this one says.
    pub fn io_error(&self) -> Option<&io::Error> {
        self.0.source.as_ref()
    }

    /// The system's error number behind this error, where there is one.
    pub fn os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// A second error of the same kind and message, for a further waiter of the same failed call.
    /// The source keeps its system error number.
    pub fn duplicate(&self) -> Error {
        let source = self.0.source.as_ref().map(|e| match e.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(e.kind(), e.to_string()),
        });
        Error(Box::new(Inner {
            kind: self.0.kind.clone(),
            message: self.0.message.clone(),
            source,
        }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.kind {
            ErrorKind::Corrupted { page, offset_bytes } => {
                if let Some(page) = page {
                    write!(f, " ({page})")?;
                }
                if let Some(offset) = offset_bytes {
                    write!(f, " (at byte {offset})")?;
                }
            }
            ErrorKind::Locked { holder_pid: Some(pid) } => write!(f, " (held by process {pid})")?,
            _ => {}
        }
        if let Some(source) = &self.0.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl std::error::Error for Error {
    /// What is behind the system's error: that one is in the words of this one already, and whoever prints all errors of a
    /// chain would have it twice. [`Error::io_error`] has it.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().and_then(|error| error.source())
    }
}

/// As who works with files expects it: of the system's kind where there was a call that failed, and of the nearest where not.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match (error.kind(), error.io_error().map(io::Error::kind)) {
            (ErrorKind::Corrupted { .. } | ErrorKind::NotAStore, _) => io::ErrorKind::InvalidData,
            // Who reads on through `io` would do so for ever.
            (_, Some(io::ErrorKind::Interrupted)) => io::ErrorKind::Other,
            (_, Some(kind)) => kind,
            (ErrorKind::NotFound, _) => io::ErrorKind::NotFound,
            (ErrorKind::AlreadyExists, _) => io::ErrorKind::AlreadyExists,
            (ErrorKind::DiskFull, _) => io::ErrorKind::StorageFull,
            (ErrorKind::InvalidOption, _) => io::ErrorKind::InvalidInput,
            (ErrorKind::Timeout, _) => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn a_chain_of_errors_has_each_once_and_the_system_s_can_be_had() {
        let error = Error::io("cannot read the file", io::Error::from_raw_os_error(5));
        assert!(error.to_string().starts_with("cannot read the file: "), "{error}");
        assert!(error.to_string().ends_with("(os error 5)"), "{error}");
        assert!(error.source().is_none(), "it has been said");
        assert_eq!(error.io_error().and_then(io::Error::raw_os_error), Some(5));
        assert_eq!(error.os_error(), Some(5));
        let behind = io::Error::other(Error::new(ErrorKind::Closed, "closed"));
        assert!(Error::io("cannot read", behind).source().is_none());
    }

    #[test]
    fn as_an_error_of_the_system_it_keeps_its_kind_and_its_words() {
        for (kind, expected) in [
            (ErrorKind::NotFound, io::ErrorKind::NotFound),
            (ErrorKind::DiskFull, io::ErrorKind::StorageFull),
            (ErrorKind::NotAStore, io::ErrorKind::InvalidData),
            (ErrorKind::Closed, io::ErrorKind::Other),
        ] {
            let error = io::Error::from(Error::new(kind, "what was said"));
            assert_eq!((error.kind(), error.to_string()), (expected, "what was said".to_owned()));
        }
        for (system, expected) in [
            (io::ErrorKind::PermissionDenied, io::ErrorKind::PermissionDenied),
            (io::ErrorKind::QuotaExceeded, io::ErrorKind::QuotaExceeded),
            (io::ErrorKind::Interrupted, io::ErrorKind::Other),
        ] {
            assert_eq!(io::Error::from(Error::io("cannot write", system.into())).kind(), expected);
        }
    }
}
