//! The allocator's side of extents: finding runs of units, holding them, and giving them back.
//!
//! An extent of up to a zone takes a run of one zone, from a stream of its own, so that it does not cut up the
//! zones that pages fill. A larger one takes whole neighbouring zones: the lowest stretch of free ones that
//! suffices, else a few stretches, the longest first, else a longer file.
//!
//! The life of an extent's units, each step under the lock around [`Zones`]:
//!
//! 1. *written*: held, and referred to by nothing; a crash frees them, for no bitmap on disk has them;
//! 2. *entered* with the record that refers to them, in its epoch: the checkpoint that ends the epoch or a later
//!    one sets them in its bitmaps;
//! 3. *left* with the change that supersedes the record, in its epoch `e`: that checkpoint clears them, and they are
//!    free when a checkpoint of at least `e` is durable, when nobody is looking for a value who may have begun in an
//!    epoch up to `e`, when no older checkpoint is pinned, and when nobody is reading this very extent. Snapshots and pins that
//!    were there before it was entered do not count.
//!
//! Unlike those of pages, units are never free at once, not even if one epoch has seen them come and go: a replay
//! of the log from the last checkpoint puts each record again, and must find nothing else in its units.
//!
//! Invariants: the account of the steps (`extent_space.rs`) agrees with the bitmaps. What is freed is not referred to by the newest
//! checkpoint. Not shared: the caller's lock covers each call.

use crate::error::{Error, Result};
use crate::large::{Extent, Run};
use crate::space::bits::{clear_bits, set_bits};
use crate::space::geometry::{Geometry, HEADER_REGION_BYTES};
use crate::space::table_part::LoadGroup;
use crate::space::unit_set::UnitSet;
use crate::space::zone::{Blocks, Growth, Want};
use crate::space::zones::{EXTENT_STREAM, Zones};
use crate::types::Epoch;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// Runs that wait to be free are a list as long as it has no more than so many, or takes no more than this part of what a bit for each unit of
/// the file does.
const LISTED_RUNS: usize = 1024;
const LISTED_PART: usize = 4;

impl Zones {
    /// Takes `units` units in at most `max_runs` runs. At least `keep_slots` slots of pages stay free in solid
    /// zones. All or nothing; else as [`Zones::allocate`].
    pub fn allocate_extent(
        &mut self,
        units: u64,
        max_runs: usize,
        keep_slots: u64,
        growth: Growth,
    ) -> Result<Vec<Run>, Want> {
        let per_zone = self.geometry.units_per_zone();
        let runs = if units <= u64::from(per_zone) {
            let units = units as u32;
            let unit = self.take(units, EXTENT_STREAM, growth).inspect_err(|want| {
                self.growing_for(want);
            })?;
            vec![Run { unit, units }]
        } else {
            self.take_zones(units, max_runs, growth).inspect_err(|want| {
                self.growing_for(want);
            })?
        };
        self.extents.writing(units);
        if self.room.load(Relaxed) < keep_slots {
            // Pages that were let in need that room: there has to be more of it first.
            self.discard_extent(&runs);
            return Err(
                self.want_room(growth, keep_slots - self.room.load(Relaxed).min(keep_slots))
            );
        }
        Ok(runs)
    }

    /// Takes units below `end_zone`, in holes as well. `None`: there is no room for them there. Else as
    /// [`Self::allocate_extent`].
    pub fn allocate_extent_below(
        &mut self,
        end_zone: u32,
        units: u64,
        max_runs: usize,
        keep_slots: u64,
    ) -> Result<Option<Vec<Run>>, Want> {
        let before = self.ceiling.replace(end_zone);
        self.is_ceiling_firm = true;
        self.close_heads();
        let taken = self.allocate_extent(units, max_runs, keep_slots, Growth::Allowed);
        self.is_ceiling_firm = false;
        self.close_heads();
        self.ceiling = before;
        let end_unit = u64::from(end_zone) * u64::from(self.geometry.units_per_zone());
        match taken {
            Ok(runs) if runs.iter().all(|run| run.unit + u64::from(run.units) <= end_unit) => {
                Ok(Some(runs))
            }
            Ok(runs) => {
                self.discard_extent(&runs);
                Ok(None)
            }
            Err(want @ (Want::Load(_) | Want::Fill(_))) => Err(want),
            Err(want) => {
                if matches!(want, Want::Grow { .. }) {
                    self.growth_failed();
                }
                Ok(None)
            }
        }
    }

