//! Ascending records that one dense leaf can hold, as a bulk load finds them out one by one.
//!
//! A run knows its first key and sums, not the records: whoever has them builds the leaf
//! ([`super::DenseMut::build`]) when the next record is not taken any more. Where the first number is
//! near the lower fence, slots are counted from there, and a fully dense leaf that is followed by a
//! near number gets its upper fence at its last slot: so that each number between the records of a
//! load has a slot, and none needs a leaf of its own when it comes. Invariant: all records
//! taken fit into one leaf of the layout, behind the lower fence that was given and with the last
//! key for its upper fence; if the run [`Run::pays`] besides, the build does not refuse them.
//! Plain data.

use super::criterion;
use super::layout::{Contents, DenseLayout};
use super::semi::record_bytes;
use super::shape::{KeyShape, numeric, stem_len};
use super::write::room;
use crate::node::fields::common_prefix;
use crate::node::layout::rest_len;
use std::marker::PhantomData;

/// Of its slots a leaf may leave one in so many unused before its first number.
const NEAR_PART: usize = 8;

/// Whether the second number is so little above the first that slots for those between are worth having.
fn is_near(first: u32, second: u32, most_slots: usize) -> bool {
    second.checked_sub(first).is_some_and(|gap| gap as usize <= most_slots / NEAR_PART)
}

/// Records for a dense leaf of layout `V`; see the head of this file.
#[derive(Clone, Debug)]
pub struct Run<V> {
    first_key: Vec<u8>,
    /// The number of the first slot, at most that of the first key.
    start: u32,
    contents: Contents,
    room: usize,
    most_slots: usize,
    /// Bytes that a comparison leaf keeps of each key behind prefix and head.
    rest: usize,
    layout: PhantomData<V>,
}

impl<V: DenseLayout> Run<V> {
    /// A run of one record, in a leaf with this lower fence.
    ///
    /// Of the room for slots and values `fill_percent` is used, if insertions between the records take
    /// any: in a fully dense leaf they have theirs. `None` if no dense leaf holds this record.
    pub fn begin(
        page_bytes: usize,
        fill_percent: u8,
        lower: Option<&[u8]>,
        key: &[u8],
        value_len: usize,
    ) -> Option<Self> {
        let shape = KeyShape::of(key)?;
        let number = numeric(key);
        let contents = Contents {
            count: 1,
            numbers: (number, number),
            value_bytes: value_len,
            value_len: Some(value_len),
            heap_bytes: record_bytes(value_len),
        };
        let room = room(page_bytes, key.len(), lower, Some(key));
        let room = if V::ONE_SIZE { room } else { room * usize::from(fill_percent) / 100 };
        let most_slots = V::most_slots(room, &contents);
        let shared = lower.map_or(0, |lower| common_prefix(lower, key));
        let allowed = u32::try_from(shape.between(lower, None).start).unwrap_or(number);
        let start = if is_near(allowed, number, most_slots) { allowed } else { number };
        (most_slots > 0).then(|| Run {
            first_key: key.to_vec(),
            start,
            contents,
            room,
            most_slots,
            rest: rest_len(key.len() - shared),
            layout: PhantomData,
        })
    }

    /// Number of records.
    pub fn count(&self) -> usize {
        self.contents.count
    }

    /// The slots up to that of a record with this key, if that is of the shape of the others and the leaf
    /// can have so many.
    #[inline]
    fn slots_to(&self, key: &[u8]) -> Option<usize> {
        // Most are numbers without a stem, for which no comparison is called.
        let stem = stem_len(self.first_key.len());
        if key.len() != self.first_key.len() || stem > 0 && key[..stem] != self.first_key[..stem] {
            return None;
        }
        let slots = numeric(key).checked_sub(self.start)? as usize + 1;
        (slots <= self.most_slots).then_some(slots)
    }

    /// Whether a record with this key, which is above the last one, might be taken if all between were.
    pub fn reaches(&self, key: &[u8]) -> bool {
        self.slots_to(key).is_some()
    }

    /// Takes a record whose key is above the last one, if the leaf can hold it as well.
    #[inline]
    pub fn take(&mut self, key: &[u8], value_len: usize) -> bool {
        let Some(slots) = self.slots_to(key) else { return false };
        if V::ONE_SIZE {
            if self.contents.value_len != Some(value_len) {
                return false;
            }
        } else {
            let heap_bytes = self.contents.heap_bytes + record_bytes(value_len);
            if slots > V::most_slots(self.room, &Contents { heap_bytes, ..self.contents }) {
                return false;
            }
            self.contents.heap_bytes = heap_bytes;
        }
        self.contents.count += 1;
        self.contents.numbers.1 = numeric(key);
        self.contents.value_bytes += value_len;
        true
    }

    /// [`Self::take`], if the run still [`Self::pays`] then.
    #[inline]
    pub fn take_if_it_pays(&mut self, key: &[u8], value_len: usize) -> bool {
        let before = self.contents;
        if !self.take(key, value_len) {
            return false;
        }
        // A record without a gap before it never makes a run sparser.
        if self.contents.numbers.1 - before.numbers.1 > 1 && !self.pays() {
            self.contents = before;
            return false;
        }
        true
    }

    /// The upper fence that gives the leaf a slot for each number up to it, if `next`, the first key
    /// behind the run, is near.
    pub fn fence_at_last_slot(&self, next: &[u8]) -> Option<Vec<u8>> {
        let shape = KeyShape::of(&self.first_key)?;
        let last = self.start.checked_add(u32::try_from(self.most_slots).ok()?)?.checked_sub(1)?;
        let near = V::ONE_SIZE
            && shape.has(next)
            && numeric(next) > last
            && is_near(last, numeric(next), self.most_slots);
        near.then(|| shape.key(last))
    }

    /// Whether the layout pays for the numbers that the records cover.
    pub fn pays(&self) -> bool {
        let Contents { count, numbers: (first, last), value_bytes, .. } = self.contents;
        criterion::is_dense_enough::<V>(count, (last - first) as usize + 1, value_bytes, self.rest)
    }
}
