//! The commit of a transaction that has changed long keys, or has read intervals that end at some.
//!
//! What was read is kept as intervals of the tree as the snapshot sees it. By now records with the same head may have other labels. So the
//! heads of all long keys that are changed, and of those that bound an interval, are locked. Then each bound is looked up in the tree as it is, and the interval goes
//! from the lower to the upper one of both places: whatever of it there was or is, lies in there. What is compared besides, because of that, is told by
//! its whole key, and does not count.
//!
//! Invariant: while the heads are locked no record with one of them comes or moves. Records may be taken out, and that is a change of a leaf that is compared.
//! Used by one thread; holds no latch.

use super::reads::{KeyBound, Reads, beginning, is_behind, is_later_end};
use super::{Body, Isolation, State};
use crate::buffer::BufferPool;
use crate::database::inner::Inner;
use crate::database::long::{
    Cut, Wanted, is_long, key_at, own_rest, spot_of, tree_of, tree_writes,
};
use crate::database::values::Prepared;
use crate::error::{Error, ErrorKind, Result};
use crate::store::{BatchChange, BatchReads, OpenSnapshot, PoolTree};
use crate::tree::{AskFile, Fences, FromFile, Judge, Read};
use crate::types::{Lsn, TreeId};
use crate::wait::Waiting;
use hedgerow_sync::primitive::Arc;
use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// An interval that was read.
struct Asked<'t> {
    tree: &'t PoolTree,
    /// In the tree as the snapshot sees it.
    then: (KeyBound, KeyBound),
    /// Of users' keys.
    keys: (KeyBound, KeyBound),
}

/// An interval of the tree as it is, and what of it was read.
struct Part<'a> {
    tree: &'a PoolTree,
    lower: KeyBound,
    upper: KeyBound,
    keys: Vec<&'a (KeyBound, KeyBound)>,
}

impl Part<'_> {
    fn as_read(&self) -> Read<'_, BufferPool> {
        Read {
            tree: self.tree,
            lower: self.lower.as_ref().map(Vec::as_slice),
            upper: self.upper.as_ref().map(Vec::as_slice),
        }
    }
}

fn key_of(bound: &KeyBound) -> Option<&Vec<u8>> {
    match bound {
        Bound::Included(key) | Bound::Excluded(key) => Some(key),
        Bound::Unbounded => None,
    }
}

impl State {
    /// Refuses to commit what was read of a keyspace that had ended before: until its pages go, reads find them.
    pub(super) fn check_not_ending(&self, body: &Body) -> Result<()> {
        let is_ending =
            |of: &Arc<OpenSnapshot>| body.trees.all().any(|(tree, _)| of.is_ending(*tree));
        let compares = self.isolation == Isolation::Serializable;
        if compares && body.snapshot.as_ref().is_some_and(is_ending) {
            let what = "a keyspace that was read was dropped";
            return Err(Error::new(ErrorKind::KeyspaceDropped, what));
        }
        Ok(())
    }

    /// [`State::make`] where long keys are concerned.
    #[cold]
    pub(super) fn make_long(
        &self,
        body: &Body,
        trees: &BTreeMap<TreeId, PoolTree>,
        waiting: &Waiting<'_>,
    ) -> Result<Lsn> {
        let inner = &**self.inner();
        let store = &inner.store;
        let trees: BTreeMap<TreeId, PoolTree> =
            trees.iter().map(|(id, tree)| (*id, tree_of(tree))).collect();
        let mut prepared = Vec::new();
        for (tree, key, value) in body.changes() {
            let tree = &trees[&tree];
            prepared.push(match value {
                Some(value) if is_long(tree, key) => {
                    Some(inner.prepare_long(tree, Cut::new(tree, key), value)?)
                }
                value => value.map(|value| inner.prepare(tree, key, value)).transpose()?,
            });
        }
        let values = prepared.iter().map(|value| value.as_ref().map(Prepared::bytes));
        let writes = body.changes().zip(values);
        let wanted: Vec<Wanted<'_>> =
            writes.map(|((tree, key, _), value)| (&trees[&tree], key, value)).collect();
        let asked = match &body.snapshot {
            Some(snapshot) => self.asked_for(body, snapshot, &trees)?,
            None => Vec::new(),
        };
        let bounds = asked.iter().flat_map(|of| [(of.tree, &of.keys.0), (of.tree, &of.keys.1)]);
        let bounds = bounds.filter_map(|(tree, bound)| Some((tree, key_of(bound)?.as_slice())));
        let also: Vec<(&PoolTree, &[u8])> =
            bounds.filter(|(tree, key)| is_long(tree, key)).collect();
        let mut made: Vec<usize> = Vec::new();
        let committed = tree_writes(inner, &wanted, &also, waiting, |changes, places| {
            // All records that were to be removed are gone. What was read is to be compared all the same.
            let is_nothing = changes.is_empty();
            let (tree, key, _) = wanted[0];
            let nothing = match is_nothing {
                true => Cut::new(tree, key).tree_key(0),
                false => Vec::new(),
            };
            let none = [BatchChange { tree, key: &nothing, value: None }];
            let changes = if is_nothing { &none[..] } else { changes };
            // A commit that could not be finished has all that it is to make in the log.
            let mut count = 0;
            let mut note = |count: usize| made.extend(places.iter().take(count));
            let Some(snapshot) = &body.snapshot else {
                let committed = store.commit(changes, None, &mut count, waiting);
                note(count);
                return committed;
            };
            let parts = parts_of(inner, &asked)?;
            let reads: Vec<Read<'_, _>> = parts.iter().map(Part::as_read).collect();
            let judge = LongJudge { inner, snapshot, parts: &parts, changed: RefCell::default() };
            let set = BatchReads { reads: &reads, judge: &judge };
            let committed = store.commit(changes, Some(&set), &mut count, waiting);
            note(count);
            let changed = judge.changed.take();
            committed.map_err(|error| match changed.is_empty() {
                true => self.with_whole_key(body, error),
                false => error.with_conflicting_key(|_, _| Some(changed)),
            })
        });
        drop(wanted);
        for place in made {
            if let Some(prepared) = prepared[place].take() {
                prepared.keep();
            }
        }
        committed?.ok_or_else(|| self.too_large(body.len_bytes()))
    }

