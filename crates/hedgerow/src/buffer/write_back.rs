//! Writing dirty pages to fresh slots: in sorted batches, with nothing latched during the write (but for `Manner::Held`).
//!
//! For each page of a batch: copy it under a shared latch and remember the latch's version; checksum
//! the copy; write all copies to fresh slots, one after another in the file; then, under an exclusive
//! latch, mark the frame clean if the version is still the one remembered. A page that was changed
//! meanwhile stays dirty, and its image's slot is given back at once: nobody refers to it.
//!
//! A flush prepares (copies, checksums) one batch while the one before it is being written, each in a
//! half of its buffer.
//!
//! Callers: the eviction thread (cold pages, and only try-latches), the page table's growth (one
//! page, which it keeps latched for the write if it is changed too often), and a checkpoint (all that it
//! is owed, waiting for latches; see `hand_over.rs`). Each page of a batch is independent, so an error in
//! the middle loses nothing: what was not marked clean is dirty.

use crate::buffer::commit_watch::{groups, parts};
use crate::buffer::pool::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::page::header;
use crate::page::{FrameId, Frames};
use crate::space::image_batch::{make_images, requests};
use crate::space::slot_store::SlotStore;
use crate::storage::{AlignedBuffer, WriteRequest};
use crate::types::{Epoch, PageId, Slot};
use hedgerow_sync::latch::{ExclusiveGuard, Version};
use hedgerow_sync::primitive::MutexGuard;
use hedgerow_sync::primitive::atomic::AtomicUsize;
use hedgerow_sync::primitive::atomic::Ordering::AcqRel;

/// One page of a batch, between its copy and its mark.
struct Copied {
    id: PageId,
    frame: FrameId,
    /// `None` if its latch is held all the while.
    version: Option<Version>,
}

/// Pages that were copied, and the images that are to be theirs.
struct Batch<'p> {
    copied: Vec<Copied>,
    images: Vec<Slot>,
    /// Gone when all images are recorded, or their slots given back.
    _under_way: UnderWay<'p>,
}

/// Images whose slots are taken, and which nothing refers to yet.
pub struct UnderWay<'p> {
    count: &'p AtomicUsize,
    images: usize,
}

impl<'p> UnderWay<'p> {
    fn new(count: &'p AtomicUsize, images: usize) -> UnderWay<'p> {
        count.fetch_add(images, AcqRel);
        UnderWay { count, images }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(self.images, AcqRel);
    }
}

/// Batches of a flush after which it lets others have the buffer.
const FLUSH_BATCHES: usize = 2;
/// And bytes.
const FLUSH_BYTES: usize = 4 << 20;
/// Frames that a flush looks at in one go.
const LOOKED_AT: usize = 8192;

/// What a batch does about latches that are held, and with the pages afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Skip what is latched; evict what is written.
    Evict,
    /// Wait for latches; keep the pages.
    Flush,
    /// The caller has latched the pages exclusively, and keeps them so.
    Held,
}

