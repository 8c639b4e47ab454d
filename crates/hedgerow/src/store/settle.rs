//! The checkpoint thread: checkpoints that are due, and a store that is brought to its rest when nobody changes it.
//!
//! Rank 6. A store that nobody changes for a while is settled: a checkpoint takes what is left, the log is moved to its
//! first places, and a second checkpoint finds nothing to write, so that it gives back what only writers need. After that
//! the thread sleeps until somebody changes something, so a store at rest writes nothing and wakes nobody.
//! One thread for each store that is open for writing.

use super::Shared;
use crate::error::Result;
use crate::space::due::Work;
use crate::space::slot_store::SlotStore;
use crate::types::{Epoch, Lsn};
use std::time::Duration;

/// For how long nobody has changed anything when a store is settled, unless chosen otherwise; and how often the thread looks
/// while somebody does.
pub(super) const SETTLE_AFTER: Duration = Duration::from_secs(2);

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
        // As it was at the last look. `None`: the store is settled.
        let mut seen: Option<Activity> = None;
        loop {
            match slots.wait_for_work(seen.map(|_| settle_after)) {
                Work::Close => return,
                Work::Checkpoint => {
                    // The outcome went to those who wait for it, and poisoned the pool if it had to.
                    self.checkpoint(false).ok();
                    seen = Some(self.activity(slots));
                }
                Work::Changed => seen = Some(self.activity(slots)),
                Work::Look => {
                    let now = Some(self.activity(slots));
                    seen = if seen == now { self.settle_idle(slots) } else { now };
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

    /// Settles the store. `None`: it is settled, or that failed, and there is nothing to do before something is changed.
    fn settle_idle(&self, slots: &SlotStore) -> Option<Activity> {
        let settled = self.try_settle_idle();
        // What was moved is no change; whatever is dirty after this was changed by somebody else.
        slots.forget_changes();
        let now = self.activity(slots);
        match settled {
            Ok(true) if now.dirty_pages == 0 => None,
            Ok(_) => Some(now),
            // A full disk, say. Trying again and again would wake up for ever.
            Err(_) => None,
        }
    }

    /// True: there was nothing left to write in the end.
    fn try_settle_idle(&self) -> Result<bool> {
        self.pool.log().map_or(Ok(()), |log| log.flush_to_cut())?;
        // Not as if it was asked for: the log keeps its first places, to which it is to go back.
        self.checkpoint(false)?;
        let is_drawn_in = self.pool.log().map_or(Ok(true), |log| log.draw_in())?;
        Ok(self.checkpoint_as_asked()? && is_drawn_in)
    }

    /// Makes everything that was changed before durable. If there was nothing, brings the file near to the size of what
    /// is in it; then this is true.
    pub(super) fn checkpoint_as_asked(&self) -> Result<bool> {
        let mut is_idle = self.checkpoint(true)?;
        let mut passes = 0;
        while is_idle && passes < MOST_PASSES && self.move_large_values()? {
            // The first has the records, and frees what they referred to before; the second cuts it off.
            self.checkpoint(true)?;
            is_idle = self.checkpoint(true)?;
            passes += 1;
        }
        Ok(is_idle)
    }
}
