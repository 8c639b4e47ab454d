//! The read side of a fingerprint leaf, over any [`PageBytes`]: look-ups, and records by place.
//!
//! A `FingerprintLeaf` is a view: it owns nothing and checks nothing. Over racing bytes every
//! result is untrusted until the page is validated; over a page that [`super::load_check`] has
//! passed and that is latched it is the truth. All functions are total: offsets that lead out of
//! the page read zeros, loops are bounded by the count as it was read, nothing is allocated (but by
//! those that append to a vector). `Copy`; as thread-safe as the bytes under it.

use super::super::fields::{COUNT, HEAP_LIVE, NODE_FLAGS, PREFIX_LEN, max_record_bytes};
use super::super::lanes;
use super::super::read::Node;
use super::super::search::Position;
use super::hash::fingerprint;
use super::layout::{
    BLOCK, CAPACITY, CROWD, FINGERPRINTS, Measure, NARROW_BYTES, SORTED, Slot, WIDE, WIDE_BYTES,
    narrow_slot, space_needed, wide_slot,
};
use crate::page::header::MIN_PAGE_BYTES;
use hedgerow_sync::optimistic::{Copied, PageBytes, PlainBytes};
use std::cmp::Ordering;

/// Bytes that a short suffix is copied as.
const PIECE: usize = 16;

/// A fingerprint leaf to read from.
#[derive(Clone, Copy, Debug)]
pub struct FingerprintLeaf<B> {
    bytes: B,
}

/// The fields that a search reads first, with the key reduced to what the leaf compares.
struct Probe<'k> {
    count: usize,
    slots: Slots,
    suffix: &'k [u8],
}

/// Where the slots lie, and which they are.
#[derive(Clone, Copy)]
struct Slots {
    start: usize,
    wide: bool,
}

impl Slots {
    #[inline(always)]
    fn read(self, bytes: impl PageBytes, place: usize) -> Slot {
        if self.wide {
            wide_slot(bytes.u64_at(self.start + WIDE_BYTES * place))
        } else {
            narrow_slot(bytes.u32_at(self.start + NARROW_BYTES * place))
        }
    }
}

/// The first eight bytes of a suffix, zero-padded, as a number. Where two such numbers differ they
/// are in the order of the suffixes.
#[inline(always)]
pub(super) fn head(suffix: &[u8]) -> u64 {
    if let Some(first) = suffix.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    suffix.iter().rev().fold(0, |head, byte| head >> 8 | u64::from(*byte) << 56)
}

impl<B: PageBytes> FingerprintLeaf<B> {
    /// Views bytes as a fingerprint leaf. Nothing is checked: see the head of this file.
    #[inline(always)]
    pub fn new(bytes: B) -> Self {
        FingerprintLeaf { bytes }
    }

    /// The bytes under the view.
    #[inline(always)]
    pub fn bytes(&self) -> B {
        self.bytes
    }

    /// The leaf as any node, for what is the same in all layouts: header, fences and prefix, and
    /// the bytes of records. Its records mean nothing there.
    #[inline(always)]
    pub fn as_node(&self) -> Node<B> {
        Node::new(self.bytes)
    }

