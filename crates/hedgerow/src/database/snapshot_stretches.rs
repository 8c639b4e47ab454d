//! What a snapshot sees of the leaves of a tree, a stretch at a time.
//!
//! Rank 7. The order of the looks (leaf, versions, whether the snapshot has gone over to a checkpoint) is that of `versions/`. `Send`; used by one
//! thread at a time.

use crate::database::stretch::{Stretch, Stretches};
use crate::error::{ErrorKind, Result};
use crate::large::is_stored_form;
use crate::store::{NO_LEAF, OpenSnapshot, PoolTree, Source, Was, dropped_is_too_old};
use crate::tree::{LeafRecords, Target};
use hedgerow_sync::primitive::Arc;
use std::ops::Bound;

/// The leaves of a tree, and what of them a snapshot sees.
pub(super) struct SnapshotStretches {
    open: Arc<OpenSnapshot>,
    tree: PoolTree,
    leaf: LeafRecords,
    removed: Vec<Vec<u8>>,
    value: Vec<u8>,
}

impl SnapshotStretches {
    pub(super) fn new(open: Arc<OpenSnapshot>, tree: PoolTree) -> SnapshotStretches {
        let leaf = tree.leaf_records();
        SnapshotStretches { open, tree, leaf, removed: Vec::new(), value: Vec::new() }
    }

    /// The removed keys of a stretch's range, in order.
    fn find_removed(&mut self, stretch: &Stretch) -> Result<()> {
        let lower = stretch.lower().map_or(Bound::Unbounded, Bound::Excluded);
        let upper = stretch.upper().map_or(Bound::Unbounded, Bound::Included);
        self.open.removed_within(self.tree.id(), lower, upper, &mut self.removed)
    }
}

/// Whether a stretch was loaded, or the snapshot has gone over to a checkpoint meanwhile.
#[derive(PartialEq, Eq)]
enum Loaded {
    Whole,
    Elsewhere,
}

impl SnapshotStretches {
    /// Loads the range of the leaf in the tree, or the leaf of the pinned checkpoint that the snapshot reads instead.
    fn try_load(&mut self, at: Target<'_>, to: &mut Stretch) -> Result<Loaded> {
        let open = self.open.clone();
        let tree = self.tree.id();
        let (mut stamp, dropped) = match self.tree.copy_records(at, &mut self.leaf) {
            Ok(()) => (self.leaf.stamp(), None),
            Err(error) if error.kind() == ErrorKind::KeyspaceDropped => (NO_LEAF, Some(error)),
            Err(error) => return Err(error),
        };
        let source = open.source(tree, stamp)?;
        match (&source, dropped) {
            (Source::Checkpoint(pin), _) => {
                // It is older than versions, and none of the leaves of the tree.
                stamp = NO_LEAF;
                open.copy_pinned(pin, &self.tree, at, &mut self.leaf)?;
            }
            (_, Some(error)) => return Err(dropped_is_too_old(error)),
            (_, None) => {}
        }
        to.begin(
            |fence| self.leaf.append_lower_fence(fence),
            |fence| self.leaf.append_upper_fence(fence),
        );
        let has_stored_forms = open.has_stored_forms();
        let push = |to: &mut Stretch, key: &[u8], value: &[u8]| {
            to.push(key, value, has_stored_forms && is_stored_form(value));
        };
        if matches!(source, Source::Leaf) && stamp <= open.lsn() {
            self.leaf.for_each(|key, value| {
                push(to, key, value);
                true
            });
            return Ok(Loaded::Whole);
        }
        self.find_removed(to)?;
        let mut removed = self.removed.iter().peekable();
        let mut outcome = Ok(Loaded::Whole);
        let old = &mut self.value;
        let mut see = |to: &mut Stretch, key: &[u8], now: Option<&[u8]>| {
            old.clear();
            match (open.was(tree, key, stamp, old)?, &source) {
                (Was::Version, _) => push(to, key, old),
                (Was::Leaf, Source::Leaf) | (Was::Pinned, Source::Checkpoint(_)) => {
                    if let Some(now) = now {
                        push(to, key, now);
                    }
                }
                (Was::Absent, _) | (Was::Leaf, Source::Nothing) => {}
                (Was::Leaf | Was::Pinned, _) => return Ok(Loaded::Elsewhere),
            }
            Ok(Loaded::Whole)
        };
        self.leaf.for_each(|key, value| {
            outcome = (|| {
                while let Some(gone) = removed.next_if(|gone| gone.as_slice() < key) {
                    if see(to, gone, None)? == Loaded::Elsewhere {
                        return Ok(Loaded::Elsewhere);
                    }
                }
                removed.next_if(|gone| gone.as_slice() == key);
                see(to, key, Some(value))
            })();
            matches!(outcome, Ok(Loaded::Whole))
        });
        for gone in removed {
            if matches!(outcome, Ok(Loaded::Whole)) {
                outcome = see(to, gone, None);
            }
        }
        // Only now, when all versions are read: a key that was removed may be in the checkpoint alone by then.
        let is_pinned = |source: &Source| matches!(source, Source::Checkpoint(_));
        let is_elsewhere = is_pinned(&open.source(tree, stamp)?) != is_pinned(&source);
        Ok(if is_elsewhere { Loaded::Elsewhere } else { outcome? })
    }
}

impl Stretches for SnapshotStretches {
    fn load(&mut self, at: Target<'_>, to: &mut Stretch) -> Result<()> {
        let longest = self.tree.max_key_bytes();
        let at = match at {
            // An own key: it comes behind a tree key, and before the next one.
            Target::Key(key) if key.len() > longest => Target::Above(&key[..longest]),
            at => at,
        };
        // A snapshot goes over to a checkpoint once.
        while self.try_load(at, to)? == Loaded::Elsewhere {}
        Ok(())
    }
}
