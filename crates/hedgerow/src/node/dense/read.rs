//! The read side of a dense leaf, over any [`PageBytes`].
//!
//! A `DenseNode` is a view, as [`Node`] is: it checks nothing, all of it is total, and what it
//! gives over racing bytes is untrusted until the page is validated. Places are slots. `Copy`; as
//! thread-safe as the bytes under it.

use super::fields::{BASE, CAPACITY, KEY_LEN, PRESENCE, array_start, stored_stem_len, tail_room};
use super::layout::DenseLayout;
use super::presence;
use super::semi::record_bytes;
use super::shape::{NUMERIC_BYTES, first_in, numeric, stem_len};
use crate::node::fields::{COUNT, LOWER_LEN, PREFIX_LEN, UPPER_LEN, max_record_bytes};
use crate::node::read::Node;
use hedgerow_sync::optimistic::{Copied, PageBytes, PlainBytes};
use std::cmp::Ordering;
use std::marker::PhantomData;

/// A dense leaf to read from.
#[derive(Clone, Copy, Debug)]
pub struct DenseNode<B, V> {
    bytes: B,
    layout: PhantomData<V>,
}

impl<B: PageBytes, V: DenseLayout> DenseNode<B, V> {
    /// Views bytes as a leaf. Nothing is checked.
    #[inline(always)]
    pub fn new(bytes: B) -> Self {
        DenseNode { bytes, layout: PhantomData }
    }

    /// The bytes under the view.
    #[inline(always)]
    pub fn bytes(&self) -> B {
        self.bytes
    }

    /// What all layouts have at the same places: the header, the fences, and the prefix.
    #[inline(always)]
    pub fn common(&self) -> Node<B> {
        Node::new(self.bytes)
    }

