//! Giving space back to the file system: truncation, holes, and moving the tail into gaps.
//!
//! After each checkpoint: zones that are free at the file's end are cut off; pages that lie in the last
//! zones are faulted in and marked dirty, so that they are written to gaps nearer to the start, and the
//! next checkpoint can cut more; what stays free in the middle is punched.
//!
//! How much is moved depends on what the checkpoint had to do (`Reclaim::plan`). One that wrote
//! something leaves room for the next ones, which write as much before they free anything, and moves no
//! more than was changed, so that shrinking at most doubles what is written. One that was asked for and
//! found nothing to write moves whatever brings the file near to the size of its pages, at most as much
//! as the memory limit: what a load leaves free at most is what its last checkpoints wrote, and that is
//! bounded by memory. It goes in passes, each with a checkpoint of its own, so that nobody who waits
//! for room in the deltas waits for all of it.

use super::checkpoint::Taken;
use super::{Newest, Shared};
use crate::error::{ErrorKind, Result};
use crate::page::{Access, ExclusivePage, PagePool, PoolSession, header};
use crate::space::geometry::MAX_ZONE_BYTES;
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
/// Free space that is kept solid for the writes that are to come.
const KEEP_SOLID_BYTES: u64 = 8 << 20;
/// Holes punched by one pass at most.
const PUNCHES: usize = 64;
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
    /// Changed since pages were moved for it, in bytes of pages.
    credit_bytes: u64,
    /// Passes one after another that did not make the file shorter.
    in_vain: u32,
    /// Bytes of the file before the last pass, whose outcome the next checkpoint shows.
    undecided: Option<u64>,
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
/// they have changed than of what was moved: the next one does both, and nothing goes to the tail until then.
fn waits_for_the_next(dirty_pages: u64, page_bytes: usize, moved_bytes: u64) -> bool {
    dirty_pages * page_bytes as u64 > 2 * moved_bytes
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
        self.truncate(slots)?;
        if let Some(before) = newest.reclaim.undecided.take() {
            newest.reclaim.moved(before, slots.report().file_bytes);
        }
        let limit = self.pool.budget().limit_bytes();
        let file_bytes = slots.report().file_bytes;
        let (mut budget, reserve) = newest.reclaim.plan(taken, asked, limit, file_bytes);
        let moved = self.shrink(slots, newest, &mut budget, reserve);
        if newest.reclaim.undecided.is_none() {
            slots.state().zones.stop_shrinking();
        }
        newest.reclaim.credit_bytes = newest.reclaim.credit_bytes.saturating_sub(moved?);
        self.punch(slots)
    }

    /// Moves the tail in passes, and cuts it off. Returns how much was moved, in bytes.
    fn shrink(
        &self,
        slots: &SlotStore,
        newest: &mut Newest,
        budget_bytes: &mut u64,
        reserve_bytes: u64,
    ) -> Result<u64> {
        let mut sum = 0;
        let pass_bytes = pass_bytes(self.pool.budget().limit_bytes());
        // Whoever closes the store waits for this.
        while *budget_bytes > 0
            && newest.reclaim.in_vain < MOST_IN_VAIN
            && self.pool.check_open().is_ok()
        {
            let before = slots.report().file_bytes;
            let moved = self.move_tail(slots, *budget_bytes, reserve_bytes, pass_bytes)?;
            sum += moved;
            if moved == 0 {
                break;
            }
            if waits_for_the_next(self.pool.dirty_pages() as u64, slots.page_bytes(), moved) {
                newest.reclaim.undecided = Some(before);
                break;
            }
            let taken = self.take(slots, newest, false);
            slots.checkpoint_ended(taken.as_ref().map(|_| ()));
            taken?;
            self.truncate(slots)?;
            *budget_bytes = budget_bytes.saturating_sub(moved);
            newest.reclaim.moved(before, slots.report().file_bytes);
        }
        Ok(sum)
    }

    fn slots_to_leave(&self, slots: &SlotStore) -> u64 {
        slots.slots_to_leave(self.pool.images_to_write())
    }

    /// Cuts off zones that are free at the file's end.
    pub(super) fn truncate(&self, slots: &SlotStore) -> Result<()> {
        loop {
            let load = slots.state().zones.tail_to_load();
            match load {
                Some(group) => slots.load_group(group)?,
                None => break,
            }
        }
        let keep = if self.pool.check_open().is_ok() { self.slots_to_leave(slots) } else { 0 };
        let Some(cut) = slots.state().zones.begin_truncate(keep) else { return Ok(()) };
        let done = slots.file().set_len(cut.file_bytes);
        slots.state().zones.end_truncate(done.is_ok());
        done
    }

    /// Marks dirty what lies in the last zones, as far as one pass goes; returns how much that is, in
    /// bytes: zero if there is nothing worth moving.
    fn move_tail(
        &self,
        slots: &SlotStore,
        budget_bytes: u64,
        reserve_bytes: u64,
        pass_bytes: u64,
    ) -> Result<u64> {
        let tail = slots.state().zones.tail_zones_to_clean(budget_bytes, reserve_bytes);
        if tail.is_empty() {
            return Ok(0);
        }
        // Writers who wait for the next checkpoint must not keep this one's faults waiting.
        let _ahead = self.pool.go_ahead();
        // Images that were being written by then may have their slots in the tail; later ones have not.
        self.pool.wait_for_batches();
        let mut moved = 0;
        for zone in tail {
            if is_pass_full(moved, zone.held_bytes, pass_bytes) {
                break;
            }
            // They become dirty, and nobody lets them in.
            let pages = zone.held_bytes as usize / self.pool.page_bytes();
            if !slots.has_room(self.pool.images_to_write() + pages, Purpose::Take) {
                break;
            }
            match self.move_zone(slots, zone) {
                // No room to move things now: there will be another checkpoint.
                Err(error) if *error.kind() == ErrorKind::MemoryLimit => break,
                other => other?,
            }
            moved += zone.held_bytes;
        }
        Ok(moved)
    }

    /// Marks dirty every page whose slot lies in the zone. The images say which pages those may be;
    /// the page table says which of them still are.
    pub(super) fn move_zone(&self, slots: &SlotStore, zone: TailZone) -> Result<()> {
        if zone.held_bytes == 0 {
            return Ok(());
        }
        let page_bytes = self.pool.page_bytes();
        let chunk_bytes = (256 << 10).min(zone.len_bytes as usize).max(page_bytes);
        let mut images = AlignedBuffer::zeroed(chunk_bytes)?;
        let mut candidates = Vec::new();
        let mut at = zone.offset_bytes;
        let end = zone.offset_bytes + zone.len_bytes;
        while at < end {
            slots.file().read_at(at, &mut images)?;
            // Slots of pages begin at any unit, which is at most a page.
            let unit = slots.state().zones.geometry().unit_bytes() as usize;
            for image in images.chunks_exact(unit.min(page_bytes)) {
                let id = header::page_id(image);
                if self.pool.in_range(id) && id.is_usable() {
                    candidates.push(id);
                }
            }
            at += chunk_bytes as u64;
        }
        candidates.sort_unstable();
        candidates.dedup();
        let mut there = Vec::with_capacity(candidates.len());
        for id in candidates {
            let slot = self.pool.slot_of(id)?;
            if slot.is_some_and(|slot| (zone.offset_bytes..end).contains(&slot.offset_bytes())) {
                there.push(id);
            }
        }
        for ids in there.chunks(READ_PAGES) {
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
                Err(error) if *error.kind() == ErrorKind::NotFound => return Ok(()),
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

    /// Punches free zones in the middle of the file.
    pub(super) fn punch(&self, slots: &SlotStore) -> Result<()> {
        for _ in 0..PUNCHES {
            let keep = self.slots_to_leave(slots);
            let Some(hole) = slots.state().zones.begin_punch(KEEP_SOLID_BYTES, keep) else {
                return Ok(());
            };
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
        assert!(!waits_for_the_next(16, 4096, 8 * 4096) && waits_for_the_next(17, 4096, 8 * 4096));
        assert!(!waits_for_the_next(8, 512, 2048) && waits_for_the_next(9, 512, 2048));
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
