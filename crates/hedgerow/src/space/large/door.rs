//! Who writes to the file for large values, beside checkpoints and the pool, and whether that is durable.
//!
//! Nobody is let in any more when the store is being closed: somebody else may have the file then. `Sync`; closing waits for those
//! who are inside.

use crate::error::{Error, ErrorKind, Result};
use hedgerow_sync::primitive::atomic::AtomicBool;
use hedgerow_sync::primitive::atomic::Ordering::{AcqRel, Release};
use hedgerow_sync::primitive::{Condvar, Mutex};
use std::fmt;

/// See the head of the file.
#[derive(Default)]
pub(in crate::space) struct Door {
    writing: Mutex<Writing>,
    written: Condvar,
    /// Something was written since the file was synced for that.
    unsynced: AtomicBool,
}

/// Who writes to the file, or makes it longer, for an extent.
#[derive(Default)]
struct Writing {
    count: usize,
    closed: bool,
}

/// Somebody does; until the value is dropped.
#[must_use]
pub struct ExtentWrite<'s>(&'s Door);

impl fmt::Debug for ExtentWrite<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtentWrite")
    }
}

impl Drop for ExtentWrite<'_> {
    fn drop(&mut self) {
        self.0.writing.lock().count -= 1;
        self.0.written.notify_all();
    }
}

impl Door {
    /// Lets the caller write to the file, or make it longer.
    ///
    /// Errors: `Closed`.
    pub(in crate::space) fn enter(&self) -> Result<ExtentWrite<'_>> {
        let mut writing = self.writing.lock();
        if writing.closed {
            return Err(Error::new(ErrorKind::Closed, "the database was closed"));
        }
        writing.count += 1;
        Ok(ExtentWrite(self))
    }

    /// Lets nobody in any more, and waits for those who are.
    pub(in crate::space) fn close(&self) {
        let mut writing = self.writing.lock();
        writing.closed = true;
        while writing.count > 0 {
            self.written.wait(&mut writing);
        }
    }

    /// Something was written: a sync is due.
    pub(in crate::space) fn wrote(&self) {
        self.unsynced.store(true, Release);
    }

    /// Whether a sync is due. Whoever asks makes it.
    pub(in crate::space) fn take_unsynced(&self) -> bool {
        self.unsynced.swap(false, AcqRel)
    }
}
