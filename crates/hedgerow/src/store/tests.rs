//! Stores from within: what is forged in them, and what is in the way of an opening, a creation or a checkpoint.

mod alone;
mod books;
mod catalogue;
mod checkpoint;
mod creation;
mod drops;
mod large_move;
mod large_values;
mod loading;
mod many_pages;
mod opening;
mod pinned;
mod repair;
mod staged;
mod verify;
mod verify_long;
mod waiting;

use super::open::read_superblocks;
use super::superblock::{self, Superblock};
use super::{ExtentReader, Found, OpenHow, PoolTree, Store, StoreOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::large::{Stored, read_stored};
use crate::space::slot_store::SlotStore;
use crate::storage::{DirectIo, Disk, File, LockOutcome, OpenMode, ReadRequest, WriteRequest};
use crate::testing::SimDisk;
use crate::tree::Value;
use hedgerow_sync::primitive::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use hedgerow_sync::primitive::{Arc, Mutex, Weak, thread};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

fn path() -> &'static Path {
    Path::new("/data/birds.hrow")
}

/// Pages of 512 bytes, and no log.
fn options() -> StoreOptions {
    StoreOptions {
        page_bytes: Some(512),
        background: false,
        zone_bytes: Some(32 << 10),
        ..StoreOptions::without_log(4 << 20)
    }
}

fn logged() -> StoreOptions {
    StoreOptions { log: true, log_segment_blocks: Some(6), ..options() }
}

fn open(options: &StoreOptions, disk: &dyn Disk, how: OpenHow) -> Result<Store> {
    Store::open(options, disk, path(), how)
}

fn new_store() -> (SimDisk, Store) {
    let disk = SimDisk::new(1);
    let store = open(&options(), &disk, OpenHow::New).unwrap();
    (disk, store)
}

/// Changes the newest superblock of a closed store, and writes both of its blocks as if it had always been so.
fn forge_superblock(disk: &SimDisk, change: impl FnOnce(&mut Superblock)) {
    let file = disk.open(path(), OpenMode::ReadWrite, DirectIo::Never).unwrap();
    let mut chosen = read_superblocks(&*file).unwrap();
    change(&mut chosen.superblock);
    for offset in superblock::positions_of(chosen.pair) {
        file.write_at(offset, &*chosen.superblock.encode(chosen.pair)).unwrap();
    }
}

fn is_damage(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupted { .. })
}

fn is_clean(store: &Store) -> bool {
    store.verify(|_| ControlFlow::Continue(())).unwrap().is_clean()
}

/// Puts a large value, and gives its stored form.
fn put_large(store: &Store, tree: &PoolTree, key: &[u8], len: usize) -> Vec<u8> {
    store.expect_stored_forms();
    let mut writer = store.write_large(len as u64, 200, &crate::Wait::Default).unwrap();
    writer.write(&vec![b'x'; len]).unwrap();
    writer.finish().unwrap();
    let stored = writer.stored_form();
    tree.put(key, &stored).unwrap();
    writer.keep();
    stored
}

/// A file beside which the log makes extents durable, just before each write, which may fail to be unlocked, and in
/// which writes of many may wait, and then find no room.
#[derive(Debug)]
struct Watched {
    file: Arc<dyn File>,
    slots: Mutex<Weak<SlotStore>>,
    syncs: AtomicU64,
    stays_locked: AtomicBool,
    batches_wait: AtomicBool,
    disk_is_full: AtomicBool,
    batches_begun: AtomicU64,
    batches_written: AtomicU64,
    /// Of single places.
    reads: AtomicU64,
    writes: AtomicU64,
    /// Of the last one: how far behind a multiple of 4096 each write begins, in the file and in memory.
    last_batch: Mutex<Vec<(u64, usize)>>,
}

#[rustfmt::skip]
impl File for Watched {
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> {
        self.writes.fetch_add(1, SeqCst);
        let slots = self.slots.lock().upgrade();
        slots.map_or(Ok(()), |slots| slots.sync_extents())?;
        self.file.write_at(offset_bytes, buf)
    }
    fn sync_data(&self) -> Result<()> {
        self.syncs.fetch_add(1, SeqCst);
        self.file.sync_data()
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.fetch_add(1, SeqCst);
        self.file.read_at(offset_bytes, buf)
    }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) { self.file.read_batch(requests); }
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        self.batches_begun.fetch_add(1, SeqCst);
        while self.batches_wait.load(SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        let begins = |r: &WriteRequest<'_>| (r.offset_bytes % 4096, r.buf.as_ptr() as usize % 4096);
        *self.last_batch.lock() = requests.iter().map(begins).collect();
        if self.disk_is_full.load(SeqCst) {
            return Err(Error::new(ErrorKind::DiskFull, "a test"));
        }
        self.file.write_batch(requests)?;
        self.batches_written.fetch_add(1, SeqCst);
        Ok(())
    }
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> { self.file.allocate(offset_bytes, len_bytes) }
    fn len_bytes(&self) -> Result<u64> { self.file.len_bytes() }
    fn set_len(&self, len_bytes: u64) -> Result<()> { self.file.set_len(len_bytes) }
    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> { self.file.punch_hole(offset_bytes, len_bytes) }
    fn sync_all(&self) -> Result<()> { self.file.sync_all() }
    fn allocated_bytes(&self) -> Result<u64> { self.file.allocated_bytes() }
    fn block_bytes(&self) -> usize { self.file.block_bytes() }
    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> { self.file.try_lock(exclusive) }
    fn is_at(&self, path: &Path) -> Result<bool> { self.file.is_at(path) }
    fn unlock(&self) -> Result<()> {
        match self.stays_locked.load(SeqCst) {
            true => Err(Error::new(ErrorKind::Io, "a test does not unlock it")),
            false => self.file.unlock(),
        }
    }
    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.file.read_unaligned(offset_bytes, buf) }
}

impl Watched {
    /// What was written last is not durable yet, and becomes so by one sync.
    fn assert_is_due(&self, slots: &SlotStore) {
        *self.slots.lock() = Weak::new();
        let before = self.syncs.load(SeqCst);
        slots.sync_extents().unwrap();
        assert_eq!(self.syncs.load(SeqCst), before + 1, "it is not durable");
        slots.sync_extents().unwrap();
        assert_eq!(self.syncs.load(SeqCst), before + 1, "nothing was written since");
    }
}

/// A store over such a file, which does nothing of that yet.
fn watched() -> (Arc<Watched>, Store) {
    watched_with(&options())
}

fn watched_with(options: &StoreOptions) -> (Arc<Watched>, Store) {
    let file = SimDisk::new(1).open(path(), OpenMode::CreateNew, DirectIo::Never).unwrap();
    let file = Arc::new(Watched {
        file,
        slots: Mutex::new(Weak::new()),
        syncs: 0.into(),
        stays_locked: false.into(),
        batches_wait: false.into(),
        disk_is_full: false.into(),
        batches_begun: 0.into(),
        batches_written: 0.into(),
        reads: 0.into(),
        writes: 0.into(),
        last_batch: Mutex::default(),
    });
    let store = Store::create_in(options, file.clone()).unwrap();
    (file, store)
}

/// The value of `key`: a reader of its extent, or the value itself if it is short.
fn find_large(
    store: &Store,
    tree: &PoolTree,
    key: &[u8],
) -> Option<std::result::Result<Box<ExtentReader>, Box<Value>>> {
    store.find(tree, key).unwrap().map(|found| match found {
        Found::Extent(reader) => Ok(reader),
        Found::Short(value) | Found::Held { value, .. } => Err(Box::new(value)),
    })
}
