//! Merges of two neighbouring leaves of any layouts under one parent.
//!
//! Leaves of one slotted layout are merged record by record; else the records of both are taken out, and
//! make a leaf of the layout that the policy wants for them, or of another one that holds them. Same
//! conditions as `convert`.

use super::convert::{build, records_of};
use super::{LeafLayout, adapt, plain_leaf};
use crate::node::dense::growth_of;
use crate::node::fingerprint::{self, FingerprintLeafMut};
use crate::node::ladder::Ladder;
use crate::node::layout::{common_prefix, lower_fence, upper_fence};
use crate::node::merge::{merge_space, newest_lsn};
use crate::node::policy::{LeafPolicy, are_strings};
use crate::node::write::{NoSpace, NodeMut};
use crate::page::header::NEWEST_LSN;

/// Bytes that a leaf would use which holds what `left` and its right neighbour `right` hold; more than
/// a page if they cannot be merged. Never too few.
pub fn merge_leaf_space<L: Ladder>(left: &[u8], right: &[u8], policy: LeafPolicy) -> usize {
    if left.len() != right.len() {
        return usize::MAX;
    }
    match (LeafLayout::of(left), LeafLayout::of(right)) {
        _ if !L::HINTS => merge_space::<L>(left, right),
        (LeafLayout::Comparison, LeafLayout::Comparison) => merge_space::<L>(left, right),
        (LeafLayout::Fingerprint, LeafLayout::Fingerprint) => fingerprint::merge_space(left, right),
        _ => {
            let mut copy = left.to_vec();
            match merge_leaves::<L>(&mut copy, right, policy, false) {
                Ok(()) => plain_leaf::<L>(&copy).used_bytes(),
                Err(NoSpace) => usize::MAX,
            }
        }
    }
}

/// Makes one leaf of two, in the page of the left one; the right one's is left as it is, for the caller
/// to free. The newest LSN becomes the larger of the two.
///
/// # Errors
/// [`NoSpace`] if both do not fit into one page; then nothing has changed.
pub fn merge_leaves<L: Ladder>(
    left: &mut [u8],
    right: &[u8],
    policy: LeafPolicy,
    scans_are_common: bool,
) -> Result<(), NoSpace> {
    if left.len() != right.len() {
        return Err(NoSpace);
    }
    match (LeafLayout::of(left), LeafLayout::of(right)) {
        _ if !L::HINTS => return NodeMut::<L>::new(left).merge(right),
        (LeafLayout::Comparison, LeafLayout::Comparison) => {
            NodeMut::<L>::new(left).merge(right)?;
        }
        (LeafLayout::Fingerprint, LeafLayout::Fingerprint) => {
            FingerprintLeafMut::new(left).merge(right)?;
        }
        _ => return merge_records::<L>(left, right, policy, scans_are_common),
    }
    adapt::<L>(left, policy, scans_are_common);
    Ok(())
}

fn merge_records<L: Ladder>(
    left: &mut [u8],
    right: &[u8],
    policy: LeafPolicy,
    scans_are_common: bool,
) -> Result<(), NoSpace> {
    let old = left.to_vec();
    let mut records = records_of::<L>(&old);
    for (key, value) in records_of::<L>(right).iter() {
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
        .find(|layout| build::<L>(left, *layout, (lower, upper), &records, growth).is_ok())
        .ok_or(NoSpace)?;
    let newest = newest_lsn(&old).max(newest_lsn(right));
    left[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&newest.to_le_bytes());
    Ok(())
}
