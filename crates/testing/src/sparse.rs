//! Bytes with holes, shared on copying: what a file of [`super::RamDisk`] and of the simulated disk
//! consists of.
//!
//! Blocks of 4 KiB, absent while nothing but zeros was put there. Invariant: every byte of a
//! present block that lies at or beyond the length is zero, so that growing shows zeros. A clone
//! costs one reference count; the first change after it copies the list, and each block as it is
//! changed. A plain value: the owner locks.

use hedgerow::internals::error::{Error, Result};
use hedgerow::internals::storage::MAX_OFFSET;
use hedgerow_sync::primitive::Arc;
use std::io;

/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = 4096;

pub(super) type Block = [u8; BLOCK_BYTES];

/// A file's bytes.
#[derive(Clone, Debug, Default)]
pub(super) struct SparseBytes {
    blocks: Arc<Vec<Option<Arc<Block>>>>,
    len_bytes: u64,
}

impl SparseBytes {
    /// Length in bytes.
    pub(super) fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Bytes of the blocks that are present.
    pub(super) fn allocated_bytes(&self) -> u64 {
        self.blocks.iter().flatten().count() as u64 * BLOCK_BYTES as u64
    }

    /// The blocks that are present, each with its number.
    pub(super) fn present_blocks(&self) -> impl Iterator<Item = (usize, &Block)> {
        let numbered = self.blocks.iter().enumerate();
        numbered.filter_map(|(number, block)| block.as_deref().map(|block| (number, block)))
    }

    /// How many bytes a write of this range would add to [`Self::allocated_bytes`].
    pub(super) fn missing_bytes(&self, offset: u64, len: u64) -> u64 {
        pieces(offset, len)
            .filter(|piece| !matches!(self.blocks.get(piece.block), Some(Some(_))))
            .count() as u64
            * BLOCK_BYTES as u64
    }

    /// Copies a range out. `false`: it reaches beyond the end, and nothing was copied.
    pub(super) fn read(&self, offset: u64, buf: &mut [u8]) -> bool {
        if offset.checked_add(buf.len() as u64).is_none_or(|end| end > self.len_bytes) {
            return false;
        }
        let mut rest = buf;
        for piece in pieces(offset, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(piece.len);
            match self.blocks.get(piece.block) {
                Some(Some(block)) => now.copy_from_slice(&block[piece.start..][..piece.len]),
                _ => now.fill(0),
            }
            rest = later;
        }
        true
    }

    /// Puts bytes at a range, growing the length if need be.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = end_of(offset, bytes.len() as u64)?;
        self.present(end)?;
        let blocks = Arc::make_mut(&mut self.blocks);
        let mut rest = bytes;
        for piece in pieces(offset, bytes.len() as u64) {
            let (now, later) = rest.split_at(piece.len);
            let block = blocks[piece.block].get_or_insert_with(zeros);
            Arc::make_mut(block)[piece.start..][..piece.len].copy_from_slice(now);
            rest = later;
        }
        self.len_bytes = self.len_bytes.max(end);
        Ok(())
    }

    /// Makes every block of a range present, growing the length if need be.
    pub(super) fn allocate(&mut self, offset: u64, len: u64) -> Result<()> {
        let end = end_of(offset, len)?;
        self.present(end)?;
        let blocks = Arc::make_mut(&mut self.blocks);
        for piece in pieces(offset, len) {
            blocks[piece.block].get_or_insert_with(zeros);
        }
        self.len_bytes = self.len_bytes.max(end);
        Ok(())
    }

    /// Cuts, or grows with zeros.
    pub(super) fn set_len(&mut self, len: u64) -> Result<()> {
        let len = end_of(len, 0)?;
        if len < self.len_bytes {
            let keep = len.div_ceil(BLOCK_BYTES as u64) as usize;
            let blocks = Arc::make_mut(&mut self.blocks);
            blocks.truncate(keep);
            let tail = (len % BLOCK_BYTES as u64) as usize;
            if tail != 0
                && let Some(Some(last)) = blocks.get_mut(keep - 1)
            {
                Arc::make_mut(last)[tail..].fill(0);
            }
        }
        self.len_bytes = len;
        Ok(())
    }

    /// Turns a range into zeros and drops the blocks that lie in it whole; the length stays.
    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        let blocks = Arc::make_mut(&mut self.blocks);
        for piece in pieces(offset, len) {
            // Beyond the list there are holes only.
            let Some(slot) = blocks.get_mut(piece.block) else { break };
            if piece.len == BLOCK_BYTES {
                *slot = None;
            } else if let Some(block) = slot {
                Arc::make_mut(block)[piece.start..][..piece.len].fill(0);
            }
        }
    }

    /// Makes the list long enough for bytes up to `end`.
    fn present(&mut self, end: u64) -> Result<()> {
        let count = end.div_ceil(BLOCK_BYTES as u64) as usize;
        if count > self.blocks.len() {
            let blocks = Arc::make_mut(&mut self.blocks);
            blocks.try_reserve(count - blocks.len()).map_err(|_| {
                Error::io("no memory for a file in memory", io::ErrorKind::StorageFull.into())
            })?;
            blocks.resize(count, None);
        }
        Ok(())
    }
}

