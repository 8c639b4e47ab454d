//! Batches that the log has begun and not finished: where they lie in the log, and what of each was made.
//!
//! Rank 6. A batch may be far larger than all memory that a store has, and several may be under way, so their changes
//! stay in the log: what is remembered are places, and a change is read again when it is needed. Batches make their
//! changes in order, so each needs a place to read on from, and how many changes were made. Of a change that was made
//! before an earlier one a bit is kept, unless the earlier one is of a keyspace that is gone: then it will never be made.
//!
//! Memory: some hundred bytes and up to [`PLACES`] places a batch, of batches that were under way at the same time; up to
//! [`CACHE_BYTES`] of changes for all of them; a bit a change only for batches that were not made in order.
//! Not shared.

use crate::error::{Error, ErrorKind, Result};
use crate::storage::File;
use crate::types::{Lsn, TreeId};
use crate::wal::{Appended, BatchId, Decoded, FileHeader, Record, Reread};
use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

/// A record of the log that is none of this store.
pub(super) fn damage(at: Lsn, what: &str) -> Error {
    let what = format!("the log's record at {} cannot be one of this store: {what}", at.0);
    Error::new(ErrorKind::Corrupted { page: None, offset_bytes: None }, what)
}

/// A change: tree, key and value; without a value it removes the record.
pub(super) type Change<'r> = (TreeId, &'r [u8], Option<&'r [u8]>);

/// Places in the log that are remembered of a batch at most: of longer ones every second, fourth and so on.
const PLACES: usize = 1024;
/// Changes that are kept in memory, of all batches together, and at least one record.
const CACHE_BYTES: usize = 1 << 20;
/// With so many batches it is looked for those of which no change is left but of keyspaces that are gone.
const COLLECT_AT: usize = 8192;

/// See the head of the file.
pub(super) struct Unfinished<'f> {
    file: &'f dyn File,
    header: FileHeader,
    /// From the first time on that it is needed.
    log: Option<Reread<'f>>,
    batches: BTreeMap<BatchId, Batch>,
    cached_bytes: usize,
    collect_at: usize,
}

/// One of them.
struct Batch {
    /// How many changes it has, and how many of them the log was found to have.
    total: u32,
    seen: u32,
    /// Changes that were not made yet, or not even seen.
    left: u32,
    /// One of them at least puts a value in a stored form.
    has_stored_forms: bool,
    /// The first place, and behind the last record.
    start: Lsn,
    end: Lsn,
    /// Of every so many-th record but the first: its first change, and where it begins.
    places: Vec<(u32, Lsn)>,
    stride: u32,
    records: u32,
    /// All changes below were made, or will not be.
    below: u32,
    /// Which of the others were, if any.
    made: Vec<u64>,
    piece: Option<Piece>,
}

/// A record of a batch, in memory.
struct Piece {
    first: u32,
    count: u32,
    /// Behind the record.
    next: Lsn,
    changes: Vec<u8>,
    /// A change in it, and where it lies.
    cursor: (u32, usize),
}

/// What became of a change that was made.
pub(super) enum Noted {
    /// The log does not have the batch.
    Unknown,
    /// It does not have all of it, so nothing of it can have been made.
    Part,
    /// It has no such change, or it was made before.
    Impossible,
    /// It is noted.
    Made,
}

/// Shows each change in a record of a batch, and where it lies in there. Errors: what is wrong.
fn for_each_change(
    records: &[u8],
    each: &mut dyn FnMut(usize, &Record<'_>),
) -> Result<(), &'static str> {
    let mut done = 0;
    while done < records.len() {
        let (record, len) = match Record::decode(&records[done..]) {
            Decoded::Whole(
                record @ (Record::Put { .. } | Record::Extent { .. } | Record::Remove { .. }),
                len,
            ) => (record, len),
            _ => return Err("a batch has something that is not a change"),
        };
        each(done, &record);
        done += len;
    }
    Ok(())
}

