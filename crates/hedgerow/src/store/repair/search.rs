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

use super::{Repair, checksum_in, for_each_record, is_loss};
use crate::checksum::page_checksum;
use crate::error::Result;
use crate::page::header::{self, PageKind};
use crate::space::extent::{Extent, Run, Stored, chunk_bytes, is_chunk, read_stored};
use crate::space::geometry::PART_CONTENT_WORDS;
use crate::space::map::MapView;
use crate::space::part;
use crate::space::slot_store::PartFile;
use crate::storage::AlignedBuffer;
use crate::types::{Epoch, PART_HEADER_WORDS, PART_WORDS, PageId, Slot};
use hedgerow_sync::primitive::canary::leaves_out;
use std::collections::{BTreeMap, BTreeSet};

/// How often pages are looked for again, because some of those that were found are parts of values. Each look after the
/// second is for values within values.
const MOST_LOOKS: usize = 8;

/// Runs of units: each one's first, and the one behind its last.
type Units = BTreeMap<u64, u64>;

impl Repair<'_> {
    /// Finds all pages that are in use: by the map, and where that is damaged in the whole file.
    pub(super) fn find_pages(&mut self) -> Result<()> {
        let view = MapView {
            root: self.superblock.map,
            checkpoint: self.superblock.checkpoint,
            geometry: self.superblock.geometry,
            zones: self.superblock.table.zones,
        };
        let (pages, mut lost) = (&mut self.pages, Vec::new());
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
            &mut |level, index, error| {
                if !is_loss(&error) {
                    return Err(error);
                }
                let span = (PART_CONTENT_WORDS as u64).pow(u32::from(level)) * PART_WORDS as u64;
                lost.push((u64::from(index) * span, span, error.to_string()));
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
        let is_lost = |id: PageId| {
            lost.iter().any(|(first, span, _)| (*first..first + span).contains(&u64::from(id.0)))
        };
        // What users have put into large values may look like pages.
        let mut large = self.units_of_large_values()?;
        for _ in 0..MOST_LOOKS {
            self.look_everywhere(&large, &is_lost)?;
            if !self.note_values_over_pages(&mut large, &is_lost)? {
                return Ok(());
            }
            self.pages.retain(|id, _| !is_lost(*id));
        }
        self.look_everywhere(&large, &is_lost)
    }

    /// Where large values lie, by the leaves that the map names.
    fn units_of_large_values(&mut self) -> Result<Units> {
        let pages: Vec<(PageId, Slot)> = self.pages.iter().map(|(&id, &slot)| (id, slot)).collect();
        let mut units = Units::new();
        self.each_extent(&pages, &mut |extent| {
            let runs = extent.runs.iter();
            units.extend(runs.map(|run| (run.unit, run.unit + u64::from(run.units))));
        })?;
        Ok(units)
    }

    /// Notes the large values in which pages were found, by leaves that were found only now: a chunk whose checksum is right is
    /// a user's, whatever it looks like. Whether there is any: then what was found there is none of the pages that were wanted,
    /// and others may be.
    fn note_values_over_pages(
        &mut self,
        large: &mut Units,
        wanted: &dyn Fn(PageId) -> bool,
    ) -> Result<bool> {
        let geometry = self.superblock.geometry;
        let zones = geometry.zones_in(self.slots.file().len_bytes()?);
        let pages: Vec<(PageId, Slot)> = self.pages.iter().map(|(&id, &slot)| (id, slot)).collect();
        let found = pages.into_iter().filter(|(id, _)| wanted(*id)).collect::<Vec<_>>();
        let units: BTreeSet<u64> =
            found.iter().filter_map(|(_, slot)| geometry.unit_at(slot.offset_bytes())).collect();
        let mut extents = Vec::new();
        self.each_extent(&found, &mut |extent| {
            let over = |run: &Run| units.range(run.unit..run.unit + u64::from(run.units)).next();
            if extent.runs.iter().any(|run| over(run).is_some()) && extent.fits(geometry, zones) {
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
                if units.range(first..end).next().is_none() {
                    continue;
                }
                let chunk = &mut buffer[..place.stored_bytes];
                match self.slots.file().read_at(place.offset_bytes, chunk) {
                    Err(error) if is_loss(&error) => continue,
                    other => other?,
                }
                if is_chunk(extent.seed, index, chunk) && !leaves_out("found_leaves_claim_nothing")
                {
                    large.insert(first, end);
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

    /// Finds the image of each page whose id is wanted, in all units of the file that the checkpoint refers to. Where
    /// the zone table does not tell which those are, the newest image up to the checkpoint is taken, which may be older, or
    /// of a page that was removed.
    fn look_everywhere(&mut self, large: &Units, wanted: &dyn Fn(PageId) -> bool) -> Result<()> {
        let geometry = self.superblock.geometry;
        let page_bytes = u64::from(geometry.page_bytes());
        let unit_bytes = u64::from(geometry.unit_bytes());
        let file_bytes = self.slots.file().len_bytes()?;
        let mut buffer = AlignedBuffer::zeroed(geometry.page_bytes().max(4096) as usize)?;
        // Those that the checkpoint refers to come before all others.
        let mut newest: BTreeMap<PageId, (bool, Epoch)> = BTreeMap::new();
        let mut unreadable = 0_u64;
        for zone in 0..geometry.zones_in(file_bytes) {
            let zone_offset = geometry.zone_offset(zone);
            let place = |offset| Slot::new(offset, page_bytes, 0);
            if let Some(first) = place(zone_offset) {
                self.load_table_of(zone, first)?;
            }
            for unit in 0..u64::from(geometry.units_per_zone()) {
                let offset = zone_offset + unit * unit_bytes;
                if offset + page_bytes > zone_offset + u64::from(geometry.zone_bytes()) {
                    continue;
                }
                let unit = geometry.unit_at(offset).unwrap_or(u64::MAX);
                let is_large = large.range(..=unit).next_back().is_some_and(|(_, end)| unit < *end);
                if is_large && !leaves_out("values_taken_for_pages") {
                    continue;
                }
                let referenced =
                    place(offset).and_then(|slot| self.slots.state().zones.is_referenced(slot));
                if referenced == Some(false) && !leaves_out("images_of_no_checkpoint_pass") {
                    continue;
                }
                let image = &mut buffer[..page_bytes as usize];
                match self.slots.file().read_at(offset, image) {
                    Err(error) if is_loss(&error) => {
                        unreadable += 1;
                        continue;
                    }
                    other => other?,
                }
                let (id, epoch) = (header::page_id(image), header::epoch(image));
                let checksum = checksum_in(image);
                let is_one = id.is_usable()
                    && wanted(id)
                    && epoch <= self.superblock.checkpoint
                    && checksum == page_checksum(id, image)
                    && newest.get(&id).is_none_or(|found| *found < (referenced.is_some(), epoch));
                if let Some(slot) = Slot::new(offset, page_bytes, checksum).filter(|_| is_one) {
                    newest.insert(id, (referenced.is_some(), epoch));
                    self.pages.insert(id, slot);
                }
            }
            self.go_on(0)?;
        }
        if unreadable > 0 {
            self.note_defect(format!("{unreadable} units of the file cannot be read"));
        }
        Ok(())
    }

    /// Brings the part of the zone table that a zone is in into memory, if it is whole.
    fn load_table_of(&mut self, zone: u32, first: Slot) -> Result<()> {
        let wanted = self.slots.state().zones.group_to_load(first);
        let loaded = wanted.and_then(|group| group.map_or(Ok(()), |g| self.slots.load_group(g)));
        match loaded {
            Err(error) if is_loss(&error) => {
                let what = format!("which slots of zone {zone} are in use is not known: {error}");
                self.note_defect(what);
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
