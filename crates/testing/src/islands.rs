//! Clients of small keyspaces that draw what they do, and record it as transactions, for [`super::isolation`].
//!
//! An *island* is a keyspace whose records are in one leaf, whatever becomes of them. A scan has each leaf at one moment, so a
//! scan of an island, or of a part of it, is a transaction of several reads; so is a bulk load one of several puts,
//! because it becomes visible as a whole. Every other operation is a transaction of one key: those of a batch and of a
//! group of look-ups as well, each somewhere in the interval of the call, because no more is promised of them.
//!
//! A put that met a record does not know which: it is blind. A swap knows, and so does whoever put where nothing was.
//!
//! What a client does follows from its seed and from the answers that it gets.
//!
//! Invariants: a token is put by one change of one client, through all rounds. Thread-safety: a client belongs to one
//! thread. Everything panics at an error that is not asked for: no call is to fail.

use super::isolation::{Open, Outcome, Over, Recorder, State, Step, Token, Transaction};
use super::linear::Clock;
use super::recorded::Records;
use hedgerow::internals::error::{ErrorKind, Result};
use hedgerow::internals::tree::{CompareAndSwap, Value};
use hedgerow::{Database, Keyspace, WriteBatch};
use hedgerow_sync::primitive::random::SplitMix64;
use hedgerow_sync::primitive::thread::yield_now;
use std::ops::ControlFlow;

const NO_CALL_FAILS: &str = "no call fails";

/// Keys of an island: with keys and values of [`Records`] of one size they fit into a leaf of 512 bytes.
pub const ISLAND_KEYS: u64 = 6;
/// Keys of a keyspace that is loaded, which are in several leaves.
pub const LOADED_KEYS: u64 = 40;

/// A keyspace and the first of the numbers that stand for its keys, which no other has.
#[derive(Clone)]
pub struct Place {
    /// The keyspace.
    pub keyspace: Keyspace,
    /// The first number.
    pub first: u64,
}

/// See the head of the file.
pub struct Client {
    db: Database,
    records: Records,
    recorder: Recorder,
    random: SplitMix64,
}

impl Client {
    /// Number `thread` of the clients of a database. Numbers of the clients of one history differ.
    pub fn new(db: &Database, records: Records, thread: u32, clock: &Clock, seed: u64) -> Client {
        let (recorder, random) = (Recorder::new(thread, clock), SplitMix64::new(seed));
        Client { db: db.clone(), records, recorder, random }
    }

    /// What was done since this was called last.
    pub fn take(&mut self) -> Vec<Transaction> {
        self.recorder.take()
    }

    fn state(&self, number: u64, value: Option<&[u8]>) -> State {
        value.map(|value| Token::from_bits(self.records.token(number, value)))
    }

    fn value(&self, number: u64, token: Token) -> Vec<u8> {
        self.records.value(number, token.bits())
    }

    fn key_of(&mut self, place: &Place) -> (u64, Vec<u8>) {
        let number = place.first + self.random.below(ISLAND_KEYS);
        (number, self.records.key(number))
    }

    /// Does one thing on an island.
    pub fn step(&mut self, place: &Place) {
        match self.random.below(20) {
            0..7 => self.scan(place),
            7..9 => self.get(place),
            9..12 => self.put(place),
            12..14 => self.swap(place),
            14 => self.insert_if_absent(place),
            15 => self.update(place),
            16..18 => self.remove(place),
            18 => self.get_many(place),
            _ => self.batch(place),
        }
    }

    fn commit(&mut self, mut open: Open, steps: impl IntoIterator<Item = Step>) {
        steps.into_iter().for_each(|step| open.step(step));
        self.recorder.end(open, Outcome::Committed);
    }

    fn get(&mut self, place: &Place) {
        let (number, key) = self.key_of(place);
        let open = self.recorder.begin();
        let found = place.keyspace.get(&key).expect(NO_CALL_FAILS);
        let found = self.state(number, found.as_deref());
        self.commit(open, [Step::Read { key: number, found }]);
    }

    fn put(&mut self, place: &Place) {
        let (number, key) = self.key_of(place);
        let mut open = self.recorder.begin();
        let token = open.token();
        let was_there = place.keyspace.put(&key, &self.value(number, token)).expect(NO_CALL_FAILS);
        let over = if was_there { Over::Unknown } else { Over::Seen(None) };
        self.commit(open, [Step::Put { key: number, token, over }]);
    }

