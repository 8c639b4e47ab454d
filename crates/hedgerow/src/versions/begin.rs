//! What an old version begins with, in its cells: where the next one is, whose it is, and how long it is.
//!
//! Plain values.

use crate::types::{Lsn, TreeId};
use crate::versions::cells::{CellId, Cells};
use crate::versions::memory::Block;

/// The next version in the bucket, or the next later one of the recent ones.
pub(super) const BEHIND_AT: usize = 0;
/// Of a recent version: cells that it is promised, and the mark of a removal.
pub(super) const HASH_AT: usize = 4;
pub(super) const TREE_AT: usize = 8;
/// Length of the key, and above it the marks.
pub(super) const LENGTH_AT: usize = 12;
pub(super) const VALUE_LENGTH_AT: usize = 16;
pub(super) const LSN_AT: usize = 20;
pub(super) const KEY_AT: usize = 28;
/// There was no record.
pub(super) const ABSENT: u32 = 1 << 16;
/// The key is among the removed ones. Set on the newest version of a key alone.
pub(super) const LISTED: u32 = 1 << 17;

/// A change of a record, as the old version sees it.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The keyspace's tree.
    pub tree: TreeId,
    /// The record's key.
    pub key: &'a [u8],
    /// The end of the change's record in the log.
    pub lsn: Lsn,
    /// The value before. `None`: there was no record.
    pub old: Option<&'a [u8]>,
    /// Whether there is no record any more.
    pub removes: bool,
    /// How many of the open snapshots are the change's own: a commit's, with which nobody reads any more. They need no version of it.
    pub own_snapshots: u64,
}

/// What a version begins with, before its key.
pub(super) struct Begin([u8; KEY_AT]);

impl Begin {
    /// Of a change, before it has its place.
    pub(super) fn new(change: &Change<'_>, owed: u32) -> Begin {
        let absent = if change.old.is_none() { ABSENT } else { 0 };
        let value_len = change.old.map_or(0, <[u8]>::len) as u32;
        let mut begin = [0; KEY_AT];
        let mut put = |at, number: u32| begin[at..at + 4].copy_from_slice(&number.to_le_bytes());
        put(HASH_AT, owed);
        put(TREE_AT, change.tree.0);
        put(LENGTH_AT, change.key.len() as u32 | absent);
        put(VALUE_LENGTH_AT, value_len);
        begin[LSN_AT..].copy_from_slice(&change.lsn.0.to_le_bytes());
        Begin(begin)
    }

    #[inline]
    pub(super) fn of<B: Block>(cells: &Cells<B>, version: CellId) -> Begin {
        Begin(cells.begin(version))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_AT] {
        &self.0
    }

    #[inline]
    fn u32_at(&self, at: usize) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|byte| self.0[at + byte]))
    }

    #[inline]
    pub(super) fn behind(&self) -> CellId {
        CellId(self.u32_at(BEHIND_AT))
    }

    #[inline]
    pub(super) fn hash(&self) -> u32 {
        self.u32_at(HASH_AT)
    }

    #[inline]
    pub(super) fn tree(&self) -> TreeId {
        TreeId(self.u32_at(TREE_AT))
    }

    /// With the marks.
    #[inline]
    pub(super) fn length(&self) -> u32 {
        self.u32_at(LENGTH_AT)
    }

    #[inline]
    pub(super) fn key_len(&self) -> usize {
        (self.length() & 0xffff) as usize
    }

    /// Of all of the version.
    pub(super) fn len_bytes(&self) -> usize {
        KEY_AT + self.key_len() + self.u32_at(VALUE_LENGTH_AT) as usize
    }

    #[inline]
    pub(super) fn lsn(&self) -> Lsn {
        Lsn(u64::from_le_bytes(std::array::from_fn(|byte| self.0[LSN_AT + byte])))
    }
}
