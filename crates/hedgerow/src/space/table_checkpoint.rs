//! A checkpoint's side of the allocator: what its map refers to, and the zone table that says so.
//!
//! A checkpoint works on copies of the `referenced` bitmaps: [`Zones::begin_checkpoint`], then
//! [`Zones::refer`] and [`Zones::unrefer`] for each change of the map, then [`Zones::plan_table`],
//! [`Zones::place_table`] and [`Zones::next_table_part`] until there is none, then
//! [`Zones::checkpoint_durable`], or [`Zones::abort_checkpoint`], after which nothing has happened.
//! Allocation goes on meanwhile, for later epochs, and does not show in what is written.
//!
//! How many parts there are to write is known before the first is placed, because the table's own
//! parts have no bits in it (see [`super::table`]). Not shared: the caller's lock covers each call,
//! and none of them reads or writes.

use super::bits::{clear_bits, set_bits};
use super::part::{self, PartBytes, PartKind, PartName};
use super::staged::{Plan, Staged};
use super::table_part::{LoadGroup, TABLE_FANOUT, TablePart, TableRoot};
use super::zone::Group;
use super::zones::Zones;
use crate::error::{Error, Result};
use crate::types::{Epoch, PART_BYTES, Slot};
use std::collections::BTreeMap;

impl Zones {
    /// Begins to record what checkpoint `epoch` refers to. One at a time.
    pub fn begin_checkpoint(&mut self, epoch: Epoch) {
        assert!(self.staged.is_none(), "one checkpoint at a time");
        assert!(epoch > self.quarantine.durable(), "checkpoints go forward");
        // It is since its cut, which whoever has only an allocator has not told.
        self.quarantine.checkpoint_begun(epoch);
        self.staged = Some(Staged {
            epoch,
            groups: BTreeMap::new(),
            entered: Vec::new(),
            left: Vec::new(),
            plan: None,
        });
    }

    /// The checkpoint's map refers to this slot: the image of a page.
    ///
    /// Errors: `Corrupted` for a slot that this file cannot have, or that something else refers to.
    pub fn refer(&mut self, slot: Slot) -> Result<()> {
        let (unit, units) = self.units_of(slot)?;
        self.change_referenced(slot, |words, first| set_bits(words, first, units), unit, units)
    }

    /// The checkpoint's map refers to this slot no more. The slot itself is given up by
    /// [`Self::supersede`], by whoever wrote the newer image.
    ///
    /// Errors: `Corrupted` for a slot that this file cannot have, or that nothing referred to.
    pub fn unrefer(&mut self, slot: Slot) -> Result<()> {
        let (unit, units) = self.units_of(slot)?;
        self.change_referenced(slot, |words, first| clear_bits(words, first, units), unit, units)
    }

    /// The checkpoint wrote a part of the map into this slot. It is given back if the checkpoint
    /// fails. Errors as for [`Self::refer`].
    pub fn refer_part(&mut self, slot: Slot) -> Result<()> {
        self.staged_mut().entered.push(slot);
        self.refer(slot)
    }

    /// The checkpoint replaced or dropped a part of the map that checkpoint `born` wrote. It is
    /// superseded if the checkpoint succeeds. Errors as for [`Self::unrefer`].
    pub fn unrefer_part(&mut self, slot: Slot, born: Epoch) -> Result<()> {
        self.unrefer(slot)?;
        self.staged_mut().left.push(TablePart { slot, born });
        Ok(())
    }

    fn staged_mut(&mut self) -> &mut Staged {
        self.staged.as_mut().expect("a checkpoint was begun")
    }

    fn change_referenced(
        &mut self,
        slot: Slot,
        change: impl FnOnce(&mut [u64], u32) -> u32,
        unit: u64,
        units: u32,
    ) -> Result<()> {
        let (zone, first) = self.geometry.split_unit(unit);
        if !self.change_bits(zone, |words| change(words, first) == units) {
            let what = format!("{slot:?} is referred to twice, or not at all");
            return Err(Error::corrupted_at(slot.offset_bytes(), what));
        }
        Ok(())
    }

    /// Changes the checkpoint's copy of a zone's bitmap. The zone's group is loaded.
    pub(super) fn change_bits<R>(&mut self, zone: u32, change: impl FnOnce(&mut [u64]) -> R) -> R {
        let (group, index) = self.geometry.split_zone(zone);
        let loaded = self.groups[group as usize].loaded.as_deref();
        let loaded = loaded.expect("the group was loaded first, as group_to_load asks");
        let words = self.geometry.words_per_zone();
        let staged = self.staged.as_mut().expect("a checkpoint was begun");
        assert!(staged.plan.is_none(), "the table is written last");
        let bits = staged.groups.entry(group).or_insert_with(|| loaded.referenced.clone());
        let at = index as usize * words;
        change(&mut bits[at..at + words])
    }

