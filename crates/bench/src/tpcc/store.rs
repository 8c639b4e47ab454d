//! What a store has to do for the transactions, and what a terminal does with it.
//!
//! A store is seen by one terminal through its own [`Tables`]: no threads, no clocks, no locks. Several terminals have one each, over
//! the same records.

use super::Error;
use super::records::Record;
use super::tables::{Key, Table};
use std::ops::ControlFlow;

/// What a scan is told after each record.
pub type Step = ControlFlow<()>;

/// The tables of a store, for one terminal. Each call is atomic; several are in a transaction only.
///
/// Errors: `Store`.
pub trait Tables {
    /// Replaces the contents of `value` by the record of `key`, and returns whether there is one.
    fn get(&mut self, table: Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error>;

    /// Puts a record unless there is one of the same key. Returns whether it did.
    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, Error>;

    /// Makes `new` the record of `key` if that is `expected`. Returns whether it was.
    fn swap(
        &mut self,
        table: Table,
        key: &[u8],
        expected: &[u8],
        new: &[u8],
    ) -> Result<bool, Error>;

    /// Removes a record. Returns whether there was one.
    fn remove(&mut self, table: Table, key: &[u8]) -> Result<bool, Error>;

    /// Calls `each` with key and record, in order, from `from` on, it included, until it breaks or there are no more.
    fn scan(
        &mut self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> Step,
    ) -> Result<(), Error>;
}

/// Tables that can be loaded.
pub trait Load {
    /// Loads records, whose keys come in ascending order, into a table that is empty.
    ///
    /// Errors: `Store`.
    fn load(
        &mut self,
        table: Table,
        records: &mut dyn Iterator<Item = (Key, Vec<u8>)>,
    ) -> Result<(), Error>;
}

/// The tables that a terminal works with, and the buffers for what it reads.
pub struct Work<'a, T> {
    tables: &'a mut T,
    old: Vec<u8>,
    new: Vec<u8>,
    /// How often a record had changed between reading and swapping it.
    pub retries: u64,
    /// The date of the transaction.
    pub date: u64,
}

impl<'a, T: Tables> Work<'a, T> {
    /// With `tables`.
    pub fn new(tables: &'a mut T) -> Work<'a, T> {
        Work { tables, old: Vec::new(), new: Vec::new(), retries: 0, date: 0 }
    }

    /// A head, if there is such a record.
    pub fn find<R: Record>(&mut self, table: Table, key: Key) -> Result<Option<R>, Error> {
        if !self.tables.get(table, key.as_ref(), &mut self.old)? {
            return Ok(None);
        }
        R::read(&self.old).map(Some).ok_or(Error::Malformed(table))
    }

    /// The head of a record that there must be.
    pub fn read<R: Record>(&mut self, table: Table, key: Key) -> Result<R, Error> {
        self.find(table, key)?.ok_or(Error::Missing(table, key))
    }

    /// The whole of the record that was read or changed last; before the change.
    pub fn bytes(&self) -> &[u8] {
        &self.old
    }

    /// Changes the head of a record that there must be. `change` may be called several times, and returns whether there is anything to
    /// change. Returns the new head; none if `change` has left it alone.
    pub fn change<R: Record>(
        &mut self,
        table: Table,
        key: Key,
        mut change: impl FnMut(&mut R) -> bool,
    ) -> Result<Option<R>, Error> {
        self.change_all(table, key, |old, new| {
            let Some(mut head) = R::read(old) else { return Err(Error::Malformed(table)) };
            if !change(&mut head) {
                return Ok(None);
            }
            head.append(new);
            new.extend_from_slice(&old[R::BYTES..]);
            Ok(Some(head))
        })
    }

    /// Changes the head of a record that there must be; `change` may be called several times. Returns the new head.
    pub fn update<R: Record>(
        &mut self,
        table: Table,
        key: Key,
        mut change: impl FnMut(&mut R),
    ) -> Result<R, Error> {
        let changed = self.change(table, key, |head| {
            change(head);
            true
        })?;
        Ok(changed.expect("it is always changed"))
    }

    /// Changes a record that there must be. `change` gets the old record and makes the new one in an empty buffer; it may be called
    /// several times, and returns none if there is nothing to change.
    pub fn change_all<O>(
        &mut self,
        table: Table,
        key: Key,
        mut change: impl FnMut(&[u8], &mut Vec<u8>) -> Result<Option<O>, Error>,
    ) -> Result<Option<O>, Error> {
        loop {
            if !self.tables.get(table, key.as_ref(), &mut self.old)? {
                return Err(Error::Missing(table, key));
            }
            self.new.clear();
            let Some(outcome) = change(&self.old, &mut self.new)? else { return Ok(None) };
            if self.tables.swap(table, key.as_ref(), &self.old, &self.new)? {
                return Ok(Some(outcome));
            }
            self.retries += 1;
        }
    }

    /// Inserts a record without texts that there must not be yet.
    pub fn insert_head<R: Record>(
        &mut self,
        table: Table,
        key: Key,
        head: &R,
    ) -> Result<(), Error> {
        self.new.clear();
        head.append(&mut self.new);
        if self.tables.insert(table, key.as_ref(), &self.new)? {
            return Ok(());
        }
        Err(Error::Present(table, key))
    }

    /// Inserts a record that there must not be yet.
    pub fn insert(&mut self, table: Table, key: Key, value: &[u8]) -> Result<(), Error> {
        if self.tables.insert(table, key.as_ref(), value)? {
            return Ok(());
        }
        Err(Error::Present(table, key))
    }

    /// Removes a record that there must be.
    pub fn remove(&mut self, table: Table, key: Key) -> Result<(), Error> {
        if self.tables.remove(table, key.as_ref())? {
            return Ok(());
        }
        Err(Error::Missing(table, key))
    }

    /// Calls `each` with all records from `from` on whose keys begin with `prefix`, until it returns false.
    pub fn scan(
        &mut self,
        table: Table,
        prefix: Key,
        from: Key,
        mut each: impl FnMut(&[u8], &[u8]) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let mut outcome = Ok(());
        self.tables.scan(table, from.as_ref(), &mut |key, value| {
            if !key.starts_with(prefix.as_ref()) {
                return Step::Break(());
            }
            match each(key, value) {
                Ok(true) => Step::Continue(()),
                Ok(false) => Step::Break(()),
                Err(error) => {
                    outcome = Err(error);
                    Step::Break(())
                }
            }
        })?;
        outcome
    }
}
