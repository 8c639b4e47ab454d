//! Merges of two neighbouring leaves under one parent, of any layouts, and the layout of what comes
//! of it: dense if that pays, else the comparison layout.
//!
//! Same conditions as [`super::write`].

use super::criterion::growth_of;
use super::layout::DenseLayout;
use super::records::leaf_records;
use super::write::DenseMut;
use crate::node::ladder::Ladder;
use crate::node::layout::{lower_fence, upper_fence};
use crate::node::merge::newest_lsn;
use crate::node::write::{NoSpace, NodeMut};
use crate::page::header::{NEWEST_LSN, PageKind};

/// What two leaves are as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Merged {
    /// The layout.
    pub kind: PageKind,
    /// Bytes in use, as [`DenseNode::used_bytes`](super::DenseNode::used_bytes) or
    /// [`Node::used_bytes`](crate::node::Node::used_bytes) counts them.
    pub used_bytes: usize,
}

/// What `left` and its right neighbour `right` would be as one leaf; `None` if they do not fit into
/// one page. `V` is the dense layout that is considered, `L` the rung of the ladder of comparison
/// leaves. Costs as much as to merge them.
pub fn merged<V: DenseLayout, L: Ladder>(left: &[u8], right: &[u8]) -> Option<Merged> {
    merge_leaves::<V, L>(&mut left.to_vec(), right).ok()
}

/// Makes one leaf of two, in the page of the left one; the right one's is left as it is. The newest
/// LSN becomes the larger of the two.
///
/// # Errors
/// [`NoSpace`] if [`merged`] gives `None`; then nothing has changed.
pub fn merge_leaves<V: DenseLayout, L: Ladder>(
    left: &mut [u8],
    right: &[u8],
) -> Result<Merged, NoSpace> {
    if left.len() != right.len() {
        return Err(NoSpace);
    }
    let mut records = leaf_records::<L>(left).ok_or(NoSpace)?;
    let more = leaf_records::<L>(right).ok_or(NoSpace)?;
    more.iter().for_each(|(key, value)| records.push(key, value));
    let old = left.to_vec();
    let (lower, upper) = (lower_fence(&old), upper_fence(right));
    let dense = DenseMut::<V>::build(left, lower, upper, &records, growth_of(right))
        .map(|leaf| leaf.as_node().used_bytes());
    let merged = match dense {
        Ok(used_bytes) => Merged { kind: V::KIND, used_bytes },
        Err(_) => {
            let leaf = NodeMut::<L>::build(left, lower, upper, &records)?;
            let used_bytes = leaf.as_node().used_bytes();
            Merged { kind: PageKind::ComparisonLeaf, used_bytes }
        }
    };
    let newest = newest_lsn(&old).max(newest_lsn(right));
    left[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&newest.to_le_bytes());
    Ok(merged)
}
