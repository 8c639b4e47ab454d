//! How writers enter: with room in the log, room on the disk, and frames that can be cleaned.
//!
//! The order in which a writer waits: until nobody else changes records alone, which its caller does for it with nothing held; for memory that old versions of records need if there are snapshots, for the log, for the map's delta, for room on the disk, for clean frames;
//! then it enters the epoch, and waits for nothing any more. It holds nothing but its promise meanwhile: a
//! checkpoint waits for those inside, and may be what the writer waits for. A call's [`Waiting`] may end each of these
//! waits; the promise is given back then. `Send + Sync`.

use crate::buffer::old_versions::{PoolMemory, PoolVersions};
use crate::buffer::order::Order;
use crate::buffer::pinned::PinnedCheckpoint;
use crate::buffer::pool::BufferPool;
use crate::error::{Error, ErrorKind, Result, Signal};
use crate::page::EpochStay;
use crate::page::epoch::Stay;
use crate::space::SetAside;
use crate::space::slot_store::SlotStore;
use crate::types::{Epoch, Lsn, Purpose};
use crate::versions::{self, Change};
use crate::wait::Waiting;
use crate::wal::{Log, Promised, Record, Reservation};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use std::cell::Cell;

/// A writer's stay in an epoch, and what it may append to the log meanwhile.
pub struct Entered<'p> {
    // Left before the promise is given back.
    stay: Stay<'p>,
    promise: Option<Promise<'p>>,
    /// Of who changes records while old versions are kept: room for them.
    admission: Option<Admission<'p>>,
}

type Admission<'p> = versions::Admission<'p, PoolMemory, PinnedCheckpoint>;

/// Room in the log.
struct Promise<'p> {
    log: &'p Log,
    left: Cell<u64>,
    how: Promised,
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if self.left.get() > 0 {
            self.log.take_back(self.left.get(), self.how);
        }
    }
}

impl<'p> Entered<'p> {
    /// A stay in which nothing is logged.
    pub(super) fn without_log(stay: Stay<'p>) -> Entered<'p> {
        Entered { stay, promise: None, admission: None }
    }

    /// Appends a record for which there is a promise, if there is a log; the end of the record.
    #[inline]
    pub(super) fn append(&self, record: &Record<'_>) -> Option<Lsn> {
        let promise = self.promise.as_ref()?;
        let len = record.len_bytes() as u64;
        assert!(len <= promise.left.get(), "nothing is appended that was not promised");
        promise.left.set(promise.left.get() - len);
        Some(promise.log.append(record).end)
    }

    /// The LSN of a change that nothing logs, while its leaf is latched.
    #[inline]
    pub(super) fn now(&self, order: &Order) -> Lsn {
        order.clock.now(self.keeps_versions())
    }
}

impl Entered<'_> {
    /// Whether what records were before is kept during this stay.
    #[inline]
    pub(super) fn keeps_versions(&self) -> bool {
        self.admission.as_ref().is_some_and(|admission| admission.keeps())
    }

    /// How much of the room is left that was asked for.
    pub(super) fn version_cells(&self) -> u32 {
        self.admission.as_ref().map_or(0, |admission| admission.cells_left())
    }

    #[inline]
    pub(super) fn keep_version(&self, change: &Change<'_>) {
        if let Some(admission) = &self.admission {
            admission.keep(change);
        }
    }
}

#[cold]
fn gated() -> Error {
    Error::signalling(Signal::Gated, "to be waited for with nothing held")
}

impl EpochStay for Entered<'_> {
    #[inline]
    fn epoch(&self) -> Epoch {
        self.stay.epoch()
    }
}

impl BufferPool {
    /// From now on changes are logged. Once, before anybody changes anything.
    pub fn set_log(&self, log: Arc<Log>) {
        let first = self.order.log.set(log).is_ok();
        assert!(first, "a pool has one log");
    }

    /// Where changes are logged.
    #[inline]
    pub fn log(&self) -> Option<&Arc<Log>> {
        self.order.log.get()
    }

