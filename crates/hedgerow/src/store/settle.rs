//! The checkpoint thread: checkpoints that are due, and a store that is brought to its rest when nobody changes it.
//!
//! Rank 6. A store that nobody changes for a while is settled: a checkpoint takes what is left, the log is moved to its
//! first places, and a second checkpoint finds nothing to write, so that it gives back what only writers need. After that
//! the thread sleeps until somebody changes something, so a store at rest writes nothing and wakes nobody.
//! One thread for each store that is open for writing.

use super::Shared;
use crate::error::Result;
use crate::space::checkpoints::Work;
use crate::space::slot_store::SlotStore;
use crate::types::{Epoch, Lsn};
use hedgerow_sync::primitive::atomic::Ordering::Acquire;
use std::time::Duration;

/// For how long nobody has changed anything when a store is settled, unless chosen otherwise; and how often the thread looks
/// while somebody does.
pub(super) const SETTLE_AFTER: Duration = Duration::from_secs(2);

/// How long the thread waits to settle a store again where it could not: ever longer.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// And before it goes on with a drop that an opening has found.
const LONGEST_DROP_PAUSE: Duration = Duration::from_secs(1);

/// Passes in which one call moves large values at most: others may write as fast as it moves.
const MOST_PASSES: usize = 64;

/// What every change changes: all of it, or, without a log, at least if a page is changed that was clean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Activity {
    log_tail: Option<Lsn>,
    epoch: Epoch,
    dirty_pages: usize,
    images: u64,
}

impl Shared {
    /// The background thread: a checkpoint whenever one is wanted, and what else there is to do after `settle_after`
    /// without a change.
    pub(super) fn checkpoint_when_due(&self, slots: &SlotStore, settle_after: Duration) {
        // As it was at the last look. `None`: the store is settled. One that was just opened has room for writers who may not come.
        let mut seen = Some(self.activity(slots));
        let mut look_after = settle_after;
        let mut drop_after = SHORTEST_PAUSE;
        loop {
            let drops = self.is_recovered.load(Acquire)
                && self.catalogue.has_postponed_drops()
                && self.pool.check_poison().is_ok();
            let look = if drops { Some(drop_after) } else { seen.map(|_| look_after) };
            match slots.checkpoints().wait_for_work(look) {
                Work::Close => return,
                Work::Look if drops => {
                    // What is in the way may pass: a checkpoint that is wanted, somebody who changes names, or a full disk.
                    drop_after = match self.catalogue.go_on_with_drops() {
                        Ok(()) => SHORTEST_PAUSE,
                        Err(_) => (2 * drop_after).min(LONGEST_DROP_PAUSE),
                    };
                    (seen, look_after) = (Some(self.activity(slots)), settle_after);
                }
                Work::Checkpoint => {
                    // The outcome went to those who wait for it, and poisoned the pool if it had to.
                    self.checkpoint(false).ok();
                    (seen, look_after) = (Some(self.activity(slots)), settle_after);
                }
                Work::Changed => (seen, look_after) = (Some(self.activity(slots)), settle_after),
                // What recovery may need is no room to give back, however long it reads without a change.
                Work::Look if !self.is_recovered.load(Acquire) => {}
                Work::Look => {
                    let now = self.activity(slots);
                    if seen != Some(now) {
                        (seen, look_after) = (Some(now), settle_after);
                    } else if let Ok(left) = self.settle_idle(slots) {
                        (seen, look_after) = (left, settle_after);
                    } else {
                        // A full disk, say. It may pass, and what is changed later does not wake this thread: pages are dirty already.
                        seen = self.pool.check_poison().is_ok().then(|| self.activity(slots));
                        look_after = look_after.max(SHORTEST_PAUSE).saturating_mul(2);
                        look_after = look_after.min(LONGEST_PAUSE.max(settle_after));
                    }
                }
            }
        }
    }

