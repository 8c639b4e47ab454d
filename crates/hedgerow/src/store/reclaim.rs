//! Giving space back to the file system: truncation, holes, and moving the tail into gaps.
//!
//! After each checkpoint: zones that are free at the file's end are cut off, but for what the next checkpoint is likely to need
//! again while somebody writes; pages that lie in the last
//! zones are faulted in and marked dirty, so that they are written to gaps nearer to the start, and the
//! next checkpoint can cut more; what stays free in the middle is punched.
//!
//! How much is moved depends on what the checkpoint had to do (`Reclaim::plan`). One that wrote
//! something leaves room for the next ones, which write as much before they free anything, and moves no
//! more than was changed, so that shrinking at most doubles what is written. One that was asked for and
//! found nothing to write moves whatever brings the file near to the size of its pages, at most as much
//! as the memory limit: what a load leaves free at most is what its last checkpoints wrote, and that is
//! bounded by memory. It goes in passes, each with a checkpoint of its own, so that nobody who waits
//! for room in the deltas waits for all of it. When somebody wants to pin a checkpoint no other pass begins: he may be a large commit,
//! for which all writers wait.

use super::checkpoint::Taken;
use super::{Newest, Shared};
use crate::error::{ErrorKind, Result, Signal};
use crate::page::{Access, ExclusivePage, Frames, Pages, PoolSession, header};
use crate::space::geometry::MAX_ZONE_BYTES;
use crate::space::image::len_in;
use crate::space::shrink::TailZone;
use crate::space::slot_store::SlotStore;
use crate::storage::AlignedBuffer;
use crate::types::{PageId, Purpose};

/// Bytes that one pass moves at most, but for a zone that holds more.
const PASS_BYTES: u64 = 32 << 20;
/// Part of the memory that one pass moves at most.
const PASS_PART: u64 = 8;
/// What shrinking may move at least: the largest zone.
const LEAST_BUDGET_BYTES: u64 = MAX_ZONE_BYTES as u64;
/// Part of the file that stays free in any case: map and zone table need room for each checkpoint.
const SPARE_PART: u64 = 128;
/// Part of the file that stays free at most.
const MOST_SPARE_PART: u64 = 4;
/// After a pass in vain so many times as much stays free.
const MORE_SPARE: u64 = 8;
/// Free space that is kept solid for the writes that are to come: at most so much, and at most this part of the file.
const KEEP_SOLID_BYTES: u64 = 8 << 20;
const KEEP_SOLID_PART: u64 = 8;
/// Of what the next checkpoint is likely to need, so large a part is kept beside.
const LIKELY_SPARE_PART: u64 = 8;
/// Holes punched by one pass at most.
const PUNCHES: usize = 64;
/// A store that holds more is closed without moving anything.
const MOST_AT_CLOSE_BYTES: u64 = 16 << 20;
/// Checkpoints that are taken at most to make its file shorter.
const CLOSING_PASSES: usize = 4;
/// By this part, and so many bytes, its file may be longer than what is in it.
const CLOSED_SPARE_PART: u64 = 4;
const CLOSED_SPARE_BYTES: u64 = 256 << 10;
/// Pages that are read with one submission.
const READ_PAGES: usize = 32;

/// Passes in vain after which nothing is moved before there are changes. One may be in vain because
/// others write meanwhile; if all are, then pins hold the tail, or the gaps are too short for pages.
const MOST_IN_VAIN: u32 = 3;

/// What checkpoints had to do lately, and so how far the file is to shrink.
#[derive(Default)]
pub(super) struct Reclaim {
    /// Images that the last two checkpoints with any wrote, in bytes, the newer one first.
    written_bytes: [u64; 2],
    /// What they needed beside the images of the checkpoint before, in bytes: see [`Self::note_need`].
    needed_bytes: [u64; 2],
    /// Changed since pages were moved for it, in bytes of pages.
    credit_bytes: u64,
    /// Passes one after another that did not make the file shorter.
    in_vain: u32,
    /// Bytes of the file before the last pass, whose outcome the next checkpoint shows.
    undecided: Option<u64>,
    /// Checkpoints that were pinned at the last look.
    pins: usize,
}

