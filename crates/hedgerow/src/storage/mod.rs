//! Files, as the engine sees them: the traits [`Disk`] and [`File`], and what implements them.
//!
//! Rank 1, and the only door to the file system. Everything above speaks these traits alone, so that
//! the same engine runs on a real file ([`RealDisk`]: `pread` and `pwrite`, direct I/O where the file
//! system has it, batches through io_uring where the kernel has it; on Windows see `windows`), and, in tests, in
//! memory and on a disk that forgets, tears and fails on demand.
//!
//! What holds for every implementation:
//!
//! - A read or a write is whole or an error. Interrupted and short calls are continued inside; a call
//!   that makes no progress is an error, never a loop.
//! - A write is *durable* only after [`File::sync_data`] (or [`File::sync_all`]) has returned `Ok`; a
//!   directory entry only after [`Disk::sync_dir`] of its directory. Before that any mixture of old
//!   and new 512-byte sectors may survive a crash, later writes without earlier ones included.
//! - A sync that failed says nothing about what is on disk, and a second sync that succeeds does not
//!   repair it: the caller stops writing.
//! - Alignment: on a file whose [`File::block_bytes`] is above 1, each offset and each length is a
//!   multiple of it, and each buffer starts at such a multiple ([`AlignedBuffer`] does). A request
//!   that is not is a broken invariant of the caller, and asserts. [`File::read_unaligned`] is for
//!   callers who know no geometry yet.
//!
//! Every method may be called by any number of threads at once; concurrent writes to the same bytes
//! leave either of them, or a mixture.

pub mod aligned;
pub mod arena;
#[cfg(unix)]
mod direct;
#[cfg(unix)]
mod directory;
#[cfg(any(unix, windows))]
mod errno;
#[cfg(unix)]
mod failed;
mod locks;
mod memory;
pub mod names;
#[cfg(unix)]
mod readers;
#[cfg(unix)]
pub mod real;
#[cfg(unix)]
mod refused;
#[cfg(unix)]
mod rename;
#[cfg(unix)]
mod runs;
#[cfg(unix)]
mod size_limit;
#[cfg(unix)]
mod stream;
#[cfg(unix)]
mod sync;
#[cfg(all(test, not(shuttle)))]
mod tests;
#[cfg(any(unix, windows))]
mod transfer;
#[cfg(target_os = "linux")]
mod uring;
#[cfg(windows)]
mod windows;

pub use aligned::{AlignedBuffer, congruent_from};
pub use locks::process_has_ended;
pub use memory::{addresses_left_bytes, machine_memory_bytes};
#[cfg(unix)]
pub use real::RealDisk;
#[cfg(windows)]
pub use windows::RealDisk;

use crate::error::{Error, ErrorKind, Result};
use hedgerow_sync::primitive::Arc;
use std::fmt::Debug;
use std::path::{Path, PathBuf};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenMode {
    /// An existing file, to read.
    ReadOnly,
    /// An existing file, to read and write.
    ReadWrite,
    /// A file that must not exist yet, to read and write; only its owner may open it.
    CreateNew,
}

/// Whether a file is read and written past the system's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DirectIo {
    /// Through the page cache.
    Never,
    /// Past the page cache where the file system can, through it elsewhere.
    #[default]
    WherePossible,
}

/// Which system calls read and write batches of pages. See [`Options::io_engine`](crate::Options::io_engine).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum IoEngine {
    /// io_uring if the kernel allows it, otherwise as [`IoEngine::Sync`].
    #[default]
    Auto,
    /// Plain system calls. Up to 32 threads carry out a batch of reads; they end when there is nothing to read. Writes are
    /// made one after the other.
    Sync,
    /// io_uring. Opening fails with [`InvalidOption`](ErrorKind::InvalidOption) if the kernel refuses it.
    Uring,
}

/// One read of a batch, with its own outcome.
#[derive(Debug)]
pub struct ReadRequest<'a> {
    /// Where to read, in bytes from the start of the file.
    pub offset_bytes: u64,
    /// What to fill, exactly.
    pub buf: &'a mut [u8],
    /// How it ended. The contents of `buf` are unspecified after an error.
    pub result: Result<()>,
}

