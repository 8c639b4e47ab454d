//! Which page ids may be given out: a bitmap of the free ones, and the end of the range.
//!
//! **Reuse.** Freeing a page is a change of it: it is stamped with the epoch, and an image still owed
//! to a checkpoint is handed over first. The free goes into the delta of that epoch as a tombstone;
//! the id may be given out again at once, because whatever the new page writes goes into the delta
//! of the same epoch or of a later one, and so over the tombstone. Slots take no part in this: the
//! old page's slot waits in quarantine by its own rule.
//!
//! **Free ids of earlier runs** have a zero word in the map on disk. They are found by scanning map
//! parts, front to back, one at a time, when ids run out and at least a sixteenth of the ids not
//! scanned is free ([`PageIds::wants_scan`]); otherwise the range is extended, which costs 8 bytes an
//! id. An id below the range that the run began with is given out only after its part was scanned, so
//! a zero word found in a scan means *free* whichever checkpoint's map the caller looks into: nothing
//! was allocated there since. An id freed in such a part is noted, and waits for the scan too.
//!
//! Low ids are given out first, which keeps the map and the page table dense. Memory: one bit an id,
//! 72 bytes for a part that has free ids, an 1/29,000 of the pages' bytes. Not shared: under its
//! owner's lock.

use crate::types::{PART_HEADER_WORDS, PART_WORDS, PageId};
use std::collections::BTreeMap;

const BIT_WORDS: usize = PART_WORDS / 64;
/// A scan must promise at least one free id in so many.
const WORTHWHILE: u64 = 16;

/// See the file's header.
#[derive(Debug)]
pub struct PageIds {
    /// The end of the range: the first id never given out. `None` when all were.
    next: Option<PageId>,
    /// The end when the run began.
    end_at_open: PageId,
    /// Parts below this index were scanned, or hold nothing of earlier runs.
    scanned: usize,
    /// Free ids of earlier runs that no scan has found yet, as the superblock counted them.
    unscanned_free: u64,
    /// Free ids by part.
    free: BTreeMap<u32, [u64; BIT_WORDS]>,
    free_count: u64,
}

impl PageIds {
    /// The ids of a new store.
    pub fn create() -> PageIds {
        PageIds::open(Some(PageId::CATALOGUE_ROOT), 0)
    }

    /// The ids of a store whose superblock says that `next` was never given out (none: all were),
    /// and that about `free` ids below it are free.
    pub fn open(next: Option<PageId>, free: u64) -> PageIds {
        PageIds {
            next,
            end_at_open: next.unwrap_or(PageId(u32::MAX)),
            scanned: if free == 0 { usize::MAX } else { 0 },
            unscanned_free: free,
            free: BTreeMap::new(),
            free_count: 0,
        }
    }

    /// Gives out an id: the lowest that is known to be free, or the next. `None` at the end of the
    /// id space. Ask [`Self::wants_scan`] first.
    pub fn allocate(&mut self) -> Option<PageId> {
        let Some(part) = self.usable_part() else {
            let id = self.next?;
            self.next = id.next();
            return Some(id);
        };
        let bits = self.free.get_mut(&part)?;
        let word = bits.iter().position(|&word| word != 0)?;
        let bit = bits[word].trailing_zeros();
        bits[word] &= bits[word] - 1;
        if bits.iter().all(|&word| word == 0) {
            self.free.remove(&part);
        }
        self.free_count -= 1;
        Some(PageId(part * PART_WORDS as u32 + word as u32 * 64 + bit))
    }

    /// The first part with free ids that may be given out: scanned, or of this run altogether.
    fn usable_part(&self) -> Option<u32> {
        let scanned = self.free.range(..u32::try_from(self.scanned).unwrap_or(u32::MAX));
        let of_this_run = self.free.range(self.end_at_open.part() as u32 + 1..);
        scanned.chain(of_this_run).next().map(|(&part, _)| part)
    }

    /// Takes an id back: of a freed page, or of a reservation that was not used. At once, see above.
    pub fn free(&mut self, id: PageId) {
        assert!(id.is_usable() && self.in_range(id), "{id} was never given out");
        assert!(self.mark_free(id), "{id} was freed twice");
    }

    fn mark_free(&mut self, id: PageId) -> bool {
        let bits = self.free.entry(id.part() as u32).or_insert([0; BIT_WORDS]);
        let (word, bit) = (id.word() / 64, 1 << (id.word() % 64));
        let fresh = bits[word] & bit == 0;
        bits[word] |= bit;
        self.free_count += u64::from(fresh);
        fresh
    }

