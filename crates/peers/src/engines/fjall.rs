//! fjall 3: a journal and memtables, and sorted files in levels, all in Rust.
//!
//! Its defaults, which have LZ4 and bloom filters. With a limit that does not hold everything several
//! times: half of it for the block cache, and memtables of an eighth; else all of it for the cache, and
//! memtables of 64 MiB beside it. In a memory group both are half of that. A durable change is one after which the journal is persisted by `SyncData`;
//! a buffered one is in the system's hands, as is one of which nothing is asked: the journal cannot be
//! left out.
//!
//! The database is `Send + Sync`; a session is one thread's.

use crate::changes::Changes;
use crate::engines::{BATCH, small_limit_of_caches};
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use hedgerow_bench::cell::{Cell, CellError, Durability};
use hedgerow_bench::harness::{Engine, Session};
use std::collections::BTreeMap;

/// Bytes of a memtable where memory is not scarce; fjall's default.
const MEMTABLE_BYTES: u64 = 64 << 20;

/// The smallest memtable that is any use, in bytes.
const SMALLEST_MEMTABLE_BYTES: u64 = 64 << 10;

/// A database with one keyspace.
pub struct Store {
    // Dropped first: a keyspace keeps its database's threads at work.
    records: Keyspace,
    database: Database,
    cache_bytes: u64,
    memtable_bytes: u64,
    is_synced: bool,
    is_loaded: bool,
}

/// One thread's access.
pub struct Access<'a> {
    records: &'a Keyspace,
    database: &'a Database,
    is_synced: bool,
    /// While loading: what waits for its batch.
    loading: Option<Changes>,
}

impl Engine for Store {
    type Session<'a> = Access<'a>;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Store, CellError> {
        let small = small_limit_of_caches(cell, record_bytes);
        let all = cell.memory_limit_bytes.unwrap_or(4 * record_bytes + MEMTABLE_BYTES);
        let cache_bytes = small.map_or(all, |limit| limit / 2);
        let memtable_bytes =
            small.map_or(MEMTABLE_BYTES, |limit| (limit / 8).max(SMALLEST_MEMTABLE_BYTES));
        let database = Database::builder(cell.directory.join("bench.fjall"))
            .cache_size(cache_bytes)
            .open()
            .map_err(CellError::failed)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(memtable_bytes);
        let records = database.keyspace("bench", options).map_err(CellError::failed)?;
        let is_synced = cell.durability == Durability::Sync;
        Ok(Store { records, database, cache_bytes, memtable_bytes, is_synced, is_loaded: false })
    }

    fn keeps(_durability: Durability) -> bool {
        true
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Access<'_>>, CellError> {
        // The first session is for loading.
        let is_loading = !std::mem::replace(&mut self.is_loaded, true);
        let access = |_| Access {
            records: &self.records,
            database: &self.database,
            is_synced: self.is_synced && !is_loading,
            loading: is_loading.then(|| Changes::new(BATCH)),
        };
        Ok((0..threads).map(access).collect())
    }

    /// Writes the memtable and compacts everything.
    fn settle(&mut self) -> Result<(), CellError> {
        self.records.rotate_memtable_and_wait().map_err(CellError::failed)?;
        self.records.major_compact().map_err(CellError::failed)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let journal = if self.is_synced { "PersistMode::SyncData" } else { "PersistMode::Buffer" };
        let facts = [
            ("settings", format!("{journal} after each change, else the defaults")),
            ("cache_bytes", self.cache_bytes.to_string()),
            ("memtable_bytes", self.memtable_bytes.to_string()),
        ];
        facts.map(|(name, fact)| (name.to_owned(), fact)).into()
    }
}

impl Access<'_> {
    /// Adds a change to the batch of loading, if that is what is done; whether it did.
    fn load(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<bool, CellError> {
        let Some(changes) = &mut self.loading else { return Ok(false) };
        if changes.push(key, value) {
            self.commit()?;
        }
        Ok(true)
    }

    /// Makes the changes that wait.
    fn commit(&mut self) -> Result<(), CellError> {
        let Some(changes) = self.loading.as_mut().filter(|changes| !changes.is_empty()) else {
            return Ok(());
        };
        let mut batch = self.database.batch();
        for (key, value) in changes.iter() {
            match value {
                Some(value) => batch.insert(self.records, key, value),
                None => batch.remove(self.records, key),
            }
        }
        batch.commit().map_err(CellError::failed)?;
        changes.clear();
        Ok(())
    }

    /// Waits for the disk, if that is asked for.
    fn persist(&self) -> Result<(), CellError> {
        if !self.is_synced {
            return Ok(());
        }
        self.database.persist(PersistMode::SyncData).map_err(CellError::failed)
    }
}

impl Session for Access<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        if self.load(key, Some(value))? {
            return Ok(());
        }
        self.records.insert(key, value).map_err(CellError::failed)?;
        self.persist()
    }

    #[inline]
    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        self.commit()?;
        if let Some(value) = self.records.get(key).map_err(CellError::failed)? {
            found(&value);
        }
        Ok(())
    }

    #[inline]
    fn scan(
        &mut self,
        from: &[u8],
        records: usize,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError> {
        self.commit()?;
        for record in self.records.range(from..).take(records) {
            let (key, value) = record.into_inner().map_err(CellError::failed)?;
            found(&key, &value);
        }
        Ok(())
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        if self.load(key, None)? {
            return Ok(());
        }
        self.records.remove(key).map_err(CellError::failed)?;
        self.persist()
    }

    fn finish(&mut self) -> Result<(), CellError> {
        self.commit()
    }
}
