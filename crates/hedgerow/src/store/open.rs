//! Opening a store, and making a new one.
//!
//! Opening reads the superblocks and the upper parts of the zone table, and no more: parts of the page
//! map, bitmaps and pages are read when they are first needed. It writes nothing, unless one of the two
//! blocks of a superblock is damaged, which is repaired first. The file is locked before it is read:
//! exclusively by a writer, shared by readers.
//!
//! A new store's file has its first superblock written last, and its name after that (`create.rs`).

use super::alone::Turn;
use super::batch::Batches;
use super::catalogue::Catalogue;
use super::lock::lock;
use super::log_file::LogFile;
use super::options::StoreOptions;
use super::reclaim::Reclaim;
use super::replay::RecoveryReport;
use super::superblock::{self, POSITIONS, SUPERBLOCK_BYTES, Superblock, SuperblockBytes};
use super::{KeptExtents, Newest, Shared, Store, create};
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::events::{self, Started};
use crate::node;
use crate::page::Frames;
use crate::space::TableRoot;
use crate::space::geometry::Geometry;
use crate::space::image::PageForm;
use crate::space::map::MapRoot;
use crate::space::part::{self, PartBytes};
use crate::space::slot_store::{SlotStore, SpaceState};
use crate::space::{PageIds, Zones};
use crate::storage::{AlignedBuffer, Disk, File, OpenMode, parent_directory};
use crate::types::{Epoch, Lsn, PageId, Slot, TreeId};
use crate::wal::write_tail_again;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicUsize, Ordering::Release};
use hedgerow_sync::primitive::process::Process;
use hedgerow_sync::primitive::{Arc, Mutex, random, thread};
use std::path::Path;

/// Which stores may be opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenHow {
    /// One that exists.
    Existing,
    /// One that does not exist yet.
    New,
    /// Either.
    ExistingOrNew,
    /// One that exists, to read.
    ReadOnly,
}

/// Threads that read a store which a replay needs most of.
const PRELOAD_THREADS: usize = 4;
/// Looks at a path that others are creating or removing stores at.
const ATTEMPTS: usize = 3;

/// What the space of a file has to know of pages.
pub(super) const PAGE_FORM: PageForm =
    PageForm { check: check_page, gap: node::gap, pack: node::pack };

/// The check that every page gets when it is read.
pub(super) fn check_page(image: &[u8]) -> std::result::Result<(), String> {
    node::load_check(image).map_err(|defect| defect.to_string())
}

impl Store {
    /// Opens or makes the store at `path`. Errors: see [`crate::Options::open`]; each names the path.
    pub fn open(
        options: &StoreOptions,
        disk: &dyn Disk,
        path: &Path,
        how: OpenHow,
    ) -> Result<Store> {
        options.check()?;
        let started = Started::now();
        let (given, path) = (path, &disk.locate(path));
        for attempt in 1.. {
            match Store::try_open(options, disk, path, how) {
                // What was not there is there now, or the other way round.
                Ok(None) if attempt < ATTEMPTS => {}
                Err(error)
                    if attempt < ATTEMPTS
                        && how == OpenHow::ExistingOrNew
                        && matches!(
                            error.kind(),
                            ErrorKind::FileExists | ErrorKind::ForeignLog
                        ) => {}
                Ok(None) => {
                    let what = format!(
                        "other programs keep creating, removing or renaming {}",
                        path.display()
                    );
                    return Err(Error::new(ErrorKind::Locked { holder_pid: None }, what));
                }
                Ok(Some(store)) => {
                    let (limit, read_only) = (options.memory_limit_bytes, how == OpenHow::ReadOnly);
                    events::opened(path, store.page_bytes(), limit, read_only, started);
                    return Ok(store);
                }
                Err(error) => {
                    let doing = if how == OpenHow::New { "cannot create" } else { "cannot open" };
                    return Err(error.at_path(doing, given, path));
                }
            }
        }
        unreachable!("the attempts end with a store or an error")
    }

