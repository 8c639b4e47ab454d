//! Parts of the old versions that lie in a file: what snapshots still need that were taken over long ago.
//!
//! A snapshot at `s` that is pinned to a checkpoint with the cut `c` needs the versions that were ended in `(s, c]` for as long as it lives.
//! When such versions take too much memory they are written to a *part* (`freeze.rs`), sorted by tree, key and LSN. The store knows where that lies and how it is
//! read ([`FrozenPart`]); here is which parts there are.
//!
//! A part has every version that was ended up to its end, behind the end of the part before, and that a snapshot needs: so parts have no LSN in common, and
//! what memory has was ended behind all of them. Of a key as of `s` the first part that has a version of it that was ended above `s` has the right one.
//!
//! **Order.** A part is listed before the first of its versions is dropped from memory, and it goes when nobody is left that it was
//! written for, whose slots say so before that. A reader looks at memory, then here, then at its slot. If it has not found a version in
//! memory that was there before, whoever has dropped it had the table locked in between, and has listed the part before that. Who was
//! given up may have looked too late, and its slot says so.
//!
//! Invariants: parts are listed in the order of their LSNs; `count` grows with each, before anything is dropped. The list's lock is the last one, and nothing is read with it held.
//! `Send + Sync`.

use crate::error::Result;
use crate::types::{Lsn, TreeId};
use crate::versions::slots::{Slots, State};
use hedgerow_sync::primitive::atomic::{AtomicU64, Ordering::*};
use hedgerow_sync::primitive::{Arc, Mutex};
use std::cmp::Ordering;
use std::ops::Bound;

/// A version that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Version {
    /// LSN of the change that ended it.
    pub ended: Lsn,
    /// Length of its value. `None`: there was no record.
    pub len_bytes: Option<usize>,
}

/// Bytes of a record in front of its key.
const RECORD_BYTES: usize = 20;
const LSN_AT: usize = 4;
const LENGTH_AT: usize = 12;
const VALUE_LENGTH_AT: usize = 16;
/// Marks above the key's length: there was no record; the key was removed.
const ABSENT: u32 = 1 << 16;
const LISTED: u32 = 1 << 17;

/// An old version in a part.
///
/// ```text
/// tree (4), LSN of the change that ended it (8), length of the key, mark 16: no record, mark 17: removed (4), length of the value (4), key, value
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// The keyspace's tree.
    pub tree: TreeId,
    /// The record's key.
    pub key: &'a [u8],
    /// LSN of the change that ended it.
    pub ended: Lsn,
    /// The value. `None`: there was no record.
    pub value: Option<&'a [u8]>,
    /// The key may be in no leaf any more.
    pub is_listed: bool,
}

impl<'a> Record<'a> {
    /// The record that bytes begin with, and how many of them it takes. `None`: there is none.
    pub fn decode(bytes: &'a [u8]) -> Option<(Record<'a>, usize)> {
        let head = bytes.get(..RECORD_BYTES)?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
        let lsn = u64::from(u32_at(LSN_AT)) | u64::from(u32_at(LSN_AT + 4)) << 32;
        let length = u32_at(LENGTH_AT);
        let key_len = (length & 0xffff) as usize;
        let end = (RECORD_BYTES + key_len).checked_add(u32_at(VALUE_LENGTH_AT) as usize)?;
        let (key, value) = bytes.get(RECORD_BYTES..end)?.split_at(key_len);
        let record = Record {
            tree: TreeId(u32_at(0)),
            key,
            ended: Lsn(lsn),
            value: (length & ABSENT == 0).then_some(value),
            is_listed: length & LISTED != 0,
        };
        Some((record, end))
    }

    /// The head of a record, to be followed by key and value, and the bytes of all of it.
    pub(super) fn head(
        tree: TreeId,
        ended: Lsn,
        key_len: usize,
        value_len: Option<usize>,
        is_listed: bool,
    ) -> ([u8; RECORD_BYTES], usize) {
        let mut head = [0; RECORD_BYTES];
        let mut put = |at, number: u32| head[at..at + 4].copy_from_slice(&number.to_le_bytes());
        put(0, tree.0);
        put(LSN_AT, ended.0 as u32);
        put(LSN_AT + 4, (ended.0 >> 32) as u32);
        let absent = if value_len.is_none() { ABSENT } else { 0 };
        let listed = if is_listed { LISTED } else { 0 };
        put(LENGTH_AT, key_len as u32 | absent | listed);
        put(VALUE_LENGTH_AT, value_len.unwrap_or(0) as u32);
        (head, RECORD_BYTES + key_len + value_len.unwrap_or(0))
    }

    /// Bytes of the longest record of a store.
    pub(super) const fn longest_bytes(longest_key: usize, longest_value: usize) -> usize {
        RECORD_BYTES + longest_key + longest_value
    }

