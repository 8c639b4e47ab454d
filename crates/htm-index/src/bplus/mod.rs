//! A B+tree whose one lock is elided: HPCA 2014, sections 2 and 4. Keys and values are `u64`, and an operation is one region.
//!
//! How threads keep out of each other's way is the backend's alone: regions that elide the lock, a spin lock ([`crate::htm::Lock`]), a lock that readers
//! share ([`crate::htm::RwSpin`]), or nothing ([`crate::htm::Uncontrolled`]).
//!
//! # Invariants
//! - All leaves are at the same depth; `root` has the number of the root and the height in one word.
//! - Leaves are linked from left to right.
//! - An insert looks whether there are spare nodes for all splits before it changes anything. So a full arena leaves the tree as it was.
//!
//! `Send + Sync`.

mod change;
mod load;
mod node;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;

use crate::arena::{Arena, ArenaError, Spares};
use crate::htm::label;
use crate::htm::{ElidableLock, Htm, Site, TCell, Tx};
pub(crate) use load::as_after_random_inserts;
use node::{Inner, Leaf};
pub(crate) use node::{copy, open as open_gap};
use std::fmt;
#[cfg(all(test, not(loom)))]
pub(crate) use tests::with_each_abort;

/// Levels at most: more than there are node numbers for.
const LEVELS: usize = 8;
/// The link of the last leaf.
const NONE: u32 = u32::MAX;

#[repr(align(64))]
struct Root(TCell<u64>);

/// A map of `u64` to `u64`.
pub struct BPlusTree<H> {
    htm: H,
    lock: ElidableLock,
    root: Root,
    inners: Arena<Inner>,
    leaves: Arena<Leaf>,
}

impl<H> fmt::Debug for BPlusTree<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BPlusTree").finish_non_exhaustive()
    }
}

/// What a region came to.
enum Step<T> {
    Done(T),
    /// So many nodes have to be spare first.
    Needs {
        inners: u32,
        leaves: u32,
    },
}

/// The inner nodes from the root to a leaf, and which child was taken.
struct Path {
    nodes: [(u32, u8); LEVELS],
    depth: usize,
}

impl<H: Htm> BPlusTree<H> {
    /// An empty tree, with memory for so many records if leaves are half full, and for the spare nodes of 192 threads.
    ///
    /// # Errors
    /// There are not as many node numbers.
    pub fn new(htm: H, records: u32) -> Result<BPlusTree<H>, ArenaError> {
        let leaves = records / (node::RECORDS as u32 / 2) + 64;
        BPlusTree::with_nodes(htm, leaves, leaves / (node::KEYS as u32 / 2) + 64)
    }

    /// An empty tree with memory for so many nodes.
    ///
    /// # Errors
    /// There is no leaf for the root.
    pub fn with_nodes(htm: H, leaves: u32, inners: u32) -> Result<BPlusTree<H>, ArenaError> {
        let tree = BPlusTree {
            htm,
            lock: ElidableLock::new(),
            root: Root(TCell::new(0)),
            inners: Arena::new(inners, Spares::PerThread),
            leaves: Arena::new(leaves, Spares::PerThread),
        };
        tree.leaves.prepare(1)?;
        tree.htm.atomic(&tree.lock, Site::OTHER, |tx| {
            let leaf = tree.leaves.take(tx)?;
            tx.store(&tree.leaves.node(leaf).next, NONE)?;
            tx.store(&tree.root.0, root_word(leaf, 1))
        });
        Ok(tree)
    }

    /// The backend.
    pub fn htm(&self) -> &H {
        &self.htm
    }

    /// The lock that regions elide.
    pub fn lock(&self) -> &ElidableLock {
        &self.lock
    }

    /// Says what all cache lines hold, for a simulated run that begins.
    pub fn label(&self) {
        label::lines(&self.root, label::Label::Inner);
        (0..self.inners.ever_used()).for_each(|number| self.inners.node(number).label());
        (0..self.leaves.ever_used()).for_each(|number| self.leaves.node(number).label());
    }

    /// Levels of the tree, leaves included.
    pub fn height(&self) -> u32 {
        (self.root.0.get() >> 32) as u32
    }

