//! Giving space back: holes in the middle of the file, truncation at its end, and what to move there.
//!
//! A zone being punched or truncated is out of the allocator from `begin` until the system call has
//! returned and `end` was called: otherwise the call could destroy an image that was written to it
//! meanwhile. Growth and truncation exclude each other for the same reason. Only zones in which
//! nothing is held take part, so a punch or a cut that a crash undoes, or does only half, loses
//! nothing: no checkpoint that could be opened refers to them, and a checkpoint says itself how many
//! zones it needs. Not shared: the caller's lock covers each call, and none of them does I/O.

use super::bits::{clear_bits, set_bits};
use super::table_part::LoadGroup;
use super::zone::{Blocks, CLASSES, Fill, UNKNOWN};
use super::zones::Zones;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// The last zone is written anew in parts if so large a part of it is free.
const SHORTER_PART: u32 = 8;

/// A free zone to punch: report back by [`Zones::end_punch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Punch {
    /// The zone.
    pub zone: u32,
    /// First byte to punch.
    pub offset_bytes: u64,
    /// Bytes to punch.
    pub len_bytes: u64,
}

/// Free units at the file's end: report back by [`Zones::end_truncate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncate {
    /// Units that are left.
    pub units: u64,
    /// Length of the file in bytes that is left.
    pub file_bytes: u64,
}

/// A zone whose content should move towards the file's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TailZone {
    /// The zone.
    pub zone: u32,
    /// Its first byte in the file.
    pub offset_bytes: u64,
    /// Its length.
    pub len_bytes: u64,
    /// Bytes in it that are not free.
    pub held_bytes: u64,
}

impl Zones {
    /// Takes a free zone out in order to punch it: the lowest that has blocks in the file, as long as
    /// at least `keep_bytes` of free zones with blocks remain, for the writes that are to come, and
    /// `keep_slots` free slots of pages in zones that are known to have blocks.
    pub fn begin_punch(&mut self, keep_bytes: u64, keep_slots: u64) -> Option<Punch> {
        let geometry = self.geometry;
        let mut solid = self.free_zones().filter(|&zone| !self.is_hole(zone));
        let zone = solid.next()?;
        let room = self.zone(zone).map_or(0, |info| u64::from(info.room));
        if room > 0 && self.room.load(Relaxed) < room + keep_slots {
            return None;
        }
        let left = solid.count() as u64 * u64::from(geometry.zone_bytes());
        if left < keep_bytes {
            return None;
        }
        self.take_out(zone);
        Some(Punch {
            zone,
            offset_bytes: geometry.zone_offset(zone),
            len_bytes: u64::from(geometry.zone_bytes()),
        })
    }

    /// The punch of a zone has returned; `punched` is whether it made a hole. The zone is free again.
    pub fn end_punch(&mut self, zone: u32, punched: bool) {
        if zone < self.count && self.zone(zone).is_some_and(|info| info.out) {
            if punched {
                self.held_mut(zone).1.blocks = Blocks::Hole;
                self.holes += 1;
            }
            self.put_back(zone);
        }
    }

    /// Takes a free zone that is not solid out, in order to fill it.
    pub(super) fn begin_fill(&mut self, zone: u32) -> Fill {
        let is_free = self.is_free(zone);
        self.take_out(zone);
        let unit_bytes = u64::from(self.geometry.unit_bytes());
        Fill {
            zone,
            offset_bytes: self.geometry.zone_offset(zone),
            len_bytes: u64::from(self.there(zone)) * unit_bytes,
            is_hole: self.is_hole(zone),
            is_free,
        }
    }