impl<'a> ReadRequest<'a> {
    /// A request that has not been submitted.
    pub fn new(offset_bytes: u64, buf: &'a mut [u8]) -> ReadRequest<'a> {
        ReadRequest { offset_bytes, buf, result: Ok(()) }
    }
}

/// Reads of one stream that are under way at a time, at most. Devices gain little beyond this.
pub const STREAM_DEPTH: usize = 128;

/// Where the reads of a stream come from, and where they go when they have ended.
pub trait ReadSource<'a> {
    /// The next read, with a number of the source's own; `None` if there is none now. After each end
    /// of a read the source is asked again.
    fn next_read(&mut self) -> Option<(usize, ReadRequest<'a>)>;

    /// Takes a read back that has ended, well or not.
    fn end_read(&mut self, number: usize, read: ReadRequest<'a>);
}

/// One write of a batch.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest<'a> {
    /// Where to write, in bytes from the start of the file.
    pub offset_bytes: u64,
    /// What to write.
    pub buf: &'a [u8],
}

/// What came of asking for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockOutcome {
    /// The lock is held until the file is dropped.
    Held,
    /// Somebody else has it.
    Busy {
        /// The process that has it, where the system tells. It may be this very process.
        holder_pid: Option<u32>,
    },
}

/// A place that holds files by path.
pub trait Disk: Send + Sync + Debug {
    /// Another handle to the same disk, which its owner may keep.
    fn share(&self) -> Arc<dyn Disk>;

    /// Opens a file.
    ///
    /// Errors: `FileNotFound`, `FileExists` (for [`OpenMode::CreateNew`]), `NotAStore` if the path is
    /// a directory, a pipe, a socket or a device, and `Io` with the system's error for the rest.
    fn open(&self, path: &Path, mode: OpenMode, direct: DirectIo) -> Result<Arc<dyn File>>;

    /// [`Disk::open`], and refuses a symbolic link at the path itself (`NotAStore`): for files that are written to
    /// without anybody having named them.
    fn open_here(&self, path: &Path, mode: OpenMode, direct: DirectIo) -> Result<Arc<dyn File>> {
        self.open(path, mode, direct)
    }

    /// Whether something has that path: a symbolic link that leads to no file has it, too.
    fn exists(&self, path: &Path) -> Result<bool>;

    /// Whether a symbolic link has that path, and leads to no file.
    fn is_dangling(&self, _path: &Path) -> Result<bool> {
        Ok(false)
    }

    /// The path in a form that means the same after the process has changed its directory; as it is where
    /// the system does not tell the directory. The file need not exist.
    fn locate(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    /// Gives a file another path, atomically replacing what was there, whose permissions it takes over
    /// where there are any. Durable after [`Disk::sync_dir`] of the new path's directory.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;

    /// Gives a file a path that nothing has, atomically. Durable as for [`Disk::rename`].
    ///
    /// Errors: `FileExists`, with nothing changed; `FileNotFound`; `Io`.
    fn rename_new(&self, from: &Path, to: &Path) -> Result<()>;

    /// The path of what exists at `path`, without symbolic links on the way. Errors: `FileNotFound`; `Io`.
    fn resolve(&self, path: &Path) -> Result<PathBuf>;

    /// Takes the path away; who has the file open keeps it. Errors: `FileNotFound`.
    fn unlink(&self, path: &Path) -> Result<()>;

    /// Takes the path away if it names `file` itself, and not a link to it. `Ok(false)`: it names something
    /// else or nothing, and was left alone. The caller has the lock of `file`: see [`names`].
    fn unlink_own(&self, path: &Path, file: &dyn File) -> Result<bool> {
        names::unlink_own(self, path, file)
    }

    /// Renames `from` to `to` if `from` names `file` itself; with `over` only if `to` names that one, and
    /// else only if nothing has the path `to`. `Ok(false)`: one of the names leads elsewhere, and nothing
    /// was changed. The caller has the locks of both: see [`names`].
    ///
    /// Errors: `FileExists` if something is at `to` and `over` is `None`; those of [`Disk::rename`].
    fn rename_own(
        &self,
        from: &Path,
        file: &dyn File,
        to: &Path,
        over: Option<&dyn File>,
    ) -> Result<bool> {
        names::rename_own(self, from, file, to, over)
    }

    /// Makes the entries of the directory at `path` durable (see [`parent_directory`]).
    fn sync_dir(&self, path: &Path) -> Result<()>;
}

/// An open file. Dropping it closes it and releases its lock.
pub trait File: Send + Sync + Debug {
    /// Fills `buf` from `offset_bytes`.
    ///
    /// Errors: `Corrupted` with the file's length if the file ends too early; `Io`.
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()>;

