//! Giving space back to the file system: truncation, holes, and moving the tail into gaps.
//!
//! After each checkpoint: zones that are free at the file's end are cut off; pages that lie in the last
//! zones are faulted in and marked dirty, so that they are written to gaps nearer to the start, and the
//! next checkpoint can cut more; what stays free in the middle is punched. Within a budget of I/O for
//! each checkpoint, so that a foreground operation never waits for a whole pass.

use super::{Newest, Shared};
use crate::error::{ErrorKind, Result};
use crate::page::{Access, ExclusivePage, PagePool, PoolSession, header};
use crate::space::shrink::TailZone;
use crate::space::slot_store::SlotStore;
use crate::storage::AlignedBuffer;
use crate::types::PageId;

/// Bytes that one pass moves at most.
const MOVE_BYTES: u64 = 32 << 20;
/// Passes that an explicit or automatic checkpoint makes at most, each with a checkpoint of its own.
const PASSES: usize = 4;
/// Free space that is kept solid for the writes that are to come.
const KEEP_SOLID_BYTES: u64 = 8 << 20;
/// Holes punched by one pass at most.
const PUNCHES: usize = 64;

impl Shared {
    /// Cuts, moves and punches after a checkpoint.
    pub(super) fn reclaim(&self, slots: &SlotStore, newest: &mut Newest) -> Result<()> {
        for _ in 0..PASSES {
            self.truncate(slots)?;
            if !self.move_tail(slots)? {
                break;
            }
            let taken = self.take(slots, newest, false);
            slots.checkpoint_ended(taken.as_ref().map(|_| ()));
            taken?;
        }
        self.truncate(slots)?;
        self.punch(slots)
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
        let Some(cut) = slots.state().zones.begin_truncate(0) else { return Ok(()) };
        let done = slots.file().set_len(cut.file_bytes);
        slots.state().zones.end_truncate(done.is_ok());
        done
    }

    /// Marks dirty what lies in the last zones; false if there is nothing worth moving.
    fn move_tail(&self, slots: &SlotStore) -> Result<bool> {
        let budget = MOVE_BYTES.min(self.pool.budget().limit_bytes() / 4);
        let tail = slots.state().zones.tail_zones_to_clean(budget);
        let mut moved = false;
        for zone in &tail {
            moved |= zone.held_bytes > 0;
            match self.move_zone(slots, *zone) {
                // No room to move things now: there will be another checkpoint.
                Err(error) if *error.kind() == ErrorKind::MemoryLimit => break,
                other => other?,
            }
        }
        Ok(moved)
    }

    /// Marks dirty every page whose slot lies in the zone. The images say which pages those may be;
    /// the page table says which of them still are.
    fn move_zone(&self, slots: &SlotStore, zone: TailZone) -> Result<()> {
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
        for id in candidates {
            if self
                .pool
                .slot_of(id)?
                .is_some_and(|slot| (zone.offset_bytes..end).contains(&slot.offset_bytes()))
            {
                self.rewrite(id)?;
            }
        }
        Ok(())
    }

    /// Faults a page in and marks it dirty.
    fn rewrite(&self, id: PageId) -> Result<()> {
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
    fn punch(&self, slots: &SlotStore) -> Result<()> {
        for _ in 0..PUNCHES {
            let Some(hole) = slots.state().zones.begin_punch(KEEP_SOLID_BYTES) else {
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
