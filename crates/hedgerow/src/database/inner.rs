//! What all handles of a database share: the store, what long keys and transactions need beside it, and whether it is open.
//!
//! Rank 7. Invariant: whoever closes it is the one who sets `closed` first. `Send + Sync`.

use crate::database::long::LongKeys;
use crate::database::opened::Opened;
use crate::database::options::Durability;
use crate::error::{Error, ErrorKind, Result};
use crate::events;
use crate::storage::Disk;
use crate::store::Store;
use hedgerow_sync::primitive::Arc;
use hedgerow_sync::primitive::atomic::{AtomicBool, Ordering::*};
use hedgerow_sync::primitive::process::Process;
use std::path::PathBuf;

/// What all handles share.
pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) long: LongKeys,
    pub(super) durability: Durability,
    /// Where the store lies; `None` in memory.
    pub(super) disk: Option<Arc<dyn Disk>>,
    closed: AtomicBool,
    pub(super) opened: Opened,
    /// Where somebody can open it again; `None` in memory and for a temporary one.
    pub(super) path: Option<PathBuf>,
    /// The process that opened it.
    process: Process,
}

impl Drop for Inner {
    /// The last handle is gone; see [`Database`](crate::Database). A panic that unwinds through it changes nothing about that.
    fn drop(&mut self) {
        if self.path.is_some() && !self.closed.load(Relaxed) && self.process.is_current() {
            // No caller could be told. What is durable stays so, as after a crash.
            if let Err(error) = self.store.finish() {
                events::drop_failed(&error);
            }
        }
    }
}

impl Inner {
    /// Of a store that was just opened. `path`: where somebody can open it again.
    pub(super) fn new(
        store: Store,
        durability: Durability,
        disk: Option<Arc<dyn Disk>>,
        path: Option<PathBuf>,
    ) -> Inner {
        let (closed, process) = (AtomicBool::new(false), store.process());
        let (long, opened) = (LongKeys::default(), Opened::new());
        Inner { store, long, disk, durability, closed, opened, path, process }
    }

    /// Closes the database for all handles. Returns whether it was open.
    pub(super) fn close(&self) -> bool {
        !self.closed.swap(true, AcqRel)
    }

    /// Whether the database has not been closed, and this is the process that opened it. Each public call asks this before it
    /// takes a lock.
    #[inline]
    pub(super) fn check_open(&self) -> Result<()> {
        // Relaxed: a hint that spares a later surprise; what is not in memory is refused by the pool.
        if self.closed.load(Relaxed) || !self.process.is_current() {
            return Err(self.refusal());
        }
        Ok(())
    }

    /// Whether this is the process that opened the database: to be asked when a function of the caller's has returned, which
    /// may have forked.
    #[inline]
    pub(super) fn check_process(&self) -> Result<()> {
        if self.process.is_current() { Ok(()) } else { Err(Error::forked()) }
    }

    /// The process that opened the database.
    pub(super) fn process(&self) -> Process {
        self.process
    }

    #[cold]
    fn refusal(&self) -> Error {
        match self.process.is_current() {
            true => Error::new(ErrorKind::Closed, "the database was closed"),
            false => Error::forked(),
        }
    }
}
