//! The header that every page of the store begins with: 36 bytes, little-endian.
//!
//! ```text
//! offset  size  field
//!      0     8  checksum    XXH3-64 of bytes 8.. of the image, seeded with the page id
//!      8     4  page id
//!     12     4  tree id
//!     16     4  epoch       of the last change
//!     20     2  cut start   in images: where bytes were left out (`space/image.rs`); zero in memory
//!     22     2  cut units   in images: how many, in units of 512 bytes; zero in memory
//!     24     8  newest LSN  of leaves: no record in it was changed later, since the store was opened
//!     32     1  kind
//!     33     1  level       0 is a leaf
//!     34     2  flags       1 in a root whose tree is being freed, else zero
//! ```
//!
//! The node layouts go on from byte [`HEADER_BYTES`]. Functions here take plain byte slices: the
//! caller holds the page, or a private copy of it.

use crate::types::{Epoch, Lsn, PageId, TreeId};

/// Bytes of the common header.
pub const HEADER_BYTES: usize = 36;
/// Smallest page size that the layouts work with. Below 2 KiB is for tests.
pub const MIN_PAGE_BYTES: usize = 512;
/// Largest page size.
pub const MAX_PAGE_BYTES: usize = 64 << 10;

/// Offset of the checksum.
#[cfg(hedgerow_internals)]
pub const CHECKSUM: usize = 0;
/// Offset of the page's own id.
pub const PAGE_ID: usize = 8;
/// Offset of the tree's id.
pub const TREE_ID: usize = 12;
/// Offset of the epoch.
pub const EPOCH: usize = 16;
/// In an image: offset of the place from which bytes were left out.
pub const CUT_START: usize = 20;
/// In an image: offset of their number, in units of 512 bytes.
pub const CUT_UNITS: usize = 22;
/// Offset of the newest LSN.
pub const NEWEST_LSN: usize = 24;
/// Offset of the page kind.
pub const KIND: usize = 32;
/// Offset of the level.
pub const LEVEL: usize = 33;
/// Offset of the flags.
pub const FLAGS: usize = 34;

/// Flag of a root whose tree is being freed: only who frees it goes on from there.
pub const BEING_FREED: u16 = 1;

/// What a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum PageKind {
    /// A page without content: fresh, or freed.
    Free = 0,
    /// An inner node.
    Inner = 1,
    /// A leaf of the comparison layout (slotted, sorted).
    ComparisonLeaf = 2,
    /// A leaf of the fingerprint layout (slotted, found by one-byte hashes).
    FingerprintLeaf = 3,
    /// A leaf of the semi-dense layout: a slot for each number, values of any size on a heap.
    SemiDenseLeaf = 4,
    /// A leaf of the fully dense layout: an array of values of one size.
    FullyDenseLeaf = 5,
}

impl PageKind {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PageKind::Free => "free page",
            PageKind::Inner => "inner node",
            PageKind::ComparisonLeaf => "comparison leaf",
            PageKind::FingerprintLeaf => "fingerprint leaf",
            PageKind::SemiDenseLeaf => "semi-dense leaf",
            PageKind::FullyDenseLeaf => "fully dense leaf",
        }
    }

    /// Reads a kind byte; `None` if this build knows no such kind.
    pub(crate) const fn from_byte(byte: u8) -> Option<PageKind> {
        match byte {
            0 => Some(PageKind::Free),
            1 => Some(PageKind::Inner),
            2 => Some(PageKind::ComparisonLeaf),
            3 => Some(PageKind::FingerprintLeaf),
            4 => Some(PageKind::SemiDenseLeaf),
            5 => Some(PageKind::FullyDenseLeaf),
            _ => None,
        }
    }
}

fn get<const N: usize>(page: &[u8], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&page[at..at + N]);
    bytes
}

/// The page's own id.
pub fn page_id(page: &[u8]) -> PageId {
    PageId(u32::from_le_bytes(get(page, PAGE_ID)))
}

/// The tree that the page belongs to.
pub fn tree_id(page: &[u8]) -> TreeId {
    TreeId(u32::from_le_bytes(get(page, TREE_ID)))
}

/// The epoch of the page's last change.
pub fn epoch(page: &[u8]) -> Epoch {
    Epoch(u32::from_le_bytes(get(page, EPOCH)).into())
}

/// The newest LSN of a leaf: the end of the log's record of the last change of its records. After a split, a merge or another
/// layout it may be larger than that; it only says that nothing in the leaf is newer.
#[cfg(hedgerow_internals)]
pub fn newest_lsn(page: &[u8]) -> Lsn {
    Lsn(u64::from_le_bytes(get(page, NEWEST_LSN)))
}

/// Whether the page is the root of a tree that is being freed.
pub fn is_being_freed(page: &[u8]) -> bool {
    u16::from_le_bytes(get(page, FLAGS)) & BEING_FREED != 0
}

/// Notes in a root that its tree is being freed, under its exclusive latch.
pub fn set_being_freed(page: &mut [u8]) {
    page[FLAGS..FLAGS + 2].copy_from_slice(&BEING_FREED.to_le_bytes());
}

/// Notes the LSN of a change of the leaf's records, under its exclusive latch. They come in order: a change gets its LSN under
/// the latch.
#[inline]
pub fn set_newest_lsn(page: &mut [u8], lsn: Lsn) {
    page[NEWEST_LSN..NEWEST_LSN + 8].copy_from_slice(&lsn.0.to_le_bytes());
}

/// What an image says was left out of it: from which byte on, and how many units of 512 bytes.
pub fn cut(image: &[u8]) -> (usize, usize) {
    let start = u16::from_le_bytes(get(image, CUT_START));
    let units = u16::from_le_bytes(get(image, CUT_UNITS));
    (start.into(), units.into())
}

/// Notes in an image what was left out of it. Both numbers fit 16 bits for every page.
pub fn set_cut(image: &mut [u8], start: usize, units: usize) {
    debug_assert!(start < MAX_PAGE_BYTES && units <= MAX_PAGE_BYTES / 512);
    image[CUT_START..CUT_START + 2].copy_from_slice(&(start as u16).to_le_bytes());
    image[CUT_UNITS..CUT_UNITS + 2].copy_from_slice(&(units as u16).to_le_bytes());
}

/// The kind, if it is one that this build knows.
pub fn kind(page: &[u8]) -> Option<PageKind> {
    PageKind::from_byte(page[KIND])
}

/// The level: 0 for leaves.
pub fn level(page: &[u8]) -> u8 {
    page[LEVEL]
}

/// Writes id and tree of a fresh page; all else of the header becomes zero.
pub fn initialise(page: &mut [u8], id: PageId, tree: TreeId) {
    page[..HEADER_BYTES].fill(0);
    page[PAGE_ID..PAGE_ID + 4].copy_from_slice(&id.0.to_le_bytes());
    page[TREE_ID..TREE_ID + 4].copy_from_slice(&tree.0.to_le_bytes());
}

/// Stamps the page in memory with the epoch of a change. Epochs are below 2^32: the last checkpoint has number 2^31 - 1.
#[inline]
pub fn set_epoch(page: &mut [u8], epoch: Epoch) {
    debug_assert!(epoch.0 <= u32::MAX.into());
    // The cut with it, which is zero in memory: one store.
    page[EPOCH..EPOCH + 8].copy_from_slice(&epoch.0.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_read_as_it_was_written_and_no_other_byte_is_one() {
        for byte in 0..=u8::MAX {
            let kind = PageKind::from_byte(byte);
            assert_eq!(kind.map(|kind| kind as u8), (byte < 6).then_some(byte), "{byte}");
        }
    }
}
