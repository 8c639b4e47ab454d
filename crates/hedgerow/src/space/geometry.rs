//! How a store's file is cut up, and all arithmetic on offsets, units, zones and groups.
//!
//! ```text
//! | header region, 64 KiB | zone 0 | zone 1 | ... | zone n-1 |
//! ```
//!
//! A zone is a run of equal units, of which the file's last zone may have only the first ones; a slot takes whole
//! units of one zone. Units are numbered through
//! the file (`u64`), zones likewise (`u32`). A *group* is as many zones as have their bitmaps in one
//! part of the zone table. Every sum here fits its type for every file that [`Geometry::max_zones`]
//! admits; the tests go to the ends. Invariant: the fields passed [`Geometry::from_sizes`].
//! Plain values, `Copy`, `Send + Sync`.

use crate::error::{Error, ErrorKind, Result};
use crate::page::header::{MAX_PAGE_BYTES, MIN_PAGE_BYTES};
use crate::types::{PART_BYTES, PART_HEADER_WORDS, PART_WORDS, SLOT_UNIT_BYTES, Slot};

/// Bytes at the file's start that belong to no zone: superblocks, and room for later formats.
pub const HEADER_REGION_BYTES: u64 = 64 << 10;
/// Words of a part that carry content.
pub const PART_CONTENT_WORDS: usize = PART_WORDS - PART_HEADER_WORDS;
/// Largest zone.
pub const MAX_ZONE_BYTES: u32 = 16 << 20;
/// Smallest allocation unit.
pub const MIN_UNIT_BYTES: u32 = SLOT_UNIT_BYTES as u32;
/// Largest allocation unit.
pub const MAX_UNIT_BYTES: u32 = 64 << 10;
/// Most units in a zone: the bitmap of one zone fits one part, with room to spare.
pub const MAX_UNITS_PER_ZONE: u32 = 1 << 14;
/// The file ends before this offset, because a slot's offset has 40 bits of 512 bytes.
pub const MAX_FILE_BYTES: u64 = SLOT_UNIT_BYTES << 40;

const _: () = assert!(MAX_UNITS_PER_ZONE as usize / 64 <= PART_CONTENT_WORDS);
const _: () = assert!(HEADER_REGION_BYTES.is_multiple_of(MAX_UNIT_BYTES as u64));

/// The sizes that are fixed when a store is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    page_bytes: u32,
    unit_bytes: u32,
    zone_bytes: u32,
}

impl Geometry {
    /// The geometry of a new store: zones of 512 pages, but 2 to 16 MiB; units of 512 bytes, but at least
    /// the file's block (`block_bytes`, 1 where there is none), and so large that a zone has no more of them than it may. Of
    /// a block that is larger than a page that does not make a store: pages are read and written by themselves.
    ///
    /// Errors: `InvalidOption` for a page size that is no power of two from 512 bytes to 64 KiB, or
    /// a block that is larger than 64 KiB or no power of two.
    pub fn for_new_store(page_bytes: u32, block_bytes: u32) -> Result<Geometry> {
        if !block_bytes.is_power_of_two() {
            let what = format!("the file's block of {block_bytes} bytes is no power of two");
            return Err(Error::new(ErrorKind::InvalidOption, what));
        }
        let zone = page_bytes.saturating_mul(512).clamp(2 << 20, MAX_ZONE_BYTES);
        let unit = MIN_UNIT_BYTES.max(block_bytes).max(zone / MAX_UNITS_PER_ZONE);
        Self::from_sizes(page_bytes, unit, zone)
    }

    /// Checks three sizes, of an option or out of a superblock.
    ///
    /// Errors: `InvalidOption`, naming the size that cannot be.
    pub fn from_sizes(page_bytes: u32, unit_bytes: u32, zone_bytes: u32) -> Result<Geometry> {
        let refuse = |what: String| Err(Error::new(ErrorKind::InvalidOption, what));
        let pages = MIN_PAGE_BYTES as u32..=MAX_PAGE_BYTES as u32;
        if !page_bytes.is_power_of_two() || !pages.contains(&page_bytes) {
            return refuse(format!(
                "page size {page_bytes} is not a power of two from {} to {} bytes",
                pages.start(),
                pages.end()
            ));
        }
        let units = MIN_UNIT_BYTES..=MAX_UNIT_BYTES;
        if !unit_bytes.is_power_of_two() || !units.contains(&unit_bytes) {
            return refuse(format!(
                "allocation unit {unit_bytes} is not a power of two from {MIN_UNIT_BYTES} to \
                 {MAX_UNIT_BYTES} bytes"
            ));
        }
        let largest_slot = page_bytes.max(PART_BYTES as u32).max(unit_bytes);
        if !zone_bytes.is_power_of_two()
            || !(2 * largest_slot..=MAX_ZONE_BYTES).contains(&zone_bytes)
            || zone_bytes / unit_bytes > MAX_UNITS_PER_ZONE
        {
            return refuse(format!(
                "zone size {zone_bytes} is not a power of two from {} to {MAX_ZONE_BYTES} bytes, \
                 or has more than {MAX_UNITS_PER_ZONE} units of {unit_bytes}",
                2 * largest_slot
            ));
        }
        Ok(Geometry { page_bytes, unit_bytes, zone_bytes })
    }

