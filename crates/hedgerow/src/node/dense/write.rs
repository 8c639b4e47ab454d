//! Changes of a dense leaf: format, insert, update, remove.
//!
//! The caller holds the page exclusively, or a private copy of it, and has seen
//! [`super::load_check`] pass since the page came from outside; then nothing here panics.
//! Invariants: a call that is [`Refused`] has changed nothing that a reader could tell; after every
//! call the page passes [`super::check()`] if it did before.

use super::fields::{
    BASE, CAPACITY, HEAP_LIVE, HEAP_START, KEY_LEN, PRESENCE, RUN, VALUE_LEN, array_start, base,
    capacity, fences, key_len, shape, stored_stem_len, tail_room,
};
use super::layout::{Contents, DenseLayout, Frame, Growth, Refused};
use super::presence;
use super::read::DenseNode;
use super::shape::{KeyShape, numeric};
use crate::node::fields::{
    COUNT, LOWER_LEN, PREFIX_LEN, UPPER_LEN, common_prefix, count, max_record_bytes, set_u16,
    set_u32, u16_at,
};
use crate::node::write::{note_insertion, write_fences, write_frame};
use crate::page::header::NEWEST_LSN;
use hedgerow_sync::optimistic::PlainBytes;
use std::marker::PhantomData;

/// A dense leaf to change.
#[derive(Debug)]
pub struct DenseMut<'a, V> {
    pub(super) page: &'a mut [u8],
    layout: PhantomData<V>,
}

impl<'a, V: DenseLayout> DenseMut<'a, V> {
    /// Wraps a page that has passed [`super::load_check`] or was made by this build.
    #[inline]
    pub fn new(page: &'a mut [u8]) -> Self {
        DenseMut { page, layout: PhantomData }
    }

    /// Makes an empty leaf out of a page, for records between the fences whose keys have the length
    /// and the stem of `like`, and whose values have `value_len` bytes (which a semi-dense leaf
    /// takes for a guess).
    ///
    /// As [`NodeMut::format`](crate::node::NodeMut::format) it leaves ids, epoch and checksum. The
    /// fences have at most [`max_key_bytes`](crate::node::max_key_bytes) each.
    ///
    /// # Errors
    /// If the leaf would have no slot for `like`; then the page is as it was.
    pub fn format(
        page: &'a mut [u8],
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        like: &[u8],
        value_len: usize,
    ) -> Result<Self, Refused> {
        let shape = KeyShape::of(like).ok_or(Refused::KeyLength)?;
        if like.len() + value_len > max_record_bytes(page.len()) {
            return Err(Refused::NoSpace);
        }
        let number = numeric(like);
        let contents = Contents {
            count: 0,
            numbers: (number, number),
            value_bytes: 0,
            value_len: Some(value_len),
            heap_bytes: 0,
        };
        let frame = V::frame(
            room(page.len(), shape.key_len(), lower, upper),
            &contents,
            shape.between(lower, upper),
            Growth::Unknown,
        );
        let frame = frame.ok_or(Refused::Beyond)?;
        Ok(Self::lay_out(page, lower, upper, shape, V::value_field(&contents), frame))
    }

    /// [`Self::format`] with a frame that has been found to fit.
    pub(super) fn lay_out(
        page: &'a mut [u8],
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        shape: KeyShape<'_>,
        value_field: usize,
        frame: Frame,
    ) -> Self {
        write_frame(page, V::KIND, 0, PRESENCE, [lower, upper]);
        // There the other layouts have a field of four bytes.
        page[HEAP_START..HEAP_LIVE + 2].fill(0);
        page[PRESENCE..array_start(frame.capacity)].fill(0);
        set_u16(page, KEY_LEN, shape.key_len());
        set_u16(page, VALUE_LEN, value_field);
        set_u16(page, CAPACITY, frame.capacity);
        set_u32(page, BASE, frame.base);
        store_stem(page, shape.stem());
        V::clear(page);
        DenseMut::new(page)
    }

