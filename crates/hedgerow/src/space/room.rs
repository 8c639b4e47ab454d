//! Room for the next checkpoint: nothing is changed that could not be written.
//!
//! Every dirty page will need a slot, and so will the parts of map and zone table that name the slots; the
//! images of the last checkpoint are not free before the next one is durable. So a writer is let in only while
//! the solid zones ([`super::zones`]) have that much room, and room is made before it is let in: a full disk is
//! an error of the change that would need more, and checkpoints, evictions and the opening after a crash go
//! through. What is removed makes pages dirty too, before a checkpoint gives their slots back: the last few
//! slots are for that.
//!
//! What holds, in pages: dirty + what batches were let in for + parts of the map and the table + a share <= room, when a
//! writer has been let in.
//! The map has at most a part for every so many page ids, and no more than there are images for it to name; the ids alone are no
//! measure, because a store that has shrunk keeps them, and a superblock may say anything.
//! Writers are not kept from each other between the look and the change; the share is for that: half a zone (256 pages in most
//! stores), or in a small file an eighth of it, but 256 KiB and 16 pages at least. Those who give space back are let in as long as a
//! quarter of the share is left; a replay, which does again what was let in before, and a batch that was let in as
//! a whole, as long as there is room at all.
//! `Sync`; the figures are read without a lock.

use super::extend::FREE_PART;
use super::geometry::PART_CONTENT_WORDS;
use super::slot_store::SlotStore;
use super::zones::{Growth, Want, Zones};
use crate::error::Result;
use crate::types::{PART_BYTES, Purpose};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::figure::Figure;

/// Part of the file that is taken ahead at most.
const AHEAD_PART: u64 = 8;
/// A file that has to become longer for a writer becomes longer by this part of it at once: each time the writer waits for
/// the file system.
const GROWN_PART: u64 = 16;
/// Parts of the map from one that names pages up to the root, both included: as many as all page ids need.
const PARTS_TO_THE_ROOT: u64 = 4;
const _: () = assert!((PART_CONTENT_WORDS as u64).pow(PARTS_TO_THE_ROOT as u32) > 1 << 32);

/// See the head of the file.
pub(super) struct Room {
    solid: Arc<Figure>,
    /// Slots for parts of map and table.
    kept: Figure,
    /// Slots for parts that the map does not have, though there are page ids for them: they may come with images. None in a
    /// store whose pages lie close together.
    to_come: Figure,
    /// Pages that batches were let in for.
    admitted: Figure,
    /// An eighth of a zone in pages, or less in a small file.
    eighth: Arc<Figure>,
}

impl Room {
    pub(super) fn new(zones: &Zones) -> Room {
        // Whoever comes first works it out.
        let (kept, admitted) = (Figure::new(u64::MAX / 2), Figure::new(0));
        let (solid, eighth) = (zones.room(), zones.eighth());
        Room { solid, kept, to_come: Figure::new(0), admitted, eighth }
    }
}

/// Pages that are set aside for a batch.
#[must_use]
pub struct SetAside<'s> {
    slots: &'s SlotStore,
    pages: u64,
}

impl Drop for SetAside<'_> {
    fn drop(&mut self) {
        self.slots.room.admitted.fetch_sub(self.pages, Relaxed);
    }
}

impl SlotStore {
    /// Whether there is room for all dirty pages, of which there are so many.
    #[inline]
    pub fn has_room(&self, dirty: usize, purpose: Purpose) -> bool {
        self.needed(dirty, purpose) <= self.room.solid.load(Relaxed)
    }

    /// Slots of a page that there has to be room for before somebody is let in.
    pub fn needed(&self, dirty: usize, purpose: Purpose) -> u64 {
        let dirty = dirty as u64;
        // And the parts of the map that there will be more of than when they were counted.
        let mut parts = (dirty + self.images_since_checkpoint()) / 128;
        let to_come = self.room.to_come.load(Relaxed);
        if to_come != 0 {
            let images = dirty + self.images_not_durable();
            parts += (images * PARTS_TO_THE_ROOT * self.slots_of_a_part()).min(to_come);
        }
        // What batches were let in for is theirs alone.
        let (eighths, admitted) = match purpose {
            Purpose::Take => (4, self.room.admitted.load(Relaxed)),
            Purpose::GiveBack => (1, self.room.admitted.load(Relaxed)),
            Purpose::Replay | Purpose::Finish => (0, 0),
        };
        dirty
            + parts
            + admitted
            + eighths * self.room.eighth.load(Relaxed)
            + self.room.kept.load(Relaxed)
    }

    /// Slots of a page that there are too few.
    fn missing(&self, dirty: usize, purpose: Purpose) -> u64 {
        self.needed(dirty, purpose).saturating_sub(self.room.solid.load(Relaxed))
    }

