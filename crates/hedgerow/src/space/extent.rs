//! A large value's place in the file, and how a record says that its value lies there.
//!
//! A value that no leaf holds lies in an *extent*: runs of whole units, one run where the file has that many
//! neighbouring zones free. The leaf's record has a *reference* instead: a value like any other to whatever
//! handles pages, told from what a user put by its first eight bytes. A short value of the user's that happens
//! to begin with them is stored behind the same bytes and a mark (*escaped*), so that nothing a user puts is
//! ever taken for a reference.
//!
//! ```text
//! stored form = magic (8), kind (1): 1 escaped: the value; 2 reference:
//! reference   = zero (3), number of runs (4), length of the value (8), seed (8), runs (8 each)
//! run         = first unit (40 bits), number of units (24 bits)
//! extent      = chunk*: checksum (8), bytes of the value; each fills `chunk_bytes`, the last whole units
//! ```
//!
//! Every chunk is checked by itself, with a seed that is the extent's own and counts up with the chunk: one
//! that is torn, of another extent, or of an earlier use of the units fails. Reading bytes is total: what
//! cannot be a reference is `None`, and where runs lie is checked against the file by whoever follows them.
//! Pure functions and plain values.

use super::geometry::Geometry;
use crate::checksum::block_checksum;

/// What stored forms begin with: random bytes.
pub const STORED_MAGIC: [u8; 8] = [0x9b, 0xe1, 0x4c, 0x07, 0xd6, 0x3a, 0x81, 0xf5];
/// The longest value.
pub const MAX_VALUE_BYTES: u64 = 4 << 30;
/// The most runs of an extent.
pub const MAX_RUNS: usize = 64;

const ESCAPED: u8 = 1;
const REFERENCE: u8 = 2;
const ESCAPE_BYTES: usize = 9;
/// Bytes of a reference before its runs.
const REFERENCE_BYTES: usize = 32;
const RUN_SHIFT: u32 = 40;
/// Bytes of a chunk that hold its checksum.
pub const CHUNK_HEADER_BYTES: usize = 8;
/// Bytes of a chunk, where the file's units and zones let it.
const CHUNK_BYTES: u32 = 32 << 10;

/// Neighbouring units of an extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Run {
    /// The first unit, counted through the file.
    pub unit: u64,
    /// How many; never zero.
    pub units: u32,
}

/// Where a large value lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Length of the value.
    pub len_bytes: u64,
    /// What the checksums of its chunks are seeded with, counting up.
    pub seed: u64,
    /// Its units, in the order of the value.
    pub runs: Box<[Run]>,
}

/// What a value in a leaf is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stored<'a> {
    /// The user's value.
    Plain(&'a [u8]),
    /// A reference to it.
    Extent(Extent),
    /// No stored form begins like this.
    Damaged,
}

/// Whether a value is in a stored form, or would have to be.
#[inline]
pub fn is_stored_form(value: &[u8]) -> bool {
    value.first_chunk() == Some(&STORED_MAGIC)
}

/// The escaped form of a user's value, for which [`is_stored_form`] is true.
pub fn escape(value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ESCAPE_BYTES + value.len());
    bytes.extend_from_slice(&STORED_MAGIC);
    bytes.push(ESCAPED);
    bytes.extend_from_slice(value);
    bytes
}

/// Bytes of [`escape`].
pub fn escaped_bytes(value: &[u8]) -> usize {
    ESCAPE_BYTES + value.len()
}

/// What a value out of a leaf stands for.
pub fn read_stored(value: &[u8]) -> Stored<'_> {
    if !is_stored_form(value) {
        return Stored::Plain(value);
    }
    match value.get(STORED_MAGIC.len()) {
        Some(&ESCAPED) => Stored::Plain(&value[ESCAPE_BYTES..]),
        Some(&REFERENCE) => Extent::decode(value).map_or(Stored::Damaged, Stored::Extent),
        _ => Stored::Damaged,
    }
}

