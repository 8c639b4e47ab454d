//! Which layout a leaf should have: the decisions of "B-Trees Are Back" section 5, as pure functions.
//!
//! *Key-adaptation*, whenever a leaf is split, merged or full: dense leaves wherever the keys allow them
//! (`dense/criterion.rs`); else comparison leaves for keys that their heads tell apart, and fingerprint
//! leaves for strings. *Operation-adaptation* for strings alone: where scans are common, comparison
//! leaves, which need no sorting. What scans are common is counted in the frame, by the tree.
//!
//! Unlike the paper's, heads that differ are not enough for the comparison layout: with keys as long as
//! [`LONG_SUFFIX_BYTES`] a fingerprint leaf is as fast, and smaller; and heads that are the same do not make
//! strings of keys of at most [`NUMBER_BYTES`]. Nothing here is stored; a leaf of
//! any layout can be read and changed whatever the policy is.

use super::dispatch::{Leaf, LeafLayout, plain_leaf};
use super::fields::{count, prefix};
use super::fingerprint::{FingerprintLeafMut, fingerprint_slots};
use super::layout::{head_of, slots};
use super::records::Records;

/// Bytes of a key behind the prefix, on average, from which on it counts as a string whatever its head.
const LONG_SUFFIX_BYTES: usize = 12;

/// Bytes of a suffix that are in its head.
const HEAD_BYTES: usize = 4;

/// Keys up to this length, on average and with their prefix, are numbers, though their heads be the same, as they
/// are where two partitions meet, and at the ends of a tree: other leaves of theirs have good heads, or are dense.
const NUMBER_BYTES: usize = 8;

/// Neighbours may have the same head in one of so many places for heads to count as good.
const GOOD_HEADS_PART: usize = 16;

/// How the layouts of a tree's leaves are chosen. See [`Options::leaves`](crate::Options::leaves).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[non_exhaustive]
pub enum LeafPolicy {
    /// Each leaf gets the layout that suits its keys and its use.
    #[default]
    Adaptive,
    /// Always the same layout, as far as the keys allow it. Records that a dense layout cannot hold are in comparison leaves.
    Fixed(LeafLayout),
}

impl LeafPolicy {
    /// The dense layout that leaves get whose keys and values allow it.
    pub(crate) fn dense(self) -> Option<LeafLayout> {
        match self {
            LeafPolicy::Adaptive => Some(LeafLayout::FullyDense),
            LeafPolicy::Fixed(layout) => layout.is_dense().then_some(layout),
        }
    }

    /// The layout of a leaf without records.
    pub(crate) fn empty(self) -> LeafLayout {
        match self {
            LeafPolicy::Fixed(LeafLayout::Fingerprint) => LeafLayout::Fingerprint,
            _ => LeafLayout::Comparison,
        }
    }

    /// The layout for records that are in no dense leaf, whose keys are strings or not.
    pub(crate) fn slotted(
        self,
        strings: impl FnOnce() -> bool,
        scans_are_common: bool,
    ) -> LeafLayout {
        match self {
            LeafPolicy::Adaptive if !scans_are_common && strings() => LeafLayout::Fingerprint,
            LeafPolicy::Fixed(LeafLayout::Fingerprint) => LeafLayout::Fingerprint,
            _ => LeafLayout::Comparison,
        }
    }

    /// Whether operations have a say.
    pub(crate) fn heeds_operations(self) -> bool {
        self == LeafPolicy::Adaptive
    }
}

/// What tells strings from other keys, added up over a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyTraits {
    /// Number of keys.
    pub count: usize,
    /// Bytes of all keys behind the prefix.
    pub suffix_bytes: usize,
    /// Neighbours that have the same head.
    pub same_heads: usize,
    last: Option<i32>,
}

impl KeyTraits {
    /// Adds a key: the next one, without the common prefix.
    fn add(&mut self, head: i32, suffix_len: usize) {
        self.count += 1;
        self.suffix_bytes += suffix_len;
        self.same_heads += usize::from(self.last.replace(head) == Some(head));
    }

    /// Whether heads tell too few of the keys apart.
    pub fn are_heads_alike(&self) -> bool {
        GOOD_HEADS_PART * self.same_heads >= self.count.max(1)
    }

    /// Whether the keys are long behind the prefix, on average.
    pub fn are_long(&self) -> bool {
        self.suffix_bytes >= LONG_SUFFIX_BYTES * self.count.max(1)
    }

    /// Whether keys that have a prefix of so many bytes count as strings.
    pub fn are_strings(&self, prefix_len: usize) -> bool {
        let count = self.count.max(1);
        let can_be = prefix_len * count + self.suffix_bytes > NUMBER_BYTES * count;
        self.are_long() || self.are_heads_alike() && can_be
    }
}

