//! The records of the tour: real keys with numbered suffixes, and values that prove their key.
//!
//! A record is named by its *group* (which real key) and its *copy* (which suffix); key and value
//! follow from these and a version, so that every answer can be checked without keeping the data.

use crate::failure::Failure;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, Read};

const SAMPLES: [&[u8]; 2] =
    [include_bytes!("../../../data/urls.zst"), include_bytes!("../../../data/composite.zst")];

/// Length of every value.
pub const VALUE_BYTES: usize = 100;

/// All records, as a rule for making them.
pub struct Records {
    /// The real keys, ascending and distinct.
    groups: Vec<Vec<u8>>,
    copies: u64,
}

/// Which record: real key and suffix.
#[derive(Clone, Copy, Debug)]
pub struct RecordId {
    pub group: u64,
    pub copy: u64,
}

impl Records {
    /// Unpacks the real keys and plans about `count` records (rounded up to whole suffixes).
    pub fn unpack(count: u64) -> Result<Records, Failure> {
        let mut keys = Vec::new();
        for sample in SAMPLES {
            let text = decompress(sample)
                .map_err(|error| Failure::Io("cannot unpack the sample keys".to_owned(), error))?;
            keys.extend(text.split(|&byte| byte == b'\n').filter(|k| !k.is_empty()).map(Vec::from));
        }
        keys.sort_unstable();
        keys.dedup();
        let wanted = count.clamp(1, keys.len() as u64);
        let stride = keys.len() as u64 / wanted;
        let groups: Vec<_> =
            keys.into_iter().step_by(stride as usize).take(wanted as usize).collect();
        Ok(Records { copies: count.div_ceil(wanted).max(1), groups })
    }

    /// Number of real keys.
    pub fn groups(&self) -> u64 {
        self.groups.len() as u64
    }

    /// Number of records made from each real key.
    pub fn copies(&self) -> u64 {
        self.copies
    }

    /// Number of records.
    pub fn count(&self) -> u64 {
        self.groups() * self.copies
    }

    /// Bytes of all keys and values.
    pub fn data_bytes(&self) -> u64 {
        let mut key = Vec::new();
        let mut bytes = 0;
        for group in 0..self.groups() {
            self.key_into(RecordId { group, copy: 0 }, &mut key);
            bytes += self.copies * (key.len() + VALUE_BYTES) as u64;
        }
        bytes
    }

    /// The real key of a group.
    pub fn real_key(&self, group: u64) -> &[u8] {
        &self.groups[group as usize]
    }

    /// The `n`-th group in an order that jumps about and visits each once.
    pub fn shuffled(&self, n: u64) -> u64 {
        let groups = self.groups();
        let mut stride = groups * 618 / 1000 + 1;
        while gcd(stride, groups) != 1 {
            stride += 1;
        }
        (n * stride + groups / 3) % groups
    }

    /// The key of a record: the real key, `#`, the copy's number.
    pub fn key_into(&self, id: RecordId, key: &mut Vec<u8>) {
        key.clear();
        key.extend_from_slice(self.real_key(id.group));
        key.push(b'#');
        key.extend_from_slice(format!("{:04}", id.copy).as_bytes());
    }

    /// How many records have keys that begin with `prefix`, if all are there.
    pub fn with_prefix(&self, prefix: &[u8]) -> u64 {
        let matching = self.groups.iter().filter(|key| key.starts_with(prefix)).count();
        matching as u64 * self.copies
    }
}

/// Whether a key is of the set of URLs.
pub fn is_url(key: &[u8]) -> bool {
    key.starts_with(b"http")
}

/// The value of a key: version, hash of the key, and as much of the key's end as fits.
pub fn value_of(key: &[u8], version: u32) -> [u8; VALUE_BYTES] {
    let mut value = [b' '; VALUE_BYTES];
    let head = format!("v{version} {:016x} ", hash(key));
    let room = VALUE_BYTES - head.len();
    let tail = &key[key.len().saturating_sub(room)..];
    value[..head.len()].copy_from_slice(head.as_bytes());
    value[head.len()..head.len() + tail.len()].copy_from_slice(tail);
    value
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn decompress(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut decoder = StreamingDecoder::new(packed).map_err(io::Error::other)?;
    let mut text = Vec::new();
    decoder.read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_samples_are_the_keys_that_they_are_said_to_be() {
        let records = Records::unpack(1_000_000).unwrap();
        assert_eq!(records.groups(), 40_000);
        assert_eq!(records.count(), 1_000_000);
        let lengths = records.groups.iter().map(Vec::len);
        assert_eq!(lengths.clone().sum::<usize>() + 40_000, 1_396_643 + 765_912);
        assert_eq!((lengths.clone().min(), lengths.max()), (Some(12), Some(288)));
    }

    #[test]
    fn keys_and_values_tell_records_apart() {
        let records = Records::unpack(900).unwrap();
        assert_eq!((records.groups(), records.copies()), (900, 1));
        let visited: BTreeSet<_> = (0..900).map(|n| records.shuffled(n)).collect();
        assert_eq!(visited.len(), 900);
        let mut keys = BTreeSet::new();
        let mut values = BTreeSet::new();
        for group in 0..900 {
            for copy in 0..3 {
                let mut key = Vec::new();
                records.key_into(RecordId { group, copy }, &mut key);
                values.extend([value_of(&key, 1), value_of(&key, 2)]);
                keys.insert(key);
            }
        }
        assert_eq!((keys.len(), values.len()), (2_700, 5_400));
    }
}
