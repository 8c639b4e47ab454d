//! Hedgerow: an embedded, ordered key-value store. One B-tree, engineered.
//!
//! The parts, in ranks; imports only point down:
//!
//! | rank | modules |
//! |---|---|
//! | 0 | the crate `hedgerow-sync`: latches, parking, optimistic reads, the seams |
//! | 1 | [`error`], [`types`], [`key`], [`checksum`], [`storage`] |
//! | 2 | [`page`], [`space`] |
//! | 3 | [`node`] and [`buffer`], which know nothing of each other |
//! | 5 | [`tree`] |
//! | 6 | [`store`] |
//!
//! Only what is re-exported at the top is meant for users; the modules are public for the tools, tests
//! and benchmarks of the workspace.

#[doc(hidden)]
pub mod buffer;
#[doc(hidden)]
pub mod checksum;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
pub mod key;
#[doc(hidden)]
pub mod node;
#[doc(hidden)]
pub mod page;
#[doc(hidden)]
pub mod space;
#[doc(hidden)]
pub mod storage;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod testing;
#[doc(hidden)]
pub mod tree;
#[doc(hidden)]
pub mod types;

pub use error::{Error, ErrorKind, Result};
pub use storage::IoEngine;
pub use store::{DEFAULT_PAGE_BYTES, SpaceReport, VerifyFinding, VerifyReport};
pub use tree::{LevelStats, Swap, TreeStats, Value};
pub use types::PageId;
