//! Parts of the map and of the zone table in the file: what walking and rewriting the map needs of a [`SlotStore`].
//!
//! Each read, write and look into a bitmap is a call of its own, with nothing locked in between: bitmaps are loaded as they are needed.
//! A checkpoint, which rewrites many, reads and writes them together, in memory that it has for that ([`PartFile::batched`]).
//! One thread uses a [`PartFile`]; several may have one each.

use super::map::PartIo;
use super::part::{self, PartBytes};
use super::slot_store::SlotStore;
use crate::error::{ErrorKind, Result};
use crate::storage::{AlignedBuffer, ReadRequest, WriteRequest};
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

/// The most parts that are read, or written, together.
const BATCH: usize = 64;

/// Parts that are read ahead, and parts that are not written yet.
struct Batch<'b> {
    to_read: &'b mut [u8],
    /// What lies there, part by part.
    read: Vec<Slot>,
    /// What is read next.
    soon: std::vec::IntoIter<Slot>,
    to_write: &'b mut [u8],
    /// Where the parts there go.
    offsets: Vec<u64>,
}

/// Parts of the map and of the zone table, read from and written to the file: what walking and
/// rewriting the map needs. Holds one aligned buffer; used by one thread.
pub struct PartFile<'s> {
    slots: &'s SlotStore,
    buffer: AlignedBuffer,
    batch: Option<Batch<'s>>,
    /// A write has failed, and not for want of room.
    pub has_failed_to_write: bool,
}

impl<'s> PartFile<'s> {
    /// Over the file of `slots`.
    pub fn new(slots: &'s SlotStore) -> Result<PartFile<'s>> {
        let buffer = AlignedBuffer::zeroed(PART_BYTES)?;
        Ok(PartFile { slots, buffer, batch: None, has_failed_to_write: false })
    }

    /// The same, with aligned memory for parts that are read and written together. [`Self::flush`] writes the last ones.
    pub fn batched(slots: &'s SlotStore, memory: &'s mut [u8]) -> Result<PartFile<'s>> {
        let half_bytes = (memory.len() / 2 / PART_BYTES).min(BATCH) * PART_BYTES;
        let (to_read, rest) = memory.split_at_mut(half_bytes);
        let to_write = &mut rest[..half_bytes];
        let soon = Vec::new().into_iter();
        let batch = Batch { to_read, read: Vec::new(), soon, to_write, offsets: Vec::new() };
        let batch = (half_bytes > 0).then_some(batch);
        Ok(PartFile { batch, ..PartFile::new(slots)? })
    }

    /// Writes what was put off.
    pub fn flush(&mut self) -> Result<()> {
        let Some(batch) = &mut self.batch else { return Ok(()) };
        let parts = batch.offsets.drain(..).zip(batch.to_write.chunks_exact(PART_BYTES));
        let requests: Vec<WriteRequest<'_>> =
            parts.map(|(offset_bytes, buf)| WriteRequest { offset_bytes, buf }).collect();
        self.slots.file().write_batch(&requests).inspect_err(|error| {
            self.has_failed_to_write |= error.kind() != ErrorKind::DiskFull;
        })
    }

    /// A part that was read with others, or is read with them now; `None`: it is not one of those, or they were not read.
    fn read_together(&mut self, slot: Slot) -> Option<&[u8]> {
        let batch = self.batch.as_mut()?;
        if !batch.read.contains(&slot) && batch.soon.as_slice().first() == Some(&slot) {
            let most = batch.to_read.len() / PART_BYTES;
            batch.read = batch.soon.by_ref().take(most).collect();
            let parts = batch.read.iter().zip(batch.to_read.chunks_exact_mut(PART_BYTES));
            let mut requests: Vec<ReadRequest<'_>> =
                parts.map(|(slot, buf)| ReadRequest::new(slot.offset_bytes(), buf)).collect();
            self.slots.file().read_batch(&mut requests);
            let results: Vec<bool> = requests.iter().map(|read| read.result.is_ok()).collect();
            for (slot, is_read) in batch.read.iter_mut().zip(results) {
                // It is read again by itself, which tells why it cannot be.
                *slot = if is_read { *slot } else { Slot::NONE };
            }
        }
        let at = batch.read.iter().position(|read| *read == slot)?;
        batch.to_read.chunks_exact(PART_BYTES).nth(at)
    }

    /// Makes sure that the bitmaps around a slot are in memory.
    fn load_around(&self, slot: Slot) -> Result<()> {
        let wanted = self.slots.state().zones.group_to_load(slot)?;
        wanted.map_or(Ok(()), |group| self.slots.load_group(group))
    }
}

impl PartIo for PartFile<'_> {
    fn read(&mut self, slot: Slot, out: &mut PartBytes) -> Result<()> {
        if let Some(part) = self.read_together(slot) {
            out.copy_from_slice(part);
            return Ok(());
        }
        let at = slot.offset_bytes();
        let read = self.slots.file().read_at(at, &mut self.buffer);
        read.map_err(|error| error.at_place(None, at))?;
        out.copy_from_slice(&self.buffer);
        Ok(())
    }

    fn read_soon(&mut self, slots: &[Slot]) {
        if let Some(batch) = &mut self.batch {
            let slots: Vec<Slot> = slots.iter().copied().filter(|slot| !slot.is_none()).collect();
            batch.soon = slots.into_iter();
        }
    }

    fn allocate(&mut self) -> Result<u64> {
        let offsets = self.slots.allocate(1, PART_BYTES as u64)?;
        Ok(offsets[0])
    }

    fn write(&mut self, offset_bytes: u64, part: &PartBytes) -> Result<()> {
        if let Some(batch) = &mut self.batch {
            let at = batch.offsets.len() * PART_BYTES;
            batch.to_write[at..at + PART_BYTES].copy_from_slice(part);
            batch.offsets.push(offset_bytes);
            let is_full = at + PART_BYTES == batch.to_write.len();
            return if is_full { self.flush() } else { Ok(()) };
        }
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
