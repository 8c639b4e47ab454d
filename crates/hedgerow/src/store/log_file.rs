//! The store's log file: read back after a crash, begun anew by each session that writes, gone after a close.
//!
//! The log of the store at `birds.hrow` is `birds.hrow-log` beside it. What it has to do with the superblock:
//!
//! - A superblock says whether there is a log that it needs, names it by its *incarnation*, and says where
//!   replay starts and how far the log was durable.
//! - Opening for writing replays, takes a checkpoint that needs no log, and only then puts a new log in place,
//!   of the next incarnation, whose addresses begin behind those of the old. It is relied on from the first
//!   checkpoint that names it, which is taken before anybody may change anything.
//! - So a crash finds one of: a superblock and the log that it needs; or a superblock that needs none, and
//!   whatever lies beside it. That is replaced only if it is this store's.
//! - A new log is made under a name of its own, `birds.hrow-log-new`, out of the old one's file if there is one:
//!   on a full disk there may be no room for another. Whatever file has that name is ours: after a
//!   crash there may be anything in it. Symbolic links are refused, and left alone. A log may have both names, where a file
//!   system renames by linking: the first one goes then.
//! - A store that needs no log, beside one that came after it and has changes: the file is an older copy. It is not
//!   opened, and the log stays. Nor is a store made where a log lies that another has left.
//!
//! **Names.** A session finds its log by its name once, when it opens. From then on it has the file, whatever becomes of
//! the names: the user may remove or rename the store, the log, or their directory, and another process may make a
//! store at the same path. A session whose names lead elsewhere goes on in its own files, and its close takes the
//! checkpoint that needs no log. So a log that stays behind under another name is in nobody's way. What is guaranteed:
//!
//! - A log is locked as long as its session may write to it. The entry of a log's name is changed only by who has
//!   the lock of the file that it names, and only after a look whether it still names that file. Both are done under the
//!   lock of the directory (`storage/names.rs`). So a close never removes the log of another session, however long
//!   it pauses between the look and the removal.
//! - A log that is in use is not taken for one that was left, not even beside a copy of its own store.
//! - Before a log gets its name, and again after that, its session looks whether the store's path still leads to the
//!   store that it has locked. If not, it takes its log away and gives up: nothing is in it.
//! - Only programs that know nothing of these rules can come in between the look and the change, for the time of a
//!   system call. On a file system without locks of directories that holds for other sessions as well.
//!
//! What is in it is replayed by `replay.rs`. A crash during that changes nothing about the next.
//! One caller at a time, before the store is used and after it has stopped.

