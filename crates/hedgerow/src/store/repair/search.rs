//! The pages of a damaged store: by its map, and where a part of that is lost in the whole file.
//!
//! Looked at are all units of the file that the zone table says are in use: a page that names an id of the lost part, whose
//! checksum is right, no newer than the checkpoint. Where that part of the zone table is damaged as well, of several the
//! newest. Such a page may have been freed since, so that what was removed may come back; the report says that the table
//! cannot be read.
//!
//! What users have put into large values may look like pages of the store: units of values to which leaves refer are passed
//! over. A leaf that the map names is believed. One that was found, which may be a user's itself, is believed of those chunks
//! whose checksums are right: no page looks like a chunk with that seed. Then it is looked again, for what was found there
//! is none.
//!
//! A user's value may also hold the image of a page at the beginning of a unit. A page that is whole hides it: the search goes
//! on behind that page. So do a page that the map names and a value, damaged or not. What is left is a damaged page, or a
//! damaged value, that nothing names any more. Its first unit is no image: it begins with the checksum of the page or chunk,
//! which does not belong to what a user has put there. So each image that begins within the length of a page or chunk behind
//! such a unit is *unsure*. It gives way to an image of the same page that is sure, its records give way to those of other
//! leaves, and the report names it.

use super::{Repair, checksum_in, for_each_record};
use crate::checksum::page_checksum;
use crate::error::Result;
use crate::large::{Extent, Run, Stored, read_stored};
use crate::page::header::{self, PageKind};
use crate::space::geometry::PART_CONTENT_WORDS;
use crate::space::image;
use crate::space::large::{chunk_bytes, is_chunk};
use crate::space::map::MapView;
use crate::space::part::{self, PartBytes};
use crate::space::part_file::PartFile;
use crate::storage::{AlignedBuffer, File};
use crate::types::{Epoch, PART_BYTES, PART_HEADER_WORDS, PART_WORDS, PageId, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// How often pages are looked for again, because some of those that were found are parts of values. Each look after the
/// second is for values within values.
const MOST_LOOKS: usize = 8;

/// Runs of units: each one's first, and the one behind its last. They do not overlap.
type Units = BTreeMap<u64, u64>;

/// Whether a unit is in one of the runs.
fn is_in(units: &Units, unit: u64) -> bool {
    units.range(..=unit).next_back().is_some_and(|(_, end)| unit < *end)
}

/// The first bytes of a page's image, of a part of the map, or of neither.
enum At {
    Image(usize),
    Part,
    Neither,
}

/// How much an image that was found is believed: of two of a page the greater one is taken. The zone table says that it is in use,
/// and then that it is sure; the epoch of its last change.
type Belief = (bool, bool, Epoch);

impl Repair<'_> {
    /// Finds all pages that are in use: by the map, and where that is damaged in the whole file.
    pub(super) fn find_pages(&mut self) -> Result<()> {
        let view = MapView {
            root: self.superblock.map,
            checkpoint: self.superblock.checkpoint,
            geometry: self.superblock.geometry,
            units: self.superblock.table.units,
        };
        let (pages, mut lost, mut lost_slots) = (&mut self.pages, Vec::new(), Vec::new());
        view.for_each_sound_part(
            &mut PartFile::new(&self.slots)?,
            &mut |level, index, _, bytes| {
                let first = u64::from(index) * PART_WORDS as u64 + PART_HEADER_WORDS as u64;
                for word in 0..if level == 0 { PART_WORDS - PART_HEADER_WORDS } else { 0 } {
                    let slot = Slot::from_word(part::word(bytes, word));
                    if let Ok(id) = u32::try_from(first + word as u64)
                        && !slot.is_none()
                    {
                        pages.insert(PageId(id), slot);
                    }
                }
                Ok(())
            },
            &mut |level, index, slot, error| {
                if !error.is_loss() {
                    return Err(error);
                }
                let span = (PART_CONTENT_WORDS as u64).pow(u32::from(level)) * PART_WORDS as u64;
                lost.push((u64::from(index) * span, span, error.to_string()));
                lost_slots.push(slot);
                Ok(())
            },
        )?;
        if lost.is_empty() {
            return Ok(());
        }
        for (first, span, what) in &lost {
            self.report.defects.push(format!(
                "{what}; pages {first} to {} were looked for in the whole file",
                first + span - 1
            ));
        }
        // No two have an id in common.
        lost.sort_unstable_by_key(|(first, ..)| *first);
        let is_lost = |id: PageId| {
            let behind = lost.partition_point(|(first, ..)| *first <= u64::from(id.0));
            let part = behind.checked_sub(1).and_then(|at| lost.get(at));
            part.is_some_and(|(first, span, _)| u64::from(id.0) < first + span)
        };
        // What users have put there may look like pages.
        let mut known = self.known_units(&lost_slots)?;
        for _ in 0..MOST_LOOKS {
            self.look_everywhere(&known, &is_lost)?;
            if !self.note_values_over_pages(&mut known, &is_lost)? {
                return Ok(());
            }
            self.pages.retain(|id, _| !is_lost(*id));
        }
        self.look_everywhere(&known, &is_lost)
    }

    /// Where there is nothing to look for: in the pages that the map names and the large values of their leaves, damaged or not,
    /// and in the parts of the map that are lost.
    fn known_units(&mut self, lost: &[Slot]) -> Result<Units> {
        let geometry = self.superblock.geometry;
        let in_file = geometry.units_in(self.slots.file().len_bytes()?);
        let pages: Vec<(PageId, Slot)> = self.pages.iter().map(|(&id, &slot)| (id, slot)).collect();
        let slots = pages.iter().map(|(_, slot)| slot).chain(lost);
        let runs = slots.filter_map(|slot| geometry.slot_units(*slot, in_file));
        let mut runs: Vec<(u64, u64)> =
            runs.map(|(unit, units)| (unit, unit + u64::from(units))).collect();
        self.each_extent(&pages, &mut |extent| {
            let of_value = extent.runs.iter();
            runs.extend(of_value.map(|run| (run.unit, run.unit + u64::from(run.units))));
        })?;
        runs.sort_unstable();
        let mut units = Units::new();
        for (first, end) in runs {
            match units.last_entry() {
                Some(mut last) if first <= *last.get() => {
                    let end = end.max(*last.get());
                    last.insert(end);
                }
                _ => drop(units.insert(first, end)),
            }
        }
        Ok(units)
    }

    /// Notes the large values in which pages were found, and those that make pages behind them unsure, by leaves that were found
    /// only now: a chunk whose checksum is right is a user's, whatever it looks like. Whether there is any: then what was
    /// found there is none of the pages that were wanted, and others may be.
    fn note_values_over_pages(
        &mut self,
        known: &mut Units,
        wanted: &dyn Fn(PageId) -> bool,
    ) -> Result<bool> {
        let geometry = self.superblock.geometry;
        let in_file = geometry.units_in(self.slots.file().len_bytes()?);
        let pages: Vec<(PageId, Slot)> = self.pages.iter().map(|(&id, &slot)| (id, slot)).collect();
        let found = pages.into_iter().filter(|(id, _)| wanted(*id)).collect::<Vec<_>>();
        let unit_of = |slot: &Slot| geometry.unit_at(slot.offset_bytes());
        let units: BTreeSet<u64> = found.iter().filter_map(|(_, slot)| unit_of(slot)).collect();
        let unsure = self.unsure.keys().filter_map(|id| self.pages.get(id).and_then(unit_of));
        let unsure: BTreeSet<u64> = unsure.collect();
        let reach = self.reach_bytes() / u64::from(geometry.unit_bytes());
        let matters = |first: u64, end: u64| {
            let behind = end.saturating_add(reach);
            units.range(first..end).next().is_some() || unsure.range(first..behind).next().is_some()
        };
        let mut extents = Vec::new();
        self.each_extent(&found, &mut |extent| {
            let over = |run: &Run| matters(run.unit, run.unit + u64::from(run.units));
            if extent.runs.iter().any(over) && extent.fits(geometry, in_file) {
                extents.push(extent);
            }
        })?;
        let mut buffer = AlignedBuffer::zeroed(chunk_bytes(geometry) as usize)?;
        let mut is_any = false;
        for extent in extents {
            for index in 0..extent.chunks(geometry) {
                let place = extent.place(geometry, index);
                let first = geometry.unit_at(place.offset_bytes).unwrap_or(u64::MAX);
                let end = first + place.stored_bytes as u64 / u64::from(geometry.unit_bytes());
                if is_in(known, first) || !matters(first, end) {
                    continue;
                }
                let chunk = &mut buffer[..place.stored_bytes];
                match self.slots.file().read_at(place.offset_bytes, chunk) {
                    Err(error) if error.is_loss() => continue,
                    other => other?,
                }
                if is_chunk(extent.seed, index, chunk) {
                    known.insert(first, end);
                    is_any = true;
                }
            }
            self.go_on(0)?;
        }
        Ok(is_any)
    }

    /// Hands over where each large value lies to which leaves among these pages refer.
    fn each_extent(
        &mut self,
        pages: &[(PageId, Slot)],
        each: &mut dyn FnMut(Extent),
    ) -> Result<()> {
        self.read(pages, &mut |_, _, _, image, defect| {
            let is_leaf =
                !matches!(header::kind(image), None | Some(PageKind::Free | PageKind::Inner));
            if defect.is_some() || !is_leaf {
                return Ok(());
            }
            for_each_record(image, &mut |_, value| {
                if let Stored::Extent(extent) = read_stored(value) {
                    each(extent);
                }
                Ok(())
            })
        })
    }

    /// How far behind the first unit of something damaged a user's bytes may go on: to the end of a page or chunk.
    fn reach_bytes(&self) -> u64 {
        let geometry = self.superblock.geometry;
        u64::from(geometry.page_bytes().max(chunk_bytes(geometry)))
    }

    /// Finds the image of each page whose id is wanted, in all units of the file that the checkpoint refers to. Where
    /// the zone table does not tell which those are, the newest image up to the checkpoint is taken, which may be older, or
    /// of a page that was removed.
    fn look_everywhere(&mut self, known: &Units, wanted: &dyn Fn(PageId) -> bool) -> Result<()> {
        let geometry = self.superblock.geometry;
        let unit_bytes = u64::from(geometry.unit_bytes());
        // No unit is shared, so this tells of each one whether it is in use.
        let least_bytes = unit_bytes.min(u64::from(geometry.page_bytes()));
        let file_bytes = self.slots.file().len_bytes()?;
        let mut window = Window::new(geometry.page_bytes().max(4096) as usize)?;
        let mut newest: BTreeMap<PageId, Belief> = BTreeMap::new();
        let (mut unreadable, mut unsure_up_to) = (0_u64, 0);
        self.unsure.clear();
        for zone in 0..geometry.zones_of_units(geometry.units_in(file_bytes)) {
            let zone_offset = geometry.zone_offset(zone);
            let place = |offset| Slot::new(offset, least_bytes, 0);
            if let Some(first) = place(zone_offset) {
                self.load_table_of(zone, first)?;
            }
            let zone_end = (zone_offset + u64::from(geometry.zone_bytes())).min(file_bytes);
            // An image that is whole has no other one in it, whatever its records look like.
            let mut behind = zone_offset;
            for unit in 0..u64::from(geometry.units_per_zone()) {
                let offset = zone_offset + unit * unit_bytes;
                if offset + least_bytes > zone_end {
                    break;
                }
                if offset < behind {
                    continue;
                }
                let unit = geometry.unit_at(offset).unwrap_or(u64::MAX);
                if is_in(known, unit) {
                    continue;
                }
                let referenced =
                    place(offset).and_then(|slot| self.slots.state().zones.is_referenced(slot));
                if referenced == Some(false) {
                    continue;
                }
                let len = match self.what_is_at(offset, zone_end, &mut window, &mut unreadable)? {
                    At::Image(len) => len,
                    At::Part => {
                        behind = offset + PART_BYTES as u64;
                        continue;
                    }
                    At::Neither => {
                        unsure_up_to = offset + self.reach_bytes();
                        continue;
                    }
                };
                behind = offset + len as u64;
                let image = window.at(offset, len);
                let (id, epoch) = (header::page_id(image), header::epoch(image));
                let is_known = referenced.is_some();
                let is_unsure = offset < unsure_up_to;
                let belief = (is_known, is_known && !is_unsure, epoch);
                let is_one = wanted(id)
                    && epoch <= self.superblock.checkpoint
                    && newest.get(&id).is_none_or(|found| *found < belief);
                let slot = Slot::new(offset, len as u64, checksum_in(image));
                if let Some(slot) = slot.filter(|_| is_one) {
                    newest.insert(id, belief);
                    self.pages.insert(id, slot);
                    self.unsure.remove(&id);
                    if is_unsure {
                        self.unsure.insert(id, is_known);
                    }
                }
            }
            self.go_on(0)?;
        }
        if unreadable > 0 {
            self.note_defect(format!("{unreadable} units of the file cannot be read"));
        }
        Ok(())
    }

    /// Tells what begins here and ends before `zone_end`. An image is in the window then, with a right checksum.
    fn what_is_at(
        &self,
        offset: u64,
        zone_end: u64,
        window: &mut Window,
        unreadable: &mut u64,
    ) -> Result<At> {
        if let Some(len) = self.read_image_at(offset, zone_end, window, unreadable)? {
            let image = window.at(offset, len);
            let id = header::page_id(image);
            if id.is_usable() && checksum_in(image) == page_checksum(id, image) {
                return Ok(At::Image(len));
            }
        }
        let is_readable = offset + PART_BYTES as u64 <= zone_end
            && match window.read(&**self.slots.file(), offset, PART_BYTES, zone_end) {
                Err(error) if error.is_loss() => false,
                other => other.map(|()| true)?,
            };
        let bytes = if is_readable { window.at(offset, PART_BYTES) } else { &[] };
        let part: Option<&PartBytes> = bytes.try_into().ok();
        Ok(if part.is_some_and(part::is_whole) { At::Part } else { At::Neither })
    }

    /// Reads what may be an image into the window; returns its length, if it can be one that ends before `zone_end`.
    fn read_image_at(
        &self,
        offset: u64,
        zone_end: u64,
        window: &mut Window,
        unreadable: &mut u64,
    ) -> Result<Option<usize>> {
        let geometry = self.superblock.geometry;
        let page_bytes = geometry.page_bytes() as usize;
        let unit = (geometry.unit_bytes() as usize).min(page_bytes);
        let mut len = unit;
        for _ in 0..2 {
            match window.read(&**self.slots.file(), offset, len, zone_end) {
                Err(error) if error.is_loss() => {
                    *unreadable += 1;
                    return Ok(None);
                }
                other => other?,
            }
            let Some(said) = image::len_in(window.at(offset, len), page_bytes) else {
                return Ok(None);
            };
            let slot = Slot::new(offset, said as u64, 0);
            if offset + said as u64 > zone_end
                || !slot.is_some_and(|slot| geometry.is_image_slot(slot))
            {
                return Ok(None);
            }
            len = said;
        }
        Ok(Some(len))
    }

    /// Brings the part of the zone table that a zone is in into memory, if it is whole. Tells once of one that is not.
    pub(super) fn load_table_of(&mut self, zone: u32, first: Slot) -> Result<()> {
        let geometry = self.superblock.geometry;
        let (group, _) = geometry.split_zone(zone);
        if !self.has_table || self.lost_groups.contains(&group) {
            return Ok(());
        }
        let wanted = self.slots.state().zones.group_to_load(first);
        let loaded = wanted.and_then(|group| group.map_or(Ok(()), |g| self.slots.load_group(g)));
        match loaded {
            Err(error) if error.is_loss() => {
                let first = group * geometry.zones_per_group();
                let last = first + geometry.zones_per_group() - 1;
                self.report.defects.push(format!(
                    "it is unknown which slots of zones {first} to {last} are in use: {error}"
                ));
                self.lost_groups.insert(group);
                Ok(())
            }
            other => other,
        }
    }

    /// Whoever looks again finds the same again.
    fn note_defect(&mut self, what: String) {
        if !self.report.defects.contains(&what) {
            self.report.defects.push(what);
        }
    }
}