    /// What is free of a zone that is out: first byte and length of each gap. Nobody writes there until it is back.
    pub fn gaps(&self, zone: u32) -> Vec<(u64, u64)> {
        let (group, index) = self.geometry.split_zone(zone);
        let words = self.geometry.words_per_zone();
        let Some(loaded) = self.groups.get(group as usize).and_then(|g| g.loaded.as_deref()) else {
            return Vec::new();
        };
        let bits = &loaded.held[index as usize * words..][..words];
        let is_free = |unit: &u32| bits[*unit as usize / 64] >> (unit % 64) & 1 == 0;
        let free: Vec<u32> = (0..self.there(zone)).filter(is_free).collect();
        let bytes = |units: u32| u64::from(units) * u64::from(self.geometry.unit_bytes());
        let gap = |run: &[u32]| {
            (self.geometry.zone_offset(zone) + bytes(run[0]), bytes(run.len() as u32))
        };
        free.chunk_by(|a, b| a + 1 == *b).map(gap).collect()
    }

    /// The zone that [`super::zone::Want::Fill`] named has blocks now, or could not get any.
    pub fn filled(&mut self, zone: u32, done: bool) {
        if done {
            self.holes -= u32::from(self.is_hole(zone));
            self.held_mut(zone).1.blocks = Blocks::Solid;
        } else {
            self.holes += u32::from(!self.is_hole(zone));
            self.held_mut(zone).1.blocks = Blocks::Hole;
        }
        self.put_back(zone);
    }

    /// A zone to fill although nobody wants to write to it yet: the lowest that may have blocks and has this much room, in sixteenths. `None`
    /// if none that is loaded has.
    pub(super) fn fill_ahead(&mut self, least: usize) -> Option<Fill> {
        let class = |zone| self.zone(zone).map_or(0, |info| usize::from(info.class));
        let zone = self.unsure.iter().copied().find(|&zone| class(zone) >= least)?;
        Some(self.begin_fill(zone))
    }

    /// The lowest free zone without blocks, to fill it. `None` if none that is loaded is one.
    pub(super) fn fill_hole(&mut self) -> Option<Fill> {
        // A last zone that is there in part does not count as a free one.
        let last = self.count.checked_sub(1).filter(|&zone| self.is_free(zone));
        let zone = self.free_zones().chain(last).find(|&zone| self.is_hole(zone))?;
        Some(self.begin_fill(zone))
    }

    /// Takes the free end of the file out in order to cut it off: whole zones, and what is free at the end of the zone
    /// before them, if that is at least `least_units`. `None` if there is none, if one of the zones is being punched,
    /// or while the file grows or is cut already.
    ///
    /// `keep_slots` stay free in solid zones: the room of those who were let in to write. Where a part of a zone is cut,
    /// `keep_in_zone` stay as well: who comes next would make the file longer again.
    pub fn begin_truncate(
        &mut self,
        keep_slots: u64,
        keep_in_zone: u64,
        least_units: u32,
    ) -> Option<Truncate> {
        if self.growing > 0 || self.truncating.is_some() {
            return None;
        }
        let mut zones = self.count;
        let mut room = self.room.load(Relaxed);
        while zones > 0
            && self.is_free(zones - 1)
            && self.geometry.units_of_zones(zones - 1) >= self.needed_units
        {
            let less = self.zone(zones - 1).map_or(0, |info| u64::from(info.room));
            if less > 0 && room < less + keep_slots {
                break;
            }
            room -= less;
            zones -= 1;
        }
        let end = self.geometry.units_of_zones(zones).min(self.units);
        let cut = zones.checked_sub(1).map_or(0, |zone| {
            self.cut_in_zone(zone, room.saturating_sub(keep_slots.max(keep_in_zone)))
        });
        let cut = if cut < least_units.max(1) { 0 } else { cut };
        let end = end - u64::from(cut);
        if end == self.units {
            return None;
        }
        self.close_heads();
        for zone in zones..self.count {
            self.take_out(zone);
        }
        if cut > 0 {
            let zone = zones - 1;
            let first = self.there(zone) - cut;
            let (words, info) = self.held_mut(zone);
            let taken = set_bits(words, first, cut);
            info.free -= taken;
            info.longest = UNKNOWN;
            self.out_units += u64::from(taken);
            self.reclass(zone);
        }
        self.truncating = Some(end);
        Some(Truncate { units: end, file_bytes: self.geometry.unit_offset(end) })
    }