    /// Takes whole zones, but for the end of the last one.
    fn take_zones(
        &mut self,
        units: u64,
        max_runs: usize,
        growth: Growth,
    ) -> Result<Vec<Run>, Want> {
        let per_zone = self.geometry.units_per_zone();
        let zones = u32::try_from(units.div_ceil(u64::from(per_zone))).map_err(|_| Want::Full)?;
        while let Some(group) = self.group_with_room(1) {
            self.load_or_want(group)?;
        }
        // What the streams have begun is not free for certain; what they have not used is.
        self.close_heads();
        let stretches = self.free_stretches(growth);
        let Some(chosen) = choose_stretches(&stretches, zones, max_runs) else {
            if !self.is_ceiling_firm && self.ceiling.take().is_some() {
                return self.take_zones(units, max_runs, growth);
            }
            return Err(self.want_zones(&stretches, units, growth));
        };
        for zone in chosen.iter().flat_map(|&(first, count)| first..first + count) {
            if self.zone(zone).is_some_and(|info| info.blocks != Blocks::Solid) {
                return Err(Want::Fill(self.begin_fill(zone)));
            }
        }
        let mut left = units;
        let mut runs = Vec::with_capacity(chosen.len());
        for (first, count) in chosen {
            let here = left.min(u64::from(count) * u64::from(per_zone));
            let unit = u64::from(first) * u64::from(per_zone);
            runs.push(Run { unit, units: here as u32 });
            left -= here;
        }
        for &run in &runs {
            self.for_each_piece(run, |zones, zone, first, count| {
                let (words, info) = zones.held_mut(zone);
                let set = set_bits(words, first, count);
                info.free -= set;
                zones.held_units += u64::from(set);
                zones.reclass(zone);
            });
        }
        Ok(runs)
    }

    /// Neighbouring free zones: first one and number, ascending.
    fn free_stretches(&self, growth: Growth) -> Vec<(u32, u32)> {
        let ceiling = self.ceiling.unwrap_or(u32::MAX);
        let mut stretches: Vec<(u32, u32)> = Vec::new();
        for zone in self.free_zones().take_while(|&zone| zone < ceiling) {
            let is_hole = self.zone(zone).is_none_or(|info| info.blocks == Blocks::Hole);
            if is_hole && growth != Growth::Allowed {
                continue;
            }
            match stretches.last_mut() {
                Some((first, count)) if *first + *count == zone => *count += 1,
                _ => stretches.push((zone, 1)),
            }
        }
        stretches
    }

    /// A file so long that its end has free zones for `units` units.
    fn want_zones(&self, stretches: &[(u32, u32)], units: u64, growth: Growth) -> Want {
        if self.truncating.is_some() {
            return Want::Truncating;
        }
        // A last zone that is there in part and holds nothing becomes one of them.
        let is_begun = self.count.checked_sub(1).is_some_and(|zone| {
            let there = self.there(zone);
            there < self.geometry.units_per_zone() && self.free_tail(zone) == there
        });
        let end = self.count - u32::from(is_begun);
        let first = match stretches.last() {
            Some(&(first, count)) if first + count == end => first,
            _ => end,
        };
        let per_zone = u64::from(self.geometry.units_per_zone());
        let zones = u32::try_from(units.div_ceil(per_zone)).unwrap_or(u32::MAX);
        match first.checked_add(zones) {
            Some(count) if count <= self.geometry.max_zones() && growth != Growth::Refused => {
                let units = self.geometry.units_of_zones(count);
                Want::Grow { units, least_units: units }
            }
            _ => Want::Full,
        }
    }

    /// Gives back units that [`Self::allocate_extent`] handed out and nothing referred to.
    pub fn discard_extent(&mut self, runs: &[Run]) {
        for &run in runs {
            self.extents.discarded(u64::from(run.units));
            self.for_each_piece(run, |zones, zone, first, count| {
                zones.release_in(zone, first, count)
            });
        }
    }

    /// Units of extents that are held and that nothing refers to yet.
    pub fn writing_units(&self) -> u64 {
        self.extents.writing_units()
    }

    /// The extent's record was put in `epoch`.
    pub fn extent_entered(&mut self, extent: &Extent, epoch: Epoch) {
        self.extents.entered(extent, epoch, &self.quarantine);
    }