/// What a pass has marked dirty.
#[derive(Clone, Copy, Default)]
struct Moved {
    /// Of the file.
    bytes: u64,
    pages: usize,
}

impl Reclaim {
    /// Notes a checkpoint, and says what it moves at most and what it leaves free at least, in bytes.
    fn plan(&mut self, taken: Taken, asked: bool, limit_bytes: u64, file_bytes: u64) -> (u64, u64) {
        let idle = asked && taken.changed_bytes == 0;
        let most = limit_bytes.max(LEAST_BUDGET_BYTES);
        if taken.changed_bytes > 0 {
            self.in_vain = 0;
            self.written_bytes = [taken.written_bytes, self.written_bytes[0]];
            self.credit_bytes = (self.credit_bytes + taken.changed_bytes).min(most);
        }
        let spare = file_bytes / SPARE_PART;
        if self.in_vain >= MOST_IN_VAIN {
            (0, spare)
        } else if idle {
            (most, spare)
        } else {
            let recent = self.written_bytes[0].max(self.written_bytes[1]);
            (self.credit_bytes, (2 * recent).clamp(spare, file_bytes / MOST_SPARE_PART))
        }
    }
}

impl Reclaim {
    /// Notes what a checkpoint needed beside the images of the one before: what it wrote, and `left_bytes` that were changed
    /// again when it ended.
    fn note_need(&mut self, taken: Taken, left_bytes: u64) {
        if taken.written_bytes > 0 {
            self.needed_bytes = [taken.written_bytes + left_bytes, self.needed_bytes[0]];
        }
    }

    /// Free bytes that the next checkpoint is likely to need, and so the file keeps. If nobody has `asked` for this one,
    /// somebody goes on writing: what goes back would be taken again at once, and for both the file system keeps
    /// writers waiting.
    fn likely_need_bytes(&self, asked: bool) -> u64 {
        let recent = self.needed_bytes[0].max(self.needed_bytes[1]);
        if asked { 0 } else { recent + recent / LIKELY_SPARE_PART }
    }

    /// Notes how many checkpoints are pinned. One that is no longer may have held what passes in vain could not cut off.
    fn note_pins(&mut self, pins: usize) {
        if pins < self.pins {
            self.in_vain = 0;
        }
        self.pins = pins;
    }

    /// Notes how a pass came out.
    fn moved(&mut self, before_bytes: u64, after_bytes: u64) {
        self.in_vain = if after_bytes < before_bytes { 0 } else { self.in_vain + 1 };
    }
}

/// What one pass moves at most, but for a zone that holds more.
fn pass_bytes(limit_bytes: u64) -> u64 {
    PASS_BYTES.min(limit_bytes / PASS_PART)
}

/// Whether a pass that has moved something is ended before this zone.
fn is_pass_full(moved_bytes: u64, held_bytes: u64, pass_bytes: u64) -> bool {
    moved_bytes > 0 && moved_bytes + held_bytes > pass_bytes
}

/// Whether what was moved is left to the next checkpoint. While others write, one of its own would write more of what
/// they have changed than of what was moved: the next one does both, and nothing goes to the tail until then. Counted in
/// pages: images may be shorter, and what was moved would look like the work of others.
fn waits_for_the_next(dirty_pages: usize, moved_pages: usize) -> bool {
    dirty_pages > 2 * moved_pages
}

impl Shared {
    /// Cuts, moves and punches after a checkpoint that had `taken` to do; `asked`: by the user.
    pub(super) fn reclaim(
        &self,
        slots: &SlotStore,
        newest: &mut Newest,
        taken: Taken,
        asked: bool,
    ) -> Result<()> {
        // A store at rest gives all of it back; one that is written to would soon ask for it again.
        let is_idle = asked && taken.changed_bytes == 0;
        let left_bytes = self.pool.images_to_write() as u64 * slots.page_bytes() as u64;
        newest.reclaim.note_need(taken, left_bytes);
        let kept = newest.reclaim.likely_need_bytes(asked);
        self.truncate(slots, kept, is_idle)?;
        newest.reclaim.note_pins(slots.state().zones.pinned_checkpoints());
        if let Some(before) = newest.reclaim.undecided.take() {
            newest.reclaim.moved(before, slots.report().file_bytes);
        }
        let limit = self.pool.budget().limit_bytes();
        let file_bytes = slots.report().file_bytes;
        let (mut budget, reserve) = newest.reclaim.plan(taken, asked, limit, file_bytes);
        let moved = self.shrink(slots, newest, &mut budget, reserve.max(kept), kept, is_idle);
        if newest.reclaim.undecided.is_none() {
            slots.state().zones.stop_shrinking();
        }
        // Whatever has kept the tail from being moved: what is free goes back.
        let punched = self.punch(slots, kept);
        newest.reclaim.credit_bytes = newest.reclaim.credit_bytes.saturating_sub(moved?);
        punched
    }

