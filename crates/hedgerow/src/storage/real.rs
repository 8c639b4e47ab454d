//! Files of the operating system: `pread` and `pwrite`, direct where the file system takes it, and
//! batches through io_uring where the kernel has it.
//!
//! Rank 1. Invariants: descriptors close on `exec`; only regular files are opened; a file is created
//! for its owner alone. `Send + Sync`: each request names its offset, so threads share nothing but the
//! descriptor; the only state is whether the file is (still) open for direct I/O.
//!
//! A child that was forked has the same descriptors and shares the rings: there every call is `ForkedProcess` and touches
//! nothing, so that no path through the engine can change the parent's files.
//!
//! Some file systems take `O_DIRECT` when a file is opened and refuse the first read with `EINVAL`,
//! so the way back to the page cache exists at both places.

use crate::error::{Error, ErrorKind, Result};
use crate::storage::direct::{self, DIRECT, block_bytes, status_flags};
use crate::storage::directory::{self, DirectoryLock};
use crate::storage::failed::{failed, failed_on_path};
use crate::storage::readers::Readers;
#[cfg(target_os = "linux")]
use crate::storage::refused::is_not_begun;
use crate::storage::refused::is_refused;
use crate::storage::rename::rename_new;
use crate::storage::runs::{Run, runs};
use crate::storage::size_limit;
use crate::storage::stream::{self, BatchSource};
use crate::storage::sync;
use crate::storage::transfer::{self, ReadEnd};
use crate::storage::{
    AlignedBuffer, DirectIo, Disk, File, IoEngine, LockOutcome, MAX_OFFSET, OpenMode, ReadRequest,
    ReadSource, WriteRequest, assert_aligned, ends_early, locks, names, opened_read_only,
};
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering};
use hedgerow_sync::primitive::process::Process;
use hedgerow_sync::primitive::{Arc, Mutex, RwLock};
use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use crate::storage::uring::Rings;

/// The file system of this machine. Clones share their io_uring rings.
#[derive(Clone, Debug)]
pub struct RealDisk {
    /// Whose it is.
    process: Process,
    #[cfg(target_os = "linux")]
    rings: Option<Arc<Rings>>,
    /// For where there are no rings.
    readers: Arc<Readers>,
}

impl RealDisk {
    /// The file system, with batches carried out by `engine`.
    ///
    /// Errors: `InvalidOption` if io_uring was demanded and the kernel does not let us have it.
    pub fn new(engine: IoEngine) -> Result<RealDisk> {
        let process = this_process()?;
        #[cfg(target_os = "linux")]
        {
            let rings = match engine {
                IoEngine::Sync => None,
                IoEngine::Auto => Rings::new().ok(),
                IoEngine::Uring => Some(Rings::new().map_err(|source| no_uring(&source))?),
            };
            Ok(RealDisk { process, rings: rings.map(Arc::new), readers: Arc::new(Readers::new()) })
        }
        #[cfg(not(target_os = "linux"))]
        match engine {
            IoEngine::Sync | IoEngine::Auto => {
                Ok(RealDisk { process, readers: Arc::new(Readers::new()) })
            }
            IoEngine::Uring => Err(no_uring(&"only Linux has it")),
        }
    }

    /// How batches are carried out: never [`IoEngine::Auto`].
    #[cfg(hedgerow_internals)]
    pub fn engine(&self) -> IoEngine {
        #[cfg(target_os = "linux")]
        if self.rings.is_some() {
            return IoEngine::Uring;
        }
        IoEngine::Sync
    }

