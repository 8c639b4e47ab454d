//! The one error type of the engine.
//!
//! Rank 1. An [`Error`] is a pointer: a kind that programs match on, a sentence for people, and the
//! source where there is one. Keys and values never appear in it. `Send + Sync + 'static`.

#![warn(missing_debug_implementations, clippy::must_use_candidate)]

use crate::types::{PageId, TreeId};
use std::fmt;
use std::io;
use std::path::Path;

/// Shorthand for results of the engine.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What to do where there is not as much memory as the limit says. Ends the message.
pub(crate) const LOWER_LIMIT: &str =
    "set a smaller memory limit (`memory_limit_bytes`, `--memory-limit`)";
/// What to do where the limit does not suffice. Ends the message.
pub(crate) const RAISE_LIMIT: &str =
    "set a larger memory limit (`memory_limit_bytes`, `--memory-limit`)";

/// What went wrong, for programs to match on. Each kind has one meaning, and one thing that a caller can do about it.
///
/// [`code`](ErrorKind::code) and [`name`](ErrorKind::name) are stable: a later version adds kinds and never gives an old code
/// or name another meaning. The fields of a kind are details for people and logs.
///
/// | code | name | what to do |
/// | ---: | --- | --- |
/// | 1 | `io` | look at the system's error ([`Error::io_error`]) |
/// | 2 | `corrupted` | restore a backup, or [`Options::repair`](crate::Options::repair) |
/// | 3 | `not_a_store` | check the path |
/// | 4 | `upgrade_required` | dump the file with the version that wrote it, or use a newer version of Hedgerow |
/// | 5 | `locked` | close the store elsewhere, or try again later |
/// | 6 | `file_not_found` | check the path, or create the store |
/// | 7 | `directory_not_found` | create the directory |
/// | 8 | `file_exists` | choose another path, or remove what is there |
/// | 9 | `keyspace_not_found` | create the keyspace, with the database open for writing |
/// | 10 | `keyspace_exists` | open the keyspace instead |
/// | 11 | `keyspace_not_empty` | put the records one by one, or load them into a new keyspace |
/// | 12 | `keyspace_dropped` | get a new handle |
/// | 13 | `foreign_keyspace` | correct the program: a batch, a snapshot or a transaction belongs to one database |
/// | 14 | `too_many_keyspaces` | copy the records to a new store |
/// | 15 | `log_missing` | put the log back, or [`Options::repair`](crate::Options::repair) |
/// | 16 | `foreign_log` | move that file away, or put back the store that it belongs to |
/// | 17 | `not_closed` | open the store for writing and close it |
/// | 18 | `key_too_long` | use shorter keys |
/// | 19 | `record_too_large` | use a shorter key or value; in memory, larger pages help too |
/// | 20 | `batch_too_large` | split the batch; below 1 GiB a larger [`Options::log_limit_bytes`](crate::Options::log_limit_bytes) helps, too |
/// | 21 | `not_sorted` | sort the records |
/// | 22 | `length_mismatch` | announce the length that is written |
/// | 23 | `writer_failed` | begin the value again, with a new writer |
/// | 24 | `invalid_option` | change the option that the message names |
/// | 25 | `invalid_argument` | correct the argument that the message names |
/// | 26 | `invalid_name` | choose another name for the keyspace |
/// | 27 | `read_only` | open the database for writing |
/// | 28 | `in_memory` | use a database in a file |
/// | 29 | `memory_limit` | raise or lower the memory limit, as the message says |
/// | 30 | `disk_full` | make room on the disk, and try again |
/// | 31 | `poisoned` | close the database and open it again |
/// | 32 | `durability_unknown` | open the database again, and look whether the change is there |
/// | 33 | `batch_unfinished` | open the database again: that finishes the batch |
/// | 34 | `timeout` | try again, with a new cursor or iterator |
/// | 35 | `cancelled` | nothing: the caller asked for it |
/// | 36 | `closed` | open the database again |
/// | 37 | `forked_process` | open the store in this process |
/// | 38 | `would_block` | try again later, with a new cursor or iterator, or allow the handle to wait |
/// | 39 | `not_yet_durable` | nothing, or wait again with [`Database::sync_within`](crate::Database::sync_within): the change is made |
/// | 40 | `snapshot_too_old` | begin another snapshot; hold it for less time, or raise the memory limit |
/// | 41 | `conflict` | run the transaction again: [`Database::transact`](crate::Database::transact) does so |
/// | 42 | `transaction_ended` | begin another one |
/// | 43 | `transaction_too_large` | divide the transaction; below 1 GiB a larger [`Options::log_limit_bytes`](crate::Options::log_limit_bytes) helps, too; without a log a larger memory limit |
///
/// ```
/// use hedgerow::{ErrorKind, Options};
///
/// let error = Options::new().open("no/such/store.hrow").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::FileNotFound);
/// assert_eq!((error.kind().code(), error.kind().name()), (6, "file_not_found"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Reading or writing failed. [`Error::io_error`] is the system's error.
    Io,
    /// The file has bytes that no correct engine wrote there.
    Corrupted {
        /// The damaged page, if the damage lies in one.
        page: Option<PageId>,
        /// Position in the file, in bytes, where it is known.
        offset_bytes: Option<u64>,
    },
    /// What is at the path is not a Hedgerow store: another file, an empty one, a directory, a device.
    NotAStore,
    /// The store was written in another version of the format, or with features that this build lacks.
    UpgradeRequired {
        /// The format version found in the file.
        found: u32,
    },
    /// The store is open elsewhere, in this process or in another one.
    Locked {
        /// Process that holds it, where the system tells.
        holder_pid: Option<u32>,
    },
    /// There is no file at the path.
    FileNotFound,
    /// The directory in which a file was to be created does not exist.
    DirectoryNotFound,
    /// Something is at the path where a file was to be created.
    FileExists,
    /// There is no keyspace of that name, to rename or to swap, or none can be created because the database is open for reading only; or the
    /// keyspace came later than the snapshot.
    KeyspaceNotFound,
    /// There is a keyspace of that name already.
    KeyspaceExists,
    /// A bulk load needs an empty keyspace, and this one has records.
    KeyspaceNotEmpty,
    /// The keyspace was dropped while this handle was held.
    KeyspaceDropped,
    /// The keyspace belongs to another database than the batch, the snapshot or the transaction.
    ForeignKeyspace,
    /// The store has given out all 2^32 ids of keyspaces. Ids are not used again.
    TooManyKeyspaces,
    /// The store was not closed, and the log beside it, which has its last changes, is not there.
    LogMissing,
    /// The file at the name of the store's log is not this store's log, or it belongs to a later copy of the store. The file is
    /// not changed.
    ForeignLog,
    /// The store was not closed, and its log has changes that are in no checkpoint. The call needs them in a checkpoint, and
    /// cannot take one because the store is open for reading only.
    NotClosed,
    /// A key has more than 65,536 bytes.
    KeyTooLong {
        /// Length of the key in bytes.
        len_bytes: usize,
        /// The longest there is.
        max_bytes: usize,
    },
    /// Key and value together are larger than this store can hold.
    RecordTooLarge {
        /// Length of key and value in bytes; for a value too long for a leaf, of it and the part of a long key in front.
        len_bytes: usize,
        /// The largest such length that fits.
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
    /// A streamed value got more or fewer bytes than the length that was announced.
    LengthMismatch,
    /// An earlier write of this writer of a value failed, and its bytes are lost.
    WriterFailed,
    /// An option cannot be used here. The message says which and why.
    InvalidOption,
    /// An argument is outside of its range. The message says which and why.
    InvalidArgument,
    /// The name of a keyspace is empty or too long.
    InvalidName,
    /// The database is open for reading only, and the call would change it.
    ReadOnly,
    /// The database lives in memory, and the call needs one in a file.
    InMemory,
    /// The memory limit leaves no room for what was asked, or the system refused memory.
    MemoryLimit,
    /// The file system has no room. The store stays readable, and takes changes again once there is room.
    DiskFull,
    /// An earlier write or sync failed. Nothing may be written any more; reads go on.
    Poisoned,
    /// The log could not be written while the change waited to be durable. The change is in effect, and it is unknown whether a
    /// crash would keep it.
    DurabilityUnknown,
    /// A batch or a transaction was logged but could not be applied completely. Reads go on, and see what was there before it. No more
    /// changes are accepted, and the next open completes it.
    BatchUnfinished,
    /// The call waited for other threads, or for room, for as long as it may, and gave up: for as long as its handle's
    /// [`Wait`](crate::Wait) says, or as the engine lets any call wait. Nothing has changed, but for a first part of `remove_range`, and of a large batch without a log.
    Timeout,
    /// The progress function of the caller returned `Break`, or the token of the handle's [`Wait`](crate::Wait) was cancelled. A change of
    /// records was not made, but for a first part of `remove_range`, and of a large batch without a log.
    Cancelled,
    /// The database was closed.
    Closed,
    /// The database was opened by the parent of this forked process. Nothing was done, and the parent's store is untouched. A child may
    /// open stores of its own.
    ForkedProcess,
    /// The call would have had to wait, and its handle says [`Wait::Never`](crate::Wait::Never). Nothing has changed,
    /// but for a first part of `remove_range`, and of a large batch without a log.
    WouldBlock,
    /// The change is made, all of it, and is in the log; the call has not waited until it was durable, because its
    /// [`Wait`](crate::Wait) ended first. It becomes durable like a change with [`Durability::Buffered`](crate::Durability::Buffered).
    /// Making the change once more would be a second change.
    NotYetDurable,
    /// The snapshot was open for so long, and so much has changed meanwhile, that what it saw is not there any more; or it is older than
    /// [`Options::max_snapshot_age`](crate::Options::max_snapshot_age).
    SnapshotTooOld,
    /// Another change came between what the transaction has read and its commit. Nothing has changed. [`Error::conflict`] says where.
    Conflict,
    /// The transaction was committed or aborted before.
    TransactionEnded,
    /// The transaction changes more than can be committed: nearly an eighth of [`Options::log_limit_bytes`](crate::Options::log_limit_bytes), and 128 MiB; or, without a log, a sixteenth of
    /// the memory limit, or more changes or more leaves read than one stroke takes (as for a small [`WriteBatch`](crate::WriteBatch)).
    TransactionTooLarge {
        /// Bytes of its changes.
        len_bytes: u64,
        /// The most that a transaction may have.
        max_bytes: u64,
    },
}

