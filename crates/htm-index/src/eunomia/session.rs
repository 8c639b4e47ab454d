//! What a thread does with a tree: gets, puts and removes (section 4.2.1, algorithm 2).
//!
//! # Why a put may rest on a missing mark
//! A put that finds its key without a mark, and marks it, holds the lock of the key. In its lower region nothing has changed in how the leaf
//! uses its CCM, so all others who have put or removed the key meanwhile would have had the lock, or have raised the sequence
//! number. So the key is not there, and the put does not look for it: it reaches one segment.
//!
//! Thread-safety: a session belongs to one thread; it can be sent to another one between operations.

use super::ccm::{Use, bit_of};
use super::heat::Table;
use super::leaf::SEGMENTS;
use super::node::{Ccm, Leaf, leaf_of};
use super::structure::Record;
use super::{Eunomia, Layout, Way};
use crate::arena::ArenaError;
use crate::htm::{Htm, Site, TCell, Tx, label};
use hedgerow_sync::primitive::atomic::Ordering::{Acquire, Relaxed, Release};
use hedgerow_sync::primitive::hint::spin_loop;
use hedgerow_sync::primitive::random::SplitMix64;
#[cfg(not(loom))]
use hedgerow_sync::primitive::thread;

/// Records that a thread removes between two merges.
pub const REMOVES_PER_MERGE: u32 = 16;
/// Records of a leaf that may be merged, at most.
const FEW: usize = super::FANOUT / 4;
/// Looks at a split lock before the processor is given away.
#[cfg(not(loom))]
const LOOKS: u32 = 500;

/// A thread's part of a tree.
#[derive(Debug)]
pub struct Session<'t, H> {
    pub(super) tree: &'t Eunomia<H>,
    pub(super) random: SplitMix64,
    pub(super) table: Table,
    last_segment: usize,
    removes: u32,
}

/// What a lower region came to.
enum Lower<T> {
    Done(T),
    /// The leaf is another one, or uses its CCM in another way: start at the root.
    Stale,
    /// There is no room.
    Crowded,
}

/// What the first region of an operation came to.
enum Entry<T> {
    /// The operation is done.
    Done(T),
    /// It goes on in a leaf.
    Way(Way),
}

/// Holds the split lock of a leaf; dropping it releases it.
pub(super) struct SplitLock<'a>(&'a TCell<u32>);

impl<'a> SplitLock<'a> {
    /// Takes it, waiting for ever.
    pub(super) fn take(leaf: &'a Leaf) -> SplitLock<'a> {
        let word = &leaf.head.split_lock.0;
        #[cfg(not(loom))]
        let mut looks = 0_u32;
        loop {
            if word.load(Relaxed) == 0 && word.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
                return SplitLock(word);
            }
            #[cfg(not(loom))]
            {
                looks += 1;
                if looks.is_multiple_of(LOOKS) {
                    thread::yield_now();
                }
            }
            spin_loop();
        }
    }
}

/// Waits while somebody splits or scans the leaf: a region that reads it meanwhile would end that one. Whether the leaf is another
/// one after that.
fn is_split_meanwhile(leaf: &Leaf, way: Way) -> bool {
    let word = &leaf.head.split_lock.0;
    if word.load(Relaxed) == 0 {
        return false;
    }
    #[cfg(not(loom))]
    let mut looks = 0_u32;
    while word.load(Relaxed) != 0 {
        #[cfg(not(loom))]
        {
            looks += 1;
            if looks.is_multiple_of(LOOKS) {
                thread::yield_now();
            }
        }
        spin_loop();
    }
    leaf.head.sequence.load(Acquire) != way.sequence
}

impl Drop for SplitLock<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// Segments for an insert: never that of the last insert first (algorithm 3); then those behind it, so that no room is overlooked.
#[inline(always)]
fn scheduler(random: &mut SplitMix64, last: &mut usize) -> impl Iterator<Item = usize> {
    let first = *last + 1 + random.below(SEGMENTS as u64 - 1) as usize;
    (first..first + SEGMENTS).map(move |n| {
        *last = n % SEGMENTS;
        *last
    })
}

