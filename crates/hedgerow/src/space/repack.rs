//! Which zone is to be emptied so that what lies at the file's end fits into it without gaps, and what that is.
//!
//! Images have many lengths, so the gaps that old ones leave are too short for most new ones, and moving the tail into gaps
//! comes to an end before the file is short. A zone that is emptied is one long gap. It is out of the allocator until
//! a checkpoint has made that durable; what was in it goes to the file's end meanwhile.
//!
//! Not shared: the caller's lock covers each call, and none of them does I/O.

use super::shrink::TailZone;
use super::table_part::LoadGroup;
use super::zones::Zones;

/// A zone of which less than this part is free stays as it is.
const WORTHWHILE_PART: u32 = 48;
/// Of a zone that was emptied, so large a part is not counted on: parts of the map may go there as well.
const LEFT_PART: u64 = 32;

impl Zones {
    /// The group of a zone that must be loaded before anything can be said of it; `None` if it is loaded, or there is no such zone.
    pub fn zone_to_load(&mut self, zone: u32) -> Option<LoadGroup> {
        let (group, _) = self.geometry.split_zone(zone);
        if zone < self.count { self.group_unless_loaded(group) } else { None }
    }

    /// Takes a zone out in order to empty it, and says what is in it. `None`: it is not worth it, is out already, or its group is not
    /// loaded. Report back by [`Self::end_repack`].
    pub fn begin_repack(&mut self, zone: u32) -> Option<TailZone> {
        let there = self.there(zone);
        let info = self.zone(zone).filter(|info| !info.out)?;
        let free = info.free.min(there);
        if free == there || free < there / WORTHWHILE_PART {
            return None;
        }
        self.close_heads();
        self.take_out(zone);
        Some(self.piece(zone, 0))
    }

    /// The zone may be chosen again.
    pub fn end_repack(&mut self, zone: u32) {
        if self.zone(zone).is_some_and(|info| info.out) {
            self.put_back(zone);
        }
    }

    /// What lies at the file's end beyond `zone` and fits into what is free there, the last first. From now on nothing is written
    /// to where it lies, or behind, while there is room before; until [`Self::stop_shrinking`].
    pub fn end_that_fits(&mut self, zone: u32) -> Vec<TailZone> {
        let free = self.zone(zone).map_or(0, |info| u64::from(info.free.min(self.there(zone))));
        let mut left = free - free / LEFT_PART;
        let (mut found, mut ceiling) = (Vec::new(), None);
        for last in (zone + 1..self.count).rev() {
            let there = self.there(last);
            let Some(info) = self.zone(last).filter(|info| !info.out) else { break };
            let held = u64::from(there - info.free.min(there));
            if held <= left {
                left -= held;
                ceiling = Some(last);
                found.push(self.piece(last, 0));
                continue;
            }
            let first = self.first_that_fits(last, left);
            if first < there {
                ceiling = Some(last);
                found.push(self.piece(last, first));
            }
            break;
        }
        if found.iter().all(|piece| piece.held_bytes == 0) {
            return Vec::new();
        }
        self.ceiling = ceiling;
        self.close_heads();
        found
    }

    /// The unit of a zone from which on no more than `most` units are held.
    fn first_that_fits(&self, zone: u32, most: u64) -> u32 {
        let (there, granule) = (self.there(zone), self.granule());
        let bits = self.held(zone);
        let is_held = |unit: u32| bits[unit as usize / 64] >> (unit % 64) & 1 == 1;
        let (mut held, mut first) = (0, there);
        for unit in (0..there).rev() {
            held += u64::from(is_held(unit));
            if held > most {
                break;
            }
            if unit % granule == 0 {
                first = unit;
            }
        }
        first
    }

    /// What lies in a zone from a unit on.
    fn piece(&self, zone: u32, first: u32) -> TailZone {
        let unit = u64::from(self.geometry.unit_bytes());
        let there = self.there(zone);
        let bits = self.held(zone);
        let is_held = |unit: &u32| bits[*unit as usize / 64] >> (unit % 64) & 1 == 1;
        let held = (first..there).filter(is_held).count() as u64;
        TailZone {
            zone,
            offset_bytes: self.geometry.zone_offset(zone) + u64::from(first) * unit,
            len_bytes: u64::from(there - first) * unit,
            held_bytes: held * unit,
        }
    }
}
