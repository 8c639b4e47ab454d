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

use super::geometry::PART_CONTENT_WORDS;
use super::image_counts::ImageCounts;
use super::zones::Zones;
use crate::types::{PART_BYTES, Purpose};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::figure::Figure;

/// Parts of the map from one that names pages up to the root, both included: as many as all page ids need.
const PARTS_TO_THE_ROOT: u64 = 4;
const _: () = assert!((PART_CONTENT_WORDS as u64).pow(PARTS_TO_THE_ROOT as u32) > 1 << 32);

/// See the head of the file.
pub(super) struct Room {
    page_bytes: u64,
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

/// Pages that are set aside for a batch.
#[must_use]
pub struct SetAside<'s> {
    room: &'s Room,
    pages: u64,
}

impl Drop for SetAside<'_> {
    fn drop(&mut self) {
        self.room.admitted.fetch_sub(self.pages, Relaxed);
    }
}

impl Room {
    pub(super) fn new(zones: &Zones, page_bytes: usize) -> Room {
        // Whoever comes first works it out.
        let (kept, admitted) = (Figure::new(u64::MAX / 2), Figure::new(0));
        let (solid, eighth) = (zones.room(), zones.eighth());
        let page_bytes = page_bytes as u64;
        Room { page_bytes, solid, kept, to_come: Figure::new(0), admitted, eighth }
    }

    /// Whether there is room for all dirty pages, of which there are so many.
    #[inline]
    pub(super) fn has(&self, dirty: usize, images: &ImageCounts, purpose: Purpose) -> bool {
        self.needed(dirty, images, purpose) <= self.solid.load(Relaxed)
    }

    /// Slots of a page that there has to be room for before somebody is let in.
    pub(super) fn needed(&self, dirty: usize, images: &ImageCounts, purpose: Purpose) -> u64 {
        let dirty = dirty as u64;
        // And the parts of the map that there will be more of than when they were counted.
        let mut parts = (dirty + images.since_checkpoint()) / 128;
        let to_come = self.to_come.load(Relaxed);
        if to_come != 0 {
            let images = dirty + images.not_durable();
            parts += (images * PARTS_TO_THE_ROOT * self.slots_of_a_part()).min(to_come);
        }
        // What batches were let in for is theirs alone.
        let (eighths, admitted) = match purpose {
            Purpose::Take => (4, self.admitted.load(Relaxed)),
            Purpose::GiveBack => (1, self.admitted.load(Relaxed)),
            Purpose::Replay | Purpose::Finish => (0, 0),
        };
        dirty + parts + admitted + eighths * self.eighth.load(Relaxed) + self.kept.load(Relaxed)
    }

    /// Slots of a page that there are too few.
    pub(super) fn missing(&self, dirty: usize, images: &ImageCounts, purpose: Purpose) -> u64 {
        self.needed(dirty, images, purpose).saturating_sub(self.solid.load(Relaxed))
    }

    /// Slots that shrinking has to leave in solid zones: what writers were let in for, or may be just now.
    pub(super) fn to_leave(&self, dirty: usize, images: &ImageCounts) -> u64 {
        // When nothing is dirty, whoever comes makes room first.
        let admitted = self.admitted.load(Relaxed);
        if dirty == 0 && admitted == 0 && images.since_checkpoint() == 0 {
            0
        } else {
            self.needed(dirty, images, Purpose::Take)
        }
    }

    /// From now on `pages` pages are set aside for a batch, until the value is dropped; that there is room for them is
    /// seen by who enters next.
    pub(super) fn set_aside(&self, pages: u64) -> SetAside<'_> {
        self.admitted.fetch_add(pages, Relaxed);
        SetAside { room: self, pages }
    }

    /// Works out what is to be kept beside dirty pages. Map and table have a part for so many pages or groups
    /// of zones, and the levels above have a few; all of them may have to be written at once. `to_write` images are to be
    /// written yet.
    pub(super) fn keep_for(&self, zones: &Zones, map_pages: u64, to_write: usize) {
        let groups = zones.groups();
        let for_all_ids = map_pages.div_ceil(PART_CONTENT_WORDS as u64);
        // Each names an image at least, and each image takes a unit.
        let there = for_all_ids.min(zones.held_units() + to_write as u64);
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
        self.kept.store(kept, Relaxed);
        self.to_come.store(most - kept, Relaxed);
    }

    fn slots_of_a_part(&self) -> u64 {
        (PART_BYTES as u64).div_ceil(self.page_bytes)
    }
}