fn zeros() -> Arc<Block> {
    Arc::new([0; BLOCK_BYTES])
}

fn end_of(offset: u64, len: u64) -> Result<u64> {
    offset
        .checked_add(len)
        .filter(|&end| end <= MAX_OFFSET)
        .ok_or_else(|| Error::io("a file cannot be that long", io::ErrorKind::FileTooLarge.into()))
}

/// The part of a range that lies in one block.
struct Piece {
    block: usize,
    start: usize,
    len: usize,
}

fn pieces(offset: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let start = (at % BLOCK_BYTES as u64) as usize;
        let len = (end - at).min((BLOCK_BYTES - start) as u64) as usize;
        let piece = Piece { block: (at / BLOCK_BYTES as u64) as usize, start, len };
        at += len as u64;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(bytes: &SparseBytes) -> Vec<u8> {
        let mut out = vec![1; bytes.len_bytes() as usize];
        assert!(bytes.read(0, &mut out));
        out
    }

    #[test]
    fn a_model_of_plain_bytes_agrees() {
        let seed = 0x51a7_e5ed;
        println!("seed {seed}");
        let mut random = hedgerow_sync::primitive::random::SplitMix64::new(seed);
        let mut bytes = SparseBytes::default();
        let mut model: Vec<u8> = Vec::new();
        for step in 0..2000 {
            let offset = (random.next_u64() % 40_000) as usize;
            let len = (random.next_u64() % 10_000) as usize;
            let before = bytes.clone();
            let old = model.clone();
            match random.next_u64() % 5 {
                0 | 1 => {
                    let data = vec![step as u8 | 1; len];
                    bytes.write(offset as u64, &data).unwrap();
                    model.resize(model.len().max(offset + len), 0);
                    model[offset..offset + len].copy_from_slice(&data);
                }
                2 => {
                    bytes.set_len(offset as u64).unwrap();
                    model.resize(offset, 0);
                }
                3 => {
                    bytes.punch(offset as u64, len as u64);
                    let end = (offset + len).min(model.len());
                    if offset < end {
                        model[offset..end].fill(0);
                    }
                }
                _ => {
                    bytes.allocate(offset as u64, len as u64).unwrap();
                    model.resize(model.len().max(offset + len), 0);
                }
            }
            assert_eq!(contents(&bytes), model, "step {step}");
            assert_eq!(contents(&before), old, "a clone changed in step {step}");
        }
    }

    #[test]
    fn holes_take_no_room() {
        let mut bytes = SparseBytes::default();
        bytes.write(1 << 32, b"far").unwrap();
        assert_eq!(bytes.allocated_bytes(), 4096);
        assert_eq!(bytes.missing_bytes((1 << 32) - 1, 2), 4096);
        bytes.punch(1 << 32, 4096);
        assert_eq!(bytes.allocated_bytes(), 0);
        assert_eq!(bytes.len_bytes(), (1 << 32) + 3);
        assert!(bytes.write(u64::MAX - 2, b"beyond").is_err());
        assert!(!bytes.read(u64::MAX, &mut [0; 4]));
    }
}
