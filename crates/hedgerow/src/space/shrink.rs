//! Giving space back: holes in the middle of the file, truncation at its end, and what to move there.
//!
//! A zone being punched or truncated is out of the allocator from `begin` until the system call has
//! returned and `end` was called: otherwise the call could destroy an image that was written to it
//! meanwhile. Growth and truncation exclude each other for the same reason. Only zones in which
//! nothing is held take part, so a punch or a cut that a crash undoes, or does only half, loses
//! nothing: no checkpoint that could be opened refers to them, and a checkpoint says itself how many
//! zones it needs. Not shared: the caller's lock covers each call, and none of them does I/O.

use super::table::LoadGroup;
use super::zones::{Blocks, CLASSES, Fill, Growth, Zones};
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

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

/// Free zones at the file's end: report back by [`Zones::end_truncate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Truncate {
    /// Zones that are left.
    pub zones: u32,
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
        self.take_out(zone);
        Fill {
            zone,
            offset_bytes: self.geometry.zone_offset(zone),
            len_bytes: u64::from(self.geometry.zone_bytes()),
            is_hole: self.is_hole(zone),
        }
    }

    /// The zone that [`super::zones::Want::Fill`] named has blocks now, or could not get any.
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

    /// A zone to fill although nobody wants to write to it yet: the lowest that may have blocks, or if none may,
    /// and filling was not refused, the lowest hole. `None` if all that are loaded are solid.
    pub fn fill_ahead(&mut self, growth: Growth) -> Option<Fill> {
        let is = |zone: u32, blocks| self.zone(zone).is_some_and(|info| info.blocks == blocks);
        let unknown = self.free_zones().find(|&zone| is(zone, Blocks::Unknown));
        let hole = || self.free_zones().find(|&zone| is(zone, Blocks::Hole));
        let zone = unknown.or_else(|| if growth == Growth::Allowed { hole() } else { None })?;
        Some(self.begin_fill(zone))
    }

    /// Takes the free zones at the file's end out in order to cut them off. `None` if the last zone
    /// is in use, if one of them is being punched, or while the file grows or is cut already.
    ///
    /// `keep_slots` stay free in solid zones: the room of those who were let in to write.
    pub fn begin_truncate(&mut self, keep_slots: u64) -> Option<Truncate> {
        if self.growing > 0 || self.truncating.is_some() {
            return None;
        }
        let mut zones = self.count;
        let mut room = self.room.load(Relaxed);
        while zones > 0 && self.is_free(zones - 1) {
            let less = self.zone(zones - 1).map_or(0, |info| u64::from(info.room));
            if less > 0 && room < less + keep_slots {
                break;
            }
            room -= less;
            zones -= 1;
        }
        if zones == self.count {
            return None;
        }
        self.close_heads();
        for zone in zones..self.count {
            self.take_out(zone);
        }
        self.truncating = Some(zones);
        Some(Truncate { zones, file_bytes: self.geometry.zone_offset(zones) })
    }

    /// The truncation has returned; `done` is whether the file is shorter now. If not, its zones are
    /// free again.
    pub fn end_truncate(&mut self, done: bool) {
        let Some(zones) = self.truncating.take() else { return };
        for zone in zones..self.count {
            if done {
                self.holes -= u32::from(self.is_hole(zone));
                self.held_mut(zone).1.blocks = Blocks::Solid;
            }
            self.put_back(zone);
        }
        if done {
            let old = std::mem::replace(&mut self.count, zones);
            for zone in zones..old {
                self.reclass(zone);
            }
            let groups = zones.div_ceil(self.geometry.zones_per_group()) as usize;
            self.groups.truncate(groups);
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
            let held_bytes = u64::from(geometry.units_per_zone() - info.free) * unit;
            free_below = free_below.saturating_sub(u64::from(info.free) * unit);
            moved += held_bytes;
            if moved > budget_bytes || moved.saturating_add(reserve_bytes) > free_below {
                break;
            }
            let len_bytes = u64::from(geometry.zone_bytes());
            let offset_bytes = geometry.zone_offset(zone);
            tail.push(TailZone { zone, offset_bytes, len_bytes, held_bytes });
        }
        self.ceiling = tail.last().map(|last| last.zone);
        if self.ceiling.is_some() {
            self.close_heads();
        }
        tail
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
    /// are rewritten by the next checkpoint ([`super::map::parts_beyond`]). `None` while the file is
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
        let per_zone = self.geometry.units_per_zone();
        self.zone(zone).is_some_and(|info| !info.out && info.free == per_zone)
    }

    fn take_out(&mut self, zone: u32) {
        self.held_mut(zone).1.out = true;
        self.out_units += u64::from(self.geometry.units_per_zone());
        self.reclass(zone);
    }

    fn put_back(&mut self, zone: u32) {
        self.held_mut(zone).1.out = false;
        self.out_units -= u64::from(self.geometry.units_per_zone());
        self.reclass(zone);
    }
}
