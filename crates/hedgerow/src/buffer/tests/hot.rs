//! A page that is changed whenever an image of it is being written.

#![allow(clippy::disallowed_types, reason = "a channel between real threads; no model runs this")]

use super::{fresh, pool_over};
use crate::buffer::BufferPool;
use crate::error::Result;
use crate::page::pool::EpochStay;
use crate::page::{ExclusivePage, FrameId, PagePool};
use crate::storage::{
    DirectIo, Disk, File, LockOutcome, OpenMode, RamDisk, ReadRequest, WriteRequest,
};
use crate::types::{PART_WORDS, PageId};
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::thread::spawn_named;
use hedgerow_sync::primitive::{Arc, Mutex};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Tells somebody that a batch is being written, and gives him a moment to answer.
#[derive(Debug)]
struct Told {
    file: Arc<dyn File>,
    is_armed: Arc<AtomicBool>,
    tell: Mutex<Sender<()>>,
    answer: Mutex<Receiver<()>>,
}

#[rustfmt::skip]
impl File for Told {
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        self.file.write_batch(requests)?;
        if self.is_armed.load(Relaxed) && self.tell.lock().send(()).is_ok() {
            // Whoever has the page latched meanwhile gets none.
            self.answer.lock().recv_timeout(Duration::from_millis(50)).ok();
        }
        Ok(())
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.file.read_at(offset_bytes, buf) }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> { self.file.write_at(offset_bytes, buf) }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) { self.file.read_batch(requests); }
    fn len_bytes(&self) -> Result<u64> { self.file.len_bytes() }
    fn set_len(&self, len_bytes: u64) -> Result<()> { self.file.set_len(len_bytes) }
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> { self.file.allocate(offset_bytes, len_bytes) }
    fn punch_hole(&self, offset_bytes: u64, len_bytes: u64) -> Result<bool> { self.file.punch_hole(offset_bytes, len_bytes) }
    fn sync_data(&self) -> Result<()> { self.file.sync_data() }
    fn sync_all(&self) -> Result<()> { self.file.sync_all() }
    fn allocated_bytes(&self) -> Result<u64> { self.file.allocated_bytes() }
    fn block_bytes(&self) -> usize { self.file.block_bytes() }
    fn try_lock(&self, exclusive: bool) -> Result<LockOutcome> { self.file.try_lock(exclusive) }
    fn is_at(&self, path: &Path) -> Result<bool> { self.file.is_at(path) }
    fn unlock(&self) -> Result<()> { self.file.unlock() }
    fn read_unaligned(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.file.read_unaligned(offset_bytes, buf) }
}

/// The page table takes the topmost frame. While images were written with nothing latched, a page there that was changed
/// more often than it could be written kept the table from growing, and operations from pages of which nobody knew a word.
#[test]
fn a_page_that_is_changed_all_the_time_makes_room_for_the_page_table() {
    let file = RamDisk::new().open(Path::new("pool"), OpenMode::CreateNew, DirectIo::Never);
    let ((tell, told), (reply, answer)) = (channel(), channel());
    let is_armed = Arc::new(AtomicBool::new(false));
    let file = Told {
        file: file.unwrap(),
        is_armed: is_armed.clone(),
        tell: Mutex::new(tell),
        answer: Mutex::new(answer),
    };
    let pool = pool_over(Arc::new(file), 0);
    // The first part of the table has taken the frames above it.
    fresh(&pool);
    let top = FrameId(pool.frames() - 1);
    let id = page_in(&pool, top);
    let changes = {
        let pool = pool.clone();
        let change = move || {
            let mut changes = 0;
            while told.recv().is_ok() {
                let stay = pool.enter().unwrap();
                let Ok(mut page) = ExclusivePage::wait(&*pool, id, &mut || true) else { break };
                page.write(stay.epoch());
                changes += 1;
                drop(page);
                reply.send(()).ok();
            }
            changes
        };
        spawn_named("changes", change).unwrap()
    };
    is_armed.store(true, Relaxed);
    let far = PageId(PART_WORDS as u32 * 3 + 5);
    pool.ensure_part(far).unwrap();
    assert!(pool.header(top).is_retired());
    assert!(changes.join().unwrap() > 0, "each image but the last is out of date");
}

/// A dirty page that lies in this frame.
fn page_in(pool: &BufferPool, frame: FrameId) -> PageId {
    for _ in 0..4 * pool.frames() {
        let (id, its) = fresh(pool);
        if its == frame {
            return id;
        }
        pool.header(its).take_use();
        pool.write_back_cold(vec![its]).unwrap();
    }
    panic!("some page of so many prefers it");
}