    fn remove(&mut self, place: &Place) {
        let (number, key) = self.key_of(place);
        let open = self.recorder.begin();
        let was_there = place.keyspace.remove(&key).expect(NO_CALL_FAILS);
        let step = match was_there {
            true => Step::Remove { key: number, over: Over::Unknown },
            false => Step::Read { key: number, found: None },
        };
        self.commit(open, [step]);
    }

    fn insert_if_absent(&mut self, place: &Place) {
        let (number, key) = self.key_of(place);
        let mut open = self.recorder.begin();
        let token = open.token();
        let value = self.value(number, token);
        let inserted = place.keyspace.insert_if_absent(&key, &value).expect(NO_CALL_FAILS);
        let put = Step::Put { key: number, token, over: Over::Seen(None) };
        self.commit(open, inserted.then_some(put));
    }

    fn update(&mut self, place: &Place) {
        let (number, key) = self.key_of(place);
        let mut open = self.recorder.begin();
        let token = open.token();
        let updated = place.keyspace.update(&key, &self.value(number, token)).expect(NO_CALL_FAILS);
        let step = match updated {
            true => Step::Put { key: number, token, over: Over::Unknown },
            false => Step::Read { key: number, found: None },
        };
        self.commit(open, [step]);
    }

    /// Looks a record up, and swaps it for another one, or for none, unless somebody else has changed it.
    fn swap(&mut self, place: &Place) {
        let (number, key) = self.key_of(place);
        let open = self.recorder.begin();
        let old = place.keyspace.get(&key).expect(NO_CALL_FAILS);
        let expected = self.state(number, old.as_deref());
        self.commit(open, [Step::Read { key: number, found: expected }]);
        let mut open = self.recorder.begin();
        let new = (self.random.below(4) > 0).then(|| open.token());
        let new_value = new.map(|token| self.value(number, token));
        let swap = place.keyspace.compare_and_swap(&key, old.as_deref(), new_value.as_deref());
        let step = match swap.expect(NO_CALL_FAILS) {
            CompareAndSwap::Differs(found) => {
                Step::Read { key: number, found: self.state(number, found.as_deref()) }
            }
            CompareAndSwap::Swapped => {
                let over = Over::Seen(expected);
                match (new, expected) {
                    (Some(token), _) => Step::Put { key: number, token, over },
                    (None, Some(_)) => Step::Remove { key: number, over },
                    (None, None) => Step::Read { key: number, found: None },
                }
            }
        };
        self.commit(open, [step]);
    }

    fn get_many(&mut self, place: &Place) {
        let asked: Vec<_> = (0..3).map(|_| self.key_of(place)).collect();
        let opens: Vec<Open> = asked.iter().map(|_| self.recorder.begin()).collect();
        let keys: Vec<_> = asked.iter().map(|(_, key)| key).collect();
        let found = place.keyspace.get_many(&keys).expect(NO_CALL_FAILS);
        assert_eq!(found.len(), asked.len());
        for ((open, (number, _)), value) in opens.into_iter().zip(&asked).zip(&found) {
            let found = self.state(*number, value.as_deref());
            self.commit(open, [Step::Read { key: *number, found }]);
        }
    }

    /// Puts two records and removes one, of different keys.
    fn batch(&mut self, place: &Place) {
        let mut batch = WriteBatch::new();
        let (mut parts, mut numbers) = (Vec::new(), Vec::new());
        for is_put in [true, true, false] {
            let (number, key) = self.key_of(place);
            if numbers.contains(&number) {
                continue;
            }
            numbers.push(number);
            let mut open = self.recorder.begin();
            let over = Over::Unknown;
            let step = if is_put {
                let token = open.token();
                let value = self.value(number, token);
                batch.put(&place.keyspace, &key, &value).expect(NO_CALL_FAILS);
                Step::Put { key: number, token, over }
            } else {
                batch.remove(&place.keyspace, &key).expect(NO_CALL_FAILS);
                Step::Remove { key: number, over }
            };
            parts.push((open, step));
        }
        self.db.write(&batch).expect(NO_CALL_FAILS);
        parts.into_iter().for_each(|(open, step)| self.commit(open, [step]));
    }

