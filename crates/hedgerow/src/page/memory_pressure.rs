//! Memory pressure: who is asked before the pool writes a dirty page to make room.
//!
//! This trait points the other way: the pool calls it, and the store implements it. A pool knows pages and no trees; whether a leaf can be
//! merged with its neighbours, so that fewer are written, a tree knows. So the pool offers the page before it evicts it.

use crate::types::PageId;

/// Merges leaves before they are written. `Send + Sync`.
pub trait MemoryPressure: Send + Sync {
    /// A dirty page is about to be written and evicted, and may be a leaf. It may be freed, or become clean or dirty, in this call.
    ///
    /// Called by the thread that makes room, for which all others may wait: it waits for nothing, and reads nothing from
    /// the disk. The caller has latched nothing, and is not inside of an epoch.
    fn offer(&self, page: PageId);
}