    /// `None` if another process has put something else to `path` meanwhile.
    fn try_open(
        options: &StoreOptions,
        disk: &dyn Disk,
        path: &Path,
        how: OpenHow,
    ) -> Result<Option<Store>> {
        let direct = options.direct();
        let file = match how {
            OpenHow::New => None,
            OpenHow::ReadOnly => Some(disk.open(path, OpenMode::ReadOnly, direct)?),
            OpenHow::Existing => Some(disk.open(path, OpenMode::ReadWrite, direct)?),
            OpenHow::ExistingOrNew => match disk.open(path, OpenMode::ReadWrite, direct) {
                Err(error) if error.kind() == ErrorKind::FileNotFound => None,
                other => Some(other?),
            },
        };
        let is_new = file.is_none();
        let store = match file {
            None => Some(create::new(options, disk, path)?),
            Some(file) => {
                lock(&*file, how != OpenHow::ReadOnly)?;
                // Its log is found by its name: it has to be the file that has the name now.
                if !file.is_at(path)? {
                    return Ok(None);
                }
                // A file made by somebody for this very store.
                if how == OpenHow::ExistingOrNew && file.len_bytes()? == 0 {
                    create::in_place_of(options, disk, path, file)?
                } else {
                    Some(Store::open_in(options, file, how == OpenHow::ReadOnly)?)
                }
            }
        };
        let Some(mut store) = store else { return Ok(None) };
        match store.recover(options, disk, path) {
            Ok(has_its_name) => {
                store.created_at = is_new.then(|| path.to_owned());
                Ok(has_its_name.then_some(store))
            }
            Err(error) => {
                if is_new {
                    // What failed first is the error to tell. What cannot be removed is an empty store.
                    store.undo_creation(disk, path, store.shared.settle().is_ok()).ok();
                }
                Err(error)
            }
        }
    }

    /// Removes a store that this handle has made, while it is locked: nobody else has it open. If `path` leads elsewhere, nothing is
    /// removed. `is_settled`: without its log it can be opened as well.
    ///
    /// Errors: `Io`.
    pub(super) fn undo_creation(
        &self,
        disk: &dyn Disk,
        path: &Path,
        is_settled: bool,
    ) -> Result<()> {
        let Some(file) = self.shared.slots.as_ref().map(|slots| slots.file()) else {
            return Ok(());
        };
        if !file.is_named(path)? {
            return Ok(());
        }
        // If not even a checkpoint can be written, the log goes once the file has gone for good.
        let early = if is_settled { self.end_journal(true) } else { Ok(()) };
        let unlinked =
            disk.unlink_own(path, &**file).and_then(|_| disk.sync_dir(parent_directory(path)));
        let ended = self.end_journal(unlinked.is_ok());
        unlinked.and(early).and(ended)
    }

