//! Where every byte of the file is, and the check that the running figures say the same as the bitmaps.
//!
//! The other half of [`super::zones`]. Reads nothing. Not shared: the caller's lock covers each call.

use super::geometry::HEADER_REGION_BYTES;
use super::runs::Runs;
use super::staged::Staged;
use super::table_part::TablePart;
use super::zone::{Group, Zone};
use super::zones::Zones;
use crate::error::{Error, ErrorKind, Result};
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;

/// What every byte of the file is used for. See [`Database::space_report`](crate::Database::space_report).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct SpaceReport {
    /// The header region with the superblocks.
    pub header_bytes: u64,
    /// In use by pages, the page map and large values.
    pub used_bytes: u64,
    /// Free.
    pub free_bytes: u64,
    /// Out of date, but still needed by a checkpoint: by the last one, or by one that a backup or `verify` reads.
    pub quarantined_bytes: u64,
    /// Being given back to the file system at this moment.
    pub out_bytes: u64,
    /// The file's length: the sum of all of the above.
    pub file_bytes: u64,
    /// Of the free bytes, those that were given back to the file system as holes since opening.
    pub hole_bytes: u64,
    /// Memory that the allocator of file space takes, in bytes.
    pub memory_bytes: usize,
}

impl SpaceReport {
    /// The sum of all kinds, in bytes. It is the length that the file should have.
    #[must_use]
    pub fn accounted_bytes(&self) -> u64 {
        self.header_bytes
            + self.used_bytes
            + self.free_bytes
            + self.quarantined_bytes
            + self.out_bytes
    }
}

impl Zones {
    /// Where every byte is. Reads nothing.
    pub fn report(&self) -> SpaceReport {
        let unit = u64::from(self.geometry.unit_bytes());
        let quarantined = self.quarantine.units() + self.extents.left_units();
        let quarantined = quarantined.min(self.held_units);
        SpaceReport {
            header_bytes: HEADER_REGION_BYTES,
            used_bytes: (self.held_units - quarantined) * unit,
            free_bytes: (self.units - self.held_units - self.out_units) * unit,
            quarantined_bytes: quarantined * unit,
            out_bytes: self.out_units * unit,
            file_bytes: self.geometry.unit_offset(self.units),
            hole_bytes: self.hole_bytes(),
            memory_bytes: self.memory_bytes(),
        }
    }

    /// A zone that could not be filled may hold something, so that not all of it is a hole.
    fn hole_bytes(&self) -> u64 {
        let unit = u64::from(self.geometry.unit_bytes());
        let holes = u64::from(self.holes) * u64::from(self.geometry.zone_bytes());
        holes.min((self.units - self.held_units) * unit)
    }

    /// Memory held, in bytes: what counts against the memory limit.
    pub fn memory_bytes(&self) -> usize {
        let per_group = self.geometry.zones_per_group() as usize;
        // Of a zone: its entry, and its place in the index.
        let zone = size_of::<Zone>() + 12;
        let words = per_group * self.geometry.words_per_zone() * 8;
        self.groups.capacity() * size_of::<Group>()
            + self.loaded_groups * (2 * words + per_group * zone)
            + self.upper.iter().map(|level| level.len() * size_of::<TablePart>()).sum::<usize>()
            + self.staged.as_ref().map_or(0, Staged::memory_bytes)
            + self.quarantine.memory_bytes()
            + self.extents.memory_bytes()
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
        let (mut held, mut room, mut complete) = (0, 0, true);
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
                let zone_number = g as u32 * self.geometry.zones_per_group() + z as u32;
                held += u64::from(taken - self.taken_by_nobody(zone_number));
                if z < self.zones_in_group(g as u32) as usize {
                    room += u64::from(self.room_of(zone));
                    if zone.runs != Runs::of_bits(self.geometry, bits) {
                        return differs(format!(
                            "zone {z} of group {g}: its runs are counted wrong"
                        ));
                    };
                }
            }
        }
        let loaded = self.groups.iter().filter(|group| group.loaded.is_some()).count();
        if loaded != self.loaded_groups {
            return differs(format!("{loaded} groups in memory, {} counted", self.loaded_groups));
        }
        if complete && held != self.held_units {
            return differs(format!("{held} units held, {} counted", self.held_units));
        }
        let counted = self.room.load(Relaxed);
        if room != counted {
            return differs(format!("room for {room} pages, {counted} counted"));
        }
        Ok(())
    }
}
