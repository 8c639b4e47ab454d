//! A disk in memory whose writes and syncs can be held up, those of the store's file and those of its log apart, and whose reads can be met by something
//! else.
//!
//! `Send + Sync`. A call that is held up goes on when the disk is let go.

use crate::error::Result;
use crate::storage::{DirectIo, Disk, File, LockOutcome, OpenMode, ReadRequest, WriteRequest};
use crate::testing::RamDisk;
use hedgerow_sync::primitive::{Arc, Condvar, Mutex};
use std::path::{Path, PathBuf};

/// Which of the two files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Of {
    Store,
    Log,
}

/// Called before each read.
type Hook = Box<dyn FnMut() + Send>;

/// What is held up, and what comes between.
#[derive(Default)]
struct Gate {
    shut: Mutex<[bool; 2]>,
    opened: Condvar,
    on_read: Mutex<Option<Hook>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}

impl Gate {
    fn pass(&self, of: Of) {
        let mut shut = self.shut.lock();
        while shut[of as usize] {
            self.opened.wait(&mut shut);
        }
    }

    fn meet_read(&self) {
        if let Some(hook) = &mut *self.on_read.lock() {
            hook();
        }
    }
}

/// See the head of the file.
#[derive(Clone, Debug, Default)]
pub(in crate::database) struct StalledDisk {
    disk: RamDisk,
    gate: Arc<Gate>,
}

/// While it lives, a file is held up.
#[must_use]
pub(super) struct Stalled<'d>(&'d StalledDisk, Of);

impl StalledDisk {
    /// Calls `hook` before each read from now on.
    pub(in crate::database) fn on_read(&self, hook: Option<Hook>) {
        *self.gate.on_read.lock() = hook;
    }

    /// Holds a file up.
    pub(super) fn stall(&self, of: Of) -> Stalled<'_> {
        self.gate.shut.lock()[of as usize] = true;
        Stalled(self, of)
    }
}

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        self.0.gate.shut.lock()[self.1 as usize] = false;
        self.0.gate.opened.notify_all();
    }
}

#[rustfmt::skip]
impl Disk for StalledDisk {
    fn share(&self) -> Arc<dyn Disk> { Arc::new(self.clone()) }
    fn open(&self, path: &Path, mode: OpenMode, direct: DirectIo) -> Result<Arc<dyn File>> {
        // A new log has another name until it is whole.
        let of = if path.to_string_lossy().contains("-log") { Of::Log } else { Of::Store };
        let file = self.disk.open(path, mode, direct)?;
        Ok(Arc::new(StalledFile { file, of, gate: self.gate.clone() }))
    }
    fn exists(&self, path: &Path) -> Result<bool> { self.disk.exists(path) }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> { self.disk.rename(from, to) }
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> { self.disk.rename_new(from, to) }
    fn resolve(&self, path: &Path) -> Result<PathBuf> { self.disk.resolve(path) }
    fn unlink(&self, path: &Path) -> Result<()> { self.disk.unlink(path) }
    fn sync_dir(&self, path: &Path) -> Result<()> { self.disk.sync_dir(path) }
}

#[derive(Debug)]
struct StalledFile {
    file: Arc<dyn File>,
    of: Of,
    gate: Arc<Gate>,
}

#[rustfmt::skip]
impl File for StalledFile {
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> { self.gate.pass(self.of); self.file.write_at(offset_bytes, buf) }
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> { self.gate.pass(self.of); self.file.write_batch(requests) }
    fn sync_data(&self) -> Result<()> { self.gate.pass(self.of); self.file.sync_data() }
    fn sync_all(&self) -> Result<()> { self.gate.pass(self.of); self.file.sync_all() }
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> { self.file.allocate(offset_bytes, len_bytes) }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.gate.meet_read(); self.file.read_at(offset_bytes, buf) }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) { self.gate.meet_read(); self.file.read_batch(requests); }
    fn len_bytes(&self) -> Result<u64> { self.file.len_bytes() }
    fn set_len(&self, len_bytes: u64) -> Result<()> { self.file.set_len(len_bytes) }
    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> { self.file.punch_hole(offset_bytes, len_bytes) }
    fn allocated_bytes(&self) -> Result<u64> { self.file.allocated_bytes() }
    fn block_bytes(&self) -> usize { self.file.block_bytes() }
    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> { self.file.try_lock(exclusive) }
    fn is_at(&self, path: &Path) -> Result<bool> { self.file.is_at(path) }
    fn unlock(&self) -> Result<()> { self.file.unlock() }
    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.file.read_unaligned(offset_bytes, buf) }
}
