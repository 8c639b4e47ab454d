//! Conversions between the layouts of leaves, in place.
//!
//! No logical change: records, fences, ids, epoch and newest LSN stay. A call that fails has changed
//! nothing. The caller holds the page exclusively, or a private copy of it, and has seen its check at
//! page-in pass.

use super::{Leaf, LeafLayout, plain_leaf};
use crate::node::dense::{self, DenseMut, Full, Growth, Semi};
use crate::node::fields::{lower_fence, upper_fence};
use crate::node::fingerprint::{self, FingerprintLeafMut};
use crate::node::records::Records;
use crate::node::rung;
use crate::node::slotted::NoSpace;
use crate::node::write::NodeMut;
use crate::page::header::NEWEST_LSN;

/// Gives a leaf another layout; nothing is done if it has it already.
///
/// # Errors
/// [`NoSpace`] if the layout does not go with the records, or they do not fit. The rungs of the ladder
/// below the top know one layout.
pub fn convert(page: &mut [u8], to: LeafLayout) -> Result<(), NoSpace> {
    let from = LeafLayout::of(page);
    if from == to {
        return Ok(());
    }
    if !rung::HINTS {
        return Err(NoSpace);
    }
    match (from, to) {
        (LeafLayout::Comparison, LeafLayout::Fingerprint) => {
            fingerprint::comparison_to_fingerprint(page)
        }
        (LeafLayout::Fingerprint, LeafLayout::Comparison) => {
            fingerprint::fingerprint_to_comparison(page)
        }
        (LeafLayout::SemiDense, LeafLayout::Comparison) => dense::to_comparison::<Semi>(page),
        (LeafLayout::FullyDense, LeafLayout::Comparison) => dense::to_comparison::<Full>(page),
        _ => {
            let old = page.to_vec();
            let records = records_of(&old);
            let fences = (lower_fence(&old), upper_fence(&old));
            build(page, to, fences, &records, dense::growth_of(&old))?;
            page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&old[NEWEST_LSN..NEWEST_LSN + 8]);
            Ok(())
        }
    }
}

/// [`convert`], if the leaf then takes a record with this key and a value of so many bytes.
///
/// # Errors
/// As for [`convert`].
pub fn convert_for(
    page: &mut [u8],
    to: LeafLayout,
    key: &[u8],
    value_len: usize,
) -> Result<(), NoSpace> {
    let mut copy = page.to_vec();
    convert(&mut copy, to)?;
    if !plain_leaf(&copy).has_room(key, value_len) {
        return Err(NoSpace);
    }
    page.copy_from_slice(&copy);
    Ok(())
}

/// Copies of all records of a leaf, in order.
pub(super) fn records_of(page: &[u8]) -> Records {
    match plain_leaf(page) {
        Leaf::Comparison(leaf) => leaf.records_sorted(),
        Leaf::Fingerprint(leaf) => leaf.records_sorted(),
        Leaf::SemiDense(leaf) => leaf.records_sorted(),
        Leaf::FullyDense(leaf) => leaf.records_sorted(),
    }
}

/// Makes a leaf of records, which are in order and between the fences; its newest LSN is zero.
///
/// # Errors
/// [`NoSpace`] as for [`convert`].
pub(super) fn build(
    page: &mut [u8],
    layout: LeafLayout,
    (lower, upper): (Option<&[u8]>, Option<&[u8]>),
    records: &Records,
    growth: Growth,
) -> Result<(), NoSpace> {
    match layout {
        LeafLayout::Comparison => NodeMut::build(page, lower, upper, records).map(drop),
        _ if !rung::HINTS => Err(NoSpace),
        LeafLayout::Fingerprint => FingerprintLeafMut::build(page, lower, upper, records).map(drop),
        LeafLayout::SemiDense => DenseMut::<Semi>::build(page, lower, upper, records, growth)
            .map(drop)
            .map_err(|_| NoSpace),
        LeafLayout::FullyDense => DenseMut::<Full>::build(page, lower, upper, records, growth)
            .map(drop)
            .map_err(|_| NoSpace),
    }
}
