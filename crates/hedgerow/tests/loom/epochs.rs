//! Epochs: entering, raising, leaving.

use crate::check;
use hedgerow::internals::page::epoch::Epochs;
use hedgerow::internals::types::Epoch;
use hedgerow_sync::primitive::witness::Witness;
use loom::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a writer stamps. Nothing but the epochs orders its uses, and loom reports two that nothing orders.
#[derive(Default)]
struct Page {
    witness: Witness,
    stamp: AtomicU64,
}

impl Page {
    fn stamp(&self, epoch: Epoch) {
        self.witness.touch(0);
        self.stamp.store(epoch.0, Relaxed);
    }

    fn stamped(&self) -> Epoch {
        self.witness.touch(0);
        Epoch(self.stamp.load(Relaxed))
    }
}

/// Writers that enter, stamp pages of their own and leave, beside a checkpoint.
fn beside_a_checkpoint<const WRITERS: usize>(preemptions: usize) {
    check(preemptions, || {
        let epochs = Arc::new(Epochs::new(Epoch(1)));
        let pages: [_; WRITERS] = std::array::from_fn(|_| Arc::<[Page; 2]>::default());
        let writers = pages.clone().map(|pages| {
            let epochs = Arc::clone(&epochs);
            thread::spawn(move || {
                let stay = epochs.enter();
                pages[0].stamp(stay.epoch());
                pages[1].stamp(stay.epoch());
                drop(stay);
            })
        });
        let stopped = epochs.stop();
        // Nobody is inside: the pages are the checkpoint's to look at, and no change is there by half.
        for page in &pages {
            let [first, second] = [page[0].stamped(), page[1].stamped()];
            assert_eq!(first, second, "half a change is in the checkpoint");
            assert!(first <= stopped.ended(), "a change that came later is in the checkpoint");
        }
        drop(stopped);
        for writer in writers {
            writer.join().unwrap();
        }
        for page in &pages {
            assert!([Epoch(1), Epoch(2)].contains(&page[0].stamped()));
        }
    });
}

#[test]
fn a_checkpoint_sees_changes_whole_or_not_at_all() {
    beside_a_checkpoint::<1>(4);
}

#[test]
fn a_checkpoint_waits_for_all_who_are_inside() {
    beside_a_checkpoint::<2>(2);
}

/// Who comes again may be inside of the next epoch by then: whoever sees that has seen the end of the stay before.
#[test]
fn a_checkpoint_that_sees_a_later_stay_has_seen_the_one_before() {
    check(4, || {
        let epochs = Arc::new(Epochs::new(Epoch(1)));
        let page = Arc::new(Page::default());
        let writer = {
            let (epochs, page) = (Arc::clone(&epochs), Arc::clone(&page));
            thread::spawn(move || {
                let stay = epochs.enter();
                page.stamp(stay.epoch());
                drop(stay);
                drop(epochs.enter());
            })
        };
        let stopped = epochs.stop();
        assert!(page.stamped() <= stopped.ended());
        drop(stopped);
        writer.join().unwrap();
    });
}

/// There are slots for one thread in the beginning, which this one takes; the writer's is made while a checkpoint is taken.
#[test]
fn a_checkpoint_waits_for_a_thread_whose_slot_is_made_meanwhile() {
    check(3, || {
        let epochs = Arc::new(Epochs::new(Epoch(1)));
        let page = Arc::new(<[Page; 2]>::default());
        drop(epochs.enter());
        let writer = {
            let (epochs, page) = (Arc::clone(&epochs), Arc::clone(&page));
            thread::spawn(move || {
                let stay = epochs.enter();
                page[0].stamp(stay.epoch());
                page[1].stamp(stay.epoch());
                drop(stay);
            })
        };
        let stopped = epochs.stop();
        let [first, second] = [page[0].stamped(), page[1].stamped()];
        assert_eq!(first, second, "half a change is in the checkpoint");
        assert!(first <= stopped.ended(), "a change that came later is in the checkpoint");
        drop(stopped);
        writer.join().unwrap();
        assert!([Epoch(1), Epoch(2)].contains(&page[0].stamped()));
    });
}
