//! A disk in memory, for temporary stores and for tests: nothing fails, and nothing survives.
//!
//! Each file has a lock of its own over its bytes, so readers run in parallel and writers of
//! different files do. Directories are not modelled: every path may be created. A file lives as long
//! as its path or an open handle does. The bytes are the caller's data, not cache: no memory limit
//! counts them.

use super::sparse::SparseBytes;
use hedgerow::internals::error::{Error, ErrorKind, Result};
use hedgerow::internals::storage::{
    DirectIo, Disk, File, LockOutcome, OpenMode, ReadRequest, WriteRequest, ends_early,
    opened_read_only,
};
use hedgerow_sync::primitive::{Arc, Mutex, RwLock};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct RamDisk {
    files: Arc<Mutex<BTreeMap<PathBuf, Arc<Node>>>>,
}

#[derive(Debug, Default)]
struct Node {
    bytes: RwLock<SparseBytes>,
    lock: Mutex<LockState>,
}

/// Who holds a file's lock: shared by `shared` handles, or by one alone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockState {
    shared: usize,
    exclusive: bool,
}

/// What one handle holds of a [`LockState`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Holding {
    #[default]
    Nothing,
    Shared,
    Exclusive,
}

impl LockState {
    /// Changes what a handle holds, as `flock` does; `false` if others are in the way.
    pub(super) fn acquire(&mut self, holding: &mut Holding, exclusive: bool) -> bool {
        let before = *self;
        self.release(*holding);
        if self.exclusive || (exclusive && self.shared > 0) {
            *self = before;
            return false;
        }
        if exclusive {
            self.exclusive = true;
            *holding = Holding::Exclusive;
        } else {
            self.shared += 1;
            *holding = Holding::Shared;
        }
        true
    }

    /// Gives back what a handle held.
    pub(super) fn release(&mut self, holding: Holding) {
        match holding {
            Holding::Nothing => {}
            Holding::Shared => self.shared -= 1,
            Holding::Exclusive => self.exclusive = false,
        }
    }
}

impl RamDisk {
    /// A disk without files.
    pub fn new() -> RamDisk {
        RamDisk::default()
    }
}

fn missing(path: &Path) -> Error {
    Error::new(ErrorKind::FileNotFound, format!("there is no file {}", path.display()))
}

fn exists_already(path: &Path) -> Error {
    Error::new(ErrorKind::FileExists, format!("{} exists already", path.display()))
}

impl Disk for RamDisk {
    fn share(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, path: &Path, mode: OpenMode, _direct: DirectIo) -> Result<Arc<dyn File>> {
        let mut files = self.files.lock();
        let node = match (files.get(path), mode) {
            (Some(_), OpenMode::CreateNew) => return Err(exists_already(path)),
            (Some(node), _) => Arc::clone(node),
            (None, OpenMode::CreateNew) => {
                let node = Arc::new(Node::default());
                files.insert(path.to_owned(), Arc::clone(&node));
                node
            }
            (None, _) => return Err(missing(path)),
        };
        let writable = mode != OpenMode::ReadOnly;
        let disk = self.clone();
        Ok(Arc::new(RamFile { disk, node, writable, holding: Mutex::new(Holding::Nothing) }))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files.lock().contains_key(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut files = self.files.lock();
        let node = files.remove(from).ok_or_else(|| missing(from))?;
        files.insert(to.to_owned(), node);
        Ok(())
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        let mut files = self.files.lock();
        if files.contains_key(to) {
            return Err(exists_already(to));
        }
        let node = files.remove(from).ok_or_else(|| missing(from))?;
        files.insert(to.to_owned(), node);
        Ok(())
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        if self.exists(path)? { Ok(path.to_owned()) } else { Err(missing(path)) }
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        self.files.lock().remove(path).map(drop).ok_or_else(|| missing(path))
    }

    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
}

#[derive(Debug)]
struct RamFile {
    disk: RamDisk,
    node: Arc<Node>,
    writable: bool,
    holding: Mutex<Holding>,
}

impl RamFile {
    fn change(&self, change: impl FnOnce(&mut SparseBytes) -> Result<()>) -> Result<()> {
        if !self.writable {
            return Err(opened_read_only());
        }
        change(&mut self.node.bytes.write())
    }
}

impl Drop for RamFile {
    fn drop(&mut self) {
        self.node.lock.lock().release(*self.holding.lock());
    }
}

impl File for RamFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        let bytes = self.node.bytes.read();
        if bytes.read(offset_bytes, buf) {
            Ok(())
        } else {
            Err(ends_early(bytes.len_bytes(), offset_bytes, buf.len()))
        }
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> {
        self.change(|bytes| bytes.write(offset_bytes, buf))
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests {
            request.result = self.read_at(request.offset_bytes, request.buf);
        }
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        requests.iter().try_for_each(|request| self.write_at(request.offset_bytes, request.buf))
    }

    fn len_bytes(&self) -> Result<u64> {
        Ok(self.node.bytes.read().len_bytes())
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.change(|bytes| bytes.set_len(len_bytes))
    }

    /// Extends the file only: memory that is set aside but not used would help nobody.
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.change(|bytes| {
            let end = offset_bytes.saturating_add(len_bytes);
            if end > bytes.len_bytes() { bytes.set_len(end) } else { Ok(()) }
        })
    }

    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        self.change(|bytes| {
            bytes.punch(offset_bytes, len_bytes);
            Ok(())
        })
        .map(|()| true)
    }

    fn sync_data(&self) -> Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> Result<()> {
        Ok(())
    }

    fn allocated_bytes(&self) -> Result<u64> {
        Ok(self.node.bytes.read().allocated_bytes())
    }

    fn block_bytes(&self) -> usize {
        1
    }

    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> {
        let mut holding = self.holding.lock();
        if self.node.lock.lock().acquire(&mut holding, exclusive) {
            Ok(LockOutcome::Held)
        } else {
            Ok(LockOutcome::Busy { holder_pid: Some(std::process::id()) })
        }
    }

    fn is_at(&self, path: &Path) -> Result<bool> {
        let files = self.disk.files.lock();
        Ok(files.get(path).is_some_and(|node| Arc::ptr_eq(node, &self.node)))
    }

    fn unlock(&self) -> Result<()> {
        let mut holding = self.holding.lock();
        self.node.lock.lock().release(*holding);
        *holding = Holding::Nothing;
        Ok(())
    }

    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        self.read_at(offset_bytes, buf)
    }
}
