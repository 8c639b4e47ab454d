//! Merges of two neighbouring leaves of any layouts under one parent.
//!
//! Leaves of one slotted layout are merged record by record; else the records of both are taken out, and
//! make a leaf of the layout that the policy wants for them, or of another one that holds them. Same
//! conditions as `convert`.

use super::convert::{build, records_of};
use super::{Leaf, LeafLayout, adapt, plain_leaf};
use crate::node::dense::{DenseLayout, DenseNode, MAX_SLOTS, Semi, growth_of};
use crate::node::fields::{common_prefix, lower_fence, upper_fence};
use crate::node::fingerprint::{self, FingerprintLeafMut};
use crate::node::layout::{LEAF_SLOT_BYTES, rest_len};
use crate::node::merge::{merge_space, newest_lsn};
use crate::node::policy::{LeafPolicy, are_strings};
use crate::node::rung;
use crate::node::slotted::NoSpace;
use crate::node::write::NodeMut;
use crate::page::header::NEWEST_LSN;
use hedgerow_sync::optimistic::PageBytes;

/// Bytes that a leaf would use which holds what `left` and its right neighbour `right` hold, in the
/// layout that [`merge_leaves`] would give it; more than a page if they cannot be merged. Never too few.
pub fn merge_leaf_space(
    left: &[u8],
    right: &[u8],
    policy: LeafPolicy,
    scans_are_common: bool,
) -> usize {
    if left.len() != right.len() {
        return usize::MAX;
    }
    let in_their_layout = match (LeafLayout::of(left), LeafLayout::of(right)) {
        _ if !rung::HINTS => return merge_space(left, right),
        (LeafLayout::Comparison, LeafLayout::Comparison) => merge_space(left, right),
        (LeafLayout::Fingerprint, LeafLayout::Fingerprint) => fingerprint::merge_space(left, right),
        _ => 0,
    };
    if in_their_layout > left.len() {
        return in_their_layout;
    }
    // The merged leaf may get another layout, in which it takes more.
    let mut copy = left.to_vec();
    match merge_leaves(&mut copy, right, policy, scans_are_common) {
        Ok(()) => plain_leaf(&copy).used_bytes().max(in_their_layout),
        Err(NoSpace) => usize::MAX,
    }
}

/// Makes one leaf of two, in the page of the left one; the right one's is left as it is, for the caller
/// to free. The newest LSN becomes the larger of the two.
///
/// # Errors
/// [`NoSpace`] if both do not fit into one page; then nothing has changed.
pub fn merge_leaves(
    left: &mut [u8],
    right: &[u8],
    policy: LeafPolicy,
    scans_are_common: bool,
) -> Result<(), NoSpace> {
    if left.len() != right.len() {
        return Err(NoSpace);
    }
    match (LeafLayout::of(left), LeafLayout::of(right)) {
        _ if !rung::HINTS => return NodeMut::new(left).merge(right),
        (LeafLayout::Comparison, LeafLayout::Comparison) => {
            NodeMut::new(left).merge(right)?;
        }
        (LeafLayout::Fingerprint, LeafLayout::Fingerprint) => {
            FingerprintLeafMut::new(left).merge(right)?;
        }
        _ => return merge_records(left, right, policy, scans_are_common),
    }
    // Not where that leaves a leaf which the next insertion splits again.
    if plain_leaf(left).free_bytes() >= left.len() / ADAPTED_FREE_PART {
        adapt(left, policy, scans_are_common);
    }
    Ok(())
}

impl<B: PageBytes> Leaf<B> {
    /// Whether this leaf and its right neighbour may fit into one: no only if they do not, found without
    /// a look at any record. Of inner nodes likewise.
    pub fn may_merge(&self, right: &Self, policy: LeafPolicy) -> bool {
        let page_bytes = self.as_node().bytes().len();
        let has_fingerprints = !matches!(policy, LeafPolicy::Fixed(layout) if layout.is_dense());
        let least = |leaf: &Self| leaf.least_bytes(has_fingerprints);
        if least(self) + least(right) <= page_bytes {
            return true;
        }
        if policy.dense().is_none() {
            return false;
        }
        match (self.numbers(), right.numbers()) {
            (Some(left_numbers), Some(right_numbers)) => {
                let Some(slots) = left_numbers.slots_up_to(&right_numbers) else { return false };
                let values = match (self, right, policy.dense()) {
                    (
                        Leaf::FullyDense(left),
                        Leaf::FullyDense(right),
                        Some(LeafLayout::FullyDense),
                    ) => {
                        if left.value_len(0) != right.value_len(0) {
                            return false;
                        }
                        slots.saturating_mul(left.value_len(0))
                    }
                    _ => self.payload_bytes() + right.payload_bytes(),
                };
                let fixed = match policy.dense() {
                    Some(LeafLayout::SemiDense) => Semi::fixed_bytes(slots),
                    _ => slots / 8,
                };
                slots <= MAX_SLOTS && fixed + values <= page_bytes
            }
            // A few records may go into a dense neighbour.
            (Some(_), None) => right.count() <= FEW_RECORDS,
            (None, Some(_)) => self.count() <= FEW_RECORDS,
            (None, None) => false,
        }
    }

