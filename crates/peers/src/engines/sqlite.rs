//! SQLite by `rusqlite`: one table without row ids, a write-ahead log, one connection that writes.
//!
//! Writers take turns at one connection behind a mutex, which is cheaper than the waiting of SQLite's own
//! busy handler; each reading thread has a connection, kept from phase to phase. Statements are
//! prepared once. SQLite is built with a page cache for each connection, as its own build has it (`.cargo/config.toml`; the record says
//! what it was). Checkpoints at 64 MiB of log; no `mmap`. With a limit that does not hold everything several
//! times, the writer's cache is half of it and the readers share the other half; else each of them has
//! all of it. `synchronous` is `FULL` for durable changes, `NORMAL` for buffered ones, else `OFF`.
//!
//! Connections are `Send`; a session is one thread's.

use crate::changes::Changes;
use crate::engines::{BATCH, small_limit};
use hedgerow_bench::cell::{Cell, CellError, Durability};
use hedgerow_bench::harness::{Engine, Session};
use rusqlite::{Connection, TransactionBehavior};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes of caches beyond what the records need, where there is no limit.
const SPARE_BYTES: u64 = 64 << 20;

/// Pages of log after which a checkpoint is taken: 64 MiB.
const CHECKPOINT_PAGES: u32 = 16 << 10;

/// How long a connection waits for another one; only a checkpoint or `VACUUM` is ever in its way.
const PATIENCE: Duration = Duration::from_secs(60);

const PUT: &str = "INSERT INTO records (key, value) VALUES (?1, ?2) \
                   ON CONFLICT (key) DO UPDATE SET value = excluded.value";
const REMOVE: &str = "DELETE FROM records WHERE key = ?1";
const GET: &str = "SELECT value FROM records WHERE key = ?1";
const SCAN: &str = "SELECT key, value FROM records WHERE key >= ?1 ORDER BY key LIMIT ?2";

/// A database with one table. `OPERATIONS`: changes of a transaction, after loading.
pub struct Store<const OPERATIONS: usize> {
    writer: Mutex<Connection>,
    readers: Vec<Connection>,
    path: PathBuf,
    synchronous: &'static str,
    writer_cache_bytes: u64,
    reader_cache_bytes: u64,
    is_synced: bool,
    is_loaded: bool,
}

/// One thread's access.
pub struct Access<'a> {
    writer: &'a Mutex<Connection>,
    reader: &'a mut Connection,
    changes: Changes,
}

/// Opens the database at `path`.
fn connect(path: &Path, synchronous: &str, cache_bytes: u64) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(PATIENCE)?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", synchronous)?;
    // Negative: in KiB, not in pages.
    connection.pragma_update(None, "cache_size", -(cache_bytes.div_ceil(1024) as i64))?;
    connection.pragma_update_and_check(None, "mmap_size", 0, |_| Ok(()))?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT_PAGES, |_| Ok(()))?;
    Ok(connection)
}

fn lock(writer: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    // A thread that panicked fails the cell anyway.
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<const OPERATIONS: usize> Store<OPERATIONS> {
    /// Writes all of the log into the database and cuts it off.
    fn checkpoint(&self) -> rusqlite::Result<()> {
        let writer = lock(&self.writer);
        writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            let busy: i64 = row.get(0)?;
            if busy == 0 { Ok(()) } else { Err(rusqlite::Error::QueryReturnedNoRows) }
        })
    }

    /// Whether all connections have one page cache, behind one lock; if SQLite was built so.
    fn shares_cache(&self) -> bool {
        const ASK: &str = "SELECT sqlite_compileoption_used('ENABLE_MEMORY_MANAGEMENT')";
        lock(&self.writer).query_row(ASK, [], |row| row.get(0)).unwrap_or(true)
    }
}

impl<const OPERATIONS: usize> Engine for Store<OPERATIONS> {
    type Session<'a> = Access<'a>;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Self, CellError> {
        let all = cell.memory_limit_bytes.unwrap_or(4 * record_bytes + SPARE_BYTES);
        let (writer_cache_bytes, reader_cache_bytes) = match small_limit(cell, record_bytes) {
            Some(limit) => {
                let readers = cell.phases.iter().map(|phase| phase.threads).max().unwrap_or(1);
                (limit / 2, limit / 2 / readers as u64)
            }
            None => (all, all),
        };
        let synchronous = match cell.durability {
            Durability::None => "OFF",
            // Loading waits for nobody; the first phase turns on what is asked.
            Durability::Buffered | Durability::Sync => "NORMAL",
        };
        let path = cell.directory.join("bench.sqlite");
        let writer = connect(&path, synchronous, writer_cache_bytes).map_err(CellError::failed)?;
        writer
            .execute_batch(
                "CREATE TABLE records (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID",
            )
            .map_err(CellError::failed)?;
        Ok(Store {
            writer: Mutex::new(writer),
            readers: Vec::new(),
            path,
            synchronous,
            writer_cache_bytes,
            reader_cache_bytes,
            is_synced: cell.durability == Durability::Sync,
            is_loaded: false,
        })
    }

