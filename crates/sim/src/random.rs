//! The generator of Steele, Lea and Flood (`SplitMix64`): all that is random in a run comes from one of these.

#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number up to `most`, that included.
    pub(crate) fn up_to(&mut self, most: u64) -> u64 {
        if most == 0 {
            0
        } else {
            ((u128::from(self.next()) * (u128::from(most) + 1)) >> 64) as u64
        }
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && (self.next() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64) < share
    }
}
