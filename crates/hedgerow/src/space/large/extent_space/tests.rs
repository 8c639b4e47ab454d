//! Tests of the account of extents: memory, who reads a part, and the whole against the rule.

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

/// A moment that somebody looks at: since when, its last epoch, and a snapshot's reader; else it is a pin's.
type Look = (Epoch, Epoch, Option<FixedReader>);

/// The account, and what it should say.
struct Life {
    extents: ExtentSpace,
    durable: Quarantine,
    epoch: u64,
    next: u64,
    readers: Vec<Epoch>,
    ones: Vec<Run>,
    looks: Vec<Look>,
    /// Runs that are there, and the epoch that each was entered in, or zero.
    there: Vec<(Run, u64)>,
    /// Units that were left: when the run was entered, and when it was left.
    left: BTreeMap<u64, (u64, u64)>,
    freed: u64,
    /// Of these, beside who looked at an earlier moment.
    freed_young: u64,
}

fn pick<T>(of: &mut Vec<T>, random: &mut SplitMix64) -> Option<T> {
    let at = random.below((of.len() as u64).max(1)) as usize;
    (at < of.len()).then(|| of.swap_remove(at))
}

impl Life {
    fn new() -> Life {
        Life {
            extents: ExtentSpace::default(),
            durable: Quarantine::new(Epoch(2)),
            epoch: 3,
            next: 0,
            readers: Vec::new(),
            ones: Vec::new(),
            looks: Vec::new(),
            there: Vec::new(),
            left: BTreeMap::new(),
            freed: 0,
            freed_young: 0,
        }
    }

    fn enter(&mut self, random: &mut SplitMix64) {
        let units = if random.below(50) == 0 { 300 } else { 1 + random.below(4) };
        let run = Run { unit: self.next, units: units as u32 };
        let born = [0, self.epoch - random.below(2)][random.below(2) as usize];
        if born > 0 {
            self.extents.writing(units);
            let extent = runs_of(self.next, units as u32);
            self.extents.entered(&extent, Epoch(born), &self.durable);
        }
        self.there.push((run, born));
        self.next += units + random.below(2) * random.below(9000);
    }

    fn leave(&mut self, random: &mut SplitMix64) {
        let Some((run, born)) = pick(&mut self.there, random) else { return };
        if random.below(200) == 0 {
            self.extents.reading_one_begins(&[run]);
            self.ones.push(run);
        }
        let when = (self.epoch - random.below(2)).max(born);
        self.extents.left(&runs_of(run.unit, run.units), Epoch(when), &self.durable);
        let units = run.unit..run.unit + u64::from(run.units);
        self.left.extend(units.map(|unit| (unit, (born, self.epoch))));
    }

    fn step(&mut self, random: &mut SplitMix64) {
        match random.below(14) {
            0..3 => (0..random.below(1500)).for_each(|_| self.enter(random)),
            3..5 => (0..random.below(1500)).for_each(|_| self.leave(random)),
            5 => self.readers.push(self.extents.reading_begins(Epoch(self.epoch))),
            6 => self.end_reader(random),
            7 => {
                if let Some(from) = pick(&mut self.readers, random) {
                    let fixed = self.extents.reading_is_fixed(from, Epoch(self.epoch));
                    self.looks.push((from, Epoch(self.epoch), Some(fixed)));
                }
            }
            8 => {
                let pin = self.durable.pin();
                self.looks.push((Epoch(pin.0 + 1), pin, None));
            }
            9 => self.end_look(random),
            10 => self.end_one(random),
            11 | 12 => self.end_epoch(),
            _ => {}
        }
    }

    fn end_reader(&mut self, random: &mut SplitMix64) {
        if let Some(from) = pick(&mut self.readers, random) {
            self.extents.reading_ends(from);
        }
    }

    fn end_look(&mut self, random: &mut SplitMix64) {
        match pick(&mut self.looks, random) {
            Some((_, _, Some(fixed))) => self.extents.fixed_ends(fixed),
            Some((_, pin, None)) => self.durable.unpin(pin).unwrap(),
            None => {}
        }
    }

    fn end_one(&mut self, random: &mut SplitMix64) {
        let Some(run) = pick(&mut self.ones, random) else { return };
        for run in self.extents.reading_run_ends(run) {
            self.extents.freed(run);
            for unit in run.unit..run.unit + u64::from(run.units) {
                assert!(self.left.remove(&unit).is_some());
            }
            self.freed += u64::from(run.units);
        }
    }

    fn end_epoch(&mut self) {
        self.durable.checkpoint_durable(Epoch(self.epoch));
        self.epoch += 1;
    }

    /// Frees what there is to free, and holds it against the rule.
    fn free(&mut self, listed: usize, random: &mut SplitMix64) {
        while let Some(runs) = self.extents.take_left(1 + random.below(5000), &self.durable) {
            for run in runs {
                self.extents.freed(run);
                self.freed += u64::from(run.units);
                for unit in run.unit..run.unit + u64::from(run.units) {
                    let (born, of) = self.left.remove(&unit).expect("a unit is freed once");
                    // In which the change may have been made.
                    let of = Epoch(of.saturating_sub(1));
                    assert!(of <= self.durable.durable());
                    assert!(self.readers.iter().all(|reader| *reader > of));
                    let refers = |&(from, last, _): &Look| from <= of && last.0 >= born;
                    assert!(!self.looks.iter().any(refers));
                    self.freed_young += u64::from(self.looks.iter().any(|look| look.0 <= of));
                    let units = |run: &Run| run.unit..run.unit + u64::from(run.units);
                    assert!(!self.ones.iter().any(|run| units(run).contains(&unit)));
                }
            }
        }
        self.extents.forget_births(&self.durable);
        while self.extents.keep_waiting(listed, &self.durable) {}
        assert_eq!(self.extents.left_units(), self.left.len() as u64);
    }
}

/// Against the rule, unit by unit: nothing is free while somebody may read it or a pin needs it, and everything is in the end.
#[test]
fn nothing_is_free_before_all_who_hold_it_back_have_ended() {
    let mut random = SplitMix64::new(fresh_seed());
    let mut freed_young = 0;
    for _ in 0..30 * effort() {
        let mut life = Life::new();
        let listed = [0, 100, 2000][random.below(3) as usize];
        for _ in 0..400 {
            life.step(&mut random);
            life.free(listed, &mut random);
        }
        while !life.readers.is_empty() {
            life.end_reader(&mut random);
        }
        while !life.looks.is_empty() {
            life.end_look(&mut random);
        }
        life.end_epoch();
        life.free(listed, &mut random);
        while !life.ones.is_empty() {
            life.end_one(&mut random);
        }
        assert!(life.freed > 0 && life.extents.left_units() == 0);
        assert_eq!(life.extents.births.memory_bytes(), 0);
        freed_young += life.freed_young;
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