impl BufferPool {
    /// As if an eviction had so many under way, until the value is dropped.
    #[cfg(test)]
    pub fn with_images_under_way(&self, images: usize) -> UnderWay<'_> {
        UnderWay::new(&self.images_under_way, images)
    }

    /// Writes cold pages and evicts them, as far as nobody uses them meanwhile.
    pub(super) fn write_back_cold(&self, mut frames: Vec<FrameId>) -> Result<()> {
        frames.sort_unstable();
        frames.dedup();
        let Some(slots) = &self.slots else { return Ok(()) };
        let mut buffer = self.evict_buffer.lock();
        self.write_batch(slots, &mut frames, &mut buffer, Manner::Evict).map(|_| ())
    }

    /// Writes the page in this frame now. Waits for nobody's buffer: a checkpoint lets go of its own for a moment at a time, in which
    /// nobody else gets it.
    pub(super) fn write_back_now(&self, frame: FrameId) -> Result<()> {
        let Some(slots) = &self.slots else { return Ok(()) };
        let mut buffer = AlignedBuffer::zeroed(self.page_bytes)?;
        self.write_batch(slots, &mut [frame], &mut buffer, Manner::Flush).map(|_| ())
    }

    /// Writes a page that the caller has latched exclusively, as if it were to be read in: for one that is changed so often
    /// that no image is as new as the page. Waits for nobody's latch or buffer meanwhile.
    pub(super) fn write_back_held(
        &self,
        frame: FrameId,
        latched: &ExclusiveGuard<'_>,
    ) -> Result<()> {
        assert!(std::ptr::eq(latched.latch(), &self.header(frame).latch), "the page's own latch");
        let Some(slots) = &self.slots else { return Ok(()) };
        let mut buffer = AlignedBuffer::zeroed(self.page_bytes)?;
        self.write_batch(slots, &mut [frame], &mut buffer, Manner::Held).map(|_| ())
    }

    /// Writes every page that is dirty now, in the order of page ids. Returns the number of images.
    ///
    /// Some pages may be dirty afterwards, or again: those that were changed meanwhile, or converted or sorted by a
    /// reader.
    #[cfg(hedgerow_internals)]
    pub fn flush(&self) -> Result<u64> {
        self.flush_to(Epoch(u64::MAX), &mut || Ok(()))
    }

    /// [`Self::flush`], of pages whose last change was made in `last` or before; `between` is called now and then.
    pub(super) fn flush_to(
        &self,
        last: Epoch,
        between: &mut dyn FnMut() -> Result<()>,
    ) -> Result<u64> {
        let Some(slots) = &self.slots else { return Ok(0) };
        let mut written = 0;
        let mut dirty: Vec<FrameId> = Vec::new();
        let batch = self.budget().flush_pages() / 2;
        // All frames at once would be the best order, but the list would be memory outside of the
        // limit: the pages are taken in slices of the id space instead.
        let slice = (self.frames() as usize / 8).max(batch);
        let mut from = PageId(0);
        loop {
            let next = self.collect_dirty(from, slice, last, &mut dirty, between)?;
            // Not all of it with the buffer in hand: others have a page to write now and then.
            let chunk = (FLUSH_BATCHES * batch).min((FLUSH_BYTES / self.page_bytes).max(2));
            for chunk in dirty.chunks_mut(chunk) {
                written += self.write_batches(slots, chunk, last)?;
                between()?;
            }
            match next {
                Some(next) => from = next,
                None => return Ok(written),
            }
        }
    }

    /// The memory for what a checkpoint writes. No page is written by one meanwhile.
    pub fn flush_buffer(&self) -> MutexGuard<'_, AlignedBuffer> {
        self.flush_buffer.lock()
    }

    /// Waits until no batch is being written. While writers are kept out and nothing is dirty, no other
    /// one begins afterwards, so that every slot that is taken holds an image that counts.
    pub fn wait_for_batches(&self) {
        drop(self.evict_buffer.lock());
        drop(self.flush_buffer.lock());
    }

    /// The dirty frames of the `most` smallest page ids from `from` on, in that order; and where to go
    /// on, if there are more.
    fn collect_dirty(
        &self,
        from: PageId,
        most: usize,
        last: Epoch,
        dirty: &mut Vec<FrameId>,
        between: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Option<PageId>> {
        let mut heap = std::collections::BinaryHeap::new();
        let mut more = false;
        for (looked_at, frame) in self.used_frames().enumerate() {
            if looked_at % LOOKED_AT == LOOKED_AT - 1 {
                between()?;
            }
            let header = self.header(frame);
            let id = header.page();
            if !header.is_dirty() || id < from || id == PageId::NONE || header.epoch() > last {
                continue;
            }
            heap.push((id, frame));
            if heap.len() > most {
                heap.pop();
                more = true;
            }
        }
        let sorted = heap.into_sorted_vec();
        let next = sorted.last().filter(|_| more).map(|(id, _)| PageId(id.0 + 1));
        dirty.clear();
        dirty.extend(sorted.into_iter().map(|(_, frame)| frame));
        Ok(next)
    }

    /// Writes one batch; returns the number of images that were recorded.
    fn write_batch(
        &self,
        slots: &SlotStore,
        frames: &mut [FrameId],
        buffer: &mut AlignedBuffer,
        manner: Manner,
    ) -> Result<u64> {
        let all = Epoch(u64::MAX);
        let Some(batch) = self.prepare(slots, frames, buffer, manner, all)? else { return Ok(0) };
        match slots.file().write_batch(&requests(&batch.images, buffer)) {
            Ok(()) => Ok(self.record(batch, manner)),
            Err(error) => Err(self.give_up(slots, [Some(batch)], error)),
        }
    }

    /// Writes those of these pages whose last change was made in `last` or before, in batches of half the flush
    /// buffer, two at a time; returns the number of images that were recorded.
    fn write_batches(&self, slots: &SlotStore, frames: &mut [FrameId], last: Epoch) -> Result<u64> {
        let mut buffer = self.flush_buffer.lock();
        let half = self.budget().flush_pages() / 2;
        let (mut full, mut spare) = buffer.split_at_mut(half * self.page_bytes);
        let mut chunks = frames.chunks_mut(half);
        // Written, and not recorded yet; and copied, and not written yet.
        let (mut written, mut ready) = (None, None);
        let mut recorded = 0;
        loop {
            let Some(batch) = ready.take() else {
                let Some(chunk) = chunks.next() else { break };
                match self.prepare(slots, chunk, full, Manner::Flush, last) {
                    Ok(next) => ready = next,
                    Err(error) => {
                        written.take().map(|batch| self.record(batch, Manner::Flush));
                        return Err(error);
                    }
                }
                continue;
            };
            let mut next = Ok(None);
            let requests = requests(&batch.images, full);
            let ended = self.write_for_checkpoint(slots, &requests, &mut || {
                recorded += written.take().map_or(0, |batch| self.record(batch, Manner::Flush));
                if let Some(chunk) = chunks.next() {
                    next = self.prepare(slots, chunk, spare, Manner::Flush, last);
                }
            });
            drop(requests);
            if let Err(error) = ended {
                return Err(self.give_up(slots, [Some(batch), next.unwrap_or(None)], error));
            }
            written = Some(batch);
            match next {
                Ok(next) => ready = next,
                Err(error) => {
                    written.take().map(|batch| self.record(batch, Manner::Flush));
                    return Err(error);
                }
            }
            std::mem::swap(&mut full, &mut spare);
        }
        Ok(recorded + written.map_or(0, |batch| self.record(batch, Manner::Flush)))
    }

    /// Flushes of the log that somebody has waited for.
    pub(super) fn awaited_flushes(&self) -> u64 {
        self.log().map_or(0, |log| log.awaited())
    }

    /// Writes a batch of a checkpoint; calls `beside` once, while it is under way.
    ///
    /// Errors: those of writing. Some of it may be written then.
    pub(super) fn write_for_checkpoint(
        &self,
        slots: &SlotStore,
        requests: &[WriteRequest<'_>],
        beside: &mut dyn FnMut(),
    ) -> Result<()> {
        let expects = self.log().is_some()
            && self.handed.watch.lock().expects_commits(self.awaited_flushes());
        if !expects {
            return slots.file().write_batch_beside(requests, beside);
        }
        let parts = parts(requests);
        let mut groups = groups(&parts);
        if let Some(first) = groups.next() {
            slots.file().write_batch_beside(first, beside)?;
        }
        groups.try_for_each(|group| slots.file().write_batch(group))
    }

    /// Copies the pages that are dirty and were not changed after `last`, finds slots for the images, and
    /// completes these. `None`: there is nothing to write.
    fn prepare(
        &self,
        slots: &SlotStore,
        frames: &mut [FrameId],
        buffer: &mut [u8],
        manner: Manner,
        last: Epoch,
    ) -> Result<Option<Batch<'_>>> {
        self.check_poison()?;
        self.check_writable()?;
        // Each key is read once: a frame may change its page meanwhile, and a sort whose keys change
        // under it may panic.
        frames.sort_by_cached_key(|frame| self.header(*frame).page());
        let mut copied = self.copy_pages(frames, buffer, manner, last);
        if copied.is_empty() {
            return Ok(None);
        }
        // Before the slots are taken: who finds none under way finds all of them recorded.
        let under_way = UnderWay::new(&self.images_under_way, copied.len());
        let images = make_images(slots, &mut copied, |page| page.id, buffer)?;
        Ok(Some(Batch { copied, images, _under_way: under_way }))
    }

    /// Marks the pages of a batch that was written clean, as far as they have not changed. Returns the
    /// number of images that count.
    fn record(&self, batch: Batch<'_>, manner: Manner) -> u64 {
        let mut recorded = 0;
        for (page, &slot) in batch.copied.iter().zip(&batch.images) {
            if self.mark_clean(page, slot, manner) {
                recorded += 1;
            } else if let Some(slots) = &self.slots {
                slots.discard(slot);
            }
        }
        let written = batch.copied.len() as u64;
        self.counters.wrote(written, written - recorded);
        recorded
    }

    /// Gives the slots of batches back that were not written, and passes the error on.
    fn give_up<const N: usize>(
        &self,
        slots: &SlotStore,
        batches: [Option<Batch<'_>>; N],
        error: Error,
    ) -> Error {
        let images = batches.iter().flatten().flat_map(|batch| batch.images.iter().copied());
        self.discard_images(slots, images, error)
    }

    /// The same, of images.
    pub(super) fn discard_images(
        &self,
        slots: &SlotStore,
        images: impl IntoIterator<Item = Slot>,
        error: Error,
    ) -> Error {
        self.discard_slots(slots, images);
        // A full disk is a state that passes; anything else leaves us in doubt about the file.
        if error.kind() != ErrorKind::DiskFull {
            self.set_poisoned(&error);
        }
        error
    }

    /// Gives back slots into which nothing was written that anybody refers to.
    pub(super) fn discard_slots(&self, slots: &SlotStore, images: impl IntoIterator<Item = Slot>) {
        for slot in images {
            slots.discard(slot);
        }
    }

    fn copy_pages(
        &self,
        frames: &[FrameId],
        buffer: &mut [u8],
        manner: Manner,
        last: Epoch,
    ) -> Vec<Copied> {
        let mut copied = Vec::with_capacity(frames.len());
        let mut images = buffer.chunks_exact_mut(self.page_bytes);
        for frame in frames {
            let header = self.header(*frame);
            let guard = match manner {
                Manner::Evict => header.latch.try_shared(),
                // Not for a frame that was cleaned meanwhile: it may be reserved by now, by an operation
                // that waits for this very checkpoint.
                Manner::Flush => header.latch.shared_while(&mut || header.is_dirty()),
                Manner::Held => None,
            };
            if guard.is_none() && manner != Manner::Held {
                continue;
            }
            let id = header.page();
            if id == PageId::NONE || !header.is_dirty() || header.epoch() > last {
                continue;
            }
            let image = images.next().expect("a batch has at most as many pages as its buffer");
            // SAFETY: `as_slice` asks that nobody writes meanwhile: the latch is held, shared here or exclusively by the caller.
            image.copy_from_slice(unsafe { self.bytes(*frame).as_slice() });
            debug_assert_eq!(header::page_id(image), id, "a page knows its own name");
            let version = guard.as_ref().map(|guard| guard.version());
            copied.push(Copied { id, frame: *frame, version });
            drop(guard);
        }
        copied
    }

    /// Records the image if the page has not changed since it was copied.
    fn mark_clean(&self, page: &Copied, slot: Slot, manner: Manner) -> bool {
        let header = self.header(page.frame);
        let guard = match manner {
            Manner::Evict => header.latch.try_exclusive(),
            Manner::Flush => {
                header.latch.exclusive_while(&mut || header.is_dirty() && header.page() == page.id)
            }
            Manner::Held => return self.mark_latched_clean(page, slot),
        };
        let Some(guard) = guard else { return false };
        // The version covers the page's identity as well: a frame changes its page under its latch.
        let is_same = Some(guard.version()) == page.version;
        if !is_same || !header.is_dirty() || !self.mark_latched_clean(page, slot) {
            guard.release_unchanged();
            return false;
        }
        let side = self.side(page.frame);
        if manner == Manner::Evict && !header.is_used() && !side.is_pinned() {
            self.evict_latched(page.frame);
            self.release_frame(page.frame, guard);
        } else {
            // The bytes are what they were: readers need not start over.
            guard.release_unchanged();
        }
        true
    }

    /// Records the image of a page that is latched exclusively, dirty, and what was copied.
    fn mark_latched_clean(&self, page: &Copied, slot: Slot) -> bool {
        let header = self.header(page.frame);
        debug_assert_eq!(header.page(), page.id);
        // As it is now: it may have been handed over since it was copied, and not changed.
        let epoch = header.epoch();
        let (old, old_epoch) = header.clean();
        let count = || {
            self.dirty.fetch_sub(1, AcqRel);
        };
        if let Some(slots) = &self.slots
            && let Err(error) = slots.image_written(page.id, epoch, slot, old, old_epoch, count)
        {
            self.set_poisoned(&error);
            return false;
        }
        header.set_clean(slot, epoch);
        true
    }
}
