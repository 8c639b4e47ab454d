//! Backups: a pinned checkpoint, copied into a file of its own while writers go on.
//!
//! A backup is a store like any other. It holds the pages of one checkpoint, one behind the other, without the
//! free space between them, and a page map and a zone table of its own; it needs no log. It is written under a
//! temporary name, its superblock last, and gets its path when all of it is durable (`create.rs`): a backup that was
//! cut short is a file that says that it is no store, and the next one to the same path removes it.
//!
//! It gets a store id of its own. Opened, it goes its own way, and gives out the same addresses and incarnations
//! of its log as the store that it was copied from does from then on: by the id each tells its own log from the
//! other's, wherever the files are moved to.
//!
//! Large values are copied with the leaves that refer to them, which say then where the copies lie.
//!
//! Each page is checked on the way, and each chunk of a large value: nothing damaged is copied. Memory, beyond the limit
//! of the store: 128 pages, a MiB if there are large values, and the bitmaps of the copy, three bits for each of its units.
//! Any number of backups may be taken at a time.

use super::large::LargeCopy;
use super::lock::lock;
use super::log_file::log_path;
use super::open::{PAGE_FORM, fit_blocks};
use super::options::StoreOptions;
use super::pin::Pin;
use super::superblock::{RENAMES_REPLAYED, SUPERBLOCK_BYTES, Superblock, positions_of};
use super::{OpenHow, Shared, Store, create};
use crate::error::{Error, ErrorKind, Result};
use crate::space::image_batch::{make_images, requests};
use crate::space::map::{self, Change, MapRoot, MapView};
use crate::space::part::{self, PartBytes};
use crate::space::part_file::PartFile;
use crate::space::slot_store::{SlotStore, SpaceState};
use crate::space::{Deltas, TableRoot, Zones};
use crate::storage::{AlignedBuffer, DirectIo, Disk, File, OpenMode};
use crate::types::{Epoch, Lsn, PART_BYTES, PART_HEADER_WORDS, PART_WORDS, PageId, Slot};
use hedgerow_sync::primitive::Arc;
use std::ops::ControlFlow;
use std::path::Path;

/// What [`Database::backup`](crate::Database::backup) or [`Options::restore`](crate::Options::restore) has copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BackupReport {
    /// Pages that were copied.
    pub pages: u64,
    /// Length of the backup in bytes.
    pub file_bytes: u64,
    /// Number of the checkpoint that was copied.
    pub checkpoint: u64,
}

/// Called with the pages done so far, now and then; says whether to go on.
pub(super) type Progress<'p> = &'p mut dyn FnMut(u64) -> ControlFlow<()>;

/// Pages read together. Under shuttle fewer, so that others come in between.
const BATCH_PAGES: usize = if cfg!(shuttle) { 16 } else { 128 };
/// So many changes of the map, or more, are applied together: two of its leaves.
const CHANGES: usize = 512;

impl Shared {
    /// Copies what is there now to `path`. See [`crate::Database::backup`].
    pub(super) fn backup(
        &self,
        disk: &dyn Disk,
        path: &Path,
        progress: Progress<'_>,
    ) -> Result<BackupReport> {
        if self.read_only && self.checkpointing.lock().superblock.needs_log {
            return Err(Error::new(
                ErrorKind::NotClosed,
                "the store was not closed, and its log has changes that are in no checkpoint: open it for \
                 writing once",
            ));
        }
        let path = &disk.locate(path);
        // Before the checkpoint, which may take a while.
        refuse_what_is_there(disk, path)?;
        // A backup has no log that could finish a batch.
        let held_off = self.batches.hold_off();
        let pin = self.pin()?;
        drop(held_off);
        let direct = match pin.slots().file().block_bytes() {
            2.. => DirectIo::WherePossible,
            _ => DirectIo::Never,
        };
        create::file_at(direct, disk, path, |file| {
            let copied = copy(&pin, file, progress);
            // Whoever closes unlocks the file, and somebody else may have written to it meanwhile.
            self.pool.check_open()?;
            copied
        })
    }
}

