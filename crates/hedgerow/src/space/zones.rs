//! The allocator of slots: which units of which zones are taken, and where the next image goes.
//!
//! A write stream fills its current zone front to back. When the zone is full the next one is the
//! emptiest that there is, the lower one of two alike: a zone with a quarter free before a zone of
//! the table that is not in memory yet, that before a zone with a sixteenth free, that before
//! growing the file, that before the last gaps. While the file is to shrink, nothing is written beyond
//! its ceiling as long as there is any gap below. Parts go to a stream of their own where they differ
//! in length from pages, so that they do not cut up the runs that pages need.
//!
//! Two bitmaps a zone, both in units: *held* is what must not be written (referred to, or in
//! quarantine, or handed out since), *referenced* is what the newest complete checkpoint refers to,
//! and what the zone table says ([`super::table`]). Bitmaps are loaded by the group, when first
//! needed, and stay: opening reads none, and all of them together are 1/16384 of the file. Reading
//! is the caller's business: [`Want`] says what to do first, and nothing has changed by then.
//!
//! Invariants: `held` contains `referenced`; a unit is handed out only while it is not held; header
//! region + used + free + quarantined + out = file, in bytes ([`Zones::report`]). Not shared: the
//! caller keeps one lock around all of it, which comes last in the latch order.

use super::bits::{clear_bits, free_run, longest_run, set_bits};
use super::checkpoint::Staged;
use super::geometry::{Geometry, HEADER_REGION_BYTES};
use super::quarantine::Quarantine;
use super::table::{LoadGroup, TablePart};
use crate::error::{Error, ErrorKind, Result};
use crate::types::{Epoch, Slot};
use std::collections::BTreeSet;

/// Classes of zones by free share, in sixteenths; class 16 is empty.
pub(super) const CLASSES: usize = 17;
/// Class of a zone that cannot be chosen: full, current, out, or beyond the file.
const NO_CLASS: u8 = u8::MAX;
/// From this class on, a zone is worth writing to sequentially: a quarter is free.
const ROOMY: usize = 4;
/// From this class on, a zone is worth filling before the file grows.
const WORTHWHILE: usize = 1;
/// The longest run of a zone is not known: it was not counted since the last change.
const UNKNOWN: u32 = u32::MAX;
const STREAMS: usize = 2;

/// What the caller must do, with nothing locked, before the same call can succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Want {
    /// Make the file this long (room reserved), then call [`Zones::grown`], or
    /// [`Zones::growth_failed`] and ask again with [`Growth::Refused`].
    Grow {
        /// Zones that the file has then.
        zones: u32,
        /// The file's new length in bytes.
        file_bytes: u64,
    },
    /// Read this part of the zone table and hand it to [`Zones::load_group`].
    Load(LoadGroup),
    /// A truncation is under way: ask again after [`Zones::end_truncate`].
    Truncating,
    /// There is no room: the file cannot grow and has no gap that is long enough.
    Full,
}

/// Whether an allocation may ask for a longer file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Growth {
    /// It may.
    Allowed,
    /// The last attempt failed: take any gap.
    Refused,
}

/// Where every byte of the file is, all figures in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceReport {
    /// The header region.
    pub header_bytes: u64,
    /// Held and not in quarantine.
    pub used_bytes: u64,
    /// Free to be written.
    pub free_bytes: u64,
    /// Superseded, and needed by a checkpoint, or by the crash before the next one.
    pub quarantined_bytes: u64,
    /// Zones being punched or truncated at this moment.
    pub out_bytes: u64,
    /// The file's length: the sum of all of the above.
    pub file_bytes: u64,
    /// Of the free bytes, those that were given back to the file system as holes since opening.
    pub hole_bytes: u64,
    /// Memory that the allocator holds.
    pub memory_bytes: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Zone {
    pub(super) free: u32,
    /// No free run is longer; or [`UNKNOWN`].
    longest: u32,
    class: u8,
    /// Taken out of the allocator while a system call works on it.
    pub(super) out: bool,
    /// Punched, and not written since.
    pub(super) hole: bool,
}

/// The bitmaps of a group, as long as those of its zones that lie in the file.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) held: Box<[u64]>,
    pub(super) referenced: Box<[u64]>,
    pub(super) zones: Box<[Zone]>,
}

/// A group of zones; see [`super::table`] for what stands on disk.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) part: TablePart,
    /// Units that the newest complete checkpoint refers to.
    pub(super) referenced_units: u32,
    /// Zones of the group up to the last one that it refers to.
    pub(super) referenced_zones: u32,
    pub(super) loaded: Option<Box<Loaded>>,
}