    /// The leaf, to read.
    #[inline]
    pub fn as_node(&self) -> DenseNode<PlainBytes<'_>, V> {
        DenseNode::new(PlainBytes::new(self.page))
    }

    /// The bytes of the page.
    #[cfg(hedgerow_internals)]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.page
    }

    /// The value at a place.
    ///
    /// # Panics
    /// If there is no record.
    #[cfg(hedgerow_internals)]
    pub fn value(&self, place: usize) -> &[u8] {
        assert!(self.has(place), "no record {place} to read");
        self.as_node().value(place)
    }

    #[inline]
    fn has(&self, place: usize) -> bool {
        place < capacity(self.page) && presence::is_present(PlainBytes::new(self.page), place)
    }

    /// Inserts a record, which [`DenseNode::find`] has not found. (If it is there after all, it
    /// gets the value.)
    ///
    /// # Errors
    /// The reason why this leaf does not take it.
    #[inline]
    pub fn insert(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refused> {
        if key.len() + value.len() > max_record_bytes(self.page.len()) {
            return Err(Refused::NoSpace);
        }
        let slot = self.slot_for(key)?;
        if self.has(slot) {
            return V::replace(self.page, slot, value);
        }
        V::reserve(self.page, slot, value.len())?;
        V::store(self.page, slot, value);
        presence::set(self.page, slot, true);
        set_u16(self.page, COUNT, count(self.page) + 1);
        note_insertion(self.page, slot, capacity(self.page));
        Ok(())
    }

    /// The slot of a key, which may be behind the last one there is.
    #[inline(always)]
    fn slot_for(&self, key: &[u8]) -> Result<usize, Refused> {
        if let Some(slot) = self.as_node().slot_of(key) {
            return Ok(slot);
        }
        let shape = shape(self.page);
        if key.len() != shape.key_len() {
            return Err(Refused::KeyLength);
        }
        if !shape.has(key) {
            return Err(Refused::Stem);
        }
        let slot = numeric(key).checked_sub(base(self.page)).ok_or(Refused::Below)?;
        Ok(slot as usize)
    }

    /// Gives the record at a place another value.
    ///
    /// # Errors
    /// The reason why this leaf does not take it.
    ///
    /// # Panics
    /// If there is no record.
    pub fn update(&mut self, place: usize, value: &[u8]) -> Result<(), Refused> {
        assert!(self.has(place), "no record {place} to update");
        if key_len(self.page) + value.len() > max_record_bytes(self.page.len()) {
            return Err(Refused::NoSpace);
        }
        V::replace(self.page, place, value)
    }

    /// Removes the record at a place.
    ///
    /// # Panics
    /// If there is no record.
    pub fn remove(&mut self, place: usize) {
        assert!(self.has(place), "no record {place} to remove");
        V::discard(self.page, place);
        presence::set(self.page, place, false);
        set_u16(self.page, COUNT, count(self.page) - 1);
        set_u16(self.page, RUN, 0);
    }

    /// Appends the records of `slots` of another leaf of this layout, whose keys have the same
    /// shape, and for all of which this one has slots and space.
    pub(super) fn append_from(&mut self, source: &[u8], slots: std::ops::Range<usize>) {
        let from = DenseNode::<_, V>::new(PlainBytes::new(source));
        let base = base(self.page);
        for place in from.places_in(slots.start, slots.end) {
            let number = from.base().wrapping_add(place as u32);
            self.append(number.wrapping_sub(base) as usize, from.value(place));
        }
    }

    /// Stores a record in a slot that there is, and that has none. There is space.
    pub(super) fn append(&mut self, slot: usize, value: &[u8]) {
        V::store(self.page, slot, value);
        presence::set(self.page, slot, true);
        set_u16(self.page, COUNT, count(self.page) + 1);
    }

    /// Gives the leaf other fences, which are nearer to its slots than those it has, and do not cut
    /// any off; no value moves.
    ///
    /// # Panics
    /// If a fence is longer than the keys and than the one that it replaces.
    pub(super) fn set_fences(&mut self, lower: Option<&[u8]>, upper: Option<&[u8]>) {
        let stem = shape(self.page).stem().to_vec();
        let room = |page: &[u8]| {
            let (lower, upper) = (u16_at(page, LOWER_LEN), u16_at(page, UPPER_LEN));
            tail_room(key_len(page), u16_at(page, PREFIX_LEN), lower, upper)
        };
        let before = room(self.page);
        write_fences(self.page, [lower, upper]);
        assert!(room(self.page) <= before, "the new fences take more room than the old ones");
        store_stem(self.page, &stem);
    }

    /// Makes the leaf that `from` is out of `page`, ids, epoch and checksum apart, with another
    /// lower fence.
    pub(super) fn copy_with_lower(page: &'a mut [u8], from: &[u8], lower: &[u8]) -> Self {
        crate::node::merge::copy_node(page, from);
        let upper = fences(page).1;
        let mut leaf = DenseMut::new(page);
        leaf.set_fences(Some(lower), upper.as_deref());
        leaf
    }
}

/// The run of neighbouring insertions.
pub(super) fn run(page: &[u8]) -> i16 {
    u16_at(page, RUN) as u16 as i16
}

/// Bytes that a leaf has for presence, slots and values.
pub(super) fn room(
    page_bytes: usize,
    key_len: usize,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
) -> usize {
    let shared = match (lower, upper) {
        (Some(lower), Some(upper)) => common_prefix(lower, upper),
        _ => 0,
    };
    let len = |fence: Option<&[u8]>| fence.map_or(0, <[u8]>::len);
    (page_bytes - PRESENCE).saturating_sub(tail_room(key_len, shared, len(lower), len(upper)))
}

/// Puts the stem before the fences, unless the prefix has it.
fn store_stem(page: &mut [u8], stem: &[u8]) {
    let stored = stored_stem_len(key_len(page), u16_at(page, PREFIX_LEN));
    let end = page.len() - u16_at(page, LOWER_LEN) - u16_at(page, UPPER_LEN);
    page[end - stored..end].copy_from_slice(&stem[..stored]);
}

/// Copies the newest LSN from one page to another.
pub(super) fn copy_lsn(to: &mut [u8], from: &[u8]) {
    to[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&from[NEWEST_LSN..NEWEST_LSN + 8]);
}
