//! Changes of a fingerprint leaf: format, insert, update, remove, and compaction under them.
//!
//! The caller holds the page exclusively, or a private copy of it, and has seen
//! [`super::load_check`] pass since the page came from outside; then nothing here panics, whatever
//! else is wrong with the bytes. Invariants: a call that gives [`NoSpace`] has changed nothing;
//! after every call those of [`super::layout`] hold. Removed records stay on the heap until an
//! insertion needs their space.

use super::super::fields::{
    COUNT, HEAP_START, PREFIX_LEN, count, heap_start, max_record_bytes, prefix, set_u16, set_u32,
    u16_at,
};
use super::super::read::Node;
use super::super::slotted::{self, NoSpace, Slotted, add_live, take_heap};
use super::super::write::{note_insertion, write_frame};
use super::hash::{FUNCTION, fingerprint};
use super::layout::{
    CAPACITY, FINGERPRINTS, FUNCTION_FIELD, Fingerprints, Measure, SORTED, Slot, cut_prefix,
    places_needed, set_slot, set_wide, slot, slots, sorted_count, suffix,
};
use super::read::FingerprintLeaf;
use crate::page::header::{MIN_PAGE_BYTES, PageKind};
use hedgerow_sync::optimistic::PlainBytes;
use std::ops::Range;

/// A record on its way into a leaf.
pub(super) struct Moved<'r> {
    /// The suffix, and the value behind it, in two pieces: the first one is of the suffix alone.
    pub parts: [&'r [u8]; 2],
    /// Bytes of the value.
    pub value_len: usize,
    /// The fingerprint of the suffix, if it is known.
    pub fingerprint: Option<u8>,
}

/// A fingerprint leaf to change.
#[derive(Debug)]
pub struct FingerprintLeafMut<'a> {
    pub(super) page: &'a mut [u8],
}

impl<'a> FingerprintLeafMut<'a> {
    /// Wraps a page that has passed [`super::load_check`] or was formatted by this build.
    #[inline]
    pub fn new(page: &'a mut [u8]) -> Self {
        FingerprintLeafMut { page }
    }

    /// Makes an empty leaf out of a page, for keys `lower < key <= upper` (`None`: without end).
    ///
    /// Of the page's header, ids, epoch and checksum stay; the newest LSN becomes zero. The fences
    /// have at most [`max_key_bytes`](super::super::max_key_bytes) each.
    pub fn format(page: &'a mut [u8], lower: Option<&[u8]>, upper: Option<&[u8]>) -> Self {
        write_frame(page, PageKind::FingerprintLeaf, 0, FINGERPRINTS, [lower, upper]);
        set_u16(page, FUNCTION_FIELD, FUNCTION);
        FingerprintLeafMut::new(page)
    }

