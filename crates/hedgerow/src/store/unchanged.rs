//! Whether what a transaction has read is unchanged, as its snapshot says what it was.
//!
//! Rank 6. A leaf is compared with old versions in memory, and where a checkpoint has taken the snapshot over with that and with old versions in
//! the file. Where a bulk load came since the snapshot began, there were no other records than old versions have, in memory and in the file. Invariant: no more of a checkpoint than one leaf is in memory, but for what is read ahead of a leaf that is waited for.
//! `Send + Sync`. Nothing is latched here; the caller may have the leaf latched, and says then that the file was read ahead.

use super::PoolTree;
use super::snapshots::{NO_LEAF, OpenSnapshot, Source, Was, too_old};
use crate::buffer::{BufferPool, PinnedCheckpoint};
use crate::error::{Error, Result};
use crate::large::is_same_value;
use crate::tree::{AskFile, Fences, FromFile, InFile, Judge, LeafRecords, Read, Target};
use crate::types::Lsn;
use crate::versions::Stretch;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds};

/// What a transaction has read is what its snapshot sees; see [`Judge`].
impl Judge<BufferPool> for OpenSnapshot {
    fn is_as_it_was(&self, tree: &PoolTree, stamp: Lsn) -> bool {
        self.versions().sees_all(self.ticket(), tree.id(), stamp)
    }

    #[inline]
    fn own_snapshots(&self) -> u64 {
        u64::from(self.is_of_commit)
    }

    fn read_ahead(&self, read: &Read<'_, BufferPool>, fences: &Fences) -> Result<Option<FromFile>> {
        self.versions().index_recent();
        match self.source(read.tree.id(), NO_LEAF)? {
            Source::Checkpoint(pin) => {
                Ok(Some(self.file_records(Some(&pin), read, fences, false)?.0))
            }
            Source::Nothing => Ok(Some(self.file_records(None, read, fences, false)?.0)),
            Source::Leaf => Ok(None),
        }
    }

    fn compare(&self, leaf: &[u8], read: &Read<'_, BufferPool>, file: AskFile<'_>) -> Result<bool> {
        self.compare_where(leaf, read, file, &|_, _, _| Ok(true))
    }
}

/// Whether a change of a record is one of what was read: its key, and its value now and then.
pub type Counts<'c> = dyn Fn(&[u8], Option<&[u8]>, Option<&[u8]>) -> Result<bool> + 'c;

impl OpenSnapshot {
    /// [`Judge::compare`], where a change of a record counts only if `counts` says so.
    ///
    /// Errors: `Conflict`; those of reads and of `counts`.
    pub fn compare_where(
        &self,
        leaf: &[u8],
        read: &Read<'_, BufferPool>,
        file: AskFile<'_>,
        counts: &Counts<'_>,
    ) -> Result<bool> {
        let tree = read.tree;
        let mut records = tree.records_of(leaf);
        let stamp = records.stamp();
        loop {
            let pin = match self.source(tree.id(), stamp)? {
                Source::Leaf => match self.compare_kept(&mut records, read, counts)? {
                    true => return Ok(true),
                    false => continue,
                },
                Source::Nothing => None,
                Source::Checkpoint(pin) => Some(pin),
            };
            let fences = records.fences();
            let is_known = match file {
                AskFile::Ahead(None) => return Ok(false),
                AskFile::Ahead(Some(ahead)) => {
                    self.compare_with_file(ahead, &mut records, read, (&fences, counts))?
                }
                AskFile::Read | AskFile::ReadButTree => {
                    self.compare_by_leaf(pin.as_deref(), &mut records, read, (fences, counts))?
                }
            };
            if is_known {
                return Ok(true);
            }
            if let AskFile::Ahead(Some(ahead)) = file
                && !self.is_all(ahead)?
            {
                return Ok(false);
            }
        }
    }

