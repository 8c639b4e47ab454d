//! A session of random changes of a store with a log, its history, and accidents at the calls that it makes.

use super::{Dice, LONG, Model, Records, contents, key, open, path};
use hedgerow::internals::store::OpenHow;
use hedgerow::{Database, Durability, Isolation, Keyspace, Options, WriteBatch};
use hedgerow_testing::SimDisk;
use hedgerow_testing::sim::SimState;
use hedgerow_testing::{Accident, Examiner, History, Outcome, Recovered, count};

const NAMES: [&str; 2] = ["robins", "wrens"];
/// Bytes of values that any store takes in one transaction.
const MOST_OF_TRANSACTION: usize = 100_000;

/// What a session does, and how closely it is looked at.
#[derive(Clone, Copy)]
pub struct Mix {
    /// Different keys of a keyspace.
    pub keys: u64,
    /// One key in so many is long; none if this is zero.
    pub long_keys: u64,
    /// One step in so many is of each of the rarer kinds: at least 10.
    pub rare: u64,
    /// A batch has at most as many changes as one of these says.
    pub batch: [u64; 3],
    /// Makes a value.
    pub value: fn(&mut Dice) -> Vec<u8>,
    /// One moment in so many meets accidents, and so many of them.
    pub moments: (u64, u64),
}

impl Mix {
    /// One of the keys.
    fn key(&self, dice: &mut Dice) -> Vec<u8> {
        let number = dice.below(self.keys);
        let is_long = self.long_keys > 0 && number.is_multiple_of(self.long_keys);
        key(if is_long { LONG + number } else { number })
    }
}

/// A change: keyspace, key, and the value that is put.
type Wanted = (Keyspace, Vec<u8>, Option<Vec<u8>>);

/// What accidents there were.
#[derive(Default)]
pub struct Tally {
    pub accidents: u64,
    /// In openings after them, which are not among them.
    pub nested: u64,
}

impl Tally {
    /// Says how many there were. `accidents` are those of a session, `nested` those in openings after them.
    pub fn count(&self) {
        count(self.accidents, "crash states");
        count(self.nested, "nested crash states");
    }
}

pub struct Session {
    pub disk: SimDisk,
    pub db: Database,
    pub history: History,
    mix: Mix,
    examiner: Examiner,
}

/// What went well, or a panic with what did not.
#[track_caller]
pub fn well<T>(outcome: Result<T, String>) -> T {
    outcome.unwrap_or_else(|what| panic!("{what}"))
}

impl Session {
    /// Opens the store of a disk, in which `before` is to be.
    pub fn begin(
        disk: SimDisk,
        options: &Options,
        mix: Mix,
        examiner: Examiner,
        before: Model,
    ) -> Session {
        let db = open(options, &disk, OpenHow::ExistingOrNew).unwrap();
        assert_eq!(contents(&db).unwrap(), before);
        disk.record_states(true);
        Session { disk, db, history: History::new(before), mix, examiner }
    }

    /// One random change, or something that makes changes durable.
    pub fn step(&mut self, dice: &mut Dice) {
        let name = NAMES[dice.below(2) as usize];
        let known = self.history.now().contains_key(name);
        match dice.below(self.mix.rare) {
            0 => self.db.sync().unwrap(),
            1 => {
                self.db.checkpoint().unwrap();
                if dice.below(2) == 0 {
                    // There is nothing to do: the file is made shorter, and large values are moved for that.
                    self.db.checkpoint().unwrap();
                }
            }
            2 if known && dice.below(4) == 0 => {
                assert!(self.db.drop_keyspace(name).unwrap());
                let mut model = self.history.now().clone();
                model.remove(name);
                self.history.add(format!("drop {name}"), Outcome::Buffered, model);
            }
            3..6 if known => self.batch(dice),
            6 if known => self.remove_range(name, dice),
            9 if known => self.rename(name),
            choice => self.change(name, matches!(choice, 7 | 8), dice),
        }
        if self.db.durable_position() == self.db.log_position() {
            self.history.all_durable();
        }
    }

