//! The allocator of slots: which units of which zones are taken, and where the next image goes.
//!
//! A write stream fills its current zone front to back. When the zone is full the next one is the
//! emptiest that there is, the lower one of two alike: a zone with a quarter free before a zone of
//! the table that is not in memory yet, that before a zone with a sixteenth free, that before
//! growing the file, that before the last gaps. While the file is to shrink, nothing is written beyond
//! its ceiling as long as there is any gap below. Parts go to a stream of their own where they differ
//! in length from pages, so that they do not cut up the runs that pages need, and so do extents
//! (`space/large/units.rs`).
//!
//! Two bitmaps a zone, both in units: *held* is what must not be written (referred to, or in
//! quarantine, or handed out since), *referenced* is what the newest complete checkpoint refers to,
//! and what the zone table says ([`super::table`]). Bitmaps are loaded by the group, when first
//! needed, and stay: opening reads none, and all of them together are 1/2,048 of a file
//! with units of 512 bytes. Reading
//! is the caller's business: [`Want`] says what to do first, and nothing has changed by then.
//!
//! A zone is *solid* if all of it has blocks on the disk, so that writing to it needs no room. Nothing is
//! written to one that is not: a hole, or a zone that was not written to since its group was loaded, is filled first.
//! What solid zones have free is counted in pages, for [`super::room`].
//!
//! Invariants: `held` contains `referenced`; a unit is handed out only while it is not held; header
//! region + used + free + quarantined + out = file, in bytes (`audit.rs`). Not shared: the
//! caller keeps one lock around all of it, which comes last in the latch order.

use super::bits::{clear_before, clear_bits, clear_up_to, free_run, longest_run, set_bits};
use super::geometry::Geometry;
use super::large::ExtentSpace;
use super::part::{self, PartBytes};
use super::quarantine::Quarantine;
use super::runs::Runs;
use super::staged::Staged;
use super::table_part::{LoadGroup, TablePart};
use super::zone::{
    Blocks, CLASSES, Group, Growth, Head, Loaded, NO_CLASS, ROOMY, UNKNOWN, WORTHWHILE, Want, Zone,
};
use crate::error::{Error, Result};
use crate::types::{Epoch, Slot};
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::figure::Figure;
use std::collections::BTreeSet;

const STREAMS: usize = 3;
/// The stream of extents of up to a zone; of the others pages have the first.
pub(super) const EXTENT_STREAM: usize = 2;

/// See the file's header.
#[derive(Debug)]
pub struct Zones {
    pub(super) geometry: Geometry,
    /// Zones in the file, the last of which may be there in part.
    pub(super) count: u32,
    /// Units in the file.
    pub(super) units: u64,
    /// Units up to the last one that the newest durable checkpoint needs, as its superblock says.
    pub(super) needed_units: u64,
    /// See [`Zones::eighth`].
    pub(super) eighth: Arc<Figure>,
    pub(super) groups: Vec<Group>,
    /// Those of them that are in memory.
    pub(super) loaded_groups: usize,
    /// Upper levels of the zone table: `upper[0]` is level 1.
    pub(super) upper: Vec<Vec<TablePart>>,
    pub(super) staged: Option<Staged>,
    pub(super) quarantine: Quarantine,
    pub(super) extents: ExtentSpace,
    /// Zones that may be chosen, by class.
    pub(super) by_class: [BTreeSet<u32>; CLASSES],
    /// Those of them that may have no blocks, and may have some: [`Blocks::Unknown`].
    pub(super) unsure: BTreeSet<u32>,
    pub(super) heads: [Option<Head>; STREAMS],
    pub(super) held_units: u64,
    /// Zones out of the allocator, in units.
    pub(super) out_units: u64,
    /// Growths handed out and not reported back.
    pub(super) growing: u32,
    /// The length, in units, that a truncation under way leaves.
    pub(super) truncating: Option<u64>,
    /// The file is to shrink: no zone from here on is chosen while there is room below.
    pub(super) ceiling: Option<u32>,
    /// What lies beyond it is not even taken if there is no room below.
    pub(super) is_ceiling_firm: bool,
    pub(super) holes: u32,
    /// Free slots of a page in solid zones; changes under the caller's lock, and is read without.
    pub(super) room: Arc<Figure>,
}