    /// What has to be unchanged.
    fn asked_for<'t>(
        &self,
        body: &Body,
        snapshot: &Arc<OpenSnapshot>,
        trees: &'t BTreeMap<TreeId, PoolTree>,
    ) -> Result<Vec<Asked<'t>>> {
        let mut asked = body.many.as_ref().map_or_else(Reads::default, |of| of.reads.clone());
        if self.compares_changes() {
            for (tree, key, _) in body.changes() {
                match is_long(&trees[&tree], key) {
                    true => {
                        let spot = spot_of(snapshot, self.inner(), &trees[&tree], key)?;
                        asked.key(tree, &spot.first);
                    }
                    false => asked.key(tree, key),
                }
            }
        }
        let intervals = asked.all().into_iter().map(|(tree, lower, upper)| {
            let tree = &trees[&tree];
            let user_key = |bound: &KeyBound| -> Result<KeyBound> {
                let key = |place: &Vec<u8>| key_at(snapshot, self.inner(), tree, place);
                Ok(match bound {
                    Bound::Included(place) => Bound::Included(key(place)?),
                    Bound::Excluded(place) => Bound::Excluded(key(place)?),
                    Bound::Unbounded => Bound::Unbounded,
                })
            };
            let keys = (user_key(&lower)?, user_key(&upper)?);
            Ok(Asked { tree, then: (lower, upper), keys })
        });
        intervals.collect()
    }

    /// The same error, naming the whole key of a record that the tree has with a label.
    pub(super) fn with_whole_key(&self, body: &Body, error: Error) -> Error {
        if error.kind() != ErrorKind::Conflict {
            return error;
        }
        error.with_conflicting_key(|tree, key| {
            let used =
                body.trees.find(self.inner(), tree).filter(|used| is_long(&used.tree, key))?;
            let tree = tree_of(&used.tree);
            let then = body.snapshot.as_ref().map(|of| key_at(of, self.inner(), &tree, key));
            let now = || {
                let (mut rest, raw) = (Vec::new(), tree.get(key).ok()??);
                let is_there = self.inner().rest_of(&tree, key, &raw, &mut rest).ok()?;
                is_there.then(|| [&key[..tree.max_short_key_bytes()], &rest].concat())
            };
            let whole = then.and_then(Result::ok).or_else(now);
            // It is gone from both: its head is all that is known.
            Some(whole.unwrap_or_else(|| key[..tree.max_short_key_bytes()].to_vec()))
        })
    }
}

