//! Reading in a pinned checkpoint, beside the store that goes on: what snapshots read that were taken over by it.
//!
//! A page id is looked up in the pinned page map, part by part from its root, and the image in the slot is read, checked as any image
//! is, and looked at. The page table and the pages in frames, which are newer, are not asked. What was read is kept in frames
//! beside the pages, as pieces of large values are (`pieces.rs`): named by two seeds of the pin, one for pages and one
//! for parts of the map, and by a number. Such a frame is clean, and goes when the clock comes by, so that a pin takes no memory from the
//! store that the store has better use for, and needs none: a read that finds nothing in memory has one page and one part in memory of its
//! own while it lasts.
//!
//! Invariants: what is read was checked by its checksum, against its name, and as what it is; while a [`PinnedCheckpoint`] lives, no
//! slot that it refers to changes (`space/pin.rs`), and what frames have under its seeds is of these slots. `Send + Sync`.

use crate::buffer::large::PieceName;
use crate::buffer::pinned::PinnedCheckpoint;
use crate::buffer::pool::BufferPool;
use crate::error::Result;
use crate::page::FrozenPages;
use crate::space::large::chunk_bytes;
use crate::space::part::{self, PartName};
use crate::space::part_file::PartFile;
use crate::storage::AlignedBuffer;
use crate::types::{PART_BYTES, PageId, Slot};
use std::fmt;

impl PinnedCheckpoint {
    /// Its pages, as a pool of the same store reads them.
    pub fn pages<'p>(&'p self, pool: &'p BufferPool) -> PinnedPages<'p> {
        PinnedPages { pin: self, pool }
    }
}

/// The pages of a pinned checkpoint. Errors of reads: those of the file; `Corrupted`; `Closed`; `MemoryLimit`.
#[derive(Clone, Copy)]
pub struct PinnedPages<'p> {
    pin: &'p PinnedCheckpoint,
    pool: &'p BufferPool,
}

impl fmt::Debug for PinnedPages<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinnedPages").field("pin", &self.pin).finish_non_exhaustive()
    }
}

/// Of all frames, how many pages are read ahead at most.
const AHEAD_PART: usize = 16;

impl PinnedPages<'_> {
    /// Under which a page is kept.
    fn name(&self, id: PageId) -> PieceName {
        PieceName { seed: self.pin.page_seed, number: id.0 }
    }

    /// A word of a part of the map. What is kept is the part, or the block of a page's length of it that has the word.
    fn word(&self, name: PartName, slot: Slot, at: usize) -> Result<u64> {
        let block_bytes = self.page_bytes().min(PART_BYTES);
        let (block, offset) = part::place_of_word(at, block_bytes);
        // The levels are four at most, and the blocks of a part eight.
        let number = (name.index << 3 | block as u32) << 2 | u32::from(name.level);
        let kept = PieceName { seed: self.pin.part_seed, number };
        if let Ok(word) = self.pool.look_at_piece(kept, |bytes| part::word_at(bytes, offset)) {
            return Ok(word);
        }
        let mut bytes = part::new_bytes();
        let mut file = PartFile::new(self.pin.slots.slots())?;
        let read = self.pin.map.read_part(name, slot, &mut file, &mut bytes);
        self.check_open()?;
        read?;
        self.pool.keep_piece(kept, &bytes[block * block_bytes..(block + 1) * block_bytes]);
        Ok(part::word(&bytes, at))
    }

    /// After a read, too: whoever closes unlocks the file, and somebody else may have written to it meanwhile.
    fn check_open(&self) -> Result<()> {
        self.pool.check_open()
    }
}

impl FrozenPages for PinnedPages<'_> {
    fn page_bytes(&self) -> usize {
        self.pin.slots.slots().page_bytes()
    }

    fn read(&self, id: PageId, look: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.check_open()?;
        let kept = self.name(id);
        let Err(look) = self.pool.look_at_piece(kept, look) else { return Ok(true) };
        let slot = self.pin.map.slot_of(id, &mut |name, slot, at| self.word(name, slot, at))?;
        if slot.is_none() {
            return Ok(false);
        }
        let mut page = AlignedBuffer::zeroed(self.page_bytes())?;
        let read = self.pin.slots.slots().read_pages(&[(id, slot)], &mut page);
        self.check_open()?;
        read.into_iter().collect::<Result<()>>()?;
        self.pool.keep_piece(kept, &page);
        look(&page);
        Ok(true)
    }

    fn read_ahead(&self, ids: &[PageId]) -> usize {
        let Some(&first) = ids.first() else { return 0 };
        if self.pool.has_piece(self.name(first)) {
            return ids.len();
        }
        let slots = self.pin.slots.slots();
        // No more than stay until the scan comes to them.
        let most = ids.len().min(self.pool.frames() as usize / AHEAD_PART);
        let bytes = most * self.page_bytes();
        let chunks = bytes.div_ceil(chunk_bytes(slots.geometry()) as usize);
        let Some(mut loan) = slots.lend_free(chunks) else { return 0 };
        let most = most.min(loan.len() / self.page_bytes());
        let slot_of = |id: PageId| {
            let slot = self.pin.map.slot_of(id, &mut |name, slot, at| self.word(name, slot, at));
            slot.ok().filter(|slot| !slot.is_none())
        };
        let absent = ids[..most].iter().filter(|id| !self.pool.has_piece(self.name(**id)));
        let pages: Vec<(PageId, Slot)> =
            absent.map_while(|id| Some((*id, slot_of(*id)?))).collect();
        let read = slots.read_pages(&pages, &mut loan);
        if self.check_open().is_err() {
            return 0;
        }
        for (((id, _), page), read) in
            pages.iter().zip(loan.chunks_exact(self.page_bytes())).zip(read)
        {
            if read.is_ok() {
                self.pool.keep_piece(self.name(*id), page);
            }
        }
        ids[..most].iter().take_while(|&&id| self.pool.has_piece(self.name(id))).count()
    }
}