impl Zones {
    /// The space of a new store: a header region and no zone.
    pub fn create(geometry: Geometry) -> Zones {
        Zones::empty(geometry, 0, Epoch(0))
    }

    pub(super) fn empty(geometry: Geometry, units: u64, durable: Epoch) -> Zones {
        let count = geometry.zones_of_units(units);
        let groups = count.div_ceil(geometry.zones_per_group()) as usize;
        let mut zones = Zones {
            geometry,
            count,
            units,
            needed_units: 0,
            eighth: Arc::new(Figure::new(0)),
            groups: (0..groups).map(|_| Group::EMPTY).collect(),
            loaded_groups: 0,
            upper: Vec::new(),
            staged: None,
            quarantine: Quarantine::new(durable),
            extents: ExtentSpace::default(),
            by_class: std::array::from_fn(|_| BTreeSet::new()),
            unsure: BTreeSet::new(),
            heads: [None; STREAMS],
            held_units: 0,
            out_units: 0,
            growing: 0,
            truncating: None,
            ceiling: None,
            is_ceiling_firm: false,
            holes: 0,
            room: Arc::new(Figure::new(0)),
        };
        zones.resized();
        zones
    }

    /// The sizes that the file is cut up by.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Free slots of a page in solid zones: may be read without the caller's lock.
    pub fn room(&self) -> Arc<Figure> {
        self.room.clone()
    }

    /// Groups of zones.
    pub fn groups(&self) -> u64 {
        self.groups.len() as u64
    }

    /// Zones in the file now, the last of which may be there in part.
    pub fn zone_count(&self) -> u32 {
        self.count
    }

    /// Takes `count` slots of `len_bytes`, a part's length, and appends their offsets
    /// to `out`, in the order of the file as far as it can be. All or nothing.
    ///
    /// `Err` says what to do first; nothing has changed. Loop until `Ok`, or [`Want::Full`], which is a full disk.
    pub fn allocate(
        &mut self,
        len_bytes: u32,
        count: usize,
        growth: Growth,
        out: &mut Vec<u64>,
    ) -> Result<(), Want> {
        let units = self.geometry.units_for(len_bytes).max(1);
        // Among images of other lengths few parts would begin with a block of the device.
        let is_alike = units == 1 && len_bytes == self.geometry.page_bytes();
        let stream = usize::from(!is_alike);
        let before = out.len();
        for _ in 0..count {
            match self.take(units, stream, growth) {
                Ok(unit) => out.push(self.geometry.unit_offset(unit)),
                Err(want) => {
                    for offset in out.drain(before..) {
                        self.give_back(offset, len_bytes);
                    }
                    self.growing_for(&want);
                    return Err(want);
                }
            }
        }
        Ok(())
    }

    pub(super) fn take(&mut self, units: u32, stream: usize, growth: Growth) -> Result<u64, Want> {
        assert!(units <= self.geometry.units_per_zone(), "a slot is larger than a zone");
        let stream = if self.is_small() { 0 } else { stream };
        loop {
            if let Some(head) = self.heads[stream] {
                // The beginning of what is free there: a slot out of the middle of a run would cost the room of two.
                let per_zone = self.geometry.units_per_zone();
                if let Some(unit) = free_run(self.held(head.zone), per_zone, head.unit, units) {
                    return Ok(self.take_at(stream, head.zone, unit, units));
                }
                self.close_head(stream);
            }
            self.open_head(stream, units, growth)?;
        }
    }

    /// Begins to fill a zone that has a run of `units`.
    pub(super) fn open_head(
        &mut self,
        stream: usize,
        units: u32,
        growth: Growth,
    ) -> Result<(), Want> {
        let zone = self.choose(units, growth)?;
        if self.zone(zone).is_some_and(|info| info.blocks != Blocks::Solid) {
            return Err(Want::Fill(self.begin_fill(zone)));
        }
        self.heads[stream] = Some(Head { zone, unit: 0 });
        self.reclass(zone);
        Ok(())
    }