    /// Units at the end of a zone that may be cut off where at most `slots` slots of pages may go.
    fn cut_in_zone(&self, zone: u32, slots: u64) -> u32 {
        let (there, granule) = (self.there(zone), self.granule());
        let first = self.geometry.units_of_zones(zone);
        let needed = self.needed_units.saturating_sub(first).min(u64::from(there)) as u32;
        let held = (there - self.free_tail(zone)).max(needed);
        let counts = self.zone(zone).is_some_and(|info| info.room > 0);
        let page = u64::from(self.geometry.units_for(self.geometry.page_bytes()).max(1));
        let may_go = if counts { slots.saturating_mul(page) } else { u64::MAX };
        let may_go = u32::try_from(may_go).unwrap_or(u32::MAX);
        let end = held.max(there.saturating_sub(may_go)).next_multiple_of(granule);
        there - end.min(there)
    }

    /// The truncation has returned; `done` is whether the file is shorter now. If not, its units are
    /// free again.
    pub fn end_truncate(&mut self, done: bool) {
        let Some(end) = self.truncating.take() else { return };
        let zones = self.geometry.zones_of_units(end);
        for zone in zones..self.count {
            if done {
                self.holes -= u32::from(self.is_hole(zone));
                self.held_mut(zone).1.blocks = Blocks::Solid;
            }
            self.put_back(zone);
        }
        if let Some(last) = zones.checked_sub(1) {
            let first = (end - self.geometry.units_of_zones(last)) as u32;
            let cut = self.there(last) - first;
            self.out_units -= u64::from(cut);
            if !done && cut > 0 {
                let (words, info) = self.held_mut(last);
                info.free += clear_bits(words, first, cut);
                info.longest = UNKNOWN;
                self.reclass(last);
            }
        }
        if done {
            let old = std::mem::replace(&mut self.count, zones);
            self.units = end;
            for zone in zones..old {
                // A last zone that was there in part.
                let per_zone = self.geometry.units_per_zone();
                let (words, info) = self.held_mut(zone);
                info.free += clear_bits(words, 0, per_zone);
                self.reclass(zone);
            }
            let groups = zones.div_ceil(self.geometry.zones_per_group()) as usize;
            let ends = self.groups.drain(groups..);
            self.loaded_groups -= ends.filter(|group| group.loaded.is_some()).count();
            self.resized();
        }
    }

    /// Zones at the file's end to be emptied, the last first, so that the file can be cut: what they hold
    /// is at most `budget_bytes` in all, and fits into the free space below them so that at least
    /// `reserve_bytes` of it stay free. From now on nothing is written to them or beyond while there is
    /// room below. Empty, and nothing is forbidden, if there is no such zone, or while groups of the tail
    /// are not loaded (see [`Self::tail_to_load`]).
    ///
    /// To empty a zone: fault in each page that has its slot there and mark it dirty; rewrite the
    /// parts of the map there (parts of the table follow by themselves); take a checkpoint.
    pub fn tail_zones_to_clean(&mut self, budget_bytes: u64, reserve_bytes: u64) -> Vec<TailZone> {
        let geometry = self.geometry;
        let unit = u64::from(geometry.unit_bytes());
        let mut tail = Vec::new();
        // What is in quarantine frees itself; only free space can take something in.
        let mut free_below = self.report().free_bytes;
        let mut moved = 0;
        for zone in (0..self.count).rev() {
            let Some(info) = self.zone(zone) else { break };
            if info.out {
                break;
            }
            let there = self.there(zone);
            let held_bytes = u64::from(there - info.free.min(there)) * unit;
            free_below = free_below.saturating_sub(u64::from(info.free) * unit);
            moved += held_bytes;
            if moved > budget_bytes || moved.saturating_add(reserve_bytes) > free_below {
                break;
            }
            let len_bytes = u64::from(there) * unit;
            let offset_bytes = geometry.zone_offset(zone);
            tail.push(TailZone { zone, offset_bytes, len_bytes, held_bytes });
        }
        self.ceiling = tail.last().map(|last| last.zone);
        if self.ceiling.is_some() {
            self.close_heads();
        }
        tail
    }

