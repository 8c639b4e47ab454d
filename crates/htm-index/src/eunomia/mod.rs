//! The tree of "Eunomia: Scaling Concurrent Search Trees under Contention Using HTM" (PPoPP 2017), each step of which is a switch.
//!
//! A B+tree of 8-byte keys and values with 16 records in a leaf and 16 children in an inner node. Without any step it is the tree of DBX,
//! with which the paper compares: one region an operation. The steps ([`Steps`], figure 13):
//!
//! 1. *Split regions.* The upper region goes to the leaf and notes its sequence number; the lower region looks at that number, and does the
//!    rest. After a conflict in the leaf only the lower region is tried again. If the number has changed, the operation starts at
//!    the root.
//! 2. *Partitioned leaves* ([`Layout::Parts`]).
//! 3. *Lock bits* ([`ccm`]): between its regions an operation takes the lock of its key, as a reader if it is a get.
//! 4. *Mark bits*: a key without a mark is not there. A get ends, and a put does not look for it.
//! 5. *Adaptivity*: a leaf has a CCM only once regions in it abort, and bypasses it when they no longer do. In bypass the upper region
//!    goes on in the leaf, so that there is one region as in the tree of DBX.
//!
//! # What the paper leaves open
//! - The sequence number rises at splits, merges and frees, and when a node is taken.
//! - A split has a region of its own, from the root, under the split lock of the leaf. The lower region that finds no room ends
//!   and changes nothing.
//! - A put that loses its race starts at the root, and marks again: its mark may have gone when the leaf was split.
//! - A get checks the sequence number even where it finds no mark.
//! - An operation also starts at the root if its leaf has begun or ceased to use its CCM meanwhile. So among operations on one
//!   leaf either all have locks or none has; only so a put may rest on a missing mark.
//! - In bypass puts still mark, in their region, and removes still take the lock.
//! - Reserved records are there from a scan to the next split or merge. A split sorts in the thread's own memory. Reserved records of
//!   each leaf that was split, as in figure 7, would be far more than the space that section 5.7 reports.
//! - Leaves merge with a neighbour below the same parent, once a thread has removed [`session::REMOVES_PER_MERGE`] records. Inner nodes do not merge.
//!
//! Memory is that of its arenas, and none is freed before the tree is. Thread-safety: `Send + Sync`. Each thread has a [`Session`].

pub mod ccm;
mod heat;
mod leaf;
mod node;
mod scan;
mod session;
mod structure;
#[cfg(all(test, not(loom)))]
mod tests;

pub use leaf::Layout;
pub use node::{Ccm, FANOUT, Inner, Leaf, Reserved};
pub use session::Session;

use crate::arena::{Arena, ArenaError, Spares};
use crate::htm::label::{self, Label};
use crate::htm::{ElidableLock, Htm, TCell, Tx};
use ccm::Use;
use leaf::Leaves;
use node::{NONE, Root, pack_root};
use std::fmt;

/// Which steps a tree takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steps {
    /// Two regions an operation.
    pub split: bool,
    /// Leaves of four segments.
    pub parts: bool,
    /// Locks of keys, between both regions.
    pub locks: bool,
    /// Marks of keys.
    pub marks: bool,
    /// Locks and marks only in leaves that are contended.
    pub adaptive: bool,
}

/// Steps that there cannot be together, or are unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StepsError {
    /// Locks are taken between two regions.
    LocksWithoutSplit,
    /// Marks are changed under locks.
    MarksWithoutLocks,
    /// There is nothing to adapt.
    AdaptiveWithoutLocks,
    /// A name that no step has.
    Unknown(String),
}

impl fmt::Display for StepsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StepsError::LocksWithoutSplit => write!(f, "locks need split regions"),
            StepsError::MarksWithoutLocks => write!(f, "marks need locks"),
            StepsError::AdaptiveWithoutLocks => write!(f, "adaptivity needs locks"),
            StepsError::Unknown(name) => {
                let known = Steps::LADDER.map(|(name, _)| name).join(", ");
                write!(f, "`{name}` is none of the steps: {known}")
            }
        }
    }
}

impl std::error::Error for StepsError {}

impl Steps {
    /// One region an operation, and leaves in order: the tree of DBX.
    pub const MONOLITHIC: Steps =
        Steps { split: false, parts: false, locks: false, marks: false, adaptive: false };
    /// All steps.
    pub const COMPLETE: Steps =
        Steps { split: true, parts: true, locks: true, marks: true, adaptive: true };
    /// From none to all, by name, in the order of figure 13.
    pub const LADDER: [(&str, Steps); 6] = [
        ("monolithic", Steps::MONOLITHIC),
        ("split", Steps { split: true, ..Steps::MONOLITHIC }),
        ("parts", Steps { split: true, parts: true, ..Steps::MONOLITHIC }),
        ("locks", Steps { marks: false, adaptive: false, ..Steps::COMPLETE }),
        ("marks", Steps { adaptive: false, ..Steps::COMPLETE }),
        ("complete", Steps::COMPLETE),
    ];

    /// All steps up to the one of a name.
    ///
    /// # Errors
    /// No step has the name.
    pub fn named(name: &str) -> Result<Steps, StepsError> {
        let known = Steps::LADDER.into_iter().find(|(known, _)| *known == name);
        known.map(|(_, steps)| steps).ok_or_else(|| StepsError::Unknown(name.to_owned()))
    }

    /// Whether there can be such a tree.
    ///
    /// # Errors
    /// A step is there without one that it rests on.
    pub fn check(self) -> Result<(), StepsError> {
        match self {
            Steps { locks: true, split: false, .. } => Err(StepsError::LocksWithoutSplit),
            Steps { marks: true, locks: false, .. } => Err(StepsError::MarksWithoutLocks),
            Steps { adaptive: true, locks: false, .. } => Err(StepsError::AdaptiveWithoutLocks),
            _ => Ok(()),
        }
    }

