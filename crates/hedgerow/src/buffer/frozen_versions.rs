//! Old versions of records in the file: where a part of them lies, and how it is written and read.
//!
//! A part is one run of *blocks* after the other, each with records in the order of tree, key and LSN. They lie in extents that no record refers to, so a
//! crash frees them, and so does the end of the part. What is in them, and who reads them when, is the matter of `versions/`.
//!
//! ```text
//! block = checksum (8), bytes in use (4), number of records (4), records (see `versions/frozen.rs`), zeros
//! ```
//!
//! A block is as long as a page, or a unit of the file if that is longer. Its checksum is seeded as a chunk's of a large value is, so that one which is torn,
//! of another extent, or of an earlier use of the units fails. Blocks that were read are kept in frames as pieces of large values are, under the seeds of the
//! extents: they never change. So a part takes no memory but that, and a key is found by a binary search of the blocks.
//!
//! A failed write leaves the versions in memory, and what was written is given back: nobody refers to it, so it makes nobody else's change doubtful.
//!
//! Invariants: what is read was checked by its checksum; the units of a part are nobody else's as long as it lives. `Send + Sync`.

use crate::buffer::large::PieceName;
use crate::buffer::pool::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::large::{MAX_RUNS, Run};
use crate::page::Frames;
use crate::space::large::{is_chunk, seal_chunk};
use crate::space::slot_store::SlotStore;
use crate::storage::AlignedBuffer;
use crate::types::{Lsn, Purpose, TreeId};
use crate::versions::{Freezer, FrozenPart, Record, Sorted, Stretch, Version};
use hedgerow_sync::primitive::process::Process;
use hedgerow_sync::primitive::{Arc, Weak, random};
use std::ops::Bound;

const USED_AT: usize = 8;
const COUNT_AT: usize = 12;
const HEAD_BYTES: usize = 16;

/// A part. See the head of the file.
pub struct FrozenVersions {
    pool: Weak<BufferPool>,
    slots: Arc<SlotStore>,
    process: Process,
    block_bytes: usize,
    extents: Vec<Blocks>,
    blocks: u32,
}

/// Blocks in an extent.
struct Blocks {
    runs: Vec<Run>,
    seed: u64,
    /// Number of the first one in the part.
    first: u32,
}

impl Drop for FrozenVersions {
    fn drop(&mut self) {
        // The parent's, of which a forked process has a copy.
        if !self.process.is_current() || self.extents.is_empty() {
            return;
        }
        for extent in &self.extents {
            self.slots.discard_extent(&extent.runs);
        }
        // The file may become shorter.
        self.slots.note_change();
    }
}

impl FrozenVersions {
    fn units_each(&self) -> u32 {
        (self.block_bytes / self.slots.geometry().unit_bytes() as usize) as u32
    }

    /// The extent that has a block.
    fn extent_of(&self, block: u32) -> &Blocks {
        let behind = self.extents.partition_point(|extent| extent.first <= block);
        &self.extents[behind - 1]
    }

    /// Where a block of an extent lies, and how many follow directly behind it.
    fn place(&self, extent: &Blocks, number: u32) -> (u64, u32) {
        let each = self.units_each();
        let mut unit = number * each;
        for run in &extent.runs {
            if unit < run.units {
                let offset = self.slots.geometry().unit_offset(run.unit + u64::from(unit));
                return (offset, (run.units - unit) / each - 1);
            }
            unit -= run.units;
        }
        unreachable!("an extent has room for its blocks")
    }

    /// Hands a block to `look` that was checked.
    ///
    /// Errors: `Corrupted`; those of the file; `Closed`; `MemoryLimit`.
    fn read<R>(&self, block: u32, look: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let gone = || Error::new(ErrorKind::Closed, "the database was closed");
        let pool = self.pool.upgrade().ok_or_else(gone)?;
        pool.check_open()?;
        let extent = self.extent_of(block);
        let number = block - extent.first;
        // What is longer than a page is not kept.
        let name = PieceName { seed: extent.seed, number };
        let is_kept = self.block_bytes == pool.page_bytes();
        let look = match is_kept {
            true => match pool.look_at_piece(name, look) {
                Ok(seen) => return Ok(seen),
                Err(look) => look,
            },
            false => look,
        };
        let (offset, _) = self.place(extent, number);
        let mut bytes = AlignedBuffer::zeroed(self.block_bytes)?;
        let read = self.slots.file().read_at(offset, &mut bytes);
        // After the read, too: whoever closes unlocks the file, and somebody else may have written to it meanwhile.
        pool.check_open()?;
        read?;
        if !is_chunk(extent.seed, u64::from(number), &bytes) {
            return Err(Error::corrupted_at(
                offset,
                "a block of old versions: its checksum is wrong",
            ));
        }
        if is_kept {
            pool.keep_piece(name, &bytes);
        }
        Ok(look(&bytes))
    }