    /// Replays what a crash has left in the log, and begins a log for what is to come. `Ok(false)`: `path` does not
    /// lead to this store any more. Nothing was changed then that anybody else has, and it is not to be used.
    fn recover(&self, options: &StoreOptions, disk: &dyn Disk, path: &Path) -> Result<bool> {
        let shared = &self.shared;
        let slots = shared.slots.as_ref().expect("a store at a path has a file");
        let superblock = shared.checkpointing.lock().superblock;
        // Beside the file itself, whatever links lead to it.
        let path = &match disk.resolve(path) {
            Err(error) if error.kind() == ErrorKind::FileNotFound => return Ok(false),
            resolved => resolved?,
        };
        if !slots.file().is_named(path)? {
            return Ok(false);
        }
        let mode = if shared.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let found = LogFile::find(options, disk, path, &superblock, mode)?;
        let replayed_log = found.as_ref().map(|(file, _)| file.clone());
        // Before anything is written: it must not go to where the log says that a large value lies.
        let found = match found {
            Some((file, header)) => {
                let named = shared.hold_named(slots, &*file, &header)?;
                Some((file, header, named))
            }
            None => None,
        };
        // Not before: it gives back room that nobody refers to, and the log's large values are held only now.
        self.attend(options)?;
        if !shared.read_only {
            // They give space back, and take what they need for that from where recovery takes it.
            shared.pool.set_replaying(true);
            match self.checkpointer.lock().is_some() {
                true => shared.catalogue.postpone_drops()?,
                false => shared.catalogue.finish_drops()?,
            }
            shared.finish_loads(slots)?;
            shared.pool.set_replaying(false);
        }
        if let Some((file, header, named)) = found {
            let started = Started::now();
            let threads = if options.background { PRELOAD_THREADS } else { 1 };
            let expected = named.end;
            let is_loaded = shared.preload(named.changes, threads)?;
            let replayed = if shared.read_only {
                // Into memory: nothing is written, so the next opening finds what this one has found.
                shared
                    .pool
                    .change_in_memory(|| shared.replay(&*file, &header, expected, is_loaded))?
            } else {
                // What a killed process has written without a sync can be read, and be gone after the next
                // crash; a checkpoint of the background may have some of it by then.
                write_tail_again(&*file, &header, &expected)?;
                file.sync_data()?;
                shared.pool.set_replaying(true);
                let replayed =
                    shared.replay(&*file, &header, expected, is_loaded).and_then(|replayed| {
                        shared.pool.set_replaying(false);
                        // From here on the old log is not needed.
                        shared.settle().map(|()| replayed)
                    });
                // If that failed it is needed again, and what it names is kept no more: nothing may be written.
                let replayed = replayed.inspect_err(|error| shared.pool.set_poisoned(error))?;
                slots.end_replay(named.reading);
                replayed
            };
            *self.replayed.lock() = replayed;
            events::recovered(path, replayed.records, replayed.log_bytes, started);
            // What the session that was cut short has needed beside its records goes back.
            slots.checkpoints().note_change();
        }
        if options.log && !shared.read_only {
            let begun = LogFile::begin(options, disk, path, shared, replayed_log)?;
            let Some(journal) = begun else { return Ok(false) };
            shared.pool.set_log(journal.log.clone());
            *self.journal.lock() = Some(journal);
            // Nobody may change anything before a superblock names the log.
            shared.checkpoint(false)?;
        } else if let Some(log) = replayed_log.filter(|_| !shared.read_only) {
            LogFile::remove_old(disk, path, &*log)?;
        }
        // Release: the checkpoint thread does not settle a store before all of that.
        shared.is_recovered.store(true, Release);
        if shared.catalogue.has_postponed_drops() {
            // The thread goes on with them when it is awake.
            slots.checkpoints().request();
        }
        Ok(true)
    }

    /// Begins the work of the background in a store that [`Store::create_in`] has made and that is not opened at a path: there is nothing to
    /// recover. Until then a writer who waits for a checkpoint waits in vain.
    ///
    /// Errors: `Io` if there can be no thread.
    pub fn attend_new(&self, options: &StoreOptions) -> Result<()> {
        self.attend(options)?;
        self.shared.is_recovered.store(true, Release);
        Ok(())
    }

    /// Begins the checkpoint thread, if the store is to have one.
    fn attend(&self, options: &StoreOptions) -> Result<()> {
        let in_background = options.background && !self.shared.read_only;
        let Some(slots) = self.shared.slots.as_ref().filter(|_| in_background) else {
            return Ok(());
        };
        let (shared, due, after) = (self.shared.clone(), slots.clone(), options.settle_after);
        let run = move || shared.checkpoint_when_due(&due, after);
        let running = thread::spawn_named("hedgerow-checkpoint", run)
            .map_err(|e| Error::io("cannot start the checkpoint thread", e))?;
        *self.checkpointer.lock() = Some(running);
        slots.attend();
        Ok(())
    }

    /// Makes a store in memory alone.
    pub fn in_memory(options: &StoreOptions) -> Result<Store> {
        options.check()?;
        let pool_options = options.pool(options.new_page_bytes(), Epoch(1), Lsn(0), false);
        let pool = Arc::new(BufferPool::new(&pool_options, None, PageIds::create())?);
        let catalogue = Catalogue::create(pool.clone(), options.leaves)?;
        let superblock =
            Superblock::first(Geometry::for_new_store(options.new_page_bytes() as u32, 1)?);
        Store::start(
            options,
            pool,
            catalogue,
            Newest { superblock, pair: 0, batches: 0, reclaim: Reclaim::default() },
            false,
        )
    }