    /// Of the last zone the upper part, if what that holds fits into the gaps of the zone below it with `reserve_bytes` to spare,
    /// and an eighth of the zone is free. From now on the lowest gaps are filled first. It is for what does not fit into
    /// the zones below, which is what [`Self::tail_zones_to_clean`] asks for.
    pub fn upper_part_to_move(&mut self, reserve_bytes: u64) -> Option<TailZone> {
        let zone = self.count.checked_sub(1)?;
        if self.zone(zone).is_none_or(|info| info.out) {
            return None;
        }
        let (there, granule) = (self.there(zone), self.granule());
        let unit = u64::from(self.geometry.unit_bytes());
        let reserve = u32::try_from(reserve_bytes.div_ceil(unit)).unwrap_or(u32::MAX);
        let bits = self.held(zone);
        let is_held = |unit: u32| bits[unit as usize / 64] >> (unit % 64) & 1 == 1;
        let held = (0..there).filter(|unit| is_held(*unit)).count() as u32;
        let (mut above, mut free_below) = (0, there - held);
        if free_below < there / SHORTER_PART {
            return None;
        }
        let mut found = None;
        for unit in (0..there).rev() {
            if is_held(unit) {
                above += 1;
            } else {
                free_below -= 1;
            }
            if above + reserve.min(there) > free_below {
                break;
            }
            if unit % granule == 0 {
                found = Some((unit, above));
            }
        }
        let (first, above) = found.filter(|(_, above)| *above > 0)?;
        self.close_heads();
        Some(TailZone {
            zone,
            offset_bytes: self.geometry.zone_offset(zone) + u64::from(first) * unit,
            len_bytes: u64::from(there - first) * unit,
            held_bytes: u64::from(above) * unit,
        })
    }

    /// Ends the shrinking: what is written may go anywhere again.
    pub fn stop_shrinking(&mut self) {
        self.ceiling = None;
    }

    /// The group at the file's end that must be loaded before [`Self::tail_zones_to_clean`] or
    /// [`Self::begin_truncate`] can say anything; `None` if it is loaded.
    pub fn tail_to_load(&mut self) -> Option<LoadGroup> {
        let last = self.groups.len().checked_sub(1)?;
        self.group_unless_loaded(last as u32)
    }

    /// From this offset on nothing is written while there is room below: parts of the map beyond it
    /// are rewritten by the next checkpoint ([`MapView::parts_beyond`](super::map::MapView::parts_beyond)). `None` while the file is
    /// not to shrink.
    pub fn ceiling_bytes(&self) -> Option<u64> {
        self.ceiling.map(|zone| self.geometry.zone_offset(zone))
    }

    /// Zones that may be chosen and hold nothing, ascending.
    pub(super) fn free_zones(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_class[CLASSES - 1].iter().copied()
    }

    fn is_hole(&self, zone: u32) -> bool {
        self.zone(zone).is_some_and(|info| info.blocks == Blocks::Hole)
    }

    fn is_free(&self, zone: u32) -> bool {
        let there = self.there(zone);
        self.zone(zone).is_some_and(|info| !info.out && info.free == there)
    }

    pub(super) fn take_out(&mut self, zone: u32) {
        let info = self.held_mut(zone).1;
        info.out = true;
        self.out_units += u64::from(self.held_mut(zone).1.free);
        self.reclass(zone);
    }

    pub(super) fn put_back(&mut self, zone: u32) {
        let info = self.held_mut(zone).1;
        info.out = false;
        self.out_units -= u64::from(self.held_mut(zone).1.free);
        self.reclass(zone);
    }
}
