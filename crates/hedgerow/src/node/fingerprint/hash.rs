//! What a fingerprint is. It stands in pages, so it is part of the file format and has a number.
//!
//! Function 1 is the low byte of XXH3-64, with seed 0, of the key without the node's prefix. XXH3
//! is published, mixes well in all bits, and takes a short key in a few multiplications. The prefix
//! is left out, as in the paper: it says nothing within a node, and is most of a URL. So whoever
//! changes a prefix computes fingerprints anew. Pure; any change here needs a new number.
//!
//! It is no keyed hash: whoever chooses the keys can give them all one fingerprint, with 256 tries
//! a key. What that costs is bounded by [`super::layout::CROWD`].

use twox_hash::XxHash3_64;

/// Number of the fingerprint function that this build writes, and the only one that it reads.
pub const FUNCTION: usize = 1;

/// The fingerprint of a key, given without its node's prefix.
pub fn fingerprint(suffix: &[u8]) -> u8 {
    XxHash3_64::oneshot(suffix) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_those_of_the_format() {
        // The first three are published values of XXH3-64: 2d06800538d394c2, e6c632b61e964e1f,
        // 78af5f94892f3950.
        for (suffix, expected) in [("", 0xc2), ("a", 0x1f), ("abc", 0x50)] {
            assert_eq!(fingerprint(suffix.as_bytes()), expected, "{suffix:?}");
        }
    }

    #[test]
    fn fingerprints_of_similar_keys_are_spread_evenly() {
        for len in [1, 2, 3, 4, 7, 8, 9, 16, 17, 40, 130, 250] {
            let mut counts = [0u32; 256];
            let mut key = vec![b'x'; len];
            let all = if len == 1 { 256 } else { 4096u32 };
            for number in 0..all {
                let digits = number.to_be_bytes();
                let tail = len.min(2);
                key[len - tail..].copy_from_slice(&digits[4 - tail..]);
                counts[usize::from(fingerprint(&key))] += 1;
            }
            // Sixteen each are expected, one of single bytes.
            let most = counts.iter().max().copied().unwrap_or(0);
            assert!(most <= if len == 1 { 8 } else { 40 }, "{len}: {most} of {all}");
        }
    }
}