    /// Whether an id lies in the range that was ever given out.
    pub fn in_range(&self, id: PageId) -> bool {
        self.next.is_none_or(|next| id < next)
    }

    /// The part of the map to read before the next [`Self::allocate`] and to hand to
    /// [`Self::scanned`]; `None` if a scan is not worthwhile.
    pub fn wants_scan(&self) -> Option<usize> {
        let beyond = self.end_at_open.word().saturating_sub(PART_HEADER_WORDS);
        let whole = self.end_at_open.part().checked_sub(self.scanned)?;
        let ids = (whole * (PART_WORDS - PART_HEADER_WORDS) + beyond) as u64;
        if ids == 0 || self.usable_part().is_some() {
            return None;
        }
        // What is noted as free is all in parts to be scanned, then.
        let promise = self.unscanned_free + self.free_count;
        (promise > 0 && promise * WORTHWHILE >= ids).then_some(self.scanned)
    }

    /// The words of a part of the map that [`Self::wants_scan`] asked for: `is_free(word index)` for
    /// each of the part's 512 words. A part that was scanned meanwhile is left alone.
    pub fn scanned(&mut self, part: usize, mut is_free: impl FnMut(usize) -> bool) {
        if part != self.scanned {
            return;
        }
        self.scanned += 1;
        let mut found = 0;
        for word in PART_HEADER_WORDS..PART_WORDS {
            let id = PageId((part * PART_WORDS + word) as u32);
            if id < self.end_at_open && is_free(word) {
                found += u64::from(self.mark_free(id));
            }
        }
        self.unscanned_free = self.unscanned_free.saturating_sub(found);
    }

    /// The first id never given out, for the superblock.
    pub fn next_id(&self) -> Option<PageId> {
        self.next
    }

    /// About how many ids below [`Self::next_id`] are free, for the superblock. A scan decides; this
    /// says whether one is worthwhile.
    pub fn free_count(&self) -> u64 {
        self.free_count + self.unscanned_free
    }

    /// About how many ids are in use.
    pub fn in_use(&self) -> u64 {
        let end = self.next.map_or(1 << 32, |id| u64::from(id.0));
        let (parts, words) = (end / PART_WORDS as u64, end % PART_WORDS as u64);
        let header = PART_HEADER_WORDS as u64;
        let ids = parts * (PART_WORDS as u64 - header) + words.saturating_sub(header);
        ids.saturating_sub(self.free_count())
    }

