//! Values that are made from their key's number, and sums over values that do not depend on the
//! order.
//!
//! Plain data; nothing here is shared between threads.

use rand::SeedableRng;
use rand_distr::{Distribution, LogNormal};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// A sum over everything that a phase read. Written as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Checksum(pub u64);

impl Checksum {
    /// Adds another part of the work.
    pub fn add(&mut self, sum: u64) {
        self.0 = self.0.wrapping_add(sum);
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Checksum, D::Error> {
        let text = String::deserialize(deserializer)?;
        u64::from_str_radix(&text, 16).map(Checksum).map_err(|_| {
            de::Error::custom(format!("`{text}` is no checksum of 16 hexadecimal digits"))
        })
    }
}

/// The sum of `bytes` as little-endian words of 8 bytes, the last one filled up with zeros: reads
/// every byte.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut sum = 0_u64;
    for word in words {
        sum = sum.wrapping_add(u64::from_le_bytes(*word));
    }
    sum.wrapping_add(last_word(rest))
}

/// A sum over what a scan of some records looks at: all of the value, and how long the key is. No more of the key, because
/// the papers' programs look at none of it: with every byte of the keys summed, a quarter of the time of a scan of 1 to 50
/// URLs was the sum's. Values there have 8 bytes, and cost one addition.
#[inline]
pub fn glance(key: &[u8], value: &[u8]) -> u64 {
    sum(value).wrapping_add((key.len() as u64) << 32 | value.len() as u64)
}

/// Up to 7 bytes as a word, without a call: keys of integers are nothing else.
#[inline]
fn last_word(rest: &[u8]) -> u64 {
    if let (Some(first), Some(last)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        // The two halves overlap in bytes that both have in the same place.
        let last = u64::from(u32::from_le_bytes(*last)) << (8 * (rest.len() - 4));
        return u64::from(u32::from_le_bytes(*first)) | last;
    }
    rest.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Lengths of values that differ: log-normal, cut off at both ends. The length of a value follows from its key's number and
/// the generation, so overwriting changes it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spread {
    /// Half of the values have at most so many bytes.
    pub median_bytes: u32,
    /// Standard deviation of the length's natural logarithm.
    pub sigma: f64,
    /// The shortest, at least 8 bytes, so that values tell keys and generations apart.
    pub least_bytes: u32,
    /// The longest.
    pub most_bytes: u32,
}

/// Lengths that are drawn once; a power of two, so that a mask chooses one.
const DRAWN_LENGTHS: usize = 1 << 16;

impl Spread {
    /// Says what makes no sense.
    pub fn check(&self) -> Result<(), String> {
        let bounds = self.least_bytes..=self.most_bytes;
        if self.least_bytes < 8 || !bounds.contains(&self.median_bytes) {
            return Err(format!("lengths of {bounds:?} bytes around {}", self.median_bytes));
        }
        match self.sigma {
            sigma if (0.0..=10.0).contains(&sigma) => Ok(()),
            sigma => Err(format!("sigma is {sigma}, not in 0 to 10")),
        }
    }

    /// The lengths that values have, in no order; the same ones everywhere.
    ///
    /// # Panics
    /// If [`Self::check`] refuses it.
    fn lengths(&self) -> Vec<u32> {
        let logarithm = f64::from(self.median_bytes).ln();
        let lengths = LogNormal::new(logarithm, self.sigma).expect("the spread was checked");
        let mut rng = Pcg64Mcg::seed_from_u64(1);
        let mut draw = || lengths.sample(&mut rng) as u32;
        let cut = |len: u32| len.clamp(self.least_bytes, self.most_bytes);
        (0..DRAWN_LENGTHS).map(|_| cut(draw())).collect()
    }

    /// Bytes of a value on average.
    ///
    /// # Panics
    /// If [`Self::check`] refuses it.
    pub fn mean_bytes(&self) -> usize {
        let total: u64 = self.lengths().iter().map(|&len| u64::from(len)).sum();
        (total / DRAWN_LENGTHS as u64) as usize
    }
}

/// Where values are taken from has so many bytes more than the longest one: no two values of a block that a store compresses by itself are
/// likely to have bytes in common.
const POOL_BYTES: usize = 1 << 20;
/// So many bytes of noise, then as many equal letters.
const RUN_BYTES: usize = 16;

/// Makes values: 8 bytes that follow from the key's number and the generation, then bytes that begin at another place of a pool for each key
/// and generation. Half of them are noise, and half are letters in runs, so that compression saves about two fifths, as of many records of
/// programs, and nothing is gained from what others have.
#[derive(Clone, Debug)]
pub struct Values {
    pool: Vec<u8>,
    value: Vec<u8>,
    /// Lengths to choose from; empty if all values are as long.
    lengths: Vec<u32>,
}

impl Values {
    /// Values of `len_bytes` bytes each, unless there is a spread.
    ///
    /// # Panics
    /// If [`Spread::check`] refuses the spread.
    pub fn new(len_bytes: usize, spread: Option<Spread>) -> Values {
        let lengths = spread.map(|spread| spread.lengths()).unwrap_or_default();
        let most = spread.map_or(len_bytes, |spread| spread.most_bytes as usize);
        // Of a value of eight bytes nothing comes from the pool.
        let pool_bytes = if most > 8 { POOL_BYTES + most } else { most };
        let byte = |at: usize| match (at / RUN_BYTES).is_multiple_of(2) {
            true => mix(at as u64) as u8,
            false => b'v',
        };
        let pool = (0..pool_bytes).map(byte).collect();
        Values { pool, value: vec![0; most], lengths }
    }