impl ErrorKind {
    /// The stable number of this kind, for bindings to other languages. Never zero.
    #[must_use]
    pub const fn code(self) -> u32 {
        self.code_and_name().0
    }

    /// The stable name of this kind, in `snake_case`, for logs and for bindings to other languages.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.code_and_name().1
    }

    /// Nothing has changed, and the same call may succeed later: `Locked`, `DiskFull`, `Timeout`, `WouldBlock`; and `Conflict` and
    /// `SnapshotTooOld`, after which the whole transaction is run again, or another snapshot is begun. As those kinds say, a first part of
    /// `remove_range`, and of a large batch without a log, may have been made.
    ///
    /// Not `MemoryLimit`, which may last, and not `NotYetDurable`, whose change is made. A retry is a new call from the beginning: an iterator
    /// has ended after an error, so another one is begun, a [`ValueWriter`](crate::ValueWriter) has to be begun again, and `put_stream`
    /// needs its reader at the beginning.
    #[must_use]
    pub const fn is_retryable(self) -> bool {
        use ErrorKind::{Conflict, DiskFull, Locked, SnapshotTooOld, Timeout, WouldBlock};
        matches!(self, Locked { .. } | DiskFull | Timeout | WouldBlock | Conflict | SnapshotTooOld)
    }

    const fn code_and_name(self) -> (u32, &'static str) {
        match self {
            ErrorKind::Io => (1, "io"),
            ErrorKind::Corrupted { .. } => (2, "corrupted"),
            ErrorKind::NotAStore => (3, "not_a_store"),
            ErrorKind::UpgradeRequired { .. } => (4, "upgrade_required"),
            ErrorKind::Locked { .. } => (5, "locked"),
            ErrorKind::FileNotFound => (6, "file_not_found"),
            ErrorKind::DirectoryNotFound => (7, "directory_not_found"),
            ErrorKind::FileExists => (8, "file_exists"),
            ErrorKind::KeyspaceNotFound => (9, "keyspace_not_found"),
            ErrorKind::KeyspaceExists => (10, "keyspace_exists"),
            ErrorKind::KeyspaceNotEmpty => (11, "keyspace_not_empty"),
            ErrorKind::KeyspaceDropped => (12, "keyspace_dropped"),
            ErrorKind::ForeignKeyspace => (13, "foreign_keyspace"),
            ErrorKind::TooManyKeyspaces => (14, "too_many_keyspaces"),
            ErrorKind::LogMissing => (15, "log_missing"),
            ErrorKind::ForeignLog => (16, "foreign_log"),
            ErrorKind::NotClosed => (17, "not_closed"),
            ErrorKind::KeyTooLong { .. } => (18, "key_too_long"),
            ErrorKind::RecordTooLarge { .. } => (19, "record_too_large"),
            ErrorKind::BatchTooLarge { .. } => (20, "batch_too_large"),
            ErrorKind::NotSorted => (21, "not_sorted"),
            ErrorKind::LengthMismatch => (22, "length_mismatch"),
            ErrorKind::WriterFailed => (23, "writer_failed"),
            ErrorKind::InvalidOption => (24, "invalid_option"),
            ErrorKind::InvalidArgument => (25, "invalid_argument"),
            ErrorKind::InvalidName => (26, "invalid_name"),
            ErrorKind::ReadOnly => (27, "read_only"),
            ErrorKind::InMemory => (28, "in_memory"),
            ErrorKind::MemoryLimit => (29, "memory_limit"),
            ErrorKind::DiskFull => (30, "disk_full"),
            ErrorKind::Poisoned => (31, "poisoned"),
            ErrorKind::DurabilityUnknown => (32, "durability_unknown"),
            ErrorKind::BatchUnfinished => (33, "batch_unfinished"),
            ErrorKind::Timeout => (34, "timeout"),
            ErrorKind::Cancelled => (35, "cancelled"),
            ErrorKind::Closed => (36, "closed"),
            ErrorKind::ForkedProcess => (37, "forked_process"),
            ErrorKind::WouldBlock => (38, "would_block"),
            ErrorKind::NotYetDurable => (39, "not_yet_durable"),
            ErrorKind::SnapshotTooOld => (40, "snapshot_too_old"),
            ErrorKind::Conflict => (41, "conflict"),
            ErrorKind::TransactionEnded => (42, "transaction_ended"),
            ErrorKind::TransactionTooLarge { .. } => (43, "transaction_too_large"),
        }
    }
}

