//! The records of a leaf of any layout, in order and outside of a page, as conversions, merges and
//! builds of dense leaves look at them.
//!
//! What they look at has passed the check of its kind at page-in, and may be in any order all the
//! same. Reads only.

use super::layout::Refused;
use super::layout::{Contents, DenseLayout};
use super::read::DenseNode;
use super::semi;
use super::shape::{KeyShape, numeric};
use crate::node::fields::{count, lower_fence, prefix, upper_fence};
use crate::node::layout::{LEAF_SLOT_BYTES, rest_len, space_needed};
use crate::node::records::Records;
use crate::node::rung;
use hedgerow_sync::optimistic::PlainBytes;

impl<V: DenseLayout> DenseNode<PlainBytes<'_>, V> {
    /// Copies of all records in the order of their keys.
    pub fn records_sorted(&self) -> Records {
        let mut records = Records::with_capacity(self.count(), self.bytes().as_slice().len());
        for place in self.places() {
            records.push_with(
                |key| self.append_key(place, key),
                |value| value.extend_from_slice(self.value(place)),
            );
        }
        records
    }
}

/// What all keys have in common, and how much space the records take in a dense leaf.
///
/// # Errors
/// [`Refused::KeyLength`] or [`Refused::Stem`] if they have no common shape, or there are none.
pub(super) fn shape_of(records: &Records) -> Result<(KeyShape<'_>, Contents), Refused> {
    let ends = (records.iter().next(), records.iter().next_back());
    let (Some((first, value)), Some((last, _))) = ends else { return Err(Refused::KeyLength) };
    let shape = KeyShape::of(first).ok_or(Refused::KeyLength)?;
    let mut contents = Contents {
        count: records.len(),
        numbers: (numeric(first), numeric(last)),
        value_bytes: 0,
        value_len: Some(value.len()),
        heap_bytes: 0,
    };
    let mut before = None;
    for (key, value) in records.iter() {
        if key.len() != first.len() {
            return Err(Refused::KeyLength);
        }
        // A page from outside may have keys in any order: then they are not of one shape, either.
        if !shape.has(key) || before.is_some_and(|before| before >= numeric(key)) {
            return Err(Refused::Stem);
        }
        before = Some(numeric(key));
        contents.value_len = contents.value_len.filter(|len| *len == value.len());
        contents.value_bytes += value.len();
        contents.heap_bytes += semi::record_bytes(value.len());
    }
    Ok((shape, contents))
}

/// Bytes that a comparison leaf takes for the records of a dense one, with one more of which these
/// are the bytes of key and value, if it is given.
pub(super) fn comparison_space<V: DenseLayout>(page: &[u8], more: Option<(usize, usize)>) -> usize {
    let node = DenseNode::<_, V>::new(PlainBytes::new(page));
    let shared = if rung::PREFIX { prefix(page).len() } else { 0 };
    let rest = |key_len: usize| rest_len(key_len.saturating_sub(shared));
    let values: usize = node.places().map(|place| node.value_len(place)).sum();
    let live = count(page) * rest(node.key_len()) + values;
    let live = live + more.map_or(0, |(key, value)| rest(key) + value);
    let fences = [lower_fence(page), upper_fence(page)];
    let fences = fences.into_iter().flatten().map(<[u8]>::len).sum();
    space_needed(LEAF_SLOT_BYTES, count(page) + usize::from(more.is_some()), live, fences)
}
