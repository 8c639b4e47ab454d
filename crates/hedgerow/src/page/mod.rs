//! Pages: the bytes that every page begins with, and what the tree needs of whatever holds pages.
//!
//! Rank 2. [`header`] is the common header; [`pool`] the trait that a buffer pool implements;
//! [`guard`] the three ways of holding a page (optimistic, shared, exclusive) over any pool; [`tally`] and [`contention`]
//! what a frame knows of the use of its leaf; [`merging`] what redistributions of leaves have done;
//! [`relief`] who is asked before a dirty page is written.

pub mod contention;
pub mod epoch;
mod frozen;
pub mod guard;
pub mod header;
pub mod merging;
pub mod pool;
pub mod relief;
pub mod tally;

pub use contention::{
    Contention, ContentionCounters, ContentionStats, MOST_SAMPLES, Period, Place,
};
pub use frozen::FrozenPages;
pub use guard::{ExclusivePage, OptimisticPage, PageMark, Restart, SharedPage};
pub use merging::{Merging, MergingStats};
pub use pool::{Access, EpochStay, FrameHead, FrameId, PagePool, PageSource, PoolSession};
pub use relief::Relief;
pub use tally::{Adaptation, AdaptationStats, ScanTally, Tally};