    /// Gives a keyspace the other name, or two each other's.
    fn rename(&mut self, name: &str) {
        let other = NAMES[usize::from(name == NAMES[0])];
        let mut model = self.history.now().clone();
        let (records, of_other) = (model.remove(name).unwrap(), model.remove(other));
        model.insert(other.into(), records);
        match of_other {
            Some(records) => {
                self.db.swap_keyspaces(name, other).unwrap();
                model.insert(name.into(), records);
            }
            None => self.db.rename_keyspace(name, other).unwrap(),
        }
        self.history.add(format!("rename {name}"), Outcome::Durable, model);
    }

    /// Puts, removes, exchanges or adds to a record; makes the keyspace if there is none.
    fn change(&mut self, name: &str, sync: bool, dice: &mut Dice) {
        let mut model = self.history.now().clone();
        if !model.contains_key(name) {
            self.db.create_keyspace(name).unwrap();
            model.insert(name.into(), Records::new());
            self.history.add(format!("create {name}"), Outcome::Durable, model.clone());
        }
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        let keyspace = self.db.keyspace(name).unwrap().with_durability(durability);
        let records = model.entry(name.into()).or_default();
        let mut key = self.mix.key(dice);
        match dice.below(12) {
            0 => {
                let was_there = records.remove(&key).is_some();
                assert_eq!(keyspace.remove(&key).unwrap(), was_there);
                if !was_there {
                    return;
                }
            }
            1 => {
                let before = records.remove(&key);
                assert!(keyspace.take(&key).unwrap().as_deref() == before.as_deref());
                if before.is_none() {
                    return;
                }
            }
            2 => {
                let is_first = dice.below(2) == 0;
                let before = if is_first { records.pop_first() } else { records.pop_last() };
                let popped = if is_first { keyspace.pop_first() } else { keyspace.pop_last() };
                let popped = popped.unwrap().map(|(key, value)| (key.to_vec(), value.to_vec()));
                assert!(popped == before);
                let Some((of, _)) = popped else { return };
                key = of;
            }
            3 => {
                let value = (self.mix.value)(dice);
                let before = keyspace.swap(&key, &value).unwrap();
                assert!(before.as_deref() == records.insert(key.clone(), value).as_deref());
            }
            4 => {
                key = b"sum".to_vec();
                let number = dice.roll() as i64;
                let before = keyspace.fetch_add(&key, number).unwrap();
                let sum = before.wrapping_add(number).to_be_bytes().to_vec();
                let known = records.insert(key.clone(), sum);
                let known = known.map_or(0, |sum| i64::from_be_bytes(sum.try_into().unwrap()));
                assert_eq!(before, known);
            }
            _ => {
                let value = (self.mix.value)(dice);
                let was_there = keyspace.put(&key, &value).unwrap();
                assert_eq!(was_there, records.insert(key.clone(), value).is_some());
            }
        }
        let outcome = if sync { Outcome::Durable } else { Outcome::Buffered };
        self.history.add(format!("{name}, key {}", key.escape_ascii()), outcome, model);
    }

    /// Changes of all keyspaces that there are, some of the same keys, of which a crash leaves all or none.
    fn batch(&mut self, dice: &mut Dice) {
        let before = self.history.now().clone();
        let mut model = before.clone();
        let mut batch = WriteBatch::new();
        let sync = dice.below(4) == 0;
        if sync {
            batch.set_durability(Durability::Sync);
        }
        let mut changes: Vec<Wanted> = Vec::new();
        let most = self.mix.batch[dice.below(3) as usize];
        for _ in 0..1 + dice.below(most) {
            let at = dice.below(model.len() as u64) as usize;
            let (name, records) = model.iter_mut().nth(at).unwrap();
            let keyspace = self.db.keyspace(name).unwrap();
            let key = self.mix.key(dice);
            if dice.below(3) == 0 {
                batch.remove(&keyspace, &key).unwrap();
                records.remove(&key);
                changes.push((keyspace, key, None));
            } else {
                let value = (self.mix.value)(dice);
                batch.put(&keyspace, &key, &value).unwrap();
                records.insert(key.clone(), value.clone());
                changes.push((keyspace, key, Some(value)));
            }
        }
        let outcome = if sync { Outcome::Durable } else { Outcome::Buffered };
        if dice.below(3) == 0 && self.transact(&before, &changes, sync) {
            let count = changes.len();
            return self.history.add(format!("a transaction of {count}"), outcome, model);
        }
        self.db.write(&batch).unwrap();
        self.history.add(format!("a batch of {}", batch.len()), outcome, model);
    }