    /// Number of records.
    #[inline(always)]
    pub fn count(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ COUNT }>())
    }

    /// Number of records, from the first place on, that are in the order of their keys.
    #[inline(always)]
    pub fn sorted_count(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ SORTED }>())
    }

    /// Whether places are in the order of the keys.
    #[inline(always)]
    pub fn is_sorted(&self) -> bool {
        self.sorted_count() >= self.count()
    }

    #[inline(always)]
    fn slots(&self) -> Slots {
        Slots {
            start: FINGERPRINTS + usize::from(self.bytes.field_u16::<{ CAPACITY }>()),
            wide: self.bytes.field_u16::<{ NODE_FLAGS }>() & WIDE != 0,
        }
    }

    #[inline(always)]
    pub(super) fn slot(&self, place: usize) -> Slot {
        self.slots().read(self.bytes, place)
    }

    #[inline(always)]
    fn probe<'k>(&self, key: &'k [u8]) -> Probe<'k> {
        // One load gives both: count below, prefix length above.
        let fields = self.bytes.field_u32::<{ COUNT }>() as usize;
        Probe {
            count: fields & 0xffff,
            slots: self.slots(),
            suffix: key.get(fields >> 16..).unwrap_or(&[]),
        }
    }

    /// Finds the place of a key.
    ///
    /// The key must have reached this leaf by traversal, so that it has the leaf's prefix;
    /// otherwise the result is some place or none.
    #[inline(always)]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        self.find_record(key)
    }

    // A function of its own, and not part of its callers: see the comparison layout's.
    #[inline(never)]
    fn find_record(self, key: &[u8]) -> Option<usize> {
        if self.bytes.len() < MIN_PAGE_BYTES {
            return None;
        }
        let probe = self.probe(key);
        let fingerprint = fingerprint(probe.suffix);
        let mut base = 0;
        let mut candidates = 0;
        while base < probe.count {
            let mut mask = self.matches(fingerprint, base, probe.count);
            while mask != 0 {
                let place = base + mask.trailing_zeros() as usize;
                if self.has_suffix(&probe, place) {
                    return Some(place);
                }
                candidates += 1;
                if candidates == CROWD {
                    return self.find_in_crowd(&probe, fingerprint, place + 1);
                }
                mask &= mask - 1;
            }
            base += BLOCK;
        }
        None
    }

    /// The first place that may hold a key, whose fingerprint and length agree, found without a
    /// look at any record: what to ask the memory for before [`Self::find`], by those who have
    /// other things to do meanwhile. Gives up where [`Self::find`] goes on by binary search.
    #[inline]
    pub fn candidate(&self, key: &[u8]) -> Option<usize> {
        let probe = self.probe(key);
        let fingerprint = fingerprint(probe.suffix);
        let mut base = 0;
        let mut others = 0;
        while base < probe.count && others < CROWD {
            let mut mask = self.matches(fingerprint, base, probe.count);
            while mask != 0 {
                let place = base + mask.trailing_zeros() as usize;
                if probe.slots.read(self.bytes, place).suffix_len == probe.suffix.len() {
                    return Some(place);
                }
                others += 1;
                mask &= mask - 1;
            }
            base += BLOCK;
        }
        None
    }

    /// The places of one block, from `base` on, that have a fingerprint.
    #[inline(always)]
    fn matches(&self, fingerprint: u8, base: usize, count: usize) -> u64 {
        let mask = lanes::equal_bytes(self.bytes.block64(FINGERPRINTS + base), fingerprint);
        match count.saturating_sub(base) {
            left @ 0..BLOCK => mask & ((1 << left) - 1),
            _ => mask,
        }
    }

    #[inline(always)]
    fn has_suffix(&self, probe: &Probe<'_>, place: usize) -> bool {
        let slot = probe.slots.read(self.bytes, place);
        slot.suffix_len == probe.suffix.len()
            && self.bytes.equals(slot.offset, slot.suffix_len, probe.suffix)
    }

    /// Goes on with a search that has met many records with the key's fingerprint below place
    /// `from`: a binary search over the sorted part, and then the tail, where there are few of
    /// them.
    #[cold]
    #[inline(never)]
    fn find_in_crowd(&self, probe: &Probe<'_>, fingerprint: u8, from: usize) -> Option<usize> {
        let sorted = self.sorted_count().min(probe.count);
        if from < sorted {
            let position = self.lower_bound(probe, sorted);
            if position.found {
                return Some(position.index);
            }
        }
        let from = from.max(sorted);
        let mut base = from / BLOCK * BLOCK;
        while base < probe.count {
            let mut mask = self.matches(fingerprint, base, probe.count);
            while mask != 0 {
                let place = base + mask.trailing_zeros() as usize;
                if place >= from && self.has_suffix(probe, place) {
                    return Some(place);
                }
                mask &= mask - 1;
            }
            base += BLOCK;
        }
        None
    }

    /// Whether [`CROWD`] records of the tail, or more, have a fingerprint.
    #[inline(always)]
    pub(super) fn is_tail_crowded(&self, fingerprint: u8) -> bool {
        let (count, sorted) = (self.count(), self.sorted_count());
        count.saturating_sub(sorted) >= CROWD && self.crowd_in_tail(fingerprint) >= CROWD
    }

    /// How many records of the tail have a fingerprint.
    #[inline(always)]
    fn crowd_in_tail(&self, fingerprint: u8) -> usize {
        let (count, sorted) = (self.count(), self.sorted_count());
        let mut base = sorted / BLOCK * BLOCK;
        let mut crowd = 0;
        while base < count {
            let below = sorted.saturating_sub(base).min(BLOCK - 1);
            let mut mask = self.matches(fingerprint, base, count) >> below;
            // Mostly there is none, and without an instruction for it a count of ones is long.
            while mask != 0 {
                crowd += 1;
                mask &= mask - 1;
            }
            base += BLOCK;
        }
        crowd
    }

    /// Finds a key, or where it would stand, in a sorted leaf, by binary search: for cursors.
    ///
    /// In a leaf with a tail the result is a position in the sorted part.
    #[inline]
    pub fn search(&self, key: &[u8]) -> Position {
        let probe = self.probe(key);
        self.lower_bound(&probe, self.sorted_count().min(probe.count))
    }

    /// Index of the first of the `sorted` records whose key is not below the probe.
    fn lower_bound(&self, probe: &Probe<'_>, sorted: usize) -> Position {
        let head = head(probe.suffix);
        let (mut low, mut high, mut found) = (0, sorted, false);
        while low < high {
            let middle = low.midpoint(high);
            let slot = probe.slots.read(self.bytes, middle);
            match self.compare_suffix(slot, head, probe.suffix) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => (high, found) = (middle, true),
                Ordering::Greater => high = middle,
            }
        }
        Position { index: low, found }
    }

    /// Compares the suffix of a slot with another one that has this [`head`].
    #[inline(always)]
    pub(super) fn compare_suffix(&self, slot: Slot, head: u64, suffix: &[u8]) -> Ordering {
        let mut ours = self.bytes.u64_at(slot.offset).swap_bytes();
        if slot.suffix_len < 8 {
            // What follows is the value.
            ours &= !(u64::MAX >> (8 * slot.suffix_len));
        }
        // Numbers that are the same settle nothing: zeros may be bytes of a key, or stand for none.
        ours.cmp(&head).then_with(|| self.bytes.compare(slot.offset, slot.suffix_len, suffix))
    }

    /// Compares the key at `place` with a key that has the leaf's prefix.
    #[cfg(hedgerow_internals)]
    #[inline]
    pub fn compare_key(&self, place: usize, key: &[u8]) -> Ordering {
        let suffix = key.get(usize::from(self.bytes.field_u16::<{ PREFIX_LEN }>())..);
        let slot = self.slot(place);
        self.bytes.compare(slot.offset, slot.suffix_len, suffix.unwrap_or(&[]))
    }

    /// Bytes of the value at `place`.
    #[inline(always)]
    pub fn value_len(&self, place: usize) -> usize {
        self.slot(place).value_len
    }

    /// Appends the value at `place` to `out`.
    #[inline]
    pub fn append_value(&self, place: usize, out: &mut Vec<u8>) {
        let slot = self.slot(place);
        self.bytes.append_to(slot.value_at(), slot.value_len, out);
    }

    /// Copies the value at `place`.
    #[inline(always)]
    pub fn copy_value(&self, place: usize, out: &mut Copied) {
        let slot = self.slot(place);
        self.bytes.copy_out(slot.value_at(), slot.value_len, out);
    }

    /// Whether the value at `place` is `value`.
    #[inline]
    pub fn value_equals(&self, place: usize, value: &[u8]) -> bool {
        let slot = self.slot(place);
        slot.value_len == value.len() && self.bytes.equals(slot.value_at(), slot.value_len, value)
    }

    /// Bytes of the key at `place`, prefix included.
    #[inline]
    pub fn key_len(&self, place: usize) -> usize {
        self.as_node().prefix_len() + self.slot(place).suffix_len
    }

    /// Appends the key at `place` to `out`, without the shared prefix.
    #[inline]
    pub fn append_suffix(&self, place: usize, out: &mut Vec<u8>) {
        let slot = self.slot(place);
        self.bytes.append_to(slot.offset, slot.suffix_len, out);
    }

    /// Appends the key at `place` to `out`, prefix included.
    #[inline]
    pub fn append_key(&self, place: usize, out: &mut Vec<u8>) {
        self.as_node().append_prefix(out);
        self.append_suffix(place, out);
    }

    /// Bytes of live records on the heap: values, and what the prefix leaves of the keys.
    pub fn payload_bytes(&self) -> usize {
        self.bytes.field_u32::<{ HEAP_LIVE }>() as usize
    }

    /// Bytes of the page that are in use, once compacted: fixed fields, fingerprints, slots,
    /// records, fences. `used_bytes + free_bytes` is the page.
    pub fn used_bytes(&self) -> usize {
        let node = self.as_node();
        let fences = node.lower_fence_len() + node.upper_fence_len();
        space_needed(self.count(), self.slots().wide, self.payload_bytes(), fences)
    }

    /// Bytes of the page that compaction would make available.
    pub fn free_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(self.used_bytes())
    }

    /// Whether the leaf takes a record with this key and a value of so many bytes, which may make its
    /// slots wide. Rather no than yes: a yes holds until the leaf is changed.
    pub fn has_room(&self, key: &[u8], value_len: usize) -> bool {
        if key.len() + value_len > max_record_bytes(self.bytes.len()) {
            return false;
        }
        let node = self.as_node();
        let record = Measure::record(key.len().saturating_sub(node.prefix_len()), value_len);
        let fences = node.lower_fence_len() + node.upper_fence_len();
        let (wide, live) = (record.wide || self.slots().wide, self.payload_bytes() + record.live);
        space_needed(self.count() + 1, wide, live, fences) <= self.bytes.len()
    }

    /// Asks the memory for the lines that a search reads first: fields, fingerprints, and the slots
    /// of a leaf of about 64 records.
    #[cfg(hedgerow_internals)]
    #[inline(always)]
    pub fn prefetch(&self) {
        for line in 0..6 {
            self.bytes.prefetch(64 * line);
        }
    }

    /// Asks the memory for the record at `place`.
    #[inline(always)]
    pub fn prefetch_record(&self, place: usize) {
        let slot = self.slot(place);
        self.bytes.prefetch(slot.offset);
        self.bytes.prefetch(slot.offset + slot.record_bytes());
    }
}