    /// Moves the tail in passes, and cuts it off. Returns how much was moved, in bytes.
    fn shrink(
        &self,
        slots: &SlotStore,
        newest: &mut Newest,
        budget_bytes: &mut u64,
        reserve_bytes: u64,
        kept_bytes: u64,
        is_idle: bool,
    ) -> Result<u64> {
        let mut sum = 0;
        // Compared with the shortest: else one pass that makes the file longer and one that makes up for it could take turns for ever.
        let mut shortest = slots.report().file_bytes;
        let pass_bytes = pass_bytes(self.pool.budget().limit_bytes());
        while *budget_bytes > 0
            && newest.reclaim.in_vain < MOST_IN_VAIN
            && self.pool.check_open().is_ok()
            && !self.is_closed_with_gaps(slots)
            && !self.is_pin_awaited()
        {
            let before = slots.report().file_bytes;
            // Gaps that are too short for what is moved are no room. After a pass that they made vain, more has to be free.
            let times = if is_idle { MORE_SPARE.pow(newest.reclaim.in_vain) } else { 1 };
            let spare_bytes = reserve_bytes.saturating_mul(times);
            let moved = self.move_tail(slots, *budget_bytes, spare_bytes, pass_bytes, is_idle)?;
            let moved = match moved.bytes {
                0 if is_idle => self.move_upper_part(slots, reserve_bytes)?,
                _ => moved,
            };
            sum += moved.bytes;
            if moved.bytes == 0 {
                break;
            }
            if waits_for_the_next(self.pool.dirty_pages(), moved.pages) {
                newest.reclaim.undecided = Some(before);
                break;
            }
            let taken = self.take(slots, newest, false);
            slots.checkpoint_ended(taken.as_ref().map(|_| ()));
            taken?;
            self.truncate(slots, kept_bytes, is_idle)?;
            *budget_bytes = budget_bytes.saturating_sub(moved.bytes);
            let file_bytes = slots.report().file_bytes;
            newest.reclaim.moved(shortest, file_bytes);
            shortest = shortest.min(file_bytes);
        }
        Ok(sum)
    }

    /// Slots that stay free in solid zones: what writers were let in for, or room for `kept_bytes` of images.
    fn slots_to_leave(&self, slots: &SlotStore, kept_bytes: u64) -> u64 {
        let kept = (kept_bytes / slots.page_bytes() as u64) as usize;
        slots.slots_to_leave(self.pool.images_to_write().max(kept))
    }

    /// Cuts off what is free at the file's end, but for `kept_bytes` of free slots. Of the last zone that is not free, only if
    /// that is as much as the file grows by, or if nobody changes anything.
    pub(super) fn truncate(&self, slots: &SlotStore, kept_bytes: u64, is_idle: bool) -> Result<()> {
        loop {
            let load = slots.state().zones.tail_to_load();
            match load {
                Some(group) => slots.load_group(group)?,
                None => break,
            }
        }
        let is_open = self.pool.check_open().is_ok();
        let keep = if is_open { self.slots_to_leave(slots, kept_bytes) } else { 0 };
        // Who writes next would make the file longer again by what goes beyond that.
        let in_zone = slots.needed(self.pool.images_to_write(), Purpose::Take);
        let step = if is_idle { 1 } else { slots.state().zones.step_units() };
        let (in_zone, least) = if is_open { (in_zone, step) } else { (0, 1) };
        slots.cut_free_end(keep, in_zone, least)
    }

