//! Bitmaps of units: runs of clear bits, and setting and clearing runs. Pure functions over words;
//! bit `i` is bit `i % 64` of word `i / 64`.

/// The first run of at least `units` clear bits that ends behind `from`, below `end`; it may begin before `from`.
pub(super) fn free_run(words: &[u64], end: u32, from: u32, units: u32) -> Option<u32> {
    let mut at = from;
    while let Some((start, stop)) = run_from(words, end, at) {
        if stop - start >= units {
            return Some(start);
        }
        at = stop;
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

/// The length of each run of clear bits below `end`, in order.
pub(super) fn runs(words: &[u64], end: u32) -> impl Iterator<Item = u32> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = next_bit(words, at, end, false);
        at = next_bit(words, start, end, true);
        (start < end).then_some(at - start)
    })
}

/// The first run of clear bits that ends behind `from`, below `end`: its first bit, which may lie before `from`, and the
/// first bit behind it. `None` if there is none.
pub(super) fn run_from(words: &[u64], end: u32, from: u32) -> Option<(u32, u32)> {
    let found = next_bit(words, from, end, false);
    if found >= end {
        return None;
    }
    let is_inside = found == from;
    let start = if is_inside { clear_before(words, from) } else { found };
    Some((start, next_bit(words, found, end, true)))
}

/// The run of clear bits that `from` begins, or would if it were clear, reaches down to this bit.
pub(super) fn clear_before(words: &[u64], from: u32) -> u32 {
    let mut at = from;
    while at > 0 {
        let word = words[(at - 1) as usize / 64] << (63 - (at - 1) % 64);
        if word != 0 {
            return at - word.leading_zeros();
        }
        at = (at - 1) / 64 * 64;
    }
    0
}

/// The first bit behind the run of clear bits that begins at `from`, below `end`.
pub(super) fn clear_up_to(words: &[u64], end: u32, from: u32) -> u32 {
    next_bit(words, from, end, true)
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
    for_each_mask(words, from, count, |word, mask| {
        set += (mask & !*word).count_ones();
        *word |= mask;
    });
    set
}

/// Clears bits and returns how many of them were set.
pub(super) fn clear_bits(words: &mut [u64], from: u32, count: u32) -> u32 {
    let mut cleared = 0;
    for_each_mask(words, from, count, |word, mask| {
        cleared += (mask & *word).count_ones();
        *word &= !mask;
    });
    cleared
}

/// Calls `each` with every word in which some of these bits lie, and a mask of them.
fn for_each_mask(words: &mut [u64], from: u32, count: u32, mut each: impl FnMut(&mut u64, u64)) {
    let (mut at, end) = (from, from + count);
    while at < end {
        let bits = (64 - at % 64).min(end - at);
        let mask = (!0 >> (64 - bits)) << (at % 64);
        each(&mut words[at as usize / 64], mask);
        at += bits;
    }
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
                    let begins = |&at: &u32| at == 0 || !clear(at - 1);
                    let fits = |&at: &u32| at + units <= end && (at..at + units).all(clear);
                    let stop = |at: u32| (at..end).find(|&bit| !clear(bit)).unwrap_or(end);
                    let expected = (0..end).filter(begins).filter(fits).find(|&at| stop(at) > from);
                    assert_eq!(free_run(&words, end, from, units), expected, "round {round}");
                    if expected.is_some() {
                        longest = units;
                    }
                }
            }
            assert_eq!(longest_run(&words, end), longest, "round {round}");
            for units in 1..=4 {
                let mut taken = words.clone();
                let runs: u32 = runs(&words, end).map(|run| run / units).sum();
                for _ in 0..runs {
                    let at = free_run(&taken, end, 0, units).unwrap();
                    set_bits(&mut taken, at, units);
                }
                assert_eq!(free_run(&taken, end, 0, units), None, "round {round}");
            }
            for from in 0..end {
                let found = run_from(&words, end, from);
                let first = (from..end).find(|&at| clear(at));
                assert_eq!(found.is_some(), first.is_some(), "round {round}");
                let Some((start, stop)) = found else { continue };
                assert!((start..stop).all(clear) && stop > from, "round {round}");
                assert!(start == 0 || !clear(start - 1), "round {round}");
                assert!(stop == end || !clear(stop), "round {round}");
                assert!((from..start).all(|at| !clear(at)), "round {round}");
                assert_eq!((clear_before(&words, from) < from), from > 0 && clear(from - 1));
                assert_eq!(clear_up_to(&words, end, start), stop);
            }
            let set: u32 = words.iter().map(|word| word.count_ones()).sum();
            assert_eq!(clear_bits(&mut words, 0, end), set);
            assert_eq!(longest_run(&words, end), end);
        }
    }
}
