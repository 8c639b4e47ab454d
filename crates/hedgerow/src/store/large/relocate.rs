//! Moving large values towards the start of the file, so that it can become shorter.
//!
//! Rank 6. Pages are moved by writing them again (`reclaim.rs`); who refers to an extent only its record says. So after a
//! checkpoint that was asked for and found nothing to do, if the file is longer than what is in it, all trees are
//! walked for extents beyond where the file should end. Each is copied to a gap below, chunk by chunk, as it is: checksums
//! do not depend on the place. Then its record is swapped, like by any writer: the log has it, and the old units
//! are free when a checkpoint is durable that has it, and nobody reads them any more.
//!
//! Nothing is lost if that ends halfway: a copy that no record refers to is given back. Beside writers: a record that has
//! changed meanwhile is left alone. Memory: a loan of up to 64 chunks, and a list of values, of 1/64 of the memory limit at most, or of 2,048
//! values: each walk through all trees finds as many as that.

use super::chunk_reads::read_chunks;
use super::extent_io::CHUNKS_AT_ONCE;
use crate::error::{ErrorKind, Result};
use crate::large::{Extent, MAX_RUNS, Stored, read_stored, reference_bytes};
use crate::space::large::{LoanFor, chunk_bytes};
use crate::space::slot_store::SlotStore;
use crate::store::PoolTree;
use crate::store::Shared;
use crate::wait::{Wait, is_end_of_wait};
use hedgerow_sync::primitive::Arc;
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::time::Duration;

/// Values of a pass at least, and the part of the memory limit that the list of more takes at most.
const PASS_VALUES: usize = 1024;
const PASS_PART: u64 = 64;
/// Records of a walk after which it is asked whether to go on.
const ASKED_EVERY: usize = 256;
/// Part of the file, and zones, by which it may be longer than what is in it.
const SPARE_PART: u64 = 32;
const SPARE_ZONES: u64 = 2;
/// How long a walk waits for others: longer than the cleaning of frames takes.
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// How it was when no large value could be moved last.
#[derive(Clone, Copy, Debug)]
pub(in crate::store) struct InVain {
    /// The zone before which the file was to end.
    end_zone: u32,
    /// The least that was free since.
    free_bytes: u64,
}

/// What became of a value that was to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) enum Moved {
    Yes,
    /// There is no gap that is long enough.
    NoRoom,
    /// It has changed, somebody is in the way, or there is something else to do.
    NotNow,
}

/// A value that lies too far behind.
pub(in crate::store) struct Far {
    tree: PoolTree,
    key: Vec<u8>,
    extent: Extent,
}

impl Far {
    fn memory_bytes(&self) -> u64 {
        (size_of::<Far>() + self.key.len() + size_of_val(&*self.extent.runs)) as u64
    }

    /// The zone that it ends in.
    fn last_zone(&self, slots: &SlotStore) -> u32 {
        let geometry = slots.state().zones.geometry();
        let last = self.extent.runs.iter().map(|run| run.unit + u64::from(run.units) - 1).max();
        last.map_or(0, |unit| geometry.split_unit(unit).0)
    }
}

