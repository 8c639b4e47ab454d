//! Bitmaps of units: runs of clear bits, and setting and clearing runs. Pure functions over words;
//! bit `i` is bit `i % 64` of word `i / 64`.

/// First unit from `from` on that begins `units` clear bits, below `end`.
pub(super) fn free_run(words: &[u64], end: u32, from: u32, units: u32) -> Option<u32> {
    let mut start = from;
    while start + units <= end {
        start = next_bit(words, start, end, false);
        let stop = next_bit(words, start, end, true);
        if stop - start >= units {
            return Some(start);
        }
        start = stop;
    }
    None
}

/// The longest run of clear bits below `end`.
pub(super) fn longest_run(words: &[u64], end: u32) -> u32 {
    let (mut at, mut longest) = (0, 0);
    while at < end {
        let start = next_bit(words, at, end, false);
        at = next_bit(words, start, end, true);
        longest = longest.max(at - start);
    }
    longest
}

/// How many runs of `units` clear bits can be had below `end`.
pub(super) fn runs_of(words: &[u64], end: u32, units: u32) -> u32 {
    let (mut at, mut runs) = (0, 0);
    while at < end {
        let start = next_bit(words, at, end, false);
        at = next_bit(words, start, end, true);
        runs += (at - start) / units;
    }
    runs
}

/// First bit from `from` on that is set (or clear), or `end`.
fn next_bit(words: &[u64], from: u32, end: u32, set: bool) -> u32 {
    let mut at = from;
    while at < end {
        let word = words[at as usize / 64];
        let word = (if set { word } else { !word }) >> (at % 64);
        if word != 0 {
            return (at + word.trailing_zeros()).min(end);
        }
        at = (at / 64 + 1) * 64;
    }
    end
}

/// Sets bits and returns how many of them were clear.
pub(super) fn set_bits(words: &mut [u64], from: u32, count: u32) -> u32 {
    let mut set = 0;
    for bit in from..from + count {
        let word = &mut words[bit as usize / 64];
        set += u32::from(*word & 1 << (bit % 64) == 0);
        *word |= 1 << (bit % 64);
    }
    set
}

/// Clears bits and returns how many of them were set.
pub(super) fn clear_bits(words: &mut [u64], from: u32, count: u32) -> u32 {
    let mut cleared = 0;
    for bit in from..from + count {
        let word = &mut words[bit as usize / 64];
        cleared += u32::from(*word & 1 << (bit % 64) != 0);
        *word &= !(1 << (bit % 64));
    }
    cleared
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::random::SplitMix64;

    #[test]
    fn runs_are_those_that_a_bit_by_bit_search_finds() {
        let mut random = SplitMix64::new(1);
        for round in 0..300 {
            let end = 1 + random.below(200) as u32;
            let sparse = random.below(8);
            let mut words = vec![0; end.div_ceil(64) as usize];
            for bit in 0..end {
                if random.below(8) >= sparse {
                    assert_eq!(set_bits(&mut words, bit, 1), 1);
                    assert_eq!(set_bits(&mut words, bit, 1), 0);
                }
            }
            let clear = |bit: u32| words[bit as usize / 64] & 1 << (bit % 64) == 0;
            let mut longest = 0;
            for units in 1..=end {
                for from in [0, random.below(u64::from(end)) as u32] {
                    let expected =
                        (from..end).find(|&at| at + units <= end && (at..at + units).all(clear));
                    assert_eq!(free_run(&words, end, from, units), expected, "round {round}");
                    if expected.is_some() {
                        longest = units;
                    }
                }
            }
            assert_eq!(longest_run(&words, end), longest, "round {round}");
            for units in 1..=4 {
                let mut taken = words.clone();
                let runs = runs_of(&words, end, units);
                for _ in 0..runs {
                    let at = free_run(&taken, end, 0, units).unwrap();
                    set_bits(&mut taken, at, units);
                }
                assert_eq!(free_run(&taken, end, 0, units), None, "round {round}");
            }
            let set: u32 = words.iter().map(|word| word.count_ones()).sum();
            assert_eq!(clear_bits(&mut words, 0, end), set);
            assert_eq!(longest_run(&words, end), end);
        }
    }
}