/// Checks a backup wholly and copies it to `path`. See [`crate::Options::restore`].
pub fn restore(
    options: &StoreOptions,
    disk: &dyn Disk,
    backup: &Path,
    path: &Path,
    progress: Progress<'_>,
) -> Result<BackupReport> {
    let (backup, path) = (&disk.locate(backup), &disk.locate(path));
    refuse_what_is_there(disk, path)?;
    let store = Store::open(options, disk, backup, OpenHow::ReadOnly)?;
    let mut checked = 0;
    let report = store.verify(|pages| {
        checked = pages;
        progress(pages)
    })?;
    if let Some(first) = report.findings.first() {
        let kind = ErrorKind::Corrupted { page: None, offset_bytes: None };
        let count = report.count();
        let what =
            format!("the backup is damaged, {count} defects, of which the first is: {first}");
        return Err(Error::new(kind, what));
    }
    store.backup(disk, path, &mut |pages| progress(checked + pages))
}

/// Errors: `Locked` if a store at `path` is in use; `FileExists` for anything else there, and for a log beside
/// it, which may have what no store has.
pub(super) fn refuse_what_is_there(disk: &dyn Disk, path: &Path) -> Result<()> {
    let exists = |path: &Path| {
        let what = format!("cannot write {}: it exists already", path.display());
        Err(Error::new(ErrorKind::FileExists, what))
    };
    if disk.exists(path)? {
        if let Ok(file) = disk.open(path, OpenMode::ReadOnly, DirectIo::Never) {
            lock(&*file, true).map_err(|error| error.at_path("cannot write", path, path))?;
        }
        return exists(path);
    }
    let log = log_path(path);
    if disk.exists(&log)? {
        let what = format!(
            "cannot write {}: {} lies there, the log of a store that is gone; move it away",
            path.display(),
            log.display()
        );
        return Err(Error::new(ErrorKind::ForeignLog, what));
    }
    Ok(())
}

pub(super) fn cancelled() -> Error {
    Error::new(ErrorKind::Cancelled, "the progress function has stopped the call")
}

/// Writes the store that `file`, which is empty, becomes; durable but for its second superblock.
fn copy(pin: &Pin, file: &Arc<dyn File>, progress: Progress<'_>) -> Result<BackupReport> {
    let from = *pin.superblock();
    fit_blocks(&**file, from.geometry)?;
    let mut copy = Copy::new(pin, file.clone())?;
    let mut parts = PartFile::new(pin.slots())?;
    pin.map_view().for_each_part(&mut parts, &mut |level, index, _, part| match level {
        0 => copy.leaf(index, part, progress),
        _ => Ok(()),
    })?;
    copy.write_batch(progress)?;
    copy.apply_changes()?;
    let table = copy.write_table()?;
    match copy.to.cut_free_end(0, 0, 1) {
        // Some file systems need room to give some back.
        Err(error) if error.kind() == ErrorKind::DiskFull => {}
        cut => cut?,
    }
    file.sync_data()?;
    let superblock = Superblock {
        store_id: Superblock::new_store_id(),
        needs_log: false,
        map: copy.map,
        table,
        replay_start: from.log_end,
        renames_end: Lsn(0),
        incompat: from.incompat & !RENAMES_REPLAYED,
        ..from
    };
    let mut buffer = AlignedBuffer::zeroed(SUPERBLOCK_BYTES)?;
    buffer.copy_from_slice(&*superblock.encode(0));
    for offset in positions_of(0) {
        file.write_at(offset, &buffer)?;
        file.sync_data()?;
    }
    let (pages, file_bytes) = (copy.pages, file.len_bytes()?);
    Ok(BackupReport { pages, file_bytes, checkpoint: from.checkpoint.0 })
}

/// A copy under way.
struct Copy<'p> {
    source: &'p SlotStore,
    to: SlotStore,
    epoch: Epoch,
    map: MapRoot,
    /// Changes of the map since it was written.
    changes: Vec<Change>,
    /// Pages to be read next.
    batch: Vec<(PageId, Slot)>,
    buffer: AlignedBuffer,
    large: LargeCopy,
    pages: u64,
}