impl Shared {
    /// Moves large values that keep the file long; true if any were moved. After a checkpoint that had nothing to do. Ends soon once
    /// `is_wanted` says that there is something else to do: within a walk, between two values, and within a long one.
    ///
    /// Errors: those of changes, but for want of room or memory, and for whom it would have to wait, which end it. What cannot be read is
    /// left where it is, with what lies behind it in its keyspace.
    pub(in crate::store) fn move_large_values(&self, is_wanted: &dyn Fn() -> bool) -> Result<bool> {
        let Some(slots) = self.slots.as_ref().filter(|slots| slots.has_stored_forms()) else {
            return Ok(false);
        };
        let ends = || is_wanted() || self.is_closed_with_gaps(slots);
        let Some(end_zone) = wanted_end(slots) else { return Ok(false) };
        // A load that was not finished has no log; one that begins later is met by each value (`copy_and_swap`).
        match self.catalogue.loading_within(&Wait::For(LONGEST_WAIT)) {
            Err(error) if is_end_of_wait(&error) => return Ok(false),
            Ok(loading) if loading.is_empty() => {}
            // Whoever looks a name up is told.
            Err(error) if !error.is_loss() => return Err(error),
            Ok(_) | Err(_) => return Ok(false),
        }
        let report = slots.report();
        let free_bytes = report.free_bytes;
        if let Some(before) = &mut *self.large_in_vain.lock() {
            before.free_bytes = before.free_bytes.min(free_bytes);
            // A walk through everything, which would find the same.
            let more_bytes = free_bytes - before.free_bytes;
            if end_zone >= before.end_zone && more_bytes <= report.file_bytes / SPARE_PART {
                return Ok(false);
            }
        }
        let (mut moved, mut in_vain) = (false, true);
        let mut budget_bytes = self.pool.budget().limit_bytes();
        let found = match self.far_values(slots, end_zone, &ends) {
            Err(error) if is_end_of_wait(&error) => return Ok(false),
            found => found?,
        };
        for far in found {
            match self.move_value(slots, &far, end_zone, &ends) {
                Ok(Moved::Yes) => {
                    moved = true;
                    budget_bytes = budget_bytes.saturating_sub(far.extent.len_bytes);
                    if budget_bytes == 0 {
                        break;
                    }
                }
                Ok(Moved::NoRoom) => {}
                Ok(Moved::NotNow) => in_vain = false,
                Err(error) => match error.kind() {
                    // Whoever reads it, or verifies the store, is told. After a write that failed nothing may be written.
                    ErrorKind::KeyspaceDropped | ErrorKind::Corrupted { .. } => {}
                    ErrorKind::Io if self.pool.check_poison().is_ok() => {}
                    ErrorKind::DiskFull
                    | ErrorKind::MemoryLimit
                    | ErrorKind::Timeout
                    | ErrorKind::WouldBlock => {
                        in_vain = false;
                        break;
                    }
                    _ => return Err(error),
                },
            }
            if ends() {
                break;
            }
        }
        in_vain &= !moved && !ends();
        *self.large_in_vain.lock() = in_vain.then_some(InVain { end_zone, free_bytes });
        Ok(moved)
    }

    /// Values of which a part lies at `end_zone` or behind; those that were found when `ends` said so. Waits for others for a moment at
    /// most: it may be they who wait for the checkpoints of this thread.
    pub(in crate::store) fn far_values(
        &self,
        slots: &SlotStore,
        end_zone: u32,
        ends: &dyn Fn() -> bool,
    ) -> Result<Vec<Far>> {
        let per_zone = u64::from(slots.state().zones.geometry().units_per_zone());
        let end_unit = u64::from(end_zone) * per_zone;
        let most_bytes = self.pool.budget().limit_bytes() / PASS_PART;
        let (mut all, mut all_bytes) = (Vec::new(), 0);
        let mut looked_at = 0;
        let moment = Wait::For(LONGEST_WAIT);
        for (_, tree, is_dropping) in self.catalogue.trees_within(&moment)? {
            if is_dropping {
                continue;
            }
            let walked = tree.clone().with_wait(moment.clone()).scan().visit(|key, value| {
                looked_at += 1;
                if looked_at % ASKED_EVERY == 0 && ends() {
                    return ControlFlow::Break(());
                }
                if let Stored::Extent(extent) = read_stored(value)
                    && extent.runs.iter().any(|run| run.unit + u64::from(run.units) > end_unit)
                    && slots.state().zones.check_extent(&extent).is_ok()
                {
                    // Nobody is waited for: it may be this thread that takes the checkpoints.
                    let tree = tree.clone().with_wait(Wait::Never);
                    let far = Far { tree, key: key.to_vec(), extent };
                    all_bytes += far.memory_bytes();
                    all.push(far);
                    if all.len() >= 2 * PASS_VALUES && all_bytes > most_bytes {
                        all_bytes = keep_farthest(&mut all, slots, most_bytes / 2);
                    }
                }
                ControlFlow::Continue(())
            });
            match walked {
                // A leaf that cannot be read is for a verification to name, and no reason to keep the file long.
                Err(error) if error.is_loss() || error.kind() == ErrorKind::KeyspaceDropped => {}
                Ok(ControlFlow::Break(())) => break,
                other => drop(other?),
            }
        }
        keep_farthest(&mut all, slots, most_bytes);
        Ok(all)
    }

