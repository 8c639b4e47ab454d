//! A sparse set of allocation units: 4,096 units (512 bytes) a chunk, only chunks that hold any.
//!
//! Quarantined space that a pinned checkpoint needs is kept here, because a pin may last for days
//! and hold back most of the file: at one bit a unit this is 1/4,096 of what it holds, with units of 512 bytes. Invariant:
//! `len` is the number of bits set, and no chunk is empty. Not shared; its owner is under a lock.

use std::collections::BTreeMap;

const CHUNK_WORDS: usize = 64;
const CHUNK_UNITS: u64 = CHUNK_WORDS as u64 * 64;

/// Memory of one chunk: its words, and its share of the tree that holds it.
const CHUNK_BYTES: usize = CHUNK_WORDS * 8 + 32;

/// See the file's header.
#[derive(Default, Debug)]
pub(super) struct UnitSet {
    chunks: BTreeMap<u64, Box<[u64; CHUNK_WORDS]>>,
    len: u64,
}

impl UnitSet {
    /// Adds a run; units that are in the set already stay.
    pub(super) fn insert(&mut self, start: u64, len: u32) {
        for unit in start..start + u64::from(len) {
            let chunk =
                self.chunks.entry(unit / CHUNK_UNITS).or_insert_with(|| Box::new([0; CHUNK_WORDS]));
            let in_chunk = unit % CHUNK_UNITS;
            let word = &mut chunk[in_chunk as usize / 64];
            let bit = 1 << (in_chunk % 64);
            self.len += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }

    /// Takes a run out if all of it is in the set; tells whether it was.
    pub(super) fn remove_all(&mut self, start: u64, len: u32) -> bool {
        let units = start..start + u64::from(len);
        let place = |unit: u64| (unit / CHUNK_UNITS, (unit % CHUNK_UNITS) as usize / 64, unit % 64);
        let is_there = |unit: u64| {
            let (chunk, word, bit) = place(unit);
            self.chunks.get(&chunk).is_some_and(|words| words[word] >> bit & 1 == 1)
        };
        if !units.clone().all(is_there) {
            return false;
        }
        for unit in units {
            let (chunk, word, bit) = place(unit);
            if let Some(words) = self.chunks.get_mut(&chunk) {
                words[word] &= !(1 << bit);
                self.len -= 1;
                if words.iter().all(|&word| word == 0) {
                    self.chunks.remove(&chunk);
                }
            }
        }
        true
    }

    /// Calls `each` with the first unit and the number of units of every stretch of neighbours, ascending.
    pub(super) fn for_each_run(&self, mut each: impl FnMut(u64, u32)) {
        let mut run: Option<(u64, u32)> = None;
        self.for_each_in(0, u64::MAX, |unit| match &mut run {
            Some((first, count)) if *first + u64::from(*count) == unit && *count < u32::MAX => {
                *count += 1;
            }
            _ => {
                if let Some((first, count)) = run.replace((unit, 1)) {
                    each(first, count);
                }
            }
        });
        if let Some((first, count)) = run {
            each(first, count);
        }
    }

    /// Takes in all of another set.
    pub(super) fn merge(&mut self, other: UnitSet) {
        for (key, theirs) in other.chunks {
            let ours = self.chunks.entry(key).or_insert_with(|| Box::new([0; CHUNK_WORDS]));
            for (word, more) in ours.iter_mut().zip(theirs.iter()) {
                self.len += u64::from((more & !*word).count_ones());
                *word |= more;
            }
        }
    }

    /// Takes up to `most` runs of neighbours out, in no order, and calls `each` with the first unit and the number of units of each of
    /// them. A run ends with its chunk.
    pub(super) fn take_some(&mut self, most: usize, mut each: impl FnMut(u64, u32)) {
        let mut left = most;
        while left > 0
            && let Some(mut chunk) = self.chunks.first_entry()
        {
            let first = chunk.key() * CHUNK_UNITS;
            let mut run = (first, 0);
            for (i, word) in chunk.get_mut().iter_mut().enumerate() {
                while *word != 0 {
                    let bit = word.trailing_zeros();
                    let len = (*word >> bit).trailing_ones();
                    let unit = first + i as u64 * 64 + u64::from(bit);
                    if run.1 == 0 || run.0 + u64::from(run.1) != unit {
                        if run.1 > 0 {
                            each(run.0, run.1);
                            left -= 1;
                        }
                        run = (unit, 0);
                    }
                    if left == 0 {
                        break;
                    }
                    run.1 += len;
                    *word &= !(u64::MAX >> (64 - len) << bit);
                    self.len -= u64::from(len);
                }
            }
            if left > 0 && run.1 > 0 {
                each(run.0, run.1);
                left -= 1;
            }
            if chunk.get().iter().all(|&word| word == 0) {
                chunk.remove();
            }
        }
    }

    /// Number of units.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Calls `each` for every unit from `from` up to but without `to`, ascending.
    pub(super) fn for_each_in(&self, from: u64, to: u64, mut each: impl FnMut(u64)) {
        let first = from / CHUNK_UNITS;
        for (key, words) in self.chunks.range(first..to.div_ceil(CHUNK_UNITS).max(first)) {
            for (i, &word) in words.iter().enumerate() {
                let mut rest = word;
                while rest != 0 {
                    let bit = u64::from(rest.trailing_zeros());
                    rest &= rest - 1;
                    let unit = key * CHUNK_UNITS + i as u64 * 64 + bit;
                    if (from..to).contains(&unit) {
                        each(unit);
                    }
                }
            }
        }
    }

    /// Memory of a set of so many units, if it has some everywhere.
    pub(super) fn bytes_of(units: u64) -> usize {
        usize::try_from(units.div_ceil(CHUNK_UNITS))
            .unwrap_or(usize::MAX)
            .saturating_mul(CHUNK_BYTES)
    }

    /// Memory held, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_go_in_once_and_come_out_in_order() {
        let mut set = UnitSet::default();
        set.insert(CHUNK_UNITS - 2, 4);
        set.insert(CHUNK_UNITS - 1, 2);
        set.insert(1 << 40, 1);
        assert_eq!(set.len(), 5);
        let mut other = UnitSet::default();
        other.insert(CHUNK_UNITS + 1, 2);
        other.insert(5, 1);
        set.merge(other);
        let mut all = Vec::new();
        set.for_each_in(0, u64::MAX, |unit| all.push(unit));
        let c = CHUNK_UNITS;
        assert_eq!(all, [5, c - 2, c - 1, c, c + 1, c + 2, 1 << 40]);
        assert_eq!(set.len(), all.len() as u64);
        let mut some = Vec::new();
        set.for_each_in(c - 1, c + 2, |unit| some.push(unit));
        assert_eq!(some, [c - 1, c, c + 1]);
        assert_eq!(set.memory_bytes(), 3 * CHUNK_BYTES);
        let mut taken = Vec::new();
        for most in [1, 0, 2, 9] {
            let before = taken.len();
            set.take_some(most, |first, units| taken.push((first, units)));
            assert_eq!(taken.len(), (before + most).min(4));
            let units: u64 = taken.iter().map(|(_, units)| u64::from(*units)).sum();
            assert_eq!(set.len(), all.len() as u64 - units);
        }
        assert_eq!(taken, [(5, 1), (c - 2, 2), (c, 3), (1 << 40, 1)]);
        assert_eq!(set.memory_bytes(), 0);
    }

    #[test]
    fn runs_are_taken_out_whole_or_not_at_all_and_shown_as_stretches() {
        let mut set = UnitSet::default();
        let c = CHUNK_UNITS;
        set.insert(c - 2, 4);
        set.insert(70, 3);
        set.insert(73, 1);
        let stretches = |set: &UnitSet| {
            let mut all = Vec::new();
            set.for_each_run(|first, count| all.push((first, count)));
            all
        };
        assert_eq!(stretches(&set), [(70, 4), (c - 2, 4)]);
        assert!(!set.remove_all(69, 2) && !set.remove_all(c + 1, 2));
        assert_eq!(set.len(), 8);
        assert!(set.remove_all(71, 1) && set.remove_all(c - 1, 3));
        assert_eq!(stretches(&set), [(70, 1), (72, 2), (c - 2, 1)]);
        assert_eq!(set.len(), 4);
        assert_eq!(set.memory_bytes(), CHUNK_BYTES);
        assert!(set.remove_all(70, 1) && set.remove_all(72, 2) && set.remove_all(c - 2, 1));
        assert_eq!((set.len(), set.memory_bytes()), (0, 0));
        assert!(set.remove_all(5, 0), "nothing is always there");
    }
}