impl<'p> Copy<'p> {
    fn new(pin: &'p Pin, file: Arc<dyn File>) -> Result<Copy<'p>> {
        let geometry = pin.superblock().geometry;
        let epoch = pin.superblock().checkpoint;
        let page_bytes = geometry.page_bytes() as usize;
        let mut zones = Zones::create(geometry);
        zones.begin_checkpoint(epoch);
        let state = SpaceState {
            zones,
            deltas: Deltas::new(0),
            owed: Arc::default(),
            map: MapRoot::EMPTY,
            checkpoint: Epoch(0),
        };
        Ok(Copy {
            source: pin.slots(),
            to: SlotStore::new(file, page_bytes, PAGE_FORM, state),
            epoch,
            map: MapRoot::EMPTY,
            changes: Vec::with_capacity(2 * CHANGES),
            batch: Vec::with_capacity(BATCH_PAGES),
            buffer: AlignedBuffer::zeroed(BATCH_PAGES * page_bytes)?,
            large: LargeCopy::default(),
            pages: 0,
        })
    }

    /// Copies the pages of a leaf of the map.
    fn leaf(&mut self, index: u32, part: &PartBytes, progress: Progress<'_>) -> Result<()> {
        let first = u64::from(index) * PART_WORDS as u64 + PART_HEADER_WORDS as u64;
        for word in 0..PART_WORDS - PART_HEADER_WORDS {
            let slot = Slot::from_word(part::word(part, word));
            if slot.is_none() {
                continue;
            }
            let id = u32::try_from(first + word as u64).map_err(|_| {
                Error::corrupted_at(slot.offset_bytes(), "page map: a page beyond all ids")
            })?;
            self.batch.push((PageId(id), slot));
            if self.batch.len() == BATCH_PAGES {
                self.write_batch(progress)?;
            }
        }
        // Behind a whole leaf, so that none is written twice.
        if self.changes.len() + self.batch.len() >= CHANGES {
            self.write_batch(progress)?;
            self.apply_changes()?;
        }
        Ok(())
    }

    /// Reads, checks and writes what has come together, in the order in which it lies in the source.
    fn write_batch(&mut self, progress: Progress<'_>) -> Result<()> {
        let page_bytes = self.to.page_bytes();
        self.batch.sort_unstable_by_key(|(_, slot)| slot.offset_bytes());
        let results = self.source.read_pages(&self.batch, &mut self.buffer);
        for ((id, slot), read) in self.batch.iter().zip(results) {
            read.map_err(|error| match error.kind() {
                ErrorKind::Corrupted { page: None, offset_bytes } => {
                    let kind = ErrorKind::Corrupted { page: Some(*id), offset_bytes };
                    Error::new(kind, "the file ends before the page does")
                }
                _ => error.at_place(Some(*id), slot.offset_bytes()),
            })?;
        }
        if self.source.has_stored_forms() {
            let pages = self.pages;
            let mut go_on = || if progress(pages).is_break() { Err(cancelled()) } else { Ok(()) };
            let images = self.buffer.chunks_exact_mut(page_bytes);
            for ((id, _), image) in self.batch.iter().zip(images) {
                self.large.copy_those_of(self.source, *id, image, &self.to, &mut go_on)?;
            }
        }
        let images = make_images(&self.to, &mut self.batch, |(id, _)| *id, &mut self.buffer)?;
        self.to.file().write_batch(&requests(&images, &self.buffer))?;
        self.pages += images.len() as u64;
        let pages = self.batch.drain(..).zip(images);
        self.changes.extend(pages.map(|((id, _), slot)| Change::Set(id, slot)));
        if progress(self.pages).is_break() { Err(cancelled()) } else { Ok(()) }
    }

    /// Writes the parts of the map that have changed. Upper parts that are written again leave gaps.
    fn apply_changes(&mut self) -> Result<()> {
        let old = {
            let state = self.to.state();
            let geometry = state.zones.geometry();
            let units = state.zones.unit_count();
            MapView { root: self.map, checkpoint: self.epoch, geometry, units }
        };
        let mut parts = PartFile::new(&self.to)?;
        self.map = map::apply(&old, self.epoch, self.changes.drain(..), &mut parts)?;
        Ok(())
    }

    fn write_table(&mut self) -> Result<TableRoot> {
        let count = self.to.state().zones.plan_table();
        let offsets = self.to.allocate(count, PART_BYTES as u64)?;
        self.to.state().zones.place_table(&offsets);
        let mut bytes = part::new_bytes();
        let mut buffer = AlignedBuffer::zeroed(PART_BYTES)?;
        loop {
            let offset = self.to.state().zones.next_table_part(&mut bytes);
            let Some(offset) = offset else { break };
            buffer.copy_from_slice(&*bytes);
            self.to.file().write_at(offset, &buffer)?;
        }
        Ok(self.to.state().zones.table_root(&TableRoot::EMPTY))
    }
}