    pub(super) fn open_file(
        &self,
        path: &Path,
        mode: OpenMode,
        direct: DirectIo,
        links: Links,
    ) -> Result<RealFile> {
        check_here(self.process)?;
        let access = match mode {
            OpenMode::ReadOnly => OFlags::RDONLY,
            OpenMode::ReadWrite => OFlags::RDWR,
            OpenMode::CreateNew => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        if mode != OpenMode::CreateNew {
            // Opening a device may have effects of its own, so it is not opened to find out.
            let look = || match links {
                Links::Follow => rustix::fs::stat(path),
                Links::Refuse => rustix::fs::lstat(path),
            };
            let stat = retry_on_intr(look).map_err(|errno| match errno {
                Errno::NOENT if directory::is_dangling(path) => directory::leads_nowhere(path),
                errno => failed_on_path("open", path, errno),
            })?;
            require_regular(path, FileType::from_raw_mode(stat.st_mode))?;
        }
        // Non-blocking, because opening a pipe that took the file's place meanwhile would wait.
        let mut flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        if links == Links::Refuse {
            flags |= OFlags::NOFOLLOW;
        }
        let owner = Mode::RUSR | Mode::WUSR;
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, owner))
            .map_err(|errno| failed_on_path("open", path, errno))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| failed("examine", path, errno))?;
        require_regular(path, FileType::from_raw_mode(stat.st_mode))?;
        let status = status_flags(&fd).difference(OFlags::NONBLOCK);
        let wants_direct = direct == DirectIo::WherePossible && !DIRECT.is_empty();
        let direct = wants_direct && rustix::fs::fcntl_setfl(&fd, status | DIRECT).is_ok();
        if !direct {
            match rustix::fs::fcntl_setfl(&fd, status) {
                Ok(()) => {}
                // It stays non-blocking, which changes nothing for a regular file.
                Err(errno) if is_refused(errno) => {}
                Err(errno) => return Err(failed("open", path, errno)),
            }
        }
        let block_bytes = if direct { block_bytes(&fd) } else { 1 };
        Ok(RealFile {
            fd,
            path: RwLock::new(path.to_owned()),
            writable: mode != OpenMode::ReadOnly,
            direct: AtomicBool::new(direct),
            block_bytes,
            extending: Mutex::new(()),
            process: self.process,
            is_locked: AtomicBool::new(false),
            #[cfg(target_os = "linux")]
            rings: self.rings.clone(),
            readers: Arc::clone(&self.readers),
        })
    }
}

/// What becomes of a symbolic link at a path that is opened.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Links {
    Follow,
    Refuse,
}

/// This process, for whoever keeps what a child must not use.
fn this_process() -> Result<Process> {
    let untold = |source| Error::io("cannot tell a forked process from its parent", source);
    Process::current().map_err(untold)
}

/// Errors: `ForkedProcess` in a process that is not the one that opened what is asked for.
#[inline]
fn check_here(process: Process) -> Result<()> {
    if process.is_current() { Ok(()) } else { Err(Error::forked()) }
}

fn no_uring(why: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidOption, format!("io_uring cannot be used: {why}"))
}

fn require_regular(path: &Path, file_type: FileType) -> Result<()> {
    let what = match file_type {
        FileType::RegularFile => return Ok(()),
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::Symlink => "a symbolic link",
        FileType::BlockDevice | FileType::CharacterDevice => "a device",
        _ => "no regular file",
    };
    Err(Error::new(ErrorKind::NotAStore, format!("{} is {what}", path.display())))
}

impl Disk for RealDisk {
    fn share(&self) -> Arc<dyn Disk> {
        Arc::new(self.clone())
    }

