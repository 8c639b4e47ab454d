//! Clients of a keyspace that draw what they do, and record it, for [`super::linear`].
//!
//! Keys are numbers, in this order; a value holds its key, a token that nobody else puts, and a padding that is made of
//! the token, so that a value which is torn, or of another key, is none. Each client does one thing at a time, through
//! every way that a keyspace has of reading and changing records: single operations, groups, batches, ranges and scans.
//! They meet on a few *hot* keys, put and remove records *near* them, so that leaves split and merge under them, and
//! look at all others now and then, which evicts.
//!
//! What a client does follows from its seed and from the answers that it gets.
//!
//! Invariants: a token is put by one operation of one client. Thread-safety: a client belongs to one thread; [`Records`]
//! and [`Field`] are plain data. Everything panics at an error: no call is to fail.

use super::linear::{Call, Clock, History, Recorder, State};
use hedgerow::internals::tree::{CompareAndSwap, Value};
use hedgerow::{Database, Keyspace, WriteBatch};
use hedgerow_sync::primitive::random::SplitMix64;
use std::ops::ControlFlow;

const NO_CALL_FAILS: &str = "no call fails";

/// The token of a record that was there before any client came is its number and this.
const FIRST_TOKEN: u64 = 1;
/// Bits of a token that count; above them it says whose it is.
const SEQUENCE_BITS: u32 = 32;
/// Bytes of a value without its padding.
const VALUE_HEAD_BYTES: usize = 16;
/// Words of padding that make a value of two pages.
const LONG_PADDING: usize = 100;
/// Words of padding of values of all forms: in a leaf, in one piece, in two, and in many.
const PADDINGS: [usize; 8] = [0, 1, 5, 0, 1, 40, LONG_PADDING, 680];
/// Records that a scan meets at most, unless it is one of everything.
const SCAN_LIMIT: u64 = 24;
/// Keys that a range removes at most.
const RANGE_LIMIT: u64 = 4;

/// The first number of a long key, where there are such keys.
pub const FIRST_LONG: u64 = 5;
const LONG_FILLER_BYTES: usize = 90;

/// What keys and values look like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Records {
    /// Keys end in a number of four bytes, as dense leaves want it; else they are text.
    pub dense: bool,
    /// All values have one length.
    pub one_size: bool,
    /// Some values are longer than any record of a leaf, or all of them if they have one length, and keys of text are long from
    /// [`FIRST_LONG`] on: for pages of 512 bytes, and 128 KiB above the smallest memory limit.
    pub all_forms: bool,
}

impl Records {
    /// The key of a number.
    pub fn key(self, number: u64) -> Vec<u8> {
        match self.dense {
            true => [b"hedge".as_slice(), &(number as u32).to_be_bytes()].concat(),
            // They share more than the head that the tree has of them.
            false if self.all_forms && number >= FIRST_LONG => {
                format!("hedge/{}{number:06}/lane", "~".repeat(LONG_FILLER_BYTES)).into_bytes()
            }
            false => format!("hedge/{number:06}/lane").into_bytes(),
        }
    }

    /// The number of a key.
    pub fn number(self, key: &[u8]) -> u64 {
        let number = match self.dense {
            true => key.last_chunk().map(|bytes| u64::from(u32::from_be_bytes(*bytes))),
            false => {
                let filler = key.iter().filter(|byte| **byte == b'~').count();
                let digits = key
                    .get(6 + filler..12 + filler)
                    .and_then(|digits| std::str::from_utf8(digits).ok());
                digits.and_then(|digits| digits.parse().ok())
            }
        };
        let number = number.filter(|number| self.key(*number) == key);
        number.unwrap_or_else(|| panic!("{} is no key", key.escape_ascii()))
    }

    /// The value of a key that has this token.
    pub fn value(self, number: u64, token: u64) -> Vec<u8> {
        let padding = match (self.one_size, self.all_forms) {
            (true, false) => 1,
            (true, true) => LONG_PADDING,
            (false, false) => token as usize % 6,
            (false, true) => PADDINGS[token as usize % PADDINGS.len()],
        };
        let mut value = Vec::with_capacity(VALUE_HEAD_BYTES + 8 * padding);
        value.extend_from_slice(&token.to_be_bytes());
        value.extend_from_slice(&number.to_be_bytes());
        for _ in 0..padding {
            value.extend_from_slice(&token.to_be_bytes());
        }
        value
    }

