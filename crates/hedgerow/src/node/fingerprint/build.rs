//! Records in order, out of a fingerprint leaf and into one.
//!
//! What is taken out are copies of whole keys and values, one behind the other in one buffer, so
//! that another layout, with another prefix or none, can be built from them. Building sorts
//! nothing: the records come in order, and the leaf is sorted. Same conditions as [`super::write`].

use super::super::fields::{common_prefix, count, max_record_bytes};
use super::super::records::Records;
use super::super::slotted::NoSpace;
use super::hash::fingerprint;
use super::layout::Measure;
use super::read::FingerprintLeaf;
use super::write::FingerprintLeafMut;
use hedgerow_sync::optimistic::PlainBytes;

impl FingerprintLeaf<PlainBytes<'_>> {
    /// Copies of all records in the order of their keys, whether the leaf is sorted or not.
    pub fn records_sorted(&self) -> Records {
        let mut copy;
        let mut page = self.bytes().as_slice();
        if !self.is_sorted() {
            copy = page.to_vec();
            FingerprintLeafMut::new(&mut copy).sort();
            page = &copy;
        }
        let leaf = FingerprintLeaf::new(PlainBytes::new(page));
        let mut records = Records::with_capacity(count(page), page.len());
        for place in 0..count(page) {
            records.push_with(
                |key| leaf.append_key(place, key),
                |value| leaf.append_value(place, value),
            );
        }
        records
    }
}

impl<'a> FingerprintLeafMut<'a> {
    /// Makes a leaf with these records out of a page, for keys `lower < key <= upper` (`None`:
    /// without end), as [`Self::format`] does. The records are in order and between the fences.
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
            (Some(lower), Some(upper)) => common_prefix(lower, upper),
            _ => 0,
        };
        let longest = max_record_bytes(page.len());
        let mut sum = Measure::default();
        for (key, value) in records.iter() {
            if key.len() + value.len() > longest {
                return Err(NoSpace);
            }
            sum = sum + Measure::record(key.len().saturating_sub(shared), value.len());
        }
        let fences = lower.map_or(0, <[u8]>::len) + upper.map_or(0, <[u8]>::len);
        if sum.space(fences) > page.len() {
            return Err(NoSpace);
        }
        let mut leaf = FingerprintLeafMut::format(page, lower, upper);
        leaf.reserve(sum);
        for (key, value) in records.iter() {
            let suffix = key.get(shared..).unwrap_or(&[]);
            leaf.append_record([suffix, &[]], value, fingerprint(suffix));
        }
        leaf.set_sorted();
        Ok(leaf)
    }
}
