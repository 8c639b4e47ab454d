//! Models of regions in software: every interleaving, and every outcome that the memory model allows, of a few threads, up to a
//! bound on preemptions.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p hedgerow-htm-index --release --test loom
//! ```

#![cfg(loom)]

use hedgerow_htm_index::htm::{ElidableLock, Htm, NOrec, RetryPolicy, Site, TCell, Tx};
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use loom::sync::Arc;
use loom::thread;

/// Regions are tried again for ever: under the lock there is nothing to look at.
const POLICY: RetryPolicy = RetryPolicy { conflict: u32::MAX, ..RetryPolicy::DBX };

struct Shared {
    htm: NOrec,
    lock: ElidableLock,
    cells: [TCell<u32>; 2],
}

fn check(preemptions: usize, model: impl Fn(Arc<Shared>) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || {
        let cells = [TCell::new(0), TCell::new(0)];
        model(Arc::new(Shared { htm: NOrec::new(POLICY), lock: ElidableLock::new(), cells }));
    });
}

impl Shared {
    fn both(&self) -> (u32, u32) {
        self.htm.atomic(&self.lock, Site::WHOLE, |tx| {
            Ok((tx.load(&self.cells[0])?, tx.load(&self.cells[1])?))
        })
    }

    fn add(&self, to: usize) -> u32 {
        self.htm.atomic(&self.lock, Site::WHOLE, |tx| {
            let old = tx.load(&self.cells[to])?;
            tx.store(&self.cells[to], old + 1)?;
            Ok(old)
        })
    }
}

#[test]
fn a_region_sees_another_one_whole_or_not_at_all() {
    check(3, |shared| {
        let other = Arc::clone(&shared);
        let writer = thread::spawn(move || {
            other.htm.atomic(&other.lock, Site::WHOLE, |tx| {
                tx.store(&other.cells[0], 7)?;
                tx.store(&other.cells[1], 7)
            });
        });
        let (a, b) = shared.both();
        assert_eq!(a, b);
        writer.join().unwrap();
        assert_eq!(shared.both(), (7, 7));
    });
}

#[test]
fn no_increment_is_lost() {
    check(3, |shared| {
        let other = Arc::clone(&shared);
        let adder = thread::spawn(move || other.add(0));
        let (mine, theirs) = (shared.add(0), adder.join().unwrap());
        assert_eq!(mine + theirs, 1);
        assert_eq!(shared.both(), (2, 0));
    });
}

#[test]
fn two_regions_that_read_what_the_other_writes_happen_in_an_order() {
    check(3, |shared| {
        let copy = |shared: &Shared, from: usize, to: usize| {
            shared.htm.atomic(&shared.lock, Site::WHOLE, |tx| {
                let seen = tx.load(&shared.cells[from])?;
                tx.store(&shared.cells[to], seen + 1)?;
                Ok(seen)
            })
        };
        let other = Arc::clone(&shared);
        let copier = thread::spawn(move || copy(&other, 1, 0));
        let (mine, theirs) = (copy(&shared, 0, 1), copier.join().unwrap());
        assert!((mine, theirs) == (0, 1) || (mine, theirs) == (1, 0), "{mine}, {theirs}");
    });
}

#[test]
fn a_bit_that_is_set_outside_of_a_region_is_not_lost() {
    check(3, |shared| {
        let other = Arc::clone(&shared);
        let setter = thread::spawn(move || other.cells[0].fetch_or(2, Relaxed));
        shared.htm.atomic(&shared.lock, Site::WHOLE, |tx| tx.fetch_or(&shared.cells[0], 1));
        setter.join().unwrap();
        assert_eq!(shared.both(), (3, 0));
    });
}
