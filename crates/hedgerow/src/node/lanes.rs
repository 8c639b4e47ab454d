//! Comparison of a head with sixteen others at once, and of a fingerprint with 64 others.
//!
//! A mask has bit `i` set for lane (or byte) `i`. On x86-64 four SSE2 comparisons and move-masks
//! (SSE2 is part of the architecture's baseline, so there is nothing to detect); elsewhere loops
//! that compilers vectorise, or that compare eight bytes in a word. Pure functions.

/// The lanes that are smaller than `head`.
#[inline(always)]
pub(super) fn below(lanes: [u32; 16], head: i32) -> u32 {
    imp::below(lanes, head)
}

/// The lanes that are greater than `head`.
#[inline(always)]
pub(super) fn above(lanes: [u32; 16], head: i32) -> u32 {
    imp::above(lanes, head)
}

/// The bytes, of lowest address lowest, that are `byte`.
#[inline(always)]
pub(super) fn equal_bytes(lanes: [u32; 16], byte: u8) -> u64 {
    imp::equal_bytes(lanes, byte)
}

/// How many lanes from the first on are set in `mask` without a gap, at most 16.
#[inline(always)]
pub(super) fn leading(mask: u32) -> usize {
    (!mask | 1 << 16).trailing_zeros() as usize
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::arch::x86_64::{
        __m128i, _mm_cmpeq_epi8, _mm_cmpgt_epi32, _mm_movemask_epi8, _mm_packs_epi16,
        _mm_packs_epi32, _mm_set_epi32, _mm_set1_epi8, _mm_set1_epi32,
    };

    // Spelled out, not by the array's `map`, which is not always inlined.
    #[inline(always)]
    fn quarters(lanes: &[u32; 16]) -> [__m128i; 4] {
        let quarter = |at: usize| {
            let [a, b, c, d] = [lanes[at], lanes[at + 1], lanes[at + 2], lanes[at + 3]];
            // SAFETY: SSE2 is part of x86-64; this works on registers alone.
            unsafe { _mm_set_epi32(d as i32, c as i32, b as i32, a as i32) }
        };
        [quarter(0), quarter(4), quarter(8), quarter(12)]
    }

    #[inline(always)]
    fn splat(head: i32) -> __m128i {
        // SAFETY: as in `quarters`.
        unsafe { _mm_set1_epi32(head) }
    }

    #[inline(always)]
    fn greater(a: __m128i, b: __m128i) -> __m128i {
        // SAFETY: as in `quarters`.
        unsafe { _mm_cmpgt_epi32(a, b) }
    }

    #[inline(always)]
    fn mask([a, b, c, d]: [__m128i; 4]) -> u32 {
        // SAFETY: as in `quarters`.
        unsafe {
            let bytes = _mm_packs_epi16(_mm_packs_epi32(a, b), _mm_packs_epi32(c, d));
            _mm_movemask_epi8(bytes) as u32
        }
    }

    #[inline(always)]
    pub(super) fn below(lanes: [u32; 16], head: i32) -> u32 {
        let (head, [a, b, c, d]) = (splat(head), quarters(&lanes));
        mask([greater(head, a), greater(head, b), greater(head, c), greater(head, d)])
    }

    #[inline(always)]
    pub(super) fn above(lanes: [u32; 16], head: i32) -> u32 {
        let (head, [a, b, c, d]) = (splat(head), quarters(&lanes));
        mask([greater(a, head), greater(b, head), greater(c, head), greater(d, head)])
    }

    #[inline(always)]
    pub(super) fn equal_bytes(lanes: [u32; 16], byte: u8) -> u64 {
        // SAFETY: as in `quarters`.
        let byte = unsafe { _mm_set1_epi8(byte as i8) };
        let equal = |quarter: __m128i| {
            // SAFETY: as in `quarters`.
            unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(quarter, byte)) as u32 }
        };
        let [a, b, c, d] = quarters(&lanes);
        let (low, high) = (equal(a) | equal(b) << 16, equal(c) | equal(d) << 16);
        u64::from(low) | u64::from(high) << 32
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod imp {
    #[inline(always)]
    fn mask(lanes: [u32; 16], holds: impl Fn(i32) -> bool) -> u32 {
        lanes
            .iter()
            .enumerate()
            .fold(0, |mask, (i, &lane)| mask | u32::from(holds(lane as i32)) << i)
    }

    #[inline(always)]
    pub(super) fn below(lanes: [u32; 16], head: i32) -> u32 {
        mask(lanes, |lane| lane < head)
    }

    #[inline(always)]
    pub(super) fn above(lanes: [u32; 16], head: i32) -> u32 {
        mask(lanes, |lane| lane > head)
    }

    #[inline(always)]
    pub(super) fn equal_bytes(lanes: [u32; 16], byte: u8) -> u64 {
        super::equal_bytes_in_words(lanes, byte)
    }
}

