//! Nodes of the B+tree: at most 31 children of an inner node, and 30 records of a leaf.
//!
//! # Invariants
//! - An inner node with `count` keys has `count + 1` children; the keys of child `i` are at least key `i - 1` and below key `i`.
//! - The keys of a node rise strictly.
//! - Counts are read by [`Inner::many`] and [`Leaf::many`], which never give more than there is room for: without any control a count may
//!   be anything.
//!
//! `Send + Sync`.

use crate::arena::Node;
use crate::htm::label::{self, Label};
use crate::htm::{TCell, Tx};

/// Children of an inner node at most: the paper's branching factor.
pub(super) const FANOUT: usize = 31;
/// Keys of an inner node at most.
pub(super) const KEYS: usize = FANOUT - 1;
/// Records of a leaf at most.
pub(super) const RECORDS: usize = FANOUT - 1;

/// Six cache lines.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Inner {
    sequence: TCell<u64>,
    count: TCell<u32>,
    pub keys: [TCell<u64>; KEYS],
    pub children: [TCell<u32>; FANOUT],
}

/// Eight cache lines; the first one has what is not a record.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Leaf {
    sequence: TCell<u64>,
    count: TCell<u32>,
    pub next: TCell<u32>,
    pub keys: [TCell<u64>; RECORDS],
    pub values: [TCell<u64>; RECORDS],
}

macro_rules! counted {
    ($node:ident, $most:expr) => {
        impl Node for $node {
            fn sequence(&self) -> &TCell<u64> {
                &self.sequence
            }
        }

        impl $node {
            /// How many keys there are.
            #[inline(always)]
            pub fn many<'a, X: Tx<'a>>(&'a self, tx: &mut X) -> Result<usize, X::E> {
                Ok((tx.load(&self.count)? as usize).min($most))
            }

            /// Says how many keys there are.
            #[inline(always)]
            pub fn set_many<'a, X: Tx<'a>>(&'a self, tx: &mut X, many: usize) -> Result<(), X::E> {
                tx.store(&self.count, many as u32)
            }

            /// The first of `many` keys that is at least `key`, and whether it is that key.
            #[inline(always)]
            pub fn find<'a, X: Tx<'a>>(
                &'a self,
                tx: &mut X,
                many: usize,
                key: u64,
            ) -> Result<(usize, bool), X::E> {
                let (mut low, mut high) = (0, many);
                while low < high {
                    let middle = (low + high) / 2;
                    let found = tx.load(&self.keys[middle])?;
                    if found == key {
                        return Ok((middle, true));
                    }
                    if found < key { low = middle + 1 } else { high = middle }
                }
                Ok((low, false))
            }
        }
    };
}

counted!(Inner, KEYS);
counted!(Leaf, RECORDS);

impl Inner {
    /// Which child has a key.
    #[inline(always)]
    pub fn child_of<'a, X: Tx<'a>>(&'a self, tx: &mut X, key: u64) -> Result<usize, X::E> {
        let many = self.many(tx)?;
        let (at, is_equal) = self.find(tx, many, key)?;
        Ok(at + usize::from(is_equal))
    }

    pub fn label(&self) {
        label::lines(self, Label::Inner);
    }
}

impl Leaf {
    pub fn label(&self) {
        label::lines(self, Label::Record);
        label::lines(&self.sequence, Label::LeafMetadata);
    }
}

/// Moves `cells[from..many]` one to the right.
#[inline(always)]
pub(crate) fn open<'a, X: Tx<'a>, T: crate::htm::Word>(
    tx: &mut X,
    cells: &'a [TCell<T>],
    from: usize,
    many: usize,
) -> Result<(), X::E> {
    for at in (from..many).rev() {
        let value = tx.load(&cells[at])?;
        tx.store(&cells[at + 1], value)?;
    }
    Ok(())
}

/// Moves `cells[from + 1..many]` one to the left.
#[inline(always)]
pub(super) fn close<'a, X: Tx<'a>, T: crate::htm::Word>(
    tx: &mut X,
    cells: &'a [TCell<T>],
    from: usize,
    many: usize,
) -> Result<(), X::E> {
    for at in from + 1..many {
        let value = tx.load(&cells[at])?;
        tx.store(&cells[at - 1], value)?;
    }
    Ok(())
}

/// Copies `many` cells.
#[inline(always)]
pub(crate) fn copy<'a, X: Tx<'a>, T: crate::htm::Word>(
    tx: &mut X,
    from: &'a [TCell<T>],
    to: &'a [TCell<T>],
    many: usize,
) -> Result<(), X::E> {
    for (from, to) in from[..many].iter().zip(to) {
        let value = tx.load(from)?;
        tx.store(to, value)?;
    }
    Ok(())
}
