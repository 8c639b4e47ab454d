//! Merges of two neighbouring leaves under one parent, of any of these layouts, and the layout of
//! what comes of it: dense if that pays, else the comparison layout.
//!
//! Same conditions as [`super::write`].

use super::convert::plan;
use super::criterion::growth_of;
use super::layout::DenseLayout;
use super::records::SortedRecords;
use super::write::DenseMut;
use super::{Full, Semi};
use crate::node::ladder::Ladder;
use crate::node::layout::{lower_fence, upper_fence};
use crate::node::merge::newest_lsn;
use crate::node::write::NoSpace;
use crate::page::header::{KIND, NEWEST_LSN, PageKind};

impl SortedRecords {
    /// The records of a leaf that is a comparison leaf or a dense one, and has passed its check;
    /// `None` of other pages.
    pub fn of_leaf<L: Ladder>(page: &[u8]) -> Option<Self> {
        match PageKind::from_byte(page[KIND])? {
            PageKind::ComparisonLeaf => Some(SortedRecords::of_comparison::<L>(page)),
            PageKind::SemiDenseLeaf => Some(SortedRecords::of_dense::<Semi>(page)),
            PageKind::FullyDenseLeaf => Some(SortedRecords::of_dense::<Full>(page)),
            _ => None,
        }
    }
}

/// What two leaves would be as one: the layout, and bytes in use as a comparison leaf would use
/// them.
struct Merged {
    records: SortedRecords,
    kind: PageKind,
}

fn merged<V: DenseLayout, L: Ladder>(left: &[u8], right: &[u8]) -> Option<Merged> {
    if left.len() != right.len() {
        return None;
    }
    let mut records = SortedRecords::of_leaf::<L>(left)?;
    records.append(&SortedRecords::of_leaf::<L>(right)?);
    let (lower, upper) = (lower_fence(left), upper_fence(right));
    let dense = plan::<V>(left.len(), lower, upper, &records, growth_of(right));
    let kind = match dense {
        Ok(_) => V::KIND,
        Err(_) if records.comparison_space::<L>(lower, upper, None) <= left.len() => {
            PageKind::ComparisonLeaf
        }
        Err(_) => return None,
    };
    Some(Merged { records, kind })
}

/// The layout that `left` and its right neighbour `right` would have as one leaf; `None` if they do
/// not fit into one page. `V` is the dense layout that is considered.
pub fn merged_kind<V: DenseLayout, L: Ladder>(left: &[u8], right: &[u8]) -> Option<PageKind> {
    merged::<V, L>(left, right).map(|merged| merged.kind)
}

/// Makes one leaf of two, in the page of the left one; the right one's is left as it is. The newest
/// LSN becomes the larger of the two.
///
/// # Errors
/// [`NoSpace`] if [`merged_kind`] gives `None`; then nothing has changed.
pub fn merge_leaves<V: DenseLayout, L: Ladder>(
    left: &mut [u8],
    right: &[u8],
) -> Result<PageKind, NoSpace> {
    let Merged { records, kind } = merged::<V, L>(left, right).ok_or(NoSpace)?;
    let old = left.to_vec();
    let (lower, upper) = (lower_fence(&old), upper_fence(right));
    if kind == V::KIND {
        DenseMut::<V>::build(left, lower, upper, &records, growth_of(right))
            .map_err(|_| NoSpace)?;
    } else {
        records.build_comparison::<L>(left, lower, upper)?;
    }
    let newest = newest_lsn(&old).max(newest_lsn(right));
    left[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&newest.to_le_bytes());
    Ok(kind)
}
