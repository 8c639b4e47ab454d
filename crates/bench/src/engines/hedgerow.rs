//! Hedgerow as a user calls it, in memory or in a file.
//!
//! Gets lend the value as the other stores do, or fill a buffer; leaves are adaptive or, by the name of the competitor,
//! all of one layout, or changes are made a thousand at a time, or checkpoints are taken on demand alone; everything else is the same. Without a log unless the cell asks for durable changes; then with
//! one, and the defaults of a user. Sessions share handles, which are `Send + Sync`; a session's cursor and buffer are its own.

use super::up_to;
use crate::cell::{Cell, CellError, Durability, Place, TreeShape};
use crate::harness::{Checkpoint, Engine, Session, ValueBytes};
use hedgerow::{Cursor, Database, Error, ErrorKind, Keyspace, Options, WriteBatch};
use std::collections::BTreeMap;

/// Memory beyond the records for which a store in memory is given room, in bytes.
const SPARE_BYTES: u64 = 64 << 20;

/// A log that never makes a checkpoint due.
const ROOMY_LOG_BYTES: u64 = 8 << 30;

/// Changes of a batch, for the competitor that makes batches: as many as other stores have in a transaction.
const BATCH: usize = 1000;

fn is_without_log(cell: &Cell) -> bool {
    cell.competitor == "hedgerow-no-log"
}

/// A database with one keyspace. `INTO`: gets fill a buffer of the caller's.
pub struct Store<const INTO: bool> {
    database: Database,
    keyspace: Keyspace,
    place: Place,
    durability: Durability,
    is_loaded: bool,
    makes_batches: bool,
}

/// One thread's handles.
pub struct Handle<'a, const INTO: bool> {
    keyspace: &'a Keyspace,
    cursor: Cursor,
    buffer: Vec<u8>,
    /// Changes that wait for more, and where they go.
    batch: Option<(&'a Database, WriteBatch)>,
}

impl<const INTO: bool> Handle<'_, INTO> {
    /// Makes the changes that wait: all of them, or if there are enough.
    fn write(&mut self, least: usize) -> Result<(), CellError> {
        if let Some((database, batch)) = &mut self.batch
            && batch.len() >= least
        {
            database.write(batch).map_err(failed)?;
            batch.clear();
        }
        Ok(())
    }
}

fn failed(error: Error) -> CellError {
    match error.kind() {
        ErrorKind::InvalidOption => CellError::Unsupported(error.to_string()),
        _ => CellError::Failed(error.to_string()),
    }
}

impl<const INTO: bool> Engine for Store<INTO> {
    type Session<'a> = Handle<'a, INTO>;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Self, CellError> {
        // Pages are at least half full, and a record has some 10 bytes beside key and value. Memory
        // is taken when it is used.
        let enough = 3 * record_bytes + 32 * cell.keys.count as u64 + SPARE_BYTES;
        let limit = cell.memory_limit_bytes.unwrap_or(enough);
        let policy = super::leaf_policy(&cell.competitor);
        let mut options = Options::new().memory_limit_bytes(limit).leaves(policy);
        options = options.log(cell.durability != Durability::None && !is_without_log(cell));
        if cell.competitor == "hedgerow-on-demand" {
            options = options
                .background_checkpoints(false)
                .checkpoint_bytes(u64::MAX >> 1)
                .log_limit_bytes(ROOMY_LOG_BYTES);
        }
        if let Some(page_bytes) = cell.page_bytes {
            options = options.page_bytes(page_bytes);
        }
        let database = match cell.place {
            Place::Memory => options.in_memory(),
            Place::File => options.create(cell.directory.join("bench.hrow")),
        }
        .map_err(failed)?;
        let keyspace = database.keyspace("bench").map_err(failed)?;
        let (place, durability) = (cell.place, cell.durability);
        let makes_batches = cell.competitor == "hedgerow-batch";
        Ok(Store { database, keyspace, place, durability, is_loaded: false, makes_batches })
    }