use super::lock::lock;
use super::log_due::{CheckpointDue, LEAST_BOUND_BYTES};
use super::{Shared, StoreOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::storage::{AlignedBuffer, DirectIo, Disk, File, OpenMode, parent_directory};
use crate::store::superblock::Superblock;
use crate::types::Lsn;
use crate::wal::block::{BLOCK_BYTES, block_of, start_of};
use crate::wal::log::PREPARED_SEGMENTS;
use crate::wal::{FileHeader, Log, LogIdentity, LogOptions, SegmentSize, has_blocks, read_header};
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::{Arc, Mutex, thread};
use std::path::{Path, PathBuf};

/// The log of a store that is open for writing.
pub(super) struct LogFile {
    pub(super) log: Arc<Log>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    running: Mutex<Option<thread::JoinHandle<()>>>,
}

/// Blocks of a segment: a new log of two has 508 KiB.
const SEGMENT_BLOCKS: u32 = 62;

/// The path of the log of the store at `path`: who removes a store that is closed removes both files.
///
/// The log is there while the store is open for writing, and after a crash, when the store cannot be opened without it. Of a store that
/// was opened by a symbolic link, the log is beside the file that the link leads to: resolve links first. Reads nothing.
#[must_use]
pub fn log_path(path: impl AsRef<Path>) -> PathBuf {
    with_suffix(path.as_ref(), "-log")
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

impl LogFile {
    /// The log that a crash has left and that the store needs, and what is in its first block. `None`: there is
    /// nothing to replay.
    ///
    /// Opened in `mode`, and locked if that is for writing.
    ///
    /// Errors: `LogMissing`; `Locked`; `Corrupted` if it is another store's, an earlier one's, or
    /// damaged; `ForeignLog` if none is needed and there is a later one, with changes; `NotAStore` if the one that is
    /// needed is a link or no file; `Io`.
    pub(super) fn find(
        options: &StoreOptions,
        disk: &dyn Disk,
        path: &Path,
        superblock: &Superblock,
        mode: OpenMode,
    ) -> Result<Option<(Arc<dyn File>, FileHeader)>> {
        let log_path = log_path(path);
        if !superblock.needs_log {
            check_not_newer(disk, &log_path, superblock)?;
            return Ok(None);
        }
        let file = match disk.open_here(&log_path, mode, options.direct()) {
            Err(error) if error.kind() == ErrorKind::FileNotFound => {
                let what = format!(
                    "the store was not closed, and its log {} is missing: changes since the last \
                     checkpoint would be lost",
                    log_path.display()
                );
                return Err(Error::new(ErrorKind::LogMissing, what));
            }
            other => other?,
        };
        if mode == OpenMode::ReadWrite {
            lock_log(&*file, &log_path)?;
        }
        let header = read_header(&*file)?;
        if header.identity.store_id != superblock.store_id {
            let what = format!("{} is the log of another store", log_path.display());
            return Err(Error::corrupted_at(24, what));
        }
        let ours = superblock.log_incarnation;
        match header.identity.incarnation {
            found if found == ours => Ok(Some((file, header))),
            found => {
                let what = format!(
                    "the log has incarnation {found}, and the checkpoint needs incarnation {ours}"
                );
                Err(Error::corrupted_at(40, what))
            }
        }
    }

    /// Begins a log behind everything that the newest checkpoint says of earlier ones. The caller takes a
    /// checkpoint before it lets anybody write. `old` is the log that was replayed. `None`: the store's path leads
    /// elsewhere by now.
    ///
    /// Errors: `ForeignLog` if something lies at its path that is not this store's; `Locked`; `DiskFull`; `Io`;
    /// `MemoryLimit`.
    pub(super) fn begin(
        options: &StoreOptions,
        disk: &dyn Disk,
        path: &Path,
        shared: &Arc<Shared>,
        old: Option<Arc<dyn File>>,
    ) -> Result<Option<LogFile>> {
        let slots = shared.slots.as_ref().expect("a store at a path has a file");
        let (store, store_path) = (slots.file(), path);
        let superblock = shared.checkpointing.lock().superblock;
        let segment = SegmentSize { blocks: options.log_segment_blocks.unwrap_or(SEGMENT_BLOCKS) };
        let next_block = block_of(Lsn(superblock.log_end.0.next_multiple_of(start_of(1).0)));
        let identity = LogIdentity {
            store_id: superblock.store_id,
            incarnation: superblock.log_incarnation + 1,
        };
        let header = FileHeader {
            identity,
            segment,
            first_segment: next_block.div_ceil(u64::from(segment.blocks)),
            follows: superblock.checkpoint,
        };
        let path = log_path(path);
        let new = with_suffix(&path, "-new");
        let direct = options.direct();
        let file = match take_over(direct, disk, &path, &new, &superblock, old)? {
            Some(file) => file,
            None => claim(direct, disk, &new)?,
        };
        let begun = LogFile::write_new(options, file.clone(), &header, shared);
        let named = begun.and_then(|log| {
            name_log(disk, &new, &*file, &path, || store.is_named(store_path)).map(|is| (log, is))
        });
        let (log, is_named) = named.inspect_err(|_| {
            // Nothing is in it, and it would take room from whoever tries again.
            disk.unlink_own(&new, &*file).ok();
        })?;
        let log = Arc::new(log);
        if !is_named {
            return Ok(None);
        }
        log.file().set_path(&path);
        let journal = LogFile { log, disk: disk.share(), path, running: Mutex::new(None) };
        journal.start(options.background).inspect_err(|_| {
            // Nothing is in it, and nobody needs it. If the store goes as well, whose creation this was, it would be in the
            // way of the next one's.
            disk.unlink_own(&journal.path, &**journal.log.file()).ok();
        })?;
        Ok(Some(journal))
    }

    /// Makes its name durable, and starts its thread.
    fn start(&self, threaded: bool) -> Result<()> {
        self.disk.sync_dir(parent_directory(&self.path))?;
        if threaded {
            let log = self.log.clone();
            let running = thread::spawn_named("hedgerow-log", move || log.run())
                .map_err(|e| Error::io("cannot start the log's thread", e))?;
            *self.running.lock() = Some(running);
        }
        Ok(())
    }

    fn write_new(
        options: &StoreOptions,
        file: Arc<dyn File>,
        header: &FileHeader,
        shared: &Arc<Shared>,
    ) -> Result<Log> {
        // What was there before is of no use but for its room.
        let most = header.segment.place_offset_bytes(PREPARED_SEGMENTS);
        if file.len_bytes()? > most {
            match file.set_len(most) {
                // Some file systems need room to give some back.
                Err(error) if error.kind() == ErrorKind::DiskFull => {}
                cut => cut?,
            }
        }
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES)?;
        block.copy_from_slice(&*header.encode());
        file.write_at(0, &block)?;
        let pool = Arc::downgrade(&shared.pool);
        let slots = shared.slots.clone();
        let due = CheckpointDue {
            slots: shared.slots.clone(),
            pool: Arc::downgrade(&shared.pool),
            log_limit_bytes: options.log_limit_bytes,
            target: options.recovery_target,
            least_bound_bytes: LEAST_BOUND_BYTES,
            asked_bytes: AtomicU64::new(0),
        };
        let log = Log::begin(
            LogOptions {
                identity: header.identity,
                segment: header.segment,
                first_segment: header.first_segment,
                checkpoint: header.follows,
                ring_blocks: shared.pool.budget().ring_blocks(),
                interval: options.log_interval,
                limit_bytes: if options.background { options.log_limit_bytes } else { u64::MAX },
                threaded: options.background,
                before_write: Box::new(move || {
                    slots.as_ref().map_or(Ok(()), |slots| slots.sync_extents())
                }),
                on_failure: Box::new(move |error| {
                    if let Some(pool) = pool.upgrade() {
                        pool.set_poisoned(error);
                    }
                }),
                on_growth: Box::new(move |growth| due.look(growth)),
            },
            file,
        )?;
        log.file().sync_all()?;
        Ok(log)
    }

    /// Ends the log's thread. What is not durable then becomes so by a checkpoint, or never.
    pub(super) fn stop(&self) -> Result<()> {
        self.log.stop();
        let running = self.running.lock().take();
        if let Some(running) = running
            && running.join().is_err()
        {
            return Err(Error::new(ErrorKind::Poisoned, "the log's thread has panicked"));
        }
        Ok(())
    }

    /// Removes the file, which nobody needs after a proper close. If its name leads elsewhere it stays, wherever it is.
    pub(super) fn remove(&self) -> Result<()> {
        remove(&*self.disk, &self.path, &**self.log.file())
    }

    /// Gives back the lock of the file, to which nothing is written any more.
    pub(super) fn unlock(&self) -> Result<()> {
        self.log.file().unlock()
    }

    /// Removes the log that was replayed, of a store that is to have none.
    pub(super) fn remove_old(disk: &dyn Disk, path: &Path, log: &dyn File) -> Result<()> {
        let path = log_path(path);
        // A crash may have left it with the name of the next one as well.
        disk.unlink_own(&with_suffix(&path, "-new"), log)?;
        remove(disk, &path, log)
    }
}

fn remove(disk: &dyn Disk, path: &Path, log: &dyn File) -> Result<()> {
    let is_gone = disk.unlink_own(path, log)?;
    if !is_gone {
        return Ok(());
    }
    match disk.sync_dir(parent_directory(path)) {
        // The directory was renamed or removed in this moment. Nobody needs to know for long that the log is gone.
        Err(error) if error.kind() == ErrorKind::FileNotFound => Ok(()),
        synced => synced,
    }
}

/// Locks a log for the session that is going to write to it.
///
/// Errors: `Locked`, by a session of a store that was at this path before, or of another copy of this one.
fn lock_log(file: &dyn File, path: &Path) -> Result<()> {
    lock(file, true).map_err(|error| match error.kind() {
        ErrorKind::Locked { .. } => {
            let what = format!(
                "{} is in use: a store that was at this path, or a copy of this one, is still open",
                path.display()
            );
            Error::new(error.kind(), what)
        }
        _ => error,
    })
}

/// Makes way for a new log: what is left of this store's old one becomes the file of the new, named `new` and locked.
/// `replayed` is locked already. `None`: there is none.
fn take_over(
    direct: DirectIo,
    disk: &dyn Disk,
    path: &Path,
    new: &Path,
    superblock: &Superblock,
    replayed: Option<Arc<dyn File>>,
) -> Result<Option<Arc<dyn File>>> {
    let replayed = match replayed {
        Some(file) if file.is_named(path)? => Some(file),
        _ => None,
    };
    let old = match replayed {
        Some(file) => file,
        None => {
            let Some(old) = open_to_write(disk, path, direct)? else { return Ok(None) };
            let is_ours = old.len_bytes()? == 0
                || header_of(&*old)?
                    .is_some_and(|header| header.identity.store_id == superblock.store_id);
            if !is_ours {
                return Err(in_the_way(path));
            }
            lock_log(&*old, path)?;
            // Until it was locked somebody may have written to it.
            refuse_newer(&*old, path, superblock)?;
            old
        }
    };
    // A crash has cut a rename short that was a second link and the removal of the first.
    if old.is_named(new)? {
        return match disk.unlink_own(path, &*old)? {
            true => Ok(Some(old)),
            false => Err(taken_away(path)),
        };
    }
    // A link or a directory is not written over.
    let leftover = open_to_write(disk, new, DirectIo::Never)?;
    if let Some(leftover) = &leftover {
        lock_log(&**leftover, new)?;
    }
    match disk.rename_own(path, &*old, new, leftover.as_deref())? {
        true => Ok(Some(old)),
        false => Err(taken_away(path)),
    }
}

/// Tries for the name of a new log, each of which fails only if somebody else has just removed or renamed it.
const CLAIMS: usize = 16;

/// The file of a new log, locked: one that a crash has left, or an empty one.
fn claim(direct: DirectIo, disk: &dyn Disk, new: &Path) -> Result<Arc<dyn File>> {
    for _ in 0..CLAIMS {
        let file = match open_to_write(disk, new, direct)? {
            Some(file) => file,
            None => match disk.open_here(new, OpenMode::CreateNew, direct) {
                Err(error) if error.kind() == ErrorKind::FileExists => continue,
                other => other?,
            },
        };
        lock_log(&*file, new)?;
        if file.is_named(new)? {
            return Ok(file);
        }
    }
    Err(taken_away(new))
}

/// Gives a new log its name, unless the store's path leads elsewhere. If it fails, or does nothing, no name is left.
fn name_log(
    disk: &dyn Disk,
    new: &Path,
    log: &dyn File,
    path: &Path,
    store_has_its_name: impl Fn() -> Result<bool>,
) -> Result<bool> {
    let name = || {
        if !store_has_its_name()? {
            return Ok(false);
        }
        // Nothing has the name: what had it was taken over. If something has come since then, it is another session's.
        let renamed = disk.rename_own(new, log, path, None);
        if !renamed.map_err(|error| match error.kind() {
            ErrorKind::FileExists => in_the_way(path),
            _ => error,
        })? {
            return Err(taken_away(new));
        }
        store_has_its_name()
    };
    let named = name();
    if !matches!(named, Ok(true)) {
        // What has failed, or who was faster, is what there is to tell.
        for name in [new, path] {
            disk.unlink_own(name, log).ok();
        }
    }
    named
}

#[cold]
fn in_the_way(path: &Path) -> Error {
    let what = format!(
        "{} is at the path of the store's log, but it is not this store's log: move it away",
        path.display()
    );
    Error::new(ErrorKind::ForeignLog, what)
}

#[cold]
fn taken_away(path: &Path) -> Error {
    let what = format!("another program keeps removing or renaming {}", path.display());
    Error::new(ErrorKind::Locked { holder_pid: None }, what)
}

/// Looks beside a path at which a store is to be made: nothing may be in the way of its log, and no changes may lie there
/// of a store that was there before, even if this one is to have no log.
///
/// Errors: `ForeignLog`; `NotAStore` for a link or a directory at the log's path; `Io`.
pub(super) fn check_nothing_beside(
    options: &StoreOptions,
    disk: &dyn Disk,
    path: &Path,
) -> Result<()> {
    let path = log_path(path);
    let log = match open_if_there(disk, &path) {
        // It is in nobody's way.
        Err(_) if !options.log => return Ok(()),
        log => log?,
    };
    let Some(log) = log else { return Ok(()) };
    if let Some(header) = header_of(&*log)?
        && has_blocks(&*log, &header)?
    {
        let what = format!(
            "{} has changes of a store that was at this path: put its file back, or move the log away",
            path.display()
        );
        return Err(Error::new(ErrorKind::ForeignLog, what));
    }
    if options.log && log.len_bytes()? > 0 { Err(in_the_way(&path)) } else { Ok(()) }
}

/// Whether beside a store that needs no log there is one that came after it: then the file is an older copy of the
/// store, and what is in the log would be lost. What cannot be looked at is in the way of a new log, or of nobody.
///
/// Errors: `ForeignLog`; `Io`.
fn check_not_newer(disk: &dyn Disk, path: &Path, superblock: &Superblock) -> Result<()> {
    let Ok(Some(log)) = open_if_there(disk, path) else { return Ok(()) };
    refuse_newer(&*log, path, superblock)
}

/// See [`check_not_newer`].
fn refuse_newer(log: &dyn File, path: &Path, superblock: &Superblock) -> Result<()> {
    let Some(header) = header_of(log)? else { return Ok(()) };
    let LogIdentity { store_id, incarnation } = header.identity;
    let next = superblock.log_incarnation + 1;
    // A crash while a log is begun leaves the next one, with nothing in it.
    let is_newer = store_id == superblock.store_id
        && (incarnation > next || incarnation == next && has_blocks(log, &header)?);
    if !is_newer {
        return Ok(());
    }
    let what = format!(
        "{} has changes that are newer than this copy of the store: it belongs to a later copy. Put that one back, or \
         move the log away",
        path.display()
    );
    Err(Error::new(ErrorKind::ForeignLog, what))
}

/// What the first block of a log says; `None`: it is none.
fn header_of(file: &dyn File) -> Result<Option<FileHeader>> {
    match read_header(file) {
        Err(error) if matches!(error.kind(), ErrorKind::Corrupted { .. }) => Ok(None),
        other => other.map(Some),
    }
}

fn open_if_there(disk: &dyn Disk, path: &Path) -> Result<Option<Arc<dyn File>>> {
    match disk.open_here(path, OpenMode::ReadOnly, DirectIo::Never) {
        Err(error) if error.kind() == ErrorKind::FileNotFound => Ok(None),
        other => other.map(Some),
    }
}

fn open_to_write(disk: &dyn Disk, path: &Path, direct: DirectIo) -> Result<Option<Arc<dyn File>>> {
    match disk.open_here(path, OpenMode::ReadWrite, direct) {
        Err(error) if error.kind() == ErrorKind::FileNotFound => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{OpenHow, Store};
    use super::*;
    use crate::testing::RamDisk;

    #[test]
    fn the_log_lies_beside_the_store() {
        assert_eq!(log_path(Path::new("a/birds.hrow")), Path::new("a/birds.hrow-log"));
    }

    #[test]
    fn a_panic_of_the_logs_thread_is_told_by_the_close_and_the_log_stays() {
        let disk = RamDisk::new();
        let path = Path::new("birds.hrow");
        let options =
            StoreOptions { background: false, log: true, ..StoreOptions::without_log(16 << 20) };
        let store = Store::open(&options, &disk, path, OpenHow::New).unwrap();
        store.keyspace("wrens").unwrap().put(b"a", b"first").unwrap();
        let panics = || std::panic::resume_unwind(Box::new("a test's panic"));
        let running = thread::spawn_named("panics", panics).unwrap();
        *store.journal.lock().as_ref().unwrap().running.lock() = Some(running);
        let error = store.close().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Poisoned, "{error}");
        assert!(error.to_string().contains("panicked"), "{error}");
        assert!(disk.exists(&log_path(path)).unwrap());
        drop(store);
        let store = Store::open(&options, &disk, path, OpenHow::Existing).unwrap();
        let found = store.keyspace("wrens").unwrap().get(b"a").unwrap();
        assert_eq!(found.as_deref(), Some(&b"first"[..]));
        store.close().unwrap();
        assert!(!disk.exists(&log_path(path)).unwrap());
    }
}