    /// Slots that shrinking has to leave in solid zones: what writers were let in for, or may be just now.
    pub fn slots_to_leave(&self, dirty: usize) -> u64 {
        // When nothing is dirty, whoever comes makes room first.
        let admitted = self.room.admitted.load(Relaxed);
        if dirty == 0 && admitted == 0 && self.images_since_checkpoint() == 0 {
            0
        } else {
            self.needed(dirty, Purpose::Take)
        }
    }

    /// Makes room for all dirty pages, and those that writers will make dirty, where the map has `map_pages`
    /// pages. The caller holds nothing.
    ///
    /// Errors: `DiskFull`; `Io`; `Corrupted` if a part of the zone table is damaged.
    pub fn make_room(
        &self,
        dirty: impl Fn() -> usize,
        map_pages: u64,
        purpose: Purpose,
    ) -> Result<()> {
        self.keep_for(map_pages, dirty());
        let (mut growth, mut refusal) = (Growth::Allowed, None);
        loop {
            let dirty = dirty();
            if self.has_room(dirty, purpose) {
                return Ok(());
            }
            let mut pages = self.missing(dirty, purpose);
            if growth == Growth::Allowed {
                pages += self.report().file_bytes / GROWN_PART / self.page_bytes() as u64;
            }
            let want = self.state().zones.want_room(growth, pages);
            self.provide(want, &mut growth, &mut refusal)?;
        }
    }

    /// From now on `pages` pages are set aside for a batch, until the value is dropped; that there is room for them is
    /// seen by who enters next.
    pub fn set_aside(&self, pages: u64) -> SetAside<'_> {
        self.room.admitted.fetch_add(pages, Relaxed);
        SetAside { slots: self, pages }
    }

    /// Makes room for `ahead` pages more than are needed now, so that writers seldom have to; or for fewer, which are a part
    /// of what the store has, and of what the file system has free. Not if the disk is full: who needs room finds out.
    ///
    /// Errors: `Io`; `Corrupted`.
    pub fn make_room_ahead(&self, to_write: usize, ahead: usize) -> Result<()> {
        let (mut growth, mut refusal) = (Growth::Allowed, None);
        if self.has_room(to_write + ahead, Purpose::Take) {
            return Ok(());
        }
        let ahead = self.pages_ahead(ahead)?;
        while growth == Growth::Allowed && !self.has_room(to_write + ahead, Purpose::Take) {
            let missing = self.missing(to_write + ahead, Purpose::Take);
            let want = self.state().zones.want_room(growth, missing);
            if want == Want::Full || want == Want::Truncating {
                break;
            }
            self.provide(want, &mut growth, &mut refusal)?;
        }
        Ok(())
    }

    /// Pages that are taken ahead at most: a part of what the store has, and of what the file system has free.
    fn pages_ahead(&self, wanted: usize) -> Result<usize> {
        let page_bytes = self.page_bytes() as u64;
        let in_store = self.report().file_bytes / AHEAD_PART / page_bytes;
        let free = self.file().free_bytes()?.unwrap_or(u64::MAX) / FREE_PART / page_bytes;
        Ok((wanted as u64).min(in_store).min(free) as usize)
    }

    /// Works out what is to be kept beside dirty pages. Map and table have a part for so many pages or groups
    /// of zones, and the levels above have a few; all of them may have to be written at once. `to_write` images are to be
    /// written yet.
    pub fn keep_for(&self, map_pages: u64, to_write: usize) {
        // Two who do this at a time leave the figures of one of them.
        let state = self.state();
        let groups = state.zones.groups();
        let for_all_ids = map_pages.div_ceil(PART_CONTENT_WORDS as u64);
        // Each names an image at least, and each image takes a unit.
        let there = for_all_ids.min(state.zones.held_units() + to_write as u64);
        let slots_for = |parts: u64| {
            // Of parts that lie far from each other, each may have its own above it.
            let far_apart = (PARTS_TO_THE_ROOT - 1) * parts + groups / 64 + 2;
            let above = match for_all_ids + groups + 2 {
                all if all < PART_CONTENT_WORDS as u64 / 2 => 2,
                all => (all / 64).min(far_apart),
            };
            (parts + groups + 2 + above) * self.slots_of_a_part()
        };
        let (kept, most) = (slots_for(there), slots_for(for_all_ids));
        self.room.kept.store(kept, Relaxed);
        self.room.to_come.store(most - kept, Relaxed);
    }

    fn slots_of_a_part(&self) -> u64 {
        (PART_BYTES as u64).div_ceil(self.page_bytes() as u64)
    }
}
