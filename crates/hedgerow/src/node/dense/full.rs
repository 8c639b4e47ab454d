//! The fully dense layout: a bit and a value for each slot.
//!
//! All values have one size, so that a slot's number says where its value lies; no slot, no heap. A
//! leaf has as many slots as fit into the page, or as there are numbers up to its upper fence: 495
//! of 4 KiB with keys of four bytes and values of eight. What an absent slot holds means nothing.

use super::fields::{
    CAPACITY, HEAP_LIVE, HEAP_START, VALUE_LEN, array_start, capacity, key_len, slots_in,
    stored_stem_len, tail_room, tail_start,
};
use super::layout::{Contents, DenseLayout, Frame, Growth, Refused, base_for};
use super::read::{DenseNode, write_number};
use super::shape::NUMERIC_BYTES;
use crate::node::defect::Defect;
use crate::node::fields::{LOWER_LEN, PREFIX_LEN, UPPER_LEN, max_record_bytes, u16_at};
use crate::page::header::PageKind;
use hedgerow_sync::optimistic::{PageBytes, PlainBytes};
use std::ops::Range;

/// Behind the array.
pub(in super::super) fn gap(page: &[u8]) -> Range<usize> {
    let (lower, upper) = (u16_at(page, LOWER_LEN), u16_at(page, UPPER_LEN));
    let tail = tail_room(key_len(page), u16_at(page, PREFIX_LEN), lower, upper);
    let end = array_start(capacity(page)) + u16_at(page, VALUE_LEN) * capacity(page);
    end..page.len().saturating_sub(tail)
}

/// What the records of a leaf are made of, read once for all of them: a scan writes a key between two of them, of
/// which the compiler does not know that it changes nothing here.
#[derive(Clone, Copy, Debug)]
pub struct Array<'a> {
    values: &'a [u8],
    value_len: usize,
    base: u32,
    /// Bytes of a key that its number makes.
    width: usize,
}

impl<'a> DenseNode<PlainBytes<'a>, Full> {
    /// The leaf's records, by place.
    #[inline]
    pub fn array(&self) -> Array<'a> {
        let values = self.bytes().as_slice().get(array_start(self.capacity())..).unwrap_or(&[]);
        let width = self.key_len().min(NUMERIC_BYTES);
        Array { values, value_len: self.value_len(0), base: self.base(), width }
    }
}

impl<B: PageBytes> DenseNode<B, Full> {
    /// Copies all of the leaf but values to the same places of `to`, which has the size of a page, and of the values those
    /// of so many slots (at least one) from the place of `key` on: forward from the first whose key is not below it, else that one
    /// and those before it. Returns these slots; none, and nothing is copied, if there is no such slot or that is
    /// more than half of the page. What else `to` holds stays.
    ///
    /// Over racing bytes the copy is worth something once the page has been validated.
    #[inline]
    pub fn copy_near(
        &self,
        key: &[u8],
        slots: usize,
        forward: bool,
        to: &mut [u8],
    ) -> Range<usize> {
        let (bytes, common) = (self.bytes(), self.common());
        let (capacity, value_len) = (self.capacity(), self.value_len(0));
        let at = self.lower_bound(key).min(capacity);
        let near = if forward {
            at..capacity.min(at + slots)
        } else {
            let end = capacity.min(at + 1);
            end.saturating_sub(slots)..end
        };
        let array = array_start(capacity);
        let stem = stored_stem_len(self.key_len(), common.prefix_len());
        let tail = stem + common.lower_fence_len() + common.upper_fence_len();
        let values = array + near.start * value_len..array + near.end * value_len;
        if near.is_empty() || array + values.len() + tail > to.len() / 2 {
            return 0..0;
        }
        for piece in [0..array, values, to.len() - tail..to.len()] {
            let end = piece.end.min(to.len());
            let start = piece.start.min(end);
            bytes.copy(start, &mut to[start..end]);
        }
        near
    }
}

