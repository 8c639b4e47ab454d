//! The presence bits of a dense leaf: which slots have records.
//!
//! Bit `i % 64` of word `i / 64` is that of slot `i`; bits behind the last slot are zero. All walks
//! go from set bit to set bit by counting zeros, and look at 64 slots with one instruction: no
//! branch for a slot. The functions over [`PageBytes`] are total, as all that optimistic readers
//! use: they look at no more words than the capacity asks for, at most 1,023, and what they give is
//! below the capacity.

use super::fields::{CAPACITY, PRESENCE, WORD_BYTES, WORD_SLOTS, array_start, capacity};
use crate::node::fields::{set_u16, u16_at, u32_at};
use hedgerow_sync::optimistic::PageBytes;
use std::ops::Range;

/// The word that holds the bit of a slot.
#[inline(always)]
pub(super) fn word<B: PageBytes>(bytes: B, slot: usize) -> u64 {
    bytes.u64_at(PRESENCE + slot / WORD_SLOTS * WORD_BYTES)
}

/// Whether a slot has a record.
#[inline(always)]
pub(super) fn is_present<B: PageBytes>(bytes: B, slot: usize) -> bool {
    word(bytes, slot) >> (slot % WORD_SLOTS) & 1 != 0
}

/// The first slot at or behind `from` that has a record; `capacity` if there is none.
#[inline]
pub(super) fn next<B: PageBytes>(bytes: B, from: usize, capacity: usize) -> usize {
    let mut at = from;
    // Bits before the place are shifted out; in the words to follow there are none.
    while at < capacity {
        let bits = word(bytes, at) >> (at % WORD_SLOTS);
        if bits != 0 {
            return (at + bits.trailing_zeros() as usize).min(capacity);
        }
        at = (at / WORD_SLOTS + 1) * WORD_SLOTS;
    }
    capacity
}

/// The last slot before `before` that has a record.
#[inline]
pub(super) fn previous<B: PageBytes>(bytes: B, before: usize, capacity: usize) -> Option<usize> {
    let mut end = before.min(capacity);
    while let Some(last) = end.checked_sub(1) {
        let bits = word(bytes, last) << (WORD_SLOTS - 1 - last % WORD_SLOTS);
        if bits != 0 {
            return Some(last - bits.leading_zeros() as usize);
        }
        end = last / WORD_SLOTS * WORD_SLOTS;
    }
    None
}

/// How many of the slots have records.
pub(super) fn count_in<B: PageBytes>(bytes: B, slots: Range<usize>) -> usize {
    let (mut at, mut count) = (slots.start, 0);
    while at < slots.end {
        let until = ((at / WORD_SLOTS + 1) * WORD_SLOTS).min(slots.end);
        let bits = word(bytes, at) >> (at % WORD_SLOTS);
        let bits = bits & (u64::MAX >> (WORD_SLOTS - (until - at)));
        count += bits.count_ones() as usize;
        at = until;
    }
    count
}

/// The slot of the record that has `rank` records below it, if there is such a record.
pub(super) fn select<B: PageBytes>(bytes: B, rank: usize, capacity: usize) -> Option<usize> {
    let (mut at, mut left) = (0, rank);
    while at < capacity {
        let mut bits = word(bytes, at);
        let ones = bits.count_ones() as usize;
        if left < ones {
            for _ in 0..left {
                bits &= bits - 1;
            }
            return Some(at + bits.trailing_zeros() as usize).filter(|slot| *slot < capacity);
        }
        left -= ones;
        at += WORD_SLOTS;
    }
    None
}

/// Whether all bits behind the last slot are zero. The words are inside of the page.
pub(super) fn is_zero_behind(page: &[u8]) -> bool {
    let capacity = capacity(page);
    if capacity.is_multiple_of(WORD_SLOTS) {
        return true;
    }
    let at = PRESENCE + capacity / WORD_SLOTS * WORD_BYTES;
    let last = u64::from(u32_at(page, at)) | u64::from(u32_at(page, at + 4)) << 32;
    last >> (capacity % WORD_SLOTS) == 0
}

/// Sets the bit of a slot, or clears it.
pub(super) fn set(page: &mut [u8], slot: usize, present: bool) {
    let bit = 1 << (slot % 8);
    let byte = &mut page[PRESENCE + slot / 8];
    *byte = if present { *byte | bit } else { *byte & !bit };
}

/// The slots with records, ascending, or descending from the back. Holds the bits of the words at
/// both ends, so that a step is two instructions.
#[derive(Clone, Debug)]
pub struct Slots<'p> {
    page: &'p [u8],
    /// Slots of which the words at hand are; the front's bits are not in the back's once both are
    /// of one word.
    front: usize,
    back: usize,
    front_bits: u64,
    back_bits: u64,
}

