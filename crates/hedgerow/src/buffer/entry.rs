//! How writers enter: with room in the log, room on the disk, and frames that can be cleaned.
//!
//! The order in which a writer waits: for the log, for the map's delta, for room on the disk, for clean frames;
//! then it enters the epoch, and waits for nothing any more. It holds nothing but its promise meanwhile: a
//! checkpoint waits for those inside, and may be what the writer waits for. `Send + Sync`.

use crate::buffer::pool::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::page::epoch::Stay;
use crate::page::pool::EpochStay;
use crate::space::slot_store::SlotStore;
use crate::types::{Epoch, Purpose};
use crate::wal::{Log, Record};
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use std::cell::Cell;

/// A writer's stay in an epoch, and what it may append to the log meanwhile.
pub struct Entered<'p> {
    // Left before the promise is given back.
    stay: Stay<'p>,
    promise: Option<Promise<'p>>,
}

/// Room in the log.
struct Promise<'p> {
    log: &'p Log,
    left: Cell<u64>,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if self.left.get() > 0 {
            self.log.take_back(self.left.get());
        }
    }
}

impl Entered<'_> {
    /// Appends a record for which there is a promise, if there is a log.
    #[inline]
    pub(super) fn append(&self, record: &Record<'_>) {
        if let Some(promise) = &self.promise {
            let len = record.len_bytes() as u64;
            assert!(len <= promise.left.get(), "nothing is appended that was not promised");
            promise.left.set(promise.left.get() - len);
            promise.log.append(record);
        }
    }
}

impl EpochStay for Entered<'_> {
    #[inline]
    fn epoch(&self) -> Epoch {
        self.stay.epoch()
    }
}

impl BufferPool {
    /// Enters, with room in the log for so many bytes.
    #[inline]
    pub(super) fn enter_with(&self, log_bytes: u64, purpose: Purpose) -> Result<Entered<'_>> {
        let promise = match self.log() {
            Some(log) if log_bytes > 0 => {
                self.make_log_room(log, log_bytes)?;
                Some(Promise { log, left: Cell::new(log_bytes) })
            }
            _ => None,
        };
        Ok(Entered { stay: self.enter_epoch(purpose)?, promise })
    }

    /// Enters an epoch for the store's own upkeep, which runs under the lock of checkpoints: does not
    /// wait for one to make room.
    pub fn enter_for_upkeep(&self) -> Result<Stay<'_>> {
        self.check_poison()?;
        Ok(self.epochs().enter())
    }

    #[inline]
    fn enter_epoch(&self, purpose: Purpose) -> Result<Stay<'_>> {
        if self.frozen.load(Relaxed) {
            return Err(Error::new(ErrorKind::ReadOnly, "the database is open for reading only"));
        }
        self.check_poison()?;
        if let Some(slots) = &self.slots {
            if self.read_only {
                // What is read only writes nothing: what the log has changed stays in memory.
                if slots.is_delta_full() {
                    self.check_writable()?;
                }
            } else {
                slots.wait_for_delta_room()?;
                if !slots.has_room(self.images_to_write(), purpose) {
                    self.make_room(slots, purpose)?;
                }
            }
        }
        self.wait_until_cleaner()?;
        let stay = self.epochs().enter();
        // Inside: who closes says so first and then waits for those inside, so that what is changed
        // after the last checkpoint is refused, and not lost.
        self.check_open()?;
        Ok(stay)
    }

    /// Makes room on the disk for what a writer may do: by a longer file, else by a checkpoint, which gives
    /// the slots of older images back.
    ///
    /// Errors: `DiskFull`, and why there is no checkpoint.
    #[cold]
    fn make_room(&self, slots: &SlotStore, purpose: Purpose) -> Result<()> {
        let purpose = if self.replaying.load(Relaxed) { Purpose::Replay } else { purpose };
        let mut checkpoints = 0;
        loop {
            let map_pages = self.ids.lock().next_id().map_or(u32::MAX, |id| id.0);
            let made = slots.make_room(|| self.images_to_write(), u64::from(map_pages), purpose);
            match made {
                Err(error) if *error.kind() == ErrorKind::DiskFull => {
                    // One may be under way that has begun too early.
                    if checkpoints == 2 || !slots.wait_for_next_checkpoint()? {
                        return Err(error);
                    }
                    checkpoints += 1;
                }
                other => return other,
            }
        }
    }

    /// Room in the log; what fills a disk that is full is freed by a checkpoint, if anything is. The caller holds
    /// nothing that keeps one away.
    pub fn make_log_room(&self, log: &Log, log_bytes: u64) -> Result<()> {
        for _ in 0..2 {
            match log.promise(log_bytes) {
                Err(error) if *error.kind() == ErrorKind::DiskFull => {
                    let freed = self.slots.as_ref().map(|slots| slots.wait_for_next_checkpoint());
                    if !freed.unwrap_or(Ok(false))? {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
        log.promise(log_bytes)
    }
}
