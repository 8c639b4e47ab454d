//! The records of a leaf of any layout, in order and outside of a page: what conversions go
//! through.
//!
//! Keys are whole. Allocates two buffers; plain data.

use super::layout::{Contents, DenseLayout};
use super::read::DenseNode;
use super::semi;
use super::shape::{KeyShape, numeric};
use super::write::Refused;
use crate::node::ladder::Ladder;
use crate::node::layout::{
    LEAF_SLOT_BYTES, PREFIX_LEN, common_prefix, fences_start, rest_len, space_needed, u16_at,
};
use crate::node::read::Node;
use crate::node::write::{NoSpace, NodeMut};
use crate::page::header::PageKind;
use hedgerow_sync::optimistic::PlainBytes;

/// Records in ascending order of their keys.
#[derive(Clone, Default, Debug)]
pub struct SortedRecords {
    bytes: Vec<u8>,
    /// Where each key ends, and behind it its value.
    ends: Vec<(usize, usize)>,
}

impl SortedRecords {
    /// No records.
    pub fn new() -> Self {
        SortedRecords::default()
    }

    /// The records of a comparison leaf that has passed its check.
    pub fn of_comparison<L: Ladder>(page: &[u8]) -> Self {
        let node = Node::<_, L>::new(PlainBytes::new(page));
        let mut records = SortedRecords::for_count(node.count(), page.len());
        for index in 0..node.count() {
            node.append_key(index, &mut records.bytes);
            records.end_key();
            records.bytes.extend_from_slice(node.value(index));
            records.end_value();
        }
        records
    }

    /// The records of a dense leaf that has passed its check.
    pub fn of_dense<V: DenseLayout>(page: &[u8]) -> Self {
        let node = DenseNode::<_, V>::new(PlainBytes::new(page));
        let mut records = SortedRecords::for_count(node.count(), page.len());
        for place in node.places() {
            node.append_key(place, &mut records.bytes);
            records.end_key();
            records.bytes.extend_from_slice(node.value(place));
            records.end_value();
        }
        records
    }

    fn for_count(count: usize, page_bytes: usize) -> Self {
        SortedRecords { bytes: Vec::with_capacity(2 * page_bytes), ends: Vec::with_capacity(count) }
    }

    fn end_key(&mut self) {
        self.ends.push((self.bytes.len(), self.bytes.len()));
    }

    fn end_value(&mut self) {
        if let Some((_, end)) = self.ends.last_mut() {
            *end = self.bytes.len();
        }
    }

    /// Adds a record, whose key is above all there are.
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        debug_assert!(self.iter().next_back().is_none_or(|(last, _)| last < key));
        self.bytes.extend_from_slice(key);
        self.end_key();
        self.bytes.extend_from_slice(value);
        self.end_value();
    }

    /// Adds all of another leaf to the right.
    pub fn append(&mut self, right: &SortedRecords) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&right.bytes);
        self.ends.extend(right.ends.iter().map(|(key, value)| (at + key, at + value)));
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Keys with their values, ascending.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> + '_ {
        (0..self.ends.len()).map(|index| self.record(index))
    }

    fn record(&self, index: usize) -> (&[u8], &[u8]) {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        let (key, end) = self.ends[index];
        (&self.bytes[start..key], &self.bytes[key..end])
    }

    /// What all keys have in common, and how much space they take in a dense leaf.
    ///
    /// # Errors
    /// [`Refused::KeyLength`] or [`Refused::Stem`] if they have no common shape, or there are none.
    pub(super) fn shape(&self) -> Result<(KeyShape<'_>, Contents), Refused> {
        if self.is_empty() {
            return Err(Refused::KeyLength);
        }
        let ((first, value), (last, _)) = (self.record(0), self.record(self.len() - 1));
        let shape = KeyShape::of(first).ok_or(Refused::KeyLength)?;
        let mut contents = Contents {
            count: self.len(),
            numbers: (numeric(first), numeric(last)),
            value_bytes: 0,
            value_len: Some(value.len()),
            heap_bytes: 0,
        };
        let mut before = None;
        for (key, value) in self.iter() {
            if key.len() != first.len() {
                return Err(Refused::KeyLength);
            }
            // A page from outside may have keys in any order: then they are not of one shape,
            // either.
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

    /// Bytes that a comparison leaf between these fences takes for them, with one more record whose
    /// key and value these bytes are, if it is given.
    pub fn comparison_space<L: Ladder>(
        &self,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        more: Option<(usize, usize)>,
    ) -> usize {
        let shared = match (lower, upper) {
            (Some(lower), Some(upper)) if L::PREFIX => common_prefix(lower, upper),
            _ => 0,
        };
        let record = |key: usize, value| rest_len::<L>(key.saturating_sub(shared)) + value;
        let live: usize = self.iter().map(|(key, value)| record(key.len(), value.len())).sum();
        let live = live + more.map_or(0, |(key, value)| record(key, value));
        let fences = lower.map_or(0, <[u8]>::len) + upper.map_or(0, <[u8]>::len);
        let count = self.len() + usize::from(more.is_some());
        space_needed::<L>(LEAF_SLOT_BYTES, count, live, fences)
    }

    /// Makes a comparison leaf of them.
    ///
    /// # Errors
    /// [`NoSpace`] if they do not fit; then the page is as it was.
    pub fn build_comparison<L: Ladder>(
        &self,
        page: &mut [u8],
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Result<(), NoSpace> {
        if self.comparison_space::<L>(lower, upper, None) > page.len() {
            return Err(NoSpace);
        }
        let mut node = NodeMut::<L>::format(page, PageKind::ComparisonLeaf, 0, lower, upper);
        node.reserve_heads(self.len());
        let shared = u16_at(node.bytes(), PREFIX_LEN);
        for (key, value) in self.iter() {
            node.append_record([key.get(shared..).unwrap_or(&[]), &[], &[]], value, 0);
        }
        node.refresh_hints(0, 0);
        debug_assert!(fences_start(node.bytes()) <= page.len());
        Ok(())
    }
}