    /// The least that the records can take in a leaf that is not dense, or in this node. `fingerprints`: in a
    /// fingerprint leaf, too.
    fn least_bytes(&self, fingerprints: bool) -> usize {
        match self {
            Leaf::Comparison(leaf) => leaf.payload_bytes(),
            Leaf::Fingerprint(leaf) => leaf.payload_bytes(),
            Leaf::SemiDense(leaf) => dense_bytes(leaf, fingerprints),
            Leaf::FullyDense(leaf) => dense_bytes(leaf, fingerprints),
        }
    }

    /// What the keys of a dense leaf with records are.
    fn numbers(&self) -> Option<Numbers> {
        match self {
            Leaf::SemiDense(leaf) => numbers_of(leaf),
            Leaf::FullyDense(leaf) => numbers_of(leaf),
            _ => None,
        }
    }
}

/// The keys of a dense leaf: their length, what all begin with, and the first and the last number.
struct Numbers {
    key_len: usize,
    stem: Vec<u8>,
    first: u32,
    last: u32,
}

impl Numbers {
    /// How many slots a dense leaf needs for these keys and those of a right neighbour. `None` if no
    /// dense leaf has both.
    fn slots_up_to(&self, right: &Numbers) -> Option<usize> {
        if self.key_len != right.key_len || self.stem != right.stem {
            return None;
        }
        Some(right.last.checked_sub(self.first)? as usize + 1)
    }
}

/// Records that are worth a try of the dense layout for a neighbour.
const FEW_RECORDS: usize = 16;

/// Part of a page that is to be free in a leaf that gets another layout after a merge.
const ADAPTED_FREE_PART: usize = 8;

/// The least that the records of a dense leaf take in one that is not: with a slot, a fingerprint or a head, and all
/// of the key behind the prefix and the head; the prefix can only get shorter.
fn dense_bytes<B: PageBytes, V: DenseLayout>(leaf: &DenseNode<B, V>, fingerprints: bool) -> usize {
    let suffix_len = leaf.key_len().saturating_sub(leaf.common().prefix_len());
    let record_bytes = match fingerprints {
        true => 1 + 4 + suffix_len,
        false => rung::HEAD_BYTES + LEAF_SLOT_BYTES + rest_len(suffix_len),
    };
    // The heap of a semi-dense leaf has the lengths of values, of at most two bytes.
    let length_bytes = if V::ONE_SIZE { 0 } else { 2 };
    leaf.payload_bytes() + leaf.count() * (record_bytes - length_bytes)
}

fn numbers_of<B: PageBytes, V: DenseLayout>(leaf: &DenseNode<B, V>) -> Option<Numbers> {
    let last = leaf.previous_place(usize::MAX)?;
    let number = |place: usize| leaf.base().wrapping_add(place as u32);
    let mut stem = Vec::new();
    leaf.append_prefix(&mut stem);
    let (first, last) = (number(leaf.next_place(0)), number(last));
    Some(Numbers { key_len: leaf.key_len(), stem, first, last })
}

fn merge_records(
    left: &mut [u8],
    right: &[u8],
    policy: LeafPolicy,
    scans_are_common: bool,
) -> Result<(), NoSpace> {
    let old = left.to_vec();
    let mut records = records_of(&old);
    for (key, value) in records_of(right).iter() {
        records.push(key, value);
    }
    let (lower, upper) = (lower_fence(&old), upper_fence(right));
    let shared = match (lower, upper) {
        (Some(lower), Some(upper)) => common_prefix(lower, upper),
        _ => 0,
    };
    let wanted = policy.slotted(|| are_strings(&records, shared), scans_are_common);
    let other = match wanted {
        LeafLayout::Fingerprint => LeafLayout::Comparison,
        _ => LeafLayout::Fingerprint,
    };
    let other = (policy == LeafPolicy::Adaptive).then_some(other);
    let growth = growth_of(right);
    policy
        .dense()
        .into_iter()
        .chain([wanted])
        .chain(other)
        .find(|layout| build(left, *layout, (lower, upper), &records, growth).is_ok())
        .ok_or(NoSpace)?;
    let newest = newest_lsn(&old).max(newest_lsn(right));
    left[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&newest.to_le_bytes());
    Ok(())
}
