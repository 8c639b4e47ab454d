//! The tables of Hedgerow within a transaction: everything that is read and written is there as a whole, or not at all.
//!
//! A transaction that has met a conflict is run again, from its first read. One that the specification has rolled back is aborted.
//! [`Within`] belongs to one transaction of one terminal.

use super::engine::Handles;
use super::store::{Step, Tables, Work};
use super::{Error, Outcome, Table, Transaction};
use hedgerow::{Keyspace, TransactOptions, TransactionKeyspace};
use serde::{Deserialize, Serialize};

/// What a transaction may be mixed with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// With anything: each of its steps is atomic alone
    #[default]
    Steps,
    /// With what began before its end and writes something else: it reads one moment
    Snapshot,
    /// With nothing
    Serializable,
}

/// A transaction that meets so many others one after the other is given up, and with it the run.
const MOST_RETRIES: u32 = 1_000;

/// The tables as a transaction has them.
struct Within<'t> {
    transaction: &'t hedgerow::Transaction,
    all: &'t [Keyspace],
    /// Those that were asked for.
    keyspaces: [Option<TransactionKeyspace>; Table::ALL.len()],
}

impl Within<'_> {
    fn keyspace(&mut self, table: Table) -> Result<&TransactionKeyspace, Error> {
        let slot = &mut self.keyspaces[table as usize];
        Ok(match slot {
            Some(keyspace) => keyspace,
            None => slot.insert(self.transaction.keyspace(&self.all[table as usize])?),
        })
    }
}

impl Tables for Within<'_> {
    fn get(&mut self, table: Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        Ok(self.keyspace(table)?.get_into(key, value)?)
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        Ok(self.keyspace(table)?.insert_if_absent(key, value)?)
    }

    fn swap(
        &mut self,
        table: Table,
        key: &[u8],
        expected: &[u8],
        new: &[u8],
    ) -> Result<bool, Error> {
        let keyspace = self.keyspace(table)?;
        Ok(keyspace.compare_and_swap(key, Some(expected), Some(new))?.is_swapped())
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<bool, Error> {
        Ok(self.keyspace(table)?.take(key)?.is_some())
    }

    fn scan(
        &mut self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> Step,
    ) -> Result<(), Error> {
        let mut cursor = self.keyspace(table)?.cursor();
        cursor.seek(from);
        cursor.visit(each).map(drop)?;
        Ok(())
    }
}

/// Why nothing was committed.
enum End {
    RolledBack,
    Error(Error),
}

impl From<hedgerow::Error> for End {
    fn from(error: hedgerow::Error) -> End {
        End::Error(error.into())
    }
}

/// Runs a transaction in one of the store, again after each conflict. Returns how often that was as well.
///
/// Errors: as for [`Transaction::run`]; then nothing has changed.
pub fn run(
    transaction: &Transaction,
    handles: &Handles,
    isolation: hedgerow::Isolation,
    date: u64,
) -> Result<(Outcome, u64), Error> {
    let how = TransactOptions::new().isolation(isolation).retries(MOST_RETRIES);
    let mut runs = 0;
    let outcome = handles.database.transact_with(&how, |within| {
        runs += 1;
        let keyspaces = Default::default();
        let mut tables = Within { transaction: within, all: &handles.keyspaces, keyspaces };
        let mut work = Work::new(&mut tables);
        work.date = date;
        match transaction.run(&mut work) {
            Ok(Outcome::RolledBack) => Err(End::RolledBack),
            Ok(outcome) => Ok(outcome),
            Err(error) => Err(End::Error(error)),
        }
    });
    match outcome {
        Ok(outcome) => Ok((outcome, runs - 1)),
        Err(End::RolledBack) => Ok((Outcome::RolledBack, runs - 1)),
        Err(End::Error(error)) => Err(error),
    }
}

impl Isolation {
    /// That of a transaction of the store; none if there is none.
    pub fn of_store(self) -> Option<hedgerow::Isolation> {
        match self {
            Isolation::Steps => None,
            Isolation::Snapshot => Some(hedgerow::Isolation::Snapshot),
            Isolation::Serializable => Some(hedgerow::Isolation::Serializable),
        }
    }
}
