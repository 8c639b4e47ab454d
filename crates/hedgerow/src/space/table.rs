//! The zone table: the allocator's bitmaps as a checkpoint saw them, in parts.
//!
//! A leaf part holds the bitmaps of one group of zones, zone after zone, each rounded up to whole
//! words. An upper part holds two words for each of 254 children: the child's slot, and on level 1 a
//! summary: units in use (low 32 bits) and zones up to the last one in use (next 16 bits). The root
//! is at level 1 or above, or absent. `open` reads the upper parts, one for 3.5 GiB of a store of
//! 4 KiB pages, and no leaf.
//!
//! What the bitmaps say is which units the *checkpoint* refers to by its page map: images of pages,
//! and parts of the map. Not what is in quarantine, and nothing of later epochs: after a crash that
//! is all free. And not the table's own parts: those are found by the table itself, so that writing
//! a bitmap never changes one, and rewriting one group never drags another along.
//!
//! Writing it is in [`super::table_checkpoint`]. Not shared: the caller's lock covers each call, and nothing
//! here reads by itself but through the closure that `open` is given.

use super::geometry::{Geometry, PART_CONTENT_WORDS};
use super::part::{self, MAX_LEVELS, PartBytes, PartKind, PartName};
use super::table_part::{LoadGroup, TABLE_FANOUT, TablePart, TableRoot};
use super::zones::Zones;
use crate::error::{Error, Result};
use crate::types::{Epoch, PART_BYTES, Slot};

impl Zones {
    /// Opens the space of a store as its newest checkpoint `newest` left it. `read` fills a part
    /// from a slot; it is called for upper parts only.
    ///
    /// Errors: those of `read`; `Corrupted` if the file is shorter than the checkpoint needs, or a
    /// part is damaged or contradicts another.
    pub fn open(
        geometry: Geometry,
        root: &TableRoot,
        newest: Epoch,
        file_bytes: u64,
        read: &mut dyn FnMut(Slot, &mut PartBytes) -> Result<()>,
    ) -> Result<Zones> {
        let file_units = geometry.units_in(file_bytes);
        if root.units > file_units {
            let needed = geometry.unit_offset(root.units);
            let what =
                format!("the file ends before byte {needed}, which its last checkpoint needs");
            return Err(Error::corrupted_at(file_bytes, what));
        }
        let mut zones = Zones::empty(geometry, file_units, newest);
        zones.needed_units = root.units;
        if root.levels > 0 {
            zones.read_upper(root, newest, read)?;
        }
        let used: u64 = zones.groups.iter().map(|group| u64::from(group.referenced_units)).sum();
        if used != root.used_units {
            let what = format!("zone table: {used} units in use, {} expected", root.used_units);
            return Err(Error::corrupted_at(root.slot.offset_bytes(), what));
        }
        let units = u64::from(geometry.units_for(PART_BYTES as u32));
        zones.held_units = used + units * zones.table_slots().count() as u64;
        if zones.held_units > file_units {
            let what =
                format!("zone table: {} units in use in a file of {file_units}", zones.held_units);
            return Err(Error::corrupted_at(root.slot.offset_bytes(), what));
        }
        Ok(zones)
    }

    fn read_upper(
        &mut self,
        root: &TableRoot,
        newest: Epoch,
        read: &mut dyn FnMut(Slot, &mut PartBytes) -> Result<()>,
    ) -> Result<()> {
        let top = root.levels - 1;
        if !(2..=MAX_LEVELS).contains(&root.levels) {
            return Err(Error::corrupted_at(root.slot.offset_bytes(), "zone table: no such depth"));
        }
        let mut bytes = part::new_bytes();
        self.upper = (1..=top).map(|_| Vec::new()).collect();
        // A row is as long as both the file's groups and the rows above it allow.
        let mut in_file = self.groups.len();
        for level in 1..=top {
            in_file = in_file.div_ceil(TABLE_FANOUT).max(1);
            let below_root = TABLE_FANOUT.saturating_pow(u32::from(top - level));
            self.upper[usize::from(level) - 1] = vec![TablePart::NONE; in_file.min(below_root)];
        }
        self.check_part_slot(root.slot)?;
        self.upper[usize::from(top) - 1][0] = TablePart { slot: root.slot, born: Epoch(0) };
        for level in (1..=top).rev() {
            for index in 0..self.upper[usize::from(level) - 1].len() {
                let slot = self.upper[usize::from(level) - 1][index].slot;
                if slot.is_none() {
                    continue;
                }
                read(slot, &mut bytes)?;
                let name = PartName { kind: PartKind::ZoneTable, level, index: index as u32 };
                let checksum = part::decode(&bytes, name, slot, newest)?;
                if level == top && checksum != root.checksum {
                    return Err(Error::corrupted_at(slot.offset_bytes(), "zone table: stale root"));
                }
                self.upper[usize::from(level) - 1][index].born = part::epoch(&bytes);
                for child in 0..TABLE_FANOUT {
                    let at = index * TABLE_FANOUT + child;
                    let words = (part::word(&bytes, 2 * child), part::word(&bytes, 2 * child + 1));
                    self.adopt_child(level - 1, at, words, slot)?;
                }
            }
        }
        Ok(())
    }