    /// Decides which parts of the table checkpoint `epoch` has to write, after the last change of
    /// the map, and returns how many slots of 4 KiB they need. Where the file is to shrink, parts
    /// beyond the ceiling are among them; load [`Self::groups_to_move`] first.
    pub fn plan_table(&mut self) -> usize {
        let geometry = self.geometry;
        let staged = self.staged.take().expect("a checkpoint was begun");
        let beyond = self.ceiling.map_or(u64::MAX, |zone| geometry.zone_offset(zone));
        let moves = |part: &TablePart| !part.slot.is_none() && part.slot.offset_bytes() >= beyond;
        let mut leaves = BTreeMap::new();
        for (index, group) in self.groups.iter().enumerate() {
            let index = index as u32;
            let bits: &[u64] = match (staged.groups.get(&index), group.loaded.as_deref()) {
                (Some(bits), _) => bits,
                (None, Some(loaded)) if moves(&group.part) => &loaded.referenced,
                _ => continue,
            };
            let (units, zones) = summarise(bits, geometry.words_per_zone());
            leaves.insert(index, (TablePart::NONE, units, zones));
        }
        let exists = |index: u32, group: &Group| match leaves.get(&index) {
            Some(&(_, units, _)) => units > 0,
            None => !group.part.slot.is_none(),
        };
        let mut parts: Vec<(u8, u32, u64)> = Vec::new();
        parts.extend(leaves.iter().filter(|(_, leaf)| leaf.1 > 0).map(|(&index, _)| (0, index, 0)));
        // Per child of the level being built: whether it is there, and whether its word changed.
        let mut below: Vec<(bool, bool)> = (0..)
            .zip(&self.groups)
            .map(|(index, group)| (exists(index, group), leaves.contains_key(&index)))
            .collect();
        below.truncate(below.iter().rposition(|child| child.0).map_or(0, |last| last + 1));
        let mut upper: Vec<Vec<TablePart>> = Vec::new();
        while !below.is_empty() && (upper.is_empty() || below.len() > 1) {
            let level = upper.len();
            let before = self.upper.get(level);
            let mut row = Vec::new();
            let mut states = Vec::new();
            for (index, children) in below.chunks(TABLE_FANOUT).enumerate() {
                let old = before.and_then(|row| row.get(index)).copied().unwrap_or(TablePart::NONE);
                let there = children.iter().any(|child| child.0);
                // A shorter row below may have cut off children that this part still names.
                let cut = index == below.len().div_ceil(TABLE_FANOUT) - 1;
                let changed = there
                    && (old.slot.is_none()
                        || moves(&old)
                        || children.iter().any(|child| child.1)
                        || (cut && self.had_more_children(level, below.len())));
                if changed {
                    parts.push((level as u8 + 1, index as u32, 0));
                }
                row.push(if there && !changed { old } else { TablePart::NONE });
                states.push((there, changed || (!there && !old.slot.is_none())));
            }
            upper.push(row);
            below = states;
        }
        let count = parts.len();
        let root = TableRoot::EMPTY;
        self.staged = Some(Staged {
            plan: Some(Plan { parts, written: 0, leaves, upper, root, units: 0 }),
            ..staged
        });
        count
    }

    /// Whether the table on disk has children at a level beyond `len` of them.
    fn had_more_children(&self, level: usize, len: usize) -> bool {
        if level == 0 {
            self.groups.iter().skip(len).any(|group| !group.part.slot.is_none())
        } else {
            self.upper[level - 1].iter().skip(len).any(|part| !part.slot.is_none())
        }
    }

    /// Groups to load before [`Self::plan_table`], because their parts lie beyond the ceiling.
    pub fn groups_to_move(&mut self) -> Vec<LoadGroup> {
        let Some(ceiling) = self.ceiling else { return Vec::new() };
        let beyond = self.geometry.zone_offset(ceiling);
        let far = |group: &Group| {
            group.loaded.is_none()
                && !group.part.slot.is_none()
                && group.part.slot.offset_bytes() >= beyond
        };
        let far: Vec<u32> = (0..)
            .zip(&self.groups)
            .filter(|(_, group)| far(group))
            .map(|(index, _)| index)
            .collect();
        far.into_iter().filter_map(|index| self.group_unless_loaded(index)).collect()
    }

