//! The engine's vocabulary of numbers: newtypes that keep units apart.
//!
//! Rank 1. Plain values, `Copy`, no invariants beyond those stated on each type; all are `Send + Sync`.

use std::fmt;

/// Number of words (8 bytes each) in one part of the page table and of the page map.
pub const PART_WORDS: usize = 512;
/// The first words of each part hold its header on disk, so no page id ever has these low bits.
pub const PART_HEADER_WORDS: usize = 4;
/// Bytes of one part of the page map or of the zone table, on disk and in memory.
pub const PART_BYTES: usize = PART_WORDS * 8;

/// The number of a page, from its creation to its removal. It is not a position in the file. Errors and reports name pages by it.
///
/// `id % 512 >= 4` for every id that is given out, because a block of the page map begins with a header of four words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PageId(pub u32);

impl PageId {
    /// No page. Zero is never given out as an id.
    pub const NONE: PageId = PageId(0);
    internal! {
        /// The root of the catalogue of keyspaces: the first id that is ever given out.
        const CATALOGUE_ROOT: PageId = PageId(PART_HEADER_WORDS as u32);
    }

    /// Index of the table and map part that holds this page's word.
    #[inline]
    pub(crate) const fn part(self) -> usize {
        self.0 as usize / PART_WORDS
    }

    /// Index of this page's word within its part.
    #[inline]
    pub(crate) const fn word(self) -> usize {
        self.0 as usize % PART_WORDS
    }

    internal! {
        /// Whether an id of this value can ever be given out.
        #[inline]
        const fn is_usable(self) -> bool {
            self.word() >= PART_HEADER_WORDS
        }
    }

    internal! {
        /// The next id that may be given out, or `None` at the end of the id space.
        fn next(self) -> Option<PageId> {
            let next = self.0.checked_add(1)?;
            if (next as usize).is_multiple_of(PART_WORDS) {
                Some(PageId(next.checked_add(PART_HEADER_WORDS as u32)?))
            } else {
                Some(PageId(next))
            }
        }
    }
}

impl fmt::Debug for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}", self.0)
    }
}

impl fmt::Display for PageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The name of a tree (one keyspace, or the catalogue). Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct TreeId(pub u32);

impl TreeId {
    /// The catalogue of keyspaces.
    pub const CATALOGUE: TreeId = TreeId(1);
}

/// Number of a checkpoint interval: a page is stamped with the epoch of its last change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch after this one.
    pub const fn next(self) -> Epoch {
        Epoch(self.0 + 1)
    }
}

/// Log sequence number: a position in the log, in bytes since the store was created. No position is used twice, also not after the store
/// was opened again. Zero stands for no log. See [`Database::log_position`](crate::Database::log_position).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct Lsn(pub u64);

impl From<u64> for Lsn {
    fn from(position: u64) -> Lsn {
        Lsn(position)
    }
}

impl From<Lsn> for u64 {
    fn from(lsn: Lsn) -> u64 {
        lsn.0
    }
}

/// The number.
impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Unit in which slots are addressed: 512 bytes.
pub const SLOT_UNIT_BYTES: u64 = 512;

/// Where an image of a page or of a part lies in the file: offset and length in 512-byte units,
/// and 14 bits of its checksum, so that a stale image in a reused slot is noticed.
///
/// Packed into one word: bits 0..40 offset, 40..48 length, 48..62 tag; bits 62..64 are zero, so
/// that the page table has room for a state below a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Slot(u64);

impl Slot {
    /// No slot: the page has no image on disk (length zero).
    pub const NONE: Slot = Slot(0);
    /// Bits of the word that a slot occupies.
    pub const MASK: u64 = (1 << 62) - 1;

    /// Packs a slot. `None` if a field does not fit or an offset or length is not a multiple of
    /// [`SLOT_UNIT_BYTES`].
    pub const fn new(offset_bytes: u64, len_bytes: u64, checksum: u64) -> Option<Slot> {
        let offset = offset_bytes / SLOT_UNIT_BYTES;
        let len = len_bytes / SLOT_UNIT_BYTES;
        if !offset_bytes.is_multiple_of(SLOT_UNIT_BYTES)
            || !len_bytes.is_multiple_of(SLOT_UNIT_BYTES)
            || offset >= 1 << 40
            || len >= 1 << 8
            || len == 0
        {
            return None;
        }
        Some(Slot(offset | len << 40 | (checksum >> 50) << 48))
    }

    /// Reads a slot back from a word; the two top bits are ignored.
    #[inline]
    pub const fn from_word(word: u64) -> Slot {
        Slot(word & Self::MASK)
    }

    /// The packed word, the two top bits zero.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Whether this names no place at all.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.len_bytes() == 0
    }

    /// First byte in the file.
    #[inline]
    pub const fn offset_bytes(self) -> u64 {
        (self.0 & ((1 << 40) - 1)) * SLOT_UNIT_BYTES
    }

    /// Length in bytes.
    #[inline]
    pub const fn len_bytes(self) -> u64 {
        ((self.0 >> 40) & 0xff) * SLOT_UNIT_BYTES
    }

    /// The top 14 bits of the image's checksum.
    #[inline]
    pub const fn tag(self) -> u16 {
        ((self.0 >> 48) & 0x3fff) as u16
    }

    /// Whether an image with this checksum is the one that the slot was made for (but for 1 in 16,384).
    #[inline]
    pub const fn tag_matches(self, checksum: u64) -> bool {
        (checksum >> 50) as u16 == self.tag()
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() {
            return f.write_str("no slot");
        }
        write!(f, "slot {:#x}+{}", self.offset_bytes(), self.len_bytes())
    }
}
/// What a writer is about to do with space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// It may take some.
    Take,
    /// It gives some back, sooner or later.
    GiveBack,
    /// It does again what was let in before a crash.
    Replay,
    /// It is a part of a batch that was let in as a whole, and has reserved its room in the log.
    Finish,
}
