//! Blocks and segments: how the log's endless address space lies in its file.
//!
//! Rank 2. An [`Lsn`] counts payload bytes; a block holds [`PAYLOAD_BYTES`] of them behind a header of
//! [`HEADER_BYTES`], and is written once. So the n-th block of all time has the addresses from
//! `n * PAYLOAD_BYTES` on, whatever was written where:
//!
//! ```text
//! bytes  0..8   checksum, seeded with store, incarnation and number of the block
//! bytes  8..16  number of the block
//! bytes 16..24  the durable LSN when the block was written
//! bytes 24..32  number of the checkpoint that was durable then
//! bytes 32..34  bytes of payload in use; the rest is zero, and the next record begins in the next block
//! bytes 34..40  zero
//! ```
//!
//! The file is a header block, then segments: a block that names the segment, and the segment's blocks.
//! Segments lie in the file in any order, and are used again under another number when a checkpoint has
//! made what they hold superfluous. What they held then fails the checksum, because the number of the block
//! is in its seed. Pure functions, total over any bytes.

use crate::checksum::{block_checksum, log_seed};
use crate::error::{Error, Result};
use crate::types::{Epoch, Lsn};

/// Bytes of a block, and the unit in which the log is written.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of a block before its payload.
pub const HEADER_BYTES: usize = 40;
/// Bytes of records in a full block.
pub const PAYLOAD_BYTES: u64 = (BLOCK_BYTES - HEADER_BYTES) as u64;

/// A block.
pub type BlockBytes = [u8; BLOCK_BYTES];

const MAGIC: [u8; 8] = *b"\x89HedLog\n";
/// The version of the log's format. What the first one had the second has, too.
const LOG_VERSION: u32 = 2;
/// Numbers that no block has, for the seeds of header and segment blocks.
const HEADER_NUMBER: u64 = u64::MAX;
const SEGMENT_NUMBERS: u64 = 1 << 63;

/// What is in the seed of every checksum, so that a block of another store, or of an earlier life of this
/// one, is never taken for a block of this log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogIdentity {
    /// The store's.
    pub store_id: [u8; 16],
    /// One more each time that a log is begun anew.
    pub incarnation: u64,
}

impl LogIdentity {
    fn seed(&self, number: u64) -> u64 {
        log_seed(&self.store_id, self.incarnation, number)
    }
}

/// The number of the block that holds the byte at `lsn`.
#[inline]
pub const fn block_of(lsn: Lsn) -> u64 {
    lsn.0 / PAYLOAD_BYTES
}

/// The first address of a block.
#[inline]
pub const fn start_of(block: u64) -> Lsn {
    Lsn(block * PAYLOAD_BYTES)
}

/// What a block says of itself and of the log when it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockHeader {
    /// Which block of all time it is.
    pub number: u64,
    /// Everything below was durable.
    pub durable: Lsn,
    /// The checkpoint that was durable.
    pub checkpoint: Epoch,
    /// Bytes of payload in use.
    pub used: u16,
}

/// Writes header and checksum of a block whose payload is in place and zero beyond `header.used`.
pub fn seal(block: &mut [u8], identity: &LogIdentity, header: &BlockHeader) {
    debug_assert!(block.len() == BLOCK_BYTES && u64::from(header.used) <= PAYLOAD_BYTES);
    block[8..16].copy_from_slice(&header.number.to_le_bytes());
    block[16..24].copy_from_slice(&header.durable.0.to_le_bytes());
    block[24..32].copy_from_slice(&header.checkpoint.0.to_le_bytes());
    block[32..34].copy_from_slice(&header.used.to_le_bytes());
    block[34..40].fill(0);
    let checksum = block_checksum(identity.seed(header.number), block);
    block[..8].copy_from_slice(&checksum.to_le_bytes());
}

/// Reads the header of the block that is said to be `number`; `None` if these bytes are not that block of
/// this log.
pub fn open(block: &BlockBytes, identity: &LogIdentity, number: u64) -> Option<BlockHeader> {
    let checksum = u64_at(block, 0);
    if checksum != block_checksum(identity.seed(number), block) || u64_at(block, 8) != number {
        return None;
    }
    let used = u16::from_le_bytes([block[32], block[33]]);
    let end = HEADER_BYTES + usize::from(used);
    if u64::from(used) > PAYLOAD_BYTES
        || block[34..40].iter().chain(&block[end..]).any(|&byte| byte != 0)
    {
        return None;
    }
    Some(BlockHeader {
        number,
        durable: Lsn(u64_at(block, 16)),
        checkpoint: Epoch(u64_at(block, 24)),
        used,
    })
}

