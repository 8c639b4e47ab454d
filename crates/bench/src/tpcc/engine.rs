//! Hedgerow as the store: a keyspace for each table, in memory or in a file, and a record that says what was loaded.
//!
//! [`Store`] is `Send + Sync`; each terminal has [`Handles`] of its own.

use super::records::{Loaded, Record};
use super::store::{Load, Step, Tables};
use super::tables::{Key, Table};
use super::{Error, Scale, load};
use hedgerow::{CompactBudget, ContentionSplit, Cursor, Database, ErrorKind, Keyspace, Options};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

/// The keyspace, and the key, of the record that says what was loaded. It is put when everything is.
const MARK: (&str, &[u8]) = ("tpcc", b"loaded");
/// The version of keys and records.
const FORMAT: u32 = 2;
/// How full leaves are after the load, if nothing else is said: tables grow.
const FILL_PERCENT: u8 = 90;

/// Where the store is, and with what options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The file; in memory without one.
    pub path: Option<PathBuf>,
    /// Bytes of a page.
    pub page_bytes: Option<usize>,
    /// The most bytes of memory.
    pub memory_limit_bytes: Option<u64>,
    /// Whether changes are not logged. In memory they never are.
    pub is_without_log: bool,
    /// Whether leaves are not merged with their neighbours before they are written.
    pub is_without_merges: bool,
    /// How full leaves are after the load, in percent; 90 without.
    pub fill_percent: Option<u8>,
    /// Whether rows of the load are inserted one by one, and not loaded in bulk.
    pub is_inserted: bool,
}

/// A store that is loaded.
#[derive(Debug)]
pub struct Store {
    database: Database,
    keyspaces: Vec<Keyspace>,
    /// Seconds that the load took, if there was one.
    pub load_seconds: Option<f64>,
}

/// The tables for one terminal.
#[derive(Debug)]
pub struct Handles {
    pub(super) database: Database,
    pub(super) keyspaces: Vec<Keyspace>,
    cursors: Vec<Cursor>,
    /// How full a bulk load leaves the leaves; `None`: rows are inserted.
    fill_percent: Option<u8>,
}

impl From<hedgerow::Error> for Error {
    fn from(error: hedgerow::Error) -> Error {
        match error.kind() {
            ErrorKind::InvalidOption => Error::Refused(error.to_string()),
            _ => Error::Store(error.to_string()),
        }
    }
}

