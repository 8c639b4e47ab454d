//! What the disk takes in without a store: values one behind the other in a file, past the page cache.
//!
//! A put writes as many bytes as the value has, up to whole blocks, behind those before, and begins anew at the file's
//! start when it has written as much as was loaded; so a file that was loaded is overwritten in place. Nothing is synced
//! but by settling. There is one thread's file, and nothing to read; everything else is unsupported.

use crate::cell::{Cell, CellError, Durability, Place};
use crate::harness::{Engine, Session};
use hedgerow::IoEngine;
use hedgerow::internals::error::Error;
use hedgerow::internals::storage::{AlignedBuffer, DirectIo, Disk, File, OpenMode, RealDisk};
use std::sync::Arc;

const BLOCK_BYTES: usize = 4096;

/// A file that is written from its start to its end.
pub struct Writes {
    file: Arc<dyn File>,
    buffer: AlignedBuffer,
    end_bytes: u64,
    next_bytes: u64,
}

fn failed(error: Error) -> CellError {
    CellError::Failed(error.to_string())
}

impl Engine for Writes {
    type Session<'a> = &'a mut Writes;

    fn create(cell: &Cell, _record_bytes: u64) -> Result<Writes, CellError> {
        if cell.place != Place::File {
            return Err(CellError::Unsupported("there is no disk in memory".into()));
        }
        let disk = RealDisk::new(IoEngine::Auto).map_err(failed)?;
        let path = cell.directory.join("bare.values");
        let open = disk.open(&path, OpenMode::CreateNew, DirectIo::WherePossible);
        let value_bytes = cell.value_bytes.next_multiple_of(BLOCK_BYTES);
        let mut buffer = AlignedBuffer::zeroed(value_bytes).map_err(failed)?;
        // Anything but zeros, which a file system may leave out.
        buffer.fill(0x5a);
        let end_bytes = value_bytes as u64 * cell.load_count as u64;
        Ok(Writes { file: open.map_err(failed)?, buffer, end_bytes, next_bytes: 0 })
    }

    fn keeps(durability: Durability) -> bool {
        durability != Durability::Sync
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<&mut Writes>, CellError> {
        match threads {
            1 => Ok(vec![self]),
            _ => Err(CellError::Unsupported("values one behind the other have one thread".into())),
        }
    }

    fn settle(&mut self) -> Result<(), CellError> {
        self.file.sync_data().map_err(failed)
    }
}

fn unsupported() -> CellError {
    CellError::Unsupported("bare writes know puts alone".into())
}

impl Session for &mut Writes {
    fn put(&mut self, _key: &[u8], value: &[u8]) -> Result<(), CellError> {
        self.buffer[..value.len()].copy_from_slice(value);
        self.file.write_at(self.next_bytes, &self.buffer).map_err(failed)?;
        self.next_bytes += self.buffer.len() as u64;
        if self.next_bytes == self.end_bytes {
            self.next_bytes = 0;
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
