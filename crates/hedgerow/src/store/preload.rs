//! Reading a whole file in the order of its bytes, where a replay is likely to need most of it; and how long a replay takes.
//!
//! Rank 6. A replay reads the leaves that the log's changes lie in. Are they few, they are read where they lie, many at a
//! time; are they many, and does all of the store fit into memory, then reading everything from the file's
//! beginning to its end is faster than reading half of it in any other order.
//!
//! One caller, before anybody else uses the store; [`StorePages`] is a value. Memory, while it reads: a MiB for the places of pages.

use super::Shared;
use crate::buffer::BufferPool;
use crate::error::{Error, ErrorKind, Result};
use crate::page::{Access, Pages, PoolSession};
use crate::types::PageId;
use hedgerow_sync::primitive::atomic::AtomicUsize;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::{Arc, thread};
use std::time::Duration;

/// What any opening takes that has something to replay.
const LEAST_SECONDS: f64 = 0.15;
/// What a replay gets through in a second of one thread. Rather less than measured, so that openings are rather faster
/// than asked.
const LOG_BYTES_PER_SECOND: f64 = 80e6;
/// Pages read where they lie.
const READ_PER_SECOND: f64 = 45e3;
/// Pages read one behind the other.
const STREAMED_PER_SECOND: f64 = 110e3;
/// Pages written by the checkpoint that ends it.
const WRITTEN_PER_SECOND: f64 = 140e3;
/// Part of the frames that a store has at most that is read whole.
const FRAMES_OF_8: u64 = 6;
/// With fewer it does not matter.
const LEAST_FRAMES: u64 = 1024;
/// Pages read together, as many as a session takes.
const BATCH: usize = 64;
/// Pages whose places are known at a time: so many are read in the order of the file.
const SORTED: usize = 64 << 10;

/// How large a store is.
#[derive(Clone, Copy, Debug)]
pub(super) struct StorePages {
    in_use: u64,
    /// Ids that were ever given out: each has a word in the page map.
    given: u64,
    frames: u64,
}

impl StorePages {
    /// As it is now.
    pub(super) fn of(pool: &BufferPool) -> StorePages {
        let ids = pool.ids().lock();
        let given = ids.next_id().map_or(u64::from(u32::MAX), |id| u64::from(id.0));
        let in_use = given.saturating_sub(ids.free_count());
        StorePages { in_use, given, frames: u64::from(pool.frames()) }
    }

    /// Pages that hold something.
    pub(super) fn in_use(self) -> u64 {
        self.in_use
    }

    fn fit(self) -> bool {
        self.in_use <= self.frames / 8 * FRAMES_OF_8
            && self.given <= 4 * self.in_use
            && self.frames >= LEAST_FRAMES
    }

    /// How long reading takes of so many pages, and whether all are read for that.
    fn read(self, touched: u64) -> (f64, bool) {
        let lying = touched as f64 / READ_PER_SECOND;
        let streamed = self.in_use as f64 / STREAMED_PER_SECOND;
        if self.fit() && streamed < lying { (streamed, true) } else { (lying, false) }
    }

    /// How long so much of a log takes to replay whose changes lie in so many pages, or in all if there are fewer.
    pub(super) fn replay(self, log_bytes: u64, touched: u64) -> Duration {
        let touched = touched.min(self.in_use);
        let log = log_bytes as f64 / LOG_BYTES_PER_SECOND;
        let written = touched as f64 / WRITTEN_PER_SECOND;
        Duration::from_secs_f64(LEAST_SECONDS + log + self.read(touched).0 + written)
    }

    /// In how many pages so many changes lie, if they lie anywhere.
    fn touched_by(self, changes: u64) -> u64 {
        let in_use = self.in_use.max(1) as f64;
        (in_use * (1.0 - (-(changes as f64) / in_use).exp())) as u64
    }
}

