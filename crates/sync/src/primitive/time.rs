//! Time: a monotonic clock; under a model a logical one.
//!
//! The logical clock advances by a microsecond each time it is read, and by what is slept, so that
//! loops which wait for a deadline end, and a replayed schedule sees the same times. In a run of the simulator it is the
//! clock of the calling thread.

#![allow(clippy::disallowed_methods, reason = "this is the seam")]

use std::ops::Add;
use std::time::Duration;

/// The system's clock as users know it: for interfaces, and nothing else.
pub use std::time::Instant;

#[cfg(not(any(loom, shuttle, hedgerow_sim)))]
type Reading = std::time::Instant;
#[cfg(any(loom, shuttle, hedgerow_sim))]
type Reading = Duration;

/// A moment of a clock that never goes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Moment(Reading);

impl Moment {
    /// This moment.
    #[inline]
    #[must_use]
    pub fn now() -> Moment {
        #[cfg(not(any(loom, shuttle, hedgerow_sim)))]
        return Moment(std::time::Instant::now());
        #[cfg(hedgerow_sim)]
        return Moment(hedgerow_sim::now().unwrap_or_else(outside_of_a_run));
        #[cfg(any(loom, shuttle))]
        return Moment(logical::read());
    }

    /// The moment of an instant of the system's clock. Where time is another one: as far from now as the instant is.
    #[must_use]
    pub fn of(instant: Instant) -> Moment {
        #[cfg(not(any(loom, shuttle, hedgerow_sim)))]
        return Moment(instant);
        #[cfg(any(loom, shuttle, hedgerow_sim))]
        return Moment::now() + instant.saturating_duration_since(Instant::now());
    }

    /// Time passed since this moment.
    #[inline]
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Moment::now().since(self)
    }

    /// Time from `earlier` to this moment; zero if that is not earlier.
    #[inline]
    #[must_use]
    pub fn since(self, earlier: Moment) -> Duration {
        #[cfg(not(any(loom, shuttle, hedgerow_sim)))]
        return self.0.saturating_duration_since(earlier.0);
        #[cfg(any(loom, shuttle, hedgerow_sim))]
        return self.0.saturating_sub(earlier.0);
    }

    /// The moment `duration` later, or `None` beyond the end of the clock.
    #[inline]
    pub fn checked_add(self, duration: Duration) -> Option<Moment> {
        self.0.checked_add(duration).map(Moment)
    }
}

/// This moment, for users, who know no other clock.
#[must_use]
pub fn instant() -> Instant {
    Instant::now()
}

impl Add<Duration> for Moment {
    type Output = Moment;

    /// The moment `duration` later. Beyond the end of the clock, some centuries off, it stays.
    #[inline]
    fn add(self, duration: Duration) -> Moment {
        self.checked_add(duration).unwrap_or(self)
    }
}

/// Time since this process first asked.
#[cfg(hedgerow_sim)]
fn outside_of_a_run() -> Duration {
    static FIRST: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    FIRST.get_or_init(std::time::Instant::now).elapsed()
}

#[cfg(any(loom, shuttle))]
mod logical {
    #[cfg(loom)]
    use loom::lazy_static;
    #[cfg(shuttle)]
    use shuttle::lazy_static;

    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    lazy_static! {
        // Nanoseconds. A plain atomic: the clock is no part of any model.
        static ref CLOCK: AtomicU64 = AtomicU64::new(0);
    }

    pub fn read() -> Duration {
        Duration::from_nanos(CLOCK.fetch_add(1_000, Ordering::Relaxed))
    }

    pub fn advance(duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX / 2);
        CLOCK.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// Moves the logical clock.
#[cfg(any(loom, shuttle))]
pub(super) fn advance(duration: Duration) {
    logical::advance(duration);
}
