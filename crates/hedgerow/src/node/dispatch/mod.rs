//! Leaves of any layout: the one place that lists them.
//!
//! [`Leaf`] reads and [`LeafMut`] changes, whatever the page's kind says; splits and merges of leaves
//! of any layouts are in `split` and `merge`, conversions between all of them in `convert`. Which
//! layout a leaf *should* have is decided elsewhere (`super::policy`).
//!
//! Records are addressed by *place*: the index of a record in a comparison leaf, of slot and
//! fingerprint in a fingerprint leaf, the number of a slot in a dense one. In a leaf that
//! [`Leaf::is_in_order`] places ascend with the keys; in a dense leaf not every place has a record. The
//! lower rungs of the ladder know comparison leaves alone, so that the choice vanishes there.
//!
//! Views are total and `Copy`, as those that they stand for; as thread-safe as the bytes under them.

mod bulk;
mod change;
mod convert;
mod cursor;
mod merge;
mod split;
mod spread;
#[cfg(test)]
mod tests;

pub use bulk::LeafBuilder;
pub use change::LeafMut;
pub use convert::convert;
pub use merge::{merge_leaf_space, merge_leaves};
pub(crate) use split::SLOT_SLACK_BYTES;
pub use split::{Adapted, LeafSplit, Remedy, adapt, remedy, split_between};
pub use spread::{Spread, spread_leaves};

use super::dense::{DenseNode, Full, Semi};
use super::fingerprint::FingerprintLeaf;
use super::read::Node;
use super::rung;
use super::search::Position;
use crate::page::header::{KIND, PageKind};
use hedgerow_sync::optimistic::{Copied, PageBytes, PlainBytes};

/// How a leaf stores and finds its records. [`Options::leaves`](crate::Options::leaves) can fix it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum LeafLayout {
    /// Sorted records, found by binary search. Suits scans and keys of any kind ("B-Trees Are Back", section 3.3).
    Comparison,
    /// Unsorted records, found by one-byte hashes. Suits look-ups of long keys (section 3.4).
    Fingerprint,
    /// A slot for each number in the key range, with values of any size. Suits numeric keys with few gaps (section 3.5).
    SemiDense,
    /// An array of values of one size, indexed by the key. Suits numeric keys with few gaps (section 3.5).
    FullyDense,
}

impl LeafLayout {
    /// All layouts, in the order of their page kinds.
    pub const ALL: [LeafLayout; 4] = [
        LeafLayout::Comparison,
        LeafLayout::Fingerprint,
        LeafLayout::SemiDense,
        LeafLayout::FullyDense,
    ];

    /// The layout of a leaf; that of a page which is no leaf means nothing.
    pub(crate) fn of(page: &[u8]) -> LeafLayout {
        LeafLayout::of_kind(page[KIND])
    }

    /// The layout for a kind byte.
    #[inline(always)]
    pub(crate) fn of_kind(kind: u8) -> LeafLayout {
        const FINGERPRINT: u8 = PageKind::FingerprintLeaf as u8;
        const SEMI: u8 = PageKind::SemiDenseLeaf as u8;
        const FULL: u8 = PageKind::FullyDenseLeaf as u8;
        match kind {
            FINGERPRINT => LeafLayout::Fingerprint,
            SEMI => LeafLayout::SemiDense,
            FULL => LeafLayout::FullyDense,
            _ => LeafLayout::Comparison,
        }
    }

    /// What a page of this layout says that it is.
    #[cfg(hedgerow_internals)]
    #[doc(hidden)]
    pub fn kind(self) -> PageKind {
        match self {
            LeafLayout::Comparison => PageKind::ComparisonLeaf,
            LeafLayout::Fingerprint => PageKind::FingerprintLeaf,
            LeafLayout::SemiDense => PageKind::SemiDenseLeaf,
            LeafLayout::FullyDense => PageKind::FullyDenseLeaf,
        }
    }

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            LeafLayout::Comparison => "comparison",
            LeafLayout::Fingerprint => "fingerprint",
            LeafLayout::SemiDense => "semi-dense",
            LeafLayout::FullyDense => "fully dense",
        }
    }

    /// Whether places are slots, some of which have no record.
    #[inline(always)]
    pub fn is_dense(self) -> bool {
        matches!(self, LeafLayout::SemiDense | LeafLayout::FullyDense)
    }
}

/// The [name](LeafLayout::name).
impl std::fmt::Display for LeafLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A leaf of any layout to read from.
#[derive(Clone, Copy, Debug)]
pub enum Leaf<B> {
    /// See [`LeafLayout::Comparison`].
    Comparison(Node<B>),
    /// See [`LeafLayout::Fingerprint`].
    Fingerprint(FingerprintLeaf<B>),
    /// See [`LeafLayout::SemiDense`].
    SemiDense(DenseNode<B, Semi>),
    /// See [`LeafLayout::FullyDense`].
    FullyDense(DenseNode<B, Full>),
}

/// Does the same with a leaf of each layout.
macro_rules! each {
    ($leaf:expr, $view:ident => $do:expr) => {
        match $leaf {
            Leaf::Comparison($view) => $do,
            Leaf::Fingerprint($view) => $do,
            Leaf::SemiDense($view) => $do,
            Leaf::FullyDense($view) => $do,
        }
    };
}

