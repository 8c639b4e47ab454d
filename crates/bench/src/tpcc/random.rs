//! The random numbers and words of the specification (clauses 2.1.6, 4.3.2).
//!
//! A generator is of one thread, and a function of its seed: each terminal has one, and each table of each district at the load.

use hedgerow_sync::primitive::random::SplitMix64;
use std::ops::RangeInclusive;

/// What last names are put together from.
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
const LETTERS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Bytes of a first and of a last name; the rest is zero.
pub const NAME_BYTES: usize = 16;

/// A name, with zeros behind it.
pub type Name = [u8; NAME_BYTES];

/// The constants `C` of `NURand`. That of last names differs between load and run by 66, which clause 2.1.6.1 allows.
const LAST_NAME_LOAD: u64 = 157;
const LAST_NAME_RUN: u64 = 223;
const CUSTOMER: u64 = 259;
const ITEM: u64 = 7_911;

/// `A + 1` of `NURand`, and the count of numbers that it is for.
const CUSTOMERS_AT_FULL: (u64, u64) = (1_024, 3_000);
const ITEMS_AT_FULL: (u64, u64) = (8_192, 100_000);
const LAST_NAMES_AT_FULL: (u64, u64) = (256, 1_000);

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(SplitMix64);

impl Random {
    /// The generator of `seed` and what it is for: different `parts` give unlike numbers.
    pub fn new(seed: u64, parts: [u64; 3]) -> Random {
        let mix = |seed: u64, part: u64| SplitMix64::new(seed ^ part).next_u64();
        Random(SplitMix64::new(parts.into_iter().fold(mix(seed, 0), mix)))
    }

    /// A number of `range`, all equally likely.
    pub fn within(&mut self, range: RangeInclusive<u32>) -> u32 {
        let (least, most) = (*range.start(), *range.end());
        let count = u64::from(most.saturating_sub(least)) + 1;
        least + self.0.below(count) as u32
    }

    /// Whether something happens that does so in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u32) -> bool {
        self.within(1..=100) <= percent
    }

    /// One of `count` numbers from `least` on, by `NURand(A, least, least + count - 1)`. `at_full`: `A + 1` and `count` at
    /// scale 1. At a smaller scale `A` is the smallest one less than a power of two that has the same share of `count`.
    fn uneven(&mut self, least: u32, count: u32, at_full: (u64, u64), constant: u64) -> u32 {
        let count = u64::from(count.max(1));
        let mask = mask(count, at_full);
        let number = self.0.below(mask + 1) | (u64::from(least) + self.0.below(count));
        least + ((number + (constant & mask)) % count) as u32
    }

    /// A customer of a district that has `count`, from 1 on.
    pub fn customer(&mut self, count: u32) -> u32 {
        self.uneven(1, count, CUSTOMERS_AT_FULL, CUSTOMER)
    }

    /// An item out of `count`, from 1 on.
    pub fn item(&mut self, count: u32) -> u32 {
        self.uneven(1, count, ITEMS_AT_FULL, ITEM)
    }

    /// The number of a last name out of `count`, for a row that is loaded.
    pub fn last_name_to_load(&mut self, count: u32) -> u32 {
        self.uneven(0, count, LAST_NAMES_AT_FULL, LAST_NAME_LOAD)
    }

    /// The number of a last name out of `count`, for a transaction.
    pub fn last_name(&mut self, count: u32) -> u32 {
        self.uneven(0, count, LAST_NAMES_AT_FULL, LAST_NAME_RUN)
    }

    /// Another number of 1 to `count` than `own`; `own` if there is no other.
    pub fn other(&mut self, own: u32, count: u32) -> u32 {
        if count < 2 {
            return own;
        }
        let other = self.within(1..=count - 1);
        if other >= own { other + 1 } else { other }
    }

    fn append_of(&mut self, letters: &[u8], length: u32, to: &mut Vec<u8>) {
        let letter = |_| letters[self.0.below(letters.len() as u64) as usize];
        to.extend((0..length).map(letter));
    }

    /// Appends letters and digits, as many as a number of `length`.
    pub fn append_letters(&mut self, length: RangeInclusive<u32>, to: &mut Vec<u8>) {
        let length = self.within(length);
        self.append_of(LETTERS, length, to);
    }

    /// Appends 26 to 50 letters; in a tenth of all cases `ORIGINAL` is among them.
    pub fn append_data(&mut self, to: &mut Vec<u8>) {
        let start = to.len();
        self.append_letters(26..=50, to);
        if self.percent(10) {
            let last = (to.len() - start - ORIGINAL.len()) as u32;
            let at = start + self.within(0..=last) as usize;
            to[at..at + ORIGINAL.len()].copy_from_slice(ORIGINAL);
        }
    }

    /// Letters and digits, as many as a number of `length`, with zeros behind them. Panics if they are more than `N`.
    pub fn letters<const N: usize>(&mut self, length: RangeInclusive<u32>) -> [u8; N] {
        let mut text = Vec::with_capacity(N);
        self.append_letters(length, &mut text);
        padded(&text)
    }

    /// `N` digits.
    pub fn digits<const N: usize>(&mut self) -> [u8; N] {
        let mut text = Vec::with_capacity(N);
        self.append_of(b"0123456789", N as u32, &mut text);
        padded(&text)
    }

    /// Appends two streets, a city, a state and a zip code, with a blank between them.
    pub fn append_address(&mut self, to: &mut Vec<u8>) {
        for _ in 0..3 {
            self.append_letters(10..=20, to);
            to.push(b' ');
        }
        self.append_letters(2..=2, to);
        to.push(b' ');
        to.extend(self.digits::<4>());
        to.extend(b"11111");
    }

    /// The numbers 1 to `count` in random order.
    pub fn permutation(&mut self, count: u32) -> Vec<u32> {
        let mut numbers: Vec<u32> = (1..=count).collect();
        for at in (1..numbers.len()).rev() {
            numbers.swap(at, self.0.below(at as u64 + 1) as usize);
        }
        numbers
    }
}