/// The number that a block says it has; nothing is checked.
pub fn claimed_number(block: &BlockBytes) -> u64 {
    u64_at(block, 8)
}

/// The payload of an opened block.
#[cfg(hedgerow_internals)]
pub fn payload<'b>(block: &'b BlockBytes, header: &BlockHeader) -> &'b [u8] {
    &block[HEADER_BYTES..HEADER_BYTES + usize::from(header.used)]
}

/// How large segments are; fixed for the life of a log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentSize {
    /// Blocks of payload in a segment; one more names it.
    pub blocks: u32,
}

impl SegmentSize {
    /// Bytes of a segment in the file.
    pub const fn file_bytes(self) -> u64 {
        (self.blocks as u64 + 1) * BLOCK_BYTES as u64
    }

    /// The segment that a block belongs to.
    #[inline]
    pub const fn segment_of(self, block: u64) -> u64 {
        block / self.blocks as u64
    }

    /// The first block of a segment.
    pub const fn first_block(self, segment: u64) -> u64 {
        segment * self.blocks as u64
    }

    /// The last segment that a log can have: addresses behind it would not fit.
    pub const fn last_segment(self) -> u64 {
        (1 << 62) / PAYLOAD_BYTES / self.blocks as u64
    }

    /// Where the `place`-th segment of the file begins.
    pub const fn place_offset_bytes(self, place: u32) -> u64 {
        BLOCK_BYTES as u64 + place as u64 * self.file_bytes()
    }

    /// Where a block lies in the file, if its segment lies at `place`.
    #[inline]
    pub const fn block_offset_bytes(self, place: u32, block: u64) -> u64 {
        let within = block - self.first_block(self.segment_of(block));
        self.place_offset_bytes(place) + (within + 1) * BLOCK_BYTES as u64
    }
}

/// The first block of a log file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileHeader {
    /// Whose log it is.
    pub identity: LogIdentity,
    /// Size of its segments.
    pub segment: SegmentSize,
    /// The first segment that this log has; earlier addresses are in no log any more.
    pub first_segment: u64,
    /// The checkpoint that the log continues.
    pub follows: Epoch,
}