    /// Takes free units of a stream's zone; returns the first, counted through the file.
    pub(super) fn take_at(&mut self, stream: usize, zone: u32, unit: u32, units: u32) -> u64 {
        let per_zone = self.geometry.units_per_zone();
        let words = self.held(zone);
        let (start, stop) = (clear_before(words, unit), clear_up_to(words, per_zone, unit + units));
        let run_of = |units| Runs::of(self.geometry, units);
        let whole = run_of(stop - start);
        let (before, behind) = (run_of(unit - start), run_of(stop - unit - units));
        let (words, info) = self.held_mut(zone);
        let set = set_bits(words, unit, units);
        assert_eq!(set, units, "only free units are handed out");
        info.free -= units;
        info.runs.remove(whole);
        info.runs.add(before);
        info.runs.add(behind);
        self.held_units += u64::from(units);
        self.update_room(zone);
        self.heads[stream] = Some(Head { zone, unit: unit + units });
        u64::from(zone) * u64::from(per_zone) + u64::from(unit)
    }

    /// Gives a stream's zone back to the choice.
    pub(super) fn close_head(&mut self, stream: usize) {
        if let Some(head) = self.heads[stream].take() {
            self.held_mut(head.zone).1.longest = UNKNOWN;
            self.reclass(head.zone);
        }
    }

    /// Closes every stream, so that their zones can be chosen, punched or truncated.
    pub(super) fn close_heads(&mut self) {
        for stream in 0..STREAMS {
            self.close_head(stream);
        }
    }

    fn choose(&mut self, units: u32, growth: Growth) -> Result<u32, Want> {
        loop {
            // Where the file is to shrink, even the last gap below the ceiling comes before growing it.
            let last_gaps = self.ceiling.map(|_| 0);
            for least in [ROOMY, WORTHWHILE].into_iter().chain(last_gaps) {
                if let Some(zone) = self.choose_loaded(units, least, growth) {
                    return Ok(zone);
                }
                if let Some(group) = self.group_with_room(least as u64) {
                    self.load_or_want(group)?;
                    return self.choose(units, growth);
                }
            }
            if self.is_ceiling_firm {
                return Err(Want::Full);
            }
            let Some(ceiling) = self.ceiling else { break };
            // The other streams' zones have room, too, as long as they lie below.
            if self.heads.iter().flatten().any(|head| head.zone < ceiling) {
                self.close_heads();
                continue;
            }
            // Room below the ceiling has run out: shrinking is over.
            self.ceiling = None;
        }
        if growth == Growth::Allowed
            && let Some(want) = self.want_growth(u64::from(units), units, growth)
        {
            return Err(want);
        }
        loop {
            if let Some(zone) = self.choose_loaded(units, 0, growth) {
                return Ok(zone);
            }
            if let Some(group) = self.group_with_room(0) {
                self.load_or_want(group)?;
                continue;
            }
            if self.heads.iter().all(Option::is_none) {
                if growth == Growth::Least
                    && let Some(want) = self.want_run(units)
                {
                    return Err(want);
                }
                return Err(if self.truncating.is_some() { Want::Truncating } else { Want::Full });
            }
            self.close_heads();
        }
    }

    /// The emptiest zone of at least class `least` with a run of `units`; of equals the lowest.
    fn choose_loaded(&mut self, units: u32, least: usize, growth: Growth) -> Option<u32> {
        let ceiling = self.ceiling.unwrap_or(u32::MAX);
        for class in (least..CLASSES).rev() {
            let mut from = 0;
            while let Some(&zone) = self.by_class[class].range(from..ceiling.max(from)).next() {
                let may_be = growth == Growth::Allowed
                    || self.zone(zone).is_some_and(|info| info.blocks != Blocks::Hole);
                if may_be && self.longest_run(zone) >= units {
                    return Some(zone);
                }
                from = zone + 1;
            }
        }
        None
    }

    /// A group without a part of its own has nothing to read.
    pub(super) fn load_or_want(&mut self, group: LoadGroup) -> Result<(), Want> {
        if !group.slot.is_none() {
            return Err(Want::Load(group));
        }
        self.install(group.group, None);
        Ok(())
    }

