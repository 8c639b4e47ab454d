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

/// Somebody who looks at one moment: when it began, and the epoch of the last extents that it may refer to.
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
        let mut taken = self.take_young(most, quarantine);
        if !taken.is_empty() {
            return Some(taken.into_iter().flat_map(|run| self.unread(run)).collect());
        }
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
    fn take_young(&mut self, most: u64, quarantine: &Quarantine) -> Vec<Run> {
        let (mut taken, mut units) = (Vec::new(), 0);
        while units < most
            && let Some(&Young { born, left, run }) = self.young.front()
            && left <= quarantine.durable()
            && self.readers.range(..=left).next().is_none()
        {
            self.young.pop_front();
            if self.is_fixed_or_pinned_within(born, left, quarantine) {
                let left = self.left.back().map_or(left, |&(last, _)| last.max(left));
                self.left.push_back((left, run));
            } else {
                units += u64::from(run.units);
                taken.push(run);
            }
        }
        taken
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
mod tests {
    use super::*;
    use crate::testing::environment::{effort, fresh_seed};
    use hedgerow_sync::primitive::random::SplitMix64;

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
        let _fixed = extents.reading_is_fixed(Epoch(1), Epoch(3));
        assert_eq!(extents.memory_bytes(), runs * 24 + 2 * 64);
        let none = Quarantine::new(Epoch(3));
        extents.entered(&runs_of(100, 1), Epoch(4), &none);
        let mut one = UnitSet::default();
        one.insert(100, 1);
        let noted = one.memory_bytes() + 64;
        assert_eq!(extents.memory_bytes(), runs * 24 + 2 * 64 + noted);
        extents.left(&runs_of(100, 1), Epoch(5), &none);
        extents.forget_births(&none);
        let young = extents.young.capacity() * size_of::<Young>();
        assert_eq!(extents.memory_bytes(), runs * 24 + 2 * 64 + young);
    }

    fn runs_of(unit: u64, units: u32) -> Extent {
        let runs = vec![Run { unit, units }];
        Extent { len_bytes: 1, seed: 1, runs: runs.into() }
    }

    #[test]
    fn what_is_held_back_for_long_takes_a_bit_a_unit_whatever_is_left_meanwhile() {
        let mut extents = ExtentSpace::default();
        // A snapshot began, and everything is overwritten, with a checkpoint now and then.
        let reader = extents.reading_begins(Epoch(2));
        let (runs, units) = (400_000_u64, 4);
        let mut durable = Quarantine::new(Epoch(1));
        for n in 0..runs {
            let epoch = Epoch(2 + n / 10_000);
            extents.left(&runs_of(n * units, units as u32), epoch, &durable);
            if n % 10_000 == 9_999 {
                durable.checkpoint_durable(epoch);
                assert_eq!(extents.take_left(u64::MAX, &durable), None);
                while extents.keep_waiting(1000, &durable) {}
            }
        }
        let most = (runs * units / 8) as usize * 5 / 4 + 4 * 1000 * 24;
        assert!(extents.memory_bytes() < most, "{} bytes", extents.memory_bytes());
        assert_eq!(extents.left_units(), runs * units);
        extents.reading_ends(reader);
        while let Some(runs) = extents.take_left(1 << 16, &durable) {
            runs.into_iter().for_each(|run| extents.freed(run));
        }
        assert_eq!(extents.left_units(), 0);
        assert!(extents.memory_bytes() < 5 * 1000 * 24);
    }

    /// The longer run was freed before it was asked for, and a part of it is another value's by now.
    #[test]
    fn what_somebody_reads_is_not_freed_by_the_end_of_who_asked_for_more() {
        let mut extents = ExtentSpace::default();
        let (stale, read) = (Run { unit: 100, units: 10 }, Run { unit: 105, units: 3 });
        extents.reading_one_begins(&[stale]);
        extents.reading_one_begins(&[read]);
        let durable = Quarantine::new(Epoch(2));
        extents.left(&runs_of(105, 3), Epoch(2), &durable);
        assert_eq!(extents.take_left(u64::MAX, &durable), Some(Vec::new()));
        assert_eq!(extents.reading_run_ends(stale), []);
        assert_eq!(extents.reading_run_ends(read), [read]);
    }

    /// The shorter one, which ends before the run that is freed, hid the longer one, which goes into it.
    #[test]
    fn what_somebody_reads_is_not_freed_beside_who_asked_for_less_in_the_middle() {
        let mut extents = ExtentSpace::default();
        let (read, stale) = (Run { unit: 90, units: 16 }, Run { unit: 95, units: 3 });
        extents.reading_one_begins(&[read]);
        extents.reading_one_begins(&[stale]);
        let durable = Quarantine::new(Epoch(2));
        extents.left(&runs_of(100, 10), Epoch(2), &durable);
        let rest = Run { unit: 106, units: 4 };
        assert_eq!(extents.take_left(u64::MAX, &durable), Some(vec![rest]));
        assert_eq!(extents.reading_run_ends(stale), []);
        assert_eq!(extents.reading_run_ends(read), [Run { unit: 100, units: 6 }]);
    }

    /// A moment that somebody looks at: a snapshot's, and how it is ended, or a pin's.
    type Look = (Epoch, Epoch, Option<FixedReader>);

    /// Against the rule, unit by unit: nothing is free while somebody may read it or a pin needs it, and everything is in the end.
    #[test]
    fn nothing_is_free_before_all_who_hold_it_back_have_ended() {
        let mut random = SplitMix64::new(fresh_seed());
        let mut freed_young = 0;
        for _ in 0..30 * effort() {
            let mut extents = ExtentSpace::default();
            let (mut epoch, mut next, mut freed) = (3_u64, 0_u64, 0_u64);
            let mut durable = Quarantine::new(Epoch(2));
            let listed = [0, 100, 2000][random.below(3) as usize];
            let (mut readers, mut ones, mut looks) = (Vec::new(), Vec::new(), Vec::<Look>::new());
            // Those that are there: the run, and the epoch that it was entered in, or zero.
            let mut there: Vec<(Run, u64)> = Vec::new();
            // Units that were left: when the run was entered, and when it was left.
            let mut left: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            for step in 0..400 {
                match random.below(14) {
                    0..3 => {
                        for _ in 0..random.below(1500) {
                            let units =
                                if random.below(50) == 0 { 300 } else { 1 + random.below(4) };
                            let run = Run { unit: next, units: units as u32 };
                            let born = [0, epoch - random.below(2)][random.below(2) as usize];
                            if born > 0 {
                                extents.writing(units);
                                let extent = runs_of(next, units as u32);
                                extents.entered(&extent, Epoch(born), &durable);
                            }
                            there.push((run, born));
                            next += units + random.below(2) * random.below(9000);
                        }
                    }
                    3..5 => {
                        for _ in 0..random.below(1500).min(there.len() as u64) {
                            let at = random.below(there.len() as u64) as usize;
                            let (run, born) = there.swap_remove(at);
                            if random.below(200) == 0 {
                                extents.reading_one_begins(&[run]);
                                ones.push(run);
                            }
                            let when = (epoch - random.below(2)).max(born);
                            let extent = runs_of(run.unit, run.units);
                            extents.left(&extent, Epoch(when), &durable);
                            let units = run.unit..run.unit + u64::from(run.units);
                            left.extend(units.map(|unit| (unit, (born, epoch))));
                        }
                    }
                    5 => readers.push(extents.reading_begins(Epoch(epoch))),
                    6 if !readers.is_empty() => {
                        let at = random.below(readers.len() as u64) as usize;
                        extents.reading_ends(readers.swap_remove(at));
                    }
                    7 if !readers.is_empty() => {
                        let at = random.below(readers.len() as u64) as usize;
                        let (from, last) = (readers.swap_remove(at), Epoch(epoch));
                        looks.push((from, last, Some(extents.reading_is_fixed(from, last))));
                    }
                    8 => {
                        let pin = durable.pin();
                        looks.push((Epoch(pin.0 + 1), pin, None));
                    }
                    9 if !looks.is_empty() => {
                        let at = random.below(looks.len() as u64) as usize;
                        match looks.swap_remove(at) {
                            (_, _, Some(fixed)) => extents.fixed_ends(fixed),
                            (_, pin, None) => durable.unpin(pin).unwrap(),
                        }
                    }
                    10 if !ones.is_empty() => {
                        let run = ones.swap_remove(random.below(ones.len() as u64) as usize);
                        for run in extents.reading_run_ends(run) {
                            extents.freed(run);
                            for unit in run.unit..run.unit + u64::from(run.units) {
                                assert!(left.remove(&unit).is_some());
                            }
                            freed += u64::from(run.units);
                        }
                    }
                    11 | 12 => {
                        durable.checkpoint_durable(Epoch(epoch));
                        epoch += 1;
                    }
                    _ => {}
                }
                if step == 399 {
                    // All end.
                    readers.drain(..).for_each(|reader| extents.reading_ends(reader));
                    for look in looks.drain(..) {
                        match look {
                            (_, _, Some(fixed)) => extents.fixed_ends(fixed),
                            (_, pin, None) => durable.unpin(pin).unwrap(),
                        }
                    }
                    durable.checkpoint_durable(Epoch(epoch));
                    epoch += 1;
                }
                while let Some(runs) = extents.take_left(1 + random.below(5000), &durable) {
                    for run in runs {
                        extents.freed(run);
                        freed += u64::from(run.units);
                        for unit in run.unit..run.unit + u64::from(run.units) {
                            let (born, of) = left.remove(&unit).expect("a unit is freed once");
                            // In which the change may have been made.
                            let of = Epoch(of.saturating_sub(1));
                            assert!(of <= durable.durable());
                            assert!(readers.iter().all(|reader| *reader > of));
                            let refers = |&(from, last, _): &Look| from <= of && last.0 >= born;
                            assert!(!looks.iter().any(refers));
                            freed_young += u64::from(looks.iter().any(|look| look.0 <= of));
                            let is_read = |run: &Run| {
                                (run.unit..run.unit + u64::from(run.units)).contains(&unit)
                            };
                            assert!(!ones.iter().any(is_read));
                        }
                    }
                }
                extents.forget_births(&durable);
                while extents.keep_waiting(listed, &durable) {}
                assert_eq!(extents.left_units(), left.len() as u64);
            }
            for run in ones {
                for run in extents.reading_run_ends(run) {
                    extents.freed(run);
                    freed += u64::from(run.units);
                }
            }
            assert!(freed > 0 && extents.left_units() == 0);
            assert!(extents.births.memory_bytes() == 0);
        }
        assert!(freed_young > 0, "nothing was free beside who looked at an earlier moment");
    }

    #[test]
    fn what_comes_and_goes_beside_a_snapshot_does_not_wait_for_it() {
        let mut extents = ExtentSpace::default();
        let mut durable = Quarantine::new(Epoch(1));
        let reader = extents.reading_begins(Epoch(2));
        let snapshot = extents.reading_is_fixed(reader, Epoch(2));
        // One that it may see, and one for each of many epochs, each of which replaces the one before.
        extents.entered(&runs_of(0, 8), Epoch(2), &durable);
        for n in 1..100 {
            extents.entered(&runs_of(8 * n, 8), Epoch(2 + n), &durable);
            extents.left(&runs_of(8 * (n - 1), 8), Epoch(2 + n), &durable);
            durable.checkpoint_durable(Epoch(2 + n));
            while let Some(runs) = extents.take_left(u64::MAX, &durable) {
                runs.into_iter().for_each(|run| extents.freed(run));
            }
            assert_eq!(extents.left_units(), 8);
            // Other snapshots begin and end; so many groups there are not.
            let reader = extents.reading_begins(Epoch(3 + n));
            let other = extents.reading_is_fixed(reader, Epoch(3 + n));
            extents.fixed_ends(other);
        }
        extents.fixed_ends(snapshot);
        assert!(extents.take_left(u64::MAX, &durable).is_some());
    }
}