/// The [name](ErrorKind::name).
impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the engine tells itself by an error. No caller gets one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// A page was freed meanwhile.
    PageFreed,
    /// A change has to wait with nothing held: somebody else changes records alone, or there is no room for old versions.
    Gated,
}

struct Inner {
    kind: ErrorKind,
    message: String,
    source: Option<io::Error>,
    conflict: Option<Conflict>,
    signal: Option<Signal>,
    /// The sentence names the place that could not be read.
    names_place: bool,
}

/// Where a conflict was.
#[derive(Clone)]
struct Conflict {
    tree: TreeId,
    /// Empty as long as nobody has said it.
    keyspace: String,
    key: Vec<u8>,
}

/// An error of the engine: a [kind](Error::kind) for programs, a sentence for people, and the system's error if there is one.
///
/// It never shows keys or values. It is one pointer in size, `Send`, `Sync` and `'static`.
pub struct Error(Box<Inner>);

impl Error {
    /// An error of `kind` with a sentence for people (lower case, no full stop).
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::with(kind, message.into(), None)
    }

    fn with(kind: ErrorKind, message: String, source: Option<io::Error>) -> Error {
        let (conflict, signal, names_place) = (None, None, false);
        Error(Box::new(Inner { kind, message, source, conflict, signal, names_place }))
    }

    /// An error of a failed system call, with what was tried. Its kind is [`ErrorKind::DiskFull`] if `source` says that there is no
    /// space, otherwise [`ErrorKind::Io`].
    #[cold]
    pub fn io(what: impl Into<String>, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => ErrorKind::DiskFull,
            _ => ErrorKind::Io,
        };
        Error::with(kind, what.into(), Some(source))
    }

    internal! {
        /// See [`Signal`]. To whoever does not ask for it, it is a conflict.
        #[cold]
        fn signalling(signal: Signal, what: impl Into<String>) -> Error {
            let mut error = Error::new(ErrorKind::Conflict, what);
            error.0.signal = Some(signal);
            error
        }
    }

    internal! {
        /// What the engine tells itself by it.
        #[must_use]
        fn signal(&self) -> Option<Signal> {
            self.0.signal
        }
    }

    /// Whether a part of a store cannot be read, and the rest may be had.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corrupted { .. } | ErrorKind::Io)
    }

    /// A handle of a parent process.
    #[cold]
    #[must_use]
    pub(crate) fn forked() -> Error {
        let what =
            "the database was opened by the parent of this forked process; open it in this process";
        Error::new(ErrorKind::ForkedProcess, what)
    }

    /// Damage in a page.
    #[cold]
    pub(crate) fn corrupted_page(page: PageId, what: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupted { page: Some(page), offset_bytes: None }, what)
    }

    /// Damage at a place in the file.
    #[cold]
    pub(crate) fn corrupted_at(offset_bytes: u64, what: impl Into<String>) -> Error {
        Error::new(ErrorKind::Corrupted { page: None, offset_bytes: Some(offset_bytes) }, what)
    }

    /// The same error, with what failed at `path` in front, unless it names `said`, which is the same place.
    #[cold]
    pub(crate) fn at_path(mut self, doing: &str, path: &Path, said: &Path) -> Error {
        if !self.0.message.contains(&said.display().to_string()) {
            self.0.message = format!("{doing} {}: {}", path.display(), self.0.message);
        }
        self
    }

    /// The sentence of it alone, for who says beside it where the damage is.
    pub(crate) fn message(&self) -> String {
        let source = self.0.source.as_ref().map(|source| format!(": {source}"));
        self.0.message.clone() + &source.unwrap_or_default()
    }

    /// The same error, with the place behind its sentence that could not be read. Damage says its place itself.
    #[cold]
    pub(crate) fn at_place(mut self, page: Option<PageId>, offset_bytes: u64) -> Error {
        if self.kind() == ErrorKind::Io {
            let page = page.map_or_else(String::new, |page| format!("{page} "));
            self.0.message += &format!(", {page}at byte {offset_bytes}");
            self.0.names_place = true;
        }
        self
    }

    /// Whether it is of a read, whose place it names.
    pub(crate) fn names_place(&self) -> bool {
        self.0.names_place
    }

    /// What went wrong, for programs to match on.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Of a [`Conflict`](ErrorKind::Conflict): the keyspace and the key of a record that another change has touched. There may be more. Neither
    /// `Display` nor `Debug` shows them.
    #[must_use]
    pub fn conflict(&self) -> Option<(&str, &[u8])> {
        self.0.conflict.as_ref().map(|conflict| (conflict.keyspace.as_str(), &conflict.key[..]))
    }

    /// A record of a tree was changed.
    #[cold]
    pub(crate) fn conflicting(tree: TreeId, key: &[u8]) -> Error {
        let what = "another change came between what the transaction has read and its commit";
        let mut error = Error::new(ErrorKind::Conflict, what);
        error.0.conflict = Some(Conflict { tree, keyspace: String::new(), key: key.to_vec() });
        error
    }

    /// The same error, with the key that `key` says in the place of the one that there is, if it does.
    #[cold]
    pub(crate) fn with_conflicting_key(
        mut self,
        key: impl FnOnce(TreeId, &[u8]) -> Option<Vec<u8>>,
    ) -> Error {
        if let Some(conflict) = &mut self.0.conflict
            && let Some(key) = key(conflict.tree, &conflict.key)
        {
            conflict.key = key;
        }
        self
    }

    /// The same error, with the name of the keyspace that a tree has.
    #[cold]
    pub(crate) fn with_keyspace(mut self, name: impl FnOnce(TreeId) -> String) -> Error {
        if let Some(conflict) = &mut self.0.conflict {
            conflict.keyspace = name(conflict.tree);
        }
        self
    }

    /// The system's error that caused this one, if there is one. Its text is a part of this error's text.
    #[must_use]
    pub fn io_error(&self) -> Option<&io::Error> {
        self.0.source.as_ref()
    }

    /// The number (`errno`) of the system's error that caused this one, if there is one.
    #[must_use]
    pub fn os_error(&self) -> Option<i32> {
        self.0.source.as_ref().and_then(io::Error::raw_os_error)
    }

    /// A second error of the same kind and message, for several waiters for one call. The system's error keeps its number.
    #[must_use]
    pub fn duplicate(&self) -> Error {
        let source = self.0.source.as_ref().map(|e| match e.raw_os_error() {
            Some(code) => io::Error::from_raw_os_error(code),
            None => io::Error::new(e.kind(), e.to_string()),
        });
        let (message, conflict) = (self.0.message.clone(), self.0.conflict.clone());
        Error(Box::new(Inner {
            kind: self.0.kind,
            message,
            source,
            conflict,
            signal: self.0.signal,
            names_place: self.0.names_place,
        }))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.kind {
            ErrorKind::Corrupted { page, offset_bytes } => match (page, offset_bytes) {
                (Some(page), Some(offset)) => write!(f, " ({page}, at byte {offset})")?,
                (Some(page), None) => write!(f, " ({page})")?,
                (None, Some(offset)) => write!(f, " (at byte {offset})")?,
                (None, None) => {}
            },
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
    /// The source of the system's error. The system's error itself is in the text of this one, and a program that prints the
    /// whole chain would show it twice; [`Error::io_error`] returns it.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().and_then(|error| error.source())
    }
}