    /// The extent's record was superseded in `epoch`. The caller has seen that the extent fits. Returns how many bytes
    /// the next checkpoint will set free.
    pub(in crate::space) fn extent_left(&mut self, extent: &Extent, epoch: Epoch) -> u64 {
        self.extents.left(extent, epoch, &self.quarantine) * u64::from(self.geometry.unit_bytes())
    }

    /// Units that wait to be free.
    #[cfg(hedgerow_internals)]
    pub fn left_units(&self) -> u64 {
        self.extents.left_units()
    }

    /// After the checkpoint that ends a replay: what the log named, and what was superseded, is free unless something refers
    /// to it.
    pub(in crate::space) fn replay_ends(&mut self) {
        let all = self.extents.take_replayed();
        all.for_each_run(|unit, units| {
            self.for_each_piece(Run { unit, units }, Zones::release_unreferenced);
        });
    }

    /// Frees runs that nobody needs any more: of at least `most` units, if there are as many. False: there are no
    /// more.
    pub fn free_extents(&mut self, most: u64) -> bool {
        let mut freed = 0;
        while freed < most {
            let quarantine = &self.quarantine;
            let Some(runs) = self.extents.take_left(most - freed, quarantine) else {
                let listed =
                    UnitSet::bytes_of(self.units) / LISTED_PART / size_of::<(Epoch, Run)>();
                self.extents.forget_births(quarantine);
                return self.extents.keep_waiting(listed.max(LISTED_RUNS), quarantine);
            };
            if runs.is_empty() {
                // What was done took time with all of this locked, too.
                return true;
            }
            for run in runs {
                freed += u64::from(run.units);
                self.free_left(run);
            }
        }
        true
    }

    fn free_left(&mut self, run: Run) {
        self.extents.freed(run);
        self.for_each_piece(run, Zones::release_unreferenced);
    }

    /// A reader of these runs has ended. What nobody else needs is free.
    pub(in crate::space) fn reading_one_ends(&mut self, runs: &[Run]) {
        for &run in runs {
            self.extents.reading_run_ends(run).into_iter().for_each(|run| self.free_left(run));
        }
    }

    /// Holds the units of an extent that the log names, so that a replay leaves them alone; whether the file has them
    /// at all the caller has seen, and loaded their groups. To be followed by [`Self::replay_ends`].
    pub(in crate::space) fn hold_extent(&mut self, extent: &Extent) {
        for &run in &extent.runs {
            let mut fresh = 0;
            self.for_each_piece(run, |zones, zone, first, count| {
                let (words, info) = zones.held_mut(zone);
                let set = set_bits(words, first, count);
                info.free -= set;
                zones.held_units += u64::from(set);
                fresh += u64::from(set);
                zones.reclass(zone);
            });
            self.extents.named(run, fresh);
        }
    }

    /// Frees what of the run the newest checkpoint does not refer to.
    fn release_unreferenced(&mut self, zone: u32, first: u32, count: u32) {
        let words = self.geometry.words_per_zone();
        let (group, index) = self.geometry.split_zone(zone);
        let Some(loaded) = self.groups.get(group as usize).and_then(|g| g.loaded.as_deref()) else {
            return;
        };
        let bits = &loaded.referenced[index as usize * words..][..words];
        let is_free = |bit: u32| bits[bit as usize / 64] >> (bit % 64) & 1 == 0;
        let free: Vec<u32> = (first..first + count).filter(|&bit| is_free(bit)).collect();
        for run in free.chunk_by(|a, b| a + 1 == *b) {
            self.release_in(zone, run[0], run.len() as u32);
        }
    }

    fn release_in(&mut self, zone: u32, first: u32, count: u32) {
        let unit = u64::from(zone) * u64::from(self.geometry.units_per_zone()) + u64::from(first);
        self.release(unit, count);
    }

    /// Whether the extent can be one of this file.
    ///
    /// Errors: `Corrupted` if not.
    pub fn check_extent(&self, extent: &Extent) -> Result<()> {
        if extent.fits(self.geometry, self.units) {
            Ok(())
        } else {
            Err(unfit(self.geometry, extent))
        }
    }

    /// The groups to load before the extent's units can be entered, left or held.
    ///
    /// Errors: `Corrupted` if the extent cannot be one of this file.
    pub fn extent_groups(&mut self, extent: &Extent) -> Result<Vec<LoadGroup>> {
        self.check_extent(extent)?;
        let mut wanted = Vec::new();
        for &run in &extent.runs {
            self.for_each_piece(run, |zones, zone, _, _| {
                let group = zones.geometry.split_zone(zone).0;
                wanted.extend(zones.group_unless_loaded(group));
            });
        }
        wanted.dedup();
        Ok(wanted)
    }