impl FileHeader {
    /// The block.
    pub fn encode(&self) -> Box<BlockBytes> {
        let mut block = Box::new([0; BLOCK_BYTES]);
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(8, &MAGIC);
        put(16, &LOG_VERSION.to_le_bytes());
        put(20, &self.segment.blocks.to_le_bytes());
        put(24, &self.identity.store_id);
        put(40, &self.identity.incarnation.to_le_bytes());
        put(48, &self.first_segment.to_le_bytes());
        put(56, &self.follows.0.to_le_bytes());
        let checksum = block_checksum(HEADER_NUMBER, &*block);
        block[..8].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    /// Reads the block. Errors: `Corrupted` for anything but a header of this version.
    pub fn decode(block: &BlockBytes) -> Result<FileHeader> {
        if block[8..16] != MAGIC {
            return Err(Error::corrupted_at(0, "the file is not the log of a Hedgerow store"));
        }
        if u64_at(block, 0) != block_checksum(HEADER_NUMBER, block) {
            return Err(Error::corrupted_at(0, "the first block of the log is damaged"));
        }
        let version = u32_at(block, 16);
        if !(1..=LOG_VERSION).contains(&version) {
            let what = format!(
                "the log has format version {version}, this build reads 1 to {LOG_VERSION}"
            );
            return Err(Error::corrupted_at(16, what));
        }
        let blocks = u32_at(block, 20);
        if !(1..=MAX_SEGMENT_BLOCKS).contains(&blocks) || block[64..].iter().any(|&b| b != 0) {
            return Err(Error::corrupted_at(20, "the log has segments of an impossible size"));
        }
        let mut store_id = [0; 16];
        store_id.copy_from_slice(&block[24..40]);
        Ok(FileHeader {
            identity: LogIdentity { store_id, incarnation: u64_at(block, 40) },
            segment: SegmentSize { blocks },
            first_segment: u64_at(block, 48),
            follows: Epoch(u64_at(block, 56)),
        })
    }
}

/// Larger segments than this (256 MiB) are damage.
const MAX_SEGMENT_BLOCKS: u32 = 1 << 16;

/// The block that names a segment.
pub fn name_segment(identity: &LogIdentity, segment: u64) -> Box<BlockBytes> {
    let mut block = Box::new([0; BLOCK_BYTES]);
    block[8..16].copy_from_slice(&segment.to_le_bytes());
    let checksum = block_checksum(identity.seed(SEGMENT_NUMBERS | segment), &*block);
    block[..8].copy_from_slice(&checksum.to_le_bytes());
    block
}

/// The segment that a block names, if it names one of this log.
pub fn named_segment(block: &BlockBytes, identity: &LogIdentity, size: SegmentSize) -> Option<u64> {
    let segment = u64_at(block, 8);
    let whole = segment <= size.last_segment()
        && u64_at(block, 0) == block_checksum(identity.seed(SEGMENT_NUMBERS | segment), block)
        && block[16..].iter().all(|&byte| byte == 0);
    whole.then_some(segment)
}

fn u64_at(block: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

fn u32_at(block: &[u8], at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[at..at + 4]);
    u32::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const SIZE: SegmentSize = SegmentSize { blocks: 127 };
    const LOG: LogIdentity = LogIdentity { store_id: [9; 16], incarnation: 4 };

    fn sealed(number: u64, used: u16) -> BlockBytes {
        let mut block = [0; BLOCK_BYTES];
        let end = HEADER_BYTES + usize::from(used);
        for (i, byte) in block[HEADER_BYTES..end].iter_mut().enumerate() {
            *byte = (i * 7) as u8;
        }
        let header = BlockHeader { number, durable: Lsn(5), checkpoint: Epoch(6), used };
        seal(&mut block, &LOG, &header);
        block
    }

    #[test]
    fn a_block_says_what_it_is_and_nothing_else_passes_for_it() {
        let block = sealed(77, 1000);
        let header = open(&block, &LOG, 77).unwrap();
        assert_eq!((header.number, header.durable.0, header.checkpoint.0), (77, 5, 6));
        assert_eq!(payload(&block, &header).len(), 1000);
        assert_eq!(open(&block, &LOG, 78), None);
        let other = LogIdentity { incarnation: 5, ..LOG };
        assert_eq!(open(&block, &other, 77), None);
        let other = LogIdentity { store_id: [8; 16], ..LOG };
        assert_eq!(open(&block, &other, 77), None);
        let mut damaged = block;
        for bit in 0..BLOCK_BYTES * 8 {
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&damaged, &LOG, 77), None, "bit {bit}");
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn blocks_and_places_do_not_overlap() {
        let size = SegmentSize { blocks: 3 };
        let mut seen = std::collections::BTreeSet::new();
        for (place, segment) in [(0, 5), (1, 9), (2, 6)] {
            assert!(seen.insert(size.place_offset_bytes(place)));
            for block in size.first_block(segment)..size.first_block(segment + 1) {
                assert_eq!(size.segment_of(block), segment);
                assert!(seen.insert(size.block_offset_bytes(place, block)));
            }
        }
        assert_eq!(seen.first(), Some(&(BLOCK_BYTES as u64)));
        assert_eq!(seen.len(), 12);
        assert_eq!(seen.last(), Some(&(12 * BLOCK_BYTES as u64)));
    }

    #[test]
    fn headers_and_names_come_back_and_damage_is_noticed() {
        let header = FileHeader {
            identity: LOG,
            segment: SegmentSize { blocks: 1023 },
            first_segment: 12,
            follows: Epoch(3),
        };
        let mut block = *header.encode();
        assert_eq!(FileHeader::decode(&block).unwrap(), header);
        for at in 0..BLOCK_BYTES {
            block[at] ^= 0x40;
            assert!(FileHeader::decode(&block).is_err(), "byte {at}");
            block[at] ^= 0x40;
        }
        let mut name = *name_segment(&LOG, 8);
        assert_eq!(named_segment(&name, &LOG, SIZE), Some(8));
        assert_eq!(named_segment(&name, &LogIdentity { incarnation: 3, ..LOG }, SIZE), None);
        for at in 0..BLOCK_BYTES {
            name[at] ^= 1;
            assert_eq!(named_segment(&name, &LOG, SIZE), None, "byte {at}");
            name[at] ^= 1;
        }
        // No data block passes for a name, and the other way round.
        assert_eq!(named_segment(&sealed(8, 0), &LOG, SIZE), None);
        assert_eq!(open(&name, &LOG, 8), None);
    }

    /// The block with the checksum that belongs to what it says.
    fn signed(mut block: BlockBytes, seed: u64) -> BlockBytes {
        let checksum = block_checksum(seed, &block);
        block[..8].copy_from_slice(&checksum.to_le_bytes());
        block
    }

    fn changed(block: &BlockBytes, at: usize, bytes: &[u8], seed: u64) -> BlockBytes {
        let mut block = *block;
        block[at..at + bytes.len()].copy_from_slice(bytes);
        signed(block, seed)
    }

    #[test]
    fn a_block_whose_checksum_is_right_is_refused_if_what_it_says_cannot_be() {
        let (seed, block) = (LOG.seed(77), sealed(77, 1000));
        assert_eq!(signed(block, seed), block);
        let misnamed = changed(&block, 8, &78_u64.to_le_bytes(), seed);
        assert_eq!(open(&misnamed, &LOG, 77), None);
        assert_eq!(open(&misnamed, &LOG, 78), None);
        let full = sealed(77, PAYLOAD_BYTES as u16);
        assert_eq!(open(&full, &LOG, 77).unwrap().used, PAYLOAD_BYTES as u16);
        for used in [PAYLOAD_BYTES as u16 + 1, u16::MAX] {
            let too_long = changed(&full, 32, &used.to_le_bytes(), seed);
            assert_eq!(open(&too_long, &LOG, 77), None, "{used} bytes in use");
        }
        let rest = HEADER_BYTES + 1000;
        for at in (34..40).chain([rest, rest + 1, BLOCK_BYTES - 1]) {
            assert_eq!(open(&changed(&block, at, &[1], seed), &LOG, 77), None, "byte {at}");
        }
        let longer = changed(&block, 32, &1002_u16.to_le_bytes(), seed);
        assert_eq!(payload(&longer, &open(&longer, &LOG, 77).unwrap()).len(), 1002);
        let shorter = changed(&block, 32, &998_u16.to_le_bytes(), seed);
        assert_eq!(open(&shorter, &LOG, 77), None, "bytes of records behind the end");
    }

    #[test]
    fn a_header_of_another_version_or_with_segments_of_no_possible_size_is_named() {
        let segment = SegmentSize { blocks: 6 };
        let header = FileHeader { identity: LOG, segment, first_segment: 12, follows: Epoch(3) };
        let block = *header.encode();
        let refused = |at: usize, bytes: &[u8]| {
            FileHeader::decode(&changed(&block, at, bytes, HEADER_NUMBER)).unwrap_err()
        };
        let at = |offset| ErrorKind::Corrupted { page: None, offset_bytes: Some(offset) };
        for version in [0, LOG_VERSION + 1, u32::MAX] {
            let error = refused(16, &version.to_le_bytes());
            assert_eq!(*error.kind(), at(16));
            assert!(error.to_string().contains(&format!("version {version}")), "{error}");
        }
        for blocks in [0, MAX_SEGMENT_BLOCKS + 1, u32::MAX] {
            assert_eq!(*refused(20, &blocks.to_le_bytes()).kind(), at(20), "{blocks} blocks");
        }
        for blocks in [1, MAX_SEGMENT_BLOCKS] {
            let changed = changed(&block, 20, &blocks.to_le_bytes(), HEADER_NUMBER);
            let segment = SegmentSize { blocks };
            assert_eq!(FileHeader::decode(&changed).unwrap(), FileHeader { segment, ..header });
        }
        for behind in [64, BLOCK_BYTES - 1] {
            assert_eq!(*refused(behind, &[1]).kind(), at(20), "byte {behind}");
        }
        assert!(refused(8, b"Hedgehog").to_string().contains("is not the log"));
    }

    #[test]
    fn a_name_whose_checksum_is_right_is_refused_beyond_the_last_segment_and_with_more_in_it() {
        // Of small segments there are more.
        for blocks in [1, 127, MAX_SEGMENT_BLOCKS] {
            let size = SegmentSize { blocks };
            let last = size.last_segment();
            let end = size.first_block(last + 1);
            assert!(start_of(end).0 >= 1 << 61, "superblocks know addresses that far");
            assert_eq!(named_segment(&name_segment(&LOG, last), &LOG, size), Some(last));
            for beyond in [last + 1, SEGMENT_NUMBERS, u64::MAX] {
                assert_eq!(
                    named_segment(&name_segment(&LOG, beyond), &LOG, size),
                    None,
                    "{beyond}"
                );
            }
        }
        let (seed, name) = (LOG.seed(SEGMENT_NUMBERS | 8), name_segment(&LOG, 8));
        assert_eq!(named_segment(&signed(*name, seed), &LOG, SIZE), Some(8));
        for at in [16, BLOCK_BYTES - 1] {
            assert_eq!(
                named_segment(&changed(&name, at, &[1], seed), &LOG, SIZE),
                None,
                "byte {at}"
            );
        }
    }
}
