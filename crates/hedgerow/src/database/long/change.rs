//! Changes of records of long keys: the labels that new ones get, and the changes of a batch. Single ones are in `keyspace.rs`.
//!
//! Each holds the locks of its heads from before it looks for the record until the record is changed, so that the label that was found is the key's, and the gap
//! that was found a gap. Values are written before that, and the log is waited for behind it. What takes records out by place may come between; a label that was found then has
//! no record, and a put gives it to the same key again.

use super::find::Place;
use super::locks::{Locked, Name, name_of};
use super::{Cut, LAST_LABEL, MIDDLE_LABEL, is_long, tree_of};
use crate::database::inner::Inner;
use crate::database::values::Prepared;
use crate::error::Result;
use crate::store::{BatchChange, PoolTree};
use crate::types::{Lsn, TreeId};
use crate::wait::Waiting;
use std::collections::BTreeSet;

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
    pub(super) fn lock_heads<'k>(
        &self,
        keys: impl Iterator<Item = (&'k PoolTree, &'k [u8])>,
        waiting: &Waiting<'_>,
    ) -> Result<Locked<'_>> {
        let names: BTreeSet<Name> =
            keys.map(|(tree, key)| name_of(tree.id(), Cut::new(tree, key).head)).collect();
        self.long.lock(names, waiting)
    }

    /// The label of a long key whose head is locked: of its record, or where one may be put.
    pub(super) fn label_to_put(
        &self,
        tree: &PoolTree,
        cut: Cut<'_>,
        waiting: &Waiting<'_>,
    ) -> Result<u64> {
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
        if above < below {
            return Err(super::damaged());
        }
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
