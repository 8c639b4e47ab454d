//! How long the file is, in units, and by how much it grows.
//!
//! The file's last zone may be there in part: its first units lie in the file, and the rest does not. So a small store is a
//! small file, and a large one grows by whole zones. In the bitmap of a last zone the units that are not there count
//! as taken, though nothing holds them, so nobody is given one.
//!
//! The file grows by a *step*, a share of what it has, so that it seldom has to. Where the disk has no room for a step,
//! it grows by no more than what is wanted ([`Growth::Least`]).
//!
//! Invariants: `count` zones are as many as `units` units lie in; in a loaded group the bits from
//! [`Zones::there`] on are set in the last zone's `held`, and not counted in `held_units`. Not shared: the caller's lock
//! covers each call, and none of them does I/O.

use super::bits::{clear_bits, set_bits};
use super::zone::{Blocks, Group, Growth, ROOMY, UNKNOWN, WORTHWHILE, Want};
use super::zones::Zones;
use crate::types::PART_BYTES;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::figure::Figure;

/// The file grows by this part of its length.
const STEP_PART: u64 = 8;
/// It grows by at least so many bytes.
const LEAST_STEP_BYTES: u32 = 64 << 10;
/// The share of a small file that writers who meet at the door may need, by its parts: see [`super::room`].
const SHARE_PART: u64 = 32;
/// A quarter of the share is an eighth of a zone, or less in a small file, but so many pages at least.
const LEAST_SHARE_PAGES: u64 = 4;

impl Zones {
    /// Units in the file now.
    pub fn unit_count(&self) -> u64 {
        self.units
    }

    /// An eighth of a zone in pages, or less in a small file: may be read without the caller's lock.
    pub(super) fn eighth(&self) -> Arc<Figure> {
        self.eighth.clone()
    }

    /// Units of a zone that lie in the file.
    pub(super) fn there(&self, zone: u32) -> u32 {
        let first = self.geometry.units_of_zones(zone);
        let there = self.units.saturating_sub(first).min(u64::from(self.geometry.units_per_zone()));
        if zone < self.count { there as u32 } else { 0 }
    }

    /// Units of a group of zones that lie in the file.
    pub(super) fn units_in_group(&self, group: u32) -> u64 {
        let (from, to) = self.group_units(group);
        self.units.clamp(from, to) - from
    }

    /// The file's end lies on a multiple of so many units: neither a page nor a part is cut in two.
    pub(super) fn granule(&self) -> u32 {
        let geometry = self.geometry;
        geometry.units_for(geometry.page_bytes()).max(geometry.units_for(PART_BYTES as u32)).max(1)
    }

    /// So many units, or as many fewer as make the file end where it may.
    pub(super) fn whole_pages(&self, units: u64) -> u64 {
        let granule = u64::from(self.granule());
        units / granule * granule
    }

    /// By how many units the file grows when nothing more is wanted: a share of what it has, a zone at most.
    pub fn step_units(&self) -> u32 {
        let per_zone = self.geometry.units_per_zone();
        let least = (LEAST_STEP_BYTES / self.geometry.unit_bytes()).max(self.granule());
        let share = u32::try_from(self.units / STEP_PART).unwrap_or(u32::MAX);
        share.max(least).min(per_zone)
    }

    /// Whether pages, parts and extents share one stream: in a file of a few zones, each would take a zone of its own.
    pub(super) fn is_small(&self) -> bool {
        const ZONES: u32 = 4;
        const LEAST_ZONE_BYTES: u32 = 1 << 20;
        self.geometry.zone_bytes() >= LEAST_ZONE_BYTES
            && self.units < self.geometry.units_of_zones(ZONES)
            && !self.has_small_pages()
    }

    /// Pages that take fewer units than parts leave gaps that no part fits into: those need room of their own.
    fn has_small_pages(&self) -> bool {
        let geometry = self.geometry;
        geometry.units_for(geometry.page_bytes()) < geometry.units_for(PART_BYTES as u32)
    }

    /// A file that is longer by `units` units at least, in which the last `run` of them are neighbours.
    pub(super) fn want_growth(&self, units: u64, run: u32, growth: Growth) -> Option<Want> {
        let most = self.geometry.units_of_zones(self.geometry.max_zones());
        if growth == Growth::Refused || self.units >= most {
            return None;
        }
        if self.truncating.is_some() {
            return Some(Want::Truncating);
        }
        let per_zone = u64::from(self.geometry.units_per_zone());
        let granule = u64::from(self.granule());
        let rounded = |units: u64| units.div_ceil(granule).saturating_mul(granule);
        let mut least = self.units.saturating_add(rounded(units));
        let left = (per_zone - self.units % per_zone) % per_zone;
        if u64::from(run) > left && units <= left + u64::from(run) {
            // It does not fit into what the last zone lacks: it begins the next one.
            least = least.max(self.units + left + rounded(u64::from(run)));
        }
        let least_units = rounded(least).min(most);
        let step = u64::from(self.step_units());
        let mut units = least_units;
        if growth == Growth::Allowed {
            units = units.max(self.units + step);
            if step == per_zone {
                units = units.next_multiple_of(per_zone);
            }
        }
        Some(Want::Grow { units: rounded(units).min(most), least_units })
    }

    /// What a run of `units` needs beyond the free end of the file.
    pub(super) fn want_run(&self, units: u32) -> Option<Want> {
        let tail = self.count.checked_sub(1).map_or(0, |zone| self.free_tail(zone));
        let more = units.saturating_sub(tail).max(1);
        self.want_growth(u64::from(more), more, Growth::Least)
    }

