//! Key sets in memory: read from the shuffled file or made, and held alike for every competitor.
//!
//! Keys are held as C++ holds a `std::string`, because the programs of the papers do: 32 bytes in an
//! array, up to 16 bytes of key in place and longer ones in an allocation of their own. Looking at a
//! short key costs one cache miss, at a long one two, for whichever store. Immutable once made;
//! `Send + Sync`.

use crate::cell::{CellError, KeyKind, KeySet};
use crate::checksum::mix;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use smallvec::SmallVec;

/// What all shuffling is seeded with.
pub const SHUFFLE_SEED: u64 = 0x4ed6_e806;

/// One key: the size of a `std::string`, and split between place and heap like one.
type Key = SmallVec<[u8; 16]>;

const _: () = assert!(size_of::<Key>() == 32);

/// The keys of a cell, in their random order.
#[derive(Clone, Debug)]
pub struct Keys {
    keys: Vec<Key>,
}

impl Keys {
    /// The keys that `set` names.
    ///
    /// Errors: `Failed` if the file cannot be read, or has too few keys, or more integers are
    /// wanted than there are.
    pub fn of(set: &KeySet) -> Result<Keys, CellError> {
        let count = set.count;
        if u32::try_from(count).is_err() {
            return Err(CellError::Failed(format!("{count} keys are more than 2^32 - 1")));
        }
        let keys: Vec<Key> = match set.kind {
            KeyKind::File => read_lines(set)?,
            KeyKind::Dense4 => {
                let mut numbers: Vec<u32> = (0..count as u32).collect();
                shuffle(&mut numbers);
                numbers.iter().map(|number| Key::from_slice(&number.to_be_bytes())).collect()
            }
            // Permutations of all numbers, taken at 0, 1, 2, ...: different by construction.
            KeyKind::Sparse4 => {
                let key = |n| Key::from_slice(&mix32(n).to_be_bytes());
                (0..count as u32).map(key).collect()
            }
            KeyKind::Random8 => {
                let key = |n| Key::from_slice(&mix(n).to_be_bytes());
                (0..count as u64).map(key).collect()
            }
            KeyKind::Drawn4 { percent } => {
                let range = count as u64 * 100 / u64::from(percent);
                let mut numbers: Vec<u32> = (0..range as u32).collect();
                let mut rng = Pcg64Mcg::seed_from_u64(SHUFFLE_SEED);
                let (drawn, _) = numbers.partial_shuffle(&mut rng, count);
                drawn.iter().map(|number| Key::from_slice(&number.to_be_bytes())).collect()
            }
            KeyKind::Partitioned8 { records_each } => partitioned(count, records_each),
            KeyKind::Long { bytes, alike } => {
                let filler = vec![b'k'; bytes as usize - size_of::<u64>()];
                let key = |n| {
                    let number = mix(n).to_be_bytes();
                    let parts = if alike { [&filler[..], &number] } else { [&number, &filler[..]] };
                    Key::from_vec(parts.concat())
                };
                (0..count as u64).map(key).collect()
            }
        };
        Ok(Keys { keys })
    }

    /// The keys of these numbers, in this order: what a load that goes by it reads is in sequence.
    pub fn select(&self, order: &[u32]) -> Keys {
        Keys { keys: order.iter().map(|&at| self.keys[at as usize].clone()).collect() }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Key number `at`. Panics beyond the end.
    #[inline]
    pub fn get(&self, at: u32) -> &[u8] {
        &self.keys[at as usize]
    }

    /// Bytes of the first `count` keys.
    pub fn bytes(&self, count: usize) -> u64 {
        self.keys[..count].iter().map(|key| key.len() as u64).sum()
    }

    /// The numbers of the first `count` keys in ascending order of the keys.
    pub fn ascending(&self, count: usize) -> Vec<u32> {
        // The first bytes beside the number spare most comparisons the keys' cache misses.
        let head = |at: u32| {
            let key = self.get(at);
            let mut head = [0; 8];
            let len = key.len().min(head.len());
            head[..len].copy_from_slice(&key[..len]);
            u64::from_be_bytes(head)
        };
        let mut order: Vec<(u64, u32)> = (0..count as u32).map(|at| (head(at), at)).collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| self.get(a.1).cmp(self.get(b.1))));
        order.into_iter().map(|(_, at)| at).collect()
    }
}

/// Brings `items` into the random order that all programs use.
pub fn shuffle<T>(items: &mut [T]) {
    items.shuffle(&mut Pcg64Mcg::seed_from_u64(SHUFFLE_SEED));
}

/// Keys of partitions in the order in which they come up.
fn partitioned(count: usize, records_each: u32) -> Vec<Key> {
    let mut rng = Pcg64Mcg::seed_from_u64(SHUFFLE_SEED);
    let mut next = vec![0_u32; partitions(count, records_each)];
    let mut key = |_| {
        let partition = rng.random_range(0..next.len() as u32);
        let number = &mut next[partition as usize];
        let key = (u64::from(partition) << 32) | u64::from(*number);
        *number += 1;
        Key::from_slice(&key.to_be_bytes())
    };
    (0..count).map(&mut key).collect()
}

