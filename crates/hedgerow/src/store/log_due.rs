//! When the log makes a checkpoint due, and how far it is beyond what it may have.
//!
//! Rank 6. Three bounds: the time that opening would take, what the store has, and the limit that was chosen. The log asks
//! while it grows (`Log::look`). `Send + Sync`; whoever looks holds nothing.

use super::preload::StorePages;
use crate::buffer::BufferPool;
use crate::page::Frames;
use crate::space::slot_store::SlotStore;
use crate::wal::{Growth, Pace};
use hedgerow_sync::primitive::atomic::AtomicU64;
use hedgerow_sync::primitive::atomic::Ordering::Relaxed;
use hedgerow_sync::primitive::{Arc, Weak};
use std::time::Duration;

/// When the log makes a checkpoint due: it would take too long to replay, or fills up.
pub(super) struct CheckpointDue {
    pub(super) slots: Option<Arc<SlotStore>>,
    pub(super) pool: Weak<BufferPool>,
    pub(super) log_limit_bytes: u64,
    pub(super) target: Duration,
    /// The log of a small store may be so long at least.
    pub(super) least_bound_bytes: u64,
    /// How much log there is to be before another one is asked for because of what is kept.
    pub(super) asked_bytes: AtomicU64,
}

impl CheckpointDue {
    /// Asks for a checkpoint if it is due: at less than half of what is allowed, since what is appended while it runs will
    /// have to be replayed, and kept, too. Tells how far opening now would take longer than three fifths of its time, or
    /// the log is longer than three fifths of what the store has: zero from there on down, one if it took all of it.
    pub(super) fn look(&self, growth: Growth) -> Pace {
        let (Some(slots), Some(pool)) = (&self.slots, self.pool.upgrade()) else {
            return Pace::default();
        };
        let bound_bytes = self.bound_bytes(&pool);
        let target = self.target.max(LEAST_TARGET);
        let pace = |pressure| Pace { pressure, bound_bytes };
        let part_of_bound = |bytes: u64| bytes as f64 / bound_bytes as f64;
        let pages = StorePages::of(&pool);
        let dirty = pool.dirty_pages() as u64;
        let fresh = pages.replay(growth.fresh_bytes, dirty + slots.images_for_next());
        if growth.fresh_bytes > self.log_limit_bytes / 2
            || fresh > target.mul_f64(CHECKPOINT_AT)
            || part_of_bound(growth.fresh_bytes) > CHECKPOINT_AT
        {
            slots.checkpoints().request_unless_running();
        }
        let now = pages.replay(growth.kept_bytes, dirty + slots.images_not_durable());
        let part = now.as_secs_f64() / target.as_secs_f64();
        // What is kept for a batch alone is its own affair.
        let part = part.max(part_of_bound(growth.kept_bytes.min(growth.fresh_bytes)));
        let pressure = (part - BEGIN_TO_SLOW_DOWN) / (1.0 - BEGIN_TO_SLOW_DOWN);
        if pressure <= 0.0 {
            self.asked_bytes.store(0, Relaxed);
            return pace(0.0);
        }
        // A batch may keep log that the last checkpoint has, or have kept it: then another one helps, now and then tried.
        if growth.kept_bytes >= self.asked_bytes.load(Relaxed) {
            self.asked_bytes.store(growth.kept_bytes + ASK_AGAIN_BYTES, Relaxed);
            slots.checkpoints().request_unless_running();
        }
        pace(pressure)
    }

    /// What the log is to keep to beside batches: as many bytes as the store has pages, or what a small one may have.
    fn bound_bytes(&self, pool: &BufferPool) -> u64 {
        let pages_bytes = StorePages::of(pool).in_use() * Frames::page_bytes(pool) as u64;
        pages_bytes.max(self.least_bound_bytes)
    }
}

