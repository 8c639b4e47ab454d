//! A thread that runs transactions, plain changes and batches at random, and notes what it was told.
#![allow(clippy::disallowed_methods, reason = "tests use threads")]

use crate::common::Dice;
use hedgerow::{
    Database, Error, ErrorKind, Isolation, Keyspace, Transaction, TransactionKeyspace, WriteBatch,
};
use hedgerow_testing::isolation::{Open, Outcome, Over, Recorder, Step, Token};

const KEYS: u64 = 24;

/// `long`: what makes a long key of the store's.
fn key(number: u64, long: usize) -> Vec<u8> {
    // Leaves of several sizes, prefixes, and long keys with one head.
    let len = if number % 6 == 5 { long + number as usize % 4 } else { number as usize % 6 * 3 };
    [&vec![b'k'; len][..], &number.to_be_bytes()].concat()
}

/// Keys in the order of the keyspace have numbers in another one, so ranges are drawn of neighbours in the keyspace.
pub fn in_order(long: usize) -> Vec<u64> {
    let mut numbers: Vec<u64> = (0..KEYS).collect();
    numbers.sort_by_key(|number| key(*number, long));
    numbers
}

fn value(token: Token, dice: &mut Dice, longest: u64) -> Vec<u8> {
    let more = if dice.below(12) == 0 { dice.below(longest) } else { dice.below(40) };
    let mut value = token.bits().to_be_bytes().to_vec();
    value.resize(8 + more as usize, 7);
    value
}

pub fn token(value: &[u8]) -> Token {
    Token::from_bits(u64::from_be_bytes(value[..8].try_into().unwrap()))
}

pub struct Client<'w> {
    pub db: &'w Database,
    pub keyspaces: &'w [Keyspace; 2],
    pub order: Vec<u64>,
    pub recorder: Recorder,
    pub dice: Dice,
    pub longest: u64,
    pub long: usize,
    pub isolation: Isolation,
    pub conflicts: u64,
    pub too_old: u64,
}

/// Keys of the second keyspace have numbers of their own. Places in the order are what the checker calls keys.
pub const SECOND: u64 = 1000;

