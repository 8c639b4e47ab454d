//! Making a tree: one empty leaf, which is its root for good.
//!
//! Thread-safety: the page is the caller's alone until [`Tree::create`] returns.

use super::Tree;
use crate::error::{Error, ErrorKind, Result};
use crate::node::{LeafLayout, LeafMut, LeafPolicy, rung};
use crate::page::{EpochStay, PagePool, PoolSession};
use crate::types::TreeId;
use hedgerow_sync::primitive::Arc;

impl<P: PagePool> Tree<P> {
    /// Makes an empty tree with a fresh page as its root.
    ///
    /// Errors: `MemoryLimit` or `DiskFull` if there is no page to be had; what [`Journal::enter`](crate::page::Journal::enter)
    /// refuses. Then nothing was made.
    pub fn create(pool: Arc<P>, id: TreeId) -> Result<Self> {
        Tree::create_with(pool, id, LeafPolicy::default())
    }

    /// [`Tree::create`] with a policy for the layouts of leaves; see [`Tree::with_policy`].
    pub fn create_with(pool: Arc<P>, id: TreeId, policy: LeafPolicy) -> Result<Self> {
        let root = {
            let mut session = pool.session();
            session.reserve(1)?;
            let stay = pool.enter()?;
            let mut page = session.take(id, stay.epoch()).ok_or_else(no_page)?;
            let bytes = page.write(stay.epoch());
            let layout = if rung::HINTS { policy.empty() } else { LeafLayout::Comparison };
            LeafMut::format(bytes, layout, None, None);
            page.id()
        };
        Ok(Tree::open(pool, id, root).with_policy(policy))
    }
}

/// A pool that has reserved a page and does not hand it out breaks its contract.
#[cold]
pub(super) fn no_page() -> Error {
    let what =
        "no memory was left for a new page, though some was set aside; try again, and report this";
    Error::new(ErrorKind::MemoryLimit, what)
}