    fn open(&self, path: &Path, mode: OpenMode, direct: DirectIo) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.open_file(path, mode, direct, Links::Follow)?))
    }

    fn open_here(&self, path: &Path, mode: OpenMode, direct: DirectIo) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.open_file(path, mode, direct, Links::Refuse)?))
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        check_here(self.process)?;
        match retry_on_intr(|| rustix::fs::lstat(path)) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(false),
            Err(errno) => Err(failed("examine", path, errno)),
        }
    }

    fn is_dangling(&self, path: &Path) -> Result<bool> {
        check_here(self.process)?;
        Ok(directory::is_dangling(path))
    }

    fn locate(&self, path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        check_here(self.process)?;
        let mode = |path: &Path| retry_on_intr(|| rustix::fs::stat(path)).map(|stat| stat.st_mode);
        // Who may not change permissions may still rename a file that has the right ones.
        if let Ok(wanted) = mode(to)
            && mode(from) != Ok(wanted)
        {
            retry_on_intr(|| rustix::fs::chmod(from, Mode::from_raw_mode(wanted)))
                .map_err(|errno| failed_on_path("set the permissions of", from, errno))?;
        }
        retry_on_intr(|| rustix::fs::rename(from, to))
            .map_err(|errno| failed_on_path("rename", from, errno))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        check_here(self.process)?;
        rename_new(from, to)
    }

    #[allow(clippy::disallowed_methods, reason = "this module is the door to the file system")]
    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        std::fs::canonicalize(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => failed_on_path("find", path, Errno::NOENT),
            _ => Error::io(format!("cannot find {}", path.display()), source),
        })
    }

    fn unlink(&self, path: &Path) -> Result<()> {
        check_here(self.process)?;
        retry_on_intr(|| rustix::fs::unlink(path))
            .map_err(|errno| failed_on_path("remove", path, errno))
    }

    fn unlink_own(&self, path: &Path, file: &dyn File) -> Result<bool> {
        check_here(self.process)?;
        let _locked = DirectoryLock::of(path);
        names::unlink_own(self, path, file)
    }

    fn rename_own(
        &self,
        from: &Path,
        file: &dyn File,
        to: &Path,
        over: Option<&dyn File>,
    ) -> Result<bool> {
        check_here(self.process)?;
        let _locked = DirectoryLock::of(to);
        names::rename_own(self, from, file, to, over)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        check_here(self.process)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
            .map_err(|errno| failed_on_path("open", path, errno))?;
        match sync::all(&fd) {
            // The file system has no such notion: its directories need no sync.
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(errno) => Err(failed("sync", path, errno)),
        }
    }
}

pub(super) struct RealFile {
    fd: OwnedFd,
    /// For the words of errors.
    path: RwLock<PathBuf>,
    writable: bool,
    /// Cleared for good when a direct call is refused. Relaxed: the descriptor's flags, which are
    /// changed before it, are what counts.
    direct: AtomicBool,
    block_bytes: usize,
    /// Held from a look at the length to what makes it longer.
    extending: Mutex<()>,
    /// The process that opened it.
    process: Process,
    /// Locked through this value.
    is_locked: AtomicBool,
    #[cfg(target_os = "linux")]
    rings: Option<Arc<Rings>>,
    readers: Arc<Readers>,
}

impl Drop for RealFile {
    /// Unlocks expressly. Closing would not do while a process that another thread has just forked,
    /// and that has not yet come to its `exec`, holds a copy of the descriptor. Such a copy in turn
    /// must not take the lock away from the process that it was copied from.
    fn drop(&mut self) {
        if self.is_locked.load(Ordering::Relaxed) && self.process.is_current() {
            // A failure has nobody to be told to, and closing, which follows, unlocks as well.
            retry_on_intr(|| rustix::fs::flock(&self.fd, FlockOperation::Unlock)).ok();
        }
    }
}

impl std::fmt::Debug for RealFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let how = if self.block_bytes() > 1 { "direct" } else { "buffered" };
        write!(f, "RealFile({}, {how})", self.path.read().display())
    }
}

impl RealFile {
    #[cold]
    fn failed(&self, what: &str, errno: Errno) -> Error {
        failed(what, &self.path.read(), errno)
    }

    fn require_writable(&self) -> Result<()> {
        check_here(self.process)?;
        if self.writable { Ok(()) } else { Err(opened_read_only()) }
    }

    /// Makes the file so long, unless it is longer. One at a time: who has looked before another made it longer would cut
    /// off what that one has written since.
    pub(super) fn extend_to(&self, end_bytes: u64) -> Result<()> {
        let _extending = self.extending.lock();
        if end_bytes > self.len_bytes()? { self.set_len(end_bytes) } else { Ok(()) }
    }

    /// Makes a call, and makes it again through the page cache if it was refused as a direct one.
    fn direct_or_buffered(
        &self,
        mut call: impl FnMut() -> rustix::io::Result<usize>,
    ) -> rustix::io::Result<usize> {
        let direct = self.direct.load(Ordering::Relaxed);
        match call() {
            Err(Errno::INVAL) if direct => {
                // Whoever may not change the flags either has no other way.
                direct::leave(&self.fd, &self.direct).map_err(|_| Errno::INVAL)?;
                call()
            }
            result => result,
        }
    }

