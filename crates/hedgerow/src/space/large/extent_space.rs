//! What the allocator knows of extents beside its bitmaps: which units wait to be free, and for whom.
//!
//! `units.rs` has the life of an extent's units, and changes the bitmaps. This keeps the account of the steps: what was written and is
//! not entered yet, what was left in which epoch, and who is reading.
//!
//! Invariants: `writing_units` counts units that are held and that nothing refers to; `left_units` those that were left, each held; the
//! epochs in `left` never fall. Not shared: the caller's lock covers each call.

use crate::large::{Extent, Run};
use crate::space::unit_set::UnitSet;
use crate::types::Epoch;
use std::collections::{BTreeMap, VecDeque};

/// See the head of the file.
#[derive(Debug, Default)]
pub(in crate::space) struct ExtentSpace {
    writing_units: u64,
    /// Left, by the epoch in which they were, which never falls.
    left: VecDeque<(Epoch, Run)>,
    left_units: u64,
    /// Units of extents that the log of a replay under way names, and those that it has superseded. There may be as many
    /// as the log has records, so they are bits.
    named: UnitSet,
    left_in_replay: UnitSet,
    is_replaying: bool,
    /// Of these, those that were left since a checkpoint took what there was.
    fresh_units: u64,
    /// Who may read any extent: how many began in which epoch, or just before it ended.
    readers: BTreeMap<Epoch, u32>,
    /// Who reads one extent, by the first units of its runs.
    read_runs: BTreeMap<u64, ReadRun>,
}

/// A run that is being read.
#[derive(Debug, Default)]
struct ReadRun {
    readers: u32,
    /// Nothing else needs it any more. One run, unless the file is damaged.
    freed: Vec<Run>,
}

/// Memory of one of them, with its share of the tree.
const READ_RUN_BYTES: usize = 64;

impl ExtentSpace {
    pub(in crate::space) fn memory_bytes(&self) -> usize {
        self.left.capacity() * size_of::<(Epoch, Run)>()
            + self.readers.len() * 64
            + self.read_runs.len() * READ_RUN_BYTES
            + self.named.memory_bytes()
            + self.left_in_replay.memory_bytes()
    }

    /// Units that are held and that nothing refers to yet.
    pub(super) fn writing_units(&self) -> u64 {
        self.writing_units
    }

    /// Units that wait to be free.
    pub(in crate::space) fn left_units(&self) -> u64 {
        self.left_units
    }

    /// So many units are held for an extent that nothing refers to.
    pub(super) fn writing(&mut self, units: u64) {
        self.writing_units += units;
    }

    /// Nothing will refer to so many units of it.
    pub(super) fn discarded(&mut self, units: u64) {
        self.writing_units = self.writing_units.saturating_sub(units);
    }

    /// The extent's record was put.
    pub(super) fn entered(&mut self, extent: &Extent) {
        for run in &extent.runs {
            let units = u64::from(run.units);
            // A replay may put a record again whose extent the checkpoint refers to, and which it has superseded just now.
            let is_left = self.left_in_replay.remove_all(run.unit, run.units);
            match is_left {
                true => self.left_units -= units,
                false => self.discarded(units),
            }
        }
    }

    /// The extent's record was superseded in `epoch`. Returns how many units the next checkpoint will set free.
    pub(super) fn left(&mut self, extent: &Extent, epoch: Epoch) -> u64 {
        // Writers of two epochs may be inside when one begins.
        let epoch = self.left.back().map_or(epoch, |&(last, _)| last.max(epoch));
        for &run in &extent.runs {
            let mut units = u64::from(run.units);
            if self.is_replaying {
                // Each unit once: the log of a damaged store may supersede it more often.
                let before = self.left_in_replay.len();
                self.left_in_replay.insert(run.unit, run.units);
                units = self.left_in_replay.len() - before;
            } else {
                self.left.push_back((epoch, run));
            }
            self.left_units += units;
            self.fresh_units += units;
        }
        self.fresh_units
    }

    /// A checkpoint takes what was left until now.
    pub(in crate::space) fn left_until_now(&mut self) {
        self.fresh_units = 0;
    }