impl Store {
    /// Opens the store at `place`; makes and loads it if there is none. `is_over` is asked for each row that is loaded.
    ///
    /// Errors: `Refused` for options and scales out of range, and for a store that holds something else, was loaded in another scale, or
    /// only in part; `Interrupted` if `is_over` says so; those of the engine.
    pub fn open(
        place: &Place,
        scale: &Scale,
        seed: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Store, Error> {
        scale.check()?;
        let mut options = Options::new()
            .log(!place.is_without_log)
            .merge_before_writing(!place.is_without_merges);
        if let Some(bytes) = place.page_bytes {
            options = options.page_bytes(bytes);
        }
        if let Some(bytes) = place.memory_limit_bytes {
            options = options.memory_limit_bytes(bytes);
        }
        let database = match &place.path {
            Some(path) => options.open_or_create(path)?,
            None => options.in_memory()?,
        };
        let is_new = database.keyspaces()?.is_empty();
        if !is_new {
            check_mark(&database, scale)?;
        }
        let keyspaces: Result<Vec<Keyspace>, _> =
            Table::ALL.iter().map(|table| database.keyspace(table.name())).collect();
        let mut store = Store { database, keyspaces: keyspaces?, load_seconds: None };
        if is_new {
            let started = Instant::now();
            let mut handles = store.handles();
            let fill_percent = place.fill_percent.unwrap_or(FILL_PERCENT);
            handles.fill_percent = (!place.is_inserted).then_some(fill_percent);
            load::load(&mut handles, scale, seed, is_over)?;
            let loaded = Loaded {
                format: FORMAT,
                warehouses: scale.warehouses,
                share: scale.share.to_bits(),
            };
            store.database.keyspace(MARK.0)?.put(MARK.1, &loaded.to_bytes())?;
            store.database.checkpoint()?;
            store.load_seconds = Some(started.elapsed().as_secs_f64());
        }
        Ok(store)
    }

    /// Its tables, for one terminal.
    pub fn handles(&self) -> Handles {
        let cursors = self.keyspaces.iter().map(Keyspace::cursor).collect();
        Handles {
            database: self.database.clone(),
            keyspaces: self.keyspaces.clone(),
            cursors,
            fill_percent: Some(FILL_PERCENT),
        }
    }

    /// The same with other parameters of Contention Split in all tables, or without.
    #[must_use]
    pub fn with_contention_split(mut self, split: Option<ContentionSplit>) -> Store {
        let keyspaces = self.keyspaces.into_iter();
        self.keyspaces = keyspaces.map(|k| k.with_contention_split(split)).collect();
        self
    }

    /// Leaves that Contention Split has split.
    ///
    /// Errors: `Store` if the database is closed.
    pub fn contention_splits(&self) -> Result<u64, Error> {
        Ok(self.database.stats()?.contention.splits)
    }

    /// Bytes of the pages of all tables.
    ///
    /// Errors: those of the engine.
    pub fn tree_bytes(&self) -> Result<u64, Error> {
        let mut bytes = 0;
        for keyspace in &self.keyspaces {
            let stats = keyspace.stats()?;
            bytes += stats.pages() * stats.page_bytes as u64;
        }
        Ok(bytes)
    }

    /// Merges leaves of all tables with their neighbours, wherever a group fits into one fewer.
    ///
    /// Errors: those of the engine.
    pub fn compact(&self) -> Result<(), Error> {
        for keyspace in &self.keyspaces {
            keyspace.compact(&CompactBudget::unlimited(), |_| ControlFlow::Continue(()))?;
        }
        Ok(())
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.keyspaces.first().map_or(0, Keyspace::page_bytes)
    }

    /// The most bytes of memory that it takes. Errors: those of the engine.
    pub fn memory_limit_bytes(&self) -> Result<u64, Error> {
        Ok(self.database.stats()?.memory.limit_bytes)
    }

    /// Makes everything durable, if it is in a file. Errors: those of the engine.
    pub fn close(self) -> Result<(), Error> {
        let Store { database, keyspaces, .. } = self;
        drop(keyspaces);
        Ok(database.close()?)
    }
}

/// Refuses a store that was not loaded by this benchmark, whole and in this scale.
fn check_mark(database: &Database, scale: &Scale) -> Result<(), Error> {
    let refused = |words: String| Err(Error::Refused(words));
    let Some(keyspace) = database.open_keyspace(MARK.0)? else {
        let words = "the store holds something else than TPC-C, or its load was not finished";
        return refused(format!("{words}: choose another file, or remove it"));
    };
    let mark = keyspace.get(MARK.1)?;
    let Some(loaded) = mark.and_then(|bytes| Loaded::read(&bytes)) else {
        return refused("the load of the store was not finished: remove it".into());
    };
    let Loaded { format, warehouses, share } = loaded;
    if format != FORMAT {
        return refused(format!("the store has records of version {format}, this is {FORMAT}"));
    }
    let share = f64::from_bits(share);
    if warehouses != scale.warehouses {
        let asked = scale.warehouses;
        return refused(format!("warehouses in the store: {warehouses}, asked for: {asked}"));
    }
    if share != scale.share {
        let asked = scale.share;
        return refused(format!("scale of the store: {share}, asked for: {asked}"));
    }
    Ok(())
}

impl Tables for Handles {
    fn get(&mut self, table: Table, key: &[u8], value: &mut Vec<u8>) -> Result<bool, Error> {
        Ok(self.keyspaces[table as usize].get_into(key, value)?)
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<bool, Error> {
        Ok(self.keyspaces[table as usize].insert_if_absent(key, value)?)
    }

    fn swap(
        &mut self,
        table: Table,
        key: &[u8],
        expected: &[u8],
        new: &[u8],
    ) -> Result<bool, Error> {
        let keyspace = &self.keyspaces[table as usize];
        Ok(keyspace.compare_and_swap(key, Some(expected), Some(new))?.is_swapped())
    }

    fn remove(&mut self, table: Table, key: &[u8]) -> Result<bool, Error> {
        Ok(self.keyspaces[table as usize].remove(key)?)
    }

    fn scan(
        &mut self,
        table: Table,
        from: &[u8],
        each: &mut dyn FnMut(&[u8], &[u8]) -> Step,
    ) -> Result<(), Error> {
        let cursor = &mut self.cursors[table as usize];
        cursor.seek(from);
        cursor.visit(each).map(drop)?;
        Ok(())
    }
}

impl Load for Handles {
    fn load(
        &mut self,
        table: Table,
        records: &mut dyn Iterator<Item = (Key, Vec<u8>)>,
    ) -> Result<(), Error> {
        let keyspace = &self.keyspaces[table as usize];
        match self.fill_percent {
            Some(percent) => keyspace.bulk_load(records, percent).map(drop)?,
            None => {
                for (key, row) in records {
                    keyspace.put(key.as_ref(), &row)?;
                }
            }
        }
        Ok(())
    }
}
