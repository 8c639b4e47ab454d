//! Old versions by (tree, key): a hash table in lent blocks, and the removed keys beside it.
//!
//! A version is a chain of cells: the LSN of the change that ended it, and what the record's value was until then, or that there was no
//! record. Versions of one key lie in one bucket, the newest first, as they were linked. The table grows by one bucket at a time (linear
//! hashing), when memory is added to it and never when a version is linked.
//!
//! What is found as of `s` is the version with the smallest LSN above `s`. Versions are looked for among those that have a place by their key; the *recent* ones
//! have none yet ([`recent`](super::recent)), and are to be [indexed](Table::index_one) before.
//!
//! Invariants: in a bucket the versions of a key have falling LSNs; the newest one says whether the key is in [`Removed`], where it is
//! as long as it has a version, if its last change was a removal; `reserved` cells at least are free. Linking and dropping allocate
//! nothing. A plain value behind a mutex.

use crate::error::{Error, ErrorKind, Result};
use crate::types::{Lsn, TreeId};
use crate::versions::begin::{
    ABSENT, BEHIND_AT, Begin, Change, HASH_AT, KEY_AT, LENGTH_AT, LISTED, LSN_AT, VALUE_LENGTH_AT,
};
use crate::versions::cells::{CellId, Cells, cells_for};
use crate::versions::frozen::{Record, Version};
use crate::versions::memory::Block;
use crate::versions::needs::{Bounds, Needs};
use crate::versions::recent::{REMOVES, Recent, Taken};
use crate::versions::removed::{self, Removed};
use hedgerow_sync::primitive::random;
use twox_hash::XxHash3_64;

/// Cells of data for each bucket.
const CELLS_A_BUCKET: u32 = 2;
const HEAD_BYTES: usize = 4;

/// Cells of memory, of 64 bytes, that the change of a record may take: of a key of this length and an old value of at most `value_len`
/// bytes.
pub fn cells_of_change(key_len: usize, value_len: usize) -> u32 {
    cells_for(KEY_AT + key_len + value_len) + cells_for(removed::longest_node_bytes(key_len))
}

/// Takes the head of a [`Record`], the bytes of all of it, and what follows the head. False: it has not.
pub(super) type Take<'t> = dyn FnMut(&[u8], usize, &mut dyn Iterator<Item = &[u8]>) -> bool + 't;

/// See the head of the file.
pub(super) struct Table<B> {
    pub(super) cells: Cells<B>,
    removed: Removed,
    /// Heads of buckets.
    index: Vec<B>,
    /// Heads of a block of the index, as a power of two.
    heads_each_log2: u32,
    buckets: u32,
    /// The largest power of two up to `buckets`.
    round: u32,
    seed: u64,
    /// Versions, with the recent ones.
    pub(super) versions: u64,
    pub(super) recent: Recent,
    /// Room for a key.
    key: Vec<u8>,
}

impl<B: Block> Table<B> {
    /// Without memory, for blocks of so many bytes.
    pub(super) fn new(block_bytes: usize) -> Table<B> {
        Table {
            cells: Cells::new(block_bytes),
            removed: Removed::new(),
            index: Vec::new(),
            heads_each_log2: (block_bytes / HEAD_BYTES).ilog2(),
            buckets: 0,
            round: 0,
            seed: random::seed(),
            versions: 0,
            recent: Recent::new(),
            key: Vec::new(),
        }
    }

    /// Has the memory that finding a recent version its place takes.
    ///
    /// Errors: `MemoryLimit`.
    pub(super) fn prepare(&mut self, longest_key: usize) -> Result<()> {
        let refused = |_| Error::new(ErrorKind::MemoryLimit, "no memory to find versions by keys");
        self.key.clear();
        self.key.try_reserve_exact(longest_key).map_err(refused)
    }

    /// Blocks that are lent.
    pub(super) fn blocks(&self) -> u32 {
        self.index.len() as u32 + self.cells.all() / self.cells.cells_each()
    }

