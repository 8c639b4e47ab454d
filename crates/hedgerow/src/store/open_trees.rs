//! Leaves that are merged before they are written: the open keyspaces, as the pool offers them its pages.
//!
//! Rank 6. Invariant: each tree is one of the store's, under its id. A keyspace is forgotten when its pages are freed, or when one of
//! them is offered after its drop. `Send + Sync`; the lock is held for a look at the map alone.

use super::PoolTree;
use crate::buffer::BufferPool;
use crate::page::header;
use crate::page::{MemoryPressure, OptimisticPage};
use crate::types::{PageId, TreeId};
use hedgerow_sync::optimistic::PageBytes;
use hedgerow_sync::primitive::{Arc, Mutex, Weak};
use std::collections::BTreeMap;

/// The trees of keyspaces that somebody has opened.
pub(super) struct OpenTrees {
    pool: Weak<BufferPool>,
    trees: Mutex<BTreeMap<TreeId, Arc<PoolTree>>>,
}

impl OpenTrees {
    pub(super) fn new(pool: &Arc<BufferPool>) -> OpenTrees {
        OpenTrees { pool: Arc::downgrade(pool), trees: Mutex::new(BTreeMap::new()) }
    }

    /// Notes that somebody has opened a tree.
    pub(super) fn note(&self, tree: &PoolTree) {
        self.trees.lock().entry(tree.id()).or_insert_with(|| Arc::new(tree.clone()));
    }

    /// Whether a tree is noted. One that is not may be there nevertheless.
    pub(super) fn has(&self, tree: TreeId) -> bool {
        self.trees.lock().contains_key(&tree)
    }

    /// Forgets a tree, of which nobody opens another handle.
    pub(super) fn forget(&self, tree: TreeId) {
        self.trees.lock().remove(&tree);
    }

    /// The tree that a page says it belongs to, if that is open.
    fn tree_of(&self, page: PageId) -> Option<Arc<PoolTree>> {
        let pool = self.pool.upgrade()?;
        let page = OptimisticPage::open(&*pool, page, None).ok()?;
        let tree = TreeId(page.bytes().field_u32::<{ header::TREE_ID }>());
        page.validate().ok()?;
        self.trees.lock().get(&tree).cloned()
    }
}

impl MemoryPressure for OpenTrees {
    fn offer(&self, page: PageId) {
        let Some(tree) = self.tree_of(page) else { return };
        let pool = tree.pool();
        let enter = || Ok(pool.try_enter_to_free());
        if tree.merge_before_write(page, |frame| pool.is_dirty(frame), enter).is_err() {
            self.trees.lock().remove(&tree.id());
        }
    }
}