    fn activity(&self, slots: &SlotStore) -> Activity {
        Activity {
            log_tail: self.pool.log().map(|log| log.tail()),
            epoch: self.pool.epochs().current(),
            dirty_pages: self.pool.dirty_pages(),
            images: slots.images_since_checkpoint(),
        }
    }

    /// Settles the store. `None`: it is settled, and there is nothing to do before something is changed.
    fn settle_idle(&self, slots: &SlotStore) -> Result<Option<Activity>> {
        let settled = self.try_settle_idle(slots);
        // What was moved is no change; whatever is dirty after this was changed by somebody else.
        slots.checkpoints().forget_changes();
        let now = self.activity(slots);
        let is_settled = settled? && now.dirty_pages == 0;
        Ok((!is_settled).then_some(now))
    }

    /// True: there was nothing left to write in the end.
    fn try_settle_idle(&self, slots: &SlotStore) -> Result<bool> {
        self.pool.log().map_or(Ok(()), |log| log.flush_to_cut())?;
        // Not as if it was asked for: the log keeps its first places, to which it is to go back.
        self.checkpoint(false)?;
        let is_drawn_in = self.pool.log().map_or(Ok(true), |log| log.draw_in())?;
        // Nobody else takes the checkpoints that writers may wait for meanwhile.
        Ok(self.checkpoint_until(&|| slots.checkpoints().is_wanted())? && is_drawn_in)
    }

    /// Makes everything that was changed before durable. If there was nothing, brings the file near to the size of what
    /// is in it; then this is true.
    pub(super) fn checkpoint_as_asked(&self) -> Result<bool> {
        self.checkpoint_until(&|| false)
    }

    /// The same; moves no more values once `is_wanted` says that there is something else to do.
    fn checkpoint_until(&self, is_wanted: &dyn Fn() -> bool) -> Result<bool> {
        let mut is_idle = self.checkpoint(true)?;
        let mut passes = 0;
        while is_idle && passes < MOST_PASSES && self.move_large_values(is_wanted)? {
            // The first has the records, and frees what they referred to before; the second cuts it off.
            self.checkpoint(true)?;
            is_idle = self.checkpoint(true)?;
            passes += 1;
        }
        Ok(is_idle)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{OpenHow, PoolTree, Store, StoreOptions};
    use crate::testing::SimDisk;
    use crate::testing::sim::SimState;
    use hedgerow_sync::primitive::random::SplitMix64;
    use std::ops::ControlFlow;
    use std::path::Path;

    const RECORDS: usize = 40;

    fn options() -> StoreOptions {
        StoreOptions {
            page_bytes: Some(512),
            zone_bytes: Some(32 << 10),
            background: false,
            log: true,
            log_segment_blocks: Some(6),
            ..StoreOptions::without_log(4 << 20)
        }
    }

    fn path() -> &'static Path {
        Path::new("/data/birds.hrow")
    }

    /// Puts a value of that round into a record, and makes it durable by itself, which takes a block of the log.
    fn put(store: &Store, wrens: &PoolTree, n: usize, round: usize) {
        wrens.put(format!("song {n:02}").as_bytes(), &[round as u8; 60]).unwrap();
        store.flush_log().unwrap();
    }

    /// Images of less than half of a page looked like the work of others: what was moved stayed dirty, and nothing was in vain.
    #[test]
    fn a_store_of_short_images_comes_to_rest() {
        let mut dice = SplitMix64::new(11);
        let disk = SimDisk::new(1);
        let options = StoreOptions { page_bytes: Some(4096), ..options() };
        let store = Store::open(&options, &disk, path(), OpenHow::New).unwrap();
        let trees: Vec<PoolTree> =
            (0..200).map(|n| store.create_keyspace(&format!("{n}")).unwrap()).collect();
        for round in 0..20 {
            for tree in &trees {
                if round == 0 || dice.below(3) == 0 {
                    tree.put(b"song", &vec![7; 300 + dice.below(1_400) as usize]).unwrap();
                }
            }
            store.shared.checkpoint(false).unwrap();
        }
        let slots = store.shared.slots.as_ref().unwrap();
        let rounds = (0..20).position(|_| store.shared.settle_idle(slots).unwrap().is_none());
        assert_eq!(rounds, Some(0));
    }

