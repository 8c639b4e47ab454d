//! Reading single records of a log again, which a scan has handed over before.
//!
//! Rank 2. Whoever replays a log remembers where records begin, not what they say: a batch may be larger than all
//! memory that a store has. Each block is checked again, by the checksum that names store, log and number of the
//! block, so what is read is the record or an error. Not shared. Memory: some blocks, and the longest record.

use super::block::{FileHeader, PAYLOAD_BYTES, block_of, start_of};
use super::record::{Decoded, Record};
use super::ring::Appended;
use super::scan::Blocks;
use crate::error::{Error, Result};
use crate::storage::File;
use crate::types::Lsn;

/// Blocks read with one call. Few: whoever reads again reads here a record and there one.
const BLOCKS_AT_ONCE: usize = 4;

/// See the head of the file.
pub struct Reread<'f> {
    blocks: Blocks<'f>,
    record: Vec<u8>,
}

impl<'f> Reread<'f> {
    /// Of the log that a scan has read.
    ///
    /// Errors: those of [`super::scan()`].
    pub fn open(file: &'f dyn File, header: &FileHeader) -> Result<Reread<'f>> {
        Ok(Reread { blocks: Blocks::open(file, header, BLOCKS_AT_ONCE)?, record: Vec::new() })
    }

    /// The record at `at`, where one began when the log was scanned, or the one behind it if one ended there; and its place.
    ///
    /// Errors: `Corrupted` if there is none any more; `Io`; `MemoryLimit`.
    pub fn record_at(&mut self, at: Lsn) -> Result<(Record<'_>, Appended)> {
        let mut number = block_of(at);
        let mut skip = (at.0 - start_of(number).0) as usize;
        let mut start = at;
        self.record.clear();
        loop {
            let Some((place, found)) = self.blocks.read_or_again(number)? else {
                return Err(self.differs(start_of(number)));
            };
            let used = usize::from(found.used);
            let is_full = used == PAYLOAD_BYTES as usize;
            let payload = self.blocks.payload(number, used);
            if self.record.is_empty() && skip >= used && !is_full {
                // Nothing begins behind the end of what the block has, but the next block may begin with a record.
                if skip > used {
                    return Err(self.differs(at));
                }
                (number, skip) = (number + 1, 0);
                start = start_of(number);
                continue;
            }
            self.record.extend_from_slice(payload.get(skip..).unwrap_or(&[]));
            match Record::decode(&self.record) {
                Decoded::Whole(..) => break,
                Decoded::Needs(_) if is_full => (number, skip) = (number + 1, 0),
                Decoded::Needs(_) => {
                    return Err(Error::corrupted_at(place, "a log record ends in the middle"));
                }
                Decoded::Defect(what) => return Err(Error::corrupted_at(place, what)),
            }
        }
        match Record::decode(&self.record) {
            Decoded::Whole(record, len) => {
                Ok((record, Appended { start, end: Lsn(start.0 + len as u64) }))
            }
            _ => unreachable!("it was whole just now"),
        }
    }

    /// What is wrong if something is not there that a scan has found.
    pub fn differs(&self, at: Lsn) -> Error {
        let place = self.blocks.offset_bytes(block_of(at)).unwrap_or(0);
        let what = format!("two reads of the log differ at {}", at.0);
        Error::corrupted_at(place, what)
    }
}