/// Seed and length of the value that a reference stands for; the rest of it is not looked at.
#[inline]
pub fn read_reference(value: &[u8]) -> Option<(u64, u64)> {
    let head = value.first_chunk::<REFERENCE_BYTES>()?;
    if !is_stored_form(value) || head[8] != REFERENCE {
        return None;
    }
    let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
    (1..=MAX_VALUE_BYTES).contains(&word(16)).then(|| (word(24), word(16)))
}

/// Whether two references stand for one value, at two places: a copy has the seed of what it is a copy of, and no other value has it.
#[inline]
pub fn is_same_value(one: &[u8], other: &[u8]) -> bool {
    let of = read_reference(one);
    of.is_some() && of == read_reference(other)
}

/// Bytes of a reference to an extent of so many runs.
pub const fn reference_bytes(runs: usize) -> usize {
    REFERENCE_BYTES + 8 * runs
}

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
    /// The reference, for a leaf's record.
    pub fn encode(&self) -> Vec<u8> {
        assert!(!self.runs.is_empty() && self.runs.len() <= MAX_RUNS);
        let mut bytes = Vec::with_capacity(reference_bytes(self.runs.len()));
        bytes.extend_from_slice(&STORED_MAGIC);
        bytes.extend_from_slice(&[REFERENCE, 0, 0, 0]);
        bytes.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.len_bytes.to_le_bytes());
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        for run in &self.runs {
            assert!(run.unit < 1 << RUN_SHIFT && (1..1 << (64 - RUN_SHIFT)).contains(&run.units));
            let word = run.unit | u64::from(run.units) << RUN_SHIFT;
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Extent> {
        let head = bytes.first_chunk::<REFERENCE_BYTES>()?;
        let word =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let count = u32::from_le_bytes(head[12..16].try_into().expect("four bytes")) as usize;
        let sound = head[9..12] == [0; 3]
            && (1..=MAX_RUNS).contains(&count)
            && bytes.len() == reference_bytes(count)
            && (1..=MAX_VALUE_BYTES).contains(&word(16));
        if !sound {
            return None;
        }
        let runs: Option<Box<[Run]>> = bytes[REFERENCE_BYTES..]
            .chunks_exact(8)
            .map(|run| {
                let word = u64::from_le_bytes(run.try_into().expect("eight bytes"));
                let units = (word >> RUN_SHIFT) as u32;
                (units > 0).then_some(Run { unit: word & ((1 << RUN_SHIFT) - 1), units })
            })
            .collect();
        Some(Extent { len_bytes: word(16), seed: word(24), runs: runs? })
    }

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
    use hedgerow_sync::primitive::random::SplitMix64;

    fn sample(len_bytes: u64, runs: &[(u64, u32)]) -> Extent {
        let runs = runs.iter().map(|&(unit, units)| Run { unit, units }).collect();
        Extent { len_bytes, seed: 7, runs }
    }

    #[test]
    fn an_escaped_value_has_the_length_that_is_said() {
        for value in [&b""[..], b"1", b"four and more"] {
            assert_eq!(escaped_bytes(value), escape(value).len());
            assert!(escape(value).ends_with(value));
        }
    }

    #[test]
    fn stored_forms_come_back_and_no_users_value_is_taken_for_one() {
        let extent = sample(100_000, &[(5, 25), ((1 << 40) - 1, (1 << 24) - 1)]);
        let bytes = extent.encode();
        assert_eq!(bytes.len(), reference_bytes(2));
        assert_eq!(read_stored(&bytes), Stored::Extent(extent));
        // A user who puts a reference as a value gets those bytes back.
        let escaped = escape(&bytes);
        assert!(is_stored_form(&bytes) && is_stored_form(&escaped));
        assert_eq!(read_stored(&escaped), Stored::Plain(&bytes));
        for short in [&b""[..], b"wren", &STORED_MAGIC[..7]] {
            assert!(!is_stored_form(short));
            assert_eq!(read_stored(short), Stored::Plain(short));
        }
        assert_eq!(read_stored(&STORED_MAGIC), Stored::Damaged);
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
