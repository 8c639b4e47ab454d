//! Plain memory that is lent for old versions, and that takes those which a store would write to its file, where there is no pool: for models and tests.
//!
//! Invariant: no more blocks are lent at a time than was said. `Send + Sync`.

use hedgerow::internals::error::{Error, ErrorKind, Result};
use hedgerow::internals::types::{Lsn, TreeId};
use hedgerow::internals::versions::{
    Freezer, FrozenPart, Memory, Record, Sorted, Stretch, Version,
};
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// See the head of the file.
#[derive(Debug)]
pub struct PlainMemory {
    block_bytes: usize,
    most_blocks: u32,
    // No step of a model.
    lent: Arc<AtomicU32>,
}

/// A block of it.
#[derive(Debug)]
pub struct PlainBlock {
    bytes: Box<[u8]>,
    lent: Arc<AtomicU32>,
}

impl PlainMemory {
    /// Lends at most so many blocks of so many bytes.
    pub fn new(block_bytes: usize, most_blocks: u32) -> PlainMemory {
        PlainMemory { block_bytes, most_blocks, lent: Arc::default() }
    }
}

impl Memory for PlainMemory {
    type Block = PlainBlock;
    type Frozen = PlainPart;

    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    fn most_blocks(&self) -> u32 {
        self.most_blocks
    }

    fn lend(&self) -> Result<Option<PlainBlock>> {
        if self.lent.fetch_add(1, Relaxed) >= self.most_blocks {
            self.lent.fetch_sub(1, Relaxed);
            return Ok(None);
        }
        // Not zero: whoever borrows a block makes of it what it needs.
        let bytes = vec![0xa5; self.block_bytes].into_boxed_slice();
        Ok(Some(PlainBlock { bytes, lent: self.lent.clone() }))
    }
}

impl AsRef<[u8]> for PlainBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for PlainBlock {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for PlainBlock {
    fn drop(&mut self) {
        self.lent.fetch_sub(1, Relaxed);
    }
}

/// Versions that would be in a file: each is one that was written.
#[derive(Debug)]
pub struct PlainPart {
    versions: Vec<Box<[u8]>>,
    // No step of a model.
    parts: Arc<AtomicU32>,
}

/// Makes one of them.
#[derive(Debug)]
pub struct PlainFreezer {
    part: PlainPart,
    writes_left: u32,
}

impl PlainFreezer {
    /// The part is counted in `parts` as long as it lives.
    pub fn new(parts: &Arc<AtomicU32>) -> PlainFreezer {
        PlainFreezer::that_fails_after(u32::MAX, parts)
    }

    /// After so many writes there is no room.
    pub fn that_fails_after(writes: u32, parts: &Arc<AtomicU32>) -> PlainFreezer {
        parts.fetch_add(1, Relaxed);
        let part = PlainPart { versions: Vec::new(), parts: parts.clone() };
        PlainFreezer { part, writes_left: writes }
    }
}

impl Drop for PlainPart {
    fn drop(&mut self) {
        self.parts.fetch_sub(1, Relaxed);
    }
}

impl Freezer for PlainFreezer {
    type Part = PlainPart;

    fn write(&mut self, versions: &Sorted<'_>) -> Result<()> {
        let full = || Error::new(ErrorKind::DiskFull, "no room for old versions");
        self.writes_left = self.writes_left.checked_sub(1).ok_or_else(full)?;
        self.part.versions.extend(versions.iter().map(|(_, bytes)| Box::from(bytes)));
        Ok(())
    }

    fn finish(self) -> Result<PlainPart> {
        assert!(self.part.records().is_sorted_by(|a, b| a.compare(b.tree, b.key, b.ended).is_lt()));
        Ok(self.part)
    }
}

impl PlainPart {
    fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.versions.iter().map(|bytes| Record::decode(bytes).expect("a version was written").0)
    }
}

impl FrozenPart for PlainPart {
    fn find(&self, tree: TreeId, key: &[u8], at: Lsn, to: &mut Vec<u8>) -> Result<Option<Version>> {
        let is_it =
            |record: &Record<'_>| (record.tree, record.key) == (tree, key) && record.ended > at;
        Ok(self.records().find(is_it).map(|record| {
            to.extend_from_slice(record.value.unwrap_or_default());
            Version { ended: record.ended, len_bytes: record.value.map(<[u8]>::len) }
        }))
    }

    fn for_each(
        &self,
        Stretch { tree, lower, upper }: Stretch<'_>,
        at: Lsn,
        each: &mut dyn FnMut(Record<'_>),
    ) -> Result<()> {
        let is_in = |key: &[u8]| RangeBounds::<[u8]>::contains(&(lower, upper), key);
        let mut last = None;
        for record in self.records() {
            if record.tree == tree
                && is_in(record.key)
                && record.ended > at
                && last != Some(record.key)
            {
                last = Some(record.key);
                each(record);
            }
        }
        Ok(())
    }

    fn file_bytes(&self) -> u64 {
        self.versions.iter().map(|bytes| bytes.len() as u64).sum()
    }
}
