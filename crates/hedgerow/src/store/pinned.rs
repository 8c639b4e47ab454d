//! Reading in a pinned checkpoint, beside the store that goes on: what snapshots read that were taken over by it.
//!
//! A page id is looked up in the pinned page map, part by part from its root, and the image in the slot is read, checked as any image
//! is, and looked at. The page table and the pages in frames, which are newer, are not asked. What was read is kept in frames
//! beside the pages, as pieces of large values are (`buffer/pieces.rs`): named by two seeds of the pin, one for pages and one
//! for parts of the map, and by a number. Such a frame is clean, and goes when the clock comes by, so that a pin takes no memory from the
//! store that the store has better use for, and needs none: a read that finds nothing in memory has one page and one part in memory of its
//! own while it lasts.
//!
//! Invariants: what is read was checked by its checksum, against its name, and as what it is; while a [`PinnedCheckpoint`] lives, no
//! slot that it refers to changes (`pin.rs`), and what frames have under its seeds is of these slots. `Send + Sync`. Dropping one gives
//! slots back, in pieces, which may take long if it was pinned for long: to be done with nothing held.

use super::pin::Pin;
use super::superblock::EXTENTS;
use crate::buffer::{BufferPool, PieceName};
use crate::error::Result;
use crate::space::map::MapView;
use crate::space::part::{self, PartName};
use crate::space::slot_store::PartFile;
use crate::storage::AlignedBuffer;
use crate::tree::{FrozenLeaf, FrozenPages, FrozenTree};
use crate::types::{Lsn, PART_BYTES, PageId, Slot, TreeId};
use hedgerow_sync::primitive::canary::leaves_out;
use hedgerow_sync::primitive::{Arc, random};
use std::fmt;
use std::ops::Bound;

/// A checkpoint that stays readable. See the head of the file.
pub struct PinnedCheckpoint {
    pin: Pin,
    map: MapView,
    pool: Arc<BufferPool>,
    page_seed: u64,
    part_seed: u64,
}

impl fmt::Debug for PinnedCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedCheckpoint").field("cut", &self.cut()).finish_non_exhaustive()
    }
}

/// Errors of reads: those of the file; `Corrupted`; `Closed`; `MemoryLimit`; `KeyspaceDropped` if the checkpoint has no such tree.
impl PinnedCheckpoint {
    /// What the pin keeps, which is of a store with this pool.
    pub(super) fn new(pin: Pin, pool: Arc<BufferPool>) -> PinnedCheckpoint {
        let (page_seed, part_seed) = (random::seed(), random::seed());
        PinnedCheckpoint { map: pin.map_view(), pin, pool, page_seed, part_seed }
    }

    /// Its cut: it has the changes with LSNs up to this one, and no other.
    pub fn cut(&self) -> Lsn {
        self.pin.superblock().log_end
    }

    /// Whether a value in a leaf may be in a stored form.
    pub fn has_stored_forms(&self) -> bool {
        self.pin.superblock().incompat & EXTENTS != 0
    }

    /// Appends the value of `key`, as its leaf has it, to `to`. False: the tree has no such record.
    ///
    /// # Errors
    /// Those of reads.
    pub fn get(&self, tree: TreeId, root: PageId, key: &[u8], to: &mut Vec<u8>) -> Result<bool> {
        FrozenTree::new(self, tree, root).get(key, to)
    }

    /// Loads the leaf that has the next records of a tree from a bound on, up or down, into `leaf`. It may have none, and the scan goes
    /// on at its [edge](FrozenLeaf::edge).
    ///
    /// # Errors
    /// Those of reads.
    pub fn load_leaf(
        &self,
        tree: TreeId,
        root: PageId,
        from: Bound<&[u8]>,
        forward: bool,
        leaf: &mut FrozenLeaf,
    ) -> Result<()> {
        FrozenTree::new(self, tree, root).load(from, forward, leaf)
    }

    /// A word of a part of the map. What is kept is the part, or the block of a page's length of it that has the word.
    fn word(&self, name: PartName, slot: Slot, at: usize) -> Result<u64> {
        let block_bytes = self.page_bytes().min(PART_BYTES);
        let (block, offset) = part::place_of_word(at, block_bytes);
        // The levels are four at most, and the blocks of a part eight.
        let number = (name.index << 3 | block as u32) << 2 | u32::from(name.level);
        let kept = PieceName { seed: self.part_seed, number };
        if let Ok(word) = self.pool.look_at_piece(kept, |bytes| part::word_at(bytes, offset)) {
            return Ok(word);
        }
        let mut bytes = part::new_bytes();
        let mut file = PartFile::new(self.pin.slots())?;
        let read = self.map.read_part(name, slot, &mut file, &mut bytes);
        self.check_open()?;
        read?;
        self.pool.keep_piece(kept, &bytes[block * block_bytes..(block + 1) * block_bytes]);
        Ok(part::word(&bytes, at))
    }

    /// After a read, too: whoever closes unlocks the file, and somebody else may have written to it meanwhile.
    fn check_open(&self) -> Result<()> {
        if leaves_out("pin_read_after_close") { Ok(()) } else { self.pool.check_open() }
    }
}

impl FrozenPages for PinnedCheckpoint {
    fn page_bytes(&self) -> usize {
        self.pin.slots().page_bytes()
    }

    fn read(&self, id: PageId, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.check_open()?;
        let kept = PieceName { seed: self.page_seed, number: id.0 };
        let Err(look) = self.pool.look_at_piece(kept, look) else { return Ok(true) };
        let slot = self.map.slot_of(id, &mut |name, slot, at| self.word(name, slot, at))?;
        if slot.is_none() {
            return Ok(false);
        }
        let mut page = AlignedBuffer::zeroed(self.page_bytes())?;
        let read = self.pin.slots().read_pages(&[(id, slot)], &mut page);
        self.check_open()?;
        read.into_iter().collect::<Result<()>>()?;
        self.pool.keep_piece(kept, &page);
        look(&page);
        Ok(true)
    }
}