    /// The checkpoint's pages refer to the extent. Its groups are loaded.
    ///
    /// Errors: `Corrupted` if something else refers to a unit of it.
    pub fn refer_extent(&mut self, extent: &Extent) -> Result<()> {
        self.change_extent(extent, set_bits)
    }

    /// The checkpoint's pages refer to the extent no more.
    ///
    /// Errors: `Corrupted` if nothing referred to a unit of it.
    pub fn unrefer_extent(&mut self, extent: &Extent) -> Result<()> {
        self.change_extent(extent, clear_bits)
    }

    fn change_extent(
        &mut self,
        extent: &Extent,
        change: fn(&mut [u64], u32, u32) -> u32,
    ) -> Result<()> {
        self.check_extent(extent)?;
        let mut changed = Ok(());
        for &run in &extent.runs {
            self.for_each_piece(run, |zones, zone, first, count| {
                if !zones.change_bits(zone, |words| change(words, first, count) == count) {
                    let unit = zones.geometry.unit_offset(run.unit);
                    changed = Err(Error::corrupted_at(
                        unit,
                        "a unit of a large value is referred to twice, or not at all",
                    ));
                }
            });
        }
        changed
    }

    /// Calls `each` with zone, first unit in it, and number of units, for each zone that a run lies in.
    fn for_each_piece(&mut self, run: Run, mut each: impl FnMut(&mut Zones, u32, u32, u32)) {
        let per_zone = self.geometry.units_per_zone();
        let (mut unit, mut left) = (run.unit, run.units);
        while left > 0 {
            let (zone, first) = self.geometry.split_unit(unit);
            let count = left.min(per_zone - first);
            each(self, zone, first, count);
            unit += u64::from(count);
            left -= count;
        }
    }
}

fn unfit(geometry: Geometry, extent: &Extent) -> Error {
    let unit = extent.runs.first().map_or(0, |run| run.unit);
    let what = format!("a large value from unit {unit} on is outside of the file");
    // Of a value that says nonsense the place may be nonsense, too.
    let offset = unit.saturating_mul(u64::from(geometry.unit_bytes()));
    Error::corrupted_at(HEADER_REGION_BYTES.saturating_add(offset), what)
}

/// The lowest stretch that suffices; else the longest ones, if few enough of them do.
fn choose_stretches(
    stretches: &[(u32, u32)],
    zones: u32,
    max_runs: usize,
) -> Option<Vec<(u32, u32)>> {
    if let Some(&(first, _)) = stretches.iter().find(|&&(_, count)| count >= zones) {
        return Some(vec![(first, zones)]);
    }
    let mut longest = stretches.to_vec();
    longest.sort_by_key(|&(first, count)| (u32::MAX - count, first));
    let mut chosen = Vec::new();
    let mut left = zones;
    for (first, count) in longest.into_iter().take(max_runs) {
        let count = count.min(left);
        chosen.push((first, count));
        left -= count;
        if left == 0 {
            return Some(chosen);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_as_long_as_its_free_end_leaves_out_or_not_at_all() {
        let mut zones = Zones::create(Geometry::from_sizes(512, 512, 16 << 10).unwrap());
        zones.grown(3 * 32);
        let grow = |zones: u64| Want::Grow { units: zones * 32, least_units: zones * 32 };
        let allowed = |stretches: &[(u32, u32)], more: u32| {
            let units = u64::from(more) * 32;
            assert_eq!(zones.want_zones(stretches, units, Growth::Refused), Want::Full);
            assert_eq!(
                zones.want_zones(stretches, units, Growth::Least),
                zones.want_zones(stretches, units - 31, Growth::Allowed)
            );
            zones.want_zones(stretches, units, Growth::Allowed)
        };
        assert_eq!(allowed(&[], 2), grow(5));
        assert_eq!(allowed(&[(0, 1), (2, 1)], 2), grow(4));
        assert_eq!(allowed(&[(0, 2)], 2), grow(5), "that is not its end");
        let most = zones.geometry.max_zones();
        assert_eq!(allowed(&[], most - 3), grow(u64::from(most)));
        assert_eq!(allowed(&[], most - 2), Want::Full);
        assert_eq!(allowed(&[], u32::MAX), Want::Full);
        zones.truncating = Some(1);
        assert_eq!(zones.want_zones(&[], 2, Growth::Allowed), Want::Truncating);
    }
}
