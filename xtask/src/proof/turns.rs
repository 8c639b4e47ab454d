//! Turns: how many processes run at a time, whichever row they belong to.
//!
//! Rows run beside each other, because what one waits for, its disk, its threads, a compiler's last unit, is another's time.
//! Of those who wait for a turn the one with the lowest rank is next, and of two alike who came first. A turn is given back
//! when it is dropped, by a panic too. `Sync`.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// See the head of the file.
pub struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: usize,
    /// Ranks, and numbers in the order of arrival.
    waiting: BTreeSet<(usize, u64)>,
    arrived: u64,
}

/// One process may run.
#[must_use]
pub struct Turn<'t>(&'t Turns);

impl Turns {
    /// So many at a time, one at least.
    pub fn new(count: usize) -> Turns {
        let state = State { free: count.max(1), waiting: BTreeSet::new(), arrived: 0 };
        Turns { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits for a turn.
    pub fn take(&self, rank: usize) -> Turn<'_> {
        let mut state = self.lock();
        let me = (rank, state.arrived);
        state.arrived += 1;
        state.waiting.insert(me);
        while state.free == 0 || state.waiting.first() != Some(&me) {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.remove(&me);
        state.free -= 1;
        // There may be another one for whoever is next now.
        self.changed.notify_all();
        Turn(self)
    }

    /// Sums and a set that nothing between can leave half changed.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.lock().free += 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn no_more_run_at_a_time_than_there_are_turns_and_all_get_one() {
        let turns = Turns::new(3);
        let (running, most, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for rank in 0..10 {
                let (turns, running, most, done) = (&turns, &running, &most, &done);
                scope.spawn(move || {
                    for _ in 0..20 {
                        let turn = turns.take(rank);
                        most.fetch_max(
                            running.fetch_add(1, Ordering::Relaxed) + 1,
                            Ordering::Relaxed,
                        );
                        std::thread::yield_now();
                        running.fetch_sub(1, Ordering::Relaxed);
                        done.fetch_add(1, Ordering::Relaxed);
                        drop(turn);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 200);
        assert!(most.into_inner() <= 3);
    }

    #[test]
    fn the_lowest_rank_that_waits_is_next() {
        let turns = Turns::new(1);
        let order = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let first = turns.take(9);
            for rank in [5, 2, 7] {
                let (turns, order) = (&turns, &order);
                scope.spawn(move || {
                    let turn = turns.take(rank);
                    order.lock().unwrap().push(rank);
                    drop(turn);
                });
            }
            while turns.lock().waiting.len() < 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(first);
        });
        assert_eq!(order.into_inner().unwrap(), [2, 5, 7]);
    }
}
