//! vmcache: the pool in which a page's id is its address, as a second implementation of the tree's trait.
//!
//! After "Virtual-Memory Assisted Buffer Management" (Leis et al., SIGMOD 2023), which "B-Trees Are Back"
//! puts its tree on: one reservation of address space as large as all data, a word of state and latch for
//! each page, a fault that reads the page to its address, a clock that gives a second chance, eviction in
//! batches by whoever needs room, dirty pages written in place, memory given back by `madvise`. The
//! kernel module of the paper (exmap) is not there; `madvise` is what a program has that is installed
//! like others.
//!
//! It has what experiments with the read path and with eviction need, and no more: no checkpoint, no
//! checksum, nothing survives the process. The engine's own translation is `hedgerow::internals::buffer`; both run
//! under the very same tree, so that a difference between them is one of translation and eviction.
//!
//! | file | what |
//! |---|---|
//! | `state` | latch and flags of each page |
//! | `pool` | the pool: memory, limits |
//! | `page_pool` | what the tree sees |
//! | `session` | faults, prefetches, fresh pages |
//! | `evict` | the clock, write-back, giving memory back |
//! | `pins` | what running operations still need |

mod evict;
mod page_pool;
mod pins;
mod pool;
mod session;
mod state;

pub use pool::{Counts, Metadata, VmcacheOptions, VmcachePool};
pub use session::VmcacheSession;