/// At which part of the recovery target a checkpoint is due, and from which on changes are slowed down.
const CHECKPOINT_AT: f64 = 0.4;
const BEGIN_TO_SLOW_DOWN: f64 = 0.6;
/// Bytes that the log may have whatever the store has.
pub(super) const LEAST_BOUND_BYTES: u64 = 16 << 20;
/// No target is so short that checkpoints are due, or changes slowed down, whatever is done: a quarter of this any opening takes.
const LEAST_TARGET: Duration = Duration::from_millis(600);
/// So much more log there is before a checkpoint is asked for again that has not helped.
const ASK_AGAIN_BYTES: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::super::{Store, StoreOptions};
    use super::*;
    use crate::storage::{DirectIo, Disk, OpenMode};
    use crate::testing::RamDisk;
    use hedgerow_sync::primitive::thread;
    use std::path::Path;

    fn store() -> Store {
        let file =
            RamDisk::new().open(Path::new("s"), OpenMode::CreateNew, DirectIo::Never).unwrap();
        let options = StoreOptions { background: false, ..StoreOptions::without_log(16 << 20) };
        Store::create_in(&options, file).unwrap()
    }

    fn due(store: &Store, log_limit_bytes: u64, target: Duration) -> CheckpointDue {
        CheckpointDue {
            slots: store.shared.slots.clone(),
            pool: Arc::downgrade(&store.shared.pool),
            log_limit_bytes,
            target,
            least_bound_bytes: u64::MAX,
            asked_bytes: AtomicU64::new(0),
        }
    }

    fn growth(fresh_bytes: u64, kept_bytes: u64) -> Growth {
        Growth { fresh_bytes, kept_bytes }
    }

    /// Asserts of each growth whether it makes a checkpoint due.
    fn assert_asks(store: &Store, due: &CheckpointDue, growths: &[(Growth, bool)]) {
        let slots = store.shared.slots.clone().unwrap();
        let (asks, asking) = std::sync::mpsc::channel();
        let waiting = {
            let slots = slots.clone();
            let wait = move || {
                while slots.checkpoints().wait_until_wanted() {
                    asks.send(()).unwrap();
                }
            };
            thread::spawn_named("waits", wait).unwrap()
        };
        for (growth, is_due) in growths {
            due.look(*growth);
            let patience = Duration::from_millis(if *is_due { 20_000 } else { 30 });
            assert_eq!(asking.recv_timeout(patience).is_ok(), *is_due, "{growth:?}");
        }
        slots.close();
        waiting.join().unwrap();
    }

    #[test]
    fn a_checkpoint_is_due_when_half_of_the_logs_limit_is_fresh() {
        let store = store();
        let due = due(&store, 1 << 20, Duration::MAX);
        let half = 1 << 19;
        let growths = [
            (growth(0, half), false),
            (growth(half, half), false),
            (growth(half + 1, half + 1), true),
        ];
        assert_asks(&store, &due, &growths);
    }

    #[test]
    fn a_checkpoint_is_due_when_what_is_fresh_takes_two_fifths_of_the_time_to_open() {
        let store = store();
        let due = due(&store, u64::MAX, Duration::from_secs(1));
        let growths = [(growth(19_000_000, 0), false), (growth(21_000_000, 0), true)];
        assert_asks(&store, &due, &growths);
    }

    /// Each look asked for one, since an opening that has nothing to replay takes more than two fifths of such a target.
    #[test]
    fn the_shortest_target_asks_for_no_checkpoint_that_nothing_is_for() {
        for target in [Duration::ZERO, Duration::from_millis(300), Duration::from_millis(375)] {
            let store = store();
            let due = due(&store, u64::MAX, target);
            assert_eq!(due.look(growth(0, 0)).pressure, 0.0);
            let growths = [(growth(0, 0), false), (growth(1 << 20, 1 << 20), false)];
            assert_asks(&store, &due, &[growths[0], growths[1], (growth(20 << 20, 0), true)]);
        }
    }

    #[test]
    fn a_log_keeps_to_what_the_store_has() {
        let store = store();
        let of_store = || CheckpointDue {
            least_bound_bytes: 16 << 20,
            ..due(&store, u64::MAX, Duration::MAX)
        };
        let part = |of_ten: u64| growth((of_ten << 20) * 16 / 10, (of_ten << 20) * 16 / 10);
        let pace = |growth| of_store().look(growth);
        assert_eq!(pace(part(6)).pressure, 0.0);
        assert!((0.4..0.6).contains(&pace(part(8)).pressure));
        assert!((0.9..1.1).contains(&pace(part(10)).pressure));
        assert_eq!(pace(part(1)).bound_bytes, 16 << 20);
        // What only a batch keeps is not counted.
        assert_eq!(pace(growth(1 << 20, 64 << 20)).pressure, 0.0);
        let store = self::store();
        let due = CheckpointDue {
            least_bound_bytes: 16 << 20,
            ..self::due(&store, u64::MAX, Duration::MAX)
        };
        assert_asks(&store, &due, &[(part(3), false), (part(5), true)]);
    }

    #[test]
    fn log_that_is_kept_for_a_batch_slows_changes_down_and_asks_now_and_then() {
        let store = store();
        let due = due(&store, u64::MAX, Duration::from_secs(1));
        assert!(due.look(growth(0, 35_000_000)).pressure <= 0.0);
        let half_way = due.look(growth(0, 52_000_000)).pressure;
        assert!((0.4..0.6).contains(&half_way), "{half_way}");
        let all = due.look(growth(0, 68_000_000)).pressure;
        assert!((0.9..1.1).contains(&all), "{all}");
        assert_eq!(due.look(growth(0, 30_000_000)).pressure, 0.0);
        // Another one, of which no request is left that nobody has taken yet.
        let store = self::store();
        let due = self::due(&store, u64::MAX, Duration::from_secs(1));
        let growths = [
            (growth(0, 40_000_000), true),
            (growth(0, 40_000_000 + ASK_AGAIN_BYTES - 1), false),
            (growth(0, 40_000_000 + ASK_AGAIN_BYTES), true),
        ];
        assert_asks(&store, &due, &growths);
    }

    #[test]
    fn a_log_that_was_short_again_asks_at_once_when_it_has_grown() {
        let store = store();
        let due = due(&store, u64::MAX, Duration::from_secs(1));
        let growths = [
            (growth(0, 60_000_000), true),
            (growth(0, 1000), false),
            (growth(0, 40_000_000), true),
        ];
        assert_asks(&store, &due, &growths);
    }

    #[test]
    fn a_log_whose_store_is_gone_holds_nobody_up() {
        let store = store();
        let due = due(&store, 1, Duration::ZERO);
        assert!(due.look(growth(1 << 30, 1 << 30)).pressure > 0.0);
        drop(store);
        assert!(due.pool.upgrade().is_none());
        assert_eq!(due.look(growth(1 << 30, 1 << 30)).pressure, 0.0);
    }
}
