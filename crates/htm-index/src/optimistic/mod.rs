//! What the Eunomia tree is compared with: optimistic trees on the same arena, of the same fanout.
//!
//! - [`LockCoupling`]: optimistic lock coupling with `hedgerow-sync`'s hybrid latches.
//! - [`MasstreeStandIn`]: a stand-in for Masstree. It has of Masstree that the version of each node is looked at before and after the
//!   node, and that of the parent again once the child's is known (section 4.6 there). A writer locks its leaf before it looks for its
//!   key, also if it comes to change nothing; readers go on meanwhile, and need not read again when a value was replaced. It has no
//!   trie, no permutation (so an insert sends readers of its leaf back) and no prefetching, and its keys have eight bytes, which Masstree
//!   needs one layer for.
//! - [`HtmMasstreeStandIn`]: the same in one region an operation, as the paper's HTM-Masstree. Its versions are read and written there,
//!   its locks are elided.
//!
//! Nodes that are full are split on the way down, and leaves are not merged.
//!
//! # Invariants
//! - Who changes a node holds its latch, and that of its parent if the node is split.
//! - A key and a child that a reader has found count only if the node's stamp still holds, and the child's stamp was taken before that look.
//! - Numbers of nodes are safe to follow whatever a reader has read: they are bounded before use, by the arena.
//!
//! Thread-safety: `Send + Sync`.

mod access;
mod tree;

pub use access::VersionWord;
pub use tree::{
    HtmMasstreeStandIn, LockCoupling, LockCouplingSession, MasstreeSession, MasstreeStandIn,
};

#[cfg(all(test, not(loom)))]
mod tests;
