//! Damage to files: a few bytes here and there, where a file says something, or its end.
//!
//! Most of a small store's file is zeros, and damage there finds nothing: so places are counted in runs of
//! [`RUN_BYTES`] that are not all zero. What is done is short: whole images that are older, swapped or blotted out are
//! the business of tests, which know which of them a checksum can tell apart.

use arbitrary::Arbitrary;
use hedgerow::storage::{DirectIo, Disk, OpenMode, RamDisk};
use hedgerow::store::superblock::{SUPERBLOCK_BYTES, positions_of};
use std::path::Path;

/// Bytes of a run.
pub const RUN_BYTES: usize = 64;
/// Bytes that are written at a time, where a piece has changed.
const PIECE_BYTES: usize = 4096;
/// Damages of one file that are done at most.
const MOST: usize = 6;

/// One of them.
#[derive(Arbitrary, Debug, Clone)]
pub enum Damage {
    /// Up to four bytes are others.
    Bytes { at: u32, bytes: u32, how_many: u8 },
    /// A bit is turned.
    Flip { at: u32, bit: u8 },
    /// Up to 64 bytes are zero.
    Zero { at: u32, len: u8 },
    /// Up to 64 bytes are those of another place.
    Copy { from: u32, at: u32, len: u8 },
}

/// Where a file has something that is not zero, by runs.
pub struct Used(Vec<usize>);

impl Used {
    /// Finds them. One run at least, if the file has any bytes.
    pub fn of(bytes: &[u8]) -> Used {
        let zeros = [0_u8; RUN_BYTES];
        let runs = bytes.chunks(RUN_BYTES).enumerate();
        let used = runs.filter(|(_, run)| **run != zeros[..run.len()]);
        let mut used: Vec<usize> = used.map(|(number, _)| number * RUN_BYTES).collect();
        if used.is_empty() {
            used.push(0);
        }
        Used(used)
    }

    /// A place in one of them, or behind it.
    fn place(&self, at: u32) -> usize {
        let at = at as usize;
        self.0[at / RUN_BYTES % self.0.len()] + at % RUN_BYTES
    }
}

impl Damage {
    fn apply(&self, bytes: &mut [u8], used: &Used) {
        match *self {
            Damage::Bytes { at, bytes: new, how_many } => {
                let at = used.place(at);
                let count = 1 + usize::from(how_many % 4);
                let end = bytes.len().min(at + count);
                if at < end {
                    bytes[at..end].copy_from_slice(&new.to_le_bytes()[..end - at]);
                }
            }
            Damage::Flip { at, bit } => {
                if let Some(byte) = bytes.get_mut(used.place(at)) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Damage::Zero { at, len } => {
                let at = used.place(at);
                let end = bytes.len().min(at + 1 + usize::from(len) % RUN_BYTES);
                if at < end {
                    bytes[at..end].fill(0);
                }
            }
            Damage::Copy { from, at, len } => {
                let (from, at) = (used.place(from), used.place(at));
                let count = (1 + usize::from(len) % RUN_BYTES)
                    .min(bytes.len().saturating_sub(from))
                    .min(bytes.len().saturating_sub(at));
                if count > 0 {
                    bytes.copy_within(from..from + count, at);
                }
            }
        }
    }
}

/// The bytes of a file after all of that; cut to a part of its length at last.
pub fn damaged(bytes: &[u8], used: &Used, damages: &[Damage], cut: Option<u16>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for damage in damages.iter().take(MOST) {
        damage.apply(&mut bytes, used);
    }
    if let Some(cut) = cut {
        bytes.truncate(bytes.len() * usize::from(cut) / usize::from(u16::MAX));
    }
    bytes
}

/// Whether damage has left both copies of a superblock wrong, and one of them zero. Of the second pair that passes for
/// one that was never written, or whose first write was torn, as the format says: the store goes back by a checkpoint,
/// and nobody can notice.
pub fn has_lost_superblocks(before: &[u8], after: &[u8]) -> bool {
    fn block(bytes: &[u8], at: u64) -> Vec<u8> {
        let mut block: Vec<u8> =
            bytes.iter().skip(at as usize).take(SUPERBLOCK_BYTES).copied().collect();
        // What lies behind the end of the file is zero as soon as the file grows.
        block.resize(SUPERBLOCK_BYTES, 0);
        block
    }
    (0..2).any(|pair| {
        let copies = positions_of(pair).map(|at| (block(before, at), block(after, at)));
        copies.iter().all(|(was, is)| was != is)
            && copies.iter().any(|(_, is)| is.iter().all(|byte| *byte == 0))
    })
}

/// What a file has, if there is one.
pub fn read(disk: &RamDisk, path: &Path) -> Option<Vec<u8>> {
    let file = disk.open(path, OpenMode::ReadOnly, DirectIo::Never).ok()?;
    let mut bytes = vec![0; file.len_bytes().unwrap() as usize];
    file.read_unaligned(0, &mut bytes).unwrap();
    Some(bytes)
}

/// Makes a file with these bytes.
pub fn write(disk: &RamDisk, path: &Path, bytes: &[u8]) {
    drop(disk.open(path, OpenMode::CreateNew, DirectIo::Never).unwrap());
    overwrite(disk, path, &vec![0; bytes.len()], bytes);
}

/// Gives a file that has the `old` bytes the `new` ones, behind the back of whoever has it open.
pub fn overwrite(disk: &RamDisk, path: &Path, old: &[u8], new: &[u8]) {
    let file = disk.open(path, OpenMode::ReadWrite, DirectIo::Never).unwrap();
    file.set_len(new.len() as u64).unwrap();
    for (number, piece) in new.chunks(PIECE_BYTES).enumerate() {
        let at = number * PIECE_BYTES;
        if old.get(at..at + piece.len()) != Some(piece) {
            file.write_at(at as u64, piece).unwrap();
        }
    }
}
