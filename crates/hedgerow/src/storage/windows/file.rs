//! An open file of Windows.
//!
//! Rank 1. Invariants: nobody uses the handle's own position; the file is made longer by one thread at a time; what the
//! handle has locked is what `held` says. `Send + Sync`.

use super::system::{self, Identity};
use super::{failed, is_no_path, is_refused};
use crate::error::{Error, Result};
use crate::storage::errno::Errno;
use crate::storage::transfer::{self, ReadEnd};
use crate::storage::{
    File, LockOutcome, MAX_OFFSET, ReadRequest, WriteRequest, ends_early, opened_read_only,
    parent_directory,
};
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering};
use hedgerow_sync::primitive::{Mutex, RwLock};
use std::fs::OpenOptions;
use std::io;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_BACKUP_SEMANTICS, FILE_FLAG_OPEN_REPARSE_POINT,
};

pub(super) struct RealFile {
    file: std::fs::File,
    /// For the words of errors, and to ask for the room on its volume.
    path: RwLock<PathBuf>,
    writable: bool,
    /// It is the same as long as the file is open.
    identity: Identity,
    /// Held from a look at the length to what makes it longer.
    extending: Mutex<()>,
    /// What this handle has locked: exclusively or not.
    held: Mutex<Option<bool>>,
    /// The file may have holes. Relaxed: the file's own attribute is what counts.
    is_sparse: AtomicBool,
}

impl std::fmt::Debug for RealFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RealFile({}, buffered)", self.path.read().display())
    }
}

impl Drop for RealFile {
    /// Unlocks expressly: Windows gives the lock of a closed handle back when it comes to it.
    fn drop(&mut self) {
        if self.held.lock().is_some() {
            // A failure has nobody to be told to, and closing, which follows, unlocks as well.
            system::unlock(&self.file).ok();
        }
    }
}

impl RealFile {
    /// Errors: those of the system, if it does not tell which file it is.
    pub(super) fn new(file: std::fs::File, path: &Path, writable: bool) -> io::Result<RealFile> {
        Ok(RealFile {
            identity: system::identity(&file)?,
            file,
            path: RwLock::new(path.to_owned()),
            writable,
            extending: Mutex::new(()),
            held: Mutex::new(None),
            is_sparse: AtomicBool::new(false),
        })
    }

    #[cold]
    fn failed(&self, what: &str, source: io::Error) -> Error {
        failed(what, &self.path.read(), source)
    }

    fn require_writable(&self) -> Result<()> {
        if self.writable { Ok(()) } else { Err(opened_read_only()) }
    }

    /// Whether what `path` leads to, by a symbolic link or not, is this file.
    #[allow(clippy::disallowed_methods, reason = "this module is the door to the file system")]
    fn is_same(&self, path: &Path, flags: u32) -> Result<bool> {
        // No access is asked for but to what the system knows of a file.
        let mut options = OpenOptions::new();
        options.access_mode(0).custom_flags(FILE_FLAG_BACKUP_SEMANTICS | flags);
        match options.open(path).and_then(|there| system::identity(&there)) {
            Ok(there) => Ok(self.identity == there),
            Err(source) if is_no_path(&source) || is_refused(&source) => Ok(false),
            Err(source) => Err(failed("examine", path, source)),
        }
    }
}

impl File for RealFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        let wanted = buf.len();
        let read = |buf: &mut [u8], at| self.file.seek_read(buf, at).map_err(Errno::from);
        match transfer::read_fully(offset_bytes, buf, wanted, 1, read) {
            ReadEnd::Done => Ok(()),
            ReadEnd::EndOfFile => Err(ends_early(self.len_bytes()?, offset_bytes, wanted)),
            ReadEnd::Failed(errno) => Err(self.failed("read", errno.into())),
        }
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> {
        self.require_writable()?;
        let write = |buf: &[u8], at| self.file.seek_write(buf, at).map_err(Errno::from);
        transfer::write_fully(offset_bytes, buf, 1, write)
            .map_err(|errno| self.failed("write", errno.into()))
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.offset_bytes, request.buf);
        }
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        self.require_writable()?;
        requests.iter().try_for_each(|request| self.write_at(request.offset_bytes, request.buf))
    }

    fn len_bytes(&self) -> Result<u64> {
        let found = self.file.metadata().map_err(|source| self.failed("examine", source))?;
        Ok(found.len())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.require_writable()?;
        if len_bytes > MAX_OFFSET {
            return Err(self.failed("resize", Errno::FBIG.into()));
        }
        self.file.set_len(len_bytes).map_err(|source| self.failed("resize", source))
    }

    /// A longer length is room that NTFS has taken, unless the file may have holes.
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.require_writable()?;
        let end = offset_bytes.saturating_add(len_bytes);
        // One at a time: who has looked before another made it longer would cut off what that one has written since.
        let _extending = self.extending.lock();
        if len_bytes > 0 && end > self.len_bytes()? { self.set_len(end) } else { Ok(()) }
    }

    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        self.require_writable()?;
        if len_bytes == 0 {
            return Ok(true);
        }
        let end = offset_bytes.saturating_add(len_bytes).min(MAX_OFFSET);
        let mut punched = Ok(());
        if !self.is_sparse.load(Ordering::Relaxed) {
            punched = system::make_sparse(&self.file);
            self.is_sparse.store(punched.is_ok(), Ordering::Relaxed);
        }
        match punched.and_then(|()| system::zero(&self.file, offset_bytes, end)) {
            Ok(()) => Ok(true),
            Err(source) if is_refused(&source) => Ok(false),
            Err(source) => Err(self.failed("punch a hole into", source)),
        }
    }

    fn sync_data(&self) -> Result<()> {
        self.sync_all()
    }

    fn sync_all(&self) -> Result<()> {
        match self.file.sync_all() {
            // Whoever may not write has nothing to make durable.
            Err(_) if !self.writable => Ok(()),
            synced => synced.map_err(|source| self.failed("sync", source)),
        }
    }

    #[cfg(hedgerow_internals)]
    fn allocated_bytes(&self) -> Result<u64> {
        system::allocated_bytes(&self.file).map_err(|source| self.failed("examine", source))
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        // Nothing depends on it but how much is taken ahead.
        Ok(system::free_bytes(parent_directory(&self.path.read())).ok())
    }

    fn block_bytes(&self) -> usize {
        1
    }

    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> {
        let mut held = self.held.lock();
        if *held == Some(exclusive) {
            return Ok(LockOutcome::Held);
        }
        let locked = match held.take() {
            Some(_) => system::unlock(&self.file),
            None => Ok(()),
        };
        match locked.and_then(|()| system::try_lock(&self.file, exclusive)) {
            Ok(true) => {
                *held = Some(exclusive);
                Ok(LockOutcome::Held)
            }
            Ok(false) => Ok(LockOutcome::Busy { holder_pid: None }),
            Err(source) => Err(self.failed("lock", source)),
        }
    }

    fn is_at(&self, path: &Path) -> Result<bool> {
        self.is_same(path, 0)
    }

    fn is_named(&self, path: &Path) -> Result<bool> {
        self.is_same(path, FILE_FLAG_OPEN_REPARSE_POINT)
    }

    fn set_path(&self, path: &Path) {
        path.clone_into(&mut self.path.write());
    }

    fn unlock(&self) -> Result<()> {
        match self.held.lock().take() {
            Some(_) => system::unlock(&self.file).map_err(|source| self.failed("unlock", source)),
            None => Ok(()),
        }
    }

    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        self.read_at(offset_bytes, buf)
    }
}
