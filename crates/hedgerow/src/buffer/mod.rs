//! The buffer pool: frames, the page table, faults, eviction and write-back.
//!
//! Rank 3: it knows no node layout. [`BufferPool`] implements [`crate::page::PagePool`], which is all
//! that the tree sees; the store above drives [`BufferPool::flush`] at a checkpoint.

mod admission;
mod ahead_queue;
mod budget;
mod commit_watch;
mod counters;
mod entry;
mod evict;
mod evictor;
mod failures;
mod fault_stream;
mod frame;
mod free_list;
mod frozen_versions;
mod hand_over;
mod large;
mod lending;
mod lent;
mod memory_pressure;
mod old_versions;
mod order;
mod page_pool;
#[cfg(target_os = "linux")]
#[cfg(hedgerow_internals)]
mod paging;
mod pinned;
mod pinned_pages;
mod pool;
mod read_ahead;
mod resident;
mod retire;
mod session;
mod slabs;
mod table;
#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
mod used;
mod versions_writer;
mod write_back;
mod zeroed;

pub use admission::{Admission, Ahead, FRAMES_EACH};
pub use budget::{
    Budget, LARGE_VALUES_BYTES, smallest_limit_bytes, smallest_limit_without_log_bytes,
};
pub use counters::{Counters, PoolStats};
pub use large::PieceName;
pub use lent::Lent;
pub use old_versions::PoolVersions;
#[cfg(target_os = "linux")]
#[cfg(hedgerow_internals)]
pub use paging::PageMemory;
pub use pinned::PinnedCheckpoint;
pub use pinned_pages::PinnedPages;
pub use pool::{BufferPool, PoolOptions};
pub use session::Session;
pub use versions_writer::VersionsWriter;
