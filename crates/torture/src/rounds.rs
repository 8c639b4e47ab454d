//! The engine on a simulated disk that loses, tears and refuses: a round is a store from its creation to its last recovery.
//!
//! A seed decides on everything: geometry of the store, its memory, what is done to it, which call to the disk fails, when
//! the power goes and what of the writes that were not synced outlives that, and when it goes again during the recovery.
//! After each power cut and each kill the store must hold the first of the changes that were made, in their order, and
//! among them all that were said to be durable; it must verify; and it must be the same again however often the recovery is
//! cut short. Some of these stores are then closed, opened, worked with, closed and opened: what they held is there each time.
//!
//! Invariant: what a round does to its disks is a function of its seed alone, so that the seed of a finding brings it
//! back, however many threads there were: they share nothing but when to end, and no seed is drawn twice. So no clock and no real file take part, there are no background checkpoints, and a store fits into its memory
//! and is brought in by look-ups, for what the engine's threads evict and read ahead follows no seed.

use crate::failure::Failure;
use crate::scenario::{Dice, SCENARIOS, Scenario};
use crate::seed::mix;
use crate::states::{Contents, History, KEYSPACES, Name, bring_in, key, read, words};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, Error, ErrorKind, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::SimState;
use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

/// What is done after a recovery is done here, and gone in the end.
const WORK: &str = "work after a recovery";
/// Of so many stores that have recovered one is worked with: that takes as long as four recoveries.
const USED_AGAIN: u64 = 16;
/// Power cuts within power cuts.
const DEPTH: u32 = 2;

/// What was done.
#[derive(Default)]
pub struct Tally {
    /// Stores.
    pub stores: u64,
    /// Changes of records.
    pub changes: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Kills.
    pub kills: u64,
    /// Of these, during a recovery.
    pub nested: u64,
    /// Stores that were worked with after a recovery.
    pub reused: u64,
    /// Calls to the disk that failed.
    pub failures: u64,
}

impl Tally {
    /// Power cuts and kills.
    fn ends(&self) -> u64 {
        self.cuts + self.kills
    }

    fn add(&mut self, other: &Tally) {
        self.stores += other.stores;
        self.changes += other.changes;
        self.cuts += other.cuts;
        self.kills += other.kills;
        self.nested += other.nested;
        self.reused += other.reused;
        self.failures += other.failures;
    }
}

/// When no further store is begun.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// After the first one.
    One,
    /// When the time is up, or after so many power cuts and kills, whichever comes first.
    Either(Option<Duration>, Option<u64>),
}

impl Until {
    fn is_reached(self, elapsed: Duration, ends: u64) -> bool {
        match self {
            Until::One => true,
            Until::Either(time, most) => {
                time.is_some_and(|time| elapsed >= time) || most.is_some_and(|most| ends >= most)
            }
        }
    }
}

/// What the threads share.
struct Shared {
    first: u64,
    threads: u64,
    until: Until,
    begun: Instant,
    /// Power cuts and kills of the stores that are done.
    ends: AtomicU64,
    /// One of the threads is done, and so are all.
    is_over: AtomicBool,
}

impl Shared {
    /// One store after the other, each with a seed that no other thread has.
    fn run(&self, thread: u64) -> Result<Tally, Failure> {
        let outcome = self.rounds(thread);
        // Relaxed: the flag carries no data with it.
        self.is_over.store(true, Ordering::Relaxed);
        outcome
    }

    fn rounds(&self, thread: u64) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        loop {
            let number = tally.stores.wrapping_mul(self.threads).wrapping_add(thread);
            let seed = self.first.wrapping_add(number);
            let scenario = Scenario::draw(seed);
            let before = tally.ends();
            let round = catch_unwind(AssertUnwindSafe(|| Round::new(&scenario, &mut tally).run()));
            if let Err(words) = round.unwrap_or_else(|panic| Err(words_of(&*panic))) {
                let seed = SCENARIOS.seed(seed);
                return Err(Failure::Found(format!(
                    "seed {seed}: {words}; {scenario:?}; `cargo xtask torture simulate --seed {seed}` repeats it"
                )));
            }
            tally.stores += 1;
            let more = tally.ends() - before;
            let ends = self.ends.fetch_add(more, Ordering::Relaxed) + more;
            let is_over = self.is_over.load(Ordering::Relaxed);
            if is_over || self.until.is_reached(self.begun.elapsed(), ends) {
                return Ok(tally);
            }
        }
    }
}

