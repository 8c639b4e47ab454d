//! Old versions of records in the file: where a part of them lies, and how it is read.
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
//! Invariants: what is read was checked by its checksum; the units of a part are nobody else's as long as it lives. `Send + Sync`.

use crate::buffer::large::PieceName;
use crate::error::{Error, ErrorKind, Result};
use crate::large::Run;
use crate::space::large::is_chunk;
use crate::space::slot_store::SlotStore;
use crate::storage::AlignedBuffer;
use crate::types::{Lsn, TreeId};
use crate::versions::{FrozenPart, Record, Stretch, Version};
use hedgerow_sync::primitive::process::Process;
use hedgerow_sync::primitive::{Arc, Weak};
use std::ops::Bound;

pub(super) const USED_AT: usize = 8;
pub(super) const COUNT_AT: usize = 12;
pub(super) const HEAD_BYTES: usize = 16;

/// Where blocks that were read are kept: the pool.
pub(super) trait Kept: Send + Sync {
    /// Errors: `Closed`.
    fn check(&self) -> Result<()>;

    /// The longest block that is kept.
    fn most_bytes(&self) -> usize;

    /// Hands a block to `look`, once. False: it is not kept, and nothing is handed over.
    fn look(&self, name: PieceName, look: &mut dyn FnMut(&[u8])) -> bool;

    /// Keeps a block, as far as there is memory for it at once.
    fn keep(&self, name: PieceName, block: &[u8]);
}

/// A part. See the head of the file.
pub struct FrozenVersions {
    pub(super) kept: Weak<dyn Kept>,
    pub(super) slots: Arc<SlotStore>,
    pub(super) process: Process,
    pub(super) block_bytes: usize,
    pub(super) extents: Vec<Blocks>,
    pub(super) blocks: u32,
}

/// Blocks in an extent.
pub(super) struct Blocks {
    pub(super) runs: Vec<Run>,
    pub(super) seed: u64,
    /// Number of the first one in the part.
    pub(super) first: u32,
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
        self.slots.checkpoints().note_change();
    }
}

impl FrozenVersions {
    pub(super) fn units_each(&self) -> u32 {
        (self.block_bytes / self.slots.geometry().unit_bytes() as usize) as u32
    }

    /// The extent that has a block.
    fn extent_of(&self, block: u32) -> &Blocks {
        let behind = self.extents.partition_point(|extent| extent.first <= block);
        &self.extents[behind - 1]
    }

    /// Where a block of an extent lies, and how many follow directly behind it.
    pub(super) fn place(&self, extent: &Blocks, number: u32) -> (u64, u32) {
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
    fn read<R>(&self, block: u32, mut look: impl FnMut(&[u8]) -> R) -> Result<R> {
        let gone = || Error::new(ErrorKind::Closed, "the database was closed");
        let pool = self.kept.upgrade().ok_or_else(gone)?;
        pool.check()?;
        let extent = self.extent_of(block);
        let number = block - extent.first;
        // What is longer than a page is not kept.
        let name = PieceName { seed: extent.seed, number };
        let is_kept = self.block_bytes == pool.most_bytes();
        let mut seen = None;
        if is_kept
            && pool.look(name, &mut |bytes| seen = Some(look(bytes)))
            && let Some(seen) = seen
        {
            return Ok(seen);
        }
        let (offset, _) = self.place(extent, number);
        let mut bytes = AlignedBuffer::zeroed(self.block_bytes)?;
        let read = self.slots.file().read_at(offset, &mut bytes);
        // After the read, too: whoever closes unlocks the file, and somebody else may have written to it meanwhile.
        pool.check()?;
        read?;
        if !is_chunk(extent.seed, u64::from(number), &bytes) {
            return Err(Error::corrupted_at(
                offset,
                "a block of old versions: its checksum is wrong",
            ));
        }
        if is_kept {
            pool.keep(name, &bytes);
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
