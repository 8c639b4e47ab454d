//! Changes of records of long keys: one, conditional, or in a batch.
//!
//! Each holds the locks of its heads from before it looks for the record until the record is changed, so that the label that was found is the key's, and the gap
//! that was found a gap. Values are written before that, and the log is waited for behind it. What takes records out by place may come between; a label that was found then has
//! no record, and a put gives it to the same key again.

use super::find::Place;
use super::locks::{Locked, name_of};
use super::{Cut, LAST_LABEL, MIDDLE_LABEL, check_key, is_long, split_payload, tree_of};
use crate::database::database::Inner;
use crate::database::keyspace::{Keyspace, is_change};
use crate::database::large::Prepared;
use crate::error::Result;
use crate::store::{BatchChange, PoolTree};
use crate::tree::{Swap, Value};
use crate::types::{Lsn, TreeId};
use crate::wait::Waiting;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Bound;

/// A key at an end gets the label of the last one, and this part of what is left behind it. So some 400,000 keys may ascend, or descend, before
/// records have to move, and as many bits are left between two of them as a random order uses up for some 10,000.
const STEP_SHIFT: u32 = 14;

/// Labels for so many new keys between two: the first one, and the step from each to the next. `None` if there are not so many.
pub(super) fn labels_between(below: u64, above: u64, count: u64) -> Option<(u64, u64)> {
    let width = above - below;
    if width <= count {
        return None;
    }
    let most = width / (count + 1);
    let at_end = |width: u64| (width >> STEP_SHIFT).clamp(1, most);
    Some(match (below, above) {
        (0, LAST_LABEL) => (MIDDLE_LABEL, at_end(width / 2).min(most / 2).max(1)),
        (0, _) => (above - at_end(width) * count, at_end(width)),
        (_, LAST_LABEL) => (below + at_end(width), at_end(width)),
        _ => (below + most, most),
    })
}

impl Inner {
    /// Locks the heads of long keys.
    fn lock_heads<'k>(
        &self,
        keys: impl Iterator<Item = (&'k PoolTree, &'k [u8])>,
        waiting: &Waiting<'_>,
    ) -> Result<Locked<'_>> {
        let names: BTreeSet<u64> =
            keys.map(|(tree, key)| name_of(tree.id(), Cut::new(tree, key).head)).collect();
        self.long.lock(names, waiting)
    }

    /// The label of a long key whose head is locked: of its record, or where one may be put.
    fn label_to_put(&self, tree: &PoolTree, cut: Cut<'_>, waiting: &Waiting<'_>) -> Result<u64> {
        loop {
            match self.locate(tree, cut)? {
                Place::At { label, .. } => return Ok(label),
                Place::Gap { below, above } => match labels_between(below, above, 1) {
                    Some((label, _)) => return Ok(label),
                    None => self.spread(tree, cut, below, 1, waiting)?,
                },
            }
        }
    }
}

impl Keyspace {
    /// A change that puts the record of a long key, or may; `stored`: by its outcome it did.
    ///
    /// Errors: those of [`Keyspace::put`].
    #[cold]
    pub(in crate::database) fn change_long<R>(
        &self,
        key: &[u8],
        value: &[u8],
        change: impl FnOnce(&PoolTree, &[u8], &[u8]) -> Result<R>,
        stored: impl Fn(&R) -> bool,
    ) -> Result<R> {
        self.inner.check_open()?;
        check_key(key)?;
        let this = self.for_one_call();
        let tree = tree_of(this.tree());
        let prepared = self.inner.prepare_long(&tree, Cut::new(&tree, key), value)?;
        let makes = |tree: &PoolTree, tree_key: &[u8]| {
            let outcome = change(tree, tree_key, prepared.bytes())?;
            if stored(&outcome) {
                prepared.keep();
            }
            Ok(outcome)
        };
        this.put_long(&tree, key, makes, &stored)
    }