    /// What to do for room for so many pages more in solid zones, before it is needed. [`Want::Full`]: nothing can be done.
    /// The file grows by all of it at once: each step looks at every free zone.
    pub fn want_room(&mut self, growth: Growth, pages: u64) -> Want {
        let last = if growth == Growth::Allowed { WORTHWHILE } else { 0 };
        for least in [ROOMY, last] {
            // What is loaded first: after an opening nothing is, and a large file has many groups to read.
            loop {
                if let Some(fill) = self.fill_ahead(least) {
                    return Want::Fill(fill);
                }
                let Some(group) = self.group_with_room(least as u64) else { break };
                if let Err(want) = self.load_or_want(group) {
                    return want;
                }
            }
        }
        if growth == Growth::Allowed
            && let Some(fill) = self.fill_hole()
        {
            return Want::Fill(fill);
        }
        let pages = pages.max(1);
        let run = self.geometry.units_for(self.geometry.page_bytes()).max(1);
        let units = pages.saturating_mul(u64::from(run));
        let want = self.want_growth(units, run, growth).unwrap_or(Want::Full);
        self.growing_for(&want);
        want
    }

    /// Notes that a growth was handed out, if it was.
    pub(super) fn growing_for(&mut self, want: &Want) {
        self.growing += u32::from(matches!(want, Want::Grow { .. }));
    }

    /// The file has `units` units now, or more: what [`Want::Grow`] asked for is done.
    pub fn grown(&mut self, units: u64) {
        self.growing = self.growing.saturating_sub(1);
        if units <= self.units {
            return;
        }
        let zones = self.geometry.zones_of_units(units);
        assert!(zones <= self.geometry.max_zones(), "the file grew beyond what slots can name");
        let last = self.count.checked_sub(1).map(|zone| (zone, self.there(zone)));
        self.units = units;
        while self.count < zones {
            let zone = self.count;
            self.count += 1;
            let (group, index) = self.geometry.split_zone(zone);
            if group as usize == self.groups.len() {
                self.groups.push(Group::EMPTY);
            }
            if index == 0 && self.groups[group as usize].loaded.is_none() {
                self.install(group, None);
            }
            if self.groups[group as usize].loaded.is_some() {
                let per_zone = self.geometry.units_per_zone();
                let (words, info) = self.held_mut(zone);
                info.free += clear_bits(words, 0, per_zone);
                info.longest = UNKNOWN;
                info.blocks = Blocks::Solid;
                self.reclass(zone);
            }
        }
        if let Some((zone, there)) = last {
            self.more_is_there(zone, there);
        }
        self.bound_last();
        self.resized();
    }

    /// The file could not be extended as [`Want::Grow`] asked.
    pub fn growth_failed(&mut self) {
        self.growing = self.growing.saturating_sub(1);
    }

    /// More of a zone is there than `before` units: the rest is free.
    fn more_is_there(&mut self, zone: u32, before: u32) {
        let more = self.there(zone) - before;
        let (group, _) = self.geometry.split_zone(zone);
        if more == 0 || self.groups[group as usize].loaded.is_none() {
            return;
        }
        let (words, info) = self.held_mut(zone);
        let cleared = clear_bits(words, before, more);
        info.free += cleared;
        info.longest = UNKNOWN;
        self.out_units += if self.held_mut(zone).1.out { u64::from(cleared) } else { 0 };
        self.reclass(zone);
    }

    /// Takes what is not there of the last zone, if its group is loaded.
    pub(super) fn bound_last(&mut self) {
        let Some(zone) = self.count.checked_sub(1) else { return };
        let (group, _) = self.geometry.split_zone(zone);
        let (there, per_zone) = (self.there(zone), self.geometry.units_per_zone());
        if there < per_zone && self.groups[group as usize].loaded.is_some() {
            let (words, info) = self.held_mut(zone);
            info.free -= set_bits(words, there, per_zone - there);
            info.longest = UNKNOWN;
            self.reclass(zone);
        }
    }

    /// Units of a zone whose bits are set though nothing holds them: they are not there, or about to be cut off.
    pub(super) fn taken_by_nobody(&self, zone: u32) -> u32 {
        if zone >= self.count {
            return 0;
        }
        let first = self.geometry.units_of_zones(zone);
        let there = u64::from(self.there(zone));
        let left = self.truncating.filter(|end| (first + 1..first + there).contains(end));
        self.geometry.units_per_zone() - left.map_or(there, |end| end - first) as u32
    }

    /// After each change of the file's length.
    pub(super) fn resized(&mut self) {
        let geometry = self.geometry;
        let page_bytes = u64::from(geometry.page_bytes());
        let most = (u64::from(geometry.zone_bytes()) / page_bytes).div_ceil(8);
        let least = match self.has_small_pages() {
            true => most,
            false => (u64::from(LEAST_STEP_BYTES) / page_bytes).max(LEAST_SHARE_PAGES).min(most),
        };
        let pages = self.units * u64::from(geometry.unit_bytes()) / page_bytes;
        self.eighth.store((pages / SHARE_PART).clamp(least, most), Relaxed);
    }

    /// Units at the end of a zone, as far as it is there, that are free. None of one that is out, or not loaded.
    pub(super) fn free_tail(&self, zone: u32) -> u32 {
        let (group, index) = self.geometry.split_zone(zone);
        let words = self.geometry.words_per_zone();
        let Some(loaded) = self.groups.get(group as usize).and_then(|g| g.loaded.as_deref()) else {
            return 0;
        };
        if loaded.zones[index as usize].out {
            return 0;
        }
        let bits = &loaded.held[index as usize * words..][..words];
        let is_free = |unit: &u32| bits[*unit as usize / 64] >> (unit % 64) & 1 == 0;
        (0..self.there(zone)).rev().take_while(is_free).count() as u32
    }
}