    /// Heads of all blocks of the index.
    fn heads(&self) -> u32 {
        (self.index.len() as u32) << self.heads_each_log2
    }

    /// Adds a block: to the index if that is due, to the cells else. Returns how many cells there are more.
    ///
    /// Errors: `MemoryLimit` if there is no memory to note it.
    pub(super) fn add(&mut self, mut bytes: B) -> Result<u32> {
        let wanted = (self.cells.all() + self.cells.cells_each()) / CELLS_A_BUCKET;
        if self.heads() >= wanted.max(1) {
            self.cells.add(bytes)?;
            while self.buckets < self.cells.all() / CELLS_A_BUCKET {
                self.split_bucket();
            }
            return Ok(self.cells.cells_each());
        }
        let refused =
            |_| Error::new(ErrorKind::MemoryLimit, "no memory to note a block of versions");
        self.index.try_reserve(1).map_err(refused)?;
        bytes.as_mut().fill(0);
        self.index.push(bytes);
        if self.buckets == 0 {
            (self.buckets, self.round) = (1, 1);
        }
        Ok(0)
    }

    /// Takes back blocks that are not in use, those of cells as long as `may_go` says that so many less are enough: as many as `given` has room
    /// for.
    pub(super) fn give_back(&mut self, may_go: impl FnMut(u32) -> bool, given: &mut Vec<B>) {
        self.cells.give_back(may_go, given);
        if self.versions == 0 {
            // Every head is zero.
            let heads_each = 1 << self.heads_each_log2;
            let needed = (self.cells.all() / CELLS_A_BUCKET).div_ceil(heads_each).max(1);
            while self.index.len() as u32 > needed && given.len() < given.capacity() {
                given.extend(self.index.pop());
            }
            self.buckets = self.buckets.min(self.heads());
            self.round = if self.buckets == 0 { 0 } else { 1 << self.buckets.ilog2() };
        }
    }

    /// As [`Cells::replace`], of all blocks.
    pub(super) fn replace(
        &mut self,
        is_it: impl Fn(&B) -> bool,
        mut other: B,
    ) -> std::result::Result<B, B> {
        match self.index.iter_mut().find(|block| is_it(block)) {
            Some(block) => {
                other.as_mut().copy_from_slice(block.as_ref());
                Ok(std::mem::replace(block, other))
            }
            None => self.cells.replace(is_it, other),
        }
    }