    fn adopt_child(&mut self, level: u8, at: usize, words: (u64, u64), parent: Slot) -> Result<()> {
        let (word, summary) = words;
        if word == 0 && summary == 0 {
            return Ok(());
        }
        let damaged = |what| Err(Error::corrupted_at(parent.offset_bytes(), what));
        if word & !Slot::MASK != 0 {
            return damaged("zone table: a word is no slot");
        }
        let slot = Slot::from_word(word);
        self.check_part_slot(slot)?;
        let found = TablePart { slot, born: Epoch(0) };
        if level > 0 {
            let Some(place) = self.upper[usize::from(level) - 1].get_mut(at) else {
                return damaged("zone table: a part beyond the file");
            };
            if summary != 0 {
                return damaged("zone table: an upper part has a summary");
            }
            *place = found;
            return Ok(());
        }
        if at >= self.groups.len() {
            return damaged("zone table: a group beyond the file");
        }
        let (units, zones) = (summary as u32, (summary >> 32) as u32);
        let most = zones.saturating_mul(self.geometry.units_per_zone());
        if units == 0 || units > most || zones > self.zones_in_group(at as u32) {
            return damaged("zone table: a summary that cannot be");
        }
        let group = &mut self.groups[at];
        group.part = found;
        group.referenced_units = units;
        group.referenced_zones = zones;
        Ok(())
    }

    fn check_part_slot(&self, slot: Slot) -> Result<()> {
        self.units_of(slot)?;
        if !part::is_part_slot(slot) {
            return Err(Error::corrupted_at(
                slot.offset_bytes(),
                "a part's slot of another length",
            ));
        }
        Ok(())
    }

    /// All groups that are not in memory: what a full verification reads first.
    pub fn groups_to_load(&mut self) -> Vec<LoadGroup> {
        let mut wanted = Vec::new();
        for index in 0..self.groups.len() as u32 {
            wanted.extend(self.group_unless_loaded(index));
        }
        wanted
    }

    /// The group to load before [`Self::refer`] or [`Self::unrefer`] takes this slot, if any. A
    /// group that was loaded once stays.
    ///
    /// Errors: `Corrupted` for a slot that this file cannot have.
    pub fn group_to_load(&mut self, slot: Slot) -> Result<Option<LoadGroup>> {
        let (unit, _) = self.units_of(slot)?;
        let (zone, _) = self.geometry.split_unit(unit);
        let (group, _) = self.geometry.split_zone(zone);
        Ok(self.group_unless_loaded(group))
    }

    /// Whether the group's bitmaps still lie where they were to be read, and are not in memory.
    pub fn is_wanted(&self, wanted: LoadGroup) -> bool {
        let place = self.groups.get(wanted.group as usize);
        place.is_some_and(|place| place.loaded.is_none() && place.part.slot == wanted.slot)
    }

    /// Takes in the part that a [`LoadGroup`] asked for. A group that is loaded by now is left alone.
    ///
    /// Errors: `Corrupted` at the part's offset.
    pub fn load_group(&mut self, wanted: LoadGroup, bytes: &PartBytes) -> Result<()> {
        if !self.is_wanted(wanted) {
            return Ok(());
        }
        let LoadGroup { group, slot } = wanted;
        let place = &self.groups[group as usize];
        let name = PartName { kind: PartKind::ZoneTable, level: 0, index: group };
        part::decode(bytes, name, slot, self.quarantine.durable())?;
        let damaged = |what| Err(Error::corrupted_at(slot.offset_bytes(), what));
        let words = self.geometry.words_per_zone();
        let (mut units, mut zones) = (0, 0);
        for index in 0..PART_CONTENT_WORDS {
            let word = part::word(bytes, index);
            let (zone, in_zone) = ((index / words) as u32, index % words);
            let bits = self.geometry.units_per_zone() as usize
                - (in_zone * 64).min(self.geometry.units_per_zone() as usize);
            let beyond = if bits >= 64 { 0 } else { !0 << bits };
            let at = group * self.geometry.zones_per_group() + zone;
            let end = in_zone as u32 * 64 + 64 - word.leading_zeros();
            if word & beyond != 0 || (word != 0 && end > self.there(at)) {
                return damaged("zone table: a unit beyond its zone or the file");
            }
            units += word.count_ones();
            if word != 0 {
                zones = zone + 1;
            }
        }
        if units != place.referenced_units || zones != place.referenced_zones {
            return damaged("zone table: a bitmap that its summary contradicts");
        }
        self.groups[group as usize].part.born = part::epoch(bytes);
        self.install(group, Some(bytes));
        Ok(())
    }

    /// Whether the checkpoint that was opened refers to what begins in this slot; `None` where the group's bitmaps are not
    /// in memory, or there is no such slot.
    pub fn is_referenced(&self, slot: Slot) -> Option<bool> {
        let (unit, _) = self.units_of(slot).ok()?;
        let (zone, first) = self.geometry.split_unit(unit);
        let (group, index) = self.geometry.split_zone(zone);
        let loaded = self.groups.get(group as usize)?.loaded.as_deref()?;
        let bit = index as usize * self.geometry.words_per_zone() * 64 + first as usize;
        Some(loaded.referenced[bit / 64] >> (bit % 64) & 1 == 1)
    }
}
