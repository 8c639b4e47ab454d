//! What a durable write costs without a store: 4 KiB over what a file has, and `fdatasync`.
//!
//! A put writes the next block of the thread's own part of a file that was written before, so that the file neither
//! grows nor gets new blocks, and syncs it; it knows nothing of the record. As a log does it that is written by
//! one: threads share no sync. There is nothing to read; everything but puts and settling is unsupported.
//!
//! Threads share the file alone.

use crate::cell::{Cell, CellError, Durability, Place};
use crate::harness::{Engine, Session};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Bytes of a write.
const BLOCK_BYTES: usize = 4096;
/// Blocks of the file: as a segment of a log.
const BLOCKS: u64 = 4096;

/// A written file.
pub struct Blocks {
    file: File,
    is_loaded: bool,
}

/// One thread's part of it.
pub struct Part<'a> {
    file: &'a File,
    block: Box<[u8; BLOCK_BYTES]>,
    blocks: Range<u64>,
    next: u64,
    /// Loading writes nothing: the file is there.
    is_loading: bool,
}

impl Engine for Blocks {
    type Session<'a> = Part<'a>;

    fn create(cell: &Cell, _record_bytes: u64) -> Result<Blocks, CellError> {
        if cell.place != Place::File {
            return Err(CellError::Unsupported("there is nothing to sync in memory".into()));
        }
        let path = cell.directory.join("bare.log");
        let file = File::create_new(path).map_err(CellError::failed)?;
        let block = [0x5a; BLOCK_BYTES];
        for at in 0..BLOCKS {
            file.write_all_at(&block, at * BLOCK_BYTES as u64).map_err(CellError::failed)?;
        }
        file.sync_all().map_err(CellError::failed)?;
        Ok(Blocks { file, is_loaded: false })
    }

    fn keeps(durability: Durability) -> bool {
        durability == Durability::Sync
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Part<'_>>, CellError> {
        let is_loading = !std::mem::replace(&mut self.is_loaded, true);
        let threads = threads as u64;
        if threads > BLOCKS {
            return Err(CellError::Unsupported(format!("more than {BLOCKS} threads")));
        }
        let part = |thread| {
            let blocks = BLOCKS * thread / threads..BLOCKS * (thread + 1) / threads;
            let (next, block) = (blocks.start, Box::new([0xa5; BLOCK_BYTES]));
            Part { file: &self.file, block, blocks, next, is_loading }
        };
        Ok((0..threads).map(part).collect())
    }

    fn settle(&mut self) -> Result<(), CellError> {
        self.file.sync_all().map_err(CellError::failed)
    }
}

fn unsupported() -> CellError {
    CellError::Unsupported("bare syncs know puts alone".into())
}

impl Session for Part<'_> {
    fn put(&mut self, _key: &[u8], value: &[u8]) -> Result<(), CellError> {
        if self.is_loading {
            return Ok(());
        }
        let len = value.len().min(BLOCK_BYTES);
        self.block[..len].copy_from_slice(&value[..len]);
        self.file
            .write_all_at(&self.block[..], self.next * BLOCK_BYTES as u64)
            .and_then(|()| self.file.sync_data())
            .map_err(CellError::failed)?;
        self.next += 1;
        if self.next == self.blocks.end {
            self.next = self.blocks.start;
        }
        Ok(())
    }

    fn get(&mut self, _key: &[u8], _found: impl FnMut(&[u8])) -> Result<(), CellError> {
        Err(unsupported())
    }

    fn scan(
        &mut self,
        _from: &[u8],
        _records: usize,
        _found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError> {
        Err(unsupported())
    }

    fn remove(&mut self, _key: &[u8]) -> Result<(), CellError> {
        Err(unsupported())
    }
}