impl Client<'_> {
    fn pick(&mut self) -> (usize, u64) {
        (self.dice.below(2) as usize, self.dice.below(KEYS))
    }

    /// What the checker calls the key at a place.
    pub fn name(space: usize, place: u64) -> u64 {
        place + SECOND * space as u64
    }

    fn key_at(&self, place: u64) -> Vec<u8> {
        key(self.order[place as usize], self.long)
    }

    fn place_of(&self, found: &[u8]) -> u64 {
        let number = u64::from_be_bytes(found[found.len() - 8..].try_into().unwrap());
        self.order.iter().position(|of| *of == number).unwrap() as u64
    }

    /// A step of a transaction.
    fn step(
        &mut self,
        open: &mut Open,
        transaction: &Transaction,
        handles: &[TransactionKeyspace; 2],
    ) -> Result<(), Error> {
        let (space, place) = self.pick();
        let (handle, name, key) = (&handles[space], Self::name(space, place), self.key_at(place));
        match self.dice.below(12) {
            0..3 => {
                let found = handle.get(&key)?.map(|value| token(&value));
                open.step(Step::Read { key: name, found });
            }
            3 => {
                let found = handle.get_for_update(&key)?.map(|value| token(&value));
                open.step(Step::Read { key: name, found });
            }
            4..6 => {
                let high = place + self.dice.below(KEYS - place);
                let bounds = key..=self.key_at(high);
                let backwards = self.dice.below(2) == 0;
                let range = handle.range(bounds);
                let records: Vec<_> = match backwards {
                    true => range.rev().collect(),
                    false => range.collect(),
                };
                let mut found = Vec::new();
                for record in records {
                    let (key, value) = record?;
                    found.push((Self::name(space, self.place_of(&key)), token(&value)));
                }
                if backwards {
                    found.reverse();
                }
                let high = Self::name(space, high);
                open.step(Step::Range { low: name, high, found });
            }
            6 => {
                // The first record from a place on: what lies between is seen to be absent.
                let mut cursor = handle.cursor();
                cursor.seek(&key);
                let found = cursor.next_record()?;
                let found = found.map(|(key, value)| (key.to_vec(), token(value)));
                let high = found.as_ref().map_or(KEYS - 1, |(key, _)| self.place_of(key));
                let found = found.map(|(_, token)| (Self::name(space, high), token));
                let high = Self::name(space, high);
                open.step(Step::Range { low: name, high, found: found.into_iter().collect() });
            }
            7 => {
                let before = transaction.savepoint()?;
                let unused = open.token();
                handle.put(&key, &value(unused, &mut self.dice, self.longest))?;
                handle.remove(&self.key_at(self.order.len() as u64 - 1))?;
                transaction.roll_back_to(&before)?;
            }
            8 => {
                handle.remove(&key)?;
                open.step(Step::Remove { key: name, over: Over::Unknown });
            }
            _ => {
                let token = open.token();
                handle.put(&key, &value(token, &mut self.dice, self.longest))?;
                open.step(Step::Put { key: name, token, over: Over::Unknown });
            }
        }
        Ok(())
    }

    pub fn transaction(&mut self) {
        let mut open = self.recorder.begin();
        let transaction = self.db.transaction(self.isolation);
        let handles = [0, 1].map(|at| transaction.keyspace(&self.keyspaces[at]).unwrap());
        let steps = 1 + self.dice.below(12);
        for _ in 0..steps {
            if let Err(error) = self.step(&mut open, &transaction, &handles) {
                assert_eq!(error.kind(), ErrorKind::SnapshotTooOld, "{error}");
                self.too_old += 1;
                return self.recorder.end(open, Outcome::Aborted);
            }
            if self.dice.below(3) == 0 {
                std::thread::yield_now();
            }
        }
        if self.dice.below(8) == 0 {
            transaction.abort();
            return self.recorder.end(open, Outcome::Aborted);
        }
        let outcome = match transaction.commit() {
            Ok(_) => Outcome::Committed,
            Err(error) => {
                match error.kind() {
                    ErrorKind::Conflict => self.conflicts += 1,
                    ErrorKind::SnapshotTooOld => self.too_old += 1,
                    // In the smallest store there is no room for many leaves.
                    ErrorKind::TransactionTooLarge { .. } => {}
                    _ => panic!("{error}"),
                }
                Outcome::Aborted
            }
        };
        self.recorder.end(open, outcome);
    }

    /// A change without a transaction, or a batch: each is one by itself.
    pub fn plain(&mut self) {
        let mut open = self.recorder.begin();
        let (space, place) = self.pick();
        let (name, key) = (Self::name(space, place), self.key_at(place));
        let keyspace = &self.keyspaces[space];
        match self.dice.below(4) {
            0 => {
                let found = keyspace.get(&key).unwrap().map(|value| token(&value));
                open.step(Step::Read { key: name, found });
            }
            1 => {
                let token = open.token();
                keyspace.put(&key, &value(token, &mut self.dice, self.longest)).unwrap();
                open.step(Step::Put { key: name, token, over: Over::Unknown });
            }
            2 => {
                keyspace.remove(&key).unwrap();
                open.step(Step::Remove { key: name, over: Over::Unknown });
            }
            _ => {
                let mut batch = WriteBatch::new();
                for at in 0..2 + self.dice.below(4) {
                    let place = (place + 7 * at) % KEYS;
                    let (name, key) = (Self::name(space, place), self.key_at(place));
                    let token = open.token();
                    let value = value(token, &mut self.dice, self.longest);
                    batch.put(keyspace, &key, &value).unwrap();
                    open.step(Step::Put { key: name, token, over: Over::Unknown });
                }
                self.db.write(&batch).unwrap();
            }
        }
        self.recorder.end(open, Outcome::Committed);
    }
}