impl<'a> FingerprintLeaf<PlainBytes<'a>> {
    /// The value at `place`, where it lies. Empty if the slot leads out of the page.
    #[inline]
    pub fn value(&self, place: usize) -> &'a [u8] {
        self.bytes.as_slice().get(self.slot(place).value_range()).unwrap_or(&[])
    }

    /// Writes the key at `place`, without the shared prefix, to `key` from `at` on. Returns where
    /// it ends in `key`, and the value. What `key` holds behind the end is arbitrary. For cursors:
    /// in a sorted leaf places are in the order of the keys.
    #[inline(always)]
    pub fn record(&self, place: usize, key: &mut [u8], at: usize) -> (usize, &'a [u8]) {
        let page = self.bytes.as_slice();
        let slot = self.slot(place);
        let len = slot.suffix_len;
        let whole = (page.get(slot.offset..slot.offset + PIECE), key.get_mut(at..at + PIECE));
        if let (true, (Some(from), Some(to))) = (len <= PIECE, whole) {
            to.copy_from_slice(from);
        } else {
            let end = (at + len).min(key.len());
            if let Some(to) = key.get_mut(at..end) {
                self.bytes.copy(slot.offset, to);
            }
        }
        let value = page.get(slot.value_range()).unwrap_or(&[]);
        ((at + len).min(key.len()), value)
    }
}