    /// Marks dirty what lies in the last zones, as far as one pass goes; returns how much that is, in
    /// bytes: zero if there is nothing worth moving.
    fn move_tail(
        &self,
        slots: &SlotStore,
        budget_bytes: u64,
        reserve_bytes: u64,
        pass_bytes: u64,
        is_idle: bool,
    ) -> Result<Moved> {
        let tail = slots.state().zones.tail_zones_to_clean(budget_bytes, reserve_bytes);
        if tail.is_empty() {
            return Ok(Moved::default());
        }
        // Writers who wait for the next checkpoint must not keep this one's faults waiting.
        let _ahead = self.pool.go_ahead();
        // Images that were being written by then may have their slots in the tail; later ones have not.
        self.pool.wait_for_batches();
        let mut moved = Moved::default();
        for zone in tail {
            if is_pass_full(moved.bytes, zone.held_bytes, pass_bytes) {
                break;
            }
            let is_moved = self.pages_in_zone(slots, zone).and_then(|pages| {
                if !self.has_room_to_move(slots, pages.len(), is_idle)? {
                    return Ok(None);
                }
                self.move_pages(&pages).map(|()| Some(pages.len()))
            });
            match is_moved {
                // No room to move things now: there will be another checkpoint.
                Err(error) if error.kind() == ErrorKind::MemoryLimit => break,
                Ok(None) => break,
                Ok(Some(pages)) => moved.pages += pages,
                Err(error) => return Err(error),
            }
            moved.bytes += zone.held_bytes;
        }
        Ok(moved)
    }

    /// Marks dirty what lies in the upper part of the last zone; returns how much that is, in bytes.
    fn move_upper_part(&self, slots: &SlotStore, reserve_bytes: u64) -> Result<Moved> {
        let _ahead = self.pool.go_ahead();
        self.pool.wait_for_batches();
        let part = slots.state().zones.upper_part_to_move(reserve_bytes);
        let nothing = Moved::default();
        let Some(part) = part else { return Ok(nothing) };
        let pages = self.pages_in_zone(slots, part)?;
        if pages.is_empty() || !self.has_room_to_move(slots, pages.len(), true)? {
            return Ok(nothing);
        }
        match self.move_pages(&pages) {
            // No room to move things now: there will be another checkpoint.
            Err(error) if error.kind() == ErrorKind::MemoryLimit => Ok(nothing),
            moved => moved.map(|()| Moved { bytes: part.held_bytes, pages: pages.len() }),
        }
    }

    /// Whether there is room for so many pages that are moved: they become dirty, and nobody lets them in. While nobody writes
    /// it is made, by filling holes, and for a moment by a longer file.
    pub(super) fn has_room_to_move(
        &self,
        slots: &SlotStore,
        pages: usize,
        is_idle: bool,
    ) -> Result<bool> {
        let dirty = || self.pool.images_to_write() + pages;
        let has_room = slots.has_room(dirty(), Purpose::Take);
        if has_room || !is_idle {
            return Ok(has_room);
        }
        let map_pages = self.pool.ids().lock().next_id().map_or(u32::MAX, |id| id.0);
        match slots.make_room(dirty, u64::from(map_pages), Purpose::Take) {
            Err(error) if error.kind() == ErrorKind::DiskFull => Ok(false),
            made => made.map(|()| true),
        }
    }

    /// Every page whose slot lies in the zone. The images say which pages those may be;
    /// the page table says which of them still are. What cannot be read stays where it is: its part of the file, or all pages of
    /// a damaged part of the map.
    pub(super) fn pages_in_zone(&self, slots: &SlotStore, zone: TailZone) -> Result<Vec<PageId>> {
        if zone.held_bytes == 0 {
            return Ok(Vec::new());
        }
        let page_bytes = self.pool.page_bytes();
        let chunk_bytes = (256 << 10).min(zone.len_bytes as usize).max(page_bytes);
        let mut images = AlignedBuffer::zeroed(chunk_bytes)?;
        let mut candidates = Vec::new();
        let mut at = zone.offset_bytes;
        let end = zone.offset_bytes + zone.len_bytes;
        while at < end {
            let len = images.len().min((end - at) as usize);
            let images = &mut images[..len];
            at += len as u64;
            match slots.file().read_at(at - len as u64, images) {
                Err(error) if error.is_loss() => continue,
                read => read?,
            }
            // Slots of pages begin at any unit.
            let unit = slots.state().zones.geometry().unit_bytes() as usize;
            for image in images.chunks_exact(unit.min(page_bytes)) {
                let id = header::page_id(image);
                // Most units are the middle of an image.
                let is_begin = header::kind(image).is_some() && len_in(image, page_bytes).is_some();
                if is_begin && self.pool.in_range(id) && id.is_usable() {
                    candidates.push(id);
                }
            }
        }
        candidates.sort_unstable();
        candidates.dedup();
        let mut there = Vec::with_capacity(candidates.len());
        for id in candidates {
            let slot = match self.pool.slot_of(id) {
                Err(error) if error.is_loss() => None,
                slot => slot?,
            };
            if slot.is_some_and(|slot| (zone.offset_bytes..end).contains(&slot.offset_bytes())) {
                there.push(id);
            }
        }
        Ok(there)
    }

