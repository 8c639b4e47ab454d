//! Look-ups of many keys at once, whose cache misses and page faults overlap.
//!
//! The keys are taken in groups. All keys of a group go down one level before any goes down the
//! next, and each asks for what it will read in its next step: the word of the page table, the frame's
//! header, the first lines of the node, and in the end the record (group prefetching; Chen et al.,
//! "Improving Hash Join Performance through Prefetching"). A group that needs a page which is not in
//! memory goes on as the beginning of a window (`get_many_faults.rs`). A key that meets a conflict is
//! looked up by itself at the end.
//!
//! Invariant: a value that is returned was validated after it had been copied. Thread-safety: as for
//! [`Tree`].

use super::get::CopyOut;
use super::{Tree, Value};
use crate::error::Result;
use crate::node::{Leaf, Node};
use crate::page::{OptimisticPage, Pages, Restart};
use crate::types::PageId;

/// Keys in a group: enough to cover a memory latency, few enough to stay in the first-level cache.
const GROUP_KEYS: usize = 16;

/// One key of a group on its way down.
enum Lane<'p, P: Pages> {
    /// At an open node of this level.
    At(OptimisticPage<'p, P>, u8),
    /// About to open the child of an open node; the child is of this level.
    Below(OptimisticPage<'p, P>, PageId, u8),
    /// About to copy the record at this place.
    Record(OptimisticPage<'p, P>, usize),
    /// About to look for the key in a leaf whose record is likely to be at hand.
    Leaf(OptimisticPage<'p, P>),
    /// The value is in its place, or there is none.
    Done,
    /// The page is not in memory.
    Absent,
    /// Has to go alone.
    Alone(Restart),
}

impl<P: Pages> Tree<P> {
    /// The values of many keys, in the order of `keys`; `None` where there is no record.
    ///
    /// Faster than as many [`Tree::get`]s when the tree is larger than the processor's caches, and
    /// far faster when pages have to be read: those of up to 1024 keys are read together. The keys
    /// are looked up one by one as far as other threads are concerned. Errors as for [`Tree::get`].
    pub fn get_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Value>>> {
        let mut values = Vec::new();
        values.resize_with(keys.len(), || None);
        let turns = self.pool.alone_turns();
        let mut first = 0;
        while first < keys.len() {
            let group = &keys[first..keys.len().min(first + GROUP_KEYS)];
            let found = &mut values[first..first + group.len()];
            let mut lanes = [Lane::Done; GROUP_KEYS];
            let lanes = &mut lanes[..group.len()];
            // The root is opened once; each lane's next step validates it.
            lanes.fill(self.start());
            while self.go_on(group, lanes, found) {}
            if lanes.iter().any(|lane| matches!(lane, Lane::Absent)) {
                first += self.get_window(&keys[first..], &mut values[first..])?;
                continue;
            }
            for ((lane, key), value) in lanes.iter().zip(group).zip(found) {
                if let Lane::Alone(restart) = lane {
                    let mut copy = Value::default();
                    let found = self.read_again(key.as_ref(), &mut CopyOut(&mut copy), *restart)?;
                    *value = found.then_some(copy);
                }
            }
            first += group.len();
        }
        if self.nobody_alone_since(turns).is_err() {
            return keys.iter().map(|key| self.get(key.as_ref())).collect();
        }
        Ok(values)
    }

    fn start(&self) -> Lane<'_, P> {
        match self.open_root() {
            Ok((page, level)) => Lane::At(page, level),
            Err(restart) => stopped(restart),
        }
    }

    /// Moves every lane on by one step. `false` if none has moved.
    fn go_on<'p, K: AsRef<[u8]>>(
        &'p self,
        keys: &[K],
        lanes: &mut [Lane<'p, P>],
        values: &mut [Option<Value>],
    ) -> bool {
        let mut moved = false;
        for ((lane, key), value) in lanes.iter_mut().zip(keys).zip(values) {
            let next = match *lane {
                Lane::At(page, level) => self.search(key.as_ref(), page, level),
                Lane::Below(parent, child, level) => self
                    .open_child(child, &parent, level)
                    .and_then(|page| self.search(key.as_ref(), page, level)),
                Lane::Record(leaf, place) => copy_record(leaf, place, value),
                Lane::Leaf(leaf) => find_record(leaf, key.as_ref(), value),
                Lane::Done | Lane::Absent | Lane::Alone(_) => continue,
            };
            moved = true;
            *lane = next.unwrap_or_else(stopped);
        }
        moved
    }

    /// Looks for the key in an open node, and asks for what the next step will read.
    #[inline(always)]
    fn search<'p>(
        &'p self,
        key: &[u8],
        page: OptimisticPage<'p, P>,
        level: u8,
    ) -> Result<Lane<'p, P>, Restart> {
        page.note_use();
        if level == 0 {
            self.note_point(&page);
            let leaf = Leaf::new(page.bytes());
            if let Leaf::Fingerprint(leaf) = leaf
                && let Some(place) = leaf.candidate(key)
            {
                leaf.prefetch_record(place);
                return Ok(Lane::Leaf(page));
            }
            let at = leaf.find(key);
            if !at.found {
                page.validate()?;
                return Ok(Lane::Done);
            }
            leaf.prefetch_record(at.index);
            return Ok(Lane::Record(page, at.index));
        }
        let child = Node::new(page.bytes()).child_for(key).child;
        self.pool.prefetch(child);
        self.prefetch_node(child);
        Ok(Lane::Below(page, child, level - 1))
    }
}

impl<P: Pages> Clone for Lane<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Pages> Copy for Lane<'_, P> {}

/// Copies a record's value to its place, and validates the leaf that it was found in.
#[inline(always)]
fn copy_record<'p, P: Pages>(
    leaf: OptimisticPage<'p, P>,
    place: usize,
    value: &mut Option<Value>,
) -> Result<Lane<'p, P>, Restart> {
    // Filled where the caller will find it: a value is larger than what a move is free for.
    let copy = value.get_or_insert_default();
    Leaf::new(leaf.bytes()).copy_value(place, &mut copy.0);
    if let Err(restart) = leaf.validate() {
        *value = None;
        return Err(restart);
    }
    Ok(Lane::Done)
}

/// Looks for a key in a leaf and copies its value.
fn find_record<'p, P: Pages>(
    leaf: OptimisticPage<'p, P>,
    key: &[u8],
    value: &mut Option<Value>,
) -> Result<Lane<'p, P>, Restart> {
    let at = Leaf::new(leaf.bytes()).find(key);
    if at.found {
        return copy_record(leaf, at.index, value);
    }
    leaf.validate()?;
    Ok(Lane::Done)
}

fn stopped<'p, P: Pages>(restart: Restart) -> Lane<'p, P> {
    match restart {
        Restart::Absent(_) => Lane::Absent,
        other => Lane::Alone(other),
    }
}