/// How many partitions `count` keys have, of so many each on average.
pub fn partitions(count: usize, records_each: u32) -> usize {
    (count / records_each as usize).max(1)
}

fn read_lines(set: &KeySet) -> Result<Vec<Key>, CellError> {
    let failed = |words: String| CellError::Failed(format!("key set {}: {words}", set.name));
    let path = set.path.as_ref().ok_or_else(|| failed("it has no file".into()))?;
    let text = std::fs::read(path)
        .map_err(|error| failed(format!("cannot read {}: {error}", path.display())))?;
    let keys: Vec<Key> =
        text.split(|&byte| byte == b'\n').take(set.count).map(Key::from_slice).collect();
    if keys.len() < set.count || keys.iter().any(|key| key.is_empty()) {
        let found = keys.iter().filter(|key| !key.is_empty()).count();
        return Err(failed(format!("{} has {found} keys, not {}", path.display(), set.count)));
    }
    Ok(keys)
}

/// A permutation of the 32-bit numbers that looks random (the finish of MurmurHash3).
const fn mix32(number: u32) -> u32 {
    let mut h = number.wrapping_add(0x9e37_79b9);
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn set(kind: KeyKind, count: usize) -> KeySet {
        KeySet { name: "test".into(), kind, count, path: None }
    }

    #[test]
    fn integer_keys_differ_and_have_their_length() {
        let kinds = [
            (KeyKind::Dense4, 4),
            (KeyKind::Sparse4, 4),
            (KeyKind::Random8, 8),
            (KeyKind::Drawn4 { percent: 4 }, 4),
            (KeyKind::Partitioned8 { records_each: 100 }, 8),
        ];
        for (kind, len) in kinds {
            let keys = Keys::of(&set(kind, 10_000)).unwrap();
            let distinct: BTreeSet<&[u8]> = (0..10_000).map(|at| keys.get(at)).collect();
            assert_eq!(distinct.len(), 10_000, "{kind:?}");
            assert!(distinct.iter().all(|key| key.len() == len), "{kind:?}");
            assert_eq!(keys.bytes(10_000), 10_000 * len as u64);
            let order = keys.ascending(10_000);
            assert!(order.is_sorted_by(|&a, &b| keys.get(a) < keys.get(b)));
            assert!(!order.is_sorted(), "{kind:?} is in random order");
        }
    }

    #[test]
    fn dense_keys_are_all_numbers() {
        let keys = Keys::of(&set(KeyKind::Dense4, 1_000)).unwrap();
        let order = keys.ascending(1_000);
        for (number, &at) in order.iter().enumerate() {
            assert_eq!(keys.get(at), (number as u32).to_be_bytes());
        }
    }

    #[test]
    fn sparse_keys_spread_over_all_numbers() {
        let keys = Keys::of(&set(KeyKind::Sparse4, 16_000)).unwrap();
        let mut sixteenths = [0; 16];
        for at in 0..16_000 {
            sixteenths[usize::from(keys.get(at)[0] >> 4)] += 1;
        }
        assert!(sixteenths.iter().all(|count| (850..1150).contains(count)), "{sixteenths:?}");
    }

    fn number(key: &[u8]) -> u64 {
        key.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    #[test]
    fn drawn_keys_have_their_density() {
        for percent in [4, 44, 100] {
            let keys = Keys::of(&set(KeyKind::Drawn4 { percent }, 10_000)).unwrap();
            let range = 1_000_000 / u64::from(percent);
            let mut tenths = [0; 10];
            for at in 0..10_000 {
                let number = number(keys.get(at));
                assert!(number < range, "{percent} %: {number}");
                tenths[(number * 10 / range) as usize] += 1;
            }
            assert!(tenths.iter().all(|count| (850..1150).contains(count)), "{tenths:?}");
        }
    }

    #[test]
    fn keys_of_a_partition_are_counted_up() {
        for (records_each, partitions) in [(100, 100), (10_000, 1), (20_000, 1)] {
            let keys = Keys::of(&set(KeyKind::Partitioned8 { records_each }, 10_000)).unwrap();
            let mut next = vec![0; partitions];
            for at in 0..10_000 {
                let key = number(keys.get(at));
                let partition = (key >> 32) as usize;
                assert_eq!(key & 0xffff_ffff, next[partition], "key {at}");
                next[partition] += 1;
            }
            let each = 10_000 / partitions as u64;
            assert!(next.iter().all(|count| (each / 2..each * 2).contains(count)), "{next:?}");
        }
    }

    #[test]
    fn a_file_must_have_enough_keys() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "b\na\nc\n").unwrap();
        let mut set = set(KeyKind::File, 3);
        assert!(Keys::of(&set).unwrap_err().to_string().contains("no file"));
        set.path = Some(file.path().to_owned());
        let keys = Keys::of(&set).unwrap();
        assert_eq!((keys.get(0), keys.get(2)), (&b"b"[..], &b"c"[..]));
        set.count = 4;
        assert!(Keys::of(&set).unwrap_err().to_string().contains("has 3 keys, not 4"));
        set.path = Some("no such file".into());
        assert!(Keys::of(&set).unwrap_err().to_string().contains("cannot read"));
    }
}