    /// Runs a change that may put the record of a long key, with the tree key of it; `stored`: by its outcome it did.
    pub(in crate::database) fn put_long<R>(
        &self,
        tree: &PoolTree,
        key: &[u8],
        change: impl FnOnce(&PoolTree, &[u8]) -> Result<R>,
        stored: impl Fn(&R) -> bool,
    ) -> Result<R> {
        let cut = Cut::new(tree, key);
        let makes = |_: &PoolTree| {
            let waiting = tree.wait().begin();
            let _locked = self.inner.lock_heads([(tree, key)].into_iter(), &waiting)?;
            let label = self.inner.label_to_put(tree, cut, &waiting)?;
            change(tree, &cut.tree_key(label))
        };
        self.change_if(makes, stored)
    }

    /// [`Keyspace::remove`] of a long key.
    #[cold]
    pub(in crate::database) fn remove_long(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let this = self.for_one_call();
        let tree = tree_of(this.tree());
        let cut = Cut::new(&tree, key);
        let removes = |_: &PoolTree| {
            let waiting = tree.wait().begin();
            let _locked = self.inner.lock_heads([(&tree, key)].into_iter(), &waiting)?;
            match self.inner.locate(&tree, cut)? {
                Place::At { label, .. } => tree.remove(&cut.tree_key(label)),
                Place::Gap { .. } => Ok(false),
            }
        };
        // That there is none is durable, too.
        this.change_if(removes, |_| true)
    }

    /// [`Keyspace::compare_and_swap`] of a long key.
    #[cold]
    pub(in crate::database) fn swap_long(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Swap> {
        self.inner.check_open()?;
        check_key(key)?;
        let this = self.for_one_call();
        let tree = tree_of(this.tree());
        let cut = Cut::new(&tree, key);
        let mut prepared: Option<Prepared<'_>> = None;
        let swaps = |_: &PoolTree| {
            let waiting = tree.wait().begin();
            let _locked = self.inner.lock_heads([(&tree, key)].into_iter(), &waiting)?;
            loop {
                let (label, raw) = match self.inner.locate(&tree, cut)? {
                    Place::At { label, raw } => (label, Some(raw)),
                    Place::Gap { .. } if expected.is_some() => return Ok(Swap::Differs(None)),
                    Place::Gap { .. } if new.is_none() => return Ok(Swap::Swapped),
                    Place::Gap { .. } => (self.inner.label_to_put(&tree, cut, &waiting)?, None),
                };
                let tree_key = cut.tree_key(label);
                if let Some(raw) = &raw {
                    let Some(payload) = self.inner.payload_of(&tree, &tree_key, raw)? else {
                        continue;
                    };
                    let (rest, value) = split_payload(&payload)?;
                    if rest != cut.rest {
                        continue;
                    }
                    if expected != Some(value) {
                        return Ok(Swap::Differs(Some(Value::from(value))));
                    }
                }
                if prepared.is_none()
                    && let Some(new) = new
                {
                    prepared = Some(self.inner.prepare_long(&tree, cut, new)?);
                }
                let put = prepared.as_ref().map(Prepared::bytes);
                // Nobody else puts a record here; it may have been taken out.
                if tree.compare_and_swap(&tree_key, raw.as_deref(), put)?.is_swapped() {
                    if let Some(prepared) = prepared.take() {
                        prepared.keep();
                    }
                    return Ok(Swap::Swapped);
                }
            }
        };
        this.change_if(swaps, |swapped| is_change(swapped, expected, new))
    }
}

impl Keyspace {
    /// [`Keyspace::remove_range`].
    pub(in crate::database) fn remove_between(
        &self,
        start: Bound<&[u8]>,
        end: Bound<&[u8]>,
    ) -> Result<u64> {
        let long_bound = |bound| match bound {
            Bound::Included(key) | Bound::Excluded(key) if is_long(&self.tree, key) => Some(key),
            _ => None,
        };
        let long = [long_bound(start), long_bound(end)];
        let removes = |tree: &PoolTree| {
            let waiting = tree.wait().begin();
            // Nobody puts a record before an end and with a label behind it.
            let _locked = match long {
                [None, None] => None,
                _ => {
                    let keys = long.iter().flatten().map(|key| (tree, *key));
                    Some(self.inner.lock_heads(keys, &waiting)?)
                }
            };
            // And none moves over an end, or to where everything was removed.
            let _still = self.inner.long.keep_still(&waiting)?;
            let from = match start {
                Bound::Unbounded => Cow::Borrowed(&[][..]),
                Bound::Included(key) => self.inner.edge(tree, key, false)?,
                Bound::Excluded(key) => self.inner.edge(tree, key, true)?,
            };
            let to = match end {
                Bound::Unbounded => None,
                Bound::Included(key) => Some(self.inner.edge(tree, key, true)?),
                Bound::Excluded(key) => Some(self.inner.edge(tree, key, false)?),
            };
            tree.remove_range(&from, to.as_deref())
        };
        // That there is none is durable, too.
        self.change_if(removes, |_| true)
    }
}

/// A change of a batch: tree, key, and what the record gets.
pub(in crate::database) type Wanted<'b> = (&'b PoolTree, &'b [u8], Option<&'b [u8]>);

