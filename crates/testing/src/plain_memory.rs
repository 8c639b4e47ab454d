//! Plain memory that is lent for old versions, where there is no pool: for models and tests.
//!
//! Invariant: no more blocks are lent at a time than was said. `Send + Sync`.

use hedgerow::internals::error::Result;
use hedgerow::internals::versions::Memory;
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
