//! Lazy sorting: the unsorted tail becomes part of the sorted one.
//!
//! No logical change: the leaf holds the same records before and after. The tail is sorted by
//! itself, by the first eight bytes of each key as far as these settle it, and merged from behind.
//! A record of the tail looks for its place by steps that double, so a short tail costs a binary
//! search for each record, and a long one little more than a merge. Fingerprints move with their
//! slots and are not computed anew; the heap is not touched. Same conditions as [`super::write`];
//! allocates a vector for the tail.

use super::super::fields::count;
use super::super::write::note_insertion;
use super::layout::{FINGERPRINTS, Slot, WIDE_BYTES, set_slot, slot, sorted_count, wide_slot};
use super::read::head;
use super::write::FingerprintLeafMut;
use std::cmp::Ordering;

/// So many of the last insertions tell whether there is a sequence: enough for one in which
/// neighbours change places.
const ARRIVALS: usize = 32;

/// A record of the tail, in 24 bytes.
struct Entry {
    head: u64,
    /// A wide slot, and above it the fingerprint.
    word: u64,
    /// How many records of the tail came before it.
    arrival: u16,
}

/// Bit of [`Entry::word`] from which on the fingerprint stands.
const FINGERPRINT_SHIFT: u32 = 8 * WIDE_BYTES as u32;

impl Entry {
    fn new(page: &[u8], place: usize, arrival: usize) -> Entry {
        let slot = slot(page, place);
        let lengths = (slot.suffix_len as u64) << 16 | (slot.value_len as u64) << 32;
        let fingerprint = u64::from(page[FINGERPRINTS + place]) << FINGERPRINT_SHIFT;
        Entry {
            head: head(&page[slot.rest_range()]),
            word: slot.offset as u64 | lengths | fingerprint,
            arrival: arrival as u16,
        }
    }

    fn slot(&self) -> Slot {
        wide_slot(self.word)
    }

    fn fingerprint(&self) -> u8 {
        (self.word >> FINGERPRINT_SHIFT) as u8
    }
}

impl FingerprintLeafMut<'_> {
    /// Sorts the tail into the sorted part. Nothing is done if there is none.
    ///
    /// No logical change, but one of bytes: an image that a checkpoint is owed may be sorted or not, a page that
    /// is clean stays clean. Places that were known are not valid any more.
    /// A reader that must not change the page sorts a private copy.
    pub fn sort(&mut self) {
        let (sorted, count) = (sorted_count(self.page), count(self.page));
        if sorted >= count {
            return;
        }
        let tail = self.sorted_tail(sorted, count);
        let first_counted = tail.len().saturating_sub(ARRIVALS);
        let mut ranks = [0u16; ARRIVALS];
        // Records of the sorted part that still are where they were, and the place behind the gap.
        let (mut left, mut to) = (sorted, count);
        for entry in tail.iter().rev() {
            let place = self.place_above(left, entry);
            to -= left - place;
            self.move_records(place..left, to);
            left = place;
            to -= 1;
            set_slot(self.page, to, entry.slot());
            self.page[FINGERPRINTS + to] = entry.fingerprint();
            if let Some(at) = usize::from(entry.arrival).checked_sub(first_counted) {
                ranks[at] = to as u16;
            }
        }
        self.set_sorted();
        self.note_arrivals(&ranks[..tail.len() - first_counted]);
    }

    /// The records from `sorted` on in the order of their keys.
    fn sorted_tail(&self, sorted: usize, count: usize) -> Vec<Entry> {
        let page = &*self.page;
        let entry = |place| Entry::new(page, place, place - sorted);
        let mut tail: Vec<Entry> = (sorted..count).map(entry).collect();
        let suffix = |entry: &Entry| &page[entry.slot().rest_range()];
        tail.sort_unstable_by(|a, b| a.head.cmp(&b.head).then_with(|| suffix(a).cmp(suffix(b))));
        tail
    }

    /// The first of the first `sorted` records that is above the entry, looked for from behind.
    fn place_above(&self, sorted: usize, entry: &Entry) -> usize {
        let leaf = self.as_leaf();
        let key = &self.page[entry.slot().rest_range()];
        let is_below =
            |place| leaf.compare_suffix(slot(self.page, place), entry.head, key) == Ordering::Less;
        let (mut high, mut step) = (sorted, 1);
        let mut low = loop {
            let Some(place) = high.checked_sub(step) else { break 0 };
            if is_below(place) {
                break place + 1;
            }
            high = place;
            step *= 2;
        };
        while low < high {
            let middle = low.midpoint(high);
            if is_below(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        high
    }

    /// Tells the run of insertions what the last ones of the tail were, given where in the order of
    /// all keys each of them stands now.
    fn note_arrivals(&mut self, ranks: &[u16]) {
        let count = count(self.page);
        for (at, &rank) in ranks.iter().enumerate() {
            let later = &ranks[at + 1..];
            // Where it stood when it came, before those that came later.
            let below = later.iter().filter(|&&other| other < rank).count();
            let old_count = count - later.len() - 1;
            note_insertion(self.page, usize::from(rank) - below, old_count);
        }
    }
}