impl<'t, H: Htm> Session<'t, H> {
    pub(super) fn new(tree: &'t Eunomia<H>) -> Session<'t, H> {
        Session {
            tree,
            // Threads differ; the same thread does the same each time, so that a simulated run can be repeated.
            random: SplitMix64::new(hedgerow_sync::primitive::thread::id() as u64 + 1),
            table: Table::new(),
            last_segment: 0,
            removes: 0,
        }
    }

    /// The upper region of an operation, which goes on in the leaf if the tree is adaptive and the leaf bypasses its CCM.
    #[inline(always)]
    fn enter<T>(
        &mut self,
        key: u64,
        mut in_leaf: impl FnMut(&mut H::Tx<'t>, &'t Leaf, Way) -> Result<Option<T>, H::E>,
    ) -> Entry<T> {
        if !self.tree.steps.adaptive {
            return Entry::Way(self.upper(key));
        }
        let tree = self.tree;
        let ((way, done), outcome) = tree.htm.atomic_counted(&tree.lock, Site::WHOLE, |tx| {
            let number = leaf_of(tx, &tree.root, &tree.inners, key)?;
            let leaf = tree.leaves.node(number);
            let sequence = tx.load(&leaf.head.sequence)?;
            let way = Way { leaf: number, sequence, usage: Use(tx.load(&leaf.head.ccm)?) };
            let done = if way.usage.is_hot() { None } else { in_leaf(tx, leaf, way)? };
            Ok((way, done))
        });
        let Some(done) = done else { return Entry::Way(way) };
        self.tree.note((&mut self.table, &mut self.random), way, false, outcome.aborts);
        Entry::Done(done)
    }

    /// The upper region: the leaf of a key, and what it is like.
    #[inline(always)]
    pub(super) fn upper(&self, key: u64) -> Way {
        let tree = self.tree;
        tree.htm.atomic(&tree.lock, Site::UPPER, |tx| {
            let leaf = leaf_of(tx, &tree.root, &tree.inners, key)?;
            let head = &tree.leaves.node(leaf).head;
            let sequence = tx.load(&head.sequence)?;
            Ok(Way { leaf, sequence, usage: Use(tx.load(&head.ccm)?) })
        })
    }

    /// Whether a key is certainly not in the leaf of a way, as it has no mark. `None` if the leaf is another one.
    fn is_unmarked(&self, ccm: &Ccm, way: Way, key: u64) -> Option<bool> {
        if !self.tree.steps.marks || ccm.is_marked(key) {
            return Some(false);
        }
        // The mark may have gone with the key, by a split. That has raised the number first.
        let sequence = self.tree.leaves.node(way.leaf).head.sequence.load(Acquire);
        (sequence == way.sequence).then_some(true)
    }

    /// The value of a key.
    pub fn get(&mut self, key: u64) -> Option<u64> {
        label::operation(key);
        let tree = self.tree;
        let records = tree.records();
        if !tree.steps.split {
            return tree.htm.atomic(&tree.lock, Site::WHOLE, |tx| {
                let leaf = tree.leaves.node(leaf_of(tx, &tree.root, &tree.inners, key)?);
                match records.find(tx, leaf, key)? {
                    Some(place) => tx.load(records.value(leaf, place)).map(Some),
                    None => Ok(None),
                }
            });
        }
        loop {
            let entry = self.enter(key, |tx, leaf, _| match records.find(tx, leaf, key)? {
                Some(place) => tx.load(records.value(leaf, place)).map(Some).map(Some),
                None => Ok(Some(None)),
            });
            let way = match entry {
                Entry::Done(found) => return found,
                Entry::Way(way) => way,
            };
            if let Some(found) = self.get_in(way, key) {
                return found;
            }
        }
    }

    /// What a get does in its leaf, under the lock of its key; `None` if the leaf is another one.
    #[inline(always)]
    fn get_in(&mut self, way: Way, key: u64) -> Option<Option<u64>> {
        let tree = self.tree;
        let records = tree.records();
        let leaf = tree.leaves.node(way.leaf);
        let ccm = tree.hot_ccm(way.usage);
        let lock = ccm.map(|ccm| ccm.lock(key, false));
        let waited = lock.as_ref().is_some_and(|lock| lock.waited);
        if let Some(ccm) = ccm {
            if self.is_unmarked(ccm, way, key)? {
                self.tree.note((&mut self.table, &mut self.random), way, waited, 0);
                return Some(None);
            }
            if is_split_meanwhile(leaf, way) {
                return None;
            }
        }
        let (found, outcome) = tree.htm.atomic_counted(&tree.lock, Site::LOWER, |tx| {
            if !tree.is_current(tx, way)? {
                return Ok(None);
            }
            match records.find(tx, leaf, key)? {
                Some(place) => tx.load(records.value(leaf, place)).map(Some).map(Some),
                None => Ok(Some(None)),
            }
        });
        self.tree.note((&mut self.table, &mut self.random), way, waited, outcome.aborts);
        drop(lock);
        found
    }

    /// Puts a value, over an earlier one if there is one, which is returned.
    ///
    /// # Errors
    /// No node is left. The tree is as it was.
    pub fn put(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
        self.store(Record { key, value, overwrites: true })
    }

    /// Puts a value if there is none. The value that was there.
    ///
    /// # Errors
    /// No node is left. The tree is as it was.
    pub fn insert(&mut self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
        self.store(Record { key, value, overwrites: false })
    }

    fn store(&mut self, record: Record) -> Result<Option<u64>, ArenaError> {
        label::operation(record.key);
        let tree = self.tree;
        if !tree.steps.split {
            let segment = self.random.below(SEGMENTS as u64) as usize;
            return tree.put_from_root(Site::WHOLE, None, record, segment).map(Option::flatten);
        }
        loop {
            let way = match self.enter_to_store(record) {
                Entry::Done(before) => return Ok(before),
                Entry::Way(way) => way,
            };
            let ccm = tree.hot_ccm(way.usage);
            if !record.overwrites
                && ccm.is_some_and(|ccm| tree.steps.marks && ccm.is_marked(record.key))
            {
                // Most likely it is there, and then this is a get.
                if let Some(found) = self.get_in(way, record.key).flatten() {
                    return Ok(Some(found));
                }
            }
            let lock = ccm.map(|ccm| ccm.lock(record.key, true));
            let waited = lock.as_ref().is_some_and(|lock| lock.waited);
            let is_new = tree.steps.marks && ccm.is_some_and(|ccm| !ccm.mark(record.key));
            if ccm.is_some() && is_split_meanwhile(tree.leaves.node(way.leaf), way) {
                continue;
            }
            let (put, aborts) = self.store_in_leaf(way, record, is_new);
            self.tree.note((&mut self.table, &mut self.random), way, waited, aborts);
            match put {
                Lower::Done(before) => return Ok(before),
                Lower::Stale => continue,
                Lower::Crowded => {}
            }
            let split_lock = SplitLock::take(tree.leaves.node(way.leaf));
            // Who has waited here has often waited for somebody who has split the leaf.
            if tree.leaves.node(way.leaf).head.sequence.load(Acquire) != way.sequence {
                continue;
            }
            let segment = self.random.below(SEGMENTS as u64) as usize;
            let put = tree.put_from_root(Site::STRUCTURE, Some(way), record, segment)?;
            drop(split_lock);
            drop(lock);
            if let Some(before) = put {
                return Ok(before);
            }
        }
    }

    /// The lower region of a put. `is_new` says that the key is certainly not there.
    #[inline(always)]
    fn store_in_leaf(
        &mut self,
        way: Way,
        record: Record,
        is_new: bool,
    ) -> (Lower<Option<u64>>, u32) {
        let tree = self.tree;
        let records = tree.records();
        let leaf = tree.leaves.node(way.leaf);
        let Record { key, value, overwrites } = record;
        let is_marked = tree.hot_ccm(way.usage).is_some();
        let (mut random, mut last) = (self.random.clone(), self.last_segment);
        let (put, outcome) = tree.htm.atomic_counted(&tree.lock, Site::LOWER, |tx| {
            if !tree.is_current(tx, way)? {
                return Ok(Lower::Stale);
            }
            if !is_new && let Some(place) = records.find(tx, leaf, key)? {
                let cell = records.value(leaf, place);
                let before = tx.load(cell)?;
                if overwrites {
                    tx.store(cell, value)?;
                }
                return Ok(Lower::Done(Some(before)));
            }
            if !records.insert(tx, leaf, (key, value), scheduler(&mut random, &mut last))? {
                return Ok(Lower::Crowded);
            }
            if !is_marked {
                tree.mark_in(tx, way.usage, key)?;
            }
            Ok(Lower::Done(None))
        });
        (self.random, self.last_segment) = (random, last);
        (put, outcome.aborts)
    }

    /// The first region of a put, which is the only one if the leaf bypasses its CCM and has room.
    #[inline(always)]
    fn enter_to_store(&mut self, record: Record) -> Entry<Option<u64>> {
        let tree = self.tree;
        let records = tree.records();
        let Record { key, value, overwrites } = record;
        let (mut random, mut last) = (self.random.clone(), self.last_segment);
        let entry = self.enter(key, |tx, leaf, way| {
            if let Some(place) = records.find(tx, leaf, key)? {
                let cell = records.value(leaf, place);
                let before = tx.load(cell)?;
                if overwrites {
                    tx.store(cell, value)?;
                }
                return Ok(Some(Some(before)));
            }
            if !records.insert(tx, leaf, (key, value), scheduler(&mut random, &mut last))? {
                return Ok(None);
            }
            tree.mark_in(tx, way.usage, key)?;
            Ok(Some(None))
        });
        (self.random, self.last_segment) = (random, last);
        entry
    }

    /// Removes a record. Its value.
    pub fn remove(&mut self, key: u64) -> Option<u64> {
        label::operation(key);
        let tree = self.tree;
        if !tree.steps.split {
            let removed = tree.htm.atomic(&tree.lock, Site::WHOLE, |tx| {
                let number = leaf_of(tx, &tree.root, &tree.inners, key)?;
                tree.remove_in(tx, number, Use::NONE, key)
            });
            return self.removed(key, removed);
        }
        loop {
            // Without a CCM there is no lock.
            let entry = self.enter(key, |tx, _, way| match way.usage.number() {
                Some(_) => Ok(None),
                None => tree.remove_in(tx, way.leaf, way.usage, key).map(Some),
            });
            let way = match entry {
                Entry::Done(removed) => return self.removed(key, removed),
                Entry::Way(way) => way,
            };
            // Also in bypass: the mark of another key that shares the lock may be needed.
            let ccm = way.usage.number().map(|number| tree.ccms.node(number));
            let lock = ccm.map(|ccm| ccm.lock(key, true));
            let waited = lock.as_ref().is_some_and(|lock| lock.waited);
            if let Some(ccm) = tree.hot_ccm(way.usage) {
                match self.is_unmarked(ccm, way, key) {
                    Some(true) => return None,
                    Some(false) => {}
                    None => continue,
                }
            }
            let (removed, outcome) = tree.htm.atomic_counted(&tree.lock, Site::LOWER, |tx| {
                if !tree.is_current(tx, way)? {
                    return Ok(Lower::Stale);
                }
                tree.remove_in(tx, way.leaf, way.usage, key).map(Lower::Done)
            });
            self.tree.note((&mut self.table, &mut self.random), way, waited, outcome.aborts);
            drop(lock);
            if let Lower::Done(removed) = removed {
                return self.removed(key, removed);
            }
        }
    }

    /// Counts a remove, and merges if it is time.
    fn removed(&mut self, key: u64, removed: Option<(u64, usize)>) -> Option<u64> {
        let (value, left) = removed?;
        self.removes += 1;
        if self.removes >= REMOVES_PER_MERGE && left <= FEW {
            self.removes = 0;
            self.tree.merge_at(key);
        }
        Some(value)
    }
}

impl<H: Htm> Eunomia<H> {
    /// Removes a key from a leaf, and its mark if no other key has it. Its value, and how many records are left.
    fn remove_in<'a>(
        &'a self,
        tx: &mut H::Tx<'a>,
        number: u32,
        usage: Use,
        key: u64,
    ) -> Result<Option<(u64, usize)>, H::E> {
        let records = self.records();
        let leaf = self.leaves.node(number);
        let Some(place) = records.find(tx, leaf, key)? else { return Ok(None) };
        let value = tx.load(records.value(leaf, place))?;
        records.remove(tx, leaf, place)?;
        if self.steps.marks
            && let Some(ccm) = usage.number()
        {
            let others = self.marks_of(records.records(tx, leaf)?.all());
            if others & bit_of(key) == 0 {
                self.ccms.node(ccm).unmark_in(tx, key)?;
            }
        }
        Ok(Some((value, records.count(tx, leaf)?)))
    }

    /// How records lie in the leaves.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.steps.layout()
    }
}