    /// Moves one value below `end_zone`, or at least away from the end, unless `ends` says so meanwhile.
    pub(in crate::store) fn move_value(
        &self,
        slots: &Arc<SlotStore>,
        far: &Far,
        end_zone: u32,
        ends: &dyn Fn() -> bool,
    ) -> Result<Moved> {
        // As below, before anything is copied in vain.
        if *self.loads.lock() > 0 {
            return Ok(Moved::NotNow);
        }
        let reading = slots.read_extents(self.pool.epochs().current());
        let reference = far.extent.encode();
        let is_there = far.tree.get(&far.key)?.is_some_and(|value| value.as_bytes() == reference);
        if !is_there {
            return Ok(Moved::NotNow);
        }
        // What others free while it is copied is free.
        let reading = reading.only(&far.extent);
        let room = far.tree.max_record_bytes().saturating_sub(far.key.len());
        let max_runs = (room.saturating_sub(reference_bytes(0)) / 8).min(MAX_RUNS);
        let units = far.extent.runs.iter().map(|run| u64::from(run.units)).sum();
        // Where it should go to, or else anywhere further towards the start than its end is.
        let mut runs = self.pool.allocate_extent_below(slots, end_zone, units, max_runs)?;
        let last_zone = far.last_zone(slots);
        if runs.is_none() && last_zone > end_zone {
            runs = self.pool.allocate_extent_below(slots, last_zone, units, max_runs)?;
        }
        let Some(runs) = runs else { return Ok(Moved::NoRoom) };
        let copy = Extent { runs: runs.into(), ..far.extent.clone() };
        let swapped = self.copy_and_swap(slots, far, &reference, &copy, ends);
        drop(reading);
        if !matches!(swapped, Ok(true)) {
            slots.discard_extent(&copy.runs);
        }
        Ok(if swapped? { Moved::Yes } else { Moved::NotNow })
    }

    fn copy_and_swap(
        &self,
        slots: &SlotStore,
        far: &Far,
        reference: &[u8],
        copy: &Extent,
        ends: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let geometry = slots.state().zones.geometry();
        let mut loan = slots.lend(CHUNKS_AT_ONCE, LoanFor::Call, &Wait::Never.begin())?;
        let chunk = chunk_bytes(geometry) as usize;
        let (mut next, chunks) = (0, copy.chunks(geometry));
        while next < chunks {
            if ends() {
                return Ok(false);
            }
            // The copy's runs are cut elsewhere.
            let follow = copy.place(geometry, next).follow as usize + 1;
            let most = loan.len().min(follow * chunk);
            let (count, len) =
                read_chunks(slots, &far.extent, next, &mut loan[..most], &mut |_, _| {})?;
            let _writing = slots.enter_file()?;
            self.pool.check_poison()?;
            let written =
                slots.file().write_at(copy.place(geometry, next).offset_bytes, &loan[..len]);
            written.inspect_err(|error| {
                if error.kind() != ErrorKind::DiskFull {
                    self.pool.set_poisoned(error);
                }
            })?;
            next += count as u64;
        }
        slots.extent_written();
        // Not at the gate of who runs alone: he may wait for checkpoints, and who moves values takes them.
        let Some(_beside) = self.turn.try_stay_beside() else { return Ok(false) };
        // The log must have nothing of a load before the load itself is durable.
        let loads = self.loads.lock();
        if *loads > 0 {
            return Ok(false);
        }
        let swapped = far.tree.compare_and_swap(&far.key, Some(reference), Some(&copy.encode()))?;
        Ok(swapped.is_swapped())
    }
}

/// The last ones are what the file's length depends on. Keeps those of so many bytes, or [`PASS_VALUES`]; their bytes.
fn keep_farthest(all: &mut Vec<Far>, slots: &SlotStore, most_bytes: u64) -> u64 {
    all.sort_by_cached_key(|far| Reverse(far.last_zone(slots)));
    let (mut kept, mut kept_bytes) = (0, 0);
    for far in &*all {
        let bytes = kept_bytes + far.memory_bytes();
        if kept >= PASS_VALUES && bytes > most_bytes {
            break;
        }
        (kept, kept_bytes) = (kept + 1, bytes);
    }
    all.truncate(kept);
    kept_bytes
}

/// The zone before which the file should end, if it is much longer than what is in it.
fn wanted_end(slots: &SlotStore) -> Option<u32> {
    let state = slots.state();
    let report = state.zones.report();
    let geometry = state.zones.geometry();
    let (count, zone_bytes) = (state.zones.zone_count(), u64::from(geometry.zone_bytes()));
    let in_it = report.used_bytes + report.quarantined_bytes;
    let wanted = (in_it + in_it / SPARE_PART).div_ceil(zone_bytes) + SPARE_ZONES;
    u32::try_from(wanted).ok().filter(|wanted| *wanted < count)
}
