//! Regions from the root that may change the structure: puts that split, and merges.
//!
//! Both raise the sequence number of a leaf before they rebuild its marks: who sees new marks outside of a region then sees the new
//! number as well. Thread-safety: that of regions.

use super::ccm::{Use, bit_of};
use super::node::{FANOUT, NONE, enter, inners_wanted, pack_root, path_to, unpack_root};
use super::{Eunomia, Layout, Way, label_leaf};
use crate::arena::ArenaError;
use crate::htm::label::{self, Label};
use crate::htm::{Htm, Site, Tx};

/// Records of two neighbours that become one leaf, at most.
const MERGED: usize = FANOUT * 3 / 4;

/// What a put from the root came to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Put {
    /// It is done; the value before.
    Done(Option<u64>),
    /// It needs so many spare inner nodes, and a leaf; nothing has changed.
    Needs(u32),
    /// The key's leaf is not the expected one any more.
    Stale,
}

/// A record to be put: over an earlier one, or only if there is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) key: u64,
    pub(crate) value: u64,
    pub(crate) overwrites: bool,
}

impl<H: Htm> Eunomia<H> {
    /// Puts a record in one region from the root on, which splits what is full. The value before; `None` if the key's leaf is not
    /// that of `expected`: the caller has the lock of the key there, and nowhere else.
    ///
    /// # Errors
    /// No node is left. The tree is as it was.
    pub(crate) fn put_from_root(
        &self,
        site: Site,
        expected: Option<Way>,
        record: Record,
        first_segment: usize,
    ) -> Result<Option<Option<u64>>, ArenaError> {
        loop {
            let put = self
                .htm
                .atomic(&self.lock, site, |tx| self.put_in(tx, expected, record, first_segment));
            match put {
                Put::Done(before) => return Ok(Some(before)),
                Put::Stale => return Ok(None),
                Put::Needs(inners) => {
                    self.leaves.prepare(1)?;
                    self.inners.prepare(inners)?;
                    if self.steps.locks {
                        self.ccms.prepare(1)?;
                    }
                    if self.steps.parts {
                        self.reserved.prepare(1)?;
                    }
                }
            }
        }
    }

