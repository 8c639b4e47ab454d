//! Rounds of power cuts: a file system and a store are made, written to, cut off and checked, again and again.
//!
//! In a cycle a writer goes on from what is there; at a random moment the power is cut, in some cycles after calls to the
//! disk have failed; the file system comes up from what survived, and the store has to have all that was acknowledged
//! before the cut. Some openings are cut off, too. Then the next writer goes on: from the store as the check has left it
//! without closing, from a file system that was unmounted in between, or after one more cut.
//!
//! Everything but the moments follows from the seed, so a seed brings back what is done, and not exactly when.
//! Invariant: `there` of a round is what the last check has found. Single-threaded.

use crate::device::{Fails, Faults};
use crate::dice::Dice;
use crate::failure::Failure;
use crate::file_system::{Cut, Disk, Kind, Owned, Place, forgotten};
use crate::process::{Clock, Script, Tool, judge, judge_opening};
use std::ops::AddAssign;
use std::time::{Duration, Instant};

/// Cycles in which calls fail, of a hundred.
const FAULTY_PERCENT: u64 = 30;
/// The longest time before a cut of who opens the store, and of who writes to it.
const LONGEST_OPENING_US: u64 = 40_000;
const LONGEST_WRITING_US: u64 = 400_000;
/// The longest time that a cut waits for writes that are pending, and how often it looks.
const LONGEST_PATIENCE_US: u64 = 200_000;
const LOOK: Duration = Duration::from_micros(20);

/// What was done and found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Cycles that came to their end.
    pub cycles: u64,
    /// Power cuts: of a writer one in each cycle, of openings, and of nobody.
    pub power_cuts: u64,
    /// Cycles in which a call failed.
    pub faulty: u64,
    /// Calls that failed.
    pub failed_calls: u64,
    /// Changes that were acknowledged as durable before a cut, and were there after it.
    pub acknowledged: u64,
    /// Flushes that came to the device while a writer ran.
    pub flushes: u64,
    /// Writes that a cut has lost, and has torn.
    pub lost_writes: u64,
    pub torn_writes: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.cycles += other.cycles;
        self.power_cuts += other.power_cuts;
        self.faulty += other.faulty;
        self.failed_calls += other.failed_calls;
        self.acknowledged += other.acknowledged;
        self.flushes += other.flushes;
        self.lost_writes += other.lost_writes;
        self.torn_writes += other.torn_writes;
    }
}

/// What all rounds have in common.
pub struct Bench {
    pub tool: Tool,
    pub place: Place,
    pub device_bytes: u64,
    pub is_lying: bool,
}

/// One file system with one store.
pub struct Round<'a> {
    bench: &'a Bench,
    /// `None` only while it is replaced.
    disk: Option<Disk<'a>>,
    dice: Dice,
    seed: u64,
    there: Clock,
    /// What the last cut has left, before anybody changed it.
    evidence: Option<Owned>,
    pub counts: Counts,
}

impl<'a> Round<'a> {
    /// Makes the file system; the store is made by the first writer.
    pub fn new(bench: &'a Bench, kind: Kind, mut dice: Dice) -> Result<Round<'a>, Failure> {
        let seed = dice.draw() >> 32;
        let disk = Disk::make(&bench.place, kind, bench.device_bytes, bench.is_lying, &mut dice)?;
        let (there, counts) = (Clock::default(), Counts::default());
        Ok(Round { bench, disk: Some(disk), dice, seed, there, evidence: None, counts })
    }

    /// One writer, one cut of it, and a check. If something is found on a disk that does not lie, what the last cut has
    /// left is kept, and named.
    pub fn cycle(&mut self) -> Result<(), Failure> {
        let outcome = self.accidents();
        let Err(Failure::Found(words)) = &outcome else { return outcome };
        let Some(evidence) = self.evidence.as_ref().filter(|_| !self.bench.is_lying) else {
            return outcome;
        };
        let name = format!("hedgerow-power-cuts-{}-{}.image", self.seed, std::process::id());
        let path = std::env::temp_dir().join(name);
        let kept = match evidence.save(&path) {
            Ok(()) => {
                format!(
                    "see {}, the disk after the last cut, whose store has seed {}",
                    path.display(),
                    self.seed
                )
            }
            Err(failed) => failed,
        };
        Err(Failure::Found(format!("{words}; {kept}")))
    }

    fn accidents(&mut self) -> Result<(), Failure> {
        let acknowledged = self.write_and_cut()?;
        if self.dice.percent(25) {
            self.open_and_cut()?;
        }
        self.check(&acknowledged)?;
        match self.dice.below(4) {
            0 => {}
            1 => {
                self.restart()?;
                self.check(&acknowledged)?;
            }
            2 => {
                self.cut_only()?;
                self.check(&acknowledged)?;
            }
            _ => {
                self.open_and_kill()?;
                self.restart()?;
                self.check(&acknowledged)?;
            }
        }
        self.counts.cycles += 1;
        Ok(())
    }

    fn disk(&self) -> Result<&Disk<'a>, Failure> {
        self.disk.as_ref().ok_or_else(forgotten)
    }

