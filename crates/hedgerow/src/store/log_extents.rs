//! Extents that the log names: what lies in them stays until what the log says is in a checkpoint.
//!
//! Rank 6. The checkpoint that a replay begins with does not refer to them, or does so no more at the replay's end, and
//! still each has to be there whenever the record that names it is put, in this replay or, after another crash, in
//! the next. So before anything is written to the file the log is read once, and their units are held.
//!
//! Only those of records behind the checkpoint's cut count, and of changes of batches that were not made before it:
//! what was put before the cut may have been superseded there, and its units may be somebody else's since. A plain put of
//! what only a put of a stored form may have as its value is damage: it would be replayed, and its units would not be held.
//!
//! One caller, before anybody else uses the store.
//! Memory: places in the log of the batches that are not finished (`unfinished.rs`), and a bit for each unit.

use super::Shared;
use super::unfinished::{Noted, Unfinished, damage};
use crate::error::Result;
use crate::large::{Extent, Stored, is_stored_form, read_stored};
use crate::space::large::Reading;
use crate::space::slot_store::SlotStore;
use crate::storage::File;
use crate::types::Lsn;
use crate::wal::{Appended, BatchId, FileHeader, Record, ScanEnd, scan};
use hedgerow_sync::primitive::Arc;

/// What is held. After the checkpoint that needs no log the slots are told that the replay has ended.
pub(super) struct Named {
    pub(super) reading: Reading,
    /// Changes that will be made, about.
    pub(super) changes: u64,
    /// What the log was found to have.
    pub(super) end: ScanEnd,
}

impl Shared {
    /// Reads the log and holds the units of every extent that it names. Before anything is written to the file.
    ///
    /// Errors: `Corrupted` if the log is damaged where it was durable, or names what cannot be in this file.
    pub(super) fn hold_named(
        &self,
        slots: &Arc<SlotStore>,
        file: &dyn File,
        header: &FileHeader,
    ) -> Result<Named> {
        let checkpoint = self.checkpointing.lock().superblock;
        let (from, cut) = (checkpoint.scan_from(), checkpoint.log_end);
        // Nothing that the replay supersedes is free before its end: a crash during it replays once more.
        let reading = slots.begin_replay();
        let mut changes = 0;
        let mut holder =
            Holder { slots, batches: Unfinished::new(file, header), cut, is_behind_cut: false };
        let end = scan(file, header, &from, &mut |record, place| {
            changes += u64::from(place.start >= cut);
            holder.take(record, place)
        })?;
        // Of one that is not whole nothing is made: it had not begun, or was finished before the oldest that was not.
        holder.hold_whole()?;
        Ok(Named { reading, changes, end })
    }
}

/// Holds what records name.
struct Holder<'s> {
    slots: &'s Arc<SlotStore>,
    /// Those of which a part may have been made before the cut, and those that are not whole yet.
    batches: Unfinished<'s>,
    cut: Lsn,
    is_behind_cut: bool,
}

impl Holder<'_> {
    fn take(&mut self, record: Record<'_>, place: Appended) -> Result<()> {
        let at = place.start;
        if at >= self.cut && !self.is_behind_cut {
            self.is_behind_cut = true;
            self.hold_whole()?;
        }
        match record {
            // What lies before the cut is in the checkpoint whole.
            Record::Commit { .. } if !self.is_behind_cut => Ok(()),
            Record::Batch { batch, changes, records }
            | Record::Commit { commit: batch, changes, records } => {
                let slots = self.slots;
                let is_whole = self.batches.note(
                    batch,
                    changes,
                    records,
                    place,
                    &mut |record| match record {
                        Record::Extent { value, .. } => stored_extent(slots, value, at).map(drop),
                        Record::Put { value, .. } => expect_plain(value, at),
                        _ => Ok(()),
                    },
                )?;
                if is_whole && self.is_behind_cut { self.hold_batch(batch) } else { Ok(()) }
            }
            Record::Made { batch, change } if !self.is_behind_cut => {
                // What contradicts the rest of the log the replay names.
                let noted = self.batches.made(batch, change, &mut |_| false)?;
                if matches!(noted, Noted::Made) && self.batches.is_finished(batch) {
                    self.batches.forget(batch);
                }
                Ok(())
            }
            Record::Extent { value, .. } if self.is_behind_cut => {
                let extent = stored_extent(self.slots, value, at)?;
                extent.map_or(Ok(()), |extent| hold(self.slots, &extent))
            }
            Record::Put { value, .. } if self.is_behind_cut => expect_plain(value, at),
            _ => Ok(()),
        }
    }

    /// Holds what the batches name that are all there.
    fn hold_whole(&mut self) -> Result<()> {
        let mut last = None;
        while let Some(batch) = self.batches.whole_after(last) {
            self.hold_batch(batch)?;
            last = Some(batch);
        }
        Ok(())
    }

    /// Holds what changes of a batch name that were not made before the cut; no more is to be known of it.
    fn hold_batch(&mut self, batch: BatchId) -> Result<()> {
        let is_held = self.batches.has_stored_forms(batch);
        let mut from = 0;
        while is_held && let Some(change) = self.batches.next_left(batch, from) {
            if let (_, _, Some(value)) = self.batches.change(batch, change)?
                && let Stored::Extent(extent) = read_stored(value)
            {
                hold(self.slots, &extent)?;
            }
            from = change + 1;
        }
        self.batches.forget(batch);
        Ok(())
    }
}

/// The extent in a stored form, if there is one in it.
fn stored_extent(slots: &SlotStore, value: &[u8], at: Lsn) -> Result<Option<Extent>> {
    slots.expect_stored_forms();
    match read_stored(value) {
        Stored::Extent(extent) => Ok(Some(extent)),
        Stored::Plain(_) => Ok(None),
        Stored::Damaged => Err(damage(at, "the form of its value is unknown")),
    }
}

/// What a plain put has as its value is never in a stored form: the engine escapes what a user puts and begins like one.
fn expect_plain(value: &[u8], at: Lsn) -> Result<()> {
    if is_stored_form(value) {
        return Err(damage(at, "it puts a stored form without saying so"));
    }
    Ok(())
}

fn hold(slots: &Arc<SlotStore>, extent: &Extent) -> Result<()> {
    slots.hold_extent(extent)
}