    fn keeps(_durability: Durability) -> bool {
        true
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Access<'_>>, CellError> {
        // The first session is for loading.
        let is_loading = !std::mem::replace(&mut self.is_loaded, true);
        let operations = if is_loading { BATCH } else { OPERATIONS };
        if self.is_synced && !is_loading {
            self.synchronous = "FULL";
            let writer = lock(&self.writer);
            writer
                .pragma_update(None, "synchronous", self.synchronous)
                .map_err(CellError::failed)?;
        }
        while self.readers.len() < threads {
            let reader = connect(&self.path, self.synchronous, self.reader_cache_bytes);
            self.readers.push(reader.map_err(CellError::failed)?);
        }
        let writer = &self.writer;
        let readers = self.readers.iter_mut().take(threads);
        Ok(readers
            .map(|reader| Access { writer, reader, changes: Changes::new(operations) })
            .collect())
    }

    /// Checkpoints, and rewrites the database without its free pages.
    fn settle(&mut self) -> Result<(), CellError> {
        self.checkpoint().map_err(CellError::failed)?;
        lock(&self.writer).execute_batch("VACUUM").map_err(CellError::failed)?;
        self.checkpoint().map_err(CellError::failed)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let facts = [
            ("version", format!("SQLite {}", rusqlite::version())),
            ("settings", format!("WAL, synchronous={}, WITHOUT ROWID", self.synchronous)),
            ("page_cache", if self.shares_cache() { "one for all" } else { "one each" }.to_owned()),
            ("writer_cache_bytes", self.writer_cache_bytes.to_string()),
            ("reader_cache_bytes", self.reader_cache_bytes.to_string()),
            ("changes_a_transaction", OPERATIONS.to_string()),
        ];
        facts.map(|(name, fact)| (name.to_owned(), fact)).into()
    }
}

/// Makes one change.
fn change(connection: &Connection, key: &[u8], value: Option<&[u8]>) -> rusqlite::Result<()> {
    match value {
        Some(value) => connection.prepare_cached(PUT)?.execute((key, value)),
        None => connection.prepare_cached(REMOVE)?.execute((key,)),
    }
    .map(|_| ())
}

/// Makes changes in one transaction.
fn change_all(connection: &mut Connection, changes: &Changes) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (key, value) in changes.iter() {
        change(&transaction, key, value)?;
    }
    transaction.commit()
}

impl Access<'_> {
    /// Adds a change, and commits if that makes enough of them.
    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), CellError> {
        if self.changes.push(key, value) { self.commit() } else { Ok(()) }
    }

    /// Makes the changes that wait, in one transaction.
    fn commit(&mut self) -> Result<(), CellError> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let mut writer = lock(self.writer);
        let made = {
            let mut changes = self.changes.iter();
            let only = changes.next().filter(|_| changes.next().is_none());
            match only {
                // A statement alone is a transaction.
                Some((key, value)) => change(&writer, key, value),
                None => change_all(&mut writer, &self.changes),
            }
        };
        drop(writer);
        made.map_err(CellError::failed)?;
        self.changes.clear();
        Ok(())
    }

    fn read(
        &mut self,
        read: impl FnOnce(&mut Connection) -> rusqlite::Result<()>,
    ) -> Result<(), CellError> {
        self.commit()?;
        read(self.reader).map_err(CellError::failed)
    }
}

impl Session for Access<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        self.change(key, Some(value))
    }

    #[inline]
    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        self.read(|reader| {
            let mut statement = reader.prepare_cached(GET)?;
            let mut rows = statement.query((key,))?;
            if let Some(row) = rows.next()? {
                found(row.get_ref(0)?.as_blob()?);
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
        self.read(|reader| {
            let mut statement = reader.prepare_cached(SCAN)?;
            let most = i64::try_from(records).unwrap_or(i64::MAX);
            let mut rows = statement.query((from, most))?;
            while let Some(row) = rows.next()? {
                found(row.get_ref(0)?.as_blob()?, row.get_ref(1)?.as_blob()?);
            }
            Ok(())
        })
    }

    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        self.change(key, None)
    }

    fn finish(&mut self) -> Result<(), CellError> {
        self.commit()
    }
}
