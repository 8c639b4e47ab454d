//! What is given back, and who is told, when a disk or the memory refuses something.

#![allow(clippy::disallowed_types, reason = "real threads; no model runs this")]

use super::{begin_checkpoint, change, fresh, joined, pool, pool_over};
use crate::buffer::table::Place;
use crate::buffer::{BufferPool, PoolOptions, smallest_limit_without_log_bytes};
use crate::error::{Error, ErrorKind, Result};
use crate::page::{Access, FrameId, Pages, PoolSession};
use crate::space::PageIds;
use crate::storage::{DirectIo, Disk, File, LockOutcome, OpenMode, ReadRequest, WriteRequest};
use crate::testing::RamDisk;
use crate::types::{Epoch, PART_HEADER_WORDS, PART_WORDS, PageId, Slot};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::thread::{sleep, spawn_named};
use std::path::Path;
use std::time::Duration;

const PAGE_BYTES: u64 = super::PAGE_BYTES as u64;

/// A disk that is full while it is told to be: it takes no batch, and no file grows.
#[derive(Debug)]
pub(super) struct Full {
    file: Arc<dyn File>,
    is_full: Arc<AtomicBool>,
}

impl Full {
    pub(super) fn new() -> (Full, Arc<AtomicBool>) {
        let file = RamDisk::new().open(Path::new("pool"), OpenMode::CreateNew, DirectIo::Never);
        let is_full = Arc::new(AtomicBool::new(false));
        (Full { file: file.unwrap(), is_full: is_full.clone() }, is_full)
    }

    fn check(&self) -> Result<()> {
        match self.is_full.load(Relaxed) {
            true => Err(Error::new(ErrorKind::DiskFull, "the disk is full")),
            false => Ok(()),
        }
    }
}

#[rustfmt::skip]
impl File for Full {
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        self.check()?;
        self.file.write_batch(requests)
    }
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.check()?;
        self.file.allocate(offset_bytes, len_bytes)
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.file.read_at(offset_bytes, buf) }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> { self.file.write_at(offset_bytes, buf) }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) { self.file.read_batch(requests); }
    forwards_the_rest!();
}

/// Copies that a failed checkpoint has thrown away count no more: the next one would wait for them, and poison the store.
#[test]
fn a_checkpoint_succeeds_after_one_that_had_copies_and_failed() {
    let (file, is_full) = Full::new();
    let pool = pool_over(Arc::new(file), 0);
    let slots = pool.slots.clone().unwrap();
    let (id, frame) = fresh(&pool);
    begin_checkpoint(&pool);
    change(&pool, id);
    assert!(pool.header(frame).is_handed_over());
    assert_eq!(pool.images_to_write(), 2, "the page and its copy");
    is_full.store(true, Relaxed);
    let error = pool.settle_owed(&slots).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    assert_eq!(pool.images_to_write(), 1, "the page alone");
    is_full.store(false, Relaxed);
    begin_checkpoint(&pool);
    pool.settle_owed(&slots).unwrap();
    assert_eq!(pool.images_to_write(), 0);
    pool.check_poison().unwrap();
}

/// Of several slabs that were to be written together the first has its slots already when there are none for the next one.
#[test]
fn slots_of_slabs_that_are_not_written_are_given_back() {
    let (file, is_full) = Full::new();
    let pool = pool_over(Arc::new(file), 0);
    let slots = pool.slots.clone().unwrap();
    // The smallest pool has two slabs, of a page each.
    let pages = [fresh(&pool), fresh(&pool)];
    begin_checkpoint(&pool);
    for (id, _) in pages {
        change(&pool, id);
    }
    assert_eq!(pool.images_to_write(), 4, "two pages and two copies");
    is_full.store(true, Relaxed);
    let mut last = None;
    while let Ok(offsets) = slots.allocate(1, PAGE_BYTES) {
        last = Some(offsets[0]);
    }
    slots.discard(Slot::new(last.unwrap(), PAGE_BYTES, 1).unwrap());
    let error = pool.settle_owed(&slots).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DiskFull, "{error}");
    let again = slots.allocate(1, PAGE_BYTES).expect("the one slot that there is is free again");
    assert_eq!(again, [last.unwrap()]);
    assert!(slots.allocate(1, PAGE_BYTES).is_err());
}

/// An id for which there is no frame is the next one to be given out.
#[test]
fn an_id_that_gets_no_frame_is_not_lost() {
    let options = PoolOptions {
        memory_limit_bytes: smallest_limit_without_log_bytes(super::PAGE_BYTES),
        page_bytes: super::PAGE_BYTES,
        first_epoch: Epoch(1),
        checkpoint_bytes: 1 << 30,
        read_only: false,
        logged: false,
        first_lsn: crate::types::Lsn(0),
    };
    let pool = BufferPool::new(&options, None, PageIds::create()).unwrap();
    // All but one: what is reserved is given back with its session.
    for _ in 0..pool.free_frames() - 1 {
        fresh(&pool);
    }
    let next = pool.ids().lock().next_id();
    let mut session = pool.session();
    let error = session.reserve(2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
    drop(session);
    assert_eq!(pool.ids().lock().free_count(), 2);
    fresh(&pool);
    let second = pool.ids().lock().allocate();
    assert_eq!(second, next.unwrap().next());
}

/// The same of an id whose part of the page table cannot be had.
#[test]
fn an_id_that_gets_no_part_of_the_table_is_not_lost() {
    let pool = pool(0);
    let first = |part: usize| PageId((part * PART_WORDS + PART_HEADER_WORDS) as u32);
    let part = (0..).find(|part| pool.ensure_part(first(*part)).is_err()).unwrap();
    while pool.ids().lock().next_id() != Some(first(part)) {
        pool.ids().lock().allocate().unwrap();
    }
    let error = pool.session().reserve(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::MemoryLimit, "{error}");
    assert_eq!(pool.ids().lock().free_count(), 1);
    assert_eq!(pool.ids().lock().allocate(), Some(first(part)));
}

/// Each page is read once, however many ask: those who wait for a read that fails get its error, and do not read again.
#[test]
fn whoever_waits_for_a_read_that_fails_gets_its_error() {
    let pool = pool(0);
    let (id, frame) = fresh(&pool);
    pool.header(frame).take_use();
    pool.write_back_cold(vec![frame]).unwrap();
    let Some(Place::Evicted(slot)) = pool.table.place(id) else { panic!("it was evicted") };
    let mut session = pool.session();
    let page = session.begin(id, slot, true).unwrap().expect("nobody else reads it");
    let latched: FrameId = page.frame;
    let waiter = {
        let pool = pool.clone();
        spawn_named("waiter", move || pool.session().fault(id, Access::Point)).unwrap()
    };
    // It waits for this very read when it sleeps at the frame's latch.
    while !format!("{:?}", pool.header(latched).latch).contains("parked: true") {
        assert!(!waiter.is_finished(), "the page is being read");
        sleep(Duration::from_millis(1));
    }
    let failed = Error::new(ErrorKind::Io, "the disk cannot read this");
    session.finish(page, Err(failed), Access::Point).unwrap_err();
    let told = joined(waiter).expect_err("the read would go well by now");
    assert_eq!(told.kind(), ErrorKind::Io, "{told}");
    assert!(told.to_string().contains("the disk cannot read this"), "{told}");
    // Whoever comes later reads anew.
    pool.session().fault(id, Access::Point).unwrap();
}