    fn keeps(_durability: Durability) -> bool {
        true
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Handle<'_, INTO>>, CellError> {
        // The first session is for loading.
        if self.is_loaded && self.durability == Durability::Sync {
            self.keyspace = self.keyspace.clone().with_durability(hedgerow::Durability::Sync);
        }
        self.is_loaded = true;
        let keyspace = &self.keyspace;
        let database = &self.database;
        let handle = |_| Handle {
            keyspace,
            cursor: keyspace.cursor(),
            buffer: Vec::new(),
            batch: self.makes_batches.then(|| (database, WriteBatch::new())),
        };
        Ok((0..threads).map(handle).collect())
    }

    /// In a file it is durable at the end, so that its rate is one of the disk.
    fn bulk_load<'k>(
        &mut self,
        records: impl Iterator<Item = (&'k [u8], ValueBytes)>,
    ) -> Result<(), CellError> {
        self.is_loaded = true;
        self.keyspace.bulk_load(records, 100).map_err(failed)?;
        self.database.checkpoint().map_err(failed)
    }

    /// Two checkpoints: the first writes what was changed, the second finds nothing to write and gives
    /// back what it can.
    fn settle(&mut self) -> Result<(), CellError> {
        self.database.checkpoint().map_err(failed)?;
        self.database.checkpoint().map_err(failed)
    }

    fn checkpoint(&self) -> Result<Checkpoint, CellError> {
        let database = self.database.clone();
        Ok(Box::new(move || database.checkpoint().map_err(failed)))
    }

    fn pages_read_and_written(&self) -> (Option<u64>, Option<u64>) {
        let pool = self.database.stats().ok().map(|stats| stats.pool);
        (pool.map(|pool| pool.faults), pool.map(|pool| pool.pages_written))
    }

    /// Of a file there is the size; counting its pages reads all of them.
    fn store_bytes(&mut self) -> Result<Option<u64>, CellError> {
        if self.place == Place::File {
            return Ok(None);
        }
        let stats = self.keyspace.stats().map_err(failed)?;
        Ok(Some(stats.pages() * stats.page_bytes as u64))
    }

    /// As for [`Self::store_bytes`].
    fn shape(&mut self) -> Result<Option<TreeShape>, CellError> {
        if self.place == Place::File {
            return Ok(None);
        }
        Ok(Some(super::shape(&self.keyspace.stats().map_err(failed)?)))
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let mut facts = BTreeMap::from([("durability".into(), format!("{:?}", self.durability))]);
        if let Ok(stats) = self.database.stats() {
            facts.insert("page_bytes".into(), stats.page_bytes.to_string());
            facts.insert("memory_limit_bytes".into(), stats.memory.limit_bytes.to_string());
        }
        facts
    }
}

impl<const INTO: bool> Session for Handle<'_, INTO> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), CellError> {
        if let Some((_, batch)) = &mut self.batch {
            batch.put(self.keyspace, key, value).map_err(failed)?;
            return self.write(BATCH);
        }
        self.keyspace.put(key, value).map(|_| ()).map_err(failed)
    }

    #[inline]
    fn get(&mut self, key: &[u8], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        self.write(1)?;
        if INTO {
            if self.keyspace.get_into(key, &mut self.buffer).map_err(failed)? {
                found(&self.buffer);
            }
        } else {
            self.keyspace.get_with(key, found).map_err(failed)?;
        }
        Ok(())
    }

    #[inline]
    fn get_many(&mut self, keys: &[&[u8]], mut found: impl FnMut(&[u8])) -> Result<(), CellError> {
        self.write(1)?;
        let values = self.keyspace.get_many(keys).map_err(failed)?;
        values.iter().flatten().for_each(|value| found(value));
        Ok(())
    }

    #[inline]
    fn scan(
        &mut self,
        from: &[u8],
        records: usize,
        mut found: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), CellError> {
        self.write(1)?;
        self.cursor.seek(from);
        self.cursor.visit(up_to(records, &mut found)).map(drop).map_err(failed)
    }

    #[inline]
    fn remove(&mut self, key: &[u8]) -> Result<(), CellError> {
        self.write(1)?;
        self.keyspace.remove(key).map(|_| ()).map_err(failed)
    }

    #[inline]
    fn fetch_add(&mut self, key: &[u8], number: i64) -> Result<i64, CellError> {
        self.write(1)?;
        self.keyspace.fetch_add(key, number).map_err(failed)
    }

    fn finish(&mut self) -> Result<(), CellError> {
        self.write(1)
    }
}
