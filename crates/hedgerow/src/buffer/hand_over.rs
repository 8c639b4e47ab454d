//! How a checkpoint gets every page as it was when its epoch ended, while writers go on.
//!
//! When the epoch ends, what is dirty is owed ([`BufferPool::owe`]). The checkpoint writes the owed pages in the
//! order of their ids. A writer that comes to one first hands a copy over ([`BufferPool::hand_over`]) and changes
//! the page for its own epoch; the checkpoint writes the copy. Copies stand in *slabs*, of which there is a fixed
//! number: writers fill one, the checkpoint writes another. When all are full, the writer gives up what it has
//! latched and waits: for one batch of the disk, and not for the whole checkpoint, since copies are written first.
//!
//! Invariants: a page is handed over under its exclusive latch, inside of the epoch after the checkpoint's, so that
//! no other checkpoint begins meanwhile; who holds the latch of a page that was handed over finds it stamped with the
//! new epoch. Latch order: pages, then slabs, then the state of the slots. `Send + Sync`.

use crate::buffer::commit_watch::CommitWatch;
use crate::buffer::pool::BufferPool;
use crate::buffer::slabs::{Handed, Ready, Slab};
use crate::error::{Error, ErrorKind, Result};
use crate::page::{FrameId, Frames};
use crate::space::image_batch::{make_images, requests};
use crate::space::slot_store::SlotStore;
use crate::types::{Epoch, Slot};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::thread;
use std::time::Duration;

/// Slabs written with one call.
const SLABS_AT_ONCE: usize = 4;
/// Room is made for so large a part of the pages in memory at most before writers need it.
const ROOM_AHEAD_PART: usize = 32;
/// How long a writer waits for a slab before it looks again.
const WAIT: Duration = Duration::from_millis(10);

impl BufferPool {
    /// From now on, all pages that are dirty are owed to the checkpoint that has ended `epoch`. The caller keeps
    /// writers out, and lets them in afterwards.
    pub fn owe(&self, slots: &SlotStore, epoch: Epoch) {
        slots.owe(epoch, || self.dirty_pages());
    }

    /// Writes all that the checkpoint under way is owed. Afterwards none is under way; if this failed, what it was
    /// owed is the next one's.
    ///
    /// Errors: those of finding slots, and `DiskFull`, after which nothing is lost; after any other the pool is poisoned.
    pub fn settle_owed(&self, slots: &SlotStore) -> Result<()> {
        *self.handed.watch.lock() = CommitWatch::new(self.awaited_flushes());
        let settled = self.write_owed(slots);
        let mut slabs = self.handed.slabs.lock();
        // What is left if this failed: the pages themselves are dirty still, or newer than the copies.
        while let Some(slab) = slabs.next(true) {
            slabs.give_back(slab);
        }
        // With both locks: nobody is about to count anything.
        let state = slots.state();
        let is_settled = !self.handed.owed.has_pages() && self.handed.copies.load(Relaxed) == 0;
        self.handed.owed.end();
        self.handed.copies.store(0, Relaxed);
        drop(state);
        drop(slabs);
        self.handed.room.notify_all();
        settled?;
        if !is_settled {
            let what = "a checkpoint did not get all pages that it needs";
            return Err(Error::new(ErrorKind::Poisoned, what));
        }
        Ok(())
    }

    fn write_owed(&self, slots: &SlotStore) -> Result<()> {
        let owed = &self.handed.owed;
        let Some(epoch) = owed.epoch() else { return Ok(()) };
        while owed.has_pages() {
            let written = self.flush_to(epoch, &mut || self.between(slots, epoch))?;
            self.between(slots, epoch)?;
            if written == 0 {
                // Somebody has latched what is left.
                thread::yield_now();
            }
        }
        // Nothing more is handed over.
        self.write_copies(slots, epoch, true)
    }