    /// Number of records.
    #[inline(always)]
    pub fn count(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ COUNT }>())
    }

    /// Number of slots: places are below it.
    #[inline(always)]
    pub fn capacity(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ CAPACITY }>())
    }

    /// The number of slot 0.
    #[inline(always)]
    pub fn base(&self) -> u32 {
        self.bytes.field_u32::<{ BASE }>()
    }

    /// Bytes of each key.
    #[inline(always)]
    pub fn key_len(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ KEY_LEN }>())
    }

    #[inline(always)]
    fn prefix_len(&self) -> usize {
        usize::from(self.bytes.field_u16::<{ PREFIX_LEN }>())
    }

    /// First byte of the stem.
    #[inline(always)]
    fn stem_at(&self, key_len: usize, prefix_len: usize) -> usize {
        let lower = usize::from(self.bytes.field_u16::<{ LOWER_LEN }>());
        let before = match stored_stem_len(key_len, prefix_len) {
            0 => 0,
            stored => usize::from(self.bytes.field_u16::<{ UPPER_LEN }>()) + stored,
        };
        self.bytes.len().saturating_sub(lower + before)
    }

    /// How the stem compares with the beginning of a key that has the node's prefix.
    #[inline(always)]
    fn compare_stem(&self, key_len: usize, key: &[u8]) -> Ordering {
        let (stem, prefix) = (stem_len(key_len), self.prefix_len());
        // What the fences share, the key has, too.
        if prefix >= stem {
            return Ordering::Equal;
        }
        let rest = key.get(prefix..key.len().min(stem)).unwrap_or(&[]);
        self.bytes.compare(self.stem_at(key_len, prefix) + prefix, stem - prefix, rest)
    }

    /// The slot for a key, whether it has a record or not; `None` if this leaf has no slot for it.
    #[inline(always)]
    pub(super) fn slot_of(&self, key: &[u8]) -> Option<usize> {
        let key_len = self.key_len();
        if key.len() != key_len || self.compare_stem(key_len, key).is_ne() {
            return None;
        }
        // No slot's number is beyond the largest, so a key below the base is far behind the last
        // slot.
        let slot = numeric(key).wrapping_sub(self.base()) as usize;
        (slot < self.capacity()).then_some(slot)
    }

    /// Finds a key: the place of its record.
    ///
    /// As for [`Node::search`], the key has reached this leaf by traversal; otherwise the result is
    /// some place below the capacity, or none.
    #[inline(always)]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        self.slot_of(key).filter(|slot| presence::is_present(self.bytes, *slot))
    }

    /// The first slot whose key is not below `key`, whether it has a record or not; the capacity if
    /// there is none. The key may be of any length, and has reached this leaf by traversal.
    #[inline]
    pub fn lower_bound(&self, key: &[u8]) -> usize {
        let (key_len, capacity) = (self.key_len(), self.capacity());
        let stem = stem_len(key_len);
        match self.compare_stem(key_len, key) {
            Ordering::Less => capacity,
            Ordering::Greater => 0,
            Ordering::Equal if key.len() < stem => 0,
            Ordering::Equal => {
                let width = key_len.min(NUMERIC_BYTES);
                let number = first_in(width, key.get(stem..).unwrap_or(&[]), false);
                let slot = number.saturating_sub(u64::from(self.base()));
                slot.min(capacity as u64) as usize
            }
        }
    }

    /// The place of the first record at or behind a slot; the capacity if there is none.
    #[inline(always)]
    pub fn next_place(&self, from: usize) -> usize {
        presence::next(self.bytes, from, self.capacity())
    }

    /// The place of the last record before a slot.
    #[inline(always)]
    pub fn previous_place(&self, before: usize) -> Option<usize> {
        presence::previous(self.bytes, before, self.capacity())
    }

    /// Number of records below a slot.
    pub fn rank(&self, slot: usize) -> usize {
        presence::count_in(self.bytes, 0..slot.min(self.capacity()))
    }

    /// The place of the record that has so many below it.
    pub fn place_of_rank(&self, rank: usize) -> Option<usize> {
        presence::select(self.bytes, rank, self.capacity())
    }

    /// Bytes of the value at a place.
    #[inline(always)]
    pub fn value_len(&self, place: usize) -> usize {
        V::value_place(self.bytes, place).1
    }

    /// Copies the value at a place.
    #[inline(always)]
    pub fn copy_value(&self, place: usize, out: &mut Copied) {
        let (at, len) = V::value_place(self.bytes, place);
        self.bytes.copy_out(at, len, out);
    }

    /// Appends the value at a place to `out`.
    #[inline]
    pub fn append_value(&self, place: usize, out: &mut Vec<u8>) {
        let (at, len) = V::value_place(self.bytes, place);
        self.bytes.append_to(at, len, out);
    }

    /// Whether the value at a place is `value`.
    #[inline]
    pub fn value_equals(&self, place: usize, value: &[u8]) -> bool {
        let (at, len) = V::value_place(self.bytes, place);
        len == value.len() && self.bytes.equals(at, len, value)
    }

    /// The last bytes of the key at a place, those that its number makes, and how many of the four
    /// they are.
    #[inline(always)]
    fn numeric_bytes(&self, place: usize) -> ([u8; NUMERIC_BYTES], usize) {
        let number = self.base().wrapping_add(place as u32);
        (number.to_be_bytes(), self.key_len().min(NUMERIC_BYTES))
    }

    /// Appends the stem, which all keys begin with, to `out`.
    pub fn append_prefix(&self, out: &mut Vec<u8>) {
        let key_len = self.key_len();
        self.bytes.append_to(self.stem_at(key_len, self.prefix_len()), stem_len(key_len), out);
    }

    /// Writes the stem to the start of `to`; what does not fit is left out. Returns how many bytes
    /// that were. It stands for the prefix of other leaves: [`Self::record`] writes what follows
    /// it.
    #[inline]
    pub fn copy_prefix(&self, to: &mut [u8]) -> usize {
        let key_len = self.key_len();
        let len = stem_len(key_len).min(to.len());
        self.bytes.copy(self.stem_at(key_len, self.prefix_len()), &mut to[..len]);
        len
    }

    /// Appends the key at a place to `out`, without its stem.
    #[inline]
    pub fn append_suffix(&self, place: usize, out: &mut Vec<u8>) {
        let (number, width) = self.numeric_bytes(place);
        out.extend_from_slice(&number[NUMERIC_BYTES - width..]);
    }

    /// Appends the key at a place to `out`.
    #[inline]
    pub fn append_key(&self, place: usize, out: &mut Vec<u8>) {
        self.append_prefix(out);
        self.append_suffix(place, out);
    }

    /// Bytes of values, with what else is kept for each of them.
    pub fn payload_bytes(&self) -> usize {
        V::payload_bytes(self.bytes, self.count())
    }

    /// Bytes of the page that are in use, slots without a record not among them where they hold
    /// values. `used_bytes + free_bytes` is the page.
    pub fn used_bytes(&self) -> usize {
        let (key_len, prefix) = (self.key_len(), self.prefix_len());
        let tail = stored_stem_len(key_len, prefix)
            + self.common().lower_fence_len()
            + self.common().upper_fence_len();
        let slots = array_start(self.capacity()) - PRESENCE + V::fixed_bytes(self.capacity());
        (PRESENCE + slots + self.payload_bytes() + tail).min(self.bytes.len())
    }

    /// Bytes of the page that are not in use.
    pub fn free_bytes(&self) -> usize {
        self.bytes.len().saturating_sub(self.used_bytes())
    }

    /// Whether the leaf takes a record with this key and a value of so many bytes as it is. Rather no than
    /// yes: a yes holds until the leaf is changed.
    pub fn has_room(&self, key: &[u8], value_len: usize) -> bool {
        if self.slot_of(key).is_none() || key.len() + value_len > max_record_bytes(self.bytes.len())
        {
            return false;
        }
        if V::ONE_SIZE {
            return self.value_len(0) == value_len;
        }
        let (lower, upper) = (self.common().lower_fence_len(), self.common().upper_fence_len());
        let tail = tail_room(self.key_len(), self.prefix_len(), lower, upper);
        let slots = array_start(self.capacity()) + V::fixed_bytes(self.capacity());
        slots + self.payload_bytes() + record_bytes(value_len) + tail <= self.bytes.len()
    }

    /// Asks the memory for the lines that a look-up reads first.
    #[cfg(hedgerow_internals)]
    #[inline(always)]
    pub fn prefetch(&self) {
        self.bytes.prefetch(0);
        self.bytes.prefetch(PRESENCE);
    }

    /// Asks the memory for the value at a place, or for its slot.
    #[inline(always)]
    pub fn prefetch_record(&self, place: usize) {
        self.bytes.prefetch(V::value_place(self.bytes, place).0);
    }
}

