//! Where an extent lies in the file, and the chunks that it is made of.
//!
//! Every chunk is checked by itself, with a seed that is the extent's own and counts up with the chunk: one that is torn, of another
//! extent, or of an earlier use of the units fails. Where runs lie is checked against the file ([`Extent::fits`]) before they are followed.
//!
//! ```text
//! extent = chunk*: checksum (8), bytes of the value; each fills `chunk_bytes`, the last whole units
//! ```
//!
//! Pure functions and plain values.

use crate::checksum::block_checksum;
use crate::large::{Extent, Run};
use crate::space::geometry::Geometry;

/// Bytes of a chunk that hold its checksum.
pub const CHUNK_HEADER_BYTES: usize = 8;
/// Bytes of a chunk, where the file's units and zones let it.
const CHUNK_BYTES: u32 = 32 << 10;

/// Bytes of a chunk in a file cut up like this: a power of two, whole units, and a whole number of them in a zone.
pub fn chunk_bytes(geometry: Geometry) -> u32 {
    CHUNK_BYTES.min(geometry.zone_bytes()).max(geometry.unit_bytes())
}

/// Units that a value of this length takes.
pub fn units_of_value(geometry: Geometry, len_bytes: u64) -> u64 {
    let chunk = u64::from(chunk_bytes(geometry));
    let payload = chunk - CHUNK_HEADER_BYTES as u64;
    let (whole, rest) = (len_bytes / payload, len_bytes % payload);
    let last = if rest == 0 { 0 } else { rest + CHUNK_HEADER_BYTES as u64 };
    let unit = u64::from(geometry.unit_bytes());
    whole * (chunk / unit) + last.div_ceil(unit)
}

/// Puts the checksum of chunk `index` into its first bytes; the bytes are the whole chunk as it is written.
pub fn seal_chunk(seed: u64, index: u64, chunk: &mut [u8]) {
    let checksum = chunk_checksum(seed, index, chunk);
    chunk[..CHUNK_HEADER_BYTES].copy_from_slice(&checksum.to_le_bytes());
}

/// Whether the bytes are chunk `index` of the extent.
pub fn is_chunk(seed: u64, index: u64, chunk: &[u8]) -> bool {
    chunk.first_chunk() == Some(&chunk_checksum(seed, index, chunk).to_le_bytes())
}

fn chunk_checksum(seed: u64, index: u64, chunk: &[u8]) -> u64 {
    block_checksum(seed.wrapping_add(index), chunk)
}

impl Extent {
    /// Whether the extent can be one of a file with so many zones: all of it inside, as many units as the value
    /// takes, and no chunk across two runs. True of no other may the runs be followed.
    pub fn fits(&self, geometry: Geometry, file_units: u64) -> bool {
        let units: u64 = self.runs.iter().map(|run| u64::from(run.units)).sum();
        let per_chunk = chunk_bytes(geometry) / geometry.unit_bytes();
        let whole =
            self.runs[..self.runs.len() - 1].iter().all(|run| run.units.is_multiple_of(per_chunk));
        let end_of = |run: &Run| run.unit.saturating_add(u64::from(run.units));
        let apart = |at: usize| {
            let (run, before) = (&self.runs[at], &self.runs[..at]);
            before.iter().all(|other| end_of(other) <= run.unit || end_of(run) <= other.unit)
        };
        whole
            && self.runs.iter().all(|run| end_of(run) <= file_units)
            && (0..self.runs.len()).all(apart)
            && units == units_of_value(geometry, self.len_bytes)
    }

    /// Chunks of the value.
    pub fn chunks(&self, geometry: Geometry) -> u64 {
        let payload = u64::from(chunk_bytes(geometry)) - CHUNK_HEADER_BYTES as u64;
        self.len_bytes.div_ceil(payload)
    }

    /// Where chunk `index` lies: offset in the file, bytes in the file, and bytes of the value in it; and how many
    /// whole chunks follow directly behind it. The extent fits, and has that chunk.
    pub fn place(&self, geometry: Geometry, index: u64) -> ChunkPlace {
        let chunk = u64::from(chunk_bytes(geometry));
        let payload = chunk - CHUNK_HEADER_BYTES as u64;
        let per_chunk = u64::from(chunk_bytes(geometry) / geometry.unit_bytes());
        let mut unit = index * per_chunk;
        for run in &self.runs {
            if unit < u64::from(run.units) {
                let value_bytes = (self.len_bytes - index * payload).min(payload);
                let unit_bytes = u64::from(geometry.unit_bytes());
                let stored = (value_bytes + CHUNK_HEADER_BYTES as u64).next_multiple_of(unit_bytes);
                return ChunkPlace {
                    offset_bytes: geometry.unit_offset(run.unit + unit),
                    stored_bytes: stored as usize,
                    value_bytes: value_bytes as usize,
                    follow: (u64::from(run.units) - unit).div_ceil(per_chunk) - 1,
                };
            }
            unit -= u64::from(run.units);
        }
        panic!("an extent that fits has room for each of its chunks")
    }
}

