//! A database: one file, one pool, many keyspaces.
//!
//! Rank 7. What users need to know of it, its life and its threads stands with [`Database`]. Invariant: all handles share
//! one `Inner`, and whoever closes it is the one who sets `closed` first. `Send + Sync`.

use crate::database::batch::WriteBatch;
use crate::database::keyspace::Keyspace;
use crate::database::options::{Durability, Options};
use crate::database::stats::Stats;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Disk, RealDisk};
use crate::store::{
    BackupReport, OpenHow, RepairReport, Replayed, SpaceReport, Store, StoreOptions, VerifyReport,
    repair, restore,
};
use crate::types::Lsn;
use crate::wal::Log;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering::*};
use hedgerow_sync::primitive::process::Process;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::task::{Context, Poll};

/// A log of less would stop for a checkpoint all the time.
const MIN_LOG_LIMIT_BYTES: u64 = 4 << 20;

/// What all handles share.
pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) durability: Durability,
    /// Where the store lies; `None` in memory.
    disk: Option<Arc<dyn Disk>>,
    closed: AtomicBool,
    /// The process that opened it.
    process: Process,
}

impl Inner {
    /// Whether the database has not been closed, and this is the process that opened it. Each public call asks this before it
    /// takes a lock.
    #[inline]
    pub(super) fn check_open(&self) -> Result<()> {
        // Relaxed: a hint that spares a later surprise; what is not in memory is refused by the pool.
        if self.closed.load(Relaxed) || !self.process.is_current() {
            return Err(self.refusal());
        }
        Ok(())
    }

    /// Whether this is the process that opened the database: to be asked when a function of the caller's has returned, which
    /// may have forked.
    #[inline]
    pub(super) fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::forked()) }
    }

    #[cold]
    fn refusal(&self) -> Error {
        match self.process.is_current() {
            true => Error::new(ErrorKind::Closed, "the database was closed"),
            false => Error::forked(),
        }
    }
}

/// A database: one file with any number of [keyspaces](Keyspace), opened by [`Options`] or [`Database::open`].
///
/// An owned handle without lifetimes; cloning it is cheap. `Send + Sync`: any number of threads use one, or clones of it.
/// The file is locked while any handle (of the database, a keyspace, a cursor, a range) lives, or until
/// [`Database::close`].
///
/// **What survives a crash**: every change that was durable, and of those after it a first part, in the order in which
/// they were made, as [`Durability`] says. The log beside the file (its name and `-log`) has what came after the last
/// checkpoint; [`Database::checkpoint`] and [`Database::close`] take one, and one is taken by itself when enough has
/// changed. After `close` there is no log.
///
/// **Fork.** A process that was forked from the one that opened the database cannot use its handles: each call is
/// [`ErrorKind::ForkedProcess`], dropping them does nothing, and the parent goes on undisturbed. A child that
/// wants stores of its own should `exec` first: the locks of the process are copies of what they were at the fork.
///
/// **Close it.** To drop the last handle without [`Database::close`] is like a crash of the process: it waits for nothing
/// and writes nothing, because there is nobody whom it could tell that this failed. Buffered changes that the log's
/// thread has not written yet, those of the last [`Options::log_interval`] (100 ms), are lost then; opening
/// replays the others. Where `close` is not at hand, [`Database::sync`] makes everything durable.
///
/// **Names.** A database that is open may be renamed or removed, with its log or without, and another one may be made at
/// its path: it goes on in its own files, and `close` touches nobody else's. After a crash the log has to lie beside the
/// file again, under the file's name and `-log`.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").finish_non_exhaustive()
    }
}

