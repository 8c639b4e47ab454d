//! Lengths of values as programs store them, and values that tell which one they are.
//!
//! Half of the lengths are log-normal; the others are at, one below and one above a limit at which the engine stores a
//! value in another way. The content follows from the key, the version and the place in the value, so a piece of
//! another value, or of another place, is noticed.

use super::Dice;
use hedgerow::Keyspace;

/// The median of the log-normal part for pages of 4 KiB. Smaller pages have proportionally shorter values.
const MEDIAN_BYTES: f64 = 1200.0;
/// One value of a thousand is about a hundred times as long as the median.
const SIGMA: f64 = 1.5;
/// Of a chunk's bytes in the file these are its checksum.
const CHUNK_HEADER_BYTES: usize = 8;

/// Where lengths are drawn from.
#[derive(Clone, Debug)]
pub struct Lengths {
    limits: Vec<usize>,
    median_bytes: f64,
    most: usize,
}

impl Lengths {
    /// For a keyspace with pages of so many bytes, of a store with this memory limit and zone; no value is longer than
    /// `most`.
    pub fn new(keyspace: &Keyspace, page_bytes: usize, limit_bytes: u64, most: usize) -> Lengths {
        let chunk = (32 << 10) - CHUNK_HEADER_BYTES;
        let record = keyspace.max_record_bytes();
        let mut limits =
            vec![1, 9, record, page_bytes, 2 * page_bytes, chunk, 2 * chunk, 3 * chunk, 16 * chunk];
        // Keys of the tests have these lengths.
        limits.extend([4, 8, 11].map(|key_len| record - key_len));
        limits.extend([64 << 10, 1 << 20, (limit_bytes / 64) as usize]);
        limits.retain(|&limit| limit < most);
        Lengths { limits, median_bytes: MEDIAN_BYTES * page_bytes as f64 / 4096.0, most }
    }

    /// Every length at a limit, one below, and one above.
    pub fn at_limits(&self) -> impl Iterator<Item = usize> + '_ {
        self.limits.iter().flat_map(|&limit| [limit - 1, limit, limit + 1])
    }

    /// The next length.
    pub fn draw(&self, dice: &mut Dice) -> usize {
        if dice.below(2) == 0 {
            let limit = self.limits[dice.below(self.limits.len() as u64) as usize];
            return (limit + dice.below(3) as usize - 1).min(self.most);
        }
        log_normal(dice, self.median_bytes, self.most)
    }
}

/// A length that is log-normal with this median, cut off at `most`.
pub fn log_normal(dice: &mut Dice, median_bytes: f64, most: usize) -> usize {
    // The sum of twelve even numbers from 0 to 1 is nearly normal: the mean is 6, the deviation is 1.
    let sum: f64 = (0..12).map(|_| dice.below(1 << 20) as f64 / f64::from(1 << 20)).sum();
    let len = median_bytes * (SIGMA * (sum - 6.0)).exp();
    (len as usize).min(most)
}

/// The value that a key has in a version. Its first eight bytes say which version that is.
pub fn content(key: &[u8], version: u64, len: usize) -> Vec<u8> {
    let mut mixed = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in key {
        mixed = (mixed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    }
    let mut dice = Dice(mixed ^ version.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut value = version.to_le_bytes().to_vec();
    while value.len() < len {
        value.extend_from_slice(&dice.roll().to_le_bytes());
    }
    value.truncate(len);
    value
}