    fn take_disk(&mut self) -> Result<Disk<'a>, Failure> {
        self.disk.take().ok_or_else(forgotten)
    }

    fn with_script<T>(
        &self,
        run: impl FnOnce(&Script<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let store = self.disk()?.path().join("cut.hrow");
        run(&Script { store: &store, seed: self.seed, there: self.there })
    }

    fn sleep(&mut self, longest_us: u64) {
        std::thread::sleep(Duration::from_micros(self.dice.below(longest_us)));
    }

    /// Starts a writer, and cuts it off. The last changes that it had acknowledged by then.
    fn write_and_cut(&mut self) -> Result<Clock, Failure> {
        let device = &self.bench.place.device;
        let faults = self.dice.percent(FAULTY_PERCENT).then(|| draw_faults(&mut self.dice));
        let image = self.disk()?.image();
        let before = device.counts(image).map_err(|_| forgotten())?;
        let disk_fails = faults.is_some();
        let mut writer = self.with_script(|script| self.bench.tool.write(script, disk_fails))?;
        let longest_us = if self.dice.percent(25) {
            LONGEST_OPENING_US
        } else {
            writer.wait_for_opening()?;
            LONGEST_WRITING_US
        };
        self.sleep(longest_us);
        if let Some(faults) = faults {
            device.fail(image, faults).map_err(|_| forgotten())?;
            self.sleep(longest_us / 2);
        }
        let disk = self.take_disk()?;
        let (heard, cut) = cut_busy(&disk, &mut self.dice, || writer.heard())?;
        self.evidence = Some(cut.copy()?);
        let after = device.counts(image).map_err(|_| forgotten())?;
        // A disk that was to fail, and did not, is no reason to end.
        judge(&writer.kill()?, after.failed > before.failed)?;
        let flushes = after.flushes - before.flushes;
        if heard.acknowledged > 0 && flushes == 0 {
            return Err(Failure::Found(format!(
                "{} changes were acknowledged as durable, and no flush came to the device",
                heard.acknowledged
            )));
        }
        self.counts.flushes += flushes;
        self.counts.failed_calls += after.failed - before.failed;
        self.counts.faulty += u64::from(after.failed > before.failed);
        self.counts.acknowledged += heard.acknowledged;
        self.replace(disk, cut)?;
        Ok(heard.last)
    }

    fn replace(&mut self, disk: Disk<'a>, cut: Cut) -> Result<(), Failure> {
        let survived = cut.survived;
        self.counts.power_cuts += 1;
        self.counts.lost_writes += (survived.pending - survived.there) as u64;
        self.counts.torn_writes += survived.torn as u64;
        self.evidence = Some(cut.copy()?);
        self.disk = Some(disk.replace(cut)?);
        Ok(())
    }

    /// Cuts the power while what is left is opened.
    fn open_and_cut(&mut self) -> Result<(), Failure> {
        let opening = self.with_script(|script| self.bench.tool.open(script))?;
        self.sleep(LONGEST_OPENING_US);
        let disk = self.take_disk()?;
        let ((), cut) = cut_busy(&disk, &mut self.dice, || ())?;
        judge_opening(&opening.kill()?)?;
        self.replace(disk, cut)
    }

    /// Kills who opens what is left, without a cut.
    fn open_and_kill(&mut self) -> Result<(), Failure> {
        let opening = self.with_script(|script| self.bench.tool.open(script))?;
        self.sleep(LONGEST_OPENING_US);
        judge_opening(&opening.kill()?)
    }

    /// Cuts the power while nobody does anything.
    fn cut_only(&mut self) -> Result<(), Failure> {
        let disk = self.take_disk()?;
        let mut own = Dice::new(self.dice.draw());
        let cut = disk.cut(0, &mut own)?.ok_or_else(forgotten)?;
        self.replace(disk, cut)
    }

    fn restart(&mut self) -> Result<(), Failure> {
        self.disk = Some(self.take_disk()?.restart()?);
        Ok(())
    }

    fn check(&mut self, acknowledged: &Clock) -> Result<(), Failure> {
        self.there = self.with_script(|script| self.bench.tool.check(script, acknowledged))?;
        Ok(())
    }
}

/// Cuts the power, soon: three times in four not before so many writes are pending, of which a moment that is drawn alone
/// finds few. With it, what was heard before.
fn cut_busy<T>(
    disk: &Disk<'_>,
    dice: &mut Dice,
    mut hear: impl FnMut() -> T,
) -> Result<(T, Cut), Failure> {
    let least_pending = if dice.percent(75) { 1 << dice.below(8) } else { 0 };
    let patience = Duration::from_micros(dice.below(LONGEST_PATIENCE_US));
    // How many draws a cut needs depends on the moment; whatever comes later does not.
    let mut own = Dice::new(dice.draw());
    let begun = Instant::now();
    loop {
        let least_pending = if begun.elapsed() < patience { least_pending } else { 0 };
        // Before each attempt: what is read after a cut may have been acknowledged after it.
        let heard = hear();
        if let Some(cut) = disk.cut(least_pending, &mut own)? {
            return Ok((heard, cut));
        }
        std::thread::sleep(LOOK);
    }
}

/// A flush that fails once and loses what was pending is not among them: where it is one of the file system's own, nobody who
/// syncs later is told.
fn draw_faults(dice: &mut Dice) -> Faults {
    let (writes, flushes, drops_pending) = match dice.below(6) {
        0 => (Fails::Once, Fails::Never, false),
        1 => (Fails::Always, Fails::Never, false),
        2 => (Fails::Never, Fails::Once, false),
        3 => (Fails::Never, Fails::Always, false),
        4 => (Fails::Never, Fails::Always, true),
        _ => (Fails::Always, Fails::Always, true),
    };
    Faults { writes, flushes, drops_pending }
}