/// Makes the changes of a batch by `write`, with the tree keys of long ones, and each one's place in `wanted`. They are of different keys, in the order of tree
/// and key; values are in stored form, and trees of long keys take those. The heads of the long keys `also` are locked meanwhile, too.
///
/// Errors: those of reads and of `write`.
pub(in crate::database) fn tree_writes<R>(
    inner: &Inner,
    wanted: &[Wanted<'_>],
    also: &[(&PoolTree, &[u8])],
    waiting: &Waiting<'_>,
    write: impl FnOnce(&[BatchChange<'_>], &[usize]) -> Result<R>,
) -> Result<R> {
    let is_long = |(tree, key, _): &&Wanted<'_>| is_long(tree, key);
    let changed = wanted.iter().filter(is_long).map(|(tree, key, _)| (*tree, *key));
    let _locked = inner.lock_heads(changed.chain(also.iter().copied()), waiting)?;
    let keys = loop {
        if let Some(keys) = tree_keys(inner, wanted, waiting)? {
            break keys;
        }
    };
    let mut changes = Vec::with_capacity(wanted.len());
    let mut places = Vec::with_capacity(wanted.len());
    for (place, ((tree, key, value), tree_key)) in wanted.iter().zip(&keys).enumerate() {
        let key: &[u8] = match tree_key {
            TreeKey::Same => key,
            TreeKey::Labelled(tree_key) => tree_key,
            TreeKey::Nothing => continue,
        };
        changes.push(BatchChange { tree, key, value: *value });
        places.push(place);
    }
    write(&changes, &places)
}

/// Writes a batch of which some keys are long: brings values into the form that a leaf gets, and makes the changes. They are sorted, each key once.
///
/// Errors: those of [`crate::Database::write`].
pub(in crate::database) fn write_long(
    inner: &Inner,
    changes: &[Wanted<'_>],
    waiting: &Waiting<'_>,
) -> Result<Lsn> {
    // One handle for each change: a batch like that is rare.
    let trees: Vec<PoolTree> = changes.iter().map(|(tree, ..)| tree_of(tree)).collect();
    let mut prepared = Vec::with_capacity(changes.len());
    for (tree, (_, key, value)) in trees.iter().zip(changes) {
        prepared.push(match value {
            None => None,
            Some(value) if is_long(tree, key) => {
                Some(inner.prepare_long(tree, Cut::new(tree, key), value)?)
            }
            Some(value) => Some(inner.prepare(tree, key, value)?),
        });
    }
    let values = prepared.iter().map(|prepared| prepared.as_ref().map(Prepared::bytes));
    let wanted = trees.iter().zip(changes).zip(values);
    let wanted: Vec<Wanted<'_>> =
        wanted.map(|((tree, (_, key, _)), value)| (tree, *key, value)).collect();
    let mut made = Vec::new();
    let written = tree_writes(inner, &wanted, &[], waiting, |changes, places| {
        let mut count = 0;
        let written = inner.store.write_batch(changes, &mut count, waiting);
        made.extend_from_slice(&places[..count]);
        written
    });
    drop(wanted);
    for place in made {
        if let Some(prepared) = prepared[place].take() {
            prepared.keep();
        }
    }
    written
}

enum TreeKey {
    /// The key is short.
    Same,
    Labelled(Vec<u8>),
    /// There is no record to remove.
    Nothing,
}

/// A new record of a batch: its place there, and the gap that it goes into.
struct New<'b> {
    at: usize,
    tree: &'b PoolTree,
    cut: Cut<'b>,
    /// The label of the record before it, also of one that is to be removed.
    below: u64,
    above: u64,
}

/// The tree keys of a batch; `None` if records had to move, which makes what was found of others with their head invalid.
fn tree_keys(
    inner: &Inner,
    wanted: &[Wanted<'_>],
    waiting: &Waiting<'_>,
) -> Result<Option<Vec<TreeKey>>> {
    let mut keys = Vec::with_capacity(wanted.len());
    let mut new: Vec<New<'_>> = Vec::new();
    // The head before, and the label of the last record that it was found to have.
    let mut last: Option<(TreeId, &[u8], u64)> = None;
    for (at, &(tree, key, value)) in wanted.iter().enumerate() {
        if !is_long(tree, key) {
            keys.push(TreeKey::Same);
            continue;
        }
        let cut = Cut::new(tree, key);
        let place = inner.locate(tree, cut)?;
        let before = last.filter(|(id, head, _)| (*id, *head) == (tree.id(), cut.head));
        let before = before.map_or(0, |(_, _, label)| label);
        keys.push(match place {
            Place::At { label, .. } => {
                last = Some((tree.id(), cut.head, label));
                TreeKey::Labelled(cut.tree_key(label))
            }
            Place::Gap { below, above } => {
                // Records that are taken out meanwhile only make gaps wider.
                let below = below.max(before);
                last = Some((tree.id(), cut.head, below));
                if value.is_some() {
                    new.push(New { at, tree, cut, below, above });
                }
                TreeKey::Nothing
            }
        });
    }
    let is_one_gap = |a: &New<'_>, b: &New<'_>| {
        (a.tree.id(), a.cut.head, a.below, a.above) == (b.tree.id(), b.cut.head, b.below, b.above)
    };
    let mut last: Option<(TreeId, &[u8], u64)> = None;
    for gap in new.chunk_by(is_one_gap) {
        let New { tree, cut, below, above, .. } = gap[0];
        let before = last.filter(|(id, head, _)| (*id, *head) == (tree.id(), cut.head));
        let below = before.map_or(below, |(_, _, label)| label.max(below));
        let count = gap.len() as u64;
        let Some((first, step)) = labels_between(below, above, count) else {
            inner.spread(tree, cut, gap[0].below, count, waiting)?;
            return Ok(None);
        };
        for (number, new) in (0..).zip(gap) {
            keys[new.at] = TreeKey::Labelled(new.cut.tree_key(first + step * number));
        }
        last = Some((tree.id(), cut.head, first + step * (count - 1)));
    }
    Ok(Some(keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_ascend_between_their_neighbours_and_there_are_none_only_where_there_is_no_room() {
        let edges = [0, 1, 2, 3, 7, 100, MIDDLE_LABEL, LAST_LABEL - 9, LAST_LABEL - 1, LAST_LABEL];
        for below in edges {
            for above in edges.into_iter().filter(|above| *above > below) {
                for count in [1, 2, 5, 98, 1000] {
                    let labels = labels_between(below, above, count);
                    assert_eq!(labels.is_none(), above - below <= count, "{below} {above} {count}");
                    let Some((first, step)) = labels else { continue };
                    let last = first + step * (count - 1);
                    assert!(below < first && step > 0 && last < above, "{below} {above} {count}");
                }
            }
        }
    }
}