    /// Bytes of a page.
    pub const fn page_bytes(self) -> u32 {
        self.page_bytes
    }

    /// Bytes of an allocation unit.
    pub const fn unit_bytes(self) -> u32 {
        self.unit_bytes
    }

    /// Bytes of a zone.
    pub const fn zone_bytes(self) -> u32 {
        self.zone_bytes
    }

    /// Units in a zone.
    pub const fn units_per_zone(self) -> u32 {
        self.zone_bytes / self.unit_bytes
    }

    /// Bitmap words of a zone.
    pub const fn words_per_zone(self) -> usize {
        (self.units_per_zone() as usize).div_ceil(64)
    }

    /// Zones whose bitmaps share one part of the zone table.
    pub const fn zones_per_group(self) -> u32 {
        (PART_CONTENT_WORDS / self.words_per_zone()) as u32
    }

    /// Units in a whole group.
    pub const fn units_per_group(self) -> u32 {
        self.zones_per_group() * self.units_per_zone()
    }

    /// Most zones that a file can have.
    pub const fn max_zones(self) -> u32 {
        let zones = (MAX_FILE_BYTES - HEADER_REGION_BYTES) / self.zone_bytes as u64;
        if zones > u32::MAX as u64 / 2 { u32::MAX / 2 } else { zones as u32 }
    }

    /// First byte of a zone; also the length of a file with this many zones.
    pub const fn zone_offset(self, zone: u32) -> u64 {
        HEADER_REGION_BYTES + zone as u64 * self.zone_bytes as u64
    }

    /// Whole units in a file of this length, at most those of [`Self::max_zones`].
    pub fn units_in(self, file_bytes: u64) -> u64 {
        let units = file_bytes.saturating_sub(HEADER_REGION_BYTES) / u64::from(self.unit_bytes);
        units.min(self.units_of_zones(self.max_zones()))
    }

    /// Units of so many whole zones.
    pub const fn units_of_zones(self, zones: u32) -> u64 {
        zones as u64 * self.units_per_zone() as u64
    }

    /// Zones in which so many units lie, the last of which may be in the file in part.
    pub fn zones_of_units(self, units: u64) -> u32 {
        let zones = units.div_ceil(u64::from(self.units_per_zone()));
        u32::try_from(zones).unwrap_or(u32::MAX)
    }

    /// Units that a slot of this length takes.
    pub const fn units_for(self, len_bytes: u32) -> u32 {
        len_bytes.div_ceil(self.unit_bytes)
    }

    /// First byte of a unit, counted through the file.
    pub fn unit_offset(self, unit: u64) -> u64 {
        let bytes = unit * u64::from(self.unit_bytes);
        HEADER_REGION_BYTES + bytes
    }

    /// The unit that begins at an offset; `None` in the header region or inside a unit.
    pub fn unit_at(self, offset_bytes: u64) -> Option<u64> {
        let inside = offset_bytes.checked_sub(HEADER_REGION_BYTES)?;
        let unit_bytes = u64::from(self.unit_bytes);
        (inside % unit_bytes == 0).then_some(inside / unit_bytes)
    }

    /// Zone of a unit, and the unit's index in it.
    pub const fn split_unit(self, unit: u64) -> (u32, u32) {
        let per_zone = self.units_per_zone() as u64;
        ((unit / per_zone) as u32, (unit % per_zone) as u32)
    }

    /// Group of a zone, and the zone's index in it.
    pub const fn split_zone(self, zone: u32) -> (u32, u32) {
        (zone / self.zones_per_group(), zone % self.zones_per_group())
    }

    /// First unit and number of units of a slot that lies properly in a file of `file_units` units: on a
    /// unit, inside one zone. `None` for any other; slots out of a file are untrusted until then.
    pub fn slot_units(self, slot: Slot, file_units: u64) -> Option<(u64, u32)> {
        if slot.is_none() {
            return None;
        }
        let unit = self.unit_at(slot.offset_bytes())?;
        let units = self.units_for(slot.len_bytes() as u32);
        let first = unit / u64::from(self.units_per_zone());
        let last = (unit + u64::from(units) - 1) / u64::from(self.units_per_zone());
        (first == last && unit + u64::from(units) <= file_units).then_some((unit, units))
    }

