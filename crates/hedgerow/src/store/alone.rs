//! Commits that are too large for one stroke: whoever makes one changes records alone, and readers go on.
//!
//! Rank 6. The order, each step of which the next relies on (`docs/transactions.md` has the reasons):
//!
//! 1. The turn is taken: one runs alone at a time, and meanwhile no keyspace is created, dropped or renamed, and no large value is moved. Those
//!    who do so take locks that a checkpoint needs, so they pass here *before* their locks, and not at the gate behind them.
//! 2. Leaves are read, so that damage is met before anything is done, and what was read is compared: most conflicts are found, and most pages
//!    brought into memory, while others go on. Room on the disk and in the log is had.
//! 3. A checkpoint is taken, so that the next one is short. The gate is closed: who changes records waits there, and those inside are waited for.
//! 4. A checkpoint is taken and pinned. From then on everybody who reads a leaf with a younger stamp reads that checkpoint.
//! 5. What was read is shown to be unchanged.
//! 6. The batch is logged whole, and made change by change (`batch.rs`). No old versions are kept.
//! 7. Snapshots go over to the checkpoint, everybody sees the leaves again, and the gate is opened.
//!
//! An error before the log has all of the batch undoes steps 1 to 5, and nothing has changed. Behind that the store takes no more changes: the
//! gate stays closed, and everybody goes on to see what was there before, until the store is opened again, which finishes the batch.
//!
//! Thread-safety: any number of threads. Whoever waits for the turn holds no latch, no lock, and no place in the pool.

use super::Shared;
use super::batch::{BatchChange, BatchReads, Underway, log_bytes};
use crate::error::Result;
use crate::events::{Stall, WaitsFor};
use crate::types::Lsn;
use crate::versions::Surroundings;
use crate::wait::Waiting;
use crate::wal::Log;
use hedgerow_sync::primitive::{Condvar, Mutex};

/// Who may run alone, and who is doing what nobody may run alone beside.
#[derive(Default)]
pub(super) struct Turn {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Somebody runs alone, or waits until nobody is beside.
    is_taken: bool,
    beside: usize,
    /// How many have run alone and ended well.
    ended: u64,
}

impl Turn {
    /// Takes the turn.
    ///
    /// Errors: those of `waiting`.
    fn take(&self, waiting: &Waiting<'_>) -> Result<Taken<'_>> {
        let mut stall = None;
        let mut state = self.state.lock();
        while state.is_taken {
            stall.get_or_insert_with(|| Stall::begin(WaitsFor::Commit));
            waiting.wait_on(&self.changed, &mut state)?;
        }
        // Who comes from now on waits, or this would wait without end.
        state.is_taken = true;
        let taken = Taken(self);
        while state.beside > 0 {
            if let Err(error) = waiting.wait_on(&self.changed, &mut state) {
                drop(state);
                return Err(error);
            }
        }
        drop(state);
        Ok(taken)
    }

    /// Keeps everybody from running alone until the value is dropped; waits for who does. The caller holds nothing.
    pub(super) fn stay_beside(&self) -> Beside<'_> {
        let mut stall = None;
        let mut state = self.state.lock();
        while state.is_taken {
            stall.get_or_insert_with(|| Stall::begin(WaitsFor::Commit));
            self.changed.wait(&mut state);
        }
        state.beside += 1;
        Beside(self)
    }

    /// [`Self::stay_beside`], if nobody runs alone or is about to.
    pub(super) fn try_stay_beside(&self) -> Option<Beside<'_>> {
        let mut state = self.state.lock();
        if state.is_taken {
            return None;
        }
        state.beside += 1;
        Some(Beside(self))
    }

    /// How many have run alone and ended well.
    pub(super) fn ended(&self) -> u64 {
        self.state.lock().ended
    }
}

/// The turn; dropping it gives it up.
#[must_use]
struct Taken<'t>(&'t Turn);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_taken = false;
        self.0.changed.notify_all();
    }
}

/// Nobody runs alone while this lives.
#[must_use]
pub(super) struct Beside<'t>(&'t Turn);

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        self.0.state.lock().beside -= 1;
        self.0.changed.notify_all();
    }
}

impl Shared {
    /// Makes all changes, if what was read is unchanged, while nobody else changes records; everybody sees all of them or none. `made` is set
    /// when the log has them. The caller holds nothing.
    ///
    /// Errors: `BatchTooLarge`, `Conflict`, `KeyspaceDropped`, those of reads, of entering, of checkpoints and of `waiting`: nothing has
    /// changed; `BatchUnfinished`: see the head of the file.
    pub(super) fn commit_alone(
        &self,
        log: &Log,
        changes: &[BatchChange<'_>],
        read_set: Option<&BatchReads<'_>>,
        made: &mut usize,
        waiting: &Waiting<'_>,
    ) -> Result<Lsn> {
        let bytes = log_bytes(changes);
        log.check_batch(bytes)?;
        let versions = self.versions();
        let turn = self.turn.take(waiting)?;
        let mut underway = Underway::begin(self, waiting)?;
        self.read_before(changes)?;
        read_set.map_or(Ok(()), BatchReads::check)?;
        let room = self.room_for_batch(log, changes, bytes, waiting)?;
        // While the gate is closed no file is made shorter.
        let awaits = self.await_pin();
        // Most of what is dirty is written beside writers.
        drop(self.pin()?);
        let mut alone = versions.close_gate(&*self.pool);
        let pin = self.pin()?.into_readable();
        drop(awaits);
        alone.begin(&*self.pool, pin.cut(), pin);
        let unchanged = read_set.map_or(Ok(()), BatchReads::check);
        let logged =
            unchanged.and_then(|()| self.log_batch(log, changes, &mut underway, &room, waiting));
        if let Err(error) = logged {
            // Not all of the batch is in the log, so it is none.
            drop(alone.cancel());
            return Err(error);
        }
        *made = changes.len();
        // If this fails, or panics, the gate stays closed.
        self.make_logged(changes, &underway, &room)?;
        let lsn = self.pool.tail();
        underway.finish();
        drop(alone.end());
        turn.0.state.lock().ended += 1;
        Ok(lsn)
    }
}

#[cfg(all(test, feature = "tracing", not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::testing::events::events_of;
    use hedgerow_sync::primitive::thread::{sleep, spawn_named};
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn who_waits_long_for_a_large_commit_is_a_stall() {
        let waits: [fn(&Turn); 2] =
            [|turn| drop(turn.take(&Waiting::Forever)), |turn| drop(turn.stay_beside())];
        for wait in waits {
            let turn = Arc::new(Turn::default());
            let commit = turn.take(&Waiting::Forever).unwrap();
            let other = turn.clone();
            let waits = spawn_named("waits", move || events_of(|| wait(&other))).unwrap();
            // Until it waits, and for longer than a stall takes.
            sleep(Duration::from_millis(300));
            drop(commit);
            let events = waits.join().unwrap();
            let [stall] = &events[..] else { panic!("{events:?}") };
            assert!(stall.number("waited_ms") >= 100, "{stall:?}");
            assert!(stall.fields["waits_for"].contains("commit"), "{stall:?}");
            assert!(events_of(|| wait(&turn)).is_empty(), "nobody is in the way");
        }
    }
}