    /// Marks pages dirty, so that the next checkpoint writes them elsewhere.
    pub(super) fn move_pages(&self, pages: &[PageId]) -> Result<()> {
        for ids in pages.chunks(READ_PAGES) {
            self.pool.session().prefetch(ids, Access::Scan)?;
            for id in ids {
                self.rewrite(*id)?;
            }
        }
        Ok(())
    }

    /// Faults a page in and marks it dirty.
    pub(super) fn rewrite(&self, id: PageId) -> Result<()> {
        for _ in 0..100 {
            let mut session = self.pool.session();
            match session.fault(id, Access::Scan) {
                // Freed meanwhile: its slot is on its way.
                Err(error) if error.signal() == Some(Signal::PageFreed) => return Ok(()),
                // It stays where it is; a verification tells of it, and who reads it.
                Err(error) if error.is_loss() => return Ok(()),
                other => other?,
            }
            let stay = self.pool.enter_for_upkeep()?;
            let mut tries = 0;
            let page = ExclusivePage::wait(&*self.pool, id, &mut || {
                tries += 1;
                tries < 100
            });
            if let Ok(mut page) = page {
                page.write(stay.epoch());
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether somebody waits to close a store that is closed with gaps between its pages, as large ones are.
    pub(super) fn is_closed_with_gaps(&self, slots: &SlotStore) -> bool {
        slots.checkpoints().is_closing() && slots.report().used_bytes > MOST_AT_CLOSE_BYTES
    }

    /// Before the store is closed: brings a small file near to the size of its pages. A large one keeps the gaps between
    /// them: whoever closes it waits for this. What cannot be moved is left where it is.
    pub(super) fn shrink_to_close(&self) {
        let Some(slots) = self.slots.as_ref().filter(|_| !self.read_only) else { return };
        for _ in 0..CLOSING_PASSES {
            let report = slots.report();
            let dirty = self.pool.images_to_write() as u64 * slots.page_bytes() as u64;
            let in_it = report.used_bytes + dirty;
            let is_near =
                report.file_bytes <= in_it + in_it / CLOSED_SPARE_PART + CLOSED_SPARE_BYTES;
            // The last checkpoint tells what kept this one from being taken.
            if is_near || in_it > MOST_AT_CLOSE_BYTES || self.checkpoint(true).is_err() {
                return;
            }
        }
    }

    /// Punches free zones in the middle of the file, but for `kept_bytes` of free slots.
    pub(super) fn punch(&self, slots: &SlotStore, kept_bytes: u64) -> Result<()> {
        let is_open = self.pool.check_open().is_ok();
        for _ in 0..PUNCHES {
            let keep = if is_open { self.slots_to_leave(slots, kept_bytes) } else { 0 };
            let mut state = slots.state();
            let of_file = state.zones.report().file_bytes / KEEP_SOLID_PART;
            let solid = if is_open { KEEP_SOLID_BYTES.min(of_file) } else { 0 };
            let hole = state.zones.begin_punch(solid, keep);
            drop(state);
            let Some(hole) = hole else { return Ok(()) };
            let punched = slots.file().punch_hole(hole.offset_bytes, hole.len_bytes);
            slots.state().zones.end_punch(hole.zone, matches!(punched, Ok(true)));
            if !punched? {
                return Ok(());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 64 << 20;
    const FILE: u64 = 256 << 20;
    const NOTHING: Taken = Taken { written_bytes: 0, changed_bytes: 0 };

    fn wrote(bytes: u64) -> Taken {
        Taken { written_bytes: bytes, changed_bytes: bytes }
    }

    #[test]
    fn a_checkpoint_with_work_moves_no_more_than_was_changed_and_leaves_room_for_the_next() {
        let mut reclaim = Reclaim::default();
        assert_eq!(reclaim.plan(wrote(3 << 20), false, LIMIT, FILE), (3 << 20, 6 << 20));
        assert_eq!(reclaim.plan(wrote(1 << 20), false, LIMIT, FILE), (4 << 20, 6 << 20));
        assert_eq!(reclaim.plan(wrote(1 << 20), false, LIMIT, FILE).1, FILE / SPARE_PART);
        // Nobody asked for it: somebody is writing, and the next one comes soon.
        assert_eq!(reclaim.plan(NOTHING, false, LIMIT, FILE), (5 << 20, FILE / SPARE_PART));
        let much = reclaim.plan(wrote(1 << 30), false, LIMIT, FILE);
        assert_eq!(much, (LIMIT, FILE / MOST_SPARE_PART));
        // What was freed has no image, and makes room.
        let mut reclaim = Reclaim::default();
        let freed = Taken { written_bytes: 0, changed_bytes: 1 << 20 };
        assert_eq!(reclaim.plan(freed, false, LIMIT, FILE), (1 << 20, FILE / SPARE_PART));
    }

    #[test]
    fn a_pass_moves_an_eighth_of_the_memory_at_most_and_a_larger_zone_all_the_same() {
        assert_eq!((pass_bytes(8 << 20), pass_bytes(1 << 40)), (1 << 20, PASS_BYTES));
        assert!(!is_pass_full(0, 1 << 30, 1 << 20));
        assert!(
            !is_pass_full(1 << 19, 1 << 19, 1 << 20)
                && is_pass_full(1 << 19, (1 << 19) + 1, 1 << 20)
        );
    }

    #[test]
    fn what_was_moved_waits_while_others_have_changed_as_much_again() {
        assert!(!waits_for_the_next(16, 8) && waits_for_the_next(17, 8));
    }

    #[test]
    fn what_was_in_vain_is_tried_again_when_a_pin_has_ended() {
        let mut reclaim = Reclaim { in_vain: MOST_IN_VAIN, ..Reclaim::default() };
        reclaim.note_pins(2);
        assert_eq!(reclaim.plan(NOTHING, true, LIMIT, FILE).0, 0);
        reclaim.note_pins(1);
        assert_eq!(reclaim.plan(NOTHING, true, LIMIT, FILE).0, LIMIT);
        reclaim.in_vain = MOST_IN_VAIN;
        reclaim.note_pins(1);
        assert_eq!(reclaim.plan(NOTHING, true, LIMIT, FILE).0, 0);
    }

    #[test]
    fn a_checkpoint_that_was_asked_for_moves_more_only_if_it_found_nothing_to_write() {
        let of = |taken, asked| Reclaim::default().plan(taken, asked, LIMIT, FILE).0;
        assert_eq!((of(NOTHING, true), of(NOTHING, false)), (LIMIT, 0));
        assert_eq!((of(wrote(4096), true), of(wrote(4096), false)), (4096, 4096));
    }

    #[test]
    fn a_checkpoint_that_was_asked_for_without_need_moves_what_there_is_unless_it_is_in_vain() {
        let mut reclaim = Reclaim::default();
        reclaim.plan(wrote(1 << 30), false, LIMIT, FILE);
        assert_eq!(reclaim.plan(NOTHING, true, LIMIT, FILE), (LIMIT, FILE / SPARE_PART));
        assert_eq!(reclaim.plan(NOTHING, true, 1 << 20, FILE).0, LEAST_BUDGET_BYTES);
        reclaim.in_vain = MOST_IN_VAIN;
        assert_eq!(reclaim.plan(NOTHING, true, LIMIT, FILE).0, 0);
        reclaim.plan(wrote(4096), false, LIMIT, FILE);
        assert_eq!(reclaim.plan(NOTHING, true, LIMIT, FILE), (LIMIT, FILE / SPARE_PART));
    }
}
