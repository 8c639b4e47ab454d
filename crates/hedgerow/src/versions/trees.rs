//! What has become of whole trees since snapshots began, of which no leaf and no version tells: that all records were loaded, or that
//! the tree was dropped.
//!
//! Invariant: whatever a snapshot may be below is there. Who begins a snapshot later than a note has a moment that is no earlier. `Send +
//! Sync`; the lock is taken alone, and by readers only if there is anything.

use crate::types::{Lsn, TreeId};
use hedgerow_sync::primitive::Mutex;
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering::*, fence};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Trees to which the same has happened, and when.
pub(super) struct Since {
    trees: Mutex<BTreeSet<(TreeId, Lsn)>>,
    is_any: AtomicBool,
}

impl Since {
    pub(super) fn new() -> Since {
        Since { trees: Mutex::new(BTreeSet::new()), is_any: AtomicBool::new(false) }
    }

    /// Notes that it has happened to a tree with this LSN. `oldest` tells the oldest moment of a snapshot now; what all see, or none, is
    /// nobody's concern.
    pub(super) fn note(&self, tree: TreeId, lsn: Lsn, oldest: impl FnOnce() -> Option<Lsn>) {
        // Between the step of the order and the look at the slots, as whoever begins a snapshot has one between slot and order.
        fence(SeqCst);
        let mut trees = self.trees.lock();
        match oldest() {
            Some(oldest) => {
                trees.retain(|(_, at)| *at > oldest);
                trees.insert((tree, lsn));
            }
            None => trees.clear(),
        }
        self.is_any.store(!trees.is_empty(), Release);
    }

    /// When it has happened to a tree for the first time behind a moment: a tree that was emptied may be loaded again.
    #[inline]
    pub(super) fn after(&self, tree: TreeId, moment: Lsn) -> Option<Lsn> {
        // Every read of a snapshot asks this twice.
        if self.is_any.load(Acquire) { self.find_after(tree, moment) } else { None }
    }

    #[cold]
    fn find_after(&self, tree: TreeId, moment: Lsn) -> Option<Lsn> {
        let trees = self.trees.lock();
        let first = trees.range((Excluded((tree, moment)), Unbounded)).next();
        first.filter(|(of, _)| *of == tree).map(|(_, lsn)| *lsn)
    }
}
