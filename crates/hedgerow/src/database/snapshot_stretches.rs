//! What a snapshot sees of the leaves of a tree, a stretch at a time.
//!
//! Rank 7. The order of the looks (leaf, versions, whether the snapshot has gone over to a checkpoint) is that of `versions/`. `Send`; used by one
//! thread at a time.

use crate::database::stretch::{Stretch, Stretches, Wanted};
use crate::error::Result;
use crate::large::is_stored_form;
use crate::store::{NO_LEAF, OpenSnapshot, PoolTree, Source, Was, dropped_is_too_old};
use crate::tree::{FrozenWalk, LeafRecords, LeafWalk, Target};
use crate::types::Lsn;
use hedgerow_sync::primitive::Arc;
use std::ops::Bound;

/// Leaves of the tree that a scan does not look at behind one that has changed: twice as many each time.
const LEAST_TO_PASS: u32 = 8;
const MOST_TO_PASS: u32 = 1024;

/// The leaves of a tree, and what of them a snapshot sees. The snapshot is given with each load, so that it may end before this.
pub(super) struct SnapshotStretches {
    tree: PoolTree,
    leaf: LeafRecords,
    /// How many leaves of the tree are not to be looked at, because the last one that was had changed since the snapshot, and how many were not yet.
    to_pass: u32,
    passed: u32,
    walk: LeafWalk,
    pinned_walk: FrozenWalk,
    removed: Vec<Vec<u8>>,
    value: Vec<u8>,
}

impl SnapshotStretches {
    pub(super) fn new(tree: PoolTree) -> SnapshotStretches {
        let leaf = tree.leaf_records();
        SnapshotStretches {
            tree,
            leaf,
            to_pass: 0,
            passed: 0,
            walk: LeafWalk::default(),
            pinned_walk: FrozenWalk::default(),
            removed: Vec::new(),
            value: Vec::new(),
        }
    }

    /// The removed keys of a stretch's range, in order.
    fn find_removed(&mut self, open: &OpenSnapshot, stretch: &Stretch) -> Result<()> {
        let lower = stretch.lower().map_or(Bound::Unbounded, Bound::Excluded);
        let upper = stretch.upper().map_or(Bound::Unbounded, Bound::Included);
        open.removed_within(self.tree.id(), lower, upper, &mut self.removed)
    }
}

/// Whether a stretch was loaded, or the snapshot has gone over to a checkpoint meanwhile.
#[derive(PartialEq, Eq)]
enum Loaded {
    Whole,
    Elsewhere,
}

impl SnapshotStretches {
    /// Copies the leaf of the tree.
    fn copy_leaf(&mut self, wanted: Wanted<'_>) -> Result<()> {
        let (tree, leaf, walk) = (&self.tree, &mut self.leaf, &mut self.walk);
        let copied = match wanted {
            Wanted::Next(beyond) => tree.copy_next_records(beyond, walk, leaf),
            Wanted::At(target) => tree.copy_first_records(target, walk, leaf),
        };
        copied.inspect_err(|_| self.walk.forget())
    }

    /// Copies the leaf of the tree, or that of the pinned checkpoint that the snapshot reads instead. Gives which, and its stamp.
    fn copy_some_leaf(&mut self, open: &OpenSnapshot, wanted: Wanted<'_>) -> Result<(Source, Lsn)> {
        let tree = self.tree.id();
        if matches!(wanted, Wanted::At(_)) {
            (self.to_pass, self.passed) = (0, 0);
            self.pinned_walk = FrozenWalk::default();
        }
        // If a leaf had changed since, the next ones have, too, most likely, and need not be read.
        let passes = self.passed < self.to_pass;
        let mut source = if passes { open.source(tree, NO_LEAF)? } else { Source::Leaf };
        self.passed += 1;
        if !matches!(source, Source::Checkpoint(_)) {
            let copied = self.copy_leaf(wanted);
            let stamp = match &copied {
                Ok(()) => self.leaf.stamp(),
                Err(error) if open.is_dropped_since(tree, error) => NO_LEAF,
                Err(_) => return copied.map(|()| (source, NO_LEAF)),
            };
            source = open.source(tree, stamp)?;
            self.passed = 0;
            if !matches!(source, Source::Checkpoint(_)) {
                self.to_pass = 0;
                copied.map_err(dropped_is_too_old)?;
                return Ok((source, stamp));
            }
            self.to_pass = (2 * self.to_pass).clamp(LEAST_TO_PASS, MOST_TO_PASS);
        }
        self.walk.forget();
        if let Source::Checkpoint(pin) = &source {
            let (leaf, walk) = (&mut self.leaf, &mut self.pinned_walk);
            open.pinned(pin, &self.tree, |pinned| match wanted {
                Wanted::Next(beyond) => pinned.copy_next_records(beyond, walk, leaf),
                Wanted::At(target) => pinned.copy_records(target, leaf),
            })?;
        }
        // It is older than versions, and none of the leaves of the tree.
        Ok((source, NO_LEAF))
    }

    /// Loads the range of the leaf in the tree, or the leaf of the pinned checkpoint that the snapshot reads instead.
    fn try_load(
        &mut self,
        open: &OpenSnapshot,
        wanted: Wanted<'_>,
        to: &mut Stretch,
    ) -> Result<Loaded> {
        let (source, stamp) = self.copy_some_leaf(open, wanted)?;
        let tree = self.tree.id();
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
        self.find_removed(open, to)?;
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

impl SnapshotStretches {
    /// [`Stretches::load`].
    pub(super) fn load(
        &mut self,
        open: &OpenSnapshot,
        wanted: Wanted<'_>,
        to: &mut Stretch,
    ) -> Result<()> {
        let longest = self.tree.max_key_bytes();
        let mut wanted = match wanted {
            // An own key: it comes behind a tree key, and before the next one.
            Wanted::At(Target::Key(key)) if key.len() > longest => {
                Wanted::At(Target::Above(&key[..longest]))
            }
            wanted => wanted,
        };
        // A snapshot goes over to a checkpoint once.
        while self.try_load(open, wanted, to)? == Loaded::Elsewhere {
            // The walk has come to that leaf already.
            wanted = Wanted::At(wanted.target());
        }
        Ok(())
    }
}

/// The same, of a snapshot that this keeps open.
pub(super) struct OpenStretches {
    open: Arc<OpenSnapshot>,
    stretches: SnapshotStretches,
}

impl OpenStretches {
    pub(super) fn new(open: Arc<OpenSnapshot>, tree: PoolTree) -> OpenStretches {
        OpenStretches { open, stretches: SnapshotStretches::new(tree) }
    }
}

impl Stretches for OpenStretches {
    fn load(&mut self, wanted: Wanted<'_>, to: &mut Stretch) -> Result<()> {
        self.stretches.load(&self.open, wanted, to)
    }
}
