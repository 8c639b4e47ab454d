//! Pages: the bytes that every page begins with, and what the tree needs of whatever holds pages.
//!
//! Rank 2. [`header`] is the common header. A page pool is four traits, each in its file:
//!
//! | trait | what | who asks for it alone |
//! |---|---|---|
//! | [`Frames`] | where a page is in memory: translation, latch, bytes | [`guard`], the three ways of holding a page |
//! | [`Pages`] | faults, fresh pages, counts of use | what reads a tree |
//! | [`Journal`] | epochs, the log, old versions | |
//! | [`Values`] | what a value stands for | |
//!
//! [`PagePool`] is all of them: what changes a tree. [`MemoryPressure`] points the other way: the pool calls it before it writes a page
//! to make room. [`tally`] and [`contention`] are what a frame knows of the use of its leaf; [`merging`] what redistributions of
//! leaves have done; [`epoch`] the epochs that a journal enters.

pub mod contention;
pub mod epoch;
mod frames;
mod frozen;
pub mod guard;
pub mod header;
mod journal;
mod memory_pressure;
pub mod merging;
mod pages;
mod pool;
mod session;
pub mod tally;
mod values;

pub use contention::{
    Contention, ContentionCounters, ContentionStats, MOST_SAMPLES, Period, Place,
};
pub use frames::{FrameHead, FrameId, Frames};
pub use frozen::FrozenPages;
pub use guard::{ExclusivePage, OptimisticPage, PageMark, Restart, SharedPage};
pub use journal::{EpochStay, Journal};
pub use memory_pressure::MemoryPressure;
pub use merging::{Merging, MergingStats};
pub use pages::Pages;
pub use pool::PagePool;
pub use session::{Access, PageSource, PoolSession};
pub use tally::{Adaptation, AdaptationStats, ScanTally, Tally};
pub use values::Values;
