//! One run: a script on a store while a call fails, beside a model that knows what may be there.
//!
//! What a step may come to is what the documentation says of it and nothing else: a change that gave an error is not
//! there, unless it was `DurabilityUnknown` or `BatchUnfinished`; of a range that was being removed a first part is gone; a keyspace that was being
//! dropped is there or not; without a log a batch is no more than its changes. Once the store has said that nothing can
//! be changed any more, nothing can. `steps.rs` has the steps, `endings.rs` what holds after them.
//!
//! A crash may leave any state of the history from the last one on that was said to be durable; without a log only those
//! that a checkpoint may have. One thread. Whatever is not as it should be panics with the name of the run.

use super::kinds::Case;
use super::scripts::{ANY, SONG, Start};
use super::state::State;
use crate::common::lengths::Lengths;
use crate::common::{Dice, bytes, key, open, tiny};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Error, ErrorKind, Options, Result, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::{Fault, SimState};
use std::path::PathBuf;

/// A state that the store went through.
pub struct Past {
    pub model: State,
    /// A crash may leave it.
    pub is_kept: bool,
}

/// See the head of the file.
pub struct Run {
    pub case: Case,
    pub disk: SimDisk,
    pub options: Options,
    /// `None`: it could not be opened.
    pub db: Option<Database>,
    /// Nothing is to fail.
    is_dry: bool,
    /// What failed, so far.
    pub hits: u64,
    /// The last is what is there now.
    pub history: Vec<Past>,
    /// How far it was said to be durable.
    pub durable: usize,
    /// A bulk load that gave an error: it is not there, but a crash may leave it, as it may a checkpoint that failed.
    pub doubtful: Vec<State>,
    /// The last change is a batch of which nobody knows, and the running store may show a part.
    pub is_in_parts: bool,
    /// The store has said that nothing can be changed any more.
    pub is_poisoned: bool,
    /// Copies that were said to be whole, and what is in them.
    pub copies: Vec<(PathBuf, State)>,
    pub backups: u64,
    /// Keyspaces in the order in which they were created, as batches go through them.
    pub order: Vec<&'static str>,
    pub dice: Dice,
    /// What `ANY` is drawn from, and by.
    lengths: Lengths,
    lengths_dice: Dice,
}

/// What a script may begin with.
pub struct Beginning {
    pub state: SimState,
    pub model: State,
    lengths: Lengths,
    lengths_seed: u64,
}

/// No drawn value is longer: runs are short, and some are beyond the chunks that a zone has.
const LONGEST_BYTES: usize = 40_000;
fn limit_bytes() -> u64 {
    hedgerow::smallest_memory_limit_bytes(512) + (128 << 10)
}

/// With a log or without one: as little memory as large values work with. A zone has one chunk; the shorter they
/// are, the more of them are staged.
pub fn options(start: Start, log: bool) -> Options {
    let zone_bytes = if start == Start::Staged { 8 << 10 } else { 32 << 10 };
    tiny().memory_limit_bytes(limit_bytes()).zone_bytes(zone_bytes).log(log).log_segment_blocks(6)
}

impl Beginning {
    /// Makes the stores of all scripts.
    pub fn make(start: Start, log: bool, lengths_seed: u64) -> Beginning {
        let disk = SimDisk::new(1);
        let empty = disk.state();
        let mut dice = Dice(2);
        let db = open(&options(start, log), &disk, OpenHow::New).unwrap();
        let robins = db.create_keyspace("robins").unwrap();
        let lengths = Lengths::new(&robins, 512, limit_bytes(), LONGEST_BYTES);
        if start == Start::Nothing {
            return Beginning { state: empty, model: State::default(), lengths, lengths_seed };
        }
        let wrens = db.create_keyspace("wrens").unwrap();
        db.create_keyspace("hollows").unwrap();
        for keyspace in [&robins, &wrens] {
            for n in 0..40 {
                keyspace.put(&key(n), &bytes(&mut dice, 40)).unwrap();
            }
            keyspace.put(&key(SONG), &bytes(&mut dice, 6000)).unwrap();
        }
        if matches!(start, Start::Closed | Start::Staged) {
            let model = State::of(&db).unwrap();
            db.close().unwrap();
            return Beginning { state: disk.state(), model, lengths, lengths_seed };
        }
        db.checkpoint().unwrap();
        // Behind the checkpoint: something of everything that a log can have.
        for n in 30..60 {
            robins.put(&key(n), &bytes(&mut dice, 50)).unwrap();
        }
        let mut batch = WriteBatch::new();
        batch.put(&wrens, &key(1), &bytes(&mut dice, 30)).unwrap();
        batch.remove(&robins, &key(2)).unwrap();
        batch.put(&robins, &key(901), &bytes(&mut dice, 3000)).unwrap();
        db.write(&batch).unwrap();
        wrens.remove_range(key(5)..key(15)).unwrap();
        wrens.put(&key(SONG), &bytes(&mut dice, 2000)).unwrap();
        db.create_keyspace("gannets").unwrap().put(&key(1), b"far out").unwrap();
        db.sync().unwrap();
        if !log {
            db.checkpoint().unwrap();
        }
        let model = State::of(&db).unwrap();
        robins.put(&key(7), b"neither synced nor in a checkpoint").unwrap();
        let state = disk.state().crash(&[], None);
        Beginning { state, model, lengths, lengths_seed }
    }
}