/// Runs rounds on so many threads until there were enough. The first failure counts: the others then end with the store that they
/// are at.
pub fn simulate(first: u64, threads: u64, until: Until) -> Result<Tally, Failure> {
    let (ends, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let shared = Shared { first, threads, until, begun: Instant::now(), ends, is_over };
    let outcomes: Vec<Result<Tally, Failure>> = std::thread::scope(|scope| {
        let shared = &shared;
        let begin = |n| std::thread::Builder::new().spawn_scoped(scope, move || shared.run(n));
        let threads: Vec<_> = (0..shared.threads).map(begin).collect();
        let join = |thread: io::Result<ScopedJoinHandle<'_, Result<Tally, Failure>>>| match thread {
            Ok(thread) => {
                thread.join().unwrap_or_else(|panic| Err(Failure::Found(words_of(&*panic))))
            }
            Err(error) => Err(Failure::Io("cannot start a thread", error)),
        };
        threads.into_iter().map(join).collect()
    });
    let mut all = Tally::default();
    for outcome in outcomes {
        all.add(&outcome?);
    }
    Ok(all)
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied();
    let words = words.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("a panic: {}", words.unwrap_or("without a message"))
}

/// How a process ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The power goes: of what was not synced some is there.
    Cut,
    /// It is killed, and the system lives on: all is there, and a later power cut takes some.
    Kill,
}

struct Round<'a> {
    scenario: &'a Scenario,
    tally: &'a mut Tally,
    dice: Dice,
}

