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

use super::Shared;
use super::replay::{damage, for_each_change};
use crate::error::Result;
use crate::space::extent::{Extent, Run, Stored, is_stored_form, read_stored};
use crate::space::extent_store::Reading;
use crate::space::slot_store::SlotStore;
use crate::storage::File;
use crate::types::{Epoch, Lsn};
use crate::wal::{BatchId, FileHeader, Record, ScanEnd, scan};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::canary::leaves_out;
use std::collections::BTreeMap;

/// What is held. After the checkpoint that needs no log the slots are told that the replay has ended.
pub(super) struct Named {
    pub(super) runs: Vec<Run>,
    pub(super) reading: Reading,
    /// Changes that will be made, about.
    pub(super) changes: u64,
    /// What the log was found to have.
    pub(super) end: ScanEnd,
}

/// What changes of a batch name that were not made before the cut, with their numbers.
#[derive(Default)]
struct OfBatch {
    /// How many changes it has, and how many of them have been seen.
    total: u32,
    seen: u32,
    extents: BTreeMap<u32, Extent>,
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
        let (from, cut) = self.replay_from();
        let mut runs = Vec::new();
        let mut count = 0;
        let mut batches: BTreeMap<BatchId, OfBatch> = BTreeMap::new();
        let end = scan(file, header, &from, &mut |record, place| {
            let at = place.start;
            count += u64::from(at >= cut);
            match record {
                Record::Batch { batch, changes, records } => {
                    let of_batch = batches.entry(batch).or_default();
                    of_batch.total = changes;
                    of_batch.add(slots, records, at)
                }
                Record::Made { batch, change } if at < cut => {
                    if let Some(of_batch) = batches.get_mut(&batch) {
                        of_batch.extents.remove(&change);
                    }
                    Ok(())
                }
                Record::Extent { value, .. } if at >= cut => match stored_extent(slots, value, at)?
                {
                    Some(extent) => hold(slots, &extent, &mut runs),
                    None => Ok(()),
                },
                Record::Put { value, .. } if at >= cut => expect_plain(value, at),
                _ => Ok(()),
            }
        })?;
        // Of one that is not whole nothing is made: it had not begun, or was finished before the oldest that was not.
        let whole = batches.values().filter(|of_batch| of_batch.seen == of_batch.total);
        for of_batch in whole.filter(|_| !leaves_out("extent_of_batch_not_held")) {
            for extent in of_batch.extents.values() {
                hold(slots, extent, &mut runs)?;
            }
        }
        // Nothing that the replay supersedes is free before its end: a crash during it replays once more.
        let reading = slots.read_extents(Epoch(0));
        Ok(Named { runs, reading, changes: count, end })
    }
}

impl OfBatch {
    fn add(&mut self, slots: &SlotStore, records: &[u8], at: Lsn) -> Result<()> {
        let mut outcome = Ok(());
        for_each_change(records, &mut |_, record| {
            let found = match record {
                Record::Extent { value, .. } => stored_extent(slots, value, at),
                Record::Put { value, .. } => expect_plain(value, at).map(|()| None),
                _ => Ok(None),
            };
            match found {
                Ok(extent) => self.extents.extend(extent.map(|extent| (self.seen, extent))),
                Err(error) => outcome = Err(error),
            }
            self.seen += 1;
        })
        .map_err(|what| damage(at, what))?;
        outcome
    }
}

/// The extent in a stored form, if there is one in it.
fn stored_extent(slots: &SlotStore, value: &[u8], at: Lsn) -> Result<Option<Extent>> {
    slots.expect_stored_forms();
    match read_stored(value) {
        Stored::Extent(extent) => Ok(Some(extent)),
        Stored::Plain(_) => Ok(None),
        Stored::Damaged => Err(damage(at, "its value is in no known form")),
    }
}

/// What a plain put has as its value is never in a stored form: the engine escapes what a user puts and begins like one.
fn expect_plain(value: &[u8], at: Lsn) -> Result<()> {
    if is_stored_form(value) && !leaves_out("plain_put_of_a_stored_form") {
        return Err(damage(at, "it puts a stored form without saying so"));
    }
    Ok(())
}

fn hold(slots: &Arc<SlotStore>, extent: &Extent, runs: &mut Vec<Run>) -> Result<()> {
    if !leaves_out("extent_not_held_in_replay") {
        slots.hold_extent(extent)?;
    }
    runs.extend_from_slice(&extent.runs);
    Ok(())
}