    /// How many records have the value of that round: the first ones, and the others the one before.
    fn records_of(store: &Store, round: usize, context: &str) -> usize {
        let wrens = store.open_keyspace("wrens").unwrap().unwrap();
        let value = |n: usize| wrens.get(format!("song {n:02}").as_bytes()).unwrap().unwrap()[0];
        let values: Vec<usize> = (0..RECORDS).map(|n| usize::from(value(n))).collect();
        let newer = values.iter().take_while(|&&value| value == round).count();
        assert!(values[newer..].iter().all(|&value| value == round - 1), "{context}: {values:?}");
        assert!(store.verify(|_| ControlFlow::Continue(())).unwrap().is_clean(), "{context}");
        newer
    }

    /// The log is moved to its first places, and goes on there: a power cut, or a kill, at each call meanwhile takes nothing
    /// that was durable.
    #[test]
    fn a_crash_while_a_store_comes_to_rest_and_goes_on_takes_nothing_that_was_durable() {
        for overtaken in [false, true] {
            crash_at_each_call(overtaken);
        }
    }

    /// `overtaken`: records are put before the checkpoint that follows upon the move.
    fn crash_at_each_call(overtaken: bool) {
        let disk = SimDisk::new(1);
        let store = Store::open(&options(), &disk, path(), OpenHow::New).unwrap();
        let wrens = store.create_keyspace("wrens").unwrap();
        for round in [1, 2] {
            (0..RECORDS).for_each(|n| put(&store, &wrens, n, round));
        }
        let log_bytes = |disk: &SimDisk| disk.state().contents(&super::super::log_path(path()));
        let long = log_bytes(&disk).unwrap().len();
        disk.record_states(true);
        if overtaken {
            let log = store.log().unwrap();
            log.flush_to_cut().unwrap();
            store.shared.checkpoint(false).unwrap();
            assert!(log.draw_in().unwrap());
        } else {
            let slots = store.shared.slots.as_ref().unwrap();
            assert!(store.shared.try_settle_idle(slots).unwrap());
            assert!(log_bytes(&disk).unwrap().len() < long / 4, "the log has gone back");
        }
        let settling = disk.take_states();
        let mut states: Vec<(SimState, usize, usize)> =
            settling.into_iter().map(|state| (state, 2, RECORDS)).collect();
        for n in 0..RECORDS {
            put(&store, &wrens, n, 3);
            // Before these calls so many were acknowledged.
            states.extend(disk.take_states().into_iter().map(|state| (state, 3, n)));
        }
        states.push((disk.state(), 3, RECORDS));
        assert!(states.len() > 2 * RECORDS);
        for (at, (state, round, least)) in states.into_iter().enumerate() {
            for seed in 0..4 {
                let left = if seed == 0 { state.kill() } else { state.crash_at_random(seed) };
                let left = SimDisk::with_state(left, seed);
                let context = format!("overtaken: {overtaken}, call {at}, seed {seed}");
                let again = Store::open(&options(), &left, path(), OpenHow::Existing)
                    .unwrap_or_else(|error| panic!("{context}: {error}"));
                assert!(records_of(&again, round, &context) >= least, "{context}");
                // And it comes to rest again.
                again.shared.try_settle_idle(again.shared.slots.as_ref().unwrap()).unwrap();
                let left = left.crash(seed);
                drop(again);
                let again = Store::open(&options(), &left, path(), OpenHow::Existing).unwrap();
                assert!(records_of(&again, round, &context) >= least, "{context}, settled");
            }
        }
    }
}