/// The change that a record of a batch, which was looked at when it was noted, has at a place; and its length.
fn change_at(changes: &[u8], at: usize) -> Option<(Change<'_>, usize)> {
    match Record::decode(changes.get(at..)?) {
        Decoded::Whole(
            Record::Put { tree, key, value } | Record::Extent { tree, key, value, .. },
            len,
        ) => Some(((tree, key, Some(value)), len)),
        Decoded::Whole(Record::Remove { tree, key }, len) => Some(((tree, key, None), len)),
        _ => None,
    }
}

impl<'f> Unfinished<'f> {
    /// None, of this log.
    pub(super) fn new(file: &'f dyn File, header: &FileHeader) -> Unfinished<'f> {
        let (header, batches) = (*header, BTreeMap::new());
        Unfinished { file, header, log: None, batches, cached_bytes: 0, collect_at: COLLECT_AT }
    }

    /// Notes a record of a batch that has `total` changes, and shows `each` of those in it. Whether all of the batch is
    /// there now.
    ///
    /// Errors: `Corrupted`; then none of them was noted, because what a log has until there may be replayed all the same.
    pub(super) fn note(
        &mut self,
        batch: BatchId,
        total: u32,
        records: &[u8],
        place: Appended,
        each: &mut dyn FnMut(&Record<'_>) -> Result<()>,
    ) -> Result<bool> {
        let at = place.start;
        let noted = self.batches.get(&batch).map_or((total, 0), |known| (known.total, known.seen));
        if noted.0 != total {
            return Err(damage(at, "two records of a batch do not agree about its length"));
        }
        let (mut count, mut has_stored_forms, mut outcome) = (0_u32, false, Ok(()));
        let read = for_each_change(records, &mut |_, record| {
            count += 1;
            has_stored_forms |= matches!(record, Record::Extent { .. });
            if outcome.is_ok() {
                outcome = each(record);
            }
        });
        read.map_err(|what| damage(at, what))?;
        outcome?;
        let first = noted.1;
        if count > total - first {
            return Err(damage(at, "a batch has more changes than it says"));
        }
        let found = self.batches.entry(batch).or_insert_with(|| Batch::new(total, at));
        found.add(count, place);
        found.has_stored_forms |= has_stored_forms;
        // Small batches are made at once, so most are never read again.
        if found.piece.is_none() && self.cached_bytes + records.len() <= CACHE_BYTES {
            self.cached_bytes += records.len();
            let (next, changes) = (place.end, records.to_vec());
            found.piece = Some(Piece { first, count, next, changes, cursor: (first, 0) });
        }
        Ok(found.is_whole())
    }

    /// Notes that a change was made. `is_gone`: no change of this tree will be made any more.
    ///
    /// Errors: those of reading the log.
    pub(super) fn made(
        &mut self,
        batch: BatchId,
        change: u32,
        is_gone: &mut dyn FnMut(TreeId) -> bool,
    ) -> Result<Noted> {
        let Some(found) = self.batches.get(&batch) else { return Ok(Noted::Unknown) };
        if !found.is_whole() {
            return Ok(Noted::Part);
        }
        if change >= found.total || found.is_made(change) {
            return Ok(Noted::Impossible);
        }
        if found.made.is_empty() && change > found.below {
            let passed = self.all_are_gone(batch, found.below..change, is_gone)?;
            if let Some(found) = self.batches.get_mut(&batch).filter(|_| passed) {
                found.left -= change - found.below;
                found.below = change;
            }
        }
        if let Some(found) = self.batches.get_mut(&batch) {
            found.set_made(change);
        }
        Ok(Noted::Made)
    }

    fn all_are_gone(
        &mut self,
        batch: BatchId,
        mut changes: std::ops::Range<u32>,
        is_gone: &mut dyn FnMut(TreeId) -> bool,
    ) -> Result<bool> {
        changes.try_fold(true, |all, change| Ok(all && is_gone(self.change(batch, change)?.0)))
    }

    /// A change of a batch that is all there.
    ///
    /// Errors: `Corrupted` if the log does not have it any more; those of reading.
    pub(super) fn change(&mut self, batch: BatchId, change: u32) -> Result<Change<'_>> {
        self.read_piece(batch, change)?;
        let piece = self.batches.get_mut(&batch).and_then(|found| found.piece.as_mut());
        let found = piece.and_then(|piece| piece.change(change));
        found.ok_or_else(|| damage(Lsn(0), "a batch has lost a change"))
    }

    /// Brings the record into memory that has a change of the batch.
    fn read_piece(&mut self, batch: BatchId, change: u32) -> Result<()> {
        let Some(found) = self.batches.get_mut(&batch) else { return Ok(()) };
        if found.piece.as_ref().is_some_and(|piece| piece.has(change)) {
            return Ok(());
        }
        let log = match &mut self.log {
            Some(log) => log,
            None => self.log.insert(Reread::open(self.file, &self.header)?),
        };
        let (mut first, mut at) = found.place_before(change);
        let mut changes = Vec::new();
        if let Some(piece) = found.piece.take() {
            self.cached_bytes -= piece.changes.len();
            let behind = piece.first + piece.count;
            if (first..=change).contains(&behind) {
                (first, at) = (behind, piece.next);
            }
            changes = piece.changes;
        }
        let end = found.end;
        while at < end {
            let (record, place) = log.record_at(at)?;
            at = place.end;
            // Counted from another place it would be another change.
            let known = found.places.binary_search_by_key(&place.start, |&(_, lsn)| lsn);
            if known.is_ok_and(|known| found.places[known].0 != first) {
                break;
            }
            let (Record::Batch { batch: of, changes: total, records }
            | Record::Commit { commit: of, changes: total, records }) = record
            else {
                continue;
            };
            if of != batch {
                continue;
            }
            let mut count = 0;
            let read = for_each_change(records, &mut |_, _| count += 1);
            if read.is_err() || total != found.total || count > total - first {
                break;
            }
            if change - first < count {
                changes.clear();
                changes.extend_from_slice(records);
                self.cached_bytes += changes.len();
                let next = place.end;
                found.piece = Some(Piece { first, count, next, changes, cursor: (first, 0) });
                self.forget_pieces_but(batch);
                return Ok(());
            }
            first += count;
        }
        Err(log.differs(at))
    }

    /// Lets go of records of other batches while there are too many.
    fn forget_pieces_but(&mut self, batch: BatchId) {
        if self.cached_bytes <= CACHE_BYTES {
            return;
        }
        // Those behind it first: of batches that take turns they are needed last.
        let (before, behind) = (..batch, (Excluded(batch), Unbounded));
        let mut order: Vec<BatchId> = Vec::new();
        let has_piece = |(id, found): (&BatchId, &Batch)| found.piece.as_ref().map(|_| *id);
        order.extend(self.batches.range(before).rev().filter_map(has_piece));
        order.extend(self.batches.range(behind).rev().filter_map(has_piece));
        for other in order {
            if self.cached_bytes <= CACHE_BYTES / 2 {
                break;
            }
            let piece = self.batches.get_mut(&other).and_then(|found| found.piece.take());
            self.cached_bytes -= piece.map_or(0, |piece| piece.changes.len());
        }
    }

    /// Whether nothing of the batch is left to be made.
    pub(super) fn is_finished(&self, batch: BatchId) -> bool {
        self.batches.get(&batch).is_some_and(|found| found.left == 0)
    }

    /// Whether one of its changes puts a value in a stored form.
    pub(super) fn has_stored_forms(&self, batch: BatchId) -> bool {
        self.batches.get(&batch).is_some_and(|found| found.has_stored_forms)
    }

    /// The batch is of no interest any more.
    pub(super) fn forget(&mut self, batch: BatchId) {
        if let Some(Batch { piece: Some(piece), .. }) = self.batches.remove(&batch) {
            self.cached_bytes -= piece.changes.len();
        }
    }

    /// Forgets those of which nothing will be made any more, if there are very many: a batch whose keyspace is dropped in the
    /// middle never says that it is finished.
    ///
    /// Errors: those of reading the log.
    pub(super) fn collect(&mut self, is_gone: &mut dyn FnMut(TreeId) -> bool) -> Result<()> {
        if self.batches.len() < self.collect_at {
            return Ok(());
        }
        let mut next = self.batches.keys().next().copied();
        while let Some(batch) = next {
            next = self.batches.range((Excluded(batch), Unbounded)).next().map(|(id, _)| *id);
            let Some(found) = self.batches.get(&batch) else { continue };
            // Of longer ones a log cannot have so many.
            if found.records > 1 || !found.is_whole() || !found.made.is_empty() {
                continue;
            }
            let left = found.below..found.total;
            if self.all_are_gone(batch, left, is_gone)? {
                self.forget(batch);
            }
        }
        self.collect_at = COLLECT_AT.max(2 * self.batches.len());
        Ok(())
    }

    /// The first batch behind another of which the log has all.
    pub(super) fn whole_after(&self, batch: Option<BatchId>) -> Option<BatchId> {
        let from = batch.map_or(Unbounded, Excluded);
        let mut behind = self.batches.range((from, Unbounded));
        behind.find(|(_, found)| found.is_whole()).map(|(id, _)| *id)
    }

    /// The first change of a batch from `from` on that was not made.
    pub(super) fn next_left(&self, batch: BatchId, from: u32) -> Option<u32> {
        let found = self.batches.get(&batch)?;
        (from.max(found.below)..found.seen).find(|change| !found.is_made(*change))
    }

    /// Memory that grows with what the log has.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        let of_batch = |batch: &Batch| {
            size_of::<Batch>() + batch.places.capacity() * 16 + batch.made.capacity() * 8
        };
        self.batches.values().map(of_batch).sum::<usize>() + self.cached_bytes
    }
}