    /// Gives the planned parts their places: exactly as many offsets as [`Self::plan_table`] said,
    /// from [`Self::allocate`].
    pub fn place_table(&mut self, offsets: &[u64]) {
        let staged = self.staged_mut();
        let plan = staged.plan.as_mut().expect("the table was planned");
        assert_eq!(plan.parts.len(), offsets.len(), "one place for each part");
        for (part, &offset) in plan.parts.iter_mut().zip(offsets) {
            part.2 = offset;
            // The tag is not known yet; giving back needs none.
            staged.entered.push(part::slot_at(offset, 0));
        }
    }

    /// Encodes the next part of the table into `out` and returns the offset that it goes to; `None`
    /// when all are done. The caller writes it before the superblock, in any order.
    pub fn next_table_part(&mut self, out: &mut PartBytes) -> Option<u64> {
        let mut staged = self.staged.take()?;
        let plan = staged.plan.as_mut().expect("the table was planned");
        let Some(&(level, index, offset)) = plan.parts.get(plan.written) else {
            self.staged = Some(staged);
            return None;
        };
        plan.written += 1;
        out.fill(0);
        if level == 0 {
            let loaded = self.groups[index as usize].loaded.as_deref();
            let bits = staged.groups.get(&index).or(loaded.map(|loaded| &loaded.referenced));
            for (i, &word) in bits.into_iter().flatten().enumerate() {
                part::set_word(out, i, word);
            }
        } else {
            let first = index as usize * TABLE_FANOUT;
            for child in 0..TABLE_FANOUT {
                let words = self.child_words(plan, level - 1, first + child);
                part::set_word(out, 2 * child, words.0);
                part::set_word(out, 2 * child + 1, words.1);
            }
        }
        let name = PartName { kind: PartKind::ZoneTable, level, index };
        let checksum = part::encode(out, name, staged.epoch);
        let written = TablePart { slot: part::slot_at(offset, checksum), born: staged.epoch };
        if level == 0 {
            if let Some(leaf) = plan.leaves.get_mut(&index) {
                leaf.0 = written;
            }
        } else {
            plan.upper[usize::from(level) - 1][index as usize] = written;
        }
        plan.root.checksum = checksum;
        self.staged = Some(staged);
        Some(offset)
    }

    fn child_words(&self, plan: &Plan, level: u8, at: usize) -> (u64, u64) {
        if level > 0 {
            let child = plan.upper[usize::from(level) - 1].get(at);
            return (child.map_or(0, |child| child.slot.word()), 0);
        }
        let (part, units, zones) = match (plan.leaves.get(&(at as u32)), self.groups.get(at)) {
            (Some(&leaf), _) => leaf,
            (None, Some(group)) => (group.part, group.referenced_units, group.referenced_zones),
            (None, None) => return (0, 0),
        };
        if units == 0 {
            (0, 0)
        } else {
            (part.slot.word(), u64::from(units) | u64::from(zones) << 32)
        }
    }

    /// The root of the table that was written, for the superblock. `before` is the root of the last
    /// checkpoint: it stays if nothing had to be written.
    pub fn table_root(&mut self, before: &TableRoot) -> TableRoot {
        let staged = self.staged.as_ref().expect("a checkpoint was begun");
        let plan = staged.plan.as_ref().expect("the table was planned");
        // Once: of a group that somebody reads later it could tell more exactly, and the file be cut shorter than the superblock says.
        let units = self.needed(staged, plan);
        assert_eq!(plan.written, plan.parts.len(), "every part of the table is written");
        let root = if plan.parts.is_empty() && !plan.upper.is_empty() {
            *before
        } else if let Some(top) = plan.upper.last().and_then(|row| row.first()) {
            let used = |(index, group)| u64::from(self.leaf_of(plan, index, group).1);
            TableRoot {
                slot: top.slot,
                checksum: plan.root.checksum,
                levels: plan.upper.len() as u8 + 1,
                units,
                used_units: (0..).zip(&self.groups).map(used).sum(),
            }
        } else {
            TableRoot::EMPTY
        };
        if let Some(plan) = self.staged.as_mut().and_then(|staged| staged.plan.as_mut()) {
            plan.units = units;
        }
        root
    }

    /// Part, units in use, and zones up to the last one in use, of a group as a plan has it.
    fn leaf_of(&self, plan: &Plan, index: u32, group: &Group) -> (TablePart, u32, u32) {
        match plan.leaves.get(&index) {
            Some(&leaf) => leaf,
            None => (group.part, group.referenced_units, group.referenced_zones),
        }
    }