    /// Scans an island, or a part of it, in one of three ways.
    fn scan(&mut self, place: &Place) {
        let (a, b) = match self.random.below(3) {
            0 => (self.random.below(ISLAND_KEYS), self.random.below(ISLAND_KEYS)),
            _ => (0, ISLAND_KEYS - 1),
        };
        let (low, high) = (place.first + a.min(b), place.first + a.max(b));
        let (way, is_slow) = (self.random.below(3), self.random.below(4) == 0);
        let open = self.recorder.begin();
        let mut found = self.scanned(&place.keyspace, low, high, way, is_slow);
        if way == 1 {
            found.reverse();
        }
        self.commit(open, [Step::Range { low, high, found }]);
    }

    /// Scans all of an island as it is.
    pub fn scan_all(&mut self, place: &Place) {
        let (low, high) = (place.first, place.first + ISLAND_KEYS - 1);
        let open = self.recorder.begin();
        let found = self.scanned(&place.keyspace, low, high, 0, false);
        self.commit(open, [Step::Range { low, high, found }]);
    }

    /// The records of a range; who is slow lets others run after each of them.
    fn scanned(
        &self,
        keyspace: &Keyspace,
        low: u64,
        high: u64,
        way: u64,
        is_slow: bool,
    ) -> Vec<(u64, Token)> {
        let records = self.records;
        let of = |key: &[u8], value: &[u8]| {
            if is_slow {
                yield_now();
            }
            let number = records.number(key);
            (number, Token::from_bits(records.token(number, value)))
        };
        let read = |record: Result<(Value, Value)>| {
            let (key, value) = record.expect(NO_CALL_FAILS);
            of(&key, &value)
        };
        let bounds = records.key(low)..=records.key(high);
        match way {
            0 => keyspace.range(bounds).map(read).collect(),
            1 => keyspace.range(bounds).rev().map(read).collect(),
            _ => {
                let mut found = Vec::new();
                let mut cursor = keyspace.cursor();
                cursor.seek(bounds.start());
                let ended = cursor.visit(|key, value| {
                    if key > bounds.end().as_slice() {
                        return ControlFlow::Break(());
                    }
                    found.push(of(key, value));
                    ControlFlow::Continue(())
                });
                ended.map(drop).expect(NO_CALL_FAILS);
                found
            }
        }
    }

    /// Loads a keyspace that has no records, unless somebody has put one: then nothing is loaded. Tells whether it was.
    pub fn load(&mut self, place: &Place) -> bool {
        let mut open = self.recorder.begin();
        let over = Over::Seen(None);
        let numbers = place.first..place.first + LOADED_KEYS;
        let tokens: Vec<_> = numbers.map(|number| (number, open.token())).collect();
        for (key, token) in &tokens {
            open.step(Step::Put { key: *key, token: *token, over });
        }
        let pairs = tokens
            .iter()
            .map(|(number, token)| (self.records.key(*number), self.value(*number, *token)));
        let loaded = match place.keyspace.bulk_load(pairs, 70) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::KeyspaceNotEmpty => false,
            Err(error) => panic!("{NO_CALL_FAILS}: {error}"),
        };
        self.recorder.end(open, if loaded { Outcome::Committed } else { Outcome::Aborted });
        loaded
    }

    /// Looks for a record, or a few one after the other, of a keyspace that is loaded meanwhile.
    pub fn look_at_load(&mut self, place: &Place) {
        let number = place.first + self.random.below(LOADED_KEYS);
        let key = self.records.key(number);
        let open = self.recorder.begin();
        let found = place.keyspace.get(&key).expect(NO_CALL_FAILS);
        let found = self.state(number, found.as_deref());
        self.commit(open, [Step::Read { key: number, found }]);
    }

    /// Puts a record into a keyspace that is to be loaded, unless it is there.
    pub fn meddle_with_load(&mut self, place: &Place) {
        let number = place.first + self.random.below(LOADED_KEYS);
        let mut open = self.recorder.begin();
        let token = open.token();
        let (key, value) = (self.records.key(number), self.value(number, token));
        let inserted = place.keyspace.insert_if_absent(&key, &value).expect(NO_CALL_FAILS);
        let put = Step::Put { key: number, token, over: Over::Seen(None) };
        self.commit(open, inserted.then_some(put));
    }
}
