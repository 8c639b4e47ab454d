//! The page store: what makes the pages of a pool durable in a file.
//!
//! Rank 6. The pieces: [`superblock`] is where a checkpoint begins; `open` finds it; `create` makes a new
//! store; `checkpoint` writes the next one; `settle` says when it is due; `reclaim`, `repack` and `large/relocate`
//! give space back to the file system; `catalogue` knows the keyspaces, `sweep` frees what a load has left that a crash cut short;
//! `large` writes and reads large values, copies, moves and verifies them; `batch` changes several records as one,
//! `alone` while nobody else changes any, `unfinished` finds those that a crash cut short; `snapshots` is what a snapshot sees beside
//! leaves, and `unchanged` compares that with what there is; `open_trees` merges leaves before they are written, `hot` lists those that threads contend for; `labels` has the forms of long keys; `log_file` has
//! the log, `log_due` says when it wants a checkpoint, `log_extents` keeps what it names, `preload` reads ahead for `replay`, which does again what is in it; `pin` keeps a checkpoint readable; `verify` checks everything;
//! `backup` copies it; `repair` salvages what is whole in a damaged file.
//!
//! Invariants (no page is ever overwritten where a checkpoint needs it, so these are all there are):
//! - a superblock is written after all that it refers to is written and synced;
//! - a slot that the durable checkpoint refers to is not written before the next one is durable;
//! - after a write or sync that failed in any way but *disk full*, nothing is written any more.
//!
//! `Send + Sync`; one checkpoint at a time, under `Store::checkpointing`.

mod alone;
mod backup;
mod batch;
mod catalogue;
mod checkpoint;
mod create;
mod frozen;
mod hot;
pub mod labels;
mod large;
mod lock;
mod log_due;
mod log_extents;
mod log_file;
mod open;
mod open_trees;
mod options;
mod pin;
mod preload;
mod reclaim;
mod repack;
mod repair;
mod repair_report;
mod replay;
mod settle;
mod snapshots;
pub mod superblock;
mod sweep;
#[cfg(test)]
mod tests;
mod unchanged;
mod unfinished;
mod verify;
mod verify_long;

pub use backup::{BackupReport, restore};
pub use batch::{BatchChange, BatchReads};
pub use catalogue::{Catalogue, MAX_NAME_BYTES};
pub use hot::HotLeaf;
pub use large::{ExtentReader, ExtentWriter, PlacedValue};
pub use log_file::log_path;
pub use open::OpenHow;
pub use options::{DEFAULT_PAGE_BYTES, StoreOptions};
pub use repair::repair;
pub use repair_report::{DamagedPage, LostKeys, RepairReport};
pub use replay::RecoveryReport;
use snapshots::KeptExtents;
pub use snapshots::{NO_LEAF, OpenSnapshot, Source, Was, dropped_is_too_old};
pub use verify::{VerifyFinding, VerifyReport};

pub use crate::space::SpaceReport;

use crate::buffer::{BufferPool, Lent};
use crate::error::{Error, ErrorKind, Result};
use crate::large::Held;
use crate::large::{Extent, Run, read_reference};
use crate::page::Values;
use crate::space::slot_store::SlotStore;
use crate::storage::Disk;
use crate::tree::{Tree, Value};
use crate::types::{Epoch, Lsn};
use crate::wait::{Wait, Waiting};
use crate::wal::Log;
use alone::Turn;
use batch::Batches;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicUsize, Ordering::Acquire};
use hedgerow_sync::primitive::process::Process;
use hedgerow_sync::primitive::{Arc, Mutex, thread};
use large::relocate::InVain;
use log_file::LogFile;
use reclaim::Reclaim;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use superblock::Superblock;

/// How long to wait before a load that is done is tried to be made durable again, when the reason why not may pass.
const LOAD_RETRIES: [Duration; 3] =
    [Duration::from_millis(1), Duration::from_millis(100), Duration::from_secs(1)];
/// Bytes of dirty pages that a disk of 100 MB/s writes within a fraction of a second.
const QUICKLY_WRITTEN_BYTES: usize = 16 << 20;

/// A tree in the pool of a store.
pub type PoolTree = Tree<BufferPool>;

/// A store: file, pool, catalogue, and the thread that takes checkpoints.
pub struct Store {
    shared: Arc<Shared>,
    checkpointer: Mutex<Option<thread::JoinHandle<()>>>,
    journal: Mutex<Option<LogFile>>,
    replayed: Mutex<RecoveryReport>,
    /// The path at which this handle has made it.
    created_at: Option<PathBuf>,
}

