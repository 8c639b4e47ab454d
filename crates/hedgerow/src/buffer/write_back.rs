//! Writing dirty pages to fresh slots: in sorted batches, with nothing latched during the write.
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
//! page), and a checkpoint (everything, waiting for latches; writers are kept out then). Each page of a
//! batch is independent, so an error in the middle loses nothing: what was not marked clean is dirty.

use crate::buffer::pool::BufferPool;
use crate::checksum::page_checksum;
use crate::error::{Error, ErrorKind, Result};
use crate::page::header;
use crate::page::{FrameId, PagePool};
use crate::space::slot_store::SlotStore;
use crate::storage::{AlignedBuffer, WriteRequest};
use crate::types::{Epoch, PageId, Slot};
use hedgerow_sync::latch::Version;
use hedgerow_sync::primitive::atomic::Ordering::AcqRel;

/// One page of a batch, between its copy and its mark.
struct Copied {
    id: PageId,
    frame: FrameId,
    version: Version,
    epoch: Epoch,
}

/// Pages that were copied, and the images that are to be theirs.
struct Batch {
    copied: Vec<Copied>,
    offsets: Vec<u64>,
    images: Vec<Slot>,
}

impl Batch {
    /// The images, which stand one behind the other in `buffer`; neighbours in the file as one request.
    fn requests<'b>(&self, buffer: &'b [u8], page_bytes: usize) -> Vec<WriteRequest<'b>> {
        let mut requests = Vec::new();
        let mut start = 0;
        for end in 1..=self.offsets.len() {
            let joined = end < self.offsets.len()
                && self.offsets[end] == self.offsets[end - 1] + page_bytes as u64;
            if !joined {
                let bytes = &buffer[start * page_bytes..end * page_bytes];
                requests.push(WriteRequest { offset_bytes: self.offsets[start], buf: bytes });
                start = end;
            }
        }
        requests
    }
}

/// Batches of a flush after which it lets others have the buffer.
const FLUSH_BATCHES: usize = 16;

/// What a batch does about latches that are held, and with the pages afterwards.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Skip what is latched; evict what is written.
    Evict,
    /// Wait for latches; keep the pages.
    Flush,
}

impl BufferPool {
    /// Writes cold pages and evicts them, as far as nobody uses them meanwhile.
    pub(super) fn write_back_cold(&self, mut frames: Vec<FrameId>) -> Result<()> {
        frames.sort_unstable();
        frames.dedup();
        let Some(slots) = &self.slots else { return Ok(()) };
        let mut buffer = self.evict_buffer.lock();
        self.write_batch(slots, &mut frames, &mut buffer, Manner::Evict).map(|_| ())
    }

    /// Writes the pages in these frames now.
    pub(super) fn write_back_now(&self, frames: &[FrameId]) -> Result<()> {
        let Some(slots) = &self.slots else { return Ok(()) };
        let mut frames = frames.to_vec();
        let mut buffer = self.flush_buffer.lock();
        self.write_batch(slots, &mut frames, &mut buffer, Manner::Flush).map(|_| ())
    }

    /// Writes every page that is dirty now, in the order of page ids. Returns the number of images.
    ///
    /// While writers are kept out, nothing is dirty afterwards; else some pages may be again.
    pub fn flush(&self) -> Result<u64> {
        let Some(slots) = &self.slots else { return Ok(0) };
        let mut written = 0;
        let mut dirty: Vec<FrameId> = Vec::new();
        let batch = self.budget().flush_pages() / 2;
        // All frames at once would be the best order, but the list would be memory outside of the
        // limit: the pages are taken in slices of the id space instead.
        let slice = (self.frames() as usize / 8).max(batch);
        let mut from = PageId(0);
        loop {
            let next = self.collect_dirty(from, slice, &mut dirty);
            // Not all of it with the buffer in hand: others have a page to write now and then.
            for chunk in dirty.chunks_mut(FLUSH_BATCHES * batch) {
                written += self.write_batches(slots, chunk)?;
            }
            match next {
                Some(next) => from = next,
                None => return Ok(written),
            }
        }
    }

    /// Waits until no batch is being written. While writers are kept out and nothing is dirty, no other
    /// one begins afterwards, so that every slot that is taken holds an image that counts.
    pub fn wait_for_batches(&self) {
        drop(self.evict_buffer.lock());
        drop(self.flush_buffer.lock());
    }