/// The intervals in the tree as it is, in order; no two have a key in common. While the heads of all bounds are locked.
fn parts_of<'a>(inner: &Inner, asked: &'a [Asked<'a>]) -> Result<Vec<Part<'a>>> {
    let mut all = Vec::with_capacity(asked.len());
    for Asked { tree, then, keys } in asked {
        // As many records lie behind an own key as behind the tree key in front of it.
        let then_lower = match &then.0 {
            Bound::Included(key) | Bound::Excluded(key) if own_rest(tree, key).is_some() => {
                Bound::Excluded(key[..tree.max_key_bytes()].to_vec())
            }
            bound => bound.clone(),
        };
        let then_upper = match &then.1 {
            Bound::Included(key) | Bound::Excluded(key) if own_rest(tree, key).is_some() => {
                Bound::Included(key[..tree.max_key_bytes()].to_vec())
            }
            bound => bound.clone(),
        };
        let now_lower = inner.bound_now(tree, &keys.0, true)?;
        let now_upper = inner.bound_now(tree, &keys.1, false)?;
        let lower = match beginning(&now_lower) < beginning(&then_lower) {
            true => now_lower,
            false => then_lower,
        };
        let upper = match is_later_end(&now_upper, &then_upper) {
            true => now_upper,
            false => then_upper,
        };
        if !crate::database::stretch::is_empty(&lower, &upper) {
            all.push(Part { tree, lower, upper, keys: vec![keys] });
        }
    }
    all.sort_by(|a, b| (a.tree.id(), beginning(&a.lower)).cmp(&(b.tree.id(), beginning(&b.lower))));
    let mut parts: Vec<Part<'a>> = Vec::with_capacity(all.len());
    for part in all {
        match parts.last_mut() {
            Some(last)
                if last.tree.id() == part.tree.id() && !is_behind(&part.lower, &last.upper) =>
            {
                if is_later_end(&part.upper, &last.upper) {
                    last.upper = part.upper;
                }
                last.keys.extend(part.keys);
            }
            _ => parts.push(part),
        }
    }
    Ok(parts)
}

/// Compares what was read with what there is, by whole keys.
struct LongJudge<'j> {
    inner: &'j Inner,
    snapshot: &'j Arc<OpenSnapshot>,
    parts: &'j [Part<'j>],
    /// The key that has changed, if one of those that were compared last has.
    changed: RefCell<Vec<u8>>,
}

impl Judge<BufferPool> for LongJudge<'_> {
    fn is_as_it_was(&self, tree: &PoolTree, stamp: Lsn) -> bool {
        self.snapshot.is_as_it_was(tree, stamp)
    }

    fn read_ahead(&self, read: &Read<'_, BufferPool>, fences: &Fences) -> Result<Option<FromFile>> {
        self.snapshot.read_ahead(read, fences)
    }

    fn compare(&self, leaf: &[u8], read: &Read<'_, BufferPool>, file: AskFile<'_>) -> Result<bool> {
        let lower = read.lower.map(<[u8]>::to_vec);
        let place = self.parts.binary_search_by(|part| {
            (part.tree.id(), beginning(&part.lower)).cmp(&(read.tree.id(), beginning(&lower)))
        });
        let part = place.ok().map(|at| &self.parts[at]);
        let counts = |key: &[u8], now: Option<&[u8]>, then: Option<&[u8]>| match part {
            Some(part) => self.counts(part, key, (now, then), file),
            None => Ok(true),
        };
        self.snapshot.compare_where(leaf, read, file, &counts)
    }
}

impl LongJudge<'_> {
    /// Whether a record that is not what it was, now or then, is one that was read. What cannot be told without reading what may not be read by then counts.
    fn counts(
        &self,
        part: &Part<'_>,
        key: &[u8],
        (now, then): (Option<&[u8]>, Option<&[u8]>),
        file: AskFile<'_>,
    ) -> Result<bool> {
        let head_bytes = part.tree.max_short_key_bytes();
        let has_head = |bound: &KeyBound| {
            key_of(bound).is_some_and(|of| {
                of.len() > head_bytes
                    && key.len() > head_bytes
                    && of[..head_bytes] == key[..head_bytes]
            })
        };
        if !part.keys.iter().any(|(lower, upper)| has_head(lower) || has_head(upper)) {
            self.changed.take();
            return Ok(part.keys.iter().any(|keys| is_in(keys, |of| key.cmp(of))));
        }
        let mut rest = Vec::new();
        for (raw, is_now) in [(now, true), (then, false)] {
            let Some(raw) = raw else { continue };
            let is_known = match (file, is_now) {
                (AskFile::Ahead(_), _) | (AskFile::ReadButTree, true) => {
                    self.inner.rest_from(raw, &mut rest, || Ok(None))?
                }
                (AskFile::Read, true) => self.inner.rest_of(part.tree, key, raw, &mut rest)?,
                (AskFile::Read | AskFile::ReadButTree, false) => {
                    let open = self.snapshot;
                    let found = || open.resolve(raw, part.tree.wait()).map(Some);
                    self.inner.rest_from(raw, &mut rest, found)?
                }
            };
            let order =
                |of: &[u8]| match of.len() > head_bytes && of[..head_bytes] == key[..head_bytes] {
                    true => rest.as_slice().cmp(&of[head_bytes..]),
                    false => key.cmp(of),
                };
            if !is_known || part.keys.iter().any(|keys| is_in(keys, order)) {
                self.changed.replace([&key[..head_bytes], &rest].concat());
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether a key lies in an interval; `order` compares it with another one.
fn is_in((lower, upper): &(KeyBound, KeyBound), order: impl Fn(&[u8]) -> Ordering) -> bool {
    (match lower {
        Bound::Included(low) => order(low) != Ordering::Less,
        Bound::Excluded(low) => order(low) == Ordering::Greater,
        Bound::Unbounded => true,
    }) && match upper {
        Bound::Included(high) => order(high) != Ordering::Greater,
        Bound::Excluded(high) => order(high) == Ordering::Less,
        Bound::Unbounded => true,
    }
}