impl Group {
    pub(super) const EMPTY: Group =
        Group { part: TablePart::NONE, referenced_units: 0, referenced_zones: 0, loaded: None };
}

#[derive(Clone, Copy, Debug)]
struct Head {
    zone: u32,
    unit: u32,
}

/// See the file's header.
#[derive(Debug)]
pub struct Zones {
    pub(super) geometry: Geometry,
    /// Zones in the file.
    pub(super) count: u32,
    pub(super) groups: Vec<Group>,
    /// Upper levels of the zone table: `upper[0]` is level 1.
    pub(super) upper: Vec<Vec<TablePart>>,
    pub(super) staged: Option<Staged>,
    pub(super) quarantine: Quarantine,
    /// Zones that may be chosen, by class.
    pub(super) by_class: [BTreeSet<u32>; CLASSES],
    heads: [Option<Head>; STREAMS],
    pub(super) held_units: u64,
    /// Zones out of the allocator, in units.
    pub(super) out_units: u64,
    /// Growths handed out and not reported back.
    pub(super) growing: u32,
    /// The length, in zones, that a truncation under way leaves.
    pub(super) truncating: Option<u32>,
    /// The file is to shrink: no zone from here on is chosen while there is room below.
    pub(super) ceiling: Option<u32>,
    pub(super) holes: u32,
}

impl Zones {
    /// The space of a new store: a header region and no zone.
    pub fn create(geometry: Geometry) -> Zones {
        Zones::empty(geometry, 0, Epoch(0))
    }

    pub(super) fn empty(geometry: Geometry, count: u32, durable: Epoch) -> Zones {
        let groups = count.div_ceil(geometry.zones_per_group()) as usize;
        Zones {
            geometry,
            count,
            groups: (0..groups).map(|_| Group::EMPTY).collect(),
            upper: Vec::new(),
            staged: None,
            quarantine: Quarantine::new(durable),
            by_class: std::array::from_fn(|_| BTreeSet::new()),
            heads: [None; STREAMS],
            held_units: 0,
            out_units: 0,
            growing: 0,
            truncating: None,
            ceiling: None,
            holes: 0,
        }
    }

    /// The sizes that the file is cut up by.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Zones in the file now.
    pub fn zone_count(&self) -> u32 {
        self.count
    }