    /// Writes all of `buf` at `offset_bytes`, and grows the file if need be. After an error any part
    /// of it may have been written.
    ///
    /// Errors: `ReadOnly`, `DiskFull`, `Io`.
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()>;

    /// Submits all reads together and waits for all of them. They complete in any order; neighbours in
    /// the slice that are neighbours in the file may be read with one call.
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]);

    /// Reads what `source` asks for, up to [`STREAM_DEPTH`] reads at a time, and hands each back as it
    /// ends, in any order, until the source wants nothing more and nothing is under way.
    fn read_stream<'a>(&self, source: &mut dyn ReadSource<'a>) {
        while let Some((number, mut read)) = source.next_read() {
            read.result = self.read_at(read.offset_bytes, read.buf);
            source.end_read(number, read);
        }
    }

    /// Submits all writes together and waits for all of them; the first error (in the order of the
    /// slice) is returned. They must not overlap, and complete in any order; neighbours in the slice
    /// that are neighbours in the file are written with one call where the system can.
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()>;

    /// [`File::write_batch`], and calls `beside` once, while the writes are under way where that is
    /// possible; for the caller to prepare the next batch meanwhile.
    fn write_batch_beside(
        &self,
        requests: &[WriteRequest<'_>],
        beside: &mut dyn FnMut(),
    ) -> Result<()> {
        let written = self.write_batch(requests);
        beside();
        written
    }

    /// Length of the file in bytes.
    fn len_bytes(&self) -> Result<u64>;

    /// Truncates the file, or extends it with zeros.
    fn set_len(&self, len_bytes: u64) -> Result<()>;

    /// Reserves room for a range, so that later writes there do not run out of space, and extends
    /// the file to its end. What is not written reads as zero. Where the file system cannot reserve,
    /// the file is extended only.
    ///
    /// Errors: `DiskFull`, and the file system may keep a part of what was asked for: see [`reserve`].
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()>;

    /// Gives the room of a range back to the file system; it reads as zero from then on, and the
    /// length stays. `Ok(false)`: the file system cannot, and nothing was changed.
    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool>;

    /// Makes what was written durable, with as much of the metadata as reading it back needs.
    fn sync_data(&self) -> Result<()>;

    /// Makes what was written, and all metadata of the file, durable.
    fn sync_all(&self) -> Result<()>;

    /// Bytes that the file takes up on the disk; holes do not count.
    #[cfg(hedgerow_internals)]
    fn allocated_bytes(&self) -> Result<u64>;

    /// Bytes that the file system has free for this file; `None` where nobody knows.
    fn free_bytes(&self) -> Result<Option<u64>> {
        Ok(None)
    }

    /// The unit of direct I/O: a power of two, or 1 for a file that goes through the page cache. It
    /// may fall to 1 once, if the file system turns out to refuse direct I/O, or by [`File::use_page_cache`].
    fn block_bytes(&self) -> usize;

    /// From now on the file goes through the page cache. A file that always does has nothing to do.
    ///
    /// Errors: `Io` if the system refuses it.
    fn use_page_cache(&self) -> Result<()> {
        Ok(())
    }

    /// Tries to lock the whole file, shared or exclusively, without waiting. The lock belongs to this
    /// open file: another one conflicts with it in the same process as in any other.
    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome>;

    /// Whether `path` leads to this very file now, by symbolic links or without.
    fn is_at(&self, path: &Path) -> Result<bool>;

    /// Whether `path` names this very file now; a symbolic link that leads to it does not.
    fn is_named(&self, path: &Path) -> Result<bool> {
        self.is_at(path)
    }

    /// Tells the file that it was renamed, for the words of errors to come.
    fn set_path(&self, _path: &Path) {}

    /// Gives the lock back before the file is dropped. Nothing may be written afterwards.
    fn unlock(&self) -> Result<()>;

    /// [`File::read_at`] for any offset, length and buffer. Slower; for opening a file.
    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()>;
}