    /// What a checkpoint does now and then while it writes: what writers wait for, or would have to wait for soon.
    fn between(&self, slots: &SlotStore, epoch: Epoch) -> Result<()> {
        // Nobody writes any more after the store was closed.
        if self.check_open().is_ok() {
            // Of the pages in memory, and not of the frames: most of these may never be used.
            let held = (self.frames() as usize).saturating_sub(self.free.count());
            slots.make_room_ahead(self.images_to_write(), held / ROOM_AHEAD_PART)?;
        }
        self.write_copies(slots, epoch, false)
    }

    /// Images that are to be written yet: of dirty pages, and copies.
    #[inline]
    pub fn images_to_write(&self) -> usize {
        self.dirty_pages() + self.handed.copies.load(Relaxed) as usize
    }

    /// See [`crate::page::Frames::let_change`].
    ///
    /// # Safety
    /// The caller holds the frame's latch exclusively.
    #[cold]
    pub(super) unsafe fn hand_over(&self, frame: FrameId) -> bool {
        let (header, owed) = (self.header(frame), &self.handed.owed);
        if !header.is_dirty() || !owed.owes(header.epoch()) {
            return true;
        }
        let mut slabs = self.handed.slabs.lock();
        // It may have been given up meanwhile; while the slabs are locked it is not.
        let Some(epoch) = owed.epoch() else { return true };
        let Some(slab) = slabs.place(self.handed.slab_pages) else { return false };
        owed.handed_over();
        self.handed.copies.fetch_add(1, Relaxed);
        let id = header.page();
        let at = slab.pages.len() * self.page_bytes;
        // SAFETY: `as_slice` asks that nobody writes meanwhile: the exclusive latch is held (caller).
        let page = unsafe { self.bytes(frame).as_slice() };
        slab.bytes[at..at + self.page_bytes].copy_from_slice(page);
        slab.pages.push(Handed { id, frame });
        header.set_handed_over(epoch.next());
        self.counters.copied();
        true
    }

    /// Waits until there is room for another copy, or no need of one. Errors: those of `waiting`.
    pub(super) fn wait_for_slab(&self, waiting: &Waiting<'_>) -> Result<()> {
        let mut slabs = self.handed.slabs.lock();
        while self.handed.owed.is_under_way() && slabs.place(self.handed.slab_pages).is_none() {
            let most = waiting.nap_of(WAIT)?;
            self.handed.room.wait_for(&mut slabs, most);
        }
        Ok(())
    }

    /// Asserts that the page, which is about to be marked dirty, has been handed over if it was owed.
    #[cold]
    pub(super) fn assert_handed_over(&self, frame: FrameId) {
        let header = self.header(frame);
        let owed = header.is_dirty() && self.handed.owed.owes(header.epoch());
        assert!(!owed, "a page that a checkpoint is owed is not changed before it was handed over");
    }

    /// Writes copies: all that there are, or those in full slabs, several slabs at a time. The next ones are made
    /// ready while the disk writes.
    fn write_copies(&self, slots: &SlotStore, epoch: Epoch, all: bool) -> Result<()> {
        let mut ready = self.prepare_slabs(slots, all)?;
        while !ready.is_empty() {
            let mut next = Ok(Vec::new());
            let requests: Vec<_> =
                ready.iter().flat_map(|ready| requests(&ready.images, &ready.slab.bytes)).collect();
            let written = self.write_for_checkpoint(slots, &requests, &mut || {
                next = self.prepare_slabs(slots, all);
            });
            drop(requests);
            if let Err(error) = written {
                let unwritten = ready.into_iter().chain(next.unwrap_or_default());
                return Err(self.give_slabs_up(slots, unwritten, error));
            }
            let mut ready_ones = ready.into_iter();
            while let Some(slab) = ready_ones.next() {
                if let Err(error) = self.record_slab(slots, epoch, slab) {
                    let unrecorded = ready_ones.chain(next.unwrap_or_default());
                    return Err(self.give_slabs_up(slots, unrecorded, error));
                }
            }
            ready = next?;
        }
        Ok(())
    }

