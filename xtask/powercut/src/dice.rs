//! Random numbers that follow from a seed (SplitMix64), so that a run can be told by its seed.
//!
//! Each value is a stream of its own; one that is made from another's draw is independent of it. Not for secrets.
//! Plain values; no state but their own.

use std::hash::{BuildHasher, RandomState};

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// The next number, of all that there are.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let n = self.0;
        let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    }

    /// A number below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end.max(1)
    }

    /// True in `percent` of a hundred draws.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A seed from the system, short enough to be typed.
pub fn random_seed() -> u64 {
    RandomState::new().hash_one(0) >> 32
}