impl<'a> Round<'a> {
    fn new(scenario: &'a Scenario, tally: &'a mut Tally) -> Round<'a> {
        // Other dice than those that the scenario was drawn with.
        let dice = Dice(mix(scenario.seed ^ 0xd1ce));
        Round { scenario, tally, dice }
    }

    /// One store from its creation on.
    fn run(&mut self) -> Result<(), String> {
        let mut disk = SimDisk::new(self.dice.roll());
        let db = self.scenario.open(&disk, OpenHow::New).map_err(words("create the store"))?;
        for name in KEYSPACES {
            db.keyspace(name).map_err(words("create a keyspace"))?;
        }
        db.close().map_err(words("close the store"))?;
        let mut history = History::new(Contents::new());
        for session in 1..=self.scenario.sessions {
            // On a copy: a scan is read ahead by another thread.
            let copy = SimDisk::with_state(disk.state(), self.dice.roll());
            let found = read(&self.open(&copy)?)?;
            history.check(&found, history.durable)?;
            history = History::new(found);
            let db = self.open(&disk)?;
            bring_in(&db, &history.now)?;
            let is_last = session == self.scenario.sessions;
            self.session(&disk, &db, &mut history, is_last)?;
            // The handle stays until then: nothing of it reaches the other disk.
            let survivor = disk.crash(self.dice.roll());
            drop(db);
            self.tally.cuts += 1;
            disk = survivor;
        }
        let found = read(&self.open(&disk)?)?;
        history.check(&found, history.durable)
    }

    fn open(&self, disk: &SimDisk) -> Result<Database, String> {
        self.scenario.open(disk, OpenHow::Existing).map_err(words("open the store"))
    }

    fn session(
        &mut self,
        disk: &SimDisk,
        db: &Database,
        history: &mut History,
        is_last: bool,
    ) -> Result<(), String> {
        let fault = self.scenario.fault.filter(|_| is_last);
        let struck = fault.map(|_| self.dice.below(self.scenario.steps));
        disk.record_states(true);
        for step in 0..self.scenario.steps {
            if let Some(fault) = fault.filter(|_| struck == Some(step)) {
                disk.inject(fault);
            }
            let durable_before = history.durable;
            let done = self.step(db, history)?;
            if let Err(error) = &done {
                let is_typed = !matches!(error.kind(), ErrorKind::Corrupted { .. });
                if !is_typed || struck.is_none_or(|at| at > step) {
                    return Err(format!("an error without an injected fault: {error}"));
                }
                self.tally.failures += 1;
            }
            let mut states = disk.take_states();
            states.push(disk.state());
            if done.is_err() || self.dice.below(self.scenario.cut_every) == 0 {
                let state = &states[self.dice.below(states.len() as u64) as usize];
                // What a system shows after a sync that failed need not be on its disk: no process gets beyond that.
                let may_kill = struck.is_none_or(|at| at > step);
                let is_kill = may_kill && self.dice.below(4) == 0;
                let end = if is_kill { End::Kill } else { End::Cut };
                self.recover(state, end, history, durable_before, DEPTH, (false, None))?;
            }
            if done.is_err() {
                // What is possible after an error differs from one to the other; what is there does not.
                break;
            }
        }
        disk.record_states(false);
        disk.clear_faults();
        Ok(())
    }

    /// One step of the script: what is wrong with an answer, or the error that the engine gave.
    fn step(&mut self, db: &Database, history: &mut History) -> Result<Result<(), Error>, String> {
        let done = match self.dice.below(40) {
            0 => db.checkpoint(),
            1 => db.sync(),
            2..=4 => self.batch(db, history),
            5 => self.remove_range(db, history),
            6..=9 => self.look(db, history)?,
            _ => self.change(db, history)?,
        };
        if done.is_ok() && db.durable_position() == db.log_position() {
            history.durable = history.newest();
        }
        Ok(done)
    }

    fn name(&mut self) -> Name {
        let keyspace = self.dice.below(KEYSPACES.len() as u64) as usize;
        (keyspace, key(self.dice.below(self.scenario.keys)))
    }

    fn value(&mut self) -> Vec<u8> {
        let large = self.scenario.large_bytes.filter(|_| self.dice.below(16) == 0);
        let len = self.dice.below(large.unwrap_or(self.scenario.value_bytes) + 1);
        let seed = self.dice.roll();
        (0..len).map(|at| (mix(seed ^ (at / 8)) >> (at % 8 * 8)) as u8).collect()
    }

    /// A put or a remove, and whether it says rightly that there was such a record.
    fn change(
        &mut self,
        db: &Database,
        history: &mut History,
    ) -> Result<Result<(), Error>, String> {
        let name = self.name();
        let value = (self.dice.below(5) > 0).then(|| self.value());
        let is_synced = self.dice.below(self.scenario.sync_every) == 0;
        let durability = if is_synced { Durability::Sync } else { Durability::Buffered };
        let was_there = history.now.contains_key(&name);
        let done = db.keyspace(KEYSPACES[name.0]).and_then(|keyspace| {
            let keyspace = keyspace.with_durability(durability);
            match &value {
                Some(value) => keyspace.put(&name.1, value),
                None => keyspace.remove(&name.1),
            }
        });
        self.tally.changes += 1;
        if may_be_there(&done) && (value.is_some() || was_there) {
            history.push(vec![(name, value)]);
        }
        match done {
            Ok(said) if said != was_there => Err(format!(
                "a change reported whether the record existed as {said}; it should be {was_there}"
            )),
            Ok(_) => Ok(Ok(())),
            Err(error) => Ok(Err(error)),
        }
    }

    fn batch(&mut self, db: &Database, history: &mut History) -> Result<(), Error> {
        let mut batch = WriteBatch::new();
        if self.dice.below(self.scenario.sync_every) == 0 {
            batch.set_durability(Durability::Sync);
        }
        let most = self.dice.pick(&[3, 30, 120]);
        let mut changes = Vec::new();
        for _ in 0..1 + self.dice.below(most) {
            let name = self.name();
            let keyspace = db.keyspace(KEYSPACES[name.0])?;
            let value = (self.dice.below(3) > 0).then(|| self.value());
            match &value {
                Some(value) => batch.put(&keyspace, &name.1, value)?,
                None => batch.remove(&keyspace, &name.1)?,
            }
            changes.push((name, value));
        }
        self.tally.changes += changes.len() as u64;
        let done = db.write(&batch);
        if may_be_there(&done) {
            history.push(changes);
        }
        done.map(drop)
    }

    /// It goes leaf by leaf, in the order of the keys, and a crash may leave any first part of it.
    fn remove_range(&mut self, db: &Database, history: &mut History) -> Result<(), Error> {
        let (number, from) = self.name();
        let to = key(self.dice.below(self.scenario.keys));
        let keyspace = db.keyspace(KEYSPACES[number])?;
        let done = keyspace.remove_range(from.as_slice()..to.as_slice());
        let is_inside = |name: &&Name| name.0 == number && from <= name.1 && name.1 < to;
        let inside: Vec<Name> = history.now.keys().filter(is_inside).cloned().collect();
        self.tally.changes += inside.len() as u64;
        for name in inside {
            history.push(vec![(name, None)]);
        }
        done.map(drop)
    }

    /// A look-up, and whether its answer is right.
    fn look(&mut self, db: &Database, history: &History) -> Result<Result<(), Error>, String> {
        let name = self.name();
        let found = match db.keyspace(KEYSPACES[name.0]).and_then(|keyspace| keyspace.get(&name.1))
        {
            Ok(found) => found,
            Err(error) => return Ok(Err(error)),
        };
        if found.as_deref() != history.now.get(&name).map(Vec::as_slice) {
            return Err(format!("a get in {} gave a wrong answer", KEYSPACES[name.0]));
        }
        Ok(Ok(()))
    }

    /// Opens what an end at this state leaves, and the same once more after an end at some moment of that. `before` is whether a
    /// power cut has gone before, so that nothing but what is on the disk is there, and what the opening before this one has
    /// found, if this one has to find it as well.
    fn recover(
        &mut self,
        state: &SimState,
        end: End,
        history: &History,
        least: usize,
        depth: u32,
        before: (bool, Option<&Contents>),
    ) -> Result<(), String> {
        let left = match end {
            End::Cut => state.crash_at_random(self.dice.roll()),
            End::Kill => state.clone(),
        };
        match end {
            End::Cut => self.tally.cuts += 1,
            End::Kill => self.tally.kills += 1,
        }
        self.tally.nested += u64::from(depth < DEPTH);
        let disk = SimDisk::with_state(left, self.dice.roll());
        disk.record_states(depth > 0);
        let after = |words: String| format!("after a {end:?}: {words}");
        let db = self.open(&disk).map_err(after)?;
        let states = disk.take_states();
        let found = read(&db).map_err(after)?;
        history.check(&found, least).map_err(after)?;
        if before.1.is_some_and(|expected| *expected != found) {
            return Err(after("this open found another state than the one before".into()));
        }
        match self.dice.below(USED_AGAIN) {
            0 => self.use_again(&disk, db, &found).map_err(after)?,
            _ => drop(db),
        }
        if depth > 0 && !states.is_empty() {
            let state = &states[self.dice.below(states.len() as u64) as usize];
            let next = if self.dice.below(4) == 0 { End::Kill } else { End::Cut };
            // What a power cut has left no other one takes, and a kill takes nothing.
            let is_firm = before.0 || end == End::Cut;
            let expected = (is_firm || next == End::Kill).then_some(&found);
            self.recover(state, next, history, least, depth - 1, (is_firm, expected))?;
        }
        Ok(())
    }

    /// Closes a store that has recovered and opens it, works with it, closes it and opens it: what it held is there, and
    /// the work goes as it should.
    fn use_again(
        &mut self,
        disk: &SimDisk,
        db: Database,
        expected: &Contents,
    ) -> Result<(), String> {
        let same = |db: &Database, when: &str| match read(db) {
            Ok(found) if found == *expected => Ok(()),
            Ok(_) => Err(format!("{when} the store has other contents")),
            Err(words) => Err(format!("{when}: {words}")),
        };
        db.close().map_err(words("close the store"))?;
        let db = self.open(disk)?;
        same(&db, "closed and opened again")?;
        self.work(&db)?;
        same(&db, "after more work")?;
        db.close().map_err(words("close the store after more work"))?;
        same(&self.open(disk)?, "closed and opened after more work")?;
        self.tally.reused += 1;
        Ok(())
    }

    /// Changes that must go well, in a keyspace of their own.
    fn work(&mut self, db: &Database) -> Result<(), String> {
        let what = words("work after a recovery");
        let keyspace = db.keyspace(WORK).map_err(&what)?;
        let mut expected: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        for number in 0..40 {
            let (key, value) = (key(self.dice.below(16)), self.value());
            let was_there = expected.contains_key(&key);
            let said = match number % 4 {
                3 => {
                    expected.remove(&key);
                    keyspace.remove(&key).map_err(&what)?
                }
                _ => {
                    let said = keyspace.put(&key, &value).map_err(&what)?;
                    expected.insert(key, value);
                    said
                }
            };
            if said != was_there {
                return Err(
                    "a change after a recovery reported wrongly whether the record existed".into(),
                );
            }
            if number == 20 {
                db.checkpoint().map_err(&what)?;
            }
        }
        for number in 0..16 {
            let key = key(number);
            let found = keyspace.get(&key).map_err(&what)?;
            if found.as_deref() != expected.get(&key).map(Vec::as_slice) {
                return Err("a get after a recovery gave a wrong answer".into());
            }
        }
        drop(keyspace);
        match db.drop_keyspace(WORK).map_err(&what)? {
            true => Ok(()),
            false => Err("the keyspace that was written after the recovery is gone".into()),
        }
    }
}