    /// What has to be read before the bitmaps of a group are in memory, if anything.
    pub(super) fn group_unless_loaded(&mut self, group: u32) -> Option<LoadGroup> {
        if self.groups[group as usize].loaded.is_some() {
            return None;
        }
        let slot = self.groups[group as usize].part.slot;
        if slot.is_none() {
            self.install(group, None);
            return None;
        }
        Some(LoadGroup { group, slot })
    }

    /// Puts a group's bitmaps together: what the checkpoint refers to, the table's own parts, and
    /// what is in quarantine.
    pub(super) fn install(&mut self, group: u32, bytes: Option<&PartBytes>) {
        let geometry = self.geometry;
        let words = geometry.words_per_zone();
        let per_zone = geometry.units_per_zone();
        let zone_slots = geometry.zones_per_group() as usize;
        let referenced: Box<[u64]> =
            (0..zone_slots * words).map(|i| bytes.map_or(0, |b| part::word(b, i))).collect();
        let mut held = referenced.clone();
        let (from, to) = self.group_units(group);
        let mut hold = |unit: u64, units: u32| {
            let (zone, first) = geometry.split_unit(unit);
            let at = geometry.split_zone(zone).1 as usize * words;
            set_bits(&mut held[at..at + words], first, units);
        };
        let parts = self.table_slots().filter_map(|slot| geometry.slot_units(slot, self.units));
        for (unit, units) in parts.filter(|(unit, _)| (from..to).contains(unit)) {
            hold(unit, units);
        }
        self.quarantine.for_each_in(from, to, hold);
        let first = group * geometry.zones_per_group();
        let zones: Box<[_]> = held
            .chunks_exact(words)
            .map(|bits| {
                let taken: u32 = bits.iter().map(|word| word.count_ones()).sum();
                Zone::of(per_zone - taken)
            })
            .collect();
        let loaded = Box::new(Loaded { held, referenced, zones });
        let before = self.groups[group as usize].loaded.replace(loaded);
        self.loaded_groups += usize::from(before.is_none());
        self.bound_last();
        for zone in first..first + self.zones_in_group(group) {
            self.reclass(zone);
        }
    }

    fn longest_run(&mut self, zone: u32) -> u32 {
        let per_zone = self.geometry.units_per_zone();
        let (words, info) = self.held_mut(zone);
        if info.longest == UNKNOWN {
            info.longest =
                if info.free == per_zone { per_zone } else { longest_run(words, per_zone) };
        }
        info.longest
    }

    /// The group that is not loaded, has more than `sixteenths` of its units free, and most of all.
    pub(super) fn group_with_room(&self, sixteenths: u64) -> Option<LoadGroup> {
        let ceiling = self.ceiling.unwrap_or(u32::MAX);
        let unloaded = self.groups.iter().enumerate().filter(|(_, group)| group.loaded.is_none());
        let roomy = unloaded.filter_map(|(index, group)| {
            let index = index as u32;
            let total = self.units_in_group(index);
            let free = total.saturating_sub(u64::from(group.referenced_units));
            let below = index * self.geometry.zones_per_group() < ceiling;
            let enough = free > 0 && free * 16 >= total * sixteenths;
            (below && enough).then_some((free, index))
        });
        let (_, index) = roomy.max_by_key(|&(free, index)| (free, u32::MAX - index))?;
        Some(LoadGroup { group: index, slot: self.groups[index as usize].part.slot })
    }

    /// Units that are not free: at least as many as there are images.
    pub(super) fn held_units(&self) -> u64 {
        self.held_units
    }

    /// First unit of a group, and the first after it.
    pub(super) fn group_units(&self, group: u32) -> (u64, u64) {
        let per_group = u64::from(self.geometry.units_per_group());
        (u64::from(group) * per_group, (u64::from(group) + 1) * per_group)
    }