/// The directory that holds `path`: what [`Disk::sync_dir`] wants after a file was created, renamed
/// or removed.
pub fn parent_directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ if path.has_root() => path,
        _ => Path::new("."),
    }
}

/// The largest offset that a file can have.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// A read that wants bytes which the file does not have.
#[cold]
pub fn ends_early(file_len_bytes: u64, offset_bytes: u64, len_bytes: usize) -> Error {
    Error::corrupted_at(
        offset_bytes,
        format!("the file ends at byte {file_len_bytes}, before the {len_bytes} bytes wanted"),
    )
}

/// A write to a file that was opened to read.
#[cold]
pub fn opened_read_only() -> Error {
    Error::new(ErrorKind::ReadOnly, "the file was opened read-only")
}

/// Asserts the alignment contract of a request (see the head of this module).
#[inline]
pub fn assert_aligned(block_bytes: usize, offset_bytes: u64, buf: &[u8]) {
    let odd = offset_bytes | buf.len() as u64 | buf.as_ptr() as u64;
    assert!(
        odd & (block_bytes as u64 - 1) == 0,
        "a direct request must be aligned to {block_bytes} bytes: offset {offset_bytes}, length {}",
        buf.len()
    );
}

/// [`File::allocate`] of a range of which nothing is in use, all or nothing: a part that the file system has kept after
/// it ran out of room is given back. Nobody else changes the file's length meanwhile.
///
/// Errors: those of [`File::allocate`], and of giving room back.
pub fn reserve(file: &dyn File, offset_bytes: u64, len_bytes: u64) -> Result<()> {
    let before = file.len_bytes()?;
    file.allocate(offset_bytes, len_bytes).or_else(|error| {
        given_back(error, || {
            let end = offset_bytes.saturating_add(len_bytes);
            if offset_bytes < before {
                file.punch_hole(offset_bytes, end.min(before) - offset_bytes)?;
            }
            // What lies beyond the end goes as well, whether or not the file has become longer.
            if end > before { file.set_len(before) } else { Ok(()) }
        })
    })
}

/// Gives back what a failed allocation has kept, and says why it failed: or why that could not be given back, unless
/// that, too, was for want of room.
pub fn given_back(error: Error, give_back: impl FnOnce() -> Result<()>) -> Result<()> {
    match give_back() {
        Err(other) if other.kind() != ErrorKind::DiskFull => Err(other),
        _ => Err(error),
    }
}

/// Names that are tried for a temporary file.
const TEMPORARY_NAMES: usize = 16;

/// Creates a file of a random name in a directory, for a store that ends with its handles.
///
/// Errors: those of [`Disk::open`]; `DirectoryNotFound`; `FileExists` if every name that was tried is taken.
pub fn create_temporary(
    disk: &dyn Disk,
    directory: &Path,
    direct: DirectIo,
) -> Result<(PathBuf, Arc<dyn File>)> {
    let mut taken = None;
    for _ in 0..TEMPORARY_NAMES {
        let name = format!("hedgerow-{:016x}.tmp", hedgerow_sync::primitive::random::seed());
        let path = directory.join(name);
        match disk.open(&path, OpenMode::CreateNew, direct) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == ErrorKind::FileExists => taken = Some(error),
            Err(error) if error.kind() == ErrorKind::FileNotFound => {
                let what = format!("there is no directory {}", directory.display());
                return Err(Error::new(ErrorKind::DirectoryNotFound, what));
            }
            Err(error) => return Err(error),
        }
    }
    Err(taken.unwrap_or_else(|| Error::new(ErrorKind::FileExists, "no free temporary name")))
}