    /// Whether a slot has the length of an image: that of a page, less whole units.
    pub const fn is_image_slot(self, slot: Slot) -> bool {
        is_image_len(slot.len_bytes(), self.page_bytes as u64, self.unit_bytes as u64)
    }
}

/// Whether images of pages of this size can have so many bytes.
pub const fn is_image_len(len_bytes: u64, page_bytes: u64, unit_bytes: u64) -> bool {
    len_bytes > 0 && len_bytes <= page_bytes && (page_bytes - len_bytes).is_multiple_of(unit_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_follow_the_page_size() {
        for (page, unit, zone) in [
            (2048, 512, 2 << 20),
            (4096, 512, 2 << 20),
            (8192, 512, 4 << 20),
            (65536, 1024, 16 << 20),
        ] {
            let g = Geometry::for_new_store(page, 512).unwrap();
            assert_eq!((g.unit_bytes(), g.zone_bytes()), (unit, zone), "page size {page}");
        }
        assert_eq!(Geometry::for_new_store(2048, 4096).unwrap().unit_bytes(), 4096);
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        for (page, unit, zone) in [
            (0, 512, 2 << 20),
            (256, 512, 2 << 20),
            (3000, 512, 2 << 20),
            (1 << 17, 4096, 2 << 20),
            (4096, 256, 2 << 20),
            (4096, 0, 2 << 20),
            (4096, 4096, 0),
            (4096, 4096, 4096),
            (4096, 4096, 3 << 20),
            (4096, 4096, 32 << 20),
            (512, 512, 16 << 20),
            (u32::MAX, u32::MAX, u32::MAX),
        ] {
            let refused = Geometry::from_sizes(page, unit, zone).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidOption, "{page} {unit} {zone}");
        }
        assert!(Geometry::for_new_store(4096, 3).is_err());
        assert!(Geometry::for_new_store(4096, 1 << 20).is_err());
    }

    #[test]
    fn arithmetic_holds_at_the_marks_where_narrow_types_end() {
        let sizes = [(512, 512, 32 << 10), (512, 512, 8 << 20), (4096, 4096, 2 << 20)];
        let sizes = sizes.into_iter().chain([(65536, 4096, 16 << 20)]);
        for (page, unit, zone) in sizes {
            let g = Geometry::from_sizes(page, unit, zone).unwrap();
            let marks =
                [4 << 30, (1 << 31) * u64::from(unit), (1 << 32) * u64::from(unit), 16 << 40];
            for mark in marks.into_iter().chain([g.zone_offset(g.max_zones()) - u64::from(zone)]) {
                let zone_index = ((mark - HEADER_REGION_BYTES) / u64::from(zone)) as u32;
                if zone_index >= g.max_zones() {
                    continue;
                }
                let at = g.zone_offset(zone_index);
                assert!(at <= mark && mark < at + u64::from(zone), "{mark:#x} in {g:?}");
                let units = g.units_of_zones(zone_index);
                assert_eq!((g.units_in(at), g.zones_of_units(units)), (units, zone_index));
                assert_eq!(g.units_in(at + u64::from(unit) - 1), units);
                assert_eq!(g.units_in(at + u64::from(unit)), units + 1);
                assert_eq!(g.zones_of_units(units + 1), zone_index + 1);
                let first = g.unit_at(at).unwrap();
                assert_eq!(g.unit_offset(first), at);
                assert_eq!(g.split_unit(first), (zone_index, 0));
                assert_eq!(g.split_unit(first - 1), (zone_index - 1, g.units_per_zone() - 1));
                let slot = Slot::new(at, u64::from(page), 7).unwrap();
                assert_eq!(slot.offset_bytes(), at);
                let end = first + u64::from(g.units_for(page));
                assert_eq!(g.slot_units(slot, end), Some((first, g.units_for(page))));
                assert_eq!(g.slot_units(slot, end - 1), None, "past the end");
            }
            assert!(g.zone_offset(g.max_zones()) <= MAX_FILE_BYTES);
            assert_eq!(g.zones_of_units(g.units_in(u64::MAX)), g.max_zones());
            assert_eq!(g.units_in(0), 0);
        }
    }

    #[test]
    fn a_slot_across_two_zones_or_off_its_unit_is_none() {
        let g = Geometry::from_sizes(8192, 4096, 64 << 10).unwrap();
        let at = |offset, len| g.slot_units(Slot::new(offset, len, 0).unwrap(), 64);
        assert!(at(g.zone_offset(1) - 8192, 8192).is_some());
        assert_eq!(at(g.zone_offset(1) - 4096, 8192), None);
        assert_eq!(at(g.zone_offset(1) + 512, 4096), None);
        assert_eq!(at(0, 4096), None);
        assert_eq!(g.slot_units(Slot::NONE, 64), None);
    }
}