    /// Makes a store in an empty file.
    pub fn create_in(options: &StoreOptions, file: Arc<dyn File>) -> Result<Store> {
        options.check()?;
        lock(&*file, true)?;
        let page_bytes = options.new_page_bytes();
        let mut geometry = Geometry::for_new_store(page_bytes as u32, file.block_bytes() as u32)?;
        if let Some(zone_bytes) = options.zone_bytes {
            geometry =
                Geometry::from_sizes(geometry.page_bytes(), geometry.unit_bytes(), zone_bytes)?;
        }
        check_blocks(&*file, geometry)?;
        let superblock = Superblock::first(geometry);
        let state = SpaceState {
            zones: Zones::create(geometry),
            deltas: options.deltas(page_bytes)?,
            owed: Arc::default(),
            map: MapRoot::EMPTY,
            checkpoint: Epoch(0),
        };
        let slots = Arc::new(SlotStore::new(file, page_bytes, PAGE_FORM, state));
        let pool_options = options.pool(page_bytes, Epoch(1), Lsn(0), false);
        let pool = BufferPool::new(&pool_options, Some(slots), PageIds::create())?;
        let pool = Arc::new(pool);
        let catalogue = Catalogue::create(pool.clone(), options.leaves)?;
        // The first checkpoint goes to pair 0, as if the one before had been in pair 1.
        let store = Store::start(
            options,
            pool,
            catalogue,
            Newest { superblock, pair: 1, batches: 0, reclaim: Reclaim::default() },
            false,
        )?;
        store.checkpoint()?;
        Ok(store)
    }

    fn open_in(options: &StoreOptions, file: Arc<dyn File>, read_only: bool) -> Result<Store> {
        let chosen = read_superblocks(&*file)?;
        let superblock = chosen.superblock;
        let geometry = superblock.geometry;
        let page_bytes = geometry.page_bytes() as usize;
        if chosen.read_only && !read_only {
            return Err(Error::new(
                ErrorKind::UpgradeRequired { found: superblock::FORMAT_VERSION },
                "the store has features that this build can read but not write; open it read-only",
            ));
        }
        if let Some(expected) = options.page_bytes.filter(|expected| *expected != page_bytes) {
            return Err(Error::new(
                ErrorKind::InvalidOption,
                format!("the store has pages of {page_bytes} bytes, not of {expected}"),
            ));
        }
        fit_blocks(&*file, geometry)?;
        let (pair, file_bytes) = (chosen.pair, file.len_bytes()?);
        let store =
            Store::open_checkpoint(options, &file, file_bytes, superblock, pair, read_only)?;
        if !read_only {
            settle_superblocks(&*file, &chosen)?;
        }
        Ok(store)
    }

    /// Opens a checkpoint for reading, of a file whose superblock may be another one by now: somebody keeps its
    /// slots from being written. The file may be shorter by what the checkpoint does not refer to: it counts the zones of a part of
    /// its table that was not in memory as far as they were there, and a later one can tell more exactly.
    pub(super) fn open_at(
        options: &StoreOptions,
        file: Arc<dyn File>,
        superblock: Superblock,
    ) -> Result<Store> {
        let needed = superblock.geometry.unit_offset(superblock.table.units);
        let file_bytes = file.len_bytes()?.max(needed);
        Store::open_checkpoint(options, &file, file_bytes, superblock, 0, true)
    }

