//! Conversions between comparison leaves and fingerprint leaves, in place.
//!
//! No logical change: records, fences, ids, epoch and newest LSN stay, and so do the hints that
//! tell a sequence of insertions. The caller holds the page exclusively, or a private copy of it; an
//! image that a checkpoint is owed may have either layout. Bytes are those of a page that has
//! passed the check of its kind at page-in.

use super::super::fields::{
    LAST_INSERT, RUN, common_prefix, count, lower_fence, max_record_bytes, prefix, upper_fence,
};
use super::super::layout::{LEAF_SLOT_BYTES, rest_len, slots as node_slots, space_needed};
use super::super::read::Node;
use super::super::records::Records;
use super::super::rung;
use super::super::slotted::NoSpace;
use super::super::suffix::Suffix;
use super::super::write::{Appended, NodeMut};
use super::layout::{Measure, slots};
use super::write::{FingerprintLeafMut, Moved};
use crate::page::header::{KIND, LEVEL, NEWEST_LSN, PageKind};
use hedgerow_sync::optimistic::PlainBytes;

/// Makes a fingerprint leaf of a comparison leaf. It is sorted.
///
/// # Errors
/// [`NoSpace`] if the records do not fit (which takes some with lengths above 255, or an unusually
/// full page), or the page is no comparison leaf; then nothing has changed.
pub fn comparison_to_fingerprint(page: &mut [u8]) -> Result<(), NoSpace> {
    if !is_leaf_of(page, PageKind::ComparisonLeaf) {
        return Err(NoSpace);
    }
    let old = page.to_vec();
    let count = count(&old);
    let mut sum = Measure::default();
    for record in node_slots(&old, 0..count) {
        sum = sum + measured(&old, record.suffix_len, record.value_len)?;
    }
    let fences = same_fences(&old)?;
    if sum.space(fences_len(fences)) > old.len() {
        return Err(NoSpace);
    }
    let heads: Vec<([u8; 4], usize)> =
        (0..count).map(|index| Suffix::read(&old, index).head()).collect();
    let mut leaf = FingerprintLeafMut::format(page, fences[0], fences[1]);
    leaf.reserve(sum);
    leaf.append_all(node_slots(&old, 0..count).zip(&heads).map(|(record, (head, head_len))| {
        let end = record.offset + record.record_bytes();
        Moved {
            parts: [&head[..*head_len], &old[record.offset..end]],
            value_len: record.value_len,
            fingerprint: None,
        }
    }));
    leaf.set_sorted();
    keep_fields(page, &old);
    Ok(())
}

/// Makes a comparison leaf of a fingerprint leaf.
///
/// # Errors
/// [`NoSpace`] if the records do not fit: a comparison leaf takes more for most; or the page is no
/// fingerprint leaf. Then nothing has changed.
pub fn fingerprint_to_comparison(page: &mut [u8]) -> Result<(), NoSpace> {
    if !is_leaf_of(page, PageKind::FingerprintLeaf) {
        return Err(NoSpace);
    }
    let mut sorted = page.to_vec();
    // The hints are those of the sorted leaf: sorting counts the last insertions.
    FingerprintLeafMut::new(&mut sorted).sort();
    let (count, mut live) = (count(&sorted), 0);
    for record in slots(&sorted, 0..count) {
        measured(&sorted, record.suffix_len, record.value_len)?;
        live += rest_len(record.suffix_len) + record.value_len;
    }
    let fences = same_fences(&sorted)?;
    if space_needed(LEAF_SLOT_BYTES, count, live, fences_len(fences)) > sorted.len() {
        return Err(NoSpace);
    }
    let mut leaf = NodeMut::format(page, PageKind::ComparisonLeaf, 0, fences[0], fences[1]);
    leaf.reserve_heads(count);
    leaf.append_all(slots(&sorted, 0..count).map(|record| Appended {
        bytes: &sorted[record.offset..record.value_range().end],
        suffix_len: record.suffix_len,
        child: 0,
    }));
    leaf.refresh_hints(0, 0);
    keep_fields(page, &sorted);
    Ok(())
}

fn is_leaf_of(page: &[u8], kind: PageKind) -> bool {
    page[KIND] == kind as u8 && page[LEVEL] == 0
}

/// The space that a record of a leaf takes in a fingerprint leaf.
///
/// # Errors
/// [`NoSpace`] if it is too long for any leaf.
fn measured(page: &[u8], suffix_len: usize, value_len: usize) -> Result<Measure, NoSpace> {
    match prefix(page).len() + suffix_len + value_len > max_record_bytes(page.len()) {
        true => Err(NoSpace),
        false => Ok(Measure::record(suffix_len, value_len)),
    }
}

/// The fences of a leaf, between which formatting cuts the prefix that the leaf has.
///
/// # Errors
/// [`NoSpace`] if it would be another prefix, with which suffixes are not to be taken over.
fn same_fences(page: &[u8]) -> Result<[Option<&[u8]>; 2], NoSpace> {
    let fences = [lower_fence(page), upper_fence(page)];
    let shared = match fences {
        [Some(lower), Some(upper)] => common_prefix(lower, upper),
        _ => 0,
    };
    if shared == prefix(page).len() { Ok(fences) } else { Err(NoSpace) }
}

fn fences_len(fences: [Option<&[u8]>; 2]) -> usize {
    fences.into_iter().flatten().map(<[u8]>::len).sum()
}

/// Restores what formatting has reset.
fn keep_fields(page: &mut [u8], old: &[u8]) {
    for field in [NEWEST_LSN..NEWEST_LSN + 8, LAST_INSERT..LAST_INSERT + 2, RUN..RUN + 2] {
        page[field.clone()].copy_from_slice(&old[field]);
    }
}

impl Node<PlainBytes<'_>> {
    /// Copies of all records of a leaf in the order of their keys.
    pub fn records_sorted(&self) -> Records {
        let mut records = Records::with_capacity(self.count(), self.bytes.0.len());
        for index in 0..self.count() {
            records.push_with(
                |key| self.append_key(index, key),
                |value| self.append_value(index, value),
            );
        }
        records
    }
}

impl<'a> NodeMut<'a> {
    /// Makes a comparison leaf with these records out of a page, for keys `lower < key <= upper`
    /// (`None`: without end), as [`Self::format`] does. The records are in order and between the
    /// fences.
    ///
    /// # Errors
    /// [`NoSpace`] if they do not fit, or one is longer than [`max_record_bytes`]; then nothing has
    /// changed.
    pub fn build(
        page: &'a mut [u8],
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        records: &Records,
    ) -> Result<Self, NoSpace> {
        let shared = match (lower, upper) {
            (Some(lower), Some(upper)) if rung::PREFIX => common_prefix(lower, upper),
            _ => 0,
        };
        let longest = max_record_bytes(page.len());
        let mut live = 0;
        for (key, value) in records.iter() {
            if key.len() + value.len() > longest {
                return Err(NoSpace);
            }
            live += rest_len(key.len().saturating_sub(shared)) + value.len();
        }
        let fences = lower.map_or(0, <[u8]>::len) + upper.map_or(0, <[u8]>::len);
        if space_needed(LEAF_SLOT_BYTES, records.len(), live, fences) > page.len() {
            return Err(NoSpace);
        }
        let mut leaf = NodeMut::format(page, PageKind::ComparisonLeaf, 0, lower, upper);
        leaf.reserve_heads(records.len());
        for (key, value) in records.iter() {
            let suffix = key.get(shared..).unwrap_or(&[]);
            leaf.append_record([suffix, &[], &[]], value, 0);
        }
        leaf.refresh_hints(0, 0);
        Ok(leaf)
    }
}