/// What the store shares with its thread.
struct Shared {
    pool: Arc<BufferPool>,
    slots: Option<Arc<SlotStore>>,
    catalogue: Catalogue,
    batches: Batches,
    turn: Turn,
    /// The newest superblock, and the pair of blocks that it lies in. Held for a whole checkpoint.
    checkpointing: Mutex<Newest>,
    /// How many are going to pin a checkpoint.
    pins_awaited: AtomicUsize,
    large_in_vain: Mutex<Option<InVain>>,
    /// Bulk loads that have begun and are not durable. Held while a large value is moved that may be of one.
    loads: Mutex<usize>,
    read_only: bool,
    /// The opening has ended, with all that it replays.
    is_recovered: AtomicBool,
    /// Snapshots that are older are given up.
    max_snapshot_age: Option<Duration>,
    kept_extents: KeptExtents,
    /// The process that opened the store. Its children do nothing with it.
    process: Process,
}

impl Shared {
    /// Errors: `ForkedProcess` in a child of the process that opened the store.
    fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::forked()) }
    }
}

/// The newest durable superblock, and what shrinking the file needs to know of earlier checkpoints.
struct Newest {
    superblock: Superblock,
    pair: u32,
    /// Batches that had begun at its cut, in this session.
    batches: u64,
    reclaim: Reclaim,
}

/// A bulk load, from before it begins until it is durable or given up.
struct LoadUnderWay<'s>(&'s Shared);

impl LoadUnderWay<'_> {
    fn begin(shared: &Shared) -> LoadUnderWay<'_> {
        *shared.loads.lock() += 1;
        LoadUnderWay(shared)
    }
}

impl Drop for LoadUnderWay<'_> {
    fn drop(&mut self) {
        // In a forked process the parent's is under way still, and the lock may be held for ever.
        if self.0.process.is_current() {
            *self.0.loads.lock() -= 1;
        }
    }
}

/// A record's value, as [`Store::find`] finds it.
pub enum Found {
    /// It was in the leaf.
    Short(Value),
    /// It was in frames, and this is what the leaf has instead.
    Held {
        /// The value.
        value: Value,
        /// The stored form.
        reference: Value,
    },
    /// It is in an extent.
    Extent(Box<ExtentReader>),
}

impl Store {
    /// The pool.
    pub fn pool(&self) -> &Arc<BufferPool> {
        &self.shared.pool
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        use crate::page::Frames;
        self.shared.pool.page_bytes()
    }

    /// The keyspace `name`, created if there is none.
    pub fn keyspace(&self, name: &str) -> Result<PoolTree> {
        loop {
            if let Some(tree) = self.shared.catalogue.get(name)? {
                return Ok(tree);
            }
            if self.shared.read_only {
                let what = format!("there is no keyspace `{}`", name.escape_debug());
                return Err(Error::new(ErrorKind::KeyspaceNotFound, what));
            }
            match self.create_keyspace(name) {
                // Another thread came first; what it has created may be gone again.
                Err(error) if error.kind() == ErrorKind::KeyspaceExists => {}
                other => return other,
            }
        }
    }

    /// The keyspace `name`, if there is one.
    pub fn open_keyspace(&self, name: &str) -> Result<Option<PoolTree>> {
        self.shared.catalogue.get(name)
    }

    /// Creates the keyspace `name`; durable when it returns, if there is a log.
    pub fn create_keyspace(&self, name: &str) -> Result<PoolTree> {
        let beside = self.shared.turn.stay_beside();
        let tree = self.shared.catalogue.create_keyspace(name)?;
        drop(beside);
        self.flush_log()?;
        Ok(tree)
    }

    /// Drops the keyspace `name`; tells whether there was one. Durable as for creation. Snapshots that are open by now go over to a
    /// checkpoint first, if there are checkpoints: they see what was in it.
    pub fn drop_keyspace(&self, name: &str) -> Result<bool> {
        let versions = self.shared.pool.versions().filter(|_| !self.shared.read_only);
        // If there are some, whether all of them have gone over. Else they are too old for this keyspace.
        let go_over = || {
            versions.is_some_and(|versions| {
                versions.oldest().is_some()
                    && (!versions.wants_pin(Lsn(u64::MAX))
                        || self.shared.checkpoint_and_reclaim(false).is_ok())
            })
        };
        go_over();
        let beside = self.shared.turn.stay_beside();
        let dropped = self.shared.catalogue.drop_keyspace(name, &go_over)?;
        drop(beside);
        self.flush_log()?;
        Ok(dropped)
    }