    /// An LSN that no change is above which no log has, and that was made before.
    pub fn clock_moment(&self) -> Lsn {
        self.order.clock.moment()
    }

    /// The LSN of a change that no log has, which is one of its own.
    pub fn own_lsn(&self) -> Lsn {
        self.order.clock.own()
    }

    /// The end of the newest record of the log, or an LSN that no change is above that no log has. A snapshot that begins later is not below
    /// it.
    pub fn last_lsn(&self) -> Lsn {
        self.log().map_or_else(|| self.order.clock.last(), |log| log.tail())
    }

    /// Enters, with room in the log for so many bytes. A result that is handed over in memory would be read back in
    /// other pieces than it was written in, which waits for the stores.
    #[inline(always)]
    pub(super) fn enter_with(
        &self,
        log_bytes: u64,
        purpose: Purpose,
        waiting: &Waiting<'_>,
    ) -> Result<Entered<'_>> {
        let promise = match self.log() {
            Some(log) if log_bytes > 0 => {
                let how = match purpose {
                    Purpose::Finish => Promised::OfReserved,
                    _ => Promised::Freely,
                };
                self.make_log_room_within(log, log_bytes, how, waiting)?;
                Some(Promise { log, left: Cell::new(log_bytes), how })
            }
            _ => None,
        };
        Ok(Entered { stay: self.enter_epoch(purpose, waiting)?, promise, admission: None })
    }

    /// [`Self::enter_with`], in order to change records. As long as no old versions are kept this costs two looks at a word.
    #[inline(always)]
    pub(super) fn enter_to_change_records(
        &self,
        log_bytes: u64,
        version_cells: impl Fn() -> u32,
        purpose: Purpose,
        waiting: &Waiting<'_>,
    ) -> Result<Entered<'_>> {
        // Who runs alone: the gate is closed for the others, and he keeps nothing.
        if purpose == Purpose::Finish {
            return self.enter_with(log_bytes, purpose, waiting);
        }
        let are_kept = || self.versions().is_some_and(PoolVersions::are_kept);
        if !are_kept() {
            let entered = self.enter_with(log_bytes, purpose, waiting)?;
            // Inside: whoever has them kept from now on waits for this stay.
            if !are_kept() {
                return Ok(entered);
            }
        }
        self.enter_and_keep(log_bytes, version_cells(), purpose, waiting)
    }

    /// The rest of [`Self::enter_to_change_records`], where versions are kept, or somebody runs alone.
    #[cold]
    #[inline(never)]
    fn enter_and_keep(
        &self,
        log_bytes: u64,
        version_cells: u32,
        purpose: Purpose,
        waiting: &Waiting<'_>,
    ) -> Result<Entered<'_>> {
        let Some(versions) = self.versions() else {
            return self.enter_with(log_bytes, purpose, waiting);
        };
        loop {
            let admitted = versions.admit(self, || version_cells, waiting)?;
            // Not waited for here: the caller may hold places in the pool that who runs alone needs, or a frame that is to be lent.
            let mut admission = admitted.ok_or_else(gated)?;
            let mut entered = self.enter_with(log_bytes, purpose, waiting)?;
            if admission.is_good() {
                entered.admission = Some(admission);
                return Ok(entered);
            }
        }
    }

    /// Enters an epoch for the store's own upkeep, which runs under the lock of checkpoints: does not
    /// wait for one to make room.
    pub fn enter_for_upkeep(&self) -> Result<Stay<'_>> {
        self.check_poison()?;
        Ok(self.epochs().enter())
    }

    #[inline(always)]
    fn enter_epoch(&self, purpose: Purpose, waiting: &Waiting<'_>) -> Result<Stay<'_>> {
        if self.frozen.load(Relaxed) {
            return Err(Error::new(ErrorKind::ReadOnly, "the database is open for reading only"));
        }
        self.check_poison()?;
        if let Some(slots) = &self.slots {
            if self.read_only {
                // What is read only writes nothing: what the log has changed stays in memory.
                if slots.checkpoints().is_delta_full() {
                    self.check_writable()?;
                }
            } else {
                slots.checkpoints().wait_for_delta_room(waiting)?;
                if !slots.has_room(self.images_to_write(), purpose) {
                    self.make_room(slots, purpose, waiting)?;
                }
            }
        }
        self.wait_until_cleaner(waiting)?;
        let stay = self.epochs().enter_within(waiting)?;
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
    fn make_room(&self, slots: &SlotStore, purpose: Purpose, waiting: &Waiting<'_>) -> Result<()> {
        let purpose = if self.replaying.load(Relaxed) { Purpose::Replay } else { purpose };
        let mut checkpoints = 0;
        loop {
            // The file may be about to be somebody else's: who closes waits for whoever makes it longer.
            let in_file = slots.enter_file()?;
            let map_pages = self.ids.lock().next_id().map_or(u32::MAX, |id| id.0);
            let made = slots.make_room(|| self.images_to_write(), u64::from(map_pages), purpose);
            drop(in_file);
            match made {
                Err(error) if error.kind() == ErrorKind::DiskFull => {
                    // One may be under way that has begun too early.
                    if checkpoints == 2 || !slots.checkpoints().wait_for_next(waiting)? {
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
    pub fn make_log_room(&self, log: &Log, log_bytes: u64, how: Promised) -> Result<()> {
        self.make_log_room_within(log, log_bytes, how, &Waiting::Forever)
    }

    #[inline(always)]
    fn make_log_room_within(
        &self,
        log: &Log,
        log_bytes: u64,
        how: Promised,
        waiting: &Waiting<'_>,
    ) -> Result<()> {
        self.after_checkpoints(waiting, |waiting| log.promise_within(log_bytes, how, waiting))
    }

    /// Room in the log for all records of a batch; as [`Self::make_log_room`].
    pub fn reserve_log<'l>(
        &self,
        log: &'l Log,
        log_bytes: u64,
        waiting: &Waiting<'_>,
    ) -> Result<Reservation<'l>> {
        self.after_checkpoints(waiting, |waiting| log.reserve(log_bytes, waiting))
    }

    /// Tries again after a checkpoint, twice, if the disk is full. Whoever waits for one to make room gets its error if it fails.
    fn after_checkpoints<R>(
        &self,
        waiting: &Waiting<'_>,
        attempt: impl Fn(&Waiting<'_>) -> Result<R>,
    ) -> Result<R> {
        let since = Cell::new(None);
        let hope = || self.slots.as_ref().map_or(Ok(()), |at| at.checkpoints().check(&since));
        let hoping = Waiting::Hoping { waiting, hope: &hope };
        for _ in 0..2 {
            match attempt(&hoping) {
                Err(error) if error.kind() == ErrorKind::DiskFull => {
                    let freed =
                        self.slots.as_ref().map(|slots| slots.checkpoints().wait_for_next(waiting));
                    if !freed.unwrap_or(Ok(false))? {
                        return Err(error);
                    }
                }
                other => return other,
            }
        }
        attempt(&hoping)
    }

    /// Lets a batch in that makes `pages` pages dirty at most, `new` of them new ones, for `purpose`: there is room for them, and it
    /// stays the batch's until the value is dropped.
    ///
    /// Errors: as for entering; `MemoryLimit` if the page table cannot grow as much.
    pub fn admit_batch(
        &self,
        pages: usize,
        new: usize,
        purpose: Purpose,
        waiting: &Waiting<'_>,
    ) -> Result<Option<SetAside<'_>>> {
        self.check_table_room(new)?;
        let slots = self.slots.as_ref().filter(|_| !self.read_only);
        let aside = slots.map(|slots| slots.set_aside(pages as u64));
        drop(self.enter_epoch(purpose, waiting)?);
        Ok(aside)
    }
}