    /// The hash of a key.
    #[inline]
    pub(super) fn hash(&self, tree: TreeId, key: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.seed ^ u64::from(tree.0), key)
    }

    #[inline]
    fn bucket(&self, hash: u32) -> u32 {
        let bucket = hash & (2 * self.round - 1);
        if bucket < self.buckets { bucket } else { bucket - self.round }
    }

    #[inline]
    fn place_of_head(&self, bucket: u32) -> (usize, usize) {
        let at = (bucket & ((1 << self.heads_each_log2) - 1)) as usize * HEAD_BYTES;
        ((bucket >> self.heads_each_log2) as usize, at)
    }

    #[inline]
    fn head(&self, bucket: u32) -> CellId {
        let (block, at) = self.place_of_head(bucket);
        let block = self.index[block].as_ref();
        CellId(u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]]))
    }

    fn set_head(&mut self, bucket: u32, to: CellId) {
        let (block, at) = self.place_of_head(bucket);
        let block = self.index[block].as_mut();
        block[at..at + HEAD_BYTES].copy_from_slice(&to.0.to_le_bytes());
    }

    fn set_behind(&mut self, bucket: u32, before: CellId, to: CellId) {
        match before.is_none() {
            true => self.set_head(bucket, to),
            false => self.cells.set_u32(before, BEHIND_AT, to.0),
        }
    }

    #[inline]
    fn version(&self, version: CellId) -> Begin {
        Begin::of(&self.cells, version)
    }

    #[inline]
    fn behind(&self, version: CellId) -> CellId {
        CellId(self.cells.u32_at(version, BEHIND_AT))
    }

    /// Makes one bucket more, of one that has had two buckets' hashes. Both keep their order.
    fn split_bucket(&mut self) {
        let (new, old) = (self.buckets, self.buckets - self.round);
        self.set_head(new, CellId::NONE);
        let mut version = self.head(old);
        self.set_head(old, CellId::NONE);
        let bit = self.round;
        self.buckets += 1;
        if self.buckets == 2 * self.round {
            self.round = self.buckets;
        }
        let mut last = [CellId::NONE; 2];
        while !version.is_none() {
            let behind = self.behind(version);
            let goes = usize::from(self.cells.u32_at(version, HASH_AT) & bit != 0);
            self.cells.set_u32(version, BEHIND_AT, 0);
            self.set_behind([old, new][goes], last[goes], version);
            last[goes] = version;
            version = behind;
        }
    }

    fn key(&self, version: CellId, len_bytes: usize) -> impl Iterator<Item = &[u8]> {
        self.cells.parts(version, KEY_AT, len_bytes)
    }

    #[inline]
    fn lsn(&self, version: CellId) -> Lsn {
        Lsn(self.cells.u64_at(version, LSN_AT))
    }

    /// Whether a version that begins so is one of the key.
    fn is_of(&self, version: CellId, begin: &Begin, hash: u32, tree: TreeId, key: &[u8]) -> bool {
        if begin.hash() != hash || begin.tree() != tree || begin.key_len() != key.len() {
            return false;
        }
        let mut rest = key;
        self.key(version, key.len()).all(|part| {
            let (begin, behind) = rest.split_at(part.len());
            rest = behind;
            part == begin
        })
    }

    /// The first version of the key of `of` from `version` on.
    fn older(&self, of: CellId, begin: &Begin, mut version: CellId) -> CellId {
        while !version.is_none() {
            let other = self.version(version);
            // Both are cut at the same places.
            let len_bytes = begin.key_len();
            if (other.hash(), other.tree(), other.key_len())
                == (begin.hash(), begin.tree(), len_bytes)
                && self.key(of, len_bytes).eq(self.key(version, len_bytes))
            {
                return version;
            }
            version = other.behind();
        }
        version
    }

    fn newest(&self, hash: u64, tree: TreeId, key: &[u8]) -> CellId {
        let mut version = self.head(self.bucket(hash as u32));
        while !version.is_none() {
            let begin = self.version(version);
            if self.is_of(version, &begin, hash as u32, tree, key) {
                return version;
            }
            version = begin.behind();
        }
        version
    }

    /// Puts the oldest of the recent versions where it is found by its key, unless nobody can need it: the key's newest version was ended above
    /// `horizon`, where no snapshot is, or by a change with the same LSN. Returns how many cells that were promised are free then.
    pub(super) fn index_one(&mut self, horizon: Lsn) -> u32 {
        let free_before = self.cells.free();
        let Some(Taken { version, begin, owed, removes }) = self.recent.take(&self.cells) else {
            return 0;
        };
        let (tree, lsn) = (begin.tree(), begin.lsn());
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        self.key(version, begin.key_len()).for_each(|part| key.extend_from_slice(part));
        let hash = self.hash(tree, &key);
        let newest = self.newest(hash, tree, &key);
        let was_listed = !newest.is_none() && self.cells.u32_at(newest, LENGTH_AT) & LISTED != 0;
        // Also if no version is linked: a snapshot below the newest one has to find the key.
        let becomes_listed = removes && !was_listed;
        if becomes_listed {
            self.removed.insert(&mut self.cells, hash, tree, &key);
        }
        self.key = key;
        let listed = if was_listed || becomes_listed { LISTED } else { 0 };
        // With one LSN no snapshot has begun between the two changes.
        if !newest.is_none() && (self.lsn(newest) > horizon || self.lsn(newest) == lsn) {
            let length = self.cells.u32_at(newest, LENGTH_AT);
            self.cells.set_u32(newest, LENGTH_AT, length | listed);
            self.cells.release(version);
            self.versions -= 1;
            return owed + self.cells.free() - free_before;
        }
        debug_assert!(newest.is_none() || self.lsn(newest) < lsn, "changes of a key have an order");
        if was_listed {
            let length = self.cells.u32_at(newest, LENGTH_AT);
            self.cells.set_u32(newest, LENGTH_AT, length & !LISTED);
        }
        let bucket = self.bucket(hash as u32);
        self.cells.set_u32(version, BEHIND_AT, self.head(bucket).0);
        self.cells.set_u32(version, HASH_AT, hash as u32);
        self.cells.set_u32(version, LENGTH_AT, begin.length() | listed);
        self.set_head(bucket, version);
        owed + self.cells.free() - free_before
    }

    /// The version of a key that a snapshot at `at` sees, if it was ended since; its value is appended to `to` as far as that has room
    /// without growing.
    pub(super) fn find(
        &self,
        tree: TreeId,
        key: &[u8],
        at: Lsn,
        to: &mut Vec<u8>,
    ) -> Option<Version> {
        if self.buckets == 0 {
            return None;
        }
        let mut found = CellId::NONE;
        let mut version = self.newest(self.hash(tree, key), tree, key);
        while !version.is_none() && self.lsn(version) > at {
            found = version;
            let begin = self.version(version);
            version = self.older(version, &begin, begin.behind());
        }
        if found.is_none() {
            return None;
        }
        let ended = self.lsn(found);
        if self.cells.u32_at(found, LENGTH_AT) & ABSENT != 0 {
            return Some(Version { ended, len_bytes: None });
        }
        let len_bytes = self.cells.u32_at(found, VALUE_LENGTH_AT) as usize;
        if to.capacity() - to.len() >= len_bytes {
            let value = self.cells.parts(found, KEY_AT + key.len(), len_bytes);
            value.for_each(|part| to.extend_from_slice(part));
        }
        Some(Version { ended, len_bytes: Some(len_bytes) })
    }

    /// Removed keys, and what they lie in.
    pub(super) fn removed(&self) -> (&Removed, &Cells<B>) {
        (&self.removed, &self.cells)
    }

    /// How many buckets there are to be [swept](Self::sweep).
    pub(super) fn buckets(&self) -> u32 {
        self.buckets
    }

    /// Calls `each` with the LSN that ended a version in a bucket which was ended up to `up_to` and somebody needs, and its cells with those of its removed key.
    pub(super) fn needed_cells(
        &self,
        bucket: u32,
        needs: &Needs,
        up_to: Lsn,
        each: &mut impl FnMut(Lsn, u32),
    ) {
        self.for_each_needed(bucket, needs, up_to, |version, begin| {
            let value_len = self.cells.u32_at(version, VALUE_LENGTH_AT) as usize;
            let mut cells = cells_for(KEY_AT + begin.key_len() + value_len);
            if begin.length() & LISTED != 0 {
                // Most nodes have one link.
                cells += cells_for(removed::node_bytes(u64::MAX, begin.key_len()));
            }
            each(begin.lsn(), cells);
            true
        });
    }

    /// Hands these versions to `take`. False: it has not taken one, and the others were not handed over.
    pub(super) fn copy_needed(
        &self,
        bucket: u32,
        needs: &Needs,
        up_to: Lsn,
        take: &mut Take<'_>,
    ) -> bool {
        self.for_each_needed(bucket, needs, up_to, |version, begin| {
            // The first one that has its key.
            let newest = self.older(version, begin, self.head(bucket));
            let is_listed = self.cells.u32_at(newest, LENGTH_AT) & LISTED != 0;
            let key_len = begin.key_len();
            let value_len = (begin.length() & ABSENT == 0)
                .then(|| self.cells.u32_at(version, VALUE_LENGTH_AT) as usize);
            let (head, len) =
                Record::head(begin.tree(), begin.lsn(), key_len, value_len, is_listed);
            let len_bytes = len - head.len();
            take(&head, len, &mut self.cells.parts(version, KEY_AT, len_bytes))
        })
    }

    /// Calls `each` with these versions, the newest ones first, as long as it returns true. False: it did not.
    fn for_each_needed(
        &self,
        bucket: u32,
        needs: &Needs,
        up_to: Lsn,
        mut each: impl FnMut(CellId, &Begin) -> bool,
    ) -> bool {
        let mut version = self.head(bucket);
        while !version.is_none() {
            let begin = self.version(version);
            let ended = begin.lsn();
            if ended <= up_to {
                let older = self.older(version, &begin, begin.behind());
                let began = if older.is_none() { Lsn(0) } else { self.lsn(older) };
                if needs.any_between(began, ended) && !each(version, &begin) {
                    return false;
                }
            }
            version = begin.behind();
        }
        true
    }

    /// Drops from a bucket what was ended up to `up_to` and nobody needs. `key` is room for a key.
    pub(super) fn sweep(&mut self, bucket: u32, needs: &Needs, up_to: Lsn, key: &mut Vec<u8>) {
        let (mut before, mut version) = (CellId::NONE, self.head(bucket));
        while !version.is_none() {
            let begin = self.version(version);
            let (behind, ended) = (begin.behind(), begin.lsn());
            let older = self.older(version, &begin, behind);
            let began = if older.is_none() { Lsn(0) } else { self.lsn(older) };
            if ended > up_to || needs.any_between(began, ended) {
                before = version;
            } else {
                self.set_behind(bucket, before, behind);
                self.unlist(version, &begin, older, key);
                self.cells.release(version);
                self.versions -= 1;
            }
            version = behind;
        }
    }

    /// What is noted on a version about to go is noted on the next older one, or the key is forgotten among the removed ones.
    fn unlist(&mut self, version: CellId, begin: &Begin, older: CellId, key: &mut Vec<u8>) {
        if begin.length() & LISTED == 0 {
            return;
        }
        if !older.is_none() {
            let length = self.cells.u32_at(older, LENGTH_AT);
            self.cells.set_u32(older, LENGTH_AT, length | LISTED);
            return;
        }
        key.clear();
        self.key(version, begin.key_len()).for_each(|part| key.extend_from_slice(part));
        self.removed.remove(&mut self.cells, begin.tree(), key);
    }
}