/// See [`Extent::place`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkPlace {
    /// First byte in the file.
    pub offset_bytes: u64,
    /// Bytes in the file: whole units.
    pub stored_bytes: usize,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// Chunks that lie directly behind it.
    pub follow: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::large::{MAX_VALUE_BYTES, Stored, read_stored};
    use hedgerow_sync::primitive::random::SplitMix64;

    fn sample(len_bytes: u64, runs: &[(u64, u32)]) -> Extent {
        let runs = runs.iter().map(|&(unit, units)| Run { unit, units }).collect();
        Extent { len_bytes, seed: 7, runs }
    }

    #[test]
    fn any_bytes_behind_the_magic_are_read_without_a_panic() {
        let mut random = SplitMix64::new(11);
        println!("seed 11");
        let geometry = Geometry::from_sizes(4096, 4096, 2 << 20).unwrap();
        let whole = sample(100_000, &[(5, 25)]).encode();
        for _ in 0..20_000 {
            let mut bytes = whole.clone();
            for _ in 0..1 + random.below(3) {
                let at = 8 + random.below(bytes.len() as u64 - 8) as usize;
                bytes[at] = random.next_u64() as u8;
            }
            bytes.truncate(8 + random.below(bytes.len() as u64 - 7) as usize);
            if let Stored::Extent(extent) = read_stored(&bytes)
                && extent.fits(geometry, geometry.units_of_zones(4))
            {
                for index in 0..extent.chunks(geometry) {
                    let place = extent.place(geometry, index);
                    let end = place.offset_bytes + place.stored_bytes as u64;
                    assert!(end <= geometry.zone_offset(4), "{extent:?}");
                }
            }
        }
    }

    #[test]
    fn chunks_cover_the_value_and_its_units_for_all_sizes() {
        for (page, unit, zone) in [
            (512, 512, 32 << 10),
            (512, 512, 8 << 10),
            (4096, 4096, 2 << 20),
            (4096, 65536, 2 << 20),
        ] {
            let g = Geometry::from_sizes(page, unit, zone).unwrap();
            let chunk = u64::from(chunk_bytes(g));
            let zone = u64::from(zone);
            assert!(zone.is_multiple_of(chunk) && chunk.is_multiple_of(u64::from(unit)));
            for len in [1, chunk - 9, chunk - 8, chunk - 7, 3 * chunk, 1 << 20, MAX_VALUE_BYTES] {
                let units = units_of_value(g, len);
                let extent = sample(len, &[(3, units as u32)]);
                assert!(extent.fits(g, units + 3) && !extent.fits(g, units + 2), "{len} in {g:?}");
                let last = extent.chunks(g) - 1;
                let place = extent.place(g, last);
                let end = place.offset_bytes + place.stored_bytes as u64;
                assert_eq!(end, g.unit_offset(3 + units), "{len} in {g:?}");
                assert_eq!(place.follow, 0);
                let before = last * (chunk - 8);
                assert_eq!(before + place.value_bytes as u64, len);
            }
        }
    }

    #[test]
    fn a_chunk_in_the_wrong_place_or_with_a_wrong_byte_is_none() {
        let mut chunk = vec![5; 4096];
        seal_chunk(9, 3, &mut chunk);
        assert!(is_chunk(9, 3, &chunk));
        assert!(!is_chunk(9, 4, &chunk) && !is_chunk(8, 3, &chunk));
        for at in [0, 7, 8, 4095] {
            let mut damaged = chunk.clone();
            damaged[at] ^= 1;
            assert!(!is_chunk(9, 3, &damaged));
        }
    }

    #[test]
    fn runs_that_overlap_or_cut_a_chunk_in_two_do_not_fit() {
        let g = Geometry::from_sizes(4096, 4096, 2 << 20).unwrap();
        let len = 2 * ((32 << 10) - 8);
        assert_eq!(units_of_value(g, len), 16);
        for (runs, fits) in [
            (&[(0, 16)][..], true),
            (&[(0, 8), (8, 8)], true),
            (&[(40, 8), (0, 8)], true),
            (&[(0, 8), (4, 8)], false),
            (&[(4, 8), (0, 8)], false),
            (&[(8, 8), (8, 8)], false),
            (&[(0, 4), (8, 12)], false),
            (&[(0, 8), (8, 7)], false),
            (&[(0, 8), (8, 8), (16, 8)], false),
            (&[(0, 8), (505, 8)], false),
            (&[(0, 8), (u64::MAX, 8)], false),
        ] {
            assert_eq!(sample(len, runs).fits(g, g.units_of_zones(1)), fits, "{runs:?}");
        }
    }
}
