//! Parts of the map and of the zone table in the file: what walking and rewriting the map needs of a [`SlotStore`].
//!
//! Each read, write and look into a bitmap is a call of its own, with nothing locked in between: bitmaps are loaded as they are needed.
//! One thread uses a [`PartFile`]; several may have one each.

use super::map::PartIo;
use super::part::{self, PartBytes};
use super::slot_store::SlotStore;
use crate::error::{ErrorKind, Result};
use crate::storage::AlignedBuffer;
use crate::types::{Epoch, PART_BYTES, PART_HEADER_WORDS, PART_WORDS, Slot};

impl SlotStore {
    /// The durable words of one part of the page table; `None` if the map has no such part.
    pub fn read_map_part(&self, index: usize) -> Result<Option<Box<[u64; PART_WORDS]>>> {
        let leaf = u32::try_from(index).expect("parts are fewer than page ids");
        let mut bytes = part::new_bytes();
        loop {
            let view = self.state().map_view();
            match view.leaf(leaf, &mut PartFile::new(self)?, &mut bytes) {
                Ok(true) => break,
                Ok(false) => return Ok(None),
                // Nothing keeps a checkpoint from becoming durable meanwhile, and the slots of the map
                // that this one walks down from being written again: what looks like damage may be that.
                Err(_) if self.state().checkpoint != view.checkpoint => {}
                Err(error) => return Err(error),
            }
        }
        let mut words = Box::new([0; PART_WORDS]);
        for (index, word) in words[PART_HEADER_WORDS..].iter_mut().enumerate() {
            *word = part::word(&bytes, index);
        }
        Ok(Some(words))
    }
}

/// Parts of the map and of the zone table, read from and written to the file: what walking and
/// rewriting the map needs. Holds one aligned buffer; used by one thread.
pub struct PartFile<'s> {
    slots: &'s SlotStore,
    buffer: AlignedBuffer,
    /// A write has failed, and not for want of room.
    pub has_failed_to_write: bool,
}

impl<'s> PartFile<'s> {
    /// Over the file of `slots`.
    pub fn new(slots: &'s SlotStore) -> Result<PartFile<'s>> {
        let buffer = AlignedBuffer::zeroed(PART_BYTES)?;
        Ok(PartFile { slots, buffer, has_failed_to_write: false })
    }

    /// Makes sure that the bitmaps around a slot are in memory.
    fn load_around(&self, slot: Slot) -> Result<()> {
        let wanted = self.slots.state().zones.group_to_load(slot)?;
        wanted.map_or(Ok(()), |group| self.slots.load_group(group))
    }
}

impl PartIo for PartFile<'_> {
    fn read(&mut self, slot: Slot, out: &mut PartBytes) -> Result<()> {
        let at = slot.offset_bytes();
        let read = self.slots.file().read_at(at, &mut self.buffer);
        read.map_err(|error| error.at_place(None, at))?;
        out.copy_from_slice(&self.buffer);
        Ok(())
    }

    fn allocate(&mut self) -> Result<u64> {
        let offsets = self.slots.allocate(1, PART_BYTES as u64)?;
        Ok(offsets[0])
    }

    fn write(&mut self, offset_bytes: u64, part: &PartBytes) -> Result<()> {
        self.buffer.copy_from_slice(part);
        self.slots.file().write_at(offset_bytes, &self.buffer).inspect_err(|error| {
            self.has_failed_to_write |= error.kind() != ErrorKind::DiskFull;
        })
    }

    fn entered(&mut self, slot: Slot) -> Result<()> {
        self.load_around(slot)?;
        self.slots.state().zones.refer(slot)
    }

    fn left(&mut self, slot: Slot) -> Result<()> {
        self.load_around(slot)?;
        self.slots.state().zones.unrefer(slot)
    }

    fn part_entered(&mut self, slot: Slot) -> Result<()> {
        self.load_around(slot)?;
        self.slots.state().zones.refer_part(slot)
    }

    fn part_left(&mut self, slot: Slot, born: Epoch) -> Result<()> {
        self.load_around(slot)?;
        self.slots.state().zones.unrefer_part(slot, born)
    }
}