    fn pread(&self, buf: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
        self.direct_or_buffered(|| rustix::io::pread(&self.fd, &mut *buf, offset))
    }

    /// Reads until at least `wanted` bytes of `buf` are there.
    fn read(&self, offset: u64, buf: &mut [u8], wanted: usize) -> Result<()> {
        check_here(self.process)?;
        let block = self.block_bytes();
        let end = transfer::read_fully(offset, buf, wanted, block, |buf, at| self.pread(buf, at));
        match end {
            ReadEnd::Done => Ok(()),
            ReadEnd::EndOfFile => Err(ends_early(self.len_bytes()?, offset, wanted)),
            ReadEnd::Failed(errno) => Err(self.failed("read", errno)),
        }
    }

    /// Reads the requests of a run with one call if that works, else (a short read, a bad sector,
    /// the end of the file) one by one, so that each has its own outcome.
    fn read_run(&self, run: &Run, requests: &mut [ReadRequest<'_>]) {
        if requests.len() > 1 && self.process.is_current() {
            let mut slices: Vec<IoSliceMut<'_>> =
                requests.iter_mut().map(|r| IoSliceMut::new(r.buf)).collect();
            if rustix::io::preadv(&self.fd, &mut slices, run.offset_bytes) == Ok(run.len_bytes) {
                return;
            }
        }
        for request in requests {
            request.result = self.read_at(request.offset_bytes, request.buf);
        }
    }

    /// What to write, checked and divided into runs.
    fn write_runs(&self, requests: &[WriteRequest<'_>]) -> Result<Vec<Run>> {
        self.require_writable()?;
        for request in requests {
            assert_aligned(self.block_bytes(), request.offset_bytes, request.buf);
        }
        Ok(runs(requests.iter().map(|r| (r.offset_bytes, r.buf.len()))))
    }

    /// Writes runs by a ring, and what was cut short or refused there by plain calls.
    #[cfg(target_os = "linux")]
    fn write_through(
        &self,
        rings: &Rings,
        runs: &[Run],
        requests: &[WriteRequest<'_>],
        beside: Option<&mut dyn FnMut()>,
    ) -> Result<()> {
        let slices: Vec<IoSlice<'_>> = requests.iter().map(|r| IoSlice::new(r.buf)).collect();
        let held = size_limit::Held::back();
        let results = rings.write(&self.fd, runs, &slices, beside);
        if results.contains(&Err(Errno::FBIG)) {
            held.take_away();
        }
        drop(held);
        self.write_rest(runs, requests, &results)
    }

    /// Writes what a ring has not written, by plain calls.
    #[cfg(target_os = "linux")]
    pub(super) fn write_rest(
        &self,
        runs: &[Run],
        requests: &[WriteRequest<'_>],
        results: &[rustix::io::Result<usize>],
    ) -> Result<()> {
        for (run, &result) in runs.iter().zip(results) {
            let is_left = result.is_err_and(is_not_begun);
            if is_left || !self.is_written(run, result)? {
                let requests = &requests[run.first..][..run.count];
                requests.iter().try_for_each(|r| self.write_at(r.offset_bytes, r.buf))?;
            }
        }
        Ok(())
    }

    /// Writes a run with one call, and finishes one that was cut short request by request.
    fn write_run(&self, run: &Run, requests: &[WriteRequest<'_>]) -> Result<()> {
        if requests.len() > 1 {
            let slices: Vec<IoSlice<'_>> = requests.iter().map(|r| IoSlice::new(r.buf)).collect();
            let result =
                size_limit::within(|| rustix::io::pwritev(&self.fd, &slices, run.offset_bytes));
            if self.is_written(run, result)? {
                return Ok(());
            }
        }
        requests.iter().try_for_each(|r| self.write_at(r.offset_bytes, r.buf))
    }

    /// What came of writing a run: `Ok(false)` if it has to be written again, piece by piece. An
    /// error that stands is never tried again: the bytes of a failed write may be gone.
    fn is_written(&self, run: &Run, result: rustix::io::Result<usize>) -> Result<bool> {
        match result {
            Ok(count) => Ok(count == run.len_bytes),
            Err(Errno::INTR | Errno::AGAIN) => Ok(false),
            // Not even begun.
            Err(errno) if is_refused(errno) => Ok(false),
            Err(errno) => Err(self.failed("write", errno)),
        }
    }
}

impl File for RealFile {
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        assert_aligned(self.block_bytes(), offset_bytes, buf);
        let wanted = buf.len();
        self.read(offset_bytes, buf, wanted)
    }

    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> {
        let block = self.block_bytes();
        assert_aligned(block, offset_bytes, buf);
        self.require_writable()?;
        let write = |buf: &[u8], at| {
            let pwrite = || rustix::io::pwrite(&self.fd, buf, at);
            self.direct_or_buffered(|| size_limit::write(at, buf.len(), pwrite))
        };
        transfer::write_fully(offset_bytes, buf, block, write)
            .map_err(|errno| self.failed("write", errno))
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) {
        for request in requests.iter_mut() {
            assert_aligned(self.block_bytes(), request.offset_bytes, request.buf);
            request.result = Ok(());
        }
        let runs = runs(requests.iter().map(|r| (r.offset_bytes, r.buf.len())));
        // A child has each of them refused by the plain call.
        #[cfg(target_os = "linux")]
        if requests.len() > 1
            && self.process.is_current()
            && let Some(rings) = &self.rings
        {
            let mut slices: Vec<IoSliceMut<'_>> =
                requests.iter_mut().map(|r| IoSliceMut::new(r.buf)).collect();
            let results = rings.read(&self.fd, &runs, &mut slices);
            for (run, result) in runs.iter().zip(results) {
                if result != Ok(run.len_bytes) {
                    self.read_run(run, &mut requests[run.first..][..run.count]);
                }
            }
            return;
        }
        // A few long runs are few calls; many short ones need not wait for each other.
        if self.process.is_current() && runs.len() > 1 && 2 * runs.len() > requests.len() {
            return self.read_stream(&mut BatchSource::new(requests));
        }
        for run in &runs {
            self.read_run(run, &mut requests[run.first..][..run.count]);
        }
    }

    fn read_stream<'a>(&self, source: &mut dyn ReadSource<'a>) {
        let again = |read: &mut ReadRequest<'a>| {
            read.result = self.read_at(read.offset_bytes, read.buf);
        };
        if !self.process.is_current() {
            while let Some((number, mut read)) = source.next_read() {
                again(&mut read);
                source.end_read(number, read);
            }
            return;
        }
        #[cfg(target_os = "linux")]
        if let Some(rings) = &self.rings
            && let Some(mut reader) = rings.stream(&self.fd)
        {
            return stream::run(&mut reader, source, again);
        }
        stream::run(&mut self.readers.stream(&self.fd), source, again);
    }

    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        let runs = self.write_runs(requests)?;
        #[cfg(target_os = "linux")]
        if runs.len() > 1
            && let Some(rings) = &self.rings
        {
            return self.write_through(rings, &runs, requests, None);
        }
        runs.iter().try_for_each(|run| self.write_run(run, &requests[run.first..][..run.count]))
    }

    #[cfg(target_os = "linux")]
    fn write_batch_beside(
        &self,
        requests: &[WriteRequest<'_>],
        beside: &mut dyn FnMut(),
    ) -> Result<()> {
        if let Some(rings) = &self.rings
            && let Ok(runs) = self.write_runs(requests)
        {
            return self.write_through(rings, &runs, requests, Some(beside));
        }
        let written = self.write_batch(requests);
        beside();
        written
    }

    fn len_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|errno| self.failed("examine", errno))?;
        Ok(stat.st_size as u64)
    }

