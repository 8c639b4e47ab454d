//! LMDB by `heed`: one file, mapped into memory, cached by the system's page cache.
//!
//! Commits do not wait for the disk (`NO_SYNC`: after a crash of the system the file may be damaged), unless the cell
//! asks for durable ones, which are LMDB's default; pages are written by system calls (no `WRITEMAP`), which is its
//! default too. As `lmdb-100ms` a thread syncs what was committed every 100 ms, so that changes reach the disk as soon
//! as those of stores with a log do; between two syncs a crash of the system may still damage the file.
//! There is no memory limit to set: one that does not hold everything several times is refused, unless
//! the cell is in a memory group, where the page cache counts, or only asks for space. With such a limit the system is
//! told not to read ahead.
//!
//! The environment is `Send + Sync`; a session is one thread's.

use crate::changes::Changes;
use crate::engines::{BATCH, small_limit};
use hedgerow_bench::cell::{Cell, CellError, Distribution, Durability, Operation, Phase};
use hedgerow_bench::harness::{Engine, Session, ValueBytes};
use heed::types::Bytes;
use heed::{
    CommitOrAbort, Database, Env, EnvFlags, EnvOpenOptions, FlagSetMode, PutFlags, RoTxn, WithTls,
};
use send_wrapper::SendWrapper;
use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Threads that may read at the same time.
const MOST_READERS: u32 = 256;

/// The longest key; a limit of the build.
const MOST_KEY_BYTES: u64 = 511;

/// Address space beyond what the records need, in bytes.
const SPARE_MAP_BYTES: u64 = 4 << 30;

/// How often the thread of `lmdb-100ms` syncs.
const SYNCED_EVERY: Duration = Duration::from_millis(100);

type Records = Database<'static, Bytes, Bytes>;

/// An environment with one database. `OPERATIONS`: of a transaction, after loading. `IS_PACED`: a thread syncs it.
pub struct Store<const OPERATIONS: usize, const IS_PACED: bool = false> {
    /// Ends before the environment.
    syncing: Option<Syncing>,
    env: Env<WithTls>,
    records: Records,
    is_synced: bool,
    is_loaded: bool,
}

/// A thread that syncs an environment every 100 ms, until this is dropped.
struct Syncing {
    /// Nothing is sent; that it is gone ends the thread.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<heed::Result<()>>>,
}

