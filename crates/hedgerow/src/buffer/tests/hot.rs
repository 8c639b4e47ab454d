//! What others do while a page is being written, or the file made longer.

#![allow(clippy::disallowed_types, reason = "a channel between real threads; no model runs this")]

use super::{fresh, joined, pool_over};
use crate::buffer::BufferPool;
use crate::error::{ErrorKind, Result};
use crate::page::EpochStay;
use crate::page::{ExclusivePage, FrameId, Journal};
use crate::storage::{DirectIo, Disk, File, LockOutcome, OpenMode, ReadRequest, WriteRequest};
use crate::testing::RamDisk;
use crate::types::{PART_WORDS, PageId};
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release};
use hedgerow_sync::primitive::thread::spawn_named;
use hedgerow_sync::primitive::{Arc, Mutex};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

#[derive(Debug, PartialEq)]
enum Call {
    WriteBatch,
    Allocate,
}

/// Tells somebody that a batch has been written, or room been made, and gives him a moment to answer.
#[derive(Debug)]
struct Told {
    file: Arc<dyn File>,
    of: Call,
    is_armed: Arc<AtomicBool>,
    is_under_way: Arc<AtomicBool>,
    tell: Mutex<Sender<()>>,
    answer: Mutex<Receiver<()>>,
}

impl Told {
    fn new(of: Call) -> (Told, Receiver<()>, Sender<()>) {
        let file = RamDisk::new().open(Path::new("pool"), OpenMode::CreateNew, DirectIo::Never);
        let ((tell, told), (reply, answer)) = (channel(), channel());
        let (tell, answer) = (Mutex::new(tell), Mutex::new(answer));
        let (is_armed, is_under_way) = Default::default();
        let file = Told { file: file.unwrap(), of, is_armed, is_under_way, tell, answer };
        (file, told, reply)
    }

    fn tell_of(&self, call: Call) {
        if self.of != call || !self.is_armed.load(Relaxed) {
            return;
        }
        self.is_under_way.store(true, Release);
        if self.tell.lock().send(()).is_ok() {
            // Whoever has the page latched meanwhile gets none.
            self.answer.lock().recv_timeout(Duration::from_millis(50)).ok();
        }
        self.is_under_way.store(false, Release);
    }
}

#[rustfmt::skip]
impl File for Told {
    fn write_batch(&self, requests: &[WriteRequest<'_>]) -> Result<()> {
        self.file.write_batch(requests)?;
        self.tell_of(Call::WriteBatch);
        Ok(())
    }
    fn allocate(&self, offset_bytes: u64, len_bytes: u64) -> Result<()> {
        self.file.allocate(offset_bytes, len_bytes)?;
        self.tell_of(Call::Allocate);
        Ok(())
    }
    fn read_at(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<()> { self.file.read_at(offset_bytes, buf) }
    fn write_at(&self, offset_bytes: u64, buf: &[u8]) -> Result<()> { self.file.write_at(offset_bytes, buf) }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) { self.file.read_batch(requests); }
    forwards_the_rest!();
}

/// The page table takes the topmost frame. While images were written with nothing latched, a page there that was changed
/// more often than it could be written kept the table from growing, and operations from pages of which nobody knew a word.
#[test]
fn a_page_that_is_changed_all_the_time_makes_room_for_the_page_table() {
    let (file, told, reply) = Told::new(Call::WriteBatch);
    let is_armed = file.is_armed.clone();
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

/// Somebody else may have the file as soon as its store is closed, and cut it.
#[test]
fn a_close_waits_for_a_writer_who_makes_the_file_longer() {
    let (file, told, _reply) = Told::new(Call::Allocate);
    file.is_armed.store(true, Relaxed);
    let is_under_way = file.is_under_way.clone();
    let pool = pool_over(Arc::new(file), 0);
    let writer = {
        let pool = pool.clone();
        spawn_named("writer", move || pool.enter().map(drop)).unwrap()
    };
    told.recv().unwrap();
    pool.set_closed();
    let slots = pool.slots.as_ref().unwrap();
    slots.close_file();
    assert!(!is_under_way.load(Acquire));
    let len_bytes = slots.file().len_bytes().unwrap();
    assert_eq!(joined(writer).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(slots.file().len_bytes().unwrap(), len_bytes);
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