impl Shared {
    /// Reads all pages if that is faster than reading those that so many changes lie in. True: it was. What
    /// cannot be read, whoever needs it finds out.
    ///
    /// Errors: those of reading the map; `Poisoned`.
    pub(super) fn preload(&self, changes: u64, threads: usize) -> Result<bool> {
        let pages = StorePages::of(&self.pool);
        if !pages.read(pages.touched_by(changes)).1 {
            return Ok(false);
        }
        let end = self.pool.ids().lock().next_id();
        let mut there = Vec::new();
        let mut next = Some(PageId::CATALOGUE_ROOT);
        while let Some(id) = next.filter(|id| end.is_none_or(|end| *id < end)) {
            match self.pool.slot_of(id) {
                Ok(Some(slot)) => there.push((slot.offset_bytes(), id)),
                Ok(None) => {}
                // A part of the map that the replay may do without.
                Err(error) if matches!(error.kind(), ErrorKind::Corrupted { .. }) => {
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
            next = id.next();
            if there.len() == SORTED {
                self.read_sorted(std::mem::take(&mut there), threads)?;
            }
        }
        self.read_sorted(there, threads).map(|()| true)
    }

    /// Reads some pages in the order in which they lie in the file.
    fn read_sorted(&self, mut there: Vec<(u64, PageId)>, threads: usize) -> Result<()> {
        there.sort_unstable();
        let reading = Reading { pool: self.pool.clone(), there, next: AtomicUsize::new(0) };
        let reading = Arc::new(reading);
        // One that cannot be started is made up for by the others.
        let helpers: Vec<_> = (1..threads)
            .filter_map(|_| {
                let reading = reading.clone();
                thread::spawn_named("hedgerow-open", move || reading.run()).ok()
            })
            .collect();
        let mut outcome = reading.run();
        for helper in helpers {
            let ended = helper.join().unwrap_or_else(|_| {
                Err(Error::new(ErrorKind::Poisoned, "a thread that reads ahead has panicked"))
            });
            outcome = outcome.and(ended);
        }
        outcome
    }
}

/// Pages that are being read, by some threads.
struct Reading {
    pool: Arc<BufferPool>,
    /// In the order in which they lie in the file.
    there: Vec<(u64, PageId)>,
    /// The first that nobody has begun with.
    next: AtomicUsize,
}

impl Reading {
    fn run(&self) -> Result<()> {
        let mut ids = Vec::with_capacity(BATCH);
        loop {
            let first = self.next.fetch_add(BATCH, Relaxed).min(self.there.len());
            let batch = &self.there[first..self.there.len().min(first + BATCH)];
            if batch.is_empty() {
                return Ok(());
            }
            ids.clear();
            ids.extend(batch.iter().map(|(_, id)| *id));
            self.pool.session().prefetch(&ids, Access::Point)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_fits_is_read_whole_if_many_of_its_pages_are_needed() {
        let small = StorePages { in_use: 10_000, given: 10_000, frames: 20_000 };
        assert!(!small.read(small.touched_by(1_000)).1);
        assert!(small.read(small.touched_by(10_000)).1);
        let large = StorePages { in_use: 10_000, given: 10_000, frames: 12_000 };
        assert!(!large.read(large.touched_by(1_000_000)).1);
        let emptied = StorePages { in_use: 10_000, given: 1_000_000, frames: 20_000 };
        assert!(!emptied.read(emptied.touched_by(1_000_000)).1);
        let empty = StorePages { in_use: 0, given: 0, frames: 100 };
        assert!(!empty.read(empty.touched_by(5)).1);
        assert_eq!(empty.replay(0, 5), Duration::from_secs_f64(LEAST_SECONDS));
    }

    #[test]
    fn a_store_fits_up_to_three_quarters_of_the_frames_and_a_quarter_of_its_ids() {
        let fits = |in_use, given, frames| StorePages { in_use, given, frames }.fit();
        assert!(fits(1200, 4800, 1600) && !fits(1201, 4800, 1600) && !fits(1200, 4801, 1600));
        assert!(fits(768, 768, 1024) && !fits(760, 760, 1023));
    }

    #[test]
    fn times_are_those_of_what_is_read_replayed_and_written() {
        let pages = StorePages { in_use: 110_000, given: 110_000, frames: 200_000 };
        assert_eq!(pages.read(45_000), (1.0, false), "as fast as all of them in their order");
        assert_eq!(pages.read(45_001), (1.0, true));
        assert_eq!(pages.read(22_500), (0.5, false));
        let all = LEAST_SECONDS + 2.0 + 1.0 + 70_000.0 / WRITTEN_PER_SECOND;
        assert_eq!(pages.replay(160_000_000, 70_000), Duration::from_secs_f64(all));
    }

    #[test]
    fn more_log_and_more_pages_take_longer_until_all_are_needed() {
        let pages = StorePages { in_use: 100_000, given: 100_000, frames: 200_000 };
        let mut last = Duration::ZERO;
        for n in 1..100 {
            let now = pages.replay(n << 20, n * 1_000);
            assert!(now > last);
            last = now;
        }
        assert_eq!(pages.replay(0, 1 << 40), pages.replay(0, 100_000));
    }
}