impl Syncing {
    fn begin(env: Env<WithTls>) -> Self {
        let (end, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(SYNCED_EVERY) == Err(RecvTimeoutError::Timeout) {
                env.force_sync()?;
            }
            Ok(())
        });
        Syncing { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Syncing {
    fn drop(&mut self) {
        self.end = None;
        let outcome = self.thread.take().map(JoinHandle::join);
        // A cell whose syncs failed has no figure.
        if !std::thread::panicking() {
            assert!(matches!(outcome, Some(Ok(Ok(())))), "LMDB's syncs failed: {outcome:?}");
        }
    }
}

/// One thread's access.
pub struct Access<'a, const OPERATIONS: usize> {
    env: &'a Env<WithTls>,
    records: Records,
    changes: Changes,
    /// A transaction that reads, and how many more operations it is for. It belongs to the thread that began it, which has its reader's
    /// slot for good, as LMDB has it by default: without that each transaction takes a mutex to find one.
    reading: Option<SendWrapper<(RoTxn<'a, WithTls>, usize)>>,
}

/// Whether the cache decides how fast a phase is.
fn reads(phase: &Phase) -> bool {
    use Operation::{Delete, InsertLast, Overwrite};
    let in_order = phase.distribution == Distribution::Sequential {};
    match phase.operation {
        Delete { .. } | InsertLast {} => false,
        upkeep if upkeep.is_upkeep() => false,
        Overwrite {} => !in_order,
        _ => true,
    }
}

impl<const OPERATIONS: usize, const IS_PACED: bool> Engine for Store<OPERATIONS, IS_PACED> {
    type Session<'a> = Access<'a, OPERATIONS>;

    fn create(cell: &Cell, record_bytes: u64) -> Result<Self, CellError> {
        if cell.keys.kind.key_bytes().is_some_and(|bytes| bytes > MOST_KEY_BYTES) {
            let what =
                format!("a key has at most {MOST_KEY_BYTES} bytes, as LMDB is built by default");
            return Err(CellError::Unsupported(what));
        }
        let is_limited = small_limit(cell, record_bytes).is_some();
        if is_limited && cell.memory_group.is_none() && cell.phases.iter().any(reads) {
            return Err(CellError::Unsupported("the page cache has no limit".into()));
        }
        // Half-full pages, and old ones that readers keep; the file is only as long as it is used.
        let map_bytes = (4 * record_bytes + SPARE_MAP_BYTES).next_multiple_of(1 << 20);
        let map_bytes = usize::try_from(map_bytes).map_err(CellError::failed)?;
        let mut options = EnvOpenOptions::new();
        options.map_size(map_bytes).max_readers(MOST_READERS);
        // SAFETY: without syncing, a crash of the system may damage the file; it is made for this
        // cell and thrown away after it.
        unsafe { options.flags(EnvFlags::NO_SYNC) };
        if is_limited {
            // SAFETY: reading ahead or not is a matter of speed.
            unsafe { options.flags(EnvFlags::NO_SYNC | EnvFlags::NO_READ_AHEAD) };
        }
        // SAFETY: the directory is this cell's own, so nothing else changes or maps the file while
        // it is mapped here, and it is on a local disk.
        let env = unsafe { options.open(&cell.directory) }.map_err(CellError::failed)?;
        let records = {
            let transaction = env.write_txn().map_err(CellError::failed)?;
            let created = env.create_databases_and_commit(transaction, |opener, transaction| {
                opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
            });
            let created = created.map_err(|error: heed::Error| CellError::failed(error))?;
            created.commit().ok_or_else(|| CellError::failed("the database was not made"))?
        };
        let is_synced = cell.durability == Durability::Sync;
        let syncing = IS_PACED.then(|| Syncing::begin(env.clone()));
        Ok(Store { syncing, env, records, is_synced, is_loaded: false })
    }

    fn keeps(_durability: Durability) -> bool {
        true
    }

    fn sessions(&mut self, threads: usize) -> Result<Vec<Access<'_, OPERATIONS>>, CellError> {
        // The first session is for loading.
        let operations = if self.is_loaded { OPERATIONS } else { BATCH };
        if self.is_loaded && self.is_synced {
            self.env.force_sync().map_err(CellError::failed)?;
            // SAFETY: no transaction is open: sessions borrow the environment's store, and there are none.
            unsafe { self.env.set_flags(EnvFlags::NO_SYNC, FlagSetMode::Disable) }
                .map_err(CellError::failed)?;
        }
        self.is_loaded = true;
        let (env, records) = (&self.env, self.records);
        let access = |_| Access { env, records, changes: Changes::new(operations), reading: None };
        Ok((0..threads).map(access).collect())
    }

    fn bulk_load<'k>(
        &mut self,
        records: impl Iterator<Item = (&'k [u8], ValueBytes)>,
    ) -> Result<(), CellError> {
        self.is_loaded = true;
        let mut transaction = self.env.write_txn().map_err(CellError::failed)?;
        for (key, value) in records {
            self.records
                .put_with_flags(&mut transaction, PutFlags::APPEND, key, &value)
                .map_err(CellError::failed)?;
        }
        transaction.commit().map_err(CellError::failed)
    }

    /// Syncs the file. LMDB gives no space back to the system.
    fn settle(&mut self) -> Result<(), CellError> {
        self.env.force_sync().map_err(CellError::failed)
    }

    fn store_bytes(&mut self) -> Result<Option<u64>, CellError> {
        let transaction = self.env.read_txn().map_err(CellError::failed)?;
        let stat = self.records.stat(&transaction).map_err(CellError::failed)?;
        Ok(Some(stat.non_free_page_size() as u64))
    }

    fn facts(&self) -> BTreeMap<String, String> {
        let version = heed::lmdb_version();
        let sync = match (self.is_synced, &self.syncing) {
            (true, _) => "synced",
            (false, Some(_)) => "NO_SYNC and a sync every 100 ms",
            (false, None) => "NO_SYNC",
        };
        let facts = [
            ("version", format!("LMDB {}.{}.{}", version.major, version.minor, version.patch)),
            ("settings", format!("{sync}, no WRITEMAP, thread-local readers")),
            ("operations_a_transaction", OPERATIONS.to_string()),
        ];
        facts.map(|(name, fact)| (name.to_owned(), fact)).into()
    }
}

impl<'a, const OPERATIONS: usize> Access<'a, OPERATIONS> {
    /// Adds a change, and commits if that makes enough of them.
    fn change(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), CellError> {
        if self.changes.push(key, value) { self.commit() } else { Ok(()) }
    }

    /// Makes the changes that wait.
    fn commit(&mut self) -> Result<(), CellError> {
        self.reading = None;
        let mut transaction = self.env.write_txn().map_err(CellError::failed)?;
        for (key, value) in self.changes.iter() {
            match value {
                Some(value) => self.records.put(&mut transaction, key, value),
                None => self.records.delete(&mut transaction, key).map(|_| ()),
            }
            .map_err(CellError::failed)?;
        }
        transaction.commit().map_err(CellError::failed)?;
        self.changes.clear();
        Ok(())
    }

    /// Calls `read` in a transaction that sees all changes of this session.
    #[inline]
    fn read<R>(
        &mut self,
        read: impl FnOnce(Records, &RoTxn<'a, WithTls>) -> heed::Result<R>,
    ) -> Result<R, CellError> {
        if !self.changes.is_empty() {
            self.commit()?;
        }
        let (transaction, left) = match self.reading.take() {
            Some(reading) => reading.take(),
            None => (self.env.read_txn().map_err(CellError::failed)?, OPERATIONS),
        };
        let outcome = read(self.records, &transaction).map_err(CellError::failed);
        if left > 1 {
            self.reading = Some(SendWrapper::new((transaction, left - 1)));
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
        self.read(|records, transaction| {
            if let Some(value) = records.get(transaction, key)? {
                found(value);
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
        self.read(|database, transaction| {
            // LMDB has no empty key to begin with.
            if from.is_empty() {
                for record in database.iter(transaction)?.take(records) {
                    let (key, value) = record?;
                    found(key, value);
                }
                return Ok(());
            }
            let range = (std::ops::Bound::Included(from), std::ops::Bound::Unbounded);
            for record in database.range(transaction, &range)?.take(records) {
                let (key, value) = record?;
                found(key, value);
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
