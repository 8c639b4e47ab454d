//! Comparison of a head with sixteen others at once.
//!
//! A mask has bit `i` set for lane `i`. On x86-64 four SSE2 comparisons and a move-mask (SSE2 is part of
//! the architecture's baseline, so there is nothing to detect); elsewhere a loop that compilers
//! vectorise. Pure functions.

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

/// How many lanes from the first on are set in `mask` without a gap, at most 16.
#[inline(always)]
pub(super) fn leading(mask: u32) -> usize {
    (!mask | 1 << 16).trailing_zeros() as usize
}

#[cfg(target_arch = "x86_64")]
mod imp {
    use std::arch::x86_64::{
        __m128i, _mm_cmpgt_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
        _mm_set_epi32, _mm_set1_epi32,
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
    fn leading_lanes_stop_at_the_first_gap_and_at_the_last_lane() {
        assert_eq!(leading(0b0111), 3);
        assert_eq!(leading(0b1011), 2);
        assert_eq!(leading(0xffff), 16);
        assert_eq!(leading(u32::MAX), 16);
        assert_eq!(leading(0), 0);
    }
}