    /// How records lie in leaves.
    #[must_use]
    pub fn layout(self) -> Layout {
        if self.parts { Layout::Parts } else { Layout::Sorted }
    }
}

/// Bytes that a tree's nodes take, those included that are spare or were freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bytes {
    /// Inner nodes.
    pub inner: u64,
    /// Leaves, without what is below.
    pub leaves: u64,
    /// CCMs.
    pub ccm: u64,
    /// Reserved records.
    pub reserved: u64,
}

/// A tree.
#[derive(Debug)]
pub struct Eunomia<H> {
    htm: H,
    lock: ElidableLock,
    root: Root,
    steps: Steps,
    inners: Arena<Inner>,
    leaves: Arena<Leaf>,
    ccms: Arena<Ccm>,
    reserved: Arena<Reserved>,
}

/// The place of a leaf, and what it was like when the upper region ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Way {
    leaf: u32,
    sequence: u64,
    usage: Use,
}

/// Why a tree cannot be made.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MakeError {
    /// The steps cannot be.
    Steps(StepsError),
    /// The arena has no room for the first leaf.
    Arena(ArenaError),
}

impl fmt::Display for MakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MakeError::Steps(error) => error.fmt(f),
            MakeError::Arena(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MakeError {}

impl<H: Htm> Eunomia<H> {
    /// An empty tree with room for so many leaves, spare ones of each thread included.
    ///
    /// # Errors
    /// The steps cannot be, or there is no room for a leaf.
    pub fn new(htm: H, steps: Steps, leaves: u32) -> Result<Eunomia<H>, MakeError> {
        steps.check().map_err(MakeError::Steps)?;
        // With half of its children each, and something for the spare nodes of threads.
        let inners = leaves / 4 + 64;
        let ccms = if steps.locks { leaves } else { 1 };
        let tree = Eunomia {
            htm,
            lock: ElidableLock::new(),
            root: Root(TCell::new(0)),
            steps,
            inners: Arena::new(inners, Spares::PerThread),
            leaves: Arena::new(leaves, Spares::PerThread),
            ccms: Arena::new(ccms, Spares::PerThread),
            reserved: Arena::new(if steps.parts { leaves } else { 1 }, Spares::PerThread),
        };
        tree.leaves.prepare(1).map_err(MakeError::Arena)?;
        if steps.locks {
            tree.ccms.prepare(1).map_err(MakeError::Arena)?;
        }
        tree.htm.atomic(&tree.lock, crate::htm::Site::STRUCTURE, |tx| {
            let number = tree.leaves.take(tx)?;
            tree.begin_leaf(tx, number, false)?;
            tx.store(&tree.leaves.node(number).head.next, NONE)?;
            tx.store(&tree.root.0, pack_root(0, number))
        });
        Ok(tree)
    }

    /// What the calling thread works with.
    pub fn session(&self) -> Session<'_, H> {
        Session::new(self)
    }

    /// The backend.
    pub fn htm(&self) -> &H {
        &self.htm
    }

    /// The steps that the tree takes.
    pub fn steps(&self) -> Steps {
        self.steps
    }

    /// Bytes of all nodes that were ever taken.
    pub fn bytes(&self) -> Bytes {
        let bytes = |nodes: u32, size: usize| u64::from(nodes) * size as u64;
        let words = match self.steps.layout() {
            Layout::Sorted => size_of::<Leaf>() - (node::WORDS - 2 * FANOUT) * size_of::<u64>(),
            Layout::Parts => size_of::<Leaf>(),
        };
        Bytes {
            inner: bytes(self.inners.ever_used(), size_of::<Inner>()),
            leaves: bytes(self.leaves.ever_used(), words),
            ccm: bytes(self.ccms.ever_used(), size_of::<Ccm>()),
            reserved: bytes(self.reserved.ever_used(), size_of::<Reserved>()),
        }
    }

    /// Says what the cache lines of all nodes hold. To be called once in a run of the simulator, before threads use a tree that
    /// was loaded outside of it.
    pub fn label(&self) {
        label::lines(&self.root, Label::Inner);
        for number in 0..self.inners.ever_used() {
            label::lines(self.inners.node(number), Label::Inner);
        }
        for number in 0..self.leaves.ever_used() {
            label_leaf(self.leaves.node(number));
        }
        for number in 0..self.ccms.ever_used() {
            label::lines(self.ccms.node(number), Label::Ccm);
        }
        for number in 0..self.reserved.ever_used() {
            label::lines(self.reserved.node(number), Label::Record);
        }
    }

    pub(crate) fn records(&self) -> Leaves<'_> {
        let layout = self.steps.layout();
        Leaves { reserved: &self.reserved, layout }
    }

    /// The CCM through which operations on a leaf go, if they do.
    fn hot_ccm(&self, usage: Use) -> Option<&Ccm> {
        usage.number().filter(|_| usage.is_hot()).map(|number| self.ccms.node(number))
    }

    /// Whether a region of the way may go on in the leaf: neither the leaf nor the way in which it uses its CCM has changed.
    #[inline(always)]
    fn is_current<'a>(&'a self, tx: &mut H::Tx<'a>, way: Way) -> Result<bool, H::E> {
        let head = &self.leaves.node(way.leaf).head;
        Ok(tx.load(&head.sequence)? == way.sequence && tx.load(&head.ccm)? == way.usage.0)
    }
}

fn label_leaf(leaf: &Leaf) {
    label::lines(&leaf.head, Label::LeafMetadata);
    label::lines(&leaf.words, Label::Record);
}
