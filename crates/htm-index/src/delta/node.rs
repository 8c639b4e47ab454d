//! Nodes of the Delta Storage Index: they hold 32-bit numbers of dictionary entries, in the order of the values of these.
//!
//! With a branching factor of 31 an inner node has six cache lines and a leaf three, as HPCA 2014 counts them (section 5.1.1).
//! `Send + Sync`.

use crate::arena::Node;
use crate::htm::label::{self, Label};
use crate::htm::{TCell, Tx};

/// Children of an inner node at most.
pub(super) const FANOUT: usize = 31;
/// Numbers of a node at most.
pub(super) const IDS: usize = FANOUT - 1;

/// Six cache lines.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Inner {
    sequence: TCell<u64>,
    count: TCell<u32>,
    _unused: TCell<u32>,
    pub ids: [TCell<u32>; IDS],
    /// As wide as the pointers of the paper.
    pub children: [TCell<u64>; FANOUT],
}

/// Three cache lines.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct Leaf {
    sequence: TCell<u64>,
    count: TCell<u32>,
    pub next: TCell<u32>,
    pub ids: [TCell<u32>; IDS],
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Inner>() == 6 * 64 && size_of::<Leaf>() == 3 * 64);

macro_rules! counted {
    ($node:ident) => {
        impl Node for $node {
            fn sequence(&self) -> &TCell<u64> {
                &self.sequence
            }
        }

        impl $node {
            /// How many numbers there are; never more than there is room for.
            #[inline(always)]
            pub fn many<'a, X: Tx<'a>>(&'a self, tx: &mut X) -> Result<usize, X::E> {
                Ok((tx.load(&self.count)? as usize).min(IDS))
            }

            /// Says how many numbers there are.
            #[inline(always)]
            pub fn set_many<'a, X: Tx<'a>>(&'a self, tx: &mut X, many: usize) -> Result<(), X::E> {
                tx.store(&self.count, many as u32)
            }
        }
    };
}

counted!(Inner);
counted!(Leaf);

impl Inner {
    pub fn label(&self) {
        label::lines(self, Label::Inner);
    }
}

impl Leaf {
    pub fn label(&self) {
        label::lines(self, Label::Record);
    }
}
