//! A database: one file, one pool, many keyspaces.
//!
//! Rank 7. What users need to know of it, its life and its threads stands with [`Database`]. Invariant: all handles share
//! one `Inner`. `Send + Sync`.

use crate::database::batch::WriteBatch;
use crate::database::holds::Holds;
use crate::database::inner::Inner;
use crate::database::keyspace::Keyspace;
use crate::database::options::Options;
use crate::database::stats::Stats;
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{Disk, RealDisk};
use crate::store::{
    BackupReport, HotLeaf, OpenHow, RecoveryReport, RepairReport, SpaceReport, Store, StoreOptions,
    VerifyReport, repair, restore,
};
use crate::types::Lsn;
use crate::wait::Wait;
use crate::wal::Log;
use hedgerow_sync::primitive::Arc;
use std::fmt;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

/// A log of less would stop for a checkpoint all the time.
const MIN_LOG_LIMIT_BYTES: u64 = 4 << 20;

/// A database: one file with any number of [keyspaces](Keyspace), opened by [`Options`], or with default options by
/// [`Database::open`], [`Database::create`] and [`Database::open_or_create`].
///
/// An owned handle without lifetimes; cloning it is cheap. `Send + Sync`: any number of threads use one, or clones of it.
/// The file is locked while any handle (of the database, a keyspace, a snapshot, a transaction, a cursor, a range, a reader or a writer), or a batch with changes, lives,
/// or until [`Database::close`].
///
/// **What survives a crash**: every change that was durable, as [`Durability`](crate::Durability) says. Of the changes after it the first ones may
/// survive, never one without those before it. The log beside the file (the file's name and `-log`) has the changes since
/// the last checkpoint. [`Database::checkpoint`] and [`Database::close`] take a checkpoint, and so does the background when
/// enough has changed. After `close` there is no log.
///
/// **Errors** of all calls, in addition to those that they name: [`ErrorKind::Closed`] and [`ErrorKind::ForkedProcess`].
///
/// **Fork.** A process that was forked from the one that opened the database cannot use its handles: each call is
/// [`ErrorKind::ForkedProcess`], dropping them does nothing, and the parent goes on undisturbed. A child may open
/// stores of its own, and the parent's store after the parent has closed it, whatever other threads of the parent did at the fork.
///
/// **Drop and close.** Dropping the last handle makes everything durable that was changed, even if an error or a panic is the
/// cause: it waits for one fsync of the log. If no more than 16 MiB of pages are dirty, it closes the database
/// as well; otherwise the next open replays the log. A drop cannot report that this has failed, so call [`Database::close`]
/// if you want to know. Without a log ([`Options::log`]), dropping a database with more dirty pages than that
/// loses what came after the last checkpoint.
///
/// **Restore and repair** need no open database: [`Options::restore`] makes a store of a backup, and [`Options::repair`] saves what is intact in a
/// damaged one.
///
/// **Names.** The files of an open database may be renamed or removed, and another database may be created at its path. The
/// open one goes on in its own files, and `close` touches no others. After a crash the log must be beside the file again, under
/// the file's name and `-log`.
#[derive(Clone)]
pub struct Database {
    pub(super) inner: Arc<Inner>,
    pub(super) holds: Arc<Holds>,
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Database");
        shown.field("path", &self.path()).field("is_read_only", &self.is_read_only());
        shown.finish_non_exhaustive()
    }
}