    /// Slots of all parts of the table that is complete.
    pub fn table_slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let leaves = self.groups.iter().map(|group| group.part.slot);
        let upper = self.upper.iter().flatten().map(|part| part.slot);
        leaves.chain(upper).filter(|slot| !slot.is_none())
    }

    /// Zones of a group that lie in the file.
    pub(super) fn zones_in_group(&self, group: u32) -> u32 {
        let per_group = self.geometry.zones_per_group();
        self.count.saturating_sub(group * per_group).min(per_group)
    }

    /// The slot's image of epoch `born` was superseded by one of `superseding` (for a freed page: by
    /// its tombstone). When it may be written again: see [`super::quarantine`]. Where the caller does
    /// not know `born`, epoch 0 is safe; it may wait for pins that do not need it.
    ///
    /// Errors: `Corrupted` for a slot that no store of this file can have, or an image from the
    /// future; both can only come out of a damaged file.
    pub fn supersede(&mut self, slot: Slot, born: Epoch, superseding: Epoch) -> Result<()> {
        let (unit, units) = self.units_of(slot)?;
        if born > superseding {
            let what = format!("an image of epoch {}, which has not begun", born.0);
            return Err(Error::corrupted_at(slot.offset_bytes(), what));
        }
        if self.quarantine.supersede(unit, units, born, superseding) {
            self.release(unit, units);
        }
        Ok(())
    }

    /// Gives back a slot that [`Self::allocate`] handed out and nothing ever referred to.
    pub fn give_back(&mut self, offset_bytes: u64, len_bytes: u32) {
        if let Some(unit) = self.geometry.unit_at(offset_bytes) {
            self.release(unit, self.geometry.units_for(len_bytes).max(1));
        }
    }

    /// Pins the newest durable checkpoint and returns its number: the slots that it refers to are
    /// not written until [`Self::unpin`].
    pub fn pin(&mut self) -> Epoch {
        self.quarantine.pin()
    }

    /// Checkpoints that are pinned.
    pub fn pinned_checkpoints(&self) -> usize {
        self.quarantine.pinned_checkpoints()
    }

    /// Takes back one pin. What it alone has kept [`Self::free_ripe`] frees.
    ///
    /// Errors: `InvalidArgument` if that checkpoint is not pinned.
    pub fn unpin(&mut self, checkpoint: Epoch) -> Result<()> {
        self.quarantine.unpin(checkpoint)
    }

    /// First unit and length of a slot; an error value for a slot that a damaged file came up with.
    pub(super) fn units_of(&self, slot: Slot) -> Result<(u64, u32)> {
        self.geometry.slot_units(slot, self.units).ok_or_else(|| {
            Error::corrupted_at(slot.offset_bytes(), format!("{slot:?} lies outside of the zones"))
        })
    }

    /// Frees a run. Units in a group that is not loaded have no bit to clear: the table on disk
    /// does not have them either.
    pub(super) fn release(&mut self, unit: u64, units: u32) {
        let (zone, first) = self.geometry.split_unit(unit);
        let (group, _) = self.geometry.split_zone(zone);
        if zone >= self.count {
            return;
        }
        if self.groups[group as usize].loaded.is_none() {
            self.held_units = self.held_units.saturating_sub(u64::from(units));
            return;
        }
        let (words, info) = self.held_mut(zone);
        let freed = clear_bits(words, first, units);
        info.free += freed;
        info.longest = UNKNOWN;
        let changed = (freed == units).then(|| self.joined(zone, first, units));
        let info = self.held_mut(zone).1;
        let (out, is_hole) = (info.out, info.blocks == Blocks::Hole);
        if is_hole {
            // Something was held there, so it has blocks somewhere.
            info.blocks = Blocks::Unknown;
        }
        self.holes -= u32::from(is_hole);
        self.held_units -= u64::from(freed);
        self.out_units += if out { u64::from(freed) } else { 0 };
        match changed {
            Some(runs) => {
                self.held_mut(zone).1.runs = runs;
                self.file_zone(zone);
            }
            None => self.reclass(zone),
        }
    }

    /// The runs of a zone in which so many units were freed just now, all of which were held.
    fn joined(&self, zone: u32, unit: u32, units: u32) -> Runs {
        let run_of = |units| Runs::of(self.geometry, units);
        let per_zone = self.geometry.units_per_zone();
        let words = self.held(zone);
        let (start, stop) = (clear_before(words, unit), clear_up_to(words, per_zone, unit + units));
        let mut runs = self.zone(zone).map_or(Runs::default(), |info| info.runs);
        runs.remove(run_of(unit - start));
        runs.remove(run_of(stop - unit - units));
        runs.add(run_of(stop - start));
        runs
    }

    /// A zone's bitmap. Its group is loaded.
    pub(super) fn held(&self, zone: u32) -> &[u64] {
        let (group, index) = self.geometry.split_zone(zone);
        let words = self.geometry.words_per_zone();
        let loaded = self.groups[group as usize].loaded.as_deref();
        let loaded = loaded.expect("a zone is used only after its group was loaded");
        &loaded.held[index as usize * words..][..words]
    }

    /// A zone's bitmap and entry. Its group is loaded.
    pub(super) fn held_mut(&mut self, zone: u32) -> (&mut [u64], &mut Zone) {
        let (group, index) = self.geometry.split_zone(zone);
        let words = self.geometry.words_per_zone();
        let loaded = self.groups[group as usize].loaded.as_deref_mut();
        let loaded = loaded.expect("a zone is used only after its group was loaded");
        let from = index as usize * words;
        (&mut loaded.held[from..from + words], &mut loaded.zones[index as usize])
    }

    /// A zone's entry, if its group is loaded.
    pub(super) fn zone(&self, zone: u32) -> Option<&Zone> {
        let (group, index) = self.geometry.split_zone(zone);
        let loaded = self.groups.get(group as usize)?.loaded.as_deref()?;
        (zone < self.count).then(|| &loaded.zones[index as usize])
    }

    /// Counts anew what a zone has room for, and files it under the class that this asks for. After each change of
    /// its bits, its blocks or its use.
    pub(super) fn reclass(&mut self, zone: u32) {
        if zone < self.count {
            let runs = Runs::of_bits(self.geometry, self.held(zone));
            self.held_mut(zone).1.runs = runs;
        }
        self.file_zone(zone);
    }

    /// Files a zone under the class that its free space asks for: what is in gaps that hardly any image fits into does not
    /// count.
    fn file_zone(&mut self, zone: u32) {
        let current = self.heads.iter().flatten().any(|head| head.zone == zone);
        let beyond = zone >= self.count;
        let (there, per_zone) = (self.there(zone), self.geometry.units_per_zone());
        let info = self.held_mut(zone).1;
        let class = if current || beyond || info.out || info.runs.usable == 0 {
            NO_CLASS
        } else {
            // Only a whole zone counts as empty: it can be punched, and extents may take it.
            let fullest = if there == per_zone { CLASSES - 1 } else { CLASSES - 2 };
            (u64::from(info.runs.usable) * 16 / u64::from(there)).min(fullest as u64) as u8
        };
        let before = std::mem::replace(&mut info.class, class);
        if before != class {
            if before != NO_CLASS {
                self.by_class[before as usize].remove(&zone);
            }
            if class != NO_CLASS {
                self.by_class[class as usize].insert(zone);
            }
        }
        let info = self.held_mut(zone).1;
        let is_unsure = class != NO_CLASS && info.blocks == Blocks::Unknown;
        if std::mem::replace(&mut info.is_unsure, is_unsure) != is_unsure {
            match is_unsure {
                true => self.unsure.insert(zone),
                false => self.unsure.remove(&zone),
            };
        }
        self.update_room(zone);
    }

    /// Slots of a page that a zone has room for, if its bits are counted.
    pub(super) fn room_of(&self, info: &Zone) -> u32 {
        if info.out || info.blocks != Blocks::Solid { 0 } else { info.runs.slots }
    }

    /// Notes what a zone has room for.
    fn update_room(&mut self, zone: u32) {
        let room = self.zone(zone).map_or(0, |info| self.room_of(info));
        let info = self.held_mut(zone).1;
        let before = std::mem::replace(&mut info.room, room);
        // Only under the caller's lock; who reads it without wants no more than a recent figure.
        let sum = self.room.load(Relaxed) + u64::from(room) - u64::from(before);
        self.room.store(sum, Relaxed);
    }
}
