//! RocksDB: a log and memtables, and sorted files in levels, by the distribution's library.
//!
//! LZ4, bloom filters of 10 bits a key, blocks of 16 KiB, levels of dynamic size, as many background jobs as there are processors and at
//! least 2; the rest as by default. With a limit that
//! does not hold everything several times: half of it for the block cache, with indexes and filters in it, a quarter for all memtables
//! together, blocks of 4 KiB, and direct I/O where the file system has it; else all of it for the block
//! cache, and indexes, filters and memtables of 64 MiB beside it. A durable change is one whose log is synced, which threads
//! share; a buffered one is in the system's hands; without durability there is no log.
//!
//! The database is `Send + Sync`; a session is one thread's.

use crate::changes::Changes;
use crate::engines::rocksdb_c::{Database, Settings};
use crate::engines::{BATCH, small_limit};
use hedgerow_bench::cell::{Cell, CellError, Durability};
use hedgerow_bench::harness::{Engine, Session};
use std::collections::BTreeMap;

/// Bytes of a memtable where memory is not scarce; RocksDB's default.
const MEMTABLE_BYTES: u64 = 64 << 20;

/// What RocksDB says where there is no direct I/O.
const NO_DIRECT_IO: &str = "Direct I/O is not supported";

/// A database.
pub struct Store {
    database: Database,
    settings: Settings,
    is_synced: bool,
    is_loaded: bool,
}

/// One thread's access.
pub struct Access<'a> {
    database: &'a Database,
    is_synced: bool,
    /// While loading: what waits for its batch.
    loading: Option<Changes>,
}

impl Engine for Store {
    type Session<'a> = Access<'a>;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Store, CellError> {
        let small = small_limit(cell, record_bytes);
        let all = cell.memory_limit_bytes.unwrap_or(4 * record_bytes + MEMTABLE_BYTES);
        let bytes = |bytes: u64| usize::try_from(bytes).map_err(CellError::failed);
        let jobs = std::thread::available_parallelism().map_or(2, |jobs| jobs.get().max(2));
        let mut settings = Settings {
            block_cache_bytes: bytes(small.map_or(all, |limit| limit / 2))?,
            block_bytes: if small.is_some() { 4 << 10 } else { 16 << 10 },
            memtable_bytes: bytes(small.map_or(MEMTABLE_BYTES, |limit| limit / 8))?,
            memtables_bytes: small.map(|limit| bytes(limit / 4)).transpose()?,
            bloom_bits: 10.0,
            background_jobs: i32::try_from(jobs).map_err(CellError::failed)?,
            is_limited: small.is_some(),
            is_direct: small.is_some(),
            has_log: cell.durability != Durability::None,
        };
        let path = cell.directory.join("bench.rocksdb");
        let mut opened = Database::open(&path, &settings);
        if settings.is_direct && opened.as_ref().is_err_and(|words| words.contains(NO_DIRECT_IO)) {
            settings.is_direct = false;
            opened = Database::open(&path, &settings);
        }
        let database = opened.map_err(|words| match words.contains("apt-get") {
            true => CellError::Unsupported(words),
            false => CellError::Failed(words),
        })?;
        let is_synced = cell.durability == Durability::Sync;
        Ok(Store { database, settings, is_synced, is_loaded: false })
    }

    fn keeps(_durability: Durability) -> bool {
        true
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Access<'_>>, CellError> {
        // The first session is for loading.
        let is_loading = !std::mem::replace(&mut self.is_loaded, true);
        let access = |_| Access {
            database: &self.database,
            is_synced: self.is_synced && !is_loading,
            loading: is_loading.then(|| Changes::new(BATCH)),
        };
        Ok((0..threads).map(access).collect())
    }

    /// Writes the memtables and compacts everything.
    fn settle(&mut self) -> Result<(), CellError> {
        self.database.compact().map_err(CellError::Failed)
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let facts = [
            ("version", self.database.library_name().to_owned()),
            ("settings", format!("LZ4, {:?}", self.settings)),
            ("is_synced", self.is_synced.to_string()),
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
        self.database.write(changes.iter(), self.is_synced).map_err(CellError::Failed)?;
        changes.clear();
        Ok(())
    }
}

impl Session for Access<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        if self.load(key, Some(value))? {
            return Ok(());
        }
        self.database.put(key, value, self.is_synced).map_err(CellError::Failed)
    }

    #[inline]
    fn get(&mut self, key: &[u8], found: impl FnMut(&[u8])) -> Result<(), CellError> {
        self.commit()?;
        self.database.get(key, found).map_err(CellError::Failed)
    }

    #[inline]
    fn scan(
        &mut self,
        from: &[u8],
        records: usize,
        found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError> {
        self.commit()?;
        self.database.scan(from, records, found).map_err(CellError::Failed)
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        if self.load(key, None)? {
            return Ok(());
        }
        self.database.delete(key, self.is_synced).map_err(CellError::Failed)
    }

    fn finish(&mut self) -> Result<(), CellError> {
        self.commit()
    }
}