impl Options {
    /// Opens the database at `path`, which must exist. If it was not closed, its log is replayed, which takes at most about
    /// [`Options::recovery_target`].
    ///
    /// # Errors
    /// [`FileNotFound`](ErrorKind::FileNotFound); [`NotAStore`](ErrorKind::NotAStore) for any other file, an empty one, or a
    /// directory; [`Locked`](ErrorKind::Locked), naming the process that holds it where that is known: after up to a second where it is
    /// not, and after up to five while one that was killed ends; [`LogMissing`](ErrorKind::LogMissing) if the store needs its log and that is gone; [`ForeignLog`](ErrorKind::ForeignLog)
    /// if another file is at the log's name; [`UpgradeRequired`](ErrorKind::UpgradeRequired);
    /// [`Corrupted`](ErrorKind::Corrupted); [`InvalidOption`](ErrorKind::InvalidOption); [`DiskFull`](ErrorKind::DiskFull),
    /// [`MemoryLimit`](ErrorKind::MemoryLimit) and [`BatchUnfinished`](ErrorKind::BatchUnfinished) if the log cannot be
    /// replayed; [`Io`](ErrorKind::Io).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.on_disk(&self.real_disk()?, path.as_ref(), OpenHow::Existing)
    }

    /// Creates a database at `path`, where nothing may exist. After an error or a crash there is nothing at the path, or a
    /// whole database. Waits for fsyncs of the file and of its directory.
    ///
    /// # Errors
    /// [`FileExists`](ErrorKind::FileExists); [`ForeignLog`](ErrorKind::ForeignLog) if the log of another store is beside the
    /// path; [`Locked`](ErrorKind::Locked) while another process creates it;
    /// [`DirectoryNotFound`](ErrorKind::DirectoryNotFound); [`InvalidOption`](ErrorKind::InvalidOption);
    /// [`MemoryLimit`](ErrorKind::MemoryLimit); [`DiskFull`](ErrorKind::DiskFull); [`Io`](ErrorKind::Io).
    pub fn create(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.on_disk(&self.real_disk()?, path.as_ref(), OpenHow::New)
    }

    /// Opens the database at `path`, or creates it if there is no file or an empty one.
    ///
    /// # Errors
    /// Those of [`Options::open`] and [`Options::create`], but for `FileNotFound`, and `FileExists` only for a symbolic link
    /// that leads to no file.
    pub fn open_or_create(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.on_disk(&self.real_disk()?, path.as_ref(), OpenHow::ExistingOrNew)
    }

    /// Opens the database at `path`, which must exist, for reading only: nothing is written, not even to the file's metadata.
    /// Several processes may do so at a time, while none writes. Changes get [`ReadOnly`](ErrorKind::ReadOnly).
    ///
    /// If the database was not closed, its log is replayed into memory. That takes as long as [`Options::open`] would, each time.
    ///
    /// # Errors
    /// Those of [`Options::open`]; [`MemoryLimit`](ErrorKind::MemoryLimit) if the pages that the log changes do not fit into memory.
    pub fn open_read_only(&self, path: impl AsRef<Path>) -> Result<Database> {
        self.on_disk(&self.real_disk()?, path.as_ref(), OpenHow::ReadOnly)
    }

    /// Makes a database that lives in memory alone, inside of the memory limit. It ends with its last handle. Nothing of it is
    /// durable, and [`Database::backup`] refuses it.
    ///
    /// # Errors
    /// [`InvalidOption`](ErrorKind::InvalidOption); [`MemoryLimit`](ErrorKind::MemoryLimit).
    pub fn in_memory(&self) -> Result<Database> {
        Database::new(self, Store::in_memory(&self.store_options())?, None, None)
    }

    /// Makes a database in a file of its own in the system's directory for temporary files. The file may grow beyond the memory
    /// limit. It has no name, so it ends with its last handle, or with the process.
    ///
    /// # Errors
    /// [`DirectoryNotFound`](ErrorKind::DirectoryNotFound) without that directory; [`InvalidOption`](ErrorKind::InvalidOption);
    /// [`MemoryLimit`](ErrorKind::MemoryLimit); [`DiskFull`](ErrorKind::DiskFull); [`Io`](ErrorKind::Io).
    pub fn temporary(&self) -> Result<Database> {
        let disk = self.real_disk()?;
        let (options, directory) = (self.store_options(), std::env::temp_dir());
        let (path, file) = crate::storage::create_temporary(&disk, &directory, options.direct())?;
        // At once: whatever happens then, nothing is left.
        disk.unlink_own(&path, &*file)?;
        let store = Store::create_in(&options, file)?;
        store.attend_new(&options)?;
        Database::new(self, store, Some(disk.share()), None)
    }

    internal! {
        /// Opens or creates a database on a disk of the caller's choice.
        fn on_disk(&self, disk: &dyn Disk, path: &Path, how: OpenHow) -> Result<Database> {
            let store = Store::open(&self.store_options(), disk, path, how)?;
            Database::new(self, store, Some(disk.share()), Some(disk.locate(path)))
        }
    }

    /// Makes a store at `path` out of a backup. It checks all of the backup first, then copies it; so it reads the backup twice.
    /// Nothing may be at `path`, nor the log of a store that was there. Any store that was closed properly is a backup.
    ///
    /// `progress` is called now and then, on this thread, with the number of pages checked and copied so far. `Break` ends the call
    /// with `Cancelled`. After an error or a crash there is nothing at the path, or a whole store.
    ///
    /// # Errors
    /// [`Locked`](ErrorKind::Locked) if a store at `path` is in use, or the backup is being written to;
    /// [`FileExists`](ErrorKind::FileExists) for anything else at `path`; [`ForeignLog`](ErrorKind::ForeignLog) for the log of another
    /// store beside it; [`Corrupted`](ErrorKind::Corrupted), naming the first defect, if the backup is damaged, or the disk does not read a place of it;
    /// [`NotAStore`](ErrorKind::NotAStore) if it was cut short; [`NotClosed`](ErrorKind::NotClosed) if it was opened since and not
    /// closed; [`DirectoryNotFound`](ErrorKind::DirectoryNotFound); [`DiskFull`](ErrorKind::DiskFull); [`Cancelled`](ErrorKind::Cancelled); [`Io`](ErrorKind::Io); those of
    /// [`Options::open_read_only`].
    pub fn restore(
        &self,
        backup: impl AsRef<Path>,
        path: impl AsRef<Path>,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        self.restore_on_disk(&self.real_disk()?, backup.as_ref(), path.as_ref(), progress)
    }

    /// Copies what is whole in the damaged store at `from` into a new store at `to`. Nothing may be at `to`, nor the log of a store
    /// that was there. `from` is only read. The report names what is lost: damaged pages, with the ranges of keys that they held.
    ///
    /// `progress` is called now and then, on this thread, with the number of pages read so far (each is read twice). `Break` ends the
    /// call with `Cancelled`. It takes about 50 bytes of memory for each page, beyond the memory limit.
    ///
    /// # Errors
    /// After any of them there is nothing at `to`. [`Locked`](ErrorKind::Locked) if either store is in use;
    /// [`FileExists`](ErrorKind::FileExists) for anything else at `to`; [`ForeignLog`](ErrorKind::ForeignLog) for the log of another
    /// store beside it; [`Corrupted`](ErrorKind::Corrupted) if no superblock can be used; [`NotAStore`](ErrorKind::NotAStore);
    /// [`UpgradeRequired`](ErrorKind::UpgradeRequired); [`FileNotFound`](ErrorKind::FileNotFound) for `from`;
    /// [`DirectoryNotFound`](ErrorKind::DirectoryNotFound) for `to`; [`InvalidOption`](ErrorKind::InvalidOption);
    /// [`MemoryLimit`](ErrorKind::MemoryLimit); [`DiskFull`](ErrorKind::DiskFull); [`Cancelled`](ErrorKind::Cancelled); [`Io`](ErrorKind::Io).
    pub fn repair(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<RepairReport> {
        self.repair_on_disk(&self.real_disk()?, from.as_ref(), to.as_ref(), progress)
    }

    internal! {
        /// [`Options::repair`] on a disk of the caller's choice.
        fn repair_on_disk(
            &self,
            disk: &dyn Disk,
            from: &Path,
            to: &Path,
            mut progress: impl FnMut(u64) -> ControlFlow<()>,
        ) -> Result<RepairReport> {
            repair(&self.store_options(), disk, from, to, &mut progress)
        }
    }

    internal! {
        /// [`Options::restore`] on a disk of the caller's choice.
        fn restore_on_disk(
            &self,
            disk: &dyn Disk,
            backup: &Path,
            path: &Path,
            mut progress: impl FnMut(u64) -> ControlFlow<()>,
        ) -> Result<BackupReport> {
            restore(&self.store_options(), disk, backup, path, &mut progress)
        }
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
            merge_before_writing: self.merge_before_writing,
            log: self.log,
            log_interval: self.log_interval,
            log_limit_bytes: self.log_limit_bytes.max(MIN_LOG_LIMIT_BYTES),
            recovery_target: self.recovery_target,
            log_segment_blocks: self.log_segment_blocks,
            settle_after: self.settle_after,
            max_snapshot_age: self.max_snapshot_age,
        }
    }
}

