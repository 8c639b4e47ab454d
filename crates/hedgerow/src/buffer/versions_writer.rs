//! Old versions of records on their way into the file: a part is written, block by block, into extents that no record refers to.
//!
//! A failed write leaves the versions in memory, and what was written is given back: nobody refers to it, so it makes nobody else's change doubtful.
//!
//! What a part is, and how it is read, is in `frozen_versions.rs`. Used by one thread.

use crate::buffer::frozen_versions::{Blocks, COUNT_AT, FrozenVersions, HEAD_BYTES, Kept, USED_AT};
use crate::buffer::large::PieceName;
use crate::buffer::pool::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::large::MAX_RUNS;
use crate::page::Frames;
use crate::space::large::seal_chunk;
use crate::space::slot_store::SlotStore;
use crate::types::Purpose;
use crate::versions::{Freezer, Sorted};
use hedgerow_sync::primitive::process::Process;
use hedgerow_sync::primitive::{Arc, random};

impl Kept for BufferPool {
    fn check(&self) -> Result<()> {
        self.check_open()
    }

    fn most_bytes(&self) -> usize {
        self.page_bytes()
    }

    fn look(&self, name: PieceName, look: &mut dyn FnMut(&[u8])) -> bool {
        self.look_at_piece(name, |bytes| look(bytes)).is_ok()
    }

    fn keep(&self, name: PieceName, block: &[u8]) {
        self.keep_piece(name, block);
    }
}

/// Writes a part, with a buffer of whole blocks. What it has written goes with it, unless it comes to its end.
pub struct VersionsWriter<'w> {
    pool: &'w BufferPool,
    part: FrozenVersions,
    buffer: &'w mut [u8],
}

impl<'w> VersionsWriter<'w> {
    /// Bytes of a block of a store.
    pub fn block_bytes(pool: &BufferPool, slots: &SlotStore) -> usize {
        pool.page_bytes().max(slots.geometry().unit_bytes() as usize)
    }

    /// Into the file of `slots`. The buffer is aligned, and holds at least one block.
    pub fn new(
        pool: &'w Arc<BufferPool>,
        slots: &Arc<SlotStore>,
        process: Process,
        buffer: &'w mut [u8],
    ) -> VersionsWriter<'w> {
        let block_bytes = Self::block_bytes(pool, slots);
        let kept: Arc<dyn Kept> = pool.clone();
        let part = FrozenVersions {
            kept: Arc::downgrade(&kept),
            slots: slots.clone(),
            process,
            block_bytes,
            extents: Vec::new(),
            blocks: 0,
        };
        VersionsWriter { pool, part, buffer }
    }

    /// Writes the first blocks of the buffer, from block `number` of the newest extent on.
    fn write_out(&mut self, number: u32, count: u32) -> Result<()> {
        let (block_bytes, mut done) = (self.part.block_bytes, 0);
        let extent = self.part.extents.last().expect("there is one to write to");
        let _writing = self.part.slots.enter_file()?;
        self.pool.check_poison()?;
        while done < count {
            let (offset, follow) = self.part.place(extent, number + done);
            let together = (count - done).min(follow + 1);
            let from = done as usize * block_bytes;
            let bytes = &mut self.buffer[from..from + together as usize * block_bytes];
            for (next, block) in (number + done..).zip(bytes.chunks_mut(block_bytes)) {
                seal_chunk(extent.seed, u64::from(next), block);
            }
            self.part.slots.file().write_at(offset, bytes)?;
            done += together;
        }
        Ok(())
    }
}

/// How many records come into the next block.
fn fill<'s>(
    block_bytes: usize,
    records: &mut std::iter::Peekable<impl Iterator<Item = &'s [u8]>>,
    mut take: impl FnMut(usize, &[u8]),
) -> (usize, u32) {
    let (mut used, mut count) = (HEAD_BYTES, 0);
    while let Some(record) = records.next_if(|record| used + record.len() <= block_bytes) {
        take(used, record);
        used += record.len();
        count += 1;
    }
    (used, count)
}

impl Freezer for VersionsWriter<'_> {
    type Part = FrozenVersions;

    fn write(&mut self, versions: &Sorted<'_>) -> Result<()> {
        let block_bytes = self.part.block_bytes;
        let bytes = || versions.iter().map(|(_, bytes)| bytes).peekable();
        let (mut records, mut blocks) = (bytes(), 0);
        while records.peek().is_some() {
            fill(block_bytes, &mut records, |_, _| {});
            blocks += 1;
        }
        let first = self.part.blocks;
        let end = first.checked_add(blocks).ok_or_else(|| {
            Error::new(ErrorKind::MemoryLimit, "more old versions than a part can have")
        })?;
        let refused = |_| Error::new(ErrorKind::MemoryLimit, "no memory to note an extent");
        self.part.extents.try_reserve(1).map_err(refused)?;
        let slots = &self.part.slots;
        let units = u64::from(blocks) * u64::from(self.part.units_each());
        let keep = || slots.needed(self.pool.images_to_write(), Purpose::Take);
        let runs = slots.allocate_extent(units, MAX_RUNS, keep)?;
        self.part.extents.push(Blocks { runs, seed: random::seed(), first });
        let mut records = bytes();
        let (mut number, mut count) = (0, 0);
        while records.peek().is_some() {
            let from = count as usize * block_bytes;
            let block = &mut self.buffer[from..from + block_bytes];
            let (used, held) = fill(block_bytes, &mut records, |at, record| {
                block[at..at + record.len()].copy_from_slice(record);
            });
            block[USED_AT..COUNT_AT].copy_from_slice(&(used as u32).to_le_bytes());
            block[COUNT_AT..HEAD_BYTES].copy_from_slice(&held.to_le_bytes());
            block[used..].fill(0);
            count += 1;
            if (count as usize + 1) * block_bytes > self.buffer.len() || records.peek().is_none() {
                self.write_out(number, count)?;
                (number, count) = (number + count, 0);
            }
        }
        self.part.blocks = end;
        Ok(())
    }

    fn finish(self) -> Result<FrozenVersions> {
        Ok(self.part)
    }
}