/// For programs that work with [`std::io`]: the system's kind if a system call failed, else the nearest one.
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match (error.kind(), error.io_error().map(io::Error::kind)) {
            (ErrorKind::Corrupted { .. } | ErrorKind::NotAStore, _) => io::ErrorKind::InvalidData,
            // `std::io` retries this kind without end.
            (_, Some(io::ErrorKind::Interrupted)) => io::ErrorKind::Other,
            (_, Some(kind)) => kind,
            (
                ErrorKind::FileNotFound
                | ErrorKind::DirectoryNotFound
                | ErrorKind::KeyspaceNotFound
                | ErrorKind::LogMissing,
                _,
            ) => io::ErrorKind::NotFound,
            (ErrorKind::FileExists | ErrorKind::KeyspaceExists | ErrorKind::ForeignLog, _) => {
                io::ErrorKind::AlreadyExists
            }
            (ErrorKind::DiskFull, _) => io::ErrorKind::StorageFull,
            (
                ErrorKind::InvalidOption
                | ErrorKind::InvalidArgument
                | ErrorKind::InvalidName
                | ErrorKind::ForeignKeyspace
                | ErrorKind::LengthMismatch
                | ErrorKind::NotSorted
                | ErrorKind::KeyTooLong { .. }
                | ErrorKind::RecordTooLarge { .. }
                | ErrorKind::BatchTooLarge { .. }
                | ErrorKind::TransactionTooLarge { .. },
                _,
            ) => io::ErrorKind::InvalidInput,
            (ErrorKind::Locked { .. }, _) => io::ErrorKind::ResourceBusy,
            (ErrorKind::MemoryLimit, _) => io::ErrorKind::OutOfMemory,
            (ErrorKind::InMemory, _) => io::ErrorKind::Unsupported,
            (ErrorKind::ReadOnly, _) => io::ErrorKind::ReadOnlyFilesystem,
            (ErrorKind::Timeout, _) => io::ErrorKind::TimedOut,
            (ErrorKind::WouldBlock, _) => io::ErrorKind::WouldBlock,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests;