    /// Takes `count` slots of `len_bytes` (a page's or a part's length) and appends their offsets
    /// to `out`, in the order of the file as far as it can be. All or nothing.
    ///
    /// `Err` says what to do first; nothing has changed. Loop until `Ok`, or [`Want::Full`] with
    /// [`Growth::Refused`], which is a full disk.
    pub fn allocate(
        &mut self,
        len_bytes: u32,
        count: usize,
        growth: Growth,
        out: &mut Vec<u64>,
    ) -> Result<(), Want> {
        let units = self.geometry.units_for(len_bytes).max(1);
        let stream = usize::from(len_bytes != self.geometry.page_bytes());
        let before = out.len();
        for _ in 0..count {
            match self.take(units, stream, growth) {
                Ok(unit) => out.push(self.geometry.unit_offset(unit)),
                Err(want) => {
                    for offset in out.drain(before..) {
                        if let Some(unit) = self.geometry.unit_at(offset) {
                            self.release(unit, units);
                        }
                    }
                    if let Want::Grow { .. } = want {
                        self.growing += 1;
                    }
                    return Err(want);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, units: u32, stream: usize, growth: Growth) -> Result<u64, Want> {
        assert!(units <= self.geometry.units_per_zone(), "a slot is larger than a zone");
        loop {
            if let Some(head) = self.heads[stream] {
                if let Some(unit) = self.take_in_zone(head.zone, head.unit, units) {
                    self.heads[stream] = Some(Head { zone: head.zone, unit: unit + units });
                    let per_zone = u64::from(self.geometry.units_per_zone());
                    return Ok(u64::from(head.zone) * per_zone + u64::from(unit));
                }
                self.close_head(stream);
            }
            let zone = self.choose(units, growth)?;
            self.heads[stream] = Some(Head { zone, unit: 0 });
            self.reclass(zone);
        }
    }

    /// Takes the first run of `units` free units of a zone from unit `from` on.
    fn take_in_zone(&mut self, zone: u32, from: u32, units: u32) -> Option<u32> {
        let per_zone = self.geometry.units_per_zone();
        let (words, info) = self.held_mut(zone);
        let unit = free_run(words, per_zone, from, units)?;
        set_bits(words, unit, units);
        info.free -= units;
        let was_hole = std::mem::replace(&mut info.hole, false);
        self.holes -= u32::from(was_hole);
        self.held_units += u64::from(units);
        Some(unit)
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
                if let Some(zone) = self.choose_loaded(units, least) {
                    return Ok(zone);
                }
                if let Some(group) = self.group_with_room(least as u64) {
                    self.load_or_want(group)?;
                    return self.choose(units, growth);
                }
            }
            // Room below the ceiling has run out: shrinking is over.
            if self.ceiling.take().is_none() {
                break;
            }
        }
        if growth == Growth::Allowed && self.count < self.geometry.max_zones() {
            if self.truncating.is_some() {
                return Err(Want::Truncating);
            }
            let zones = self.count + 1;
            return Err(Want::Grow { zones, file_bytes: self.geometry.zone_offset(zones) });
        }
        loop {
            if let Some(zone) = self.choose_loaded(units, 0) {
                return Ok(zone);
            }
            if let Some(group) = self.group_with_room(0) {
                self.load_or_want(group)?;
                continue;
            }
            if self.heads.iter().all(Option::is_none) {
                return Err(if self.truncating.is_some() { Want::Truncating } else { Want::Full });
            }
            self.close_heads();
        }
    }

    /// The emptiest zone of at least class `least` with a run of `units`; of equals the lowest.
    fn choose_loaded(&mut self, units: u32, least: usize) -> Option<u32> {
        let ceiling = self.ceiling.unwrap_or(u32::MAX);
        for class in (least..CLASSES).rev() {
            let mut from = 0;
            while let Some(&zone) = self.by_class[class].range(from..ceiling.max(from)).next() {
                if self.longest_run(zone) >= units {
                    return Some(zone);
                }
                from = zone + 1;
            }
        }
        None
    }

    /// A group without a part of its own has nothing to read.
    fn load_or_want(&mut self, group: LoadGroup) -> Result<(), Want> {
        if !group.slot.is_none() {
            return Err(Want::Load(group));
        }
        self.install(group.group, None);
        Ok(())
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
    fn group_with_room(&self, sixteenths: u64) -> Option<LoadGroup> {
        let ceiling = self.ceiling.unwrap_or(u32::MAX);
        let unloaded = self.groups.iter().enumerate().filter(|(_, group)| group.loaded.is_none());
        let roomy = unloaded.filter_map(|(index, group)| {
            let index = index as u32;
            let zones = self.zones_in_group(index);
            let total = u64::from(zones) * u64::from(self.geometry.units_per_zone());
            let free = total.saturating_sub(u64::from(group.referenced_units));
            let below = index * self.geometry.zones_per_group() < ceiling;
            let enough = free > 0 && free * 16 >= total * sixteenths;
            (below && enough).then_some((free, index))
        });
        let (_, index) = roomy.max_by_key(|&(free, index)| (free, u32::MAX - index))?;
        Some(LoadGroup { group: index, slot: self.groups[index as usize].part.slot })
    }

    /// Zones of a group that lie in the file.
    pub(super) fn zones_in_group(&self, group: u32) -> u32 {
        let per_group = self.geometry.zones_per_group();
        self.count.saturating_sub(group * per_group).min(per_group)
    }

    /// The file has `zones` zones now: as many as [`Want::Grow`] asked for, or more.
    pub fn grown(&mut self, zones: u32) {
        self.growing = self.growing.saturating_sub(1);
        assert!(zones <= self.geometry.max_zones(), "the file grew beyond what slots can name");
        while self.count < zones {
            let zone = self.count;
            self.count += 1;
            let (group, index) = self.geometry.split_zone(zone);
            if group as usize == self.groups.len() {
                self.groups.push(Group::EMPTY);
            }
            let fresh = self.zone_of(self.geometry.units_per_zone());
            match &mut self.groups[group as usize].loaded {
                Some(loaded) => {
                    loaded.zones[index as usize] = fresh;
                    self.reclass(zone);
                }
                None if index == 0 => self.install(group, None),
                None => {}
            }
        }
    }

    /// The file could not be extended as [`Want::Grow`] asked.
    pub fn growth_failed(&mut self) {
        self.growing = self.growing.saturating_sub(1);
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
            let what = format!("an image of epoch {}, which is yet to come", born.0);
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

    /// Takes back one pin.
    ///
    /// Errors: `InvalidOption` if that checkpoint is not pinned.
    pub fn unpin(&mut self, checkpoint: Epoch) -> Result<()> {
        let mut free = Vec::new();
        self.quarantine.unpin(checkpoint, |unit, units| free.push((unit, units)))?;
        for (unit, units) in free {
            self.release(unit, units);
        }
        Ok(())
    }

    /// Where every byte is. Reads nothing.
    pub fn report(&self) -> SpaceReport {
        let unit = u64::from(self.geometry.unit_bytes());
        let total = u64::from(self.count) * u64::from(self.geometry.units_per_zone());
        let quarantined = self.quarantine.units().min(self.held_units);
        SpaceReport {
            header_bytes: HEADER_REGION_BYTES,
            used_bytes: (self.held_units - quarantined) * unit,
            free_bytes: (total - self.held_units - self.out_units) * unit,
            quarantined_bytes: quarantined * unit,
            out_bytes: self.out_units * unit,
            file_bytes: self.geometry.zone_offset(self.count),
            hole_bytes: u64::from(self.holes) * u64::from(self.geometry.zone_bytes()),
            memory_bytes: self.memory_bytes(),
        }
    }

    /// Memory held, in bytes: what counts against the memory limit.
    pub fn memory_bytes(&self) -> usize {
        let per_group = self.geometry.zones_per_group() as usize;
        let loaded = self.groups.iter().filter(|group| group.loaded.is_some()).count();
        // Of a zone: its entry, and its place in the index.
        let zone = size_of::<Zone>() + 12;
        let words = per_group * self.geometry.words_per_zone() * 8;
        self.groups.capacity() * size_of::<Group>()
            + loaded * (2 * words + per_group * zone)
            + self.upper.iter().map(|level| level.len() * size_of::<TablePart>()).sum::<usize>()
            + self.staged.as_ref().map_or(0, Staged::memory_bytes)
            + self.quarantine.memory_bytes()
    }

    /// Recounts every loaded bitmap and compares it with the running figures. Whoever wants all of
    /// them compared loads all groups first ([`Self::groups_to_load`]).
    ///
    /// Errors: `Corrupted` naming the first that differs (a defect of the engine, or of memory).
    pub fn verify(&self) -> Result<()> {
        let per_zone = self.geometry.units_per_zone();
        let differs = |what: String| {
            Err(Error::new(ErrorKind::Corrupted { page: None, offset_bytes: None }, what))
        };
        let (mut held, mut complete) = (0, true);
        for (g, group) in self.groups.iter().enumerate() {
            let Some(loaded) = &group.loaded else {
                complete = false;
                continue;
            };
            let referenced: u32 = loaded.referenced.iter().map(|word| word.count_ones()).sum();
            if referenced != group.referenced_units {
                return differs(format!("group {g} of zones: {referenced} units referred to"));
            }
            if loaded.referenced.iter().zip(&loaded.held).any(|(r, h)| r & !h != 0) {
                return differs(format!("group {g} of zones: a unit in use counts as free"));
            }
            let words = self.geometry.words_per_zone();
            for (z, zone) in loaded.zones.iter().enumerate() {
                let bits = &loaded.held[z * words..(z + 1) * words];
                let taken: u32 = bits.iter().map(|word| word.count_ones()).sum();
                if z < self.zones_in_group(g as u32) as usize && taken + zone.free != per_zone {
                    return differs(format!("zone {z} of group {g}: {taken} units held"));
                }
                held += u64::from(taken);
            }
        }
        if complete && held != self.held_units {
            return differs(format!("{held} units held, {} counted", self.held_units));
        }
        Ok(())
    }

    /// First unit and length of a slot; an error value for a slot that a damaged file came up with.
    pub(super) fn units_of(&self, slot: Slot) -> Result<(u64, u32)> {
        self.geometry.slot_units(slot, self.count).ok_or_else(|| {
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
        self.held_units -= u64::from(freed);
        self.reclass(zone);
    }

    pub(super) fn zone_of(&self, free: u32) -> Zone {
        Zone { free, longest: UNKNOWN, class: NO_CLASS, out: false, hole: false }
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

    /// Files a zone under the class that its free space asks for.
    pub(super) fn reclass(&mut self, zone: u32) {
        let current = self.heads.iter().flatten().any(|head| head.zone == zone);
        let beyond = zone >= self.count;
        let per_zone = self.geometry.units_per_zone();
        let info = self.held_mut(zone).1;
        let class = if current || beyond || info.out || info.free == 0 {
            NO_CLASS
        } else {
            (u64::from(info.free) * 16 / u64::from(per_zone)) as u8
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
    }
}