    /// The dirty frames of the `most` smallest page ids from `from` on, in that order; and where to go
    /// on, if there are more.
    fn collect_dirty(&self, from: PageId, most: usize, dirty: &mut Vec<FrameId>) -> Option<PageId> {
        let mut heap = std::collections::BinaryHeap::with_capacity(most + 1);
        let mut more = false;
        for frame in (0..self.frames()).map(FrameId) {
            let header = self.header(frame);
            let id = header.page();
            if !header.is_dirty() || id < from || id == PageId::NONE {
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
        next
    }

    /// Writes one batch; returns the number of images that were recorded.
    fn write_batch(
        &self,
        slots: &SlotStore,
        frames: &mut [FrameId],
        buffer: &mut AlignedBuffer,
        manner: Manner,
    ) -> Result<u64> {
        let Some(batch) = self.prepare(slots, frames, buffer, manner)? else { return Ok(0) };
        match slots.file().write_batch(&batch.requests(buffer, self.page_bytes)) {
            Ok(()) => Ok(self.record(batch, manner)),
            Err(error) => Err(self.give_up(slots, [Some(batch)], error)),
        }
    }

    /// Writes these pages in batches of half the flush buffer, two at a time; returns the number of
    /// images that were recorded.
    fn write_batches(&self, slots: &SlotStore, frames: &mut [FrameId]) -> Result<u64> {
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
                ready = self.prepare(slots, chunk, full, Manner::Flush)?;
                continue;
            };
            let mut next = Ok(None);
            let requests = batch.requests(full, self.page_bytes);
            let ended = slots.file().write_batch_beside(&requests, &mut || {
                recorded += written.take().map_or(0, |batch| self.record(batch, Manner::Flush));
                if let Some(chunk) = chunks.next() {
                    next = self.prepare(slots, chunk, spare, Manner::Flush);
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

    /// Copies the pages that are dirty, finds slots for the images, and completes these. `None`: there
    /// is nothing to write.
    fn prepare(
        &self,
        slots: &SlotStore,
        frames: &mut [FrameId],
        buffer: &mut [u8],
        manner: Manner,
    ) -> Result<Option<Batch>> {
        self.check_poison()?;
        self.check_writable()?;
        // Each key is read once: a frame may change its page meanwhile, and a sort whose keys change
        // under it may panic.
        frames.sort_by_cached_key(|frame| self.header(*frame).page());
        let copied = self.copy_pages(frames, buffer, manner);
        if copied.is_empty() {
            return Ok(None);
        }
        let page_bytes = self.page_bytes;
        let offsets = slots.allocate(copied.len(), page_bytes as u64)?;
        let images = copied
            .iter()
            .zip(buffer.chunks_exact_mut(page_bytes))
            .zip(&offsets)
            .map(|((page, image), offset)| {
                let checksum = page_checksum(page.id, image);
                image[..8].copy_from_slice(&checksum.to_le_bytes());
                Slot::new(*offset, page_bytes as u64, checksum)
                    .expect("the allocator gives offsets that fit a slot")
            })
            .collect();
        Ok(Some(Batch { copied, offsets, images }))
    }

    /// Marks the pages of a batch that was written clean, as far as they have not changed. Returns the
    /// number of images that count.
    fn record(&self, batch: Batch, manner: Manner) -> u64 {
        let mut recorded = 0;
        for (page, slot) in batch.copied.iter().zip(batch.images) {
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
        batches: [Option<Batch>; N],
        error: Error,
    ) -> Error {
        for slot in batches.into_iter().flatten().flat_map(|batch| batch.images) {
            slots.discard(slot);
        }
        // A full disk is a state that passes; anything else leaves us in doubt about the file.
        if *error.kind() != ErrorKind::DiskFull {
            self.set_poisoned(&error);
        }
        error
    }

    fn copy_pages(&self, frames: &[FrameId], buffer: &mut [u8], manner: Manner) -> Vec<Copied> {
        let mut copied = Vec::with_capacity(frames.len());
        let mut images = buffer.chunks_exact_mut(self.page_bytes);
        for frame in frames {
            let header = self.header(*frame);
            let guard = match manner {
                Manner::Evict => header.latch.try_shared(),
                // Not for a frame that was cleaned meanwhile: it may be reserved by now, by an operation
                // that waits for this very checkpoint.
                Manner::Flush => header.latch.shared_while(&mut || header.is_dirty()),
            };
            let Some(guard) = guard else { continue };
            let id = header.page();
            if id == PageId::NONE || !header.is_dirty() {
                continue;
            }
            let image = images.next().expect("a batch has at most as many pages as its buffer");
            // SAFETY: `as_slice` asks that nobody writes meanwhile: the shared latch is held.
            image.copy_from_slice(unsafe { self.bytes(*frame).as_slice() });
            debug_assert_eq!(header::page_id(image), id, "a page knows its own name");
            let version = guard.version();
            copied.push(Copied { id, frame: *frame, version, epoch: header.epoch() });
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
        };
        let Some(guard) = guard else { return false };
        // The version covers the page's identity as well: a frame changes its page under its latch.
        let is_same = guard.version() == page.version
            || cfg!(hedgerow_canary = "clean_without_version") && header.page() == page.id;
        if !is_same || !header.is_dirty() {
            guard.release_unchanged();
            return false;
        }
        debug_assert_eq!(header.page(), page.id);
        let (old, old_epoch) = header.clean();
        if let Some(slots) = &self.slots
            && let Err(error) = slots.image_written(page.id, page.epoch, slot, old, old_epoch)
        {
            self.set_poisoned(&error);
            guard.release_unchanged();
            return false;
        }
        // The count first: a checkpoint that finds no dirty frame goes on to look at the count.
        self.dirty.fetch_sub(1, AcqRel);
        header.set_clean(slot, page.epoch);
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

    /// Asserts what a checkpoint relies on: nothing is dirty.
    pub fn assert_clean(&self) -> Result<()> {
        if self.dirty_pages() != 0 {
            return Err(Error::new(
                ErrorKind::Poisoned,
                "pages were changed while a checkpoint kept writers out",
            ));
        }
        Ok(())
    }
}
