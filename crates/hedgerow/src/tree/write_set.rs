//! What a batch or a commit changes, and how the log's records of that are cut into pieces.
//!
//! A write set is sorted by tree and key, and has one change of each key. A piece is the content of a [`Record::Batch`] or a
//! [`Record::Commit`]: whole records of changes, one behind the other, in at most [`PIECE_BYTES`] unless a single one is
//! longer. Plain data and pure functions.

use super::Tree;
use crate::large::is_stored_form;
use crate::page::PagePool;
use crate::types::Purpose;
use crate::wal::{BatchId, RECORD_HEADER_BYTES, Record};

/// Bytes of changes in one record, unless a single one is longer.
pub(super) const PIECE_BYTES: usize = if cfg!(any(loom, shuttle)) { 100 } else { 8 << 10 };

/// One change of a write set.
#[derive(Debug)]
pub struct Write<'c, P: PagePool> {
    /// The tree.
    pub tree: &'c Tree<P>,
    /// The key.
    pub key: &'c [u8],
    /// The value that the key gets, as its leaf does; `None` removes the record.
    pub value: Option<&'c [u8]>,
}

impl<P: PagePool> Clone for Write<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: PagePool> Copy for Write<'_, P> {}

impl<'c, P: PagePool> Write<'c, P> {
    pub(super) fn record(&self) -> Record<'c> {
        let (tree, key) = (self.tree.id(), self.key);
        match self.value {
            Some(value) if is_stored_form(value) => {
                Record::Extent { tree, key, value, is_moved: false }
            }
            Some(value) => Record::Put { tree, key, value },
            None => Record::Remove { tree, key },
        }
    }

    /// Bytes of its record.
    fn len_bytes(&self) -> usize {
        RECORD_HEADER_BYTES + self.key.len() + self.value.map_or(0, <[u8]>::len)
    }
}

/// Whether the changes can take space: removals alone give some back.
pub fn purpose_of<P: PagePool>(writes: &[Write<'_, P>]) -> Purpose {
    let removes = writes.iter().all(|write| write.value.is_none());
    if removes { Purpose::GiveBack } else { Purpose::Take }
}

/// How many of the changes, from the first on, go into one piece, and their bytes.
pub fn fit_piece<P: PagePool>(writes: &[Write<'_, P>]) -> (usize, usize) {
    let mut bytes = 0;
    for (at, write) in writes.iter().enumerate() {
        let len = write.len_bytes();
        if at > 0 && bytes + len > PIECE_BYTES {
            return (at, bytes);
        }
        bytes += len;
    }
    (writes.len(), bytes)
}

/// Appends the records of changes to those that are to go into one piece.
pub fn encode<P: PagePool>(writes: &[Write<'_, P>], records: &mut Vec<u8>) {
    for write in writes {
        let record = write.record();
        let (header, [key, value]) = record.encode();
        records.extend_from_slice(&header);
        records.extend_from_slice(key);
        records.extend_from_slice(value);
    }
}

/// Bytes that all pieces take in the log.
pub fn piece_bytes<P: PagePool>(writes: &[Write<'_, P>]) -> u64 {
    let mut bytes = 0;
    let mut left = writes;
    while !left.is_empty() {
        let (count, records) = fit_piece(left);
        bytes += (RECORD_HEADER_BYTES + size_of::<BatchId>() + records) as u64;
        left = &left[count..];
    }
    bytes
}