impl<'a, V: DenseLayout> DenseNode<PlainBytes<'a>, V> {
    /// The value at a place, in the page. Empty if it leads out of the page.
    #[inline]
    pub fn value(&self, place: usize) -> &'a [u8] {
        let (at, len) = V::value_place(self.bytes, place);
        self.bytes.as_slice().get(at..at.saturating_add(len)).unwrap_or(&[])
    }

    /// Writes the key at a place, without its stem, to `key` from `at` on. Returns where it ends in
    /// `key`, and the value.
    #[inline(always)]
    pub fn record(&self, place: usize, key: &mut [u8], at: usize) -> (usize, &'a [u8]) {
        let number = self.base().wrapping_add(place as u32);
        let end = write_number(number, self.key_len().min(NUMERIC_BYTES), key, at);
        (end, self.value(place))
    }

    /// The places of all records, in the order of their keys, from either end.
    pub fn places(&self) -> presence::Slots<'a> {
        presence::Slots::new(self.bytes.as_slice(), 0..self.capacity())
    }

    /// The places of the records from `first` on, before `end`.
    pub fn places_in(&self, first: usize, end: usize) -> presence::Slots<'a> {
        presence::Slots::new(self.bytes.as_slice(), first..end)
    }
}

/// Writes the last `width` bytes of a number to `key` from `at` on, as far as there is room. Returns where they end.
#[inline(always)]
pub(super) fn write_number(number: u32, width: usize, key: &mut [u8], at: usize) -> usize {
    let number = number.to_be_bytes();
    let end = (at + width).min(key.len());
    if let Some(to) = key.get_mut(at..end) {
        // Four bytes nearly always: then this is one store.
        match to.first_chunk_mut::<NUMERIC_BYTES>() {
            Some(to) => *to = number,
            None => {
                let from = NUMERIC_BYTES - width;
                to.copy_from_slice(&number[from..from + to.len()]);
            }
        }
    }
    end
}
