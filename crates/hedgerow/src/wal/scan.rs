//! Reading a log back after a crash: every record from an address on, and where the log ends.
//!
//! Rank 2. Blocks are read in the order of their numbers until one is not what it should be. What is behind
//! it decides what that means: blocks of a flush that a crash cut short may be torn, or there without those
//! before them, and nobody was told that they are durable; that is the *end* of the log. But a later block
//! that says that the log was durable beyond this place, or a checkpoint that was taken with more of the
//! log, proves that the block was whole once: that is *damage*, and reading on would lose what was
//! acknowledged, so it is an error that names the place.
//!
//! Total over any bytes: a foreign, truncated or damaged file is an error or a shorter log, never a panic, and
//! never takes more memory than a record and a piece of the file.

use super::block::{
    self, BLOCK_BYTES, BlockBytes, FileHeader, HEADER_BYTES, PAYLOAD_BYTES, SegmentSize, block_of,
    named_segment, start_of,
};
use super::log::PREPARED_SEGMENTS;
use super::record::{Decoded, Record};
use super::ring::Appended;
use crate::error::{Error, Result};
use crate::storage::{AlignedBuffer, File, ReadRequest};
use crate::types::{Epoch, Lsn};
use std::collections::BTreeMap;
use std::ops::Range;

/// What a checkpoint says of its log.
#[derive(Clone, Copy, Debug)]
pub struct ScanFrom {
    /// The first record that is wanted begins here.
    pub replay_start: Lsn,
    /// The log was durable up to here when the checkpoint was taken.
    pub log_end: Lsn,
    /// The checkpoint's number.
    pub checkpoint: Epoch,
}

/// Where a log ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScanEnd {
    /// Behind the last whole record.
    pub end: Lsn,
    /// Records handed over.
    pub records: u64,
    /// Where in the file the block lies that would have been the next; zero if no place is prepared for it.
    pub place_bytes: u64,
    /// What lies below was durable, as a superblock says or a block.
    pub vouched: Lsn,
    /// The block behind the last.
    pub next_block: u64,
}

/// Blocks read with one call.
const BLOCKS_AT_ONCE: usize = 64;
/// Names of segments read together. A log of a GiB has 4,200, and each may be a seek.
const NAMES_AT_ONCE: usize = 128;

/// Reads the first block of a log file.
///
/// Errors: `Corrupted` if it is none; `Io`.
pub fn read_header(file: &dyn File) -> Result<FileHeader> {
    if file.len_bytes()? < BLOCK_BYTES as u64 {
        return Err(Error::corrupted_at(0, "the log ends in its first block"));
    }
    let mut first = [0; BLOCK_BYTES];
    file.read_unaligned(0, &mut first)?;
    FileHeader::decode(&first)
}

