//! Keys as numbers: the numeric part of a key, and the place of other keys among the numbers.
//!
//! "B-Trees Are Back" section 3.5 (numeric part extraction): a key is a big-endian number of which
//! the keys of one leaf differ only in the last four bytes, the *numeric part*; what stands before
//! them is the *stem*. A key of fewer than four bytes is all numeric part. Keys of one length and
//! stem are in the order of their numbers, and each other key lies between two numbers, which is
//! what lets fences and bounds of any length be used with such a leaf. Pure functions.

use std::cmp::Ordering;
use std::ops::Range;

/// Most bytes of a numeric part.
pub(super) const NUMERIC_BYTES: usize = 4;

/// What the keys of a dense leaf have in common: their stem, and how many bytes follow it.
///
/// Invariant: one to four numeric bytes, and four if there is a stem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyShape<'k> {
    stem: &'k [u8],
    width: usize,
}

/// Bytes of the stem of keys of this length.
#[inline(always)]
pub(super) const fn stem_len(key_len: usize) -> usize {
    key_len.saturating_sub(NUMERIC_BYTES)
}

/// The numeric part of a key: its last four bytes, or all of them if there are fewer.
#[inline(always)]
pub(super) fn numeric(key: &[u8]) -> u32 {
    match key.last_chunk::<NUMERIC_BYTES>() {
        Some(last) => u32::from_be_bytes(*last),
        None => key.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)),
    }
}

impl<'k> KeyShape<'k> {
    /// The shape of keys like this one; `None` of the empty key, which has no number.
    pub fn of(key: &'k [u8]) -> Option<Self> {
        let width = key.len().min(NUMERIC_BYTES);
        (width > 0).then(|| KeyShape { stem: &key[..stem_len(key.len())], width })
    }

    /// The shape of keys of `key_len` bytes, at least one, whose stem this is.
    pub(super) fn with_stem(stem: &'k [u8], key_len: usize) -> Self {
        debug_assert!(key_len > 0 && stem.len() == stem_len(key_len));
        KeyShape { stem, width: key_len.clamp(1, NUMERIC_BYTES) }
    }

    /// Bytes of a key.
    pub fn key_len(&self) -> usize {
        self.stem.len() + self.width
    }

    /// What all keys begin with.
    pub fn stem(&self) -> &'k [u8] {
        self.stem
    }

    /// Whether a key has this shape.
    pub fn has(&self, key: &[u8]) -> bool {
        key.len() == self.key_len() && (self.stem.is_empty() || key.starts_with(self.stem))
    }

    /// One more than the largest number that a key of this shape can have.
    pub fn end(&self) -> u64 {
        1 << (8 * self.width)
    }

    /// The smallest number whose key is not below `key`, whatever shape that has; [`Self::end`] if
    /// there is none.
    pub fn first_from(&self, key: &[u8]) -> u64 {
        self.first(key, false)
    }

    /// The smallest number whose key is above `key`, whatever shape that has; [`Self::end`] if
    /// there is none. For a lower fence this is the reference key of the paper.
    pub fn first_above(&self, key: &[u8]) -> u64 {
        self.first(key, true)
    }

    fn first(&self, key: &[u8], above: bool) -> u64 {
        let shared = key.len().min(self.stem.len());
        match key[..shared].cmp(&self.stem[..shared]) {
            Ordering::Less => 0,
            Ordering::Greater => self.end(),
            // A beginning of the stem is below all keys.
            Ordering::Equal if key.len() < self.stem.len() => 0,
            Ordering::Equal => first_in(self.width, &key[self.stem.len()..], above),
        }
    }

    /// The numbers whose keys lie between fences: lower < key <= upper (`None`: without end).
    pub fn between(&self, lower: Option<&[u8]>, upper: Option<&[u8]>) -> Range<u64> {
        let first = lower.map_or(0, |lower| self.first_above(lower));
        first..upper.map_or(self.end(), |upper| self.first_above(upper))
    }

    /// The key with this number, which is below [`Self::end`].
    pub fn key(&self, number: u32) -> Vec<u8> {
        let mut key = Vec::with_capacity(self.key_len());
        key.extend_from_slice(self.stem);
        key.extend_from_slice(&number.to_be_bytes()[NUMERIC_BYTES - self.width..]);
        key
    }
}

/// The smallest number of `width` bytes that as bytes is not below `rest` (or that is above it).
#[inline(always)]
pub(super) fn first_in(width: usize, rest: &[u8], above: bool) -> u64 {
    let byte = |at: usize| u64::from(rest.get(at).copied().unwrap_or(0));
    let number = (0..width).fold(0, |number, at| number << 8 | byte(at));
    // Padded with zeros, a shorter string is below its number. A longer one, and for `above` one of
    // this very length, is not below what its beginning says.
    number + u64::from(rest.len() + usize::from(above) > width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_in_the_order_of_their_keys() {
        let strings: [&[u8]; 14] = [
            b"",
            b"s",
            b"st",
            b"st\0",
            b"st\0\0",
            b"st\0\0\0",
            b"st\0\0\0\0",
            b"st\0\0\0\x01",
            b"st\0\0\x01",
            b"st\x80\0\0\0",
            b"st\xff\xff\xff\xfe\0",
            b"st\xff\xff\xff\xff",
            b"st\xff\xff\xff\xff\0",
            b"su",
        ];
        let shape = KeyShape::of(b"st0000").unwrap();
        assert_eq!((shape.key_len(), shape.stem(), shape.end()), (6, b"st".as_slice(), 1 << 32));
        for key in strings {
            for (bound, above) in [(shape.first_from(key), false), (shape.first_above(key), true)] {
                // The number before the bound is on the one side of the key, the bound on the
                // other.
                let belongs = |number: u32| match above {
                    true => shape.key(number).as_slice() > key,
                    false => shape.key(number).as_slice() >= key,
                };
                assert!(bound == shape.end() || belongs(bound as u32), "{key:?} {bound}");
                assert!(bound == 0 || !belongs((bound - 1) as u32), "{key:?} {bound}");
            }
        }
        for number in [0, 1, 0xff, 1 << 31, (1 << 31) - 1, u32::MAX] {
            assert_eq!(numeric(&shape.key(number)), number);
            assert!(shape.has(&shape.key(number)));
        }
        assert!(!shape.has(b"st000") && !shape.has(b"sa0000") && !shape.has(b"st00000"));
    }

    #[test]
    fn short_keys_are_all_number() {
        assert_eq!(KeyShape::of(b""), None);
        let shape = KeyShape::of(b"\x01\x02").unwrap();
        assert_eq!((shape.key_len(), shape.end()), (2, 1 << 16));
        assert_eq!(numeric(b"\x01\x02"), 0x102);
        assert_eq!(shape.key(0x102), b"\x01\x02");
        assert_eq!(shape.between(Some(b"\x01"), Some(b"\x01\x02")), 0x100..0x103);
        assert_eq!(shape.between(None, None), 0..1 << 16);
        assert_eq!(shape.first_above(b"\xff\xff"), 1 << 16);
        assert_eq!(shape.first_from(b"\xff\xff\0"), 1 << 16);
    }
}
