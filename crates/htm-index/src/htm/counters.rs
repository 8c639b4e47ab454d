//! What became of regions, counted per thread and site, outside of regions.
//!
//! A thread writes its own lines alone; whoever reads sums up what it finds. `Send + Sync`.

use super::{Abort, Site};
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::figure::Figure;
use hedgerow_sync::primitive::thread;
use std::ops::{Add, Sub};

/// Threads with lines of their own. Further ones share, and may lose counts.
const THREADS: usize = 192;
const WORDS: usize = Abort::CLASSES + 2;
const COMMITTED: usize = Abort::CLASSES;
const LOCKED: usize = Abort::CLASSES + 1;

#[derive(Default, Debug)]
#[repr(align(64))]
struct OfSite([Figure; WORDS]);

#[derive(Default, Debug)]
struct OfThread([OfSite; Site::MOST]);

/// Counts of a backend.
#[derive(Debug)]
pub struct Counters {
    threads: Box<[OfThread]>,
}

impl Default for Counters {
    fn default() -> Counters {
        let threads = if cfg!(loom) { 1 } else { THREADS };
        Counters { threads: (0..threads).map(|_| OfThread::default()).collect() }
    }
}

/// What became of regions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Regions that committed.
    pub commits: u64,
    /// Regions that took the lock.
    pub locked: u64,
    /// Aborts by conflicts.
    pub conflicts: u64,
    /// Aborts for want of capacity.
    pub overflows: u64,
    /// Aborts for no reason that has a name: interrupts, page faults.
    pub others: u64,
    /// Aborts that bodies asked for.
    pub explicit: u64,
    /// Aborts because the lock was held.
    pub lock_busy: u64,
}

impl Counts {
    /// All aborts.
    #[must_use]
    pub fn aborts(&self) -> u64 {
        self.conflicts + self.overflows + self.others + self.explicit + self.lock_busy
    }

    /// All regions.
    #[must_use]
    pub fn regions(&self) -> u64 {
        self.commits + self.locked
    }

    /// The share (0 to 1) of regions that took the lock; zero if there were none.
    #[must_use]
    pub fn share_locked(&self) -> f64 {
        if self.regions() == 0 { 0.0 } else { self.locked as f64 / self.regions() as f64 }
    }

    fn with(self, other: Counts, f: impl Fn(u64, u64) -> u64) -> Counts {
        Counts {
            commits: f(self.commits, other.commits),
            locked: f(self.locked, other.locked),
            conflicts: f(self.conflicts, other.conflicts),
            overflows: f(self.overflows, other.overflows),
            others: f(self.others, other.others),
            explicit: f(self.explicit, other.explicit),
            lock_busy: f(self.lock_busy, other.lock_busy),
        }
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        self.with(other, |a, b| a + b)
    }
}

impl Sub for Counts {
    type Output = Counts;

    /// What was counted since `other`.
    fn sub(self, other: Counts) -> Counts {
        self.with(other, u64::saturating_sub)
    }
}

impl Counters {
    #[inline]
    fn raise(&self, site: Site, word: usize) {
        let thread = &self.threads[thread::id() % self.threads.len()];
        let count = &thread.0[site.index()].0[word];
        // Nobody else writes it.
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    #[inline]
    pub(super) fn committed(&self, site: Site) {
        self.raise(site, COMMITTED);
    }

    #[inline]
    pub(super) fn locked(&self, site: Site) {
        self.raise(site, LOCKED);
    }

    #[inline]
    pub(super) fn aborted(&self, site: Site, abort: Abort) {
        self.raise(site, abort.class());
    }

    /// What all threads have counted at a site.
    #[must_use]
    pub fn of(&self, site: Site) -> Counts {
        let sum = |word: usize| -> u64 {
            let counts = self.threads.iter().map(|thread| &thread.0[site.index()].0[word]);
            counts.map(|count| count.load(Relaxed)).sum()
        };
        Counts {
            commits: sum(COMMITTED),
            locked: sum(LOCKED),
            conflicts: sum(Abort::Conflict.class()),
            overflows: sum(Abort::Capacity.class()),
            others: sum(Abort::Other.class()),
            explicit: sum(Abort::Explicit(0).class()),
            lock_busy: sum(Abort::Locked.class()),
        }
    }

    /// What all threads have counted at all sites.
    #[must_use]
    pub fn sum(&self) -> Counts {
        Site::all().map(|site| self.of(site)).fold(Counts::default(), Add::add)
    }
}
