//! Which of `n` items is accessed: the distributions of Eunomia's section 5.
//!
//! Each is a table of cumulative weights in which a uniform number is looked up. So a distribution is exact, any exponent of Zipf is
//! allowed, and tests can sum it. The paper gives shares of the hottest tenth (70, 67 and 66 %) and parameters that do not
//! lead to them; the shares bind here:
//!
//! - *Poisson*: a tenth of the items gets 70 % only if the standard deviation is a 21st of the number of items. That of Poisson is the root
//!   of its mean, so there are 215 classes of neighbouring items, and the class is drawn with mean 107.
//! - *Normal*: "1 % of the mean" would put all accesses into a tenth. The deviation is 5.13 % of the items.
//! - *Self-similar*: the rule 80-20 gives a tenth 72.7 %. The exponent is that of 66 %, which is a rule 77-23.
//!
//! Thread-safety: plain data, which all threads read.

use hedgerow_sync::primitive::random::SplitMix64;

/// The shape of a distribution.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Shape {
    /// All items alike.
    Uniform,
    /// Item `k`, from 1, in proportion to `1 / k^theta`; `theta` is not negative.
    Zipf {
        /// The exponent.
        theta: f64,
    },
    /// A bell around the middle, the hottest tenth of which gets 70 %.
    Poisson,
    /// A bell around the middle, the hottest tenth of which gets 67 %.
    Normal,
    /// The first tenth gets 66 %, and so does the first tenth of that.
    SelfSimilar,
}

/// Classes of neighbours among which [`Shape::Poisson`] draws.
const POISSON_CLASSES: usize = 215;
const POISSON_MEAN: f64 = 107.0;
/// The standard deviation of [`Shape::Normal`], as a share of the items.
const NORMAL_DEVIATION: f64 = 0.0513;
/// What the first tenth gets of [`Shape::SelfSimilar`].
const SELF_SIMILAR_TENTH: f64 = 0.66;

/// Draws items.
#[derive(Clone, Debug)]
pub struct Distribution {
    /// Per item, the share of it and those before; empty if all are alike.
    cumulative: Vec<f64>,
    items: u64,
}

impl Distribution {
    /// Of so many items, at least one.
    #[must_use]
    pub fn new(shape: Shape, items: u64) -> Distribution {
        let items = items.max(1);
        let weights: Vec<f64> = match shape {
            Shape::Uniform => return Distribution { cumulative: Vec::new(), items },
            Shape::Zipf { theta } => {
                (0..items).map(|item| ((item + 1) as f64).powf(-theta)).collect()
            }
            Shape::Poisson => poisson(items),
            Shape::Normal => {
                let (middle, deviation) = (items as f64 / 2.0, items as f64 * NORMAL_DEVIATION);
                let weight = |item: u64| {
                    let distance = (item as f64 + 0.5 - middle) / deviation;
                    (-distance * distance / 2.0).exp()
                };
                (0..items).map(weight).collect()
            }
            Shape::SelfSimilar => {
                let exponent = -SELF_SIMILAR_TENTH.log10();
                let below = |item: u64| (item as f64 / items as f64).powf(exponent);
                (0..items).map(|item| below(item + 1) - below(item)).collect()
            }
        };
        let all: f64 = weights.iter().sum();
        let mut sum = 0.0;
        let share = |weight: &f64| {
            sum += weight / all;
            sum
        };
        Distribution { cumulative: weights.iter().map(share).collect(), items }
    }

    /// How many items there are.
    #[must_use]
    pub fn items(&self) -> u64 {
        self.items
    }

    /// An item, from zero.
    #[must_use]
    pub fn draw(&self, random: &mut SplitMix64) -> u64 {
        if self.cumulative.is_empty() {
            return random.below(self.items);
        }
        let at = (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        (self.cumulative.partition_point(|&share| share <= at) as u64).min(self.items - 1)
    }

    /// The share of accesses that go to the most popular tenth of the items.
    #[must_use]
    pub fn share_of_hottest_tenth(&self) -> f64 {
        if self.cumulative.is_empty() {
            return 0.1;
        }
        let before = std::iter::once(0.0).chain(self.cumulative.iter().copied());
        let mut shares: Vec<f64> =
            self.cumulative.iter().zip(before).map(|(after, before)| after - before).collect();
        shares.sort_by(|a, b| b.total_cmp(a));
        shares.iter().take((self.items / 10).max(1) as usize).sum()
    }
}

fn poisson(items: u64) -> Vec<f64> {
    let mut of_class = vec![0.0_f64; POISSON_CLASSES];
    let mut logarithm = -POISSON_MEAN;
    for (class, weight) in of_class.iter_mut().enumerate() {
        if class > 0 {
            logarithm += POISSON_MEAN.ln() - (class as f64).ln();
        }
        *weight = logarithm.exp();
    }
    let class_of =
        |item: u64| (u128::from(item) * POISSON_CLASSES as u128 / u128::from(items)) as usize;
    (0..items).map(|item| of_class[class_of(item)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenth(shape: Shape, items: u64) -> f64 {
        Distribution::new(shape, items).share_of_hottest_tenth()
    }

    #[test]
    fn the_hottest_tenth_gets_what_the_paper_says() {
        for (shape, share) in
            [(Shape::Poisson, 0.70), (Shape::Normal, 0.67), (Shape::SelfSimilar, 0.66)]
        {
            let found = tenth(shape, 100_000);
            assert!((found - share).abs() < 0.015, "{shape:?}: {found}");
        }
        assert!((tenth(Shape::Uniform, 100_000) - 0.1).abs() < 1e-9);
    }

    /// The paper's 41 % at 0.99 are two of twenty entities, not a tenth of a million keys.
    #[test]
    fn a_tenth_of_twenty_entities_gets_41_percent_and_of_a_million_keys_83() {
        let zipf = Shape::Zipf { theta: 0.99 };
        assert!((tenth(zipf, 20) - 0.413).abs() < 0.001, "{}", tenth(zipf, 20));
        assert!((tenth(zipf, 1_000_000) - 0.83).abs() < 0.01, "{}", tenth(zipf, 1_000_000));
    }

    #[test]
    fn what_is_drawn_follows_the_weights() {
        let zipf = Distribution::new(Shape::Zipf { theta: 1.0 }, 4);
        let mut random = SplitMix64::new(7);
        let mut counts = [0_u32; 4];
        for _ in 0..100_000 {
            counts[zipf.draw(&mut random) as usize] += 1;
        }
        for (item, expected) in [(0, 48_000), (1, 24_000), (2, 16_000), (3, 12_000)] {
            assert!(counts[item].abs_diff(expected) < 1_000, "{counts:?}");
        }
        let uniform = Distribution::new(Shape::Uniform, 3);
        assert!((0..1_000).all(|_| uniform.draw(&mut random) < 3));
    }
}