    fn set_len(&self, len_bytes: u64) -> Result<()> {
        self.require_writable()?;
        let len = len_bytes.min(MAX_OFFSET + 1);
        size_limit::within(|| retry_on_intr(|| rustix::fs::ftruncate(&self.fd, len)))
            .map_err(|errno| self.failed("resize", errno))
    }

    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.require_writable()?;
        if len_bytes == 0 {
            return Ok(());
        }
        #[cfg(target_os = "linux")]
        {
            let mode = rustix::fs::FallocateFlags::empty();
            let call = || rustix::fs::fallocate(&self.fd, mode, offset_bytes, len_bytes);
            match size_limit::within(|| retry_on_intr(call)) {
                Ok(()) => return Ok(()),
                Err(errno) if is_refused(errno) => {}
                Err(errno) => return Err(self.failed("allocate room in", errno)),
            }
        }
        self.extend_to(offset_bytes.saturating_add(len_bytes))
    }

    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> {
        self.require_writable()?;
        if len_bytes == 0 {
            return Ok(true);
        }
        #[cfg(not(target_os = "linux"))]
        let _ = offset_bytes;
        #[cfg(target_os = "linux")]
        {
            use rustix::fs::FallocateFlags;
            let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            match retry_on_intr(|| rustix::fs::fallocate(&self.fd, mode, offset_bytes, len_bytes)) {
                Ok(()) => return Ok(true),
                Err(errno) if is_refused(errno) => {}
                Err(errno) => return Err(self.failed("punch a hole into", errno)),
            }
        }
        Ok(false)
    }

    fn sync_data(&self) -> Result<()> {
        check_here(self.process)?;
        sync::data(&self.fd).map_err(|errno| self.failed("sync", errno))
    }

    fn sync_all(&self) -> Result<()> {
        check_here(self.process)?;
        sync::all(&self.fd).map_err(|errno| self.failed("sync", errno))
    }

    #[cfg(hedgerow_internals)]
    fn allocated_bytes(&self) -> Result<u64> {
        let stat = rustix::fs::fstat(&self.fd).map_err(|errno| self.failed("examine", errno))?;
        Ok(stat.st_blocks as u64 * 512)
    }

    fn free_bytes(&self) -> Result<Option<u64>> {
        // Some file systems do not tell; nothing depends on it but how much is taken ahead.
        let told = retry_on_intr(|| rustix::fs::fstatvfs(&self.fd)).ok();
        Ok(told.map(|told| told.f_bavail.saturating_mul(told.f_frsize)))
    }

    fn block_bytes(&self) -> usize {
        if self.direct.load(Ordering::Relaxed) { self.block_bytes } else { 1 }
    }

    fn use_page_cache(&self) -> Result<()> {
        direct::leave(&self.fd, &self.direct)
            .map_err(|errno| self.failed("leave direct I/O for", errno))
    }

    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> {
        check_here(self.process)?;
        let operation = if exclusive {
            FlockOperation::NonBlockingLockExclusive
        } else {
            FlockOperation::NonBlockingLockShared
        };
        match retry_on_intr(|| rustix::fs::flock(&self.fd, operation)) {
            Ok(()) => {
                self.is_locked.store(true, Ordering::Relaxed);
                Ok(LockOutcome::Held)
            }
            Err(Errno::WOULDBLOCK) => {
                Ok(LockOutcome::Busy { holder_pid: locks::holder_pid(&self.fd) })
            }
            Err(errno) => Err(self.failed("lock", errno)),
        }
    }

    fn is_at(&self, path: &Path) -> Result<bool> {
        let this = rustix::fs::fstat(&self.fd).map_err(|errno| self.failed("examine", errno))?;
        directory::leads_to(path, &this)
    }

    fn is_named(&self, path: &Path) -> Result<bool> {
        let this = rustix::fs::fstat(&self.fd).map_err(|errno| self.failed("examine", errno))?;
        directory::names_file(path, &this)
    }

    fn set_path(&self, path: &Path) {
        path.clone_into(&mut self.path.write());
    }

    fn unlock(&self) -> Result<()> {
        check_here(self.process)?;
        retry_on_intr(|| rustix::fs::flock(&self.fd, FlockOperation::Unlock))
            .map_err(|errno| self.failed("unlock", errno))
    }

    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        let block = self.block_bytes() as u64;
        if block == 1 {
            let wanted = buf.len();
            return self.read(offset_bytes, buf, wanted);
        }
        let start = offset_bytes / block * block;
        let skip = (offset_bytes - start) as usize;
        let wanted = skip + buf.len();
        let mut bounce = AlignedBuffer::zeroed(wanted.next_multiple_of(block as usize))?;
        self.read(start, &mut bounce, wanted)?;
        buf.copy_from_slice(&bounce[skip..wanted]);
        Ok(())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;
