//! How a record says that its value lies in an extent of the file.
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
//! ```
//!
//! Reading bytes is total: what cannot be a reference is `None`. Where runs lie is checked against the file by whoever follows them
//! (`space/large/chunks.rs`, which also has the arithmetic of an extent's bytes).
//! Pure functions and plain values.

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
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