    /// Compares what a leaf has of an interval with what versions in memory and the leaf say that it was. False: the snapshot does not see the
    /// leaf any more, but a checkpoint, or what old versions have in the file, too.
    fn compare_kept(
        &self,
        records: &mut LeafRecords,
        read: &Read<'_, BufferPool>,
        counts: &Counts<'_>,
    ) -> Result<bool> {
        let (tree, stamp) = (read.tree, records.stamp());
        let mut old = Vec::new();
        let mut check = |key: &[u8], now: Option<&[u8]>| {
            old.clear();
            let then = match self.was_in_memory(tree.id(), key, stamp, &mut old)? {
                Was::Absent => None,
                Was::Version => Some(old.as_slice()),
                Was::Leaf => now,
                Was::Pinned => return Ok(false),
            };
            match is_alike(now, then) || !counts(key, now, then)? {
                true => Ok(true),
                false => Err(Error::conflicting(tree.id(), key)),
            }
        };
        let bounds = (read.lower, read.upper);
        let mut found = Vec::new();
        let mut outcome = Ok(true);
        records.for_each(|key, value| {
            if RangeBounds::<[u8]>::contains(&bounds, key) {
                found.push(key.to_vec());
                outcome = check(key, Some(value));
            }
            is_before_end(read, key) && matches!(outcome, Ok(true))
        });
        let mut is_kept = outcome?;
        // Those that are gone. A removed key may be back, and was compared then.
        self.for_each_gone(read, &records.fences(), |key| {
            let is_new = found.binary_search_by(|other| other.as_slice().cmp(key)).is_err();
            if is_kept && is_new {
                is_kept = check(key, None)?;
            }
            Ok(())
        })?;
        // Of a key that was removed the file alone may know by now.
        Ok(is_kept && matches!(self.source(tree.id(), stamp)?, Source::Leaf))
    }

    /// Calls `each` with the removed keys of an interval that memory knows of, as far as a leaf goes.
    fn for_each_gone(
        &self,
        read: &Read<'_, BufferPool>,
        fences: &Fences,
        each: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let from = begin(read, fences);
        let from = from.as_ref().map(Vec::as_slice);
        self.for_each_removed(read.tree.id(), from, |key| is_below_end(read, fences, key), each)
    }

    /// Whether what was read from the file is all that there is: what memory had, and has no longer, was in it. Asked at the end of a comparison.
    ///
    /// Errors: `SnapshotTooOld`: what it needed may be gone from memory and the file, so that there was nothing to compare.
    fn is_all(&self, from_file: &FromFile) -> Result<bool> {
        if self.versions().is_given_up(self.ticket().slot()) {
            return Err(too_old());
        }
        Ok(self.versions().parts_written() == from_file.parts_written)
    }

    /// What the file has of an interval within a leaf's fences: a pinned checkpoint, if there is one to ask, and old versions. Of the
    /// checkpoint's first leaf there alone, if `is_one` says so; then also where that ends, if there is more.
    fn file_records(
        &self,
        pin: Option<&PinnedCheckpoint>,
        read: &Read<'_, BufferPool>,
        fences: &Fences,
        is_one: bool,
    ) -> Result<(FromFile, Option<Vec<u8>>)> {
        let mut all =
            FromFile { records: BTreeMap::new(), parts_written: self.versions().parts_written() };
        let from = begin(read, fences);
        let (mut leaf, mut fence) = (read.tree.leaf_records(), Vec::new());
        let mut at = match &from {
            Bound::Included(key) => Target::Key(key),
            Bound::Excluded(key) => Target::Above(key),
            Bound::Unbounded => Target::Key(&[]),
        };
        let has_more = loop {
            let Some(pin) = pin else { break false };
            self.pinned(pin, read.tree, |pinned| pinned.copy_records(at, &mut leaf))?;
            leaf.for_each(|key, value| {
                if is_in(read, fences, key) {
                    all.records.insert(key.to_vec(), InFile::Checkpoint(value.to_vec()));
                }
                true
            });
            fence.clear();
            if !leaf.append_upper_fence(&mut fence) || !is_below_end(read, fences, &fence) {
                break false;
            }
            if is_one {
                break true;
            }
            at = Target::Above(&fence);
        };
        let upper = if has_more { Bound::Included(&fence[..]) } else { end(read, fences) };
        let (tree, lower) = (read.tree.id(), from.as_ref().map(Vec::as_slice));
        let stretch = Stretch { tree, lower, upper };
        self.versions().for_each_frozen(self.ticket(), stretch, &mut |record| {
            let version = InFile::Version(record.value.map(<[u8]>::to_vec));
            match all.records.get_mut(record.key) {
                // The first one counts.
                Some(InFile::Version(_)) => {}
                Some(was) => *was = version,
                None => drop(all.records.insert(record.key.to_vec(), version)),
            }
        })?;
        Ok((all, has_more.then_some(fence)))
    }