    fn open_checkpoint(
        options: &StoreOptions,
        file: &Arc<dyn File>,
        file_bytes: u64,
        superblock: Superblock,
        pair: u32,
        read_only: bool,
    ) -> Result<Store> {
        let geometry = superblock.geometry;
        let page_bytes = geometry.page_bytes() as usize;
        let mut buffer = AlignedBuffer::zeroed(part::new_bytes().len())?;
        let mut read = |slot: Slot, out: &mut PartBytes| {
            let at = slot.offset_bytes();
            file.read_at(at, &mut buffer).map_err(|error| error.at_place(None, at))?;
            out.copy_from_slice(&buffer);
            Ok(())
        };
        let newest = superblock.checkpoint;
        let zones = Zones::open(geometry, &superblock.table, newest, file_bytes, &mut read)?;
        let state = SpaceState {
            zones,
            deltas: options.deltas(page_bytes)?,
            owed: Arc::default(),
            map: superblock.map,
            checkpoint: newest,
        };
        let slots = Arc::new(SlotStore::new(file.clone(), page_bytes, PAGE_FORM, state));
        if superblock.incompat & superblock::EXTENTS != 0 {
            slots.expect_stored_forms();
        }
        if superblock.incompat & superblock::LONG_KEYS != 0 {
            slots.expect_long_keys();
        }
        let ids = PageIds::open(superblock.next_page, superblock.free_pages);
        let pool_options = options.pool(page_bytes, newest.next(), superblock.log_end, read_only);
        let pool = Arc::new(BufferPool::new(&pool_options, Some(slots), ids)?);
        let catalogue = Catalogue::open(pool.clone(), superblock.next_tree, options.leaves);
        let newest = Newest { superblock, pair, batches: 0, reclaim: Reclaim::default() };
        Store::start(options, pool, catalogue, newest, read_only)
    }

    fn start(
        options: &StoreOptions,
        pool: Arc<BufferPool>,
        catalogue: Catalogue,
        newest: Newest,
        read_only: bool,
    ) -> Result<Store> {
        let process = Process::current()
            .map_err(|source| Error::io("cannot tell a forked process from its parent", source))?;
        if options.merge_before_writing && !read_only {
            catalogue.merge_before_writing();
        }
        pool.start();
        let page_bytes = Frames::page_bytes(&*pool);
        pool.keep_versions(node::max_key_bytes(page_bytes), node::max_record_bytes(page_bytes));
        let slots = pool.slots().cloned();
        let shared = Arc::new(Shared {
            pool,
            slots,
            catalogue,
            batches: Batches::default(),
            turn: Turn::default(),
            checkpointing: Mutex::new(newest),
            pins_awaited: AtomicUsize::new(0),
            large_in_vain: Mutex::new(None),
            max_snapshot_age: options.max_snapshot_age,
            kept_extents: KeptExtents::default(),
            loads: Mutex::new(0),
            read_only,
            is_recovered: AtomicBool::new(false),
            process,
        });
        let store = Store {
            shared,
            checkpointer: Mutex::new(None),
            journal: Mutex::new(None),
            replayed: Mutex::new(RecoveryReport::default()),
            created_at: None,
        };
        Ok(store)
    }
}

impl Superblock {
    /// An id for a store, which no other has.
    pub(super) fn new_store_id() -> [u8; 16] {
        let mut store_id = [0; 16];
        store_id[..8].copy_from_slice(&random::seed().to_le_bytes());
        store_id[8..].copy_from_slice(&random::seed().to_le_bytes());
        store_id
    }

    /// What a store is before its first checkpoint.
    fn first(geometry: Geometry) -> Superblock {
        Superblock {
            compat: 0,
            read_only_compat: 0,
            incompat: 0,
            store_id: Superblock::new_store_id(),
            checkpoint: Epoch(0),
            geometry,
            needs_log: false,
            map: MapRoot::EMPTY,
            table: TableRoot::EMPTY,
            next_page: Some(PageId::CATALOGUE_ROOT),
            free_pages: 0,
            next_tree: TreeId(TreeId::CATALOGUE.0 + 1),
            replay_start: Lsn(0),
            log_end: Lsn(0),
            renames_end: Lsn(0),
            log_incarnation: 0,
            app_id: 0,
            user_version: 0,
        }
    }
}