    /// The value of key number `key` in `generation`: 0 is loaded or inserted, 1 is overwritten by the
    /// first phase that does so, 2 by the second.
    #[inline]
    pub fn of(&mut self, key: u32, generation: u32) -> &[u8] {
        let word = mix(u64::from(generation) << 32 | u64::from(key));
        let end = self.len_of(word);
        let value = &mut self.value[..end];
        if end > 8 {
            let from = mix(word) as usize % POOL_BYTES;
            value.copy_from_slice(&self.pool[from..from + end]);
        }
        let len = end.min(8);
        value[..len].copy_from_slice(&word.to_le_bytes()[..len]);
        value
    }

    /// Bytes of the values of the first `keys` keys, as they are loaded.
    pub fn total_bytes(&self, keys: usize) -> u64 {
        match self.lengths.is_empty() {
            true => (self.value.len() * keys) as u64,
            false => (0..keys as u64).map(|key| self.len_of(mix(key)) as u64).sum(),
        }
    }

    #[inline]
    fn len_of(&self, word: u64) -> usize {
        match self.lengths.is_empty() {
            true => self.value.len(),
            false => self.lengths[word as usize % DRAWN_LENGTHS] as usize,
        }
    }
}

/// A permutation of the 64-bit numbers that looks random (the finish of SplitMix64).
#[inline]
pub const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_survive_json() {
        for sum in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            let json = serde_json::to_string(&Checksum(sum)).unwrap();
            assert_eq!(serde_json::from_str::<Checksum>(&json).unwrap(), Checksum(sum));
        }
        assert!(serde_json::from_str::<Checksum>("\"no sum\"").is_err());
    }

    #[test]
    fn every_byte_counts() {
        for len in 1..40 {
            let mut values = Values::new(len, None);
            let mut value = values.of(7, 0).to_vec();
            let before = sum(&value);
            for at in 0..len {
                value[at] ^= 0x10;
                assert_ne!(sum(&value), before, "byte {at} of {len}");
                value[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn a_last_word_is_filled_up_with_zeros() {
        let bytes: Vec<u8> = (1..=7).map(|byte| byte * 31).collect();
        for len in 0..=7 {
            let mut word = [0; 8];
            word[..len].copy_from_slice(&bytes[..len]);
            assert_eq!(sum(&bytes[..len]), u64::from_le_bytes(word), "{len} bytes");
        }
    }

    #[test]
    fn values_tell_keys_and_generations_apart() {
        let mut values = Values::new(8, None);
        let first = values.of(1, 0).to_vec();
        assert_ne!(values.of(2, 0), first);
        assert_ne!(values.of(1, 1), first);
        assert_eq!(values.of(1, 0), first);
        assert_eq!(Values::new(3, None).of(1, 0).len(), 3);
    }

    #[test]
    fn values_have_little_in_common_but_their_letters() {
        let mut values = Values::new(100, None);
        let all: Vec<Vec<u8>> = (0..150).map(|key| values.of(key, 0).to_vec()).collect();
        let pieces = all.iter().flat_map(|value| value.windows(8).skip(8));
        let noise: Vec<&[u8]> = pieces.filter(|piece| !piece.contains(&b'v')).collect();
        let distinct: std::collections::BTreeSet<&[u8]> = noise.iter().copied().collect();
        assert!(noise.len() > 3_000 && distinct.len() * 10 > noise.len() * 9, "{}", distinct.len());
        let letters = all.iter().flatten().filter(|byte| **byte == b'v').count();
        assert!((60..75).contains(&(letters / 100)), "{letters} letters of 15,000 bytes");
    }

    #[test]
    fn a_spread_gives_lengths_within_its_bounds_that_add_up() {
        let spread =
            Spread { median_bytes: 1_200, sigma: 1.5, least_bytes: 8, most_bytes: 1 << 20 };
        let mut values = Values::new(0, Some(spread));
        let lengths: Vec<u64> = (0..20_000).map(|key| values.of(key, 0).len() as u64).collect();
        assert_eq!(values.total_bytes(lengths.len()), lengths.iter().sum::<u64>());
        assert!(lengths.iter().all(|len| (8..=1 << 20).contains(len)));
        let below = lengths.iter().filter(|len| **len <= 1_200).count();
        assert!((9_600..10_400).contains(&below), "{below} of 20,000 are below the median");
        assert_ne!(values.of(1, 1).len() as u64, lengths[1], "overwriting changes lengths");
        let mean = lengths.iter().sum::<u64>() / 20_000;
        assert!(spread.mean_bytes().abs_diff(mean as usize) < mean as usize / 10);
        assert!(spread.check().is_ok());
        assert!(Spread { least_bytes: 7, ..spread }.check().is_err());
        assert!(Spread { median_bytes: 7, ..spread }.check().is_err());
        assert!(Spread { sigma: f64::NAN, ..spread }.check().is_err());
    }
}
