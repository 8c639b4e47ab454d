//! Checksums of what lies in the file: XXH3-64, seeded so that a block which is whole but in the wrong
//! place fails too.
//!
//! Rank 1. Pure functions. The values are part of the file format. They find torn, rotten and
//! misdirected blocks; they do not stop anybody who forges one.

use crate::types::PageId;
#[cfg(fuzzing)]
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use twox_hash::XxHash3_64;

/// Bytes at the start of a page or of a part that hold its checksum, and are not covered by it.
pub const CHECKSUM_BYTES: usize = 8;

/// Which kind of block, other than a page, a checksum is for. The number is the upper half of the
/// seed; page ids fill the lower half alone, so no page passes for a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[non_exhaustive]
pub enum PartKind {
    /// A superblock.
    Superblock = 1,
    /// A part of the page map.
    PageMap = 2,
    /// An upper level of the page map's radix tree.
    PageMapIndex = 3,
    /// A part of the zone table.
    ZoneTable = 4,
}

/// Checksum of the image of page `id`: XXH3-64 of `image[8..]`, seeded with the id. An image too short
/// to hold a checksum counts as empty.
#[inline]
pub fn page_checksum(id: PageId, image: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(u64::from(id.0), covered(image))
}

/// Checksum of the image of a part: XXH3-64 of `image[8..]`, seeded with its kind and index.
#[inline]
pub fn part_checksum(kind: PartKind, index: u32, image: &[u8]) -> u64 {
    let seed = u64::from(kind as u32) << 32 | u64::from(index);
    XxHash3_64::oneshot_with_seed(seed, covered(image))
}

/// The seed of the checksum of a block of a log: of this store, this log of it, and this block.
pub fn log_seed(store_id: &[u8; 16], incarnation: u64, number: u64) -> u64 {
    let mut bytes = [0; 32];
    bytes[..16].copy_from_slice(store_id);
    bytes[16..24].copy_from_slice(&incarnation.to_le_bytes());
    bytes[24..].copy_from_slice(&number.to_le_bytes());
    XxHash3_64::oneshot(&bytes)
}

/// Checksum of a block of a log: XXH3-64 of `block[8..]`, seeded with [`log_seed`].
pub fn block_checksum(seed: u64, block: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, covered(block))
}

/// A number for the name of a file, the same in every process. Not part of the file format.
pub fn name_hash(name: &[u8]) -> u64 {
    XxHash3_64::oneshot(name)
}

fn covered(image: &[u8]) -> &[u8] {
    #[cfg(fuzzing)]
    if !COVERS.load(Relaxed) {
        // So that a fuzzer's damage gets past the checksum, to what lies behind it.
        return &[];
    }
    image.get(CHECKSUM_BYTES..).unwrap_or(&[])
}

#[cfg(fuzzing)]
static COVERS: AtomicBool = AtomicBool::new(false);

/// In a fuzzing build: whether checksums cover anything from here on. They do not unless this says so.
#[cfg(fuzzing)]
pub fn set_covering(on: bool) {
    // Relaxed: between two inputs, when no store is open.
    COVERS.store(on, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 256) as u8).collect()
    }

    #[test]
    fn any_flipped_bit_but_those_of_the_checksum_itself_is_noticed() {
        let mut page = image(4096);
        let sum = page_checksum(PageId(5), &page);
        for bit in 0..4096 * 8 {
            page[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(page_checksum(PageId(5), &page) == sum, bit < 64, "bit {bit}");
            page[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn another_place_or_kind_has_another_checksum() {
        let page = image(4096);
        let mut seen = std::collections::BTreeSet::new();
        for index in 0..1000 {
            assert!(seen.insert(page_checksum(PageId(index), &page)));
            for kind in [
                PartKind::Superblock,
                PartKind::PageMap,
                PartKind::PageMapIndex,
                PartKind::ZoneTable,
            ] {
                assert!(seen.insert(part_checksum(kind, index, &page)));
            }
        }
    }

    #[test]
    fn short_images_are_no_panic() {
        for len in 0..=8 {
            assert_eq!(page_checksum(PageId(4), &image(len)), page_checksum(PageId(4), &[]));
        }
    }
}