    fn put_in<'a>(
        &'a self,
        tx: &mut H::Tx<'a>,
        expected: Option<Way>,
        record: Record,
        first_segment: usize,
    ) -> Result<Put, H::E> {
        let Record { key, value, overwrites } = record;
        let (number, path) = path_to(tx, &self.root, &self.inners, key)?;
        if let Some(way) = expected
            && (way.leaf != number || !self.is_current(tx, way)?)
        {
            return Ok(Put::Stale);
        }
        let leaf = self.leaves.node(number);
        let records = self.records();
        if let Some(place) = records.find(tx, leaf, key)? {
            let cell = records.value(leaf, place);
            let before = tx.load(cell)?;
            if overwrites {
                tx.store(cell, value)?;
            }
            return Ok(Put::Done(Some(before)));
        }
        let scheduler = (first_segment..).map(|n| n % super::leaf::SEGMENTS);
        if records.insert(tx, leaf, (key, value), scheduler.take(super::leaf::SEGMENTS))? {
            let usage = Use(tx.load(&leaf.head.ccm)?);
            self.mark_in(tx, usage, key)?;
            return Ok(Put::Done(None));
        }
        let wanted = inners_wanted(tx, &self.inners, &path)?;
        let is_ready = self.leaves.has(tx, 1)?
            && self.inners.has(tx, wanted)?
            && (!self.steps.locks || self.ccms.has(tx, 1)?)
            && (self.steps.layout() == Layout::Sorted || self.reserved.has(tx, 1)?);
        if !is_ready {
            return Ok(Put::Needs(wanted));
        }
        let mut all = records.records(tx, leaf)?;
        all.insert(key, value);
        let (lower, upper) = all.all().split_at(all.count / 2);
        // What only this region reaches comes first, and what others read comes last: who reads it ends the region.
        let new_number = self.leaves.take(tx)?;
        let new = self.leaves.node(new_number);
        let usage = Use(tx.load(&leaf.head.ccm)?);
        let new_usage = self.begin_leaf(tx, new_number, usage.is_hot())?;
        records.fill(tx, new, upper)?;
        let next = tx.load(&leaf.head.next)?;
        tx.store(&new.head.next, next)?;
        self.rebuild_marks(tx, new_usage, upper)?;
        records.fill(tx, leaf, lower)?;
        let sequence = tx.load(&leaf.head.sequence)?;
        tx.store(&leaf.head.sequence, sequence + 2)?;
        tx.store(&leaf.head.next, new_number)?;
        self.rebuild_marks(tx, usage, lower)?;
        enter(tx, &self.root, &self.inners, &path, upper[0].0, new_number)?;
        Ok(Put::Done(None))
    }

    /// Makes an empty leaf of a node that was taken just now; `is_hot` if its other half is contended. How it uses its CCM.
    pub(super) fn begin_leaf<'a>(
        &'a self,
        tx: &mut H::Tx<'a>,
        number: u32,
        is_hot: bool,
    ) -> Result<Use, H::E> {
        let leaf = self.leaves.node(number);
        label_leaf(leaf);
        let old = Use(tx.load(&leaf.head.ccm)?);
        let is_hot = is_hot || self.steps.locks && !self.steps.adaptive;
        let usage = match old.number() {
            Some(own) => old.attached(own, is_hot),
            None if is_hot => old.attached(self.take_ccm(tx)?, true),
            None => old,
        };
        if let Some(ccm) = self.hot_ccm(usage)
            && self.steps.adaptive
        {
            tx.store(&ccm.heat, Self::INHERITED)?;
        }
        tx.store(&leaf.head.ccm, usage.0)?;
        self.rebuild_marks(tx, usage, &[])?;
        self.records().fill(tx, leaf, &[])?;
        Ok(usage)
    }

    pub(super) fn take_ccm<'a>(&'a self, tx: &mut H::Tx<'a>) -> Result<u32, H::E> {
        let number = self.ccms.take(tx)?;
        let ccm = self.ccms.node(number);
        label::lines(ccm, Label::Ccm);
        Ok(number)
    }

    pub(super) fn marks_of(&self, records: &[(u64, u64)]) -> u64 {
        records.iter().fold(0, |marks, &(key, _)| marks | bit_of(key))
    }

    fn rebuild_marks<'a>(
        &'a self,
        tx: &mut H::Tx<'a>,
        usage: Use,
        records: &[(u64, u64)],
    ) -> Result<(), H::E> {
        match usage.number() {
            Some(number) if self.steps.marks => {
                self.ccms.node(number).rebuild_in(tx, self.marks_of(records))
            }
            _ => Ok(()),
        }
    }

    /// Marks a key that a region has put into a leaf which uses its CCM, if it has one, in this way.
    #[inline(always)]
    pub(super) fn mark_in<'a>(
        &'a self,
        tx: &mut H::Tx<'a>,
        usage: Use,
        key: u64,
    ) -> Result<(), H::E> {
        match usage.number() {
            Some(number) if self.steps.marks => self.ccms.node(number).mark_in(tx, key),
            _ => Ok(()),
        }
    }

    /// Merges the leaf of a key with a neighbour below the same parent, if both have few records. Without room in the thread's
    /// spare nodes nothing happens.
    pub(crate) fn merge_at(&self, key: u64) {
        let is_ready = self.leaves.prepare(1).is_ok()
            && self.inners.prepare(1).is_ok()
            && (!self.steps.parts || self.reserved.prepare(2).is_ok());
        if !is_ready {
            return;
        }
        self.htm.atomic(&self.lock, Site::STRUCTURE, |tx| self.merge_in(tx, key));
    }

    fn merge_in<'a>(&'a self, tx: &mut H::Tx<'a>, key: u64) -> Result<(), H::E> {
        let (_, path) = path_to(tx, &self.root, &self.inners, key)?;
        let Some(&(parent_number, slot)) = path.nodes[..path.height].last() else {
            return Ok(());
        };
        let parent = self.inners.node(parent_number);
        let keys = tx.load(&parent.count)? as usize;
        if keys == 0 {
            return Ok(());
        }
        let slot = slot.min(keys - 1);
        let left = self.leaves.node(tx.load(&parent.children[slot])?);
        let right_number = tx.load(&parent.children[slot + 1])?;
        let right = self.leaves.node(right_number);
        let records = self.records();
        let few = records.count(tx, left)? + records.count(tx, right)? <= MERGED;
        let is_ready = self.leaves.has(tx, 1)?
            && self.inners.has(tx, 1)?
            && (!self.steps.parts || self.reserved.has(tx, 2)?);
        if !few || !is_ready {
            return Ok(());
        }
        let mut all = records.records(tx, left)?;
        for &(key, value) in records.records(tx, right)?.all() {
            all.insert(key, value);
        }
        let sequence = tx.load(&left.head.sequence)?;
        tx.store(&left.head.sequence, sequence + 2)?;
        self.leaves.give(tx, right_number)?;
        records.fill(tx, left, all.all())?;
        records.fill(tx, right, &[])?;
        let next = tx.load(&right.head.next)?;
        tx.store(&left.head.next, next)?;
        let usage = Use(tx.load(&left.head.ccm)?);
        self.rebuild_marks(tx, usage, all.all())?;
        parent.remove(tx, slot)?;
        self.lower_root(tx)
    }

    /// A root with one child gives way to it.
    fn lower_root<'a>(&'a self, tx: &mut H::Tx<'a>) -> Result<(), H::E> {
        let (height, number) = unpack_root(tx.load(&self.root.0)?);
        if height == 0 || tx.load(&self.inners.node(number).count)? != 0 {
            return Ok(());
        }
        let child = tx.load(&self.inners.node(number).children[0])?;
        debug_assert_ne!(child, NONE);
        self.inners.give(tx, number)?;
        tx.store(&self.root.0, pack_root(height - 1, child))
    }
}
