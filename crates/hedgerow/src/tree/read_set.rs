//! What a commit has read, and has to find unchanged: intervals of keys, in trees.
//!
//! An interval is what was *asked for*, so it has the gaps between the records that were found, and the end where none was found any more. Who
//! inserts into a gap, or removes a record, changes it.
//!
//! Plain data; `Send + Sync` as trees are.

use super::Tree;
use super::commit_leaves::Fences;
use super::descend::{Target, plain};
use super::leaf_walk::{Beyond, LeafWalk};
use crate::error::Result;
use crate::node::Node;
use crate::page::Pages;
use crate::types::{Lsn, TreeId};
use hedgerow_sync::optimistic::PageBytes;
use std::collections::BTreeMap;
use std::ops::Bound;

/// An interval that was read.
#[derive(Debug)]
pub struct Read<'c, P: Pages> {
    /// The tree.
    pub tree: &'c Tree<P>,
    /// Where it begins.
    pub lower: Bound<&'c [u8]>,
    /// Where it ends.
    pub upper: Bound<&'c [u8]>,
}

impl<P: Pages> Clone for Read<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Pages> Copy for Read<'_, P> {}

/// Everything that a commit has read, and who knows what that was.
pub struct ReadSet<'c, P: Pages> {
    /// The intervals, in the order of trees and keys; no two have a key in common.
    pub reads: &'c [Read<'c, P>],
    /// Says whether they are unchanged.
    pub judge: &'c dyn Judge<P>,
}

/// Knows what a snapshot has seen.
pub trait Judge<P: Pages> {
    /// Whether nothing in a leaf with this stamp is newer than the snapshot.
    fn is_as_it_was(&self, tree: &Tree<P>, stamp: Lsn) -> bool;

    /// How many open snapshots need no version of what the commit changes: its own, if nobody reads with it any more.
    fn own_snapshots(&self) -> u64 {
        0
    }

    /// Reads what only the file has of an interval, before the leaf with these fences is latched.
    ///
    /// Errors: those of reading old versions.
    fn read_ahead(&self, read: &Read<'_, P>, fences: &Fences) -> Result<Option<FromFile>>;

    /// Compares what a copy of a leaf has of an interval with what the snapshot has of it, as far as the leaf goes. False: that is in the
    /// file, and was not read ahead.
    ///
    /// Errors: `Conflict` if it is not the same; those of reading old versions.
    fn compare(&self, leaf: &[u8], read: &Read<'_, P>, file: AskFile<'_>) -> Result<bool>;
}

/// What the file has of an interval within a leaf's fences.
#[derive(Debug)]
pub struct FromFile {
    /// In the order of the keys.
    pub records: BTreeMap<Vec<u8>, InFile>,
    /// How many parts of old versions had been written before it was read. If one more was, there may be more.
    pub parts_written: u64,
}

/// A record in the file.
#[derive(Debug)]
pub enum InFile {
    /// A checkpoint has it. An old version in memory counts more.
    Checkpoint(Vec<u8>),
    /// An old version, which counts more than any other; `None`: there was no record.
    Version(Option<Vec<u8>>),
}

/// How the file is asked.
#[derive(Clone, Copy)]
pub enum AskFile<'a> {
    /// It is read.
    Read,
    /// It is read, but for pages of the tree: the commit has its places in the pool, and who has some and waits for others may wait for ever.
    ReadButTree,
    /// Latches are held, so that it is not read. This was read ahead.
    Ahead(Option<&'a FromFile>),
}

impl<P: Pages> ReadSet<'_, P> {
    /// Shows that all of it is unchanged, leaf by leaf; while others change records, that it was when a leaf was looked at. Leaves are read ahead.
    ///
    /// Errors: `Conflict`; those of reads, and of reading old versions.
    pub fn check(&self) -> Result<()> {
        let Some(first) = self.reads.first() else { return Ok(()) };
        let (mut leaf, mut walk) = (first.tree.leaf_records(), LeafWalk::default());
        // The tree of the leaf that there is a copy of.
        let mut copied: Option<TreeId> = None;
        let mut fence = Vec::new();
        for read in self.reads {
            let id = read.tree.id();
            if copied != Some(id) || !leaf.covers(read.first_key()) {
                let target = Target::Key(read.first_key());
                read.tree.copy_first_records(target, &mut walk, &mut leaf)?;
                copied = Some(id);
            }
            loop {
                if !self.judge.is_as_it_was(read.tree, leaf.stamp()) {
                    self.judge.compare(leaf.page(), read, AskFile::Read)?;
                }
                if read.ends_in(&plain(leaf.page())) {
                    break;
                }
                fence.clear();
                leaf.append_upper_fence(&mut fence);
                let beyond = Beyond { fence: &fence, forward: true, bound: read.last_key() };
                read.tree.copy_next_records(beyond, &mut walk, &mut leaf)?;
            }
        }
        Ok(())
    }
}

impl<'c, P: Pages> Read<'c, P> {
    /// A key at or below all keys of the interval, to go down to.
    pub(super) fn first_key(&self) -> &'c [u8] {
        match self.lower {
            Bound::Included(key) | Bound::Excluded(key) => key,
            Bound::Unbounded => &[],
        }
    }

    /// A key at or above all keys of the interval; `None`: it has no end.
    pub(super) fn last_key(&self) -> Option<&'c [u8]> {
        match self.upper {
            Bound::Included(key) | Bound::Excluded(key) => Some(key),
            Bound::Unbounded => None,
        }
    }

    /// Whether it is a single key.
    pub(super) fn is_key(&self) -> bool {
        matches!((self.lower, self.upper), (Bound::Included(low), Bound::Included(high)) if low == high)
    }

    /// Whether the interval begins in a node that is not to the right of its beginning.
    pub(super) fn begins_in<B: PageBytes>(&self, node: &Node<B>) -> bool {
        node.is_within_upper(self.first_key())
    }

    /// Whether it ends in a node in which it begins, or goes on.
    pub(super) fn ends_in<B: PageBytes>(&self, node: &Node<B>) -> bool {
        match self.upper {
            Bound::Included(key) | Bound::Excluded(key) => node.is_within_upper(key),
            Bound::Unbounded => !node.has_upper_fence(),
        }
    }
}
