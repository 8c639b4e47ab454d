//! Changes of one record in a leaf of any layout.
//!
//! The caller holds the page exclusively, or a private copy of it, and has seen its check at page-in
//! pass. A call that gives [`NoSpace`] has changed nothing that a reader could tell.

use super::{Leaf, LeafLayout, plain_leaf};
use crate::node::dense::{DenseMut, Full, Semi};
use crate::node::fingerprint::FingerprintLeafMut;
use crate::node::rung;
use crate::node::search::Position;
use crate::node::slotted::NoSpace;
use crate::node::write::NodeMut;
use crate::page::header::{PageKind, set_newest_lsn};
use crate::types::Lsn;
use hedgerow_sync::optimistic::PlainBytes;

/// A leaf of any layout to change.
#[derive(Debug)]
pub struct LeafMut<'a> {
    pub(super) page: &'a mut [u8],
}

impl<'a> LeafMut<'a> {
    /// Wraps a leaf that has passed its check at page-in or was formatted by this build.
    #[inline]
    pub fn new(page: &'a mut [u8]) -> Self {
        LeafMut { page }
    }

    /// Makes an empty comparison or fingerprint leaf out of a page, for keys `lower < key <= upper`
    /// (`None`: without end). Dense leaves are made of records, so for those it is a comparison leaf.
    pub fn format(
        page: &'a mut [u8],
        layout: LeafLayout,
        lower: Option<&[u8]>,
        upper: Option<&[u8]>,
    ) -> Self {
        if layout == LeafLayout::Fingerprint {
            FingerprintLeafMut::format(page, lower, upper);
        } else {
            NodeMut::format(page, PageKind::ComparisonLeaf, 0, lower, upper);
        }
        LeafMut::new(page)
    }

    /// The leaf, to read.
    #[inline]
    pub fn as_leaf(&self) -> Leaf<PlainBytes<'_>> {
        plain_leaf(self.page)
    }

    #[inline(always)]
    pub(super) fn layout(&self) -> LeafLayout {
        if rung::HINTS { LeafLayout::of(self.page) } else { LeafLayout::Comparison }
    }

    /// Notes the LSN of a change of the leaf's records.
    #[inline]
    pub fn stamp(&mut self, lsn: Lsn) {
        set_newest_lsn(self.page, lsn);
    }

    /// Inserts a record; `at` is where [`Leaf::find`] has not found it.
    ///
    /// # Errors
    /// [`NoSpace`] if this leaf does not take it as it is: [`super::remedy`] says what helps.
    #[inline]
    pub fn insert(&mut self, at: Position, key: &[u8], value: &[u8]) -> Result<(), NoSpace> {
        debug_assert!(!at.found);
        match self.layout() {
            LeafLayout::Comparison => NodeMut::new(self.page).insert(at.index, key, value),
            LeafLayout::Fingerprint => FingerprintLeafMut::new(self.page).insert(key, value),
            LeafLayout::SemiDense => {
                DenseMut::<Semi>::new(self.page).insert(key, value).map_err(|_| NoSpace)
            }
            LeafLayout::FullyDense => {
                DenseMut::<Full>::new(self.page).insert(key, value).map_err(|_| NoSpace)
            }
        }
    }

    /// Gives the record at a place another value.
    ///
    /// # Errors
    /// [`NoSpace`] as for [`Self::insert`].
    ///
    /// # Panics
    /// If there is no such record.
    #[inline]
    pub fn update(&mut self, place: usize, value: &[u8]) -> Result<(), NoSpace> {
        match self.layout() {
            LeafLayout::Comparison => NodeMut::new(self.page).update(place, value),
            LeafLayout::Fingerprint => FingerprintLeafMut::new(self.page).update(place, value),
            LeafLayout::SemiDense => {
                DenseMut::<Semi>::new(self.page).update(place, value).map_err(|_| NoSpace)
            }
            LeafLayout::FullyDense => {
                DenseMut::<Full>::new(self.page).update(place, value).map_err(|_| NoSpace)
            }
        }
    }

    /// Removes the record at a place.
    ///
    /// # Panics
    /// If there is no such record.
    #[inline]
    pub fn remove(&mut self, place: usize) {
        match self.layout() {
            LeafLayout::Comparison => NodeMut::new(self.page).remove(place),
            LeafLayout::Fingerprint => FingerprintLeafMut::new(self.page).remove(place),
            LeafLayout::SemiDense => DenseMut::<Semi>::new(self.page).remove(place),
            LeafLayout::FullyDense => DenseMut::<Full>::new(self.page).remove(place),
        }
    }
}