/// Hands over every whole record from `from.replay_start` on, in order.
///
/// Errors: `Corrupted` for damage; those of `each`; `Io`; `MemoryLimit`.
pub fn scan(
    file: &dyn File,
    header: &FileHeader,
    from: &ScanFrom,
    each: &mut dyn FnMut(Record<'_>, Appended) -> Result<()>,
) -> Result<ScanEnd> {
    let mut blocks = Blocks::open(file, header, BLOCKS_AT_ONCE)?;
    let mut number = block_of(from.replay_start);
    // It may not have been needed yet; then what the places had before is older.
    let first = header.segment.segment_of(number);
    if blocks.places.keys().next().is_none_or(|oldest| *oldest > first) {
        let what = format!("segment {first} of the log is missing, and replay begins in it");
        return Err(Error::corrupted_at(BLOCK_BYTES as u64, what));
    }
    // Bytes of the record that is being put together, and where it begins.
    let mut carry: Vec<u8> = Vec::new();
    let mut at = from.replay_start;
    let mut skip = (from.replay_start.0 - start_of(number).0) as usize;
    let mut durable = from.log_end;
    let mut records = 0;
    while let Some((place, found)) = blocks.read_or_again(number)? {
        if found.checkpoint > from.checkpoint {
            let what = format!(
                "the log was written after checkpoint {}, and the store's newest is {}",
                found.checkpoint.0, from.checkpoint.0
            );
            return Err(Error::corrupted_at(place, what));
        }
        durable = durable.max(found.durable);
        let used = usize::from(found.used);
        let payload = blocks.payload(number, used).get(skip..).unwrap_or(&[]);
        skip = 0;
        carry.extend_from_slice(payload);
        let mut done = 0;
        loop {
            match Record::decode(&carry[done..]) {
                Decoded::Whole(record, len) => {
                    let end = Lsn(at.0 + len as u64);
                    each(record, Appended { start: at, end })?;
                    (at, done, records) = (end, done + len, records + 1);
                }
                Decoded::Needs(_) => break,
                Decoded::Defect(what) => return Err(Error::corrupted_at(place, what)),
            }
        }
        carry.drain(..done);
        number += 1;
        if (used as u64) < PAYLOAD_BYTES {
            if !carry.is_empty() {
                return Err(Error::corrupted_at(place, "a log record ends in the middle"));
            }
            at = start_of(number);
        }
    }
    let end = start_of(number);
    let vouched = durable;
    let durable = durable.max(blocks.durable_beyond(number)?);
    if durable > end {
        let what = format!(
            "the log was durable up to {}, and its block of {} is missing or damaged",
            durable.0, end.0
        );
        return Err(Error::corrupted_at(blocks.offset_bytes(number).unwrap_or(0), what));
    }
    // It had these before any superblock named it. (Of longer files nobody knows how long they were.)
    let len = file.len_bytes()?;
    let least = header.segment.place_offset_bytes(PREPARED_SEGMENTS);
    if len < least {
        return Err(Error::corrupted_at(len, "the log is cut short"));
    }
    let place_bytes = blocks.offset_bytes(number).unwrap_or(0);
    Ok(ScanEnd { end: at, records, place_bytes, vouched, next_block: number })
}

/// Writes the blocks again that a scan has read and that nobody says were durable, as they are. After a sync that has failed
/// the system may show them, take them for written, and lose them with the power; a sync alone does nothing about that.
/// Where the system's cache is passed by there is nothing to do.
///
/// Errors: `Corrupted` if they are not there any more; `Io`.
pub fn write_tail_again(file: &dyn File, header: &FileHeader, end: &ScanEnd) -> Result<()> {
    if file.block_bytes() > 1 {
        return Ok(());
    }
    let mut blocks = Blocks::open(file, header, BLOCKS_AT_ONCE)?;
    for number in block_of(end.vouched)..end.next_block {
        let Some((offset, _)) = blocks.read_or_again(number)? else {
            return Err(Error::corrupted_at(end.place_bytes, "the end of the log is missing"));
        };
        file.write_at(offset, blocks.block(number))?;
    }
    Ok(())
}

/// Whether anything was written to the log that `header` begins.
///
/// Errors: `Io`.
pub fn has_blocks(file: &dyn File, header: &FileHeader) -> Result<bool> {
    let size = header.segment;
    let whole = file.len_bytes()?.saturating_sub(BLOCK_BYTES as u64) / size.file_bytes();
    let mut bytes = [0; BLOCK_BYTES];
    for place in 0..u32::try_from(whole).unwrap_or(u32::MAX) {
        if segment_by_blocks(file, header, place, &mut bytes)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The segment at a place whose name cannot be read, by the newest block there that says what it is; `None` if
/// there is none: the place has not been used, or was used by an earlier log.
fn segment_by_blocks(
    file: &dyn File,
    header: &FileHeader,
    place: u32,
    bytes: &mut BlockBytes,
) -> Result<Option<u64>> {
    let mut newest = None;
    let first = header.segment.place_offset_bytes(place);
    for index in 1..=u64::from(header.segment.blocks) {
        file.read_unaligned(first + index * BLOCK_BYTES as u64, bytes)?;
        let number = block::claimed_number(bytes);
        let segment = header.segment.segment_of(number);
        let belongs = segment <= header.segment.last_segment()
            && number.checked_sub(header.segment.first_block(segment)) == Some(index - 1);
        if belongs && block::open(bytes, &header.identity, number).is_some() {
            newest = newest.max(Some(segment));
        }
    }
    Ok(newest)
}

/// Reads the names of the segments at some places into the beginning of `names`, all of them together.
fn read_names(
    file: &dyn File,
    size: SegmentSize,
    places: Range<u32>,
    names: &mut [u8],
) -> Result<()> {
    let names = names.chunks_exact_mut(BLOCK_BYTES).zip(places);
    let request = |(name, place)| ReadRequest::new(size.place_offset_bytes(place), name);
    let mut requests: Vec<ReadRequest<'_>> = names.map(request).collect();
    file.read_batch(&mut requests);
    requests.into_iter().try_for_each(|request| request.result)
}

/// The blocks of a log file, wherever their segments lie.
pub(super) struct Blocks<'f> {
    file: &'f dyn File,
    header: FileHeader,
    /// Places by segment.
    places: BTreeMap<u64, u32>,
    buffer: AlignedBuffer,
    /// The first block in the buffer, and how many there are.
    buffered: (u64, usize),
}

impl<'f> Blocks<'f> {
    /// Reads the names of all segments. `at_once`: blocks that are read with one call.
    pub(super) fn open(
        file: &'f dyn File,
        header: &FileHeader,
        at_once: usize,
    ) -> Result<Blocks<'f>> {
        let size = header.segment;
        let whole = file.len_bytes()?.saturating_sub(BLOCK_BYTES as u64) / size.file_bytes();
        let whole = u32::try_from(whole).unwrap_or(u32::MAX);
        let mut places = BTreeMap::new();
        let mut names = AlignedBuffer::zeroed(NAMES_AT_ONCE.min(whole as usize) * BLOCK_BYTES)?;
        let mut bytes = [0; BLOCK_BYTES];
        for first in (0..whole).step_by(NAMES_AT_ONCE) {
            let read_now = first..whole.min(first.saturating_add(NAMES_AT_ONCE as u32));
            read_names(file, size, read_now.clone(), &mut names)?;
            for (place, name) in read_now.zip(names.as_chunks::<BLOCK_BYTES>().0) {
                let segment = match named_segment(name, &header.identity, size) {
                    Some(segment) => segment,
                    // One damaged block must not hide the others of its segment.
                    None => match segment_by_blocks(file, header, place, &mut bytes)? {
                        Some(segment) => segment,
                        None => continue,
                    },
                };
                if places.insert(segment, place).is_some() {
                    let what = format!("two places of the log say that they are segment {segment}");
                    return Err(Error::corrupted_at(size.place_offset_bytes(place), what));
                }
            }
        }
        // No read goes beyond its segment.
        let at_once = at_once.min(size.blocks as usize);
        let buffer = AlignedBuffer::zeroed(at_once * BLOCK_BYTES)?;
        Ok(Blocks { file, header: *header, places, buffer, buffered: (0, 0) })
    }

    pub(super) fn offset_bytes(&self, number: u64) -> Option<u64> {
        let place = self.places.get(&self.header.segment.segment_of(number))?;
        Some(self.header.segment.block_offset_bytes(*place, number))
    }

    /// Where the block lies and what its header says; `None` if it is not there, or not that block.
    fn read(&mut self, number: u64) -> Result<Option<(u64, block::BlockHeader)>> {
        if self.offset_bytes(number).is_none() {
            self.find_by_block(number)?;
        }
        let Some(offset) = self.offset_bytes(number) else { return Ok(None) };
        let (first, count) = self.buffered;
        if !(first..first + count as u64).contains(&number) {
            let size = self.header.segment;
            let left = size.first_block(size.segment_of(number) + 1) - number;
            let count = (left as usize).min(self.buffer.len() / BLOCK_BYTES);
            self.buffered = (0, 0);
            self.file.read_at(offset, &mut self.buffer[..count * BLOCK_BYTES])?;
            self.buffered = (number, count);
        }
        let header = block::open(self.block(number), &self.header.identity, number);
        Ok(header.map(|header| (offset, header)))
    }

    /// [`Self::read`], and once more from the file if the block is not there: what was read wrongly once is not the end, and
    /// what else was read with it would vouch for nothing.
    pub(super) fn read_or_again(
        &mut self,
        number: u64,
    ) -> Result<Option<(u64, block::BlockHeader)>> {
        let found = self.read(number)?;
        if found.is_some() {
            return Ok(found);
        }
        self.buffered = (0, 0);
        self.read(number)
    }

    /// Looks for a block of which no place says that it has its segment: a place that was used again and still says what it
    /// was before, because a disk has lost the write of its name. Else everything in it would be taken for a log that
    /// ends before, whatever was acknowledged since.
    fn find_by_block(&mut self, number: u64) -> Result<()> {
        let size = self.header.segment;
        let segment = size.segment_of(number);
        let mut bytes = [0; BLOCK_BYTES];
        let mut found = None;
        for (named, place) in self.places.range(..segment) {
            self.file.read_unaligned(size.block_offset_bytes(*place, number), &mut bytes)?;
            if block::open(&bytes, &self.header.identity, number).is_some() {
                found = Some((*named, *place));
                break;
            }
        }
        if let Some((named, place)) = found {
            self.places.remove(&named);
            self.places.insert(segment, place);
        }
        Ok(())
    }

    /// A block in the buffer.
    fn block(&self, number: u64) -> &BlockBytes {
        let at = (number - self.buffered.0) as usize * BLOCK_BYTES;
        self.buffer[at..].first_chunk().expect("the buffer holds whole blocks")
    }

    pub(super) fn payload(&self, number: u64, used: usize) -> &[u8] {
        &self.block(number)[HEADER_BYTES..HEADER_BYTES + used]
    }

    /// How far the log was durable by what blocks behind `number` say.
    fn durable_beyond(&mut self, number: u64) -> Result<Lsn> {
        let size = self.header.segment;
        let segments: Vec<u64> =
            self.places.range(size.segment_of(number)..).map(|(segment, _)| *segment).collect();
        let mut durable = Lsn(0);
        for segment in segments {
            let first = size.first_block(segment).max(number + 1);
            for later in first..size.first_block(segment + 1) {
                if let Some((_, header)) = self.read(later)? {
                    durable = durable.max(header.durable);
                }
            }
        }
        Ok(durable)
    }
}
