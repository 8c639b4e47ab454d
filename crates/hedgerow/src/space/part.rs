//! The codec of a part: 4 KiB of words, of which the page map and the zone table are built.
//!
//! ```text
//! offset  size  field
//!      0     8  checksum   XXH3-64 of bytes 8.., seeded with kind and index
//!      8     4  magic      "HgPt"
//!     12     1  kind       1 page map, 2 zone table
//!     13     1  level      0 is a leaf
//!     14     2  zero
//!     16     4  index      which part of its level
//!     20     4  zero
//!     24     8  epoch      of the checkpoint that wrote it
//!     32  4064  508 words, little-endian
//! ```
//!
//! A leaf of the map holds the slots of 508 pages, a leaf of the zone table the bitmaps of a group
//! of zones; upper parts hold the slots of their children (the zone table: with a summary each).
//! [`decode`] trusts nothing: a part is read as what its parent says it is or not at all. What the
//! words mean is checked by [`super::map`] and [`super::table`]. Pure functions over byte arrays.

use super::geometry::PART_CONTENT_WORDS;
use crate::checksum::{self, part_checksum};
use crate::error::{Error, Result};
use crate::types::{Epoch, PART_BYTES, PART_HEADER_WORDS, Slot};

/// The bytes of one part.
pub type PartBytes = [u8; PART_BYTES];

/// Most levels of either tree: 508^4 map leaves hold more ids than there are, and 254^4 groups of
/// the smallest zones are more than the longest file has.
pub const MAX_LEVELS: u8 = 5;

const MAGIC: u32 = u32::from_le_bytes(*b"HgPt");
const CHECKSUM: usize = 0;
const MAGIC_AT: usize = 8;
const KIND: usize = 12;
const LEVEL: usize = 13;
const ZERO_A: usize = 14;
const INDEX: usize = 16;
const ZERO_B: usize = 20;
const EPOCH: usize = 24;
const WORDS: usize = 32;

const _: () = assert!(WORDS == PART_HEADER_WORDS * 8);
const _: () = assert!(WORDS + PART_CONTENT_WORDS * 8 == PART_BYTES);
const _: () = assert!(ZERO_A + 2 == INDEX && ZERO_B + 4 == EPOCH && EPOCH + 8 == WORDS);

/// Which tree a part belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum PartKind {
    /// The page map: page id to slot.
    Map = 1,
    /// The zone table: which units of the file a checkpoint uses.
    ZoneTable = 2,
}

/// What a part is: its place in its tree. A part found anywhere else is damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartName {
    /// The tree.
    pub kind: PartKind,
    /// Distance from the leaves.
    pub level: u8,
    /// Which part of its level, from the left.
    pub index: u32,
}

/// A fresh block for a part, zeroed. On the heap: a walk holds one a level.
pub fn new_bytes() -> Box<PartBytes> {
    Box::new([0; PART_BYTES])
}

/// Content word `index` (0 to 507).
#[inline]
pub fn word(part: &PartBytes, index: usize) -> u64 {
    let at = WORDS + index * 8;
    u64::from_le_bytes(get(part, at))
}

/// In which block of so many bytes content word `index` lies, and at which of its bytes. Blocks are of whole words.
pub fn place_of_word(index: usize, block_bytes: usize) -> (usize, usize) {
    let at = WORDS + index * 8;
    (at / block_bytes, at % block_bytes)
}

/// The word at such a place of a block.
#[inline]
pub fn word_at(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"))
}