    /// The order of records: tree, key, LSN.
    pub fn compare(&self, tree: TreeId, key: &[u8], ended: Lsn) -> Ordering {
        let trees = self.tree.cmp(&tree);
        trees.then_with(|| self.key.cmp(key)).then(self.ended.cmp(&ended))
    }
}

/// Keys of a tree that are looked for in a part.
#[derive(Clone, Copy, Debug)]
pub struct Stretch<'a> {
    /// The tree.
    pub tree: TreeId,
    /// Where it begins.
    pub lower: Bound<&'a [u8]>,
    /// Where it ends.
    pub upper: Bound<&'a [u8]>,
}

/// A part that was written. Errors of both: those of reading the file.
pub trait FrozenPart: Send + Sync {
    /// The version of a key that was ended first above `at`, if the part has one; its value is appended to `to`.
    ///
    /// # Errors
    /// See there.
    fn find(&self, tree: TreeId, key: &[u8], at: Lsn, to: &mut Vec<u8>) -> Result<Option<Version>>;

    /// Calls `each` with these versions of all keys of a stretch, in order. It waits for nothing.
    ///
    /// # Errors
    /// See there.
    fn for_each(
        &self,
        stretch: Stretch<'_>,
        at: Lsn,
        each: &mut dyn FnMut(Record<'_>),
    ) -> Result<()>;

    /// Bytes of the file.
    fn file_bytes(&self) -> u64;
}

/// A part, and what it has.
pub(super) struct Part<F> {
    /// LSNs of the first and the last change that ended a version of it.
    pub first: Lsn,
    pub last: Lsn,
    pub frozen: F,
}

/// The parts that there are. See the head of the file.
pub(super) struct Parts<F> {
    list: Mutex<Vec<Arc<Part<F>>>>,
    /// The LSN that the last one of them ends with; zero: there is none.
    end: AtomicU64,
    /// How many there have been.
    count: AtomicU64,
}

impl<F: FrozenPart> Parts<F> {
    pub(super) fn new() -> Parts<F> {
        Parts { list: Mutex::new(Vec::new()), end: AtomicU64::new(0), count: AtomicU64::new(0) }
    }

    /// How many there have been. Who has looked at parts, and then at memory, and finds that this is what it was before, has seen what was there at one time.
    #[inline]
    pub(super) fn count(&self) -> u64 {
        self.count.load(Acquire)
    }

    /// Lists a part, before what it has is dropped from memory.
    pub(super) fn add(&self, part: Part<F>) {
        let mut list = self.list.lock();
        debug_assert!(list.last().is_none_or(|before| before.last < part.first));
        let end = part.last;
        list.push(Arc::new(part));
        // Who finds something missing in memory has had the table's lock behind this.
        self.end.store(end.0, Release);
        self.count.fetch_add(1, Release);
    }

    /// The first part behind `behind` that may have a version that was ended in `(at, cut]`.
    #[inline]
    pub(super) fn next(
        &self,
        at: Lsn,
        cut: impl FnOnce() -> Lsn,
        behind: Lsn,
    ) -> Option<Arc<Part<F>>> {
        // Acquire: see `add`.
        if self.end.load(Acquire) <= at.0 {
            return None;
        }
        let cut = cut();
        let list = self.list.lock();
        let mut may_have = list.iter().filter(|part| part.first > behind && part.last > at);
        may_have.next().filter(|part| part.first <= cut).cloned()
    }

    /// Drops what nobody needs any more. The caller holds nothing.
    pub(super) fn drop_unneeded(&self, slots: &Slots) {
        let mut gone = Vec::new();
        // Whoever lists a part looks afterwards whether it is needed, and who ends looks here afterwards: one of them finds both.
        let mut list = self.list.lock();
        list.retain(|part| {
            // A snapshot that is not pinned is above all parts: none is written while one is below.
            let is_needed = slots.all().any(|slot| match slot.state() {
                State::Pinned(at, cut) => at < part.last && part.first <= cut,
                State::Empty | State::Pending | State::At(_) | State::GivenUp => false,
            });
            if !is_needed {
                gone.push(part.clone());
            }
            is_needed
        });
        self.end.store(list.last().map_or(0, |part| part.last.0), Release);
        drop(list);
        // It may write to nothing, but locks the state of the space.
        drop(gone);
    }

    /// Bytes of the file that parts take which may have versions that were ended in `(at, cut]`.
    pub(super) fn file_bytes(&self, at: Lsn, cut: Lsn) -> u64 {
        let list = self.list.lock();
        let may_have = |part: &&Arc<Part<F>>| part.last > at && part.first <= cut;
        list.iter().filter(may_have).map(|part| part.frozen.file_bytes()).sum()
    }
}