    /// [`Self::compare_with_file`], by one leaf of the checkpoint after the other: where much was removed since, one leaf of the tree has the range of
    /// very many of them.
    fn compare_by_leaf(
        &self,
        pin: Option<&PinnedCheckpoint>,
        records: &mut LeafRecords,
        read: &Read<'_, BufferPool>,
        (mut fences, counts): (Fences, &Counts<'_>),
    ) -> Result<bool> {
        let last = fences.upper.take();
        loop {
            fences.upper.clone_from(&last);
            let (from_file, more) = self.file_records(pin, read, &fences, true)?;
            let is_last = more.is_none();
            if !is_last {
                fences.upper = more;
            }
            if !self.compare_with_file(&from_file, records, read, (&fences, counts))? {
                return Ok(false);
            }
            if is_last {
                return Ok(true);
            }
            fences.lower = fences.upper.take();
        }
    }

    /// Compares what a leaf has of an interval with what a pinned checkpoint and old versions say that it was. False: something else is to be
    /// asked by now, or versions have gone to the file since that was read.
    fn compare_with_file(
        &self,
        from_file: &FromFile,
        records: &mut LeafRecords,
        read: &Read<'_, BufferPool>,
        (fences, counts): (&Fences, &Counts<'_>),
    ) -> Result<bool> {
        let tree = read.tree.id();
        // What there is now.
        let mut all: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        records.for_each(|key, value| {
            if is_in(read, fences, key) {
                all.insert(key.to_vec(), Some(value.to_vec()));
            }
            is_before_end(read, key)
        });
        for key in from_file.records.keys() {
            all.entry(key.clone()).or_default();
        }
        self.for_each_gone(read, fences, |key| {
            all.entry(key.to_vec()).or_default();
            Ok(())
        })?;
        let mut old = Vec::new();
        for (key, now) in &all {
            old.clear();
            let in_memory = self.was_in_memory(tree, key, NO_LEAF, &mut old)?;
            let was = match (in_memory, from_file.records.get(key)) {
                (Was::Leaf, _) => return Ok(false),
                (_, Some(InFile::Version(version))) => version.as_ref(),
                (Was::Absent, _) => None,
                (Was::Version, _) => Some(&old),
                (Was::Pinned, Some(InFile::Checkpoint(value))) => Some(value),
                (Was::Pinned, None) => None,
            };
            let (now, was) = (now.as_deref(), was.map(Vec::as_slice));
            if !is_alike(now, was) && counts(key, now, was)? {
                return match self.is_all(from_file)? {
                    true => Err(Error::conflicting(tree, key)),
                    false => Ok(false),
                };
            }
        }
        self.is_all(from_file)
    }
}

/// Whether a record has the value that it had. A large one may have been moved: then its reference is another one.
fn is_alike(now: Option<&[u8]>, then: Option<&[u8]>) -> bool {
    now == then || now.zip(then).is_some_and(|(now, then)| is_same_value(now, then))
}

/// Where an interval begins in a leaf.
fn begin(read: &Read<'_, BufferPool>, fences: &Fences) -> Bound<Vec<u8>> {
    let begins_here = |key: &[u8]| fences.lower.as_ref().is_none_or(|lower| key > lower.as_slice());
    match (read.lower, &fences.lower) {
        (Bound::Included(key), _) if begins_here(key) => Bound::Included(key.to_vec()),
        (Bound::Excluded(key), _) if begins_here(key) => Bound::Excluded(key.to_vec()),
        (_, Some(lower)) => Bound::Excluded(lower.clone()),
        (_, None) => Bound::Unbounded,
    }
}

/// Where an interval ends in a leaf.
fn end<'a>(read: &Read<'a, BufferPool>, fences: &'a Fences) -> Bound<&'a [u8]> {
    match &fences.upper {
        Some(upper) if is_below_end(read, fences, upper) => Bound::Included(upper),
        _ => read.upper,
    }
}

/// Whether a key is not behind the end of an interval.
fn is_before_end(read: &Read<'_, BufferPool>, key: &[u8]) -> bool {
    RangeBounds::<[u8]>::contains(&(Bound::Unbounded, read.upper), key)
}

/// Whether a key is not behind the end of an interval, and of a leaf.
fn is_below_end(read: &Read<'_, BufferPool>, fences: &Fences, key: &[u8]) -> bool {
    is_before_end(read, key) && fences.upper.as_ref().is_none_or(|upper| key <= upper.as_slice())
}

/// Whether a key is in an interval, and within the fences of a leaf.
fn is_in(read: &Read<'_, BufferPool>, fences: &Fences, key: &[u8]) -> bool {
    is_below_end(read, fences, key)
        && RangeBounds::<[u8]>::contains(&(read.lower, Bound::Unbounded), key)
        && fences.lower.as_ref().is_none_or(|lower| key > lower.as_slice())
}
