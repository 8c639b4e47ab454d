//! redb: one file and a cache of its own, all in Rust.
//!
//! Commits are durable (`Durability::Immediate`) if the cell asks for that. Else they are not (`Durability::None`), so
//! that nothing need reach the file before `settle`, and what is not in the file stays in memory, whatever the size
//! of the cache; but of buffered ones the first that comes 100 ms after the last durable one is durable, and all before
//! it with it, because redb does nothing by itself. The cache holds everything several times unless the cell has a
//! limit; in a memory group it is half of a small one.
//!
//! The database is `Send + Sync`; a session is one thread's.

use crate::changes::Changes;
use crate::engines::{BATCH, small_limit_of_caches};
use ::redb::{
    Database, Durability, ReadOnlyTable, ReadableDatabase, ReadableTableMetadata, TableDefinition,
    WriteTransaction,
};
use hedgerow_bench::cell::{Cell, CellError, Durability as Asked};
use hedgerow_bench::harness::{Engine, Session, ValueBytes};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The one table.
const RECORDS: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("bench");

/// Bytes of the cache beyond what the records need.
const SPARE_BYTES: u64 = 64 << 20;

/// How old a buffered commit gets before it is durable, as long as there are others after it.
const BUFFERED_FOR: Duration = Duration::from_millis(100);

/// Bytes of a page; redb has no choice.
const PAGE_BYTES: u64 = 4096;

/// The table as readers have it.
type Table = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A database with one table. `OPERATIONS`: of a transaction, after loading.
pub struct Store<const OPERATIONS: usize> {
    database: Database,
    pace: Pace,
    cache_bytes: usize,
    is_loaded: bool,
}

/// Which commits are durable.
struct Pace {
    asked: Asked,
    /// When the last durable one was begun.
    last: Mutex<Instant>,
}

impl Pace {
    /// How durable the next commit is.
    fn next(&self, is_loading: bool) -> Durability {
        match self.asked {
            Asked::Sync if !is_loading => Durability::Immediate,
            Asked::None => Durability::None,
            Asked::Sync | Asked::Buffered => {
                let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
                if last.elapsed() < BUFFERED_FOR {
                    return Durability::None;
                }
                *last = Instant::now();
                Durability::Immediate
            }
        }
    }
}

/// One thread's access.
pub struct Access<'a, const OPERATIONS: usize> {
    database: &'a Database,
    pace: &'a Pace,
    is_loading: bool,
    changes: Changes,
    /// The table in a transaction that reads, and how many more operations it is for.
    reading: Option<(Table, usize)>,
}

/// A transaction of this store that changes something.
fn write(database: &Database, durability: Durability) -> Result<WriteTransaction, CellError> {
    let mut transaction = database.begin_write().map_err(CellError::failed)?;
    transaction.set_durability(durability).map_err(CellError::failed)?;
    Ok(transaction)
}

impl<const OPERATIONS: usize> Engine for Store<OPERATIONS> {
    type Session<'a> = Access<'a, OPERATIONS>;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Self, CellError> {
        let all = cell.memory_limit_bytes.unwrap_or(4 * record_bytes + SPARE_BYTES);
        let cache_bytes = small_limit_of_caches(cell, record_bytes).unwrap_or(all);
        let cache_bytes = usize::try_from(cache_bytes).map_err(CellError::failed)?;
        let database = Database::builder()
            .set_cache_size(cache_bytes)
            .create(cell.directory.join("bench.redb"))
            .map_err(CellError::failed)?;
        // Readers cannot make the table.
        let transaction = write(&database, Durability::None)?;
        transaction.open_table(RECORDS).map_err(CellError::failed)?;
        transaction.commit().map_err(CellError::failed)?;
        let pace = Pace { asked: cell.durability, last: Mutex::new(Instant::now()) };
        Ok(Store { database, pace, cache_bytes, is_loaded: false })
    }

    fn keeps(_durability: Asked) -> bool {
        true
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Access<'_, OPERATIONS>>, CellError> {
        // The first session is for loading.
        let is_loading = !std::mem::replace(&mut self.is_loaded, true);
        let operations = if is_loading { BATCH } else { OPERATIONS };
        let (database, pace) = (&self.database, &self.pace);
        let access = |_| {
            let changes = Changes::new(operations);
            Access { database, pace, is_loading, changes, reading: None }
        };
        Ok((0..threads).map(access).collect())
    }

