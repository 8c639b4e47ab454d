//! How often a region is tried again before it takes the lock: data, and the loop that follows it.
//!
//! HPCA 2014, sections 3.3 and 4.3: retry even where the processor says that it is of no use; retry only once the lock is free,
//! or all threads follow the first one into the lock ("lemming effect"); after many failures do not elide for a time.
//! Plain data; `Send + Sync`.

use super::counters::Counters;
use super::{Abort, ElidableLock, Outcome, Site};

/// Elision that is disabled for a time, where it fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adaptive {
    /// So many regions in a row ended in the lock; at least 1.
    pub failures: u32,
    /// Then so many take it at once.
    pub skips: u32,
}

/// Tries of a region by what ended the last one. A try too many for one class takes the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetryPolicy {
    /// Retries after a conflict.
    pub conflict: u32,
    /// Retries after an overflow of the cache.
    pub capacity: u32,
    /// Retries after anything that has no name: interrupts, page faults.
    pub other: u32,
    /// Retries after the body aborted.
    pub explicit: u32,
    /// Retries after the lock was found held.
    pub locked: u32,
    /// Retries in all.
    pub all: u32,
    /// Wait until the lock is free before a retry.
    pub waits: bool,
    /// An abort after which the lock is held counts as one for that reason, whatever the processor says: who took the lock has
    /// ended the region.
    pub blames_lock: bool,
    /// When elision is disabled for a time; `None`: never.
    pub adaptive: Option<Adaptive>,
}

impl RetryPolicy {
    /// HPCA 2014, section 3.3 (TSX-R): some retries for any reason, each once the lock is free. The paper says "multiple times"; with four
    /// as many look-ups end in the lock as it says in section 4.3.
    pub const HPCA_R: RetryPolicy = RetryPolicy {
        conflict: 4,
        capacity: 4,
        other: 4,
        explicit: 4,
        locked: u32::MAX,
        all: u32::MAX,
        waits: true,
        blames_lock: true,
        adaptive: Some(Adaptive { failures: 1_000, skips: 100 }),
    };
    /// HPCA 2014, section 4.1 (TSX-H): the lock is taken after the first abort, but not one that is because of the lock. The processor
    /// takes it by the instruction that it elided. If it is held by then, the program waits until it is free, and comes to that
    /// instruction again.
    pub const HPCA_NO_RETRY: RetryPolicy = RetryPolicy {
        conflict: 0,
        capacity: 0,
        other: 0,
        explicit: 0,
        locked: u32::MAX,
        all: u32::MAX,
        waits: true,
        blames_lock: true,
        adaptive: None,
    };
    /// DBX, and Eunomia after it: many retries after conflicts; a lock that is held is waited for and does not count.
    pub const DBX: RetryPolicy = RetryPolicy {
        conflict: 128,
        capacity: 16,
        other: 3,
        explicit: 128,
        locked: u32::MAX,
        all: u32::MAX,
        waits: true,
        blames_lock: false,
        adaptive: None,
    };
    /// glibc's elided mutexes: three tries, then three acquisitions without.
    pub const GLIBC: RetryPolicy = RetryPolicy {
        conflict: 3,
        capacity: 0,
        other: 3,
        explicit: 3,
        locked: 0,
        all: 3,
        waits: false,
        blames_lock: false,
        adaptive: Some(Adaptive { failures: 1, skips: 3 }),
    };

    /// All presets, by name.
    pub const PRESETS: [(&str, RetryPolicy); 4] = [
        ("hpca_r", RetryPolicy::HPCA_R),
        ("hpca_no_retry", RetryPolicy::HPCA_NO_RETRY),
        ("dbx", RetryPolicy::DBX),
        ("glibc", RetryPolicy::GLIBC),
    ];

    /// The preset of a name, or `None`.
    #[must_use]
    pub fn preset(name: &str) -> Option<RetryPolicy> {
        RetryPolicy::PRESETS.into_iter().find(|(known, _)| *known == name).map(|(_, policy)| policy)
    }

    fn most(&self, abort: Abort) -> u32 {
        match abort {
            Abort::Conflict => self.conflict,
            Abort::Capacity => self.capacity,
            Abort::Other => self.other,
            Abort::Explicit(_) => self.explicit,
            Abort::Locked => self.locked,
        }
    }

    /// Whether the next region of this lock takes it at once. Counts it.
    fn skips(&self, lock: &ElidableLock) -> bool {
        if self.adaptive.is_none() {
            return false;
        }
        let skips = lock.elision.skips.get();
        if skips > 0 {
            // Another thread may count at the same time: one of them is lost, and nothing rests on it.
            lock.elision.skips.set(skips - 1);
        }
        skips > 0
    }

    /// A region ended in the lock though it was tried.
    fn failed(&self, lock: &ElidableLock) {
        let Some(Adaptive { failures, skips }) = self.adaptive else { return };
        let failed = lock.elision.failed.get() + 1;
        if failed < failures {
            lock.elision.failed.set(failed);
        } else {
            lock.elision.failed.set(0);
            lock.elision.skips.set(skips);
        }
    }
}

/// Attempts a region until one commits, or runs it under the lock.
#[inline(always)]
pub(super) fn run<S, R>(
    policy: &RetryPolicy,
    counters: &Counters,
    lock: &ElidableLock,
    site: Site,
    state: &mut S,
    mut attempt: impl FnMut(&mut S) -> Result<R, Abort>,
    mut under_lock: impl FnMut(&mut S) -> R,
) -> (R, Outcome) {
    let mut outcome = Outcome { aborts: 0, took_lock: false };
    if !policy.skips(lock) {
        let mut of_class = [0_u32; Abort::CLASSES];
        loop {
            let abort = match attempt(state) {
                Ok(result) => {
                    counters.committed(site);
                    // Failures in a row are what disables elision.
                    if policy.adaptive.is_some() && lock.elision.failed.get() != 0 {
                        lock.elision.failed.set(0);
                    }
                    return (result, outcome);
                }
                Err(_) if policy.blames_lock && lock.is_held() => Abort::Locked,
                Err(abort) => abort,
            };
            counters.aborted(site, abort);
            outcome.aborts += 1;
            let tries = &mut of_class[abort.class()];
            if *tries >= policy.most(abort) || outcome.aborts > policy.all {
                break;
            }
            *tries += 1;
            if policy.waits {
                lock.wait_until_free();
            }
        }
        policy.failed(lock);
    }
    outcome.took_lock = true;
    counters.locked(site);
    let _held = lock.lock();
    (under_lock(state), outcome)
}