    /// The leaf, to read.
    #[inline]
    pub fn as_leaf(&self) -> FingerprintLeaf<PlainBytes<'_>> {
        FingerprintLeaf::new(PlainBytes::new(self.page))
    }

    /// The leaf as any node: see [`FingerprintLeaf::as_node`].
    #[cfg(hedgerow_internals)]
    #[inline]
    pub fn as_node(&self) -> Node<PlainBytes<'_>> {
        Node::new(PlainBytes::new(self.page))
    }

    /// The bytes of the page.
    #[cfg(hedgerow_internals)]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.page
    }

    /// The value at `place`.
    ///
    /// # Panics
    /// If there is no such record.
    #[cfg(hedgerow_internals)]
    pub fn value(&self, place: usize) -> &[u8] {
        assert!(place < count(self.page), "no record {place} to read");
        super::layout::value(self.page, place)
    }

    /// Inserts a record, whose key [`FingerprintLeaf::find`] has not found. Its place is the last
    /// one.
    ///
    /// The leaf may be sorted before, so that places that were known are not valid any more.
    ///
    /// # Errors
    /// [`NoSpace`] if the leaf must be split first, or if key and value are longer than
    /// [`max_record_bytes`] (which no split can help; the caller has checked it).
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), NoSpace> {
        assert!(self.page.len() >= MIN_PAGE_BYTES, "a page of {} bytes", self.page.len());
        if key.len() + value.len() > max_record_bytes(self.page.len()) {
            return Err(NoSpace);
        }
        let suffix = cut_prefix(self.page, key);
        let slot_bytes = Fingerprints::slot_bytes_with(self.page, suffix.len(), value.len());
        slotted::make_room::<_, Fingerprints>(self.page, suffix.len() + value.len(), slot_bytes)?;
        let fingerprint = fingerprint(suffix);
        if self.as_leaf().is_tail_crowded(fingerprint) {
            self.sort();
        }
        let place = count(self.page);
        let is_ascending = self.as_leaf().is_sorted() && self.is_above_last(suffix);
        self.append_record([suffix, &[]], value, fingerprint);
        if is_ascending {
            set_u16(self.page, SORTED, place + 1);
            note_insertion(self.page, place, place);
        }
        Ok(())
    }

    /// Whether a suffix is above that of the last place.
    fn is_above_last(&self, above: &[u8]) -> bool {
        let last = count(self.page).checked_sub(1);
        last.is_none_or(|last| suffix(self.page, last) < above)
    }

    /// Gives the record at `place` another value: where it lies, if it is not longer than the old
    /// one. The record keeps its place.
    ///
    /// # Errors
    /// [`NoSpace`] as for [`Self::insert`]; never if the value does not get longer.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn update(&mut self, place: usize, value: &[u8]) -> Result<(), NoSpace> {
        slotted::update::<_, Fingerprints>(self.page, place, value)
    }

    /// Removes the record at `place`. Of the sorted part those behind it move up; the last record
    /// of the tail goes where a place has become free.
    ///
    /// # Panics
    /// If there is no such record.
    pub fn remove(&mut self, place: usize) {
        let count = count(self.page);
        assert!(place < count, "no record {place} to remove");
        let removed = slot(self.page, place);
        let sorted = sorted_count(self.page).min(count);
        let mut free = place;
        if place < sorted {
            self.move_records(place + 1..sorted, place);
            set_u16(self.page, SORTED, sorted - 1);
            free = sorted - 1;
        }
        if free < count - 1 {
            self.move_records(count - 1..count, free);
        }
        slotted::forget_record(self.page, removed);
    }

    /// Moves slots and fingerprints of a range of places, which may overlap the target.
    pub(super) fn move_records(&mut self, from: Range<usize>, to: usize) {
        slotted::move_records::<_, Fingerprints>(self.page, from, to);
    }

    /// Prepares a leaf that has no records yet for such as have been measured.
    pub(super) fn reserve(&mut self, records: Measure) {
        set_u16(self.page, CAPACITY, places_needed(records.count));
        set_wide(self.page, records.wide);
    }

    /// Appends a record whose suffix comes in two parts, behind the last place. There is room.
    pub(super) fn append_record(&mut self, parts: [&[u8]; 2], value: &[u8], fingerprint: u8) {
        let page = &mut *self.page;
        // After this none of the header's fields takes a look at the length.
        assert!(page.len() >= MIN_PAGE_BYTES, "a page of {} bytes", page.len());
        let place = count(page);
        let suffix_len = parts[0].len() + parts[1].len();
        let record = suffix_len + value.len();
        let offset = take_heap(page, record);
        let to = &mut page[offset..offset + record];
        let (to_suffix, to_value) = to.split_at_mut(suffix_len);
        if parts[1].is_empty() {
            to_suffix.copy_from_slice(parts[0]);
        } else {
            let (first, second) = to_suffix.split_at_mut(parts[0].len());
            first.copy_from_slice(parts[0]);
            second.copy_from_slice(parts[1]);
        }
        to_value.copy_from_slice(value);
        set_u16(page, COUNT, place + 1);
        page[FINGERPRINTS + place] = fingerprint;
        set_slot(page, place, Slot { offset, suffix_len, value_len: value.len(), child: 0 });
    }

    /// Appends the records of a sorted leaf at `range`, translating between the two prefixes.
    pub(super) fn append_from(&mut self, source: &[u8], range: Range<usize>) {
        let from = prefix(source);
        let to = u16_at(self.page, PREFIX_LEN);
        let dropped = to.saturating_sub(from.len());
        let restored = from.get(to..).unwrap_or(&[]);
        let keep = dropped + restored.len() == 0;
        self.append_all(range.clone().zip(slots(source, range)).map(|(from, old)| Moved {
            // What is left of the suffix, and the value behind it, stay together.
            parts: [
                restored,
                &source[old.offset + dropped.min(old.suffix_len)..old.value_range().end],
            ],
            value_len: old.value_len,
            fingerprint: keep.then(|| source[FINGERPRINTS + from]),
        }));
    }

    /// Appends records behind the last place. There is room.
    pub(super) fn append_all<'r>(&mut self, records: impl Iterator<Item = Moved<'r>>) {
        let (mut place, top) = (count(self.page), heap_start(self.page));
        let mut offset = top;
        for Moved { parts: [first, second], value_len, fingerprint: known } in records {
            let record = first.len() + second.len();
            offset -= record;
            let (to_first, to_second) =
                self.page[offset..offset + record].split_at_mut(first.len());
            if !first.is_empty() {
                to_first.copy_from_slice(first);
            }
            to_second.copy_from_slice(second);
            let suffix_len = record - value_len;
            set_slot(self.page, place, Slot { offset, suffix_len, value_len, child: 0 });
            self.page[FINGERPRINTS + place] =
                known.unwrap_or_else(|| fingerprint(&self.page[offset..offset + suffix_len]));
            place += 1;
        }
        set_u16(self.page, COUNT, place);
        set_u32(self.page, HEAP_START, offset as u32);
        add_live(self.page, top - offset, 0);
    }

    /// Notes that the records are in the order of their keys.
    pub(super) fn set_sorted(&mut self) {
        set_u16(self.page, SORTED, count(self.page));
    }
}