/// Whether a change may be there afterwards: what was refused is not.
fn may_be_there<T>(done: &Result<T, Error>) -> bool {
    done.as_ref().err().is_none_or(|error| {
        matches!(error.kind(), ErrorKind::DurabilityUnknown | ErrorKind::BatchUnfinished)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::digest;

    #[test]
    fn a_round_is_a_function_of_its_seed() {
        for seed in 0..2 {
            let scenario = Scenario::draw(seed);
            assert_eq!(format!("{scenario:?}"), format!("{:?}", Scenario::draw(seed)));
            let figures = || {
                let mut tally = Tally::default();
                Round::new(&scenario, &mut tally).run().unwrap();
                (tally.changes, tally.cuts, tally.kills, tally.nested, tally.failures)
            };
            assert_eq!(figures(), figures(), "{scenario:?}");
        }
    }

    #[test]
    fn whoever_changes_how_the_steps_roll_their_dice_raises_the_version() {
        let mut drawn = Vec::new();
        for seed in 0..4 {
            // No call fails and no power goes: what is drawn is no matter of how often the engine calls the disk.
            let scenario = Scenario { cut_every: u64::MAX, fault: None, ..Scenario::draw(seed) };
            let mut tally = Tally::default();
            let mut round = Round::new(&scenario, &mut tally);
            let disk = SimDisk::new(round.dice.roll());
            let db = scenario.open(&disk, OpenHow::New).unwrap();
            for name in KEYSPACES {
                db.keyspace(name).unwrap();
            }
            let mut history = History::new(Contents::new());
            round.session(&disk, &db, &mut history, false).unwrap();
            drawn.push(format!("{:?}", history.now));
        }
        let pinned = (SCENARIOS.version, digest(&drawn.join("\n")));
        assert_eq!(
            pinned,
            (4, 8_581_459_230_516_601_023),
            "raise `SCENARIOS`, then pin the new digest"
        );
    }

    #[test]
    fn threads_share_the_seeds_and_end_when_there_were_enough_power_cuts() {
        let simulate_with = |threads: u64, until: Until| simulate(3, threads, until).unwrap();
        let one = simulate_with(1, Until::One);
        assert_eq!(one.stores, 1);
        let many = simulate_with(3, Until::Either(None, Some(2 * one.ends() + 1)));
        assert!(many.ends() > 2 * one.ends() && many.stores >= 2, "{} stores", many.stores);
    }

    #[test]
    fn of_time_and_power_cuts_the_first_counts() {
        let until = Until::Either(Some(Duration::from_secs(5)), Some(100));
        assert!(!until.is_reached(Duration::from_secs(4), 99));
        assert!(until.is_reached(Duration::from_secs(5), 0));
        assert!(until.is_reached(Duration::ZERO, 100));
        assert!(!Until::Either(None, Some(100)).is_reached(Duration::MAX, 99));
    }
}
