//! Merges of two neighbours under one parent, and copies of whole nodes between pages.
//!
//! Same conditions as [`super::write`]. The separator of the two is the left one's upper fence.

use super::fields::{
    HEADS, common_prefix, count, heap_live, level, lower_fence, prefix, set_u32, u32_at,
    upper_fence,
};
use super::layout::{UPPER_CHILD, is_inner, rest_len, slot_bytes, slots, space_needed};
use super::rung;
use super::slotted::NoSpace;
use super::write::NodeMut;
use crate::page::header::{KIND, NEWEST_LSN, PageKind};

/// Bytes that a node would use which holds what `left` and its right neighbour `right` hold; more than
/// a page if they cannot be merged. Never too few.
pub fn merge_space(left: &[u8], right: &[u8]) -> usize {
    if left.len() != right.len() || left[KIND] != right[KIND] || level(left) != level(right) {
        return usize::MAX;
    }
    let (lower, upper) = (lower_fence(left), upper_fence(right));
    let shared = merged_prefix(lower, upper);
    let bytes = |page: &[u8]| {
        let longer = prefix(page).len().saturating_sub(shared);
        if longer == 0 {
            return heap_live(page);
        }
        // Of what a suffix gains, its head takes what there is room for.
        let slots = slots(page, 0..count(page));
        slots.map(|slot| rest_len(slot.suffix_len + longer) + slot.value_len).sum()
    };
    let mut records = count(left) + count(right);
    let mut live = bytes(left) + bytes(right);
    if is_inner(left) {
        records += 1;
        let separator = upper_fence(left).map_or(0, <[u8]>::len);
        live += rest_len(separator.saturating_sub(shared));
    }
    let fences = lower.map_or(0, <[u8]>::len) + upper.map_or(0, <[u8]>::len);
    space_needed(slot_bytes(left), records, live, fences)
}

fn merged_prefix(lower: Option<&[u8]>, upper: Option<&[u8]>) -> usize {
    match (lower, upper) {
        (Some(lower), Some(upper)) if rung::PREFIX => common_prefix(lower, upper),
        _ => 0,
    }
}

impl NodeMut<'_> {
    /// Takes in what the right neighbour under the same parent holds. The neighbour's page is left as
    /// it is, for the caller to free. The newest LSN becomes the larger of the two.
    ///
    /// # Errors
    /// [`NoSpace`] if both do not fit into one page, or are not of one kind and level; then nothing has
    /// changed.
    pub fn merge(&mut self, right: &[u8]) -> Result<(), NoSpace> {
        if merge_space(self.page, right) > self.page.len() {
            return Err(NoSpace);
        }
        let left = self.page.to_vec();
        let inner = is_inner(&left);
        let kind = if inner { PageKind::Inner } else { PageKind::ComparisonLeaf };
        let newest = newest_lsn(&left).max(newest_lsn(right));
        let mut node =
            NodeMut::format(self.page, kind, level(&left), lower_fence(&left), upper_fence(right));
        node.page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&newest.to_le_bytes());
        node.reserve_heads(count(&left) + count(right) + usize::from(inner));
        node.append_from(&left, 0..count(&left));
        if inner {
            let separator = upper_fence(&left).unwrap_or(&[]);
            let suffix = separator.get(prefix(node.page).len()..).unwrap_or(&[]);
            node.append_record([suffix, &[], &[]], &[], u32_at(&left, UPPER_CHILD));
            set_u32(node.page, UPPER_CHILD, u32_at(right, UPPER_CHILD));
        }
        node.append_from(right, 0..count(right));
        node.refresh_hints(0, 0);
        Ok(())
    }
}

pub(super) fn newest_lsn(page: &[u8]) -> u64 {
    u64::from(u32_at(page, NEWEST_LSN)) | u64::from(u32_at(page, NEWEST_LSN + 4)) << 32
}

/// Makes `to` the node that `from` is: kind, level, newest LSN, fences, records. The ids, the epoch and
/// the checksum of `to` stay. For a root, whose contents move while its id does not.
///
/// # Panics
/// If the pages differ in size.
pub fn copy_node(to: &mut [u8], from: &[u8]) {
    const { assert!(NEWEST_LSN + 8 == KIND && KIND < HEADS) };
    to[NEWEST_LSN..].copy_from_slice(&from[NEWEST_LSN..]);
}