/// What a comparison or fingerprint leaf has for keys; `None` for a dense one. A fingerprint leaf is
/// sorted if its places are not in order.
pub fn key_traits(page: &mut [u8]) -> Option<KeyTraits> {
    if LeafLayout::of(page) == LeafLayout::Fingerprint {
        FingerprintLeafMut::new(page).sort();
    }
    let mut keys = KeyTraits::default();
    match plain_leaf(page) {
        Leaf::Comparison(leaf) => {
            for (index, slot) in slots(page, 0..leaf.count()).enumerate() {
                keys.add(leaf.head(index), slot.suffix_len);
            }
        }
        Leaf::Fingerprint(leaf) => {
            let mut suffix = Vec::new();
            for place in 0..count(page) {
                suffix.clear();
                leaf.append_suffix(place, &mut suffix);
                keys.add(head_of(&suffix), suffix.len());
            }
        }
        Leaf::SemiDense(_) | Leaf::FullyDense(_) => return None,
    }
    Some(keys)
}

/// Whether the keys of a comparison or fingerprint leaf are strings, in the sense of the head of this
/// file. A fingerprint leaf may be sorted if its places are not in order.
///
/// Most often the lengths decide, at a tenth of the cost of looking at heads.
pub fn holds_strings(page: &mut [u8]) -> bool {
    let prefix_len = prefix(page).len();
    let all = 0..count(page);
    let suffix_bytes = match LeafLayout::of(page) {
        LeafLayout::Comparison => slots(page, all).map(|slot| slot.suffix_len).sum(),
        LeafLayout::Fingerprint => fingerprint_slots(page, all).map(|slot| slot.suffix_len).sum(),
        LeafLayout::SemiDense | LeafLayout::FullyDense => return false,
    };
    let keys = KeyTraits { count: count(page), suffix_bytes, ..KeyTraits::default() };
    let alike = KeyTraits { same_heads: keys.count, ..keys };
    match [keys, alike].map(|keys| keys.are_strings(prefix_len)) {
        [true, _] => true,
        [_, false] => false,
        _ => key_traits(page).is_some_and(|keys| keys.are_strings(prefix_len)),
    }
}

/// Whether the keys of records that have a prefix of so many bytes in common are strings.
pub(super) fn are_strings(records: &Records, prefix_len: usize) -> bool {
    traits_of(records, prefix_len).are_strings(prefix_len)
}

/// What [`KeyTraits::add`] would find. A bulk load asks this of each leaf, most often of numbers of one
/// length, for which it takes half the time; where no key is shorter than prefix and head, heads are the
/// same if their four bytes are.
fn traits_of(records: &Records, prefix_len: usize) -> KeyTraits {
    let mut keys = KeyTraits::default();
    let lens = || records.lens(records.len()).map(|(key_len, _)| key_len);
    let (shortest, longest) = (lens().min().unwrap_or(0), lens().max().unwrap_or(0));
    let head_end = prefix_len + HEAD_BYTES;
    if shortest < head_end && (shortest < longest || shortest < prefix_len) {
        for key in records.keys() {
            let suffix = key.get(prefix_len..).unwrap_or(&[]);
            keys.add(head_of(suffix), suffix.len());
        }
        return keys;
    }
    keys.count = records.len();
    keys.suffix_bytes = lens().sum::<usize>() - records.len() * prefix_len;
    // Suffixes of one length that are nothing but heads differ in them.
    if longest > head_end {
        let heads = || records.keys().map(|key| key[prefix_len..].first_chunk::<HEAD_BYTES>());
        keys.same_heads = heads().zip(heads().skip(1)).filter(|(a, b)| a == b).count();
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traits_of_records_are_those_of_their_keys_one_by_one() {
        let sets: [&[&str]; 8] = [
            &[],
            &["abc"],
            &["aba", "abb", "abc", "abd"],
            &["ab", "ab\0", "ab\0\0", "abc"],
            &["ab1111", "ab1112", "ab2222"],
            &["ab1111x", "ab1111y", "ab2222z", "ab3333z"],
            &["ab1111", "ab1111y", "ab2222z", "ab22z"],
            &["ab1111", "ab1111y", "ab2222z", "ab2222zz"],
        ];
        for keys in sets {
            let (mut records, mut expected) = (Records::default(), KeyTraits::default());
            for key in keys {
                records.push(key.as_bytes(), b"value");
                expected.add(head_of(&key.as_bytes()[2..]), key.len() - 2);
            }
            let found = traits_of(&records, 2);
            assert_eq!(KeyTraits { last: None, ..found }, KeyTraits { last: None, ..expected });
        }
    }
}