    /// The token of a value of a key, which must be whole.
    pub fn token(self, number: u64, value: &[u8]) -> u64 {
        let token = value.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
        let token = token.filter(|token| self.value(number, *token) == value);
        token.unwrap_or_else(|| panic!("not a value of {number}: {}", value.escape_ascii()))
    }

    /// The token of a key before any client has come.
    pub fn first_token(number: u64) -> u64 {
        number + FIRST_TOKEN
    }

    fn state(self, number: u64, value: Option<&[u8]>) -> State {
        value.map(|value| self.token(number, value))
    }
}

/// Where clients work.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// All numbers lie below.
    pub keys: u64,
    /// The first and the last number near which records come and go.
    pub near: (u64, u64),
    /// The first hot number, and how many there are.
    pub hot: (u64, u64),
}

/// See the head of the file.
pub struct Client {
    db: Database,
    keyspace: Keyspace,
    records: Records,
    recorder: Recorder,
    random: SplitMix64,
    /// The token that was put last.
    token: u64,
}

impl Client {
    /// Number `thread` of the clients of a keyspace. Seeds and numbers of the clients of one history differ.
    pub fn new(
        db: &Database,
        keyspace: &Keyspace,
        records: Records,
        thread: u32,
        clock: &Clock,
        seed: u64,
    ) -> Client {
        Client {
            db: db.clone(),
            keyspace: keyspace.clone(),
            records,
            recorder: Recorder::new(thread, clock),
            random: SplitMix64::new(seed),
            token: u64::from(thread + 1) << SEQUENCE_BITS,
        }
    }

    /// Goes on with tokens that differ from all of earlier histories, in which no client did more than this many steps
    /// in all.
    #[must_use]
    pub fn after(mut self, steps: u64) -> Client {
        // A step takes three of them at most.
        self.token += 4 * steps;
        self
    }

    /// What was done.
    pub fn into_history(self) -> History {
        self.recorder.into_history()
    }

    fn fresh(&mut self) -> u64 {
        self.token += 1;
        self.token
    }

    /// Does one thing.
    pub fn step(&mut self, field: &Field) {
        match self.random.below(100) {
            0..55 => {
                let number = self.hot(field);
                self.point(number);
            }
            55..68 => {
                let number = self.near(field);
                self.put(number);
            }
            68..80 => {
                let number = self.near(field);
                self.remove(number);
            }
            80..88 => {
                let number = self.random.below(field.keys);
                self.get(number);
            }
            88..93 => self.scan_near(field),
            93..96 => {
                let numbers = [self.hot(field), self.hot(field), self.near(field)];
                self.get_many(&numbers);
            }
            96..99 => self.batch(field),
            _ => {
                let low = self.near(field);
                let high = low + self.random.below(RANGE_LIMIT);
                self.remove_range(low, high.min(field.keys - 1));
            }
        }
    }

    fn hot(&mut self, field: &Field) -> u64 {
        field.hot.0 + self.random.below(field.hot.1)
    }

    fn near(&mut self, field: &Field) -> u64 {
        field.near.0 + self.random.below(field.near.1 - field.near.0 + 1)
    }

    /// A single operation of any kind.
    fn point(&mut self, number: u64) {
        match self.random.below(14) {
            0..2 => self.put(number),
            2 => self.remove(number),
            3 => self.insert_if_absent(number),
            4 => self.update(number),
            5..7 => self.swap(number),
            7 => self.contains(number),
            8..10 => self.exchange(number),
            _ => {
                self.get(number);
            }
        }
    }

    fn put(&mut self, number: u64) {
        let new = self.fresh();
        let (key, value) = (self.records.key(number), self.records.value(number, new));
        let keyspace = &self.keyspace;
        self.recorder.operation(
            number,
            || keyspace.put(&key, &value).expect(NO_CALL_FAILS),
            |was_there| Call::Put { new, was_there: Some(*was_there) },
        );
    }

    fn remove(&mut self, number: u64) {
        let key = self.records.key(number);
        let keyspace = &self.keyspace;
        self.recorder.operation(
            number,
            || keyspace.remove(&key).expect(NO_CALL_FAILS),
            |was_there| Call::Remove { was_there: Some(*was_there) },
        );
    }

    fn insert_if_absent(&mut self, number: u64) {
        let new = self.fresh();
        let (key, value) = (self.records.key(number), self.records.value(number, new));
        let keyspace = &self.keyspace;
        self.recorder.operation(
            number,
            || keyspace.insert_if_absent(&key, &value).expect(NO_CALL_FAILS),
            |inserted| Call::InsertIfAbsent { new, inserted: *inserted },
        );
    }