impl Run {
    /// The store of a script, with `faults` to come. Without any that will strike it is a dry run.
    pub fn begin(case: Case, beginning: &Beginning, faults: &[Fault], is_dry: bool) -> Run {
        let disk = SimDisk::with_state(beginning.state.clone(), 7);
        let mut run = Run {
            case,
            disk,
            options: options(case.script.start, case.log),
            db: None,
            is_dry,
            hits: 0,
            history: vec![Past { model: beginning.model.clone(), is_kept: true }],
            durable: 0,
            doubtful: Vec::new(),
            is_in_parts: false,
            is_poisoned: false,
            copies: Vec::new(),
            backups: 0,
            order: vec!["robins", "wrens", "hollows"],
            dice: Dice(9),
            lengths: beginning.lengths.clone(),
            lengths_dice: Dice(beginning.lengths_seed),
        };
        run.disk.record_log(true);
        let is_closed = matches!(case.script.start, Start::Closed | Start::Staged);
        if is_closed {
            run.open();
        }
        faults.iter().for_each(|fault| run.disk.inject(*fault));
        if !is_closed {
            run.open();
            run.settle(true);
        }
        run
    }

    /// Goes through the script, as far as the store can be opened.
    pub fn play(&mut self) {
        for step in self.case.script.steps {
            self.step(step);
        }
    }

    /// The next value of a length, or of one that is drawn.
    pub fn value(&mut self, len: usize) -> Vec<u8> {
        let len = if len == ANY { self.lengths.draw(&mut self.lengths_dice) } else { len };
        bytes(&mut self.dice, len)
    }

    /// What is there now.
    pub fn now(&self) -> &State {
        &self.history.last().expect("a history has a beginning").model
    }

    /// Notes a state that the store has come to.
    pub fn push(&mut self, model: State) {
        // Without a log it is nowhere until there is a checkpoint.
        self.history.push(Past { model, is_kept: self.case.log });
    }

    /// From now on a crash may leave what is there: a checkpoint is begun.
    pub fn keep(&mut self) {
        self.history.last_mut().expect("a history has a beginning").is_kept = true;
    }

    /// Counts the calls that have failed since this was called last.
    pub fn count_hits(&mut self) {
        let log = self.disk.take_log();
        self.hits += log.iter().filter(|call| call.fault.is_some()).count() as u64;
    }

    /// Looks at an error: nothing may fail before a call has, and then only in the ways that the kind has.
    pub fn refused(&mut self, what: &str, error: &Error, may_be_unknown: bool) {
        self.count_hits();
        let case = &self.case;
        assert!(!self.is_dry && self.hits > 0, "{case}: {what} before any call fails: {error:?}");
        let allowed = case.kind.allows(error, may_be_unknown, self.is_poisoned);
        assert!(allowed, "{case}: {what} ends with another error than may be: {error:?}");
        self.is_poisoned |= matches!(
            error.kind(),
            ErrorKind::Poisoned | ErrorKind::DurabilityUnknown | ErrorKind::BatchUnfinished
        );
    }

