//! Merges of two fingerprint leaves that are neighbours under one parent. The result is sorted.
//! Same conditions as [`super::write`].

use super::super::fields::{common_prefix, count, lower_fence, prefix, upper_fence};
use super::super::merge::newest_lsn;
use super::super::slotted::NoSpace;
use super::layout::{Measure, sorted_count};
use super::write::FingerprintLeafMut;
use crate::page::header::{KIND, LEVEL, NEWEST_LSN, PageKind};

/// Bytes that a leaf would use which holds what `left` and its right neighbour `right` hold; more
/// than a page if they cannot be merged. Never too few.
pub fn merge_space(left: &[u8], right: &[u8]) -> usize {
    merged(left, right).map_or(usize::MAX, |(records, fences)| records.space(fences))
}

/// The records of both in a leaf that reaches from the lower fence of one to the upper fence of the
/// other, and the bytes of those fences. `None` if they are no such leaves of one size.
fn merged(left: &[u8], right: &[u8]) -> Option<(Measure, usize)> {
    let is_ours = |page: &[u8]| page[KIND] == PageKind::FingerprintLeaf as u8 && page[LEVEL] == 0;
    if left.len() != right.len() || !is_ours(left) || !is_ours(right) {
        return None;
    }
    let (lower, upper) = (lower_fence(left), upper_fence(right));
    let shared = match (lower, upper) {
        (Some(lower), Some(upper)) => common_prefix(lower, upper),
        _ => 0,
    };
    let measure = |page: &[u8]| {
        let own = prefix(page).len();
        let (longer, shorter) = (shared.saturating_sub(own), own.saturating_sub(shared));
        Measure::of(page, 0..count(page), longer, shorter)
    };
    let fences = lower.map_or(0, <[u8]>::len) + upper.map_or(0, <[u8]>::len);
    Some((measure(left) + measure(right), fences))
}

impl FingerprintLeafMut<'_> {
    /// Takes in what the right neighbour under the same parent holds. The neighbour's page is left
    /// as it is, for the caller to free. The newest LSN becomes the larger of the two.
    ///
    /// # Errors
    /// [`NoSpace`] if both do not fit into one page, or one is no fingerprint leaf; then nothing
    /// has changed.
    pub fn merge(&mut self, right: &[u8]) -> Result<(), NoSpace> {
        let Some((records, fences)) = merged(self.page, right) else { return Err(NoSpace) };
        if records.space(fences) > self.page.len() {
            return Err(NoSpace);
        }
        self.sort();
        let left = self.page.to_vec();
        let mut sorted_right = Vec::new();
        let right = if sorted_count(right) >= count(right) {
            right
        } else {
            sorted_right.extend_from_slice(right);
            FingerprintLeafMut::new(&mut sorted_right).sort();
            &sorted_right
        };
        let newest = newest_lsn(&left).max(newest_lsn(right));
        let mut leaf =
            FingerprintLeafMut::format(self.page, lower_fence(&left), upper_fence(right));
        leaf.page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&newest.to_le_bytes());
        leaf.reserve(records);
        leaf.append_from(&left, 0..count(&left));
        leaf.append_from(right, 0..count(right));
        leaf.set_sorted();
        Ok(())
    }
}
