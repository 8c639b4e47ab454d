//! What is done about a leaf of any layout that does not take a record: another layout, or a split.
//!
//! Same conditions as `convert`. Repeated as often as the record is refused, [`remedy`] ends: a dense
//! leaf becomes a comparison leaf only if that takes the record, and the way back asks for a density
//! that such a leaf does not have; a comparison leaf becomes a fingerprint leaf only if that takes the
//! record, and the way back comes after a split alone; and each split leaves fewer records, or a smaller
//! range, on the side where the record goes.

use super::convert::{convert, convert_for};
use super::{LeafLayout, LeafMut, plain_leaf};
use crate::node::cut::{Split, SplitHint};
use crate::node::dense::{self, DenseLayout, DenseMut, DenseSplit, Full, Semi};
use crate::node::fingerprint::{FingerprintLeaf, FingerprintLeafMut};
use crate::node::policy::{LeafPolicy, holds_strings};
use crate::node::rung;
use crate::node::write::NodeMut;
use hedgerow_sync::optimistic::PlainBytes;

/// A cut of a leaf that has been chosen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LeafSplit {
    /// Of a comparison or a fingerprint leaf.
    Slotted(Split),
    /// Of a dense leaf.
    Dense(DenseSplit),
}

impl LeafSplit {
    /// Upper fence of the left leaf, lower fence of the right one, and what the parent gets.
    pub fn separator(&self) -> &[u8] {
        match self {
            LeafSplit::Slotted(split) => &split.separator,
            LeafSplit::Dense(split) => &split.separator,
        }
    }
}

/// Fewer records than this say nothing of those to come.
pub(super) const TELLING_RECORDS: usize = 8;

/// What helps a leaf that does not take a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// It has got another layout; the record is to be tried again.
    Converted,
    /// It is to be split here.
    Split(LeafSplit),
}

/// What the slot of a comparison leaf or an inner node, and the growth of the array of heads, take at most.
pub(crate) const SLOT_SLACK_BYTES: usize = 24;

/// Finds out what helps a leaf that does not take a record with this key and a value of this length, and
/// does it if that is a conversion. A fingerprint leaf is sorted.
///
/// # Panics
/// If the leaf is a comparison or fingerprint leaf without records, or with this one alone, which takes any value.
pub fn remedy(
    page: &mut [u8],
    key: &[u8],
    value_len: usize,
    policy: LeafPolicy,
    scans_are_common: bool,
) -> Remedy {
    let leaf = LeafMut::new(page);
    let layout = leaf.layout();
    match layout {
        LeafLayout::SemiDense => return of_dense::<Semi>(page, key, value_len),
        LeafLayout::FullyDense => return of_dense::<Full>(page, key, value_len),
        LeafLayout::Comparison | LeafLayout::Fingerprint => {}
    }
    if rung::HINTS && layout == LeafLayout::Comparison {
        let is_dense = match policy.dense() {
            Some(LeafLayout::SemiDense) => become_dense::<Semi>(page, key, value_len),
            Some(_) => become_dense::<Full>(page, key, value_len),
            None => false,
        };
        if is_dense {
            return Remedy::Converted;
        }
        let wanted = policy.slotted(|| holds_strings(page), scans_are_common);
        if wanted != layout && convert_for(page, wanted, key, value_len).is_ok() {
            return Remedy::Converted;
        }
    }
    if rung::HINTS
        && layout == LeafLayout::Fingerprint
        && let Some(dense) = policy.dense()
        && may_be_numbers(page)
        && convert(page, dense).is_ok()
    {
        return Remedy::Converted;
    }
    Remedy::Split(LeafSplit::Slotted(cut(page, key, value_len, policy)))
}

/// Chooses the cut of a leaf between two keys that contend for it, near their middle. A fingerprint leaf is sorted. `None` if
/// one of them has no record in this leaf, or there is no such cut.
pub fn split_between(page: &mut [u8], one: &[u8], other: &[u8]) -> Option<LeafSplit> {
    let (low, high) = if one < other { (one, other) } else { (other, one) };
    let leaf = plain_leaf(page);
    let node = leaf.as_node();
    if low == high || !node.covers(low) || !node.covers(high) {
        return None;
    }
    let (below, above) = (leaf.find(low), leaf.find(high));
    if !below.found || !above.found {
        return None;
    }
    let (below, above) = (below.index, above.index);
    match leaf.layout() {
        LeafLayout::Comparison => {
            NodeMut::new(page).choose_split_between(below, above).map(LeafSplit::Slotted)
        }
        LeafLayout::Fingerprint => {
            FingerprintLeafMut::new(page).choose_split_between(low, high).map(LeafSplit::Slotted)
        }
        LeafLayout::SemiDense => {
            DenseMut::<Semi>::new(page).choose_split_between(below, above).map(LeafSplit::Dense)
        }
        LeafLayout::FullyDense => {
            DenseMut::<Full>::new(page).choose_split_between(below, above).map(LeafSplit::Dense)
        }
    }
}