/// [`equal_bytes`] by eight bytes in a word: what there is without vectors.
#[cfg(any(test, not(target_arch = "x86_64")))]
#[inline(always)]
fn equal_bytes_in_words(lanes: [u32; 16], byte: u8) -> u64 {
    const LOW_BITS: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    // The product brings bit `8 * i` of a word to bit `56 + i`; no two bits of it meet.
    const GATHER: u64 = 0x0102_0408_1020_4080;
    let mut mask = 0;
    for (at, pair) in lanes.chunks_exact(2).enumerate() {
        let word = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        let different = word ^ u64::from_ne_bytes([byte; 8]);
        // The top bit of each byte that is zero. Nothing is carried from one byte into the next.
        let equal = !(((different & LOW_BITS) + LOW_BITS) | different | LOW_BITS);
        mask |= (equal >> 7).wrapping_mul(GATHER) >> 56 << (8 * at);
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_agree_with_comparisons_of_single_lanes() {
        let values = [i32::MIN, i32::MIN + 1, -2, -1, 0, 1, i32::MAX - 1, i32::MAX];
        for shift in 0..8 {
            let lanes: [u32; 16] = std::array::from_fn(|i| values[(i * 3 + shift) % 8] as u32);
            for head in values {
                for (i, lane) in lanes.into_iter().enumerate() {
                    assert_eq!(below(lanes, head) >> i & 1 == 1, (lane as i32) < head);
                    assert_eq!(above(lanes, head) >> i & 1 == 1, lane as i32 > head);
                }
                assert_eq!((below(lanes, head) | above(lanes, head)) >> 16, 0);
            }
        }
    }

    #[test]
    fn byte_masks_agree_with_comparisons_of_single_bytes() {
        let values = [0, 1, 2, 0x7f, 0x80, 0x81, 0xfe, 0xff];
        for shift in 0..64 {
            let bytes: [u8; 64] = std::array::from_fn(|i| values[(i * 5 + i / 8 + shift) % 8]);
            let lanes = std::array::from_fn(|i| {
                u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * i + byte]))
            });
            for byte in values {
                let expected = (0..64).fold(0, |mask, i| mask | u64::from(bytes[i] == byte) << i);
                assert_eq!(equal_bytes(lanes, byte), expected);
                assert_eq!(equal_bytes_in_words(lanes, byte), expected);
            }
        }
        assert_eq!(equal_bytes([0; 16], 0), u64::MAX);
        assert_eq!(equal_bytes([0; 16], 1), 0);
    }

    #[test]
    fn leading_lanes_stop_at_the_first_gap_and_at_the_last_lane() {
        assert_eq!(leading(0b0111), 3);
        assert_eq!(leading(0b1011), 2);
        assert_eq!(leading(0xffff), 16);
        assert_eq!(leading(u32::MAX), 16);
        assert_eq!(leading(0), 0);
    }
}