/// Sets content word `index` (0 to 507).
#[inline]
pub fn set_word(part: &mut PartBytes, index: usize, word: u64) {
    let at = WORDS + index * 8;
    part[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Whether no content word is set.
pub fn is_blank(part: &PartBytes) -> bool {
    part[WORDS..].iter().all(|&byte| byte == 0)
}

/// The checkpoint that wrote a part. Only of a part that passed [`decode`].
pub fn epoch(part: &PartBytes) -> Epoch {
    Epoch(u64::from_le_bytes(get(part, EPOCH)))
}

/// Whether the bytes are a whole part, whichever it is.
pub fn is_whole(part: &PartBytes) -> bool {
    let kind = match part[KIND] {
        1 => PartKind::Map,
        2 => PartKind::ZoneTable,
        _ => return false,
    };
    let index = u32::from_le_bytes(get(part, INDEX));
    let name = PartName { kind, level: part[LEVEL], index };
    u32::from_le_bytes(get(part, MAGIC_AT)) == MAGIC
        && u64::from_le_bytes(get(part, CHECKSUM)) == checksum_of(part, name)
}

/// Writes the header over the first 32 bytes and returns the checksum. The content words stay.
pub fn encode(part: &mut PartBytes, name: PartName, epoch: Epoch) -> u64 {
    part[..WORDS].fill(0);
    part[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(&MAGIC.to_le_bytes());
    part[KIND] = name.kind as u8;
    part[LEVEL] = name.level;
    part[INDEX..INDEX + 4].copy_from_slice(&name.index.to_le_bytes());
    part[EPOCH..EPOCH + 8].copy_from_slice(&epoch.0.to_le_bytes());
    let checksum = checksum_of(part, name);
    part[CHECKSUM..CHECKSUM + 8].copy_from_slice(&checksum.to_le_bytes());
    checksum
}

/// Checks what was read from `slot` as the part `name` of a store whose newest checkpoint is
/// `newest`, and returns the whole checksum.
///
/// Errors: `Corrupted` at the slot's offset: checksum, tag of the parent's word (a stale part in a
/// reused slot), magic, kind, level, index, reserved bytes, or an epoch beyond `newest`.
pub fn decode(part: &PartBytes, name: PartName, slot: Slot, newest: Epoch) -> Result<u64> {
    let damaged = |what: &str| {
        let PartName { kind, level, index } = name;
        let what = format!("part {index} of level {level} of the {}: {what}", kind.words());
        Err(Error::corrupted_at(slot.offset_bytes(), what))
    };
    let checksum = u64::from_le_bytes(get(part, CHECKSUM));
    if checksum != checksum_of(part, name) {
        return damaged("checksum mismatch");
    }
    if !slot.tag_matches(checksum) {
        return damaged("an older image than its parent refers to");
    }
    if u32::from_le_bytes(get(part, MAGIC_AT)) != MAGIC
        || part[KIND] != name.kind as u8
        || part[LEVEL] != name.level
        || u32::from_le_bytes(get(part, INDEX)) != name.index
    {
        return damaged("the header names another part");
    }
    if part[ZERO_A..INDEX].iter().chain(&part[ZERO_B..EPOCH]).any(|&byte| byte != 0) {
        return damaged("reserved bytes are not zero");
    }
    if epoch(part) > newest {
        return damaged("it is newer than the newest checkpoint");
    }
    Ok(checksum)
}

impl PartKind {
    const fn words(self) -> &'static str {
        match self {
            PartKind::Map => "page map",
            PartKind::ZoneTable => "zone table",
        }
    }
}

/// The slot that a part of this checksum has at an offset.
pub fn slot_at(offset_bytes: u64, checksum: u64) -> Slot {
    let slot = Slot::new(offset_bytes, PART_BYTES as u64, checksum);
    assert!(slot.is_some(), "the allocator gave out an offset that no slot can have");
    slot.unwrap_or(Slot::NONE)
}

/// Whether a slot has the length of a part.
pub const fn is_part_slot(slot: Slot) -> bool {
    slot.len_bytes() == PART_BYTES as u64
}

fn checksum_of(part: &PartBytes, name: PartName) -> u64 {
    let kind = match (name.kind, name.level) {
        (PartKind::Map, 0) => checksum::PartKind::PageMap,
        (PartKind::Map, _) => checksum::PartKind::PageMapIndex,
        (PartKind::ZoneTable, _) => checksum::PartKind::ZoneTable,
    };
    part_checksum(kind, name.index, part)
}

fn get<const N: usize>(part: &PartBytes, at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&part[at..at + N]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const NAME: PartName = PartName { kind: PartKind::Map, level: 1, index: 77 };

    fn sample() -> (Box<PartBytes>, Slot) {
        let mut part = new_bytes();
        for i in 0..PART_CONTENT_WORDS {
            set_word(&mut part, i, (i as u64 + 1) * 0x9e37_79b9);
        }
        let checksum = encode(&mut part, NAME, Epoch(9));
        (part, slot_at(1 << 20, checksum))
    }

    #[test]
    fn words_and_header_come_back() {
        let (part, slot) = sample();
        let checksum = decode(&part, NAME, slot, Epoch(9)).unwrap();
        assert!(slot.tag_matches(checksum));
        assert_eq!(epoch(&part), Epoch(9));
        assert_eq!(word(&part, 0), 0x9e37_79b9);
        assert_eq!(word(&part, 507), 508 * 0x9e37_79b9);
        assert!(!is_blank(&part) && is_blank(&new_bytes()));
    }

    #[test]
    fn each_single_byte_flip_is_found() {
        let (mut part, slot) = sample();
        for at in 0..PART_BYTES {
            for flip in [0x01, 0x80, 0xff] {
                part[at] ^= flip;
                let error = decode(&part, NAME, slot, Epoch(9)).unwrap_err();
                assert_eq!(
                    error.kind(),
                    ErrorKind::Corrupted { page: None, offset_bytes: Some(1 << 20) },
                    "byte {at}"
                );
                part[at] ^= flip;
            }
        }
    }

    #[test]
    fn a_part_in_the_wrong_place_is_refused() {
        let (part, slot) = sample();
        let others = [
            PartName { kind: PartKind::ZoneTable, ..NAME },
            PartName { level: 0, ..NAME },
            PartName { index: 78, ..NAME },
        ];
        for other in others {
            assert!(decode(&part, other, slot, Epoch(9)).is_err(), "{other:?}");
        }
        assert!(decode(&part, NAME, slot, Epoch(8)).is_err(), "from the future");
        let stale = slot_at(slot.offset_bytes(), !0);
        assert!(decode(&part, NAME, stale, Epoch(9)).is_err(), "tag");
    }

    #[test]
    fn a_header_that_lies_under_a_right_checksum_is_refused() {
        for at in [MAGIC_AT, KIND, LEVEL, ZERO_A, INDEX, ZERO_B] {
            let (mut part, _) = sample();
            part[at] ^= 1;
            let checksum = checksum_of(&part, NAME);
            part[..8].copy_from_slice(&checksum.to_le_bytes());
            let slot = slot_at(1 << 20, checksum);
            assert!(decode(&part, NAME, slot, Epoch(9)).is_err(), "byte {at}");
        }
    }
}
