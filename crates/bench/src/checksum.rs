//! Values that are made from their key's number, and sums over values that do not depend on the
//! order.
//!
//! Plain data; nothing here is shared between threads.

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

/// Makes values: 8 bytes that follow from the key's number and the generation, then a fixed pattern
/// that is half letters and half noise.
#[derive(Clone, Debug)]
pub struct Values {
    bytes: Vec<u8>,
}

impl Values {
    /// Values of `len_bytes` bytes each.
    pub fn new(len_bytes: usize) -> Values {
        let pattern = |at: usize| if at.is_multiple_of(2) { b'v' } else { mix(at as u64) as u8 };
        Values { bytes: (0..len_bytes).map(pattern).collect() }
    }

    /// The value of key number `key` in `generation`: 0 is loaded or inserted, 1 is overwritten by the
    /// first phase that does so, 2 by the second.
    #[inline]
    pub fn of(&mut self, key: u32, generation: u32) -> &[u8] {
        let word = mix(u64::from(generation) << 32 | u64::from(key)).to_le_bytes();
        let len = self.bytes.len().min(word.len());
        self.bytes[..len].copy_from_slice(&word[..len]);
        &self.bytes
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
            let mut values = Values::new(len);
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
        let mut values = Values::new(8);
        let first = values.of(1, 0).to_vec();
        assert_ne!(values.of(2, 0), first);
        assert_ne!(values.of(1, 1), first);
        assert_eq!(values.of(1, 0), first);
        assert_eq!(Values::new(3).of(1, 0).len(), 3);
    }
}