    /// The run that was left first, and in which epoch.
    pub(super) fn first_left(&self) -> Option<(Epoch, Run)> {
        self.left.front().copied()
    }

    /// Whether somebody may read what was left in `epoch`, without having said which extent.
    pub(super) fn may_be_read(&self, epoch: Epoch) -> bool {
        self.readers.range(..=epoch).next().is_some()
    }

    /// Nobody but who reads this very run needs the one any more that was left first. It is the caller's to free; `None` if somebody
    /// reads it, who frees it then.
    pub(super) fn take_first_left(&mut self) -> Option<Run> {
        let (_, run) = self.left.pop_front()?;
        match self.read_runs.get_mut(&run.unit) {
            Some(read) => read.freed.push(run),
            _ => return Some(run),
        }
        None
    }

    /// A run that was left is free.
    pub(super) fn freed(&mut self, run: Run) {
        self.left_units -= u64::from(run.units);
    }

    /// Notes a reader of extents who begins in `epoch`, before it looks which extent a record refers to. What it may
    /// come to read is not written before [`Self::reading_ends`] was told the same number.
    ///
    /// Who supersedes a record may still be in the epoch before, so that is what counts.
    pub(in crate::space) fn reading_begins(&mut self, epoch: Epoch) -> Epoch {
        let from = Epoch(epoch.0.saturating_sub(1));
        *self.readers.entry(from).or_insert(0) += 1;
        from
    }

    /// A reader has ended; what it kept may be free.
    pub(in crate::space) fn reading_ends(&mut self, from: Epoch) {
        if let Some(count) = self.readers.get_mut(&from) {
            *count -= 1;
            if *count == 0 {
                self.readers.remove(&from);
            }
        }
    }

    /// Notes that these runs of an extent are being read, whoever else needs them. While they cannot be free: the caller is
    /// between [`Self::reading_begins`] and [`Self::reading_ends`], and has looked up the record in between.
    pub(in crate::space) fn reading_one_begins(&mut self, runs: &[Run]) {
        for run in runs {
            self.read_runs.entry(run.unit).or_default().readers += 1;
        }
    }

    /// A reader of this run has ended. Returns what nobody else needs: all that it waited for was this reader, as whatever began
    /// since has found another record.
    pub(super) fn reading_run_ends(&mut self, run: Run) -> Vec<Run> {
        let Some(read) = self.read_runs.get_mut(&run.unit) else { return Vec::new() };
        read.readers -= 1;
        if read.readers > 0 {
            return Vec::new();
        }
        self.read_runs.remove(&run.unit).map_or(Vec::new(), |read| read.freed)
    }

    /// A replay begins, before anything that it supersedes; as [`Self::reading_begins`], before every epoch.
    pub(in crate::space) fn replay_begins(&mut self) -> Epoch {
        self.is_replaying = true;
        self.reading_begins(Epoch(0))
    }

    /// The log of a replay names this run, of which so many units were not held.
    pub(super) fn named(&mut self, run: Run, fresh: u64) {
        self.writing_units += fresh;
        self.named.insert(run.unit, run.units);
    }

    /// The replay has ended. Returns what the log named, and what was superseded.
    pub(super) fn take_replayed(&mut self) -> UnitSet {
        self.is_replaying = false;
        self.writing_units = 0;
        self.left_units -= self.left_in_replay.len();
        let mut all = std::mem::take(&mut self.named);
        all.merge(std::mem::take(&mut self.left_in_replay));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_that_of_runs_that_were_left_and_of_readers() {
        let mut extents = ExtentSpace::default();
        assert_eq!(extents.memory_bytes(), 0);
        for unit in 0..10 {
            extents.left.push_back((Epoch(1), Run { unit, units: 1 }));
        }
        let runs = extents.left.capacity();
        assert!(runs >= 10);
        assert_eq!(extents.memory_bytes(), runs * 24);
        extents.readers.extend([(Epoch(1), 1), (Epoch(2), 5)]);
        assert_eq!(extents.memory_bytes(), runs * 24 + 2 * 64);
    }
}