/// What is done with recent versions.
impl<B: Block> Table<B> {
    /// Keeps the version that a change ends. Returns the cells that this took of those that were reserved: all that it may ever take.
    pub(super) fn keep(&mut self, change: &Change<'_>) -> u32 {
        let Change { key, old, removes, .. } = *change;
        let value = old.unwrap_or_default();
        let (owed, mark) = match removes {
            true => (cells_for(removed::longest_node_bytes(key.len())), REMOVES),
            false => (0, 0),
        };
        let len_bytes = KEY_AT + key.len() + value.len();
        let begin = Begin::new(change, owed | mark);
        let version = self.cells.allocate(len_bytes);
        self.cells.write(version, 0, [begin.bytes(), key, value]);
        let takes = cells_for(len_bytes) + owed;
        self.recent.add(&mut self.cells, version, takes);
        self.versions += 1;
        takes
    }

    /// Drops recent versions from the front as long as they were ended up to `up_to` and nobody needs them, `most` at most. Returns how many cells are free
    /// then that were not, and whether there may be more of them.
    pub(super) fn trim(&mut self, bounds: &Bounds, up_to: Lsn, most: u32) -> (u32, bool) {
        let free_before = self.cells.free();
        let mut owed = 0;
        for _ in 0..most {
            let first = self.recent.first;
            if first.is_none() {
                return (owed + self.cells.free() - free_before, false);
            }
            let ended = Begin::of(&self.cells, first).lsn();
            if ended > up_to || bounds.may_need(ended) {
                return (owed + self.cells.free() - free_before, false);
            }
            let taken = self.recent.take(&self.cells).expect("it is the first one");
            owed += taken.owed;
            self.cells.release(taken.version);
            self.versions -= 1;
        }
        (owed + self.cells.free() - free_before, true)
    }
}
