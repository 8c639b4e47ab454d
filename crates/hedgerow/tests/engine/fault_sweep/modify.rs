//! Steps that change a record and tell what it was: each is made, or refused, as a whole. One thread; see `run.rs`.

use super::run::Run;
use super::state::Bytes;
use crate::common::key;
use hedgerow::{Database, Durability};

impl Run {
    /// Puts a value, or removes the record, and compares the value before.
    pub fn exchange(&mut self, db: &Database, name: &str, n: u64, len: Option<usize>) {
        let value = len.map(|len| self.value(len));
        let key = key(n);
        let mut after = self.now().clone();
        let Some(records) = after.records_mut(name) else { return };
        let before = match &value {
            Some(value) => records.insert(key.as_slice().into(), value.as_slice().into()),
            None => records.remove(key.as_slice()),
        };
        let done = db.keyspace(name).and_then(|keyspace| match &value {
            Some(value) => keyspace.swap(&key, value),
            None => keyspace.take(&key),
        });
        if let Ok(found) = &done {
            let is_right = self.is_in_parts || found.as_deref() == before.as_deref();
            assert!(is_right, "{}: another value of {n} was there", self.case);
        }
        self.changed("an exchange", done.map(drop), after, false);
    }

    /// Adds to the integer of a key that nothing else is put to.
    pub fn add(&mut self, db: &Database, name: &str, n: u64) {
        let key = key(n);
        let number = i64::from(self.dice.below(1_000) as u32);
        let mut after = self.now().clone();
        let Some(records) = after.records_mut(name) else { return };
        let integer = |bytes: &Bytes| i64::from_be_bytes((**bytes).try_into().unwrap());
        let before = records.get(key.as_slice()).map_or(0, integer);
        let sum = before.wrapping_add(number).to_be_bytes();
        records.insert(key.as_slice().into(), sum.as_slice().into());
        let done = db.keyspace(name).and_then(|keyspace| keyspace.fetch_add(&key, number));
        if let Ok(found) = &done {
            assert!(self.is_in_parts || *found == before, "{}: another integer", self.case);
        }
        self.changed("an addition", done.map(drop), after, false);
    }

    /// Removes the record at an end, the last one durably, and compares it.
    pub fn pop(&mut self, db: &Database, name: &str, is_first: bool) {
        let mut after = self.now().clone();
        let Some(records) = after.records_mut(name) else { return };
        let before = if is_first { records.pop_first() } else { records.pop_last() };
        let done = db.keyspace(name).and_then(|keyspace| match is_first {
            true => keyspace.pop_first(),
            false => keyspace.with_durability(Durability::Sync).pop_last(),
        });
        if let Ok(found) = &done {
            let found = found.as_ref().map(|(key, value)| (&key[..], &value[..]));
            let known = before.as_ref().map(|(key, value)| (&key[..], &value[..]));
            assert!(self.is_in_parts || found == known, "{}: another record at the end", self.case);
        }
        self.changed("a pop", done.map(drop), after, !is_first);
    }
}