/// Sorts a fingerprint leaf, and looks whether its first and its last record allow a dense layout.
fn may_be_numbers(page: &mut [u8]) -> bool {
    FingerprintLeafMut::new(page).sort();
    let leaf = FingerprintLeaf::new(PlainBytes::new(page));
    let Some(last) = leaf.count().checked_sub(1) else { return false };
    let mut keys = [Vec::new(), Vec::new()];
    leaf.append_suffix(0, &mut keys[0]);
    leaf.append_suffix(last, &mut keys[1]);
    let [first, last] = &keys;
    let stem = first.len().saturating_sub(4);
    first.len() == last.len() && first[..stem] == last[..stem]
}

/// Chooses the cut of a comparison or fingerprint leaf.
fn cut(page: &mut [u8], key: &[u8], value_len: usize, policy: LeafPolicy) -> Split {
    let at = LeafMut::new(page).as_leaf().find(key);
    let hint = match at.found {
        // A record that grows says nothing of where the next one goes.
        true => SplitHint::Middle,
        false => SplitHint::Insert { index: at.index, key, value_bytes: value_len },
    };
    if rung::HINTS && LeafLayout::of(page) == LeafLayout::Fingerprint {
        return FingerprintLeafMut::new(page).choose_split(hint);
    }
    let node = NodeMut::new(page);
    let towards_dense = match policy.dense() {
        _ if !rung::HINTS || at.found => None,
        Some(LeafLayout::SemiDense) => dense::choose_cut::<Semi>(&node, at.index, key, value_len),
        Some(_) => dense::choose_cut::<Full>(&node, at.index, key, value_len),
        None => None,
    };
    towards_dense.unwrap_or_else(|| node.choose_split(hint))
}

fn become_dense<V: DenseLayout>(page: &mut [u8], key: &[u8], value_len: usize) -> bool {
    DenseMut::<V>::from_comparison(page, key, value_len).is_ok()
}

fn of_dense<V: DenseLayout>(page: &mut [u8], key: &[u8], value_len: usize) -> Remedy {
    match DenseMut::<V>::new(page).choose_remedy(key, value_len) {
        dense::Remedy::Split(split) => Remedy::Split(LeafSplit::Dense(split)),
        dense::Remedy::ToComparison => {
            dense::to_comparison::<V>(page).expect("it was seen to fit with one record more");
            Remedy::Converted
        }
    }
}

impl LeafMut<'_> {
    /// Whether both sides of a cut of a comparison or fingerprint leaf with any separator, not only one
    /// that was chosen, fit into a page.
    pub fn fits_split(&mut self, split: &Split) -> bool {
        match self.layout() {
            LeafLayout::Fingerprint => FingerprintLeafMut::new(self.page).fits_split(split),
            _ => NodeMut::new(self.page).fits_split(split),
        }
    }

    /// Splits this leaf: it keeps the keys up to the separator, and `right`, a fresh page, becomes the
    /// leaf for those above it, with the same newest LSN. Each side gets the layout that the policy wants
    /// for it, if it fits; tells what came of that on the left and on the right.
    ///
    /// # Panics
    /// If `split` was not chosen for this leaf as it is, or the pages differ in size.
    pub fn split_into(
        &mut self,
        split: &LeafSplit,
        right: &mut [u8],
        policy: LeafPolicy,
        scans_are_common: bool,
    ) -> [Adapted; 2] {
        match (split, self.layout()) {
            (LeafSplit::Dense(split), layout) => {
                let is_kept = policy.dense() == Some(layout);
                match layout {
                    LeafLayout::SemiDense => {
                        DenseMut::<Semi>::new(self.page).split_into(split, right, is_kept);
                    }
                    _ => DenseMut::<Full>::new(self.page).split_into(split, right, is_kept),
                }
            }
            (LeafSplit::Slotted(split), LeafLayout::Fingerprint) => {
                FingerprintLeafMut::new(self.page).split_into(split, right);
            }
            (LeafSplit::Slotted(split), _) => {
                NodeMut::new(self.page).split_into(split, right);
            }
        }
        [&mut *self.page, right].map(|side| adapt(side, policy, scans_are_common))
    }
}

/// What came of [`adapt`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Adapted {
    /// The leaf has got another layout.
    pub changed: bool,
    /// Whether its keys are strings, if that was looked at.
    pub strings: Option<bool>,
}

/// Gives a comparison or fingerprint leaf the one of the two layouts that the policy wants for it, and a dense one that the
/// policy does not want another layout, if it fits (key-adaptation).
pub fn adapt(page: &mut [u8], policy: LeafPolicy, scans_are_common: bool) -> Adapted {
    let layout = LeafLayout::of(page);
    if !rung::HINTS || policy.dense() == Some(layout) {
        return Adapted::default();
    }
    if layout.is_dense() {
        // Numbers are no strings.
        let wanted = [policy.dense(), Some(policy.slotted(|| false, scans_are_common))];
        let changed = wanted.into_iter().flatten().any(|to| convert(page, to).is_ok());
        return Adapted { changed, strings: None };
    }
    if policy == LeafPolicy::Adaptive && plain_leaf(page).count() < TELLING_RECORDS {
        return Adapted::default();
    }
    let mut strings = None;
    let wanted = policy.slotted(|| *strings.insert(holds_strings(page)), scans_are_common);
    Adapted { changed: wanted != layout && convert(page, wanted).is_ok(), strings }
}