    fn bulk_load<'k>(
        &mut self,
        records: impl Iterator<Item = (&'k [u8], ValueBytes)>,
    ) -> Result<(), CellError> {
        self.is_loaded = true;
        let transaction = write(&self.database, Durability::None)?;
        {
            let mut table = transaction.open_table(RECORDS).map_err(CellError::failed)?;
            for (key, value) in records {
                table.insert(key, &value[..]).map_err(CellError::failed)?;
            }
        }
        transaction.commit().map_err(CellError::failed)
    }

    /// Commits durably and compacts the file until it gets no smaller.
    fn settle(&mut self) -> Result<(), CellError> {
        let transaction = self.database.begin_write().map_err(CellError::failed)?;
        transaction.commit().map_err(CellError::failed)?;
        while self.database.compact().map_err(CellError::failed)? {}
        Ok(())
    }

    fn store_bytes(&mut self) -> Result<Option<u64>, CellError> {
        let transaction = self.database.begin_read().map_err(CellError::failed)?;
        let table = transaction.open_table(RECORDS).map_err(CellError::failed)?;
        let stats = table.stats().map_err(CellError::failed)?;
        Ok(Some((stats.leaf_pages() + stats.branch_pages()) * PAGE_BYTES))
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let settings = match self.pace.asked {
            Asked::Sync => "Durability::Immediate",
            Asked::Buffered => "Durability::Immediate once in 100 ms, else None",
            Asked::None => "Durability::None",
        };
        let facts = [
            ("settings", settings.to_owned()),
            ("cache_bytes", self.cache_bytes.to_string()),
            ("operations_a_transaction", OPERATIONS.to_string()),
        ];
        facts.map(|(name, fact)| (name.to_owned(), fact)).into()
    }
}

impl<const OPERATIONS: usize> Access<'_, OPERATIONS> {
    /// Adds a change, and commits if that makes enough of them.
    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), CellError> {
        if self.changes.push(key, value) { self.commit() } else { Ok(()) }
    }

    /// Makes the changes that wait.
    fn commit(&mut self) -> Result<(), CellError> {
        self.reading = None;
        let transaction = write(self.database, self.pace.next(self.is_loading))?;
        {
            let mut table = transaction.open_table(RECORDS).map_err(CellError::failed)?;
            for (key, value) in self.changes.iter() {
                match value {
                    Some(value) => table.insert(key, value),
                    None => table.remove(key),
                }
                .map_err(CellError::failed)?;
            }
        }
        transaction.commit().map_err(CellError::failed)?;
        self.changes.clear();
        Ok(())
    }

    /// Calls `read` in a transaction that sees all changes of this session.
    #[inline]
    fn read<R>(
        &mut self,
        read: impl FnOnce(&Table) -> Result<R, ::redb::StorageError>,
    ) -> Result<R, CellError> {
        if !self.changes.is_empty() {
            self.commit()?;
        }
        let (table, left) = match self.reading.take() {
            Some(reading) => reading,
            None => {
                let transaction = self.database.begin_read().map_err(CellError::failed)?;
                (transaction.open_table(RECORDS).map_err(CellError::failed)?, OPERATIONS)
            }
        };
        let outcome = read(&table).map_err(CellError::failed);
        if left > 1 {
            self.reading = Some((table, left - 1));
        }
        outcome
    }
}

impl<const OPERATIONS: usize> Session for Access<'_, OPERATIONS> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        self.change(key, Some(value))
    }

    #[inline]
    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        self.read(|table| {
            if let Some(value) = table.get(key)? {
                found(value.value());
            }
            Ok(())
        })
    }

    #[inline]
    fn scan(
        &mut self,
        from: &[u8],
        records: usize,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError> {
        self.read(|table| {
            for record in table.range(from..)?.take(records) {
                let (key, value) = record?;
                found(key.value(), value.value());
            }
            Ok(())
        })
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        self.change(key, None)
    }

    fn finish(&mut self) -> Result<(), CellError> {
        if !self.changes.is_empty() {
            self.commit()?;
        }
        self.reading = None;
        Ok(())
    }
}
