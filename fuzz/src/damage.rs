//! Damage to files: a few bytes here and there, where a file says something, or its end.
//!
//! Most of a small store's file is zeros, and damage there finds nothing: so places are counted in runs of
//! [`RUN_BYTES`] that are not all zero. What is done is short: whole images that are older, swapped or blotted out are
//! the business of tests, which know which of them a checksum can tell apart.

use arbitrary::Arbitrary;
use hedgerow::internals::storage::{DirectIo, Disk, File, OpenMode};
use hedgerow::internals::store::superblock::{SUPERBLOCK_BYTES, positions_of};
use hedgerow_testing::RamDisk;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::path::Path;

/// Bytes of a run.
pub const RUN_BYTES: usize = 64;
/// Bytes that are written at a time, where a piece has changed.
const PIECE_BYTES: usize = 4096;
const ZEROS: [u8; PIECE_BYTES] = [0; PIECE_BYTES];
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

/// The bytes of a file, in memory that the next one gets: AddressSanitizer maps what is larger than 256 KiB anew each
/// time, and the faults of its pages would be a tenth of what an input costs.
#[derive(PartialEq, Eq, Debug)]
pub struct Buffer(Vec<u8>);

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

impl Buffer {
    fn take() -> Buffer {
        Buffer(SPARE.with_borrow_mut(Vec::pop).unwrap_or_default())
    }

    /// A copy of these.
    pub fn of(bytes: &[u8]) -> Buffer {
        let mut buffer = Buffer::take();
        buffer.0.clear();
        buffer.0.extend_from_slice(bytes);
        buffer
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        SPARE.with_borrow_mut(|spare| spare.push(std::mem::take(&mut self.0)));
    }
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
pub fn damaged(bytes: &[u8], used: &Used, damages: &[Damage], cut: Option<u16>) -> Buffer {
    let mut damaged = Buffer::of(bytes);
    let bytes = &mut damaged.0;
    for damage in damages.iter().take(MOST) {
        damage.apply(bytes, used);
    }
    if let Some(cut) = cut {
        bytes.truncate(bytes.len() * usize::from(cut) / usize::from(u16::MAX));
    }
    damaged
}

/// Whether damage has left both copies of a superblock wrong, and one of them zero. Of the second pair that passes for
/// one that was never written, or whose first write was torn, as the format says: the store goes back by a checkpoint,
/// and nobody can notice.
pub fn has_lost_superblocks(before: &[u8], after: &[u8]) -> bool {
    fn block(bytes: &[u8], at: u64) -> Vec<u8> {
        let at = bytes.len().min(at as usize);
        let mut block = bytes[at..bytes.len().min(at + SUPERBLOCK_BYTES)].to_vec();
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
pub fn read(disk: &RamDisk, path: &Path) -> Option<Buffer> {
    let file = disk.open(path, OpenMode::ReadOnly, DirectIo::Never).ok()?;
    let mut buffer = Buffer::take();
    buffer.0.resize(file.len_bytes().unwrap() as usize, 0);
    file.read_unaligned(0, &mut buffer.0).unwrap();
    Some(buffer)
}

/// Makes a file with these bytes.
pub fn write(disk: &RamDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, OpenMode::CreateNew, DirectIo::Never).unwrap();
    write_pieces(&*file, bytes, |_, piece| *piece != ZEROS[..piece.len()]);
}

/// Gives a file that has the `old` bytes the `new` ones, behind the back of whoever has it open.
pub fn overwrite(disk: &RamDisk, path: &Path, old: &[u8], new: &[u8]) {
    let file = disk.open(path, OpenMode::ReadWrite, DirectIo::Never).unwrap();
    write_pieces(&*file, new, |at, piece| old.get(at..at + piece.len()) != Some(piece));
}

fn write_pieces(file: &dyn File, bytes: &[u8], differs: impl Fn(usize, &[u8]) -> bool) {
    file.set_len(bytes.len() as u64).unwrap();
    for (number, piece) in bytes.chunks(PIECE_BYTES).enumerate() {
        let at = number * PIECE_BYTES;
        if differs(at, piece) {
            file.write_at(at as u64, piece).unwrap();
        }
    }
}