    /// The keyspace `from` is called `to` from now on. Durable as for creation.
    pub fn rename_keyspace(&self, from: &str, to: &str) -> Result<()> {
        let beside = self.shared.turn.stay_beside();
        self.shared.catalogue.rename_keyspace(from, to)?;
        drop(beside);
        self.flush_log()
    }

    /// Two keyspaces exchange their names. Durable as for creation.
    pub fn swap_keyspaces(&self, a: &str, b: &str) -> Result<()> {
        let beside = self.shared.turn.stay_beside();
        self.shared.catalogue.swap_keyspaces(a, b)?;
        drop(beside);
        self.flush_log()
    }

    /// Makes everything that was changed before durable, by the log. Nothing to do where there is none.
    pub fn flush_log(&self) -> Result<()> {
        self.flush_log_within(&Waiting::Forever)
    }

    /// [`Self::flush_log`], and waits as `waiting` says. Errors: `NotYetDurable`, too.
    pub fn flush_log_within(&self, waiting: &Waiting<'_>) -> Result<()> {
        self.shared.pool.log().map_or(Ok(()), |log| log.flush_within(waiting).map(drop))
    }

    /// The log.
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.shared.pool.log()
    }

    /// The end of the newest record, or an LSN that no change is above where there is no log.
    pub fn last_lsn(&self) -> Lsn {
        self.shared.pool.last_lsn()
    }

    /// What opening has replayed.
    pub fn replayed(&self) -> RecoveryReport {
        *self.replayed.lock()
    }

    /// Whether it was opened for reading only.
    pub fn is_read_only(&self) -> bool {
        self.shared.read_only
    }

    /// Whether there is a file, so that values may be large.
    pub fn has_file(&self) -> bool {
        self.shared.slots.is_some()
    }

    /// Whether a value in a leaf may be in a stored form. To be asked after it was read.
    #[inline]
    pub fn has_stored_forms(&self) -> bool {
        self.shared.pool.has_stored_forms()
    }

    /// From now on there may be some. Before the first one is put.
    pub fn expect_stored_forms(&self) {
        self.shared.pool.expect_stored_forms();
    }

    /// Begins to write a large value, to which a record refers that has `reference_room` bytes for that. Errors: see
    /// `ExtentWriter`.
    pub fn write_large(
        &self,
        len_bytes: u64,
        reference_room: usize,
        wait: &Wait,
    ) -> Result<ExtentWriter> {
        ExtentWriter::new(&self.shared.pool, len_bytes, reference_room, wait)
    }

    /// Places a value, to which a record refers that has `reference_room` bytes for that; `None` if it is too long for that and
    /// [`Self::write_large`] is the way. Errors: see `ExtentWriter`.
    pub fn place(
        &self,
        value: &[u8],
        reference_room: usize,
        wait: &Wait,
    ) -> Result<Option<PlacedValue>> {
        PlacedValue::new(&self.shared.pool, value, reference_room, wait)
    }

    /// Appends the value to which a record refers to `to`, if all of it is in memory; looks at nothing else.
    #[inline]
    pub fn append_kept(&self, reference: &[u8], to: &mut Vec<u8>) -> bool {
        let pool = &self.shared.pool;
        let Some((seed, len_bytes)) = read_reference(reference) else {
            return !self.has_file()
                && Held::decode(reference).is_some_and(|held| pool.append_held(&held, to));
        };
        // So much was in memory once.
        pool.keeps_values_of(len_bytes) && pool.append_kept(seed, len_bytes as usize, to)
    }

    /// Copies bytes from `offset` on of the value to which a record refers, if they are in memory; looks at nothing else.
    pub fn copy_kept(&self, reference: &[u8], offset: u64, to: &mut [u8]) -> bool {
        read_reference(reference).is_some_and(|(seed, len_bytes)| {
            offset.saturating_add(to.len() as u64) <= len_bytes
                && self.shared.pool.copy_kept(seed, offset, to)
        })
    }

    /// Lends the value to which a record refers, if all of it is in memory and it is not better copied; looks at nothing else.
    #[inline]
    pub fn lend_kept(&self, reference: &[u8]) -> Option<Lent<'_>> {
        let pool = &self.shared.pool;
        let (seed, len_bytes) = read_reference(reference)?;
        // So much was in memory once.
        pool.keeps_values_of(len_bytes).then(|| pool.lend_kept(seed, len_bytes as usize)).flatten()
    }

    /// Calls `f` with the value to which a record refers where it lies, if it is short and all of it is in memory, else gives `f` back.
    #[inline]
    pub fn with_kept<R, F: FnOnce(&[u8]) -> R>(
        &self,
        reference: &[u8],
        f: F,
    ) -> std::result::Result<R, F> {
        match read_reference(reference) {
            Some((seed, len_bytes)) => self.shared.pool.with_kept(seed, len_bytes as usize, f),
            None => Err(f),
        }
    }

    /// Begins to load what is needed to find a value in memory: at the first step where it is, at the second its first bytes.
    #[inline]
    pub fn prefetch_kept(&self, reference: &[u8], is_second: bool) {
        if let Some((seed, _)) = read_reference(reference) {
            match is_second {
                false => self.shared.pool.prefetch_kept(seed),
                true => self.shared.pool.prefetch_piece(seed),
            }
        }
    }

    /// Keeps a value in memory that was written.
    pub fn keep_value(&self, reference: &[u8], value: &[u8]) {
        if let Some((seed, _)) = read_reference(reference) {
            self.shared.pool.keep_value(seed, value, true);
        }
    }

    /// Keeps a value in memory that was read, unless it is long and would take the place of others.
    pub fn keep_read(&self, reference: &[u8], value: &[u8]) {
        if let Some((seed, _)) = read_reference(reference) {
            self.shared.pool.keep_read(seed, value);
        }
    }

    /// Whether there may be such a large value. Errors: `RecordTooLarge`.
    pub fn check_large(&self, len_bytes: u64, reference_room: usize) -> Result<()> {
        large::check_large(&self.shared.pool, len_bytes, reference_room).map(drop)
    }

    /// The process that opened the store.
    pub fn process(&self) -> Process {
        self.shared.process
    }

    /// Errors: `ForkedProcess` in a child of the process that opened the store.
    pub fn check_process(&self) -> Result<()> {
        self.shared.check_process()
    }

    /// Runs a bulk load of the keyspace, so that a crash in the middle leaves nothing behind. `load` sets the flag if it leaves pages that
    /// it could not free: the next opening sweeps them.
    ///
    /// Errors: why there can be no checkpoint, or those of `load`, which has left nothing then; why the load, which is done, could not be
    /// made durable: then the store is poisoned.
    pub fn bulk_load<R, E: From<Error>>(
        &self,
        name: &str,
        tree: &PoolTree,
        load: impl FnOnce(&Arc<AtomicBool>) -> Result<R, E>,
    ) -> Result<R, E> {
        let under_way = LoadUnderWay::begin(&self.shared);
        /// Whoever calls may panic in the middle.
        struct Loading<'l>(Option<(&'l Shared, &'l str, &'l PoolTree)>, Arc<AtomicBool>);
        impl Loading<'_> {
            fn end(&mut self) -> Result<()> {
                let Some((shared, name, tree)) = self.0.take() else { return Ok(()) };
                // In a forked process the load is the parent's, who goes on with it.
                shared.check_process()?;
                // Then its mark stays, as that of a load that a crash cut short, and does not end with a later load.
                if self.1.load(Acquire) { Ok(()) } else { shared.catalogue.end_load(name, tree) }
            }
        }
        impl Drop for Loading<'_> {
            fn drop(&mut self) {
                // Only after a panic there is anything to end; if it fails the next opening does it.
                self.end().ok();
            }
        }
        let checkpoint = || match self.shared.pool.log() {
            Some(_) => self.shared.checkpoint_and_reclaim(false).map(drop),
            None => Ok(()),
        };
        // The one behind the load must go well: what would keep it from that is told while nothing is done.
        checkpoint()?;
        self.shared.catalogue.begin_load(name, tree)?;
        let leaves_pages = Arc::new(AtomicBool::new(false));
        let mut loading = Loading(Some((&self.shared, name, tree)), leaves_pages.clone());
        let loaded = load(&leaves_pages);
        let ended = loading.end();
        // The caller's records may have forked.
        self.check_process()?;
        let loaded = loaded?;
        // The log has nothing of it, and what is changed from now on builds on it. There is room for all dirty pages, so a
        // full disk is not a reason; if it cannot be made durable all the same, nothing that comes after it may be. Of
        // space that could not be given back the next checkpoint tells.
        let mut durable = checkpoint();
        for pause in LOAD_RETRIES {
            // What was short may be there then, memory, say, and what was read wrongly be read rightly. After a failed write nothing is.
            let may_pass = |error: &Error| {
                error.kind() != ErrorKind::Closed && self.shared.pool.check_poison().is_ok()
            };
            if durable.as_ref().is_err_and(may_pass) {
                thread::sleep(pause);
                durable = checkpoint();
            }
        }
        durable.inspect_err(|error| {
            // Whoever closes takes a checkpoint himself.
            if error.kind() != ErrorKind::Closed {
                self.shared.pool.set_poisoned(error);
            }
        })?;
        // The mark alone costs a look at the file when the store is opened next.
        ended.ok();
        drop(under_way);
        Ok(loaded)
    }

    /// The names of all keyspaces, in order.
    pub fn keyspaces(&self) -> Result<Vec<String>> {
        self.shared.catalogue.names()
    }

    /// Makes everything that was changed before durable. If there was nothing, brings the file near to the size of what
    /// is in it.
    pub fn checkpoint(&self) -> Result<()> {
        self.shared.checkpoint_as_asked().map(drop)
    }

    /// [`Self::checkpoint`]. Whether there was nothing to make durable, so that all that it did was for a shorter file.
    pub fn checkpoint_to_shrink(&self) -> Result<bool> {
        self.shared.checkpoint_as_asked()
    }

    /// Takes the gaps out of the file, as far as `go_on` says before each zone. For after [`Self::checkpoint_to_shrink`].
    ///
    /// Errors: those of checkpoints.
    pub fn repack(&self, go_on: impl FnMut() -> bool) -> Result<()> {
        self.shared.repack(go_on)
    }

    /// Number of the last durable checkpoint.
    pub fn durable_checkpoint(&self) -> Epoch {
        self.shared.slots.as_ref().map_or(Epoch(0), |slots| slots.state().checkpoint)
    }

    /// Length of the file in bytes; zero in memory.
    pub fn file_bytes(&self) -> u64 {
        self.shared.slots.as_ref().map_or(0, |slots| slots.report().file_bytes)
    }

    /// Memory of the map's deltas, and of bitmaps and free ids, in bytes.
    pub fn space_memory_bytes(&self) -> (u64, u64) {
        let ids = self.shared.pool.ids().lock().memory_bytes() as u64;
        let Some(slots) = &self.shared.slots else { return (0, ids) };
        let state = slots.state();
        (state.deltas.memory_bytes() as u64, state.zones.memory_bytes() as u64 + ids)
    }

    /// Bytes of a unit of the file; 0 in memory.
    pub fn unit_bytes(&self) -> u32 {
        self.shared.slots.as_ref().map_or(0, |slots| slots.geometry().unit_bytes())
    }

    /// Where the runs of an extent lie, as offsets and lengths in bytes. Errors: `Corrupted` if it is none or cannot be one of this file.
    pub fn extent_places(&self, extent: Option<&Extent>) -> Result<Vec<(u64, u64)>> {
        let (Some(slots), Some(extent)) = (&self.shared.slots, extent) else {
            return Err(unknown_form());
        };
        slots.state().zones.check_extent(extent)?;
        let unit_bytes = u64::from(slots.geometry().unit_bytes());
        let place =
            |run: &Run| (slots.geometry().unit_offset(run.unit), u64::from(run.units) * unit_bytes);
        Ok(extent.runs.iter().map(place).collect())
    }

    /// Accounts for every byte of the file.
    pub fn space_report(&self) -> Result<SpaceReport> {
        Ok(self.shared.slots.as_ref().map_or_else(SpaceReport::default, |slots| slots.report()))
    }

    /// Checks everything. See [`crate::Database::verify`].
    pub fn verify(&self, mut progress: impl FnMut(u64) -> ControlFlow<()>) -> Result<VerifyReport> {
        self.shared.verify(&mut progress)
    }

    /// Copies what is there now to `path`. See [`crate::Database::backup`].
    pub fn backup(
        &self,
        disk: &dyn Disk,
        path: &Path,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<BackupReport> {
        self.shared.backup(disk, path, progress)
    }

    /// Takes a checkpoint, ends the threads, and refuses everything from then on. The file's lock goes
    /// with the last handle to the file, which is here.
    pub fn close(&self) -> Result<()> {
        self.close_and(None)
    }

    /// Closes the store, and removes its files if it was made by this handle. See [`crate::Database::discard`].
    pub fn discard(&self, disk: &dyn Disk) -> Result<()> {
        self.close_and(Some(disk))
    }

    fn close_and(&self, discard: Option<&dyn Disk>) -> Result<()> {
        self.check_process()?;
        // While there are checkpoints, which they may need.
        self.shared.batches.close();
        let taken = self.stop_checkpointer();
        self.shared.shrink_to_close();
        // Before the last checkpoint: a change that comes too late for it must not be accepted.
        self.shared.pool.set_closed();
        if let Some(slots) = &self.shared.slots {
            slots.close_file();
        }
        let closed = if self.shared.read_only { Ok(()) } else { self.shared.settle() };
        // No checkpoint has what is in the log, which may be sound.
        let written = match self.shared.pool.log() {
            Some(log) if closed.is_err() => log.flush().map(|_| ()),
            _ => Ok(()),
        };
        // A store that is removed needs neither checkpoint nor log.
        let (closed, written) = match discard.zip(self.created_at.as_deref()) {
            Some((disk, path)) => {
                (self.undo_creation(disk, path, closed.is_ok()).and(closed.or(Ok(()))), Ok(()))
            }
            None => (closed, written),
        };
        // In any case before the file is unlocked: somebody else may make a log then.
        let is_settled = closed.is_ok() && !self.shared.batches.need_log();
        let ended = self.end_journal(is_settled);
        // What failed first is told.
        let closed = closed.and(written).and(ended);
        self.shared.pool.stop();
        let unlocked = match &self.shared.slots {
            Some(slots) => slots.file().unlock(),
            None => Ok(()),
        };
        taken.and(closed).and(unlocked)
    }

    /// What is to be done before the last handle goes, by somebody who has called no [`Self::close`]: makes durable what
    /// was changed, and closes the store if that takes no long time.
    pub fn finish(&self) -> Result<()> {
        let pool = &self.shared.pool;
        if self.shared.read_only || pool.check_open().is_err() {
            return Ok(());
        }
        let images = pool.images_to_write();
        if images == 0 && self.log().is_none() {
            return Ok(());
        }
        let is_quick = images * self.page_bytes() <= QUICKLY_WRITTEN_BYTES;
        if is_quick && pool.check_poison().is_ok() {
            return self.close();
        }
        // Where there will be no checkpoint the log may be sound all the same.
        self.flush_log()
    }

    /// Ends the log; `remove`: nobody will need its file.
    fn end_journal(&self, remove: bool) -> Result<()> {
        let Some(journal) = self.journal.lock().take() else { return Ok(()) };
        let stopped = journal.stop();
        let removed = if remove && stopped.is_ok() { journal.remove() } else { Ok(()) };
        // Handles may live on that nobody uses; the next session's log may be this file.
        let unlocked = journal.unlock();
        stopped.and(removed).and(unlocked)
    }

    fn stop_checkpointer(&self) -> Result<()> {
        if let Some(slots) = &self.shared.slots {
            slots.close();
        }
        let running = self.checkpointer.lock().take();
        if let Some(running) = running
            && running.join().is_err()
        {
            return Err(Error::new(ErrorKind::Poisoned, "the checkpoint thread has panicked"));
        }
        Ok(())
    }
}

impl Drop for Store {
    /// Ends the threads; takes no checkpoint. What the thread had to say goes nowhere, as in a crash.
    fn drop(&mut self) {
        if !self.shared.process.is_current() {
            // A child has none of the threads that it would wait for, and locks as they were held at the fork. What all
            // parts share is left as it is, and so is everything below. So are the handles of threads: a thread that the child
            // has started since may have the memory of one of the parent's threads, and would be detached in its place.
            std::mem::forget(self.shared.clone());
            std::mem::forget((self.checkpointer.get_mut().take(), self.journal.get_mut().take()));
            return;
        }
        let stopped = self.stop_checkpointer();
        debug_assert!(stopped.is_ok() || std::thread::panicking());
        self.shared.pool.set_closed();
        // A refused unlock has nobody to be told to, and closing the file, which follows, unlocks as well.
        self.end_journal(false).ok();
        self.shared.pool.stop();
    }
}

fn unknown_form() -> Error {
    let kind = ErrorKind::Corrupted { page: None, offset_bytes: None };
    Error::new(kind, "the form of a record's value is unknown to this build")
}