    /// Notes what became of a change that leaves `after`, and that is durable when it returns if it is `sync`. What changes nothing need not
    /// wait, and says nothing of the changes before it.
    pub fn changed(&mut self, what: &str, done: Result<()>, after: State, sync: bool) {
        match done {
            Ok(()) => {
                if after == *self.now() {
                    return;
                }
                assert!(!self.is_poisoned, "{}: {what} was made after all", self.case);
                self.push(after);
                if sync && self.case.log {
                    self.made_durable(what, Ok(()));
                }
            }
            Err(error) => {
                let is_first = !self.is_poisoned;
                self.refused(what, &error, sync || self.is_in_parts);
                if error.kind() == ErrorKind::DurabilityUnknown && is_first {
                    self.push(after);
                }
            }
        }
    }

    /// Everything up to now is durable if this was done.
    pub fn made_durable(&mut self, what: &str, done: Result<()>) {
        match done {
            Ok(()) => {
                self.durable = self.history.len() - 1;
                // The log has nothing of a load that was done and not made durable.
                if !self.is_in_parts {
                    self.doubtful.clear();
                }
            }
            Err(error) => self.refused(what, &error, true),
        }
    }

    /// How the store is opened again.
    pub fn how(&self) -> OpenHow {
        match self.case.script.start {
            Start::Nothing => OpenHow::ExistingOrNew,
            Start::Closed | Start::Staged | Start::Crashed => OpenHow::Existing,
        }
    }

    /// Opens the store. What fails once fails no second time; while it fails for good the store stays closed.
    pub fn open(&mut self) {
        self.is_in_parts = false;
        self.is_poisoned = false;
        for _ in 0..2 {
            match open(&self.options, &self.disk, self.how()) {
                Ok(db) => {
                    self.db = Some(db);
                    return;
                }
                Err(error) => {
                    self.refused("an opening", &error, true);
                    self.is_poisoned = false;
                    if self.case.sticky {
                        return;
                    }
                }
            }
        }
        panic!("{}: it cannot be opened although calls go well again", self.case);
    }

    /// After an opening: finds which state is there, and goes on from it. `power_went`: there is nothing pending.
    pub fn settle(&mut self, power_went: bool) {
        if self.db.is_none() {
            return;
        }
        let found = self.look();
        let at = self.place_of(&found);
        let Some(at) = at else { panic!("{}, reopened: {}", self.case, self.describe(&found)) };
        if at == self.history.len() {
            self.history.push(Past { model: found, is_kept: true });
        }
        self.history.truncate(at + 1);
        // Without a log nothing was made durable by opening: what the last process had not synced may yet go.
        if power_went || self.case.log {
            self.durable = at;
            self.doubtful.clear();
        }
    }

    /// Where in the history a crash may have left the store, the number behind the last for a load that had failed;
    /// `None`: it may not have left that.
    pub fn place_of(&self, found: &State) -> Option<usize> {
        let at = self.history.iter().rposition(|past| past.is_kept && past.model == *found);
        match at.filter(|at| *at >= self.durable) {
            None if self.doubtful.contains(found) => Some(self.history.len()),
            at => at,
        }
    }

    /// Says for people what was found that may not be there.
    pub fn describe(&self, found: &State) -> String {
        let same: Vec<usize> =
            (0..self.history.len()).filter(|&at| self.history[at].model == *found).collect();
        let kept: Vec<usize> =
            (0..self.history.len()).filter(|&at| self.history[at].is_kept).collect();
        format!(
            "found the states after changes {same:?} of {}, of which {kept:?} may be there, and {} was durable",
            self.history.len() - 1,
            self.durable
        )
    }

    /// The process of the store dies. What dropping it does is undone.
    pub fn die(&mut self, db: Database) {
        self.db = None;
        let left = self.disk.state().kill();
        let put_off = self.disk.take_faults();
        drop(db);
        self.disk.change_state(|state| *state = left);
        put_off.into_iter().for_each(|fault| self.disk.inject(fault));
    }

    /// What the store shows while no call fails. Calls that this makes do not count.
    pub fn look(&self) -> State {
        let put_off = self.disk.take_faults();
        let db = self.db.as_ref().expect("it is open");
        let found = State::of(db).unwrap_or_else(|error| panic!("{}: {error:?}", self.case));
        put_off.into_iter().for_each(|fault| self.disk.inject(fault));
        found
    }
}
