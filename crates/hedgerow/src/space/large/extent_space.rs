//! What the allocator knows of extents beside its bitmaps: which units wait to be free, and for whom.
//!
//! `units.rs` has the life of an extent's units, and changes the bitmaps. This keeps the account of the steps: what was written and is
//! not entered yet, what was left in which epoch, and who is reading.
//!
//! There are two kinds of readers. Who looks for a value now may come to any extent that is entered meanwhile. Who looks at one moment, a
//! snapshot or a pinned checkpoint, refers to none that was entered later (`births.rs`), so those do not wait for it.
//!
//! Invariants: `writing_units` counts units that are held and that nothing refers to; `left_units` those that were left, each held; the
//! epochs in `left` and in `young` never fall. Not shared: the caller's lock covers each call.

use super::births::Births;
use crate::large::{Extent, Run};
use crate::space::quarantine::Quarantine;
use crate::space::unit_set::UnitSet;
use crate::types::Epoch;
use std::collections::{BTreeMap, VecDeque};

/// Runs of so many units stay as they are when they have to wait: a list of those takes no more than bits for a while, and few more at worst.
const LONG_UNITS: u32 = 32;
/// Units that one call moves at most.
const MOVED_UNITS: u32 = 4096;

/// See the head of the file.
#[derive(Debug, Default)]
pub(in crate::space) struct ExtentSpace {
    writing_units: u64,
    /// Left, by the epoch in which they were, which never falls.
    left: VecDeque<(Epoch, Run)>,
    /// The same of those that nobody needs who looks at one moment.
    young: VecDeque<Young>,
    births: Births,
    /// Left before that, and somebody holds all of them back: by the last epoch in which any of a group was.
    waiting: BTreeMap<Epoch, Waiting>,
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
    /// Who looks at one moment: by when they began.
    fixed: BTreeMap<Epoch, Fixed>,
    /// Who reads one extent, by the first units of its runs.
    read_runs: BTreeMap<u64, ReadRun>,
    /// None of these is longer.
    longest_read: u32,
}

/// A run that was left, and nobody needed then who looked at one moment.
#[derive(Clone, Copy, Debug)]
struct Young {
    born: Epoch,
    left: Epoch,
    run: Run,
}

/// Who looks at one moment, and began in the same epoch.
#[derive(Debug)]
struct Fixed {
    count: u32,
    /// None of them refers to what was entered later.
    last: Epoch,
}

/// Somebody who looks at one moment: when it began. To be given to [`ExtentSpace::fixed_ends`].
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct FixedReader {
    from: Epoch,
}

/// Units that the same ones hold back. There may be as many as somebody overwrites while a snapshot lives.
#[derive(Debug, Default)]
struct Waiting {
    units: UnitSet,
    long: Vec<Run>,
}

impl Waiting {
    fn take_in(&mut self, run: Run) {
        match run.units < LONG_UNITS {
            true => self.units.insert(run.unit, run.units),
            false => self.long.push(run),
        }
    }

    /// Some of them, of `most` units at least if there are as many. None are left when it gives none.
    fn take_some(&mut self, most: u64) -> Vec<Run> {
        if let Some(run) = self.long.pop() {
            return vec![run];
        }
        let mut taken: Vec<Run> = Vec::new();
        self.units.take_some(
            usize::try_from(most).unwrap_or(usize::MAX),
            |unit, units| match taken.last_mut() {
                Some(run) if run.unit + u64::from(run.units) == unit => run.units += units,
                _ => taken.push(Run { unit, units }),
            },
        );
        taken
    }

    fn memory_bytes(&self) -> usize {
        self.units.memory_bytes() + self.long.capacity() * size_of::<Run>() + 64
    }
}

/// A run that is being read.
#[derive(Debug, Default)]
struct ReadRun {
    units: u32,
    readers: u32,
    /// Nothing else needs it any more. One run, unless the file is damaged.
    freed: Vec<Run>,
}

/// Memory of one of them, with its share of the tree.
const READ_RUN_BYTES: usize = 64;

