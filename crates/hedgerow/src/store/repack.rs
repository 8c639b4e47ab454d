//! A file without gaps: zone by zone is emptied and filled again with what lies at the file's end.
//!
//! For whoever wants the file as short as it can be ([`Shared::repack`]). A checkpoint moves the tail into gaps (`reclaim.rs`),
//! and that ends when the gaps are too short for the images that are left. So here a zone with gaps is emptied first: its pages
//! are written elsewhere, at the end of the file if need be, and a checkpoint is taken. Then what lies at the end is written to that
//! zone, image after image, another checkpoint is taken, and the end is cut off. The next zone follows.
//!
//! Each zone is emptied once at most, so everything is written about twice, and the file is a zone longer meanwhile. Large
//! values stay where they are (`large_move.rs`); of a zone that has some, the rest is emptied.
//!
//! Beside writers: each zone is done under the lock of checkpoints, and the lock is given up in between. If an error ends it, the
//! store is as after any checkpoint.

use super::{Newest, Shared};
use crate::error::{ErrorKind, Result};
use crate::space::shrink::TailZone;
use crate::space::slot_store::SlotStore;
use hedgerow_sync::primitive::thread;
use std::time::Duration;

/// What is free of a file may be so large a part of it, and so many bytes, and it counts as short.
const SPARE_PART: u64 = 64;
const SPARE_BYTES: u64 = 64 << 10;
/// How often it is looked whether a pin is awaited.
const PAUSE: Duration = Duration::from_millis(1);

/// A zone that is out of the allocator; until the value is dropped.
struct Emptied<'s> {
    slots: &'s SlotStore,
    zone: u32,
}

impl Drop for Emptied<'_> {
    fn drop(&mut self) {
        self.slots.state().zones.end_repack(self.zone);
    }
}

impl Shared {
    /// Empties the zones that have gaps one after the other, and fills them with what lies behind. `go_on` is asked before
    /// each; false ends it, and is no error.
    ///
    /// Errors: those of checkpoints. For want of room or memory it ends without one.
    pub(super) fn repack(&self, mut go_on: impl FnMut() -> bool) -> Result<()> {
        let Some(slots) = self.slots.as_ref().filter(|_| !self.read_only) else { return Ok(()) };
        let mut zone = 0;
        while go_on() {
            // `go_on` may have forked.
            self.check_process()?;
            // Who waits for the lock might not get it between two zones.
            while self.is_pin_awaited() {
                thread::sleep(PAUSE);
            }
            let mut newest = self.checkpointing.lock();
            self.pool.check_open()?;
            let report = slots.report();
            let spare_bytes = report.file_bytes / SPARE_PART + SPARE_BYTES;
            if report.free_bytes <= spare_bytes || zone >= slots.state().zones.zone_count() {
                return Ok(());
            }
            let done = self.repack_zone(slots, &mut newest, zone);
            slots.state().zones.stop_shrinking();
            match done {
                Err(error)
                    if matches!(error.kind(), ErrorKind::MemoryLimit | ErrorKind::DiskFull) =>
                {
                    return Ok(());
                }
                done => done?,
            }
            zone += 1;
        }
        Ok(())
    }

    fn repack_zone(&self, slots: &SlotStore, newest: &mut Newest, zone: u32) -> Result<()> {
        let load = slots.state().zones.zone_to_load(zone);
        load.map_or(Ok(()), |group| slots.load_group(group))?;
        let Some(content) = slots.state().zones.begin_repack(zone) else { return Ok(()) };
        let emptied = Emptied { slots, zone };
        if !self.move_out(slots, newest, &[content])? {
            return Ok(());
        }
        drop(emptied);
        // As much at a time as fits into it; what is cut off may leave room for more.
        loop {
            let before = slots.report().file_bytes;
            while let Some(group) = { slots.state().zones.tail_to_load() } {
                slots.load_group(group)?;
            }
            let end = slots.state().zones.end_that_fits(zone);
            if end.is_empty() || !self.move_out(slots, newest, &end)? {
                return Ok(());
            }
            slots.state().zones.stop_shrinking();
            self.truncate(slots, 0, true)?;
            if slots.report().file_bytes >= before {
                return Ok(());
            }
        }
    }

    /// Writes the pages of some pieces elsewhere, and takes a checkpoint; false if there is no room for that.
    fn move_out(
        &self,
        slots: &SlotStore,
        newest: &mut Newest,
        pieces: &[TailZone],
    ) -> Result<bool> {
        {
            // As for moving the tail.
            let _ahead = self.pool.go_ahead();
            self.pool.wait_for_batches();
            for piece in pieces {
                let pages = self.pages_in_zone(slots, *piece)?;
                if !self.has_room_to_move(slots, pages.len(), true)? {
                    return Ok(false);
                }
                self.move_pages(&pages)?;
            }
        }
        let taken = self.take(slots, newest, false);
        slots.checkpoint_ended(taken.as_ref().map(|_| ()));
        taken.map(|_| true)
    }
}
