//! Removing all records of a range, leaf by leaf.
//!
//! One leaf at a time is latched, cleared of the range, and unlatched; the log gets one record for it, under the latch:
//! the part of the range that the leaf has. If snapshots need more of its records than there is room for at a time, the leaf is
//! cleared in several parts. So reads, writes and log are a matter of pages, not of records. Leaves that are not in memory are read many at a time. A leaf
//! that is left too empty goes to the one before it, and the last one to either neighbour, so that the pages of a large range are freed on the
//! way and never written, and hardly a record is moved that is removed next.
//!
//! It is no atomic step: who reads meanwhile sees a first part of the range gone, and so does a crash.
//! Thread-safety: as for [`Tree`].

use super::Tree;
use super::descend::Target;
use super::retry::{Retry, Stop};
use super::sparse::is_sparse;
use crate::error::Result;
use crate::large::is_stored_form;
use crate::node::{Leaf, LeafMut, plain_leaf};
use crate::page::{Access, EpochStay, PagePool, PoolSession, Restart};
use crate::types::Purpose;
use crate::versions::cells_of_change;
use crate::wait::Waiting;
use crate::wal::{RECORD_HEADER_BYTES, Record};
use hedgerow_sync::optimistic::PlainBytes;
use std::ops::Range;

/// Bytes of the records of a leaf of short ones.
const RECORD_BYTES: usize = 32;

/// What was done in one leaf.
struct Cleared {
    removed: u64,
    /// Where the next leaf begins, if the range goes on.
    next: Option<Vec<u8>>,
    is_sparse: bool,
}