    /// Makes changes in a transaction that reads the first record. False, and nothing is done: they are nothing for one.
    fn transact(&self, before: &Model, changes: &[Wanted], sync: bool) -> bool {
        let is_long = |(of, key, _): &Wanted| key.len() > of.max_short_key_bytes();
        let bytes: usize =
            changes.iter().filter_map(|(.., value)| Some(value.as_ref()?.len())).sum();
        if changes.iter().any(is_long) || bytes > MOST_OF_TRANSACTION {
            return false;
        }
        let transaction = self.db.transaction(Isolation::Serializable);
        let (first, key, _) = &changes[0];
        let found = transaction.keyspace(first).unwrap().get(key).unwrap();
        assert!(found.as_deref() == before[first.name()].get(key).map(Vec::as_slice));
        for (keyspace, key, value) in changes {
            let in_it = transaction.keyspace(keyspace).unwrap();
            match value {
                Some(value) => in_it.put(key, value).map(drop),
                None => in_it.remove(key).map(drop),
            }
            .unwrap();
        }
        let durability = if sync { Durability::Sync } else { Durability::Buffered };
        transaction.commit_with(durability).unwrap();
        true
    }

    /// Removes a range. It goes leaf by leaf; a crash may leave any first part of it.
    fn remove_range(&mut self, name: &str, dice: &mut Dice) {
        let (from, to) = (self.mix.key(dice), self.mix.key(dice));
        let mut model = self.history.now().clone();
        let records = &model[name];
        let gone: Vec<Vec<u8>> =
            records.keys().filter(|key| from <= **key && **key < to).cloned().collect();
        let keyspace = self.db.keyspace(name).unwrap();
        let removed = keyspace.remove_range(from.as_slice()..to.as_slice()).unwrap();
        assert_eq!(removed, gone.len() as u64);
        for key in gone {
            model.entry(name.into()).or_default().remove(&key);
            let what = format!("{name}, a range with {}", key.escape_ascii());
            self.history.add(what, Outcome::Buffered, model.clone());
        }
    }

    /// Accidents at the calls since the last time, at whose beginning operation `durable` was known to be durable.
    pub fn explore(&mut self, durable: usize, dice: &mut Dice, tally: &mut Tally) {
        let (one_in, times) = self.mix.moments;
        for moment in self.disk.take_states() {
            if dice.below(one_in) > 0 {
                continue;
            }
            for _ in 0..times {
                let kinds = [Accident::Kill, Accident::PowerCut];
                let accident = kinds[usize::from(dice.below(8) > 0)];
                tally.accidents += 1;
                tally.nested += self.recover(&moment, accident, durable, dice).nested;
                if dice.below(16) == 0 {
                    let left = accident.leaves(&moment, dice.roll());
                    let found = well(self.examiner.examine(&left, dice.roll()));
                    well(self.history.check_from(durable, &found));
                }
            }
        }
    }

    /// An accident at one moment, and up to three more in the openings that follow.
    pub fn recover(
        &self,
        moment: &SimState,
        accident: Accident,
        durable: usize,
        dice: &mut Dice,
    ) -> Recovered {
        let (depth, seed) = (dice.below(4), dice.roll());
        well(self.examiner.recover(moment, accident, &self.history, durable, depth, seed))
    }

    /// Kills the process at this moment, and cuts the power at each call of the opening; tells how many those were.
    pub fn kill_and_cut(&self, dice: &mut Dice) -> u64 {
        let (moment, durable) = (self.disk.state(), self.history.durable());
        well(self.examiner.cut_each_call(&moment, &self.history, durable, dice.roll()))
    }
}

/// An examiner of stores at the path of all tests.
pub fn examiner(options: &Options) -> Examiner {
    Examiner::new(options, path())
}
