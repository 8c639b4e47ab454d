//! Pages: the bytes that every page begins with, and what the tree needs of whatever holds pages.
//!
//! Rank 2. [`header`] is the common header; [`pool`] the trait that a buffer pool implements;
//! [`guard`] the three ways of holding a page (optimistic, shared, exclusive) over any pool; [`tally`] what
//! a frame knows of the use of its leaf.

pub mod epoch;
pub mod guard;
pub mod header;
pub mod pool;
pub mod tally;

pub use guard::{ExclusivePage, OptimisticPage, PageMark, Restart, SharedPage};
pub use pool::{Access, EpochStay, FrameHead, FrameId, PagePool, PageSource, PoolSession};
pub use tally::{Adaptation, AdaptationValues, ScanTally, Tally};