    /// Finds slots for the next copies, and completes their images. Nothing: there are none.
    fn prepare_slabs(&self, slots: &SlotStore, all: bool) -> Result<Vec<Ready>> {
        let mut ready: Vec<Ready> = Vec::new();
        while ready.len() < SLABS_AT_ONCE {
            let Some(mut slab) = self.handed.slabs.lock().next(all) else { break };
            let Slab { bytes, pages } = &mut slab;
            let images =
                self.check_poison().and_then(|()| make_images(slots, pages, |page| page.id, bytes));
            match images {
                Ok(images) => ready.push(Ready { slab, images }),
                Err(error) => {
                    self.give_slab_back(slab);
                    // Nothing was written, so nobody is in doubt about the file.
                    for Ready { slab, images, .. } in ready {
                        self.discard_slots(slots, images);
                        self.give_slab_back(slab);
                    }
                    return Err(error);
                }
            }
        }
        Ok(ready)
    }

    fn give_slab_back(&self, slab: Slab) {
        self.handed.slabs.lock().give_back(slab);
        self.handed.room.notify_all();
    }

    /// Gives back slots and slabs of copies that were not written, and passes the error on.
    fn give_slabs_up(
        &self,
        slots: &SlotStore,
        slabs: impl IntoIterator<Item = Ready>,
        error: Error,
    ) -> Error {
        let mut images = Vec::new();
        for Ready { slab, images: mut of, .. } in slabs {
            images.append(&mut of);
            self.give_slab_back(slab);
        }
        self.discard_images(slots, images, error)
    }

    /// Notes where the copies of a slab are.
    fn record_slab(&self, slots: &SlotStore, epoch: Epoch, ready: Ready) -> Result<()> {
        let Ready { slab, images, .. } = ready;
        self.counters.wrote(images.len() as u64, 0);
        let mut recorded = Ok(());
        for (page, slot) in slab.pages.iter().zip(images) {
            recorded = self.record_copy(slots, epoch, page, slot);
            if let Err(error) = &recorded {
                self.set_poisoned(error);
                break;
            }
            self.handed.copies.fetch_sub(1, Relaxed);
        }
        self.give_slab_back(slab);
        recorded
    }

    /// Notes where a copy is, and that the page's last image is there, unless there is a newer one.
    fn record_copy(
        &self,
        slots: &SlotStore,
        epoch: Epoch,
        page: &Handed,
        slot: Slot,
    ) -> Result<()> {
        let header = self.header(page.frame);
        // A dirty page stays in its frame. If it is not there any more, something newer was recorded before.
        let is_next = || {
            let is_there = header.page() == page.id;
            is_there && header.is_handed_over()
        };
        let latched = header.latch.exclusive_while(&mut || is_next());
        let before = latched.as_ref().filter(|_| is_next()).map(|_| {
            let before = header.clean();
            header.set_image(slot, epoch);
            before
        });
        let recorded = slots.copy_written(page.id, epoch, slot, before);
        if let Some(guard) = latched {
            guard.release_unchanged();
        }
        recorded
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::buffer::tests::{begin_checkpoint, change, fresh, pool};

    /// Of a page that has gone the copy is an image, and what is in its frame now is not what was copied.
    #[test]
    fn a_copy_is_not_noted_as_the_image_of_another_page() {
        let pool = pool(0);
        let slots = pool.slots.clone().unwrap();
        let (id, frame) = fresh(&pool);
        let epoch = begin_checkpoint(&pool);
        change(&pool, id);
        let header = pool.header(frame);
        assert!(header.is_handed_over());
        let offsets = slots.allocate(1, pool.page_bytes as u64).unwrap();
        let slot = Slot::new(offsets[0], pool.page_bytes as u64, 1).unwrap();
        let gone = Handed { id: id.next().unwrap(), frame };
        pool.record_copy(&slots, epoch, &gone, slot).unwrap();
        assert!(header.is_handed_over(), "its own copy is yet to come");
        assert_eq!(header.clean(), (Slot::NONE, Epoch(0)));
        // The same of the page itself is.
        let offsets = slots.allocate(1, pool.page_bytes as u64).unwrap();
        let slot = Slot::new(offsets[0], pool.page_bytes as u64, 1).unwrap();
        pool.record_copy(&slots, epoch, &Handed { id, frame }, slot).unwrap();
        assert_eq!(header.clean(), (slot, epoch));
    }
}