/// Lets a file go through the page cache if the pages or units of its store cannot be read and written past it here: the store
/// was made on a device with smaller blocks, or where the system tells of smaller ones.
///
/// Errors: those of the file; as [`check_blocks`] if it goes on past the page cache.
pub(super) fn fit_blocks(file: &dyn File, geometry: Geometry) -> Result<()> {
    if check_blocks(file, geometry).is_err() {
        file.use_page_cache()?;
    }
    check_blocks(file, geometry)
}

/// Errors: `InvalidOption` if the pages or units of a store cannot be read and written past the page cache here.
fn check_blocks(file: &dyn File, geometry: Geometry) -> Result<()> {
    let (blocks, units, pages) = (file.block_bytes(), geometry.unit_bytes(), geometry.page_bytes());
    if blocks <= units.min(pages) as usize {
        return Ok(());
    }
    let what = format!(
        "the store has pages of {pages} bytes in units of {units}, and direct I/O on this disk needs multiples \
         of {blocks}: use direct_io(false)"
    );
    Err(Error::new(ErrorKind::InvalidOption, what))
}

/// What an opening goes by: the newest checkpoint, for sure.
pub(super) fn read_superblocks(file: &dyn File) -> Result<superblock::Chosen> {
    let (chosen, unread) = read_all_superblocks(file)?;
    hidden(&chosen, unread).map_or(Ok(chosen), Err)
}

/// Why there may be a later checkpoint: the first block of the other pair is not read, and a crash may have left nothing of that
/// checkpoint in the second. Any other block that is not read is no worse than a damaged one.
pub(super) fn hidden(chosen: &superblock::Chosen, unread: Vec<(u64, Error)>) -> Option<Error> {
    let [first, _] = superblock::positions_of(chosen.pair ^ 1);
    unread.into_iter().find(|(offset, _)| *offset == first).map(|(_, error)| error)
}

/// The newest checkpoint that can be read, and the blocks that cannot be, which count as damaged, with the disk's words.
pub(super) fn read_all_superblocks(
    file: &dyn File,
) -> Result<(superblock::Chosen, Vec<(u64, Error)>)> {
    let len = file.len_bytes()?;
    let mut blocks: [Option<Box<SuperblockBytes>>; 4] = [const { None }; 4];
    let mut unread = Vec::new();
    for (block, offset) in blocks.iter_mut().zip(POSITIONS) {
        if offset + SUPERBLOCK_BYTES as u64 <= len {
            let mut bytes = Box::new([0; SUPERBLOCK_BYTES]);
            if let Err(error) = file.read_unaligned(offset, &mut *bytes) {
                // Not zeros, which would say that nothing was written there yet.
                *bytes = [!0; SUPERBLOCK_BYTES];
                unread.push((offset, error.at_place(None, offset)));
            }
            *block = Some(bytes);
        }
    }
    match superblock::choose([0, 1, 2, 3].map(|at: usize| blocks[at].as_deref())) {
        Ok(chosen) => Ok((chosen, unread)),
        // Another version is told by any block.
        Err(error) if matches!(error.kind(), ErrorKind::UpgradeRequired { .. }) => Err(error),
        Err(error) => Err(unread.into_iter().next().map_or(error, |(_, error)| error)),
    }
}

/// Makes the newest superblock durable, and writes its blocks that are not as they should be.
///
/// Both may be whole, and neither be durable: they can be read as soon as they are written, and whoever wrote them, to publish
/// them or here, was killed before it had synced them, or has failed to. So one of the whole ones is written in any case, as
/// it is. And as for whoever publishes, one block is durable before the other is touched: a power cut may tear what is written.
fn settle_superblocks(file: &dyn File, chosen: &superblock::Chosen) -> Result<()> {
    let mut buffer = AlignedBuffer::zeroed(SUPERBLOCK_BYTES)?;
    buffer.copy_from_slice(&*chosen.superblock.encode(chosen.pair));
    let [first, second] = superblock::positions_of(chosen.pair);
    let whole = if chosen.repair.contains(&second) { first } else { second };
    for offset in [whole].iter().chain(&chosen.repair) {
        file.write_at(*offset, &buffer)?;
        file.sync_data()?;
    }
    Ok(())
}