impl<'p> Slots<'p> {
    /// The slots of `range`. Total over any bytes.
    pub(super) fn new(page: &'p [u8], range: Range<usize>) -> Self {
        let field = page.get(CAPACITY..).and_then(|bytes| bytes.first_chunk());
        let end = range.end.min(field.map_or(0, |field| usize::from(u16::from_le_bytes(*field))));
        let start = range.start.min(end);
        let mut slots = Slots { page, front: 0, back: 0, front_bits: 0, back_bits: 0 };
        if start == end {
            return slots;
        }
        (slots.front, slots.back) = (start / WORD_SLOTS, (end - 1) / WORD_SLOTS);
        let from = u64::MAX << (start % WORD_SLOTS);
        let until = u64::MAX >> (WORD_SLOTS - 1 - (end - 1) % WORD_SLOTS);
        slots.front_bits = slots.word(slots.front) & from;
        slots.back_bits = slots.word(slots.back) & until;
        if slots.front == slots.back {
            slots.front_bits &= until;
            slots.back_bits = 0;
        }
        slots
    }

    #[inline(always)]
    fn word(&self, word: usize) -> u64 {
        let at = PRESENCE + word * WORD_BYTES;
        self.page
            .get(at..)
            .and_then(|bytes| bytes.first_chunk())
            .map_or(0, |word| u64::from_le_bytes(*word))
    }
}

impl Iterator for Slots<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.front_bits == 0 {
            if self.front >= self.back {
                return None;
            }
            self.front += 1;
            self.front_bits = match self.front == self.back {
                true => std::mem::take(&mut self.back_bits),
                false => self.word(self.front),
            };
        }
        let slot = self.front * WORD_SLOTS + self.front_bits.trailing_zeros() as usize;
        self.front_bits &= self.front_bits - 1;
        Some(slot)
    }
}

impl DoubleEndedIterator for Slots<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<usize> {
        while self.back_bits == 0 {
            if self.front >= self.back {
                // One word is left, and its bits are at the front.
                let last = self.front_bits.checked_ilog2()?;
                self.front_bits ^= 1 << last;
                return Some(self.front * WORD_SLOTS + last as usize);
            }
            self.back -= 1;
            if self.back > self.front {
                self.back_bits = self.word(self.back);
            }
        }
        let last = self.back_bits.ilog2();
        self.back_bits ^= 1 << last;
        Some(self.back * WORD_SLOTS + last as usize)
    }
}

/// Moves the array behind the presence bits to where `new` slots have it, and sets the capacity.
/// The bits of slots that are new are zero; slots that go away have no records.
pub(super) fn resize(page: &mut [u8], new: usize, slot_bytes: usize) {
    let old = u16_at(page, CAPACITY);
    let kept = old.min(new) * slot_bytes;
    let (from, to) = (array_start(old), array_start(new));
    page.copy_within(from..from + kept, to);
    if new > old {
        page[from..to].fill(0);
        page[to + kept..to + new * slot_bytes].fill(0);
    }
    set_u16(page, CAPACITY, new);
}

#[cfg(test)]
mod tests {
    use super::*;
    use hedgerow_sync::optimistic::PlainBytes;
    use hedgerow_sync::primitive::random::SplitMix64;

    #[test]
    fn walks_agree_with_a_look_at_every_slot() {
        let seed = 411;
        eprintln!("seed {seed}");
        let mut random = SplitMix64::new(seed);
        for round in 0..60 {
            let capacity = [0, 1, 63, 64, 65, 128, 200, 495][round % 8];
            let mut page = vec![0; 512];
            set_u16(&mut page, CAPACITY, capacity);
            let every = [1, 2, 7, 90][round / 8 % 4];
            let present: Vec<usize> = (0..capacity).filter(|_| random.below(every) == 0).collect();
            present.iter().for_each(|slot| set(&mut page, *slot, true));
            assert!(is_zero_behind(&page));
            let bytes = PlainBytes::new(&page);
            for at in 0..=capacity + 1 {
                let behind = present.iter().copied().find(|slot| *slot >= at);
                assert_eq!(next(bytes, at, capacity), behind.unwrap_or(capacity));
                let before = present.iter().copied().rfind(|slot| *slot < at);
                assert_eq!(previous(bytes, at, capacity), before);
                assert_eq!(is_present(bytes, at) && at < capacity, present.contains(&at));
                assert_eq!(select(bytes, at, capacity), present.get(at).copied());
                let end = at + random.below(200) as usize;
                let inside = || present.iter().copied().filter(|slot| (at..end).contains(slot));
                assert_eq!(count_in(bytes, at..end.min(capacity.max(at))), inside().count());
                assert!(Slots::new(&page, at..end).eq(inside()));
                assert!(Slots::new(&page, at..end).rev().eq(inside().rev()));
                let (mut both, mut left) = (Slots::new(&page, at..end), inside());
                while random.below(40) > 0 {
                    if random.below(2) == 0 {
                        assert_eq!(both.next(), left.next());
                    } else {
                        assert_eq!(both.next_back(), left.next_back());
                    }
                }
            }
        }
    }
}