    fn update(&mut self, number: u64) {
        let new = self.fresh();
        let (key, value) = (self.records.key(number), self.records.value(number, new));
        let keyspace = &self.keyspace;
        self.recorder.operation(
            number,
            || keyspace.update(&key, &value).expect(NO_CALL_FAILS),
            |updated| Call::Update { new, updated: *updated },
        );
    }

    /// Looks a record up, and swaps it for another one, or for none, unless somebody else has changed it.
    fn swap(&mut self, number: u64) {
        let expected = self.get(number);
        let new = (self.random.below(4) > 0).then(|| self.fresh());
        let records = self.records;
        let key = records.key(number);
        let value_of = |state: State| state.map(|token| records.value(number, token));
        let (old_value, new_value) = (value_of(expected), value_of(new));
        let keyspace = &self.keyspace;
        let _swap = self.recorder.operation(
            number,
            || {
                let swap =
                    keyspace.compare_and_swap(&key, old_value.as_deref(), new_value.as_deref());
                swap.expect(NO_CALL_FAILS)
            },
            |swap| {
                let differs = match swap {
                    CompareAndSwap::Swapped => None,
                    CompareAndSwap::Differs(found) => Some(records.state(number, found.as_deref())),
                };
                Call::Swap { expected, new, differs }
            },
        );
    }

    /// Puts a record or removes it, and is told what was there: in one descent, or by a closure.
    fn exchange(&mut self, number: u64) {
        let new = (self.random.below(4) > 0).then(|| self.fresh());
        let by_closure = self.random.below(3) == 0;
        let records = self.records;
        let key = records.key(number);
        let value = new.map(|token| records.value(number, token));
        let keyspace = &self.keyspace;
        self.recorder.operation(
            number,
            || {
                let found = match &value {
                    _ if by_closure => keyspace.fetch_update(&key, |_| value.as_deref()),
                    Some(value) => keyspace.swap(&key, value),
                    None => keyspace.take(&key),
                };
                found.expect(NO_CALL_FAILS)
            },
            |found| Call::Exchange { new, found: records.state(number, found.as_deref()) },
        );
    }

    fn contains(&mut self, number: u64) {
        let key = self.records.key(number);
        let keyspace = &self.keyspace;
        self.recorder.operation(
            number,
            || keyspace.contains_key(&key).expect(NO_CALL_FAILS),
            |found| Call::Contains { found: *found },
        );
    }

    fn get(&mut self, number: u64) -> State {
        let records = self.records;
        let key = records.key(number);
        let into = self.random.below(2) == 0;
        let keyspace = &self.keyspace;
        let found = self.recorder.operation(
            number,
            || {
                if into {
                    let mut value = Vec::new();
                    let found = keyspace.get_into(&key, &mut value).expect(NO_CALL_FAILS);
                    found.then_some(value)
                } else {
                    keyspace.get(&key).expect(NO_CALL_FAILS).map(Value::into_vec)
                }
            },
            |found| Call::Get { found: records.state(number, found.as_deref()) },
        );
        records.state(number, found.as_deref())
    }

    fn get_many(&mut self, numbers: &[u64]) {
        let records = self.records;
        let keys: Vec<_> = numbers.iter().map(|number| records.key(*number)).collect();
        let keyspace = &self.keyspace;
        self.recorder.together(
            None,
            || keyspace.get_many(&keys).expect(NO_CALL_FAILS),
            |values| {
                assert_eq!(values.len(), numbers.len());
                let look = |(number, value): (&u64, &Option<Value>)| {
                    (*number, Call::Get { found: records.state(*number, value.as_deref()) })
                };
                numbers.iter().zip(values).map(look).collect::<Vec<_>>()
            },
        );
    }

    /// Puts two records and removes one, of different keys: nobody promises whether others see the first of two changes
    /// of one key.
    fn batch(&mut self, field: &Field) {
        let (first, second, removed) = (self.hot(field), self.near(field), self.near(field));
        let transaction = self.fresh();
        let mut calls: Vec<(u64, Call)> = Vec::new();
        let mut batch = WriteBatch::new();
        for (number, is_put) in [(first, true), (second, true), (removed, false)] {
            if calls.iter().any(|(earlier, _)| *earlier == number) {
                continue;
            }
            let key = self.records.key(number);
            if is_put {
                let new = self.fresh();
                let value = self.records.value(number, new);
                batch.put(&self.keyspace, &key, &value).expect(NO_CALL_FAILS);
                calls.push((number, Call::Put { new, was_there: None }));
            } else {
                batch.remove(&self.keyspace, &key).expect(NO_CALL_FAILS);
                calls.push((number, Call::Remove { was_there: None }));
            }
        }
        let db = &self.db;
        self.recorder.together(
            Some(transaction),
            || db.write(&batch).expect(NO_CALL_FAILS),
            |_| calls,
        );
    }