impl ExtentSpace {
    pub(in crate::space) fn memory_bytes(&self) -> usize {
        self.left.capacity() * size_of::<(Epoch, Run)>()
            + self.young.capacity() * size_of::<Young>()
            + self.births.memory_bytes()
            + self.waiting.values().map(Waiting::memory_bytes).sum::<usize>()
            + (self.readers.len() + self.fixed.len()) * 64
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

    /// The extent's record was put in `epoch`.
    pub(super) fn entered(&mut self, extent: &Extent, epoch: Epoch, quarantine: &Quarantine) {
        if !self.is_replaying && (!self.fixed.is_empty() || quarantine.pinned_checkpoints() > 0) {
            let fixed = &self.fixed;
            self.births.note(extent, epoch, |from, to| {
                fixed.values().any(|of| (from..to).contains(&of.last))
                    || quarantine.is_pinned_within(from, to)
            });
        }
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
    pub(super) fn left(&mut self, extent: &Extent, epoch: Epoch, quarantine: &Quarantine) -> u64 {
        let born = self.births.take(extent);
        let is_young = born > Epoch(0) && !self.is_fixed_or_pinned_within(born, epoch, quarantine);
        // Writers of two epochs may be inside when one begins.
        let last = match is_young {
            true => self.young.back().map(|last| last.left),
            false => self.left.back().map(|&(last, _)| last),
        };
        let epoch = last.map_or(epoch, |last| last.max(epoch));
        for &run in &extent.runs {
            let mut units = u64::from(run.units);
            if self.is_replaying {
                // Each unit once: the log of a damaged store may supersede it more often.
                let before = self.left_in_replay.len();
                self.left_in_replay.insert(run.unit, run.units);
                units = self.left_in_replay.len() - before;
            } else if is_young {
                self.young.push_back(Young { born, left: epoch, run });
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

    /// Whether somebody who looks at one moment may refer to an extent that was entered in `born` and left in `left`.
    fn is_fixed_or_pinned_within(&self, born: Epoch, left: Epoch, quarantine: &Quarantine) -> bool {
        self.fixed.range(..=left).any(|(_, of)| of.last >= born)
            || quarantine.is_pinned_within(born, left)
    }

    /// Whether somebody reads who may come to what was left in an epoch from one up to another one, both included.
    fn is_read_within(&self, from: Epoch, to: Epoch) -> bool {
        self.readers.range(from..=to).next().is_some()
            || self.fixed.range(from..=to).next().is_some()
    }

    /// Takes out some of the runs that were left, of `most` units at least if there are as many. They are the caller's to free, but for what
    /// somebody reads, who frees it then. `None`: there are none.
    pub(super) fn take_left(&mut self, most: u64, quarantine: &Quarantine) -> Option<Vec<Run>> {
        if let Some(taken) = self.take_young(most, quarantine) {
            return Some(taken.into_iter().flat_map(|run| self.unread(run)).collect());
        }
        let mut taken = Vec::new();
        // And so is all that was left later.
        let is_held = |extents: &ExtentSpace, epoch| {
            epoch > quarantine.durable()
                || quarantine.is_pinned_before(epoch)
                || extents.is_read_within(Epoch(0), epoch)
        };
        if let Some(&first) = self.waiting.keys().next() {
            if is_held(self, first) {
                return None;
            }
            if let Some(waiting) = self.waiting.get_mut(&first) {
                taken = waiting.take_some(most);
            }
            if taken.is_empty() {
                self.waiting.remove(&first);
            }
        } else {
            let mut units = 0;
            while units < most
                && let Some(&(epoch, run)) = self.left.front()
                && !is_held(self, epoch)
            {
                self.left.pop_front();
                units += u64::from(run.units);
                taken.push(run);
            }
            if taken.is_empty() {
                return None;
            }
        }
        Some(taken.into_iter().flat_map(|run| self.unread(run)).collect())
    }

    /// The same, of what nobody needed who looked at one moment when it was left. Whom somebody needs who began since waits with the others.
    fn take_young(&mut self, most: u64, quarantine: &Quarantine) -> Option<Vec<Run>> {
        let (mut taken, mut units) = (Vec::new(), 0);
        while units < most
            && let Some(&Young { born, left, run }) = self.young.front()
            && left <= quarantine.durable()
            && self.readers.range(..=left).next().is_none()
        {
            self.young.pop_front();
            units += u64::from(run.units);
            if self.is_fixed_or_pinned_within(born, left, quarantine) {
                let left = self.left.back().map_or(left, |&(last, _)| last.max(left));
                self.left.push_back((left, run));
            } else {
                taken.push(run);
            }
        }
        if units == 0 {
            // There may have been many.
            if self.young.capacity() > 4 * self.young.len().max(1024) {
                self.young.shrink_to(2 * self.young.len());
            }
            return None;
        }
        Some(taken)
    }

    /// Forgets when extents were entered, as far as nobody is left to whom that matters.
    pub(super) fn forget_births(&mut self, quarantine: &Quarantine) {
        let fixed = self.fixed.values().map(|of| of.last).min();
        self.births.forget_up_to(fixed.into_iter().chain(quarantine.oldest_pin()).min());
    }

    /// What was left up to a durable epoch, and is held back, takes a bit for each unit from now on, but for so many runs: somebody may hold it
    /// for long. Moves some of it; false: there is no more.
    pub(super) fn keep_waiting(&mut self, listed_runs: usize, quarantine: &Quarantine) -> bool {
        let mut moved_units = 0;
        while moved_units < MOVED_UNITS {
            let next = self.left.front().filter(|_| self.left.len() > listed_runs);
            let Some(&(epoch, run)) = next.filter(|(epoch, _)| *epoch <= quarantine.durable())
            else {
                // It may have been a long list.
                if self.left.capacity() > 4 * self.left.len().max(listed_runs) {
                    self.left.shrink_to(2 * self.left.len());
                }
                return false;
            };
            self.left.pop_front();
            moved_units += run.units.min(LONG_UNITS);
            let is_alike = |last: Epoch| {
                last < epoch
                    && quarantine.is_pinned_alike(last, epoch)
                    && !self.is_read_within(Epoch(last.0 + 1), epoch)
            };
            let last = self.waiting.keys().next_back().copied().filter(|&last| is_alike(last));
            let before = last.and_then(|last| self.waiting.remove(&last));
            self.waiting.entry(epoch).or_insert_with(|| before.unwrap_or_default()).take_in(run);
        }
        true
    }

    /// The parts of a run that nobody is reading. Who reads another part frees it.
    fn unread(&mut self, run: Run) -> Vec<Run> {
        let end = run.unit + u64::from(run.units);
        let (mut parts, mut from) = (Vec::new(), run.unit);
        // Of a snapshot that was given up there may be some that overlap: a shorter one hides none that begins before it.
        let reach = run.unit.saturating_sub(u64::from(self.longest_read));
        let read = self.read_runs.range_mut(reach..end);
        for (&first, of) in read.filter(|(first, of)| **first + u64::from(of.units) > run.unit) {
            let (start, stop) = (first.max(from), (first + u64::from(of.units)).min(end));
            parts.extend((from < start).then(|| part(from, start)));
            if start < stop {
                of.freed.push(part(start, stop));
            }
            from = from.max(stop);
        }
        parts.extend((from < end).then(|| part(from, end)));
        parts
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

    /// Who has [begun](Self::reading_begins) looks at one moment from now on, and refers to no extent that was entered after `last`. Somebody
    /// ends it by [`Self::fixed_ends`].
    pub(in crate::space) fn reading_is_fixed(&mut self, from: Epoch, last: Epoch) -> FixedReader {
        let fixed = self.fixed.entry(from).or_insert(Fixed { count: 0, last });
        (fixed.count, fixed.last) = (fixed.count + 1, fixed.last.max(last));
        self.reading_ends(from);
        FixedReader { from }
    }

    /// A reader that looked at one moment has ended.
    pub(in crate::space) fn fixed_ends(&mut self, reader: FixedReader) {
        if let Some(fixed) = self.fixed.get_mut(&reader.from) {
            fixed.count -= 1;
            if fixed.count == 0 {
                self.fixed.remove(&reader.from);
            }
        }
    }

    /// Notes that these runs of an extent are being read, whoever else needs them. While they cannot be free: the caller is
    /// between [`Self::reading_begins`] and [`Self::reading_ends`], and has looked up the record in between.
    pub(in crate::space) fn reading_one_begins(&mut self, runs: &[Run]) {
        for run in runs {
            let read = self.read_runs.entry(run.unit).or_default();
            read.readers += 1;
            read.units = read.units.max(run.units);
            self.longest_read = self.longest_read.max(run.units);
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
        let freed = self.read_runs.remove(&run.unit).map_or(Vec::new(), |read| read.freed);
        if self.read_runs.is_empty() {
            self.longest_read = 0;
        }
        // Of a snapshot that was given up one may have asked for what is another value's by now, and that one may still be read.
        freed.into_iter().flat_map(|part| self.unread(part)).collect()
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

/// The units from one up to, and without, another one.
fn part(from: u64, to: u64) -> Run {
    Run { unit: from, units: (to - from) as u32 }
}

#[cfg(test)]
mod tests;
