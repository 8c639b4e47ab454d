//! Keys of the kinds that one layout or another is made for, or has trouble with.

use super::*;
use crate::node::fingerprint::fingerprint;

/// What keys are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Integers of four bytes, in runs around numbers where arithmetic goes wrong.
    Integers,
    /// Integers of eight bytes likewise, of which the last four count.
    LongIntegers,
    /// A number of one of two partitions, which begin alike and interleave in time.
    Partitions,
    /// One length; what differs lies before the last four bytes.
    EqualTails,
    /// A long beginning in common.
    Prefix,
    /// All have one fingerprint, as long as the leaf has no prefix.
    Crowd,
    /// From the empty key to the longest.
    AnyLength,
}

impl Kind {
    pub(super) const ALL: [Kind; 7] = [
        Kind::Integers,
        Kind::LongIntegers,
        Kind::Partitions,
        Kind::EqualTails,
        Kind::Prefix,
        Kind::Crowd,
        Kind::AnyLength,
    ];

    /// Whether dense leaves are made for such keys.
    pub(super) fn is_dense(self) -> bool {
        matches!(self, Kind::Integers | Kind::LongIntegers | Kind::Partitions)
    }

    /// Different keys of this kind, in no order.
    pub(super) fn keys(self, random: &mut Random, page_bytes: usize, count: usize) -> Vec<Vec<u8>> {
        let mut keys = std::collections::BTreeSet::new();
        let mut tries = 0;
        while keys.len() < count && tries < 12 * count {
            tries += 1;
            keys.insert(self.key(random, page_bytes, count));
        }
        assert!(keys.len() > count / 2, "{self:?}: {} keys", keys.len());
        if self == Kind::Crowd {
            assert!(keys.iter().all(|key| fingerprint(key) == fingerprint(b"")));
        }
        let mut keys: Vec<_> = keys.into_iter().collect();
        for at in (1..keys.len()).rev() {
            keys.swap(at, random.below(at + 1));
        }
        keys
    }

    fn key(self, random: &mut Random, page_bytes: usize, count: usize) -> Vec<u8> {
        // So near that most of the numbers there are keys in the end.
        let near = |random: &mut Random, around: &[u32]| {
            let around = around[random.below(around.len())];
            let apart = random.below(count / 4) as u32;
            match random.below(2) {
                0 => around.saturating_add(apart),
                _ => around.saturating_sub(apart),
            }
        };
        match self {
            Kind::Integers => near(random, &[0, 1 << 31, u32::MAX]).to_be_bytes().to_vec(),
            Kind::LongIntegers => {
                let high = [0_u32, 1 << 31, u32::MAX][random.below(3)];
                let low = near(random, &[0, u32::MAX]);
                [high.to_be_bytes(), low.to_be_bytes()].concat()
            }
            Kind::Partitions => {
                let number = near(random, &[5_000_000]);
                [b"part".as_slice(), &[random.below(2) as u8], &number.to_be_bytes()].concat()
            }
            Kind::EqualTails => {
                let number = random.below(3 * count) as u32;
                [&number.to_be_bytes(), b"tail".as_slice()].concat()
            }
            Kind::Prefix => {
                let text = "forum/".repeat(page_bytes / 50);
                format!("{text}{:05}{}", random.below(3 * count), "x".repeat(random.below(3)))
                    .into_bytes()
            }
            Kind::Crowd => loop {
                let key = random.bytes(6);
                if fingerprint(&key) == fingerprint(b"") {
                    return key;
                }
            },
            Kind::AnyLength => {
                let longest = max_key_bytes(page_bytes);
                let len = match random.below(4) {
                    0 => random.below(longest + 1),
                    1 => longest - random.below(3),
                    _ => random.below(12),
                };
                let mut key: Vec<u8> = vec![b'a'; len];
                for byte in key.iter_mut().rev().take(random.below(6)) {
                    *byte = [0, 1, b'a', 0xff][random.below(4)];
                }
                key
            }
        }
    }

    /// What most values have. Large pages get full by fewer records.
    pub(super) fn usual_len(page_bytes: usize) -> usize {
        page_bytes / 128
    }

    /// A value that goes with a key of so many bytes: mostly of one length, now and then another.
    pub(super) fn value(self, random: &mut Random, page_bytes: usize, key: &[u8]) -> Vec<u8> {
        let room = max_record_bytes(page_bytes) - key.len();
        let usual = Kind::usual_len(page_bytes);
        let len = match random.below(if self.is_dense() { 600 } else { 40 }) {
            0 => 0,
            1 => room,
            2 => random.below(room + 1),
            3 => random.below(usual + 1),
            4 => 127 + random.below(2),
            _ => usual,
        };
        random.bytes(len.min(room))
    }
}