    /// Memory held, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.free.len() * (BIT_WORDS * 8 + 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_ascend_skip_the_header_words_and_come_back_lowest_first() {
        let mut ids = PageIds::create();
        let given: Vec<PageId> = (0..1200).map(|_| ids.allocate().unwrap()).collect();
        assert_eq!(given[0], PageId::CATALOGUE_ROOT);
        assert!(given.iter().all(|id| id.is_usable()));
        assert!(given.windows(2).all(|pair| pair[0] < pair[1]));
        for &id in [&given[900], &given[3], &given[400]] {
            ids.free(id);
        }
        assert_eq!((ids.free_count(), ids.in_use()), (3, 1197));
        assert_eq!(ids.memory_bytes(), 2 * (PART_WORDS / 8 + 8), "the bits of two parts");
        let again: Vec<PageId> = (0..3).map(|_| ids.allocate().unwrap()).collect();
        assert_eq!(again, [given[3], given[400], given[900]]);
        assert_eq!(ids.allocate().unwrap(), given[1199].next().unwrap());
        assert_eq!(ids.memory_bytes(), 0);
    }

    #[test]
    fn the_id_space_ends_without_wrapping() {
        let mut ids = PageIds::open(Some(PageId(u32::MAX - 1)), 0);
        assert_eq!(ids.allocate(), Some(PageId(u32::MAX - 1)));
        assert_eq!(ids.allocate(), Some(PageId(u32::MAX)));
        assert_eq!(ids.allocate(), None);
        assert_eq!(ids.in_use(), (1 << 23) * (512 - 4));
        assert!(ids.in_range(PageId(u32::MAX)));
        ids.free(PageId(u32::MAX));
        assert_eq!(ids.allocate(), Some(PageId(u32::MAX)));
    }

    #[test]
    fn free_ids_of_earlier_runs_are_found_by_scanning_when_it_is_worthwhile() {
        let few = PageIds::open(Some(PageId(10 * 512 + 4)), 10 * 508 / 16 - 1);
        assert_eq!(few.wants_scan(), None);
        // Every eighth id of ten parts is free, and the last part ends in the middle.
        let end = PageId(9 * 512 + 100);
        let is_free = |part: usize, word: usize| (part * 512 + word).is_multiple_of(8);
        let mut expected: Vec<PageId> = (0..end.0).map(PageId).collect();
        expected.retain(|id| id.is_usable() && is_free(id.part(), id.word()));
        let mut ids = PageIds::open(Some(end), expected.len() as u64);
        // Freed before its part was scanned: not given out before, and once only.
        ids.free(PageId(512 + 9));
        let mut given = Vec::new();
        loop {
            if let Some(part) = ids.wants_scan() {
                ids.scanned(part, |word| is_free(part, word));
                ids.scanned(part, |_| unreachable!("a second answer to one question"));
            }
            let id = ids.allocate().unwrap();
            if id >= end {
                break;
            }
            given.push(id);
        }
        expected.push(PageId(512 + 9));
        expected.sort();
        assert!(given == expected, "{} ids given, {} expected", given.len(), expected.len());
        assert_eq!(ids.free_count(), 0);
    }

    #[test]
    fn an_id_freed_and_reused_between_scans_is_not_given_out_twice() {
        let mut ids = PageIds::open(Some(PageId(2 * 512 + 4)), 508);
        ids.free(PageId(600));
        let part = ids.wants_scan().unwrap();
        assert_eq!(part, 0);
        ids.scanned(0, |_| false);
        let part = ids.wants_scan().unwrap();
        // The map of a later checkpoint, in which the freed id is free as well.
        ids.scanned(part, |word| word == 600 - 512 || word == 8);
        assert_eq!(ids.allocate(), Some(PageId(512 + 8)));
        assert_eq!(ids.allocate(), Some(PageId(600)));
        assert_eq!(ids.allocate(), Some(PageId(2 * 512 + 4)));
    }

    #[test]
    fn an_id_freed_in_a_part_that_was_not_scanned_waits_until_a_scan_is_worthwhile() {
        let end = PageId(4 * 512 + 4);
        let mut ids = PageIds::open(Some(end), 1);
        ids.free(PageId(600));
        assert_eq!(ids.wants_scan(), None, "two of two thousand");
        assert_eq!(ids.allocate(), Some(end));
        // An id of this run's own parts comes back at once.
        while ids.allocate().is_some_and(|id| id.part() < 5) {}
        ids.free(PageId(5 * 512 + 4));
        assert_eq!(ids.allocate(), Some(PageId(5 * 512 + 4)));
        for id in 1030..1200 {
            ids.free(PageId(id));
        }
        for part in 0..3 {
            assert_eq!(ids.wants_scan(), Some(part));
            ids.scanned(part, |_| false);
            assert_eq!(ids.wants_scan().is_some(), part == 0);
            if part == 1 {
                assert_eq!(ids.allocate(), Some(PageId(600)));
                assert_eq!(ids.wants_scan(), Some(2));
            }
        }
        assert_eq!(ids.allocate(), Some(PageId(1030)));
    }

    #[test]
    fn the_part_in_which_the_range_ended_is_scanned_as_well() {
        let end = PageId(512 + 100);
        let mut ids = PageIds::open(Some(end), 1);
        ids.free(PageId(512 + 50));
        assert_eq!(ids.wants_scan(), None);
        assert_eq!(ids.allocate(), Some(end));
    }

    #[test]
    fn a_scan_that_cannot_find_anything_is_not_asked_for() {
        // A count of free ids, and no id that was ever given out.
        let mut none = PageIds::open(Some(PageId(4)), 100);
        assert_eq!(none.wants_scan(), None);
        assert_eq!(none.allocate(), Some(PageId(4)));
        let end = PageId(10 * 512 + 4);
        let mut full = PageIds::open(Some(end), 0);
        assert_eq!(full.wants_scan(), None);
        assert_eq!(full.allocate(), Some(end));
        // All that were said to be free lie in the first part, and are given out again.
        let mut few = PageIds::open(Some(end), 508);
        assert_eq!(few.wants_scan(), Some(0));
        few.scanned(0, |_| true);
        for word in 4..512 {
            assert_eq!(few.allocate(), Some(PageId(word)));
        }
        assert_eq!((few.wants_scan(), few.free_count()), (None, 0));
        assert_eq!(few.allocate(), Some(end));
    }
}