impl Options {
    /// Opens the database at `path`, which must exist.
    ///
    /// Errors: `NotFound`; `LogMissing` if the store needs one and it is gone; `Locked`, naming the holder;
    /// `NotAStore` for any other file, an empty one, or a directory; `AlreadyExists` if something that is not
    /// this store's log lies at the log's name; `UpgradeRequired`; `Corrupted`; `InvalidOption`; `DiskFull`,
    /// `MemoryLimit` and `Unknown` when what the log has cannot be replayed; `Io`.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.on_disk(&self.real_disk()?, path.as_ref(), OpenHow::Existing)
    }

    /// Creates a database at `path`, where nothing may exist. After a failure or a crash there is nothing
    /// at the path, or a whole database.
    ///
    /// Errors: `AlreadyExists`; `Locked` while another process creates it; `NotFound` without the
    /// directory; `InvalidOption`; `DiskFull`; `Io`.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.on_disk(&self.real_disk()?, path.as_ref(), OpenHow::New)
    }

    /// Opens the database at `path`, or creates it; an empty file becomes one. Errors: those of both.
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.on_disk(&self.real_disk()?, path.as_ref(), OpenHow::ExistingOrNew)
    }

    /// Opens the database at `path` for reading only: nothing is written, not even to the file's
    /// metadata. Several processes may do so at a time, while none writes. Errors: as for `open`.
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.on_disk(&self.real_disk()?, path.as_ref(), OpenHow::ReadOnly)
    }

    /// A database that lives in memory alone, inside of the memory limit; it ends with its handles.
    ///
    /// Errors: `InvalidOption`.
    pub fn in_memory(&self) -> Result<Database> {
        Database::new(self, Store::in_memory(&self.store_options())?, None)
    }

    /// A database in a file of its own in the system's directory for temporary files, which may grow
    /// beyond the memory limit; it ends with its handles.
    ///
    /// Errors: `InvalidOption`; `NotFound` without that directory; `DiskFull`; `Io`.
    pub fn temporary(&self) -> Result<Database> {
        let disk = self.real_disk()?;
        let (path, file) = crate::storage::create_temporary(&disk, &std::env::temp_dir())?;
        // At once: whatever happens then, nothing is left.
        disk.unlink_own(&path, &*file)?;
        let store = Store::create_in(&self.store_options(), file)?;
        Database::new(self, store, Some(disk.share()))
    }

    /// Opens or creates a database on a disk of the caller's choice.
    #[doc(hidden)]
    pub fn on_disk(&self, disk: &dyn Disk, path: &Path, how: OpenHow) -> Result<Database> {
        let store = Store::open(&self.store_options(), disk, path, how)?;
        Database::new(self, store, Some(disk.share()))
    }

    /// Makes a store at `path` out of a backup: checks all of the backup, then copies it. Nothing may be at `path`, nor
    /// the log of a store that was there. `progress` is told the number of pages checked and copied so far, now and
    /// then, and says whether to go on. After a failure or a crash there is nothing at the path, or a whole store.
    /// Any store that was closed properly is a backup.
    ///
    /// Errors: `Locked` if a store at `path` is in use, or the backup is being written to; `AlreadyExists` for anything
    /// else at `path`, or its log; `Corrupted`, naming the first defect, if the backup is damaged; `NotAStore` for one
    /// that was cut short; `ReadOnly` if it was opened since and not closed; `DiskFull`; `Cancelled`; `Io`; those of
    /// [`Options::open_read_only`].
    pub fn restore(
        &self,
        backup: impl AsRef<Path>,
        path: impl AsRef<Path>,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        self.restore_on_disk(&self.real_disk()?, backup.as_ref(), path.as_ref(), progress)
    }

    /// Puts what is whole in the damaged store at `from` into a new one at `to`, where nothing may be, nor the log of a
    /// store that was there. `from` is only read. What is lost is what the report names: damaged pages with the keys that
    /// they held. `progress` is told the number of pages read so far, now and then (each is read twice), and says
    /// whether to go on. It takes some 50 bytes of memory for each page beyond the limit.
    ///
    /// Errors: `Locked` if either is in use; `AlreadyExists` for anything else at `to`, or its log; `Corrupted` if no
    /// superblock can be used, `NotAStore`, `UpgradeRequired`; `DiskFull`; `Cancelled`; `Io`. After any of them there
    /// is nothing at `to`.
    pub fn repair(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<RepairReport> {
        self.repair_on_disk(&self.real_disk()?, from.as_ref(), to.as_ref(), progress)
    }

    /// [`Options::repair`] on a disk of the caller's choice.
    #[doc(hidden)]
    pub fn repair_on_disk(
        &self,
        disk: &dyn Disk,
        from: &Path,
        to: &Path,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<RepairReport> {
        repair(&self.store_options(), disk, from, to, &mut progress)
    }

    /// [`Options::restore`] on a disk of the caller's choice.
    #[doc(hidden)]
    pub fn restore_on_disk(
        &self,
        disk: &dyn Disk,
        backup: &Path,
        path: &Path,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        restore(&self.store_options(), disk, backup, path, &mut progress)
    }

    fn real_disk(&self) -> Result<RealDisk> {
        RealDisk::new(self.io_engine)
    }

    fn store_options(&self) -> StoreOptions {
        StoreOptions {
            memory_limit_bytes: self.resolved_memory_limit_bytes(),
            page_bytes: self.page_bytes,
            checkpoint_bytes: self.checkpoint_bytes,
            direct_io: self.direct_io,
            background: self.background,
            zone_bytes: self.zone_bytes,
            leaves: self.leaves,
            log: self.log,
            log_interval: self.log_interval,
            log_limit_bytes: self.log_limit_bytes.max(MIN_LOG_LIMIT_BYTES),
            recovery_target: self.recovery_target,
            log_segment_blocks: self.log_segment_blocks,
            settle_after: self.settle_after,
        }
    }
}

impl Database {
    fn new(options: &Options, store: Store, disk: Option<Arc<dyn Disk>>) -> Result<Database> {
        let (durability, closed, process) =
            (options.durability, AtomicBool::new(false), store.process());
        Ok(Database { inner: Arc::new(Inner { store, disk, durability, closed, process }) })
    }

    /// Opens the database at `path` with default options, or creates it: `Options::new().open_or_create(path)`.
    /// [`Options::open`] opens only what there is. Errors: as for [`Options::open_or_create`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().open_or_create(path)
    }

    /// Options to open or create one with.
    pub fn options() -> Options {
        Options::new()
    }

    /// The keyspace `name`; it is created if there is none and the database is writable, which waits for one sync
    /// of the log. [`Database::open_keyspace`] creates nothing.
    ///
    /// Errors: `InvalidOption` for a name that is empty or longer than 255 bytes; `NotFound` in a
    /// read-only database; those of changes.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.inner.check_open()?;
        let tree = self.inner.store.keyspace(name)?;
        Ok(Keyspace::new(self.inner.clone(), tree, name, self.inner.durability))
    }

    /// The keyspace `name`, if there is one.
    pub fn open_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.inner.check_open()?;
        let tree = self.inner.store.open_keyspace(name)?;
        Ok(tree.map(|tree| Keyspace::new(self.inner.clone(), tree, name, self.inner.durability)))
    }

    /// Creates the keyspace `name`. Errors: `AlreadyExists`; those of [`Database::keyspace`].
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.inner.check_open()?;
        let tree = self.inner.store.create_keyspace(name)?;
        Ok(Keyspace::new(self.inner.clone(), tree, name, self.inner.durability))
    }

    /// Drops the keyspace `name` and all its records. Handles to it get `KeyspaceDropped` from then on.
    /// Tells whether there was one.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.inner.check_open()?;
        self.inner.store.drop_keyspace(name)
    }

    /// The names of all keyspaces, in order.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.inner.check_open()?;
        self.inner.store.keyspaces()
    }

    /// Makes all changes of a batch. A crash leaves all of them or none: as soon as the log has what the batch is
    /// going to do, opening finishes what a crash cuts short. So its durability is that of a single change.
    ///
    /// Readers may see some of the changes before the others, as [`WriteBatch`] says. Without a log a batch is no more
    /// than its changes, for crashes and for errors.
    ///
    /// Errors: those of changes, after which nothing has changed; `BatchTooLarge` for one that takes more than an
    /// eighth of [`Options::log_limit_bytes`]: changes and 32 bytes for each, about; `InvalidOption` for one of
    /// another database's keyspaces; `Unknown` for one that was begun and could not be finished, because a page could
    /// not be read or a disk is full beyond all reserves: nothing can be changed then until the database is opened
    /// again, which finishes it.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.inner.check_open()?;
        batch.write_to(&self.inner)
    }

    /// Makes everything that was changed before this call durable. Does nothing in memory.
    ///
    /// Gives space back as well: a little where there is work, because more of it is to be expected. One that
    /// finds nothing to write moves pages until the file is hardly longer than what it holds, or as many bytes
    /// as the memory limit were moved; other threads go on meanwhile. So to shrink a file call it twice.
    ///
    /// Errors: `ReadOnly`; `DiskFull` (nothing is lost, and the next one may succeed); `Poisoned` after
    /// a write or a sync failed in any other way, or the superblock's write in any way (it goes over
    /// blocks that were written before, for which a disk has room), from then on.
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.store.checkpoint()
    }

    /// Makes everything that was changed before this call durable, by the log: one write and one sync, shared
    /// with whoever else waits. Nothing to do in memory or without a log.
    ///
    /// Errors: `Unknown` if the log cannot be written; nothing can be changed any more then.
    pub fn sync(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.store.flush_log()
    }

    /// Where the log ends: every change that has returned lies below. Zero without a log.
    pub fn log_position(&self) -> Lsn {
        self.inner.store.log().map_or(Lsn(0), |log| log.tail())
    }

    /// Everything below is durable. Zero without a log.
    pub fn durable_position(&self) -> Lsn {
        self.inner.store.log().map_or(Lsn(0), |log| log.durable())
    }

    /// Waits until the log is durable up to `position`, one that [`Database::log_position`] has told. Errors: as
    /// for [`Database::sync`]; `InvalidOption` for a position that the log has not reached.
    pub fn wait_durable(&self, position: Lsn) -> Result<()> {
        self.log_up_to(position)?.map_or(Ok(()), |log| log.wait_durable(position))
    }

    /// [`Database::wait_durable`] for tasks: ready when the log is durable up to `position`. Else the task is woken when it is, or
    /// when it cannot become so. Does not block; the log's own thread flushes, within [`Options::log_interval`].
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// # let directory = tempfile::tempdir().map_err(|error| hedgerow::Error::io("no directory", error))?;
    /// # let path = directory.path().join("birds.hrow");
    /// let db = hedgerow::Options::new().memory_limit_bytes(16 << 20).create(path)?;
    /// db.keyspace("birds")?.put(b"wren", b"Troglodytes troglodytes")?;
    /// let position = db.log_position();
    /// let durable = std::future::poll_fn(|context| db.poll_durable(position, context));
    /// # let mut durable = std::pin::pin!(durable);
    /// # let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    /// # while std::future::Future::poll(durable.as_mut(), &mut context).is_pending() {}
    /// # assert!(db.durable_position() >= position);
    /// # db.close() }
    /// ```
    ///
    /// Errors: as for [`Database::wait_durable`].
    pub fn poll_durable(&self, position: Lsn, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self.log_up_to(position) {
            Ok(Some(log)) => log.poll_durable(position, context),
            Ok(None) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// The log, if it has come to `position`; `None` without a log.
    fn log_up_to(&self, position: Lsn) -> Result<Option<&Arc<Log>>> {
        self.inner.check_open()?;
        let Some(log) = self.inner.store.log() else { return Ok(None) };
        if position > log.tail() {
            let what = format!("position {} is beyond the end of the log", position.0);
            return Err(Error::new(ErrorKind::InvalidOption, what));
        }
        Ok(Some(log))
    }

    /// What opening has replayed from the log: nothing, unless the database had not been closed. Nothing in a forked process.
    pub fn replayed(&self) -> Replayed {
        if self.inner.check_process().is_err() {
            return Replayed::default();
        }
        self.inner.store.replayed()
    }

    /// Takes a checkpoint, stops background work and releases the file. All other handles get `Closed`
    /// from then on, and a second `close` does nothing. Without it the last changes may be lost: see [`Database`].
    ///
    /// Errors: those of [`Database::checkpoint`]; the database is closed all the same. `ForkedProcess`; nothing is closed then.
    pub fn close(self) -> Result<()> {
        self.inner.check_process()?;
        if self.inner.closed.swap(true, AcqRel) {
            return Ok(());
        }
        self.inner.store.close()
    }

    /// Figures that cost nothing to gather.
    pub fn stats(&self) -> Result<Stats> {
        self.inner.check_open()?;
        Ok(Stats::gather(&self.inner.store))
    }

    /// Accounts for every byte of the file.
    pub fn space_report(&self) -> Result<SpaceReport> {
        self.inner.check_open()?;
        self.inner.store.space_report()
    }

    /// Reads everything and checks it: superblocks, page map, free space, every page of every keyspace,
    /// order, fences and links. `progress` is told the number of pages checked so far, now and then.
    /// Damage is what the report lists; an error is what kept the check from going on.
    ///
    /// Everybody else goes on meanwhile. What is checked in the file is a checkpoint that is taken for this, whose
    /// slots are not used again before the end: the file grows by what is rewritten in that time. It takes memory
    /// beyond the limit: that of the smallest pool, and some ten bytes for each page. In a database in memory changes
    /// wait.
    ///
    /// Errors: those of [`Database::checkpoint`]; `Closed` if it is closed meanwhile; `Io`.
    pub fn verify(&self, progress: impl FnMut(u64)) -> Result<VerifyReport> {
        self.inner.check_open()?;
        let report = self.inner.store.verify(progress);
        self.inner.check_process().and(report)
    }

    /// Copies everything that was changed before this call to a new file at `path`, while everybody else goes on. The
    /// copy is a database like any other, without free space between its pages; it needs no log. `progress` is told
    /// the number of pages copied so far, now and then, and says whether to go on.
    ///
    /// A checkpoint is taken for this, whose slots are not used again before the end: the file grows by what is
    /// rewritten in that time. The copy has an id of its own, so that neither takes the other's log for its own.
    /// It is written under a temporary name: after a failure or a crash there is nothing at the path, or all of it.
    ///
    /// Errors: `AlreadyExists` if anything is at `path`, or the log of a store that was there (`Locked` if it is
    /// in use); `Corrupted`, naming the page, if this database is damaged; `DiskFull`; `NotFound` without the
    /// directory; `ReadOnly` if it was not closed, and is open for reading only; `InvalidOption` in memory;
    /// `Cancelled`; `Closed`; `Io`; those of [`Database::checkpoint`].
    pub fn backup(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        self.inner.check_open()?;
        let Some(disk) = &self.inner.disk else {
            let what = "a database in memory has no pages in a file to copy";
            return Err(Error::new(ErrorKind::InvalidOption, what));
        };
        let copied = self.inner.store.backup(&**disk, path.as_ref(), &mut progress);
        self.inner.check_process().and(copied)
    }
}