/// A part of the file in memory, so that neighbouring units are not read one by one.
struct Window {
    bytes: AlignedBuffer,
    from: u64,
    len: usize,
    least: usize,
}

/// Bytes of it.
const WINDOW_BYTES: usize = 256 << 10;

impl Window {
    /// For reads of at most `least` bytes.
    fn new(least: usize) -> Result<Window> {
        let bytes = AlignedBuffer::zeroed(WINDOW_BYTES.max(least))?;
        Ok(Window { bytes, from: 0, len: 0, least })
    }

    /// Brings bytes into the window; more than those if they can be read and lie before `end`.
    fn read(&mut self, file: &dyn File, offset: u64, len: usize, end: u64) -> Result<()> {
        if offset >= self.from && offset + len as u64 <= self.from + self.len as u64 {
            return Ok(());
        }
        self.from = offset;
        let most = (end - offset).min(self.bytes.len() as u64) as usize;
        self.len = 0;
        for len in [most, len] {
            match file.read_at(offset, &mut self.bytes[..len]) {
                Err(error) if error.is_loss() && len == most && most > self.least => {}
                other => {
                    other?;
                    self.len = len;
                    break;
                }
            }
        }
        Ok(())
    }

    fn at(&self, offset: u64, len: usize) -> &[u8] {
        &self.bytes[(offset - self.from) as usize..][..len]
    }
}