/// The smallest key above this one.
pub fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl<P: PagePool> Tree<P> {
    /// Removes the records with `from <= key`, and `key < to` if there is an end. Tells how many there were.
    ///
    /// Errors: as for all changes; then the records of a first part of the range are gone.
    pub fn remove_range(&self, from: &[u8], to: Option<&[u8]>) -> Result<u64> {
        let to = to.map(|to| self.as_bound(to));
        let waiting = self.wait.begin();
        let mut sparse = None;
        let removed = self.clear_leaves(self.as_bound(from), to.as_deref(), &waiting, &mut sparse);
        if let Some(key) = sparse {
            self.merge_around(&key, Retry::new(&*self.pool, self.root, Access::Scan, &waiting));
        }
        removed
    }

    /// Clears one leaf after the other. One that is left too empty goes to the one before it. `sparse` is where the last of these is, which may have found none.
    fn clear_leaves(
        &self,
        from: Vec<u8>,
        to: Option<&[u8]>,
        waiting: &Waiting<'_>,
        sparse: &mut Option<Vec<u8>>,
    ) -> Result<u64> {
        let mut next = Some(from);
        let mut removed = 0;
        while let Some(from) = next
            && to.is_none_or(|to| *from < *to)
        {
            let mut retry = Retry::new(&*self.pool, self.root, Access::Scan, waiting);
            let cleared = loop {
                match self.clear_leaf(&from, to, &mut retry) {
                    Ok(cleared) => break cleared,
                    Err(stop) => {
                        if matches!(stop, Stop::Restart(Restart::Absent(_))) {
                            let ids = self.absent_leaves(Target::Key(&from), to);
                            retry.session.prefetch(&ids, Access::Scan)?;
                        }
                        retry.after(stop)?;
                    }
                }
            };
            removed += cleared.removed;
            next = cleared.next;
            if cleared.is_sparse {
                self.merge_cleared(&from, retry);
                *sparse = Some(from);
            }
        }
        Ok(removed)
    }

    /// A bound that lies between the same keys, no longer than a key and a byte.
    fn as_bound(&self, bound: &[u8]) -> Vec<u8> {
        match bound.get(..self.max_key_bytes()) {
            Some(longest) if bound.len() > longest.len() => successor(longest),
            _ => bound.to_vec(),
        }
    }

    /// Clears the leaf for `from` of the range.
    fn clear_leaf(
        &self,
        from: &[u8],
        to: Option<&[u8]>,
        retry: &mut Retry<'_, P>,
    ) -> Result<Cleared, Stop> {
        // The part's end is the range's, or a fence and a byte.
        let longest = self.max_key_bytes() + 1;
        let log_bytes = (RECORD_HEADER_BYTES + from.len() + longest) as u64;
        let stay = match self.logged {
            true => self.pool.enter_to_change(
                log_bytes,
                || self.cells_of_part(),
                Purpose::GiveBack,
                retry.waiting(),
            )?,
            false => self.pool.enter_to_append(0, Purpose::GiveBack, retry.waiting())?,
        };
        let mut page = self.lock_leaf(from, retry.patience())?;
        // Each leaf reaches beyond the last one: damage must not send the walk round in circles.
        if !plain_leaf(page.bytes()).as_node().covers(from) {
            let id = page.id();
            page.release_unchanged();
            return Err(Restart::Corrupt(id).into());
        }
        let leaf = plain_leaf(page.bytes());
        let mut fence = Vec::new();
        let beyond = leaf.as_node().append_upper_fence(&mut fence).then(|| successor(&fence));
        let (mut end, mut next) = match (to, beyond) {
            (Some(to), Some(beyond)) if beyond.as_slice() < to => (beyond.clone(), Some(beyond)),
            (None, Some(beyond)) => (beyond.clone(), Some(beyond)),
            (Some(to), _) => (to.to_vec(), None),
            (None, None) => (Vec::new(), None),
        };
        let has_end = to.is_some() || next.is_some();
        // Where it is not in order there is no telling without a change.
        let is_empty = leaf.is_in_order() && {
            let (first, last) = places(&leaf, from, has_end.then_some(&end));
            leaf.previous_place(last).is_none_or(|place| place < first)
        };
        if is_empty {
            let is_sparse = is_sparse(&leaf);
            page.release_unchanged();
            return Ok(Cleared { removed: 0, next, is_sparse });
        }
        let bytes = page.write(stay.epoch());
        Leaf::put_in_order(bytes);
        let (first, mut last) = places(&plain_leaf(bytes), from, has_end.then_some(&end));
        let keeps = self.logged && self.pool.keeps_versions(&stay);
        if keeps && let Some(cut) = self.place_without_room(&plain_leaf(bytes), first..last, &stay)
        {
            // The rest of the leaf is another part.
            (last, end) = (cut.0, cut.1.clone());
            next = Some(cut.1);
        }
        let stored_forms = self.pool.has_stored_forms();
        let mut old = Vec::new();
        let mut kept = Vec::new();
        let mut stored = Vec::new();
        let mut removed = 0;
        let mut before = last;
        // From the end, so that the places before it stay as they are.
        while let Some(place) = plain_leaf(bytes).previous_place(before)
            && place >= first
        {
            let leaf = plain_leaf(bytes);
            if stored_forms || keeps {
                old.clear();
                leaf.append_value(place, &mut old);
            }
            if stored_forms && is_stored_form(&old) {
                stored.push(old.clone());
            }
            if keeps {
                let mut key = Vec::new();
                leaf.append_key(place, &mut key);
                kept.push((key, old.clone()));
            }
            LeafMut::new(bytes).remove(place);
            removed += 1;
            before = place;
        }
        let is_sparse = is_sparse(&plain_leaf(bytes));
        if self.logged && removed > 0 {
            let record = Record::RemoveRange { tree: self.id, from, to: &end };
            let lsn = self.pool.append(&stay, &record);
            LeafMut::new(page.write(stay.epoch())).stamp(lsn);
            for (key, old) in &kept {
                self.keep_version(&stay, key, (Some(old), true), (lsn, 0));
            }
        }
        // Behind the append, as for every change: a snapshot that sees a value has begun before it is noted to be gone.
        for old in &stored {
            self.note_stored_forms(&stay, old, &[]);
        }
        Ok(Cleared { removed, next, is_sparse })
    }

    /// Room for old versions that a part of a range asks for: for a longest record at least, and for a leaf of short ones if
    /// that is not too much.
    fn cells_of_part(&self) -> u32 {
        let longest = cells_of_change(self.max_key_bytes(), self.max_record_bytes());
        let many =
            (self.pool.page_bytes() / RECORD_BYTES) as u32 * cells_of_change(RECORD_BYTES, 0);
        many.min(self.pool.most_version_cells() / 4).max(longest)
    }

    /// The first of a leaf's places, and its key, whose old version finds no room any more beside those before it. There is one for the
    /// first record.
    fn place_without_room(
        &self,
        leaf: &Leaf<PlainBytes<'_>>,
        places: Range<usize>,
        stay: &P::EpochGuard<'_>,
    ) -> Option<(usize, Vec<u8>)> {
        let mut left = self.pool.version_cells(stay);
        let mut key = Vec::new();
        let mut place = leaf.next_place(places.start);
        while place < places.end {
            key.clear();
            leaf.append_key(place, &mut key);
            match left.checked_sub(cells_of_change(key.len(), leaf.value_len(place))) {
                Some(rest) => left = rest,
                None => return Some((place, key)),
            }
            place = leaf.next_place(place + 1);
        }
        None
    }
}

/// The first place of a leaf in order that may have a record of the range, and the first behind it.
fn places(leaf: &Leaf<PlainBytes<'_>>, from: &[u8], to: Option<&Vec<u8>>) -> (usize, usize) {
    let first = leaf.search(from).index;
    // An end beyond the leaf's keys may be beyond its fence, where nothing can be searched for.
    let last = match to {
        Some(to) if leaf.as_node().is_within_upper(to) => leaf.search(to).index,
        _ => leaf.end(),
    };
    (first, last)
}