    /// The value of a key.
    pub fn get(&self, key: u64) -> Option<u64> {
        label::operation(key);
        self.htm.read(&self.lock, Site::WHOLE, |tx| {
            let leaf = self.leaf_of(tx, key, None)?;
            let many = leaf.many(tx)?;
            let (at, is_there) = leaf.find(tx, many, key)?;
            if is_there { tx.load(&leaf.values[at]).map(Some) } else { Ok(None) }
        })
    }

    /// Fills `records` with those from `from` on, in the order of their keys, as they all were at one moment. How many there were.
    pub fn scan(&self, from: u64, records: &mut [(u64, u64)]) -> usize {
        label::operation(from);
        self.htm.read(&self.lock, Site::SCAN, |tx| {
            let mut leaf = self.leaf_of(tx, from, None)?;
            let mut many = leaf.many(tx)?;
            let (mut at, _) = leaf.find(tx, many, from)?;
            let mut filled = 0;
            while filled < records.len() {
                if at < many {
                    records[filled] = (tx.load(&leaf.keys[at])?, tx.load(&leaf.values[at])?);
                    (filled, at) = (filled + 1, at + 1);
                    continue;
                }
                let next = tx.load(&leaf.next)?;
                if next == NONE {
                    break;
                }
                leaf = self.leaves.node(next);
                (many, at) = (leaf.many(tx)?, 0);
            }
            Ok(filled)
        })
    }

    /// Adds a record if its key is not there. The value that is there instead.
    ///
    /// # Errors
    /// There are no nodes left; the tree is as it was.
    pub fn insert(&self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
        self.put(key, value, false)
    }

    /// Adds a record, or sets its value. The value before.
    ///
    /// # Errors
    /// There are no nodes left; the tree is as it was.
    pub fn upsert(&self, key: u64, value: u64) -> Result<Option<u64>, ArenaError> {
        self.put(key, value, true)
    }

    fn put(&self, key: u64, value: u64, overwrites: bool) -> Result<Option<u64>, ArenaError> {
        label::operation(key);
        loop {
            let step = self
                .htm
                .atomic(&self.lock, Site::WHOLE, |tx| self.put_in(tx, key, value, overwrites));
            match step {
                Step::Done(old) => return Ok(old),
                Step::Needs { inners, leaves } => {
                    self.inners.prepare(inners)?;
                    self.leaves.prepare(leaves)?;
                }
            }
        }
    }

    /// Removes a record. Its value.
    pub fn remove(&self, key: u64) -> Option<u64> {
        label::operation(key);
        let mut merges = true;
        loop {
            let remove = |tx: &mut _| self.remove_in(tx, key, merges);
            match self.htm.atomic(&self.lock, Site::WHOLE, remove) {
                Step::Done(old) => return old,
                // A thread that nodes have no room for merges nothing.
                Step::Needs { .. } => {
                    merges = self.inners.make_room().is_ok() && self.leaves.make_room().is_ok();
                }
            }
        }
    }

    /// The leaf of a key, and the way to it.
    #[inline]
    fn leaf_of<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        key: u64,
        mut path: Option<&mut Path>,
    ) -> Result<&'a Leaf, X::E> {
        let number = self.descend(tx, key, &mut path)?;
        Ok(self.leaves.node(number))
    }

    #[inline]
    fn descend<'a, X: Tx<'a>>(
        &'a self,
        tx: &mut X,
        key: u64,
        path: &mut Option<&mut Path>,
    ) -> Result<u32, X::E> {
        let root = tx.load(&self.root.0)?;
        let (mut number, height) = (root as u32, (root >> 32) as usize);
        for _ in 1..height {
            let inner = self.inners.node(number);
            let at = inner.child_of(tx, key)?;
            if let Some(path) = path {
                path.nodes[path.depth] = (number, at as u8);
                path.depth += 1;
            }
            number = tx.load(&inner.children[at])?;
        }
        Ok(number)
    }
}

fn root_word(number: u32, height: usize) -> u64 {
    u64::from(number) | (height as u64) << 32
}
