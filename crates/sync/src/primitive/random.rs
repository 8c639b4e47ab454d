//! Randomness: a seed from the system, and a small generator that everything else derives from.
//!
//! Nothing here is fit for secrets.

/// A seed that differs from call to call and from process to process, forked ones included; under a model always the same.
#[allow(clippy::disallowed_methods, reason = "this is the seam")]
pub fn seed() -> u64 {
    #[cfg(not(any(loom, shuttle)))]
    {
        use std::hash::{BuildHasher, RandomState};
        // The standard library draws these keys from the system once for each thread and counts them up. A child that was
        // forked goes on with the keys of its parent, so its number is hashed with them.
        RandomState::new().hash_one(std::process::id())
    }
    #[cfg(any(loom, shuttle))]
    {
        0x9e37_79b9_7f4a_7c15
    }
}

/// The generator of Steele, Lea and Flood ("Fast splittable pseudorandom number generators",
/// OOPSLA 2014): 64 bits of state, every seed is good, one multiplication chain a number.
#[derive(Clone, Debug)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// The sequence that belongs to `seed`.
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64 { state: seed }
    }

    /// The next 64 bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, and zero if that is zero. The bias is at most `bound / 2^64`.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next_u64() as u128 * bound as u128) >> 64) as u64
    }

    /// Fills `bytes`.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn splitmix_gives_the_published_sequence() {
        let mut generator = SplitMix64::new(1_234_567);
        assert_eq!(generator.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(generator.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn below_stays_below_and_reaches_every_number() {
        let mut generator = SplitMix64::new(1);
        let mut seen = [false; 7];
        for _ in 0..1_000 {
            seen[generator.below(7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(generator.below(0), 0);
    }

    #[test]
    fn seeds_differ() {
        assert_ne!(seed(), seed());
    }
}