impl<B: PageBytes> Leaf<B> {
    /// Views bytes as a leaf. Nothing is checked: any other page is taken for a comparison leaf.
    #[inline(always)]
    pub fn new(bytes: B) -> Self {
        if !rung::HINTS {
            return Leaf::Comparison(Node::new(bytes));
        }
        match LeafLayout::of_kind(bytes.field_u8::<{ KIND }>()) {
            LeafLayout::Comparison => Leaf::Comparison(Node::new(bytes)),
            LeafLayout::Fingerprint => Leaf::Fingerprint(FingerprintLeaf::new(bytes)),
            LeafLayout::SemiDense => Leaf::SemiDense(DenseNode::new(bytes)),
            LeafLayout::FullyDense => Leaf::FullyDense(DenseNode::new(bytes)),
        }
    }

    /// Which layout it is.
    #[inline(always)]
    pub fn layout(&self) -> LeafLayout {
        match self {
            Leaf::Comparison(_) => LeafLayout::Comparison,
            Leaf::Fingerprint(_) => LeafLayout::Fingerprint,
            Leaf::SemiDense(_) => LeafLayout::SemiDense,
            Leaf::FullyDense(_) => LeafLayout::FullyDense,
        }
    }

    /// What is the same in all layouts: header, fences and prefix. Its records mean nothing.
    #[inline(always)]
    pub fn as_node(&self) -> Node<B> {
        each!(self, leaf => Node::new(leaf.bytes()))
    }

    /// Number of records.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.as_node().count()
    }

    /// Finds a key: its place, or one that [`LeafMut::insert`] wants to know.
    ///
    /// The key must have reached this leaf by traversal, so that it has the leaf's prefix; otherwise the
    /// result is some place.
    #[inline(always)]
    pub fn find(&self, key: &[u8]) -> Position {
        let place = match self {
            Leaf::Comparison(leaf) => return leaf.search(key),
            Leaf::Fingerprint(leaf) => leaf.find(key),
            Leaf::SemiDense(leaf) => leaf.find(key),
            Leaf::FullyDense(leaf) => leaf.find(key),
        };
        Position { index: place.unwrap_or(0), found: place.is_some() }
    }

    /// Appends the key at a place to `out`.
    pub fn append_key(&self, place: usize, out: &mut Vec<u8>) {
        each!(self, leaf => leaf.append_key(place, out))
    }

    /// Bytes of the value at a place.
    #[inline]
    pub fn value_len(&self, place: usize) -> usize {
        each!(self, leaf => leaf.value_len(place))
    }

    /// Appends the value at a place to `out`.
    #[inline(always)]
    pub fn append_value(&self, place: usize, out: &mut Vec<u8>) {
        each!(self, leaf => leaf.append_value(place, out))
    }

    /// Copies the value at a place.
    #[inline(always)]
    pub fn copy_value(&self, place: usize, out: &mut Copied) {
        each!(self, leaf => leaf.copy_value(place, out))
    }

    /// Whether the value at a place is `value`.
    #[inline]
    pub fn value_equals(&self, place: usize, value: &[u8]) -> bool {
        each!(self, leaf => leaf.value_equals(place, value))
    }

    /// Asks the memory for the record at a place.
    #[inline(always)]
    pub fn prefetch_record(&self, place: usize) {
        each!(self, leaf => leaf.prefetch_record(place))
    }

    /// Bytes of the key at a place, prefix included.
    pub fn key_len(&self, place: usize) -> usize {
        match self {
            Leaf::Comparison(leaf) => leaf.key_len(place),
            Leaf::Fingerprint(leaf) => leaf.key_len(place),
            Leaf::SemiDense(leaf) => leaf.key_len(),
            Leaf::FullyDense(leaf) => leaf.key_len(),
        }
    }

    /// Whether the leaf takes a record with this key and a value of so many bytes as it is. Rather no than
    /// yes: a yes must hold when it is used.
    pub fn has_room(&self, key: &[u8], value_len: usize) -> bool {
        match self {
            Leaf::Comparison(leaf) => leaf.free_bytes() >= key.len() + value_len + SLOT_SLACK_BYTES,
            Leaf::Fingerprint(leaf) => leaf.has_room(key, value_len),
            Leaf::SemiDense(leaf) => leaf.has_room(key, value_len),
            Leaf::FullyDense(leaf) => leaf.has_room(key, value_len),
        }
    }

    /// Bytes of records as stored: values, and what the layout keeps of the keys.
    pub fn payload_bytes(&self) -> usize {
        each!(self, leaf => leaf.payload_bytes())
    }

    /// Bytes of the page that are in use, once compacted; of a dense leaf without the slots that have no
    /// record.
    pub fn used_bytes(&self) -> usize {
        each!(self, leaf => leaf.used_bytes())
    }

    /// Whether there is more room than records, which take so many bytes, slots included. In a dense leaf:
    /// more slots without a record than with one.
    #[inline]
    pub fn is_half_empty(&self, record_bytes: usize) -> bool {
        match self {
            Leaf::SemiDense(leaf) => 2 * leaf.count() < leaf.capacity(),
            Leaf::FullyDense(leaf) => 2 * leaf.count() < leaf.capacity(),
            _ => record_bytes < self.free_bytes(),
        }
    }

    /// Bytes of the page that are not in use.
    pub fn free_bytes(&self) -> usize {
        each!(self, leaf => leaf.free_bytes())
    }
}

/// A view of a leaf that nobody changes.
#[inline(always)]
pub fn plain_leaf(page: &[u8]) -> Leaf<PlainBytes<'_>> {
    Leaf::new(PlainBytes::new(page))
}
