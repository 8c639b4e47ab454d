//! What has become of whole trees since snapshots began, of which no leaf and no version tells: that all records were loaded, or that
//! the tree was dropped.
//!
//! Invariant: whatever a snapshot may be below is there. Who begins a snapshot later than a note has a moment that is no earlier. `Send +
//! Sync`; the lock is taken alone, and by readers only if the last note is behind their moment.

use crate::types::{Lsn, TreeId};
use hedgerow_sync::primitive::Mutex;
use hedgerow_sync::primitive::atomic::{AtomicU64, Ordering::*, fence};
use std::collections::BTreeSet;
use std::ops::Bound::{Excluded, Unbounded};

/// Trees to which the same has happened, and when.
pub(super) struct Since {
    trees: Mutex<BTreeSet<(TreeId, Lsn)>>,
    /// The latest LSN that was noted.
    last: AtomicU64,
}

impl Since {
    pub(super) fn new() -> Since {
        Since { trees: Mutex::new(BTreeSet::new()), last: AtomicU64::new(0) }
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
        // Never lower: whose moment it is behind has nothing to look for, whatever others have.
        self.last.fetch_max(lsn.0, Release);
    }

    /// When it has happened to a tree for the first time behind a moment: a tree that was emptied may be loaded again.
    #[inline]
    pub(super) fn after(&self, tree: TreeId, moment: Lsn) -> Option<Lsn> {
        // Every read of a snapshot asks this twice.
        if self.last.load(Acquire) > moment.0 { self.find_after(tree, moment) } else { None }
    }

    #[cold]
    fn find_after(&self, tree: TreeId, moment: Lsn) -> Option<Lsn> {
        let trees = self.trees.lock();
        let first = trees.range((Excluded((tree, moment)), Unbounded)).next();
        first.filter(|(of, _)| *of == tree).map(|(_, lsn)| *lsn)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use hedgerow_sync::primitive::{Arc, thread};
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// One load beside an open snapshot put the lock into every read of all later ones.
    #[test]
    fn who_began_behind_all_notes_takes_no_lock() {
        let (one, other) = (TreeId(7), TreeId(8));
        let since = Arc::new(Since::new());
        since.note(one, Lsn(20), || Some(Lsn(10)));
        since.note(other, Lsn(30), || Some(Lsn(10)));
        let trees = since.trees.lock();
        let (tells, told) = channel();
        let reader = {
            let since = since.clone();
            let read = move || tells.send([one, other].map(|tree| since.after(tree, Lsn(30))));
            thread::spawn_named("reads", read).unwrap()
        };
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok([None; 2]));
        drop(trees);
        reader.join().unwrap().unwrap();
        for (moment, expected) in [(10, [Some(20), Some(30)]), (20, [None, Some(30)])] {
            let found = [one, other].map(|tree| since.after(tree, Lsn(moment)));
            assert_eq!(found, expected.map(|lsn| lsn.map(Lsn)));
        }
    }
}