impl Database {
    fn new(
        options: &Options,
        store: Store,
        disk: Option<Arc<dyn Disk>>,
        path: Option<PathBuf>,
    ) -> Result<Database> {
        let inner = Arc::new(Inner::new(store, options.durability, disk, path));
        Ok(Database { holds: Arc::new(Holds::of(&inner)), inner })
    }

    /// Opens the database at `path`, which must exist, with default options: [`Options::open`].
    ///
    /// # Errors
    /// Those of [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().open(path)
    }

    /// Creates a database at `path`, where nothing may exist, with default options: [`Options::create`].
    ///
    /// # Errors
    /// Those of [`Options::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().create(path)
    }

    /// Opens the database at `path` with default options, or creates it: [`Options::open_or_create`].
    ///
    /// ```no_run
    /// let db = hedgerow::Database::open_or_create("birds.hrow")?;
    /// db.keyspace("birds")?.put(b"wren", b"Troglodytes troglodytes")?;
    /// db.close()?;
    /// # Ok::<(), hedgerow::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Options::open_or_create`].
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().open_or_create(path)
    }

    /// Opens the database at `path`, which must exist, for reading only, with default options: [`Options::open_read_only`].
    ///
    /// # Errors
    /// Those of [`Options::open_read_only`].
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Database> {
        Options::new().open_read_only(path)
    }

    /// The keyspace `name`. It is created if there is none, which waits as [`Database::create_keyspace`] does. [`Database::open_keyspace`] creates
    /// nothing, and [`Database::create_keyspace`] opens nothing.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName) for a name that is empty or longer than 255 bytes, or than [`Keyspace::max_short_key_bytes`];
    /// [`KeyspaceNotFound`](ErrorKind::KeyspaceNotFound) if there is none and the database is open for reading only; those of
    /// [`Database::create_keyspace`] but for `KeyspaceExists`.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        self.inner.check_open()?;
        let tree = self.inner.store.keyspace(name)?;
        Ok(Keyspace::new(self.inner.clone(), tree, name, self.inner.durability))
    }

    /// The keyspace `name`, or `None` if there is none. Creates nothing. Costs a look-up in the catalogue, so keep the handle.
    ///
    /// # Errors
    /// [`InvalidName`](ErrorKind::InvalidName); the [errors of reads](Keyspace#errors-of-reads).
    pub fn open_keyspace(&self, name: &str) -> Result<Option<Keyspace>> {
        self.inner.check_open()?;
        let tree = self.inner.store.open_keyspace(name)?;
        Ok(tree.map(|tree| Keyspace::new(self.inner.clone(), tree, name, self.inner.durability)))
    }

    /// Creates the keyspace `name`, which must not exist. Waits for room in the log and one fsync of it, for a large commit of another thread
    /// ([`WriteBatch`]) to end, and while a keyspace is dropped, until all pages of that are freed.
    ///
    /// # Errors
    /// [`KeyspaceExists`](ErrorKind::KeyspaceExists); [`InvalidName`](ErrorKind::InvalidName) as for [`Database::keyspace`];
    /// [`TooManyKeyspaces`](ErrorKind::TooManyKeyspaces); the [errors of changes](Keyspace#errors-of-changes), and with any durability
    /// [`DurabilityUnknown`](ErrorKind::DurabilityUnknown): the change of names is in effect.
    pub fn create_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.inner.check_open()?;
        let tree = self.inner.store.create_keyspace(name)?;
        Ok(Keyspace::new(self.inner.clone(), tree, name, self.inner.durability))
    }

    /// Drops the keyspace `name` and all its records. Returns whether there was one. Other handles to it get
    /// [`KeyspaceDropped`](ErrorKind::KeyspaceDropped) from then on. Waits as [`Database::create_keyspace`] does. If snapshots are open that no checkpoint has taken over, it takes a checkpoint first. Pages and large values are
    /// freed before it returns, so the work grows with the keyspace; a damaged page and pages reached only by it stay; [`Database::verify`] names it.
    ///
    /// # Errors
    /// Those of [`Database::create_keyspace`] but for `KeyspaceExists` and `TooManyKeyspaces`. After an error of freeing its pages the keyspace
    /// is dropped all the same; the next open frees the rest.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        self.inner.check_open()?;
        self.inner.store.drop_keyspace(name)
    }

    /// The names of all keyspaces, in the order of their bytes. Reads the catalogue, a small tree.
    ///
    /// # Errors
    /// The [errors of reads](Keyspace#errors-of-reads).
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.inner.check_open()?;
        self.inner.store.keyspaces()
    }

    /// Makes all changes of a batch. A crash leaves all of them or none: the log gets the whole batch first, and the next open finishes
    /// a batch that a crash has interrupted. A batch is durable when a single change would be.
    ///
    /// Returns a position in the log: once the log is durable up to there ([`Database::wait_durable`]), the batch is, and a
    /// [snapshot](Database::snapshot) at or behind it has all of it.
    ///
    /// Other threads see all changes or none. A batch that is small enough is made at one stroke (see [`WriteBatch`]). While a larger one is made, their own changes wait. Without a log the
    /// changes of such a one are made one by one: see [`WriteBatch`].
    ///
    /// # Errors
    /// After these nothing has changed, but for `DurabilityUnknown` and `NotYetDurable`, after which all is made; without a log a first part of
    /// a large batch may be: the [errors of changes](Keyspace#errors-of-changes); [`BatchTooLarge`](ErrorKind::BatchTooLarge) if it takes more than an eighth of [`Options::log_limit_bytes`], or than 128 MiB (its keys and
    /// values, and about 32 bytes for each change); [`ForeignKeyspace`](ErrorKind::ForeignKeyspace) for keyspaces of another database.
    ///
    /// [`BatchUnfinished`](ErrorKind::BatchUnfinished) if the batch was begun and could not be finished, because a page could not be
    /// read or the disk is full beyond all reserves. Nothing can be changed then until the database is opened again, which finishes
    /// the batch; until then reads see what was there before it.
    pub fn write(&self, batch: &WriteBatch) -> Result<Lsn> {
        self.inner.check_open()?;
        batch.write_to(&self.inner)
    }

    /// Takes a checkpoint: writes all changed pages to the file, so that the next open replays nothing that came before. Blocks until
    /// they are written and synced; other threads go on meanwhile. Does nothing in memory.
    ///
    /// It also shrinks the file: a little if there was something to write, because more changes are likely. A call that finds nothing to
    /// write moves pages until the file is hardly longer than its contents, or until it has moved as many bytes as the memory limit.
    /// To shrink a file, call it twice; [`Database::shrink`] does more.
    ///
    /// # Errors
    /// [`ReadOnly`](ErrorKind::ReadOnly); [`DiskFull`](ErrorKind::DiskFull), after which nothing is lost and the next call may
    /// succeed; [`Poisoned`](ErrorKind::Poisoned), from then on, if a write or fsync failed in any other way, or a write of the
    /// superblock in any way; [`MemoryLimit`](ErrorKind::MemoryLimit); [`Corrupted`](ErrorKind::Corrupted); [`Closed`](ErrorKind::Closed); [`Io`](ErrorKind::Io).
    pub fn checkpoint(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.store.checkpoint()
    }

    /// Makes everything durable that was changed before this call. Blocks for one write and one fsync of the log, which are shared
    /// with other threads that wait. Does nothing in memory or without a log: there only [`Database::checkpoint`] makes changes durable.
    ///
    /// # Errors
    /// [`DurabilityUnknown`](ErrorKind::DurabilityUnknown) if the log cannot be written; nothing can be changed any more then.
    /// [`Closed`](ErrorKind::Closed).
    pub fn sync(&self) -> Result<()> {
        self.inner.check_open()?;
        self.inner.store.flush_log()
    }

    /// [`Database::sync`], and waits as `wait` says: so a thread can wait in pieces. The log's own thread writes then, at once.
    ///
    /// ```
    /// # fn main() -> hedgerow::Result<()> {
    /// # let db = hedgerow::Options::new().temporary()?;
    /// # db.keyspace("birds")?.put(b"wren", b"Troglodytes troglodytes")?;
    /// use hedgerow::{ErrorKind, Wait};
    /// use std::time::Duration;
    ///
    /// match db.sync_within(&Wait::For(Duration::from_millis(20))) {
    ///     Err(error) if error.kind() == ErrorKind::NotYetDurable => {} // ask again
    ///     synced => synced?,
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Database::sync`]; [`NotYetDurable`](ErrorKind::NotYetDurable) if the wait ended first: the changes are in effect, and
    /// will be durable.
    pub fn sync_within(&self, wait: &Wait) -> Result<()> {
        self.inner.check_open()?;
        self.inner.store.flush_log_within(&wait.begin())
    }

    /// The end of the log: every change that has returned lies below it. Zero without a log. Reads memory only.
    #[must_use]
    pub fn log_position(&self) -> Lsn {
        self.inner.store.log().map_or(Lsn(0), |log| log.tail())
    }

    /// The position up to which the log is durable. Zero without a log. Reads memory only.
    #[must_use]
    pub fn durable_position(&self) -> Lsn {
        self.inner.store.log().map_or(Lsn(0), |log| log.durable())
    }

    /// Blocks until the log is durable up to `position`, which [`Database::log_position`] returned. Returns at once without a log.
    ///
    /// # Errors
    /// Those of [`Database::sync`]; [`InvalidArgument`](ErrorKind::InvalidArgument) for a position that the log has not reached.
    pub fn wait_durable(&self, position: Lsn) -> Result<()> {
        self.log_up_to(position)?.map_or(Ok(()), |log| log.wait_durable(position))
    }

    /// [`Database::wait_durable`], and waits as `wait` says.
    ///
    /// # Errors
    /// Those of [`Database::wait_durable`]; [`NotYetDurable`](ErrorKind::NotYetDurable) if the wait ended first.
    pub fn wait_durable_within(&self, position: Lsn, wait: &Wait) -> Result<()> {
        let log = self.log_up_to(position)?;
        log.map_or(Ok(()), |log| log.wait_durable_within(position, &wait.begin()))
    }

    /// [`Database::durable`] for hand-made futures: ready when the log is durable up to `position`. Otherwise the task is woken when it
    /// is, or when it cannot become so; each call that is not ready adds one more waker. Does not block; the log's own thread flushes.
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
    /// # Errors
    /// Those of [`Database::wait_durable`].
    pub fn poll_durable(&self, position: Lsn, context: &mut Context<'_>) -> Poll<Result<()>> {
        match self.log_up_to(position) {
            Ok(Some(log)) => log.poll_durable(position, context),
            Ok(None) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// The log, if it has come to `position`; `None` without a log.
    pub(super) fn log_up_to(&self, position: Lsn) -> Result<Option<&Arc<Log>>> {
        self.inner.check_open()?;
        let Some(log) = self.inner.store.log() else { return Ok(None) };
        if position > log.tail() {
            let what = format!("position {} is beyond the end of the log", position.0);
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        Ok(Some(log))
    }

    /// The absolute path of the file that was opened or created; `None` in memory and for a [temporary](Options::temporary) database. It stays
    /// the same if the file is renamed. [`log_path`](crate::log_path) makes that of the log of it.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// Whether it was opened by [`Options::open_read_only`].
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.inner.store.is_read_only()
    }

    /// What opening has replayed from the log: nothing if the database had been closed, or in a forked process. Reads memory only.
    #[must_use]
    pub fn replayed(&self) -> RecoveryReport {
        if self.inner.check_process().is_err() {
            return RecoveryReport::default();
        }
        self.inner.store.replayed()
    }

    /// Closes the database: takes a checkpoint, stops the background threads and releases the file. Blocks until the changed pages are
    /// written and synced. All other handles get [`Closed`](ErrorKind::Closed) from then on; a second `close` does nothing, and does not wait for the first. Dropping the
    /// last handle instead makes the changes durable, too, but cannot report errors, as [`Database`] says.
    ///
    /// # Errors
    /// Those of [`Database::checkpoint`]; the database is closed all the same. After [`ForkedProcess`](ErrorKind::ForkedProcess)
    /// nothing is closed.
    pub fn close(self) -> Result<()> {
        self.inner.check_process()?;
        if !self.inner.close() {
            return Ok(());
        }
        self.inner.store.close()
    }

    /// Removes the database's files if this handle, or the one that it was cloned from, has created them. It is for a program that fails
    /// before it has written anything of use. A database that existed before is closed and stays, as with [`Database::close`]; so does
    /// one whose path leads to another file by now. Does nothing after a `close`. Waits as `close` does.
    ///
    /// # Errors
    /// [`Io`](ErrorKind::Io) if a file could not be removed; those of [`Database::close`] if the database stays.
    pub fn discard(self) -> Result<()> {
        self.inner.check_process()?;
        if !self.inner.close() {
            return Ok(());
        }
        match &self.inner.disk {
            Some(disk) => self.inner.store.discard(&**disk),
            None => self.inner.store.close(),
        }
    }

    /// Figures about memory, pages and the log. Cheap: it reads counters and neither waits nor reads the file.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed); [`ForkedProcess`](ErrorKind::ForkedProcess).
    pub fn stats(&self) -> Result<Stats> {
        self.inner.check_open()?;
        Ok(Stats::gather(&self.inner.store, self.holds.transactions()))
    }

    /// The leaves that threads contend for, or have contended for, the most contended first; at most `most` of them. A leaf that
    /// [Contention Split](Keyspace::with_contention_split) has made stays in the list until its page leaves memory. Looks at pages in
    /// memory, and reads the list of keyspaces.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed); [`ForkedProcess`](ErrorKind::ForkedProcess); [`Io`](ErrorKind::Io);
    /// [`Corrupted`](ErrorKind::Corrupted); [`MemoryLimit`](ErrorKind::MemoryLimit) and [`Timeout`](ErrorKind::Timeout) as for a look-up.
    pub fn hot_leaves(&self, most: usize) -> Result<Vec<HotLeaf>> {
        self.inner.check_open()?;
        self.inner.store.hot_leaves(most)
    }

    /// Accounts for every byte of the file. Reads memory only.
    ///
    /// # Errors
    /// [`Closed`](ErrorKind::Closed); [`ForkedProcess`](ErrorKind::ForkedProcess).
    pub fn space_report(&self) -> Result<SpaceReport> {
        self.inner.check_open()?;
        self.inner.store.space_report()
    }

    /// Reads everything and checks it: superblocks, page map, free space, every page of every keyspace, the order of keys, and large
    /// values. Damage is listed in the report and is not an error, and neither is a place that the disk cannot read.
    ///
    /// `progress` is called now and then, on this thread, with the number of pages read so far (each page is read twice). `Break` ends
    /// the call with `Cancelled`.
    ///
    /// Other threads go on meanwhile. The call takes a checkpoint and checks it. The space of this checkpoint is not used again before
    /// the end, so the file grows by what is rewritten in that time. The call takes memory beyond the limit: the smallest pool, and
    /// about ten bytes for each page. In a database in memory changes wait until the end, and `progress` is not called.
    ///
    /// # Errors
    /// What kept the check from going on: those of [`Database::checkpoint`] but for `ReadOnly`; [`Closed`](ErrorKind::Closed) if the database is closed
    /// meanwhile; [`Cancelled`](ErrorKind::Cancelled); [`Io`](ErrorKind::Io).
    ///
    /// ```
    /// # use hedgerow::Options;
    /// # use std::ops::ControlFlow;
    /// # fn main() -> hedgerow::Result<()> {
    /// # let db = Options::new().temporary()?;
    /// let report = db.verify(|_pages| ControlFlow::Continue(()))?;
    /// assert!(report.is_clean(), "{:?}", report.findings);
    /// # Ok(())
    /// # }
    /// ```
    pub fn verify(&self, progress: impl FnMut(u64) -> ControlFlow<()>) -> Result<VerifyReport> {
        self.inner.check_open()?;
        let report = self.inner.store.verify(progress);
        self.inner.check_process().and(report)
    }

    /// Copies everything that was changed before this call to a new file at `path`, while other threads go on. The copy is a database
    /// like any other, without free space between its pages; it needs no log. [`Options::restore`] checks it and makes a store of it.
    ///
    /// `progress` is called now and then, on this thread, with the number of pages copied so far. `Break` ends the call with
    /// `Cancelled`. The copy is written under a temporary name: after an error or a crash there is nothing at the path, or all of it.
    ///
    /// A checkpoint is taken for this: it waits for large batches under way, and new ones wait until it is taken. Its space is not used again before the end: the file grows by what is rewritten in that
    /// time. The copy has an id of its own, so that neither takes the other's log for its own.
    ///
    /// # Errors
    /// [`FileExists`](ErrorKind::FileExists) if anything is at `path` ([`Locked`](ErrorKind::Locked) if it is a store in use);
    /// [`ForeignLog`](ErrorKind::ForeignLog) if the log of another store is beside it;
    /// [`DirectoryNotFound`](ErrorKind::DirectoryNotFound); [`Corrupted`](ErrorKind::Corrupted), naming the page, if this database is
    /// damaged; [`NotClosed`](ErrorKind::NotClosed) if it was not closed, and is open for reading only;
    /// [`InMemory`](ErrorKind::InMemory); [`DiskFull`](ErrorKind::DiskFull); [`Cancelled`](ErrorKind::Cancelled);
    /// [`Closed`](ErrorKind::Closed); [`Io`](ErrorKind::Io); those of [`Database::checkpoint`].
    pub fn backup(
        &self,
        path: impl AsRef<Path>,
        mut progress: impl FnMut(u64) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        self.inner.check_open()?;
        let Some(disk) = &self.inner.disk else {
            let what = "a database in memory has no pages in a file to copy";
            return Err(Error::new(ErrorKind::InMemory, what));
        };
        let copied = self.inner.store.backup(&**disk, path.as_ref(), &mut progress);
        self.inner.check_process().and(copied)
    }
}