fn mask(count: u64, at_full: (u64, u64)) -> u64 {
    (count * at_full.0).div_ceil(at_full.1).next_power_of_two() - 1
}

/// What items and stock of some goods have in their data.
pub const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// Whether there is [`ORIGINAL`] in `data`.
pub fn is_original(data: &[u8]) -> bool {
    data.windows(ORIGINAL.len()).any(|part| part == ORIGINAL)
}

/// `text` with zeros behind it. Panics if it is longer than `N`.
pub fn padded<const N: usize>(text: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    bytes[..text.len()].copy_from_slice(text);
    bytes
}

/// The last name of a number below 1,000 (clause 4.3.2.3).
pub fn last_name(number: u32) -> Name {
    let digits = [number / 100 % 10, number / 10 % 10, number % 10];
    padded(digits.map(|digit| SYLLABLES[digit as usize]).concat().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random() -> Random {
        Random::new(1, [2, 3, 4])
    }

    #[test]
    fn last_names_are_those_of_the_specification() {
        let name = |number| {
            String::from_utf8(last_name(number).to_vec()).unwrap().trim_end_matches('\0').to_owned()
        };
        assert_eq!(name(371), "PRICALLYOUGHT");
        assert_eq!(name(40), "BARPRESBAR");
        assert_eq!(name(0), "BARBARBAR");
        assert_eq!(name(777), "CALLYCALLYCALLY");
        assert!((0..1_000).all(|number| !name(number).is_empty()));
    }

    #[test]
    fn uneven_numbers_stay_in_range_at_every_scale() {
        let mut random = random();
        for count in [1, 2, 7, 100, 1_000, 100_000] {
            let numbers: Vec<u32> = (0..20_000).map(|_| random.item(count)).collect();
            assert!(numbers.iter().all(|number| (1..=count).contains(number)), "{count}");
            let mut different = numbers;
            different.sort_unstable();
            different.dedup();
            // Rare ones of many may not have come.
            assert!(different.len() == count as usize || count > 100, "{count}");
        }
    }

    #[test]
    fn uneven_numbers_are_uneven() {
        let mut random = random();
        let mut counts = vec![0_u32; 3_000];
        for _ in 0..300_000 {
            counts[random.customer(3_000) as usize - 1] += 1;
        }
        counts.sort_unstable();
        // Of even ones a tenth of the customers would get about 12 % of the draws.
        let most: u32 = counts[2_700..].iter().sum();
        assert!(most > 60_000, "{most}");
    }

    #[test]
    fn the_masks_are_those_of_the_specification_at_scale_one() {
        assert_eq!(mask(1_000, LAST_NAMES_AT_FULL), 255);
        assert_eq!(mask(3_000, CUSTOMERS_AT_FULL), 1_023);
        assert_eq!(mask(100_000, ITEMS_AT_FULL), 8_191);
        // Clause 2.1.6.1: the distance of the constants lies in [65, 119] and is neither 96 nor 112.
        let distance = LAST_NAME_RUN - LAST_NAME_LOAD;
        assert!((65..=119).contains(&distance) && ![96, 112].contains(&distance));
    }

    #[test]
    fn a_tenth_of_the_data_is_original() {
        let mut random = random();
        let is_one = |_| {
            let mut data = Vec::new();
            random.append_data(&mut data);
            assert!((26..=50).contains(&data.len()));
            is_original(&data)
        };
        let originals = (0..10_000).map(is_one).filter(|is_one| *is_one).count();
        assert!((850..1_150).contains(&originals), "{originals}");
    }

    #[test]
    fn the_other_warehouse_is_any_but_the_own() {
        let mut random = random();
        assert_eq!(random.other(1, 1), 1);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[random.other(3, 5) as usize - 1] = true;
        }
        assert_eq!(seen, [true, true, false, true, true]);
    }

    #[test]
    fn a_permutation_has_each_number_once() {
        let mut numbers = random().permutation(100);
        assert!(!numbers.is_sorted());
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=100).collect::<Vec<_>>());
    }

    #[test]
    fn generators_of_different_parts_differ() {
        let first = |parts| Random::new(7, parts).within(0..=u32::MAX);
        assert_eq!(first([1, 2, 3]), first([1, 2, 3]));
        assert_ne!(first([1, 2, 3]), first([1, 3, 2]));
        assert_ne!(first([0, 0, 1]), first([1, 0, 0]));
    }
}
