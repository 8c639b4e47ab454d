//! Making room for writers before they are let in; how much they need is in [`super::room`].
//!
//! Room that is missing is made by a longer file, or by blocks for a zone that has none. Whoever makes it takes some ahead, because
//! each time it waits for the file system. `Send + Sync`; the caller holds nothing.

use super::extend::FREE_PART;
use super::room::SetAside;
use super::slot_store::SlotStore;
use super::zone::{Growth, Want};
use crate::error::Result;
use crate::types::Purpose;

/// Part of the file that is taken ahead at most.
const AHEAD_PART: u64 = 8;
/// A file that has to become longer for a writer becomes longer by this part of it at once: each time the writer waits for
/// the file system.
const GROWN_PART: u64 = 16;
impl SlotStore {
    /// Whether there is room for all dirty pages, of which there are so many.
    #[inline]
    pub fn has_room(&self, dirty: usize, purpose: Purpose) -> bool {
        self.room.has(dirty, &self.images, purpose)
    }

    /// Slots of a page that there has to be room for before somebody is let in.
    pub fn needed(&self, dirty: usize, purpose: Purpose) -> u64 {
        self.room.needed(dirty, &self.images, purpose)
    }

    /// Slots that shrinking has to leave in solid zones: what writers were let in for, or may be just now.
    pub fn slots_to_leave(&self, dirty: usize) -> u64 {
        self.room.to_leave(dirty, &self.images)
    }

    /// From now on `pages` pages are set aside for a batch, until the value is dropped; that there is room for them is
    /// seen by who enters next.
    pub fn set_aside(&self, pages: u64) -> SetAside<'_> {
        self.room.set_aside(pages)
    }

    /// Works out what is to be kept beside dirty pages, where the map has `map_pages` pages, and `to_write` images are to be
    /// written yet.
    pub fn keep_for(&self, map_pages: u64, to_write: usize) {
        // Two who do this at a time leave the figures of one of them.
        self.room.keep_for(&self.state().zones, map_pages, to_write);
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
            let mut pages = self.room.missing(dirty, &self.images, purpose);
            if growth == Growth::Allowed {
                pages += self.report().file_bytes / GROWN_PART / self.page_bytes() as u64;
            }
            let want = self.state().zones.want_room(growth, pages);
            self.provide(want, &mut growth, &mut refusal)?;
        }
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
            let missing = self.room.missing(to_write + ahead, &self.images, Purpose::Take);
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
}