    /// Units up to the last one that a checkpoint refers to, parts of its table included. Of a group that is not in memory
    /// its last zone counts as far as it is there.
    fn needed(&self, staged: &Staged, plan: &Plan) -> u64 {
        let (mut needed, mut slots) = (0, Vec::new());
        for (index, group) in (0..).zip(&self.groups) {
            let (part, units, zones) = self.leaf_of(plan, index, group);
            if units > 0 {
                let (first, _) = self.group_units(index);
                let loaded = group.loaded.as_deref().map(|loaded| &*loaded.referenced);
                let bits = staged.groups.get(&index).map(|bits| &**bits).or(loaded);
                let in_zone = |zone: u32| self.geometry.units_of_zones(zone);
                needed = match bits {
                    Some(bits) => first + self.end_of(bits),
                    None => (first + in_zone(zones)).min(self.units),
                };
                slots.push(part.slot);
            }
        }
        slots.extend(plan.upper.iter().flatten().map(|part| part.slot));
        let ends = slots.into_iter().filter_map(|slot| self.geometry.slot_units(slot, self.units));
        ends.map(|(unit, units)| unit + u64::from(units)).fold(needed, u64::max)
    }

    /// Units of a group up to the last one whose bit is set.
    fn end_of(&self, bits: &[u64]) -> u64 {
        let words = self.geometry.words_per_zone();
        let Some(last) = bits.iter().rposition(|&word| word != 0) else { return 0 };
        let in_zone = (last % words) as u64 * 64 + u64::from(64 - bits[last].leading_zeros());
        self.geometry.units_of_zones((last / words) as u32) + in_zone
    }

    /// The checkpoint that was begun is durable: its superblock is synced. What waited for that,
    /// [`Self::free_ripe`] frees.
    pub fn checkpoint_durable(&mut self) -> Result<()> {
        let Some(staged) = self.staged.take() else { return Ok(()) };
        let kept = |plan: &Plan| plan.parts.is_empty() && !plan.upper.is_empty();
        if let Some(plan) = staged.plan.as_ref().filter(|plan| !kept(plan)) {
            self.needed_units = plan.units;
        }
        let plan = staged.plan.expect("the table was planned and written");
        let mut left = staged.left;
        for (index, (part, units, zones)) in plan.leaves {
            // Zones without anything in use may have been truncated meanwhile.
            let Some(group) = self.groups.get_mut(index as usize) else { continue };
            left.push(std::mem::replace(&mut group.part, part));
            group.referenced_units = units;
            group.referenced_zones = zones;
        }
        for (index, bits) in staged.groups {
            let group = self.groups.get_mut(index as usize);
            if let Some(loaded) = group.and_then(|group| group.loaded.as_mut()) {
                loaded.referenced = bits;
            }
        }
        let old = std::mem::replace(&mut self.upper, plan.upper);
        for (level, row) in old.into_iter().enumerate() {
            for (index, part) in row.into_iter().enumerate() {
                if self.upper.get(level).and_then(|row| row.get(index)) != Some(&part) {
                    left.push(part);
                }
            }
        }
        for part in left.into_iter().filter(|part| !part.slot.is_none()) {
            self.supersede(part.slot, part.born, staged.epoch)?;
        }
        self.quarantine.checkpoint_durable(staged.epoch);
        Ok(())
    }

    /// Frees up to `most` of the slots, or runs of neighbouring ones, that waited for a checkpoint that is durable now. False: there are no
    /// more.
    pub fn free_ripe(&mut self, most: usize) -> bool {
        let mut free = Vec::with_capacity(most);
        let more = self.quarantine.release_ripe(most, |unit, units| free.push((unit, units)));
        let per_zone = u64::from(self.geometry.units_per_zone());
        for (first, units) in free {
            let (mut unit, end) = (first, first + u64::from(units));
            while unit < end {
                let next = end.min((unit / per_zone + 1) * per_zone);
                self.release(unit, (next - unit) as u32);
                unit = next;
            }
        }
        more
    }

    /// The checkpoint that was begun failed before its superblock was written: the space is as if
    /// it had not been tried. After a superblock write that *may* have succeeded neither this nor
    /// [`Self::checkpoint_durable`] may be called: the store writes nothing any more. What waited for it alone,
    /// [`Self::free_ripe`] frees.
    pub fn abort_checkpoint(&mut self) {
        for slot in self.staged.take().map_or_else(Vec::new, |staged| staged.entered) {
            self.give_back(slot.offset_bytes(), PART_BYTES as u32);
        }
        self.quarantine.checkpoint_failed();
    }
}

/// Units set in a group's bitmaps, and zones up to the last one that has any.
fn summarise(bits: &[u64], words_per_zone: usize) -> (u32, u32) {
    let units = bits.iter().map(|word| word.count_ones()).sum();
    let zones =
        bits.iter().rposition(|&word| word != 0).map_or(0, |last| last / words_per_zone + 1);
    (units, zones as u32)
}