impl<'a> Array<'a> {
    /// As [`DenseNode::record`].
    #[inline(always)]
    pub fn record(&self, place: usize, key: &mut [u8], at: usize) -> (usize, &'a [u8]) {
        let start = place * self.value_len;
        let value = self.values.get(start..start + self.value_len).unwrap_or(&[]);
        (write_number(self.base.wrapping_add(place as u32), self.width, key, at), value)
    }
}

/// The fully dense layout.
#[derive(Clone, Copy, Default, Debug)]
pub struct Full;

fn value_len(page: &[u8]) -> usize {
    u16_at(page, VALUE_LEN)
}

fn place(page: &[u8], slot: usize) -> usize {
    array_start(capacity(page)) + slot * value_len(page)
}

impl DenseLayout for Full {
    const KIND: PageKind = PageKind::FullyDenseLeaf;
    #[cfg(hedgerow_internals)]
    const NAME: &'static str = "fully dense";
    const ONE_SIZE: bool = true;

    fn bits(records: usize, slots: usize, value_bytes: usize) -> usize {
        slots + 8 * slots * (value_bytes / records.max(1))
    }

    fn frame(
        room: usize,
        contents: &Contents,
        allowed: Range<u64>,
        growth: Growth,
    ) -> Option<Frame> {
        let most = slots_in(room, contents.value_len?);
        let base = base_for(contents.numbers, most, &allowed, growth)?;
        let left = allowed.end - u64::from(base);
        let capacity = most.min(usize::try_from(left).unwrap_or(most));
        Some(Frame { base, capacity })
    }

    fn unit(room: usize, contents: &Contents) -> usize {
        contents.value_len.map_or(0, |value_len| slots_in(room, value_len))
    }

    fn most_slots(room: usize, contents: &Contents) -> usize {
        Self::unit(room, contents)
    }

    #[inline(always)]
    fn value_place<B: PageBytes>(bytes: B, slot: usize) -> (usize, usize) {
        let capacity = usize::from(bytes.field_u16::<{ CAPACITY }>());
        let len = usize::from(bytes.field_u16::<{ VALUE_LEN }>());
        (array_start(capacity).saturating_add(slot.saturating_mul(len)), len)
    }

    fn value_field(contents: &Contents) -> usize {
        contents.value_len.unwrap_or(0)
    }

    fn clear(_: &mut [u8]) {}

    #[inline]
    fn reserve(page: &mut [u8], slot: usize, len: usize) -> Result<(), Refused> {
        if slot >= capacity(page) {
            return Err(Refused::Beyond);
        }
        if len != value_len(page) {
            return Err(Refused::ValueLength);
        }
        Ok(())
    }

    #[inline]
    fn store(page: &mut [u8], slot: usize, value: &[u8]) {
        let at = place(page, slot);
        page[at..at + value.len()].copy_from_slice(value);
    }

    fn replace(page: &mut [u8], slot: usize, value: &[u8]) -> Result<(), Refused> {
        Self::reserve(page, slot, value.len())?;
        Self::store(page, slot, value);
        Ok(())
    }

    fn discard(_: &mut [u8], _: usize) {}

    fn trim(page: &mut [u8], slots: usize) {
        debug_assert_eq!(slots, capacity(page), "all slots of such a leaf stay");
    }

    fn payload_bytes<B: PageBytes>(bytes: B, count: usize) -> usize {
        count * usize::from(bytes.field_u16::<{ VALUE_LEN }>())
    }

    fn fixed_bytes(_: usize) -> usize {
        0
    }

    fn check(page: &[u8], all: bool, found: &mut dyn FnMut(Defect)) {
        if key_len(page) + value_len(page) > max_record_bytes(page.len()) {
            found(Defect::ValueLength(value_len(page)));
        }
        let end = place(page, capacity(page));
        if end > tail_start(page) {
            found(Defect::Slots(end));
        }
        if all && (u16_at(page, HEAP_START), u16_at(page, HEAP_LIVE)) != (0, 0) {
            found(Defect::HeapStart(u16_at(page, HEAP_START)));
        }
    }
}