    /// Calls `each` with the records from the first one on of which `is_before` is not true, as it is of those before, as long as it returns true.
    ///
    /// Errors: as for [`Self::read`].
    fn from(
        &self,
        is_before: impl Fn(&Record<'_>) -> bool,
        mut each: impl FnMut(Record<'_>) -> bool,
    ) -> Result<()> {
        // The blocks whose first records are before it.
        let (mut low, mut high) = (0, self.blocks);
        while low < high {
            let middle = low + (high - low) / 2;
            let first = |bytes: &[u8]| records(bytes).next().map(|record| is_before(&record));
            match self.read(middle, first)?.ok_or_else(|| self.damaged(middle))? {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        for block in low.saturating_sub(1)..self.blocks {
            let goes_on = self.read(block, |bytes| {
                let mut seen = 0;
                let goes_on = records(bytes).all(|record| {
                    seen += 1;
                    is_before(&record) || each(record)
                });
                (goes_on, !goes_on || seen == u32_at(bytes, COUNT_AT))
            })?;
            match goes_on {
                (_, false) => return Err(self.damaged(block)),
                (false, true) => return Ok(()),
                (true, true) => {}
            }
        }
        Ok(())
    }

    #[cold]
    fn damaged(&self, block: u32) -> Error {
        let extent = self.extent_of(block);
        let (offset, _) = self.place(extent, block - extent.first);
        Error::corrupted_at(offset, "a block of old versions: no such records")
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The records of a block, as far as they can be told.
fn records(block: &[u8]) -> impl Iterator<Item = Record<'_>> {
    let used = (u32_at(block, USED_AT) as usize).min(block.len());
    let mut rest = block.get(HEAD_BYTES..used).unwrap_or_default();
    std::iter::from_fn(move || {
        let (record, len) = Record::decode(rest)?;
        rest = &rest[len..];
        Some(record)
    })
}

impl FrozenPart for FrozenVersions {
    fn find(&self, tree: TreeId, key: &[u8], at: Lsn, to: &mut Vec<u8>) -> Result<Option<Version>> {
        let mut found = None;
        let is_before = |record: &Record<'_>| record.compare(tree, key, at).is_le();
        self.from(is_before, |record| {
            if record.tree == tree && record.key == key {
                to.extend_from_slice(record.value.unwrap_or_default());
                let len_bytes = record.value.map(<[u8]>::len);
                found = Some(Version { ended: record.ended, len_bytes });
            }
            false
        })?;
        Ok(found)
    }

    fn for_each(
        &self,
        Stretch { tree, lower, upper }: Stretch<'_>,
        at: Lsn,
        each: &mut dyn FnMut(Record<'_>),
    ) -> Result<()> {
        let is_before = |record: &Record<'_>| match lower {
            Bound::Included(key) => record.compare(tree, key, Lsn(0)).is_lt(),
            Bound::Excluded(key) => record.compare(tree, key, Lsn(u64::MAX)).is_le(),
            Bound::Unbounded => record.tree < tree,
        };
        // Of a key the first one above `at` counts.
        let (mut last, mut has_last) = (Vec::new(), false);
        self.from(is_before, |record| {
            let is_inside = match upper {
                Bound::Included(key) => record.key <= key,
                Bound::Excluded(key) => record.key < key,
                Bound::Unbounded => true,
            };
            if record.tree != tree || !is_inside {
                return false;
            }
            if record.ended > at && !(has_last && last == record.key) {
                last.clear();
                last.extend_from_slice(record.key);
                has_last = true;
                each(record);
            }
            true
        })
    }

    fn file_bytes(&self) -> u64 {
        u64::from(self.blocks) * self.block_bytes as u64
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
        let part = FrozenVersions {
            pool: Arc::downgrade(pool),
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
