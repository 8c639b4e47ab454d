//! Changes of one long key of a keyspace, and removals of a range that a long key bounds.
//!
//! As for any change of long keys, the locks of the heads are held from before the look for the record until it is changed; see `change.rs`. No state
//! of its own.

use super::find::Place;
use super::{Cut, check_key, is_long, split_payload, tree_of};
use crate::database::keyspace::{Keyspace, is_change};
use crate::database::values::Prepared;
use crate::error::Result;
use crate::store::PoolTree;
use crate::tree::{CompareAndSwap, Value};
use std::borrow::Cow;
use std::ops::Bound;

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
    ) -> Result<CompareAndSwap> {
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
                    Place::Gap { .. } if expected.is_some() => {
                        return Ok(CompareAndSwap::Differs(None));
                    }
                    Place::Gap { .. } if new.is_none() => return Ok(CompareAndSwap::Swapped),
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
                        return Ok(CompareAndSwap::Differs(Some(Value::from(value))));
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
                    return Ok(CompareAndSwap::Swapped);
                }
            }
        };
        this.change_if(swaps, |swapped| is_change(swapped, expected, new))
    }

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
