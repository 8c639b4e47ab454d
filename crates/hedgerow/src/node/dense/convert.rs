//! Conversions: comparison leaves to dense ones, and back; and dense leaves out of sorted records.
//!
//! None is a logical change: fences, records and newest LSN stay. Each either succeeds or has
//! changed nothing. Same conditions as [`super::write`].

use super::criterion::{self, growth_of};
use super::layout::Refused;
use super::layout::{Contents, DenseLayout, Frame, Growth};
use super::read::DenseNode;
use super::records::shape_of;
use super::shape::{KeyShape, numeric};
use super::write::{DenseMut, copy_lsn, room};
use crate::node::fields::{
    LAST_INSERT, RUN, common_prefix, lower_fence, set_u16, u16_at, upper_fence,
};
use crate::node::layout::rest_len;
use crate::node::read::Node;
use crate::node::records::Records;
use crate::node::slotted::NoSpace;
use crate::node::write::NodeMut;
use hedgerow_sync::optimistic::PlainBytes;

/// A frame for records between fences, if the layout pays for them.
///
/// # Errors
/// What about them does not go with the layout.
pub(super) fn plan<'r, V: DenseLayout>(
    page_bytes: usize,
    lower: Option<&[u8]>,
    upper: Option<&[u8]>,
    records: &'r Records,
    growth: Growth,
) -> Result<(KeyShape<'r>, Contents, Frame), Refused> {
    let (shape, contents) = shape_of(records)?;
    if V::ONE_SIZE && contents.value_len.is_none() {
        return Err(Refused::ValueLength);
    }
    let room = room(page_bytes, shape.key_len(), lower, upper);
    let allowed = shape.between(lower, upper);
    let frame = V::frame(room, &contents, allowed, growth).ok_or(Refused::NoSpace)?;
    let shared = match (lower, upper) {
        (Some(lower), Some(upper)) => common_prefix(lower, upper),
        _ => 0,
    };
    let rest = rest_len(shape.key_len().saturating_sub(shared));
    let (first, last) = contents.numbers;
    let span = last.abs_diff(first) as usize + 1;
    if !criterion::is_dense_enough::<V>(contents.count, span, contents.value_bytes, rest) {
        return Err(Refused::Sparse);
    }
    Ok((shape, contents, frame))
}

impl<'a, V: DenseLayout> DenseMut<'a, V> {
    /// Makes a leaf of sorted records, for keys `lower < key <= upper`; else as
    /// [`DenseMut::format`].
    ///
    /// # Errors
    /// What about the records does not go with the layout; then the page is as it was.
    pub fn build(
        page: &'a mut [u8],
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
        records: &Records,
        growth: Growth,
    ) -> Result<Self, Refused> {
        let (shape, contents, frame) = plan::<V>(page.len(), lower, upper, records, growth)?;
        let field = V::value_field(&contents);
        let mut leaf = Self::lay_out(page, lower, upper, shape, field, frame);
        for (key, value) in records.iter() {
            let slot = numeric(key).wrapping_sub(frame.base);
            leaf.append(slot as usize, value);
        }
        Ok(leaf)
    }

    /// Converts a comparison leaf in place, to which a record with this key and a value of this
    /// length is to be added; it takes the record then, or is split for it without another
    /// conversion.
    ///
    /// To be tried whenever such a leaf would otherwise be split (section 3.5). What rules most
    /// leaves out is seen at once.
    ///
    /// # Errors
    /// What about the records or the one to come does not go with the layout; then nothing has
    /// changed.
    pub fn from_comparison(
        page: &'a mut [u8],
        key: &[u8],
        value_len: usize,
    ) -> Result<Self, Refused> {
        criterion::may_be_dense::<V>(page, key, value_len)?;
        let records = Node::new(PlainBytes::new(page)).records_sorted();
        let old = page.to_vec();
        let growth = growth_of(&old);
        let leaf = Self::build(page, lower_fence(&old), upper_fence(&old), &records, growth)?;
        let last = leaf.as_node().place_of_rank(u16_at(&old, LAST_INSERT)).unwrap_or(0);
        keep_fields(leaf.page, &old, last);
        Ok(leaf)
    }
}

/// Converts a dense leaf to a comparison leaf in place.
///
/// # Errors
/// [`NoSpace`] if there are more records than such a leaf holds: it has to be split first. Then
/// nothing has changed.
pub fn to_comparison<V: DenseLayout>(page: &mut [u8]) -> Result<(), NoSpace> {
    let old = page.to_vec();
    let node = DenseNode::<_, V>::new(PlainBytes::new(&old));
    let records = node.records_sorted();
    NodeMut::build(page, lower_fence(&old), upper_fence(&old), &records)?;
    keep_fields(page, &old, node.rank(u16_at(&old, LAST_INSERT)));
    Ok(())
}

/// Restores what is left of a page after a conversion: its newest LSN, and the run of insertions,
/// which goes on where the last one was.
fn keep_fields(page: &mut [u8], old: &[u8], last_insert: usize) {
    copy_lsn(page, old);
    set_u16(page, LAST_INSERT, last_insert);
    set_u16(page, RUN, u16_at(old, RUN));
}