impl Batch {
    fn new(total: u32, start: Lsn) -> Batch {
        Batch {
            total,
            seen: 0,
            left: total,
            has_stored_forms: false,
            start,
            end: start,
            places: Vec::new(),
            stride: 1,
            records: 0,
            below: 0,
            made: Vec::new(),
            piece: None,
        }
    }

    fn is_whole(&self) -> bool {
        self.seen == self.total
    }

    /// More of the changes.
    fn add(&mut self, count: u32, place: Appended) {
        if self.records > 0 && self.records.is_multiple_of(self.stride) {
            if self.places.len() == PLACES {
                // Every second: the first in the list is the record after the first of all.
                let mut at = 0;
                self.places.retain(|_| {
                    at += 1;
                    at % 2 == 0
                });
                self.stride *= 2;
            }
            if self.records.is_multiple_of(self.stride) {
                self.places.push((self.seen, place.start));
            }
        }
        self.records += 1;
        self.seen += count;
        self.end = place.end;
    }

    /// A record of which the first change is not behind this one.
    fn place_before(&self, change: u32) -> (u32, Lsn) {
        let behind = self.places.partition_point(|&(first, _)| first <= change);
        behind.checked_sub(1).map_or((0, self.start), |at| self.places[at])
    }

    fn is_made(&self, change: u32) -> bool {
        let bits = self.made.get(change as usize / 64).copied().unwrap_or(0);
        change < self.below || bits >> (change % 64) & 1 == 1
    }

    fn set_made(&mut self, change: u32) {
        self.left -= 1;
        if change > self.below {
            self.made.resize((self.total as usize).div_ceil(64), 0);
            self.made[change as usize / 64] |= 1 << (change % 64);
            return;
        }
        self.below = change + 1;
        while self.below < self.total && self.is_made(self.below) {
            self.below += 1;
        }
    }
}

impl Piece {
    fn has(&self, change: u32) -> bool {
        change >= self.first && change - self.first < self.count
    }

    fn change(&mut self, change: u32) -> Option<Change<'_>> {
        if change < self.cursor.0 {
            self.cursor = (self.first, 0);
        }
        while self.cursor.0 < change {
            let (_, len) = change_at(&self.changes, self.cursor.1)?;
            self.cursor = (self.cursor.0 + 1, self.cursor.1 + len);
        }
        change_at(&self.changes, self.cursor.1).map(|(change, _)| change)
    }
}

#[cfg(test)]
mod tests;