    /// Each key of the range is removed at some moment of the call.
    fn remove_range(&mut self, low: u64, high: u64) {
        let bounds = self.records.key(low)..=self.records.key(high);
        let keyspace = &self.keyspace;
        self.recorder.together(
            None,
            || keyspace.remove_range(bounds).expect(NO_CALL_FAILS),
            |_| (low..=high).map(|number| (number, Call::Remove { was_there: None })),
        );
    }

    fn scan_near(&mut self, field: &Field) {
        let (a, b) = (self.near(field), self.hot(field));
        let limit = 1 + self.random.below(SCAN_LIMIT) as usize;
        match self.random.below(4) {
            0 => self.visit(a.min(b), a.max(b), limit),
            1 => self.scan(a.min(b), a.max(b), limit, false),
            _ => self.scan(a.min(b), a.max(b), limit, true),
        }
    }

    /// Scans everything.
    pub fn scan_all(&mut self, field: &Field) {
        self.scan(0, field.keys - 1, usize::MAX, true);
    }

    fn scan(&mut self, low: u64, high: u64, limit: usize, forward: bool) {
        let records = self.records;
        let bounds = records.key(low)..=records.key(high);
        let keyspace = &self.keyspace;
        self.recorder.scan((low, high), forward, limit, || {
            let read = |record: hedgerow::internals::error::Result<(Value, Value)>| {
                let (key, value) = record.expect(NO_CALL_FAILS);
                let number = records.number(&key);
                (number, records.token(number, &value))
            };
            let range = keyspace.range(bounds);
            match forward {
                true => range.take(limit).map(read).collect(),
                false => range.rev().take(limit).map(read).collect(),
            }
        });
    }

    /// A scan that has a leaf at a time.
    fn visit(&mut self, low: u64, high: u64, limit: usize) {
        let records = self.records;
        let from = records.key(low);
        let keyspace = &self.keyspace;
        self.recorder.scan((low, high), true, limit, || {
            let mut found = Vec::new();
            let mut cursor = keyspace.cursor();
            cursor.seek(&from);
            let ended = cursor.visit(|key, value| {
                let number = records.number(key);
                if number > high || found.len() == limit {
                    return ControlFlow::Break(());
                }
                found.push((number, records.token(number, value)));
                ControlFlow::Continue(())
            });
            ended.map(drop).expect(NO_CALL_FAILS);
            found
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn records_tell_their_keys_and_tokens() {
        for (dense, one_size) in [(false, false), (false, true), (true, false), (true, true)] {
            let records = Records { dense, one_size, all_forms: false };
            let keys: Vec<_> = [0, 1, 9, 10, 255, 256, 70_000].map(|n| records.key(n)).into();
            assert!(keys.is_sorted());
            for (key, token) in keys.iter().zip(1 << 32..) {
                let number = records.number(key);
                assert_eq!(records.key(number), *key);
                let value = records.value(number, token);
                assert_eq!(records.token(number, &value), token);
                // The smallest pages there are take them.
                assert!(key.len() + value.len() <= 84);
            }
        }
    }

    #[test]
    fn long_keys_tell_their_numbers_and_come_in_their_order() {
        let records = Records { dense: false, one_size: false, all_forms: true };
        let numbers = [0, FIRST_LONG - 1, FIRST_LONG, FIRST_LONG + 1, 70_000];
        let keys = numbers.map(|number| records.key(number));
        assert!(
            keys.is_sorted() && keys[2].len() > hedgerow::internals::node::max_short_key_bytes(512)
        );
        assert_eq!(keys.map(|key| records.number(&key)), numbers);
    }

    #[test]
    #[should_panic(expected = "not a value of 7")]
    fn a_torn_value_is_none() {
        let records = Records { dense: false, one_size: true, all_forms: false };
        let mut value = records.value(7, 1);
        let other = records.value(7, 2);
        value[20..].copy_from_slice(&other[20..]);
        records.token(7, &value);
    }
}
