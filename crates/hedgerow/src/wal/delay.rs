//! How long changes wait so that checkpoints keep up, before the log is so full that nobody can go on.
//!
//! Rank 2. See [`Log`] for invariants and thread-safety. All numbers are read and written without order: they are about speed.

use super::log::Log;
use crate::events::{Stall, WaitsFor};
use crate::wait::Waiting;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::thread;
use std::time::Duration;

/// How long a change waits when the log is full but for nothing: ten thousand a second and thread.
const LONGEST_DELAY_NS: u64 = 100_000;
/// A longer change waits as several of this length.
const CHANGE_BYTES: u64 = 256;
/// But no change waits for longer than this at once.
const LONGEST_HOLD_NS: u64 = 10_000_000;
/// So much is appended before it is worked out anew how long changes wait: a thousand changes or so.
const LOOK_BYTES: u64 = 128 << 10;
/// How far above its allowance what `on_growth` looks at counts: four times that long.
const MOST_PRESSURE: f64 = 2.0;
/// As short a sleep as the system is good for.
const SLEEP_NS: u64 = 100_000;

impl Log {
    /// Waits as long as a change of `len` bytes has to now: longer ones fill the log as several do.
    #[inline]
    pub(super) fn slow_down(&self, len: u64, waiting: &Waiting<'_>) {
        let delay_ns = self.delay_ns.load(Relaxed);
        if delay_ns > 0 {
            let all_ns = delay_ns.saturating_mul(1 + len / CHANGE_BYTES);
            self.hold_up(all_ns.min(LONGEST_HOLD_NS), waiting);
        }
    }

    /// Works out how long changes wait from now on.
    #[cold]
    pub(super) fn look(&self) {
        self.look_at.store(self.ring.promised().0 + LOOK_BYTES, Relaxed);
        let pace = (self.on_growth)(self.growth());
        self.bound_bytes.store(pace.bound_bytes, Relaxed);
        self.pace(pace.pressure);
    }

    /// Works out how long changes wait: not at all while the log is less than half full, and ever longer from there
    /// on, so that the checkpoint that is to make room keeps up before nobody can go on. `pressure` is what
    /// `on_growth` has said: from zero on longer and longer for that reason, too.
    pub(super) fn pace(&self, pressure: f64) {
        let (used, limit) = self.fill();
        self.delay_ns.store(delay_ns(used, limit, pressure), Relaxed);
    }

    /// Waits for `delay_ns`, on the average of all changes: no sleep is as short as that, so whoever makes it enough
    /// for one sleeps for the others, too. Who may not wait leaves that to them: when the log is full it is told.
    #[cold]
    fn hold_up(&self, delay_ns: u64, waiting: &Waiting<'_>) {
        self.owed_ns.fetch_add(delay_ns, Relaxed);
        // All of it at once, so that nothing is left to be paid when there is no need any more.
        let paid = |owed: u64| (owed >= SLEEP_NS).then_some(0);
        if let Ok(owed) = self.owed_ns.fetch_update(Relaxed, Relaxed, paid) {
            self.held_up.fetch_add(1, Relaxed);
            let _stall = Stall::begin(WaitsFor::Log);
            let time = waiting.nap_of(Duration::from_nanos(owed)).unwrap_or_default();
            thread::sleep(time);
        }
    }

    /// Times that a change slept because the log was more than half full, or opening would have taken long.
    pub fn held_up(&self) -> u64 {
        self.held_up.load(Relaxed)
    }
}

/// How long a change waits of whose log so much is used; see [`Log::pace`].
fn delay_ns(used: u64, limit: u64, pressure: f64) -> u64 {
    let over = used.saturating_sub(limit / 2) as f64 / (limit / 2).max(1) as f64;
    let over = over.min(1.0).max(pressure.min(MOST_PRESSURE));
    (over * over * LONGEST_DELAY_NS as f64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_wait_the_longer_the_fuller_the_log_is_from_its_half_on() {
        let of_a_thousand = [(0, 0), (500, 0), (750, 25_000), (875, 56_250), (1000, 100_000)];
        for (used, delay) in of_a_thousand {
            assert_eq!(delay_ns(used, 1000, 0.0), delay, "{used}");
        }
        assert_eq!(delay_ns(5000, 1000, 0.0), 100_000, "a log that is longer than it may be");
        assert_eq!(delay_ns(7, 0, 0.0), 100_000, "a log without room");
        for (pressure, delay) in [(-1.0, 0), (0.5, 25_000), (2.0, 400_000), (9.0, 400_000)] {
            assert_eq!(delay_ns(100, 1000, pressure), delay, "{pressure}");
        }
        assert_eq!(delay_ns(875, 1000, 0.5), 56_250, "the stronger of both reasons");
    }
}
